//! Several checkpoints as one: the shards of one model, or models that have nothing in common, or something.

use super::{ConvertOptions, plan_checkpoint};
use crate::checkpoint::{
    Checkpoint, Loss, Modules, Name, Note, TensorEntry, TensorPath, attach_state_among, escape_text,
    join_versions,
};
use crate::engine::LocalSink;
use crate::error::{Error, Result};
use crate::formats;
use crate::plan::WritePlan;
use crate::text::counted;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

mod choose;
mod lists;
mod variables;

use choose::choose;

/// What happens where two checkpoints have a tensor of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Same {
    /// An error that names both.
    #[default]
    Refuse,
    /// That of the one named first is taken.
    First,
    /// That of the one named last is taken.
    Last,
    /// Cannot be: everything goes below the name of its file.
    Prefix,
}

/// Checkpoints that were joined, and the plan for it.
#[derive(Debug)]
pub struct PreparedMerge {
    /// What is written.
    pub plan: WritePlan,
    /// The joined index.
    pub checkpoint: Checkpoint,
    /// What was odd about the sources, and what was left out of them.
    pub notes: Vec<Note>,
}

/// Opens `sources` and plans them as one checkpoint at `target`. A folder of shards is one source, and so are all
/// shards of a list together: it is read in their place, unless each goes below its own name. The format is told from
/// the target's extension, unless the options say it.
///
/// # Errors
/// What opening and planning say; as [`join`].
pub fn merge(
    sources: &[PathBuf],
    target: &Path,
    same: Same,
    options: &ConvertOptions,
) -> Result<PreparedMerge> {
    LocalSink::check(target, options.force)?;
    let named = sources;
    let (sources, mut notes) = match same {
        // Each below its own name.
        Same::Prefix => (sources.to_vec(), Vec::new()),
        _ => lists::gather(sources, &options.open.limits),
    };
    let open = |path: &PathBuf| {
        if options.run.watch.stopped() {
            return Err(Error::cancelled());
        }
        formats::open_with(path, &options.open).map_err(|error| match named.contains(path) {
            true => error,
            false => error.hint("this list stands beside the files that were named, and is read in their place: move it away to merge them alone"),
        })
    };
    let opened = sources.iter().map(open).collect::<Result<Vec<_>>>()?;
    let (format, kind) = super::convert::target_form(target, options)?;
    let (checkpoint, losses) = join(opened, same)?;
    notes.extend(checkpoint.notes.iter().cloned());
    let undenied = ConvertOptions { deny_loss: false, ..options.clone() };
    let mut plan = plan_checkpoint(checkpoint.clone(), format, kind, &undenied)?;
    plan.losses.extend(losses);
    if options.deny_loss && !plan.losses.is_empty() {
        return Err(super::convert::denied(&plan.losses));
    }
    LocalSink::check_plan(&plan, target, options.force)?;
    Ok(PreparedMerge { plan, checkpoint, notes })
}

/// Joins checkpoints: their tensors one after the other, the metadata of all. State stays with the parameter
/// that it was trained with, which it knows by its path or by its name as a variable: where of two parameters one
/// is taken, the state of the other is left out too. State that stands in a file of its own belongs to the
/// parameter of that name, and has that one's path from then on; where there are several, nobody knows which one. State under
/// a path of its own, as in checkpoints of PyTorch, goes with the parameter that it says it is about; where it says none, with
/// all of its file.
/// Returns what is lost: metadata of one key that say different things, of which the first is kept (with
/// [`Same::Last`] the last), programs, and names of variables that two parameters have.
///
/// # Errors
/// [`crate::Kind::Usage`], `nothing-to-merge` without a source, `same-prefix` where two sources have one name;
/// [`crate::Kind::Mismatch`]: `name-collision`, with both files; `state-of-which` where state could belong to
/// parameters of several files, or to some that are taken as well as to some that are not.
pub fn join(mut sources: Vec<Checkpoint>, same: Same) -> Result<(Checkpoint, Vec<Loss>)> {
    let mut unfollowed = Vec::new();
    if same == Same::Prefix {
        put_below(&mut sources, &mut unfollowed)?;
    }
    let Some(first) = sources.first() else {
        return Err(Error::usage("nothing-to-merge", "no file is named that could be merged"));
    };
    let mut joined = Checkpoint::new(first.format, first.kind, first.label.clone());
    if sources.len() > 1 {
        let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
        joined.label = labels.join(" + ");
    }
    if sources.iter().any(|source| source.format != first.format) {
        // Of none of them: no form is written as the source was.
        (joined.format, joined.kind) = ("merged", "merged");
    }
    if sources.iter().all(|source| source.origin == first.origin) {
        joined.origin.clone_from(&first.origin);
    }
    // What is missing of a damaged source is missing in what is made of it.
    let mut losses: Vec<Loss> = sources
        .iter()
        .filter_map(|source| source.damage.as_ref())
        .flat_map(|damage| damage.losses())
        .chain(unfollowed)
        .collect();
    let only_one = sources.len() == 1;
    // It has the name of its parameter, whichever file that one stands in.
    attach_state_among(&mut sources);
    let taken = choose(&sources, same)?;
    for (source, kept) in sources.iter_mut().zip(&taken) {
        let (mut left_out, mut first_out) = (0u64, None);
        let mut kept = kept.iter();
        let modules = Modules::of(source);
        source.tensors.retain(|tensor| {
            let keep = kept.next().copied().unwrap_or(true);
            if !keep {
                left_out += 1;
                first_out.get_or_insert_with(|| tensor.text());
            }
            keep
        });
        if let Some(modules) = modules {
            losses.extend(modules.follow_left_out(source)?);
        }
        // As long as it is alone: another file may have a tensor of that name.
        let settled = source.settle_aliases();
        source.notes.extend(settled);
        if let Some(name) = first_out {
            let text = format!(
                "{}: {}, first {name}",
                source.label,
                counted(
                    left_out,
                    "tensor gives way to another of its name, or is state of one that does",
                    "tensors give way to others of their name, or are state of one that does"
                )
            );
            joined.notes.push(Note::new("gave-way", text));
        }
        let own = source.notes.iter().map(|note| match only_one {
            true => note.clone(),
            false => Note { text: format!("{}: {}", source.label, note.text), ..note.clone() },
        });
        joined.notes.extend(own);
    }
    variables::keep_apart(&mut sources, &mut losses)?;
    joined.tensors = sources.iter_mut().flat_map(|source| std::mem::take(&mut source.tensors)).collect();
    join_metadata(&sources, same, &mut joined, &mut losses);
    join_rest(&sources, &mut joined, &mut losses);
    Ok((joined, losses))
}

fn collision(tensor: &TensorEntry, one: &Checkpoint, other: &Checkpoint) -> Error {
    Error::mismatch("name-collision", "two of the files have a tensor of the same name")
        .on_tensor(tensor.name())
        .found(format_args!("it in {} and in {}", escape_text(&one.label), escape_text(&other.label)))
        .hint("--prefer first or last takes one of them, --prefix-each keeps both below the names of their files")
}

/// Puts every source below the name of its file, without what follows the first dot.
fn put_below(sources: &mut [Checkpoint], losses: &mut Vec<Loss>) -> Result<()> {
    let programs = sources.iter().filter(|source| source.topology.is_some()).count();
    let mut known: HashMap<String, String> = HashMap::new();
    for source in sources {
        let name = Path::new(&source.label).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.as_deref().and_then(|name| name.split('.').next()).unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Error::usage("same-prefix", "this source has no name that could be a prefix")
                .in_file(&source.label)
                .hint("name the file or folder itself"));
        }
        if let Some(other) = known.insert(name.clone(), source.label.clone()) {
            return Err(Error::usage("same-prefix", "two of the sources have the same name")
                .in_file(&source.label)
                .found(format_args!("{name}, as {other}")));
        }
        let below = |tensor: &TensorEntry| {
            let parts = std::iter::once(Name::from(name.as_str())).chain(tensor.path.parts().iter().cloned());
            Some(TensorPath::new(parts.collect::<Vec<_>>()))
        };
        let paths = source.tensors.iter().map(below).collect();
        let modules = Modules::of(source);
        source.set_paths(paths)?;
        if let Some(modules) = modules {
            losses.extend(modules.follow_renamed(source)?);
        }
        // The only program of all stays, and knows its variables by the names that they have.
        if programs != 1 || source.topology.is_none() {
            variables::put_below(source, &name);
        }
    }
    Ok(())
}

/// The metadata of all, where two say different things with a loss.
fn join_metadata(sources: &[Checkpoint], same: Same, joined: &mut Checkpoint, losses: &mut Vec<Loss>) {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    for source in sources {
        for (key, value) in source.metadata.iter() {
            let Some(known) = joined.metadata.get(key) else {
                joined.metadata.set(key, value.clone());
                owners.insert(key, &source.label);
                continue;
            };
            if known == value {
                continue;
            }
            let other = owners.get(key).copied().unwrap_or_default();
            let (kept, lost) = match same {
                Same::Last => (source.label.as_str(), other),
                _ => (other, source.label.as_str()),
            };
            let detail = format!(
                "{other} and {} say different things; that of {kept} is kept, not that of {lost}",
                source.label
            );
            let pair = if same == Same::Last { (value, known) } else { (known, value) };
            if let Some((versions, differ)) = join_versions(key, pair.0, pair.1) {
                let loss = |module: &String| {
                    Loss::new("metadata-conflict", format!("{}: {module}", escape_text(key)), detail.as_str())
                };
                losses.extend(differ.iter().map(loss));
                joined.metadata.set(key, versions);
                continue;
            }
            losses.push(Loss::new("metadata-conflict", escape_text(key), detail));
            if same == Same::Last {
                joined.metadata.set(key, value.clone());
                owners.insert(key, &source.label);
            }
        }
    }
}

/// Programs and files beside the tensors.
fn join_rest(sources: &[Checkpoint], joined: &mut Checkpoint, losses: &mut Vec<Loss>) {
    let mut programs = sources.iter().filter(|source| source.topology.is_some());
    if let (Some(one), None) = (programs.next(), programs.next()) {
        joined.topology.clone_from(&one.topology);
    } else if sources.iter().any(|source| source.topology.is_some()) {
        let detail = "several of the files have one, and they cannot be joined";
        losses.push(Loss::new("program", "the program", detail));
    }
    let mut names: HashSet<&str> = HashSet::new();
    for source in sources {
        for (name, content) in &source.companions {
            if names.insert(name) {
                joined.companions.push((name.clone(), content.clone()));
            } else {
                let detail = format!("that of {} gives way to one of the same name", source.label);
                losses.push(Loss::new("companion", escape_text(name), detail));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{ALIAS_OF, Role, StateOf, VARIABLE_NAME, Value};
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};
    use std::sync::Arc;

    fn checkpoint(label: &str, names: &[(&str, Option<&str>)]) -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new(label, vec![0; 4]));
        let entry = |(name, slot): &(&str, Option<&str>)| {
            let path = TensorPath::from_dotted(name);
            let mut entry =
                TensorEntry::dense(path, DType::F32, Shape::from([1]), &source, 0, Encoding::ROW).unwrap();
            if let Some(slot) = slot {
                entry.role = Role::OptimizerState { slot: Name::from(*slot) };
            }
            entry
        };
        let mut checkpoint = Checkpoint::new("safetensors", "single", label);
        checkpoint.tensors = names.iter().map(entry).collect();
        checkpoint
    }

    /// Each tensor with the file that it comes from.
    fn told(checkpoint: &Checkpoint) -> Vec<String> {
        let one = |t: &TensorEntry| format!("{} {}", t.text(), t.pieces[0].source.label());
        checkpoint.tensors.iter().map(one).collect()
    }

    fn two() -> Vec<Checkpoint> {
        vec![
            checkpoint("a.safetensors", &[("w", None), ("w", Some("m")), ("x", None)]),
            checkpoint("b.safetensors", &[("w", None), ("w", Some("m")), ("w", Some("v")), ("y", None)]),
        ]
    }

    #[test]
    fn collisions_name_both_files() {
        let error = join(two(), Same::Refuse).unwrap_err();
        assert_eq!((error.code(), error.tensor()), ("name-collision", Some("w")));
        assert_eq!(error.found_text(), Some("it in a.safetensors and in b.safetensors"));
        assert_eq!(join(Vec::new(), Same::Refuse).unwrap_err().code(), "nothing-to-merge");
    }

    #[test]
    fn state_stays_with_the_parameter_it_was_trained_with() {
        let (joined, _) = join(two(), Same::First).unwrap();
        assert_eq!(
            told(&joined),
            ["w a.safetensors", "w/m a.safetensors", "x a.safetensors", "y b.safetensors"]
        );
        assert!(joined.notes.iter().any(|n| n.code == "gave-way" && n.text.contains("3 tensors")));
        let (joined, _) = join(two(), Same::Last).unwrap();
        assert_eq!(
            told(&joined),
            [
                "x a.safetensors",
                "w b.safetensors",
                "w/m b.safetensors",
                "w/v b.safetensors",
                "y b.safetensors"
            ]
        );
        // Parameters in one file and their state in another are no collision.
        let apart = vec![checkpoint("p", &[("w", None)]), checkpoint("o", &[("w", Some("m"))])];
        assert_eq!(told(&join(apart, Same::Refuse).unwrap().0), ["w p", "w/m o"]);
    }

    /// A parameter of that path, and its name as a variable.
    fn with_variable(label: &str, path: &str, variable: &str) -> Checkpoint {
        let mut one = checkpoint(label, &[(path, None)]);
        one.tensors[0].attributes.insert(VARIABLE_NAME.into(), Value::Text(variable.into()));
        one
    }

    #[test]
    fn state_of_its_own_file_is_not_joined_with_any_parameter() {
        let base = || with_variable("p", "weight", "linear_0.w_0");
        let state = || checkpoint("o", &[("linear_0.w_0", Some("m"))]);
        let tuned = || with_variable("t", "weight", "linear_0.w_0");
        // One parameter of that name: no question.
        assert_eq!(told(&join(vec![base(), state()], Same::Last).unwrap().0), ["weight p", "weight/m o"]);
        // The same state once more, by the name of its parameter.
        let mut whole = checkpoint("w", &[("weight", Some("m"))]);
        whole.tensors.extend(base().tensors);
        let error = join(vec![whole, state()], Same::Refuse).unwrap_err();
        assert_eq!((error.code(), error.tensor()), ("name-collision", Some("weight/m")));
        for same in [Same::First, Same::Last] {
            for sources in [
                vec![base(), state(), tuned()],
                // Also by paths alone, and where only one knows the variable.
                vec![
                    checkpoint("p", &[("linear_0.w_0", None)]),
                    state(),
                    checkpoint("t", &[("linear_0.w_0", None)]),
                ],
                vec![base(), state(), checkpoint("t", &[("weight", None)])],
            ] {
                let error = join(sources, same).unwrap_err();
                assert_eq!((error.code(), error.file()), ("state-of-which", Some("o")));
            }
        }
        // In the file of its parameter it is known by the variable.
        let mut whole = base();
        whole.tensors.extend(state().tensors);
        let (joined, _) = join(vec![whole.clone(), tuned()], Same::Last).unwrap();
        assert_eq!(told(&joined), ["weight t"]);
        let (joined, _) = join(vec![whole, tuned()], Same::First).unwrap();
        assert_eq!(told(&joined), ["weight p", "weight/m o"]);
    }

    /// State under paths of its own, each about a parameter, or about none that is known.
    fn with_parts(label: &str, parameters: &[&str], parts: &[(&str, Option<&str>)]) -> Checkpoint {
        let plain: Vec<_> =
            parameters.iter().chain(parts.iter().map(|(name, _)| name)).map(|n| (*n, None)).collect();
        let mut one = checkpoint(label, &plain);
        for (tensor, (_, of)) in one.tensors[parameters.len()..].iter_mut().zip(parts) {
            let of = of.map(|name| Box::new(StateOf { name: name.to_owned(), guessed: true }));
            tensor.role = Role::OptimizerPart { of };
        }
        one
    }

    #[test]
    fn state_of_pytorch_goes_with_its_parameter() {
        let plain = || checkpoint("a", &[("w", None), ("x", None)]);
        let known =
            |label| with_parts(label, &["w", "x"], &[("o.state.0.m", Some("w")), ("o.state.1.m", Some("x"))]);
        let whole = ["w b", "x b", "o.state.0.m b", "o.state.1.m b"];
        assert_eq!(told(&join(vec![plain(), known("b")], Same::First).unwrap().0), ["w a", "x a"]);
        let (joined, _) = join(vec![plain(), known("b")], Same::Last).unwrap();
        assert_eq!(told(&joined), whole);
        assert_eq!(joined.tensors[3].role.state_of().map(|of| of.name.as_str()), Some("x"));
        assert_eq!(told(&join(vec![known("a"), known("b")], Same::Last).unwrap().0), whole);
        // Of each parameter its own.
        let (joined, _) = join(vec![checkpoint("a", &[("w", None)]), known("b")], Same::First).unwrap();
        assert_eq!(told(&joined), ["w a", "x b", "o.state.1.m b"]);
        // One number is one parameter: all that stands under it comes from one file.
        let other = || with_parts("c", &["y"], &[("o.state.1.m", Some("y")), ("o.state.1.v", Some("y"))]);
        let (joined, _) = join(vec![known("b"), other()], Same::First).unwrap();
        assert_eq!(told(&joined), ["w b", "x b", "o.state.0.m b", "o.state.1.m b", "y c"]);
        let (joined, _) = join(vec![known("b"), other()], Same::Last).unwrap();
        assert_eq!(told(&joined), ["w b", "x b", "o.state.0.m b", "y c", "o.state.1.m c", "o.state.1.v c"]);
    }

    #[test]
    fn state_of_which_nobody_knows_the_parameter_goes_with_all_of_its_file() {
        let unknown = || with_parts("b", &["w", "x"], &[("o.m", None)]);
        let all = || checkpoint("a", &[("w", None), ("x", None)]);
        let some = || checkpoint("a", &[("w", None)]);
        assert_eq!(told(&join(vec![all(), unknown()], Same::First).unwrap().0), ["w a", "x a"]);
        assert_eq!(told(&join(vec![all(), unknown()], Same::Last).unwrap().0), ["w b", "x b", "o.m b"]);
        assert_eq!(told(&join(vec![some(), unknown()], Same::Last).unwrap().0), ["w b", "x b", "o.m b"]);
        let error = join(vec![some(), unknown()], Same::First).unwrap_err();
        assert_eq!((error.code(), error.file(), error.tensor()), ("state-of-which", Some("b"), Some("o.m")));
        // In a file of its own: about the one model that there is.
        let alone = || with_parts("o", &[], &[("o.m", None)]);
        assert_eq!(told(&join(vec![some(), alone()], Same::First).unwrap().0), ["w a", "o.m o"]);
        let error = join(vec![some(), alone(), checkpoint("t", &[("w", None)])], Same::First).unwrap_err();
        assert_eq!((error.code(), error.file()), ("state-of-which", Some("o")));
    }

    #[test]
    fn state_is_not_mixed() {
        let both = || {
            vec![
                checkpoint("a", &[("w", Some("m")), ("w", Some("v")), ("x", Some("v"))]),
                checkpoint("b", &[("w", Some("m")), ("x", Some("m"))]),
            ]
        };
        assert_eq!(told(&join(both(), Same::Last).unwrap().0), ["x/v a", "w/m b", "x/m b"]);
        assert_eq!(told(&join(both(), Same::First).unwrap().0), ["w/m a", "w/v a", "x/v a", "x/m b"]);
    }

    #[test]
    fn variables_are_kept_apart() {
        let two = || vec![with_variable("x", "a", "w_0"), with_variable("y", "b", "w_0")];
        let variables = |joined: &Checkpoint| -> Vec<Option<String>> {
            joined.tensors.iter().map(|t| t.text_attribute(VARIABLE_NAME).map(str::to_owned)).collect()
        };
        let (joined, losses) = join(two(), Same::Prefix).unwrap();
        assert_eq!(variables(&joined), [Some("x.w_0".to_owned()), Some("y.w_0".to_owned())]);
        assert!(losses.is_empty());
        let (joined, losses) = join(two(), Same::Refuse).unwrap();
        assert_eq!(variables(&joined), [Some("w_0".to_owned()), None]);
        assert_eq!((losses[0].code, losses[0].subject.as_str()), ("variable-name", "w_0"));
        let mut with_state = two();
        with_state[1].tensors.extend(checkpoint("y", &[("w_0", Some("m"))]).tensors);
        assert_eq!(join(with_state, Same::Refuse).unwrap_err().code(), "state-of-which");
    }

    #[test]
    fn shared_bytes_are_those_of_the_same_file() {
        let tied = |label: &str| {
            let mut one = checkpoint(label, &[("emb", None), ("head", None)]);
            one.tensors[1].attributes.insert(ALIAS_OF.into(), Value::Text("emb".into()));
            one
        };
        let aliases = |joined: &Checkpoint| -> Vec<Option<String>> {
            joined.tensors.iter().map(|t| t.text_attribute(ALIAS_OF).map(str::to_owned)).collect()
        };
        let (joined, _) = join(vec![tied("a"), checkpoint("b", &[("emb", None)])], Same::Last).unwrap();
        assert_eq!(
            (told(&joined), aliases(&joined)),
            (vec!["head a".into(), "emb b".into()], vec![None, None])
        );
        let (joined, _) = join(vec![tied("a"), checkpoint("b", &[("emb", None)])], Same::First).unwrap();
        assert_eq!(aliases(&joined), [None, Some("emb".to_owned())]);
    }

    #[test]
    fn each_below_its_own_name() {
        let (joined, _) = join(two(), Same::Prefix).unwrap();
        let names: Vec<String> = joined.tensors.iter().map(TensorEntry::text).collect();
        assert_eq!(names, ["a.w", "a.w/m", "a.x", "b.w", "b.w/m", "b.w/v", "b.y"]);
        let twins = vec![checkpoint("x/a.npz", &[]), checkpoint("y/a.safetensors", &[])];
        assert_eq!(join(twins, Same::Prefix).unwrap_err().code(), "same-prefix");
    }

    #[test]
    fn metadata_that_contradict_are_a_loss() {
        let mut sources = vec![checkpoint("a", &[("x", None)]), checkpoint("b", &[("y", None)])];
        for (source, step) in sources.iter_mut().zip(["1", "2"]) {
            source.metadata.set("format", Value::Text("pt".into()));
            source.metadata.set("step", Value::Text(step.into()));
        }
        for (same, kept) in [(Same::Refuse, "1"), (Same::Last, "2")] {
            let (joined, losses) = join(sources.clone(), same).unwrap();
            assert_eq!(losses.len(), 1);
            assert_eq!((losses[0].code, losses[0].subject.as_str()), ("metadata-conflict", "step"));
            assert!(losses[0].detail.contains("a and b"), "{}", losses[0].detail);
            assert_eq!(joined.metadata.get("step"), Some(&Value::Text(kept.into())));
        }
    }

    #[test]
    fn versions_of_modules_are_joined_module_by_module() {
        let versions = |pairs: &[(&str, i64)]| {
            let version = |n: i64| Value::Map(vec![("version".into(), Value::I64(n))]);
            Value::Map(pairs.iter().map(|(name, n)| (Name::from(*name), version(*n))).collect())
        };
        let two = || {
            let mut two = vec![checkpoint("a", &[("x.w", None)]), checkpoint("b", &[("y.w", None)])];
            two[0].metadata.set("_metadata", versions(&[("", 1), ("x", 2)]));
            two[1].metadata.set("_metadata", versions(&[("", 3), ("y", 4)]));
            two
        };
        for (same, wanted) in [
            (Same::Refuse, versions(&[("", 1), ("x", 2), ("y", 4)])),
            (Same::Last, versions(&[("", 3), ("y", 4), ("x", 2)])),
        ] {
            let (joined, losses) = join(two(), same).unwrap();
            assert_eq!(joined.metadata.get("_metadata"), Some(&wanted));
            let told: Vec<_> = losses.iter().map(|loss| (loss.code, loss.subject.as_str())).collect();
            assert_eq!(told, [("metadata-conflict", "_metadata: the module at the root")]);
        }
        let (joined, losses) = join(two(), Same::Prefix).unwrap();
        let wanted = versions(&[("a", 1), ("a.x", 2), ("b", 3), ("b.y", 4)]);
        assert_eq!((joined.metadata.get("_metadata"), losses.len()), (Some(&wanted), 0));
        // Those of a module whose tensors give way go with them.
        let mut twice = two();
        twice[1].tensors[0].path = TensorPath::from_dotted("x.w");
        twice[1].metadata.set("_metadata", versions(&[("", 1), ("x", 5)]));
        let (joined, losses) = join(twice, Same::Last).unwrap();
        assert_eq!(
            (joined.metadata.get("_metadata"), losses.len()),
            (Some(&versions(&[("", 1), ("x", 5)])), 0)
        );
    }
}
