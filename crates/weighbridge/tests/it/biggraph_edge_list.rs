//! Edge lists by name from BigGraph's input folders.

use crate::support::biggraph::{SETS, copy, golden, knowing};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use weighbridge::engine::RunOptions;
use weighbridge::error::Result;
use weighbridge::formats::{PlanOptions, open_with, registry};
use weighbridge::ops::{Changes, ConvertOptions, convert, save};
use weighbridge::tensor::{DType, Element, Order};
use weighbridge::{Checkpoint, OpenOptions};

/// Converts to a file in `folder`; returns its text, and the losses other than metadata.
fn lines(source: &Path, folder: &Path, open: OpenOptions) -> Result<(String, Vec<String>)> {
    lines_with(source, folder, ConvertOptions { open, ..ConvertOptions::default() })
}

fn lines_with(source: &Path, folder: &Path, options: ConvertOptions) -> Result<(String, Vec<String>)> {
    let target = folder.join("edges.tsv");
    let (plan, _) = convert(source, &target, &ConvertOptions { force: true, ..options })?;
    let losses = plan.losses.iter().filter(|loss| loss.code.as_str() != "metadata-dropped");
    let losses = losses.map(|loss| format!("{} {}: {}", loss.code, loss.subject, loss.detail)).collect();
    Ok((fs::read_to_string(target).unwrap(), losses))
}

fn failure(result: Result<(String, Vec<String>)>) -> String {
    result.unwrap_err().code().as_str().to_owned()
}

fn json(path: &Path) -> Json {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

fn names(path: &Path) -> Vec<String> {
    json(path).as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Integers of a column.
fn column(checkpoint: &Checkpoint, name: &str) -> Vec<i64> {
    let entry = checkpoint.tensor(name).unwrap();
    let bytes = entry.read_tensor(Order::Row).unwrap();
    (0..usize::try_from(entry.elements()).unwrap())
        .map(|index| match DType::element_at(entry.dtype(), &bytes, index) {
            Some(Element::Int(number)) => i64::try_from(number).unwrap(),
            other => panic!("{name}: {other:?}"),
        })
        .collect()
}

/// The lines of an edge folder, from its columns and the files of names; types by the relation.
fn expected(edges: &Path, entities: &Path, config: &Path) -> String {
    let config = json(config);
    let checkpoint = open_with(edges, &OpenOptions::default()).unwrap();
    let dynamic = config["dynamic_relations"].as_bool() == Some(true);
    let relations: Vec<String> = match dynamic {
        true => names(&entities.join("dynamic_rel_names.json")),
        false => {
            let all = config["relations"].as_array().unwrap().iter();
            all.map(|relation| relation["name"].as_str().unwrap().to_owned()).collect()
        }
    };
    let mut buckets: Vec<[u64; 2]> = Vec::new();
    for file in fs::read_dir(edges).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(bucket) = name.strip_prefix("edges_").and_then(|name| name.strip_suffix(".h5")) else {
            continue;
        };
        let (l, r) = bucket.split_once('_').unwrap();
        buckets.push([l.parse().unwrap(), r.parse().unwrap()]);
    }
    buckets.sort_unstable();
    let name = |kind: &Json, part: u64, id: i64| {
        let kind = kind.as_str().unwrap();
        let parts = config["entities"][kind]["num_partitions"].as_u64().unwrap_or(1);
        let part = if parts == 1 { 0 } else { part };
        names(&entities.join(format!("entity_names_{kind}_{part}.json")))[usize::try_from(id).unwrap()]
            .clone()
    };
    let mut text = String::new();
    for [l, r] in buckets {
        let of = |name: &str| column(&checkpoint, &format!("{l}_{r}.{name}"));
        let weights = checkpoint.tensor(&format!("{l}_{r}.weight")).is_ok().then(|| of("weight"));
        for (edge, ((lhs, rhs), rel)) in of("lhs").into_iter().zip(of("rhs")).zip(of("rel")).enumerate() {
            let number = usize::try_from(rel).unwrap();
            let relation = &config["relations"][if dynamic { 0 } else { number }];
            let (from, to) = (name(&relation["lhs"], l, lhs), name(&relation["rhs"], r, rhs));
            text.push_str(&format!("{from}\t{}\t{to}", relations[number]));
            if let Some(weights) = &weights {
                text.push_str(&format!("\t{}", weights[edge]));
            }
            text.push('\n');
        }
    }
    text
}

#[test]
fn golden_edges_have_the_names_of_their_entities() {
    let dir = tempfile::tempdir().unwrap();
    for set in SETS {
        let set = golden(set);
        for (graph, folder, checkpoint, count) in [
            ("std", "edges", "ckpt_std_zip", 1000),
            ("dyn", "train", "ckpt_dyn_affine", 300),
            ("dyn", "valid", "ckpt_dyn_affine", 10),
            ("weighted", "edges", "ckpt_weighted", 200),
        ] {
            let (edges, entities) = (set.join(graph).join(folder), set.join(graph).join("entities"));
            let config = set.join(checkpoint).join("config.json");
            let expected = expected(&edges, &entities, &config);
            assert!(expected.lines().count() >= count, "{graph}: {}", expected.lines().count());
            let open = knowing(Some(config), Some(entities.clone()));
            let (text, losses) = lines(&edges, dir.path(), open).unwrap();
            assert!(text == expected && losses.is_empty(), "{graph} {folder}: {losses:?}");
            if graph != "std" {
                // A single type needs no configuration: the relation names are in the entity folder.
                let alone = lines(&edges, dir.path(), knowing(None, Some(entities))).unwrap();
                assert_eq!(alone, (expected, Vec::new()), "{graph} {folder}");
            }
        }
    }
}

/// A copy of the dynamic graph: edges in `data/train`, its other files in `data`.
fn graph() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    copy(&golden("set1/dyn/entities"), &data);
    copy(&golden("set1/dyn/train"), &data.join("train"));
    (dir, data)
}

#[test]
fn entities_are_found_in_the_parent_folder_and_in_the_same() {
    let (dir, data) = graph();
    let config = golden("set1/ckpt_dyn_affine/config.json");
    let all = expected(&golden("set1/dyn/train"), &golden("set1/dyn/entities"), &config);
    assert_eq!(
        lines(&data.join("train"), dir.path(), OpenOptions::default()).unwrap(),
        (all.clone(), vec![])
    );
    copy(&data.join("train"), &data);
    assert_eq!(lines(&data, dir.path(), OpenOptions::default()).unwrap(), (all.clone(), vec![]));
    // A single file has the partitions in its name.
    let mut single = String::new();
    for bucket in ["0_0", "0_1", "1_0", "1_1"] {
        let file = data.join(format!("edges_{bucket}.h5"));
        single.push_str(&lines(&file, dir.path(), OpenOptions::default()).unwrap().0);
    }
    assert_eq!(single, all);
    let renamed = data.join("renamed.h5");
    fs::copy(data.join("edges_1_0.h5"), &renamed).unwrap();
    let open = || knowing(Some(config.clone()), Some(golden("set1/dyn/entities")));
    assert_eq!(failure(lines(&renamed, dir.path(), open())), "no-bucket");
    // Selected buckets alone.
    let changes = Changes { select: vec!["1_0.*".to_owned()], ..Changes::default() };
    let some =
        lines_with(&data, dir.path(), ConvertOptions { changes, ..ConvertOptions::default() }).unwrap().0;
    assert_eq!(some, lines(&data.join("edges_1_0.h5"), dir.path(), OpenOptions::default()).unwrap().0);
    // A single column is a table of numbers, as from any other format.
    let changes = Changes { select: vec!["1_0.lhs".to_owned()], ..Changes::default() };
    let options = ConvertOptions { changes, ..ConvertOptions::default() };
    let text = lines_with(&data, dir.path(), options).unwrap().0;
    let ids = column(&open_with(&data, &OpenOptions::default()).unwrap(), "1_0.lhs");
    let last: Vec<i64> =
        text.lines().map(|line| line.rsplit('\t').next().unwrap().parse().unwrap()).collect();
    assert_eq!(last, ids);
}

#[test]
fn edges_without_names_are_rows_of_whole_types() {
    let (dir, data) = graph();
    let train = data.join("train");
    let original = open_with(&train, &OpenOptions::default()).unwrap();
    let config = golden("set1/ckpt_dyn_affine/config.json");
    let named = lines(&train, dir.path(), OpenOptions::default()).unwrap().0;
    // One partition without names: the type has row numbers, and the loss names the file.
    fs::remove_file(data.join("entity_names_all_1.json")).unwrap();
    let (text, losses) = lines(&train, dir.path(), OpenOptions::default()).unwrap();
    assert!(losses.len() == 1 && losses[0].starts_with("no-names all"), "{losses:?}");
    assert!(losses[0].contains("entity_names_all_1.json is missing"), "{losses:?}");
    let relations = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split('\t').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(relations(&text), relations(&named));
    // No names at all, and back: the same edges in the same buckets.
    fs::remove_file(data.join("dynamic_rel_names.json")).unwrap();
    fs::remove_file(data.join("entity_names_all_0.json")).unwrap();
    let (text, losses) = lines(&train, dir.path(), OpenOptions::default()).unwrap();
    assert_eq!(
        losses.iter().map(|l| l.split(':').next().unwrap()).collect::<Vec<_>>(),
        ["no-names all", "no-names rel"]
    );
    assert!(text.lines().all(|line| line.split('\t').all(|field| field.parse::<u64>().is_ok())));
    for extension in ["parquet", "arrow"] {
        let (list, again) = (dir.path().join(format!("edges.{extension}")), dir.path().join(extension));
        convert(&train, &list, &ConvertOptions { force: true, ..ConvertOptions::default() }).unwrap();
        let options = ConvertOptions {
            open: knowing(Some(config.clone()), Some(data.clone())),
            to: Some("biggraph".to_owned()),
            kind: Some("edges".to_owned()),
            ..ConvertOptions::default()
        };
        convert(&list, &again, &options).unwrap();
        let found = open_with(&again, &OpenOptions::default()).unwrap();
        for bucket in ["0_0", "0_1", "1_0", "1_1"] {
            for name in ["lhs", "rhs", "rel"] {
                let name = format!("{bucket}.{name}");
                assert_eq!(column(&found, &name), column(&original, &name), "{extension} {name}");
            }
        }
    }
    // Row numbers need the counts of the partitions before.
    fs::remove_file(data.join("entity_count_all_0.txt")).unwrap();
    assert_eq!(failure(lines(&train, dir.path(), knowing(Some(config), None))), "no-counts");
}

#[test]
fn edges_of_unknown_types_need_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let open = knowing(None, Some(golden("set1/std/entities")));
    assert_eq!(failure(lines(&golden("set1/std/edges"), dir.path(), open)), "no-config");
    // With a single bucket, ids are rows.
    let (text, losses) = lines(&golden("set1/weighted/edges"), dir.path(), OpenOptions::default()).unwrap();
    assert!(text.lines().all(|line| line.split('\t').all(|field| field.parse::<i64>().is_ok())), "{text}");
    assert_eq!(
        losses.iter().map(|l| l.split(':').next().unwrap()).collect::<Vec<_>>(),
        ["no-names lhs, rhs", "no-names rel"]
    );
}

#[test]
fn damaged_edges_and_names_are_errors_and_leave_no_file() {
    let (dir, data) = graph();
    let train = data.join("train");
    let failing = |file: &str, text: &str| {
        let path = data.join(file);
        let before = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        let target = dir.path().join("target.tsv");
        let error = convert(&train, &target, &ConvertOptions::default()).unwrap_err();
        assert!(!target.exists(), "{file}");
        fs::write(&path, before).unwrap();
        (error.code().as_str().to_owned(), error.to_string())
    };
    let count: usize =
        fs::read_to_string(data.join("entity_count_all_1.txt")).unwrap().trim().parse().unwrap();
    let list = names(&data.join("entity_names_all_1.json"));
    let short = serde_json::to_string(&list[..count - 1]).unwrap();
    assert_eq!(failing("entity_names_all_1.json", &short).0, "names-differ");
    let long = serde_json::to_string(&[list.clone(), vec!["more".to_owned()]].concat()).unwrap();
    assert_eq!(failing("entity_names_all_1.json", &long).0, "names-differ");
    assert_eq!(failing("entity_names_all_1.json", "[\"a\", 1]").0, "not-a-list-of-names");
    assert_eq!(failing("dynamic_rel_names.json", "{}").0, "not-a-list-of-names");
    let (code, text) = failing("dynamic_rel_names.json", "[\"only\"]");
    assert!(code == "relation-out-of-range" && text.contains("of bucket 0, 0"), "{code} {text}");
    // Names that text cannot hold.
    for (name, code) in [
        ("a\tb", "name-separates"),
        ("a\nb", "name-separates"),
        ("a\rb", "name-separates"),
        ("\u{1}", "name-control"),
        ("", "name-empty"),
    ] {
        let renamed = serde_json::to_string(&vec![name; list.len()]).unwrap();
        assert_eq!(failing("entity_names_all_1.json", &renamed).0, code, "{name:?}");
    }
    // Fewer rows than the edges refer to.
    fs::write(data.join("entity_names_all_1.json"), "[\"a\"]").unwrap();
    let (code, text) = failing("entity_count_all_1.txt", "1\n");
    assert!(code == "id-out-of-range" && text.contains("1 rows"), "{code} {text}");
    // A configuration with more partitions than there are files.
    let config = dir.path().join("config.json");
    let text = fs::read_to_string(golden("set1/ckpt_dyn_affine/config.json")).unwrap();
    fs::write(&config, text.replace("\"num_partitions\": 2", "\"num_partitions\": 3")).unwrap();
    let open = knowing(Some(config), Some(golden("set1/dyn/entities")));
    assert_eq!(failure(lines(&golden("set1/dyn/train"), dir.path(), open)), "no-counts");
}

#[test]
fn featurised_edges_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = knowing(Some(golden("set1/ckpt_feat/config.json")), Some(golden("set1/feat/entities")));
    assert_eq!(failure(lines(&golden("set1/feat/edges"), dir.path(), open)), "featurised-edges");
}

#[test]
fn renamed_columns_are_losses() {
    let dir = tempfile::tempdir().unwrap();
    let changes = Changes { rename: vec!["0_0.weight=0_0.score".to_owned()], ..Changes::default() };
    let open = knowing(None, Some(golden("set1/weighted/entities")));
    let options = ConvertOptions { changes, open, ..ConvertOptions::default() };
    let (text, losses) = lines_with(&golden("set1/weighted/edges"), dir.path(), options).unwrap();
    assert!(text.lines().all(|line| line.split('\t').count() == 3));
    assert!(losses.len() == 1 && losses[0].starts_with("no-place 0_0.score"), "{losses:?}");
}

#[test]
fn budgets_and_threads_do_not_change_the_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let open = knowing(Some(golden("set1/ckpt_std_zip/config.json")), Some(golden("set1/std/entities")));
    let checkpoint = open_with(golden("set1/std/edges"), &open).unwrap();
    for format in ["tsv", "parquet", "arrow"] {
        let mut all = Vec::new();
        // Without memory, the names of a partition are dropped after each bucket.
        for (memory, threads) in [(Some(0), 1), (None, 1), (None, 4)] {
            let options = PlanOptions { memory, ..PlanOptions::default() };
            let plan = registry().by_id(format).unwrap().plan(&checkpoint, &options).unwrap();
            let target = dir.path().join(format!("{threads}.{format}"));
            save(&plan, &target, true, &RunOptions { threads, ..RunOptions::default() }).unwrap();
            all.push(fs::read(target).unwrap());
        }
        assert!(all[0] == all[1] && all[1] == all[2] && all[0].len() > 5000, "{format}");
    }
}
