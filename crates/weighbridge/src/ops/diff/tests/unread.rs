//! Unreadable and omitted parts.

use super::*;

/// Source of a given length that cannot be read.
#[derive(Debug)]
struct Broken(u64, fn() -> Error);

impl crate::source::Source for Broken {
    fn len(&self) -> u64 {
        self.0
    }
    fn read_at(&self, offset: u64, _: &mut [u8]) -> Result<()> {
        Err((self.1)().at(offset))
    }
    fn label(&self) -> &'static str {
        "broken"
    }
}

fn broken(path: &str, dtype: DType, error: fn() -> Error) -> TensorEntry {
    let source: SourceRef = Arc::new(Broken(16, error));
    let shape = Shape::from([16 / dtype.size().unwrap() as u64]);
    TensorEntry::dense(TensorPath::from_dotted(path), dtype, shape, &source, 0, Encoding::ROW).unwrap()
}

#[test]
fn unreadable_tensors_are_reported_and_the_rest_is_compared() {
    let damaged = || Error::corrupt("test-damage", "this is broken");
    let good = |path| f32s(path, &[1.0, 2.0, 3.0, 4.0]);
    for on_the_left in [true, false] {
        let bad = vec![broken("a", DType::F32, damaged), good("b")];
        let whole = vec![good("a"), good("b")];
        let report = if on_the_left { compared(bad, whole) } else { compared(whole, bad) };
        assert_eq!((report.is_same(), report.is_different()), (false, false));
        assert_eq!(report.verdict(), "could not tell");
        // It is sorted before equal pairs.
        assert_eq!(report.pairs.iter().map(|p| p.status).collect::<Vec<_>>(), [Status::Unread, Status::Same]);
        let finding = report.pairs[0].unread.as_ref().unwrap();
        assert_eq!(
            (finding.code.as_str(), finding.offset, finding.tensor.as_deref()),
            ("test-damage", Some(0), Some("a"))
        );
        assert_eq!(finding.file.as_deref(), Some("label"));
        let json = report.to_json(false);
        assert_eq!((&json["unread"], &json["different"]), (&json!(1), &json!(false)));
        assert_eq!(json["pairs"][0]["unread"]["code"], "test-damage");
        assert!(
            report
                .to_markdown()
                .contains("| `a` | unread, `test-damage: this is broken (label, offset 0)` |"),
            "{}",
            report.to_markdown()
        );
    }
    // Differences that need no reading are still reported.
    let report = compared(vec![broken("a", DType::I32, damaged)], vec![good("a")]);
    assert_eq!((report.pairs[0].status, report.is_different()), (Status::Unread, true));
    let report = compared(vec![broken("a", DType::F64, damaged)], vec![good("a")]);
    assert_eq!((report.pairs[0].status, report.is_different()), (Status::Shape, true));
    // It finds no partner by its content, and keeps no other from finding one.
    let left = vec![broken("a", DType::F32, damaged), good("b")];
    let report = compared(left, vec![good("c")]);
    assert_eq!((report.left_alone[0].name.as_str(), report.pairs[0].status), ("a", Status::Renamed));
    assert!(report.notes[0].starts_with("a cannot be read") && report.notes[0].contains("test-damage"));
}

#[test]
fn omissions_prevent_the_verdict_same() {
    let with = |codes: &[&'static str]| {
        let mut side = of(vec![f32s("a", &[1.0])]);
        side.notes = codes.iter().map(|code| Note::omission(*code, "left out")).collect();
        side.notes.push(Note::new("remark", "all is well"));
        side
    };
    let reported = |left: &[&'static str], right: &[&'static str], no_metadata| {
        let options = DiffOptions { no_metadata, ..DiffOptions::default() };
        let report = diff_checkpoints(with(left), with(right), &options).unwrap();
        assert!(!report.is_different());
        assert_eq!(report.to_json(false)["left_out"], json!(report.left_out));
        (report.left_out, report.verdict())
    };
    assert_eq!(reported(&[], &[], false), (0, "equal"));
    for no_metadata in [false, true] {
        assert_eq!(reported(&["tensor-skipped"], &["tensor-skipped"], no_metadata), (2, "could not tell"));
        assert_eq!(reported(&[], &["unread-object"], no_metadata), (1, "could not tell"));
        assert_eq!(reported(&["tensor-skipped"], &[], no_metadata), (1, "could not tell"));
    }
    // Where metadata are not compared, those that were not read say nothing either.
    assert_eq!(reported(&["value-left-out"], &[], false), (1, "could not tell"));
    assert_eq!(reported(&["value-left-out"], &["unknown-class"], true), (0, "equal"));
    // One program has nothing to be compared with; two may differ.
    assert_eq!(reported(&["torchscript-code"], &[], false), (0, "equal"));
    assert_eq!(reported(&["torchscript-code"], &["torchscript-code"], false), (2, "could not tell"));
    // What differs, differs.
    let right = Checkpoint { notes: with(&["unread-object"]).notes, ..of(vec![f32s("a", &[2.0])]) };
    let report = diff_checkpoints(with(&[]), right, &DiffOptions::default()).unwrap();
    assert_eq!((report.verdict(), report.left_out), ("different", 1));
}

#[test]
fn unknown_damage_prevents_the_verdict_same() {
    let damaged = |lost: &[&str], expected| {
        let mut side = of(vec![f32s("a", &[1.0])]);
        let error = Error::corrupt("test-damage", "broken");
        side.damage_mut(&error).expected = expected;
        lost.iter().for_each(|name| side.lose(name, &error));
        side
    };
    let reported = |side: Checkpoint, select: &[&str]| {
        let select = select.iter().map(|&name| name.to_owned()).collect();
        let whole = of(vec![f32s("a", &[1.0]), f32s("b", &[2.0])]);
        let options = DiffOptions { select, ..DiffOptions::default() };
        diff_checkpoints(side, whole, &options).unwrap().left_out
    };
    // It is one of the pairs.
    assert_eq!(reported(damaged(&["b"], Some(2)), &[]), 0);
    assert_eq!(reported(damaged(&["b", "c"], Some(3)), &[]), 1);
    assert_eq!(reported(damaged(&["b"], Some(2)), &["a"]), 0);
    assert_eq!(reported(damaged(&["b"], Some(3)), &["a"]), 1);
    assert_eq!(reported(damaged(&[], None), &["a"]), 1);
}

/// Names of rows that cannot be read.
#[derive(Debug)]
struct NoNames;

impl RowNames for NoNames {
    fn label(&self) -> &'static str {
        "names"
    }
    fn read(&self) -> Result<Arc<RowNameList>> {
        Err(Error::corrupt("test-names", "the names are broken"))
    }
    fn sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }
}

#[test]
fn values_are_compared_without_readable_row_names() {
    let table = |values: &[f32], names: bool| {
        let mut table = f32s("t", values);
        let good = MemoryRowNames::shared("l", ["a", "b"].into_iter().collect::<RowNameList>());
        table.row_names = Some(if names { good } else { Arc::new(NoNames) });
        table
    };
    for (values, status) in [([1.0, 2.0], Status::Unread), ([1.0, 3.0], Status::Values)] {
        let report = compared(vec![table(&[1.0, 2.0], true)], vec![table(&values, false)]);
        assert_eq!((report.pairs[0].status, report.is_same()), (status, false));
        assert_eq!(report.is_different(), status == Status::Values);
        assert_eq!(report.pairs[0].unread.as_ref().unwrap().code, "test-names");
        assert!(report.pairs[0].values.is_some());
    }
}

#[test]
fn errors_not_about_the_files_end_the_comparison() {
    let device = || Error::io("reading", std::io::Error::other("the device is gone"));
    let failed = diff_checkpoints(
        of(vec![broken("a", DType::F32, device)]),
        of(vec![f32s("a", &[0.0; 4])]),
        &DiffOptions::default(),
    );
    assert_eq!(failed.unwrap_err().kind(), crate::Kind::Io);
}
