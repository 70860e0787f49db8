//! Elements in typed fields: numbers of variable length, and numbers with a tag each.

use crate::skeleton::Run;
use crate::wire::{FIXED32, FIXED64, LEN, MAX_VARINT, varint};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Values between two entries of the index.
const STEP: u64 = 4096;
/// Bytes read at once.
const WINDOW: u64 = 64 << 10;

/// Number of the field with 32-bit floats.
pub(crate) const FLOATS: u32 = 4;
/// Number of the field with 64-bit floats.
pub(crate) const DOUBLES: u32 = 10;

/// Elements of typed fields as little-endian bytes.
#[derive(Debug)]
pub(crate) struct TypedSource {
    outer: SourceRef,
    runs: Vec<Run>,
    /// Bytes of a value.
    width: u64,
    is_bool: bool,
    values: u64,
    /// Place of every 4096th value: the run, and the offset in the file.
    index: Vec<(usize, u64)>,
}

/// Position of the next value.
struct At {
    run: usize,
    offset: u64,
}

/// Bytes read from the file.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Vec<u8>,
}

impl TypedSource {
    /// Creates the source of the elements of `runs`, and counts them. Integers are read once for that.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for malformed numbers; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn new(outer: &SourceRef, runs: &[Run], dtype: DType, budget: &Budget) -> Result<Self> {
        let field = runs.first().map_or(0, |run| run.field);
        let width = match (field, dtype) {
            (FLOATS, _) => 4,
            (DOUBLES, _) => 8,
            (_, dtype) => dtype.size().unwrap_or(1) as u64,
        };
        let mut typed = Self {
            outer: outer.clone(),
            runs: runs.to_vec(),
            width,
            is_bool: dtype == DType::Bool,
            values: 0,
            index: Vec::new(),
        };
        let bytes = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.len));
        budget.take_work(bytes)?;
        budget.take_memory(bytes / STEP * size_of::<(usize, u64)>() as u64)?;
        let mut at = At { run: 0, offset: runs.first().map_or(0, |run| run.at) };
        let mut window = Window::default();
        while typed.settle(&mut at)? {
            if typed.values.is_multiple_of(STEP) {
                typed.index.push((at.run, at.offset));
            }
            typed.next(&mut at, &mut window)?;
            typed.values += 1;
        }
        Ok(typed)
    }

    /// Returns the number of values.
    pub(crate) fn values(&self) -> u64 {
        self.values
    }

    /// Moves to the next run at the end of one; false at the end of all.
    fn settle(&self, at: &mut At) -> Result<bool> {
        while let Some(run) = self.runs.get(at.run) {
            let end = run.at.saturating_add(run.len);
            if at.offset < end {
                return Ok(true);
            }
            if at.offset > end {
                return Err(self.malformed(end));
            }
            at.run += 1;
            at.offset = self.runs.get(at.run).map_or(0, |next| next.at);
        }
        Ok(false)
    }

    fn malformed(&self, at: u64) -> Error {
        Error::corrupt("bad-varint", "an element of a typed field is malformed")
            .in_file(self.outer.label())
            .at(at)
    }

    /// Reads the value at a position in a run, and moves behind it.
    fn next(&self, at: &mut At, window: &mut Window) -> Result<u64> {
        let Some(run) = self.runs.get(at.run) else { return Err(self.malformed(at.offset)) };
        let end = run.at.saturating_add(run.len);
        let start = at.offset + u64::from(run.wire != LEN);
        let most = end.saturating_sub(start).min(MAX_VARINT as u64);
        let bytes = window.view(&self.outer, start, to_usize(most)?, end)?;
        let (value, len) = match (run.field, run.wire) {
            (FLOATS, _) | (_, FIXED32) => {
                let bytes = bytes.first_chunk::<4>().ok_or_else(|| self.malformed(start))?;
                (u64::from(u32::from_le_bytes(*bytes)), 4)
            }
            (DOUBLES, _) | (_, FIXED64) => {
                let bytes = bytes.first_chunk::<8>().ok_or_else(|| self.malformed(start))?;
                (u64::from_le_bytes(*bytes), 8)
            }
            _ => {
                let (value, rest) = varint(bytes).ok_or_else(|| self.malformed(start))?;
                let value = if self.is_bool { u64::from(value != 0) } else { value };
                (value, (bytes.len() - rest.len()) as u64)
            }
        };
        at.offset = start + len;
        Ok(value)
    }
}

impl Window {
    /// Returns `len` bytes from `at`; `end` is the end of the run.
    fn view(&mut self, source: &SourceRef, at: u64, len: usize, end: u64) -> Result<&[u8]> {
        let held = self.at..self.at.saturating_add(self.bytes.len() as u64);
        if !held.contains(&at) || at.saturating_add(len as u64) > held.end {
            let take = to_usize(end.saturating_sub(at).min(WINDOW))?;
            self.bytes.resize(take, 0);
            self.at = at;
            source.read_at(at, &mut self.bytes)?;
        }
        let from = to_usize(at - self.at)?;
        Ok(self.bytes.get(from..from.saturating_add(len)).unwrap_or_default())
    }
}

impl Source for TypedSource {
    fn len(&self) -> u64 {
        self.values.saturating_mul(self.width)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let first = offset / self.width;
        let Some(&(run, start)) = self.index.get(to_usize(first / STEP)?) else {
            return Err(self.malformed(0));
        };
        let mut at = At { run, offset: start };
        let mut window = Window::default();
        for _ in 0..first % STEP {
            self.settle(&mut at)?;
            self.next(&mut at, &mut window)?;
        }
        let (mut skip, mut rest) = (to_usize(offset % self.width)?, buffer);
        while !rest.is_empty() {
            self.settle(&mut at)?;
            let value = self.next(&mut at, &mut window)?.to_le_bytes();
            let value = value.get(skip..to_usize(self.width)?).unwrap_or_default();
            let take = value.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(value.get(..take).unwrap_or_default());
            (rest, skip) = (later, 0);
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_decoded(&self) -> bool {
        true
    }

    fn within(&self) -> Option<Within<'_>> {
        None
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        let range = |run: &Run| Within { source: &self.outer, offset: run.at, len: run.len, encoded: true };
        Some(self.runs.iter().map(range).collect())
    }
}

/// Returns the source as a shared one.
pub(crate) fn shared(source: TypedSource) -> SourceRef {
    Arc::new(source)
}
