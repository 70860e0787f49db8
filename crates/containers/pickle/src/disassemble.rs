//! Disassembly of a pickle: one line per opcode.

use super::decode::{Arg, Op, Opcodes};
use super::graph::{Blob, Location, Text};
use std::fmt;
use weighbridge_core::error::Result;
use weighbridge_core::text::escape;
use weighbridge_io::source::SourceRef;

/// Maximum number of characters shown of a string.
const MAX_SHOWN: usize = 40;

impl fmt::Display for Op {
    /// Writes offset, name and argument, escaped for terminals. Long strings are shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10}: {}", self.offset, self.name())?;
        match &self.arg {
            Arg::None => Ok(()),
            Arg::Bool(value) => write!(f, " {value}"),
            Arg::Int(n) => write!(f, " {n}"),
            Arg::Number(n) => write!(f, " {n}"),
            Arg::BigInt(bytes) => write!(f, " an integer of {} bytes", bytes.len()),
            Arg::Float(x) => write!(f, " {x}"),
            Arg::Text(text) | Arg::ByteString(text) => show_text(f, text),
            Arg::Bytes(blob) => show_blob(f, blob),
            Arg::Global(module, name) => write!(f, " {}", escape(&format!("{module} {name}"))),
        }
    }
}

fn show_text(f: &mut fmt::Formatter<'_>, text: &Text) -> fmt::Result {
    match (&text.short, text.place) {
        (Some(text), _) => {
            let shown: String = text.chars().take(MAX_SHOWN).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            write!(f, " \"{}\"{more}", escape(&shown))
        }
        (None, Location::Source(span)) => write!(f, " text of {} bytes at offset {}", span.len, span.offset),
        (None, _) => Ok(()),
    }
}

fn show_blob(f: &mut fmt::Formatter<'_>, blob: &Blob) -> fmt::Result {
    match (&blob.short, blob.place) {
        (Some(bytes), _) => {
            write!(f, " ")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
        (None, Location::Source(span)) => write!(f, " {} bytes at offset {}", span.len, span.offset),
        (None, _) => Ok(()),
    }
}

/// Disassembles the pickle at `offset` of `source`: calls `line` with each opcode and its text.
///
/// # Errors
/// Same as [`Opcodes::next_op`], after the lines before it; also errors of `line`.
pub fn disassemble(
    source: &SourceRef,
    offset: u64,
    line: &mut dyn FnMut(&Op, &str) -> Result<()>,
) -> Result<()> {
    for op in Opcodes::new(source, offset) {
        let op = op.map_err(|e| e.in_file(source.label()))?;
        line(&op, &op.to_string())?;
    }
    Ok(())
}
