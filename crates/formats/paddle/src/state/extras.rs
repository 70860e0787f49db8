//! Insertion of renamed or added tensors into a stored structure.

use super::structure::{self, Form, Pairs, View, view};
use super::{TABLE, canonical, key_of, slots};
use std::collections::{BTreeMap, HashMap, HashSet};
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Name, TensorEntry, TensorPath, Value};

/// Returns `structure` with the tensors that it lacks, each in the innermost dict that matches its path. If the
/// root is not a dict, a plain state dict is returned.
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
    // A tensor that was saved on its own stays so under a new name.
    if let (View::Tensor(form, _), [entry], 1) =
        (view(structure), extras.as_slice(), checkpoint.tensors.len())
    {
        return structure::tensor(form, entry.text());
    }
    let Some(root) = pairs_mut(&mut changed) else {
        let detail = "the original structure does not fit the tensors; a plain state dict is written";
        losses.push(Loss::new("structure-dropped", &checkpoint.label, detail));
        return canonical(checkpoint);
    };
    let in_table: Vec<&TensorEntry> = extras
        .iter()
        .copied()
        .filter(|entry| entry.attributes.contains_key(Attributes::VARIABLE_NAME))
        .collect();
    let extras = extras.into_iter().map(|entry| (entry, entry.path.parts())).collect();
    insert(root, extras, form, 0);
    keep_names(root, &in_table);
    changed
}

/// Adds the `extras` of the root to the table of names, if the table lists individual tensors: they keep
/// their variable names.
fn keep_names(root: &mut [(Name, Value)], extras: &[&TensorEntry]) {
    let texts: HashSet<String> = extras.iter().map(|entry| entry.text()).collect();
    let is_extra = |value: &Value| matches!(view(value), View::Tensor(_, text) if texts.contains(text));
    let keys: Vec<Value> =
        root.iter().filter(|(_, value)| is_extra(value)).map(|(key, _)| Value::Text(key.to_text())).collect();
    let table = root
        .iter_mut()
        .find(|(key, value)| *key == Name::from(TABLE) && matches!(view(value), View::Names(Some(_))));
    if let Some((_, Value::Map(marked))) = table
        && let Some((_, Value::List(rows))) = marked.first_mut()
    {
        rows.extend(keys);
    }
}

/// Collects the names of all tensors in a structure.
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

/// Returns the form of the first tensor in a structure.
fn first_form(value: &Value) -> Option<Form> {
    match view(value) {
        View::Tensor(form, _) => Some(form),
        View::List(items) | View::Tuple(items) => items.iter().find_map(first_form),
        View::Dict { pairs: Pairs::Named(pairs), .. } => pairs.iter().find_map(|(_, v)| first_form(v)),
        View::Dict { pairs: Pairs::Listed(pairs), .. } => pairs.iter().find_map(first_form),
        _ => None,
    }
}

/// Returns the pairs of a dict with text keys.
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

/// Tensor with its path relative to the target dict.
type Extra<'a> = (&'a TensorEntry, &'a [Name]);

/// Inserts each tensor at its path within this dict. The keys of the dict are scanned once for all tensors.
fn insert(pairs: &mut Vec<(Name, Value)>, extras: Vec<Extra<'_>>, form: Form, depth: usize) {
    let inner = Inner::of(pairs);
    let mut below: BTreeMap<usize, Vec<Extra<'_>>> = BTreeMap::new();
    let mut masters = Vec::new();
    let mut here = Vec::new();
    for (entry, path) in extras {
        let is_master = entry.role.slot().and_then(Name::as_str) == Some(slots::MASTER_WEIGHTS);
        let master = inner.master.filter(|_| is_master);
        let deeper = if depth < Budget::DEPTH { inner.leading_to(path) } else { None };
        let within = || TensorEntry { path: TensorPath::new(path), ..entry.clone() };
        // The first of several matching dicts.
        match (deeper, master) {
            (Some((place, rest)), master) if master.is_none_or(|master| place <= master) => {
                below.entry(place).or_default().push((entry, rest));
            }
            (_, Some(_)) => masters.push(item(key_of(&within()), entry, form)),
            _ => here.push(item(key_of(&within()), entry, form)),
        }
    }
    if let Some(dict) = inner.master.and_then(|place| pairs.get_mut(place)).and_then(|(_, v)| pairs_mut(v)) {
        dict.extend(masters);
    }
    for (place, extras) in below {
        if let Some(dict) = pairs.get_mut(place).and_then(|(_, value)| pairs_mut(value)) {
            insert(dict, extras, form, depth + 1);
        }
    }
    let last = pairs.iter().rposition(|(_, value)| matches!(view(value), View::Tensor(..)));
    let at = last.map_or(pairs.len(), |at| at + 1);
    pairs.splice(at..at, here);
}

fn item(key: String, entry: &TensorEntry, form: Form) -> (Name, Value) {
    (Name::from(key.as_str()), structure::tensor(form, entry.text()))
}

/// Index of the dicts within a dict.
struct Inner {
    /// Positions by the components of the key; the first of several.
    places: HashMap<Vec<Name>, usize>,
    /// Maximum number of components of a key.
    longest: usize,
    /// Position of the dict with the full-precision copies.
    master: Option<usize>,
}

impl Inner {
    fn of(pairs: &mut [(Name, Value)]) -> Self {
        let mut inner = Self { places: HashMap::new(), longest: 0, master: None };
        for (place, (key, value)) in pairs.iter_mut().enumerate() {
            if pairs_mut(value).is_none() {
                continue;
            }
            if inner.master.is_none() && *key == Name::from(slots::MASTER_WEIGHTS) {
                inner.master = Some(place);
            }
            let parts = TensorPath::from_dotted(&key.to_text()).parts().to_vec();
            inner.longest = inner.longest.max(parts.len());
            inner.places.entry(parts).or_insert(place);
        }
        inner
    }

    /// Returns the position of the first dict whose key is a prefix of `path`, and the remaining path.
    fn leading_to<'p>(&self, path: &'p [Name]) -> Option<(usize, &'p [Name])> {
        let most = self.longest.min(path.len().saturating_sub(1));
        let fitting = (1..=most).filter_map(|count| {
            let (key, rest) = path.split_at(count);
            Some((*self.places.get(key)?, rest))
        });
        fitting.min_by_key(|(place, _)| *place)
    }
}
