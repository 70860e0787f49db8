//! Groups of the first kind: names in a heap, entries in the leaves of a tree.

use super::super::file::{File, fault};
use super::{Broken, Link, Owned, Target};
use crate::error::{Error, Result};
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::symbol_table_msg;
use hdf5_reader::storage::StorageBuffer;
use std::collections::HashSet;

/// Gives `keep` the links of the group of that message. A node of the tree or a name that cannot be read goes to `broken`.
///
/// # Errors
/// Where the heap of the names cannot be read at all, and those of `keep`.
pub(super) fn links(
    file: &File,
    message: &[u8],
    broken: &mut Broken,
    keep: &mut impl FnMut(Link) -> Result<()>,
) -> Result<()> {
    let (offsets, lengths) = (file.offset_size(), file.length_size());
    let mut cursor = hdf5_reader::io::Cursor::new(message);
    let table = symbol_table_msg::parse(&mut cursor, offsets, lengths, message.len()).map_err(fault)?;
    let names = Names::read(file, table.heap_address, broken)?;
    let mut owned = Owned::new(file);
    for address in leaves(file, table.btree_address, broken)? {
        let Some(leaf) = broken.part(leaf(file, address, &mut owned))? else { continue };
        let mut reader = file.place.reader(&leaf);
        reader.skip(8)?;
        while reader.left() > 0 {
            let (name, object, cache) = (reader.offset()?, reader.offset()?, reader.u32()?);
            reader.skip(4)?;
            let scratch = reader.take(16)?;
            let target = match cache {
                2 => Err(u32::from_le_bytes([scratch[0], scratch[1], scratch[2], scratch[3]])),
                _ => Ok(object),
            };
            let link = names.link(name, target).map_err(|error| error.at(address));
            if let Some(link) = broken.part(link)? {
                // Nothing is read behind it: each name would cost time for nothing.
                owned.take(link.bytes()).map_err(|error| error.at(address))?;
                keep(link)?;
            }
        }
    }
    Ok(())
}

/// The names of a group.
struct Names {
    heap: Option<StorageBuffer>,
    /// Where the last of them ends.
    end: usize,
}

impl Names {
    /// Those in the heap at `address`, as far as they are in the file.
    fn read(file: &File, address: u64, broken: &mut Broken) -> Result<Self> {
        let (offsets, lengths) = (file.offset_size(), file.length_size());
        let heap = LocalHeap::parse_at_storage(file.storage(), address, offsets, lengths).map_err(fault)?;
        let (at, size) = (heap.data_segment_address, heap.data_segment_size);
        if size == 0 {
            return Ok(Self { heap: None, end: 0 });
        }
        let end = file.place.source.len().saturating_sub(file.place.base);
        let left = size.min(end.saturating_sub(at));
        if left < size && left > 0 {
            broken.part(file.place.offset(at, size))?;
        }
        let there = if left > 0 { left } else { size };
        let heap = file.bytes_as("hdf5 local heap", at, there)?;
        let end = memchr::memrchr(0, &heap).map_or(0, |last| last + 1);
        Ok(Self { heap: Some(heap), end })
    }

    /// The link of that name to an object, or to the path at the place that `target` says.
    fn link(&self, name: u64, target: Result<u64, u32>) -> Result<Link> {
        // Both end, before either is read: what is an error is not counted.
        let name = self.from(name)?;
        let target = match target {
            Ok(object) => Ok(object),
            Err(path) => Err(self.from(path.into())?),
        };
        let name = match text(name) {
            Ok(name) => name,
            Err(name) => {
                let target = Err(Error::unsupported("hdf5-name", "HDF5: a name that is not UTF-8"));
                return Ok(Link { name, target, order: None });
            }
        };
        let target = match target {
            Ok(object) => Target::Hard(object),
            Err(path) => Target::Soft(text(path).unwrap_or_else(|lossy| lossy)),
        };
        Ok(Link { name, target: Ok(target), order: None })
    }

    /// The names from `at` on. That the one there ends is known without a search: many may stand for it.
    fn from(&self, at: u64) -> Result<&[u8]> {
        let names = self.heap.as_deref().and_then(|heap| heap.get(..self.end)).unwrap_or_default();
        let rest = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or_default();
        match rest {
            [] => Err(Error::corrupt("hdf5-corrupt", "HDF5: a name in a group does not end")),
            rest => Ok(rest),
        }
    }
}

/// The first text of `names`; as an error one that is not UTF-8.
fn text(names: &[u8]) -> Result<String, String> {
    let len = memchr::memchr(0, names).unwrap_or(names.len());
    let own = String::from_utf8(names[..len].to_vec());
    own.map_err(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The bytes of the leaf at `address`, as far as it has entries.
fn leaf(file: &File, address: u64, owned: &mut Owned) -> Result<StorageBuffer> {
    let head = file.bytes(address, 8)?;
    let mut reader = file.place.reader(&head);
    if reader.take(4)? != b"SNOD" || reader.u8()? != 1 {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: a node of a group has lost its mark").at(address));
    }
    reader.skip(1)?;
    let entry = 2 * u64::from(file.offset_size()) + 24;
    let bytes = file.bytes(address, 8 + u64::from(reader.u16()?) * entry)?;
    owned.take(bytes.len() as u64)?;
    Ok(bytes)
}

/// The addresses of the leaves of the tree at `root`, in order.
fn leaves(file: &File, root: u64, broken: &mut Broken) -> Result<Vec<u64>> {
    let (mut leaves, mut open, mut seen) = (Vec::new(), vec![root], HashSet::new());
    // Its nodes lie beside each other: together they have no more bytes than the file.
    let mut owned = Owned::new(file);
    while let Some(address) = open.pop() {
        if hdf5_reader::io::Cursor::is_undefined_offset(address, file.offset_size()) {
            continue;
        }
        let node = match seen.insert(address) {
            true => node(file, address, &mut owned),
            false => {
                let error = Error::corrupt("hdf5-corrupt", "HDF5: the tree of a group comes to a node twice");
                Err(error.at(address))
            }
        };
        match broken.part(node)? {
            Some((true, children)) => leaves.extend(children),
            Some((false, children)) => open.extend(children.into_iter().rev()),
            None => {}
        }
    }
    Ok(leaves)
}

/// The children of the node at `address`; true where they are leaves.
fn node(file: &File, address: u64, owned: &mut Owned) -> Result<(bool, Vec<u64>)> {
    let (offset, length) = (u64::from(file.offset_size()), u64::from(file.length_size()));
    let head = 8 + 2 * offset;
    let start = file.bytes(address, head)?;
    let mut reader = file.place.reader(&start);
    if reader.take(4)? != b"TREE" || reader.u8()? != 0 {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: a node of the tree of a group has lost its mark")
            .at(address));
    }
    let (level, count) = (reader.u8()?, reader.u16()?);
    let bytes = file.bytes(address, head + u64::from(count) * (length + offset) + length)?;
    owned.take(bytes.len() as u64)?;
    let mut reader = file.place.reader(&bytes);
    reader.skip(crate::source::to_usize(head)?)?;
    let mut children = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        reader.length()?;
        children.push(reader.offset()?);
    }
    Ok((level == 0, children))
}
