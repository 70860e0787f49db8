//! Decompression bombs and similar files: small files that claim large sizes or expand. Every operation on them must end in an
//! error or in a small correct result, with at most 64 MiB of memory besides the file itself.
//!
//! Every bomb is generated here, deterministically, and used in every way: opened, opened leniently, listed, summarized,
//! verified, scanned, measured, converted. A case with more than 60 s of CPU time aborts the process. Each output line has the
//! cost of one bomb; to list the slowest of a release build:
//! `cargo test --profile dist -p weighbridge-fuzz --test bombs -- --nocapture | sort -n | tail`.
//!
//! Each test runs in a separate process, because the memory of all threads is counted together.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

mod arrays;
mod arrow;
mod biggraph;
mod harness;
mod hdf5;
mod hdf5_file;
mod hdf5_heaps;
mod hdf5_many;
mod hdf5_over;
mod hdf5_unpacked;
mod made;
mod paddle;
mod parquet;
mod parquet_columns;
mod parquet_heads;
mod pickles;
mod primitiv;
mod references;
mod rules;
mod safetensors;
mod scans;
mod states;
mod tables;
mod zips;
