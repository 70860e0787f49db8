//! Every format in one registry.
//!
//! Each format is a crate in `crates/formats`: a reader from bytes to an index, and a layouter from an index to a plan.
//! CONTRIBUTING.md says how to add one; `examples/own_format.rs` adds one from outside.

#[cfg(not(all(feature = "safetensors", feature = "torch")))]
mod absent;

#[cfg(not(feature = "safetensors"))]
pub(crate) use absent::safetensors;
#[cfg(not(feature = "torch"))]
pub(crate) use absent::torch;
#[cfg(feature = "biggraph")]
#[doc(no_inline)]
pub use weighbridge_biggraph as biggraph;
#[cfg(feature = "caffe")]
#[doc(no_inline)]
pub use weighbridge_caffe as caffe;
#[cfg(feature = "coreml")]
#[doc(no_inline)]
pub use weighbridge_coreml as coreml;
#[cfg(feature = "darknet")]
#[doc(no_inline)]
pub use weighbridge_darknet as darknet;
#[cfg(feature = "flax")]
#[doc(no_inline)]
pub use weighbridge_flax as flax;
#[cfg(feature = "gguf")]
#[doc(no_inline)]
pub use weighbridge_gguf as gguf;
#[cfg(feature = "hdf5")]
#[doc(no_inline)]
pub use weighbridge_hdf5_model as hdf5;
#[cfg(feature = "joblib")]
#[doc(no_inline)]
pub use weighbridge_joblib as joblib;
#[cfg(feature = "mxnet")]
#[doc(no_inline)]
pub use weighbridge_mxnet as mxnet;
#[cfg(feature = "ncnn")]
#[doc(no_inline)]
pub use weighbridge_ncnn as ncnn;
#[cfg(feature = "numpy")]
#[doc(no_inline)]
pub use weighbridge_numpy::{npy, npz};
#[cfg(feature = "onnx")]
#[doc(no_inline)]
pub use weighbridge_onnx as onnx;
#[cfg(feature = "openvino")]
#[doc(no_inline)]
pub use weighbridge_openvino as openvino;
#[cfg(feature = "paddle")]
#[doc(no_inline)]
pub use weighbridge_paddle as paddle;
#[cfg(feature = "primitiv")]
#[doc(no_inline)]
pub use weighbridge_primitiv as primitiv;
#[cfg(feature = "safetensors")]
#[doc(no_inline)]
pub use weighbridge_safetensors as safetensors;
#[cfg(feature = "tables")]
#[doc(no_inline)]
pub use weighbridge_tables::{arrow, parquet, records, table, tsv, word2vec};
#[cfg(feature = "tensorflow")]
#[doc(no_inline)]
pub use weighbridge_tensorflow as tensorflow;
#[cfg(feature = "tflite")]
#[doc(no_inline)]
pub use weighbridge_tflite as tflite;
#[cfg(feature = "torch")]
#[doc(no_inline)]
pub use weighbridge_torch as torch;

pub(crate) use weighbridge_format::registry::{FolderModel, backing_files, files_of, other_models_text};
#[doc(no_inline)]
pub use weighbridge_format::registry::{OtherFile, Registry};
pub(crate) use weighbridge_format::row_names::{drop as drop_labels, spread as spread_labels};
#[doc(no_inline)]
pub use weighbridge_format::{
    Companion, Coverage, DeepCheck, Detect, Format, FormatInfo, FormatOptionSet, FormatOptions, HEAD, Input,
    Names, OpenOptions, PlanOptions, ReadFormat, RowNameSupport, Salvage, Setting, WrapFiles, WriteFormat,
};
#[cfg(feature = "scan")]
#[doc(no_inline)]
pub use weighbridge_format::{Scan, ScanCode};

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use std::path::Path;
use std::sync::LazyLock;

/// The formats that this build has, in the order in which they are asked whether a file is theirs.
pub static ALL: &[&dyn Format] = &[
    #[cfg(feature = "primitiv")]
    &primitiv::Primitiv,
    #[cfg(feature = "safetensors")]
    &safetensors::Safetensors,
    #[cfg(feature = "numpy")]
    &npy::Npy,
    #[cfg(feature = "numpy")]
    &npz::Npz,
    // Data files of distributed checkpoints are archives of torch, too.
    #[cfg(feature = "torch")]
    &torch::Dcp,
    #[cfg(feature = "torch")]
    &torch::DeepSpeed,
    #[cfg(feature = "torch")]
    &torch::Torch,
    #[cfg(feature = "biggraph")]
    &biggraph::BigGraph,
    // Paddle reads any other pickle.
    #[cfg(feature = "joblib")]
    &joblib::Joblib,
    #[cfg(feature = "paddle")]
    &paddle::Paddle,
    #[cfg(feature = "onnx")]
    &onnx::Onnx,
    #[cfg(feature = "gguf")]
    &gguf::Gguf,
    #[cfg(feature = "mxnet")]
    &mxnet::MxNet,
    #[cfg(feature = "caffe")]
    &caffe::Caffe,
    #[cfg(feature = "darknet")]
    &darknet::Darknet,
    // The first fields of its oldest version are those of a SavedModel of TensorFlow, too.
    #[cfg(feature = "coreml")]
    &coreml::CoreMl,
    #[cfg(feature = "tensorflow")]
    &tensorflow::Tensorflow,
    #[cfg(feature = "tflite")]
    &tflite::Tflite,
    #[cfg(feature = "openvino")]
    &openvino::OpenVino,
    #[cfg(feature = "ncnn")]
    &ncnn::Ncnn,
    #[cfg(feature = "flax")]
    &flax::Flax,
    #[cfg(feature = "flax")]
    &flax::Orbax,
    #[cfg(feature = "tables")]
    &tsv::Tsv,
    #[cfg(feature = "tables")]
    &word2vec::Word2Vec,
    #[cfg(feature = "tables")]
    &arrow::Arrow,
    #[cfg(feature = "tables")]
    &parquet::Parquet,
    #[cfg(feature = "hdf5")]
    &hdf5::Hdf5,
];

/// The formats that this build has.
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(ALL.iter().copied()));
    &REGISTRY
}

/// True where files of the format of that id can share the bytes of tensors, and know of it.
pub(crate) fn shares_storage(id: &str) -> bool {
    let writer = registry().by_id(id).ok().and_then(|format| format.writer());
    writer.is_some_and(|writer| writer.supports_shared_storage())
}

/// Opens the file or folder at `path` with default options.
///
/// # Errors
/// As [`Registry::open_with`].
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
    open_with(path, &OpenOptions::default())
}

/// Opens the file or folder at `path`.
///
/// # Errors
/// As [`Registry::open_with`].
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
    registry().open_with(path, options)
}

#[cfg(test)]
mod folder_tests;
#[cfg(test)]
mod virtual_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Value;
    use crate::source::SourceRef;

    #[test]
    fn extensions_and_ids_of_formats_are_unique() {
        // Only those of written formats select one.
        let written = ALL.iter().filter(|format| format.writer().is_some());
        let mut extensions: Vec<_> = written.flat_map(|f| f.info().extensions).map(|e| e.0).collect();
        let mut ids: Vec<_> = ALL.iter().map(|f| f.info().id).collect();
        for list in [&mut extensions, &mut ids] {
            list.sort_unstable();
            let count = list.len();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }

    /// Several formats recognise these.
    #[test]
    fn the_first_matching_format_wins() {
        let long = format!("ARROW1\t22543e-{}\n", "8".repeat(100));
        for (bytes, id) in [(&b"]q)))).035224949\t-44."[..], "paddle"), (long.as_bytes(), "tsv")] {
            let source: SourceRef =
                std::sync::Arc::new(crate::source::MemorySource::new("m", bytes.to_vec()));
            assert_eq!(registry().detect(&source).unwrap().info().id, id);
        }
    }

    #[test]
    fn a_plain_file_names_the_metadata_that_it_omits() {
        let mut checkpoint = Checkpoint::new("test", "test", "m");
        checkpoint.metadata.set("epoch", Value::U64(3));
        checkpoint.metadata.set("note", Value::Text("kept by some".to_owned()));
        let options = PlanOptions { plain: true, ..PlanOptions::default() };
        let found = |format: &dyn Format| {
            let losses = format.plan(&checkpoint, &options).unwrap().losses;
            let dropped: Vec<_> = losses.into_iter().filter(|loss| loss.code == "index-dropped").collect();
            assert_eq!(dropped.len(), 1);
            dropped[0].detail.clone()
        };
        let of = |count: &str, keys: &str| {
            format!(
                "a plain file has the tensors, without {count} of its metadata ({keys}), and without what only Weighbridge reads: roles, attributes, exact paths"
            )
        };
        assert_eq!(found(&safetensors::Safetensors), of("1 entry", "epoch"));
        for format in [&npz::Npz as &dyn Format, &torch::Torch] {
            let detail = found(format);
            assert!(
                [of("2 entries", "epoch, note"), of("2 entries", "note, epoch")]
                    .contains(&detail.to_string()),
                "{detail}"
            );
        }
    }

    #[test]
    fn unknown_names_list_the_valid_ones() {
        let settings =
            PlanOptions { settings: vec![("colour".to_owned(), "red".to_owned())], ..PlanOptions::default() };
        let hint = |format: &dyn Format| {
            settings.check(format.info()).unwrap_err().hint_text().map(str::to_owned).unwrap()
        };
        assert_eq!(hint(&npz::Npz), "the format has no settings");
        assert!(hint(&tsv::Tsv).starts_with("settings of tsv: floats ("), "{}", hint(&tsv::Tsv));
        assert!(registry().by_id("nope").err().unwrap().hint_text().unwrap().contains("primitiv"));
        assert!(
            registry().by_extension(Path::new("x")).err().unwrap().hint_text().unwrap().contains(".model")
        );
    }
}
