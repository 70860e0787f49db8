//! Odd, broken and half-written files of BigGraph: our treatment of each, and that of upstream.

use crate::support::biggraph::{
    SETS, at_version, codes, copy, golden, knowing, lenient, metadata, open, open_with, sha256,
};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weighbridge::finding::Verdict;
use weighbridge::formats::registry;
use weighbridge::ops::verify::{VerifyOptions, VerifyReport, verify};
use weighbridge::source::MemorySource;
use weighbridge::tensor::{DType, Element, Order};
use weighbridge::{OpenOptions, TensorEntry};

fn alt() -> Json {
    serde_json::from_slice(&fs::read(golden("alt/expected.json")).unwrap()).unwrap()
}

fn numbers(entry: &TensorEntry) -> Vec<f64> {
    let bytes = entry.read_tensor(Order::Row).unwrap();
    (0..).map_while(|at| DType::element_at(entry.dtype(), &bytes, at)).map(Element::to_f64).collect()
}

fn check_with(path: &Path, open: OpenOptions) -> VerifyReport {
    verify(path, &VerifyOptions { open, ..VerifyOptions::default() }).unwrap()
}

fn check(path: &Path) -> VerifyReport {
    check_with(path, OpenOptions::default())
}

/// The codes of what weighs more than a remark, each once.
fn wrong(report: &VerifyReport) -> Vec<&'static str> {
    let heavy = |f: &&weighbridge::finding::Finding| f.severity > weighbridge::finding::Severity::Note;
    let mut codes: Vec<_> = report.findings.iter().filter(heavy).map(|f| f.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[test]
fn odd_files_of_edges() {
    // What we do: the type of lhs, or the code of the error. We refuse what upstream refuses.
    let table = [
        ("contiguous_i64", Ok("i64")),
        // Ids and weights stay as they are stored, where upstream converts them to 64-bit integers.
        ("contiguous_i32", Ok("i32")),
        ("contiguous_u8", Ok("u8")),
        ("bigendian_i64", Ok("i64")),
        ("gzip_shuffle_fletcher", Ok("i64")),
        ("float64_ids", Ok("f64")),
        ("latest_libver", Ok("i64")),
        ("weight_float64", Ok("i64")),
        ("featurised_lhs", Ok("i64")),
        ("empty", Ok("i64")),
        // Python compares it with != 1: any number that equals 1 passes.
        ("format_version_as_float", Ok("i64")),
        ("format_version_as_u8", Ok("i64")),
        ("format_version_as_array1", Ok("i64")),
        ("format_version_as_string", Err("format-version")),
        ("no_format_version", Err("format-version")),
        ("format_version_2", Err("format-version")),
        ("lhs_shorter", Err("edge-columns")),
        ("missing_lhs", Err("dataset-missing")),
    ];
    let alt = alt();
    let cases = alt["cases"].as_object().unwrap();
    let edges = |json: &&Json| json.get("read_by_upstream").is_some();
    assert_eq!(cases.values().filter(edges).count(), table.len());
    for (name, wanted) in table {
        let json = &cases[name];
        let path = golden("alt").join(name).join("edges_0_0.h5");
        assert_eq!(json["read_by_upstream"], json!(wanted.is_ok()), "{name}");
        let found = match (weighbridge::formats::open(&path), wanted) {
            (Ok(found), Ok(dtype)) => {
                assert_eq!(found.notes, [], "{name}");
                assert_eq!(found.tensor("lhs").unwrap().dtype().name(), dtype, "{name}");
                found
            }
            (Err(error), Err(code)) => {
                assert_eq!(error.code().as_str(), code, "{name}: {error}");
                if code == "format-version" {
                    // The columns are present and complete: they can be read on request.
                    let found = open_with(&path, &lenient());
                    assert_eq!((codes(&found), found.tensors.len()), (vec!["format-version"], 3), "{name}");
                    assert_eq!(json!(numbers(found.tensor("rel").unwrap())), floats(&alt["edges_in"]["rel"]));
                }
                continue;
            }
            (found, _) => panic!("{name}: {found:?}"),
        };
        for column in ["lhs", "rhs", "rel", "lhsd_data"] {
            if let Ok(entry) = found.tensor(column) {
                assert_eq!(json!(numbers(entry)), floats(&json[column]), "{name}: {column}");
            }
        }
        if let Ok(weight) = found.tensor("weight") {
            // Upstream cuts weights down to integers.
            let cut: Vec<f64> = numbers(weight).into_iter().map(f64::trunc).collect();
            assert_eq!(weight.dtype(), DType::F64);
            assert_eq!(cut, numbers_of(&json["weight"]));
            assert_ne!(cut, numbers(weight));
        }
    }
}

fn numbers_of(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
}

fn floats(json: &Json) -> Json {
    json!(numbers_of(json))
}

#[test]
fn odd_files_of_embeddings() {
    // The type and shape that we read, as it is stored, and what is found where a checkpoint has this
    // partition, the configuration says dimension 6 and the count file 11.
    let table: [(&str, &str, &[u64], &[&str]); 13] = [
        ("emb_f32", "f32", &[11, 6], &[]),
        ("emb_f64", "f64", &[11, 6], &[]),
        ("emb_f16", "f16", &[11, 6], &[]),
        ("emb_be_f32", "f32", &[11, 6], &[]),
        ("emb_i32", "i32", &[11, 6], &[]),
        ("emb_gzip", "f32", &[11, 6], &[]),
        ("emb_transposed_chunks", "f32", &[11, 6], &[]),
        ("emb_fewer_rows_than_count", "f32", &[5, 6], &["counts-differ"]),
        // Upstream silently fills all rows with that one; this is an error here.
        ("emb_one_row_for_many", "f32", &[1, 6], &["counts-differ"]),
        ("emb_more_rows_than_count", "f32", &[22, 6], &["counts-differ"]),
        ("emb_wrong_dim", "f32", &[11, 4], &["table-dimension"]),
        ("emb_flat", "f32", &[66], &["embeddings-shape"]),
        ("emb_zero_rows", "f32", &[0, 6], &["counts-differ"]),
    ];
    let alt = alt();
    for (name, dtype, shape, wanted) in table {
        let json = &alt["cases"][name]["alloc"];
        let path = golden("alt").join(name).join("embeddings_e_0.v3.h5");
        let found = open(&path);
        let mut entry = found.tensor("embeddings.e").unwrap().clone();
        assert_eq!((entry.dtype().name(), entry.shape.dims()), (dtype, shape), "{name}");
        assert_eq!(json!(shape), json["shape"], "{name}");
        entry.cast = Some(DType::F32.into());
        let bytes = entry.read_tensor(Order::Row).unwrap();
        assert_eq!(sha256(&bytes), json["sha256_f32le"].as_str().unwrap(), "{name}");

        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        fs::copy(&path, folder.path().join("embeddings_e_0.v3.h5")).unwrap();
        write("checkpoint_version.txt", "3\n");
        write("entity_count_e_0.txt", "11\n");
        write(
            "config.json",
            r#"{"entities": {"e": {"num_partitions": 1}}, "relations": [{"name": "r", "lhs": "e", "rhs": "e"}],
                "dimension": 6, "global_emb": false, "entity_path": "x", "edge_paths": [], "checkpoint_path": "y"}"#,
        );
        let report = check(folder.path());
        let mut found = wrong(&report);
        // There is no model file beside it, no name and no state; and the file has no configuration.
        found.retain(|code| !matches!(*code, "model-missing" | "no-config" | "no-edges"));
        assert_eq!(found, wanted, "{name}: {:?}", report.findings);
    }
}

#[test]
fn every_prefix_of_a_file() {
    let files = [
        ("alt/weight_float64/edges_0_0.h5", 1),
        ("alt/latest_libver/edges_0_0.h5", 1),
        ("alt/emb_gzip/embeddings_e_0.v3.h5", 1),
        ("set1/ckpt_weighted/model.v1.h5", 1),
        ("set1/ckpt_weighted/embeddings_n_0.v1.h5", 3),
        ("set1/ckpt_weighted/config.json", 1),
    ];
    for (name, step) in files {
        let bytes = fs::read(golden(name)).unwrap();
        for end in (0..bytes.len()).step_by(step) {
            let source = Arc::new(MemorySource::new("prefix", bytes[..end].to_vec()));
            let options = |lenient| OpenOptions {
                lenient,
                format: Some("biggraph".to_owned()),
                ..OpenOptions::default()
            };
            assert!(registry().open_source(source.clone(), &options(false)).is_err(), "{name}: {end}");
            if let Ok(found) = registry().open_source(source, &options(true)) {
                assert!(!found.notes.is_empty(), "{name}: {end}");
                for tensor in &found.tensors {
                    let _ = tensor.read_tensor(Order::Row);
                }
            }
        }
    }
}

/// A copy of the whole of set1, in which a checkpoint finds its entities.
fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for folder in
        ["ckpt_crash_before", "ckpt_crash_after", "ckpt_crash_resumed", "dyn", "ckpt_weighted", "weighted"]
    {
        copy(&golden("set1").join(folder), &tree.path().join(folder));
    }
    tree
}

#[test]
fn golden_checkpoints_are_sound() {
    for set in SETS {
        for entry in fs::read_dir(golden(set)).unwrap() {
            let path = entry.unwrap().path();
            if !path.join("config.json").is_file() {
                continue;
            }
            let report = check(&path);
            let text: Vec<String> =
                report.findings.iter().map(|f| format!("{} {}", f.code.as_str(), f.text)).collect();
            assert_eq!(report.verdict, Verdict::Sound, "{path:?}: {text:#?}");
        }
    }
}

#[test]
fn crashed_runs_leave_orphans() {
    let found = open(golden("set1/ckpt_crash_after"));
    assert_eq!(metadata(&found, "version"), json!(2));
    let note = found.notes.iter().find(|note| note.code == "orphan-unfinished").unwrap();
    assert!(note.text.contains("embeddings_all_0.v3.h5, embeddings_all_1.v3.h5"), "{}", note.text);
    assert_eq!(wrong(&check(&golden("set1/ckpt_crash_after"))), ["orphan-unfinished"]);
    assert!(!codes(&open(golden("set1/ckpt_crash_before"))).contains(&"orphan-unfinished"));
    // For any opened version, the files of the current version are not orphans.
    let first = tempfile::tempdir().unwrap();
    copy(&golden("set1/ckpt_crash_after"), first.path());
    for name in ["model", "embeddings_all_0", "embeddings_all_1"] {
        let of = |version: u64| first.path().join(format!("{name}.v{version}.h5"));
        fs::copy(of(2), of(1)).unwrap();
    }
    let earlier = at_version(1);
    let report = check_with(first.path(), earlier);
    assert_eq!(wrong(&report), ["orphan-unfinished"], "{:?}", report.findings);
    let text = &report.findings.iter().find(|f| f.code == "orphan-unfinished").unwrap().text;
    assert!(text.contains("embeddings_all_0.v3.h5") && !text.contains(".v2."), "{text}");
    // A version that no run deletes any more.
    let tree = tree();
    let folder = tree.path().join("ckpt_crash_resumed");
    fs::copy(folder.join("model.v4.h5"), folder.join("model.v2.h5")).unwrap();
    assert_eq!(wrong(&check(&folder)), ["orphan-left-behind"]);
}

#[test]
fn an_empty_version_file_is_not_version_0() {
    let tree = tree();
    let folder = tree.path().join("ckpt_crash_after");
    let file = folder.join("checkpoint_version.txt");
    for (text, code) in [
        (Some(""), "version-empty"),
        (Some(" \n"), "version-empty"),
        (Some("1.0\n"), "not-a-number"),
        (Some("-3\n"), "negative-number"),
        (Some("9\n"), "version-without-files"),
        (None, "version-missing"),
    ] {
        match text {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let error = weighbridge::formats::open(&folder).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{text:?}");
        assert_eq!(error.expected_text(), Some("one of the versions 3 (incomplete), 2 (complete)"));
        let repair = if code == "version-without-files" { "rollback 2" } else { "recover" };
        let hint = format!("`at 2` reads version 2; checkpoint(FOLDER, {repair}) makes it current");
        assert_eq!(error.hint_text(), Some(&*hint));
        let found = open_with(&folder, &lenient());
        assert_eq!((metadata(&found, "version"), codes(&found)[0]), (json!(2), code));
        let report = check(&folder);
        assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::Unsound, code));
        let named = at_version(2);
        assert_eq!(open_with(&folder, &named).tensors.len(), found.tensors.len());
    }
    // A file without a byte, as a crash leaves it, completes no version.
    fs::write(folder.join("embeddings_all_1.v2.h5"), "").unwrap();
    let error = weighbridge::formats::open(&folder).unwrap_err();
    assert_eq!(error.expected_text(), Some("one of the versions 3 (incomplete), 2 (incomplete)"));
    assert_eq!(error.hint_text(), Some("restore missing files: no version is complete"));
}

#[test]
fn partitions_that_are_missing_or_cut_short() {
    let tree = tree();
    let folder = tree.path().join("ckpt_crash_before");
    let part = folder.join("embeddings_all_1.v2.h5");
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() - 1000]).unwrap();
    let error = weighbridge::formats::open(&folder).unwrap_err();
    assert_eq!(error.code().as_str(), "truncated", "{error}");
    assert_eq!(check(&folder).verdict, Verdict::Unsound);
    fs::remove_file(&part).unwrap();
    let error = weighbridge::formats::open(&folder).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.found_text()),
        ("partition-missing", Some("no embeddings_all_1.v2.h5"))
    );
    let found = open_with(&folder, &lenient());
    let table = found.tensor("embeddings.all").unwrap();
    assert_eq!(table.extents.len(), 1);
    assert!(metadata(&found, "partitions")["all"][1].is_null());
    // The rows that are there have their names.
    let names = table.row_names.as_ref().unwrap().read().unwrap();
    assert_eq!(names.len() as u64, table.shape.dims()[0]);
    fs::remove_file(tree.path().join("dyn/entities/entity_names_all_0.json")).unwrap();
    let found = open_with(&folder, &lenient());
    assert!(found.tensor("embeddings.all").unwrap().row_names.is_none());
    assert!(found.notes.iter().any(|note| note.code == "names-incomplete" && note.omission));
    assert!(found.notes.iter().any(|note| note.code == "partition-missing" && note.omission));
    assert_eq!(check(&folder).verdict, Verdict::Unsound);
}

#[test]
fn a_type_that_no_relation_uses_has_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model");
    copy(&golden("set1/ckpt_std_zip"), &folder);
    let config = folder.join("config.json");
    let mut json: Json = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    json["entities"]["unused"] = json!({"num_partitions": 3});
    fs::write(&config, json.to_string()).unwrap();
    let store = weighbridge::store::CheckpointStore::open(&folder, Default::default()).unwrap();
    assert_eq!(store.state().unwrap().highest_complete(), Some(6));
    let options = knowing(Some(config), None);
    let found = open_with(&folder, &options);
    assert!(metadata(&found, "partitions")["unused"].is_null());
    assert!(!codes(&found).contains(&"unknown-type"), "{:?}", found.notes);
    fs::write(folder.join("checkpoint_version.txt"), "").unwrap();
    let error = weighbridge::formats::open_with(&folder, &options).unwrap_err();
    assert!(error.hint_text().unwrap().contains("version 6"), "{error}");
    // A partition above the last one does not replace a missing one.
    fs::rename(folder.join("embeddings_user_1.v6.h5"), folder.join("embeddings_user_9.v6.h5")).unwrap();
    let error = weighbridge::formats::open_with(&folder, &options).unwrap_err();
    assert!(error.hint_text().unwrap().contains("version 4"), "{error}");
}

#[test]
fn a_file_level_fault_is_not_attributed_to_a_part() {
    let bytes = fs::read(golden("set1/std/edges/edges_0_0.h5")).unwrap();
    let mut faults = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        let source = Arc::new(MemorySource::new("e.h5", damaged));
        let named = OpenOptions { format: Some("biggraph".to_owned()), ..OpenOptions::default() };
        let Err(error) = registry().open_source(source.clone(), &named) else { continue };
        assert!(!error.message().starts_with("in :"), "byte {at}: {error}");
        faults += 1;
        let Ok(found) = registry().open_source(source, &OpenOptions { lenient: true, ..named }) else {
            continue;
        };
        assert!(found.notes.iter().all(|note| !note.text.contains(": :")), "byte {at}: {:?}", found.notes);
    }
    assert!(faults > 50, "{faults}");
}

#[test]
fn tables_are_read_without_a_model_file_or_blob() {
    let tree = tree();
    let folder = tree.path().join("ckpt_crash_before");
    let part = folder.join("embeddings_all_0.v2.h5");
    let mut bytes = fs::read(&part).unwrap();
    let blob = bytes.windows(4).position(|window| window == b"PK\x03\x04").unwrap();
    bytes[blob..blob + 200].fill(0);
    fs::write(&part, bytes).unwrap();
    let found = open(&folder);
    assert!(found.tensor("embeddings.all").is_ok() && found.tensor("embeddings.all/sum").is_err());
    let lost: Vec<_> =
        found.notes.iter().filter(|note| note.omission).map(|note| note.code.as_str()).collect();
    assert_eq!(lost, ["state-not-understood", "state-incomplete"]);
    fs::remove_file(folder.join("model.v2.h5")).unwrap();
    fs::write(folder.join("config.json"), "{ not JSON").unwrap();
    let error = weighbridge::formats::open(&folder).unwrap_err();
    assert_eq!((error.code().as_str(), error.found_text()), ("model-missing", Some("no model.v2.h5")));
    let found = open_with(&folder, &lenient());
    assert!(found.notes.iter().any(|note| note.code == "model-missing" && note.omission));
    assert_eq!(found.tensors.len(), 1);
    let report = check(&folder);
    assert_eq!(report.verdict, Verdict::Unsound);
    assert!(wrong(&report).contains(&"state-incomplete"), "{:?}", report.findings);
    // That the file is missing is one finding, not one for each parameter.
    assert!(wrong(&report).contains(&"model-missing"), "{:?}", report.findings);
    assert!(!wrong(&report).contains(&"parameter-missing"), "{:?}", report.findings);
}

#[test]
fn mismatched_entities_are_reported() {
    let tree = tree();
    let (folder, entities) = (tree.path().join("ckpt_crash_before"), tree.path().join("dyn/entities"));
    let names = entities.join("entity_names_all_0.json");
    let text = fs::read_to_string(&names).unwrap();
    let first = text.split('"').nth(1).unwrap();
    let second = text.split('"').nth(3).unwrap();
    fs::write(&names, text.replacen(&format!("\"{second}\""), &format!("\"{first}\""), 1)).unwrap();
    let report = check(&folder);
    assert_eq!(wrong(&report), ["duplicate-name"], "{:?}", report.findings);
    assert_eq!(wrong(&check(&entities)), ["duplicate-name"]);
    fs::write(&names, "[\"a\"]").unwrap();
    assert_eq!(wrong(&check(&folder)), ["names-differ"]);
    fs::write(&names, text).unwrap();
    fs::write(entities.join("entity_count_all_0.txt"), "1\n").unwrap();
    assert_eq!(wrong(&check(&folder)), ["counts-differ"]);
    assert_eq!(wrong(&check(&entities)), ["names-differ"]);
    fs::write(entities.join("entity_count_all_0.txt"), "12 13\n").unwrap();
    assert!(wrong(&check(&entities)).contains(&"count-broken"));
    fs::write(entities.join("entity_count_all_0.txt"), "7\n").unwrap();
    fs::write(entities.join("dynamic_rel_count.txt"), "1\n").unwrap();
    assert!(wrong(&check(&entities)).contains(&"relation-names-differ"));
}

#[cfg(unix)]
#[test]
fn snapshots_whose_links_are_dead() {
    let tree = tree();
    let folder = tree.path().join("ckpt_crash_before");
    let snapshot = folder.join("epoch_1");
    fs::create_dir(&snapshot).unwrap();
    fs::write(snapshot.join("checkpoint_version.txt"), "1\n").unwrap();
    std::os::unix::fs::symlink("/nowhere/model.v1.h5", snapshot.join("model.v1.h5")).unwrap();
    let report = check(&folder);
    assert_eq!((report.verdict, wrong(&report)), (Verdict::Unsound, vec!["dead-link"]));
    assert_eq!(weighbridge::formats::open(&snapshot).unwrap_err().code().as_str(), "version-without-files");
}

/// Puts `value` at an element of a column that is stored as it is.
fn set(path: &Path, column: &str, element: u64, value: i64) {
    let found = open(path);
    let entry = found.tensor(column).unwrap();
    let extent = entry.extents.iter().find(|extent| {
        (extent.first_row()..extent.first_row() + extent.shape(&entry.shape)[0]).contains(&element)
    });
    let extent = extent.unwrap();
    let at = usize::try_from(extent.offset + (element - extent.first_row()) * 8).unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn edges_are_checked_against_configuration_and_counts() {
    for (set1, graph, checkpoint) in [
        ("set1", "std", "ckpt_std_zip"),
        ("set1", "feat", "ckpt_feat"),
        ("set2", "weighted", "ckpt_weighted"),
    ] {
        let options = knowing(Some(golden(set1).join(checkpoint).join("config.json")), None);
        let report = check_with(&golden(set1).join(graph).join("edges"), options);
        assert_eq!(report.verdict, Verdict::Sound, "{graph}: {:?}", report.findings);
    }
    // Without a configuration the ids mean nothing.
    assert_eq!(wrong(&check(&golden("set1/std/edges"))), ["no-config"]);

    let tree = tree();
    copy(&golden("set1/std"), &tree.path().join("std"));
    let edges = tree.path().join("std/edges");
    let options = || knowing(Some(golden("set1/ckpt_std_zip/config.json")), None);
    set(&edges.join("edges_1_2.h5"), "lhs", 3, 1 << 40);
    set(&edges.join("edges_1_2.h5"), "rhs", 4, -1);
    set(&edges.join("edges_3_3.h5"), "rel", 0, 12);
    fs::remove_file(edges.join("edges_2_2.h5")).unwrap();
    fs::copy(edges.join("edges_0_0.h5"), edges.join("edges_4_0.h5")).unwrap();
    fs::write(edges.join("edges_2_2.tmp.h5"), "").unwrap();
    let report = check_with(&edges, options());
    assert_eq!(
        wrong(&report),
        ["bucket-missing", "bucket-unknown", "edges-unfinished", "id-out-of-range", "rel-out-of-range"],
        "{:?}",
        report.findings
    );
    let out: Vec<&str> =
        report.findings.iter().filter(|f| f.code == "id-out-of-range").map(|f| f.text.as_str()).collect();
    assert_eq!(out.len(), 2, "{out:?}");
    assert!(
        out[0].starts_with("bucket (1, 2): 1 edge with an id out of range; the first is edge 3: id 1099511627776, but user has "),
        "{out:?}"
    );
}

#[test]
fn feature_lists_are_checked() {
    let tree = tree();
    copy(&golden("set1/feat"), &tree.path().join("feat"));
    let edges = tree.path().join("feat/edges");
    let options = || knowing(Some(golden("set1/ckpt_feat/config.json")), None);
    let file = edges.join("edges_0_0.h5");
    let columns = open(&file);
    let count = columns.tensor("rel").unwrap().elements();
    set(&file, "lhs", 0, 5);
    set(&file, "lhsd_data", 1, 1 << 20);
    assert_eq!(wrong(&check_with(&edges, options())), ["feature-out-of-range", "featurised-id"]);
    set(&file, "lhsd_offsets", count, 0);
    assert!(wrong(&check_with(&edges, options())).contains(&"list-offsets"));
    // A file alone is looked at as far as it goes.
    assert!(wrong(&check(&file)).contains(&"featurised-id"));
}

#[test]
fn optimizer_state_is_scanned_as_a_pickle() {
    use weighbridge::ops::scan::scan;
    for name in ["set1/ckpt_std_zip/model.v6.h5", "set1/ckpt_std_legacy/embeddings_tag_0.v2.h5"] {
        let report = scan(golden(name), &OpenOptions::default()).unwrap();
        assert_eq!(report.verdict, Verdict::Sound, "{name}: {:?}", report.files[0].scan.findings);
        let imports = &report.files[0].scan.imports;
        assert!(imports.iter().any(|i| i.name == "_rebuild_tensor_v2"), "{name}");
    }
    // The import of a tensor, made one of a function that runs commands.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("embeddings_tag_0.v2.h5");
    let mut bytes = fs::read(golden("set1/ckpt_std_legacy/embeddings_tag_0.v2.h5")).unwrap();
    let import = b"ctorch._utils\n_rebuild_tensor_v2\n";
    let at = bytes.windows(import.len()).position(|window| window == import).unwrap();
    let evil = b"cos\nsystem\n";
    // Same length as before: the removed bytes are moved into an ignored text.
    let rest = import.len() - evil.len();
    let mut patched = vec![b'X'];
    patched.extend(u32::try_from(rest - 6).unwrap().to_le_bytes());
    patched.extend(vec![b'a'; rest - 6]);
    patched.push(b'0');
    patched.extend(evil);
    bytes[at..at + import.len()].copy_from_slice(&patched);
    fs::write(&path, bytes).unwrap();
    let report = scan(&path, &OpenOptions::default()).unwrap();
    assert_eq!(report.verdict, Verdict::Unsound, "{:?}", report.files[0].scan.findings);
}
