//! The arguments, declared once: parser, help, completions and manual come from here.

mod convert;
mod diff;
mod edit;
mod import;
mod input;
mod ranking;
mod scan;
mod seal;
mod verify;

pub(crate) use crate::progress::ProgressBar;
pub(crate) use convert::{Convert, Versions};
pub(crate) use diff::Diff;
pub(crate) use edit::{Edit, InPlaceMode, Merge, Prefer, Shard, Writing};
pub(crate) use import::Import;
pub(crate) use input::Input;
#[cfg(feature = "usearch")]
pub(crate) use ranking::Index;
pub(crate) use ranking::{Evaluate, Neighbors, Rank};
pub(crate) use scan::Scan;
pub(crate) use seal::Seal;
use std::sync::Arc;
pub(crate) use verify::Verify;
use weighbridge::engine::Progress;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args as ClapArgs, Command, Parser, Subcommand, ValueEnum};
use std::ffi::OsStr;
use std::path::PathBuf;
use weighbridge::ops::values::{cast_target as dtype, positive as keep, rounding, setting, size};
use weighbridge::tensor::Rounding;

const EXAMPLES: &str = "\
Examples:
  weighbridge demo                                 try it on small models that ship with the command
  weighbridge ls model.pt                          list the tensors
  weighbridge show model.pt 'fc1.weight[0:3,:]'    print a slice
  weighbridge diff old.pt new.safetensors          compare two checkpoints
  weighbridge scan download.pt                     check for code before loading it elsewhere
  weighbridge convert model.pt model.safetensors   convert; the extension selects the format

Exit codes: 0 done, 1 difference, finding or lost tensor, 2 usage error or failure,
3 could not tell, 130 interrupted.";

/// The last line of `-h`.
const MORE: &str = "Use --help for details and examples.";

/// Inspect, check, compare and convert model files without their frameworks
///
/// Reads the files of PyTorch, DeepSpeed, safetensors, numpy, HDF5, Keras, TensorFlow (also Lite), OpenVINO, Core ML, ncnn, Flax, Orbax, ONNX, GGUF, MXNet, Caffe, Darknet, joblib, Parquet,
/// Arrow, word2vec, primitiv, PaddlePaddle and PyTorch-BigGraph. Nothing in a file is executed.
#[derive(Debug, Parser)]
// Help and usage show this name, whatever the program file is called.
#[command(name = "weighbridge", bin_name = "weighbridge", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Hides options that have no effect in a verb. They are accepted, so that scripts can pass the same options to all verbs.
fn hide(names: &'static [&'static str]) -> impl FnMut(Arg) -> Arg {
    |arg| if names.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg }
}

/// Options of every verb.
#[derive(Debug, ClapArgs)]
pub(crate) struct Common {
    /// Print one JSON document
    #[arg(long, global = true, help_heading = "Global")]
    pub json: bool,
    /// When to use colour: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    #[arg(hide_default_value = true, help_heading = "Global")]
    pub color: Color,
    /// Hide the progress bar
    #[arg(short, long, global = true, help_heading = "Global")]
    pub quiet: bool,
    /// Abort after SECONDS and remove partial output
    #[arg(long, global = true, value_name = "SECONDS", value_parser = whole::<u32>(1, None))]
    #[arg(help_heading = "Global")]
    pub timeout: Option<u32>,
}

impl Common {
    /// The progress bar of one piece of work, which Ctrl-C cancels.
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

/// Accepts any text; shells complete it to the ids of formats.
#[derive(Debug, Clone)]
pub(crate) struct FormatName;

impl TypedValueParser for FormatName {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(weighbridge::formats::ALL.iter().map(|format| PossibleValue::new(format.info().id))))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show format, size, parameter count and metadata
    #[command(visible_alias = "inspect", after_help = MORE)]
    #[command(after_long_help = "Examples:\n  weighbridge info model.pt\n  \
                            weighbridge info *.safetensors                 several files, one report each\n  \
                            weighbridge info cut.safetensors --salvage     the intact part of a damaged file")]
    Info(Info),
    /// List the tensors: name, dtype, shape, bytes
    #[command(after_help = MORE)]
    #[command(after_long_help = "Examples:\n  weighbridge ls model.pt\n  weighbridge ls model.pt --tree\n  \
                            weighbridge ls model.pt --sort size\n  \
                            weighbridge ls model.pt --group 2             totals of encoder.layer0, encoder.layer1, ...\n  \
                            weighbridge ls model.pt --select 'encoder.*' --drop '*.bias'\n  \
                            weighbridge ls model.safetensors --hash --json | jq '.tensors[].sha256'")]
    Ls(Ls),
    /// Print the values of a tensor or a slice
    #[command(visible_aliases = ["cat", "head"], after_help = MORE)]
    #[command(after_long_help = "Examples:\n  weighbridge show model.pt fc1.weight\n  \
                            weighbridge show model.pt 'fc1.weight[0:3,:]'\n  \
                            weighbridge show net.model 'fc1.w/Adam.m1[-1]'       optimizer state of a primitiv model\n  \
                            weighbridge show ckpt/ \"embeddings.user['alice']\"  a row by its name\n  \
                            weighbridge show model.npz '[\"a.b\",\"w\"][0]'        a path whose parts contain dots")]
    Show(Show),
    /// Show minimum, maximum, mean, zeros, NaN and a histogram
    #[command(
        override_usage = "weighbridge stats [OPTIONS] <PATH>... [NAME]",
        after_help = MORE,
        after_long_help = "Examples:\n  weighbridge stats model.pt                 all tensors, one line each\n  \
                            weighbridge stats model.pt fc1.weight      one tensor with its histogram\n  \
                            weighbridge stats model.pt 'fc*'           tensors that match a pattern"
    )]
    Stats(Stats),
    /// Compare two checkpoints of any formats
    #[command(
        visible_alias = "compare",
        after_help = MORE,
        after_long_help = "Examples:\n  weighbridge diff model.pt model.safetensors          did the conversion keep everything?\n  \
                            weighbridge diff a.pt b.pt --atol 1e-6 --rtol 1e-5   equal within a tolerance?\n  \
                            weighbridge diff a.pdparams b.pt --rename enc=encoder\n  \
                            weighbridge diff pd.safetensors pt.safetensors --rules paddle-to-torch.toml\n  \
                            weighbridge diff full.pt half.pt --ignore-dtype --rtol 1e-3\n  \
                            weighbridge diff model/ model/ --at 4 --right-at 6   two versions of a BigGraph checkpoint\n  \
                            weighbridge diff old.pt new.pt --markdown            for a pull request\n\n\
                            Exit codes: 0 equal or within the tolerance, 1 different, 2 a side cannot be opened,\n\
                            3 could not tell: a tensor cannot be read or was skipped."
    )]
    Diff(Box<Diff>),
    /// Check integrity: structure, checksums, trailing data
    #[command(visible_alias = "check", after_help = MORE)]
    #[command(after_long_help = "Examples:\n  weighbridge verify model.npz\n  \
                            weighbridge verify *.safetensors --json          several files, one report each\n  \
                            weighbridge verify model.pt --values             also check for NaN, infinities and empty rows\n  \
                            weighbridge verify model.pt --deny-nonfinite     for CI: exit code 1 if a value is NaN or infinite\n  \
                            weighbridge verify net.pdiparams --program net.pdmodel\n  \
                            weighbridge verify model.pt --manifest model.pt.manifest.json   unchanged since it was sealed?\n  \
                            weighbridge verify net.npz --manifest net.model.manifest.json --tensors-only   the same tensors?\n  \
                            weighbridge verify model.pt --account            what every byte range is used for\n\n\
                            Exit codes: 0 sound, 1 unsound, 2 unreadable, 3 could not tell.")]
    Verify(Verify),
    /// Check whether loading a file elsewhere would run code
    #[command(
        after_help = MORE,
        after_long_help = "Nothing in the file is executed. Leaked source code and suspicious paths are reported too.\n\nExamples:\n  weighbridge scan checkpoint.pt              every import of the pickle\n  \
                            weighbridge scan model/                     every file of a folder\n  \
                            weighbridge scan a.pt b.pt models/          several paths, one report each\n  \
                            weighbridge scan model/ --sarif > scan.sarif    for code scanning tools\n  \
                            weighbridge scan --list-rules               every rule with its meaning\n\n\
                            Exit codes: 0 no errors (there may be warnings), 1 errors, 2 unreadable, 3 a part could not be checked.",
        mut_args(hide(&["names", "salvage", "at", "entities", "config", "dequantize", "program"]))
    )]
    Scan(Scan),
    /// Convert to another format, all or nothing
    #[command(after_help = MORE)]
    #[command(after_long_help = "Examples:\n  weighbridge convert model.pt model.safetensors\n  \
                            weighbridge convert hf.safetensors model.npz --cast f32\n  \
                            weighbridge convert bert/ bert-safe/ --copy-others         for AutoModel.from_pretrained\n  \
                            weighbridge convert model.pt enc.safetensors --select 'encoder.*' --rename encoder=\n  \
                            weighbridge convert model.pt model.safetensors --plan      show the files that would be written\n  \
                            weighbridge convert cut.npz rest.npz --salvage             the intact tensors of a damaged file\n  \
                            weighbridge convert new.npz net.keras --like old.keras     new weights for a Keras model\n  \
                            cat model.pt | weighbridge convert - - --to safetensors > model.safetensors\n\n\
                            primitiv:\n  \
                            weighbridge convert net.model net.safetensors              and back: the same file, byte for byte\n  \
                            weighbridge convert net.model net.npz --no-state           without the optimizer state\n\n\
                            PaddlePaddle:\n  \
                            weighbridge convert model/ net.safetensors                 parameters with their names\n  \
                            weighbridge convert net.safetensors out/ --to paddle --kind inference --program model/model.pdmodel\n  \
                            weighbridge convert model/ one/ --to paddle --kind separate            .pdiparams to one file per tensor\n  \
                            weighbridge convert one/ old/ --to paddle --kind inference --set era=1   to __model__ and __params__\n  \
                            weighbridge convert best.pdparams net.pdiparams --program net.pdmodel    .pdparams to .pdiparams\n\n\
                            PyTorch-BigGraph:\n  \
                            weighbridge convert model/ user.parquet --select embeddings.user --no-state    a table with row names\n  \
                            weighbridge convert model/ more/ --to biggraph --set partitions=8              repartition\n  \
                            weighbridge convert user.parquet init/ --to biggraph --kind init --entities entities/    rows by name\n  \
                            weighbridge convert model/ grown/ --to biggraph --grow user=new.txt --set entities=yes")]
    Convert(Box<Convert>),
    /// Rename, select, cast and transpose tensors; edit metadata
    #[command(after_help = MORE, after_long_help = edit::EDIT_EXAMPLES)]
    Edit(Box<Edit>),
    /// Split a model into safetensors shards with an index
    #[command(
        after_help = MORE,
        after_long_help = edit::SHARD_EXAMPLES,
        mut_args(hide(&["to", "kind"]))
    )]
    Shard(Box<Shard>),
    /// Merge shards or several files into one
    #[command(after_help = MORE, after_long_help = edit::MERGE_EXAMPLES)]
    Merge(Box<Merge>),
    /// Write a manifest with the hashes of all files and tensors
    #[command(
        after_help = MORE,
        after_long_help = "Examples:\n  weighbridge seal model.safetensors             writes model.safetensors.manifest.json\n  \
                            weighbridge seal model/                        all files of a folder: model.manifest.json\n  \
                            weighbridge seal model.pt -o - | jq .subject\n  \
                            weighbridge verify model.pt --manifest model.pt.manifest.json\n\n\
                            A manifest is not a signature: sign it with a signing tool, since anyone who can change\n\
                            the model can change the manifest."
    )]
    Seal(Box<Seal>),
    /// Show the program (graph) of a Paddle or ONNX model; for Paddle, also strip it or rename its variables
    #[command(after_help = MORE)]
    #[command(after_long_help = "Examples:\n  weighbridge program inference.pdmodel\n  \
                            weighbridge program inference.pdmodel --list | less\n  \
                            weighbridge program inference.pdmodel --dot | dot -Tsvg > net.svg\n  \
                            weighbridge program inference.pdmodel --json | jq '.program.blocks[0].operators[].type'\n  \
                            weighbridge program model/ --strip source,unused --output small/\n  \
                            weighbridge program trained/ --strip all --outputs softmax_0.tmp_0 --output inference/\n  \
                            weighbridge program model/ --rename linear_0.w_0=head.w --output renamed/\n  \
                            weighbridge program inference.pdmodel --text > net.txt; weighbridge convert net.txt net.pdmodel")]
    Program(Program),
    /// Run a Paddle program that only saves and loads tensors
    #[command(
        after_help = MORE,
        after_long_help = "Reads and writes below one folder. The operators feed, fetch, save, load, save_combine, load_combine,\n\
                            fill_constant, assign, cast and scale are supported. A program with any other operator is refused\n\
                            before it starts.\n\n\
                            Examples:\n  weighbridge run save.pdmodel --plan              files it would read and write\n  \
                            weighbridge run save.pdmodel --folder model/\n  \
                            weighbridge run load.pdmodel --fetch weights.npz\n  \
                            weighbridge run scale.pdmodel --feed x=input.npy --feed y=net.npz:fc1.w",
        mut_args(hide(&["at", "entities", "config", "names", "follow_virtual", "dequantize", "program"]))
    )]
    Run(Box<Run>),
    /// List, recover and prune the versions of a BigGraph checkpoint folder
    #[command(
        after_help = MORE,
        after_long_help = "Examples:\n  weighbridge checkpoint model/                        versions, snapshots, orphaned files\n  \
                            weighbridge checkpoint model/ --recover              after the version file was lost or emptied\n  \
                            weighbridge checkpoint model/ --rollback 4           make version 4 the current one\n  \
                            weighbridge checkpoint model/ --prune --keep 2       keep the newest two and what snapshots need\n  \
                            weighbridge checkpoint model/ --sweep all            remove the files of crashed runs\n\n\
                            Exit codes: 0 the current version and all snapshots are complete, 1 one is not, 3 there is no version.",
        mut_args(hide(&["from", "lenient", "salvage", "at", "names", "follow_virtual", "dequantize", "program"]))
    )]
    Checkpoint(Store),
    /// Import edge lists into the input folders of PyTorch-BigGraph
    #[command(after_help = MORE, after_long_help = import::IMPORT_EXAMPLES)]
    Import(Box<Import>),
    /// Rank the edges of a graph by a trained BigGraph checkpoint: MRR, hits, mean rank, AUC
    #[command(
        after_help = MORE,
        after_long_help = ranking::EVALUATE_EXAMPLES,
        mut_args(hide(&["from", "salvage", "names", "follow_virtual", "dequantize", "program"]))
    )]
    Evaluate(Box<Evaluate>),
    /// Find the nearest rows of a table, or what a BigGraph relation predicts
    #[command(after_help = MORE, after_long_help = ranking::NEIGHBORS_EXAMPLES)]
    Neighbors(Box<Neighbors>),
    /// Write an approximate index of a table for usearch
    #[cfg(feature = "usearch")]
    #[command(after_help = MORE, after_long_help = ranking::INDEX_EXAMPLES)]
    Index(Box<Index>),
    /// Score one edge of a BigGraph relation, and rank it among all entities
    #[command(
        after_help = MORE,
        after_long_help = ranking::RANK_EXAMPLES,
        mut_args(hide(&["from", "salvage", "names", "follow_virtual", "dequantize", "program"]))
    )]
    Rank(Box<Rank>),
    /// Try the main verbs on small models that ship with the command
    #[command(
        after_help = "Examples:\n  weighbridge demo                  writes into the folder weighbridge-demo\n  \
                            weighbridge demo /tmp/try         writes into another folder"
    )]
    Demo(Demo),
    /// Print shell completions
    #[command(after_help = "Example:\n  weighbridge completions bash > /etc/bash_completion.d/weighbridge")]
    Completions(Completions),
    /// Print the manual page of the command or of a verb
    #[command(after_help = "Examples:\n  weighbridge man | man -l -\n  weighbridge man convert | man -l -")]
    Man(Man),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Info {
    /// Files or folders; - is standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ls {
    /// Files or folders; - is standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Draw the names as a tree
    #[arg(long)]
    pub tree: bool,
    /// Show the byte ranges of each tensor: file, offset, length
    #[arg(long, visible_alias = "pieces", conflicts_with = "tree")]
    pub extents: bool,
    /// Sort by name, size (largest first) or dtype
    #[arg(long, value_name = "KEY")]
    pub sort: Option<Sort>,
    /// Sum up tensors that share the first N parts of their names
    #[arg(long, value_name = "N", conflicts_with_all = ["tree", "extents", "hash"])]
    #[arg(value_parser = whole::<u16>(1, Some(65535)))]
    pub group: Option<u16>,
    /// Show the SHA-256 of each tensor's elements
    ///
    /// Equal tensors have equal hashes in every format and storage order.
    #[arg(long)]
    pub hash: bool,
    /// List only tensors that match PATTERN (* and ?); may be repeated
    #[arg(long, visible_alias = "keep", value_name = "PATTERN")]
    pub select: Vec<String>,
    /// Skip tensors that match PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub drop: Vec<String>,
    #[command(flatten)]
    pub input: Input,
}

/// Sort order of a list.
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
    /// File or folder; - is standard input
    pub path: PathBuf,
    /// Tensor name, as listed by `ls`, and an optional slice in brackets
    ///
    /// Not needed when the file has one tensor.
    #[arg(value_name = "NAME[SLICE]")]
    pub name: Option<String>,
    /// Print all values instead of summarizing large tensors
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Stats {
    /// Files or folders, then optionally a tensor name or pattern; - is standard input
    ///
    /// The last argument is a tensor name or pattern when no file of that name exists.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Number of histogram bins
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u16>(1, Some(1000)))]
    pub bins: u16,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Store {
    /// Checkpoint folder: `checkpoint_path` of the configuration
    pub path: PathBuf,
    /// Make the highest complete version current after the version file was lost or emptied
    #[arg(long)]
    pub recover: bool,
    /// With --recover, when no version is complete: start again at version 0
    #[arg(long, requires = "recover")]
    pub start_over: bool,
    /// Make this complete version the current one
    #[arg(long, value_name = "VERSION", value_parser = whole::<u64>(0, None))]
    pub rollback: Option<u64>,
    /// With --rollback: remove the files of newer versions
    #[arg(long, requires = "rollback")]
    pub delete_newer: bool,
    /// Take a snapshot `epoch_N` of the current version
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, None))]
    pub preserve: Option<u64>,
    /// With --preserve: copy the files instead of linking them
    #[arg(long, requires = "preserve")]
    pub copies: bool,
    /// Remove old versions; the newest --keep versions and the files of snapshots stay
    #[arg(long, requires = "keep")]
    pub prune: bool,
    /// Number of versions that --prune keeps
    #[arg(long, value_name = "N", requires = "prune", value_parser = keep)]
    pub keep: Option<usize>,
    /// Remove files of crashed runs: newer, older, temporary or all
    ///
    /// `newer` and `older` are relative to the current version. `all` keeps complete older versions;
    /// `older` removes them too.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    #[arg(value_parser = ["newer", "older", "temporary", "all"])]
    pub sweep: Vec<String>,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Program {
    /// Program file, or a model folder that contains one
    pub path: PathBuf,
    /// List all blocks, variables and operators
    #[arg(long, group = "form")]
    pub list: bool,
    /// Print a graph for Graphviz
    #[arg(long, group = "form")]
    pub dot: bool,
    /// Print the text form of protobuf, which `convert` reads back
    #[arg(long, group = "form")]
    pub text: bool,
    /// List the operator types, and whether each can be exported to ONNX
    #[arg(long, group = "form", conflicts_with = "output")]
    pub ops: bool,
    /// Remove parts of the program and write the model again
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "output", help_heading = "Changes")]
    pub strip: Vec<StripPart>,
    /// With --strip training or all: keep only the operators these outputs need
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "strip", help_heading = "Changes")]
    pub outputs: Vec<String>,
    /// Rename a variable in the program and the parameters; may be repeated
    #[arg(long, value_name = "OLD=NEW", requires = "output", value_parser = setting, help_heading = "Changes")]
    pub rename: Vec<(String, String)>,
    /// Folder to write, or program file when there are no parameters
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(short, long, help_heading = "Output")]
    pub force: bool,
    /// Format setting, such as prefix=inference; see `convert`
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, help_heading = "Output")]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub input: Input,
}

/// Parts of a program that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StripPart {
    /// Paths and lines of source code
    Source,
    /// Operators that only training needs; the rest is switched to inference
    Training,
    /// Gradient variables
    Gradients,
    /// Optimizer state, in the program and in the parameters
    State,
    /// Variables that no operator uses
    Unused,
    /// All parts above
    All,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// Program file or its folder
    #[arg(value_name = "PROGRAM")]
    pub path: PathBuf,
    /// Folder to read and write in (default: the folder of the program)
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Feed a variable with a tensor from a file; may be repeated
    #[arg(long, value_name = "NAME=FILE[:TENSOR]", value_parser = fed)]
    pub feed: Vec<(String, String)>,
    /// Write the fetched tensors to FILE; the extension selects the format
    #[arg(long, value_name = "FILE")]
    pub fetch: Option<PathBuf>,
    /// Print the steps without running them
    #[arg(long, visible_alias = "dry-run")]
    pub plan: bool,
    /// Never replace a file
    #[arg(long)]
    pub no_replace: bool,
    /// Rounding to f16 and bf16: nearest, paddle-2.6 or paddle-3.3
    #[arg(long, value_name = "HOW", default_value = "paddle-2.6", value_parser = rounding)]
    pub rounding: Rounding,
    /// Memory for computed tensors
    #[arg(long, help_heading = "Limits", value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub memory: u64,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Demo {
    /// Folder to write the models into
    #[arg(default_value = "weighbridge-demo")]
    pub folder: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Completions {
    /// Shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Man {
    /// Verb (default: the whole command)
    pub verb: Option<String>,
}

/// Returns a parser of whole numbers from `low` to `high`, or of those that fit.
pub(crate) fn whole<N: TryFrom<i128>>(
    low: i128,
    high: Option<i128>,
) -> impl Fn(&str) -> Result<N, String> + Clone {
    move |text| {
        let number: i128 = text.parse().map_err(|_| "expected a whole number".to_owned())?;
        let fits = number >= low && high.is_none_or(|high| number <= high);
        match (N::try_from(number), high) {
            (Ok(number), _) if fits => Ok(number),
            (_, Some(high)) => Err(format!("expected {low} to {high}")),
            (_, None) if number < low => Err(format!("expected {low} or more")),
            (_, None) => Err("the number is too large".to_owned()),
        }
    }
}

/// Parses a tolerance.
pub(crate) fn real(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a number such as 1e-5".to_owned())
}

/// Parses a variable and the file that feeds it.
fn fed(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    pair.map(|(name, file)| (name.to_owned(), file.to_owned()))
        .ok_or_else(|| "expected NAME=FILE or NAME=FILE:TENSOR".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn number_parsers_state_the_expected_values() {
        let group = whole::<u16>(1, Some(65535));
        assert_eq!(group("65535"), Ok(65535));
        for text in ["0", "65536", "-5"] {
            assert_eq!(group(text), Err("expected 1 to 65535".to_owned()));
        }
        let threads = whole::<usize>(0, None);
        assert_eq!(threads("x"), Err("expected a whole number".to_owned()));
        assert_eq!(threads("-1"), Err("expected 0 or more".to_owned()));
        assert_eq!(threads("99999999999999999999"), Err("the number is too large".to_owned()));
        assert_eq!(real("1e-5"), Ok(1e-5));
        assert_eq!(real("small"), Err("expected a number such as 1e-5".to_owned()));
    }

    #[test]
    fn the_declaration_is_consistent() {
        Args::command().debug_assert();
    }
}
