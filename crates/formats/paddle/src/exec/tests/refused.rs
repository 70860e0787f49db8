//! Rejected programs: before anything runs where possible, and without access to files outside the folder.

use super::*;
use weighbridge_core::topology::AttributeValue as Value_;

/// Runs a program after a valid first step, in a nested folder. Returns the error, and asserts that no file was
/// written.
fn refused(operator: Operator) -> weighbridge_core::Error {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(dir.path().join("secret"), b"secret").unwrap();
    let mut scope = scope(&[("a", f32s(&[1.0]))]);
    let steps = program(vec![save("a", "first"), operator]);
    let error = run(&inner, &steps, &mut scope).unwrap_err();
    assert_eq!(files(dir.path()), [("secret".to_owned(), b"secret".to_vec())], "{error}");
    error
}

#[test]
fn reports_all_unknown_operators() {
    let dir = tempfile::tempdir().unwrap();
    let plain = |kind: &str| op(kind, &[], &[], &[]);
    let steps = program(vec![save("a", "w"), plain("relu"), plain("conv2d"), plain("relu")]);
    let executor = Executor::new(dir.path());
    for error in [
        executor.run(&steps, &mut scope(&[("a", f32s(&[1.0]))]), &[]).unwrap_err(),
        executor.plan(&steps).unwrap_err(),
    ] {
        assert_eq!(error.code().as_str(), "unknown-operators");
        assert_eq!(error.found_text(), Some("conv2d, relu (2 times)"));
    }
    assert_eq!(files(dir.path()), []);
    let none = Topology { blocks: Vec::new(), ..program(Vec::new()) };
    assert_eq!(executor.plan(&none).unwrap_err().code().as_str(), "no-main-block");
    let many = program((0..1000).map(|k| plain(&format!("op{k}"))).collect());
    assert!(executor.plan(&many).unwrap_err().found_text().unwrap().ends_with("and 900 more"));
}

#[test]
fn rejects_invalid_operators_before_running() {
    let out: &[(&str, &[&str])] = &[("Out", &["o"])];
    let a: &[(&str, &[&str])] = &[("X", &["a"])];
    let path = || ("file_path", text("w"));
    for (operator, code) in [
        (op("save", a, &[], &[]), "missing-attribute"),
        (op("save", a, &[], &[("file_path", int(1))]), "attribute-type"),
        (op("save", &[], &[], &[path()]), "operator-arity"),
        (op("save", &[("X", &["a", "a"])], &[], &[path()]), "operator-arity"),
        (op("save", &[("X", &["@EMPTY@"])], &[], &[path()]), "operator-arity"),
        (with(save("a", "w"), "overwrite", text("yes")), "attribute-type"),
        (op("save_combine", &[], &[], &[path()]), "operator-arity"),
        (with(save_combine(&["a"], "w"), "save_to_memory", YES), "in-memory"),
        (op("load", &[], &[], &[path()]), "operator-arity"),
        (op("load", &[], &[("Out", &["b", "c"])], &[path()]), "operator-arity"),
        (with(load("w", "b"), "shape", ints(&[-1])), "not-found"),
        (with(with(load("w", "b"), "seek", int(0)), "shape", int(1)), "attribute-type"),
        (op("load_combine", &[], &[], &[path()]), "operator-arity"),
        (with(load_combine("w", &["b"]), "model_from_memory", YES), "in-memory"),
        (op("feed", &[], out, &[]), "missing-attribute"),
        (op("fetch", a, &[], &[]), "missing-attribute"),
        (op("assign", a, &[], &[]), "operator-arity"),
        (op("assign", &[], out, &[]), "operator-arity"),
        (op("cast", a, out, &[]), "missing-attribute"),
        (op("cast", a, out, &[("out_dtype", int(7))]), "attribute-value"),
        (op("cast", a, out, &[("out_dtype", int(i64::MAX))]), "attribute-value"),
        (op("scale", a, out, &[("scale", text("2"))]), "attribute-type"),
        (op("scale", a, out, &[("scale", Value_::Variable("s".into()))]), "attribute-type"),
        (op("scale", &[("X", &["a"]), ("ScaleTensor", &["a", "a"])], out, &[]), "operator-arity"),
        (op("fill_constant", &[], out, &[("shape", ints(&[2, -1]))]), "attribute-value"),
        (op("fill_constant", &[], out, &[("shape", ints(&[1; 65]))]), "attribute-type"),
        (op("fill_constant", &[], out, &[("dtype", int(99))]), "attribute-value"),
        (op("fill_constant", &[], out, &[("str_value", int(9))]), "attribute-type"),
        (op("fill_constant", &[("ValueTensor", &["a"])], out, &[]), "input"),
        (op("fill_constant", &[("ShapeTensorList", &["a"])], out, &[]), "input"),
        (save("nowhere", "w"), "undefined-variable"),
        (op("scale", &[("X", &["a"]), ("ScaleTensor", &["s"])], out, &[]), "undefined-variable"),
    ] {
        // The valid operator whose file is invalid runs after the first step.
        if code == "not-found" {
            let dir = tempfile::tempdir().unwrap();
            let error = run(dir.path(), &program(vec![operator]), &mut Scope::new()).unwrap_err();
            assert_eq!(error.code().as_str(), code);
            continue;
        }
        let kind = operator.kind.clone();
        let error = refused(operator);
        assert_eq!(error.code().as_str(), code, "{error:?}");
        assert!(error.message().starts_with(&format!("operator 1 ({kind}): ")), "{error}");
    }
    let twice = program(vec![fetch("a", 0), fetch("a", 0)]);
    assert_eq!(Executor::new("").plan(&twice).unwrap_err().code().as_str(), "attribute-value");
}

#[test]
fn rejects_files_outside_the_folder() {
    let absolute = std::env::temp_dir().join("secret");
    for path in ["../secret", "x/../../secret", "/etc/hostname", "..", "", "a/", absolute.to_str().unwrap()] {
        assert_eq!(refused(load(path, "b")).code().as_str(), "unsafe-name", "{path}");
        assert_eq!(refused(save("a", path)).code().as_str(), "unsafe-name", "{path}");
        assert_eq!(refused(save_combine(&["a"], path)).code().as_str(), "unsafe-name", "{path}");
        assert_eq!(refused(load_combine(path, &["b"])).code().as_str(), "unsafe-name", "{path}");
    }
}

#[test]
fn accepts_absolute_paths_below_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("deep/w");
    let steps = program(vec![save("a", full.to_str().unwrap()), load("deep/w", "b"), fetch("b", 0)]);
    let plan = Executor::new(dir.path()).plan(&steps).unwrap();
    assert_eq!(plan[0].to_string(), "0 save a, writes deep/w");
    assert_eq!(plan[1].to_string(), "1 load -> b, reads deep/w");
    assert_eq!(plan[2].to_string(), "2 fetch b");
    assert_eq!(plan[1].to_json()["reads"], "deep/w");
    assert_eq!(files(dir.path()), []);
    let fetched = run(dir.path(), &steps, &mut scope(&[("a", f32s(&[4.0]))])).unwrap();
    assert_eq!(bytes_of(&fetched[0].1), 4f32.to_le_bytes());
}

#[cfg(unix)]
#[test]
fn rejects_links_below_the_folder() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
    std::fs::create_dir_all(inner.join("deep")).unwrap();
    std::fs::create_dir(&outer).unwrap();
    std::fs::write(outer.join("w"), b"old").unwrap();
    symlink(&outer, inner.join("folder")).unwrap();
    symlink(outer.join("w"), inner.join("deep/file")).unwrap();
    symlink("nowhere", inner.join("dead")).unwrap();
    let mut scope = scope(&[("a", f32s(&[4.0]))]);
    for path in ["folder/w", "folder/new/w", "folder", "deep/file", "dead"] {
        for operator in
            [save("a", path), load(path, "b"), save_combine(&["a"], path), load_combine(path, &["b"])]
        {
            let steps = program(vec![save("a", "first"), operator]);
            assert_eq!(
                Executor::new(&inner).plan(&steps).unwrap_err().code().as_str(),
                "unsafe-name",
                "{path}"
            );
            assert_eq!(run(&inner, &steps, &mut scope).unwrap_err().code().as_str(), "unsafe-name", "{path}");
        }
    }
    assert!(!inner.join("first").exists());
    assert_eq!(files(&outer), [("w".to_owned(), b"old".to_vec())]);
    // The folder itself may be a link: the caller chose it.
    symlink(&inner, dir.path().join("way")).unwrap();
    let steps = program(vec![save("a", "deep/w"), load("deep/w", "b")]);
    run(&dir.path().join("way"), &steps, &mut scope).unwrap();
    assert!(inner.join("deep/w").is_file());
}

#[test]
fn rejects_unsupported_saves_and_loads() {
    let dir = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| std::fs::copy(golden(from), dir.path().join(to)).unwrap();
    copy("good/p262/selected_rows/f32_3rows.bin", "rows");
    copy("good/p262/cnn_legacy_combined/__params__", "all");
    copy("good/p262/lod_tensors/float32_lod0.bin", "dense");
    let run = |operators: Vec<Operator>, kind: VariableKind| {
        run(dir.path(), &declaring(operators, &[("s", kind)]), &mut Scope::new())
    };
    let rows = || VariableKind::SelectedRows;
    let cast = op("cast", &[("X", &["s"])], &[("Out", &["o"])], &[("out_dtype", int(6))]);
    for (steps, kind, code) in [
        (vec![load("rows", "s"), save_combine(&["s"], "w")], rows(), "not-savable"),
        (vec![load("rows", "s"), with(save("s", "w"), "save_as_fp16", YES)], rows(), "not-savable"),
        (vec![load("rows", "s"), cast], rows(), "not-a-tensor"),
        (vec![with(load("rows", "s"), "load_as_fp16", YES)], rows(), "not-loadable"),
        (vec![with(load("rows", "s"), "seek", int(0))], rows(), "not-loadable"),
        (vec![load_combine("rows", &["s"])], rows(), "not-loadable"),
        (vec![load("rows", "s")], VariableKind::TensorArray, "not-loadable"),
        (vec![load("none", "s")], VariableKind::Tensor, "not-found"),
        (vec![load("all", "s"), save("s", "all/w")], VariableKind::Tensor, "not-a-folder"),
        (vec![load_combine("all", &["s"])], VariableKind::Tensor, "extra-tensors"),
        (vec![load_combine("dense", &["s", "t"])], VariableKind::Tensor, "missing-tensors"),
    ] {
        let place = steps.len() - 1;
        let error = run(steps, kind).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{error:?}");
        assert!(error.message().starts_with(&format!("operator {place} (")), "{error}");
    }
    // The rows as a dense tensor, and a dense tensor as rows.
    assert!(run(vec![load("rows", "s")], VariableKind::Tensor).is_err());
    assert!(run(vec![load("dense", "s")], rows()).is_err());
    // A folder instead of a file.
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    assert_eq!(
        run(vec![load("folder", "s")], VariableKind::Tensor).unwrap_err().code().as_str(),
        "not-a-file"
    );
    let error = run(vec![load("dense", "s"), save("s", "folder")], VariableKind::Tensor).unwrap_err();
    assert_eq!(error.code().as_str(), "not-a-file");
}

/// Vocabularies and LoD are copied for each variable; a file is written for each operator.
#[test]
fn charges_copied_and_written_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let words = vec![(weighbridge_core::checkpoint::Name::from("a"), 1); 1_000];
    let mut given = Scope::new();
    given.set("v", Value::Words(words));
    let assign = |to: &str| op("assign", &[("X", &["v"])], &[("Out", &[to])], &[]);
    let names: Vec<String> = (0..100).map(|number| format!("w{number}")).collect();
    let steps = program(names.iter().map(|name| assign(name)).collect());
    let executor = Executor { memory: 1 << 20, ..Executor::new(dir.path()) };
    let error = executor.run(&steps, &mut given.clone(), &[]).unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (weighbridge_core::Kind::Limit, "memory"));
    run(dir.path(), &steps, &mut given).unwrap();
    // A tensor of 4,000 bytes: eight times as much, and twice the memory.
    let saves = |count: usize| program((0..count).map(|number| save("a", &format!("o{number}"))).collect());
    let executor = Executor { memory: 2_000, ..Executor::new(dir.path()) };
    let given = scope(&[("a", f32s(&[1.0; 1_000]))]);
    executor.run(&saves(8), &mut given.clone(), &[]).unwrap();
    let error = executor.run(&saves(10), &mut given.clone(), &[]).unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (weighbridge_core::Kind::Limit, "too-much-written"));
    assert!(error.message().starts_with("operator 8 (save): "), "{error}");
}
