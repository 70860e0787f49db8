//! Partitions of a type, joined to one table.

use super::part::{Part, STEP, table_path};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Note, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::Shape;
use weighbridge_io::source::SourceRef;

/// Table and its optimizer state.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Table, if any of its partitions is readable.
    pub(super) rows: Option<TensorEntry>,
    /// Optimizer sums, if all partitions have them.
    pub(super) sum: Option<TensorEntry>,
    /// Row count of each partition; `Null` for a missing one.
    pub(super) counts: Vec<Value>,
    /// Optimizer options of each partition.
    pub(super) optimizers: Vec<Value>,
    /// Notes.
    pub(super) notes: Vec<Note>,
}

/// Joins the partitions of `entity` in order; there should be `count`.
///
/// # Errors
/// `embeddings-shape` and `partitions-differ` if they are not parts of one table.
pub(super) fn join(entity: &str, count: u64, mut parts: BTreeMap<u64, (SourceRef, Part)>) -> Result<Table> {
    let mut table = Table::default();
    let mut rows: Vec<TensorEntry> = Vec::with_capacity(parts.len());
    let mut sums: Vec<TensorEntry> = Vec::new();
    let mut steps: Vec<Value> = Vec::new();
    for part in 0..count {
        let Some((source, part)) = parts.remove(&part) else {
            table.counts.push(Value::Null);
            table.optimizers.push(Value::Null);
            continue;
        };
        part.check_table(&source)?;
        if let Some(first) = rows.first() {
            check_alike(first, &part.rows, &source)?;
        }
        table.counts.push(part.row_count().map_or(Value::Null, Value::U64));
        table.optimizers.push(part.optimizer);
        table.notes.extend(part.notes);
        rows.push(part.rows);
        sums.extend(part.sum);
        // One entry per existing partition, or entries would be assigned to others.
        steps.push(part.step.unwrap_or(Value::Null));
    }
    if !sums.is_empty() && (sums.len() < rows.len() || sums.iter().any(|s| s.stored != sums[0].stored)) {
        let text = format!(
            "{}: optimizer state dropped: only {} of {} partitions have the same kind of state",
            table_path(Some(entity)),
            sums.len(),
            rows.len()
        );
        table.notes.push(Note::omission("state-incomplete", text));
        sums.clear();
    }
    table.rows = one_below_the_other(rows)?;
    table.sum = one_below_the_other(sums)?;
    if let Some(sum) = &mut table.sum
        && steps.iter().any(|step| *step != Value::Null)
        && let Some(first) = steps.first().cloned()
    {
        let same = steps.iter().all(|step| *step == first);
        sum.attributes.insert(STEP.to_owned(), if same { first } else { Value::List(steps) });
    }
    Ok(table)
}

/// Fails unless two partitions have the same dtype and dimension.
fn check_alike(first: &TensorEntry, other: &TensorEntry, source: &SourceRef) -> Result<()> {
    let kind = |entry: &TensorEntry| (entry.stored, entry.shape.dims().get(1).copied());
    if kind(first) == kind(other) {
        return Ok(());
    }
    let shown = |entry: &TensorEntry| format!("{} {}", entry.stored, entry.shape);
    Err(Error::corrupt("partitions-differ", "the partitions of a table have different dtypes or dimensions")
        .in_file(source.label())
        .on_tensor(&first.path)
        .expected(format_args!("as in the first partition, {}", shown(first)))
        .found(shown(other)))
}

/// Concatenates tensors that differ only in the number of rows. No bytes move.
fn one_below_the_other(tensors: Vec<TensorEntry>) -> Result<Option<TensorEntry>> {
    let mut all = tensors.into_iter();
    let Some(mut whole) = all.next() else { return Ok(None) };
    let mut dims = whole.shape.dims().to_vec();
    let shape = whole.shape.clone();
    whole.extents.iter_mut().for_each(|extent| extent.move_down(0, &shape));
    for next in all {
        let start = dims[0];
        let end = next.shape.dims().first().and_then(|rows| start.checked_add(*rows));
        dims[0] = end.ok_or_else(|| {
            Error::corrupt("shape-overflow", "the row count of all partitions overflows 64 bits")
                .on_tensor(&whole.path)
        })?;
        for mut extent in next.extents {
            extent.move_down(start, &next.shape);
            whole.extents.push(extent);
        }
    }
    whole.shape = Shape::new(dims);
    Ok(Some(whole))
}
