//! `ls`: one line per tensor, or a tree.

use crate::args::{Common, Ls, Sort};
use crate::output::{DIM, Output, human_bytes, human_count};
use crate::several::{self, Report};
use crate::table::{Align, Cell, Table, short};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weighbridge::checkpoint::{Attributes, Checkpoint, TensorEntry};
use weighbridge::finding::Verdict;
use weighbridge::formats::registry;
use weighbridge::ops::list::{self, Group, ListOptions, Listing};
use weighbridge::phrase;
use weighbridge::phrase::{Face, Opt, Worded};
use weighbridge::text::{counted, escape, path_text};
use weighbridge::{Error, ErrorCode};

pub(crate) fn run(args: &Ls, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = ListOptions {
        select: args.select.clone(),
        drop: args.drop.clone(),
        sort: args.sort.map(|sort| match sort {
            Sort::Name => list::Sort::Name,
            Sort::Size => list::Sort::Size,
            Sort::Dtype => list::Sort::Dtype,
        }),
        group: args.group,
        hash: args.hash,
        extents: args.extents,
    };
    several::run(&args.paths, output, |path| {
        let opened = crate::salvage::open(path, &args.input);
        let opened = opened.map_err(|error| match names_a_tensor(&error, path, &args.paths) {
            true => error.hint(phrase!["to list one tensor, use ", Opt::Select.with(path_text(path))]),
            false => error,
        });
        let listing = list::list(opened?, &options)?;
        Ok(Listed { listing, tree: args.tree })
    })
}

/// Returns true if a missing path after an existing file is probably the name of a tensor.
fn names_a_tensor(error: &Error, path: &Path, paths: &[PathBuf]) -> bool {
    let is_name = path.components().count() == 1 && registry().by_extension(path).is_err();
    let follows_a_file = || paths.first().is_some_and(|first| first != path && first.is_file());
    error.code() == ErrorCode::NotFound && is_name && follows_a_file()
}

/// List of tensors.
struct Listed {
    listing: Listing,
    tree: bool,
}

impl Worded for Listed {
    fn word(&mut self, face: Face<'_>) {
        self.listing.word(face);
    }
}

impl Report for Listed {
    fn verdict(&self) -> Verdict {
        Verdict::Sound
    }

    fn json(&self) -> impl Serialize {
        &self.listing
    }

    fn text(&self, output: &mut Output) -> io::Result<()> {
        let Listing { checkpoint, hashes, groups, extents: show_extents, .. } = &self.listing;
        if let Some(groups) = groups {
            totals(groups, output)?;
        } else if self.tree {
            tree(checkpoint, hashes, output)?;
        } else if *show_extents {
            extents(checkpoint, output)?;
        } else {
            table(checkpoint, hashes, output)?;
        }
        summary(checkpoint, output)?;
        output.notes(&checkpoint.notes)
    }

    fn begins_with_path(&self) -> bool {
        false
    }

    fn word(_: Verdict) -> String {
        "opened".to_owned()
    }
}

fn totals(groups: &[Group], output: &mut Output) -> io::Result<()> {
    let mut table = Table::new(&[
        ("prefix", Align::Left),
        ("tensors", Align::Right),
        ("elements", Align::Right),
        ("bytes", Align::Right),
    ]);
    for group in groups {
        let counts = [group.tensors, group.elements, group.bytes].map(human_count);
        table.row([escape(&group.name)]);
        table.row(counts);
    }
    table.print(output)
}

fn table(checkpoint: &Checkpoint, hashes: &[String], output: &mut Output) -> io::Result<()> {
    let mut columns = vec![
        ("name", Align::Left),
        ("dtype", Align::Left),
        ("shape", Align::Left),
        ("order", Align::Left),
        ("bytes", Align::Right),
        ("role", Align::Left),
    ];
    let two_names = checkpoint.tensors.iter().any(|t| other_name(t).is_some());
    if two_names {
        columns.push(("also", Align::Left));
    }
    if !hashes.is_empty() {
        columns.push(("sha256", Align::Left));
    }
    let mut table = Table::new(&columns);
    for (i, tensor) in checkpoint.tensors.iter().enumerate() {
        let cells: [Cell; 6] = [
            tensor.name().into(),
            tensor.dtype().name().into(),
            shape(tensor).into(),
            tensor.order().as_str().into(),
            human_count(tensor.bytes()).into(),
            role(tensor),
        ];
        table.row(cells);
        if two_names {
            table.row([other_name(tensor).unwrap_or_default()]);
        }
        table.row(hashes.get(i).cloned());
    }
    table.print(output)
}

/// Prints one line per extent: the elements it fills and its byte range.
fn extents(checkpoint: &Checkpoint, output: &mut Output) -> io::Result<()> {
    let columns = [
        ("name", Align::Left),
        ("part", Align::Left),
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("file", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for tensor in &checkpoint.tensors {
        // Only the first of thousands of extents repeats a long name in full.
        let mut name: Cell = tensor.name().into();
        for extent in &tensor.extents {
            let again = short(&name);
            let region = extent.region(&tensor.shape);
            let ranges = region.start.iter().zip(&region.shape);
            let ranges: Vec<_> = ranges.map(|(start, len)| format!("{start}:{}", start + len)).collect();
            let cells: [Cell; 5] = [
                std::mem::replace(&mut name, again),
                format!("[{}]", ranges.join(", ")).into(),
                human_count(extent.offset).into(),
                human_count(extent.len).into(),
                escape(extent.source.label()).into(),
            ];
            table.row(cells);
        }
    }
    table.print(output)
}

/// Maximum characters of an attribute in text; JSON has all.
const MAX_ATTRIBUTE: usize = 40;

/// Returns the shape and the attributes of the format.
fn shape(tensor: &TensorEntry) -> String {
    let mut text = tensor.shape.to_string();
    let others = |key: &str| {
        ![Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME, "stop_gradient", "trainable"].contains(&key)
    };
    for (key, value) in tensor.attributes.iter().filter(|(key, _)| others(key)) {
        let mut value = value.to_json().to_string();
        if value.chars().count() > MAX_ATTRIBUTE {
            value = value.chars().take(MAX_ATTRIBUTE).chain("...".chars()).collect();
        }
        text.push_str(&format!(" {}={}", escape(key), escape(&value)));
    }
    if let Some(of) = tensor.role.state_of() {
        let guessed = if of.guessed { " (guessed)" } else { "" };
        text.push_str(&format!(" state_of=\"{}\"{guessed}", escape(&of.name)));
    }
    text
}

/// Returns the second name of a tensor that has two.
fn other_name(tensor: &TensorEntry) -> Option<String> {
    let name = |key: &str| tensor.text_attribute(key).map(escape);
    name(Attributes::STRUCTURED_NAME).or_else(|| name(Attributes::VARIABLE_NAME))
}

fn role(tensor: &TensorEntry) -> Cell {
    let role = tensor.role.as_str();
    if tensor.guessed { format!("{role} (guessed)").into() } else { role.into() }
}

/// Maximum depth of the tree. Deeper names share one line, with dots, so that names of thousands of parts do not become
/// millions of blanks.
const MAX_DEPTH: usize = 20;

/// Returns the parts of the path of a tensor in the tree.
fn branches(tensor: &TensorEntry) -> Vec<String> {
    let mut parts: Vec<String> = tensor.path.parts().iter().map(|p| p.to_string()).collect();
    if parts.len() > MAX_DEPTH {
        let rest = parts.split_off(MAX_DEPTH).join(".");
        parts.push(rest);
    }
    if let Some(slot) = tensor.role.slot() {
        parts.push(format!("/{slot}"));
    }
    parts
}

/// Returns the order of the tensors in the tree: a branch is where its first tensor is.
fn tree_order(tensors: &[TensorEntry]) -> Vec<usize> {
    let mut numbers: HashMap<(usize, String), usize> = HashMap::new();
    let mut keys: Vec<(Vec<usize>, usize)> = Vec::with_capacity(tensors.len());
    for (place, tensor) in tensors.iter().enumerate() {
        // Branches are numbered as they appear.
        let mut at = usize::MAX;
        let key = branches(tensor).into_iter().map(|part| {
            let next = numbers.len();
            at = *numbers.entry((at, part)).or_insert(next);
            at
        });
        keys.push((key.collect(), place));
    }
    keys.sort();
    keys.into_iter().map(|(_, place)| place).collect()
}

/// Prints paths as a tree, with optimizer state below its parameter.
fn tree(checkpoint: &Checkpoint, hashes: &[String], output: &mut Output) -> io::Result<()> {
    let mut open: Vec<String> = Vec::new();
    for i in tree_order(&checkpoint.tensors) {
        let tensor = &checkpoint.tensors[i];
        let mut parts = branches(tensor);
        let Some(leaf) = parts.pop() else { continue };
        let common = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        open.truncate(common);
        for part in &parts[common..] {
            writeln!(output, "{}{part}", "  ".repeat(open.len()))?;
            open.push(part.clone());
        }
        let hash = hashes.get(i).map(|h| format!("  {h}")).unwrap_or_default();
        let details = format!("{} {} {}{hash}", tensor.dtype(), shape(tensor), human_bytes(tensor.bytes()));
        writeln!(output, "{}{leaf}  {DIM}{details}{DIM:#}", "  ".repeat(open.len()))?;
        // State of this tensor follows without repeating its name.
        if tensor.role.slot().is_none() {
            open.push(leaf);
        }
    }
    Ok(())
}

fn summary(checkpoint: &Checkpoint, output: &mut Output) -> io::Result<()> {
    let count = checkpoint.tensors.len();
    let tensors = counted(count, "tensor", "tensors");
    let bytes = human_bytes(checkpoint.tensor_bytes());
    let (format, kind) = (checkpoint.shown_format(), checkpoint.kind);
    let form = if format == kind { format.to_owned() } else { format!("{format} {kind}") };
    writeln!(output, "{DIM}{tensors}, {bytes}, {form}{DIM:#}")
}
