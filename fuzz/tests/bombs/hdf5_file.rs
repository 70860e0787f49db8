//! A writer of hand-made HDF5 files: superblock version 0, object headers version 1, links as messages.

/// The undefined address.
pub(crate) const UNDEFINED: u64 = u64::MAX;

/// A file under construction: objects in order; the first one is the root.
#[derive(Debug)]
pub(crate) struct File(Vec<u8>);

impl File {
    /// Starts with the superblock; the root object follows it directly.
    pub(crate) fn new() -> Self {
        let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
        // Versions, sizes of offsets and lengths, leaf K and internal K, flags.
        bytes.extend([0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0]);
        for address in [0, UNDEFINED, 0, UNDEFINED] {
            bytes.extend(address.to_le_bytes());
        }
        // Root entry: name offset, header address, no cache.
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(96u64.to_le_bytes());
        bytes.extend([0; 24]);
        assert_eq!(bytes.len(), 96);
        Self(bytes)
    }

    /// Address of the next object.
    pub(crate) fn next(&self) -> u64 {
        self.0.len() as u64
    }

    /// Appends bytes; returns their address.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next();
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        at
    }

    /// Appends an object header with these messages; returns its address.
    pub(crate) fn object(&mut self, messages: &[Vec<u8>]) -> u64 {
        let body = messages.concat();
        let count = u16::try_from(messages.len()).unwrap().to_le_bytes();
        let len = u32::try_from(body.len()).unwrap().to_le_bytes();
        self.put(&[&[1, 0], &count[..], &1u32.to_le_bytes(), &len, &[0; 4], &body].concat())
    }

    /// Appends an object header of version 2, without a message count; returns its address.
    pub(crate) fn later_object(&mut self, messages: &[Vec<u8>]) -> u64 {
        let body = messages.iter().flat_map(|message| later(message)).collect::<Vec<_>>();
        let len = u32::try_from(body.len()).unwrap().to_le_bytes();
        self.put(&summed([&b"OHDR\x02\x02"[..], &len, &body].concat()))
    }

    /// Sets leaf K and internal K: nodes hold up to twice as many entries.
    pub(crate) fn room(&mut self, leaf: u16, node: u16) {
        self.0[16..20].copy_from_slice(&[leaf.to_le_bytes(), node.to_le_bytes()].concat());
    }

    /// Overwrites bytes.
    pub(crate) fn replace(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the file length in the superblock and returns the file.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u64;
        self.0[40..48].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

/// Makes a header message.
pub(crate) fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload.resize(payload.len().next_multiple_of(8), 0);
    let len = u16::try_from(payload.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes(), &len[..], &[0; 4], &payload].concat()
}

/// Converts a message to the form of version 2 headers.
pub(crate) fn later(message: &[u8]) -> Vec<u8> {
    [&[message[0], message[2], message[3], message[4]][..], &message[8..]].concat()
}

/// Makes a link info message of a group with compact links.
pub(crate) fn link_info() -> Vec<u8> {
    message(2, &[&[0, 0][..], &[0xff; 16]].concat())
}

/// Makes a hard link message.
pub(crate) fn hard(name: &str, address: u64) -> Vec<u8> {
    let len = u8::try_from(name.len()).unwrap();
    message(6, &[&[1, 0, len][..], name.as_bytes(), &address.to_le_bytes()].concat())
}

/// Makes a soft link message.
pub(crate) fn soft(name: &str, path: &str) -> Vec<u8> {
    let (len, path_len) =
        (u8::try_from(name.len()).unwrap(), u16::try_from(path.len()).unwrap().to_le_bytes());
    message(6, &[&[1, 8, 1, len][..], name.as_bytes(), &path_len, path.as_bytes()].concat())
}

/// Makes a symbol table message: a tree and a heap of names.
pub(crate) fn symbol_table(tree: u64, heap: u64) -> Vec<u8> {
    message(0x11, &[tree.to_le_bytes(), heap.to_le_bytes()].concat())
}

/// Makes a local heap with a data segment of a stated length, without free space.
pub(crate) fn local_heap(len: u64, at: u64) -> Vec<u8> {
    [&b"HEAP\0\0\0\0"[..], &len.to_le_bytes(), &1u64.to_le_bytes(), &at.to_le_bytes()].concat()
}

/// Makes a B-tree node of `kind` (0 groups, 1 chunks): alternating keys and children, with a last key. Not padded.
pub(crate) fn tree(kind: u8, level: u8, used: u16, right: u64, rest: &[u8]) -> Vec<u8> {
    let head =
        [&b"TREE"[..], &[kind, level], &used.to_le_bytes(), &UNDEFINED.to_le_bytes(), &right.to_le_bytes()];
    [&head.concat(), rest].concat()
}

/// Makes the single node of a group tree, with one leaf of entries between the names at `low` and `high`; padded for twice
/// `half` entries.
pub(crate) fn group_tree(half: u16, low: u64, entries: u64, high: u64) -> Vec<u8> {
    let rest: Vec<u8> = [low, entries, high].iter().flat_map(|n| n.to_le_bytes()).collect();
    whole(tree(0, 0, 1, UNDEFINED, &rest), group_node(half))
}

/// Size of a node of a group tree, in bytes.
pub(crate) fn group_node(half: u16) -> usize {
    24 + 2 * usize::from(half) * 16 + 8
}

/// Pads a node to its allocated size in the file.
pub(crate) fn whole(mut node: Vec<u8>, len: usize) -> Vec<u8> {
    assert!(node.len() <= len);
    node.resize(len, 0);
    node
}

/// Largest number of entries of a chunk tree node.
const CHUNKS: usize = 64;

/// Makes a chunk tree for chunks of this shape: offsets in order, addresses, lengths in the file.
pub(crate) fn tree_of_chunks(file: &mut File, extents: &[u32], chunks: &[(Vec<u64>, u64, u32)]) -> u64 {
    let entries = chunks.iter().map(|(offset, at, len)| (chunk_key(*len, offset), *at)).collect();
    let (last, ..) = chunks.last().unwrap();
    let end: Vec<u64> = last.iter().zip(extents).map(|(at, &extent)| at + u64::from(extent)).collect();
    nodes_of_chunks(file, 0, entries, &chunk_key(0, &end))
}

/// Makes tree nodes for these keys and children, and parent nodes up to the root, all padded. The first level is `level`.
pub(crate) fn nodes_of_chunks(
    file: &mut File,
    mut level: u8,
    mut entries: Vec<(Vec<u8>, u64)>,
    last: &[u8],
) -> u64 {
    let key = last.len();
    let len = 24 + CHUNKS * (key + 8) + key;
    loop {
        let first = file.next();
        let at = |number: usize| first + (number * len) as u64;
        let count = entries.len().div_ceil(CHUNKS);
        let mut above = Vec::with_capacity(count);
        for (number, own) in entries.chunks(CHUNKS).enumerate() {
            let mut rest: Vec<u8> =
                own.iter().flat_map(|(key, child)| [&key[..], &child.to_le_bytes()].concat()).collect();
            rest.extend(entries.get((number + 1) * CHUNKS).map_or(last, |(key, _)| &key[..]));
            let right = if number + 1 < count { at(number + 1) } else { UNDEFINED };
            let mut node = tree(1, level, u16::try_from(own.len()).unwrap(), right, &rest);
            if number > 0 {
                node[8..16].copy_from_slice(&at(number - 1).to_le_bytes());
            }
            assert_eq!(file.put(&whole(node, len)), at(number));
            above.push((own[0].0.clone(), at(number)));
        }
        if count == 1 {
            return first;
        }
        (entries, level) = (above, level + 1);
    }
}

/// Makes a dataspace message.
pub(crate) fn space(dims: &[u64]) -> Vec<u8> {
    let dims_bytes: Vec<u8> = dims.iter().flat_map(|n| n.to_le_bytes()).collect();
    message(1, &[&[1, u8::try_from(dims.len()).unwrap(), 0, 0, 0, 0, 0, 0][..], &dims_bytes].concat())
}

/// Payload of the datatype f32, little-endian.
pub(crate) const F32: [u8; 20] = [0x11, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];

/// Makes a datatype message of f32.
pub(crate) fn f32() -> Vec<u8> {
    message(3, &F32)
}

/// Makes a contiguous layout message.
pub(crate) fn contiguous(at: u64, len: u64) -> Vec<u8> {
    message(8, &[&[3, 1][..], &at.to_le_bytes(), &len.to_le_bytes()].concat())
}

/// Makes a chunked layout message with a tree.
pub(crate) fn chunked(tree: u64, chunk: &[u32]) -> Vec<u8> {
    let extents: Vec<u8> = chunk.iter().chain(&[4]).flat_map(|n| n.to_le_bytes()).collect();
    let rank = u8::try_from(chunk.len() + 1).unwrap();
    message(8, &[&[3, 2, rank][..], &tree.to_le_bytes(), &extents].concat())
}

/// Makes a filter message: deflate.
pub(crate) fn deflated() -> Vec<u8> {
    filtered(&[(1, &[9])])
}

/// Makes a filter message with these filters: ids and parameters.
pub(crate) fn filtered(filters: &[(u16, &[u32])]) -> Vec<u8> {
    let mut payload = vec![1, u8::try_from(filters.len()).unwrap(), 0, 0, 0, 0, 0, 0];
    for (id, parameters) in filters {
        // Id, no name, flags, parameters, padding.
        for field in [*id, 0, 0, u16::try_from(parameters.len()).unwrap()] {
            payload.extend(field.to_le_bytes());
        }
        payload.extend(parameters.iter().flat_map(|n| n.to_le_bytes()));
        payload.resize(payload.len().next_multiple_of(8), 0);
    }
    message(0x0b, &payload)
}

/// Makes the key of a chunk: length in the file, mask of skipped filters, offset in elements.
pub(crate) fn chunk_key(len: u32, offset: &[u64]) -> Vec<u8> {
    let offset: Vec<u8> = offset.iter().chain(&[0]).flat_map(|n| n.to_le_bytes()).collect();
    [&len.to_le_bytes(), &[0; 4][..], &offset].concat()
}

/// Makes a chunked layout with an implicit index: consecutive chunks from `at`.
pub(crate) fn implicit(at: u64, chunk: &[u8]) -> Vec<u8> {
    let rank = u8::try_from(chunk.len() + 1).unwrap();
    // Version, chunked, flags, rank, bytes per dimension; the last dimension is the element size.
    message(8, &[&[4, 2, 0, rank, 1][..], chunk, &[4, 2], &at.to_le_bytes()].concat())
}

/// Makes a symbol table leaf: for each link the offsets of name and target in the heap. Padded for eight entries.
pub(crate) fn soft_node(links: &[(u64, u32)]) -> Vec<u8> {
    let mut node = [&b"SNOD\x01\0"[..], &u16::try_from(links.len()).unwrap().to_le_bytes()].concat();
    for (name, target) in links {
        for part in [&name.to_le_bytes()[..], &[0; 8], &2u32.to_le_bytes(), &[0; 4], &target.to_le_bytes()] {
            node.extend(part);
        }
        node.extend([0; 12]);
    }
    let len = node.len().max(8 + 8 * 40);
    whole(node, len)
}

/// Makes a fractal heap of one block with this object, compressed if `filters` is not empty; returns its address and the object
/// id.
pub(crate) fn fractal_heap(file: &mut File, object: &[u8], filters: &[u8]) -> (u64, [u8; 8]) {
    let len = (HEAP_BLOCK_HEAD + object.len()) as u64;
    // The header follows its block.
    let heap = (file.next() + len).next_multiple_of(8);
    let block = file.put(&[&heap_block(b"FHDB", heap, 0)[..], object].concat());
    let form = HeapForm { width: 4, first: len, largest: len, bits: 32, rows: 0 };
    let bytes = heap_header(form, block, filters);
    assert_eq!(file.put(&[bytes, vec![0; 256]].concat()), heap);
    (heap, heap_identity(HEAP_BLOCK_HEAD as u64, object.len()))
}

/// Parameters of a fractal heap header: columns, size of the first block and of the largest direct block, bits of an offset,
/// rows of the root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeapForm {
    pub(crate) width: u16,
    pub(crate) first: u64,
    pub(crate) largest: u64,
    pub(crate) bits: u16,
    pub(crate) rows: u16,
}

/// Size of the block header of a heap with 32-bit offsets, in bytes.
const HEAP_BLOCK_HEAD: usize = 17;

/// Makes the header of a block at heap offset `start`.
fn heap_block(mark: &[u8; 4], heap: u64, start: u64) -> Vec<u8> {
    [&mark[..], &[0], &heap.to_le_bytes(), &u32::try_from(start).unwrap().to_le_bytes()].concat()
}

/// Makes the heap id of an object of `len` bytes.
fn heap_identity(at: u64, len: usize) -> [u8; 8] {
    let mut identity = [0; 8];
    identity[1..5].copy_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
    identity[5..].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes()[..3]);
    identity
}

fn heap_header(form: HeapForm, root: u64, filters: &[u8]) -> Vec<u8> {
    let rows = 1u64.checked_shl(u32::from(form.rows).saturating_sub(1)).unwrap_or(u64::MAX);
    let space = match form.rows {
        0 => form.first,
        _ => form.first.saturating_mul(form.width.into()).saturating_mul(rows),
    };
    let mut bytes = b"FRHP\0".to_vec();
    // Id length, filter info length, flags, largest object.
    bytes.extend(8u16.to_le_bytes());
    bytes.extend(u16::try_from(filters.len()).unwrap().to_le_bytes());
    bytes.extend([0, 0xff, 0xff, 0xff, 0]);
    for number in [0, UNDEFINED, 0, UNDEFINED, space, space, 0, 1, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(form.width.to_le_bytes());
    bytes.extend([form.first.to_le_bytes(), form.largest.to_le_bytes()].concat());
    bytes.extend([form.bits.to_le_bytes(), [0; 2]].concat());
    bytes.extend(root.to_le_bytes());
    bytes.extend(form.rows.to_le_bytes());
    if !filters.is_empty() {
        bytes.extend(form.first.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(filters);
    }
    summed(bytes)
}

/// Indirect blocks, with one object in each direct block.
pub(crate) struct HeapTables<'a> {
    pub(crate) form: HeapForm,
    /// Returns the object of a block by number; `None` for an unallocated block.
    pub(crate) object: &'a dyn Fn(usize) -> Option<Vec<u8>>,
    /// Returns the stated address of a block, from the address of the table and the true address of the block.
    pub(crate) entry: &'a dyn Fn(u64, u64) -> u64,
    /// Heap ids of all objects.
    pub(crate) identities: Vec<[u8; 8]>,
    number: usize,
    heap: u64,
}

impl<'a> HeapTables<'a> {
    pub(crate) fn new(
        form: HeapForm,
        object: &'a dyn Fn(usize) -> Option<Vec<u8>>,
        entry: &'a dyn Fn(u64, u64) -> u64,
    ) -> Self {
        Self { form, object, entry, identities: Vec::new(), number: 0, heap: 0 }
    }

    /// Appends the heap, with `said` as the stated parameters; returns its address.
    pub(crate) fn put(&mut self, file: &mut File, said: HeapForm) -> u64 {
        self.heap = file.put(&[0; 512]);
        let root = self.table(file, 0, self.form.rows.into());
        let header = heap_header(said, root, &[]);
        file.replace(self.heap, &header);
        self.heap
    }

    fn table(&mut self, file: &mut File, start: u64, rows: u32) -> u64 {
        let form = self.form;
        let (mut at, mut blocks) = (start, Vec::new());
        for row in 0..rows {
            let len = form.first << row.saturating_sub(1);
            for _ in 0..form.width {
                blocks.push(match len <= form.largest {
                    true => self.block(file, at, len),
                    // The number of rows that fills it.
                    false => self.table(file, at, (len / form.first / u64::from(form.width)).ilog2() + 1),
                });
                at += len;
            }
        }
        let own = file.next();
        let entries: Vec<u8> =
            blocks.into_iter().flat_map(|block| (self.entry)(own, block).to_le_bytes()).collect();
        file.put(&summed([heap_block(b"FHIB", self.heap, start), entries].concat()))
    }

    fn block(&mut self, file: &mut File, start: u64, len: u64) -> u64 {
        self.number += 1;
        let Some(object) = (self.object)(self.number - 1) else { return UNDEFINED };
        self.identities.push(heap_identity(start + HEAP_BLOCK_HEAD as u64, object.len()));
        let mut bytes = [heap_block(b"FHDB", self.heap, start), object].concat();
        bytes.resize(usize::try_from(len).unwrap(), 0);
        file.put(&bytes)
    }
}

/// Makes a version 2 B-tree of one leaf with these records of equal length.
pub(crate) fn tree_of_records(file: &mut File, kind: u8, records: &[Vec<u8>]) -> u64 {
    let leaf = summed([&b"BTLF\0"[..], &[kind], &records.concat()].concat());
    let len = u32::try_from(leaf.len()).unwrap().to_le_bytes();
    let root = file.put(&leaf);
    let record = u16::try_from(records[0].len()).unwrap().to_le_bytes();
    let count = records.len() as u64;
    // Node size, record size, depth, split and merge percentages.
    let head = [&b"BTHD\0"[..], &[kind], &len, &record, &[0, 0, 100, 40], &root.to_le_bytes()].concat();
    let counts = [&u16::try_from(count).unwrap().to_le_bytes()[..], &count.to_le_bytes()].concat();
    file.put(&summed([head, counts].concat()))
}

/// Appends the checksum: lookup3 by Bob Jenkins.
pub(crate) fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let start = 0xdead_beef_u32.wrapping_add(u32::try_from(bytes.len()).unwrap());
    let [mut a, mut b, mut c] = [start; 3];
    let mut rest = &bytes[..];
    loop {
        let mut words = [0; 12];
        let len = rest.len().min(12);
        words[..len].copy_from_slice(&rest[..len]);
        let word = |at: usize| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        (a, b, c) = (a.wrapping_add(word(0)), b.wrapping_add(word(4)), c.wrapping_add(word(8)));
        if rest.len() <= 12 {
            break;
        }
        for turn in [4, 6, 8, 16, 19, 4] {
            a = a.wrapping_sub(c) ^ c.rotate_left(turn);
            c = c.wrapping_add(b);
            (a, b, c) = (b, c, a);
        }
        rest = &rest[12..];
    }
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        (a, b, c) = (b, c, a);
    }
    // After seven rounds the last value is in the second position.
    bytes.extend(b.to_le_bytes());
    bytes
}
