//! From the footer to the index, and rows out of row groups.

mod lists;
mod outline;
mod strict;
mod texts;
#[cfg(feature = "scan")]
mod words;

pub(super) use outline::{check, outline};

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

/// About as many bytes of elements are decoded together.
const BLOCK: u64 = 1 << 20;
/// What reading a column takes beside its pages.
const READER: u64 = 3 << 10;
/// What a value of a list takes while it is read: itself, and the levels that tell lists apart.
const VALUE: u64 = 8;
/// Names that are decoded together; fewer where one of them is long, as each of them may be as long.
const NAMES: u64 = 64 << 10;
const NAME_BYTES: u64 = 4 << 20;
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::new("parquet", "table", source.label());
    let file = Arc::new(File::read(source, &options.limits)?);
    let layout = Layout::of(file.metadata.schema(), &mut checkpoint.notes)?;
    let mut groups = Vec::new();
    let mut rows = 0u64;
    for group in file.metadata.metadata().row_groups() {
        let count = u64::try_from(group.num_rows())
            .map_err(|_| Error::corrupt("negative", "a row group has fewer than no rows"))?;
        groups.push((rows, count));
        rows = rows.checked_add(count).ok_or_else(|| Error::corrupt("row-count", "more rows than 2^64"))?;
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
        return Err(Error::corrupt("shape-overflow", "the table has no length below 2^64").found(shape));
    };
    let limits = &options.limits;
    // One run of a few bytes can stand for 2^31 rows: a small file must not become an endless table.
    limits.check_expansion("the table is", bytes, source.len()).map_err(|e| e.in_file(source.label()))?;
    let at_once = (BLOCK / row_bytes.max(1)).max(1);
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

/// Looks for types of columns that are a pickle, and for pickles in columns of bytes and texts.
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

/// Looks at the schema of Arrow that the metadata may carry, before its reader copies what it points to.
fn check_arrow_schema(metadata: &FileMetaData) -> Result<()> {
    for pair in metadata.key_value_metadata().into_iter().flatten() {
        let Some(value) = pair.value.as_ref().filter(|_| pair.key == ARROW_SCHEMA_META_KEY) else { continue };
        // What is no base64 is refused by its reader.
        let Ok(message) = STANDARD.decode(value) else { continue };
        flat::message("the schema of Arrow", &message[flat::start_of(&message)..])?;
    }
    Ok(())
}

/// The metadata where a column whose dictionary is not said to begin before its data has none: some writers say 0.
fn without_lost_dictionaries(
    metadata: ParquetMetaData,
) -> std::result::Result<ParquetMetaData, ParquetError> {
    let is_lost = |column: &ColumnChunkMetaData| {
        // Of a column without data, the data begin at 0.
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

/// A file whose footer was read.
struct File {
    source: Chunks,
    metadata: ArrowReaderMetadata,
    /// Pairs of the metadata that are not UTF-8, by their numbers.
    odd: BTreeMap<usize, RawPair>,
    limits: Limits,
    budget: Budget,
    checked: Mutex<Checked>,
}

/// Columns of row groups of which the pages were looked at.
#[derive(Debug, Default)]
struct Checked {
    /// What they take when they are unpacked.
    columns: HashMap<Leaf, Unpacked>,
    /// What they take when they are unpacked, together.
    unpacked: u64,
    /// The values of the longest list of columns of lists, of those that were counted.
    longest: HashMap<Leaf, u64>,
    /// What was found of columns of texts.
    texts: HashMap<Leaf, Texts>,
}

/// A row group, and a column of it that has values. Not where it begins: another may say that it begins there and is empty.
type Leaf = (usize, usize);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("source", &self.source).finish_non_exhaustive()
    }
}

/// The footer, and its offset.
fn footer(source: &SourceRef, limits: &Limits) -> Result<(u64, Vec<u8>)> {
    let room = source.len().checked_sub(12).ok_or_else(|| {
        Error::corrupt("truncated", "the file is too short for Parquet").found(source.len())
    })?;
    let mut tail = [0; 8];
    source.read_at(source.len() - 8, &mut tail)?;
    let (len, magic) = (u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]])), &tail[4..]);
    match magic {
        super::MAGIC => {}
        super::ENCRYPTED => {
            return Err(Error::unsupported("encrypted", "this file is encrypted")
                .hint("write the table again without encryption, with the library that has the keys"));
        }
        _ => {
            return Err(Error::corrupt("parquet-magic", "the file does not end as a Parquet file does")
                .at(source.len() - 4)
                .hint("the file may be cut short: compare its length with the original's"));
        }
    }
    Limits::check("bytes of footer", "header_bytes", len, limits.header_bytes)?;
    if len > room {
        return Err(Error::corrupt("truncated", "the footer is longer than the file").found(len));
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
        // Columns that lie over each other would be held, and looked at, as often as there are columns.
        file.chunks()?;
        Ok(file)
    }

    /// Some columns of a row group, from row `skip` of it on, in batches of up to `at_once` rows.
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

    /// Fails where so many bytes are more than may be held at once.
    fn check_memory(&self, bytes: u64) -> Result<()> {
        check_at_once(&self.budget, bytes / COPIES).map_err(|e| e.in_file(self.source.0.label()))
    }

    /// Looks at what the pages of some columns of a row group claim, of which `at_once` rows are to be read at a time, and
    /// become so many `copies` of what is read.
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
            held = held.saturating_add(unpacked.held).saturating_add(READER);
            all.push(unpacked);
        }
        // Only now may a page be unpacked to be looked at.
        self.check_memory(held.saturating_mul(copies))?;
        let mut listed = 0u64;
        for (&(leaf, ..), unpacked) in chunks.iter().zip(&all) {
            let column = schema.column(leaf);
            if column.max_rep_level() > 0 {
                let mut values = unpacked.values;
                if values.saturating_mul(VALUE) > self.budget.memory_left() {
                    values = values.min(self.longest_once((group, leaf))?.saturating_mul(at_once));
                }
                // A list of fixed length is as long where it is missing, too, which takes no bytes in the file.
                let root = self.metadata.schema().fields().get(schema.get_column_root_idx(leaf));
                if let Some(DataType::FixedSizeList(_, width)) = root.map(|field| field.data_type()) {
                    let width = u64::try_from(*width).unwrap_or(0);
                    values = values.max(width.saturating_mul(at_once));
                }
                listed = listed.saturating_add(values.saturating_mul(VALUE));
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

    /// Looks at what the pages of a column of a row group claim, once.
    fn check_column(&self, leaf: Leaf, range: Range<u64>, compression: Compression) -> Result<Unpacked> {
        let source = &self.source.0;
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unpacked) = checked.columns.get(&leaf) {
            return Ok(*unpacked);
        }
        if matches!(compression, Compression::BROTLI(_) | Compression::LZO) {
            return Err(Error::unsupported("codec", "columns that are packed so are not read")
                .in_file(source.label())
                .expected("none, snappy, gzip, zstd or lz4")
                .found(format_args!("{compression:?}"))
                .hint("write the table again with another compression, such as zstd"));
        }
        let metadata = self.metadata.metadata();
        let column = metadata.file_metadata().schema_descr().column(leaf.1);
        let unpacked =
            super::pages::check(source, range.clone(), compression, Width::of(&column), &self.limits)
                .map_err(|e| e.in_file(source.label()))?;
        // Where nothing is repeated each row is one value, missing or not: a run of a few bytes in each of many row groups
        // would be gone through for rows that there are not.
        let rows = u64::try_from(metadata.row_group(leaf.0).num_rows()).unwrap_or(0);
        if column.max_rep_level() == 0 && unpacked.values > rows {
            return Err(Error::corrupt("page-values", "the pages of a column have more values than rows")
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

    /// The values of the longest list of a column; they are counted once.
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

    /// What the texts of a column take, of which this is what the heads of its pages say; they are looked at once.
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

    /// How many names of a row group are decoded together.
    fn names_at_once(&self, group: usize, place: usize) -> Result<u64> {
        let (longest, held) = self.longest_text(group, place)?;
        Limits::check("bytes of the name of a row", "name_bytes", longest, self.limits.name_bytes)
            .map_err(|e| e.in_file(self.source.0.label()))?;
        Ok((NAME_BYTES / held.max(1)).clamp(1, NAMES))
    }

    /// Looks at a column of bytes, the column of this number among them.
    #[cfg(feature = "scan")]
    fn look(&self, number: usize, binaries: &mut Binaries<'_>, scan: &mut Scan) -> Result<()> {
        let Some(&place) = binaries.columns.get(number) else { return Ok(()) };
        for group in 0..self.metadata.metadata().num_row_groups() {
            let (longest, held) = self.longest_text(group, place)?;
            self.check_memory(longest.saturating_mul(COPIES))?;
            let at_once = (NAME_BYTES / held.max(1)).clamp(1, NAMES);
            let mut rows = self.rows(group, vec![place], 0, to_usize(at_once)?)?;
            while let Some(batch) = self.next(&mut rows, group, &[place])? {
                binaries.look(number, &batch, scan)?;
            }
        }
        Ok(())
    }

    /// Bytes of the longest text of a column of a row group, or more where that is little; and what it holds when it
    /// is decoded.
    fn longest_text(&self, group: usize, place: usize) -> Result<(u64, u64)> {
        let pages = self.check_pages(group, &[place], 1, COPIES)?;
        let Some(unpacked) = pages.first() else { return Ok((0, 0)) };
        let field = self.metadata.schema().fields().get(place).map(|field| field.data_type());
        // What is not much together is not much at once.
        let longest = match field {
            Some(DataType::FixedSizeBinary(width)) => u64::try_from(*width).unwrap_or(0),
            _ if unpacked.deltas
                || unpacked.plain > NAME_BYTES
                || unpacked.dictionary > NAME_BYTES / NAMES =>
            {
                let schema = self.metadata.metadata().file_metadata().schema_descr();
                let leaf = (0..schema.num_columns()).find(|&leaf| schema.get_column_root_idx(leaf) == place);
                self.texts_once((group, leaf.unwrap_or(place)), unpacked)?.longest
            }
            _ => return Ok((unpacked.dictionary, unpacked.dictionary)),
        };
        // Views hold the page that they are views of.
        let is_view = matches!(field, Some(DataType::Utf8View | DataType::BinaryView));
        Ok((longest, if is_view { longest.max(unpacked.longest) } else { longest }))
    }

    /// The next rows of these columns of a row group.
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

/// Rows that are decoded together.
#[derive(Debug, Clone, Copy)]
struct Location {
    group: usize,
    skip: u64,
    take: u64,
}

/// Decodes rows from front to back; going back begins anew.
struct Groups {
    file: Arc<File>,
    layout: Layout,
    width: u64,
    at_once: u64,
    places: Vec<Location>,
    /// The reader that gives the block of that number next.
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
        // A batch may be shorter than was asked for.
        while rows < place.take {
            let batch = self.file.next(&mut reader, place.group, &columns)?;
            let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) else { break };
            rows += batch.num_rows() as u64;
            self.layout
                .rows(&batch, self.width, &mut out)
                .map_err(|e| e.in_file(self.file.source.0.label()))?;
        }
        if rows != place.take {
            return Err(Error::corrupt("row-count", "a row group has not as many rows as the footer says")
                .in_file(self.file.source.0.label())
                .expected(place.skip.saturating_add(place.take))
                .found(place.skip.saturating_add(rows)));
        }
        // It holds pages of all columns; the next group has one of its own.
        let goes_on = self.places.get(block + 1).is_some_and(|next| next.group == place.group);
        *open = goes_on.then_some((block + 1, reader));
        Ok(out)
    }
}

/// The names in a column of all row groups.
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
    /// Appends all names; `look` sees the list after each batch, and says how many there were so far.
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
                // What the list holds no more counts all the same.
                spent = spent.saturating_add(bytes.saturating_sub(list.bytes()));
                if count > self.rows {
                    break 'groups;
                }
            }
        }
        check_count(self, count, self.rows)
    }
}
