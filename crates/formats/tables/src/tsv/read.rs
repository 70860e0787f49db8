//! From text to the index.

use crate::table::lines::{Lines, is_float, number};
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, Role, RowNameList, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::Opt;
use weighbridge_core::{ErrorCode, phrase};
use weighbridge_format::{HEAD, OpenOptions};
use weighbridge_io::source::{SourceRef, read_vec};

/// A line that ends behind the head of the file is believed to be one of a table if so many of its
/// numbers are seen.
const ENOUGH: usize = 8;

/// The first line of embeddings as PyTorch-BigGraph published those of Wikidata: the numbers of entities,
/// relations and columns, separated by tabs.
#[derive(Debug, Clone, Copy)]
struct Published {
    entities: u64,
    columns: u64,
    /// Bytes of the line.
    len: u64,
}

/// That line, where the next one is a row of such a table.
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
    let fits = if complete { count == columns } else { count <= columns && row.len() >= ENOUGH };
    let is_row = fits && std::str::from_utf8(name).is_ok() && row.iter().all(|field| number(field).is_ok());
    is_row.then_some(Published { entities, columns, len: end as u64 + 1 })
}

impl Published {
    fn of(source: &SourceRef) -> Result<Option<Self>> {
        let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
        Ok(published(&head, head.len() as u64 == source.len()))
    }

    /// The lines of entities.
    fn lines(&self, source: &SourceRef, options: &OpenOptions) -> Lines {
        let mut lines = Lines::new(source, b'\t', true, &options.limits);
        (lines.start, lines.first_line) = (self.len, 2);
        (lines.columns, lines.most) = (Some(self.columns), Some(self.entities));
        lines
    }

    /// The table of entities, and the one of what follows them, which are relations.
    fn open(&self, source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new("tsv", "table", source.label());
        let (mut entities, end) = self.lines(source, options).table_and_end()?;
        if entities.shape.dims().first() != Some(&self.entities) {
            return Err(Error::corrupt("row-count", "there are fewer lines than the first one says")
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
        let text = "the text does not say the type of its numbers: f32 is taken";
        checkpoint.notes.push(Note::new("dtype-guessed", text));
        Ok(checkpoint)
    }
}

/// True where all lines of `head` are a name and numbers, of which one at least is written as a
/// float. `whole` says that the head is all there is.
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
            // The last field is cut short.
            fields.pop();
            if columns.is_some() {
                break;
            }
            if fields.len() <= ENOUGH {
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

/// Bytes of a number and the tab before it, at most as they are written.
const LONGEST: usize = 64;

/// True where the names of the first lines would be taken for numbers when they are read: of the
/// lines that are looked at even if all numbers in them are as long as can be.
pub(super) fn look_like_numbers(names: &RowNameList, columns: u64) -> bool {
    let numbers = usize::try_from(columns).unwrap_or(usize::MAX).saturating_mul(LONGEST);
    let mut room = HEAD;
    let mut float = false;
    for (row, name) in names.iter().enumerate() {
        if row > 0 && room == 0 {
            break;
        }
        let name = name.as_bytes();
        // Names alone are one column, of which a single float makes numbers: see `open`.
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

/// What is wrong with a line, which opening does not see: numbers are parsed when they are asked for, and
/// a line that is cut short may still have all its fields.
///
/// # Errors
/// What the source says.
pub(super) fn doubts(source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
    if let Some(published) = Published::of(source)? {
        return Ok(published.lines(source, options).intact()?.2);
    }
    let (lines, ..) = lines(source, options, true)?;
    Ok(lines.intact()?.2)
}

/// The rows before the first line that is damaged or cut short; without lines at the beginning that are not as
/// long as most.
///
/// # Errors
/// What is wrong with the first line.
pub(super) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::new("tsv", "table", source.label());
    if let Some(published) = Published::of(source)? {
        return published.lines(source, options).salvage(checkpoint, Some(published.entities), error);
    }
    let (lines, bare, mostly_bare) = lines(source, options, true)?;
    if bare != mostly_bare {
        let text = "the first fields of some lines are numbers, of others not: are they names?";
        return Err(Error::corrupt("names-uncertain", text).at(0));
    }
    lines.salvage(checkpoint, None, error)
}

/// How the lines are to be read; whether they have no names; whether most of the first ones have none.
/// Of a file that may be `cut` the last line is not looked at.
fn lines(source: &SourceRef, options: &OpenOptions, cut: bool) -> Result<(Lines, bool, bool)> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let whole = head.len() as u64 == source.len();
    let mut firsts = head.split(|&b| b == b'\n').collect::<Vec<_>>();
    if (!whole || cut || head.ends_with(b"\n")) && firsts.len() > 1 {
        firsts.pop();
    }
    let first =
        |line: &&[u8]| is_float(without_return(line).split(|&b| b == b'\t').next().unwrap_or_default());
    // Of one column, a float shows that whole numbers beside it are no names.
    let alone = |line: &&[u8]| !line.contains(&b'\t') && number(without_return(line)).is_ok();
    let column = firsts.iter().all(alone) && firsts.iter().any(first);
    let bare = !head.is_empty() && (column || firsts.iter().all(first));
    if source.is_empty() {
        return Err(Error::corrupt("empty", "a table without a line has no columns"));
    }
    let mostly = 2 * firsts.iter().filter(|line| first(line)).count() > firsts.len();
    Ok((Lines::new(source, b'\t', !bare, &options.limits), bare, mostly))
}

/// True where all first lines end in two numbers or more between blanks, some of them floats: names of rows alone do not.
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

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    if let Some(published) = Published::of(source)? {
        return published.open(source, options);
    }
    let (lines, bare, _) = lines(source, options, false)?;
    let mut checkpoint = Checkpoint::new("tsv", "table", source.label());
    let entry = lines.table()?;
    if entry.shape.dims().get(1) == Some(&0) && is_separated_by_blanks(source)? {
        return Err(Error::unsupported(
            "no-tabs",
            "the fields of the lines are separated by blanks, not by tabs",
        )
        .in_file(source.label())
        .at(0)
        .hint(phrase![
            "for a table of words and vectors, as GloVe writes it: ",
            Opt::From.with("word2vec")
        ]));
    }
    let text = "the text does not say the type of its numbers: f32 is taken";
    checkpoint.notes.push(Note::new("dtype-guessed", text));
    if bare {
        let text = "the first field of each line is a number too: the rows have no names";
        checkpoint.notes.push(Note::new("no-names", text));
    }
    checkpoint.tensors.push(entry);
    Ok(checkpoint)
}
