//! Evaluation of golden checkpoints, and neighbors in tables of several formats.

use crate::support::biggraph::{copy, golden, open};
use std::path::Path;
use weighbridge::formats::biggraph::{Comparator, EvaluateOptions as Settings, NeighborOptions};
use weighbridge::ops::evaluate::{CandidateNames, EvaluateOptions, EvaluateReport, evaluate, rank};
use weighbridge::ops::neighbors::{NeighborsOptions, NeighborsReport, Query, neighbors};
use weighbridge::ops::{ConvertOptions, convert};
use weighbridge::{Limits, OpenOptions, Result};

/// Checkpoint, tested edges, other known edges, number of tested edges, raw and filtered metrics.
type Golden = (&'static str, &'static str, &'static [&'static str], u64, [f64; 3], [f64; 3]);

/// Metrics computed with h5py and numpy in double precision: MRR, Hits@10 and mean rank, raw and filtered.
const GOLDEN: [Golden; 9] = [
    (
        "set1/ckpt_std_zip",
        "std/edges",
        &[],
        1556,
        [0.220_697, 0.514_139, 14.843_509],
        [0.265_585, 0.552_378, 13.138_817],
    ),
    (
        "set1/ckpt_std_legacy",
        "std/edges",
        &[],
        1556,
        [0.172_780, 0.441_517, 16.439_267],
        [0.207_376, 0.476_542, 14.729_434],
    ),
    (
        "set1/ckpt_dyn_affine",
        "dyn/valid",
        &["dyn/train"],
        90,
        [0.109_982, 0.244_444, 21.466_667],
        [0.122_733, 0.266_667, 20.094_444],
    ),
    (
        "set1/ckpt_dyn_complex_diagonal",
        "dyn/valid",
        &["dyn/train"],
        90,
        [0.121_311, 0.266_667, 21.105_556],
        [0.142_214, 0.283_333, 19.816_667],
    ),
    (
        "set1/ckpt_weighted",
        "weighted/edges",
        &[],
        260,
        [0.155_475, 0.353_846, 15.036_538],
        [0.198_495, 0.475, 11.342_308],
    ),
    (
        "set2/ckpt_std_zip",
        "std/edges",
        &[],
        1591,
        [0.229_476, 0.541_169, 14.072_910],
        [0.281_191, 0.587_681, 12.209_617],
    ),
    (
        "set2/ckpt_dyn_affine",
        "dyn/valid",
        &["dyn/train"],
        90,
        [0.131_778, 0.283_333, 20.355_556],
        [0.150_292, 0.366_667, 18.588_889],
    ),
    (
        "set2/ckpt_dyn_complex_diagonal",
        "dyn/valid",
        &["dyn/train"],
        90,
        [0.130_065, 0.294_444, 21.527_778],
        [0.147_130, 0.327_778, 19.75],
    ),
    (
        "set2/ckpt_weighted",
        "weighted/edges",
        &[],
        260,
        [0.159_704, 0.386_538, 14.65],
        [0.202_790, 0.496_154, 11.007_692],
    ),
];

fn evaluated(checkpoint: &Path, edges: &Path, filter: &[&Path]) -> Result<EvaluateReport> {
    let filter = filter.iter().map(|path| path.to_path_buf()).collect();
    evaluate(checkpoint, edges, &EvaluateOptions { filter, ..Default::default() })
}

#[test]
fn golden_checkpoints_have_the_metrics_of_numpy() {
    for (checkpoint, edges, more, count, raw, filtered) in GOLDEN {
        let place = |name: &str| golden(&format!("{}/{name}", &checkpoint[..4]));
        let edges = place(edges);
        let more: Vec<_> = more.iter().map(|name| place(name)).collect();
        let known: Vec<&Path> = more.iter().chain([&edges]).map(|path| path.as_path()).collect();
        for (filter, truth) in [(&[][..], raw), (&known, filtered)] {
            let found = evaluated(&golden(checkpoint), &edges, filter).unwrap().evaluation.all;
            assert_eq!(found.edges, count, "{checkpoint}");
            let own = [found.mrr, found.hits[1], found.mean_rank];
            // A score in single precision may swap two entities of nearly the same score.
            let near = own.iter().zip(truth).all(|(own, truth)| (own - truth).abs() < 1e-3 * truth.max(0.2));
            assert!(near, "{checkpoint}: {own:?} {truth:?}");
        }
    }
}

#[test]
fn given_candidates_are_named_in_files() {
    let (model, edges) = (golden("set1/ckpt_std_zip"), golden("set1/std/edges"));
    let dir = tempfile::tempdir().unwrap();
    let with = |entity: Option<&str>, text: &str| {
        let file = dir.path().join("names.txt");
        std::fs::write(&file, text).unwrap();
        let names = CandidateNames::read(entity.map(str::to_owned), &file, &Limits::default())?;
        evaluate(&model, &edges, &EvaluateOptions { candidates: vec![names], ..Default::default() })
    };
    let checkpoint = open(&model);
    let names = checkpoint.tensor("embeddings.item").unwrap().row_names.as_ref().unwrap().read().unwrap();
    let all: Vec<&str> = names.iter().collect();
    // All entities as candidates are no other evaluation.
    let every = with(Some("item"), &all.join("\n")).unwrap();
    assert_eq!(every.evaluation, evaluated(&model, &edges, &[]).unwrap().evaluation);
    assert_eq!(every.to_json()["candidates"]["item"], all.len());
    let few = with(Some("item"), &format!("{}\n{}\r\n{}", all[4], all[0], all[4])).unwrap();
    assert_eq!(few.candidates.into_iter().collect::<Vec<_>>(), [("item".to_owned(), 2)]);
    assert!(few.evaluation.all.mrr > every.evaluation.all.mrr);
    let error = with(Some("item"), &format!("{}\n{}x\n", all[0], all[1])).unwrap_err();
    assert_eq!(error.code().as_str(), "no-such-row");
    assert!(error.message().starts_with("name 2 of 2") && error.file().unwrap().ends_with("names.txt"));
    assert!(error.hint_text().unwrap().starts_with("did you mean"));
    assert_eq!(with(None, "a").unwrap_err().code().as_str(), "several-tables");
    assert_eq!(with(Some("thing"), "a").unwrap_err().code().as_str(), "no-such-type");
    assert_eq!(with(Some("item"), "").unwrap_err().code().as_str(), "no-candidates");
}

#[test]
fn edges_beside_other_names_have_a_note() {
    let (model, dir) = (golden("set1/ckpt_dyn_affine"), tempfile::tempdir().unwrap());
    let place = |name: &str| dir.path().join(name);
    copy(&golden("set1/dyn"), dir.path());
    let notes = || {
        let found = evaluated(&model, &place("valid"), &[&place("train")]).unwrap().evaluation;
        assert_eq!(found.all.edges, 90);
        let notes = found.notes.iter().filter(|note| note.code.as_str() == "names-differ");
        notes.map(|note| note.text.to_string()).collect::<Vec<_>>()
    };
    assert!(notes().is_empty());
    let edit = |name: &str, from: &str, to: &str| {
        let path = place("entities").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        std::fs::write(path, text.replace(from, to)).unwrap();
    };
    // One for the edges, one for those of the filter.
    edit("entity_names_all_0.json", "\"e1\"", "\"other\"");
    let found = notes();
    assert!(
        found.len() == 2 && found[0].contains("row 3 of type all is other, the checkpoint has e1"),
        "{found:?}"
    );
    assert!(found[1].contains("train"), "{found:?}");
    // Another folder has the right names.
    copy(&golden("set1/dyn/entities"), &place("known"));
    assert!(notes().is_empty());
    std::fs::remove_dir_all(place("known")).unwrap();
    edit("entity_names_all_0.json", "\"other\"", "\"e1\"");
    assert!(notes().is_empty());
    edit("dynamic_rel_names.json", "\"rel_0\"", "\"rel_x\"");
    assert!(notes()[0].contains("is rel_x, the checkpoint has rel_0"));
    edit("dynamic_rel_names.json", "\"rel_x\"", "\"rel_0\"");
    // Names of another number of entities, and lists that cannot be read.
    edit("entity_count_all_1.txt", "22", "21");
    assert!(notes()[0].contains("44 names of type all, the checkpoint has 45"));
    edit("entity_count_all_1.txt", "21", "?");
    assert!(notes().is_empty());
}

#[test]
fn damaged_checkpoints_and_other_edges_are_errors() {
    let code = |error: Result<EvaluateReport>| error.unwrap_err().code().as_str();
    let (model, edges) = (golden("set1/ckpt_std_zip"), golden("set1/std/edges"));
    assert_eq!(code(evaluated(&model, &golden("set1/dyn/valid"), &[])), "id-out-of-range");
    assert_eq!(code(evaluated(&model, &edges, &[&golden("set1/std/entities")])), "no-edges");
    assert_eq!(code(evaluated(&golden("set1/ckpt_feat"), &golden("set1/feat/edges"), &[])), "featurised");
    let dir = tempfile::tempdir().unwrap();
    let lost = dir.path().join("lost");
    copy(&model, &lost);
    let file = |name: &str| {
        let files = std::fs::read_dir(&lost).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name)).max().unwrap()
    };
    let model_file = file("model.v");
    let kept = std::fs::read(&model_file).unwrap();
    let lenient = EvaluateOptions {
        open: OpenOptions { lenient: true, ..OpenOptions::default() },
        ..EvaluateOptions::default()
    };
    std::fs::remove_file(&model_file).unwrap();
    assert_eq!(code(evaluated(&lost, &edges, &[])), "model-missing");
    assert_eq!(code(evaluate(&lost, &edges, &lenient)), "parameters-missing");
    std::fs::write(model_file, kept).unwrap();
    std::fs::remove_file(file("embeddings_user_2")).unwrap();
    assert_eq!(code(evaluated(&lost, &edges, &[])), "partition-missing");
    assert_eq!(code(evaluate(&lost, &edges, &lenient)), "partition-missing");
}

fn search(path: &Path, query: Query, settings: NeighborOptions) -> Result<NeighborsReport> {
    neighbors(path, &query, &NeighborsOptions { settings, ..Default::default() })
}

fn rows(texts: &[&str]) -> Query {
    Query::Rows(texts.iter().map(|text| (*text).to_owned()).collect())
}

#[test]
fn tables_of_every_format_have_the_same_neighbors() {
    let model = golden("set1/ckpt_weighted");
    let dir = tempfile::tempdir().unwrap();
    let by_cos = || NeighborOptions { comparator: Some(Comparator::Cos), count: 4, ..Default::default() };
    let mut open = OpenOptions::default();
    open.set_own(weighbridge::formats::biggraph::ReadOptions {
        entities: Some(std::sync::Arc::new(
            weighbridge::source::LocalFolder::open(golden("set1/weighted/entities")).unwrap(),
        )),
        ..Default::default()
    });
    let truth = neighbors(
        &model,
        &rows(&["n[3]", "n[0:2]"]),
        &NeighborsOptions { open: open.clone(), settings: by_cos(), queries: None },
    )
    .unwrap();
    assert_eq!((truth.queried.as_str(), truth.found.lists.len()), ("embeddings.n", 3));
    let name = truth.queries[0].1.clone().unwrap();
    for target in ["n.vec", "n.parquet", "n.tsv", "n.npy", "n.arrow"] {
        let path = dir.path().join(target);
        let mut options = ConvertOptions { open: open.clone(), ..ConvertOptions::default() };
        options.changes.select = vec!["embeddings.n".to_owned()];
        options.changes.no_state = true;
        options.to = target.ends_with(".vec").then(|| "word2vec".to_owned());
        convert(&model, &path, &options).unwrap_or_else(|e| panic!("{target}: {e}"));
        let first = if target == "n.npy" { "[3]".to_owned() } else { format!("['{name}']") };
        let found = search(&path, rows(&[&first, "[0]", "[1]"]), by_cos())
            .unwrap_or_else(|e| panic!("{target}: {e}"));
        let numbers = |report: &NeighborsReport| {
            report.found.lists.iter().flatten().map(|neighbor| neighbor.row).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&found), numbers(&truth), "{target}");
        assert_eq!(found.found.comparator, Comparator::Cos);
        let has_names = target != "n.npy";
        assert_eq!(
            found.to_json()["queries"][0]["name"],
            serde_json::json!(has_names.then_some(&name)),
            "{target}"
        );
        assert_eq!(found.name(found.found.lists[0][0].row).is_some(), has_names);
        let whole = search(&path, rows(&[]), by_cos()).unwrap();
        assert_eq!(whole.found.lists.len(), 30, "{target}");
    }
}

#[test]
fn queries_are_rows_names_in_files_and_vectors() {
    let model = golden("set1/ckpt_std_zip");
    let one = |query: &str, relation: &str| {
        let relation = Some(relation.to_owned());
        search(&model, rows(&[query]), NeighborOptions { relation, count: 3, ..Default::default() })
    };
    let found = one("user[3]", "likes").unwrap();
    assert_eq!(
        (found.found.table.name(), found.found.comparator),
        ("embeddings.item".to_owned(), Comparator::Dot)
    );
    let back = one(&format!("item[{}]", found.found.lists[0][0].row), "likes").unwrap();
    assert_eq!(back.found.table.name(), "embeddings.user");
    let code = |error: Result<NeighborsReport>| error.unwrap_err().code().as_str();
    assert_eq!(code(one("country[0]", "likes")), "no-such-type");
    assert_eq!(code(one("user[0]", "hates")), "no-such-relation");
    let plain = |query: Query| search(&model, query, NeighborOptions::default());
    assert_eq!(code(plain(rows(&["user[0]", "item[0]"]))), "several-tables");
    assert_eq!(code(plain(rows(&["user[0, 0:2]"]))), "rows");
    assert_eq!(code(plain(rows(&["person[0]"]))), "no-such-tensor");
    assert_eq!(code(plain(rows(&[]))), "name-missing");
    let vectors =
        |columns: u64| Query::Vectors { table: Some("user".to_owned()), values: vec![0.5; 16], columns };
    assert_eq!(plain(vectors(8)).unwrap().found.lists.len(), 2);
    assert_eq!(code(plain(vectors(4))), "wrong-length");

    let dir = tempfile::tempdir().unwrap();
    let (names, plain_table) = (dir.path().join("names.txt"), dir.path().join("n.npy"));
    let mut options = ConvertOptions::default();
    options.changes.select = vec!["embeddings.n".to_owned()];
    options.changes.no_state = true;
    convert(golden("set1/ckpt_weighted"), &plain_table, &options).unwrap();
    let from = |text: &str| {
        std::fs::write(&names, text).unwrap();
        let options = NeighborsOptions { queries: Some(names.clone()), ..Default::default() };
        let with = |path: &Path| neighbors(path, &rows(&[]), &options);
        (with(&golden("set1/ckpt_weighted")), with(&plain_table))
    };
    let numbers = |found: Result<NeighborsReport>| {
        found.unwrap().queries.iter().map(|(row, _)| *row).collect::<Vec<_>>()
    };
    assert_eq!(numbers(from("n9\nn5\nn9\n").0), [0, 2, 0]);
    assert_eq!(code(from("n9\nalice\n").0), "no-such-row");
    // Without names, rows have numbers.
    assert_eq!(numbers(from("4\n2\n").1), [4, 2]);
    assert_eq!(code(from("alice\n").1), "no-row-names");
    assert_eq!(code(from("30\n").1), "rows");
}

#[test]
fn a_single_edge_has_its_rank_among_all_entities() {
    let model = golden("set1/ckpt_std_zip");
    let found =
        rank(&model, "likes", ["user[3]", "item[5]"], &OpenOptions::default(), &Settings::default()).unwrap();
    let [lhs, rhs] = &found.sides;
    let options = NeighborOptions { relation: Some("likes".to_owned()), count: 1000, ..Default::default() };
    let predicted = search(&model, rows(&["user[3]"]), options).unwrap();
    let place = predicted.found.lists[0].iter().position(|neighbor| neighbor.row == 5).unwrap();
    assert_eq!(
        (rhs.rank.rank, rhs.rank.negatives),
        (place as u64 + 1, predicted.found.lists[0].len() as u64 - 1)
    );
    assert!((lhs.rank.score - rhs.rank.score).abs() < 1e-6);
    assert_eq!(found.to_json()["relation"]["name"], "likes");
    let code = |lhs: &str, rhs: &str| {
        let sides = [lhs, rhs];
        rank(&model, "likes", sides, &OpenOptions::default(), &Settings::default())
            .unwrap_err()
            .code()
            .as_str()
    };
    assert_eq!(code("item[3]", "item[5]"), "no-such-type");
    assert_eq!(code("user[0:2]", "item[5]"), "rows");
}
