//! The partitions of a type as one table.

use super::part::{Part, STEP, table_path};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Note, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::Shape;
use weighbridge_io::source::SourceRef;

/// A table and what the optimizer remembers about its rows.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The table, if any of its partitions could be read.
    pub(super) rows: Option<TensorEntry>,
    /// The sums of the optimizer, if all partitions have them.
    pub(super) sum: Option<TensorEntry>,
    /// The number of rows of each partition; `Null` for one that is not there.
    pub(super) counts: Vec<Value>,
    /// The options of the optimizer of each partition.
    pub(super) optimizers: Vec<Value>,
    /// What is odd.
    pub(super) notes: Vec<Note>,
}

/// Joins the partitions of `entity`, of which there should be `count`, in their order.
///
/// # Errors
/// `embeddings-shape` and `partitions-differ` where they are not parts of one table.
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
        // One for each partition that is there, or they would be dealt to others.
        steps.push(part.step.unwrap_or(Value::Null));
    }
    if !sums.is_empty() && (sums.len() < rows.len() || sums.iter().any(|s| s.stored != sums[0].stored)) {
        let text = format!(
            "{}: {} of {} partitions have optimizer state of one kind; it was left out",
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

/// Fails unless two partitions have the same type of elements and the same dimension.
fn check_alike(first: &TensorEntry, other: &TensorEntry, source: &SourceRef) -> Result<()> {
    let kind = |entry: &TensorEntry| (entry.stored, entry.shape.dims().get(1).copied());
    if kind(first) == kind(other) {
        return Ok(());
    }
    let shown = |entry: &TensorEntry| format!("{} {}", entry.stored, entry.shape);
    Err(Error::corrupt("partitions-differ", "the partitions of a table are not of one kind")
        .in_file(source.label())
        .on_tensor(&first.path)
        .expected(format_args!("as in the first partition, {}", shown(first)))
        .found(shown(other)))
}

/// Tensors of one type, alike but for the number of rows, as one. No bytes move.
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
            Error::corrupt("shape-overflow", "the partitions together have more than 2^64 rows")
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
