//! Arguments of `seal`.

use super::{Input, whole};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::ops::seal::Algorithms;
use weighbridge::ops::values::algorithms;

#[derive(Debug, ClapArgs)]
pub(crate) struct Seal {
    /// File or folder
    pub path: PathBuf,
    /// Manifest to write; - is standard output (default: PATH.manifest.json)
    #[arg(short, long, help_heading = "Output", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Hash algorithms: sha256, blake3 or both (blake3 alone is fastest)
    #[arg(long, help_heading = "Output", value_name = "NAMES", default_value = "sha256,blake3", value_parser = algorithms)]
    pub algorithms: Algorithms,
    /// Hash the files only, not the tensors
    #[arg(long, help_heading = "Output")]
    pub files_only: bool,
    /// Hash the files behind symbolic links instead of refusing them
    #[arg(long, help_heading = "Input")]
    pub allow_symlinks: bool,
    /// Replace the manifest if it exists
    #[arg(short, long, help_heading = "Output")]
    pub force: bool,
    /// Number of threads; 0 uses all processors
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0, None))]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
}
