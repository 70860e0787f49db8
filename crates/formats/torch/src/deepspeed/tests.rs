//! Checkpoints of DeepSpeed (`judges/make_deepspeed.py`): read, damaged, incomplete.
#![allow(clippy::disallowed_methods)]

use super::DeepSpeed;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, Value};
use weighbridge_core::checksum::{Checksum, ChecksumKind};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{DeepCheck, Detect, OpenOptions, ReadFormat};
use weighbridge_io::source::{FolderRef, MemoryFolder};

/// Files of a folder by name.
type Files = BTreeMap<String, Vec<u8>>;

fn golden() -> PathBuf {
    weighbridge_testkit::testdata("deepspeed")
}

fn collect(root: &Path, at: &Path, files: &mut Files) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
}

fn files_of(name: &str) -> Files {
    let (root, mut files) = (golden().join("good").join(name), Files::new());
    collect(&root, &root, &mut files);
    files
}

fn folder(files: &Files) -> FolderRef {
    Arc::new(files.iter().fold(MemoryFolder::new("m"), |all, (name, bytes)| all.with(name, bytes.clone())))
}

fn open(files: &Files) -> Result<Checkpoint> {
    DeepSpeed.open_folder(&folder(files), &OpenOptions::default())
}

fn expected() -> BTreeMap<String, Json> {
    let all: BTreeMap<String, Json> =
        serde_json::from_slice(&std::fs::read(golden().join("expected.json")).unwrap()).unwrap();
    all.into_iter().filter(|(name, _)| !name.contains("fsdp")).collect()
}

/// The elements as f32, as `zero_to_fp32` gives buffers; releases before 0.15 also those that are integers.
fn widened(entry: &TensorEntry, dtype: &str) -> Vec<u8> {
    let bytes = entry.read_tensor(Order::Row).unwrap();
    match (entry.stored, dtype) {
        (DType::BF16, "f32") => bytes.chunks(2).flat_map(|b| [0, 0, b[0], b[1]]).collect(),
        (DType::F16, "f32") => bytes
            .chunks(2)
            .flat_map(|b| weighbridge_core::tensor::f16::from_le_bytes([b[0], b[1]]).to_f32().to_le_bytes())
            .collect(),
        (DType::I64, "f32") => {
            let number = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap()) as f32;
            bytes.chunks(8).flat_map(|b| number(b).to_le_bytes()).collect()
        }
        (DType::Bool, "f32") => bytes.iter().flat_map(|&b| f32::from(b).to_le_bytes()).collect(),
        _ => bytes,
    }
}

fn compare(context: &str, entry: &TensorEntry, wanted: &Json) {
    let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
    assert_eq!(entry.shape.dims(), shape, "{context}");
    let dtype = wanted["dtype"].as_str().unwrap();
    let hash = Name::hex(&Sha256::digest(widened(entry, dtype)));
    assert_eq!(hash, wanted["sha256"].as_str().unwrap(), "{context}");
    assert!(entry.role == Role::Buffer || entry.stored.name() == dtype, "{context}");
}

#[test]
fn weights_are_those_of_zero_to_fp32() {
    let (mut checkpoints, mut tensors) = (0, 0);
    for (name, expected) in expected() {
        let files = files_of(&name);
        assert!(DeepSpeed.recognises_folder(&folder(&files)), "{name}");
        let checkpoint = open(&files).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let Some(weights) = expected["weights"].as_object() else { continue };
        for (tensor, wanted) in weights {
            let entry = checkpoint.tensor(tensor).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            compare(&format!("{name}: {tensor}"), entry, wanted);
            tensors += 1;
        }
        checkpoints += 1;
    }
    assert!(checkpoints == 39 && tensors > 300, "{checkpoints} {tensors}");
}

#[test]
fn optimizer_state_is_that_of_an_engine_that_loads_the_checkpoint() {
    let mut states = 0;
    for (name, expected) in expected() {
        let checkpoint = open(&files_of(&name)).unwrap();
        for (tensor, slots) in expected["state"].as_object().unwrap() {
            for (slot, wanted) in slots.as_object().unwrap() {
                let text = if slot == "fp32" { tensor.clone() } else { format!("{tensor}/{slot}") };
                let entry = checkpoint.tensor(&text).unwrap_or_else(|error| panic!("{name}: {error:?}"));
                compare(&format!("{name}: {text}"), entry, wanted);
                if slot != "fp32" {
                    assert_eq!(entry.role, Role::OptimizerState { slot: Name::from(slot.as_str()) });
                    assert!(checkpoint.tensor(&format!("{tensor}/step")).is_ok(), "{name}: {tensor}");
                }
                states += 1;
            }
        }
    }
    assert!(states > 700, "{states}");
}

#[test]
fn every_tensor_of_the_files_is_listed() {
    let checkpoint = open(&files_of("d14_z2_bf16_3")).unwrap();
    let names: Vec<String> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
    // Weights in 16 bits beside the joined ones; buffers and names that share a parameter.
    for name in
        ["module.embed.weight", "norm.mean", "norm.count", "base.weight", "head.weight", "module.head.weight"]
    {
        assert!(names.iter().any(|own| own == name), "{name}: {names:?}");
    }
    let role = |name: &str| checkpoint.tensor(name).unwrap().role.clone();
    assert_eq!(role("norm.mean"), Role::Buffer);
    assert_eq!(role("embed.weight"), Role::Parameter);
    assert_eq!(role("module.embed.weight"), Role::Other);
    let alias = checkpoint.tensor("head.weight").unwrap().text_attribute("alias_of").unwrap();
    assert_eq!(alias, "embed.weight");
    assert_eq!(checkpoint.metadata.get("optimizer_state_dict.zero_stage"), Some(&Value::I64(2)));
    assert_eq!(checkpoint.metadata.get("global_steps"), Some(&Value::I64(2)));
    assert_eq!(checkpoint.metadata.get("note"), Some(&Value::Text("kept".to_owned())));
    assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
}

/// Names of the tensors whose name has `part`.
fn names_with(checkpoint: &Checkpoint, part: &str) -> Vec<String> {
    checkpoint.tensors.iter().map(TensorEntry::text).filter(|name| name.contains(part)).collect()
}

fn notes(checkpoint: &Checkpoint) -> String {
    checkpoint.notes.iter().map(|note| format!("{} {}\n", note.code.as_str(), note.text)).collect()
}

#[test]
fn buffers_without_elements_are_listed() {
    let checkpoint = open(&files_of("d19_z3_f32_empty_2")).unwrap();
    let entry = checkpoint.tensor("head.none").unwrap();
    assert_eq!((&entry.role, entry.shape.dims()), (&Role::Buffer, &[0][..]));
    assert_eq!(names_with(&checkpoint, "module."), ["rank_1.module.head.none"]);
    assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
}

/// Replaces bytes in the pickle of a file, all of them or the last ones, and corrects its checksum.
fn patch(file: &mut [u8], from: &[u8], to: &[u8], is_last: bool) {
    let source: weighbridge_io::source::SourceRef =
        Arc::new(weighbridge_core::source::MemorySource::new("m", file.to_vec()));
    let members = weighbridge_zip::outline(&source, &weighbridge_core::limits::Limits::default()).unwrap().1;
    let member = members.iter().find(|member| member.name.ends_with("data.pkl")).unwrap();
    let start = usize::try_from(member.data_offset).unwrap();
    let range = start..start + usize::try_from(member.len).unwrap();
    let mut places: Vec<usize> =
        range.clone().filter(|&at| file[at..].starts_with(from) && at + from.len() <= range.end).collect();
    assert!(!places.is_empty() && from.len() == to.len());
    if is_last {
        places = places.split_off(places.len() - 1);
    }
    for at in places {
        file[at..at + to.len()].copy_from_slice(to);
    }
    let mut sum = Checksum::new(ChecksumKind::Crc32);
    sum.update(&file[range]);
    let (old, new) = (member.crc32.to_le_bytes(), sum.finish().to_le_bytes());
    for at in 0..file.len() - 3 {
        if file[at..at + 4] == old {
            file[at..at + 4].copy_from_slice(&new);
        }
    }
}

#[test]
fn parameters_without_elements_in_the_files_are_named() {
    let model = "global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt";
    // Not in the list of buffers.
    let mut files = files_of("d19_z3_f32_empty_2");
    patch(files.get_mut(model).unwrap(), b"head.none", b"head.nine", true);
    let checkpoint = open(&files).unwrap();
    assert!(notes(&checkpoint).contains("not-joined `head.none` has no elements"), "{}", notes(&checkpoint));
    assert_eq!(checkpoint.tensor("head.none").unwrap().shape.dims(), [0]);
    // Shares a parameter that is not listed.
    let mut files = files_of("d14_z3_f16_2");
    patch(files.get_mut(model).unwrap(), b"embed.weight", b"embed.weighs", true);
    let checkpoint = open(&files).unwrap();
    let text = "not-joined `head.weight` shares the elements of `embed.weighs`, which is not in the files";
    assert!(notes(&checkpoint).contains(text), "{}", notes(&checkpoint));
}

#[test]
fn names_that_share_a_listed_parameter_are_not_listed_again() {
    let mut files = files_of("d14_z2_bf16_3");
    let whole = open(&files).unwrap();
    patch(
        files.get_mut("global_step2/mp_rank_00_model_states.pt").unwrap(),
        b"head.weight",
        b"norm.weight",
        false,
    );
    let checkpoint = open(&files).unwrap();
    let bytes =
        |checkpoint: &Checkpoint| checkpoint.tensor("norm.weight").unwrap().read_tensor(Order::Row).unwrap();
    assert_eq!(bytes(&checkpoint), bytes(&whole));
    assert_eq!(names_with(&checkpoint, "norm.weight"), names_with(&whole, "norm.weight"));
}

#[test]
fn an_offloaded_optimizer_is_refused_by_name() {
    let mut files = files_of("d14_z3_f16_2");
    let (name, count) = ("global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt", 43);
    patch(files.get_mut(name).unwrap(), &[b'K', count, 0x85], &[b'K', 0, 0x85], false);
    let error = open(&files).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.kind()),
        ("deepspeed-form", weighbridge_core::Kind::Unsupported)
    );
    assert!(error.hint_text().unwrap().contains("offloaded_tensors/"), "{error:?}");
}

/// File of torch.save with this pickle and one storage of one element.
fn archive(pickle: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in [("a/data.pkl", pickle), ("a/data/0", &[0, 0, 128, 63]), ("a/version", b"3\n")] {
        zip.start_file(name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn repeated_tensors_of_many_ranks_have_one_budget() {
    let text = |word: &str| [&[b'X', u8::try_from(word.len()).unwrap(), 0, 0, 0], word.as_bytes()].concat();
    let tensor = [
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        b"ctorch\nFloatStorage\n".to_vec(),
        text("0"),
        text("cpu"),
        b"K\x01tQK\x00(K\x01t(K\x01t\x89ccollections\nOrderedDict\n)RtR".to_vec(),
    ]
    .concat();
    let folder_of = |ranks: u8, repeats: usize| {
        let optimizer = [
            b"\x80\x02}(".to_vec(),
            text("optimizer_state_dict"),
            b"}(".to_vec(),
            text("zero_stage"),
            b"K\x02".to_vec(),
            text("partition_count"),
            vec![b'K', ranks],
            text("single_partition_of_fp32_groups"),
            b"](".to_vec(),
            tensor.clone(),
            b"eu".to_vec(),
            text("more"),
            b"](".to_vec(),
            tensor.clone(),
            b"q\x00".to_vec(),
            b"h\x00".repeat(repeats),
            b"eu.".to_vec(),
        ];
        let model = [
            b"\x80\x02}(".to_vec(),
            text("module"),
            b"}".to_vec(),
            text("param_shapes"),
            b"](}(".to_vec(),
            text("w"),
            vec![b'(', b'K', ranks, b't', b'u', b'e', b'u', b'.'],
        ];
        let mut files = Files::new();
        files.insert("mp_rank_00_model_states.pt".to_owned(), archive(&model.concat()));
        for rank in 0..ranks {
            let name = format!("zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
            files.insert(name, archive(&optimizer.concat()));
        }
        files
    };
    // The tensor, and in each rank the other one with its repetitions.
    assert_eq!(open(&folder_of(3, 2)).unwrap().tensors.len(), 1 + 3 * 3);
    assert_eq!(open(&folder_of(100, 500)).unwrap_err().code().as_str(), "limit");
}

#[test]
fn state_of_small_groups_is_joined_and_values_of_each_rank_are_listed() {
    let checkpoint = open(&files_of("d19_z2_f32_small_3")).unwrap();
    assert_eq!(
        names_with(&checkpoint, "scale.weight"),
        [
            "scale.weight",
            "scale.weight/exp_avg",
            "scale.weight/exp_avg_sq",
            "scale.weight/step",
            "module.scale.weight",
        ]
    );
    // Two groups in three ranks.
    assert_eq!(names_with(&checkpoint, "RMS").len(), 6, "{:?}", names_with(&checkpoint, "RMS"));
    assert!(notes(&checkpoint).starts_with("not-joined "), "{}", notes(&checkpoint));
}

#[test]
fn state_of_whole_parameters_is_listed_as_in_the_files() {
    // The ranks have 35 and 61 elements of it, for 32 and 29 elements of the weights.
    let checkpoint = open(&files_of("d19_z2_bf16_muon_2")).unwrap();
    let momentum = names_with(&checkpoint, "momentum_buffer");
    assert_eq!(momentum.len(), 2, "{momentum:?}");
    let elements = |name: &String| checkpoint.tensor(name).unwrap().shape.elements().unwrap();
    assert_eq!(momentum.iter().map(elements).collect::<Vec<_>>(), [35, 61]);
    assert!(notes(&checkpoint).starts_with("not-joined "), "{}", notes(&checkpoint));
    assert_eq!(names_with(&checkpoint, "/exp_avg_sq").len(), 4);
    // With stage 3, each flat tensor has its own states.
    let checkpoint = open(&files_of("d19_z3_bf16_muon_2")).unwrap();
    assert_eq!(names_with(&checkpoint, "/momentum_buffer").len(), 4);
    assert_eq!(names_with(&checkpoint, "/exp_avg_sq").len(), 4);
    assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
}

#[test]
fn joined_weights_are_those_of_the_model_where_it_has_32_bits() {
    let mut compared = 0;
    for name in ["d14_z1_f32_2", "d14_z2_f32_3", "d19_z2_f32_3", "d19_z2_f32_untrained_2"] {
        let checkpoint = open(&files_of(name)).unwrap();
        for entry in checkpoint.tensors.iter().filter(|entry| entry.text().starts_with("module.")) {
            let own = checkpoint.tensor(entry.text().strip_prefix("module.").unwrap()).unwrap();
            assert_eq!(
                own.read_tensor(Order::Row).unwrap(),
                entry.read_tensor(Order::Row).unwrap(),
                "{name}"
            );
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn buffers_of_other_ranks_are_listed_below_their_rank() {
    let checkpoint = open(&files_of("d14_z3_bf16_3")).unwrap();
    let bytes = |name: &str| checkpoint.tensor(name).unwrap().read_tensor(Order::Row).unwrap();
    assert_ne!(bytes("norm.mean"), bytes("rank_1.module.norm.mean"));
}

#[test]
fn the_folder_its_step_and_latest_open_the_same_model() {
    let files = files_of("d19_z3_f32_3");
    let whole = open(&files).unwrap();
    let step: Files = files
        .iter()
        .filter_map(|(name, bytes)| Some((name.strip_prefix("global_step2/")?.to_owned(), bytes.clone())))
        .collect();
    assert!(DeepSpeed.recognises_folder(&folder(&step)));
    let folder = folder(&files);
    let latest = folder.open(Path::new("latest")).unwrap().unwrap();
    assert!(DeepSpeed.recognises(b"global_step2", &latest));
    let options = OpenOptions::default();
    let by_latest = DeepSpeed.open_beside(latest, &folder, Path::new("latest"), &options).unwrap();
    let names =
        |checkpoint: &Checkpoint| checkpoint.tensors.iter().map(TensorEntry::text).collect::<Vec<_>>();
    assert_eq!(names(&whole), names(&by_latest));
    assert_eq!(names(&whole), names(&open(&step).unwrap()));
    assert_eq!(open(&step).unwrap().tensors.len(), whole.tensors.len());
}

#[test]
fn other_models_in_the_folder_have_precedence() {
    let mut files = files_of("d14_z2_f32_1");
    assert!(DeepSpeed.recognises_folder(&folder(&files)));
    files.insert("model.safetensors".to_owned(), Vec::new());
    assert!(!DeepSpeed.recognises_folder(&folder(&files)));
    files.remove("model.safetensors");
    for name in ["adapter_model.safetensors", "adapter_model.bin"] {
        files.insert(name.to_owned(), Vec::new());
        assert!(!DeepSpeed.recognises_folder(&folder(&files)), "{name}");
        files.remove(name);
    }
    files.remove("latest");
    assert!(DeepSpeed.recognises_folder(&folder(&files)));
    files.insert("best.pt".to_owned(), Vec::new());
    assert!(!DeepSpeed.recognises_folder(&folder(&files)));
}

/// Opens `files` after a change; returns the error.
fn fault(name: &str, change: impl FnOnce(&mut Files)) -> Error {
    let mut files = files_of(name);
    change(&mut files);
    open(&files).unwrap_err()
}

#[test]
fn missing_ranks_are_errors_that_name_the_file() {
    let part = |rank: usize| format!("global_step2/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
    for rank in 0..3 {
        let error = fault("d14_z2_f32_3", |files| drop(files.remove(&part(rank)).unwrap()));
        assert_eq!(error.code().as_str(), "deepspeed-files");
        assert!(error.file().unwrap().ends_with(&part(rank)), "{error:?}");
    }
    let model = "global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt";
    let error = fault("d14_z3_f32_3", |files| drop(files.remove(model).unwrap()));
    assert!(error.file().unwrap().ends_with(model), "{error:?}");
    let error = fault("d14_z2_f32_3", |files| {
        drop(files.remove("global_step2/mp_rank_00_model_states.pt").unwrap());
    });
    assert!(error.file().unwrap().ends_with("mp_rank_00_model_states.pt"), "{error:?}");
    // A file with the model of an earlier checkpoint with more ranks.
    let models = |rank: usize| format!("global_step2/zero_pp_rank_{rank}_mp_rank_00_model_states.pt");
    let error = fault("d14_z3_f32_3", |files| drop(files.insert(models(3), files[&models(2)].clone())));
    assert!(
        error.code().as_str() == "deepspeed-files" && error.file().unwrap().ends_with(&models(3)),
        "{error:?}"
    );
    // The 16-bit weights open alone, unless they are split as well.
    let error = fault("d14_z2_f32_1", |files| drop(files.remove(&part(0)).unwrap()));
    assert!(error.hint_text().unwrap().contains("open the 16-bit weights alone"), "{error:?}");
    let error = fault("d14_z3_f32_1", |files| drop(files.remove(&part(0)).unwrap()));
    assert!(!error.hint_text().unwrap().contains("alone"), "{error:?}");
    // A file of an earlier checkpoint with more ranks.
    let error = fault("d14_z2_f32_3", |files| drop(files.insert(part(3), files[&part(2)].clone())));
    assert!(
        error.code().as_str() == "deepspeed-files" && error.file().unwrap().ends_with(&part(3)),
        "{error:?}"
    );
    let error =
        fault("d14_z2_f32_3", |files| drop(files.insert("latest".to_owned(), b"global_step9".to_vec())));
    assert_eq!((error.code().as_str(), error.found_text()), ("deepspeed-files", Some("global_step9")));
}

#[test]
fn parts_of_different_steps_are_errors() {
    // The same model and ranks after no step, in place of one rank.
    let other = files_of("d14_z2_f32_sgd_2");
    let name = "global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt";
    let error = fault("d14_z2_f16_2", |files| drop(files.insert(name.to_owned(), other[name].clone())));
    assert_eq!(error.code().as_str(), "deepspeed-ranks");
    assert!(error.file().unwrap().ends_with(name), "{error:?}");
}

#[test]
fn other_parallelism_is_refused_by_name() {
    for (from, name) in [
        ("mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"),
        ("mp_rank_00_model_states.pt", "layer_00-model_00-model_states.pt"),
        ("mp_rank_00_model_states.pt", "layer_0_expert_0_mp_rank_00_model_states.pt"),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_0_mp_rank_01_optim_states.pt"),
    ] {
        let error = fault("d14_z2_f32_1", |files| {
            let bytes = files[&format!("global_step2/{from}")].clone();
            files.insert(format!("global_step2/{name}"), bytes);
        });
        assert_eq!(error.code().as_str(), "deepspeed-parallel", "{name}");
        assert!(error.file().unwrap().ends_with(name), "{error:?}");
    }
    let error = fault("d14_z2_f32_1", |files| {
        files.remove("global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt");
        files.insert("global_step2/zero/embed.weight/fp32.pt".to_owned(), b"PK".to_vec());
    });
    assert_eq!(error.code().as_str(), "deepspeed-parallel");
}

#[test]
fn values_of_lightning_are_metadata() {
    for name in ["d14_lightning_z2_2", "d19_lightning_z3_2"] {
        let checkpoint = open(&files_of(name)).unwrap();
        let text = format!("{:?}", checkpoint.metadata.to_json());
        assert!(text.contains("pytorch-lightning_version") && text.contains("hyper_parameters"), "{text}");
    }
}

#[test]
fn truncated_files_are_errors_that_name_the_file() {
    let all = files_of("d19_z3_bf16_sub_2");
    for name in all.keys().filter(|name| name.ends_with(".pt")) {
        let len = all[name].len();
        for at in (0..len).step_by(97).chain([len - 1]) {
            let error = fault("d19_z3_bf16_sub_2", |files| files.get_mut(name).unwrap().truncate(at));
            assert!(error.file().is_some_and(|file| file.ends_with(name.as_str())), "{name} {at}: {error:?}");
        }
    }
}

#[test]
fn checksums_of_joined_storages_are_compared() {
    let limits = weighbridge_core::limits::Limits::default();
    for name in ["d14_z3_f16_2", "d19_z2_f16_2"] {
        let (files, mut damaged) = (files_of(name), 0);
        assert_eq!(DeepSpeed.check(&open(&files).unwrap()).unwrap(), []);
        for (file, bytes) in files.iter().filter(|(file, _)| file.ends_with("optim_states.pt")) {
            let source = folder(&files).open(Path::new(file)).unwrap().unwrap();
            let members = weighbridge_zip::outline(&source, &limits).unwrap().1;
            for member in members.iter().filter(|member| member.name.contains("/data/") && member.len > 4) {
                let mut changed = files.clone();
                let at = usize::try_from(member.data_offset).unwrap();
                changed.insert(file.clone(), [&bytes[..at], &[bytes[at] ^ 1], &bytes[at + 1..]].concat());
                let findings = DeepSpeed.check(&open(&changed).unwrap()).unwrap();
                assert_eq!(findings.len(), 1, "{name} {file} {}", member.name);
                assert!(findings[0].file.as_ref().unwrap().ends_with(file.as_str()));
                damaged += 1;
            }
        }
        assert!(damaged >= 6, "{name}: {damaged}");
    }
}

#[test]
fn a_damaged_storage_fails_the_tensors_that_lie_in_it_and_others() {
    for (name, rank) in [("d14_z3_f16_2", 1), ("d14_z2_f16_2", 1), ("d19_z3_f32_3", 2)] {
        let (mut files, file) =
            (files_of(name), format!("global_step2/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"));
        let limits = weighbridge_core::limits::Limits::default();
        let source = folder(&files).open(Path::new(&file)).unwrap().unwrap();
        let members = weighbridge_zip::outline(&source, &limits).unwrap().1;
        let read = |files: &Files| {
            let checkpoint = open(files).unwrap();
            let one = |entry: &TensorEntry| {
                entry.verify_tensor().and_then(|()| entry.read_tensor(Order::Row)).err()
            };
            checkpoint.tensors.iter().filter_map(one).collect::<Vec<_>>()
        };
        assert!(read(&files).is_empty());
        for member in members.iter().filter(|member| member.name.contains("/data/") && member.len > 4) {
            // The last byte may be padding: the storage is still damaged.
            for at in [member.data_offset, member.data_offset + member.len - 1] {
                let at = usize::try_from(at).unwrap();
                files.get_mut(&file).unwrap()[at] ^= 1;
                let errors = read(&files);
                assert!(!errors.is_empty(), "{name} {}", member.name);
                for error in errors {
                    assert_eq!(error.code().as_str(), "crc-mismatch");
                    assert!(error.file().unwrap().ends_with(&file), "{error:?}");
                }
                files.get_mut(&file).unwrap()[at] ^= 1;
            }
        }
    }
}

#[test]
fn damaged_bytes_never_panic() {
    for name in ["d19_z3_f32_3", "d19_z2_bf16_3", "d14_z2_f16_2"] {
        let files = files_of(name);
        for (file, bytes) in files.iter().filter(|(file, _)| file.ends_with(".pt")) {
            for at in (0..bytes.len()).step_by(61) {
                let mut damaged = files.clone();
                damaged.get_mut(file).unwrap()[at] ^= 1 << (at % 8);
                // Either error or a whole index: both are fine.
                if let Ok(checkpoint) = open(&damaged) {
                    assert!(!checkpoint.tensors.is_empty());
                }
            }
        }
    }
}
