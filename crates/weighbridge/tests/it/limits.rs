//! The tables of limits and faults in the book are true: every limit stands in them, every test that they name exists, and
//! every flag reaches the reader that it is for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weighbridge::OpenOptions;
use weighbridge::limits::Limits;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of the rows of the tables below a heading of `docs/reliability.md`.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    let below = page.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = below.split("\n## ").next().unwrap();
    let lines: Vec<&str> = section.lines().collect();
    let is_rule = |line: &str| line.starts_with("| ---");
    // A head has the rule below it.
    let is_head = |place: usize| lines.get(place + 1).is_some_and(|next| is_rule(next));
    let rows = lines
        .iter()
        .enumerate()
        .filter(|(place, line)| line.starts_with("| ") && !is_rule(line) && !is_head(*place));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    rows.map(|(_, line)| cells(line)).collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The names of all tests of the workspace.
fn tests() -> BTreeSet<String> {
    let mut left = vec![root().join("crates"), root().join("fuzz")];
    let mut found = BTreeSet::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let mut after_mark = false;
            for line in text.lines().map(str::trim) {
                if let (true, Some(rest)) = (after_mark, line.strip_prefix("fn ")) {
                    found.insert(rest.split('(').next().unwrap().to_owned());
                }
                after_mark = line == "#[test]" || (after_mark && line.starts_with("#["));
            }
        }
    }
    found
}

#[test]
fn every_limit_and_fault_has_a_test_that_exists() {
    let tests = tests();
    assert!(tests.len() > 500);
    for heading in ["Limits", "Faults"] {
        let rows = table(heading);
        assert!(rows.len() > 12, "{heading}: {}", rows.len());
        for row in rows {
            let named: Vec<_> = quoted(row.last().unwrap()).collect();
            assert!(!named.is_empty(), "{heading}: {} has no test", row[0]);
            for name in named {
                assert!(tests.contains(name), "{heading}: {}: there is no test {name}", row[0]);
            }
        }
    }
}

#[test]
fn every_flag_stands_in_the_table_with_its_default() {
    let rows = table("Limits");
    let manual = fs::read_to_string(root().join("docs/command.md")).unwrap();
    for name in Limits::NAMES {
        let of: Vec<_> = rows.iter().filter(|row| quoted(&row[2]).any(|flag| flag == name)).collect();
        assert!(!of.is_empty(), "{name}");
        assert!(manual.contains(&format!("`{name}`")), "{name} is not in the manual");
    }
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        let flags: Vec<_> = quoted(&row[2]).filter(|flag| !flag.starts_with("--")).collect();
        assert!(flags.iter().all(|flag| Limits::NAMES.contains(flag)), "{row:?}");
    }
    let default = Limits::default();
    for (shown, value) in [
        ("100,000,000 bytes", default.header_bytes == 100_000_000),
        ("4,000,000", default.tensors == 4_000_000),
        ("16,000,000", default.pickle_objects == 16_000_000),
        ("256 MiB", default.chunk_bytes == 256 << 20),
        ("1,024", default.expansion == 1024),
        ("1 GiB", default.repeated_bytes == 1 << 30),
        ("1 MiB", default.name_bytes == 1 << 20),
        ("64", default.dimensions == 64),
        ("4,096", default.path_parts == 4096),
    ] {
        assert!(value && rows.iter().any(|row| row[1].starts_with(shown)), "{shown}");
    }
}

/// A golden file that opens is refused when the limit is set below what it needs, and the error names the flag.
#[test]
fn every_flag_reaches_its_reader() {
    for (name, value, file) in [
        ("header_bytes", 10, "safetensors/good"),
        ("tensors", 1, "torch/good/nested.pt"),
        ("name_bytes", 0, "npz/good"),
        ("dimensions", 1, "primitiv/good/trained/trained_xor_a.model"),
        ("path_parts", 0, "primitiv/good/trained/trained_xor_a.model"),
        ("pickle_objects", 10, "torch/good/nested.pt"),
        ("chunk_bytes", 1, "hdf5/small/gzip_default.h5"),
        ("repeated_bytes", 1, "torch/good/views.pt"),
    ] {
        let path = root().join("testdata").join(file);
        let files = match path.is_dir() {
            true => fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect(),
            false => vec![path],
        };
        let mut limits = Limits::default();
        limits.set(name, value).unwrap();
        let options = OpenOptions { limits, ..OpenOptions::default() };
        let good = files
            .iter()
            .filter(|path| weighbridge::formats::open(path).is_ok_and(|opened| !opened.tensors.is_empty()));
        let told: Vec<String> = good
            .map(|path| match weighbridge::formats::open_with(path, &options) {
                Ok(opened) => opened.notes.iter().map(|note| note.text.to_string()).collect(),
                Err(error) => error.to_string(),
            })
            .collect();
        assert!(!told.is_empty(), "{name}: no file to try it on");
        assert!(told.iter().any(|text| text.contains(&format!("`{name}`"))), "{name}: {told:?}");
    }
}
