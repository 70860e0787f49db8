//! Paddle: streams of tensors, programs in protobuf and in JSON.

use crate::harness::{Opens, Range, Refused};

fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
        n >>= 7;
    }
    bytes.push(u8::try_from(n).unwrap());
    bytes
}

/// Makes a stream up to its LoD levels, followed by their lengths.
fn stream(levels: u64, rest: &[u8]) -> Vec<u8> {
    [&[0; 4][..], &levels.to_le_bytes(), rest].concat()
}

/// Makes a stream with this desc and a stated length of `len` bytes.
fn with_desc(len: i32, desc: &[u8], data: &[u8]) -> Vec<u8> {
    stream(0, &[&[0; 4][..], &len.to_le_bytes(), desc, data].concat())
}

/// Makes the desc of an f32 tensor.
fn desc(dims: &[u64]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&n| [vec![0x10], varint(n)].concat()).collect();
    [vec![8, 5], dims].concat()
}

#[test]
fn paddle_bombs() {
    let Some(mut range) = Range::alone("paddle") else { return };
    range.file("2^63 levels", stream(1 << 63, &[0; 64]), Refused("not-a-stream"));
    range.file(
        "a level of 2^60",
        stream(1, &[&(1u64 << 60).to_le_bytes()[..], &[0; 64]].concat()),
        Refused("not-a-stream"),
    );
    range.file("10^6 empty levels", stream(1_000_000, &[0; 8_000_100]), Refused("not-a-stream"));
    range.file("a desc of 2^31 - 1", with_desc(i32::MAX, &[8, 5], &[0; 64]), Refused("not-a-stream"));
    range.file("a desc of -1", with_desc(-1, &[8, 5], &[0; 64]), Refused("not-a-stream"));
    let mut shape = |name: &str, dims: &[u64], end| {
        let desc = desc(dims);
        range.file(name, with_desc(i32::try_from(desc.len()).unwrap(), &desc, &[0; 64]), end);
    };
    shape("2^62 elements", &[1 << 62], Refused("shape-overflow"));
    shape("2^60 elements", &[1 << 60], Refused("shape-overflow"));
    shape("2^120 elements", &[1 << 60, 1 << 60], Refused("shape-overflow"));
    shape("-1 elements", &[u64::MAX], Refused("negative-dimension"));
    shape("100,000 dimensions", &[1; 100_000], Refused("limit"));
    let packed = [vec![8, 5, 0x12], varint(u64::MAX)].concat();
    let len = i32::try_from(packed.len()).unwrap();
    range.file("packed extents of 2^64", with_desc(len, &packed, &[0; 64]), Refused("not-a-stream"));
    let groups = [&[8, 5][..], &[0x1b; 1_000_000]].concat();
    let len = i32::try_from(groups.len()).unwrap();
    range.file("a desc of 10^6 groups", with_desc(len, &groups, &[]), Refused("not-a-stream"));

    // Selected rows: version, count, row numbers, height, a tensor.
    let rows = [&[0; 4][..], &(1u64 << 60).to_le_bytes(), &[0; 64]].concat();
    range.file("2^60 rows", rows, Refused("not-a-stream"));
    // A vocabulary: a count, then a length and a text for each entry.
    range.file("2^62 words", [&(1u64 << 62).to_le_bytes()[..], &[0; 64]].concat(), Refused("not-a-stream"));
    // Many empty streams of 32 bytes each.
    let empty = with_desc(4, &desc(&[0]), &[]);
    range.file("10,000 empty tensors", empty.repeat(10_000), Opens(10_000));
}

/// Makes a length-delimited protobuf field.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

#[test]
fn program_bombs() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let path = [env!("CARGO_MANIFEST_DIR"), "..", "testdata/paddle/good/p262/cnn_static_infer/model.pdmodel"];
    let good = std::fs::read(path.iter().collect::<std::path::PathBuf>()).unwrap();
    // A nested block with this number.
    let block = |rest: &[u8]| field(1, &[&[8, 1, 0x10, 0][..], rest].concat());
    let program = |rest: &[u8]| [&good[..], &block(rest)].concat();
    range.file("nothing in it", program(&[]), Opens(0));
    let long = [varint(3 << 3 | 2), varint(1 << 62)].concat();
    range.file("a variable of 2^62 bytes", program(&long), Refused("truncated"));
    range.file("10^6 groups", program(&[0x9b, 0x06].repeat(1_000_000)), Refused("nested-too-deep"));
    // Nested types.
    let mut kind = vec![8, 7];
    for _ in 0..2_000 {
        kind = [vec![8, 7], field(2, &kind)].concat();
    }
    range.file(
        "2,000 types in each other",
        program(&field(3, &[field(1, b"x"), field(2, &kind)].concat())),
        Refused("limit"),
    );
    let many = field(3, &field(1, b"x")).repeat(100_000);
    range.file("100,000 variables of one name", program(&many), Refused("missing-field"));
    let many = field(4, &[]).repeat(1_000_000);
    range.file("1,000,000 empty operators", program(&many), Refused("missing-field"));
    let blocks = [&good[..], &block(&[]).repeat(100_000)].concat();
    range.file("100,000 blocks", blocks, Opens(0));

    let pir = |regions: &str| {
        format!(
            r#"{{"base_code":{{"magic":"pir","trainable":true,"version":4}},"program":{{"regions":{regions}}}}}"#
        )
    };
    for (name, open, close) in [("lists", "[", "]"), ("objects", "{\"#\":", "}")] {
        let deep = format!("{}0{}", open.repeat(1_000_000), close.repeat(1_000_000));
        range.file(&format!("JSON of 10^6 {name}"), pir(&deep).into_bytes(), Refused("nesting"));
        let end = open.repeat(1_000_000);
        range.file(&format!("JSON of 10^6 open {name}"), pir(&end).into_bytes(), Refused("nesting"));
    }
    let many = format!("[{}0]", "0,".repeat(500_000));
    range.file("JSON of 500,000 numbers", pir(&many).into_bytes(), Refused("bad-program"));
    range.file(
        "JSON of a number of 10^6 digits",
        pir(&"9".repeat(1_000_000)).into_bytes(),
        Refused("bad-program"),
    );
}

/// Tests long names with many references: each finding, operand and difference would quote them.
#[test]
fn long_names_of_programs() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let kind = field(3, "k".repeat(1_000_000).as_bytes());
    let program = |operator: &[u8]| field(1, &[&[8, 0, 0x10, 0][..], &field(4, operator)].concat());
    let mut arguments = field(1, b"X");
    for number in 0..300_000 {
        arguments.extend(field(2, format!("{number:x}").as_bytes()));
    }
    range.file("300,000 names of nothing", program(&[field(1, &arguments), kind.clone()].concat()), Opens(0));
    let bodies = [0x70, 9].repeat(500_000);
    let setting = field(4, &[field(1, b"sub"), vec![0x10, 10], bodies].concat());
    range.file("500,000 blocks of nothing", program(&[kind, setting].concat()), Opens(0));
    let long = field(3, "k".repeat(2 << 20).as_bytes());
    // Not the start of a program.
    range.file("a type of 2 MiB", program(&long), Refused("not-a-stream"));

    let kind = r##"{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[1],"NCHW",[],0]}"##;
    let operands = vec![r#"{"%":1}"#; 300_000].join(",");
    let name = "n".repeat(1_000_000);
    let text = format!(
        r##"{{"base_code":{{"magic":"pir","version":1,"trainable":true}},"program":{{"regions":[{{"#":"region_0","blocks":[{{"#":"block_0","args":[],"ops":[
            {{"#":"p","A":[0,1,1,"{name}"],"OA":[1,0,1],"O":{{"%":1,"TT":{kind}}},"DA":[],"QA":[]}},
            {{"#":"1.concat","I":[{operands}],"O":[{{"%":2,"TT":{kind}}}],"A":[]}}]}}]}}]}}}}"##
    );
    range.file("300,000 operands of a long name", text.into_bytes(), Refused("names-too-long"));
}
