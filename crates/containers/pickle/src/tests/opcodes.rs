//! Every opcode of protocols 0 to 5, with its result.

use super::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

fn cases() -> Vec<(&'static [u8], Json)> {
    let text_8 = b"\x80\x04\x8d\x01\0\0\0\0\0\0\0a.";
    let bytes_8 = b"\x80\x04\x8e\x01\0\0\0\0\0\0\0a.";
    let bytearray_8 = b"\x80\x05\x96\x01\0\0\0\0\0\0\0a.";
    let frame = b"\x80\x04\x95\x04\0\0\0\0\0\0\0]\x94N.";
    vec![
        (b"I42\n.", json!(42)),
        (b"I01\n.", json!(true)),
        (b"I00\n.", json!(false)),
        (b"L-7L\n.", json!(-7)),
        (b"L99999999999999999999L\n.", json!({"integer_bytes": 9})),
        (b"F1.5\n.", json!(1.5)),
        (b"F-inf\n.", json!("-Infinity")),
        (b"S'a\\x41\\n'\n.", json!("aA\n")),
        (b"S\"it's\"\n.", json!("it's")),
        (b"Va\\u20ac\n.", json!("a€")),
        (b"N.", json!(null)),
        (b"J\xff\xff\xff\xff.", json!(-1)),
        (b"K\xff.", json!(255)),
        (b"M\x00\x01.", json!(256)),
        (b"G\x3f\xf8\0\0\0\0\0\0.", json!(1.5)),
        (b"T\x01\0\0\0\xe9.", json!("é")),
        (b"U\x02ab.", json!("ab")),
        (b"X\x02\0\0\0\xc3\xa9.", json!("é")),
        (b"X\x03\0\0\0\xed\xa0\x80.", json!({"text": "long"})),
        (b"B\x02\0\0\0ab.", json!({"bytes": 2})),
        (b"C\x01a.", json!({"bytes": 1})),
        (text_8, json!("a")),
        (bytes_8, json!({"bytes": 1})),
        (bytearray_8, json!({"bytes": 1})),
        (frame, json!(null)),
        (b"(I1\nI2\nl.", json!([1, 2])),
        (b"(S'k'\nI1\nd.", json!({"k": 1})),
        (b"(I1\nt.", json!([1])),
        (b"].", json!([])),
        (b"}.", json!({})),
        (b").", json!([])),
        (b"\x8f.", json!({"set": []})),
        (b"\x8f(K\x01K\x02\x90.", json!({"set": [1, 2]})),
        (b"(K\x01\x91.", json!({"set": [1]})),
        (b"]K\x01a.", json!([1])),
        (b"](K\x01K\x02e.", json!([1, 2])),
        (b"}U\x01kK\x01s.", json!({"k": 1})),
        (b"}(U\x01kK\x01U\x01lK\x02u.", json!({"k": 1, "l": 2})),
        (b"}(K\x01K\x02u.", json!({"pairs": [[1, 2]]})),
        (b"}(U\x01kK\x01U\x01kK\x02u.", json!({"pairs": [["k", 1], ["k", 2]]})),
        (b"K\x01\x85.", json!([1])),
        (b"K\x01K\x02\x86.", json!([1, 2])),
        (b"K\x01K\x02K\x03\x87.", json!([1, 2, 3])),
        (b"\x88.", json!(true)),
        (b"\x89.", json!(false)),
        (b"\x8a\x00.", json!(0)),
        (b"\x8a\x02\x00\xff.", json!(-256)),
        (b"\x8b\x01\0\0\0\x80.", json!(-128)),
        (b"K\x01K\x020.", json!(1)),
        (b"K\x01(0.", json!(1)),
        (b"K\x01(K\x02K\x031.", json!(1)),
        (b"K\x012\x86.", json!([1, 1])),
        (b"]q\x07(h\x07e.", json!([[["…"]]])),
        (b"]r\xff\xff\xff\xff0j\xff\xff\xff\xff.", json!([])),
        (b"]p12\n0g12\n.", json!([])),
        (b"]\x94K\x01\x940h\x01.", json!(1)),
        (b"P7 seven\n.", json!({"persistent_id": "7 seven"})),
        (b"K\x07Q.", json!({"persistent_id": 7})),
        (b"\x82\x05.", json!({"extension": 5})),
        (b"\x83\x05\x01.", json!({"extension": 261})),
        (b"\x84\x05\0\0\x01.", json!({"extension": 16_777_221})),
        (b"cos\nname\n.", json!({"import": "os name"})),
        (b"U\x01x0\x8c\x02os\x8c\x04name\x93.", json!({"import": "os name"})),
        (b"cos\nname\nK\x01\x85R.", json!({"call": "os name", "args": [1]})),
        (b"cos\nname\n)RK\x01b.", json!({"call": "os name", "args": [], "state": [1]})),
        (b"cos\nname\n)R(K\x01e.", json!({"call": "os name", "args": [], "items": [1]})),
        (b"cos\nname\n)R(U\x01kK\x01u.", json!({"call": "os name", "args": [], "set": {"k": 1}})),
        (b"cos\nname\nK\x01\x85\x81.", json!({"call": "os name", "args": [1]})),
        (b"cos\nname\n)}\x92.", json!({"call": "os name", "args": []})),
        (b"(K\x01ios\nname\n.", json!({"call": "os name", "args": [1]})),
        (b"(cos\nname\nK\x01o.", json!({"call": "os name", "args": [1]})),
        (b"\x97.", json!({"buffer": true})),
        (b"\x97\x98.", json!({"buffer": true})),
        (b"ccollections\nOrderedDict\n)RU\x01kK\x01s.", json!({"k": 1})),
    ]
}

#[test]
fn every_opcode_yields_its_value() {
    let mut seen = BTreeSet::new();
    for (bytes, expected) in cases() {
        let pickle = read_bytes(bytes).unwrap_or_else(|e| panic!("{bytes:?}: {e}"));
        let bounds = JsonBounds { depth: 3, values: 100 };
        let json = to_json(&pickle.graph, pickle.root, &Options::default(), bounds);
        assert_eq!(json, expected, "{}", String::from_utf8_lossy(bytes));
        assert_eq!(pickle.end, bytes.len() as u64);
        seen.extend(pickle.opcode_counts().map(|(name, _)| name));
    }
    let all: BTreeSet<_> = (0..=255).filter_map(opcode_name).collect();
    assert_eq!(all.len(), 68);
    assert_eq!(seen, all);
}

#[test]
fn consecutive_pickles_are_read_one_by_one() {
    let source = memory(b"\x80\x02K\x01.\x80\x02K\x02.(lp0\n.");
    let options = Options::default();
    let first = read(&source, 0, &options).unwrap();
    let second = read(&source, first.end, &options).unwrap();
    let third = read(&source, second.end, &options).unwrap();
    assert_eq!(first.graph.int(first.root), Some(1));
    assert_eq!(second.graph.int(second.root), Some(2));
    assert_eq!(third.graph.sequence(third.root), Some(&[][..]));
    assert_eq!((first.end, second.end, third.end, third.protocol), (5, 10, source.len(), 0));
    assert_eq!(read(&source, third.end, &options).unwrap_err().code().as_str(), "truncated");
    assert_eq!(read(&source, u64::MAX, &options).unwrap_err().code().as_str(), "truncated");
}

#[test]
fn the_memo_returns_the_same_object() {
    let pickle = read_bytes(b"\x80\x02]q\x00h\x00\x86.").unwrap();
    let [a, b] = pickle.graph.tuple(pickle.root).unwrap() else { panic!() };
    assert_eq!(a, b);
    let pickle = read_bytes(b"\x80\x02]]\x86.").unwrap();
    let [a, b] = pickle.graph.tuple(pickle.root).unwrap() else { panic!() };
    assert_ne!(a, b);
}
