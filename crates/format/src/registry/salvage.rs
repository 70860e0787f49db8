//! Salvage of damaged files.
//!
//! A file that opens normally is verified against its checksums. A file that does not open is read by the salvage reader of its
//! format, or by a lenient open if the format has none. Lost tensors are named, and the checkpoint is marked: see [`Damage`].
//!
//! Salvage differs from lenient opening. A lenient open accepts a usable file that breaks a rule, and returns the whole model with
//! notes. A salvage verifies everything, and its result counts as incomplete: tensors may be missing.

use super::Registry;
use super::detect::format_of_damaged;
use crate::{Format, Input, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Damage, TensorEntry, Value};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::counted;
use weighbridge_io::engine::{is_encoded, read_through};
use weighbridge_io::source::{FolderRef, LocalFolder, PathKind};

/// Maximum length of a file that is salvaged just to report the result in a hint.
const MAX_TRIED: u64 = 16 << 20;

/// Implements [`Registry::offer_salvage`].
pub(super) fn offer_salvage(registry: &Registry, error: Error, path: &Path, options: &OpenOptions) -> Error {
    if options.salvage || error.kind() != Kind::Corrupt {
        return error;
    }
    let is_file = matches!(PathKind::of(path), Ok(PathKind::File));
    let short = path.metadata().is_ok_and(|metadata| metadata.len() <= MAX_TRIED);
    if !is_file && !is_salvaged_as_a_folder(registry, path) {
        return error;
    }
    if !is_file || !short {
        return error.hint_too(phrase![Opt::Salvage, " extracts the tensors that are intact, if any"]);
    }
    let options = OpenOptions { salvage: true, ..options.clone() };
    match registry.open_with(path, &options) {
        Ok(saved) if saved.tensors.is_empty() => {
            error.hint_too(phrase![Opt::Salvage, " finds no intact tensor"])
        }
        Ok(saved) => {
            let tensors = match first_rows(&saved.tensors) {
                Some((some, all)) => format!("the first {some} of {all} rows"),
                None if saved.damage.as_ref().is_some_and(|damage| damage.unverified > 0) => {
                    counted(saved.tensors.len() as u64, "readable tensor", "readable tensors")
                }
                None => counted(saved.tensors.len() as u64, "intact tensor", "intact tensors"),
            };
            error.hint_too(phrase![Opt::Salvage, format_args!(" extracts {tensors}")])
        }
        Err(_) => error,
    }
}

/// True for a folder of a format that salvages.
fn is_salvaged_as_a_folder(registry: &Registry, path: &Path) -> bool {
    let Ok(folder) = LocalFolder::open(path) else { return false };
    let folder: FolderRef = Arc::new(folder);
    registry.detect_folder(&folder).is_ok_and(|format| format.salvager().is_some())
}

/// Returns the numbers of salvaged and of original rows of the only tensor, if it lost the last ones.
fn first_rows(tensors: &[TensorEntry]) -> Option<(u64, u64)> {
    let [only] = tensors else { return None };
    let Value::Text(rows) = only.attributes.get(Attributes::SALVAGED_ROWS)? else { return None };
    let (some, all) = rows.strip_prefix("0 to ")?.split_once(" of ")?;
    Some((some.parse().ok()?, all.parse().ok()?))
}

/// Opens normally, or with salvage if the options request it.
pub(super) fn or_salvage(
    registry: &Registry,
    place: Input<'_>,
    open: impl Fn(&OpenOptions) -> Result<Checkpoint>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    if !options.salvage {
        return open(options);
    }
    // Readers see the option only when they salvage.
    let options = OpenOptions { salvage: false, ..options.clone() };
    self::open(registry, place, open(&options), &options)
}

/// Verifies an opened checkpoint, or salvages the intact tensors. `opened` is the result of a normal open.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] and other errors unrelated to the content; the error of the normal open if nothing is intact.
fn open(
    registry: &Registry,
    place: Input<'_>,
    opened: Result<Checkpoint>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let mut checkpoint = match opened {
        Ok(checkpoint) => match hidden_damage(registry, place, &checkpoint, options)? {
            None => checkpoint,
            Some(error) => rescue(registry, place, error, options)?,
        },
        Err(error) if Damage::is(&error) => rescue(registry, place, error, options)?,
        Err(error) => return Err(error),
    };
    let unproved = verify(registry, &mut checkpoint, place.label())?;
    checkpoint.mark_damaged(&unproved);
    Ok(checkpoint)
}

/// Returns the damage that the format detects in a file that opens.
fn hidden_damage(
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

/// Returns the result of the salvage reader of the format, or of a lenient open.
fn rescue(registry: &Registry, place: Input<'_>, error: Error, options: &OpenOptions) -> Result<Checkpoint> {
    // An unrecognized source keeps the error of the first attempt.
    let Ok(format) = format_at(registry, &place, options) else { return Err(error) };
    let options = OpenOptions { lenient: true, salvage: true, ..options.clone() };
    let saved = match unless_outside(salvaged(format, &place, &error, &options))? {
        Some(Some(saved)) => Some(saved),
        // The format has no salvage reader.
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
    // Omit the file name if the source is a single file.
    damage.file = damage.file.filter(|file| file != place.label());
    if damage.offset.is_none() && damage.file.is_none() {
        damage.offset = damage.lost.iter().filter_map(|lost| lost.offset).min();
    }
    saved.damage = Some(Box::new(damage));
    Ok(saved)
}

/// Calls the salvage reader of the format.
fn salvaged(
    format: &dyn Format,
    place: &Input<'_>,
    error: &Error,
    options: &OpenOptions,
) -> Result<Option<Checkpoint>> {
    format.salvager().map_or(Ok(None), |own| own.salvage(place, error, options))
}

fn nothing(error: Error) -> Error {
    error.hint("no intact tensors could be salvaged; get another copy of the file")
}

/// Returns the result, without errors about the content: the first open reported these.
fn unless_outside<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if Damage::is(&error) || error.kind() == Kind::Limit => Ok(None),
        Err(error) => Err(error),
    }
}

/// Verifies the bytes of all tensors: checksums, and complete decompression. Damaged tensors are removed and named. Returns the
/// names of the tensors that could not be verified.
fn verify(registry: &Registry, checkpoint: &mut Checkpoint, label: &str) -> Result<Vec<String>> {
    let before = checkpoint.tensors.len();
    let salvager = registry.by_id(checkpoint.format).ok().and_then(|format| format.salvager());
    let text = salvager.is_some_and(|own| own.is_unproved());
    let whole = checkpoint.damage.is_none();
    let unnamed = checkpoint.damage.as_ref().is_some_and(|damage| damage.unnamed);
    let mut unproved = Vec::new();
    for tensor in std::mem::take(&mut checkpoint.tensors) {
        match verify_tensor(&tensor) {
            Ok(confirmed) => {
                if !confirmed || unnamed || text {
                    unproved.push(tensor.name());
                }
                checkpoint.tensors.push(tensor);
            }
            // Unsupported data may be intact.
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Limit) => {
                unproved.push(tensor.name());
                checkpoint.tensors.push(tensor);
            }
            Err(error) if Damage::is(&error) => {
                let rows = salvager.map(|own| own.intact_rows(&tensor, &error)).transpose()?.flatten();
                match rows {
                    Some((rows, lost)) => {
                        checkpoint.tensors.push(rows);
                        checkpoint.damage_mut(&error).lost.push(lost);
                    }
                    None => checkpoint.lose(tensor.name(), &error),
                }
            }
            Err(error) => return Err(error),
        }
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

/// Verifies the bytes of a tensor; false if the file has nothing to verify them with.
fn verify_tensor(tensor: &TensorEntry) -> Result<bool> {
    tensor.verify_tensor()?;
    let encoded = tensor.extents.iter().map(|extent| &extent.source).filter(|source| is_encoded(source));
    encoded.clone().try_for_each(read_through)?;
    let has_encoded = encoded.count() > 0;
    Ok(has_encoded || tensor.extents.iter().any(|extent| extent.check.is_some()))
}

/// Returns the format of a damaged file or folder.
fn format_at(registry: &Registry, place: &Input<'_>, options: &OpenOptions) -> Result<&'static dyn Format> {
    match *place {
        Input::Alone(source) => format_of_damaged(registry, source, None, options),
        Input::Beside(source, folder, name) => {
            format_of_damaged(registry, source, Some((folder, name)), options)
        }
        Input::Folder(folder) => match &options.format {
            Some(id) => registry.by_id(id),
            None => registry.detect_folder(folder),
        },
    }
}

/// Opens an input as `format`.
fn open_as(place: &Input<'_>, format: &dyn Format, options: &OpenOptions) -> Result<Checkpoint> {
    match *place {
        Input::Alone(source) => format.open(source.clone(), options),
        Input::Beside(source, folder, name) => format.open_beside(source.clone(), folder, name, options),
        Input::Folder(folder) => format.open_folder(folder, options),
    }
}
