//! Fuzz targets.

mod detect;
mod export;
mod folder;
mod open;
mod pickle;
mod plan;

use crate::seeds::{Seed, seeds};

/// Outcome of an input that caused no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Opened.
    Opened,
    /// Opened with `lenient` only.
    OpenedLeniently,
    /// Refused with an error.
    Refused,
}

/// A fuzz target: accepts any bytes.
pub struct Target {
    /// Name; the id for a format.
    pub name: &'static str,
    /// Folders of `testdata` with the seeds.
    pub folders: &'static [&'static str],
    /// Extensions of the seeds; empty for all files.
    pub extensions: &'static [&'static str],
    /// Weight of the target in a campaign.
    pub share: u64,
    /// Processes an input; panics on a wrong result.
    run: fn(&'static str, &[u8]) -> Outcome,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// Processes an input.
    ///
    /// # Panics
    /// If the library panics or returns a wrong result.
    pub fn feed(&self, bytes: &[u8]) -> Outcome {
        (self.run)(self.name, bytes)
    }

    /// Reads the seeds of this target.
    pub fn seeds(&self) -> Vec<Seed> {
        seeds(self.folders, self.extensions)
    }
}

const ALL: &[&str] = &[
    "primitiv/good",
    "safetensors/good",
    "npy/good",
    "npz/good",
    "torch/good",
    "dcp/good",
    "deepspeed/good",
    "hdf5/good",
    "joblib/good",
    "biggraph/alt",
    "onnx/good",
    "gguf/good",
    "mxnet/good",
    "caffe/good",
    "darknet/good",
    "tensorflow/good",
    "tflite/good",
    "openvino/good",
    "coreml/good",
    "ncnn/good",
    "flax/good",
    "paddle/good",
    "pickle/good",
    "tables",
];

const fn format(
    name: &'static str,
    folders: &'static [&'static str],
    extensions: &'static [&'static str],
    share: u64,
) -> Target {
    Target { name, folders, extensions, share, run: open::run }
}

/// All targets.
pub static TARGETS: &[Target] = &[
    format("primitiv", &["primitiv/good"], &[], 2),
    format("safetensors", &["safetensors/good"], &[], 2),
    format("npy", &["npy/good", "cast"], &["npy"], 1),
    format("npz", &["npz/good"], &[], 2),
    format("torch", &["torch/good"], &[], 3),
    format("dcp", &["dcp/good"], &["metadata", "distcp"], 1),
    format("joblib", &["joblib/good"], &[], 2),
    format("hdf5", &["hdf5/good", "hdf5/small", "hdf5/models"], &[], 2),
    format("biggraph", &["biggraph/alt", "biggraph/text"], &["h5", "hdf5"], 1),
    format("paddle", &["paddle/good"], &[], 4),
    format("onnx", &["onnx/good"], &["onnx"], 3),
    format("gguf", &["gguf/good"], &["gguf"], 2),
    format("mxnet", &["mxnet/good"], &[], 2),
    format("caffe", &["caffe/good"], &[], 2),
    format("darknet", &["darknet/good"], &[], 1),
    format("tensorflow", &["tensorflow/good"], &[], 3),
    format("tflite", &["tflite/good"], &["tflite"], 2),
    format("openvino", &["openvino/good"], &["xml"], 1),
    format("coreml", &["coreml/good"], &["mlmodel"], 1),
    format("ncnn", &["ncnn/good", "ncnn/alone"], &["param"], 1),
    format("flax", &["flax/good"], &[], 2),
    format("parquet", &["tables"], &["parquet"], 1),
    format("arrow", &["tables"], &["arrow"], 1),
    format("tsv", &["tables"], &["tsv"], 1),
    format("word2vec", &["tables"], &["vec", "bin"], 1),
    Target { name: "folder", folders: folder::FOLDERS, extensions: &[], share: 1, run: folder::run },
    Target { name: "orbax", folders: folder::ORBAX, extensions: &[], share: 1, run: folder::run },
    Target { name: "deepspeed", folders: folder::DEEPSPEED, extensions: &[], share: 1, run: folder::run },
    Target { name: "detect", folders: ALL, extensions: &[], share: 2, run: detect::run },
    Target {
        name: "export",
        folders: &["paddle/good"],
        extensions: &["pdmodel", "json"],
        share: 1,
        run: export::run,
    },
    Target {
        name: "pickle",
        folders: &["pickle/good", "paddle/good"],
        extensions: &[],
        share: 2,
        run: pickle::run,
    },
    Target { name: "plan", folders: &["npy/good", "pickle/good"], extensions: &[], share: 1, run: plan::run },
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
