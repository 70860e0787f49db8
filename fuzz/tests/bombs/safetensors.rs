//! safetensors: header lengths, JSON headers, and shapes.

use crate::harness::{Input, MAX_MEMORY, Opens, Range, Refused};
use crate::made::{Part, made};
use std::fmt::Write;
use std::sync::Arc;
use weighbridge::source::MemoryFolder;

/// Makes a file with this header.
fn file(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

fn tensor(name: &str, shape: &str, end: &str) -> String {
    format!(r#""{name}":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,{end}]}}"#)
}

#[test]
fn safetensors_bombs() {
    let Some(mut range) = Range::alone("safetensors") else { return };
    for (name, length, code) in [
        ("header of 2^60", 1 << 60, "limit"),
        ("header of 2^64 - 1", u64::MAX, "limit"),
        ("header of 99 MB", 99_000_000, "truncated"),
    ] {
        let bytes = [&u64::to_le_bytes(length)[..], b"{\"a\":"].concat();
        range.file(name, bytes, Refused(code));
    }
    // A blank header is read once: it is the whole file.
    let length = 100_000_000;
    let blanks =
        made(vec![Part::Bytes(u64::to_le_bytes(length).to_vec()), Part::Repeat(b" ".to_vec(), length)]);
    range.run("100 MB of blanks", &Input::File(blanks), MAX_MEMORY + length, Refused("bad-header"));
    for (name, open, close, code) in
        [("deep lists", "[", "]", "bad-header"), ("deep objects", "{\"a\":", "}", "missing-field")]
    {
        let deep = format!(r#"{{"a":{}0{}}}"#, open.repeat(1_000_000), close.repeat(1_000_000));
        range.file(name, file(&deep), Refused(code));
        let deep =
            format!(r#"{{"__metadata__":{{"a":{}0{}}}}}"#, open.repeat(1_000_000), close.repeat(1_000_000));
        range.file(&format!("metadata of {name}"), file(&deep), Refused("bad-header"));
    }
    let shape = ["4294967296"; 4].join(",");
    range.file(
        "shape of 2^128",
        file(&format!("{{{}}}", tensor("a", &shape, "0"))),
        Refused("shape-overflow"),
    );
    let shape = format!("0,{}", ["4294967296"; 4].join(","));
    range.file("shape of 0 times 2^128", file(&format!("{{{}}}", tensor("a", &shape, "0"))), Opens(1));
    let end = (1u64 << 62).to_string();
    range.file(
        "2^60 elements",
        file(&format!("{{{}}}", tensor("a", "1152921504606846976", &end))),
        Refused("shape-overflow"),
    );
    let shape = vec!["1"; 100_000].join(",");
    range.file("100,000 dimensions", file(&format!("{{{}}}", tensor("a", &shape, "4"))), Refused("limit"));
    let long = "a".repeat(2 << 20);
    range.file("a name of 2 MiB", file(&format!("{{{}}}", tensor(&long, "0", "0"))), Refused("limit"));
    let dots = "a.".repeat(10_000);
    range.file("a name of 10,001 parts", file(&format!("{{{}}}", tensor(&dots, "0", "0"))), Refused("limit"));
}

/// Tests that a header takes at most a few times its length in memory, even before an error.
#[test]
fn a_header_of_one_name_a_million_times() {
    let Some(mut range) = Range::alone("safetensors") else { return };
    let one = b"\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
    let length = 50_000_000 / one.len() as u64 * one.len() as u64;
    let parts = vec![
        Part::Bytes([&(length + 3).to_le_bytes()[..], b"{"].concat()),
        Part::Repeat(one.to_vec(), length),
        Part::Bytes(b"0}".to_vec()),
    ];
    // One name a million times.
    range.run(
        "a million of one name",
        &Input::File(made(parts)),
        MAX_MEMORY + 2 * length,
        Refused("duplicate-key"),
    );
}

/// Tests names of many one-letter parts, each name within its limit.
#[test]
fn names_of_many_parts() {
    let Some(mut range) = Range::alone("safetensors") else { return };
    let named = |count: usize, parts: usize| {
        let name = |place: usize| format!("{}{place}", "a.".repeat(parts - 1));
        let all: Vec<_> = (0..count).map(|place| tensor(&name(place), "0", "0")).collect();
        file(&format!("{{{}}}", all.join(",")))
    };
    range.file("255 names of 4,000 parts", named(255, 4_000), Opens(255));
    range.file("500 names of 4,000 parts", named(500, 4_000), Refused("limit"));
}

/// Tests a shard with a large header, and an index that opens one shard under many spellings of its name.
#[test]
fn shards_that_multiply() {
    let Some(mut range) = Range::alone("safetensors") else { return };
    let mut keys = String::new();
    for number in 0..50_000 {
        write!(keys, "{}\"k{number}\":\"\"", if number == 0 { "" } else { "," }).unwrap();
    }
    let says = file(&format!(r#"{{"__metadata__":{{{keys}}}}}"#));
    let mut folder = MemoryFolder::new("bomb");
    for number in 1..=900 {
        let bytes = if number == 1 { says.clone() } else { file("{}") };
        folder = folder.with(format!("m-{number:05}-of-00900.safetensors"), bytes);
    }
    range.folder("50,000 keys and 900 shards", Arc::new(folder), Opens(0));
    let mut map = String::new();
    for number in 1..=900 {
        let comma = if number == 1 { "" } else { "," };
        write!(map, "{comma}\"t{number}\":\"d{}m.safetensors\"", "/".repeat(number)).unwrap();
    }
    let list = format!(r#"{{"metadata":{{}},"weight_map":{{{map}}}}}"#).into_bytes();
    let folder =
        MemoryFolder::new("bomb").with("d/m.safetensors", says).with("model.safetensors.index.json", list);
    range.folder("900 ways to write a name", Arc::new(folder), Refused("unsafe-name"));
}

/// Tests JSON in which each finding could copy or search all parent keys.
#[test]
fn configurations_that_multiply() {
    let Some(mut range) = Range::alone("safetensors") else { return };
    let below = |key: &str, list: &str| format!(r#"{{"{key}":{list}}}"#).into_bytes();
    let paths = format!("[{}\"\"]", "\"/a/b/c\",".repeat(150_000));
    range.file("paths below a long key", below(&"k".repeat(1_000_000), &paths), Refused("limit"));
    let texts = format!("[{}\"\"]", "\"\",".repeat(200_000));
    range.file("texts below a long key", below(&"k".repeat(1_000_000), &texts), Refused("limit"));
}
