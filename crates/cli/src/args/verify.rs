//! Arguments of `verify`.

use super::{Input, whole};
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct Verify {
    /// Files or model folders; - is standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Also check values: NaN, infinities, empty rows, duplicates, row names
    #[arg(long, help_heading = "Checks")]
    pub values: bool,
    /// Like --values, but NaN and infinities are errors (exit code 1)
    #[arg(long, help_heading = "Checks")]
    pub deny_nonfinite: bool,
    /// Show the use of every byte range of each file
    #[arg(long, help_heading = "Checks")]
    pub account: bool,
    /// Compare all files with the hashes of a manifest (one PATH only)
    #[arg(long, help_heading = "Checks", value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Compare only the tensors with the manifest, for a converted model
    #[arg(long, help_heading = "Checks", requires = "manifest")]
    pub tensors_only: bool,
    /// Number of threads; 0 uses all processors
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0, None))]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
}
