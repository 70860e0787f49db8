//! Writer: checkpoint to plan.

use super::{METADATA, SUFFIX};
use crate::npy::{array_header, header};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::{DType, Order, Shape};
use weighbridge_format::PlanOptions;
use weighbridge_zip::ZipBuilder;

/// Maximum length of the name of a tensor in bytes; a zip archive allows 65,535 with the suffix.
const MAX_NAME_LEN: usize = 65_000;

pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != "archive") {
        return Err(Error::usage("unknown-kind", "unknown kind of npz file").expected("archive").found(kind));
    }
    let names = checkpoint.bridge_names(tidy, &[METADATA]);
    let mut members: Vec<_> = names.iter().zip(&checkpoint.tensors).collect();
    members.sort_by_key(|&(name, _)| name.as_bytes());

    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    for (name, tensor) in members {
        let (header, order) = array_header(tensor)?;
        let len = (header.len() as u64).saturating_add(tensor.bytes());
        let fill = |file: &mut FileBuilder| {
            file.literal(header);
            file.tensor(tensor, order)
        };
        zip.member(&format!("{name}{SUFFIX}"), len, fill).map_err(|e| e.on_tensor(tensor.name()))?;
    }
    let mut losses = Vec::new();
    let carried = metadata(checkpoint, &names, &mut losses);
    if let Some(json) = options.own_entry(carried, &checkpoint.label, &mut losses) {
        let array = metadata_array(&json)?;
        let len = array.len() as u64;
        zip.member(&format!("{METADATA}{SUFFIX}"), len, |file| {
            file.literal(array);
            Ok(())
        })?;
    }
    losses.extend(checkpoint.renamed_losses(&names));
    losses.extend(checkpoint.left_behind());
    Ok(WritePlan { format: "npz", kind: "archive", files: vec![zip.finish()], losses })
}

/// Returns the JSON of the metadata member; `None` where it is empty.
fn metadata(checkpoint: &Checkpoint, names: &[String], losses: &mut Vec<Loss>) -> Option<String> {
    let mut map = Map::new();
    for (key, value) in checkpoint.metadata.iter() {
        match value {
            Value::Text(_) if key.starts_with(Metadata::RESERVED_PREFIX) => {
                let detail = "metadata dropped: the key prefix is reserved for bridge metadata";
                losses.push(Loss::new("metadata-dropped", escape_text(key), detail));
            }
            Value::Text(text) => {
                map.insert(key.to_owned(), Json::from(text.as_str()));
            }
            // Typed values are stored as bridge metadata.
            _ => {}
        }
    }
    if let Some(index) = checkpoint.bridge_index(names) {
        map.insert(Metadata::INDEX_KEY.into(), index.into());
    }
    (!map.is_empty()).then(|| Json::Object(map).to_string())
}

/// Encodes `json` as an npy file of bytes.
fn metadata_array(json: &str) -> Result<Vec<u8>> {
    let shape = Shape::from([json.len() as u64]);
    let Some(mut array) = header::encode(DType::U8, Order::Row, &shape) else {
        return Err(Error::mismatch("numpy-dtype", "numpy has no dtype for bytes"));
    };
    array.extend_from_slice(json.as_bytes());
    Ok(array)
}

/// Makes a name safe as a member name: no control characters, no path outside of the folder where the archive is
/// extracted, a limited length.
fn tidy(name: String) -> String {
    let replaced: String = name.chars().map(|c| if c.is_control() || c == '\\' { '_' } else { c }).collect();
    let parts: Vec<&str> = replaced.split('/').map(|part| if part == ".." { "__" } else { part }).collect();
    let mut tidy = parts.join("/");
    // numpy looks up a key as a member name first: `a.npy` would find the array `a`.
    if tidy.ends_with(".npy") {
        tidy.push('_');
    }
    if tidy.starts_with('/') {
        tidy.replace_range(..1, "_");
    }
    if tidy.len() > MAX_NAME_LEN {
        // The hash covers the original name, so that long names stay distinct.
        let digest = Sha256::digest(name.as_bytes());
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        while tidy.len() + 1 + hash.len() > MAX_NAME_LEN {
            tidy.pop();
        }
        tidy = format!("{tidy}~{hash}");
    }
    tidy
}
