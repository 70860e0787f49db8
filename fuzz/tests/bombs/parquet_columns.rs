//! Parquet: columns at the same offset, dictionaries, delta-encoded names, missing rows, wide tables.

use super::parquet::{
    Claims, Struct, claims, closed, element, file, made, new, page, run, shaped, varint, zeros,
};
use crate::harness::{MAX_MEMORY, Opens, Range};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::ops::stats::{StatsOptions, stats};
use weighbridge_fuzz::counting;

/// Makes the metadata of a column: type, name, number of values, stated size in bytes; optionally with a dictionary page.
fn column(kind: i32, name: &str, values: i64, len: i64, codec: i32, dictionary: bool) -> Vec<u8> {
    let path = [varint(name.len() as u64), name.as_bytes().to_vec()].concat();
    let meta = new().i32(1, kind).list(2, 5, 1, &[0]).list(3, 8, 1, &path).i32(4, codec);
    let meta = meta.i64(5, values).i64(6, len).i64(7, len).i64(9, 4);
    let meta = if dictionary { meta.i64(11, 4) } else { meta };
    new().i64(2, 4).of(3, meta).end()
}

/// Makes two columns at the same bytes; the first states a size of 0.
fn two(pages: &[u8], rows: i64, codec: i32, dictionary: bool) -> Vec<u8> {
    let len = i64::try_from(pages.len()).unwrap();
    let columns =
        [column(4, "a", rows, 0, codec, dictionary), column(4, "b", rows, len, codec, dictionary)].concat();
    let block = new().list(1, 12, 2, &columns).i64(2, len).i64(3, rows).end();
    let schema = [
        new().text(4, "schema").i32(5, 2).end(),
        element(Some(4), 0, "a", None, None),
        element(Some(4), 0, "b", None, None),
    ];
    let footer = new().i32(1, 1).list(2, 12, 3, &schema.concat()).i64(3, rows).list(4, 12, 1, &block).end();
    closed(pages, &footer)
}

/// Makes a dictionary page with stated numbers of values and bytes.
fn claimed(values: i32, unpacked: i32, bytes: &[u8]) -> Vec<u8> {
    let head = new().i32(1, values).i32(2, 0);
    let len = i32::try_from(bytes.len()).unwrap();
    [new().i32(1, 2).i32(2, unpacked).i32(3, len).of(7, head).end(), bytes.to_vec()].concat()
}

#[test]
fn parquet_dictionaries_that_claim() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let values = page(10, 8, None, &run(10));
    let pages = [claimed(2_000_000_000, 4, &[0; 4]), values.clone()].concat();
    range.any("2 * 10^9 values behind a column of no bytes", two(&pages, 10, 0, true));
    let long = 500_000_000;
    let body = zeros(long);
    let (unpacked, packed) = (i32::try_from(long).unwrap(), i32::try_from(body.len()).unwrap());
    let pages = page(unpacked / 4, 0, Some((unpacked, packed)), &body);
    range.any("500 MB of zstd behind a column of no bytes", two(&pages, i64::from(unpacked) / 4, 6, false));

    let pages = [claimed(2_000_000_000, 2_000_000_000, &[0; 4]), values].concat();
    range.any("2 * 10^9 values, and as many bytes", file(&pages, true, &claims(10)));
    let schema = |kind: i32, name: &str, like: Option<i32>| {
        [element(None, 0, "schema", Some(1), None), element(Some(kind), 0, name, None, like)]
    };
    // Values of 8 bytes; empty texts.
    let places = run(10);
    let packed_run = [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 0x19, 0, 0][..], &places].concat();
    let lengths = Some((3, i32::try_from(packed_run.len()).unwrap()));
    for (values, bytes) in [(49_000_000, 49_000_000u32), (6_125_000, 49_000_000), (3_000_000, 24_000_000)] {
        let head = claimed(values, i32::try_from(bytes).unwrap(), &zeros(bytes));
        let pages = [head.clone(), page(10, 8, lengths, &packed_run)].concat();
        let zstd = Claims { codec: 6, ..claims(10) };
        let at = i64::try_from(head.len()).unwrap();
        let numbers = shaped(&schema(5, "x", None), &["x"], 5, &pages, at, &zstd);
        range.file(&format!("{values} numbers in {bytes} bytes of zstd"), numbers, Opens(1));
        let texts = shaped(&schema(6, "name", Some(0)), &["name"], 6, &pages, at, &zstd);
        range.file(&format!("{values} texts in {bytes} bytes of zstd"), texts, Opens(1));
    }
}

/// Tests many columns at one page header longer than any of them.
#[test]
fn parquet_columns_at_the_same_head() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let long = "s".repeat(2_000_000);
    let data = new().i32(1, 1).i32(2, 0).i32(3, 3).i32(4, 3).of(5, new().text(1, &long));
    let head = [new().i32(1, 0).i32(2, 4).i32(3, 4).of(5, data).end(), vec![0; 4]].concat();
    range.any("20,000 columns of a byte", made(&head, &[(4, 1, false); 20_000], &claims(1)));
}

fn zigzag(n: i64) -> Vec<u8> {
    varint((n << 1 ^ n >> 63).cast_unsigned())
}

/// Makes delta-encoded numbers: `first`, then `then` repeated.
fn differences(count: u64, block: u64, first: i64, then: i64) -> Vec<u8> {
    let mut bytes = [varint(block), varint(1), varint(count), zigzag(first)].concat();
    let mut left = count.saturating_sub(1);
    if first != then {
        // The delta is the first of a miniblock of 32 bits; all others are 0.
        assert_eq!(block, 128);
        let least = (then - first).min(0);
        let above = |difference: i64| u32::try_from(difference - least).unwrap().to_le_bytes();
        bytes.extend([&zigzag(least)[..], &[32], &above(then - first)].concat());
        bytes.extend(above(0).repeat(127));
        left = left.saturating_sub(128);
    }
    (0..left.div_ceil(block)).for_each(|_| bytes.extend([0, 0]));
    bytes
}

/// Makes a file of names in one page.
fn names(pages: &[u8], rows: i32, codec: i32) -> Vec<u8> {
    let schema = [element(None, 0, "schema", Some(1), None), element(Some(6), 0, "name", None, Some(0))];
    shaped(&schema, &["name"], 6, pages, 0, &Claims { codec, ..claims(rows.into()) })
}

#[test]
fn parquet_names_as_differences() {
    let Some(mut range) = Range::alone("parquet") else { return };
    for (count, rows) in [(2_000_000_000u64, 10), (2_000_000_000, 2_000_000_000), (30_000_000, 30_000_000)] {
        let lengths = differences(count, 1 << 30, 0, 0);
        range.file(
            &format!("{count} lengths, {rows} rows"),
            names(&page(rows, 6, None, &lengths), rows, 0),
            Opens(1),
        );
        // Prefix lengths, then suffix lengths.
        let few = differences(10, 1 << 30, 0, 0);
        for (name, both) in [("begun", [&lengths[..], &few]), ("rest", [&few[..], &lengths])] {
            let pages = page(rows, 7, None, &both.concat());
            range.file(&format!("{count} lengths, {rows} rows, {name}"), names(&pages, rows, 0), Opens(1));
        }
    }
    for (len, rows) in [(1_000_000u32, 60_000i32), (2_000_000, 60_000), (3000, 65_536)] {
        let count = u64::from(rows.unsigned_abs());
        let begun = differences(count, 128, 0, len.into());
        let rest = differences(count, 128, len.into(), 0);
        let body = [&begun[..], &rest, &vec![b'n'; len as usize]].concat();
        let what = format!("{rows} names that begin with the same {len} bytes");
        range.file(&what, names(&page(rows, 7, None, &body), rows, 0), Opens(1));
    }
}

/// Makes pages that decompress to a long name, or to a short one.
fn long_pages(page_of: u32, times: usize) -> Vec<u8> {
    let body = zeros(page_of);
    let lengths = Some((i32::try_from(page_of).unwrap(), i32::try_from(body.len()).unwrap()));
    page(1, 0, lengths, &body).repeat(times)
}

/// Adds an Arrow schema to the footer.
fn with_schema(schema: &Schema, footer: Struct) -> Struct {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let made = IpcDataGenerator::default();
    let message = made.schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options).ipc_message;
    let pair = new().text(1, "ARROW:schema").text(2, &STANDARD.encode(message)).end();
    footer.list(5, 12, 1, &pair)
}

/// Tests one name per page, with pages of the largest allowed size.
#[test]
fn parquet_names_of_long_pages() {
    let Some(mut range) = Range::alone("parquet") else { return };
    for (len, pages) in [(47 << 20, 1), (11 << 20, 80), (1 << 20, 900)] {
        let pages_of = long_pages(len, pages);
        let rows = i32::try_from(pages).unwrap();
        range.file(&format!("{pages} pages of {len} bytes"), names(&pages_of, rows, 6), Opens(1));

        let field = Field::new("name", DataType::Utf8View, false);
        let path = [varint(4), b"name".to_vec()].concat();
        let bytes = i64::try_from(pages_of.len()).unwrap();
        let meta = new().i32(1, 6).list(2, 5, 1, &[0]).list(3, 8, 1, &path).i32(4, 6);
        let meta = meta.i64(5, rows.into()).i64(6, bytes).i64(7, bytes).i64(9, 4);
        let column = new().i64(2, 4).of(3, meta).end();
        let block = new().list(1, 12, 1, &column).i64(2, bytes).i64(3, rows.into()).end();
        let schema = [element(None, 0, "schema", Some(1), None), element(Some(6), 0, "name", None, Some(0))];
        let footer = new().i32(1, 1).list(2, 12, 2, &schema.concat()).i64(3, rows.into());
        let footer = with_schema(&Schema::new(vec![field]), footer.list(4, 12, 1, &block)).end();
        range.file(&format!("{pages} pages of {len} bytes, views"), closed(&pages_of, &footer), Opens(1));
    }
}

/// Tests missing rows of fixed-size lists, whose size is only in the Arrow schema.
#[test]
fn parquet_rows_that_are_missing() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let schema = [
        element(None, 0, "schema", Some(1), None),
        element(None, 1, "vector", Some(1), Some(3)),
        element(None, 2, "list", Some(1), None),
        element(Some(4), 0, "element", None, None),
    ];
    let path: Vec<u8> = ["vector", "list", "element"]
        .iter()
        .flat_map(|part| [varint(part.len() as u64), part.as_bytes().to_vec()].concat())
        .collect();
    for (width, values) in [(250_000_000, 1), (250_000_000, 250_000_000), (6_000_000, 1)] {
        let item = Field::new("element", DataType::Float32, false);
        let list = DataType::FixedSizeList(Arc::new(item), width);
        let run = [varint(u64::from(i32::unsigned_abs(values)) << 1), vec![0]].concat();
        let levels = [&u32::try_from(run.len()).unwrap().to_le_bytes()[..], &run].concat().repeat(2);
        let pages = page(values, 0, None, &levels);
        let bytes = i64::try_from(pages.len()).unwrap();
        let meta = new().i32(1, 4).list(2, 5, 1, &[0]).list(3, 8, 3, &path).i32(4, 0);
        let meta = meta.i64(5, values.into()).i64(6, bytes).i64(7, bytes).i64(9, 4);
        let column = new().i64(2, 4).of(3, meta).end();
        let block = new().list(1, 12, 1, &column).i64(2, bytes).i64(3, 1).end();
        let footer = new().i32(1, 1).list(2, 12, 4, &schema.concat()).i64(3, 1).list(4, 12, 1, &block);
        let field = Field::new("vector", list, true);
        let footer = with_schema(&Schema::new(vec![field]), footer).end();
        range.any(&format!("a row of {width} that is missing, {values} values"), closed(&pages, &footer));
    }
}

/// Tests lists in a page above the size limit.
#[test]
fn parquet_lists_of_a_long_page() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let list = [
        element(None, 0, "schema", Some(1), None),
        element(None, 0, "vector", Some(1), Some(3)),
        element(None, 2, "list", Some(1), None),
        element(Some(4), 0, "element", None, None),
    ];
    let body = zeros(95_000_000);
    let pages = page(20_000_000, 0, Some((95_000_000, i32::try_from(body.len()).unwrap())), &body);
    let all = Claims { codec: 6, values: 20_000_000, ..claims(2) };
    range.any("95 MB", shaped(&list, &["vector", "list", "element"], 4, &pages, 0, &all));
}

/// Tests tables with many columns: a column reader takes some thousand bytes, for fifty bytes in the file. Without
/// `verify`, whose account of all columns takes more.
#[test]
fn parquet_wide_tables() {
    let Some(_alone) = Range::alone("parquet") else { return };
    for (columns, limit) in [(1000, false), (15_000, false), (50_000usize, true)] {
        let one = page(1, 0, None, &[0; 4]);
        let step = i64::try_from(one.len()).unwrap();
        let places: Vec<_> =
            (0..columns).map(|n| (4 + i64::try_from(n).unwrap() * step, step, false)).collect();
        let wide = super::made::bytes(made(&one.repeat(columns), &places, &claims(1)));
        let (found, peak) = counting::peak_of_all(|| {
            let opened = registry().open_source(wide.clone(), &OpenOptions::default()).unwrap();
            stats(&opened.tensors[0], &StatsOptions::default()).map(|stats| stats.count)
        });
        println!("{:>6} KiB  {columns} columns of one value: {found:?}", peak >> 10);
        assert!(u64::try_from(peak).unwrap() < MAX_MEMORY, "{columns}: {peak}");
        match found {
            Ok(count) => assert!(!limit && count == columns as u64),
            Err(error) => assert!(limit && error.code() == "limit", "{error}"),
        }
    }
}
