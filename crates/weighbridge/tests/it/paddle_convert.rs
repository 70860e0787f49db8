//! Conversions of Paddle models, in every direction, equal the files of Paddle byte for byte.

use crate::support::paddle::{bad, files_below, good, is_data, open, same_files, with_program};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use weighbridge::OpenOptions;
use weighbridge::formats::Names;
use weighbridge::ops::hash::{sha256, sha256_all};
use weighbridge::ops::merge::{Same, join, merge};
use weighbridge::ops::{Changes, ConvertOptions, convert, plan};
use weighbridge::plan::WritePlan;
use weighbridge_testkit::testdata;

/// To Paddle, as the kind.
fn to(kind: &str, settings: &[(&str, &str)]) -> ConvertOptions {
    ConvertOptions {
        to: Some("paddle".into()),
        kind: (!kind.is_empty()).then(|| kind.to_owned()),
        settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ConvertOptions::default()
    }
}

/// The same, with a program.
fn with(program: PathBuf, names: Names, options: ConvertOptions) -> ConvertOptions {
    let open = OpenOptions { names, ..with_program(program) };
    ConvertOptions { open, ..options }
}

fn codes(plan: &WritePlan) -> BTreeSet<&str> {
    plan.losses.iter().map(|loss| loss.code.as_str()).collect()
}

fn run(from: impl AsRef<Path>, target: impl AsRef<Path>, options: &ConvertOptions) -> WritePlan {
    let (from, target) = (from.as_ref(), target.as_ref());
    convert(from, target, options).unwrap_or_else(|e| panic!("{from:?} to {target:?}: {e}")).0
}

fn same(ours: impl AsRef<Path>, golden: impl AsRef<Path>) {
    let (ours, golden) = (ours.as_ref(), golden.as_ref());
    assert!(fs::read(ours).unwrap() == fs::read(golden).unwrap(), "{ours:?} {golden:?}");
}

fn temp() -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().to_owned();
    (temp, path)
}

/// Every file, written again in its own format.
#[test]
fn every_golden_file_comes_back_as_it_was() {
    let (_temp, dir) = temp();
    let (mut files, mut folders) = (0, 0);
    for (number, name) in files_below(&good("")).iter().filter(|f| is_data(f)).enumerate() {
        // An index of shards alone, another format, and lists that lead to their parameters.
        if name.extension().is_some_and(|e| e == "metadata" || e == "safetensors" || e == "info") {
            continue;
        }
        let golden = good("").join(name);
        let target = dir.join(number.to_string());
        run(&golden, &target, &to("", &[]));
        // A pickle of Python 2, and one that was split where no Paddle splits: the same tensors.
        if name.ends_with("py2.pdparams") || name.ends_with("big.pdparams") {
            let (ours, theirs) = (open(&target), open(&golden));
            assert_eq!(sha256_all(&ours, 1).unwrap(), sha256_all(&theirs, 1).unwrap());
            continue;
        }
        if target.is_file() {
            same(&target, &golden);
            files += 1;
            continue;
        }
        for written in &files_below(&target) {
            same(target.join(written), golden.parent().unwrap().join(written));
        }
        folders += 1;
    }
    assert_eq!((files, folders), (293, 24));
}

#[test]
fn every_model_folder_comes_back_as_it_was() {
    let (_temp, dir) = temp();
    for name in [
        "p262/cnn_legacy_combined",
        "p262/cnn_legacy_separate",
        "p262/cnn_static_infer",
        "p262/combined_mixed",
        "p262/control_flow",
        "p262/seq_legacy_separate",
        "p262/seq_static_infer",
        "p262/separate_mixed",
        "p262/vocab",
        "p331/cnn_jit",
        "p331/cnn_pir",
        "p331/cnn_pir_readable_nontrainable",
        "p331/cnn_pir_separate",
        "p331/control_flow_pir",
        "p331/seq_jit",
        "p331/seq_pir",
    ] {
        let target = dir.join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        run(good(name), &target, &to("", &[]));
        same_files(&target, &good(name));
        let again = plan(good(name), dir.join("other"), &to("", &[])).unwrap();
        assert_eq!(again.to_json(), plan(good(name), dir.join("other"), &to("", &[])).unwrap().to_json());
    }
}

/// The list of structured names comes back as it was, also the rows that are of no tensor; after a
/// rename it has the new names of the variables.
#[test]
fn layers_keep_their_structured_names() {
    let (_temp, dir) = temp();
    for name in ["p262/cnn_jit", "p262/seq_jit", "p331_oldir/cnn_jit", "p262/jit_multi_function"] {
        for names in [Names::AsStored, Names::Structured] {
            let target = dir.join(format!("{}{names:?}", name.replace('/', "_")));
            let open = OpenOptions { names, ..OpenOptions::default() };
            run(good(name), &target, &ConvertOptions { open, ..to("", &[]) });
            for file in ["model.pdmodel", "model.pdiparams", "model.pdiparams.info"] {
                same(target.join(file), good(name).join(file));
            }
        }
    }
    let rename = vec!["linear_0.w_0=head.weights".to_owned()];
    let changes = weighbridge::ops::Changes { rename, ..Default::default() };
    run(good("p262/seq_jit"), dir.join("renamed"), &ConvertOptions { changes, ..to("", &[]) });
    let renamed = open(dir.join("renamed"));
    let head = renamed.tensor("head.weights").unwrap();
    assert_eq!(head.text_attribute("structured_name"), Some("enc.layers.0.self_attn.q_proj.weight"));
}

#[test]
fn separate_and_combined_files_are_equivalent() {
    let (_temp, dir) = temp();
    run(good("p262/cnn_legacy_separate"), dir.join("a"), &to("inference", &[("era", "1")]));
    same(dir.join("a/__params__"), good("p262/cnn_legacy_combined/__params__"));
    same(dir.join("a/__model__"), good("p262/cnn_legacy_separate/__model__"));
    run(dir.join("a"), dir.join("b"), &to("separate", &[]));
    same_files(&dir.join("b"), &good("p262/cnn_legacy_separate"));

    run(good("p262/seq_legacy_separate/__model__"), dir.join("c"), &to("inference", &[("prefix", "x")]));
    same(dir.join("c/x.pdiparams"), good("p262/seq_static_infer/model.pdiparams"));
    // One file, without the program.
    run(good("p262/seq_legacy_separate"), dir.join("seq.pdiparams"), &to("", &[]));
    same(dir.join("seq.pdiparams"), good("p262/seq_static_infer/model.pdiparams"));

    run(good("p331/cnn_pir_separate"), dir.join("d"), &to("inference", &[("prefix", "model")]));
    same(dir.join("d/model.pdiparams"), good("p331/cnn_pir/model.pdiparams"));
    run(good("p331/cnn_pir"), dir.join("e"), &to("separate", &[]));
    for name in files_below(&dir.join("e")).iter().filter(|n| n.extension().is_none_or(|e| e != "json")) {
        same(dir.join("e").join(name), good("p331/cnn_pir_separate").join(name));
    }
    same(dir.join("e/__model__.json"), good("p331/cnn_pir/model.json"));

    // Names with slashes and dots, and types that this Paddle cannot write apart.
    run(good("p262/combined_mixed"), dir.join("f"), &to("separate", &[]));
    for name in files_below(&good("p262/separate_mixed")).iter().filter(|n| is_data(n)) {
        if name != Path::new("__model__") {
            same(dir.join("f").join(name), good("p262/separate_mixed").join(name));
        }
    }
    run(dir.join("f"), dir.join("g"), &to("inference", &[]));
    let combined =
        files_below(&dir.join("g")).into_iter().find(|f| f.extension().is_some_and(|e| e == "pdiparams"));
    same(dir.join("g").join(combined.unwrap()), good("p262/combined_mixed/all.pdiparams"));
    let error = convert(good("p262/separate_mixed"), dir.join("h"), &to("inference", &[])).unwrap_err();
    assert_eq!(error.code().as_str(), "parameters-missing");
    assert!(error.to_string().contains("cplx, flag"), "{error}");
}

#[test]
fn paddle_versions_differ_only_in_names() {
    let (_temp, dir) = temp();
    run(good("p262/cnn_static_infer"), dir.join("a"), &to("", &[("era", "1")]));
    run(dir.join("a"), dir.join("b"), &to("", &[("era", "2"), ("prefix", "inference")]));
    run(dir.join("b"), dir.join("c"), &to("", &[("era", "2"), ("prefix", "model")]));
    for (folder, program, parameters) in
        [("a", "__model__", "__params__"), ("b", "inference.pdmodel", "inference.pdiparams")]
    {
        let names: Vec<_> = files_below(&dir.join(folder));
        assert_eq!(
            names,
            [Path::new(program), Path::new(parameters)]
                .into_iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        same(dir.join(folder).join(program), good("p262/cnn_static_infer/model.pdmodel"));
        same(dir.join(folder).join(parameters), good("p262/cnn_static_infer/model.pdiparams"));
    }
    same_files(&dir.join("c"), &good("p262/cnn_static_infer"));
    run(good("p331/cnn_pir"), dir.join("p"), &to("", &[("era", "3"), ("prefix", "inference")]));
    same(dir.join("p/inference.json"), good("p331/cnn_pir/model.json"));
    assert_eq!(
        convert(good("p331/cnn_pir"), dir.join("q"), &to("", &[("era", "2")])).unwrap_err().code().as_str(),
        "era-of-other-form"
    );
}

#[test]
fn bridges_lead_there_and_back() {
    let (_temp, dir) = temp();
    for (number, (name, program)) in [
        ("p262/cnn_static_infer", "model.pdmodel"),
        ("p262/cnn_legacy_combined", "__model__"),
        ("p262/control_flow", "model.pdmodel"),
        ("p262/seq_static_infer", "model.pdmodel"),
        ("p262/cnn_legacy_separate", "__model__"),
        ("p262/separate_mixed", "__model__"),
        ("p262/combined_mixed", "program.pb"),
        ("p331/cnn_pir", "model.json"),
        ("p331/seq_jit", "model.json"),
        ("p331/cnn_pir_separate", "__model__.json"),
    ]
    .into_iter()
    .enumerate()
    {
        for bridge in ["safetensors", "npz"] {
            // numpy has no bfloat16, safetensors no complex128.
            let file = dir.join(format!("{number}.{bridge}"));
            let plan = match convert(good(name), &file, &ConvertOptions::default()) {
                Ok((plan, _)) => plan,
                Err(error) => {
                    assert_eq!((bridge, name.contains("mixed")), ("npz", true), "{name}: {error}");
                    continue;
                }
            };
            let wanted: BTreeSet<&str> = if name == "p262/separate_mixed" {
                ["omitted", "program"].into()
            } else {
                ["program"].into()
            };
            assert_eq!(codes(&plan), wanted, "{name} {bridge}");
            let target = dir.join(format!("{number}.{bridge}.back"));
            let program = good(name).join(program);
            if name == "p262/separate_mixed" {
                let back = convert(&file, &target, &with(program, Names::AsStored, to("", &[])));
                assert_eq!(back.unwrap_err().code().as_str(), "parameters-missing");
                continue;
            }
            run(&file, &target, &with(program, Names::AsStored, to("", &[])));
            same_files(&target, &good(name));
        }
    }
}

#[test]
fn states_and_combined_files() {
    let (_temp, dir) = temp();
    let program = || good("p262/cnn_static_infer/model.pdmodel");
    // Pickled parameters of the training run, with the program for inference.
    let pickled = good("p262/cnn_static_train/train.pdparams");
    let options = with(program(), Names::AsStored, to("inference", &[("prefix", "model")]));
    assert_eq!(codes(&run(&pickled, dir.join("a"), &options)), BTreeSet::new());
    same_files(&dir.join("a"), &good("p262/cnn_static_infer"));
    // And a combined file as a state, and back.
    let lost = run(good("p262/cnn_static_infer"), dir.join("b.pdparams"), &to("", &[]));
    assert_eq!(codes(&lost), ["program"].into());
    let state = open(dir.join("b.pdparams"));
    assert_eq!((state.kind, state.tensors.len()), ("state", 13));
    run(dir.join("b.pdparams"), dir.join("c"), &options);
    same_files(&dir.join("c"), &good("p262/cnn_static_infer"));
    // Without the program the names are lost, and their order is that of the names.
    let lost = run(&pickled, dir.join("d.pdiparams"), &to("", &[]));
    assert_eq!(codes(&lost), ["names"].into());
    same(dir.join("d.pdiparams"), good("p262/cnn_static_infer/model.pdiparams"));
}

#[test]
fn structured_names_lead_to_variables_and_back() {
    let (_temp, dir) = temp();
    for (number, name) in ["p262/cnn_jit", "p262/seq_jit"].into_iter().enumerate() {
        let file = dir.join(format!("{number}.pdparams"));
        let open_as = |names| OpenOptions { names, ..OpenOptions::default() };
        let options = ConvertOptions { open: open_as(Names::Structured), ..ConvertOptions::default() };
        run(good(name), &file, &options);
        let state = open(&file);
        assert!(state.tensors.iter().all(|t| t.text_attribute("variable_name").is_some()));
        let original = weighbridge::formats::open_with(good(name), &open_as(Names::Structured)).unwrap();
        for entry in &original.tensors {
            assert_eq!(sha256(state.tensor(&entry.name()).unwrap()).unwrap(), sha256(entry).unwrap());
        }
        for names in [Names::Variable, Names::Structured, Names::AsStored] {
            let target = dir.join(format!("{number}{names:?}"));
            let program = good(name).join("model.pdmodel");
            run(&file, &target, &with(program, names, to("inference", &[("prefix", "model")])));
            same(target.join("model.pdiparams"), good(name).join("model.pdiparams"));
            same(target.join("model.pdmodel"), good(name).join("model.pdmodel"));
        }
        // Through a bridge, under structured names.
        let st = dir.join(format!("{number}.safetensors"));
        run(good(name), &st, &options);
        let target = dir.join(format!("{number}.st"));
        run(&st, &target, &with(good(name).join("model.pdmodel"), Names::AsStored, to("", &[])));
        same(target.join("model.pdiparams"), good(name).join("model.pdiparams"));
    }
}

#[test]
fn training_folders_become_one_state() {
    let (_temp, dir) = temp();
    for (number, name) in
        ["p262/cnn_static_train", "p262/seq_static_train", "p331/cnn_pir_train"].into_iter().enumerate()
    {
        let file = dir.join(format!("{number}.pdparams"));
        assert_eq!(codes(&run(good(name), &file, &to("", &[]))), ["program"].into());
        let (ours, golden) = (open(&file), open(good(name)));
        let names = |c: &weighbridge::Checkpoint| c.tensors.iter().map(|t| t.name()).collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&golden));
        assert_eq!(sha256_all(&ours, 1).unwrap(), sha256_all(&golden, 1).unwrap());
    }
    // The state is not in a program for inference, and that is said.
    let program = good("p262/cnn_static_infer/model.pdmodel");
    let options = with(program, Names::AsStored, to("inference", &[("prefix", "model")]));
    let plan = run(dir.join("0.pdparams"), dir.join("x"), &options);
    assert_eq!((codes(&plan), plan.losses.len()), (["not-in-program"].into(), 37));
    same_files(&dir.join("x"), &good("p262/cnn_static_infer"));
    let denied = ConvertOptions { deny_loss: true, ..options };
    assert_eq!(
        convert(dir.join("0.pdparams"), dir.join("y"), &denied).unwrap_err().code().as_str(),
        "loss-denied"
    );
    assert!(!dir.join("y").exists());
}

#[test]
fn unsupported_data_is_a_loss() {
    let (_temp, dir) = temp();
    let plan = run(good("p262/combined_mixed"), dir.join("a.pdparams"), &to("", &[]));
    assert_eq!(codes(&plan), ["attribute-dropped", "program"].into());
    let lod = plan.losses.iter().find(|loss| loss.code == "attribute-dropped").unwrap();
    assert_eq!(lod.subject, "alpha");
    let plan = run(good("p262/selected_rows/f64_dup.bin"), dir.join("b"), &to("tensor", &[]));
    assert_eq!(codes(&plan), ["rows"].into());
    let plan = run(good("p262/jit_multi_function"), dir.join("multi"), &to("", &[]));
    assert_eq!(codes(&plan), ["omitted"].into());
    let plan = run(good("p262/cnn_static_infer"), dir.join("c.pdmodel"), &to("", &[]));
    assert_eq!(codes(&plan), ["tensors"].into());
    same(dir.join("c.pdmodel"), good("p262/cnn_static_infer/model.pdmodel"));

    // Two structured names of one variable.
    let open = OpenOptions { names: Names::Structured, ..OpenOptions::default() };
    let mut tied = weighbridge::formats::open_with(good("p262/cnn_jit"), &open).unwrap();
    let mut other = tied.tensor("fc.weight").unwrap().clone();
    other.path = weighbridge::checkpoint::TensorPath::from_dotted("head.weight");
    tied.tensors.push(other);
    let paddle = weighbridge::formats::registry().by_id("paddle").unwrap();
    let plan =
        weighbridge::ops::plan_checkpoint(tied, paddle, Some("combined".into()), &to("", &[])).unwrap();
    assert_eq!(codes(&plan), ["structured-names"].into());
    weighbridge::ops::save(&plan, dir.join("tied"), false, &Default::default()).unwrap();
    same(dir.join("tied"), good("p262/cnn_jit/model.pdiparams"));
}

#[test]
fn dropped_name_list_entries_are_a_loss() {
    let (_temp, dir) = temp();
    // The functions of a layer share the list, so one of them lacks variables of the others.
    let model = good("p262/jit_multi_function/model.second.pdmodel");
    for (number, options) in
        [to("", &[("era", "1")]), to("separate", &[]), to("combined", &[]), to("state", &[])]
            .into_iter()
            .enumerate()
    {
        let plan = run(&model, dir.join(number.to_string()), &options);
        let loss = plan.losses.iter().find(|loss| loss.code == "info-entries").unwrap();
        assert!(loss.is_left_out() && loss.detail.contains("linear_1.b_0, linear_1.w_0"), "{loss:?}");
    }
    let plan = run(&model, dir.join("s.safetensors"), &ConvertOptions::default());
    assert!(codes(&plan).contains("info-entries"));
    let plan = run(&model, dir.join("kept"), &to("inference", &[]));
    assert_eq!(codes(&plan), [].into());
    same(dir.join("kept/model.pdiparams.info"), good("p262/jit_multi_function/model.pdiparams.info"));

    // A frozen parameter: a pickle does not say so.
    let mut frozen = weighbridge::formats::open(good("p262/cnn_jit")).unwrap();
    for entry in &mut frozen.tensors {
        entry.attributes.remove("structured_name");
    }
    let plan = |frozen: &weighbridge::Checkpoint| {
        let paddle = weighbridge::formats::registry().by_id("paddle").unwrap();
        weighbridge::ops::plan_checkpoint(frozen.clone(), paddle, Some("state".into()), &to("", &[])).unwrap()
    };
    assert!(!codes(&plan(&frozen)).contains("attribute-dropped"));
    frozen.tensors[0].attributes.insert("trainable".into(), weighbridge::checkpoint::Value::Bool(false));
    let losses = plan(&frozen).losses;
    assert!(
        losses.iter().any(|l| l.code == "attribute-dropped" && l.detail.contains("trainable")),
        "{losses:?}"
    );
}

#[test]
fn casts_keep_levels_and_rows() {
    let (_temp, dir) = temp();
    let options = || {
        let changes = Changes { cast: Some(weighbridge::tensor::DType::F64), ..Changes::default() };
        ConvertOptions { changes, ..to("", &[]) }
    };
    for (name, attributes) in [
        ("p262/lod_tensors/float32_lod2.bin", &["lod"][..]),
        ("p262/selected_rows/f32_3rows.bin", &["height", "rows"]),
        ("p262/combined_mixed/all.pdiparams", &[]),
    ] {
        let target = dir.join(Path::new(name).file_name().unwrap());
        run(good(name), &target, &options());
        let program = match name.contains("mixed") {
            true => with_program(good("p262/combined_mixed/program.pb")),
            false => OpenOptions::default(),
        };
        let (ours, golden) = (weighbridge::formats::open_with(&target, &program).unwrap(), open(good(name)));
        for (a, b) in ours.tensors.iter().zip(&golden.tensors) {
            assert_eq!((a.name().replace(".bin", ""), &a.shape), (b.name().replace(".bin", ""), &b.shape));
            assert_eq!(a.attributes, b.attributes);
            let float = matches!(b.dtype().name(), "f16" | "bf16" | "f32" | "f64");
            assert_eq!(a.dtype().name(), if float { "f64" } else { b.dtype().name() });
            for key in attributes {
                assert!(a.attributes.contains_key(*key), "{name} {key}");
            }
        }
    }
}

#[test]
fn vocabularies_are_written_and_read_back() {
    let (_temp, dir) = temp();
    run(good("p262/vocab"), dir.join("a"), &to("separate", &[]));
    assert_eq!(files_below(&dir.join("a")), ["__model__", "another_vocab", "vocab"].map(PathBuf::from));
    run(dir.join("a"), dir.join("b"), &to("inference", &[("prefix", "vocab")]));
    same(dir.join("b/vocab.pdiparams"), good("p262/vocab/vocab.pdiparams"));
    same(dir.join("b/vocab.pdmodel"), good("p262/vocab/program.pb"));
}

/// The byte layouts of the design notes, for those with a reader for them.
#[test]
fn streams_of_the_design_notes() {
    let (_temp, dir) = temp();
    let sized = to("combined", &[("stream", "size-prefixed")]);
    let plan = run(good("p262/cnn_static_infer/model.pdiparams"), dir.join("a"), &sized);
    assert_eq!(codes(&plan), ["paddle-cannot-read"].into());
    same(dir.join("a"), bad("p262/damaged/size_prefixed.pdiparams"));
    run(dir.join("a"), dir.join("b"), &to("", &[]));
    same(dir.join("b"), good("p262/cnn_static_infer/model.pdiparams"));
    for name in ["float32_lod2.bin", "int8_lod1.bin", "complex64_0d.bin"] {
        let golden = good("p262/lod_tensors").join(name);
        let (noted, back) = (dir.join(format!("{name}.note")), dir.join(name));
        run(&golden, &noted, &to("tensor", &[("stream", "design-note")]));
        assert_ne!(fs::read(&noted).unwrap(), fs::read(&golden).unwrap());
        run(&noted, &back, &to("", &[]));
        same(&back, &golden);
    }
    let error =
        convert(good("p262/cnn_static_infer"), dir.join("c"), &to("combined", &[("stream", "design-note")]));
    assert_eq!(error.unwrap_err().code().as_str(), "one-stream");
}

/// Parameters go by their structured names and state by those of variables: the table of names joins them.
#[test]
fn parameters_and_their_state_are_merged() {
    let (_temp, dir) = temp();
    for (folder, stem) in [
        ("cnn_state_dict", "m_p2"),
        ("cnn_state_dict", "m_p4"),
        ("seq_state_dict", "m_p4"),
        ("master_weights", "lin_p4"),
    ] {
        for era in ["p262", "p331"] {
            let file = |ending: &str| good(&format!("{era}/{folder}/{stem}.{ending}"));
            let (parts, target) = ([file("pdparams"), file("pdopt")], dir.join("both.pdparams"));
            let options = ConvertOptions { force: true, ..to("", &[]) };
            let merged = merge(&parts, &target, Same::Refuse, &options).unwrap();
            assert!(codes(&merged.plan).iter().all(|code| !code.starts_with("read-as")), "{era} {folder}");
            weighbridge::ops::save(&merged.plan, &target, true, &options.run).unwrap();
            let reported = |checkpoint: &weighbridge::Checkpoint| {
                let one = |t: &weighbridge::TensorEntry| (t.text(), t.role.clone());
                checkpoint.tensors.iter().map(one).collect::<Vec<_>>()
            };
            // As in a folder of both, also before it is written.
            let beside = dir.join("beside");
            let _ = fs::remove_dir_all(&beside);
            fs::create_dir(&beside).unwrap();
            for part in &parts {
                fs::copy(part, beside.join(part.file_name().unwrap())).unwrap();
            }
            let mut wanted = reported(&open(&beside));
            assert!(wanted.iter().any(|(name, _)| name.contains("weight/")), "{era} {folder}");
            let (joined, _) = join(parts.iter().map(open).collect(), Same::Refuse).unwrap();
            assert_eq!(reported(&joined), wanted, "{era} {folder}");
            let mut found = reported(&open(&target));
            wanted.sort_by(|a, b| a.0.cmp(&b.0));
            found.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(found, wanted, "{era} {folder}");
        }
    }
}

#[test]
fn a_kind_without_names_reports_what_it_cannot_hold() {
    let (_temp, folder) = temp();
    let source = testdata("samples/checkpoint.pt");
    let plan = plan(source, folder.join("m.pdiparams"), &ConvertOptions::default()).unwrap();
    assert_eq!(codes(&plan), BTreeSet::from(["metadata-dropped", "names", "read-as-parameter"]));
}
