//! Arguments of `diff`.

use super::{Input, real, whole};
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct Diff {
    /// Left side: the old file or folder
    pub left: PathBuf,
    /// Right side: the new file or folder
    pub right: PathBuf,
    #[command(flatten)]
    pub input: Input,
    /// Absolute error that a value may have
    #[arg(long, help_heading = "Comparison", value_name = "DISTANCE", allow_negative_numbers = true)]
    #[arg(value_parser = real)]
    pub atol: Option<f64>,
    /// Relative error that a value may have, relative to the right side
    #[arg(long, help_heading = "Comparison", value_name = "RATIO", allow_negative_numbers = true)]
    #[arg(value_parser = real)]
    pub rtol: Option<f64>,
    /// Compare values as numbers where the dtypes differ
    #[arg(long, help_heading = "Comparison")]
    pub ignore_dtype: bool,
    /// Apply a file of rules (TOML, as for `edit`) to the left side; may be repeated
    #[arg(long, help_heading = "Changes", value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Print a note for a rule that matches nothing, instead of failing
    #[arg(long, help_heading = "Changes")]
    pub lenient_rules: bool,
    /// Rename tensors of the left side, as in `convert`; may be repeated
    #[arg(long, help_heading = "Changes", value_name = "OLD=NEW")]
    pub rename: Vec<String>,
    /// Rename tensors of the left side by a regular expression, as in `edit`; may be repeated
    #[arg(long, help_heading = "Changes", value_name = "REGEX=NEW")]
    pub rename_regex: Vec<String>,
    /// Compare only tensors that match PATTERN on either side; may be repeated
    #[arg(long, help_heading = "Changes", visible_alias = "keep", value_name = "PATTERN")]
    pub select: Vec<String>,
    /// Skip tensors that match PATTERN; may be repeated
    #[arg(long, help_heading = "Changes", value_name = "PATTERN")]
    pub drop: Vec<String>,
    /// Skip optimizer state
    #[arg(long, help_heading = "Changes")]
    pub no_state: bool,
    /// Skip metadata
    #[arg(long, help_heading = "Comparison")]
    pub no_metadata: bool,
    /// Also compare roles, requires_grad, stop_gradient, and module versions that a file of another format lacks
    #[arg(long, help_heading = "Comparison", conflicts_with = "no_metadata")]
    pub metadata: bool,
    /// Compare names, dtypes and shapes without reading values
    #[arg(long, help_heading = "Comparison", conflicts_with_all = ["atol", "rtol"])]
    pub names_only: bool,
    /// Also list equal tensors
    #[arg(long, help_heading = "Output")]
    pub all: bool,
    /// Print Markdown for GitHub
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub markdown: bool,
    /// Memory for buffers
    #[arg(long, help_heading = "Limits", value_name = "SIZE", default_value = "256MiB", value_parser = super::size)]
    pub memory: u64,
    /// Number of threads; 0 uses all processors
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0, None))]
    pub threads: usize,
    /// --from for the right side
    #[arg(long, value_name = "FORMAT", value_parser = super::FormatName, hide_possible_values = true)]
    #[arg(help_heading = "Input", hide_short_help = true)]
    pub right_from: Option<String>,
    /// --program for the right side
    #[arg(long, help_heading = "Input", hide_short_help = true, value_name = "FILE")]
    pub right_program: Option<PathBuf>,
    /// --entities for the right side
    #[arg(long, help_heading = "Input", hide_short_help = true, value_name = "FOLDER")]
    pub right_entities: Option<PathBuf>,
    /// --config for the right side
    #[arg(long, help_heading = "Input", hide_short_help = true, value_name = "FILE")]
    pub right_config: Option<PathBuf>,
    /// --at for the right side
    #[arg(long, help_heading = "Input", hide_short_help = true, value_name = "VERSION")]
    #[arg(value_parser = whole::<u64>(0, None))]
    pub right_at: Option<u64>,
}

impl Diff {
    /// Returns how to read the right side. `--lenient`, `--salvage`, `--follow-virtual`, `--dequantize`, `--names` and `--limit` apply to both.
    pub(crate) fn right_input(&self) -> Input {
        Input {
            from: self.right_from.clone(),
            program: self.right_program.clone(),
            entities: self.right_entities.clone(),
            config: self.right_config.clone(),
            at: self.right_at,
            lenient: self.input.lenient,
            salvage: self.input.salvage,
            follow_virtual: self.input.follow_virtual,
            dequantize: self.input.dequantize,
            names: self.input.names,
            limit: self.input.limit.clone(),
        }
    }
}
