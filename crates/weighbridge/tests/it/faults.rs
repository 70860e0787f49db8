//! Failures around the library: sinks that fail at every call of every format's writer, and files that change while they are
//! read. Also: results do not depend on the number of threads.

use crate::support::testdata;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge::checkpoint::TensorPath;
use weighbridge::engine::fault::FailingSink;
use weighbridge::engine::{LocalSink, MIN_MEMORY, Progress, RunOptions, run};
use weighbridge::formats::{self, PlanOptions, registry};
use weighbridge::ops::hash::sha256;
use weighbridge::ops::stats::{StatsOptions, stats};
use weighbridge::ops::verify::{VerifyOptions, verify_checkpoint};
use weighbridge::ops::{ConvertOptions, plan_checkpoint};
use weighbridge::plan::WritePlan;
use weighbridge::source::{FileSource, MapSource, MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Checkpoint, OpenOptions, TensorEntry};

/// Every file below a path, by name, with its content. The name of a single file is empty.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn tree(path: &Path) -> Tree {
    let (mut found, mut left) = (Tree::new(), vec![path.to_path_buf()]);
    while let Some(at) = left.pop() {
        if at.is_dir() {
            left.extend(fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()));
        } else if at.exists() {
            found.insert(at.strip_prefix(path).unwrap().to_path_buf(), fs::read(at).unwrap());
        }
    }
    found
}

fn remove(path: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else if path.exists() {
        fs::remove_file(path).unwrap();
    }
}

/// Golden files and folders of every format, small ones.
fn goldens() -> Vec<PathBuf> {
    let names = [
        "primitiv/good/trained/trained_xor_a.model",
        "primitiv/good/trained/trained_xor_a.optimizer",
        "safetensors/shards",
        "npz/good",
        "npy/good",
        "torch/good/nested.pt",
        "torch/good/views.pt",
        "joblib/good/forest.joblib",
        "joblib/good/plain_xz.joblib",
        "dcp/good/t215_columns",
        "dcp/good/t22_two_threads",
        "deepspeed/good/d19_z2_f16_2",
        "deepspeed/good/d14_z3_f16_2",
        "onnx/good/mlp.onnx",
        "onnx/good/external",
        "gguf/good/model.gguf",
        "gguf/good/shards",
        "mxnet/good/module-0003.params",
        "mxnet/good/sparse.params",
        "caffe/good/lenet.caffemodel",
        "darknet/good/tiny.weights",
        "tensorflow/good/every_dtype",
        "tensorflow/good/partitioned",
        "tensorflow/good/saved_module",
        "tensorflow/good/frozen_v1.pb",
        "tflite/good/int8_conv.tflite",
        "openvino/good/conv.xml",
        "coreml/good/plain.mlmodel",
        "coreml/good/affine8.mlpackage",
        "ncnn/good/conv.param",
        "flax/good/adam.msgpack",
        "orbax/good/small",
        "hdf5/small/plain_default.h5",
        "hdf5/small/gzip_default.h5",
        "tables/plain.parquet",
        "tables/plain.zstd.arrow",
        "tables/export_std.tsv",
        "tables/text.vec",
        "biggraph/set1/ckpt_dyn_affine",
        "biggraph/set1/ckpt_weighted",
        "biggraph/set1/init_v0_f64",
        "biggraph/set2/weighted",
        "biggraph/set2/std",
        "paddle/good/p262/cnn_static_infer",
        "paddle/good/p262/cnn_state_dict",
        "paddle/good/p262/lod_tensors",
        "paddle/good/p331/cnn_pir",
    ];
    let mut paths = Vec::new();
    for name in names {
        let path = testdata(name);
        if !path.is_dir() || weighbridge::formats::open(&path).is_ok() {
            paths.push(path);
            continue;
        }
        // A folder of files, each for itself; and of folders.
        let mut inside: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        inside.sort();
        inside.retain(|path| weighbridge::formats::open(path).is_ok());
        assert!(!inside.is_empty(), "{}", path.display());
        paths.extend(inside.into_iter().take(3));
    }
    paths
}

/// Kinds that formats may be asked for by name.
const KINDS: [&str; 20] = [
    "",
    "folder",
    "module",
    "list",
    "sharded",
    "separate",
    "combined",
    "inference",
    "state",
    "training",
    "program",
    "tensor",
    "parameter",
    "model",
    "optimizer",
    "shape",
    "init",
    "edges",
    "entities",
    "checkpoint",
];

/// What can be written of `checkpoint`, in every format and of these kinds.
fn plans_of(checkpoint: &Checkpoint, kinds: &[&str]) -> Vec<WritePlan> {
    let mut plans = Vec::new();
    for format in formats::ALL {
        let mut seen = BTreeSet::new();
        for kind in kinds {
            let kind = (!kind.is_empty()).then(|| (*kind).to_owned());
            let plan = plan_checkpoint(checkpoint.clone(), *format, kind, &ConvertOptions::default());
            plans.extend(plan.ok().filter(|plan| seen.insert(plan.kind)));
        }
    }
    plans
}

/// Plans of every format and kind: of each the one of the fewest bytes that has any, and where it comes from.
fn smallest_plans() -> BTreeMap<(&'static str, &'static str), (PathBuf, WritePlan)> {
    let mut all = BTreeMap::<_, (PathBuf, WritePlan)>::new();
    for path in goldens() {
        for plan in plans_of(&weighbridge::formats::open(&path).unwrap(), &KINDS) {
            let bytes = plan.bytes();
            let old = all.get(&(plan.format, plan.kind)).map_or(u64::MAX, |(_, old)| old.bytes());
            if bytes > 0 && bytes < old {
                all.insert((plan.format, plan.kind), (path.clone(), plan));
            }
        }
    }
    for format in formats::ALL.iter().filter(|format| format.writer().is_some()) {
        let id = format.info().id;
        assert!(all.keys().any(|(own, _)| *own == id), "{id} is not written from any golden file");
    }
    assert!(all.len() >= 25, "{:?}", all.keys());
    all
}

fn options(threads: usize, memory: u64) -> RunOptions {
    RunOptions { threads, memory, ..RunOptions::default() }
}

/// Whichever call fails, and whether it was carried out before, the target is what it was or whole, and nothing else is
/// left; where the target was absent, and where it was there.
#[test]
fn any_failing_call_leaves_every_format_complete() {
    let dir = tempfile::tempdir().unwrap();
    let (aside, target) = (tempfile::tempdir().unwrap(), dir.path().join("target"));
    let mut failures = 0;
    for ((format, kind), (from, plan)) in smallest_plans() {
        let what = format!("{format} {kind} of {}", from.display());
        let whole = aside.path().join("whole");
        remove(&whole);
        let sink = LocalSink::for_plan(&plan, &whole, false).unwrap();
        run(&plan, &sink, &options(1, MIN_MEMORY)).unwrap();
        let whole = tree(&whole);
        for (replaced, after) in [(false, false), (false, true), (true, false), (true, true)] {
            for n in 1.. {
                remove(&target);
                if replaced && plan.is_one_file() {
                    fs::write(&target, "old").unwrap();
                } else if replaced {
                    // Of the same names, for others would be kept, and refused.
                    for name in whole.keys() {
                        fs::create_dir_all(target.join(name).parent().unwrap()).unwrap();
                        fs::write(target.join(name), "old").unwrap();
                    }
                }
                let before = tree(&target);
                let inner = LocalSink::for_plan(&plan, &target, replaced).unwrap();
                let sink = if after { FailingSink::after(inner, n) } else { FailingSink::before(inner, n) };
                let result = run(&plan, &sink, &options(1, MIN_MEMORY));
                let calls = sink.calls();
                drop(sink);
                let found = tree(&target);
                assert!(found == before || found == whole, "{what}: call {n} tore the target");
                let others: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
                assert!(others.iter().all(|path| *path == target), "{what}: call {n} left {others:?}");
                if calls < n {
                    result.unwrap();
                    assert!(found == whole, "{what}");
                    break;
                }
                assert!(result.unwrap_err().to_string().contains("injected failure"), "{what}");
                failures += 1;
            }
        }
    }
    assert!(failures > 500, "{failures}");
}

/// A tensor that is cut into many tasks, in the order that is not the target's.
fn large() -> Checkpoint {
    let (rows, columns) = (600u64, 500u64);
    let value = |i: u64| (i as f32 * 0.37).sin();
    let bytes: Vec<u8> = (0..rows * columns).flat_map(|i| value(i).to_le_bytes()).collect();
    let source: SourceRef = Arc::new(MemorySource::new("large", bytes));
    let mut checkpoint = Checkpoint::new("none", "made up", "large");
    for (name, encoding) in [("columns", Encoding::COLUMN), ("rows", Encoding::ROW)] {
        let shape = Shape::new([rows, columns]);
        let path = TensorPath::from_dotted(name);
        checkpoint.tensors.push(TensorEntry::dense(path, DType::F32, shape, &source, 0, encoding).unwrap());
    }
    checkpoint
}

/// The same input gives the same bytes on any number of threads, in little memory and in much: every format and kind, of
/// every golden file that it can hold, and of tensors that are cut into many tasks.
#[test]
fn threads_and_memory_change_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let mut large = large();
    let mut plans = plans_of(&large, &KINDS);
    // Formats of one table.
    large.tensors.truncate(1);
    plans.extend(plans_of(&large, &[""]));
    for path in goldens() {
        plans.extend(plans_of(&weighbridge::formats::open(&path).unwrap(), &[""]));
    }
    plans.extend(smallest_plans().into_values().map(|(_, plan)| plan));
    let mut seen = BTreeSet::new();
    for plan in &plans {
        let mut first: Option<Tree> = None;
        for (threads, memory) in [(1, 1 << 30), (2, MIN_MEMORY), (7, MIN_MEMORY), (7, 256 << 20)] {
            remove(&target);
            let sink = LocalSink::for_plan(plan, &target, false).unwrap();
            let options = RunOptions { sync: false, ..options(threads, memory) };
            if let Err(error) = run(plan, &sink, &options) {
                panic!("{} {}: {error}", plan.format, plan.kind);
            }
            let found = tree(&target);
            let same = *first.get_or_insert_with(|| found.clone()) == found;
            assert!(same, "{} {} with {threads} threads and {memory} bytes", plan.format, plan.kind);
        }
        seen.insert(plan.format);
    }
    let written = formats::ALL.iter().filter(|format| format.writer().is_some()).count();
    assert_eq!(seen.len(), written, "{seen:?}");
    assert!(plans.len() > 100, "{}", plans.len());
}

/// A model of `large` in `format`, as a file.
fn written(folder: &Path, format: &str) -> PathBuf {
    let path = folder.join(format!("model.{format}"));
    let mut checkpoint = large();
    checkpoint.tensors.truncate(1);
    let plan = formats::registry().by_id(format).unwrap().plan(&checkpoint, &PlanOptions::default()).unwrap();
    run(&plan, &LocalSink::file(&path, true).unwrap(), &RunOptions::default()).unwrap();
    path
}

/// Reads, counts, hashes, verifies and converts; the codes of what went wrong.
fn use_it(checkpoint: &Checkpoint, target: &Path) -> Vec<String> {
    let mut codes = Vec::new();
    let tensor = &checkpoint.tensors[0];
    let mut note = |result: Result<(), weighbridge::Error>| {
        codes.extend(result.err().map(|e| e.code().as_str().to_owned()))
    };
    note(tensor.read_tensor(Order::Row).map(drop));
    note(stats(tensor, &StatsOptions::default()).map(drop));
    note(sha256(tensor).map(drop));
    let verified = verify_checkpoint(checkpoint, &VerifyOptions { values: true, ..VerifyOptions::default() });
    note(verified.map(drop));
    let npz = formats::registry().by_id("npz").unwrap();
    let plan = plan_checkpoint(checkpoint.clone(), npz, None, &ConvertOptions::default());
    note(plan.and_then(|plan| run(&plan, &LocalSink::file(target, true)?, &RunOptions::default()).map(drop)));
    codes
}

/// A file that is cut short after it was opened gives an error whatever is done with it, also where it is mapped: the
/// process does not end by a signal, and no target is left.
#[test]
fn a_file_that_shrinks_is_an_error_in_every_use() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    assert!(weighbridge::guard_maps());
    for format in ["primitiv", "safetensors", "npy", "npz", "torch", "hdf5", "paddle"] {
        let path = written(dir.path(), format);
        let sources: [SourceRef; 2] =
            [Arc::new(FileSource::open(&path).unwrap()), Arc::new(MapSource::open(&path).unwrap())];
        let options = OpenOptions { format: Some(format.to_owned()), ..OpenOptions::default() };
        let opened = sources.map(|source| registry().open_source(source, &options).unwrap());
        // Within the last page, where the system reports nothing, and far before it.
        let len = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
        for checkpoint in &opened {
            for tensor in &checkpoint.tensors {
                let last = tensor.extents.iter().any(|extent| {
                    extent.source.file().is_some_and(|range| range.offset + extent.offset + extent.len == len)
                });
                let found = [sha256(tensor).map(drop), stats(tensor, &StatsOptions::default()).map(drop)];
                for result in found {
                    assert_eq!(result.is_err(), last, "{format}: {}", tensor.name());
                }
            }
        }
        fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
        for checkpoint in opened {
            let codes = use_it(&checkpoint, &target);
            assert!(
                codes.len() >= 4 && codes.iter().all(|code| code == "file-shrank"),
                "{format}: {codes:?}"
            );
            assert!(!target.exists(), "{format}");
        }
        fs::remove_file(path).unwrap();
    }
}

/// Truncates the file after a given number of written bytes.
#[derive(Debug)]
struct CutAt(AtomicU64, u64, PathBuf);

impl Progress for CutAt {
    fn advance(&self, bytes: u64) {
        if self.0.fetch_add(bytes, Ordering::SeqCst) + bytes >= self.1 {
            fs::File::options().write(true).open(&self.2).unwrap().set_len(100).unwrap();
        }
    }
}

/// The same while a conversion is under way.
#[test]
fn a_file_that_shrinks_amid_a_conversion_leaves_the_old_target() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for to in ["safetensors", "npz", "primitiv"] {
        let path = dir.path().join("model");
        let checkpoint = large();
        let plan =
            formats::registry().by_id("npz").unwrap().plan(&checkpoint, &PlanOptions::default()).unwrap();
        run(&plan, &LocalSink::file(&path, true).unwrap(), &RunOptions::default()).unwrap();
        fs::write(&target, "old").unwrap();
        let opened = weighbridge::formats::open(&path).unwrap();
        let plan =
            plan_checkpoint(opened, formats::registry().by_id(to).unwrap(), None, &ConvertOptions::default())
                .unwrap();
        let progress = Arc::new(CutAt(AtomicU64::new(0), 1 << 20, path.clone()));
        let options = RunOptions { progress, ..options(1, MIN_MEMORY) };
        let error = run(&plan, &LocalSink::file(&target, true).unwrap(), &options).unwrap_err();
        assert_eq!(error.code().as_str(), "file-shrank", "{to}: {error}");
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

/// What was opened stays what is read: a file that grows keeps its length, and one that is replaced by a rename is still
/// the old one.
#[test]
fn a_file_that_grows_or_is_replaced_stays_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path(), "safetensors");
    let truth = large().tensors[0].read_tensor(Order::Row).unwrap();
    let opened = weighbridge::formats::open(&path).unwrap();
    assert!(weighbridge::guard_maps());
    let mapped =
        registry().open_source(Arc::new(MapSource::open(&path).unwrap()), &OpenOptions::default()).unwrap();
    use std::io::Write;
    fs::File::options().append(true).open(&path).unwrap().write_all(&[7; 5000]).unwrap();
    for checkpoint in [&opened, &mapped] {
        assert!(checkpoint.tensors[0].read_tensor(Order::Row).unwrap() == truth);
    }
    let other = dir.path().join("other");
    fs::write(&other, "another file").unwrap();
    fs::rename(&other, &path).unwrap();
    for checkpoint in [&opened, &mapped] {
        assert!(checkpoint.tensors[0].read_tensor(Order::Row).unwrap() == truth);
        assert!(use_it(checkpoint, &dir.path().join("target")).is_empty());
    }
    assert!(weighbridge::formats::open(&path).is_err());
}
