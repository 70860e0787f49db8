//! Arguments of `evaluate`, `neighbors` and `rank`.

use super::{Input, whole};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::formats::biggraph::{Comparator, Negatives};
use weighbridge::ops::values::{comparator, negatives};

/// Examples of `evaluate`.
pub(crate) const EVALUATE_EXAMPLES: &str = "\
A rank is 1 plus the number of negatives that score at least as high as the edge, and each side of an edge is ranked.
The operator, comparator, bias and global embeddings are those of the training.

Examples:
  weighbridge evaluate model/ --edges test/                                  raw ranks among all entities
  weighbridge evaluate model/ --edges test/ --filter train/ --filter test/   known edges are not counted
  weighbridge evaluate model/ --edges test/ --negatives 1000 --seed 1        1000 random entities of each type
  weighbridge evaluate model/ --edges test/ --json | jq .metrics.mrr";

/// Examples of `neighbors`.
pub(crate) const NEIGHBORS_EXAMPLES: &str = "\
The search is exact. Scores are higher for closer rows; distances are negative. A row is not its own neighbor.

Examples:
  weighbridge neighbors model/ 'user[\"alice\"]'                      nearest rows by the trained comparator
  weighbridge neighbors model/ 'user[\"alice\"]' --relation follows   rows that the relation predicts
  weighbridge neighbors vectors.vec '[\"king\"]' -k 5                 word vectors, by cosine
  weighbridge neighbors model/ 'user[0:100]' --by l2 --json
  weighbridge neighbors model/ user --queries names.txt               one name a line; - is standard input";

/// Examples of `rank`.
pub(crate) const RANK_EXAMPLES: &str = "\
Examples:
  weighbridge rank model/ --relation follows 'user[\"alice\"]' 'user[\"bob\"]'
  weighbridge rank model/ --relation 0 'user[7]' 'item[3]' --json";

#[derive(Debug, ClapArgs)]
pub(crate) struct Evaluate {
    /// Checkpoint folder
    pub path: PathBuf,
    /// Folder of edges to rank
    #[arg(long, value_name = "FOLDER")]
    pub edges: PathBuf,
    /// Folder of known edges, excluded from the negatives; may be repeated
    #[arg(long, value_name = "FOLDER")]
    pub filter: Vec<PathBuf>,
    /// Entities that replace a side of an edge: all, partition, or a number of random ones
    ///
    /// `partition` ranks among the entities in the partition of the edge's bucket, as PyTorch-BigGraph does.
    /// Random entities of a type are distinct, and the same for all edges.
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = negatives)]
    pub negatives: Negatives,
    /// Random seed of the negatives and of the AUC
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0, None))]
    pub seed: u64,
    /// Memory for the rows of edges; the tables are read once for the edges that fit
    #[arg(long, help_heading = "Limits", value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    pub memory: u64,
    /// Number of threads; 0 uses all processors
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0, None))]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Neighbors {
    /// File or folder; - is standard input
    pub path: PathBuf,
    /// Rows of one table: TABLE["name"], TABLE[7] or TABLE[0:10]; without any, all rows of the only table
    ///
    /// `user[...]` is short for `embeddings.user[...]`. The only table of a file needs no name.
    #[arg(value_name = "TABLE[ROW]")]
    pub rows: Vec<String>,
    /// Number of neighbors
    #[arg(short = 'k', long, value_name = "N", default_value_t = 10, value_parser = super::keep)]
    pub count: usize,
    /// Comparator: dot, cos, l2 or squared_l2 (default: that of the training, or cos)
    #[arg(long, value_name = "COMPARATOR", value_parser = comparator)]
    pub by: Option<Comparator>,
    /// Apply the operator of a BigGraph relation, by name or number: the rows that it predicts
    #[arg(long, value_name = "RELATION")]
    pub relation: Option<String>,
    /// Predict the left side of the relation when both sides have the same type
    #[arg(long, requires = "relation")]
    pub reverse: bool,
    /// Read row names from FILE, one a line or a JSON array; row numbers if rows have no names
    #[arg(long, value_name = "FILE")]
    pub queries: Option<PathBuf>,
    /// Memory for queries and their neighbors; the table is read once for those that fit
    #[arg(long, help_heading = "Limits", value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    pub memory: u64,
    /// Number of threads; 0 uses all processors
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0, None))]
    pub threads: usize,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Rank {
    /// Checkpoint folder
    pub path: PathBuf,
    /// Left side: TABLE["name"] or TABLE[7]
    #[arg(value_name = "LHS[ROW]")]
    pub lhs: String,
    /// Right side
    #[arg(value_name = "RHS[ROW]")]
    pub rhs: String,
    /// Relation, by name or number
    #[arg(long, value_name = "RELATION")]
    pub relation: String,
    #[command(flatten)]
    pub input: Input,
}
