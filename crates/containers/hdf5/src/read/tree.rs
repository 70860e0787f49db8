//! Version-2 B-trees: records of equal length in nodes of equal length.

use super::broken::Broken;
use super::file::{File, Parts};
use super::sums;
use bytes::Bytes;
use std::collections::HashSet;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Length of signature, version, type and checksum of a node, in bytes.
const NODE_OVERHEAD: u64 = 10;

/// Addresses of nodes, each with its number of records.
type Children = Vec<(u64, u16)>;

/// Header of a B-tree.
pub(super) struct Tree {
    kind: u8,
    /// Length of a node in bytes.
    node: u64,
    /// Length of a record in bytes.
    pub(super) record: usize,
    depth: u16,
    root: u64,
    /// Number of records in the root.
    count: u16,
}

impl Tree {
    /// Reads the header of the B-tree at `address`, which must have the type `kind`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]; [`weighbridge_core::Kind::Limit`] where it is nested too deep.
    pub(super) fn open(file: &File, address: u64, kind: u8) -> Result<Self> {
        let (offset, length) = file.widths();
        let head = file.bytes(address, 22 + offset + length)?;
        let mut reader = file.reader(sums::checked(&head, b"BTHD", "B-tree header", address)?);
        reader.skip(4)?;
        let (version, own) = (reader.u8()?, reader.u8()?);
        if version != 0 || own != kind {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the B-tree has a wrong type or version")
                .at(address)
                .expected(format_args!("version 0, type {kind}"))
                .found(format_args!("version {version}, type {own}")));
        }
        let (node, record, depth) = (u64::from(reader.u32()?), usize::from(reader.u16()?), reader.u16()?);
        // Split and merge percentages.
        reader.skip(2)?;
        let (root, count, all) = (reader.offset()?, reader.u16()?, reader.length()?);
        if record == 0 || node < NODE_OVERHEAD {
            let found = format!("records of {record} bytes in nodes of {node} bytes");
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the B-tree has impossible sizes")
                .at(address)
                .found(found));
        }
        Budget::check_depth(depth.into()).map_err(|_| {
            let error = Error::corrupt("hdf5-corrupt", "HDF5: the B-tree is nested too deep");
            error.at(address).found(depth)
        })?;
        let count = if all == 0 { 0 } else { count };
        Ok(Self { kind, node, record, depth, root, count })
    }

    /// Returns all records, concatenated in any order. Unreadable nodes go to `broken`.
    ///
    /// # Errors
    /// Those of [`Broken::part`].
    pub(super) fn records(&self, file: &File, broken: &mut Broken) -> Result<Vec<u8>> {
        let (parts, mut seen, mut records) = (file.parts(), HashSet::new(), Vec::new());
        let widths = Widths::all(self, file.offset_size());
        let mut open = vec![(self.root, self.count, usize::from(self.depth))];
        open.retain(|&(root, count, _)| root != u64::MAX && count > 0);
        while let Some((address, count, depth)) = open.pop() {
            let node = match seen.insert(address) {
                true => self.node(file, address, count, widths.get(depth).filter(|_| depth > 0), &parts),
                false => Err(Error::corrupt("hdf5-corrupt", "HDF5: the B-tree has a cycle").at(address)),
            };
            let Some((node, end, children)) = broken.part(node)? else { continue };
            records.extend_from_slice(node.get(to_usize(NODE_OVERHEAD)? - 4..end).unwrap_or_default());
            open.extend(children.into_iter().map(|(address, count)| (address, count, depth - 1)));
        }
        Ok(records)
    }

    /// Reads the node at `address` with `count` records. Returns its bytes, the end of the records in them, and the
    /// children. Leaves have no `widths`.
    fn node(
        &self,
        file: &File,
        address: u64,
        count: u16,
        widths: Option<&Widths>,
        parts: &Parts,
    ) -> Result<(Bytes, usize, Children)> {
        let bad =
            |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: a B-tree node {text}")).at(address);
        let bytes = file.bytes(address, self.node)?;
        parts.take(self.node)?;
        let records = to_usize(NODE_OVERHEAD)? - 4 + usize::from(count) * self.record;
        let pointer = widths.map_or(0, |widths| usize::from(file.offset_size()) + widths.own + widths.below);
        let end = records + if pointer > 0 { (usize::from(count) + 1) * pointer } else { 0 };
        let whole = bytes.get(..end + 4).ok_or_else(|| bad("is too short for its records"))?;
        let mark = if widths.is_some() { b"BTIN" } else { b"BTLF" };
        let body = sums::checked(whole, mark, "B-tree node", address)?;
        if body[4] != 0 || body[5] != self.kind {
            return Err(bad("belongs to another B-tree"));
        }
        let mut children = Vec::new();
        if let Some(widths) = widths {
            let mut reader = file.reader(body).from(records);
            for _ in 0..=count {
                let (child, count) = (reader.offset()?, reader.number(widths.own)?);
                reader.skip(widths.below)?;
                let count = u16::try_from(count).map_err(|_| bad("has a child that is too large"))?;
                if child != u64::MAX {
                    children.push((child, count));
                }
            }
        }
        Ok((bytes, records, children))
    }
}

/// Widths in bytes of the two counts behind the address of a child: its records, and the records of its whole subtree
/// (absent for leaves).
struct Widths {
    own: usize,
    below: usize,
}

impl Widths {
    /// Computes the widths for each depth as the HDF5 library does: the first count fits a full leaf at any depth, the second
    /// a full subtree.
    fn all(tree: &Tree, offset: u8) -> Vec<Self> {
        let width = |most: u64| most.checked_ilog2().map_or(1, |bits| bits / 8 + 1);
        let bytes = |width: u32| usize::try_from(width).unwrap_or_default();
        let size = tree.record as u64;
        let leaf = tree.node.saturating_sub(NODE_OVERHEAD) / size;
        let (own, mut below, mut all) = (width(leaf), 0, leaf);
        let one = |below| Self { own: bytes(own), below: bytes(below) };
        // A leaf has no children; the children of the level above are leaves, without a subtree count.
        let mut widths = vec![one(0), one(0)];
        for _ in 1..tree.depth {
            let pointer = u64::from(offset) + u64::from(own + below);
            let most = tree.node.saturating_sub(NODE_OVERHEAD + pointer) / (size + pointer);
            all = (most + 1).saturating_mul(all).saturating_add(most);
            below = width(all);
            widths.push(one(below));
        }
        widths
    }
}
