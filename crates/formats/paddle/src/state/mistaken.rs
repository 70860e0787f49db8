//! Tensors that would be taken for something else when what is written is read again: for an optimizer's, or
//! for parameters.
//!
//! A pickle does not say what a tensor is for: its key must do. See `slots.rs`. And two keys of the outermost dict are
//! Paddle's own.

use super::TABLE;
use super::slots::{self, MASTER_WEIGHTS, Scope};
use super::split::INFO;
use super::structure::{Form, Pairs, View, view};
use super::writer::name_of;
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Role, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::counted;

/// The losses of tensors that are no optimizer's but would be read as such, and the other way round; and of those that
/// would be read as parameters.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `name-collision`, where two things would have one key: a dict keeps the last of them;
/// `reserved-name`, where a key of the outermost dict is one that Paddle takes for something else when it loads.
pub(super) fn losses(checkpoint: &Checkpoint, structure: &Value) -> Result<Vec<Loss>> {
    reserved(checkpoint, structure)?;
    let mut by_text = HashMap::with_capacity(checkpoint.tensors.len());
    for entry in &checkpoint.tensors {
        by_text.entry(entry.text()).or_insert(entry);
    }
    let mut check =
        Check { checkpoint, by_text, losses: Vec::new(), told_by_key: HashSet::new(), twice: None };
    check.value(structure, true);
    // Where a program stays behind, what it says of its variables does so too.
    if checkpoint.topology.is_none() {
        check.losses.extend(roles(checkpoint, &check.told_by_key));
    }
    match check.twice {
        None => Ok(check.losses),
        Some(key) => Err(Error::mismatch("name-collision", "two parts of the state would have one key in a dict")
            .in_file(&checkpoint.label)
            .expected("keys that differ: state has the key `PARAMETER_SLOT`, copies in full precision stand in `master_weights`")
            .found(escape_text(&key))
            .hint("give one of them another name (rename), or leave it out (drop)")),
    }
}

/// What tensors are for: but for an optimizer's, and those whose key tells it, all are read as parameters.
fn roles(checkpoint: &Checkpoint, told_by_key: &HashSet<&str>) -> Option<Loss> {
    let other = |entry: &&TensorEntry| {
        entry.role.slot().is_none()
            && entry.role != Role::Parameter
            && (told_by_key.is_empty() || !told_by_key.contains(entry.text().as_str()))
    };
    let mut others = checkpoint.tensors.iter().filter(other);
    let first = others.next()?;
    let detail =
        format!("a state does not say what a tensor is for: {} is {}", first.name(), first.role.as_str());
    Some(Loss::new("role-dropped", counted(1 + others.count(), "tensor", "tensors"), detail))
}

/// Fails where something stands under a key that Paddle looks for in every dict that it loads: it takes what it finds there
/// for a dict, of what was split or of names, and fails where it is none.
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
            // What is gone is not written, and a dict that was read is written as it was.
            None | Some(View::Dict { .. } | View::Names(_)) => continue,
            Some(View::Tensor(_, text)) => match checkpoint.tensors.iter().find(|entry| entry.text() == text)
            {
                None => continue,
                tensor => tensor,
            },
            Some(_) => None,
        };
        let text = "Paddle keeps this key of a state to itself, and could not load the file";
        let error = Error::mismatch("reserved-name", text)
            .in_file(&checkpoint.label)
            .expected(format_args!("any key but {INFO} and {TABLE}"))
            .found(key)
            .hint("give it another name (rename), or leave it out (drop, remove-metadata)");
        return Err(match tensor {
            Some(tensor) => error.on_tensor(tensor.name()),
            None => error,
        });
    }
    Ok(())
}

/// A pair of a dict, where its key is text.
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
    /// Names of tensors that are no parameters, and are read as what they are.
    told_by_key: HashSet<&'a str>,
    /// The first key that two things have.
    twice: Option<String>,
}

/// A tensor in a dict, under its key; its displayed name.
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
                        // A key that is no text says nothing of a tensor.
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
        if let Some(twice) = all.into_iter().find(|key| !keys.insert(*key)) {
            self.twice.get_or_insert_with(|| twice.to_owned());
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
                // Copies in full precision stand in a dict of their own.
                let own = |(_, read): &(&str, &str)| slot.as_str() == Some(*read);
                if slot.as_str() != Some(MASTER_WEIGHTS) && scope.owner(item.key).is_none_or(|o| !own(&o)) {
                    self.not_recognised(item);
                }
                continue;
            }
            // The state of an optimizer goes by one name only.
            let own = table.name_of(item).is_none_or(|name| name == item.key);
            if let Some((param, slot)) = scope.owner(item.key).filter(|_| own) {
                self.mistaken(item.entry, slot, param);
            } else if scope.role(item.key, own).as_ref() == Some(&item.entry.role) {
                self.told_by_key.insert(item.text);
            }
        }
        for (key, value) in others {
            if key == MASTER_WEIGHTS
                && let Some(copies) = self.copies(value)
            {
                let parameters = copies.into_iter().filter(|(_, entry)| entry.role.slot().is_none());
                parameters.for_each(|(param, entry)| self.mistaken(entry, MASTER_WEIGHTS, &param));
            } else {
                self.value(value, false);
            }
        }
    }

    /// The tensors of a dict that holds nothing else, with their keys.
    fn copies(&self, value: &Value) -> Option<Vec<(String, &'a TensorEntry)>> {
        let View::Dict { pairs: Pairs::Named(pairs), .. } = view(value) else { return None };
        let mut copies = Vec::new();
        for (key, value) in pairs {
            let View::Tensor(_, text) = view(value) else { return None };
            copies.extend(self.by_text.get(text).map(|&entry| (key.to_text(), entry)));
        }
        Some(copies)
    }

    fn not_recognised(&mut self, item: &Item<'_, '_>) {
        let key = escape_text(item.key);
        let detail = match slots::parameter_of(item.key) {
            Some(param) => format!(
                "its key `{key}` is an optimizer's only beside its parameter, and none has the key or the name `{}`",
                escape_text(param)
            ),
            None => format!("its key `{key}` is not one of an optimizer that Paddle has"),
        };
        self.losses.push(Loss::new("read-as-parameter", item.entry.name(), detail));
    }

    fn mistaken(&mut self, entry: &TensorEntry, slot: &str, param: &str) {
        let detail = format!(
            "its key looks like an optimizer's `{}` of `{}`, and is read so",
            escape_text(slot),
            escape_text(param)
        );
        self.losses.push(Loss::new("read-as-state", entry.name(), detail));
    }
}

/// Where the names of tensors without one of their own stand.
enum Table<'a> {
    None,
    /// All tensors.
    All,
    /// Tensors that go by their name, and names that the table has of its own.
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

    /// The name that a tensor is written with.
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
