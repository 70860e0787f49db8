//! Approximate indexes of tables, as files of usearch.

use super::neighbors::{names_of, opened, table_of};
use crate::checkpoint::{Note, RowNameList, TensorEntry};
use crate::engine::{LocalSink, NoProgress, Progress, RunOptions, default_threads, run};
use crate::error::{Error, Result};
use crate::formats::OpenOptions;
use crate::formats::biggraph::{Comparator, ComparedRows};
use crate::phrase;
use crate::phrase::Opt;
use crate::plan::{FileBuilder, WritePlan};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::DType;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use usearch::{Index, IndexOptions as Settings, MetricKind, ScalarKind};

/// Name of the index in its folder.
pub const INDEX_FILE: &str = "index.usearch";
/// Name of the row names in the folder of an index.
pub const NAMES_FILE: &str = "names.json";
/// Element types of an index.
pub const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::I8];

/// Estimate of the memory of a row besides its elements: the links of the graph, which is held twice while it is written.
const ROW_BYTES: u64 = 600;
/// Maximum number of threads.
const MAX_THREADS: usize = 256;
/// Largest `f16`.
const MAX_F16: f32 = 65504.0;

/// Options of [`index`].
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// The options for opening the table.
    pub open: OpenOptions,
    /// Comparator; `None` for that of the training, or `cos` without one.
    pub comparator: Option<Comparator>,
    /// Element type in the index: one of [`DTYPES`].
    pub dtype: DType,
    /// Replaces an existing index.
    pub replace: bool,
    /// Number of threads; 0 for one a processor.
    pub threads: usize,
    /// Maximum memory of the index, in bytes.
    pub memory: u64,
    /// Receiver of progress, which can cancel the work.
    pub progress: Arc<dyn Progress>,
}

impl Default for IndexOptions {
    /// Returns an index of `f32` by the trained comparator, one thread a processor, up to 4 GiB, without progress.
    fn default() -> Self {
        Self {
            open: OpenOptions::default(),
            comparator: None,
            dtype: DType::F32,
            replace: false,
            threads: 0,
            memory: 4 << 30,
            progress: Arc::new(NoProgress),
        }
    }
}

/// Result of [`index`].
#[derive(Debug, Clone)]
pub struct IndexReport {
    /// The checkpoint or file.
    pub path: String,
    /// The table.
    pub table: String,
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// The comparator.
    pub comparator: Comparator,
    /// The element type.
    pub dtype: DType,
    /// True if the row names are beside the index.
    pub names: bool,
    /// Size of the index, in bytes.
    pub bytes: u64,
    /// Notes on the rows.
    pub notes: Vec<Note>,
}

impl IndexReport {
    /// Returns the document of `index --json`; see the book.
    pub fn to_json(&self) -> Json {
        json!({
            "path": self.path,
            "table": self.table,
            "rows": self.rows,
            "columns": self.columns,
            "comparator": self.comparator.name(),
            "dtype": self.dtype.name(),
            "names": self.names,
            "bytes": self.bytes,
            "notes": self.notes.iter().map(Note::to_json).collect::<Json>(),
        })
    }
}

/// Builds an approximate index of a table with usearch, and writes it into the folder `target` as [`INDEX_FILE`]. The keys are
/// row numbers. [`NAMES_FILE`] has the row names, if known: a JSON array in the order of rows. The index is built in memory.
/// Without a name of the table, the file has only one.
///
/// # Errors
/// [`crate::Kind::Usage`]: `too-little-memory`, `dtype` for `i8` with a comparator other than `cos`, `bias` for a trained bias and
/// no comparator, `exists` for an existing target; [`crate::Kind::Unsupported`]: `not-finite` for NaN, infinite elements and
/// those beyond `f16`; errors of [`ComparedRows::new`]; [`crate::Kind::Cancelled`]; and errors of opening, reading and writing.
pub fn index(path: &Path, table: Option<&str>, target: &Path, options: &IndexOptions) -> Result<IndexReport> {
    LocalSink::check(target, options.replace)?;
    let checkpoint = opened(path, &options.open)?;
    let named = |error: Error| error.in_file(&checkpoint.label);
    let entry = table_of(&checkpoint, table)?;
    let rows = ComparedRows::new(&checkpoint, entry).map_err(named)?;
    let comparator = comparator(&rows, entry, options).map_err(named)?;
    let names = names_of(entry)?;
    let bytes = built(&rows, entry, comparator, options).map_err(named)?;
    let report = IndexReport {
        table: entry.name(),
        rows: rows.rows(),
        columns: rows.columns() as u64,
        comparator,
        dtype: options.dtype,
        names: names.is_some(),
        bytes: bytes.len() as u64,
        notes: rows.has_bias().then(without_bias).into_iter().collect(),
        path: checkpoint.label,
    };
    let mut files = vec![file(INDEX_FILE, bytes)];
    if let Some(names) = names {
        files.push(file(NAMES_FILE, names_json(&names)?));
    }
    let plan = WritePlan { format: "usearch", kind: "index", files, losses: Vec::new() };
    let sink = LocalSink::folder(target, options.replace)?;
    run(&plan, &sink, &RunOptions { progress: options.progress.clone(), ..RunOptions::default() })?;
    Ok(report)
}

fn without_bias() -> Note {
    Note::new("bias-omitted", "the trained bias of the rows is not in the index")
}

fn file(name: &str, bytes: Vec<u8>) -> crate::plan::PlannedFile {
    let source: SourceRef = Arc::new(MemorySource::new(name, bytes));
    FileBuilder::copy_of(name, &source)
}

fn names_json(names: &RowNameList) -> Result<Vec<u8>> {
    let names: Vec<&str> = names.iter().collect();
    serde_json::to_vec(&names).map_err(|error| Error::io("cannot encode the row names", error.into()))
}

fn comparator(rows: &ComparedRows, entry: &TensorEntry, options: &IndexOptions) -> Result<Comparator> {
    if rows.has_bias() && options.comparator.is_none() {
        return Err(Error::usage("bias", "an index has no place for the trained bias of rows")
            .on_tensor(entry.name())
            .hint(phrase![
                "select the comparator, to index the rows without their bias: ",
                Opt::By.any("COMPARATOR")
            ]));
    }
    let own = options.comparator.or(rows.comparator()).unwrap_or(Comparator::Cos);
    if options.dtype == DType::I8 && own != Comparator::Cos {
        return Err(Error::usage("dtype", "an index of i8 keeps the directions of rows, not their lengths")
            .on_tensor(entry.name())
            .expected("i8 with the comparator cos; f32 or f16 with others")
            .found(format_args!("i8 with {}", own.name())));
    }
    Ok(own)
}

/// Builds the index, and returns the bytes of its file.
fn built(
    rows: &ComparedRows,
    entry: &TensorEntry,
    comparator: Comparator,
    options: &IndexOptions,
) -> Result<Vec<u8>> {
    let size = options.dtype.size().unwrap_or(4) as u64;
    let per_row = (rows.columns() as u64).saturating_mul(2 * size).saturating_add(ROW_BYTES);
    let estimate = rows.rows().saturating_mul(per_row);
    if estimate > options.memory {
        return Err(Error::usage("too-little-memory", "the index needs more memory than the budget")
            .on_tensor(entry.name())
            .expected(format_args!("about {estimate} bytes"))
            .found(options.memory)
            .hint(phrase![Opt::Memory.any("SIZE"), " sets the memory of the index; f16 takes half of f32"]));
    }
    let threads = if options.threads == 0 { default_threads() } else { options.threads }.min(MAX_THREADS);
    let index = Index::new(&Settings {
        dimensions: rows.columns(),
        metric: match comparator {
            Comparator::Dot => MetricKind::IP,
            Comparator::Cos => MetricKind::Cos,
            Comparator::L2 | Comparator::SquaredL2 => MetricKind::L2sq,
        },
        quantization: match options.dtype {
            DType::F16 => ScalarKind::F16,
            DType::I8 => ScalarKind::I8,
            _ => ScalarKind::F32,
        },
        // Those of usearch.
        connectivity: 0,
        expansion_add: 0,
        expansion_search: 0,
        multi: false,
    })
    .map_err(|fault| failed(entry, fault))?;
    let count = crate::source::to_usize(rows.rows())?;
    index.reserve_capacity_and_threads(count, threads).map_err(|fault| failed(entry, fault))?;
    let most = if options.dtype == DType::F16 { MAX_F16 } else { f32::MAX };
    options.progress.begin(rows.bytes());
    rows.each(threads, &*options.progress, |row, values| {
        // False for NaN.
        if let Some(value) = values.iter().find(|value| !(value.abs() <= most)) {
            let expected = format!("finite numbers of {}", options.dtype);
            return Err(Error::unsupported("not-finite", format!("row {row} cannot be indexed"))
                .on_tensor(entry.name())
                .expected(expected)
                .found(value));
        }
        index.add(row, values).map_err(|fault| failed(entry, fault))
    })?;
    let mut bytes = vec![0; index.serialized_length()];
    index.save_to_buffer(&mut bytes).map_err(|fault| failed(entry, fault))?;
    Ok(bytes)
}

fn failed(entry: &TensorEntry, fault: impl std::fmt::Display) -> Error {
    Error::limit("usearch", "usearch cannot build the index").on_tensor(entry.name()).found(fault)
}
