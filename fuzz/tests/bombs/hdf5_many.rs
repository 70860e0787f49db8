//! HDF5: many references to the same bytes, and filters with excessive parameters.

use crate::harness::{Opens, Range, Refused};
use crate::hdf5_file::{
    File, UNDEFINED, chunked, contiguous, deflated, f32, filtered, fractal_heap, group_tree, hard, implicit,
    link_info, local_heap, message, soft_node, space, symbol_table, tree_of_chunks, tree_of_records,
};
use crate::zips::zlib;

/// Makes a root group that links to the objects made by `build`.
pub(crate) fn with_all(build: impl Fn(&mut File) -> Vec<u64>) -> Vec<u8> {
    // The root comes first, so it is made twice: its length does not depend on the addresses of the objects.
    let make = |addresses: &[u64]| {
        let mut file = File::new();
        let links = addresses.iter().enumerate().map(|(number, &at)| hard(&format!("{number:05}"), at));
        file.object(&[vec![link_info()], links.collect()].concat());
        let addresses = build(&mut file);
        (file.finish(), addresses)
    };
    let (_, first) = make(&[]);
    let (_, addresses) = make(&first);
    make(&addresses).0
}

pub(crate) fn bytes(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Makes a dataset of chunks along its first dimension, at these addresses and lengths.
fn chunks(
    file: &mut File,
    dims: &[u64],
    extents: &[u32],
    packing: &[u8],
    places: &[(Vec<u64>, u64, u32)],
) -> u64 {
    let tree = tree_of_chunks(file, extents, places);
    file.object(&[space(dims), f32(), chunked(tree, extents), packing.to_vec()])
}

#[test]
fn hdf5_filters() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let packed = |packing: Vec<u8>, data: &[u8], elements: u32| {
        with_all(|file| {
            let at = file.put(data);
            let place = (vec![0], at, u32::try_from(data.len()).unwrap());
            vec![chunks(file, &[elements.into()], &[elements], &packing, &[place])]
        })
    };
    // Number of parameters, packed or not, number of elements, their type.
    let nbit = |elements: u32, of_type: &[u32]| {
        let count = u32::try_from(of_type.len() + 3).unwrap();
        packed(filtered(&[(5, &[&[count, 0, elements][..], of_type].concat())]), &[1; 64], 16)
    };
    range.file("nbit", nbit(16, &[1, 4, 0, 32, 0]), Opens(1));
    let nested = [[2, 4].repeat(8_000), vec![4, 4]].concat();
    for (name, elements, of_type) in [
        ("nbit of 2^32 members", 1, &[3, 4, u32::MAX][..]),
        ("nbit of 2^32 elements of no size", u32::MAX, &[3, 0, 0]),
        ("nbit of 8,000 types in each other", 1, &nested),
        (
            "nbit of 5,000 members of no size",
            1 << 22,
            &[&[3, 4, 5_000][..], &[0, 4, 0].repeat(5_000)].concat(),
        ),
    ] {
        range.file(name, nbit(elements, of_type), Refused("hdf5-corrupt"));
    }
    // A dataset that no writer makes is skipped.
    let zeros = zlib(&[0; 1 << 20], 100);
    let szip = filtered(&[(4, &[0, 8, 8, 64]), (1, &[9])]);
    range.file("szip of what inflates to 100 MiB", packed(szip, &zeros, 16), Opens(0));
    let twice = filtered(&[(1, &[9]), (1, &[9])]);
    range.file("deflate twice", packed(twice, &zlib(&zlib(&[0; 64], 1), 1), 16), Opens(0));
    let shuffles: Vec<(u16, &[u32])> = [[(2, &[1][..])].repeat(31), vec![(1, &[9][..])]].concat();
    range.file("31 shuffles", packed(filtered(&shuffles), &zlib(&[0; 1 << 20], 1), 1 << 18), Opens(0));
    // A single chunk is decompressed once.
    range.file("a chunk of 40 MiB", packed(deflated(), &zlib(&[0; 1 << 20], 40), 10 << 20), Opens(1));
}

#[test]
fn hdf5_names_over_each_other() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let long = vec![b'n'; 1_500_000];
    let len = u32::try_from(long.len()).unwrap().to_le_bytes();
    // Version, a name length of four bytes, the name, the address of the root.
    let link = [&[1, 2][..], &len, &long, &bytes([96])].concat();
    let links = |file: &mut File, object: &[u8], filters: &[u8], count: u32| {
        let (heap, identity) = fractal_heap(file, object, filters);
        let records: Vec<_> = (0..count).map(|n| [&n.to_le_bytes()[..], &identity].concat()).collect();
        let tree = tree_of_records(file, 5, &records);
        file.object(&[message(2, &[&[0, 0][..], &bytes([heap, tree])].concat())])
    };
    let short = [&[1, 0, 1, b'n'][..], &bytes([96])].concat();
    range.file("a link in a heap", with_all(|file| vec![links(file, &short, &[], 1)]), Opens(0));
    range.file(
        "2,000 links of 1.5 MB in one place",
        with_all(|file| vec![links(file, &link, &[], 2_000)]),
        Refused("hdf5-corrupt"),
    );
    let nbit: Vec<u8> = [6u32, 0, 1, 3, 4, u32::MAX].iter().flat_map(|n| n.to_le_bytes()).collect();
    let filters = [&[2, 1, 5, 0, 0, 0, 6, 0][..], &nbit].concat();
    range.file("a heap that is packed", with_all(|file| vec![links(file, &short, &filters, 1)]), Opens(0));
    // Version 3: lengths of name, type and space, encoding; opaque bytes, one element.
    let opaque = [&[0x15, 0, 0, 0][..], &len].concat();
    let attribute = [&[3, 0, 2, 0, 8, 0, 4, 0, 0][..], b"a\0", &opaque, &[2, 0, 0, 0], &long].concat();
    let attributes = |count: u32| {
        with_all(|file| {
            let (heap, identity) = fractal_heap(file, &attribute, &[]);
            let record = |n: u32| [&identity[..], &[0], &n.to_le_bytes(), &[0; 4]].concat();
            let tree = tree_of_records(file, 8, &(0..count).map(record).collect::<Vec<_>>());
            let info = message(0x15, &[&[0, 0][..], &bytes([heap, tree])].concat());
            vec![file.object(&[link_info(), info])]
        })
    };
    range.file("an attribute in a heap", attributes(1), Opens(0));
    range.file("2,000 attributes of 1.5 MB in one place", attributes(2_000), Refused("hdf5-corrupt"));

    let soft = |count: u32, len: usize| {
        with_all(|file| {
            // All of them in one leaf.
            file.room(u16::try_from(count.div_ceil(2).max(4)).unwrap(), 16);
            let own: Vec<u8> = (0..count).flat_map(|n| format!("{n:07}\0").into_bytes()).collect();
            let names = file.put(&[&[0; 8][..], &own, &vec![b't'; len], &[0]].concat());
            let heap = file.put(&local_heap(file.next() - names, names));
            let links: Vec<_> = (1..=count).map(|n| (8 * u64::from(n), 8 * (count + 1))).collect();
            let node = file.put(&soft_node(&links));
            let tree = file.put(&group_tree(16, 0, node, 8 * u64::from(count)));
            vec![file.object(&[symbol_table(tree, heap)])]
        })
    };
    range.file("a link to a name of 1.5 MB", soft(1, 1_500_000), Opens(0));
    range.file("1,000 links to a name of 1.5 MB", soft(1_000, 1_500_000), Refused("hdf5-corrupt"));
}

#[test]
fn hdf5_elements_over_each_other() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let zeros = zlib(&[0; 4 << 20], 1);
    let len = u32::try_from(zeros.len()).unwrap();
    let repeated = |count: u64, own: bool| {
        with_all(|file| {
            let first = file.put(&zeros);
            let mut at = |n| if own && n > 0 { file.put(&zeros) } else { first };
            let places: Vec<_> = (0..count).map(|n| (vec![n << 20], at(n), len)).collect();
            vec![chunks(file, &[count << 20], &[1 << 20], &deflated(), &places)]
        })
    };
    range.file("two chunks", repeated(2, true), Opens(1));
    range.file("1,000 chunks in one place", repeated(1_000, false), Refused("hdf5-corrupt"));
    let plain = |count: u64| {
        with_all(|file| {
            let at = file.put(&vec![1; 1 << 20]);
            let places: Vec<_> = (0..count).map(|n| (vec![n << 18], at, 1 << 20)).collect();
            vec![chunks(file, &[count << 18], &[1 << 18], &[], &places)]
        })
    };
    range.file("2,000 plain chunks in one place", plain(2_000), Refused("hdf5-corrupt"));

    // Each alone is small enough.
    let dataset =
        |file: &mut File, at: u64, len: u64| file.object(&[space(&[len / 4]), f32(), contiguous(at, len)]);
    range.file(
        "1,100 names for 1 MiB",
        with_all(|file| {
            let at = file.put(&vec![1; 1 << 20]);
            vec![dataset(file, at, 1 << 20); 1_100]
        }),
        Refused("inflated"),
    );
    range.file(
        "50 datasets of 100 MB that were never written",
        with_all(|file| (0..50).map(|_| dataset(file, UNDEFINED, 100_000_000)).collect()),
        Refused("inflated"),
    );
    // Columns of 32 MiB: each row could decompress all of them again.
    let column = zlib(&[0; 1 << 20], 32);
    let side_by_side = |count: u64| {
        with_all(|file| {
            let mut at = || file.put(&column);
            let len = u32::try_from(column.len()).unwrap();
            let places: Vec<_> = (0..count).map(|n| (vec![0, n], at(), len)).collect();
            vec![chunks(file, &[8 << 20, count], &[8 << 20, 1], &deflated(), &places)]
        })
    };
    range.file("a column of 32 MiB", side_by_side(1), Opens(1));
    range.file("20 columns of 32 MiB", side_by_side(20), Refused("limit"));
}

#[test]
fn hdf5_dimensions_of_one() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let ones = |first: u64| [vec![first], vec![1; 31]].concat();
    range.file(
        "2,000,000 elements in 32 dimensions that were never written",
        with_all(|file| {
            let extents = vec![1; 32];
            vec![file.object(&[space(&ones(2_000_000)), f32(), chunked(UNDEFINED, &extents), deflated()])]
        }),
        Opens(1),
    );
    let listed = |datasets: usize, chunks: u64, dims: &[u64]| {
        with_all(|file| {
            let at = file.put(&vec![1; usize::try_from(chunks * 4).unwrap()]);
            let extents = vec![1; dims.len()];
            let object = [space(dims), f32(), implicit(at, &extents)];
            (0..datasets).map(|_| file.object(&object)).collect()
        })
    };
    range.file("200,000 chunks in 32 dimensions", listed(1, 200_000, &ones(200_000)), Opens(1));
    range.file("50 datasets of 100,000 chunks", listed(50, 100_000, &[100_000]), Refused("limit"));
}
