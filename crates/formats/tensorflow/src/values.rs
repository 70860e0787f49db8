//! Elements in typed fields of a `TensorProto`. The last one is repeated up to the number of elements; without any, all are zero.

use crate::wire::varint;
use std::sync::{Arc, OnceLock};
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, read_vec, to_usize};

/// Field with the elements as they are in memory.
pub(crate) const CONTENT: u32 = 4;
/// Field with 8-bit floats, as they are in memory.
const FLOAT8: u32 = 18;

/// Part of the elements: the payload of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the field.
    pub(crate) field: u32,
    /// Offset of the payload.
    pub(crate) at: u64,
    /// Length of the payload.
    pub(crate) len: u64,
    /// True for one number of variable length outside a list.
    pub(crate) is_varint: bool,
}

/// Form of the numbers in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Numbers as in memory, with this many bytes for each.
    Plain(u64),
    /// Numbers of variable length.
    Varint,
}

/// Returns the number of the field for the elements of a dtype, and the form of its numbers.
fn field_of(dtype: DType) -> Option<(u32, Form)> {
    Some(match dtype {
        DType::F32 => (5, Form::Plain(4)),
        DType::F64 => (6, Form::Plain(8)),
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::I32 => (7, Form::Varint),
        DType::C64 => (9, Form::Plain(8)),
        DType::I64 => (10, Form::Varint),
        DType::Bool => (11, Form::Varint),
        DType::C128 => (12, Form::Plain(16)),
        DType::F16 | DType::BF16 => (13, Form::Varint),
        DType::U32 => (16, Form::Varint),
        DType::U64 => (17, Form::Varint),
        DType::F8E4M3 | DType::F8E5M2 | DType::F8E4M3Fnuz | DType::F8E5M2Fnuz => (FLOAT8, Form::Plain(1)),
        _ => return None,
    })
}

/// Returns true for a field of a `TensorProto` with elements.
pub(crate) fn is_data(field: u32) -> bool {
    matches!(field, 4..=13 | 16..=18) && field != 8
}

/// Place of the elements of a tensor.
#[derive(Debug)]
pub(crate) enum Elements {
    /// Bytes of the file.
    Plain(u64),
    /// Numbers to decode or to repeat.
    Values(Values),
}

/// Finds the elements of a tensor of `count` elements in `runs`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `length-mismatch`, `bad-varint`; [`weighbridge_core::Kind::Limit`].
pub(crate) fn find(
    source: &SourceRef,
    runs: &[Run],
    dtype: DType,
    count: u64,
    at: u64,
    budget: &Budget,
) -> Result<Elements> {
    let width = dtype.size().unwrap_or(1) as u64;
    let bytes = count.checked_mul(width);
    let wrong = |found: String, at: u64| {
        Error::corrupt("length-mismatch", "the elements do not match dtype and shape")
            .at(at)
            .expected(format_args!("{count} elements of {dtype}"))
            .found(found)
    };
    // A later field replaces an earlier one. An empty one is none.
    if let Some(run) = runs.iter().rfind(|run| run.field == CONTENT && run.len > 0) {
        return match Some(run.len) == bytes {
            true => Ok(Elements::Plain(run.at)),
            false => Err(wrong(format!("{} bytes", run.len), run.at)),
        };
    }
    let Some((field, form)) = field_of(dtype) else { return Err(wrong("none".to_owned(), at)) };
    let runs: Vec<Run> = runs.iter().copied().filter(|run| run.field == field && run.len > 0).collect();
    let stored = match form {
        Form::Plain(size) => {
            let len = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.len));
            if !len.is_multiple_of(size) {
                return Err(wrong(format!("{len} bytes"), runs.first().map_or(at, |run| run.at)));
            }
            len / size
        }
        Form::Varint => counted(source, &runs, budget)?,
    };
    if stored > count {
        return Err(wrong(format!("{stored} elements"), runs.first().map_or(at, |run| run.at)));
    }
    match (form, runs.as_slice()) {
        (Form::Plain(_), [run]) if stored == count => Ok(Elements::Plain(run.at)),
        _ => {
            budget.take_memory(runs.len() as u64 * size_of::<Run>() as u64)?;
            let len = bytes.ok_or_else(|| wrong("more than 2^64 bytes".to_owned(), at))?;
            let decoded = Arc::new(OnceLock::new());
            Ok(Elements::Values(Values {
                outer: source.clone(),
                runs,
                form,
                dtype,
                width,
                len,
                stored,
                decoded,
            }))
        }
    }
}

/// Counts numbers of variable length.
fn counted(source: &SourceRef, runs: &[Run], budget: &Budget) -> Result<u64> {
    let mut count = 0;
    for run in runs {
        budget.take_work(run.len)?;
        if run.is_varint {
            count += 1;
            continue;
        }
        let bytes = read_vec(&**source, run.at, run.len)?;
        if bytes.last().is_some_and(|&last| last >= 0x80) {
            return Err(malformed(source, run));
        }
        count += bytes.iter().filter(|&&byte| byte < 0x80).count() as u64;
    }
    Ok(count)
}

fn malformed(source: &SourceRef, run: &Run) -> Error {
    Error::corrupt("bad-varint", "an element of a typed field is malformed")
        .in_file(source.label())
        .at(run.at)
}

/// Elements of typed fields as little-endian bytes.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    outer: SourceRef,
    runs: Vec<Run>,
    form: Form,
    dtype: DType,
    width: u64,
    len: u64,
    /// Number of stored elements.
    stored: u64,
    /// Stored elements: at most 8 times as long as in the file.
    decoded: Arc<OnceLock<Vec<u8>>>,
}

impl Values {
    /// Returns the bytes of elements that are not stored: repeated ones.
    pub(crate) fn repeated(&self) -> u64 {
        self.len.saturating_sub(self.stored.saturating_mul(self.width))
    }

    fn decode(&self) -> Result<Vec<u8>> {
        let width = to_usize(self.width)?;
        let mut all = Vec::new();
        for run in &self.runs {
            let bytes = read_vec(&*self.outer, run.at, run.len)?;
            if let Form::Plain(_) = self.form {
                all.extend(bytes);
                continue;
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (value, after) = varint(rest).ok_or_else(|| malformed(&self.outer, run))?;
                let value = if self.dtype == DType::Bool { u64::from(value != 0) } else { value };
                all.extend_from_slice(value.to_le_bytes().get(..width).unwrap_or_default());
                rest = after;
            }
        }
        Ok(all)
    }
}

impl Source for Values {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if self.decoded.get().is_none() {
            // A second thread may have decoded the same bytes.
            _ = self.decoded.set(self.decode()?);
        }
        let stored = self.decoded.get().map(Vec::as_slice).unwrap_or_default();
        let width = to_usize(self.width)?;
        let last = stored.len().checked_sub(width).and_then(|from| stored.get(from..));
        let zero = [0; 16];
        let last = last.unwrap_or(zero.get(..width).unwrap_or_default());
        let own = to_usize(offset.min(stored.len() as u64))?;
        let (copied, rest) = buffer.split_at_mut(buffer.len().min(stored.len() - own));
        copied.copy_from_slice(stored.get(own..own + copied.len()).unwrap_or_default());
        let begin = to_usize((offset + copied.len() as u64) % self.width)?;
        for (byte, value) in rest.iter_mut().zip(last.iter().cycle().skip(begin)) {
            *byte = *value;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_decoded(&self) -> bool {
        true
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        let range = |run: &Run| Within { source: &self.outer, offset: run.at, len: run.len, encoded: true };
        Some(self.runs.iter().map(range).collect())
    }
}
