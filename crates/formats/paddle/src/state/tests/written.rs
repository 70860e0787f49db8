//! Written states are identical to those of Paddle.

use super::odd::floats;
use super::*;
use weighbridge_core::checkpoint::{Rename, Selection};

#[test]
fn round_trips_golden_states() {
    let mut compared = 0;
    for name in states() {
        if name.contains("py2_pickle") || name.contains("split_big_param") {
            continue;
        }
        let bytes = golden(&name);
        let checkpoint = open(&bytes).unwrap();
        let plan = plan(&checkpoint, &PlanOptions::default()).unwrap();
        assert_eq!(plan.losses, [], "{name}");
        let again = materialise(&plan).remove(0);
        let differ = again.iter().zip(&bytes).position(|(a, b)| a != b);
        assert!(again == bytes, "{name} differs at {differ:?}, {} and {} bytes", again.len(), bytes.len());
        compared += 1;
    }
    assert!(compared >= 40, "{compared}");
}

/// With a given structure, any checkpoint of the tensors is written like the original state.
#[test]
fn structure_suffices_to_write_a_state() {
    for name in ["p262/nested_ckpt/ckpt_p4.pdckpt", "p262/cnn_state_dict/m_p4.pdparams"] {
        let bytes = golden(name);
        let opened = open(&bytes).unwrap();
        let structure = state_structure(&opened).unwrap();
        let mut made = opened.clone();
        made.metadata.set(STRUCTURE, structure);
        assert!(rewrite(&made, &[]) == bytes, "{name}");
        made.origin = None;
        assert_eq!(state_structure(&made), None, "{name}");
    }
}

#[test]
fn converts_between_protocols() {
    let mut compared = 0;
    let names = states();
    for from in &names {
        let Some(at) = ["_p2.", "_p3.", "_p4."].iter().find_map(|p| from.find(p)) else { continue };
        let checkpoint = open(&golden(from)).unwrap();
        for protocol in ["2", "3", "4"] {
            let mut to = from.clone();
            to.replace_range(at + 2..at + 3, protocol);
            if names.contains(&to) {
                assert!(rewrite(&checkpoint, &[("protocol", protocol)]) == golden(&to), "{from} to {to}");
                compared += 1;
            }
        }
    }
    let alone = open(&golden("p331/nested_ckpt/tensor_p2.pdtensor")).unwrap();
    assert!(rewrite(&alone, &[("protocol", "4")]) == golden("p331/nested_ckpt/tensor.pdtensor"));
    let alone = open(&golden("p262/nested_ckpt/tensor.pdtensor")).unwrap();
    assert!(rewrite(&alone, &[("protocol", "2")]) == golden("p262/nested_ckpt/tensor_p2.pdtensor"));
    assert!(compared > 40, "{compared}");
}

#[test]
fn numpy_setting_changes_module_names_only() {
    for (old, new) in
        [("p262/master_weights/lin_p4.pdparams", "2"), ("p331/master_weights/lin_p4.pdparams", "1")]
    {
        let checkpoint = open(&golden(old)).unwrap();
        let other = open(&rewrite(&checkpoint, &[("numpy", new)])).unwrap();
        assert_eq!(other.metadata.get(NUMPY), Some(&Value::U32(new.parse().unwrap())));
        assert_eq!(rewrite(&other, &[("numpy", if new == "2" { "1" } else { "2" })]), golden(old));
    }
}

#[test]
fn splits_large_arrays_like_paddle() {
    for era in ["p262", "p331"] {
        let bytes = golden(&format!("{era}/split_big_param/big.pdparams"));
        let checkpoint = open(&bytes).unwrap();
        // The limit with which the file was made: 15 floats or 7 integers of 8 bytes.
        let split = write::plan_split(&checkpoint, &PlanOptions::default(), 63).unwrap();
        assert!(materialise(&split).remove(0) == bytes, "{era}");
        let whole = open(&rewrite(&checkpoint, &[])).unwrap();
        assert_eq!(
            whole.tensors.iter().map(sha256).collect::<Vec<_>>(),
            checkpoint.tensors.iter().map(sha256).collect::<Vec<_>>()
        );
        // Protocol 4 stores them in one piece.
        let four = write::plan_split(&checkpoint, &settings(&[("protocol", "4")]), 63).unwrap();
        let four = open(&materialise(&four).remove(0)).unwrap();
        assert!(four.tensors.iter().all(|t| t.extents[0].source.label() == "m"));
        let split = write::plan_split(&four, &settings(&[("protocol", "2")]), 63).unwrap();
        assert!(materialise(&split).remove(0) == bytes, "{era} by way of protocol 4");
    }
}

#[test]
fn split_parts_are_row_major_after_casts() {
    let mut checkpoint = open(&golden("p262/nested_ckpt/numpy_dict.pd")).unwrap();
    checkpoint.tensors.retain(|t| t.text() == "fortran");
    let rows = checkpoint.tensors[0].read_tensor(Order::Row).unwrap();
    for protocol in ["2", "3"] {
        let split = write::plan_split(&checkpoint, &settings(&[("protocol", protocol)]), 8).unwrap();
        let again = open(&materialise(&split).remove(0)).unwrap();
        assert_eq!(again.tensors[0].read_tensor(Order::Row).unwrap(), rows);
        assert_eq!(again.tensors[0].order(), Order::Row);
    }
    checkpoint.tensors[0].cast = Some(weighbridge_core::tensor::DType::F64.into());
    let split = write::plan_split(&checkpoint, &settings(&[("protocol", "2")]), 16).unwrap();
    let again = open(&materialise(&split).remove(0)).unwrap();
    let cast = checkpoint.tensors[0].read_tensor(Order::Row).unwrap();
    assert_eq!(again.tensors[0].read_tensor(Order::Row).unwrap(), cast);
}

/// A checkpoint as a combined file with the names of variables gives it.
fn of_variables(state: &Checkpoint) -> Checkpoint {
    let mut checkpoint = Checkpoint::new("paddle", "combined", "model.pdiparams");
    checkpoint.tensors = state.tensors.clone();
    checkpoint
}

#[test]
fn builds_a_state_from_variables() {
    for (file, era) in
        [("p262/cnn_static_train/train.pdparams", "1"), ("p331/cnn_pir_train/train.pdparams", "2")]
    {
        let bytes = golden(file);
        let variables = of_variables(&open(&bytes).unwrap());
        assert!(rewrite(&variables, &[("numpy", era)]) == bytes, "{file}");
    }
    // With the names of the layer as well, it equals the result of Layer.state_dict.
    let bytes = golden("p262/cnn_state_dict/m_p2.pdparams");
    let variables = of_variables(&open(&bytes).unwrap());
    assert!(rewrite(&variables, &[("protocol", "2")]) == bytes);
    let bytes = golden("p331/master_weights/lin_p2.pdopt");
    let variables = of_variables(&open(&bytes).unwrap());
    assert!(rewrite(&variables, &[("protocol", "2"), ("numpy", "2")]) == bytes);
}

#[test]
fn round_trips_states_through_safetensors() {
    for name in [
        "p262/cnn_state_dict/m_p4.pdopt",
        "p331/nested_ckpt/ckpt_p2.pdckpt",
        "p262/master_weights/lin_p2.pdopt",
    ] {
        let bytes = golden(name);
        let checkpoint = open(&bytes).unwrap();
        let target = weighbridge::formats::registry().by_id("safetensors").unwrap();
        let bridge = target.plan(&checkpoint, &PlanOptions::default()).unwrap();
        let source = memory(materialise(&bridge).remove(0));
        let mut back = weighbridge::formats::registry().open_source(source, &OpenOptions::default()).unwrap();
        assert_eq!(back.notes, [], "{name}");
        assert!(is_state(&back));
        back.label = "back".into();
        assert!(rewrite(&back, &[]) == bytes, "{name}");
    }
}

#[test]
fn inserts_changed_tensors_at_their_path() {
    let mut checkpoint = open(&golden("p262/nested_ckpt/ckpt_p4.pdckpt")).unwrap();
    checkpoint.rename(&[Rename::parse("model.conv1=model.first").unwrap()]).unwrap();
    checkpoint.select(&Selection::new(&[], &["opt.*moment2*".into(), "hist*".into()]).unwrap()).unwrap();
    let again = open(&rewrite(&checkpoint, &[])).unwrap();
    let weight = again.tensor("model.first.weight").unwrap();
    assert_eq!(weight.text_attribute(Attributes::VARIABLE_NAME), Some("conv2d_0.w_0"));
    assert!(again.tensor("model.conv1.weight").is_err());
    assert!(again.tensor("hist.1").is_err());
    assert!(again.tensor("opt.conv2d_0.w_0/moment1_0").is_ok());
    assert_eq!(again.tensors.len(), checkpoint.tensors.len());

    let mut flat = open(&golden("p262/cnn_state_dict/m_p4.pdopt")).unwrap();
    flat.rename(&[Rename::parse("conv2d_0=first").unwrap()]).unwrap();
    let again = open(&rewrite(&flat, &[])).unwrap();
    assert_eq!(key_of(again.tensor("first.w_0/moment1_0").unwrap()), "first.w_0_moment1_0");
    assert!(again.metadata.get("LR_Scheduler").is_some());

    let mut alone = open(&golden("p262/nested_ckpt/tensor.pdtensor")).unwrap();
    alone.rename(&[Rename::parse("one_tensor=other").unwrap()]).unwrap();
    assert_eq!(open(&rewrite(&alone, &[])).unwrap().tensors[0].text(), "other");
}

#[test]
fn reports_losses() {
    let mut checkpoint = open(&golden("p262/cnn_state_dict/m_p4.pdparams")).unwrap();
    checkpoint.tensors.truncate(2);
    checkpoint.tensors[0].attributes.insert("lod".into(), Value::List(vec![]));
    let source = memory([1, 0x80]);
    let shape = weighbridge_core::tensor::Shape::from([2]);
    let (dtype, encoding) =
        (weighbridge_core::tensor::DType::F8E4M3, weighbridge_core::tensor::Encoding::ROW);
    checkpoint.tensors[1] = TensorEntry::dense(
        weighbridge_core::checkpoint::TensorPath::value(),
        dtype,
        shape,
        &source,
        0,
        encoding,
    )
    .unwrap();
    let losses = plan(&checkpoint, &PlanOptions::default()).unwrap().losses;
    let codes: Vec<_> = losses.iter().map(|l| l.code.as_str()).collect();
    assert_eq!(codes, ["attribute-dropped", "dtype-lost"]);
    let again = open(&rewrite(&checkpoint, &[])).unwrap();
    assert_eq!(again.tensors[1].dtype(), weighbridge_core::tensor::DType::I8);
    assert_eq!(again.tensors[1].read_tensor(Order::Row).unwrap(), [1, 0x80]);
    checkpoint.tensors[1].cast = Some(weighbridge_core::tensor::DType::F8E8M0.into());
    assert_eq!(plan(&checkpoint, &PlanOptions::default()).unwrap_err().code().as_str(), "no-such-dtype");
    checkpoint.tensors.truncate(1);
    for (name, value) in [("protocol", "5"), ("numpy", "3")] {
        assert_eq!(
            plan(&checkpoint, &settings(&[(name, value)])).unwrap_err().code().as_str(),
            "bad-setting"
        );
    }
    assert_eq!(
        plan(&checkpoint, &PlanOptions::of_kind("combined")).unwrap_err().code().as_str(),
        "unknown-kind"
    );
}

/// Parameters by the names of the structure and state by those of variables, in one dict: `{0.weight, w_0_moment1_0,
/// master_weights: {w_0}}`, with a table of names or with a name beside each array; within `below`, where it is given.
fn one_dict_of_both(table: bool, below: Option<&str>) -> Vec<u8> {
    pickled(
        |b| {
            let mut pairs = Vec::new();
            let key = b.text("0.weight")?;
            let (name, array) = (b.text("w_0")?, floats(b, 1)?);
            let names = b.dict(vec![(key, name)])?;
            pairs.push((key, if table { array } else { b.tuple(&[name, array])? }));
            for (n, key) in ["w_0_moment1_0", "w_0_fp32_master_0_moment2_0"].into_iter().enumerate() {
                let (key, name) = (b.text(key)?, b.text(key)?);
                let array = floats(b, u8::try_from(n + 2).unwrap())?;
                pairs.push((key, if table { array } else { b.tuple(&[name, array])? }));
            }
            if table {
                let key = b.text(TABLE)?;
                pairs.push((key, names));
            } else {
                let (key, name) = (b.text("w_0")?, b.text("fp32_master_0")?);
                let array = floats(b, 4)?;
                let copy = b.tuple(&[name, array])?;
                let (masters, copies) = (b.text("master_weights")?, b.dict(vec![(key, copy)])?);
                pairs.push((masters, copies));
            }
            let whole = b.dict(pairs)?;
            let Some(below) = below else { return Ok(whole) };
            let below = b.text(below)?;
            b.dict(vec![(below, whole)])
        },
        4,
    )
}

#[test]
fn names_state_after_its_parameter_in_the_same_dict() {
    let names = |c: &Checkpoint| c.tensors.iter().map(TensorEntry::text).collect::<Vec<_>>();
    for (table, below, prefix) in [(true, None, ""), (false, None, ""), (false, Some("ckpt"), "ckpt.")] {
        let bytes = one_dict_of_both(table, below);
        let mut checkpoint = open(&bytes).unwrap();
        let name = |path: &str| format!("{prefix}{path}");
        let mut wanted =
            vec![name("0.weight"), name("0.weight/moment1_0"), name("0.weight/fp32_master_0_moment2_0")];
        wanted.extend((!table).then(|| name("0.weight/master_weights")));
        assert_eq!(names(&checkpoint), wanted);
        assert!(rewrite(&checkpoint, &[]) == bytes, "{table} {below:?}");
        // The tensor has the new name, and is written under the keys that Paddle expects.
        checkpoint.rename(&[Rename::parse(&format!("{prefix}0={prefix}first")).unwrap()]).unwrap();
        assert_eq!(plan(&checkpoint, &PlanOptions::default()).unwrap().losses, []);
        let again = open(&rewrite(&checkpoint, &[])).unwrap();
        let renamed: Vec<String> = wanted.iter().map(|name| name.replace("0.w", "first.w")).collect();
        let mut found = names(&again);
        found.sort_by_key(|name| renamed.iter().position(|wanted| wanted == name));
        assert_eq!(found, renamed);
        for state in again.tensors.iter().filter(|t| t.role.slot().is_some()) {
            assert_eq!(
                state.text_attribute(weighbridge_core::checkpoint::Attributes::PARAMETER_VARIABLE),
                Some("w_0")
            );
        }
    }
}

#[test]
fn rejects_reserved_keys() {
    let refused = |checkpoint: &Checkpoint| -> (String, Option<String>) {
        let error = plan(checkpoint, &PlanOptions::default()).unwrap_err();
        assert_eq!(error.code().as_str(), "reserved-name");
        (error.found_text().unwrap().to_owned(), error.tensor().map(str::to_owned))
    };
    for key in [split::INFO, TABLE] {
        let rename = |file: &str, from: &str| {
            let mut checkpoint = open(&golden(file)).unwrap();
            checkpoint.rename(&[Rename::parse(&format!("{from}={key}")).unwrap()]).unwrap();
            checkpoint
        };
        let mut checkpoint = rename("p262/cnn_state_dict/m_p4.pdparams", "conv1.weight");
        assert_eq!(refused(&checkpoint), (key.to_owned(), Some(key.to_owned())));
        // From another format, and with a structure.
        checkpoint.origin = None;
        checkpoint.metadata = weighbridge_core::checkpoint::Metadata::default();
        checkpoint.metadata.set(NAME_TABLE, Value::Bool(false));
        assert_eq!(refused(&checkpoint).1, Some(key.to_owned()));
        let nested = rename("p262/nested_ckpt/ckpt_p4.pdckpt", "model.conv1.weight");
        assert_eq!(refused(&nested).1, Some(key.to_owned()));
        let mut below = rename("p262/nested_ckpt/ckpt_p4.pdckpt", "model.conv1.weight");
        below.rename(&[Rename::parse(&format!("{key}=model.{key}")).unwrap()]).unwrap();
        assert!(open(&rewrite(&below, &[])).unwrap().tensor(&format!("model.{key}")).is_ok());
        // Other values.
        let mut recorded = open(&golden("p262/cnn_state_dict/m_p4.pdopt")).unwrap();
        recorded.metadata.set(key, Value::Text("x".into()));
        assert_eq!(refused(&recorded), (key.to_owned(), None));
        recorded.metadata.set(key, Value::Map(vec![]));
        recorded.metadata.set(NAME_TABLE, Value::Bool(false));
        assert!(open(&rewrite(&recorded, &[])).is_ok());
    }
}

#[test]
fn rejects_part_keys_in_use() {
    let mut checkpoint = open(&golden("p262/split_big_param/big.pdparams")).unwrap();
    let split = |checkpoint: &Checkpoint| write::plan_split(checkpoint, &PlanOptions::default(), 63);
    assert!(split(&checkpoint).is_ok());
    let large = checkpoint.tensors.iter().find(|t| t.bytes() > 63).unwrap().text();
    let small = checkpoint.tensors.iter().find(|t| t.bytes() <= 63).unwrap().text();
    checkpoint
        .rename(&[Rename::parse(&format!("{small}=[\"{}\"]", split::part_name(&large, 0))).unwrap()])
        .unwrap();
    let error = split(&checkpoint).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("name-collision", Some(large.as_str())));
    assert!(plan(&checkpoint, &settings(&[("protocol", "4")])).is_ok());
}
