//! Files of `torch.save`: a pickle and its storages, in a zip archive or in the legacy form.
//!
//! ```text
//! zip form      X/data.pkl           the object, protocol 2; a storage is a persistent id:
//! (torch 1.6 on)                     ("storage", class, KEY, "cpu", elements)
//!               X/byteorder          "little" or "big"; absent before 2.1, which means little
//!               X/data/KEY           the bytes of a storage
//!               X/version            "3\n"
//!
//! legacy form   consecutive pickles: the magic number, 1001, system information,
//!               the object, the list of storage keys; persistent ids have a sixth member, None or
//!               the view (key, first element, elements) of the storage
//!               for each key: number of elements (i64, little-endian), their bytes (little-endian)
//! ```
//!
//! The folder X may have any name. A tensor in the object is a call of `torch._utils`:
//! `_rebuild_tensor_v2(storage, first element, size, stride, requires_grad, hooks)`. Nothing is
//! called here; see [`weighbridge_pickle`].
//!
//! [`read`] returns a [`Saved`], which finds the tensors among its objects; [`SavedBuilder`] writes
//! the zip form.
//!
//! See also: `weighbridge-torch` reads state dicts and whole objects from these archives.

mod composite;
mod files;
mod layout;
mod legacy;
mod object;
mod order;
mod pickled;
mod plain;
mod rebuild;
mod saved;
mod storage;
mod strided;
#[cfg(test)]
mod tests;
mod write;

pub use composite::{Quantizer, Sparse, index_names};
pub use legacy::is_legacy;
pub use pickled::pickled;
pub use rebuild::is_tensor;
pub use saved::{Form, Salvaged, Saved, read, salvage};
pub use storage::{dtype_of, torch_name};
pub use strided::StridedSource;
pub use write::SavedBuilder;
pub use write::is_recent;

/// Attribute of a tensor that requires gradients.
pub const REQUIRES_GRAD: &str = "requires_grad";
/// Attribute of the integers of a quantized tensor: its scheme, such as `per_tensor_affine`. Scale and zero point are
/// separate tensors, nested under its name.
pub const QUANTIZED: &str = "quantized";
/// Attribute of the values of a sparse tensor: its shape.
pub const SPARSE_SIZE: &str = "sparse_size";
/// Attribute of the values of a sparse tensor of layout `coo`: true for unique and sorted indices.
pub const SPARSE_COALESCED: &str = "sparse_coalesced";
/// Attribute of a tensor of a class outside of torch: module and name.
pub(crate) const CLASS: &str = "class";
