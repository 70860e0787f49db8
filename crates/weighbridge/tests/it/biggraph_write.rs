//! Files written for PyTorch-BigGraph equal the files that were read, and meet its requirements.
#![allow(clippy::cast_possible_truncation)]

use crate::support::biggraph::{SETS, golden, knowing, open, open_with, options};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weighbridge::checkpoint::{MemoryRowNames, Name, Role, RowNameList, TensorPath, Value};
use weighbridge::engine::RunOptions;
use weighbridge::formats::biggraph::{Partitions, edges};
use weighbridge::formats::{PlanOptions, registry};
use weighbridge::ops::save;
use weighbridge::plan::WritePlan;
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Checkpoint, TensorEntry};

fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> WritePlan {
    registry()
        .by_id("biggraph")
        .unwrap()
        .plan(checkpoint, options)
        .unwrap_or_else(|e| panic!("{}: {e}", checkpoint.label))
}

/// Writes `checkpoint` and returns the folder and the losses.
fn write(checkpoint: &Checkpoint, target: &Path, options: &PlanOptions) -> Vec<&'static str> {
    let plan = plan(checkpoint, options);
    if target.is_dir() {
        fs::remove_dir_all(target).unwrap();
    }
    save(&plan, target, true, &RunOptions::default()).unwrap();
    plan.losses.iter().map(|loss| loss.code.as_str()).collect()
}

/// Name, role, type, shape, attributes and bits.
type Content = (String, String, DType, Vec<u64>, String, Vec<u8>);

/// What the tensors are, sorted by name.
fn content(checkpoint: &Checkpoint) -> Vec<Content> {
    let one = |t: &TensorEntry| {
        let attributes = format!("{:?}", t.attributes);
        let bytes = t.read_tensor(Order::Row).unwrap();
        (t.text(), t.role.as_str().to_owned(), t.dtype(), t.shape.dims().to_vec(), attributes, bytes)
    };
    let mut all: Vec<_> = checkpoint.tensors.iter().map(one).collect();
    all.sort();
    all
}

/// The metadata without those of the entities, which stand elsewhere; blobs are always written as zip
/// archives.
fn metadata(checkpoint: &Checkpoint) -> String {
    let own =
        checkpoint.metadata.iter().filter(|(k, _)| !["dynamic_relations", "relation_names"].contains(k));
    let text = own.map(|(k, v)| format!("{k}: {v:?}\n")).collect::<String>();
    text.replace("\"legacy\"", "\"zip\"")
}

fn names(checkpoint: &Checkpoint) -> Vec<Option<Vec<String>>> {
    let read = |t: &TensorEntry| {
        t.row_names.as_ref().map(|l| l.read().unwrap().iter().map(str::to_owned).collect::<Vec<_>>())
    };
    checkpoint.tensors.iter().map(read).collect()
}

/// The files of a folder that are text, with their bytes.
fn texts(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files
        .filter(|path| !name(path).ends_with(".h5"))
        .map(|path| (name(&path), fs::read(path).unwrap()))
        .collect()
}

/// Folders of a set whose names begin so.
fn folders(set: &str, prefix: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(golden(set)).unwrap().map(|entry| entry.unwrap().path());
    let named =
        |path: &PathBuf| path.is_dir() && path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let mut found: Vec<_> = all.filter(named).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn checkpoints_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for path in SETS.iter().flat_map(|set| folders(set, "ckpt_")) {
        let truth = open(&path);
        let target = dir.path().join("written");
        let losses = write(&truth, &target, &PlanOptions::default());
        assert!(losses.is_empty(), "{path:?}: {losses:?}");
        let again = open(&target);
        assert_eq!(content(&again), content(&truth), "{path:?}");
        assert_eq!(metadata(&again), metadata(&truth), "{path:?}");
        assert_eq!(texts(&target), texts(&path), "{path:?}");
        count += 1;
    }
    assert!(count >= 12);
}

#[test]
fn the_version_file_is_written_last() {
    let plan = plan(&open(golden("set1/ckpt_std_zip")), &PlanOptions::default());
    assert_eq!(plan.files.last().unwrap().name, "checkpoint_version.txt");
    assert_eq!(plan.files.iter().filter(|f| f.name.starts_with("embeddings_")).count(), 10);
}

#[test]
fn tables_are_cut_into_any_partitions_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let truth = open(golden("set1/ckpt_std_zip"));
    let rows = truth.tensor("embeddings.user").unwrap().shape.dims()[0];
    for parts in [1, 2, 3, 7, rows + 5] {
        let wanted = format!("user:{parts},item:{parts}");
        let target = dir.path().join("cut");
        let losses = write(&truth, &target, &options(None, &[("partitions", &wanted)]));
        // Its entities are in another folder, and are to be split as well.
        assert_eq!(losses, ["names-left-out"; 2]);
        let cut = open(&target);
        let files = fs::read_dir(&target).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
        assert_eq!(files.filter(|f| f.starts_with("embeddings_user_")).count() as u64, parts);
        assert_eq!(content(&cut), content(&truth), "{parts}");
        let config = fs::read_to_string(target.join("config.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(json["entities"]["user"]["num_partitions"], parts);
        assert_eq!(json["entities"]["country"]["num_partitions"], 1);
        let Some(Value::Map(attributes)) = cut.metadata.get("attributes") else { panic!() };
        assert!(attributes.iter().any(|(_, v)| *v == Value::Text(config.clone())));
        let back = dir.path().join("back");
        write(&cut, &back, &options(None, &[("partitions", "user:4,item:4"), ("version", "9")]));
        let back = open(&back);
        assert_eq!(content(&back), content(&truth));
        assert_eq!(back.metadata.get("version"), Some(&Value::U64(9)));
        assert_eq!(back.metadata.get("partitions"), truth.metadata.get("partitions"));
    }
    let bad = options(None, &[("partitions", "nobody:2")]);
    assert_eq!(
        registry().by_id("biggraph").unwrap().plan(&truth, &bad).unwrap_err().code().as_str(),
        "no-such-type"
    );
}

#[test]
fn single_files_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    for set in SETS {
        let folder = golden(set).join("ckpt_std_zip");
        for name in ["embeddings_user_1.v6.h5", "embeddings_tag_0.v6.h5", "model.v6.h5", "config.json"] {
            let truth = open(folder.join(name));
            let target = dir.path().join(name);
            assert_eq!(write(&truth, &target, &PlanOptions::default()), Vec::<&str>::new());
            let again = open(&target);
            assert_eq!(content(&again), content(&truth), "{name}");
            assert_eq!(metadata(&again), metadata(&truth), "{name}");
        }
    }
}

#[test]
fn an_init_path_keeps_its_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let truth = open(golden("set1/init_v0_f64"));
    let target = dir.path().join("init");
    write(&truth, &target, &PlanOptions::default());
    let again = open(&target);
    assert_eq!((again.kind, content(&again)), ("init", content(&truth)));
    assert!(!target.join("checkpoint_version.txt").exists());
    assert_eq!(again.metadata.get("partitions"), truth.metadata.get("partitions"));
}

#[test]
fn edges_come_back_as_they_were_in_small_files() {
    let dir = tempfile::tempdir().unwrap();
    for set in SETS {
        for name in ["std/edges", "weighted/edges", "dyn/train", "dyn/valid", "feat/edges"] {
            let truth = open(golden(set).join(name));
            let target = dir.path().join("edges");
            assert_eq!(write(&truth, &target, &PlanOptions::default()), Vec::<&str>::new());
            let again = open(&target);
            assert_eq!(content(&again), content(&truth), "{name}");
            for file in fs::read_dir(&target).unwrap() {
                let path = file.unwrap().path();
                let elements: u64 = open(&path).tensors.iter().map(TensorEntry::elements).sum();
                assert!(fs::metadata(&path).unwrap().len() < 8 * elements + 4096, "{path:?}");
                let lone = dir.path().join("lone.h5");
                write(&open(&path), &lone, &PlanOptions::default());
                assert_eq!(content(&open(&lone)), content(&open(&path)));
            }
        }
    }
}

#[test]
fn edges_move_into_other_partitions_and_back() {
    let dir = tempfile::tempdir().unwrap();
    for (name, config, entities) in [
        ("set1/std/edges", "set1/ckpt_std_zip/config.json", "set1/std/entities"),
        ("set1/dyn/train", "set1/ckpt_dyn_affine/config.json", "set1/dyn/entities"),
        ("set2/feat/edges", "set2/ckpt_feat/config.json", "set2/feat/entities"),
    ] {
        let truth = open_with(golden(name), &knowing(Some(golden(config)), Some(golden(entities))));
        // Straight to seven partitions, or by way of others: the same edges in each bucket.
        let seven = Partitions::parse("7").unwrap();
        let straight = sorted_edges(&edges::repartition(&truth, &seven).unwrap());
        assert_eq!(straight.len(), sorted_edges(&truth).len());
        for parts in ["3", "5", "17"] {
            let target = dir.path().join("moved");
            write(&truth, &target, &options(None, &[("partitions", parts)]));
            let count: usize = parts.parse().unwrap();
            let sides = if name.contains("feat") { count } else { count * count };
            assert_eq!(fs::read_dir(&target).unwrap().count(), sides, "{name}");
            let moved = edges::repartition(&truth, &Partitions::parse(parts).unwrap()).unwrap();
            let mut again = open(&target);
            assert_eq!(content(&again), content(&moved));
            again.metadata = moved.metadata.clone();
            assert_eq!(
                sorted_edges(&edges::repartition(&again, &seven).unwrap()),
                straight,
                "{name} {parts}"
            );
        }
    }
}

/// Every edge: its bucket, its ids and its relation.
fn sorted_edges(checkpoint: &Checkpoint) -> Vec<(String, i64, i64, i64)> {
    let mut all = Vec::new();
    for rel in checkpoint.tensors.iter().filter(|t| t.path.parts()[1] == Name::from("rel")) {
        let bucket = rel.path.parts()[0].to_text();
        let column = |name: &str| -> Vec<i64> {
            let entry = checkpoint.tensor(&format!("{bucket}.{name}")).unwrap();
            assert_eq!(entry.dtype(), DType::I64);
            let bytes = entry.read_tensor(Order::Row).unwrap();
            bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()
        };
        let (lhs, rhs, rel) = (column("lhs"), column("rhs"), column("rel"));
        all.extend((0..rel.len()).map(|i| (bucket.clone(), lhs[i], rhs[i], rel[i])));
    }
    all.sort();
    all
}

#[test]
fn counts_and_names_are_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for set in SETS {
        for name in ["std/entities", "weighted/entities", "dyn/entities", "feat/entities"] {
            let path = golden(set).join(name);
            let truth = open(&path);
            let target = dir.path().join("entities");
            write(&truth, &target, &PlanOptions::default());
            assert_eq!(texts(&target), texts(&path), "{path:?}");
            let cut = dir.path().join("cut");
            write(&truth, &cut, &options(None, &[("partitions", "5")]));
            let cut = open(&cut);
            assert_eq!(names(&cut), names(&truth));
            if name.starts_with("feat") {
                // Made by hand, with 9 and 10 rows: dealt out anew they are 10 and 9.
                continue;
            }
            let old = if name.starts_with("std") { "4" } else { "2" };
            write(&cut, &target, &options(None, &[("partitions", old)]));
            assert_eq!(texts(&target), texts(&path), "{path:?} and back");
        }
    }
}

/// A table from elsewhere.
fn table(path: &str, dtype: DType, rows: u64, columns: u64, named: bool) -> Checkpoint {
    let mut made = Checkpoint::new("npy", "array", "vectors.npy");
    let numbers = 0..rows * columns;
    let bytes: Vec<u8> = match dtype {
        DType::F64 => numbers.flat_map(|n| (n as f64 / 3.0).to_le_bytes()).collect(),
        _ => numbers.flat_map(|n| (n as f32 / 3.0).to_le_bytes()).collect(),
    };
    let source: SourceRef = std::sync::Arc::new(MemorySource::new("vectors.npy", bytes));
    let path = TensorPath::from_dotted(path);
    let mut entry =
        TensorEntry::dense(path, dtype, Shape::from([rows, columns]), &source, 0, Encoding::ROW).unwrap();
    if named {
        let names: Vec<String> = (0..rows).map(|row| format!("süß {row}")).collect();
        let list: RowNameList = names.iter().map(String::as_str).collect();
        entry.row_names = Some(MemoryRowNames::shared("names", list));
    }
    made.tensors.push(entry);
    made
}

#[test]
fn a_foreign_table_becomes_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("made");
    let vectors = table("value", DType::F64, 10, 4, true);
    let wanted =
        options(Some("checkpoint"), &[("type", "user"), ("partitions", "user:3"), ("entities", "yes")]);
    let losses = write(&vectors, &target, &wanted);
    assert_eq!(losses, ["config-made", "rounding"]);
    let made = open(&target);
    let rows = made.tensor("embeddings.user").unwrap();
    assert_eq!((rows.dtype(), rows.shape.dims()), (DType::F32, &[10, 4][..]));
    let expected: Vec<u8> = (0..40).flat_map(|n| ((f64::from(n) / 3.0) as f32).to_le_bytes()).collect();
    assert_eq!(rows.read_tensor(Order::Row).unwrap(), expected);
    assert_eq!(rows.role, Role::Embedding);
    assert_eq!(rows.row_names.as_ref().unwrap().read().unwrap().get(9), Some("süß 9"));
    assert_eq!(made.metadata.get("version"), Some(&Value::U64(1)));
    assert_eq!(fs::read(target.join("entity_count_user_0.txt")).unwrap(), b"4\n");
    assert_eq!(fs::read(target.join("entity_count_user_2.txt")).unwrap(), b"3\n");
    let names = fs::read_to_string(target.join("entity_names_user_2.json")).unwrap();
    assert_eq!(
        names,
        "[\n    \"s\\u00fc\\u00df 7\",\n    \"s\\u00fc\\u00df 8\",\n    \"s\\u00fc\\u00df 9\"\n]"
    );
    // The same folder serves as the folder of entities that upstream asks for.
    assert_eq!(fs::read(target.join("dynamic_rel_names.json")).unwrap(), b"[\n    \"relation\"\n]");

    let init = dir.path().join("init");
    let losses = write(&vectors, &init, &options(Some("init"), &[("type", "user")]));
    assert_eq!(losses, ["names-left-out"]);
    let files: Vec<_> = fs::read_dir(&init).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(files, ["embeddings_user_0.v0.h5"]);
    assert_eq!(open(&init).tensor("embeddings.user").unwrap().dtype(), DType::F64);
}

#[test]
fn tables_without_rows_and_more_partitions_than_rows() {
    let dir = tempfile::tempdir().unwrap();
    for rows in [0, 1, 2] {
        let target = dir.path().join("few");
        let few = table("user", DType::F32, rows, 3, true);
        write(&few, &target, &options(None, &[("partitions", "user:4"), ("entities", "yes")]));
        let made = open(&target);
        let table = made.tensor("embeddings.user").unwrap();
        assert_eq!(table.shape.dims(), [rows, 3]);
        assert_eq!(table.read_tensor(Order::Row).unwrap(), few.tensors[0].read_tensor(Order::Row).unwrap());
        let Some(Value::Map(parts)) = made.metadata.get("partitions") else { panic!() };
        assert!(matches!(&parts[0], (_, Value::List(counts)) if counts.len() == 4));
    }
}

#[test]
fn a_companion_configuration_is_kept_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(golden("set1/ckpt_weighted/config.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let columns = json["dimension"].as_u64().unwrap();
    let name = json["entities"].as_object().unwrap().keys().next().unwrap().clone();
    let mut vectors = table(&name, DType::F32, 9, columns, false);
    vectors.metadata.set("config", Value::Text(text.clone()));
    let target = dir.path().join("made");
    assert_eq!(write(&vectors, &target, &PlanOptions::default()), Vec::<&str>::new());
    assert_eq!(fs::read_to_string(target.join("config.json")).unwrap(), text);
    let made = open(&target);
    let Some(Value::Map(attributes)) = made.metadata.get("attributes") else { panic!() };
    let names: Vec<_> = attributes.iter().map(|(name, _)| name.to_text()).collect();
    for name in ["format_version", "config/json", "iteration/num_epochs", "iteration/edge_path"] {
        assert!(names.iter().any(|own| own == name), "{names:?}");
    }
    let fails = |vectors: &Checkpoint, wanted: &PlanOptions| {
        registry().by_id("biggraph").unwrap().plan(vectors, wanted).unwrap_err().code().as_str()
    };
    assert_eq!(fails(&vectors, &options(None, &[("type", "stranger")])), "no-such-type");
    let mut narrow = table(&name, DType::F32, 9, columns + 1, false);
    narrow.metadata = vectors.metadata.clone();
    assert_eq!(fails(&narrow, &PlanOptions::default()), "dimension-differs");
    assert_eq!(fails(&narrow, &options(None, &[("version", "0")])), "dimension-differs");
    assert_eq!(fails(&vectors, &options(None, &[("version", "0")])), "bad-setting");
    assert_eq!(fails(&vectors, &options(None, &[("entities", "maybe")])), "bad-setting");
    assert_eq!(fails(&vectors, &options(Some("nonsense"), &[])), "unknown-kind");
    assert_eq!(fails(&Checkpoint::default(), &PlanOptions::default()), "no-tables");
    assert_eq!(fails(&table("", DType::F32, 1, 1, false), &PlanOptions::default()), "bad-type-name");
}

#[test]
fn unsupported_content_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let mut vectors = table("user", DType::F32, 3, 2, false);
    let mut more = vectors.tensors[0].clone();
    more.path = TensorPath::from_dotted("extra");
    more.shape = Shape::from([6]);
    let mut state = vectors.tensors[0].clone();
    state.role = Role::OptimizerState { slot: Name::from("exp_avg") };
    vectors.tensors.extend([more, state]);
    let losses = write(&vectors, &dir.path().join("made"), &PlanOptions::default());
    assert_eq!(losses, ["config-made", "no-place", "state-slot"]);
}

#[test]
fn weights_and_ids_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = Checkpoint::new("npz", "archive", "edges.npz");
    let mut add = |name: &str, dtype: DType, bytes: Vec<u8>| {
        let rows = (bytes.len() / dtype.size().unwrap()) as u64;
        let source: SourceRef = std::sync::Arc::new(MemorySource::new("edges.npz", bytes));
        let path = TensorPath::from_dotted(name);
        let entry = TensorEntry::dense(path, dtype, Shape::from([rows]), &source, 0, Encoding::ROW);
        made.tensors.push(entry.unwrap());
    };
    add("lhs", DType::U8, vec![1, 2, 3]);
    add("rhs", DType::I32, [1i32, -1, 7].iter().flat_map(|n| n.to_le_bytes()).collect());
    add("rel", DType::U8, vec![0, 0, 0]);
    add("weight", DType::F32, [0.5f32, 2.999, -1.5].iter().flat_map(|n| n.to_le_bytes()).collect());
    let types = |settings: &[(&str, &str)]| {
        let target = dir.path().join("edges.h5");
        let losses = write(&made, &target, &options(Some("edges"), settings));
        let again = open(&target);
        let dtype = |name: &str| again.tensor(name).unwrap().dtype();
        let weights = again.tensor("weight").unwrap().read_tensor(Order::Row).unwrap();
        (dtype("lhs"), dtype("rhs"), dtype("weight"), weights, losses)
    };
    let (lhs, rhs, weight, bytes, losses) = types(&[]);
    assert_eq!((lhs, rhs, weight, losses.len()), (DType::I64, DType::I64, DType::F32, 0));
    assert_eq!(bytes[..4], 0.5f32.to_le_bytes());
    let (lhs, rhs, weight, bytes, losses) = types(&[("ids", "stored"), ("weights", "truncated")]);
    assert_eq!((lhs, rhs, weight), (DType::U8, DType::I32, DType::I64));
    assert_eq!(bytes, [0i64, 2, -1].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!(losses, ["weights-truncated"]);
}

#[test]
fn relation_names_are_written_with_the_entities() {
    let dir = tempfile::tempdir().unwrap();
    for (checkpoint, graph) in [
        ("set1/ckpt_dyn_complex_diagonal", "set1/dyn/entities"),
        ("set2/ckpt_dyn_affine", "set2/dyn/entities"),
        ("set1/ckpt_std_zip", "set1/std/entities"),
    ] {
        let truth = golden(graph);
        let found = open_with(golden(checkpoint), &knowing(None, Some(truth.clone())));
        let target = dir.path().join("entities");
        write(&found, &target, &options(Some("entities"), &[]));
        assert_eq!(texts(&target), texts(&truth), "{checkpoint}");
        write(&found, &target, &options(None, &[("entities", "yes")]));
        for name in ["dynamic_rel_count.txt", "dynamic_rel_names.json"] {
            let (ours, theirs) = (fs::read(target.join(name)).ok(), fs::read(truth.join(name)).ok());
            assert_eq!(ours, theirs, "{checkpoint}: {name}");
        }
    }
}

/// What a folder says otherwise than a table from elsewhere did.
#[test]
fn changed_content_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let losses = |vectors: &Checkpoint| write(vectors, &dir.path().join("made"), &PlanOptions::default());
    assert_eq!(losses(&table("user", DType::F32, 3, 2, false)), ["config-made"]);
    let mut vectors = table("model.user", DType::F32, 3, 2, false);
    assert_eq!(losses(&vectors), ["config-made", "name-changed"]);
    vectors.metadata.set("epoch", Value::U64(3));
    vectors.tensors[0].attributes.insert("seen".into(), Value::Bool(true));
    assert_eq!(losses(&vectors), ["metadata-dropped", "attribute-dropped", "config-made", "name-changed"]);
    let mut buffer = table("embeddings.user", DType::F32, 3, 2, false);
    buffer.tensors[0].role = Role::Buffer;
    assert_eq!(losses(&buffer), ["config-made", "name-changed"]);
    // All values of f16 are values of f32, but the tensor has no longer the type f16.
    let mut halves = table("user", DType::F32, 3, 2, false);
    halves.tensors[0] = TensorEntry::dense(
        TensorPath::from_dotted("user"),
        DType::F16,
        Shape::from([3, 2]),
        &(std::sync::Arc::new(MemorySource::new("halves.npy", vec![0; 12])) as SourceRef),
        0,
        Encoding::ROW,
    )
    .unwrap();
    assert_eq!(losses(&halves), ["config-made", "dtype-lost"]);
}
