//! Networks trained by the original compute the same results from the tensors that are read.

use crate::support::inference::{self, Matrix};
use crate::support::testdata;
use weighbridge::tensor::Order;

use std::path::Path;
use weighbridge::ops::{ConvertOptions, convert};

/// Computes the network in `file` and compares it with the original's answers in `json`.
fn compute(file: &Path, json: &serde_json::Value) {
    let model = weighbridge::formats::open(file).unwrap();
    let compared = inference::check(json, |name| {
        let entry = model.tensor(name).unwrap();
        let dims = entry.shape.dims().to_vec();
        let columns = dims.get(1).map_or(1, |&d| usize::try_from(d).unwrap());
        let bytes = entry.read_tensor(Order::Row).unwrap();
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Matrix { dims, get: Box::new(move |i, j| values[i * columns + j]) }
    });
    assert!(compared >= 4, "{file:?}");
}

#[test]
fn trained_networks_compute_what_the_original_computes() {
    let root = testdata("primitiv/good/trained");
    let folder = tempfile::tempdir().unwrap();
    let mut networks = 0;
    for file in std::fs::read_dir(root).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".model.json") {
            continue;
        }
        // The networks without stats are those of the same variant with stats.
        let answers = path.to_str().unwrap().replace("_nostats", "");
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(answers).unwrap()).unwrap();
        let model = path.with_extension("");
        compute(&model, &json);
        for extension in ["safetensors", "npz"] {
            let converted = folder.path().join(&name).with_extension(extension);
            convert(&model, &converted, &ConvertOptions::default()).unwrap();
            compute(&converted, &json);
        }
        networks += 1;
    }
    assert_eq!(networks, 8);
}
