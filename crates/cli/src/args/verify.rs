//! The arguments of `verify`.

use super::Input;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct Verify {
    /// The files, or the folders of models that are kept in one; each is looked at by itself
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Read all values and look for NaN, infinities, empty rows and what else is odd; and all names of rows
    #[arg(long)]
    pub values: bool,
    /// As --values, and hold NaN and infinities for errors: the verdict is then unsound, the exit code 1
    #[arg(long)]
    pub deny_nonfinite: bool,
    /// Say what each range of bytes of each file is for
    #[arg(long)]
    pub account: bool,
    /// Hold it against what `seal` wrote: every file by its hashes. Takes one PATH
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Hold the tensors alone against the manifest, as of a model that was converted; not files, program, metadata
    #[arg(long, requires = "manifest")]
    pub tensors_only: bool,
    /// Threads; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
}
