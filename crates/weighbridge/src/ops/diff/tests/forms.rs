//! Variations that are not differences: file layouts, and shared storage.

use super::*;

#[test]
fn format_metadata_is_not_a_difference() {
    let of_format = |format: &'static str, pairs: &[(&str, Value)]| {
        let mut one = of(vec![f32s("w", &[1.0])]);
        one.format = format;
        pairs.iter().for_each(|(key, value)| one.metadata.set(*key, value.clone()));
        one
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let map =
        |pairs: &[(&str, Value)]| Value::Map(pairs.iter().map(|(k, v)| ((*k).into(), v.clone())).collect());
    let changes_of = |left: Checkpoint, right: Checkpoint| -> Vec<String> {
        let report = diff_checkpoints(left, right, &DiffOptions::default()).unwrap();
        report.metadata.into_iter().map(|change| change.what).collect()
    };
    let found = |format: &'static str, a: &[(&str, Value)], b: &[(&str, Value)]| {
        // The other side is of any form.
        changes_of(of_format(format, a), of_format("npz", b))
    };
    let files = |name: &str| {
        [("paddle.program", text(name)), ("paddle.parameters", text(name)), ("paddle.info", text(name))]
    };
    assert!(found("paddle", &files("a"), &files("b")).is_empty());
    let pickled = [
        ("paddle.protocol", Value::U32(4)),
        ("paddle.numpy", Value::U32(2)),
        ("paddle.name_table", Value::Bool(true)),
        ("paddle.python2", Value::Bool(true)),
    ];
    assert!(found("paddle", &files("a"), &pickled).is_empty());
    assert!(found("paddle", &pickled, &[("paddle.protocol", Value::U32(2))]).is_empty());
    assert!(found("safetensors", &[("format", text("pt"))], &[]).is_empty());
    let version = |n| [("attributes", map(&[("format_version", Value::I64(n))]))];
    assert!(found("biggraph", &version(1), &[("attributes", map(&[]))]).is_empty());
    // What is of the model stays, and what only looks like it.
    assert_eq!(found("paddle", &[("paddle.vocab", map(&[]))], &[("paddle.structure", map(&[]))]).len(), 2);
    assert_eq!(found("safetensors", &[("format", text("pt"))], &[("format", text("mine"))]), ["format"]);
    let step = |n| [("attributes", map(&[("format_version", Value::I64(n)), ("step", Value::I64(n))]))];
    assert_eq!(found("biggraph", &step(1), &step(2)), ["attributes/step"]);
    // Another order is reported as before.
    let [a, b] = [("a", Value::I64(1)), ("b", Value::I64(2))];
    assert_eq!(found("npz", &[("m", map(&[a.clone(), b.clone()]))], &[("m", map(&[b, a]))]), ["m"]);
    // The origin of the other side counts; without an origin, the metadata belong to the user.
    let of_torch = |pairs: &[(&str, Value)], origin: Option<&str>| {
        let mut one = of_format("torch", pairs);
        one.origin = origin.map(|format| Origin { format: format.into(), kind: "object".into() });
        one
    };
    for (pairs, others, key) in [
        (version(1).to_vec(), version(2).to_vec(), "attributes/format_version"),
        (vec![("format_version", Value::I64(1))], vec![("format_version", Value::I64(2))], "format_version"),
        (files("a").to_vec(), files("b").to_vec(), "paddle.program"),
        (vec![("format", text("pt"))], vec![("format", text("np"))], "format"),
    ] {
        let own = |pairs: &[(&str, Value)]| of_torch(pairs, Some("torch"));
        assert_eq!(changes_of(own(&pairs), own(&others)).first().map(String::as_str), Some(key));
        let made_of = match key {
            "paddle.program" => Some("paddle"),
            "format" => None,
            _ => Some("biggraph"),
        };
        assert!(changes_of(of_torch(&pairs, made_of), of_torch(&others, made_of)).is_empty(), "{key}");
        assert!(changes_of(own(&pairs), of_torch(&others, made_of)).is_empty(), "{key}");
    }
}

#[test]
fn ties_are_a_note_not_a_difference() {
    let tied = |names: &[&str], ties: &[(usize, &str)]| {
        let mut tensors: Vec<TensorEntry> = names.iter().map(|name| f32s(name, &[1.0])).collect();
        for (at, name) in ties {
            tensors[*at].attributes.insert("alias_of".into(), Value::Text((*name).to_owned()));
        }
        tensors
    };
    let notes = |left: &[(usize, &str)], right: &[(usize, &str)]| {
        let names = ["a", "b", "c", "d"];
        let report = compared(tied(&names, left), tied(&names, right));
        assert!(report.is_same(), "{report:?}");
        report.notes
    };
    assert_eq!(notes(&[(1, "a")], &[]), ["storage is shared on the left side only: b with a"]);
    assert_eq!(
        notes(&[], &[(1, "a"), (2, "a")]),
        ["storage is shared on the right side only: b with a and 1 more"]
    );
    assert_eq!(notes(&[(1, "a")], &[(3, "c")]).len(), 2);
    // Which of them is the first is a matter of order.
    let none: [&str; 0] = [];
    assert_eq!(notes(&[(1, "a"), (2, "a")], &[(0, "c"), (1, "c")]), none);
    let [left, right] = [tied(&["a", "b"], &[(1, "a")]), tied(&["b", "a"], &[(1, "b")])];
    assert_eq!(compared(left, right).notes, none);
    // A dropped tensor shares nothing.
    let options = DiffOptions { drop: vec!["a".to_owned()], ..DiffOptions::default() };
    let (left, right) = (of(tied(&["a", "b"], &[(1, "a")])), of(tied(&["a", "b"], &[])));
    assert_eq!(diff_checkpoints(left, right, &options).unwrap().notes, none);
}

/// Versions of one module in two state dicts: joined, one of them would be lost.
#[test]
fn conflicting_module_versions_are_compared_as_they_are() {
    let side = |version: i64| {
        let versions = |name: &str, version| {
            Value::Map(vec![(name.into(), Value::Map(vec![("version".into(), Value::I64(version))]))])
        };
        let mut side = of(vec![f32s("m.w", &[1.0])]);
        side.metadata.set("_metadata", versions("m", version));
        side.metadata.set("m._metadata", versions("", 2));
        side
    };
    let options = DiffOptions { rename: vec!["m=m2".to_owned()], ..DiffOptions::default() };
    let other = |version| {
        let mut other = side(version);
        apply(&mut other, &Rule::parse("rename", &["m=m2".to_owned()]).unwrap(), false).unwrap();
        other
    };
    assert!(!diff_checkpoints(side(7), other(7), &options).unwrap().is_different());
    assert!(diff_checkpoints(side(7), other(9), &options).unwrap().is_different());
}

#[test]
fn tensors_of_one_value_are_renamed_only_where_their_names_end_alike() {
    let renamed = |left: &str, right: &str, values: &[f32]| {
        let report = compared(vec![f32s(left, values)], vec![f32s(right, values)]);
        report.count(Status::Renamed)
    };
    assert_eq!(renamed("norm.bias", "state.exp_avg", &[0.0, 0.0]), 0);
    assert_eq!(renamed("norm.bias", "layer_norm.bias", &[0.0, 0.0]), 1);
    assert_eq!(renamed("norm.bias", "layer.beta", &[0.0, 1.0]), 1);
    assert_eq!(renamed("steps", "count", &[7.0]), 1);
}
