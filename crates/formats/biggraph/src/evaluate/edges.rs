//! Edges as rows of whole tables.

use super::super::edges::buckets::{self, Bucket};
use super::super::edges::integers;
use super::super::scores::Model;
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};

/// Number of edges read at once.
const BLOCK_EDGES: u64 = 1 << 16;

/// Edge with the rows of both sides, numbered over all partitions of their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) relation: u32,
    pub(super) rows: [u64; 2],
}

/// Receiver of edges of a bucket, by its partitions.
pub(super) type Take<'a> = dyn FnMut([u64; 2], &[Edge]) -> Result<()> + 'a;

/// Edge folder of a model.
#[derive(Debug)]
pub(super) struct Edges {
    label: String,
    buckets: Vec<Bucket>,
    pub(super) count: u64,
}

impl Edges {
    /// Groups the columns of an edge index. A note names missing buckets: upstream's importer writes no file for a bucket
    /// without edges.
    ///
    /// # Errors
    /// Errors of [`buckets::buckets`]; [`weighbridge_core::Kind::Mismatch`], `no-bucket` for a single file of partitioned
    /// types; [`weighbridge_core::Kind::Unsupported`], `featurised`, for edges with features.
    pub(super) fn of(model: &Model<'_>, edges: &Checkpoint, notes: &mut Vec<Note>) -> Result<Self> {
        let fail = |error: Error| error.in_file(&edges.label);
        let buckets = buckets::buckets(edges).map_err(fail)?;
        let parts = [0, 1].map(|side| {
            let own = model.relations.iter().map(|sides| model.types[sides[side]].parts());
            own.max().unwrap_or(1)
        });
        if parts != [1, 1] && buckets.iter().any(|bucket| bucket.parts.is_none()) {
            return Err(fail(
                Error::mismatch("no-bucket", "the partitions of the edges are unknown")
                    .expected("a folder of edge files")
                    .found("a single file, and entity types of several partitions"),
            ));
        }
        for bucket in &buckets {
            let lists = buckets::Side::BOTH.iter().find_map(|side| bucket.column(side.offsets()));
            if let Some(lists) = lists {
                return Err(fail(
                    Error::unsupported("featurised", "edges with feature lists cannot be scored")
                        .on_tensor(lists.name()),
                ));
            }
        }
        buckets::check_none_outside(&buckets, parts).map_err(fail)?;
        if let Err(error) = buckets::check_all(&buckets, parts) {
            let missing = error.found_text().unwrap_or_default();
            notes.push(Note::new(
                "bucket-missing",
                format!("{}: edge buckets without a file count as empty: {missing}", edges.label),
            ));
        }
        let counts = buckets.iter().map(Bucket::edges).collect::<Result<Vec<_>>>().map_err(fail)?;
        let count = counts.into_iter().fold(0u64, u64::saturating_add);
        Ok(Self { label: edges.label.clone(), buckets, count })
    }

    /// Passes the edges to `take` in blocks, each with the partitions of its bucket.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `relation-out-of-range`, `id-out-of-range`, `no-such-partition`; errors of reading
    /// and of `take`.
    pub(super) fn each(&self, model: &Model<'_>, take: &mut Take<'_>) -> Result<()> {
        let mut block = Vec::new();
        for bucket in &self.buckets {
            let parts = bucket.parts.unwrap_or([0, 0]);
            let count = bucket.edges()?;
            for start in (0..count).step_by(usize::try_from(BLOCK_EDGES).unwrap_or(usize::MAX)) {
                let range = start..count.min(start + BLOCK_EDGES);
                let read = |name: &str| integers::read(bucket.needed(name)?, range.clone());
                let (lhs, rhs, relations) = (read("lhs")?, read("rhs")?, read("rel")?);
                block.clear();
                for (place, ((lhs, rhs), relation)) in lhs.into_iter().zip(rhs).zip(relations).enumerate() {
                    let at = start + place as u64;
                    let fault = |code: &'static str, text: &str| {
                        Error::corrupt(code, format!("{text}: edge {at} of {bucket}")).in_file(&self.label)
                    };
                    block.push(edge(model, parts, relation, [lhs, rhs], fault)?);
                }
                take(parts, &block)?;
            }
        }
        Ok(())
    }
}

fn edge(
    model: &Model<'_>,
    parts: [u64; 2],
    relation: i64,
    ids: [i64; 2],
    fault: impl Fn(&'static str, &str) -> Error,
) -> Result<Edge> {
    let number = u32::try_from(relation).ok();
    let known = number.and_then(|number| Some((number, model.sides(u64::from(number))?)));
    let (number, sides) = known.ok_or_else(|| {
        let error = fault("relation-out-of-range", "an edge has an undefined relation").found(relation);
        match model.relation_count() {
            Some(count) => error.expected(format_args!("a number below {count}")),
            None => error,
        }
    })?;
    let mut rows = [0; 2];
    for (side, row) in rows.iter_mut().enumerate() {
        let entity = &model.types[sides[side]];
        entity.check_scored()?;
        let part = entity.part(parts[side]).ok_or_else(|| {
            fault("no-such-partition", "an entity type of an edge does not have the partition of its bucket")
                .expected(format_args!("a partition below {} of type {}", entity.parts(), entity.name))
                .found(parts[side])
        })?;
        let place = u64::try_from(ids[side]).ok().and_then(|id| part.start.checked_add(id));
        *row = place.filter(|row| part.contains(row)).ok_or_else(|| {
            let count = part.end - part.start;
            fault("id-out-of-range", "an edge refers to a row beyond its table")
                .expected(format_args!("a row below {count}, in this partition of type {}", entity.name))
                .found(format_args!("{} {}", ["lhs", "rhs"][side], ids[side]))
                .hint(phrase![
                    "if the edges have other partitions than the checkpoint, ",
                    Job::Convert.call(),
                    " writes them with the right ones (",
                    Opt::Set.pair("partitions", "N"),
                    ")"
                ])
        })?;
    }
    Ok(Edge { relation: number, rows })
}
