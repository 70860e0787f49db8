//! Files written and read by programs: golden files are reproduced byte for byte.

use super::*;
use weighbridge_core::tensor::Rounding;
use weighbridge_io::engine::RunOptions;

/// The names of the tensors of a golden folder, in the order of its combined file.
fn names(folder: &str) -> Vec<String> {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden(folder).join("expected.json")).unwrap()).unwrap();
    json["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
}

fn copied(from: &str, folder: &Path, to: &str) -> Vec<u8> {
    let bytes = std::fs::read(golden(from)).unwrap();
    std::fs::write(folder.join(to), &bytes).unwrap();
    bytes
}

#[test]
fn splits_and_combines_golden_files() {
    for (folder, file) in [
        ("good/p262/cnn_legacy_combined", "__params__"),
        ("good/p262/combined_mixed", "all.pdiparams"),
        ("good/p262/save_as_fp16", "fp16.pdiparams"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let all = copied(&format!("{folder}/{file}"), dir.path(), "all");
        let names = names(folder);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(names.len() > 8);
        let mut apart = vec![load_combine("all", &names)];
        apart.extend(names.iter().map(|name| save(name, &format!("sep/{name}"))));
        run(dir.path(), &program(apart), &mut Scope::new()).unwrap();
        assert_eq!(files(&dir.path().join("sep")).len(), names.len());
        let mut together: Vec<_> = names.iter().map(|name| load(&format!("./sep//{name}"), name)).collect();
        together.push(save_combine(&names, "again"));
        run(dir.path(), &program(together), &mut Scope::new()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("again")).unwrap(), all, "{folder}");
    }
}

#[test]
fn writes_separate_files_like_paddle() {
    let separate = "good/p262/cnn_legacy_separate";
    let dir = tempfile::tempdir().unwrap();
    copied("good/p262/cnn_legacy_combined/__params__", dir.path(), "all");
    let names = names("good/p262/cnn_legacy_combined");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut apart = vec![load_combine("all", &names)];
    apart.extend(names.iter().map(|name| save(name, name)));
    run(dir.path(), &program(apart), &mut Scope::new()).unwrap();
    for name in names {
        let theirs = std::fs::read(golden(separate).join(name)).unwrap();
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), theirs, "{name}");
    }
}

#[test]
fn saves_all_tensors_as_f16_with_lod() {
    let dir = tempfile::tempdir().unwrap();
    copied("good/p262/combined_mixed/all.pdiparams", dir.path(), "all");
    let all = names("good/p262/combined_mixed");
    let some = names("good/p262/save_as_fp16");
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let some: Vec<&str> = some.iter().map(String::as_str).collect();
    let theirs = std::fs::read(golden("good/p262/save_as_fp16/fp16.pdiparams")).unwrap();
    let steps = vec![
        load_combine("all", &all),
        with(save_combine(&some, "half"), "save_as_fp16", YES),
        with(save("Zeta", "zeta"), "save_as_fp16", YES),
        // The same by way of loading.
        save_combine(&some, "some"),
        with(load_combine("some", &some), "load_as_fp16", YES),
        save_combine(&some, "loaded"),
    ];
    run(dir.path(), &program(steps), &mut Scope::new()).unwrap();
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!(read("half"), theirs);
    assert_eq!(read("loaded"), theirs);
    assert_eq!(read("zeta"), std::fs::read(golden("good/p262/save_as_fp16/single_fp16.bin")).unwrap());
}

#[test]
fn copies_selected_rows_and_lod() {
    for name in ["f32_3rows.bin", "f16_unsorted.bin", "f64_dup.bin", "f32_norows.bin", "i64_1row.bin"] {
        let dir = tempfile::tempdir().unwrap();
        let bytes = copied(&format!("good/p262/selected_rows/{name}"), dir.path(), "in");
        let assign = op("assign", &[("X", &["a"])], &[("Out", &["b"])], &[]);
        let steps =
            declaring(vec![load("in", "a"), assign, save("b", "out")], &[("a", VariableKind::SelectedRows)]);
        run(dir.path(), &steps, &mut Scope::new()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), bytes, "{name}");
    }
    for name in
        ["float32_lod2.bin", "int64_lod1.bin", "bool_lod1.bin", "complex64_lod0.bin", "float32_rank9.bin"]
    {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = copied(&format!("good/p262/lod_tensors/{name}"), dir.path(), "in");
        // `load` ignores bytes after the tensor.
        std::fs::write(dir.path().join("more"), [&bytes[..], b"more"].concat()).unwrap();
        run(dir.path(), &program(vec![load("more", "a"), save("a", "out")]), &mut Scope::new()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), bytes, "{name}");
        bytes.pop();
        std::fs::write(dir.path().join("less"), &bytes).unwrap();
        let error = run(dir.path(), &program(vec![load("less", "a")]), &mut Scope::new()).unwrap_err();
        assert_eq!(error.code().as_str(), "truncated-data");
    }
}

#[test]
fn rewrites_a_foreign_desc_in_canonical_form() {
    let dir = tempfile::tempdir().unwrap();
    // Packed dimensions before the type.
    let odd = [&[0; 16][..], &[6, 0, 0, 0, 0x12, 2, 1, 2, 0x08, 0x14], &[7, 8]].concat();
    std::fs::write(dir.path().join("in"), odd).unwrap();
    run(dir.path(), &program(vec![load("in", "a"), save("a", "out")]), &mut Scope::new()).unwrap();
    let own = [&[0; 16][..], &[6, 0, 0, 0, 0x08, 0x14, 0x10, 1, 0x10, 2], &[7, 8]].concat();
    assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), own);
}

#[test]
fn preserves_vocabularies() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = copied("good/p262/vocab/vocab.pdiparams", dir.path(), "in");
    let names = ["another_vocab", "vocab"];
    let kinds = names.map(|name| (name, VariableKind::Vocab));
    let mut scope = Scope::new();
    let both = declaring(vec![load_combine("in", &names), save_combine(&names, "out")], &kinds);
    run(dir.path(), &both, &mut scope).unwrap();
    assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), bytes);
    assert!(matches!(scope.get("vocab"), Some(Value::Words(words)) if words.len() == 5));
    for (operator, code) in [
        (save("vocab", "x"), "not-savable"),
        (fetch("vocab", 0), "not-a-tensor"),
        (op("scale", &[("X", &["vocab"])], &[("Out", &["o"])], &[]), "not-a-tensor"),
    ] {
        assert_eq!(run(dir.path(), &program(vec![operator]), &mut scope).unwrap_err().code().as_str(), code);
    }
    assert_eq!(
        run(dir.path(), &declaring(vec![load("in", "vocab")], &kinds), &mut scope)
            .unwrap_err()
            .code()
            .as_str(),
        "not-loadable"
    );
}

#[test]
fn loads_parts_of_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..24u8).map(f32::from).collect();
    let part = |seek: i64, shape: &[i64]| {
        let load = with(with(load("w", "a"), "seek", int(seek)), "shape", ints(shape));
        run(dir.path(), &program(vec![load, fetch("a", 0)]), &mut Scope::new())
    };
    run(dir.path(), &program(vec![save("w", "w")]), &mut scope(&[("w", f32s(&values))])).unwrap();
    for (seek, shape, from, dims) in [
        (0, &[2, 4][..], 0, &[2, 4][..]),
        (4, &[2, 4], 4, &[2, 4]),
        (20, &[4], 20, &[4]),
        (3, &[], 3, &[]),
        (24, &[0], 24, &[0]),
        (-1, &[2, 2], 0, &[24]),
    ] {
        let entry = part(seek, shape).unwrap().remove(0).1;
        assert_eq!(entry.shape.dims(), dims);
        let count = usize::try_from(entry.elements()).unwrap();
        assert_eq!(bytes_of(&entry), bytes_of(&f32s(&values[from..from + count])));
    }
    for (seek, shape, code) in [
        (20, &[2, 4][..], "seek-outside"),
        (25, &[0], "seek-outside"),
        (i64::MAX, &[1], "seek-outside"),
        (0, &[1 << 40, 1 << 40], "seek-outside"),
        (-2, &[1], "attribute-value"),
        (0, &[-1], "attribute-value"),
    ] {
        assert_eq!(part(seek, shape).unwrap_err().code().as_str(), code, "{seek} {shape:?}");
    }
    copied("good/p262/lod_tensors/float32_lod1.bin", dir.path(), "w");
    assert_eq!(part(0, &[1]).unwrap_err().code().as_str(), "seek-with-lod");
}

#[test]
fn loading_and_saving_move_no_data() {
    let dir = tempfile::tempdir().unwrap();
    let big = tensor(DType::U8, &[3 << 20], &vec![7; 3 << 20]);
    run(dir.path(), &program(vec![save("w", "w")]), &mut scope(&[("w", big)])).unwrap();
    // No memory is taken for it, and a file may be replaced by what was loaded from it.
    let mut executor = Executor::new(dir.path());
    executor.memory = 0;
    let assign = op("assign", &[("X", &["a"])], &[("Out", &["b"])], &[]);
    let mut scope = Scope::new();
    let mut reported = Vec::new();
    let steps = program(vec![load("w", "a"), assign, save_combine(&["b", "a"], "w")]);
    executor
        .run_and_tell(&steps, &mut scope, &[], &mut |step, done| reported.push((step.place, done.bytes)))
        .unwrap();
    let stream = (3 << 20) + 27;
    assert_eq!(reported, [(0, stream), (1, 0), (2, 2 * stream)]);
    assert!(scope.tensor("b").unwrap().extents[0].source.file().is_some());
    assert_eq!(std::fs::read(dir.path().join("w")).unwrap().len() as u64, 2 * stream);
}

#[test]
fn replaces_files_only_if_program_and_caller_allow_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut scope = scope(&[("a", f32s(&[1.0])), ("b", f32s(&[2.0, 3.0]))]);
    let once =
        |name: &str, overwrite: AttributeValue| program(vec![with(save(name, "w"), "overwrite", overwrite)]);
    let mut executor = Executor::new(dir.path());
    executor.run(&once("a", NO), &mut scope, &[]).unwrap();
    let first = files(dir.path());
    let error = executor.run(&once("b", NO), &mut scope, &[]).unwrap_err();
    assert_eq!(error.code().as_str(), "exists");
    assert!(error.message().starts_with("operator 0 (save): "));
    executor.replace = false;
    assert_eq!(executor.run(&once("b", YES), &mut scope, &[]).unwrap_err().code().as_str(), "exists");
    assert_eq!(files(dir.path()), first);
    executor.replace = true;
    executor.run(&once("b", YES), &mut scope, &[]).unwrap();
    assert_ne!(files(dir.path()), first);
}

#[test]
fn failed_write_keeps_the_old_file() {
    use weighbridge_io::engine::Progress;
    #[derive(Debug)]
    struct Stop(std::sync::atomic::AtomicUsize);
    impl Progress for Stop {
        fn stopped(&self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut scope = scope(&[("a", f32s(&[1.0]))]);
    std::fs::write(dir.path().join("w"), b"old").unwrap();
    let mut executor = Executor::new(dir.path());
    executor.run = RunOptions { progress: Arc::new(Stop(0.into())), ..RunOptions::default() };
    let error = executor.run(&program(vec![save("a", "w")]), &mut scope, &[]).unwrap_err();
    assert_eq!(error.code().as_str(), "cancelled");
    assert_eq!(files(dir.path()), [("w".to_owned(), b"old".to_vec())]);
}

#[test]
fn runs_with_feeds_and_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let executor = Executor::new(dir.path());
    let two = AttributeValue::Float(2.0);
    let scale = op("scale", &[("X", &["x"])], &[("Out", &["y"])], &[("scale", two)]);
    let steps = program(vec![feed("z", 1), feed("x", 0), scale, fetch("z", 1), fetch("y", 0)]);
    let feeds = [("x".to_owned(), f32s(&[1.0])), ("z".to_owned(), f32s(&[5.0]))];
    let out = executor.run(&steps, &mut Scope::new(), &feeds).unwrap();
    let shown: Vec<_> =
        out.iter().map(|(name, entry)| (name.as_str(), entry.name(), bytes_of(entry))).collect();
    let expected = [("y", 2.0f32), ("z", 5.0)].map(|(n, v)| (n, n.to_owned(), v.to_le_bytes().to_vec()));
    assert_eq!(shown, expected);
    assert_eq!(
        executor.run(&steps, &mut Scope::new(), &feeds[..1]).unwrap_err().code().as_str(),
        "missing-feed"
    );
    let more = [&feeds[..], &[("q".to_owned(), f32s(&[]))]].concat();
    assert_eq!(executor.run(&steps, &mut Scope::new(), &more).unwrap_err().code().as_str(), "unknown-feed");
    // Without a `feed` operator, a value goes to the variable itself.
    let plain = program(vec![save("x", "x"), fetch("x", 0)]);
    assert_eq!(executor.run(&plain, &mut Scope::new(), &feeds[..1]).unwrap().len(), 1);
    assert_eq!(Rounding::Paddle262, executor.rounding);
}
