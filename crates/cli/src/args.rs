//! The arguments, declared once: parser, help, completions and manual come from here.

mod convert;
mod diff;
mod edit;
mod input;
mod scan;
mod seal;
mod verify;

pub(crate) use crate::progress::ProgressBar;
pub(crate) use convert::{Convert, Versions};
pub(crate) use diff::Diff;
pub(crate) use edit::{Edit, InPlaceMode, Merge, Prefer, Shard, Writing};
pub(crate) use input::Input;
pub(crate) use scan::Scan;
pub(crate) use seal::Seal;
use std::sync::Arc;
pub(crate) use verify::Verify;
use weighbridge::engine::Progress;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use weighbridge::ops::values::{cast_target as dtype, positive as keep, rounding, setting, size};
use weighbridge::tensor::Rounding;

const EXAMPLES: &str = "\
Examples:
  weighbridge demo                                    see it work on a trained model
  weighbridge ls net.model                            list the tensors
  weighbridge show net.model 'fc1.w[0:3,:]'           print a slice as numpy would
  weighbridge convert net.model net.safetensors       convert; the extension names the format

Exit codes: 0 done, 1 a difference or finding, 2 usage, unreadable input or failure,
3 could not tell, 130 interrupted. A closed pipe is no error.";

/// Opens, checks and converts the model files of machine-learning frameworks, without those
/// frameworks.
#[derive(Debug, Parser)]
// Under whatever name it is called: help and usage say what the examples do.
#[command(name = "weighbridge", bin_name = "weighbridge", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What every verb understands.
#[derive(Debug, ClapArgs)]
pub(crate) struct Common {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: Color,
    /// Show no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// End with an error after this time; what is being written is taken back
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,
}

impl Common {
    /// The watch of all work: progress on the terminal, and Ctrl-C.
    pub(crate) fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(ProgressBar::new(self))
    }
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// What a file is, what is in it, how big it is, and what is odd about it
    #[command(after_help = "Examples:\n  weighbridge info net.model\n  \
                            weighbridge info *.safetensors                several: each by itself\n  \
                            weighbridge info cut.safetensors --salvage    what is intact of a damaged file")]
    Info(Info),
    /// One line for each tensor
    #[command(after_help = "Examples:\n  weighbridge ls net.model\n  weighbridge ls net.model --tree\n  \
                            weighbridge ls net.model --sort size\n  \
                            weighbridge ls net.model --group 2        totals of encoder.layer0, encoder.layer1, ...\n  \
                            weighbridge ls net.model --select 'encoder.*' --drop '*.bias'\n  \
                            weighbridge ls net.safetensors --hash --json | jq '.tensors[].sha256'")]
    Ls(Ls),
    /// The values of a tensor or of a slice of it, as numpy prints them
    #[command(after_help = "Examples:\n  weighbridge show net.model fc1.w\n  \
                            weighbridge show net.model 'fc1.w[0:3,:]'\n  \
                            weighbridge show net.model 'fc1.w/Adam.m1[-1]'\n  \
                            weighbridge show net.model '[\"a.b\",\"w\"][0]'    a path whose parts hold dots")]
    Show(Show),
    /// Minimum, maximum, mean, deviation, zeros, NaN, Inf and a histogram
    #[command(
        override_usage = "weighbridge stats [OPTIONS] <PATH>... [NAME]",
        after_help = "Examples:\n  weighbridge stats net.model            all tensors, a line each\n  \
                            weighbridge stats net.model fc1.w      one, with its histogram\n  \
                            weighbridge stats net.model 'fc*'      those of that pattern"
    )]
    Stats(Stats),
    /// Write a file in another form, all or nothing
    #[command(after_help = "Examples:\n  weighbridge convert net.model net.safetensors\n  \
                            weighbridge convert net.model net.npz --no-state\n  \
                            weighbridge convert hf.safetensors net.model --cast f32\n  \
                            cat net.pt | weighbridge convert - - --to safetensors > net.safetensors\n  \
                            weighbridge convert bert/ bert-safe/ --copy-others        for AutoModel.from_pretrained\n  \
                            weighbridge convert net.model enc.model --select 'encoder.*' --rename encoder=\n  \
                            weighbridge convert net.model net.safetensors --plan      show what would be written\n  \
                            weighbridge convert cut.npz rest.npz --salvage            what is intact of a damaged file\n\n\
                            Paddle:\n  \
                            weighbridge convert model/ net.safetensors                 parameters with names, for PyTorch and others\n  \
                            weighbridge convert net.safetensors out/ --to paddle --kind inference --program model/model.pdmodel\n  \
                            weighbridge convert model/ one/ --to paddle --kind separate          .pdiparams to a file each\n  \
                            weighbridge convert one/ old/ --to paddle --kind inference --set era=1   to __model__, __params__\n  \
                            weighbridge convert best.pdparams net.pdiparams --program net.pdmodel    .pdparams to .pdiparams\n\n\
                            PyTorch-BigGraph:\n  \
                            weighbridge convert model/ user.parquet --select embeddings.user --no-state    a table, with names\n  \
                            weighbridge convert model/ more/ --to biggraph --set partitions=8              repartitioned\n  \
                            weighbridge convert user.parquet init/ --to biggraph --kind init --entities entities/    rows by name\n  \
                            weighbridge convert model/ grown/ --to biggraph --grow user=new.txt --set entities=yes")]
    Convert(Box<Convert>),
    /// Is a file whole and consistent, and what is each of its bytes for?
    #[command(after_help = "Examples:\n  weighbridge verify net.npz\n  \
                            weighbridge verify *.safetensors --json        several: each by itself, and the worst of them\n  \
                            weighbridge verify net.model --values          also look for NaN and its like\n  \
                            weighbridge verify net.pt --deny-nonfinite     for CI: fails where a value is NaN or infinite\n  \
                            weighbridge verify net.pdiparams --program net.pdmodel\n  \
                            weighbridge verify net.model --manifest net.model.manifest.json  as it was sealed?\n  \
                            weighbridge verify net.npz --manifest net.model.manifest.json --tensors-only    the same numbers?\n  \
                            weighbridge verify net.pt --account            what each range of bytes is for; what is hidden\n\n\
                            Exit codes: 0 sound, 1 unsound, 2 cannot be read at all, 3 could not tell.")]
    Verify(Verify),
    /// List the hashes of files and tensors in a manifest, which signing tools can sign
    #[command(
        after_help = "Examples:\n  weighbridge seal net.safetensors               writes net.safetensors.manifest.json\n  \
                            weighbridge seal model/                        every file of a folder: model.manifest.json\n  \
                            weighbridge seal net.pt -o - | jq .subject\n  \
                            weighbridge verify net.pt --manifest net.pt.manifest.json\n\n\
                            A manifest is no signature: whoever can change the model can change it, too. Sign it."
    )]
    Seal(Box<Seal>),
    /// What is different between two files or folders of any formats, and by how much
    #[command(
        after_help = "Examples:\n  weighbridge diff net.model net.safetensors           did the conversion keep everything?\n  \
                            weighbridge diff a.pt b.pt --atol 1e-6 --rtol 1e-5   is it near enough?\n  \
                            weighbridge diff a.pdparams b.pt --rename enc=encoder\n  \
                            weighbridge diff pd.safetensors pt.safetensors --rules paddle-to-torch.toml\n  \
                            weighbridge diff full.pt half.pt --ignore-dtype --rtol 1e-3\n  \
                            weighbridge diff model/ model/ --at 4 --right-at 6   two versions of a checkpoint\n  \
                            weighbridge diff old.pt new.pt --markdown            for a pull request\n\n\
                            Exit codes: 0 nothing is different, or near enough; 1 something is; 2 cannot be opened; 3 could not tell: a tensor cannot be read, or a part was left out."
    )]
    Diff(Box<Diff>),
    /// Names, types, shapes and metadata by rules, into a new file or in place
    #[command(after_help = edit::EDIT_EXAMPLES)]
    Edit(Box<Edit>),
    /// One model over many files of safetensors, with their list
    #[command(after_help = edit::SHARD_EXAMPLES)]
    Shard(Box<Shard>),
    /// Several files, or the shards of a model, as one
    #[command(after_help = edit::MERGE_EXAMPLES)]
    Merge(Box<Merge>),
    /// Could opening it elsewhere run code, or give away source code? Nothing is executed
    #[command(
        after_help = "Examples:\n  weighbridge scan checkpoint.pdparams        every import of the pickle\n  \
                            weighbridge scan model/                     every file of a folder\n  \
                            weighbridge scan a.pt b.pt models/          several: each by itself, and the worst of them\n  \
                            weighbridge scan model/ --sarif > scan.sarif    for tools that gather findings\n  \
                            weighbridge scan --list-rules               every code, and what it means\n\n\
                            Exit codes: 0 clean, 1 something was found, 2 cannot be read at all, 3 a part could not be looked at."
    )]
    Scan(Scan),
    /// The versions in a folder of PyTorch-BigGraph checkpoints: what is there, whole, and current
    #[command(
        after_help = "Examples:\n  weighbridge checkpoint model/                        versions, snapshots, orphans\n  \
                            weighbridge checkpoint model/ --recover              the version file was lost or emptied\n  \
                            weighbridge checkpoint model/ --rollback 4           version 4 counts again\n  \
                            weighbridge checkpoint model/ --prune --keep 2       only the newest two, and what snapshots need\n  \
                            weighbridge checkpoint model/ --sweep all            remove what crashed runs left\n\n\
                            Exit codes: 0 the current version and all snapshots are whole, 1 they are not, 3 there is no version."
    )]
    Checkpoint(Store),
    /// The program that a model brings along: shown, stripped, its variables renamed
    #[command(after_help = "Examples:\n  weighbridge program inference.pdmodel\n  \
                            weighbridge program inference.pdmodel --list | less\n  \
                            weighbridge program inference.pdmodel --dot | dot -Tsvg > net.svg\n  \
                            weighbridge program inference.pdmodel --json | jq '.program.blocks[0].operators[].type'\n  \
                            weighbridge program model/ --strip source,unused --output small/\n  \
                            weighbridge program trained/ --strip all --outputs softmax_0.tmp_0 --output inference/\n  \
                            weighbridge program model/ --rename linear_0.w_0=head.w --output renamed/\n  \
                            weighbridge program inference.pdmodel --text > net.txt; weighbridge convert net.txt net.pdmodel")]
    Program(Program),
    /// Run a Paddle program that saves and loads, below one folder
    #[command(
        after_help = "Examples:\n  weighbridge run save.pdmodel --plan              which files it would read and write\n  \
                            weighbridge run save.pdmodel --folder model/\n  \
                            weighbridge run load.pdmodel --fetch weights.npz\n  \
                            weighbridge run scale.pdmodel --feed x=input.npy --feed y=net.npz:fc1.w\n\n\
                            Only feed, fetch, save, load, save_combine, load_combine, fill_constant, assign, cast\n\
                            and scale are known; a program with any other operator is refused as a whole."
    )]
    Run(Box<Run>),
    /// Do the main job on a small model that primitiv trained
    #[command(
        after_help = "Examples:\n  weighbridge demo                  into the folder weighbridge-demo\n  \
                            weighbridge demo /tmp/try         into another one"
    )]
    Demo(Demo),
    /// Print shell completions
    #[command(after_help = "Example:\n  weighbridge completions bash > /etc/bash_completion.d/weighbridge")]
    Completions(Completions),
    /// Print the manual page of the command or of one of its verbs
    #[command(after_help = "Examples:\n  weighbridge man | man -l -\n  weighbridge man convert | man -l -")]
    Man(Man),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Info {
    /// The files or folders; - is standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ls {
    /// The files or folders; - is standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Draw the names as a tree
    #[arg(long)]
    pub tree: bool,
    /// Show the byte ranges of each tensor: file, offset and length
    #[arg(long, visible_alias = "pieces", conflicts_with = "tree")]
    pub extents: bool,
    /// Sort by name, size (largest first) or dtype
    #[arg(long, value_name = "KEY")]
    pub sort: Option<Sort>,
    /// One line for each prefix of N name parts: tensors, elements and bytes
    #[arg(long, value_name = "N", conflicts_with_all = ["tree", "extents", "hash"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub group: Option<u16>,
    /// Add the SHA-256 of each tensor's elements; equal tensors have equal hashes in every format
    #[arg(long)]
    pub hash: bool,
    /// List only tensors whose name matches this pattern; may be repeated
    #[arg(long, visible_alias = "keep", value_name = "PATTERN")]
    pub select: Vec<String>,
    /// Leave out tensors whose name matches this pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub drop: Vec<String>,
    #[command(flatten)]
    pub input: Input,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// By name
    Name,
    /// By bytes, largest first
    Size,
    /// By type of elements
    Dtype,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Show {
    /// The file; - is standard input
    pub path: PathBuf,
    /// The tensor, as `ls` names it, with an optional slice in brackets; may be left out for the only tensor
    #[arg(value_name = "NAME[SLICE]")]
    pub name: Option<String>,
    /// Print all values, where the middle of large tensors would be left out
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Stats {
    /// The files or folders, - is standard input; then the tensor, as `ls` names it, or a pattern for several (* any
    /// characters): all if it is left out. The last of several arguments is a name where no such file exists
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Bins of the histogram
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub bins: u16,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Store {
    /// The folder: `checkpoint_path` of the configuration
    pub path: PathBuf,
    /// Where the version file is missing, empty or no number: let the highest complete version count
    #[arg(long)]
    pub recover: bool,
    /// With --recover, where no version is complete: begin anew at version 0
    #[arg(long, requires = "recover")]
    pub start_over: bool,
    /// Let this version count, which must be complete
    #[arg(long, value_name = "VERSION")]
    pub rollback: Option<u64>,
    /// With --rollback: remove the files of the versions after it
    #[arg(long, requires = "rollback")]
    pub delete_newer: bool,
    /// Make the snapshot epoch_N of the current version
    #[arg(long, value_name = "N")]
    pub preserve: Option<u64>,
    /// With --preserve: copies of the files, not links to them
    #[arg(long, requires = "preserve")]
    pub copies: bool,
    /// Remove old versions, but for the newest --keep ones and what snapshots need
    #[arg(long, requires = "keep")]
    pub prune: bool,
    /// How many versions --prune keeps
    #[arg(long, value_name = "N", requires = "prune", value_parser = keep)]
    pub keep: Option<usize>,
    /// Remove what crashed runs left: newer or older than the current version, temporary, or all of
    /// these except complete older versions, which are removed only where older is named
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    #[arg(value_parser = ["newer", "older", "temporary", "all"])]
    pub sweep: Vec<String>,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Program {
    /// The program, or a model that has one
    pub path: PathBuf,
    /// All blocks, variables and operators as text
    #[arg(long, group = "form")]
    pub list: bool,
    /// A graph for Graphviz
    #[arg(long, group = "form")]
    pub dot: bool,
    /// The text form of protobuf, which can be converted back to a program
    #[arg(long, group = "form")]
    pub text: bool,
    /// Take parts out and write the model anew, with the parameters that are left
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "output", help_heading = "Changes")]
    pub strip: Vec<StripPart>,
    /// With --strip training or all: cut the program down to these outputs
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "strip", help_heading = "Changes")]
    pub outputs: Vec<String>,
    /// Rename a variable in the program and its parameters; may be repeated
    #[arg(long, value_name = "OLD=NEW", requires = "output", value_parser = setting, help_heading = "Changes")]
    pub rename: Vec<(String, String)>,
    /// The folder, or the program file where there are no parameters, to write
    #[arg(short, long, value_name = "PATH", help_heading = "Changes")]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(short, long, help_heading = "Changes")]
    pub force: bool,
    /// Choose how it is written, such as prefix=inference; see `convert`
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, help_heading = "Changes")]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub input: Input,
}

/// What to take out of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StripPart {
    /// Source paths and lines of code
    Source,
    /// Operators that only training needs; the others are switched to inference
    Training,
    /// Gradient variables
    Gradients,
    /// Optimizer state, in the program and in the parameters
    State,
    /// Variables that no operator uses
    Unused,
    /// All of these
    All,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// The program, or the folder in which it stands
    #[arg(value_name = "PROGRAM")]
    pub path: PathBuf,
    /// The folder below which it reads and writes; the program's own if left out
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Give a variable the tensor of a file, or that of this name in a file; may be repeated
    #[arg(long, value_name = "NAME=FILE[:TENSOR]", value_parser = fed)]
    pub feed: Vec<(String, String)>,
    /// Write what the program fetches to this file; the extension names the format
    #[arg(long, value_name = "FILE")]
    pub fetch: Option<PathBuf>,
    /// Print what it would do, and do nothing
    #[arg(long, visible_alias = "dry-run")]
    pub plan: bool,
    /// Replace no file, whatever the program says
    #[arg(long)]
    pub no_replace: bool,
    /// Round to f16 and bf16 as that version of Paddle does: nearest, paddle-2.6 or paddle-3.3
    #[arg(long, value_name = "HOW", default_value = "paddle-2.6", value_parser = rounding)]
    pub rounding: Rounding,
    /// Memory for the tensors that it computes, all together
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub memory: u64,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Demo {
    /// The folder to write mlp.model, mlp.optimizer, mlp.safetensors and mlp.npz into
    #[arg(default_value = "weighbridge-demo")]
    pub folder: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Man {
    /// The verb; the command itself if left out
    pub verb: Option<String>,
}

/// A variable and the file that gives its value.
fn fed(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    pair.map(|(name, file)| (name.to_owned(), file.to_owned()))
        .ok_or_else(|| "a feed is written NAME=FILE or NAME=FILE:TENSOR".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_consistent() {
        Args::command().debug_assert();
    }
}
