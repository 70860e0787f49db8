//! Results of an evaluation.

use weighbridge_core::checkpoint::Note;

/// Ranks up to which hits are counted.
pub const HITS: [u64; 3] = [1, 10, 50];

/// Averages over edges. A rank is 1 plus the number of negatives that score at least as high as the edge. The metrics of an
/// edge are the averages of both sides. Values are NaN without edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Number of edges.
    pub edges: u64,
    /// Mean reciprocal rank.
    pub mrr: f64,
    /// Fractions of ranks of at most 1, 10 and 50.
    pub hits: [f64; HITS.len()],
    /// Mean rank.
    pub mean_rank: f64,
    /// Fraction of pairs in which an edge scores higher than a negative of another edge: one random pair for each edge and
    /// side, so this is an estimate.
    pub auc: f64,
}

/// Metrics of a relation.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationMetrics {
    /// Number in the column `rel`.
    pub number: u32,
    /// Name, if known.
    pub name: Option<String>,
    /// Metrics of its edges.
    pub metrics: Metrics,
}

/// Result of [`evaluate`](super::evaluate()).
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Metrics of all edges.
    pub all: Metrics,
    /// Metrics of each relation that has edges, in order.
    pub relations: Vec<RelationMetrics>,
    /// Notes on the edges.
    pub notes: Vec<Note>,
}

/// Sums over edges and sides.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) edges: u64,
    ranks: u128,
    reciprocals: f64,
    hits: [u64; HITS.len()],
    sides: u64,
    pairs: u64,
    won: u64,
}

impl Sums {
    /// Adds the rank of one side of an edge.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn add_rank(&mut self, rank: u64) {
        self.sides += 1;
        self.ranks += u128::from(rank);
        self.reciprocals += 1.0 / rank as f64;
        for (hits, most) in self.hits.iter_mut().zip(HITS) {
            *hits += u64::from(rank <= most);
        }
    }

    /// Adds a random pair.
    pub(super) fn add_pair(&mut self, won: bool) {
        self.pairs += 1;
        self.won += u64::from(won);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.edges += other.edges;
        self.ranks += other.ranks;
        self.reciprocals += other.reciprocals;
        self.hits.iter_mut().zip(other.hits).for_each(|(sum, hits)| *sum += hits);
        self.sides += other.sides;
        self.pairs += other.pairs;
        self.won += other.won;
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn metrics(&self) -> Metrics {
        let sides = self.sides as f64;
        Metrics {
            edges: self.edges,
            mrr: self.reciprocals / sides,
            hits: self.hits.map(|hits| hits as f64 / sides),
            mean_rank: self.ranks as f64 / sides,
            auc: self.won as f64 / self.pairs as f64,
        }
    }
}
