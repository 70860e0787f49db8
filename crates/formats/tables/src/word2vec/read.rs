//! Builds the index from words and vectors.

use super::binary;
use crate::table::lines::{Lines, is_float, number};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, Damage, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_format::{HEAD, OpenOptions};
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum length of the first line in bytes: two numbers of up to 20 digits.
const FIRST_LINE: usize = 43;
/// Minimum number of visible numbers where the first row extends beyond the head of the file.
const MIN_NUMBERS: usize = 8;

/// Contents of the first line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub rows: u64,
    pub columns: u64,
    /// Offset of the first row.
    pub len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Binary,
}

/// Parses the first line: two numbers and nothing else.
pub(super) fn header(head: &[u8]) -> Option<Header> {
    let end = memchr::memchr(b'\n', head.get(..head.len().min(FIRST_LINE))?)?;
    let line = head[..end].strip_suffix(b"\r").unwrap_or(&head[..end]);
    let mut numbers = line.split(|&b| b == b' ').map(|field| {
        let digits = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(field).ok().filter(|_| digits)?.parse::<u64>().ok()
    });
    let (rows, columns) = (numbers.next()??, numbers.next()??);
    (numbers.next().is_none() && columns > 0).then_some(Header { rows, columns, len: end + 1 })
}

/// Form of a file with this head; `None` if it is not word2vec. The file is read further only if the first vector has
/// unusual values, such as infinity: then names and vectors must extend to the end of the file.
pub(super) fn form(head: &[u8], source: &SourceRef, limits: &Limits) -> Option<(Header, Kind)> {
    let (header, len) = (header(head)?, source.len());
    let body = &head[header.len..];
    if header.rows == 0 {
        return body.is_empty().then_some((header, Kind::Text));
    }
    let whole = head.len() as u64 == len;
    if is_text(body, header, whole) {
        return Some((header, Kind::Text));
    }
    // A name of one byte, a blank, the vector.
    let least = header.columns.checked_mul(4)?.checked_add(2)?.checked_mul(header.rows)?;
    let blank = memchr::memchr(b' ', body)?;
    let (name, vector) = (&body[..blank], &body[blank + 1..]);
    let spoken = std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control));
    let (elements, _) = vector.as_chunks::<4>();
    let columns = usize::try_from(header.columns).unwrap_or(usize::MAX);
    let fits = least <= len - header.len as u64 && !name.is_empty() && spoken;
    let usual = || elements.iter().take(columns).all(sane);
    let seen = vector.iter().take(columns.saturating_mul(4));
    // Text of other formats may start with such numbers, too.
    let walks = || !seen.clone().all(of_text) && binary::table(source, header, limits).is_ok();
    (fits && (usual() || walks())).then_some((header, Kind::Binary))
}

/// True for bytes that occur in text.
fn of_text(byte: &u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e)
}

/// True for an element of plausible size.
fn sane(x: &[u8; 4]) -> bool {
    let x = f32::from_le_bytes(*x);
    x == 0.0 || (1e-30..1e15).contains(&x.abs())
}

/// True where the first row is a name and as many numbers as the header declares.
fn is_text(body: &[u8], header: Header, whole: bool) -> bool {
    let end = memchr::memchr(b'\n', body);
    let line = end.map_or(body, |end| &body[..end]);
    let complete = end.is_some() || whole;
    let line = if complete { line.trim_ascii_end() } else { line };
    let mut fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    if !complete {
        // The last field is truncated.
        fields.pop();
        if fields.len() <= MIN_NUMBERS {
            return false;
        }
    }
    let Some((name, numbers)) = fields.split_first() else { return false };
    let count = numbers.len() as u64;
    let fits = if complete { count == header.columns } else { count <= header.columns };
    fits && std::str::from_utf8(name).is_ok() && numbers.iter().all(|field| number(field).is_ok())
}

/// True for a table without a first line of counts, as GloVe writes it: each line of `head` is a name and the same number
/// of numbers, at least one of them written as a float. `whole` is true if the head is the whole file.
///
/// Lines of numbers alone have no names, and do not match.
pub(super) fn is_headless(head: &[u8], whole: bool) -> bool {
    let complete = if whole { head.len() } else { memchr::memrchr(b'\n', head).map_or(0, |end| end + 1) };
    // If the first row is longer than the head, its last field is truncated.
    let (text, least) = match complete {
        0 => (&head[..memchr::memrchr(b' ', head).unwrap_or(0)], MIN_NUMBERS),
        _ => (&head[..complete], 2),
    };
    let (mut columns, mut float, mut word) = (None, false, false);
    for line in text.strip_suffix(b"\n").unwrap_or(text).split(|&b| b == b'\n') {
        let mut fields = line.trim_ascii_end().split(|&b| b == b' ');
        let name = std::str::from_utf8(fields.next().unwrap_or_default()).unwrap_or_default();
        let mut count = 0;
        for field in fields {
            if number(field).is_err() {
                return false;
            }
            float |= is_float(field);
            count += 1;
        }
        if name.is_empty() || name.chars().any(char::is_control) || *columns.get_or_insert(count) != count {
            return false;
        }
        word |= number(name.as_bytes()).is_err();
    }
    float && word && columns.is_some_and(|columns| columns >= least) && header(head).is_none()
}

/// Outline: the first line, then names and vectors. Names lie between vectors, and opening
/// reads all of them.
pub(super) fn outline(source: &SourceRef) -> Result<Outline> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.elements = true;
    if let Some(first) = header(&head) {
        let len = first.len as u64;
        outline.header(0, len, "numbers of rows and columns");
        outline.elements(len, source.len().saturating_sub(len), "names and vectors");
    } else {
        outline.elements(0, source.len(), "names and vectors");
    }
    Ok(outline)
}

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let mut checkpoint = Checkpoint::new("word2vec", "vectors", source.label());
    let guessed = "text has no dtype; numbers are read as f32";
    if let Some(lines) = headless_lines(&head, source, options) {
        checkpoint.tensors.push(lines.table()?);
        checkpoint.notes.push(Note::new("dtype-guessed", guessed));
        return Ok(checkpoint);
    }
    let first = header(&head).ok_or_else(|| {
        Error::corrupt("word2vec-header", "the first line does not contain the numbers of rows and columns")
            .at(0)
            .hint("add a first line with the numbers `ROWS COLUMNS`")
    })?;
    // If this format was requested, a file that is not clearly text is read as binary only if it could be binary.
    let kind = match form(&head, source, &options.limits) {
        Some((_, kind)) => kind,
        // Text has no zero byte.
        None if is_binary(&head[first.len..], first) && head.contains(&0) => Kind::Binary,
        None if binary::table(source, first, &options.limits).is_ok() => Kind::Binary,
        None => Kind::Text,
    };
    if kind == Kind::Binary {
        checkpoint.tensors.push(binary::table(source, first, &options.limits)?);
        checkpoint.notes.push(Note::new("binary", "the vectors are binary"));
        return Ok(checkpoint);
    }
    let entry = lines(source, first, options).table().map_err(|error| match error.code().as_str() {
        "ragged-line" => {
            let columns = counted(first.columns, "column", "columns");
            error.hint_too(format!("the first line states {columns}"))
        }
        _ => error,
    })?;
    if entry.shape.dims().first() != Some(&first.rows) {
        return Err(Error::corrupt("row-count", "the number of lines differs from the first line")
            .expected(format_args!("{} rows of {}", first.rows, first.columns))
            .found(match entry.shape.dims() {
                [rows, columns] => format!("{rows} rows of {columns}"),
                _ => entry.shape.to_string(),
            }));
    }
    checkpoint.tensors.push(entry);
    checkpoint.notes.push(Note::new("dtype-guessed", guessed));
    Ok(checkpoint)
}

/// Lines of a table without a first line of counts; `None` if it has one, or is not a table. The first line decides: another one may
/// be damaged.
fn headless_lines(head: &[u8], source: &SourceRef, options: &OpenOptions) -> Option<Lines> {
    let lines = || Lines { trimmed: true, ..Lines::new(source, b' ', true, &options.limits) };
    let first = memchr::memchr(b'\n', head).map(|end| &head[..=end]);
    let is_first = first.is_some_and(|first| header(head).is_none() && is_headless(first, true));
    (is_first || is_headless(head, head.len() as u64 == source.len())).then(lines)
}

fn lines(source: &SourceRef, first: Header, options: &OpenOptions) -> Lines {
    let mut lines = Lines::new(source, b' ', true, &options.limits);
    lines.trimmed = true;
    lines.start = first.len as u64;
    lines.first_line = 2;
    lines.columns = Some(first.columns);
    lines
}

/// Fault in a line that opening does not detect. The binary form has no such check.
///
/// # Errors
/// The errors of the source.
pub(super) fn line_fault(source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    if let Some(lines) = headless_lines(&head, source, options) {
        return Ok(lines.intact()?.2);
    }
    match form(&head, source, &options.limits) {
        Some((first, Kind::Text)) if first.rows > 0 => Ok(lines(source, first, options).intact()?.2),
        _ => Ok(None),
    }
}

/// Returns the rows before the first damaged or truncated line or vector.
///
/// # Errors
/// The fault in the first row.
pub(super) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let mut checkpoint = Checkpoint::new("word2vec", "vectors", source.label());
    if let Some(lines) = headless_lines(&head, source, options) {
        return lines.salvage(checkpoint, None, error);
    }
    let first =
        header(&head).ok_or_else(|| Error::corrupt("word2vec-header", "the first line is damaged"))?;
    // The first row shows the form: numbers as text, or as bytes.
    let (entry, lost) = match lines(source, first, options).whole_rows(Some(first.rows)) {
        Ok(found) => found,
        Err(error) if Damage::is(&error) && is_binary(&head[first.len..], first) => {
            let (entry, lost) = binary::whole_rows(source, first, &options.limits)?;
            (entry, vec![lost])
        }
        Err(error) => return Err(error),
    };
    checkpoint.tensors.push(entry);
    checkpoint.damage_mut(error).lost.extend(lost);
    Ok(checkpoint)
}

/// True where the first row is a name and bytes that do not occur in text.
fn is_binary(body: &[u8], first: Header) -> bool {
    let Some(blank) = memchr::memchr(b' ', body) else { return false };
    let (name, vector) = (&body[..blank], &body[blank + 1..]);
    let spoken = std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control));
    let len = usize::try_from(first.columns).unwrap_or(usize::MAX).saturating_mul(4);
    !name.is_empty() && spoken && !vector.iter().take(len).all(of_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::{detect, open_source};
    use std::sync::Arc;
    use weighbridge_core::tensor::Order;
    use weighbridge_io::source::MemorySource;

    fn source(bytes: Vec<u8>) -> SourceRef {
        Arc::new(MemorySource::new("m", bytes))
    }

    fn binary(rows: &[(&str, [f32; 2])]) -> Vec<u8> {
        let mut bytes = format!("{} 2\n", rows.len()).into_bytes();
        for (name, vector) in rows {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b' ');
            bytes.extend(vector.iter().flat_map(|x| x.to_le_bytes()));
        }
        bytes
    }

    #[test]
    fn reads_glove_tables_without_a_first_line() {
        let open = |text: &str| {
            let file = source(text.as_bytes().to_vec());
            let id = detect(&file).map(|format| format.info().id).ok();
            id.map(|id| (id, open_source(file, &OpenOptions::default())))
        };
        // As the original writes them; blanks at the end of lines; no line end after the last line.
        for text in ["the 0.4 -1 2e-3\n, 1 2 3\n", "the 0.4 -1 2e-3 \n, 1 2 3 \n", "the 0.4 -1 2e-3\n, 1 2 3"]
        {
            let (id, opened) = open(text).unwrap();
            let table = opened.unwrap().tensors.remove(0);
            assert_eq!((id, table.shape.dims()), ("word2vec", &[2, 3][..]));
            let names = table.row_names.as_ref().unwrap().read().unwrap();
            assert_eq!(names.iter().collect::<Vec<_>>(), ["the", ","]);
            let values = table.read_tensor(Order::Row).unwrap();
            assert_eq!(values, [0.4f32, -1., 2e-3, 1., 2., 3.].map(f32::to_le_bytes).concat());
        }
        // A row longer than the checked head, and many rows.
        let row = |name: &str, columns: usize| format!("{name}{}\n", " 0.125".repeat(columns));
        let long = open(&(row("a", 1000) + &row("b", 1000))).unwrap().1.unwrap();
        assert_eq!(long.tensors[0].shape.dims(), [2, 1000]);
        let many: String = (0..500).map(|n| row(&format!("w{n}"), 50)).collect();
        assert_eq!(open(&many).unwrap().1.unwrap().tensors[0].shape.dims(), [500, 50]);
        let error = open(&(many + "one 1.5\n")).unwrap().1.unwrap_err();
        assert_eq!(error.code().as_str(), "ragged-line");
        // Read as lines with tabs, it would be names without numbers.
        let named = OpenOptions { format: Some("tsv".to_owned()), ..OpenOptions::default() };
        let error = open_source(source(b"the 0.4 -1\n, 1 2\n".to_vec()), &named).unwrap_err();
        assert_eq!(error.code().as_str(), "no-tabs");
        // Numbers alone, text, one number a line, whole numbers, lines of several lengths.
        for other in
            ["1.5 2.5\n3.5 4.5\n", "some text\n", "a 1.5\nb 2.5\n", "a 1 2\n", "a 1.5 2\nb 1\n", "\n", ""]
        {
            assert!(open(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn detects_a_first_vector_of_unusual_numbers() {
        let named = OpenOptions { format: Some("word2vec".to_owned()), ..OpenOptions::default() };
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-35, 1e16, f32::MAX, f32::MIN_POSITIVE];
        for x in odd {
            let bytes = binary(&[("one", [x, 2.0]), ("two", [3.0, x])]);
            let file = source(bytes.clone());
            assert_eq!(detect(&file).unwrap().info().id, "word2vec", "{x}");
            for options in [&named, &OpenOptions::default()] {
                let table = open_source(file.clone(), options).unwrap().tensors.remove(0);
                let names = table.row_names.as_ref().unwrap().read().unwrap();
                assert_eq!(names.iter().collect::<Vec<_>>(), ["one", "two"]);
                let values = table.read_tensor(Order::Row).unwrap();
                assert_eq!(values, [x, 2.0, 3.0, x].map(f32::to_le_bytes).concat());
            }
            // If the vectors do not extend to the end, detection fails, and opening by format name reports damage.
            for (bad, code) in [
                (bytes[..bytes.len() - 1].to_vec(), "truncated"),
                ([bytes, b"abc".to_vec()].concat(), "trailing-bytes"),
            ] {
                let bad = source(bad);
                assert_eq!(detect(&bad).err().map(|e| e.code().as_str()), Some("unknown-format"), "{x}");
                let error = open_source(bad, &named).unwrap_err();
                assert_eq!(error.code().as_str(), code, "{x}");
            }
        }
        let text = source(b"3 2\nhello world\nthis is some longer text of no kind at all\n".to_vec());
        assert!(detect(&text).is_err());
    }
}
