//! Table of the operators that can be exported.

use super::operator::{Row, pir_name};
use super::{
    control, detection, fused, layers, math, norm, pool, quantized, resize, segment, sequence, shapes, vision,
};
use std::collections::HashMap;

/// Tables of the families.
const TABLES: &[&[Row]] = &[
    math::ROWS,
    shapes::ROWS,
    layers::ROWS,
    pool::ROWS,
    norm::ROWS,
    resize::ROWS,
    vision::ROWS,
    detection::ROWS,
    segment::ROWS,
    sequence::ROWS,
    quantized::ROWS,
    fused::ROWS,
];

/// Rows by the names in `ProgramDesc`, and in PIR.
pub(crate) struct Index {
    desc: HashMap<&'static str, &'static Row>,
    pir: HashMap<&'static str, &'static Row>,
}

impl Index {
    /// Creates the index of the table.
    pub(super) fn new() -> Self {
        let mut index = Self { desc: HashMap::new(), pir: HashMap::new() };
        for row in TABLES.iter().flat_map(|table| table.iter()) {
            index.desc.extend(row.desc.split_ascii_whitespace().map(|name| (name, row)));
            index.pir.extend(row.pir.split_ascii_whitespace().map(|name| (name, row)));
        }
        index
    }

    /// Returns the row of an operator.
    pub(super) fn find(&self, kind: &str, is_pir: bool) -> Option<&'static Row> {
        if is_pir { self.pir.get(pir_name(kind)).copied() } else { self.desc.get(kind).copied() }
    }

    /// Returns true for an operator that can be exported, some variants aside.
    pub(super) fn has(&self, kind: &str) -> bool {
        control::handles(kind) || self.find(kind, kind.contains('.')).is_some()
    }
}

/// Returns all rows.
#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// Returns true for an operator that can be exported, some variants aside; its name is that of a program, such as `conv2d` or
/// `pd_op.conv2d`.
pub(crate) fn is_supported(kind: &str) -> bool {
    Index::new().has(kind)
}

/// Returns the operators that can be exported: those of `ProgramDesc` and those of PIR, sorted.
pub(crate) fn supported() -> (Vec<&'static str>, Vec<&'static str>) {
    let index = Index::new();
    let mut desc: Vec<_> = index.desc.keys().copied().chain(control::DESC.iter().copied()).collect();
    let mut pir: Vec<_> = index.pir.keys().copied().chain(control::PIR.iter().copied()).collect();
    desc.sort_unstable();
    desc.dedup();
    pir.sort_unstable();
    pir.dedup();
    (desc, pir)
}
