//! Optimizer state and buffers in Keras files:
//!
//! ```text
//! /model_weights/dense/...            a whole model of Keras 2 (.h5): its layers
//! /optimizer_weights/Adam/m/...       and the optimizer, by names unrelated to the layers
//! /layers/dense/vars/0                Keras 3 weights (.weights.h5): numbered variables of each layer
//! /optimizer/vars/0                   and of the optimizer
//! ```

use serde_json::Value as Json;
use std::borrow::Borrow;
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Checkpoint, Role, Value};

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

    fn state(paths: &[&str]) -> Vec<bool> {
        let paths: Vec<Vec<&str>> = paths.iter().map(|path| path.split('/').collect()).collect();
        optimizer_state(&paths)
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
