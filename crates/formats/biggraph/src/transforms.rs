//! BigGraph-specific index transforms for conversions.

use super::{InitEmbeddings, add_entities, init_embeddings, rows, text};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, IndexTransform, Note, RowNameList, TransformReport};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::source::{SourceRef, read_vec};
use weighbridge_io::source::FileSource;

/// Bytes of a name list in which its form is detected.
const HEAD: u64 = 64;

/// Turns an entity folder into tables of initial embeddings: see [`init_embeddings`](super::init_embeddings()).
impl IndexTransform for InitEmbeddings {
    fn apply(&self, checkpoint: &mut Checkpoint, _: &mut TransformReport) -> Result<()> {
        init_embeddings(checkpoint, *self)
    }
}

/// Adds rows for new entities to a table: see [`add_entities`](super::add_entities()).
#[derive(Debug, Clone)]
pub struct AddEntities {
    /// Entity type.
    pub entity: String,
    /// Names of the new entities.
    pub names: RowNameList,
    /// Random seed of the new rows.
    pub seed: u64,
}

impl AddEntities {
    /// Reads the names from a file, as [`read_name_list`].
    ///
    /// # Errors
    /// As [`read_name_list`].
    pub fn read(entity: impl Into<String>, path: &Path, seed: u64, limits: &Limits) -> Result<Self> {
        Ok(Self { entity: entity.into(), names: read_name_list(path, limits)?, seed })
    }
}

/// Reads names from a file: a JSON array of strings, or one name per line.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Corrupt`] for an invalid list, `empty-name` for an
/// empty name; [`weighbridge_core::Kind::Limit`] for a file above the limits.
pub fn read_name_list(path: &Path, limits: &Limits) -> Result<RowNameList> {
    let source: SourceRef = Arc::new(FileSource::open(path)?);
    let mut names = RowNameList::new();
    let head = read_vec(&*source, 0, source.len().min(HEAD))?;
    if head.trim_ascii_start().starts_with(b"[") {
        text::read_names(&source, limits, None, &mut names)?;
    } else {
        Limits::check_part("bytes of names", "header_bytes", source.len(), limits.header_bytes, 1)?;
        let text = String::from_utf8(read_vec(&*source, 0, source.len())?)
            .map_err(|_| Error::corrupt("not-utf8", "the names are not UTF-8").in_file(source.label()))?;
        text.lines().for_each(|name| names.push(name));
    }
    if let Some(row) = names.iter().position(str::is_empty) {
        return Err(Error::corrupt("empty-name", "an entity name is empty")
            .in_file(source.label())
            .found(format_args!("name {} of {}", row + 1, names.len()))
            .hint("write one name per line, without empty lines; or a JSON array of names"));
    }
    Ok(names)
}

impl IndexTransform for AddEntities {
    fn apply(&self, checkpoint: &mut Checkpoint, _: &mut TransformReport) -> Result<()> {
        add_entities(checkpoint, &self.entity, &self.names, self.seed)
    }
}

/// Transform that adds the global embedding of each type to the rows of its table.
#[derive(Debug, Clone, Copy)]
pub struct WithGlobal;

impl IndexTransform for WithGlobal {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        if rows::add_global_embeddings(checkpoint)? == 0 {
            let text = "no type has a global embedding: rows are written unchanged";
            report.notes.push(Note::new("no-global-embedding", text));
        }
        Ok(())
    }
}
