#![allow(clippy::disallowed_methods)]

use super::*;
use crate::BigGraph;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use weighbridge_core::tensor::Order;
use weighbridge_format::{OpenOptions, Registry};
use weighbridge_io::engine::{DiskItem, DiskLock, StagedFile};
use weighbridge_io::source::FileSource;

/// Seed of hashes with eight bits.
pub(super) const WEAK: u64 = 1 << 40;

/// Pseudo-random numbers.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/biggraph/set1").join(name)
}

fn config_of(path: &Path) -> Config {
    Config::parse(&std::fs::read_to_string(path).unwrap(), false).unwrap().0
}

pub(super) fn file(path: &Path, form: Option<TextForm>) -> EdgeFile {
    EdgeFile::new(Arc::new(FileSource::open(path).unwrap()), form).unwrap()
}

/// Imports with a work folder on `disk`.
pub(super) fn on_disk(import: &Import, target: &Path, disk: &Arc<dyn Disk>) -> Result<ImportReport> {
    import.run_on(target, disk, &|sink| Box::new(sink))
}

/// Files of a folder by relative path.
pub(super) fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                all.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    all
}

/// Columns of an edge file by name.
fn columns(path: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let registry = Registry::new([&BigGraph as _]);
    let checkpoint = registry.open_with(path, &OpenOptions::default()).unwrap();
    let column = |tensor: &weighbridge_core::TensorEntry| {
        (tensor.name(), (tensor.dtype().to_string(), tensor.read_tensor(Order::Row).unwrap()))
    };
    checkpoint.tensors.iter().map(column).collect()
}

/// Compares with folders that upstream's importer has written: texts by bytes, edges by columns.
fn compare(folder: &Path, expected: &Path) {
    let (own, golden) = (tree(folder), tree(expected));
    assert_eq!(own.keys().collect::<Vec<_>>(), golden.keys().collect::<Vec<_>>());
    for (name, bytes) in &golden {
        if name.ends_with(".h5") {
            assert_eq!(columns(&folder.join(name)), columns(&expected.join(name)), "{name}");
        } else {
            assert_eq!(String::from_utf8_lossy(&own[name]), String::from_utf8_lossy(bytes), "{name}");
        }
    }
}

#[test]
fn ids_and_files_are_those_of_upstream() {
    let dir = tempfile::tempdir().unwrap();
    let input = |name: &str| vec![file(&golden("input").join(name), Some(TextForm::Words))];
    for (name, config, files, columns, seed) in [
        ("std", "ckpt_std_zip", vec!["std.tsv"], "lhs,rel,rhs", 8),
        ("weighted", "ckpt_weighted", vec!["weighted.tsv"], "lhs,rel,rhs,weight", 9),
        ("dyn", "ckpt_dyn_affine", vec!["dyn_train.tsv", "dyn_valid.tsv"], "lhs,rel,rhs", 10),
    ] {
        let mut config = config_of(&golden(config).join("config.json"));
        if name == "dyn" {
            config.edge_paths = vec!["dyn/train".to_owned(), "dyn/valid".to_owned()];
        }
        let mut import = Import::new(config, files.into_iter().map(input).collect());
        import.columns = Some(Columns::parse(columns).unwrap());
        import.like_upstream = true;
        import.seed = seed;
        if name == "dyn" {
            (import.entity_min_count, import.relation_min_count) = (4, 5);
        }
        let target = dir.path().join(name);
        let report = import.run(&target).unwrap();
        compare(&target, &golden(name));
        assert!(!report.resumed);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count(),
            ["std", "weighted", "dyn"].iter().position(|n| *n == name).unwrap() + 1,
            "no work folder is left"
        );
    }
}

pub(super) fn graph_config(partitions: [u64; 2], dynamic: bool) -> Config {
    let relation = |name: &str, lhs: &str, rhs: &str| json!({"name": name, "lhs": lhs, "rhs": rhs});
    let relations = if dynamic {
        vec![relation("all", "user", "item")]
    } else {
        vec![
            relation("buys", "user", "item"),
            relation("knows", "user", "user"),
            relation("is", "item", "tag"),
        ]
    };
    let json = json!({
        "entities": {"user": {"num_partitions": partitions[0]}, "item": {"num_partitions": partitions[1]},
            "tag": {"num_partitions": 1}},
        "relations": relations, "dynamic_relations": dynamic, "global_emb": false,
        "dimension": 4, "entity_path": "x/names", "edge_paths": ["x/train", "x/test"], "checkpoint_path": "m",
    });
    Config::parse(&json.to_string(), false).unwrap().0
}

/// Edges of names, as text. Their number is large enough for several chunks of the smallest size.
pub(super) fn graph(edges: u64, seed: u64, dynamic: bool) -> Vec<[String; 3]> {
    let mut rng = Rng(seed);
    let mut all = Vec::new();
    for _ in 0..edges {
        let a = rng.below(1 + edges / 3) * rng.below(50);
        let b = rng.below(1 + edges / 5);
        let relation = ["buys", "knows", "is"][usize::try_from(rng.below(3)).unwrap()];
        let edge = match (dynamic, relation) {
            (true, _) => [format!("u{a}"), format!("rel {}", rng.below(40) * rng.below(5)), format!("i{b}")],
            (false, "buys") => [format!("u{a}"), relation.to_owned(), format!("item ü{b}")],
            (false, "knows") => [format!("u{a}"), relation.to_owned(), format!("u{b}")],
            _ => [format!("item ü{b}"), relation.to_owned(), format!("t{}", a % 30)],
        };
        all.push(edge);
    }
    all
}

pub(super) fn text(edges: &[[String; 3]]) -> String {
    edges.iter().map(|edge| edge.join("\t") + "\n").collect()
}

pub(super) fn import_of(dir: &Path, config: &Config, sets: [&[[String; 3]]; 2]) -> Import {
    let files = ["train.tsv", "test.tsv"].iter().zip(sets).map(|(name, edges)| {
        std::fs::write(dir.join(name), text(edges)).unwrap();
        vec![file(&dir.join(name), None)]
    });
    let mut import = Import::new(config.clone(), files.collect());
    import.run.sync = false;
    import
}

fn names_in(path: &Path) -> Vec<String> {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Edges of a folder as names, by bucket; checks the partitions on the way.
fn read_back(folder: &Path, config: &Config, set: &str) -> HashMap<(u64, u64), Vec<[String; 3]>> {
    let names = |entity: &str, part: u64| {
        let own = names_in(&folder.join(format!("names/entity_names_{entity}_{part}.json")));
        let count =
            std::fs::read_to_string(folder.join(format!("names/entity_count_{entity}_{part}.txt"))).unwrap();
        assert_eq!(own.len().to_string() + "\n", count);
        own
    };
    let relations = names_in(&folder.join("names/dynamic_rel_names.json"));
    let sides = config.sides().unwrap();
    let mut all = HashMap::new();
    for lhs in 0..sides.lhs {
        for rhs in 0..sides.rhs {
            let columns = columns(&folder.join(format!("{set}/edges_{lhs}_{rhs}.h5")));
            let ids = |name: &str| {
                let bytes = columns[name].1.as_chunks::<8>().0;
                bytes.iter().map(|b| usize::try_from(u64::from_le_bytes(*b)).unwrap()).collect::<Vec<_>>()
            };
            let mut edges = Vec::new();
            for ((l, r), relation) in ids("lhs").into_iter().zip(ids("rhs")).zip(ids("rel")) {
                let own = &config.relations[if config.dynamic_relations { 0 } else { relation }];
                let part = |entity: &str, part| {
                    if config.entity(entity).unwrap().num_partitions == 1 { 0 } else { part }
                };
                let lhs_name = names(&own.lhs, part(&own.lhs, lhs))[l].clone();
                let rhs_name = names(&own.rhs, part(&own.rhs, rhs))[r].clone();
                edges.push([lhs_name, relations[relation].clone(), rhs_name]);
            }
            all.insert((lhs, rhs), edges);
        }
    }
    all
}

#[test]
fn edges_come_back_by_name_in_the_order_of_the_input() {
    for (partitions, dynamic) in [([1, 1], false), ([3, 3], false), ([4, 2], true), ([1, 5], true)] {
        let dir = tempfile::tempdir().unwrap();
        let config = graph_config(partitions, dynamic);
        let (train, test) = (graph(400, 1, dynamic), graph(50, 2, dynamic));
        for order in [EntityOrder::Random, EntityOrder::Sorted, EntityOrder::Seen] {
            let mut import = import_of(dir.path(), &config, [&train, &test]);
            (import.order, import.force) = (order, true);
            let target = dir.path().join("data");
            let report = import.run(&target).unwrap();
            assert_eq!(report.edges[0].edges, 400);
            assert_eq!(report.edges[1].edges, 50);
            for (set, edges) in [("train", &train), ("test", &test)] {
                let mut rest: HashMap<(u64, u64), Vec<[String; 3]>> = read_back(&target, &config, set);
                rest.values_mut().for_each(|edges| edges.reverse());
                for edge in edges {
                    // The edge is the next one of one of the buckets, and of one only.
                    let mut heads = rest.values_mut().filter(|own| own.last() == Some(edge));
                    heads.next().unwrap_or_else(|| panic!("{edge:?} is missing")).pop();
                }
                assert!(rest.values().all(Vec::is_empty));
            }
            let users: Vec<String> = (0..partitions[0])
                .flat_map(|part| names_in(&target.join(format!("names/entity_names_user_{part}.json"))))
                .collect();
            match order {
                EntityOrder::Sorted => assert!(users.is_sorted()),
                EntityOrder::Seen => {
                    assert_eq!(users[0], *train.iter().flatten().find(|n| n.starts_with('u')).unwrap())
                }
                EntityOrder::Random => assert!(!users.is_sorted()),
            }
        }
    }
}

#[test]
fn bytes_do_not_depend_on_memory_threads_or_compression() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([4, 4], false);
    let (train, test) = (graph(30_000, 3, false), graph(500, 4, false));
    for order in [EntityOrder::Random, EntityOrder::Seen] {
        let mut import = import_of(dir.path(), &config, [&train, &test]);
        import.order = order;
        let first = dir.path().join(format!("first-{}", order.name()));
        import.run(&first).unwrap();
        let expected = tree(&first);
        for (number, (threads, memory)) in
            [(1, 8 << 20), (3, 24 << 20), (64, 8 << 20), (2, 1 << 30)].into_iter().enumerate()
        {
            (import.run.threads, import.run.memory) = (threads, memory);
            let target = dir.path().join(format!("{}-{number}", order.name()));
            import.run(&target).unwrap();
            assert!(tree(&target) == expected, "{threads} {memory}");
        }
        // The same files in pieces and compressed.
        let whole = text(&train).into_bytes();
        let cut = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        std::fs::write(dir.path().join("a.tsv"), &whole[..cut]).unwrap();
        std::fs::write(dir.path().join("b.tsv.zst"), zstd::encode_all(&whole[cut..], 1).unwrap()).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, text(&test).as_bytes()).unwrap();
        std::fs::write(dir.path().join("t.tsv.gz"), gzip.finish().unwrap()).unwrap();
        import.sets = vec![
            vec![file(&dir.path().join("a.tsv"), None), file(&dir.path().join("b.tsv.zst"), None)],
            vec![file(&dir.path().join("t.tsv.gz"), None)],
        ];
        (import.run.threads, import.run.memory) = (2, 8 << 20);
        let target = dir.path().join(format!("{}-packed", order.name()));
        import.run(&target).unwrap();
        assert!(tree(&target) == expected);
    }
}

#[test]
fn rare_names_are_dropped_with_their_edges() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    let (train, test) = (graph(300, 5, true), graph(100, 6, true));
    let mut import = import_of(dir.path(), &config, [&train, &test]);
    (import.entity_min_count, import.relation_min_count) = (3, 6);
    let target = dir.path().join("data");
    let report = import.run(&target).unwrap();
    let all: Vec<_> = train.iter().chain(&test).collect();
    let uses = |place: usize, name: &String| all.iter().filter(|edge| edge[place] == *name).count();
    let kept =
        |edge: &&[String; 3]| uses(0, &edge[0]) >= 3 && uses(1, &edge[1]) >= 6 && uses(2, &edge[2]) >= 3;
    for (set, edges) in [&train, &test].into_iter().enumerate() {
        let count = edges.iter().filter(kept).count() as u64;
        assert!(count > 0 && count < edges.len() as u64);
        assert_eq!(report.edges[set].edges, count);
        assert_eq!(report.edges[set].dropped, edges.len() as u64 - count);
    }
    assert!(report.relations.kept < report.relations.found);
    assert!(report.entities[0].kept < report.entities[0].found);
}

#[test]
fn malformed_lines_are_errors_with_their_place_or_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([1, 1], false);
    let mut import = import_of(dir.path(), &config, [&graph(10, 1, false), &[]]);
    let bad = dir.path().join("bad.tsv");
    std::fs::write(&bad, "from\tby\tto\r\nu1\tbuys\titem\r\nu2\tbuys\nu3\tsells\ti\nu1\tknows\tu2").unwrap();
    import.sets[1] = vec![file(&bad, None)];
    import.header = true;
    let target = dir.path().join("data");
    let error = import.run(&target).unwrap_err();
    assert_eq!(error.code().as_str(), "bad-line");
    assert_eq!(error.message(), "line 3: the line has another number of columns");
    assert!(!target.exists());
    import.skip_bad = 1;
    let error = import.run(&target).unwrap_err();
    assert!(error.message().starts_with("line 4: the relation is not in the configuration"), "{error}");
    import.skip_bad = 2;
    let report = import.run(&target).unwrap();
    assert_eq!((report.edges[1].edges, report.edges[1].bad_lines), (2, 2));
    // The header is not an edge of the first file, either.
    assert_eq!(report.edges[0].edges, 9);
    let names = names_in(&target.join("names/entity_names_item_0.json"));
    assert!(names.contains(&"item".to_owned()), "no carriage return: {names:?}");
}

#[test]
fn different_names_with_equal_hashes_stay_apart() {
    for dynamic in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let config = graph_config([2, 2], dynamic);
        let train = graph(2000, 7, dynamic);
        let mut import = import_of(dir.path(), &config, [&train, &[]]);
        import.seed = WEAK;
        let target = dir.path().join("data");
        import.run(&target).unwrap();
        let mut found: Vec<_> = read_back(&target, &config, "train").into_values().flatten().collect();
        let mut expected = train;
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}

/// With seed 0, bytes 8 to 16 of a name of more than 16 bytes do not matter to its hash if the first ones are these.
#[test]
fn names_that_are_made_for_equal_hashes_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([1, 1], true);
    let path = dir.path().join("made.tsv");
    let mut text = Vec::new();
    for number in 0..1500 {
        text.extend([0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe]);
        text.extend(format!("{number:08x}of equal hashes.\tis\tb\n").bytes());
    }
    std::fs::write(&path, text).unwrap();
    let mut import = import_of(dir.path(), &config, [&[], &[]]);
    import.sets[0] = vec![file(&path, None)];
    let target = dir.path().join("data");
    assert_eq!(import.run(&target).unwrap_err().code().as_str(), "names-collide");
    import.seed = 1;
    assert_eq!(import.run(&target).unwrap().edges[0].edges, 1500);
}

#[test]
fn relations_of_a_chunk_take_one_or_two_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    for count in [3, 256, 257, 700] {
        let edge =
            |number: u32| [format!("u{}", number % 50), format!("r{number:03}"), format!("i{}", number % 7)];
        let mut train: Vec<[String; 3]> = (0..count).map(edge).collect();
        let import = import_of(dir.path(), &config, [&train, &[]]);
        let target = dir.path().join(format!("data-{count}"));
        import.run(&target).unwrap();
        let mut found: Vec<_> = read_back(&target, &config, "train").into_values().flatten().collect();
        found.sort();
        train.sort();
        assert_eq!(found, train);
    }
}

#[test]
fn bytes_of_names_that_are_not_utf8_survive_as_surrogates() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([1, 1], false);
    let mut import = import_of(dir.path(), &config, [&[], &[]]);
    let path = dir.path().join("latin.tsv");
    std::fs::write(&path, b"caf\xe9\tbuys\ti\n").unwrap();
    import.sets[0] = vec![file(&path, None)];
    import.run(&dir.path().join("data")).unwrap();
    let json = std::fs::read_to_string(dir.path().join("data/names/entity_names_user_0.json")).unwrap();
    assert_eq!(json, "[\n    \"caf\\udce9\"\n]");
}

/// Disk that fails from the given operation on, as if the process had been killed.
#[derive(Debug)]
pub(super) struct Mortal {
    pub(super) left: AtomicUsize,
}

impl Mortal {
    fn step(&self) -> Result<()> {
        let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        spent
            .map(|_| ())
            .map_err(|_| Error::io("killed", std::io::Error::from(std::io::ErrorKind::StorageFull)))
    }
}

impl Disk for Mortal {
    fn list(&self, folder: &Path) -> Result<Vec<DiskItem>> {
        LocalDisk.list(folder)
    }
    fn open(&self, path: &Path) -> Result<Option<SourceRef>> {
        LocalDisk.open(path)
    }
    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>> {
        self.step()?;
        LocalDisk.create(path, len, like)
    }
    fn truncate(&self, path: &Path) -> Result<()> {
        LocalDisk.truncate(path)
    }
    fn append(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        LocalDisk.append(path, bytes)
    }
    fn sync_file(&self, path: &Path) -> Result<()> {
        LocalDisk.sync_file(path)
    }
    fn sync_folder(&self, path: &Path) -> Result<()> {
        LocalDisk.sync_folder(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.step()?;
        LocalDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.step()?;
        LocalDisk.remove(path)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        LocalDisk.link(from, to)
    }
    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        LocalDisk.symlink(target, path)
    }
    fn make_folder(&self, path: &Path) -> Result<()> {
        self.step()?;
        LocalDisk.make_folder(path)
    }
    fn remove_folder(&self, path: &Path) -> Result<()> {
        self.step()?;
        LocalDisk.remove_folder(path)
    }
    fn lock(&self, path: &Path) -> Result<DiskLock> {
        LocalDisk.lock(path)
    }
}

#[test]
fn an_import_that_stops_at_any_step_continues_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    let (train, test) = (graph(6000, 8, true), graph(100, 9, true));
    for order in [EntityOrder::Random, EntityOrder::Sorted] {
        let mut import = import_of(dir.path(), &config, [&train, &test]);
        import.order = order;
        (import.run.threads, import.run.memory) = (2, 8 << 20);
        let whole = dir.path().join(format!("whole-{}", order.name()));
        import.run(&whole).unwrap();
        let expected = tree(&whole);
        let mut steps = 0;
        loop {
            let target = dir.path().join("data");
            let disk: Arc<dyn Disk> = Arc::new(Mortal { left: AtomicUsize::new(steps) });
            let first = on_disk(&import, &target, &disk);
            if first.is_ok() {
                assert!(tree(&target) == expected);
                break;
            }
            // What was written to the target is complete.
            if target.exists() {
                assert!(tree(&target) == expected, "{steps}");
                assert_eq!(import.run(&target).unwrap_err().code().as_str(), "exists");
            } else {
                let report = import.run(&target).unwrap();
                assert!(tree(&target) == expected, "{steps}");
                assert!(report.resumed || steps < 12, "{steps}");
            }
            assert!(!dir.path().join(".data.import").exists(), "{steps}");
            std::fs::remove_dir_all(&target).unwrap();
            steps += 1 + steps / 12;
        }
        assert!(steps > 40);
        std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    }
}

#[test]
fn other_options_begin_anew_and_damaged_steps_are_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], false);
    let mut import = import_of(dir.path(), &config, [&graph(3000, 10, false), &[]]);
    let whole = dir.path().join("whole");
    import.run(&whole).unwrap();
    let expected = tree(&whole);
    let target = dir.path().join("data");
    let interrupt = |import: &Import, steps: usize| {
        let disk: Arc<dyn Disk> = Arc::new(Mortal { left: AtomicUsize::new(steps) });
        on_disk(import, &target, &disk).unwrap_err()
    };
    interrupt(&import, 20);
    let work = dir.path().join(".data.import");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&work).unwrap().map(|e| e.unwrap().path()).collect();
    names.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("dictionary-"));
    assert!(!names.is_empty());
    for path in names {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[9] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(import.run(&target).unwrap().resumed);
    assert!(tree(&target) == expected);
    std::fs::remove_dir_all(&target).unwrap();
    interrupt(&import, 20);
    import.seed = 1;
    assert!(!import.run(&target).unwrap().resumed);
    assert!(tree(&target) != expected);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("data");
    let code = |import: &Import| import.run(&target).unwrap_err().code().as_str().to_owned();
    let mut import = import_of(dir.path(), &graph_config([1, 1], false), [&[], &[]]);
    import.sets.pop();
    assert_eq!(code(&import), "edge-sets");
    let mut import = import_of(dir.path(), &graph_config([1, 1], true), [&[], &[]]);
    import.columns = Some(Columns::parse("lhs,rhs").unwrap());
    assert_eq!(code(&import), "edge-columns");
    import.config.dynamic_relations = false;
    import.run(&target).unwrap();
    assert_eq!(code(&import), "exists");
    let mut import = import_of(dir.path(), &graph_config([1, 1], false), [&[], &[]]);
    import.columns = Some(Columns::parse("lhs,rhs").unwrap());
    let other = dir.path().join("other");
    assert_eq!(import.run(&other).unwrap_err().code().as_str(), "edge-columns");
    let mut import = import_of(dir.path(), &graph_config([2, 2], false), [&[], &[]]);
    import.config.entities[0].1.featurized = true;
    assert_eq!(import.run(&other).unwrap_err().code().as_str(), "featurised");
    let import = import_of(dir.path(), &graph_config([2000, 2000], false), [&[], &[]]);
    assert_eq!(import.run(&other).unwrap_err().code().as_str(), "too-many-buckets");
    let mut import = import_of(dir.path(), &graph_config([1, 1], false), [&[], &[]]);
    import.config.entities[2].1.num_partitions = 1 << 40;
    assert_eq!(import.run(&other).unwrap_err().code().as_str(), "too-many-buckets");
    import.config.entities[2].1.num_partitions = 1;
    import.run.memory = 1 << 20;
    assert_eq!(import.run(&other).unwrap_err().code().as_str(), "too-little-memory");
    let work = dir.path().join(".other.import");
    assert!(!other.exists() && !work.exists());
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("mine"), b"x").unwrap();
    let import = import_of(dir.path(), &graph_config([1, 1], false), [&[], &[]]);
    assert_eq!(import.run(&other).unwrap_err().code().as_str(), "exists");
    assert_eq!(tree(&work).len(), 1);
}

#[test]
fn lists_of_features_are_rows_of_the_features() {
    let config = |parts: u64| {
        let json = json!({
            "entities": {"word": {"num_partitions": 1, "featurized": true}, "item": {"num_partitions": parts}},
            "relations": [
                {"name": "says", "lhs": "word", "rhs": "item"}, {"name": "same", "lhs": "item", "rhs": "item"},
                {"name": "near", "lhs": "word", "rhs": "word"},
            ],
            "dimension": 4, "entity_path": "x/names", "edge_paths": ["x/train", "x/test"], "checkpoint_path": "m",
        });
        Config::parse(&json.to_string(), false).unwrap().0
    };
    let mut rng = Rng(7);
    let mut list = |most: u64| {
        let words: Vec<String> = (0..1 + rng.below(most)).map(|_| format!("w{}", rng.below(90))).collect();
        words.join(",")
    };
    let mut edges = Vec::new();
    for number in 0..9000 {
        edges.push(match number % 3 {
            0 => [list(4), "says".to_owned(), format!("i{}", number % 70)],
            1 => [format!("i{}", number % 7), "same".to_owned(), format!("i{}", number % 11)],
            _ => [list(3), "near".to_owned(), list(2)],
        });
    }
    let test = [["rare,w1".to_owned(), "says".to_owned(), "i1".to_owned()]];
    for parts in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let config = config(parts);
        let target = dir.path().join("data");
        let mut import = import_of(dir.path(), &config, [&edges, &test]);
        (import.run.threads, import.run.memory) = (16, 8 << 20);
        import.entity_min_count = 2;
        import.order = EntityOrder::Seen;
        assert!(import.sets[0][0].source.len() > 2 * CHUNK.start(), "several chunks");
        import.run(&target).unwrap();
        let words = names_in(&target.join("names/entity_names_word_0.json"));
        assert_eq!(words.len(), 90);
        let items: Vec<Vec<String>> = (0..parts)
            .map(|part| names_in(&target.join(format!("names/entity_names_item_{part}.json"))))
            .collect();
        let (mut found, mut expected) = (Vec::new(), edges.clone());
        for (lhs, rhs) in (0..parts).flat_map(|lhs| (0..parts).map(move |rhs| (lhs, rhs))) {
            let columns = columns(&target.join(format!("train/edges_{lhs}_{rhs}.h5")));
            let numbers = |name: &str| {
                let bytes = columns.get(name).map_or(&[][..], |column| column.1.as_chunks::<8>().0);
                bytes.iter().map(|b| i64::from_le_bytes(*b)).collect::<Vec<_>>()
            };
            let side = |side: &str, part: u64| {
                let (ids, offsets, data) =
                    (numbers(side), numbers(&format!("{side}d_offsets")), numbers(&format!("{side}d_data")));
                assert!(offsets.is_empty() || offsets.len() == ids.len() + 1);
                assert_eq!(offsets.last().copied().unwrap_or(0), i64::try_from(data.len()).unwrap());
                let at = |n: i64| usize::try_from(n).unwrap();
                let names = ids.iter().enumerate().map(|(edge, id)| match id {
                    -1 => {
                        let own = &data[at(offsets[edge])..at(offsets[edge + 1])];
                        own.iter().map(|id| words[at(*id)].clone()).collect::<Vec<_>>().join(",")
                    }
                    id => {
                        assert!(offsets.is_empty() || offsets[edge] == offsets[edge + 1]);
                        items[usize::try_from(part).unwrap()][at(*id)].clone()
                    }
                });
                names.collect::<Vec<_>>()
            };
            for ((left, right), relation) in
                side("lhs", lhs).into_iter().zip(side("rhs", rhs)).zip(numbers("rel"))
            {
                let name = config.relations[usize::try_from(relation).unwrap()].name.clone();
                found.push([left, name, right]);
            }
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        // The word "rare" is dropped from its list; the edge stays.
        let tests = (0..parts).map(|rhs| columns(&target.join(format!("test/edges_0_{rhs}.h5"))));
        let lists: Vec<Vec<u8>> =
            tests.filter_map(|columns| columns.get("lhsd_data").map(|c| c.1.clone())).collect();
        let first = words.iter().position(|word| word == "w1").unwrap() as u64;
        assert_eq!(lists, [first.to_le_bytes().to_vec()]);
    }
    let dir = tempfile::tempdir().unwrap();
    let import =
        import_of(dir.path(), &config(1), [&[["a,,b".to_owned(), "says".to_owned(), "i".to_owned()]], &[]]);
    assert_eq!(import.run(&dir.path().join("data")).unwrap_err().code().as_str(), "bad-line");
}
