//! Damaged files as a user meets them.

use crate::support::{MODEL, coded_json as json, testdata, text_of as shown, weighbridge};
use std::fs;
use std::path::{Path, PathBuf};

fn text(words: &[&str]) -> (i32, String) {
    let output = weighbridge(words);
    let all = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(all).unwrap())
}

/// The trained model in another format, whole and with its last `cut` bytes off.
fn cut(folder: &Path, name: &str, cut: usize) -> (PathBuf, PathBuf) {
    let whole = folder.join(name);
    let (code, said) = text(&["convert", shown(&testdata(MODEL)), shown(&whole), "-q"]);
    assert_eq!(code, 0, "{said}");
    let bytes = fs::read(&whole).unwrap();
    let damaged = folder.join(format!("cut-{name}"));
    fs::write(&damaged, &bytes[..bytes.len() - cut]).unwrap();
    (whole, damaged)
}

/// What is written from a damaged file is not all that there was: the exit code says so, for every verb that writes.
#[test]
fn every_verb_that_writes_ends_with_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let (_, damaged) = cut(dir.path(), "net.safetensors", 5);
    let damaged = shown(&damaged);
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (new, cast, shards, one, manifest) =
        (at("new.npz"), at("cast.safetensors"), at("shards"), at("one.npz"), at("m.json"));
    for words in [
        &["convert", damaged, &new][..],
        &["edit", damaged, &cast, "--cast", "bf16"],
        &["shard", damaged, &shards, "--max-shard-size", "1KB"],
        &["merge", damaged, "-o", &one],
        &["seal", damaged, "-o", &manifest],
    ] {
        let (code, said) = text(&[words, &["--salvage"]].concat());
        assert_eq!(code, 1, "{words:?}: {said}");
        assert!(Path::new(words[words.len() - 1]).exists() || Path::new(words[2]).exists(), "{words:?}");
        let twice = said.matches("omitted: missing-damaged").count();
        assert_eq!(twice, 0, "each loss is told once: {said}");
    }
}

#[test]
fn every_verb_tells_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, damaged) = cut(dir.path(), "net.safetensors", 5);
    let damaged = shown(&damaged);
    let all = json(&["ls", shown(&whole)]).1["tensors"].as_array().unwrap().len();

    let (code, said) = text(&["ls", damaged]);
    assert_eq!(code, 2);
    assert!(said.contains(&format!("--salvage extracts {} readable tensors", all - 1)), "{said}");

    let (code, said) = text(&["info", damaged, "--salvage"]);
    assert_eq!(code, 0);
    assert!(said.contains(&format!("{} of {all} tensors readable, damaged at offset", all - 1)), "{said}");
    assert!(said.contains("not-proved"), "nothing proves the bytes of safetensors: {said}");

    for verb in ["info", "ls", "stats"] {
        let (code, found) = json(&[verb, damaged, "--salvage"]);
        assert_eq!(code, 0);
        let damage = &found["damage"];
        assert_eq!((&damage["code"], &damage["intact"]), (&"truncated".into(), &(all - 1).into()), "{found}");
        assert_eq!(damage["expected"], all);
        assert_eq!(damage["lost"].as_array().unwrap().len(), 1);
        assert!(damage["offset"].as_u64().unwrap() > 8);
        let whole = json(&[verb, shown(&whole), "--salvage"]).1;
        assert_eq!(whole.get("damage"), None, "nothing is wrong with the whole file");
    }
    let kept = json(&["ls", damaged, "--salvage"]).1["tensors"][0]["name"].as_str().unwrap().to_owned();
    let (code, found) = json(&["show", damaged, &kept, "--salvage"]);
    assert_eq!(code, 0);
    assert_eq!(found["values"], json(&["show", shown(&whole), &kept]).1["values"]);
    assert_eq!(found["damage"]["intact"], all - 1);

    // By itself, after a failure.
    let (code, found) = json(&["verify", damaged]);
    assert_eq!((code, &found["verdict"]), (1, &"unsound".into()));
    assert_eq!(found["damage"]["lost"].as_array().unwrap().len(), 1);
    assert!(found["files"][0]["tensor_bytes"].as_u64().unwrap() > 0, "what is intact is accounted for");

    let (code, found) = json(&["diff", shown(&whole), damaged, "--salvage"]);
    // It was there, and nobody knows what it was.
    assert_eq!((code, &found["same"], &found["different"]), (3, &false.into(), &false.into()), "{found}");
    assert_eq!(found["pairs"].as_array().unwrap().len(), 1);
    assert_eq!(found["pairs"][0]["status"], "unread");
    assert!(found["pairs"][0]["unread"]["file"].as_str().unwrap().ends_with("safetensors"), "{found}");
    assert!(
        found["left_alone"].as_array().unwrap().is_empty()
            && found["metadata"].as_array().unwrap().is_empty()
    );
    assert!(found["notes"].to_string().contains("damaged"), "{found}");

    let (code, found) = json(&["scan", damaged, "--salvage"]);
    assert_eq!((code, &found["verdict"]), (3, &"could-not-tell".into()));
}

#[test]
fn what_is_salvaged_is_written_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("net.safetensors", 5), ("net.npz", 850), ("net.pt", 1100), ("net.model", 9)] {
        let (whole, damaged) = cut(dir.path(), name, bytes);
        let target = dir.path().join("saved.safetensors");
        let target = shown(&target);
        let words = ["convert", shown(&damaged), target, "-q", "--force"];
        let (code, _) = text(&words);
        assert_eq!(code, 2, "{name}: refused without the word");

        let (code, said) = text(&[&words[..], &["--salvage", "--deny-loss"]].concat());
        assert_eq!(code, 2, "{name}");
        assert!(said.contains("missing-damaged"), "{name}: {said}");

        let (code, report) = json(&[&words[..], &["--salvage"]].concat());
        assert_eq!(code, 1, "{name}: a finding, not all is there: {report}");
        assert_eq!(report["losses"][0]["code"], "missing-damaged", "{name}: {report}");

        // Sound by itself, and never silently.
        let (code, found) = json(&["verify", target]);
        assert_eq!((code, &found["verdict"]), (0, &"sound".into()), "{name}: {found}");
        let (_, info) = json(&["info", target]);
        assert!(info["metadata"]["salvaged"].as_str().unwrap().contains("damaged"), "{name}: {info}");
        // What is there is what was there.
        let (code, found) = json(&["diff", target, shown(&whole), "--no-metadata"]);
        assert_eq!(code, 1, "{name}");
        assert_eq!(found["pairs"].as_array().unwrap().len(), 0, "{name}: {found}");
        assert_eq!(found["left_alone"].as_array().unwrap().len(), 0, "{name}: {found}");
        assert!(!found["right_alone"].as_array().unwrap().is_empty(), "{name}: {found}");
        assert!(found["equal"].as_u64().unwrap() > 0, "{name}: {found}");
    }
}

/// Damages a copy of a file of testdata.
fn damaged(dir: &Path, name: &str, damage: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = fs::read(testdata(name)).unwrap();
    damage(&mut bytes);
    let path = dir.join(Path::new(name).file_name().unwrap());
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_checksum_that_fails_takes_its_tensor_out() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, path) = cut(dir.path(), "net.npz", 0);
    let extents = json(&["ls", shown(&whole), "--pieces"]).1;
    let at = usize::try_from(extents["tensors"][0]["pieces"][0]["offset"].as_u64().unwrap()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let all = extents["tensors"].as_array().unwrap().len();
    // The index is whole, so it opens; only salvaging holds all bytes against their checksums.
    assert_eq!(json(&["ls", shown(&path)]).0, 0);
    let (_, found) = json(&["ls", shown(&path), "--salvage"]);
    assert_eq!(found["damage"]["code"], "crc-mismatch", "{found}");
    assert_eq!((&found["damage"]["intact"], &found["damage"]["expected"]), (&(all - 1).into(), &all.into()));
    assert_eq!(found["damage"]["lost"][0], extents["tensors"][0]["name"]);
}

#[test]
fn shards_that_are_missing_or_damaged_do_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sharded");
    let words = ["--to", "safetensors", "--set", "shard=40", "-q"];
    let (code, said) = text(&[&["convert", shown(&testdata(MODEL)), shown(&folder)], &words[..]].concat());
    assert_eq!(code, 0, "{said}");
    let all = json(&["ls", shown(&folder)]).1["tensors"].as_array().unwrap().len();
    let mut shards: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    shards.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    shards.sort();
    assert!(shards.len() >= 3, "{shards:?}");
    fs::remove_file(&shards[0]).unwrap();
    let bytes = fs::read(&shards[1]).unwrap();
    fs::write(&shards[1], &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(text(&["ls", shown(&folder)]).0, 2);
    let (code, found) = json(&["ls", shown(&folder), "--salvage"]);
    assert_eq!(code, 0);
    let lost = found["damage"]["lost"].as_array().unwrap();
    let intact = found["tensors"].as_array().unwrap().len();
    assert!(!lost.is_empty() && intact > 0, "{found}");
    assert_eq!(intact + lost.len(), all, "{found}");
    assert_eq!(found["damage"]["expected"], all);
    let why = found["damage"]["why"].to_string();
    assert!(why.contains("shard-missing") && why.contains("truncated"), "{why}");
}

/// Every verb that salvages says what that would give; a change in place says which one writes it elsewhere.
#[test]
fn every_verb_that_salvages_offers_it() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, damaged) = cut(dir.path(), "net.safetensors", 5);
    let (whole, damaged) = (shown(&whole), shown(&damaged));
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (new, shards, manifest) = (at("new.npz"), at("shards"), at("m.json"));
    let offer = "--salvage extracts 3 readable tensors";
    for (words, hint) in [
        (&["ls", damaged][..], offer),
        (&["info", damaged], offer),
        (&["show", damaged, "w"], offer),
        (&["stats", damaged], offer),
        (&["diff", damaged, whole], offer),
        (&["diff", whole, damaged], offer),
        (&["convert", damaged, &new], offer),
        (&["edit", damaged, &new, "--cast", "bf16"], offer),
        (&["shard", damaged, &shards], offer),
        (&["merge", whole, damaged, "-o", &new], offer),
        (&["seal", damaged, "-o", &manifest], offer),
        (&["edit", damaged, "--in-place", "--rename", "a=b"], "convert --salvage"),
        (&["edit", damaged, "--in-place=rewrite", "--rename", "a=b"], "convert --salvage"),
    ] {
        let (code, said) = text(words);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert_eq!(said.matches(hint).count(), 1, "{words:?}: {said}");
    }
}

#[test]
fn a_partition_that_is_missing_is_said_aloud() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("ckpt");
    fs::create_dir(&folder).unwrap();
    let source = testdata("biggraph/set1/ckpt_std_zip");
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    let gone = folder.join("embeddings_item_1.v6.h5");
    fs::remove_file(&gone).unwrap();
    assert_eq!(text(&["ls", shown(&folder)]).0, 2);
    let (code, found) = json(&["ls", shown(&folder), "--salvage"]);
    assert_eq!(code, 0, "{found}");
    let name = gone.file_name().unwrap().to_str().unwrap();
    assert!(found["damage"]["lost"][0].as_str().unwrap().contains(name), "{}", found["damage"]);
    let tables = found["tensors"].as_array().unwrap();
    let partial: Vec<_> = tables.iter().filter(|t| t["salvaged_rows"].is_string()).collect();
    assert!(!partial.is_empty(), "a table with fewer rows says so");
    let target = dir.path().join("saved.safetensors");
    let (code, report) = json(&["convert", shown(&folder), shown(&target), "--salvage", "-q"]);
    assert_eq!(code, 1);
    assert!(report["losses"].to_string().contains(name), "{}", report["losses"]);
}

#[test]
fn a_table_gives_the_rows_before_the_break() {
    let dir = tempfile::tempdir().unwrap();
    let lines = fs::read_to_string(testdata("tables/export_dyn_affine.tsv")).unwrap().lines().count();
    // The last line has no end any more: it may be cut within a number.
    let path = damaged(dir.path(), "tables/export_dyn_affine.tsv", |bytes| bytes.truncate(bytes.len() - 2));
    let (code, found) = json(&["ls", shown(&path), "--salvage"]);
    assert_eq!(code, 0, "{found}");
    assert_eq!(found["tensors"][0]["shape"][0], lines - 1, "{found}");
    assert_eq!(found["damage"]["code"], "cut-line");
    let path = damaged(dir.path(), "tables/export_dyn_affine.tsv", |bytes| {
        let third = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(2).unwrap().0;
        bytes[third - 1] = b'x';
    });
    let (_, found) = json(&["ls", shown(&path), "--salvage"]);
    assert_eq!(found["tensors"][0]["shape"][0], 2, "{found}");
    assert_eq!(found["damage"]["code"], "bad-number");
}

/// Each row of the table in the documentation names a format that this command knows, and no format is
/// left out.
#[test]
fn the_documentation_has_every_format() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/salvage.md"))
            .unwrap();
    let section = page.split("\n## Recovered tensors per format\n").nth(1).unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    for format in weighbridge::formats::ALL {
        let id = format.info().id;
        assert!(rows.iter().any(|row| row.split('|').nth(1).unwrap().contains(id)), "{id} has no row");
    }
}

/// A lost tensor is a loss only where the target should have it.
#[test]
fn lost_tensors_that_are_not_wanted_are_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, damaged) = cut(dir.path(), "net.safetensors", 5);
    let (whole, damaged) = (shown(&whole), shown(&damaged));
    let (_, listed) = json(&["ls", damaged, "--salvage"]);
    let lost = listed["damage"]["lost"][0].as_str().unwrap();
    let intact = listed["tensors"][0]["name"].as_str().unwrap();
    let target = dir.path().join("target.safetensors");
    let target = shown(&target);

    let (code, report) = json(&["convert", damaged, target, "--salvage", "--select", intact, "--force"]);
    assert_eq!((code, &report["losses"][0]["code"]), (0, &"damaged".into()), "{report}");
    // The pattern has the new names, a lost tensor its old one.
    let rules = dir.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\nrename-glob = \"*=m.{1}\"\n[[rule]]\nkeep = \"m.*\"\n").unwrap();
    let rules = ["--rules", shown(&rules)];
    let (code, report) = json(&[&["edit", damaged, target, "--salvage", "--force"][..], &rules].concat());
    assert_eq!((code, &report["losses"][0]["subject"]), (1, &lost.into()), "{report}");

    let (code, said) =
        text(&["merge", damaged, whole, "-o", target, "--prefer", "first", "--salvage", "--force"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("lost tensors are taken from the other files: {lost}")), "{said}");
}

#[test]
fn a_tree_has_each_branch_once() {
    let (code, said) = text(&["ls", shown(&testdata("samples/lm.safetensors")), "--tree", "--sort", "size"]);
    assert_eq!(code, 0, "{said}");
    let top: Vec<&str> = said.lines().filter(|line| !line.starts_with(' ')).collect();
    let mut once = top.clone();
    once.dedup();
    once.sort_unstable();
    once.dedup();
    assert_eq!(top.len(), once.len(), "{said}");
}
