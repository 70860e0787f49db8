//! Names of the layers in the weights of Keras 3:
//!
//! ```text
//! /layers/conv2d_1/vars/0       a list of layers: the second convolution of the model
//! /layers/conv2d_1/vars         attribute `name`: the name of the layer
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Metadata, TensorEntry, TensorPath, Value};

/// Group of a list of layers, which are numbered by class.
const LAYERS: &str = "layers";
/// Group of the variables of a layer.
const VARIABLES: &str = "vars";
/// Maximum length of the name of a layer in bytes: all variables of nested layers have it in their names.
const MAX_LAYER_NAME_LEN: usize = 256;

/// Names of layers by the group of a list of layers: `/layers/conv2d_1` is the layer `expand`.
///
/// Keras numbers the layers of each class in the order of the model, and stores their names as attributes.
struct LayerNames<'a>(HashMap<&'a str, &'a str>);

impl<'a> LayerNames<'a> {
    /// Collects the names in the metadata of groups.
    fn of(metadata: &'a Metadata) -> Self {
        let names = metadata.iter().filter_map(|(key, value)| {
            let group = key.strip_prefix('/')?.strip_suffix("/vars")?;
            let Value::Map(pairs) = value else { return None };
            match pairs.iter().find(|(key, _)| key.as_str() == Some("name"))? {
                (_, Value::Text(name)) if name.len() <= MAX_LAYER_NAME_LEN => Some((group, name.as_str())),
                _ => None,
            }
        });
        Self(names.collect())
    }

    /// Returns the path of a variable with the names of its layers; `None` for other tensors.
    fn name(&self, path: &TensorPath) -> Option<String> {
        let parts: Vec<&str> = path.parts().iter().map(|part| part.as_str()).collect::<Option<_>>()?;
        let [groups @ .., VARIABLES, _] = &parts[..] else { return None };
        let (mut group, mut named) = (String::new(), Vec::with_capacity(parts.len()));
        let mut is_in_list = false;
        for &part in groups {
            group.push_str(part);
            let name = self.0.get(group.as_str()).filter(|_| is_in_list);
            named.push(*name.unwrap_or(&part));
            is_in_list = part == LAYERS;
            group.push('/');
        }
        named.extend(&parts[groups.len()..]);
        groups.contains(&LAYERS).then(|| named.join("."))
    }
}

/// Gives the variables of layers the names of their layers as structured names, where these differ from the stored names.
pub(super) fn add_names(checkpoint: &mut Checkpoint) {
    let names = LayerNames::of(&checkpoint.metadata);
    let found: Vec<Option<String>> =
        checkpoint.tensors.iter().map(|tensor| names.name(&tensor.path)).collect();
    let differs = |(tensor, name): (&TensorEntry, &Option<String>)| {
        name.as_ref().is_some_and(|name| *name != tensor.path.to_text())
    };
    if !checkpoint.tensors.iter().zip(&found).any(differs) {
        return;
    }
    for (tensor, name) in checkpoint.tensors.iter_mut().zip(found) {
        if let Some(name) = name {
            tensor.attributes.entry(Attributes::STRUCTURED_NAME.to_owned()).or_insert(Value::Text(name));
        }
    }
}

/// Returns the checkpoint without the structured names that reading the file would give again.
pub(super) fn without_names(checkpoint: &Checkpoint) -> Cow<'_, Checkpoint> {
    let names = LayerNames::of(&checkpoint.metadata);
    let is_implied = |tensor: &TensorEntry| {
        tensor
            .text_attribute(Attributes::STRUCTURED_NAME)
            .is_some_and(|own| names.name(&tensor.path).as_deref() == Some(own))
    };
    let implied: Vec<bool> = checkpoint.tensors.iter().map(is_implied).collect();
    if !implied.contains(&true) {
        return Cow::Borrowed(checkpoint);
    }
    let mut plain = checkpoint.clone();
    for (tensor, _) in plain.tensors.iter_mut().zip(implied).filter(|(_, implied)| *implied) {
        tensor.attributes.remove(Attributes::STRUCTURED_NAME);
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::Name;

    #[test]
    fn names_replace_the_numbers_in_lists_of_layers_only() {
        let named = |name: &str| Value::Map(vec![(Name::from("name"), Value::Text(name.to_owned()))]);
        let long = "x".repeat(MAX_LAYER_NAME_LEN + 1);
        let groups = [
            ("/layers/functional/vars", "encoder"),
            ("/layers/functional/layers/dense_1/vars", "up"),
            ("/layers/dense_2/vars", &long),
            ("/head/vars", "dense_7"),
            ("/head/layers/dense/vars", "out"),
            ("/optimizer/vars", "adam"),
        ];
        let metadata: Metadata =
            groups.iter().map(|(group, name)| ((*group).to_owned(), named(name))).collect();
        let names = LayerNames::of(&metadata);
        let name = |path: &str| names.name(&TensorPath::from_dotted(path));
        for (stored, expected) in [
            ("layers.functional.layers.dense_1.vars.0", Some("layers.encoder.layers.up.vars.0")),
            ("layers.functional.layers.dense.vars.0", Some("layers.encoder.layers.dense.vars.0")),
            ("layers.dense_2.vars.1", Some("layers.dense_2.vars.1")),
            // An attribute of the program has its name from the program.
            ("head.layers.dense.vars.0", Some("head.layers.out.vars.0")),
            ("head.vars.0", None),
            ("optimizer.vars.0", None),
            ("vars.0", None),
            ("layers.dense.kernel", None),
        ] {
            assert_eq!(name(stored).as_deref(), expected, "{stored}");
        }
    }
}
