//! What stands outside of a header: objects of a heap, listed by a tree.

use super::super::broken::Broken;
use super::super::file::File;
use super::super::fractal::Fractal;
use super::super::header::{About, Header, shared_messages};
use super::super::tree::Tree;
use bytes::Bytes;
use weighbridge_core::error::{Error, Result};

/// The kinds of trees of links and of attributes by their names; those in the order in which they were made have the
/// next number.
const LINKS: u8 = 5;
const ATTRIBUTES: u8 = 8;

/// Heap and tree that hold the links of a group or the attributes of an object.
struct Kept {
    heap: u64,
    by_name: u64,
    /// In the order in which they were made.
    by_order: u64,
}

impl Kept {
    /// The message about links, or attributes; `None` where there is none. Its number of the newest has `newest` bytes.
    fn read(file: &File, header: &Header, about: About, newest: usize) -> Result<Option<Self>> {
        let Some(message) = header.first(file, about)? else { return Ok(None) };
        let mut reader = file.reader(&message);
        let (version, flags) = (reader.u8()?, reader.u8()?);
        if version != 0 {
            let text = "HDF5: a group, or its attributes, kept in an unknown way";
            return Err(Error::corrupt("hdf5-corrupt", text).at(message.address).found(version));
        }
        reader.skip(if flags & 1 != 0 { newest } else { 0 })?;
        let (heap, by_name) = (reader.offset()?, reader.offset()?);
        let by_order = if flags & 2 != 0 { reader.offset()? } else { u64::MAX };
        Ok(Some(Self { heap, by_name, by_order }))
    }

    /// Gives `take` the object of each record of the tree by names, and the record; `id` says where in a record the
    /// number of its object begins, and how many bytes of it do not belong to the number. What cannot be read goes to
    /// `broken`.
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
            // The tree goes by the hash of names; in the order of the heap each of its blocks is read once.
            let mut records: Vec<&[u8]> = records.chunks_exact(tree.record).collect();
            records.sort_by_cached_key(|record| heap.place(&id(record)).ok().flatten());
            // Nothing is read behind an object of no length: each would cost time for nothing.
            let parts = file.parts();
            for record in records {
                let id = id(record);
                if heap.is_in_broken(&id) {
                    broken.again();
                    continue;
                }
                if let Some(object) = broken.part(heap.object(&id))? {
                    parts.take(object.len() as u64)?;
                    take(object, record)?;
                }
            }
        }
        // Where bytes are accounted for, the tree in the order in which things were made is read, too: it says nothing new.
        if file.record().is_some() && self.by_order != u64::MAX {
            Tree::open(file, self.by_order, kind + 1)?.records(file, broken)?;
        }
        Ok(())
    }
}

/// Gives `take` the message of each link of a group that stands outside of its header. What cannot be read goes to
/// `broken`.
///
/// # Errors
/// Where the head of the heap or of the tree cannot be read, and those of `take`.
pub(super) fn links(
    file: &File,
    header: &Header,
    broken: &mut Broken,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let Some(kept) = Kept::read(file, header, About::LinkInfo, 8)? else { return Ok(()) };
    // A hash, and the number.
    kept.each(file, (LINKS, 4, 4), broken, |object, _| take(&object))
}

/// The attributes that stand outside of the header, as bytes, in the order in which they were made.
///
/// # Errors
/// Where any of them cannot be read.
pub(in super::super) fn dense_attributes(file: &File, header: &Header) -> Result<Vec<Bytes>> {
    let (mut objects, mut broken) = (Vec::new(), Broken::default());
    if let Some(kept) = Kept::read(file, header, About::AttributeInfo, 2)? {
        // The number, flags, when it was made, a hash.
        kept.each(file, (ATTRIBUTES, 0, 9), &mut broken, |object, record| {
            let mut reader = file.reader(record).from(record.len().saturating_sub(9));
            if reader.u8()? & 2 != 0 {
                return Err(shared_messages());
            }
            objects.push((reader.u32()?, object));
            Ok(())
        })?;
    }
    broken.none()?;
    objects.sort_by_key(|&(order, _)| order);
    Ok(objects.into_iter().map(|(_, object)| object).collect())
}
