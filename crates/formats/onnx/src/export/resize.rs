//! Translations.

use super::operator::Row;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[];
