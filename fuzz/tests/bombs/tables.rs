//! Arrow, TSV and word2vec.

use crate::harness::{Opens, Range, Refused};
use crate::made::{Part, made};

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(
        [env!("CARGO_MANIFEST_DIR"), "..", "testdata", "tables", name].iter().collect::<std::path::PathBuf>(),
    )
    .unwrap()
}

fn put(bytes: &[u8], at: usize, word: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + word.len()].copy_from_slice(word);
    bytes
}

#[test]
fn arrow_claims() {
    let mut range = Range::new("arrow");
    let zstd = golden("fixed.zstd.arrow");
    // Before a frame of zstd stands how long it is unpacked.
    let frames: Vec<usize> =
        (8..zstd.len() - 4).filter(|&at| zstd[at..].starts_with(b"\x28\xb5\x2f\xfd")).collect();
    assert!(!frames.is_empty());
    for claim in [1i64 << 60, i64::MAX, 1 << 40] {
        let mut bytes = zstd.clone();
        frames.iter().for_each(|&at| bytes = put(&bytes, at - 8, &claim.to_le_bytes()));
        range.file(&format!("buffers of {claim} bytes"), bytes, Refused("inflated"));
    }
    let plain = golden("plain.uncompressed.arrow");
    let footer = plain.len() - 10;
    for (claim, code) in [(i32::MAX, "limit"), (-1, "limit"), (67_108_864, "truncated")] {
        range.file(&format!("a footer of {claim}"), put(&plain, footer, &claim.to_le_bytes()), Refused(code));
    }
}

/// Rows that claim to be longer than memory, which salvage would read whole.
#[test]
fn arrow_rows_without_end() {
    let mut range = Range::new("arrow");
    range.any("rows of 4 GiB", golden("bad/row-of-4-gib.zstd.arrow"));
    range.any("rows of 200 MiB", golden("bad/row-of-200-mib.zstd.arrow"));
}

/// Each number in small files, in turn, made as large as can be: in heads, footers, flatbuffers, buffers. Whatever they
/// are, nothing takes more than it may.
#[test]
fn arrow_every_number() {
    let mut range = Range::new("arrow");
    for name in ["holes.arrow", "plain.zstd.arrow", "lists.lz4.arrow"] {
        let good = golden(name);
        for at in (8..good.len() - 8).step_by(4) {
            for word in [&i32::MAX.to_le_bytes()[..], &(1u64 << 60).to_le_bytes()] {
                range.any(&format!("{name} at {at}"), put(&good, at, word));
            }
        }
    }
}

#[test]
fn tsv_bombs() {
    let mut range = Range::new("tsv");
    let giant = 200 << 20;
    let line = made(vec![Part::Bytes(b"a\t".to_vec()), Part::Again(b"1\t".to_vec(), giant)]);
    range.source("one line of 200 MiB", line, Refused("limit"));
    let line = made(vec![
        Part::Bytes(b"a\t".to_vec()),
        Part::Again(b"1\t".to_vec(), 2 << 20),
        Part::Bytes(b"1\n".to_vec()),
    ]);
    range.source("one line of 2 MiB", line, Opens(1));
    let name = made(vec![Part::Again(b"z".to_vec(), giant)]);
    range.source("a name of 200 MiB", name, Refused("limit"));
    let digits = made(vec![Part::Bytes(b"a\t".to_vec()), Part::Again(b"9".to_vec(), giant)]);
    range.source("a number of 200 MiB", digits, Refused("limit"));
    let rows = made(vec![Part::Again(b"a\t1\n".to_vec(), 1 << 21)]);
    range.source("500,000 rows", rows, Opens(1));
    range.source("500,000 empty lines", made(vec![Part::Again(b"\n".to_vec(), 1 << 19)]), Opens(1));
}

#[test]
fn word2vec_bombs() {
    let mut range = Range::new("word2vec");
    range.file("999,999,999 rows", b"999999999 3\na 1 2 3\n".to_vec(), Refused("row-count"));
    range.file("2^64 - 1 rows", b"18446744073709551615 3\na 1 2 3\n".to_vec(), Refused("row-count"));
    range.file("2^64 - 1 columns", b"1 18446744073709551615\na 1 2 3\n".to_vec(), Refused("ragged-line"));
    range.file(
        "2^62 columns, binary",
        b"1 4611686018427387904\na \0\0\0\0\0\0\0\0".to_vec(),
        Refused("ragged-line"),
    );
    let none = made(vec![Part::Bytes(b"300000 0\n".to_vec()), Part::Again(b"a \n".to_vec(), 900_000)]);
    range.source("300,000 rows of nothing", none, Refused("word2vec-header"));
    let line = made(vec![Part::Bytes(b"2 3\n".to_vec()), Part::Again(b"a".to_vec(), 200 << 20)]);
    range.source("a word of 200 MiB", line, Refused("limit"));
    let line = made(vec![Part::Bytes(b"2 3\na ".to_vec()), Part::Again(b"9".to_vec(), 200 << 20)]);
    range.source("a number of 200 MiB", line, Refused("limit"));
}
