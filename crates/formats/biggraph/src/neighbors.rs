//! Nearest rows of a table, and predictions of a relation: exact, in one pass over the table for many queries.

use super::config::Side;
use super::scores::{
    Comparator, Model, Operator, Prepared, Scorer, Table, Workers, each_block, trained_space,
};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::escape;
use weighbridge_io::engine::{NoProgress, Progress, check_memory, default_threads};

/// Number of queries and of rows scored together: their scores stay in the cache of a processor.
const TILE: [usize; 2] = [128, 1024];
/// Number of scores compared with a threshold at once.
const LANES: usize = 32;
/// Bytes of a neighbor while it is searched.
const NEIGHBOR_BYTES: u64 = 32;
/// Copies of a query in memory at once.
const COPIES: u64 = 4;

/// Options of [`neighbors`].
#[derive(Debug, Clone)]
pub struct NeighborOptions {
    /// Number of neighbors of each query.
    pub count: usize,
    /// Comparator; `None` for that of the configuration, or `cos` without one.
    pub comparator: Option<Comparator>,
    /// Name or number of a relation: the neighbors are the rows that it predicts for a query.
    pub relation: Option<String>,
    /// With a relation whose sides have the same type: queries are right sides, and left sides are predicted.
    pub reverse: bool,
    /// Number of threads; 0 for one a processor.
    pub threads: usize,
    /// Memory for queries and their neighbors, in bytes. The table is read once for the queries that fit.
    pub memory: u64,
    /// Receiver of progress, which can cancel the search.
    pub progress: Arc<dyn Progress>,
}

impl Default for NeighborOptions {
    /// Returns ten neighbors by the comparator of the configuration, one thread a processor, 256 MiB, without progress.
    fn default() -> Self {
        Self {
            count: 10,
            comparator: None,
            relation: None,
            reverse: false,
            threads: 0,
            memory: 256 << 20,
            progress: Arc::new(NoProgress),
        }
    }
}

/// Queries of a search.
#[derive(Debug, Clone, Copy)]
pub enum Queries<'a> {
    /// Rows of the table. A row is not its own neighbor.
    Rows(&'a [u64]),
    /// Vectors with the columns of the table, one after the other. Adjustments of rows, such as global embeddings, are not
    /// applied to them.
    Vectors(&'a [f32]),
}

/// Row of a table, and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbor {
    /// Row.
    pub row: u64,
    /// Score; higher is closer. Distances are negative.
    pub score: f32,
}

/// Result of [`neighbors`].
#[derive(Debug, Clone)]
pub struct Neighbors {
    /// Table that the rows are of.
    pub table: TensorEntry,
    /// Comparator.
    pub comparator: Comparator,
    /// Neighbors of each query, closest first; of equal scores, the lowest row first.
    pub lists: Vec<Vec<Neighbor>>,
}

/// Finds the rows of a table that are closest to each query.
///
/// Embeddings of PyTorch-BigGraph are compared as trained: with their global embedding, the comparator and the bias. With a
/// relation, its operator is applied as well, and the neighbors are of the type on its other side. Other tables are compared
/// as they are stored. Rows whose score is NaN are skipped.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `not-a-table`, `no-such-relation`, `no-such-type` for a table that the relation
/// does not use, and errors of an incomplete model; [`weighbridge_core::Kind::Usage`]: `rows` for a row beyond the table,
/// `wrong-length` for vectors of other lengths, `too-little-memory`; [`weighbridge_core::Kind::Cancelled`]; and errors of
/// reading.
pub fn neighbors(
    checkpoint: &Checkpoint,
    table: &TensorEntry,
    queries: Queries<'_>,
    options: &NeighborOptions,
) -> Result<Neighbors> {
    check_memory(options.memory)?;
    let mut search = match &options.relation {
        Some(relation) => Search::of_relation(checkpoint, table, relation, options)?,
        None => Search::of_table(checkpoint, table)?,
    };
    if let Some(comparator) = options.comparator {
        search.scorer.comparator = comparator;
    }
    let columns = search.queried.columns();
    let count = match queries {
        Queries::Rows(rows) => {
            if let Some(row) = rows.iter().find(|row| **row >= search.queried.rows()) {
                return Err(Error::usage("rows", "the row is beyond the last of the table")
                    .on_tensor(table.name())
                    .expected(format_args!("less than {}", search.queried.rows()))
                    .found(row));
            }
            rows.len()
        }
        Queries::Vectors(vectors) => {
            if !vectors.len().is_multiple_of(columns) {
                return Err(Error::usage("wrong-length", "a query does not have the columns of the table")
                    .on_tensor(table.name())
                    .expected(format_args!("{columns} numbers for each query"))
                    .found(format_args!("{} numbers", vectors.len())));
            }
            vectors.len() / columns
        }
    };
    let threads = if options.threads == 0 { default_threads() } else { options.threads };
    let most = search.candidates.rows().min(options.count as u64);
    let per_query = (search.queried.row_bytes() * COPIES)
        .saturating_add(most.saturating_mul(NEIGHBOR_BYTES).saturating_mul(threads as u64 + 1));
    let at_once = usize::try_from((options.memory / per_query.max(1)).max(1)).unwrap_or(usize::MAX);
    let passes = count.div_ceil(at_once) as u64;
    let bytes = search.candidates.rows().saturating_mul(search.candidates.row_bytes());
    options.progress.begin(bytes.saturating_mul(passes));
    let mut lists = Vec::with_capacity(count);
    for start in (0..count).step_by(at_once) {
        let range = start..count.min(start + at_once);
        let (values, own) = match queries {
            Queries::Rows(rows) => {
                let rows = &rows[range];
                (search.queried.gather(rows)?, if search.is_same { rows } else { &[] })
            }
            Queries::Vectors(vectors) => {
                (vectors[range.start * columns..range.end * columns].to_vec(), &[][..])
            }
        };
        lists.extend(search.closest(values, own, options)?);
    }
    Ok(Neighbors { table: search.entry, comparator: search.scorer.comparator, lists })
}

/// Tables and their preparation.
struct Search {
    queried: Table,
    candidates: Table,
    /// Tensor of the candidates.
    entry: TensorEntry,
    /// True where queries are rows of the candidates.
    is_same: bool,
    of_queries: Option<Operator>,
    of_candidates: Option<Operator>,
    scorer: Scorer,
}

impl Search {
    fn of_table(checkpoint: &Checkpoint, entry: &TensorEntry) -> Result<Self> {
        let (table, scorer) = match trained_space(checkpoint, entry)? {
            Some(space) => space,
            None => (Table::new(entry)?, Scorer { comparator: Comparator::Cos, bias: false }),
        };
        Ok(Self {
            queried: table.clone(),
            candidates: table,
            entry: entry.clone(),
            is_same: true,
            of_queries: None,
            of_candidates: None,
            scorer,
        })
    }

    fn of_relation(
        checkpoint: &Checkpoint,
        entry: &TensorEntry,
        relation: &str,
        options: &NeighborOptions,
    ) -> Result<Self> {
        let model = Model::of(checkpoint)?;
        let number = model.relation(relation)?;
        let sides = model.sides(u64::from(number)).unwrap_or_default();
        let [lhs, rhs] = sides.map(|kind| &model.types[kind]);
        lhs.check_scored()?;
        rhs.check_scored()?;
        let is_side = |of: &Table| of.entry().path == entry.path;
        let of_queries = match (is_side(&lhs.table), is_side(&rhs.table)) {
            (true, false) => Side::Lhs,
            (false, true) => Side::Rhs,
            (true, true) if options.reverse => Side::Rhs,
            (true, true) => Side::Lhs,
            (false, false) => {
                return Err(Error::mismatch("no-such-type", "the relation does not use the table")
                    .on_tensor(entry.name())
                    .expected(format_args!(
                        "{} or {}, the sides of {}",
                        escape(&lhs.table.entry().name()),
                        escape(&rhs.table.entry().name()),
                        escape(relation)
                    )));
            }
        };
        let (queried, candidates) = if of_queries == Side::Lhs { (lhs, rhs) } else { (rhs, lhs) };
        let (mut query_operator, mut candidate_operator) = (None, None);
        if model.config.dynamic_relations || of_queries == Side::Rhs {
            query_operator = model.operator(number, of_queries)?;
        } else {
            candidate_operator = model.operator(number, Side::Rhs)?;
        }
        let place = checkpoint.tensors.iter().find(|tensor| is_path(tensor, candidates.table.entry()));
        Ok(Self {
            queried: queried.table.clone(),
            candidates: candidates.table.clone(),
            // The tensor with its row names.
            entry: place.unwrap_or(candidates.table.entry()).clone(),
            is_same: sides[0] == sides[1],
            of_queries: query_operator,
            of_candidates: candidate_operator,
            scorer: model.scorer,
        })
    }

    /// Finds the candidates closest to each query. The rows `own` of the queries are skipped.
    fn closest(
        &self,
        mut values: Vec<f32>,
        own: &[u64],
        options: &NeighborOptions,
    ) -> Result<Vec<Vec<Neighbor>>> {
        if let Some(operator) = &self.of_queries {
            operator.apply(&mut values, self.queried.columns());
        }
        let queries = self.scorer.prepare(values, self.queried.columns());
        let columns = self.candidates.columns();
        let workers = Workers { threads: options.threads, progress: &*options.progress };
        let work = |state: &mut State, first: u64, mut values: Vec<f32>| {
            if let Some(operator) = &self.of_candidates {
                operator.apply(&mut values, columns);
            }
            let rows = self.scorer.prepare(values, columns);
            state.lists.resize_with(queries.len(), Closest::default);
            self.tiles(&queries, &rows, first, own, options.count, state);
            Ok(())
        };
        let rows = 0..self.candidates.rows();
        let mut states: Vec<State> = each_block(&self.candidates, rows, workers, work)?;
        let list = |query: usize| {
            let lists = states.iter_mut().filter_map(|state| state.lists.get_mut(query));
            let mut all: Vec<Candidate> = lists.flat_map(|list| std::mem::take(&mut list.heap)).collect();
            all.sort_unstable();
            all.truncate(options.count);
            all.into_iter().map(|Candidate { row, score }| Neighbor { row, score }).collect()
        };
        Ok((0..queries.len()).map(list).collect())
    }

    fn tiles(
        &self,
        queries: &Prepared,
        rows: &Prepared,
        first: u64,
        own: &[u64],
        count: usize,
        State { tile, lists }: &mut State,
    ) {
        let [queries_at_once, rows_at_once] = TILE;
        for start in (0..rows.len()).step_by(rows_at_once) {
            let columns = start..rows.len().min(start + rows_at_once);
            for query in (0..queries.len()).step_by(queries_at_once) {
                let part = query..queries.len().min(query + queries_at_once);
                self.scorer.scores((queries, part.clone()), (rows, columns.clone()), tile);
                for (query, scores) in part.zip(tile.chunks_exact(columns.len())) {
                    lists[query].take(scores, first + start as u64, own.get(query).copied(), count);
                }
            }
        }
    }
}

fn is_path(tensor: &TensorEntry, other: &TensorEntry) -> bool {
    tensor.path == other.path && tensor.role.slot().is_none()
}

/// Neighbors found by one thread.
#[derive(Default)]
struct State {
    tile: Vec<f32>,
    lists: Vec<Closest>,
}

/// Row with a score. The order is that of results: the closest is the least.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    score: f32,
    row: u64,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of numbers only; `-0.0` and `0.0` are equal.
        let by_score = other.score.partial_cmp(&self.score).unwrap_or(Ordering::Equal);
        by_score.then(self.row.cmp(&other.row))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Closest rows of a query so far.
struct Closest {
    /// The farthest is on top.
    heap: BinaryHeap<Candidate>,
    /// Lowest score that can be among the closest.
    threshold: f32,
}

impl Default for Closest {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), threshold: f32::NEG_INFINITY }
    }
}

impl Closest {
    /// Takes the scores of rows from `first` on, except row `own`.
    fn take(&mut self, scores: &[f32], first: u64, own: Option<u64>, count: usize) {
        for (chunk, scores) in scores.chunks(LANES).enumerate() {
            let threshold = self.threshold;
            // Without branches: rarely true, and false for NaN.
            if !scores.iter().fold(false, |any, score| any | (*score >= threshold)) {
                continue;
            }
            for (place, &score) in scores.iter().enumerate() {
                let row = first + (chunk * LANES + place) as u64;
                if score >= self.threshold && own != Some(row) {
                    self.insert(Candidate { score, row }, count);
                }
            }
        }
    }

    fn insert(&mut self, candidate: Candidate, count: usize) {
        if self.heap.len() < count {
            self.heap.push(candidate);
        } else if let Some(mut farthest) = self.heap.peek_mut()
            && candidate < *farthest
        {
            *farthest = candidate;
        }
        if self.heap.len() == count {
            self.threshold = self.heap.peek().map_or(f32::INFINITY, |farthest| farthest.score);
        }
    }
}
