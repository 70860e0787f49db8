//! ONNX: reader and writer of models, and exporter of Paddle programs.
//!
//! A model is one protobuf message, `ModelProto`: a graph of nodes with its stored tensors (initializers). Elements of large tensors may be
//! in other files (external data), named relative to the model.

mod constant;
mod dtype;
mod encode;
mod export;
mod model;
mod show;
mod write;

pub use export::{is_supported, supported};

use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Detect, Format, FormatInfo, OpenOptions, PlanOptions, ReadFormat, Setting, WriteFormat,
};
use weighbridge_io::source::SourceRef;

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
            what: "store tensors of 1 KiB or more in a file beside the model; the target is then a folder (default: for models above 2 GB)",
        },
    ],
};

/// Dtypes of ONNX.
const DTYPES: [DType; 19] = [
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
];

impl Format for Onnx {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }
}

impl Detect for Onnx {
    fn recognises(&self, _head: &[u8], _source: &SourceRef) -> bool {
        false
    }
}

impl ReadFormat for Onnx {
    fn open(&self, source: SourceRef, _options: &OpenOptions) -> Result<Checkpoint> {
        Err(Error::unsupported("unrecognized-format", "not read yet").in_file(source.label()))
    }
}

impl WriteFormat for Onnx {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}
