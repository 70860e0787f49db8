//! Edge files: columns of equal length.

use super::file::{File, numbers};
use weighbridge_core::checkpoint::{Name, Note, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Columns of every file.
const IDS: [&str; 3] = ["lhs", "rhs", "rel"];
/// Feature lists of each side: the start of each edge's list, and all lists concatenated.
pub(in super::super) const LISTS: [(&str, &str); 2] =
    [("lhsd_offsets", "lhsd_data"), ("rhsd_offsets", "rhsd_data")];
/// Optional weights of edges.
const WEIGHT: &str = "weight";
/// Attribute of a column: the partitions of its left-hand and right-hand sides.
pub(in super::super) const BUCKET: &str = "bucket";

/// Columns of one file.
#[derive(Debug)]
pub(super) struct Edges {
    /// Columns in BigGraph's order.
    pub(super) columns: Vec<TensorEntry>,
    /// `format_version`, as stored.
    pub(super) version: Option<Value>,
    /// Notes.
    pub(super) notes: Vec<Note>,
}

/// Reads the columns of a file; their names begin with `prefix`.
///
/// # Errors
/// Errors of [`File::open`]; `dataset-missing`, `edge-shape`, `edge-columns` where BigGraph's reader
/// fails too.
pub(super) fn open(source: &SourceRef, prefix: Option<(u64, u64)>, options: &OpenOptions) -> Result<Edges> {
    let mut file = File::open(source, options)?;
    let all: Vec<&str> =
        IDS.into_iter().chain(LISTS.into_iter().flat_map(|(a, b)| [a, b])).chain([WEIGHT]).collect();
    file.note_unknown(|path| matches!(path, [one] if all.contains(&one.as_str())));
    let mut found = Columns { file: &file, prefix, columns: Vec::new(), notes: Vec::new() };
    let rel = found.column("rel")?.ok_or_else(|| file.missing(&["rel"]))?;
    let count = rel.elements();
    for name in ["lhs", "rhs"] {
        let column = found.column(name)?.ok_or_else(|| file.missing(&[name]))?;
        found.cut(name, column, count)?;
    }
    found.columns.push(rel);
    for (offsets, data) in LISTS {
        match (found.column(offsets)?, found.column(data)?) {
            (Some(starts), Some(lists)) => {
                found.cut(offsets, starts, count.saturating_add(1))?;
                found.columns.push(lists);
            }
            (Some(_), None) => return Err(file.missing(&[data])),
            (None, Some(_)) => {
                let text = format!("{}: {data} skipped: it has no {offsets}", source.label());
                found.notes.push(Note::omission("edge-lists", text));
            }
            (None, None) => {}
        }
    }
    if let Some(column) = found.column(WEIGHT)? {
        found.cut(WEIGHT, column, count)?;
    }
    let Columns { columns, notes, .. } = found;
    file.notes.extend(notes);
    let version = file.attribute(super::super::detect::FORMAT_VERSION).cloned();
    Ok(Edges { columns, version, notes: file.notes })
}

/// Columns under construction.
struct Columns<'a> {
    file: &'a File,
    prefix: Option<(u64, u64)>,
    columns: Vec<TensorEntry>,
    notes: Vec<Note>,
}

impl Columns<'_> {
    /// Column of this name, if the file has it.
    fn column(&self, name: &str) -> Result<Option<TensorEntry>> {
        let Some(dataset) = self.file.dataset(&[name]) else { return Ok(None) };
        let bucket = self.prefix.map(|(l, r)| Name::from(format!("{l}_{r}").as_str()));
        let path = TensorPath::new(bucket.into_iter().chain([Name::from(name)]).collect::<Vec<_>>());
        let fail = |e: Error| e.in_file(self.file.source.label());
        let mut entry = numbers(dataset, path).map_err(fail)?;
        if entry.shape.rank() != 1 {
            return Err(fail(
                Error::corrupt("edge-shape", "an edge column must have one dimension")
                    .on_tensor(&entry.path)
                    .found(&entry.shape),
            ));
        }
        entry.role = Role::Edges;
        if let Some((l, r)) = self.prefix {
            entry.attributes.insert(BUCKET.to_owned(), Value::List(vec![Value::U64(l), Value::U64(r)]));
        }
        Ok(Some(entry))
    }

    /// Takes the first `count` elements of a column. BigGraph ignores the rest, and fails
    /// for a shorter column.
    fn cut(&mut self, name: &str, column: TensorEntry, count: u64) -> Result<()> {
        let have = column.elements();
        if have < count {
            return Err(Error::corrupt("edge-columns", format!("the column {name} is shorter than rel"))
                .in_file(self.file.source.label())
                .on_tensor(&column.path)
                .expected(format_args!("{count} elements"))
                .found(have));
        }
        if have == count {
            self.columns.push(column);
            return Ok(());
        }
        let text = format!(
            "{}: the column {name} has {have} elements for {count} edges; the rest is ignored, \
             as BigGraph does",
            self.file.source.label()
        );
        self.notes.push(Note::omission("edge-columns", text));
        let cut = column.rows(0..count)?;
        self.columns.push(cut);
        Ok(())
    }
}
