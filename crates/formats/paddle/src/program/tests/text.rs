//! Reading and writing of the text format.

use super::{all, field, golden, parse, read};
use crate::program::ProgramDesc;
use weighbridge_core::error::Kind;
use weighbridge_core::limits::Limits;

fn from_text(text: &str) -> weighbridge_core::Result<ProgramDesc> {
    ProgramDesc::from_text(text, &Limits::default())
}

#[test]
fn round_trips_text() {
    for (path, _) in all() {
        let bytes = read(&path);
        let text = parse(&bytes).to_text();
        assert_eq!(from_text(&text).unwrap().to_bytes(), bytes, "{}", path.display());
    }
}

#[test]
fn writes_readable_text() {
    let text = golden("p262/combined_mixed/program.pb").to_text();
    for part in [
        "blocks {\n  idx: 0\n  parent_idx: -1\n",
        "data_type: FP32",
        "type: LOD_TENSOR",
        "persistable: true",
        "version: 2006002",
        r#"name: "\346\235\203"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn reads_text_of_paddle_3() {
    for path in ["p262/control_flow/model.pdmodel", "p262/combined_mixed/program.pb"] {
        let program = golden(path);
        let mut text = program.to_text();
        for (old, new) in [
            ("LOD_TENSOR", "DENSE_TENSOR"),
            ("lod_tensor {", "dense_tensor {"),
            ("lod_level:", "legacy_lod_level:"),
        ] {
            assert!(path.contains("combined") || text.contains(old), "{old}");
            text = text.replace(old, new);
        }
        assert_eq!(from_text(&text).unwrap().to_bytes(), program.to_bytes());
    }
}

/// A block with one operator whose type is these bytes.
fn odd(kind: &[u8]) -> Vec<u8> {
    field(1, &[b"\x08\x00\x10\x00".to_vec(), field(4, &field(3, kind))].concat())
}

#[test]
fn preserves_strings_that_are_not_utf8() {
    let kind = b"a\xff\xfe\x00\"\\\n\xe6\x9d\x83";
    let program = parse(&odd(kind));
    assert_eq!(program.topology().blocks[0].operators[0].kind, "a\\xff\\xfe\0\"\\\n权");
    let back = from_text(&program.to_text()).unwrap();
    assert_eq!(back.to_bytes(), odd(kind));
}

#[test]
fn writes_unknown_fields_and_rejects_them_on_reading() {
    let bytes = [odd(b"relu"), field(1000, b"\xffkept")].concat();
    let text = parse(&bytes).to_text();
    assert!(text.contains("1000:"), "{text}");
    assert_eq!(from_text(&text).unwrap_err().code().as_str(), "bad-text");
}

#[test]
fn rejects_invalid_text_with_line_and_column() {
    let cases = [
        ("blocks {\n  idx: 0\n  nonsense: 3\n}", "bad-text", "line 3"),
        ("blocks {\n  idx: zero\n}", "bad-text", "line 2"),
        ("blocks { idx: 0 parent_idx: -1", "bad-text", "line 1"),
        ("blocks { idx: 0 parent_idx: -1 } }", "bad-text", "line 1"),
        ("blocks { idx: 0 parent_idx: -1 ops { } }", "missing-field", "`type`"),
        (
            "blocks { idx: 0 parent_idx: -1 ops { type: \"a\" attrs { name: \"b\" type: NO } } }",
            "bad-text",
            "line 1",
        ),
        ("", "empty-program", ""),
        ("# nothing\n", "empty-program", ""),
    ];
    for (text, code, part) in cases {
        let error = from_text(text).unwrap_err();
        assert_eq!((error.kind(), error.code().as_str()), (Kind::Corrupt, code), "{text}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn malformed_texts_do_not_panic() {
    let deep = "blocks { ".repeat(100_000);
    assert!(from_text(&deep).is_err());
    let text = golden("p262/op_attrs/main.pdmodel").to_text();
    let mut seed = 1_u64;
    for round in 0..1000_usize {
        let mut broken = text.clone().into_bytes();
        for _ in 0..1 + round % 3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = usize::try_from(seed >> 33).unwrap() % broken.len();
            broken[place] = b"{}\"\\:#<>[]\n0x-"[round % 14];
        }
        if let Ok(text) = std::str::from_utf8(&broken) {
            let _ = from_text(text).map(|p| p.topology());
        }
    }
}
