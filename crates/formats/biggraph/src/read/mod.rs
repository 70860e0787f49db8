//! Index of files and folders.
//!
//! | module | opens |
//! | --- | --- |
//! | `file` | any HDF5 file of BigGraph: attributes, `format_version` |
//! | `part`, `table` | an embeddings partition; the partitions of a type as one table |
//! | `model` | parameters of operators, with their optimizer state |
//! | `edges`, `edge_folder` | an edge bucket; a folder of them |
//! | `entities`, `names` | entity counts and names, alone and as row names of tables |
//! | `version`, `checkpoint` | selection of a version; that version |
//! | `config` | configurations in any place |

mod checkpoint;
mod config;
mod edge_folder;
mod edges;
mod entities;
mod file;
mod model;
mod names;
mod notes;
mod optimizer;
pub(super) mod parallel;
mod part;
mod table;
mod version;

pub(super) use config::{given as given_config, lenient as parse_config, parameters};
pub(super) use edges::{BUCKET, LISTS};
pub(crate) use entities::{entity_files, relation_rows};
pub(crate) use names::Entities;
pub(super) use names::{lists_of, numbers};
#[cfg(feature = "scan")]
pub(crate) use optimizer::STATE;
pub(super) use part::{STEP, table_path};

use super::detect::{FileKind, detect};
use super::layout::{FileName, Listing};
use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Name, Origin, Value};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::{HEAD, OpenOptions};
use weighbridge_hdf5 as hdf5;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Kind of a checkpoint folder.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// Kind of a folder to start training from: version 0 without a version file.
pub(super) const INIT: &str = "init";
/// Kind of edges: a folder or a file.
pub(super) const EDGES: &str = "edges";
/// Kind of an entity folder.
pub(super) const ENTITIES: &str = "entities";
/// Kind of a file of one partition.
pub(super) const EMBEDDINGS: &str = "embeddings";
/// Kind of a model file.
pub(super) const MODEL: &str = "model";
/// Kind of a single configuration.
pub(super) const CONFIG: &str = "config";

/// Maximum number of partitions of all types together. File names are untrusted: one could claim to be the
/// last of 2^64.
pub(super) const MAX_ALL_PARTITIONS: u64 = 50_000;

/// Outline: HDF5 structures; a text file is a single item.
pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    match hdf5::is_hdf5(source) {
        true => hdf5::outline(source, limits),
        false => weighbridge_format::outline::text(source, "text"),
    }
}

/// Empty index of this kind.
fn checkpoint(kind: &'static str, label: &str) -> Checkpoint {
    let mut checkpoint = Checkpoint::new("biggraph", kind, label);
    checkpoint.origin = Some(Origin { format: "biggraph".to_owned(), kind: kind.to_owned() });
    checkpoint
}

/// Adds a file of the folder to the sources read, if it exists.
fn was_read(checkpoint: &mut Checkpoint, folder: &FolderRef, name: &FileName) -> Result<()> {
    checkpoint.files.extend(folder.open(Path::new(&name.to_string()))?);
    Ok(())
}

/// True for errors about file contents, which lenient reading turns into notes.
fn is_content(error: &Error) -> bool {
    !matches!(error.kind(), Kind::Io | Kind::Usage | Kind::Cancelled)
}

/// True where a file with this head is BigGraph's. Read errors count as false here;
/// opening the file reports them.
pub(super) fn recognises(head: &[u8], source: &SourceRef) -> bool {
    matches!(detect(head, source), Ok(Some(_))) || config::looks_like_config(head)
}

/// Opens a single file.
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    open_file(source, None, options)
}

/// Opens a file with its name and folder as context.
pub(super) fn open_beside(
    source: &SourceRef,
    folder: &FolderRef,
    name: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    open_file(source, Some((folder, name)), options)
}

fn open_file(
    source: &SourceRef,
    place: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    let name = place.and_then(|(_, name)| name.to_str()).and_then(FileName::parse);
    let kind = match detect(&head, source)? {
        Some(kind) => kind,
        // The caller requested BigGraph, so the file name may decide.
        None => match name {
            Some(FileName::Edges { .. }) => FileKind::Edges,
            Some(FileName::Embeddings { .. }) => FileKind::Embeddings,
            Some(FileName::Model { .. }) => FileKind::Model,
            _ => return config::open(source, options),
        },
    };
    match kind {
        FileKind::Edges => open_edges(source, place.map(|(folder, _)| folder), options),
        FileKind::Embeddings => open_part(source, name, options),
        FileKind::Model => open_model(source, name, options),
    }
}

fn open_edges(source: &SourceRef, folder: Option<&FolderRef>, options: &OpenOptions) -> Result<Checkpoint> {
    let mut found = checkpoint(EDGES, source.label());
    let edges = edges::open(source, None, options)?;
    found.tensors = edges.columns;
    found.notes = edges.notes;
    if let Some(version) = edges.version {
        found.metadata.set("format_version", version);
    }
    edge_folder::add_meaning(&mut found, folder, options)?;
    Ok(found)
}

fn open_part(source: &SourceRef, name: Option<FileName>, options: &OpenOptions) -> Result<Checkpoint> {
    let mut found = checkpoint(EMBEDDINGS, source.label());
    let (entity, number) = match &name {
        Some(FileName::Embeddings { entity, part, version }) => {
            found.metadata.set("version", Value::U64(*version));
            (Some(entity.as_str()), Some(*part))
        }
        _ => (None, None),
    };
    let part = part::open(source, entity, options)?;
    if part.rows.shape.rank() != 2 {
        let text = format!("the embeddings have shape {}; BigGraph requires two dimensions", part.rows.shape);
        found.notes.push(weighbridge_core::checkpoint::Note::new("embeddings-shape", text));
    }
    found.metadata.set("attributes", Value::Map(part.attributes));
    if let Some(number) = number {
        found.metadata.set("partition", Value::U64(number));
    }
    let rows = part.rows.shape.dims().first().copied().map_or(Value::Null, Value::U64);
    let partitions = vec![(Name::from(entity.unwrap_or("")), Value::List(vec![rows]))];
    found.metadata.set("partitions", Value::Map(partitions));
    let embeddings = vec![(Name::from(entity.unwrap_or("")), Value::List(vec![part.optimizer]))];
    let optimizer = vec![(Name::from("embeddings"), Value::Map(embeddings))];
    found.metadata.set("optimizer", Value::Map(optimizer));
    found.tensors.push(part.rows);
    if let (Some(mut sum), step) = (part.sum, part.step) {
        sum.attributes.extend(step.map(|step| (STEP.to_owned(), step)));
        found.tensors.push(sum);
    }
    found.notes.extend(part.notes);
    if let (Some(entity), Some(number)) = (entity, number) {
        let config = config::given(options)?;
        names::attach_to_part(&mut found, entity, number, config.as_ref().map(|k| &k.config), options)?;
    }
    Ok(found)
}

fn open_model(source: &SourceRef, name: Option<FileName>, options: &OpenOptions) -> Result<Checkpoint> {
    let mut found = checkpoint(MODEL, source.label());
    if let Some(FileName::Model { version }) = name {
        found.metadata.set("version", Value::U64(version));
    }
    let given = config::given(options)?;
    let model = model::open(source, given.as_ref().map(|known| &known.config), None, options)?;
    if let Some(known) = given {
        found.metadata.set("config", Value::Text(known.text));
    }
    found.metadata.set("attributes", Value::Map(model.attributes));
    found.metadata.set("optimizer", Value::Map(vec![(Name::from("model"), model.optimizer)]));
    found.tensors = model.tensors;
    found.notes = model.notes;
    Ok(found)
}

/// Content of a folder, by its file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderKind {
    Checkpoint,
    Edges,
    Entities,
    Config,
}

impl FolderKind {
    /// If a folder contains several, a checkpoint precedes edges, and edges precede entities.
    fn of(listing: &Listing) -> Option<Self> {
        if listing.version_file || !listing.versions.is_empty() {
            Some(Self::Checkpoint)
        } else if !listing.edges.is_empty() || !listing.unfinished_edges.is_empty() {
            Some(Self::Edges)
        } else if !listing.counts.is_empty() || !listing.names.is_empty() {
            Some(Self::Entities)
        } else if listing.config {
            Some(Self::Config)
        } else {
            None
        }
    }
}

/// True for a BigGraph folder, by its file names.
pub(super) fn recognises_folder(folder: &FolderRef) -> bool {
    let Ok(items) = folder.list(1) else { return false };
    match FolderKind::of(&Listing::of(items.iter().map(|item| item.name.as_path()))) {
        // Many tools have a file of that name.
        Some(FolderKind::Config) => config::beside(folder).is_ok_and(|found| found.is_some()),
        kind => kind.is_some(),
    }
}

/// Opens a folder.
pub(super) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let items = folder.list(2)?;
    let listing = Listing::of(items.iter().map(|item| item.name.as_path()));
    let mut found = match FolderKind::of(&listing) {
        Some(FolderKind::Checkpoint) => checkpoint::open(folder, &listing, options)?,
        Some(FolderKind::Edges) => edge_folder::open(folder, &listing, options)?,
        Some(FolderKind::Entities) => entities::open(folder, &listing, options)?,
        Some(FolderKind::Config) | None => match folder.open(Path::new(&FileName::Config.to_string()))? {
            Some(source) => config::open(&source, options)?,
            None => {
                return Err(Error::usage("not-a-model", "the folder contains no BigGraph file")
                    .in_file(folder.label()));
            }
        },
    };
    folder.label().clone_into(&mut found.label);
    Ok(found)
}
