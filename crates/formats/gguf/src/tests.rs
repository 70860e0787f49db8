//! Files of the package `gguf` (`judges/make_gguf.py`): read, dequantized, rewritten, damaged.
#![allow(clippy::disallowed_methods)]

use crate::{Gguf, ReadOptions};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Order, Region, Shape};
use weighbridge_format::{DeepCheck, Detect, OpenOptions, PlanOptions, Registry, WriteFormat};
use weighbridge_io::source::{CountingSource, FolderRef, MemoryFolder, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&Gguf as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("gguf").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    registry().open_source(memory(bytes), &OpenOptions::default())
}

fn good(name: &str) -> Checkpoint {
    open(&bytes_of(&format!("good/{name}.gguf"))).unwrap()
}

fn dequantizing() -> OpenOptions {
    OpenOptions::default().with_own(ReadOptions { dequantize: true })
}

fn salvaging() -> OpenOptions {
    OpenOptions { salvage: true, format: Some("gguf".to_owned()), ..OpenOptions::default() }
}

fn written(checkpoint: &Checkpoint) -> Vec<u8> {
    let plan = Gguf.plan(checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!(plan.losses, []);
    materialise(&plan).remove(0)
}

fn elements(tensor: &TensorEntry) -> Vec<u8> {
    tensor.read_tensor(Order::Row).unwrap()
}

fn hash(bytes: &[u8]) -> String {
    Name::hex(&Sha256::digest(bytes))
}

fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

/// Type and value of each metadata key, as in `expected.json`.
fn metadata(checkpoint: &Checkpoint) -> Json {
    let types = match checkpoint.metadata.get("gguf.types") {
        Some(Value::Map(pairs)) => {
            pairs.iter().map(|(key, kind)| (key.to_text(), kind.to_json())).collect::<BTreeMap<_, _>>()
        }
        _ => BTreeMap::new(),
    };
    let word = |value: &Value| match value {
        Value::Bool(_) => "bool",
        Value::U32(_) => "u32",
        Value::U64(_) => "u64",
        Value::I64(_) => "i64",
        Value::F32(_) => "f32",
        Value::F64(_) => "f64",
        Value::Text(_) => "str",
        other => panic!("{other:?}"),
    };
    let plain = |value: &Value| match value {
        Value::F32(bits) => float(f64::from(f32::from_bits(*bits))),
        Value::F64(bits) => float(f64::from_bits(*bits)),
        value => value.to_json(),
    };
    let pair = |(key, value): (&str, &Value)| {
        let kind = match value {
            Value::Bytes(_) => "[u8]".to_owned(),
            Value::List(items) => format!("[{}]", items.first().map_or("", word)),
            value => word(value).to_owned(),
        };
        let kind = types.get(key).and_then(Json::as_str).map_or(kind, str::to_owned);
        let value = match value {
            Value::Bytes(bytes) => json!(bytes),
            Value::List(items) => items.iter().map(plain).collect(),
            value => plain(value),
        };
        (key.to_owned(), json!([kind, value]))
    };
    let own = checkpoint.metadata.iter().filter(|(key, value)| !crate::read::is_own_key(key, value));
    own.map(pair).collect::<serde_json::Map<_, _>>().into()
}

/// Floats of `expected.json` are hexadecimal, as Python writes them.
fn float(x: f64) -> Json {
    if x.is_nan() {
        return json!("nan");
    }
    if x.is_infinite() {
        return json!(if x > 0.0 { "inf" } else { "-inf" });
    }
    let sign = if x.is_sign_negative() { "-" } else { "" };
    if x == 0.0 {
        return json!(format!("{sign}0x0.0p+0"));
    }
    let bits = x.to_bits();
    let exponent = i64::try_from(bits >> 52 & 0x7ff).unwrap() - 1023;
    json!(format!("{sign}0x1.{:013x}p{exponent:+}", bits & ((1 << 52) - 1)))
}

#[test]
fn golden_files_have_the_content_that_the_package_reads() {
    for (file, wanted) in expected() {
        let checkpoint = open(&bytes_of(&format!("good/{file}"))).unwrap();
        let tensors = wanted["tensors"].as_object().unwrap();
        let names: Vec<String> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
        assert_eq!(names, tensors.keys().cloned().collect::<Vec<_>>(), "{file}");
        for (tensor, (name, wanted)) in checkpoint.tensors.iter().zip(tensors) {
            let place = format!("{file} {name}");
            assert_eq!(tensor.stored.name(), wanted["dtype"], "{place}");
            assert_eq!(json!(tensor.shape.dims()), wanted["shape"], "{place}");
            assert_eq!(tensor.role, Role::Parameter);
            assert_eq!(hash(&elements(tensor)), wanted["sha256"], "{place}");
            for key in ["quantization", "quantized_shape"] {
                let found = tensor.attributes.get(key).map_or(Json::Null, Value::to_json);
                assert_eq!(found, wanted[key], "{place}");
            }
        }
        let mut stated = wanted["metadata"].clone();
        if file.starts_with("shards") {
            stated.as_object_mut().unwrap().retain(|key, _| !key.starts_with("split."));
        }
        let mut found = metadata(&checkpoint);
        found.as_object_mut().unwrap().retain(|key, _| !key.starts_with("split."));
        assert_eq!(found, stated, "{file}");
    }
}

#[test]
fn dequantized_values_have_the_bits_of_the_package() {
    let mut count = 0;
    for (file, wanted) in expected() {
        let source = memory(bytes_of(&format!("good/{file}")));
        let tensors = wanted["tensors"].as_object().unwrap();
        let refused =
            tensors.values().any(|t| t.get("quantization").is_some() && t.get("values_sha256").is_none());
        let opened = registry().open_source(source, &dequantizing());
        if refused {
            assert_eq!(opened.unwrap_err().code().as_str(), "not-dequantized", "{file}");
            continue;
        }
        for tensor in &opened.unwrap().tensors {
            let wanted = &tensors[&tensor.text()];
            let Some(values) = wanted["values_sha256"].as_str() else { continue };
            assert_eq!((tensor.stored, tensor.attributes.is_empty()), (DType::F32, true));
            assert_eq!(json!(tensor.shape.dims()), wanted["quantized_shape"]);
            assert_eq!(hash(&elements(tensor)), values, "{file} {}", tensor.text());
            count += 1;
        }
    }
    assert!(count >= 46, "{count}");
}

#[test]
fn parts_of_dequantized_tensors_are_those_of_the_whole() {
    let source = memory(bytes_of("good/q4_k.gguf"));
    let checkpoint = registry().open_source(source, &dequantizing()).unwrap();
    let tensor = &checkpoint.tensors[0];
    let all = elements(tensor);
    let extent = &tensor.extents[0];
    for (offset, len) in [(0, 1), (3, 9), (1023, 2), (1, 4000), (1024, 1024), (6143, 1), (2047, 0)] {
        let mut part = vec![0; len];
        extent.source.read_at(offset, &mut part).unwrap();
        let from = usize::try_from(offset).unwrap();
        assert_eq!(part, all[from..from + len], "{offset} {len}");
    }
    assert_eq!(extent.source.read_at(6144, &mut [0]).unwrap_err().code().as_str(), "past-the-end");
    let row = Region { start: vec![1, 200], shape: vec![1, 100] };
    assert_eq!(tensor.read_region(&row, Order::Row).unwrap(), all[2048 + 800..2048 + 1200]);
}

#[test]
fn unchanged_models_are_written_byte_for_byte() {
    for file in expected().keys() {
        let bytes = bytes_of(&format!("good/{file}"));
        assert!(written(&open(&bytes).unwrap()) == bytes, "{file}");
    }
    // A gap between tensors, bytes behind the last one, and no padding.
    let bytes = bytes_of("good/plain.gguf");
    for changed in [&bytes[..bytes.len() - 1], &[&bytes[..], b"more"].concat()] {
        assert!(written(&open(changed).unwrap()) == changed);
    }
}

/// A rewritten file is that of the package, too: layout, types of metadata, alignment.
#[test]
fn rewritten_models_have_the_layout_of_the_package() {
    for file in expected().keys() {
        let bytes = bytes_of(&format!("good/{file}"));
        let mut checkpoint = open(&bytes).unwrap();
        // Without its source the file is laid out anew.
        checkpoint.files.clear();
        if file == "q8_0_big_endian.gguf" {
            let error = Gguf.plan(&checkpoint, &PlanOptions::default()).unwrap_err();
            assert_eq!(error.code().as_str(), "big-endian");
            continue;
        }
        let again = written(&checkpoint);
        match file.as_str() {
            "plain_big_endian.gguf" | "version_1.gguf" => {
                let reopened = open(&again).unwrap();
                assert_eq!(metadata(&reopened), metadata(&checkpoint));
                for (a, b) in reopened.tensors.iter().zip(&checkpoint.tensors) {
                    assert_eq!((&a.path, elements(a)), (&b.path, elements(b)));
                }
            }
            "version_2.gguf" => assert!([&again[..4], &[2], &again[5..]].concat() == bytes),
            _ => assert!(again == bytes, "{file}"),
        }
    }
}

#[test]
fn changes_of_metadata_keep_their_types() {
    let mut checkpoint = good("metadata");
    checkpoint.metadata.set("m.u8", Value::I64(7));
    checkpoint.metadata.set("m.i16", Value::I64(70_000));
    checkpoint.metadata.set("m.new", Value::Text("x".to_owned()));
    checkpoint.metadata.remove("a.str");
    let again = metadata(&open(&written(&checkpoint)).unwrap());
    assert_eq!(again["m.u8"], json!(["u8", 7]));
    assert_eq!(again["m.i16"], json!(["i64", 70_000]));
    assert_eq!(again["m.new"], json!(["str", "x"]));
    assert_eq!((&again["a.str"], &again["a.i8"]), (&Json::Null, &json!(["[i8]", [-128, 127]])));
}

#[test]
fn values_without_a_type_are_kept_in_the_bridge_index() {
    let mut checkpoint = good("plain");
    let map = Value::Map(vec![(Name::from("a"), Value::Null)]);
    checkpoint.metadata.set("nested", map.clone());
    checkpoint.tensors[0].role = Role::Buffer;
    let again = open(&written(&checkpoint)).unwrap();
    assert_eq!((again.metadata.get("nested"), &again.tensors[0].role), (Some(&map), &Role::Buffer));
    let plain = PlanOptions { plain: true, ..PlanOptions::default() };
    let plan = Gguf.plan(&checkpoint, &plain).unwrap();
    assert_eq!(plan.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["index-dropped"]);
}

#[test]
fn other_dtypes_are_refused_and_the_alignment_can_be_set() {
    let entry = |dtype| {
        let shape = Shape::new([2, 2]);
        let bytes = vec![1; usize::try_from(shape.bytes(dtype).unwrap()).unwrap()];
        TensorEntry::dense(TensorPath::from_dotted("a.w"), dtype, shape, &memory(bytes), 0, Encoding::ROW)
            .unwrap()
    };
    let mut checkpoint = Checkpoint::new("test", "test", "test");
    checkpoint.tensors.push(entry(DType::F16));
    let set = |value: &str| PlanOptions {
        settings: vec![("alignment".to_owned(), value.to_owned())],
        ..PlanOptions::default()
    };
    let bytes = materialise(&Gguf.plan(&checkpoint, &set("512")).unwrap()).remove(0);
    let opened = open(&bytes).unwrap();
    assert_eq!((opened.tensors[0].extents[0].offset, bytes.len()), (512, 1024));
    assert_eq!(opened.metadata.get("general.alignment"), Some(&Value::U32(512)));
    for bad in ["0", "24", "x", "-8"] {
        assert_eq!(Gguf.plan(&checkpoint, &set(bad)).unwrap_err().code().as_str(), "bad-setting");
    }
    for dtype in [DType::U8, DType::Bool, DType::U32, DType::C64] {
        checkpoint.tensors = vec![entry(dtype)];
        let error = Gguf.plan(&checkpoint, &PlanOptions::default()).unwrap_err();
        assert_eq!(error.code().as_str(), "no-such-dtype");
    }
    // Blocks need whole blocks.
    let name = Value::Text("Q8_0".to_owned());
    checkpoint.tensors = vec![entry(DType::U8)];
    checkpoint.tensors[0].attributes.insert("quantization".to_owned(), name);
    let error = Gguf.plan(&checkpoint, &PlanOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "part-of-a-block");
}

fn shards(without: Option<&str>) -> FolderRef {
    let names: Vec<String> = (1..=3).map(|n| format!("model-0000{n}-of-00003.gguf")).collect();
    let add = |folder: MemoryFolder, name: &String| match without == Some(name) {
        true => folder,
        false => folder.with(name, bytes_of(&format!("good/shards/{name}"))),
    };
    Arc::new(names.iter().fold(MemoryFolder::new("m"), add))
}

#[test]
fn shards_are_one_model() {
    let folder = shards(None);
    let name = Path::new("model-00001-of-00003.gguf");
    let source = folder.open(name).unwrap().unwrap();
    let options = OpenOptions::default();
    let whole = registry().open_in_folder(source, &folder, name, &options).unwrap();
    let of_folder = registry().open_with(golden("good/shards"), &options).unwrap();
    assert_eq!((whole.kind, whole.tensors.len(), whole.files.len()), ("sharded", 9, 3));
    assert!(whole.notes.iter().all(|note| !note.omission), "{:?}", whole.notes);
    assert_eq!(of_folder.tensors.len(), 9);
    assert_eq!(metadata(&whole), expected()["model.gguf"]["metadata"]);
    // Written as one file, it has the tensors of all shards.
    let one = open(&written(&whole)).unwrap();
    assert_eq!((one.metadata.get("split.count"), one.tensors.len()), (None, 9));
    for (a, b) in one.tensors.iter().zip(&whole.tensors) {
        assert_eq!((&a.path, elements(a)), (&b.path, elements(b)));
    }
    // Another shard than the first is a file of its own.
    let name = Path::new("model-00002-of-00003.gguf");
    let source = folder.open(name).unwrap().unwrap();
    assert_eq!(registry().open_in_folder(source, &folder, name, &options).unwrap().tensors.len(), 4);
}

#[test]
fn other_files_beside_shards_are_named() {
    let names = ["m-00001-of-00001.gguf", "mmproj.gguf"];
    let add = |folder: MemoryFolder, name: &str| folder.with(name, bytes_of("good/plain.gguf"));
    let folder: FolderRef = Arc::new(names.into_iter().fold(MemoryFolder::new("m"), add));
    let opened = registry().open_folder(&folder, &OpenOptions::default()).unwrap();
    let note = opened.notes.iter().find(|note| note.code.as_str() == "not-listed").unwrap();
    assert!(note.omission && note.text.to_string().ends_with("mmproj.gguf"), "{}", note.text);
}

#[test]
fn missing_shards_are_named() {
    let folder = shards(Some("model-00002-of-00003.gguf"));
    let name = Path::new("model-00001-of-00003.gguf");
    let open = |options: OpenOptions| {
        let source = folder.open(name).unwrap().unwrap();
        registry().open_in_folder(source, &folder, name, &options)
    };
    let error = open(OpenOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "shard-missing");
    assert!(error.found_text().unwrap().contains("model-00002-of-00003.gguf"), "{error}");
    let lenient = open(OpenOptions { lenient: true, ..OpenOptions::default() }).unwrap();
    assert_eq!(lenient.tensors.len(), 5);
    assert!(lenient.notes.iter().any(|note| note.code.as_str() == "shard-missing"));
}

#[test]
fn opening_reads_only_the_header() {
    let mut checkpoint = good("metadata");
    let bytes = vec![7; 8 << 20];
    let path = TensorPath::from_dotted("large");
    let large = TensorEntry::dense(path, DType::I8, Shape::new([8 << 20]), &memory(bytes), 0, Encoding::ROW);
    checkpoint.tensors.push(large.unwrap());
    let file = written(&checkpoint);
    let counted = Arc::new(CountingSource::new(memory(&file)));
    let source: SourceRef = counted.clone();
    let opened = registry().open_source(source, &OpenOptions::default()).unwrap();
    assert_eq!(opened.tensors[0].bytes(), 8 << 20);
    assert!(counted.bytes_read() < 64 << 10, "{}", counted.bytes_read());
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("alignment-0", "wrong-value"),
        ("alignment-24", "wrong-value"),
        ("alignment-text", "wrong-value"),
        ("array-length", "truncated"),
        ("array-of-arrays", "limit"),
        ("array-of-strings", "truncated"),
        ("bool", "wrong-value"),
        ("dims-overflow", "shape-overflow"),
        ("duplicate-key", "duplicate-key"),
        ("duplicate-tensor", "duplicate-name"),
        ("name-past-end", "truncated"),
        ("offset-overflow", "shape-overflow"),
        ("offset-past-end", "truncated"),
        ("overlap", "overlap"),
        ("pair-count", "duplicate-key"),
        ("part-of-a-block", "part-of-a-block"),
        ("rank", "limit"),
        ("tensor-count", "limit"),
        ("truncated", "truncated"),
        ("value-type", "unknown-type"),
        ("version-0", "unknown-version"),
        ("version-4", "unknown-version"),
    ];
    for (file, code) in wanted {
        let error = open(&bytes_of(&format!("bad/{file}.gguf"))).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some(), "{file}: {error}");
    }
    for file in ["unknown-type", "removed-type"] {
        let bytes = bytes_of(&format!("bad/{file}.gguf"));
        let checkpoint = open(&bytes).unwrap();
        let skipped = checkpoint.notes.iter().find_map(|note| note.skipped.as_ref()).unwrap();
        assert_eq!((checkpoint.tensors.len(), skipped.name.as_str()), (0, "w"));
        // An unchanged copy has the tensor.
        assert!(written(&checkpoint) == bytes);
    }
    let unaligned = open(&bytes_of("bad/offset-unaligned.gguf")).unwrap();
    assert_eq!(Gguf.check(&unaligned).unwrap()[0].code.as_str(), "data-misplaced");
}

#[test]
fn files_of_the_package_pass_all_checks() {
    for file in expected().keys() {
        let bytes = bytes_of(&format!("good/{file}"));
        let checkpoint = open(&bytes).unwrap();
        assert_eq!(Gguf.check(&checkpoint).unwrap(), [], "{file}");
        let outline = Gguf.outline(&memory(&bytes), &Limits::default()).unwrap();
        let covered: u64 = outline.parts.iter().map(|part| part.len).sum();
        let elements: u64 = checkpoint.tensors.iter().map(TensorEntry::bytes).sum();
        let gaps = (checkpoint.tensors.len() as u64 + 1) * 255;
        assert!(covered + elements <= bytes.len() as u64, "{file}");
        assert!(covered + elements + gaps >= bytes.len() as u64, "{file}");
    }
}

#[test]
fn every_prefix_is_an_error_or_has_all_tensors() {
    for file in ["plain", "metadata", "q4_k", "version_1", "no_elements", "plain_big_endian"] {
        let bytes = bytes_of(&format!("good/{file}.gguf"));
        let whole = open(&bytes).unwrap();
        let mut before = 0;
        for end in 0..bytes.len() {
            let options = OpenOptions { format: Some("gguf".to_owned()), ..OpenOptions::default() };
            match registry().open_source(memory(&bytes[..end]), &options) {
                // Only the padding of the last tensor is missing.
                Ok(opened) => assert_eq!(opened.tensors.len(), whole.tensors.len(), "{file} {end}"),
                Err(error) => {
                    assert!(
                        error.offset().is_some() || error.code().as_str() == "empty-file",
                        "{file} {end}: {error}"
                    );
                }
            }
            let saved = registry().open_source(memory(&bytes[..end]), &salvaging());
            let saved = saved.map_or(0, |saved| {
                saved.tensors.iter().for_each(|tensor| {
                    assert_eq!(elements(tensor), elements(whole.tensor(&tensor.text()).unwrap()));
                });
                saved.tensors.len()
            });
            assert!(saved >= before, "{file} {end}: {saved} after {before}");
            before = saved;
        }
    }
}

/// Salvage of a file with one damaged description gives the tensors whose places the others prove, with their bytes.
#[test]
fn tensors_beside_a_damaged_description_are_salvaged() {
    let bytes = bytes_of("good/plain.gguf");
    let whole = open(&bytes).unwrap();
    let place = bytes.windows(5).position(|window| window == b"w.f64").unwrap();
    let mut damaged = bytes.clone();
    // The first dimension of `w.f64`.
    damaged[place + 5 + 4] = 0x77;
    assert_eq!(open(&damaged).unwrap_err().code().as_str(), "overlap");
    let saved = registry().open_source(memory(&damaged), &salvaging()).unwrap();
    for tensor in &saved.tensors {
        assert_eq!(elements(tensor), elements(whole.tensor(&tensor.text()).unwrap()));
    }
    assert!(saved.tensors.len() >= 8, "{:?}", saved.damage);
    let lost: Vec<&str> =
        saved.damage.iter().flat_map(|damage| &damage.lost).map(|lost| &*lost.name).collect();
    assert!(lost.contains(&"w.f64"), "{lost:?}");
    let cut = damaged;
    // With another alignment the data begin elsewhere.
    let mut damaged = bytes_of("good/alignment_8.gguf");
    let key = damaged.windows(7).position(|window| window == b"general").unwrap();
    let key = key + damaged[key + 7..].windows(7).position(|window| window == b"general").unwrap();
    damaged[key + 7] = b'G';
    assert_eq!(open(&damaged).unwrap_err().code().as_str(), "truncated");
    assert!(registry().open_source(memory(&damaged), &salvaging()).unwrap().tensors.is_empty());
    // Without the end of the file nothing proves where the data begins.
    let cut = &cut[..cut.len() - 100];
    assert!(registry().open_source(memory(cut), &salvaging()).unwrap().tensors.is_empty());
}

/// Changed bytes cause errors, never panics; a file that opens can be written, and its bytes are accounted for.
#[test]
fn mutations_never_panic() {
    for file in ["plain", "metadata", "iq2_xs", "names", "version_1", "no_elements", "plain_big_endian"] {
        let bytes = bytes_of(&format!("good/{file}.gguf"));
        for place in 0..bytes.len() {
            for change in [1u8, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[place] ^= change;
                let options = OpenOptions { format: Some("gguf".to_owned()), ..dequantizing() };
                let source = memory(&changed);
                _ = Gguf.recognises(&changed, &source);
                _ = Gguf.outline(&source, &options.limits);
                if let Ok(saved) = registry().open_source(source.clone(), &salvaging()) {
                    saved.tensors.iter().for_each(|tensor| drop(elements(tensor)));
                }
                if let Ok(values) = registry().open_source(source.clone(), &options) {
                    values.tensors.iter().for_each(|tensor| drop(elements(tensor)));
                }
                let plain = OpenOptions { format: Some("gguf".to_owned()), ..OpenOptions::default() };
                if let Ok(checkpoint) = registry().open_source(source, &plain) {
                    _ = Gguf.check(&checkpoint).unwrap();
                    assert!(
                        materialise(&Gguf.plan(&checkpoint, &PlanOptions::default()).unwrap())[0] == changed
                    );
                }
            }
        }
    }
}

/// Long token lists are read within the budget of the file, and kept.
#[test]
fn vocabularies_of_150000_tokens_are_kept() {
    let mut checkpoint = good("plain");
    let tokens = (0..150_000).map(|i| Value::Text(format!("▁token{i}"))).collect();
    checkpoint.metadata.set("tokenizer.ggml.tokens", Value::List(tokens));
    checkpoint.metadata.set("tokenizer.ggml.scores", Value::List(vec![Value::F32(0); 150_000]));
    let again = open(&written(&checkpoint)).unwrap();
    assert_eq!(again.metadata, checkpoint.metadata);
}

#[cfg(feature = "scan")]
#[test]
fn scans_report_chat_templates_that_reach_python() {
    use weighbridge_format::ScanCode;
    let codes = |bytes: &[u8]| -> Vec<String> {
        let scan = Gguf.scan(&memory(bytes), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str().to_owned()).collect()
    };
    assert_eq!(codes(&bytes_of("good/model.gguf")), [""; 0]);
    assert_eq!(codes(&bytes_of("bad/truncated.gguf")), ["unreadable"]);
    assert_eq!(codes(&bytes_of("bad/unknown-type.gguf")), ["left-out"]);
    for key in ["tokenizer.chat_template", "tokenizer.chat_template.tool_use"] {
        let mut checkpoint = good("model");
        let template = "{{ ''.__class__.__mro__[1].__subclasses__() }}";
        checkpoint.metadata.set(key, Value::Text(template.to_owned()));
        assert_eq!(codes(&written(&checkpoint)), ["remote-code"], "{key}");
    }
}
