//! Files that are small and claim to be large, and files that would multiply: whatever is done with them ends in an
//! error or in a small true result, within 64 MiB of memory beside the file itself.
//!
//! Every bomb is made here, the same each time, and used in every way that there is: opened, opened leniently, listed,
//! summed up, verified, scanned, its values counted, converted. A case that takes a processor for more than 60 s ends the
//! process. Each line says what one took; the slowest, as released:
//! `cargo test --profile dist -p weighbridge-fuzz --test bombs -- --nocapture | sort -n | tail`.
//!
//! Each test runs in a process of its own: what a bomb takes is what all threads hold together.
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
