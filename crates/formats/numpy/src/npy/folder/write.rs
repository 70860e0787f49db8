//! From the index to the plan of a folder.

use super::super::FOLDER;
use super::super::write::array_header;
use super::{INDEX, NAMES_SUFFIX, SUFFIX};
use serde_json::Value as Json;
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Value, check_count, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_format::PlanOptions;
use weighbridge_format::file_name::tidy;
use weighbridge_format::names_json::NamesJson;
use weighbridge_io::source::SourceRef;

/// Texts of metadata that are carried, in bytes of JSON: about half of what a carried index is read
/// with.
const MOST_TEXT: usize = 1 << 20;

/// Lays out `checkpoint`: a file for each tensor, in the order that its elements have, and one for
/// the names of its rows. Reads these names.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-tensors`, `name-collision`, and for what numpy cannot hold; as
/// [`RowNames::read`](weighbridge_core::checkpoint::RowNames::read).
pub(in super::super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if checkpoint.tensors.is_empty() {
        return Err(Error::mismatch("no-tensors", "a folder of arrays holds one tensor at least")
            .in_file(&checkpoint.label)
            .hint("an npz or a safetensors file can be without"));
    }
    checkpoint.check_unique()?;
    let names = checkpoint.bridge_names(file_stem, &[]);
    let mut files = Vec::with_capacity(names.len());
    for (tensor, name) in checkpoint.tensors.iter().zip(&names) {
        let (header, order) = array_header(tensor)?;
        let mut file = FileBuilder::new(format!("{name}{SUFFIX}"));
        file.literal(header);
        file.tensor(tensor, order)?;
        files.push(file.finish());
        if let Some(labels) = &tensor.row_names {
            let list = labels.read()?;
            let (count, rows) = (list.len(), tensor.shape.dims().first().copied().unwrap_or(0));
            check_count(&**labels, count as u64, rows).map_err(|e| e.on_tensor(tensor.name()))?;
            let name = format!("{name}{NAMES_SUFFIX}");
            let source: SourceRef = Arc::new(NamesJson::new(name.clone(), list, 0..count));
            files.push(FileBuilder::copy_of(name, &source));
        }
    }
    let mut losses = Vec::new();
    let long = too_long(checkpoint);
    for &key in &long {
        let detail = "the texts of the metadata are longer than a carried index holds";
        losses.push(Loss::new("metadata-dropped", escape_text(key), detail));
    }
    let index = checkpoint.bridge_index_beside(&names, |key, _| long.contains(key));
    if let Some(index) = options.own_entry(index, &checkpoint.label, &mut losses) {
        let mut file = FileBuilder::new(INDEX);
        file.literal(index);
        file.literal("\n");
        files.push(file.finish());
    }
    losses.extend(checkpoint.left_behind());
    Ok(WritePlan { format: "npy", kind: FOLDER, files, losses })
}

/// The keys of texts that would make the carried index too long.
fn too_long(checkpoint: &Checkpoint) -> HashSet<&str> {
    let mut left = MOST_TEXT;
    let mut keys = HashSet::new();
    for (key, value) in checkpoint.metadata.iter() {
        let Value::Text(text) = value else { continue };
        match left.checked_sub(Json::from(text.as_str()).to_string().len()) {
            Some(rest) => left = rest,
            None => {
                keys.insert(key);
            }
        }
    }
    keys
}

/// The name of a tensor as that of a file, without its ending.
fn file_stem(name: String) -> String {
    // A file that is called .npy alone is hidden.
    if name.is_empty() { "_".into() } else { tidy(name) }
}
