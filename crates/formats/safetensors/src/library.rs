//! The metadata key `format`: transformers loads only files that name a library.

use super::FORMAT;
use weighbridge_core::checkpoint::Checkpoint;

/// Value of the key [`FORMAT`] for PyTorch.
const PYTORCH: &str = "pt";
/// Array formats that do not name the library of their tensors.
const NEUTRAL: [&str; 4] = ["npz", "npy", "hdf5", "merged"];

/// Returns the library to name in metadata without one: PyTorch for tensors from PyTorch, and for arrays
/// with names of PyTorch modules. Metadata of safetensors files stays unchanged.
pub(super) fn library(checkpoint: &Checkpoint) -> Option<&'static str> {
    if checkpoint.metadata.get(FORMAT).is_some() {
        return None;
    }
    let carried = checkpoint.carried_origin().map(|origin| origin.format.as_str());
    let is_torch = checkpoint.format == "torch" || carried == Some("torch");
    let is_neutral = NEUTRAL.contains(&checkpoint.format) && carried.is_none();
    (is_torch || (is_neutral && has_module_names(checkpoint))).then_some(PYTORCH)
}

/// True where weights have names of PyTorch modules, such as `layer.weight` for a matrix.
fn has_module_names(checkpoint: &Checkpoint) -> bool {
    checkpoint.tensors.iter().any(|tensor| {
        tensor.shape.rank() >= 2
            && tensor.path.parts().len() >= 2
            && tensor.path.parts().last().is_some_and(|part| part.as_str() == Some("weight"))
    })
}
