//! Values of quantized tensors, decoded block by block when they are read.

use crate::quantization::{Blocks, Decode, MAX_BLOCK};
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Maximum bytes of blocks read at once.
const WINDOW: u64 = 64 << 10;
/// Bytes of a value.
const WIDTH: u64 = 4;

/// Values of a quantized tensor as `f32`, little-endian.
#[derive(Debug)]
pub(crate) struct Dequantized {
    outer: SourceRef,
    /// Offset of the first block.
    start: u64,
    /// Number of blocks.
    count: u64,
    blocks: Blocks,
    decode: Decode,
}

impl Dequantized {
    /// Creates the values of `count` blocks from offset `start` of `outer`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `past-the-end`, if the blocks or the offsets of their values exceed their range.
    pub(crate) fn new(
        outer: &SourceRef,
        start: u64,
        count: u64,
        blocks: Blocks,
        decode: Decode,
    ) -> Result<Self> {
        check_range(&**outer, start, count.saturating_mul(blocks.bytes))?;
        Ok(Self { outer: outer.clone(), start, count, blocks, decode })
    }

    /// Returns the values as a shared source.
    pub(crate) fn shared(self) -> SourceRef {
        Arc::new(self)
    }
}

impl Source for Dequantized {
    fn len(&self) -> u64 {
        self.count.saturating_mul(self.blocks.elements * WIDTH)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let (elements, size) = (to_usize(self.blocks.elements)?, to_usize(self.blocks.bytes)?);
        let values_of_block = self.blocks.elements * WIDTH;
        let mut block = offset / values_of_block;
        let mut skip = to_usize(offset % values_of_block)?;
        let (mut rest, mut window, mut values) = (buffer, Vec::new(), [0f32; MAX_BLOCK]);
        while !rest.is_empty() {
            let wanted = (skip as u64 + rest.len() as u64).div_ceil(values_of_block);
            let count = wanted.min(WINDOW / self.blocks.bytes);
            window.resize(to_usize(count)? * size, 0);
            self.outer.read_at(self.start + block * self.blocks.bytes, &mut window)?;
            for bytes in window.chunks_exact(size) {
                (self.decode)(bytes, &mut values[..elements]);
                let decoded = values[..elements].iter().flat_map(|value| value.to_le_bytes()).skip(skip);
                let take = rest.len().min(elements * 4 - skip);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(take);
                now.iter_mut().zip(decoded).for_each(|(to, from)| *to = from);
                (rest, skip) = (later, 0);
            }
            block += count;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_sequential(&self) -> bool {
        self.outer.is_sequential()
    }

    /// Any bits are values: decoding finds no damage.
    fn is_decoded(&self) -> bool {
        self.outer.is_decoded()
    }

    fn within(&self) -> Option<Within<'_>> {
        let len = self.count.saturating_mul(self.blocks.bytes);
        Some(Within { source: &self.outer, offset: self.start, len, encoded: true })
    }
}
