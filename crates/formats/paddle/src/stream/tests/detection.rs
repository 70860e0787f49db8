//! Detection of files, and its cost.

use super::*;
use crate::stream::{Kind, StreamKind, detect};
use std::path::Path;
use weighbridge_io::source::CountingSource;

fn kind(bytes: &[u8]) -> Option<StreamKind> {
    detect(&memory(bytes), &Limits::default())
}

fn files_below(folder: &Path, all: &mut Vec<PathBuf>) {
    for item in std::fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() { files_below(&path, all) } else { all.push(path) }
    }
}

#[test]
fn detects_every_golden_file() {
    let mut counts = [0; 4];
    for folder in GOOD.iter().copied().chain(["p262/vocab", "p262/cnn_state_dict", "p262/cnn_static_train"]) {
        let mut files = Vec::new();
        files_below(&testdata("paddle/good").join(folder), &mut files);
        for path in files {
            let name = path.file_name().unwrap().to_str().unwrap();
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
            let separate = ["p262/separate_mixed", "p262/cnn_legacy_separate"].contains(&folder);
            let other = ["json", "pb", "pdmodel", "info", "pdparams", "pdopt", "npy"].contains(&extension)
                || name == "__model__";
            let (place, expected) = if other {
                (0, None)
            } else if folder == "p262/vocab" {
                (1, Some(StreamKind::VocabCombined))
            } else if folder.ends_with("selected_rows") {
                (1, Some(StreamKind::SelectedRows))
            } else if separate || extension == "bin" {
                (2, Some(StreamKind::Dense))
            } else {
                (3, Some(StreamKind::Combined))
            };
            assert_eq!(kind(&std::fs::read(&path).unwrap()), expected, "{path:?}");
            counts[place] += 1;
        }
    }
    assert_eq!(counts[1..], [11, 92, 7]);
    assert!(counts[0] > 20);
}

/// A damaged version is detected by the following fields; magic bytes of another format are not a version.
#[test]
fn rejects_magic_bytes_of_other_formats() {
    let path = testdata("paddle/good/p262/cnn_legacy_separate");
    let mut files = Vec::new();
    files_below(&path, &mut files);
    let mut bytes = files
        .into_iter()
        .map(|path| std::fs::read(path).unwrap())
        .find(|bytes| kind(bytes) == Some(StreamKind::Dense))
        .unwrap();
    for (version, known) in
        [(*b"\0\0\x10\0", true), (*b"PK\x03\x04", false), (*b"PK\x05\x06", false), (*b"PAR1", false)]
    {
        bytes[..4].copy_from_slice(&version);
        assert_eq!(kind(&bytes).is_some(), known, "{version:?}");
    }
}

#[test]
fn rejects_files_of_other_formats() {
    let mut count = 0;
    for family in ["npy", "npz", "primitiv", "safetensors", "show"] {
        let mut files = Vec::new();
        files_below(&testdata(family), &mut files);
        for path in files {
            let bytes = std::fs::read(&path).unwrap();
            let counted = Arc::new(CountingSource::new(memory(&bytes)));
            let source: SourceRef = counted.clone();
            assert_eq!(detect(&source, &Limits::default()), None, "{path:?}");
            assert!(counted.bytes_read() <= 3000, "{path:?}: {}", counted.bytes_read());
            count += 1;
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn rejects_beginnings_of_other_files() {
    let long = |head: &[u8]| [head, &vec![0x41; 10_000]].concat();
    let safetensors = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut sized = (safetensors.len() as u64).to_le_bytes().to_vec();
    sized.extend(safetensors);
    sized.extend([0; 4]);
    let files = [
        ("safetensors", sized),
        ("npy", long(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'")),
        ("zip", long(b"PK\x03\x04\x14\0\0\0\0\0")),
        ("pickle", long(b"\x80\x02}q\x00X\x01\0\0\0aq\x01")),
        ("small pickle", b"\x80\x02}q\x00.".to_vec()),
        ("protobuf", long(b"\x0a\x9a\x02\x08\0\x10\0\x1a")),
        ("primitiv", long(b"\xce\0\0\0\0\xce\0\0\0\x01\xce\0\0\0\0")),
        ("hdf5", long(b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0")),
        ("json", long(br#"{"base_code":{"magic":"pir"}}"#)),
        ("text", long(b"model")),
        ("zeros", vec![0; 10_000]),
        ("one zero", vec![0]),
        ("eight zeros", vec![0; 8]),
        ("ones", vec![0xff; 10_000]),
        ("small numbers", (0..5000u64).flat_map(u64::to_le_bytes).collect()),
        ("small numbers from 1", (1..5000u64).flat_map(u64::to_le_bytes).collect()),
        ("u32s", (0..5000u32).flat_map(u32::to_le_bytes).collect()),
        ("ones of u64", [1u64; 1000].into_iter().flat_map(u64::to_le_bytes).collect()),
        ("empty", vec![]),
    ];
    for (name, bytes) in files {
        assert_eq!(kind(&bytes), None, "{name}");
    }
}

#[test]
fn detects_vocabularies_among_tensors() {
    let words = |words: &[(&str, i32)]| {
        let words: Vec<_> = words.iter().map(|&(word, id)| (word.into(), id)).collect();
        written(|file| {
            vocab::write(file, &words);
            Ok(())
        })
    };
    let (one, other) = (words(&[("a", 0), ("权", 7)]), words(&[("b", 1)]));
    assert_eq!(kind(&one), Some(StreamKind::Vocab));
    for (parts, kinds) in [
        (vec![&one, &other], vec![Kind::Vocab; 2]),
        (vec![&floats(2), &one], vec![Kind::Dense, Kind::Vocab]),
        (
            vec![&one, &floats(2), &floats(0), &other],
            vec![Kind::Vocab, Kind::Dense, Kind::Dense, Kind::Vocab],
        ),
    ] {
        let bytes: Vec<u8> = parts.into_iter().flatten().copied().collect();
        assert_eq!(kind(&bytes), Some(StreamKind::VocabCombined));
        assert_eq!(combined::kinds(&memory(&bytes), &Limits::default()), Some(kinds));
    }
    // A vocabulary declared by a program, and content that only a program can identify.
    for (odd, count) in [
        (words(&[]), 0),
        (words(&[("", 0)]), 1),
        (words(&[("a", -1)]), 1),
        (words(&[("a", 0), ("a", 1)]), 2),
        (words(&[("a\n", 0)]), 1),
        (b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\xff\0\0\0\0".to_vec(), 1),
    ] {
        let read = read_vocab(&odd).unwrap();
        assert_eq!((read.words.len(), read.stream_bytes), (count, odd.len() as u64));
        assert_eq!(kind(&odd), None, "{odd:?}");
    }
}

#[test]
fn detects_truncated_and_extended_files() {
    let whole = good("p262/combined_mixed/all.pdiparams");
    for end in 23..whole.len() {
        let found = kind(&whole[..end]);
        // The first tensor has 58 bytes, its header 26.
        let expected = match end {
            ..26 => StreamKind::Combined,
            26..=58 => StreamKind::Dense,
            _ => StreamKind::Combined,
        };
        assert_eq!(found, Some(expected), "{end}");
    }
    let rows = good("p262/selected_rows/f32_3rows.bin");
    for end in 58..rows.len() {
        assert_eq!(kind(&rows[..end]), Some(StreamKind::SelectedRows), "{end}");
    }
    assert_eq!(kind(&[&rows[..], b"x"].concat()), Some(StreamKind::SelectedRows));
}

#[test]
fn detects_long_files_from_their_beginning() {
    let bytes = floats(100).repeat(20_000);
    let counted = Arc::new(CountingSource::new(memory(&bytes)));
    let source: SourceRef = counted.clone();
    assert_eq!(source.len(), 424 * 20_000);
    assert_eq!(detect(&source, &Limits::default()), Some(StreamKind::Combined));
    assert!(counted.bytes_read() < 4096, "{}", counted.bytes_read());
}
