//! Write plan of a graph: the bytes that CPython's pickler produces.

mod names;
mod output;
mod writer;

pub use names::ModuleNames;

use super::graph::{Graph, Location, ObjectId, Span, Stored};
use super::opcode;
use weighbridge_core::error::{Error, Result};

/// A run of bytes in a planned pickle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Literal bytes.
    Literal(Vec<u8>),
    /// Bytes that the caller fills in under this key.
    Payload {
        /// Number that the caller chose.
        key: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes that the caller fills in under this key, each encoded as the UTF-8 of the code point of
    /// its value: one byte below 0x80, else two.
    Latin1 {
        /// Number that the caller chose.
        key: u64,
        /// Length in bytes after encoding.
        encoded_len: u64,
    },
    /// A range of the source of the graph, copied unchanged.
    Copy(Span),
    /// A range of the source, each byte encoded as the UTF-8 of the code point of its value.
    CopyLatin1 {
        /// The range.
        span: Span,
        /// Length in bytes after encoding.
        encoded_len: u64,
    },
}

impl Part {
    /// Number of bytes of the part.
    pub fn len(&self) -> u64 {
        match *self {
            Self::Literal(ref bytes) => bytes.len() as u64,
            Self::Payload { len, .. } => len,
            Self::Copy(Span { len, .. }) => len,
            Self::Latin1 { encoded_len, .. } | Self::CopyLatin1 { encoded_len, .. } => encoded_len,
        }
    }

    /// Returns true for a part without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Plans the pickle of `root`, byte for byte as CPython's C pickler writes it with `protocol` 2, 3 or 4:
/// the same memo, batches and frames.
///
/// The bytes depend on object identity. A graph that was read has the identities of its pickle;
/// [`super::Builder`] follows those of numpy.
///
/// `latin1_len` is called for protocol 2 only, which stores bytes as text. It returns the length of the
/// UTF-8 text of the bytes at that location.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for another protocol; [`weighbridge_core::Kind::Unsupported`] for an object that the
/// protocol cannot hold, or for long text from a pickle of protocol 0; errors of `latin1_len`.
pub fn write(
    graph: &Graph,
    root: ObjectId,
    protocol: u8,
    latin1_len: &mut dyn FnMut(&Location) -> Result<u64>,
) -> Result<Vec<Part>> {
    if !(2..=4).contains(&protocol) {
        return Err(Error::usage("pickle-protocol", "only pickle protocols 2, 3 and 4 can be written")
            .found(protocol));
    }
    writer::Writer::new(graph, protocol, latin1_len).run(root)
}

/// Returns a part with the unchanged content of a location, and its length.
fn unchanged(place: &Location, stored: Stored) -> Result<(Part, u64)> {
    match *place {
        Location::Payload { key, len } => Ok((Part::Payload { key, len }, len)),
        Location::Source(span) if span.stored == stored => Ok((Part::Copy(span), span.len)),
        _ => Err(unsupported("long text with escapes cannot be rewritten")),
    }
}

fn unsupported(message: &str) -> Error {
    Error::unsupported("pickle-write", message)
}
