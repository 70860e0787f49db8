//! Arguments of `edit`, `shard` and `merge`, and of every verb that writes.

use super::{Common, FormatName, Input, setting, size, whole};
use crate::Outcome;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use weighbridge::checkpoint::Loss;
use weighbridge::engine::RunOptions;

pub(crate) const EDIT_EXAMPLES: &str = "\
Examples:
  weighbridge edit net.safetensors new.safetensors --strip-prefix module --rename fc=head
  weighbridge edit net.safetensors new.safetensors --rename-glob 'layers.*.w=h.{1}.weight'
  weighbridge edit net.safetensors half.safetensors --cast f16 --plan     count values that would overflow
  weighbridge edit pd.safetensors pt.safetensors --rules paddle-to-torch.toml
  weighbridge edit net.safetensors --in-place --rename fc=head            writes only the header
  weighbridge edit net.safetensors --undo                                 restores the old header, byte for byte

Rules run in this order, each on the result of the one before: --rules, --keep, --drop, --no-state,
--strip-prefix, --rename, --rename-glob, --rename-regex, --prefix, --transpose, --cast, --tie, --untie,
--set-metadata, --remove-metadata. Rules of a file run in the order of its lines.";

pub(crate) const SHARD_EXAMPLES: &str = "\
Examples:
  weighbridge shard model.safetensors model/ --max-shard-size 5GB
  weighbridge shard net.pt model/ --max-shard-size 500MB --plan";

pub(crate) const MERGE_EXAMPLES: &str = "\
Examples:
  weighbridge merge model/ -o model.safetensors                 shards into one file
  weighbridge merge encoder.npz decoder.npz -o both.safetensors
  weighbridge merge base.pt tuned.pt -o net.pt --prefer last
  weighbridge merge a.safetensors b.safetensors -o two.safetensors --prefix-each";

/// Arguments that conflict with --undo and --forget-undo.
const CHANGES: [&str; 24] = [
    "rules",
    "keep",
    "drop",
    "no_state",
    "strip_prefix",
    "rename",
    "rename_glob",
    "rename_regex",
    "prefix",
    "transpose",
    "cast",
    "tie",
    "untie",
    "set_metadata",
    "remove_metadata",
    "lenient_rules",
    "to",
    "kind",
    "set",
    "plan",
    "allow_loss",
    "deny_loss",
    "force",
    "no_sync",
];

/// Ways to edit in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InPlaceMode {
    /// Write only the header and keep an undo record
    Header,
    /// Write a new file, then replace the old one
    Rewrite,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Edit {
    /// File or folder to edit
    pub source: PathBuf,
    /// File or folder to write (format: by extension, else that of the source)
    #[arg(required_unless_present_any = ["in_place", "undo", "forget_undo"])]
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub input: Input,
    /// Apply a file of rules (TOML); may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Changes")]
    pub rules: Vec<PathBuf>,
    /// Keep only tensors that match PATTERN (* and ?); may be repeated
    #[arg(long, visible_alias = "select", value_name = "PATTERN", help_heading = "Changes")]
    pub keep: Vec<String>,
    /// Drop tensors that match PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Changes")]
    pub drop: Vec<String>,
    /// Drop optimizer state
    #[arg(long, help_heading = "Changes")]
    pub no_state: bool,
    /// Remove leading parts of names; may be repeated, the first match applies
    #[arg(long, value_name = "NAME", help_heading = "Changes")]
    pub strip_prefix: Vec<String>,
    /// Rename a tensor, or leading parts of names; may be repeated, the first match applies
    #[arg(long, value_name = "OLD=NEW", help_heading = "Changes")]
    pub rename: Vec<String>,
    /// Rename names that match a pattern; {1} in NEW is the text of the first * or ?
    #[arg(long, value_name = "PATTERN=NEW", help_heading = "Changes")]
    pub rename_glob: Vec<String>,
    /// Rename names that match a regular expression; {1} or {name} in NEW is a group
    #[arg(long, value_name = "REGEX=NEW", help_heading = "Changes")]
    pub rename_regex: Vec<String>,
    /// Add a leading part to all names
    #[arg(long, value_name = "NAME", help_heading = "Changes")]
    pub prefix: Option<String>,
    /// Transpose matching matrices, or permute dimensions with AXES; may be repeated
    #[arg(long, value_name = "PATTERN[=AXES]", help_heading = "Changes")]
    pub transpose: Vec<String>,
    /// Cast matching floating-point tensors, or all; may be repeated
    ///
    /// DTYPE is f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8.
    #[arg(long, value_name = "[PATTERN=]DTYPE", help_heading = "Changes")]
    pub cast: Vec<String>,
    /// Store two equal tensors once (shared storage); may be repeated
    #[arg(long, value_name = "NAME=OTHER", help_heading = "Changes")]
    pub tie: Vec<String>,
    /// Store tensors that share storage separately; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Changes")]
    pub untie: Vec<String>,
    /// Set metadata; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Changes")]
    pub set_metadata: Vec<String>,
    /// Remove metadata; may be repeated
    #[arg(long, value_name = "KEY", help_heading = "Changes")]
    pub remove_metadata: Vec<String>,
    /// Print a note for a rule that matches nothing, instead of failing
    #[arg(long, help_heading = "Changes")]
    pub lenient_rules: bool,
    /// Edit the file itself: header (default) or rewrite
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "header")]
    #[arg(conflicts_with_all = ["target", "to", "kind", "force"], help_heading = "In place")]
    pub in_place: Option<InPlaceMode>,
    /// Undo the last edit in place
    #[arg(long, conflicts_with_all = ["target", "in_place", "forget_undo"], conflicts_with_all = CHANGES, help_heading = "In place")]
    pub undo: bool,
    /// Remove the undo record of the last edit in place
    #[arg(long, conflicts_with_all = ["target", "in_place"], conflicts_with_all = CHANGES, help_heading = "In place")]
    pub forget_undo: bool,
    #[command(flatten)]
    pub writing: Writing,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Shard {
    /// File or folder to read
    pub source: PathBuf,
    /// Folder to write
    pub target: PathBuf,
    #[command(flatten)]
    pub input: Input,
    /// Maximum bytes of tensors per shard
    ///
    /// 5GB is 5,000,000,000 bytes as in transformers, 5GiB is 5 x 2^30.
    #[arg(long, value_name = "SIZE", default_value = "5GB", help_heading = "Output")]
    pub max_shard_size: String,
    #[command(flatten)]
    pub writing: Writing,
}

/// Choice between two tensors of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefer {
    /// Tensor of the first file
    First,
    /// Tensor of the last file
    Last,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Merge {
    /// Files or folders to read; a folder of shards is one source
    #[arg(required = true)]
    pub sources: Vec<PathBuf>,
    #[command(flatten)]
    pub input: Input,
    /// File or folder to write
    #[arg(short, long, value_name = "DST", help_heading = "Output")]
    pub output: PathBuf,
    /// Which tensor to keep when several have the same name: first or last
    #[arg(long, value_name = "WHICH", conflicts_with = "prefix_each", help_heading = "Changes")]
    pub prefer: Option<Prefer>,
    /// Prefix the tensors of each file with the name of the file
    #[arg(long, help_heading = "Changes")]
    pub prefix_each: bool,
    #[command(flatten)]
    pub writing: Writing,
}

/// How to write the output.
#[derive(Debug, ClapArgs)]
pub(crate) struct Writing {
    /// Format to write (default: by the extension of the target)
    #[arg(long, value_name = "FORMAT", value_parser = FormatName, help_heading = "Output")]
    pub to: Option<String>,
    /// Kind of file within the format, such as inference or state for paddle
    ///
    /// paddle: inference, separate, combined, state, training. biggraph: init, edges, entities. primitiv: parameter.
    /// docs/src/reference/settings.md lists all.
    #[arg(long, value_name = "KIND", help_heading = "Output")]
    pub kind: Option<String>,
    /// Setting of the format, such as header_padding=4096; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, help_heading = "Output")]
    pub set: Vec<(String, String)>,
    /// Show what would be written, without writing
    #[arg(long, visible_alias = "dry-run", help_heading = "Output")]
    pub plan: bool,
    /// Exit with 0 even if tensors of the source are not in the output
    #[arg(long, conflicts_with = "deny_loss", help_heading = "Output")]
    pub allow_loss: bool,
    /// Fail if the output cannot hold everything
    #[arg(long, help_heading = "Output")]
    pub deny_loss: bool,
    /// Replace the output if it exists
    #[arg(short, long, help_heading = "Output")]
    pub force: bool,
    /// Memory for buffers
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size, help_heading = "Limits")]
    pub memory: u64,
    /// Number of threads; 0 uses all processors
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Limits", value_parser = whole::<usize>(0, None))]
    pub threads: usize,
    /// Do not flush the output to disk (faster, unsafe if power is lost)
    ///
    /// Edits in place of a header are always flushed.
    #[arg(long, help_heading = "Output")]
    pub no_sync: bool,
}

impl Writing {
    /// Returns the outcome of writing with these losses: a finding where a tensor of the source is missing, unless that is
    /// allowed. A plan is always done.
    pub(crate) fn outcome(&self, losses: &[Loss]) -> Outcome {
        match self.plan || self.allow_loss || !losses.iter().any(Loss::is_tensor) {
            true => Outcome::Done,
            false => Outcome::Finding,
        }
    }

    /// Returns the options of the engine.
    pub(crate) fn run_options(&self, common: &Common) -> RunOptions {
        RunOptions {
            threads: self.threads,
            memory: self.memory,
            sync: !self.no_sync,
            progress: common.progress(),
        }
    }
}
