//! Distributed checkpoints.

use super::*;
use weighbridge_io::source::{FolderRef, LocalFolder, MemoryFolder};

fn folder(name: &str) -> FolderRef {
    Arc::new(LocalFolder::open(good().join(name)).unwrap())
}

fn opened(folder: &FolderRef) -> weighbridge_core::Result<Checkpoint> {
    read_distributed(folder, &OpenOptions::default()).map(Option::unwrap)
}

#[test]
fn reads_checkpoint_of_one_process() {
    let checkpoint = opened(&folder("p331/dist_ckpt")).unwrap();
    let json: Json = serde_json::from_slice(&golden("p331/dist_ckpt/expected.json")).unwrap();
    let expected = json["tensors"].as_array().unwrap();
    assert_eq!(checkpoint.tensors.len(), expected.len());
    for (entry, json) in checkpoint.tensors.iter().zip(expected) {
        assert_eq!(entry.text(), json["name"].as_str().unwrap());
        assert_eq!(sha256(entry), json["sha256"].as_str().unwrap());
    }
    assert!(checkpoint.tensors[0].single_extent().is_some());
    assert!(read_distributed(&folder("p262/cnn_state_dict"), &OpenOptions::default()).unwrap().is_none());
}

/// Made by Python 3.11 with Paddle 3.3.1's classes: `w` in four boxes over two files, `b` in two,
/// and the first moment of `w`, in two.
#[test]
fn reads_checkpoint_of_two_processes() {
    let checkpoint = opened(&folder("p331/dist_two")).unwrap();
    let json: Json = serde_json::from_slice(&golden("p331/dist_two/expected.json")).unwrap();
    let expected = json["tensors"].as_array().unwrap();
    assert_eq!(checkpoint.tensors.len(), expected.len());
    for json in expected {
        let entry = checkpoint.tensor(json["name"].as_str().unwrap()).unwrap();
        let shape: Vec<u64> = json["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
        assert_eq!(entry.shape.dims(), shape);
        assert_eq!(entry.extents.len() as u64, json["parts"].as_u64().unwrap());
        assert_eq!(sha256(entry), json["sha256"].as_str().unwrap());
    }
    // As a state of one file.
    let state = open(&rewrite(&checkpoint, &[])).unwrap();
    for (a, b) in state.tensors.iter().zip(&checkpoint.tensors) {
        assert_eq!((a.text(), sha256(a)), (b.text(), sha256(b)));
    }
}

#[test]
fn reports_missing_shards() {
    let names = ["0.metadata", "0_0.distcp", "0_1.distcp", "1_0.distcp", "1_1.distcp"];
    // Opens the folder with other content, or none, for one file.
    let with = |other: &str, content: Option<Vec<u8>>| {
        let mut folder = MemoryFolder::new("m");
        for name in names {
            let kept = Some(golden(&format!("p331/dist_two/{name}")));
            if let Some(bytes) = if name == other { content.clone() } else { kept } {
                folder = folder.with(name, bytes);
            }
        }
        opened(&(Arc::new(folder) as FolderRef)).map_err(|e| e.code().as_str())
    };
    assert!(with("none", None).is_ok());
    assert_eq!(with("0_0.distcp", None).unwrap_err(), "shard-missing");
    let other = golden("p331/dist_two/1_0.distcp");
    assert_eq!(with("0_0.distcp", Some(other)).unwrap_err(), "shard-mismatch");
    let empty = golden("p331/nested_ckpt/empty.pdparams");
    assert_eq!(with("1_1.distcp", Some(empty)).unwrap_err(), "shard-missing");
}
