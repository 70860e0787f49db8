//! How long text is: it grows with the file that it is about, whatever names are in it, and lists of what nobody asked to
//! see one by one end.

use crate::support::{Folder, json, text, weighbridge};
use serde_json::{Map, json as object};
use std::fs;

/// A safetensors file of one-byte tensors with these names, every one of that value.
fn named(names: &[String], value: u8) -> Vec<u8> {
    let mut header = Map::new();
    for (place, name) in names.iter().enumerate() {
        let offsets = [place, place + 1];
        header.insert(name.clone(), object!({ "dtype": "U8", "shape": [1], "data_offsets": offsets }));
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut bytes = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(vec![value; names.len()]);
    bytes
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("t{i}")).collect()
}

/// What it prints, however it ends.
fn printed(words: &[&str]) -> String {
    let output = weighbridge(words);
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{words:?}: {output:?}");
    text(&output)
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn one_long_name_makes_no_long_lines() {
    let folder = Folder::new();
    let mut names = numbered(2000);
    names.push("x".repeat(200_000));
    let (a, b) =
        (folder.file("a.safetensors", named(&names, 1)), folder.file("b.safetensors", named(&names, 2)));
    let file = fs::metadata(&a).unwrap().len();
    for words in [
        &["ls", &a][..],
        &["ls", "--hash", &a],
        &["ls", "--pieces", &a],
        &["ls", "--tree", &a],
        &["stats", &a],
        &["diff", &a, &b],
        &["diff", "--all", &a, &b],
        &["verify", "--account", &a],
        &["scan", &a],
        &["edit", &a, &folder.path("c.safetensors"), "--plan", "--prefix", "p"],
    ] {
        let len = printed(words).len() as u64;
        assert!(len < 4 * file, "{words:?}: {len} bytes of a file of {file}");
    }
    assert!(printed(&["ls", &a]).contains(&names[2000]), "the name is there to be copied");
}

/// Every part of a name is a level of a tree.
#[test]
fn names_of_many_parts_are_no_deep_trees() {
    let folder = Folder::new();
    let names: Vec<String> = (0..20).map(|i| format!("{i}.{}a", "a.".repeat(2000))).collect();
    let path = folder.file("a.safetensors", named(&names, 1));
    let (len, file) = (printed(&["ls", "--tree", &path]).len() as u64, fs::metadata(&path).unwrap().len());
    assert!(len < 4 * file, "{len} bytes of a file of {file}");
}

#[test]
fn a_comparison_lists_the_first_differences() {
    let folder = Folder::new();
    let (a, b) = (folder.path("a.safetensors"), folder.path("b.safetensors"));
    fs::write(&a, named(&numbered(1100), 1)).unwrap();
    fs::write(&b, named(&numbered(1100), 2)).unwrap();
    let told = printed(&["diff", &a, &b]);
    assert_eq!(
        (count(&told, "values"), count(&told, "... and 100 more: see --json")),
        (1000 + 1, 1),
        "{told}"
    );
    assert_eq!(json(&["diff", &a, &b])["pairs"].as_array().unwrap().len(), 1100);
    // Asked for all, it lists all; so do the verbs that list.
    for words in [&["diff", "--all", &a, &b][..], &["ls", &a], &["stats", &a], &["verify", "--account", &a]] {
        let told = printed(words);
        assert!(told.lines().count() > 1100 && !told.contains(" more"), "{words:?}");
    }
    fs::write(&b, named(&["other".to_owned()], 2)).unwrap();
    let told = printed(&["diff", &a, &b, "--names-only"]);
    assert_eq!((count(&told, "u8 [1]"), count(&told, "... and 100 more: see --json")), (1000 + 1, 1));
}

/// What was found is told, however many files are in order or not known.
#[test]
fn a_scan_of_many_files_lists_the_first_of_each_verdict() {
    let folder = Folder::new();
    for i in 0..1100 {
        folder.file(&format!("a{i:04}.bin"), [0xff, 0xfe, 0xfd, 0xfc]);
    }
    folder.file("z.pkl", b"\x80\x02cos\ngetcwd\n)R.");
    let told = printed(&["scan", &folder.path("")]);
    assert_eq!(count(&told, "a0"), 2000, "{told}");
    assert!(told.contains("... and 100 more files: could not tell: see --json"), "{told}");
    assert!(told.contains("imports os.getcwd"), "{told}");
    assert_eq!(json(&["scan", &folder.path("")])["files"].as_array().unwrap().len(), 1101);
}

#[test]
fn an_edit_lists_the_first_changes() {
    let folder = Folder::new();
    let a = folder.file("a.safetensors", named(&numbered(1100), 1));
    let told = printed(&["edit", &a, &folder.path("b.safetensors"), "--plan", "--prefix", "p"]);
    assert_eq!((count(&told, " -> p"), count(&told, "... and 100 more: see --json")), (1000, 1), "{told}");
}
