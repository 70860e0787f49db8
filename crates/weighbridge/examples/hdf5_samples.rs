//! Writes HDF5 files for h5py to judge: `judges/hdf5_judge.py` reads them.
//!
//! `cargo run -p weighbridge --example hdf5_samples -- OUT`: OUT is a folder. The elements of every tensor are the
//! bytes 1, 2, 3 … (modulo 251), truth values 1, 0, 1 …, so that the judge can make them itself.

use std::path::Path;
use std::sync::Arc;
use weighbridge::checkpoint::{TensorPath, Value};
use weighbridge::containers::hdf5::write::{Data, Hdf5Builder};
use weighbridge::engine::RunOptions;
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Shape};
use weighbridge::{Error, Result, TensorEntry};

fn main() -> Result<()> {
    let Some(out) = std::env::args().nth(1) else {
        return Err(Error::usage("arguments", "a folder is needed: OUT"));
    };
    let out = Path::new(&out);
    save(types()?, &out.join("types.h5"))?;
    save(members()?, &out.join("members.h5"))?;
    save(attributes()?, &out.join("attributes.h5"))?;
    save(Hdf5Builder::new(""), &out.join("empty.h5"))
}

fn save(builder: Hdf5Builder, target: &Path) -> Result<()> {
    let files = vec![builder.finish()?];
    let plan = WritePlan { format: "hdf5", kind: "file", files, losses: Vec::new() };
    weighbridge::ops::save(&plan, target, true, &RunOptions::default()).map(|_| ())
}

/// A tensor of counted bytes.
fn tensor(name: &str, dtype: DType, dims: &[u64], encoding: Encoding) -> Result<TensorEntry> {
    let shape = Shape::new(dims);
    let bytes = (1u8..252).cycle().map(|byte| if dtype == DType::Bool { byte % 2 } else { byte });
    let len = usize::try_from(shape.bytes(dtype).unwrap_or(0)).unwrap_or(0);
    let source: SourceRef = Arc::new(MemorySource::new("counted", bytes.take(len).collect()));
    TensorEntry::dense(TensorPath::from_dotted(name), dtype, shape, &source, 0, encoding)
}

/// Every type, in four shapes and both orders, and bytes without meaning.
fn types() -> Result<Hdf5Builder> {
    let mut file = Hdf5Builder::new("");
    for dtype in DType::ALL.into_iter().filter(|&dtype| Hdf5Builder::has_type(dtype)) {
        let name = dtype.name();
        file.dataset(&[name, "scalar"], Data::Tensor(tensor(name, dtype, &[], Encoding::ROW)?))?;
        file.dataset(&[name, "empty"], Data::Tensor(tensor(name, dtype, &[0, 3], Encoding::ROW)?))?;
        file.dataset(&[name, "matrix"], Data::Tensor(tensor(name, dtype, &[2, 3], Encoding::ROW)?))?;
        file.dataset(&[name, "columns"], Data::Tensor(tensor(name, dtype, &[2, 3, 4], Encoding::COLUMN)?))?;
    }
    for len in [0, 1, 1000] {
        let mut blob = FileBuilder::new("");
        blob.literal(vec![7; len]);
        file.dataset(&["opaque", &len.to_string()], Data::Opaque(blob.finish()))?;
    }
    Ok(file)
}

/// Groups of every size around the borders of nodes, a deep one, and names of all kinds.
fn members() -> Result<Hdf5Builder> {
    let mut file = Hdf5Builder::new("");
    for count in [0u32, 1, 7, 8, 9, 255, 256, 257, 5000, 9000] {
        let group = count.to_string();
        file.group(&["groups", &group])?;
        for number in 0..count {
            let name = format!("member {number}");
            file.dataset(
                &["groups", &group, &name],
                Data::Tensor(tensor(&name, DType::U8, &[1], Encoding::ROW)?),
            )?;
        }
    }
    file.group(&vec!["deep"; 300])?;
    for name in ["größe", "重み", "a.b", "..", "with space", "\u{1f600}", "~", "A", "a", "line\nfeed"] {
        file.dataset(&["names", name], Data::Tensor(tensor("x", DType::I16, &[2], Encoding::ROW)?))?;
    }
    file.dataset(
        &["names", &"n".repeat(70_000)],
        Data::Tensor(tensor("x", DType::I16, &[2], Encoding::ROW)?),
    )?;
    Ok(file)
}

/// Attributes of all types, many of them, and long texts.
fn attributes() -> Result<Hdf5Builder> {
    let mut file = Hdf5Builder::new("");
    file.dataset(&["g", "d"], Data::Tensor(tensor("d", DType::F32, &[3], Encoding::ROW)?))?;
    for path in [&[][..], &["g"], &["g", "d"]] {
        let all = [
            ("i64", Value::I64(-5)),
            ("u64", Value::U64(u64::MAX)),
            ("u32", Value::U32(7)),
            ("f32", Value::F32(0.1f32.to_bits())),
            ("f64", Value::F64(0.1f64.to_bits())),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("text", Value::Text("größe 重み".into())),
            ("no text", Value::Text(String::new())),
            ("bytes", Value::Bytes(vec![0, 1, 255])),
            ("i64s", Value::List((-3..5).map(Value::I64).collect())),
            ("u64s", Value::List((0..5).map(Value::U64).collect())),
            ("f64s", Value::List((0u8..5).map(|n| Value::F64(f64::from(n).to_bits())).collect())),
            ("bools", Value::List(vec![Value::Bool(true), Value::Bool(false)])),
            ("texts", Value::List(["a", "", "größe"].map(|t| Value::Text(t.into())).into())),
            ("none", Value::List(Vec::new())),
            ("config/json", Value::Text("{}".into())),
            ("größe", Value::I64(1)),
            ("gräßer", Value::Text("mehr".into())),
        ];
        for (name, value) in all {
            file.attribute(path, name, &value)?;
        }
        for number in 0..100 {
            file.attribute(path, &format!("many {number}"), &Value::I64(number))?;
            let text = "t".repeat(usize::try_from(number).unwrap_or(0) * 37);
            file.attribute(path, &format!("text {number}"), &Value::Text(text))?;
        }
        file.attribute(path, "long", &Value::Text("0123456789".repeat(500_000)))?;
        file.attribute(path, "8000 numbers", &Value::List((0..8000).map(Value::I64).collect()))?;
    }
    // Lengths that leave 0, 8, 16 … bytes of the smallest collection.
    for left in 0u32..12 {
        let group = format!("left{left}");
        file.group(&[&group])?;
        let text = "x".repeat(usize::try_from(4096 - 32 - left * 8).unwrap_or(0));
        file.attribute(&[&group], "text", &Value::Text(text))?;
        file.attribute(&[&group], "closes", &Value::Text("y".repeat(70_000)))?;
    }
    Ok(file)
}
