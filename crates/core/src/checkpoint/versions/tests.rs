use super::*;
use crate::checkpoint::{Rename, TensorEntry, TensorPath};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::{DType, Encoding, Shape};
use std::sync::Arc;

fn version(version: i64) -> Value {
    Value::Map(vec![(Name::from("version"), Value::I64(version))])
}

fn map(pairs: &[(&str, i64)]) -> Value {
    Value::Map(pairs.iter().map(|(name, n)| (Name::from(*name), version(*n))).collect())
}

fn checkpoint(names: &[&str], versions: &[(&str, i64)]) -> Checkpoint {
    let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4]));
    let entry = |name: &&str| {
        let path = TensorPath::from_dotted(name);
        TensorEntry::dense(path, DType::F32, Shape::from([1]), &source, 0, Encoding::ROW).unwrap()
    };
    let mut checkpoint = Checkpoint::new("torch", "state_dict", "m");
    checkpoint.tensors = names.iter().map(entry).collect();
    checkpoint.metadata.set(Metadata::MODULE_VERSIONS, map(versions));
    checkpoint
}

/// Returns the remaining modules with their versions, and the modules with a loss.
fn renamed(mut checkpoint: Checkpoint, rules: &[&str]) -> (Vec<(String, i64)>, Vec<String>) {
    let rules: Vec<Rename> = rules.iter().map(|rule| Rename::parse(rule).unwrap()).collect();
    let (_, losses) = checkpoint.rename_found(&rules, false).unwrap();
    (
        versions_at(&checkpoint, Metadata::MODULE_VERSIONS),
        losses.into_iter().map(|loss| loss.subject).collect(),
    )
}

fn versions_at(checkpoint: &Checkpoint, key: &str) -> Vec<(String, i64)> {
    let Some(Value::Map(pairs)) = checkpoint.metadata.get(key) else { return Vec::new() };
    let one = |(name, value): &(Name, Value)| match value {
        Value::Map(pairs) => match pairs.as_slice() {
            [(_, Value::I64(n))] => (name.to_text(), *n),
            _ => (name.to_text(), 0),
        },
        _ => unreachable!(),
    };
    pairs.iter().map(one).collect()
}

fn pairs(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

/// Stack of a linear layer, one without tensors, a norm, and a block of two.
fn stack() -> Checkpoint {
    checkpoint(
        &["0.weight", "0.bias", "2.weight", "2.count", "3.a.w", "3.b.w"],
        &[("", 1), ("0", 1), ("1", 7), ("2", 2), ("3", 1), ("3.a", 3), ("3.b", 4), ("3.c", 5)],
    )
}

#[test]
fn versions_follow_renamed_tensors() {
    let all = [
        ("net", 1),
        ("net.0", 1),
        ("net.1", 7),
        ("net.2", 2),
        ("net.3", 1),
        ("net.3.a", 3),
        ("net.3.b", 4),
        ("net.3.c", 5),
    ];
    assert_eq!(renamed(stack(), &["=net"]), (pairs(&all), Vec::new()));
    // A module without tensors follows the enclosing one.
    let one = [("", 1), ("0", 1), ("1", 7), ("2", 2), ("x.y", 1), ("x.y.a", 3), ("x.y.b", 4), ("x.y.c", 5)];
    assert_eq!(renamed(stack(), &["3=x.y"]), (pairs(&one), Vec::new()));
    let swapped = [("", 1), ("2", 1), ("1", 7), ("0", 2), ("3", 1), ("3.b", 3), ("3.a", 4), ("3.c", 5)];
    assert_eq!(renamed(stack(), &["0=2", "2=0", "3.a=3.b", "3.b=3.a"]), (pairs(&swapped), Vec::new()));
    let deeper = [("", 1), ("0", 1), ("1", 7), ("n.bn", 2), ("3", 1), ("3.a", 3), ("3.b", 4), ("3.c", 5)];
    assert_eq!(renamed(stack(), &["2=n.bn"]), (pairs(&deeper), Vec::new()));
    // A new name within a module does not rename the module.
    let (same, losses) = renamed(stack(), &["2.count=2.seen"]);
    assert_eq!((same, losses), (versions_at(&stack(), Metadata::MODULE_VERSIONS), Vec::new()));
}

#[test]
fn removed_levels_have_no_versions() {
    let wrapped = || checkpoint(&["m.a.w", "m.b"], &[("", 1), ("m", 2), ("m.a", 3), ("m.drop", 1)]);
    assert_eq!(renamed(wrapped(), &["m="]), (pairs(&[("", 2), ("a", 3), ("drop", 1)]), Vec::new()));
    // Unless a version of its own is lost.
    let mut own = wrapped();
    own.metadata.set(Metadata::MODULE_VERSIONS, map(&[("", 5), ("m", 2)]));
    let (left, losses) = renamed(own, &["m="]);
    assert_eq!((left, losses), (pairs(&[("", 2)]), vec!["the module at the root".to_owned()]));
}

#[test]
fn split_and_joined_modules_are_losses() {
    let one = || checkpoint(&["a.w", "a.b", "b.w"], &[("", 1), ("a", 2), ("b", 3)]);
    let (left, losses) = renamed(one(), &["a.w=c.w"]);
    assert_eq!((left, losses), (pairs(&[("", 1), ("a", 2), ("b", 3)]), vec!["module `a`".to_owned()]));
    let (left, losses) = renamed(one(), &["a.w=c.w", "a.b=d.b"]);
    assert_eq!((left, losses), (pairs(&[("", 1), ("b", 3)]), vec!["module `a`".to_owned()]));
    // Two modules that become one.
    let (left, losses) = renamed(one(), &["a.w=c.x", "a.b=c.y", "b.w=c.z"]);
    assert_eq!((left, losses), (pairs(&[("", 1), ("c", 2)]), vec!["module `c`".to_owned()]));
    // Default versions are not a loss.
    let mut usual = one();
    usual.metadata.set(Metadata::MODULE_VERSIONS, map(&[("", 1), ("a", 1), ("b", 1)]));
    assert_eq!(renamed(usual, &["a.w=c.w"]).1, Vec::<String>::new());
}

#[test]
fn modules_are_dropped_with_all_of_their_tensors() {
    let mut left = stack();
    let modules = Modules::of(&left).unwrap();
    left.tensors.retain(|tensor| tensor.text() == "2.count" || tensor.text() == "3.a.w");
    assert_eq!(modules.follow_left_out(&mut left), []);
    let kept = [("", 1), ("1", 7), ("2", 2), ("3", 1), ("3.a", 3), ("3.c", 5)];
    assert_eq!(versions_at(&left, Metadata::MODULE_VERSIONS), pairs(&kept));
}

#[test]
fn versions_of_nested_state_dicts_follow_and_are_joined() {
    let mut ck = checkpoint(&["model.0.w", "ema.0.w"], &[]);
    ck.metadata.remove(Metadata::MODULE_VERSIONS);
    ck.metadata.set("model._metadata", map(&[("", 1), ("0", 2)]));
    ck.metadata.set("ema._metadata", map(&[("", 1), ("0", 3)]));
    ck.metadata.set("other._metadata", Value::Text("x".into()));
    let mut losses = Vec::new();
    let all = map(&[("model", 1), ("model.0", 2), ("ema", 1), ("ema.0", 3)]);
    assert_eq!(ck.metadata.joined_versions(&mut losses), Some(all));
    ck.rename(&[Rename::parse("model=net.model").unwrap()]).unwrap();
    assert_eq!(versions_at(&ck, "net.model._metadata"), pairs(&[("", 1), ("0", 2)]));
    ck.rename(&[Rename::parse("net.model=").unwrap()]).unwrap();
    assert_eq!(versions_at(&ck, Metadata::MODULE_VERSIONS), pairs(&[("", 1), ("0", 2)]));
    assert_eq!(versions_at(&ck, "ema._metadata"), pairs(&[("", 1), ("0", 3)]));
    assert_eq!((losses, ck.notes.len()), (Vec::new(), 0));
    assert_eq!(ck.metadata.get("other._metadata"), Some(&Value::Text("x".into())));
}

#[test]
fn versions_of_the_file_replace_others() {
    let carried: Metadata =
        [("model._metadata".to_owned(), map(&[("0", 2)])), ("x".to_owned(), Value::Bool(true))]
            .into_iter()
            .collect();
    let own = |pairs| [(Metadata::MODULE_VERSIONS.to_owned(), map(pairs))].into_iter().collect::<Metadata>();
    let mut same = carried.clone();
    same.set_versions(own(&[("model.0", 2)]));
    assert_eq!(same, carried);
    let mut other = carried.clone();
    other.set_versions(own(&[("model.0", 3)]));
    assert_eq!(
        (other.get("model._metadata"), other.get(Metadata::MODULE_VERSIONS)),
        (None, Some(&map(&[("model.0", 3)])))
    );
    let mut none = carried;
    none.set_versions(Metadata::default());
    assert_eq!(none.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["x"]);
}

/// Long names for many modules are not built: their versions are dropped with a loss.
#[test]
fn the_bytes_of_new_names_are_limited() {
    let many: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let versions: Vec<(&str, i64)> = many.iter().map(|name| (name.as_str(), 1)).chain([("", 1)]).collect();
    let mut one = checkpoint(&["w"], &[&versions[..], &[("x", 2)]].concat());
    let long = "a".repeat(60_000);
    let (_, losses) = one.rename_found(&[Rename::new("", &long)], false).unwrap();
    assert_eq!((losses.len(), losses[0].subject.as_str()), (1, Metadata::MODULE_VERSIONS));
    assert_eq!(one.metadata.get(Metadata::MODULE_VERSIONS), None);
    let mut nested = checkpoint(&[], &[]);
    nested.metadata.set(format!("{long}._metadata"), map(&versions));
    let mut losses = Vec::new();
    nested.metadata.joined_versions(&mut losses);
    assert_eq!(losses.len(), 1);
    // Names of many parts take linear time.
    let deep = "a.".repeat(30_000);
    let deep: Vec<String> = (1..=30_000).step_by(100).map(|n| deep[..2 * n - 1].to_owned()).collect();
    let versions: Vec<(&str, i64)> = deep.iter().map(|name| (name.as_str(), 1)).collect();
    let mut deep = checkpoint(&[deep.last().unwrap()], &versions);
    assert_eq!(deep.rename_found(&[Rename::parse("a=b").unwrap()], false).unwrap().1, []);
    assert!(versions_at(&deep, Metadata::MODULE_VERSIONS)[0].0.starts_with('b'));
}

#[test]
fn losses_beyond_the_limit_are_counted() {
    let names: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    let tensors: Vec<String> = names.iter().flat_map(|n| [format!("{n}.w"), format!("{n}.b")]).collect();
    let versions: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 2)).collect();
    let mut split = checkpoint(&tensors.iter().map(String::as_str).collect::<Vec<_>>(), &versions);
    let rules: Vec<Rename> =
        names.iter().map(|n| Rename::new(&format!("{n}.w"), &format!("x{n}.w"))).collect();
    let (_, losses) = split.rename_found(&rules, false).unwrap();
    assert_eq!((losses.len(), losses[100].subject.as_str()), (101, "150 more modules"));
}

#[test]
fn a_module_may_have_the_name_of_a_tensor() {
    let before = || checkpoint(&["a.b", "a.b.w", "a.c"], &[("a", 2), ("a.b", 3)]);
    let all = [
        (&["a.b.w=z.w"][..], &[("a", 2), ("z", 3)][..]),
        (&["a.b=z"], &[("a", 2), ("z", 3)]),
        (&["a=z"], &[("z", 2), ("z.b", 3)]),
    ];
    for (rules, left) in all {
        assert_eq!(renamed(before(), rules).0, pairs(left), "{rules:?}");
    }
}
