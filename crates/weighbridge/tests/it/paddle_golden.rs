//! Every golden file of Paddle opens, alone and as part of its folder, with the contents that Paddle reports.

use crate::support::paddle::{
    bad, compare, compare_all, expected, files_below, good, is_data, list, open, texts,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use weighbridge::formats::Names;
use weighbridge::topology::Topology;
use weighbridge::{Checkpoint, OpenOptions, TensorEntry};

/// Models of one program and one file of parameters.
const COMBINED: [(&str, &str, &str); 15] = [
    ("p262/cnn_jit", "model.pdmodel", "model.pdiparams"),
    ("p262/cnn_legacy_combined", "__model__", "__params__"),
    ("p262/cnn_static_infer", "model.pdmodel", "model.pdiparams"),
    ("p262/combined_mixed", "program.pb", "all.pdiparams"),
    ("p262/control_flow", "model.pdmodel", "model.pdiparams"),
    ("p262/seq_jit", "model.pdmodel", "model.pdiparams"),
    ("p262/seq_static_infer", "model.pdmodel", "model.pdiparams"),
    ("p331/cnn_jit", "model.json", "model.pdiparams"),
    ("p331/cnn_pir", "model.json", "model.pdiparams"),
    ("p331/cnn_pir_readable_nontrainable", "model.json", "model.pdiparams"),
    ("p331/control_flow_pir", "model.json", "model.pdiparams"),
    ("p331/seq_jit", "model.json", "model.pdiparams"),
    ("p331/seq_pir", "model.json", "model.pdiparams"),
    ("p331_oldir/cnn_jit", "model.pdmodel", "model.pdiparams"),
    ("p262/jit_multi_function", "model.pdmodel", "model.pdiparams"),
];

/// Models of one program and one file a parameter.
const SEPARATE: [(&str, &str); 4] = [
    ("p262/cnn_legacy_separate", "__model__"),
    ("p262/seq_legacy_separate", "__model__"),
    ("p262/separate_mixed", "__model__"),
    ("p331/cnn_pir_separate", "__model__.json"),
];

/// Pickles that `static.save` writes beside a training program.
const TRAINING: [(&str, &str); 3] = [
    ("p262/cnn_static_train", "train.pdmodel"),
    ("p262/seq_static_train", "train.pdmodel"),
    ("p331/cnn_pir_train", "train.json"),
];

fn topology(checkpoint: &Checkpoint) -> &Topology {
    checkpoint.topology.as_deref().unwrap()
}

/// What was understood of a program is what Paddle says of it.
fn check_program(topology: &Topology, json: &Json, at: &str) {
    let ends = |ends: &[weighbridge::topology::Endpoint]| -> Json { ends.iter().map(|e| &*e.name).collect() };
    for (key, found) in [("feeds", ends(&topology.feeds)), ("fetches", ends(&topology.fetches))] {
        if let Some(names) = json.get(key) {
            assert_eq!(found, *names, "{at} {key}");
        }
    }
    let counts = topology.histogram();
    assert_eq!(counts.iter().copied().collect::<std::collections::BTreeMap<_, _>>().len(), counts.len());
    let counts: serde_json::Map<String, Json> =
        counts.into_iter().map(|(kind, count)| (kind.to_owned(), json!(count))).collect();
    assert_eq!(Json::Object(counts), json["op_counts"], "{at}");
    // The description of PIR has the bodies of control flow inside of their operators.
    if topology.form == weighbridge::formats::paddle::Paddle::FORM_DESC {
        assert_eq!(topology.blocks.len(), list(&json["blocks"]).len(), "{at}");
    }
    if let Some(names) = json.get("persistable_names_sorted") {
        let found: Json = topology.parameters().iter().map(|v| &*v.name).collect();
        assert_eq!(found, *names, "{at}");
    }
    if let Some(version) = json["version"].as_u64() {
        let version = format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000);
        assert_eq!(topology.writer.as_deref(), Some(&*version), "{at}");
    }
}

#[test]
fn combined_models_are_found_from_each_of_their_files() {
    for (folder, program, parameters) in COMBINED {
        let json = expected(&good(folder));
        let tensors = match &json["tensors"] {
            Json::Object(files) => list(&files[parameters]),
            all => list(all),
        };
        let folder_path = good(folder);
        let ways = [
            ("inference", folder_path.clone()),
            ("inference", folder_path.join(program)),
            ("combined", folder_path.join(parameters)),
        ];
        for (kind, path) in ways {
            let checkpoint = open(&path);
            let at = path.display().to_string();
            assert_eq!((checkpoint.format, checkpoint.kind), ("paddle", kind), "{at}");
            compare_all(&checkpoint, tensors, &at);
            let topology = topology(&checkpoint);
            let stored: Vec<_> = topology.parameters().iter().map(|v| v.name.clone()).collect();
            let names: Vec<_> = tensors.iter().map(|t| t["name"].as_str().unwrap()).collect();
            assert_eq!(stored, names, "{at}");
            let programs = &json["programs"][program];
            if let Some(json) = [&json["program"], programs].into_iter().find(|json| json.is_object()) {
                check_program(topology, json, &at);
            }
            let ends = |ends: &[weighbridge::topology::Endpoint]| -> Vec<String> {
                ends.iter().map(|e| e.name.clone()).collect()
            };
            for (key, found) in
                [("feed_names", ends(&topology.feeds)), ("fetch_names", ends(&topology.fetches))]
            {
                if json[key].is_array() {
                    assert_eq!(found, texts(&json[key]), "{at}");
                }
            }
            if json["io"].is_object() {
                assert_eq!(topology.feeds.len(), json["io"]["inputs"].as_object().unwrap().len(), "{at}");
                assert_eq!(topology.fetches.len(), list(&json["io"]["outputs"]).len(), "{at}");
            }
            // Other functions of a layer are not in the index of its folder.
            let omitted = |n: &&weighbridge::checkpoint::Note| n.omission && n.code != "more-programs";
            assert_eq!(checkpoint.notes.iter().filter(omitted).count(), 0, "{at}: {:?}", checkpoint.notes);
        }
    }
}

#[test]
fn functions_of_one_layer_have_their_own_parameters() {
    let folder = good("p262/jit_multi_function");
    let json = expected(&folder);
    for file in ["model.second.pdmodel", "model.second.pdiparams"] {
        let checkpoint = open(folder.join(file));
        compare_all(&checkpoint, list(&json["tensors"]["model.second.pdiparams"]), file);
        check_program(topology(&checkpoint), &json["programs"]["model.second.pdmodel"], file);
        check_info(&checkpoint, &json["info"]);
    }
    // The list of structured names leads to the parameters that it is of.
    let checkpoint = open(folder.join("model.pdiparams.info"));
    compare_all(&checkpoint, list(&json["tensors"]["model.pdiparams"]), "model.pdiparams.info");
    check_info(&checkpoint, &json["info"]);
    let notes = open(&folder).notes;
    assert!(notes.iter().any(|n| n.code == "more-programs" && n.text.contains("model.second.pdmodel")));
}

/// Structured names, and whether a parameter is trained, are what the `.info` says.
fn check_info(checkpoint: &Checkpoint, info: &Json) {
    for entry in &checkpoint.tensors {
        let row = &info[entry.path.to_text()];
        assert!(row.is_object(), "{}", entry.text());
        for key in ["structured_name", "stop_gradient", "trainable"] {
            let found = entry.attributes.get(key).map(|value| value.to_json());
            assert_eq!(found.as_ref(), row.get(key), "{} {key}", entry.text());
        }
    }
}

#[test]
fn structured_names_are_stored_beside_variable_names() {
    for folder in ["p262/cnn_jit", "p262/seq_jit", "p331_oldir/cnn_jit"] {
        let json = expected(&good(folder));
        for file in ["", "model.pdmodel", "model.pdiparams"] {
            check_info(&open(good(folder).join(file)), &json["info_pickle"]["content"]);
        }
        let options = OpenOptions { names: Names::Structured, ..OpenOptions::default() };
        let structured = weighbridge::formats::open_with(good(folder), &options).unwrap();
        for entry in &structured.tensors {
            // A tensor that is not of the layer, such as a constant, keeps the name it has.
            let Some(variable) = entry.text_attribute("variable_name") else { continue };
            let json = &json["state_dict"][entry.path.to_text()];
            assert_eq!(json["tensor_name"], *variable, "{folder}: {}", entry.text());
            compare(entry, json, folder);
        }
        let named = structured.tensors.iter().filter(|t| t.attributes.contains_key("variable_name"));
        assert_eq!(named.count(), structured.tensors.len(), "{folder}");
    }
}

#[test]
fn separate_models_are_found_from_their_program() {
    for (folder, program) in SEPARATE {
        let json = expected(&good(folder));
        let missing: Vec<_> = json["could_not_be_saved_separately_by_this_paddle"]
            .as_object()
            .map_or(vec![], |o| o.keys().collect());
        for path in [good(folder), good(folder).join(program)] {
            let checkpoint = open(&path);
            let at = path.display().to_string();
            assert_eq!(checkpoint.kind, "separate", "{at}");
            compare_all(&checkpoint, list(&json["tensors"]), &at);
            let omitted: Vec<_> = checkpoint.notes.iter().filter(|n| n.omission).collect();
            assert_eq!(omitted.len(), usize::from(!missing.is_empty()), "{at}: {omitted:?}");
            assert!(
                omitted.iter().all(|n| missing.iter().all(|name| n.text.contains(name.as_str()))),
                "{omitted:?}"
            );
            if json["program"].is_object() {
                check_program(topology(&checkpoint), &json["program"], &at);
            }
        }
        // Each of the other files is a tensor.
        for tensor in list(&json["tensors"]) {
            let file = tensor["file"].as_str().unwrap();
            let checkpoint = open(good(folder).join(file));
            assert_eq!(checkpoint.kind, "tensor", "{file}");
            let [entry] = checkpoint.tensors.as_slice() else { panic!("{file}") };
            assert!(tensor["name"].as_str().unwrap().ends_with(&entry.path.to_text()), "{file}");
            compare(entry, tensor, file);
        }
    }
}

#[test]
fn files_of_one_tensor() {
    let mut count = 0;
    for (folder, key, kind) in [
        ("p262/lod_tensors", "tensors", "tensor"),
        ("p331/fp8_tensors", "tensors", "tensor"),
        ("p262/selected_rows", "selected_rows", "selected-rows"),
        ("p331/selected_rows", "selected_rows", "selected-rows"),
    ] {
        for json in list(&expected(&good(folder))[key]) {
            let file = json["file"].as_str().unwrap();
            let checkpoint = open(good(folder).join(file));
            assert_eq!((checkpoint.kind, checkpoint.tensors.len()), (kind, 1), "{folder}/{file}");
            assert_eq!(checkpoint.tensors[0].path.to_text(), file);
            compare(&checkpoint.tensors[0], json, file);
            assert_eq!(checkpoint.notes, [], "{file}");
            count += 1;
        }
        let all = open(good(folder));
        assert_eq!((all.kind, all.tensors.len()), ("separate", list(&expected(&good(folder))[key]).len()));
    }
    let json = expected(&good("p262/save_as_fp16"));
    compare(&open(good("p262/save_as_fp16/single_fp16.bin")).tensors[0], &json["single"][0], "single");
    assert_eq!(count, 59 + 6 + 5 + 5);
}

#[test]
fn combined_files_without_a_program_are_numbered() {
    for (folder, file, key) in [
        ("p262/save_as_fp16", "fp16.pdiparams", "tensors"),
        ("p331/save_combine_func", "plain.pdiparams", "plain"),
        ("p331/save_combine_func", "fp16.pdiparams", "fp16"),
    ] {
        let json = expected(&good(folder));
        let checkpoint = open(good(folder).join(file));
        assert_eq!((checkpoint.kind, checkpoint.topology.is_some()), ("combined", false));
        assert_eq!(checkpoint.tensors.len(), list(&json[key]).len());
        for (k, (entry, json)) in checkpoint.tensors.iter().zip(list(&json[key])).enumerate() {
            assert_eq!((entry.path.to_text(), entry.guessed), (format!("#{k}"), true));
            compare(entry, json, file);
        }
        assert!(checkpoint.notes.iter().any(|n| n.code == "no-names"));
    }
}

#[test]
fn vocabularies_are_named_by_their_variables() {
    let json = expected(&good("p262/vocab"));
    for file in ["", "program.pb", "vocab.pdiparams"] {
        let checkpoint = open(good("p262/vocab").join(file));
        assert_eq!(checkpoint.tensors.len(), 0);
        let Some(weighbridge::checkpoint::Value::Map(all)) = checkpoint.metadata.get("paddle.vocab") else {
            panic!("{file}: {:?}", checkpoint.metadata)
        };
        let names: Vec<_> = all.iter().map(|(name, _)| name.to_text()).collect();
        assert_eq!(names, texts(&json["file_order"]), "{file}");
        for (name, words) in all {
            let weighbridge::checkpoint::Value::Map(words) = words else { panic!("{words:?}") };
            let entries = list(&json["as_stored"][name.to_text()]["entries"]);
            let found: Vec<_> =
                words.iter().map(|(word, id)| (json!(word.to_text()), id.to_json())).collect();
            let wanted: Vec<_> = entries.iter().map(|e| (e["word"].clone(), e["id"].clone())).collect();
            assert_eq!(found, wanted);
        }
    }
}

#[test]
fn training_programs_have_parameters_and_state() {
    for (folder, program) in TRAINING {
        let json = expected(&good(folder));
        let (parameters, state) = (list(&json["pdparams"]), list(&json["pdopt"]));
        for (file, wanted) in [("train.pdparams", parameters), ("train.pdopt", state)] {
            let checkpoint = open(good(folder).join(file));
            compare_keys(&checkpoint.tensors, wanted, &format!("{folder}/{file}"));
        }
        for path in [good(folder), good(folder).join(program)] {
            let checkpoint = open(&path);
            let (ours, theirs) = checkpoint.tensors.split_at(parameters.len());
            compare_keys(ours, parameters, folder);
            compare_keys(theirs, state, folder);
            check_program(topology(&checkpoint), &json["program"], folder);
            let of_parameters = theirs.iter().filter(|t| t.role.slot().is_some());
            assert!(of_parameters.clone().count() + 1 >= theirs.len(), "{folder}");
            for state in of_parameters {
                assert!(ours.iter().any(|p| p.path == state.path), "{folder}: {}", state.text());
            }
        }
    }
}

/// Tensors by the keys that they have in a flat state.
fn compare_keys(entries: &[TensorEntry], wanted: &[Json], at: &str) {
    assert_eq!(entries.len(), wanted.len(), "{at}");
    for (entry, json) in entries.iter().zip(wanted) {
        let key = match entry.role.slot() {
            Some(slot) => format!("{}_{}", entry.path.to_text(), slot.to_text()),
            None => entry.path.to_text(),
        };
        assert_eq!(json["name"], *key, "{at}");
        compare(entry, json, at);
    }
}

/// The arrays in the description of a pickle, in order.
fn arrays<'a>(json: &'a Json, all: &mut Vec<&'a Json>) {
    match json["kind"].as_str().unwrap() {
        "ndarray" => all.push(json),
        "dict" | "OrderedDict" => json["items"].as_object().unwrap().values().for_each(|v| arrays(v, all)),
        "list" | "tuple" => list(&json["items"]).iter().for_each(|v| arrays(v, all)),
        _ => {}
    }
}

/// The folders whose `expected.json` describes pickles one by one.
fn pickled() -> Vec<(PathBuf, Json)> {
    let folders: BTreeSet<_> =
        files_below(&good("")).iter().filter_map(|f| Some(f.parent()?.to_owned())).collect();
    let described = folders.into_iter().filter(|f| good("").join(f).join("expected.json").exists());
    let described = described.map(|f| (good("").join(&f), expected(&good("").join(&f))));
    described.filter(|(_, json)| !list(&json["entries"]).is_empty()).collect()
}

#[test]
fn pickles_contain_the_tensors_of_paddle() {
    let mut files = 0;
    for (folder, json) in pickled() {
        for entry in list(&json["entries"]) {
            let file = entry["file"].as_str().unwrap();
            let same = entry["raw_pickle"]["same_content_as"].as_str();
            let described =
                list(&json["entries"]).iter().find(|e| e["file"] == *same.unwrap_or(file)).unwrap();
            let mut wanted = Vec::new();
            arrays(&described["raw_pickle"], &mut wanted);
            let checkpoint = open(folder.join(file));
            assert_eq!((checkpoint.format, checkpoint.kind), ("paddle", "state"), "{file}");
            if let Some(logical) = json["logical"].as_object() {
                // Parts of one tensor are described one by one; the whole has its own description.
                assert_eq!(checkpoint.tensors.len(), logical.len());
                logical.iter().for_each(|(key, json)| compare(checkpoint.tensor(key).unwrap(), json, key));
            } else {
                assert_eq!(checkpoint.tensors.len(), wanted.len(), "{file}");
                checkpoint.tensors.iter().zip(&wanted).for_each(|(entry, json)| compare(entry, json, file));
            }
            files += 1;
        }
    }
    assert_eq!(files, 50);
}

#[test]
fn shards_are_one_model() {
    for folder in ["p331/dist_ckpt", "p331/dist_two"] {
        let checkpoint = open(good(folder));
        let tensors = &expected(&good(folder))["tensors"];
        assert_eq!(checkpoint.tensors.len(), list(tensors).len());
        for json in list(tensors) {
            let entry = checkpoint.tensor(json["name"].as_str().unwrap()).unwrap();
            assert_eq!(json!(entry.shape.dims()), json["shape"]);
            assert_eq!(weighbridge::ops::hash::sha256(entry).unwrap(), json["sha256"].as_str().unwrap());
        }
    }
}

#[test]
fn programs_alone() {
    let json = expected(&good("p262/op_attrs"));
    for (file, program) in json["programs"].as_object().unwrap() {
        let checkpoint = open(good("p262/op_attrs").join(file));
        assert_eq!((checkpoint.kind, checkpoint.tensors.len()), ("program", 0), "{file}");
        check_program(topology(&checkpoint), program, file);
    }
}

/// Every file that is there opens; so does every folder that is one model.
#[test]
fn every_golden_file_is_tested() {
    let mut count = 0;
    for file in files_below(&good("")).iter().filter(|f| is_data(f)) {
        // The index of shards does not count itself.
        if file.extension().is_some_and(|e| e == "metadata") {
            continue;
        }
        let checkpoint = open(good("").join(file));
        let format =
            if file.extension().is_some_and(|e| e == "safetensors") { "safetensors" } else { "paddle" };
        assert_eq!(checkpoint.format, format, "{file:?}");
        count += 1;
    }
    assert_eq!(count, 325);
}

#[test]
fn encrypted_files_are_detected_by_entropy() {
    let folder = bad("p262/encrypted");
    for item in list(&expected(&folder)["items"]) {
        let error = weighbridge::formats::open(folder.join(item["file"].as_str().unwrap())).unwrap_err();
        assert_eq!(error.code().as_str(), "unknown-format");
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("encrypted") && hint.contains("AES") && hint.contains("compressed"), "{hint}");
    }
    // What was encrypted is a file of streams that is cut short.
    assert_eq!(
        weighbridge::formats::open(folder.join("plain.bin")).unwrap_err().code().as_str(),
        "truncated-data"
    );
}
