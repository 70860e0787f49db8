//! Known edges: candidates to exclude from the negatives.

use super::super::config::Side;
use super::super::scores::Model;
use super::edges::{Edge, Edges};
use std::collections::HashMap;
use std::ops::Range;
use weighbridge_core::error::Result;

/// Known rows of one side, for each pair of a relation and a row of the other side.
#[derive(Debug, Default)]
pub(super) struct Known {
    keys: HashMap<(u32, u64), u32>,
    /// Start of the rows of each key.
    starts: Vec<usize>,
    /// Rows, ascending for each key.
    rows: Vec<u64>,
}

impl Known {
    /// Ascending rows of a key.
    pub(super) fn rows(&self, relation: u32, other: u64) -> &[u64] {
        self.keys.get(&(relation, other)).map_or(&[], |key| &self.rows[self.range(*key)])
    }

    fn range(&self, key: u32) -> Range<usize> {
        let key = key as usize;
        self.starts[key]..self.starts[key + 1]
    }
}

/// Finds the rows on each of `sides` that `filter` joins to the other sides of `edges`. Reads all edges of the filter.
///
/// # Errors
/// Errors of [`Edges::each`].
pub(super) fn known(
    model: &Model<'_>,
    filter: &[Edges],
    edges: &[Edge],
    sides: &[Side],
) -> Result<[Known; 2]> {
    let mut found = [Known::default(), Known::default()];
    if filter.is_empty() {
        return Ok(found);
    }
    let mut pairs: [Vec<(u32, u64)>; 2] = [Vec::new(), Vec::new()];
    for &side in sides {
        let keys = &mut found[side as usize].keys;
        for edge in edges {
            // There are fewer than 2^32 edges in memory.
            let next = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            keys.entry((edge.relation, edge.rows[1 - side as usize])).or_insert(next);
        }
    }
    for edges in filter {
        edges.each(model, &mut |_, block| {
            for edge in block {
                for &side in sides {
                    let own = side as usize;
                    if let Some(key) = found[own].keys.get(&(edge.relation, edge.rows[1 - own])) {
                        pairs[own].push((*key, edge.rows[own]));
                    }
                }
            }
            Ok(())
        })?;
    }
    for (known, mut pairs) in found.iter_mut().zip(pairs) {
        pairs.sort_unstable();
        pairs.dedup();
        known.starts = vec![0; known.keys.len() + 1];
        for (key, _) in &pairs {
            known.starts[*key as usize + 1] += 1;
        }
        for key in 0..known.keys.len() {
            known.starts[key + 1] += known.starts[key];
        }
        known.rows = pairs.into_iter().map(|(_, row)| row).collect();
    }
    Ok(found)
}
