//! Damaged programs: each leads to an error or a program within bounded time and memory.

use super::{BASE, F32, GOLDEN, bytes, fetch, of, op, p, parse, program};
use crate::Strip;
use std::collections::BTreeMap;
use weighbridge_core::Budget;

/// Runs every operation on a program.
fn use_it(bytes: &[u8]) -> bool {
    let mut program = match parse(bytes) {
        Ok(program) => program,
        Err(error) => {
            assert!(error.offset().is_none_or(|at| at <= bytes.len() as u64), "{error}");
            return false;
        }
    };
    let topology = program.topology();
    assert!(
        topology
            .blocks
            .iter()
            .flat_map(|b| &b.operators)
            .flat_map(|op| &op.blocks)
            .all(|&b| b < topology.blocks.len())
    );
    let names: BTreeMap<_, _> =
        topology.parameters().iter().map(|v| (v.name.clone(), format!("{}'", v.name))).collect();
    let _ = (program.notes(), program.source_leaks(), program.rename(&names));
    let before = program.to_bytes();
    if let Err(error) = program.strip(&Strip::all()) {
        // A value that is read before it is made.
        assert_eq!((error.code().as_str(), program.to_bytes()), ("outputs-changed", before));
    }
    // The written program can be read again.
    parse(&program.to_bytes()).unwrap();
    true
}

#[test]
fn rejects_every_truncation() {
    let text = bytes("control_flow_pir", "model.json");
    for end in 0..text.len() {
        assert!(!use_it(&text[..end]), "{end}");
    }
    assert!(use_it(&text));
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % end
    }
}

#[test]
fn survives_fifty_thousand_damaged_programs() {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "0",
        "-1",
        "9223372036854775807",
        "1e999",
        "null",
        "true",
        "{}",
        "[]",
        "\"#\"",
        "\"%\"",
        "\"p\"",
        "\"1.data\"",
        "\"regions\":",
        "\"VD\":",
        "NaN",
        "\u{0}",
        "é",
        " ",
    ];
    let files: Vec<_> = ["control_flow_pir", "cnn_pir"].map(|f| bytes(f, "model.json")).into();
    // A small program of every form, so that damage is dense.
    let small = program(
        BASE,
        &[p(1, "w"), op("1.relu", "", &[1], 2), op("1.relu_grad", "", &[2], 3), fetch(0, 2, 4)].join(","),
    );
    let mut random = Random(0x9e37_79b9);
    let (mut read, mut refused) = (0, 0);
    for case in 0..50_000 {
        let mut text = if case % 50 == 0 { files[case / 50 % 2].clone() } else { small.clone().into_bytes() };
        for _ in 0..1 + random.below(3) {
            let place = random.below(text.len());
            match random.below(5) {
                0 => text[place] ^= 1 << random.below(8),
                1 => drop(text.remove(place)),
                2 => text[place] = b' ' + u8::try_from(random.below(95)).unwrap(),
                3 => {
                    let end = (place + random.below(40)).min(text.len());
                    let piece: Vec<u8> = text[place..end].to_vec();
                    let to = random.below(text.len());
                    text.splice(to..to, piece);
                }
                _ => {
                    let piece = PIECES[random.below(PIECES.len())];
                    let end = (place + random.below(6)).min(text.len());
                    text.splice(place..end, piece.bytes());
                }
            }
        }
        if use_it(&text) { read += 1 } else { refused += 1 }
    }
    assert!(read > 1000 && refused > 10_000, "{read} {refused}");
}

#[test]
fn rejects_deep_nesting() {
    let regions = |depth: usize| {
        let open = r##"{"#":"1.if","A":[],"I":[],"O":[],"OA":[],"regions":[{"#":"r","blocks":[{"#":"b","args":[],"ops":["##;
        format!("{}{}", open.repeat(depth), "]}]}]}".repeat(depth))
    };
    assert!(of(&regions(18)).is_ok());
    assert_eq!(of(&regions(18)).unwrap().topology().blocks.len(), 19);
    assert_eq!(of(&regions(100_000)).unwrap_err().code().as_str(), "nesting");
    let lists = |depth: usize| {
        let value = format!("{}{}", r##"{"#":"0.a_array","D":["##.repeat(depth), "]}".repeat(depth));
        of(&op("1.x", &format!(r#"{{"AT":{value},"N":"a"}}"#), &[], 1))
    };
    assert!(lists(Budget::DEPTH / 2 - 8).is_ok());
    assert_eq!(lists(1_000_000).unwrap_err().code().as_str(), "nesting");
}

#[test]
fn huge_numbers_do_not_allocate() {
    for id in [i64::MAX, i64::MIN, -1] {
        let program = of(&[p(id, "w"), op("1.relu", "", &[id], 1), fetch(0, 1, 2)].join(",")).unwrap();
        assert_eq!(program.topology().blocks[0].operators[1].input(""), ["w"]);
    }
    assert_eq!(
        of(&p(1, "w").replace("\"%\":1", "\"%\":18446744073709551616")).unwrap_err().code().as_str(),
        "bad-program"
    );
    let wide = F32.replace("[2]", "[9223372036854775807,-9223372036854775808]");
    let program = of(&p(1, "w").replace(F32, &wide)).unwrap();
    assert_eq!(program.topology().parameters()[0].shape, Some(vec![i64::MAX, i64::MIN]));
    let long = F32.replace("[2]", &format!("[{}1]", "1,".repeat(100_000)));
    assert_eq!(of(&p(1, "w").replace(F32, &long)).unwrap_err().code().as_str(), "limit");
}

/// Long lists of every kind, so that quadratic algorithms would time out.
#[test]
fn parses_long_programs_in_linear_time() {
    let many = 50_000;
    let results =
        |n: i64| (1..=n).map(|id| format!(r#"{{"%":{id},"TT":{F32}}}"#)).collect::<Vec<_>>().join(",");
    let flags = vec![r##"{"#":"0.a_bool","D":true}"##; many].join(",");
    let attributes = vec![r##"{"AT":{"#":"0.a_str","D":"/f"},"N":"struct_name"}"##; many].join(",");
    let operands = vec![r#"{"%":1}"#; many].join(",");
    let wide = format!(
        r##"{{"#":"1.x","A":[{attributes}],"I":[{operands}],"O":[{}],"OA":[{{"AT":{{"#":"0.a_array","D":[{flags}]}},"N":"stop_gradient"}}]}}"##,
        results(50_000)
    );
    assert!(use_it(program(BASE, &wide).as_bytes()));
    let chain: Vec<_> = (2..50_000)
        .map(|id| op(if id % 2 == 0 { "1.relu" } else { "1.relu_grad" }, "", &[id - 1], id))
        .collect();
    assert!(use_it(program(BASE, &[p(1, "w"), chain.join(",")].join(",")).as_bytes()));
    // A default name of a value that is used by many tensors, and looked up as often.
    let mut taken: Vec<_> =
        (2..1000).zip(0..).map(|(id, n)| p(id, &format!("%1{}", "'".repeat(n)))).collect();
    taken.push(op("1.add", "", &vec![1; 5_000], 1));
    assert!(use_it(program(BASE, &taken.join(",")).as_bytes()));
    // With ten times as many uses the copies exceed the limit.
    let often = [taken.join(","), op("1.add", "", &vec![1; 50_000], 1001)].join(",");
    assert_eq!(of(&often).unwrap_err().code().as_str(), "names-too-long");
    let same: Vec<_> = (1..20_000).map(|id| p(id, "w")).collect();
    assert!(use_it(program(BASE, &same.join(",")).as_bytes()));
}

#[test]
fn golden_programs_support_every_operation() {
    for (folder, name) in GOLDEN {
        assert!(use_it(&bytes(folder, name)), "{folder}");
    }
}
