//! Elements decoded block by block on access.

use std::fmt::Debug;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{BlockCache, CachedBlocks, Source, SourceRef, Within, check_range, to_usize};

/// Decoder of single blocks.
pub(crate) trait Decoder: Debug + Send + Sync {
    /// Returns the elements of block `block`: row-major, little-endian.
    ///
    /// # Errors
    /// The errors of the source, and of malformed data.
    fn decode(&self, block: usize) -> Result<Vec<u8>>;
}

/// Source with bytes decoded block by block. Recent blocks stay in the block cache
/// of the opened file.
#[derive(Debug)]
pub(crate) struct DecodedSource {
    outer: SourceRef,
    /// Start offset of each block, and the end offset of the last one.
    starts: Vec<u64>,
    decoder: Box<dyn Decoder>,
    sequential: bool,
    blocks: CachedBlocks,
}

impl DecodedSource {
    /// Source of blocks at `starts` (the last entry is the end), decoded by `decoder` from `outer`.
    pub(crate) fn shared(
        outer: SourceRef,
        starts: Vec<u64>,
        decoder: Box<dyn Decoder>,
        cache: &BlockCache,
    ) -> SourceRef {
        Arc::new(Self { outer, starts, decoder, sequential: false, blocks: cache.blocks() })
    }

    /// Like [`shared`](Self::shared), for a decoder that is efficient only from front to back.
    pub(crate) fn forwards(
        outer: SourceRef,
        starts: Vec<u64>,
        decoder: Box<dyn Decoder>,
        cache: &BlockCache,
    ) -> SourceRef {
        Arc::new(Self { outer, starts, decoder, sequential: true, blocks: cache.blocks() })
    }

    fn block(&self, number: usize, len: u64) -> Result<Arc<Vec<u8>>> {
        self.blocks.get(number as u64, len, || {
            let block = self.decoder.decode(number)?;
            if block.len() as u64 == len {
                return Ok(block);
            }
            Err(Error::corrupt("changed-meanwhile", "the file has changed since it was opened")
                .in_file(self.outer.label())
                .expected(format_args!("{len} bytes of elements"))
                .found(block.len()))
        })
    }
}

impl Source for DecodedSource {
    fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let (mut at, mut rest) = (offset, buffer);
        // The block with the first byte: the last one that begins at or before it.
        let mut number = self.starts.partition_point(|&start| start <= offset).saturating_sub(1);
        while !rest.is_empty() {
            let &[start, end] = self.starts.get(number..number + 2).unwrap_or_default() else {
                return Err(Error::corrupt("past-the-end", "the range extends beyond the last block"));
            };
            let take = to_usize((end - at).min(rest.len() as u64))?;
            if take > 0 {
                let block = self.block(number, end - start)?;
                let from = to_usize(at - start)?;
                let (now, later) = rest.split_at_mut(take);
                now.copy_from_slice(&block[from..from + take]);
                rest = later;
                at += take as u64;
            }
            number += 1;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_sequential(&self) -> bool {
        self.sequential
    }

    fn within(&self) -> Option<Within<'_>> {
        Some(Within { source: &self.outer, offset: 0, len: self.outer.len(), encoded: true })
    }
}
