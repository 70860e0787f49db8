//! Tables of LevelDB: sorted pairs in blocks, each with a checksum.
//!
//! ```text
//! block*        pairs with shared prefixes, places of restarts, their number (4 bytes);
//!               compression (1 byte: 0 none, 1 snappy), masked CRC-32C of block and compression (4 bytes)
//! meta block    a block without pairs
//! index block   for each block a key not below its last one, and its handle: offset and length
//! footer        handles of both, padded to 40 bytes; 57 fb 80 8b 24 75 47 db
//! ```

use crate::wire::{put_varint, varint};
use weighbridge_core::budget::Budget;
use weighbridge_core::checksum::{Checksum, ChecksumKind};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::text::first_and_more;
use weighbridge_io::source::{SourceRef, read_vec};

/// Last bytes of a table.
const MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();
/// Length of the footer.
const FOOTER: u64 = 48;
/// Bytes of the footer before the magic number.
const HANDLES: usize = 40;
/// Bytes behind each block.
const TRAILER: u64 = 5;
/// Pairs between two restarts of blocks that are written.
const RESTART: usize = 16;
/// Bytes of a block that is written, above which the next one begins.
const BLOCK: usize = 256 << 10;

/// Returns true for a file that ends as a table.
pub(crate) fn ends_as_table(source: &SourceRef) -> bool {
    let mut end = [0; MAGIC.len()];
    let at = source.len().checked_sub(FOOTER).map(|at| at + FOOTER - MAGIC.len() as u64);
    at.is_some_and(|at| source.read_at(at, &mut end).is_ok()) && end == MAGIC
}

/// Masks a checksum as LevelDB stores it.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the checksum of a masked one.
pub(crate) fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

/// Returns the CRC-32C of bytes in parts.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut sum = Checksum::new(ChecksumKind::Crc32c);
    parts.iter().for_each(|part| sum.update(part));
    sum.finish()
}

/// Place of a block in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Handle {
    offset: u64,
    len: u64,
}

impl Handle {
    /// Splits a handle off the front.
    fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (offset, rest) = varint(bytes)?;
        let (len, rest) = varint(rest)?;
        Some((Self { offset, len }, rest))
    }

    fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.len);
    }
}

/// Range of a table, for accounts of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Offset.
    pub(crate) offset: u64,
    /// Length.
    pub(crate) len: u64,
    /// Description.
    pub(crate) what: &'static str,
}

/// Receiver of pairs: key, value, and the offset of their block.
pub(crate) type Take<'a> = dyn FnMut(&[u8], &[u8], u64) -> Result<()> + 'a;

/// Reader of a table.
pub(crate) struct Table<'a> {
    source: &'a SourceRef,
    budget: &'a Budget,
    /// Ranges read so far.
    pub(crate) parts: Vec<Part>,
    /// Last key.
    last: Option<Vec<u8>>,
}

impl<'a> Table<'a> {
    /// Creates a reader.
    pub(crate) fn new(source: &'a SourceRef, budget: &'a Budget) -> Self {
        Self { source, budget, parts: Vec::new(), last: None }
    }

    /// Calls `take` with every pair, in order.
    ///
    /// # Errors
    /// [`Kind::Corrupt`], with the offset; [`Kind::Limit`]; errors of `take`.
    pub(crate) fn read(&mut self, take: &mut Take<'_>) -> Result<()> {
        for handle in self.blocks()? {
            self.data(handle, take)?;
        }
        Ok(())
    }

    /// Calls `take` with every pair of intact blocks. Without an intact footer and index, with the pairs at the beginning of the file,
    /// as far as they are well formed: nothing but their order and content proves these.
    ///
    /// # Errors
    /// [`Kind::Limit`] and [`Kind::Io`]; errors of `take`.
    pub(crate) fn salvage(&mut self, take: &mut Take<'_>) -> Result<()> {
        match self.blocks() {
            Ok(handles) => {
                for handle in handles {
                    tolerate(self.data(handle, take))?;
                }
                Ok(())
            }
            Err(error) if error.kind() != Kind::Corrupt => Err(error),
            Err(_) => {
                let len = self.source.len().min(2 * BLOCK as u64);
                let bytes = read_vec(&**self.source, 0, len)?;
                tolerate(self.pairs(&bytes, None, 0, take))
            }
        }
    }

    /// Returns the handles of the blocks with pairs.
    fn blocks(&mut self) -> Result<Vec<Handle>> {
        let len = self.source.len();
        let truncated = |text: &str| {
            Error::corrupt("footer", text.to_owned())
                .expected("a table of LevelDB, with the magic number 57 fb 80 8b 24 75 47 db at the end")
                .hint("the file may be incomplete; compare its length with the original")
        };
        let Some(at) = len.checked_sub(FOOTER) else {
            return Err(truncated("the index is shorter than its footer")
                .at(0)
                .found(format_args!("{len} bytes")));
        };
        let footer = read_vec(&**self.source, at, FOOTER)?;
        if !footer.ends_with(&MAGIC) {
            return Err(truncated("the index does not end with its magic number")
                .at(len - 8)
                .found(hex(&footer[HANDLES..])));
        }
        let handles = Handle::take(&footer[..HANDLES])
            .and_then(|(meta, rest)| Handle::take(rest).map(|(index, rest)| (meta, index, rest)));
        let Some((meta, index, rest)) = handles else {
            return Err(Error::corrupt("footer", "the footer of the index has a malformed handle").at(at));
        };
        let used = FOOTER - rest.len() as u64 - 8;
        self.parts.push(Part { offset: at, len: used, what: "footer" });
        if rest.iter().all(|&byte| byte == 0) {
            self.parts.push(Part { offset: at + used, len: rest.len() as u64, what: "footer" });
        }
        self.parts.push(Part { offset: len - 8, len: 8, what: "magic number" });
        self.block(meta, "meta block")?;
        let bytes = self.block(index, "index of blocks")?;
        let mut handles = Vec::new();
        self.last = None;
        self.whole(&bytes, index.offset, &mut |_, value, at| {
            let Some((handle, [])) = Handle::take(value) else {
                return Err(
                    Error::corrupt("bad-offsets", "the index of blocks has a malformed handle").at(at)
                );
            };
            handles.push(handle);
            Ok(())
        })?;
        self.last = None;
        Ok(handles)
    }

    fn data(&mut self, handle: Handle, take: &mut Take<'_>) -> Result<()> {
        let bytes = self.block(handle, "entries")?;
        self.whole(&bytes, handle.offset, take)
    }

    /// Reads a block, verifies it, and unpacks it.
    fn block(&mut self, handle: Handle, what: &'static str) -> Result<Vec<u8>> {
        let Handle { offset, len } = handle;
        let end = self.source.len().saturating_sub(FOOTER);
        let stop = offset.checked_add(len).and_then(|stop| stop.checked_add(TRAILER));
        if stop.is_none_or(|stop| stop > end) {
            return Err(Error::corrupt("past-the-end", "a block of the index exceeds the file")
                .at(offset)
                .expected(format_args!("an end at {end} or before"))
                .found(format_args!("{len} bytes and a trailer"))
                .hint("the file is truncated or damaged"));
        }
        self.budget.take_work(len)?;
        let mut bytes = read_vec(&**self.source, offset, len + TRAILER)?;
        let crc = u32::from_le_bytes(bytes.split_off(bytes.len() - 4).try_into().unwrap_or_default());
        let found = crc32c(&[&bytes]);
        if found != unmask(crc) {
            return Err(Error::corrupt(
                "crc-mismatch",
                "the checksum of a block of the index does not match",
            )
            .at(offset)
            .expected(format_args!("CRC-32C {:08x} over {} bytes", unmask(crc), bytes.len()))
            .found(format_args!("{found:08x}"))
            .hint("the file is damaged; get another copy"));
        }
        self.parts.push(Part { offset, len: len + TRAILER, what });
        match bytes.pop() {
            Some(0) => Ok(bytes),
            Some(1) => self.unpack(&bytes, offset),
            other => {
                Err(Error::unsupported("codec", "the compression of a block of the index is not supported")
                    .at(offset + len)
                    .expected("0 (none) or 1 (snappy)")
                    .found(other.unwrap_or_default()))
            }
        }
    }

    fn unpack(&self, bytes: &[u8], at: u64) -> Result<Vec<u8>> {
        let bad = |error: snap::Error| {
            Error::corrupt("codec", "a compressed block of the index is malformed").at(at).found(error)
        };
        let len = snap::raw::decompress_len(bytes).map_err(bad)? as u64;
        self.budget.take_work(len)?;
        self.budget.take_memory(len)?;
        let unpacked = snap::raw::Decoder::new().decompress_vec(bytes).map_err(bad)?;
        self.budget.give_memory(len);
        Ok(unpacked)
    }

    /// Reads all pairs of a block.
    fn whole(&mut self, block: &[u8], at: u64, take: &mut Take<'_>) -> Result<()> {
        let bad = |text: &str| Error::corrupt("bad-offsets", text.to_owned()).at(at);
        let Some((pairs, count)) = block.split_last_chunk::<4>() else {
            return Err(bad("a block of the index is shorter than 4 bytes"));
        };
        let restarts = u64::from(u32::from_le_bytes(*count)) * 4;
        let Some(split) = (pairs.len() as u64).checked_sub(restarts) else {
            return Err(bad("a block of the index has more restarts than bytes").found(restarts / 4));
        };
        let (pairs, places) = pairs.split_at(usize::try_from(split).unwrap_or(0));
        self.pairs(pairs, Some(places.as_chunks::<4>().0), at, take)
    }

    /// Reads pairs. `restarts` are the places where a key is stored in full.
    fn pairs(
        &mut self,
        bytes: &[u8],
        restarts: Option<&[[u8; 4]]>,
        at: u64,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let mut key: Vec<u8> = Vec::new();
        let mut rest = bytes;
        let mut places =
            restarts.unwrap_or_default().iter().map(|place| u32::from_le_bytes(*place) as usize).peekable();
        while !rest.is_empty() {
            let place = bytes.len() - rest.len();
            let bad = |text: &str| Error::corrupt("bad-offsets", text.to_owned()).at(at);
            let head = varint(rest).and_then(|(shared, rest)| {
                let (own, rest) = varint(rest)?;
                let (len, rest) = varint(rest)?;
                let (own, rest) = rest.split_at_checked(usize::try_from(own).ok()?)?;
                let (value, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                Some((usize::try_from(shared).ok()?, own, value, rest))
            });
            let Some((shared, own, value, next)) = head.filter(|head| head.0 <= key.len()) else {
                return Err(bad("an entry of the index is malformed")
                    .found(format_args!("an entry at byte {place} of the block")));
            };
            if places.next_if_eq(&place).is_some() && shared > 0 {
                return Err(bad("an entry of the index at a restart shares bytes with the one before"));
            }
            key.truncate(shared);
            key.extend_from_slice(own);
            self.budget.take_work(key.len() as u64)?;
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                let text = "the entries of the index are not sorted, or a key is stored twice";
                return Err(Error::corrupt("duplicate-key", text).at(at).found(crate::names::shown(&key)));
            }
            take(&key, value, at)?;
            match &mut self.last {
                Some(last) => last.clone_from(&key),
                None => self.last = Some(key.clone()),
            }
            rest = next;
        }
        // A block without pairs has one restart at its beginning.
        let misplaced = places.find(|place| *place != 0 || !bytes.is_empty());
        match misplaced {
            Some(place) => Err(Error::corrupt(
                "bad-offsets",
                "a restart of a block of the index is not the place of an entry",
            )
            .at(at)
            .found(place)),
            None => Ok(()),
        }
    }
}

/// Ignores errors of damage.
fn tolerate(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if !matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => Err(error),
        _ => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    first_and_more(bytes.iter().map(|byte| format!("{byte:02x}")), 8).replace(',', "")
}

/// Writer of a table, with uncompressed blocks, as TensorFlow writes it.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    block: Block,
    index: Block,
    last: Vec<u8>,
    /// Block whose entry in the index waits for the next key.
    pending: Option<Handle>,
}

/// Block being written.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    count: usize,
    last: Vec<u8>,
}

impl Block {
    fn push(&mut self, key: &[u8], value: &[u8], interval: usize) {
        let mut shared = 0;
        if self.count.is_multiple_of(interval) {
            self.restarts.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        } else {
            shared = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
        }
        self.count += 1;
        for len in [shared, key.len() - shared, value.len()] {
            put_varint(&mut self.bytes, len as u64);
        }
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len().max(1) + 4
    }

    fn finish(mut self) -> Vec<u8> {
        if self.restarts.is_empty() {
            self.restarts.push(0);
        }
        for place in &self.restarts {
            self.bytes.extend(place.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        self.bytes.extend(count.to_le_bytes());
        self.bytes
    }
}

impl Writer {
    /// Appends a pair. Keys ascend.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        if key.len() + value.len() >= 2 * BLOCK {
            self.flush();
        }
        self.settle(Some(key));
        self.block.push(key, value, RESTART);
        self.last.clear();
        self.last.extend_from_slice(key);
        if self.block.len() >= BLOCK {
            self.flush();
        }
    }

    /// Adds the block before `next` to the index, under a short key between both.
    fn settle(&mut self, next: Option<&[u8]>) {
        let Some(handle) = self.pending.take() else { return };
        let key = match next {
            Some(next) => separator(&self.last, next),
            None => successor(&self.last),
        };
        let mut value = Vec::new();
        handle.put(&mut value);
        self.index.push(&key, &value, 1);
    }

    fn flush(&mut self) {
        if self.block.count > 0 {
            let block = std::mem::take(&mut self.block);
            self.pending = Some(self.put(block));
        }
    }

    fn put(&mut self, block: Block) -> Handle {
        let bytes = block.finish();
        let handle = Handle { offset: self.out.len() as u64, len: bytes.len() as u64 };
        let crc = mask(crc32c(&[&bytes, &[0]]));
        self.out.extend(bytes);
        self.out.push(0);
        self.out.extend(crc.to_le_bytes());
        handle
    }

    /// Returns the bytes of the table.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.flush();
        let meta = self.put(Block::default());
        self.settle(None);
        let index = std::mem::take(&mut self.index);
        let index = self.put(index);
        let mut footer = Vec::new();
        meta.put(&mut footer);
        index.put(&mut footer);
        footer.resize(HANDLES, 0);
        self.out.extend(footer);
        self.out.extend(MAGIC);
        self.out
    }
}

/// Returns a short key from `last` on and below `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    match (last.get(common), next.get(common)) {
        (Some(&own), Some(&other)) if own < 0xff && own + 1 < other => {
            let mut key = last[..common].to_vec();
            key.push(own + 1);
            key
        }
        _ => last.to_vec(),
    }
}

/// Returns a short key from `last` on.
fn successor(last: &[u8]) -> Vec<u8> {
    match last.iter().position(|&byte| byte != 0xff) {
        Some(place) => {
            let mut key = last[..=place].to_vec();
            key[place] += 1;
            key
        }
        None => last.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::limits::Limits;
    use weighbridge_core::source::MemorySource;

    fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let source: SourceRef = Arc::new(MemorySource::new("t", bytes.to_vec()));
        let budget = Budget::new(source.len(), &Limits::default());
        let mut pairs = Vec::new();
        Table::new(&source, &budget).read(&mut |key, value, _| {
            pairs.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(pairs)
    }

    #[test]
    fn written_tables_are_read() {
        for count in [0usize, 1, 15, 16, 17, 3000] {
            let pairs: Vec<_> =
                (0..count).map(|i| (format!("layer/{i:06}/kernel").into_bytes(), vec![7; i % 300])).collect();
            let mut writer = Writer::default();
            pairs.iter().for_each(|(key, value)| writer.push(key, value));
            let bytes = writer.finish();
            assert_eq!(read(&bytes).unwrap(), pairs);
            let blocks = bytes.len() / BLOCK;
            assert!(count < 3000 || blocks > 0, "{blocks}");
        }
    }

    #[test]
    fn any_changed_byte_of_a_block_is_found() {
        let mut writer = Writer::default();
        (0..20).for_each(|i| writer.push(format!("key{i:02}").as_bytes(), b"value"));
        let bytes = writer.finish();
        for place in 0..bytes.len() - HANDLES - MAGIC.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            assert!(read(&changed).is_err(), "{place}");
        }
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn short_keys_separate_blocks() {
        assert_eq!(separator(b"the quick", b"the who"), b"the r");
        assert_eq!(separator(b"abc", b"abd"), b"abc");
        assert_eq!(separator(b"ab", b"abc"), b"ab");
        assert_eq!(successor(b"\xff\x01x"), b"\xff\x02");
        assert_eq!(successor(b"\xff"), b"\xff");
    }
}
