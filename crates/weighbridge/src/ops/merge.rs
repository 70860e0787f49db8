//! Merge of several checkpoints into one: shards of one model, or models with or without common names.

use super::{ConvertOptions, Inputs, plan_checkpoint};
use crate::checkpoint::{
    Checkpoint, Loss, Metadata, Modules, Name, Note, TensorEntry, TensorPath, escape_text,
};
use crate::engine::LocalSink;
use crate::error::{Error, Result};
use crate::formats::{self, torch};
use crate::plan::WritePlan;
use crate::text::{counted, first_and_more, path_text};
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use weighbridge_core::phrase::Opt;
use weighbridge_core::{LossCode, phrase};

mod choose;
mod lists;
mod variables;

use choose::choose;
use lists::Gathered;

/// Maximum number of tensors that a note names.
const MAX_NAMED: usize = 5;

/// Resolution of tensors with the same name in two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Same {
    /// An error that names both files.
    #[default]
    Refuse,
    /// The tensor of the first source is kept.
    First,
    /// The tensor of the last source is kept.
    Last,
    /// Names cannot collide: each tensor is prefixed with the name of its file.
    Prefix,
}

/// Planned merge.
#[derive(Debug)]
pub struct PreparedMerge {
    /// The write plan.
    pub plan: WritePlan,
    /// The displayed names of the merged tensors, not escaped, in order.
    pub names: Vec<String>,
    /// Notes on the sources, and on dropped data.
    pub notes: Vec<Note>,
}

impl PreparedMerge {
    /// Returns the document of the written or planned merge: `bytes` of all files, `done` where it was written.
    pub fn to_json(&self, sources: &[PathBuf], target: &Path, done: bool, bytes: u64) -> Json {
        json!({
            "path": path_text(target), "done": done, "format": self.plan.format, "kind": self.plan.kind,
            "bytes": bytes, "sources": sources.iter().map(|own| path_text(own)).collect::<Vec<_>>(),
            "tensors": self.names,
            "losses": self.plan.losses.iter().map(Loss::to_json).collect::<Json>(),
            "notes": self.notes.iter().map(Note::to_json).collect::<Json>(),
        })
    }
}

/// Opens `sources` and plans them as one checkpoint at `target`.
///
/// A folder of shards is one source. All shards of an index together are one source, too: the index is read in their place,
/// unless each gets a prefix of its own. The format is that of the target's extension, unless the options set it.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// # let folder = tempfile::tempdir().unwrap();
/// # let (weights, biases) = (folder.path().join("w.npz"), folder.path().join("b.npz"));
/// # let target = folder.path().join("xor.safetensors");
/// use weighbridge::ops::ConvertOptions;
/// use weighbridge::ops::merge::{Same, merge};
///
/// let model = weighbridge::open(&path)?;
/// model.convert(&weights).select("w*").run()?;
/// model.convert(&biases).drop("w*").run()?;
///
/// let prepared = merge(&[weights, biases], &target, Same::Refuse, &ConvertOptions::default())?;
/// assert_eq!(prepared.names.len(), model.len());
/// weighbridge::ops::save(&prepared.plan, &target, false, &Default::default())?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Errors of opening and planning; as [`join`]; `output-is-input` where the target is one of several input files.
pub fn merge(
    sources: &[PathBuf],
    target: &Path,
    same: Same,
    options: &ConvertOptions,
) -> Result<PreparedMerge> {
    LocalSink::check(target, options.force)?;
    let named = sources;
    let Gathered { sources, mut notes, absent } = match same {
        // Each source gets a prefix of its own.
        Same::Prefix => Gathered { sources: sources.to_vec(), ..Gathered::default() },
        _ => lists::gather(sources, &options.open.limits),
    };
    let open = |path: &PathBuf| {
        if options.run.progress.stopped() {
            return Err(Error::cancelled());
        }
        formats::open_with(path, &options.open).map_err(|error| {
            let error = match named.contains(path) {
                true => error,
                false => error.hint("this index beside the given files is read in their place; move it away to merge only the files"),
            };
            formats::registry().offer_salvage(error, path, &options.open)
        })
    };
    let opened = sources.iter().map(open).collect::<Result<Vec<_>>>()?;
    let inputs = opened.iter().map(|one| Inputs::of(one, target).and_named(&options.open));
    let inputs = inputs.collect::<Result<Vec<Inputs>>>()?;
    let (format, kind) = super::convert::target_form(target, options)?;
    let objects: Vec<String> =
        opened.iter().filter(|one| torch::was_object(one)).map(|one| one.label.clone()).collect();
    let (checkpoint, losses) = join(opened, same)?;
    notes.extend(checkpoint.notes.iter().cloned());
    let names: Vec<String> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
    let undenied = ConvertOptions { deny_loss: false, ..options.clone() };
    let mut plan = plan_checkpoint(checkpoint, format, kind, &undenied)?;
    plan.losses.extend(losses);
    plan.losses.extend(of_absent_shards(&absent, &names));
    of_each(&mut plan, &objects);
    if options.deny_loss && !plan.losses.is_empty() {
        return Err(super::convert::denied(&plan.losses));
    }
    for (source, inputs) in sources.iter().zip(&inputs) {
        inputs.check(source, target, &plan)?;
    }
    LocalSink::check_plan(&plan, target, options.force)?;
    Ok(PreparedMerge { plan, names, notes })
}

/// Returns the losses for tensors of shards that are not given, unless another source has them.
fn of_absent_shards(absent: &[(String, String)], names: &[String]) -> Vec<Loss> {
    let known: HashSet<&str> = match absent.is_empty() {
        true => HashSet::new(),
        false => names.iter().map(String::as_str).collect(),
    };
    let lost = absent.iter().filter(|(name, _)| !known.contains(name.as_str()));
    lost.map(|(name, shard)| {
        let detail = format!("its shard {} is not given", escape_text(shard));
        Loss::new(LossCode::TensorSkipped, escape_text(name), detail)
    })
    .collect()
}

/// Reports the lost structure of torch objects for each source that had one: the plan has a single loss for the merged index.
fn of_each(plan: &mut WritePlan, objects: &[String]) {
    let is_structure = |loss: &Loss| loss.code == LossCode::StructureDropped && plan.format == "torch";
    let Some(place) = plan.losses.iter().position(is_structure).filter(|_| !objects.is_empty()) else {
        return;
    };
    let found = plan.losses.remove(place);
    let each: Vec<Loss> =
        objects.iter().map(|label| Loss { subject: label.clone(), ..found.clone() }).collect();
    plan.losses.splice(place..place, each);
}

/// Joins checkpoints: their tensors one after the other, and the metadata of all.
///
/// Optimizer state stays with the parameter that it was trained with, by path or by variable name. Where one of two parameters
/// is kept, the state of the other is dropped, too. State in a file of its own belongs to the parameter of that name and gets
/// its path; several such parameters are an error. State with a path of its own, as in checkpoints of PyTorch, follows the
/// parameter that it refers to, or otherwise all parameters of its file.
///
/// Returns the losses: metadata of one key with different values, where the first is kept (with [`Same::Last`] the last),
/// programs, and variable names that two parameters share.
///
/// # Errors
/// [`crate::Kind::Usage`], `nothing-to-merge` without a source, `same-prefix` where two sources have one name;
/// [`crate::Kind::Mismatch`]: `name-collision`, with both files; `state-of-which` where state could belong to parameters of
/// several files, or to kept as well as dropped ones.
pub fn join(mut sources: Vec<Checkpoint>, same: Same) -> Result<(Checkpoint, Vec<Loss>)> {
    let mut unfollowed = Vec::new();
    if same == Same::Prefix {
        put_below(&mut sources, &mut unfollowed)?;
    }
    let Some(first) = sources.first() else {
        return Err(Error::usage("nothing-to-merge", "no files to merge"));
    };
    let mut joined = Checkpoint::new(first.format, first.kind, first.label.clone());
    if sources.len() > 1 {
        let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
        joined.label = labels.join(" + ");
    }
    if sources.iter().any(|source| source.format != first.format) {
        // The merged index has the form of no source, so none is preserved.
        (joined.format, joined.kind) = ("merged", "merged");
    }
    if sources.iter().all(|source| source.origin == first.origin) {
        joined.origin.clone_from(&first.origin);
    }
    // The structure of any source is lost in the merged index.
    if sources.iter().any(torch::was_object) {
        torch::mark_object(&mut joined);
    }
    // Tensors missing in a damaged source are missing in the result.
    let mut losses = unfollowed;
    // A tensor that another file gives is not missing.
    let given: HashSet<String> = match sources.iter().any(|source| source.damage.is_some()) {
        true => {
            sources.iter().flat_map(|source| &source.tensors).map(|one| escape_text(&one.text())).collect()
        }
        false => HashSet::new(),
    };
    for source in &mut sources {
        let intact = source.tensors.len();
        if let Some(damage) = &mut source.damage {
            let mut replaced = Vec::new();
            damage.keep_lost([intact, intact], |name| {
                let is_given = given.contains(name);
                if is_given {
                    replaced.push(name.to_owned());
                }
                !is_given
            });
            if !replaced.is_empty() {
                let names = first_and_more(&replaced, MAX_NAMED);
                let text = format!("{}: lost tensors are taken from the other files: {names}", source.label);
                joined.notes.push(Note::new("gave-way", text));
            }
            losses.extend(damage.losses(intact));
        }
    }
    let only_one = sources.len() == 1;
    let labels: Vec<String> = sources.iter().map(|source| source.label.clone()).collect();
    // State has the name of its parameter, in whichever file that is.
    Checkpoint::attach_state_among(&mut sources);
    let taken = choose(&sources, same)?;
    for (source, kept) in sources.iter_mut().zip(&taken) {
        let (mut dropped, mut first_dropped, mut state) = (0u64, None, 0u64);
        let mut kept = kept.iter();
        let modules = Modules::of(source);
        source.tensors.retain(|tensor| {
            let keep = kept.next().copied().unwrap_or(true);
            if !keep {
                if tensor.role.is_state() {
                    state += 1;
                } else {
                    dropped += 1;
                    first_dropped.get_or_insert_with(|| tensor.text());
                }
            }
            keep
        });
        if let Some(modules) = modules {
            losses.extend(modules.follow_left_out(source));
        }
        // Before the join: another file may have a tensor of that name.
        let settled = source.settle_aliases();
        source.notes.extend(settled);
        if dropped + state > 0 {
            let other = match labels.as_slice() {
                [one, other] => format!("{} has", if *one == source.label { other } else { one }),
                _ => "other files have".to_owned(),
            };
            let taken = first_dropped.map(|name| {
                let more = if dropped == 1 { "" } else { ", ..." };
                let same =
                    if dropped == 1 { "a tensor of the same name" } else { "tensors of the same names" };
                format!(
                    "{} ({name}{more}) not taken, as {other} {same}",
                    counted(dropped, "tensor", "tensors")
                )
            });
            let state = (state > 0).then(|| {
                let tensors = counted(state, "tensor", "tensors");
                format!("{tensors} of optimizer state not taken, as {other} the parameters")
            });
            let text = [taken, state].into_iter().flatten().collect::<Vec<_>>().join("; ");
            let text = format!("{}: {text}", source.label);
            joined.notes.push(Note::new("gave-way", text));
        }
        let own = source.notes.iter().map(|note| match only_one {
            true => note.clone(),
            false => Note { text: phrase![&source.label, ": ", &note.text], ..note.clone() },
        });
        joined.notes.extend(own);
    }
    variables::keep_apart(&mut sources, &mut losses)?;
    for source in &mut sources {
        // The tensors of the first source are moved as a whole: an index can be large.
        match joined.tensors.is_empty() {
            true => joined.tensors = std::mem::take(&mut source.tensors),
            false => joined.tensors.append(&mut source.tensors),
        }
    }
    join_metadata(&sources, same, &mut joined, &mut losses);
    join_rest(&sources, &mut joined, &mut losses);
    Ok((joined, losses))
}

fn collision(tensor: &TensorEntry, one: &Checkpoint, other: &Checkpoint) -> Error {
    Error::mismatch("name-collision", "duplicate tensor name in two files")
        .on_tensor(tensor.name())
        .found(format_args!("in {} and in {}", escape_text(&one.label), escape_text(&other.label)))
        .hint(phrase![
            Opt::Prefer.with("first"),
            " or last keeps one of them, ",
            Opt::PrefixEach,
            " keeps both with the names of their files as prefixes"
        ])
}

/// Prefixes every source with the name of its file, up to the first dot.
fn put_below(sources: &mut [Checkpoint], losses: &mut Vec<Loss>) -> Result<()> {
    let programs = sources.iter().filter(|source| source.topology.is_some()).count();
    let mut known: HashMap<String, String> = HashMap::new();
    for source in sources {
        let name = Path::new(&source.label).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.as_deref().and_then(|name| name.split('.').next()).unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Error::usage("same-prefix", "the source has no name to use as a prefix")
                .in_file(&source.label)
                .hint("use the path of the file or folder itself"));
        }
        if let Some(other) = known.insert(name.clone(), source.label.clone()) {
            let text = format!("two sources would have the prefix `{}`", escape_text(&name));
            return Err(Error::usage("same-prefix", text)
                .in_file(&source.label)
                .found(format_args!("the same prefix for {}", escape_text(&other)))
                .hint(phrase![
                    "rename one of the files; or replace ",
                    Opt::PrefixEach,
                    " by ",
                    Opt::Prefer,
                    " to keep one of two tensors"
                ]));
        }
        let below = |tensor: &TensorEntry| {
            let parts = std::iter::once(Name::from(name.as_str())).chain(tensor.path.parts().iter().cloned());
            Some(TensorPath::new(parts.collect::<Vec<_>>()))
        };
        let paths = source.tensors.iter().map(below).collect();
        let modules = Modules::of(source);
        source.set_paths(paths)?;
        if let Some(modules) = modules {
            losses.extend(modules.follow_renamed(source));
        }
        // A single program stays, with its variables under their own names.
        if programs != 1 || source.topology.is_none() {
            variables::put_below(source, &name);
        }
    }
    Ok(())
}

/// Joins the metadata; different values of one key are a loss.
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
                "{other} and {} have different values; the value of {kept} is kept, that of {lost} is dropped",
                source.label
            );
            let pair = if same == Same::Last { (value, known) } else { (known, value) };
            if let Some((versions, differ)) = Metadata::join_versions(key, pair.0, pair.1) {
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

/// Joins programs and files beside the tensors.
fn join_rest(sources: &[Checkpoint], joined: &mut Checkpoint, losses: &mut Vec<Loss>) {
    let mut programs = sources.iter().filter(|source| source.topology.is_some());
    if let (Some(one), None) = (programs.next(), programs.next()) {
        joined.topology.clone_from(&one.topology);
    } else if sources.iter().any(|source| source.topology.is_some()) {
        let detail = "several files have a program, and programs cannot be merged";
        let with_program = sources.iter().filter(|source| source.topology.is_some());
        losses.extend(with_program.map(|source| Loss::new("program", escape_text(&source.label), detail)));
    }
    let mut names: HashSet<&str> = HashSet::new();
    for source in sources {
        for (name, content) in &source.companions {
            if names.insert(name) {
                joined.companions.push((name.clone(), content.clone()));
            } else {
                let detail =
                    format!("dropped from {}: another source has a file of the same name", source.label);
                losses.push(Loss::new("companion", escape_text(name), detail));
            }
        }
    }
}

#[cfg(test)]
mod tests;
