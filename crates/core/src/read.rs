//! Reading of boxes of tensors: slices, whole tensors, and the blocks of a transform.
//!
//! A box is gathered from the extents it intersects. The part of each extent is read compactly in stored order, with few
//! positional reads, and then moved into the result by [`copy_strided`].

use crate::checkpoint::{Extent, TensorEntry};
use crate::error::{Error, Result};
use crate::source::{MaybeMapped, check_range, to_usize};
use crate::tensor::{CastReport, Endian, Order, Region, Shape, cast, copy_strided};

/// Maximum gap between runs that is read together with them: about the bytes copied in the time of one system call.
const MAX_GAP: u64 = 8 << 10;
/// Maximum bytes of one read that gathers short runs.
const SIEVE: u64 = 256 << 10;
/// Bytes of a chunk in [`for_each_chunk`].
const STEP: u64 = 256 << 10;

/// Buffers reused between reads, so that a worker allocates once.
#[derive(Debug, Default)]
pub struct Scratch {
    stored: Vec<u8>,
    ordered: Vec<u8>,
    sieve: Vec<u8>,
}

impl TensorEntry {
    /// Reads `region`, dense in `order`, little-endian, in the tensor's [`dtype`](TensorEntry::dtype).
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] if the box exceeds the tensor; [`crate::Kind::Unsupported`] for a reordering of elements smaller
    /// than a byte; errors of the sources.
    pub fn read_region(&self, region: &Region, order: Order) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.read_into(region, order, &mut Scratch::default(), &mut out)?;
        Ok(out)
    }

    /// Reads the whole tensor; see [`TensorEntry::read_region`].
    ///
    /// # Errors
    /// As [`TensorEntry::read_region`].
    pub fn read_tensor(&self, order: Order) -> Result<Vec<u8>> {
        self.read_region(&Region::whole(&self.shape), order)
    }

    /// Appends `region` to `out`, as [`TensorEntry::read_region`]. Returns the report of the cast, if any.
    pub fn read_into(
        &self,
        region: &Region,
        order: Order,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<CastReport>> {
        if !region.fits(&self.shape) {
            return Err(Error::usage("outside", "the slice exceeds the tensor")
                .on_tensor(self.name())
                .expected(format_args!("within {}", self.shape))
                .found(format_args!("start {:?}, size {:?}", region.start, region.shape)));
        }
        let Some(to) = self.cast else {
            gather(self, region, order, scratch, out)?;
            return Ok(None);
        };
        let mut stored = std::mem::take(&mut scratch.ordered);
        stored.clear();
        gather(self, region, order, scratch, &mut stored)?;
        let report = cast(&stored, self.stored, to, out);
        scratch.ordered = stored;
        let report = report.ok_or_else(|| {
            Error::unsupported("no-such-cast", format!("cannot cast {} to {}", self.stored, to.to))
                .on_tensor(self.name())
        })?;
        if report.undefined > 0 {
            return Err(Error::unsupported(
                "undefined-cast",
                format!("{} cannot represent all values of the tensor", to.to),
            )
            .on_tensor(self.name())
            .found(crate::text::counted(
                report.undefined,
                "value that is NaN, infinite or out of range",
                "values that are NaN, infinite or out of range",
            ))
            .hint("cast to f16 or bf16, or scale the values first"));
        }
        Ok(Some(report))
    }
}

/// Reads `region` for a single pass, as [`TensorEntry::read_into`]. A box that is stored in the requested layout is mapped
/// without a copy. Call [`MaybeMapped::intact`] before using the result.
pub fn read_or_map(
    entry: &TensorEntry,
    region: &Region,
    order: Order,
    scratch: &mut Scratch,
    mut spare: Vec<u8>,
) -> Result<MaybeMapped> {
    if let Some((extent, offset, len)) = entry.in_place(region, order) {
        return MaybeMapped::of(&*extent.source, offset, len, spare).map_err(|e| e.on_tensor(entry.name()));
    }
    spare.clear();
    entry.read_into(region, order, scratch, &mut spare)?;
    Ok(MaybeMapped::Read(spare))
}

/// Passes the box `region` of `entry` to `take`, dense in `order`, in the entry's dtype. A box stored in this layout is passed
/// in chunks of 256 KiB, which fit the L2 cache; any other at once. `spare` is reused as the buffer.
///
/// # Errors
/// As [`TensorEntry::read_region`].
pub fn for_each_chunk(
    entry: &TensorEntry,
    region: &Region,
    order: Order,
    scratch: &mut Scratch,
    spare: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]),
) -> Result<()> {
    spare.clear();
    let Some((extent, offset, len)) = entry.in_place(region, order) else {
        entry.read_into(region, order, scratch, spare)?;
        take(spare);
        return Ok(());
    };
    let on_tensor = |e: Error| e.on_tensor(entry.name());
    check_range(&*extent.source, offset, len).map_err(on_tensor)?;
    spare.resize(to_usize(len.min(STEP))?, 0);
    let mut done = 0;
    while done < len {
        let step = to_usize((len - done).min(STEP))?;
        let bytes = &mut spare[..step];
        extent.source.read_at(offset + done, bytes).map_err(on_tensor)?;
        take(bytes);
        done += step as u64;
    }
    Ok(())
}

impl TensorEntry {
    /// Returns the single range of a source that stores the box dense in `order`, little-endian, in the requested dtype.
    pub fn in_place<'a>(&'a self, region: &Region, order: Order) -> Option<(&'a Extent, u64, u64)> {
        let size = self.stored.size()? as u64;
        if self.cast.is_some() || !region.fits(&self.shape) {
            return None;
        }
        let extent = self
            .extents
            .iter()
            .find(|extent| region.intersect(&extent.region(&self.shape)).as_ref() == Some(region))?;
        let shape = region.shape();
        let plain = extent.encoding.endian == Endian::Little || self.stored.swap_unit() == 1;
        if !plain || (extent.encoding.order != order && !shape.is_order_free()) {
            return None;
        }
        let within = region.relative_to(&extent.region(&self.shape));
        let extents = extent.shape(&self.shape);
        let strides = Shape::new(extents).strides(extent.encoding.order);
        let mut fast_to_slow: Vec<usize> = (0..extents.len()).collect();
        if extent.encoding.order == Order::Row {
            fast_to_slow.reverse();
        }
        // Whole dimensions, then one in part, then one index of each.
        let part = fast_to_slow.iter().skip_while(|&&axis| within.shape[axis] == extents[axis]);
        if part.skip(1).any(|&axis| within.shape[axis] != 1) {
            return None;
        }
        let first: u64 = within.start.iter().zip(&strides).map(|(start, stride)| start * stride).sum();
        Some((extent, extent.offset.checked_add(first.checked_mul(size)?)?, shape.bytes(self.stored)?))
    }
}

/// Appends the box in the stored dtype.
fn gather(
    entry: &TensorEntry,
    region: &Region,
    order: Order,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let named = |e: Error| e.on_tensor(entry.name());
    let shape = region.shape();
    let Some(len) = shape.bytes(entry.stored) else {
        return Err(named(Error::unsupported("part-of-a-byte", "the slice is not a whole number of bytes")));
    };
    if len == 0 {
        return Ok(());
    }
    let base = out.len();
    let len = to_usize(len)?;
    if out.capacity() == 0 {
        // Fresh pages are zero without being written.
        *out = vec![0; len];
    } else {
        out.reserve_exact(len);
        out.resize(base + len, 0);
    }
    let target = &mut out[base..];
    let Some(size) = entry.stored.size() else {
        return whole_packed(entry, region, order, target).map_err(named);
    };
    let target_strides = shape.dense_strides(order);
    for extent in &entry.extents {
        let filled = extent.region(&entry.shape);
        let Some(part) = region.intersect(&filled) else { continue };
        let within = part.relative_to(&filled);
        let place = part.relative_to(region);
        let part_shape = part.shape();
        let same_layout =
            part.shape == region.shape && (extent.encoding.order == order || part_shape.is_order_free());
        let part_len = to_usize(part_shape.bytes(entry.stored).unwrap_or(0))?;
        let unit = if extent.encoding.endian == Endian::Big { entry.stored.swap_unit() } else { 1 };
        if same_layout {
            read_box(extent, &filled.shape, &within, size, &mut scratch.sieve, target).map_err(named)?;
            Endian::swap_bytes(target, unit);
            continue;
        }
        scratch.stored.resize(part_len, 0);
        let stored = &mut scratch.stored[..part_len];
        read_box(extent, &filled.shape, &within, size, &mut scratch.sieve, stored).map_err(named)?;
        Endian::swap_bytes(stored, unit);
        let mut corner = 0;
        for (&start, &stride) in place.start.iter().zip(&target_strides) {
            corner += to_usize(start)? * stride;
        }
        let extents = part.shape.iter().map(|&e| to_usize(e)).collect::<Result<Vec<_>>>()?;
        let strides = part_shape.dense_strides(extent.encoding.order);
        copy_strided(stored, &strides, &mut target[corner * size..], &target_strides, &extents, size);
    }
    Ok(())
}

/// Reads elements smaller than a byte: only the whole tensor, in stored order.
fn whole_packed(entry: &TensorEntry, region: &Region, order: Order, target: &mut [u8]) -> Result<()> {
    match entry.single_extent() {
        Some(extent)
            if region.is_whole(&entry.shape)
                && (extent.encoding.order == order || entry.shape.is_order_free())
                && extent.len == target.len() as u64 =>
        {
            extent.source.read_at(extent.offset, target)
        }
        _ => Err(Error::unsupported(
            "packed-slice",
            format!("elements of dtype {} share bytes; only the whole tensor can be read", entry.stored),
        )),
    }
}

/// Reads the box `within` of an extent of size `dims` compactly, in the order of the extent.
fn read_box(
    extent: &Extent,
    dims: &[u64],
    within: &Region,
    size: usize,
    sieve: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<()> {
    let size = size as u64;
    let shape = Shape::new(dims);
    let strides = shape.strides(extent.encoding.order);
    let mut fast_to_slow: Vec<usize> = (0..shape.rank()).collect();
    if extent.encoding.order == Order::Row {
        fast_to_slow.reverse();
    }
    // Longest run: whole dimensions, and one more in part.
    let mut run = size;
    let mut outer = fast_to_slow.len();
    for (place, &axis) in fast_to_slow.iter().enumerate() {
        run *= within.shape[axis];
        if within.shape[axis] != dims[axis] {
            outer = place + 1;
            break;
        }
    }
    let first: u64 = within.start.iter().zip(&strides).map(|(s, stride)| s * stride).sum();
    let mut at = extent.offset + first * size;
    let axes: Vec<(u64, u64)> = fast_to_slow
        .get(outer..)
        .unwrap_or(&[])
        .iter()
        .map(|&axis| (within.shape[axis], strides[axis] * size))
        .filter(|&(count, _)| count != 1)
        .collect();

    let run_len = to_usize(run)?;
    let mut runs = out.chunks_exact_mut(run_len);
    // Along the fastest outer dimension, short runs close to each other are read at once.
    let (inner, step) = axes.first().copied().unwrap_or((1, run));
    let together = if step - run > MAX_GAP { 1 } else { (SIEVE / step).clamp(1, inner) };
    let mut index = vec![0u64; axes.len()];
    loop {
        let mut done = 0;
        while done < inner {
            let count = together.min(inner - done);
            let from = at + done * step;
            if count == 1 {
                if let Some(target) = runs.next() {
                    extent.source.read_at(from, target)?;
                }
            } else {
                sieve.resize(to_usize((count - 1) * step + run)?, 0);
                extent.source.read_at(from, sieve)?;
                for (i, target) in runs.by_ref().take(to_usize(count)?).enumerate() {
                    let start = i * to_usize(step)?;
                    target.copy_from_slice(&sieve[start..start + run_len]);
                }
            }
            done += count;
        }
        // Advance the index of the slower dimensions.
        let mut place = 1;
        loop {
            let Some(&(count, step)) = axes.get(place) else { return Ok(()) };
            index[place] += 1;
            at += step;
            if index[place] < count {
                break;
            }
            at -= step * count;
            index[place] = 0;
            place += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TensorPath;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding};
    use std::sync::Arc;

    /// Tensor of u16 with element k at row-major position k.
    fn counting(dims: &[u64], encoding: Encoding) -> TensorEntry {
        let shape = Shape::new(dims);
        let n = usize::try_from(shape.elements().unwrap()).unwrap();
        let row: Vec<u8> = (0..n).flat_map(|k| u16::try_from(k).unwrap().to_le_bytes()).collect();
        let extents: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap()).collect();
        let mut bytes = vec![0; row.len()];
        crate::tensor::relayout(&row, Order::Row, &mut bytes, encoding.order, &extents, 2);
        if encoding.endian == Endian::Big {
            Endian::swap_bytes(&mut bytes, 2);
        }
        bytes.splice(0..0, [0xEE; 3]);
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        TensorEntry::dense(TensorPath::value(), DType::U16, shape, &source, 3, encoding).unwrap()
    }

    fn expected(dims: &[u64], region: &Region, order: Order) -> Vec<u8> {
        let strides = Shape::new(dims).strides(Order::Row);
        let mut values = Vec::new();
        for block in Region::blocks(&region.shape(), order, 1) {
            let k: u64 = (0..dims.len()).map(|a| (block.start[a] + region.start[a]) * strides[a]).sum();
            values.extend_from_slice(&u16::try_from(k).unwrap().to_le_bytes());
        }
        values
    }

    #[test]
    fn reads_every_box_in_every_layout() {
        let big = Encoding { order: Order::Row, endian: Endian::Big };
        for encoding in [Encoding::ROW, Encoding::COLUMN, big] {
            for dims in [&[][..], &[6], &[3, 4], &[2, 3, 4], &[3, 1, 2, 2]] {
                let entry = counting(dims, encoding);
                let choices: Vec<Vec<(u64, u64)>> = dims
                    .iter()
                    .map(|&d| (0..d).flat_map(|s| (1..=d - s).map(move |e| (s, e))).collect())
                    .collect();
                let total: usize = choices.iter().map(Vec::len).product();
                for mut pick in 0..total {
                    let (mut start, mut extent) = (vec![], vec![]);
                    for choice in &choices {
                        let (s, e) = choice[pick % choice.len()];
                        pick /= choice.len();
                        start.push(s);
                        extent.push(e);
                    }
                    let region = Region { start, shape: extent };
                    for order in [Order::Row, Order::Column] {
                        let held =
                            read_or_map(&entry, &region, order, &mut Scratch::default(), vec![9]).unwrap();
                        for bytes in [&*entry.read_region(&region, order).unwrap(), held.bytes()] {
                            assert_eq!(
                                bytes,
                                expected(dims, &region, order),
                                "{dims:?} {region:?} {order:?} {encoding:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn extents_are_joined() {
        let dims = [5, 3];
        let whole = counting(&dims, Encoding::ROW);
        let bytes = whole.read_tensor(Order::Row).unwrap();
        let mut entry = whole.clone();
        entry.extents.clear();
        // Rows 0..2 in one source, rows 2..5 column-major in another.
        for (from, to, encoding) in [(0u64, 2u64, Encoding::ROW), (2, 5, Encoding::COLUMN)] {
            let region = Region { start: vec![from, 0], shape: vec![to - from, 3] };
            let part = whole.read_region(&region, encoding.order).unwrap();
            let len = part.len() as u64;
            let source: SourceRef = Arc::new(MemorySource::new("part", part));
            entry.extents.push(Extent {
                source,
                offset: 0,
                len,
                encoding,
                part: Some(Box::new(region)),
                check: None,
            });
        }
        assert_eq!(entry.read_tensor(Order::Row).unwrap(), bytes);
        let slice = Region { start: vec![1, 1], shape: vec![3, 2] };
        assert_eq!(entry.read_region(&slice, Order::Column).unwrap(), expected(&dims, &slice, Order::Column));
        let second = Region { start: vec![2, 1], shape: vec![3, 1] };
        assert!(entry.in_place(&slice, Order::Column).is_none());
        assert!(entry.in_place(&second, Order::Column).is_some());
        let held = read_or_map(&entry, &second, Order::Column, &mut Scratch::default(), Vec::new()).unwrap();
        assert_eq!(held.bytes(), expected(&dims, &second, Order::Column));
    }

    #[test]
    fn rejects_slices_that_exceed_the_tensor() {
        let entry = counting(&[2, 2], Encoding::ROW);
        let region = Region { start: vec![1, 0], shape: vec![2, 2] };
        assert_eq!(entry.read_region(&region, Order::Row).unwrap_err().code().as_str(), "outside");
    }

    #[test]
    fn casts_are_applied() {
        let mut entry = counting(&[2, 2], Encoding::COLUMN);
        entry.cast = Some(DType::F32.into());
        let expected: Vec<u8> = [0f32, 1.0, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(entry.read_tensor(Order::Row).unwrap(), expected);
    }
}
