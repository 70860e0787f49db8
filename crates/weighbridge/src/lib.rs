//! Weighbridge opens the model files of machine-learning frameworks without those frameworks.
//! It lists, checks, compares, edits and converts their tensors.
//!
//! # Concept
//!
//! **A checkpoint is an index of named tensors over byte ranges.**
//!
//! | step | what happens |
//! | --- | --- |
//! | [`open()`] | a source becomes a [`Checkpoint`], in a [`Model`]: headers and length prefixes are read, never tensor data |
//! | change | the index is changed: select, drop, rename, cast; no tensor data moves ([`ops::Changes`]) |
//! | plan | the index becomes a [`plan::WritePlan`] of all files, segments and losses; nothing is written |
//! | run | the [`engine`] writes temporary files, in parallel and in bounded memory |
//! | commit | the files are synced and renamed to the target, all or none |
//!
//! A format consists of a reader, which returns an index, and a writer, which returns a plan. Everything else is shared by all
//! formats.
//!
//! # An example
//!
//! ```
//! # fn main() -> weighbridge::Result<()> {
//! # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
//! # let folder = tempfile::tempdir().unwrap();
//! # let target = folder.path().join("xor.safetensors");
//! use weighbridge::tensor::{DType, Order};
//!
//! let model = weighbridge::open(&path)?;
//! let weights = model.tensor("w1")?;
//! assert_eq!(weights.shape(), [8, 2]);
//! let values: Vec<f32> = weights.read()?;    // row-major, although the file is column-major
//! let rows = weights.slice((0..3, ..))?.to_bytes(Order::Row)?;
//! assert_eq!((values.len(), rows.len()), (16, 24));
//!
//! model.convert(&target).cast(DType::F16).run()?;
//! assert_eq!(weighbridge::open(&target)?.tensor("w1")?.dtype(), DType::F16);
//! # Ok(())
//! # }
//! ```
//!
//! # Formats
//!
//! | format | read | written | contents |
//! | --- | --- | --- | --- |
//! | [`primitiv`](formats::primitiv) | yes | yes | Shape, Tensor, Parameter, Model and Optimizer files of the primitiv toolkit |
//! | [`paddle`](formats::paddle) | yes | yes | PaddlePaddle, all versions: programs, tensor streams, pickled states |
//! | [`biggraph`](formats::biggraph) | yes | yes | PyTorch-BigGraph: checkpoints, edges, entities, configurations |
//! | [`safetensors`](formats::safetensors) | yes | yes | one file, or shards with an index |
//! | [`npy`](formats::npy) | yes | yes | one array, versions 1 to 3; a folder of them |
//! | [`npz`](formats::npz) | yes | yes | arrays in a zip archive, stored or deflated |
//! | [`torch`](formats::torch) | yes | yes | files of `torch.save`; the layout before PyTorch 1.6 is read only |
//! | [`torch::Dcp`](formats::torch::Dcp) | yes | yes | folders of `torch.distributed.checkpoint` |
//! | [`torch::DeepSpeed`](formats::torch::DeepSpeed) | yes | no | folders of DeepSpeed, ZeRO stages 0 to 3, joined over ranks |
//! | [`onnx`](formats::onnx) | yes | yes | ONNX models, with external data; exports of Paddle programs |
//! | [`gguf`](formats::gguf) | yes | yes | GGUF models, with quantized tensors; shards are read |
//! | [`mxnet`](formats::mxnet) | yes | yes | parameters of MXNet and Gluon, with their symbol |
//! | [`caffe`](formats::caffe) | yes | no | weights, networks and training states of Caffe |
//! | [`darknet`](formats::darknet) | yes | no | weights of Darknet (YOLO) with their network |
//! | [`tensorflow`](formats::tensorflow) | yes | checkpoints | checkpoints, SavedModels, frozen graphs |
//! | [`tflite`](formats::tflite) | yes | no | models of TensorFlow Lite |
//! | [`openvino`](formats::openvino) | yes | no | models of OpenVINO: IR 10 and 11 |
//! | [`coreml`](formats::coreml) | yes | no | models and packages of Core ML |
//! | [`ncnn`](formats::ncnn) | yes | no | networks of ncnn with their weights |
//! | [`flax`](formats::flax) | yes | yes | Flax: trees of arrays in MessagePack, one file or shards |
//! | `orbax` | yes | no | Orbax: folders of arrays in OCDBT or Zarr |
//! | [`joblib`](formats::joblib) | yes | no | dumps of joblib, pickled scikit-learn estimators |
//! | [`hdf5`](formats::hdf5) | yes | yes | datasets in groups |
//! | [`parquet`](formats::parquet) | yes | yes | a table in row groups |
//! | [`arrow`](formats::arrow) | yes | yes | a table as an Arrow file, also called Feather |
//! | [`tsv`](formats::tsv) | yes | yes | a table as text, as written by the exporter of BigGraph |
//! | [`word2vec`](formats::word2vec) | yes | yes | word vectors, as text or binary |
//!
//! # Features
//!
//! Each format is a feature: `primitiv`, `safetensors`, `numpy` (npy and npz), `torch`, `hdf5`, `tables` (Parquet, Arrow, text, word
//! vectors), `paddle`, `onnx`, `gguf`, `mxnet`, `caffe`, `darknet`, `tensorflow`, `tflite`, `openvino`, `coreml`, `ncnn`, `flax` (with Orbax), `joblib` and `biggraph`. So are `scan`, `seal`, `exec` (running Paddle programs), `rules` (edit rules in files, and
//! renames by globs and regular expressions) and `wide` (loops for AVX2 and AVX-512). All are on by default. `tract` (runs exported
//! ONNX graphs) and `usearch` (approximate indexes of tables) are not. Converting, comparing,
//! checking and printing are always included. A format whose feature is off is reported as unknown. With only `primitiv`,
//! `safetensors` and `numpy`, a build has 43 crates, including those of this workspace, and no C code.
//!
//! # Process-wide state
//!
//! The library changes no process-wide state by itself. Two functions do so on request: [`guard_maps`] installs a SIGBUS handler,
//! so that files are mapped instead of read. [`quiet_panics`] installs a panic hook that hides panics that become errors.
//! Decompressed blocks are cached under the [`Limits`] of the opened files.
//!
//! # Where to start
//!
//! - [`open()`] returns a [`Model`]: tensors with typed values, and conversions.
//! - [`ops`] contains complete operations: convert, diff, edit, verify, scan, stats, merge.
//! - [`formats`] contains the formats, and opens a file as a plain [`Checkpoint`].
//! - [`engine`] reads tensors and writes plans.
//!
//! A program can add its own format to a [`Registry`](formats::Registry): `registry().clone().with(&Own)`. That registry opens
//! and plans files of all its formats. The functions in [`ops`] support only the formats of this build.
//!
//! The other modules are re-exports of separate crates: `weighbridge-core`, `weighbridge-io`, the containers,
//! `weighbridge-format` (the traits of formats), `weighbridge-scan`, and one for each format. A program that needs a single
//! format can use the crate of that format.
//!
//! # Untrusted files
//!
//! Nothing in a file is executed or trusted. A size from a file is checked against the length of the file and the [`Limits`]
//! before any allocation or read. Malformed input returns an [`Error`] with its location, never a panic.

pub mod containers;
pub mod formats;
mod model;
pub mod ops;
#[doc(no_inline)]
pub use formats::OpenOptions;
pub use model::{Conversion, Model, Scalar, TensorSlice, TensorView, open, open_with};
#[cfg(feature = "biggraph")]
#[doc(no_inline)]
pub use weighbridge_biggraph::store;
#[doc(no_inline)]
pub use weighbridge_core::{
    Budget, Checkpoint, Error, ErrorCode, FindingCode, Kind, Limits, LossCode, NoteCode, Result, TensorEntry,
    check, checkpoint, checksum, error, finding, json, limits, phrase, plan, tensor, text, topology,
};
#[doc(no_inline)]
pub use weighbridge_io::{engine, guard_maps, quiet_panics, source};
#[cfg(any(feature = "torch", feature = "paddle", feature = "biggraph", feature = "scan"))]
pub use weighbridge_pickle as pickle;
#[cfg(feature = "scan")]
pub use weighbridge_scan as scan;
