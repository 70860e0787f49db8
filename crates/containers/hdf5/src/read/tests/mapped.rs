//! Virtual datasets read as h5py reads them, or are errors; see `make_virtual` in judges/make_hdf5.py.

use crate::read::sums::lookup3;
use crate::{Contents, SiblingFiles, read, read_with_siblings};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::{FolderRef, LocalFolder, MemoryFolder, MemorySource, SourceRef};

fn folder() -> PathBuf {
    super::folder().join("../virtual")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn expected() -> BTreeMap<String, String> {
    serde_json::from_slice(&file("expected.json")).unwrap()
}

/// Source files of the virtual datasets.
fn sources() -> FolderRef {
    let names = ["part_0.h5", "part_1.h5", "100%.h5"];
    Arc::new(names.iter().fold(MemoryFolder::new("memory"), |all, name| all.with(name, file(name))))
}

fn open_in(bytes: Vec<u8>, folder: &FolderRef, name: &str) -> Result<Contents> {
    let source: SourceRef = Arc::new(MemorySource::new(name, bytes));
    let limits = Limits::default();
    read_with_siblings(
        &source,
        SiblingFiles::new(source.clone(), Some((folder.clone(), name.into())), &limits),
        &limits,
    )
}

/// Returns the elements of a dataset; checks that any part equals that part of the whole.
fn elements(contents: &Contents, name: &str) -> Result<Vec<u8>> {
    if let Some(problem) = contents.problems.iter().find(|problem| problem.path == [name]) {
        let error = &problem.error;
        return Err(Error::new(error.kind(), error.code().as_str(), error.message()));
    }
    let item = contents.items.iter().find(|item| item.path == [name]);
    let item = item.ok_or_else(|| Error::corrupt("not-listed", "no such dataset"))?;
    let entry = item.dataset.as_ref().unwrap().entry(TensorPath::value())?;
    let extent = entry.single_extent().unwrap();
    let mut whole = vec![0; extent.len as usize];
    extent.source.read_at(extent.offset, &mut whole)?;
    for from in 0..whole.len() {
        for len in [1, 2, 7, 30] {
            let Some(part) = whole.get(from..from + len) else { continue };
            let mut buffer = vec![0xAA; len];
            extent.source.read_at(extent.offset + from as u64, &mut buffer).unwrap();
            assert_eq!(buffer, part, "{name} {from} {len}");
        }
    }
    entry.read_tensor(Order::Row)
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn virtual_datasets_read_as_h5py_reads_them() {
    let (mut expected, local) = (expected(), LocalFolder::open(folder()).unwrap());
    let small = expected.remove("small").unwrap();
    let local: FolderRef = Arc::new(local);
    for form in ["default", "latest"] {
        for folder in [&local, &sources()] {
            let name = format!("maps_{form}.h5");
            let contents = open_in(file(&name), folder, &name).unwrap();
            assert!(contents.problems.is_empty());
            for (name, wanted) in &expected {
                assert_eq!(&hash(&elements(&contents, name).unwrap()), wanted, "{form} {name}");
            }
            let name = format!("small_{form}.h5");
            let contents = open_in(file(&name), folder, &name).unwrap();
            assert_eq!(hash(&elements(&contents, "v").unwrap()), small, "{form}");
        }
    }
}

#[test]
fn virtual_datasets_need_the_option() {
    for name in ["maps_default.h5", "maps_latest.h5", "refused.h5"] {
        let source: SourceRef = Arc::new(MemorySource::new(name, file(name)));
        let contents = read(&source, &Limits::default()).unwrap();
        assert_eq!(contents.items.iter().map(|item| item.path.join("/")).collect::<Vec<_>>(), ["here"]);
        assert!(contents.problems.len() > 15);
        for problem in contents.problems {
            assert_eq!(
                (problem.error.code().as_str(), problem.error.kind()),
                ("hdf5-virtual", Kind::Unsupported)
            );
            assert!(problem.error.hint_text().unwrap().contains("`follow-virtual`"));
        }
    }
}

#[test]
fn rejects_sources_that_cannot_be_followed() {
    let local: FolderRef = Arc::new(LocalFolder::open(folder()).unwrap());
    for folder in [local, sources()] {
        let contents = open_in(file("refused.h5"), &folder, "refused.h5").unwrap();
        assert!(contents.problems.is_empty());
        let mut seen = 0;
        for item in &contents.items {
            let Some((code, _)) = item.path[0].split_once('~') else { continue };
            let error = item.dataset.as_ref().unwrap().entry(TensorPath::value()).unwrap_err();
            assert_eq!(error.code().as_str(), code, "{:?} {error}", item.path);
            assert!(error.found_text().is_some() || code == "hdf5-type", "{error}");
            let is_hinted = error.hint_text().is_some() || ["hdf5-corrupt", "hdf5-type"].contains(&code);
            assert!(is_hinted, "{error}");
            seen += 1;
        }
        assert!(seen > 22, "{seen}");
    }
    // A source without a folder has no siblings.
    let source: SourceRef = Arc::new(MemorySource::new("alone", file("maps_latest.h5")));
    let limits = Limits::default();
    let contents =
        read_with_siblings(&source, SiblingFiles::new(source.clone(), None, &limits), &limits).unwrap();
    assert_eq!(elements(&contents, "rows").unwrap_err().code().as_str(), "hdf5-virtual-missing");
    assert_eq!(hash(&elements(&contents, "own").unwrap()), expected()["own"]);
}

#[test]
fn rejects_damaged_and_open_source_files() {
    let cut = file("part_0.h5");
    let cut = cut[..cut.len() - 1].to_vec();
    let opened = std::fs::read(super::folder().join("../rules/killed.h5")).unwrap();
    for (bytes, code) in [(cut, "truncated"), (opened, "hdf5-open"), (b"no HDF5".to_vec(), "hdf5-magic")] {
        let folder = MemoryFolder::new("m").with("part_0.h5", bytes).with("part_1.h5", file("part_1.h5"));
        let folder: FolderRef = Arc::new(folder);
        let contents = open_in(file("small_latest.h5"), &folder, "small_latest.h5").unwrap();
        let error = elements(&contents, "v").unwrap_err();
        assert_eq!((error.code().as_str(), error.file()), (code, Some("m/part_0.h5")), "{error}");
    }
}

#[test]
fn every_prefix_is_an_error() {
    let sources = sources();
    for form in ["small_default.h5", "small_latest.h5"] {
        let whole = file(form);
        for len in 0..whole.len() {
            if let Ok(contents) = open_in(whole[..len].to_vec(), &sources, form) {
                assert!(!contents.problems.is_empty(), "{form} {len}");
                let _ = elements(&contents, "v");
            }
        }
    }
}

/// Byte range of the mapping list in a file.
fn block(bytes: &[u8]) -> std::ops::Range<usize> {
    let heap = memchr::memmem::find(bytes, b"GCOL").unwrap();
    let len = u64::from_le_bytes(bytes[heap + 24..heap + 32].try_into().unwrap());
    heap + 32..heap + 32 + len as usize
}

#[test]
fn damage_is_an_error_or_changes_nothing() {
    let (sources, wanted) = (sources(), expected().remove("small").unwrap());
    for form in ["small_default.h5", "small_latest.h5"] {
        let whole = file(form);
        let own = block(&whole);
        for at in own.start - 32..own.end {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let found = open_in(bytes, &sources, form).and_then(|contents| elements(&contents, "v"));
                match found {
                    Ok(found) => {
                        assert_eq!(hash(&found), wanted, "{form} {at}");
                        assert!(!own.contains(&at), "{form} {at}");
                    }
                    Err(error) => assert!(error.kind() != Kind::Io, "{form} {at} {error}"),
                }
            }
        }
    }
}

/// Damage with a corrected checksum.
#[test]
fn crafted_mappings_never_panic() {
    let (sources, mut read, mut refused) = (sources(), 0, 0);
    let mut slowest = Duration::ZERO;
    for form in ["small_default.h5", "small_latest.h5"] {
        let whole = file(form);
        let own = block(&whole);
        for at in own.start..own.end - 4 {
            for value in [0, 1, 2, 3, 5, 0x7f, 0x80, 0xff] {
                for len in [1, 2, 4] {
                    let mut bytes = whole.clone();
                    let end = (at + len).min(own.end - 4);
                    bytes[at..end].fill(value);
                    let sum = lookup3(&bytes[own.start..own.end - 4]);
                    bytes[own.end - 4..own.end].copy_from_slice(&sum.to_le_bytes());
                    let began = Instant::now();
                    match open_in(bytes, &sources, form).and_then(|contents| elements(&contents, "v")) {
                        Ok(found) => {
                            assert_eq!(found.len(), 48);
                            read += 1;
                        }
                        Err(_) => refused += 1,
                    }
                    slowest = slowest.max(began.elapsed());
                }
            }
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} {refused}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}
