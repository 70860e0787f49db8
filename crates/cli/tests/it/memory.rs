//! Peak memory of a conversion, measured from outside on a model of 4 GiB.

use crate::support::signal;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Sixteen tensors of 256 MiB.
const TENSORS: u32 = 16;
const SIDE: u32 = 8192;
const BUDGET_KIB: u64 = 64 << 10;
/// What the program may take besides its budget, from the requirements.
const BESIDE_KIB: u64 = 64 << 10;

/// A primitiv model whose data is a hole in the file, but for a mark in every tensor.
fn sparse_model(path: &Path) {
    let word = |n: u32| [&[0xce], n.to_be_bytes().as_slice()].concat();
    let mut file = File::create(path).unwrap();
    for n in [0, 1, 0x300, TENSORS] {
        file.write_all(&word(n)).unwrap();
    }
    let bytes = i64::from(SIDE) * i64::from(SIDE) * 4;
    for i in 0..TENSORS {
        let mut head = vec![0x91, 0xa3];
        head.extend_from_slice(format!("t{i:02}").as_bytes());
        head.push(0x92);
        head.extend([word(SIDE), word(SIDE), word(1)].concat());
        head.push(0xc6);
        head.extend_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        file.write_all(&head).unwrap();
        // Element (1, 0) of a column-major tensor is the second value.
        file.seek(SeekFrom::Current(4)).unwrap();
        file.write_all(&(1.0 + i as f32).to_le_bytes()).unwrap();
        file.seek(SeekFrom::Current(bytes - 8)).unwrap();
        file.write_all(&word(0)).unwrap();
    }
}

/// The highest resident set of a child so far, in KiB.
fn peak(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn run_and_watch(words: &[&str]) -> u64 {
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_weighbridge")).args(words).stdout(Stdio::null()).spawn().unwrap();
    let mut highest = 0;
    let status = loop {
        highest = highest.max(peak(&child).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success());
    highest
}

/// Interrupted twice at once, as `timeout` does it: the old target stays, and nothing else.
#[test]
fn a_terminated_conversion_cleans_up() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (model, target) = (dir.path().join("big.model"), dir.path().join("target"));
    sparse_model(&model);
    fs::write(&target, b"old").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args([
            "convert",
            model.to_str().unwrap(),
            target.to_str().unwrap(),
            "--force",
            "--to",
            "safetensors",
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It has begun when its staged file is there.
    let count = || fs::read_dir(dir.path()).unwrap().count();
    while count() < 3 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        signal(&child, "TERM");
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(count(), 2);
    assert_eq!(fs::read(&target).unwrap(), b"old");
}

#[test]
fn four_gibibytes_pass_through_the_budget() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = dir.path().join("big.model");
    sparse_model(&model);
    let (model, budget) = (model.to_str().unwrap(), "64MiB");
    // Transposed, the whole of it; with checksums and as it is, a part.
    for (name, pattern) in [("big.safetensors", "*"), ("big.npz", "t0[0-3]"), ("copy.model", "t0[0-3]")] {
        let target = dir.path().join(name);
        let target_name = target.to_str().unwrap();
        let words = ["convert", model, target_name, "--memory", budget, "--select", pattern, "--no-sync"];
        let highest = run_and_watch(&words);
        assert!(highest > 0 && highest <= BUDGET_KIB + BESIDE_KIB, "{name}: {highest} KiB");
        let opened = weighbridge::formats::open(&target).unwrap();
        assert_eq!(opened.tensors.len(), if pattern == "*" { TENSORS as usize } else { 4 });
        for (i, tensor) in opened.tensors.iter().enumerate() {
            let corner = weighbridge::tensor::Region { start: vec![0, 0], shape: vec![2, 2] };
            let values = tensor.read_region(&corner, weighbridge::tensor::Order::Row).unwrap();
            let expected = [0.0, 0.0, 1.0 + i as f32, 0.0].map(f32::to_le_bytes).concat();
            assert_eq!(values, expected, "{name} {i}");
        }
        // Another order, so that one side is put in that of the other.
        if pattern == "*" {
            let highest = run_and_watch(&["diff", model, target_name, "--memory", budget, "--no-metadata"]);
            assert!(highest > 0 && highest <= BUDGET_KIB + BESIDE_KIB, "diff: {highest} KiB");
        }
        fs::remove_file(&target).unwrap();
    }
}

/// Edges of PyTorch-BigGraph that go to other partitions: 48 MB of them, with a budget of 16 MiB.
#[test]
fn the_budget_bounds_edges_on_their_way() {
    const EDGES: u64 = 2_000_000;
    const ENTITIES: u64 = 50_000;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("e")).unwrap();
    fs::write(at("e/entity_count_all_0.txt"), format!("{ENTITIES}\n")).unwrap();
    let config = r#"{"entities": {"all": {"num_partitions": 1}}, "relations": [{"name": "r", "lhs": "all", "rhs": "all"}],
        "dimension": 4, "entity_path": "e", "edge_paths": ["x"], "checkpoint_path": "c"}"#;
    fs::write(at("config.json"), config).unwrap();
    let mut header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({EDGES}, 3), }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    let mut dice = 1u64;
    for _ in 0..EDGES {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for number in [(dice >> 33) % ENTITIES, 0, (dice >> 17) % ENTITIES] {
            bytes.extend(number.to_le_bytes());
        }
    }
    fs::write(at("edges.npy"), bytes).unwrap();
    let path = |name: &str| at(name).to_str().unwrap().to_owned();
    let (source, target, config, entities) = (path("edges.npy"), path("out"), path("config.json"), path("e"));
    let words = ["convert", &source, &target, "--to", "biggraph", "--set", "columns=lhs,rel,rhs"];
    let more = [
        "--set",
        "partitions=4",
        "--config",
        &config,
        "--entities",
        &entities,
        "--memory",
        "16MiB",
        "--no-sync",
    ];
    let highest = run_and_watch(&words.into_iter().chain(more).collect::<Vec<_>>());
    assert!(highest < (16 << 10) + (48 << 10), "{highest} KiB");
    let first = fs::metadata(at("out/edges_0_0.h5")).unwrap().len();
    assert!((2_900_000..3_100_000).contains(&first), "{first}");
}
