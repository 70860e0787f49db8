//! What a group holds: names, and where each leads.

use super::attributes::spend;
use super::file::{File, fault};
use super::fractal::Fractal;
use super::header::Header;
use crate::error::{Error, Result};
use hdf5_reader::btree_v1::collect_btree_v1_leaves_storage;
use hdf5_reader::btree_v2::{BTreeV2Header, BTreeV2Record, collect_btree_v2_records_storage};
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::{self, attribute_info, link, link::LinkTarget, link_info, symbol_table_msg};

/// The kind of links to other files; kinds above it are defined by users.
const EXTERNAL_LINK: u8 = 64;

/// A link; or the name under which one could not be read, and why.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) target: Result<Target>,
    /// Its place in the order in which links were made, where the group keeps it.
    order: Option<u64>,
}

impl Link {
    /// Bytes of the texts of it.
    fn bytes(&self) -> u64 {
        let target = match &self.target {
            Ok(Target::Soft(path)) => path.len(),
            Ok(Target::External(file, path)) => file.len() + path.len(),
            _ => 0,
        };
        (self.name.len() + target) as u64
    }
}

/// Where a link leads.
pub(super) enum Target {
    Hard(u64),
    /// A path in this file.
    Soft(String),
    /// Another file and a path in it.
    External(String, String),
}

/// The links of the group of that header: in the order in which they were made where the group keeps
/// it, else by name. `room` is the memory that they may still take.
pub(super) fn links(file: &File, header: &Header, room: &mut u64) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut keep = |link: Link| {
        spend(room, link.bytes() + size_of::<Link>() as u64)?;
        links.push(link);
        Ok(())
    };
    if let Some(message) = header.first(file, messages::MSG_SYMBOL_TABLE)? {
        symbol_table(file, &message, &mut keep)?;
        return Ok(links);
    }
    for message in header.all(messages::MSG_LINK) {
        let payload = header.payload(file, message)?;
        keep(parse(file, &payload))?;
    }
    if let Some(message) = header.first(file, messages::MSG_LINK_INFO)? {
        let mut cursor = hdf5_reader::io::Cursor::new(&message);
        let info = link_info::parse(&mut cursor, file.offset_size(), file.length_size(), message.len())
            .map_err(fault)?;
        dense(file, info.fractal_heap_address, info.btree_name_index_address, |_, bytes| {
            keep(parse(file, &bytes))
        })?;
        claim_order(file, info.btree_creation_order_address)?;
    }
    match links.iter().all(|link| link.order.is_some()) {
        true => links.sort_by_key(|link| link.order),
        false => links.sort_by(|a, b| a.name.cmp(&b.name)),
    }
    Ok(links)
}

/// Gives `take` each object of a fractal heap that a tree lists, with the order in which attributes were made.
fn dense(file: &File, heap: u64, tree: u64, mut take: impl FnMut(u32, Vec<u8>) -> Result<()>) -> Result<()> {
    let (offsets, lengths) = (file.offset_size(), file.length_size());
    let undefined = |address| hdf5_reader::io::Cursor::is_undefined_offset(address, offsets);
    if undefined(heap) || undefined(tree) {
        return Ok(());
    }
    let storage = file.storage();
    let mut heap = Fractal::open(file, heap)?;
    let tree = BTreeV2Header::parse_at_storage(storage, tree, offsets, lengths).map_err(fault)?;
    let records = collect_btree_v2_records_storage(&file.once(), &tree, offsets, lengths, None, &[], None);
    let mut records = records.map_err(fault)?;
    // The tree goes by the hash of names; in the order of the heap each of its blocks is read once.
    records.sort_unstable_by_key(|record| match record {
        BTreeV2Record::LinkNameHash { heap_id, .. } | BTreeV2Record::AttributeNameHash { heap_id, .. } => {
            heap.place(heap_id).ok().flatten()
        }
        _ => None,
    });
    let mut owned = Owned::new(file);
    for record in records {
        let (order, id) = match record {
            BTreeV2Record::LinkNameHash { heap_id, .. } => (0, heap_id),
            BTreeV2Record::AttributeNameHash { heap_id, creation_order, flags, .. } => {
                if flags & 2 != 0 {
                    return Err(Error::unsupported(
                        "hdf5-shared-messages",
                        "HDF5: messages in a table that objects share are not read",
                    ));
                }
                (creation_order, heap_id)
            }
            _ => continue,
        };
        let bytes = heap.object(&id)?;
        owned.take(bytes.len() as u64)?;
        take(order, bytes)?;
    }
    Ok(())
}

/// The bytes of a file that the members of a group may still be made of: each has its own.
struct Owned {
    left: u64,
    all: u64,
}

impl Owned {
    fn new(file: &File) -> Self {
        let all = file.place.source.len();
        Self { left: all, all }
    }

    /// Takes those of one member.
    fn take(&mut self, bytes: u64) -> Result<()> {
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: what a group or its attributes are made of is longer than the file",
            )
            .expected(format_args!("at most {} bytes", self.all))
            .hint("several names may stand for the same bytes"));
        };
        self.left = left;
        Ok(())
    }
}

/// Where bytes are accounted for, goes through the tree in the order in which things were made: it says
/// nothing new.
fn claim_order(file: &File, address: Option<u64>) -> Result<()> {
    let (offsets, lengths) = (file.offset_size(), file.length_size());
    let undefined = |address: &u64| hdf5_reader::io::Cursor::is_undefined_offset(*address, offsets);
    let (Some(address), Some(_)) = (address.filter(|address| !undefined(address)), file.record()) else {
        return Ok(());
    };
    let storage = file.storage();
    let tree = BTreeV2Header::parse_at_storage(storage, address, offsets, lengths).map_err(fault)?;
    collect_btree_v2_records_storage(&file.once(), &tree, offsets, lengths, None, &[], None)
        .map_err(fault)?;
    Ok(())
}

/// The attributes that stand outside of the header, as bytes, in the order in which they were made.
pub(super) fn dense_attributes(file: &File, header: &Header) -> Result<Vec<Vec<u8>>> {
    let Some(message) = header.first(file, messages::MSG_ATTRIBUTE_INFO)? else { return Ok(Vec::new()) };
    let mut cursor = hdf5_reader::io::Cursor::new(&message);
    let info = attribute_info::parse(&mut cursor, file.offset_size(), file.length_size(), message.len())
        .map_err(fault)?;
    let mut objects = Vec::new();
    dense(file, info.fractal_heap_address, info.btree_name_index_address, |order, bytes| {
        objects.push((order, bytes));
        Ok(())
    })?;
    claim_order(file, info.btree_creation_order_address)?;
    objects.sort_by_key(|&(order, _)| order);
    Ok(objects.into_iter().map(|(_, bytes)| bytes).collect())
}

/// The link in a link message.
fn parse(file: &File, bytes: &[u8]) -> Link {
    let mut cursor = hdf5_reader::io::Cursor::new(bytes);
    match link::parse(&mut cursor, file.offset_size(), file.length_size(), bytes.len()) {
        Ok(link) => {
            let target = match link.target {
                LinkTarget::Hard { address } => Target::Hard(address),
                LinkTarget::Soft { path } => Target::Soft(path),
                LinkTarget::External { filename, path } => Target::External(filename, path),
            };
            Link { name: link.name, target: Ok(target), order: link.creation_order }
        }
        Err(error) => {
            let error = match user_kind(bytes) {
                Some(kind) => {
                    Error::unsupported("hdf5-user-link", "HDF5: a link of a kind that its maker defined")
                        .found(format_args!("kind {kind}"))
                }
                None => fault(error),
            };
            Link { name: "?".to_owned(), target: Err(error), order: None }
        }
    }
}

/// The kind of a link in a link message, where the format leaves its meaning to whoever registers it.
fn user_kind(bytes: &[u8]) -> Option<u8> {
    // Version, flags; the kind follows where the flags say so.
    let [1, flags, kind, ..] = *bytes else { return None };
    (flags & 8 != 0 && kind > EXTERNAL_LINK).then_some(kind)
}

/// The links of a group of the first kind: names in a heap, entries in the leaves of a tree.
fn symbol_table(file: &File, message: &[u8], keep: &mut impl FnMut(Link) -> Result<()>) -> Result<()> {
    let (offsets, lengths) = (file.offset_size(), file.length_size());
    let mut cursor = hdf5_reader::io::Cursor::new(message);
    let table = symbol_table_msg::parse(&mut cursor, offsets, lengths, message.len()).map_err(fault)?;
    let storage = file.storage();
    let heap = LocalHeap::parse_at_storage(storage, table.heap_address, offsets, lengths).map_err(fault)?;
    let names = match heap.data_segment_size {
        0 => None,
        size => Some(file.bytes_as("hdf5 local heap", heap.data_segment_address, size)?),
    };
    let names: &[u8] = names.as_deref().unwrap_or_default();
    let text = |at: u64| -> Result<Result<String, String>> {
        let rest = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or_default();
        let Some(len) = memchr::memchr(0, rest) else {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: a name in a group does not end"));
        };
        let own = String::from_utf8(rest[..len].to_vec());
        Ok(own.map_err(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    };
    let leaves =
        collect_btree_v1_leaves_storage(&file.once(), table.btree_address, offsets, lengths, None, &[], None)
            .map_err(fault)?;
    let mut owned = Owned::new(file);
    for (_, address) in leaves {
        let head = file.bytes(address, 8)?;
        let mut reader = file.place.reader(&head);
        if reader.take(4)? != b"SNOD" || reader.u8()? != 1 {
            return Err(
                Error::corrupt("hdf5-corrupt", "HDF5: a node of a group has lost its mark").at(address)
            );
        }
        reader.skip(1)?;
        let count = u64::from(reader.u16()?);
        let bytes = file.bytes(address, 8 + count * (2 * u64::from(offsets) + 24))?;
        owned.take(bytes.len() as u64)?;
        let mut reader = file.place.reader(&bytes);
        reader.skip(8)?;
        for _ in 0..count {
            let (name, object, cache) = (reader.offset()?, reader.offset()?, reader.u32()?);
            reader.skip(4)?;
            let scratch = reader.take(16)?;
            let link = match text(name)? {
                Ok(name) if cache == 2 => {
                    let at = u32::from_le_bytes([scratch[0], scratch[1], scratch[2], scratch[3]]);
                    let path = text(u64::from(at))?.unwrap_or_else(|lossy| lossy);
                    Link { name, target: Ok(Target::Soft(path)), order: None }
                }
                Ok(name) => Link { name, target: Ok(Target::Hard(object)), order: None },
                Err(name) => {
                    let target = Err(Error::unsupported("hdf5-name", "HDF5: a name that is not UTF-8"));
                    Link { name, target, order: None }
                }
            };
            owned.take(link.bytes())?;
            keep(link)?;
        }
    }
    Ok(())
}
