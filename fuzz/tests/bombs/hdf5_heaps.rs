//! HDF5: names in fractal heaps of many blocks, with nested indirect blocks.

use crate::harness::{End, Opens, Range, Refused};
use crate::hdf5_file::{File, HeapForm, HeapTables, contiguous, f32, message, space, tree_of_records};
use crate::hdf5_many::with_all;

/// Blocks of 64 and 128 bytes; the last rows of the table are indirect blocks.
const FORM: HeapForm = HeapForm { width: 2, first: 64, largest: 128, bits: 32, rows: 7 };
/// Number of blocks, each with an object.
const BLOCKS: usize = 106;

/// Makes a dataset as target of links.
fn dataset(file: &mut File) -> u64 {
    let at = file.put(&[1; 4]);
    file.object(&[space(&[1]), f32(), contiguous(at, 4)])
}

fn link(name: &str, address: u64) -> Vec<u8> {
    [&[1, 0, u8::try_from(name.len()).unwrap()][..], name.as_bytes(), &address.to_le_bytes()].concat()
}

/// Makes a group with its links in this heap.
fn group(file: &mut File, heap: u64, identities: &[[u8; 8]]) -> u64 {
    let records: Vec<_> =
        identities.iter().zip(0u32..).map(|(id, n)| [&n.to_le_bytes()[..], id].concat()).collect();
    let tree = tree_of_records(file, 5, &records);
    let addresses = [heap.to_le_bytes(), tree.to_le_bytes()].concat();
    file.object(&[message(2, &[&[0, 0][..], &addresses].concat())])
}

/// Makes a file with a link in each block of [`FORM`]; `said` is the stated form, `entry` gives the stated block addresses.
fn tables(said: HeapForm, entry: &dyn Fn(u64, u64) -> u64) -> Vec<u8> {
    with_all(|file| {
        let dataset = dataset(file);
        let object = |number| Some(link(&format!("{number:03}"), dataset));
        let mut tables = HeapTables::new(FORM, &object, entry);
        let heap = tables.put(file, said);
        assert_eq!(tables.identities.len(), BLOCKS);
        vec![group(file, heap, &tables.identities)]
    })
}

#[test]
fn hdf5_heaps_of_tables() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    let all = Opens(BLOCKS);
    let corrupt = Refused("hdf5-corrupt");
    let truly = |_: u64, block: u64| block;
    range.file("a heap of tables", tables(FORM, &truly), all);
    range.file(
        "a heap of tables with one block",
        with_all(|file| {
            let dataset = dataset(file);
            let object = |number| (number == BLOCKS - 1).then(|| link("last", dataset));
            let mut tables = HeapTables::new(FORM, &object, &truly);
            let heap = tables.put(file, FORM);
            vec![group(file, heap, &tables.identities)]
        }),
        Opens(1),
    );
    let first = std::cell::Cell::new(0);
    range.file("tables that lead to themselves", tables(FORM, &|own, _| own), corrupt);
    range.file(
        "tables that all lead to the same block",
        tables(FORM, &|_, block| {
            if first.get() == 0 {
                first.set(block);
            }
            first.get()
        }),
        corrupt,
    );
    range.file("tables with undefined addresses", tables(FORM, &|_, _| u64::MAX), corrupt);
    range.file(
        "tables that leave the file",
        tables(FORM, &|_, block| block | 1 << 62),
        Refused("past-the-end"),
    );
    let (past, sum) = (Refused("past-the-end"), Refused("hdf5-checksum"));
    let said: &[(&str, HeapForm, End)] = &[
        ("no columns", HeapForm { width: 0, ..FORM }, corrupt),
        ("three columns", HeapForm { width: 3, ..FORM }, corrupt),
        ("four columns", HeapForm { width: 4, ..FORM }, sum),
        ("32,768 columns", HeapForm { width: 1 << 15, ..FORM }, past),
        ("a row too few", HeapForm { rows: 6, ..FORM }, sum),
        ("65,535 rows", HeapForm { rows: u16::MAX, ..FORM }, corrupt),
        ("64 rows of no bytes", HeapForm { first: 0, rows: 64, ..FORM }, corrupt),
        ("blocks of a byte", HeapForm { first: 1, ..FORM }, corrupt),
        ("blocks of 2^63 bytes", HeapForm { first: 1 << 63, largest: 1 << 63, ..FORM }, corrupt),
        ("one block of 2^63 bytes", HeapForm { first: 1 << 63, rows: 0, ..FORM }, past),
        ("a first block that is larger than the largest", HeapForm { largest: 32, ..FORM }, corrupt),
        ("one table of blocks", HeapForm { largest: 1 << 63, ..FORM }, corrupt),
        ("a space of 2^33 bytes", HeapForm { rows: 27, ..FORM }, corrupt),
        ("offsets of 65,535 bits", HeapForm { bits: u16::MAX, ..FORM }, corrupt),
    ];
    for (name, said, end) in said {
        range.file(&format!("a heap that says: {name}"), tables(*said, &truly), *end);
    }
}

#[test]
fn hdf5_heap_lookups_are_not_linear() {
    let Some(mut range) = Range::alone("hdf5") else { return };
    // The last of 65,536 blocks, requested repeatedly.
    let form = HeapForm { width: 1 << 15, first: 64, largest: 64, bits: 32, rows: 2 };
    range.file(
        "25,000 names in the last block of a table",
        with_all(|file| {
            let object = |number| (number == (1 << 16) - 1).then(|| link("n", 96));
            let mut tables = HeapTables::new(form, &object, &|_, block| block);
            let heap = tables.put(file, form);
            vec![group(file, heap, &vec![tables.identities[0]; 25_000])]
        }),
        Opens(0),
    );
}
