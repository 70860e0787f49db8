//! Checkpoint folder: one version of its files as one index.

use super::super::config::Config;
use super::super::layout::{FileName, Listing, VersionFiles};
use super::config::Known;
use super::model::{self, Model};
use super::part::{self, Part};
use super::{config, names, notes, parallel, table, version};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use weighbridge_core::checkpoint::{self, Checkpoint, Name, Note, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Maximum number of missing partitions listed, per type and in total.
const MAX_LISTED: usize = 64;

/// Opened file of the version.
enum Opened {
    Model(Model),
    Part(Box<Part>),
}

/// Partitions of each type.
type Parts = BTreeMap<String, BTreeMap<u64, (SourceRef, Part)>>;

/// Files of a version.
#[derive(Debug, Default)]
struct Files {
    model: Option<Model>,
    parts: Parts,
    /// Notes on unreadable files.
    broken: Vec<Note>,
    /// Sources read.
    read: Vec<SourceRef>,
}

/// Missing files: a configuration can require any number of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Missing {
    pub(super) count: usize,
    /// Some of them.
    pub(super) first: Vec<FileName>,
}

impl Missing {
    fn of(names: impl Iterator<Item = FileName>) -> Self {
        let mut missing = Self::default();
        for name in names {
            missing.count += 1;
            if missing.first.len() < MAX_LISTED {
                missing.first.push(name);
            }
        }
        missing
    }

    fn extend(&mut self, more: Self) {
        self.count += more.count;
        let room = MAX_LISTED.saturating_sub(self.first.len());
        self.first.extend(more.first.into_iter().take(room));
    }
}

/// Opens one version of a checkpoint folder.
///
/// # Errors
/// Errors of [`version::choose`] and of the files; `partition-missing`, `model-missing`.
pub(super) fn open(folder: &FolderRef, listing: &Listing, options: &OpenOptions) -> Result<Checkpoint> {
    let given = config::given(options)?;
    let beside = config::beside(folder)?;
    // The folder's configuration is from the last run, possibly not the one that wrote the version.
    let fallback = given.as_ref().or(beside.as_ref());
    let (number, init, mut all_notes) =
        version::choose(folder, listing, fallback.map(|known| &known.config), options)?;
    let empty = VersionFiles::default();
    let files = listing.versions.get(&number).unwrap_or(&empty);
    let Files { model, parts, broken, read } =
        open_files(folder, files, number, given.as_ref(), beside.as_ref(), options)?;
    let broken_files = !broken.is_empty();
    all_notes.extend(broken);

    let attributes = Attributes::of(model.as_ref(), &parts);
    let stored = attributes.config_text().and_then(config::lenient);
    let of_given = given.as_ref().map(|known| &known.config);
    // The model's own configuration numbers its state, if the files have different ones.
    let own = model.as_ref().filter(|_| stored.is_none()).and_then(|model| config_in(&model.attributes));
    let own = own.and_then(|text| Some(Known { config: config::lenient(text)?, text: text.to_owned() }));
    let fallback = given.as_ref().or(own.as_ref()).or(beside.as_ref());
    let config = of_given.or(stored.as_ref()).or(fallback.map(|known| &known.config));
    let kind = if init { super::INIT } else { super::CHECKPOINT };
    let mut checkpoint = super::checkpoint(kind, folder.label());
    checkpoint.metadata.set("version", Value::U64(number));
    all_notes.extend(attributes.note());
    if let Some(known) = fallback.filter(|_| given.is_some() || stored.is_none()) {
        checkpoint.metadata.set("config", Value::Text(known.text.clone()));
    }
    checkpoint.metadata.set("attributes", Value::Map(attributes.common));

    let mut joining =
        Joining { checkpoint, notes: all_notes, missing: Missing::default(), number, init, options };
    let of_embeddings = joining.tables(config, files, parts)?;
    let Joining { mut checkpoint, notes: mut all_notes, missing, .. } = joining;
    all_notes.extend(notes::missing(&missing, init, folder, options)?);
    let of_model = match model {
        Some(model) => {
            checkpoint.tensors.extend(model.tensors);
            all_notes.extend(model.notes);
            model.optimizer
        }
        None => {
            // An existing but unreadable model was noted as such.
            let noted = files.model && broken_files;
            if options.salvage && !init {
                let error = Error::corrupt("model-missing", "the file is missing or unreadable");
                checkpoint.lose("(parameters of the model)", &error);
            }
            if !init && !noted {
                all_notes.push(notes::no_model(number, folder, options)?);
            }
            Value::Null
        }
    };
    let optimizer = vec![(Name::from("model"), of_model), (Name::from("embeddings"), of_embeddings)];
    checkpoint.metadata.set("optimizer", Value::Map(optimizer));
    Limits::check("tensors", "tensors", checkpoint.tensors.len() as u64, options.limits.tensors)?;
    for name in [FileName::Config, FileName::Stats] {
        let name = name.to_string();
        if let Some(source) = folder.open(Path::new(&name))? {
            checkpoint.companions.push((name, source));
        }
    }
    // A model without parameters or a partition without rows is also part of the version.
    checkpoint.files.extend(read);
    super::was_read(&mut checkpoint, folder, &FileName::Version)?;
    checkpoint.notes = all_notes;
    let of_folder = beside.as_ref().map(|known| &known.config).or(config);
    checkpoint.notes.extend(notes::of_folder(folder, listing, number, init, of_folder)?);
    names::attach(&mut checkpoint, folder, listing, config, options)?;
    Ok(checkpoint)
}

/// Tables of a version while they are joined.
struct Joining<'a> {
    checkpoint: Checkpoint,
    notes: Vec<Note>,
    missing: Missing,
    number: u64,
    /// True for initial values, which may be incomplete.
    init: bool,
    options: &'a OpenOptions,
}

impl Joining<'_> {
    /// Joins the partitions of each type. Returns the optimizer state stored as values, by type.
    fn tables(&mut self, config: Option<&Config>, files: &VersionFiles, mut parts: Parts) -> Result<Value> {
        // A type without relations has no files.
        let stored: HashMap<&str, u64> = config
            .into_iter()
            .flat_map(Config::stored_types)
            .map(|(name, entity)| (name, entity.num_partitions))
            .collect();
        let meant = |name: &str| stored.contains_key(name) || files.embeddings.contains_key(name);
        let types = config.map(Config::by_name);
        let (mut partitions, mut optimizers) = (Vec::new(), Vec::new());
        let mut all_parts = 0u64;
        for entity in order_of_types(config, meant, files) {
            if types.as_ref().is_some_and(|types| !types.contains_key(entity.as_str())) && !self.init {
                let text =
                    format!("embeddings of entity type {entity}, which the configuration does not have");
                self.notes.push(Note::new("unknown-type", text));
            }
            let wanted = stored.get(entity.as_str()).filter(|_| !self.init).copied();
            let last = files.embeddings.get(&entity).and_then(|all| all.last());
            let count = wanted.unwrap_or(0).max(last.map_or(0, |last| last.saturating_add(1)));
            all_parts = all_parts.saturating_add(count);
            Limits::check("partitions", "tensors", all_parts, super::MAX_ALL_PARTITIONS)?;
            let found = parts.remove(&entity).unwrap_or_default();
            if let Some(joined) = self.table(&entity, count, found)? {
                self.notes.extend(joined.notes);
                self.checkpoint.tensors.extend(joined.rows);
                self.checkpoint.tensors.extend(joined.sum);
                partitions.push((Name::from(entity.as_str()), Value::List(joined.counts)));
                optimizers.push((Name::from(entity.as_str()), Value::List(joined.optimizers)));
            }
        }
        self.checkpoint.metadata.set("partitions", Value::Map(partitions));
        Ok(Value::Map(optimizers))
    }

    /// Joins the `count` partitions of a type, as far as `found`; `None` if the table was skipped.
    fn table(
        &mut self,
        entity: &str,
        count: u64,
        found: BTreeMap<u64, (SourceRef, Part)>,
    ) -> Result<Option<table::Table>> {
        let absent = (0..count).filter(|part| !found.contains_key(part));
        let absent = Missing::of(absent.map(|part| FileName::Embeddings {
            entity: entity.to_owned(),
            part,
            version: self.number,
        }));
        let lost = match self.options.salvage && !self.init {
            true => absent.clone(),
            false => Missing::default(),
        };
        self.missing.extend(absent);
        let path = super::table_path(Some(entity));
        let error = Error::corrupt("partition-missing", "the partition is missing or unreadable");
        for name in &lost.first {
            self.checkpoint.lose(format_args!("{path} (rows of {name})"), &error);
        }
        if lost.count > lost.first.len() {
            let more = lost.count - lost.first.len();
            self.checkpoint.lose(format_args!("{path} (rows of {more} more partitions)"), &error);
        }
        let mut joined = match table::join(entity, count, found) {
            Ok(joined) => joined,
            Err(error) if self.options.lenient => {
                if self.options.salvage {
                    self.checkpoint.lose(path, &error);
                }
                let text = format!("table of {entity} skipped: {}", error.message());
                self.notes.push(Note::omission(error.code(), text));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if lost.count > 0 {
            let names = notes::some(lost.first.iter().map(FileName::to_string));
            let which = Value::Text(format!("without {} partitions: {names}", lost.count));
            for table in joined.rows.iter_mut().chain(&mut joined.sum) {
                table.attributes.insert(checkpoint::Attributes::SALVAGED_ROWS.to_owned(), which.clone());
            }
        }
        Ok(Some(joined))
    }
}

/// Types in the order of the configuration, if `meant`, then unknown types.
fn order_of_types(
    config: Option<&Config>,
    meant: impl Fn(&str) -> bool,
    files: &VersionFiles,
) -> Vec<String> {
    let known = config.into_iter().flat_map(|c| c.entities.iter().map(|(name, _)| name));
    let mut seen = HashSet::new();
    known
        .filter(|name| meant(name))
        .chain(files.embeddings.keys())
        .filter(|name| seen.insert(*name))
        .cloned()
        .collect()
}

/// Opens the files of a version in parallel. Unreadable files become notes if
/// `options.lenient`.
fn open_files(
    folder: &FolderRef,
    files: &VersionFiles,
    number: u64,
    given: Option<&Known>,
    beside: Option<&Known>,
    options: &OpenOptions,
) -> Result<Files> {
    let list: Vec<FileName> = files.names(number).collect();
    let open = |name: &FileName| -> Result<Option<(SourceRef, Opened)>> {
        let Some(source) = folder.open(Path::new(&name.to_string()))? else { return Ok(None) };
        let opened = match name {
            FileName::Embeddings { entity, .. } => {
                Opened::Part(Box::new(part::open(&source, Some(entity), options)?))
            }
            _ => Opened::Model(model::open(
                &source,
                given.map(|k| &k.config),
                beside.map(|k| &k.config),
                options,
            )?),
        };
        Ok(Some((source, opened)))
    };
    let mut all = Files::default();
    for (name, opened) in list.iter().zip(parallel::map(&list, open)) {
        match (name, opened) {
            (_, Ok(Some((source, Opened::Model(found))))) => {
                all.read.push(source);
                all.model = Some(found);
            }
            (FileName::Embeddings { entity, part, .. }, Ok(Some((source, Opened::Part(found))))) => {
                all.read.push(source.clone());
                all.parts.entry(entity.clone()).or_default().insert(*part, (source, *found));
            }
            (_, Ok(_)) => {}
            (_, Err(error)) if options.lenient && super::is_content(&error) => {
                let text = format!("{name} skipped: {}", error.message());
                all.broken.push(Note::omission(error.code(), text));
            }
            (_, Err(error)) => return Err(error),
        }
    }
    Ok(all)
}

/// Root attributes of the files of a version.
struct Attributes {
    /// Attributes that are equal in all files.
    common: Vec<(Name, Value)>,
    /// Names of the others.
    differ: Vec<String>,
}

impl Attributes {
    fn of(model: Option<&Model>, parts: &Parts) -> Self {
        let parts = parts.values().flat_map(BTreeMap::values).map(|(_, part)| &part.attributes);
        let mut all = model.map(|m| &m.attributes).into_iter().chain(parts);
        let mut found = Self { common: all.next().cloned().unwrap_or_default(), differ: Vec::new() };
        for other in all {
            if *other == found.common {
                continue;
            }
            let theirs: HashMap<&Name, &Value> = other.iter().map(|(name, value)| (name, value)).collect();
            let same = |(name, value): &(Name, Value)| theirs.get(name) == Some(&value);
            let (common, differ): (Vec<_>, Vec<_>) = found.common.drain(..).partition(same);
            found.differ.extend(differ.into_iter().map(|(name, _)| name.to_string()));
            let ours: HashSet<&Name> = common.iter().map(|(name, _)| name).collect();
            let more = other.iter().filter(|(name, _)| !ours.contains(name));
            found.differ.extend(more.map(|(name, _)| name.to_string()));
            found.common = common;
        }
        found.differ.sort_unstable();
        found.differ.dedup();
        found
    }

    fn config_text(&self) -> Option<&str> {
        config_in(&self.common)
    }

    fn note(&self) -> Option<Note> {
        let names = self.differ.join(", ");
        let text = format!("attributes differ between the files of the version: {names}");
        (!self.differ.is_empty()).then(|| Note::omission("attributes-differ", text))
    }
}

/// Configuration among the attributes of a file.
fn config_in(attributes: &[(Name, Value)]) -> Option<&str> {
    match attributes.iter().find(|(name, _)| name.as_str() == Some(super::super::detect::CONFIG_JSON)) {
        Some((_, Value::Text(text))) => Some(text),
        _ => None,
    }
}
