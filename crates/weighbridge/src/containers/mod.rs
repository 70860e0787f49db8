//! Containers that formats are made of: they hold members, blobs and tensors, and mean nothing by
//! themselves.

#[cfg(any(feature = "hdf5", feature = "biggraph"))]
pub use weighbridge_hdf5 as hdf5;
#[cfg(feature = "torch")]
pub use weighbridge_torch_archive as torch;
pub use weighbridge_zip as zip;
