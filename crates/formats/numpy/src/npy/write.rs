//! Writer: checkpoint to plan.

use super::{ARRAY, FOLDER, folder, header};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::Order;
use weighbridge_format::PlanOptions;

/// Maximum number of dimensions in numpy.
const MAX_DIMENSIONS: usize = 64;

/// Plans `checkpoint`: one tensor as a file, several as a folder, unless a kind is requested.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `one-tensor` where one file is requested for another number of tensors,
/// and for tensors that numpy cannot hold; [`weighbridge_core::Kind::Usage`] for another kind.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let was_folder = (checkpoint.format, checkpoint.kind) == ("npy", FOLDER);
    match options.kind.as_deref() {
        Some(FOLDER) => return folder::plan(checkpoint, options),
        None if was_folder || checkpoint.tensors.len() > 1 => return folder::plan(checkpoint, options),
        None | Some(ARRAY) => {}
        Some(kind) => {
            return Err(Error::usage("unknown-kind", "unknown kind of npy output")
                .expected(format_args!("{ARRAY} or {FOLDER}"))
                .found(kind));
        }
    }
    let [tensor] = checkpoint.tensors.as_slice() else {
        let state = checkpoint.tensors.iter().filter(|tensor| tensor.role.is_state()).count();
        let hint = match checkpoint.tensors.len() - state {
            1 => phrase![Opt::NoState, " leaves the optimizer state of the tensor out"],
            _ => phrase!["write an npz, a folder (", Opt::Kind.with("folder"), "), or select one tensor"],
        };
        return Err(Error::mismatch("one-tensor", "an npy file can store only one tensor")
            .in_file(&checkpoint.label)
            .found(format_args!("{} tensors", checkpoint.tensors.len()))
            .hint(hint));
    };
    let (header, order) = array_header(tensor)?;
    let mut file = FileBuilder::new("");
    file.literal(header);
    file.tensor(tensor, order)?;
    let losses = losses(checkpoint, tensor);
    Ok(WritePlan { format: "npy", kind: ARRAY, files: vec![file.finish()], losses })
}

/// Returns the header of `tensor`, and its storage order, which stays the same so that no element moves.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] where numpy does not support the dtype or the shape.
pub(crate) fn array_header(tensor: &TensorEntry) -> Result<(Vec<u8>, Order)> {
    // Where both orders have the same bytes, numpy writes C order.
    let order = if tensor.shape.is_order_free() { Order::Row } else { tensor.order() };
    let size = tensor.dtype().size().unwrap_or(1) as u64;
    let bytes = tensor.shape.dims().iter().filter(|&&d| d != 0).try_fold(size, |n, &d| n.checked_mul(d));
    if tensor.shape.rank() > MAX_DIMENSIONS || bytes.is_none_or(|bytes| bytes >= 1 << 63) {
        return Err(Error::mismatch("numpy-shape", "numpy does not support this shape")
            .on_tensor(tensor.name())
            .expected("at most 64 dimensions and less than 2^63 bytes")
            .found(&tensor.shape));
    }
    let header = header::encode(tensor.dtype(), order, &tensor.shape).ok_or_else(|| {
        Error::mismatch("numpy-dtype", format!("numpy has no dtype for {}", tensor.dtype()))
            .on_tensor(tensor.name())
            .hint(tensor.f32_hint())
    })?;
    Ok((header, order))
}

fn losses(checkpoint: &Checkpoint, tensor: &TensorEntry) -> Vec<Loss> {
    let mut losses: Vec<Loss> = checkpoint
        .metadata
        .iter()
        .map(|(key, _)| {
            let key = weighbridge_core::checkpoint::escape_text(key);
            Loss::new("metadata-dropped", key, "metadata dropped: an npy file has no place for it")
        })
        .collect();
    if tensor.path != TensorPath::value() {
        losses.push(Loss::new(
            "name-dropped",
            tensor.name(),
            "name dropped: an npy file has no place for it",
        ));
    }
    if tensor.row_names.is_some() {
        let detail = phrase![
            "row names dropped: an npy file has no place for them, a folder has (",
            Opt::Kind.with("folder"),
            ")"
        ];
        losses.push(Loss::new("names-left-out", tensor.name(), detail));
    }
    // Name and metadata are reported above; this finds any other bridge metadata.
    let mut bare = checkpoint.clone();
    (bare.metadata, bare.origin) = (Metadata::default(), None);
    for tensor in &mut bare.tensors {
        tensor.path = TensorPath::value();
    }
    if bare.bridge_index(&[TensorPath::value().to_text()]).is_some() {
        let detail = "role and attributes dropped: an npy file stores only the elements";
        losses.push(Loss::new("index-dropped", tensor.name(), detail));
    }
    losses.extend(checkpoint.left_behind());
    losses
}
