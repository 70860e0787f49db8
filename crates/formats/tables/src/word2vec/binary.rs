//! Binary form: names of any length between vectors of one length.

use super::read::Header;
use crate::table::lines::text;
use crate::table::text::{FirstField, TextTable};
use crate::table::{DecodedSource, Decoder};
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{
    Attributes, Lost, MemoryRowNames, RowNameList, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{Encode, Output};
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::{Cursor, SourceRef, read_vec, to_usize};

/// Target number of bytes read together.
const BLOCK: u64 = 1 << 20;

/// Reads the names, skipping the vectors, and returns the table.
pub(super) fn table(source: &SourceRef, header: Header, limits: &Limits) -> Result<TensorEntry> {
    let vector = header.columns.checked_mul(4);
    // A name of one byte and a blank precede each vector.
    let least = vector.and_then(|v| v.checked_add(2)?.checked_mul(header.rows));
    let room = source.len().saturating_sub(header.len as u64);
    let (Some(vector), Some(_)) = (vector, least.filter(|&least| least <= room)) else {
        return Err(Error::corrupt("truncated", "the file is shorter than its first line declares")
            .at(0)
            .expected(format_args!("{} rows of {} f32", header.rows, header.columns))
            .found(format_args!("{room} bytes")));
    };
    let mut walk = Walk::new(source, header, vector);
    for row in 0..header.rows {
        walk.row(row, limits)?;
    }
    let Walk { mut cursor, names, places, .. } = walk;
    // One line feed may end the file.
    let rest = cursor.bytes(cursor.remaining().min(2), "the end of the file")?;
    if !matches!(rest.as_slice(), [] | [b'\n']) {
        return Err(Error::corrupt("trailing-bytes", "bytes follow the last vector").at(cursor.position()));
    }
    entry(source, names, places, header.columns, vector, limits)
}

/// Returns the rows of a truncated file as a table marked as salvaged.
///
/// # Errors
/// The fault in the first row.
pub(super) fn whole_rows(source: &SourceRef, header: Header, limits: &Limits) -> Result<(TensorEntry, Lost)> {
    let vector = header.columns.saturating_mul(4);
    let mut walk = Walk::new(source, header, vector);
    let mut broken = None;
    for row in 0..header.rows {
        let done = (walk.names.len(), walk.places.len());
        if let Err(error) = walk.row(row, limits) {
            // After an invalid name, an earlier name may be damaged and everything behind it displaced.
            if error.code() != ErrorCode::Truncated || !walk.names.iter().all(is_spoken) {
                return Err(error);
            }
            broken = Some((error, done.1));
            break;
        }
    }
    let Walk { names: all, mut places, .. } = walk;
    let (error, rows) = broken
        .unwrap_or_else(|| (Error::corrupt("trailing-bytes", "bytes follow the last vector"), places.len()));
    places.truncate(rows);
    if places.is_empty() {
        return Err(error);
    }
    let mut names = RowNameList::new();
    all.iter().take(rows).for_each(|name| names.push(name));
    let mut entry = entry(source, names, places, header.columns, vector, limits)?;
    let which = Value::Text(format!("0 to {rows} of {}", header.rows));
    entry.attributes.insert(Attributes::SALVAGED_ROWS.to_owned(), which);
    Ok((entry, Lost::new(format_args!("(rows from {rows} on)"), &error)))
}

fn is_spoken(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// Walk over names and vectors.
struct Walk {
    cursor: Cursor,
    names: RowNameList,
    /// Offsets of the vectors: eight bytes for each, fewer than its bytes in the file.
    places: Vec<u64>,
    vector: u64,
    name: Vec<u8>,
}

impl Walk {
    fn new(source: &SourceRef, header: Header, vector: u64) -> Self {
        let cursor = Cursor::new(source.clone(), header.len as u64);
        Self { cursor, names: RowNameList::new(), places: Vec::new(), vector, name: Vec::new() }
    }

    fn row(&mut self, row: u64, limits: &Limits) -> Result<()> {
        let Self { cursor, name, .. } = self;
        name.clear();
        let at = cursor.position();
        loop {
            let [byte] = cursor.array::<1>("the row name")?;
            match byte {
                b' ' => break,
                // The original program writes a line feed behind a vector.
                b'\n' if name.is_empty() => {}
                byte => name.push(byte),
            }
            Limits::check("bytes in a name", "name_bytes", name.len() as u64, limits.name_bytes)?;
        }
        let place = cursor.position();
        cursor.skip(self.vector, "a vector")?;
        self.names.push(text(name).map_err(|e| e.at(at).hint(format_args!("row {row}")))?);
        self.places.push(place);
        Ok(())
    }
}

/// Table of vectors at these offsets.
fn entry(
    source: &SourceRef,
    names: RowNameList,
    places: Vec<u64>,
    columns: u64,
    vector: u64,
    limits: &Limits,
) -> Result<TensorEntry> {
    let rows = places.len() as u64;
    let at_once = to_usize((BLOCK / vector).max(1))?;
    let count = places.len().div_ceil(at_once);
    let starts = (0..=count).map(|block| (block * at_once).min(places.len()) as u64 * vector).collect();
    let decoder = Vectors { source: source.clone(), places, vector, at_once };
    let decoded = DecodedSource::shared(source.clone(), starts, Box::new(decoder), &limits.blocks);
    let shape = Shape::new([rows, columns]);
    let mut entry = TensorEntry::dense(TensorPath::value(), DType::F32, shape, &decoded, 0, Encoding::ROW)?;
    entry.row_names = Some(MemoryRowNames::shared(source.label(), names));
    Ok(entry)
}

#[derive(Debug)]
struct Vectors {
    source: SourceRef,
    places: Vec<u64>,
    /// Length of a vector in bytes.
    vector: u64,
    at_once: usize,
}

impl Decoder for Vectors {
    fn decode(&self, block: usize) -> Result<Vec<u8>> {
        let from = block * self.at_once;
        let places = self.places.get(from..(from + self.at_once).min(self.places.len())).unwrap_or_default();
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let vector = to_usize(self.vector)?;
        let bytes = read_vec(&*self.source, first, last - first + self.vector)?;
        let mut out = Vec::with_capacity(vector * places.len());
        for &place in places {
            let at = to_usize(place - first)?;
            out.extend_from_slice(&bytes[at..at + vector]);
        }
        Ok(out)
    }
}

/// Table written as names and vectors.
#[derive(Debug)]
pub(super) struct BinaryTable(pub TextTable);

impl Encode for BinaryTable {
    fn describe(&self) -> String {
        format!("{} as names and vectors", self.0.table.describe())
    }
    fn estimate(&self) -> u64 {
        self.0.table.row_bytes().saturating_add(10).saturating_mul(self.0.table.rows)
    }
    fn tensors(&self) -> Vec<&TensorEntry> {
        self.0.tensors()
    }
    fn other_sources(&self) -> Vec<SourceRef> {
        self.0.other_sources()
    }
    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let table = &self.0.table;
        let row_names = if self.0.names == FirstField::Name { table.names()? } else { None };
        out.write(format!("{} {}\n", table.rows, table.columns).as_bytes())?;
        let row_bytes = to_usize(table.row_bytes())?;
        let at_once = table.rows_at_once(table.row_bytes().saturating_mul(4).saturating_add(64), out);
        out.blocks(table.rows.div_ceil(at_once), &|block, elements, target| {
            let rows = block * at_once..table.rows.min((block + 1) * at_once);
            let mut bytes = Vec::new();
            table.read(&rows, elements, &mut bytes)?;
            for (row, vector) in rows.zip(bytes.chunks_exact(row_bytes)) {
                match &row_names {
                    Some(row_names) => {
                        let name = row_names.get(to_usize(row)?).unwrap_or_default();
                        target.extend_from_slice(self.0.check_name(row, name)?.as_bytes());
                    }
                    None => target.extend_from_slice(row.to_string().as_bytes()),
                }
                target.push(b' ');
                target.extend_from_slice(vector);
            }
            Ok(())
        })
    }
}
