//! Structured names for models of 3.x from `x.pdparams` in the same folder. Such models have no list of names.
//!
//! Variable names count the layers of a whole program, so those of the state and of the model may differ.
//! A tensor of the state matches a parameter of the model if both are unique in type and shape, or if their
//! values are equal. Among tensors with equal values the state's own name table decides, unless it contradicts
//! the other matches.

use super::super::{Paddle, state};
use super::beside::{Beside, is_hidden, text};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Note, TensorEntry, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Encoding};
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::engine::is_encoded;
use weighbridge_io::source::{SourceRef, read_vec};

/// Length in bytes of each compared sample of a tensor.
const SAMPLE: u64 = 64;
/// Number of samples compared for each tensor.
const SAMPLES: u64 = 4;
/// Suffix of a parameter state.
const ENDING: &str = ".pdparams";

/// Adds the structured names of the state to the parameters of a PIR model.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]. An unreadable state leads to a note.
pub(super) fn join(
    checkpoint: &mut Checkpoint,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<()> {
    let is_pir = checkpoint.topology.as_ref().is_some_and(|topology| topology.form == Paddle::FORM_PIR);
    let named =
        |entry: &TensorEntry| entry.guessed || entry.attributes.contains_key(Attributes::STRUCTURED_NAME);
    if !is_pir || checkpoint.tensors.iter().any(named) {
        return Ok(());
    }
    let Some((source, name)) = find(beside)? else { return Ok(()) };
    let note = match state::read(
        &source,
        &OpenOptions { limits: options.limits.clone(), ..OpenOptions::default() },
    ) {
        Ok(found) => match names(&checkpoint.tensors, &found.tensors) {
            Some(names) => {
                checkpoint.files.push(source);
                let count = names.len();
                for (place, structured) in names {
                    let attributes = &mut checkpoint.tensors[place].attributes;
                    attributes.insert(Attributes::STRUCTURED_NAME.to_owned(), Value::Text(structured));
                }
                let tensors = counted(checkpoint.tensors.len(), "tensor", "tensors");
                let text = format!(
                    "{count} of {tensors}: structured names taken from {name}, matched by values and shapes"
                );
                Note::new("names-of-state", text)
            }
            None => Note::new(
                "state-ignored",
                format!("{name} skipped: its tensors differ from those of the model"),
            ),
        },
        Err(error) => Note::new("state-ignored", format!("{name} skipped: {}", error.message())),
    };
    checkpoint.notes.push(note);
    Ok(())
}

/// Finds the state of the same name, else the only one in the folder.
fn find(beside: Option<Beside<'_>>) -> Result<Option<(SourceRef, String)>> {
    let Some(beside) = beside else { return Ok(None) };
    let stem = [".pdiparams", ".json"].iter().find_map(|end| beside.file_name().strip_suffix(end));
    if let Some(stem) = stem
        && let Some(found) = beside.first(&[format!("{stem}{ENDING}")])?
    {
        return Ok(Some(found));
    }
    let items = beside.folder.list(1)?;
    let names = items.iter().map(|item| text(&item.name));
    let states: Vec<&str> = names.filter(|name| name.ends_with(ENDING) && !is_hidden(name)).collect();
    match states.as_slice() {
        [name] => Ok(beside.folder.open(name.as_ref())?.map(|source| (source, (*name).to_owned()))),
        _ => Ok(None),
    }
}

/// Type and shape, equal for tensors that can match.
type Form<'a> = (DType, &'a [u64]);

/// Returns structured names with the positions of `variables`, or `None` if the state lacks tensors of the model.
fn names(variables: &[TensorEntry], state: &[TensorEntry]) -> Option<Vec<(usize, String)>> {
    fn form(entry: &TensorEntry) -> Form<'_> {
        (entry.dtype(), entry.shape.dims())
    }
    let mut groups: HashMap<Form<'_>, [Vec<usize>; 2]> = HashMap::new();
    for (side, entries) in [variables, state].into_iter().enumerate() {
        for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.role.slot().is_none()) {
            groups.entry(form(entry)).or_default()[side].push(place);
        }
    }
    if groups.values().any(|[variables, state]| variables.len() > state.len()) {
        return None;
    }
    let (mut pairs, mut alike) = (Vec::new(), Vec::new());
    for [own, theirs] in groups.into_values() {
        if let ([one], [other]) = (own.as_slice(), theirs.as_slice()) {
            pairs.push((*one, *other));
            continue;
        }
        let mut by_value: HashMap<Vec<u8>, [Vec<usize>; 2]> = HashMap::new();
        for (side, (entries, places)) in [(variables, own), (state, theirs)].into_iter().enumerate() {
            for place in places {
                if let Some(sample) = sample(&entries[place]) {
                    by_value.entry(sample).or_default()[side].push(place);
                }
            }
        }
        for [own, theirs] in by_value.into_values() {
            match (own.as_slice(), theirs.as_slice()) {
                ([one], [other]) => pairs.push((*one, *other)),
                _ => alike.push((own, theirs)),
            }
        }
    }
    let in_table = |place: &usize| state[*place].text_attribute(Attributes::VARIABLE_NAME);
    let agrees = |(own, other): &(usize, usize)| {
        in_table(other).is_none_or(|name| name == variables[*own].path.to_text())
    };
    if pairs.iter().all(agrees) {
        for (own, theirs) in alike {
            let places: HashMap<String, usize> =
                own.into_iter().map(|place| (variables[place].path.to_text(), place)).collect();
            let known = theirs.iter().filter_map(|place| Some((*places.get(in_table(place)?)?, *place)));
            pairs.extend(known);
        }
    }
    pairs.sort_unstable();
    Some(pairs.into_iter().map(|(own, other)| (own, state[other].path.to_text())).collect())
}

/// Samples a tensor from its beginning to its end. `None` if the bytes need decoding.
fn sample(entry: &TensorEntry) -> Option<Vec<u8>> {
    let extent = entry.single_extent().filter(|extent| !is_encoded(&extent.source))?;
    if extent.encoding != Encoding::ROW && !entry.shape.is_order_free() {
        return None;
    }
    if extent.len <= SAMPLE * SAMPLES {
        return read_vec(&*extent.source, extent.offset, extent.len).ok();
    }
    let step = (extent.len - SAMPLE) / (SAMPLES - 1);
    let parts = (0..SAMPLES).map(|k| read_vec(&*extent.source, extent.offset + k * step, SAMPLE).ok());
    parts.collect::<Option<Vec<_>>>().map(|parts| parts.concat())
}
