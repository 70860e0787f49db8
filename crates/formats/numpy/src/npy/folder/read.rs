//! Reader: folder of arrays to checkpoint.

use super::super::{FOLDER, Header, entry};
use super::{INDEX, NAMES_SUFFIX, SUFFIX};
use std::collections::HashMap;
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Damage, Note, TensorEntry, TensorPath, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::first_and_more;
use weighbridge_format::OpenOptions;
use weighbridge_format::names_json::NameFiles;
use weighbridge_io::source::{Cursor, FolderRef, SourceRef, read_vec};

/// Maximum number of skipped files that are named; more are counted.
const MAX_NAMED: usize = 5;

/// True for a folder of arrays with bridge metadata, possibly among other files; or of arrays and their row names, without
/// other files.
pub(in super::super) fn recognises(folder: &FolderRef) -> bool {
    let ours = |name: Option<&str>| {
        name.is_some_and(|n| n.ends_with(SUFFIX) || n.ends_with(NAMES_SUFFIX) || n == INDEX)
    };
    let is_ours = || -> Result<bool> {
        let items = folder.list(1)?;
        let arrays = items.iter().any(|item| is_array(&item.name));
        let index = items.iter().any(|item| item.name == Path::new(INDEX));
        let all = items.iter().all(|item| ours(item.name.to_str()));
        Ok(arrays && (index || (all && folder.skipped(1)?.is_empty())))
    };
    is_ours().unwrap_or(false)
}

/// True for the file name of an array.
pub(in super::super) fn is_array(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(SUFFIX))
}

/// Reads the index of a folder: the header of every array.
///
/// # Errors
/// As for one array; [`weighbridge_core::Kind::Mismatch`], `no-arrays`, where there is none;
/// [`weighbridge_core::Kind::Corrupt`], `not-utf8`, for bridge metadata that is not UTF-8.
pub(in super::super) fn open(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let limits = &options.limits;
    let mut checkpoint = Checkpoint::new("npy", FOLDER, folder.label());
    let items = folder.list(1)?;
    let (mut names, mut lists, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for item in &items {
        match item.name.to_str() {
            Some(INDEX) => {}
            Some(name) if name.ends_with(NAMES_SUFFIX) => lists.push(name),
            Some(name) if name.ends_with(SUFFIX) => {
                let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
                let entry = match array(folder, name, stem, options, &mut checkpoint.notes) {
                    Err(error) if options.salvage && Damage::is(&error) => {
                        checkpoint.lose(TensorPath::from_dotted(stem), &error);
                        continue;
                    }
                    read => read?,
                };
                Limits::check("tensors", "tensors", names.len() as u64 + 1, limits.tensors)?;
                checkpoint.tensors.push(entry);
                names.push(stem.to_owned());
            }
            // Other files are reported by the caller.
            _ => {}
        }
    }
    if names.is_empty() {
        return Err(Error::mismatch("no-arrays", "the folder contains no arrays")
            .in_file(folder.label())
            .expected("files with the suffix .npy"));
    }
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    for name in lists {
        let table = name.strip_suffix(NAMES_SUFFIX).and_then(|stem| places.get(stem));
        let table = table.and_then(|&place| checkpoint.tensors.get_mut(place));
        match (
            table.and_then(|table| Some((table.shape.dims().first().copied()?, table))),
            folder.open(Path::new(name))?,
        ) {
            (Some((rows, table)), Some(source)) => {
                let label = source.label().to_owned();
                table.row_names = Some(NameFiles::shared(label, vec![(source, rows)], limits.clone()));
            }
            _ => others.push(name.to_owned()),
        }
    }
    if !others.is_empty() {
        let shown = first_and_more(others.iter().map(|name| escape_text(name)), MAX_NAMED);
        let text = format!("row name files skipped, their arrays are missing: {shown}");
        checkpoint.notes.push(Note::omission("other-files", text));
    }
    if let Some(source) = folder.open(Path::new(INDEX))? {
        checkpoint.files.push(source.clone());
        let text = index(&source, limits).map_err(|e| e.in_file(source.label()))?;
        checkpoint.restore_bridge_index(&names, &text);
    }
    Ok(checkpoint)
}

/// Reads the tensor of one file.
fn array(
    folder: &FolderRef,
    name: &str,
    stem: &str,
    options: &OpenOptions,
    notes: &mut Vec<Note>,
) -> Result<TensorEntry> {
    let Some(source) = folder.open(Path::new(name))? else {
        return Err(Error::corrupt("file-vanished", "the file was removed while the folder was read")
            .found(escape_text(name)));
    };
    let mut read = || {
        let path = TensorPath::from_dotted(stem);
        let parts = path.parts().len() as u64;
        Limits::check("parts in a name", "path_parts", parts, options.limits.path_parts)?;
        let header = Header::read(&mut Cursor::new(source.clone(), 0), source.len(), &options.limits)?;
        entry(&header, path, &source, 0, source.len(), options.lenient, notes)
    };
    read().map_err(|e: Error| e.in_file(source.label()))
}

/// Reads the text of the bridge metadata.
fn index(source: &SourceRef, limits: &Limits) -> Result<String> {
    Limits::check_part("bytes of bridge metadata", "header_bytes", source.len(), limits.header_bytes, 1)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to() as u64;
        Error::corrupt("not-utf8", "the bridge metadata is not UTF-8").at(at)
    })
}
