//! The arguments of `edit`, `shard` and `merge`, and of all that write.

use super::{Common, Input, setting, size};
use crate::Outcome;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use weighbridge::checkpoint::Loss;
use weighbridge::engine::RunOptions;

pub(crate) const EDIT_EXAMPLES: &str = "\
Examples:
  weighbridge edit net.safetensors new.safetensors --strip-prefix module --rename fc=head
  weighbridge edit net.safetensors new.safetensors --rename-glob 'layers.*.w=h.{1}.weight'
  weighbridge edit net.safetensors half.safetensors --cast f16 --plan     what would overflow?
  weighbridge edit pd.safetensors pt.safetensors --rules paddle-to-torch.toml
  weighbridge edit net.safetensors --in-place --rename fc=head            only the header is written
  weighbridge edit net.safetensors --undo                                 the old header, byte for byte

Rules are applied in this order, each upon what the one before left: --rules, --keep, --drop, --no-state,
--strip-prefix, --rename, --rename-glob, --rename-regex, --prefix, --transpose, --cast, --tie, --untie, --set-metadata,
--remove-metadata. A file of rules has the order of its lines. See docs/rules.md.";

pub(crate) const SHARD_EXAMPLES: &str = "\
Examples:
  weighbridge shard model.safetensors model/ --max-shard-size 5GB
  weighbridge shard net.pt model/ --max-shard-size 500MB --plan";

pub(crate) const MERGE_EXAMPLES: &str = "\
Examples:
  weighbridge merge model/ -o model.safetensors                 shards to one file
  weighbridge merge encoder.npz decoder.npz -o both.safetensors
  weighbridge merge base.pt tuned.pt -o net.pt --prefer last
  weighbridge merge a.safetensors b.safetensors -o two.safetensors --prefix-each";

/// What says what to change or how to write it: of no use where the last edit is taken back or forgotten.
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

/// How to edit in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InPlaceMode {
    /// Write only what stands around the tensors, and keep an undo record
    Header,
    /// Put a new file in the place of the old one when it is whole
    Rewrite,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Edit {
    /// The file or folder to edit
    pub source: PathBuf,
    /// The file or folder to write; its format is told from its extension, or without one is the source's own
    #[arg(required_unless_present_any = ["in_place", "undo", "forget_undo"])]
    pub target: Option<PathBuf>,
    /// A file of rules (TOML), see docs/rules.md; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Rules")]
    pub rules: Vec<PathBuf>,
    /// Keep only tensors whose name matches this pattern; may be repeated
    #[arg(long, visible_alias = "select", value_name = "PATTERN", help_heading = "Rules")]
    pub keep: Vec<String>,
    /// Leave out tensors whose name matches this pattern; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Rules")]
    pub drop: Vec<String>,
    /// Leave out optimizer state
    #[arg(long, help_heading = "Rules")]
    pub no_state: bool,
    /// Take these leading parts of names away; may be repeated, the first that fits
    #[arg(long, value_name = "NAME", help_heading = "Rules")]
    pub strip_prefix: Vec<String>,
    /// Rename a whole name, or whole leading parts of names; may be repeated, the first that fits
    #[arg(long, value_name = "OLD=NEW", help_heading = "Rules")]
    pub rename: Vec<String>,
    /// Rename what a pattern with * and ? covers wholly; {1} in the new name is what the first of them stood for
    #[arg(long, value_name = "PATTERN=NEW", help_heading = "Rules")]
    pub rename_glob: Vec<String>,
    /// Rename what a regular expression covers wholly; {1} or {name} in the new name is a group of it
    #[arg(long, value_name = "REGEX=NEW", help_heading = "Rules")]
    pub rename_regex: Vec<String>,
    /// Put everything below this name
    #[arg(long, value_name = "NAME", help_heading = "Rules")]
    pub prefix: Option<String>,
    /// Transpose matrices that match, or give the order of dimensions; may be repeated
    #[arg(long, value_name = "PATTERN[=AXES]", help_heading = "Rules")]
    pub transpose: Vec<String>,
    /// Cast floating-point tensors that match, or all, to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8; may be repeated
    #[arg(long, value_name = "[PATTERN=]DTYPE", help_heading = "Rules")]
    pub cast: Vec<String>,
    /// Let two tensors of the same elements share their bytes; may be repeated
    #[arg(long, value_name = "NAME=OTHER", help_heading = "Rules")]
    pub tie: Vec<String>,
    /// Give names that share bytes their own; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Rules")]
    pub untie: Vec<String>,
    /// Set metadata; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Rules")]
    pub set_metadata: Vec<String>,
    /// Remove metadata; may be repeated
    #[arg(long, value_name = "KEY", help_heading = "Rules")]
    pub remove_metadata: Vec<String>,
    /// Go on where a rule fits nothing, and note it
    #[arg(long, help_heading = "Rules")]
    pub lenient_rules: bool,
    /// Edit the file that is there: header (the default) or rewrite
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "header")]
    #[arg(conflicts_with_all = ["target", "to", "kind", "force"], help_heading = "In place")]
    pub in_place: Option<InPlaceMode>,
    /// Put back what stood in the file before its last edit in place
    #[arg(long, conflicts_with_all = ["target", "in_place", "forget_undo"], conflicts_with_all = CHANGES, help_heading = "In place")]
    pub undo: bool,
    /// Remove the undo record: the last edit in place stays. The file itself need not be there any more
    #[arg(long, conflicts_with_all = ["target", "in_place"], conflicts_with_all = CHANGES, help_heading = "In place")]
    pub forget_undo: bool,
    #[command(flatten)]
    pub writing: Writing,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Shard {
    /// The file or folder to read
    pub source: PathBuf,
    /// The folder to write
    pub target: PathBuf,
    /// The most bytes of tensors in a file: 5GB is 5,000,000,000 as in transformers, 5GiB is 5 x 2^30
    #[arg(long, value_name = "SIZE", default_value = "5GB")]
    pub max_shard_size: String,
    #[command(flatten)]
    pub writing: Writing,
    #[command(flatten)]
    pub input: Input,
}

/// Which tensor is taken of two that have one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefer {
    /// That of the file that is named first
    First,
    /// That of the file that is named last
    Last,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Merge {
    /// The files or folders to read; a folder of shards is one source
    #[arg(required = true)]
    pub sources: Vec<PathBuf>,
    /// The file or folder to write
    #[arg(short, long, value_name = "DST")]
    pub output: PathBuf,
    /// Take the tensor of the first or last file where several have the same name
    #[arg(long, value_name = "WHICH", conflicts_with = "prefix_each")]
    pub prefer: Option<Prefer>,
    /// Put the tensors of each file below the name of the file
    #[arg(long)]
    pub prefix_each: bool,
    #[command(flatten)]
    pub writing: Writing,
    #[command(flatten)]
    pub input: Input,
}

/// How to write.
#[derive(Debug, ClapArgs)]
pub(crate) struct Writing {
    /// The format to write: primitiv, paddle, biggraph, safetensors, npz, npy, torch, hdf5, parquet, arrow, tsv,
    /// word2vec; told from the target's extension if left out
    #[arg(long, value_name = "FORMAT", help_heading = "Writing")]
    pub to: Option<String>,
    /// The kind of file within the format, such as primitiv's parameter or paddle's inference, separate,
    /// combined, state, training, or biggraph's init, edges, entities
    #[arg(long, value_name = "KIND", help_heading = "Writing")]
    pub kind: Option<String>,
    /// Choose how the format is written, such as protocol=2 for a Paddle state, or header_padding=4096; may be
    /// repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, help_heading = "Writing")]
    pub set: Vec<(String, String)>,
    /// Print what would be written or changed, and write nothing
    #[arg(long, visible_alias = "dry-run", help_heading = "Writing")]
    pub plan: bool,
    /// End with 0 although tensors of the source are not in the target
    #[arg(long, conflicts_with = "deny_loss", help_heading = "Writing")]
    pub allow_loss: bool,
    /// Refuse if the target cannot hold everything
    #[arg(long, help_heading = "Writing")]
    pub deny_loss: bool,
    /// Replace the target if it exists
    #[arg(short, long, help_heading = "Writing")]
    pub force: bool,
    /// Memory for buffers, such as 64MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size, help_heading = "Writing")]
    pub memory: u64,
    /// Threads; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Writing")]
    pub threads: usize,
    /// Do not wait until the result is safe from a loss of power; edits in place of the header always wait
    #[arg(long, help_heading = "Writing")]
    pub no_sync: bool,
}

impl Writing {
    /// The outcome of writing with these losses: a finding where a tensor of the source is missing, unless that is
    /// allowed. A plan alone is always done.
    pub(crate) fn outcome(&self, losses: &[Loss]) -> Outcome {
        match self.plan || self.allow_loss || !losses.iter().any(Loss::is_tensor) {
            true => Outcome::Done,
            false => Outcome::Finding,
        }
    }

    /// How to run, as the arguments say.
    pub(crate) fn run_options(&self, common: &Common) -> RunOptions {
        RunOptions {
            threads: self.threads,
            memory: self.memory,
            sync: !self.no_sync,
            progress: common.progress(),
        }
    }
}
