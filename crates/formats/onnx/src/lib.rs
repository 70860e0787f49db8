//! ONNX: reader and writer of models, and exporter of Paddle programs.
//!
//! A model is one protobuf message, `ModelProto`: a graph of nodes with its stored tensors (initializers). Elements of large tensors may be
//! in other files (external data), named relative to the model.

mod check;
mod constant;
mod dtype;
mod encode;
mod export;
mod external;
mod graph;
mod model;
mod properties;
mod read;
mod rewrite;
#[cfg(feature = "scan")]
mod scan;
mod show;
mod skeleton;
mod tensor_plan;
#[cfg(test)]
mod tests;
mod typed;
mod write;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    Setting, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};
use weighbridge_protobuf as wire;

/// The ONNX format.
#[derive(Debug)]
pub struct Onnx;

/// Kind of a model file.
const MODEL: &str = "model";
/// Setting of the version of the standard operators.
const OPSET: &str = "opset";
/// Setting of where large tensors are stored.
const EXTERNAL: &str = "external_data";

static INFO: FormatInfo = FormatInfo {
    id: "onnx",
    title: "ONNX models, one file or with external data",
    coverage: Coverage {
        name: "ONNX",
        read: "models with typed, external and sparse data, functions, control flow",
        written: "yes; also exports of Paddle programs",
        not_read: "text tensors",
    },
    extensions: &[("onnx", MODEL)],
    dtypes: &DTYPES,
    order: Some(Order::Row),
    settings: &[
        Setting {
            name: OPSET,
            values: "17 to 21",
            what: "version of the standard operators of an exported graph (default 17)",
        },
        Setting {
            name: EXTERNAL,
            values: "yes, no",
            what: "store tensors of 1 KiB or more in a file beside the model; the target is then a folder (default: as in the opened model, and for models above 2 GB)",
        },
    ],
};

/// Dtypes of ONNX.
const DTYPES: [DType; 21] = [
    DType::F32,
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::Bool,
    DType::F16,
    DType::F64,
    DType::U32,
    DType::U64,
    DType::C64,
    DType::C128,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E4M3Fnuz,
    DType::F8E5M2,
    DType::F8E5M2Fnuz,
    DType::F4,
    DType::F8E8M0,
];

impl Onnx {
    /// Returns true for an operator of a Paddle program that can be exported, some variants aside: `conv2d`, `pd_op.conv2d`.
    pub fn exports(operator: &str) -> bool {
        export::is_supported(operator)
    }

    /// Returns the operators of Paddle programs that can be exported, sorted: those of `ProgramDesc` and those of PIR.
    pub fn exported_operators() -> (Vec<&'static str>, Vec<&'static str>) {
        export::supported()
    }
}

impl Format for Onnx {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }

    fn salvager(&self) -> Option<&dyn Salvage> {
        Some(self)
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

impl Detect for Onnx {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        read::recognises(head, source)
    }
}

impl ReadFormat for Onnx {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, None, options, None)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        read::open(&source, Some((folder, name)), options, None)
    }

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        let is_opset = key == "opset" || key.starts_with("opset/");
        is_opset || matches!(key, "ir_version" | "producer_name" | "producer_version" | "graph_name")
    }
}

impl WriteFormat for Onnx {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}

impl Salvage for Onnx {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let (source, around) = match *place {
            Input::Alone(source) => (source, None),
            Input::Beside(source, folder, name) => (source, Some((folder, name))),
            Input::Folder(_) => return Ok(None),
        };
        read::open(source, around, options, Some(error)).map(Some)
    }
}

impl DeepCheck for Onnx {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        check::check(checkpoint)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Onnx {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }

    /// Accepts files of external data by their names. They are plain numbers, as far as their beginning shows.
    fn is_text(&self, name: &Path, source: &SourceRef, _: &Limits) -> Result<bool> {
        scan::is_external_data(name, source)
    }
}
