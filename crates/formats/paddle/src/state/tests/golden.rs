//! Comparison of states written by Paddle with their recorded descriptions.

use super::*;
use weighbridge_core::checkpoint::Role;
use weighbridge_io::source::CountingSource;

/// The arrays of a description, in order, each with its key and its name as a variable.
fn arrays<'a>(json: &'a Json, key: &str, all: &mut Vec<(String, Option<&'a str>, &'a Json)>) {
    let items = &json["items"];
    match json["kind"].as_str().unwrap() {
        "ndarray" => all.push((key.to_owned(), None, json)),
        "tuple" if items[0]["kind"] == "str" && items[1]["kind"] == "ndarray" => {
            all.push((key.to_owned(), items[0]["value"].as_str(), &items[1]));
        }
        "dict" | "OrderedDict" => items.as_object().unwrap().iter().for_each(|(k, v)| arrays(v, k, all)),
        "list" | "tuple" => {
            items.as_array().unwrap().iter().enumerate().for_each(|(i, v)| arrays(v, &i.to_string(), all));
        }
        _ => {}
    }
}

fn compare(entry: &TensorEntry, json: &Json, at: &str) {
    let dtype = match json["numpy_dtype"].as_str().or(json["dtype"].as_str()).unwrap() {
        "uint16" | "BF16" => "bf16",
        "bool" => "bool",
        "uint8" => "u8",
        "int8" => "i8",
        "int16" => "i16",
        "int32" => "i32",
        "int64" | "INT64" => "i64",
        "float16" => "f16",
        "float32" | "FP32" => "f32",
        "float64" => "f64",
        "complex64" => "c64",
        "complex128" => "c128",
        other => panic!("{at}: {other}"),
    };
    assert_eq!(entry.dtype().name(), dtype, "{at}");
    let shape: Vec<u64> = json["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
    assert_eq!(entry.shape.dims(), shape, "{at}");
    assert_eq!(sha256(entry), json["sha256"].as_str().unwrap(), "{at}");
}

#[test]
fn reads_golden_tensors() {
    let (mut files, mut tensors) = (0, 0);
    for name in states() {
        let path = good().join(&name);
        let folder = path.parent().unwrap();
        let json: Json =
            serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
        let find = |file: &str| json["entries"].as_array()?.iter().find(|entry| entry["file"] == file);
        let Some(mut entry) = find(path.file_name().unwrap().to_str().unwrap()) else { continue };
        if let Some(same) = entry["raw_pickle"]["same_content_as"].as_str() {
            entry = find(same).unwrap();
        }
        let mut expected = Vec::new();
        arrays(&entry["raw_pickle"], "", &mut expected);
        let checkpoint = open(&golden(&name)).unwrap();
        if name.contains("split_big_param") {
            // Split parameters are described in parts; the whole is compared in another test.
            let before = expected.len();
            expected.retain(|(key, ..)| !key.contains("@@."));
            assert_eq!(before - expected.len(), 7);
            assert_eq!(checkpoint.tensors.len(), expected.len() + 2);
        } else {
            assert_eq!(checkpoint.tensors.len(), expected.len(), "{name}");
        }
        for (entry, (key, variable, json)) in checkpoint.tensors.iter().zip(&expected) {
            let at = format!("{name} {key}");
            compare(entry, json, &at);
            let own = key_of(entry);
            if entry.path.to_text() != "value" && !name.contains("tensor") {
                assert!(own == *key || own.ends_with(&format!(".{key}")), "{at}: {own}");
            }
            if let Some(variable) = variable {
                let usual = state_key(entry, Some(key));
                let name = entry.text_attribute(Attributes::VARIABLE_NAME).unwrap_or(&usual);
                assert_eq!(name, *variable, "{at}");
            }
            tensors += 1;
        }
        files += 1;
    }
    assert!(files >= 40 && tensors > 500, "{files} files, {tensors} tensors");
}

#[test]
fn joins_split_parameters() {
    for era in ["p262", "p331"] {
        let checkpoint = open(&golden(&format!("{era}/split_big_param/big.pdparams"))).unwrap();
        let json: Json =
            serde_json::from_slice(&golden(&format!("{era}/split_big_param/expected.json"))).unwrap();
        let logical = json["logical"].as_object().unwrap();
        assert_eq!(logical.len(), 3);
        for (entry, (key, json)) in checkpoint.tensors.iter().zip(logical) {
            assert_eq!(entry.text(), *key);
            compare(entry, json, key);
        }
        assert!(checkpoint.metadata.get(STRUCTURE).is_none());
    }
}

#[test]
fn reads_static_states_and_python_2_pickles() {
    for (folder, file, list) in [
        ("p262/cnn_static_train", "train.pdparams", "pdparams"),
        ("p262/cnn_static_train", "train.pdopt", "pdopt"),
        ("p331/cnn_pir_train", "train.pdparams", "pdparams"),
        ("p331/cnn_pir_train", "train.pdopt", "pdopt"),
        ("p262/py2_pickle", "py2.pdparams", "tensors"),
    ] {
        let checkpoint = open(&golden(&format!("{folder}/{file}"))).unwrap();
        let json: Json = serde_json::from_slice(&golden(&format!("{folder}/expected.json"))).unwrap();
        let expected = json[list].as_array().unwrap();
        assert_eq!(checkpoint.tensors.len(), expected.len(), "{folder}/{file}");
        for (entry, json) in checkpoint.tensors.iter().zip(expected) {
            assert_eq!(key_of(entry), json["name"].as_str().unwrap());
            compare(entry, json, file);
            let is_state = entry.role.slot().is_some();
            let global = entry.text().starts_with("learning_rate");
            assert_eq!(is_state, file.ends_with("pdopt") && !global, "{}", entry.text());
            assert_eq!(entry.role == Role::Other, global);
        }
    }
    let python2 = open(&golden("p262/py2_pickle/py2.pdparams")).unwrap();
    assert_eq!(python2.metadata.get(PYTHON2), Some(&Value::Bool(true)));
    assert_eq!(python2.metadata.get(STRUCTURE), None);
}

#[test]
fn attaches_state_to_its_parameters() {
    let checkpoint = open(&golden("p262/cnn_state_dict/m_p2.pdopt")).unwrap();
    assert!(checkpoint.tensors.iter().all(|t| t.role.slot().is_some()));
    let moment = checkpoint.tensor("conv2d_0.w_0/moment1_0").unwrap();
    assert_eq!(key_of(moment), "conv2d_0.w_0_moment1_0");
    let schedule = checkpoint.metadata.get("LR_Scheduler").unwrap().to_json();
    assert_eq!(schedule, serde_json::json!({"last_epoch": 2, "last_lr": 0.005}));

    let checkpoint = open(&golden("p331/master_weights/lin_p4.pdopt")).unwrap();
    let weight = checkpoint.tensor("linear_0.w_0/master_weights").unwrap();
    assert_eq!(weight.text_attribute(Attributes::VARIABLE_NAME), Some("linear_0.w_0_fp32_master_0"));
    checkpoint.tensor("linear_0.w_0/fp32_master_0_moment1_0").unwrap();
    assert_eq!(checkpoint.metadata.get(STRUCTURE), None);
    assert!(checkpoint.tensors.iter().all(|t| t.role.slot().is_some()));

    let checkpoint = open(&golden("p331/master_weights/lin_p2.pdparams")).unwrap();
    let codes: Vec<_> = checkpoint.notes.iter().map(|note| note.code.as_str()).collect();
    assert_eq!(codes, ["uint16-is-bf16"]);
    assert_eq!(
        checkpoint.tensor("weight").unwrap().text_attribute(Attributes::VARIABLE_NAME),
        Some("linear_0.w_0")
    );
}

#[test]
fn preserves_types_of_other_values() {
    let checkpoint = open(&golden("p262/nested_ckpt/ckpt_p4.pdckpt")).unwrap();
    assert_eq!(checkpoint.metadata.get("epoch"), Some(&Value::I64(3)));
    assert_eq!(checkpoint.metadata.get("best"), Some(&Value::F64(0.125f64.to_bits())));
    assert_eq!(checkpoint.metadata.get("name"), Some(&Value::Text("run".into())));
    let weight = checkpoint.tensor("model.conv1.weight").unwrap();
    assert_eq!(weight.path.parts().len(), 3);
    assert_eq!(weight.text_attribute(Attributes::VARIABLE_NAME), Some("conv2d_0.w_0"));
    checkpoint.tensor("opt.conv2d_0.w_0/moment1_0").unwrap();
    checkpoint.tensor("hist.1").unwrap();
    assert_eq!(checkpoint.tensor("pair.0").unwrap().shape.rank(), 0);

    let alone = open(&golden("p262/nested_ckpt/tensor_p2.pdtensor")).unwrap();
    assert_eq!(alone.tensors[0].text(), "one_tensor");
    let numpy = open(&golden("p331/nested_ckpt/numpy_dict.pd")).unwrap();
    assert_eq!(numpy.tensor("fortran").unwrap().order(), Order::Column);
    assert!(matches!(numpy.metadata.get("np_scalar"), Some(Value::Map(_))));
    assert_eq!(numpy.metadata.get(NUMPY), Some(&Value::U32(2)));
}

#[test]
fn opens_safetensors_files_of_paddle() {
    let checkpoint = weighbridge::formats::open(good().join("p331/safetensors/m.safetensors")).unwrap();
    assert_eq!(checkpoint.format, "safetensors");
    let json: Json = serde_json::from_slice(&golden("p331/safetensors/expected.json")).unwrap();
    let expected = json["tensors"].as_array().unwrap();
    assert_eq!(checkpoint.tensors.len(), expected.len());
    for json in expected {
        let name = json["name"].as_str().unwrap();
        compare(checkpoint.tensor(name).unwrap(), json, name);
    }
}

#[test]
fn round_trips_info_files() {
    for file in [
        "p262/cnn_jit/model.pdiparams.info",
        "p262/seq_jit/model.pdiparams.info",
        "p262/jit_multi_function/model.pdiparams.info",
    ] {
        let bytes = golden(file);
        let info = read_info(&memory(&bytes), &weighbridge_core::Limits::default()).unwrap().unwrap();
        assert!(info.len() >= 4 && info.iter().all(|row| row.structured_name.is_some()));
        assert!(info_bytes(&info).unwrap() == bytes, "{file}");
    }
    let info =
        read_info(&memory(golden("p262/cnn_jit/model.pdiparams.info")), &weighbridge_core::Limits::default());
    let row = &info.unwrap().unwrap()[2];
    let mean = InfoRow {
        variable: "batch_norm2d_0.w_1".into(),
        structured_name: Some("bn1._mean".into()),
        stop_gradient: Some(true),
        trainable: Some(false),
    };
    assert_eq!(*row, mean);
    for other in ["p262/cnn_state_dict/m_p2.pdparams", "p262/nested_ckpt/tensor.pdtensor"] {
        assert_eq!(
            read_info(&memory(golden(other)), &weighbridge_core::Limits::default()).unwrap(),
            None::<Info>
        );
    }
}

#[test]
fn detects_pickles() {
    for name in states() {
        let source = memory(golden(&name));
        let head = golden(&name);
        assert!(looks_like_pickle(&head[..head.len().min(4096)], &source), "{name}");
    }
    let torch = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e";
    let others: [&[u8]; 9] =
        [torch, b"", b"\x80", b"\x80\x02", b"\x80\x09.", b"\x80\x04\x00", b"PK\x03\x04", b"(die ", b"cat\n"];
    for bytes in others {
        assert!(!looks_like_pickle(bytes, &memory(bytes)), "{bytes:?}");
    }
    for old in [&b"(dp0\nS'a'\nI1\ns."[..], b"}q\x00U\x01aK\x01s.", b"(lp0\nI1\na."] {
        assert!(looks_like_pickle(old, &memory(old)), "{old:?}");
    }
}

/// A source with large arrays of zeros, generated on reading.
#[derive(Debug)]
struct Sparse {
    extents: Vec<(u64, Vec<u8>)>,
    len: u64,
}

impl weighbridge_io::source::Source for Sparse {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> weighbridge_core::Result<()> {
        weighbridge_io::source::check_range(self, offset, buffer.len() as u64)?;
        buffer.fill(0);
        for (start, bytes) in &self.extents {
            for (at, byte) in (*start..).zip(bytes) {
                if let Some(place) = at.checked_sub(offset).and_then(|p| usize::try_from(p).ok())
                    && let Some(slot) = buffer.get_mut(place)
                {
                    *slot = *byte;
                }
            }
        }
        Ok(())
    }
    fn label(&self) -> &str {
        "sparse"
    }
}

#[test]
fn lists_large_states_without_reading_elements() {
    use weighbridge_core::tensor::{DType, Endian, Shape};
    let len = 16u64 << 20;
    let mut builder = Builder::new();
    let mut pairs = Vec::new();
    for key in 0..64 {
        let name = builder.text(&format!("layer.{key}.weight")).unwrap();
        let content = weighbridge_pickle::Content::Payload { key, len };
        let kind = (DType::F32, Endian::Little);
        let modules = weighbridge_pickle::NumpyModules::Core;
        let array = builder.ndarray(kind, &Shape::from([2048, 2048]), false, content, modules).unwrap();
        pairs.push((name, array));
    }
    let root = builder.dict(pairs).unwrap();
    let (mut extents, mut at) = (Vec::new(), 0);
    for part in write(&builder.finish(), root, 4, &mut |_| panic!()).unwrap() {
        let len = part.len();
        if let Part::Literal(bytes) = part {
            extents.push((at, bytes));
        }
        at += len;
    }
    let counting = Arc::new(CountingSource::new(Arc::new(Sparse { extents, len: at })));
    let source: SourceRef = counting.clone();
    let checkpoint = read(&source, &OpenOptions::default()).unwrap();
    assert_eq!((checkpoint.tensors.len(), checkpoint.tensor_bytes()), (64, 1 << 30));
    assert!(counting.bytes_read() < 512 << 10, "{} bytes", counting.bytes_read());
    assert!(counting.calls() < 300, "{} reads", counting.calls());
}
