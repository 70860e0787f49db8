//! Files of ncnn (`judges/make_ncnn.py`): read and damaged.
#![allow(clippy::disallowed_methods)]

use crate::Ncnn;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_core::topology::AttributeValue;
use weighbridge_format::{DeepCheck, Detect, Input, OpenOptions, ReadFormat, Registry, Salvage, ScanCode};
use weighbridge_io::source::{FolderRef, MemoryFolder};
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&Ncnn as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("ncnn").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

/// Returns the extension of the network of a golden file.
fn extension(name: &str) -> &'static str {
    if golden(&format!("good/{name}.param")).exists() { "param" } else { "param.bin" }
}

fn opened(name: &str) -> Checkpoint {
    let path = golden("good").join(format!("{name}.{}", extension(name)));
    registry().open_with(path, &OpenOptions::default()).unwrap()
}

fn folder(network: &[u8], weights: &[u8]) -> FolderRef {
    Arc::new(MemoryFolder::new("m").with("a.param", network.to_vec()).with("a.bin", weights.to_vec()))
}

/// Opens a network and weights in memory.
fn open(network: &[u8], weights: &[u8]) -> Result<Checkpoint> {
    let folder = folder(network, weights);
    Ncnn.open_beside(memory(network), &folder, Path::new("a.param"), &OpenOptions::default())
}

fn code(network: &str, weights: &[u8]) -> &'static str {
    open(network.as_bytes(), weights).unwrap_err().code().as_str()
}

fn salvaged(network: &[u8], weights: &[u8]) -> Option<Checkpoint> {
    let error = open(network, weights).unwrap_err();
    let folder = folder(network, weights);
    let source = memory(network);
    let place = Input::Beside(&source, &folder, Path::new("a.param"));
    Ncnn.salvage(&place, &error, &OpenOptions::default()).ok().flatten()
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_weights_of_ncnn() {
    assert!(expected().len() >= 35);
    for (file, wanted) in expected() {
        let checkpoint = opened(&file);
        let tensors = wanted["tensors"].as_object().unwrap();
        let mut found = names(&checkpoint);
        found.sort();
        let mut all: Vec<_> = tensors.keys().cloned().collect();
        all.sort();
        assert_eq!(found, all, "{file}");
        for tensor in &checkpoint.tensors {
            let name = tensor.path.to_text();
            let wanted = &tensors[&name];
            assert_eq!(tensor.stored.name(), wanted["dtype"].as_str().unwrap(), "{file} {name}");
            assert_eq!(json!(tensor.shape.dims()), wanted["shape"], "{file} {name}");
            let hash = Name::hex(&Sha256::digest(tensor.read_tensor(Order::Row).unwrap()));
            assert_eq!(hash, wanted["sha256"].as_str().unwrap(), "{file} {name}");
            for key in ["quantized", "quantized_axis", "packed_dtype", "packed_shape"] {
                let own = tensor.attributes.get(key).map(Value::to_json);
                assert_eq!(own.as_ref(), wanted.get(key), "{file} {name} {key}");
            }
        }
        let topology = checkpoint.topology.as_deref().unwrap();
        let kinds: Vec<&str> = topology.operators().map(|operator| operator.kind.as_str()).collect();
        assert_eq!(json!(kinds), wanted["layers"], "{file}");
        let findings = weighbridge_core::check::program(topology, &checkpoint.tensors);
        assert!(findings.is_empty(), "{file} {findings:?}");
    }
}

#[test]
fn each_file_of_a_pair_finds_the_other() {
    for file in expected().keys() {
        let network = opened(file);
        let path = golden("good").join(format!("{file}.bin"));
        let weights = registry().open_with(path, &OpenOptions::default()).unwrap();
        assert_eq!(names(&network), names(&weights), "{file}");
    }
    let of = |name: &str| {
        let network: FolderRef = Arc::new(
            MemoryFolder::new("m")
                .with("a.ncnn.bin", bytes_of("good/table.bin"))
                .with("a.ncnn.param", bytes_of("good/table.param"))
                .with("b.param", b"7767517\n9 8\npnnx.Input a 0 1 0\n".to_vec())
                .with("b.bin", Vec::new()),
        );
        let source = network.open(Path::new(name)).unwrap().unwrap();
        registry().open_in_folder(source, &network, Path::new(name), &OpenOptions::default())
    };
    assert_eq!(of("a.ncnn.bin").unwrap().tensors.len(), of("a.ncnn.param").unwrap().tensors.len());
    for name in ["b.bin", "b.param"] {
        assert!(matches!(of(name).unwrap_err().code().as_str(), "unknown-format" | "empty-file"), "{name}");
    }
}

#[test]
fn networks_are_programs() {
    let spelled = opened("spelled");
    let topology = spelled.topology.as_deref().unwrap();
    let operator = |kind: &str| topology.operators().find(|operator| operator.kind == kind).unwrap();
    assert_eq!(operator("Clip").attribute("9"), Some(&AttributeValue::Text("two words".to_owned())));
    assert_eq!(operator("Clip").attribute("10"), Some(&AttributeValue::Text("word".to_owned())));
    assert_eq!(operator("Clip").attribute("0"), Some(&AttributeValue::Float(-1.5)));
    assert_eq!(operator("Clip").attribute("1"), Some(&AttributeValue::Float(2000.0)));
    let list = AttributeValue::List(vec![AttributeValue::Int(-233); 2]);
    assert_eq!(operator("Slice").attribute("0"), Some(&list));
    assert_eq!(topology.feeds[0].shape.as_deref(), Some(&[3, 4][..]));
    let ends: Vec<&str> = topology.fetches.iter().map(|fetch| fetch.name.as_str()).collect();
    assert_eq!(ends, ["p", "q"]);
    let shape = |name: &str| {
        let variables = &topology.blocks[0].variables;
        variables.iter().find(|variable| variable.name == name).unwrap().shape.clone()
    };
    assert_eq!(shape("a"), Some(vec![3, 4]));
    assert_eq!(shape("out"), Some(vec![3, 5]));
    assert_eq!((shape("p"), shape("q")), (Some(vec![1, 5]), Some(vec![2, 5])));
    let binary = opened("binary");
    let topology = binary.topology.as_deref().unwrap();
    let operator = topology.operators().nth(2).unwrap();
    assert_eq!(operator.kind, "Convolution");
    assert_eq!(operator.attribute("name"), Some(&AttributeValue::Text("Convolution_2".to_owned())));
    assert_eq!(operator.inputs[0].arguments, ["blob_1"]);
}

#[test]
fn shapes_of_blobs_have_one_to_four_sizes() {
    for (params, wanted) in [
        ("-23330=4,1,7,1,1", Some(vec![7])),
        ("30=2,7,6,1", Some(vec![6, 7])),
        ("-23330=4,3,7,6,5", Some(vec![5, 6, 7])),
        ("-23330=5,3,7,6,1,5", Some(vec![5, 6, 7])),
        ("-23330=5,4,7,6,3,5", Some(vec![5, 3, 6, 7])),
        ("-23330=2,4,7", None),
        ("-23330=6,5,7,6,5,4,3", None),
        ("-23330=6,4,7,6,5,4,3", Some(vec![4, 5, 6, 7])),
        ("-23330=0", None),
        ("0=7 1=6 2=5", Some(vec![5, 6, 7])),
        ("0=7 1=6 11=3 2=5", Some(vec![5, 3, 6, 7])),
        ("0=7", Some(vec![7])),
        ("", None),
    ] {
        let network = format!("7767517\n1 1\nInput a 0 1 a {params}\n");
        let checkpoint = open(network.as_bytes(), &[]).unwrap();
        assert_eq!(checkpoint.topology.unwrap().feeds[0].shape, wanted, "{params}");
    }
}

/// A long shape would be copied for each output of the layer.
#[test]
fn long_shapes_of_a_blob_with_many_producers_are_not_shapes() {
    let count = 3000;
    let list = vec!["7"; count].join(",");
    let blobs = vec!["0"; count];
    let mut binary: Vec<u8> = Vec::new();
    let mut put = |numbers: &[i32]| numbers.iter().for_each(|number| binary.extend(number.to_le_bytes()));
    let long = i32::try_from(count).unwrap();
    put(&[7_767_517, 2, 2, 33, 0, 1, 0, -23330, long + 1, long]);
    put(&vec![7; count]);
    put(&[-233, 16, 0, long]);
    put(&vec![0; count]);
    put(&[-233]);
    let text = format!(
        "7767517\n2 4000\nSplit s 0 1 0 -23330={},{count},{list}\nInput a 0 {count} {}\n",
        count + 1,
        blobs.join(" ")
    );
    for network in [&binary, text.as_bytes()] {
        let topology = open(network, &[]).unwrap().topology.unwrap();
        assert_eq!(topology.feeds.len(), count);
        assert!(topology.feeds.iter().all(|feed| feed.shape.is_none()));
        assert!(topology.blocks[0].variables.iter().all(|variable| variable.shape.is_none()));
    }
}

#[test]
fn roles_are_set() {
    let plain = opened("plain");
    assert_eq!(plain.tensor("bn.mean").unwrap().role, Role::Buffer);
    assert_eq!(plain.tensor("bn.slope").unwrap().role, Role::Parameter);
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("alone.param", "file-missing"),
        ("blob.param.bin", "index-out-of-range"),
        ("blobs.param", "length-mismatch"),
        ("custom.param", "not-understood"),
        ("cut.param.bin", "past-the-end"),
        ("cut_custom.param", "past-the-end"),
        ("key.param", "bad-number"),
        ("layers.param", "length-mismatch"),
        ("list.param", "bad-number"),
        ("longer.param", "trailing-bytes"),
        ("longer.param.bin", "trailing-bytes"),
        ("lost.param", "truncated"),
        ("negative.param", "bad-number"),
        ("none.param", "bad-number"),
        ("number.param", "bad-number"),
        ("overflow.param", "shape-overflow"),
        ("storage.param", "not-understood"),
        ("text.param.bin", "bad-number"),
        ("truncated.param", "past-the-end"),
        ("utf8.param", "bad-text"),
    ];
    for (file, code) in wanted {
        let options = OpenOptions { format: Some("ncnn".to_owned()), ..OpenOptions::default() };
        let error = registry().open_with(golden("bad").join(file), &options).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some() && error.offset().is_some(), "{file}: {error}");
    }
    let weights = memory(bytes_of("good/table.bin"));
    let options = OpenOptions { format: Some("ncnn".to_owned()), ..OpenOptions::default() };
    assert_eq!(registry().open_source(weights, &options).unwrap_err().code().as_str(), "file-missing");
}

#[test]
fn every_prefix_is_an_error_and_keeps_whole_tensors() {
    for file in ["table", "int8_conv", "spelled", "binary"] {
        let network = bytes_of(&format!("good/{file}.{}", extension(file)));
        let weights = bytes_of(&format!("good/{file}.bin"));
        let whole = open(&network, &weights).unwrap();
        // The last number of a text may be shorter.
        let end = network.trim_ascii_end().len();
        let end = if extension(file) == "param" {
            network[..end].iter().rposition(|b| *b == b'\n').unwrap()
        } else {
            network.len() - 1
        };
        for len in 0..=end {
            assert!(open(&network[..len], &weights).is_err(), "{file} {len}");
        }
        for len in 0..weights.len() {
            assert!(open(&network, &weights[..len]).is_err(), "{file} {len}");
            let saved = salvaged(&network, &weights[..len]).unwrap();
            assert!(!saved.damage.unwrap().lost.is_empty());
            for tensor in &saved.tensors {
                let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
                let [found, wanted] = [tensor, wanted].map(|tensor| tensor.read_tensor(Order::Row).unwrap());
                assert_eq!(found, wanted, "{file} {len}");
            }
        }
    }
}

/// Changed bytes cause errors, never panics.
#[test]
fn mutations_never_panic() {
    for file in ["table", "spelled", "binary", "binary_text", "int8_products", "inputs"] {
        let network = bytes_of(&format!("good/{file}.{}", extension(file)));
        let weights = bytes_of(&format!("good/{file}.bin"));
        for place in 0..network.len() {
            for change in [1u8, 4, 0x80] {
                let mut changed = network.clone();
                changed[place] ^= change;
                _ = Ncnn.scan(&memory(&changed), &OpenOptions::default());
                if open(&changed, &weights).is_err() {
                    _ = salvaged(&changed, &weights);
                }
            }
        }
        for place in 0..weights.len().min(2000) {
            let mut changed = weights.clone();
            changed[place] ^= 0x41;
            if let Ok(opened) = open(&network, &changed) {
                let source = opened.tensors[0].extents[0].source.clone();
                _ = Ncnn.outline_within(&opened, &source, &OpenOptions::default().limits).unwrap();
            }
        }
    }
}

#[test]
fn layers_without_names_of_their_own_are_distinct() {
    let network = "7767517\n3 3\nInput a 0 1 a\nBias b 1 1 a b 0=1\nBias b 1 1 b c 0=1\n";
    let checkpoint = open(network.as_bytes(), &[0; 8]).unwrap();
    assert_eq!(names(&checkpoint)[0], "b.bias");
    assert!(names(&checkpoint)[1].starts_with("b.bias~"));
    assert_eq!(checkpoint.notes[0].code.as_str(), "name-collision");
}

#[test]
fn custom_layers_have_no_weights_only_if_the_others_fill_the_file() {
    let custom = opened("custom");
    assert_eq!(custom.tensors.len(), 4);
    let notes = |checkpoint: &Checkpoint| -> Vec<_> {
        checkpoint.notes.iter().map(|note| (note.code.as_str(), note.text.clone())).collect()
    };
    let text =
        "`Mine` is not a layer of ncnn: it is read as if it had no weights, as the others fill the file";
    assert_eq!(notes(&custom), [("weights-guessed", text.into())]);
    assert!(notes(&opened("plain")).is_empty());
    let alone = "7767517\n4 4\nInput a 0 1 a\nMine m 1 1 a b\nOther n 1 1 b c\nMine o 1 1 c d\n";
    let none: FolderRef = Arc::new(MemoryFolder::new("m"));
    let options = OpenOptions::default();
    let alone = Ncnn.open_beside(memory(alone), &none, Path::new("a.param"), &options).unwrap();
    let text = "`Mine`, `Other` are not layers of ncnn: they are read as if they had no weights, as there is no .bin file";
    assert_eq!(notes(&alone), [("weights-guessed", text.into())]);
    let (network, weights) = (bytes_of("good/custom.param"), bytes_of("good/custom.bin"));
    let text = String::from_utf8(network).unwrap();
    let longer = [&weights[..], &[0; 4]].concat();
    assert_eq!(code(&text, &longer), "not-understood");
    let saved = salvaged(text.as_bytes(), &longer).unwrap();
    assert_eq!((names(&saved).len(), saved.damage.unwrap().lost.len()), (2, 2));
    // The weights of a custom layer could be of this length by chance.
    let at = weights.len() - 20 - 8 - 4;
    let mut other = weights;
    other[at..at + 4].copy_from_slice(b"abcd");
    assert_eq!(code(&text, &other), "not-understood");
}

#[test]
fn faults_before_a_custom_layer_are_those_of_the_weights() {
    let (network, weights) = (bytes_of("good/custom.param"), bytes_of("good/custom.bin"));
    let text = String::from_utf8(network).unwrap();
    // A word and 5 rows of 4 elements, then the bias of 5 elements.
    for len in 0..weights.len() {
        let wanted = if len < 104 { "past-the-end" } else { "not-understood" };
        assert_eq!(code(&text, &weights[..len]), wanted, "{len}");
    }
    let saved = salvaged(text.as_bytes(), &weights[..90]).unwrap();
    assert_eq!((names(&saved).len(), saved.damage.unwrap().lost.len()), (1, 3));
}

#[test]
fn binary_networks_with_the_name_of_weights_have_none() {
    let folder: FolderRef = Arc::new(MemoryFolder::new("m").with("a.bin", bytes_of("good/binary.param.bin")));
    let name = Path::new("a.bin");
    let source = folder.open(name).unwrap().unwrap();
    let error = registry().open_in_folder(source, &folder, name, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "file-missing");
}

#[test]
fn limits_count_tables_and_hold_for_the_network() {
    let (network, weights) = (bytes_of("good/table.param"), bytes_of("good/table.bin"));
    let folder = folder(&network, &weights);
    let opened = |tensors: u64| {
        let limits = Limits { tensors, ..Limits::default() };
        let options = OpenOptions { limits, ..OpenOptions::default() };
        Ncnn.open_beside(memory(&network), &folder, Path::new("a.param"), &options)
    };
    assert_eq!(opened(5).unwrap().tensors.len(), 5);
    assert_eq!(opened(4).unwrap_err().code().as_str(), "limit");
    // The network is larger than its weights.
    let layers = "ReLU a 0 0\n".repeat(25_000);
    let network = format!("7767517\n25001 1\n{layers}Bias b 0 0 0=1\n");
    let folder = self::folder(network.as_bytes(), &[0; 4]);
    for name in ["a.param", "a.bin"] {
        let source = folder.open(Path::new(name)).unwrap().unwrap();
        let found = registry().open_in_folder(source, &folder, Path::new(name), &OpenOptions::default());
        assert_eq!(names(&found.unwrap()), ["b.bias"], "{name}");
    }
}

#[test]
fn weights_of_each_storage_are_read() {
    let network = "7767517\n1 1\nMemoryData a 0 1 a 0=6 21=0\n";
    for (word, size, dtype, table) in [
        (0, 4, DType::F32, 0),
        (0x0002_c056, 4, DType::F32, 0),
        (0x0130_6b47, 2, DType::F16, 0),
        (0x0134_8b83, 2, DType::BF16, 0),
        (0x000d_4b38, 1, DType::I8, 0),
        // Any other word precedes a table.
        (1, 1, DType::U8, 1024),
        (0x0134_8b84, 1, DType::U8, 1024),
        (u32::MAX, 1, DType::U8, 1024),
    ] {
        let len = table + usize::next_multiple_of(6 * size, 4);
        let weights = [&word.to_le_bytes()[..], &vec![0; len]].concat();
        let found = open(network.as_bytes(), &weights).unwrap();
        assert_eq!(found.tensors[0].stored, dtype, "{word:#x}");
        assert_eq!(code(network, &weights[..4 + len - 1]), "past-the-end", "{word:#x}");
    }
}

#[test]
fn constants_of_bytes_have_four_storages() {
    for storage in -2..12 {
        let network = format!("7767517\n1 1\nMemoryData a 0 1 a 0=6 21={storage}\n");
        let wanted = match storage {
            0 => Ok(DType::F16),
            1 => Ok(DType::F32),
            3 | 4 | 6 | 8 => Ok(DType::I8),
            _ => Err("not-understood"),
        };
        let weights = match storage {
            0 => [&0x0130_6b47u32.to_le_bytes()[..], &[0; 12]].concat(),
            1 => vec![0; 24],
            _ => vec![0; 8],
        };
        let found = open(network.as_bytes(), &weights);
        let found = found.map(|found| found.tensors[0].stored).map_err(|error| error.code().as_str());
        assert_eq!(found, wanted, "{storage}");
    }
}

#[test]
fn bytes_after_the_last_layer_are_a_note_if_lenient() {
    let (network, weights) = (bytes_of("good/table.param"), bytes_of("good/table.bin"));
    let longer = [&weights[..], b"more"].concat();
    let folder = folder(&network, &longer);
    let options = OpenOptions { lenient: true, ..OpenOptions::default() };
    let found = Ncnn.open_beside(memory(&network), &folder, Path::new("a.param"), &options).unwrap();
    assert_eq!(found.notes.last().unwrap().code.as_str(), "trailing-bytes");
    assert_eq!(code(std::str::from_utf8(&network).unwrap(), &longer), "trailing-bytes");
}

#[test]
fn parameters_that_do_not_fit_leave_one_dimension() {
    let network = "7767517\n2 2\nInput a 0 1 a\nConvolution c 1 1 a b 0=2 1=2 6=10\n";
    let checkpoint = open(network.as_bytes(), &[0; 44]).unwrap();
    assert_eq!(checkpoint.tensors[0].shape.dims(), [10]);
}

#[test]
fn large_numbers_are_errors() {
    let layer = |layer: &str| format!("7767517\n2 2\nInput a 0 1 a\n{layer}\n");
    for (text, wanted) in [
        ("Convolution c 1 1 a b 0=2147483647 1=2147483647 6=2147483647 5=1", "past-the-end"),
        ("MemoryData c 0 1 b 0=2147483647 1=2147483647 2=2147483647", "shape-overflow"),
        ("LSTM c 1 1 a b 0=2147483647 1=2147483647 3=2147483647 2=2", "bad-number"),
        ("Gemm c 1 1 a b 5=1 3=1 8=2147483647 9=2147483647 18=400", "past-the-end"),
        ("MultiHeadAttention c 1 1 a b 0=0 2=8", "bad-number"),
        ("Convolution c 1 1 a b 0=1.0 1=1 6=4 5=1", "past-the-end"),
        ("Gemm c 1 1 a b 5=1 8=2 9=2 18=5", "not-understood"),
        ("Bias c 1 1 a b 0=99999999999", "bad-number"),
        ("Bias c 1 1 a b -23400=1", "bad-number"),
        ("Bias c 4000000000 1 a b", "bad-number"),
        ("Bias c 2000000000 1 a b", "truncated"),
    ] {
        assert_eq!(code(&layer(text), &[0; 64]), wanted, "{text}");
    }
}

#[test]
fn layers_of_the_application_are_found() {
    let codes = |bytes: &[u8]| {
        let scan = Ncnn.scan(&memory(bytes), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    assert!(codes(&bytes_of("good/plain.param")).is_empty());
    assert!(codes(&bytes_of("good/binary.param.bin")).is_empty());
    assert_eq!(codes(&bytes_of("good/custom.param")), ["custom-operators"]);
    assert_eq!(codes(b"7767517\n2 2\nInput"), ["unreadable"]);
    let mut changed = bytes_of("good/binary.param.bin");
    changed[13] = 1;
    assert_eq!(codes(&changed), ["custom-operators"]);
    for (count, wanted) in [
        (20, "operator T20 is not one of ncnn: the application must supply its code"),
        (21, "1 more type of operators is not one of ncnn: the application must supply the code"),
        (30, "10 more types of operators are not those of ncnn: the application must supply the code"),
    ] {
        let layers: String = (1..=count).map(|number| format!("T{number:02} a{number} 0 0\n")).collect();
        let network = format!("7767517\n{count} 1\n{layers}");
        let scan = Ncnn.scan(&memory(&network), &OpenOptions::default()).unwrap();
        assert_eq!(scan.findings.len(), count.min(21));
        assert_eq!(scan.findings.last().unwrap().text, wanted);
    }
}

#[test]
fn other_files_are_not_recognized() {
    for head in [
        &b"7767517"[..],
        b"77675170\n2 2\n",
        b"7767517\n9 8\npnnx.Input a 0 1 0\n",
        b"7767517\n2 2\nnn.Conv2d  c  0 1 0 #0=(1,4)f32\nInput d 0 1 d\n",
        b"7767517\n2 2\naten::mul  c  0 1 0 #0=(1,4)f32\n",
        b"7767517\t1.5\t2.5\n12\t1.5\t2.5\n",
        b"7767517\tlikes\t12\n12\tlikes\t13\n",
        b"7767517 2\nthe 0.5 0.25\n",
        b"7767517 2 2\nInput",
        b"7767517\n7\n8\n9\n",
        b"7767517\n7 8 9\n",
        b"7767517\n7 x\n",
        b"7767517\n1 2\n3 4\n",
        b"7767517\n\n2 2\nInput",
        b"1 2 3\n",
        b"\xdd\x85\x76",
    ] {
        assert!(!Ncnn.recognises(head, &memory(head)));
    }
    for head in [
        &b"7767517\r\n2 2\r\nInput"[..],
        b"7767517 \n 2\t2 \n",
        b"7767517\n2 2\n\nInput",
        b"7767517\n2 2\nInput in0 0 1 in0\npnnx.Expression e 1 1 in0 out0\n",
        b"\xdd\x85\x76\0",
    ] {
        assert!(Ncnn.recognises(head, &memory(head)));
    }
}
