//! Fractal heaps: storage of the links of large groups and of many attributes.
//!
//! A heap is one address space, and an object has an offset in it. Blocks tile the space, and a doubling table lists their
//! addresses. Each row has as many blocks as the table is wide. Blocks of the first two rows have the starting size, those of
//! every other row twice the size of the row above. Above a maximum size a block is itself a table, with as many rows
//! as fill it. Huge objects are stored outside of the space; tiny objects are stored in their own ids.

use super::broken::Broken;
use super::file::File;
use super::sums;
use super::tree::Tree;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Type of B-trees that index huge objects by id.
const HUGE_BTREE: u8 = 1;
/// Maximum length of ids with tiny objects of up to 16 bytes; longer ids allow up to 4 KiB.
const SHORT_ID: u16 = 18;

/// A heap, with the position of the last object read.
pub(super) struct Fractal<'a> {
    file: &'a File,
    address: u64,
    head: Head,
    /// Tables from the root to the current block.
    path: Vec<Table>,
    block: Option<Block>,
    /// Range in the space of the last unreadable block or table.
    broken: Range<u64>,
    /// FileContext and length of huge objects by id, once they are requested.
    large: Option<HashMap<u64, (u64, u64)>>,
}

/// Header of a fractal heap.
struct Head {
    /// Length of an object id in bytes.
    id: u16,
    flags: u8,
    /// Maximum length of an object in the space.
    longest: u64,
    /// B-tree of huge objects.
    large: u64,
    /// Free-space list.
    free: u64,
    width: u16,
    first_block: u64,
    largest_block: u64,
    /// Bits of an offset in the space.
    bits: u16,
    root: u64,
    /// Rows of the root; 0 where it is a block of objects.
    rows: u16,
}

impl Head {
    fn read(file: &File, address: u64) -> Result<Self> {
        let (offset, length) = file.widths();
        let bytes = file.bytes(address, 26 + 12 * length + 3 * offset)?;
        let mut reader = file.reader(&bytes);
        if reader.take(4)? != b"FRHP" || reader.u8()? != 0 {
            return Err(sums::lost("fractal heap", address));
        }
        let (id, filters, flags) = (reader.u16()?, reader.u16()?, reader.u8()?);
        if filters > 0 {
            // Their unpacked length is bounded only by the file itself, and hardly any writer uses filters here.
            return Err(Error::unsupported(
                "hdf5-filter",
                "HDF5: the fractal heap of the group uses filters",
            )
            .hint("rewrite the file without filters for groups"));
        }
        sums::checked(&bytes, b"FRHP", "fractal heap", address)?;
        let longest = u64::from(reader.u32()?);
        reader.length()?;
        let large = reader.offset()?;
        reader.length()?;
        let free = reader.offset()?;
        // Sizes of the space, and counts and sizes of objects of each kind.
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

/// A block of objects: start in the space of the heap, and bytes.
struct Block {
    start: u64,
    bytes: Bytes,
}

impl Block {
    /// Returns the bytes from `at` in the space to the end of the block.
    fn rest(&self, at: u64) -> Option<Bytes> {
        let at = usize::try_from(at.checked_sub(self.start)?).ok()?;
        (at < self.bytes.len()).then(|| self.bytes.slice(at..))
    }
}

/// A table of blocks: start and length in the space, and bytes of the table.
struct Table {
    start: u64,
    space: u64,
    bytes: Bytes,
}

impl Table {
    fn contains(&self, at: u64) -> bool {
        at.checked_sub(self.start).is_some_and(|at| at < self.space)
    }
}

/// Geometry of all tables of a heap, as powers of two.
#[derive(Clone, Copy)]
struct Geometry {
    /// Columns.
    width: u32,
    /// Bytes of a block in the first row.
    first: u32,
    /// Bytes of the largest block of objects.
    largest: u32,
}

impl Geometry {
    fn new(head: &Head) -> Result<Self> {
        let power = |n: u64| n.is_power_of_two().then(|| n.trailing_zeros());
        let (width, first) = (power(head.width.into()), power(head.first_block));
        match (width, first, power(head.largest_block)) {
            (Some(width), Some(first), Some(largest)) if first <= largest => {
                Ok(Self { width, first, largest })
            }
            _ => Err(Error::corrupt("hdf5-corrupt", "HDF5: the fractal heap has invalid table parameters")
                .expected("powers of two, the starting size no larger than the maximum")
                .found(format_args!(
                    "width {}, blocks of {} to {} bytes",
                    head.width, head.first_block, head.largest_block
                ))),
        }
    }

    /// Length in the space of a table of `rows` rows: each row doubles it.
    fn space(self, rows: u32) -> Option<u64> {
        let bits = self.width.checked_add(self.first)?.checked_add(rows.checked_sub(1)?)?;
        1u64.checked_shl(bits)
    }

    /// Number of rows of a table that covers 2^`bits` bytes.
    fn rows(self, bits: u32) -> Option<u32> {
        bits.checked_sub(self.width + self.first).map(|rows| rows + 1)
    }

    /// Returns the block of a table that contains the byte `at` of its space.
    fn cell(self, at: u64) -> Cell {
        let row = match at >> (self.width + self.first) {
            0 => 0,
            turns => turns.ilog2() + 1,
        };
        let bits = self.first + row.saturating_sub(1);
        // Every row except the first is as long as all rows above it together.
        let column = (at >> bits) & ((1 << self.width) - 1);
        Cell { index: (u64::from(row) << self.width) | column, start: (at >> bits) << bits, bits }
    }
}

/// A block in a table: index, start in the space of the table, and length as a power of two.
struct Cell {
    index: u64,
    start: u64,
    bits: u32,
}

impl<'a> Fractal<'a> {
    /// Opens the heap at `address`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `hdf5-filter`, where its blocks are filtered;
    /// [`weighbridge_core::Kind::Corrupt`] where its
    /// header cannot be read.
    pub(super) fn open(file: &'a File, address: u64) -> Result<Self> {
        let head = Head::read(file, address)?;
        super::free_space::check(file, head.free)?;
        Ok(Self { file, address, head, path: Vec::new(), block: None, broken: 0..0, large: None })
    }

    /// Returns offset and length of the object `id` in the space of the heap; `None` for huge and tiny objects.
    pub(super) fn place(&self, id: &[u8]) -> Result<Option<(u64, u64)>> {
        // The highest bits are a version, then a type: 0 for objects in the space.
        if id.first().is_none_or(|flags| flags & 0xf0 != 0) {
            return Ok(None);
        }
        let mut reader = self.file.reader(id);
        reader.skip(1)?;
        let offset = reader.number(self.offset_width())?;
        // The width fits an offset in the largest block, or the maximum object length, whichever is smaller.
        let offsets = self.head.largest_block.max(2) - 1;
        let longest = self.head.longest.max(1);
        let width = |n: u64| n.checked_ilog2().map_or(1, |bits| bits / 8 + 1);
        let width = width(offsets).min(width(longest));
        Ok(Some((offset, reader.number(to_usize(width.into())?)?)))
    }

    /// True where the object `id` is in the last unreadable block, which need not be read again.
    pub(super) fn is_in_broken(&self, id: &[u8]) -> bool {
        self.place(id).ok().flatten().is_some_and(|(at, _)| self.broken.contains(&at))
    }

    /// Width of an offset in the space, in bytes.
    fn offset_width(&self) -> usize {
        usize::from(self.head.bits).div_ceil(8)
    }

    /// Returns the bytes of the object `id`. Each block is read once if objects are requested in the order of their
    /// [offsets](Self::place).
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where its block or a table above it cannot be read, has another position
    /// in the space,
    /// or ends before the object; [`weighbridge_core::Kind::Limit`] where the budget of reads is exceeded.
    pub(super) fn object(&mut self, id: &[u8]) -> Result<Bytes> {
        let Some((at, len)) = self.place(id)? else {
            return match id.first() {
                Some(flags) if flags >> 4 == 1 => self.large(id),
                Some(flags) if flags >> 4 == 2 => self.tiny(id),
                flags => Err(Error::corrupt(
                    "hdf5-corrupt",
                    "HDF5: an object id of the fractal heap has an unknown type",
                )
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
            Error::corrupt("hdf5-corrupt", "HDF5: an object exceeds its block in the fractal heap")
                .at(self.address)
                .found(format_args!("{len} bytes at offset {at} in the heap"))
        })
    }

    /// Reads a tiny object, stored in its own id.
    fn tiny(&self, id: &[u8]) -> Result<Bytes> {
        let mut reader = self.file.reader(id);
        let mut len = usize::from(reader.u8()? & 15);
        if self.head.id > SHORT_ID {
            len = len << 8 | usize::from(reader.u8()?);
        }
        Ok(Bytes::copy_from_slice(reader.take(len + 1)?))
    }

    /// Reads a huge object: its id contains its address, or is a key of the B-tree.
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
            Error::corrupt("hdf5-corrupt", "HDF5: the fractal heap does not list a huge object")
                .at(heap)
                .found(format_args!("id {number}"))
        };
        let large = match &mut self.large {
            Some(large) => large,
            None if self.head.large == u64::MAX => return Err(missing()),
            none => {
                let (tree, mut broken) = (Tree::open(file, self.head.large, HUGE_BTREE)?, Broken::default());
                let records = tree.records(file, &mut broken)?;
                broken.into_result()?;
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

    /// Reads the block of objects that contains the offset `at`.
    fn find(&mut self, at: u64) -> Result<Block> {
        let root = self.head.root;
        let rows = u32::from(self.head.rows);
        if rows == 0 {
            let len = self.head.first_block;
            let block = self.objects(root, 0, len);
            return self.or_broken(block, 0, len);
        }
        let form = Geometry::new(&self.head)?;
        let mut table = loop {
            match self.path.pop() {
                Some(table) if table.contains(at) => break table,
                Some(_) => {}
                None => {
                    let table = self.table(root, 0, form, rows);
                    break self.or_broken(table, 0, u64::MAX)?;
                }
            }
        };
        while table.contains(at) {
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
            // An inner table has fewer rows than the one above, so the loop ends.
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
        Err(Error::corrupt("hdf5-corrupt", "HDF5: an object offset exceeds the fractal heap")
            .at(self.address)
            .expected(format_args!("an offset below {} in the table at {}", table.space, table.start))
            .found(at))
    }

    /// Returns `part`; if it is an error, marks `len` bytes from `start` on in the space as unreadable.
    fn or_broken<T>(&mut self, part: Result<T>, start: u64, len: u64) -> Result<T> {
        if part.is_err() {
            self.broken = start..start.saturating_add(len);
        }
        part
    }

    /// Reads the block of objects at `address`, with the position `start` in the space.
    fn objects(&self, address: u64, start: u64, len: u64) -> Result<Block> {
        let bytes = self.block_at(address, len, b"FHDB", start)?;
        if self.head.flags & 2 != 0 {
            // The checksum follows the block header, and covers the block with a zero checksum.
            let at = self.block_head();
            let sum = self.file.reader(bytes.get(at..).unwrap_or_default()).u32()?;
            let mut body = bytes.to_vec();
            if let Some(own) = body.get_mut(at..at + 4) {
                own.fill(0);
            }
            sums::matches(&body, sum, "fractal heap block", address)?;
        }
        Ok(Block { start, bytes })
    }

    /// Reads the table at `address`, with the position `start` in the space.
    fn table(&self, address: u64, start: u64, form: Geometry, rows: u32) -> Result<Table> {
        let most = u32::from(self.head.bits);
        let space = form.space(rows).filter(|space| space.ilog2() <= most).ok_or_else(|| {
            Error::corrupt("hdf5-corrupt", "HDF5: a table of the fractal heap has too many rows")
                .at(address)
                .expected(format_args!("a space of 2^{most} bytes"))
                .found(format_args!("{rows} rows"))
        })?;
        let len = (u64::from(rows) << form.width) * u64::from(self.file.offset_size());
        let bytes = self.block_at(address, self.block_head() as u64 + len + 4, b"FHIB", start)?;
        sums::checked(&bytes, b"FHIB", "fractal heap block", address)?;
        Ok(Table { start, space, bytes })
    }

    /// Length of a block header: signature, version, heap address, position.
    fn block_head(&self) -> usize {
        5 + usize::from(self.file.offset_size()) + self.offset_width()
    }

    /// Reads the block at `address`. Its header states its heap and position, so no block is used twice.
    fn block_at(&self, address: u64, len: u64, mark: &[u8; 4], start: u64) -> Result<Bytes> {
        if address == u64::MAX {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: a block of the fractal heap has an undefined address",
            )
            .at(self.address)
            .expected(format_args!("a block for the offset {start}")));
        }
        let bytes = self.file.bytes(address, len)?;
        let mut reader = self.file.reader(&bytes);
        if reader.take(4)? != mark || reader.u8()? != 0 {
            return Err(sums::lost("fractal heap block", address));
        }
        let (heap, place) = (reader.offset()?, reader.number(self.offset_width())?);
        if (heap, place) != (self.address, start) {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: a block of the fractal heap states another heap or offset",
            )
            .at(address)
            .expected(format_args!("offset {start} of the heap at {}", self.address))
            .found(format_args!("offset {place} of the heap at {heap}")));
        }
        Ok(bytes)
    }
}
