//! Groups of the first kind: names in a heap, entries in the leaves of a tree.

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
        // Where one name of a leaf is out of order, it is not known which: none of them is taken for right.
        let (mut found, mut whole) = (Vec::new(), true);
        while reader.left() > 0 {
            let (name, object, cache) = (reader.offset()?, reader.offset()?, reader.u32()?);
            reader.skip(4)?;
            let scratch = reader.take(16)?;
            let target = match cache {
                0 | 1 => Ok(object),
                2 => Err(u32::from_le_bytes([scratch[0], scratch[1], scratch[2], scratch[3]])),
                kind => {
                    let text = "HDF5: an entry of a group of an unknown kind";
                    broken.part::<()>(Err(Error::corrupt("hdf5-corrupt", text).at(address).found(kind)))?;
                    continue;
                }
            };
            // Counted before it is looked at: one that is no link would cost as much time, for each entry.
            let names_from = names.from(name).unwrap_or_default();
            let len = memchr::memchr(0, names_from).unwrap_or(0) as u64;
            parts.take(len).map_err(|error| error.at(address))?;
            // The original finds a name by what is before and behind it.
            let in_order = names.is_between(name, before, &bounds).map_err(|error| error.at(address));
            // A name that cannot be read says nothing about the others.
            let mut keys = bounds.iter().flat_map(|&(low, high)| [low, high]).chain([name]);
            let is_read = keys.all(|key| names.from(key).is_ok());
            whole &= broken.part(in_order)?.is_some() || !is_read;
            before = names.from(name).ok();
            let link = names.link(name, target).map_err(|error| error.at(address));
            if let Some(link) = broken.part(link)? {
                // Nothing is read behind it: each name would cost time for nothing.
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

/// The names of a group.
struct Names {
    heap: Option<Bytes>,
    /// Where the last of them ends.
    end: usize,
}

impl Names {
    /// Those in the heap at `address`, as far as they are in the file.
    fn read(file: &File, address: u64, broken: &mut Broken) -> Result<Self> {
        let (offset, length) = file.widths();
        let head = file.bytes(address, 8 + 2 * length + offset)?;
        let mut reader = file.reader(&head);
        if reader.take(4)? != b"HEAP" || reader.u8()? != 0 {
            return Err(sums::lost("a heap of names", address));
        }
        reader.skip(3)?;
        let (size, free, at) = (reader.length()?, reader.length()?, reader.offset()?);
        if size == 0 {
            return Ok(Self { heap: None, end: 0 });
        }
        let end = file.place.source.len().saturating_sub(file.place.superblock.at);
        let left = size.min(end.saturating_sub(at));
        if left < size && left > 0 {
            broken.part(file.place.offset(at, size))?;
        }
        let there = if left > 0 { left } else { size };
        let heap = file.bytes_as("hdf5 local heap", at, there)?;
        let unused = unused(file, &heap, free).map_err(|error| error.at(address));
        broken.part(unused)?;
        let end = memchr::memrchr(0, &heap).map_or(0, |last| last + 1);
        Ok(Self { heap: Some(heap), end })
    }

    /// Fails unless the name at `at` is one, is behind `before`, and is between the names of all `bounds`. Costs no more
    /// than to read the name.
    fn is_between(&self, at: u64, before: Option<&[u8]>, bounds: &[(u64, u64)]) -> Result<()> {
        let name = self.from(at)?;
        let bad = |text: &str| {
            let shown = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let found =
                String::from_utf8_lossy(shown.get(..shown.len().min(80)).unwrap_or_default()).into_owned();
            Err(Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).found(found))
        };
        if before.is_some_and(|before| order(before, name) != Ordering::Less) {
            return bad("the names in a group are not in order");
        }
        for &(low, high) in bounds {
            if order(self.from(low)?, name) != Ordering::Less
                || order(self.from(high)?, name) == Ordering::Less
            {
                return bad("the keys of a group are not around its names");
            }
        }
        Ok(())
    }

    /// The link of that name to an object, or to the path at the place that `target` says.
    fn link(&self, name: u64, target: Result<u64, u32>) -> Result<Link> {
        // Both end, before either is read: what is an error is not counted.
        let name = self.from(name)?;
        let is_path = name.iter().take_while(|&&byte| byte != 0).any(|&byte| byte == b'/');
        if name.starts_with(b"\0") || name.starts_with(b".\0") || is_path {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: a name in a group that no path can lead to"));
        }
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

/// Checks the list of unused places in a heap of names, from the one at `at` on.
fn unused(file: &File, heap: &[u8], mut at: u64) -> Result<()> {
    /// Ends the list.
    const NONE: u64 = 1;
    let bad = |found: u64| {
        let text = "HDF5: the list of unused places among the names of a group leads elsewhere";
        Err(Error::corrupt("hdf5-corrupt", text).found(found))
    };
    let mut seen = HashSet::new();
    while at != NONE {
        let Some(rest) = usize::try_from(at).ok().and_then(|at| heap.get(at..)) else { return bad(at) };
        if !seen.insert(at) || rest.len() < 2 * usize::from(file.place.superblock.length_size) {
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

/// The order of two names that end with a zero byte.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let ended = |pair: &(&u8, &u8)| pair.0 != pair.1 || *pair.0 == 0;
    a.iter().zip(b).find(ended).map_or_else(|| a.len().cmp(&b.len()), |(a, b)| a.cmp(b))
}

/// A leaf of a tree, or a node above, and the keys on both sides of it and of each node above: the places of names.
struct Leaf {
    address: u64,
    /// Those of the nodes above, which all children of a node share.
    above: Rc<[(u64, u64)]>,
    own: Option<(u64, u64)>,
}

impl Leaf {
    fn bounds(&self) -> Rc<[(u64, u64)]> {
        self.above.iter().copied().chain(self.own).collect()
    }
}

/// The bytes of the leaf at `address`, as far as it has entries.
fn leaf(file: &File, address: u64, parts: &Parts, broken: &mut Broken) -> Result<Bytes> {
    let head = file.bytes(address, 8)?;
    let mut reader = file.reader(&head);
    if reader.take(4)? != b"SNOD" || reader.u8()? != 1 {
        return Err(sums::lost("a node of a group", address));
    }
    reader.skip(1)?;
    let entry = 2 * u64::from(file.offset_size()) + 24;
    let count = u64::from(reader.u16()?);
    fits(file, address, count, file.place.halves.leaf, |most| 8 + most * entry, broken)?;
    let bytes = file.bytes(address, 8 + count * entry)?;
    parts.take(bytes.len() as u64)?;
    Ok(bytes)
}

/// Fails unless `count` entries fit a node, and the node with all its unused entries is in the file: the original reads it so.
/// A node whose unused entries alone are cut off goes to `broken`, and its entries are read.
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
            "HDF5: a node of a group has more entries than there is room for",
        )
        .at(address)
        .expected(format_args!("at most {most}"))
        .found(count));
    }
    broken.part(file.place.offset(address, len(most)))?;
    Ok(())
}

/// The leaves of the tree at `root`, in order.
fn leaves(file: &File, root: u64, broken: &mut Broken) -> Result<Vec<Leaf>> {
    let root = Leaf { address: root, above: Rc::default(), own: None };
    let (mut leaves, mut open, mut seen) = (Vec::new(), vec![(root, None)], HashSet::new());
    // Its nodes lie beside each other: together they have no more bytes than the file.
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
                let error = Error::corrupt("hdf5-corrupt", "HDF5: the tree of a group comes to a node twice");
                Err(error.at(address))
            }
        };
        let node = node.and_then(|node| match Budget::check_depth(bounds.len()) {
            Ok(()) => Ok(node),
            Err(_) => {
                Err(Error::corrupt("hdf5-corrupt", "HDF5: the tree of a group of more levels than any")
                    .at(address))
            }
        });
        let Some(node) = broken.part(node)? else {
            whole = false;
            continue;
        };
        let wrong = |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(address);
        if level.is_some_and(|level| level != node.level) {
            broken.part::<()>(Err(wrong("a node of the tree of a group at another level than its own")))?;
        }
        // Where a node is lost, the one beside it leads to it.
        if whole {
            broken.part(siblings.meet(node.level, address, node.left, node.right))?;
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

/// A node of the tree.
struct Node {
    level: u8,
    left: u64,
    right: u64,
    children: Vec<Leaf>,
}

/// The node at `address`, which is between the names of all `bounds`.
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
        return Err(sums::lost("a node of the tree of a group", address));
    }
    let (level, count) = (reader.u8()?, reader.u16()?);
    let (left, right) = (reader.offset()?, reader.offset()?);
    let len = |count: u64| head + count * (length + offset) + length;
    fits(file, address, count.into(), file.place.halves.node, len, broken)?;
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
