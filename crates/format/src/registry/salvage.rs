//! Opening damaged files as far as possible.
//!
//! A file that opens is opened as ever, and its bytes are held against the checksums that it gives,
//! so that what is handed on is what was written. One that does not open goes to the salvage reader of
//! its format, and where there is none, to a lenient reading. Whatever is lost is named, and the
//! checkpoint is marked: see [`Damage`].
//!
//! Salvaging is another word than lenient. A lenient reading says "this is usable though it breaks a
//! rule": what it gives is the model, and nothing is marked but remarks. What salvaging gives is never
//! the model: tensors may be missing, everything is checked, and whoever goes on is told so.

use super::Registry;
use super::detect::format_of_damaged;
use crate::{Format, Input, OpenOptions};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Damage, TensorEntry};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::counted;
use weighbridge_io::engine::{is_encoded, read_through};
use weighbridge_io::source::PathKind;

/// Files up to this length are tried to be salvaged only to say what that would give.
const MOST_TRIED: u64 = 16 << 20;

/// Adds to the error with which a damaged file was not opened what opening it as far as possible would give. Other errors
/// stay as they are.
pub(super) fn offer_salvage(registry: &Registry, error: Error, path: &Path, options: &OpenOptions) -> Error {
    if options.salvage || error.kind() != Kind::Corrupt {
        return error;
    }
    let is_file = matches!(PathKind::of(path), Ok(PathKind::File));
    let short = path.metadata().is_ok_and(|facts| facts.len() <= MOST_TRIED);
    if !is_file || !short {
        return error.hint_too(phrase![Opt::Salvage, " gives the tensors that are intact"]);
    }
    let options = OpenOptions { salvage: true, ..options.clone() };
    match registry.open_with(path, &options) {
        Ok(saved) if saved.tensors.is_empty() => {
            error.hint_too(phrase![Opt::Salvage, " would find no tensor that is intact"])
        }
        Ok(saved) => {
            let tensors = counted(saved.tensors.len() as u64, "tensor", "tensors");
            error.hint_too(phrase![Opt::Salvage, format_args!(" would list {tensors}")])
        }
        Err(_) => error,
    }
}

/// Opens as ever, or as far as possible where the options ask for that.
pub(super) fn or_salvage(
    registry: &Registry,
    place: Input<'_>,
    open: impl Fn(&OpenOptions) -> Result<Checkpoint>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    if !options.salvage {
        return open(options);
    }
    // The readers see the word only where they are to salvage.
    let options = OpenOptions { salvage: false, ..options.clone() };
    self::open(registry, place, open(&options), &options)
}

/// Opens what is there, or what is intact of it. `opened` is what the ordinary opening said.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] and others that are not about the file; the error of opening where nothing is
/// intact.
fn open(
    registry: &Registry,
    place: Input<'_>,
    opened: Result<Checkpoint>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let mut checkpoint = match opened {
        Ok(checkpoint) => match doubts(registry, place, &checkpoint, options)? {
            None => checkpoint,
            Some(error) => rescue(registry, place, error, options)?,
        },
        Err(error) if Damage::is(&error) => rescue(registry, place, error, options)?,
        Err(error) => return Err(error),
    };
    let unproved = prove(registry, &mut checkpoint, place.label())?;
    checkpoint.mark_damaged(unproved);
    Ok(checkpoint)
}

/// What the format says about a file that opens.
fn doubts(
    registry: &Registry,
    place: Input<'_>,
    opened: &Checkpoint,
    options: &OpenOptions,
) -> Result<Option<Error>> {
    match (place.source(), registry.by_id(opened.format)) {
        (Some(source), Ok(format)) => {
            format.salvager().map_or(Ok(None), |own| own.hidden_damage(source, options))
        }
        _ => Ok(None),
    }
}

/// What the format can save, or what a lenient reading gives.
fn rescue(registry: &Registry, place: Input<'_>, error: Error, options: &OpenOptions) -> Result<Checkpoint> {
    // A source of no format that is known stays so, with the words of the first try.
    let Ok(format) = format_at(registry, &place, options) else { return Err(error) };
    let options = OpenOptions { lenient: true, salvage: true, ..options.clone() };
    let saved = match unless_outside(salvaged(format, &place, &error, &options))? {
        Some(Some(saved)) => Some(saved),
        // A format without a reader of its own for this.
        Some(None) => {
            let lenient = OpenOptions { salvage: false, ..options };
            unless_outside(open_as(&place, format, &lenient))?
        }
        None => None,
    };
    let Some(mut saved) = saved else { return Err(nothing(error)) };
    let known = saved.damage.take().map(|damage| (damage.lost, damage.expected, damage.unnamed));
    let mut damage = Damage::of(&error);
    (damage.lost, damage.expected, damage.unnamed) = known.unwrap_or_default();
    if saved.tensors.is_empty() && damage.lost.is_empty() {
        return Err(nothing(error));
    }
    // A file that is the whole source needs no name.
    damage.file = damage.file.filter(|file| file != place.label());
    if damage.offset.is_none() && damage.file.is_none() {
        damage.offset = damage.lost.iter().filter_map(|lost| lost.offset).min();
    }
    saved.damage = Some(Box::new(damage));
    Ok(saved)
}

/// What the format itself saves.
fn salvaged(
    format: &dyn Format,
    place: &Input<'_>,
    error: &Error,
    options: &OpenOptions,
) -> Result<Option<Checkpoint>> {
    format.salvager().map_or(Ok(None), |own| own.salvage(place, error, options))
}

fn nothing(error: Error) -> Error {
    error.hint("nothing of it could be salvaged")
}

/// The result, without errors that are about the file: these were told by the first opening.
fn unless_outside<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if Damage::is(&error) || error.kind() == Kind::Limit => Ok(None),
        Err(error) => Err(error),
    }
}

/// Holds the bytes of all tensors against what proves them: checksums, and the end of whatever is
/// compressed. What does not hold is taken out and named. Gives the number of tensors that nothing
/// proves.
fn prove(registry: &Registry, checkpoint: &mut Checkpoint, label: &str) -> Result<usize> {
    let before = checkpoint.tensors.len();
    let salvager = registry.by_id(checkpoint.format).ok().and_then(|format| format.salvager());
    let text = salvager.is_some_and(|own| own.is_unproved());
    let whole = checkpoint.damage.is_none();
    let unnamed = checkpoint.damage.as_ref().is_some_and(|damage| damage.unnamed);
    let mut unproved = 0;
    let mut kept = Vec::with_capacity(before);
    let mut failed = Vec::new();
    for tensor in std::mem::take(&mut checkpoint.tensors) {
        match hold(&tensor) {
            Ok(proved) => {
                unproved += usize::from(!proved || unnamed || text);
                kept.push(tensor);
            }
            // What is not understood here may be whole.
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Limit) => {
                unproved += 1;
                kept.push(tensor);
            }
            Err(error) if Damage::is(&error) => {
                let rows = salvager.map(|own| own.intact_rows(&tensor, &error)).transpose()?.flatten();
                match rows {
                    Some((rows, lost)) => {
                        kept.push(rows);
                        checkpoint.damage_mut(&error).lost.push(lost);
                    }
                    None => failed.push((tensor.name(), error)),
                }
            }
            Err(error) => return Err(error),
        }
    }
    checkpoint.tensors = kept;
    for (name, error) in failed {
        checkpoint.lose(name, &error);
    }
    if let Some(damage) = &mut checkpoint.damage {
        if whole {
            damage.expected = Some(before as u64);
        }
        damage.file = damage.file.take().filter(|file| file != label);
        for lost in &mut damage.lost {
            lost.file = lost.file.take().filter(|file| file != label);
        }
    }
    Ok(unproved)
}

/// True where something in the file proves the bytes of the tensor.
fn hold(tensor: &TensorEntry) -> Result<bool> {
    tensor.verify_tensor()?;
    let encoded = tensor.extents.iter().map(|extent| &extent.source).filter(|source| is_encoded(source));
    encoded.clone().try_for_each(read_through)?;
    let has_encoded = encoded.count() > 0;
    Ok(has_encoded || tensor.extents.iter().any(|extent| extent.check.is_some()))
}

/// The format of a damaged file or folder.
fn format_at(registry: &Registry, place: &Input<'_>, options: &OpenOptions) -> Result<&'static dyn Format> {
    match *place {
        Input::Alone(source) => format_of_damaged(registry, source, None, options),
        Input::Beside(source, _, name) => format_of_damaged(registry, source, Some(name), options),
        Input::Folder(folder) => match &options.format {
            Some(id) => registry.by_id(id),
            None => registry.detect_folder(folder),
        },
    }
}

/// Opens a place as one of `format`.
fn open_as(place: &Input<'_>, format: &dyn Format, options: &OpenOptions) -> Result<Checkpoint> {
    match *place {
        Input::Alone(source) => format.open(source.clone(), options),
        Input::Beside(source, folder, name) => format.open_beside(source.clone(), folder, name, options),
        Input::Folder(folder) => format.open_folder(folder, options),
    }
}
