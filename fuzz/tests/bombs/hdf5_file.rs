//! HDF5 files by hand: version 0 of the superblock, version 1 of object headers, links as messages.

/// What stands for no address.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// Objects in the order in which they were put there; the first is the root.
#[derive(Debug)]
pub(crate) struct File(Vec<u8>);

impl File {
    /// Only the superblock, which leads to an object right behind it.
    pub(crate) fn new() -> Self {
        let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
        // Versions, sizes of offsets and lengths, leaf and internal K, flags.
        bytes.extend([0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0]);
        for address in [0, NOWHERE, 0, NOWHERE] {
            bytes.extend(address.to_le_bytes());
        }
        // The root: name, header, no cache.
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(96u64.to_le_bytes());
        bytes.extend([0; 24]);
        assert_eq!(bytes.len(), 96);
        Self(bytes)
    }

    /// Where the next object will stand.
    pub(crate) fn next(&self) -> u64 {
        self.0.len() as u64
    }

    /// Puts bytes there; where they stand.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next();
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        at
    }

    /// Puts an object header with these messages there.
    pub(crate) fn object(&mut self, messages: &[Vec<u8>]) -> u64 {
        let body = messages.concat();
        let count = u16::try_from(messages.len()).unwrap().to_le_bytes();
        let len = u32::try_from(body.len()).unwrap().to_le_bytes();
        self.put(&[&[1, 0], &count[..], &1u32.to_le_bytes(), &len, &[0; 4], &body].concat())
    }

    /// The file, whose superblock knows its length.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u64;
        self.0[40..48].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

/// A message of a header.
pub(crate) fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload.resize(payload.len().next_multiple_of(8), 0);
    let len = u16::try_from(payload.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes(), &len[..], &[0; 4], &payload].concat()
}

/// A group that keeps its links here.
pub(crate) fn link_info() -> Vec<u8> {
    message(2, &[&[0, 0][..], &[0xff; 16]].concat())
}

/// A link to an object.
pub(crate) fn hard(name: &str, address: u64) -> Vec<u8> {
    let len = u8::try_from(name.len()).unwrap();
    message(6, &[&[1, 0, len][..], name.as_bytes(), &address.to_le_bytes()].concat())
}

/// A link to a path.
pub(crate) fn soft(name: &str, path: &str) -> Vec<u8> {
    let (len, path_len) =
        (u8::try_from(name.len()).unwrap(), u16::try_from(path.len()).unwrap().to_le_bytes());
    message(6, &[&[1, 8, 1, len][..], name.as_bytes(), &path_len, path.as_bytes()].concat())
}

/// A group as a tree and a heap of names.
pub(crate) fn symbol_table(tree: u64, heap: u64) -> Vec<u8> {
    message(0x11, &[tree.to_le_bytes(), heap.to_le_bytes()].concat())
}

/// A heap of names whose segment is said to be so long.
pub(crate) fn local_heap(len: u64, at: u64) -> Vec<u8> {
    [&b"HEAP\0\0\0\0"[..], &len.to_le_bytes(), &NOWHERE.to_le_bytes(), &at.to_le_bytes()].concat()
}

/// A node of a tree of `kind` (0 groups, 1 chunks): keys and children in turn, with a last key.
pub(crate) fn tree(kind: u8, level: u8, used: u16, right: u64, rest: &[u8]) -> Vec<u8> {
    let head =
        [&b"TREE"[..], &[kind, level], &used.to_le_bytes(), &NOWHERE.to_le_bytes(), &right.to_le_bytes()];
    [&head.concat(), rest].concat()
}

/// A dataspace.
pub(crate) fn space(dims: &[u64]) -> Vec<u8> {
    let dims_bytes: Vec<u8> = dims.iter().flat_map(|n| n.to_le_bytes()).collect();
    message(1, &[&[1, u8::try_from(dims.len()).unwrap(), 0, 0, 0, 0, 0, 0][..], &dims_bytes].concat())
}

/// The payload of the type f32, little-endian.
pub(crate) const F32: [u8; 20] = [0x11, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];

/// The type f32.
pub(crate) fn f32() -> Vec<u8> {
    message(3, &F32)
}

/// Elements in one place.
pub(crate) fn contiguous(at: u64, len: u64) -> Vec<u8> {
    message(8, &[&[3, 1][..], &at.to_le_bytes(), &len.to_le_bytes()].concat())
}

/// Elements in chunks that a tree lists.
pub(crate) fn chunked(tree: u64, chunk: &[u32]) -> Vec<u8> {
    let extents: Vec<u8> = chunk.iter().chain(&[4]).flat_map(|n| n.to_le_bytes()).collect();
    let rank = u8::try_from(chunk.len() + 1).unwrap();
    message(8, &[&[3, 2, rank][..], &tree.to_le_bytes(), &extents].concat())
}

/// All chunks are deflated.
pub(crate) fn deflated() -> Vec<u8> {
    // Version, one filter: deflate, no name, flags, one value, padding.
    message(0x0b, &[1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0])
}

/// The key of a chunk: its length in the file, which filters were left out, its offset in elements.
pub(crate) fn chunk_key(len: u32, offset: &[u64]) -> Vec<u8> {
    let offset: Vec<u8> = offset.iter().chain(&[0]).flat_map(|n| n.to_le_bytes()).collect();
    [&len.to_le_bytes(), &[0; 4][..], &offset].concat()
}
