//! The arguments of `convert`.

use super::{Input, Writing, dtype, rounding, setting};
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use weighbridge::tensor::{DType, Rounding};

/// Which versions of a checkpoint are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Versions {
    /// The one that is read
    Current,
    /// All complete ones, and the snapshots
    All,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Convert {
    /// The file or folder to read; - is standard input
    pub source: PathBuf,
    /// The file to write, or the folder where the format has several files; - is standard output (needs --to)
    pub target: PathBuf,
    /// Keep only tensors whose name matches this pattern (* any characters); may be repeated
    #[arg(long, visible_alias = "keep", value_name = "PATTERN", help_heading = "Changes")]
    pub select: Vec<String>,
    /// Leave out tensors whose name matches this pattern; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Changes")]
    pub drop: Vec<String>,
    /// Leave out optimizer state
    #[arg(long, help_heading = "Changes")]
    pub no_state: bool,
    /// Apply a file of rules, see docs/rules.md; may be repeated. Rules come before renames and casts
    #[arg(long, value_name = "FILE", help_heading = "Changes")]
    pub rules: Vec<PathBuf>,
    /// Go on where a rule of --rules or --rename fits nothing, and note it
    #[arg(long, help_heading = "Changes")]
    pub lenient_rules: bool,
    /// Rename a tensor, or all below a leading part of their path; may be repeated
    #[arg(long, value_name = "OLD=NEW", help_heading = "Changes")]
    pub rename: Vec<String>,
    /// Cast floating-point tensors to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8; floats are rounded to nearest even, i8 cuts towards zero
    #[arg(long, value_name = "DTYPE", value_parser = dtype, help_heading = "Changes")]
    pub cast: Option<DType>,
    /// Round to f16 and bf16 as that version of Paddle does: nearest, paddle-2.6 or paddle-3.3
    #[arg(long, value_name = "HOW", default_value = "nearest", value_parser = rounding, requires = "cast")]
    #[arg(help_heading = "Changes")]
    pub rounding: Rounding,
    /// Add new entities to the trained table of a type: their names, a JSON list or one a line; may be
    /// repeated. Old rows stay in their partitions and places
    #[arg(long, value_name = "TYPE=FILE", value_parser = setting, help_heading = "Changes")]
    pub grow: Vec<(String, String)>,
    /// What decides the values of rows that are drawn: by --grow, --draw, and for entities that a table lacks
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Changes")]
    pub seed: u64,
    /// Draw initial embeddings for a folder of entities, as PyTorch-BigGraph would (needs --config)
    #[arg(long, help_heading = "Changes")]
    pub draw: bool,
    /// With --draw: draw 1,000,003 numbers a partition and repeat them, as PyTorch-BigGraph does
    #[arg(long, requires = "draw", help_heading = "Changes")]
    pub repeat: bool,
    /// Add the global embedding of each type to the rows of its table, as PyTorch-BigGraph's exporter does
    #[arg(long, help_heading = "Changes")]
    pub with_global: bool,
    /// Keep column-major bytes as they are and reverse the dimensions instead
    #[arg(long, help_heading = "Changes")]
    pub reverse_dims: bool,
    /// Which versions of a PyTorch-BigGraph checkpoint are written as one again: the one that is read, or all
    /// complete ones and the snapshots
    #[arg(long, value_name = "WHICH", default_value = "current", help_heading = "Output")]
    pub versions: Versions,
    /// Set metadata; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Changes")]
    pub set_metadata: Vec<String>,
    /// Write no entries of Weighbridge's own (weighbridge.*)
    #[arg(long, help_heading = "Writing")]
    pub plain: bool,
    /// Copy the other files of a folder, such as config.json and the tokenizer, into the target folder
    #[arg(long, help_heading = "Writing")]
    pub copy_others: bool,
    #[command(flatten)]
    pub writing: Writing,
    #[command(flatten)]
    pub input: Input,
}
