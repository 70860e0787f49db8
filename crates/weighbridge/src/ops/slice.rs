//! Slice syntax after a tensor name: `fc1.w[0:3, :]`, `[5]`, `[-1]`, `[::2]`, `[..., 0]`.
//!
//! The meaning is that of numpy: a negative index counts from the end, a range is clamped to the tensor, an integer removes its
//! dimension and must be within it. Steps must be positive.

mod ranges;
mod read;

pub use read::{read_at, read_taken};

use crate::checkpoint::{Checkpoint, TensorEntry};
use crate::error::{Error, Result};
use crate::formats;
use crate::tensor::{Region, Shape};
use crate::text::{counted, near};
use std::sync::Arc;
use weighbridge_core::phrase::Opt;
use weighbridge_core::{ErrorCode, NoteCode, phrase};

/// Codes of notes about missing row names.
const NO_NAMES: [NoteCode; 4] =
    [NoteCode::CountsDiffer, NoteCode::EntitiesUnreadable, NoteCode::NamesIncomplete, NoteCode::NamesMissing];

/// Parsed slice, not yet applied to a shape.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// use weighbridge::ops::slice::Slice;
/// use weighbridge::tensor::Shape;
///
/// let shape = Shape::from([8, 2]);
/// assert_eq!(Slice::parse("[::2, 0]")?.select(&shape)?.shape(), Shape::from([4]));
/// assert_eq!(Slice::from((0..3, ..)).select(&shape)?.shape(), Shape::from([3, 2]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// One index; the dimension is removed.
    Index(i64),
    /// `from:to:step`.
    Range { from: Option<i64>, to: Option<i64>, step: u64 },
    /// `...`: all remaining dimensions.
    Rest,
}

/// Slice of a particular shape: the selected indices of each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The indices of each dimension of the tensor.
    pub axes: Vec<Picked>,
}

/// Indices `start`, `start + step`, ... of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picked {
    /// The first index; within the dimension unless `count` is 0.
    pub start: u64,
    /// The distance between indices, at least 1.
    pub step: u64,
    /// Number of indices.
    pub count: u64,
    /// True where an integer selected the dimension, which is removed from the result.
    pub squeezed: bool,
}

impl Slice {
    /// Returns the slice of all elements.
    pub fn all() -> Self {
        Self::default()
    }

    /// Parses `[...]`, brackets included. Spaces and a trailing comma are allowed.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], code `bad-slice`, for text that is not a slice, or an unsupported one: steps below 1, new axes, lists
    /// of indices.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(inner) = text.trim().strip_prefix('[').and_then(|t| t.strip_suffix(']')) else {
            return Err(bad(text, "a slice must be in brackets"));
        };
        let inner = inner.trim();
        let inner = inner.strip_suffix(',').unwrap_or(inner);
        let parts =
            inner.split(',').map(|part| Part::parse(part.trim(), text)).collect::<Result<Vec<_>>>()?;
        if parts.iter().filter(|part| **part == Part::Rest).count() > 1 {
            return Err(bad(text, "a slice can contain `...` only once"));
        }
        Ok(Self(parts))
    }

    /// Applies the slice to `shape`.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`]: `too-many-indices`, or `index-out-of-range` for an integer outside of its dimension.
    pub fn select(&self, shape: &Shape) -> Result<Taken> {
        let named = self.0.iter().filter(|part| **part != Part::Rest).count();
        let Some(left) = shape.rank().checked_sub(named) else {
            return Err(Error::usage("too-many-indices", "the slice has more indices than dimensions")
                .expected(format_args!("at most {}, for shape {shape}", shape.rank()))
                .found(named));
        };
        // Without `...`, the remaining dimensions are at the end.
        let rest = [Part::Rest];
        let open_end = if self.0.contains(&Part::Rest) { &[][..] } else { &rest };
        let mut axes = Vec::with_capacity(shape.rank());
        for part in self.0.iter().chain(open_end) {
            let axis = axes.len();
            match *part {
                Part::Rest => axes.extend(shape.dims()[axis..axis + left].iter().map(|&d| Picked::whole(d))),
                Part::Index(index) => axes.push(Picked::index(index, axis, shape)?),
                Part::Range { from, to, step } => {
                    axes.push(Picked::range(from, to, step, shape.dims()[axis]))
                }
            }
        }
        Ok(Taken { axes })
    }
}

impl Part {
    fn parse(part: &str, whole: &str) -> Result<Self> {
        if part == "..." {
            return Ok(Self::Rest);
        }
        if !part.contains(':') {
            return integer(part).map(Self::Index).ok_or_else(|| not_index(part, whole));
        }
        let fields: Vec<&str> = part.split(':').map(str::trim).collect();
        let number = |field: Option<&&str>| match field {
            None | Some(&"") => Ok(None),
            Some(field) => integer(field).map(Some).ok_or_else(|| not_index(field, whole)),
        };
        if fields.len() > 3 {
            return Err(bad(whole, "a range has at most two colons"));
        }
        let step = number(fields.get(2))?.unwrap_or(1);
        match u64::try_from(step) {
            Ok(step) if step > 0 => {
                Ok(Self::Range { from: number(fields.first())?, to: number(fields.get(1))?, step })
            }
            _ => Err(bad(whole, "the step of a range must be 1 or more")),
        }
    }
}

/// Parses a decimal integer with an optional sign. Values beyond 64 bits become the nearest one that fits: bounds are clamped,
/// and indices are out of range in any case.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse::<i64>().unwrap_or(i64::MAX);
    Some(if negative { -size } else { size })
}

fn bad(text: &str, why: impl Into<String>) -> Error {
    Error::usage("bad-slice", why)
        .found(crate::text::escape(text))
        .hint("write a slice such as [0:3, :], [5], [-1], [::2] or [..., 0]")
}

/// Returns the error for text that is not an index.
fn not_index(part: &str, whole: &str) -> Error {
    let quote = part.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let is_first = || whole.trim_start().trim_start_matches('[').trim_start().starts_with(part);
    match quote {
        Some(quote) if whole.matches(quote).count() == 1 => bad(whole, "the row name has no closing quote"),
        Some(_) if !is_first() => bad(whole, "a row name is only valid as the first index"),
        _ => bad(whole, format!("`{}` is not an index", crate::text::escape(part))),
    }
}

impl Picked {
    fn whole(extent: u64) -> Self {
        Self { start: 0, step: 1, count: extent, squeezed: false }
    }

    fn index(index: i64, axis: usize, shape: &Shape) -> Result<Self> {
        let extent = shape.dims()[axis];
        let place = if index < 0 {
            extent.checked_sub(index.unsigned_abs())
        } else {
            Some(index.unsigned_abs()).filter(|&place| place < extent)
        };
        match place {
            Some(start) => Ok(Self { start, step: 1, count: 1, squeezed: true }),
            None => Err(Error::usage(
                "index-out-of-range",
                format!("index {index} is out of range for dimension {axis} of size {extent}"),
            )
            .hint(match extent {
                0 => format!("the shape is {shape}; the dimension is empty"),
                _ => format!("the shape is {shape}; indices go from -{extent} to {}", extent - 1),
            })),
        }
    }

    fn range(from: Option<i64>, to: Option<i64>, step: u64, extent: u64) -> Self {
        let clamp = |bound: i64| match bound {
            b if b < 0 => extent.saturating_sub(b.unsigned_abs()),
            b => b.unsigned_abs().min(extent),
        };
        let start = from.map_or(0, clamp);
        let end = to.map_or(extent, clamp);
        Self { start, step, count: end.saturating_sub(start).div_ceil(step), squeezed: false }
    }

    /// Returns the index at `place`, counted from 0, in the tensor's own dimension.
    pub fn at(&self, place: u64) -> u64 {
        self.start + place * self.step
    }
}

impl Taken {
    /// Returns the shape of the result: without the dimensions that an integer removed.
    pub fn shape(&self) -> Shape {
        Shape::new(self.axes.iter().filter(|a| !a.squeezed).map(|a| a.count).collect::<Vec<_>>())
    }

    /// Returns the selected box of the tensor, with removed dimensions of size 1; `None` where a step leaves gaps.
    pub fn region(&self) -> Option<Region> {
        let dense = self.axes.iter().all(|a| a.step == 1 || a.count <= 1);
        dense.then(|| Region {
            start: self.axes.iter().map(|a| a.start).collect(),
            shape: self.axes.iter().map(|a| a.count).collect(),
        })
    }
}

/// Resolves `text` to a tensor and a slice: a name, a name with a slice, or a slice of the only tensor.
///
/// Names may contain brackets, so the whole text is tried as a name first. In a table with row names, the first index can be a
/// row name in quotes: `embeddings.user['alice']`.
///
/// # Errors
/// As [`Checkpoint::tensor`] for the name, and [`Slice::parse`] for the slice.
pub fn resolve<'a>(checkpoint: &'a Checkpoint, text: &str) -> Result<(&'a TensorEntry, Slice)> {
    let error = match resolve_exactly(checkpoint, text) {
        Err(error) if error.code() == ErrorCode::NoSuchTensor && checkpoint.format == "biggraph" => error,
        done => return done,
    };
    match resolve_exactly(checkpoint, &format!("embeddings.{text}")) {
        Err(other) if other.code() == ErrorCode::NoSuchTensor => Err(error),
        done => done,
    }
}

fn resolve_exactly<'a>(checkpoint: &'a Checkpoint, text: &str) -> Result<(&'a TensorEntry, Slice)> {
    let whole = match checkpoint.tensor(text) {
        Ok(entry) => return Ok((entry, Slice::all())),
        Err(error) => error,
    };
    if whole.code() == ErrorCode::NoSuchTensor
        && let Some(named) = by_row_name(checkpoint, text.trim_end())
    {
        return named;
    }
    if whole.code() == ErrorCode::NoSuchTensor
        && let Some(entry) = before_open_bracket(checkpoint, text.trim_end())
    {
        return Err(bad(text, "the slice has no closing bracket")
            .on_tensor(entry.name())
            .expected("] at the end"));
    }
    if let ([only], true) = (checkpoint.tensors.as_slice(), text.starts_with('['))
        && let Ok(slice) = Slice::parse(text)
    {
        return Ok((only, slice));
    }
    let split = text.trim_end().ends_with(']').then(|| text.rfind('[')).flatten().filter(|&at| at > 0);
    let (Some(at), ErrorCode::NoSuchTensor) = (split, whole.code()) else { return Err(whole) };
    let (name, slice) = text.split_at(at);
    match (checkpoint.tensor(name.trim_end()), Slice::parse(slice)) {
        (Ok(entry), Ok(slice)) => Ok((entry, slice)),
        (Ok(entry), Err(error)) => Err(unquoted(entry, slice).unwrap_or(error).on_tensor(entry.name())),
        (Err(error), Ok(_)) => Err(error),
        (Err(_), Err(_)) => Err(whole),
    }
}

/// Returns the error for a row name without quotes: a shell removes those around a whole argument.
fn unquoted(entry: &TensorEntry, slice: &str) -> Option<Error> {
    entry.row_names.as_ref()?;
    let first = slice.trim().strip_prefix('[')?.trim_end_matches(']').split(',').next()?.trim();
    if first.is_empty() || first.contains(['\'', '"', ':']) || Part::parse(first, slice).is_ok() {
        return None;
    }
    let error = Error::usage("bad-slice", format!("`{}` is not an index", crate::text::escape(first)));
    let example = format!("{}['{first}']", entry.name());
    Some(error.found(crate::text::escape(slice)).hint(format_args!(
        "a row name needs quotes inside the brackets, and the shell needs quotes outside: \"{}\"",
        crate::text::escape(&example)
    )))
}

/// Returns the only tensor of a checkpoint, which needs no name.
///
/// # Errors
/// [`crate::Kind::Usage`], `name-missing`, unless there is exactly one tensor.
pub fn only(checkpoint: &Checkpoint) -> Result<&TensorEntry> {
    match checkpoint.tensors.as_slice() {
        [only] => Ok(only),
        tensors => Err(Error::usage("name-missing", "no tensor name is given")
            .in_file(&checkpoint.label)
            .found(counted(tensors.len() as u64, "tensor", "tensors"))
            .hint(format_args!(
                "use one of the names that `ls` lists, such as {}",
                tensors.first().map_or_else(|| "fc1.w".to_owned(), TensorEntry::name)
            ))),
    }
}

/// Returns the tensor before an unclosed bracket.
fn before_open_bracket<'a>(checkpoint: &'a Checkpoint, text: &str) -> Option<&'a TensorEntry> {
    let (mut places, closed) = (text.match_indices('['), text.ends_with(']'));
    let named = |(at, _): (usize, &str)| checkpoint.tensor(text[..at].trim_end()).ok();
    if closed { None } else { places.find_map(named) }
}

/// Resolves a row name in quotes; `None` where `text` has none. A slice of the other dimensions may follow the row name.
fn by_row_name<'a>(checkpoint: &'a Checkpoint, text: &str) -> Option<Result<(&'a TensorEntry, Slice)>> {
    let starts = text.match_indices('[').filter_map(|(at, _)| {
        let inner = text[at + 1..].trim_start();
        let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (row_name, rest) = inner[1..].rsplit_once(quote)?;
        let rest = rest.trim_start();
        (rest.starts_with(']') || rest.starts_with(',')).then_some((at, row_name, rest))
    });
    for (at, row_name, rest) in starts {
        // The text up to a later bracket may be a tensor name.
        let Ok(entry) = checkpoint.tensor(text[..at].trim_end()) else { continue };
        return Some(
            row_of(checkpoint, entry, row_name)
                .and_then(|row| Ok((entry, Slice::parse(&format!("[{row}{rest}"))?))),
        );
    }
    None
}

/// Returns the row of a table with that name. Several rows of one name are an error.
pub(super) fn row_of(checkpoint: &Checkpoint, entry: &TensorEntry, row_name: &str) -> Result<usize> {
    let relations = formats::ALL.iter().find_map(|format| format.row_names(checkpoint, entry));
    let list = match (&entry.row_names, relations) {
        (Some(names), _) => Some(names.read()?),
        (None, Some(relations)) => Some(Arc::new(relations)),
        (None, None) => None,
    };
    let Some(list) = list else {
        // Where names were searched for, a note has the reason why there are none.
        let why = checkpoint.notes.iter().find(|note| NO_NAMES.contains(&note.code));
        let default = || match checkpoint.format {
            "biggraph" => {
                phrase!["use a row number, or set the folder of the names: ", Opt::Entities.any("FOLDER")]
            }
            _ => "use a row number".into(),
        };
        return Err(Error::usage("no-row-names", "the tensor has no row names")
            .on_tensor(entry.name())
            .hint(why.map_or_else(default, |note| note.text.clone())));
    };
    let mut rows = list.iter().enumerate().filter(|(_, name)| *name == row_name).map(|(row, _)| row);
    let first = rows.next();
    if let (Some(first), Some(next)) = (first, rows.next()) {
        return Err(Error::mismatch("name-twice", "duplicate row name")
            .on_tensor(entry.name())
            .expected("one row of this name")
            .found(format_args!("{}: rows {first} and {next}", crate::text::escape(row_name)))
            .hint("select a row by its number"));
    }
    first.ok_or_else(|| {
        let near = near(|| list.iter(), row_name, 3);
        let near: Vec<_> = near.into_iter().map(crate::text::escape).collect();
        let error = Error::mismatch("no-such-row", "no row has this name")
            .on_tensor(entry.name())
            .found(crate::text::escape(row_name));
        if near.is_empty() { error } else { error.hint(format_args!("did you mean {}?", near.join(", "))) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Name, Role, TensorPath};
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding};
    use std::sync::Arc;

    fn select(text: &str, dims: &[u64]) -> Result<Taken> {
        Slice::parse(text)?.select(&Shape::new(dims))
    }

    /// Start and extent of each dimension, and the shape of the result.
    fn region(text: &str, dims: &[u64]) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let selection = select(text, dims).unwrap();
        let region = selection.region().unwrap();
        assert!(region.fits(&Shape::new(dims)), "{text}");
        (region.start, region.shape, selection.shape().dims().to_vec())
    }

    #[test]
    fn boxes() {
        assert_eq!(region("[0:3,:]", &[12, 2]), (vec![0, 0], vec![3, 2], vec![3, 2]));
        assert_eq!(region("[5]", &[12, 2]), (vec![5, 0], vec![1, 2], vec![2]));
        assert_eq!(region(" [ -1 , ] ", &[12, 2]), (vec![11, 0], vec![1, 2], vec![2]));
        assert_eq!(region("[...]", &[12, 2]), (vec![0, 0], vec![12, 2], vec![12, 2]));
        assert_eq!(region("[...]", &[]), (vec![], vec![], vec![]));
        assert_eq!(region("[..., 0]", &[4, 3, 2]), (vec![0, 0, 0], vec![4, 3, 1], vec![4, 3]));
        assert_eq!(region("[1, ..., -2]", &[4, 3]), (vec![1, 1], vec![1, 1], vec![]));
        assert_eq!(region("[-3:-1]", &[10]), (vec![7], vec![2], vec![2]));
        assert_eq!(region("[-30:99999999999999999999]", &[10]), (vec![0], vec![10], vec![10]));
        assert_eq!(region("[7:3]", &[10]).2, [0]);
        assert_eq!(region("[20:]", &[10]).2, [0]);
        assert_eq!(region("[:]", &[0]).2, [0]);
        assert_eq!(region("[9::4]", &[10]), (vec![9], vec![1], vec![1]));
    }

    #[test]
    fn steps() {
        for extent in 0..12u64 {
            for from in 0..14u64 {
                for to in 0..14u64 {
                    for step in 1..5u64 {
                        let selection = select(&format!("[{from}:{to}:{step}]"), &[extent]).unwrap();
                        let axis = selection.axes[0];
                        let taken: Vec<u64> = (0..axis.count).map(|place| axis.at(place)).collect();
                        let expected: Vec<u64> =
                            (from..to.min(extent)).step_by(usize::try_from(step).unwrap()).collect();
                        assert_eq!(taken, expected);
                    }
                }
            }
        }
        assert_eq!(select("[::2]", &[5]).unwrap().region(), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for text in [
            "[",
            "[]",
            "[a]",
            "[1.5]",
            "[::0]",
            "[::-1]",
            "[1:2:3:4]",
            "[..., ...]",
            "[None]",
            "[,]",
            "[1,,2]",
            "[--1]",
        ] {
            assert_eq!(Slice::parse(text).unwrap_err().code().as_str(), "bad-slice", "{text}");
        }
        for (text, dims) in
            [("[3]", &[3][..]), ("[0, -4]", &[5, 3]), ("[0]", &[0]), ("[-99999999999999999999]", &[9])]
        {
            let error = select(text, dims).unwrap_err();
            assert_eq!(error.code().as_str(), "index-out-of-range", "{text}");
        }
        let error = select("[0, -4]", &[5, 3]).unwrap_err();
        assert_eq!(error.message(), "index -4 is out of range for dimension 1 of size 3");
        assert_eq!(select("[0, 0, ...]", &[5]).unwrap_err().code().as_str(), "too-many-indices");
    }

    #[test]
    fn names_with_brackets() {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 16]));
        let mut checkpoint = Checkpoint::new("test", "test", "m");
        for (parts, slot) in [
            (&["fc1", "w"][..], None),
            (&["fc1", "w"], Some("Adam.m1")),
            (&["odd[0]"], None),
            (&["odd"], None),
        ] {
            let path = TensorPath::new(parts.iter().map(|&p| Name::from(p)).collect::<Vec<_>>());
            let mut entry =
                TensorEntry::dense(path, DType::F32, Shape::from([2, 2]), &source, 0, Encoding::ROW).unwrap();
            if let Some(slot) = slot {
                entry.role = Role::OptimizerState { slot: Name::from(slot) };
            }
            checkpoint.tensors.push(entry);
        }
        let found = |text: &str| {
            let (entry, slice) = resolve(&checkpoint, text).unwrap();
            (entry.text(), slice)
        };
        let first = Slice::parse("[0]").unwrap();
        for (text, name, slice) in [
            ("fc1.w", "fc1.w", Slice::all()),
            ("fc1.w[0]", "fc1.w", first.clone()),
            ("fc1.w [0]", "fc1.w", first.clone()),
            (r#"["fc1","w"]"#, "fc1.w", Slice::all()),
            (r#"["fc1","w"][0]"#, "fc1.w", first.clone()),
            ("fc1.w/Adam.m1[0]", "fc1.w/Adam.m1", first.clone()),
            (r#"["fc1","w"]/Adam.m1"#, "fc1.w/Adam.m1", Slice::all()),
            (r#"["fc1","w"]/Adam.m1[0]"#, "fc1.w/Adam.m1", first.clone()),
            ("odd[0]", "odd[0]", Slice::all()),
            ("odd[0][0]", "odd[0]", first.clone()),
            ("odd[1]", "odd", Slice::parse("[1]").unwrap()),
        ] {
            assert_eq!(found(text), (name.to_owned(), slice), "{text}");
        }
        let code = |text: &str| resolve(&checkpoint, text).unwrap_err().code().as_str();
        assert_eq!(code("fc1.w[x]"), "bad-slice");
        assert_eq!(code("fc2.w[0]"), "no-such-tensor");
        assert_eq!(code("[0]"), "no-such-tensor");
        assert_eq!(code(""), "no-such-tensor");
    }

    #[test]
    fn rows_are_found_by_name() {
        let mut checkpoint = Checkpoint::new("x", "y", "z");
        let source: SourceRef = std::sync::Arc::new(MemorySource::new("m", vec![0; 32]));
        let path = TensorPath::from_dotted("embeddings.user");
        let mut entry =
            TensorEntry::dense(path, DType::F32, Shape::from([4, 2]), &source, 0, Encoding::ROW).unwrap();
        let names = ["alice", "b[0]", "it's", "x, y"];
        entry.row_names = Some(crate::checkpoint::MemoryRowNames::shared("n", names.into_iter().collect()));
        checkpoint.tensors = vec![
            entry.clone(),
            TensorEntry { path: TensorPath::from_dotted("plain"), row_names: None, ..entry },
        ];
        let found = |text: &str| resolve(&checkpoint, text).map(|(_, slice)| slice);
        for (row, name) in names.iter().enumerate() {
            let slice = found(&format!("embeddings.user[\"{name}\"]")).unwrap();
            assert_eq!(slice, Slice::parse(&format!("[{row}]")).unwrap(), "{name}");
            assert_eq!(
                found(&format!("embeddings.user['{name}', 1]")).unwrap(),
                Slice::parse(&format!("[{row}, 1]")).unwrap()
            );
        }
        assert_eq!(found("embeddings.user['bob']").unwrap_err().code().as_str(), "no-such-row");
        assert!(found("embeddings.user['Ali']").unwrap_err().hint_text().unwrap().contains("alice"));
        // Nothing contains it, but one letter is wrong.
        assert!(found("embeddings.user['alicf']").unwrap_err().hint_text().unwrap().contains("alice"));
        let error = found("plain['alice']").unwrap_err();
        assert_eq!(error.code().as_str(), "no-row-names");
        assert_eq!(error.hint_text(), Some("use a row number"));
        checkpoint.format = "biggraph";
        let error = resolve(&checkpoint, "plain['alice']").unwrap_err();
        assert!(error.hint_text().unwrap().contains("`entities FOLDER`"));
        checkpoint.format = "x";
        let found = |text: &str| resolve(&checkpoint, text).map(|(_, slice)| slice);
        assert_eq!(found("other['alice']").unwrap_err().code().as_str(), "no-such-tensor");
        // Two rows of one name.
        let names = ["alice", "bob", "bob", "x"];
        checkpoint.tensors[0].row_names =
            Some(crate::checkpoint::MemoryRowNames::shared("n", names.into_iter().collect()));
        let found = |text: &str| resolve(&checkpoint, text).map(|(_, slice)| slice);
        assert!(found("embeddings.user['x']").is_ok());
        let error = found("embeddings.user['bob']").unwrap_err();
        assert_eq!((error.code().as_str(), error.found_text()), ("name-twice", Some("bob: rows 1 and 2")));
        // Where they were looked for, the reason is known.
        checkpoint.notes.push(crate::checkpoint::Note::new("counts-differ", "other entities"));
        let error = resolve(&checkpoint, "plain['alice']").unwrap_err();
        assert_eq!(error.hint_text(), Some("other entities"));
    }
}
