//! Parquet: hand-made files of one column, in the compact Thrift protocol.

use crate::harness::{Opens, Range, Refused};
use arrow_ipc::{MessageBuilder, MessageHeader, MetadataVersion};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flatbuffers::FlatBufferBuilder;

/// A Thrift struct.
#[derive(Debug, Default, Clone)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

pub(super) fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
        n >>= 7;
    }
    bytes.push(u8::try_from(n).unwrap());
    bytes
}

impl Struct {
    pub(super) fn field(mut self, id: u8, kind: u8, value: &[u8]) -> Self {
        self.bytes.push((id - self.last) << 4 | kind);
        self.bytes.extend(value);
        self.last = id;
        self
    }
    pub(super) fn i32(self, id: u8, n: i32) -> Self {
        self.field(id, 5, &varint(u64::from((n << 1 ^ n >> 31).cast_unsigned())))
    }
    pub(super) fn i64(self, id: u8, n: i64) -> Self {
        self.field(id, 6, &varint((n << 1 ^ n >> 63).cast_unsigned()))
    }
    pub(super) fn text(self, id: u8, text: &str) -> Self {
        self.field(id, 8, &[varint(text.len() as u64), text.as_bytes().to_vec()].concat())
    }
    pub(super) fn of(self, id: u8, inner: Self) -> Self {
        self.field(id, 12, &inner.end())
    }
    /// Adds a list with a stated number of `count` items.
    pub(super) fn list(self, id: u8, kind: u8, count: u64, items: &[u8]) -> Self {
        self.field(id, 9, &[&[0xf0 | kind][..], &varint(count), items].concat())
    }
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn golden(name: &str) -> std::path::PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "testdata", "tables", name].iter().collect()
}

pub(super) fn new() -> Struct {
    Struct::default()
}

/// Claims of a file that may be false.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    pub(super) rows: i64,
    pub(super) values: i64,
    /// Uncompressed and compressed size of the column, in bytes.
    pub(super) unpacked: i64,
    pub(super) packed: Option<i64>,
    pub(super) codec: i32,
    /// Stated numbers of columns and row groups.
    pub(super) columns: u64,
    pub(super) blocks: u64,
}

pub(super) fn claims(rows: i64) -> Claims {
    Claims { rows, values: rows, unpacked: 100, packed: None, codec: 0, columns: 1, blocks: 1 }
}

/// Makes a file of one f32 column with these pages.
pub(super) fn file(pages: &[u8], dictionary: bool, claims: &Claims) -> Vec<u8> {
    let packed = claims.packed.unwrap_or(i64::try_from(pages.len()).unwrap());
    made(pages, &[(4, packed, dictionary)], claims)
}

/// Makes a file of f32 columns in these pages: offset, size in bytes, whether the first page is a dictionary.
pub(super) fn made(pages: &[u8], places: &[(i64, i64, bool)], claims: &Claims) -> Vec<u8> {
    let (mut columns, mut leaves) = (Vec::new(), Vec::new());
    for (column, (at, packed, dictionary)) in places.iter().enumerate() {
        let name = format!("x{column}");
        let path = [varint(name.len() as u64), name.clone().into_bytes()].concat();
        let mut meta = new().i32(1, 4).list(2, 5, 1, &[0]).list(3, 8, 1, &path).i32(4, claims.codec);
        meta = meta.i64(5, claims.values).i64(6, claims.unpacked).i64(7, *packed).i64(9, *at);
        if *dictionary {
            meta = meta.i64(11, *at);
        }
        columns.extend(new().i64(2, *at).of(3, meta).end());
        leaves.extend(new().i32(1, 4).i32(3, 0).text(4, &name).end());
    }
    let count = if claims.columns == 1 { places.len() as u64 } else { claims.columns };
    let block = new().list(1, 12, count, &columns).i64(2, claims.unpacked).i64(3, claims.rows).end();
    let root = new().text(4, "schema").i32(5, i32::try_from(places.len()).unwrap()).end();
    let footer = new()
        .i32(1, 1)
        .list(2, 12, places.len() as u64 + 1, &[root, leaves].concat())
        .i64(3, claims.rows)
        .list(4, 12, claims.blocks, &block)
        .end();
    let len = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1", pages, &footer, &len, b"PAR1"].concat()
}

/// Makes a page of `values` values: a header with stated lengths, and its bytes.
pub(super) fn page(values: i32, encoding: i32, lengths: Option<(i32, i32)>, bytes: &[u8]) -> Vec<u8> {
    let len = i32::try_from(bytes.len()).unwrap();
    let (unpacked, packed) = lengths.unwrap_or((len, len));
    let head = new().i32(1, values).i32(2, encoding).i32(3, 3).i32(4, 3);
    [new().i32(1, 0).i32(2, unpacked).i32(3, packed).of(5, head).end(), bytes.to_vec()].concat()
}

/// Makes a dictionary page.
pub(super) fn dictionary(values: i32, bytes: &[u8]) -> Vec<u8> {
    let len = i32::try_from(bytes.len()).unwrap();
    let head = new().i32(1, values).i32(2, 0);
    [new().i32(1, 2).i32(2, len).i32(3, len).of(7, head).end(), bytes.to_vec()].concat()
}

/// Makes dictionary indices: `count` times the first entry.
pub(super) fn run(count: u64) -> Vec<u8> {
    // Bit width 1, a run, its value.
    [vec![1], varint(count << 1), vec![0]].concat()
}

#[test]
fn parquet_bombs() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let plain = page(2, 0, None, &[0; 8]);
    range.file("two values", file(&plain, false, &claims(2)), Opens(1));
    range.file("2^62 rows", file(&plain, false, &claims(1 << 62)), Refused("shape-overflow"));
    range.file("2^62 values", file(&plain, false, &Claims { values: 1 << 62, ..claims(2) }), Opens(1));
    range.file("-1 rows", file(&plain, false, &claims(-1)), Refused("negative"));
    range.file("2^62 bytes", file(&plain, false, &Claims { unpacked: 1 << 62, ..claims(2) }), Opens(1));
    range.file(
        "2^62 bytes packed",
        file(&plain, false, &Claims { packed: Some(1 << 62), ..claims(2) }),
        Refused("columns-overlap"),
    );
    for count in [1 << 20, 1 << 31, 1 << 62] {
        range.file(
            &format!("{count} columns"),
            file(&plain, false, &Claims { columns: count, ..claims(2) }),
            Refused("footer"),
        );
        range.file(
            &format!("{count} blocks"),
            file(&plain, false, &Claims { blocks: count, ..claims(2) }),
            Refused("footer"),
        );
    }
    for codec in 0..8 {
        for lengths in [(i32::MAX, 8), (8, i32::MAX), (i32::MAX, i32::MAX), (-1, 8), (8, -1), (90_000_000, 8)]
        {
            let pages = page(2, 0, Some(lengths), &[0; 8]);
            range.any(
                &format!("a page of {lengths:?} bytes, codec {codec}"),
                file(&pages, false, &Claims { codec, ..claims(2) }),
            );
        }
    }
    // The reader truncates a longer number to 32 bits, and reads the bytes of any type as the expected one.
    let head = |size: Struct| {
        let data = new().i32(1, 2).i32(2, 0).i32(3, 3).i32(4, 3);
        [size.i32(3, 8).of(5, data).end(), vec![0; 8]].concat()
    };
    let long = new().i32(1, 0).i64(2, (1 << 40) + 0x7000_0000);
    let typed = new().i32(1, 0).field(2, 8, &varint(2 * 0x7000_0000));
    for (name, size) in [("in 64 bits", long), ("as a text", typed)] {
        let pages = head(size);
        range.any(
            &format!("a page of 2^31 bytes {name}"),
            file(&pages, false, &Claims { codec: 1, ..claims(2) }),
        );
    }
    let found = "page-of-2-gib-in-64-bits.snappy.parquet";
    range.any(found, std::fs::read(golden(&format!("bad/{found}"))).unwrap());
    range.file(
        "a page of 2^31 - 1 values",
        file(&page(i32::MAX, 0, None, &[0; 8]), false, &claims(i32::MAX.into())),
        Refused("inflated"),
    );

    // A dictionary of one value, and a run of it.
    let runs = |count: i32, times: usize| {
        let one = page(count, 8, None, &run(count.unsigned_abs().into()));
        let pages = [dictionary(1, &[0; 4]), one.repeat(times)].concat();
        file(&pages, true, &claims(i64::from(count) * i64::try_from(times).unwrap()))
    };
    range.file("a run of 1,000", runs(1000, 1), Opens(1));
    range.file("a run of 2^31 - 1", runs(i32::MAX, 1), Refused("inflated"));
    range.file("1,000 runs of 1,000,000", runs(1_000_000, 1000), Refused("inflated"));
    let pages = [dictionary(i32::MAX, &[0; 4]), page(4, 8, None, &run(4))].concat();
    range.any("a dictionary of 2^31 - 1", file(&pages, true, &claims(4)));
    let mut long = file(&plain, false, &claims(2));
    let at = long.len() - 8;
    for claim in [u32::MAX, 1 << 31, 90_000_000] {
        long[at..at + 4].copy_from_slice(&claim.to_le_bytes());
        range.any(&format!("a footer of {claim}"), long.clone());
    }
    // Nested structs in an unknown field.
    let deep = [vec![0x1c; 1_000_000], vec![0; 1_000_000]].concat();
    let footer = [&deep[..], &[0]].concat();
    let len = u32::try_from(footer.len()).unwrap().to_le_bytes();
    range.any("10^6 structs in each other", [b"PAR1", &footer[..], &len, b"PAR1"].concat());
}

/// Makes a zstd frame of zeros: a block of four bytes per 128 KiB.
pub(super) fn zeros(len: u32) -> Vec<u8> {
    let mut frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &len.to_le_bytes()].concat();
    let mut left = len;
    while left > 0 {
        let take = left.min(128 << 10);
        left -= take;
        let head = u32::from(left == 0) | 1 << 1 | take << 3;
        frame.extend(&head.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// Tests pages with true sizes above the limit for a file of that length: in many columns read together, in one column, and
/// pages shared by many columns.
#[test]
fn parquet_pages_that_multiply() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let long = 47 << 20;
    let body = zeros(long);
    let (unpacked, packed) = (i32::try_from(long).unwrap(), i32::try_from(body.len()).unwrap());
    let one = page(1, 0, Some((unpacked, packed)), &body);
    let len = i64::try_from(one.len()).unwrap();
    let zstd = Claims { codec: 6, ..claims(1) };
    range.file("a page of 47 MiB", made(&one, &[(4, len, false)], &zstd), Opens(1));
    let longer = zeros(90 << 20);
    let claim_longer = Some((90 << 20, i32::try_from(longer.len()).unwrap()));
    let longer = page(1, 0, claim_longer, &longer);
    let place = (4, i64::try_from(longer.len()).unwrap(), false);
    range.file("a page of 90 MiB", made(&longer, &[place], &zstd), Opens(1));
    for columns in [2, 300] {
        let places: Vec<_> = (0..columns).map(|n| (4 + n * len, len, false)).collect();
        let pages = one.repeat(places.len());
        range.file(&format!("{columns} columns of 47 MiB each"), made(&pages, &places, &zstd), Opens(1));
    }
    let dictionary = new().i32(1, 1).i32(2, 0);
    let dictionary = new().i32(1, 2).i32(2, unpacked).i32(3, packed).of(7, dictionary).end();
    let both = [&dictionary[..], &body, &one].concat();
    let place = (4, i64::try_from(both.len()).unwrap(), true);
    range.file("a dictionary and a page of 47 MiB", made(&both, &[place], &zstd), Opens(1));
    let pages = one.repeat(800);
    let place = (4, i64::try_from(pages.len()).unwrap(), false);
    range.file(
        "800 pages of 47 MiB",
        made(&pages, &[place], &Claims { rows: 800, values: 800, ..zstd }),
        Opens(1),
    );
    // Uncompressed, but each column would hold a copy.
    let plain = page(2, 0, None, &vec![0; 4 << 20]);
    let len = i64::try_from(plain.len()).unwrap();
    range.file(
        "300 columns in one place",
        made(&plain, &[(4, len, false); 300], &claims(2)),
        Refused("columns-overlap"),
    );
    // Columns with separate page headers and shared bytes.
    let heads: Vec<u8> = (0..2000).flat_map(|_| page(0, 0, Some((0, 0)), &[])).collect();
    let step = heads.len() / 2000;
    let end = i64::try_from(heads.len()).unwrap();
    let places: Vec<_> = (0..2000)
        .map(|n| (4 + n * i64::try_from(step).unwrap(), end - n * i64::try_from(step).unwrap(), false))
        .collect();
    range.file(
        "2,000 columns of the same pages",
        made(&heads, &places, &claims(1)),
        Refused("columns-overlap"),
    );
}

/// Makes a schema element: type, repetition, name, number of children, and logical type.
pub(super) fn element(
    kind: Option<i32>,
    repeated: i32,
    name: &str,
    children: Option<i32>,
    like: Option<i32>,
) -> Vec<u8> {
    let mut element = new();
    if let Some(kind) = kind {
        element = element.i32(1, kind);
    }
    element = element.i32(3, repeated).text(4, name);
    if let Some(children) = children {
        element = element.i32(5, children);
    }
    if let Some(like) = like {
        element = element.i32(6, like);
    }
    element.end()
}

/// Makes a file of one column with any schema.
pub(super) fn shaped(
    schema: &[Vec<u8>],
    path: &[&str],
    kind: i32,
    pages: &[u8],
    dictionary: i64,
    claims: &Claims,
) -> Vec<u8> {
    let parts: Vec<u8> =
        path.iter().flat_map(|part| [varint(part.len() as u64), part.as_bytes().to_vec()].concat()).collect();
    let len = i64::try_from(pages.len()).unwrap();
    let meta = new().i32(1, kind).list(2, 5, 1, &[0]).list(3, 8, path.len() as u64, &parts);
    let mut meta = meta.i32(4, claims.codec);
    meta = meta.i64(5, claims.values).i64(6, len).i64(7, len).i64(9, 4 + dictionary);
    if dictionary > 0 {
        meta = meta.i64(11, 4);
    }
    let column = new().i64(2, 4).of(3, meta).end();
    let block = new().list(1, 12, 1, &column).i64(2, len).i64(3, claims.rows).end();
    let footer = new().i32(1, 1).list(2, 12, schema.len() as u64, &schema.concat());
    let footer = footer.i64(3, claims.rows).list(4, 12, 1, &block).end();
    closed(pages, &footer)
}

pub(super) fn closed(pages: &[u8], footer: &[u8]) -> Vec<u8> {
    let len = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1", pages, footer, &len, b"PAR1"].concat()
}

/// Tests schemas that cause deep recursion or large allocations.
#[test]
fn parquet_schemas() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let leaf = || element(Some(4), 0, "x", None, None);
    let alone = |schema: Vec<Vec<u8>>| shaped(&schema, &["x"], 4, &[], 0, &claims(0));
    let root = |children: i32| element(None, 0, "schema", Some(children), None);
    range.file("one column", alone(vec![root(1), leaf()]), Opens(1));
    let deep = |levels: usize| {
        let groups = vec![element(None, 0, "a", Some(1), None); levels];
        [vec![root(1)], groups, vec![leaf()]].concat()
    };
    range.any("60 groups in each other", alone(deep(60)));
    range.file("200,000 groups in each other", alone(deep(200_000)), Refused("footer"));
    for children in [2, 1 << 20, i32::MAX] {
        range.file(&format!("{children} children"), alone(vec![root(children), leaf()]), Refused("footer"));
    }
    let each = [vec![root(1_000_000)], vec![element(None, 0, "x", Some(1_000_000), None); 50]].concat();
    range.file("a million children at each of 50 levels", alone(each), Refused("footer"));
    let long = "g".repeat(1_000_000);
    let named = [
        vec![root(1), element(None, 0, &long, Some(2000), None)],
        (0..2000).map(|_| leaf()).collect::<Vec<_>>(),
    ];
    range.file("2,000 columns in a group of a long name", alone(named.concat()), Refused("limit"));
    let wide = [vec![root(400_000)], vec![element(Some(1), 0, "", None, None); 400_000]].concat();
    range.file("400,000 columns", alone(wide), Refused("limit"));
    let pairs = new().text(1, "").end().repeat(1_000_000);
    let footer = new().i32(1, 1).list(2, 12, 2, &[root(1), leaf()].concat()).i64(3, 0).list(4, 12, 0, &[]);
    let footer = footer.list(5, 12, 1_000_000, &pairs).end();
    range.file("a million pairs without a key", closed(&[], &footer), Refused("limit"));
}

/// Tests the embedded Arrow schema: many fields that share one table.
#[test]
fn parquet_schemas_of_arrow() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let carries = |name: usize, fields: usize| {
        let mut flat = FlatBufferBuilder::new();
        let schema = crate::arrow::shared(&mut flat, name, fields);
        let mut message = MessageBuilder::new(&mut flat);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::Schema);
        message.add_header(schema.as_union_value());
        let message = message.finish();
        flat.finish(message, None);
        let text = STANDARD.encode(flat.finished_data());
        let pair = new().text(1, "ARROW:schema").text(2, &text).end();
        let schema = [
            element(None, 0, "schema", Some(1), None),
            element(Some(6), 1, &"n".repeat(name), None, Some(0)),
        ];
        let footer = new().i32(1, 1).list(2, 12, 2, &schema.concat()).i64(3, 0).list(4, 12, 0, &[]);
        closed(&[], &footer.list(5, 12, 1, &pair).end())
    };
    range.any("one field", carries(1, 1));
    range.file("1,000 names of 1 MB", carries(1_000_000, 1000), Refused("shared-structure"));
    range.file("400,000 fields", carries(1, 400_000), Refused("shared-structure"));
}

/// Tests runs of a few bytes that encode gigabytes of rows or names.
#[test]
fn parquet_runs() {
    let Some(mut range) = Range::alone("parquet") else { return };
    let root = || element(None, 0, "schema", Some(1), None);
    let list = [
        root(),
        element(None, 0, "vector", Some(1), Some(3)),
        element(None, 2, "list", Some(1), None),
        element(Some(4), 0, "element", None, None),
    ];
    let path = ["vector", "list", "element"];
    let runs = |of: &[(u64, u8)]| {
        let runs: Vec<u8> =
            of.iter().flat_map(|(n, value)| [varint(n << 1), vec![*value]].concat()).collect();
        [&u32::try_from(runs.len()).unwrap().to_le_bytes()[..], &runs].concat()
    };
    let head = dictionary(1, &[0; 4]);
    // Two rows: of `first` and of `second` elements.
    let rows = |first: u64, second: u64| {
        let all = first + second;
        let starts = [(1, 0), (first - 1, 1), (1, 0), (second - 1, 1)];
        let starts: Vec<_> = starts.into_iter().filter(|(n, _)| *n > 0).collect();
        let levels = [runs(&starts), runs(&[(all, 1)])].concat();
        let body = [levels, run(all)].concat();
        let pages = [head.clone(), page(i32::try_from(all).unwrap(), 8, None, &body)].concat();
        let claims = Claims { values: i64::try_from(all).unwrap(), ..claims(2) };
        shaped(&list, &path, 4, &pages, i64::try_from(head.len()).unwrap(), &claims)
    };
    range.file("two lists of three", rows(3, 3), Opens(1));
    range.file("two lists of 2^28", rows(1 << 28, 1 << 28), Refused("limit"));
    range.file("a list of 2^29 behind a short one", rows(1, 1 << 29), Refused("limit"));

    // One name for a million rows.
    let text = [root(), element(Some(6), 0, "name", None, Some(0))];
    for (len, rows) in [(30_000u32, 1_000_000), (1_000_000, 10_000)] {
        let one = [&len.to_le_bytes()[..], &vec![b'n'; len as usize]].concat();
        let head = dictionary(1, &one);
        let pages = [head.clone(), page(rows, 8, None, &run(u64::from(rows.unsigned_abs())))].concat();
        let file =
            shaped(&text, &["name"], 6, &pages, i64::try_from(head.len()).unwrap(), &claims(rows.into()));
        range.any(&format!("a name of {len} bytes, {rows} times"), file);
    }

    // Malformed pages.
    let bad = new().i32(1, 1).i32(2, 0).i32(3, 3).i32(4, 3);
    let bad = [new().i32(1, 0).i32(2, 4).i32(3, 4).i32(4, 7).of(5, bad).end(), vec![0; 4]].concat();
    range.any("10,000 damaged pages", file(&bad.repeat(10_000), false, &claims(10_000)));
}

/// Tests small files with each number replaced by the largest value.
#[test]
fn parquet_every_number() {
    let Some(mut range) = Range::alone("parquet") else { return };
    for name in ["holes.parquet", "ragged.parquet"] {
        let good = std::fs::read(golden(name)).unwrap();
        for at in 4..good.len() - 4 {
            let mut bytes = good.clone();
            bytes[at] = 0xff;
            range.any(&format!("{name} at {at}"), bytes.clone());
            // Replaced by a longer varint.
            bytes.splice(at..at + 1, [0xff, 0xff, 0xff, 0xff, 0x0f]);
            range.any(&format!("{name} at {at}, five bytes"), bytes.clone());
            // A value with large low 32 bits.
            bytes.splice(at..at + 5, [0x86, 0xff, 0xff, 0xff, 0x0f | 0x80, 0x12]);
            range.any(&format!("{name} at {at}, six bytes"), bytes);
        }
    }
}
