//! Roles, names and order of the tensors in Keras files:
//!
//! ```text
//! /model_weights/dense/...            a whole model of Keras 1 or 2 (.h5): its layers
//!                                     attributes layer_names of the group, weight_names of each layer
//! /optimizer_weights/Adam/m/...       and the optimizer; attribute weight_names
//! /dense/dense/kernel:0               weights alone (.h5), with the same attributes
//! /layers/dense/vars/0                Keras 3 weights (.weights.h5): numbered variables of each layer
//! /optimizer/vars/0                   of the optimizer
//! /metrics/mean/vars/0                and of the metrics
//! ```

use serde_json::Value as Json;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Attributes, Metadata, Role, StateOf, TensorEntry, Value};

/// Member of an archive with the layers.
pub(super) const CONFIG: &str = "config.json";
/// Class of layers with moving statistics behind the trained variables: `gamma` if it scales, `beta` if it centers.
const NORMALIZATION: &str = "BatchNormalization";
/// Name of the groups of such layers, before a number.
const NORMALIZATION_GROUP: &str = "batch_normalization";
/// Variables that are not trained, by their last name, or by its end in Keras 1.
const STATISTICS: [&str; 4] = ["moving_mean", "moving_variance", "running_mean", "running_std"];
/// Group with the layers of a whole model.
const MODEL: &str = "/model_weights";
/// Group with the optimizer of a whole model.
pub(super) const OPTIMIZER: &str = "/optimizer_weights";
/// Group with the variables of a model that are in no layer.
const TOP: &str = "top_level_model_weights";
/// Attribute with the names of the variables in a group.
const WEIGHT_NAMES: &str = "weight_names";
/// Maximum length of a name of optimizer state that is searched for the name of a parameter: the search is quadratic.
const MAX_NAME_LEN: usize = 1024;

/// Role and name of a dataset that follow from the groups and attributes of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Implied {
    /// Role.
    pub role: Role,
    /// Name of the variable.
    pub name: Option<String>,
    /// Rank in the lists of layers and variables.
    rank: usize,
}

/// Returns role and name of each of the `tensors`, stored at `paths` in a file with this metadata, in the order of the tensors.
/// `config` has the layers of an archive.
pub(super) fn implied<P: Borrow<str>>(
    paths: &[Vec<P>],
    tensors: &[TensorEntry],
    metadata: &Metadata,
    config: Option<&Json>,
) -> Vec<Implied> {
    let plain = Implied { role: Role::Parameter, name: None, rank: usize::MAX };
    let mut all = vec![plain; tensors.len()];
    for (one, is_state) in all.iter_mut().zip(optimizer_state(paths)) {
        if is_state {
            one.role = Role::OptimizerPart { of: None };
        }
    }
    add_names(paths, metadata, &mut all);
    let normalizations = Normalizations::of(config);
    let has_layers = paths.iter().any(|path| is_in(path, "layers") && is_numbered(path));
    for ((one, path), tensor) in all.iter_mut().zip(paths).zip(tensors) {
        if one.role.is_state() {
            continue;
        }
        let is_buffer = match &one.name {
            Some(name) => is_statistic(name) || !tensor.dtype().is_float(),
            None => {
                (has_layers && is_in(path, "metrics") && is_numbered(path))
                    || normalizations.has_statistic(path, metadata)
            }
        };
        if is_buffer {
            one.role = Role::Buffer;
        }
    }
    link(tensors, &mut all);
    all
}

/// Sets roles and names of the `tensors`, and sorts them as Keras lists them. `names` are sorted alike.
pub(super) fn describe(
    tensors: &mut Vec<TensorEntry>,
    names: &mut Vec<String>,
    metadata: &Metadata,
    config: Option<&Json>,
) {
    let all = {
        let paths: Vec<Vec<&str>> = tensors.iter().map(|tensor| super::read::parts(tensor)).collect();
        implied(&paths, tensors, metadata, config)
    };
    let mut rows: Vec<_> = std::mem::take(tensors).into_iter().zip(std::mem::take(names)).zip(all).collect();
    rows.sort_by_key(|(_, implied)| implied.rank);
    for ((mut tensor, name), implied) in rows {
        tensor.role = implied.role;
        if let Some(variable) = implied.name {
            tensor.attributes.entry(Attributes::VARIABLE_NAME.to_owned()).or_insert(Value::Text(variable));
        }
        tensors.push(tensor);
        names.push(name);
    }
}

/// Returns the layers of an archive with this metadata.
pub(super) fn config_of(metadata: &Metadata) -> Option<Json> {
    match metadata.get(CONFIG) {
        Some(Value::Text(text)) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// Adds the names and ranks of the variables that the attributes of groups list.
fn add_names<P: Borrow<str>>(paths: &[Vec<P>], metadata: &Metadata, all: &mut [Implied]) {
    let bases: Vec<&str> = ["", MODEL].into_iter().filter(|base| has_layer_names(metadata, base)).collect();
    if bases.is_empty() {
        return;
    }
    let places: HashMap<String, usize> =
        paths.iter().enumerate().map(|(place, path)| (format!("/{}", path.join("/")), place)).collect();
    let mut groups = Vec::new();
    for base in bases {
        let layers = texts(metadata, base, "layer_names");
        groups.extend(layers.into_iter().chain([TOP]).map(|layer| format!("{base}/{layer}")));
    }
    groups.push(OPTIMIZER.to_owned());
    let (mut rank, mut seen) = (0, HashSet::new());
    for group in groups.iter().filter(|group| seen.insert(group.as_str())) {
        for name in texts(metadata, group, WEIGHT_NAMES) {
            let place = places.get(&format!("{group}/{name}"));
            if let Some(one) = place.and_then(|&place| all.get_mut(place)) {
                rank += 1;
                one.name = Some(name.to_owned());
                one.rank = one.rank.min(rank);
            }
        }
    }
}

/// True for an attribute with the names of layers, also in parts.
fn has_layer_names(metadata: &Metadata, group: &str) -> bool {
    ["layer_names", "layer_names0"].iter().any(|name| attribute(metadata, group, name).is_some())
}

/// Returns the texts of an attribute. Keras splits a long one in parts with numbers.
fn texts<'a>(metadata: &'a Metadata, group: &str, name: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut add = |value: &'a Value| {
        if let Value::List(list) = value {
            found.extend(list.iter().filter_map(|text| match text {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            }));
        }
    };
    match attribute(metadata, group, name) {
        Some(value) => add(value),
        None => (0u64..)
            .map_while(|number| attribute(metadata, group, &format!("{name}{number}")))
            .for_each(&mut add),
    }
    found
}

/// Returns an attribute of a group; the name of the root group is empty.
fn attribute<'a>(metadata: &'a Metadata, group: &str, name: &str) -> Option<&'a Value> {
    if group.is_empty() {
        return metadata.get(name);
    }
    match metadata.get(group) {
        Some(Value::Map(pairs)) => {
            pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
        }
        _ => None,
    }
}

/// True where the attributes list variables of the optimizer.
pub(super) fn lists_optimizer(metadata: &Metadata) -> bool {
    !texts(metadata, OPTIMIZER, WEIGHT_NAMES).is_empty()
}

/// Returns the name of a variable without the number of the output, `:0`.
fn stem(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((stem, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => name,
    }
}

fn is_statistic(name: &str) -> bool {
    let last = stem(name).rsplit('/').next().unwrap_or_default();
    STATISTICS.iter().any(|statistic| {
        last.strip_suffix(statistic).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    })
}

/// Links the state of an optimizer to its variable, by the names of both: `Adam/m/NAME` in newer releases of Keras 2,
/// `Adam/NAME/m` in older ones, and `adam/NAME_momentum` with underscores for the slashes of NAME in Keras 3.
fn link(tensors: &[TensorEntry], all: &mut [Implied]) {
    let mut by_name: HashMap<String, Option<usize>> = HashMap::new();
    for (place, one) in all.iter().enumerate().filter(|(_, one)| !one.role.is_state()) {
        let Some(name) = one.name.as_deref().map(stem) else { continue };
        // A name of two variables is none.
        let mut add = |name: String| {
            let found = by_name.entry(name).or_insert(Some(place));
            *found = found.filter(|&found| found == place);
        };
        add(name.to_owned());
        add(name.replace('/', "_"));
    }
    if by_name.is_empty() {
        return;
    }
    for (place, tensor) in tensors.iter().enumerate() {
        let Some(one) = all.get_mut(place).filter(|one| one.role.is_state()) else { continue };
        let Some(name) = one.name.as_deref().map(stem).filter(|name| name.len() <= MAX_NAME_LEN) else {
            continue;
        };
        let after_slashes = || name.match_indices('/').filter_map(|(at, _)| name.get(at + 1..));
        let without_last = after_slashes().filter_map(|rest| Some(rest.rsplit_once('/')?.0));
        let rest = after_slashes().next().unwrap_or_default();
        let before_slot = rest.match_indices('_').filter_map(|(end, _)| rest.get(..end)).rev();
        let mut candidates = after_slashes().chain(without_last).chain(before_slot);
        let variable = candidates.find_map(|name| {
            let variable = tensors.get(by_name.get(name).copied().flatten()?)?;
            (variable.shape == tensor.shape).then_some(variable)
        });
        if let Some(variable) = variable {
            let of = StateOf { name: variable.text(), guessed: false };
            one.role = Role::OptimizerPart { of: Some(Box::new(of)) };
        }
    }
}

/// Normalization layers of a configuration.
struct Normalizations {
    /// Names of all layers, with the number of trained variables of normalizations; `None` for other classes, and for
    /// ambiguous names.
    layers: HashMap<String, Option<u64>>,
    /// Number of trained variables of each normalization, if that is the same for all.
    trained: Option<u64>,
}

impl Normalizations {
    fn of(config: Option<&Json>) -> Self {
        let mut layers = HashMap::new();
        if let Some(config) = config {
            find_layers(config, &mut layers);
        }
        let mut counts = layers.values().filter_map(|trained| *trained);
        let first = counts.next();
        let trained = first.filter(|first| counts.all(|count| count == *first));
        Self { layers, trained }
    }

    /// True for the moving mean or variance of a layer. Keras 3 stores the name of the layer as an attribute of the group
    /// of its variables, tf-keras stores none.
    fn has_statistic<P: Borrow<str>>(&self, path: &[P], metadata: &Metadata) -> bool {
        let Some((number, group)) = path.split_last().filter(|_| !self.layers.is_empty()) else {
            return false;
        };
        let [.., layer, vars] = group else { return false };
        if vars.borrow() != "vars" {
            return false;
        }
        let trained = match attribute(metadata, &format!("/{}", group.join("/")), "name") {
            Some(Value::Text(name)) => self.layers.get(name).copied().flatten(),
            _ => self.trained.filter(|_| is_numbered_group(layer.borrow(), NORMALIZATION_GROUP)),
        };
        let number = number.borrow().parse::<u64>().ok();
        trained.zip(number).is_some_and(|(trained, number)| (trained..trained + 2).contains(&number))
    }
}

/// True for `name`, alone or with an underscore and a number.
fn is_numbered_group(group: &str, name: &str) -> bool {
    let number = |rest: &str| rest.strip_prefix('_').is_some_and(is_number);
    group.strip_prefix(name).is_some_and(|rest| rest.is_empty() || number(rest))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Collects the [layers](Normalizations::layers) of a configuration. The depth is bounded by the JSON parser.
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
    let has = |group: &str| paths.iter().any(|path| is_in(path, group));
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

/// True for the path of a variable of the optimizer of a whole model.
pub(super) fn is_of_optimizer<P: Borrow<str>>(path: &[P]) -> bool {
    is_in(path, OPTIMIZER.trim_start_matches('/'))
}

/// True for a path below a group of the root.
fn is_in<P: Borrow<str>>(path: &[P], group: &str) -> bool {
    path.len() > 1 && path.first().is_some_and(|first| first.borrow() == group)
}

/// True for the path of a numbered variable: `.../vars/0`.
fn is_numbered<P: Borrow<str>>(path: &[P]) -> bool {
    matches!(path, [.., group, number] if group.borrow() == "vars" && is_number(number.borrow()))
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
