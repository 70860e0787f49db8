//! Way of writing one tensor of an opened model.

use crate::dtype;
use crate::encode::{MIN_EXTERNAL, Message as Out};
use crate::graph::{Described, Header};
use crate::read;
use crate::rewrite::Storage;
use crate::skeleton::{RAW, is_data};
use crate::typed::{DOUBLES, FLOATS};
use crate::wire::{Field, Fields, Value as Wire};
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_io::source::{RangeSource, SourceRef};

/// Returns true for a tensor with the dtype, shape and bytes of the opened model.
pub(crate) fn is_same(one: &Described, entry: &TensorEntry) -> bool {
    let layout = read::layout(one.header.dtype, &one.header.dims);
    layout.is_ok_and(|(stored, shape, _)| {
        entry.cast.is_none()
            && entry.stored == stored
            && entry.shape == shape
            && entry.single_extent().is_some_and(|extent| shape.bytes(stored) == Some(extent.len))
    })
}

/// Way of writing one tensor.
pub(crate) struct TensorPlan<'a> {
    pub(crate) entry: &'a TensorEntry,
    pub(crate) same_shape: bool,
    pub(crate) same_dtype: bool,
    /// Number of the new dtype.
    pub(crate) number: i64,
    pub(crate) was_external: bool,
    pub(crate) external: bool,
    /// Source and runs of elements in typed fields that are copied.
    copies: Vec<(SourceRef, u64, u64)>,
    /// Number of the field with the elements.
    target: u32,
    has_raw: bool,
    pub(crate) is_put: bool,
    dims_put: bool,
}

impl<'a> TensorPlan<'a> {
    pub(crate) fn of(
        one: &Described,
        entry: &'a TensorEntry,
        inner: &[u8],
        storage: Storage,
    ) -> Result<Self> {
        let Header { dtype: number, dims, is_external, .. } = &one.header;
        let (stored, shape, _) = read::layout(*number, dims)?;
        let (same_shape, same_dtype) = (entry.shape == shape, entry.dtype() == stored);
        let mut markers: Vec<(u32, bool)> = Vec::new();
        for field in Fields::of(inner) {
            let field = field?;
            if is_data(field.number) {
                markers.push((field.number, matches!(field.value, Wire::Bytes(_))));
            }
        }
        let external = match storage {
            Storage::AsOpened => *is_external,
            Storage::External => entry.bytes() >= MIN_EXTERNAL,
            Storage::Inside => false,
        };
        let typed = dtype::typed_field(*number);
        let count = markers.iter().filter(|(field, _)| *field == typed).count();
        let mut copies = Vec::new();
        if !external && is_same(one, entry) && count > 0 {
            copies = runs_of(entry).filter(|runs| runs.len() == count).unwrap_or_default();
        }
        let has_raw = markers.iter().any(|(field, _)| *field == RAW);
        let is_dense = count == 1 && matches!(typed, FLOATS | DOUBLES) && same_dtype;
        let is_packed = markers.contains(&(typed, true));
        let target = if !copies.is_empty() || (!has_raw && is_dense && is_packed) { typed } else { RAW };
        Ok(Self {
            entry,
            same_shape,
            same_dtype,
            number: match same_dtype {
                true => *number,
                false => dtype::number(entry.dtype()).unwrap_or(0),
            },
            was_external: *is_external,
            external,
            copies,
            target,
            has_raw,
            is_put: false,
            dims_put: false,
        })
    }

    pub(crate) fn put_dims(&mut self, out: &mut Out) {
        if !self.dims_put {
            for size in self.entry.shape.dims() {
                out.int(1, i64::try_from(*size).unwrap_or(i64::MAX));
            }
        }
        self.dims_put = true;
    }

    /// Appends the elements in place of a field of the skeleton.
    pub(crate) fn put_data(&mut self, field: &Field<'_>, out: &mut Out) -> Result<()> {
        if self.external {
            return Ok(());
        }
        let is_target = field.number == self.target;
        if is_target && !self.copies.is_empty() {
            let (source, offset, len) = self.copies.remove(0);
            if field.bytes().is_some() {
                out.begin(field.tag, len, field.excess);
            }
            out.put_copy(Arc::new(RangeSource::new(source, offset, len)?), self.entry.name());
            self.is_put = true;
        } else if is_target && field.bytes().is_some() && !self.is_put {
            out.begin(field.tag, self.entry.bytes(), field.excess);
            out.put_elements(self.entry);
            self.is_put = true;
        } else if self.target == RAW && !self.has_raw && !self.is_put && self.entry.bytes() > 0 {
            // Elements of a typed field become `raw_data`.
            self.put_raw(out);
        } else if field.bytes().is_some() && self.copies.is_empty() && !is_target {
            out.raw(field.raw);
        }
        Ok(())
    }

    /// Appends the elements as `raw_data`, unless they are written or there are none.
    pub(crate) fn put_raw(&mut self, out: &mut Out) {
        if !self.is_put && self.entry.bytes() > 0 {
            out.elements(RAW, self.entry);
        }
        self.is_put = true;
    }
}

/// Returns the ranges of encoded elements of a tensor.
fn runs_of(entry: &TensorEntry) -> Option<Vec<(SourceRef, u64, u64)>> {
    let extent = entry.single_extent()?;
    if extent.offset != 0 || extent.len != extent.source.len() {
        return None;
    }
    let parts = extent.source.made_of()?;
    let is_typed = !parts.is_empty() && parts.iter().all(|part| part.encoded);
    is_typed.then(|| parts.iter().map(|part| (part.source.clone(), part.offset, part.len)).collect())
}
