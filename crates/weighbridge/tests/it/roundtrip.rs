//! Every golden primitiv file is converted to the bridges and back without a change.

use crate::support::testdata;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge::ops::{Changes, ConvertOptions, convert, prepare};
use weighbridge::source::{CountingSource, FileSource};
use weighbridge::tensor::{DType, Order};
use weighbridge::{Checkpoint, OpenOptions};

const EXTENSIONS: [&str; 5] = ["model", "param", "tensor", "shape", "optimizer"];

fn goldens() -> Vec<PathBuf> {
    let root = testdata("primitiv/good");
    let folders = fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir());
    let mut files: Vec<PathBuf> =
        folders.flat_map(|f| fs::read_dir(f).unwrap().map(|e| e.unwrap().path())).collect();
    files.retain(|p| p.extension().is_some_and(|e| EXTENSIONS.iter().any(|x| e == *x)));
    files.sort();
    assert!(files.len() > 120, "{}", files.len());
    files
}

/// Names, types, shapes and values; in the order of the index.
fn content(checkpoint: &Checkpoint) -> Vec<(String, DType, Vec<u64>, Vec<u8>)> {
    let one = |t: &weighbridge::TensorEntry| {
        (t.text(), t.dtype(), t.shape.dims().to_vec(), t.read_tensor(Order::Row).unwrap())
    };
    checkpoint.tensors.iter().map(one).collect()
}

fn force(changes: Changes) -> ConvertOptions {
    ConvertOptions { force: true, changes, deny_loss: true, ..ConvertOptions::default() }
}

/// Converts; nothing is lost to this library, and to others no more than names that the target cannot have.
fn moved(from: &Path, to: &Path) {
    let options = ConvertOptions { force: true, ..ConvertOptions::default() };
    let (plan, _) = convert(from, to, &options).unwrap();
    assert!(plan.losses.iter().all(|loss| loss.code == "renamed"), "{from:?} to {to:?}: {:?}", plan.losses);
}

#[test]
fn through_every_bridge_and_back() {
    let dir = tempfile::tempdir().unwrap();
    for golden in goldens() {
        let bytes = fs::read(&golden).unwrap();
        let truth = weighbridge::formats::open(&golden).unwrap();
        let extension = golden.extension().unwrap().to_str().unwrap();
        let back = dir.path().join("back").with_extension(extension);
        for bridge in ["a.safetensors", "b.npz", "c.h5", "d.pt"] {
            let bridge = dir.path().join(bridge);
            moved(&golden, &bridge);
            let opened = weighbridge::formats::open(&bridge).unwrap();
            assert_eq!(content(&opened), content(&truth), "{golden:?}");
            assert_eq!(opened.notes, [], "{golden:?}");
            moved(&bridge, &back);
            assert!(fs::read(&back).unwrap() == bytes, "{golden:?} through {bridge:?}");
        }
        // From bridge to bridge, and home from there; then in its own form.
        let (st, npz) = (dir.path().join("a.safetensors"), dir.path().join("c.npz"));
        moved(&st, &npz);
        moved(&npz, &back);
        assert!(fs::read(&back).unwrap() == bytes, "{golden:?} through two bridges");
        moved(&golden, &back);
        assert!(fs::read(&back).unwrap() == bytes, "{golden:?} in its own form");
    }
}

#[test]
fn reversed_dimensions_keep_the_bytes_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let reverse = || force(Changes { reverse_dims: true, ..Changes::default() });
    for golden in goldens() {
        let truth = weighbridge::formats::open(&golden).unwrap();
        let bridge = dir.path().join("a.safetensors");
        convert(&golden, &bridge, &reverse()).unwrap();
        let opened = weighbridge::formats::open(&bridge).unwrap();
        for (a, b) in opened.tensors.iter().zip(&truth.tensors) {
            assert_eq!(a.shape, b.shape.reversed());
            assert_eq!(a.read_tensor(Order::Row).unwrap(), b.read_tensor(Order::Column).unwrap());
        }
        let back = dir.path().join("back").with_extension(golden.extension().unwrap());
        convert(&bridge, &back, &force(Changes::default())).unwrap();
        assert!(fs::read(&back).unwrap() == fs::read(&golden).unwrap(), "{golden:?}");
    }
}

#[test]
fn dropping_state_equals_the_original_file_without_state() {
    let dir = tempfile::tempdir().unwrap();
    let folder = testdata("primitiv/good");
    for (with, without) in [
        ("model/model_nested_adam_a.model", "model/model_nested_adam_stats_dropped_a.model"),
        ("parameter/param_adam_a.param", "parameter/param_adam_stats_dropped_a.param"),
        ("trained/trained_mlp_a.model", "trained/trained_mlp_nostats_a.model"),
    ] {
        let target = dir.path().join("x").with_extension(Path::new(with).extension().unwrap());
        let changes = Changes { no_state: true, ..Changes::default() };
        convert(folder.join(with), &target, &force(changes)).unwrap();
        assert!(fs::read(&target).unwrap() == fs::read(folder.join(without)).unwrap(), "{with}");
    }
}

#[test]
fn dropping_absent_state_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let codes = |source: PathBuf, no_state: bool| {
        let options = force(Changes { no_state, ..Changes::default() });
        let (_, notes) = prepare(source, dir.path().join("x.npz"), &options).unwrap();
        notes.iter().map(|note| note.code.as_str()).collect::<Vec<_>>()
    };
    let (torch, primitiv) =
        (testdata("torch/good/module_state.pt"), testdata("primitiv/good/model/model_nested_adam_a.model"));
    assert!(codes(torch.clone(), true).contains(&"no-state-known"));
    assert!(!codes(torch, false).contains(&"no-state-known"));
    assert!(!codes(primitiv, true).contains(&"no-state-known"));
}

#[test]
fn guessed_tensors_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (table, target) = (dir.path().join("t.tsv"), dir.path().join("t.safetensors"));
    fs::write(&table, "a\t1.5\nb\t2\n").unwrap();
    let (plan, _) = prepare(&table, &target, &ConvertOptions::default()).unwrap();
    let codes: Vec<_> = plan.losses.iter().map(|loss| loss.code.as_str()).collect();
    assert!(codes.contains(&"guessed-dtype") && !codes.contains(&"guessed-names"), "{codes:?}");
}

/// A copy of a PyTorch file compares the checksum of the source with that of the copied bytes.
#[test]
fn a_damaged_pytorch_file_is_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("x.pt"), dir.path().join("y.pt"));
    let golden = testdata("primitiv/good/trained/trained_xor_a.model");
    convert(golden, &source, &ConvertOptions::default()).unwrap();
    convert(&source, &target, &ConvertOptions::default()).unwrap();
    let place = weighbridge::formats::open(&source).unwrap().tensor("w1").unwrap().extents[0].offset;
    let mut bytes = fs::read(&source).unwrap();
    bytes[usize::try_from(place).unwrap() + 5] ^= 0x10;
    fs::write(&source, bytes).unwrap();
    let old = fs::read(&target).unwrap();
    let options = ConvertOptions { force: true, ..ConvertOptions::default() };
    let error = convert(&source, &target, &options).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("crc-mismatch", Some("w1")));
    assert_eq!(fs::read(&target).unwrap(), old);
}

/// A stored npz whose bytes changed after it was written: opening does not see it, whoever reads
/// the whole tensor does, and nothing is written that hides it.
#[test]
fn a_damaged_archive_is_not_converted() {
    let dir = tempfile::tempdir().unwrap();
    let (npz, target) = (dir.path().join("x.npz"), dir.path().join("target"));
    let golden = testdata("primitiv/good/trained/trained_xor_a.model");
    convert(golden, &npz, &ConvertOptions::default()).unwrap();
    let opened = weighbridge::formats::open(&npz).unwrap();
    let place = opened.tensor("w1").unwrap().extents[0].offset;
    let mut bytes = fs::read(&npz).unwrap();
    bytes[usize::try_from(place).unwrap() + 5] ^= 0x10;
    fs::write(&npz, bytes).unwrap();

    let opened = weighbridge::formats::open(&npz).unwrap();
    assert_eq!(
        weighbridge::ops::hash::sha256(opened.tensor("w1").unwrap()).unwrap_err().code().as_str(),
        "crc-mismatch"
    );
    assert!(weighbridge::ops::hash::sha256(opened.tensor("w2").unwrap()).is_ok());
    let stats =
        |name: &str| weighbridge::ops::stats::stats(opened.tensor(name).unwrap(), &Default::default());
    assert_eq!(stats("w1").unwrap_err().code().as_str(), "crc-mismatch");
    assert!(stats("w2").is_ok());
    fs::write(&target, b"old").unwrap();
    for to in ["npz", "safetensors", "primitiv"] {
        let options = ConvertOptions { to: Some(to.into()), force: true, ..ConvertOptions::default() };
        let error = convert(&npz, &target, &options).unwrap_err();
        assert_eq!((error.code().as_str(), error.tensor()), ("crc-mismatch", Some("w1")), "{to}");
        assert_eq!(fs::read(&target).unwrap(), b"old");
    }
    // What is whole can still be taken.
    let changes = Changes { drop: vec!["w1".into()], ..Changes::default() };
    let options =
        ConvertOptions { to: Some("npz".into()), force: true, changes, ..ConvertOptions::default() };
    convert(&npz, &target, &options).unwrap();
}

/// A file from elsewhere: dotted names become submodels, other floats need a cast.
#[test]
fn a_foreign_file_becomes_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("x.safetensors"), dir.path().join("x.model"));
    let half: Vec<u8> = [1.5f32, -2.0, 0.25, 3.0, 4.0, 5.0].iter().flat_map(|x| half_bits(*x)).collect();
    let view =
        |shape: Vec<usize>, data| safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, shape, data);
    let tensors = [
        ("enc.0.weight", view(vec![2, 3], &half).unwrap()),
        ("enc.0.bias", view(vec![3], &half[..6]).unwrap()),
    ];
    fs::write(&source, safetensors::serialize(tensors, None).unwrap()).unwrap();

    let error = convert(&source, &target, &ConvertOptions::default()).unwrap_err();
    assert!(error.hint_text().unwrap().contains("`cast f32`"), "{error}");
    convert(&source, &target, &force(Changes { cast: Some(DType::F32), ..Changes::default() })).unwrap();
    let model = weighbridge::formats::open(&target).unwrap();
    assert_eq!(model.kind, "model");
    let paths: Vec<String> = model.tensors.iter().map(|t| t.path.to_json_text()).collect();
    assert_eq!(paths, [r#"["enc","0","bias"]"#, r#"["enc","0","weight"]"#]);
    let weights = model.tensors[1].read_tensor(Order::Row).unwrap();
    let expected: Vec<u8> =
        [1.5f32, -2.0, 0.25, 3.0, 4.0, 5.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(weights, expected);
}

/// The upper half of an `f32`, which is its `bf16` where the lower half is zero.
fn half_bits(x: f32) -> [u8; 2] {
    let bytes = x.to_le_bytes();
    [bytes[2], bytes[3]]
}

/// A model of 4 GiB, almost all of it holes: listing reads less than 1 MiB.
#[test]
fn listing_four_gibibytes_reads_headers_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.model");
    let word = |n: u32| [&[0xce], n.to_be_bytes().as_slice()].concat();
    let file = fs::File::create(&path).unwrap();
    let write = |at: u64, bytes: &[u8]| std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
    let head = [word(0), word(1), word(0x300), word(1024)].concat();
    write(0, &head);
    let mut at = head.len() as u64;
    for i in 0..1024 {
        let mut entry = vec![0x91, 0xa4];
        entry.extend_from_slice(format!("{i:04}").as_bytes());
        entry.extend(
            [&[0x92][..], &word(1024), &word(1024), &word(1), &[0xc6], &(4u32 << 20).to_be_bytes()].concat(),
        );
        write(at, &entry);
        at += entry.len() as u64 + (4 << 20);
        write(at, &word(0));
        at += 5;
    }
    let source = Arc::new(CountingSource::new(Arc::new(FileSource::open(&path).unwrap())));
    let opened =
        weighbridge::formats::registry().open_source(source.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(opened.tensors.len(), 1024);
    assert_eq!(opened.tensor_bytes(), 4 << 30);
    assert!(source.bytes_read() < 1 << 20, "{} bytes read", source.bytes_read());
}
