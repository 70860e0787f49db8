//! Evaluation of a PyTorch-BigGraph checkpoint on edges, and the rank of one edge.

use super::neighbors::{opened, row_name, row_of_query, rows_of_names};
use crate::Limits;
use crate::checkpoint::{Checkpoint, Name, Note, RowNameList, TensorEntry, TensorPath};
use crate::engine::{Disk, ItemKind, LocalDisk};
use crate::error::{Error, Result};
use crate::formats::biggraph::{
    EvaluateOptions as Settings, Evaluation, HITS, Metrics, Negatives, SideRank, evaluate as evaluation,
    name_difference, rank as ranked, ranked_types, read_name_list,
};
use crate::formats::{OpenOptions, open_with};
use crate::phrase;
use crate::phrase::{Face, Opt, Worded};
use crate::text::escape;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of [`evaluate`].
#[derive(Debug, Clone, Default)]
pub struct EvaluateOptions {
    /// The options for opening the checkpoint.
    pub open: OpenOptions,
    /// Folders of edges excluded from the negatives.
    pub filter: Vec<PathBuf>,
    /// Candidates by name, besides those in the settings.
    pub candidates: Vec<CandidateNames>,
    /// Negatives, threads, memory, progress.
    pub settings: Settings,
}

/// Names of the entities of a type among which edges are ranked.
#[derive(Debug, Clone)]
pub struct CandidateNames {
    /// Entity type; `None` for the only one that is ranked.
    pub entity: Option<String>,
    /// Entity names, or row numbers for a type without names.
    pub names: RowNameList,
    /// File of the names.
    pub file: Option<PathBuf>,
}

impl CandidateNames {
    /// Reads the names from a file: a JSON array of strings, or one name per line.
    ///
    /// # Errors
    /// As [`read_name_list`].
    pub fn read(entity: Option<String>, file: &Path, limits: &Limits) -> Result<Self> {
        Ok(Self { entity, names: read_name_list(file, limits)?, file: Some(file.to_owned()) })
    }
}

/// Result of [`evaluate`].
#[derive(Debug, Clone)]
pub struct EvaluateReport {
    /// The checkpoint.
    pub path: String,
    /// The edges.
    pub edges: String,
    /// The edges excluded from the negatives.
    pub filter: Vec<String>,
    /// The candidates of types that are not in `candidates`.
    pub negatives: Negatives,
    /// The number of given candidates of each entity type.
    pub candidates: BTreeMap<String, u64>,
    /// The random seed.
    pub seed: u64,
    /// The metrics.
    pub evaluation: Evaluation,
}

/// Evaluates the checkpoint at `path` on the edges at `edges`.
///
/// # Errors
/// As [`crate::formats::biggraph::evaluate`]; errors of unknown names; [`crate::Kind::Usage`], `several-tables`, for candidates
/// without a type where several types are ranked; and errors of opening.
pub fn evaluate(path: &Path, edges: &Path, options: &EvaluateOptions) -> Result<EvaluateReport> {
    let checkpoint = opened(path, &options.open)?;
    let plain = edge_options(&options.open);
    let path_of_edges = edges;
    let edges = open_with(edges, &plain)?;
    let filter = options.filter.iter().map(|path| open_with(path, &plain)).collect::<Result<Vec<_>>>()?;
    let filter: Vec<&Checkpoint> = filter.iter().collect();
    let mut settings = options.settings.clone();
    let all = &mut settings.candidates;
    if !options.candidates.is_empty() {
        let types = ranked_types(&checkpoint)?;
        for given in &options.candidates {
            let (entity, rows) = candidate_rows(&checkpoint, &types, given)?;
            all.entry(entity).or_default().extend(rows);
        }
    }
    for rows in all.values_mut() {
        rows.sort_unstable();
        rows.dedup();
    }
    let mut others = Vec::new();
    for path in [path_of_edges].into_iter().chain(options.filter.iter().map(PathBuf::as_path)) {
        others.extend(other_names(&checkpoint, path, &plain)?);
    }
    let mut evaluation = evaluation(&checkpoint, &edges, &filter, &settings)
        .map_err(|error| others.iter().fold(error, |error, text| error.hint_too(text)))?;
    evaluation.notes.extend(others.into_iter().map(|text| Note::new("names-differ", text)));
    Ok(EvaluateReport {
        path: checkpoint.label,
        edges: edges.label.clone(),
        filter: filter.iter().map(|edges| edges.label.clone()).collect(),
        negatives: settings.negatives,
        candidates: settings.candidates.into_iter().map(|(name, rows)| (name, rows.len() as u64)).collect(),
        seed: settings.seed,
        evaluation,
    })
}

/// Returns a text if folders beside the edges have names, and none of them has those of the checkpoint.
///
/// # Errors
/// As [`name_difference`].
fn other_names(checkpoint: &Checkpoint, edges: &Path, plain: &OpenOptions) -> Result<Option<String>> {
    let types = ranked_types(checkpoint)?;
    let folder = if edges.is_dir() { edges } else { edges.parent().unwrap_or(edges) };
    let parent = match folder.file_name() {
        Some(_) => folder.with_file_name(""),
        None => folder.join(".."),
    };
    let listed = if parent.as_os_str().is_empty() { Path::new(".") } else { &parent };
    let mut other = None;
    for item in LocalDisk.list(listed).unwrap_or_default() {
        let path = parent.join(&item.name);
        let has_names = |entity: &String| path.join(format!("entity_names_{entity}_0.json")).exists();
        if item.kind != ItemKind::Folder || !types.iter().any(has_names) {
            continue;
        }
        // Lists that cannot be read are not compared.
        let Ok(names) = open_with(&path, plain) else { continue };
        let Some(found) = name_difference(checkpoint, &names)? else { return Ok(None) };
        other.get_or_insert_with(|| {
            let edges = edges.display();
            format!(
                "{}: {found}; if the edges in {edges} were numbered by these names, the ranks are wrong",
                names.label
            )
        });
    }
    Ok(other)
}

/// Entity type and rows of given candidates.
fn candidate_rows(
    checkpoint: &Checkpoint,
    ranked: &[String],
    given: &CandidateNames,
) -> Result<(String, Vec<u64>)> {
    let entity = match (&given.entity, ranked) {
        (Some(entity), _) => entity,
        (None, [only]) => only,
        (None, _) => {
            return Err(Error::usage("several-tables", "the entity type of candidates is missing")
                .in_file(&checkpoint.label)
                .expected("one entity type whose entities are ranked")
                .found(ranked.iter().map(|name| escape(name)).collect::<Vec<_>>().join(", "))
                .hint(phrase!["name the type of each list: ", Opt::Candidates.any_pair("TYPE", "LIST")]));
        }
    };
    let path = TensorPath::new(vec![Name::from("embeddings"), Name::from(entity.as_str())]);
    let table = |tensor: &&TensorEntry| tensor.path == path && tensor.role.slot().is_none();
    let rows = match checkpoint.tensors.iter().find(table) {
        Some(entry) => rows_of_names(checkpoint, entry, &given.names, given.file.as_deref())?,
        // The evaluation fails with the types that are ranked.
        None => Vec::new(),
    };
    Ok((entity.clone(), rows))
}

/// Options for opening edges: entity counts and the configuration are those of the checkpoint.
fn edge_options(open: &OpenOptions) -> OpenOptions {
    OpenOptions { limits: open.limits.clone(), lenient: open.lenient, ..OpenOptions::default() }
}

impl EvaluateReport {
    /// Returns the document of `evaluate --json`; see the book.
    pub fn to_json(&self) -> Json {
        let (negatives, sample) = match self.negatives {
            Negatives::All => ("all", None),
            Negatives::Partition => ("partition", None),
            Negatives::Sampled(count) => ("sample", Some(count)),
        };
        let relation = |relation: &crate::formats::biggraph::RelationMetrics| json!({"number": relation.number, "name": relation.name, "metrics": metrics_json(&relation.metrics)});
        json!({
            "path": self.path,
            "edges": self.edges,
            "filter": self.filter,
            "negatives": negatives,
            "sample": sample,
            "candidates": self.candidates,
            "seed": self.seed,
            "metrics": metrics_json(&self.evaluation.all),
            "relations": self.evaluation.relations.iter().map(relation).collect::<Json>(),
            "notes": self.evaluation.notes.iter().map(Note::to_json).collect::<Json>(),
        })
    }
}

impl Worded for EvaluateReport {
    fn word(&mut self, face: Face<'_>) {
        self.evaluation.notes.word(face);
    }
}

/// `null` for values that are undefined, such as those of no edges.
fn metrics_json(metrics: &Metrics) -> Json {
    let hits: serde_json::Map<String, Json> =
        HITS.iter().zip(metrics.hits).map(|(most, hits)| (most.to_string(), json!(hits))).collect();
    json!({
        "edges": metrics.edges,
        "mrr": metrics.mrr,
        "hits": hits,
        "mean_rank": metrics.mean_rank,
        "auc": metrics.auc,
    })
}

/// Result of [`rank`].
#[derive(Debug, Clone)]
pub struct RankReport {
    /// The checkpoint.
    pub path: String,
    /// Number of the relation.
    pub relation: u32,
    /// Name of the relation, if known.
    pub relation_name: Option<String>,
    /// The left and the right side.
    pub sides: [RankedSide; 2],
}

/// Ranked side of an edge.
#[derive(Debug, Clone)]
pub struct RankedSide {
    /// The table.
    pub table: String,
    /// Row.
    pub row: u64,
    /// Row name, if known.
    pub name: Option<String>,
    /// Score and rank.
    pub rank: SideRank,
}

/// Ranks one edge of a relation among all candidates. Its sides are rows, such as `user["alice"]` or `user[7]`.
///
/// # Errors
/// As [`crate::formats::biggraph::rank`]; [`crate::Kind::Mismatch`] for tables that are not those of the relation; and errors of
/// opening and of the rows.
pub fn rank(
    path: &Path,
    relation: &str,
    sides: [&str; 2],
    open: &OpenOptions,
    settings: &Settings,
) -> Result<RankReport> {
    let checkpoint = opened(path, open)?;
    let rows = [row_of_query(&checkpoint, sides[0])?, row_of_query(&checkpoint, sides[1])?];
    let found = ranked(&checkpoint, relation, rows, settings)?;
    let side = |(entry, row): (&TensorEntry, u64), rank| {
        Ok(RankedSide { table: entry.name(), row, name: row_name(entry, row)?, rank })
    };
    Ok(RankReport {
        relation: found.relation,
        relation_name: found.name,
        sides: [side(rows[0], found.lhs)?, side(rows[1], found.rhs)?],
        path: checkpoint.label,
    })
}

impl RankReport {
    /// Returns the document of `rank --json`; see the book.
    pub fn to_json(&self) -> Json {
        let side = |side: &RankedSide| {
            json!({
                "table": side.table,
                "row": side.row,
                "name": side.name,
                "score": super::number_json(f64::from(side.rank.score)),
                "rank": side.rank.rank,
                "negatives": side.rank.negatives,
            })
        };
        json!({
            "path": self.path,
            "relation": {"number": self.relation, "name": self.relation_name},
            "lhs": side(&self.sides[0]),
            "rhs": side(&self.sides[1]),
        })
    }
}
