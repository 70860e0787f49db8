//! Effective configuration of an opened checkpoint. Readers and writers must use the same one: reading
//! numbers the optimizer state by it.
//!
//! 1. the one named by the caller, or found next to files without one: metadata `config`
//! 2. the one in the files: attribute `config/json`

use super::detect::CONFIG_JSON;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;

/// Text of the effective configuration, if any.
pub(super) fn config_text(checkpoint: &Checkpoint) -> Option<&str> {
    match checkpoint.metadata.get(super::edges::CONFIG) {
        Some(Value::Text(text)) => Some(text),
        _ => stored_text(checkpoint),
    }
}

/// Text of the configuration stored in the files.
pub(super) fn stored_text(checkpoint: &Checkpoint) -> Option<&str> {
    let Some(Value::Map(attributes)) = checkpoint.metadata.get("attributes") else { return None };
    match attributes.iter().find(|(name, _)| name.as_str() == Some(CONFIG_JSON)) {
        Some((_, Value::Text(text))) => Some(text),
        _ => None,
    }
}

/// Text of the configuration stored in a model or embeddings file, from the run that wrote
/// the file; `None` if it has none.
///
/// # Errors
/// Like [`weighbridge_hdf5::read`], if the file cannot be read.
pub(crate) fn text_in_file(source: &SourceRef) -> Result<Option<String>> {
    let contents = weighbridge_hdf5::read(source, &Limits::default())?;
    let found = contents.attributes.into_iter().find(|(name, _)| name == CONFIG_JSON);
    Ok(match found {
        Some((_, Value::Text(text))) => Some(text),
        _ => None,
    })
}
