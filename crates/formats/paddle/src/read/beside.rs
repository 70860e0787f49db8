//! Files of one model that do not know each other: who belongs to whom, by names and by content.

use super::super::any_program::{Form, Program};
use crate::ReadOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::Topology;
use weighbridge_format::{HEAD, OpenOptions};
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef};

/// Files of a folder whose first bytes are looked at in search of a program or parameters.
const MOST_LOOKED_AT: usize = 64;
/// Names of programs that hold no stem.
const PROGRAMS: [&str; 3] = ["__model__", "__model__.json", "model"];
/// Names of combined parameters that hold no stem.
const PARAMETERS: [&str; 2] = ["__params__", "params"];

/// Where an opened file stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    pub(super) folder: &'a FolderRef,
    /// The file's name in the folder.
    pub(super) name: &'a Path,
}

/// A program that was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) topology: Arc<Topology>,
    /// Its file.
    pub(super) file: SourceRef,
    /// Its file name, without folders.
    pub(super) name: String,
    /// True where a person or a name says that it belongs here; false where it merely fits.
    pub(super) sure: bool,
}

/// True for the name of a file in which macOS keeps attributes of the file that it is named after: `._x.pdmodel`.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with("._")
}

/// The text of a name, where it is UTF-8.
pub(super) fn text(name: &Path) -> &str {
    name.to_str().unwrap_or("")
}

/// The last part of a label or name.
pub(super) fn base_name(label: &str) -> String {
    Path::new(label).file_name().map_or_else(|| label.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// The first bytes of a source.
pub(super) fn head(source: &SourceRef) -> Result<Vec<u8>> {
    let len = usize::try_from(source.len()).unwrap_or(HEAD).min(HEAD);
    let mut head = vec![0; len];
    source.read_at(0, &mut head)?;
    Ok(head)
}

impl Beside<'_> {
    /// Opens another file of the same folder.
    pub(super) fn open(&self, name: &str) -> Result<Option<SourceRef>> {
        let name = self.name.parent().map_or_else(|| PathBuf::from(name), |parent| parent.join(name));
        self.folder.open(&name)
    }

    /// The first file that exists.
    pub(super) fn first(&self, names: &[String]) -> Result<Option<(SourceRef, String)>> {
        for name in names {
            if let Some(source) = self.open(name)? {
                return Ok(Some((source, name.clone())));
            }
        }
        Ok(None)
    }

    /// The name of the file, without folders.
    pub(super) fn file_name(&self) -> &str {
        self.name.file_name().and_then(|n| n.to_str()).unwrap_or("")
    }

    /// Other files of the folder that may be programs by their first bytes.
    fn lookalikes(&self) -> Result<Vec<(SourceRef, String)>> {
        let mut found = Vec::new();
        for item in self.others()? {
            let Some(source) = self.folder.open(&item.name)? else { continue };
            if Form::of(&head(&source)?, source.len()).is_some() {
                found.push((source, base_name(text(&item.name))));
            }
        }
        Ok(found)
    }

    /// Other files that are worth a look: those with telling names first.
    pub(super) fn others(&self) -> Result<Vec<FolderItem>> {
        let mut items = self.folder.list(1)?;
        items.retain(|item| item.name != self.name && !is_hidden(text(&item.name)));
        items.sort_by_key(|item| promise(text(&item.name)));
        items.truncate(MOST_LOOKED_AT);
        Ok(items)
    }
}

/// How likely a file is part of a model, by its name: 0 is likeliest.
pub(super) fn promise(name: &str) -> u8 {
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if ends(&[".pdmodel", ".pb", ".json", ".pdiparams", "__model__", "__params__"]) {
        0
    } else if ends(&[
        ".txt", ".md", ".py", ".pyc", ".npy", ".jpg", ".png", ".log", ".yml", ".yaml", ".sh", ".csv",
    ]) {
        2
    } else {
        1
    }
}

/// The names that the program of a parameter file may have, likeliest first.
pub(super) fn program_names(parameters: &str) -> Vec<String> {
    let mut names = Vec::new();
    let stem = [".pdiparams", ".pdparams", ".pdopt"].iter().find_map(|end| parameters.strip_suffix(end));
    if let Some(stem) = stem {
        names.extend([format!("{stem}.pdmodel"), format!("{stem}.json")]);
        // jit.save of a layer with several functions may keep the parameters of all in one file.
    }
    if PARAMETERS.contains(&parameters) {
        names.extend(PROGRAMS.map(str::to_owned));
    }
    names
}

/// The names that the combined parameters of a program may have, likeliest first.
pub(super) fn parameter_names(program: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(stem) = [".pdmodel", ".json"].iter().find_map(|end| program.strip_suffix(end)) {
        names.push(format!("{stem}.pdiparams"));
        // Functions of one layer may share the file of the first: x.second.pdmodel, x.pdiparams.
        if let Some((first, _)) = stem.split_once('.') {
            names.push(format!("{first}.pdiparams"));
        }
    }
    if PROGRAMS.contains(&program) || program == "__model__.json" {
        names.extend(PARAMETERS.map(str::to_owned));
    }
    names
}

/// The program that a parameter file belongs to: the one that the caller names, one whose name
/// says so, or, where a `search` is worth while, the only one beside it that `fits`.
///
/// # Errors
/// What reading a program says, where that program was named.
pub(super) fn find_program(
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
    search: impl Fn() -> bool,
    fits: impl Fn(&Topology) -> bool,
) -> Result<Option<Found>> {
    if let Some(source) = &options.own::<ReadOptions>().program {
        let topology = joinable(source, options)?;
        let (file, name) = (source.clone(), base_name(source.label()));
        return Ok(Some(Found { topology, file, name, sure: true }));
    }
    let Some(beside) = beside else { return Ok(None) };
    if let Some((source, name)) = beside.first(&program_names(beside.file_name()))? {
        let topology = joinable(&source, options)?;
        return Ok(Some(Found { topology, file: source, name, sure: true }));
    }
    if !search() {
        return Ok(None);
    }
    let mut fitting = Vec::new();
    for (source, name) in beside.lookalikes()? {
        // What only looks like a program, or belongs to another model, is none of our business.
        let Ok(program) = Program::read(&source, &options.limits) else { continue };
        if program.has_odd_names() {
            continue;
        }
        let topology = program.topology();
        if fits(&topology) {
            fitting.push(Found { topology: Arc::new(topology), file: source, name, sure: false });
        }
    }
    Ok(if fitting.len() == 1 { fitting.pop() } else { None })
}

/// The program in a file, whose variables can be names of tensors.
fn joinable(source: &SourceRef, options: &OpenOptions) -> Result<Arc<Topology>> {
    let program = Program::read(source, &options.limits)?;
    if program.has_odd_names() {
        return Err(Error::unsupported(
            "names-not-utf8",
            "the program has variables whose names are not UTF-8",
        )
        .in_file(source.label())
        .hint("a copy of the parameters in a folder of its own opens without names"));
    }
    Ok(Arc::new(program.topology()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_eras() {
        assert_eq!(program_names("x.pdiparams"), ["x.pdmodel", "x.json"]);
        assert_eq!(program_names("__params__"), ["__model__", "__model__.json", "model"]);
        assert!(program_names("fc_0.w_0").is_empty());
        assert_eq!(parameter_names("x.pdmodel"), ["x.pdiparams"]);
        assert_eq!(parameter_names("x.second.pdmodel"), ["x.second.pdiparams", "x.pdiparams"]);
        assert_eq!(parameter_names("__model__"), ["__params__", "params"]);
    }
}
