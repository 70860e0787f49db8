//! Arguments of `scan`.

use super::Input;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::ops::scan::Category;
use weighbridge::ops::values::category;

#[derive(Debug, ClapArgs)]
pub(crate) struct Scan {
    /// Files or folders; - is standard input
    #[arg(required_unless_present = "list_rules", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print a SARIF 2.1.0 log
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub sarif: bool,
    /// Exit with 1 for warnings of this category too; may be repeated
    ///
    /// CATEGORY is code, files, privacy, deception, resources or unread.
    #[arg(long, help_heading = "Checks", value_name = "CATEGORY", value_parser = category)]
    pub deny: Vec<Category>,
    /// List all rules: code, category, severity, meaning and test file
    #[arg(long, help_heading = "Output", conflicts_with_all = ["paths", "sarif"])]
    pub list_rules: bool,
    #[command(flatten)]
    pub input: Input,
}
