//! What stands outside of a header: objects of a heap, listed by a tree.

use super::super::file::{File, Once, fault};
use super::super::fractal::Fractal;
use super::super::header::Header;
use super::{Broken, Owned};
use hdf5_reader::btree_v2::{BTreeV2Header, BTreeV2Record, collect_btree_v2_records_storage};
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::messages::{self, attribute_info};
use hdf5_reader::storage::Storage;
use std::collections::HashSet;
use weighbridge_core::error::{Error, Kind, Result};

/// Mark, version and kind of a node, and the checksum behind what it holds.
const NODE: u64 = 10;

/// Levels of a tree above its leaves, as the library behind has them.
const DEEPEST: u16 = 64;

/// Gives `take` the message of each link that the tree lists. Nodes and blocks that cannot be read go to `broken`.
///
/// # Errors
/// Where the head of the heap or of the tree cannot be read, and those of `take`.
pub(super) fn links(
    file: &File,
    heap: u64,
    tree: u64,
    broken: &mut Broken,
    mut take: impl FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let Some((mut heap, tree)) = open(file, heap, tree)? else { return Ok(()) };
    let records = match all(file, &tree) {
        Err(error) if error.kind() == Kind::Corrupt => readable(file, &tree, broken)?,
        records => records?,
    };
    let mut owned = Owned::new(file);
    for record in in_order(&heap, records) {
        let BTreeV2Record::LinkNameHash { heap_id, .. } = record else { continue };
        if heap.is_in_broken(&heap_id) {
            broken.again();
            continue;
        }
        if let Some(bytes) = broken.part(heap.object(&heap_id))? {
            // Nothing is read behind it: each object would cost time for nothing.
            owned.take(bytes.len() as u64)?;
            take(bytes)?;
        }
    }
    Ok(())
}

/// The attributes that stand outside of the header, as bytes, in the order in which they were made.
pub(in super::super) fn dense_attributes(file: &File, header: &Header) -> Result<Vec<Vec<u8>>> {
    let Some(message) = header.first(file, messages::MSG_ATTRIBUTE_INFO)? else { return Ok(Vec::new()) };
    let mut cursor = hdf5_reader::io::Cursor::new(&message);
    let info = attribute_info::parse(&mut cursor, file.offset_size(), file.length_size(), message.len())
        .map_err(fault)?;
    let mut objects = Vec::new();
    if let Some((mut heap, tree)) = open(file, info.fractal_heap_address, info.btree_name_index_address)? {
        let mut owned = Owned::new(file);
        for record in in_order(&heap, all(file, &tree)?) {
            let BTreeV2Record::AttributeNameHash { heap_id, creation_order, flags, .. } = record else {
                continue;
            };
            if flags & 2 != 0 {
                return Err(Error::unsupported(
                    "hdf5-shared-messages",
                    "HDF5: messages in a table that objects share are not read",
                ));
            }
            let bytes = heap.object(&heap_id)?;
            owned.take(bytes.len() as u64)?;
            objects.push((creation_order, bytes));
        }
    }
    claim_order(file, info.btree_creation_order_address)?;
    objects.sort_by_key(|&(order, _)| order);
    Ok(objects.into_iter().map(|(_, bytes)| bytes).collect())
}

/// The heap and the head of the tree, where there are such.
fn open(file: &File, heap: u64, tree: u64) -> Result<Option<(Fractal<'_>, BTreeV2Header)>> {
    let (offsets, lengths) = (file.offset_size(), file.length_size());
    let undefined = |address| hdf5_reader::io::Cursor::is_undefined_offset(address, offsets);
    if undefined(heap) || undefined(tree) {
        return Ok(None);
    }
    let heap = Fractal::open(file, heap)?;
    let tree = BTreeV2Header::parse_at_storage(file.storage(), tree, offsets, lengths).map_err(fault)?;
    Ok(Some((heap, tree)))
}

/// The records of a tree.
fn all(file: &File, tree: &BTreeV2Header) -> Result<Vec<BTreeV2Record>> {
    records(file, &file.once(), tree)
}

fn records(file: &File, once: &Once<'_>, tree: &BTreeV2Header) -> Result<Vec<BTreeV2Record>> {
    let (offsets, lengths) = (file.offset_size(), file.length_size());
    collect_btree_v2_records_storage(once, tree, offsets, lengths, None, &[], None).map_err(fault)
}

/// The tree goes by the hash of names; in the order of the heap each of its blocks is read once.
fn in_order(heap: &Fractal<'_>, mut records: Vec<BTreeV2Record>) -> Vec<BTreeV2Record> {
    records.sort_unstable_by_key(|record| match record {
        BTreeV2Record::LinkNameHash { heap_id, .. } | BTreeV2Record::AttributeNameHash { heap_id, .. } => {
            heap.place(heap_id).ok().flatten()
        }
        _ => None,
    });
    records
}

/// The records of links in those nodes of a damaged tree that can be read.
///
/// # Errors
/// Where the tree is too deep, and those of [`Broken::part`].
fn readable(file: &File, tree: &BTreeV2Header, broken: &mut Broken) -> Result<Vec<BTreeV2Record>> {
    if tree.depth > DEEPEST {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: the tree of a group is too deep")
            .expected(format_args!("at most {DEEPEST} levels"))
            .found(format_args!("{} levels", tree.depth)));
    }
    let widths = Widths::of(tree, file.offset_size());
    // One budget for all its nodes, each of which is read once.
    let (once, mut seen) = (file.once(), HashSet::new());
    let mut found = Vec::new();
    let mut open = vec![(tree.root_node_address, tree.num_records_in_root, tree.depth)];
    while let Some((address, count, depth)) = open.pop() {
        if !seen.insert(address) {
            let error = Error::corrupt("hdf5-corrupt", "HDF5: the tree of a group comes to a node twice");
            broken.part::<()>(Err(error.at(address)))?;
            continue;
        }
        // A leaf is a tree by itself.
        let node =
            BTreeV2Header { root_node_address: address, num_records_in_root: count, depth, ..tree.clone() };
        match widths.get(usize::from(depth)).filter(|_| depth > 0) {
            None => {
                let leaf = records(file, &once, &node).map_err(|error| error.at(address));
                found.extend(broken.part(leaf)?.unwrap_or_default());
            }
            Some(widths) => {
                let node = inner(file, &once, &node, widths).map_err(|error| error.at(address));
                let Some((own, children)) = broken.part(node)? else { continue };
                found.extend(own);
                open.extend(children.into_iter().map(|(address, count)| (address, count, depth - 1)));
            }
        }
    }
    Ok(found)
}

/// Addresses of nodes, and how many records each has.
type Children = Vec<(u64, u16)>;

/// The records of links that the root of a tree holds itself, and the addresses of its children with how many records
/// each has.
fn inner(
    file: &File,
    once: &Once<'_>,
    tree: &BTreeV2Header,
    widths: &Widths,
) -> Result<(Vec<BTreeV2Record>, Children)> {
    let bad =
        |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: a node of the tree of a group {text}"));
    let len = weighbridge_io::source::to_usize(tree.node_size.into())?;
    let bytes = once.read_range(tree.root_node_address, len).map_err(fault)?;
    let (count, size) = (usize::from(tree.num_records_in_root), usize::from(tree.record_size));
    let pointers = (count + 1) * (usize::from(file.offset_size()) + widths.own + widths.below);
    let end = weighbridge_io::source::to_usize(NODE)? - 4 + count * size + pointers;
    let Some((body, sum)) = bytes.split_at_checked(end) else { return Err(bad("is too short")) };
    let mut reader = file.place.reader(body);
    if reader.take(4)? != b"BTIN" || reader.u8()? != 0 || reader.u8()? != tree.btree_type {
        return Err(bad("has lost its mark"));
    }
    if jenkins_lookup3(body) != file.place.reader(sum).u32()? {
        return Err(Error::corrupt(
            "hdf5-checksum",
            "HDF5: a node of the tree of a group does not match its checksum",
        ));
    }
    let mut own = Vec::with_capacity(count);
    for _ in 0..count {
        let mut record = file.place.reader(reader.take(size)?);
        let hash = record.u32()?;
        own.push(BTreeV2Record::LinkNameHash { hash, heap_id: record.take(size - 4)?.to_vec() });
    }
    let mut children = Vec::with_capacity(count + 1);
    for _ in 0..=count {
        let (address, count) = (reader.offset()?, reader.number(widths.own)?);
        reader.skip(widths.below)?;
        children.push((address, u16::try_from(count).map_err(|_| bad("has a child that is too large"))?));
    }
    Ok((own, children))
}

/// Bytes of the two numbers that stand behind the address of a child: its records; those of it and all below it, which
/// a leaf has not.
struct Widths {
    own: usize,
    below: usize,
}

impl Widths {
    /// Those of nodes of each depth, as the original has them: the first is that of a full leaf at any depth, the second
    /// that of a full tree.
    fn of(tree: &BTreeV2Header, offset: u8) -> Vec<Self> {
        let width = |most: u64| most.checked_ilog2().map_or(1, |bits| bits / 8 + 1);
        let bytes = |width: u32| usize::try_from(width).unwrap_or_default();
        let (node, size) = (u64::from(tree.node_size), u64::from(tree.record_size).max(1));
        let leaf = node.saturating_sub(NODE) / size;
        let (own, mut below, mut all) = (width(leaf), 0, leaf);
        let one = |below| Self { own: bytes(own), below: bytes(below) };
        // A leaf has no children; those of the nodes right above the leaves have nothing below them.
        let mut widths = vec![one(0), one(0)];
        for _ in 1..tree.depth {
            let pointer = u64::from(offset) + u64::from(own + below);
            let most = node.saturating_sub(NODE + pointer) / (size + pointer);
            all = (most + 1).saturating_mul(all).saturating_add(most);
            below = width(all);
            widths.push(one(below));
        }
        widths
    }
}

/// Where bytes are accounted for, goes through the tree in the order in which things were made: it says
/// nothing new.
pub(super) fn claim_order(file: &File, address: Option<u64>) -> Result<()> {
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
