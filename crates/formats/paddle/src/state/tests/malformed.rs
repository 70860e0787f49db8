//! Damaged and malformed states: each leads to an error or a checkpoint, without panics.

use super::*;
use weighbridge_io::source::MemoryFolder;
use weighbridge_pickle::ObjectId;

/// Reads a state and, on success, plans a file and reads the tensors.
fn survive(bytes: &[u8]) -> bool {
    let source = memory(bytes);
    looks_like_pickle(&bytes[..bytes.len().min(4096)], &source);
    let _ = read_info(&source, &weighbridge_core::Limits::default());
    let Ok(checkpoint) = open(bytes) else { return false };
    for entry in &checkpoint.tensors {
        assert!(entry.bytes() <= bytes.len() as u64 * 2 || entry.extents.is_empty(), "{}", entry.name());
        let _ = entry.read_tensor(Order::Row);
    }
    let _ = checkpoint.to_json();
    for protocol in ["2", "4"] {
        let _ = plan(&checkpoint, &settings(&[("protocol", protocol)]));
    }
    true
}

#[test]
fn rejects_every_prefix() {
    let mut cuts = 0;
    for name in states() {
        let bytes = golden(&name);
        if bytes.len() > 2500 {
            continue;
        }
        for len in 0..bytes.len() {
            assert!(!survive(&bytes[..len]), "{name} cut to {len} bytes");
            cuts += 1;
        }
    }
    assert!(cuts > 10_000, "{cuts}");
}

#[test]
fn mutations_do_not_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut read = 0;
    for name in states() {
        let bytes = golden(&name);
        if bytes.len() > 2500 {
            continue;
        }
        for _ in 0..200 {
            let mut bad = bytes.clone();
            for _ in 0..=random() % 3 {
                let at = usize::try_from(random() % bad.len() as u64).unwrap();
                bad[at] = u8::try_from(random() & 0xff).unwrap();
            }
            read += usize::from(survive(&bad));
        }
    }
    assert!(read > 500, "{read}");
}

#[test]
fn limits_expansion_of_shared_objects() {
    // Lists of ten times the list below, forty levels deep.
    let bytes = pickled(
        |b| {
            let mut list = b.list(vec![])?;
            for _ in 0..40 {
                list = b.list(vec![list; 10])?;
            }
            Ok(list)
        },
        4,
    );
    assert_eq!(open(&bytes).unwrap_err().code().as_str(), "limit");
    let deep = pickled(
        |b| {
            let mut list = b.list(vec![])?;
            for _ in 0..5000 {
                list = b.list(vec![list])?;
            }
            Ok(list)
        },
        4,
    );
    let checkpoint = open(&deep).unwrap();
    assert!(checkpoint.notes.iter().any(|note| note.omission));
    assert!(survive(&deep));
}

#[test]
fn limits_copies_of_shared_text() {
    let bytes = pickled(
        |b| {
            let long = b.text(&"x ".repeat(50_000))?;
            b.list(vec![long; 5000])
        },
        4,
    );
    assert_eq!(open(&bytes).unwrap_err().code().as_str(), "limit");
}

#[test]
fn executes_nothing_and_reports_unknown_objects() {
    let bytes = pickled(
        |b| {
            let system = b.global("os", "system")?;
            let command = b.text("touch it")?;
            let args = b.tuple(&[command])?;
            let call = b.reduce(system, args)?;
            let key = b.text("callback")?;
            b.dict(vec![(key, call)])
        },
        4,
    );
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.notes[0].code.as_str(), "runs-code");
    assert_eq!(checkpoint.notes[1].code.as_str(), "unknown-class");
    assert!(checkpoint.notes[1].omission && checkpoint.notes[1].text.contains("os.system"));
    let plan = plan(&checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!(plan.losses.iter().map(|l| l.code.as_str()).collect::<Vec<_>>(), ["omitted", "value-dropped"]);
    assert!(!materialise(&plan)[0].windows(6).any(|w| w == b"system"));
}

#[test]
fn reports_skipped_arrays_separately() {
    let bytes = pickled(
        |b| {
            let class = b.global("mine", "Holder")?;
            let empty = b.new_object(class, ObjectId::EMPTY_TUPLE)?;
            let holder = b.new_object(class, ObjectId::EMPTY_TUPLE)?;
            let (name, array) = (b.text("a")?, super::odd::floats(b, 1)?);
            let state = b.dict(vec![(name, array)])?;
            b.build(holder, state)?;
            let list = b.list(vec![holder])?;
            let args = b.tuple(&[list])?;
            let outer = b.global("mine", "Outer")?;
            let outer = b.reduce(outer, args)?;
            let other = b.global("mine", "Other")?;
            let other = b.new_object(other, ObjectId::EMPTY_TUPLE)?;
            let weight = super::odd::floats(b, 2)?;
            let mut pairs = vec![];
            for (key, value) in [("w", weight), ("e", empty), ("h", holder), ("o", outer), ("x", other)] {
                pairs.push((b.text(key)?, value));
            }
            b.dict(pairs)
        },
        4,
    );
    let notes_of = |bytes: &[u8]| -> Vec<String> {
        let checkpoint = open(bytes).unwrap();
        assert!(checkpoint.notes.iter().all(|note| note.omission));
        checkpoint.notes.iter().map(|note| format!("{} {}", note.code.as_str(), note.text)).collect()
    };
    let objects = [
        "tensor-skipped h: arrays in mine.Holder are skipped",
        "tensor-skipped o: arrays in mine.Outer are skipped",
        "unknown-class mine.Holder: 1 object omitted",
        "unknown-class mine.Other: 1 object omitted",
    ];
    assert_eq!(notes_of(&bytes), objects);
    // Of a dtype that tensors do not support.
    let mut other = bytes;
    let places: Vec<usize> =
        other.windows(4).enumerate().filter(|(_, w)| w == b"\x8c\x02f4").map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| other[at + 3] = b'3');
    let array = "tensor-skipped w: numpy.ndarray of f3";
    assert_eq!(notes_of(&other), [&[array], &objects[..]].concat());
}

#[test]
fn self_referencing_metadata_is_not_a_cycle() {
    let mut checkpoint = open(&golden("p262/nested_ckpt/empty.pdparams")).unwrap();
    let itself = Value::List(vec![marked(structure::METADATA, Value::Text("a".into()))]);
    checkpoint.metadata.set("a", itself);
    let error = plan(&checkpoint, &PlanOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "too-deep");
}

#[test]
fn damaged_directories_do_not_panic() {
    let directory = golden("p331/dist_ckpt/0.metadata");
    let shard = golden("p331/dist_ckpt/0_0.distcp");
    let mut opened = 0;
    for (at, &byte) in directory.iter().enumerate() {
        for value in [0, 1, 0xff, byte ^ 1] {
            let mut bad = directory.clone();
            bad[at] = value;
            let folder = MemoryFolder::new("m").with("0.metadata", bad).with("0_0.distcp", shard.clone());
            let folder: weighbridge_io::source::FolderRef = Arc::new(folder);
            if let Ok(Some(checkpoint)) = read_distributed(&folder, &OpenOptions::default()) {
                checkpoint.tensors.iter().for_each(|t| assert!(t.read_tensor(Order::Row).is_ok()));
                opened += 1;
            }
        }
    }
    assert!(opened > 10, "{opened}");
}

#[test]
fn dict_as_its_own_key_is_not_a_cycle() {
    // {d: 1}, where d is the dict itself; then the same with a tuple around the key.
    for bytes in [&b"\x80\x02}q\x00h\x00K\x01s."[..], &b"\x80\x02}q\x00h\x00\x85K\x01s."[..]] {
        let checkpoint = open(bytes).unwrap();
        let note = checkpoint.notes.iter().find(|note| note.code == "unknown-class").unwrap();
        assert!(note.omission && note.text.contains("in a key"), "{}", note.text);
    }
}

/// Many small values occur in well-formed files: words with their numbers, numbers, and pairs of them, in the shortest forms that Python writes.
#[test]
fn accepts_many_small_values() {
    let numbers = |n: u16| [&b"M"[..], &(300 + n).to_le_bytes()].concat();
    let word = |n: u16| {
        let text = format!("w{n}");
        [&[0x8c, u8::try_from(text.len()).unwrap()][..], text.as_bytes(), b"\x94", &numbers(n)].concat()
    };
    let pair = |n: u16| [numbers(n), numbers(n), b"\x86\x94".to_vec()].concat();
    for value in [
        [&b"}("[..], &(0..60_000).flat_map(word).collect::<Vec<_>>(), b"u"].concat(),
        [&b"]("[..], &(0..60_000).flat_map(numbers).collect::<Vec<_>>(), b"e"].concat(),
        [&b"]("[..], &(0..60_000).flat_map(pair).collect::<Vec<_>>(), b"e"].concat(),
        [&b"]("[..], &b"K\x01".repeat(120_000), b"e"].concat(),
    ] {
        let bytes = [&b"\x80\x04}\x8c\x01v"[..], &value, b"s."].concat();
        let opened = open(&bytes).unwrap_or_else(|error| panic!("{} bytes: {error}", bytes.len()));
        assert!(opened.metadata.get("v").is_some(), "{:?}", opened.notes);
    }
}

/// As many parameters as in large models, but small ones: with variable names, in the shortest form that Python writes.
#[test]
fn accepts_many_small_tensors() {
    let text =
        |text: &str| [&[0x8c, u8::try_from(text.len()).unwrap()][..], text.as_bytes(), b"\x94"].concat();
    let fetch = |place: u32| [b"j", &place.to_le_bytes()[..]].concat();
    let kept = |place: u32| [b"r", &place.to_le_bytes()[..]].concat();
    let import = |module, name| [&text(module)[..], &text(name), b"\x93"].concat();
    let mut bytes = b"\x80\x04}\x94(".to_vec();
    let call = [
        &import("numpy.core.multiarray", "_reconstruct")[..],
        &kept(1 << 24),
        &import("numpy", "ndarray"),
        &kept(1 + (1 << 24)),
        b"K\0\x85\x94C\x01b",
        &kept(2 + (1 << 24)),
        b"\x87\x94R\x94(K\x01K\x02K\x03\x86\x94",
        &import("numpy", "dtype"),
        &text("f4"),
        b"\x89\x88\x87\x94R\x94(K\x03",
        &text("<"),
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t\x94b",
        &kept(3 + (1 << 24)),
    ]
    .concat();
    let again = [
        &fetch(1 << 24)[..],
        &fetch(1 + (1 << 24)),
        b"K\0\x85\x94",
        &fetch(2 + (1 << 24)),
        b"\x87\x94R\x94(K\x01K\x02K\x03\x86\x94",
        &fetch(3 + (1 << 24)),
    ]
    .concat();
    let count = 20_000u32;
    let key = |i: u32| format!("encoder.layers.{}.linear{i}.weight", i / 10);
    for i in 0..count {
        bytes.extend(text(&key(i)));
        bytes.extend(if i == 0 { &call } else { &again });
        bytes.extend([&b"\x89C\x18"[..], &i.to_le_bytes().repeat(6), b"\x94t\x94b"].concat());
    }
    let table: Vec<u8> =
        (0..count).flat_map(|i| [text(&key(i)), text(&format!("linear_{i}.w_0"))].concat()).collect();
    bytes.extend([&text("StructuredToParameterName@@")[..], b"}\x94(", &table, b"uu."].concat());
    let opened = open(&bytes).unwrap_or_else(|error| panic!("{} bytes: {error}", bytes.len()));
    assert_eq!((opened.tensors.len(), opened.notes.len()), (20_000, 0));
    assert_eq!(opened.tensors[7].text_attribute(Attributes::VARIABLE_NAME), Some("linear_7.w_0"));
}
