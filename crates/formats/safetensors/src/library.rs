//! Which library a file is for: transformers loads no file whose metadata does not say so.

use super::FORMAT;
use weighbridge_core::checkpoint::Checkpoint;

/// What PyTorch writes under the key [`FORMAT`].
const PYTORCH: &str = "pt";
/// Formats of arrays that files of any library are converted to, and that do not say which one.
const NEUTRAL: [&str; 4] = ["npz", "npy", "hdf5", "merged"];

/// The library to name in the metadata of a file that does not name one: PyTorch for what came from it, and for arrays
/// that have the names of its modules. A file of safetensors stays as it is.
pub(super) fn library(checkpoint: &Checkpoint) -> Option<&'static str> {
    if checkpoint.metadata.get(FORMAT).is_some() {
        return None;
    }
    let carried = checkpoint.carried_origin().map(|origin| origin.format.as_str());
    let is_torch = checkpoint.format == "torch" || carried == Some("torch");
    let is_neutral = NEUTRAL.contains(&checkpoint.format) && carried.is_none();
    (is_torch || (is_neutral && has_names_of_modules(checkpoint))).then_some(PYTORCH)
}

/// True where weights have the names of modules of PyTorch: `layer.weight` is a part of every layer with a matrix.
fn has_names_of_modules(checkpoint: &Checkpoint) -> bool {
    checkpoint.tensors.iter().any(|tensor| {
        tensor.shape.rank() >= 2
            && tensor.path.parts().len() >= 2
            && tensor.path.parts().last().is_some_and(|part| part.as_str() == Some("weight"))
    })
}
