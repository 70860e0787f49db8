//! From the index to a plan.

use super::{ARRAY, FOLDER, folder, header};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::Order;
use weighbridge_format::PlanOptions;

/// The most dimensions that numpy can have.
const MOST_DIMENSIONS: usize = 64;

/// Lays out `checkpoint`: one tensor as a file, several as a folder, unless the kind says which.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `one-tensor` where one file is asked for and there is not one tensor,
/// and for what numpy cannot hold; [`weighbridge_core::Kind::Usage`] for another kind.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let was_folder = (checkpoint.format, checkpoint.kind) == ("npy", FOLDER);
    match options.kind.as_deref() {
        Some(FOLDER) => return folder::plan(checkpoint, options),
        None if was_folder || checkpoint.tensors.len() > 1 => return folder::plan(checkpoint, options),
        None | Some(ARRAY) => {}
        Some(kind) => {
            return Err(Error::usage("unknown-kind", "npy has no such kind")
                .expected(format_args!("{ARRAY} or {FOLDER}"))
                .found(kind));
        }
    }
    let [tensor] = checkpoint.tensors.as_slice() else {
        return Err(Error::mismatch("one-tensor", "an npy file holds exactly one tensor")
            .in_file(&checkpoint.label)
            .found(format_args!("{} tensors", checkpoint.tensors.len()))
            .hint(phrase!["write an npz, a folder (", Opt::Kind.with("folder"), "), or select one tensor"]));
    };
    let (header, order) = array_header(tensor)?;
    let mut file = FileBuilder::new("");
    file.literal(header);
    file.tensor(tensor, order)?;
    let losses = losses(checkpoint, tensor);
    Ok(WritePlan { format: "npy", kind: ARRAY, files: vec![file.finish()], losses })
}

/// The header under which `tensor` is written, and the order of its elements: the one that it has,
/// so that no element moves.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] where numpy has no such type or no array of such a shape.
pub(crate) fn array_header(tensor: &TensorEntry) -> Result<(Vec<u8>, Order)> {
    // Where both orders are the same bytes, numpy calls it C.
    let order = if tensor.shape.is_order_free() { Order::Row } else { tensor.order() };
    let size = tensor.dtype().size().unwrap_or(1) as u64;
    let bytes = tensor.shape.dims().iter().filter(|&&d| d != 0).try_fold(size, |n, &d| n.checked_mul(d));
    if tensor.shape.rank() > MOST_DIMENSIONS || bytes.is_none_or(|bytes| bytes >= 1 << 63) {
        return Err(Error::mismatch("numpy-shape", "numpy cannot have an array of this shape")
            .on_tensor(tensor.name())
            .expected("at most 64 dimensions that multiply to less than 2^63 bytes")
            .found(&tensor.shape));
    }
    let header = header::encode(tensor.dtype(), order, &tensor.shape).ok_or_else(|| {
        Error::mismatch("numpy-dtype", format!("numpy has no elements of type {}", tensor.dtype()))
            .on_tensor(tensor.name())
            .hint(phrase!["cast them: ", Opt::Cast.with("f32")])
    })?;
    Ok((header, order))
}

fn losses(checkpoint: &Checkpoint, tensor: &TensorEntry) -> Vec<Loss> {
    let mut losses: Vec<Loss> = checkpoint
        .metadata
        .iter()
        .map(|(key, _)| {
            let key = weighbridge_core::checkpoint::escape_text(key);
            Loss::new("metadata-dropped", key, "an npy file has no place for metadata")
        })
        .collect();
    if tensor.path != TensorPath::value() {
        losses.push(Loss::new("name-dropped", tensor.name(), "an npy file has no place for a name"));
    }
    if tensor.row_names.is_some() {
        let detail = phrase![
            "an npy file has no place for the names of rows; a folder has (",
            Opt::Kind.with("folder"),
            ")"
        ];
        losses.push(Loss::new("names-left-out", tensor.name(), detail));
    }
    // Name and metadata are told of above; what else would there be to carry?
    let mut bare = checkpoint.clone();
    bare.metadata = Metadata::default();
    for tensor in &mut bare.tensors {
        tensor.path = TensorPath::value();
    }
    if bare.bridge_index(&[TensorPath::value().to_text()]).is_some() {
        let detail = "an npy file holds the values alone: not that they came from another format, nor their role or batch";
        losses.push(Loss::new("index-dropped", tensor.name(), detail));
    }
    losses.extend(checkpoint.left_behind());
    losses
}
