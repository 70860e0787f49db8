//! Expected values were recorded by Paddle 3.3.1 itself (`expected.json`).
#![allow(clippy::disallowed_methods)]

mod change;
mod crafted;
mod golden;
mod malformed;

use super::PirProgram;
use serde_json::Value as Json;
use std::path::PathBuf;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

/// Folders with programs, and the name of the program in each.
const GOLDEN: &[(&str, &str)] = &[
    ("cnn_jit", "model.json"),
    ("cnn_pir", "model.json"),
    ("cnn_pir_readable_nontrainable", "model.json"),
    ("cnn_pir_separate", "__model__.json"),
    ("cnn_pir_train", "train.json"),
    ("control_flow_pir", "model.json"),
    ("seq_jit", "model.json"),
    ("seq_pir", "model.json"),
];

fn bytes(folder: &str, name: &str) -> Vec<u8> {
    weighbridge_testkit::golden(["paddle/good/p331", folder, name].iter().collect::<PathBuf>())
}

fn parse(bytes: &[u8]) -> Result<PirProgram> {
    PirProgram::parse(bytes, &Limits::default())
}

fn golden(folder: &str) -> PirProgram {
    let name = GOLDEN.iter().find(|(f, _)| *f == folder).unwrap().1;
    parse(&bytes(folder, name)).unwrap()
}

/// A program of these operators, with that `base_code`.
fn program(base: &str, ops: &str) -> String {
    format!(
        "{{\"base_code\":{base},\"program\":{{\"regions\":[{{\"#\":\"region_0\",\"blocks\":[\
         {{\"#\":\"block_0\",\"args\":[],\"ops\":[{ops}]}}]}}]}}}}"
    )
}

const BASE: &str = r#"{"magic":"pir","trainable":true,"version":4}"#;

/// A program of these operators.
fn of(ops: &str) -> Result<PirProgram> {
    parse(program(BASE, ops).as_bytes())
}

fn error(ops: &str) -> Error {
    of(ops).unwrap_err()
}

const F32: &str = r##"{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[2],"NCHW",[],0]}"##;

/// A parameter in the short form.
fn p(id: i64, name: &str) -> String {
    let name = Json::from(name);
    format!(r##"{{"#":"p","A":[0,1,1,{name}],"DA":[],"O":{{"%":{id},"TT":{F32}}},"OA":[1,0,1],"QA":[]}}"##)
}

/// An operator of one result.
fn op(name: &str, attributes: &str, reads: &[i64], id: i64) -> String {
    let reads: Vec<_> = reads.iter().map(|id| format!(r#"{{"%":{id}}}"#)).collect();
    let reads = reads.join(",");
    format!(r##"{{"#":"{name}","A":[{attributes}],"I":[{reads}],"O":[{{"%":{id},"TT":{F32}}}],"OA":[]}}"##)
}

fn named(kind: &str, key: &str, name: &str, reads: &[i64], id: i64) -> String {
    let attribute = format!(r##"{{"AT":{{"#":"0.a_str","D":{}}},"N":"{key}"}}"##, Json::from(name));
    op(kind, &attribute, reads, id)
}

fn fetch(column: i64, reads: i64, id: i64) -> String {
    let name = format!(r##"{{"AT":{{"#":"0.a_str","D":"fetch_name_{column}"}},"N":"name"}}"##);
    op("1.fetch", &format!(r##"{name},{{"AT":{{"#":"0.a_i32","D":{column}}},"N":"col"}}"##), &[reads], id)
}
