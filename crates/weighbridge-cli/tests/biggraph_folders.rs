//! PyTorch-BigGraph as a user of the command meets it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

mod common;

use common::{command, testdata};
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
