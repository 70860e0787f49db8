//! Text tables: one line per row, a name and numbers.
//!
//! Text files have no index, so opening reads the file once: it finds the lines, and checks that all of them
//! have the same number of fields. Numbers are parsed on access, a block of lines at a time.

use super::{DecodedSource, Decoder};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Damage, Lost, Note, RowNameList, RowNames, RowNamesRef, TensorEntry, TensorPath,
    Value, check_count, each_part,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::counted;
use weighbridge_io::source::{BlockCache, RangeSource, SourceRef, read_vec, to_usize};

/// Bytes read at once.
const STEP_BYTES: u64 = 1 << 20;
/// Divisor of the limit `header_bytes` for the length of a line: parsed numbers take a multiple of its bytes.
const LINE_DIVISOR: u64 = 4;
/// Target size of a decoded block, in bytes of text.
const BLOCK_BYTES: u64 = 256 << 10;
/// Bytes at the start of the file in which the most frequent field count is determined.
const FRONT_BYTES: u64 = 1 << 20;

/// Parameters for reading the lines of a file.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    /// File to read.
    pub source: SourceRef,
    /// Separator of fields.
    pub separator: u8,
    /// True where the first field is the name of the row.
    pub named: bool,
    /// True where separators at the end of a line are ignored.
    pub trimmed: bool,
    /// Offset of the first row.
    pub start: u64,
    /// Line number of the first row, counted from 1.
    pub first_line: u64,
    /// Number of numeric fields, if already known.
    pub columns: Option<u64>,
    /// Maximum line length in bytes.
    pub longest: u64,
    /// Maximum number of rows; later lines are not read.
    pub most: Option<u64>,
    /// Cache for blocks of rows.
    pub cache: BlockCache,
}

/// Start of a block of lines.
#[derive(Debug, Clone, Copy)]
struct Mark {
    offset: u64,
    row: u64,
}

impl Lines {
    /// Lines of a whole file; the first field is a name where `named` is set.
    pub(crate) fn new(source: &SourceRef, separator: u8, named: bool, limits: &Limits) -> Self {
        Self {
            source: source.clone(),
            separator,
            named,
            trimmed: false,
            start: 0,
            first_line: 1,
            columns: None,
            longest: limits.header_bytes / LINE_DIVISOR,
            most: None,
            cache: limits.blocks.clone(),
        }
    }

    /// Reads the file once and returns the table, of f32.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `ragged-line`, if lines have different numbers of fields.
    pub(crate) fn table(self) -> Result<TensorEntry> {
        self.table_and_end().map(|(entry, _)| entry)
    }

    /// Like [`table`](Self::table), with the end offset of its last row.
    ///
    /// # Errors
    /// Like [`table`](Self::table).
    pub(crate) fn table_and_end(mut self) -> Result<(TensorEntry, u64)> {
        let mut columns = self.columns;
        let mut marks: Vec<Mark> = Vec::new();
        let mut rows = 0;
        let end = self.each(self.start, self.source.len(), |row, offset, line| {
            let fields = self.fields(line);
            let expected = *columns.get_or_insert(fields);
            if fields != expected {
                return Err(self.at_line(row, offset, ragged(expected, fields)));
            }
            if marks.last().is_none_or(|last| offset - last.offset >= BLOCK_BYTES) {
                marks.push(Mark { offset, row });
            }
            rows = row + 1;
            Ok(())
        })?;
        let columns = columns.unwrap_or(0);
        let shape = Shape::new([rows, columns]);
        if end < self.source.len() {
            self.source = Arc::new(RangeSource::new(self.source.clone(), 0, end)?);
        }
        marks.push(Mark { offset: end, row: rows });
        let labels: Option<RowNamesRef> = self.named.then(|| {
            Arc::new(LineNames { lines: self.clone(), rows, kept: Mutex::default() }) as RowNamesRef
        });
        let starts = marks.iter().map(|mark| mark.row.saturating_mul(columns).saturating_mul(4)).collect();
        let outer = self.source.clone();
        let cache = self.cache.clone();
        let decoder = LineDecoder { lines: self, marks, columns };
        let source = DecodedSource::shared(outer, starts, Box::new(decoder), &cache);
        let mut entry =
            TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, Encoding::ROW)?;
        entry.row_names = labels;
        entry.guessed = true;
        Ok((entry, end))
    }

    /// Reads the file once, including numbers and names. Returns the end offset and number of the intact rows,
    /// and the fault in the next one. A last line without a line end may be truncated.
    ///
    /// # Errors
    /// The errors of the source.
    pub(crate) fn intact(&self) -> Result<(u64, u64, Option<Error>)> {
        let (mut end, mut rows) = (self.start, 0);
        let mut columns = self.columns;
        let len = self.source.len();
        let mut scratch = Vec::new();
        let read = self.each(self.start, len, |row, offset, line| {
            // The line and its end, which may include a carriage return.
            let next = offset.saturating_add(line.len() as u64);
            if next >= len {
                let error = Error::corrupt("cut-line", "the last line has no line end and may be truncated");
                return Err(self.at_line(row, offset, error));
            }
            let fields = self.fields(line);
            let expected = *columns.get_or_insert(fields);
            if fields != expected {
                return Err(self.at_line(row, offset, ragged(expected, fields)));
            }
            scratch.clear();
            self.numbers(line, expected, &mut scratch).map_err(|e| self.at_line(row, offset, e))?;
            if self.named {
                text(self.name(line)).map_err(|e| self.at_line(row, offset, e))?;
            }
            (end, rows) = (next, row + 1);
            Ok(())
        });
        // To the line end, which is known to exist.
        let mut rest = [0; 2];
        let tail = usize::try_from(len - end).unwrap_or(2).min(2);
        self.source.read_at(end, &mut rest[..tail])?;
        end += match rest {
            _ if rows == 0 => 0,
            [b'\r', b'\n'] => 2,
            _ => 1,
        };
        match read {
            Ok(_) => Ok((end, rows, None)),
            Err(error) if Damage::is(&error) => Ok((end, rows, Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Returns the intact rows as a table marked as salvaged, and the losses. If the number of columns is not known,
    /// the most frequent one among the first lines counts: earlier lines with another number are skipped.
    ///
    /// # Errors
    /// The fault, if no row is intact.
    pub(crate) fn whole_rows(mut self, of: Option<u64>) -> Result<(TensorEntry, Vec<Lost>)> {
        let mut lost = Vec::new();
        let first = self.skip_odd()?;
        if let Some((first, error)) = &first {
            lost.push(Lost::new(format_args!("(rows before {first})"), error));
        }
        let first = first.map_or(0, |(first, _)| first);
        let (end, rows, error) = self.intact()?;
        if rows == 0 || error.is_some() || lost.is_empty() {
            let error = error
                .unwrap_or_else(|| Error::corrupt("row-count", "the file ends before the last rows").at(end));
            if rows == 0 {
                return Err(error);
            }
            lost.push(Lost::new(format_args!("(rows from {} on)", first + rows), &error));
        }
        self.source = Arc::new(RangeSource::new(self.source.clone(), 0, end)?);
        let mut entry = self.table()?;
        let of = of.map_or_else(String::new, |of| format!(" of {of}"));
        let kept = format!("{first} to {}{of}", first + rows);
        entry.attributes.insert(Attributes::SALVAGED_ROWS.to_owned(), Value::Text(kept));
        Ok((entry, lost))
    }

    /// Fills `checkpoint`, damaged by `error`, with the result of [`whole_rows`](Self::whole_rows).
    ///
    /// # Errors
    /// Like [`whole_rows`](Self::whole_rows).
    pub(crate) fn salvage(
        self,
        mut checkpoint: Checkpoint,
        of: Option<u64>,
        error: &Error,
    ) -> Result<Checkpoint> {
        let (entry, lost) = self.whole_rows(of)?;
        checkpoint.tensors.push(entry);
        checkpoint.damage_mut(error).lost.extend(lost);
        checkpoint.notes.push(Note::new("dtype-guessed", "text has no dtype; numbers are read as f32"));
        Ok(checkpoint)
    }

    /// Moves to the first line with the most frequent number of fields, if the number of columns is not known.
    /// Returns the number of skipped lines, and their fault.
    fn skip_odd(&mut self) -> Result<Option<(u64, Error)>> {
        if self.columns.is_some() {
            return Ok(None);
        }
        let head = read_vec(
            &*self.source,
            self.start,
            FRONT_BYTES.min(self.source.len().saturating_sub(self.start)),
        )?;
        // The last line may be truncated.
        let mut lines: Vec<&[u8]> = head.split(|&b| b == b'\n').collect();
        lines.pop();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for line in &lines {
            *counts.entry(self.fields(without_return(line))).or_default() += 1;
        }
        let most = counts.into_iter().find(|&(_, count)| 2 * count > lines.len());
        let Some((most, _)) = most.filter(|&(most, _)| most > 0) else { return Ok(None) };
        let odd = lines.iter().take_while(|line| self.fields(without_return(line)) != most).count();
        let Some(first) = lines.first().filter(|_| odd > 0) else { return Ok(None) };
        let found = self.fields(without_return(first));
        let error = self.at_line(0, self.start, ragged(most, found));
        let skipped: usize = lines.iter().take(odd).map(|line| line.len() + 1).sum();
        self.columns = Some(most);
        self.start += skipped as u64;
        self.first_line += odd as u64;
        Ok(Some((odd as u64, error)))
    }

    /// Calls `take` with row, offset and text of each line from the row that begins at `start` on;
    /// rows are counted from there. Returns the end offset of the last one, which `most` may have ended early.
    fn each(&self, start: u64, end: u64, mut take: impl FnMut(u64, u64, &[u8]) -> Result<()>) -> Result<u64> {
        let mut buffer: Vec<u8> = Vec::new();
        let (mut at, mut row, mut offset) = (start, 0, start);
        while at < end {
            let carried = buffer.len();
            buffer.resize(carried + to_usize(STEP_BYTES.min(end - at))?, 0);
            self.source.read_at(at, &mut buffer[carried..])?;
            at += (buffer.len() - carried) as u64;
            let mut from = 0;
            // The carried bytes contain no line end.
            while let Some(found) = memchr::memchr(b'\n', &buffer[from.max(carried)..]) {
                if self.most == Some(row) {
                    return Ok(offset);
                }
                let stop = from.max(carried) + found;
                take(row, offset, without_return(&buffer[from..stop]))?;
                offset += (stop + 1 - from) as u64;
                row += 1;
                from = stop + 1;
            }
            buffer.drain(..from);
            Limits::check("bytes in one line", "header_bytes", buffer.len() as u64, self.longest)?;
        }
        if !buffer.is_empty() && self.most != Some(row) {
            take(row, offset, without_return(&buffer))?;
            offset = end;
        }
        Ok(offset)
    }

    /// Number of numeric fields of a line, without the name.
    fn fields(&self, line: &[u8]) -> u64 {
        let line = self.trim(line);
        let separators = memchr::memchr_iter(self.separator, line).count() as u64;
        separators + u64::from(!self.named)
    }

    fn trim<'a>(&self, mut line: &'a [u8]) -> &'a [u8] {
        while let Some((last, rest)) = line.split_last().filter(|_| self.trimmed) {
            if *last != self.separator {
                break;
            }
            line = rest;
        }
        line
    }

    /// Adds the line number of a row (counted from the first one) to an error.
    fn at_line(&self, row: u64, offset: u64, error: Error) -> Error {
        error
            .in_file(self.source.label())
            .at(offset)
            .within(format_args!("line {}", self.first_line.saturating_add(row)))
    }

    /// Name at the start of a line.
    fn name<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        memchr::memchr(self.separator, line).map_or(line, |end| &line[..end])
    }

    fn numbers(&self, line: &[u8], columns: u64, out: &mut Vec<u8>) -> Result<()> {
        let mut rest = self.trim(line);
        if self.named {
            rest = rest.get(self.name(rest).len() + 1..).unwrap_or_default();
        }
        let mut count = 0;
        if columns > 0 {
            for field in rest.split(|&b| b == self.separator) {
                count += 1;
                out.extend_from_slice(&number(field)?.to_le_bytes());
            }
        }
        if count == columns { Ok(()) } else { Err(ragged(columns, count)) }
    }
}

fn ragged(expected: u64, found: u64) -> Error {
    Error::corrupt("ragged-line", "the line has a different number of fields")
        .expected(counted(expected, "number", "numbers"))
        .found(counted(found, "number", "numbers"))
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses a field as a float.
pub(crate) fn number(field: &[u8]) -> Result<f32> {
    let text = std::str::from_utf8(field).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        if field.is_empty() {
            return Error::corrupt("bad-number", "the field is empty").expected("a number");
        }
        let shown = field.get(..field.len().min(40)).unwrap_or_default();
        Error::corrupt("bad-number", "the field is not a number").found(String::from_utf8_lossy(shown))
    })
}

/// True for a number with a decimal point, an exponent, or a value that is not finite.
pub(crate) fn is_float(field: &[u8]) -> bool {
    number(field).is_ok() && !field.iter().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+'))
}

#[derive(Debug)]
struct LineDecoder {
    lines: Lines,
    marks: Vec<Mark>,
    columns: u64,
}

impl Decoder for LineDecoder {
    fn decode(&self, block: usize) -> Result<Vec<u8>> {
        let Some(&[first, next]) = self.marks.get(block..block + 2) else { return Ok(Vec::new()) };
        let text = read_vec(&*self.lines.source, first.offset, next.offset - first.offset)?;
        // Every element is at least one byte of text and a separator.
        let most = (text.len() as u64).saturating_add(2).saturating_mul(2);
        let bytes = (next.row - first.row).saturating_mul(self.columns).saturating_mul(4);
        let mut out = Vec::with_capacity(to_usize(most.min(bytes))?);
        let mut offset = first.offset;
        let body = text.strip_suffix(b"\n").unwrap_or(&text);
        for (row, line) in (first.row..next.row).zip(body.split(|&b| b == b'\n')) {
            self.lines
                .numbers(without_return(line), self.columns, &mut out)
                .map_err(|e| self.lines.at_line(row, offset, e))?;
            offset += line.len() as u64 + 1;
        }
        Ok(out)
    }
}

/// Row names at the start of the lines.
#[derive(Debug)]
struct LineNames {
    lines: Lines,
    rows: u64,
    kept: Mutex<Option<Arc<RowNameList>>>,
}

impl RowNames for LineNames {
    fn label(&self) -> &str {
        self.lines.source.label()
    }

    fn read(&self) -> Result<Arc<RowNameList>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = &*kept {
            return Ok(list.clone());
        }
        let mut list = RowNameList::new();
        self.append(&mut list, &mut |_| Ok(()))?;
        let list = Arc::new(list);
        *kept = Some(list.clone());
        Ok(list)
    }

    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        each_part(take, |list, look| self.append(list, look))
    }

    fn sources(&self) -> Vec<SourceRef> {
        vec![self.lines.source.clone()]
    }
}

impl LineNames {
    /// Appends all names to `list`; `look` receives the list after each.
    fn append(
        &self,
        list: &mut RowNameList,
        look: &mut dyn FnMut(&mut RowNameList) -> Result<()>,
    ) -> Result<()> {
        let (lines, mut count) = (&self.lines, 0);
        lines.each(lines.start, lines.source.len(), |row, offset, line| {
            list.push(text(lines.name(line)).map_err(|e| lines.at_line(row, offset, e))?);
            count += 1;
            look(list)
        })?;
        check_count(self, count, self.rows)
    }
}

/// Converts a name to text.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], `name-not-text`, if it is not UTF-8.
pub(crate) fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name).map_err(|_| {
        Error::unsupported("name-not-text", "the row name is not UTF-8")
            .found(String::from_utf8_lossy(name.get(..name.len().min(40)).unwrap_or_default()))
    })
}
