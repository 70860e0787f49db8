//! Dense storage of links and attributes: objects of a fractal heap, indexed by a version-2 B-tree.

use super::super::broken::Broken;
use super::super::file::File;
use super::super::fractal::Fractal;
use super::super::header::{Header, MessageType, shared_messages};
use super::super::tree::Tree;
use bytes::Bytes;
use weighbridge_core::error::{Error, Result};

/// B-tree types of links and of attributes by name; the types by creation order have the next
/// number.
const LINKS: u8 = 5;
const ATTRIBUTES: u8 = 8;

/// Heap and B-trees of the links of a group or the attributes of an object.
struct DenseStorage {
    heap: u64,
    by_name: u64,
    /// B-tree by creation order.
    by_order: u64,
}

impl DenseStorage {
    /// Reads the link info or attribute info message; `None` where there is none. Its maximum creation index has `newest`
    /// bytes.
    fn read(file: &File, header: &Header, about: MessageType, newest: usize) -> Result<Option<Self>> {
        let Some(message) = header.first(file, about)? else { return Ok(None) };
        let mut reader = file.reader(&message);
        let (version, flags) = (reader.u8()?, reader.u8()?);
        if version != 0 {
            let text = "HDF5: the link info or attribute info message has an unknown version";
            return Err(Error::corrupt("hdf5-corrupt", text).at(message.address).found(version));
        }
        reader.skip(if flags & 1 != 0 { newest } else { 0 })?;
        let (heap, by_name) = (reader.offset()?, reader.offset()?);
        let by_order = if flags & 2 != 0 { reader.offset()? } else { u64::MAX };
        Ok(Some(Self { heap, by_name, by_order }))
    }

    /// Calls `take` with the object of each record of the B-tree by name, and the record. The heap id of the object begins
    /// at `before` in a record; `around` is the length of the other fields. Unreadable parts go to `broken`.
    fn each(
        &self,
        file: &File,
        (kind, before, around): (u8, usize, usize),
        broken: &mut Broken,
        mut take: impl FnMut(Bytes, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.heap != u64::MAX && self.by_name != u64::MAX {
            let mut heap = Fractal::open(file, self.heap)?;
            let tree = Tree::open(file, self.by_name, kind)?;
            let records = tree.records(file, broken)?;
            let id = |record: &[u8]| {
                let len = record.len().saturating_sub(around);
                record.get(before..before + len).unwrap_or_default().to_vec()
            };
            // The B-tree is ordered by the hash of names; in the order of the heap each block is read once.
            let mut records: Vec<&[u8]> = records.chunks_exact(tree.record).collect();
            records.sort_by_cached_key(|record| heap.place(&id(record)).ok().flatten());
            // Budget: many records may refer to one object.
            let parts = file.parts();
            for record in records {
                let id = id(record);
                if heap.is_in_broken(&id) {
                    broken.repeat();
                    continue;
                }
                if let Some(object) = broken.part(heap.object(&id))? {
                    parts.take(object.len() as u64)?;
                    take(object, record)?;
                }
            }
        }
        // For outlines the B-tree by creation order is read, too; its records are the same.
        if file.record().is_some() && self.by_order != u64::MAX {
            Tree::open(file, self.by_order, kind + 1)?.records(file, broken)?;
        }
        Ok(())
    }
}

/// Calls `take` with the message of each link of a group in dense storage. Unreadable parts go to
/// `broken`.
///
/// # Errors
/// Errors of the header of the heap or of the B-tree, and of `take`.
pub(super) fn links(
    file: &File,
    header: &Header,
    broken: &mut Broken,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let Some(storage) = DenseStorage::read(file, header, MessageType::LinkInfo, 8)? else { return Ok(()) };
    // A hash, then the heap id.
    storage.each(file, (LINKS, 4, 4), broken, |object, _| take(&object))
}

/// Returns the messages of attributes in dense storage, in creation order.
///
/// # Errors
/// Where any of them cannot be read.
pub(in super::super) fn dense_attributes(file: &File, header: &Header) -> Result<Vec<Bytes>> {
    let (mut objects, mut broken) = (Vec::new(), Broken::default());
    if let Some(storage) = DenseStorage::read(file, header, MessageType::AttributeInfo, 2)? {
        // The heap id, flags, creation index, a hash.
        storage.each(file, (ATTRIBUTES, 0, 9), &mut broken, |object, record| {
            let mut reader = file.reader(record).from(record.len().saturating_sub(9));
            if reader.u8()? & 2 != 0 {
                return Err(shared_messages());
            }
            objects.push((reader.u32()?, object));
            Ok(())
        })?;
    }
    broken.into_result()?;
    objects.sort_by_key(|&(order, _)| order);
    Ok(objects.into_iter().map(|(_, object)| object).collect())
}
