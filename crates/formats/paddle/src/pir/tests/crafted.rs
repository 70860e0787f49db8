//! Forms that do not occur in the golden programs.

use super::super::looks_like;
use super::{BASE, F32, error, fetch, named, of, op, p, parse, program};
use weighbridge_core::error::Kind;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{AttributeValue as A, VariableKind};

fn list(values: impl Into<Vec<A>>) -> A {
    A::List(values.into())
}

/// The kind and value of one attribute, of which this is the JSON.
fn attribute(json: &str) -> (String, A) {
    let program = of(&op("1.x", &format!(r#"{{"AT":{json},"N":"a"}}"#), &[], 1)).unwrap();
    let operator = program.topology().blocks[0].operators[0].clone();
    let found = operator.attributes.into_iter().next().unwrap();
    assert_eq!(found.name, "a");
    (found.kind, found.value)
}

#[test]
fn reads_every_kind_of_attribute() {
    let table: &[(&str, &str, A)] = &[
        (r##"{"#":"0.a_bool","D":true}"##, "a_bool", A::Bool(true)),
        (r##"{"#":"0.a_i32","D":-7}"##, "a_i32", A::Int(-7)),
        (r##"{"#":"0.a_i64","D":9223372036854775807}"##, "a_i64", A::Int(i64::MAX)),
        (r##"{"#":"0.a_i64","D":-9223372036854775808}"##, "a_i64", A::Int(i64::MIN)),
        (r##"{"#":"0.a_index","D":3}"##, "a_index", A::Int(3)),
        (r##"{"#":"0.a_f32","D":0.8999999761581421}"##, "a_f32", A::Float(0.9)),
        (r##"{"#":"0.a_f32","D":1}"##, "a_f32", A::Float(1.0)),
        (r##"{"#":"0.a_f64","D":5e-324}"##, "a_f64", A::Double(5e-324)),
        (r##"{"#":"0.a_f64","D":0.1}"##, "a_f64", A::Double(0.1)),
        (r##"{"#":"0.a_f64","VD":"INF"}"##, "a_f64", A::Double(f64::INFINITY)),
        (r##"{"#":"0.a_f32","VD":"-inf"}"##, "a_f32", A::Float(f32::NEG_INFINITY)),
        (r##"{"#":"0.a_str","D":"\u00e9\"\n"}"##, "a_str", A::Text("é\"\n".into())),
        (r##"{"#":"0.a_tensorname","D":"w"}"##, "a_tensorname", A::Variable("w".into())),
        (r##"{"#":"0.a_c64","D":[1.5,-2.0]}"##, "a_c64", A::Complex(1.5, -2.0)),
        (r##"{"#":"0.a_c128","D":[0,1e300]}"##, "a_c128", A::Complex(0.0, 1e300)),
        (r##"{"#":"0.a_array","D":[]}"##, "a_array", list([])),
        (
            r##"{"#":"0.a_array","D":[{"#":"0.a_i32","D":1},{"#":"0.a_array","D":[{"#":"0.a_str","D":"x"}]}]}"##,
            "a_array",
            list([A::Int(1), list([A::Text("x".into())])]),
        ),
        (r##"{"#":"0.a_type","D":{"#":"0.t_f32"}}"##, "a_type", A::Word("t_f32".into())),
        (
            r##"{"#":"0.a_type","D":{"#":"0.t_dtensor","D":[{"#":"0.t_i64"},[-1,3],"NCHW",[],0]}}"##,
            "a_type",
            A::Word("t_dtensor<t_i64>[-1, 3]".into()),
        ),
        (r##"{"#":"1.a_intarray","D":[-1,3]}"##, "a_intarray", list([A::Int(-1), A::Int(3)])),
        (
            r##"{"#":"1.a_scalar","D":["float32",2.0]}"##,
            "a_scalar",
            list([A::Word("float32".into()), A::Double(2.0)]),
        ),
        (
            r##"{"#":"1.a_scalar","D":["uint64",18446744073709551615]}"##,
            "a_scalar",
            list([A::Word("uint64".into()), A::Word("18446744073709551615".into())]),
        ),
        (r##"{"#":"1.a_dtype","D":"float32"}"##, "a_dtype", A::Word("float32".into())),
        (
            r##"{"#":"1.a_place","D":[1,0,""]}"##,
            "a_place",
            list([A::Int(1), A::Int(0), A::Text(String::new())]),
        ),
        (r##"{"#":"1.a_layout","D":"NCHW"}"##, "a_layout", A::Word("NCHW".into())),
        (r##"{"#":"NULL"}"##, "NULL", A::None),
        (r##"{"#":"0.a_new"}"##, "a_new", A::None),
        (
            r##"{"#":"4.a_mesh","D":[[2],{"k":null},false]}"##,
            "pd_dist.a_mesh",
            list([list([A::Int(2)]), A::Word(r#"{"k":null}"#.into()), A::Bool(false)]),
        ),
        (r##"{"#":"builtin.a_i32","D":4}"##, "a_i32", A::Int(4)),
    ];
    for (json, kind, value) in table {
        assert_eq!(attribute(json), ((*kind).to_owned(), value.clone()), "{json}");
    }
    for word in ["NaN", "NAN", "nan"] {
        let json = format!(r##"{{"#":"0.a_f64","VD":"{word}"}}"##);
        assert!(matches!(attribute(&json).1, A::Double(x) if x.is_nan()));
    }
}

#[test]
fn rejects_invalid_attributes_with_their_offset() {
    let table = [
        (r##"{"#":"0.a_bool","D":1}"##, "bad-program"),
        (r##"{"#":"0.a_bool"}"##, "missing-field"),
        (r##"{"D":1}"##, "missing-field"),
        (r##"{"#":"0.a_i64","D":9223372036854775808}"##, "bad-program"),
        (r##"{"#":"0.a_i32","D":1.5}"##, "bad-program"),
        (r##"{"#":"0.a_f64","D":1e999}"##, "bad-program"),
        (r##"{"#":"0.a_f64","VD":"many"}"##, "bad-program"),
        (r##"{"#":"0.a_c64","D":[1]}"##, "bad-program"),
        (r##"{"#":"0.a_array","D":{}}"##, "bad-program"),
        (r##"{"#":"0.a_str","D":1,"D":"x"}"##, "duplicate-key"),
        (r##"[7]"##, "bad-program"),
    ];
    for (json, code) in table {
        let text = program(BASE, &op("1.x", &format!(r#"{{"AT":{json},"N":"a"}}"#), &[], 1));
        let error = parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{json}");
        let start = text.find(json).unwrap() as u64;
        let offset = error.offset().unwrap();
        assert!((start..start + json.len() as u64).contains(&offset), "{json}: {offset}");
    }
}

#[test]
fn reads_every_kind_of_type() {
    let variable = |json: &str| {
        let text = format!(r##"{{"#":"1.x","A":[],"I":[],"O":[{{"%":1,"TT":{json}}}]}}"##);
        of(&text).unwrap().topology().blocks[0].variables[0].clone()
    };
    let dense = variable(r##"{"#":"0.t_dtensor","D":[{"#":"0.t_bf16"},[-1,0],"NCHW",[[0,2],[0,1,3]],0]}"##);
    assert_eq!(dense.kind, VariableKind::Tensor);
    assert_eq!((dense.dtype, dense.dtype_name.as_deref()), (Some(DType::BF16), Some("t_bf16")));
    assert_eq!((dense.shape, dense.lod_level), (Some(vec![-1, 0]), 2));
    let array = variable(r##"{"#":"1.t_dense_tensor_array","D":[{"#":"0.t_i64"},[3],"NCHW"]}"##);
    assert_eq!(
        (array.kind, array.dtype, array.shape),
        (VariableKind::TensorArray, Some(DType::I64), Some(vec![3]))
    );
    let rows = variable(r##"{"#":"1.t_selectedrows","D":[{"#":"0.t_f32"},[9,2],"NCHW",[],0]}"##);
    assert_eq!((rows.kind, rows.shape), (VariableKind::SelectedRows, Some(vec![9, 2])));
    let sparse =
        variable(r##"{"#":"1.t_sp_coo","D":[{"#":"0.t_f64"},[4],[1],"NCHW",{"#":"NULL"},{"#":"NULL"}]}"##);
    assert_eq!((sparse.kind, sparse.dtype), (VariableKind::Other("t_sp_coo".into()), Some(DType::F64)));
    let spread = variable(&format!(r##"{{"#":"4.t_dist_dtensor","D":[{F32},[],[1]]}}"##));
    assert_eq!(
        (spread.kind, spread.dtype, spread.shape),
        (VariableKind::Tensor, Some(DType::F32), Some(vec![2]))
    );
    let vector = variable(&format!(r##"{{"#":"0.t_vec","D":[{F32},{F32}]}}"##));
    assert_eq!((vector.kind, vector.dtype, vector.shape), (VariableKind::Other("t_vec".into()), None, None));
    let null = variable(r##"{"#":"NULL"}"##);
    assert_eq!(null.kind, VariableKind::Other("NULL".into()));
    let new = variable(r##"{"#":"0.t_dtensor","D":[{"#":"0.t_f4"},[1],"NCHW",[],0]}"##);
    assert_eq!((new.dtype, new.dtype_name.as_deref()), (None, Some("t_f4")));
}

#[test]
fn reads_early_files_with_full_names() {
    let list = r##"{"#":"builtin.a_array","D":[{"#":"builtin.a_bool","D":true}]}"##;
    let early = |name: &str, key: &str, value: &str, reads: &str, id: u64, flag: &str| {
        format!(
            r##"{{"#":"{name}","I":[{reads}],"O":[{{"#":{id},"TT":{{"#":"builtin.t_dtensor","D":[{{"#":"builtin.t_f32"}},[2],"NCHW",[],0]}}}}],
            "A":[{{"N":"{key}","AT":{{"#":"builtin.a_str","D":"{value}"}}}}],"OA":[{flag}]}}"##
        )
    };
    let persistable = format!(r#"{{"N":"persistable","AT":{list}}}"#);
    let ops = [
        early("builtin.parameter", "parameter_name", "w", "", 1, &persistable),
        early("pd_op.data", "name", "x", "", 2, ""),
        early("pd_op.data", "name", "w_moment1_0", "", 3, &persistable),
        early("pd_op.add", "note", "n", r##"{"#":1},{"#":2},{"#":0}"##, 4, ""),
    ];
    let text = program(r#"{"version":1,"trainable":true,"magic":"pir"}"#, &ops.join(","));
    let topology = parse(text.as_bytes()).unwrap().topology();
    let stored: Vec<_> = topology.parameters().iter().map(|v| (v.name.as_str(), v.parameter)).collect();
    assert_eq!(stored, [("w", true), ("w_moment1_0", false)]);
    assert_eq!(topology.feeds.len(), 1);
    assert_eq!(topology.blocks[0].operators[3].input(""), ["w", "x", "@EMPTY@"]);
    assert_eq!(topology.blocks[0].operators[3].output(""), ["%4"]);
    assert_eq!(topology.blocks[0].variables[0].dtype, Some(DType::F32));
}

#[test]
fn assigns_unique_names_to_values() {
    // A parameter with the default name of a value, one parameter in two places, and a fetch with the
    // name of an input.
    let ops = [
        p(1, "%3"),
        p(2, "%3"),
        op("1.add", "", &[1, 2], 3),
        named("1.data", "name", "x", &[], 4),
        named("1.fetch", "name", "x", &[3], 5),
    ];
    let program = of(&ops.join(",")).unwrap();
    let topology = program.topology();
    let names: Vec<_> = topology.blocks[0].variables.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["%3", "%3'", "x", "%5"]);
    assert_eq!(topology.blocks[0].operators[2].input(""), ["%3", "%3"]);
    assert_eq!(topology.parameters().len(), 1);
    assert_eq!(program.notes(), []);
}

#[test]
fn orders_outputs_by_column_and_reads_shadow_outputs() {
    let ops = [p(1, "w"), fetch(1, 1, 2), fetch(0, 1, 3)];
    let fetches = of(&ops.join(",")).unwrap().topology().fetches;
    let names: Vec<_> = fetches.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["fetch_name_0", "fetch_name_1"]);
    let shadow = r##"{"#":"0.shadow_output","A":[{"AT":{"#":"0.a_str","D":"out"},"N":"output_name"}],"I":[{"%":1}],"O":[],"OA":[]}"##;
    let fetches = of(&[p(1, "w"), shadow.to_owned()].join(",")).unwrap().topology().fetches;
    assert_eq!((fetches[0].name.as_str(), fetches[0].shape.clone()), ("out", Some(vec![2])));
}

#[test]
fn notes_irregular_programs() {
    let codes = |text: &str| {
        parse(text.as_bytes()).unwrap().notes().iter().map(|n| n.code.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&program(r#"{"magic":"pir","trainable":true,"version":0}"#, "")), ["pir-version-0"]);
    assert_eq!(codes(&program(r#"{"magic":"pir","version":99}"#, "")), [] as [&str; 0]);
    assert_eq!(codes(&program(BASE, &op("1.relu", "", &[7], 1))), ["undefined-value"]);
    assert_eq!(codes(&program(BASE, &op("77.x", "", &[], 1))), ["unknown-dialect"]);
    let other = p(2, "w").replace("t_f32", "t_f64");
    assert_eq!(codes(&program(BASE, &[p(1, "w"), other].join(","))), ["name-of-two-types"]);
    let two = program(BASE, "").replace("}]}]}}", "},{\"ops\":[]}]}]}}");
    assert_eq!(codes(&two), ["more-blocks"]);
}

#[test]
fn rejects_files_that_are_not_programs() {
    let code = |text: &str| parse(text.as_bytes()).unwrap_err().code().as_str();
    assert_eq!(code(&program(r#"{"magic":"pit","version":4}"#, "")), "not-pir");
    assert_eq!(code("{}"), "not-pir");
    assert_eq!(code(r#"{"base_code":{}}"#), "not-pir");
    assert_eq!(code(r#"{"base_code":{"magic":"pir"}}"#), "missing-field");
    assert_eq!(code(r#"{"base_code":{"magic":"pir","version":4}}"#), "missing-field");
    assert_eq!(code(&program(r#"{"magic":"pir","version":"4"}"#, "")), "bad-program");
    assert_eq!(code("[]"), "bad-program");
    assert_eq!(
        code(&program(BASE, "").replace("[{\"#\":\"region_0\"", "[{},{\"#\":\"region_0\"")),
        "bad-program"
    );
    assert_eq!(code(&program(BASE, "3")), "bad-program");
    assert_eq!(error(&[p(1, "a"), p(1, "b")].join(",")).code().as_str(), "duplicate-value");
    assert_eq!(error(&p(1, "a").replace("[0,1,1,", "[0,1,")).code().as_str(), "bad-program");
    assert_eq!(error(&p(1, "a").replace("[1,0,1]", "[1,0]")).code().as_str(), "bad-program");
    assert_eq!(parse(b"\xff{}").unwrap_err().code().as_str(), "not-utf8");
    // Two results with id 0 are not duplicates.
    assert!(of(&[op("1.a", "", &[], 0), op("1.b", "", &[], 0)].join(",")).is_ok());
}

#[test]
fn enforces_limits() {
    let text = program(BASE, &[p(1, "abc"), p(2, "d")].join(","));
    for (field, value) in [("header_bytes", 10), ("tensors", 1), ("name_bytes", 2), ("dimensions", 0)] {
        let mut limits = Limits::default();
        limits.set(field, value).unwrap();
        let error = super::PirProgram::parse(text.as_bytes(), &limits).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{field}");
        assert!(error.hint_text().unwrap().contains(field));
    }
}

#[test]
fn detects_programs_by_content() {
    assert!(looks_like(br#"{"base_code":{"magic":"pir","trainable":true,"version":4},"program""#));
    assert!(looks_like(
        b"\xef\xbb\xbf {\n    \"base_code\" : {\r\n\t\"version\": 1,\n \"magic\": \"pir\"\n }"
    ));
    for other in [
        &b"{\"base_code\":{\"magic\":\"pip\"}}"[..],
        b"{\"base_code\":{}, \"magic\":\"pir\"",
        b"{\"base\":",
        b"[",
        b"",
        b"\x0a\x05",
    ] {
        assert!(!looks_like(other));
    }
}
