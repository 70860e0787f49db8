use super::super::neighbors::{NeighborOptions, Queries, neighbors};
use super::super::scores::Comparator;
use super::*;
use serde_json::json;
use weighbridge_core::checkpoint::{Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::{MemorySource, SourceRef};

const COLUMNS: usize = 4;
const USERS: [u64; 2] = [6, 5];
const ITEMS: u64 = 7;
const OPERATORS: [&str; 6] = ["none", "diagonal", "translation", "linear", "affine", "complex_diagonal"];

/// Pseudo-random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        ranking::below(&mut self.0, end)
    }
    fn floats(&mut self, count: u64) -> Vec<f32> {
        let one = |_| f32::from(u16::try_from(self.below(1 << 16)).unwrap()) / 32768.0 - 1.0;
        (0..count).map(one).collect()
    }
}

fn entry(path: &[&str], dtype: DType, shape: &[u64], bytes: Vec<u8>) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    let path = TensorPath::new(path.iter().map(|part| Name::from(*part)).collect::<Vec<_>>());
    TensorEntry::dense(path, dtype, Shape::new(shape), &source, 0, Encoding::ROW).unwrap()
}

/// Model that this test computes with itself.
#[derive(Clone)]
struct Trained {
    operator: &'static str,
    comparator: Comparator,
    bias: bool,
    dynamic: bool,
    max_norm: Option<f64>,
    /// Rows of users and items.
    tables: [Vec<f32>; 2],
    globals: [Vec<f32>; 2],
    /// Parameters by side (only right without dynamic relations) and relation.
    parameters: [[[Vec<f32>; 2]; 2]; 2],
}

impl Trained {
    fn new(operator: &'static str, comparator: Comparator, bias: bool, dynamic: bool, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let sizes = match operator {
            "linear" | "affine" => [16, 4],
            "complex_diagonal" => [2, 2],
            _ => [4, 0],
        };
        let mut pair = || sizes.map(|size| rng.floats(size));
        let parameters = [[pair(), pair()], [pair(), pair()]];
        let tables = [11, 7].map(|rows| rng.floats(rows * 4));
        let globals = [rng.floats(4), rng.floats(4)];
        Self { operator, comparator, bias, dynamic, max_norm: None, tables, globals, parameters }
    }

    /// Types of both sides of a relation.
    fn kinds(&self, relation: usize) -> [usize; 2] {
        if self.dynamic { [0, 0] } else { [[0, 0], [0, 1]][relation] }
    }

    fn checkpoint(&self) -> Checkpoint {
        let relation = |name: &str, rhs: &str| json!({"name": name, "lhs": "user", "rhs": rhs, "operator": self.operator});
        let relations = match self.dynamic {
            true => vec![relation("all", "user")],
            false => vec![relation("follows", "user"), relation("likes", "item")],
        };
        let config = json!({
            "entities": {"user": {"num_partitions": 2}, "item": {"num_partitions": 1}},
            "relations": relations, "dimension": COLUMNS, "entity_path": "e", "edge_paths": ["x"],
            "checkpoint_path": "c", "comparator": self.comparator.name(), "bias": self.bias,
            "global_emb": !self.dynamic, "dynamic_relations": self.dynamic, "max_norm": self.max_norm,
        });
        let mut made = Checkpoint::new("biggraph", "checkpoint", "model");
        made.metadata.set("config", Value::Text(config.to_string()));
        let counts = |counts: &[u64]| Value::List(counts.iter().copied().map(Value::U64).collect());
        let partitions = vec![(Name::from("user"), counts(&USERS)), (Name::from("item"), counts(&[ITEMS]))];
        made.metadata.set("partitions", Value::Map(partitions));
        let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        let add = |made: &mut Checkpoint, path: &[&str], shape: &[u64], values: &[f32]| {
            made.tensors.push(entry(path, DType::F32, shape, bytes(values)));
        };
        for (kind, name) in ["user", "item"].into_iter().enumerate() {
            let rows = self.tables[kind].len() as u64 / 4;
            add(&mut made, &["embeddings", name], &[rows, 4], &self.tables[kind]);
            made.tensors.last_mut().unwrap().role = Role::Embedding;
            if !self.dynamic {
                add(&mut made, &["entities", name, "global_embedding"], &[4], &self.globals[kind]);
            }
        }
        let names: &[(&str, &[u64])] = match self.operator {
            "none" => &[],
            "diagonal" => &[("diagonal", &[4])],
            "translation" => &[("translation", &[4])],
            "linear" => &[("linear_transformation", &[4, 4])],
            "affine" => &[("linear_transformation", &[4, 4]), ("translation", &[4])],
            _ => &[("real", &[2]), ("imag", &[2])],
        };
        for (place, (name, shape)) in names.iter().enumerate() {
            if self.dynamic {
                let plural = if self.operator == "complex_diagonal" { "" } else { "s" };
                for (side, word) in ["lhs", "rhs"].into_iter().enumerate() {
                    let own = &self.parameters[side];
                    let values = [own[0][place].clone(), own[1][place].clone()].concat();
                    let path = ["relations", "0", "operator", word, &format!("{name}{plural}")];
                    add(&mut made, &path, &[&[2], *shape].concat(), &values);
                }
                continue;
            }
            for relation in 0..2 {
                let path = ["relations", &relation.to_string(), "operator", "rhs", name];
                add(&mut made, &path, shape, &self.parameters[1][relation][place]);
            }
        }
        if self.dynamic {
            made.metadata.set("dynamic_relations", Value::U64(2));
        }
        made
    }

    /// Row with its adjustments, in `f64`.
    fn row(&self, kind: usize, row: u64) -> Vec<f64> {
        let start = usize::try_from(row).unwrap() * COLUMNS;
        let mut values: Vec<f64> =
            self.tables[kind][start..start + COLUMNS].iter().map(|x| f64::from(*x)).collect();
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        if let Some(most) = self.max_norm.filter(|most| norm > *most) {
            values.iter_mut().for_each(|x| *x *= most / (norm + 1e-7));
        }
        if !self.dynamic {
            values.iter_mut().zip(&self.globals[kind]).for_each(|(x, global)| *x += f64::from(*global));
        }
        values
    }

    fn apply(&self, side: usize, relation: usize, v: &[f64]) -> Vec<f64> {
        let [first, second] = self.parameters[side][relation]
            .each_ref()
            .map(|values| values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        let product = |i: usize| (0..4).map(|j| first[4 * i + j] * v[j]).sum::<f64>();
        let at = |i: usize| match self.operator {
            "none" => v[i],
            "diagonal" => v[i] * first[i],
            "translation" => v[i] + first[i],
            "linear" => product(i),
            "affine" => product(i) + second[i],
            _ if i < 2 => v[i] * first[i] - v[i + 2] * second[i],
            _ => v[i - 2] * second[i - 2] + v[i] * first[i - 2],
        };
        (0..4).map(at).collect()
    }

    fn compare(&self, a: &[f64], b: &[f64]) -> f64 {
        let skip = usize::from(self.bias);
        let dot = |a: &[f64], b: &[f64]| a[skip..].iter().zip(&b[skip..]).map(|(a, b)| a * b).sum::<f64>();
        let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        let score = match self.comparator {
            Comparator::Dot => dot(a, b),
            Comparator::Cos => dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
            Comparator::L2 => -dot(&apart, &apart).sqrt(),
            Comparator::SquaredL2 => -dot(&apart, &apart),
        };
        if self.bias { score + a[0] + b[0] } else { score }
    }

    /// Score of an edge whose side `side` is ranked.
    fn score(&self, edge: Edge, side: usize) -> f64 {
        let relation = edge.relation as usize;
        let kinds = self.kinds(relation);
        let [lhs, rhs] = [0, 1].map(|side| self.row(kinds[side], edge.rows[side]));
        if self.dynamic && side == 1 {
            self.compare(&self.apply(0, relation, &lhs), &rhs)
        } else {
            self.compare(&lhs, &self.apply(1, relation, &rhs))
        }
    }

    /// Rank of a side among `candidates`, without those of `known`.
    fn rank(&self, edge: Edge, side: usize, candidates: &[u64], known: &[Edge]) -> u64 {
        let own = self.score(edge, side);
        let corrupted = candidates.iter().map(|row| {
            let mut edge = edge;
            edge.rows[side] = *row;
            edge
        });
        let negatives = corrupted.filter(|other| *other != edge && !known.contains(other));
        1 + negatives.filter(|other| self.score(*other, side) >= own).count() as u64
    }
}

/// Random edges, in the order of their buckets, with the bucket of each.
fn random_edges(trained: &Trained, count: usize, seed: u64) -> Vec<(Edge, [u64; 2])> {
    let mut rng = Rng(seed);
    let mut all: Vec<(Edge, [u64; 2])> = (0..count)
        .map(|_| {
            let relation = u32::try_from(rng.below(2)).unwrap();
            let kinds = trained.kinds(relation as usize);
            let rows = kinds.map(|kind| rng.below([11, 7][kind]));
            let part = |side: usize| u64::from(kinds[side] == 0 && rows[side] >= USERS[0]);
            (Edge { relation, rows }, [part(0), part(1)])
        })
        .collect();
    all.sort_by_key(|(_, bucket)| *bucket);
    all
}

fn edges_of(trained: &Trained, edges: &[(Edge, [u64; 2])]) -> Checkpoint {
    let mut made = Checkpoint::new("biggraph", "edges", "edges");
    for bucket in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let own: Vec<Edge> =
            edges.iter().filter(|(_, parts)| *parts == bucket).map(|(edge, _)| *edge).collect();
        let id = |edge: &Edge, side: usize| {
            let start =
                if trained.kinds(edge.relation as usize)[side] == 0 { bucket[side] * USERS[0] } else { 0 };
            edge.rows[side] - start
        };
        let columns: [(&str, Vec<u64>); 3] = [
            ("lhs", own.iter().map(|edge| id(edge, 0)).collect()),
            ("rhs", own.iter().map(|edge| id(edge, 1)).collect()),
            ("rel", own.iter().map(|edge| u64::from(edge.relation)).collect()),
        ];
        for (name, numbers) in columns {
            let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let place = format!("{}_{}", bucket[0], bucket[1]);
            let mut column = entry(&[&place, name], DType::I64, &[numbers.len() as u64], bytes);
            column.role = Role::Edges;
            made.tensors.push(column);
        }
    }
    made
}

/// Rank of an edge between rows of the users (0) and items (1).
fn ranked(model: &Checkpoint, relation: &str, rows: [u64; 2], kinds: [usize; 2]) -> Result<EdgeRank> {
    let table = |kind: usize| model.tensor(["embeddings.user", "embeddings.item"][kind]).unwrap();
    let sides = [(table(kinds[0]), rows[0]), (table(kinds[1]), rows[1])];
    rank(model, relation, sides, &EvaluateOptions::default())
}

/// Metrics of ranks.
fn metrics(ranks: &[[u64; 2]]) -> [f64; 5] {
    let all: Vec<f64> = ranks.iter().flatten().map(|rank| f64::from(u32::try_from(*rank).unwrap())).collect();
    let mean = |value: &dyn Fn(f64) -> f64| {
        all.iter().map(|rank| value(*rank)).sum::<f64>() / f64::from(u32::try_from(all.len()).unwrap())
    };
    let at = |most: f64| mean(&|rank: f64| if rank <= most { 1.0 } else { 0.0 });
    [mean(&|rank| 1.0 / rank), at(1.0), at(10.0), at(50.0), mean(&|rank| rank)]
}

fn check(found: &Metrics, ranks: &[[u64; 2]], case: &str) {
    let truth = metrics(ranks);
    let own = [found.mrr, found.hits[0], found.hits[1], found.hits[2], found.mean_rank];
    assert_eq!(found.edges, ranks.len() as u64, "{case}");
    assert!(
        own.iter().zip(truth).all(|(own, truth)| (own - truth).abs() < 1e-9),
        "{case}: {own:?} {truth:?}"
    );
}

fn trained_models() -> Vec<Trained> {
    let mut all = Vec::new();
    for operator in OPERATORS {
        for comparator in Comparator::ALL {
            for (bias, dynamic) in [(false, false), (true, false), (false, true), (true, true)] {
                all.push(Trained::new(operator, comparator, bias, dynamic, all.len() as u64 + 1));
            }
        }
    }
    let renormed = Trained { max_norm: Some(0.7), ..all[5].clone() };
    all.push(renormed);
    all
}

#[test]
fn ranks_are_those_of_the_definition() {
    for trained in trained_models() {
        let (model, edges) = (trained.checkpoint(), random_edges(&trained, 40, 5));
        let known: Vec<Edge> =
            edges.iter().chain(&random_edges(&trained, 60, 9)).map(|(edge, _)| *edge).collect();
        let filter = edges_of(&trained, &[edges.clone(), random_edges(&trained, 60, 9)].concat());
        let none: &[u64] = &[];
        for (negatives, filtered, given) in [
            (Negatives::All, false, none),
            (Negatives::All, true, none),
            (Negatives::Partition, false, none),
            (Negatives::Sampled(4), true, none),
            (Negatives::Sampled(100), false, none),
            (Negatives::All, false, &[9, 0, 4, 7, 4]),
            (Negatives::Partition, true, &[2, 10, 6, 1]),
            (Negatives::Sampled(2), false, &[5]),
        ] {
            let case = format!(
                "{} {:?} {} {} {negatives:?} {filtered} {given:?}",
                trained.operator, trained.comparator, trained.bias, trained.dynamic
            );
            let mut options = EvaluateOptions { negatives, seed: 3, ..Default::default() };
            if !given.is_empty() {
                options.candidates.insert("user".to_owned(), given.to_vec());
            }
            let filter: &[&Checkpoint] = if filtered { &[&filter] } else { &[] };
            let found = evaluate(&model, &edges_of(&trained, &edges), filter, &options).unwrap();
            let known: &[Edge] = if filtered { &known } else { &[] };
            let rank = |(edge, bucket): &(Edge, [u64; 2])| {
                [0, 1].map(|side| {
                    let kind = trained.kinds(edge.relation as usize)[side];
                    let rows = [11, 7][kind];
                    let candidates: Vec<u64> = match negatives {
                        _ if kind == 0 && !given.is_empty() => {
                            given.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
                        }
                        Negatives::Partition if kind == 0 && bucket[side] == 0 => (0..USERS[0]).collect(),
                        Negatives::Partition if kind == 0 => (USERS[0]..rows).collect(),
                        // Types are numbered in the order of relations.
                        Negatives::Sampled(count) if count < rows => {
                            sample(rows, count, mixed(3 ^ mixed(kind as u64)))
                        }
                        _ => (0..rows).collect(),
                    };
                    trained.rank(*edge, side, &candidates, known)
                })
            };
            let ranks: Vec<[u64; 2]> = edges.iter().map(rank).collect();
            check(&found.all, &ranks, &case);
            for relation in &found.relations {
                let own = edges.iter().zip(&ranks).filter(|((edge, _), _)| edge.relation == relation.number);
                check(&relation.metrics, &own.map(|(_, ranks)| *ranks).collect::<Vec<_>>(), &case);
            }
            assert!(found.notes.is_empty(), "{case}: {:?}", found.notes);
        }
        let (edge, _) = edges[7];
        let kinds = trained.kinds(edge.relation as usize);
        let one = ranked(&model, &edge.relation.to_string(), edge.rows, kinds).unwrap();
        for (side, found) in [one.lhs, one.rhs].into_iter().enumerate() {
            let rows = [11, 7][trained.kinds(edge.relation as usize)[side]];
            assert_eq!(found.rank, trained.rank(edge, side, &(0..rows).collect::<Vec<_>>(), &[]));
            assert_eq!(found.negatives, rows - 1);
            assert!((f64::from(found.score) - trained.score(edge, side)).abs() < 1e-5);
        }
    }
}

#[test]
fn neighbors_are_those_of_the_definition() {
    for trained in trained_models() {
        let model = trained.checkpoint();
        for (relation, reverse) in [(None, false), (Some(0), false), (Some(0), true), (Some(1), false)] {
            // Relation 1 joins users to items if static.
            let own = relation.map_or([0, 0], |relation| trained.kinds(relation));
            let side = usize::from(reverse);
            let options = NeighborOptions {
                count: 5,
                relation: relation.map(|relation: usize| relation.to_string()),
                reverse,
                ..Default::default()
            };
            let table = model.tensor("embeddings.user").unwrap();
            let rows = [3, 0, 10];
            let found = neighbors(&model, table, Queries::Rows(&rows), &options).unwrap();
            for (query, list) in rows.iter().zip(&found.lists) {
                let score = |row: u64| {
                    let Some(relation) = relation else {
                        return trained.compare(&trained.row(0, *query), &trained.row(0, row));
                    };
                    let mut edge = Edge { relation: u32::try_from(relation).unwrap(), rows: [*query, row] };
                    if reverse {
                        edge.rows.swap(0, 1);
                    }
                    trained.score(edge, 1 - side)
                };
                let kind = own[1 - side];
                let mut all: Vec<(u64, f64)> = (0..[11, 7][kind])
                    .filter(|row| kind != 0 || row != query)
                    .map(|row| (row, score(row)))
                    .collect();
                all.sort_by(|a, b| b.1.total_cmp(&a.1));
                assert_eq!(list.len(), 5);
                for (neighbor, (row, score)) in list.iter().zip(all) {
                    assert_eq!(neighbor.row, row, "{} {:?}", trained.operator, trained.comparator);
                    assert!((f64::from(neighbor.score) - score).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn equal_rows_count_against_an_edge() {
    let mut trained = Trained::new("none", Comparator::Cos, false, false, 4);
    let row = trained.tables[1][..4].to_vec();
    trained.tables[1] = row.repeat(7);
    let found = ranked(&trained.checkpoint(), "likes", [2, 5], [0, 1]).unwrap();
    assert_eq!((found.rhs.rank, found.name.as_deref()), (7, Some("likes")));
    let options = NeighborOptions { count: 3, ..Default::default() };
    let model = trained.checkpoint();
    let table = model.tensor("embeddings.item").unwrap();
    let found = neighbors(&model, table, Queries::Vectors(&row), &options).unwrap();
    assert_eq!(found.lists[0].iter().map(|neighbor| neighbor.row).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn results_do_not_depend_on_threads_or_memory() {
    let trained = Trained::new("affine", Comparator::L2, false, false, 8);
    // More edges than fit in the smallest budget.
    let (model, edges) = (trained.checkpoint(), random_edges(&trained, 30_000, 2));
    let edges = edges_of(&trained, &edges);
    let filter = edges_of(&trained, &random_edges(&trained, 40, 3));
    let with = |threads: usize, memory: u64| {
        let options = EvaluateOptions { threads, memory, ..Default::default() };
        evaluate(&model, &edges, &[&filter], &options).unwrap()
    };
    let (one, three, small) = (with(1, 256 << 20), with(3, 256 << 20), with(2, 8 << 20));
    assert_eq!(one, three);
    // Random pairs are of edges in memory at once.
    assert!((one.all.auc - small.all.auc).abs() < 0.02);
    assert!((one.all.mrr - small.all.mrr).abs() < 1e-9 && one.all.hits == small.all.hits);
    assert!(one.all.mean_rank.to_bits() == small.all.mean_rank.to_bits());
    let little = EvaluateOptions { memory: 1, ..Default::default() };
    assert!(evaluate(&model, &edges, &[], &little).is_err());
}

#[test]
fn the_auc_estimates_the_fraction_of_ordered_pairs() {
    let trained = Trained::new("translation", Comparator::Dot, false, true, 21);
    let (model, edges) = (trained.checkpoint(), random_edges(&trained, 30, 7));
    let (mut ordered, mut pairs) = (0u32, 0u32);
    for side in [0, 1] {
        for (one, _) in &edges {
            for (other, _) in &edges {
                for row in (0..11).filter(|row| *row != other.rows[side]) {
                    let mut negative = *other;
                    negative.rows[side] = row;
                    ordered += u32::from(trained.score(*one, side) > trained.score(negative, side));
                    pairs += 1;
                }
            }
        }
    }
    let edges = edges_of(&trained, &edges);
    let auc = |seed: u64| {
        evaluate(&model, &edges, &[], &EvaluateOptions { seed, ..Default::default() }).unwrap().all.auc
    };
    let mean = (0..300).map(auc).sum::<f64>() / 300.0;
    let truth = f64::from(ordered) / f64::from(pairs);
    assert!((mean - truth).abs() < 0.02, "{mean} {truth}");
    assert!((auc(5) - auc(5)).abs() < 1e-12);
}

#[test]
fn samples_are_distinct_and_uniform() {
    let mut drawn = [0u32; 10];
    for seed in 0..3000 {
        let rows = sample(10, 4, mixed(seed));
        assert_eq!(rows.len(), 4);
        assert!(rows.is_sorted_by(|a, b| a < b));
        rows.iter().for_each(|row| drawn[usize::try_from(*row).unwrap()] += 1);
    }
    assert!(drawn.iter().all(|count| (1050..1350).contains(count)), "{drawn:?}");
}

#[test]
fn faults_of_edges_and_models_are_named() {
    let trained = Trained::new("affine", Comparator::Dot, false, false, 6);
    let (model, edges) = (trained.checkpoint(), random_edges(&trained, 10, 2));
    let code = |model: &Checkpoint, edges: &Checkpoint| {
        evaluate(model, edges, &[], &EvaluateOptions::default()).unwrap_err().code().as_str()
    };
    let with = |relation: u32, rows: [u64; 2]| edges_of(&trained, &[(Edge { relation, rows }, [0, 0])]);
    assert_eq!(code(&model, &with(0, [6, 0])), "id-out-of-range");
    assert_eq!(code(&model, &with(1, [0, 7])), "id-out-of-range");
    assert_eq!(code(&model, &with(0, [u64::MAX, 0])), "id-out-of-range");
    let mut other = edges_of(&trained, &edges);
    other.tensors.iter_mut().filter(|t| t.path.parts()[1].as_str() == Some("rel")).for_each(|t| {
        *t = entry(
            &["0_0", "rel"],
            DType::I64,
            &[t.elements()],
            vec![2; 8 * usize::try_from(t.elements()).unwrap()],
        );
    });
    other.tensors.retain(|t| t.path.parts()[0].as_str() == Some("0_0"));
    assert_eq!(code(&model, &other), "columns-differ");
    let mut unknown = with(0, [0, 0]);
    unknown.tensors[2] = entry(&["0_0", "rel"], DType::I64, &[1], 2u64.to_le_bytes().to_vec());
    unknown.tensors[2].role = Role::Edges;
    assert_eq!(code(&model, &unknown), "relation-out-of-range");
    let mut far = with(0, [0, 0]);
    for column in &mut far.tensors[..3] {
        *column = entry(&["0_2", column.path.parts()[1].as_str().unwrap()], DType::I64, &[1], vec![0; 8]);
        column.role = Role::Edges;
    }
    assert_eq!(code(&model, &far), "no-such-partition");
    let good = edges_of(&trained, &edges);
    let without = |keep: &dyn Fn(&str) -> bool| {
        let mut model = trained.checkpoint();
        model.tensors.retain(|tensor| keep(&tensor.name()));
        model
    };
    assert_eq!(code(&without(&|name| !name.ends_with("translation")), &good), "parameters-missing");
    assert_eq!(code(&without(&|name| !name.ends_with("user.global_embedding")), &good), "parameters-missing");
    assert_eq!(code(&without(&|name| name != "embeddings.item"), &good), "no-such-type");
    assert_eq!(code(&without(&|name| !name.starts_with("embeddings")), &good), "wrong-kind");
    let mut lost = trained.checkpoint();
    let counts = Value::List(vec![Value::U64(6), Value::Null]);
    let all = vec![(Name::from("user"), counts), (Name::from("item"), Value::List(vec![Value::U64(7)]))];
    lost.metadata.set("partitions", Value::Map(all));
    assert_eq!(code(&lost, &good), "partition-missing");
    let mut narrow = trained.checkpoint();
    let place = narrow.tensors.iter().position(|t| t.name().ends_with("translation")).unwrap();
    narrow.tensors[place] =
        entry(&["relations", "0", "operator", "rhs", "translation"], DType::F32, &[3], vec![0; 12]);
    assert_eq!(code(&narrow, &good), "shape-differs");

    let given = |entity: &str, rows: &[u64]| {
        let candidates = BTreeMap::from([(entity.to_owned(), rows.to_vec())]);
        let options = EvaluateOptions { candidates, ..Default::default() };
        evaluate(&model, &good, &[], &options).unwrap_err()
    };
    let unknown = given("itme", &[0]);
    assert_eq!((unknown.code().as_str(), unknown.hint_text()), ("no-such-type", Some("did you mean item?")));
    assert_eq!(given("item", &[]).code().as_str(), "no-candidates");
    assert_eq!(given("item", &[0, 7]).code().as_str(), "rows");
    assert_eq!(ranked_types(&model).unwrap(), ["user", "item"]);

    let code = |relation, rows, kinds| ranked(&model, relation, rows, kinds).unwrap_err().code().as_str();
    assert_eq!(code("likse", [0, 0], [0, 1]), "no-such-relation");
    assert_eq!(code("likes", [0, 7], [0, 1]), "rows");
    assert_eq!(code("likes", [0, 0], [1, 1]), "no-such-type");
    let item = model.tensor("embeddings.item").unwrap();
    let search = |relation: Option<&str>, queries: Queries<'_>| {
        let options = NeighborOptions { relation: relation.map(str::to_owned), ..Default::default() };
        neighbors(&model, item, queries, &options).unwrap_err().code().as_str()
    };
    assert_eq!(search(Some("follows"), Queries::Rows(&[0])), "no-such-type");
    assert_eq!(search(None, Queries::Rows(&[7])), "rows");
    assert_eq!(search(None, Queries::Vectors(&[0.0; 6])), "wrong-length");
}

#[test]
fn scores_of_nan_are_noted() {
    let mut trained = Trained::new("none", Comparator::Cos, false, true, 4);
    trained.tables[0][..4].fill(0.0);
    let edge = Edge { relation: 0, rows: [0, 3] };
    let edges = edges_of(&trained, &[(edge, [0, 0])]);
    let found = evaluate(&trained.checkpoint(), &edges, &[], &EvaluateOptions::default()).unwrap();
    assert_eq!(found.notes.iter().map(|note| note.code.as_str()).collect::<Vec<_>>(), ["nan-scores"]);
}
