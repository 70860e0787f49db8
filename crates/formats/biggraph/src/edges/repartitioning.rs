//! New position of a row when its entity type is repartitioned.

use super::super::partitions::new_counts;
use super::buckets::Side;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Entity type with its old and new partitions.
#[derive(Debug)]
pub(crate) struct EntityType {
    name: String,
    featurised: bool,
    /// First row of each old partition, and the total number of rows.
    old: Vec<u64>,
    /// First row of each new partition, and the total number of rows.
    new: Vec<u64>,
}

impl EntityType {
    /// Entity type with the row count of each partition, and the new number of partitions. If edges
    /// refer to rows of the `whole` type, ids are those of a single partition.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `too-many-rows`, if the counts exceed 2^63 rows;
    /// [`weighbridge_core::Kind::Unsupported`], code `featurised-partitions`, for a featurised type with several
    /// partitions: its edges hold lists, and the features of a list may be in several partitions.
    pub(crate) fn new(name: &str, featurised: bool, counts: &[u64], parts: u64, whole: bool) -> Result<Self> {
        if featurised && (counts.len() != 1 || parts != 1) {
            return Err(Error::unsupported(
                "featurised-partitions",
                format!("the entity type {name} is featurised and cannot be partitioned"),
            )
            .hint(phrase![
                "keep one partition: ",
                Opt::Set.pair("partitions", "TYPE:N,…"),
                " lists the entity types to change"
            ]));
        }
        let mut old = starts(counts.iter().copied())?;
        if whole {
            old = vec![0, old.last().copied().unwrap_or(0)];
        }
        let new = starts(new_counts(counts, parts).into_iter())?;
        Ok(Self { name: name.to_owned(), featurised, old, new })
    }

    /// New number of partitions.
    pub(crate) fn new_parts(&self) -> u64 {
        self.new.len().saturating_sub(1) as u64
    }

    /// Row count of each new partition.
    pub(crate) fn new_counts(&self) -> impl Iterator<Item = u64> {
        self.new.windows(2).map(|pair| pair[1] - pair[0])
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn window(&self, part: u64) -> Option<Window<'_>> {
        // An unpartitioned type is whole in every bucket.
        let part = if self.old.len() == 2 { 0 } else { usize::try_from(part).ok()? };
        let (&start, &end) = (self.old.get(part)?, self.old.get(part + 1)?);
        Some(Window { kind: self, start, rows: end - start, starts: self.new.split_last()?.1 })
    }
}

fn starts(counts: impl Iterator<Item = u64>) -> Result<Vec<u64>> {
    let mut starts = vec![0u64];
    let mut sum = 0u64;
    for count in counts {
        sum = sum
            .checked_add(count)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or_else(|| Error::corrupt("too-many-rows", "the row count of an entity type exceeds 2^63"))?;
        starts.push(sum);
    }
    Ok(starts)
}

/// Old partition of a type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    kind: &'a EntityType,
    /// Index in the whole type of its first row.
    start: u64,
    rows: u64,
    /// First rows of the new partitions.
    starts: &'a [u64],
}

impl Window<'_> {
    /// New partition of a row, and the index in it; `None` for a missing row. The placeholder
    /// of a feature list stays unchanged.
    #[inline]
    pub(crate) fn place(&self, id: i64) -> Option<(u64, i64)> {
        if self.kind.featurised {
            return Some((0, id));
        }
        let id = u64::try_from(id).ok().filter(|id| *id < self.rows)?;
        let row = self.start + id;
        // The last partition that begins at or before the row: empty ones begin with their successor.
        let part = self.starts.partition_point(|start| *start <= row).checked_sub(1)?;
        Some((part as u64, i64::try_from(row - self.starts[part]).ok()?))
    }

    /// Description of valid ids, for messages.
    pub(crate) fn expected(&self) -> String {
        format!(
            "0 to {} (this partition of type {} has {} rows)",
            self.rows.saturating_sub(1),
            self.kind.name,
            self.rows
        )
    }
}

/// All entity types, and the types joined by each relation.
#[derive(Debug)]
pub(crate) struct Repartitioning {
    types: Vec<EntityType>,
    /// Types on the left and right of each relation.
    relations: Vec<[usize; 2]>,
    /// True where relation numbers are in the data and all have the types of the
    /// first relation.
    dynamic: bool,
    /// New number of partitions of both sides.
    parts: [u64; 2],
}

impl Repartitioning {
    /// Maximum number of new buckets.
    const MAX_BUCKETS: u64 = 1_000_000;

    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `partitions-differ`, if the types on one side of the
    /// relations would have different partitions; [`weighbridge_core::Kind::Limit`], code `too-many-buckets`.
    pub(crate) fn new(types: Vec<EntityType>, relations: Vec<[usize; 2]>, dynamic: bool) -> Result<Self> {
        let mut parts = [1, 1];
        for side in Side::BOTH {
            let used = relations.iter().map(|pair| &types[pair[side as usize]]);
            for kind in used.filter(|kind| kind.new_parts() != 1) {
                let all = &mut parts[side as usize];
                if *all != 1 && *all != kind.new_parts() {
                    return Err(Error::mismatch(
                        "partitions-differ",
                        "the partitioned entity types on one side of the edges have different numbers of partitions",
                    )
                    .expected(format_args!("{all} partitions, as another type of {}", side.ids()))
                    .found(format_args!("{} partitions of type {}", kind.new_parts(), kind.name)));
                }
                *all = kind.new_parts();
            }
        }
        if parts[0].saturating_mul(parts[1]) > Self::MAX_BUCKETS {
            return Err(Error::limit("too-many-buckets", "too many edge buckets")
                .expected(format_args!("at most {} buckets", Self::MAX_BUCKETS))
                .found(format_args!("{} times {}", parts[0], parts[1])));
        }
        Ok(Self { types, relations, dynamic, parts })
    }

    pub(crate) fn types(&self) -> &[EntityType] {
        &self.types
    }

    /// New number of partitions of the left and the right side.
    pub(crate) fn parts(&self) -> [u64; 2] {
        self.parts
    }

    /// Old number of partitions of the left and the right side: the largest of its types.
    pub(crate) fn old_parts(&self) -> [u64; 2] {
        Side::BOTH.map(|side| {
            let used = self.relations.iter().map(|pair| &self.types[pair[side as usize]]);
            used.map(|kind| kind.old.len().saturating_sub(1) as u64).max().unwrap_or(1).max(1)
        })
    }

    /// Number of new buckets.
    pub(crate) fn buckets(&self) -> usize {
        usize::try_from(self.parts[0] * self.parts[1]).unwrap_or(usize::MAX)
    }

    /// For each relation, the old partitions of an old bucket; `None` if a
    /// type lacks its partition.
    pub(crate) fn windows(&self, parts: [u64; 2]) -> Vec<Option<[Window<'_>; 2]>> {
        let window = |pair: &[usize; 2]| {
            let of = |side: Side| self.types[pair[side as usize]].window(parts[side as usize]);
            Some([of(Side::Left)?, of(Side::Right)?])
        };
        self.relations.iter().map(window).collect()
    }

    /// Relation of a value in the column `rel`.
    #[inline]
    pub(crate) fn relation(&self, rel: i64) -> Option<usize> {
        match usize::try_from(rel) {
            Ok(_) if self.dynamic => Some(0),
            Ok(rel) if rel < self.relations.len() => Some(rel),
            _ => None,
        }
    }

    /// Description of valid relation numbers, for messages.
    pub(crate) fn expected_relation(&self) -> String {
        if self.dynamic {
            "a relation number of at least 0".to_owned()
        } else {
            format!(
                "0 to {} (the configuration has {} relations)",
                self.relations.len().saturating_sub(1),
                self.relations.len()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::split_counts;
    use super::*;

    #[test]
    fn rows_move_to_the_computed_partition() {
        for counts in [vec![14], vec![4, 3, 4, 3], vec![0, 5, 0], vec![0], vec![0, 0, 3], vec![9, 0, 0, 1]] {
            let rows: u64 = counts.iter().sum();
            for parts in 1..20 {
                let kind = EntityType::new("t", false, &counts, parts, false).unwrap();
                if parts == counts.len() as u64 {
                    assert!(kind.new_counts().eq(counts.iter().copied()), "nothing moves");
                } else {
                    assert!(kind.new_counts().eq(split_counts(rows, parts)));
                }
                let mut seen = Vec::new();
                for (part, &count) in counts.iter().enumerate() {
                    let window = kind.window(part as u64).unwrap();
                    for id in 0..count {
                        let (part, id) = window.place(id.try_into().unwrap()).unwrap();
                        seen.push(kind.new[usize::try_from(part).unwrap()] + u64::try_from(id).unwrap());
                        assert!(
                            id < kind.new_counts().nth(part.try_into().unwrap()).unwrap().try_into().unwrap()
                        );
                    }
                    assert_eq!(window.place(count.try_into().unwrap()), None);
                    assert_eq!(window.place(-1), None);
                }
                assert!(seen.into_iter().eq(0..rows));
                let alone = counts.len() == 1;
                assert_eq!(kind.window(counts.len() as u64).is_some(), alone);
            }
        }
        assert_eq!(
            EntityType::new("t", false, &[u64::MAX, 2], 1, false).unwrap_err().code().as_str(),
            "too-many-rows"
        );
        assert_eq!(
            EntityType::new("t", true, &[3], 2, false).unwrap_err().code().as_str(),
            "featurised-partitions"
        );
    }

    #[test]
    fn rejects_sides_with_different_partitions() {
        let kind = |parts| EntityType::new("t", false, &[10], parts, false).unwrap();
        let places = |relations| Repartitioning::new(vec![kind(4), kind(1), kind(2)], relations, false);
        assert_eq!(places(vec![[0, 0], [1, 0], [0, 1]]).unwrap().parts(), [4, 4]);
        assert_eq!(places(vec![[0, 2], [1, 1]]).unwrap().parts(), [4, 2]);
        assert_eq!(places(vec![[1, 1]]).unwrap().parts(), [1, 1]);
        assert_eq!(places(vec![[0, 1], [2, 1]]).unwrap_err().code().as_str(), "partitions-differ");
        let many = vec![kind(10_000), kind(1), kind(2)];
        assert_eq!(
            Repartitioning::new(many, vec![[0, 0]], false).unwrap_err().code().as_str(),
            "too-many-buckets"
        );
    }
}
