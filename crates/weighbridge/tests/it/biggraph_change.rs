//! Changed checkpoints, written as PyTorch-BigGraph files: everything else stays as it was.

use crate::support::biggraph::{golden, knowing, open, open_with, options};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weighbridge::checkpoint::{Name, Rename, Role, RowNameList, TensorPath, Value};
use weighbridge::engine::RunOptions;
use weighbridge::formats::biggraph::{AddEntities, InitEmbeddings, add_entities, init_embeddings};
use weighbridge::formats::{PlanOptions, registry};
use weighbridge::ops::save;
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Checkpoint, Limits, TensorEntry};

/// Writes `checkpoint` and returns the losses.
fn write(checkpoint: &Checkpoint, target: &Path, options: &PlanOptions) -> Vec<&'static str> {
    let plan =
        registry().by_id("biggraph").unwrap().plan(checkpoint, options).unwrap_or_else(|e| panic!("{e}"));
    save(&plan, target, true, &RunOptions::default()).unwrap();
    plan.losses.iter().map(|loss| loss.code.as_str()).collect()
}

/// Names, types and bits of all tensors.
fn content(checkpoint: &Checkpoint) -> Vec<(String, DType, Vec<u8>)> {
    let one = |t: &TensorEntry| (t.text(), t.dtype(), t.read_tensor(Order::Row).unwrap());
    let mut all: Vec<_> = checkpoint.tensors.iter().map(one).collect();
    all.sort();
    all
}

/// What the metadata `key` say of `name`.
fn said(checkpoint: &Checkpoint, key: &str, name: &str) -> Value {
    let Some(Value::Map(all)) = checkpoint.metadata.get(key) else { panic!("no {key}") };
    all.iter().find(|(own, _)| own.as_str() == Some(name)).map(|(_, value)| value.clone()).unwrap()
}

#[test]
fn new_entities_are_missing_from_existing_name_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut grown = open(golden("set1/ckpt_std_zip"));
    let new: RowNameList = ["new 0", "new 1", "new 2", "new 3", "new 4"].into_iter().collect();
    add_entities(&mut grown, "user", &new, 1).unwrap();
    let (alone, together) = (dir.path().join("alone"), dir.path().join("together"));
    assert_eq!(write(&grown, &alone, &PlanOptions::default()), ["names-left-out"]);
    assert!(write(&grown, &together, &options(None, &[("entities", "yes")])).is_empty());
    let again = open(&together);
    let names =
        |c: &Checkpoint| c.tensor("embeddings.user").unwrap().row_names.as_ref().unwrap().read().unwrap();
    assert_eq!(names(&again), names(&grown));
    assert_eq!(content(&again), content(&grown));
    assert_eq!(said(&again, "partitions", "user"), said(&grown, "partitions", "user"));
    let first = fs::read_to_string(together.join("entity_names_user_0.json")).unwrap();
    assert!(first.ends_with("\"new 0\",\n    \"new 1\"\n]"), "{first}");
}

#[test]
fn name_lists_have_no_empty_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("names");
    let read = |text: &str| {
        fs::write(&path, text).unwrap();
        AddEntities::read("user", &path, 0, &Limits::default())
            .map(|grow| grow.names.len())
            .map_err(|e| e.code().as_str())
    };
    assert_eq!(read("a\nb\n"), Ok(2));
    for bad in ["a\nb\n\n", "\na\n", "[\"a\", \"\"]"] {
        assert_eq!(read(bad), Err("empty-name"), "{bad:?}");
    }
}

#[test]
fn an_entity_folder_cannot_store_tables() {
    let dir = tempfile::tempdir().unwrap();
    let truth = open(golden("set1/ckpt_std_zip"));
    let losses = write(&truth, &dir.path().join("entities"), &options(Some("entities"), &[]));
    assert_eq!(losses.iter().filter(|code| **code == "no-place").count(), truth.tensors.len());
}

#[test]
fn generated_rows_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let config = golden("set1/ckpt_std_zip/config.json");
    let mut drawn = open_with(golden("set1/std/entities"), &knowing(Some(config), None));
    init_embeddings(&mut drawn, InitEmbeddings::default()).unwrap();
    let target = dir.path().join("init");
    write(&drawn, &target, &PlanOptions::default());
    let again = open(&target);
    assert_eq!((again.kind, again.tensors.len()), ("init", 4));
    assert_eq!(content(&again), content(&drawn));
}

#[test]
fn state_is_numbered_by_the_given_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let folder = golden("set1/ckpt_std_zip");
    let old = fs::read_to_string(folder.join("config.json")).unwrap();
    // Users and items have global embeddings of one shape, and now change places.
    let other = old.replace("\"user\": {", "\"?\": {").replace("\"item\": {", "\"user\": {");
    let other = other.replace("\"?\": {", "\"item\": {");
    let path = dir.path().join("other.json");
    fs::write(&path, &other).unwrap();
    let named = knowing(Some(path), None);
    let truth = open_with(&folder, &named);
    assert_ne!(content(&truth), content(&open(&folder)));
    for kind in ["checkpoint", "init", "model"] {
        let target = dir.path().join(kind);
        write(&truth, &target, &options(Some(kind), &[]));
        let model = |c: &Checkpoint| {
            let of_model = |name: &str| name.starts_with("relations") || name.starts_with("entities");
            content(c).into_iter().filter(|(name, ..)| of_model(name)).collect::<Vec<_>>()
        };
        assert!(model(&truth).iter().any(|(name, ..)| name == "entities.user.global_embedding/sum"));
        assert_eq!(model(&open_with(&target, &named)), model(&truth), "{kind}");
        let again = open(&target);
        assert_eq!(model(&again), model(&truth), "{kind}: the file says by which");
        assert_eq!(said(&again, "attributes", "config/json"), Value::Text(other.clone()));
    }
    assert_eq!(fs::read_to_string(dir.path().join("checkpoint/config.json")).unwrap(), other);
}

#[test]
fn a_renamed_table_keeps_its_partitions_and_options() {
    let dir = tempfile::tempdir().unwrap();
    let truth = open(golden("set1/ckpt_std_zip"));
    let renamed = renamed(truth.clone(), "embeddings.user=embeddings.person");
    let Value::Map(tables) = said(&truth, "optimizer", "embeddings") else { panic!() };
    let rate = tables.iter().find(|(name, _)| name.as_str() == Some("user")).unwrap().1.clone();
    let target = dir.path().join("init");
    // The names beside are those of users.
    assert_eq!(write(&renamed, &target, &options(Some("init"), &[])), ["names-left-out"]);
    let again = open(&target);
    assert_eq!(said(&again, "partitions", "person"), said(&truth, "partitions", "user"));
    let Value::Map(tables) = said(&again, "optimizer", "embeddings") else { panic!() };
    let own = tables.iter().find(|(name, _)| name.as_str() == Some("person")).unwrap().1.clone();
    assert_eq!(own, rate);
}

fn renamed(mut checkpoint: Checkpoint, rule: &str) -> Checkpoint {
    checkpoint.rename(&[Rename::parse(rule).unwrap()]).unwrap();
    checkpoint
}

#[test]
fn renamed_tables_grow_within_their_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let truth = open(golden("set1/ckpt_std_zip"));
    let new: RowNameList = ["new 0", "new 1", "new 2", "new 3", "new 4"].into_iter().collect();
    let (mut plain, mut other) = (truth.clone(), renamed(truth, "embeddings.user=embeddings.person"));
    add_entities(&mut plain, "user", &new, 1).unwrap();
    add_entities(&mut other, "person", &new, 1).unwrap();
    write(&other, dir.path(), &options(Some("init"), &[("entities", "yes")]));
    let again = open(dir.path());
    assert_eq!(said(&again, "partitions", "person"), said(&plain, "partitions", "user"));
    let bits = |c: &Checkpoint, name: &str| c.tensor(name).unwrap().read_tensor(Order::Row).unwrap();
    assert_eq!(bits(&again, "embeddings.person"), bits(&plain, "embeddings.user"));
}

#[test]
fn renamed_types_of_entities_keep_their_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(golden("set1/ckpt_std_zip/config.json")).unwrap();
    let mut truth = open(golden("set1/std/entities"));
    truth.metadata.set("config", Value::Text(text.replace("\"user\"", "\"person\"")));
    let Value::List(counts) = said(&truth, "partitions", "user") else { panic!() };
    assert!(counts.len() > 1);
    let mut other = renamed(truth, "entities.user=entities.person");
    for kind in ["entities", "init"] {
        if kind == "init" {
            init_embeddings(&mut other, InitEmbeddings::default()).unwrap();
        }
        let target = dir.path().join(kind);
        write(&other, &target, &options(Some(kind), &[]));
        assert_eq!(said(&open(&target), "partitions", "person"), Value::List(counts.clone()), "{kind}");
    }
}

/// Two partitions of a row each, with sums where `step` is given.
fn two_parts(step: Option<Value>) -> Checkpoint {
    let mut made = Checkpoint::new("biggraph", "init", "made");
    let add = |path: &str, shape: Shape| {
        let source: SourceRef = Arc::new(MemorySource::new("made", vec![1; 16]));
        TensorEntry::dense(TensorPath::from_dotted(path), DType::F32, shape, &source, 0, Encoding::ROW)
            .unwrap()
    };
    let mut table = add("embeddings.user", Shape::from([2, 2]));
    table.role = Role::Embedding;
    made.tensors.push(table);
    if let Some(step) = step {
        let mut sum = add("embeddings.user", Shape::from([2]));
        sum.role = Role::OptimizerState { slot: Name::from("sum") };
        sum.attributes.insert("step".to_owned(), step);
        made.tensors.push(sum);
    }
    let counts = Value::List(vec![Value::U64(1), Value::U64(1)]);
    made.metadata.set("partitions", Value::Map(vec![(Name::from("user"), counts)]));
    made
}

#[test]
fn an_optimizer_step_stays_with_its_partition() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("init");
    let step = Value::List(vec![Value::Null, Value::I64(5)]);
    write(&two_parts(Some(step.clone())), &target, &options(Some("init"), &[]));
    let again = open(&target);
    let sum = again.tensors.iter().find(|t| t.role.slot().is_some()).unwrap();
    assert_eq!(sum.attributes.get("step"), Some(&step));
}

#[test]
fn options_of_a_stateless_optimizer_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let rate = Value::Map(vec![
        (Name::from("lr"), Value::F64(0.5f64.to_bits())),
        (Name::from("params"), Value::List(vec![Value::I64(0)])),
    ]);
    let blob = |empty: bool| {
        let mut all = vec![
            (Name::from("form"), Value::Text("zip".into())),
            (Name::from("param_groups"), Value::List(vec![rate.clone()])),
        ];
        all.extend(empty.then(|| (Name::from("empty"), Value::Bool(true))));
        Value::Map(all)
    };
    for empty in [true, false] {
        let mut made = two_parts(None);
        let tables = Value::Map(vec![(Name::from("user"), Value::List(vec![blob(empty), blob(empty)]))]);
        let optimizer = vec![(Name::from("model"), blob(empty)), (Name::from("embeddings"), tables)];
        made.metadata.set("optimizer", Value::Map(optimizer.clone()));
        let mut parameter = made.tensors[0].clone();
        parameter.path = TensorPath::from_dotted("entities.user.global_embedding");
        parameter.shape = Shape::from([4]);
        parameter.role = Role::Parameter;
        made.tensors.push(parameter);
        let target = dir.path().join("init");
        write(&made, &target, &options(Some("init"), &[]));
        let again = open(&target);
        // Without the mark it is state that was dropped on the way.
        let kept = again.metadata.get("optimizer") == Some(&Value::Map(optimizer));
        assert_eq!(kept, empty, "{:?}", again.metadata.get("optimizer"));
    }
}

#[test]
fn ids_converted_to_integers_are_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = Checkpoint::new("npz", "archive", "edges.npz");
    for (name, dtype) in [("lhs", DType::F64), ("rhs", DType::U64), ("rel", DType::U8)] {
        let source: SourceRef = Arc::new(MemorySource::new("edges.npz", vec![0; 16]));
        let path = TensorPath::from_dotted(name);
        made.tensors
            .push(TensorEntry::dense(path, dtype, Shape::from([2]), &source, 0, Encoding::ROW).unwrap());
    }
    let target = dir.path().join("edges.h5");
    assert_eq!(write(&made, &target, &options(Some("edges"), &[])), ["ids-changed"; 2]);
    assert!(write(&made, &target, &options(Some("edges"), &[("ids", "stored")])).is_empty());
    let both = options(Some("edges"), &[("ids", "stored"), ("partitions", "2")]);
    assert_eq!(
        registry().by_id("biggraph").unwrap().plan(&made, &both).unwrap_err().code().as_str(),
        "bad-setting"
    );
}
