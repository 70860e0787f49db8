//! Files written by Paddle: every field, and identical bytes on writing.

use super::*;
use crate::dtype;
use crate::stream::{Kind, Stream, Wanted, lod};
use sha2::{Digest, Sha256};
use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::Order;

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// Compares the recorded description of a tensor with the result of reading.
fn check(tensor: &Dense, json: &Json) {
    let name = &json["name"];
    let (entry, header) = (&tensor.entry, &tensor.header);
    let number = i32::try_from(json["proto_dtype"].as_i64().unwrap()).unwrap();
    assert_eq!(dtype::from_number(number), Some(entry.stored), "{name}");
    assert_eq!(dtype::word(number), json["dtype"].as_str(), "{name}");
    assert_eq!(entry.shape.dims(), numbers(&json["shape"]), "{name}");
    assert_eq!(entry.elements(), json["numel"].as_u64().unwrap(), "{name}");
    let levels: Vec<Vec<u64>> =
        json["lod"].as_array().map(|l| l.iter().map(numbers).collect()).unwrap_or_default();
    assert_eq!(lod::levels(entry).unwrap(), levels, "{name}");
    assert_eq!(entry.attributes.contains_key(lod::LOD), !levels.is_empty(), "{name}");
    assert_eq!(lod_problem(entry), None, "{name}");
    let places = [
        ("stream_offset", header.stream_offset),
        ("stream_bytes", header.stream_bytes),
        ("data_offset", header.data_offset),
        ("desc_len", header.desc_bytes),
        ("nbytes", header.data_bytes),
    ];
    for (key, found) in places {
        assert_eq!(Some(found), json[key].as_u64(), "{name} {key}");
    }
    assert_eq!(header.desc_offset + header.desc_bytes, header.data_offset, "{name}");
    assert!(!entry.attributes.contains_key("desc"), "{name}: Paddle's own form is not kept");
    let bytes = entry.read_tensor(Order::Row).unwrap();
    assert_eq!(Some(sha256(&bytes).as_str()), json["sha256"].as_str(), "{name}");
}

fn list<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json[key].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn reads_single_tensor_files() {
    let mut count = 0;
    for folder in GOOD {
        let json = expected(folder);
        for tensor in list(&json, "tensors").iter().filter(|t| t["file"].is_string()) {
            let bytes = good(&format!("{folder}/{}", tensor["file"].as_str().unwrap()));
            let read = read_all(&bytes).unwrap();
            assert_eq!(read.len(), 1);
            check(&read[0], tensor);
            assert_eq!(rewritten(&read), bytes, "{}", tensor["name"]);
            count += 1;
        }
    }
    let json = expected("p262/save_as_fp16");
    let bytes = good("p262/save_as_fp16/single_fp16.bin");
    check(&read_all(&bytes).unwrap()[0], &json["single"][0]);
    assert_eq!(count, 59 + 13 + 13 + 6);
}

#[test]
fn reads_combined_files() {
    let files = [
        ("p262/cnn_jit", "model.pdiparams", "tensors"),
        ("p262/cnn_legacy_combined", "__params__", "tensors"),
        ("p262/cnn_static_infer", "model.pdiparams", "tensors"),
        ("p262/combined_mixed", "all.pdiparams", "tensors"),
        ("p262/save_as_fp16", "fp16.pdiparams", "tensors"),
        ("p331/save_combine_func", "plain.pdiparams", "plain"),
        ("p331/save_combine_func", "fp16.pdiparams", "fp16"),
    ];
    for (folder, file, key) in files {
        let json = expected(folder);
        let bytes = good(&format!("{folder}/{file}"));
        let read = read_all(&bytes).unwrap();
        assert_eq!(read.len(), list(&json, key).len(), "{folder}/{file}");
        read.iter().zip(list(&json, key)).for_each(|(tensor, json)| check(tensor, json));
        assert_eq!(rewritten(&read), bytes, "{folder}/{file}");

        // The same with the names that the program has.
        let name = |t: &Json| TensorPath::parse(&serde_json::json!([t["name"]]).to_string());
        let wanted: Vec<_> =
            list(&json, key).iter().map(|t| Wanted { path: name(t), kind: Kind::Dense }).collect();
        let named = combined::read_with(&memory(&bytes), &wanted, &Limits::default()).unwrap();
        for (stream, (wanted, tensor)) in named.iter().zip(wanted.iter().zip(&read)) {
            let Stream::Dense(named) = stream else { panic!("{stream:?}") };
            assert_eq!((&named.entry.path, named.header), (&wanted.path, tensor.header));
        }
    }
}

#[test]
fn reads_selected_rows() {
    let mut count = 0;
    for folder in ["p262/selected_rows", "p331/selected_rows"] {
        let json = expected(folder);
        for tensor in list(&json, "selected_rows") {
            let bytes = good(&format!("{folder}/{}", tensor["file"].as_str().unwrap()));
            let read = read_rows(&bytes).unwrap();
            check(&read, tensor);
            let rows = tensor["rows"].as_array().unwrap().iter();
            let rows = rows.map(|row| Value::I64(row.as_i64().unwrap())).collect();
            assert_eq!(read.entry.attributes["rows"], Value::List(rows));
            assert_eq!(read.entry.attributes["height"], Value::I64(tensor["height"].as_i64().unwrap()));
            assert_eq!(written(|file| super::selected_rows::write(file, &read.entry)), bytes);
            count += 1;
        }
    }
    assert_eq!(count, 10);
}

#[test]
fn reads_vocabularies() {
    let json = expected("p262/vocab");
    let bytes = good("p262/vocab/vocab.pdiparams");
    let source = memory(&bytes);
    assert_eq!(combined::kinds(&source, &Limits::default()).unwrap(), [Kind::Vocab; 2]);
    let names = list(&json, "file_order");
    let wanted: Vec<_> = names
        .iter()
        .map(|name| Wanted { path: TensorPath::parse(name.as_str().unwrap()), kind: Kind::Vocab })
        .collect();
    let streams = combined::read_with(&source, &wanted, &Limits::default()).unwrap();
    assert_eq!(streams.len(), names.len());
    let mut items = Vec::new();
    for (stream, name) in streams.iter().zip(names) {
        let Stream::Vocab(vocab) = stream else { panic!("{stream:?}") };
        let json = &json["as_stored"][name.as_str().unwrap()];
        assert_eq!(Some(vocab.stream_offset), json["stream_offset"].as_u64());
        assert_eq!(Some(vocab.stream_bytes), json["stream_bytes"].as_u64());
        let entries = list(json, "entries");
        assert_eq!(vocab.words.len(), entries.len());
        for ((word, id), entry) in vocab.words.iter().zip(entries) {
            assert_eq!((word.as_str(), Some(i64::from(*id))), (entry["word"].as_str(), entry["id"].as_i64()));
        }
        items.push(combined::Item::Vocab(&vocab.words));
    }
    assert_eq!(written(|file| combined::layout_with(file, items)), bytes);
}
