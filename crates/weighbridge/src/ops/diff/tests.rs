mod forms;
mod structure;
mod unread;

use super::*;
use crate::checkpoint::{MemoryRowNames, Note, Origin, Role, RowNameList, RowNames, TensorPath, Value};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::{DType, Encoding, Order, Shape};
use std::sync::Arc;

fn entry(path: &str, dtype: DType, shape: &[u64], bytes: Vec<u8>) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    let path = TensorPath::from_dotted(path);
    TensorEntry::dense(path, dtype, Shape::new(shape), &source, 0, Encoding::ROW).unwrap()
}

fn f32s(path: &str, values: &[f32]) -> TensorEntry {
    let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    entry(path, DType::F32, &[values.len() as u64], bytes)
}

fn of(tensors: Vec<TensorEntry>) -> Checkpoint {
    Checkpoint { tensors, ..Checkpoint::new("test", "test", "label") }
}

fn compared(left: Vec<TensorEntry>, right: Vec<TensorEntry>) -> DiffReport {
    diff_checkpoints(of(left), of(right), &DiffOptions::default()).unwrap()
}

/// What two tensors of one name come to.
fn values(left: TensorEntry, right: TensorEntry) -> (Status, Values) {
    let mut report = compared(vec![left], vec![right]);
    let pair = report.pairs.remove(0);
    (pair.status, Values::clone(pair.values.as_ref().unwrap()))
}

#[test]
fn measures_follow_their_definitions() {
    let a = [1.0, -2.0, 3.0, f32::NAN, f32::INFINITY, f32::NAN, 0.0];
    let b = [1.0, -2.5, 3.0, f32::NAN, f32::NEG_INFINITY, 5.0, -0.0];
    let (status, found) = values(f32s("w", &a), f32s("w", &b));
    assert_eq!(status, Status::Values);
    assert_eq!((found.elements, found.finite, found.beyond), (7, 4, 3));
    assert_eq!((found.max_abs, found.at.clone()), (0.5, Some(vec![1])));
    assert_eq!((found.max_relative, found.mean_abs), (0.2, 0.125));
    let (dot, left, right) = (1.0 + 5.0 + 9.0, 1.0 + 4.0 + 9.0, 1.0 + 6.25 + 9.0);
    assert!((found.cosine.unwrap() - dot / f64::sqrt(left * right)).abs() < 1e-15);
    assert_eq!(found.max_ulp, Some(u64::from(2.5f32.to_bits() - 2f32.to_bits())));
    assert_eq!((found.nan_left, found.nan_right, found.nan_moved, found.infinite_apart), (2, 1, 1, 1));
    assert_eq!((found.nan_at.clone(), found.infinite_at.clone()), (Some(vec![5]), Some(vec![4])));
    assert_eq!(
        found.oddities(),
        [
            "NaN: 2 left, 1 right, 1 on one side only, first at [5]",
            "infinities differ at 1 place, first at [4]"
        ]
    );
    // Only the sign of a zero: the bits are different, the values are not.
    let (status, found) = values(f32s("w", &[0.0, 1.0]), f32s("w", &[-0.0, 1.0]));
    assert_eq!((status, found.same_bits, found.beyond, found.max_ulp), (Status::Values, false, 0, Some(0)));
}

#[test]
fn ulp_distance_crosses_zero_for_every_width() {
    let pair = |dtype, a: &[u8], b: &[u8]| {
        values(entry("w", dtype, &[1], a.to_vec()), entry("w", dtype, &[1], b.to_vec())).1.max_ulp
    };
    assert_eq!(pair(DType::F16, &[1, 0], &[1, 0x80]), Some(2));
    assert_eq!(pair(DType::BF16, &0x3f80u16.to_le_bytes(), &0x3f83u16.to_le_bytes()), Some(3));
    assert_eq!(pair(DType::F32, &f32::MAX.to_le_bytes(), &f32::MIN.to_le_bytes()), Some(2 * 0x7f7f_ffff));
    assert_eq!(pair(DType::F64, &1f64.to_le_bytes(), &1f64.next_up().to_le_bytes()), Some(1));
    // What is not finite is counted elsewhere.
    assert_eq!(pair(DType::F32, &f32::NAN.to_le_bytes(), &1f32.to_le_bytes()), Some(0));
    assert_eq!(pair(DType::I32, &[1, 0, 0, 0], &[2, 0, 0, 0]), None);
}

#[test]
fn wide_integers_are_compared_exactly() {
    let one = |x: i64| entry("w", DType::I64, &[1], x.to_le_bytes().to_vec());
    let (status, found) = values(one(i64::MAX), one(i64::MAX - 1));
    assert_eq!((status, found.beyond, found.max_abs), (Status::Values, 1, 1.0));
    let most = entry("w", DType::U64, &[1], u64::MAX.to_le_bytes().to_vec());
    let (_, found) = values(most, one(-1));
    assert_eq!((found.max_abs, found.beyond), (2f64.powi(64), 1));
}

#[test]
fn wide_integers_beside_floats_are_not_rounded() {
    let int = |x: i64| entry("w", DType::I64, &[1], x.to_le_bytes().to_vec());
    let float = |x: f64| entry("w", DType::F64, &[1], x.to_le_bytes().to_vec());
    let two53 = 1i64 << 53;
    for (a, b, distance) in [(two53 + 1, two53 as f64, 1.0), (7, 7.0, 0.0), (-3, -3.5, 0.5), (1, 1e40, 1e40)]
    {
        let (_, found) = values(int(a), float(b));
        assert_eq!((found.max_abs, found.beyond), (distance, u64::from(distance != 0.0)), "{a} {b}");
        let (_, found) = values(float(b), int(a));
        assert_eq!((found.max_abs, found.beyond), (distance, u64::from(distance != 0.0)), "{b} {a}");
    }
    let (_, found) = values(int(1), float(f64::NAN));
    assert_eq!((found.beyond, found.nan_moved), (1, 1));
}

#[test]
fn wide_integers_beside_complex_numbers_are_not_rounded() {
    let int = |x: i64| entry("w", DType::I64, &[1], x.to_le_bytes().to_vec());
    let z = |re: f64, im: f64| entry("w", DType::C128, &[1], [re.to_le_bytes(), im.to_le_bytes()].concat());
    let two53 = 1i64 << 53;
    let cases = [
        (two53 + 1, [two53 as f64, 0.0], 1.0),
        (5, [5.0, 0.0], 0.0),
        (-5, [-5.0, 0.0], 0.0),
        (-5, [5.0, 0.0], 10.0),
        (7, [4.0, 4.0], 5.0),
    ];
    for (a, [re, im], distance) in cases {
        for (left, right) in [(int(a), z(re, im)), (z(re, im), int(a))] {
            let (_, found) = values(left, right);
            assert_eq!(
                (found.max_abs, found.beyond),
                (distance, u64::from(distance != 0.0)),
                "{a} {re} {im}"
            );
            assert_eq!(found.cosine, None);
        }
    }
    let (_, found) = values(int(1), z(1.0, f64::NAN));
    assert_eq!((found.beyond, found.nan_moved), (1, 1));
}

#[test]
fn complex_numbers_differ_by_the_modulus() {
    let z = |re: f32, im: f32| entry("w", DType::C64, &[1], [re.to_le_bytes(), im.to_le_bytes()].concat());
    // Both have the modulus 5.
    let (status, found) = values(z(3.0, 4.0), z(4.0, 3.0));
    assert_eq!((status, found.beyond, found.cosine), (Status::Values, 1, None));
    assert!((found.max_abs - 2f64.sqrt()).abs() < 1e-15);
    // Beside another type they are still two numbers each.
    let wide = entry("w", DType::C128, &[1], [5f64.to_le_bytes(), 0f64.to_le_bytes()].concat());
    assert_eq!(values(z(3.0, 4.0), wide.clone()).1.beyond, 1);
    assert_eq!(values(z(5.0, 0.0), wide).1.beyond, 0);
    assert_eq!(values(z(-5.0, 0.0), f32s("w", &[5.0])).1.max_abs, 10.0);
    assert_eq!(values(z(5.0, 0.0), f32s("w", &[5.0])).1.beyond, 0);
}

#[test]
fn a_given_tolerance_decides_equality() {
    let with = |absolute, relative| {
        let tolerance = Some(Tolerance { absolute, relative });
        let options = DiffOptions { tolerance, ..DiffOptions::default() };
        let (a, b) = (of(vec![f32s("w", &[1.0, 100.0])]), of(vec![f32s("w", &[1.0, 101.0])]));
        let report = diff_checkpoints(a, b, &options).unwrap();
        assert_eq!(report.verdict() == "equal within the tolerance", report.is_same());
        (report.pairs[0].status, report.is_same())
    };
    assert_eq!(with(0.0, 0.0), (Status::Values, false));
    assert_eq!(with(0.9, 0.0), (Status::Values, false));
    assert_eq!(with(1.0, 0.0), (Status::Close, true));
    assert_eq!(with(0.0, 0.01), (Status::Close, true));
    // What is infinite is near nothing but itself.
    let tolerance = Some(Tolerance { absolute: 1.0, relative: 1.0 });
    let options = DiffOptions { tolerance, ..DiffOptions::default() };
    let infinite = f32s("w", &[f32::INFINITY, f32::NEG_INFINITY]);
    for other in [f32s("w", &[1.0, 2.0]), f32s("w", &[f32::NEG_INFINITY, f32::INFINITY])] {
        for (a, b) in [(infinite.clone(), other.clone()), (other, infinite.clone())] {
            let report = diff_checkpoints(of(vec![a]), of(vec![b]), &options).unwrap();
            let found = report.pairs[0].values.as_ref().unwrap();
            assert_eq!((report.is_same(), found.beyond, found.infinite_apart), (false, 2, 2));
        }
    }
    let z = |im: f32| entry("w", DType::C64, &[1], [f32::INFINITY.to_le_bytes(), im.to_le_bytes()].concat());
    assert!(!diff_checkpoints(of(vec![z(0.0)]), of(vec![z(5.0)]), &options).unwrap().is_same());
    assert!(diff_checkpoints(of(vec![z(5.0)]), of(vec![z(5.0)]), &options).unwrap().is_same());
}

#[test]
fn storage_order_is_not_a_difference_and_indices_are_logical() {
    // Many blocks of either side: 12,000 elements, and 8,192 or 1,024 in a block.
    let (rows, columns) = (100usize, 120usize);
    let at = |row: usize, column: usize| (row * columns + column) as f32;
    let row_major: Vec<u8> =
        (0..rows * columns).flat_map(|i| at(i / columns, i % columns).to_le_bytes()).collect();
    let mut column_major: Vec<u8> =
        (0..rows * columns).flat_map(|i| at(i % rows, i / rows).to_le_bytes()).collect();
    let shape = [rows as u64, columns as u64];
    let stored = |order, bytes: Vec<u8>| {
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let encoding = if order == Order::Row { Encoding::ROW } else { Encoding::COLUMN };
        TensorEntry::dense(TensorPath::from_dotted("w"), DType::F32, Shape::new(shape), &source, 0, encoding)
            .unwrap()
    };
    let row = || stored(Order::Row, row_major.clone());
    let (status, found) = values(row(), stored(Order::Column, column_major.clone()));
    assert_eq!((status, found.same_bits), (Status::Same, true));
    // One element is another: in row 97, column 110.
    let place = 4 * (110 * rows + 97);
    column_major[place..place + 4].copy_from_slice(&(at(97, 110) + 1.0).to_le_bytes());
    let reports: Vec<_> = [1, 2, 5]
        .into_iter()
        .flat_map(|threads| {
            let options = DiffOptions { threads, ..DiffOptions::default() };
            let column = || stored(Order::Column, column_major.clone());
            let column_as_row = || {
                let bytes = column().read_tensor(Order::Row).unwrap();
                stored(Order::Row, bytes)
            };
            [(row(), column()), (column(), row()), (row(), column_as_row())]
                .map(|(a, b)| diff_checkpoints(of(vec![a]), of(vec![b]), &options).unwrap())
        })
        .collect();
    for report in &reports {
        let found = report.pairs[0].values.as_ref().unwrap();
        assert_eq!((found.at.as_deref(), found.max_abs, found.beyond), (Some(&[97, 110][..]), 1.0, 1));
        assert_eq!(found.elements, 12_000);
        // Of the blocks that are equal, too: over all elements.
        let squares: f64 = (0..12_000).map(|i| f64::from(i).powi(2)).sum();
        let other = f64::from(at(97, 110));
        let wanted = (squares + other) / (squares * (squares + 2.0 * other + 1.0)).sqrt();
        assert!((found.cosine.unwrap() - wanted).abs() < 1e-15);
        assert_eq!(found.mean_abs, 1.0 / 12_000.0);
    }
    for kind in 0..3 {
        let mut same = reports.iter().skip(kind).step_by(3);
        assert!(same.all(|report| report == &reports[kind]), "threads change nothing");
    }
}

/// The first in the order of indices, whatever the order of the bytes, and of the blocks that threads take.
#[test]
fn first_nan_and_infinity_do_not_depend_on_storage_order() {
    let (rows, columns) = (100usize, 120usize);
    let odd = |row: usize, column: usize| match (row, column) {
        (41, 7) | (40, 119) | (99, 0) => f32::NAN,
        (3, 100) | (4, 1) => f32::INFINITY,
        _ => 1.0,
    };
    let stored = |order: Order, value: &dyn Fn(usize, usize) -> f32| {
        let at = |i: usize| match order {
            Order::Row => value(i / columns, i % columns),
            Order::Column => value(i % rows, i / rows),
        };
        let bytes: Vec<u8> = (0..rows * columns).flat_map(|i| at(i).to_le_bytes()).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let encoding = if order == Order::Row { Encoding::ROW } else { Encoding::COLUMN };
        let shape = Shape::new([rows as u64, columns as u64]);
        TensorEntry::dense(TensorPath::from_dotted("w"), DType::F32, shape, &source, 0, encoding).unwrap()
    };
    for (left, right, threads) in [
        (Order::Row, Order::Row, 1),
        (Order::Row, Order::Column, 5),
        (Order::Column, Order::Row, 2),
        (Order::Column, Order::Column, 1),
        (Order::Column, Order::Column, 5),
    ] {
        let options = DiffOptions { threads, ..DiffOptions::default() };
        let (a, b) = (stored(left, &|_, _| 1.0), stored(right, &odd));
        let report = diff_checkpoints(of(vec![a]), of(vec![b]), &options).unwrap();
        let found = report.pairs[0].values.as_ref().unwrap();
        assert_eq!((found.nan_moved, &found.nan_at), (3, &Some(vec![40, 119])), "{left:?} {right:?}");
        assert_eq!(
            (found.infinite_apart, &found.infinite_at),
            (2, &Some(vec![3, 100])),
            "{left:?} {right:?}"
        );
        let json = &report.to_json(false)["pairs"][0]["values"];
        assert_eq!((&json["nan_at"], &json["infinite_at"]), (&json!([40, 119]), &json!([3, 100])));
        assert!(report.to_markdown().contains("first at [40, 119]"), "{}", report.to_markdown());
    }
    // NaN on both sides has not moved; a tensor of no dimensions has one place.
    let (_, found) = values(f32s("w", &[f32::NAN, 1.0]), f32s("w", &[f32::NAN, 2.0]));
    assert_eq!((found.nan_at, found.infinite_at), (None, None));
    let scalar = |x: f32| entry("w", DType::F32, &[], x.to_le_bytes().to_vec());
    assert_eq!(values(scalar(1.0), scalar(f32::NAN)).1.nan_at, Some(vec![]));
    let int = entry("w", DType::I64, &[2], [1i64, 2].iter().flat_map(|x| x.to_le_bytes()).collect());
    assert_eq!(values(int, f32s("w", &[1.0, f32::INFINITY])).1.infinite_at, Some(vec![1]));
}

#[test]
fn renames_are_found_by_content() {
    let mut left = vec![f32s("enc.w", &[1.0, 2.0]), f32s("enc.b", &[0.0, 0.0]), f32s("dec.b", &[0.0, 0.0])];
    left.push(f32s("gone", &[7.0]));
    let right = vec![
        f32s("decoder.b", &[0.0, 0.0]),
        f32s("encoder.w", &[1.0, 2.0]),
        f32s("encoder.b", &[0.0, 0.0]),
        f32s("new", &[8.0]),
    ];
    let report = compared(left.clone(), right.clone());
    let mut pairs: Vec<_> = report.pairs.iter().map(|p| (&*p.left, &*p.right, p.status)).collect();
    pairs.sort_unstable();
    let renamed = Status::Renamed;
    let wanted =
        [("dec.b", "decoder.b", renamed), ("enc.b", "encoder.b", renamed), ("enc.w", "encoder.w", renamed)];
    // Both biases are equal, so content does not determine the pairing.
    assert_eq!(pairs.len(), 3);
    assert_eq!((pairs[2], pairs[0].2, pairs[1].2), (wanted[2], renamed, renamed));
    assert_eq!((report.left_alone[0].name.as_str(), report.right_alone[0].name.as_str()), ("gone", "new"));
    assert!(!report.is_same());
    // With rules they do not differ.
    let rename = vec!["enc=encoder".to_owned(), "dec=decoder".to_owned()];
    let options = DiffOptions { rename, ..DiffOptions::default() };
    let report = diff_checkpoints(of(left[..3].to_vec()), of(right[..3].to_vec()), &options).unwrap();
    assert!(report.is_same(), "{report:?}");
    // Without content nothing is read.
    let options = DiffOptions { names_only: true, ..DiffOptions::default() };
    let report = diff_checkpoints(of(left), of(right), &options).unwrap();
    assert_eq!((report.pairs.len(), report.left_alone.len(), report.right_alone.len()), (0, 4, 4));
}

#[test]
fn reports_dtypes_shapes_roles_and_row_names() {
    let wide = entry("w", DType::F64, &[2], [1f64, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect());
    let report = compared(vec![f32s("w", &[1.0, 2.0])], vec![wide]);
    assert_eq!(report.pairs[0].status, Status::Form);
    assert_eq!(
        report.pairs[0].changes,
        [brief::change("dtype".into(), Some("f32".into()), Some("f64".into()))]
    );
    let report = compared(vec![f32s("w", &[1.0, 2.0])], vec![f32s("w", &[1.0])]);
    assert_eq!((report.pairs[0].status, report.pairs[0].values.is_none()), (Status::Shape, true));
    let mut other = f32s("w", &[1.0]);
    other.role = Role::Embedding;
    let sides = || (of(vec![f32s("w", &[1.0])]), of(vec![other.clone()]));
    let (left, right) = sides();
    assert_eq!(diff_checkpoints(left, right, &DiffOptions::default()).unwrap().pairs[0].status, Status::Same);
    let (left, right) = sides();
    let options = DiffOptions { metadata: true, ..DiffOptions::default() };
    assert_eq!(diff_checkpoints(left, right, &options).unwrap().pairs[0].changes[0].what, "role");
    let named = |names: [&str; 2]| {
        let mut entry = f32s("w", &[1.0, 2.0]);
        entry.row_names = Some(MemoryRowNames::shared("l", names.into_iter().collect::<RowNameList>()));
        entry
    };
    let report = compared(vec![named(["a", "b"])], vec![named(["a", "c"])]);
    assert_eq!(
        report.pairs[0].changes,
        [brief::change("row-names".into(), Some("row 1: b".into()), Some("row 1: c".into()))]
    );
    let report = compared(vec![named(["a", "b"])], vec![named(["a", "b"])]);
    assert!(report.is_same() && report.notes.is_empty());
    // Incomparable tensors are reported.
    let report = compared(vec![named(["a", "b"])], vec![f32s("w", &[1.0, 2.0])]);
    assert!(report.is_same() && report.notes[0].contains("on the right side"), "{:?}", report.notes);
    // So are rows that are selected, levels of sequences and the like.
    let with = |key: &str, value: u64| {
        let mut entry = f32s("w", &[1.0]);
        entry.attributes.insert(key.to_owned(), Value::List(vec![Value::U64(value)]));
        entry
    };
    let report = compared(vec![with("rows", 0)], vec![with("rows", 1)]);
    assert_eq!(report.pairs[0].changes[0].what, "attribute rows");
    assert_eq!(compared(vec![with("rows", 0)], vec![f32s("w", &[1.0])]).pairs[0].status, Status::Form);
    for name in ["alias_of", "storage", "variable_name"] {
        assert!(compared(vec![with(name, 0)], vec![with(name, 1)]).is_same());
    }
}

#[test]
fn selected_tensors_may_be_on_one_side_only() {
    let options = |pattern: &str| DiffOptions { select: vec![pattern.to_owned()], ..DiffOptions::default() };
    let run = |pattern: &str| {
        diff_checkpoints(of(vec![f32s("a", &[1.0])]), of(vec![f32s("b", &[2.0])]), &options(pattern))
    };
    assert_eq!(run("b").unwrap().right_alone.len(), 1);
    assert_eq!(run("c").unwrap_err().code().as_str(), "no-match");
    // Names count as they are after a rename, and either name of a pair.
    let sides = || {
        (
            of(vec![f32s("enc.w", &[1.0]), f32s("x", &[2.0])]),
            of(vec![f32s("encoder.w", &[1.0]), f32s("y", &[3.0])]),
        )
    };
    for (patterns, pairs, alone) in [(["encoder.*", ""], 1, 0), (["*", "encoder.*"], 0, 2)] {
        let (left, right) = sides();
        let options = DiffOptions {
            select: vec![patterns[0].to_owned()],
            drop: patterns[1..].iter().filter(|p| !p.is_empty()).map(|p| (*p).to_owned()).collect(),
            rename: vec!["enc=encoder".to_owned()],
            ..DiffOptions::default()
        };
        let report = diff_checkpoints(left, right, &options).unwrap();
        let found = report.left_alone.len() + report.right_alone.len();
        assert_eq!((report.pairs.len(), found), (pairs, alone), "{patterns:?}");
    }
}

#[test]
fn metadata_and_markdown() {
    let mut left = of(vec![f32s("a|`b", &[1.0])]);
    let mut right = of(vec![f32s("a|`b", &[2.0])]);
    left.metadata.set("gone", Value::U64(1));
    left.metadata.set("kept", Value::U64(2));
    right.metadata.set("kept", Value::U64(3));
    right.metadata.set("new", Value::Text("x".into()));
    let report = diff_checkpoints(left.clone(), right.clone(), &DiffOptions::default()).unwrap();
    let what: Vec<_> =
        report.metadata.iter().map(|c| (c.what.as_str(), c.left.is_some(), c.right.is_some())).collect();
    assert_eq!(what, [("gone", true, false), ("kept", true, true), ("new", false, true)]);
    // Within maps, and far behind in long texts.
    let map = |pairs: &[(&str, &str)]| {
        Value::Map(pairs.iter().map(|(k, v)| ((*k).into(), Value::Text((*v).to_owned()))).collect())
    };
    let long = "x".repeat(300);
    let (mut a, mut b) = (of(vec![]), of(vec![]));
    a.metadata.set("m", map(&[("k", "1"), ("same", "2"), ("long", &format!("{long}a"))]));
    b.metadata.set("m", map(&[("k", "3"), ("same", "2"), ("long", &format!("{long}b"))]));
    let found = diff_checkpoints(a, b, &DiffOptions::default()).unwrap().metadata;
    let text = |side: &Option<String>| side.clone().unwrap();
    assert_eq!(
        (found[0].what.as_str(), text(&found[0].left), text(&found[0].right)),
        ("m/k", "\"1\"".into(), "\"3\"".into())
    );
    assert_eq!((found.len(), found[1].what.as_str()), (2, "m/long"));
    assert!(text(&found[1].left).starts_with("...x") && text(&found[1].left).ends_with("a\""));
    assert!(text(&found[1].right).ends_with("b\""));
    let text = report.to_markdown();
    assert!(text.starts_with("**different**") && text.contains("| `a\\|'b` | values |"), "{text}");
    assert!(text.contains("- `kept`: `2` → `3`"), "{text}");
    right.tensors = left.tensors.clone();
    let options = DiffOptions { no_metadata: true, ..DiffOptions::default() };
    assert!(diff_checkpoints(left, right, &options).unwrap().is_same());
}

#[test]
fn programs_are_compared_operator_by_operator() {
    let golden = |name: &str| {
        let path = weighbridge_testkit::testdata("paddle/good").join(name);
        crate::formats::open(path).unwrap().topology.unwrap()
    };
    let whole = golden("p262/cnn_static_infer/model.pdmodel");
    assert_eq!(program(&whole, &whole), ProgramDiff::default());
    let mut changed = (*whole).clone();
    let at = changed.blocks[0].operators.iter().position(|op| op.kind.contains("matmul")).unwrap();
    let removed = changed.blocks[0].operators.remove(at + 1);
    changed.blocks[0].operators[at].attributes[0].value =
        crate::topology::AttributeValue::Text("other".into());
    let name = changed.blocks[0].operators[at].attributes[0].name.clone();
    let found = program(&whole, &changed).changes;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .any(|c| c.part == Some(format!("attribute {name}")) && c.right == Some("\"other\"".into()))
    );
    assert!(
        found.iter().any(|c| c.part.is_none() && c.left.as_ref() == Some(&removed.kind) && c.right.is_none())
    );
}

#[test]
fn program_differences_are_listed_up_to_a_limit_and_counted() {
    let of = |operators| {
        let operators = vec![crate::topology::Operator::default(); operators];
        crate::topology::Topology {
            form: "test",
            writer: None,
            bytes: Arc::default(),
            blocks: vec![crate::topology::Block { operators, ..Default::default() }],
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: Vec::new(),
        }
    };
    let found = program(&of(0), &of(30_000));
    assert_eq!((found.changes.len(), found.more, found.count()), (20_000, 10_000, 30_000));
    let empty = Checkpoint::new("test", "test", "label");
    let side = |operators| Checkpoint { topology: Some(Arc::new(of(operators))), ..empty.clone() };
    let report = diff_checkpoints(side(0), side(30_000), &DiffOptions::default()).unwrap();
    let json = report.to_json(false);
    assert_eq!((json["program"].as_array().unwrap().len(), &json["program_more"]), (20_000, &json!(10_000)));
    assert!(report.is_different());
    assert!(report.to_markdown().contains("\nand 29900 more"));
}

/// A configuration is often one text: its keys are compared.
#[test]
fn json_texts_of_metadata_are_compared_by_key() {
    let side = |text: &str| {
        let mut side = of(vec![]);
        side.metadata.set("config", Value::Text(text.to_owned()));
        side
    };
    let found = |left: &str, right: &str| -> Vec<(String, Option<String>, Option<String>)> {
        let report = diff_checkpoints(side(left), side(right), &DiffOptions::default()).unwrap();
        report.metadata.into_iter().map(|change| (change.what, change.left, change.right)).collect()
    };
    let one = |what: &str, left: Option<&str>, right: Option<&str>| {
        (what.to_owned(), left.map(str::to_owned), right.map(str::to_owned))
    };
    assert_eq!(
        found(r#"{"dim": 8, "a": {"lr": 0.1, "x": 1}}"#, r#"{"a": {"x": 1, "lr": 0.2}, "new": []}"#),
        [
            one("config/dim", Some("8"), None),
            one("config/a/lr", Some("0.1"), Some("0.2")),
            one("config/new", None, Some("[]")),
        ]
    );
    assert_eq!(found("{} ", "{}"), [one("config", Some("\"{} \""), Some("\"{}\""))]);
    assert_eq!(found("{", "{}"), [one("config", Some("\"{\""), Some("\"{}\""))]);
}

#[test]
fn programs_are_compared_by_new_names_and_by_the_versions_of_operators() {
    let side = |weight: &str, version: i64| {
        let slot =
            |argument: &str| crate::topology::Slot { name: String::new(), arguments: vec![argument.into()] };
        let operator = crate::topology::Operator {
            kind: "MatMul".into(),
            inputs: vec![slot("x"), slot(weight)],
            outputs: vec![slot("y")],
            ..Default::default()
        };
        let topology = crate::topology::Topology {
            form: "test",
            writer: None,
            bytes: Arc::default(),
            blocks: vec![crate::topology::Block { operators: vec![operator], ..Default::default() }],
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: vec![("ai.onnx".into(), version)],
        };
        Checkpoint { topology: Some(Arc::new(topology)), ..of(vec![f32s(weight, &[1.0, 2.0, 3.0])]) }
    };
    let found = |left, right| diff_checkpoints(left, right, &DiffOptions::default()).unwrap();
    let renamed = found(side("w", 17), side("v", 17));
    assert_eq!((renamed.count(Status::Renamed), renamed.program.count()), (1, 0));
    let other = found(side("w", 17), side("w", 18)).program;
    assert_eq!((other.count(), other.changes[0].subject.as_str()), (1, "versions of operators"));
    assert_eq!(other.changes[0].left.as_deref(), Some("ai.onnx 17"));
}

/// A key above many others, or a name, is repeated in each difference below it: of a long one only the beginning.
#[test]
fn long_names_are_cut_in_each_difference() {
    let change = brief::change("k".repeat(1_000_000), Some("1".into()), Some("2".into()));
    assert_eq!((change.what.len(), change.left.as_deref()), (203, Some("1")));
}

#[test]
fn training_flags_are_compared_on_request() {
    let golden = |name: &str| {
        let path = weighbridge_testkit::testdata("paddle/good").join(name);
        crate::formats::open(path).unwrap()
    };
    let left = golden("p262/cnn_jit");
    let mut right = left.clone();
    for (name, flag) in [("stop_gradient", true), ("trainable", false)] {
        let key = name.to_owned();
        right.tensors[0].attributes.insert(key, crate::checkpoint::Value::Bool(flag));
    }
    let mut topology = (**right.topology.as_ref().unwrap()).clone();
    let variable = &mut topology.blocks[0].variables[0];
    variable.stop_gradient = !variable.stop_gradient;
    right.topology = Some(Arc::new(topology));
    let report = diff_checkpoints(left.clone(), right.clone(), &DiffOptions::default()).unwrap();
    assert!(report.is_same(), "{:?} {:?}", report.pairs, report.program);
    let asked = DiffOptions { metadata: true, ..DiffOptions::default() };
    let report = diff_checkpoints(left, right, &asked).unwrap();
    let pair = report.pairs.iter().find(|pair| !pair.changes.is_empty()).unwrap();
    let what: Vec<&str> = pair.changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(what, ["attribute stop_gradient", "attribute trainable"]);
    assert_eq!(report.program.changes[0].part.as_deref(), Some("stop_gradient"));
}
