//! HDF5: overlapping structures, and structures with many names.

use crate::harness::{Any, Opens, Range, Refused};
use crate::hdf5_file::{
    F32, File, UNDEFINED, chunk_key, chunked, contiguous, f32, fractal_heap, group_node, group_tree, later,
    local_heap, message, nodes_of_chunks, soft_node, space, summed, symbol_table, tree, tree_of_chunks,
    whole,
};
use crate::hdf5_many::{bytes, with_all};

/// Pads a file to about this length: budgets depend on the length of the file.
fn fill(file: &mut File, len: u64) {
    file.put(&vec![0; usize::try_from(len.saturating_sub(file.next())).unwrap()]);
}

#[test]
fn hdf5_messages_over_each_other() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    // A run of empty messages, read by continuations from its start and from later offsets.
    let continued = |kind: u16, count: usize, times: u64| {
        with_all(|file| {
            let run = file.put(&[&kind.to_le_bytes()[..], &[0; 6]].concat().repeat(count));
            let len = count as u64 * 8;
            let more = (0..times).map(|n| message(0x10, &bytes([run + 8 * n, len - 8 * n])));
            vec![file.object(&[vec![space(&[1]), f32(), contiguous(run, 4)], more.collect()].concat())]
        })
    };
    // A header without a message count, with each message once.
    let once = |kind: u16, count: usize| {
        with_all(|file| {
            let run = later(&message(kind, &[])).repeat(count);
            let run = summed([&b"OCHK"[..], &run].concat());
            let at = file.put(&run);
            let more = message(0x10, &bytes([at, run.len() as u64]));
            vec![file.later_object(&[space(&[1]), f32(), contiguous(at, 4), more])]
        })
    };
    range.file("400,000 messages that say nothing", once(0x20, 400_000), Opens(1));
    let more = continued(0x20, 400_000, 1);
    range.file("400,000 messages, more than a header can state", more, Refused("hdf5-corrupt"));
    range.file("400,000 messages, 19 times", continued(0x20, 400_000, 19), Refused("hdf5-corrupt"));
    range.file("200,000 attributes without content", once(0x0c, 200_000), Refused("hdf5-corrupt"));
    range.file("490,000 attributes, 15 times", continued(0x0c, 490_000, 15), Refused("hdf5-corrupt"));
    // An object with faults only: each of its names repeats all of them.
    let names = |names: usize| {
        with_all(|file| {
            let attributes = vec![message(0x0c, &[]); 100];
            let at = file.object(&[vec![space(&[1]), f32(), contiguous(96, 4)], attributes].concat());
            vec![at; names]
        })
    };
    range.file("60,000 names for 100 attributes without content", names(60_000), Refused("limit"));
}

/// Makes a group whose tree has `nodes` overlapping nodes of `entries` entries each.
fn group_over_itself(nodes: u64, entries: u16) -> Vec<u8> {
    with_all(|file| {
        let names = file.put(b"\0\0\0\0\0\0\0\0a\0\0\0\0\0\0\0");
        let heap = file.put(&local_heap(16, names));
        // The end of each node is the header of another one.
        let cell = tree(0, 0, entries, UNDEFINED, &bytes([8]));
        let cells = usize::try_from(nodes).unwrap() + usize::from(entries) / 2 + 2;
        let first = file.put(&cell.repeat(cells));
        let children: Vec<u64> = (0..nodes).flat_map(|n| [first + 32 * n, 8]).collect();
        let count = u16::try_from(nodes).unwrap();
        let root = file.put(&tree(0, 1, count, UNDEFINED, &[bytes([0]), bytes(children)].concat()));
        let group = file.object(&[symbol_table(root, heap)]);
        // Nodes of `entries` entries, with their full allocated size in the file.
        file.room(4, entries / 2);
        assert!(file.next() + (group_node(entries / 2) as u64) < 4_000_000);
        fill(file, 4_000_000);
        vec![group]
    })
}

/// Makes a dataset whose chunk tree has `nodes` overlapping nodes of `entries` chunks each.
fn chunks_over_themselves(nodes: u64, entries: u16) -> Vec<u8> {
    with_all(|file| {
        let cell = [&tree(1, 0, entries, 0, &[])[..16], &[0; 16]].concat();
        let cells = usize::try_from(nodes).unwrap() + usize::from(entries) + 2;
        let first = file.put(&cell.repeat(cells));
        let children = (0..nodes).map(|n| [chunk_key(0, &[0]), bytes([first + 32 * n])].concat());
        let children = [children.collect::<Vec<_>>().concat(), chunk_key(0, &[0])].concat();
        let root = file.put(&tree(1, 1, u16::try_from(nodes).unwrap(), UNDEFINED, &children));
        let dataset = file.object(&[space(&[4_000_000]), f32(), chunked(root, &[1])]);
        fill(file, 4_000_000);
        vec![dataset]
    })
}

/// Makes a dataset of one-element chunks with an extensible array index of elements of `size` bytes. Secondary block `block`
/// references the same data block of `len` bytes `count` times.
fn array_of_one_block(elements: u64, size: u8, block: usize, count: usize, len: usize) -> Vec<u8> {
    with_all(|file| {
        // Prefix of each block: version, client, header address.
        let head_at = file.put(&[0; 80]);
        let own = [&[0u8, 0][..], &bytes([head_at])].concat();
        let data = [&b"EADB"[..], &own, &[0; 6], &bytes([96]).repeat(len / 8)].concat();
        let data = file.put(&summed(data));
        let second = [&b"EASB"[..], &own, &[0; 6], &bytes([data]).repeat(count)].concat();
        let second = file.put(&summed(second));
        // 48 bits for the number of elements, at least 128 per block, all data blocks in secondary blocks.
        let mut blocks = vec![UNDEFINED; 42];
        blocks[block] = second;
        let first = file.put(&summed([&b"EAIB"[..], &own, &bytes(blocks)].concat()));
        // Blocks of up to 2^47 elements are not paged.
        let head = [&b"EAHD"[..], &[0, 0, size, 48, 0, 128, 1, 47], &[0; 48], &bytes([first])].concat();
        file.replace(head_at, &summed(head));
        // Version, chunked, flags, rank, bytes per dimension, dimensions; kind and parameters of the index.
        let layout = [&[4, 2, 0, 2, 1, 1, 4, 4, 48, 0, 1, 128, 47][..], &bytes([head_at])].concat();
        let dataset = file.object(&[space(&[elements]), f32(), message(8, &layout)]);
        fill(file, 4_000_000);
        vec![dataset]
    })
}

#[test]
fn hdf5_indexes_over_each_other() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    range.file(
        "links of a tree of 70 nodes in one place",
        group_over_itself(70, 65_534),
        Refused("hdf5-corrupt"),
    );
    let tree_of = chunks_over_themselves(37, 65_534);
    range.file("chunks of a tree of 37 nodes in one place", tree_of, Refused("hdf5-corrupt"));
    let array = array_of_one_block(70_000_000, 8, 18, 512, 1 << 19);
    range.file("512 times one block of 65,536 chunks", array, Refused("hdf5-corrupt"));
    let array = array_of_one_block(1 << 44, 0, 36, 1 << 18, 8);
    range.file("blocks of 2^25 elements of no bytes", array, Refused("hdf5-corrupt"));

    // Empty nodes, read again for each name.
    let empty = |nodes: u64, names: usize| {
        with_all(|file| {
            let first = file.next();
            let len = 24 + 64 * 32 + 24;
            let mut children = Vec::new();
            for number in 0..nodes {
                let key = chunk_key(0, &[number]);
                let right = if number + 1 < nodes { first + len * (number + 1) } else { UNDEFINED };
                let mut node = tree(1, 0, 0, right, &key);
                if number > 0 {
                    node[8..16].copy_from_slice(&bytes([first + len * (number - 1)]));
                }
                children.push((key, file.put(&whole(node, usize::try_from(len).unwrap()))));
            }
            let root = nodes_of_chunks(file, 1, children, &chunk_key(0, &[nodes]));
            vec![file.object(&[space(&[1]), f32(), chunked(root, &[1])]); names]
        })
    };
    range.file("3 names for a tree without chunks", empty(2_000, 3), Opens(3));
    range.file("20,000 names for a tree without chunks", empty(4_000, 20_000), Refused("limit"));
}

/// Makes a group whose link tree has `depth` levels of 64-byte nodes; the last child address is undefined.
fn deep_group(depth: u16) -> Vec<u8> {
    with_all(|file| {
        let (heap, _) = fractal_heap(file, b"nothing", &[]);
        let len = |most: u64| most.checked_ilog2().map_or(1, |bits| bits as usize / 8 + 1);
        // Records of 11 bytes, at most four in a leaf: the widths of the counts after an address.
        let (mut all, mut below) = (4u64, vec![0, 0]);
        for above in 2..=usize::from(depth) {
            let pointer = 8 + 1 + below[above - 1] as u64;
            let most = (54 - pointer) / (11 + pointer);
            all = (most + 1).saturating_mul(all).saturating_add(most);
            below.push(len(all));
        }
        let first = file.next();
        for level in 0..u64::from(depth) {
            let zeros = vec![0; 1 + below[usize::from(depth) - usize::try_from(level).unwrap()]];
            let next = if level + 1 < depth.into() { first + 64 * (level + 1) } else { 1 << 40 };
            let mut node = [&b"BTIN\0\x05"[..], &bytes([next]), &zeros].concat();
            if level == 0 {
                // A record and a second child.
                let record = [&b"BTIN\0\x05"[..], &[0; 11], &node[6..], &bytes([1 << 41]), &zeros];
                node = record.concat();
            }
            let mut node = summed(node);
            node.resize(64, 0);
            assert_eq!(file.put(&node), first + 64 * level);
        }
        let head = [&b"BTHD\0\x05\x40\0\0\0\x0b\0"[..], &depth.to_le_bytes(), &[100, 40], &bytes([first])];
        let tree = file.put(&summed([&head.concat()[..], &1u16.to_le_bytes(), &bytes([1])].concat()));
        vec![file.object(&[message(2, &[&[0, 0][..], &bytes([heap, tree])].concat())])]
    })
}

/// Makes a symbol-table group whose entries all have the same name, or the same link path. Its leaf holds up to twice `half`
/// entries.
fn group_of_one_name(entries: usize, half: u16, name: (u64, u32), text: &[u8]) -> Vec<u8> {
    with_all(|file| {
        let names = file.put(text);
        let heap = file.put(&local_heap(text.len() as u64, names));
        let node = file.put(&soft_node(&vec![name; entries]));
        file.room(half, 16);
        let tree = file.put(&group_tree(16, 0, node, 8));
        vec![file.object(&[symbol_table(tree, heap)])]
    })
}

#[test]
fn hdf5_groups_that_are_damaged() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    range.file("a tree of 60 levels that has an undefined child", deep_group(60), Refused("past-the-end"));
    range.file(
        "a tree of 60,000 levels that has an undefined child",
        deep_group(60_000),
        Refused("hdf5-corrupt"),
    );
    // Texts of 2 MB: each of many entries could search or copy them.
    let endless = [&b"\0\0\0\0\0\0\0\0"[..], &vec![b'n'; 2_000_000]].concat();
    range.file(
        "60,000 names without an end",
        group_of_one_name(60_000, 30_000, (8, 8), &endless),
        Refused("hdf5-corrupt"),
    );
    let ended = [&endless[..], &[0]].concat();
    range.file(
        "60,000 times one name of 2 MB",
        group_of_one_name(60_000, 30_000, (8, 8), &ended),
        Refused("hdf5-corrupt"),
    );
    let no_path = group_of_one_name(60_000, 30_000, (8, u32::MAX), &ended);
    range.file("60,000 names of 2 MB whose paths do not end", no_path, Refused("hdf5-corrupt"));
}

#[test]
fn hdf5_names_for_one_object() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let object = |names: usize, kind: &[u8], fill_value: &[u8]| {
        with_all(|file| {
            let len = u32::try_from(fill_value.len()).unwrap().to_le_bytes();
            let value =
                message(5, &[&[2, 2, 0, u8::from(!fill_value.is_empty())][..], &len, fill_value].concat());
            let at = file.object(&[space(&[1]), message(3, kind), value, contiguous(UNDEFINED, 0)]);
            fill(file, 3_800_000);
            vec![at; names]
        })
    };
    // Nested array types of bytes, 255 dimensions each.
    let array = [&[0x3a, 0, 0, 0, 1, 0, 0, 0, 255][..], &[0xff; 4 * 255]].concat();
    let arrays = [&array.repeat(14)[..], &[0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]].concat();
    range.file("100 names for arrays in arrays", object(100, &arrays, &[]), Opens(0));
    range.file("2,600 names for arrays in arrays", object(2_600, &arrays, &[]), Any);
    let opaque = [&[0x15, 0, 0, 0][..], &60_000u32.to_le_bytes()].concat();
    let long: Vec<u8> = (0..=250).cycle().take(60_000).collect();
    range.file("100 names for 60 kB that were never written", object(100, &opaque, &long), Opens(100));
    range.file(
        "1,300 names for 60 kB that were never written",
        object(1_300, &opaque, &long),
        Refused("limit"),
    );
    range.file("2,000 names for one element", object(2_000, &F32, &[]), Opens(2_000));
    // Variable-length texts of half a gigabyte each.
    let texts = [&[0x19, 1, 0, 0][..], &500_000_000u32.to_le_bytes(), &[0x13, 0, 0, 0, 1, 0, 0, 0]].concat();
    range.file("a text whose place is half a gigabyte", object(1, &texts, &[]), Refused("hdf5-corrupt"));
}

#[test]
fn hdf5_texts_that_are_nothing_but_padding() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let padding = |attributes: u32, texts: u64, len: u64| {
        with_all(|file| {
            let zeros = vec![0; usize::try_from(len).unwrap()];
            // Followed by the header of the free space.
            let left = bytes([0, 16]);
            let object = [&[1, 0, 1, 0, 0, 0, 0, 0][..], &bytes([len]), &zeros, &left].concat();
            let size = object.len() as u64 + 16;
            let heap = file.put(&[&b"GCOL\x01\0\0\0"[..], &bytes([size]), &object].concat());
            let kind = [&[0x19, 1, 0, 0, 16, 0, 0, 0][..], &[0x13, 0, 0, 0, 1, 0, 0, 0]].concat();
            let extents = [&[1, 1, 0, 0, 0, 0, 0, 0][..], &bytes([texts])].concat();
            let one =
                [&u32::try_from(len).unwrap().to_le_bytes()[..], &bytes([heap]), &[1, 0, 0, 0]].concat();
            let all = one.repeat(usize::try_from(texts).unwrap());
            let attribute = |n: u32| {
                let name = format!("{n:07}\0");
                let name = name.as_bytes();
                message(0x0c, &[&[1, 0, 8, 0, 16, 0, 16, 0][..], name, &kind, &extents, &all].concat())
            };
            let attributes = (0..attributes).map(attribute).collect();
            let of = vec![space(&[1]), f32(), contiguous(96, 4)];
            vec![file.object(&[of, attributes].concat())]
        })
    };
    range.file("a text of zeros", padding(1, 1, 1 << 20), Opens(1));
    range.file("48,000 texts of 3 MB of zeros", padding(12, 4_000, 3_000_000), Opens(1));
    range.file("20,000 attributes of 2 MB of zeros", padding(20_000, 1, 2_000_000), Opens(1));
}

#[test]
fn hdf5_columns_as_they_are() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let columns = |rows: u32, count: u64, names: usize| {
        with_all(|file| {
            let all = u64::from(rows);
            let mut chunks = Vec::new();
            for column in 0..count {
                let at = file.put(&vec![1; usize::try_from(all * 4).unwrap()]);
                chunks.push((vec![0, column], at, rows * 4));
            }
            let tree = tree_of_chunks(file, &[rows, 1], &chunks);
            vec![file.object(&[space(&[all, count]), f32(), chunked(tree, &[rows, 1])]); names]
        })
    };
    range.file("20 names for three long columns", columns(300_000, 3, 20), Opens(20));
}
