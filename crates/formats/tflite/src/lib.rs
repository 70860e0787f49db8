//! TensorFlow Lite (LiteRT): reader of models.
//!
//! A model is a FlatBuffer: tables of operators, tensors and buffers. A tensor with a buffer is a constant:
//!
//! ```text
//! Model
//!   operator_codes    names of operators
//!   subgraphs         tensors (name, dtype, shape, buffer, quantization) and operators
//!   buffers           elements, little-endian, row-major
//!   metadata          names with buffers
//!   signature_defs    names of inputs and outputs
//! ```

mod check;
mod dtype;
mod flat;
mod graph;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod schema;
#[cfg(test)]
mod tests;

use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, ReadFormat, Salvage,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::SourceRef;

/// The TensorFlow Lite format.
#[derive(Debug)]
pub struct Tflite;

/// Kind of all files.
const MODEL: &str = "model";
/// Identifier of the file type, at offset 4.
const MAGIC: &[u8] = b"TFL3";

static INFO: FormatInfo = FormatInfo {
    id: "tflite",
    title: "Models of TensorFlow Lite",
    coverage: Coverage {
        name: "TensorFlow Lite",
        read: "constants of `.tflite` models with their quantization, subgraphs, signatures",
        written: "",
        not_read: "text and sparse constants",
    },
    extensions: &[("tflite", MODEL)],
    dtypes: &dtype::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Tflite {
    fn info(&self) -> &'static FormatInfo {
        &INFO
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

impl Detect for Tflite {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.get(4..8) == Some(MAGIC)
    }
}

impl ReadFormat for Tflite {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options, None)
    }

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        matches!(key, read::SIGNATURES | read::METADATA)
    }
}

impl Salvage for Tflite {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Alone(source) | Input::Beside(source, ..) => {
                read::open(source, options, Some(error)).map(Some)
            }
            Input::Folder(_) => Ok(None),
        }
    }
}

impl DeepCheck for Tflite {
    fn check(&self, _: &Checkpoint) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Tflite {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
