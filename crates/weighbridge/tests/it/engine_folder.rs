//! Plans of several files: the folder is old or new, and complete, after any failure.

use crate::support::names;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge::checkpoint::TensorPath;
use weighbridge::engine::fault::FailingSink;
use weighbridge::engine::{LocalSink, MIN_MEMORY, Progress, RunOptions, run};
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{FileSource, MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Result, TensorEntry};

/// Every file below a folder, by name, with its content.
type Tree = BTreeMap<String, Vec<u8>>;

fn tree(folder: &Path) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

fn write_tree(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn plan_of(files: Vec<(String, Vec<u8>)>) -> WritePlan {
    let files = files.into_iter().map(|(name, bytes)| {
        let mut builder = FileBuilder::new(name);
        builder.literal(bytes);
        builder.finish()
    });
    WritePlan { format: "test", kind: "test", files: files.collect(), losses: vec![] }
}

fn texts(files: &[(&str, &str)]) -> WritePlan {
    plan_of(files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect())
}

const OLD: &[(&str, &str)] = &[("a", "old a"), ("sub/b", "old b")];

/// Small files, one in a nested folder, and one that all workers fill; with the expected result.
fn plan() -> (WritePlan, Tree) {
    let large: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut files = vec![
        ("a".into(), b"new a".to_vec()),
        ("sub/b".into(), b"new b".to_vec()),
        ("sub/deep/c".into(), vec![]),
    ];
    files.extend((0..5u8).map(|i| (format!("many/{i}"), vec![i; 100])));
    let source: SourceRef = Arc::new(MemorySource::new("large", large.clone()));
    let entry = TensorEntry::dense(
        TensorPath::value(),
        DType::U32,
        Shape::from([3_000_000]),
        &source,
        0,
        Encoding::ROW,
    );
    let mut builder = FileBuilder::new("large");
    builder.tensor(&entry.unwrap(), Order::Row).unwrap();
    let mut expected: Tree = files.iter().cloned().collect();
    expected.insert("large".into(), large);
    let mut plan = plan_of(files);
    plan.files.push(builder.finish());
    (plan, expected)
}

fn options(threads: usize) -> RunOptions {
    RunOptions { threads, memory: 2 * MIN_MEMORY, ..RunOptions::default() }
}

fn write(plan: &WritePlan, target: &Path, replace: bool) -> Result<()> {
    run(plan, &LocalSink::folder(target, replace)?, &options(2)).map(|_| ())
}

#[test]
fn a_folder_is_made_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let (plan, expected) = plan();
    for threads in [1, 2, 7] {
        for sync in [true, false] {
            let sink = LocalSink::for_plan(&plan, &target, true).unwrap();
            let report = run(&plan, &sink, &RunOptions { sync, ..options(threads) }).unwrap();
            assert_eq!(report.bytes, plan.bytes());
            assert!(tree(&target) == expected, "{threads} threads");
            // The old folder is gone before the sink is.
            assert_eq!(names(dir.path()), ["target"]);
        }
    }
}

#[test]
fn any_failing_call_leaves_the_old_or_new_folder_complete() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let (plan, expected) = plan();
    for replaced in [false, true] {
        let (mut old, mut new) = (0, 0);
        for after in [false, true] {
            for n in 1.. {
                let _ = fs::remove_dir_all(&target);
                if replaced {
                    write_tree(&target, OLD);
                }
                let before = if replaced { tree(&target) } else { Tree::new() };
                let inner = LocalSink::folder(&target, true).unwrap();
                let sink = if after { FailingSink::after(inner, n) } else { FailingSink::before(inner, n) };
                let result = run(&plan, &sink, &options(2));
                let calls = sink.calls();
                drop(sink);
                let content = if target.exists() { tree(&target) } else { Tree::new() };
                assert!(content == before || content == expected, "call {n} left a torn folder");
                let there: &[&str] = if target.exists() { &["target"] } else { &[] };
                assert_eq!(names(dir.path()), there, "call {n} left something behind");
                assert_eq!(target.exists(), replaced || content == expected, "call {n}");
                if calls < n {
                    result.unwrap();
                    assert!(content == expected);
                    break;
                }
                assert!(result.unwrap_err().to_string().contains("injected failure"));
                if content == before { old += 1 } else { new += 1 }
            }
        }
        assert!(old > 20 && new >= 2, "{old} {new}");
    }
}

/// Runs an action after a given number of written bytes, and stops on request.
struct At<F>(AtomicU64, u64, F, bool);
impl<F> std::fmt::Debug for At<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("At")
    }
}
impl<F: Fn() + Send + Sync> Progress for At<F> {
    fn advance(&self, bytes: u64) {
        let before = self.0.fetch_add(bytes, Ordering::SeqCst);
        if before < self.1 && before + bytes >= self.1 {
            (self.2)();
        }
    }
    fn stopped(&self) -> bool {
        self.3 && self.0.load(Ordering::SeqCst) >= self.1
    }
}

#[test]
fn stopping_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    write_tree(&target, OLD);
    let before = tree(&target);
    let (plan, _) = plan();
    for limit in [0, 1, plan.bytes() / 2, plan.bytes()] {
        let sink = LocalSink::folder(&target, true).unwrap();
        let progress = Arc::new(At(AtomicU64::new(0), limit, || {}, true));
        let error = run(&plan, &sink, &RunOptions { progress, ..options(2) }).unwrap_err();
        assert_eq!(error.code().as_str(), "cancelled");
        assert_eq!(names(dir.path()), ["target"]);
        assert_eq!(tree(&target), before);
    }
}

#[test]
fn no_other_file_is_ever_lost() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    write_tree(&target, OLD);
    write_tree(&target, &[("sub/notes.txt", "precious"), ("z/1", ""), ("z/2", ""), ("z/3", "")]);
    let before = tree(&target);
    let (plan, _) = plan();
    let error = write(&plan, &target, true).unwrap_err();
    assert_eq!(error.code().as_str(), "folder-has-other-files");
    let found = error.found_text().unwrap();
    assert!(found.contains("sub/notes.txt") && found.contains("z/3") && !found.contains("more"), "{found}");
    write_tree(&target, &[("z/4", ""), ("z/5", ""), ("z/6", "")]);
    let error = write(&plan, &target, true).unwrap_err();
    assert_eq!(error.found_text().unwrap().split(", ").count(), 6);
    assert!(error.found_text().unwrap().ends_with("and more"));
    assert_eq!(
        LocalSink::check_plan(&plan, &target, true).unwrap_err().code().as_str(),
        "folder-has-other-files"
    );
    for name in ["z/4", "z/5", "z/6"] {
        fs::remove_file(target.join(name)).unwrap();
    }
    assert_eq!(tree(&target), before);
    assert_eq!(names(dir.path()), ["target"]);
    // A file in the place of a planned folder is another file too.
    let other = dir.path().join("other");
    write_tree(&other, &[("sub", "a file")]);
    assert_eq!(write(&plan, &other, true).unwrap_err().code().as_str(), "folder-has-other-files");
}

#[test]
fn a_file_that_appears_meanwhile_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    write_tree(&target, OLD);
    let (plan, _) = plan();
    let note = target.join("note");
    let sink = LocalSink::folder(&target, true).unwrap();
    let progress = Arc::new(At(AtomicU64::new(0), 1, move || fs::write(&note, "precious").unwrap(), false));
    let error = run(&plan, &sink, &RunOptions { progress, ..options(2) }).unwrap_err();
    assert_eq!(error.code().as_str(), "folder-has-other-files");
    drop(sink);
    let mut expected: Tree = OLD.iter().map(|(n, t)| ((*n).to_owned(), t.as_bytes().to_vec())).collect();
    expected.insert("note".into(), b"precious".to_vec());
    assert_eq!(tree(&target), expected);
    assert_eq!(names(dir.path()), ["target"]);
}

#[test]
fn folders_are_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let plan = texts(&[("a", "new a"), ("sub/b", "new b")]);
    fs::create_dir(&target).unwrap();
    write(&plan, &target, false).unwrap();
    assert_eq!(write(&plan, &target, false).unwrap_err().code().as_str(), "exists");
    assert_eq!(LocalSink::check(&target, false).unwrap_err().code().as_str(), "exists");
    write(&plan, &target, true).unwrap();
    let file = target.join("a");
    assert_eq!(write(&plan, &file, true).unwrap_err().code().as_str(), "not-a-folder");
    assert_eq!(write(&plan, &file.join("x"), true).unwrap_err().code().as_str(), "not-a-folder");
    assert_eq!(write(&plan, &dir.path().join("none/x"), true).unwrap_err().code().as_str(), "not-found");
    // Several files cannot go into one.
    let sink = LocalSink::file(dir.path().join("file"), true).unwrap();
    assert_eq!(run(&plan, &sink, &options(1)).unwrap_err().code().as_str(), "one-file");
    drop(sink);
    assert_eq!(names(dir.path()), ["target"]);
}

#[test]
fn a_folder_that_appears_meanwhile_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let plan = texts(&[("a", "new")]);
    for other_is_folder in [true, false] {
        let sink = LocalSink::folder(&target, false).unwrap();
        if other_is_folder {
            write_tree(&target, &[("a", "other")]);
        } else {
            fs::write(&target, "other").unwrap();
        }
        // A folder is seen when the run begins, a file when it is published.
        assert_eq!(run(&plan, &sink, &options(1)).unwrap_err().code().as_str(), "exists");
        drop(sink);
        assert_eq!(names(dir.path()), ["target"]);
        if other_is_folder {
            assert_eq!(fs::read(target.join("a")).unwrap(), b"other");
            fs::remove_dir_all(&target).unwrap();
        }
    }
    assert_eq!(fs::read(&target).unwrap(), b"other");
}

#[cfg(unix)]
#[test]
fn links_inside_a_folder_are_replaced_and_permissions_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    write_tree(&real, OLD);
    set(&real, 0o700);
    set(&real.join("sub"), 0o750);
    set(&real.join("sub/b"), 0o600);
    let outside = dir.path().join("outside");
    fs::write(&outside, "outside").unwrap();
    fs::remove_file(real.join("a")).unwrap();
    symlink(&outside, real.join("a")).unwrap();
    let link = dir.path().join("link");
    symlink(&real, &link).unwrap();
    let new = texts(&[("a", "new a"), ("sub/b", "new b")]);
    assert_eq!(write(&new, &link, true).unwrap_err().code().as_str(), "link");
    write(&new, &real, true).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(real.join("a")).unwrap(), b"new a");
    assert!(!fs::symlink_metadata(real.join("a")).unwrap().is_symlink());
    assert_eq!(fs::read(&outside).unwrap(), b"outside");
    assert_eq!((mode(&real), mode(&real.join("sub")), mode(&real.join("sub/b"))), (0o700, 0o750, 0o600));
    assert_eq!(names(dir.path()), ["link", "outside", "real"]);
    let dangling = dir.path().join("dangling");
    symlink(dir.path().join("nothing"), &dangling).unwrap();
    assert_eq!(write(&texts(&[("a", "")]), &dangling, true).unwrap_err().code().as_str(), "link");
}

#[test]
fn inputs_may_be_inside_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let numbers: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::create_dir(&target).unwrap();
    fs::write(target.join("x"), &numbers).unwrap();
    let source: SourceRef = Arc::new(FileSource::open(target.join("x")).unwrap());
    let shape = Shape::from([2_000_000]);
    let entry =
        TensorEntry::dense(TensorPath::value(), DType::U32, shape, &source, 0, Encoding::ROW).unwrap();
    let mut plan = texts(&[]);
    for name in ["x", "y"] {
        let mut builder = FileBuilder::new(name);
        builder.literal("head");
        builder.tensor(&entry, Order::Row).unwrap();
        plan.files.push(builder.finish());
    }
    write(&plan, &target, true).unwrap();
    let expected = [b"head".to_vec(), numbers].concat();
    assert!(tree(&target).values().all(|bytes| *bytes == expected));
    assert_eq!(names(dir.path()), ["target"]);
}

#[test]
fn unsafe_names_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for (bad, code) in [
        (&["../x", "a"][..], "unsafe-name"),
        (&["/tmp/x", "a"], "unsafe-name"),
        (&["", "a"], "unsafe-name"),
        (&["a", "b", "a"], "name-collision"),
        (&["a/b", "a"], "name-collision"),
        (&[".a.weighbridge-0-0.part", "a"], "reserved-name"),
    ] {
        let plan = plan_of(bad.iter().map(|name| ((*name).to_owned(), b"x".to_vec())).collect());
        assert_eq!(LocalSink::check_plan(&plan, &target, true).unwrap_err().code().as_str(), code);
        assert_eq!(write(&plan, &target, true).unwrap_err().code().as_str(), code, "{bad:?}");
        assert_eq!(names(dir.path()), [""; 0]);
    }
    // Too long for the system: known when the file is made, and nothing stays.
    let plan = plan_of(vec![("a".into(), vec![1]), ("x".repeat(300), vec![1])]);
    assert!(write(&plan, &target, true).is_err());
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn many_files() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let files: Vec<_> = (0..500u32).map(|i| (format!("{}/{i}", i % 7), i.to_le_bytes().to_vec())).collect();
    let expected: Tree = files.iter().cloned().collect();
    let plan = plan_of(files);
    for _ in 0..2 {
        write(&plan, &target, true).unwrap();
        assert!(tree(&target) == expected);
    }
}

#[test]
fn two_runs_at_once_leave_one_whole_folder() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    write_tree(&target, &[("a", "old"), ("b", "old")]);
    let runs: Vec<_> = (0..4)
        .map(|i| {
            let target: PathBuf = target.clone();
            std::thread::spawn(move || {
                let text = format!("run {i}");
                for _ in 0..20 {
                    write(&texts(&[("a", &text), ("b", &text)]), &target, true).unwrap();
                }
            })
        })
        .collect();
    for run in runs {
        run.join().unwrap();
    }
    let found = tree(&target);
    assert_eq!(found["a"], found["b"]);
    assert_eq!(names(dir.path()), ["target"]);
}

/// Set for the process that is to be killed: the target.
const VICTIM: &str = "WEIGHBRIDGE_TEST_VICTIM";

/// Not a test of its own: the process that the next test kills in the middle of its work.
#[test]
#[ignore = "started by a_killed_run_is_swept_by_the_next"]
fn victim() {
    let Ok(target) = std::env::var(VICTIM) else { return };
    let (plan, _) = plan();
    let sign = Path::new(&target).with_extension("busy");
    let wait = move || {
        fs::write(&sign, "").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
    };
    let progress = Arc::new(At(AtomicU64::new(0), plan.bytes() / 2, wait, false));
    let sink = LocalSink::folder(&target, true).unwrap();
    run(&plan, &sink, &RunOptions { progress, ..options(1) }).unwrap();
}

#[test]
fn a_killed_run_is_swept_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    write_tree(&target, OLD);
    let before = tree(&target);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "engine_folder::victim", "--ignored"])
        .env(VICTIM, &target)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let sign = target.with_extension("busy");
    let begun = std::time::Instant::now();
    while !sign.exists() {
        assert!(begun.elapsed().as_secs() < 50, "the other process does not begin");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    fs::remove_file(sign).unwrap();
    assert_eq!(names(dir.path()).len(), 2);
    assert_eq!(LocalSink::folder(&target, true).unwrap().swept(), 0, "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tree(&target), before);
    let sink = LocalSink::folder(&target, true).unwrap();
    assert_eq!(sink.swept(), 1);
    assert_eq!(names(dir.path()), ["target"]);
    let (plan, expected) = plan();
    run(&plan, &sink, &options(2)).unwrap();
    assert!(tree(&target) == expected);
}
