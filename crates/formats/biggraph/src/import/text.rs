//! Lines of text as edges: columns of a table, or N-Triples.

use super::ntriples;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Columns of an edge list, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    names: Vec<String>,
}

/// Column that is not read.
const IGNORED: &str = "-";
/// Names of columns, in the order of [`Columns::places`].
pub(super) const NAMES: [&str; 4] = ["lhs", "rhs", "rel", "weight"];

impl Columns {
    /// Parses names such as `lhs,rel,rhs`: `lhs`, `rhs`, and optionally `rel` and `weight`, in the order of the columns; `-` for a
    /// column that is not read.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `edge-columns`, if a name is unknown, is given twice, or `lhs` or `rhs` is missing.
    pub fn parse(text: &str) -> Result<Self> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let count = |name: &str| names.iter().filter(|own| *own == name).count();
        let other = names.iter().find(|name| *name != IGNORED && !NAMES.contains(&name.as_str()));
        if let Some(other) = other {
            return Err(Error::usage("edge-columns", "invalid edge columns")
                .expected("lhs, rhs, rel or weight, in the order of the file; - is a column that is not read")
                .found(other));
        }
        if NAMES.iter().any(|name| count(name) > 1) || count("lhs") == 0 || count("rhs") == 0 {
            return Err(Error::usage("edge-columns", "invalid edge columns")
                .expected("lhs, rhs, and optionally rel and weight, each once, in the order of the file; - is a column that is not read")
                .found(text));
        }
        Ok(Self { names })
    }

    /// Names of the columns, joined by commas.
    pub(super) fn text(&self) -> String {
        self.names.join(",")
    }

    /// True where a column has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Places of the columns `lhs`, `rhs`, `rel` and `weight`.
    pub(super) fn places(&self) -> [Option<usize>; 4] {
        NAMES.map(|name| self.names.iter().position(|own| own == name))
    }

    /// Number of columns.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self { names: ["lhs", "rel", "rhs"].map(str::to_owned).to_vec() }
    }
}

/// Form of the lines of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// Columns with this byte between them, which names cannot have.
    Separated(u8),
    /// Comma-separated values, also in quotes. A value in quotes ends in its line.
    Csv,
    /// Columns with white space between them, as Python's `str.split` finds them.
    Words,
    /// N-Triples: subject, predicate and object are lhs, relation and rhs, each with the text of its term.
    NTriples,
}

impl TextForm {
    /// All names: `tsv`, `csv`, `words` and `nt`.
    pub const NAMES: [&'static str; 4] = ["tsv", "csv", "words", "nt"];

    /// Parses a name of [`NAMES`](Self::NAMES).
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "tsv" => Some(Self::Separated(b'\t')),
            "csv" => Some(Self::Csv),
            "words" => Some(Self::Words),
            "nt" => Some(Self::NTriples),
            _ => None,
        }
    }

    /// Returns the form that the name of a file tells, also before `.gz` and `.zst`; tab-separated for all other names.
    pub fn of_name(name: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        let plain = lower.strip_suffix(".gz").or_else(|| lower.strip_suffix(".zst")).unwrap_or(&lower);
        match plain.rsplit_once('.') {
            Some((_, "csv")) => Self::Csv,
            Some((_, "nt")) => Self::NTriples,
            _ => Self::Separated(b'\t'),
        }
    }

    /// Returns the name of the form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Separated(_) => "tsv",
            Self::Csv => "csv",
            Self::Words => "words",
            Self::NTriples => "nt",
        }
    }
}

/// Place of a name in a chunk of text.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Field {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Field {
    pub(super) fn of(range: Range<usize>) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { start: small(range.start), len: small(range.len()) }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Edge of a line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Edge {
    pub(super) lhs: Field,
    pub(super) rhs: Field,
    pub(super) rel: Option<Field>,
    pub(super) weight: f32,
}

/// Fault of a line.
#[derive(Debug, Clone)]
pub(super) enum BadLine {
    /// Another number of columns than expected.
    Columns { found: usize, expected: usize, has_tab: bool },
    /// A name without characters.
    EmptyName,
    /// A name that a row of a table lacks, by its column.
    NoName(&'static str),
    /// A weight that a row of a table lacks.
    NoWeight,
    /// A weight that is not a number.
    Weight(String),
    /// A relation that the configuration does not have.
    Relation { found: String, known: Vec<String> },
    /// A line with a zero byte: the file is not text.
    Binary,
    /// A quote that does not end in the line, or text beside one.
    Quote,
    /// Not N-Triples.
    Triple(&'static str),
    /// Too long: a line or a row.
    Length(&'static str),
}

impl BadLine {
    /// Returns the error for a line; its place is added by the caller.
    pub(super) fn error(&self) -> Error {
        let bad = |what: &str| Error::corrupt("bad-line", what);
        match self {
            Self::Columns { found, expected, has_tab } => {
                let error = bad("the line has another number of columns")
                    .expected(format_args!("{expected} columns"))
                    .found(found);
                if *has_tab || *found > 1 {
                    error.hint(phrase![
                        "name the columns in their order, such as ",
                        Opt::Columns.with("lhs,rel,rhs,weight"),
                        "; - is a column that is not read"
                    ])
                } else {
                    error.hint(phrase![
                        Opt::From.with("words"),
                        " reads columns with white space between them, ",
                        Opt::From.with("csv"),
                        " those with commas"
                    ])
                }
            }
            Self::Binary => bad("the line has a byte of zero: the file is not text")
                .expected("text, Parquet or Arrow with an edge in each line or row"),
            Self::EmptyName => bad("the line has an empty name").expected("a name in each column"),
            Self::NoName(column) => {
                bad("the name is missing or empty").expected(format_args!("a name in the column {column}"))
            }
            Self::NoWeight => {
                bad("the weight is missing or not finite").expected("a number in the column weight")
            }
            Self::Weight(text) => bad("the weight is not a number").expected("a number").found(text),
            Self::Relation { found, known } => bad("the relation is not in the configuration")
                .expected(known.join(", "))
                .found(found)
                .hint(phrase![
                    "if this is not a relation, name the columns in their order, such as ",
                    Opt::Columns.with("lhs,rel,rhs"),
                    ", or skip a line with names of columns (",
                    Opt::Header,
                    "); else add it to the configuration, or set dynamic_relations there"
                ]),
            Self::Quote => bad("a quoted value does not end in its line")
                .expected("a closing quote before the next comma or the end of the line"),
            Self::Triple(what) => bad("the line is not an N-Triples statement").expected(what),
            Self::Length(what) => bad(&format!("the {what} is too long"))
                .expected(format_args!("at most {} bytes", super::MAX_LINE)),
        }
    }
}

/// Reader of the lines of one form.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    form: TextForm,
    places: [Option<usize>; 4],
    count: usize,
    /// Also lines with more columns than expected.
    more: bool,
}

impl Lines {
    pub(super) fn new(form: TextForm, columns: &Columns, more: bool) -> Self {
        Self { form, places: columns.places(), count: columns.count(), more }
    }

    /// Reads the line `range` of `text`, without its end. `None` for a line without an edge. Terms of N-Triples with escapes are
    /// replaced in place by their canonical text, which is never longer.
    pub(super) fn edge(&self, text: &mut [u8], range: Range<usize>) -> Result<Option<Edge>, BadLine> {
        if self.form == TextForm::NTriples {
            let Some([lhs, rel, rhs]) = ntriples::terms(text, range).map_err(BadLine::Triple)? else {
                return Ok(None);
            };
            let [lhs, rel, rhs] = [lhs, rel, rhs].map(Field::of);
            return Ok(Some(Edge { lhs, rhs, rel: Some(rel), weight: 1.0 }));
        }
        let mut edge = Edge { weight: 1.0, ..Edge::default() };
        let mut weight = None;
        let mut found = 0;
        let [lhs, rhs, rel, weigh] = self.places;
        let mut take = |field: Range<usize>| {
            let place = Some(found);
            if place == lhs {
                edge.lhs = Field::of(field);
            } else if place == rhs {
                edge.rhs = Field::of(field);
            } else if place == rel {
                edge.rel = Some(Field::of(field));
            } else if place == weigh {
                weight = Some(field);
            }
            found += 1;
        };
        match self.form {
            TextForm::Csv if memchr::memchr(b'"', &text[range.clone()]).is_some() => {
                quoted(text, range.clone(), &mut take)?;
            }
            TextForm::Words => words(&text[range.clone()], range.start, &mut take),
            form => {
                let separator = match form {
                    TextForm::Separated(byte) => byte,
                    _ => b',',
                };
                let mut start = range.start;
                for at in memchr::memchr_iter(separator, &text[range.clone()]) {
                    take(start..range.start + at);
                    start = range.start + at + 1;
                }
                take(start..range.end);
            }
        }
        if found != self.count && !(self.more && found > self.count) {
            if text[range.clone()].contains(&0) {
                return Err(BadLine::Binary);
            }
            let has_tab = text[range].contains(&b'\t');
            return Err(BadLine::Columns { found, expected: self.count, has_tab });
        }
        if edge.lhs.len == 0 || edge.rhs.len == 0 || edge.rel.is_some_and(|rel| rel.len == 0) {
            return Err(BadLine::EmptyName);
        }
        if let Some(field) = weight {
            let text = String::from_utf8_lossy(&text[field]);
            let weight = text.trim().parse().ok().filter(|weight: &f32| weight.is_finite());
            edge.weight = weight.ok_or_else(|| BadLine::Weight(text.into_owned()))?;
        }
        Ok(Some(edge))
    }
}

/// Values of a line with quotes, without them: the line is changed in place.
fn quoted(text: &mut [u8], range: Range<usize>, take: &mut impl FnMut(Range<usize>)) -> Result<(), BadLine> {
    let mut reader = csv_core::Reader::new();
    let line = text[range.clone()].to_vec();
    let (mut output, mut ends) = (vec![0; line.len() + 1], vec![0; line.len() + 2]);
    let (result, read, written, fields) = reader.read_record(&line, &mut output, &mut ends);
    // The end of the input ends the record; inside quotes the line break would belong to the value.
    let (done, _, more, last) = reader.read_record(&[], &mut output[written..], &mut ends[fields..]);
    let is_whole = matches!(result, csv_core::ReadRecordResult::InputEmpty)
        && matches!(done, csv_core::ReadRecordResult::Record)
        && read == line.len()
        && memchr::memchr_iter(b'"', &line).count().is_multiple_of(2);
    if !is_whole {
        return Err(BadLine::Quote);
    }
    text[range.start..range.start + written + more].copy_from_slice(&output[..written + more]);
    let mut start = 0;
    for end in &ends[..fields + last] {
        take(range.start + start..range.start + end);
        start = *end;
    }
    Ok(())
}

/// Values between white space, by the rules of Python's `str.split`; bytes that are not UTF-8 belong to values.
fn words(line: &[u8], start: usize, take: &mut impl FnMut(Range<usize>)) {
    let is_space = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
    let mut word = None;
    let mut at = 0;
    for chunk in line.utf8_chunks() {
        for (offset, c) in chunk.valid().char_indices() {
            let place = start + at + offset;
            match (is_space(c), word) {
                (true, Some(from)) => {
                    take(from..place);
                    word = None;
                }
                (false, None) => word = Some(place),
                _ => {}
            }
        }
        at += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            word.get_or_insert(start + at);
            at += chunk.invalid().len();
        }
    }
    if let Some(from) = word {
        take(from..start + line.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: TextForm, columns: &str, line: &str) -> Result<Vec<String>, BadLine> {
        let mut text = format!("..{line}").into_bytes();
        let lines = Lines::new(form, &Columns::parse(columns).unwrap(), false);
        let end = text.len();
        let edge = lines.edge(&mut text, 2..end)?;
        let Some(edge) = edge else { return Ok(Vec::new()) };
        let shown = |field: Field| String::from_utf8_lossy(&text[field.range()]).into_owned();
        let mut all = vec![shown(edge.lhs), edge.rel.map(shown).unwrap_or_default(), shown(edge.rhs)];
        if columns.contains("weight") {
            all.push(edge.weight.to_string());
        }
        Ok(all)
    }

    #[test]
    fn reads_columns_of_every_form() {
        let tab = TextForm::Separated(b'\t');
        assert_eq!(read(tab, "lhs,rel,rhs", "a b\tr\tc").unwrap(), ["a b", "r", "c"]);
        assert_eq!(read(tab, "rhs,-,lhs,weight", "a\tx\tb\t0.5").unwrap(), ["b", "", "a", "0.5"]);
        assert_eq!(read(TextForm::Csv, "lhs,rel,rhs", "a,r,c").unwrap(), ["a", "r", "c"]);
        assert_eq!(read(TextForm::Csv, "lhs,rel,rhs", "\"a,\"\"b\",r,\"c\"").unwrap(), ["a,\"b", "r", "c"]);
        assert_eq!(
            read(TextForm::Words, "lhs,rel,rhs", " a\u{a0}b \u{3000}\tc\x1f").unwrap(),
            ["a", "b", "c"]
        );
        assert_eq!(TextForm::of_name("a.CSV.gz"), TextForm::Csv);
        assert_eq!(TextForm::of_name("a.nt.zst"), TextForm::NTriples);
        assert_eq!(TextForm::of_name("a.txt"), tab);
    }

    #[test]
    fn bad_lines_are_told_apart() {
        let tab = TextForm::Separated(b'\t');
        let columns = "lhs,rel,rhs";
        assert!(matches!(read(tab, columns, "a b c"), Err(BadLine::Columns { found: 1, .. })));
        assert!(matches!(read(tab, columns, ""), Err(BadLine::Columns { found: 1, .. })));
        assert!(matches!(read(tab, columns, "a\tb\tc\td"), Err(BadLine::Columns { found: 4, .. })));
        assert!(matches!(read(tab, columns, "a\t\tc"), Err(BadLine::EmptyName)));
        assert!(matches!(read(tab, columns, "\u{89}HDF\0\0"), Err(BadLine::Binary)));
        for weight in ["x", "nan", "inf", "1e400"] {
            let line = format!("a\tb\t{weight}");
            assert!(matches!(read(tab, "lhs,rhs,weight", &line), Err(BadLine::Weight(_))), "{weight}");
        }
        assert!(matches!(read(TextForm::Csv, columns, "\"a,b,c"), Err(BadLine::Quote)));
        assert!(matches!(read(TextForm::Words, columns, "a b"), Err(BadLine::Columns { found: 2, .. })));
    }

    #[test]
    fn columns_are_named_once() {
        for bad in ["", "lhs", "lhs,rhs,lhs", "lhs,rhs,rel,rel", "lhs,rhs,x", "rel,rhs"] {
            assert_eq!(Columns::parse(bad).unwrap_err().code().as_str(), "edge-columns", "{bad}");
        }
        assert_eq!(Columns::parse("lhs, -,rhs,-").unwrap().text(), "lhs,-,rhs,-");
        assert_eq!(Columns::default().text(), "lhs,rel,rhs");
    }
}
