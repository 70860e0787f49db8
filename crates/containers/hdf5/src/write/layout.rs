//! File layout: collected objects to a plan.

use super::attribute::{Attribute, Elements};
use super::group::{self, Address};
use super::header::Space;
use super::header::{Header, UNDEFINED};
use super::heap::{GlobalHeap, HeapAddress};
use super::{Content, Data, Hdf5Builder, Named, Node, datatype, display_path};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::tensor::Order;

/// Length of the superblock, with the entry of the root group, in bytes.
const SUPERBLOCK: usize = 96;
/// Alignment of the elements in bytes, so that a mapped tensor is aligned for any type.
const ALIGN: u64 = 64;
/// Maximum length of a file: operating systems use signed offsets.
const MAX_FILE_LEN: u64 = u64::MAX / 2;

pub(super) fn finish(builder: Hdf5Builder) -> Result<PlannedFile> {
    let Hdf5Builder { name, nodes } = builder;
    let mut bytes = vec![0; SUPERBLOCK];
    let texts = texts(&nodes, &mut bytes)?;
    let (root, mut places) = objects(&nodes, &texts, &mut bytes)?;
    // Elements are stored in the order in which their datasets were added.
    places.reverse();
    let end = addresses(&mut bytes, &mut places)?;
    bytes[..SUPERBLOCK].copy_from_slice(&superblock(root, end));

    let mut elements: Vec<Option<Data>> = nodes.into_iter().map(|node| node.content.into_data()).collect();
    let mut file = FileBuilder::new(name);
    file.literal(bytes);
    for place in places {
        file.padding(0, place.start - file.position());
        match elements[place.node].take() {
            Some(Data::Tensor(entry)) => file.tensor(&entry, Order::Row)?,
            Some(Data::Opaque(inner)) => file.embed(inner),
            Some(Data::Null(_)) | None => {}
        }
    }
    Ok(file.finish())
}

impl Content {
    fn into_data(self) -> Option<Data> {
        match self {
            Self::Group(_) => None,
            Self::Dataset(data) => Some(*data),
        }
    }
}

/// The elements of a dataset, and their offset.
struct Unplaced {
    /// Offset of their address field in the object header.
    address_at: usize,
    node: usize,
    len: u64,
    start: u64,
}

/// Appends the texts of all attributes. Returns their addresses for each object.
fn texts(nodes: &[Node], bytes: &mut Vec<u8>) -> Result<Vec<Vec<HeapAddress>>> {
    let mut heap = GlobalHeap::new(bytes);
    let mut places = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut own = Vec::new();
        for named in &node.attributes {
            let Elements::Texts(texts) = attribute(named)?.elements else { continue };
            for text in texts {
                own.push(
                    heap.add(text).ok_or_else(|| refused(&named.name, "the text is longer than 4 GiB"))?,
                );
            }
        }
        places.push(own);
    }
    heap.close();
    Ok(places)
}

fn attribute(named: &Named) -> Result<Attribute<'_>> {
    let made = match &named.stored_as {
        None => Attribute::new(&named.value),
        Some(stored_as) => Attribute::typed(&named.value, stored_as),
    };
    made.map_err(|why| refused(&named.name, why))
}

fn refused(name: &str, why: &str) -> Error {
    let name = weighbridge_core::text::escape(name);
    Error::mismatch("no-such-attribute", format!("HDF5 cannot hold the attribute {name}: {why}"))
}

/// Appends all objects. Returns the address of the root group, and the elements to be placed, in reverse order.
fn objects(
    nodes: &[Node],
    texts: &[Vec<HeapAddress>],
    bytes: &mut Vec<u8>,
) -> Result<(Address, Vec<Unplaced>)> {
    let mut addresses = vec![Address::default(); nodes.len()];
    let mut places = Vec::new();
    // A group precedes its members: in reverse order, every member has its address already.
    for (index, node) in nodes.iter().enumerate().rev() {
        let mut header = Header::default();
        let mut elements = None;
        match &node.content {
            Content::Group(members) => {
                let members: Vec<(&str, Address)> =
                    members.iter().map(|(name, &member)| (name.as_str(), addresses[member])).collect();
                let (btree, heap) = group::append(bytes, &members);
                addresses[index].members = Some((btree, heap));
                header.symbol_table(btree, heap)?;
            }
            Content::Dataset(data) => elements = Some(dataset(&mut header, data)?),
        }
        attributes(&mut header, node, &texts[index])
            .map_err(|e| e.within(format_args!("/{}", display_path(nodes, index))))?;
        let (header, prefix) = header.finish()?;
        let start = bytes.len();
        addresses[index].header = start as u64;
        if let Some((place, len)) = elements.filter(|&(_, len)| len > 0) {
            places.push(Unplaced { address_at: start + prefix + place, node: index, len, start: 0 });
        }
        bytes.extend(header);
    }
    Ok((addresses.first().copied().unwrap_or_default(), places))
}

/// Adds the messages of a dataset. Returns the offset of the address of the elements, and their length in bytes.
fn dataset(header: &mut Header, data: &Data) -> Result<(usize, u64)> {
    match data {
        Data::Tensor(entry) | Data::Null(entry) => {
            let Some(datatype) = datatype::of(entry.dtype()) else {
                return Err(Error::mismatch(
                    "no-such-dtype",
                    format!("HDF5 has no type for {}", entry.dtype()),
                )
                .on_tensor(entry.name()));
            };
            let (space, len) = match data {
                Data::Null(_) => (Space::Null, 0),
                _ => (Space::Simple(entry.shape.dims().to_vec()), entry.bytes()),
            };
            Ok((header.dataset(&datatype, &space, len)?, len))
        }
        Data::Opaque(file) => {
            let space = Space::Simple(vec![file.len]);
            Ok((header.dataset(&datatype::opaque(1), &space, file.len)?, file.len))
        }
    }
}

fn attributes(header: &mut Header, node: &Node, texts: &[HeapAddress]) -> Result<()> {
    let mut texts = texts.iter();
    for named in &node.attributes {
        let Attribute { datatype, space, elements } = attribute(named)?;
        let elements = match elements {
            Elements::Bytes(bytes) => bytes,
            Elements::Texts(own) => texts.by_ref().take(own.len()).flat_map(|place| place.bytes()).collect(),
        };
        header.attribute(&named.name, &datatype, &space, &elements)?;
    }
    Ok(())
}

/// Assigns offsets behind the metadata to all elements and writes them into the headers. Returns the end of
/// the file.
fn addresses(bytes: &mut [u8], places: &mut [Unplaced]) -> Result<u64> {
    let mut end = bytes.len() as u64;
    for place in places {
        let start = end.next_multiple_of(ALIGN);
        end = start
            .checked_add(place.len)
            .filter(|&end| end <= MAX_FILE_LEN - ALIGN)
            .ok_or_else(|| Error::mismatch("too-long", "the file would exceed 2^63 bytes"))?;
        place.start = start;
        bytes[place.address_at..place.address_at + UNDEFINED.to_le_bytes().len()]
            .copy_from_slice(&start.to_le_bytes());
    }
    Ok(end)
}

/// The superblock (section II.A), version 0.
fn superblock(root: Address, end: u64) -> [u8; SUPERBLOCK] {
    let mut bytes = [0; SUPERBLOCK];
    bytes[..8].copy_from_slice(b"\x89HDF\r\n\x1a\n");
    // Versions of superblock, free space, root group and shared headers: all 0. Bytes of an offset
    // and of a length: 8.
    bytes[13..15].copy_from_slice(&[8, 8]);
    // Half the entries of a symbol table node, half the children of a node of the B-tree.
    bytes[16] = group::LEAF_K;
    bytes[18] = group::INTERNAL_K;
    bytes[32..40].copy_from_slice(&UNDEFINED.to_le_bytes());
    bytes[40..48].copy_from_slice(&end.to_le_bytes());
    bytes[48..56].copy_from_slice(&UNDEFINED.to_le_bytes());
    bytes[56..].copy_from_slice(&group::entry(0, root));
    bytes
}
