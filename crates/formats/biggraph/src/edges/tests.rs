use super::buckets::{Bucket, buckets};
use super::*;
use serde_json::json;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_io::source::MemorySource;

/// Pseudo-random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Edge with rows of whole types.
type Edge = (i64, i64, i64, u32, Vec<i64>);

const USERS: [u64; 3] = [7, 0, 5];
const ITEMS: [u64; 3] = [4, 4, 1];

fn config() -> Config {
    let kind = |parts: usize, featurized: bool| json!({"num_partitions": parts, "featurized": featurized});
    let relation = |lhs: &str, rhs: &str| json!({"name": "r", "lhs": lhs, "rhs": rhs});
    let json = json!({
        "entities": {"user": kind(3, false), "item": kind(3, false), "country": kind(1, false), "doc": kind(1, true)},
        "relations": [relation("user", "item"), relation("country", "item"), relation("user", "country"),
            relation("doc", "item")],
        "dimension": 4, "entity_path": "e", "edge_paths": ["x"], "checkpoint_path": "c",
    });
    Config::parse(&json.to_string(), false).unwrap().0
}

fn counts_value(all: [(&str, &[u64]); 4]) -> Value {
    let list = |counts: &[u64]| Value::List(counts.iter().copied().map(Value::U64).collect());
    Value::Map(all.into_iter().map(|(name, counts)| (Name::from(name), list(counts))).collect())
}

fn add(checkpoint: &mut Checkpoint, bucket: [u64; 2], name: &str, dtype: DType, bytes: Vec<u8>) {
    let rows = (bytes.len() / dtype.size().unwrap()) as u64;
    let source: SourceRef = Arc::new(MemorySource::new("edges", bytes));
    let path =
        TensorPath::new([Name::from(format!("{}_{}", bucket[0], bucket[1]).as_str()), Name::from(name)]);
    let mut entry = TensorEntry::dense(path, dtype, Shape::new([rows]), &source, 0, Encoding::ROW).unwrap();
    entry.role = Role::Edges;
    checkpoint.tensors.push(entry);
}

fn i64s(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Edges in three by three buckets, with document features where `lists`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::needless_range_loop)]
fn graph(each: u64, lists: bool) -> Checkpoint {
    let mut made = Checkpoint::new("biggraph", "edges", "edges");
    made.metadata.set(CONFIG, Value::Text(config().to_json()));
    let all: [(&str, &[u64]); 4] = [("user", &USERS), ("item", &ITEMS), ("country", &[3]), ("doc", &[9])];
    made.metadata.set(COUNTS, counts_value(all));
    let mut dice = Rng(7);
    for (l, &users) in USERS.iter().enumerate() {
        for (r, &items) in ITEMS.iter().enumerate() {
            let (mut lhs, mut rhs, mut rel, mut weight) = (vec![], vec![], vec![], vec![]);
            let (mut offsets, mut data) = (vec![0i64], vec![]);
            for number in 0..dice.below(each) {
                let relation = dice.below(if lists { 4 } else { 3 });
                // The partitioned sides, or the single bucket of unpartitioned ones.
                let (from, to) = match relation {
                    0 if users > 0 => (dice.below(users), dice.below(items)),
                    1 if l == 0 => (dice.below(3), dice.below(items)),
                    2 if r == 0 && users > 0 => (dice.below(users), dice.below(3)),
                    3 if l == 0 => (u64::MAX, dice.below(items)),
                    _ => continue,
                };
                if relation == 3 {
                    data.extend((0..dice.below(4)).map(|_| i64::try_from(dice.below(9)).unwrap()));
                }
                offsets.push(data.len().try_into().unwrap());
                lhs.push(from.cast_signed());
                rhs.push(to.cast_signed());
                rel.push(relation.cast_signed());
                weight.extend_from_slice(&(number as f32 / 3.0).to_le_bytes());
            }
            let bucket = [l as u64, r as u64];
            add(&mut made, bucket, "lhs", DType::I64, i64s(&lhs));
            add(
                &mut made,
                bucket,
                "rhs",
                DType::I32,
                rhs.iter().flat_map(|n| i32::try_from(*n).unwrap().to_le_bytes()).collect(),
            );
            add(&mut made, bucket, "rel", DType::U8, rel.iter().map(|n| u8::try_from(*n).unwrap()).collect());
            if lists {
                add(&mut made, bucket, "lhsd_offsets", DType::I64, i64s(&offsets));
                add(&mut made, bucket, "lhsd_data", DType::I64, i64s(&data));
            }
            add(&mut made, bucket, "weight", DType::F32, weight);
        }
    }
    made
}

fn column_of(bucket: &Bucket, name: &str) -> Vec<i64> {
    let column = bucket.needed(name).unwrap();
    integers::read(column, 0..column.elements()).unwrap()
}

/// All edges with the rows of whole types, in bucket order.
fn edges(checkpoint: &Checkpoint) -> Vec<Edge> {
    let config = super::config(checkpoint).unwrap();
    let start = |entity: &str, part: u64| -> i64 {
        let counts = counts(checkpoint, entity).unwrap();
        let part = if counts.len() == 1 { 0 } else { part };
        counts[..usize::try_from(part).unwrap()].iter().sum::<u64>().cast_signed()
    };
    let mut all = Vec::new();
    for bucket in buckets(checkpoint).unwrap() {
        let [l, r] = bucket.parts.unwrap();
        let (lhs, rhs, rel) =
            (column_of(&bucket, "lhs"), column_of(&bucket, "rhs"), column_of(&bucket, "rel"));
        let offsets = bucket.column("lhsd_offsets").map(|_| column_of(&bucket, "lhsd_offsets"));
        let data = bucket.column("lhsd_data").map(|_| column_of(&bucket, "lhsd_data"));
        let weights = bucket.needed("weight").unwrap().read_tensor(Order::Row).unwrap();
        for i in 0..rel.len() {
            let relation = &config.relations[usize::try_from(rel[i]).unwrap()];
            let list = match (&offsets, &data) {
                (Some(o), Some(d)) => {
                    d[usize::try_from(o[i]).unwrap()..usize::try_from(o[i + 1]).unwrap()].to_vec()
                }
                _ => Vec::new(),
            };
            let from = if lhs[i] < 0 { -1 } else { lhs[i] + start(&relation.lhs, l) };
            let weight = u32::from_le_bytes(weights[4 * i..4 * i + 4].try_into().unwrap());
            all.push((from, rhs[i] + start(&relation.rhs, r), rel[i], weight, list));
        }
    }
    all
}

fn sorted(mut edges: Vec<Edge>) -> Vec<Edge> {
    edges.sort_unstable();
    edges
}

#[test]
fn edges_keep_their_rows_when_repartitioned_and_back() {
    for lists in [false, true] {
        let old = graph(150, lists);
        let truth = sorted(edges(&old));
        assert!(truth.len() > 100 && truth.iter().any(|e| e.4.len() > 1) == lists);
        for parts in [1, 2, 4, 5, 16, 40] {
            let new = repartition(&old, &Partitions::Partitioned(parts)).unwrap();
            assert_eq!(sorted(edges(&new)), truth, "{parts}");
            let all = buckets(&new).unwrap();
            // Also buckets without edges: upstream stops at a missing one.
            assert_eq!(all.len() as u64, parts * parts);
            assert_eq!(counts(&new, "user").unwrap().len() as u64, parts);
            assert_eq!(counts(&new, "country").unwrap(), [3]);
            assert_eq!(super::config(&new).unwrap().sides().unwrap().lhs, parts);
            for bucket in &all {
                let [l, r] = bucket.parts.unwrap();
                let rel = column_of(bucket, "rel");
                assert!(rel.iter().all(|rel| !matches!(rel, 1 | 3) || l == 0));
                assert!(rel.iter().all(|rel| *rel != 2 || r == 0));
            }
            // Partial reads of a column return that part.
            for entry in new.tensors.iter().filter(|t| t.elements() > 0) {
                let whole = entry.read_tensor(Order::Row).unwrap();
                let source = &entry.extents[0].source;
                for (start, end) in [(0, 1), (3, whole.len()), (whole.len() / 2, whole.len() / 2 + 2)] {
                    let end = end.min(whole.len());
                    let mut part = vec![0; end - start];
                    source.read_at(start as u64, &mut part).unwrap();
                    assert_eq!(part, whole[start..end]);
                }
            }
            let parts = Partitions::Partitioned(3);
            let back = match parts.of("user", counts(&new, "user").unwrap().len() as u64) {
                1 => repartition(&new, &Partitions::Named(vec![("user".into(), 3), ("item".into(), 3)])),
                _ => repartition(&new, &parts),
            };
            let back = back.unwrap();
            assert_eq!(sorted(edges(&back)), truth);
            assert_eq!(counts(&back, "user").unwrap(), [4, 4, 4]);
        }
    }
}

/// Expected edges of `old` when types are partitioned as in `new`:
/// by new bucket, in their old order in each. One edge at a time, with plain arithmetic.
fn moved_one_by_one(old: &Checkpoint, new: &Checkpoint) -> Vec<Edge> {
    let config = super::config(new).unwrap();
    let part = |entity: &str, row: i64| {
        let mut left = row;
        let counts = counts(new, entity).unwrap();
        counts.iter().position(|count| {
            left -= count.cast_signed();
            left < 0
        })
    };
    let mut all: Vec<_> = edges(old)
        .into_iter()
        .map(|edge| {
            let relation = &config.relations[usize::try_from(edge.2).unwrap()];
            let bucket = [part(&relation.lhs, edge.0).unwrap(), part(&relation.rhs, edge.1).unwrap()];
            (bucket, edge)
        })
        .collect();
    all.sort_by_key(|(bucket, _)| *bucket);
    all.into_iter().map(|(_, edge)| edge).collect()
}

#[test]
fn edges_keep_the_order_of_the_old_buckets() {
    for lists in [false, true] {
        // More blocks than are kept and stored.
        let old = graph(400, lists);
        assert!(edges(&old).len() > 500);
        for parts in [1, 2, 4, 7] {
            let new = repartition(&old, &Partitions::Partitioned(parts)).unwrap();
            assert_eq!(edges(&new), moved_one_by_one(&old, &new), "{parts}");
        }
    }
}

#[test]
fn rejects_too_many_runs() {
    let old = graph(400, false);
    let repartitioning = || {
        let kind = |name: &str, counts: &[u64]| EntityType::new(name, false, counts, 4, false).unwrap();
        let whole = EntityType::new("country", false, &[3], 1, false).unwrap();
        let types = vec![kind("user", &USERS), kind("item", &ITEMS), whole];
        Repartitioning::new(types, vec![[0, 1], [2, 1], [0, 2]], false).unwrap()
    };
    let with = |most: u64| {
        let budget = EdgeBudget { runs: most, ..EdgeBudget::of(None) };
        Mover::new("m", buckets(&old).unwrap(), repartitioning(), budget).map(|_| ())
    };
    assert_eq!(with(100).unwrap_err().code().as_str(), "too-many-runs");
    assert!(with(100_000).is_ok());
}

#[test]
fn same_partition_count_moves_nothing() {
    let old = graph(100, true);
    let new = repartition(&old, &Partitions::Partitioned(3)).unwrap();
    assert_eq!(edges(&new), edges(&old));
    assert_eq!(counts(&new, "user").unwrap(), USERS);
}

#[test]
fn repartitions_a_single_type() {
    let old = graph(100, false);
    let only = |name: &str, parts| Partitions::Named(vec![(name.to_owned(), parts)]);
    let new = repartition(&old, &only("item", 2)).unwrap();
    assert_eq!(buckets(&new).unwrap().len(), 6);
    assert_eq!(sorted(edges(&new)), sorted(edges(&old)));
    assert_eq!(repartition(&old, &only("unknown", 2)).unwrap_err().code().as_str(), "no-such-type");
    // Countries are on both sides: they would be partitioned, and differently from users.
    assert_eq!(repartition(&old, &only("country", 2)).unwrap_err().code().as_str(), "partitions-differ");
    assert_eq!(
        repartition(&graph(100, true), &only("doc", 2)).unwrap_err().code().as_str(),
        "featurised-partitions"
    );
}

#[test]
fn rejects_edges_beyond_their_tables() {
    let spoil = |name: &str, bytes: Vec<u8>, dtype: DType| {
        let mut made = Checkpoint::new("biggraph", "edges", "edges");
        made.metadata = graph(1, false).metadata;
        let mut bucket = |own: &str, plain: Vec<u8>, plain_type: DType| match own == name {
            true => add(&mut made, [0, 1], own, dtype, bytes.clone()),
            false => add(&mut made, [0, 1], own, plain_type, plain),
        };
        bucket("lhs", i64s(&[6, 0]), DType::I64);
        bucket("rhs", i64s(&[3, 0]), DType::I64);
        bucket("rel", vec![0, 1], DType::U8);
        bucket("lhsd_offsets", i64s(&[0, 0, 0]), DType::I64);
        bucket("lhsd_data", i64s(&[]), DType::I64);
        for parts in (0..9).map(|n| [n / 3, n % 3]).filter(|parts| *parts != [0, 1]) {
            for name in ["lhs", "rhs", "rel", "lhsd_data"] {
                add(&mut made, parts, name, DType::I64, Vec::new());
            }
            add(&mut made, parts, "lhsd_offsets", DType::I64, i64s(&[0]));
        }
        repartition(&made, &Partitions::Partitioned(2))
    };
    assert!(spoil("", vec![], DType::I64).is_ok());
    let error = spoil("lhs", i64s(&[6, 3]), DType::I64).unwrap_err();
    assert_eq!(error.code().as_str(), "id-out-of-range");
    assert!(error.message().contains("edge 1") && error.message().contains("bucket 0, 1"), "{error}");
    assert_eq!(spoil("rhs", i64s(&[4, 0]), DType::I64).unwrap_err().code().as_str(), "id-out-of-range");
    assert_eq!(spoil("lhs", i64s(&[-1, 0]), DType::I64).unwrap_err().code().as_str(), "id-out-of-range");
    assert_eq!(spoil("rel", vec![0, 4], DType::U8).unwrap_err().code().as_str(), "relation-out-of-range");
    assert_eq!(
        spoil("rel", i64s(&[0, -1]), DType::I64).unwrap_err().code().as_str(),
        "relation-out-of-range"
    );
    assert_eq!(spoil("rel", vec![0], DType::U8).unwrap_err().code().as_str(), "columns-differ");
    for bad in [[0, 1, 0], [0, -1, 0], [0, 0, 1], [1, 0, 0]] {
        assert_eq!(spoil("lhsd_offsets", i64s(&bad), DType::I64).unwrap_err().code().as_str(), "bad-list");
    }
    // Features before the first list and behind the last would be lost.
    assert_eq!(spoil("lhsd_data", i64s(&[1, 2]), DType::I64).unwrap_err().code().as_str(), "bad-list");
    let mut bare = graph(10, false);
    bare.metadata = weighbridge_core::checkpoint::Metadata::default();
    assert_eq!(repartition(&bare, &Partitions::Partitioned(2)).unwrap_err().code().as_str(), "no-config");
    bare.metadata.set(CONFIG, Value::Text(config().to_json()));
    assert_eq!(repartition(&bare, &Partitions::Partitioned(2)).unwrap_err().code().as_str(), "no-counts");
    let mut mixed = graph(100, false);
    let weight = mixed.tensors.iter().position(|t| t.path.to_text() == "2_2.weight").unwrap();
    mixed.tensors.remove(weight);
    assert_eq!(
        repartition(&mixed, &Partitions::Partitioned(2)).unwrap_err().code().as_str(),
        "weights-differ"
    );
}

#[test]
fn rejects_a_missing_bucket() {
    let mut graph = graph(9, false);
    let of = |bucket: &'static str| move |t: &TensorEntry| t.path.parts()[0] != Name::from(bucket);
    graph.tensors.retain(of("1_2"));
    let error = repartition(&graph, &Partitions::parse("2").unwrap()).unwrap_err();
    assert_eq!((error.code().as_str(), error.found_text()), ("bucket-missing", Some("no edges_1_2.h5")));
    graph.tensors.retain(|t| t.path.parts()[0] == Name::from("0_0"));
    let error = repartition(&graph, &Partitions::parse("2").unwrap()).unwrap_err();
    assert!(error.found_text().unwrap().ends_with("edges_1_2.h5 and more"), "{error}");
    // An empty bucket is accepted.
    let bucket = Bucket { parts: Some([0, 0]), columns: Vec::new() };
    assert!(buckets::check_all(&[bucket], [1, 1]).is_ok());
    let claim = buckets::check_all(&[], [u64::MAX, u64::MAX]).unwrap_err();
    assert_eq!(claim.code().as_str(), "bucket-missing");
}
