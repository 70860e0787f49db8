//! The arguments of `scan`.

use super::Input;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct Scan {
    /// The file or folder
    #[arg(required_unless_present = "list_rules")]
    pub path: Option<PathBuf>,
    /// Print the findings as a log of SARIF 2.1.0
    #[arg(long, conflicts_with = "json")]
    pub sarif: bool,
    /// Print every rule: code, weight, what it means, and the crafted file that proves it
    #[arg(long, conflicts_with_all = ["path", "sarif"])]
    pub list_rules: bool,
    #[command(flatten)]
    pub input: Input,
}
