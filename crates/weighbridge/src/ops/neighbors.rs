//! Nearest rows of a table, and predictions of a relation of PyTorch-BigGraph.

use super::slice::{Slice, only, resolve, row_of};
use crate::checkpoint::{Checkpoint, RowNameList, TensorEntry};
use crate::error::{Error, Result};
use crate::formats::biggraph::{
    NeighborOptions as Settings, Neighbors, Queries, neighbors as nearest, read_name_list,
};
use crate::formats::{OpenOptions, registry};
use crate::text::{counted, escape, path_text};
use crate::{ErrorCode, Limits};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of rows that slices select, in bytes of their numbers: a slice of a few letters can select any number.
const ROW_BYTES: u64 = 8;

/// Options of [`neighbors`].
#[derive(Debug, Clone, Default)]
pub struct NeighborsOptions {
    /// The options for opening the checkpoint.
    pub open: OpenOptions,
    /// A file with the row names of queries, or with row numbers for a table without names.
    pub queries: Option<PathBuf>,
    /// Number of neighbors, comparator, relation, threads, memory, progress.
    pub settings: Settings,
}

/// Result of [`neighbors`].
#[derive(Debug, Clone)]
pub struct NeighborsReport {
    /// The checkpoint.
    pub path: String,
    /// The table of the queries.
    pub queried: String,
    /// The relation, if any.
    pub relation: Option<String>,
    /// Row and row name, if known, of each query; empty for vectors.
    pub queries: Vec<(u64, Option<String>)>,
    /// The neighbors of each query.
    pub found: Neighbors,
    /// Row names of the neighbors' table, if known.
    pub names: Option<Arc<RowNameList>>,
}

/// Queries in text form, or as vectors.
#[derive(Debug, Clone)]
pub enum Query {
    /// Rows such as `user["alice"]`, `user[7]` or `user[0:10]`, of one table; a table alone selects all its rows, or with
    /// a file of queries those. Without any, the rows of the only table.
    Rows(Vec<String>),
    /// Vectors of a number of columns, one after the other, for the table of that name; `None` for the only table.
    Vectors {
        /// The table.
        table: Option<String>,
        /// The elements.
        values: Vec<f32>,
        /// Number of elements of a vector.
        columns: u64,
    },
}

/// Finds the rows nearest to each query in the checkpoint or file at `path`.
///
/// # Errors
/// As [`crate::formats::biggraph::neighbors`]; [`crate::Kind::Usage`], `several-tables`, for queries of more than one table;
/// and errors of opening and of resolving rows.
pub fn neighbors(path: &Path, query: &Query, options: &NeighborsOptions) -> Result<NeighborsReport> {
    let checkpoint = opened(path, &options.open)?;
    let named = |error: Error| error.in_file(&checkpoint.label);
    let (entry, rows) = match query {
        Query::Vectors { table, columns, .. } => {
            let entry = table_of(&checkpoint, table.as_deref())?;
            if entry.shape.dims().get(1).is_some_and(|own| own != columns) {
                return Err(named(
                    Error::usage("wrong-length", "a query does not have the columns of the table")
                        .on_tensor(entry.name())
                        .expected(format_args!("vectors of {} numbers", entry.shape.dims()[1]))
                        .found(columns),
                ));
            }
            (entry, None)
        }
        Query::Rows(texts) => {
            let (entry, rows) = rows_of(&checkpoint, texts, options)?;
            (entry, Some(rows))
        }
    };
    let queries = match (query, &rows) {
        (Query::Vectors { values, .. }, _) => Queries::Vectors(values),
        (_, rows) => Queries::Rows(rows.as_deref().unwrap_or_default()),
    };
    let found = nearest(&checkpoint, entry, queries, &options.settings).map_err(named)?;
    let names = names_of(&found.table)?;
    let own_names = if found.table.path == entry.path { names.clone() } else { names_of(entry)? };
    let name = |row: u64| Some(own_names.as_ref()?.get(usize::try_from(row).ok()?)?.to_owned());
    Ok(NeighborsReport {
        queried: entry.name(),
        relation: options.settings.relation.clone(),
        queries: rows.unwrap_or_default().into_iter().map(|row| (row, name(row))).collect(),
        names,
        found,
        path: checkpoint.label,
    })
}

impl NeighborsReport {
    /// Returns the name of a neighbor, if known.
    pub fn name(&self, row: u64) -> Option<&str> {
        self.names.as_ref()?.get(usize::try_from(row).ok()?)
    }

    /// Returns the document of `neighbors --json`; see the book.
    pub fn to_json(&self) -> Json {
        let list = |(place, list): (usize, &Vec<crate::formats::biggraph::Neighbor>)| {
            let neighbor = |neighbor: &crate::formats::biggraph::Neighbor| {
                let score = super::number_json(f64::from(neighbor.score));
                json!({"row": neighbor.row, "name": self.name(neighbor.row), "score": score})
            };
            let (row, name) = match self.queries.get(place) {
                Some((row, name)) => (Some(row), name.as_deref()),
                None => (None, None),
            };
            json!({"row": row, "name": name, "neighbors": list.iter().map(neighbor).collect::<Json>()})
        };
        json!({
            "path": self.path,
            "queried": self.queried,
            "relation": self.relation,
            "table": self.found.table.name(),
            "comparator": self.found.comparator.name(),
            "queries": self.found.lists.iter().enumerate().map(list).collect::<Json>(),
        })
    }
}

/// Opens a checkpoint; for a damaged one, the hint states what can be salvaged.
pub(super) fn opened(path: &Path, open: &OpenOptions) -> Result<Checkpoint> {
    registry().open_with(path, open).map_err(|error| registry().offer_salvage(error, path, open))
}

/// Row names of a table, if known.
pub(super) fn names_of(entry: &TensorEntry) -> Result<Option<Arc<RowNameList>>> {
    entry.row_names.as_ref().map(|names| names.read()).transpose()
}

/// Name of a row, if known.
pub(super) fn row_name(entry: &TensorEntry, row: u64) -> Result<Option<String>> {
    let names = names_of(entry)?;
    Ok(names.and_then(|names| names.get(usize::try_from(row).ok()?).map(str::to_owned)))
}

/// Table of that name: `user` is short for `embeddings.user`. Without a name, the only table.
pub(super) fn table_of<'a>(checkpoint: &'a Checkpoint, name: Option<&str>) -> Result<&'a TensorEntry> {
    match name {
        None => only_table(checkpoint),
        Some(name) => resolve_query(checkpoint, name).map(|(entry, _)| entry),
    }
}

/// The only embeddings of a checkpoint, or its only tensor.
fn only_table(checkpoint: &Checkpoint) -> Result<&TensorEntry> {
    let mut tables = checkpoint.tensors.iter().filter(|t| t.role == crate::checkpoint::Role::Embedding);
    match (tables.next(), tables.next()) {
        (Some(table), None) => Ok(table),
        _ => only(checkpoint),
    }
}

/// Resolves a table with a slice of its rows. `user[...]` is short for `embeddings.user[...]`, and the only table needs no name.
fn resolve_query<'a>(checkpoint: &'a Checkpoint, text: &str) -> Result<(&'a TensorEntry, Slice)> {
    let error = match resolve(checkpoint, text) {
        Err(error) if error.code() == ErrorCode::NoSuchTensor => match text.contains('[') {
            true => error,
            false => error.hint_too("a row is given with its table: TABLE[\"NAME\"] or TABLE[NUMBER]"),
        },
        done => return done,
    };
    let other = match only_table(checkpoint) {
        Ok(table) if text.trim_start().starts_with('[') => Some(format!("{}{text}", table.name())),
        _ => None,
    };
    match other.map(|other| resolve(checkpoint, &other)) {
        Some(Err(other)) if other.code() == ErrorCode::NoSuchTensor => Err(error),
        Some(done) => done,
        None => Err(error),
    }
}

/// Resolves a single row, such as `user["alice"]`.
///
/// # Errors
/// As [`resolve`]; [`crate::Kind::Usage`], `rows`, for more or less than a row.
pub(super) fn row_of_query<'a>(checkpoint: &'a Checkpoint, text: &str) -> Result<(&'a TensorEntry, u64)> {
    let (entry, slice) = resolve_query(checkpoint, text)?;
    match rows_in(entry, &slice, &Limits::default())?.as_slice() {
        [row] => Ok((entry, *row)),
        rows => Err(Error::usage("rows", "a side of the edge is not a single row")
            .on_tensor(entry.name())
            .expected("a row, such as user[\"alice\"] or user[7]")
            .found(counted(rows.len() as u64, "row", "rows"))),
    }
}

/// Rows of a table that a slice selects.
fn rows_in(entry: &TensorEntry, slice: &Slice, limits: &Limits) -> Result<Vec<u64>> {
    let named = |error: Error| error.on_tensor(entry.name());
    let taken = slice.select(&entry.shape).map_err(named)?;
    let [rows, columns] = taken.axes.as_slice() else { return Ok(Vec::new()) };
    if columns.count != entry.shape.dims()[1] {
        return Err(named(
            Error::usage("rows", "a query is a whole row")
                .expected("a slice of rows, such as user[0:10]")
                .found(format_args!("{} of {} columns", columns.count, entry.shape.dims()[1])),
        ));
    }
    let bytes = rows.count.saturating_mul(ROW_BYTES);
    Limits::check("bytes of row numbers", "header_bytes", bytes, limits.header_bytes).map_err(named)?;
    Ok((0..rows.count).map(|place| rows.at(place)).collect())
}

/// Table and rows of all queries.
fn rows_of<'a>(
    checkpoint: &'a Checkpoint,
    texts: &[String],
    options: &NeighborsOptions,
) -> Result<(&'a TensorEntry, Vec<u64>)> {
    let resolved = texts.iter().map(|text| resolve_query(checkpoint, text)).collect::<Result<Vec<_>>>()?;
    let entry = match resolved.first() {
        Some((entry, _)) => *entry,
        None => only_table(checkpoint)?,
    };
    if let Some((other, _)) = resolved.iter().find(|(other, _)| other.path != entry.path) {
        return Err(Error::usage("several-tables", "the queries are of more than one table")
            .in_file(&checkpoint.label)
            .expected(format_args!("rows of {}", escape(&entry.name())))
            .found(escape(&other.name())));
    }
    let limits = &options.open.limits;
    let mut rows = Vec::new();
    let all = Slice::all();
    for (_, slice) in &resolved {
        // A table alone is the table of the file of queries.
        if options.queries.is_none() || *slice != all {
            rows.extend(rows_in(entry, slice, limits)?);
        }
    }
    if resolved.is_empty() && options.queries.is_none() {
        rows = rows_in(entry, &all, limits)?;
    }
    if let Some(path) = &options.queries {
        let list = read_name_list(path, limits)?;
        rows.extend(rows_of_names(checkpoint, entry, &list, Some(path))?);
    }
    Ok((entry, rows))
}

/// Rows of these names, or numbers for a table without names, from a file if any.
pub(super) fn rows_of_names(
    checkpoint: &Checkpoint,
    entry: &TensorEntry,
    list: &RowNameList,
    file: Option<&Path>,
) -> Result<Vec<u64>> {
    let names = names_of(entry)?;
    let index = names.as_ref().map(|names| names.index());
    let row = |name: &str| match &index {
        None => name.trim().parse().map_err(|_| {
            Error::mismatch("no-row-names", "the table has no row names, and this is not a row number")
                .on_tensor(entry.name())
                .found(escape(name))
        }),
        Some(index) => match index.get(name) {
            Some(row) => Ok(*row as u64),
            // The error has similar names.
            None => row_of(checkpoint, entry, name).map(|row| row as u64),
        },
    };
    let placed = |(place, name): (usize, &str)| {
        row(name).map_err(|error| {
            let error = error.within(format_args!("name {} of {}", place + 1, list.len()));
            match file {
                Some(file) => error.in_file(path_text(file)),
                None => error,
            }
        })
    };
    list.iter().enumerate().map(placed).collect()
}
