//! Dumps of joblib, and pickled scikit-learn estimators.
//!
//! ```text
//! 80 04 95 .. 8c 13 "joblib.numpy_pickle" .. "NumpyArrayWrapper" .. 62   pickle: the description of an array
//! 0e ff .. ff                                                            length of the padding, and the padding (joblib 1.1 and later)
//! <elements of the array>                                                dense, in the order and byte order of the description
//! ...                                                                    the pickle continues
//! ```
//!
//! An array of objects is a pickle of its own behind its description. The whole file may be compressed: zlib, gzip, bz2, xz,
//! lzma, lz4.
//!
//! Arrays are named by their path in the object: keys, positions and attributes, such as `steps.1.1.coef_`. Plain values become
//! metadata in the same way; the class of an object is metadata under `@class`. Nothing is executed.

mod read;
#[cfg(feature = "scan")]
mod scan;
mod stream;
#[cfg(test)]
mod tests;

use stream::{Compression, prefix};
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_format::{Coverage, DeepCheck, Detect, Format, FormatInfo, HEAD, OpenOptions, ReadFormat};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::SourceRef;
use weighbridge_pickle as pickle;

/// Dumps of joblib, and pickled scikit-learn estimators; read only.
#[derive(Debug)]
pub struct Joblib;

/// Kind of every file.
const KIND: &str = "object";
/// Metadata key of the class of an object, below its path.
const CLASS: &str = "@class";
/// Module of the array descriptions.
const ARRAYS: &[u8] = b"joblib.numpy_pickle";
/// Modules of estimators.
const ESTIMATORS: &[u8] = b"sklearn.";

static INFO: FormatInfo = FormatInfo {
    id: "joblib",
    title: "joblib and pickled scikit-learn estimators",
    coverage: Coverage {
        name: "joblib, scikit-learn",
        read: "`.joblib`, `.pkl`: dumps of joblib, also compressed; pickled estimators",
        written: "",
        not_read: "arrays of records, texts and dates",
    },
    extensions: &[("joblib", KIND)],
    dtypes: &[
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
    ],
    order: None,
    settings: &[],
};

impl Format for Joblib {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

/// Returns true for the beginning of a pickle of protocol 2 to 5.
fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 2..=5, ..])
}

impl Detect for Joblib {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        match Compression::of(head) {
            // A compressed pickle of any kind: other readers do not unpack files.
            Some(compression) => is_pickle(&prefix(source, compression, HEAD)),
            None => {
                let names = |module: &[u8]| head.windows(module.len()).any(|window| window == module);
                is_pickle(head) && (names(ARRAYS) || names(ESTIMATORS) || source.label().ends_with(".joblib"))
            }
        }
    }
}

impl ReadFormat for Joblib {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }
}

impl DeepCheck for Joblib {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        let (bytes, compression) = read::unpacked(source, limits)?;
        if compression.is_some() {
            return Ok(Outline::whole(source.len(), "compressed pickle"));
        }
        let options =
            pickle::Options { arrays: true, ..pickle::Options::with_limits(limits.with_budget_of(&bytes)) };
        let end = pickle::read(&bytes, 0, &options)?.end;
        let mut outline = Outline::whole(end, "pickle");
        outline.hidden(end, source.len() - end, "bytes after the pickle");
        Ok(outline)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Joblib {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
