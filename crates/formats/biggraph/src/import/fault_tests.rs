//! Imports on disks that are full or lose files, and other interruptions.
#![allow(clippy::disallowed_methods)]

use super::tests::{Mortal, Rng, file, graph, graph_config, import_of, on_disk, text, tree};
use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weighbridge_io::engine::fault::FailingSink;
use weighbridge_io::engine::{DiskItem, DiskLock, Progress, StagedFile};
use weighbridge_io::source::FileRange;

/// Import with several chunks, its result, and the folder of both.
fn fixture(order: EntityOrder) -> (tempfile::TempDir, Import, BTreeMap<String, Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    let mut import = import_of(dir.path(), &config, [&graph(6000, 8, true), &graph(100, 9, true)]);
    import.order = order;
    (import.run.threads, import.run.memory) = (2, 8 << 20);
    let whole = dir.path().join("whole");
    import.run(&whole).unwrap();
    let expected = tree(&whole);
    (dir, import, expected)
}

fn local() -> Arc<dyn Disk> {
    Arc::new(LocalDisk)
}

/// Checks that nothing is visible but the work folder, continues the import, and removes its result.
fn continue_import(dir: &Path, import: &Import, expected: &BTreeMap<String, Vec<u8>>) -> bool {
    let visible = ["train.tsv", "test.tsv", "whole", ".data.import"];
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(visible.contains(&name.to_str().unwrap()), "{name:?} is left");
    }
    let target = dir.join("data");
    let report = import.run(&target).unwrap();
    assert!(tree(&target) == *expected);
    assert!(!dir.join(".data.import").exists());
    std::fs::remove_dir_all(&target).unwrap();
    report.resumed
}

#[test]
fn a_failure_while_the_target_is_written_leaves_no_target_and_continues_to_the_same_bytes() {
    let (dir, mut import, expected) = fixture(EntityOrder::Random);
    import.run.sync = true;
    let target = dir.path().join("data");
    let mut failures = 0;
    for fails_after in [false, true] {
        let mut call = 1;
        loop {
            let done = import.run_on(&target, &local(), &|sink| match fails_after {
                true => Box::new(FailingSink::after(sink, call)),
                false => Box::new(FailingSink::before(sink, call)),
            });
            let Err(error) = done else { break };
            failures += 1;
            assert_eq!(error.message(), "injected failure");
            assert!(error.to_string().contains("the same import continues"), "{error}");
            if target.exists() {
                // The failure was in a call after the target had become visible.
                assert!(tree(&target) == expected);
                assert_eq!(import.run(&target).unwrap_err().code().as_str(), "exists");
                std::fs::remove_dir_all(&target).unwrap();
            } else {
                assert!(continue_import(dir.path(), &import, &expected), "{call}");
            }
            call += 1 + call / 12;
        }
        assert!(tree(&target) == expected);
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert!(failures > 40, "{failures}");
}

/// Disk with a number of bytes that can still be written.
#[derive(Debug, Clone)]
struct Full(Arc<AtomicU64>);

impl Full {
    fn with(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }
}

#[derive(Debug)]
struct FullFile {
    inner: Box<dyn StagedFile>,
    disk: Full,
}

impl StagedFile for FullFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let take = |left: u64| Some(left.saturating_sub(len));
        let left = self.disk.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).unwrap();
        self.inner.write_at(offset, &bytes[..usize::try_from(left.min(len)).unwrap()])?;
        if left >= len {
            return Ok(());
        }
        Err(Error::io("cannot write to the file", std::io::Error::from(std::io::ErrorKind::StorageFull)))
    }

    fn copy_from(&self, _: FileRange<'_>, _: u64, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }
}

#[derive(Debug)]
struct FullSink(LocalSink, Full);

impl Sink for FullSink {
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        self.0.begin(files)
    }
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        Ok(Box::new(FullFile { inner: self.0.stage(file)?, disk: self.1.clone() }))
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn publish(&self) -> Result<()> {
        self.0.publish()
    }
    fn settle(&self) -> Result<()> {
        self.0.settle()
    }
    fn discard(&self) {
        self.0.discard();
    }
}

/// Forwards the calls of a disk that no test changes.
macro_rules! forward {
    () => {
        fn list(&self, folder: &Path) -> Result<Vec<DiskItem>> {
            LocalDisk.list(folder)
        }
        fn open(&self, path: &Path) -> Result<Option<SourceRef>> {
            LocalDisk.open(path)
        }
        fn truncate(&self, path: &Path) -> Result<()> {
            LocalDisk.truncate(path)
        }
        fn append(&self, path: &Path, bytes: &[u8]) -> Result<()> {
            LocalDisk.append(path, bytes)
        }
        fn sync_file(&self, path: &Path) -> Result<()> {
            LocalDisk.sync_file(path)
        }
        fn sync_folder(&self, path: &Path) -> Result<()> {
            LocalDisk.sync_folder(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> Result<()> {
            LocalDisk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> Result<()> {
            LocalDisk.remove(path)
        }
        fn link(&self, from: &Path, to: &Path) -> Result<()> {
            LocalDisk.link(from, to)
        }
        fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
            LocalDisk.symlink(target, path)
        }
        fn make_folder(&self, path: &Path) -> Result<()> {
            LocalDisk.make_folder(path)
        }
        fn remove_folder(&self, path: &Path) -> Result<()> {
            LocalDisk.remove_folder(path)
        }
        fn lock(&self, path: &Path) -> Result<DiskLock> {
            LocalDisk.lock(path)
        }
    };
}

impl Disk for Full {
    forward!();
    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>> {
        let inner = LocalDisk.create(path, len, like)?;
        Ok(Box::new(FullFile { inner, disk: self.clone() }))
    }
}

#[test]
fn a_full_disk_leaves_no_target_and_the_import_continues_to_the_same_bytes() {
    for order in [EntityOrder::Random, EntityOrder::Seen] {
        let (dir, import, expected) = fixture(order);
        let target = dir.path().join("data");
        let run = |full: &Full| {
            let disk: Arc<dyn Disk> = Arc::new(full.clone());
            import.run_on(&target, &disk, &|sink| Box::new(FullSink(sink, full.clone())))
        };
        // The number of bytes that the whole import writes.
        let large = Full::with(u64::MAX);
        run(&large).unwrap();
        let all = u64::MAX - large.0.load(Ordering::SeqCst);
        std::fs::remove_dir_all(&target).unwrap();
        let output: u64 = expected.values().map(|bytes| bytes.len() as u64).sum();
        // The files of the work folder are counted, too.
        assert!(all > output + output / 2, "{all} {output}");
        let mut continued = 0;
        for step in 0..32 {
            let error = run(&Full::with(all * step / 32)).unwrap_err();
            assert_eq!(error.code().as_str(), "storage-full", "{error}");
            continued += u64::from(continue_import(dir.path(), &import, &expected));
        }
        // The last step before the disk is large enough.
        assert_eq!(run(&Full::with(all - 1)).unwrap_err().code().as_str(), "storage-full");
        assert!(continue_import(dir.path(), &import, &expected));
        assert!(continued > 24, "{continued}");
    }
}

/// After a power failure any files may be missing or damaged.
#[test]
fn lost_and_damaged_steps_are_done_again() {
    for order in [EntityOrder::Random, EntityOrder::Sorted] {
        let (dir, import, expected) = fixture(order);
        let target = dir.path().join("data");
        let work = dir.path().join(".data.import");
        let mut rng = Rng(5);
        let (mut steps, mut damaged) = (2, 0);
        loop {
            let disk: Arc<dyn Disk> = Arc::new(Mortal { left: AtomicUsize::new(steps) });
            let done = on_disk(&import, &target, &disk);
            if target.exists() {
                assert!(steps > 40);
                break;
            }
            done.unwrap_err();
            let mut names: Vec<PathBuf> =
                std::fs::read_dir(&work).unwrap().map(|e| e.unwrap().path()).collect();
            names.retain(|path| !path.ends_with(weighbridge_io::engine::LOCK_NAME));
            names.sort();
            let share = 1 + rng.below(6);
            for path in names {
                let bytes = std::fs::read(&path).unwrap();
                if rng.below(share) > 0 {
                    continue;
                }
                damaged += 1;
                match rng.below(3) {
                    0 => std::fs::remove_file(&path).unwrap(),
                    1 => std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                    _ => std::fs::write(&path, vec![0; bytes.len()]).unwrap(),
                }
            }
            continue_import(dir.path(), &import, &expected);
            steps += 1 + steps / 30;
        }
        assert!(damaged > 100, "{damaged}");
    }
}

/// Progress that changes a file when the work begins.
#[derive(Debug)]
struct Changing(PathBuf, AtomicBool);

impl Progress for Changing {
    fn begin(&self, _: u64) {
        if !self.1.swap(true, Ordering::SeqCst) {
            let bytes = std::fs::read(&self.0).unwrap();
            std::fs::write(&self.0, [&bytes[..], b"u1\tr\ti1\n"].concat()).unwrap();
        }
    }
}

#[test]
fn an_input_that_changes_during_the_import_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    let (train, test) = (graph(300, 1, true), graph(10, 2, true));
    let mut import = import_of(dir.path(), &config, [&train, &test]);
    import.run.progress = Arc::new(Changing(dir.path().join("train.tsv"), AtomicBool::new(false)));
    let target = dir.path().join("data");
    let error = import.run(&target).unwrap_err();
    assert_eq!(error.code().as_str(), "changed-while-read");
    assert!(!target.exists() && !dir.path().join(".data.import").exists());
    import.sets[0] = vec![file(&dir.path().join("train.tsv"), None)];
    assert_eq!(import.run(&target).unwrap().edges[0].edges, 301);
}

#[test]
fn a_line_that_is_too_long_is_one_bad_line_in_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([1, 1], false);
    let mut long = b"u1\tbuys\ti1\n".to_vec();
    long.extend(std::iter::repeat_n(b"u2\tbuys\ti2", 400_000).flatten());
    long.extend(b"\nu3\tbuys\ti3\nu4\tbuys\ti4\n");
    let plain = dir.path().join("long.tsv");
    let packed = dir.path().join("long.tsv.zst");
    std::fs::write(&plain, &long).unwrap();
    std::fs::write(&packed, zstd::encode_all(&long[..], 1).unwrap()).unwrap();
    let mut trees = Vec::new();
    for path in [plain, packed] {
        let mut import = import_of(dir.path(), &config, [&[], &[]]);
        import.sets[0] = vec![file(&path, None)];
        (import.run.memory, import.skip_bad) = (8 << 20, 1);
        let target = path.with_extension("data");
        let report = import.run(&target).unwrap();
        assert_eq!((report.edges[0].edges, report.edges[0].bad_lines), (3, 1));
        trees.push(tree(&target));
    }
    assert!(trees[0] == trees[1]);
}

#[test]
fn steps_are_kept_where_the_order_needs_more_memory() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([1, 1], false);
    let mut import = import_of(dir.path(), &config, [&graph(160_000, 1, false), &[]]);
    (import.order, import.run.memory) = (EntityOrder::Sorted, 8 << 20);
    let target = dir.path().join("data");
    let error = import.run(&target).unwrap_err();
    assert_eq!(error.code().as_str(), "too-little-memory");
    import.run.memory = 256 << 20;
    assert!(import.run(&target).unwrap().resumed);
}

#[test]
fn other_files_in_a_folder_to_replace_are_an_error_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    let mut import = import_of(dir.path(), &config, [&graph(300, 1, true), &[]]);
    let target = dir.path().join("data");
    import.run(&target).unwrap();
    let expected = tree(&target);
    // All files of the import are expected there, and no other ones.
    import.force = true;
    import.run(&target).unwrap();
    let mut names: Vec<String> = planned_names(&config, &ImportLayout::of(&config).unwrap().folders)
        .unwrap()
        .iter()
        .map(|f| f.name.clone())
        .collect();
    names.sort();
    assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>());
    std::fs::write(target.join("names/mine"), b"x").unwrap();
    // The input is not read.
    std::fs::write(dir.path().join("train.tsv"), b"no edges\n").unwrap();
    import.sets[0] = vec![file(&dir.path().join("train.tsv"), None)];
    assert_eq!(import.run(&target).unwrap_err().code().as_str(), "folder-has-other-files");
    assert!(!dir.path().join(".data.import").exists());
}

/// Disk that reports a number of free bytes.
#[derive(Debug)]
struct Reporting(u64);

impl Disk for Reporting {
    forward!();
    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>> {
        LocalDisk.create(path, len, like)
    }
    fn free_space(&self, _: &Path) -> Option<u64> {
        Some(self.0)
    }
}

#[test]
fn finished_steps_count_as_free_space() {
    let dir = tempfile::tempdir().unwrap();
    let (train, test) = (graph(6000, 8, true), graph(100, 9, true));
    let mut import = import_of(dir.path(), &graph_config([2, 2], true), [&train, &test]);
    (import.run.threads, import.run.memory) = (1, 8 << 20);
    let target = dir.path().join("data");
    let on = |free: u64| on_disk(&import, &target, &(Arc::new(Reporting(free)) as Arc<dyn Disk>));
    // Some bytes less than the estimate.
    let needed = |free: u64| on(free).is_err_and(|error| error.code() == ErrorCode::TooLittleSpace);
    let lines = 60 * 6100;
    let free = (text(&train).len() + text(&test).len() + lines) as u64 * 9 / 10;
    assert!(needed(free));
    let mortal: Arc<dyn Disk> = Arc::new(Mortal { left: AtomicUsize::new(8) });
    on_disk(&import, &target, &mortal).unwrap_err();
    assert!(on(free).unwrap().resumed);
}
