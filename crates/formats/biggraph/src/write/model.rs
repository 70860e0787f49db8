//! The file of the parameters that are not of single entities.

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

/// The group of parameters.
const MODEL: &str = "model";
/// The attribute that tells the name of a parameter in upstream's code.
const STATE_DICT_KEY: &str = "state_dict_key";
/// The slot that counts calls.
pub(super) const STEP: &str = "step";

/// The parameters of a checkpoint with what the optimizer remembers about them.
#[derive(Debug)]
pub(super) struct Model<'a> {
    checkpoint: &'a Checkpoint,
    parameters: Vec<&'a TensorEntry>,
    states: HashMap<&'a TensorPath, Vec<&'a TensorEntry>>,
}

/// True where upstream's loader knows a parameter of that path; it stops at others.
pub(super) fn is_parameter(path: &TensorPath) -> bool {
    state_dict_key(path).is_some()
}

/// What upstream's code calls the parameter of a path.
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

    /// The file, with the optimizer's `state` as `torch.save` wrote it, or else made from the tensors that are state.
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
                // What other formats say about their tensors is no affair of this file.
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

    /// The state of the optimizer, where there is any.
    fn blob(&self, config: Option<&Config>, losses: &mut Vec<Loss>) -> Result<Option<PlannedFile>> {
        let said = self.groups();
        if self.states.is_empty() {
            // A model without parameters has an empty state, where it has one.
            return match said {
                Some(None) if self.is_empty() => state::empty().map(Some),
                Some(Some(groups)) if self.optimizer().is_some_and(state::says_empty) => {
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
                    "there is optimizer state of a parameter that the configuration does not know",
                )
                .on_tensor(path)
                .hint(phrase![Opt::NoState, " leaves optimizer state out"]));
            };
            slots.push(self.slots(number, tensors, losses)?);
        }
        slots.sort_by_key(|one| one.parameter);
        let complete = slots.iter().filter(|one| one.sum.is_some() && one.step.is_some());
        let complete: HashSet<i64> = complete.map(|one| one.parameter).collect();
        for (number, path) in (0i64..).zip(&order) {
            if !complete.contains(&number) {
                let detail = phrase![
                    "its optimizer state is not complete, and upstream stops there: ",
                    Opt::NoState,
                    " leaves all state out"
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

    /// What the metadata say about the optimizer: `None` where nothing, `Some(None)` where it has no
    /// parameters.
    fn groups(&self) -> Option<Option<&'a Value>> {
        super::param_groups(self.optimizer()?)
    }

    fn optimizer(&self) -> Option<&'a Value> {
        let Some(Value::Map(all)) = self.checkpoint.metadata.get("optimizer") else { return None };
        all.iter().find(|(name, _)| name.as_str() == Some(MODEL)).map(|(_, value)| value)
    }

    /// The parameters in the order in which the optimizer counts them.
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

/// Where a parameter stands in the order of the optimizer, as far as its path tells: operators of the
/// left side, of the right side, each by relation; then what is common to a type, as it stands.
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
