//! Ranks of edges among the candidates of one side.

use super::super::scores::{Model, Operator, Prepared, Table, Workers, each_block};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use weighbridge_core::error::Result;

/// Number of queries and of candidates scored together: their scores stay in the cache of a processor.
const TILE: [usize; 2] = [256, 512];

/// Rows of a type among which ranks are counted.
#[derive(Debug)]
pub(super) struct Candidates {
    pub(super) table: Table,
    /// Rows of the whole type that the table consists of, ascending; `None` for all.
    pub(super) rows: Option<Vec<u64>>,
    /// Used rows of the table.
    pub(super) range: Range<u64>,
}

impl Candidates {
    /// Place in the table of a row of the whole type, if it is a candidate.
    pub(super) fn place(&self, row: u64) -> Option<u64> {
        let place = match &self.rows {
            None => Some(row),
            Some(rows) => rows.binary_search(&row).ok().map(|place| place as u64),
        };
        place.filter(|place| self.range.contains(place))
    }
}

/// Random pair of an edge and a negative of another edge.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Place of the negative.
    place: u64,
    /// Score of the edge.
    threshold: f32,
}

/// Edges whose side is ranked among the same candidates.
#[derive(Debug)]
pub(super) struct Group {
    /// Entity type of the candidates.
    pub(super) kind: usize,
    /// Operator applied to candidates.
    pub(super) operator: Option<Operator>,
    /// Side in the edges.
    pub(super) side: usize,
    /// Places of the edges in their block.
    pub(super) edges: Range<usize>,
    queries: Prepared,
    /// Score of each edge.
    pub(super) scores: Vec<f32>,
    /// Candidates excluded from the negatives of each edge: ascending places.
    skipped: Vec<u64>,
    /// Start of the skipped places of each edge.
    starts: Vec<usize>,
    pairs: Vec<Option<Pair>>,
    /// Number of negatives that score at least as high as the edge.
    above: Vec<AtomicU64>,
    won: Vec<AtomicU8>,
}

impl Group {
    /// Creates a group of prepared queries, with the prepared rows of the edges, and the candidates excluded from
    /// the negatives of each edge.
    pub(super) fn new(
        (kind, operator, side): (usize, Option<Operator>, usize),
        edges: Range<usize>,
        queries: Prepared,
        scores: Vec<f32>,
        skipped: impl Iterator<Item = Vec<u64>>,
    ) -> Self {
        let mut group = Self {
            kind,
            operator,
            side,
            queries,
            skipped: Vec::new(),
            starts: vec![0],
            pairs: Vec::new(),
            above: scores.iter().map(|_| AtomicU64::new(0)).collect(),
            won: scores.iter().map(|_| AtomicU8::new(0)).collect(),
            edges,
            scores,
        };
        for mut places in skipped {
            places.sort_unstable();
            places.dedup();
            group.skipped.extend(places);
            group.starts.push(group.skipped.len());
        }
        group
    }

    fn skipped(&self, edge: usize) -> &[u64] {
        &self.skipped[self.starts[edge]..self.starts[edge + 1]]
    }

    /// Number of negatives of an edge.
    pub(super) fn negatives(&self, edge: usize, candidates: &Candidates) -> u64 {
        let count = candidates.range.end - candidates.range.start;
        count - self.skipped(edge).len() as u64
    }

    /// Draws a negative of each edge, and another edge to compare it with. `seed` gives a number for each edge.
    pub(super) fn draw_pairs(&mut self, candidates: &Candidates, seed: impl Fn(usize) -> u64) {
        let edges = self.scores.len() as u64;
        let draw = |edge: usize| {
            let negatives = self.negatives(edge, candidates);
            if negatives == 0 {
                return None;
            }
            let mut random = seed(edge);
            // The place of the n-th negative: skipped places before it move it.
            let mut place = candidates.range.start + below(&mut random, negatives);
            for skipped in self.skipped(edge) {
                place += u64::from(*skipped <= place);
            }
            let other = usize::try_from(below(&mut random, edges)).unwrap_or(0);
            Some(Pair { place, threshold: self.scores[other] })
        };
        self.pairs = (0..self.scores.len()).map(draw).collect();
    }

    /// Rank of an edge.
    pub(super) fn rank(&self, edge: usize) -> u64 {
        1 + self.above[edge].load(Ordering::Relaxed)
    }

    /// True where the random pair of an edge is in order; `None` without a pair.
    pub(super) fn pair(&self, edge: usize) -> Option<bool> {
        self.pairs[edge].map(|_| self.won[edge].load(Ordering::Relaxed) > 0)
    }

    /// Counts the scores of an edge's candidates from place `first` on.
    fn count(&self, edge: usize, first: u64, scores: &[f32]) {
        let own = self.scores[edge];
        let at_least = |scores: &[f32]| scores.iter().fold(0u32, |sum, score| sum + u32::from(*score >= own));
        let mut above = at_least(scores);
        let end = first + scores.len() as u64;
        let score_at = |place: u64| usize::try_from(place - first).ok().and_then(|place| scores.get(place));
        let skipped = self.skipped(edge);
        let begin = skipped.partition_point(|place| *place < first);
        for place in skipped[begin..].iter().take_while(|place| **place < end) {
            above -= u32::from(score_at(*place).is_some_and(|score| *score >= own));
        }
        if above > 0 {
            self.above[edge].fetch_add(u64::from(above), Ordering::Relaxed);
        }
        if let Some(pair) = self.pairs[edge]
            && (first..end).contains(&pair.place)
            && score_at(pair.place).is_some_and(|score| pair.threshold > *score)
        {
            self.won[edge].store(1, Ordering::Relaxed);
        }
    }
}

/// Returns the next random number below `end`, which is not 0.
pub(super) fn below(state: &mut u64, end: u64) -> u64 {
    *state = mixed(*state);
    let wide = u128::from(*state) * u128::from(end);
    // The high half is below `end`.
    u64::try_from(wide >> 64).unwrap_or(0)
}

/// Mixes the bits of a number: SplitMix64.
pub(super) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Scores the candidates of a type with all queries, and counts.
///
/// # Errors
/// Errors of reading; [`weighbridge_core::Kind::Cancelled`].
pub(super) fn count(
    model: &Model<'_>,
    candidates: &Candidates,
    groups: &[&Group],
    workers: Workers<'_>,
) -> Result<()> {
    let columns = candidates.table.columns();
    let work = |tile: &mut Vec<f32>, first: u64, values: Vec<f32>| {
        let mut plain: Option<Prepared> = None;
        for group in groups {
            let transformed;
            let prepared = match &group.operator {
                Some(operator) => {
                    let mut values = values.clone();
                    operator.apply(&mut values, columns);
                    transformed = model.scorer.prepare(values, columns);
                    &transformed
                }
                None => &*plain.get_or_insert_with(|| model.scorer.prepare(values.clone(), columns)),
            };
            tiles(group, prepared, first, model, tile);
        }
        Ok(())
    };
    each_block(&candidates.table, candidates.range.clone(), workers, work).map(|_: Vec<Vec<f32>>| ())
}

fn tiles(group: &Group, candidates: &Prepared, first: u64, model: &Model<'_>, tile: &mut Vec<f32>) {
    let [queries_at_once, candidates_at_once] = TILE;
    for start in (0..candidates.len()).step_by(candidates_at_once) {
        let columns = start..candidates.len().min(start + candidates_at_once);
        for query in (0..group.queries.len()).step_by(queries_at_once) {
            let rows = query..group.queries.len().min(query + queries_at_once);
            let queries = (&group.queries, rows.clone());
            model.scorer.scores(queries, (candidates, columns.clone()), tile);
            for (edge, scores) in rows.zip(tile.chunks_exact(columns.len())) {
                group.count(edge, first + start as u64, scores);
            }
        }
    }
}
