//! Symbol-table groups: names in a local heap, entries in the leaves of a version-1 B-tree.

use super::super::broken::Broken;
use super::super::file::{File, Parts};
use super::super::siblings::Siblings;
use super::super::sums;
use super::{Link, Target};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::rc::Rc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Calls `keep` with the links of the group of a symbol table message. Unreadable B-tree nodes and names go to `broken`.
///
/// # Errors
/// Errors of the local heap as a whole, and of `keep`.
pub(super) fn links(
    file: &File,
    message: &[u8],
    broken: &mut Broken,
    keep: &mut impl FnMut(Link) -> Result<()>,
) -> Result<()> {
    let mut reader = file.reader(message);
    let (tree, heap) = (reader.offset()?, reader.offset()?);
    let names = Names::read(file, heap, broken)?;
    let parts = file.parts();
    let mut before: Option<&[u8]> = None;
    for place in leaves(file, tree, broken)? {
        let (address, bounds) = (place.address, place.bounds());
        let leaf = leaf(file, address, &parts, broken);
        let Some(leaf) = broken.part(leaf)? else { continue };
        let mut reader = file.reader(&leaf);
        reader.skip(8)?;
        // If a name of a leaf is out of order, any of them may be wrong: the whole leaf is dropped.
        let (mut found, mut whole) = (Vec::new(), true);
        while reader.left() > 0 {
            let (name, object, cache) = (reader.offset()?, reader.offset()?, reader.u32()?);
            reader.skip(4)?;
            let scratch = reader.take(16)?;
            let target = match cache {
                0 | 1 => Ok(object),
                2 => Err(u32::from_le_bytes([scratch[0], scratch[1], scratch[2], scratch[3]])),
                kind => {
                    let text = "HDF5: a symbol table entry of the group has an unknown cache type";
                    broken.part::<()>(Err(Error::corrupt("hdf5-corrupt", text).at(address).found(kind)))?;
                    continue;
                }
            };
            // Taken from the budget before the name is checked: invalid names cost as much time.
            let names_from = names.from(name).unwrap_or_default();
            let len = memchr::memchr(0, names_from).unwrap_or(0) as u64;
            parts.take(len).map_err(|error| error.at(address))?;
            // The HDF5 library finds a name by the keys before and behind it.
            let in_order = names.is_between(name, before, &bounds).map_err(|error| error.at(address));
            // An unreadable name does not affect the other names.
            let mut keys = bounds.iter().flat_map(|&(low, high)| [low, high]).chain([name]);
            let is_read = keys.all(|key| names.from(key).is_ok());
            whole &= broken.part(in_order)?.is_some() || !is_read;
            before = names.from(name).ok();
            let link = names.link(name, target).map_err(|error| error.at(address));
            if let Some(link) = broken.part(link)? {
                // Budget: many entries may refer to one long name.
                parts.take(link.bytes().saturating_sub(len)).map_err(|error| error.at(address))?;
                found.push(link);
            }
        }
        if whole {
            found.into_iter().try_for_each(&mut *keep)?;
        }
    }
    Ok(())
}

/// Names of a group: its local heap.
struct Names {
    heap: Option<Bytes>,
    /// End of the last name.
    end: usize,
}

impl Names {
    /// Reads the local heap at `address`, up to the end of the file.
    fn read(file: &File, address: u64, broken: &mut Broken) -> Result<Self> {
        let (offset, length) = file.widths();
        let head = file.bytes(address, 8 + 2 * length + offset)?;
        let mut reader = file.reader(&head);
        if reader.take(4)? != b"HEAP" || reader.u8()? != 0 {
            return Err(sums::lost("local heap", address));
        }
        reader.skip(3)?;
        let (size, free, at) = (reader.length()?, reader.length()?, reader.offset()?);
        if size == 0 {
            return Ok(Self { heap: None, end: 0 });
        }
        let end = file.context.source.len().saturating_sub(file.context.superblock.at);
        let left = size.min(end.saturating_sub(at));
        if left < size && left > 0 {
            broken.part(file.context.offset(at, size))?;
        }
        let there = if left > 0 { left } else { size };
        let heap = file.bytes_as("hdf5 local heap", at, there)?;
        let unused = unused(file, &heap, free).map_err(|error| error.at(address));
        broken.part(unused)?;
        let end = memchr::memrchr(0, &heap).map_or(0, |last| last + 1);
        Ok(Self { heap: Some(heap), end })
    }

    /// Fails unless the name at `at` is valid, follows `before`, and is between the names of all `bounds`. Costs no more
    /// than reading the name.
    fn is_between(&self, at: u64, before: Option<&[u8]>, bounds: &[(u64, u64)]) -> Result<()> {
        let name = self.from(at)?;
        let bad = |text: &str| {
            let shown = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let found =
                String::from_utf8_lossy(shown.get(..shown.len().min(80)).unwrap_or_default()).into_owned();
            Err(Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).found(found))
        };
        if before.is_some_and(|before| order(before, name) != Ordering::Less) {
            return bad("the names of the group are not in order");
        }
        for &(low, high) in bounds {
            if order(self.from(low)?, name) != Ordering::Less
                || order(self.from(high)?, name) == Ordering::Less
            {
                return bad("the B-tree keys of the group do not enclose its names");
            }
        }
        Ok(())
    }

    /// Returns the link named at `name`: to the object `Ok`, or to the path at the heap offset `Err` of `target`.
    fn link(&self, name: u64, target: Result<u64, u32>) -> Result<Link> {
        // Name and path are checked first: errors do not count against the budget.
        let name = self.from(name)?;
        let is_path = name.iter().take_while(|&&byte| byte != 0).any(|&byte| byte == b'/');
        if name.starts_with(b"\0") || name.starts_with(b".\0") || is_path {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: a name in the group is empty, `.`, or contains a slash",
            ));
        }
        let target = match target {
            Ok(object) => Ok(object),
            Err(path) => Err(self.from(path.into())?),
        };
        let name = match text(name) {
            Ok(name) => name,
            Err(name) => {
                let target = Err(Error::unsupported("hdf5-name", "HDF5: the name is not UTF-8"));
                return Ok(Link { name, target, order: None });
            }
        };
        let target = match target {
            Ok(object) => Target::Hard(object),
            Err(path) => Target::Soft(text(path).unwrap_or_else(|lossy| lossy)),
        };
        Ok(Link { name, target: Ok(target), order: None })
    }

    /// Returns the bytes from the name at `at` on. The heap is cut behind its last NUL, so every name ends.
    fn from(&self, at: u64) -> Result<&[u8]> {
        let names = self.heap.as_deref().and_then(|heap| heap.get(..self.end)).unwrap_or_default();
        let rest = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or_default();
        match rest {
            [] => Err(Error::corrupt("hdf5-corrupt", "HDF5: a name in the group exceeds the local heap")),
            rest => Ok(rest),
        }
    }
}

/// Returns the first text of `names`; the error is a lossy text that is not UTF-8.
fn text(names: &[u8]) -> Result<String, String> {
    let len = memchr::memchr(0, names).unwrap_or(names.len());
    let own = String::from_utf8(names[..len].to_vec());
    own.map_err(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Checks the free list of a local heap, from the block at `at` on.
fn unused(file: &File, heap: &[u8], mut at: u64) -> Result<()> {
    /// End of the list.
    const NONE: u64 = 1;
    let bad = |found: u64| {
        let text = "HDF5: the free list of the local heap leaves the heap or has a cycle";
        Err(Error::corrupt("hdf5-corrupt", text).found(found))
    };
    let mut seen = HashSet::new();
    while at != NONE {
        let Some(rest) = usize::try_from(at).ok().and_then(|at| heap.get(at..)) else { return bad(at) };
        if !seen.insert(at) || rest.len() < 2 * usize::from(file.context.superblock.length_size) {
            return bad(at);
        }
        let mut reader = file.reader(rest);
        let (next, len) = (reader.length()?, reader.length()?);
        if next == 0 || len > rest.len() as u64 {
            return bad(at);
        }
        at = next;
    }
    Ok(())
}

/// Compares two NUL-terminated names.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let ended = |pair: &(&u8, &u8)| pair.0 != pair.1 || *pair.0 == 0;
    a.iter().zip(b).find(ended).map_or_else(|| a.len().cmp(&b.len()), |(a, b)| a.cmp(b))
}

/// A leaf or inner node of a B-tree, with the keys (heap offsets of names) on both sides of it and of its ancestors.
struct Leaf {
    address: u64,
    /// Keys of the ancestors, shared by all children of a node.
    above: Rc<[(u64, u64)]>,
    own: Option<(u64, u64)>,
}

impl Leaf {
    fn bounds(&self) -> Rc<[(u64, u64)]> {
        self.above.iter().copied().chain(self.own).collect()
    }
}

/// Reads the leaf at `address`, without unused entries.
fn leaf(file: &File, address: u64, parts: &Parts, broken: &mut Broken) -> Result<Bytes> {
    let head = file.bytes(address, 8)?;
    let mut reader = file.reader(&head);
    if reader.take(4)? != b"SNOD" || reader.u8()? != 1 {
        return Err(sums::lost("symbol table node", address));
    }
    reader.skip(1)?;
    let entry = 2 * u64::from(file.offset_size()) + 24;
    let count = u64::from(reader.u16()?);
    fits(file, address, count, file.context.half_capacities.leaf, |most| 8 + most * entry, broken)?;
    let bytes = file.bytes(address, 8 + count * entry)?;
    parts.take(bytes.len() as u64)?;
    Ok(bytes)
}

/// Fails unless `count` entries fit a node. The HDF5 library reads full nodes: a node whose unused entries
/// exceed the file goes to `broken`, and its entries are read.
fn fits(
    file: &File,
    address: u64,
    count: u64,
    half: u16,
    len: impl Fn(u64) -> u64,
    broken: &mut Broken,
) -> Result<()> {
    let most = 2 * u64::from(half);
    if count > most {
        return Err(Error::corrupt(
            "hdf5-corrupt",
            "HDF5: a node of the group has more entries than its capacity",
        )
        .at(address)
        .expected(format_args!("at most {most}"))
        .found(count));
    }
    broken.part(file.context.offset(address, len(most)))?;
    Ok(())
}

/// Returns the leaves of the B-tree at `root`, in order.
fn leaves(file: &File, root: u64, broken: &mut Broken) -> Result<Vec<Leaf>> {
    let root = Leaf { address: root, above: Rc::default(), own: None };
    let (mut leaves, mut open, mut seen) = (Vec::new(), vec![(root, None)], HashSet::new());
    // Nodes do not overlap: together they are no longer than the file.
    let parts = file.parts();
    let mut siblings = Siblings::default();
    let mut whole = true;
    while let Some((place, level)) = open.pop() {
        let (address, bounds) = (place.address, place.bounds());
        if address == u64::MAX {
            continue;
        }
        let node = match seen.insert(address) {
            true => node(file, address, &bounds, &parts, broken),
            false => {
                let error = Error::corrupt("hdf5-corrupt", "HDF5: the B-tree of the group has a cycle");
                Err(error.at(address))
            }
        };
        let node = node.and_then(|node| match Budget::check_depth(bounds.len()) {
            Ok(()) => Ok(node),
            Err(_) => Err(Error::corrupt("hdf5-corrupt", "HDF5: the B-tree of the group is nested too deep")
                .at(address)),
        });
        let Some(node) = broken.part(node)? else {
            whole = false;
            continue;
        };
        let wrong = |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(address);
        if level.is_some_and(|level| level != node.level) {
            broken.part::<()>(Err(wrong("a B-tree node of the group states a wrong level")))?;
        }
        // With an unreadable node, the addresses of its neighbours cannot be checked.
        if whole {
            broken.part(siblings.check_next(node.level, address, node.left, node.right))?;
        }
        match node.level.checked_sub(1) {
            None => leaves.extend(node.children),
            Some(below) => {
                open.extend(node.children.into_iter().rev().map(|child| (child, Some(below))));
            }
        }
    }
    if whole {
        broken.part(siblings.end())?;
    }
    Ok(leaves)
}

/// A node of the B-tree.
struct Node {
    level: u8,
    left: u64,
    right: u64,
    children: Vec<Leaf>,
}

/// Reads the node at `address`; `bounds` are the keys around it.
fn node(
    file: &File,
    address: u64,
    bounds: &Rc<[(u64, u64)]>,
    parts: &Parts,
    broken: &mut Broken,
) -> Result<Node> {
    let (offset, length) = file.widths();
    let head = 8 + 2 * offset;
    let start = file.bytes(address, head)?;
    let mut reader = file.reader(&start);
    if reader.take(4)? != b"TREE" || reader.u8()? != 0 {
        return Err(sums::lost("B-tree node of a group", address));
    }
    let (level, count) = (reader.u8()?, reader.u16()?);
    let (left, right) = (reader.offset()?, reader.offset()?);
    let len = |count: u64| head + count * (length + offset) + length;
    fits(file, address, count.into(), file.context.half_capacities.node, len, broken)?;
    let bytes = file.bytes(address, len(count.into()))?;
    parts.take(bytes.len() as u64)?;
    let mut reader = file.reader(&bytes);
    reader.skip(to_usize(head)?)?;
    let mut children = Vec::with_capacity(usize::from(count));
    let mut low = reader.length()?;
    for _ in 0..count {
        let (address, high) = (reader.offset()?, reader.length()?);
        children.push(Leaf { address, above: bounds.clone(), own: Some((low, high)) });
        low = high;
    }
    Ok(Node { level, left, right, children })
}
