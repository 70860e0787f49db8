//! Damaged and malicious files.

use super::{content, expected, files, open, open_path, registry};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::source::{FolderRef, MemoryFolder};
use weighbridge_core::tensor::Order;
use weighbridge_format::OpenOptions;
use weighbridge_testkit::{memory, testdata};

fn salvaged(bytes: &[u8]) -> Result<Checkpoint> {
    let options = OpenOptions { format: Some("flax".into()), salvage: true, ..OpenOptions::default() };
    registry().open_source(memory(bytes), &options)
}

#[test]
fn every_prefix_is_an_error_and_its_complete_tensors_are_salvaged() {
    for (name, bytes) in files().into_iter().filter(|(_, bytes)| bytes.len() < 1700) {
        let whole = content(&open(memory(&bytes)).unwrap());
        let mut most = 0;
        for len in 0..bytes.len() {
            let error = open(memory(&bytes[..len])).unwrap_err();
            assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{name} {len} {error:?}");
            let Ok(saved) = salvaged(&bytes[..len]) else { continue };
            most = most.max(saved.tensors.len());
            for (tensor, found) in content(&saved) {
                assert_eq!(whole.get(&tensor), Some(&found), "{name} {len}");
            }
            assert!(saved.damage.is_some_and(|damage| !damage.lost.is_empty()), "{name} {len}");
        }
        assert!(most + 1 >= whole.len(), "{name}");
    }
}

#[test]
fn changed_bytes_never_panic() {
    for (name, bytes) in files().into_iter().filter(|(_, bytes)| bytes.len() < 800) {
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0x80, 0x93, 0xc1, 0xc7, 0xdb, 0xdd, 0xdf, 0xff, bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = value;
                for result in [open(memory(&changed)), salvaged(&changed)] {
                    let Ok(checkpoint) = result else { continue };
                    for tensor in &checkpoint.tensors {
                        tensor.read_tensor(Order::Row).unwrap_or_else(|e| unreachable!("{name} {at} {e:?}"));
                    }
                }
            }
        }
    }
}

/// With a damaged header of a map, names are not assigned to other maps.
#[test]
fn salvaged_tensors_are_those_of_the_whole_file() {
    for (name, bytes) in files().into_iter().filter(|(_, bytes)| bytes.len() < 1700) {
        let whole = content(&open(memory(&bytes)).unwrap());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            if open(memory(&changed)).is_ok() {
                continue;
            }
            // A value that becomes a map contains the next ones, and nothing shows it.
            if matches!(changed[at], 0x80..=0x8f) {
                continue;
            }
            for (tensor, found) in salvaged(&changed).iter().flat_map(content) {
                assert_eq!(whole.get(&tensor), Some(&found), "{name} {at}");
            }
        }
    }
}

#[test]
fn golden_damage_has_stable_errors() {
    let cases = [
        ("bytes-after-the-tree.msgpack", "trailing-bytes", None),
        ("truncated.msgpack", "truncated", Some("params.w")),
        ("duplicate-key.msgpack", "duplicate-key", Some("a")),
        ("key-is-a-number.msgpack", "flax-key", Some("a")),
        ("length-of-another-shape.msgpack", "length-mismatch", Some("a.w")),
        ("shape-overflow.msgpack", "length-mismatch", Some("w")),
        ("two-items.msgpack", "flax-array", Some("w")),
        ("negative-dimension.msgpack", "flax-array", Some("w")),
        ("extension-longer-than-its-array.msgpack", "length-mismatch", Some("w")),
        ("chunks-of-two-dtypes.msgpack", "flax-chunks", Some("w")),
        ("chunks-of-another-length.msgpack", "length-mismatch", Some("w")),
        ("chunked-key-second.msgpack", "flax-chunks", Some("w")),
        ("nested.msgpack", "limit", None),
        ("text-not-utf8.msgpack", "not-utf8", Some("a")),
        ("complex.msgpack", "flax-complex", Some("c")),
    ];
    let folder = testdata("flax/bad");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), cases.len());
    for (name, code, tensor) in cases {
        let error = open(memory(std::fs::read(folder.join(name)).unwrap())).unwrap_err();
        assert_eq!(error.code(), code, "{name} {error:?}");
        if let Some(tensor) = tensor {
            assert_eq!(error.tensor(), Some(tensor), "{name}");
        }
        assert!(error.offset().is_some(), "{name}");
    }
}

#[test]
fn memory_is_bounded_by_the_length_of_the_file() {
    // A name of 200 KB above 50,000 empty maps: 10 GB of paths.
    let mut bytes = vec![0x81, 0xdb];
    bytes.extend_from_slice(&200_000u32.to_be_bytes());
    bytes.resize(bytes.len() + 200_000, b'a');
    bytes.extend_from_slice(&[0xdf, 0, 0, 0xc3, 0x50]);
    for number in 0..50_000u32 {
        bytes.push(0xa5);
        bytes.extend_from_slice(format!("{number:05}").as_bytes());
        bytes.push(0x80);
    }
    assert_eq!(open(memory(&bytes)).unwrap_err().kind(), Kind::Limit);
    // Counts are compared with the file.
    for bytes in [
        &[0xdf, 0xff, 0xff, 0xff, 0xff, 0xa0, 1][..],
        &[0xdd, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x81, 0xa1, b'a', 0xc6, 0xff, 0xff, 0xff, 0xff],
    ] {
        assert_eq!(open(memory(bytes)).unwrap_err().code(), "truncated");
    }
    // Lists in lists are read at most once for each level.
    let nested = [vec![0x91; 120], vec![0xd7, 1, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(open(memory(&nested)).unwrap_err().code(), "flax-array");
}

/// A golden checkpoint in memory, with `change` applied to the file `name`.
fn changed(checkpoint: &str, name: &str, change: &dyn Fn(&mut Vec<u8>)) -> FolderRef {
    let root = testdata("orbax/good").join(checkpoint);
    let mut folder = MemoryFolder::new("c");
    let mut open = vec![root.clone()];
    while let Some(at) = open.pop() {
        if at.is_dir() {
            open.extend(std::fs::read_dir(&at).unwrap().map(|item| item.unwrap().path()));
            continue;
        }
        let inside = at.strip_prefix(&root).unwrap();
        let mut bytes = std::fs::read(&at).unwrap();
        if inside == Path::new(name) {
            change(&mut bytes);
        }
        folder = folder.with(inside, bytes);
    }
    Arc::new(folder)
}

fn open_folder(folder: &FolderRef, salvage: bool) -> Result<Checkpoint> {
    registry().open_folder(folder, &OpenOptions { salvage, ..OpenOptions::default() })
}

/// Reads all tensors.
fn read(checkpoint: &Checkpoint) -> Result<()> {
    checkpoint.tensors.iter().try_for_each(|tensor| tensor.read_tensor(Order::Row).map(drop))
}

/// Files of a golden checkpoint below 1 KB, and data files.
fn names(checkpoint: &str) -> Vec<String> {
    let folder = changed(checkpoint, "", &|_| {});
    folder.list(8).unwrap().iter().map(|item| item.name.to_str().unwrap().to_owned()).collect()
}

#[test]
fn damage_of_any_file_of_orbax_is_an_error_or_harmless() {
    for checkpoint in
        ["small", "small_zarr", "small_zarr3_folders", "inline", "uncompressed_nodes", "aggregate"]
    {
        let whole = content(&open_path(&testdata("orbax/good").join(checkpoint)).unwrap());
        for name in names(checkpoint) {
            let len = testdata("orbax/good").join(checkpoint).join(&name).metadata().unwrap().len();
            let len = usize::try_from(len).unwrap();
            for cut in (0..len).step_by(len / 40 + 1) {
                let folder = changed(checkpoint, &name, &|bytes| bytes.truncate(cut));
                for salvage in [false, true] {
                    let Ok(found) = open_folder(&folder, salvage) else { continue };
                    let _damaged = read(&found);
                }
            }
            for at in (0..len).step_by(len / 60 + 1) {
                let folder = changed(checkpoint, &name, &|bytes| bytes[at] ^= 0x15);
                let Ok(found) = open_folder(&folder, false) else { continue };
                let is_ocdbt = name.ends_with("manifest.ocdbt");
                assert!(!is_ocdbt || content(&found) == whole, "checksums detect every change");
                let _damaged = read(&found);
            }
        }
    }
}

#[test]
fn lost_chunks_lose_their_tensor_only() {
    let folder = changed("small_zarr", "params.Dense_0.kernel/.zarray", &|bytes| bytes.truncate(20));
    let error = open_folder(&folder, false).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("bad-json", Some("params.Dense_0.kernel")));
    let saved = open_folder(&folder, true).unwrap();
    assert_eq!(saved.damage.as_ref().unwrap().lost[0].name, "params.Dense_0.kernel");
    assert_eq!(saved.tensors.len(), 5);
    read(&saved).unwrap();
    // Chunks that are packed are checked when they are read.
    let folder = changed("small_zarr", "params.Dense_0.kernel/0.0", &|bytes| bytes.truncate(12));
    let opened = open_folder(&folder, false).unwrap();
    let error = opened.tensor("params.Dense_0.kernel").unwrap().read_tensor(Order::Row).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.file()),
        ("bad-compression", Some("c/params.Dense_0.kernel/0.0"))
    );
}

/// A checkpoint of one array in folders, with this metadata and this chunk.
fn zarr(metadata: &str, chunk: &[u8]) -> FolderRef {
    let tree = r#"{"tree_metadata": {"('w',)": {"key_metadata": [{"key": "w", "key_type": 2}], "value_metadata": {"value_type": "jax.Array"}}}}"#;
    let folder = MemoryFolder::new("c").with("_METADATA", tree.as_bytes().to_vec());
    let folder = folder.with("w/.zarray", metadata.as_bytes().to_vec()).with("w/0.0", chunk.to_vec());
    Arc::new(folder)
}

fn metadata(shape: &str, chunks: &str, more: &str) -> String {
    let fixed = r#""dtype": "<f4", "fill_value": null, "filters": null, "order": "C", "zarr_format": 2"#;
    format!("{{\"shape\": {shape}, \"chunks\": {chunks}, {fixed}{more}}}")
}

#[test]
fn rejects_claims_of_arrays_that_the_files_cannot_hold() {
    let plain = r#", "compressor": null"#;
    let zstd = r#", "compressor": {"id": "zstd"}"#;
    let fail = |folder: FolderRef| -> Error {
        open_folder(&folder, false).and_then(|found| read(&found)).unwrap_err()
    };
    let cases = [
        (zarr(&metadata("[2, 2]", "[2, 2]", plain), &[0; 15]), "zarr-chunk"),
        (zarr(&metadata("[2, 2]", "[2, 0]", plain), &[0; 16]), "zarr-metadata"),
        (zarr(&metadata("[2, 2]", "[2]", plain), &[0; 16]), "zarr-metadata"),
        (zarr(&metadata("[2, -2]", "[2, 2]", plain), &[0; 16]), "zarr-metadata"),
        (zarr(&metadata("[4294967296, 4294967296]", "[1, 1]", plain), &[0; 4]), "shape-overflow"),
        (zarr(&metadata("[2, 2]", "[4294967296, 4294967296]", zstd), &[0; 4]), "shape-overflow"),
        // A terabyte in one chunk, in many chunks that are not stored, and in one that is not.
        (zarr(&metadata("[1048576, 262144]", "[1048576, 262144]", zstd), &[0; 20]), "limit"),
        (zarr(&metadata("[1048576, 262144]", "[1, 1]", plain), &[0; 4]), "limit"),
        (
            zarr(
                &metadata(
                    "[1048576, 262144]",
                    "[524288, 262144]",
                    r#", "compressor": null, "dimension_separator": "/""#,
                ),
                &[],
            ),
            "inflated",
        ),
        (zarr(&metadata("[2, 2]", "[2, 2]", zstd), &[0; 8]), "bad-compression"),
        (
            zarr(&metadata("[2, 2]", "[2, 2]", zstd), &zstd::encode_all(&[0; 15][..], 1).unwrap()),
            "zarr-chunk",
        ),
        (
            zarr(&metadata("[2, 2]", "[2, 2]", zstd), &zstd::encode_all(&[0; 1 << 20][..], 1).unwrap()),
            "zarr-chunk",
        ),
        (zarr("[]", &[]), "zarr-metadata"),
        (zarr("{", &[]), "bad-json"),
    ];
    for (number, (folder, code)) in cases.into_iter().enumerate() {
        assert_eq!(fail(folder).code(), code, "{number}");
    }
    // Codecs and dtypes outside Weighbridge: a note.
    for more in [r#", "compressor": {"id": "blosc"}"#, r#", "compressor": null, "filters": [1]"#] {
        let found = open_folder(&zarr(&metadata("[2, 2]", "[2, 2]", more), &[0; 16]), false).unwrap();
        assert_eq!((found.tensors.len(), found.notes[0].code.as_str()), (0, "tensor-skipped"));
    }
}

#[test]
fn rejects_paths_outside_the_folder() {
    // The beginning that all paths of data files in the manifest share: `d/`.
    let manifest = std::fs::read(testdata("orbax/good/uncompressed_nodes/manifest.ocdbt")).unwrap();
    let place = manifest.windows(2).position(|two| two == b"d/").unwrap();
    for (beginning, code) in [(b"//", "unsafe-name"), (b"e/", "file-missing")] {
        let folder = changed("uncompressed_nodes", "manifest.ocdbt", &|bytes| {
            bytes[place..place + 2].copy_from_slice(beginning);
            let end = bytes.len() - 4;
            let sum = crc32c::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
        });
        assert_eq!(open_folder(&folder, false).unwrap_err().code(), code);
    }
}

#[test]
fn every_prefix_of_shards_is_an_error() {
    let root = testdata("flax/good/sharded");
    let names: Vec<String> = std::fs::read_dir(&root)
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in &names {
        let bytes = std::fs::read(root.join(name)).unwrap();
        for cut in 0..bytes.trim_ascii_end().len() {
            let mut folder = MemoryFolder::new("c");
            for other in &names {
                let all = std::fs::read(root.join(other)).unwrap();
                folder = folder.with(other, if other == name { all[..cut].to_vec() } else { all });
            }
            let folder: FolderRef = Arc::new(folder);
            assert!(open_folder(&folder, false).is_err(), "{name} {cut}");
            let _saved = open_folder(&folder, true);
        }
    }
    assert!(expected("flax").contains_key(&root));
}
