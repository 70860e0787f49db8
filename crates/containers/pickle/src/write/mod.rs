//! The bytes that CPython's pickler would write for a graph, as a plan.

mod names;
mod output;
mod writer;

pub use names::ModuleNames;

use super::graph::{Graph, Location, ObjectId, Span, Stored};
use super::opcode;
use weighbridge_core::error::{Error, Result};

/// A run of bytes of a pickle that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These bytes.
    Literal(Vec<u8>),
    /// The bytes that the caller knows by this key, as they are.
    Payload {
        /// The caller's number.
        key: u64,
        /// Their number.
        len: u64,
    },
    /// The bytes that the caller knows by this key, each as the UTF-8 of the code point of its
    /// value: below 0x80 one byte, else two.
    Latin1 {
        /// The caller's number.
        key: u64,
        /// Bytes after encoding.
        encoded_len: u64,
    },
    /// A range of the source that the graph was read from, as it stands there.
    Copy(Span),
    /// The same, each byte as the UTF-8 of the code point of its value.
    CopyLatin1 {
        /// The range.
        span: Span,
        /// Bytes after encoding.
        encoded_len: u64,
    },
}

impl Part {
    /// The number of bytes that it will have.
    pub fn len(&self) -> u64 {
        match *self {
            Self::Literal(ref bytes) => bytes.len() as u64,
            Self::Payload { len, .. } => len,
            Self::Copy(Span { len, .. }) => len,
            Self::Latin1 { encoded_len, .. } | Self::CopyLatin1 { encoded_len, .. } => encoded_len,
        }
    }

    /// True where it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Plans the pickle of `root`, byte for byte as CPython's own pickler (in C) writes it with
/// `protocol` 2, 3 or 4: the same memo, the same batches, the same frames.
///
/// Which objects are one object decides the bytes. A graph that was read knows it from the pickle;
/// [`super::Builder`] does as numpy does.
///
/// `latin1_len` is asked for protocol 2 only, which stores bytes as text: how many bytes does the
/// UTF-8 of the content of this place take?
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for another protocol; [`weighbridge_core::Kind::Unsupported`] for what the protocol
/// cannot hold, or for long text of a pickle of protocol 0; what `latin1_len` says.
pub fn write(
    graph: &Graph,
    root: ObjectId,
    protocol: u8,
    latin1_len: &mut dyn FnMut(&Location) -> Result<u64>,
) -> Result<Vec<Part>> {
    if !(2..=4).contains(&protocol) {
        return Err(
            Error::usage("pickle-protocol", "pickles are written with protocol 2, 3 or 4").found(protocol)
        );
    }
    writer::Writer::new(graph, protocol, latin1_len).run(root)
}

/// The part that holds the content of a place as it is, and its length.
fn as_it_is(place: &Location, stored: Stored) -> Result<(Part, u64)> {
    match *place {
        Location::Payload { key, len } => Ok((Part::Payload { key, len }, len)),
        Location::Source(span) if span.stored == stored => Ok((Part::Copy(span), span.len)),
        _ => Err(unsupported("long text with escapes cannot be written again")),
    }
}

fn unsupported(message: &str) -> Error {
    Error::unsupported("pickle-write", message)
}
