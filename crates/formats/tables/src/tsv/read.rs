//! Builds the index from text.

use crate::table::lines::{Lines, is_float, number};
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, Role, RowNameList, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::{Job, Opt};
use weighbridge_core::{ErrorCode, phrase};
use weighbridge_format::{HEAD, OpenOptions};
use weighbridge_io::source::{SourceRef, read_vec};

/// Minimum number of visible numbers in a line that extends beyond the head of the file, to detect
/// a table.
const MIN_NUMBERS: usize = 8;

/// First line of the published PyTorch-BigGraph embeddings of Wikidata: the numbers of entities,
/// relations and columns, separated by tabs.
#[derive(Debug, Clone, Copy)]
struct Published {
    entities: u64,
    columns: u64,
    /// Length of the line in bytes.
    len: u64,
}

/// Parses that line, if the next line is a row of such a table.
fn published(head: &[u8], whole: bool) -> Option<Published> {
    let end = memchr::memchr(b'\n', head)?;
    let mut numbers = without_return(&head[..end]).split(|&b| b == b'\t').map(|field| {
        let digits = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(field).ok().filter(|_| digits)?.parse::<u64>().ok()
    });
    let (entities, _, columns) = (numbers.next()??, numbers.next()??, numbers.next()??);
    // A row with two numbers looks the same.
    if numbers.next().is_some() || entities == 0 || matches!(columns, 0 | 2) {
        return None;
    }
    let row = &head[end + 1..];
    let stop = memchr::memchr(b'\n', row);
    let mut fields: Vec<&[u8]> =
        without_return(&row[..stop.unwrap_or(row.len())]).split(|&b| b == b'\t').collect();
    let complete = stop.is_some() || whole;
    if !complete {
        fields.pop();
    }
    let (name, row) = fields.split_first()?;
    let count = row.len() as u64;
    let fits = if complete { count == columns } else { count <= columns && row.len() >= MIN_NUMBERS };
    let is_row = fits && std::str::from_utf8(name).is_ok() && row.iter().all(|field| number(field).is_ok());
    is_row.then_some(Published { entities, columns, len: end as u64 + 1 })
}

impl Published {
    fn of(source: &SourceRef) -> Result<Option<Self>> {
        let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
        Ok(published(&head, head.len() as u64 == source.len()))
    }

    /// Lines of the entities.
    fn lines(&self, source: &SourceRef, options: &OpenOptions) -> Lines {
        let mut lines = Lines::new(source, b'\t', true, &options.limits);
        (lines.start, lines.first_line) = (self.len, 2);
        (lines.columns, lines.most) = (Some(self.columns), Some(self.entities));
        lines
    }

    /// Opens the table of entities, and the table of relations behind it.
    fn open(&self, source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new("tsv", "table", source.label());
        let (mut entities, end) = self.lines(source, options).table_and_end()?;
        if entities.shape.dims().first() != Some(&self.entities) {
            return Err(Error::corrupt("row-count", "the file has fewer lines than its first line declares")
                .expected(format_args!("{} rows", self.entities))
                .found(&entities.shape));
        }
        entities.path = TensorPath::new([Name::from("entities")]);
        entities.role = Role::Embedding;
        checkpoint.tensors.push(entities);
        if end < source.len() {
            let mut lines = Lines::new(source, b'\t', true, &options.limits);
            (lines.start, lines.first_line) = (end, self.entities.saturating_add(2));
            match lines.table() {
                Ok(mut relations) => {
                    relations.path = TensorPath::new([Name::from("relations")]);
                    checkpoint.tensors.push(relations);
                }
                Err(error) if error.code() == ErrorCode::RaggedLine => {
                    checkpoint.notes.push(Note::skipped_tensor("relations", error.message()));
                }
                Err(error) => return Err(error),
            }
        }
        let text = "text has no dtype; numbers are read as f32";
        checkpoint.notes.push(Note::new("dtype-guessed", text));
        Ok(checkpoint)
    }
}

/// True where all lines of `head` are a name and numbers, at least one of them written as a
/// float. `whole` is true if the head is the whole file.
pub(super) fn recognises(head: &[u8], whole: bool) -> bool {
    if published(head, whole).is_some() {
        return true;
    }
    let mut columns = None;
    let mut float = false;
    let mut rest = head;
    while !rest.is_empty() {
        let (line, complete) = match memchr::memchr(b'\n', rest) {
            Some(end) => {
                let line = &rest[..end];
                rest = &rest[end + 1..];
                (line.strip_suffix(b"\r").unwrap_or(line), true)
            }
            None => (std::mem::take(&mut rest), whole),
        };
        let mut fields: Vec<&[u8]> = line.split(|&b| b == b'\t').collect();
        if !complete {
            // The last field is truncated.
            fields.pop();
            if columns.is_some() {
                break;
            }
            if fields.len() <= MIN_NUMBERS {
                return false;
            }
        }
        let Some((name, numbers)) = fields.split_first() else { return false };
        let control = |b: &u8| *b < 0x20 || *b == 0x7f;
        if numbers.is_empty() || name.iter().any(control) || std::str::from_utf8(name).is_err() {
            return false;
        }
        if numbers.iter().any(|field| number(field).is_err()) {
            return false;
        }
        float |= numbers.iter().any(|field| is_float(field));
        if complete && *columns.get_or_insert(numbers.len()) != numbers.len() {
            return false;
        }
    }
    float
}

/// Maximum length in bytes of a written number and the tab before it.
const MAX_NUMBER_LEN: usize = 64;

/// True where a reader would parse the names of the first lines as numbers. Covers the
/// lines that the reader checks even if all their numbers have the maximum length.
pub(super) fn look_like_numbers(names: &RowNameList, columns: u64) -> bool {
    let numbers = usize::try_from(columns).unwrap_or(usize::MAX).saturating_mul(MAX_NUMBER_LEN);
    let mut room = HEAD;
    let mut float = false;
    for (row, name) in names.iter().enumerate() {
        if row > 0 && room == 0 {
            break;
        }
        let name = name.as_bytes();
        // Names alone are one column; a single float among them makes it numeric: see `open`.
        if number(name).is_err() || (columns > 0 && !is_float(name)) {
            return false;
        }
        float |= is_float(name);
        room = room.saturating_sub(numbers.saturating_add(name.len()).saturating_add(1));
    }
    float
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Fault in a line that opening does not detect: numbers are parsed on access, and
/// a truncated line may still have all its fields.
///
/// # Errors
/// The errors of the source.
pub(super) fn line_fault(source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
    if let Some(published) = Published::of(source)? {
        return Ok(published.lines(source, options).intact()?.2);
    }
    let (lines, ..) = lines(source, options, true)?;
    Ok(lines.intact()?.2)
}

/// Returns the rows before the first damaged or truncated line, without lines at the start that have
/// another number of fields than most.
///
/// # Errors
/// The fault in the first line.
pub(super) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::new("tsv", "table", source.label());
    if let Some(published) = Published::of(source)? {
        return published.lines(source, options).salvage(checkpoint, Some(published.entities), error);
    }
    let (lines, bare, mostly_bare) = lines(source, options, true)?;
    if bare != mostly_bare {
        let text = "the first field is a number in some lines and a name in others";
        return Err(Error::corrupt("names-uncertain", text).at(0));
    }
    lines.salvage(checkpoint, None, error)
}

/// Parameters of the lines; whether they have no names; whether most of the first ones have none.
/// The last line of a file that may be `cut` is ignored.
fn lines(source: &SourceRef, options: &OpenOptions, cut: bool) -> Result<(Lines, bool, bool)> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let whole = head.len() as u64 == source.len();
    let mut firsts = head.split(|&b| b == b'\n').collect::<Vec<_>>();
    if (!whole || cut || head.ends_with(b"\n")) && firsts.len() > 1 {
        firsts.pop();
    }
    let first =
        |line: &&[u8]| is_float(without_return(line).split(|&b| b == b'\t').next().unwrap_or_default());
    // In a single column, a float shows that integers beside it are not names.
    let alone = |line: &&[u8]| !line.contains(&b'\t') && number(without_return(line)).is_ok();
    let column = firsts.iter().all(alone) && firsts.iter().any(first);
    let bare = !head.is_empty() && (column || firsts.iter().all(first));
    if source.is_empty() {
        return Err(Error::corrupt("empty", "the file has no lines"));
    }
    let mostly = 2 * firsts.iter().filter(|line| first(line)).count() > firsts.len();
    Ok((Lines::new(source, b'\t', !bare, &options.limits), bare, mostly))
}

/// True where all first lines end in two or more numbers between blanks, some of them floats; row names alone do not.
fn is_separated_by_blanks(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let end = memchr::memrchr(b'\n', &head).unwrap_or(head.len());
    let mut float = false;
    let numbers = head[..end].split(|&b| b == b'\n').all(|line| {
        let mut fields = line.trim_ascii_end().rsplit(|&b| b == b' ');
        let last = [fields.next(), fields.next()].map(Option::unwrap_or_default);
        float |= last.iter().any(|field| is_float(field));
        fields.next().is_some() && last.iter().all(|field| number(field).is_ok())
    });
    Ok(numbers && float)
}

/// Returns the first field behind a name that is not a number, if each of the first lines has one: a list of edges.
fn word_in_each_line(source: &SourceRef) -> Result<Option<String>> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let whole = head.len() as u64 == source.len();
    // The last field of a truncated line may be a part of a number.
    let Some(end) = memchr::memrchr(b'\n', &head).or(whole.then_some(head.len())) else { return Ok(None) };
    let mut first = None;
    for line in head[..end].split(|&b| b == b'\n') {
        let mut fields = without_return(line).split(|&b| b == b'\t').skip(1);
        let Some(word) = fields.find(|field| number(field).is_err() && !field.is_empty()) else {
            return Ok(None);
        };
        first.get_or_insert_with(|| String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned());
    }
    Ok(first)
}

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    if let Some(published) = Published::of(source)? {
        return published.open(source, options);
    }
    let (lines, bare, _) = lines(source, options, false)?;
    if let Some(word) = word_in_each_line(source)? {
        return Err(Error::unsupported("not-numbers", "the fields behind the names are not numbers")
            .in_file(source.label())
            .at(0)
            .found(word)
            .hint(phrase!["import a list of edges: ", Job::Import.call()]));
    }
    let mut checkpoint = Checkpoint::new("tsv", "table", source.label());
    let entry = lines.table()?;
    if entry.shape.dims().get(1) == Some(&0) && is_separated_by_blanks(source)? {
        return Err(Error::unsupported("no-tabs", "the fields are separated by blanks, not by tabs")
            .in_file(source.label())
            .at(0)
            .hint(phrase!["for words and vectors as GloVe writes them, use ", Opt::From.with("word2vec")]));
    }
    let text = "text has no dtype; numbers are read as f32";
    checkpoint.notes.push(Note::new("dtype-guessed", text));
    if bare {
        let text = "the first field of each line is a number; the rows have no names";
        checkpoint.notes.push(Note::new("no-names", text));
    }
    checkpoint.tensors.push(entry);
    Ok(checkpoint)
}
