//! Tests of renaming.

use super::{field, golden, parse, read};
use crate::program::{Derived, ProgramDesc};
use std::collections::BTreeMap;
use weighbridge_core::error::Kind;
use weighbridge_core::topology::{AttributeValue, Topology};

fn names(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(old, new)| (old.to_owned(), new.to_owned())).collect()
}

/// Returns every variable name of a program: declarations, arguments, attribute values, and mentions in text.
fn everything(topology: &Topology) -> Vec<String> {
    let mut all = Vec::new();
    for block in &topology.blocks {
        all.extend(block.variables.iter().map(|v| v.name.clone()));
        for op in &block.operators {
            all.extend(op.inputs.iter().chain(&op.outputs).flat_map(|s| s.arguments.clone()));
            for attribute in &op.attributes {
                match &attribute.value {
                    AttributeValue::Variable(name) => all.push(name.clone()),
                    AttributeValue::List(values) if attribute.name == "op_role_var" => {
                        all.extend(values.iter().map(|v| match v {
                            AttributeValue::Text(text) => text.clone(),
                            other => panic!("{other:?}"),
                        }));
                    }
                    _ => {}
                }
            }
        }
    }
    all
}

#[test]
fn renames_all_places() {
    let mut program = golden("p262/seq_static_train/train.pdmodel");
    let before = everything(&program.topology());
    let old = "embedding_0.w_0";
    let count = before.iter().filter(|n| *n == old).count();
    assert!(count > 4);
    let changed = program.rename(&names(&[(old, "词表")]), Derived::Keep).unwrap();
    assert_eq!(changed, count as u64);
    let expected: Vec<_> = before.iter().map(|n| if n == old { "词表" } else { n }).collect();
    assert_eq!(everything(&program.topology()), expected);
}

#[test]
fn renames_derived_names_on_request() {
    let mut program = golden("p262/op_attrs/main.pdmodel");
    let before = everything(&program.topology());
    let new = |n: &str| n.replace("embedding_0.w_0", "table").replace("assign_4.tmp_0", "axis");
    let pairs = names(&[("embedding_0.w_0", "table"), ("assign_4.tmp_0", "axis")]);
    program.rename(&pairs, Derived::Along).unwrap();
    let after = everything(&program.topology());
    assert_eq!(after, before.iter().map(|n| new(n)).collect::<Vec<_>>());
    assert!(after.iter().any(|n| n == "table@GRAD"));
    // And back again, to the byte.
    let pairs = names(&[("table", "embedding_0.w_0"), ("axis", "assign_4.tmp_0")]);
    program.rename(&pairs, Derived::Along).unwrap();
    assert_eq!(program.to_bytes(), read("p262/op_attrs/main.pdmodel"));
}

#[test]
fn swaps_two_names() {
    let mut program = golden("p262/control_flow/model.pdmodel");
    let before = everything(&program.topology());
    program.rename(&names(&[("x", "n"), ("n", "x")]), Derived::Keep).unwrap();
    let swap = |n: &String| match n.as_str() {
        "x" => "n".to_owned(),
        "n" => "x".to_owned(),
        other => other.to_owned(),
    };
    let after = everything(&program.topology());
    assert_eq!(after, before.iter().map(swap).collect::<Vec<_>>());
    let feeds: Vec<_> = program.topology().feeds.into_iter().map(|f| f.name).collect();
    assert_eq!(feeds, ["n", "x"]);
}

#[test]
fn failed_or_empty_rename_changes_nothing() {
    let bytes = read("p262/control_flow/model.pdmodel");
    let mut program = parse(&bytes);
    assert_eq!(program.rename(&names(&[]), Derived::Along).unwrap(), 0);
    assert_eq!(program.rename(&names(&[("x", "x")]), Derived::Along).unwrap(), 0);
    let cases = [
        ("x", "n", Kind::Mismatch, "name-collision"),
        ("no_such", "y", Kind::Mismatch, "no-such-variable"),
        ("x", "", Kind::Usage, "empty-name"),
        ("x", "feed", Kind::Usage, "reserved-name"),
        ("x", "@EMPTY@", Kind::Usage, "reserved-name"),
        ("fetch", "y", Kind::Usage, "reserved-name"),
    ];
    for (old, new, kind, code) in cases {
        let error = program.rename(&names(&[(old, new)]), Derived::Keep).unwrap_err();
        assert_eq!((error.kind(), error.code().as_str()), (kind, code), "{old} {new}");
    }
    let both = names(&[("fc_0.w_0", "same"), ("fc_0.b_0", "same")]);
    assert_eq!(program.rename(&both, Derived::Keep).unwrap_err().code().as_str(), "name-collision");
    assert_eq!(program.to_bytes(), bytes);
}

#[test]
fn preserves_unknown_fields() {
    // A map of versions as 1.8 wrote it (field 3), and a field 1000 in the program, in a block, in a
    // variable and in an operator.
    let info = [field(1, b"1.6.0"), b"\x10\x01".to_vec()].concat();
    let pair = [field(1, b"relu"), field(2, &info)].concat();
    let map = field(3, &[field(1, &pair), field(2, b"1.6.0")].concat());
    let odd = field(1000, b"\x00odd\xff");
    let tensor = field(2, b"\x08\x07\x1a\x06\x0a\x04\x08\x05\x10\x03");
    let program = |name: &[u8]| {
        let var = field(3, &[field(1, name), tensor.clone(), odd.clone()].concat());
        let slot = field(1, &[field(1, b"X"), field(2, name)].concat());
        let op = field(4, &[slot, field(3, b"relu"), odd.clone()].concat());
        let block = [b"\x08\x00\x10\x00".to_vec(), var, op, odd.clone()].concat();
        [field(1, &block), map.clone(), field(4, b"\x08\x00"), odd.clone()].concat()
    };
    let mut old: ProgramDesc = parse(&program(b"w"));
    assert_eq!(old.topology().writer, None);
    assert_eq!(old.rename(&names(&[("w", "weight")]), Derived::Keep).unwrap(), 2);
    assert_eq!(old.to_bytes(), program(b"weight"));
}
