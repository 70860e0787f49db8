//! Containers that formats are made of: they hold members, blobs and tensors, and mean nothing by
//! themselves.

pub use {weighbridge_hdf5 as hdf5, weighbridge_torch_archive as torch, weighbridge_zip as zip};
