//! Damaged and malformed programs: each leads to an error with its offset, without panics or excessive memory.

use super::{field, golden, parse, read, refused, varint};
use crate::Strip;
use crate::program::{Derived, ProgramDesc, looks_like};
use std::collections::BTreeMap;
use weighbridge_core::error::Kind;
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::AttributeValue;

const BLOCK: &[u8] = b"\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";

#[test]
fn rejects_an_empty_file() {
    let error = refused(b"");
    assert_eq!((error.kind(), error.code().as_str()), (Kind::Corrupt, "empty-program"));
    assert!(error.hint_text().unwrap().contains("crashes"));
}

#[test]
fn reports_offsets_of_faults() {
    let op = |inside: &[u8]| field(1, &[BLOCK, &field(4, inside)].concat());
    let cases: [(Vec<u8>, &str, u64); 9] = [
        (b"hello, world".to_vec(), "wrong-wire-type", 2),
        (b"\x0a\x05\x08".to_vec(), "truncated", 1),
        (b"\x0a\x02\x08\x00".to_vec(), "missing-field", 2),
        (op(b"\x0a\x00"), "missing-field", 19),
        (op(b"\x18\x01"), "wrong-wire-type", 17),
        (op(b"\x1a\x04abc"), "truncated", 18),
        (op(b"\x00"), "bad-field-number", 17),
        (op(b"\x1f"), "wrong-wire-type", 17),
        (op(b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "bad-varint", 18),
    ];
    for (bytes, code, offset) in cases {
        let error = refused(&bytes);
        assert_eq!(error.code().as_str(), code, "{error} {bytes:?}");
        assert_eq!(error.kind(), Kind::Corrupt);
        assert_eq!(error.offset(), Some(offset), "{error} {bytes:?}");
    }
}

#[test]
fn parses_or_rejects_every_prefix() {
    let bytes = read("p262/op_attrs/startup.pdmodel");
    let mut whole = 0;
    for end in 0..bytes.len() {
        match ProgramDesc::parse(&bytes[..end], &Limits::default()) {
            // A cut between two fields of the program itself leaves a program.
            Ok(program) => {
                whole += 1;
                assert_eq!(program.to_bytes(), &bytes[..end]);
            }
            Err(error) => assert!(error.offset().is_some() || end == 0, "{error}"),
        }
        looks_like(&bytes[..end], bytes.len() as u64);
        looks_like(&bytes[..end], end as u64);
    }
    assert_eq!(whole, 2, "after the blocks, and after the version");
}

#[test]
fn mutations_do_not_panic() {
    let files = [
        "p262/control_flow/model.pdmodel",
        "p262/op_attrs/startup.pdmodel",
        "p262/combined_mixed/program.pb",
        "p262/jit_multi_function/model.pdmodel",
    ];
    let originals = files.map(read);
    let mut seed = 42_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut good = 0;
    for round in 0..50_000 {
        let original = &originals[round % originals.len()];
        let mut bytes = original.clone();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] = next(256).to_le_bytes()[0],
                1 => bytes[at] ^= 1 << next(8),
                2 => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, next(256).to_le_bytes()[0]),
            }
        }
        let Ok(mut program) = ProgramDesc::parse(&bytes, &Limits::default()) else { continue };
        good += 1;
        let topology = program.topology();
        if round % 8 == 0 {
            for k in 0..topology.blocks.len() {
                topology.variable(k, "x");
            }
            program.source_leaks();
            let names =
                topology.parameters().iter().map(|v| (v.name.clone(), format!("{}!", v.name))).collect();
            let _ = program.rename(&names, Derived::Along);
            program.strip(&Strip::all()).unwrap();
            program.set_version(1).unwrap();
            parse(&program.to_bytes());
            program.to_text();
        }
    }
    assert!(good > 1000, "{good} mutations were programs");
}

#[test]
fn rejects_claims_beyond_limits() {
    let bytes = read("p262/control_flow/model.pdmodel");
    for (limit, value) in [("header_bytes", 13_000), ("tensors", 10), ("name_bytes", 8), ("dimensions", 1)] {
        let mut limits = Limits::default();
        limits.set(limit, value).unwrap();
        let error = ProgramDesc::parse(&bytes, &limits).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{limit}");
        assert!(error.hint_text().unwrap().contains(limit), "{error}");
    }
}

#[test]
fn limits_memory_amplification() {
    // Attributes of two bytes each, and unknown fields of two bytes each.
    let attrs = field(4, b"\x0a\x00\x10\x00").repeat(300_000);
    let op = [field(3, b"x"), attrs].concat();
    let error = refused(&field(1, &[BLOCK, &field(4, &op)].concat()));
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    let error = refused(&b"\x78\x00".repeat(1_000_001));
    assert_eq!((error.kind(), error.offset()), (Kind::Limit, Some(2_000_000)));
}

#[test]
fn skips_groups_up_to_a_maximum_depth() {
    let group = |depth: usize| [b"\x7b".repeat(depth), b"\x7c".repeat(depth)].concat();
    let shallow = [field(1, BLOCK), group(3)].concat();
    assert_eq!(parse(&shallow).to_bytes(), shallow);
    let error = refused(&[field(1, BLOCK), group(100_000)].concat());
    assert_eq!(error.code().as_str(), "nested-too-deep");
    assert_eq!(refused(b"\x7b\x84\x01").code().as_str(), "bad-group");
    assert_eq!(refused(b"\x7c").code().as_str(), "wrong-wire-type");
}

#[test]
fn preserves_and_shows_unknown_numbers() {
    // A variable of type 77, a tensor of element type 99, an attribute of kind 88.
    let odd_type = field(3, &[field(1, b"v"), field(2, b"\x08\x4d")].concat());
    let odd_element = [b"\x08\x07".to_vec(), field(3, &field(1, b"\x08\x63\x10\x03"))].concat();
    let odd_element = field(3, &[field(1, b"w"), field(2, &odd_element)].concat());
    let odd_attr = field(4, &[field(1, b"a"), b"\x10\x58".to_vec()].concat());
    let op = field(4, &[field(3, b"op"), odd_attr].concat());
    let mut bytes = field(1, &[BLOCK.to_vec(), odd_type, odd_element, op].concat());
    let mut program = parse(&bytes);
    let topology = program.topology();
    let [v, w] = topology.blocks[0].variables.as_slice() else { panic!() };
    assert_eq!((v.kind.as_str(), v.dtype, &v.shape), ("77", None, &None));
    assert_eq!((w.dtype, w.dtype_name.as_deref()), (None, Some("99")));
    let attribute = &topology.blocks[0].operators[0].attributes[0];
    assert_eq!((attribute.kind.as_str(), &attribute.value), ("88", &AttributeValue::None));
    assert_eq!(topology.writer, None);
    program.set_version(2_005_001).unwrap();
    let mut version = vec![0x08];
    varint(&mut version, 2_005_001);
    bytes.extend(field(4, &version));
    assert_eq!(program.to_bytes(), bytes);
    assert_eq!(program.topology().writer.as_deref(), Some("2.5.1"));
}

#[test]
fn reads_packed_lists_and_any_field_order() {
    // dims packed; type after the tensor; parent before index.
    let tensor = field(3, &field(1, b"\x12\x03\x02\x80\x01\x08\x05"));
    let var = [field(2, &[tensor, b"\x08\x07".to_vec()].concat()), field(1, b"w")].concat();
    let program = parse(&field(1, &[field(3, &var), b"\x10\x00\x08\x00".to_vec()].concat()));
    assert_eq!(program.topology().blocks[0].variables[0].shape, Some(vec![2, 128]));
}

#[test]
fn tolerates_invalid_block_references() {
    let mut block = b"\x08\x00\x10".to_vec();
    varint(&mut block, 7);
    let attr = field(4, &[field(1, b"sub_block"), b"\x10\x08\x60\x63".to_vec()].concat());
    block.extend(field(4, &[field(3, b"while"), attr].concat()));
    let topology = parse(&field(1, &block)).topology();
    assert_eq!(topology.blocks[0].parent, None);
    assert_eq!(topology.blocks[0].operators[0].blocks, [99]);
    assert!(topology.variable(0, "x").is_none());
}

#[test]
fn renames_a_name_that_is_not_utf8() {
    let tensor = field(2, b"\x08\x07\x1a\x04\x0a\x02\x08\x05");
    let var = |name: &[u8]| field(3, &[field(1, name), tensor.clone(), b"\x18\x01".to_vec()].concat());
    let mut program = parse(&field(1, &[BLOCK.to_vec(), var(b"\xff"), var(b"\xfe")].concat()));
    let names: Vec<String> = program.parameters().into_iter().map(|v| v.name).collect();
    assert_eq!(names, ["\\xfe", "\\xff"]);
    program.rename(&BTreeMap::from([("\\xff".into(), "a".into())]), Derived::Keep).unwrap();
    assert_eq!(program.parameters()[0].name, "a");
    // The other one kept its byte.
    assert!(program.to_bytes().windows(3).any(|w| w == b"\x0a\x01\xfe"));
    assert_eq!(golden("p262/vocab/program.pb").source_leaks(), []);
}
