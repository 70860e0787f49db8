//! Containers that several formats put their parts into. They know bytes and members, not tensors'
//! meaning; a format decides what a member is.

pub mod zip;
