//! primitiv: false MessagePack lengths.

use crate::harness::{Range, Refused};

fn word(n: u32) -> Vec<u8> {
    [&[0xce], n.to_be_bytes().as_slice()].concat()
}

/// Makes a file of a kind: 0 shape, 1 tensor, 2 parameter, 3 model, 4 optimizer.
fn file(kind: u32, body: &[u8]) -> Vec<u8> {
    [word(0), word(1), word(kind << 8), body.to_vec()].concat()
}

/// Makes a shape of these dimensions, batch 1.
fn shape(dims: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0x90 | u8::try_from(dims.len()).unwrap()];
    dims.iter().for_each(|&extent| bytes.extend(word(extent)));
    bytes.extend(word(1));
    bytes
}

/// Makes a MessagePack header with a length of 2^32 - 1.
fn endless(marker: u8) -> Vec<u8> {
    [marker, 0xff, 0xff, 0xff, 0xff].to_vec()
}

const ARRAY32: u8 = 0xdd;
const MAP32: u8 = 0xdf;
const STR32: u8 = 0xdb;
const BIN32: u8 = 0xc6;

#[test]
fn primitiv_bombs() {
    let Some(mut range) = Range::alone("primitiv") else { return };
    range.file("array32 of extents", file(0, &endless(ARRAY32)), Refused("too-many-dims"));
    range.file(
        "bin32 of values",
        file(1, &[shape(&[2, 2]), endless(BIN32)].concat()),
        Refused("length-mismatch"),
    );
    let largest = [u32::MAX; 8];
    range.file(
        "2^256 values",
        file(1, &[shape(&largest), endless(BIN32)].concat()),
        Refused("shape-overflow"),
    );
    let matrix = [shape(&[65535, 16384]), endless(BIN32)].concat();
    range.file("4 GiB of values", file(1, &matrix), Refused("length-mismatch"));
    let value = [shape(&[1]), vec![0xc4, 4, 0, 0, 0, 0]].concat();
    range.file(
        "2^32 - 1 stats",
        file(2, &[value.clone(), word(u32::MAX)].concat()),
        Refused("impossible-count"),
    );
    let stat = [value.clone(), word(1), endless(STR32)].concat();
    range.file("str32 of a stat", file(2, &stat), Refused("impossible-count"));
    range.file("2^32 - 1 parameters", file(3, &word(u32::MAX)), Refused("impossible-count"));
    range.file(
        "array32 of an address",
        file(3, &[word(1), endless(ARRAY32)].concat()),
        Refused("impossible-count"),
    );
    let part = [word(1), vec![0x91], endless(STR32)].concat();
    range.file("str32 of an address", file(3, &part), Refused("impossible-count"));
    let mut deep = [word(1), vec![ARRAY32]].concat();
    deep.extend(1_000_000u32.to_be_bytes());
    deep.extend([0xa1, b'a'].repeat(1_000_000));
    range.file(
        "an address of 10^6 parts",
        file(3, &[deep, value.clone(), word(0)].concat()),
        Refused("limit"),
    );
    range.file(
        "nested arrays",
        file(3, &[word(1), vec![0x91; 1_000_000]].concat()),
        Refused("primitiv-marker"),
    );
    range.file("map32 of an optimizer", file(4, &endless(MAP32)), Refused("impossible-count"));
    let name = [vec![0x81], endless(STR32)].concat();
    range.file("str32 in an optimizer", file(4, &name), Refused("impossible-count"));
}

/// Tests a long parameter path, stored once and shared by all stats.
#[test]
fn a_long_path_of_many_stats() {
    let Some(mut range) = Range::alone("primitiv") else { return };
    let value = [shape(&[]), vec![0xc4, 4, 0, 0, 0, 0]].concat();
    let path = vec![b'x'; 1_000_000];
    let mut model = [word(1), vec![0x91, STR32], 1_000_000u32.to_be_bytes().to_vec(), path].concat();
    model.extend([value.clone(), word(100_000)].concat());
    for number in 0..100_000u32 {
        let name = format!("{number:05}");
        model.extend([&[0xa5][..], name.as_bytes(), &value].concat());
    }
    let whole = file(3, &model);
    // Salvage of a truncated file stays within the same limit.
    range.file("a path of 1 MB", whole.clone(), Refused("names-too-long"));
    range.file("a path of 1 MB, cut short", whole[..whole.len() - 3].to_vec(), Refused("truncated"));
}
