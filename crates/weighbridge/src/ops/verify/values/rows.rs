//! Degenerate rows of a table: all zero, or with NaN.

use crate::checkpoint::{Role, TensorEntry};
use crate::error::Result;
use crate::finding::{Finding, Severity};
use crate::ops::parallel::row_major;
use crate::ops::stats::Stats;
use crate::source::to_usize;
use crate::tensor::{DType, Element};
use crate::text::{and_more, escape};
use weighbridge_core::ErrorCode;

/// Block size in bytes.
const BLOCK: u64 = 4 << 20;
/// Number of rows named in a finding.
const NAMED: usize = 5;

/// Count of rows, with the first ones.
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

/// Returns `zero-rows` and `nan-rows` of a matrix: warnings for a table, whose rows have meanings of their own, remarks for
/// other matrices. Nothing is read where the number of zeros and NaN excludes such rows.
pub(super) fn rows(tensor: &TensorEntry, stats: &Stats) -> Result<Vec<Finding>> {
    let (&[count, width], Some(size)) = (tensor.shape.dims(), tensor.dtype().size()) else {
        return Ok(Vec::new());
    };
    let any_nan = stats.nan > 0;
    if count < 2 || width == 0 || !(stats.zeros >= width || any_nan) {
        return Ok(Vec::new());
    }
    let dtype = tensor.dtype();
    let (mut zero, mut nan) = (Rows::default(), Rows::default());
    let (mut row, mut column, mut is_zero, mut has_nan) = (0u64, 0u64, true, false);
    let read = row_major(tensor, BLOCK, &mut |mut bytes| {
        while !bytes.is_empty() {
            // The part of the row in this block.
            let len = (width - column).saturating_mul(size as u64).min(bytes.len() as u64);
            let (part, rest) = bytes.split_at(to_usize(len)?);
            is_zero = is_zero && part.chunks_exact(size).all(|element| classify(dtype, element).0);
            has_nan |= any_nan && part.chunks_exact(size).any(|element| classify(dtype, element).1);
            column += len / size as u64;
            bytes = rest;
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
            // Reported before, with the checksums.
            ErrorCode::CrcMismatch => Ok(Vec::new()),
            _ => Ok(vec![super::super::finding(error.on_tensor(tensor.name()))?]),
        };
    }
    let table = tensor.role == Role::Embedding || tensor.row_names.is_some();
    let severity = if table { Severity::Warning } else { Severity::Note };
    let mut findings = Vec::new();
    for (code, rows, what) in [("zero-rows", zero, "all 0"), ("nan-rows", nan, "with NaN")] {
        if rows.count > 0 {
            let word = if rows.count == 1 { "row" } else { "rows" };
            let text = format!("{} of {count} rows {what}: {word} {}", rows.count, named(tensor, &rows));
            findings.push(Finding::new(severity, code, text).on_tensor(tensor.name()));
        }
    }
    Ok(findings)
}

/// Returns whether an element is 0, and whether it is NaN.
fn classify(dtype: DType, element: &[u8]) -> (bool, bool) {
    if element.iter().all(|&byte| byte == 0) {
        return (true, false);
    }
    match dtype.element_at(element, 0) {
        Some(Element::Float(x)) => (x == 0.0, x.is_nan()),
        Some(Element::Complex(re, im)) => (re == 0.0 && im == 0.0, re.is_nan() || im.is_nan()),
        _ => (false, false),
    }
}

/// Returns the first rows by number, and by name where the table has names.
fn named(tensor: &TensorEntry, rows: &Rows) -> String {
    let names = tensor.row_names.as_ref().and_then(|names| names.read().ok());
    let one = |&row: &u64| {
        let name = usize::try_from(row).ok().and_then(|row| names.as_ref()?.get(row).map(escape));
        name.map_or_else(|| row.to_string(), |name| format!("{row} ({name})"))
    };
    let text = rows.first.iter().map(one).collect::<Vec<_>>().join(", ");
    and_more(text, rows.count.saturating_sub(rows.first.len() as u64))
}
