//! Model folders: recognition and the choice of the file to open.

use super::super::any_program::Form;
use super::super::state;
use super::super::stream::{Stream, StreamKind, detect};
use super::beside::{Beside, head, is_hidden, rank_by_name, text};
use super::params::open_separate;
use super::{checkpoint, merge_states, model, params, shards};
use std::collections::BTreeMap;
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Damage, Name, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_core::topology::VariableKind;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef};

/// Maximum depth of names with slashes: `a/b` is the file `b` in the folder `a`.
const MAX_DEPTH: usize = 8;
/// Maximum number of files whose content is read to recognise a folder.
const MAX_FILES_PROBED: usize = 32;

/// Content of a folder by the names of its files.
#[derive(Debug, Default)]
struct Inventory {
    /// Programs: `__model__`, `x.pdmodel`, `x.json` of PIR, `program.pb`.
    programs: Vec<String>,
    /// Combined parameters.
    parameters: Vec<String>,
    /// Stems of pickled states: parameters, optimizer.
    states: BTreeMap<String, [Option<String>; 2]>,
    /// Shard indexes of states.
    indexes: Vec<String>,
    distributed: bool,
}

/// True if the files of the folder form a Paddle model.
pub(super) fn recognises(folder: &FolderRef) -> bool {
    let Ok(items) = folder.list(1) else { return false };
    let Ok(inventory) = Inventory::of(folder, &items) else { return false };
    let named = !inventory.programs.is_empty()
        || !inventory.parameters.is_empty()
        || !inventory.states.is_empty()
        || inventory.distributed;
    let mut items = items;
    items.sort_by_key(|item| rank_by_name(text(&item.name)));
    named || items.iter().take(MAX_FILES_PROBED).any(|item| holds_a_tensor(folder, item))
}

/// True if a file is a whole tensor stream.
fn holds_a_tensor(folder: &FolderRef, item: &FolderItem) -> bool {
    let Ok(Some(source)) = folder.open(&item.name) else { return false };
    matches!(detect(&source, &Limits::default()), Some(StreamKind::Dense | StreamKind::SelectedRows))
}

/// Opens the model in a folder.
pub(super) fn open(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let items = folder.list(1)?;
    let inventory = Inventory::of(folder, &items)?;
    let mut checkpoint = if inventory.distributed {
        state::read_distributed(folder, options)?
            .ok_or_else(|| Error::unsupported("not-distributed", "the shards in the folder have no index"))?
    } else if let Some(name) = main_program(&inventory.programs, folder)? {
        let beside = Beside { folder, name: Path::new(name) };
        let mut checkpoint = model::open(&source(folder, name)?, Some(beside), options)?;
        let others: Vec<_> = inventory.programs.iter().filter(|n| *n != name).map(String::as_str).collect();
        if !others.is_empty() {
            let text = format!("other functions of the model are not opened: {}", others.join(", "));
            checkpoint.notes.push(Note::omission("more-programs", text));
        }
        checkpoint
    } else if let [name] = inventory.parameters.as_slice() {
        let beside = Beside { folder, name: Path::new(name) };
        let file = source(folder, name)?;
        let mut checkpoint = params::open(&file, Some(beside), options)?;
        checkpoint.files.push(file);
        // A single file is opened, whatever else is in the folder.
        return Ok(checkpoint);
    } else if !inventory.parameters.is_empty() {
        return Err(several(folder, &inventory.parameters));
    } else if !inventory.indexes.is_empty() {
        open_sharded(folder, &inventory, options)?
    } else if !inventory.states.is_empty() {
        open_states(folder, &inventory, options)?
    } else {
        open_tensors(folder, options)?
    };
    folder.label().clone_into(&mut checkpoint.label);
    Ok(checkpoint)
}

/// Returns the program of the model in a folder, of any era.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`]: `several-models` with their names; `no-program`; [`weighbridge_core::Kind::Io`].
pub(in super::super) fn program(folder: &FolderRef) -> Result<SourceRef> {
    let inventory = Inventory::of(folder, &folder.list(1)?)?;
    match main_program(&inventory.programs, folder)? {
        Some(name) => source(folder, name),
        None => Err(Error::usage("no-program", "the folder has no program")
            .in_file(folder.label())
            .expected("a __model__, a .pdmodel, or a .json of PIR")),
    }
}

impl Inventory {
    fn of(folder: &FolderRef, items: &[FolderItem]) -> Result<Self> {
        let mut found = Self::default();
        let mut metadata = false;
        let mut shards = false;
        for item in items.iter().filter(|item| !is_hidden(text(&item.name))) {
            let name = text(&item.name);
            match name.rsplit_once('.') {
                Some((_, "pdmodel")) => found.programs.push(name.to_owned()),
                Some((_, "json")) if shards::is_index_name(name) => found.indexes.push(name.to_owned()),
                Some((_, "json" | "pb")) if is_program(folder, item)? => found.programs.push(name.to_owned()),
                Some((_, "pdiparams")) => found.parameters.push(name.to_owned()),
                Some((stem, "pdparams")) => found.state(stem)[0] = Some(name.to_owned()),
                Some((stem, "pdopt")) => found.state(stem)[1] = Some(name.to_owned()),
                Some((_, "distcp")) => shards = true,
                // The metadata file of PyTorch's directory has no number.
                Some((number, "metadata")) if !number.is_empty() => metadata = true,
                _ if matches!(name, "__model__" | "model") && is_program(folder, item)? => {
                    found.programs.push(name.to_owned());
                }
                _ if name == "__params__" => found.parameters.push(name.to_owned()),
                _ => {}
            }
        }
        found.distributed = shards && metadata;
        Ok(found)
    }

    fn state(&mut self, stem: &str) -> &mut [Option<String>; 2] {
        self.states.entry(stem.to_owned()).or_default()
    }
}

fn is_program(folder: &FolderRef, item: &FolderItem) -> Result<bool> {
    match folder.open(&item.name)? {
        Some(source) => Ok(Form::of(&head(&source)?, source.len()).is_some()),
        None => Ok(false),
    }
}

fn source(folder: &FolderRef, name: &str) -> Result<SourceRef> {
    folder.open(Path::new(name))?.ok_or_else(|| {
        Error::new(
            weighbridge_core::Kind::Io,
            "file-vanished",
            "the file disappeared while the folder was read",
        )
        .in_file(name)
    })
}

/// Returns the program to open: the only one, or the one whose stem is a prefix of all others.
/// Example: `x.pdmodel` with `x.second.pdmodel`, the functions of one layer.
fn main_program<'a>(programs: &'a [String], folder: &FolderRef) -> Result<Option<&'a str>> {
    let stem = |name: &'a str| name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let leads = |name: &&'a String| {
        programs.iter().all(|other| {
            other == *name || stem(other).strip_prefix(stem(name)).is_some_and(|r| r.starts_with('.'))
        })
    };
    match programs {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => programs
            .iter()
            .find(leads)
            .map(|name| Some(name.as_str()))
            .ok_or_else(|| several(folder, programs)),
    }
}

fn several(folder: &FolderRef, names: &[String]) -> Error {
    let shown = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    Error::usage("several-models", "the folder contains several models")
        .in_file(folder.label())
        .found(shown)
        .hint("pass the path of one of these files; the files that belong to it are found")
}

/// Opens the state of one model: parameters and optimizer.
fn open_states(folder: &FolderRef, inventory: &Inventory, options: &OpenOptions) -> Result<Checkpoint> {
    let names: Vec<String> = inventory.states.values().flatten().flatten().cloned().collect();
    if inventory.states.len() > 1 {
        return Err(several(folder, &names));
    }
    let mut whole: Option<Checkpoint> = None;
    let mut failed = Vec::new();
    for name in &names {
        let part = match state::read(&source(folder, name)?, options) {
            Err(error) if options.salvage && Damage::is(&error) => {
                failed.push((format!("(tensors of {name})"), error));
                continue;
            }
            read => read?,
        };
        whole = Some(match whole {
            None => part,
            Some(whole) => merge_states(whole, part),
        });
    }
    let mut whole = whole.unwrap_or_else(|| checkpoint("state", folder.label()));
    for (name, error) in failed {
        whole.lose(name, &error);
    }
    // Optimizer state names the variable of its parameter. Here the parameter may use its structured name.
    whole.attach_state();
    Ok(whole)
}

/// Opens the sharded state of one model: parameters, and the optimizer if it has an index too.
fn open_sharded(folder: &FolderRef, inventory: &Inventory, options: &OpenOptions) -> Result<Checkpoint> {
    let (optimizer, parameters): (Vec<&String>, Vec<&String>) =
        inventory.indexes.iter().partition(|name| shards::is_of_optimizer(name));
    if optimizer.len() > 1 || parameters.len() > 1 {
        return Err(several(folder, &inventory.indexes));
    }
    let mut whole: Option<Checkpoint> = None;
    for name in parameters.into_iter().chain(optimizer) {
        let part = shards::open(&source(folder, name)?, folder, Path::new(""), options)?;
        whole = Some(match whole {
            None => part,
            Some(whole) => merge_states(whole, part),
        });
    }
    let mut whole = whole.unwrap_or_else(|| checkpoint("state", folder.label()));
    whole.attach_state();
    Ok(whole)
}

/// Opens a folder of single-tensor files without a program. Other files are skipped.
fn open_tensors(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut found = checkpoint("separate", folder.label());
    let mut others = Vec::new();
    for item in folder.list(MAX_DEPTH)? {
        let name = text(&item.name).replace('\\', "/");
        let hidden = name.rsplit('/').next().is_some_and(|n| n.starts_with('.'));
        let Some(source) = folder.open(&item.name)? else { continue };
        let kind = match detect(&source, &options.limits) {
            Some(StreamKind::Dense) if !hidden => VariableKind::Tensor,
            Some(StreamKind::SelectedRows) if !hidden => VariableKind::SelectedRows,
            _ => {
                others.push(name);
                continue;
            }
        };
        Limits::check("tensors", "tensors", found.tensors.len() as u64 + 1, options.limits.tensors)?;
        let (stream, note) = match open_separate(&source, &name, &kind, options) {
            Err(error) if options.salvage && Damage::is(&error) => {
                found.lose(&name, &error);
                continue;
            }
            read => read?,
        };
        found.notes.extend(note);
        if let Stream::Dense(dense) = stream {
            found.tensors.push(dense.entry);
        }
    }
    if !others.is_empty() {
        let shown =
            others.iter().take(5).map(|n| Name::from(n.as_str()).to_string()).collect::<Vec<_>>().join(", ");
        let files = counted(others.len(), "file is not a tensor and was", "files are not tensors and were");
        let text = format!("{files} skipped: {shown}");
        found.notes.push(Note::new("other-files", text));
    }
    if found.tensors.is_empty() && found.damage.is_none() {
        return Err(Error::usage("no-parameters", "the folder has no Paddle parameters")
            .in_file(folder.label())
            .expected("a program, .pdiparams, .pdparams, or single-tensor files"));
    }
    found.notes.push(Note::new("no-program", "no program found; tensors are named after their files"));
    Ok(found)
}
