//! The columns of an index of edges, sorted into the buckets they belong to.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};

/// The attribute of a column that says which bucket it is of: the partitions of both sides.
pub(crate) const BUCKET: &str = "bucket";
/// The columns of an edge file, in the order in which upstream makes them.
pub(crate) const COLUMNS: [&str; 8] =
    ["lhs", "rhs", "rel", "lhsd_offsets", "lhsd_data", "rhsd_offsets", "rhsd_data", "weight"];
/// Buckets that an error names, at most.
const SHOWN: usize = 5;

/// One of the two ends of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// The name of its column of ids.
    pub(crate) fn ids(self) -> &'static str {
        ["lhs", "rhs"][self as usize]
    }
    /// The name of the column that says where each edge's list of features begins.
    pub(crate) fn offsets(self) -> &'static str {
        ["lhsd_offsets", "rhsd_offsets"][self as usize]
    }
    /// The name of the column of features.
    pub(crate) fn data(self) -> &'static str {
        ["lhsd_data", "rhsd_data"][self as usize]
    }
}

/// The columns of one edge file.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// The partitions of the left and the right side; `None` for a file that stands alone.
    pub(crate) parts: Option<[u64; 2]>,
    /// The columns in the order of the file.
    pub(crate) columns: Vec<TensorEntry>,
}

impl Bucket {
    /// The column of that name.
    pub(crate) fn column(&self, name: &str) -> Option<&TensorEntry> {
        self.columns.iter().find(|c| column_name(c) == Some(name))
    }

    /// The column of that name.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `no-such-column`.
    pub(crate) fn needed(&self, name: &str) -> Result<&TensorEntry> {
        self.column(name).ok_or_else(|| {
            Error::mismatch("no-such-column", format!("{self} have no column `{name}`"))
                .expected("columns lhs, rhs and rel, one element an edge")
        })
    }

    /// The number of edges.
    ///
    /// # Errors
    /// As [`needed`](Self::needed).
    pub(crate) fn edges(&self) -> Result<u64> {
        self.needed("rel").map(TensorEntry::elements)
    }

    /// Holds the lengths of the columns against each other.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-such-column`, `columns-differ` where one is not as long as it
    /// must be, `not-a-column` where one is a table.
    pub(crate) fn check(&self) -> Result<()> {
        let edges = self.edges()?;
        for side in Side::BOTH {
            self.needed(side.ids())?;
            if self.column(side.offsets()).is_some() || self.column(side.data()).is_some() {
                self.needed(side.offsets())?;
                self.needed(side.data())?;
            }
        }
        for column in &self.columns {
            if column.shape.rank() != 1 {
                return Err(Error::mismatch("not-a-column", "a column of edges has one dimension")
                    .on_tensor(column.name())
                    .found(&column.shape));
            }
            let expected = match column_name(column) {
                Some("lhsd_offsets" | "rhsd_offsets") => edges.saturating_add(1),
                Some("lhsd_data" | "rhsd_data") => continue,
                _ => edges,
            };
            if column.elements() != expected {
                return Err(Error::mismatch(
                    "columns-differ",
                    "the columns of an edge file do not fit together",
                )
                .on_tensor(column.name())
                .expected(format_args!("{expected} elements for {edges} edges"))
                .found(column.elements()));
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parts {
            Some([left, right]) => write!(f, "the edges of bucket {left}, {right}"),
            None => f.write_str("the edges"),
        }
    }
}

/// The name of a column of edges.
pub(crate) fn column_name(entry: &TensorEntry) -> Option<&str> {
    entry.path.parts().last().and_then(Name::as_str)
}

/// True where a tensor is a column of edges.
pub(crate) fn is_column(entry: &TensorEntry) -> bool {
    let named = column_name(entry).is_some_and(|name| COLUMNS.contains(&name));
    entry.role == Role::Edges || named && !entry.role.is_state() && entry.shape.rank() == 1
}

/// The buckets of a checkpoint, in the order in which they stand there.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-edges` where it has no columns of edges, `no-bucket` where a column
/// does not say which file it is of, and as [`Bucket::check`].
pub(crate) fn buckets(checkpoint: &Checkpoint) -> Result<Vec<Bucket>> {
    let mut all: Vec<Bucket> = Vec::new();
    let mut places = HashMap::new();
    for entry in checkpoint.tensors.iter().filter(|t| is_column(t)) {
        let parts = parts_of(entry)?;
        let place = *places.entry(parts).or_insert_with(|| {
            all.push(Bucket { parts, columns: Vec::new() });
            all.len() - 1
        });
        all[place].columns.push(entry.clone());
    }
    if all.is_empty() {
        return Err(Error::mismatch("no-edges", "there are no columns of edges")
            .in_file(&checkpoint.label)
            .expected("tensors lhs, rhs and rel, of one dimension"));
    }
    if all.len() > 1 && all.iter().any(|b| b.parts.is_none()) {
        return Err(Error::mismatch("no-bucket", "some columns do not say which bucket they are of")
            .in_file(&checkpoint.label)
            .hint("a column is called L_R.lhs, L_R.rhs, …: L and R are the partitions of both sides"));
    }
    all.iter().try_for_each(Bucket::check)?;
    Ok(all)
}

/// Fails where a bucket is not there of all that so many partitions of the left and the right side
/// make: its edges would be lost without a word.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], code `bucket-missing`, with the first of them.
pub(crate) fn check_all(buckets: &[Bucket], [left, right]: [u64; 2]) -> Result<()> {
    // What stands alone is the only bucket.
    let have: HashSet<[u64; 2]> = buckets.iter().map(|b| b.parts.unwrap_or([0, 0])).collect();
    let all = (0..left).flat_map(|l| (0..right).map(move |r| [l, r]));
    // The search ends soon, however many there are to be: only those that are there are passed.
    let mut missing = all.filter(|parts| !have.contains(parts));
    let named: Vec<String> = missing.by_ref().take(SHOWN).map(|[l, r]| format!("edges_{l}_{r}.h5")).collect();
    if named.is_empty() {
        return Ok(());
    }
    let more = if missing.next().is_some() { " and more" } else { "" };
    Err(Error::mismatch("bucket-missing", "buckets of edges are not there")
        .expected(format_args!("{left} times {right} buckets"))
        .found(format_args!("no {}{more}", named.join(", ")))
        .hint("an empty bucket needs a file too, with no edges in it"))
}

/// The bucket of a column: its attribute, or the part of its path before the last.
fn parts_of(entry: &TensorEntry) -> Result<Option<[u64; 2]>> {
    if let Some(Value::List(pair)) = entry.attributes.get(BUCKET)
        && let [Value::U64(left), Value::U64(right)] = pair[..]
    {
        return Ok(Some([left, right]));
    }
    let [.., bucket, _] = entry.path.parts() else { return Ok(None) };
    let number = |digits: &str| {
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        digits.parse().ok().filter(|_| plain)
    };
    let parts = || {
        let (left, right) = bucket.as_str()?.split_once('_')?;
        Some([number(left)?, number(right)?])
    };
    parts().map(Some).ok_or_else(|| {
        Error::mismatch("no-bucket", "this column does not say which bucket it is of")
            .on_tensor(entry.name())
            .expected("L_R before its name: the partitions of both sides")
            .found(bucket)
    })
}

/// The value of the attribute [`BUCKET`].
pub(crate) fn bucket_value([left, right]: [u64; 2]) -> Value {
    Value::List(vec![Value::U64(left), Value::U64(right)])
}
