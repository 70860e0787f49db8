//! Damaged files give errors or other values, never a panic, a hang or a large allocation.

use super::{file, folder, open};
use crate::{Contents, Kind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weighbridge_core::checkpoint::TensorPath;

/// Maximum length of entries that are read: a damaged shape may describe endless fill values.
const MAX_LEN: u64 = 1 << 20;

/// Reads all readable tensors. Returns their number.
fn read_all(contents: &Contents) -> usize {
    let mut read = 0;
    for item in &contents.items {
        let Some(dataset) = &item.dataset else { continue };
        if dataset.kind == Kind::Text {
            read += usize::from(dataset.texts(MAX_LEN).is_ok());
        }
        let Ok(entry) = dataset.entry(TensorPath::value()) else { continue };
        let covered: u64 = entry.extents.iter().map(|extent| extent.len).sum();
        assert_eq!(covered, entry.bytes(), "extents cover the tensor");
        assert!(entry.extents.iter().all(|extent| extent.region(&entry.shape).fits(&entry.shape)));
        if entry.bytes() > MAX_LEN {
            continue;
        }
        read += usize::from(entry.read_tensor(weighbridge_core::tensor::Order::Row).is_ok());
    }
    read
}

/// Deterministic random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const EDGES: [u64; 8] = [0, 1, u64::MAX, 1 << 31, 1 << 63, 0xffff, 0x7fff_ffff, 512];
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        match dice.below(5) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.below(256) as u8,
            2 => {
                let end = (at + 1 + dice.below(12)).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
            3 => {
                let value = EDGES[dice.below(8)].to_le_bytes();
                let len = [1, 2, 4, 8][dice.below(4)].min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&value[..len]);
            }
            _ if dice.below(20) == 0 => bytes.truncate(at.max(1)),
            _ => {
                let from = dice.below(bytes.len());
                let len = (1 + dice.below(16)).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
        }
    }
}

#[test]
fn damaged_files_never_panic() {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        // The two wide files are repetitive.
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".h5") && !name.starts_with("many") {
            files.push(file(&name));
        }
    }
    assert_eq!(files.len(), 8);
    let start = Instant::now();
    let (mut dice, mut opened, mut read, mut slowest) = (Dice(1), 0, 0, Duration::ZERO);
    let small = small_files();
    for round in 0..100_000 {
        // Mostly small files, in which each byte matters; sometimes the rich ones.
        let mut bytes = match round % 50 {
            0 => files[round / 50 % files.len()].clone(),
            _ => small[round % small.len()].clone(),
        };
        damage(&mut bytes, &mut dice);
        let began = Instant::now();
        if let Ok(contents) = open(bytes) {
            opened += 1;
            read += read_all(&contents);
        }
        slowest = slowest.max(began.elapsed());
    }
    assert!(opened > 20_000 && read > 20_000, "{opened} opened, {read} tensors read");
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    assert!(start.elapsed() < Duration::from_secs(600), "{:?}", start.elapsed());
}

/// Small files: see judges/make_hdf5.py.
fn small_files() -> Vec<Vec<u8>> {
    let folder = folder().join("../small");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        files.push(std::fs::read(entry.unwrap().path()).unwrap());
    }
    assert!(files.len() >= 8);
    files
}

/// Files of ../testdata/hdf5/bad, each with a JSON file of its expected error.
#[test]
fn contradictions_are_errors() {
    let bad = folder().join("../bad");
    let mut seen = 0;
    for entry in std::fs::read_dir(&bad).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "h5") {
            continue;
        }
        let expected = std::fs::read_to_string(format!("{}.json", path.display())).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
        let contents = open(std::fs::read(&path).unwrap()).unwrap();
        let datasets = contents.items.iter().filter_map(|item| item.dataset.as_ref());
        let unread = datasets.map(|dataset| dataset.entry(TensorPath::value()).unwrap_err());
        for error in unread.chain(contents.problems.into_iter().map(|problem| problem.error)) {
            assert_eq!(error.code().as_str(), expected["code"], "{}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 1);
}

#[test]
fn unwritten_chunks_share_one_source() {
    let contents = open(file("layouts_default.h5")).unwrap();
    let some = contents.items.iter().find(|item| item.path == ["some"]).unwrap();
    let entry = some.dataset.as_ref().unwrap().entry(TensorPath::value()).unwrap();
    let unwritten: Vec<_> =
        entry.extents.iter().map(|extent| &extent.source).filter(|s| s.len() < 100).collect();
    assert!(unwritten.len() > 1, "{unwritten:?}");
    assert!(unwritten.windows(2).all(|pair| Arc::ptr_eq(pair[0], pair[1])));
}

#[test]
fn every_prefix_of_a_file_is_an_error_or_has_a_problem() {
    for whole in small_files() {
        for len in 0..whole.len() {
            if let Ok(contents) = open(whole[..len].to_vec()) {
                assert!(!contents.problems.is_empty(), "{len} of {}", whole.len());
                read_all(&contents);
            }
        }
    }
}
