//! Files of judges/make_hdf5.py read as h5py reads them; damaged files are errors.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::cast_possible_truncation)]

mod elements;
mod golden;
mod malformed;
mod mapped;
mod rules;

use crate::{Contents, read};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{MemorySource, SourceRef};

fn folder() -> PathBuf {
    weighbridge_testkit::testdata("hdf5/good")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<Contents> {
    let source: SourceRef = Arc::new(MemorySource::new("memory.h5", bytes));
    read(&source, &Limits::default())
}
