//! Arguments of `evaluate`, `neighbors`, `index` and `rank`.

use super::{Input, whole};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::formats::biggraph::{Comparator, Negatives};
#[cfg(feature = "usearch")]
use weighbridge::ops::values::index_dtype;
use weighbridge::ops::values::{candidates, comparator, negatives};
#[cfg(feature = "usearch")]
use weighbridge::tensor::DType;

/// Examples of `evaluate`.
pub(crate) const EVALUATE_EXAMPLES: &str = "\
A rank is 1 plus the number of negatives that score at least as high as the edge, and each side of an edge is ranked.
The operator, comparator, bias and global embeddings are those of the training.

Examples:
  weighbridge evaluate model/ --edges test/                                  raw ranks among all entities
  weighbridge evaluate model/ --edges test/ --filter train/ --filter test/   known edges are not counted
  weighbridge evaluate model/ --edges test/ --negatives 1000 --seed 1        1000 random entities of each type
  weighbridge evaluate model/ --edges test/ --candidates item=shop.txt       items among those of a file
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

/// Examples of `index`.
#[cfg(feature = "usearch")]
pub(crate) const INDEX_EXAMPLES: &str = "\
Writes index.usearch, whose keys are row numbers, and names.json with the row names, if rows have names.
Distances of l2 are squared in an index.

Examples:
  weighbridge index model/ user -o user-index                        by the trained comparator
  weighbridge index vectors.vec -o index --by cos --dtype i8         a quarter of the size
  python -c 'from usearch.index import Index; print(Index.restore(\"user-index/index.usearch\"))'";

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
    /// Rank among the entities named in FILE, one a line or a JSON array; may be repeated
    ///
    /// The file has row numbers for a type without names. TYPE can be omitted where one entity type is ranked.
    /// The entities of other types are ranked among those of --negatives.
    #[arg(long, value_name = "[TYPE=]FILE", value_parser = candidates)]
    pub candidates: Vec<(Option<String>, PathBuf)>,
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

#[cfg(feature = "usearch")]
#[derive(Debug, ClapArgs)]
pub(crate) struct Index {
    /// File or folder
    pub path: PathBuf,
    /// Table, such as user, which is short for embeddings.user; may be omitted for the only table
    #[arg(value_name = "TABLE")]
    pub table: Option<String>,
    /// Folder to write
    #[arg(short, long, help_heading = "Output", value_name = "FOLDER")]
    pub output: PathBuf,
    /// Comparator: dot, cos, l2 or squared_l2 (default: that of the training, or cos)
    #[arg(long, help_heading = "Output", value_name = "COMPARATOR", value_parser = comparator)]
    pub by: Option<Comparator>,
    /// Element type: f32, f16, or i8 for cos
    #[arg(long, help_heading = "Output", value_name = "DTYPE", default_value = "f32", value_parser = index_dtype)]
    pub dtype: DType,
    /// Replace the folder if it exists
    #[arg(short, long, help_heading = "Output")]
    pub force: bool,
    /// Maximum memory of the index, which is built in memory
    #[arg(long, help_heading = "Limits", value_name = "SIZE", default_value = "4GiB", value_parser = super::size)]
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
