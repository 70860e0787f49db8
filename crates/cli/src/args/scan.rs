//! The arguments of `scan`.

use super::Input;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::ops::scan::Category;
use weighbridge::ops::values::category;

#[derive(Debug, ClapArgs)]
pub(crate) struct Scan {
    /// The files or folders; each is looked at by itself
    #[arg(required_unless_present = "list_rules", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print the findings as a log of SARIF 2.1.0
    #[arg(long, conflicts_with = "json")]
    pub sarif: bool,
    /// Exit with 1 for warnings of this category, too: code, files, privacy, deception, resources, unread; may be repeated
    #[arg(long, value_name = "CATEGORY", value_parser = category)]
    pub deny: Vec<Category>,
    /// Print every rule: code, category, weight, what it means, and the crafted file that proves it
    #[arg(long, conflicts_with_all = ["paths", "sarif"])]
    pub list_rules: bool,
    #[command(flatten)]
    pub input: Input,
}
