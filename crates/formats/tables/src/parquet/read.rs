//! Builds the index from the footer, and reads rows from row groups.

mod lists;
mod outline;
mod records;
mod strict;
mod texts;
#[cfg(feature = "scan")]
mod words;

pub(super) use outline::{check, outline};
pub(crate) use records::ParquetSections;

use super::chunks::Chunks;
use super::footer::Readable;
use super::pages::{Unpacked, Width};
#[cfg(feature = "scan")]
use crate::table::binaries::Binaries;
use crate::table::columns::{Layout, Vector};
#[cfg(feature = "scan")]
use crate::table::pickled;
use crate::table::pipe::{RawPair, guarded, restore};
use crate::table::{COPIES, DecodedSource, Decoder, check_at_once, flat};
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ProjectionMask};
use parquet::basic::{Compression, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use texts::Texts;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{
    Checkpoint, RowNameList, RowNames, RowNamesRef, TensorEntry, TensorPath, check_count,
};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_format::OpenOptions;
#[cfg(feature = "scan")]
use weighbridge_format::Scan;
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Target size of a decoded block, in bytes of elements.
const BLOCK_BYTES: u64 = 1 << 20;
/// Memory of a column reader besides its pages, in bytes.
const READER_MEMORY: u64 = 3 << 10;
/// Memory of a list value while it is read: the value, and the levels that separate lists.
const VALUE_MEMORY: u64 = 8;
/// Number of names decoded together; fewer where one of them is long, as each may be as long.
const NAMES_AT_ONCE: u64 = 64 << 10;
const NAME_BYTES_AT_ONCE: u64 = 4 << 20;
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::new("parquet", "table", source.label());
    let file = Arc::new(File::read(source, &options.limits)?);
    let layout = Layout::of(file.metadata.schema(), &mut checkpoint.notes)?;
    let mut groups = Vec::new();
    let mut rows = 0u64;
    for group in file.metadata.metadata().row_groups() {
        let count = u64::try_from(group.num_rows())
            .map_err(|_| Error::corrupt("negative", "a row group has a negative row count"))?;
        groups.push((rows, count));
        rows = rows
            .checked_add(count)
            .ok_or_else(|| Error::corrupt("row-count", "the row count overflows 64 bits"))?;
    }
    let width = match &layout.vector {
        Vector::Fixed(_, width) => *width,
        Vector::Plain(places) => places.len() as u64,
        Vector::List(_) => match groups.iter().position(|&(_, count)| count > 0) {
            Some(group) => file.first_width(group, &layout)?,
            None => 0,
        },
        Vector::None => 0,
    };
    let shape = Shape::new([rows, width]);
    let row_bytes = width.saturating_mul(layout.dtype.size().unwrap_or(1) as u64);
    let Some(bytes) = row_bytes.checked_mul(rows) else {
        return Err(
            Error::corrupt("shape-overflow", "the byte size of the table overflows 64 bits").found(shape)
        );
    };
    let limits = &options.limits;
    // One run of a few bytes can encode 2^31 rows: a small file must not become a huge table.
    limits.check_expansion("the table is", bytes, source.len()).map_err(|e| e.in_file(source.label()))?;
    let at_once = (BLOCK_BYTES / row_bytes.max(1)).max(1);
    let blocks: u64 = groups.iter().map(|&(_, count)| count.div_ceil(at_once)).fold(0, u64::saturating_add);
    Limits::check("blocks of rows", "tensors", blocks, limits.tensors)?;
    let mut places = Vec::new();
    let mut starts = vec![0];
    for (group, &(first, count)) in groups.iter().enumerate() {
        let mut skip = 0;
        while skip < count {
            let take = at_once.min(count - skip);
            places.push(Location { group, skip, take });
            skip += take;
            starts.push((first + skip) * row_bytes);
        }
    }
    let (dtype, names) = (layout.dtype, layout.names);
    let attributes = layout.attributes(file.metadata.schema());
    let guessed = matches!(layout.vector, Vector::List(_));
    let decoder = Groups { file: file.clone(), layout, width, at_once, places, open: Mutex::default() };
    let decoded = DecodedSource::forwards(source.clone(), starts, Box::new(decoder), &limits.blocks);
    let mut entry = TensorEntry::dense(TensorPath::value(), dtype, shape, &decoded, 0, Encoding::ROW)?;
    entry.guessed = guessed;
    entry.attributes = attributes;
    if let Some(place) = names {
        let names = GroupNames { file: file.clone(), place, rows, kept: Mutex::default() };
        entry.row_names = Some(Arc::new(names) as RowNamesRef);
    }
    checkpoint.tensors.push(entry);
    let pairs = file.metadata.metadata().file_metadata().key_value_metadata();
    let raw = |text: &str| text.as_bytes().to_vec();
    let pairs = pairs.into_iter().flatten().enumerate().map(|(number, pair)| match file.odd.get(&number) {
        Some(odd) => odd.clone(),
        None => (raw(&pair.key), raw(pair.value.as_deref().unwrap_or_default())),
    });
    restore(&mut checkpoint, pairs);
    Ok(checkpoint)
}

/// Scans column types that are pickles, and pickles inside binary and text columns.
#[cfg(feature = "scan")]
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    match File::read(source, &options.limits) {
        Ok(file) => {
            pickled::judge(file.metadata.schema(), &mut scan);
            let mut binaries = Binaries::of(
                file.metadata.schema(),
                false,
                source,
                (&options.limits, &file.budget),
                &mut scan,
            );
            for number in 0..binaries.columns.len() {
                if let Err(error) = file.look(number, &mut binaries, &mut scan) {
                    binaries.refused(Some(number), error, &mut scan)?;
                }
            }
            file.look_at_texts(&mut binaries, &mut scan)?;
        }
        Err(error) => scan.push_error(error)?,
    }
    Ok(scan)
}

/// Checks the Arrow schema in the metadata before the library copies the data it refers to.
fn check_arrow_schema(metadata: &FileMetaData) -> Result<()> {
    for pair in metadata.key_value_metadata().into_iter().flatten() {
        let Some(value) = pair.value.as_ref().filter(|_| pair.key == ARROW_SCHEMA_META_KEY) else { continue };
        // Invalid base64 is rejected by the library.
        let Ok(message) = STANDARD.decode(value) else { continue };
        flat::message("the schema of Arrow", &message[flat::start_of(&message)..])?;
    }
    Ok(())
}

/// Metadata without the dictionary offset of columns that have no dictionary: some writers store 0.
fn without_lost_dictionaries(
    metadata: ParquetMetaData,
) -> std::result::Result<ParquetMetaData, ParquetError> {
    let is_lost = |column: &ColumnChunkMetaData| {
        // In a column without data, the data offset is 0.
        let data = column.data_page_offset();
        column.dictionary_page_offset().is_some_and(|at| at <= 0 || data > 0 && at >= data)
    };
    if !metadata.row_groups().iter().any(|group| group.columns().iter().any(is_lost)) {
        return Ok(metadata);
    }
    let without = |column: ColumnChunkMetaData| match is_lost(&column) {
        true => column.into_builder().set_dictionary_page_offset(None).build(),
        false => Ok(column),
    };
    let mut builder = metadata.into_builder();
    let mut groups = Vec::new();
    for group in builder.take_row_groups() {
        let columns = group.columns().iter().cloned().map(without).collect::<std::result::Result<_, _>>()?;
        groups.push(group.into_builder().set_column_metadata(columns).build()?);
    }
    Ok(builder.set_row_groups(groups).build())
}

/// File with a parsed footer.
struct File {
    source: Chunks,
    metadata: ArrowReaderMetadata,
    /// Metadata pairs that are not UTF-8, with their indexes.
    odd: BTreeMap<usize, RawPair>,
    limits: Limits,
    budget: Budget,
    checked: Mutex<Checked>,
}

/// Columns of row groups with checked pages.
#[derive(Debug, Default)]
struct Checked {
    /// Unpacked sizes of the pages.
    columns: HashMap<Leaf, Unpacked>,
    /// Total unpacked size of the pages.
    unpacked: u64,
    /// Number of values of the longest list, for list columns already counted.
    longest: HashMap<Leaf, u64>,
    /// Sizes of the texts of text columns.
    texts: HashMap<Leaf, Texts>,
}

/// Row group, and a leaf column of it. Offsets are not unique: an empty column may share one.
type Leaf = (usize, usize);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Footer bytes, and their offset.
fn footer(source: &SourceRef, limits: &Limits) -> Result<(u64, Vec<u8>)> {
    let room = source.len().checked_sub(12).ok_or_else(|| {
        Error::corrupt("truncated", "the file is shorter than the smallest Parquet file").found(source.len())
    })?;
    let mut tail = [0; 8];
    source.read_at(source.len() - 8, &mut tail)?;
    let (len, magic) = (u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]])), &tail[4..]);
    match magic {
        super::MAGIC => {}
        super::ENCRYPTED => {
            return Err(Error::unsupported("encrypted", "the file is encrypted")
                .hint("write the table again without encryption, with a program that has the keys"));
        }
        _ => {
            return Err(Error::corrupt("parquet-magic", "the file does not end with the Parquet magic")
                .at(source.len() - 4)
                .hint("the download may be incomplete; download it again"));
        }
    }
    Limits::check("bytes of footer", "header_bytes", len, limits.header_bytes)?;
    if len > room {
        let text = format!("the footer length ({len}) exceeds the file ({} bytes)", source.len());
        return Err(Error::corrupt("truncated", text).hint("the file is damaged; use another copy"));
    }
    let place = room - len + super::MAGIC.len() as u64;
    Ok((place, read_vec(&**source, place, len)?))
}

impl File {
    fn read(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let (place, mut footer) = footer(source, limits)?;
        let budget = limits.budget_for(source.len());
        super::footer::check(&footer, &budget).map_err(|error| error.at(place))?;
        let Readable { changed, odd } = super::footer::make_readable(&mut footer);
        let footer = changed.then_some(footer);
        let source = Chunks(source.clone());
        let metadata = guarded("the footer", || match &footer {
            Some(footer) => ParquetMetaDataReader::decode_metadata(footer),
            None => ParquetMetaDataReader::new().parse_and_finish(&source),
        })?;
        let metadata = guarded("the footer", || without_lost_dictionaries(metadata))?;
        check_arrow_schema(metadata.file_metadata()).map_err(|error| error.at(place))?;
        let metadata = guarded("the footer", || {
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        })?;
        let (limits, checked) = (limits.clone(), Mutex::default());
        let file = Self { source, metadata, odd, limits, budget, checked };
        // Overlapping columns would be held, and read, once per column.
        file.chunks()?;
        Ok(file)
    }

    /// Reader of some columns of a row group, from row `skip` on, in batches of up to `at_once` rows.
    fn rows(
        &self,
        group: usize,
        columns: Vec<usize>,
        skip: u64,
        at_once: usize,
    ) -> Result<ParquetRecordBatchReader> {
        let skip = to_usize(skip)?;
        self.check_pages(group, &columns, at_once as u64, 1)?;
        guarded("a row group", || {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
                self.source.clone(),
                self.metadata.clone(),
            );
            let mask = ProjectionMask::roots(builder.parquet_schema(), columns);
            let builder = builder.with_row_groups(vec![group]).with_projection(mask).with_batch_size(at_once);
            if skip > 0 { builder.with_offset(skip).build() } else { builder.build() }
        })
    }

    /// Fails where `bytes` exceed the memory limit.
    fn check_memory(&self, bytes: u64) -> Result<()> {
        check_at_once(&self.budget, bytes / COPIES).map_err(|e| e.in_file(self.source.0.label()))
    }

    /// Checks the declared page sizes of some columns of a row group. `at_once` rows are read at a time and held
    /// `copies` times.
    fn check_pages(
        &self,
        group: usize,
        columns: &[usize],
        at_once: u64,
        copies: u64,
    ) -> Result<Vec<Unpacked>> {
        let metadata = self.metadata.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let chunks = guarded("a row group", || {
            let chunks = metadata.row_group(group).columns().iter().enumerate();
            let chunks =
                chunks.filter(|(leaf, _)| columns.binary_search(&schema.get_column_root_idx(*leaf)).is_ok());
            let ranges = chunks.map(|(leaf, chunk)| (leaf, chunk.byte_range(), chunk.compression()));
            Ok::<_, ParquetError>(ranges.collect::<Vec<_>>())
        })?;
        let (mut held, mut all) = (0u64, Vec::new());
        for &(leaf, (start, len), compression) in &chunks {
            let unpacked = self.check_column((group, leaf), start..start.saturating_add(len), compression)?;
            held = held.saturating_add(unpacked.held).saturating_add(READER_MEMORY);
            all.push(unpacked);
        }
        // From here on a page may be unpacked.
        self.check_memory(held.saturating_mul(copies))?;
        let mut listed = 0u64;
        for (&(leaf, ..), unpacked) in chunks.iter().zip(&all) {
            let column = schema.column(leaf);
            if column.max_rep_level() > 0 {
                let mut values = unpacked.values;
                if values.saturating_mul(VALUE_MEMORY) > self.budget.memory_left() {
                    values = values.min(self.longest_once((group, leaf))?.saturating_mul(at_once));
                }
                // A missing fixed-size list is as long as others, and takes no bytes in the file.
                let root = self.metadata.schema().fields().get(schema.get_column_root_idx(leaf));
                if let Some(DataType::FixedSizeList(_, width)) = root.map(|field| field.data_type()) {
                    let width = u64::try_from(*width).unwrap_or(0);
                    values = values.max(width.saturating_mul(at_once));
                }
                listed = listed.saturating_add(values.saturating_mul(VALUE_MEMORY));
            }
            if unpacked.deltas
                && matches!(column.physical_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY)
            {
                held = held.saturating_add(self.texts_once((group, leaf), unpacked)?.lengths);
            }
        }
        self.check_memory(held.saturating_add(listed).saturating_mul(copies))?;
        Ok(all)
    }

    /// Checks the declared page sizes of a column of a row group, once.
    fn check_column(&self, leaf: Leaf, range: Range<u64>, compression: Compression) -> Result<Unpacked> {
        let source = &self.source.0;
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unpacked) = checked.columns.get(&leaf) {
            return Ok(*unpacked);
        }
        if matches!(compression, Compression::BROTLI(_) | Compression::LZO) {
            return Err(Error::unsupported("codec", "unsupported column compression")
                .in_file(source.label())
                .expected("none, snappy, gzip, zstd or lz4")
                .found(format_args!("{compression:?}"))
                .hint("write the table again with a supported compression, such as zstd"));
        }
        let metadata = self.metadata.metadata();
        let column = metadata.file_metadata().schema_descr().column(leaf.1);
        let unpacked =
            super::pages::check(source, range.clone(), compression, Width::of(&column), &self.limits)
                .map_err(|e| e.in_file(source.label()))?;
        // In a flat column each row is one value, missing or not. A run of a few bytes in many row groups
        // would be decoded for rows that do not exist.
        let rows = u64::try_from(metadata.row_group(leaf.0).num_rows()).unwrap_or(0);
        if column.max_rep_level() == 0 && unpacked.values > rows {
            return Err(Error::corrupt(
                "page-values",
                "the pages of a column have more values than its rows",
            )
            .in_file(source.label())
            .at(range.start)
            .expected(format_args!("at most {rows}"))
            .found(unpacked.values));
        }
        checked.unpacked = checked.unpacked.saturating_add(unpacked.total);
        let held = self.limits.check_expansion("the pages are", checked.unpacked, source.len());
        held.map_err(|e| e.in_file(source.label()))?;
        checked.columns.insert(leaf, unpacked);
        Ok(unpacked)
    }

    /// Number of values of the longest list of a column; counted once.
    fn longest_once(&self, leaf: Leaf) -> Result<u64> {
        let checked = || self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = checked().longest.get(&leaf).copied();
        if let Some(longest) = known {
            return Ok(longest);
        }
        let longest = self.longest_list(leaf.0, leaf.1)?;
        checked().longest.insert(leaf, longest);
        Ok(longest)
    }

    /// Sizes of the texts of a column with these page sizes; measured once.
    fn texts_once(&self, leaf: Leaf, unpacked: &Unpacked) -> Result<Texts> {
        let checked = || self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = checked().texts.get(&leaf).copied();
        if let Some(texts) = known {
            return Ok(texts);
        }
        let texts = self.texts(leaf.0, leaf.1, unpacked.values)?;
        checked().texts.insert(leaf, texts);
        Ok(texts)
    }

    /// Number of names of a row group to decode together.
    fn names_at_once(&self, group: usize, place: usize) -> Result<u64> {
        let (longest, held) = self.longest_text(group, place)?;
        Limits::check("bytes of the name of a row", "name_bytes", longest, self.limits.name_bytes)
            .map_err(|e| e.in_file(self.source.0.label()))?;
        Ok((NAME_BYTES_AT_ONCE / held.max(1)).clamp(1, NAMES_AT_ONCE))
    }

    /// Scans a binary or text column; `number` is its index among these columns.
    #[cfg(feature = "scan")]
    fn look(&self, number: usize, binaries: &mut Binaries<'_>, scan: &mut Scan) -> Result<()> {
        let Some(&place) = binaries.columns.get(number) else { return Ok(()) };
        for group in 0..self.metadata.metadata().num_row_groups() {
            let (longest, held) = self.longest_text(group, place)?;
            self.check_memory(longest.saturating_mul(COPIES))?;
            let at_once = (NAME_BYTES_AT_ONCE / held.max(1)).clamp(1, NAMES_AT_ONCE);
            let mut rows = self.rows(group, vec![place], 0, to_usize(at_once)?)?;
            while let Some(batch) = self.next(&mut rows, group, &[place])? {
                binaries.look(number, &batch, scan)?;
            }
        }
        Ok(())
    }

    /// Length in bytes of the longest text of a column of a row group, or an upper bound where that is small;
    /// and the memory it holds when decoded.
    fn longest_text(&self, group: usize, place: usize) -> Result<(u64, u64)> {
        let pages = self.check_pages(group, &[place], 1, COPIES)?;
        let Some(unpacked) = pages.first() else { return Ok((0, 0)) };
        let field = self.metadata.schema().fields().get(place).map(|field| field.data_type());
        // Small in total means small each.
        let longest = match field {
            Some(DataType::FixedSizeBinary(width)) => u64::try_from(*width).unwrap_or(0),
            _ if unpacked.deltas
                || unpacked.plain > NAME_BYTES_AT_ONCE
                || unpacked.dictionary > NAME_BYTES_AT_ONCE / NAMES_AT_ONCE =>
            {
                let schema = self.metadata.metadata().file_metadata().schema_descr();
                let leaf = (0..schema.num_columns()).find(|&leaf| schema.get_column_root_idx(leaf) == place);
                self.texts_once((group, leaf.unwrap_or(place)), unpacked)?.longest
            }
            _ => return Ok((unpacked.dictionary, unpacked.dictionary)),
        };
        // Views keep their page in memory.
        let is_view = matches!(field, Some(DataType::Utf8View | DataType::BinaryView));
        Ok((longest, if is_view { longest.max(unpacked.longest) } else { longest }))
    }

    /// Next rows of these columns of a row group.
    fn next(
        &self,
        rows: &mut ParquetRecordBatchReader,
        group: usize,
        columns: &[usize],
    ) -> Result<Option<RecordBatch>> {
        guarded("a row group", || rows.next().transpose()).map_err(|error| {
            if error.kind() == Kind::Corrupt { self.blame(group, columns, error) } else { error }
        })
    }

    fn first_width(&self, group: usize, layout: &Layout) -> Result<u64> {
        let columns = layout.elements();
        let mut rows = self.rows(group, columns.clone(), 0, 1)?;
        let batch = self.next(&mut rows, group, &columns)?;
        Ok(batch.as_ref().and_then(Layout::first_width).unwrap_or(0))
    }
}

/// Position of rows that are decoded together.
#[derive(Debug, Clone, Copy)]
struct Location {
    group: usize,
    skip: u64,
    take: u64,
}

/// Decoder of rows from front to back; going back starts again.
struct Groups {
    file: Arc<File>,
    layout: Layout,
    width: u64,
    at_once: u64,
    places: Vec<Location>,
    /// Reader positioned at the block of this number.
    open: Mutex<Option<(usize, ParquetRecordBatchReader)>>,
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups")
            .field("file", &self.file)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Decoder for Groups {
    fn decode(&self, block: usize) -> Result<Vec<u8>> {
        let Some(&place) = self.places.get(block) else { return Ok(Vec::new()) };
        let columns = self.layout.elements();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reader = match open.take().filter(|(next, _)| *next == block && place.skip > 0) {
            Some((_, reader)) => reader,
            None => {
                let at_once = to_usize(self.at_once.min(place.take.max(1)))?;
                self.file.rows(place.group, columns.clone(), place.skip, at_once)?
            }
        };
        let mut out = Vec::new();
        let mut rows = 0;
        // A batch may be shorter than requested.
        while rows < place.take {
            let batch = self.file.next(&mut reader, place.group, &columns)?;
            let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) else { break };
            rows += batch.num_rows() as u64;
            self.layout
                .rows(&batch, self.width, &mut out)
                .map_err(|e| e.in_file(self.file.source.0.label()))?;
        }
        if rows != place.take {
            return Err(Error::corrupt("row-count", "a row group has fewer rows than the footer declares")
                .in_file(self.file.source.0.label())
                .expected(place.skip.saturating_add(place.take))
                .found(place.skip.saturating_add(rows)));
        }
        // The reader holds pages of all columns; the next group needs a new one.
        let goes_on = self.places.get(block + 1).is_some_and(|next| next.group == place.group);
        *open = goes_on.then_some((block + 1, reader));
        Ok(out)
    }
}

/// Row names in a column of all row groups.
#[derive(Debug)]
struct GroupNames {
    file: Arc<File>,
    place: usize,
    rows: u64,
    kept: Mutex<Option<Arc<RowNameList>>>,
}

impl RowNames for GroupNames {
    fn label(&self) -> &str {
        self.file.source.0.label()
    }
    fn read(&self) -> Result<Arc<RowNameList>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = &*kept {
            return Ok(list.clone());
        }
        let mut list = RowNameList::new();
        self.append(&mut list, &mut |list| Ok(list.len() as u64))?;
        let list = Arc::new(list);
        *kept = Some(list.clone());
        Ok(list)
    }
    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        let mut count = 0;
        self.append(&mut RowNameList::new(), &mut |list| {
            count += list.len() as u64;
            take(list)?;
            list.clear();
            Ok(count)
        })
    }
    fn sources(&self) -> Vec<SourceRef> {
        vec![self.file.source.0.clone()]
    }
}

impl GroupNames {
    /// Appends all names. `look` receives the list after each batch, and returns the number of names so far.
    fn append(
        &self,
        list: &mut RowNameList,
        look: &mut dyn FnMut(&mut RowNameList) -> Result<u64>,
    ) -> Result<()> {
        let most = RowNameList::most(self.file.source.0.len(), &self.file.limits);
        let (mut count, mut spent) = (0, 0u64);
        'groups: for group in 0..self.file.metadata.metadata().num_row_groups() {
            let at_once = self.file.names_at_once(group, self.place)?;
            let mut rows = self.file.rows(group, vec![self.place], 0, to_usize(at_once)?)?;
            while let Some(batch) = self.file.next(&mut rows, group, &[self.place])? {
                let left = most.saturating_sub(spent);
                Layout::names(&batch, list, left).map_err(|e| e.in_file(self.label()))?;
                let bytes = list.bytes();
                count = look(list)?;
                // Names removed from the list still count.
                spent = spent.saturating_add(bytes.saturating_sub(list.bytes()));
                if count > self.rows {
                    break 'groups;
                }
            }
        }
        check_count(self, count, self.rows)
    }
}
