//! Edges: the columns of edge files, edges by the names of their entities (`named`), and moving edges when entity types
//! are repartitioned.
//!
//! ```text
//! edges_0_1.h5  lhs 5  rhs 2  rel 0        user 0 has 10 rows, user 1 begins at row 10
//!               user (row 5), item 1 (row 10 + 2)
//!               cut into 4: user 1 (rows 5 to 9), id 0; item 2, id 2
//! edges_1_2.h5  lhs 0  rhs 2  rel 0
//! ```
//!
//! A row keeps its index in the whole table: rows are ordered by old partition,
//! and new partitions are cut from that order. A new bucket keeps the order of the old buckets and
//! of the edges in each.

pub(crate) mod buckets;
mod column;
pub(crate) mod integers;
mod mover;
pub(crate) mod named;
mod repartitioning;
mod sorted;
#[cfg(test)]
mod tests;

use super::config::Config;
use super::partitions::Partitions;
use buckets::{BUCKET, Side, bucket_value, is_column};
use column::{Content, MovedColumn};
use mover::{EdgeBudget, Mover};
use repartitioning::{EntityType, Repartitioning};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_io::source::SourceRef;

/// Metadata key of the row counts of each partition of each type.
pub(crate) const COUNTS: &str = "counts";
/// Metadata key of the configuration.
pub(crate) const CONFIG: &str = "config";

/// Returns an index of the same edges in other buckets. Reads all edges once, to count them and to
/// check every id; the new columns are assembled on access.
///
/// The checkpoint must have its configuration (metadata `config`) and the row counts of every partition
/// (`counts`). Ids and relations become `i64`; weights stay unchanged. Every bucket that upstream
/// expects is created, also without edges: upstream stops at a missing one. Ids of edges from another
/// format, without buckets, are rows of whole types.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-config`, `no-counts`, `no-edges`, `bucket-missing`, and for inconsistent columns
/// or partitions; [`weighbridge_core::Kind::Corrupt`]: `id-out-of-range`,
/// `relation-out-of-range`, `no-such-partition`, `bad-list`, with the bucket and the edge;
/// [`weighbridge_core::Kind::Limit`]: `too-many-edges`, `too-many-buckets`, `too-many-runs`.
pub fn repartition(checkpoint: &Checkpoint, partitions: &Partitions) -> Result<Checkpoint> {
    repartition_within(checkpoint, partitions, None)
}

/// Like [`repartition`], with a memory budget in bytes for the edges kept until they are written.
///
/// # Errors
/// Like [`repartition`].
pub(crate) fn repartition_within(
    checkpoint: &Checkpoint,
    partitions: &Partitions,
    memory: Option<u64>,
) -> Result<Checkpoint> {
    let config = config(checkpoint)?;
    partitions.check(config.entities.iter().map(|(name, _)| name.as_str()))?;
    let all: Vec<Vec<u64>> =
        config.entities.iter().map(|(name, _)| counts(checkpoint, name)).collect::<Result<_>>()?;
    let names = config.entities.iter().map(|(name, _)| name.clone());
    let old: Vec<(String, u64)> = names.zip(all.iter().map(|counts| counts.len() as u64)).collect();
    let partitions = partitions.resolve(&old)?;
    let mut types = Vec::with_capacity(config.entities.len());
    let buckets = buckets::buckets(checkpoint)?;
    let whole = is_whole(checkpoint, &buckets);
    for ((name, entity), counts) in config.entities.iter().zip(all) {
        let parts = partitions.of(name, counts.len() as u64);
        types.push(EntityType::new(name, entity.featurized, &counts, parts, whole)?);
    }
    let place = |name: &str| {
        config.entities.iter().position(|(own, _)| own == name).ok_or_else(|| {
            Error::mismatch("no-such-type", "a relation uses an unknown entity type").found(name)
        })
    };
    let relation = |relation: &super::config::Relation| Ok([place(&relation.lhs)?, place(&relation.rhs)?]);
    let relations = config.relations.iter().map(relation).collect::<Result<Vec<_>>>()?;
    let repartitioning = Repartitioning::new(types, relations, config.dynamic_relations)?;
    let parts = repartitioning.old_parts();
    buckets::check_all(&buckets, parts)
        .and_then(|()| buckets::check_none_outside(&buckets, parts))
        .map_err(|e| e.in_file(&checkpoint.label))?;
    let mover = Mover::new(&checkpoint.label, buckets, repartitioning, EdgeBudget::of(memory))?;
    moved(checkpoint, config, mover)
}

/// True where ids are rows of whole types: for edges from another format without buckets.
fn is_whole(checkpoint: &Checkpoint, buckets: &[buckets::Bucket]) -> bool {
    let own = checkpoint.carried_origin().is_some_and(|origin| origin.format == "biggraph");
    checkpoint.format != "biggraph" && !own && buckets.iter().all(|bucket| bucket.parts.is_none())
}

/// Default partitions of edges from another format: those of their entities, if
/// there are several.
pub(crate) fn known_partitions(checkpoint: &Checkpoint) -> Option<Partitions> {
    let Some(Value::Map(counts)) = checkpoint.metadata.get(COUNTS) else { return None };
    if !matches!(checkpoint.metadata.get(CONFIG), Some(Value::Text(_))) {
        return None;
    }
    let parts = counts.iter().map(|(name, parts)| match parts {
        Value::List(parts) => Some((name.as_str()?.to_owned(), parts.len() as u64)),
        _ => None,
    });
    let parts: Vec<(String, u64)> = parts.collect::<Option<_>>()?;
    let several = parts.iter().any(|(_, parts)| *parts > 1);
    let buckets = buckets::buckets(checkpoint).ok()?;
    (several && is_whole(checkpoint, &buckets)).then_some(Partitions::Named(parts))
}

/// Index of the edges moved by `mover`.
fn moved(checkpoint: &Checkpoint, mut config: Config, mover: Mover) -> Result<Checkpoint> {
    let mover = Arc::new(mover);
    let mut made = Checkpoint { tensors: Vec::new(), ..checkpoint.clone() };
    made.tensors = checkpoint.tensors.iter().filter(|t| !is_column(t)).cloned().collect();
    let [left, right] = mover.repartitioning().parts();
    for l in 0..left {
        for r in 0..right {
            for (name, what) in columns(&mover) {
                made.tensors.push(column(&mover, [l, r], name, what)?);
            }
        }
    }
    let mut all = Vec::new();
    for kind in mover.repartitioning().types() {
        if let Some((_, entity)) = config.entities.iter_mut().find(|(name, _)| name == kind.name()) {
            entity.num_partitions = kind.new_parts();
        }
        let counts = kind.new_counts().map(Value::U64).collect();
        all.push((Name::from(kind.name()), Value::List(counts)));
    }
    made.metadata.set(COUNTS, Value::Map(all));
    made.metadata.set(CONFIG, Value::Text(config.to_json_for_all()));
    Ok(made)
}

/// Columns of each new bucket.
fn columns(mover: &Mover) -> Vec<(&'static str, Content)> {
    let mut columns: Vec<_> = Side::BOTH.map(|side| (side.ids(), Content::Ids(side))).into();
    columns.push(("rel", Content::Relations));
    for side in Side::BOTH.into_iter().filter(|side| mover.lists[*side as usize]) {
        columns.push((side.offsets(), Content::Offsets(side)));
        columns.push((side.data(), Content::Features(side)));
    }
    columns.extend(mover.weight.map(|dtype| ("weight", Content::Weights(dtype))));
    columns
}

fn column(mover: &Arc<Mover>, [l, r]: [u64; 2], name: &str, what: Content) -> Result<TensorEntry> {
    let number = l * mover.repartitioning().parts()[1] + r;
    let source = MovedColumn::new(mover, usize::try_from(number).unwrap_or(usize::MAX), what)?;
    let shape = Shape::new([source.elements()]);
    let source: SourceRef = Arc::new(source);
    let path = TensorPath::new([Name::from(format!("{l}_{r}").as_str()), Name::from(name)]);
    let mut entry = TensorEntry::dense(path, what.dtype(), shape, &source, 0, Encoding::ROW)?;
    entry.role = Role::Edges;
    entry.attributes.insert(BUCKET.to_owned(), bucket_value([l, r]));
    Ok(entry)
}

/// Configuration of an edge index.
fn config(checkpoint: &Checkpoint) -> Result<Config> {
    match checkpoint.metadata.get(CONFIG) {
        Some(Value::Text(text)) => {
            // Unknown keys do not affect edges.
            let (config, _) = Config::parse(text, true).map_err(|e| e.in_file(&checkpoint.label))?;
            Ok(config)
        }
        _ => Err(Error::mismatch(
            "no-config",
            "the configuration is missing: the entity types of the edges are unknown",
        )
        .in_file(&checkpoint.label)
        .hint(phrase![Opt::Config.any("FILE"), " sets the path of config.json"])),
    }
}

/// Row counts of the partitions of a type.
fn counts(checkpoint: &Checkpoint, entity: &str) -> Result<Vec<u64>> {
    let missing = || {
        Error::mismatch("no-counts", format!("the row counts of the partitions of type {entity} are unknown"))
            .in_file(&checkpoint.label)
            .hint(phrase![Opt::Entities.any("FOLDER"), " sets the folder of entity_count_TYPE_PART.txt"])
    };
    let Some(Value::Map(all)) = checkpoint.metadata.get(COUNTS) else { return Err(missing()) };
    let own = all.iter().find(|(name, _)| name.as_str() == Some(entity));
    let Some((_, Value::List(counts))) = own else { return Err(missing()) };
    let known: Vec<u64> =
        counts.iter().filter_map(|value| if let Value::U64(n) = value { Some(*n) } else { None }).collect();
    match known.len() {
        0 if !counts.is_empty() => Err(missing()),
        some if some < counts.len() => {
            let text = format!("only {some} of {} partitions of type {entity} have a count", counts.len());
            Err(Error::mismatch("no-counts", text)
                .in_file(&checkpoint.label)
                .hint("use the configuration that these edges were made with"))
        }
        _ => Ok(known),
    }
}
