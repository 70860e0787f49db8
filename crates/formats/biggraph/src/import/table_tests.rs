#![allow(clippy::disallowed_methods)]

use super::tests::{Mortal, graph, graph_config, import_of, tree};
use super::*;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use weighbridge_core::checkpoint::{Cells, RecordColumn, RecordSection, Records, TensorEntry};
use weighbridge_core::plan::Elements;
use weighbridge_core::tensor::DType;
use weighbridge_io::source::MemorySource;

/// Table in memory: edges as lhs, rel, rhs, with or without weights.
#[derive(Debug)]
struct Table {
    columns: Vec<RecordColumn>,
    sections: Vec<u64>,
    edges: Vec<[String; 3]>,
    weights: Vec<f64>,
}

struct Section<'t> {
    table: &'t Table,
    first: u64,
    rows: u64,
}

impl Records for Table {
    fn describe(&self) -> String {
        "edges".to_owned()
    }
    fn columns(&self) -> &[RecordColumn] {
        &self.columns
    }
    fn sections(&self) -> Vec<u64> {
        self.sections.clone()
    }
    fn tensors(&self) -> Vec<&TensorEntry> {
        Vec::new()
    }
    fn sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }
    fn open(&self, section: usize) -> Result<Box<dyn RecordSection + '_>> {
        let first = self.sections[..section].iter().sum();
        Ok(Box::new(Section { table: self, first, rows: self.sections[section] }))
    }
}

impl RecordSection for Section<'_> {
    fn row_bytes(&self) -> u64 {
        let [first, rows] = [self.first, self.rows].map(|n| usize::try_from(n).unwrap());
        let own = &self.table.edges[first..first + rows];
        own.iter().map(|edge| edge.concat().len() as u64).max().unwrap_or(0)
    }
    fn read(&self, rows: Range<u64>, _: &mut dyn Elements, into: &mut [Cells]) -> Result<()> {
        assert!(rows.end <= self.rows && rows.start < rows.end);
        for row in rows {
            let row = usize::try_from(self.first + row).unwrap();
            for (place, cells) in into.iter_mut().enumerate() {
                match cells {
                    Cells::Text(list) => list.push(&self.table.edges[row][place]),
                    Cells::Numbers(bytes) => bytes.extend(self.table.weights[row].to_le_bytes()),
                }
            }
        }
        Ok(())
    }
}

fn table(edges: &[[String; 3]], weights: &[f64], sections: &[u64]) -> EdgeFile {
    let column = |name: &str, dtype| RecordColumn { name: name.to_owned(), dtype };
    let mut columns = vec![column("lhs", None), column("rel", None), column("rhs", None)];
    if !weights.is_empty() {
        columns.push(column("weight", Some(DType::F64)));
    }
    let mut sections = sections.to_vec();
    sections.push(edges.len() as u64 - sections.iter().sum::<u64>());
    let table = Table { columns, sections, edges: edges.to_vec(), weights: weights.to_vec() };
    EdgeFile::of_records(Arc::new(MemorySource::new("edges.parquet", vec![0; 8])), Arc::new(table))
}

#[test]
fn tables_and_text_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for (dynamic, order) in
        [(false, EntityOrder::Random), (false, EntityOrder::Sorted), (true, EntityOrder::Seen)]
    {
        let config = graph_config([4, 4], dynamic);
        let (train, test) = (graph(6000, 3, dynamic), graph(100, 4, dynamic));
        let mut import = import_of(dir.path(), &config, [&train, &test]);
        (import.order, import.run.threads) = (order, 3);
        let expected = dir.path().join(format!("text-{}", order.name()));
        import.run(&expected).unwrap();
        for (number, (memory, sections)) in
            [(8 << 20, &[][..]), (8 << 20, &[0, 1, 999, 0, 3000]), (1 << 30, &[1; 50])]
                .into_iter()
                .enumerate()
        {
            import.sets = vec![vec![table(&train, &[], sections)], vec![table(&test, &[], &[7])]];
            import.run.memory = memory;
            let target = dir.path().join(format!("table-{}-{number}", order.name()));
            let report = import.run(&target).unwrap();
            assert_eq!((report.edges[0].edges, report.edges[1].edges), (6000, 100));
            assert!(tree(&target) == tree(&expected), "{number}");
        }
    }
}

#[test]
fn chunks_of_rows_have_few_bytes_and_the_same_rows_every_time() {
    let long = |n: usize| if n % 100 == 7 { "x".repeat(3000 + n) } else { n.to_string() };
    let edges: Vec<[String; 3]> = (0..2000).map(|n| [long(n), "r".to_owned(), long(n + 1)]).collect();
    let file = table(&edges, &[], &[400, 0, 5]);
    for size in [1, 100, 4000, 64 << 10] {
        let read = |wanted: &dyn Fn(u64) -> bool| {
            let chunks = Chunks::new(&file, size).unwrap();
            let mut all = Vec::new();
            while let Some(chunk) = chunks.next(&|number| Ok(wanted(number))).unwrap() {
                let Part::Rows(rows) = chunk.part else { panic!("text") };
                let names = EdgeCells::new(records_of(&file), &rows);
                let mut text = Vec::new();
                assert!((0..rows.count).all(|row| names.edge(row, &mut text).is_ok()));
                // One row may be longer than a chunk.
                assert!(text.len() as u64 <= 2 * size + 8000, "{}", text.len());
                all.push((chunk.number, rows.first, rows.count));
            }
            all
        };
        let all = read(&|_| true);
        assert!(all.iter().enumerate().all(|(at, (number, ..))| *number == at as u64));
        let mut next = 0;
        for (_, first, count) in &all {
            assert_eq!(*first, next);
            next += *count as u64;
        }
        assert_eq!(next, 2000);
        let odd: Vec<_> = all.iter().copied().filter(|(number, ..)| number % 2 == 1).collect();
        assert_eq!(read(&|number| number % 2 == 1), odd);
    }
}

fn records_of(file: &EdgeFile) -> &weighbridge_core::checkpoint::RecordsRef {
    match &file.content {
        Content::Table(records) => records,
        Content::Text(..) => panic!("text"),
    }
}

#[test]
fn an_import_of_tables_continues_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let config = graph_config([2, 2], true);
    let (train, test) = (graph(6000, 8, true), graph(100, 9, true));
    let mut import = import_of(dir.path(), &config, [&train, &test]);
    import.sets = vec![vec![table(&train, &[], &[2500])], vec![table(&test, &[], &[])]];
    (import.run.threads, import.run.memory) = (2, 8 << 20);
    let whole = dir.path().join("whole");
    import.run(&whole).unwrap();
    let expected = tree(&whole);
    let target = dir.path().join("data");
    let mut resumed = 0;
    for steps in (4..60).step_by(4) {
        let disk: Arc<dyn Disk> = Arc::new(Mortal { left: AtomicUsize::new(steps) });
        if import.run_on(&target, &disk, &|sink| Box::new(sink)).is_err() {
            resumed += u64::from(import.run(&target).unwrap().resumed);
        }
        assert!(tree(&target) == expected, "{steps}");
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert!(resumed > 8, "{resumed}");
    // Other columns of the same file begin anew.
    let disk: Arc<dyn Disk> = Arc::new(Mortal { left: AtomicUsize::new(30) });
    import.run_on(&target, &disk, &|sink| Box::new(sink)).unwrap_err();
    import.sets[0] = vec![table(&train, &vec![1.0; train.len()], &[2500])];
    assert!(!import.run(&target).unwrap().resumed);
}

#[test]
fn malformed_rows_are_errors_with_their_number_or_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let edge = |lhs: &str, rel: &str, rhs: &str| [lhs, rel, rhs].map(str::to_owned);
    let long = "x".repeat(MAX_LINE);
    let edges = [
        edge("u1", "buys", "i"),
        edge("", "buys", "i"),
        edge("u1", "", "i"),
        edge("u1", "sells", "i"),
        edge("u1", "buys", &long),
        edge("u1", "buys", "i"),
        edge("u2", "knows", "u1"),
    ];
    let weights = [1.0, 1.0, 1.0, 1.0, 1.0, f64::NAN, 0.1];
    let mut import = import_of(dir.path(), &graph_config([1, 1], false), [&[], &[]]);
    import.sets[1] = vec![table(&edges, &weights, &[3])];
    let target = dir.path().join("data");
    for (skip, expected) in [
        (0, "row 2: the name is missing or empty"),
        (1, "row 3: the name is missing or empty"),
        (2, "row 4: the relation is not in the configuration"),
        (3, "row 5: the row is too long"),
        (4, "row 6: the weight is missing or not finite"),
    ] {
        import.skip_bad = skip;
        let error = import.run(&target).unwrap_err();
        assert_eq!((error.code().as_str(), error.message()), ("bad-line", expected));
        assert_eq!(error.file(), Some("edges.parquet"));
    }
    import.skip_bad = 5;
    let report = import.run(&target).unwrap();
    assert_eq!((report.edges[1].edges, report.edges[1].bad_lines), (2, 5));
    assert!(tree(&target)["test/edges_0_0.h5"].windows(4).any(|bytes| bytes == 0.1f32.to_le_bytes()));
}

#[test]
fn tables_without_a_needed_relation_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for dynamic in [false, true] {
        let mut import = import_of(dir.path(), &graph_config([1, 1], dynamic), [&[], &[]]);
        let mut records = Table { columns: Vec::new(), sections: vec![], edges: vec![], weights: vec![] };
        for name in ["rhs", "lhs"] {
            records.columns.push(RecordColumn { name: name.to_owned(), dtype: None });
        }
        let source = Arc::new(MemorySource::new("pairs.arrow", vec![0; 8]));
        import.sets[0] = vec![EdgeFile::of_records(source, Arc::new(records))];
        let error = import.run(&dir.path().join("data")).unwrap_err();
        assert_eq!((error.code().as_str(), error.file()), ("edge-columns", Some("pairs.arrow")));
        assert_eq!(error.found_text(), Some("table of rhs,lhs"));
    }
}

#[test]
fn columns_of_tables_are_found_by_name_or_position() {
    let find = |given: Option<&str>, names: &str| {
        let given = given.map(|text| Columns::parse(text).unwrap());
        let names: Vec<&str> = names.split(',').collect();
        let mut found = Columns::find(given.as_ref(), &names).ok()?;
        found.sort_unstable();
        Some(found.iter().map(|(place, name)| format!("{place}{name}")).collect::<Vec<_>>().join(" "))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(find(None, "id,rhs,weight,lhs"), some("1rhs 2weight 3lhs"));
    assert_eq!(find(None, "rel,rhs,lhs"), some("0rel 1rhs 2lhs"));
    assert_eq!(find(None, "a,b,c"), some("0lhs 1rel 2rhs"));
    assert_eq!(find(None, "a,b"), None);
    assert_eq!(find(None, "lhs,b"), None);
    // A name that two columns have is not a name.
    assert_eq!(find(None, "lhs,lhs,rhs"), None);
    assert_eq!(find(Some("rhs,lhs"), "lhs,rel,rhs,weight"), some("0lhs 2rhs"));
    assert_eq!(find(Some("lhs,-,rhs"), "lhs,rel,rhs"), some("0lhs 2rhs"));
    assert_eq!(find(Some("lhs,rel,rhs"), "lhs,kind,rhs"), some("0lhs 1rel 2rhs"));
    assert_eq!(find(Some("-,rhs,lhs,weight"), "a,b,c,d"), some("1rhs 2lhs 3weight"));
    assert_eq!(find(Some("-,rhs,lhs,weight"), "a,b,c"), None);
    // Not the relations as rhs.
    assert_eq!(find(Some("lhs,rhs,weight"), "lhs,rel,rhs"), None);
    let error = Columns::find(None, &["source", "target"]).unwrap_err();
    assert_eq!(error.found_text(), Some("2 columns: source, target"));
    assert_eq!(
        error.expected_text(),
        Some("columns named lhs and rhs, or 3 columns in the order lhs,rel,rhs")
    );
}
