//! Edges: what upstream finds while it trains, or never. All columns are read, in blocks.

use super::super::config::{Config, Sides};
use super::super::read::{BUCKET, lists_of, numbers, parallel};
use super::column::Id;
use super::look::look_at;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry, Value};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;

/// The columns of a bucket.
#[derive(Default)]
pub(super) struct Bucket<'a> {
    /// The partitions of both sides; `None` for a file alone.
    pub(super) parts: Option<(u64, u64)>,
    /// Its columns by name.
    pub(super) columns: BTreeMap<&'a str, &'a TensorEntry>,
}

/// What is known of the meaning of edges.
pub(super) struct Meaning {
    /// The types of both sides of each relation; relations share their types.
    relations: Vec<[Arc<Side>; 2]>,
    /// True where all relations have the one type of the first.
    dynamic: bool,
    /// The number of dynamic relations, where it is known.
    dynamic_count: Option<u64>,
}

/// A side of a relation.
pub(super) struct Side {
    /// The type of its entities.
    pub(super) entity: String,
    partitioned: bool,
    /// True where an entity is a list of features.
    pub(super) featurized: bool,
    /// The number of entities in each partition, where it is known.
    counts: Vec<Option<u64>>,
}

/// Checks the edges of a folder or of a file.
pub(super) fn check(checkpoint: &Checkpoint, config: Option<&Config>) -> Result<Vec<Finding>> {
    let buckets = buckets(checkpoint);
    let mut findings = Vec::new();
    let meaning = config.map(|config| Meaning::of(checkpoint, config));
    match &meaning {
        None => findings.push(
            Finding::unchecked(
                "no-config",
                "without a configuration nobody knows which types the edges join: ids were not held against counts",
            )
            .hint("name the config.json"),
        ),
        Some(meaning) if meaning.lacks_counts() => findings.push(
            Finding::unchecked("no-counts", "the numbers of entities are not known: ids were not held against them")
                .hint("name the folder of entities"),
        ),
        Some(_) => {}
    }
    if let Some(config) = config
        && buckets.iter().all(|bucket| bucket.parts.is_some())
    {
        findings.extend(missing_buckets(&buckets, config));
    }
    let looked = parallel::map(&buckets, |bucket| look_at(bucket, meaning.as_ref()));
    for found in looked {
        findings.extend(found?);
    }
    Ok(findings)
}

/// The columns by bucket.
fn buckets(checkpoint: &Checkpoint) -> Vec<Bucket<'_>> {
    let mut all: BTreeMap<Option<(u64, u64)>, Bucket> = BTreeMap::new();
    for entry in &checkpoint.tensors {
        let Some(column) = entry.path.parts().last().and_then(|name| name.as_str()) else { continue };
        let parts = match entry.attributes.get(BUCKET) {
            Some(Value::List(pair)) => match pair.as_slice() {
                [Value::U64(lhs), Value::U64(rhs)] => Some((*lhs, *rhs)),
                _ => None,
            },
            _ => None,
        };
        let bucket = all.entry(parts).or_default();
        bucket.parts = parts;
        bucket.columns.insert(column, entry);
    }
    all.into_values().collect()
}

/// Buckets without a file: upstream stops at the first of them.
fn missing_buckets(buckets: &[Bucket], config: &Config) -> Vec<Finding> {
    // That sides have different numbers is a problem of the configuration.
    let Ok(Sides { lhs, rhs }) = config.sides() else { return Vec::new() };
    let have: BTreeSet<(u64, u64)> = buckets.iter().filter_map(|bucket| bucket.parts).collect();
    let mut findings = Vec::new();
    // Only so many can be there that their files can be counted; the others are all missing.
    let wanted = (0..lhs).flat_map(|l| (0..rhs).map(move |r| (l, r)));
    let missing: Vec<(u64, u64)> = wanted.filter(|bucket| !have.contains(bucket)).take(6).collect();
    if !missing.is_empty() {
        let count = lhs
            .saturating_mul(rhs)
            .saturating_sub(have.iter().filter(|b| b.0 < lhs && b.1 < rhs).count() as u64);
        let names =
            missing.iter().take(5).map(|(l, r)| format!("edges_{l}_{r}.h5")).collect::<Vec<_>>().join(", ");
        let text =
            format!("{count} of {lhs} x {rhs} buckets have no file, such as {names}: training stops there");
        findings.push(Finding::error("bucket-missing", text).hint("a bucket without edges needs a file too"));
    }
    let more: Vec<_> = have.iter().filter(|(l, r)| *l >= lhs || *r >= rhs).collect();
    if let Some((l, r)) = more.first() {
        let text = format!(
            "{} buckets are not among {lhs} x {rhs}, such as edges_{l}_{r}.h5: nobody trains on them",
            more.len()
        );
        findings.push(Finding::warning("bucket-unknown", text));
    }
    findings
}

impl Meaning {
    fn of(checkpoint: &Checkpoint, config: &Config) -> Self {
        let counts = lists_of(checkpoint.metadata.get("counts"));
        let types = config.by_name();
        let side = |entity: &str| {
            let known = types.get(entity);
            Arc::new(Side {
                entity: entity.to_owned(),
                partitioned: known.is_some_and(|e| e.num_partitions > 1),
                featurized: known.is_some_and(|e| e.featurized),
                counts: counts.get(entity).copied().map(numbers).unwrap_or_default(),
            })
        };
        let mut sides: HashMap<&str, Arc<Side>> = HashMap::new();
        let relations = config.relations.iter().map(|relation| {
            let both = [relation.lhs.as_str(), relation.rhs.as_str()];
            both.map(|entity| sides.entry(entity).or_insert_with(|| side(entity)).clone())
        });
        let relations = relations.collect();
        let dynamic_count = match checkpoint.metadata.get("dynamic_relations") {
            Some(Value::U64(count)) => Some(*count),
            _ => None,
        };
        Self { relations, dynamic: config.dynamic_relations, dynamic_count }
    }

    fn lacks_counts(&self) -> bool {
        self.relations.iter().flatten().any(|side| side.counts.is_empty() || side.counts.contains(&None))
    }

    /// The sides of a relation; `None` where there is no such relation.
    pub(super) fn relation(&self, rel: Id) -> Option<&[Arc<Side>; 2]> {
        let Id::Whole(number) = rel else { return None };
        let number = u64::try_from(number).ok()?;
        if self.dynamic {
            let known = self.dynamic_count.is_none_or(|count| number < count);
            return self.relations.first().filter(|_| known);
        }
        self.relations.get(usize::try_from(number).ok()?)
    }
}

impl Side {
    /// The number of entities that an id of this side can mean, where it is known; `part` is the
    /// partition of the bucket. Types of one partition have part 0 in every bucket. A file alone does
    /// not say which partition it is of: then the largest one is the bound.
    pub(super) fn bound(&self, part: Option<u64>) -> Option<u64> {
        let part = if self.partitioned { part } else { Some(0) };
        match part {
            Some(part) => self.counts.get(usize::try_from(part).ok()?).copied().flatten(),
            None if self.counts.contains(&None) => None,
            None => self.counts.iter().flatten().max().copied(),
        }
    }
}
