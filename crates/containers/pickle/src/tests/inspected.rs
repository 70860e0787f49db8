//! Verdicts on harmless and on malicious pickles.

use super::*;
use serde_json::Value as Json;
use weighbridge_core::finding::{Severity, Verdict};

fn look(bytes: &[u8]) -> Report {
    inspect(&memory(bytes), 0, &Options::default())
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|f| f.code.as_str()).collect()
}

#[test]
fn golden_files_are_sound() {
    let mut checked = 0;
    for (name, bytes) in golden_files() {
        if name.starts_with("python/types") {
            continue;
        }
        let report = look(&bytes);
        assert_eq!(report.verdict, Verdict::Sound, "{name}: {:?}", report.findings);
        assert_eq!(report.end, Some(bytes.len() as u64), "{name}");
        checked += 1;
    }
    assert!(checked > 100);
}

#[test]
fn crafted_files_yield_the_expected_verdict() {
    let folder = good().join("../bad");
    let table = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let table: Json = serde_json::from_str(&table).unwrap();
    let table = table.as_object().unwrap();
    assert!(table.len() > 40);
    for (name, expected) in table {
        let bytes = std::fs::read(folder.join(format!("{name}.pkl"))).unwrap();
        let error = read_bytes(&bytes).err();
        assert_eq!(error.as_ref().map(|error| error.code().as_str()), expected["error"].as_str(), "{name}");
        if let Some(error) = error {
            assert!(error.offset().is_some() && error.file().is_some(), "{name}: {error}");
        }
        let report = look(&bytes);
        let verdict = expected["verdict"].as_str().unwrap();
        assert_eq!(report.verdict.as_str(), verdict, "{name}: {:?}", report.findings);
    }
}

#[test]
fn every_import_is_listed_with_its_offset() {
    let bytes = b"\x80\x02cnumpy\ndtype\n0cos\nsystem\n.";
    let report = look(bytes);
    let listed: Vec<_> = report
        .globals
        .iter()
        .map(|g| (&*g.module, &*g.name, g.offset, g.opcode, g.judgement.as_str()))
        .collect();
    assert_eq!(
        listed,
        [("numpy", "dtype", 2, "GLOBAL", "allowed"), ("os", "system", 16, "GLOBAL", "dangerous")]
    );
    let danger = report.findings.iter().find(|f| f.code == "dangerous-import").unwrap();
    assert_eq!(danger.offset, Some(16));
}

#[test]
fn oddities_are_noted() {
    assert!(codes(&look(b"N.")).contains(&"no-protocol"));
    assert!(codes(&look(b"\x80\x02N.x")).contains(&"trailing-bytes"));
    assert!(codes(&look(b"\x80\x02N.\x80\x02N.")).contains(&"another-pickle"));
    assert!(codes(&look(b"\x80\x02NN.")).contains(&"stack-left"));
    assert!(codes(&look(b"\x80\x02N2\x86.")).contains(&"dup"));
    assert!(codes(&look(b"\x80\x02NN0.")).contains(&"pop"));
    assert!(codes(&look(b"\x80\x02]q\x00]q\x00.")).contains(&"memo-again"));
    assert!(codes(&look(b"\x80\x02]\x80\x02.")).contains(&"protocol-inside"));
    assert!(codes(&look(b"\x80\x02K\x01Q.")).contains(&"persistent-id"));
    assert!(codes(&look(b"\x80\x02N.")).is_empty());
}

#[test]
fn too_many_findings_are_counted() {
    let mut bytes = b"\x80\x02".to_vec();
    for _ in 0..12_000 {
        bytes.extend(b"cevil\nname\n0");
    }
    bytes.extend(b"N.");
    let report = look(&bytes);
    assert_eq!(report.verdict, Verdict::CouldNotTell);
    // Each severity has a limit of its own.
    let weigh = |severity| report.findings.iter().filter(|f| f.severity == severity).count();
    assert_eq!(
        (report.globals.len(), weigh(Severity::Unchecked), weigh(Severity::Note)),
        (1_000, 1_000, 1_000)
    );
    assert_eq!(report.dropped, 3 * 11_000);
    assert_eq!(report.worst_dropped, Some(Severity::Unchecked));
}

#[test]
fn imports_of_known_frameworks_are_allowed() {
    for (module, name) in [
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch._utils", "_rebuild_parameter"),
        ("torch", "FloatStorage"),
        ("torch", "bfloat16"),
        ("torch", "Size"),
        ("torch.storage", "UntypedStorage"),
        ("collections", "OrderedDict"),
        ("paddle.distributed.checkpoint.metadata", "LocalTensorIndex"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("__builtin__", "tuple"),
    ] {
        assert_eq!(allowed(module, name).as_str(), "allowed", "{module} {name}");
    }
    for (module, name) in [
        ("os", "x"),
        ("os.path", "join"),
        ("builtins", "exec"),
        ("__builtin__", "getattr.x"),
        ("numpy", "load"),
    ] {
        assert_eq!(allowed(module, name).as_str(), "dangerous", "{module} {name}");
    }
    for (module, name) in [("osx", "y"), ("torch", "nn.Module"), ("", "")] {
        assert_eq!(allowed(module, name), ImportVerdict::Unknown, "{module} {name}");
    }
    assert_eq!(allowed("builtins", "eval").as_str(), "pattern");
}

/// An array of the class `numpy.memmap` is an array. Calling the class opens or truncates a file.
#[test]
fn numpy_memmap_is_allowed_as_rebuilt_array_only() {
    let rebuilt = |class: &str| {
        let mut bytes = b"\x80\x04}\x8c\x01wcnumpy.core.multiarray\n_reconstruct\nc".to_vec();
        bytes.extend(class.as_bytes());
        bytes.extend(b"K\x00\x85C\x01b\x87\x94R(K\x01K\x01\x85cnumpy\ndtype\n\x8c\x02f4\x89\x88\x87R");
        bytes.extend(b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89C\x04\x00\x00\x80?tbs");
        bytes
    };
    let with = |class: &str, rest: &[u8]| look(&[&rebuilt(class)[..], rest].concat());
    for class in ["numpy\nmemmap\n", "numpy.core.memmap\nmemmap\n"] {
        let report = with(class, b".");
        assert_eq!(report.verdict, Verdict::Sound, "{class}: {:?}", report.findings);
        let bytes = [&rebuilt(class)[..], b"."].concat();
        let pickle = read_bytes(&bytes).unwrap();
        let (_, value) = pickle.graph.pairs(pickle.root).unwrap()[0];
        let array = NdArray::of(&pickle.graph, value, &Options::default()).unwrap().unwrap();
        assert_eq!((array.shape.dims(), array.payload.unwrap().len), (&[1][..], 4));
    }
    assert_eq!(with("numpy\nmemmap.x\n", b".").verdict, Verdict::Unsound);
    assert_eq!(with("numpy\nmatrix.x\n", b".").verdict, Verdict::Unsound);
    let odd: [&[u8]; 6] = [
        // Called, made by NEWOBJ, stored, passed to a caller, in a list, and the arguments of the rebuild stored.
        b"\x8c\x01vcnumpy\nmemmap\n\x8c\x04file\x85Rs.",
        b"\x8c\x01vcnumpy\nmemmap\n\x8c\x04file\x85\x81s.",
        b"\x8c\x01vcnumpy\nmemmap\ns.",
        b"\x8c\x01vccollections\ndefaultdict\ncnumpy\nmemmap\n\x85Rs.",
        b"\x8c\x01v]cnumpy\nmemmap\nas.",
        b"\x8c\x01vh\x00s.",
    ];
    for rest in odd {
        let report = with("numpy\nmemmap\n", rest);
        assert_eq!(report.verdict, Verdict::Unsound, "{}", rest.escape_ascii());
        assert!(codes(&report).contains(&"unusual-call"), "{}", rest.escape_ascii());
    }
}

#[test]
fn disassembly_lists_the_opcodes_before_an_error() {
    let mut lines = Vec::new();
    let source = memory(b"\x80\x04\x8c\x03a\nbC\x02\x00\xffcos\nsystem\nX\x2c\x01\x00\x00".as_slice());
    let error = disassemble(&source, 0, &mut |op, line| {
        lines.push((op.offset, line.trim().to_owned()));
        Ok(())
    })
    .unwrap_err();
    assert_eq!(error.code().as_str(), "truncated");
    let lines: Vec<_> = lines.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(
        lines,
        ["0: PROTO 4", "2: SHORT_BINUNICODE \"a\\nb\"", "7: SHORT_BINBYTES 00ff", "11: GLOBAL os system"]
    );
}

/// The program that loads the pickle could call it.
#[test]
fn rejects_pattern_imports_as_the_result_of_a_pickle() {
    for pickle in [
        &b"\x80\x04cbuiltins\neval\n."[..],
        b"\x80\x02cnumpy\nmemmap\n.",
        b"\x80\x02cnumpy\nmemmap\nQ.",
        b"\x80\x02cbuiltins\neval\nq\x00Q.",
    ] {
        let report = look(pickle);
        assert_eq!(report.verdict, Verdict::Unsound, "{pickle:?}");
        assert!(codes(&report).contains(&"unusual-call"), "{pickle:?}: {:?}", codes(&report));
    }
}
