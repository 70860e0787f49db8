//! `edit` as a user meets it.

use crate::support::{Folder, code, golden, hashes, json, names, ok, refused, testdata, weighbridge};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;

#[test]
fn rules_on_the_command_line_and_in_a_file_do_the_same() {
    let folder = Folder::new();
    let source = folder.model("a.safetensors");
    let before = names(&source);
    assert!(before.contains(&"w1".to_owned()), "{before:?}");
    let (by_words, by_file, converted) =
        (folder.path("b.safetensors"), folder.path("c.safetensors"), folder.path("d.safetensors"));
    let rules = folder.path("rules.toml");
    fs::write(
        &rules,
        "version = 1\n[[rule]]\nrename-regex = '([wb])(\\d)=layer{2}.{1}'\n[[rule]]\nprefix = \"net\"\n\
         [[rule]]\ntranspose = \"net.*.w\"\n[[rule]]\ncast = \"*.b=f64\"\n[[rule]]\nset-metadata = \"from=a file\"\n",
    )
    .unwrap();
    ok(&[
        "edit",
        &source,
        &by_words,
        "--rename-regex",
        r"([wb])(\d)=layer{2}.{1}",
        "--prefix",
        "net",
        "--transpose",
        "net.*.w",
        "--cast",
        "*.b=f64",
        "--set-metadata",
        "from=a file",
    ]);
    ok(&["edit", &source, &by_file, "--rules", &rules]);
    ok(&["convert", &source, &converted, "--rules", &rules]);
    let bytes = fs::read(&by_words).unwrap();
    assert!(bytes == fs::read(&by_file).unwrap() && bytes == fs::read(&converted).unwrap());
    let told = json(&["ls", &by_words]);
    let one =
        |name: &str| told["tensors"].as_array().unwrap().iter().find(|t| t["name"] == name).unwrap().clone();
    assert_eq!(
        (&one("net.layer1.w")["shape"], &one("net.layer1.b")["dtype"]),
        (&json!([2, 8]), &json!("f64"))
    );
    assert_eq!(told["metadata"]["from"], "a file");
    let [a, b] = [("w1", &source), ("net.layer1.w", &by_words)]
        .map(|(name, file)| json(&["show", file, name])["values"].clone());
    assert_eq!((&a[5][1], &a[0][0]), (&b[1][5], &b[0][0]));

    fs::write(&rules, "[[rule]]\n\nrenam = \"a=b\"\n").unwrap();
    let error = json(&["edit", &source, &folder.path("x.npz"), "--rules", &rules])["error"].clone();
    assert_eq!((&error["code"], &error["offset"]), (&json!("unknown-key"), &json!(10)));
    assert!(error["message"].as_str().unwrap().starts_with("line 3: "), "{error}");
}

#[test]
fn a_plan_shows_before_and_after_and_writes_nothing() {
    let folder = Folder::new();
    let source = folder.model("a.npz");
    let target = folder.path("b.npz");
    let words = ["edit", &source, &target, "--rename", "w1=x", "--drop", "b*", "--cast", "x=f16", "--plan"];
    let text = ok(&words);
    assert!(text.contains("w1 -> x  f32 -> f16") && text.contains("b1  dropped"), "{text}");
    assert!(text.contains("would write"), "{text}");
    let plan = json(&words);
    assert_eq!((&plan["done"], &plan["how"]), (&json!(false), &json!("new-file")));
    let changes = plan["changes"].as_array().unwrap();
    assert!(changes.iter().all(|c| c["before"]["name"] != "w2"), "what stays is not listed");
    let x = changes.iter().find(|c| c["before"]["name"] == "w1").unwrap();
    assert_eq!(x["after"], json!({"name": "x", "dtype": "f16", "shape": [8, 2]}));
    assert_eq!(plan["casts"]["x"]["elements"], 16);
    assert!(plan["casts"]["x"]["worst_relative"].as_f64().unwrap() <= 2f64.powi(-11), "{plan}");
    assert_eq!(folder.count(), 1);
    ok(&words[..words.len() - 1]);
    assert_eq!(names(&target).iter().filter(|n| n.as_str() == "x").count(), 1);
}

#[test]
fn slips_are_errors_and_nothing_is_written() {
    let folder = Folder::new();
    let source = folder.model("a.npz");
    let target = folder.path("b.npz");
    for (words, code) in [
        (&["--rename", "w=x"][..], "no-match"),
        (&["--rename", "w1=w2"], "name-collision"),
        (&["--rename-glob", "w?=w"], "name-collision"),
        (&["--rename-regex", "w1)|(w2=x"], "bad-pattern"),
        (&["--rename-glob", "w?=x{2}"], "bad-template"),
        (&["--transpose", "w1=0,0"], "bad-rule"),
        (&["--cast", "i16"], "bad-rule"),
        (&["--remove-metadata", "nothing"], "no-match"),
        (&["--tie", "w1=w2"], "tie-differs"),
        (&["--in-place", "--to", "npz"], "bad-arguments"),
    ] {
        assert_eq!(refused(&[&["edit", &source, &target], words].concat()), code, "{words:?}");
    }
    let error = json(&["edit", &source, &target, "--rename", "w1=w2"])["error"].clone();
    assert_eq!(error["found"], "w1 and w2");
    assert_eq!(refused(&["edit", &source]), "bad-arguments");
    assert_eq!(folder.count(), 1);
    let text = ok(&["edit", &source, &target, "--rename", "w=x", "--rename", "w1=y", "--lenient-rules"]);
    assert!(text.contains("rule-unused") && text.contains("w=x"), "{text}");
}

/// The table in docs/src/reference/in-place.md lists the edits in place that each format allows, of files written by
/// Weighbridge and by others.
#[test]
fn in_place_in_every_format() {
    let docs = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/in-place.md"),
    )
    .unwrap();
    let start = docs.find("| file | same length |").unwrap();
    let table: Vec<Vec<String>> = docs[start..]
        .lines()
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    let folder = Folder::new();
    let copy = |golden: &str, name: &str| {
        fs::copy(testdata(golden), folder.path(name)).unwrap();
        folder.path(name)
    };
    // The file, and a tensor of it; the first where none is named.
    let npy = folder.path("a.npy");
    let npz = folder.model("a.npz");
    ok(&["convert", &npz, &npy, "--select", "w1", "-q"]);
    let files = [
        ("safetensors", folder.model("a.safetensors"), "w1"),
        ("safetensors of its own library", copy("safetensors/good/mlp.safetensors", "own.safetensors"), ""),
        ("npz", npz, "w1"),
        ("npz of numpy", copy("npz/good/stored.npz", "own.npz"), ""),
        ("npy", npy, ""),
        ("torch", folder.model("a.pt"), "w1"),
        ("torch of its own library", copy("torch/good/module_state.pt", "own.pt"), ""),
        ("hdf5", folder.model("a.h5"), "w1"),
        ("hdf5 of its own library", copy("hdf5/small/plain_default.h5", "own.h5"), ""),
        ("primitiv", folder.model("a.model"), "w1"),
        ("paddle .pdparams", folder.model("a.pdparams"), "w1"),
        ("paddle .pdiparams", folder.model("a.pdiparams"), ""),
        ("parquet with columns of other names", copy("tables/plain.parquet", "a.parquet"), ""),
    ];
    let mut found = Vec::new();
    for (what, path, name) in files {
        let first = names(&path)[0].clone();
        let name = if name.is_empty() { first.as_str() } else { name };
        // As long, and in the same place of an order by names.
        let twin = format!("{}{}", &name[..name.len() - 1], if name == "w1" { '0' } else { '_' });
        let listed = json(&["ls", &path]);
        let is_matrix = |t: &&Json| {
            let shape = t["shape"].as_array().unwrap();
            shape.len() == 2 && shape.iter().all(|extent| extent.as_u64() > Some(1))
        };
        let matrix = listed["tensors"].as_array().unwrap().iter().find(is_matrix);
        let matrix = matrix.map_or(name, |t| t["name"].as_str().unwrap()).to_owned();
        let before = fs::read(&path).unwrap();
        let sums = hashes(&path);
        let mut row = vec![what.to_owned()];
        let same = format!("{name}={twin}");
        let [longer, much_longer] = ["_new", "_that_is_much_longer_than_it_was_before"].map(|more| {
            assert!([4, 39].contains(&more.len()));
            format!("{name}={name}{more}")
        });
        let metadata = "note=something".to_owned();
        for (option, value) in [
            ("--rename", &same),
            ("--rename", &longer),
            ("--rename", &much_longer),
            ("--set-metadata", &metadata),
            ("--transpose", &matrix),
        ] {
            let words = ["edit", &path, "--in-place", option, value];
            let output = weighbridge(&[&words[..], &["--json"]].concat());
            let document: Json = serde_json::from_slice(&output.stdout).unwrap();
            if output.status.success() {
                let written = document["bytes"].as_u64().unwrap();
                assert!(written > 0 && document["ranges"].as_array().is_some(), "{what} {value}: {document}");
                let after = fs::read(&path).unwrap();
                assert_ne!(before, after, "{what} {value}");
                if option != "--transpose" {
                    let mut all = hashes(&path);
                    let mut was = sums.clone();
                    all.sort();
                    was.sort();
                    assert_eq!(all, was, "{what} {value}");
                }
                if option == "--rename" {
                    assert!(names(&path).iter().any(|n| value.ends_with(&format!("={n}"))), "{what} {value}");
                    assert!(!names(&path).iter().any(|n| n == name), "{what} {value}");
                }
                ok(&["edit", &path, "--undo"]);
                row.push("yes".to_owned());
            } else {
                row.push(format!("`{}`", document["error"]["code"].as_str().unwrap()));
            }
            assert_eq!(fs::read(&path).unwrap(), before, "{what} {value}");
            assert!(!Path::new(&format!("{path}.weighbridge-undo")).exists(), "{what} {value}");
        }
        found.push(row);
    }
    let shown: Vec<String> = found.iter().map(|row| format!("| {} |", row.join(" | "))).collect();
    assert_eq!(found, table, "the table should be:\n{}\n", shown.join("\n"));
}

#[test]
fn in_place_there_and_back_gives_the_same_bytes() {
    let folder = Folder::new();
    for name in ["a.safetensors", "a.pt", "a.model"] {
        let path = folder.model(name);
        let before = fs::read(&path).unwrap();
        for rename in ["w1=w0", "w0=w1"] {
            ok(&["edit", &path, "--in-place", "--rename", rename]);
            ok(&["edit", &path, "--forget-undo"]);
        }
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
    }
    // And in new files, where a format keeps the order read.
    for name in ["a.safetensors", "a.npz", "a.model", "a.pt"] {
        let path = folder.model(name);
        let (there, back) = (folder.path(&format!("there.{name}")), folder.path(&format!("back.{name}")));
        ok(&["edit", &path, &there, "--rename", "w1=other.name", "--transpose", "other.name"]);
        ok(&["edit", &there, &back, "--rename", "other.name=w1", "--transpose", "w1"]);
        assert_eq!(hashes(&back), hashes(&path), "{name}");
        if name != "a.npz" {
            assert_eq!(fs::read(&back).unwrap(), fs::read(&path).unwrap(), "{name}");
        }
    }
}

#[test]
fn an_edit_in_place_keeps_a_way_back() {
    let folder = Folder::new();
    let path = folder.model("a.safetensors");
    let before = fs::read(&path).unwrap();
    let planned = json(&["edit", &path, "--in-place", "--rename", "w1=x1", "--plan"]);
    assert_eq!((&planned["how"], &planned["done"]), (&json!("header"), &json!(false)));
    assert_eq!(fs::read(&path).unwrap(), before);
    let text = ok(&["edit", &path, "--in-place", "--rename", "w1=x1"]);
    assert!(text.contains("weighbridge-undo"), "{text}");
    assert_eq!(refused(&["edit", &path, "--in-place", "--rename", "x1=y1"]), "undo-exists");
    ok(&["edit", "--undo", &path]);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(refused(&["edit", "--undo", &path]), "no-undo-record");
    // An undo takes no other wishes, and no rewrite comes between.
    ok(&["edit", &path, "--in-place", "--rename", "w1=x1"]);
    let edited = fs::read(&path).unwrap();
    for other in [&["--plan"][..], &["--rename", "b1=c1"], &["--cast", "f16"], &["--force"], &["--to", "npz"]]
    {
        for word in ["--undo", "--forget-undo"] {
            assert_eq!(refused(&[&["edit", &path, word], other].concat()), "bad-arguments", "{other:?}");
        }
    }
    assert_eq!(refused(&["edit", &path, "--in-place=rewrite", "--transpose", "w2"]), "undo-exists");
    // What was changed since by others is left alone: here a weight.
    let mut other = edited.clone();
    *other.last_mut().unwrap() ^= 1;
    for bytes in [&other, &vec![b'X'; edited.len()]] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(refused(&["edit", &path, "--undo"]), "changed-since");
        assert_eq!((&fs::read(&path).unwrap(), folder.count()), (bytes, 2));
    }
    fs::write(&path, &edited).unwrap();
    ok(&["edit", &path, "--undo"]);
    assert_eq!(fs::read(&path).unwrap(), before);
    // A record without its file.
    ok(&["edit", &path, "--in-place", "--rename", "w1=x1"]);
    fs::remove_file(&path).unwrap();
    ok(&["edit", &path, "--forget-undo"]);
    assert_eq!(folder.count(), 0);
    fs::write(&path, &before).unwrap();
    // Nothing to write is nothing done.
    ok(&["edit", &path, "--in-place", "--rename", "w1=w1"]);
    assert_eq!((fs::read(&path).unwrap(), folder.count()), (before.clone(), 1));

    for (words, code) in [
        (&["--drop", "w1"][..], "data-would-move"),
        (&["--cast", "w1=f16"], "data-would-move"),
        (&["--transpose", "w1"], "data-would-move"),
        (&["--prefix", "a.very.long.name.for.which.there.is.no.room"], "no-room"),
        (&["--in-place=rewrite"], "nothing-to-edit"),
    ] {
        let place = if words[0].starts_with("--in-place") { &[][..] } else { &["--in-place"] };
        assert_eq!(refused(&[&["edit", &path], place, words].concat()), code, "{words:?}");
        assert_eq!((fs::read(&path).unwrap(), folder.count()), (before.clone(), 1), "{words:?}");
    }
    ok(&["edit", &path, "--in-place=rewrite", "--drop", "w1", "--cast", "f16"]);
    assert!(!names(&path).contains(&"w1".to_owned()) && folder.count() == 1);
    // Room for later.
    ok(&["edit", &path, "--in-place=rewrite", "--set", "header_padding=500"]);
    ok(&["edit", &path, "--in-place", "--prefix", "a.very.long.name.for.which.there.is.room"]);
}

#[cfg(unix)]
#[test]
fn links_names_and_rights_are_respected() {
    let folder = Folder::new();
    let path = folder.model("a.safetensors");
    let before = fs::read(&path).unwrap();
    let edit = |path: &str| refused(&["edit", path, "--in-place", "--rename", "w1=x1"]);
    std::os::unix::fs::symlink(&path, folder.path("link.safetensors")).unwrap();
    assert_eq!(edit(&folder.path("link.safetensors")), "link");
    fs::hard_link(&path, folder.path("twin.safetensors")).unwrap();
    assert_eq!(edit(&path), "several-names");
    // A new file under this name; the other name keeps the old one.
    ok(&["edit", &path, "--in-place=rewrite", "--rename", "w1=x1"]);
    assert_eq!(fs::read(folder.path("twin.safetensors")).unwrap(), before);
    let mut rights = fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&path, rights).unwrap();
    assert_eq!(edit(&path), "read-only");
}

/// The first of the golden models that has its program beside it.
#[test]
fn a_model_that_belongs_to_a_program_is_not_edited_alone() {
    let folder = Folder::new();
    let mut models = Vec::new();
    let root = testdata("paddle/good");
    for era in fs::read_dir(root).unwrap().flatten() {
        for case in fs::read_dir(era.path()).into_iter().flatten().flatten() {
            for file in fs::read_dir(case.path()).into_iter().flatten().flatten() {
                let path = file.path();
                if path.extension().is_some_and(|e| e == "pdiparams")
                    && path.with_extension("pdmodel").is_file()
                {
                    models.push(path);
                }
            }
        }
    }
    let model = models.into_iter().min().unwrap();
    fs::copy(&model, folder.path("m.pdiparams")).unwrap();
    fs::copy(model.with_extension("pdmodel"), folder.path("m.pdmodel")).unwrap();
    let path = folder.path("m.pdiparams");
    assert_eq!(refused(&["edit", &path, "--in-place", "--prefix", "x"]), "belongs-to-a-program");
}

#[test]
fn ties_are_shared_bytes_where_the_format_has_them() {
    let folder = Folder::new();
    let source = folder.model("a.pt");
    let (one, two, both) = (folder.path("one.pt"), folder.path("two.pt"), folder.path("both.pt"));
    ok(&["edit", &source, &one, "--keep", "w1", "--rename", "w1=embed"]);
    ok(&["edit", &source, &two, "--keep", "w1", "--rename", "w1=head"]);
    ok(&["merge", &one, &two, "-o", &both]);
    let tied = folder.path("tied.pt");
    ok(&["edit", &both, &tied, "--tie", "head=embed"]);
    let alias = |path: &str| json(&["ls", path])["tensors"][1]["alias_of"].clone();
    assert_eq!((alias(&tied), alias(&both)), (json!("embed"), Json::Null));
    // A rename is followed, and untying takes it back.
    let renamed = folder.path("renamed.pt");
    ok(&["edit", &tied, &renamed, "--prefix", "net"]);
    assert_eq!(alias(&renamed), "net.embed");
    let apart = folder.path("apart.pt");
    ok(&["edit", &renamed, &apart, "--untie", "*"]);
    assert_eq!(alias(&apart), Json::Null);
    assert_eq!(hashes(&apart), hashes(&both));
    // safetensors has no such names, and says so.
    let report = json(&["edit", &both, &folder.path("x.safetensors"), "--tie", "head=embed"]);
    assert_eq!(report["losses"][0]["code"], "tie-not-held");
    let report =
        json(&["edit", &both, &folder.path("y.safetensors"), "--tie", "head=embed", "--untie", "embed"]);
    assert_eq!(report["losses"], json!([]));
    // Of a name that is gone, or is another type or other elements now, nothing is shared.
    let three = folder.path("three.pt");
    ok(&["edit", &tied, &three, "--drop", "embed"]);
    assert_eq!(json(&["ls", &three])["tensors"][0]["alias_of"], Json::Null);
    ok(&["convert", &tied, &three, "--drop", "embed", "-f", "-q"]);
    assert_eq!(json(&["ls", &three])["tensors"][0]["alias_of"], Json::Null);
    ok(&["edit", &tied, &three, "--cast", "embed=f16", "-f"]);
    assert_eq!(alias(&three), Json::Null);
    let other = folder.path("other.pt");
    ok(&["edit", &source, &other, "--keep", "w2", "--rename", "w2=embed"]);
    ok(&["merge", &tied, &other, "--prefer", "last", "-o", &three, "-f"]);
    let told = json(&["ls", &three, "--hash"])["tensors"].clone();
    assert!(told.as_array().unwrap().iter().all(|t| t["alias_of"].is_null()), "{told}");
    assert_ne!(told[0]["sha256"], told[1]["sha256"]);
    // In shards both stay together, though one alone would be a shard.
    let shards = folder.path("shards");
    let report = json(&["shard", &tied, &shards, "--max-shard-size", "64"]);
    let told = report["shards"].as_array().unwrap();
    assert_eq!(
        (told.len(), &told[0]["tensors"], &told[0]["oversized"]),
        (1, &json!(2), &json!(true)),
        "{report}"
    );
}

/// The example file of docs/src/reference/rules.md has the documented effect.
#[test]
fn the_example_of_the_rules_works() {
    let docs =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/rules.md"))
            .unwrap();
    let start = docs.find("    # paddle-to-torch.toml").unwrap();
    let lines = docs[start..].lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let rules: Vec<&str> = lines.map(str::trim).take_while(|line| !line.starts_with("weighbridge")).collect();
    let folder = Folder::new();
    let file = folder.path("rules.toml");
    fs::write(&file, rules.join("\n")).unwrap();
    let source = folder.path("a.safetensors");
    let model = folder.model("m.safetensors");
    ok(&[
        "edit",
        &model,
        &source,
        "--rename",
        "w1=fc1.weight",
        "--rename",
        "w2=a.q_proj.weight",
        "--rename",
        "b1=bn._mean",
        "--rename",
        "b2=bn._variance",
    ]);
    let target = folder.path("b.safetensors");
    ok(&["edit", &source, &target, "--rules", &file]);
    let told = json(&["ls", &target]);
    let mut shapes: Vec<(String, Json)> = Vec::new();
    for tensor in told["tensors"].as_array().unwrap() {
        shapes.push((tensor["name"].as_str().unwrap().to_owned(), tensor["shape"].clone()));
    }
    shapes.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("a.q_proj.weight", json!([8, 1])),
        ("bn.running_mean", json!([8])),
        ("bn.running_var", json!([])),
        ("fc1.weight", json!([2, 8])),
    ];
    assert_eq!(shapes, expected.map(|(name, shape)| (name.to_owned(), shape)));
    assert_eq!(told["metadata"]["format"], "pt");
}

/// A hint speaks of what was asked for.
#[test]
fn what_would_be_lost_in_place_has_its_own_hint() {
    let folder = Folder::new();
    let path = folder.model("a.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(b"behind the end");
    fs::write(&path, &bytes).unwrap();
    let error = json(&["edit", &path, "--in-place", "--lenient", "--rename", "w1=q1"])["error"].clone();
    assert_eq!(error["code"], "loss-denied", "{error}");
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("new file") && !hint.contains("--deny-loss"), "{hint}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// Whose state it is follows from order and shape: it is told as a guess, and a transpose takes it along.
#[test]
fn a_training_checkpoint_of_torch_keeps_its_state_in_step() {
    let folder = Folder::new();
    let source = golden("torch/good/nested.pt");
    let told = |path: &str, name: &str| {
        let all = json(&["ls", path])["tensors"].clone();
        all.as_array().unwrap().iter().find(|t| t["name"] == name).cloned().unwrap_or_default()
    };
    let state = told(&source, "optimizer.state.0.exp_avg");
    assert_eq!((&state["role"], &state["state_of"]), (&json!("optimizer"), &json!("model.0.weight")));
    assert_eq!((&state["state_of_guessed"], &state["slot"]), (&json!(true), &json!(null)));
    let turned = folder.path("turned.safetensors");
    ok(&["edit", &source, &turned, "--transpose", "model.0.weight"]);
    for name in ["model.0.weight", "optimizer.state.0.exp_avg", "optimizer.state.0.exp_avg_sq"] {
        assert_eq!(told(&turned, name)["shape"], json!([3, 2]), "{name}");
    }
    assert_eq!(told(&turned, "optimizer.state.0.exp_avg")["state_of"], "model.0.weight");
    let back = folder.path("back.safetensors");
    ok(&["edit", &turned, &back, "--transpose", "model.0.weight"]);
    assert_eq!(hashes(&back), hashes(&source));
    // Without its state nothing is left of the optimizer.
    let bare = folder.path("bare.npz");
    ok(&["edit", &source, &bare, "--no-state"]);
    assert!(names(&bare).iter().all(|name| name.starts_with("model.")));
    assert_eq!(code(&["diff", &source, &bare, "--no-state"]), 0);
}
