//! The members of a group: names in a local heap (section III.D), entries in symbol table nodes
//! (III.B, III.C), and a version-1 B-tree above them (III.A.1).

/// Half the entries of a symbol table node, as stated in the superblock.
pub(super) const LEAF_K: u8 = 4;
/// Half the children of a node of the B-tree.
pub(super) const INTERNAL_K: u8 = 16;
/// Entries of a symbol table node.
const NODE_ENTRIES: usize = 2 * LEAF_K as usize;
/// Children of a node of the B-tree.
const FANOUT: usize = 2 * INTERNAL_K as usize;
/// Bytes of an entry.
const ENTRY_LEN: usize = 40;
/// Minimum length of the data segment of a local heap, as libhdf5 makes it.
const MIN_SEGMENT_LEN: usize = 88;
/// The undefined address.
const UNDEFINED: [u8; 8] = [0xff; 8];

/// Address of an object, and of the members of a group.
#[derive(Clone, Copy, Default)]
pub(super) struct Address {
    /// Object header.
    pub(super) header: u64,
    /// B-tree and local heap of a group.
    pub(super) members: Option<(u64, u64)>,
}

/// A symbol table entry: the offset of the name in the heap of its group, and the object.
pub(super) fn entry(name: u64, object: Address) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    bytes[..8].copy_from_slice(&name.to_le_bytes());
    bytes[8..16].copy_from_slice(&object.header.to_le_bytes());
    if let Some((btree, heap)) = object.members {
        bytes[16] = 1;
        bytes[24..32].copy_from_slice(&btree.to_le_bytes());
        bytes[32..].copy_from_slice(&heap.to_le_bytes());
    }
    bytes
}

/// A child of a B-tree node: its address, and the heap offset of its last name.
struct Child {
    address: u64,
    last: u64,
}

/// Appends the members of a group to `file`: `members` are sorted by the bytes of their names.
/// Returns the addresses of the B-tree and of the heap.
pub(super) fn append(file: &mut Vec<u8>, members: &[(&str, Address)]) -> (u64, u64) {
    let (heap, names) = local_heap(file, members.iter().map(|(name, _)| *name));
    let mut children = Vec::with_capacity(members.len().div_ceil(NODE_ENTRIES));
    for (members, names) in members.chunks(NODE_ENTRIES).zip(names.chunks(NODE_ENTRIES)) {
        let address = file.len() as u64;
        file.extend(b"SNOD\x01\0");
        file.extend([u8::try_from(members.len()).unwrap_or(0), 0]);
        for (&(_, object), &name) in members.iter().zip(names) {
            file.extend(entry(name, object));
        }
        file.resize(file.len() + (NODE_ENTRIES - members.len()) * ENTRY_LEN, 0);
        children.push(Child { address, last: names.last().copied().unwrap_or(0) });
    }
    (btree(file, children), heap)
}

/// Appends a local heap of names. Returns its address, and the offset of every name.
fn local_heap<'a>(file: &mut Vec<u8>, names: impl Iterator<Item = &'a str>) -> (u64, Vec<u64>) {
    let address = file.len() as u64;
    // The empty name has the offset 0.
    let mut segment = vec![0; 8];
    let mut offsets = Vec::new();
    for name in names {
        offsets.push(segment.len() as u64);
        segment.extend(name.as_bytes());
        segment.resize((segment.len() + 1).next_multiple_of(8), 0);
    }
    // The rest is one free block: no next one, and its own length.
    let free = segment.len();
    let len = (free + 16).max(MIN_SEGMENT_LEN);
    segment.extend(1u64.to_le_bytes());
    segment.extend(((len - free) as u64).to_le_bytes());
    segment.resize(len, 0);

    file.extend(b"HEAP\0\0\0\0");
    file.extend((len as u64).to_le_bytes());
    file.extend((free as u64).to_le_bytes());
    file.extend((address + 32).to_le_bytes());
    file.extend(segment);
    (address, offsets)
}

/// Appends the B-tree above these nodes, level by level. Returns the address of its root.
fn btree(file: &mut Vec<u8>, mut children: Vec<Child>) -> u64 {
    let mut level = 0u8;
    loop {
        let count = children.len().div_ceil(FANOUT).max(1);
        let first = file.len() as u64;
        let size = (24 + FANOUT * 8 + (FANOUT + 1) * 8) as u64;
        let mut above = Vec::with_capacity(count);
        // The key to the left of a node is the last name of the one before; the first is empty.
        let mut key = 0;
        for place in 0..count {
            let address = first + place as u64 * size;
            let own = children.get(place * FANOUT..).unwrap_or_default();
            let own = &own[..own.len().min(FANOUT)];
            file.extend(b"TREE\0");
            file.push(level);
            file.extend([u8::try_from(own.len()).unwrap_or(0), 0]);
            let neighbour = |there: bool, at: u64| if there { at.to_le_bytes() } else { UNDEFINED };
            file.extend(neighbour(place > 0, address.wrapping_sub(size)));
            file.extend(neighbour(place + 1 < count, address.wrapping_add(size)));
            file.extend(u64::to_le_bytes(key));
            for child in own {
                key = child.last;
                file.extend(child.address.to_le_bytes());
                file.extend(key.to_le_bytes());
            }
            file.resize(file.len() + (FANOUT - own.len()) * 16, 0);
            above.push(Child { address, last: key });
        }
        if count == 1 {
            return first;
        }
        children = above;
        level += 1;
    }
}
