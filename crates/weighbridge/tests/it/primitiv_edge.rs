//! Byte strings made by hand, valid and broken: the treatment of each, with the reason where it differs from the original's.

mod table;

use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::sync::Arc;
use table::{CASES, Case, Verdict};
use weighbridge::checkpoint::{Name, Note, TensorPath};
use weighbridge::formats::primitiv::{LoadMode, Model, Optimizer, OptimizerClass, Parameter, Tensor};
use weighbridge::formats::registry;
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::{OpenOptions, Result};

fn cases_of(variant: &str) -> Vec<Json> {
    let text = weighbridge_testkit::golden(format!("primitiv/edge/cases_{variant}.json"));
    serde_json::from_slice(&text).unwrap()
}

fn name_of(case: &Json, variant: &str) -> String {
    case["file"].as_str().unwrap().strip_suffix(&format!("_{variant}.bin")).unwrap().to_owned()
}

#[test]
fn the_table_covers_every_case_once() {
    for variant in ["a", "b"] {
        let files: BTreeSet<String> = cases_of(variant).iter().map(|c| name_of(c, variant)).collect();
        let rows: BTreeSet<String> = CASES.iter().map(|c| c.name.to_owned()).collect();
        assert_eq!(files, rows);
        assert_eq!((files.len(), CASES.len()), (118, 118));
    }
}

#[test]
fn every_case_behaves_as_in_the_table() {
    for variant in ["a", "b"] {
        for json in cases_of(variant) {
            let name = name_of(&json, variant);
            let case = CASES.iter().find(|c| c.name == name).unwrap();
            let file = format!("{name}_{variant}");
            check(case, &json, &file);
        }
    }
}

fn check(case: &Case, json: &Json, file: &str) {
    let bytes = weighbridge_testkit::golden(format!("primitiv/edge/{file}.bin"));
    assert_eq!(json["size"].as_u64(), Some(bytes.len() as u64));
    let source: SourceRef = Arc::new(MemorySource::new(file, bytes));
    let open = |lenient: bool| {
        let format = Some("primitiv".to_owned());
        let options = OpenOptions { format, lenient, ..OpenOptions::default() };
        registry().open_source(source.clone(), &options).map(|checkpoint| checkpoint.notes)
    };
    met(case.strict, open(false), &format!("{file}, strictly"));
    met(case.lenient, open(true), &format!("{file}, leniently"));
    let (loaded, after) = load(json, &source);
    met(case.load, loaded, &format!("{file}, as the original loads"));

    let upstream = json["upstream"] == "accepts";
    let same = [case.strict, case.lenient, case.load].map(|v| v.accepts() == upstream);
    assert_eq!(
        case.reason.is_empty(),
        same == [true; 3],
        "{file}: a reason is for what differs, and only that"
    );
    if case.load.accepts() == upstream {
        assert_eq!(after, without_gradient(&json["object_after"]), "{file}");
    }
}

/// Holds an outcome against a verdict.
fn met(verdict: Verdict, outcome: Result<Vec<Note>>, what: &str) {
    match (verdict, outcome) {
        (Verdict::Read, Ok(notes)) => {
            // Which class an optimizer is of is always said.
            let odd: Vec<_> = notes.iter().filter(|n| n.code != "optimizer-class").collect();
            assert!(odd.is_empty(), "{what}: {odd:?}");
        }
        (Verdict::Note(code), Ok(notes)) => {
            assert!(notes.iter().any(|n| n.code == code), "{what}: {notes:?}")
        }
        (Verdict::Refuse(code), Err(error)) => assert_eq!(error.code().as_str(), code, "{what}: {error}"),
        (verdict, outcome) => panic!("{what}: not {verdict:?} but {outcome:?}"),
    }
}

/// Loads into the object that the original loaded into; gives the state of the object after that
/// in the form of `object_after`. An object that the original never initialised is null as long
/// as nothing was loaded.
fn load(json: &Json, source: &SourceRef) -> (Result<Vec<Note>>, Json) {
    let with_stats = json["with_stats"].as_bool().unwrap_or(true);
    let mode = LoadMode::AsOriginal;
    match json["loaded_as"].as_str().unwrap() {
        "Parameter" => {
            let mut target = parameter(&[9.0]);
            let untouched = target.clone();
            let report = target.load_into(source.clone(), with_stats, mode);
            let after = if report.is_ok() { parameter_json(&target) } else { Json::Null };
            assert!(report.is_ok() || target == untouched);
            (report.map(|r| r.notes), after)
        }
        "Model" => {
            let mut target = Model::new();
            target.insert(TensorPath::from_dotted("p"), parameter(&[-1.0, -2.0])).unwrap();
            target.insert(TensorPath::from_dotted("sm.q"), parameter(&[-3.0, -4.0])).unwrap();
            let report = target.load_into(source.clone(), with_stats, mode);
            let key =
                |path: &TensorPath| path.parts().iter().map(Name::to_text).collect::<Vec<_>>().join("/");
            let after = target.walk().map(|(path, p)| (key(path), parameter_json(p)));
            (report.map(|r| r.notes), Json::Object(after.collect()))
        }
        "Optimizer" => {
            let class = json["optimizer_class"].as_str().unwrap();
            let mut target = Optimizer::new(&OptimizerClass::from_name(class));
            let report = target.load_into(source.clone(), mode);
            let uints: serde_json::Map<_, _> =
                target.uints().map(|(key, value)| (key.to_text(), value.into())).collect();
            let bits = |value: f32| Json::from(format!("{:08x}", value.to_bits()));
            let floats: serde_json::Map<_, _> =
                target.floats().map(|(key, value)| (key.to_text(), bits(value))).collect();
            let after = serde_json::json!({ "uint_configs": uints, "float_configs_bits": floats });
            (report.map(|r| r.notes), after)
        }
        other => panic!("{other}"),
    }
}

fn parameter(values: &[f32]) -> Parameter {
    let dims = [u32::try_from(values.len()).unwrap()];
    Parameter::new(Tensor::new(&dims, values.to_vec()).unwrap()).unwrap()
}

fn tensor_json(tensor: &Tensor) -> Json {
    let bits: Vec<_> = tensor.data().iter().map(|value| format!("{:08x}", value.to_bits())).collect();
    serde_json::json!({ "dims": tensor.dims(), "batch": tensor.batch(), "bits": bits.join(" ") })
}

fn parameter_json(parameter: &Parameter) -> Json {
    let stat = |(name, tensor): (&Name, &Tensor)| serde_json::json!({ "name": name.to_text(), "tensor": tensor_json(tensor) });
    let stats: Vec<_> = parameter.stats().map(stat).collect();
    serde_json::json!({ "value": tensor_json(parameter.value()), "stats": stats })
}

/// Gradients are not in files: the original makes zeros of the shape of the value.
fn without_gradient(json: &Json) -> Json {
    match json {
        Json::Object(map) => {
            let rest = map.iter().filter(|(key, _)| *key != "gradient");
            Json::Object(rest.map(|(key, value)| (key.clone(), without_gradient(value))).collect())
        }
        other => other.clone(),
    }
}
