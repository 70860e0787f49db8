//! File of one rank with its part of the fp32 weights and of the optimizer state.
//!
//! ```text
//! optimizer_state_dict
//!   zero_stage, partition_count
//!   single_partition_of_fp32_groups    stages 1 and 2: the part of this rank of each group of parameters
//!   fp32_flat_groups                   stage 3: parts of parameters, one after another
//!   base_optimizer_state               stages 1 and 2: state_dict() of the optimizer over these tensors, or a list of its states
//!   optimizer_state_dict               stage 3: the same
//! ```

use super::flat::{Flat, bad};
use std::collections::HashSet;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_pickle::{Cost, Graph, ObjectId};
use weighbridge_torch_archive::Saved;

/// Key of the content in the file, and of the state of the optimizer within it.
const STATE_DICT: &str = "optimizer_state_dict";

/// State of the optimizer for one flat tensor.
#[derive(Debug)]
pub(super) enum Slot {
    /// An element for each element of the flat tensor.
    Flat(Flat),
    /// One element for all of them.
    Scalar(Box<TensorEntry>),
    /// The same as a number of Python.
    Number(i64),
}

/// State with its name.
#[derive(Debug)]
pub(super) struct OwnSlot {
    pub(super) name: String,
    pub(super) slot: Slot,
    /// Object in the file of the rank.
    id: ObjectId,
}

impl Slot {
    /// Returns true for the same form in another rank, and for one element also the same value.
    pub(super) fn is_like(&self, other: &Self) -> Result<bool> {
        Ok(match (self, other) {
            (Self::Flat(a), Self::Flat(b)) => a.is_like(b),
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::Scalar(a), Self::Scalar(b)) => {
                a.stored == b.stored && a.read_tensor(Order::Row)? == b.read_tensor(Order::Row)?
            }
            _ => false,
        })
    }

    /// Returns the form, and the value of one element, for errors.
    pub(super) fn text(&self) -> Result<String> {
        Ok(match self {
            Self::Flat(_) => "a flat tensor".to_owned(),
            Self::Scalar(entry) => {
                format!("a tensor with the bytes {}", Name::hex(&entry.read_tensor(Order::Row)?))
            }
            Self::Number(number) => number.to_string(),
        })
    }
}

/// Part of one rank.
#[derive(Debug)]
pub(super) struct RankPart {
    /// Stage of ZeRO; `None` for the optimizer of `bfloat16`, whose parts are those of stage 1.
    pub(super) stage: Option<i64>,
    /// Number of ranks.
    pub(super) ranks: u64,
    /// Flat tensors.
    pub(super) groups: Vec<Flat>,
    /// State for each flat tensor, by name.
    pub(super) slots: Vec<Vec<OwnSlot>>,
    /// Elements that this release removed from the end of each flat tensor, and in some forms not from its state.
    paddings: Vec<u64>,
    /// Elements after each parameter of each group, in recent releases.
    pub(super) gaps: Option<Vec<Vec<u64>>>,
    /// Objects that this part replaces.
    pub(super) used: HashSet<ObjectId>,
    /// True if the optimizer has state in a form that is not joined.
    pub(super) is_apart: bool,
}

/// Value of a text key; of duplicates the last one, as in Python.
pub(super) fn find(graph: &Graph, dict: ObjectId, name: &str) -> Option<ObjectId> {
    let pairs = graph.pairs(dict)?;
    pairs.iter().rev().find(|(key, _)| graph.text(*key) == Some(name)).map(|&(_, value)| value)
}

/// Reads an integer, also a member of an enumeration.
fn integer(graph: &Graph, id: ObjectId) -> Option<i64> {
    graph.int(id).or_else(|| match graph.call(id) {
        Some((_, &[value])) => graph.int(value),
        _ => None,
    })
}

impl RankPart {
    /// Reads the part. `budget` is that of the whole checkpoint.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `deepspeed-form`, for content of another form; [`weighbridge_core::Kind::Limit`];
    /// errors of the tensors.
    pub(super) fn of(saved: &Saved, budget: &Budget) -> Result<Self> {
        let graph = saved.graph();
        let all = find(graph, saved.root(), STATE_DICT)
            .filter(|&id| graph.pairs(id).is_some())
            .ok_or_else(|| bad("the file has no dict `optimizer_state_dict`"))?;
        let field = |name: &str| find(graph, all, name);
        let stage = field("zero_stage")
            .map(|id| integer(graph, id).ok_or_else(|| bad("`zero_stage` is not a number")));
        let stage = stage.transpose()?;
        let mut used: HashSet<ObjectId> = field("zero_stage").into_iter().collect();
        used.extend(field("param_slice_mappings"));
        let groups_key =
            if stage == Some(3) { "fp32_flat_groups" } else { "single_partition_of_fp32_groups" };
        let tensors = field(groups_key)
            .and_then(|id| graph.sequence(id))
            .ok_or_else(|| bad(format!("`optimizer_state_dict` has no list `{groups_key}`")))?;
        let mut groups = Vec::new();
        for &id in tensors {
            budget.take_memory(Cost::entry(false))?;
            let flat = Flat::of(saved, id)?
                .ok_or_else(|| bad(format!("`{groups_key}` has other objects than flat tensors")))?;
            groups.push(flat);
            used.insert(id);
        }
        let ranks = field("partition_count").map(|id| match graph.sequence(id) {
            // Experts have another number of ranks.
            Some(counts) => {
                let counts: HashSet<Option<i64>> = counts.iter().map(|&count| graph.int(count)).collect();
                counts.into_iter().max().flatten()
            }
            None => graph.int(id),
        });
        let ranks = ranks.flatten().and_then(|count| u64::try_from(count).ok());
        let ranks = ranks.ok_or_else(|| bad("`partition_count` is not a number of ranks"))?;
        let gaps = field("param_alignment_paddings").filter(|&id| id != ObjectId::NONE);
        let gaps = gaps.map(|id| {
            numbers(graph, id).ok_or_else(|| bad("`param_alignment_paddings` is not a list of numbers"))
        });
        let gaps = gaps.transpose()?;
        let paddings = field("group_paddings").and_then(|id| graph.sequence(id)).unwrap_or_default();
        let padding = |&id: &ObjectId| graph.int(id).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let paddings = paddings.iter().take(groups.len()).map(padding).collect();
        let slots = Vec::new();
        let mut part = Self { stage, ranks, groups, slots, paddings, gaps, used, is_apart: false };
        let base = field(if stage == Some(3) { STATE_DICT } else { "base_optimizer_state" });
        if let Some(base) = base {
            part.state(saved, base, budget)?;
        }
        Ok(part)
    }

    /// Returns a state of a flat tensor.
    pub(super) fn slot(&self, number: usize, name: &str) -> Option<&Slot> {
        self.slots.get(number)?.iter().find(|own| own.name == name).map(|own| &own.slot)
    }

    /// Returns a state with an element for each element of a flat tensor, without padding.
    pub(super) fn flat(&self, number: usize, name: &str) -> Option<Flat> {
        match self.slot(number, name)? {
            Slot::Flat(flat) => Some(flat.first(self.groups.get(number)?.count)),
            _ => None,
        }
    }

    /// Reads the state of the optimizer.
    fn state(&mut self, saved: &Saved, base: ObjectId, budget: &Budget) -> Result<()> {
        let graph = saved.graph();
        let states: Vec<Option<ObjectId>> = match graph.sequence(base) {
            Some(states) => states.iter().map(|&state| Some(state)).collect(),
            None => {
                let groups =
                    find(graph, base, "param_groups").and_then(|id| graph.sequence(id)).unwrap_or_default();
                let keys = groups
                    .iter()
                    .filter_map(|&group| graph.sequence(find(graph, group, "params")?))
                    .flatten();
                let all = find(graph, base, "state").and_then(|id| graph.pairs(id)).unwrap_or_default();
                let by_key: std::collections::HashMap<i64, ObjectId> =
                    all.iter().filter_map(|&(key, value)| Some((graph.int(key)?, value))).collect();
                budget.take_work((all.len() as u64).saturating_mul(Cost::VISIT))?;
                keys.take(self.groups.len() + 1)
                    .map(|&key| graph.int(key).and_then(|key| by_key.get(&key).copied()))
                    .collect()
            }
        };
        if states.len() != self.groups.len() {
            self.is_apart = true;
            return Ok(());
        }
        for (place, state) in states.into_iter().enumerate() {
            let mut slots: Vec<OwnSlot> = Vec::new();
            let pairs = state.and_then(|state| graph.pairs(state)).unwrap_or_default();
            for &(key, value) in pairs {
                budget.take_work(Cost::VISIT)?;
                let Some(name) = graph.text(key).filter(|name| !slots.iter().any(|own| own.name == *name))
                else {
                    self.is_apart = true;
                    continue;
                };
                Limits::check("states of a parameter", "path_parts", slots.len() as u64, MAX_SLOTS)?;
                // A longer tensor belongs to something else, such as a table of the optimizer.
                let count = self.groups.get(place).map_or(0, |flat| flat.count);
                let padded = count.saturating_add(self.paddings.get(place).copied().unwrap_or(0));
                let slot = match (Flat::of(saved, value)?, graph.int(value)) {
                    (Some(flat), _) if flat.count == count || flat.count == padded => Slot::Flat(flat),
                    (None, Some(number)) => Slot::Number(number),
                    (None, None) => match scalar(saved, value)? {
                        Some(entry) => Slot::Scalar(Box::new(entry)),
                        None => {
                            self.is_apart |= saved.is_tensor(value);
                            continue;
                        }
                    },
                    (Some(_), _) => {
                        self.is_apart = true;
                        continue;
                    }
                };
                budget.take_memory(Cost::entry(false) + Cost::name(1, name.len() as u64))?;
                slots.push(OwnSlot { name: name.to_owned(), slot, id: value });
            }
            self.slots.push(slots);
        }
        Ok(())
    }
}

/// Leaves in `ranks` the states that are joined: those that every rank has in the same form. The others are listed as in the
/// files, as all of them where `is_in_runs` is false: then a flat tensor does not have whole parameters.
pub(super) fn settle(ranks: &mut [RankPart], is_in_runs: bool) -> Result<()> {
    let Some((first, others)) = ranks.split_first() else { return Ok(()) };
    let mut joined: Vec<HashSet<String>> = Vec::new();
    for (number, slots) in first.slots.iter().enumerate() {
        let mut names = HashSet::new();
        for own in slots {
            let mut is_same = is_in_runs;
            for part in others {
                is_same = is_same
                    && part.slot(number, &own.name).map_or(Ok(false), |slot| own.slot.is_like(slot))?;
            }
            if is_same {
                names.insert(own.name.clone());
            }
        }
        joined.push(names);
    }
    for part in ranks {
        for (number, slots) in part.slots.iter_mut().enumerate() {
            let names = joined.get(number);
            slots.retain(|own| {
                let is_joined = names.is_some_and(|names| names.contains(&own.name));
                match own.slot {
                    Slot::Number(_) => {}
                    _ if is_joined => _ = part.used.insert(own.id),
                    _ => part.is_apart = true,
                }
                is_joined
            });
        }
    }
    Ok(())
}

/// Maximum number of states of a parameter; optimizers have up to four.
const MAX_SLOTS: u64 = 32;

/// Reads a tensor with one element and without dimensions; `None` for other objects.
fn scalar(saved: &Saved, id: ObjectId) -> Result<Option<TensorEntry>> {
    if !saved.is_tensor(id) || saved.sparse(id).is_some() || saved.quantizer(id).is_some() {
        return Ok(None);
    }
    let entry = saved.tensor(id, TensorPath::value())?;
    Ok(entry.filter(|entry| entry.shape.rank() == 0 && entry.stored.size().is_some()))
}

/// Reads lists of non-negative integers.
fn numbers(graph: &Graph, id: ObjectId) -> Option<Vec<Vec<u64>>> {
    let one = |&id: &ObjectId| u64::try_from(graph.int(id)?).ok();
    graph.sequence(id)?.iter().map(|&group| graph.sequence(group)?.iter().map(one).collect()).collect()
}
