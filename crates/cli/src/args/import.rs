//! Arguments of `import`.

use super::{size, whole};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use weighbridge::formats::biggraph::import::{Columns, EntityOrder, TextForm};

pub(crate) const IMPORT_EXAMPLES: &str = "\
Examples:
  weighbridge import edges.tsv --config config.json -o data/
  weighbridge import train.tsv.gz valid.tsv.gz --config config.py -o data/    one input for each edge path
  weighbridge import 'train=part-*.tsv' valid=v.tsv --config config.py -o data/    sets by the names of the edge paths
  weighbridge import soc.txt --from words --columns lhs,rhs --config config.json -o data/
  weighbridge import 'edges/part-*.parquet' --config config.json -o data/
  weighbridge import dump.nt.zst --config config.json -o data/ --entity-min-count 5
  weighbridge import edges.tsv --like-upstream --seed 7 --config config.json -o data/

The folders below DIR are those of entity_path and edge_paths in the configuration, without what these have in
common: data/entities and data/train become DIR/entities and DIR/train.

Names of features (an entity type with \"featurized\": true) are a list with commas between: red,small,new.

An import that was interrupted continues when the same command is run again.";

#[derive(Debug, ClapArgs)]
pub(crate) struct Import {
    /// Files with edges, folders of them, or patterns (* and ?)
    ///
    /// Text, plain or compressed with gzip or Zstandard; Parquet; Arrow (Feather 2). With several edge_paths in the
    /// configuration: one input for each, in their order, or NAME=PATH, where NAME is the last part of the edge path
    /// (train=edges.tsv for data/train). With one edge path, all inputs go to it.
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<String>,
    /// BigGraph configuration: JSON, or a Python file with a literal dictionary
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub config: PathBuf,
    /// Form of text: tsv, csv, words or nt (default: by the extension)
    ///
    /// words: columns with white space between them. nt: N-Triples. Parquet and Arrow files are recognized without it.
    #[arg(long, value_name = "FORM", value_parser = form, help_heading = "Input")]
    pub from: Option<TextForm>,
    /// Columns in order: lhs, rhs, rel, weight, and - for others (default: lhs,rel,rhs)
    ///
    /// The columns of a Parquet or Arrow file are found by these names if it has lhs and rhs. By default rel and weight are
    /// optional there.
    #[arg(long, value_name = "NAMES", value_parser = columns, allow_hyphen_values = true, help_heading = "Input")]
    pub columns: Option<Columns>,
    /// Skip the first line of each file of text
    #[arg(long, help_heading = "Input")]
    pub header: bool,
    /// Skip up to N malformed lines or rows instead of failing at the first
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0, None), help_heading = "Input")]
    pub skip_bad: u64,
    /// Drop entities with fewer than N uses, and their edges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, None), help_heading = "Changes")]
    pub entity_min_count: u64,
    /// Drop dynamic relations with fewer than N uses, and their edges
    #[arg(long, visible_alias = "relation-type-min-count", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole::<u64>(0, None), help_heading = "Changes")]
    pub relation_min_count: u64,
    /// Order of the entities: random, sorted or seen (first use)
    #[arg(long, value_name = "ORDER", default_value = "random", value_parser = order, help_heading = "Changes")]
    pub order: EntityOrder,
    /// Seed of the random order
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0, None), help_heading = "Changes")]
    pub seed: u64,
    /// Give the ids and files that upstream's importer gives after random.seed(SEED)
    ///
    /// Reads columns with white space between them unless --from says otherwise, truncates weights to integers, and writes no file
    /// for a bucket without edges.
    #[arg(long, conflicts_with = "order", help_heading = "Changes")]
    pub like_upstream: bool,
    /// Folder to write
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(short, long, help_heading = "Output")]
    pub force: bool,
    /// Do not flush the output to disk (faster, unsafe if power is lost)
    #[arg(long, help_heading = "Output")]
    pub no_sync: bool,
    /// Memory for buffers and dictionaries
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size, help_heading = "Limits")]
    pub memory: u64,
    /// Number of threads; 0 uses all processors
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Limits", value_parser = whole::<usize>(0, None))]
    pub threads: usize,
}

fn form(text: &str) -> Result<TextForm, String> {
    TextForm::parse(text).ok_or_else(|| format!("expected {}", TextForm::NAMES.join(", ")))
}

fn columns(text: &str) -> Result<Columns, String> {
    let found = |error: weighbridge::Error| {
        format!(
            "found {}, expected {}",
            error.found_text().unwrap_or_default(),
            error.expected_text().unwrap_or_default()
        )
    };
    Columns::parse(text).map_err(found)
}

fn order(text: &str) -> Result<EntityOrder, String> {
    EntityOrder::parse(text).ok_or_else(|| format!("expected {}", EntityOrder::NAMES.join(", ")))
}
