//! HDF5: what leads to other files, what holds code, and bytes that may be anything.

use super::{Scan, TakenFor, config, embedded, found, keras};
use crate::checkpoint::{TensorEntry, TensorPath, Value};
use crate::containers::hdf5::{self, Attributes, Dataset, Kind};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{ConcatSource, MemorySource, RangeSource, SourceRef};
use crate::tensor::DType;
use crate::text::escape;
use std::sync::Arc;

/// Attributes that hold the configuration of a Keras model.
const KERAS: &[&str] = &["model_config", "training_config", "layer_config"];
/// Problems of the listing that are findings of their own.
const OWN: &[&str] = &["hdf5-external-link", "hdf5-external-storage", "hdf5-virtual", "hdf5-user-link"];

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
    for item in contents.items {
        attributes(&item.path, &item.attributes, limits, source, scan);
        let Some(dataset) = item.dataset else { continue };
        let is_file = files.iter().any(|path| item.path.iter().map(String::as_str).eq(path.iter().copied()));
        if let Err(error) = elements(&item.path, &dataset, is_file, scan) {
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

fn elements(path: &[String], dataset: &Dataset, is_file: bool, scan: &mut Scan) -> Result<()> {
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
        // Text is shown by whoever reads it, and nothing more.
        Kind::Text => return Ok(()),
        Kind::Opaque { .. } => TakenFor::Bytes,
        Kind::Numbers(DType::U8 | DType::I8, _) if dataset.shape.rank() <= 1 => TakenFor::Numbers,
        Kind::Numbers(..) => return Ok(()),
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
    let entry = dataset.entry(TensorPath::value())?;
    if entry.bytes() > 0 {
        scan.look_into(shown(path), bytes_of(&entry)?, taken_for);
    }
    Ok(())
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

/// A path as people see it.
fn shown(path: &[String]) -> String {
    escape(&format!("/{}", path.join("/")))
}
