//! What can be done with checkpoints: a room each, a file or a folder, checkpoints in and reports out.
//!
//! - [`account`]: what every byte of its files is for;
//! - [`convert`] and [`plan`]: to another form;
//! - [`mod@slice`]: what is written after a name, such as `fc1.w[0:3, :]`;
//! - [`show`]: values as JSON;
//! - [`stats`]: range, moments, oddities and a histogram;
//! - [`hash`]: SHA-256 of the elements, the same in every format;
//! - [`Inputs`]: the files that are read, none of which an output may take the place of;
//! - [`mod@diff`]: two checkpoints of any two formats, and how far their values are apart;
//! - [`mod@edit`]: names, types, shapes and metadata by rules, into a new file or in place;
//! - [`mod@merge`]: several checkpoints, or the shards of one, as one; [`mod@shard`]: one over many files;
//! - [`info`]: the checkpoint as a whole;
//! - [`verify`](mod@verify): is it whole and consistent, and what is every byte for;
//! - [`mod@list`]: its tensors, a row each; [`several`]: what several paths come to;
//! - [`mod@versions`]: the versions in a folder of PyTorch-BigGraph;
//! - [`values`]: sizes, types and pairs as people write them;
//! - [`scan`](mod@scan): would opening it elsewhere run code or give away source code;
//! - [`mod@seal`]: the hashes of files and tensors as a list that can be signed, and held against a model;
//! - [`program`]: the program beside the parameters, as text, JSON or a graph.
//!
//! Each reads through the engine, in bounded memory whatever the size of the tensor. They share `decode` (elements as numbers to
//! compute with), `parallel` (blocks and tensors by several threads) and `wide` (loops for wide registers).

pub mod account;
mod convert;
mod decode;
pub mod diff;
pub mod edit;
pub mod hash;
pub mod info;
mod inputs;
pub mod list;
pub mod merge;
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

pub(crate) use convert::prepare_opened;
pub use convert::{
    Changes, ConvertOptions, Written, convert, plan, plan_checkpoint, prepare, save, target_form,
};
pub use inputs::Inputs;

use crate::text::json_number as number_json;
