//! Pickles: read without running them, judged, shown, and written as Python writes them.
//!
//! A pickle is a program for a small stack machine. Python's machine imports and calls whatever
//! the program names; this one cannot. It notes what *would* be imported or called and goes on, so
//! unknown classes become inert data:
//!
//! ```text
//! 80 04 95 .. 7d 94 28 8c 06 "weight" 94 ... 42 60 03 00 00 <864 bytes> 94 ... 62 75 2e
//! PROTO FRAME {} memo ( text         memo     bytes: only their place is kept  BUILD SETITEMS STOP
//! ```
//!
//! | what | where |
//! | --- | --- |
//! | [`read`] | a [`Pickle`], within the bounds of [`Options`]: the [`Graph`] of objects, what would be imported ([`GlobalUse`]), where it ends |
//! | [`NdArray::of`], [`scalar`], [`bytes_of`] | recognise numpy's arrays and where their bytes are |
//! | [`PayloadSource`] | those bytes as a source, where they are stored as text |
//! | [`allowed`], [`inspect`] | is anything in it that honest writers do not write? |
//! | [`Opcodes`], [`disassemble`] | the instructions one by one |
//! | [`opcode_name`] | what an instruction is called |
//! | [`to_json`] | a look at the values, bounded in depth and size |
//! | [`Cost`] | what the values and tensors that are made of a pickle take of the budget |
//! | [`Builder`], [`write()`] | the bytes that CPython's pickler would write, as a plan |
//!
//! And behind these, for the library alone:
//!
//! | where | what |
//! | --- | --- |
//! | `machine`, `objects` | the stack machine, and its objects by number |
//! | `decode`, `lines` | the instructions, and the arguments that are lines of text |
//! | `libraries` | classes and functions of common libraries, and the form of each |
//! | `usual` | calls of allowed things as honest writers make them, and no others |
//! | `keys` | what hashing the keys of dicts and the items of sets takes |
//! | `parts` | parameters that Paddle puts together from parts, and whether these multiply |
//! | `nested` | strings within a pickle that may be pickles themselves |
//! | `reach` | from which objects tensors can be reached |
//!
//! Bytes and long text are never read while the graph is: a file of a gigabyte is hopped through.
//! Nothing is recursive that a file can make deep, and memory grows at most with what was read.
//!
//! # An example
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! use std::sync::Arc;
//! use weighbridge_core::source::{MemorySource, SourceRef};
//! use weighbridge_pickle::{Options, inspect, read};
//!
//! // What `pickle.loads` would run: posix.system("true").
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
//! See also: `weighbridge-torch-archive` and `weighbridge-paddle` find tensors in pickles; `weighbridge-scan` judges whole files.

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
pub use opened::{GlobalUse, Options, Pickle};
pub use parts::{SLICES, SPLIT};
pub use payload::PayloadSource;
#[cfg(test)]
pub(crate) use payload::latin1_len;
pub use reach::Reach;
pub use write::{ModuleNames, Part, write};
