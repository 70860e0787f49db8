//! HDF5: small datasets with large chunks, structures that cannot be merged, and attributes that are much larger as values.

use crate::harness::{Input, MAX_MEMORY, Opens, Range, Refused};
use crate::hdf5_file::{
    File, UNDEFINED, chunked, contiguous, deflated, f32, filtered, group_node, local_heap, message, space,
    symbol_table, tree, tree_of_chunks, whole,
};
use crate::hdf5_many::{bytes, with_all};
use crate::zips::zlib;
use weighbridge::checkpoint::Checkpoint;
use weighbridge::formats::{OpenOptions, registry};

/// Memory limit for the cache of decompressed chunks, independent of the file length.
const MAX_CACHE: u64 = (512 << 20) + MAX_MEMORY;

fn file(bytes: Vec<u8>) -> Input {
    Input::File(super::made::bytes(bytes))
}

/// Makes a dataset of chunks at these offsets, each a separate copy of these compressed bytes.
fn dataset(
    file: &mut File,
    dims: &[u64],
    extents: &[u32],
    filters: &[u8],
    chunk: &[u8],
    offsets: &[Vec<u64>],
) -> u64 {
    let len = u32::try_from(chunk.len()).unwrap();
    let chunks: Vec<_> = offsets.iter().map(|offset| (offset.clone(), file.put(chunk), len)).collect();
    let tree = tree_of_chunks(file, extents, &chunks);
    file.object(&[space(dims), f32(), chunked(tree, extents), filters.to_vec()])
}

/// Makes a scale-offset filter with 0 bits: any number of elements from a few bytes.
fn scaled(count: u32) -> (Vec<u8>, Vec<u8>) {
    let parameters = [&[2, 0, count, 0, 4, 0, 0, 0][..], &[0; 12]].concat();
    let chunk = [&[0, 0, 0, 0, 8][..], &[0; 16]].concat();
    (filtered(&[(6, &parameters)]), chunk)
}

#[test]
fn hdf5_chunks_longer_than_their_datasets() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let (filters, chunk) = scaled(60_000_000);
    let names = |names: usize, filters: &[u8], chunk: &[u8], elements: u32| {
        with_all(|file| vec![dataset(file, &[1], &[elements], filters, chunk, &[vec![0]]); names])
    };
    let many = names(200, &filters, &chunk, 60_000_000);
    let inflated = Refused("inflated");
    range.run("200 names for one element in 240 MB of no bits", &file(many), MAX_CACHE, inflated);
    let zeros = zlib(&[0; 1 << 20], 100);
    let many = names(100, &deflated(), &zeros, 25 << 20);
    range.run("100 names for one element in 100 MiB", &file(many), MAX_CACHE, inflated);
    let row = |count: u64| {
        let offsets: Vec<_> = (0..count).map(|n| vec![0, n]).collect();
        with_all(|file| vec![dataset(file, &[1, count], &[60_000_000, 1], &filters, &chunk, &offsets)])
    };
    range.file("a row of 50 in columns of 240 MB", row(50), inflated);
    range.file("a row of 60,000 in columns of 240 MB", row(60_000), inflated);

    // Uncompressed; read again, or cached, for each name.
    let plain = |names: usize, outer: u64, inner: u32| {
        let chunk = vec![0; usize::try_from(outer).unwrap() * 4 * inner as usize];
        let outer_extent = u32::try_from(outer).unwrap();
        with_all(|file| {
            vec![dataset(file, &[outer, 2], &[outer_extent, inner], &[], &chunk, &[vec![0, 0]]); names]
        })
    };
    range.file("1,000 names for four elements in 1 MB", plain(1_000, 2, 125_000), Opens(1_000));
    range.file("1,000 names for 32 elements in 1 MB", plain(1_000, 16, 16_000), Opens(1_000));
    range.file("3,000 names for 32 elements in 1 MB", plain(3_000, 16, 16_000), inflated);

    // As written by h5py for a resizable dataset with explicit chunk sizes.
    let chunk = zlib(&[0; 1 << 20], 4);
    let growable = with_all(|file| {
        let mut all = Vec::new();
        for _ in 0..300 {
            // Space for the tree and header of HDF5.
            file.put(&[0; 2_400]);
            all.push(dataset(file, &[3], &[1 << 20], &deflated(), &chunk, &[vec![0]]));
        }
        all
    });
    range.run("300 datasets of three elements in 4 MiB", &file(growable), MAX_CACHE, Opens(300));
}

/// Tests many names for small uncompressed chunks: nothing is cached per name.
#[test]
fn hdf5_names_for_plain_chunks() {
    let Some(_alone) = Range::alone("hdf5") else { return };
    let many = with_all(|file| {
        let chunk = vec![0; 1_000_000];
        vec![dataset(file, &[16, 2], &[16, 15_625], &[], &chunk, &[vec![0, 0]]); 1_000]
    });
    let many = super::made::bytes(many);
    let ((), peak) = weighbridge_fuzz::counting::peak_of_all(|| {
        let opened = registry().open_source(many.clone(), &OpenOptions::default()).unwrap();
        for tensor in &opened.tensors {
            let found = weighbridge::ops::stats::stats(tensor, &Default::default()).unwrap();
            assert_eq!(found.count, 32);
        }
    });
    assert!(u64::try_from(peak).unwrap() < MAX_MEMORY, "{peak}");
}

/// Tests more disjoint structures than are kept before they are merged.
#[test]
fn hdf5_structures_that_cannot_be_joined() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let count = 270_000u64;
    let file = with_all(|file| {
        let names = file.put(b"\0\0\0\0\0\0\0\0a\0\0\0\0\0\0\0");
        let heap = file.put(&local_heap(16, names));
        // The largest number of entries in a node.
        let half = u16::MAX / 2;
        file.room(4, half);
        // An empty node starts at each of them.
        let first =
            file.put(&[&b"TREE\0\0\0\0"[..]; 8].concat().repeat(usize::try_from(count / 8 + 8).unwrap()));
        let mut nodes = Vec::new();
        for from in (0..count).step_by(60_000) {
            let children: Vec<u64> =
                (from..count.min(from + 60_000)).flat_map(|n| [first + 8 * n, 0]).collect();
            let used = u16::try_from(children.len() / 2).unwrap();
            let node = tree(0, 1, used, UNDEFINED, &[bytes([0]), bytes(children)].concat());
            nodes.push(file.put(&whole(node, group_node(half))));
        }
        let children: Vec<u64> = nodes.iter().flat_map(|&node| [node, 0]).collect();
        let used = u16::try_from(nodes.len()).unwrap();
        let root = tree(0, 2, used, UNDEFINED, &[bytes([0]), bytes(children)].concat());
        let root = file.put(&whole(root, group_node(half)));
        vec![file.object(&[symbol_table(root, heap)])]
    });
    range.file("270,000 nodes at every eighth byte", file, Refused("hdf5-corrupt"));
}

/// Makes a dataset of two elements with attributes of 8-bit numbers in this shape.
fn numbers(attributes: u8, dims: &[u64]) -> Vec<u8> {
    with_all(|file| {
        let at = file.put(&[1; 8]);
        let extents = [&[1, u8::try_from(dims.len()).unwrap(), 0, 0, 0, 0, 0, 0][..], &bytes(dims.to_vec())];
        let extents = extents.concat();
        let data = vec![7; usize::try_from(dims.iter().product::<u64>()).unwrap()];
        let kind = [[0x10, 0, 0, 0, 1, 0, 0, 0], [0, 0, 8, 0, 0, 0, 0, 0]].concat();
        let attribute = |n: u8| {
            let lens = [2, 12, u16::try_from(extents.len()).unwrap()].map(u16::to_le_bytes).concat();
            let name = [b'a' + n, 0, 0, 0, 0, 0, 0, 0];
            message(0x0c, &[&[1, 0][..], &lens, &name, &kind, &extents, &data].concat())
        };
        let attributes: Vec<_> = (0..attributes).map(attribute).collect();
        vec![file.object(&[vec![space(&[2]), f32(), contiguous(at, 8)], attributes].concat())]
    })
}

/// Tests that tensors are read, omitted attributes are noted, and the limit in the note admits them.
#[test]
fn hdf5_attributes_that_are_longer_as_values() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let opened = |file: &[u8], header_bytes: u64| -> Checkpoint {
        let mut options = OpenOptions::default();
        options.limits.header_bytes = header_bytes;
        registry().open_source(super::made::bytes(file.to_vec()), &options).unwrap()
    };
    let own = OpenOptions::default().limits.header_bytes;
    for (attributes, dims, kept) in
        [(1, vec![60_000], 1), (6, vec![60_000], 6), (20, vec![60_000], 8), (20, vec![200, 300], 7)]
    {
        let file = numbers(attributes, &dims);
        let checkpoint = opened(&file, own);
        assert_eq!(checkpoint.tensors.len(), 1);
        let all = usize::from(attributes);
        // The types of the attributes are stored, too.
        let values = |checkpoint: &Checkpoint| {
            checkpoint.tensors[0].attributes.keys().filter(|key| !key.starts_with("hdf5.")).count()
        };
        assert_eq!(values(&checkpoint), kept, "{attributes} {dims:?}");
        let omitted = |checkpoint: &Checkpoint| {
            checkpoint.notes.iter().filter(|note| note.text.contains("`header_bytes`")).count()
        };
        assert_eq!(omitted(&checkpoint), all - kept, "{:?}", checkpoint.notes);
        let checkpoint = opened(&file, own + 100_000_000);
        assert_eq!((values(&checkpoint), omitted(&checkpoint)), (all, 0));
    }
    range.file("20 attributes of 60,000 numbers of 8 bits", numbers(20, &[60_000]), Opens(1));
    range.file("20 attributes of 200 times 300 numbers of 8 bits", numbers(20, &[200, 300]), Opens(1));
}
