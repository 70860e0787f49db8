//! Rows of a table that say nothing: all zero, or with a value that is no number.

use crate::checkpoint::{Role, TensorEntry};
use crate::error::Result;
use crate::finding::{Finding, Severity};
use crate::ops::parallel::row_major;
use crate::tensor::{DType, Element, element_at};
use crate::text::escape;

/// Bytes that are read at once.
const BLOCK: u64 = 4 << 20;
/// Rows that are named.
const NAMED: usize = 5;

/// Rows of one kind.
#[derive(Default)]
struct Rows {
    count: u64,
    first: Vec<u64>,
}

impl Rows {
    fn add(&mut self, row: u64) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(row);
        }
    }
}

/// `zero-rows` and `nan-rows` of a tensor of two dimensions: warnings for a table, whose rows are things
/// of their own, remarks for other matrices.
pub(super) fn rows(tensor: &TensorEntry) -> Result<Vec<Finding>> {
    let (&[count, width], Some(size)) = (tensor.shape.dims(), tensor.dtype().size()) else {
        return Ok(Vec::new());
    };
    if count < 2 || width == 0 {
        return Ok(Vec::new());
    }
    let (mut zero, mut nan) = (Rows::default(), Rows::default());
    let (mut row, mut column, mut is_zero, mut has_nan) = (0u64, 0u64, true, false);
    let read = row_major(tensor, BLOCK, &mut |bytes| {
        for element in bytes.chunks_exact(size) {
            let (none, no_number) = judge(tensor.dtype(), element);
            is_zero &= none;
            has_nan |= no_number;
            column += 1;
            if column == width {
                if is_zero {
                    zero.add(row);
                }
                if has_nan {
                    nan.add(row);
                }
                (column, is_zero, has_nan) = (0, true, false);
                row += 1;
            }
        }
        Ok(())
    });
    if let Err(error) = read {
        return match error.code() {
            // Met before, with the checksums.
            "crc-mismatch" => Ok(Vec::new()),
            _ => Ok(vec![super::super::finding(error.on_tensor(tensor.name()))?]),
        };
    }
    let table = tensor.role == Role::Embedding || tensor.labels.is_some();
    let severity = if table { Severity::Warning } else { Severity::Note };
    let mut findings = Vec::new();
    for (code, rows, what) in
        [("zero-rows", zero, "are all 0"), ("nan-rows", nan, "hold what is not a number")]
    {
        if rows.count > 0 {
            let text = format!("{} of {count} rows {what}: {}", rows.count, named(tensor, &rows));
            findings.push(Finding::new(severity, code, text).on_tensor(tensor.name()));
        }
    }
    Ok(findings)
}

/// Whether an element is 0, and whether it is not a number.
fn judge(dtype: DType, element: &[u8]) -> (bool, bool) {
    if element.iter().all(|&byte| byte == 0) {
        return (true, false);
    }
    match element_at(dtype, element, 0) {
        Some(Element::Float(x)) => (x == 0.0, x.is_nan()),
        Some(Element::Complex(re, im)) => (re == 0.0 && im == 0.0, re.is_nan() || im.is_nan()),
        _ => (false, false),
    }
}

/// The first rows by number, and by name where the table has names.
fn named(tensor: &TensorEntry, rows: &Rows) -> String {
    let names = tensor.labels.as_ref().and_then(|labels| labels.read().ok());
    let one = |&row: &u64| {
        let name = usize::try_from(row).ok().and_then(|row| names.as_ref()?.get(row).map(escape));
        name.map_or_else(|| row.to_string(), |name| format!("{row} ({name})"))
    };
    let mut text = rows.first.iter().map(one).collect::<Vec<_>>().join(", ");
    let more = rows.count - rows.first.len() as u64;
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
