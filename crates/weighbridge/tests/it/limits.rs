//! Tables of limits and faults in the docs: every limit is listed, every named test exists, and every flag reaches its reader.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weighbridge::limits::Limits;
use weighbridge::{Budget, OpenOptions};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of the rows of the tables below a heading of `docs/src/how/reliability.md`.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("docs/src/how/reliability.md")).unwrap();
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

/// Returns the texts between backticks.
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
        assert!(rows.len() > 8, "{heading}: {}", rows.len());
        for row in rows {
            let named: Vec<_> = quoted(row.last().unwrap()).collect();
            assert!(!named.is_empty(), "{heading}: {} has no test", row[0]);
            for name in named {
                assert!(tests.contains(name), "{heading}: {}: there is no test {name}", row[0]);
            }
        }
    }
}

/// Name, default, effect and tests of a limit of the user.
type Row = (&'static str, fn(&Limits) -> u64, &'static str, &'static [&'static str]);

/// The limits of the user, in the order of their table.
const LIMITS: [Row; 9] = [
    (
        "header_bytes",
        |limits| limits.header_bytes,
        "bytes of a header, footer, program, configuration or index that are read into memory at once; raising it raises the budget by as much",
        &["safetensors_bombs", "parquet_bombs", "limits_are_enforced"],
    ),
    (
        "tensors",
        |limits| limits.tensors,
        "tensors of a checkpoint; members of an archive, objects and chunks of HDF5, blocks of rows",
        &["limits_are_enforced", "npz_bombs", "hdf5_bombs"],
    ),
    (
        "name_bytes",
        |limits| limits.name_bytes,
        "bytes of the name of a tensor",
        &["safetensors_bombs", "word2vec_bombs", "biggraph_texts"],
    ),
    (
        "dimensions",
        |limits| limits.dimensions,
        "dimensions of a tensor; levels of LoD",
        &["npy_bombs", "paddle_bombs", "torch_bombs"],
    ),
    (
        "path_parts",
        |limits| limits.path_parts,
        "parts of a name",
        &["safetensors_bombs", "hdf5_circles", "primitiv_bombs"],
    ),
    (
        "pickle_objects",
        |limits| limits.pickle_objects,
        "objects of a pickle; the memory budget has at least one byte for each",
        &["pickle_bombs", "every_flag_reaches_its_reader"],
    ),
    (
        "chunk_bytes",
        |limits| limits.chunk_bytes,
        "bytes of a chunk of HDF5, or of the weights in a `.keras` archive, unpacked in memory",
        &["deflated_weights_have_a_limit", "hdf5_bombs", "hdf5_filters"],
    ),
    (
        "expansion",
        |limits| limits.expansion,
        "ratio of unpacked to stored bytes; data below `repeated_bytes` may exceed it",
        &["arrow_claims", "arrow_batches_that_multiply", "parquet_bombs", "hdf5_bombs"],
    ),
    (
        "repeated_bytes",
        |limits| limits.repeated_bytes,
        "bytes of tensors that repeat a few elements: views of stride 0, runs, several names of one dataset; a file of any length may unpack this much",
        &["torch_bombs", "parquet_bombs", "hdf5_elements_over_each_other", "every_flag_reaches_its_reader"],
    ),
];

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap()).collect();
    groups.join(",")
}

/// The tables of the book, made from the limits and the budget themselves.
fn generated() -> String {
    let limits = Limits::default();
    let names = |tests: &[&str]| tests.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(", ");
    let mut page = String::from("| limit | default | bounds | test |\n| --- | --- | --- | --- |\n");
    for (name, default, what, tests) in LIMITS {
        let default = with_commas(default(&limits));
        page += &format!("| `{name}` | {default} | {what} | {} |\n", names(tests));
    }
    page += "\n```text\n length of the file         memory           work   (bytes)\n";
    for len in [1_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000] {
        let budget = Budget::new(len, &limits);
        let [len, memory, work] = [len, budget.memory_left(), budget.work_left()].map(with_commas);
        page += &format!("{len:>19} {memory:>14} {work:>14}\n");
    }
    page + &format!("nesting: {} levels\n```\n", Budget::DEPTH)
}

/// `WEIGHBRIDGE_WRITE_DOCS=1` writes the tables anew.
#[test]
fn the_tables_are_those_of_the_limits_and_the_budget() {
    let path = root().join("docs/src/how/reliability.md");
    let page = fs::read_to_string(&path).unwrap();
    let [from, to] = ["<!-- made by a test: limits -->\n", "<!-- end -->\n"];
    let (before, rest) = page.split_once(from).unwrap();
    let (between, after) = rest.split_once(to).unwrap();
    let generated = generated();
    if std::env::var_os("WEIGHBRIDGE_WRITE_DOCS").is_some() {
        fs::write(&path, [before, from, &generated, to, after].concat()).unwrap();
        return;
    }
    assert_eq!(between, generated, "WEIGHBRIDGE_WRITE_DOCS=1 cargo test -p weighbridge --test it limits::");
    assert_eq!(LIMITS.map(|(name, ..)| name), Limits::NAMES);
    let manual = fs::read_to_string(root().join("docs/src/reference/limits.md")).unwrap();
    for name in Limits::NAMES {
        assert!(manual.contains(&format!("`{name}`")), "{name} is not in the manual");
    }
}

/// A golden file that opens is rejected when the limit is set too low, and the error names the flag.
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
