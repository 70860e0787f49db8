//! PyTorch-BigGraph as a user of the command meets it.

use crate::support::{command, testdata};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

fn golden(name: &str) -> PathBuf {
    testdata("biggraph/set1").join(name)
}

/// Splits at blanks; a word that begins with `@` is a golden path, one with `%` is below `dir`.
fn run(dir: &Path, line: &str) -> Output {
    let word = |word: &str| match word.split_at(1) {
        ("@", rest) => golden(rest),
        ("%", rest) => dir.join(rest),
        _ => PathBuf::from(word),
    };
    let words: Vec<PathBuf> = line.split(' ').map(word).collect();
    command(&[]).args(words).output().unwrap()
}

fn ok(dir: &Path, line: &str) -> String {
    let output = run(dir, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, line: &str) -> Json {
    serde_json::from_slice(&run(dir, line).stdout).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

#[test]
fn rows_are_shown_by_name_and_pieces_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> =
        serde_json::from_slice(&fs::read(golden("std/entities/entity_names_user_1.json")).unwrap()).unwrap();
    let plain = |name: &&String| name.bytes().all(|b| b.is_ascii_alphanumeric());
    let row = names.iter().position(|name| plain(&name)).unwrap();
    let entities = "--entities @std/entities";
    let by_name = ok(dir.path(), &format!("show @ckpt_std_zip embeddings.user['{}'] {entities}", names[row]));
    let by_number = ok(dir.path(), &format!("show @ckpt_std_zip embeddings.user[{}] {entities}", 15 + row));
    assert_eq!(by_name, by_number);
    let listed = json(dir.path(), "ls @ckpt_std_zip --pieces --json");
    let user = listed["tensors"].as_array().unwrap().iter().find(|t| t["name"] == "embeddings.user").unwrap();
    let starts: Vec<_> = user["pieces"].as_array().unwrap().iter().map(|p| p["start"][0].as_u64()).collect();
    assert_eq!(starts, [Some(0), Some(15), Some(30), Some(45)]);
}

/// An operator can have no parameters; the file is read all the same.
#[test]
fn a_model_file_without_parameters_is_part_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden("ckpt_weighted"), &dir.path().join("bg"));
    let report = json(dir.path(), "verify %bg --json");
    assert_eq!((&report["verdict"], &report["other_files"]), (&"sound".into(), &Json::Null), "{report}");
    assert!(report["files"].to_string().contains("model.v1.h5"), "{report}");
    let model = dir.path().join("bg/model.v1.h5");
    let mut bytes = fs::read(&model).unwrap();
    bytes.extend(*b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.");
    bytes.resize(bytes.len() + 400, b'x');
    fs::write(&model, bytes).unwrap();
    let report = json(dir.path(), "verify %bg --json");
    assert_eq!(report["verdict"], "could-not-tell", "{report}");
    assert!(report["findings"].to_string().contains("trailing-bytes"), "{report}");
}

/// A file of the model that is damaged is one of the model, and not one that stands beside it.
#[test]
fn a_damaged_model_file_is_part_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden("ckpt_std_zip"), &dir.path().join("bg"));
    let model = dir.path().join("bg/model.v6.h5");
    fs::File::options().write(true).open(model).unwrap().set_len(500).unwrap();
    fs::write(dir.path().join("bg/stranger"), "words").unwrap();
    let report = json(dir.path(), "verify %bg --json");
    assert_eq!(report["verdict"], "unsound");
    let others = report["other_files"].to_string();
    assert!(others.contains("stranger") && !others.contains("model.v6"), "{others}");
}

#[test]
fn a_checkpoint_its_entities_and_its_edges_are_repartitioned() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(at, "convert @ckpt_std_zip %m --to biggraph --set partitions=3");
    ok(at, "convert @std/entities %entities --to biggraph --set partitions=3");
    ok(
        at,
        "convert @std/edges %edges --to biggraph --set partitions=3 --config @ckpt_std_zip/config.json --entities @std/entities",
    );
    for line in
        ["verify %m --entities %entities", "verify %edges --entities %entities --config %m/config.json"]
    {
        let output = run(at, line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    }
    let report = json(at, "diff @ckpt_std_zip %m --no-metadata --json");
    assert_eq!((&report["same"], &report["equal"]), (&Json::Bool(true), &Json::from(62)), "{report}");
    assert_eq!(json(at, "checkpoint %m --json")["done"], Json::Array(vec![]));
}

#[test]
fn a_table_from_elsewhere_takes_the_places_of_its_entities() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(
        at,
        "convert @ckpt_std_zip %user.parquet --select embeddings.user --no-state --entities @std/entities",
    );
    let config = "--config @ckpt_std_zip/config.json --entities @std/entities";
    ok(
        at,
        &format!(
            "convert %user.parquet %init --to biggraph --kind init --set type=user {config} --deny-loss"
        ),
    );
    let hash = |path: &str| {
        let listed = json(at, &format!("ls {path} --hash --json"));
        let tensors = listed["tensors"].as_array().unwrap().clone();
        tensors.into_iter().find(|t| t["name"] == "embeddings.user").unwrap()["sha256"].clone()
    };
    assert_eq!(hash("%init"), hash("@ckpt_std_zip"));
    assert!(at.join("init/embeddings_user_3.v0.h5").is_file());
}

#[test]
fn versions_are_listed_recovered_and_guarded() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    copy(&golden("ckpt_std_zip"), &at.join("c"));
    fs::remove_dir_all(at.join("c/epoch_2")).unwrap();
    let shown = json(at, "checkpoint %c --json");
    assert_eq!(run(at, "checkpoint %c").status.code(), Some(0));
    assert!(shown["damaged"].as_object().unwrap().is_empty());

    // An empty version file: BigGraph would start over.
    fs::write(at.join("c/checkpoint_version.txt"), "").unwrap();
    assert_eq!(run(at, "ls %c").status.code(), Some(2));
    assert_eq!(run(at, "checkpoint %c").status.code(), Some(1));
    // Also where nobody reads what it says.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut deaf = command(&[]);
    let status = deaf.arg("checkpoint").arg(at.join("c")).stdout(writer).stderr(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(1));
    ok(at, "checkpoint %c --recover");
    assert_eq!(fs::read_to_string(at.join("c/checkpoint_version.txt")).unwrap(), "6\n");

    // A file that was cut: nothing is deleted while what stays cannot be read.
    let cut = at.join("c/embeddings_user_2.v6.h5");
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..9000]).unwrap();
    assert_eq!(run(at, "checkpoint %c").status.code(), Some(1));
    assert_eq!(run(at, "checkpoint %c --prune --keep 1").status.code(), Some(2));
    assert_eq!(run(at, "checkpoint %c --sweep all").status.code(), Some(2));
    assert!(at.join("c/model.v4.h5").is_file());
    ok(at, "checkpoint %c --rollback 4");
    assert_eq!(fs::read_to_string(at.join("c/checkpoint_version.txt")).unwrap(), "4\n");
    fs::write(&cut, &bytes).unwrap();
    ok(at, "checkpoint %c --rollback 6");
    ok(at, "checkpoint %c --prune --keep 1");
    assert!(!at.join("c/model.v4.h5").exists() && at.join("c/model.v6.h5").is_file());
}

#[test]
fn a_table_grows_and_initial_rows_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::write(at.join("new.txt"), "new1\nnew2\nnew3\nnew4\nnew5\n").unwrap();
    ok(
        at,
        "convert @ckpt_std_zip %g --to biggraph --grow user=NEW --set entities=yes --entities @std/entities"
            .replace("NEW", at.join("new.txt").to_str().unwrap())
            .as_str(),
    );
    assert_eq!(fs::read_to_string(at.join("g/entity_count_user_0.txt")).unwrap(), "17\n");
    let shown = ok(at, "show %g embeddings.user['new5'] --entities %g");
    assert!(shown.contains("f32 [8]"), "{shown}");
    ok(
        at,
        "convert @std/entities %i --to biggraph --kind init --draw --seed 7 --config @ckpt_std_zip/config.json",
    );
    assert!(at.join("i/embeddings_item_3.v0.h5").is_file());
}

/// The codes in a list of findings, losses or notes.
fn codes(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect()
}

#[test]
fn incomplete_optimizer_state_is_unsound() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let written =
        json(at, "convert @ckpt_std_zip %m --to biggraph --drop relations.1.operator.rhs.*/step --json");
    assert!(codes(&written["losses"]).contains(&"state-incomplete"), "{written}");
    let report = json(at, "verify %m --json");
    assert_eq!(report["verdict"], "unsound");
    let found =
        report["findings"].as_array().unwrap().iter().find(|f| f["code"] == "state-incomplete").unwrap();
    assert!(found["text"].as_str().unwrap().contains("relations.1.operator.rhs"), "{found}");
    assert_eq!(run(at, "checkpoint %m").status.code(), Some(1));
    ok(at, "convert @ckpt_std_zip %bare --to biggraph --no-state");
    ok(at, "verify %bare");
    ok(at, "checkpoint %bare");
}

#[test]
fn the_folders_configuration_must_be_that_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(at, "convert @ckpt_std_zip %m --to biggraph");
    ok(at, "verify %m");
    ok(at, "checkpoint %m");
    let path = at.join("m/config.json");
    let truth: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let change = |what: &dyn Fn(&mut Json)| {
        let mut config = truth.clone();
        what(&mut config);
        fs::write(&path, config.to_string()).unwrap();
        let report = json(at, "verify %m --json");
        assert_eq!(report["verdict"], "unsound", "{report}");
        assert_eq!(run(at, "checkpoint %m").status.code(), Some(1), "{config}");
        codes(&report["findings"]).iter().map(|code| (*code).to_owned()).collect::<Vec<_>>()
    };
    let found = change(&|c| c["entities"]["user"]["num_partitions"] = 8.into());
    assert!(found.contains(&"partitions-differ".to_owned()), "{found:?}");
    for differs in [
        change(&|c| c["dimension"] = 16.into()),
        change(&|c| c["relations"][0]["operator"] = "linear".into()),
        change(&|c| drop(c["relations"].as_array_mut().unwrap().pop())),
        change(&|c| c["global_emb"] = false.into()),
        change(&|c| {
            c["entities"]["shop"] = c["entities"]["item"].clone();
            c["relations"].as_array_mut().unwrap().iter_mut().for_each(|r| {
                for side in ["lhs", "rhs"] {
                    if r[side] == "item" {
                        r[side] = "shop".into();
                    }
                }
            });
        }),
    ] {
        assert!(differs.contains(&"config-differs".to_owned()), "{differs:?}");
    }
    fs::write(&path, "{}").unwrap();
    assert_eq!(json(at, "verify %m --json")["verdict"], "unsound");
}

#[test]
fn other_versions_are_named_or_taken_along() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    copy(&golden("ckpt_std_zip"), &at.join("c"));
    for name in fs::read_dir(at.join("c")).unwrap().map(|entry| entry.unwrap().file_name()) {
        let name = name.to_str().unwrap();
        if name.contains(".v4.") {
            fs::copy(at.join("c").join(name), at.join("c/epoch_2").join(name)).unwrap();
            if name.contains("user") {
                fs::copy(at.join("c").join(name), at.join("c").join(name.replace(".v4.", ".v5."))).unwrap();
            }
        }
    }
    let written = json(at, "convert %c %one --to biggraph --json");
    let left: Vec<_> =
        written["losses"].as_array().unwrap().iter().map(|loss| loss["subject"].clone()).collect();
    assert_eq!(left, ["version 4", "version 5", "snapshot epoch_2"], "{written}");
    assert_eq!(run(at, "convert %c %denied --to biggraph --deny-loss").status.code(), Some(2));
    assert!(!at.join("denied").exists());

    let output = run(at, "convert %c %all --to biggraph --versions all --set partitions=2 --json");
    assert_eq!(output.status.code(), Some(1), "a version is lost");
    let written: Json = serde_json::from_slice(&output.stdout).unwrap();
    let left: Vec<_> =
        written["losses"].as_array().unwrap().iter().map(|loss| loss["subject"].clone()).collect();
    // It lacks its model.
    assert_eq!(left, ["version 5"], "{written}");
    assert_eq!(fs::read_to_string(at.join("all/checkpoint_version.txt")).unwrap(), "6\n");
    assert_eq!(fs::read_to_string(at.join("all/epoch_2/checkpoint_version.txt")).unwrap(), "4\n");
    assert!(
        at.join("all/embeddings_user_1.v6.h5").exists() && !at.join("all/embeddings_user_2.v6.h5").exists()
    );
    ok(at, "verify %all");
    ok(at, "checkpoint %all");
    ok(at, "diff %c %all --no-metadata");
    ok(at, "diff %c/epoch_2 %all/epoch_2 --no-metadata");
    assert_eq!(run(at, "convert %c %x --to biggraph --versions all --set version=9").status.code(), Some(2));
    // There is one version of anything else.
    assert_eq!(run(at, "convert %c %x.npz --versions all").status.code(), Some(2));
}

#[test]
fn a_python_configuration_is_read_or_refused_by_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let json_text = fs::read_to_string(golden("ckpt_std_zip/config.json")).unwrap();
    let literal = json_text.replace("true", "True").replace("false", "False").replace("null", "None");
    let python = format!("def get_torchbiggraph_config():\n    config = {literal}\n    return config\n");
    fs::write(at.join("config.py"), &python).unwrap();
    ok(at, "verify @std/edges --config %config.py --entities @std/entities");
    ok(at, "verify @ckpt_std_zip --config %config.py");
    ok(at, "ls @std/entities --config %config.py");
    ok(at, "convert %config.py %config.json --from biggraph --to biggraph --kind config");
    assert_eq!(fs::read_to_string(at.join("config.json")).unwrap(), json_text);
    fs::write(at.join("config.py"), python.replace("\"dimension\": 8", "\"dimension\": 2 * 4")).unwrap();
    for verb in ["verify @std/edges", "ls @std/entities", "info @ckpt_std_zip", "stats @std/edges"] {
        let output = run(at, &format!("{verb} --config %config.py"));
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains("is not a literal"), "{verb}: {text}");
    }
}

#[test]
fn a_bucket_without_a_file_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    copy(&golden("std"), &at.join("std"));
    let know = "--config @ckpt_std_zip/config.json --entities @std/entities";
    for name in ["edges_1_0.h5", "edges_3_2.h5"] {
        fs::remove_file(at.join("std/edges").join(name)).unwrap();
    }
    let report = json(at, &format!("verify %std/edges {know} --json"));
    assert_eq!(report["verdict"], "unsound");
    assert!(codes(&report["findings"]).contains(&"bucket-missing"), "{report}");
    let written = json(at, &format!("convert %std/edges %same {know} --to biggraph --json"));
    assert!(codes(&written["notes"]).contains(&"bucket-missing"), "{written}");
    assert!(at.join("same/edges_1_0.h5").is_file() && at.join("same/edges_3_2.h5").is_file());
    ok(at, &format!("verify %same {know}"));
    ok(at, &format!("convert %std/edges %two {know} --to biggraph --set partitions=2"));
    // A file that a writer left unfinished may have edges.
    fs::write(at.join("std/edges/edges_1_0.tmp.h5"), "").unwrap();
    let refused = run(at, &format!("convert %std/edges %three {know} --to biggraph --set partitions=2"));
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_type_is_renamed_everywhere_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let all = "--to biggraph --set rename-type=user=person,item=thing";
    ok(at, &format!("convert @ckpt_std_zip %m {all}"));
    ok(at, &format!("convert @std/entities %entities {all}"));
    ok(at, &format!("convert @ckpt_std_zip/config.json %config.json --kind config {all}"));
    assert_eq!(fs::read(at.join("config.json")).unwrap(), fs::read(at.join("m/config.json")).unwrap());
    assert!(
        at.join("m/embeddings_person_3.v6.h5").is_file()
            && at.join("entities/entity_names_thing_0.json").is_file()
    );
    ok(at, "verify %m --entities %entities");
    ok(at, "verify @std/edges --config %config.json --entities %entities");
    let listed = ok(at, "ls %m");
    assert!(listed.contains("entities.person.global_embedding/sum") && !listed.contains("user"), "{listed}");
    ok(at, "convert %m %back --to biggraph --set rename-type=person=user,thing=item");
    ok(at, "diff %back @ckpt_std_zip --no-metadata");
    assert_eq!(
        fs::read(at.join("back/config.json")).unwrap(),
        fs::read(golden("ckpt_std_zip/config.json")).unwrap()
    );
    for (pair, code) in [("usr=x", "no-such-type"), ("user=item", "type-exists"), ("user=a.b", "bad-setting")]
    {
        let output =
            run(at, &format!("convert @ckpt_std_zip %no --to biggraph --set rename-type={pair} --json"));
        assert!(String::from_utf8_lossy(&output.stdout).contains(code), "{pair}: {output:?}");
    }
}

/// An `.npy` file of int64.
fn npy(path: &Path, rows: &[[i64; 3]]) {
    let mut header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({}, 3), }}", rows.len());
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(rows.iter().flatten().flat_map(|n| n.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_table_of_edges_is_cut_and_is_no_table_of_embeddings() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::create_dir(at.join("e")).unwrap();
    for (name, count) in [("user_0", 3), ("user_1", 2), ("item_0", 2), ("item_1", 2)] {
        fs::write(at.join(format!("e/entity_count_{name}.txt")), format!("{count}\n")).unwrap();
    }
    let config = serde_json::json!({
        "entities": {"user": {"num_partitions": 2}, "item": {"num_partitions": 2}},
        "relations": [{"name": "likes", "lhs": "user", "rhs": "item"}],
        "dimension": 4, "entity_path": "e", "edge_paths": ["x"], "checkpoint_path": "c",
    });
    fs::write(at.join("config.json"), config.to_string()).unwrap();
    npy(&at.join("edges.npy"), &[[0, 0, 3], [4, 0, 0], [2, 0, 1], [3, 0, 2], [4, 0, 3]]);
    let know = "--config %config.json --entities %e --to biggraph";
    ok(at, &format!("convert %edges.npy %b {know} --set partitions=2 --set columns=lhs,rel,rhs"));
    let column = |bucket: &str, name: &str| {
        let shown = ok(at, &format!("show %b/edges_{bucket}.h5 {name}"));
        shown.lines().next().unwrap().to_owned()
    };
    assert_eq!((column("0_0", "lhs"), column("0_0", "rhs")), ("[2]".into(), "[1]".into()));
    assert_eq!((column("0_1", "lhs"), column("0_1", "rhs")), ("[0]".into(), "[1]".into()));
    assert_eq!((column("1_0", "lhs"), column("1_0", "rhs")), ("[1]".into(), "[0]".into()));
    assert_eq!((column("1_1", "lhs"), column("1_1", "rhs")), ("[0 1]".into(), "[0 1]".into()));
    fs::write(at.join("edges.tsv"), "0\t0\t3\n4\t0\t0\n").unwrap();
    for (source, more, code) in [
        ("edges.npy", "", "edge-list"),
        ("edges.npy", " --kind checkpoint", "edge-list"),
        ("edges.npy", " --kind init --set type=user", "edge-list"),
        ("edges.tsv", "", "edge-list"),
        ("edges.npy", " --kind edges", "edge-columns"),
        ("edges.npy", " --set columns=lhs,rhs", "edge-columns"),
        ("edges.npy", " --set columns=lhs,rhs,lhs", "edge-columns"),
    ] {
        let output = run(at, &format!("convert %{source} %no --to biggraph{more} --json"));
        assert!(String::from_utf8_lossy(&output.stdout).contains(code), "{source}{more}: {output:?}");
        assert!(!at.join("no").exists());
    }
}

#[test]
fn rows_of_relation_parameters_go_by_the_names_of_relations() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let names: Vec<String> =
        serde_json::from_slice(&fs::read(golden("dyn/entities/dynamic_rel_names.json")).unwrap()).unwrap();
    let row = names.len() - 2;
    let tensor = "relations.0.operator.rhs.translations";
    let know = "--entities @dyn/entities";
    let by_name = ok(at, &format!("show @ckpt_dyn_affine {tensor}['{}'] {know}", names[row]));
    assert_eq!(by_name, ok(at, &format!("show @ckpt_dyn_affine {tensor}[{row}] {know}")));
    let part = ok(
        at,
        &format!(
            "show @ckpt_dyn_affine {}['{}',0] {know}",
            tensor.replace("translations", "linear_transformations"),
            names[row]
        ),
    );
    assert!(part.contains("[8]"), "{part}");
    assert_eq!(run(at, &format!("show @ckpt_dyn_affine {tensor}['nobody'] {know}")).status.code(), Some(2));
}

#[test]
fn a_model_without_global_embeddings_is_a_note() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let written =
        json(at, "convert @ckpt_dyn_affine %all.tsv --select embeddings.* --no-state --with-global --json");
    assert!(codes(&written["notes"]).contains(&"no-global-embedding"), "{written}");
    ok(at, "convert @ckpt_dyn_affine %plain.tsv --select embeddings.* --no-state");
    assert_eq!(fs::read(at.join("all.tsv")).unwrap(), fs::read(at.join("plain.tsv")).unwrap());
}
