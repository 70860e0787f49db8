//! TSV and word2vec.

use crate::harness::{Opens, Range, Refused};
use crate::made::{Part, made};

#[test]
fn tsv_bombs() {
    let Some(mut range) = Range::alone("tsv") else { return };
    let giant = 200 << 20;
    let line = made(vec![Part::Bytes(b"a\t".to_vec()), Part::Repeat(b"1\t".to_vec(), giant)]);
    range.source("one line of 200 MiB", line, Refused("limit"));
    let line = made(vec![
        Part::Bytes(b"a\t".to_vec()),
        Part::Repeat(b"1\t".to_vec(), 2 << 20),
        Part::Bytes(b"1\n".to_vec()),
    ]);
    range.source("one line of 2 MiB", line, Opens(1));
    let name = made(vec![Part::Repeat(b"z".to_vec(), giant)]);
    range.source("a name of 200 MiB", name, Refused("limit"));
    let digits = made(vec![Part::Bytes(b"a\t".to_vec()), Part::Repeat(b"9".to_vec(), giant)]);
    range.source("a number of 200 MiB", digits, Refused("limit"));
    let rows = made(vec![Part::Repeat(b"a\t1\n".to_vec(), 1 << 21)]);
    range.source("500,000 rows", rows, Opens(1));
    range.source("500,000 empty lines", made(vec![Part::Repeat(b"\n".to_vec(), 1 << 19)]), Opens(1));
}

#[test]
fn word2vec_bombs() {
    let Some(mut range) = Range::alone("word2vec") else { return };
    range.file("999,999,999 rows", b"999999999 3\na 1 2 3\n".to_vec(), Refused("row-count"));
    range.file("2^64 - 1 rows", b"18446744073709551615 3\na 1 2 3\n".to_vec(), Refused("row-count"));
    range.file("2^64 - 1 columns", b"1 18446744073709551615\na 1 2 3\n".to_vec(), Refused("ragged-line"));
    range.file(
        "2^62 columns, binary",
        b"1 4611686018427387904\na \0\0\0\0\0\0\0\0".to_vec(),
        Refused("truncated"),
    );
    let none = made(vec![Part::Bytes(b"300000 0\n".to_vec()), Part::Repeat(b"a \n".to_vec(), 900_000)]);
    range.source("300,000 rows of nothing", none, Refused("word2vec-header"));
    let line = made(vec![Part::Bytes(b"2 3\n".to_vec()), Part::Repeat(b"a".to_vec(), 200 << 20)]);
    range.source("a word of 200 MiB", line, Refused("limit"));
    let line = made(vec![Part::Bytes(b"2 3\na ".to_vec()), Part::Repeat(b"9".to_vec(), 200 << 20)]);
    range.source("a number of 200 MiB", line, Refused("limit"));
}
