//! Output of the writer: bytes in frames, and parts that the engine fills in.

use super::{Part, opcode as op};

/// A frame is closed at the first boundary after this many bytes; strings of this length are
/// written outside of frames.
const FRAME_TARGET: u64 = 64 << 10;
/// Minimum length of a frame; CPython writes shorter data without a frame header.
const FRAME_MIN: u64 = 4;
const FRAME_HEADER: usize = 9;

/// Collector of parts that follows the framing of CPython's pickler.
#[derive(Debug, Default)]
pub(super) struct Output {
    parts: Vec<Part>,
    literal: Vec<u8>,
    /// True from protocol 4 on, except while a long string is written.
    pub(super) framing: bool,
    /// Index of the part that begins with the header of the open frame.
    frame: Option<usize>,
    frame_len: u64,
}

impl Output {
    /// Writes bytes, inside a frame if framing is on.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.begin(bytes.len() as u64);
        self.literal.extend_from_slice(bytes);
    }

    fn begin(&mut self, len: u64) {
        if self.framing && self.frame.is_none() {
            self.flush();
            self.frame = Some(self.parts.len());
            self.frame_len = 0;
            self.literal.extend_from_slice(&[0; FRAME_HEADER]);
        }
        self.frame_len += len;
    }

    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.parts.push(Part::Literal(std::mem::take(&mut self.literal)));
        }
    }

    /// Writes a string: opcode and length in `header`, then its `len` bytes.
    pub(super) fn string(&mut self, header: &[u8], data: Part, len: u64) {
        let framing = self.framing;
        if len >= FRAME_TARGET {
            self.close_frame();
            self.framing = false;
        }
        self.bytes(header);
        self.begin(len);
        match data {
            Part::Literal(bytes) => self.literal.extend_from_slice(&bytes),
            part => {
                self.flush();
                self.parts.push(part);
            }
        }
        self.framing = framing;
    }

    /// Closes a frame that is long enough; called between two objects.
    pub(super) fn boundary(&mut self) {
        if self.frame.is_some() && self.frame_len >= FRAME_TARGET {
            self.close_frame();
        }
    }

    fn close_frame(&mut self) {
        let Some(at) = self.frame.take() else { return };
        self.flush();
        let Some(Part::Literal(first)) = self.parts.get_mut(at) else { return };
        if self.frame_len >= FRAME_MIN
            && let Some(header) = first.first_chunk_mut::<FRAME_HEADER>()
        {
            header[0] = op::FRAME;
            header[1..].copy_from_slice(&self.frame_len.to_le_bytes());
        } else {
            first.drain(..FRAME_HEADER.min(first.len()));
        }
    }

    /// Returns all parts, with consecutive literals merged.
    pub(super) fn finish(mut self) -> Vec<Part> {
        self.close_frame();
        self.flush();
        let mut merged: Vec<Part> = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            match (merged.last_mut(), part) {
                (Some(Part::Literal(before)), Part::Literal(bytes)) => before.extend_from_slice(&bytes),
                (_, Part::Literal(bytes)) if bytes.is_empty() => {}
                (_, part) => merged.push(part),
            }
        }
        merged
    }
}
