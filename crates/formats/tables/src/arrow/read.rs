//! Builds the index from the footer and the batch headers.

mod decode;
mod outline;
mod records;
mod strict;

pub(super) use outline::outline;
pub(crate) use records::ArrowSections;
pub(super) use strict::check;

use super::MAGIC;
use super::stream::{self, Messages};
#[cfg(feature = "scan")]
use crate::table::binaries::Binaries;
use crate::table::columns::{Layout, Vector};
#[cfg(feature = "scan")]
use crate::table::pickled;
use crate::table::pipe::{RawPair, guarded, restore};
use crate::table::{DecodedSource, check_at_once, flat};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use decode::{BatchNames, Batches};
use std::sync::{Arc, Mutex};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Damage, Extent, Pieces, Role, RowNamesRef, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Region, Shape};
use weighbridge_format::OpenOptions;
#[cfg(feature = "scan")]
use weighbridge_format::Scan;
use weighbridge_io::source::{SourceRef, check_range, read_vec};

/// Largest ratio of decoded to buffered bytes of an element: booleans are bits in the buffer.
const MAX_WIDENING: u64 = 8;

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::new("arrow", "table", source.label());
    let file = File::read(source, &options.limits)?;
    let layout = Layout::of(&file.schema, &mut checkpoint.notes)?;
    file.check_overlap()?;
    let heads = file.heads(&layout, |_| false)?;
    index(checkpoint, file, &layout, &heads)
}

/// Returns the batches before the first damaged or truncated one: located by the footer if there is one,
/// otherwise by reading the messages from the front.
///
/// # Errors
/// Fails if the schema cannot be read or no batch is intact.
pub(super) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::new("arrow", "table", source.label());
    let file = File::read(source, &options.limits).ok().filter(|file| file.check_overlap().is_ok());
    let by_footer = file.as_ref().map(|file| file.blocks.len());
    let mut file = match file {
        Some(file) => file,
        None => {
            let Messages { schema, version, blocks, pairs } = stream::messages(source, &options.limits)?;
            // Without a footer, and dictionaries are not read.
            let (dictionaries, footer) = (Vec::new(), source.len());
            let (limits, decoded) = (options.limits.clone(), unchecked_views(&schema));
            File {
                source: source.clone(),
                schema,
                pairs,
                decoded,
                version,
                blocks,
                dictionaries,
                dictionary_ids: Vec::new(),
                footer,
                budget: limits.budget_for(source.len()),
                limits,
            }
        }
    };
    let layout = Layout::of(&file.schema, &mut checkpoint.notes)?;
    let heads = file.heads(&layout, Damage::is)?;
    file.blocks.truncate(heads.len());
    let rows = heads.iter().fold(0u64, |sum, head| sum.saturating_add(head.rows));
    if rows == 0 {
        return Err(Error::corrupt("no-batch", "no intact record batch"));
    }
    let mut checkpoint = index(checkpoint, file, &layout, &heads)?;
    let of = by_footer.map_or_else(String::new, |all| format!(" of {all}"));
    let which = format!("0 to {rows}: {}{of} batches", heads.len());
    for table in &mut checkpoint.tensors {
        table.attributes.insert(Attributes::SALVAGED_ROWS.to_owned(), Value::Text(which.clone()));
    }
    checkpoint.lose(format_args!("(rows from {rows} on)"), error);
    Ok(checkpoint)
}

/// Index of a table of these batches.
fn index(mut checkpoint: Checkpoint, mut file: File, layout: &Layout, heads: &[Head]) -> Result<Checkpoint> {
    let pairs = std::mem::take(&mut file.pairs);
    let file = Arc::new(file);
    let mut rows = 0u64;
    for head in heads {
        rows = rows
            .checked_add(head.rows)
            .ok_or_else(|| Error::corrupt("row-count", "the row count overflows 64 bits"))?;
    }
    let width = match &layout.vector {
        Vector::Fixed(_, width) => *width,
        Vector::Plain(places) => places.len() as u64,
        Vector::List(_) => file.first_width(layout, heads)?,
        Vector::None => 0,
    };
    let mut entry = table(&file, layout, heads, rows, width)?;
    entry.guessed = matches!(layout.vector, Vector::List(_));
    entry.attributes = layout.attributes(&file.schema);
    if let Some(place) = layout.names {
        entry.row_names =
            Some(Arc::new(BatchNames { file: file.clone(), place, rows, kept: Mutex::default() })
                as RowNamesRef);
    }
    checkpoint.tensors.push(entry);
    restore(&mut checkpoint, pairs);
    Ok(checkpoint)
}

/// Scans column types that are pickles, and pickles inside binary and text columns.
#[cfg(feature = "scan")]
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    match File::read(source, &options.limits) {
        Ok(file) => {
            pickled::judge(&file.schema, &mut scan);
            let mut binaries =
                Binaries::of(&file.schema, true, source, (&options.limits, &file.budget), &mut scan);
            if let Err(error) = file.look(&mut binaries, &mut scan) {
                binaries.refused(None, error, &mut scan)?;
            }
        }
        Err(error) => scan.push_error(error)?,
    }
    Ok(scan)
}

/// Builds the tensor: one byte range of the file per batch where possible.
fn table(file: &Arc<File>, layout: &Layout, heads: &[Head], rows: u64, width: u64) -> Result<TensorEntry> {
    let shape = Shape::new([rows, width]);
    let bytes = |rows: u64| {
        let size = layout.dtype.size().unwrap_or(1) as u64;
        rows.checked_mul(width)
            .and_then(|n| n.checked_mul(size))
            .ok_or_else(|| Error::corrupt("shape-overflow", "the byte size of the table overflows 64 bits"))
    };
    bytes(rows)?;
    let plain = heads.iter().all(|head| head.elements.is_some());
    if !plain || width == 0 {
        let mut starts = vec![0];
        let mut before = 0;
        for head in heads {
            let len = bytes(head.rows)?;
            if len > head.unpacked.saturating_mul(MAX_WIDENING) {
                return Err(Error::corrupt("short-column", "a record batch has fewer elements than rows")
                    .expected(format_args!("{len} bytes"))
                    .found(format_args!("{} in its buffers", head.unpacked)));
            }
            before += head.rows;
            starts.push(bytes(before)?);
        }
        let decoder = Batches { file: file.clone(), layout: layout.clone(), width };
        let source =
            DecodedSource::shared(file.source.clone(), starts, Box::new(decoder), &file.limits.blocks);
        return TensorEntry::dense(TensorPath::value(), layout.dtype, shape, &source, 0, Encoding::ROW);
    }
    let mut extents = Pieces::new();
    let mut row = 0;
    for head in heads {
        let Some((offset, room)) = head.elements.filter(|_| head.rows > 0) else { continue };
        let len = bytes(head.rows)?;
        if len > room {
            return Err(Error::corrupt("short-column", "a record batch has fewer elements than rows")
                .at(offset)
                .expected(format_args!("{len} bytes"))
                .found(room));
        }
        let region = Region { start: vec![row, 0], shape: vec![head.rows, width] };
        let source = file.source.clone();
        let part = region.unless_whole(&shape);
        extents.push(Extent { source, offset, len, encoding: Encoding::ROW, part, check: None });
        row += head.rows;
    }
    Ok(TensorEntry {
        path: TensorPath::value(),
        role: Role::Parameter,
        stored: layout.dtype,
        cast: None,
        shape,
        extents,
        attributes: Attributes::new(),
        row_names: None,
        guessed: false,
    })
}

/// File with a parsed footer.
#[derive(Debug)]
struct File {
    source: SourceRef,
    schema: SchemaRef,
    /// Metadata pairs, until they move to the index.
    pairs: Vec<RawPair>,
    /// Schema used for decoding, see [`unchecked_views`].
    decoded: SchemaRef,
    version: MetadataVersion,
    blocks: Vec<Block>,
    limits: Limits,
    budget: Budget,
    dictionaries: Vec<Block>,
    /// Dictionary of each column, if it has one.
    dictionary_ids: Vec<Option<i64>>,
    /// Offset of the footer.
    footer: u64,
}

/// Contents of a batch header.
#[derive(Debug)]
struct Head {
    rows: u64,
    /// Offset and length of the elements in the file, where they are stored uncompressed.
    elements: Option<(u64, u64)>,
    /// Declared unpacked size of the element buffers, in bytes.
    unpacked: u64,
    /// Declared unpacked size of the element and name buffers together, in bytes.
    claimed: u64,
}

/// Copy of the schema with text views replaced by byte views: many views may share the same bytes,
/// and UTF-8 checks would visit those bytes once per view. Names are checked when they are taken.
fn unchecked_views(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::BinaryView)),
        DataType::Dictionary(key, value) if **value == DataType::Utf8View => {
            let views = DataType::Dictionary(key.clone(), Box::new(DataType::BinaryView));
            Arc::new(field.as_ref().clone().with_data_type(views))
        }
        _ => field.clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Converts a number that must not be negative.
fn unsigned(n: i64) -> Result<u64> {
    u64::try_from(n).map_err(|_| Error::corrupt("negative", "a length or offset is negative").found(n))
}

impl File {
    fn read(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let room = source.len().checked_sub(18).ok_or_else(|| {
            Error::corrupt("truncated", "the file is shorter than the smallest Arrow file")
                .found(source.len())
        })?;
        let tail = read_vec(&**source, source.len() - 10, 10)?;
        let (len, magic) = tail.split_at(4);
        if magic != MAGIC {
            return Err(Error::corrupt("arrow-magic", "the file does not end with the Arrow magic")
                .at(source.len() - 6)
                .hint("the download may be incomplete, or the file is an Arrow stream; save it in the file format"));
        }
        let len = u64::from(u32::from_le_bytes([len[0], len[1], len[2], len[3]]));
        Limits::check("bytes of footer", "header_bytes", len, limits.header_bytes)?;
        if len > room {
            let text = format!("the footer length ({len}) exceeds the file ({} bytes)", source.len());
            return Err(Error::corrupt("truncated", text).hint("the file is damaged; use another copy"));
        }
        let mut bytes = read_vec(&**source, source.len() - 10 - len, len)?;
        let odd = flat::readable_footer(&mut bytes);
        let footer = flat::footer(&bytes)?;
        let fb = footer.schema().ok_or_else(|| Error::corrupt("no-schema", "the footer has no schema"))?;
        if fb.endianness() != arrow_ipc::Endianness::Little {
            return Err(Error::unsupported("big-endian", "the file is big-endian"));
        }
        let mut schema: Schema = guarded("the schema", || arrow_ipc::convert::try_fb_to_schema(fb))?;
        // The footer is held in memory once.
        schema.metadata = Default::default();
        let blocks =
            footer.recordBatches().map(|blocks| blocks.iter().copied().collect()).unwrap_or_default();
        let dictionaries =
            footer.dictionaries().map(|blocks| blocks.iter().copied().collect()).unwrap_or_default();
        let fields = fb.fields().into_iter().flatten();
        let dictionary_ids = fields.map(|field| field.dictionary().map(|own| own.id())).collect();
        Ok(Self {
            source: source.clone(),
            pairs: flat::raw_pairs(fb, &bytes, &odd),
            decoded: unchecked_views(&schema),
            schema: Arc::new(schema),
            version: footer.version(),
            blocks,
            dictionaries,
            dictionary_ids,
            footer: source.len() - 10 - len,
            limits: limits.clone(),
            budget: limits.budget_for(source.len()),
        })
    }

    /// Position of a batch: offset, header length, total length.
    fn place(&self, block: &Block) -> Result<(u64, u64, u64)> {
        let offset = unsigned(block.offset())?;
        let head = unsigned(block.metaDataLength().into())?;
        let len = head.checked_add(unsigned(block.bodyLength())?);
        let len = len.ok_or_else(|| {
            Error::corrupt("past-the-end", "the length of a record batch overflows 64 bits")
        })?;
        check_range(&*self.source, offset, len)?;
        Ok((offset, head, len))
    }

    /// Fails if the batches and dictionaries together are larger than the file: a footer that lists one batch a
    /// million times would otherwise have it read as often.
    fn check_overlap(&self) -> Result<()> {
        let mut left = self.source.len();
        for block in self.blocks.iter().chain(&self.dictionaries) {
            let (offset, _, len) = self.place(block)?;
            left = left.checked_sub(len).filter(|_| len > 0).ok_or_else(|| {
                Error::corrupt("overlapping-batches", "the record batches together are larger than the file")
                    .at(offset)
            })?;
        }
        Ok(())
    }

    /// Batch headers in order, up to the first error for which `end` returns true.
    fn heads(&self, layout: &Layout, end: impl Fn(&Error) -> bool) -> Result<Vec<Head>> {
        let mut heads = Vec::new();
        let mut claimed = 0u64;
        for block in &self.blocks {
            match self.head(block, layout, claimed) {
                Ok(head) => {
                    claimed = claimed.saturating_add(head.claimed);
                    heads.push(head);
                }
                Err(error) if end(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(heads)
    }

    /// Header of a batch; `before` is the number of bytes claimed by the batches before it.
    fn head(&self, block: &Block, layout: &Layout, before: u64) -> Result<Head> {
        let (offset, len, all) = self.place(block)?;
        let bytes = read_vec(&*self.source, offset, len)?;
        let head = record_batch(&bytes).map_err(|e| e.at(offset))?;
        let rows = unsigned(head.length())?;
        let buffers = buffers_of(&head)?;
        let body = RangeOf { start: offset + len, len: all - len };
        let of_column = self.columns_of(&head, buffers.len());
        if head.compression().is_some() {
            let elements = self.claims(body, &buffers, &of_column, &layout.elements())?;
            let names = layout.names.map(|place| self.claims(body, &buffers, &of_column, &[place]));
            let names = names.transpose()?.unwrap_or_default();
            let claimed = elements.unpacked.saturating_add(names.unpacked);
            let all = before.saturating_add(claimed);
            let what = "the declared sizes of all buffers are";
            self.limits.check_expansion(what, all, self.source.len()).map_err(|e| e.at(body.start))?;
            for claims in [&elements, &names] {
                // Batches are read one at a time.
                check_at_once(&self.budget, claims.unpacked).map_err(|e| e.at(body.start))?;
            }
            return Ok(Head { rows, elements: None, unpacked: elements.unpacked, claimed });
        }
        // An unaligned buffer is copied.
        let read = buffers
            .iter()
            .enumerate()
            .filter(|(number, _)| of_column.get(*number).is_none_or(|column| layout.reads(*column)));
        let together = read.fold(0u64, |sum, (_, (_, len))| sum.saturating_add(*len));
        if together > body.len {
            return Err(Error::corrupt(
                "overlapping-buffers",
                "the buffers of a record batch are larger than its body",
            )
            .at(body.start)
            .expected(format_args!("at most {} bytes", body.len))
            .found(together));
        }
        let (unpacked, claimed) = (body.len, 0);
        let Vector::Fixed(place, width) = &layout.vector else {
            return Ok(Head { rows, elements: None, unpacked, claimed });
        };
        let mut counts =
            head.variadicBufferCounts().map(|v| v.iter().collect::<Vec<_>>()).unwrap_or_default().into_iter();
        let (mut node, mut buffer) = (0, 0);
        for field in self.schema.fields().iter().take(*place) {
            let Some((nodes, more)) = parts(field.data_type(), &mut counts) else {
                return Ok(Head { rows, elements: None, unpacked, claimed });
            };
            node += nodes;
            buffer += more;
        }
        let nodes = head.nodes();
        let of = |at: usize| nodes.filter(|nodes| at < nodes.len()).map(|nodes| *nodes.get(at));
        let (Some(list), Some(item)) = (of(node), of(node + 1)) else {
            return Err(Error::corrupt(
                "short-head",
                "the header of a record batch lacks the table's column",
            )
            .at(offset));
        };
        if list.null_count() != 0 || item.null_count() != 0 {
            return Err(Error::unsupported("nulls", "the column has missing values")
                .at(offset)
                .hint("fill the missing values and write the table again"));
        }
        let expected = rows.checked_mul(*width);
        if unsigned(list.length())? != rows || Some(unsigned(item.length())?) != expected {
            return Err(Error::corrupt("short-column", "the column has fewer elements than rows").at(offset));
        }
        // Buffers: validity of the list, validity of its elements, the elements.
        let Some(&(at, room)) = buffers.get(buffer + 2) else {
            return Err(Error::corrupt(
                "short-head",
                "the header of a record batch lacks the table's column",
            )
            .at(offset));
        };
        if at.checked_add(room).is_none_or(|end| end > body.len) {
            return Err(Error::corrupt("past-the-end", "a buffer extends beyond its record batch").at(offset));
        }
        Ok(Head { rows, elements: Some((body.start + at, room)), unpacked, claimed })
    }

    /// Column of each buffer of a batch, in order, as far as the types are recognized.
    fn columns_of(&self, head: &arrow_ipc::RecordBatch<'_>, buffers: usize) -> Vec<usize> {
        let counts = head.variadicBufferCounts().map(|v| v.iter().collect::<Vec<_>>());
        let mut counts = counts.unwrap_or_default().into_iter();
        let mut of_column = Vec::with_capacity(buffers);
        for (column, field) in self.schema.fields().iter().enumerate() {
            let Some((_, count)) = parts(field.data_type(), &mut counts) else { break };
            // Capped by the number of buffers, whatever the type claims.
            let room = buffers.saturating_sub(of_column.len());
            of_column.extend(std::iter::repeat_n(column, count.min(room)));
        }
        of_column
    }

    /// Declared sizes of the compressed buffers of these columns, and of buffers whose column is unknown.
    fn claims(
        &self,
        body: RangeOf,
        buffers: &[(u64, u64)],
        of_column: &[usize],
        columns: &[usize],
    ) -> Result<Claims> {
        let mut claims = Claims::default();
        for (number, &(at, len)) in buffers.iter().enumerate() {
            if at.checked_add(len).is_none_or(|end| end > body.len) {
                return Err(
                    Error::corrupt("past-the-end", "a buffer extends beyond its record batch").at(body.start)
                );
            }
            let other = of_column.get(number).is_some_and(|column| columns.binary_search(column).is_err());
            if len < 8 || other {
                continue;
            }
            let mut claim = [0; 8];
            self.source.read_at(body.start + at, &mut claim)?;
            // A negative length: stored uncompressed.
            let claim = i64::from_le_bytes(claim).try_into().unwrap_or(len);
            claims.unpacked = claims.unpacked.saturating_add(claim);
        }
        Ok(claims)
    }

    /// Decodes some columns of a batch.
    fn batch(&self, number: usize, columns: Vec<usize>) -> Result<RecordBatch> {
        let decoder = FileDecoder::new(self.decoded.clone(), self.version).with_projection(columns);
        self.decode(number, &decoder)
    }

    /// Decodes a batch.
    fn decode(&self, number: usize, decoder: &FileDecoder) -> Result<RecordBatch> {
        let block = self
            .blocks
            .get(number)
            .ok_or_else(|| Error::corrupt("no-batch", "the record batch does not exist"))?;
        let (offset, _, len) = self.place(block)?;
        let bytes = Buffer::from_vec(read_vec(&*self.source, offset, len)?);
        let batch = guarded("a batch", || decoder.read_record_batch(block, &bytes));
        batch
            .and_then(|b| b.ok_or_else(|| Error::corrupt("no-batch", "the record batch is empty")))
            .map_err(|e| e.at(offset))
    }

    /// Scans the binary and text columns, batch by batch.
    #[cfg(feature = "scan")]
    fn look(&self, binaries: &mut Binaries<'_>, scan: &mut Scan) -> Result<()> {
        if binaries.columns.is_empty() {
            return Ok(());
        }
        self.check_overlap()?;
        // Charged to the limits like the columns of a table.
        let columns = binaries.columns.clone();
        let layout = Layout { dtype: DType::U8, vector: Vector::Plain(columns.clone()), names: None };
        self.heads(&layout, |_| false)?;
        for number in 0..self.blocks.len() {
            binaries.look(0, &self.batch(number, columns.clone())?, scan)?;
        }
        Ok(())
    }

    fn first_width(&self, layout: &Layout, heads: &[Head]) -> Result<u64> {
        let Some(first) = heads.iter().position(|head| head.rows > 0) else { return Ok(0) };
        Ok(Layout::first_width(&self.batch(first, layout.elements())?).unwrap_or(0))
    }
}

/// Declared sizes of compressed buffers.
#[derive(Debug, Default)]
struct Claims {
    /// Unpacked size in bytes.
    unpacked: u64,
}

/// Body of a batch in the file.
#[derive(Clone, Copy)]
struct RangeOf {
    start: u64,
    len: u64,
}

/// Parses the header of a batch.
fn record_batch(bytes: &[u8]) -> Result<arrow_ipc::RecordBatch<'_>> {
    let what = "the header of a record batch";
    // A marker and a length precede the message; older files have the length alone.
    let skip = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let message = flat::message(what, bytes.get(skip..).unwrap_or_default())?;
    guarded(what, || {
        message.header_as_record_batch().ok_or_else(|| ArrowError::ParseError("no batch".to_owned()))
    })
}

/// Offsets and lengths of the buffers in the body of a batch.
fn buffers_of(head: &arrow_ipc::RecordBatch<'_>) -> Result<Vec<(u64, u64)>> {
    let place = |b: &arrow_ipc::Buffer| Ok((unsigned(b.offset())?, unsigned(b.length())?));
    head.buffers().map(|buffers| buffers.iter().map(place).collect()).unwrap_or_else(|| Ok(Vec::new()))
}

/// Number of nodes and buffers of a column of this type; `None` for an unsupported type.
fn parts(of: &DataType, views: &mut impl Iterator<Item = i64>) -> Option<(usize, usize)> {
    let (buffers, children) = own_parts(of, views)?;
    let mut sum = (1usize, buffers);
    for child in children {
        let more = parts(child, views)?;
        sum = (sum.0.checked_add(more.0)?, sum.1.checked_add(more.1)?);
    }
    Some(sum)
}

/// Number of buffers of a column of this type without its child columns, and its child columns.
fn own_parts<'a>(
    of: &'a DataType,
    views: &mut impl Iterator<Item = i64>,
) -> Option<(usize, Vec<&'a DataType>)> {
    Some(match of {
        DataType::Null => (0, Vec::new()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => (3, Vec::new()),
        DataType::Utf8View | DataType::BinaryView => {
            (usize::try_from(views.next()?).ok()?.checked_add(2)?, Vec::new())
        }
        DataType::FixedSizeList(item, _) => (1, vec![item.data_type()]),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            (2, vec![item.data_type()])
        }
        DataType::Struct(fields) => (1, fields.iter().map(|field| field.data_type()).collect()),
        DataType::Union(..)
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => {
            return None;
        }
        _ => (2, Vec::new()),
    })
}
