//! Chunks of arrays as extents: ranges of files where they hold the elements as they are, and unpacked on access otherwise.

use super::stored::Stored;
use super::zarr::{Codec, Shards, Zarr};
use std::io::Read;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Attributes, Extent, Pieces, Role, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Encoding, Order, Region, Shape};
use weighbridge_core::text::counted;
use weighbridge_io::source::{CachedBlocks, Source, SourceRef, Within, check_range, to_usize};

/// Memory of an extent with its box and source, in bytes.
const EXTENT: u64 = 512;
/// Additional bytes of an intermediate result, such as a checksum.
const SLACK: u64 = 64 << 10;

/// Chunk that is unpacked on access.
#[derive(Debug)]
struct ChunkSource {
    stored: Stored,
    /// Index of the shard of this chunk, if this is its first one.
    index: Option<Stored>,
    codecs: Arc<[Codec]>,
    /// Bytes of the whole chunk.
    full: u64,
    /// Sizes of the chunk and of its part within the array, if it exceeds the array.
    cut: Option<(Shape, Region)>,
    order: Order,
    /// Bytes of an element.
    size: u64,
    /// Bytes of the part within the array.
    len: u64,
    number: u64,
    blocks: Arc<CachedBlocks>,
}

impl ChunkSource {
    fn unpack(&self) -> Result<Vec<u8>> {
        let at = |error: Error| error.in_file(self.stored.file().label()).at(self.stored.offset());
        let mut bytes = self.stored.read()?;
        for codec in self.codecs.iter().rev() {
            bytes = codec.undo(bytes, self.full.saturating_add(SLACK)).map_err(at)?;
        }
        if bytes.len() as u64 != self.full {
            return Err(at(Error::corrupt("zarr-chunk", "Zarr: the unpacked chunk has a wrong length")
                .expected(counted(self.full, "byte", "bytes"))
                .found(counted(bytes.len() as u64, "byte", "bytes"))));
        }
        let Some((chunk, part)) = &self.cut else { return Ok(bytes) };
        let (run, starts) = part.runs(chunk, self.order);
        let (run, size) = (to_usize(run)?, to_usize(self.size)?);
        let mut cut = Vec::with_capacity(to_usize(self.len)?);
        for start in starts {
            let start = to_usize(start)? * size;
            cut.extend_from_slice(bytes.get(start..start + run * size).unwrap_or_default());
        }
        Ok(cut)
    }
}

impl Source for ChunkSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let block = self.blocks.get(self.number, self.len, || self.unpack())?;
        let from = to_usize(offset)?;
        match block.get(from..from + buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(Error::corrupt("zarr-chunk", "Zarr: the chunk is too short")),
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.stored.file().label()
    }

    fn is_decoded(&self) -> bool {
        !self.codecs.is_empty()
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        let within = |stored| match stored {
            &Stored::Range { ref source, offset, len } => Some(Within { source, offset, len, encoded: true }),
            // Bytes of a node, which the outline lists.
            Stored::Inline { .. } => None,
        };
        Some(std::iter::once(&self.stored).chain(&self.index).filter_map(within).collect())
    }
}

impl Codec {
    /// Undoes a step of the encoding; the result has at most `most` bytes.
    fn undo(self, bytes: Vec<u8>, most: u64) -> Result<Vec<u8>> {
        match self {
            Self::Zstd => {
                let failed = |e| Error::corrupt("bad-compression", format!("Zarr: zstd: {e}"));
                let decoder = zstd::stream::read::Decoder::with_buffer(bytes.as_slice()).map_err(failed)?;
                unpack(decoder, most).map_err(failed)
            }
            Self::Gzip => {
                let failed = |e| Error::corrupt("bad-compression", format!("Zarr: gzip: {e}"));
                match bytes.first() {
                    Some(0x1f) => {
                        unpack(flate2::bufread::MultiGzDecoder::new(bytes.as_slice()), most).map_err(failed)
                    }
                    _ => unpack(flate2::bufread::ZlibDecoder::new(bytes.as_slice()), most).map_err(failed),
                }
            }
            Self::Crc32c => {
                let Some((content, sum)) = bytes.split_last_chunk::<4>() else {
                    return Err(Error::corrupt(
                        "crc-mismatch",
                        "Zarr: a chunk has no room for its CRC-32C checksum",
                    ));
                };
                let (sum, found) = (u32::from_le_bytes(*sum), crc32c::crc32c(content));
                if sum == found {
                    return Ok(content.to_vec());
                }
                Err(Error::corrupt("crc-mismatch", "Zarr: wrong CRC-32C checksum")
                    .expected(format_args!("{sum:08x}"))
                    .found(format_args!("{found:08x}")))
            }
        }
    }
}

fn unpack(from: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    from.take(most).read_to_end(&mut out)?;
    Ok(out)
}

/// Elements of chunks that are not stored: one value, repeated.
#[derive(Debug)]
struct FillSource {
    label: String,
    element: Vec<u8>,
    len: u64,
}

impl Source for FillSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let size = self.element.len().max(1) as u64;
        let mut place = to_usize(offset % size)?;
        for byte in buffer {
            *byte = self.element.get(place).copied().unwrap_or(0);
            place = (place + 1) % self.element.len().max(1);
        }
        Ok(())
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        Some(Vec::new())
    }
}

/// Access to the values of an array.
pub(super) struct Values<'a> {
    /// Returns the value of a key relative to the array.
    pub(super) get: &'a dyn Fn(&str) -> Result<Option<Stored>>,
    pub(super) limits: &'a Limits,
    pub(super) budget: &'a Budget,
    /// Display name of the store, for errors.
    pub(super) label: &'a str,
}

/// Grid of chunks: counts along each dimension.
fn grid(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(&size, &chunk)| size.div_ceil(chunk)).collect()
}

/// Advances an index in row-major order; false after the last one.
fn advance(index: &mut [u64], counts: &[u64]) -> bool {
    for (place, &count) in index.iter_mut().zip(counts).rev() {
        *place += 1;
        if *place < count {
            return true;
        }
        *place = 0;
    }
    false
}

struct Builder<'a> {
    zarr: &'a Zarr,
    values: &'a Values<'a>,
    /// Sizes of a chunk, and its bytes.
    chunk: &'a [u64],
    full: u64,
    size: u64,
    codecs: Arc<[Codec]>,
    blocks: Arc<CachedBlocks>,
    extents: Pieces,
    number: u64,
    fill: Option<SourceRef>,
}

/// Returns the tensor of an array.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed chunks, with file and offset; [`weighbridge_core::Kind::Limit`] for large chunks that
/// are stored in few bytes.
pub(super) fn tensor(path: TensorPath, zarr: &Zarr, values: &Values<'_>) -> Result<TensorEntry> {
    let dims = zarr.shape.dims();
    let size = zarr.dtype.size().unwrap_or(1) as u64;
    if zarr.shape.bytes(zarr.dtype).is_none() {
        let error = Error::corrupt("shape-overflow", "the length of the tensor exceeds 2^64 bytes");
        return Err(error.found(format_args!("{} {}", zarr.dtype, zarr.shape)));
    }
    let chunk = zarr.shards.as_ref().map_or(&zarr.chunk, |shards| &shards.chunk);
    let full = Shape::new(chunk).bytes(zarr.dtype).ok_or_else(|| {
        Error::corrupt("shape-overflow", "the length of a chunk exceeds 2^64 bytes").found(Shape::new(chunk))
    })?;
    let mut builder = Builder {
        zarr,
        values,
        chunk,
        full,
        size,
        codecs: zarr.codecs.as_slice().into(),
        blocks: Arc::new(values.limits.blocks.blocks()),
        extents: Pieces::new(),
        number: 0,
        fill: None,
    };
    let counts = grid(dims, &zarr.chunk);
    if !counts.contains(&0) {
        let mut index = vec![0; counts.len()];
        loop {
            builder.stored_at(&index)?;
            if !advance(&mut index, &counts) {
                break;
            }
        }
    }
    let mut extents = builder.extents;
    if extents.is_empty() {
        // A tensor without elements has an extent, too.
        let source: SourceRef =
            Arc::new(FillSource { label: values.label.to_owned(), element: Vec::new(), len: 0 });
        extents.push(Extent { source, offset: 0, len: 0, encoding: Encoding::ROW, part: None, check: None });
    }
    Ok(TensorEntry {
        path,
        role: Role::Parameter,
        stored: zarr.dtype,
        cast: None,
        shape: zarr.shape.clone(),
        extents,
        attributes: Attributes::new(),
        row_names: None,
        guessed: false,
    })
}

impl Builder<'_> {
    /// Adds the value at an index of the grid: a chunk, a shard, or none.
    fn stored_at(&mut self, index: &[u64]) -> Result<()> {
        let start: Vec<u64> = index.iter().zip(&self.zarr.chunk).map(|(at, size)| at * size).collect();
        let stored = (self.values.get)(&self.zarr.key(index))?;
        match (stored, &self.zarr.shards) {
            (Some(stored), None) => {
                let region = self.region(&start, &self.zarr.chunk);
                self.chunk(stored, region, None)
            }
            (Some(stored), Some(shards)) => self.shard(&stored, shards, &start),
            (None, _) => {
                let region = self.region(&start, &self.zarr.chunk);
                self.filled(region)
            }
        }
    }

    /// Returns the part of a chunk within the array.
    fn region(&self, start: &[u64], chunk: &[u64]) -> Region {
        let sizes = start.iter().zip(chunk).zip(self.zarr.shape.dims());
        let shape = sizes.map(|((&start, &chunk), &size)| chunk.min(size.saturating_sub(start))).collect();
        Region { start: start.to_vec(), shape }
    }

    fn push(
        &mut self,
        source: SourceRef,
        offset: u64,
        len: u64,
        encoding: Encoding,
        region: Region,
    ) -> Result<()> {
        self.values.budget.take_memory(EXTENT)?;
        let part = region.unless_whole(&self.zarr.shape);
        self.extents.push(Extent { source, offset, len, encoding, part, check: None });
        Ok(())
    }

    /// Adds a chunk that is not stored.
    fn filled(&mut self, region: Region) -> Result<()> {
        let Some(element) = &self.zarr.fill else {
            let error =
                Error::unsupported("zarr-fill", "a chunk is not stored, and the fill value is not supported");
            return Err(error.in_file(self.values.label));
        };
        let len = region.shape().bytes(self.zarr.dtype).unwrap_or(0);
        let label = self.values.label;
        let source = self.fill.get_or_insert_with(|| {
            let len = self.zarr.shape.bytes(self.zarr.dtype).unwrap_or(0);
            Arc::new(FillSource { label: label.to_owned(), element: element.clone(), len })
        });
        let source = source.clone();
        self.push(source, 0, len, Encoding::ROW, region)
    }

    /// Adds a chunk; `index` is the index of its shard, if it is the first chunk of it.
    fn chunk(&mut self, stored: Stored, region: Region, index: Option<Stored>) -> Result<()> {
        self.number += 1;
        let at = |error: Error| error.in_file(stored.file().label()).at(stored.offset());
        if let Stored::Range { source, offset, len } = &stored {
            check_range(&**source, *offset, *len)?;
        }
        if self.codecs.is_empty() && stored.len() != self.full {
            return Err(at(Error::corrupt("zarr-chunk", "Zarr: the chunk has a wrong length")
                .expected(counted(self.full, "byte", "bytes"))
                .found(counted(stored.len(), "byte", "bytes"))));
        }
        let most =
            self.values.limits.chunk_bytes.max(stored.len().saturating_mul(self.values.limits.expansion));
        Limits::check("bytes of a chunk", "chunk_bytes", self.full, most).map_err(at)?;
        let len = region.shape().bytes(self.zarr.dtype).unwrap_or(0);
        let is_whole = region.shape == self.chunk;
        if let (Stored::Range { source, offset, len }, true, None) =
            (&stored, is_whole && self.codecs.is_empty(), &index)
        {
            return self.push(source.clone(), *offset, *len, self.zarr.encoding, region);
        }
        let cut = (!is_whole).then(|| {
            let part = Region { start: vec![0; region.shape.len()], shape: region.shape.clone() };
            (Shape::new(self.chunk), part)
        });
        let source = ChunkSource {
            stored,
            index,
            codecs: self.codecs.clone(),
            full: self.full,
            cut,
            order: self.zarr.encoding.order,
            size: self.size,
            len,
            number: self.number,
            blocks: self.blocks.clone(),
        };
        self.push(Arc::new(source), 0, len, self.zarr.encoding, region)
    }

    /// Adds the chunks of a shard at `start`.
    fn shard(&mut self, stored: &Stored, shards: &Shards, start: &[u64]) -> Result<()> {
        let at = |error: Error| error.in_file(stored.file().label()).at(stored.offset());
        let counts: Vec<u64> =
            self.zarr.chunk.iter().zip(&shards.chunk).map(|(outer, inner)| outer / inner).collect();
        let chunks = Shape::new(&counts).elements().unwrap_or(u64::MAX);
        let len = chunks.saturating_mul(16).saturating_add(if shards.has_sum { 4 } else { 0 });
        let Some(begin) = stored.len().checked_sub(len) else {
            return Err(at(Error::corrupt("zarr-shard", "Zarr: the shard is shorter than its index")
                .expected(format_args!("at least {len} bytes for {chunks} chunks"))
                .found(counted(stored.len(), "byte", "bytes"))));
        };
        if let Stored::Range { source, offset, len } = stored {
            check_range(&**source, *offset, *len)?;
        }
        let index = stored.part(if shards.is_first { 0 } else { begin }, len)?;
        self.values.budget.take_work(len)?;
        let mut bytes = index.read()?;
        if shards.has_sum {
            bytes = Codec::Crc32c.undo(bytes, len).map_err(at)?;
        }
        let mut place = vec![0; counts.len()];
        let mut first = Some(index);
        for row in bytes.chunks_exact(16) {
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            let (offset, len) = (number(&row[..8]), number(&row[8..]));
            let corner: Vec<u64> = start
                .iter()
                .zip(&place)
                .zip(&shards.chunk)
                .map(|((start, at), size)| start + at * size)
                .collect();
            let inside = corner.iter().zip(self.zarr.shape.dims()).all(|(at, size)| at < size);
            if inside {
                let region = self.region(&corner, &shards.chunk);
                match (offset, len) {
                    (u64::MAX, u64::MAX) => self.filled(region)?,
                    _ => {
                        let chunk = stored.part(offset, len)?;
                        self.chunk(chunk, region, first.take())?;
                    }
                }
            }
            advance(&mut place, &counts);
        }
        Ok(())
    }
}
