//! Flat tensors: parameters one after another, in parts of several ranks.

use std::sync::Arc;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{Role, TensorEntry, TensorPath};
use weighbridge_core::checksum::Check;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::source::{ConcatSource, Source, Within};
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::Saved;

/// Memory of a byte range, in the source that joins them.
const RANGE: u64 = 64;

/// Byte ranges of a tensor.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Range>);

/// Byte range.
#[derive(Debug)]
struct Range {
    source: SourceRef,
    offset: u64,
    len: u64,
    /// Checksum of the storage around it.
    check: Option<Arc<Check>>,
}

impl Range {
    /// Returns the source with a comparison of the checksum, if it has one.
    fn checked(&self) -> SourceRef {
        match &self.check {
            None => self.source.clone(),
            Some(check) => Arc::new(CheckedSource { inner: self.source.clone(), check: check.clone() }),
        }
    }
}

/// File whose bytes are those of one storage: before the first of them is read, its checksum is compared.
#[derive(Debug)]
struct CheckedSource {
    inner: SourceRef,
    check: Arc<Check>,
}

impl Source for CheckedSource {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check.verify()?;
        self.inner.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        self.inner.label()
    }
    fn is_decoded(&self) -> bool {
        true
    }
    fn within(&self) -> Option<Within<'_>> {
        Some(Within { source: &self.inner, offset: 0, len: self.inner.len(), encoded: false })
    }
}

/// Elements of a tensor with one dimension.
#[derive(Debug, Clone)]
pub(super) struct Flat {
    pub(super) dtype: DType,
    endian: Endian,
    source: SourceRef,
    offset: u64,
    /// Number of elements.
    pub(super) count: u64,
    /// Checksum of the storage, if the file has one.
    check: Option<Arc<Check>>,
}

impl Flat {
    /// Reads a tensor; `None` for one with another number of dimensions, and for other objects.
    ///
    /// # Errors
    /// Errors of [`Saved::tensor`].
    pub(super) fn of(saved: &Saved, id: ObjectId) -> Result<Option<Self>> {
        if !saved.is_tensor(id) || saved.sparse(id).is_some() || saved.quantizer(id).is_some() {
            return Ok(None);
        }
        let Some(entry) = saved.tensor(id, TensorPath::value())? else { return Ok(None) };
        let (&[count], Some(extent), Some(_)) =
            (entry.shape.dims(), entry.single_extent(), entry.stored.size())
        else {
            return Ok(None);
        };
        // The parts of a compressed tensor are read in another order, each time from its start.
        if extent.source.is_sequential() {
            return Err(Error::unsupported("deepspeed-form", "a flat tensor is compressed")
                .in_file(saved.source().label())
                .hint("repack the archive without compression"));
        }
        Ok(Some(Self {
            dtype: entry.stored,
            endian: extent.encoding.endian,
            source: extent.source.clone(),
            offset: extent.offset,
            count,
            check: extent.check.clone(),
        }))
    }
}

impl Flat {
    /// Returns true for a tensor of the same type.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.dtype, self.endian) == (other.dtype, other.endian)
    }

    /// Returns the first elements; the tensor must have them.
    pub(super) fn first(&self, count: u64) -> Self {
        Self { count, ..self.clone() }
    }

    /// Adds the bytes of the tensor to those that the tensors of a file read.
    pub(super) fn count_bytes(&self, file: usize, read: &mut OverlapBudget) {
        let bytes = self.count.saturating_mul(self.dtype.size().unwrap_or(1) as u64);
        let (from, len) = match self.source.within().filter(|within| within.encoded) {
            Some(within) => (within.offset, within.len),
            None => (self.offset, bytes),
        };
        read.add(file, (from, from.saturating_add(len)), bytes);
    }
}

/// Flat tensors in sequence.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) dtype: DType,
    endian: Endian,
    /// Each with the index of its first element.
    parts: Vec<(u64, Flat)>,
    /// Number of elements.
    pub(super) count: u64,
}

impl Line {
    /// Concatenates tensors. `None` without a tensor, and for tensors of different dtypes.
    pub(super) fn of<'a>(flats: impl IntoIterator<Item = &'a Flat>) -> Option<Self> {
        let mut line: Option<Self> = None;
        for flat in flats {
            let own = line.get_or_insert_with(|| Self {
                dtype: flat.dtype,
                endian: flat.endian,
                parts: Vec::new(),
                count: 0,
            });
            if (own.dtype, own.endian) != (flat.dtype, flat.endian) {
                return None;
            }
            own.parts.push((own.count, flat.clone()));
            own.count = own.count.checked_add(flat.count)?;
        }
        line
    }

    /// Appends the byte ranges of `count` elements from element `from` on. The line must have them.
    pub(super) fn ranges(&self, from: u64, count: u64, budget: &Budget, out: &mut Ranges) -> Result<()> {
        let size = self.dtype.size().unwrap_or(1) as u64;
        let (mut at, end) = (from, from + count);
        let first = self.parts.partition_point(|(start, _)| *start <= from).saturating_sub(1);
        for (start, flat) in self.parts.get(first..).unwrap_or_default() {
            if at >= end {
                break;
            }
            let stop = end.min(start + flat.count);
            if stop <= at {
                continue;
            }
            budget.take_memory(RANGE)?;
            let (offset, len) = (flat.offset + (at - start) * size, (stop - at) * size);
            match out.0.last_mut() {
                Some(last)
                    if Arc::ptr_eq(&last.source, &flat.source)
                        && last.offset + last.len == offset
                        && last.check == flat.check =>
                {
                    last.len += len;
                }
                _ => {
                    out.0.push(Range { source: flat.source.clone(), offset, len, check: flat.check.clone() })
                }
            }
            at = stop;
        }
        Ok(())
    }

    /// Makes a tensor of byte ranges of this line, or of lines with the same dtype.
    ///
    /// # Errors
    /// As [`TensorEntry::dense`].
    pub(super) fn tensor(
        &self,
        path: TensorPath,
        role: Role,
        shape: Shape,
        Ranges(ranges): Ranges,
        label: &str,
    ) -> Result<TensorEntry> {
        let mut check = None;
        let (source, offset): (SourceRef, u64) = match ranges.as_slice() {
            [range] => {
                check.clone_from(&range.check);
                (range.source.clone(), range.offset)
            }
            // Without elements, any place in the files will do.
            [] => match self.parts.first() {
                Some((_, flat)) => (flat.source.clone(), flat.offset),
                None => (Arc::new(ConcatSource::new(label, Vec::new())?), 0),
            },
            // The name distinguishes the joined bytes of two tensors. Their offsets are not those of a file, so that the sources of
            // the parts compare the checksums.
            _ => {
                let joined = ranges.iter().map(|range| (range.checked(), range.offset, range.len)).collect();
                (Arc::new(ConcatSource::new(format!("{label}: {}", path.to_text()), joined)?), 0)
            }
        };
        let encoding = Encoding { order: Order::Row, endian: self.endian };
        let mut entry = TensorEntry::dense(path, self.dtype, shape, &source, offset, encoding)?;
        entry.extents.iter_mut().for_each(|extent| extent.check.clone_from(&check));
        entry.role = role;
        Ok(entry)
    }
}

/// Error for content in another form than DeepSpeed writes.
pub(super) fn bad(text: impl Into<String>) -> Error {
    Error::corrupt("deepspeed-form", text.into())
}
