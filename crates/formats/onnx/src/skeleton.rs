//! Skeleton of a model: all of its bytes but the elements of tensors.
//!
//! The file is walked once, field by field. Elements are skipped, not read. Everything else is kept as a message of its own, in which
//! each field of elements is empty, so it is a valid model without elements. The n-th tensor of the skeleton is the n-th [`Stored`].

use crate::wire::{FIXED32, FIXED64, LEN, MAX_VARINT, VARINT, push_length, varint, varint_len};
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef};

/// Message of a model that contains tensors, at any depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Whole file.
    Model,
    /// Graphs of a training step.
    Training,
    /// Graph.
    Graph,
    /// Node.
    Node,
    /// Attribute of a node.
    Attribute,
    /// Function.
    Function,
    /// Sparse tensor: values and indices.
    Sparse,
    /// Tensor.
    Tensor,
}

impl Message {
    /// Returns the message of a field, if it contains tensors.
    pub(crate) fn of_field(self, number: u32) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Training, 1 | 2) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            _ => return None,
        })
    }

    /// Returns the name for errors.
    fn name(self) -> &'static str {
        match self {
            Self::Model => "the model",
            Self::Training => "a training step",
            Self::Graph => "a graph",
            Self::Node => "a node",
            Self::Attribute => "an attribute",
            Self::Function => "a function",
            Self::Sparse => "a sparse tensor",
            Self::Tensor => "a tensor",
        }
    }
}

/// Field with `raw_data`.
pub(crate) const RAW: u32 = 9;

/// Returns true for a field of a tensor with elements.
pub(crate) fn is_data(number: u32) -> bool {
    matches!(number, 4 | 5 | 7 | RAW | 10 | 11)
}

/// Elements of a tensor in the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    /// Offset of the message of the tensor.
    pub(crate) at: u64,
    /// Fields with elements, in order.
    pub(crate) runs: Vec<Run>,
    /// Error of elements that the file does not contain completely.
    pub(crate) damage: Option<Damage>,
}

/// Bytes of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// Number of the field.
    pub(crate) field: u32,
    /// Wire type: that of a packed field has a length, those of other fields are repeated for each element.
    pub(crate) wire: u8,
    /// Offset of the first byte: of the payload of a packed field, else of the first tag.
    pub(crate) at: u64,
    /// Number of bytes.
    pub(crate) len: u64,
}

/// Skeleton of a model, with the places of its elements.
#[derive(Debug, Default)]
pub(crate) struct Skeleton {
    /// Model without elements.
    pub(crate) bytes: Vec<u8>,
    /// Tensors, in the order of the file.
    pub(crate) tensors: Vec<Stored>,
    /// First damage, if the file was salvaged.
    pub(crate) damage: Option<Error>,
}

impl Skeleton {
    /// Walks a model. `salvage` skips damaged messages and ends at the end of a truncated file.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] with the offset of a malformed field; [`Kind::Limit`].
    pub(crate) fn read(source: &SourceRef, limits: &Limits, salvage: bool) -> Result<Self> {
        let budget = limits.budget_of(source);
        let mut walk = Walk {
            cursor: Cursor::new(source.clone(), 0),
            limits,
            budget,
            held: 0,
            salvage,
            is_cut: false,
            functions: Vec::new(),
            out: Self::default(),
        };
        let bytes = walk.message(Message::Model, source.len(), 0)?;
        if let Some(damage) = walk.out.damage.as_ref().map(Damage::of) {
            // The last fields of a function name its tensors, so a damaged length may take them away.
            for place in std::mem::take(&mut walk.functions).into_iter().flatten() {
                if let Some(stored) = walk.out.tensors.get_mut(place) {
                    stored.damage.get_or_insert_with(|| damage.clone());
                }
            }
        }
        walk.out.bytes = bytes;
        Ok(walk.out)
    }
}

struct Walk<'a> {
    cursor: Cursor,
    limits: &'a Limits,
    budget: Budget,
    held: u64,
    salvage: bool,
    is_cut: bool,
    /// Tensors of functions.
    functions: Vec<std::ops::Range<usize>>,
    out: Skeleton,
}

impl Walk<'_> {
    /// Returns the skeleton of the message from the position to `end`.
    fn message(&mut self, kind: Message, end: u64, depth: usize) -> Result<Vec<u8>> {
        Budget::check_depth(depth).map_err(|e| e.at(self.cursor.position()))?;
        let mut out = Vec::new();
        let index = self.out.tensors.len();
        if kind == Message::Tensor {
            let at = self.cursor.position();
            Limits::check("tensors", "tensors", index as u64 + 1, self.limits.tensors)
                .map_err(|e| e.at(at))?;
            self.budget.take_memory(size_of::<Stored>() as u64)?;
            self.out.tensors.push(Stored { at, ..Stored::default() });
        }
        while self.cursor.position() < end && !self.is_cut {
            let start = self.cursor.position();
            match self.field(kind, end, depth, index, &mut out) {
                Err(error) if self.salvage && error.kind() == Kind::Corrupt => {
                    let error = error.at(start);
                    if end == self.cursor.source().len() {
                        // The rest of the file has no reliable beginning.
                        self.is_cut = true;
                        if matches!(kind, Message::Tensor | Message::Function) {
                            self.lose_from(index, &Damage::of(&error));
                        }
                    } else if depth > 1 {
                        // A wrong length may have moved names before the error was found.
                        return Err(error);
                    } else {
                        self.cursor = Cursor::new(self.cursor.source().clone(), end);
                    }
                    self.out.damage.get_or_insert(error);
                }
                done => done?,
            }
        }
        Ok(out)
    }

    /// Marks the tensors from an index on as lost.
    fn lose_from(&mut self, index: usize, damage: &Damage) {
        for stored in self.out.tensors.iter_mut().skip(index) {
            stored.damage.get_or_insert_with(|| damage.clone());
        }
    }

    /// Appends one field to the skeleton of its message.
    fn field(
        &mut self,
        kind: Message,
        end: u64,
        depth: usize,
        index: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = self.cursor.position();
        let (tag, tag_bytes) = self.varint(kind, end)?;
        let fail = |code, text| Error::corrupt(code, text).at(start).within(kind.name());
        let Some(number) = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n)) else {
            return Err(fail("bad-field-number", "the number of a field is invalid")
                .expected("1 to 536870911")
                .found(tag >> 3));
        };
        let wire = (tag & 7) as u8;
        if kind == Message::Tensor && is_data(number) && wire != LEN {
            return self.repeated(number, wire, start, end, index, out, &tag_bytes);
        }
        match wire {
            VARINT => {
                let (_, value) = self.varint(kind, end)?;
                self.hold(tag_bytes.len() + value.len(), start)?;
                out.extend_from_slice(&tag_bytes);
                out.extend_from_slice(&value);
            }
            FIXED64 | FIXED32 => {
                let len = if wire == FIXED64 { 8 } else { 4 };
                self.need(len, end, kind)?;
                let value = self.cursor.bytes(len, kind.name())?;
                self.hold(tag_bytes.len() + value.len(), start)?;
                out.extend_from_slice(&tag_bytes);
                out.extend_from_slice(&value);
            }
            LEN => {
                let (len, len_bytes) = self.varint(kind, end)?;
                let excess = len_bytes.len().saturating_sub(varint_len(len));
                let begin = self.cursor.position();
                let stop = begin.checked_add(len).filter(|&stop| stop <= end);
                let child = kind.of_field(number);
                let (mut cut, first) = (None, self.out.tensors.len());
                let stop = match stop {
                    Some(stop) => stop,
                    // A message that the end of the file cuts is read up to there.
                    None if self.salvage && child.is_some() && end == self.cursor.source().len() => {
                        let error = self.too_long(len, end, kind);
                        cut = Some(Damage::of(&error));
                        self.out.damage.get_or_insert(error);
                        end
                    }
                    None if self.salvage && end == self.cursor.source().len() => {
                        let cut = self.too_long(len, end, kind);
                        if matches!(kind, Message::Tensor | Message::Function) {
                            self.lose_from(index, &Damage::of(&cut));
                        }
                        self.out.damage.get_or_insert(cut);
                        self.is_cut = true;
                        return Ok(());
                    }
                    None => return Err(self.too_long(len, end, kind)),
                };
                self.hold(tag_bytes.len() + len_bytes.len(), start)?;
                if let Some(child) = child {
                    self.child(child, (begin, stop), depth, (&tag_bytes, excess), out)?;
                    // The name of a tensor may be in the lost part; a function names its tensors by its last fields.
                    let is_named_late = matches!(child, Message::Tensor | Message::Function);
                    if let Some(cut) = cut.filter(|_| is_named_late) {
                        self.lose_from(first, &cut);
                    }
                } else if kind == Message::Tensor && is_data(number) {
                    self.keep_run(index, Run { field: number, wire, at: begin, len })?;
                    self.cursor.skip(len, kind.name())?;
                    out.extend_from_slice(&tag_bytes);
                    push_length(out, 0, excess);
                } else {
                    self.hold(usize::try_from(len).unwrap_or(usize::MAX), start)?;
                    let value = self.cursor.bytes(len, kind.name())?;
                    out.extend_from_slice(&tag_bytes);
                    out.extend_from_slice(&len_bytes);
                    out.extend_from_slice(&value);
                }
            }
            other => {
                return Err(fail("wrong-wire-type", "a field has an unknown wire type")
                    .expected("0, 1, 2 or 5")
                    .found(other));
            }
        }
        Ok(())
    }

    /// Appends the skeleton of a nested message.
    fn child(
        &mut self,
        kind: Message,
        (begin, stop): (u64, u64),
        depth: usize,
        (tag, excess): (&[u8], usize),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (tensors, was_cut) = (self.out.tensors.len(), self.is_cut);
        let inner = match self.message(kind, stop, depth + 1) {
            Err(error) if self.salvage && error.kind() == Kind::Corrupt && !was_cut && depth <= 1 => {
                // The damaged message is omitted; its length leads to the next one.
                self.out.damage.get_or_insert(error);
                self.out.tensors.truncate(tensors);
                self.cursor = Cursor::new(self.cursor.source().clone(), stop);
                return Ok(());
            }
            inner => inner?,
        };
        if kind == Message::Function && self.salvage {
            self.functions.push(tensors..self.out.tensors.len());
        }
        debug_assert!(self.is_cut || self.cursor.position() == stop, "{begin}");
        self.budget.take_work(inner.len() as u64)?;
        out.extend_from_slice(tag);
        push_length(out, inner.len() as u64, excess);
        out.extend_from_slice(&inner);
        Ok(())
    }

    /// Skips elements that have a tag each. The skeleton has one of them, of value 0.
    #[allow(clippy::too_many_arguments)]
    fn repeated(
        &mut self,
        number: u32,
        wire: u8,
        start: u64,
        end: u64,
        index: usize,
        out: &mut Vec<u8>,
        tag: &[u8],
    ) -> Result<()> {
        let kind = Message::Tensor;
        let expected = match number {
            4 => FIXED32,
            10 => FIXED64,
            RAW => LEN,
            _ => VARINT,
        };
        if wire != expected || tag.len() != 1 {
            return Err(Error::corrupt(
                "wrong-wire-type",
                "the elements of a tensor have the wrong wire type",
            )
            .at(start)
            .expected(format_args!("wire type {expected} or {LEN}"))
            .found(wire));
        }
        let first = tag.first().copied().unwrap_or(0);
        let mut is_first = true;
        loop {
            if !is_first {
                let next = self.cursor.position();
                let more = next < end && self.cursor.peek_up_to(1)?.first() == Some(&first);
                if !more {
                    break;
                }
                self.cursor.skip(1, kind.name())?;
            }
            is_first = false;
            match wire {
                VARINT => _ = self.varint(kind, end)?,
                FIXED32 => {
                    self.need(4, end, kind)?;
                    self.cursor.skip(4, kind.name())?;
                }
                _ => {
                    self.need(8, end, kind)?;
                    self.cursor.skip(8, kind.name())?;
                }
            }
        }
        let len = self.cursor.position() - start;
        self.keep_run(index, Run { field: number, wire, at: start, len })?;
        self.hold(9, start)?;
        out.extend_from_slice(tag);
        out.extend(std::iter::repeat_n(
            0,
            match wire {
                VARINT => 1,
                FIXED32 => 4,
                _ => 8,
            },
        ));
        Ok(())
    }

    fn keep_run(&mut self, index: usize, run: Run) -> Result<()> {
        self.budget.take_memory(2 * size_of::<Run>() as u64)?;
        if let Some(stored) = self.out.tensors.get_mut(index) {
            stored.runs.push(run);
        }
        Ok(())
    }

    /// Counts bytes of the skeleton before they are read.
    fn hold(&mut self, bytes: usize, at: u64) -> Result<()> {
        self.held = self.held.saturating_add(bytes as u64);
        let limit = self.limits.header_bytes;
        Limits::check("bytes of header", "header_bytes", self.held, limit).map_err(|e| e.at(at))
    }

    /// Reads a number of variable length, and returns its bytes.
    fn varint(&mut self, kind: Message, end: u64) -> Result<(u64, Varint)> {
        let at = self.cursor.position();
        let most = usize::try_from(end.saturating_sub(at)).unwrap_or(MAX_VARINT).min(MAX_VARINT);
        let bytes = self.cursor.peek_up_to(most)?;
        let Some((value, rest)) = varint(bytes) else {
            let (code, text) = match most {
                MAX_VARINT => ("bad-varint", "a number has more than 10 bytes"),
                _ => ("truncated", "a number is incomplete"),
            };
            let ends = format!("the end of {} at {end}", kind.name());
            return Err(Error::corrupt(code, text)
                .at(at)
                .expected("a number of at most 10 bytes")
                .found(ends));
        };
        let len = bytes.len() - rest.len();
        let mut all = [0; MAX_VARINT];
        for (to, from) in all.iter_mut().zip(bytes.iter().take(len)) {
            *to = *from;
        }
        self.cursor.skip(len as u64, kind.name())?;
        Ok((value, Varint { bytes: all, len }))
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
            .hint("the download may be incomplete; compare the length of the file with the original")
    }
}

/// Place where a truncated file ends within the elements of a tensor.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    message: String,
    at: u64,
    expected: String,
    found: String,
}

impl Damage {
    fn of(error: &Error) -> Self {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self {
            message: error.message().to_owned(),
            at: error.offset().unwrap_or(0),
            expected: text(error.expected_text()),
            found: text(error.found_text()),
        }
    }

    /// Returns the error.
    pub(crate) fn again(&self) -> Error {
        let error = Error::corrupt("truncated", self.message.as_str());
        error.at(self.at).expected(&self.expected).found(&self.found)
    }
}

/// Bytes of a number of variable length.
struct Varint {
    bytes: [u8; MAX_VARINT],
    len: usize,
}

impl std::ops::Deref for Varint {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}
