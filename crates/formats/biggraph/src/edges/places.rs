//! Where a row of a partition comes to stand when its type is cut into other partitions.

use super::super::partitions::new_counts;
use super::buckets::Side;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// A type of entities: how its rows are dealt out now and later.
#[derive(Debug)]
pub(crate) struct EntityType {
    name: String,
    featurised: bool,
    /// The first row of each partition as it is, and the number of all rows behind.
    old: Vec<u64>,
    /// The first row of each partition as it shall be, and the number of all rows behind.
    new: Vec<u64>,
}

impl EntityType {
    /// A type with so many rows in each of its partitions, and the number that it is to have. Where edges
    /// mean rows of the `whole` type, they are as those of one partition.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `too-many-rows`, where the counts pass 2^63 rows;
    /// [`weighbridge_core::Kind::Unsupported`], code `featurised-partitions`, for a featurised type with several
    /// partitions: its edges hold lists, and a list has no one partition.
    pub(crate) fn new(name: &str, featurised: bool, counts: &[u64], parts: u64, whole: bool) -> Result<Self> {
        if featurised && (counts.len() != 1 || parts != 1) {
            return Err(Error::unsupported(
                "featurised-partitions",
                format!(
                    "the type {name} is featurised: its lists of features cannot go to several partitions"
                ),
            )
            .hint(phrase![
                "leave it with one partition: ",
                Opt::Set.pair("partitions", "TYPE:N,…"),
                " names those that change"
            ]));
        }
        let mut old = starts(counts.iter().copied())?;
        if whole {
            old = vec![0, old.last().copied().unwrap_or(0)];
        }
        let new = starts(new_counts(counts, parts).into_iter())?;
        Ok(Self { name: name.to_owned(), featurised, old, new })
    }

    /// The number of partitions it shall have.
    pub(crate) fn new_parts(&self) -> u64 {
        self.new.len().saturating_sub(1) as u64
    }

    /// The rows of each new partition.
    pub(crate) fn new_counts(&self) -> impl Iterator<Item = u64> {
        self.new.windows(2).map(|pair| pair[1] - pair[0])
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn window(&self, part: u64) -> Option<Window<'_>> {
        // A type with one partition is whole in whatever bucket it turns up.
        let part = if self.old.len() == 2 { 0 } else { usize::try_from(part).ok()? };
        let (&start, &end) = (self.old.get(part)?, self.old.get(part + 1)?);
        Some(Window { kind: self, start, rows: end - start, starts: self.new.split_last()?.1 })
    }
}

fn starts(counts: impl Iterator<Item = u64>) -> Result<Vec<u64>> {
    let mut starts = vec![0u64];
    let mut sum = 0u64;
    for count in counts {
        sum = sum.checked_add(count).filter(|sum| i64::try_from(*sum).is_ok()).ok_or_else(|| {
            Error::corrupt("too-many-rows", "the partitions of a type have more than 2^63 rows together")
        })?;
        starts.push(sum);
    }
    Ok(starts)
}

/// One partition of a type as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    kind: &'a EntityType,
    /// The row of the whole type that is its first.
    start: u64,
    rows: u64,
    /// The first rows of the new partitions.
    starts: &'a [u64],
}

impl Window<'_> {
    /// The new partition of a row, and the row within it; `None` where there is no such row. What
    /// stands for a list of features stays as it is.
    #[inline]
    pub(crate) fn place(&self, id: i64) -> Option<(u64, i64)> {
        if self.kind.featurised {
            return Some((0, id));
        }
        let id = u64::try_from(id).ok().filter(|id| *id < self.rows)?;
        let row = self.start + id;
        // The last partition that begins at or before it: those without rows begin with their next.
        let part = self.starts.partition_point(|start| *start <= row).checked_sub(1)?;
        Some((part as u64, i64::try_from(row - self.starts[part]).ok()?))
    }

    /// What an id must be, for people.
    pub(crate) fn expected(&self) -> String {
        format!(
            "0 to {}: this partition of type {} has {} rows",
            self.rows.saturating_sub(1),
            self.kind.name,
            self.rows
        )
    }
}

/// All types, and which of them each relation joins.
#[derive(Debug)]
pub(crate) struct Places {
    types: Vec<EntityType>,
    /// The types on the left and right of each relation.
    relations: Vec<[usize; 2]>,
    /// True where the numbers of relations are those of the data and all join the types of the
    /// first one.
    dynamic: bool,
    /// The new number of partitions of both sides.
    parts: [u64; 2],
}

impl Places {
    /// The most buckets that are made.
    const MOST: u64 = 1_000_000;

    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `partitions-differ`, where the types on one side of the
    /// relations would be cut differently; [`weighbridge_core::Kind::Limit`], code `too-many-buckets`.
    pub(crate) fn new(types: Vec<EntityType>, relations: Vec<[usize; 2]>, dynamic: bool) -> Result<Self> {
        let mut parts = [1, 1];
        for side in Side::BOTH {
            let used = relations.iter().map(|pair| &types[pair[side as usize]]);
            for kind in used.filter(|kind| kind.new_parts() != 1) {
                let all = &mut parts[side as usize];
                if *all != 1 && *all != kind.new_parts() {
                    return Err(Error::mismatch(
                        "partitions-differ",
                        "all partitioned types on one side of the edges must have the same number of partitions",
                    )
                    .expected(format_args!("{all} partitions, as another type of {}", side.ids()))
                    .found(format_args!("{} partitions of type {}", kind.new_parts(), kind.name)));
                }
                *all = kind.new_parts();
            }
        }
        if parts[0].saturating_mul(parts[1]) > Self::MOST {
            return Err(Error::limit("too-many-buckets", "the edges would be cut into too many files")
                .expected(format_args!("at most {} buckets", Self::MOST))
                .found(format_args!("{} times {}", parts[0], parts[1])));
        }
        Ok(Self { types, relations, dynamic, parts })
    }

    pub(crate) fn types(&self) -> &[EntityType] {
        &self.types
    }

    /// The new number of partitions of the left and the right side.
    pub(crate) fn parts(&self) -> [u64; 2] {
        self.parts
    }

    /// The old number of partitions of the left and the right side: the most that a type has there.
    pub(crate) fn old_parts(&self) -> [u64; 2] {
        Side::BOTH.map(|side| {
            let used = self.relations.iter().map(|pair| &self.types[pair[side as usize]]);
            used.map(|kind| kind.old.len().saturating_sub(1) as u64).max().unwrap_or(1).max(1)
        })
    }

    /// The number of new buckets.
    pub(crate) fn buckets(&self) -> usize {
        usize::try_from(self.parts[0] * self.parts[1]).unwrap_or(usize::MAX)
    }

    /// For each relation, the partitions from which the edges of an old bucket come; `None` where a
    /// type of it has no such partition.
    pub(crate) fn windows(&self, parts: [u64; 2]) -> Vec<Option<[Window<'_>; 2]>> {
        let window = |pair: &[usize; 2]| {
            let of = |side: Side| self.types[pair[side as usize]].window(parts[side as usize]);
            Some([of(Side::Left)?, of(Side::Right)?])
        };
        self.relations.iter().map(window).collect()
    }

    /// Which of the relations a number in the column `rel` means.
    #[inline]
    pub(crate) fn relation(&self, rel: i64) -> Option<usize> {
        match usize::try_from(rel) {
            Ok(_) if self.dynamic => Some(0),
            Ok(rel) if rel < self.relations.len() => Some(rel),
            _ => None,
        }
    }

    /// What a number of a relation must be, for people.
    pub(crate) fn expected_relation(&self) -> String {
        if self.dynamic {
            "the number of a relation, not below 0".to_owned()
        } else {
            format!(
                "0 to {}: there are {} relations",
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
    fn every_row_comes_to_stand_where_arithmetic_says() {
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
    fn sides_must_agree() {
        let kind = |parts| EntityType::new("t", false, &[10], parts, false).unwrap();
        let places = |relations| Places::new(vec![kind(4), kind(1), kind(2)], relations, false);
        assert_eq!(places(vec![[0, 0], [1, 0], [0, 1]]).unwrap().parts(), [4, 4]);
        assert_eq!(places(vec![[0, 2], [1, 1]]).unwrap().parts(), [4, 2]);
        assert_eq!(places(vec![[1, 1]]).unwrap().parts(), [1, 1]);
        assert_eq!(places(vec![[0, 1], [2, 1]]).unwrap_err().code().as_str(), "partitions-differ");
        let many = vec![kind(10_000), kind(1), kind(2)];
        assert_eq!(Places::new(many, vec![[0, 0]], false).unwrap_err().code().as_str(), "too-many-buckets");
    }
}
