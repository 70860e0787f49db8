//! Which configuration counts for an opened checkpoint. Everything that asks, asks here: reading numbers
//! the optimizer's state by it, and writing must not number it by another.
//!
//! 1. the one that the caller named, or that was found beside files that have none: metadata `config`
//! 2. the one in the files: attribute `config/json`

use super::detect::CONFIG_JSON;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;

/// The text of the configuration that counts, where there is any.
pub(super) fn config_text(checkpoint: &Checkpoint) -> Option<&str> {
    match checkpoint.metadata.get(super::edges::CONFIG) {
        Some(Value::Text(text)) => Some(text),
        _ => stored_text(checkpoint),
    }
}

/// The text of the configuration that stands in the files.
pub(super) fn stored_text(checkpoint: &Checkpoint) -> Option<&str> {
    let Some(Value::Map(attributes)) = checkpoint.metadata.get("attributes") else { return None };
    match attributes.iter().find(|(name, _)| name.as_str() == Some(CONFIG_JSON)) {
        Some((_, Value::Text(text))) => Some(text),
        _ => None,
    }
}

/// The text of the configuration that stands in a file of a model or of embeddings, which is that of
/// the run that wrote it; `None` where it has none.
///
/// # Errors
/// As [`weighbridge_hdf5::read`], where the file cannot be read.
pub(crate) fn text_in_file(source: &SourceRef) -> Result<Option<String>> {
    let contents = weighbridge_hdf5::read(source, &Limits::default())?;
    let found = contents.attributes.into_iter().find(|(name, _)| name == CONFIG_JSON);
    Ok(match found {
        Some((_, Value::Text(text))) => Some(text),
        _ => None,
    })
}
