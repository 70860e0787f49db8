#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::outside::{Algorithm, Outside};
use super::record::{decode, encode};
use super::*;
use crate::source::{FileSource, SourceRef};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};

/// Disk that forwards calls until a simulated crash; later calls have no effect.
#[derive(Debug, Clone)]
struct Stopping {
    calls: Rc<Cell<u64>>,
    stop_at: u64,
    how: Stop,
    /// True where later calls work again: a failed call instead of a crash.
    recovers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stop {
    Before,
    /// Half of the bytes are written.
    Torn,
    After,
}

impl Stopping {
    fn new(stop_at: u64, how: Stop, recovers: bool) -> Self {
        Self { calls: Rc::new(Cell::new(0)), stop_at, how, recovers }
    }

    fn pass<T>(&self, half: impl FnOnce(), call: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        let stopped = || Error::io("stopped on purpose", std::io::Error::other("test"));
        if number < self.stop_at || (number > self.stop_at && self.recovers) {
            return call();
        }
        if number == self.stop_at {
            match self.how {
                Stop::Before => {}
                Stop::Torn => half(),
                Stop::After => drop(call()),
            }
        }
        Err(stopped())
    }
}

impl PatchDisk for Stopping {
    fn open(&self, path: &Path) -> Result<Box<dyn PatchFile>> {
        let inner = LocalPatchDisk.open(path)?;
        Ok(Box::new(StoppingFile { inner, disk: self.clone() }))
    }
    fn exists(&self, path: &Path) -> bool {
        LocalPatchDisk.exists(path)
    }
    fn read(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        LocalPatchDisk.read(path, most)
    }
    fn keep(&self, path: &Path, bytes: &[u8], like: &Path) -> Result<()> {
        self.pass(|| (), || LocalPatchDisk.keep(path, bytes, like))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.pass(|| (), || LocalPatchDisk.remove(path))
    }
}

#[derive(Debug)]
struct StoppingFile {
    inner: Box<dyn PatchFile>,
    disk: Stopping,
}

impl PatchFile for StoppingFile {
    fn fingerprint(&self) -> Result<Fingerprint> {
        self.inner.fingerprint()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let half = || drop(self.inner.write_at(offset, &bytes[..bytes.len() / 2]));
        self.disk.pass(half, || self.inner.write_at(offset, bytes))
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.pass(|| (), || self.inner.set_len(len))
    }
    fn sync(&self) -> Result<()> {
        self.disk.pass(|| (), || self.inner.sync())
    }
}

/// The old file, and patches of it: of the same length, longer, shorter.
fn cases() -> Vec<(Vec<u8>, Patch, Vec<u8>)> {
    let old: Vec<u8> = (0..100).collect();
    let range = |offset: usize, len: usize, new: &[u8]| PatchRange {
        offset: offset as u64,
        old: old[offset..(offset + len).min(100)].to_vec(),
        new: new.to_vec(),
    };
    let build = |ranges: Vec<PatchRange>, new_len: u64| {
        let mut new = old.clone();
        new.resize(usize::try_from(new_len).unwrap(), 0);
        for range in &ranges {
            let at = usize::try_from(range.offset).unwrap();
            new[at..at + range.new.len()].copy_from_slice(&range.new);
        }
        (old.clone(), Patch { old_len: 100, new_len, ranges }, new)
    };
    vec![
        build(vec![range(0, 8, &[200; 8]), range(40, 4, &[201; 4])], 100),
        build(vec![range(0, 8, &[200; 8]), range(90, 10, &[201; 30])], 120),
        build(vec![range(3, 5, &[200; 5]), range(80, 20, &[201; 7])], 87),
        build(vec![range(100, 0, &[202; 5])], 105),
        build(vec![range(95, 5, &[])], 95),
    ]
}

struct Target {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
}

fn place(bytes: &[u8]) -> Target {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.bin");
    fs::write(&path, bytes).unwrap();
    Target { _dir: dir, path }
}

/// Checks that nothing is beside the file except, with `record`, its undo record.
fn assert_no_leftovers(place: &Target, record: bool) {
    let count = fs::read_dir(place.path.parent().unwrap()).unwrap().count();
    assert_eq!((count, Patch::record_path(&place.path).exists()), (1 + usize::from(record), record));
}

#[test]
fn a_patch_is_written_and_undone() {
    for (old, patch, new) in cases() {
        let place = place(&old);
        let seen = Fingerprint::of(&place.path).unwrap();
        Patch::write(&LocalPatchDisk, &place.path, &seen, &patch).unwrap();
        assert_eq!(fs::read(&place.path).unwrap(), new);
        assert_no_leftovers(&place, true);
        // A second edit must not replace the undo record.
        let seen = Fingerprint::of(&place.path).unwrap();
        let back = Patch { old_len: patch.new_len, new_len: patch.old_len, ranges: Vec::new() };
        if !back.is_empty() {
            assert_eq!(
                Patch::write(&LocalPatchDisk, &place.path, &seen, &back).unwrap_err().code().as_str(),
                "undo-exists"
            );
        }
        Patch::undo(&LocalPatchDisk, &place.path).unwrap();
        assert_eq!(fs::read(&place.path).unwrap(), old);
        assert_no_leftovers(&place, false);
        assert_eq!(Patch::undo(&LocalPatchDisk, &place.path).unwrap_err().code().as_str(), "no-undo-record");

        let seen = Fingerprint::of(&place.path).unwrap();
        Patch::write(&LocalPatchDisk, &place.path, &seen, &patch).unwrap();
        Patch::forget(&LocalPatchDisk, &place.path).unwrap();
        assert_eq!(fs::read(&place.path).unwrap(), new);
        assert_no_leftovers(&place, false);
    }
}

/// The machine crashes before, during or after any step.
#[test]
fn old_bytes_are_restored_after_a_crash_at_any_step() {
    for (old, patch, new) in cases() {
        let steps = {
            let place = place(&old);
            let disk = Stopping::new(u64::MAX, Stop::Before, false);
            Patch::write(&disk, &place.path, &Fingerprint::of(&place.path).unwrap(), &patch).unwrap();
            disk.calls.get()
        };
        assert!(steps >= 3, "a record, a write, a sync");
        for stop_at in 1..=steps {
            for how in [Stop::Before, Stop::Torn, Stop::After] {
                let place = place(&old);
                let seen = Fingerprint::of(&place.path).unwrap();
                let disk = Stopping::new(stop_at, how, false);
                Patch::write(&disk, &place.path, &seen, &patch).unwrap_err();
                let there = fs::read(&place.path).unwrap();
                if Patch::record_path(&place.path).exists() {
                    // The undo crashes too, at each of its steps, and is repeated.
                    for undo_stop in 1..=6 {
                        for how in [Stop::Before, Stop::Torn, Stop::After] {
                            if Patch::record_path(&place.path).exists() {
                                let _ = Patch::undo(&Stopping::new(undo_stop, how, false), &place.path);
                            }
                        }
                    }
                    if Patch::record_path(&place.path).exists() {
                        Patch::undo(&LocalPatchDisk, &place.path).unwrap();
                    }
                } else {
                    assert!(there == old, "without a record nothing was changed");
                }
                assert_eq!(fs::read(&place.path).unwrap(), old, "step {stop_at} {how:?}");
                assert_no_leftovers(&place, false);

                // After a mere failure the old bytes are restored at once.
                let disk = Stopping::new(stop_at, how, true);
                let seen = Fingerprint::of(&place.path).unwrap();
                Patch::write(&disk, &place.path, &seen, &patch).unwrap_err();
                assert_eq!(fs::read(&place.path).unwrap(), old);
                assert_no_leftovers(&place, false);
            }
        }
        assert_ne!(old, new);
    }
}

#[test]
fn forget_refuses_a_half_written_file() {
    let (old, patch, _) = cases().remove(0);
    let place = place(&old);
    let seen = Fingerprint::of(&place.path).unwrap();
    Patch::write(&Stopping::new(2, Stop::Torn, false), &place.path, &seen, &patch).unwrap_err();
    assert_eq!(Patch::forget(&LocalPatchDisk, &place.path).unwrap_err().code().as_str(), "half-written");
    assert_eq!(Patch::undo(&LocalPatchDisk, &place.path).unwrap(), 12);
    assert_eq!(fs::read(&place.path).unwrap(), old);
}

#[test]
fn write_and_undo_refuse_modified_files() {
    let (old, patch, new) = cases().remove(0);
    let place = place(&old);
    let seen = Fingerprint::of(&place.path).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut other = old.clone();
    other[50] = 7;
    fs::write(&place.path, &other).unwrap();
    assert_eq!(
        Patch::write(&LocalPatchDisk, &place.path, &seen, &patch).unwrap_err().code().as_str(),
        "changed-meanwhile"
    );
    assert_eq!(fs::read(&place.path).unwrap(), other);
    assert_no_leftovers(&place, false);

    fs::write(&place.path, &old).unwrap();
    Patch::write(&LocalPatchDisk, &place.path, &Fingerprint::of(&place.path).unwrap(), &patch).unwrap();
    let mut later = new;
    later[2] = 99;
    fs::write(&place.path, &later).unwrap();
    assert_eq!(Patch::undo(&LocalPatchDisk, &place.path).unwrap_err().code().as_str(), "changed-since");
    assert_eq!(fs::read(&place.path).unwrap(), later);
    Patch::forget(&LocalPatchDisk, &place.path).unwrap();
}

/// Any later change, also outside the edited ranges, makes the undo fail without writing.
#[test]
fn undo_never_writes_to_a_modified_file() {
    for (old, patch, new) in cases() {
        let ranges: Vec<_> = patch.ranges.iter().map(|r| r.offset..r.offset + r.new.len() as u64).collect();
        for at in 0..new.len() {
            let place = place(&old);
            Patch::write(&LocalPatchDisk, &place.path, &Fingerprint::of(&place.path).unwrap(), &patch)
                .unwrap();
            let mut later = new.clone();
            later[at] = 255;
            if later == new {
                continue;
            }
            fs::write(&place.path, &later).unwrap();
            let done = Patch::undo(&LocalPatchDisk, &place.path);
            let inside = ranges.iter().any(|range| range.contains(&(at as u64)));
            // Beyond the old end there were only new bytes, and the bytes left there by an interrupted edit are
            // unknown.
            if inside && at >= old.len() {
                continue;
            }
            assert_eq!(done.unwrap_err().code().as_str(), "changed-since", "byte {at}");
            assert_eq!(fs::read(&place.path).unwrap(), later);
            assert_no_leftovers(&place, true);
        }
    }
    // Old bytes in the edited ranges do not suffice: a byte outside them differs.
    let (old, patch, _) = cases().remove(0);
    let place = place(&old);
    Patch::write(&LocalPatchDisk, &place.path, &Fingerprint::of(&place.path).unwrap(), &patch).unwrap();
    let mut later = old;
    later[99] = 0;
    fs::write(&place.path, &later).unwrap();
    assert_eq!(Patch::undo(&LocalPatchDisk, &place.path).unwrap_err().code().as_str(), "changed-since");
    assert_eq!(fs::read(&place.path).unwrap(), later);
}

#[test]
fn a_record_without_its_file_can_be_forgotten() {
    let (old, patch, _) = cases().remove(0);
    let place = place(&old);
    Patch::write(&LocalPatchDisk, &place.path, &Fingerprint::of(&place.path).unwrap(), &patch).unwrap();
    fs::remove_file(&place.path).unwrap();
    assert_eq!(Patch::undo(&LocalPatchDisk, &place.path).unwrap_err().code().as_str(), "not-found");
    Patch::forget(&LocalPatchDisk, &place.path).unwrap();
    assert!(!Patch::record_path(&place.path).exists());
}

#[test]
fn concurrent_writers_are_refused() {
    let (old, patch, _) = cases().remove(0);
    let place = place(&old);
    let seen = Fingerprint::of(&place.path).unwrap();
    let held = LocalPatchDisk.open(&place.path).unwrap();
    assert_eq!(
        Patch::write(&LocalPatchDisk, &place.path, &seen, &patch).unwrap_err().code().as_str(),
        "locked"
    );
    drop(held);
    Patch::write(&LocalPatchDisk, &place.path, &seen, &patch).unwrap();
}

#[test]
fn damaged_records_are_refused() {
    for (_, patch, _) in cases() {
        let outside = Outside { algorithm: Algorithm::Sha256, hash: [7; 32] };
        let record = encode(&patch, &outside);
        assert_eq!(decode(&record).unwrap(), (patch, outside));
        for at in 0..record.len() {
            let mut damaged = record.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err());
            assert!(decode(&record[..at]).is_err());
        }
    }
    // With a valid checksum, but inconsistent lengths.
    let inconsistent = [
        Patch {
            old_len: 4,
            new_len: 4,
            ranges: vec![PatchRange { offset: u64::MAX, old: vec![1], new: vec![2] }],
        },
        Patch {
            old_len: 4,
            new_len: 4,
            ranges: vec![PatchRange { offset: 0, old: vec![1], new: vec![2, 3] }],
        },
        Patch { old_len: 4, new_len: 9, ranges: Vec::new() },
        // The old length exceeds, or is below, the recorded ranges.
        Patch {
            old_len: 1 << 40,
            new_len: 2,
            ranges: vec![PatchRange { offset: 0, old: vec![1, 1], new: vec![2, 2] }],
        },
        Patch {
            old_len: 1,
            new_len: 2,
            ranges: vec![PatchRange { offset: 0, old: Vec::new(), new: vec![2, 2] }],
        },
        Patch {
            old_len: 1,
            new_len: 1,
            ranges: vec![PatchRange { offset: 0, old: vec![1, 1], new: vec![2, 2] }],
        },
    ];
    for patch in inconsistent {
        assert_eq!(
            decode(&encode(&patch, &Outside { algorithm: Algorithm::Sha256, hash: [0; 32] }))
                .unwrap_err()
                .code()
                .as_str(),
            "bad-undo-record"
        );
    }
}

#[cfg(unix)]
#[test]
fn links_hard_links_and_read_only_files_are_refused() {
    let place = place(&[1, 2, 3]);
    let folder = place.path.parent().unwrap();
    std::os::unix::fs::symlink(&place.path, folder.join("link")).unwrap();
    let code = |path: &Path| Fingerprint::of(path).unwrap_err().code().as_str();
    assert_eq!(code(&folder.join("link")), "link");
    // A record beside the link does not permit an undo through it.
    let patch =
        Patch { old_len: 3, new_len: 3, ranges: vec![PatchRange { offset: 0, old: vec![9], new: vec![1] }] };
    let mut record = place.path.with_file_name("link").into_os_string();
    record.push(".weighbridge-undo");
    fs::write(&record, encode(&patch, &Outside { algorithm: Algorithm::Sha256, hash: [0; 32] })).unwrap();
    assert_eq!(Patch::undo(&LocalPatchDisk, &folder.join("link")).unwrap_err().code().as_str(), "link");
    assert_eq!(fs::read(&place.path).unwrap(), [1, 2, 3]);
    assert_eq!(code(folder), "not-a-file");
    assert_eq!(code(&folder.join("none")), "not-found");
    fs::hard_link(&place.path, folder.join("other")).unwrap();
    assert_eq!(code(&place.path), "several-names");
    fs::remove_file(folder.join("other")).unwrap();
    let mut rights = fs::metadata(&place.path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&place.path, rights).unwrap();
    assert_eq!(code(&place.path), "read-only");
}

/// A hard link made since the edit keeps the new version; a half-written file is restored under all names.
#[cfg(unix)]
#[test]
fn undo_does_not_change_hard_links_made_since_the_edit() {
    for (old, patch, new) in cases() {
        let place = place(&old);
        let link = place.path.with_file_name("link");
        Patch::write(&LocalPatchDisk, &place.path, &Fingerprint::of(&place.path).unwrap(), &patch).unwrap();
        fs::hard_link(&place.path, &link).unwrap();
        let error = Patch::undo(&LocalPatchDisk, &place.path).unwrap_err();
        assert_eq!(error.code().as_str(), "several-names");
        assert!(error.hint_text().unwrap().contains("cp FILE NEW"), "{error}");
        assert_eq!(fs::read(&link).unwrap(), new);
        // The steps of the hint.
        let copy = place.path.with_file_name("copy");
        fs::copy(&place.path, &copy).unwrap();
        fs::rename(&copy, &place.path).unwrap();
        Patch::undo(&LocalPatchDisk, &place.path).unwrap();
        assert_eq!((fs::read(&place.path).unwrap(), fs::read(&link).unwrap()), (old.clone(), new));

        // The first range is written, or half of it.
        fs::remove_file(&link).unwrap();
        let seen = Fingerprint::of(&place.path).unwrap();
        let disk = Stopping::new(2, Stop::Torn, false);
        Patch::write(&disk, &place.path, &seen, &patch).unwrap_err();
        fs::hard_link(&place.path, &link).unwrap();
        Patch::undo(&LocalPatchDisk, &place.path).unwrap();
        assert_eq!((fs::read(&place.path).unwrap(), fs::read(&link).unwrap()), (old.clone(), old));
    }
}

fn found(old: &Target, file: FileBuilder) -> Result<Patch> {
    let source: SourceRef = Arc::new(FileSource::open(&old.path).unwrap());
    let plan = WritePlan { format: "", kind: "", files: vec![file.finish()], losses: Vec::new() };
    Patch::find(&plan, &source, &crate::engine::RunOptions::default())
}

#[test]
fn differing_ranges_are_found() {
    use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
    use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
    // A header, a checksum, three megabytes of data, and a trailer.
    let mut bytes = b"HEADER01".to_vec();
    let data: Vec<u8> = (0..3u32 << 20).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    bytes.extend(crc32fast::hash(&data).to_le_bytes());
    bytes.extend(&data);
    bytes.extend(b"the end");
    let old = place(&bytes);
    let source: SourceRef = Arc::new(FileSource::open(&old.path).unwrap());
    let entry = |offset| {
        let shape = Shape::from([3 << 20]);
        TensorEntry::dense(TensorPath::value(), DType::U8, shape, &source, offset, Encoding::ROW).unwrap()
    };
    let file = |head: &[u8], offset: u64, end: &[u8]| {
        let mut file = FileBuilder::new("");
        file.literal(head);
        let data = file.position() + 4..file.position() + 4 + (3 << 20);
        file.crc32(data);
        file.tensor(&entry(offset), Order::Row).unwrap();
        file.literal(end);
        file
    };
    assert!(found(&old, file(b"HEADER01", 12, b"the end")).unwrap().is_empty());
    let patch = found(&old, file(b"HEADxR01", 12, b"the end.")).unwrap();
    let end = 12 + (3 << 20);
    assert_eq!(
        patch.ranges,
        [
            PatchRange { offset: 4, old: vec![b'E'], new: vec![b'x'] },
            PatchRange { offset: end + 7, old: vec![], new: vec![b'.'] },
        ]
    );
    assert_eq!((patch.old_len, patch.new_len), (end + 7, end + 8));
    let patch = found(&old, file(b"HEADER01", 12, b"the")).unwrap();
    assert_eq!(patch.ranges, [PatchRange { offset: end + 3, old: b" end".to_vec(), new: vec![] }]);
    // Elements would move or change.
    assert_eq!(found(&old, file(b"HEADER0001", 12, b"")).unwrap_err().code().as_str(), "data-would-move");
    assert_eq!(
        found(&old, file(b"HEADER01", 11, b"the end")).unwrap_err().code().as_str(),
        "data-would-move"
    );
    let mut cast = FileBuilder::new("");
    cast.literal(b"HEADER01");
    let mut half = entry(12);
    half.cast = Some(DType::F16.into());
    cast.tensor(&half, Order::Row).unwrap();
    assert_eq!(found(&old, cast).unwrap_err().code().as_str(), "data-would-move");
}
