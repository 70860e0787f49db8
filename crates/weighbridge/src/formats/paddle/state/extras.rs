//! Tensors that a structure does not know, because they were renamed or added.

use super::structure::{self, Form, Pairs, View, view};
use super::{canonical, key_of, slots};
use crate::checkpoint::{Checkpoint, Loss, Name, TensorEntry, TensorPath, Value};
use std::collections::HashSet;

/// The deepest dict that is looked into.
const DEEPEST: usize = 128;

/// `structure` with the tensors that it does not know, each in
/// the innermost dict that its path leads to. Where the root is no dict, a plain state dict.
pub(super) fn with_extras(checkpoint: &Checkpoint, structure: &Value, losses: &mut Vec<Loss>) -> Value {
    let mut known = HashSet::new();
    gather(structure, &mut known);
    let extras: Vec<&TensorEntry> =
        checkpoint.tensors.iter().filter(|entry| !known.contains(entry.text().as_str())).collect();
    if extras.is_empty() {
        return structure.clone();
    }
    let form = first_form(structure).unwrap_or(Form::Array);
    let mut changed = structure.clone();
    // A tensor that was saved alone stays alone under a new name.
    if let (View::Tensor(form, _), [entry], 1) =
        (view(structure), extras.as_slice(), checkpoint.tensors.len())
    {
        return structure::tensor(form, entry.text());
    }
    let Some(root) = pairs_mut(&mut changed) else {
        let detail = "the tensors do not fit what was saved; a plain state dict is written";
        losses.push(Loss::new("structure-dropped", &checkpoint.label, detail));
        return canonical(checkpoint);
    };
    for entry in extras {
        insert(root, entry, &entry.path, form, 0);
    }
    changed
}

/// The texts of all tensors in a structure.
fn gather<'a>(value: &'a Value, known: &mut HashSet<&'a str>) {
    match view(value) {
        View::Tensor(_, text) => {
            known.insert(text);
        }
        View::List(items) | View::Tuple(items) => items.iter().for_each(|item| gather(item, known)),
        View::Dict { pairs: Pairs::Named(pairs), .. } => pairs.iter().for_each(|(_, v)| gather(v, known)),
        View::Dict { pairs: Pairs::Listed(pairs), .. } => pairs.iter().for_each(|pair| gather(pair, known)),
        _ => {}
    }
}

/// How the first tensor of a structure stands in it.
fn first_form(value: &Value) -> Option<Form> {
    match view(value) {
        View::Tensor(form, _) => Some(form),
        View::List(items) | View::Tuple(items) => items.iter().find_map(first_form),
        View::Dict { pairs: Pairs::Named(pairs), .. } => pairs.iter().find_map(|(_, v)| first_form(v)),
        View::Dict { pairs: Pairs::Listed(pairs), .. } => pairs.iter().find_map(first_form),
        _ => None,
    }
}

/// The pairs of a dict whose keys are text.
fn pairs_mut(value: &mut Value) -> Option<&mut Vec<(Name, Value)>> {
    let is_dict = matches!(view(value), View::Dict { pairs: Pairs::Named(_), .. });
    let Value::Map(pairs) = value else { return None };
    let marked = pairs.first().is_some_and(|(key, _)| key.as_bytes().starts_with(b"@"));
    match (is_dict, marked) {
        (true, false) => Some(pairs),
        (true, true) => match pairs.first_mut() {
            Some((_, Value::Map(inner))) => Some(inner),
            _ => None,
        },
        (false, _) => None,
    }
}

/// Puts a tensor whose path within this dict is `path` where it leads to.
fn insert(pairs: &mut Vec<(Name, Value)>, entry: &TensorEntry, path: &TensorPath, form: Form, depth: usize) {
    let master = entry.role.slot().and_then(Name::as_str) == Some(slots::MASTER_WEIGHTS);
    for (key, value) in pairs.iter_mut() {
        let prefix = TensorPath::from_dotted(&key.to_text());
        let deeper =
            path.starts_with(&prefix) && path.parts().len() > prefix.parts().len() && depth < DEEPEST;
        if deeper && let Some(inner) = pairs_mut(value) {
            let rest = TensorPath::new(&path.parts()[prefix.parts().len()..]);
            return insert(inner, entry, &rest, form, depth + 1);
        }
        if master
            && *key == Name::from(slots::MASTER_WEIGHTS)
            && let Some(inner) = pairs_mut(value)
        {
            inner.push((Name::from(path.to_text().as_str()), structure::tensor(form, entry.text())));
            return;
        }
    }
    let within = TensorEntry { path: path.clone(), ..entry.clone() };
    let item = (Name::from(key_of(&within).as_str()), structure::tensor(form, entry.text()));
    let last = pairs.iter().rposition(|(_, value)| matches!(view(value), View::Tensor(..)));
    pairs.insert(last.map_or(pairs.len(), |at| at + 1), item);
}
