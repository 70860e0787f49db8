//! Evaluation of a checkpoint on edges: ranks of edges among corrupted ones.
//!
//! Both sides of an edge are replaced by each candidate. Static relations apply their operator to right sides, candidates
//! included. Dynamic relations apply an operator of their own to the side that stays (specification, section 7).
//!
//! | module | content |
//! | --- | --- |
//! | `edges` | edges as rows of whole tables |
//! | `filter` | known edges, excluded from the negatives |
//! | `names` | comparison of names beside edges with those of a checkpoint |
//! | `ranking` | counts of candidates that score at least as high as an edge |
//! | `report` | metrics |

mod edges;
mod filter;
mod names;
mod ranking;
mod report;
#[cfg(test)]
mod tests;

pub use names::name_difference;
pub use report::{Evaluation, HITS, Metrics, RelationMetrics};

use super::config::Side;
use super::scores::{Model, Table, Workers, relation_names};
use edges::{Edge, Edges};
use ranking::{Candidates, Group, mixed};
use report::Sums;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::{counted, escape, near};
use weighbridge_io::engine::{NoProgress, Progress, check_memory};

/// Memory of an edge besides its rows.
const EDGE_BYTES: u64 = 256;
/// Copies of the row of a side in memory at once: bytes, numbers, and prepared.
const COPIES: u64 = 4;
/// Smallest number of edges ranked at once.
const MIN_EDGES: u64 = 256;

/// Candidates that replace a side of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Negatives {
    /// All entities of the type.
    #[default]
    All,
    /// All entities of the type in the partition of the edge's bucket, as upstream evaluates.
    Partition,
    /// This many distinct random entities of each type, the same for all edges.
    Sampled(u64),
}

/// Options of [`evaluate`].
#[derive(Debug, Clone)]
pub struct EvaluateOptions {
    /// Candidates of types that are not in `candidates`.
    pub negatives: Negatives,
    /// Rows of each entity type among which its entities are ranked, whatever the edge. A repeated row counts once.
    pub candidates: BTreeMap<String, Vec<u64>>,
    /// Random seed of sampled candidates and of the pairs of the AUC.
    pub seed: u64,
    /// Number of threads; 0 for one a processor.
    pub threads: usize,
    /// Memory for the rows of edges, in bytes. Candidates are read once for the edges that fit.
    pub memory: u64,
    /// Receiver of progress, which can cancel the evaluation.
    pub progress: Arc<dyn Progress>,
}

impl Default for EvaluateOptions {
    /// Returns all candidates, one thread a processor, 256 MiB, without progress.
    fn default() -> Self {
        Self {
            negatives: Negatives::All,
            candidates: BTreeMap::new(),
            seed: 0,
            threads: 0,
            memory: 256 << 20,
            progress: Arc::new(NoProgress),
        }
    }
}

/// Rank of one side of an edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SideRank {
    /// Score of the edge with the operator of this side.
    pub score: f32,
    /// Rank: 1 plus the number of negatives that score at least as high.
    pub rank: u64,
    /// Number of negatives.
    pub negatives: u64,
}

/// Ranks of a single edge.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeRank {
    /// Number of the relation.
    pub relation: u32,
    /// Name of the relation, if known.
    pub name: Option<String>,
    /// Rank of the left side among entities of its type.
    pub lhs: SideRank,
    /// Rank of the right side.
    pub rhs: SideRank,
}

/// Returns the entity types whose entities are ranked: those of the sides of relations that the configuration does not exclude
/// from corruption.
///
/// # Errors
/// Errors of an incomplete model, as [`evaluate`].
pub fn ranked_types(checkpoint: &Checkpoint) -> Result<Vec<String>> {
    let model = Model::of(checkpoint)?;
    let kinds = ranked_kinds(&model, &ranked_sides(&model));
    Ok(kinds.into_iter().map(|kind| model.types[kind].name.clone()).collect())
}

/// Evaluates a checkpoint on edges. Edges of `filter` are excluded from the negatives: give the training edges, and others
/// that are known, for filtered ranks.
///
/// ```no_run
/// use weighbridge_biggraph::{EvaluateOptions, evaluate};
/// use weighbridge_core::Checkpoint;
///
/// fn report(model: &Checkpoint, test: &Checkpoint, train: &Checkpoint) -> weighbridge_core::Result<()> {
///     let evaluation = evaluate(model, test, &[train], &EvaluateOptions::default())?;
///     println!("MRR {:.3}, Hits@10 {:.3}", evaluation.all.mrr, evaluation.all.hits[1]);
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `wrong-kind` unless `checkpoint` is one of PyTorch-BigGraph, `no-config`,
/// `parameters-missing` and others for an incomplete model, `no-edges`, `no-bucket`, `no-such-type` for candidates of a type
/// that is not ranked;
/// [`weighbridge_core::Kind::Corrupt`]: `partition-missing`, `id-out-of-range`, `relation-out-of-range`,
/// `no-such-partition`; [`weighbridge_core::Kind::Unsupported`]: `featurised`, `comparator`;
/// [`weighbridge_core::Kind::Usage`]: `too-little-memory`, `no-candidates` and `rows` for no candidates and for rows beyond
/// their table; [`weighbridge_core::Kind::Cancelled`]; and errors of reading.
pub fn evaluate(
    checkpoint: &Checkpoint,
    edges: &Checkpoint,
    filter: &[&Checkpoint],
    options: &EvaluateOptions,
) -> Result<Evaluation> {
    check_memory(options.memory)?;
    let model = Model::of(checkpoint)?;
    let mut notes = Vec::new();
    let edges = Edges::of(&model, edges, &mut notes)?;
    let filter =
        filter.iter().map(|edges| Edges::of(&model, edges, &mut notes)).collect::<Result<Vec<_>>>()?;
    let mut job = Job::new(&model, filter, options).map_err(|error| error.in_file(&checkpoint.label))?;
    let columns = model.types.iter().map(|entity| entity.table.row_bytes()).max().unwrap_or(0);
    let per_edge = columns.saturating_mul(2 * COPIES).saturating_add(EDGE_BYTES);
    let most = usize::try_from((options.memory / per_edge).max(MIN_EDGES)).unwrap_or(usize::MAX);
    let passes = edges.count.div_ceil(most as u64).max(1);
    options.progress.begin(job.pass_bytes().saturating_mul(passes));
    let by_bucket = options.negatives == Negatives::Partition;
    let mut block: Vec<Edge> = Vec::new();
    let mut bucket = [0, 0];
    edges.each(&model, &mut |parts, mut more| {
        if by_bucket && parts != bucket {
            job.rank(&mut block, bucket)?;
        }
        bucket = parts;
        while block.len() + more.len() >= most {
            let (now, later) = more.split_at(most - block.len());
            block.extend_from_slice(now);
            job.rank(&mut block, bucket)?;
            more = later;
        }
        block.extend_from_slice(more);
        Ok(())
    })?;
    job.rank(&mut block, bucket)?;
    let mut all = Sums::default();
    job.sums.values().for_each(|sums| all.add(sums));
    if job.not_comparable > 0 {
        let count = counted(job.not_comparable, "edge has", "edges have");
        let text = format!("{count} a score of NaN, which no negative reaches: rank 1");
        notes.push(Note::new("nan-scores", text));
    }
    let names = relation_names(checkpoint, &model.config);
    let relation = |(number, sums): (u32, Sums)| {
        let name = names.get(number as usize).cloned();
        RelationMetrics { number, name, metrics: sums.metrics() }
    };
    Ok(Evaluation { all: all.metrics(), relations: job.sums.into_iter().map(relation).collect(), notes })
}

/// Ranks one edge of the relation with that name or number among all entities of the types. Each side is a row of a table.
///
/// # Errors
/// As [`evaluate`]; [`weighbridge_core::Kind::Mismatch`]: `no-such-relation`, `no-such-type` for tables that are not those of
/// the relation; [`weighbridge_core::Kind::Usage`], `rows`, for a row beyond its table.
pub fn rank(
    checkpoint: &Checkpoint,
    relation: &str,
    sides: [(&TensorEntry, u64); 2],
    options: &EvaluateOptions,
) -> Result<EdgeRank> {
    let model = Model::of(checkpoint)?;
    let number = model.relation(relation)?;
    let kinds = model.sides(u64::from(number)).unwrap_or_default();
    for (side, (table, row)) in sides.into_iter().enumerate() {
        model.types[kinds[side]].check_scored()?;
        let own = &model.types[kinds[side]].table;
        if table.path != own.entry().path {
            let word = ["left", "right"][side];
            return Err(Error::mismatch("no-such-type", "a side of the edge is not of the relation's type")
                .on_tensor(table.name())
                .expected(format_args!("{}, the {word} side of {}", own.entry().name(), escape(relation))));
        }
        if row >= own.rows() {
            return Err(Error::usage("rows", "the row is beyond the last of the table")
                .on_tensor(table.name())
                .expected(format_args!("less than {}", own.rows()))
                .found(row));
        }
    }
    let rows = sides.map(|(_, row)| row);
    let relation = number;
    let options =
        EvaluateOptions { negatives: Negatives::All, candidates: BTreeMap::new(), ..options.clone() };
    let mut job = Job::new(&model, Vec::new(), &options)?;
    job.sides = vec![Side::Lhs, Side::Rhs];
    options.progress.begin(job.pass_bytes());
    let edges = [Edge { relation, rows }];
    let groups = job.counted(&edges, [0, 0])?;
    let side = |side: usize| {
        let group = groups.iter().find(|group| group.side == side);
        group.map_or(SideRank { score: f32::NAN, rank: 1, negatives: 0 }, |group| SideRank {
            score: group.scores[0],
            rank: group.rank(0),
            negatives: group.negatives(0, &job.candidates[group.kind]),
        })
    };
    let name = relation_names(checkpoint, &model.config).get(relation as usize).cloned();
    Ok(EdgeRank { relation, name, lhs: side(0), rhs: side(1) })
}

/// Evaluation in progress.
struct Job<'a> {
    model: &'a Model<'a>,
    filter: Vec<Edges>,
    options: &'a EvaluateOptions,
    /// Sides that are replaced.
    sides: Vec<Side>,
    /// Candidates of each type.
    candidates: Vec<Candidates>,
    sums: BTreeMap<u32, Sums>,
    /// Number of edges with a score of NaN.
    not_comparable: u64,
    /// Number of edges ranked.
    done: u64,
}

impl<'a> Job<'a> {
    fn new(model: &'a Model<'a>, filter: Vec<Edges>, options: &'a EvaluateOptions) -> Result<Self> {
        let sides = ranked_sides(model);
        let ranked = ranked_kinds(model, &sides);
        let names = || ranked.iter().map(|kind| model.types[*kind].name.as_str());
        if let Some(other) = options.candidates.keys().find(|own| !names().any(|name| name == **own)) {
            return Err(no_such_type(other, &names().collect::<Vec<_>>()));
        }
        let mut candidates = Vec::with_capacity(model.types.len());
        for (number, entity) in model.types.iter().enumerate() {
            let count = entity.table.rows();
            let rows = match (options.candidates.get(&entity.name), options.negatives) {
                (Some(rows), _) => Some(distinct(&entity.table, rows)?),
                (None, Negatives::Sampled(wanted)) if wanted < count => {
                    Some(sample(count, wanted, mixed(options.seed ^ mixed(number as u64))))
                }
                _ => None,
            };
            let table = match &rows {
                Some(rows) => entity.table.subset(rows.clone())?,
                None => entity.table.clone(),
            };
            candidates.push(Candidates { range: 0..table.rows(), table, rows });
        }
        Ok(Self {
            model,
            filter,
            options,
            sides,
            candidates,
            sums: BTreeMap::new(),
            not_comparable: 0,
            done: 0,
        })
    }

    /// Bytes of candidates read for a block of edges.
    fn pass_bytes(&self) -> u64 {
        let bytes = |kind: usize| {
            self.candidates[kind].table.rows().saturating_mul(self.candidates[kind].table.row_bytes())
        };
        ranked_kinds(self.model, &self.sides).into_iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Ranks the edges, of one bucket if the candidates depend on it, and removes them from `edges`.
    fn rank(&mut self, edges: &mut Vec<Edge>, bucket: [u64; 2]) -> Result<()> {
        // Each relation is one run.
        edges.sort_by_key(|edge| edge.relation);
        let groups = self.counted(edges, bucket)?;
        for group in &groups {
            for (place, edge) in edges[group.edges.clone()].iter().enumerate() {
                let sums = self.sums.entry(edge.relation).or_default();
                sums.add_rank(group.rank(place));
                if let Some(won) = group.pair(place) {
                    sums.add_pair(won);
                }
            }
        }
        let mut not_comparable = BTreeSet::new();
        for group in &groups {
            let own = group.scores.iter().enumerate().filter(|(_, score)| score.is_nan());
            not_comparable.extend(own.map(|(place, _)| group.edges.start + place));
        }
        self.not_comparable += not_comparable.len() as u64;
        for edge in edges.iter() {
            self.sums.entry(edge.relation).or_default().edges += 1;
        }
        self.done += edges.len() as u64;
        edges.clear();
        Ok(())
    }

    /// Groups the edges, sorted by relation, and counts their negatives.
    fn counted(&mut self, edges: &[Edge], bucket: [u64; 2]) -> Result<Vec<Group>> {
        if edges.is_empty() {
            return Ok(Vec::new());
        }
        let known = filter::known(self.model, &self.filter, edges, &self.sides)?;
        let runs: Vec<Range<usize>> = runs(edges).collect();
        let mut groups = Vec::new();
        for &side in &self.sides.clone() {
            if self.options.negatives == Negatives::Partition {
                for (entity, candidates) in self.model.types.iter().zip(&mut self.candidates) {
                    if candidates.rows.is_none() {
                        // A type without this partition has no edges in the bucket.
                        candidates.range = entity.part(bucket[side as usize]).unwrap_or(0..0);
                    }
                }
            }
            let whole = 0..edges.len();
            let parts =
                if self.model.config.dynamic_relations { std::slice::from_ref(&whole) } else { &runs };
            let mut of_side = Vec::with_capacity(parts.len());
            for part in parts {
                of_side.push(self.group(edges, part.clone(), side, &known[side as usize])?);
            }
            for (kind, candidates) in self.candidates.iter().enumerate() {
                let own: Vec<&Group> = of_side.iter().filter(|group| group.kind == kind).collect();
                if !own.is_empty() {
                    let workers =
                        Workers { threads: self.options.threads, progress: &*self.options.progress };
                    ranking::count(self.model, candidates, &own, workers)?;
                }
            }
            groups.extend(of_side);
        }
        Ok(groups)
    }

    /// Prepares the edges in `range` for the ranking of one side.
    fn group(&self, edges: &[Edge], range: Range<usize>, side: Side, known: &filter::Known) -> Result<Group> {
        let (own, other) = (side as usize, 1 - side as usize);
        let edges = edges.get(range.clone()).unwrap_or_default();
        let first = edges.first().map_or(0, |edge| edge.relation);
        let sides = self.model.sides(u64::from(first)).unwrap_or_default();
        let (table, other_table) =
            (&self.model.types[sides[own]].table, &self.model.types[sides[other]].table);
        let rows = |of: usize| edges.iter().map(|edge| edge.rows[of]).collect::<Vec<_>>();
        let columns = table.columns();
        let mut positives = table.gather(&rows(own))?;
        let mut queries = other_table.gather(&rows(other))?;
        let mut of_candidates = None;
        if self.model.config.dynamic_relations {
            let other_side = if side == Side::Lhs { Side::Rhs } else { Side::Lhs };
            for run in runs(edges) {
                if let Some(operator) = self.model.operator(edges[run.start].relation, other_side)? {
                    operator.apply(&mut queries[run.start * columns..run.end * columns], columns);
                }
            }
        } else if let Some(operator) = self.model.operator(first, Side::Rhs)? {
            operator.apply(if side == Side::Lhs { &mut queries } else { &mut positives }, columns);
            of_candidates = (side == Side::Rhs).then_some(operator);
        }
        let queries = self.model.scorer.prepare(queries, columns);
        let scores = self.model.scorer.pairs(&queries, &self.model.scorer.prepare(positives, columns));
        let candidates = &self.candidates[sides[own]];
        let skipped = edges.iter().map(|edge| {
            let known = known.rows(edge.relation, edge.rows[other]).iter().copied();
            known.chain([edge.rows[own]]).filter_map(|row| candidates.place(row)).collect()
        });
        let mut group = Group::new((sides[own], of_candidates, own), range.clone(), queries, scores, skipped);
        let start = self.done + range.start as u64;
        group.draw_pairs(candidates, |edge| {
            mixed(self.options.seed ^ mixed(2 * (start + edge as u64) + own as u64))
        });
        Ok(group)
    }
}

/// Sides of edges that the configuration does not exclude from corruption.
fn ranked_sides(model: &Model<'_>) -> Vec<Side> {
    let disabled = [model.config.disable_lhs_negs, model.config.disable_rhs_negs];
    [Side::Lhs, Side::Rhs].into_iter().filter(|side| !disabled[*side as usize]).collect()
}

/// Entity types of these sides of all relations.
fn ranked_kinds(model: &Model<'_>, sides: &[Side]) -> BTreeSet<usize> {
    model.relations.iter().flat_map(|pair| sides.iter().map(|side| pair[*side as usize])).collect()
}

fn no_such_type(name: &str, ranked: &[&str]) -> Error {
    let error = Error::mismatch("no-such-type", "candidates of an entity type that is not ranked")
        .expected(ranked.iter().copied().map(escape).collect::<Vec<_>>().join(", "))
        .found(escape(name));
    match near(|| ranked.iter().copied(), name, 1).first() {
        Some(near) => error.hint(format!("did you mean {}?", escape(near))),
        None => error,
    }
}

/// Given candidates of a table: ascending and distinct.
fn distinct(table: &Table, rows: &[u64]) -> Result<Vec<u64>> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows.dedup();
    match rows.last() {
        None => Err(Error::usage("no-candidates", "the list of candidates is empty")
            .on_tensor(table.entry().name())
            .expected("one entity or more")),
        Some(last) if *last >= table.rows() => {
            Err(Error::usage("rows", "a candidate is beyond the last row of the table")
                .on_tensor(table.entry().name())
                .expected(format_args!("less than {}", table.rows()))
                .found(last))
        }
        Some(_) => Ok(rows),
    }
}

/// Ranges of edges of one relation.
fn runs(edges: &[Edge]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    edges.chunk_by(|a, b| a.relation == b.relation).map(move |run| {
        let range = start..start + run.len();
        start = range.end;
        range
    })
}

/// Draws `wanted` distinct rows of `rows`, which are more; ascending.
fn sample(rows: u64, wanted: u64, seed: u64) -> Vec<u64> {
    // Floyd's algorithm: each subset is equally likely.
    let mut drawn = BTreeSet::new();
    let mut state = seed;
    for last in rows - wanted..rows {
        let row = ranking::below(&mut state, last + 1);
        if !drawn.insert(row) {
            drawn.insert(last);
        }
    }
    drawn.into_iter().collect()
}
