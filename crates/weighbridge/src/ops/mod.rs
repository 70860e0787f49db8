//! Whole jobs: checkpoints in, reports out. One module each.
//!
//! - [`account`]: use of every byte of a checkpoint's files;
//! - [`convert()`] and [`plan`]: conversion to another format;
//! - [`mod@slice`]: slice syntax, such as `fc1.w[0:3, :]`;
//! - [`show`]: values as JSON;
//! - [`mod@stats`]: range, moments, oddities and a histogram;
//! - [`hash`]: SHA-256 of elements, the same in every format;
//! - [`Inputs`]: input files, protected from being overwritten by an output;
//! - [`mod@diff`]: differences of two checkpoints of any two formats;
//! - [`mod@edit`]: names, types, shapes and metadata by rules, into a new file or in place;
//! - [`mod@merge`]: several checkpoints, or the shards of one, as one; `shard`: one over many files;
//! - [`mod@info`]: summary of a checkpoint;
//! - [`verify`](mod@verify): integrity and consistency;
//! - [`mod@list`]: tensors, one row each; [`several`]: combined verdicts of several paths;
//! - `import`: edge lists into BigGraph's input folders;
//! - `evaluate`: ranks of the edges of a graph, by a PyTorch-BigGraph checkpoint;
//! - `neighbors`: nearest rows of a table;
//! - `versions`: versions in a PyTorch-BigGraph folder;
//! - [`values`]: option values such as sizes, types and pairs;
//! - `scan`: code that runs, or source code that leaks, when a file is loaded elsewhere;
//! - `seal`: signable manifest of the hashes of files and tensors;
//! - [`program`]: program beside the parameters, as text, JSON or a graph.
//!
//! Each job reads through the engine, in bounded memory for tensors of any size. They share `decode` (elements as numbers),
//! `parallel` (blocks and tensors on several threads) and `wide` (loops for wide registers).

pub mod account;
mod convert;
mod decode;
pub mod diff;
pub mod edit;
#[cfg(feature = "biggraph")]
pub mod evaluate;
pub mod hash;
#[cfg(feature = "biggraph")]
pub mod import;
#[cfg(feature = "usearch")]
pub mod index;
pub mod info;
mod inputs;
pub mod list;
pub mod merge;
#[cfg(feature = "biggraph")]
pub mod neighbors;
mod parallel;
pub mod program;
#[cfg(feature = "scan")]
pub mod scan;
#[cfg(feature = "seal")]
pub mod seal;
pub mod several;
#[cfg(feature = "safetensors")]
pub mod shard;
pub mod show;
pub mod slice;
pub mod stats;
pub mod values;
pub mod verify;
#[cfg(feature = "biggraph")]
pub mod versions;
mod wide;
mod worded;

#[cfg(feature = "onnx")]
pub use convert::GraphCheck;
pub(crate) use convert::prepare_opened;
pub use convert::{
    Changes, ConvertOptions, Written, convert, plan, plan_checkpoint, prepare, save, target_form,
};
pub use inputs::Inputs;

use crate::text::json_number as number_json;
