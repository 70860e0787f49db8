//! Arguments of `convert`.

use super::{Input, Writing, dtype, rounding, setting, whole};
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use weighbridge::tensor::{DType, Rounding};

/// Versions of a checkpoint to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Versions {
    /// The version that is read
    Current,
    /// All complete versions and the snapshots
    All,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Convert {
    /// File or folder to read; - is standard input
    pub source: PathBuf,
    /// File or folder to write; - is standard output (needs --to)
    pub target: PathBuf,
    #[command(flatten)]
    pub input: Input,
    /// Keep only tensors that match PATTERN (* and ?); may be repeated
    #[arg(long, visible_alias = "keep", value_name = "PATTERN", help_heading = "Changes")]
    pub select: Vec<String>,
    /// Drop tensors that match PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Changes")]
    pub drop: Vec<String>,
    /// Drop optimizer state
    #[arg(long, help_heading = "Changes")]
    pub no_state: bool,
    /// Apply a file of rules (TOML) before renames and casts; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Changes")]
    pub rules: Vec<PathBuf>,
    /// Print a note for a rule that matches nothing, instead of failing
    #[arg(long, help_heading = "Changes")]
    pub lenient_rules: bool,
    /// Rename a tensor, or leading parts of names; may be repeated
    #[arg(long, value_name = "OLD=NEW", help_heading = "Changes")]
    pub rename: Vec<String>,
    /// Cast floating-point tensors to DTYPE
    ///
    /// DTYPE is f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8. Floats round to nearest even; i8 truncates towards zero.
    #[arg(long, value_name = "DTYPE", value_parser = dtype, help_heading = "Changes")]
    pub cast: Option<DType>,
    /// Rounding to f16 and bf16: nearest, paddle-2.6 or paddle-3.3
    #[arg(long, value_name = "HOW", default_value = "nearest", value_parser = rounding, requires = "cast")]
    #[arg(help_heading = "Changes", hide_short_help = true)]
    pub rounding: Rounding,
    /// Add entities to the trained table of an entity type; may be repeated
    ///
    /// FILE has their names: a JSON list, or one name per line. Existing rows keep their partitions and positions.
    #[arg(long, value_name = "TYPE=FILE", value_parser = setting, help_heading = "BigGraph", hide_short_help = true)]
    pub grow: Vec<(String, String)>,
    /// Seed for rows initialized by --grow and --draw, and for entities missing in a table
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0, None))]
    #[arg(help_heading = "BigGraph", hide_short_help = true)]
    pub seed: u64,
    /// Initialize embeddings for a folder of entities as PyTorch-BigGraph does (needs --config)
    #[arg(long, help_heading = "BigGraph", hide_short_help = true)]
    pub draw: bool,
    /// With --draw: draw 1,000,003 numbers per partition and repeat them, as PyTorch-BigGraph does
    #[arg(long, requires = "draw", help_heading = "BigGraph", hide_short_help = true)]
    pub repeat: bool,
    /// Add the global embedding of each type to its rows, as PyTorch-BigGraph's exporter does
    #[arg(long, help_heading = "BigGraph", hide_short_help = true)]
    pub with_global: bool,
    /// Keep column-major bytes and reverse the dimensions instead of transposing
    #[arg(long, help_heading = "Changes", hide_short_help = true)]
    pub reverse_dims: bool,
    /// Versions to write of a BigGraph checkpoint: current, or all with the snapshots
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "current",
        help_heading = "BigGraph",
        hide_short_help = true
    )]
    pub versions: Versions,
    /// Set metadata; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Changes")]
    pub set_metadata: Vec<String>,
    /// Write no metadata of Weighbridge (weighbridge.*)
    #[arg(long, help_heading = "Output")]
    pub plain: bool,
    /// Take layout, names and metadata from MODEL, and the values of its tensors from the source
    ///
    /// Each tensor of MODEL must be in the source under the same name, with the same shape and dtype, and no other. MODEL is only read.
    #[arg(long, value_name = "MODEL", help_heading = "Output")]
    pub like: Option<PathBuf>,
    /// Copy the other files of the folder, such as config.json and the tokenizer
    #[arg(long, help_heading = "Output")]
    pub copy_others: bool,
    /// Check an exported ONNX graph: its inputs and outputs against the program, and a run where this build can
    #[arg(long, help_heading = "Output", conflicts_with = "plan")]
    pub check: bool,
    #[command(flatten)]
    pub writing: Writing,
}
