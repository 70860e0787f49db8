//! Damaged and malformed pickles, and bombs.

use super::payloads::Random;
use super::*;
use weighbridge_core::error::Kind;
use weighbridge_core::{Budget, Limits};

/// Runs all operations on the bytes. Returns true if they could be read.
fn exercise(bytes: &[u8]) -> bool {
    let source = memory(bytes);
    let options = Options::default();
    let report = inspect(&source, 0, &options);
    let pickle = match read(&source, 0, &options) {
        Ok(pickle) => pickle,
        Err(error) => {
            assert_ne!(report.verdict, weighbridge_core::finding::Verdict::Sound);
            assert_eq!(report.error.unwrap().code().as_str(), error.code().as_str());
            return false;
        }
    };
    assert!(report.error.is_none() && pickle.end <= source.len());
    let graph = &pickle.graph;
    let bounds = JsonBounds { depth: 8, values: 50 };
    assert!(to_json(graph, pickle.root, &options, bounds).to_string().len() < 64 << 10);
    for (id, _) in graph.iter() {
        let array = NdArray::of(graph, id, &options).ok().flatten();
        let array = array.or_else(|| scalar(graph, id).ok().flatten());
        if let Some(Payload { len, place: Location::Source(span), .. }) = array.and_then(|a| a.payload) {
            assert!(len <= source.len());
            let decoded = PayloadSource::new(source.clone(), span, len).unwrap();
            let _ = weighbridge_io::source::read_vec(&decoded, 0, len);
        }
    }
    for protocol in 2..=4 {
        let mut latin1 = |place: &Location| match place {
            Location::Source(span) => latin1_len(&*source, span.offset, span.len),
            _ => Ok(0),
        };
        let _ = write(graph, pickle.root, protocol, &mut latin1);
    }
    true
}

#[test]
fn rejects_every_prefix() {
    let mut prefixes = 0;
    for (name, bytes) in golden_files().into_iter().filter(|(_, bytes)| bytes.len() < 2500) {
        for len in 0..bytes.len() {
            assert!(!exercise(&bytes[..len]), "{name} cut to {len}");
            prefixes += 1;
        }
    }
    assert!(prefixes > 20_000, "{prefixes}");
}

#[test]
fn a_hundred_thousand_mutations_do_not_panic() {
    let seeds: Vec<Vec<u8>> =
        golden_files().into_iter().map(|(_, bytes)| bytes).filter(|bytes| bytes.len() < 1700).collect();
    assert!(seeds.len() > 40);
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut read = 0;
    for case in 0..100_000 {
        let mut bytes = seeds[case % seeds.len()].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(5) {
                0 => bytes[at] = random.byte(),
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.insert(at, random.byte()),
                3 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {
                    // Replace a byte by another byte of the file.
                    let other = random.below(bytes.len());
                    bytes[at] = bytes[other];
                }
            }
        }
        read += u32::from(exercise(&bytes));
    }
    assert!(read > 10_000 && read < 90_000, "{read}");
}

#[test]
fn doubled_tuples_take_memory_once() {
    // Each tuple holds the previous one twice, a hundred levels deep: 2^100 values in 400 bytes.
    let mut bytes = b"\x80\x02)".to_vec();
    for _ in 0..100 {
        bytes.extend(b"2\x86");
    }
    bytes.push(b'.');
    let pickle = read_bytes(&bytes).unwrap();
    assert!(pickle.graph.len() < 200);
    let json =
        to_json(&pickle.graph, pickle.root, &Options::default(), JsonBounds { depth: 90, values: 1000 });
    assert!(json.to_string().len() < 100_000);
    let parts = write(&pickle.graph, pickle.root, 4, &mut |_| Ok(0)).unwrap();
    assert!(parts.iter().map(Part::len).sum::<u64>() < 2000);
}

#[test]
fn a_million_levels_do_not_overflow_the_stack() {
    let levels = 1_000_000;
    let lists = [&b"\x80\x02"[..], &vec![b']'; levels], &vec![b'a'; levels - 1], b"."].concat();
    let tuples = [&b"\x80\x02)"[..], &vec![0x85; levels], b"."].concat();
    let calls = [&b"\x80\x02cos\nname\n"[..], &b")R".repeat(levels), b"."].concat();
    let ids = [&b"\x80\x02N"[..], &vec![b'Q'; levels], b"."].concat();
    let budget = Some(Budget::new(u64::MAX, &Limits::default()));
    let large = Options::with_limits(Limits { budget, ..Limits::default() });
    for bytes in [lists, tuples, calls, ids] {
        let source = memory(&bytes);
        let pickle = read(&source, 0, &large).unwrap();
        assert!(pickle.graph.len() >= levels);
        let again = rewrite(&pickle, &source, 2).unwrap();
        let reread = read(&memory(&again), 0, &large).unwrap();
        assert_eq!(reread.graph.len(), pickle.graph.len());
        to_json(
            &pickle.graph,
            pickle.root,
            &Options::default(),
            JsonBounds { depth: usize::MAX, values: 10_000 },
        );
    }
    let marks = [&b"\x80\x02"[..], &vec![b'('; levels], b"."].concat();
    assert_eq!(read_bytes(&marks).unwrap_err().code().as_str(), "pickle-stack");
}

#[test]
fn limits_are_enforced() {
    let options = Options::with_limits(Limits { pickle_objects: 100, ..Limits::default() });
    let bytes = [&b"\x80\x02"[..], &[b']'; 100], b"."].concat();
    let error = read(&memory(&bytes), 0, &options).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (Kind::Limit, Some(2 + 96)));
    // Opcodes that make no object.
    let options = |instructions: u64| {
        let budget = Budget::new(0, &Limits::default());
        // A byte of opcodes is four units of work.
        budget.spend_work(budget.work_left() - 4 * instructions);
        Options::with_limits(Limits { budget: Some(budget), ..Limits::default() })
    };
    let nothing = [&b"\x80\x02"[..], &b"N0".repeat(5_000), b"N."].concat();
    assert_eq!(
        read(&memory(&nothing), 0, &options(10_004)).unwrap().graph.len(),
        read_bytes(b"N.").unwrap().graph.len()
    );
    let error = read(&memory(&nothing), 0, &options(10_003)).unwrap_err();
    assert_eq!((error.code().as_str(), error.kind(), error.offset()), ("limit", Kind::Limit, Some(10_003)));
    let limits = Limits { header_bytes: 1000, ..Default::default() };
    let bytes = [
        &b"\x80\x02"[..],
        &b"U\x64".iter().chain(&[b'x'; 100]).copied().collect::<Vec<_>>().repeat(11),
        b".",
    ]
    .concat();
    let error = read(&memory(&bytes), 0, &Options::with_limits(limits)).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
    // None, booleans, small numbers and empty tuples are one object each.
    let bytes = [&b"\x80\x02("[..], &b"N\x88\x89)K\x07".repeat(100_000), b"t."].concat();
    assert!(read_bytes(&bytes).unwrap().graph.len() < 10);
}

#[test]
fn tuples_that_contain_themselves_are_written() {
    for name in ["cycle_list", "cycle_tuple_1", "cycle_tuple_3", "cycle_tuple_5", "cycle_reduce"] {
        let bytes = std::fs::read(good().join(format!("python/{name}_p4.pkl"))).unwrap();
        assert!(exercise(&bytes), "{name}");
    }
    // A call whose argument list contains its own result, with the same list as its state.
    assert!(exercise(b"\x80\x02]q\x00cos\nname\nh\x00\x85Rq\x01ah\x01h\x00b."));
}

/// An opcode of one or two bytes makes an object of a hundred bytes, so the budget stops such files early. Ordinary tensors of
/// PyTorch and word counts stay far below the budget.
#[test]
fn object_memory_is_a_small_multiple_of_the_file() {
    let count = 1_000_000;
    for op in
        [&b"]"[..], b"}", b")R", b"N]", b"N\x85", b"Na", b"K\x01a", b"ca\nb\n", b"2", b"(", b"U\0", b"C\0"]
    {
        let bytes = [&b"\x80\x02ca\nb\n]"[..], &op.repeat(count), b"."].concat();
        let budget = Budget::new(0, &Limits::default());
        budget.take_memory(budget.memory_left() - (4 << 20)).unwrap();
        let options = Options::with_limits(Limits { budget: Some(budget), ..Limits::default() });
        let error = read(&memory(&bytes), 0, &options).unwrap_err();
        assert!(error.hint_text().unwrap().contains("`header_bytes`"), "{op:?}: {error}");
    }
    let text =
        |text: &str| [b"X", &u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat();
    let mut places = 10u32..;
    let mut put = || [b"r", &places.next().unwrap().to_le_bytes()[..]].concat();
    let mut words = b"\x80\x02}q\0(".to_vec();
    let mut tensors = words.clone();
    for i in 0..20_000u32 {
        let number = (b'M', u16::try_from(300 + i).unwrap().to_le_bytes());
        words.extend([text(&format!("word{i}")), put(), vec![number.0, number.1[0], number.1[1]]].concat());
        tensors.extend([text(&format!("layer.{i}.weight")), put(), b"h\0((h\0h\0".to_vec()].concat());
        tensors.extend(
            [text(&i.to_string()), put(), b"h\0M\x10\x10tq\x01QK\0M\x05\x05M\x06\x06\x86".to_vec(), put()]
                .concat(),
        );
        tensors.extend(
            [&b"M\x05\x05K\x01\x86"[..], &put(), b"\x89h\0)R", &put(), b"t", &put(), b"R", &put()].concat(),
        );
    }
    for pickle in [words, tensors] {
        let read = read_bytes(&[&pickle[..], b"u."].concat()).unwrap();
        let taken = read.held.bytes();
        assert!(taken < 15 * pickle.len() as u64, "{} bytes take {taken}", pickle.len());
    }
}

/// Same as in Python. Zip and Parquet files begin with the letter of this opcode.
#[test]
fn rejects_persistent_ids_that_are_not_ascii() {
    let noise = [&b"PAR1\x15"[..], &[0x90; 5000]].concat();
    for (bytes, kind) in [
        (noise, weighbridge_core::Kind::Corrupt),
        (b"P\xc3\xa4\n.".to_vec(), weighbridge_core::Kind::Corrupt),
        ([&b"P"[..], &[b'a'; 5000]].concat(), weighbridge_core::Kind::Limit),
    ] {
        assert_eq!(inspect(&memory(&bytes), 0, &Options::default()).error.unwrap().kind(), kind);
    }
    assert!(inspect(&memory(b"Pid\n."), 0, &Options::default()).error.is_none());
}
