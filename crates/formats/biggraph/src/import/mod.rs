//! Import of edge lists: the entities, relations and edges that upstream's `torchbiggraph_import_from_tsv` makes, in bounded memory,
//! in parallel, and resumable.
//!
//! ```text
//! lines      -> edges of numbers, and the distinct names of each chunk     segment
//! names      -> a dictionary for each entity type, partitioned by hash     dictionary
//! edges      -> ids, sorted by bucket within each chunk                     relabel
//! all files  -> one plan, which the engine writes and publishes as a whole
//! ```
//!
//! Finished steps are files of a hidden folder beside the target. An import that was interrupted continues with them, and gives the
//! same bytes.

mod dictionary;
#[cfg(test)]
mod fault_tests;
mod input;
mod layout;
mod ntriples;
#[cfg(test)]
mod ntriples_judge;
mod numbers;
mod relabel;
mod resume;
mod segment;
mod slots;
mod table;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
mod text;
mod twister;
mod work;

pub use input::EdgeFile;
pub use layout::{Folders, ImportLayout};
pub use text::{Columns, TextForm};

use crate::config::Config;
use crate::layout::{FileName, part_start, split_counts};
use crate::text::number_text;
use dictionary::{Dictionary, NameTable, NamesFile};
use input::{Chunk, Chunks, Content, Part};
use layout::{edge_files, planned_names};
use relabel::{Buffers, Relabeled, Relabeling};
use segment::{Edges, MAX_NAMED, NamesOfChunk, Schema, Segment};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{EdgeCells, Rows};
use text::{BadLine, Lines};
use twister::Twister;
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Opt, Phrase};
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_io::engine::{
    Disk, LocalDisk, LocalSink, RunOptions, Sink, check_memory, default_threads, run,
};
use weighbridge_io::source::{SourceRef, Stamp};
use work::WorkFolder;

/// Maximum length of a line in bytes.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// Maximum number of buckets: each is a file.
const MAX_BUCKETS: u64 = 1 << 20;
/// Limits of the bytes of a chunk of lines.
const CHUNK: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Bytes of memory of a worker for each byte of a chunk: its text, names by partition, and edges.
const BYTES_FOR_EACH: u64 = 12;
/// Bytes of text whose names are one partition, so that the caches of a processor hold them while they are completed.
const CACHED: u64 = 8 << 20;
/// Maximum first bits of a hash that tell its partition.
const MAX_BITS: u32 = 12;
/// Logarithm of the maximum number of files of all dictionaries.
const MAX_FILE_BITS: u32 = 14;

/// Order of the entities and dynamic relations: their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntityOrder {
    /// Random, the same for the same names and seed. Needs no memory.
    #[default]
    Random,
    /// By the bytes of their names.
    Sorted,
    /// By their first use in the input.
    Seen,
}

impl EntityOrder {
    /// Names of all orders.
    pub const NAMES: [&'static str; 3] = ["random", "sorted", "seen"];

    /// Parses a name of [`NAMES`](Self::NAMES).
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "random" => Some(Self::Random),
            "sorted" => Some(Self::Sorted),
            "seen" => Some(Self::Seen),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sorted => "sorted",
            Self::Seen => "seen",
        }
    }
}

/// Import of edge lists into the folders of a configuration.
#[derive(Debug, Clone)]
pub struct Import {
    /// Configuration: entity types with their partitions, relations, folders.
    pub config: Config,
    /// Files of each of the edge paths of the configuration, in their order.
    pub sets: Vec<Vec<EdgeFile>>,
    /// Columns of text: lhs, rel, rhs if `None`. Not used for N-Triples and tables.
    pub columns: Option<Columns>,
    /// Skips the first line of each file of text.
    pub header: bool,
    /// Order of the entities.
    pub order: EntityOrder,
    /// Seed of the random order.
    pub seed: u64,
    /// Gives the ids and files that upstream's importer gives after `random.seed(seed)`: shuffled as Python does, weights
    /// truncated to integers, no file for a bucket without edges, further columns ignored. `order` is not used.
    pub like_upstream: bool,
    /// Drops entities with fewer uses, and their edges.
    pub entity_min_count: u64,
    /// Drops dynamic relations with fewer uses, and their edges.
    pub relation_min_count: u64,
    /// Number of malformed lines and rows that are skipped; one more is an error.
    pub skip_bad: u64,
    /// Replaces an existing target.
    pub force: bool,
    /// Threads, memory, syncing, progress.
    pub run: RunOptions,
}

/// Report of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// Edge folders, in the order of the configuration.
    pub edges: Vec<ImportedEdges>,
    /// Entity types, in the order of the configuration.
    pub entities: Vec<ImportedNames>,
    /// Relations.
    pub relations: ImportedNames,
    /// Number of files.
    pub files: usize,
    /// Number of bytes in all files.
    pub bytes: u64,
    /// True where the steps of an interrupted import were used.
    pub resumed: bool,
}

/// Edge folder of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedEdges {
    /// Folder below the target.
    pub folder: String,
    /// Number of edges.
    pub edges: u64,
    /// Number of edges that were dropped, as their entities or relation are too rare.
    pub dropped: u64,
    /// Number of malformed lines and rows that were skipped.
    pub bad_lines: u64,
    /// Numbers of partitions of left and right sides.
    pub buckets: [u64; 2],
}

/// Names of an entity type, or of the relations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedNames {
    /// Entity type; `relations` for the relations.
    pub name: String,
    /// Number of distinct names in the input.
    pub found: u64,
    /// Number of names with enough uses.
    pub kept: u64,
    /// Number of partitions.
    pub partitions: u64,
}

/// Chunk of a file, by the number of the file and its own.
type ChunkId = (usize, u64);

impl Import {
    /// Creates an import with default options: columns lhs, rel, rhs; random order with seed 0; nothing dropped or skipped.
    pub fn new(config: Config, sets: Vec<Vec<EdgeFile>>) -> Self {
        Self {
            config,
            sets,
            columns: None,
            header: false,
            order: EntityOrder::Random,
            seed: 0,
            like_upstream: false,
            entity_min_count: 1,
            relation_min_count: 1,
            skip_bad: 0,
            force: false,
            run: RunOptions::default(),
        }
    }

    /// Imports into the folder `target`, all or nothing. Finished steps of an interrupted import with the same files and options
    /// are used.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] for an existing target, or options that do not fit the configuration;
    /// [`weighbridge_core::Kind::Corrupt`], `bad-line`, with the file and the line or row; [`weighbridge_core::Kind::Unsupported`] for
    /// partitioned entity types with features; [`weighbridge_core::Kind::Io`], `changed-while-read` if an input changed meanwhile;
    /// [`weighbridge_core::Kind::Cancelled`].
    pub fn run(&self, target: &Path) -> Result<ImportReport> {
        self.run_on(target, &(Arc::new(LocalDisk) as Arc<dyn Disk>), &|sink| Box::new(sink))
    }

    /// Imports with a work folder on `disk`, into what `wrap` makes of the target.
    fn run_on(
        &self,
        target: &Path,
        disk: &Arc<dyn Disk>,
        wrap: &dyn Fn(LocalSink) -> Box<dyn Sink>,
    ) -> Result<ImportReport> {
        let layout = ImportLayout::of(&self.config)?;
        self.check()?;
        let job = self.job()?;
        let same = |own: &[u8]| same_job(own, &job);
        let text = serde_json::to_vec(&job).unwrap_or_default();
        // Other files in a folder to replace are an error before any work.
        let plan = plan_of(planned_names(&self.config, &layout.folders)?);
        let check = || LocalSink::check_plan(&plan, target, self.force);
        if let Err(error) = LocalSink::check(target, self.force).and_then(|()| check()) {
            if error.code() == ErrorCode::Exists {
                // What an import left that was interrupted right after it had written the target.
                WorkFolder::close_left(disk, target)?;
            }
            return Err(error);
        }
        let (work, own, resumed) = WorkFolder::open(disk, target, &text, &same)?;
        let run = || {
            let steps = Steps::new(self, &own, &work)?;
            if resumed {
                steps.forget_lost()?;
            }
            let (chunks, dictionaries) = steps.dictionaries(&job)?;
            let sink = || LocalSink::folder(target, self.force).map(wrap);
            steps.finish(&layout, &sink, &chunks, &dictionaries, resumed)
        };
        match run() {
            Ok(report) => work.close().map(|()| report),
            Err(error) => Err(work.leave(error)),
        }
    }

    fn check(&self) -> Result<()> {
        let config = &self.config;
        if self.sets.len() != config.edge_paths.len() {
            return Err(Error::usage(
                "edge-sets",
                "the inputs do not fit the edge paths of the configuration",
            )
            .expected(format_args!("files for {}", config.edge_paths.join(", ")))
            .found(format_args!("{} sets of files", self.sets.len())));
        }
        let mut featurized = config.entities.iter().filter(|(_, entity)| entity.featurized);
        if let (Some((name, _)), true) = (
            featurized.next(),
            self.files().any(|file| matches!(file.content, Content::Text(TextForm::NTriples, _))),
        ) {
            return Err(Error::unsupported("featurised", "N-Triples have no lists of features")
                .found(name)
                .hint("import a table with such lists, separated by commas"));
        }
        let columns = self.columns();
        let needs_relation = match (config.dynamic_relations, config.relations.len()) {
            (true, _) => Some(("dynamic relations need a column with their names", "a column rel")),
            (false, 2..) => Some((
                "the configuration has several relations, the file has no column for them",
                "a column rel, or one relation in the configuration",
            )),
            (false, _) => None,
        };
        let without = self.files().find(|file| !file.has("rel", &columns));
        if let (Some((what, expected)), Some(file)) = (needs_relation, without) {
            let found = match &file.content {
                Content::Text(..) => columns.text(),
                Content::Table(_) => file.describe(),
            };
            return Err(Error::usage("edge-columns", what)
                .in_file(file.source.label())
                .expected(expected)
                .found(found));
        }
        check_memory(self.run.memory)
    }

    fn files(&self) -> impl Iterator<Item = &EdgeFile> {
        self.sets.iter().flatten()
    }

    /// Columns of text.
    fn columns(&self) -> Columns {
        self.columns.clone().unwrap_or_default()
    }

    fn threads(&self) -> u64 {
        if self.run.threads == 0 { default_threads() as u64 } else { self.run.threads as u64 }
    }

    /// Describes everything that the files of the work folder depend on.
    fn job(&self) -> Result<Json> {
        let size = self.run.memory / self.threads().saturating_mul(BYTES_FOR_EACH);
        let text: u64 = self.files().map(EdgeFile::estimated_len).sum();
        // The names of a partition are completed in memory; that is fastest where the caches of the processor hold them.
        let in_memory = text.saturating_mul(3) / (self.run.memory / self.threads().saturating_mul(6)).max(1);
        let parts = in_memory.max(text / CACHED).max(16);
        // All names may be of one type, but each type has as many files.
        let most = MAX_FILE_BITS - (self.config.entities.len() as u64 + 1).ilog2().min(MAX_FILE_BITS);
        Ok(json!({
            "version": 4,
            "config": self.config.to_json(),
            "sets": self.described()?,
            "columns": self.columns().text(),
            "header": self.header,
            "order": self.order.name(),
            "seed": self.seed,
            "like_upstream": self.like_upstream,
            "min_counts": [self.entity_min_count, self.relation_min_count],
            "skip_bad": self.skip_bad,
            "chunk": size.clamp(*CHUNK.start(), *CHUNK.end()),
            "bits": parts.next_power_of_two().ilog2().min(MAX_BITS).min(most),
        }))
    }

    /// Describes the files of all sets.
    fn described(&self) -> Result<Json> {
        let sets = self.sets.iter().map(|files| files.iter().map(described).collect::<Result<Vec<_>>>());
        Ok(Json::from(sets.map(|set| set.map(Json::from)).collect::<Result<Vec<_>>>()?))
    }

    /// Hint of an error in a line or row.
    fn more_bad(&self, of: &str) -> Phrase {
        match self.skip_bad {
            0 => phrase![Opt::SkipBad.any("N"), format_args!(" skips such {of}")],
            most => {
                phrase![Opt::SkipBad.with(most.to_string()), format_args!(" allows no more such {of}")]
            }
        }
    }

    fn order(&self) -> EntityOrder {
        if self.like_upstream { EntityOrder::Seen } else { self.order }
    }
}

/// Describes a file: it must not change until the import is done.
fn described(file: &EdgeFile) -> Result<Json> {
    let label = file.source.label();
    let stamp = if file.source.file().is_some() { Stamp::of_path(Path::new(label)).ok() } else { None };
    let modified = stamp.and_then(|stamp| stamp.modified).map(|time| time.to_string());
    Ok(json!([label, file.source.len(), modified, file.describe()]))
}

/// True where a work folder is of the same import. What only divides its steps may differ, and more malformed lines may be
/// skipped.
fn same_job(own: &[u8], job: &Json) -> bool {
    let Ok(mut own) = serde_json::from_slice::<Json>(own) else { return false };
    if own["skip_bad"].as_u64() > job["skip_bad"].as_u64() {
        return false;
    }
    for key in ["chunk", "bits", "skip_bad"] {
        own[key] = job[key].clone();
    }
    own == *job
}

/// Steps of an import.
struct Steps<'i> {
    import: &'i Import,
    schema: Schema,
    chunk: u64,
    work: &'i WorkFolder,
    /// All files with the number of their set.
    files: Vec<(usize, &'i EdgeFile)>,
}

impl<'i> Steps<'i> {
    fn new(import: &'i Import, job: &[u8], work: &'i WorkFolder) -> Result<Self> {
        let job: Json = serde_json::from_slice(job).unwrap_or_default();
        let number =
            |key: &str| job[key].as_u64().ok_or_else(|| Error::corrupt("bad-list", "damaged work folder"));
        let config = &import.config;
        let place = |name: &str| config.entities.iter().position(|(own, _)| own == name).unwrap_or(0);
        let types = config.entities.len();
        let relations = config.relations.iter().zip(0u32..);
        let schema = Schema {
            first_relations: config.relations.iter().take(MAX_NAMED).map(|own| own.name.clone()).collect(),
            // As upstream: of equal names the last counts.
            relations: (!config.dynamic_relations).then(|| {
                relations
                    .map(|(relation, index)| (relation.name.clone().into_bytes(), index))
                    .collect::<HashMap<_, _>>()
            }),
            sides: config
                .relations
                .iter()
                .map(|relation| [place(&relation.lhs), place(&relation.rhs)])
                .collect(),
            dictionaries: types + usize::from(config.dynamic_relations),
            featurized: config.entities.iter().map(|(_, entity)| entity.featurized).collect(),
            listed: [0, 1].map(|side| {
                let mut sides =
                    config.relations.iter().map(|own| if side == 0 { &own.lhs } else { &own.rhs });
                sides.any(|name| config.entity(name).is_some_and(|entity| entity.featurized))
            }),
            relation_dictionary: config.dynamic_relations.then_some(types),
            bits: u32::try_from(number("bits")?).unwrap_or(0).min(MAX_BITS),
            // The order of upstream does not depend on hashes.
            seed: if import.like_upstream { 0 } else { import.seed },
            weighted: import.files().any(|file| file.has("weight", &import.columns())),
            places: import.order() == EntityOrder::Seen,
            counts: import.entity_min_count > 1 || import.relation_min_count > 1,
        };
        let files =
            import.sets.iter().enumerate().flat_map(|(set, files)| files.iter().map(move |file| (set, file)));
        Ok(Self { import, schema, chunk: number("chunk")?, work, files: files.collect() })
    }

    fn all_parts(&self) -> usize {
        self.schema.dictionaries << self.schema.bits
    }

    /// Reads all lines and completes the dictionaries. Returns all chunks in order.
    fn dictionaries(&self, job: &Json) -> Result<(Vec<ChunkId>, Vec<Dictionary>)> {
        let chunks = self.parse(job)?;
        if !self.work.has("dictionary")? {
            let names = chunks.iter().map(|chunk| {
                NamesOfChunk::open(self.work.open_file(&name("names", *chunk))?, self.all_parts())
            });
            let names = names.collect::<Result<Vec<_>>>()?;
            self.each(self.all_parts(), &|part, (): &mut ()| {
                let own = format!("dictionary-{part}");
                if self.work.has(&own)? {
                    return Ok(());
                }
                let is_relation = Some(part >> self.schema.bits) == self.schema.relation_dictionary;
                let import = self.import;
                let min = if is_relation { import.relation_min_count } else { import.entity_min_count };
                self.work.put(&own, &[&dictionary::complete(&names, part, min, &self.schema)?])
            })?;
            self.work.put("dictionary", &[])?;
        }
        for chunk in &chunks {
            self.work.remove(&name("names", *chunk))?;
        }
        let mut all = Vec::new();
        for number in 0..self.schema.dictionaries {
            let first = number << self.schema.bits;
            let parts = first..first + self.schema.parts();
            let parts = parts.map(|part| self.work.open_file(&format!("dictionary-{part}")));
            all.push(Dictionary::open(parts.collect::<Result<_>>()?, chunks.len(), &self.schema)?);
        }
        Ok((chunks, all))
    }

    /// Reads all lines. Returns the chunks in the order of the files.
    fn parse(&self, job: &Json) -> Result<Vec<ChunkId>> {
        if self.parsed()?.is_none() {
            self.check_space()?;
            self.import.run.progress.begin(self.import.files().map(EdgeFile::estimated_len).sum());
            let chunks = self
                .files
                .iter()
                .map(|(_, file)| Chunks::new(file, self.chunk))
                .collect::<Result<Vec<_>>>()?;
            let bad = AtomicU64::new(self.bad_before()?);
            let file = AtomicUsize::new(0);
            self.workers(&|stop| {
                let mut segment = Segment::new(&self.schema);
                loop {
                    let number = file.load(Ordering::Relaxed);
                    let Some(own) = chunks.get(number) else { return Ok(()) };
                    let wanted = |chunk| self.is_parsed(&name("", (number, chunk))).map(|is| !is);
                    let Some(chunk) = own.next(&wanted)? else {
                        // Another worker may have gone on already.
                        let _ =
                            file.compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed);
                        continue;
                    };
                    if stop.load(Ordering::Relaxed) || self.import.run.progress.stopped() {
                        return Err(Error::cancelled());
                    }
                    self.parse_chunk(number, chunk, &mut segment, &bad)?;
                }
            })?;
            if job["sets"] != self.import.described()? {
                return Err(Error::new(Kind::Io, "changed-while-read", "an input changed during the import")
                    .hint("import again when no program writes to the inputs"));
            }
            let bytes: Vec<u8> = chunks.iter().flat_map(|file| file.count().to_le_bytes()).collect();
            self.work.put("parsed", &[&bytes])?;
        }
        Ok(self.parsed()?.unwrap_or_default())
    }

    fn parse_chunk(
        &self,
        number: usize,
        chunk: Chunk,
        segment: &mut Segment<'_>,
        bad: &AtomicU64,
    ) -> Result<()> {
        let file = self.files[number].1;
        segment.clear();
        let len = match (chunk.part, &file.content) {
            (Part::Rows(rows), Content::Table(records)) => {
                self.parse_rows(file, &EdgeCells::new(records, &rows), &rows, segment, bad)?;
                table::row_len(records).saturating_mul(rows.count as u64)
            }
            (Part::Lines(offset, mut text), Content::Text(form, _)) => {
                self.parse_lines((file, *form), offset, &mut text, segment, bad)?;
                text.len() as u64
            }
            _ => return Ok(()),
        };
        let id = (number, chunk.number);
        let [names, edges] = segment.files()?;
        self.work.put(&name("names", id), &[names])?;
        self.work.put(&name("edges", id), &[edges])?;
        self.import.run.progress.advance(len);
        Ok(())
    }

    /// Parses the lines of `text`, whose first byte is at `offset` of the text of the file.
    fn parse_lines(
        &self,
        (file, form): (&EdgeFile, TextForm),
        offset: u64,
        text: &mut [u8],
        segment: &mut Segment<'_>,
        bad: &AtomicU64,
    ) -> Result<()> {
        let import = self.import;
        let lines = Lines::new(form, &import.columns(), import.like_upstream);
        let mut start = 0;
        if import.header && offset == 0 {
            start = memchr::memchr(b'\n', text).map_or(text.len(), |at| at + 1);
        }
        while start < text.len() {
            let end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |at| start + at);
            let line_end = if end > start && text[end - 1] == b'\r' { end - 1 } else { end };
            let found = if end - start > MAX_LINE {
                Err(BadLine::Length("line"))
            } else {
                lines.edge(text, start..line_end)
            };
            let done = match found {
                Ok(Some(edge)) => segment.push(text, &edge),
                Ok(None) => Ok(()),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = done {
                self.skip(segment, bad)
                    .map_err(|()| bad_line(file, offset + start as u64, &fault, import.more_bad("lines")))?;
            }
            start = end + 1;
        }
        Ok(())
    }

    /// Collects the edges of rows.
    fn parse_rows(
        &self,
        file: &EdgeFile,
        cells: &EdgeCells<'_>,
        rows: &Rows,
        segment: &mut Segment<'_>,
        bad: &AtomicU64,
    ) -> Result<()> {
        let mut text = Vec::new();
        for row in 0..rows.count {
            text.clear();
            let done = cells.edge(row, &mut text).and_then(|edge| segment.push(&text, &edge));
            if let Err(fault) = done {
                self.skip(segment, bad).map_err(|()| {
                    let more = self.import.more_bad("rows");
                    let error = fault.error().in_file(file.source.label()).hint_too(more);
                    error.within(format_args!("row {}", rows.first + row as u64 + 1))
                })?;
            }
        }
        Ok(())
    }

    /// Counts a malformed line or row; fails if it is one too many.
    fn skip(&self, segment: &mut Segment<'_>, bad: &AtomicU64) -> std::result::Result<(), ()> {
        segment.bad += 1;
        if bad.fetch_add(1, Ordering::Relaxed) >= self.import.skip_bad { Err(()) } else { Ok(()) }
    }

    /// Fails where the disk has less space than the import is estimated to need.
    fn check_space(&self) -> Result<()> {
        let Some(free) = self.work.space()? else { return Ok(()) };
        let mut needed = 0u64;
        for file in self.import.files() {
            let text = file.estimated_len();
            // Names in the dictionaries; numbers and ids of the edges in the work folder, and the output.
            needed = needed.saturating_add(text).saturating_add((text / file.line_len()?).saturating_mul(60));
        }
        if needed <= free {
            return Ok(());
        }
        Err(Error::new(Kind::Io, ErrorCode::TooLittleSpace, "the disk has too little space for the import")
            .expected(format_args!("about {needed} bytes"))
            .found(format_args!("{free} bytes"))
            .hint("free some space, or choose a target on another disk"))
    }

    /// Runs `work` for the numbers below `count`, in several threads. Each thread has a `T` of its own.
    fn each<T: Default>(
        &self,
        count: usize,
        work: &(dyn Fn(usize, &mut T) -> Result<()> + Sync),
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        self.workers(&|stop| {
            let mut own = T::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                if stop.load(Ordering::Relaxed) || self.import.run.progress.stopped() {
                    return Err(Error::cancelled());
                }
                work(number, &mut own)?;
            }
        })
    }

    /// Runs `work` in each thread; returns the first error. `stop` is set once one has failed.
    fn workers(&self, work: &(dyn Fn(&AtomicBool) -> Result<()> + Sync)) -> Result<()> {
        let stop = AtomicBool::new(false);
        let first: Mutex<Option<Error>> = Mutex::new(None);
        let run = || {
            if let Err(error) = work(&stop) {
                lock(&first).get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.import.threads() {
                scope.spawn(run);
            }
            run();
        });
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Gives all names their ids, relabels the edges, and writes the target.
    fn finish(
        &self,
        layout: &ImportLayout,
        sink: &dyn Fn() -> Result<Box<dyn Sink>>,
        chunks: &[ChunkId],
        dictionaries: &[Dictionary],
        resumed: bool,
    ) -> Result<ImportReport> {
        let import = self.import;
        let order = import.order();
        let memory = import.run.memory / 2;
        if order != EntityOrder::Random && !self.work.has("ordered")? {
            let mut twister = import.like_upstream.then(|| Twister::seeded(import.seed));
            // Upstream shuffles the relations first.
            let relations = self.schema.relation_dictionary;
            let all = relations.into_iter().chain(0..import.config.entities.len());
            for number in all {
                dictionaries[number].sort(order, twister.as_mut(), memory, self.work, number)?;
            }
            self.work.put("ordered", &[])?;
        }
        let ImportLayout { folders, buckets } = layout;
        let buckets = *buckets;
        self.relabel(order, memory, buckets, chunks, dictionaries)?;
        let mut names = Vec::new();
        for (number, dictionary) in dictionaries.iter().enumerate() {
            names.push(Arc::new(dictionary.names(order, self.work, number)?));
        }
        let mut files = self.entity_files(folders, dictionaries, &names)?;
        let mut edges = Vec::new();
        for (set, folder) in folders.edges.iter().enumerate() {
            let own = chunks.iter().filter(|(file, _)| self.files[*file].0 == set);
            let count = usize::try_from(buckets[0] * buckets[1]).unwrap_or(usize::MAX);
            let own = own.map(|chunk| {
                Relabeled::open(self.work.open_file(&name("ids", *chunk))?, count, &self.schema)
            });
            let own = Arc::new(own.collect::<Result<Vec<_>>>()?);
            edges.push(ImportedEdges {
                folder: folder.clone(),
                edges: own.iter().map(Relabeled::len).sum(),
                dropped: own.iter().map(|chunk| chunk.skipped).sum(),
                bad_lines: own.iter().map(|chunk| chunk.bad).sum(),
                buckets,
            });
            files.extend(edge_files(folder, &own, buckets, &self.schema, import.like_upstream)?);
        }
        let plan = plan_of(files);
        let report = run(&plan, &*sink()?, &import.run)?;
        let config = &import.config;
        let imported = |name: &str, dictionary: &Dictionary, partitions| ImportedNames {
            name: name.to_owned(),
            found: dictionary.found,
            kept: dictionary.len(),
            partitions,
        };
        let entities = config.entities.iter().zip(dictionaries);
        let count = config.relations.len() as u64;
        Ok(ImportReport {
            edges,
            entities: entities
                .map(|((name, entity), own)| imported(name, own, entity.num_partitions))
                .collect(),
            relations: match self.schema.relation_dictionary {
                Some(number) => imported("relations", &dictionaries[number], 1),
                None => {
                    ImportedNames { name: "relations".to_owned(), found: count, kept: count, partitions: 1 }
                }
            },
            files: plan.files.len(),
            bytes: report.bytes,
            resumed,
        })
    }

    fn relabel(
        &self,
        order: EntityOrder,
        memory: u64,
        buckets: [u64; 2],
        chunks: &[ChunkId],
        dictionaries: &[Dictionary],
    ) -> Result<()> {
        let mut missing: Vec<(usize, ChunkId)> = Vec::new();
        for (number, chunk) in chunks.iter().enumerate() {
            if self.work.has(&name("ids", *chunk))? {
                self.work.remove(&name("edges", *chunk))?;
            } else {
                missing.push((number, *chunk));
            }
        }
        if !missing.is_empty() {
            let relabeling = Relabeling {
                schema: &self.schema,
                ids: dictionaries
                    .iter()
                    .enumerate()
                    .map(|(number, own)| own.ids(order, memory, self.work, number))
                    .collect::<Result<_>>()?,
                starts: dictionaries
                    .iter()
                    .enumerate()
                    .map(|(number, own)| {
                        let entity = self.import.config.entities.get(number);
                        let parts = entity.map_or(1, |(_, entity)| entity.num_partitions);
                        (0..=parts).map(|part| part_start(part, own.len(), parts)).collect()
                    })
                    .collect(),
                buckets,
            };
            self.import.run.progress.begin(missing.len() as u64 * self.chunk);
            self.each(missing.len(), &|place, buffers: &mut Buffers| {
                let (number, chunk) = missing[place];
                let source = self.work.open_file(&name("edges", chunk))?;
                let edges = Edges::read(&*source, &self.schema)?;
                self.work.put(&name("ids", chunk), &[relabeling.file(number, &edges, buffers)?])?;
                // At once: the system uses its memory again for the next one.
                self.work.remove(&name("edges", chunk))?;
                self.import.run.progress.advance(self.chunk);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Plans the counts and names of entities and relations.
    fn entity_files(
        &self,
        folders: &Folders,
        dictionaries: &[Dictionary],
        names: &[Arc<NameTable>],
    ) -> Result<Vec<PlannedFile>> {
        let mut files = Vec::new();
        let path = |name: FileName| layout::below(&folders.entities, &name.to_string());
        let mut put = |name: String, bytes: &[u8]| {
            let mut file = FileBuilder::new(name);
            file.literal(bytes);
            files.push(file.finish());
        };
        let config = &self.import.config;
        let mut lists = Vec::new();
        for ((entity, kind), (dictionary, names)) in
            config.entities.iter().zip(dictionaries.iter().zip(names))
        {
            let mut start = 0;
            for (part, count) in (0u64..).zip(split_counts(dictionary.len(), kind.num_partitions)) {
                put(
                    path(FileName::EntityCount { entity: entity.clone(), part }),
                    number_text(count).as_bytes(),
                );
                lists.push((
                    path(FileName::EntityNames { entity: entity.clone(), part }),
                    names.clone(),
                    start..start + count,
                ));
                start += count;
            }
        }
        match self.schema.relation_dictionary {
            Some(number) => {
                let count = dictionaries[number].len();
                put(path(FileName::RelationCount), number_text(count).as_bytes());
                lists.push((path(FileName::RelationNames), names[number].clone(), 0..count));
            }
            None => {
                let all = config.relations.iter().map(|relation| relation.name.as_str());
                put(
                    path(FileName::RelationNames),
                    weighbridge_format::names_json::names_json(all).as_bytes(),
                );
            }
        }
        // Each list of names is read once for its length.
        let made: Mutex<Vec<(usize, PlannedFile)>> = Mutex::new(Vec::with_capacity(lists.len()));
        self.each(lists.len(), &|number, (): &mut ()| {
            let (path, names, rows) = &lists[number];
            let source: SourceRef = Arc::new(NamesFile::new(path.clone(), names.clone(), rows.clone())?);
            let file = crate::write::bytes_of(path, source)?;
            lock(&made).push((number, file));
            Ok(())
        })?;
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        made.sort_by_key(|(number, _)| *number);
        files.extend(made.into_iter().map(|(_, file)| file));
        Ok(files)
    }
}

/// Returns the error for the line with the byte at `offset` of the text of a file.
fn bad_line(file: &EdgeFile, offset: u64, fault: &BadLine, more: Phrase) -> Error {
    let error = fault.error().in_file(file.source.label()).hint_too(more);
    match file.line_at(offset) {
        Ok(line) => error.within(format_args!("line {line}")),
        Err(_) => error.at(offset),
    }
}

fn plan_of(files: Vec<PlannedFile>) -> WritePlan {
    WritePlan { format: "biggraph", kind: "import", files, losses: Vec::new() }
}

/// Name of a file of the work folder.
fn name(kind: &str, (file, chunk): ChunkId) -> String {
    format!("{kind}-{file}-{chunk}")
}

/// Locks, also after another thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
