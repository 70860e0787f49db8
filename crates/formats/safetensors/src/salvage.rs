//! Salvage of the intact tensors of a damaged file.
//!
//! The format has no checksums, so the byte range of a tensor must be certain: its header entry
//! is intact, the length matches the shape, no other entry has the same
//! bytes, the range is within the file, and the offset of the data is certain. That offset is certain if the header
//! ends at its stated length, or if the tensors, beginning behind the JSON and its padding, fill the
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

/// Maximum number of damaged places in the JSON that are skipped.
const MAX_BREAKS: usize = 64;
/// Maximum padding between header and data: writers pad to a multiple of a small number.
const MAX_PADDING: u64 = 4096;

/// Intact and lost tensors of one file.
pub(super) struct Salvaged {
    /// Intact tensors.
    pub(super) contents: Contents,
    /// Names of the lost tensors, with the reasons.
    pub(super) lost: Vec<(String, Error)>,
    /// Original number of tensors, if the whole header is readable.
    pub(super) expected: Option<u64>,
}

/// Reads the index of the intact tensors.
///
/// # Errors
/// As [`contents`].
pub(super) fn open(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let Salvaged { contents, lost, expected } = contents(source, options)?;
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

/// Reads the intact tensors of `source`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `truncated`, where the header is missing; [`weighbridge_core::Kind::Limit`].
pub(super) fn contents(source: &SourceRef, options: &OpenOptions) -> Result<Salvaged> {
    let limits = &options.limits;
    let Some(there) = source.len().checked_sub(PREFIX + 2) else {
        return Err(Error::corrupt("truncated", "the file ends in front of its header").at(0));
    };
    let there = there + 2;
    let mut bytes = [0; 8];
    source.read_at(0, &mut bytes)?;
    let length = u64::from_le_bytes(bytes);
    let most = there.min(limits.header_bytes);
    let mut header = PartialHeader::default();
    let mut data = None;
    if length <= most {
        header = PartialHeader::read(&read_vec(&**source, PREFIX, length)?, limits)?;
        data = header.ends_well.then_some(PREFIX + length);
    }
    if data.is_none() {
        // The length may be damaged: the end of the JSON is then used instead.
        let whole = PartialHeader::read(&read_vec(&**source, PREFIX, most)?, limits)?;
        data = match whole.end {
            Some(end) => fills(&whole, source, PREFIX + end as u64)?,
            None => None,
        };
        if data.is_some() || length > most {
            header = whole;
        }
    }
    Ok(partition(header, source, data))
}

/// Returns the offset of the data if the tensors fill the file to its end without gaps, behind only
/// padding from `end` on.
fn fills(header: &PartialHeader, source: &SourceRef, end: u64) -> Result<Option<u64>> {
    let mut rows: Vec<&Row> = header.rows.iter().collect();
    rows.sort_by_key(|row| (row.begin, row.end));
    let covered = rows
        .iter()
        .try_fold(0, |at, row| (row.begin == at && read::check_length(row).is_ok()).then_some(row.end));
    let data = covered.filter(|&covered| covered > 0 && header.lost.is_empty());
    let data = data.and_then(|covered| source.len().checked_sub(covered));
    let Some(blanks) = data.and_then(|data| data.checked_sub(end)).filter(|&blanks| blanks <= MAX_PADDING)
    else {
        return Ok(None);
    };
    let only_blanks = read_vec(&**source, end, blanks)?.iter().all(|&b| b == b' ');
    Ok(data.filter(|_| only_blanks))
}

/// Separates intact tensors, in the order of the data, from lost ones. `data` is the offset of the data.
fn partition(header: PartialHeader, source: &SourceRef, data: Option<u64>) -> Salvaged {
    let PartialHeader { mut rows, mut lost, metadata, mut notes, breaks, end, .. } = header;
    let expected = (breaks == 0 && end.is_some()).then_some((rows.len() + lost.len()) as u64);
    rows.sort_by_key(|row| (row.begin, row.end));
    let shared = shared(&rows);
    let mut contents = Contents { tensors: Vec::new(), names: Vec::new(), metadata, notes: Vec::new() };
    for (row, shared) in rows.into_iter().zip(shared) {
        match locate(&row, source, data, shared) {
            Ok(entry) => {
                contents.tensors.push(entry);
                contents.names.push(row.name);
            }
            Err(error) => lost.push((row.name, error)),
        }
    }
    if breaks > 0 {
        let places = counted(breaks, "place", "places");
        let text = format!("the JSON of the header is damaged at {places}; entries may be missing");
        notes.push(Note::omission("header-broken", text));
    }
    contents.notes = notes;
    Salvaged { contents, lost, expected }
}

/// Returns the tensor of a header entry if its byte range is certain.
fn locate(row: &Row, source: &SourceRef, data: Option<u64>, shared: bool) -> Result<TensorEntry> {
    let Some(data) = data else {
        return Err(Error::corrupt(
            "data-misplaced",
            "the offset of the data is uncertain: the header is cut short or damaged",
        ));
    };
    let at = data.saturating_add(row.begin);
    read::check_length(row).map_err(|e| e.at(at))?;
    if shared {
        return Err(Error::corrupt("overlap", "tensor data overlaps; neither tensor is salvaged").at(at));
    }
    if row.end > source.len().saturating_sub(data) {
        return Err(Error::corrupt("truncated", "the data of the tensor exceeds the file")
            .at(at)
            .expected(format_args!("data up to offset {}", data.saturating_add(row.end)))
            .found(format_args!("end of the file at {}", source.len())));
    }
    let path = TensorPath::from_dotted(&row.name);
    TensorEntry::dense(path, row.dtype, row.shape.clone(), source, at, Encoding::ROW)
}

/// Marks the rows, sorted by begin offset, that overlap with another one.
fn shared(rows: &[Row]) -> Vec<bool> {
    let mut shared = vec![false; rows.len()];
    // The previous row with the largest end offset.
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

/// Readable part of a header.
#[derive(Default)]
struct PartialHeader {
    rows: Vec<Row>,
    lost: Vec<(String, Error)>,
    metadata: Vec<(String, String)>,
    notes: Vec<Note>,
    /// Number of damaged places in the JSON.
    breaks: usize,
    /// Length up to the closing brace; `None` where it is missing.
    end: Option<usize>,
    /// True where only padding follows the closing brace.
    ends_well: bool,
}

impl PartialHeader {
    /// Reads `bytes` entry by entry; skips damaged entries.
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
                // Continue behind the end of the next entry.
                let Some(hop) = text[at..].find("},\"").filter(|_| header.breaks < MAX_BREAKS) else {
                    break;
                };
                // At least one character is skipped, so the loop advances.
                at += hop + 1;
                continue;
            };
            if name == METADATA {
                match header::metadata(json, limits) {
                    Ok(metadata) => header.metadata = metadata,
                    Err(error) => {
                        let text = format!("metadata dropped, it is damaged: {}", error.message());
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
        header.add_entries(entries);
        Ok(header)
    }

    /// Adds the entries; all entries of a duplicate name are lost.
    fn add_entries(&mut self, entries: Vec<(String, usize, Result<Row>)>) {
        let mut count: HashMap<String, usize> = HashMap::with_capacity(entries.len());
        for (name, ..) in &entries {
            *count.entry(name.clone()).or_default() += 1;
        }
        for (name, at, row) in entries {
            let is_duplicate = count.get(&name).is_some_and(|&count| count > 1);
            match row {
                Ok(row) if !is_duplicate => self.rows.push(row),
                Ok(_) => {
                    let error = Error::corrupt("duplicate-key", "duplicate tensor name in the header");
                    self.lost.push((name, error.at(PREFIX + at as u64)));
                }
                Err(error) => self.lost.push((name, error)),
            }
        }
    }
}

/// Parses the pair at `at`: name, text of the value, and offset behind it.
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

/// Converts the bytes to text of the same length. Invalid UTF-8 becomes a control character, which JSON
/// does not allow, so that damage is detected.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1}'));
    }
    text
}
