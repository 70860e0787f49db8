//! Associates files of one model by name and by content: none of them refers to another.

use super::super::any_program::{Form, Program};
use crate::ReadOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::Topology;
use weighbridge_format::{HEAD, OpenOptions};
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef};

/// Maximum number of files of a folder whose first bytes are read in search of a program or parameters.
const MAX_FILES_PROBED: usize = 64;
/// Program names without a stem.
const PROGRAMS: [&str; 3] = ["__model__", "__model__.json", "model"];
/// Names of combined parameters without a stem.
const PARAMETERS: [&str; 2] = ["__params__", "params"];

/// Opened file together with its folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    pub(super) folder: &'a FolderRef,
    /// Name of the file within the folder.
    pub(super) name: &'a Path,
}

/// Program found for a parameter file.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) topology: Arc<Topology>,
    /// File that contains the program.
    pub(super) file: SourceRef,
    /// File name without folders.
    pub(super) name: String,
    /// True if the caller or a file name identifies the program; false if it merely fits.
    pub(super) sure: bool,
}

/// True for the AppleDouble files in which macOS keeps the attributes of another file: `._x.pdmodel`.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with("._")
}

/// Returns the name as text, empty if it is not UTF-8.
pub(super) fn text(name: &Path) -> &str {
    name.to_str().unwrap_or("")
}

/// Returns the last component of a label or name.
pub(super) fn base_name(label: &str) -> String {
    Path::new(label).file_name().map_or_else(|| label.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// Reads the first bytes of a source.
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

    /// Opens the first file that exists.
    pub(super) fn first(&self, names: &[String]) -> Result<Option<(SourceRef, String)>> {
        for name in names {
            if let Some(source) = self.open(name)? {
                return Ok(Some((source, name.clone())));
            }
        }
        Ok(None)
    }

    /// Returns the file name without folders.
    pub(super) fn file_name(&self) -> &str {
        self.name.file_name().and_then(|n| n.to_str()).unwrap_or("")
    }

    /// Lists other files of the folder that may be programs by their first bytes.
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

    /// Lists other files of the folder that are worth probing, the likeliest names first.
    pub(super) fn others(&self) -> Result<Vec<FolderItem>> {
        let mut items = self.folder.list(1)?;
        items.retain(|item| item.name != self.name && !is_hidden(text(&item.name)));
        items.sort_by_key(|item| rank_by_name(text(&item.name)));
        items.truncate(MAX_FILES_PROBED);
        Ok(items)
    }
}

/// Ranks a file name by the likelihood that the file belongs to a model: 0 is likeliest.
pub(super) fn rank_by_name(name: &str) -> u8 {
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

/// Possible names of the program of a parameter file, likeliest first.
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

/// Possible names of the combined parameters of a program, likeliest first.
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

/// Finds the program of a parameter file: the one that the caller names, else one with a matching
/// name. Where a `search` is worth while, the only program in the folder that `fits` follows.
///
/// # Errors
/// Errors from reading the program, if the caller or a file name identified it.
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
        // Files that only resemble a program, or belong to another model, are not an error here.
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

/// Reads the program of a file and requires variable names that can be tensor names.
fn joinable(source: &SourceRef, options: &OpenOptions) -> Result<Arc<Topology>> {
    let program = Program::read(source, &options.limits)?;
    if program.has_odd_names() {
        return Err(Error::unsupported("names-not-utf8", "variable names of the program are not UTF-8")
            .in_file(source.label())
            .hint("copy the parameter file to a separate folder to open it without names"));
    }
    Ok(Arc::new(program.topology()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_file_names_of_all_eras() {
        assert_eq!(program_names("x.pdiparams"), ["x.pdmodel", "x.json"]);
        assert_eq!(program_names("__params__"), ["__model__", "__model__.json", "model"]);
        assert!(program_names("fc_0.w_0").is_empty());
        assert_eq!(parameter_names("x.pdmodel"), ["x.pdiparams"]);
        assert_eq!(parameter_names("x.second.pdmodel"), ["x.second.pdiparams", "x.pdiparams"]);
        assert_eq!(parameter_names("__model__"), ["__params__", "params"]);
    }
}
