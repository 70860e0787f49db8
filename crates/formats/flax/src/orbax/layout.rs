//! Folders of checkpoints: one tree, the items of a step, or several steps.

use super::metadata::{METADATA, STEP_METADATA};
use super::ocdbt::MANIFEST;
use crate::tree::is_tree;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::{escape, first_and_more};
use weighbridge_io::source::FolderRef;

/// Name of the file of a tree in old checkpoints.
pub(super) const AGGREGATE: &str = "checkpoint";
/// Names of items in folders of steps without a description.
const ITEMS: [&str; 5] = ["default", "state", "params", "items", "train_state"];
/// Levels of folders down to the tree: step, item, files.
const DEPTH: usize = 3;
/// Beginning of the names of folders with the store of one process.
const PROCESS: &str = "ocdbt.process_";
/// Maximum number of steps named in an error.
const MAX_NAMED: usize = 10;

/// Trees of a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Not a checkpoint.
    None,
    /// One tree, in that folder.
    One(PathBuf),
    /// Items of one step, each a tree under its name.
    Items(Vec<PathBuf>),
    /// Several steps.
    Steps(Vec<String>),
}

/// Returns true for the name of a step: a number, possibly after a prefix.
fn is_step(name: &str) -> bool {
    let number = name.rsplit_once('_').map_or(name, |(_, number)| number);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Finds the trees below a folder.
///
/// # Errors
/// Errors of listing.
pub(super) fn layout(folder: &FolderRef) -> Result<Layout> {
    let mut trees: BTreeSet<PathBuf> = BTreeSet::new();
    let mut has_steps = false;
    for item in folder.list(DEPTH)? {
        let (Some(name), Some(parent)) =
            (item.name.file_name().and_then(|name| name.to_str()), item.name.parent())
        else {
            continue;
        };
        has_steps |= name == STEP_METADATA && parent == Path::new("");
        let in_process =
            parent.iter().any(|part| part.to_str().is_some_and(|part| part.starts_with(PROCESS)));
        let is_root = !in_process
            && match name {
                METADATA | MANIFEST => true,
                AGGREGATE => folder.open(&item.name)?.is_some_and(|source| is_tree(&source)),
                _ => false,
            };
        if is_root {
            trees.insert(parent.to_owned());
        }
    }
    if trees.contains(Path::new("")) {
        return Ok(Layout::One(PathBuf::new()));
    }
    let first =
        |path: &Path| path.iter().next().and_then(|part| part.to_str()).unwrap_or_default().to_owned();
    let steps: BTreeSet<String> = trees.iter().map(|path| first(path)).filter(|name| is_step(name)).collect();
    if steps.len() > 1 {
        let mut steps: Vec<String> = steps.into_iter().collect();
        steps.sort_by_key(|name| (name.len(), name.clone()));
        return Ok(Layout::Steps(steps));
    }
    let within: Vec<PathBuf> = match steps.first() {
        Some(step) => trees.into_iter().filter(|path| first(path) == *step).collect(),
        None => {
            let is_item = |path: &Path| has_steps || ITEMS.contains(&first(path).as_str());
            trees.into_iter().filter(|path| path.iter().count() == 1 && is_item(path)).collect()
        }
    };
    Ok(match within.as_slice() {
        [] => Layout::None,
        [one] => Layout::One(one.clone()),
        _ => Layout::Items(within),
    })
}

/// Returns the error for a folder of several steps.
pub(super) fn several(folder: &FolderRef, steps: &[String]) -> Error {
    let last = steps.last().map(String::as_str).unwrap_or_default();
    Error::usage("several-models", "the folder contains several steps of a checkpoint")
        .in_file(folder.label())
        .found(first_and_more(steps.iter().map(|step| escape(step)), MAX_NAMED))
        .hint(format!(
            "open the folder of one of them: {}",
            escape(&Path::new(folder.label()).join(last).display().to_string())
        ))
}
