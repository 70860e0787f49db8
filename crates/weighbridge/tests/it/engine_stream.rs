//! Files written from front to back: the same bytes for any number of workers, in bounded memory, all or nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge::checkpoint::TensorPath;
use weighbridge::checksum::{Check, ChecksumKind};
use weighbridge::engine::fault::FailingSink;
use weighbridge::engine::{LocalSink, MIN_MEMORY, Progress, RunOptions, run};
use weighbridge::plan::{Encode, FileBuilder, Output, PlannedFile, WritePlan};
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::{Cast, DType, Encoding, Order, Region, Rounding, Shape};
use weighbridge::{Error, Result, TensorEntry};

const ROWS: u64 = 200;
const COLUMNS: u64 = 10;

/// Each row as decimal text, a block a row; rows are of different lengths.
#[derive(Debug)]
struct Text {
    entry: TensorEntry,
    estimate: u64,
    fail_at: Option<u64>,
    busy: AtomicU64,
    most_busy: AtomicU64,
    share: AtomicU64,
}

impl Text {
    fn new(entry: TensorEntry, estimate: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { entry, estimate, fail_at: None, busy: zero(), most_busy: zero(), share: zero() }
    }
}

impl Encode for Text {
    fn describe(&self) -> String {
        "rows as text".into()
    }
    fn estimate(&self) -> u64 {
        self.estimate
    }
    fn tensors(&self) -> Vec<&TensorEntry> {
        vec![&self.entry]
    }
    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        self.share.store(out.share(), Ordering::SeqCst);
        out.write(b"head\n")?;
        assert_eq!(out.position(), 5);
        out.blocks(ROWS, &|row, elements, block| {
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_busy.fetch_max(busy, Ordering::SeqCst);
            if self.fail_at == Some(row) {
                return Err(Error::mismatch("on-purpose", "on purpose"));
            }
            let region = Region { start: vec![row, 0], shape: vec![1, COLUMNS] };
            let mut bytes = Vec::new();
            elements.read(&self.entry, &region, Order::Row, &mut bytes)?;
            for _ in 0..row % 7 {
                for x in bytes.chunks_exact(2) {
                    block.extend_from_slice(format!("{} ", u16::from_le_bytes([x[0], x[1]])).as_bytes());
                }
            }
            block.push(b'\n');
            self.busy.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })?;
        out.write(b"tail")
    }
}

fn entry() -> TensorEntry {
    let bytes: Vec<u8> =
        (0..ROWS * COLUMNS).flat_map(|k| u32::try_from(k * 31).unwrap().to_le_bytes()).collect();
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    let shape = Shape::new([ROWS, COLUMNS]);
    let mut entry =
        TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, Encoding::ROW).unwrap();
    entry.cast = Some(Cast { to: DType::F16, rounding: Rounding::default() });
    entry
}

fn expected() -> Vec<u8> {
    let bytes = entry().read_tensor(Order::Row).unwrap();
    let mut text = b"head\n".to_vec();
    for (row, elements) in bytes.chunks_exact(2 * 10).enumerate() {
        for _ in 0..row % 7 {
            for x in elements.chunks_exact(2) {
                text.extend(format!("{} ", u16::from_le_bytes([x[0], x[1]])).bytes());
            }
        }
        text.push(b'\n');
    }
    text.extend(b"tail");
    text
}

fn plan(files: Vec<PlannedFile>) -> WritePlan {
    WritePlan { format: "test", kind: "test", files, losses: vec![] }
}

fn one_file() -> WritePlan {
    plan(vec![PlannedFile::streamed("", Arc::new(Text::new(entry(), 1000)))])
}

/// Streamed files beside a laid-out one, small and large by their estimates.
fn several() -> WritePlan {
    let mut laid_out = FileBuilder::new("b/plain");
    laid_out.literal(b"plain");
    plan(vec![
        PlannedFile::streamed("a", Arc::new(Text::new(entry(), 0))),
        laid_out.finish(),
        PlannedFile::streamed("b/c", Arc::new(Text::new(entry(), 1 << 40))),
        PlannedFile::streamed("d", Arc::new(Text::new(entry(), 1000))),
    ])
}

fn options(threads: usize) -> RunOptions {
    RunOptions { threads, memory: 4 * MIN_MEMORY, ..RunOptions::default() }
}

fn is_whole(target: &Path) -> bool {
    let text = expected();
    ["a", "b/c", "d"].iter().all(|name| fs::read(target.join(name)).unwrap() == text)
        && fs::read(target.join("b/plain")).unwrap() == b"plain"
}

#[test]
fn bytes_do_not_depend_on_workers_and_memory_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for threads in [1, 2, 7] {
        let text = Arc::new(Text::new(entry(), 1000));
        let plan = plan(vec![PlannedFile::streamed("", text.clone())]);
        let report = run(&plan, &LocalSink::file(&target, true).unwrap(), &options(threads)).unwrap();
        assert!(fs::read(&target).unwrap() == expected(), "{threads} threads");
        assert_eq!(report.bytes, expected().len() as u64);
        assert_eq!(report.casts["value"].elements, ROWS * COLUMNS);
        // A block a worker, and each block within its share.
        assert!(text.most_busy.load(Ordering::SeqCst) <= threads as u64);
        assert!(text.share.load(Ordering::SeqCst) * threads as u64 <= 4 * MIN_MEMORY);
    }
}

#[test]
fn several_files_become_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let (plan, text) = (several(), expected());
    for threads in [1, 2, 5] {
        let report = run(&plan, &LocalSink::folder(&target, true).unwrap(), &options(threads)).unwrap();
        assert!(is_whole(&target));
        assert_eq!(report.bytes, 3 * text.len() as u64 + 5);
    }
}

#[test]
fn any_failing_call_leaves_the_old_or_new_target_complete() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for (plan, folder) in [(one_file(), false), (several(), true)] {
        for after in [false, true] {
            // Every call at the beginning, then some: the blocks in the middle are alike.
            let mut n = 1;
            loop {
                let inner = LocalSink::for_plan(&plan, &target, true).unwrap();
                let sink = if after { FailingSink::after(inner, n) } else { FailingSink::before(inner, n) };
                let result = run(&plan, &sink, &options(2));
                let calls = sink.calls();
                drop(sink);
                if target.exists() {
                    assert!(if folder {
                        is_whole(&target)
                    } else {
                        fs::read(&target).unwrap() == expected()
                    });
                }
                if calls < n {
                    result.unwrap();
                    break;
                }
                assert!(result.unwrap_err().to_string().contains("injected failure"), "call {n}");
                let left = fs::read_dir(dir.path()).unwrap().count();
                assert_eq!(left, usize::from(target.exists()), "call {n} left something behind");
                if target.is_dir() {
                    fs::remove_dir_all(&target).unwrap();
                } else if target.exists() {
                    fs::remove_file(&target).unwrap();
                }
                n += if (20..=ROWS).contains(&n) { 7 } else { 1 };
            }
            if folder { fs::remove_dir_all(&target).unwrap() } else { fs::remove_file(&target).unwrap() }
        }
    }
}

#[derive(Debug)]
struct StopAfter {
    looks: AtomicU64,
    limit: u64,
    begun: AtomicU64,
    done: AtomicU64,
}

impl Progress for StopAfter {
    fn begin(&self, bytes: u64) {
        self.begun.store(bytes, Ordering::SeqCst);
    }
    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::SeqCst);
    }
    fn stopped(&self) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst) >= self.limit
    }
}

#[test]
fn stopping_changes_nothing_and_progress_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for limit in [0, 1, 2, 5, 50, 150, u64::MAX] {
        for plan in [one_file(), several()] {
            let zero = || AtomicU64::new(0);
            let progress = Arc::new(StopAfter { looks: zero(), limit, begun: zero(), done: zero() });
            let sink = LocalSink::for_plan(&plan, &target, true).unwrap();
            let result = run(&plan, &sink, &RunOptions { progress: progress.clone(), ..options(2) });
            drop(sink);
            if limit < u64::MAX {
                assert_eq!(result.unwrap_err().code().as_str(), "cancelled");
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
                continue;
            }
            result.unwrap();
            assert_eq!(progress.begun.load(Ordering::SeqCst), plan.bytes());
            assert_eq!(progress.done.load(Ordering::SeqCst), plan.bytes());
            if plan.is_one_file() {
                fs::remove_file(&target).unwrap()
            }
        }
    }
}

#[test]
fn errors_of_encoders_and_checksums_are_returned() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for row in [0, 1, ROWS / 2, ROWS - 1] {
        let mut text = Text::new(entry(), 1);
        text.fail_at = Some(row);
        let mut plan = several();
        plan.files[3] = PlannedFile::streamed("d", Arc::new(text));
        let error = run(&plan, &LocalSink::folder(&target, true).unwrap(), &options(3)).unwrap_err();
        assert_eq!(error.code().as_str(), "on-purpose");
        assert!(!target.exists());
    }
    let mut damaged = entry();
    damaged.extents[0].check = Some(Check::new(&damaged.extents[0].source, 0, 8, ChecksumKind::Crc32, 1));
    let plan = plan(vec![PlannedFile::streamed("", Arc::new(Text::new(damaged, 1)))]);
    // Also where the wrong checksum is known from the first run.
    for threads in [2, 1, 2] {
        let error = run(&plan, &LocalSink::file(&target, true).unwrap(), &options(threads)).unwrap_err();
        assert_eq!(error.code().as_str(), "crc-mismatch");
    }
    assert!(!target.exists());
}

#[test]
fn a_plan_says_that_its_length_is_an_estimate() {
    let plan = one_file();
    assert!(plan.is_one_file() && plan.is_estimated() && plan == one_file() && plan != several());
    assert!(plan.to_string().contains("about 1000 bytes") && plan.to_string().contains("rows as text"));
    let json = plan.to_json();
    assert_eq!((&json["estimated"], &json["files"][0]["estimated"]), (&true.into(), &true.into()));
    assert_eq!(json["files"][0]["content"], "rows as text");
    assert_eq!(plan.sources().count(), 1);
}
