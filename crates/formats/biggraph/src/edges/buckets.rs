//! Columns of an edge index, grouped by bucket.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};

/// Attribute of a column with its bucket: the partitions of both sides.
pub(crate) const BUCKET: &str = "bucket";
/// Columns of an edge file, in upstream's order.
pub(crate) const COLUMNS: [&str; 8] =
    ["lhs", "rhs", "rel", "lhsd_offsets", "lhsd_data", "rhsd_offsets", "rhsd_data", "weight"];
/// Maximum number of buckets listed in an error.
const MAX_SHOWN: usize = 5;

/// End of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// Name of its id column.
    pub(crate) fn ids(self) -> &'static str {
        ["lhs", "rhs"][self as usize]
    }
    /// Name of the column with the start of each edge's feature list.
    pub(crate) fn offsets(self) -> &'static str {
        ["lhsd_offsets", "rhsd_offsets"][self as usize]
    }
    /// Name of the feature column.
    pub(crate) fn data(self) -> &'static str {
        ["lhsd_data", "rhsd_data"][self as usize]
    }
}

/// Columns of one edge file.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Partitions of the left and the right side; `None` for a single file.
    pub(crate) parts: Option<[u64; 2]>,
    /// Columns in file order.
    pub(crate) columns: Vec<TensorEntry>,
}

impl Bucket {
    /// Column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&TensorEntry> {
        self.columns.iter().find(|c| column_name(c) == Some(name))
    }

    /// Column of this name, required.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `no-such-column`.
    pub(crate) fn needed(&self, name: &str) -> Result<&TensorEntry> {
        self.column(name).ok_or_else(|| {
            Error::mismatch("no-such-column", format!("{self} have no column `{name}`"))
                .expected("columns lhs, rhs and rel, one element an edge")
        })
    }

    /// Number of edges.
    ///
    /// # Errors
    /// Like [`needed`](Self::needed).
    pub(crate) fn edges(&self) -> Result<u64> {
        self.needed("rel").map(TensorEntry::elements)
    }

    /// Compares the lengths of the columns.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-such-column`, `columns-differ` for a wrong length,
    /// `not-a-column` for more than one dimension.
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
                return Err(Error::mismatch("not-a-column", "an edge column must have one dimension")
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
                    "the columns of an edge file have inconsistent lengths",
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

/// Name of an edge column.
pub(crate) fn column_name(entry: &TensorEntry) -> Option<&str> {
    entry.path.parts().last().and_then(Name::as_str)
}

/// True for an edge column.
pub(crate) fn is_column(entry: &TensorEntry) -> bool {
    let named = column_name(entry).is_some_and(|name| COLUMNS.contains(&name));
    entry.role == Role::Edges || named && !entry.role.is_state() && entry.shape.rank() == 1
}

/// Buckets of a checkpoint, in its order.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-edges` without edge columns, `no-bucket` if a column
/// does not name its bucket; and the errors of [`Bucket::check`].
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
        return Err(Error::mismatch("no-edges", "no edge columns")
            .in_file(&checkpoint.label)
            .expected("tensors lhs, rhs and rel, of one dimension")
            .hint("edges are files edges_L_R.h5 in a folder, as an import makes them of an edge list"));
    }
    if all.len() > 1 && all.iter().any(|b| b.parts.is_none()) {
        return Err(Error::mismatch("no-bucket", "some columns do not name their edge bucket")
            .in_file(&checkpoint.label)
            .hint("name the columns L_R.lhs, L_R.rhs, …, where L and R are the partitions of both sides"));
    }
    all.iter().try_for_each(Bucket::check)?;
    Ok(all)
}

/// Fails if a bucket is missing among `left` times `right` partitions: its edges would be
/// silently lost.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], code `bucket-missing`, with the first missing buckets.
pub(crate) fn check_all(buckets: &[Bucket], [left, right]: [u64; 2]) -> Result<()> {
    // A single file is the only bucket.
    let have: HashSet<[u64; 2]> = buckets.iter().map(|b| b.parts.unwrap_or([0, 0])).collect();
    let all = (0..left).flat_map(|l| (0..right).map(move |r| [l, r]));
    // The search ends early whatever the bounds: it skips only existing buckets.
    let mut missing = all.filter(|parts| !have.contains(parts));
    let named: Vec<String> =
        missing.by_ref().take(MAX_SHOWN).map(|[l, r]| format!("edges_{l}_{r}.h5")).collect();
    if named.is_empty() {
        return Ok(());
    }
    let more = if missing.next().is_some() { " and more" } else { "" };
    Err(Error::mismatch("bucket-missing", "edge buckets are missing")
        .expected(format_args!("{left} times {right} buckets"))
        .found(format_args!("no {}{more}", named.join(", ")))
        .hint("create a file for each bucket, also for buckets without edges"))
}

/// Fails if a bucket is outside of `left` times `right` partitions: where an entity type has one partition, ids of others would be
/// read as its rows.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], code `no-such-partition`, with the first such bucket.
pub(crate) fn check_none_outside(buckets: &[Bucket], [left, right]: [u64; 2]) -> Result<()> {
    let parts = buckets.iter().filter_map(|bucket| bucket.parts);
    match parts.into_iter().find(|[l, r]| *l >= left || *r >= right) {
        None => Ok(()),
        Some([l, r]) => {
            let text = "the edges have more partitions than the entity types of the configuration";
            Err(Error::mismatch("no-such-partition", text)
                .expected(format_args!("{left} times {right} buckets"))
                .found(format_args!("edges_{l}_{r}.h5"))
                .hint("use the configuration that these edges were made with"))
        }
    }
}

/// Bucket of a column: its attribute, or the second to last part of its path.
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
        Error::mismatch("no-bucket", "the column does not name its edge bucket")
            .on_tensor(entry.name())
            .expected("L_R before its name: the partitions of both sides")
            .found(bucket)
    })
}

/// Value of the attribute [`BUCKET`].
pub(crate) fn bucket_value([left, right]: [u64; 2]) -> Value {
    Value::List(vec![Value::U64(left), Value::U64(right)])
}
