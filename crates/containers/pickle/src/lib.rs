//! Python pickles: reading without execution, inspection, disassembly, and writing byte for byte as CPython does.
//!
//! A pickle is a program for a small stack machine. Python's machine imports and calls any name in
//! the program; this one cannot. It records the imports and calls and continues, so unknown classes
//! become inert data:
//!
//! ```text
//! 80 04 95 .. 7d 94 28 8c 06 "weight" 94 ... 42 60 03 00 00 <864 bytes> 94 ... 62 75 2e
//! PROTO FRAME {} memo ( text         memo     bytes: only their offset is kept BUILD SETITEMS STOP
//! ```
//!
//! | item | purpose |
//! | --- | --- |
//! | [`read`] | read a [`Pickle`] within [`Options`]: the [`Graph`] of objects, the imports ([`GlobalUse`]), the end offset |
//! | [`NdArray::of`], [`scalar`], [`bytes_of`] | recognize numpy arrays and locate their bytes |
//! | [`PayloadSource`] | bytes that are stored as text, as a source |
//! | [`allowed`], [`inspect`] | verdict: would loading the pickle run code? |
//! | [`Opcodes`], [`disassemble`] | opcodes one by one |
//! | [`opcode_name`] | name of an opcode |
//! | [`to_json`] | values as JSON, bounded in depth and size |
//! | [`Cost`] | budget estimates for values and tensors made from a pickle |
//! | [`Builder`], [`write()`] | write plan of the bytes that CPython's pickler produces |
//!
//! Private modules:
//!
//! | module | content |
//! | --- | --- |
//! | `machine`, `objects` | stack machine, and its objects by number |
//! | `decode`, `lines` | opcodes, and their text-line arguments |
//! | `libraries` | classes and functions of common libraries, with the call form of each |
//! | `known_calls` | allowed calls in the exact form that picklers write |
//! | `keys` | cost of hashing the keys of dicts and the items of sets |
//! | `parts` | parameters that Paddle joins from parts, and overlaps between parts |
//! | `nested` | strings inside a pickle that may be pickles themselves |
//! | `reach` | objects from which tensors can be reached |
//!
//! Reading a graph never reads bytes or long text: a file of a gigabyte is skipped through. No
//! recursion depth depends on the file, and memory grows at most with the bytes read.
//!
//! # Example
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! use std::sync::Arc;
//! use weighbridge_core::source::{MemorySource, SourceRef};
//! use weighbridge_pickle::{Options, inspect, read};
//!
//! // `pickle.loads` would run posix.system("true").
//! let bytes = b"cposix\nsystem\n(S'true'\ntR.".to_vec();
//! let source: SourceRef = Arc::new(MemorySource::new("evil.pkl", bytes));
//! let pickle = read(&source, 0, &Options::default())?;
//! assert_eq!(pickle.end, source.len());
//! let report = inspect(&source, 0, &Options::default());
//! assert_eq!(report.verdict.as_str(), "unsound");
//! # Ok(())
//! # }
//! ```
//!
//! See also: `weighbridge-torch-archive` and `weighbridge-paddle` find tensors in pickles; `weighbridge-scan` scans whole files for code.

mod allowed;
mod build;
mod cost;
pub use cost::Cost;
mod decode;
mod disassemble;
mod graph;
mod inspect;
mod json;
mod keys;
mod known_calls;
mod libraries;
mod lines;
mod machine;
mod nested;
mod numpy;
mod objects;
mod opcode;
mod opened;
mod parts;
mod payload;
mod reach;
mod write;

#[cfg(test)]
mod tests;

pub use allowed::{ImportVerdict, allowed};
pub use build::{Builder, Content, Descr, NumpyModules};
pub use decode::{Arg, Op, Opcodes};
pub use disassemble::disassemble;
pub use graph::{Blob, Graph, Location, Object, ObjectId, ReduceKind, Reduced, Span, Stored, Text};
pub use inspect::inspect_next;
pub use inspect::{Call, GlobalFinding, ListBound, Report, inspect};
pub use json::{JsonBounds, to_json};
pub use machine::{Cut, read, read_cut};
pub use nested::{begins, string_bytes};
pub use numpy::{NdArray, Payload, bytes_of, lod_tensor, scalar};
pub use opcode::opcode_name;
pub use opened::{GlobalUse, JoblibArray, Options, Pickle};
pub use parts::{SLICES, SPLIT};
pub use payload::PayloadSource;
#[cfg(test)]
pub(crate) use payload::latin1_len;
pub use reach::Reach;
pub use write::{ModuleNames, Part, write};
