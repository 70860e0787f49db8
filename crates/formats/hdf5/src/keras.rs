//! Optimizer state, buffers and names of layers in Keras files:
//!
//! ```text
//! /model_weights/dense/...            a whole model of Keras 2 (.h5): its layers
//! /optimizer_weights/Adam/m/...       and the optimizer, by names unrelated to the layers
//! /layers/dense/vars/0                Keras 3 weights (.weights.h5): numbered variables of each layer
//! /optimizer/vars/0                   and of the optimizer
//! /layers/conv2d_1/vars/0             the second convolution; the attribute `name` of `vars` is the name of the layer
//! ```

use serde_json::Value as Json;
use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Metadata, Role, TensorEntry, TensorPath, Value};

/// Group of a list of layers, which are numbered by class.
const LAYERS: &str = "layers";
/// Group of the variables of a layer.
const VARIABLES: &str = "vars";
/// Maximum length of the name of a layer in bytes: all variables of nested layers have it in their names.
const MAX_LAYER_NAME_LEN: usize = 256;

/// Class of layers with moving statistics behind the trained variables: `gamma` if it scales, `beta` if it centers.
const NORMALIZATION: &str = "BatchNormalization";

/// Assigns the role of buffers to the moving mean and variance of the [`NORMALIZATION`] layers in `config`. Groups of
/// variables have the names of their layers.
pub(super) fn mark_buffers(checkpoint: &mut Checkpoint, config: &Json) {
    let mut layers = HashMap::new();
    find_layers(config, &mut layers);
    for entry in &mut checkpoint.tensors {
        let Some((number, group)) = entry.path.parts().split_last() else { continue };
        let group: Vec<&str> = group.iter().map(|part| part.as_str().unwrap_or_default()).collect();
        if group.first() == Some(&"optimizer") || group.last() != Some(&"vars") {
            continue;
        }
        let Some(Value::Map(pairs)) = checkpoint.metadata.get(&format!("/{}", group.join("/"))) else {
            continue;
        };
        let name = pairs.iter().find(|(key, _)| key.as_str() == Some("name"));
        let Some((_, Value::Text(name))) = name else { continue };
        let number = number.as_str().and_then(|number| number.parse::<u64>().ok());
        if let (Some(&Some(trained)), Some(number)) = (layers.get(name), number)
            && (trained..trained + 2).contains(&number)
        {
            entry.role = Role::Buffer;
        }
    }
}

/// Collects the names of all layers, with the number of trained variables of normalizations; `None` for other classes, and
/// for ambiguous names. The depth is bounded by the JSON parser.
fn find_layers(json: &Json, layers: &mut HashMap<String, Option<u64>>) {
    match json {
        Json::Array(list) => list.iter().for_each(|item| find_layers(item, layers)),
        Json::Object(map) => {
            let config = map.get("config").and_then(Json::as_object);
            let name = config.and_then(|config| config.get("name")).and_then(Json::as_str);
            if let (Some(config), Some(name), Some(class)) = (config, name, map.get("class_name")) {
                let is_set = |key: &str| config.get(key).and_then(Json::as_bool).unwrap_or(true);
                let trained = u64::from(is_set("scale")) + u64::from(is_set("center"));
                let found = (class == NORMALIZATION).then_some(trained);
                let known = layers.entry(name.to_owned()).or_insert(found);
                if *known != found {
                    *known = None;
                }
            }
            map.values().for_each(|item| find_layers(item, layers));
        }
        _ => {}
    }
}

/// Names of layers by the group of a list of layers: `/layers/conv2d_1` is the layer `expand`.
///
/// Keras numbers the layers of each class in the order of the model, and stores their names as attributes.
pub(super) struct LayerNames<'a>(HashMap<&'a str, &'a str>);

impl<'a> LayerNames<'a> {
    /// Collects the names in the metadata of groups.
    pub(super) fn of(metadata: &'a Metadata) -> Self {
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
    pub(super) fn name(&self, path: &TensorPath) -> Option<String> {
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
pub(super) fn name_layers(checkpoint: &mut Checkpoint) {
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
pub(super) fn without_layer_names(checkpoint: &Checkpoint) -> Cow<'_, Checkpoint> {
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

/// Marks the datasets at `paths` that are optimizer state.
pub(super) fn optimizer_state<P: Borrow<str>>(paths: &[Vec<P>]) -> Vec<bool> {
    let first = |path: &[P]| path.first().map(|part| part.borrow().to_owned());
    let is_in = |path: &[P], group: &str| path.len() > 1 && first(path).as_deref() == Some(group);
    let has = |group: &str| paths.iter().any(|path| is_in(path, group));
    let is_numbered = |path: &[P]| match path {
        [.., group, number] => {
            let number = number.borrow();
            group.borrow() == "vars" && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    let numbered = |of_optimizer: bool| {
        paths.iter().any(|path| is_in(path, "optimizer") == of_optimizer && is_numbered(path))
    };
    let group = match () {
        () if has("optimizer_weights") && has("model_weights") => "optimizer_weights",
        () if numbered(true) && numbered(false) => "optimizer",
        () => return vec![false; paths.len()],
    };
    paths.iter().map(|path| is_in(path, group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::Name;

    fn state(paths: &[&str]) -> Vec<bool> {
        let paths: Vec<Vec<&str>> = paths.iter().map(|path| path.split('/').collect()).collect();
        optimizer_state(&paths)
    }

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

    #[test]
    fn recognizes_optimizer_state_by_the_groups_of_keras() {
        let whole = ["model_weights/dense/dense/kernel:0", "optimizer_weights/Adam/iter:0"];
        assert_eq!(state(&whole), [false, true]);
        let numbered = ["layers/dense/vars/0", "optimizer/vars/0", "optimizer/inner/vars/12"];
        assert_eq!(state(&numbered), [false, true, true]);
        // Groups of these names in other files are not the state of an optimizer.
        assert_eq!(state(&["optimizer_weights/a", "fc/w"]), [false, false]);
        assert_eq!(state(&["optimizer/vars/0", "fc/w"]), [false, false]);
        assert_eq!(state(&["layers/dense/vars/0", "optimizer/rate"]), [false, false]);
    }
}
