//! Containers that formats are made of: they hold members, blobs and tensors, and mean nothing by
//! themselves.

pub mod hdf5;
pub mod torch;
pub mod zip;
