//! HDF5 file of BigGraph: its contents, and the rules of all file types.

use super::super::detect::{CONFIG_JSON, FORMAT_VERSION, is_version_one};
use std::collections::BTreeSet;
use weighbridge_core::checkpoint::{Attributes, Name, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_format::OpenOptions;
use weighbridge_hdf5::{self as hdf5, Contents, Dataset, Item};
use weighbridge_io::source::SourceRef;

/// Opened file.
#[derive(Debug)]
pub(super) struct File {
    /// Source.
    pub(super) source: SourceRef,
    /// Contents, without unreadable parts.
    contents: Contents,
    /// Notes.
    pub(super) notes: Vec<Note>,
    /// Unreadable paths.
    broken: BTreeSet<Vec<String>>,
}

impl File {
    /// Opens `source` and checks `format_version`.
    ///
    /// # Errors
    /// Errors of the HDF5 reader; `format-version`. With `options.lenient` damaged parts
    /// and a wrong version become notes.
    pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Self> {
        let fail = |error: Error| error.in_file(source.label());
        let mut contents = hdf5::read(source, &options.limits).map_err(fail)?;
        let (mut notes, mut broken) = (Vec::new(), BTreeSet::new());
        for problem in std::mem::take(&mut contents.problems) {
            let path = problem.path.join("/");
            let damaged = !matches!(problem.error.kind(), Kind::Unsupported | Kind::Limit);
            // With a damaged root the list of datasets is unknown: lenient mode cannot tell which model it was.
            let unknown = problem.members && path.is_empty() && !options.salvage;
            if damaged && (unknown || !options.lenient) {
                // A fault of the whole file has no path.
                let in_part = |error: Error| error.within(format_args!("in {path}"));
                return Err(fail(if path.is_empty() { problem.error } else { in_part(problem.error) }));
            }
            let place = if path.is_empty() { path } else { format!("{path}: ") };
            let text = format!("{}: {place}{}", source.label(), problem.error.message());
            notes.push(Note::omission(problem.error.code(), text));
            broken.insert(problem.path);
        }
        let file = Self { source: source.clone(), contents, notes, broken };
        file.check_version(options)
    }

    fn check_version(mut self, options: &OpenOptions) -> Result<Self> {
        let found = self.attribute(FORMAT_VERSION);
        if found.is_some_and(is_version_one) {
            return Ok(self);
        }
        let shown = found.map_or_else(|| "no such attribute".to_owned(), |value| value.to_json().to_string());
        // A higher number may be a newer form; everything else was never written by BigGraph.
        let number = matches!(found, Some(Value::I64(_) | Value::U64(_) | Value::F64(_)));
        let message = "the format_version is not 1, so BigGraph refuses the file";
        if options.lenient {
            let text = format!("{}: {message} (found {shown})", self.source.label());
            self.notes.push(Note::new("format-version", text));
            return Ok(self);
        }
        let error = if number {
            Error::unsupported("format-version", message)
        } else {
            Error::corrupt("format-version", message)
        };
        Err(error
            .in_file(self.source.label())
            .expected("the number 1 as attribute format_version of the root")
            .found(shown)
            .hint(phrase![Opt::Lenient, " reads it as version 1"]))
    }

    /// Root attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&Value> {
        self.contents.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// All root attributes, in file order.
    pub(super) fn attributes(&self) -> Vec<(Name, Value)> {
        self.contents
            .attributes
            .iter()
            .map(|(name, value)| (Name::from(name.as_str()), value.clone()))
            .collect()
    }

    /// Text of the configuration that the file was written with.
    pub(super) fn config_text(&self) -> Option<&str> {
        match self.attribute(CONFIG_JSON) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Groups and datasets.
    pub(super) fn items(&self) -> &[Item] {
        &self.contents.items
    }

    /// Dataset at this path.
    pub(super) fn dataset(&self, path: &[&str]) -> Option<&Dataset> {
        let at = |item: &&Item| item.path.iter().map(String::as_str).eq(path.iter().copied());
        self.contents.items.iter().find(at).and_then(|item| item.dataset.as_ref())
    }

    /// Error for a missing dataset.
    pub(super) fn missing(&self, path: &[&str]) -> Error {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let name = path.join("/");
        let message = if self.broken.contains(&path) {
            format!("the dataset {name} is unreadable")
        } else {
            format!("the dataset {name} is missing")
        };
        Error::corrupt("dataset-missing", message).in_file(self.source.label())
    }

    /// Notes datasets unknown to BigGraph, as decided by `known`.
    pub(super) fn note_unknown(&mut self, known: impl Fn(&[String]) -> bool) {
        let unknown = |item: &&Item| item.dataset.is_some() && !known(&item.path);
        let label = self.source.label();
        let note = |item: &Item| {
            let reason = format!("a dataset of {label} that BigGraph does not use");
            Note::skipped_tensor(item.path.join("."), reason)
        };
        self.notes.extend(self.contents.items.iter().filter(unknown).map(note));
    }
}

/// Dataset as a tensor.
///
/// # Errors
/// `dataset-type` if its elements are not numbers.
pub(super) fn numbers(dataset: &Dataset, name: TensorPath) -> Result<TensorEntry> {
    match &dataset.kind {
        hdf5::Kind::Numbers(..) => dataset.entry(name),
        other => Err(Error::corrupt("dataset-type", "the dataset has no numeric type")
            .on_tensor(&name)
            .found(format_args!("{other:?}"))),
    }
}

/// Attributes of a group or dataset as tensor attributes.
pub(super) fn entry_attributes(own: &hdf5::Attributes) -> Attributes {
    own.iter().cloned().collect()
}
