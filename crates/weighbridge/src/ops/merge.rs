//! Several checkpoints as one: the shards of one model, or models that have nothing in common, or something.

use super::{ConvertOptions, Inputs, plan_checkpoint};
use crate::checkpoint::{
    Checkpoint, Loss, Metadata, Modules, Name, Note, TensorEntry, TensorPath, escape_text,
};
use crate::engine::LocalSink;
use crate::error::{Error, Result};
use crate::formats::{self, torch};
use crate::plan::WritePlan;
use crate::text::{counted, path_text};
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use weighbridge_core::phrase::Opt;
use weighbridge_core::{LossCode, phrase};

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
    /// The displayed names of the joined tensors, not escaped, in their order.
    pub names: Vec<String>,
    /// What was odd about the sources, and what was left out of them.
    pub notes: Vec<Note>,
}

impl PreparedMerge {
    /// The document of what was written, or would be: `bytes` of all files, `done` where it was.
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

/// Opens `sources` and plans them as one checkpoint at `target`. A folder of shards is one source, and so are all
/// shards of a list together: it is read in their place, unless each goes below its own name. The format is told from
/// the target's extension, unless the options say it.
///
/// # Errors
/// What opening and planning say; as [`join`]; `output-is-input` where the target is one of several files of a source.
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
        if options.run.progress.stopped() {
            return Err(Error::cancelled());
        }
        formats::open_with(path, &options.open).map_err(|error| {
            let error = match named.contains(path) {
                true => error,
                false => error.hint("this list stands beside the files that were named, and is read in their place: move it away to merge them alone"),
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
    let names = checkpoint.tensors.iter().map(TensorEntry::text).collect();
    let undenied = ConvertOptions { deny_loss: false, ..options.clone() };
    let mut plan = plan_checkpoint(checkpoint, format, kind, &undenied)?;
    plan.losses.extend(losses);
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

/// Tells the loss of a structure of torch for each source that had one: the plan knows only what was made of all.
fn of_each(plan: &mut WritePlan, objects: &[String]) {
    let is_told = |loss: &Loss| loss.code == LossCode::StructureDropped && plan.format == "torch";
    let Some(place) = plan.losses.iter().position(is_told).filter(|_| !objects.is_empty()) else { return };
    let told = plan.losses.remove(place);
    let each: Vec<Loss> =
        objects.iter().map(|label| Loss { subject: label.clone(), ..told.clone() }).collect();
    plan.losses.splice(place..place, each);
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
    // Whichever of them had a structure: it is lost for all that is written.
    if sources.iter().any(torch::was_object) {
        torch::mark_object(&mut joined);
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
    Checkpoint::attach_state_among(&mut sources);
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
            losses.extend(modules.follow_left_out(source));
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
            false => Note { text: phrase![&source.label, ": ", &note.text], ..note.clone() },
        });
        joined.notes.extend(own);
    }
    variables::keep_apart(&mut sources, &mut losses)?;
    for source in &mut sources {
        // That of the first is moved as a whole: an index can be large.
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
    Error::mismatch("name-collision", "two of the files have a tensor of the same name")
        .on_tensor(tensor.name())
        .found(format_args!("it in {} and in {}", escape_text(&one.label), escape_text(&other.label)))
        .hint(phrase![
            Opt::Prefer.with("first"),
            " or last takes one of them, ",
            Opt::PrefixEach,
            " keeps both below the names of their files"
        ])
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
                .found(format_args!("{name}, as {other}"))
                .hint(phrase![
                    "rename one of the files; or merge without ",
                    Opt::PrefixEach,
                    ", and say with ",
                    Opt::Prefer,
                    " which of two tensors counts"
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
mod tests;
