//! The engine: every byte in its place, in bounded memory, all or nothing.

use crate::support::names;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge::checkpoint::TensorPath;
use weighbridge::engine::fault::FailingSink;
use weighbridge::engine::{LocalSink, MIN_MEMORY, Progress, RunOptions, latin1_lengths, run};
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{FileSource, MemorySource, Source, SourceRef};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Result, TensorEntry};

fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn tensor(source: &SourceRef, offset: u64, dims: &[u64], encoding: Encoding) -> TensorEntry {
    TensorEntry::dense(TensorPath::value(), DType::F32, Shape::new(dims), source, offset, encoding).unwrap()
}

/// A plan with every kind of segment, and the bytes that it must give.
fn plan_of(source: &SourceRef) -> (WritePlan, Vec<u8>) {
    let mut builder = FileBuilder::new("");
    let mut expected = Vec::new();
    let read = |entry: &TensorEntry| entry.read_tensor(Order::Row).unwrap();

    builder.literal(b"head");
    expected.extend_from_slice(b"head");
    builder.padding(0x20, 60);
    expected.resize(64, 0x20);
    let start = builder.position();
    for (offset, dims, encoding) in [
        (0, &[700u64, 900][..], Encoding::COLUMN),
        (3, &[5], Encoding::ROW),
        (11, &[600, 1000], Encoding::ROW),
        (7, &[3, 4, 5], Encoding::COLUMN),
    ] {
        let entry = tensor(source, offset, dims, encoding);
        builder.tensor(&entry, Order::Row).unwrap();
        expected.extend(read(&entry));
    }
    let mut half = tensor(source, 5, &[100, 70], Encoding::COLUMN);
    half.cast = Some(DType::F16.into());
    builder.tensor(&half, Order::Row).unwrap();
    expected.extend(read(&half));
    let checked = start..builder.position();
    let crc = crc32fast::hash(&expected[64..]);
    builder.crc32(checked.clone());
    expected.extend_from_slice(&crc.to_le_bytes());
    builder.literal(b"middle");
    expected.extend_from_slice(b"middle");
    // Outside of the checked range, and whole blocks of files, so that the kernel may copy them.
    let blocks = builder.position().next_multiple_of(4096);
    builder.padding(0x20, blocks - builder.position());
    expected.resize(usize::try_from(blocks).unwrap(), 0x20);
    let plain = tensor(source, 4096, &[1_200_000 / 4], Encoding::ROW);
    builder.tensor(&plain, Order::Row).unwrap();
    expected.extend(read(&plain));
    // Outside of it too, and too large for a small budget: written tile by tile.
    let turned = tensor(source, 2, &[20, 20_000], Encoding::COLUMN);
    builder.tensor(&turned, Order::Row).unwrap();
    expected.extend(transposed(source, 2, 20, 20_000));
    builder.crc32(checked);
    expected.extend_from_slice(&crc.to_le_bytes());
    let plan = WritePlan { format: "test", kind: "test", files: vec![builder.finish()], losses: vec![] };
    assert_eq!(plan.bytes(), expected.len() as u64);
    (plan, expected)
}

/// The definition of a transpose: `rows` x `columns` floats, column by column, as rows.
fn transposed(source: &SourceRef, offset: u64, rows: usize, columns: usize) -> Vec<u8> {
    let mut bytes = vec![0; rows * columns * 4];
    source.read_at(offset, &mut bytes).unwrap();
    let element = |i: usize, j: usize| &bytes[(j * rows + i) * 4..][..4];
    (0..rows).flat_map(|i| (0..columns).flat_map(move |j| element(i, j))).copied().collect()
}

fn file_source(folder: &Path) -> SourceRef {
    let path = folder.join("source");
    fs::write(&path, noise(3_000_000)).unwrap();
    Arc::new(FileSource::open(path).unwrap())
}

fn options(threads: usize, memory: u64) -> RunOptions {
    RunOptions { threads, memory, ..RunOptions::default() }
}

#[test]
fn the_same_bytes_for_every_number_of_threads_and_budget() {
    let dir = tempfile::tempdir().unwrap();
    let memory: SourceRef = Arc::new(MemorySource::new("memory", noise(3_000_000)));
    for source in [file_source(dir.path()), memory] {
        let (plan, expected) = plan_of(&source);
        for (threads, budget) in [(1, MIN_MEMORY), (2, 256 << 20), (7, 16 << 20), (0, 1 << 30)] {
            let target = dir.path().join("target");
            let sink = LocalSink::file(&target, true).unwrap();
            let report = run(&plan, &sink, &options(threads, budget)).unwrap();
            assert!(fs::read(&target).unwrap() == expected, "{threads} threads, {budget} bytes");
            assert_eq!(report.bytes, expected.len() as u64);
            assert_eq!(report.kernel_copied > 0, cfg!(target_os = "linux") && source.file().is_some());
            assert_eq!(report.casts["value"].elements, 7000);
        }
    }
}

/// Bytes that may be read from front to back only, like a compressed stream.
#[derive(Debug)]
struct Forwards(MemorySource, AtomicU64);

impl Source for Forwards {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset + buffer.len() as u64;
        assert!(self.1.swap(end, Ordering::SeqCst) <= offset, "the stream was read backwards");
        self.0.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        "forwards"
    }
    fn is_sequential(&self) -> bool {
        true
    }
}

#[test]
fn a_stream_is_transposed_in_one_pass() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(900 * 1100 * 4);
    let plain: SourceRef = Arc::new(MemorySource::new("plain", bytes.clone()));
    let stream: SourceRef = Arc::new(Forwards(MemorySource::new("stream", bytes), AtomicU64::new(0)));
    let mut builder = FileBuilder::new("");
    builder.tensor(&tensor(&stream, 0, &[900, 1100], Encoding::COLUMN), Order::Row).unwrap();
    let plan = WritePlan { format: "test", kind: "test", files: vec![builder.finish()], losses: vec![] };
    let target = dir.path().join("target");
    run(&plan, &LocalSink::file(&target, true).unwrap(), &options(2, MIN_MEMORY)).unwrap();
    assert!(fs::read(&target).unwrap() == transposed(&plain, 0, 900, 1100));
}

#[test]
fn a_budget_that_is_too_small_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, _) = plan_of(&file_source(dir.path()));
    let sink = LocalSink::file(dir.path().join("t"), true).unwrap();
    assert_eq!(
        run(&plan, &sink, &options(1, MIN_MEMORY - 1)).unwrap_err().code().as_str(),
        "too-little-memory"
    );
}

#[test]
fn any_failing_call_leaves_the_old_or_new_target_complete() {
    let dir = tempfile::tempdir().unwrap();
    let source = file_source(dir.path());
    let (plan, expected) = plan_of(&source);
    let target = dir.path().join("target");
    let (mut old, mut new) = (0, 0);
    for after in [false, true] {
        for n in 1.. {
            fs::write(&target, b"old").unwrap();
            let inner = LocalSink::file(&target, true).unwrap();
            let sink = if after { FailingSink::after(inner, n) } else { FailingSink::before(inner, n) };
            let result = run(&plan, &sink, &options(2, MIN_MEMORY));
            let calls = sink.calls();
            drop(sink);
            let content = fs::read(&target).unwrap();
            assert!(content == b"old" || content == expected, "call {n} left a torn file");
            assert_eq!(names(dir.path()), ["source", "target"], "call {n} left something behind");
            if calls < n {
                result.unwrap();
                assert!(content == expected);
                break;
            }
            assert!(result.unwrap_err().to_string().contains("injected failure"));
            if content == b"old" { old += 1 } else { new += 1 }
        }
    }
    assert!(old > 10 && new >= 2, "{old} {new}");
}

/// Stops after some bytes.
#[derive(Debug)]
struct StopAfter(AtomicU64, u64);
impl Progress for StopAfter {
    fn advance(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::SeqCst);
    }
    fn stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst) >= self.1
    }
}

#[test]
fn stopping_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, _) = plan_of(&file_source(dir.path()));
    for limit in [0, 1, plan.bytes()] {
        let sink = LocalSink::file(dir.path().join("target"), false).unwrap();
        let progress = Arc::new(StopAfter(AtomicU64::new(0), limit));
        let error = run(&plan, &sink, &RunOptions { progress, ..options(2, MIN_MEMORY) }).unwrap_err();
        assert_eq!(error.code().as_str(), "cancelled");
        drop(sink);
        assert_eq!(names(dir.path()), ["source"]);
    }
}

fn write(target: &Path, replace: bool) -> Result<()> {
    let mut builder = FileBuilder::new("");
    builder.literal(b"new");
    let plan = WritePlan { format: "test", kind: "test", files: vec![builder.finish()], losses: vec![] };
    run(&plan, &LocalSink::file(target, replace)?, &RunOptions::default()).map(|_| ())
}

#[test]
fn targets_are_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    write(&target, false).unwrap();
    assert_eq!(write(&target, false).unwrap_err().code().as_str(), "exists");
    fs::write(&target, b"old").unwrap();
    write(&target, true).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(write(dir.path(), true).unwrap_err().code().as_str(), "not-a-file");
    assert_eq!(write(&dir.path().join("none/target"), true).unwrap_err().code().as_str(), "not-found");
    assert_eq!(write(&target.join("below"), true).unwrap_err().code().as_str(), "not-a-folder");
}

#[test]
fn a_target_that_appears_meanwhile_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let sink = LocalSink::file(&target, false).unwrap();
    fs::write(&target, b"other").unwrap();
    let mut builder = FileBuilder::new("");
    builder.literal(b"new");
    let plan = WritePlan { format: "test", kind: "test", files: vec![builder.finish()], losses: vec![] };
    assert_eq!(run(&plan, &sink, &RunOptions::default()).unwrap_err().code().as_str(), "exists");
    assert_eq!(fs::read(&target).unwrap(), b"other");
    assert_eq!(names(dir.path()), ["target"]);
}

#[cfg(unix)]
#[test]
fn a_link_as_target_is_refused_and_permissions_are_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    fs::write(&real, b"old").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
    let (link, dangling) = (dir.path().join("link"), dir.path().join("dangling"));
    symlink(&real, &link).unwrap();
    symlink(dir.path().join("nothing"), &dangling).unwrap();
    for target in [&link, &dangling] {
        for force in [false, true] {
            assert_eq!(write(target, force).unwrap_err().code().as_str(), "link");
            assert!(fs::symlink_metadata(target).unwrap().is_symlink());
        }
    }
    assert_eq!(fs::read(&real).unwrap(), b"old");
    write(&real, true).unwrap();
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(&link).unwrap(), b"new");
}

#[test]
fn an_input_may_be_its_own_target() {
    let dir = tempfile::tempdir().unwrap();
    let source = file_source(dir.path());
    let (plan, expected) = plan_of(&source);
    let path = dir.path().join("source");
    run(&plan, &LocalSink::file(&path, true).unwrap(), &RunOptions::default()).unwrap();
    assert!(fs::read(&path).unwrap() == expected);
}

/// The definition of the text: each byte is a character.
fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|&b| char::from(b)).collect::<String>().into_bytes()
}

/// A plan of texts between other things, and the bytes that it must give.
fn plan_of_texts(source: &SourceRef) -> (WritePlan, Vec<u8>) {
    let mut builder = FileBuilder::new("");
    let mut expected = b"X".to_vec();
    builder.literal(b"X");
    let mut half = tensor(source, 5, &[300, 700], Encoding::COLUMN);
    half.cast = Some(DType::F16.into());
    let start = builder.position();
    for entry in [
        half,
        tensor(source, 0, &[700_000], Encoding::ROW),
        tensor(source, 3, &[600, 1100], Encoding::COLUMN),
        tensor(source, 1, &[3, 0], Encoding::ROW),
        tensor(source, 9, &[], Encoding::ROW),
    ] {
        for order in [Order::Row, Order::Column] {
            let lengths = latin1_lengths(&entry, order).unwrap();
            let before = builder.position();
            builder.latin1(&entry, order, &lengths).unwrap();
            assert_eq!(builder.position() - before, lengths.iter().sum::<u64>());
            expected.extend(text(&entry.read_tensor(order).unwrap()));
            builder.literal(b"q");
            expected.push(b'q');
        }
    }
    let checked = start..builder.position();
    builder.crc32(checked);
    expected.extend(crc32fast::hash(&expected[1..]).to_le_bytes());
    let plan = WritePlan { format: "test", kind: "test", files: vec![builder.finish()], losses: vec![] };
    assert_eq!(plan.bytes(), expected.len() as u64);
    (plan, expected)
}

#[test]
fn bytes_become_text_in_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let source = file_source(dir.path());
    let (plan, expected) = plan_of_texts(&source);
    // Large tensors are several segments, which many workers make.
    assert!(plan.files[0].segments.iter().filter(|s| s.action() == "latin1").count() > 10);
    for (threads, budget) in [(1, MIN_MEMORY), (2, 256 << 20), (7, 16 << 20)] {
        let target = dir.path().join("target");
        let sink = LocalSink::file(&target, true).unwrap();
        let report = run(&plan, &sink, &options(threads, budget)).unwrap();
        assert!(fs::read(&target).unwrap() == expected, "{threads} threads, {budget} bytes");
        assert_eq!(report.casts["value"].elements, 2 * 210_000);
    }
    let printed = plan.to_string();
    // All segments of a tensor are one line.
    assert!(printed.lines().count() <= 7, "{printed}");
    assert!(printed.contains("f16") && printed.contains("[300, 700]"), "{printed}");
    let segment = &plan.to_json()["files"][0]["segments"][1];
    assert_eq!((&segment["action"], &segment["from"]["dtype"]), (&"latin1".into(), &"f32".into()));
    assert_eq!((&segment["to"]["dtype"], &segment["start"]), (&"f16".into(), &serde_json::json!([0, 0])));
    assert_eq!(segment["extent"], serde_json::json!([300, 700]));
}

#[test]
fn text_of_another_length_than_measured_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let memory = |bytes: Vec<u8>| -> SourceRef { Arc::new(MemorySource::new("m", bytes)) };
    let plain = tensor(&memory(vec![b'a'; 4000]), 0, &[1000], Encoding::ROW);
    let high = tensor(&memory(vec![0xff; 4000]), 0, &[1000], Encoding::ROW);
    for (measured, found) in [(&plain, &high), (&high, &plain)] {
        let mut builder = FileBuilder::new("");
        builder.latin1(found, Order::Row, &latin1_lengths(measured, Order::Row).unwrap()).unwrap();
        builder.literal(b"end");
        let plan = WritePlan { format: "test", kind: "test", files: vec![builder.finish()], losses: vec![] };
        let sink = LocalSink::file(&target, true).unwrap();
        assert_eq!(
            run(&plan, &sink, &options(1, MIN_MEMORY)).unwrap_err().code().as_str(),
            "changed-meanwhile"
        );
        assert!(!target.exists());
    }
    for lengths in [&[][..], &[3999], &[8001], &[4000, 1]] {
        let error = FileBuilder::new("").latin1(&plain, Order::Row, lengths).unwrap_err();
        assert_eq!(error.code().as_str(), "latin1-lengths");
    }
}
