//! The arguments of `diff`.

use super::Input;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct Diff {
    /// The left side: what it was
    pub left: PathBuf,
    /// The right side: what it is
    pub right: PathBuf,
    /// A value may be off by this much
    #[arg(long, value_name = "DISTANCE", allow_negative_numbers = true)]
    pub atol: Option<f64>,
    /// A value may be off by this share of the value on the right
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub rtol: Option<f64>,
    /// A type that differs is no difference by itself; values are compared as numbers
    #[arg(long)]
    pub ignore_dtype: bool,
    /// A file of rules (TOML) for the left side, as of `edit`, see docs/rules.md; may be repeated
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Go on where a rule of --rules, --rename or --rename-regex fits nothing, and note it
    #[arg(long)]
    pub lenient_rules: bool,
    /// A rule OLD=NEW for names on the left, as in `convert`; may be repeated
    #[arg(long, value_name = "OLD=NEW")]
    pub rename: Vec<String>,
    /// A rule for names on the left that an expression covers wholly, as of `edit`; may be repeated
    #[arg(long, value_name = "REGEX=NEW")]
    pub rename_regex: Vec<String>,
    /// Look only at tensors that match this pattern on either side; may be repeated
    #[arg(long, visible_alias = "keep", value_name = "PATTERN")]
    pub select: Vec<String>,
    /// Leave out tensors that match this pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub drop: Vec<String>,
    /// Leave out optimizer state
    #[arg(long)]
    pub no_state: bool,
    /// Leave out metadata
    #[arg(long)]
    pub no_metadata: bool,
    /// Compare also what few files keep: roles, versions of PyTorch's modules, requires_grad, Paddle's stop_gradient
    #[arg(long, conflicts_with = "no_metadata")]
    pub metadata: bool,
    /// Compare names, types and shapes, and read no values
    #[arg(long, conflicts_with_all = ["atol", "rtol"])]
    pub names_only: bool,
    /// List the tensors that are the same, too
    #[arg(long)]
    pub all: bool,
    /// Print GitHub's Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Memory for buffers, such as 64MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = super::size)]
    pub memory: u64,
    /// Threads; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
    /// As --from, for the right side
    #[arg(long, value_name = "FORMAT")]
    pub right_from: Option<String>,
    /// As --program, for the right side
    #[arg(long, value_name = "FILE")]
    pub right_program: Option<PathBuf>,
    /// As --entities, for the right side
    #[arg(long, value_name = "FOLDER")]
    pub right_entities: Option<PathBuf>,
    /// As --config, for the right side
    #[arg(long, value_name = "FILE")]
    pub right_config: Option<PathBuf>,
    /// As --at, for the right side
    #[arg(long, value_name = "VERSION")]
    pub right_at: Option<u64>,
}

impl Diff {
    /// How to read the right side: `--lenient`, `--salvage`, `--follow-virtual`, `--names` and `--limit` hold for both.
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
            names: self.input.names,
            limit: self.input.limit.clone(),
        }
    }
}
