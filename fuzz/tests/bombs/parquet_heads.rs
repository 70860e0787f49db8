//! Parquet: page headers of two kinds at once, and names in many row groups.

use super::parquet::{Struct, claims, closed, dictionary, element, new, page, run, shaped, varint};
use crate::harness::{Opens, Range};

/// Makes a data page whose header contains a second structure.
fn twofold(values: i32, encoding: i32, other: u8, structure: Struct, bytes: &[u8]) -> Vec<u8> {
    let len = i32::try_from(bytes.len()).unwrap();
    let data = new().i32(1, values).i32(2, encoding).i32(3, 3).i32(4, 3);
    let head = new().i32(1, 0).i32(2, len).i32(3, len).of(5, data).of(other, structure);
    [head.end(), bytes.to_vec()].concat()
}

/// Makes a DataPageHeaderV2 with a stated number of values.
fn second(values: i32, encoding: i32) -> Struct {
    new().i32(1, values).i32(2, 0).i32(3, 1).i32(4, encoding).i32(5, 0).i32(6, 0)
}

/// Makes `count` delta-encoded lengths of 0.
fn lengths(count: u64) -> Vec<u8> {
    let blocks = (count - 1).div_ceil(1 << 30);
    let blocks = [0, 0].repeat(usize::try_from(blocks).unwrap());
    [varint(1 << 30), varint(1), varint(count), vec![0], blocks, vec![0; 16]].concat()
}

/// Makes the metadata of a column at these bytes: type, name and number of values.
fn column(kind: i32, name: &str, values: i64, at: usize, len: usize) -> Vec<u8> {
    let path = [varint(name.len() as u64), name.as_bytes().to_vec()].concat();
    let (at, len) = (i64::try_from(at).unwrap(), i64::try_from(len).unwrap());
    let meta = new().i32(1, kind).list(2, 5, 1, &[0]).list(3, 8, 1, &path).i32(4, 0);
    let meta = meta.i64(5, values).i64(6, len).i64(7, len).i64(9, at);
    new().i64(2, at).of(3, meta).end()
}

/// Makes row groups of `rows` rows each: a page of names, and a page with one number per row.
fn names(groups: usize, rows: i32, page_of_names: &[u8]) -> Vec<u8> {
    let numbers = page(rows, 0, None, &vec![0; usize::try_from(rows).unwrap() * 4]);
    let (mut pages, mut blocks) = (Vec::new(), Vec::new());
    for _ in 0..groups {
        let at = 4 + pages.len();
        pages.extend([page_of_names, &numbers].concat());
        let columns = [
            column(6, "name", rows.into(), at, page_of_names.len()),
            column(4, "x", rows.into(), at + page_of_names.len(), numbers.len()),
        ];
        blocks.extend(new().list(1, 12, 2, &columns.concat()).i64(2, 1).i64(3, rows.into()).end());
    }
    let schema = [
        element(None, 0, "schema", Some(2), None),
        element(Some(6), 0, "name", None, Some(0)),
        element(Some(4), 0, "x", None, None),
    ];
    let footer = new().i32(1, 1).list(2, 12, 3, &schema.concat());
    let footer = footer.i64(3, i64::from(rows) * i64::try_from(groups).unwrap());
    closed(&pages, &footer.list(4, 12, groups as u64, &blocks).end())
}

/// Tests that the checked header structure is the one used for decompression.
#[test]
fn parquet_heads_of_two_kinds() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let lengths_of = lengths(2_000_000_000);
    let of_dictionary = || new().i32(1, 1).i32(2, 0);
    let pages = twofold(10, 6, 7, of_dictionary(), &lengths_of);
    range.file("2 * 10^9 lengths in a page that is a dictionary, too", names(1, 10, &pages), Opens(1));
    let pages = twofold(2_000_000_000, 6, 8, second(0, 6), &lengths_of);
    range.file("2 * 10^9 names in a page that has none in its second form", names(1, 10, &pages), Opens(1));

    let list = [
        element(None, 0, "schema", Some(1), None),
        element(None, 0, "vector", Some(1), Some(3)),
        element(None, 2, "list", Some(1), None),
        element(Some(4), 0, "element", None, None),
    ];
    let count = 250_000_000;
    let levels = |runs: &[(u64, u8)]| {
        let runs: Vec<u8> =
            runs.iter().flat_map(|(count, level)| [varint(count << 1), vec![*level]].concat()).collect();
        [&u32::try_from(runs.len()).unwrap().to_le_bytes()[..], &runs].concat()
    };
    let body = [levels(&[(1, 0), (count - 1, 1)]), levels(&[(count, 1)]), run(count)].concat();
    let head = dictionary(1, &[0; 4]);
    let values = i32::try_from(count).unwrap();
    let pages = [head.clone(), twofold(values, 8, 8, second(0, 0), &body)].concat();
    let path = ["vector", "list", "element"];
    let at = i64::try_from(head.len()).unwrap();
    let file = shaped(&list, &path, 4, &pages, at, &claims(1));
    range.any("a list of 250,000,000 in a page that has no values in its second form", file);
}

/// Tests row groups with true counts and far more names than rows.
#[test]
fn parquet_names_of_many_groups() {
    let Some(mut range) = Range::alone("parquet") else { return };
    range.file("10 row groups of one name", names(10, 1, &page(1, 6, None, &lengths(1))), Opens(1));
    for (groups, count) in [(200, 3_000_000), (2_000, 3_000_000)] {
        let both = [lengths(count), lengths(count)].concat();
        let values = i32::try_from(count).unwrap();
        for (encoding, bytes) in [(6, lengths(count)), (7, both)] {
            let pages = page(values, encoding, None, &bytes);
            let what = format!("{groups} row groups of one row and {count} names, encoding {encoding}");
            range.file(&what, names(groups, 1, &pages), Opens(1));
        }
    }
}
