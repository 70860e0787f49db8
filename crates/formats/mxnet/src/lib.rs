//! MXNet: parameter files of Module and Gluon, and the symbol beside them.
//!
//! ```text
//! offset  bytes
//!      0      8  0x112, little-endian
//!      8      8  0
//!     16      8  number of arrays, followed by the arrays
//!                array: version, storage type, shape, device, dtype, elements
//!                number of names: that of the arrays, or 0; each name is a length and its bytes
//! ```
//!
//! `NAME-symbol.json` has the operators of the parameters in `NAME-0000.params`.

mod array;
mod check;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod symbol;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// The MXNet format.
#[derive(Debug)]
pub struct MxNet;

/// Kind of a file whose names begin with `arg:` and `aux:`, as Module and `HybridBlock.export` write it.
const MODULE: &str = "module";
/// Kind of a file with plain names, as `Block.save_parameters` writes it.
const GLUON: &str = "gluon";
/// Kind of a file without names.
const LIST: &str = "list";
/// Kind of a parameter file in general: with prefixes and names as in the opened file.
const PARAMETERS: &str = "parameters";
/// Kind of a symbol, opened alone.
const SYMBOL: &str = "symbol";
/// Kind of a folder with a symbol and its parameters. Only written: opening such parameters finds their symbol.
const MODEL: &str = "model";
/// Version of the arrays that MXNet 1.x writes.
const VERSION: u8 = 2;
/// Metadata key of another version of the arrays: 0, 1 or 3.
const ARRAY_VERSION: &str = "ndarray_version";

static INFO: FormatInfo = FormatInfo {
    id: "mxnet",
    title: "MXNet and Gluon parameters, with their symbol",
    coverage: Coverage {
        name: "MXNet, Gluon",
        read: "`.params` of versions 0 to 3, dense and sparse, with their symbol",
        written: "yes",
        not_read: "states of trainers",
    },
    extensions: &[("params", PARAMETERS)],
    dtypes: &DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

/// Dtypes of MXNet, by their numbers in files.
const DTYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::U8,
    DType::I32,
    DType::I8,
    DType::I64,
    DType::Bool,
    DType::I16,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::BF16,
];

impl Format for MxNet {
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

impl Detect for MxNet {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.starts_with(&array::HEAD) || symbol::recognises(head)
    }
}

impl ReadFormat for MxNet {
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
        key == ARRAY_VERSION
    }
}

impl WriteFormat for MxNet {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}

impl Salvage for MxNet {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Alone(source) => read::open(source, None, options, Some(error)).map(Some),
            Input::Beside(source, folder, name) => {
                read::open(source, Some((folder, name)), options, Some(error)).map(Some)
            }
            Input::Folder(_) => Ok(None),
        }
    }
}

impl DeepCheck for MxNet {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for MxNet {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }

    /// Accepts the symbol of a model, which is text; its operators are scanned with the model.
    fn is_text(&self, name: &Path, source: &SourceRef, _: &Limits) -> Result<bool> {
        let is_named =
            name.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.ends_with(read::ENDING));
        let head = weighbridge_io::source::read_vec(&**source, 0, source.len().min(512))?;
        Ok(is_named && symbol::recognises(&head))
    }
}
