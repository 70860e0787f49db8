//! What is intact of a damaged file.
//!
//! Nothing in the form proves the bytes of a tensor, so its place must be beyond doubt: it has an entry
//! of its own that is whole, the entry's length is that of its shape, no other entry claims the same
//! bytes, the file reaches to its end, and where the data begin is proved. That is so where the header
//! ends where its length says; or where the tensors, beginning behind the JSON and its blanks, fill the
//! file to its last byte.

use super::header::{self, Row};
use super::read::{self, Contents};
use super::{KIND, METADATA, PREFIX};
use serde_json::value::RawValue;
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Encoding;
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{SourceRef, read_vec};

/// How often reading goes on behind JSON that is broken.
const MOST_BREAKS: usize = 64;
/// Blanks between the header and the data, at most: writers fill up to a multiple of a small number.
const MOST_BLANKS: u64 = 4096;

/// What is intact of one file, and what is lost.
pub(super) struct Saved {
    /// The tensors that are intact.
    pub(super) contents: Contents,
    /// The others: their names, and why.
    pub(super) lost: Vec<(String, Error)>,
    /// How many there were, where the whole header could be read.
    pub(super) expected: Option<u64>,
}

/// The index of what is intact.
///
/// # Errors
/// As [`contents`].
pub(super) fn open(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let Saved { contents, lost, expected } = contents(source, options)?;
    let Contents { tensors, names, metadata, notes } = contents;
    let mut checkpoint = Checkpoint::new("safetensors", KIND, source.label());
    checkpoint.tensors = tensors;
    checkpoint.notes = notes;
    checkpoint.damage_mut(error).expected = expected;
    for (name, error) in &lost {
        checkpoint.lose(name, error);
    }
    let metadata = metadata.into_iter().map(|(key, text)| (key, Value::Text(text)));
    checkpoint.restore_carried(&names, metadata);
    Ok(checkpoint)
}

/// What is intact of `source`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `truncated`, where there is not even a header; [`weighbridge_core::Kind::Limit`].
pub(super) fn contents(source: &SourceRef, options: &OpenOptions) -> Result<Saved> {
    let limits = &options.limits;
    let Some(there) = source.len().checked_sub(PREFIX + 2) else {
        return Err(Error::corrupt("truncated", "the file ends before its header").at(0));
    };
    let there = there + 2;
    let mut bytes = [0; 8];
    source.read_at(0, &mut bytes)?;
    let length = u64::from_le_bytes(bytes);
    let most = there.min(limits.header_bytes);
    let mut header = Broken::default();
    let mut data = None;
    if length <= most {
        header = Broken::read(&read_vec(&**source, PREFIX, length)?, limits)?;
        data = header.ends_well.then_some(PREFIX + length);
    }
    if data.is_none() {
        // The length may be what is damaged: then the JSON says where it ends itself.
        let whole = Broken::read(&read_vec(&**source, PREFIX, most)?, limits)?;
        data = match whole.end {
            Some(end) => fills(&whole, source, PREFIX + end as u64)?,
            None => None,
        };
        if data.is_some() || length > most {
            header = whole;
        }
    }
    Ok(sorted(header, source, data))
}

/// Where the data begin if the tensors fill the file to its end, without a hole, behind nothing but
/// blanks from `end` on.
fn fills(header: &Broken, source: &SourceRef, end: u64) -> Result<Option<u64>> {
    let mut rows: Vec<&Row> = header.rows.iter().collect();
    rows.sort_by_key(|row| (row.begin, row.end));
    let covered = rows
        .iter()
        .try_fold(0, |at, row| (row.begin == at && read::check_length(row).is_ok()).then_some(row.end));
    let data = covered.filter(|&covered| covered > 0 && header.lost.is_empty());
    let data = data.and_then(|covered| source.len().checked_sub(covered));
    let Some(blanks) = data.and_then(|data| data.checked_sub(end)).filter(|&blanks| blanks <= MOST_BLANKS)
    else {
        return Ok(None);
    };
    let only_blanks = read_vec(&**source, end, blanks)?.iter().all(|&b| b == b' ');
    Ok(data.filter(|_| only_blanks))
}

/// The tensors that are intact, in the order of the data, which begin at `data`, and the others.
fn sorted(header: Broken, source: &SourceRef, data: Option<u64>) -> Saved {
    let Broken { mut rows, mut lost, metadata, mut notes, breaks, end, .. } = header;
    let expected = (breaks == 0 && end.is_some()).then_some((rows.len() + lost.len()) as u64);
    rows.sort_by_key(|row| (row.begin, row.end));
    let shared = shared(&rows);
    let mut contents = Contents { tensors: Vec::new(), names: Vec::new(), metadata, notes: Vec::new() };
    for (row, shared) in rows.into_iter().zip(shared) {
        match place(&row, source, data, shared) {
            Ok(entry) => {
                contents.tensors.push(entry);
                contents.names.push(row.name);
            }
            Err(error) => lost.push((row.name, error)),
        }
    }
    if breaks > 0 {
        let places = counted(breaks, "place", "places");
        let text = format!("the JSON of the header is broken at {places}; entries may be missing");
        notes.push(Note::omission("header-broken", text));
    }
    contents.notes = notes;
    Saved { contents, lost, expected }
}

/// The tensor of a row, if all that there is to be held against it holds.
fn place(row: &Row, source: &SourceRef, data: Option<u64>, shared: bool) -> Result<TensorEntry> {
    let Some(data) = data else {
        return Err(Error::corrupt(
            "data-misplaced",
            "where the data of the tensors begin is not certain: the header is cut or broken",
        )
        .at(0));
    };
    let at = data.saturating_add(row.begin);
    read::check_length(row).map_err(|e| e.at(at))?;
    if shared {
        return Err(
            Error::corrupt("overlap", "two tensors claim the same bytes, and neither is believed").at(at)
        );
    }
    if row.end > source.len().saturating_sub(data) {
        return Err(Error::corrupt("truncated", "the file ends within the data of this tensor")
            .at(at)
            .expected(format_args!("{} bytes of data up to here", row.end))
            .found(format_args!("{} bytes", source.len().saturating_sub(data))));
    }
    let path = TensorPath::from_dotted(&row.name);
    TensorEntry::dense(path, row.dtype, row.shape.clone(), source, at, Encoding::ROW)
}

/// For each row, in the order of their beginnings: true where another one claims some of its bytes.
fn shared(rows: &[Row]) -> Vec<bool> {
    let mut shared = vec![false; rows.len()];
    // The row that reaches furthest of those before.
    let mut furthest: Option<usize> = None;
    for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.end > row.begin) {
        let overlapped = furthest.filter(|&before| rows[before].end > row.begin);
        if let Some(before) = overlapped {
            shared[before] = true;
            shared[place] = true;
        }
        if furthest.is_none_or(|before| rows[before].end < row.end) {
            furthest = Some(place);
        }
    }
    shared
}

/// What can be read of a header.
#[derive(Default)]
struct Broken {
    rows: Vec<Row>,
    lost: Vec<(String, Error)>,
    metadata: Vec<(String, String)>,
    notes: Vec<Note>,
    /// Places at which the JSON is broken.
    breaks: usize,
    /// Bytes up to the brace that ends it; `None` where it is not there.
    end: Option<usize>,
    /// True where it ends where its bytes do, but for blanks.
    ends_well: bool,
}

impl Broken {
    /// Reads `bytes`, entry by entry, and goes on behind what is broken.
    fn read(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut header = Self::default();
        let mut entries: Vec<(String, usize, Result<Row>)> = Vec::new();
        let text = readable(bytes);
        let mut at = 1;
        if !text.starts_with('{') {
            return Ok(header);
        }
        loop {
            at += text[at..].len() - text[at..].trim_start_matches([' ', '\t', '\n', '\r', ',']).len();
            if text[at..].starts_with('}') {
                header.end = Some(at + 1);
                break;
            }
            if text[at..].is_empty() {
                header.breaks += 1;
                break;
            }
            let Some((name, json, next)) = pair(&text, at) else {
                header.breaks += 1;
                // The next entry, where one begins behind the end of another.
                let Some(hop) = text[at..].find("},\"").filter(|_| header.breaks < MOST_BREAKS) else {
                    break;
                };
                // What is here is no such end, so that this goes forwards.
                at += hop + 1;
                continue;
            };
            if name == METADATA {
                match header::metadata(json, limits) {
                    Ok(metadata) => header.metadata = metadata,
                    Err(error) => {
                        let text = format!("the metadata are damaged: {}", error.message());
                        header.notes.push(Note::omission("metadata-damaged", text));
                    }
                }
            } else {
                Limits::check("tensors", "tensors", entries.len() as u64 + 1, limits.tensors)?;
                let place = PREFIX + at as u64;
                entries.push((name.clone(), at, header::entry(name, json, limits).map_err(|e| e.at(place))));
            }
            at = next;
        }
        header.ends_well = match header.end {
            Some(end) => text[end..].bytes().all(|b| b == b' '),
            None => header.breaks > 0 && text.trim_end_matches(' ').ends_with("}}"),
        };
        header.settle(entries);
        Ok(header)
    }

    /// Of a name that stands twice neither entry is believed.
    fn settle(&mut self, entries: Vec<(String, usize, Result<Row>)>) {
        let mut count: HashMap<String, usize> = HashMap::with_capacity(entries.len());
        for (name, ..) in &entries {
            *count.entry(name.clone()).or_default() += 1;
        }
        for (name, at, row) in entries {
            let twice = count.get(&name).is_some_and(|&count| count > 1);
            match row {
                Ok(row) if !twice => self.rows.push(row),
                Ok(_) => {
                    let error = Error::corrupt("duplicate-key", "the name stands twice in the header");
                    self.lost.push((name, error.at(PREFIX + at as u64)));
                }
                Err(error) => self.lost.push((name, error)),
            }
        }
    }
}

/// The pair that begins at `at`: its name, the text of its value, and the place behind it.
fn pair(text: &str, at: usize) -> Option<(String, &str, usize)> {
    let mut keys = serde_json::Deserializer::from_str(text.get(at..)?).into_iter::<String>();
    let name = keys.next()?.ok()?;
    let behind = at + keys.byte_offset();
    let rest = text.get(behind..)?;
    let value = rest.trim_start_matches([' ', '\t', '\n', '\r']).strip_prefix(':')?;
    let value_at = behind + (rest.len() - value.len());
    let mut values = serde_json::Deserializer::from_str(value).into_iter::<&RawValue>();
    let json = values.next()?.ok()?;
    Some((name, json.get(), value_at + values.byte_offset()))
}

/// The bytes as text of the same length. What is not UTF-8 becomes a control character, which JSON
/// does not allow, so that what stands there is seen to be broken.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1}'));
    }
    text
}
