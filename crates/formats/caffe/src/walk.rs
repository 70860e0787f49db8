//! Walk over a binary file: layers without their blobs, and the places of elements. Elements are skipped.

use crate::wire::{FIXED32, FIXED64, LEN, MAX_VARINT, VARINT, varint};
use buffa::encoding::encode_varint;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Kind as ErrorKind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef};

/// Memory of a layer or blob, besides its fields.
const ENTRY: u64 = 400;

/// Message of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// `NetParameter`.
    Net,
    /// `SolverState`.
    State,
    /// `LayerParameter`.
    Layer,
    /// `V1LayerParameter`.
    V1Layer,
    /// `V0LayerParameter`, in a layer of `V1LayerParameter`.
    V0Layer,
    /// `BlobProto`.
    Blob,
}

impl Message {
    /// Returns the message of a field, if it contains blobs or is one.
    fn of_field(self, number: u32) -> Option<Self> {
        Some(match (self, number) {
            (Self::Net, 100) => Self::Layer,
            (Self::Net, 2) => Self::V1Layer,
            (Self::V1Layer, 1) => Self::V0Layer,
            (Self::Layer, 7) | (Self::V1Layer, 6) | (Self::V0Layer, 50) | (Self::State, 3) => Self::Blob,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Net => "the network",
            Self::State => "the training state",
            Self::Layer | Self::V1Layer | Self::V0Layer => "a layer",
            Self::Blob => "a blob",
        }
    }
}

/// Elements of a blob in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// Number of the field.
    pub(crate) field: u32,
    /// Offset of the first byte.
    pub(crate) at: u64,
    /// Number of bytes.
    pub(crate) len: u64,
    /// True if each element has a tag.
    pub(crate) tagged: bool,
}

/// Blob of a layer or of a training state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blob {
    /// Offset of its message.
    pub(crate) at: u64,
    /// Fields besides the elements.
    pub(crate) fields: Vec<u8>,
    /// Fields with elements.
    pub(crate) runs: Vec<Run>,
}

/// Layer of a file.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// `Layer` or `V1Layer`.
    pub(crate) message: Message,
    /// Fields besides the blobs.
    pub(crate) fields: Vec<u8>,
    /// Blobs.
    pub(crate) blobs: Vec<Blob>,
}

/// Content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Fields of the file besides layers and blobs.
    pub(crate) fields: Vec<u8>,
    /// Layers of a network.
    pub(crate) layers: Vec<Layer>,
    /// Blobs of a training state.
    pub(crate) blobs: Vec<Blob>,
    /// First fault, if the file was salvaged.
    pub(crate) fault: Option<Error>,
    /// True if the last blob of the last layer is incomplete.
    pub(crate) cut_blob: bool,
}

impl Content {
    /// Returns the network without its blobs, as a message.
    pub(crate) fn without_blobs(&self) -> Vec<u8> {
        let mut out = self.fields.clone();
        for layer in &self.layers {
            let number: u64 = if layer.message == Message::Layer { 100 } else { 2 };
            encode_varint(number << 3 | u64::from(LEN), &mut out);
            encode_varint(layer.fields.len() as u64, &mut out);
            out.extend_from_slice(&layer.fields);
        }
        out
    }
}

/// Reads a file. `salvage` ends at the first fault, and keeps the blobs in front of it.
///
/// # Errors
/// [`ErrorKind::Corrupt`] with the offset of a malformed field; [`ErrorKind::Limit`].
pub(crate) fn read(source: &SourceRef, message: Message, limits: &Limits, salvage: bool) -> Result<Content> {
    let budget = limits.budget_of(source);
    let cursor = Cursor::new(source.clone(), 0);
    let mut walk = Walk { cursor, limits, budget, held: 0, blobs: 0, salvage, out: Content::default() };
    let mut fields = Vec::new();
    match walk.message(message, source.len(), &mut fields) {
        Err(error) if salvage && error.kind() == ErrorKind::Corrupt => walk.out.fault = Some(error),
        done => done?,
    }
    walk.out.fields = fields;
    Ok(walk.out)
}

struct Walk<'a> {
    cursor: Cursor,
    limits: &'a Limits,
    budget: Budget,
    held: u64,
    blobs: u64,
    salvage: bool,
    out: Content,
}

impl Walk<'_> {
    /// Reads the fields of a message up to `end`, and appends those without blobs to `fields`.
    fn message(&mut self, kind: Message, end: u64, fields: &mut Vec<u8>) -> Result<()> {
        while self.cursor.position() < end {
            self.field(kind, end, fields)?;
        }
        Ok(())
    }

    fn field(&mut self, kind: Message, end: u64, fields: &mut Vec<u8>) -> Result<()> {
        let start = self.cursor.position();
        let tag = self.varint(kind, end)?;
        let Some(number) = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n)) else {
            return Err(Error::corrupt("bad-field-number", "the number of a field is invalid")
                .within(kind.name())
                .at(start)
                .expected("1 to 536870911")
                .found(tag >> 3));
        };
        let wire = (tag & 7) as u8;
        if kind == Message::Blob && is_elements(number) && wire != LEN {
            return self.tagged(number, wire, start, end);
        }
        let len = match wire {
            VARINT => {
                let value = self.varint(kind, end)?;
                self.hold(2 * MAX_VARINT as u64, start)?;
                encode_varint(tag, fields);
                encode_varint(value, fields);
                return Ok(());
            }
            FIXED64 => 8,
            FIXED32 => 4,
            LEN => self.varint(kind, end)?,
            other => {
                return Err(Error::corrupt("wrong-wire-type", "a field has an unknown wire type")
                    .within(kind.name())
                    .at(start)
                    .expected("0, 1, 2 or 5")
                    .found(other));
            }
        };
        if wire == LEN
            && let Some(child) = kind.of_field(number)
        {
            let begin = self.cursor.position();
            // A message that the end of a damaged file cuts is read up to there.
            let is_cut = self.salvage && end == self.cursor.source().len() && len > end.saturating_sub(begin);
            if is_cut {
                let fault = self.too_long(len, end, kind);
                self.out.fault.get_or_insert(fault);
            } else {
                self.need(len, end, kind)?;
            }
            let stop = begin.saturating_add(len).min(end);
            return self.child(child, start, (begin, stop), fields);
        }
        self.need(len, end, kind)?;
        if kind == Message::Blob && is_elements(number) {
            let run = Run { field: number, at: self.cursor.position(), len, tagged: false };
            self.keep(run)?;
            return self.cursor.skip(len, kind.name());
        }
        self.hold(len.saturating_add(2 * MAX_VARINT as u64), start)?;
        let value = self.cursor.bytes(len, kind.name())?;
        encode_varint(tag, fields);
        if wire == LEN {
            encode_varint(len, fields);
        }
        fields.extend_from_slice(&value);
        Ok(())
    }

    fn child(
        &mut self,
        kind: Message,
        at: u64,
        (begin, stop): (u64, u64),
        outer: &mut Vec<u8>,
    ) -> Result<()> {
        self.budget.take_memory(ENTRY)?;
        match kind {
            Message::Blob => {
                self.blobs += 1;
                Limits::check("tensors", "tensors", self.blobs, self.limits.tensors).map_err(|e| e.at(at))?;
                self.all_blobs().push(Blob { at: begin, ..Blob::default() });
                self.out.cut_blob = true;
                let mut fields = Vec::new();
                let done = self.message(kind, stop, &mut fields);
                if let Some(blob) = self.all_blobs().last_mut() {
                    blob.fields = fields;
                }
                done?;
                self.out.cut_blob = self.out.fault.is_some();
                Ok(())
            }
            Message::V0Layer => {
                // The old layer is a field of the new one, without its blobs.
                let mut fields = Vec::new();
                let done = self.message(kind, stop, &mut fields);
                encode_varint(u64::from(LEN) | 1 << 3, outer);
                encode_varint(fields.len() as u64, outer);
                outer.extend_from_slice(&fields);
                done
            }
            _ => {
                self.out.layers.push(Layer { message: kind, fields: Vec::new(), blobs: Vec::new() });
                let mut fields = Vec::new();
                let done = self.message(kind, stop, &mut fields);
                if let Some(layer) = self.out.layers.last_mut() {
                    layer.fields = fields;
                }
                done
            }
        }
    }

    /// Returns the blobs of the last layer, or those of a training state.
    fn all_blobs(&mut self) -> &mut Vec<Blob> {
        match self.out.layers.last_mut() {
            Some(layer) => &mut layer.blobs,
            None => &mut self.out.blobs,
        }
    }

    fn keep(&mut self, run: Run) -> Result<()> {
        self.budget.take_memory(size_of::<Run>() as u64)?;
        if let Some(blob) = self.all_blobs().last_mut() {
            blob.runs.push(run);
        }
        Ok(())
    }

    /// Skips elements that have a tag each, as one run.
    fn tagged(&mut self, field: u32, wire: u8, at: u64, end: u64) -> Result<()> {
        let size = match wire {
            FIXED32 => 4,
            FIXED64 => 8,
            _ => {
                return Err(Error::corrupt(
                    "wrong-wire-type",
                    "the elements of a blob have the wrong wire type",
                )
                .at(at)
                .expected("packed elements: wire type 2")
                .found(wire));
            }
        };
        self.need(size, end, Message::Blob)?;
        self.cursor.skip(size, "a blob")?;
        let len = self.cursor.position() - at;
        if let Some(last) = self.all_blobs().last_mut().and_then(|blob| blob.runs.last_mut())
            && last.tagged
            && last.field == field
            && last.at.checked_add(last.len) == Some(at)
        {
            last.len += len;
            return Ok(());
        }
        self.keep(Run { field, at, len, tagged: true })
    }

    fn hold(&mut self, bytes: u64, at: u64) -> Result<()> {
        self.budget.take_memory(bytes)?;
        self.held = self.held.saturating_add(bytes);
        Limits::check("bytes of the network", "header_bytes", self.held, self.limits.header_bytes)
            .map_err(|e| e.at(at))
    }

    fn varint(&mut self, kind: Message, end: u64) -> Result<u64> {
        let at = self.cursor.position();
        let most = usize::try_from(end.saturating_sub(at)).unwrap_or(MAX_VARINT).min(MAX_VARINT);
        let bytes = self.cursor.peek_up_to(most)?;
        let Some((value, rest)) = varint(bytes) else {
            let (code, text) = match most {
                MAX_VARINT => ("bad-varint", "a number has more than 10 bytes"),
                _ => ("truncated", "a number is incomplete"),
            };
            return Err(Error::corrupt(code, text)
                .within(kind.name())
                .at(at)
                .expected("a number of at most 10 bytes"));
        };
        let len = bytes.len() - rest.len();
        self.cursor.skip(len as u64, kind.name())?;
        Ok(value)
    }

    fn need(&self, len: u64, end: u64, kind: Message) -> Result<()> {
        if len <= end.saturating_sub(self.cursor.position()) {
            return Ok(());
        }
        Err(self.too_long(len, end, kind))
    }

    fn too_long(&self, len: u64, end: u64, kind: Message) -> Error {
        let at = self.cursor.position();
        let (code, what) = match end == self.cursor.source().len() {
            true => ("truncated", "the end of the file"),
            false => ("past-the-end", "the end of the enclosing message"),
        };
        Error::corrupt(code, format!("a field of {} exceeds {what}", kind.name()))
            .at(at)
            .expected(format_args!("{len} bytes from here"))
            .found(format_args!("{} bytes", end.saturating_sub(at)))
            .hint("the file is truncated or damaged; compare its length with the original")
    }
}

/// Returns true for a field of a blob with elements or gradients.
fn is_elements(number: u32) -> bool {
    matches!(number, 5 | 6 | 8 | 9 | 12 | 13)
}
