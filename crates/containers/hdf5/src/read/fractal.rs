//! Heaps of objects of any length (fractal heaps): what large groups and many attributes are kept in.
//!
//! A heap is one space, and an object is found by its offset there. Blocks tile the space, and a table says which block is
//! where: each row has as many blocks as the table is wide; those of the first two rows have the starting size, those of
//! every other row twice the size of the row above. Above a largest size a block is itself such a table, with as many rows
//! as fill it. What is large is no part of the space, but stands alone in the file; what is tiny stands in its own number.

use super::broken::Broken;
use super::file::File;
use super::sums;
use super::tree::Tree;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// The kind of trees that list large objects, with their numbers.
const LARGE: u8 = 1;
/// Numbers of objects that are longer have tiny objects of up to 4 KiB.
const SHORT_ID: u16 = 18;

/// A heap, and where in it an object was read last.
pub(super) struct Fractal<'a> {
    file: &'a File,
    address: u64,
    head: Head,
    /// The tables that lead to the block, from the root on.
    path: Vec<Table>,
    block: Option<Block>,
    /// Where in the space the last block or table stands that could not be read.
    broken: Range<u64>,
    /// The places of large objects by their numbers, once they were asked for.
    large: Option<HashMap<u64, (u64, u64)>>,
}

/// Header of a fractal heap.
struct Head {
    /// Bytes of the number of an object.
    id: u16,
    flags: u8,
    /// The longest object in the space.
    longest: u64,
    /// The tree of large objects.
    large: u64,
    /// The list of free room.
    free: u64,
    width: u16,
    first_block: u64,
    largest_block: u64,
    /// Bits of an offset in the space.
    bits: u16,
    root: u64,
    /// Rows of the root; none where it is a block of objects.
    rows: u16,
}

impl Head {
    fn read(file: &File, address: u64) -> Result<Self> {
        let (offset, length) = file.widths();
        let bytes = file.bytes(address, 26 + 12 * length + 3 * offset)?;
        let mut reader = file.reader(&bytes);
        if reader.take(4)? != b"FRHP" || reader.u8()? != 0 {
            return Err(sums::lost("a heap", address));
        }
        let (id, filters, flags) = (reader.u16()?, reader.u16()?, reader.u8()?);
        if filters > 0 {
            // What they inflate to has no bound but what the file says, and hardly any writer packs them.
            return Err(Error::unsupported("hdf5-filter", "HDF5: the names in a group are packed")
                .hint("write the file again without filters for groups"));
        }
        sums::checked(&bytes, b"FRHP", "a heap", address)?;
        let longest = u64::from(reader.u32()?);
        reader.length()?;
        let large = reader.offset()?;
        reader.length()?;
        let free = reader.offset()?;
        // What there is of the space, and of objects of each kind.
        for _ in 0..8 {
            reader.length()?;
        }
        let (width, first_block, largest_block) = (reader.u16()?, reader.length()?, reader.length()?);
        let bits = reader.u16()?;
        reader.skip(2)?;
        let (root, rows) = (reader.offset()?, reader.u16()?);
        Ok(Self { id, flags, longest, large, free, width, first_block, largest_block, bits, root, rows })
    }
}

/// A block of objects: its place in the space of the heap, its bytes.
struct Block {
    start: u64,
    bytes: Bytes,
}

impl Block {
    /// The bytes from `at` on in the space, as far as the block goes.
    fn rest(&self, at: u64) -> Option<Bytes> {
        let at = usize::try_from(at.checked_sub(self.start)?).ok()?;
        (at < self.bytes.len()).then(|| self.bytes.slice(at..))
    }
}

/// A table of blocks: its place in the space, how many bytes it has there, its own bytes.
struct Table {
    start: u64,
    space: u64,
    bytes: Bytes,
}

impl Table {
    fn holds(&self, at: u64) -> bool {
        at.checked_sub(self.start).is_some_and(|at| at < self.space)
    }
}

/// The form of all tables of a heap, as powers of two.
#[derive(Clone, Copy)]
struct Form {
    /// Columns.
    width: u32,
    /// Bytes of a block in the first row.
    first: u32,
    /// Bytes of the largest block of objects.
    largest: u32,
}

impl Form {
    fn new(head: &Head) -> Result<Self> {
        let power = |n: u64| n.is_power_of_two().then(|| n.trailing_zeros());
        let (width, first) = (power(head.width.into()), power(head.first_block));
        match (width, first, power(head.largest_block)) {
            (Some(width), Some(first), Some(largest)) if first <= largest => {
                Ok(Self { width, first, largest })
            }
            _ => Err(Error::corrupt("hdf5-corrupt", "HDF5: a heap has a table that cannot be")
                .expected("powers of two, the first block no larger than the largest")
                .found(format_args!(
                    "width {}, blocks of {} to {} bytes",
                    head.width, head.first_block, head.largest_block
                ))),
        }
    }

    /// The bytes of the space that a table of so many rows has: each row doubles them.
    fn space(self, rows: u32) -> Option<u64> {
        let bits = self.width.checked_add(self.first)?.checked_add(rows.checked_sub(1)?)?;
        1u64.checked_shl(bits)
    }

    /// The rows of a table that stands for a block of 2^`bits` bytes.
    fn rows(self, bits: u32) -> Option<u32> {
        bits.checked_sub(self.width + self.first).map(|rows| rows + 1)
    }

    /// Which block of a table the byte `at` of its space is in.
    fn cell(self, at: u64) -> Cell {
        let row = match at >> (self.width + self.first) {
            0 => 0,
            turns => turns.ilog2() + 1,
        };
        let bits = self.first + row.saturating_sub(1);
        // A row but the first begins where the rows above it, together as long as it is, end.
        let column = (at >> bits) & ((1 << self.width) - 1);
        Cell { index: (u64::from(row) << self.width) | column, start: (at >> bits) << bits, bits }
    }
}

/// A block in a table: its number there, where it begins in the space of the table, its bytes as a power of two.
struct Cell {
    index: u64,
    start: u64,
    bits: u32,
}

impl<'a> Fractal<'a> {
    /// The heap at `address`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `hdf5-filter`, where its blocks are packed; [`weighbridge_core::Kind::Corrupt`] where its
    /// header cannot be read.
    pub(super) fn open(file: &'a File, address: u64) -> Result<Self> {
        let head = Head::read(file, address)?;
        super::free::check(file, head.free)?;
        Ok(Self { file, address, head, path: Vec::new(), block: None, broken: 0..0, large: None })
    }

    /// Offset and length of the object `id` in the space of the heap; `None` for an object that is not there.
    pub(super) fn place(&self, id: &[u8]) -> Result<Option<(u64, u64)>> {
        // The highest bits are a version, then comes a kind: 0 for those in the space.
        if id.first().is_none_or(|flags| flags & 0xf0 != 0) {
            return Ok(None);
        }
        let mut reader = self.file.reader(id);
        reader.skip(1)?;
        let offset = reader.number(self.offset_width())?;
        // As many bytes as an offset in the largest block needs, or as the length of the longest object does.
        let offsets = self.head.largest_block.max(2) - 1;
        let longest = self.head.longest.max(1);
        let width = |n: u64| n.checked_ilog2().map_or(1, |bits| bits / 8 + 1);
        let width = width(offsets).min(width(longest));
        Ok(Some((offset, reader.number(to_usize(width.into())?)?)))
    }

    /// True where the object `id` is in the block that could not be read just now: it need not be tried again.
    pub(super) fn is_in_broken(&self, id: &[u8]) -> bool {
        self.place(id).ok().flatten().is_some_and(|(at, _)| self.broken.contains(&at))
    }

    /// Bytes of an offset in the space.
    fn offset_width(&self) -> usize {
        usize::from(self.head.bits).div_ceil(8)
    }

    /// The bytes of the object `id`. A block is read once for objects that are asked for in the order of their
    /// [places](Self::place).
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where its block or a table on the way cannot be read, is not at its place in the space,
    /// or ends before the object; [`weighbridge_core::Kind::Limit`] where too much was read.
    pub(super) fn object(&mut self, id: &[u8]) -> Result<Bytes> {
        let Some((at, len)) = self.place(id)? else {
            return match id.first() {
                Some(flags) if flags >> 4 == 1 => self.large(id),
                Some(flags) if flags >> 4 == 2 => self.tiny(id),
                flags => Err(Error::corrupt("hdf5-corrupt", "HDF5: an object of an unknown kind in a heap")
                    .at(self.address)
                    .found(format_args!("{flags:?}"))),
            };
        };
        if len == 0 {
            return Ok(Bytes::new());
        }
        let len = to_usize(len)?;
        let block = match self.block.take() {
            Some(block) if block.rest(at).is_some() => block,
            _ => self.find(at)?,
        };
        let block = self.block.insert(block);
        let bytes = block.rest(at).filter(|bytes| bytes.len() >= len);
        bytes.map(|bytes| bytes.slice(..len)).ok_or_else(|| {
            Error::corrupt("hdf5-corrupt", "HDF5: an object is not in the blocks of its heap")
                .at(self.address)
                .found(format_args!("{len} bytes at {at} in the heap"))
        })
    }

    /// An object that stands in its own number.
    fn tiny(&self, id: &[u8]) -> Result<Bytes> {
        let mut reader = self.file.reader(id);
        let mut len = usize::from(reader.u8()? & 15);
        if self.head.id > SHORT_ID {
            len = len << 8 | usize::from(reader.u8()?);
        }
        Ok(Bytes::copy_from_slice(reader.take(len + 1)?))
    }

    /// An object that stands alone: its number has its place, or is listed with it.
    fn large(&mut self, id: &[u8]) -> Result<Bytes> {
        let (file, heap) = (self.file, self.address);
        let (offset, length) = file.widths();
        let mut reader = file.reader(id);
        reader.skip(1)?;
        if reader.left() as u64 >= offset + length {
            return file.bytes(reader.offset()?, reader.length()?);
        }
        let number = reader.number(reader.left().min(8))?;
        let missing = || {
            Error::corrupt("hdf5-corrupt", "HDF5: a large object is not listed by its heap")
                .at(heap)
                .found(format_args!("number {number}"))
        };
        let large = match &mut self.large {
            Some(large) => large,
            None if self.head.large == u64::MAX => return Err(missing()),
            none => {
                let (tree, mut broken) = (Tree::open(file, self.head.large, LARGE)?, Broken::default());
                let records = tree.records(file, &mut broken)?;
                broken.none()?;
                let mut large = HashMap::new();
                for record in records.chunks_exact(tree.record) {
                    let mut reader = file.reader(record);
                    let place = (reader.offset()?, reader.length()?);
                    large.insert(reader.length()?, place);
                }
                none.insert(large)
            }
        };
        let &(address, len) = large.get(&number).ok_or_else(missing)?;
        file.bytes(address, len)
    }

    /// The block of objects that `at` is in.
    fn find(&mut self, at: u64) -> Result<Block> {
        let root = self.head.root;
        let rows = u32::from(self.head.rows);
        if rows == 0 {
            let len = self.head.first_block;
            let block = self.objects(root, 0, len);
            return self.or_broken(block, 0, len);
        }
        let form = Form::new(&self.head)?;
        let mut table = loop {
            match self.path.pop() {
                Some(table) if table.holds(at) => break table,
                Some(_) => {}
                None => {
                    let table = self.table(root, 0, form, rows);
                    break self.or_broken(table, 0, u64::MAX)?;
                }
            }
        };
        while table.holds(at) {
            let cell = form.cell(at - table.start);
            let (start, index) = (table.start + cell.start, to_usize(cell.index)?);
            let mut entries = self.file.reader(&table.bytes);
            entries.skip(self.block_head() + index.saturating_mul(self.file.offset_size().into()))?;
            let address = entries.offset()?;
            if cell.bits <= form.largest {
                self.path.push(table);
                let block = self.objects(address, start, 1 << cell.bits);
                return self.or_broken(block, start, 1 << cell.bits);
            }
            // It has fewer rows than the table above, so this comes to an end.
            let Some(rows) = form.rows(cell.bits) else { break };
            let inner = self.table(address, start, form, rows);
            let inner = match inner {
                Ok(inner) => inner,
                Err(error) => {
                    self.path.push(table);
                    return self.or_broken(Err(error), start, 1 << cell.bits);
                }
            };
            self.path.push(std::mem::replace(&mut table, inner));
        }
        Err(Error::corrupt("hdf5-corrupt", "HDF5: an offset is not in the space of its heap")
            .at(self.address)
            .expected(format_args!("less than {} in the block at {}", table.space, table.start))
            .found(at))
    }

    /// `part`; where it cannot be read, that `len` bytes from `start` on in the space are in it.
    fn or_broken<T>(&mut self, part: Result<T>, start: u64, len: u64) -> Result<T> {
        if part.is_err() {
            self.broken = start..start.saturating_add(len);
        }
        part
    }

    /// The block of objects at `address`, whose place in the space is `start`.
    fn objects(&self, address: u64, start: u64, len: u64) -> Result<Block> {
        let bytes = self.block_at(address, len, b"FHDB", start)?;
        if self.head.flags & 2 != 0 {
            // The checksum stands behind the head, and is of the block without it.
            let at = self.block_head();
            let sum = self.file.reader(bytes.get(at..).unwrap_or_default()).u32()?;
            let mut body = bytes.to_vec();
            if let Some(own) = body.get_mut(at..at + 4) {
                own.fill(0);
            }
            sums::matches(&body, sum, "a block of a heap", address)?;
        }
        Ok(Block { start, bytes })
    }

    /// The table at `address`, whose place in the space is `start`.
    fn table(&self, address: u64, start: u64, form: Form, rows: u32) -> Result<Table> {
        let most = u32::from(self.head.bits);
        let space = form.space(rows).filter(|space| space.ilog2() <= most).ok_or_else(|| {
            Error::corrupt("hdf5-corrupt", "HDF5: a table of a heap has more rows than the heap has room for")
                .at(address)
                .expected(format_args!("a space of 2^{most} bytes"))
                .found(format_args!("{rows} rows"))
        })?;
        let len = (u64::from(rows) << form.width) * u64::from(self.file.offset_size());
        let bytes = self.block_at(address, self.block_head() as u64 + len + 4, b"FHIB", start)?;
        sums::checked(&bytes, b"FHIB", "a block of a heap", address)?;
        Ok(Table { start, space, bytes })
    }

    /// Bytes of the head of a block: mark, version, address of the heap, place.
    fn block_head(&self) -> usize {
        5 + usize::from(self.file.offset_size()) + self.offset_width()
    }

    /// The bytes of the block at `address`: it says which heap it is of and what its place is there, so none stands for two.
    fn block_at(&self, address: u64, len: u64, mark: &[u8; 4], start: u64) -> Result<Bytes> {
        if address == u64::MAX {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: a block of a heap was never written")
                .at(self.address)
                .expected(format_args!("a block for the offset {start}")));
        }
        let bytes = self.file.bytes(address, len)?;
        let mut reader = self.file.reader(&bytes);
        if reader.take(4)? != mark || reader.u8()? != 0 {
            return Err(sums::lost("a block of a heap", address));
        }
        let (heap, place) = (reader.offset()?, reader.number(self.offset_width())?);
        if (heap, place) != (self.address, start) {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: a block of a heap belongs elsewhere")
                .at(address)
                .expected(format_args!("offset {start} of the heap at {}", self.address))
                .found(format_args!("offset {place} of the heap at {heap}")));
        }
        Ok(bytes)
    }
}
