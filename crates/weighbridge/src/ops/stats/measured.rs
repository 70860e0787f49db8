//! Statistics of several tensors of a checkpoint.

use super::{Stats, StatsOptions, stats};
use crate::checkpoint::{Checkpoint, TensorEntry};
use crate::error::Result;
use crate::json::rows;
use crate::phrase::{Face, Worded};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use std::collections::HashSet;

/// Statistics of the tensors of a checkpoint.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The measured tensors, by index in the checkpoint, with their statistics.
    pub found: Vec<(usize, Stats)>,
}

/// Returns the indices of the tensors that match `name`, as a name or pattern; of all tensors without a name.
///
/// # Errors
/// As [`Checkpoint::tensors_like`].
pub fn places(checkpoint: &Checkpoint, name: Option<&str>) -> Result<Vec<usize>> {
    let Some(name) = name else { return Ok((0..checkpoint.tensors.len()).collect()) };
    let found = checkpoint.tensors_like(name)?;
    let found: HashSet<usize> = found.into_iter().map(|own| std::ptr::from_ref(own).addr()).collect();
    let is_found = |tensor: &TensorEntry| found.contains(&std::ptr::from_ref(tensor).addr());
    Ok((0..checkpoint.tensors.len()).filter(|place| is_found(&checkpoint.tensors[*place])).collect())
}

/// Measures the tensors that match `name`, or all; see [`places`].
///
/// # Errors
/// As [`places`] and [`stats`].
pub fn measure(checkpoint: Checkpoint, name: Option<&str>, options: &StatsOptions) -> Result<Measured> {
    let mut found = Vec::new();
    for place in places(&checkpoint, name)? {
        let values = stats(&checkpoint.tensors[place], options).map_err(|e| e.in_file(&checkpoint.label))?;
        found.push((place, values));
    }
    Ok(Measured { checkpoint, found })
}

#[derive(Serialize)]
struct Document<'a, Tensors: Serialize> {
    path: &'a str,
    tensors: Tensors,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Json>,
}

impl Serialize for Measured {
    /// Serializes `path`, `tensors`, and `damage` for a damaged file.
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let one = |(place, values): &(usize, Stats)| {
            let tensor = &self.checkpoint.tensors[*place];
            let mut json = values.to_json();
            json["name"] = json!(tensor.text());
            json["path"] = tensor.path.to_json();
            if let Some(slot) = tensor.role.slot() {
                json["slot"] = slot.to_json();
            }
            json
        };
        Document {
            path: &self.checkpoint.label,
            tensors: rows(&self.found, one),
            damage: self.checkpoint.damage_json(),
        }
        .serialize(to)
    }
}

impl Worded for Measured {
    fn word(&mut self, face: Face<'_>) {
        self.checkpoint.word(face);
    }
}
