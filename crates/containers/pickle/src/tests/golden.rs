//! Files that Paddle and numpy wrote, compared with the content that they report.

use super::*;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use weighbridge_core::tensor::DType;

fn expected() -> Vec<(PathBuf, Json)> {
    let mut all = Vec::new();
    for folder in std::fs::read_dir(good()).unwrap() {
        let path = folder.unwrap().path();
        if let Ok(text) = std::fs::read_to_string(path.join("expected.json")) {
            all.push((path, serde_json::from_str(&text).unwrap()));
        }
    }
    all
}

/// Pickles with an entry that describes their content.
fn entries() -> Vec<(String, SourceRef, Json)> {
    let mut found = Vec::new();
    for (folder, json) in expected() {
        for entry in json["entries"].as_array().into_iter().flatten() {
            let path = folder.join(entry["file"].as_str().unwrap());
            let mut entry = entry.clone();
            if let Some(other) = entry["raw_pickle"]["same_content_as"].as_str() {
                let of = |e: &&Json| e["file"].as_str() == Some(other);
                let other = json["entries"].as_array().unwrap().iter().find(of).unwrap();
                entry["raw_pickle"] = other["raw_pickle"].clone();
            }
            if let Ok(bytes) = std::fs::read(&path) {
                let name = path.strip_prefix(good()).unwrap().display().to_string();
                found.push((name, memory(&bytes), entry));
            }
        }
    }
    assert!(found.len() >= 40, "only {} golden entries", found.len());
    found
}

#[test]
fn opcodes_and_imports_match_python() {
    let mut compared = 0;
    for (name, source, entry) in entries() {
        let Some(expected) = entry.get("pickle") else { continue };
        let pickle = read(&source, 0, &Options::default()).unwrap();
        assert_eq!(u64::from(pickle.protocol), expected["protocol"].as_u64().unwrap(), "{name}");
        assert_eq!(pickle.uses_frames, expected["uses_frames"].as_bool().unwrap(), "{name}");
        assert_eq!(pickle.end, source.len(), "{name}");
        let counts: BTreeMap<_, _> = pickle.opcode_counts().collect();
        let wanted: BTreeMap<_, _> = expected["opcodes"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, count)| (name.as_str(), count.as_u64().unwrap()))
            .collect();
        assert_eq!(counts, wanted, "{name}");
        let mut globals: Vec<_> = pickle.global_names().iter().map(|(m, n)| format!("{m} {n}")).collect();
        globals.sort();
        let wanted: Vec<_> =
            expected["globals"].as_array().unwrap().iter().map(|g| g.as_str().unwrap().to_owned()).collect();
        assert_eq!(globals, wanted, "{name}");
        compared += 1;
    }
    assert!(compared >= 40, "{compared}");
}

/// Compares an object with Python's description of the unpickled one.
fn compare(source: &SourceRef, pickle: &Pickle, id: ObjectId, json: &Json, at: &str, arrays: &mut usize) {
    let graph = &pickle.graph;
    let options = Options::default();
    if let Some(inner) = lod_tensor(graph, id) {
        return compare(source, pickle, inner, json, at, arrays);
    }
    let kind = json["kind"].as_str().unwrap();
    match kind {
        "dict" => {
            let items = json["items"].as_object().unwrap();
            let pairs = graph.pairs(id).unwrap();
            assert_eq!(pairs.len(), items.len(), "{at}");
            for ((key, value), (name, json)) in pairs.iter().zip(items) {
                assert_eq!(graph.text(*key), Some(name.as_str()), "{at}");
                compare(source, pickle, *value, json, &format!("{at}/{name}"), arrays);
            }
        }
        "list" | "tuple" => {
            let mut id = id;
            if let Some((("builtins" | "__builtin__", "tuple"), [items])) = graph.call(id) {
                id = *items;
            }
            let items = json["items"].as_array().unwrap();
            let found = graph.sequence(id).unwrap();
            assert_eq!(found.len(), items.len(), "{at}");
            for (place, (&item, json)) in found.iter().zip(items).enumerate() {
                compare(source, pickle, item, json, &format!("{at}[{place}]"), arrays);
            }
        }
        "str" => assert_eq!(graph.text(id), json["value"].as_str(), "{at}"),
        "int" => assert_eq!(graph.int(id), json["value"].as_i64(), "{at}"),
        "bool" => assert_eq!(graph.object(id), &Object::Bool(json["value"].as_bool().unwrap()), "{at}"),
        "float" => assert_eq!(graph.object(id), &Object::Float(json["value"].as_f64().unwrap()), "{at}"),
        "NoneType" => assert_eq!(id, ObjectId::NONE, "{at}"),
        "numpy_scalar" => {
            let found = scalar(graph, id).unwrap().unwrap();
            let bytes = elements(source, found.payload.as_ref().unwrap());
            assert_eq!(
                (json["numpy_dtype"].as_str(), found.dtype),
                (Some("float32"), Some(DType::F32)),
                "{at}"
            );
            let value = f32::from_le_bytes(bytes.try_into().unwrap());
            assert_eq!(json["value"].as_f64(), Some(f64::from(value)), "{at}");
        }
        "ndarray" => {
            let array = NdArray::of(graph, id, &options).unwrap().unwrap();
            let payload = array.payload.unwrap();
            assert_eq!(payload.len, json["nbytes"].as_u64().unwrap(), "{at}");
            let shape: Vec<u64> =
                json["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
            assert_eq!(array.shape.dims(), shape, "{at}");
            let fortran = json["fortran"].as_bool().unwrap_or(false) && !array.shape.is_order_free();
            assert_eq!(array.fortran_order, fortran, "{at}");
            let wanted = match json["numpy_dtype"].as_str().unwrap() {
                "bool" => DType::Bool,
                "uint8" => DType::U8,
                "int8" => DType::I8,
                "uint16" => DType::U16,
                "int16" => DType::I16,
                "int32" => DType::I32,
                "int64" => DType::I64,
                "float16" => DType::F16,
                "float32" => DType::F32,
                "float64" => DType::F64,
                "complex64" => DType::C64,
                "complex128" => DType::C128,
                other => panic!("{other}"),
            };
            assert_eq!(array.dtype, Some(wanted), "{at}");
            if !array.fortran_order {
                use sha2::Digest;
                let hash = sha2::Sha256::digest(elements(source, &payload));
                let hash: String = hash.iter().map(|b| format!("{b:02x}")).collect();
                assert_eq!(Some(hash.as_str()), json["sha256"].as_str(), "{at}");
            }
            *arrays += 1;
        }
        other => panic!("{at}: {other}: {json}"),
    }
}

#[test]
fn values_match_python() {
    let mut arrays = 0;
    for (name, source, entry) in entries() {
        let Some(json) = entry.get("raw_pickle") else { continue };
        let pickle = read(&source, 0, &Options::default()).unwrap();
        compare(&source, &pickle, pickle.root, json, &name, &mut arrays);
    }
    assert!(arrays > 300, "{arrays}");
}

#[test]
fn the_arrays_of_every_protocol_are_equal() {
    let mut seen = 0;
    for protocol in 0..=5 {
        let bytes = std::fs::read(good().join(format!("python/arrays_p{protocol}.pkl"))).unwrap();
        let source = memory(&bytes);
        let pickle = read(&source, 0, &Options::default()).unwrap();
        for &(key, value) in pickle.graph.pairs(pickle.root).unwrap() {
            let options = Options::default();
            let key = pickle.graph.text(key).unwrap();
            let found = NdArray::of(&pickle.graph, value, &options).unwrap();
            let Some(array) = found.or_else(|| scalar(&pickle.graph, value).unwrap()) else {
                panic!("protocol {protocol}: {key}")
            };
            let bytes = elements(&source, array.payload.as_ref().unwrap());
            let column: Vec<u8> = [0f64, 3., 1., 4., 2., 5.].iter().flat_map(|x| x.to_le_bytes()).collect();
            match key {
                "a" => assert_eq!(bytes, [0; 16]),
                "e" => assert!(bytes.is_empty() && array.shape.dims() == [0, 3]),
                "one" | "other" => assert_eq!(bytes, [98]),
                "big" => assert_eq!((bytes.len(), bytes[4]), (65536, 1)),
                "f" => assert_eq!((array.fortran_order, &bytes), (true, &column)),
                "be" => {
                    assert_eq!(
                        (array.endian, &*bytes),
                        (weighbridge_core::tensor::Endian::Big, &[0, 1, 0, 1, 0, 1][..])
                    );
                }
                "s" => assert_eq!(bytes, 1.5f32.to_le_bytes()),
                "t" => assert_eq!((array.dtype, &*bytes), (Some(DType::Bool), &[1][..])),
                "scalar" => assert_eq!((array.shape.rank(), bytes[0]), (0, 3)),
                other => panic!("{other}"),
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 3 * 10 + 3 * 5);
}

#[test]
fn arrays_of_objects_text_and_records_have_no_payload() {
    let bytes = std::fs::read(good().join("python/odd_arrays_p4.pkl")).unwrap();
    let pickle = read_bytes(&bytes).unwrap();
    let arrays = pickle.graph.sequence(pickle.root).unwrap();
    let descrs: Vec<_> = arrays
        .iter()
        .map(|&id| NdArray::of(&pickle.graph, id, &Options::default()).unwrap().unwrap())
        .inspect(|array| assert!(array.dtype.is_none() && array.payload.is_none()))
        .map(|array| array.descr)
        .collect();
    assert_eq!(descrs, ["O8".into(), "V6".into(), "U2".into(), "M8".into()] as [Box<str>; 4]);
}

#[test]
fn a_distributed_checkpoints_directory_is_read() {
    let bytes = std::fs::read(good().join("p331_dist_ckpt/0.metadata")).unwrap();
    let pickle = read_bytes(&bytes).unwrap();
    let made = pickle.graph.made(pickle.root).unwrap();
    assert_eq!(made.how, ReduceKind::NewObj);
    assert_eq!(
        pickle.graph.global(made.callable),
        Some(("paddle.distributed.flex_checkpoint.dcp.metadata", "Metadata"))
    );
    let state = pickle.graph.pairs(made.state().unwrap()).unwrap();
    assert_eq!(pickle.graph.text(state[0].0), Some("state_dict_metadata"));
    let report = inspect(&memory(&bytes), 0, &Options::default());
    assert_eq!(report.verdict, weighbridge_core::finding::Verdict::Sound, "{:?}", report.findings);
}

#[test]
fn values_are_shown_as_json() {
    let bytes = std::fs::read(good().join("p262_nested_ckpt/lodtensor_list.pd")).unwrap();
    let pickle = read_bytes(&bytes).unwrap();
    let options = Options::default();
    let json = to_json(&pickle.graph, pickle.root, &options, JsonBounds::default());
    assert_eq!(json, serde_json::json!([{"array": "f32", "shape": [4, 2]}, 1]));
    // A list that holds itself ends at the depth, a wide one at the number of values.
    let bytes = std::fs::read(good().join("python/cycle_list_p4.pkl")).unwrap();
    let pickle = read_bytes(&bytes).unwrap();
    let bounds = JsonBounds { depth: 3, values: 100 };
    let json = to_json(&pickle.graph, pickle.root, &options, bounds);
    assert_eq!(json, serde_json::json!([1, [1, ["…", "…"]]]));
    let bytes = std::fs::read(good().join("python/list_1001_p4.pkl")).unwrap();
    let pickle = read_bytes(&bytes).unwrap();
    let bounds = JsonBounds { depth: 3, values: 10 };
    let json = to_json(&pickle.graph, pickle.root, &options, bounds);
    assert_eq!(json.as_array().unwrap().len(), 9);
}

#[test]
fn long_bytes_are_skipped_unread() {
    let bytes = std::fs::read(good().join("python/long_bytes_p4.pkl")).unwrap();
    let counting = Arc::new(weighbridge_io::source::CountingSource::new(memory(&bytes)));
    let source: SourceRef = counting.clone();
    read(&source, 0, &Options::default()).unwrap();
    assert!(counting.bytes_read() < 8 << 10, "{}", counting.bytes_read());
}
