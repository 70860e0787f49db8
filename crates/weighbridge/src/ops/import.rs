//! Import of edge lists into BigGraph's input folders.

use crate::formats::biggraph::config::Config;
use crate::formats::biggraph::import::{
    Columns, EdgeFile, EntityOrder, Import, ImportLayout, ImportReport, TextForm,
};
#[cfg(feature = "tables")]
use crate::formats::records::{CellKind, Pick, TableFile};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Pattern, PatternBudget};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::text::{first_and_more, path_text};
#[cfg(feature = "tables")]
use weighbridge_core::{limits::Limits, phrase, phrase::Opt};
use weighbridge_format::OpenOptions;
use weighbridge_io::engine::{Disk, ItemKind, LocalDisk, RunOptions};
use weighbridge_io::source::{FileSource, SourceRef};

/// Maximum number of edge paths that a hint names.
const MAX_NAMED: usize = 8;

/// Options of [`import`].
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Configuration: JSON, or a Python file whose function returns a literal dictionary.
    pub config: PathBuf,
    /// Form of text; by the names of the files if `None`.
    pub form: Option<TextForm>,
    /// Columns of the files. `None`: lhs, rel, rhs, or those of a table by their names; see [`Columns::find`].
    pub columns: Option<Columns>,
    /// Skips the first line of each file of text.
    pub header: bool,
    /// Order of the entities.
    pub order: EntityOrder,
    /// Seed of the random order.
    pub seed: u64,
    /// Gives the ids and files of upstream's importer; see [`Import::like_upstream`].
    pub like_upstream: bool,
    /// Drops entities with fewer uses.
    pub entity_min_count: u64,
    /// Drops dynamic relations with fewer uses.
    pub relation_min_count: u64,
    /// Number of malformed lines and rows that are skipped.
    pub skip_bad: u64,
    /// Replaces an existing target.
    pub force: bool,
    /// Threads, memory, syncing, progress.
    pub run: RunOptions,
}

impl ImportOptions {
    /// Returns the default options with a configuration.
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self {
            config: config.into(),
            form: None,
            columns: None,
            header: false,
            order: EntityOrder::default(),
            seed: 0,
            like_upstream: false,
            entity_min_count: 1,
            relation_min_count: 1,
            skip_bad: 0,
            force: false,
            run: RunOptions { memory: 1 << 30, ..RunOptions::default() },
        }
    }
}

/// Import that is done.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Target folder.
    pub target: String,
    /// Counts.
    pub report: ImportReport,
    /// Oddities of the configuration and of the inputs.
    pub findings: Vec<Finding>,
}

/// Imports edge lists into the folder `target`, all or nothing.
///
/// An input is a file (text, Parquet or Arrow), a folder with files, or a pattern with `*` and `?` in its last part. With several
/// edge paths in the configuration: one input for each, in their order, or `NAME=PATH`, where `NAME` is the last part of the edge
/// path. With one edge path, all inputs go to it.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `edge-sets`, if the inputs do not fit the edge paths; and those of [`Import::run`].
pub fn import(inputs: &[String], target: &Path, options: &ImportOptions) -> Result<Imported> {
    let (config, mut findings) = configuration(&options.config)?;
    let sets = sets(inputs, &config, options)?;
    let mut import = Import::new(config, sets);
    import.columns = options.columns.clone();
    import.header = options.header;
    import.order = options.order;
    import.seed = options.seed;
    import.like_upstream = options.like_upstream;
    import.entity_min_count = options.entity_min_count;
    import.relation_min_count = options.relation_min_count;
    import.skip_bad = options.skip_bad;
    import.force = options.force;
    import.run = options.run.clone();
    let report = import.run(target)?;
    if report.edges.iter().all(|set| set.edges == 0 && set.dropped == 0) {
        findings.push(Finding::warning("no-edges", "the inputs have no edges"));
    }
    Ok(Imported { target: path_text(target), report, findings })
}

fn configuration(path: &Path) -> Result<(Config, Vec<Finding>)> {
    let source: SourceRef = Arc::new(FileSource::open(path)?);
    Config::read(&source, &OpenOptions::default())
}

/// Describes the folders, buckets, entity types and relations of a configuration, for an import that another program runs.
///
/// # Errors
/// Those of [`Config::read`] and [`ImportLayout::of`].
pub fn import_layout(config: &Path) -> Result<Json> {
    let (config, _) = configuration(config)?;
    let layout = ImportLayout::of(&config)?;
    if let Some((name, _)) = config.entities.iter().find(|(_, own)| own.featurized) {
        return Err(Error::unsupported(
            "featurised",
            "entity types with features are imported on one machine only",
        )
        .found(name));
    }
    let entities = config.entities.iter().map(|(name, own)| json!([name, own.num_partitions]));
    let relations = config.relations.iter().map(|own| json!([own.name, own.lhs, own.rhs]));
    let sets = config.edge_paths.iter().zip(layout.folders.edges);
    Ok(json!({
        "entities": entities.collect::<Vec<_>>(),
        "relations": relations.collect::<Vec<_>>(),
        "dynamic_relations": config.dynamic_relations,
        "entity_folder": layout.folders.entities,
        "sets": sets.map(|(path, folder)| json!([last_part(path), folder])).collect::<Vec<_>>(),
        "buckets": layout.buckets,
    }))
}

/// Assigns the inputs to the edge paths.
fn sets(inputs: &[String], config: &Config, options: &ImportOptions) -> Result<Vec<Vec<EdgeFile>>> {
    let names: Vec<&str> = config.edge_paths.iter().map(|path| last_part(path)).collect();
    let mut sets: Vec<Vec<EdgeFile>> = vec![Vec::new(); names.len()];
    let named = |input: &str| {
        let (set, path) = input.split_once('=')?;
        Some((names.iter().position(|name| *name == set)?, path.to_owned()))
    };
    let places: Vec<Option<(usize, String)>> = inputs.iter().map(|input| named(input)).collect();
    let is_any_named = places.iter().any(Option::is_some);
    for (at, (input, place)) in inputs.iter().zip(places).enumerate() {
        let (set, path) = match place {
            Some(place) => place,
            None if names.len() == 1 => (0, input.clone()),
            None if names.len() == inputs.len() && !is_any_named => (at, input.clone()),
            None => {
                let inputs = inputs.iter().map(String::as_str);
                return Err(unassigned(&names, &first_and_more(inputs, MAX_NAMED)));
            }
        };
        for path in files(&path)? {
            let source = FileSource::open(&path).map_err(|error| match input.split_once('=') {
                Some((name, _)) if error.code().as_str() == "not-found" && !names.contains(&name) => {
                    let known = first_and_more(names.iter().map(|name| format!("`{name}`")), MAX_NAMED);
                    error.hint(format!("the configuration has no edge path `{name}`; it has {known}"))
                }
                _ => error,
            })?;
            sets[set].push(edge_file(Arc::new(source), options)?);
        }
    }
    match names.iter().zip(&sets).find(|(_, files)| files.is_empty()) {
        Some((name, _)) => Err(unassigned(&names, &format!("no file for {name}"))),
        None => Ok(sets),
    }
}

/// Opens a file with edges: a table by its first bytes, text otherwise.
fn edge_file(source: SourceRef, options: &ImportOptions) -> Result<EdgeFile> {
    #[cfg(feature = "tables")]
    if TableFile::is_table(&source)? {
        if let Some(form) = options.form {
            return Err(Error::usage("bad-form", "the file is a table, not text")
                .in_file(source.label())
                .expected(format_args!("text in the form {}", form.name()))
                .found("Parquet or Arrow")
                .hint(phrase!["the form of a table is recognized without ", Opt::From]));
        }
        let table = TableFile::open(&source, &Limits::default())?;
        let columns = Columns::find(options.columns.as_ref(), &table.columns());
        let pick = |(place, name): (usize, &str)| {
            let kind = if name == "weight" { CellKind::Number } else { CellKind::Text };
            Pick { place, name: name.to_owned(), kind }
        };
        let picks: Vec<Pick> =
            columns.map_err(|error| error.in_file(source.label()))?.into_iter().map(pick).collect();
        return Ok(EdgeFile::of_records(source, table.records(&picks)?));
    }
    let form = if options.like_upstream { options.form.or(Some(TextForm::Words)) } else { options.form };
    EdgeFile::new(source, form)
}

fn unassigned(names: &[&str], found: &str) -> Error {
    let example = names.iter().map(|name| format!("{name}={name}.tsv")).collect::<Vec<_>>().join(" ");
    Error::usage("edge-sets", "the inputs do not fit the edge paths of the configuration")
        .expected(format_args!("one input for each of {} edge paths, or {example}", names.len()))
        .found(found)
}

fn last_part(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// Files of a path: itself, the files of a folder, or those that match its last part. Files whose names
/// begin with `_` or `.` are skipped: programs mark folders with them.
fn files(path: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(path);
    let (folder, pattern) = match path.file_name().and_then(|name| name.to_str()) {
        _ if path.is_dir() => (path, None),
        Some(name) if name.contains(['*', '?']) && !path.exists() => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            (folder.unwrap_or(Path::new(".")), Some(Pattern::glob(name, &PatternBudget::default())?))
        }
        _ => return Ok(vec![path.to_owned()]),
    };
    let mut found = Vec::new();
    for item in LocalDisk.list(folder)? {
        let name = item.name.to_string_lossy();
        let is_file = matches!(item.kind, ItemKind::File(_) | ItemKind::Link { len: Some(_), .. });
        let is_meant = match &pattern {
            Some(pattern) => pattern.is_match(&name),
            None => !name.starts_with(['_', '.']),
        };
        if is_file && is_meant {
            found.push(folder.join(&item.name));
        }
    }
    if found.is_empty() {
        let what = if pattern.is_some() { "no file matches the pattern" } else { "the folder has no files" };
        return Err(Error::usage("edge-sets", what).in_file(path.display()).expected("files with edges"));
    }
    Ok(found)
}

impl Imported {
    /// Returns the document of `--json`.
    pub fn to_json(&self) -> Json {
        let names = |own: &crate::formats::biggraph::import::ImportedNames| json!({"name": own.name, "found": own.found, "kept": own.kept, "partitions": own.partitions});
        let edges = self.report.edges.iter().map(|own| {
            json!({"folder": own.folder, "edges": own.edges, "dropped": own.dropped, "bad_lines": own.bad_lines,
                "buckets": own.buckets})
        });
        json!({
            "target": self.target,
            "edges": edges.collect::<Vec<_>>(),
            "entities": self.report.entities.iter().map(names).collect::<Vec<_>>(),
            "relations": {"found": self.report.relations.found, "kept": self.report.relations.kept},
            "files": self.report.files,
            "bytes": self.report.bytes,
            "resumed": self.report.resumed,
        })
    }
}
