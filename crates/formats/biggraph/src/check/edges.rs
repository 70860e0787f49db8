//! Check of edges, including faults that upstream finds during training or never. Reads all columns, in blocks.

use super::super::config::{Config, Sides};
use super::super::read::{BUCKET, lists_of, numbers, parallel};
use super::bucket::check_bucket;
use super::column::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry, Value};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;

/// Columns of an edge bucket.
#[derive(Default)]
pub(super) struct Bucket<'a> {
    /// Partitions of both sides; `None` for a single file.
    pub(super) parts: Option<(u64, u64)>,
    /// Its columns by name.
    pub(super) columns: BTreeMap<&'a str, &'a TensorEntry>,
}

/// Meaning of edges by the configuration.
pub(super) struct Meaning {
    /// Entity types of both sides of each relation; relations share them.
    relations: Vec<[Arc<Side>; 2]>,
    /// True where all relations have the entity types of the first.
    dynamic: bool,
    /// Number of dynamic relations, if known.
    dynamic_count: Option<u64>,
}

/// Side of a relation.
pub(super) struct Side {
    /// Entity type.
    pub(super) entity: String,
    partitioned: bool,
    /// True where an entity is a list of features.
    pub(super) featurized: bool,
    /// Number of entities in each partition, if known.
    counts: Vec<Option<u64>>,
}

/// Checks the edges of a folder or a file.
pub(super) fn check(checkpoint: &Checkpoint, config: Option<&Config>) -> Result<Vec<Finding>> {
    let buckets = buckets(checkpoint);
    let mut findings = Vec::new();
    let meaning = config.map(|config| Meaning::of(checkpoint, config));
    match &meaning {
        None => findings.push(
            Finding::unchecked(
                "no-config",
                "no configuration: entity ids were not compared with entity counts",
            )
            .hint("pass the config.json"),
        ),
        Some(meaning) if meaning.lacks_counts() => findings.push(
            Finding::unchecked("no-counts", "the entity counts are unknown: entity ids were not checked")
                .hint("pass the entity folder"),
        ),
        Some(_) => {}
    }
    if let Some(config) = config
        && buckets.iter().all(|bucket| bucket.parts.is_some())
    {
        findings.extend(missing_buckets(&buckets, config));
    }
    let looked = parallel::map(&buckets, |bucket| check_bucket(bucket, meaning.as_ref()));
    for found in looked {
        findings.extend(found?);
    }
    Ok(findings)
}

/// Groups the columns by bucket.
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

/// Edge buckets without a file: upstream stops at the first of them.
fn missing_buckets(buckets: &[Bucket], config: &Config) -> Vec<Finding> {
    // Different partition counts of a side are a finding of the configuration.
    let Ok(Sides { lhs, rhs }) = config.sides() else { return Vec::new() };
    let have: BTreeSet<(u64, u64)> = buckets.iter().filter_map(|bucket| bucket.parts).collect();
    let mut findings = Vec::new();
    // Only buckets within this bound can have files; all others are missing.
    let wanted = (0..lhs).flat_map(|l| (0..rhs).map(move |r| (l, r)));
    let missing: Vec<(u64, u64)> = wanted.filter(|bucket| !have.contains(bucket)).take(6).collect();
    if !missing.is_empty() {
        let count = lhs
            .saturating_mul(rhs)
            .saturating_sub(have.iter().filter(|b| b.0 < lhs && b.1 < rhs).count() as u64);
        let names =
            missing.iter().take(5).map(|(l, r)| format!("edges_{l}_{r}.h5")).collect::<Vec<_>>().join(", ");
        let text = format!(
            "{count} of {lhs} x {rhs} edge buckets have no file, such as {names}; training stops there"
        );
        findings.push(
            Finding::error("bucket-missing", text)
                .hint("create a file for each bucket, also for buckets without edges"),
        );
    }
    let more: Vec<_> = have.iter().filter(|(l, r)| *l >= lhs || *r >= rhs).collect();
    if let Some((l, r)) = more.first() {
        let text = format!(
            "{} edge buckets are outside {lhs} x {rhs}, such as edges_{l}_{r}.h5; training skips them",
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

    /// Sides of a relation; `None` for an undefined relation.
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
    /// Number of valid ids of this side, if known; `part` is the
    /// partition of the bucket. Types with one partition use partition 0 in every bucket. A single file does
    /// not name its partition: then the largest partition is the bound.
    pub(super) fn bound(&self, part: Option<u64>) -> Option<u64> {
        let part = if self.partitioned { part } else { Some(0) };
        match part {
            Some(part) => self.counts.get(usize::try_from(part).ok()?).copied().flatten(),
            None if self.counts.contains(&None) => None,
            None => self.counts.iter().flatten().max().copied(),
        }
    }
}
