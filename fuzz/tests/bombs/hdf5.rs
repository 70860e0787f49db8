//! HDF5: chunks, cyclic trees, heaps, attributes, cyclic links.

use crate::harness::{Opens, Range, Refused};
use crate::hdf5_file::{
    F32, File, UNDEFINED, chunk_key, chunked, contiguous, deflated, f32, group_node, hard, link_info,
    local_heap, message, soft, space, symbol_table, tree, tree_of_chunks, whole,
};
use crate::zips::zlib;

/// Makes a root group that links to the object made by `build`.
fn with_one(build: impl Fn(&mut File) -> u64) -> Vec<u8> {
    // The root comes first, so it is made twice: its length does not depend on the address.
    let make = |address| {
        let mut file = File::new();
        file.object(&[link_info(), hard("x", address)]);
        let address = build(&mut file);
        (file.finish(), address)
    };
    let (_, address) = make(0);
    make(address).0
}

/// Makes a dataset of one chunk with these compressed bytes.
fn chunk(dims: &[u64], extents: &[u32], packed: &[u8]) -> Vec<u8> {
    with_one(|file| {
        let data = file.put(packed);
        let len = u32::try_from(packed.len()).unwrap();
        let tree = tree_of_chunks(file, extents, &[(vec![0; dims.len()], data, len)]);
        file.object(&[space(dims), f32(), chunked(tree, extents), deflated()])
    })
}

#[test]
fn hdf5_bombs() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    // Well-formed hand-made files open.
    let good = with_one(|file| {
        let data = file.put(&[0; 16]);
        file.object(&[space(&[4]), f32(), contiguous(data, 16)])
    });
    range.file("four elements", good, Opens(1));
    range.file("a chunk", chunk(&[4], &[4], &zlib(&[0; 16], 1)), Opens(1));

    let huge = |dims: &[u64], len| {
        with_one(|file| {
            let data = file.put(&[0; 16]);
            file.object(&[space(dims), f32(), contiguous(data, len)])
        })
    };
    range.file("2^60 elements", huge(&[1 << 60], 1 << 62), Refused("past-the-end"));
    range.file("2^120 elements", huge(&[1 << 60, 1 << 60], 16), Refused("shape-overflow"));
    range.file(
        "2^60 elements that were never written",
        with_one(|file| file.object(&[space(&[1 << 60]), f32(), contiguous(UNDEFINED, 0)])),
        Refused("limit"),
    );
    range.file("a chunk of 8 GiB", chunk(&[1 << 40], &[1 << 31], &zlib(&[0; 16], 1)), Refused("limit"));
    range.file(
        "a chunk of 2^64",
        chunk(&[1 << 32, 1 << 32], &[u32::MAX, u32::MAX], &zlib(&[0; 16], 1)),
        Refused("shape-overflow"),
    );
    let bomb = zlib(&[0; 1 << 20], 1024);
    assert!(bomb.len() < 2 << 20);
    range.file("a chunk of 4 MiB that inflates to 1 GiB", chunk(&[1 << 20], &[1 << 20], &bomb), Opens(1));
    range.file("2^40 chunks of one element", chunk(&[1 << 40], &[1], &zlib(&[0; 4], 1)), Refused("limit"));
}

#[test]
fn hdf5_circles() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let mut root = File::new();
    root.object(&[link_info(), hard("a", 96), hard("b", 96)]);
    range.file("a root in itself", root.finish(), Opens(0));
    range.file(
        "two groups in each other",
        with_one(|file| {
            let first = file.next();
            file.object(&[link_info(), hard("back", 96), hard("self", first), hard("again", first)]);
            file.object(&[link_info(), hard("x", first), hard("y", first), hard("z", first)])
        }),
        Opens(0),
    );
    // Each group contains the next one twice: 2^60 paths.
    range.file(
        "2^60 paths",
        with_one(|file| {
            let mut next = file.object(&[link_info()]);
            for _ in 0..60 {
                next = file.object(&[link_info(), hard("a", next), hard("b", next)]);
            }
            next
        }),
        Opens(0),
    );
    range.file(
        "5,000 groups within each other",
        with_one(|file| {
            let mut next = file.object(&[link_info()]);
            for _ in 0..5_000 {
                next = file.object(&[link_info(), hard("a", next)]);
            }
            next
        }),
        Refused("limit"),
    );
    let mut root = File::new();
    root.object(&[link_info(), soft("a", "/b"), soft("b", "/a"), soft("c", "/c/c/c"), soft("d", "/d/..")]);
    range.file("links in circles", root.finish(), Opens(0));

    let group = |node: &dyn Fn(u64) -> Vec<u8>, segment: u64| {
        let mut file = File::new();
        file.object(&[symbol_table(136, 96 + 16 + 24 + 600)]);
        let at = file.put(&[&node(136)[..], &[0; 600]].concat()[..600]);
        assert_eq!(at, 136);
        let heap = file.next();
        file.put(&local_heap(segment, heap + 32));
        file.put(b"\0\0\0\0\0\0\0\0a\0\0\0\0\0\0\0");
        file.finish()
    };
    let child = |at: u64| [&0u64.to_le_bytes()[..], &at.to_le_bytes(), &8u64.to_le_bytes()].concat();
    range.file(
        "a tree in itself",
        group(&|at| tree(0, 1, 1, UNDEFINED, &child(at)), 16),
        Refused("hdf5-corrupt"),
    );
    range.file(
        "a tree of 255 levels in itself",
        group(&|at| tree(0, 255, 1, UNDEFINED, &child(at)), 16),
        Refused("hdf5-corrupt"),
    );
    range.file("a tree beside nothing", group(&|_| tree(0, 0, 0, UNDEFINED, &[]), 16), Opens(0));
    range.file("a tree beside itself", group(&|at| tree(0, 0, 0, at, &[]), 16), Refused("hdf5-corrupt"));
    range.file(
        "a tree of 65,535 children",
        group(&|at| tree(0, 1, 65535, UNDEFINED, &child(at)), 16),
        Refused("hdf5-corrupt"),
    );
    // The largest count for which there is space in a file.
    let mut most = group(&|at| tree(0, 1, 65534, UNDEFINED, &child(at)), 16);
    let half = u16::MAX / 2;
    most[18..20].copy_from_slice(&half.to_le_bytes());
    assert!(most.len() < group_node(half));
    range.file("a tree of 65,534 children", most, Refused("past-the-end"));
    let many = |at: u64| tree(0, 9, 16, UNDEFINED, &child(at)[..16].repeat(17));
    range.file("a tree of 16^9 times itself", group(&many, 16), Refused("hdf5-corrupt"));
    range.file("a heap of 2^60", group(&|_| tree(0, 0, 0, UNDEFINED, &[]), 1 << 60), Refused("past-the-end"));

    let continued = |at: u64, len: u64| {
        let mut file = File::new();
        file.object(&[link_info(), message(0x10, &[at.to_le_bytes(), len.to_le_bytes()].concat())]);
        file.finish()
    };
    range.file("a header that goes on in itself", continued(112, 48), Refused("hdf5-corrupt"));
    range.file("a header of 2^60", continued(96, 1 << 60), Refused("hdf5-corrupt"));
    let chunks = with_one(|file| {
        let at = file.next();
        let keys = [chunk_key(1, &[0]), at.to_le_bytes().to_vec(), chunk_key(1, &[1 << 40])].concat();
        let tree = file.put(&whole(tree(1, 3, 1, UNDEFINED, &keys), 24 + 64 * 32 + 24));
        file.object(&[space(&[1 << 30]), f32(), chunked(tree, &[1 << 10]), deflated()])
    });
    range.file("chunks of a tree in itself", chunks, Refused("hdf5-corrupt"));
}

#[test]
fn hdf5_attributes() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    // Version 1: lengths of name, type and space, then these fields, each padded to eight bytes.
    let attribute = |kind: &[u8], dims: &[u64], data: &[u8]| {
        let extents: Vec<u8> = dims.iter().flat_map(|n| n.to_le_bytes()).collect();
        let space = [&[1, u8::try_from(dims.len()).unwrap(), 0, 0, 0, 0, 0, 0][..], &extents].concat();
        let lens: Vec<u8> = [2, kind.len(), space.len()]
            .iter()
            .flat_map(|&n| u16::try_from(n).unwrap().to_le_bytes())
            .collect();
        let padded = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        };
        let payload = [&[1, 0][..], &lens, &padded(b"a\0"), &padded(kind), &padded(&space), data].concat();
        let mut file = File::new();
        file.object(&[link_info(), message(0x0c, &payload)]);
        file.put(&[0; 64]);
        file.finish()
    };
    range.file("an attribute", attribute(&F32, &[2], &[0; 8]), Opens(0));
    range.file(
        "an attribute of 2^60 elements",
        attribute(&F32, &[1 << 60], &[0; 8]),
        Refused("hdf5-corrupt"),
    );
    range.file(
        "an attribute of 2^120 elements",
        attribute(&F32, &[1 << 60, 1 << 60], &[0; 8]),
        Refused("hdf5-corrupt"),
    );
    range.file("an attribute of no element and 2^60", attribute(&F32, &[0, 1 << 60], &[]), Opens(0));
    // Variable-length texts in a heap with a stated size of 2^60 bytes, or a stated text length of that size.
    let texts = [&[0x19, 1, 0, 0, 16, 0, 0, 0][..], &[0x13, 0, 0, 0, 1, 0, 0, 0]].concat();
    let text =
        |len: u32, heap: u64| [&len.to_le_bytes()[..], &heap.to_le_bytes(), &1u32.to_le_bytes()].concat();
    range.file("a text of 4 GiB", attribute(&texts, &[1], &text(u32::MAX, 96)), Refused("hdf5-corrupt"));
    range.file("2^60 texts", attribute(&texts, &[1 << 60], &text(u32::MAX, 96)), Refused("hdf5-corrupt"));
    for (name, size, code) in [
        ("a heap of texts of 2^60", 1u64 << 60, "past-the-end"),
        ("a heap of texts of nothing", 0, "hdf5-corrupt"),
    ] {
        let mut bytes = attribute(&texts, &[1], &text(8, 0));
        let heap = bytes.len() as u64 - 64;
        let place = bytes
            .windows(12)
            .rposition(|window| window == [&8u32.to_le_bytes()[..], &[0; 8]].concat())
            .unwrap();
        bytes[place + 4..place + 12].copy_from_slice(&heap.to_le_bytes());
        let at = usize::try_from(heap).unwrap();
        let object =
            [&b"GCOL\x01\0\0\0"[..], &size.to_le_bytes(), &[1, 0, 1, 0, 0, 0, 0, 0], &size.to_le_bytes()]
                .concat();
        bytes[at..at + object.len()].copy_from_slice(&object);
        range.file(name, bytes, Refused(code));
    }
}
