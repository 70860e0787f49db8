//! Writes programs for real Paddle to judge: `judges/paddle_program.py` runs them.
//!
//! `cargo run -p weighbridge --example paddle_programs -- GOLDEN OUT`: GOLDEN is `testdata/paddle/good`; OUT is a new
//! folder, which gets changed copies of golden programs, and programs made from nothing that save
//! and load tensors.

#![allow(clippy::disallowed_methods, reason = "an example of its own, which keeps its own files")]

use std::collections::BTreeMap;
use std::path::Path;
use weighbridge::formats::paddle::Strip;
use weighbridge::formats::paddle::program::build::{Builder, dense};
use weighbridge::formats::paddle::program::{Derived, ProgramDesc};
use weighbridge::tensor::DType;
use weighbridge::topology::{Attribute, AttributeValue, Operator, Slot};
use weighbridge::{Error, Limits, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(golden), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err(Error::usage("arguments", "two folders are needed: GOLDEN and OUT"));
    };
    let (golden, out) = (Path::new(&golden), Path::new(&out));
    let limits = Limits::default();
    for (folder, file) in [
        ("cnn_static_infer", "model.pdmodel"),
        ("seq_static_infer", "model.pdmodel"),
        ("control_flow", "model.pdmodel"),
        ("cnn_static_train", "train.pdmodel"),
        ("seq_static_train", "train.pdmodel"),
        ("op_attrs", "main.pdmodel"),
    ] {
        let path = golden.join("p262").join(folder).join(file);
        let bytes = std::fs::read(&path).map_err(|e| Error::io("cannot read a golden file", e))?;
        let program = ProgramDesc::parse(&bytes, &limits)?;
        write(out, &format!("{folder}.same.pdmodel"), &program)?;

        let text = program.to_text();
        write_bytes(out, &format!("{folder}.txt"), text.as_bytes())?;
        write(out, &format!("{folder}.text.pdmodel"), &ProgramDesc::from_text(&text, &limits)?)?;

        let mut renamed = program.clone();
        let names: BTreeMap<String, String> = program
            .parameters()
            .into_iter()
            .map(|v| (v.name.clone(), format!("renamed/{}", v.name)))
            .collect();
        renamed.rename(&names, Derived::Along)?;
        write(out, &format!("{folder}.renamed.pdmodel"), &renamed)?;

        // Programs of training, and one of single operators, have no outputs of their own.
        let outputs: &[&str] = match folder {
            "cnn_static_train" => &["softmax_0.tmp_0"],
            "seq_static_train" => &["linear_25.tmp_1"],
            "op_attrs" => &["clip_0.tmp_0", "bilinear_interp_v2_0.tmp_0"],
            _ => &[],
        };
        let outputs = outputs.iter().map(|&name| name.to_owned()).collect();
        let source = Strip { source: true, ..Strip::default() };
        for (word, strip) in [("source", source), ("all", Strip { outputs, ..Strip::all() })] {
            let mut stripped = program.clone();
            stripped.strip(&strip)?;
            write(out, &format!("{folder}.strip-{word}.pdmodel"), &stripped)?;
        }
    }
    files(out)?;
    addition(out)
}

/// Programs that save and load: w (2 x 3, f32), b (3, f64), 权 (i64, no dimension).
fn files(out: &Path) -> Result<()> {
    let names = ["b", "w", "权"];
    let declared = || -> Result<Builder> {
        let mut builder = Builder::new(2_006_002);
        builder.variable(&dense("w", DType::F32, &[2, 3]))?.variable(&dense("b", DType::F64, &[3]))?;
        builder.variable(&dense("权", DType::I64, &[]))?;
        Ok(builder)
    };
    let folder = out.join("files");
    let place = |name: &str| folder.join(name).display().to_string();
    let mut save = declared()?;
    let mut load = declared()?;
    for name in names {
        save.save(name, &place(name))?;
        load.load(name, &place(name))?;
    }
    write(out, "save.pdmodel", &save.finish()?)?;
    write(out, "load.pdmodel", &load.finish()?)?;
    let mut save = declared()?;
    save.save_combine(&names, &place("combined"))?;
    write(out, "save_combine.pdmodel", &save.finish()?)?;
    let mut load = declared()?;
    load.load_combine(&names, &place("combined"))?;
    write(out, "load_combine.pdmodel", &load.finish()?)
}

/// A program with inputs and outputs: z = x + y, and y as well.
fn addition(out: &Path) -> Result<()> {
    let mut builder = Builder::new(2_006_002);
    for name in ["x", "y", "z"] {
        let mut variable = dense(name, DType::F32, &[-1, 3]);
        variable.persistable = false;
        builder.variable(&variable)?;
    }
    let slot = |name: &str, of: &str| Slot { name: name.to_owned(), arguments: vec![of.to_owned()] };
    let axis = Attribute { name: "axis".to_owned(), kind: "INT".to_owned(), value: AttributeValue::Int(-1) };
    builder.operator(&Operator {
        kind: "elementwise_add".to_owned(),
        inputs: vec![slot("X", "x"), slot("Y", "y")],
        outputs: vec![slot("Out", "z")],
        attributes: vec![axis],
        blocks: Vec::new(),
    })?;
    builder.feed("x")?.feed("y")?.fetch("z")?.fetch("y")?;
    write(out, "add.pdmodel", &builder.finish()?)
}

fn write(out: &Path, name: &str, program: &ProgramDesc) -> Result<()> {
    write_bytes(out, name, program.bytes())
}

fn write_bytes(out: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    std::fs::write(out.join(name), bytes).map_err(|e| Error::io(format!("cannot write {name}"), e))
}
