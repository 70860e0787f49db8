//! Comparison of an entity folder with the names of a checkpoint: edges have numbers of entities.

use super::super::scores::{Model, relation_names};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Name, RowNamesRef, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::text::escape;

/// Returns the first difference between the names in an opened entity folder and those of a checkpoint: of an entity type that the
/// relations use, or of a relation. Names that are unknown or cannot be read are not compared.
///
/// # Errors
/// Errors of an incomplete model, as [`evaluate`](super::evaluate()), and of reading the names of the checkpoint.
pub fn name_difference(checkpoint: &Checkpoint, names: &Checkpoint) -> Result<Option<String>> {
    let model = Model::of(checkpoint)?;
    for entity in &model.types {
        let kind = &entity.name;
        let path = TensorPath::new(vec![Name::from("entities"), Name::from(kind.as_str())]);
        let Some(list) = names.tensors.iter().find(|tensor| tensor.path == path) else { continue };
        let Some(own) = &list.row_names else { continue };
        let (count, rows) = (list.shape.dims().first().copied().unwrap_or(0), entity.table.rows());
        if count != rows {
            return Ok(Some(format!("{count} names of type {kind}, the checkpoint has {rows}")));
        }
        // The table that scores has no names.
        let table = checkpoint.tensors.iter().find(|tensor| tensor.path == entity.table.entry().path);
        let known = table.and_then(|table| table.row_names.as_ref());
        let Some(known) = known.filter(|known| files(known) != files(own)) else { continue };
        let known = known.read()?;
        let (mut row, mut found) = (0, None);
        let compared = own.each(&mut |names| {
            for name in names.iter() {
                if found.is_none() && known.get(row) != Some(name) {
                    found = Some((row, name.to_owned()));
                }
                row += 1;
            }
            Ok(())
        });
        if let (Ok(()), Some((row, name))) = (compared, found) {
            let known = escape(known.get(row).unwrap_or_default());
            return Ok(Some(format!(
                "row {row} of type {kind} is {}, the checkpoint has {known}",
                escape(&name)
            )));
        }
    }
    let Some(Value::List(own)) = names.metadata.get("relation_names") else { return Ok(None) };
    let known = relation_names(checkpoint, &model.config);
    let text = |name: &Value| match name {
        Value::Text(name) => escape(name),
        _ => String::new(),
    };
    let mut pairs = own.iter().map(text).zip(known.iter().map(|name| escape(name))).enumerate();
    Ok(match pairs.find(|(_, (own, known))| own != known) {
        Some((number, (own, known))) => {
            Some(format!("relation {number} is {own}, the checkpoint has {known}"))
        }
        None if !known.is_empty() && known.len() != own.len() => {
            Some(format!("{} relations, the checkpoint has {}", own.len(), known.len()))
        }
        None => None,
    })
}

fn files(names: &RowNamesRef) -> Vec<Option<std::path::PathBuf>> {
    names.sources().iter().map(|source| Path::new(source.label()).canonicalize().ok()).collect()
}
