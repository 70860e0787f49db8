//! Model file: parameters shared by entities.

use super::super::config::Config;
use super::super::state::{self, Slots, Step};
use super::as_float32;
use super::root::Root;
use super::tables::SUM;
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::PlannedFile;
use weighbridge_hdf5::write::{Data, Hdf5Builder};

/// Group of parameters.
const MODEL: &str = "model";
/// Attribute with the name of a parameter in upstream's state dict.
const STATE_DICT_KEY: &str = "state_dict_key";
/// Slot that counts calls.
pub(super) const STEP: &str = "step";

/// Parameters of a checkpoint with their optimizer state.
#[derive(Debug)]
pub(super) struct Model<'a> {
    checkpoint: &'a Checkpoint,
    parameters: Vec<&'a TensorEntry>,
    states: HashMap<&'a TensorPath, Vec<&'a TensorEntry>>,
}

/// True where upstream's loader accepts a parameter of this path; it fails for others.
pub(super) fn is_parameter(path: &TensorPath) -> bool {
    state_dict_key(path).is_some()
}

/// Name of a parameter in upstream's state dict.
fn state_dict_key(path: &TensorPath) -> Option<String> {
    let parts = path.parts().iter().map(Name::as_str).collect::<Option<Vec<_>>>()?;
    if !parts.iter().all(|part| super::super::layout::is_type_name(part)) {
        return None;
    }
    match parts[..] {
        ["relations", number, "operator", side @ ("lhs" | "rhs"), parameter] => {
            Some(format!("{side}_operators.{number}.{parameter}"))
        }
        ["entities", entity, "global_embedding"] => Some(format!("global_embs.emb_{entity}")),
        _ => None,
    }
}

impl<'a> Model<'a> {
    pub(super) fn of(checkpoint: &'a Checkpoint) -> Self {
        let mut model = Self { checkpoint, parameters: Vec::new(), states: HashMap::new() };
        for tensor in checkpoint.tensors.iter().filter(|t| is_parameter(&t.path)) {
            match tensor.role {
                Role::OptimizerState { .. } => model.states.entry(&tensor.path).or_default().push(tensor),
                _ => model.parameters.push(tensor),
            }
        }
        model
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Plans the file, with the optimizer's `state` as written by `torch.save`, or else made from the state tensors.
    pub(super) fn file(
        &self,
        name: String,
        root: &Root,
        config: Option<&Config>,
        state: Option<&[u8]>,
        losses: &mut Vec<Loss>,
    ) -> Result<PlannedFile> {
        let mut file = Hdf5Builder::new(name);
        root.put(&mut file)?;
        file.group(&[MODEL])?;
        for parameter in &self.parameters {
            let parts = parameter.path.parts().iter().filter_map(Name::as_str);
            let path: Vec<&str> = std::iter::once(MODEL).chain(parts).collect();
            file.dataset(&path, Data::Tensor(as_float32(parameter, losses)?))?;
            for (name, value) in &parameter.attributes {
                // Attributes of tensors from other formats are reported elsewhere.
                if self.checkpoint.format == super::ID
                    && name != STATE_DICT_KEY
                    && Hdf5Builder::is_attribute(name, value)
                {
                    file.attribute(&path, name, value)?;
                }
            }
            let key = parameter.text_attribute(STATE_DICT_KEY).map(str::to_owned);
            let key = key.or_else(|| state_dict_key(&parameter.path)).unwrap_or_default();
            file.attribute(&path, STATE_DICT_KEY, &Value::Text(key))?;
        }
        let blob = match state {
            Some(state) => Some(super::literal("", state)),
            None => self.blob(config, losses)?,
        };
        if let Some(blob) = blob {
            file.dataset(&super::STATE, Data::Opaque(blob))?;
        }
        file.finish()
    }

    /// Optimizer state, if any.
    fn blob(&self, config: Option<&Config>, losses: &mut Vec<Loss>) -> Result<Option<PlannedFile>> {
        let said = self.groups();
        if self.states.is_empty() {
            // A model without parameters has an empty state, if it has one.
            return match said {
                Some(None) if self.is_empty() => state::empty().map(Some),
                Some(Some(groups)) if self.optimizer().is_some_and(state::is_marked_empty) => {
                    state::blob(&[], groups).map(Some)
                }
                _ => Ok(None),
            };
        }
        let order = self.order(config)?;
        let places: HashMap<&TensorPath, usize> = order.iter().zip(0..).collect();
        let mut slots = Vec::with_capacity(self.states.len());
        for (&path, tensors) in &self.states {
            let Some(number) = places.get(path).and_then(|place| i64::try_from(*place).ok()) else {
                return Err(Error::mismatch(
                    "state-without-parameter",
                    "the optimizer state belongs to a parameter that the configuration does not have",
                )
                .on_tensor(path)
                .hint(phrase![Opt::NoState, " drops the optimizer state"]));
            };
            slots.push(self.slots(number, tensors, losses)?);
        }
        slots.sort_by_key(|one| one.parameter);
        let complete = slots.iter().filter(|one| one.sum.is_some() && one.step.is_some());
        let complete: HashSet<i64> = complete.map(|one| one.parameter).collect();
        for (number, path) in (0i64..).zip(&order) {
            if !complete.contains(&number) {
                let detail = phrase![
                    "optimizer state incomplete, upstream fails on it: ",
                    Opt::NoState,
                    " drops all state"
                ];
                losses.push(Loss::new("state-incomplete", path.to_string(), detail));
            }
        }
        let made = || {
            let lr = config.map_or(0.01, |c| c.relation_lr.unwrap_or(c.lr));
            state::model_groups(lr, order.len())
        };
        let groups = said.flatten().cloned().unwrap_or_else(made);
        state::blob(&slots, &groups).map(Some)
    }

    fn slots(&self, number: i64, tensors: &[&TensorEntry], losses: &mut Vec<Loss>) -> Result<Slots> {
        let mut slots = Slots { parameter: number, step: None, sum: None };
        for tensor in tensors {
            match tensor.role.slot().and_then(Name::as_str) {
                Some(STEP) => slots.step = Some(Step::Tensor(as_float32(tensor, losses)?)),
                Some(SUM) => {
                    slots.sum = Some(as_float32(tensor, losses)?);
                    if let Some(step) = tensor.attributes.get(STEP) {
                        slots.step.get_or_insert_with(|| Step::Number(step.clone()));
                    }
                }
                _ => losses.push(super::no_such_slot(tensor)),
            }
        }
        Ok(slots)
    }

    /// Optimizer options in the metadata: `None` if missing, `Some(None)` for an optimizer without
    /// parameters.
    fn groups(&self) -> Option<Option<&'a Value>> {
        super::param_groups(self.optimizer()?)
    }

    fn optimizer(&self) -> Option<&'a Value> {
        let Some(Value::Map(all)) = self.checkpoint.metadata.get("optimizer") else { return None };
        all.iter().find(|(name, _)| name.as_str() == Some(MODEL)).map(|(_, value)| value)
    }

    /// Parameters in optimizer order.
    fn order(&self, config: Option<&Config>) -> Result<Vec<TensorPath>> {
        let Some(config) = config else {
            let mut paths: Vec<TensorPath> = self.parameters.iter().map(|p| p.path.clone()).collect();
            paths.sort_by_key(rank);
            return Ok(paths);
        };
        // Only shapes depend on the number of dynamic relations.
        let parameters = config.parameters(0)?;
        let path = |parts: Vec<String>| {
            TensorPath::new(parts.iter().map(|p| Name::from(p.as_str())).collect::<Vec<_>>())
        };
        Ok(parameters.into_iter().map(|parameter| path(parameter.path)).collect())
    }
}

/// Rank of a parameter in optimizer order, by its path: operators of the
/// left side, of the right side, each by relation; then global embeddings, in their order.
fn rank(path: &TensorPath) -> (usize, u64, usize) {
    const ORDER: [&str; 8] = [
        "diagonal",
        "diagonals",
        "linear_transformation",
        "linear_transformations",
        "translation",
        "translations",
        "real",
        "imag",
    ];
    let parts: Vec<&str> = path.parts().iter().filter_map(Name::as_str).collect();
    match parts[..] {
        ["relations", number, _, side, parameter] => {
            let place = ORDER.iter().position(|name| *name == parameter).unwrap_or(ORDER.len());
            (usize::from(side == "rhs"), number.parse().unwrap_or(u64::MAX), place)
        }
        _ => (2, 0, 0),
    }
}
