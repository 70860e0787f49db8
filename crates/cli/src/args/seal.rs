//! The arguments of `seal`.

use super::Input;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::ops::seal::Algorithms;
use weighbridge::ops::values::algorithms;

#[derive(Debug, ClapArgs)]
pub(crate) struct Seal {
    /// The file or folder
    pub path: PathBuf,
    /// The manifest to write, - for standard output; PATH.manifest.json if left out
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The hashes to make: sha256, blake3 or both; blake3 alone is much the faster one
    #[arg(long, value_name = "NAMES", default_value = "sha256,blake3", value_parser = algorithms)]
    pub algorithms: Algorithms,
    /// Seal the files as they are, without looking for tensors in them
    #[arg(long)]
    pub files_only: bool,
    /// Take the bytes behind symbolic links to files, which are refused otherwise
    #[arg(long)]
    pub allow_symlinks: bool,
    /// Replace the manifest if it exists
    #[arg(short, long)]
    pub force: bool,
    /// Threads; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
}
