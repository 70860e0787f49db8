//! Losses for content of other formats that BigGraph files cannot hold.

use super::super::align::ALIGNED;
use super::super::read::BUCKET;
use super::model::{self, STEP};
use super::tables::{self, EMBEDDINGS, Table};
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Loss, Name, Role, TensorEntry, TensorPath, escape_text,
};

/// Metadata keys that are stored in BigGraph files.
const KEYS: [&str; 10] = [
    "attributes",
    "config",
    "counts",
    "dynamic_relations",
    "format_version",
    "optimizer",
    "partition",
    "partitions",
    "relation_names",
    "version",
];
/// Tensor attributes that are stored in BigGraph files.
const ATTRIBUTES: [&str; 5] = [ALIGNED, BUCKET, Attributes::RENAMED_FROM, Attributes::SALVAGED_ROWS, STEP];

/// Losses of metadata and attributes. A checkpoint read from BigGraph files has none.
pub(super) fn losses(checkpoint: &Checkpoint) -> Vec<Loss> {
    let carried = checkpoint.carried_origin().is_some_and(|origin| origin.format == super::ID);
    if checkpoint.format == super::ID || carried {
        return Vec::new();
    }
    let keys = checkpoint.metadata.iter().filter(|(key, _)| !KEYS.contains(key));
    let detail = "metadata dropped: BigGraph files have no place for it";
    let mut losses: Vec<Loss> =
        keys.map(|(key, _)| Loss::new("metadata-dropped", escape_text(key), detail)).collect();
    let written = |tensor: &&TensorEntry| tables::is_table(tensor) || model::is_parameter(&tensor.path);
    for tensor in checkpoint.tensors.iter().filter(written) {
        for key in tensor.attributes.keys().filter(|key| !ATTRIBUTES.contains(&key.as_str())) {
            let detail =
                format!("attribute dropped: BigGraph files have no place for `{}`", escape_text(key));
            losses.push(Loss::new("attribute-dropped", tensor.name(), detail));
        }
    }
    losses
}

/// Losses of names and roles. Tables of a folder are identified by their type, so other name parts and another role are not restored.
/// A table named by its type alone is written as `embeddings.TYPE` without a loss.
pub(super) fn names(tables: &[Table<'_>]) -> Vec<Loss> {
    let of = |table: &Table<'_>| {
        let entity = || Name::from(table.entity.as_str());
        let path = TensorPath::new(vec![Name::from(EMBEDDINGS), entity()]);
        let is_named = table.rows.path == path || table.rows.path == TensorPath::new(vec![entity()]);
        let is_same = is_named && matches!(table.rows.role, Role::Embedding | Role::Parameter);
        (!is_same).then(|| {
            let role = match &table.rows.role {
                Role::Embedding | Role::Parameter => String::new(),
                role => format!("the {} is ", role.as_str()),
            };
            let detail = format!("{role}stored as {path} (entity type `{}`)", escape_text(&table.entity));
            Loss::new("name-changed", table.rows.name(), detail)
        })
    };
    tables.iter().filter_map(of).collect()
}
