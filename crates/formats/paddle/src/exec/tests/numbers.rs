//! `cast`, `scale` and `fill_constant`, element for element as Paddle 2.6.2 computed them.

use super::*;
use crate::dtype;
use serde_json::Value as Json;

fn table(name: &str) -> Vec<Json> {
    serde_json::from_slice(&std::fs::read(golden(&format!("exec/{name}.json"))).unwrap()).unwrap()
}

fn unhex(json: &Json) -> Vec<u8> {
    let digits = json.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn named(json: &Json) -> DType {
    DType::from_name(json.as_str().unwrap()).unwrap()
}

fn number(dtype: DType) -> AttributeValue {
    int(dtype::number(dtype).unwrap().into())
}

/// Returns the result of one operator for `x`.
fn made(operator: Operator, x: &TensorEntry) -> weighbridge_core::Result<TensorEntry> {
    let folder = tempfile::tempdir().unwrap();
    let fetched =
        run(folder.path(), &program(vec![operator, fetch("out", 0)]), &mut scope(&[("x", x.clone())]))?;
    Ok(fetched[0].1.clone())
}

fn cast(to: DType) -> Operator {
    op("cast", &[("X", &["x"])], &[("Out", &["out"])], &[("out_dtype", number(to))])
}

fn scale(attributes: &[(&str, AttributeValue)]) -> Operator {
    op("scale", &[("X", &["x"])], &[("Out", &["out"])], attributes)
}

fn float(json: &Json) -> AttributeValue {
    AttributeValue::Float(json.to_string().parse().unwrap())
}

#[test]
fn casts_like_paddle() {
    let rows = table("cast");
    assert_eq!(rows.len(), 100);
    for row in rows {
        let (from, to, input) = (named(&row["from"]), named(&row["to"]), unhex(&row["in"]));
        let count = (input.len() / from.size().unwrap()) as u64;
        let out = made(cast(to), &tensor(from, &[count], &input)).unwrap();
        assert_eq!((out.dtype(), out.shape.dims()), (to, &[count][..]));
        assert_eq!(bytes_of(&out), unhex(&row["out"]), "{from} to {to}");
    }
}

#[test]
fn scales_like_paddle() {
    let rows = table("scale");
    assert!(rows.len() > 80);
    for row in rows {
        let (dtype, input) = (named(&row["dtype"]), unhex(&row["in"]));
        let x = tensor(dtype, &[(input.len() / dtype.size().unwrap()) as u64], &input);
        let after = AttributeValue::Bool(row["bias_after_scale"].as_bool().unwrap());
        let attributes =
            [("scale", float(&row["scale"])), ("bias", float(&row["bias"])), ("bias_after_scale", after)];
        let out = made(scale(&attributes), &x).unwrap();
        assert_eq!(bytes_of(&out), unhex(&row["out"]), "{dtype} {:?}", attributes);
    }
}

#[test]
fn fills_like_paddle() {
    let rows = table("fill");
    assert!(rows.len() > 150);
    let folder = tempfile::tempdir().unwrap();
    for row in rows {
        let dtype = named(&row["dtype"]);
        let attributes = [
            ("shape", ints(&[3])),
            ("dtype", number(dtype)),
            ("value", float(&row["value"])),
            ("str_value", text(row["text"].as_str().unwrap())),
        ];
        let fill = op("fill_constant", &[], &[("Out", &["out"])], &attributes);
        let fetched = run(folder.path(), &program(vec![fill, fetch("out", 0)]), &mut Scope::new()).unwrap();
        assert_eq!(bytes_of(&fetched[0].1), unhex(&row["out"]), "{row}");
    }
}

#[test]
fn missing_attributes_have_paddle_defaults() {
    let fill = op("fill_constant", &[], &[("Out", &["out"])], &[]);
    let out = made(fill, &f32s(&[])).unwrap();
    assert_eq!((out.dtype(), out.shape.rank(), bytes_of(&out)), (DType::F32, 0, vec![0; 4]));
    let out = made(scale(&[]), &f32s(&[1.5, -2.0])).unwrap();
    assert_eq!(bytes_of(&out), bytes_of(&f32s(&[1.5, -2.0])));
}

#[test]
fn accepts_scale_from_a_tensor() {
    let run_with = |x: &TensorEntry, by: &TensorEntry| {
        let operator = op(
            "scale",
            &[("X", &["x"]), ("ScaleTensor", &["s"])],
            &[("Out", &["out"])],
            &[("scale", AttributeValue::Float(2.0)), ("bias", AttributeValue::Float(0.5))],
        );
        let mut scope = scope(&[("x", x.clone()), ("s", by.clone())]);
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &program(vec![operator, fetch("out", 0)]), &mut scope)
    };
    let out = |x: &TensorEntry, by: &TensorEntry| bytes_of(&run_with(x, by).unwrap()[0].1);
    let x = f32s(&[0.0, 1.0, -1.0]);
    assert_eq!(out(&x, &f32s(&[3.0])), bytes_of(&f32s(&[0.5, 3.5, -2.5])));
    // Integers: 3.7 is 3, and 0.5 is 0.
    let i = tensor(DType::I32, &[2], &[1i32, 255].map(i32::to_le_bytes).concat());
    assert_eq!(out(&i, &f32s(&[3.7])), [3i32, 765].map(i32::to_le_bytes).concat());
    assert_eq!(run_with(&x, &f32s(&[1.0, 2.0])).unwrap_err().code().as_str(), "scale-tensor");
    assert_eq!(run_with(&x, &f32s(&[])).unwrap_err().code().as_str(), "scale-tensor");
}

#[test]
fn computes_in_blocks_and_keeps_shape_and_lod() {
    use weighbridge_core::checkpoint::Value as Fact;
    let count = (1u64 << 18) + 77;
    let bytes: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut x = tensor(DType::F32, &[count, 1], &bytes);
    let lod = Fact::List(vec![Fact::List(vec![Fact::U64(0), Fact::U64(count)])]);
    x.attributes.insert("lod".into(), lod.clone());
    x.attributes.insert("desc".into(), Fact::Bytes(vec![1]));
    let expected: Vec<u8> = (0..count).flat_map(|i| i32::try_from(i).unwrap().to_le_bytes()).collect();
    let out = made(cast(DType::I32), &x).unwrap();
    assert!(bytes_of(&out) == expected && out.shape == x.shape);
    assert_eq!(out.attributes.len(), 1);
    assert_eq!(out.attributes["lod"], lod);
    let out = made(scale(&[("scale", AttributeValue::Float(2.0))]), &x).unwrap();
    let expected: Vec<u8> = (0..count).flat_map(|i| (i as f32 * 2.0).to_le_bytes()).collect();
    assert!(bytes_of(&out) == expected && out.attributes["lod"] == lod);
}

#[test]
fn computes_empty_tensors_and_scalars() {
    let empty = tensor(DType::F32, &[2, 0, 3], &[]);
    let out = made(cast(DType::I64), &empty).unwrap();
    assert_eq!((out.shape.dims(), bytes_of(&out).len()), (&[2, 0, 3][..], 0));
    assert_eq!(bytes_of(&made(scale(&[]), &empty).unwrap()).len(), 0);
    let scalar = tensor(DType::F32, &[], &2.9f32.to_le_bytes());
    assert_eq!(bytes_of(&made(cast(DType::U8), &scalar).unwrap()), [2]);
}

#[test]
fn rounds_once_per_cast() {
    let x = f32s(&[1.0005, 70000.0, 3.0e-9]);
    let chain = vec![
        op("cast", &[("X", &["x"])], &[("Out", &["h"])], &[("out_dtype", number(DType::F16))]),
        op("cast", &[("X", &["h"])], &[("Out", &["w"])], &[("out_dtype", number(DType::F32))]),
        op("assign", &[("X", &["w"])], &[("Out", &["out"])], &[]),
        fetch("out", 1),
        fetch("h", 0),
    ];
    let folder = tempfile::tempdir().unwrap();
    let fetched = run(folder.path(), &program(chain), &mut scope(&[("x", x)])).unwrap();
    assert_eq!(fetched.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["h", "out"]);
    assert_eq!(bytes_of(&fetched[1].1), bytes_of(&f32s(&[1.0, f32::INFINITY, 0.0])));
}

#[test]
fn rounding_mode_is_configurable() {
    let mut executor = Executor::new("");
    let cast = program(vec![cast(DType::F16), fetch("out", 0)]);
    let just_below = f32s(&[1.0009765]);
    let mut bits = |rounding| {
        executor.rounding = rounding;
        bytes_of(&executor.run(&cast, &mut scope(&[("x", just_below.clone())]), &[]).unwrap()[0].1)
    };
    assert_eq!(bits(weighbridge_core::tensor::Rounding::Paddle262), 0x3c00u16.to_le_bytes());
    assert_eq!(bits(weighbridge_core::tensor::Rounding::Paddle331), 0x3c01u16.to_le_bytes());
}

#[test]
fn rejects_unsupported_computations() {
    let complex = tensor(DType::C64, &[1], &[0; 8]);
    for to in [DType::F32, DType::I32, DType::Bool] {
        assert_eq!(made(cast(to), &complex).unwrap_err().code().as_str(), "no-such-cast");
    }
    assert_eq!(made(cast(DType::C64), &f32s(&[1.0])).unwrap_err().code().as_str(), "no-such-cast");
    let small = tensor(DType::F8E4M3, &[1], &[0]);
    assert_eq!(made(scale(&[]), &small).unwrap_err().code().as_str(), "operator-dtype");
    let error = made(cast(DType::U64), &f32s(&[1.0])).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("no-such-cast", Some("x")));
    assert!(error.message().starts_with("operator 0 (cast): "));
}

#[test]
fn rejects_results_above_the_memory_budget() {
    let fill = |shape: &[i64]| op("fill_constant", &[], &[("Out", &["out"])], &[("shape", ints(shape))]);
    for shape in [&[1 << 40][..], &[i64::MAX, i64::MAX], &[1 << 61], &[1 << 28, 1 << 2]] {
        let error = made(fill(shape), &f32s(&[])).unwrap_err();
        assert_eq!(error.code().as_str(), "memory", "{shape:?}");
    }
    assert_eq!(made(fill(&[0, i64::MAX, i64::MAX]), &f32s(&[])).unwrap().elements(), 0);
    // All results of a run are charged.
    let mut executor = Executor::new("");
    executor.memory = 100;
    let twice = program(vec![fill(&[20]), fill(&[20])]);
    assert_eq!(executor.run(&twice, &mut Scope::new(), &[]).unwrap_err().code().as_str(), "memory");
    executor.memory = 160;
    executor.run(&twice, &mut Scope::new(), &[]).unwrap();
    // A cast to a float is deferred until the tensor is written.
    executor.memory = 0;
    executor.run(&program(vec![cast(DType::F16)]), &mut scope(&[("x", f32s(&[1.0]))]), &[]).unwrap();
}
