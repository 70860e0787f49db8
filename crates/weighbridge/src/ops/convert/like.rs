//! Tensors of one model in the layout of another.

use crate::checkpoint::{Attributes, Checkpoint, TensorEntry, Value};
use crate::error::{Error, Result};
use crate::formats::{self, OpenOptions};
use crate::ops::inputs::Inputs;
use crate::text::{counted, first_and_more};
use std::collections::HashMap;
use std::path::Path;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Maximum number of tensors that an error names.
const MAX_NAMED: usize = 5;
/// Attributes about bytes shared by tensors: they follow the elements.
const SHARING: [&str; 2] = [Attributes::ALIAS_OF, Attributes::STORAGE];

/// Fails where writing to `target` would replace the model `like`.
///
/// # Errors
/// [`crate::Kind::Usage`], `output-is-input`.
pub(super) fn check_apart(like: &Path, target: &Path) -> Result<()> {
    let mut inputs = Inputs::default();
    inputs.add(like.to_owned());
    inputs.check_apart(target)
}

/// Returns the model at `like` with the elements of the tensors of `source`, by name. A tensor of the model may also be named by
/// its structured name or variable name. Without state, the optimizer state of both is dropped.
///
/// # Errors
/// Errors of opening; [`crate::Kind::Mismatch`]: `missing-tensors`, `extra-tensors`, `shape-differs`, `dtype-differs`,
/// `name-collision`.
pub(super) fn fill(
    source: Checkpoint,
    like: &Path,
    open: &OpenOptions,
    no_state: bool,
) -> Result<Checkpoint> {
    let open = OpenOptions { lenient: open.lenient, limits: open.limits.clone(), ..OpenOptions::default() };
    let mut model = formats::open_with(like, &open)?;
    let label = model.label.clone();
    let places = places(&model.tensors);
    let mut found: Vec<Option<TensorEntry>> = vec![None; model.tensors.len()];
    // New names of the source's tensors, for their ties.
    let (mut renamed, mut extra) = (HashMap::new(), Vec::new());
    for tensor in source.tensors {
        let name = tensor.text();
        let Some(&place) = places.get(&name) else {
            extra.push(tensor.name());
            continue;
        };
        renamed.insert(name, model.tensors[place].text());
        if found[place].replace(tensor).is_some() {
            let text = "two tensors of the source belong to one tensor of the model";
            return Err(Error::mismatch("name-collision", text).on_tensor(model.tensors[place].name()));
        }
    }
    let (mut tensors, mut missing, mut state) = (Vec::new(), Vec::new(), 0usize);
    for (own, given) in std::mem::take(&mut model.tensors).into_iter().zip(found) {
        match given {
            _ if no_state && own.role.is_state() => {}
            Some(given) => tensors.push(filled(own, given, &renamed)?),
            None => {
                state += usize::from(own.role.is_state());
                missing.push(own.name());
            }
        }
    }
    if !missing.is_empty() {
        let count = counted(missing.len(), "tensor of the model is", "tensors of the model are");
        let error = Error::mismatch("missing-tensors", format!("{count} missing in the source"))
            .expected(format_args!("the tensors of {}", escape_text(&label)))
            .found(format_args!("no {}", first_and_more(&missing, MAX_NAMED)));
        let hint = match state == missing.len() {
            true => phrase![Opt::NoState, " writes the model without its optimizer state"],
            false => phrase![Opt::Rename, " changes the names in the source"],
        };
        return Err(error.hint(hint));
    }
    if !extra.is_empty() {
        let count = counted(extra.len(), "tensor of the source is", "tensors of the source are");
        return Err(Error::mismatch("extra-tensors", format!("{count} not in the model"))
            .expected(format_args!("the tensors of {}", escape_text(&label)))
            .found(first_and_more(&extra, MAX_NAMED))
            .hint(phrase![
                Opt::Rename,
                " changes the names in the source, ",
                Opt::Drop,
                " leaves tensors out"
            ]));
    }
    model.tensors = tensors;
    if no_state {
        model.drop_state();
    }
    // Parts of the source that are not in its index stay losses.
    model.notes.extend(source.notes.into_iter().filter(|note| note.omission));
    model.damage = source.damage;
    Ok(model)
}

/// Returns the places of tensors by name. A name of several tensors that is not the path of one of them has none.
fn places(tensors: &[TensorEntry]) -> HashMap<String, usize> {
    let mut others: HashMap<String, Option<usize>> = HashMap::new();
    for (place, tensor) in tensors.iter().enumerate() {
        for key in [Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME] {
            let Some(name) = tensor.text_attribute(key) else { continue };
            let other = others.entry(name.to_owned()).or_insert(Some(place));
            *other = other.filter(|&other| other == place);
        }
    }
    let mut places: HashMap<String, usize> =
        others.into_iter().filter_map(|(name, place)| Some((name, place?))).collect();
    places.extend(tensors.iter().enumerate().map(|(place, tensor)| (tensor.text(), place)));
    places
}

/// Returns the tensor `own` of the model with the elements of `given`.
fn filled(own: TensorEntry, given: TensorEntry, renamed: &HashMap<String, String>) -> Result<TensorEntry> {
    let fail = |code, what: &str| {
        Error::mismatch(code, format!("the tensor has another {what} in the model")).on_tensor(given.name())
    };
    if given.shape != own.shape {
        return Err(fail("shape-differs", "shape").expected(&own.shape).found(&given.shape));
    }
    if given.dtype() != own.dtype() {
        let error = fail("dtype-differs", "dtype").expected(own.dtype()).found(given.dtype());
        let hint = phrase![Opt::Cast.with(own.dtype().to_string()), " casts the tensors of the source"];
        return Err(match own.dtype().is_float() && given.dtype().is_float() {
            true => error.hint(hint),
            false => error,
        });
    }
    let mut attributes = own.attributes;
    for key in SHARING {
        attributes.remove(key);
        let Some(value) = given.attributes.get(key) else { continue };
        let value = match value {
            Value::Text(name) => Value::Text(renamed.get(name).unwrap_or(name).clone()),
            value => value.clone(),
        };
        attributes.insert(key.to_owned(), value);
    }
    Ok(TensorEntry {
        path: own.path,
        role: own.role,
        attributes,
        row_names: own.row_names,
        guessed: own.guessed,
        ..given
    })
}
