//! HDF5: what leads to other files, what holds code, and bytes that may be anything.

use super::{Scan, TakenFor, begins_as_zip, config, embedded, found, keras, may_be_pickle, may_import};
use crate::checkpoint::{TensorEntry, TensorPath, Value};
use crate::containers::hdf5::{self, Attributes, Dataset, Kind, RawText, TextReader};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{ConcatSource, MemorySource, RangeSource, SourceRef, read_vec};
use crate::tensor::DType;
use crate::text::escape;
use std::sync::Arc;

/// Attributes that hold the configuration of a Keras model.
const KERAS: &[&str] = &["model_config", "training_config", "layer_config"];
/// Problems of the listing that are findings of their own.
const OWN: &[&str] = &["hdf5-external-link", "hdf5-external-storage", "hdf5-virtual", "hdf5-user-link"];

/// What is unpacked and read of datasets to see whether they are pickles: so many times the file, and so many bytes more.
const TIMES: u64 = 16;
const LEAST: u64 = 128 << 20;

/// Looks through an HDF5 file. `files` are the paths of datasets that a program loads as files.
///
/// # Errors
/// [`crate::Kind::Io`] where it cannot be read. Damage is a finding.
pub fn hdf5(source: &SourceRef, files: &[&[&str]], limits: &Limits, scan: &mut Scan) -> Result<()> {
    let contents = match hdf5::read(source, limits) {
        Ok(contents) => contents,
        Err(error) => return scan.push_error(error),
    };
    for problem in contents.problems {
        tell(problem.error, &problem.path, scan)?;
    }
    for link in &contents.links {
        let text = format!("{} leads to {}", shown(&link.path), escape(&link.target));
        scan.push("hdf5-soft-link", text);
    }
    attributes(&[], &contents.attributes, limits, source, scan);
    let mut reader = TextReader::new(source.len().saturating_mul(TIMES).saturating_add(LEAST));
    for item in contents.items {
        attributes(&item.path, &item.attributes, limits, source, scan);
        let Some(dataset) = item.dataset else { continue };
        let is_file = files.iter().any(|path| item.path.iter().map(String::as_str).eq(path.iter().copied()));
        if let Err(error) = elements(&item.path, &dataset, is_file, &mut reader, (source, limits), scan) {
            tell(error, &item.path, scan)?;
        }
    }
    Ok(())
}

/// A part that cannot be read: some are findings of their own, since the library reads on elsewhere.
fn tell(error: Error, path: &[String], scan: &mut Scan) -> Result<()> {
    let Some(&code) = OWN.iter().find(|code| **code == error.code()) else {
        return match error.kind() {
            crate::Kind::Unsupported => {
                let words = error.found_text().map(|found| format!(" ({found})")).unwrap_or_default();
                let text = format!("{}: {}: {}{words}", error.code(), shown(path), error.message());
                scan.push("left-out", text);
                Ok(())
            }
            _ => scan.push_error(error.on_tensor(shown(path))),
        };
    };
    let target = error.found_text().map(|found| format!(": {found}")).unwrap_or_default();
    scan.list(found(code, format!("{}{target}", error.message())).on_tensor(shown(path)));
    Ok(())
}

fn elements(
    path: &[String],
    dataset: &Dataset,
    is_file: bool,
    reader: &mut TextReader,
    (source, limits): (&SourceRef, &Limits),
    scan: &mut Scan,
) -> Result<()> {
    let plugins: Vec<String> = dataset
        .filters()
        .filter(|(id, _)| *id > 255)
        .map(|(id, name)| format!("{id} {}", escape(name.unwrap_or_default())))
        .collect();
    if !plugins.is_empty() {
        let text = format!("packed with filter {}, for which a plugin is loaded", plugins.join(", "));
        scan.list(found("hdf5-plugin-filter", text).on_tensor(shown(path)));
        return Ok(());
    }
    let taken_for = match &dataset.kind {
        _ if is_file => TakenFor::File,
        Kind::Text => return texts(path, dataset, reader, (source, limits), scan),
        Kind::Opaque { .. } => TakenFor::Bytes,
        Kind::Numbers(..) => TakenFor::Numbers,
        Kind::Other(words) => {
            let text = format!(
                "hdf5-type: {}: elements of a kind that is not read ({})",
                shown(path),
                escape(words)
            );
            scan.push("left-out", text);
            return Ok(());
        }
    };
    // Nobody keeps objects as floats, and zeros are packed so well that to look at all of them would not end.
    let is_float = matches!(dataset.kind, Kind::Numbers(dtype, _) if dtype.is_float());
    let free = |error: &Error| is_float && error.kind() == crate::Kind::Limit;
    let entry = match dataset.entry(TensorPath::value()) {
        Err(error) if free(&error) => return Ok(()),
        entry => entry?,
    };
    if entry.bytes() == 0 {
        return Ok(());
    }
    let bytes = bytes_of(&entry)?;
    if taken_for == TakenFor::Numbers {
        match reader.take(dataset.unpacked_at_once()) {
            Err(error) if free(&error) => return Ok(()),
            taken => taken?,
        }
        if !may_be_pickle(&bytes)? {
            return Ok(());
        }
        let of_bytes = matches!(dataset.kind, Kind::Numbers(DType::U8 | DType::I8, _));
        if !of_bytes && !begins_as_zip(&read_vec(&*bytes, 0, bytes.len().min(4))?) {
            let mut own = Scan::default();
            embedded(&bytes, limits, &mut own);
            // By chance a few numbers are a pickle that does nothing.
            if !own.imports.is_empty() {
                scan.absorb(own, Some(&shown(path)));
            }
            return Ok(());
        }
    }
    scan.look_into(shown(path), bytes, taken_for);
    Ok(())
}

/// Libraries keep objects as text, too.
fn texts(
    path: &[String],
    dataset: &Dataset,
    reader: &mut TextReader,
    (source, limits): (&SourceRef, &Limits),
    scan: &mut Scan,
) -> Result<()> {
    let place = shown(path);
    reader.each(dataset, &mut |number, text| {
        let bytes: SourceRef = match text {
            RawText::Short(text) if !may_import(text) => return,
            RawText::Short(text) => Arc::new(MemorySource::new(source.label(), text.to_vec())),
            RawText::Long(bytes) => bytes,
        };
        let mut own = Scan::default();
        if embedded(&bytes, limits, &mut own) {
            let which = if dataset.shape.rank() == 0 { place.clone() } else { format!("{place}[{number}]") };
            scan.absorb(own, Some(&which));
        }
    })
}

/// The bytes of a dataset in order, wherever they are.
fn bytes_of(entry: &TensorEntry) -> Result<SourceRef> {
    if let Some(piece) = entry.single_piece() {
        return Ok(Arc::new(RangeSource::new(piece.source.clone(), piece.offset, piece.len)?));
    }
    let mut pieces: Vec<_> = entry.pieces.iter().collect();
    pieces.sort_by(|a, b| a.region.start.cmp(&b.region.start));
    let ranges = pieces.iter().map(|piece| (piece.source.clone(), piece.offset, piece.len)).collect();
    Ok(Arc::new(ConcatSource::new(entry.path.to_text(), ranges)?))
}

fn attributes(
    path: &[String],
    attributes: &Attributes,
    limits: &Limits,
    source: &SourceRef,
    scan: &mut Scan,
) {
    for (name, value) in attributes {
        let place = format!("{}@{}", shown(path), escape(name));
        if KERAS.contains(&name.as_str()) {
            let mut own = Scan::default();
            match value {
                Value::Text(text) => keras(text, &mut own),
                Value::Bytes(bytes) => keras(&String::from_utf8_lossy(bytes), &mut own),
                _ => own.push("keras-unread", "the configuration of the model is no text"),
            }
            scan.absorb(own, Some(&place));
            continue;
        }
        value_of(&place, value, limits, source, scan);
    }
}

/// Libraries keep objects in attributes, too: as text of an old protocol, or as opaque bytes.
fn value_of(place: &str, value: &Value, limits: &Limits, source: &SourceRef, scan: &mut Scan) {
    let (bytes, opaque) = match value {
        Value::Text(text) => (text.clone().into_bytes(), false),
        Value::Bytes(bytes) => (bytes.clone(), true),
        Value::List(list) => {
            list.iter().for_each(|value| value_of(place, value, limits, source, scan));
            for bytes in joined(list).into_iter().filter(|bytes| may_import(bytes)) {
                let mut own = Scan::default();
                embedded(
                    &(Arc::new(MemorySource::new(source.label(), bytes)) as SourceRef),
                    limits,
                    &mut own,
                );
                scan.absorb(own, Some(place));
            }
            return;
        }
        _ => return,
    };
    let mut own = Scan::default();
    if let Value::Text(text) = value
        && text.starts_with(['{', '['])
        && config(text, &mut own)
    {
        scan.absorb(own, Some(place));
        return;
    }
    let bytes: SourceRef = Arc::new(MemorySource::new(source.label(), bytes));
    if !embedded(&bytes, limits, &mut own) && opaque && !bytes.is_empty() {
        own.push("opaque-bytes", "an attribute of bytes without a type");
    }
    scan.absorb(own, Some(place));
}

/// What the bytes of a list may be: an array of bytes is a list of numbers, or of very short texts.
fn joined(list: &[Value]) -> Vec<Vec<u8>> {
    let mut leaves = Vec::new();
    let mut open: Vec<_> = list.iter().rev().collect();
    while let Some(value) = open.pop() {
        match value {
            Value::List(inner) => open.extend(inner.iter().rev()),
            value => leaves.push(value),
        }
    }
    let parts: Option<Vec<&[u8]>> = leaves
        .iter()
        .map(|value| match value {
            Value::Text(text) => Some(text.as_bytes()),
            Value::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .collect();
    if let Some(parts) = parts {
        return if parts.len() > 1 { vec![parts.concat()] } else { Vec::new() };
    }
    let numbers: Option<Vec<[u8; 8]>> = leaves
        .iter()
        .map(|value| match value {
            Value::U64(n) => Some(n.to_le_bytes()),
            Value::I64(n) => Some(n.to_le_bytes()),
            _ => None,
        })
        .collect();
    let Some(numbers) = numbers else { return Vec::new() };
    // The width that they had in the file is not known any more: those that none of them is too long for.
    let fits = |width: &usize| {
        numbers.iter().all(|n| n[*width..].iter().all(|&b| b == 0) || n[*width..].iter().all(|&b| b == 0xff))
    };
    let of = |width: usize| numbers.iter().flat_map(|n| &n[..width]).copied().collect();
    [1, 2, 4, 8].into_iter().filter(fits).map(of).collect()
}

/// A path as people see it.
fn shown(path: &[String]) -> String {
    escape(&format!("/{}", path.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that lie in the file, and texts in a heap.
    #[test]
    fn texts_of_datasets_are_read_within_a_bound() {
        let file = |name: &str| -> SourceRef {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scan/bad/");
            Arc::new(crate::source::FileSource::open(std::path::Path::new(path).join(name)).unwrap())
        };
        for (name, texts) in [("texts_pickle.h5", 2), ("text_pickle.h5", 1)] {
            let contents = hdf5::read(&file(name), &Limits::default()).unwrap();
            let dataset = contents.items[0].dataset.as_ref().unwrap();
            let read = |most| {
                let mut count = 0;
                let result = TextReader::new(most).each(dataset, &mut |_, _| count += 1);
                (count, result.map_err(|error| error.code()))
            };
            assert_eq!(read(1_000), (texts, Ok(())), "{name}");
            assert_eq!(read(15), (0, Err("limit")), "{name}");
        }
        // A heap may be as long as the file: what it has is taken from the bound before it is copied.
        let contents = hdf5::read(&file("text_pickle.h5"), &Limits::default()).unwrap();
        let dataset = contents.items[0].dataset.as_ref().unwrap();
        assert_eq!(TextReader::new(20).each(dataset, &mut |_, _| {}).unwrap_err().code(), "limit");
    }

    #[test]
    fn an_array_of_bytes_is_joined() {
        let of = |numbers: &[i64]| {
            numbers
                .iter()
                .map(|&n| if n < 0 { Value::I64(n) } else { Value::U64(n.unsigned_abs()) })
                .collect::<Vec<_>>()
        };
        assert_eq!(joined(&of(&[128, 2, 46]))[0], [128, 2, 46]);
        assert_eq!(joined(&of(&[-128, 2, 46]))[0], [128, 2, 46]);
        assert_eq!(joined(&of(&[0x0280, 46]))[0], [0x80, 2, 46, 0]);
        assert_eq!(joined(&[Value::List(of(&[1, 2])), Value::List(of(&[3]))])[0], [1, 2, 3]);
        assert!(joined(&[Value::Bool(true)]).is_empty());
    }
}
