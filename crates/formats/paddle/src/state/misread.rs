//! Detection of tensors whose role changes when the written state is read again, such as parameters
//! that are read as optimizer state.
//!
//! A pickle does not store roles: they follow from the keys (see `slots.rs`). In addition, Paddle reserves two
//! keys of the outermost dict.

use super::TABLE;
use super::slots::{self, MASTER_WEIGHTS, Scope};
use super::split::INFO;
use super::structure::{Form, Pairs, View, view};
use super::writer::name_of;
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Role, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::counted;

/// Returns losses for tensors that would be read as optimizer state, or that would lose their role.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `name-collision` if two items have the same key, because a dict keeps
/// only the last; `reserved-name` if a key of the outermost dict is one that Paddle interprets on loading.
pub(super) fn losses(checkpoint: &Checkpoint, structure: &Value) -> Result<Vec<Loss>> {
    reserved(checkpoint, structure)?;
    let mut by_text = HashMap::with_capacity(checkpoint.tensors.len());
    for entry in &checkpoint.tensors {
        by_text.entry(entry.text()).or_insert(entry);
    }
    let mut check =
        Check { checkpoint, by_text, losses: Vec::new(), role_from_key: HashSet::new(), duplicate: None };
    check.value(structure, true);
    // If a program is dropped, the roles that it defines are reported with it.
    if checkpoint.topology.is_none() {
        check.losses.extend(roles(checkpoint, &check.role_from_key));
    }
    match check.duplicate {
        None => Ok(check.losses),
        Some(key) => Err(Error::mismatch("name-collision", "duplicate key in the state")
            .in_file(&checkpoint.label)
            .expected("distinct keys; optimizer state has the key `PARAMETER_SLOT`, full-precision copies are in `master_weights`")
            .found(escape_text(&key))
            .hint("rename or drop one of them")),
    }
}

/// Reports other roles. Without optimizer state and roles that follow from the key, all tensors are read as parameters.
fn roles(checkpoint: &Checkpoint, role_from_key: &HashSet<&str>) -> Option<Loss> {
    let other = |entry: &&TensorEntry| {
        entry.role.slot().is_none()
            && entry.role != Role::Parameter
            && (role_from_key.is_empty() || !role_from_key.contains(entry.text().as_str()))
    };
    let mut others = checkpoint.tensors.iter().filter(other);
    let first = others.next()?;
    let detail = format!(
        "roles dropped: a Paddle state file does not store them ({} has the role {})",
        first.name(),
        first.role.as_str()
    );
    Some(Loss::new("role-dropped", counted(1 + others.count(), "tensor", "tensors"), detail))
}

/// Fails if an item has a key that Paddle looks up in every dict that it loads. Paddle expects a dict of split
/// parameters or of names there, and fails on anything else.
fn reserved(checkpoint: &Checkpoint, structure: &Value) -> Result<()> {
    let View::Dict { pairs, .. } = view(structure) else { return Ok(()) };
    let pairs: Vec<(&str, &Value)> = match pairs {
        Pairs::Named(pairs) => pairs.iter().filter_map(|(key, value)| Some((key.as_str()?, value))).collect(),
        Pairs::Listed(pairs) => pairs.iter().filter_map(text_pair).collect(),
    };
    for (key, value) in pairs.into_iter().filter(|(key, _)| [INFO, TABLE].contains(key)) {
        let value = match view(value) {
            View::Metadata(name) => checkpoint.metadata.get(name).map(view),
            view => Some(view),
        };
        let tensor = match value {
            // Missing metadata is not written; a dict that was read is written unchanged.
            None | Some(View::Dict { .. } | View::Names(_)) => continue,
            Some(View::Tensor(_, text)) => match checkpoint.tensors.iter().find(|entry| entry.text() == text)
            {
                None => continue,
                tensor => tensor,
            },
            Some(_) => None,
        };
        let text = "the key is reserved by Paddle; a file with it does not load";
        let error = Error::mismatch("reserved-name", text)
            .in_file(&checkpoint.label)
            .expected(format_args!("any key but {INFO} and {TABLE}"))
            .found(key);
        return Err(match tensor {
            Some(tensor) => error
                .on_tensor(tensor.name())
                .hint(phrase!["rename the tensor, or exclude it with ", Opt::Drop]),
            None => error.hint("remove the metadata key, or rename it"),
        });
    }
    Ok(())
}

/// Returns a pair of a dict if its key is text.
fn text_pair(pair: &Value) -> Option<(&str, &Value)> {
    let Value::List(pair) = pair else { return None };
    match pair.as_slice() {
        [Value::Text(key), value] => Some((key, value)),
        _ => None,
    }
}

struct Check<'a> {
    checkpoint: &'a Checkpoint,
    by_text: HashMap<String, &'a TensorEntry>,
    losses: Vec<Loss>,
    /// Names of tensors other than parameters whose role follows from the key.
    role_from_key: HashSet<&'a str>,
    /// First duplicate key.
    duplicate: Option<String>,
}

/// Tensor in a dict with its key and displayed name.
struct Item<'a, 'b> {
    key: &'b str,
    text: &'a str,
    form: Form,
    entry: &'a TensorEntry,
}

impl<'a> Check<'a> {
    fn value(&mut self, value: &'a Value, is_root: bool) {
        match view(value) {
            View::List(items) | View::Tuple(items) => items.iter().for_each(|item| self.value(item, false)),
            View::Dict { pairs: Pairs::Named(pairs), .. } => {
                let texts: Vec<String> = pairs.iter().map(|(key, _)| key.to_text()).collect();
                let pairs: Vec<_> =
                    texts.iter().map(String::as_str).zip(pairs.iter().map(|(_, v)| v)).collect();
                self.dict(&pairs, is_root);
            }
            View::Dict { pairs: Pairs::Listed(pairs), .. } => {
                let mut named = Vec::new();
                for pair in pairs {
                    let Value::List(pair) = pair else { continue };
                    match pair.as_slice() {
                        [Value::Text(key), value] => named.push((key.as_str(), value)),
                        // A key that is not text does not determine a role.
                        [_, value] => self.value(value, false),
                        _ => {}
                    }
                }
                self.dict(&named, false);
            }
            _ => {}
        }
    }

    fn dict(&mut self, pairs: &[(&str, &'a Value)], is_root: bool) {
        let (mut tensors, mut others) = (Vec::new(), Vec::new());
        for &(key, value) in pairs {
            match view(value) {
                View::Tensor(form, text) => {
                    let entry = self.by_text.get(text).copied();
                    tensors.extend(entry.map(|entry| Item { key, text, form, entry }));
                }
                View::Metadata(name) if self.checkpoint.metadata.get(name).is_none() => {}
                _ => others.push((key, value)),
            }
        }
        let mut keys = HashSet::with_capacity(tensors.len() + others.len());
        let all = tensors.iter().map(|item| item.key).chain(others.iter().map(|(key, _)| *key));
        if let Some(duplicate) = all.into_iter().find(|key| !keys.insert(*key)) {
            self.duplicate.get_or_insert_with(|| duplicate.to_owned());
        }
        let table = pairs.iter().find(|(key, _)| is_root && *key == TABLE).map(|(_, value)| *value);
        let table = Table::of(table);
        let names: Vec<String> = tensors.iter().filter_map(|item| table.name_of(item)).collect();
        let scope = Scope::new(
            tensors.iter().map(|item| item.key),
            others.iter().map(|(key, _)| *key),
            names.iter().map(String::as_str),
        );
        for item in &tensors {
            if let Some(slot) = item.entry.role.slot() {
                // Full-precision copies are in a separate dict.
                let own = |(_, read): &(&str, &str)| slot.as_str() == Some(*read);
                if slot.as_str() != Some(MASTER_WEIGHTS) && scope.owner(item.key).is_none_or(|o| !own(&o)) {
                    self.report_as_parameter(item);
                }
                continue;
            }
            // Optimizer state has no second name.
            let own = table.name_of(item).is_none_or(|name| name == item.key);
            if let Some((param, slot)) = scope.owner(item.key).filter(|_| own) {
                self.report_as_state(item.entry, slot, param);
            } else if scope.role(item.key, own).as_ref() == Some(&item.entry.role) {
                self.role_from_key.insert(item.text);
            }
        }
        for (key, value) in others {
            if key == MASTER_WEIGHTS
                && let Some(copies) = self.copies(value)
            {
                let parameters = copies.into_iter().filter(|(_, entry)| entry.role.slot().is_none());
                parameters.for_each(|(param, entry)| self.report_as_state(entry, MASTER_WEIGHTS, &param));
            } else {
                self.value(value, false);
            }
        }
    }

    /// Returns the tensors of a dict that contains nothing else, with their keys.
    fn copies(&self, value: &Value) -> Option<Vec<(String, &'a TensorEntry)>> {
        let View::Dict { pairs: Pairs::Named(pairs), .. } = view(value) else { return None };
        let mut copies = Vec::new();
        for (key, value) in pairs {
            let View::Tensor(_, text) = view(value) else { return None };
            copies.extend(self.by_text.get(text).map(|&entry| (key.to_text(), entry)));
        }
        Some(copies)
    }

    fn report_as_parameter(&mut self, item: &Item<'_, '_>) {
        let detail = match slots::parameter_of(item.key) {
            Some(_) => "its key is read as optimizer state only if the file has the parameter that it names",
            None => "its key does not match any Paddle optimizer",
        };
        self.losses.push(Loss::new("read-as-parameter", item.entry.name(), detail));
    }

    fn report_as_state(&mut self, entry: &TensorEntry, slot: &str, param: &str) {
        let detail = format!(
            "its key is read as the optimizer state `{}` of `{}`",
            escape_text(slot),
            escape_text(param)
        );
        self.losses.push(Loss::new("read-as-state", entry.name(), detail));
    }
}

/// Table of names for tensors that do not store one.
enum Table<'a> {
    None,
    /// Names for all tensors.
    All,
    /// Keys of tensors with their own variable name, and names stored in the table.
    Some(HashSet<&'a str>, HashMap<&'a str, &'a str>),
}

impl<'a> Table<'a> {
    fn of(value: Option<&'a Value>) -> Self {
        let Some(View::Names(names)) = value.map(view) else { return Self::None };
        let Some(rows) = names else { return Self::All };
        let (mut known, mut own) = (HashSet::new(), HashMap::new());
        for row in rows {
            match row {
                Value::Text(key) => {
                    known.insert(key.as_str());
                }
                Value::List(row) => {
                    if let [Value::Text(key), Value::Text(name)] = row.as_slice() {
                        own.insert(key.as_str(), name.as_str());
                    }
                }
                _ => {}
            }
        }
        Self::Some(known, own)
    }

    /// Returns the name that is written for a tensor.
    fn name_of(&self, item: &Item<'_, '_>) -> Option<String> {
        let name = || name_of(item.entry, item.key);
        match (item.form, self) {
            (Form::Tensor | Form::Pair, _) | (_, Self::All) => Some(name()),
            (_, Self::None) => None,
            (_, Self::Some(known, own)) => match own.get(item.key) {
                Some(own) => Some((*own).to_owned()),
                None => known.contains(item.key).then(name),
            },
        }
    }
}
