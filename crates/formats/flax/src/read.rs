//! Reader: file to checkpoint.

use crate::keys::{ARRAYS, LEAVES};
use crate::tree::{Content, TreeReader};
use crate::{ARRAY_KIND, TREE, roles};
use weighbridge_core::ErrorCode;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, Damage, Metadata, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Reads the index of `source`.
///
/// # Errors
/// As [`TreeReader::read`].
pub(crate) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut reader = TreeReader::new(source, &options.limits);
    reader.read(options).map_err(|error| on_leaf(error, &reader))?;
    Ok(checkpoint(std::mem::take(&mut reader.content), source.label()))
}

/// Errors that a damaged header of a map causes, possibly far behind it: names end up in other maps than before.
const MISPLACED: [ErrorCode; 4] =
    [ErrorCode::DuplicateKey, ErrorCode::FlaxKey, ErrorCode::MsgpackMarker, ErrorCode::TrailingBytes];

/// Reads the tensors before the damage that `error` reports.
///
/// # Errors
/// The error itself if the names before it are uncertain.
pub(crate) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let mut reader = TreeReader::new(source, &options.limits);
    let read = reader.read(options).map_err(|error| on_leaf(error, &reader));
    let lost = match read {
        Err(error) if Damage::is(&error) && !MISPLACED.contains(&error.code()) => {
            Some((reader.path().to_text(), error))
        }
        read => read.map(|()| None)?,
    };
    let mut content = std::mem::take(&mut reader.content);
    // Flax writes lists as maps: an unfinished array may be a damaged value with the next ones in it.
    let path = reader.path();
    let array = content.arrays.iter().find(|array| lost.is_some() && path.starts_with(array)).cloned();
    let in_array = |path: &TensorPath| array.as_ref().is_some_and(|array| path.starts_with(array));
    let (dropped, kept) = content.tensors.into_iter().partition::<Vec<_>, _>(|tensor| in_array(&tensor.path));
    content.tensors = kept;
    let mut checkpoint = checkpoint(content, source.label());
    checkpoint.damage_mut(error);
    for tensor in dropped {
        let reason = Error::corrupt("truncated", "the list of the tensor is incomplete");
        checkpoint.lose(tensor.path.to_text(), &reason);
    }
    if let Some((path, reason)) = lost {
        let name = if path.is_empty() { "(the root)".to_owned() } else { path };
        checkpoint.lose(name, &reason);
    }
    Ok(checkpoint)
}

/// Adds the path of the faulty leaf to an error.
fn on_leaf(error: Error, reader: &TreeReader<'_>) -> Error {
    let path = reader.path();
    if path.parts().is_empty() || error.tensor().is_some() { error } else { error.on_tensor(path) }
}

fn checkpoint(mut content: Content, label: &str) -> Checkpoint {
    let kind = if content.is_bare { ARRAY_KIND } else { TREE };
    let mut checkpoint = Checkpoint::new("flax", kind, label);
    let is_index = |value: &Value, path: &[_]| matches!((value, path), (Value::Text(_), [name]) if *name == Metadata::INDEX_KEY.into());
    let index = content.values.iter().position(|leaf| is_index(&leaf.value, leaf.path.parts()));
    let index = index.map(|place| content.values.remove(place).value);
    checkpoint.metadata = content.metadata();
    checkpoint.notes = content.notes;
    checkpoint.tensors = content.tensors;
    roles::assign(&mut checkpoint.tensors);
    if let Some(Value::Text(index)) = index {
        let names: Vec<String> =
            checkpoint.tensors.iter().map(|one| crate::keys::key_of(&one.path)).collect();
        checkpoint.restore_bridge_index(&names, &index);
    }
    checkpoint
}

/// Returns true for metadata about the file: the places of values in the tree.
pub(crate) fn is_format_metadata(key: &str) -> bool {
    [LEAVES, ARRAYS]
        .iter()
        .any(|own| key.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Outlines the bytes around the elements: MessagePack up to the end of the tree.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let mut reader = TreeReader::new(source, limits);
    reader.tree()?;
    let mut outline = Outline::new(Gaps::Forbidden);
    let skipped = reader.content.notes.iter().any(|note| note.skipped.is_some());
    match skipped {
        // The elements of skipped tensors are between the headers.
        true => outline.unread(0, reader.position(), "msgpack and skipped tensors"),
        false => outline.header(0, reader.position(), "msgpack"),
    }
    Ok(outline)
}

/// Returns the names of tensors in indexes of shards.
pub(crate) fn shard_names(tensors: &[TensorEntry]) -> Vec<String> {
    let joined = |tensor: &TensorEntry| {
        let parts: Vec<String> =
            tensor.path.parts().iter().map(weighbridge_core::checkpoint::Name::to_text).collect();
        parts.join("/")
    };
    tensors.iter().map(joined).collect()
}
