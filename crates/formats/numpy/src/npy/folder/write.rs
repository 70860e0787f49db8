//! Writer: checkpoint to the plan of a folder.

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

/// Maximum length of text metadata, in bytes of JSON: about half of the limit for reading bridge
/// metadata.
const MAX_TEXT_LEN: usize = 1 << 20;

/// Plans the folder of `checkpoint`: a file for each tensor, in its storage order, and one for
/// its row names. Reads the row names.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-tensors`, `name-collision`, and for tensors that numpy cannot hold; as
/// [`RowNames::read`](weighbridge_core::checkpoint::RowNames::read).
pub(in super::super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if checkpoint.tensors.is_empty() {
        return Err(Error::mismatch(
            "no-tensors",
            "the checkpoint has no tensors; a folder of arrays needs at least one",
        )
        .in_file(&checkpoint.label)
        .hint("write an npz or safetensors file, which can be empty"));
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
        let detail = "metadata dropped: the texts exceed the limit of 1 MiB for bridge metadata";
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

/// Returns the keys of texts that exceed the limit for bridge metadata.
fn too_long(checkpoint: &Checkpoint) -> HashSet<&str> {
    let mut left = MAX_TEXT_LEN;
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

/// Converts the name of a tensor to a file name without suffix.
fn file_stem(name: String) -> String {
    // A file named .npy would be hidden.
    if name.is_empty() { "_".into() } else { tidy(name) }
}
