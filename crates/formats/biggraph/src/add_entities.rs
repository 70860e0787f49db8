//! New entities for a trained table: old rows keep their partitions and indexes, and new rows
//! follow them in each partition.
//!
//! ```text
//! partition 0   old rows 0..n0, then the first of the new rows
//! partition 1   old rows 0..n1, then the next of the new rows
//! ```
//!
//! Edges imported for the old entities stay valid. New rows start with upstream's initial values
//! (specification, section 6: `init_scale` times a standard normal), with zero
//! optimizer state.

use super::config::Config;
use super::effective_config;
use super::layout::split_counts;
use super::partitions::stored_type;
use super::rows::{NormalSource, Repeat, ZeroSource, seed_of_table};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Checkpoint, Extent, MemoryRowNames, Name, Pieces, Role, RowNameList, TensorEntry, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Region, Shape};
use weighbridge_core::text::{counted, escape, first_and_more};
use weighbridge_io::source::{SourceRef, to_usize};

/// Scale of new rows without a configuration.
const DEFAULT_SCALE: f64 = 0.001;
/// Maximum number of names listed in an error.
const MAX_NAMES_SHOWN: usize = 3;

/// Adds rows for `names` to the table of the entity type `entity`. Their values depend on `seed`, the
/// type and the number of old rows: the same seed and table yield the same rows;
/// another type, or a later addition to the same type, gets other rows.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-such-type`, `names-unknown` if the old rows have no
/// names, `name-exists` for an existing or duplicate name;
/// [`weighbridge_core::Kind::Unsupported`], `grow-dtype`, for a table that is not stored as float32; and errors of reading
/// the old names.
pub fn add_entities(checkpoint: &mut Checkpoint, entity: &str, names: &RowNameList, seed: u64) -> Result<()> {
    let path = [Name::from("embeddings"), Name::from(entity)];
    let at = checkpoint.tensors.iter().position(|t| t.role == Role::Embedding && t.path.parts() == path);
    let Some(at) = at else {
        let all = checkpoint.tensors.iter().filter(|t| t.role == Role::Embedding);
        let all: Vec<_> = all.filter_map(|t| t.path.parts().last()).map(ToString::to_string).collect();
        return Err(Error::mismatch("no-such-type", "no embedding table for this entity type")
            .in_file(&checkpoint.label)
            .expected(all.join(", "))
            .found(weighbridge_core::text::escape(entity)));
    };
    let table = &checkpoint.tensors[at];
    let Some(labels) = &table.row_names else {
        return Err(Error::mismatch("names-unknown", "the names of the existing rows are unknown")
            .on_tensor(table.name())
            .hint(phrase![Opt::Entities.any("FOLDER"), " names the entity folder"]));
    };
    let [rows, columns] = *table.shape.dims() else {
        return Err(Error::mismatch("not-a-table", "an embedding table must have two dimensions")
            .on_tensor(table.name()));
    };
    // New rows are joined to the stored ones: a cast would apply to both.
    if table.stored != DType::F32 || table.cast.is_some() {
        return Err(Error::unsupported("grow-dtype", "entities can be added to tables stored as f32 only")
            .on_tensor(table.name())
            .found(table.stored)
            .hint(phrase![
                "convert it with ",
                Opt::Cast.with("f32"),
                " first, then add entities to the result"
            ]));
    }
    let old_names = labels.read()?;
    check_names(&old_names, names).map_err(|e| e.on_tensor(table.name()))?;

    let stored = stored_type(table);
    let old = counts(checkpoint, &stored, rows)?;
    let more: Vec<u64> = split_counts(names.len() as u64, old.len() as u64).collect();
    let runs = Runs::new(&old, &more);
    let scale = scale(checkpoint);
    let seed = seed_of_table(seed, &stored, rows);
    let noise: SourceRef =
        Arc::new(NormalSource::new(names.len() as u64, columns, scale, seed, Repeat::Independent)?);
    let grown = runs.join(table, &noise, columns)?;
    let mut all_names = RowNameList::new();
    for run in &runs.0 {
        let (list, range) = match run {
            Run::Old(range) => (&*old_names, range),
            Run::New(range) => (names, range),
        };
        for row in to_usize(range.start)?..to_usize(range.end)? {
            all_names.push(list.get(row).unwrap_or_default());
        }
    }
    let labels = MemoryRowNames::shared(labels.label(), all_names);
    let states: Vec<usize> = (0..checkpoint.tensors.len())
        .filter(|&i| {
            checkpoint.tensors[i].path.parts() == path && checkpoint.tensors[i].role.slot().is_some()
        })
        .collect();
    for state in states {
        let entry = &checkpoint.tensors[state];
        let (first, rest) = entry.shape.dims().split_first().unwrap_or((&0, &[]));
        if *first != rows {
            continue;
        }
        let width = rest.iter().product::<u64>();
        let size = entry.stored.size().unwrap_or(1) as u64;
        let bytes = (names.len() as u64).saturating_mul(width).saturating_mul(size);
        let zeros: SourceRef = Arc::new(ZeroSource::new(bytes));
        checkpoint.tensors[state] = runs.join(entry, &zeros, width)?;
    }
    checkpoint.tensors[at] = TensorEntry { row_names: Some(labels), ..grown };
    set_counts(checkpoint, &stored, old.iter().zip(&more).map(|(old, more)| old + more));
    Ok(())
}

/// Fails if a new name exists already or is duplicated.
fn check_names(old: &RowNameList, new: &RowNameList) -> Result<()> {
    let known: HashSet<&str> = old.iter().collect();
    let mut seen = HashSet::with_capacity(new.len());
    let bad: Vec<_> = new.iter().filter(|name| known.contains(name) || !seen.insert(*name)).collect();
    if bad.is_empty() {
        return Ok(());
    }
    let shown = first_and_more(bad.iter().map(|name| escape(name)), MAX_NAMES_SHOWN);
    let new = counted(new.len() as u64, "new name", "new names");
    let text = format!("{} of {new} exist already or are duplicates", bad.len());
    Err(Error::mismatch("name-exists", text).found(shown))
}

/// Number of rows of each partition.
fn counts(checkpoint: &Checkpoint, entity: &str, rows: u64) -> Result<Vec<u64>> {
    let known = match checkpoint.metadata.get("partitions") {
        Some(Value::Map(all)) => all.iter().find(|(name, _)| name.as_str() == Some(entity)).map(|(_, v)| v),
        _ => None,
    };
    let Some(Value::List(list)) = known else { return Ok(vec![rows]) };
    let number = |value: &Value| match value {
        Value::U64(n) => Some(*n),
        _ => None,
    };
    let counts: Option<Vec<u64>> = list.iter().map(number).collect();
    counts
        .filter(|counts| counts.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)) == Some(rows))
        .ok_or_else(|| {
            Error::mismatch("partition-missing", "entities cannot be added to an incomplete table")
                .in_file(&checkpoint.label)
                .found(format_args!("{rows} rows of {entity}"))
        })
}

fn set_counts(checkpoint: &mut Checkpoint, entity: &str, counts: impl Iterator<Item = u64>) {
    let list = Value::List(counts.map(Value::U64).collect());
    let mut all = match checkpoint.metadata.get("partitions") {
        Some(Value::Map(all)) => all.clone(),
        _ => Vec::new(),
    };
    match all.iter_mut().find(|(name, _)| name.as_str() == Some(entity)) {
        Some((_, old)) => *old = list,
        None => all.push((Name::from(entity), list)),
    }
    checkpoint.metadata.set("partitions", Value::Map(all));
}

/// Scale of upstream's initial rows.
fn scale(checkpoint: &Checkpoint) -> f64 {
    let config = effective_config::config_text(checkpoint).map(|text| Config::parse(text, true));
    config.and_then(Result::ok).map_or(DEFAULT_SCALE, |(config, _)| config.init_scale)
}

/// Consecutive rows, of the old table or of the new rows.
enum Run {
    Old(Range<u64>),
    New(Range<u64>),
}

/// Rows of all partitions in order.
struct Runs(Vec<Run>);

impl Runs {
    fn new(old: &[u64], new: &[u64]) -> Self {
        let (mut runs, mut at, mut from) = (Vec::new(), 0, 0);
        for (old, new) in old.iter().zip(new) {
            runs.push(Run::Old(at..at + old));
            runs.push(Run::New(from..from + new));
            (at, from) = (at + old, from + new);
        }
        Self(runs)
    }

    /// Joins the rows of `old` and of `new`; `new` is dense, little-endian, row by row, of
    /// the stored dtype of `old`, with `columns` elements a row.
    fn join(&self, old: &TensorEntry, new: &SourceRef, columns: u64) -> Result<TensorEntry> {
        let size = old.stored.size().unwrap_or(1) as u64;
        let rest = old.shape.dims().get(1..).unwrap_or_default();
        let mut extents = Pieces::new();
        let mut at = 0u64;
        for run in &self.0 {
            let (Run::Old(range) | Run::New(range)) = run;
            let count = range.end - range.start;
            match run {
                _ if count == 0 => {}
                Run::Old(range) => {
                    let rows = old.rows(range.clone())?;
                    for mut extent in rows.extents {
                        extent.move_down(at, &rows.shape);
                        extents.push(extent);
                    }
                }
                Run::New(range) => {
                    let shape =
                        Shape::new(std::iter::once(count).chain(rest.iter().copied()).collect::<Vec<_>>());
                    let mut region = Region::whole(&shape);
                    region.start[0] = at;
                    let part = Some(Box::new(region));
                    let (offset, len) = (range.start * columns * size, count * columns * size);
                    let encoding = Encoding::ROW;
                    extents.push(Extent { source: new.clone(), offset, len, encoding, part, check: None });
                }
            }
            at += count;
        }
        let shape = Shape::new(std::iter::once(at).chain(rest.iter().copied()).collect::<Vec<_>>());
        Ok(TensorEntry { shape, extents, ..old.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_core::tensor::Order;
    use weighbridge_io::source::MemorySource;

    fn entry(shape: Shape, first: f32) -> TensorEntry {
        let count = shape.elements().unwrap();
        let bytes: Vec<u8> = (0..count).flat_map(|i| (first + i as f32).to_le_bytes()).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let path = TensorPath::from_dotted("embeddings.user");
        TensorEntry::dense(path, DType::F32, shape, &source, 0, Encoding::ROW).unwrap()
    }

    fn checkpoint() -> Checkpoint {
        let mut checkpoint = Checkpoint::new("biggraph", "checkpoint", "c");
        let mut table = entry(Shape::from([3, 2]), 10.0);
        table.role = Role::Embedding;
        table.row_names = Some(MemoryRowNames::shared("n", ["a", "b", "c"].into_iter().collect()));
        let mut sum = entry(Shape::from([3]), 1.0);
        sum.role = Role::OptimizerState { slot: "sum".into() };
        checkpoint.tensors = vec![table, sum];
        let counts = Value::List(vec![Value::U64(2), Value::U64(1)]);
        checkpoint.metadata.set("partitions", Value::Map(vec![(Name::from("user"), counts)]));
        checkpoint
    }

    fn floats(entry: &TensorEntry) -> Vec<f32> {
        let bytes = entry.read_tensor(Order::Row).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    #[test]
    fn old_rows_keep_their_partitions_and_indexes() {
        let mut grown = checkpoint();
        add_entities(&mut grown, "user", &["x", "y", "z"].into_iter().collect(), 7).unwrap();
        let [table, sum] = &grown.tensors[..] else { panic!("two tensors") };
        assert_eq!((table.shape.dims(), sum.shape.dims()), (&[6, 2][..], &[6][..]));
        // Partition 0: a b x y, partition 1: c z.
        let names = table.row_names.as_ref().unwrap().read().unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "b", "x", "y", "c", "z"]);
        let values = floats(table);
        assert_eq!(&values[..4], [10.0, 11.0, 12.0, 13.0]);
        assert_eq!(&values[8..10], [14.0, 15.0]);
        let new = [&values[4..8], &values[10..]].concat();
        assert!(new.iter().all(|v| *v != 0.0 && v.abs() < 0.01), "{new:?}");
        assert_eq!(floats(sum), [1.0, 2.0, 0.0, 0.0, 3.0, 0.0]);
        let counts = Value::List(vec![Value::U64(4), Value::U64(2)]);
        assert_eq!(grown.metadata.get("partitions"), Some(&Value::Map(vec![(Name::from("user"), counts)])));

        let mut again = checkpoint();
        add_entities(&mut again, "user", &["x", "y", "z"].into_iter().collect(), 7).unwrap();
        assert_eq!(floats(&again.tensors[0]), values);
        let mut other = checkpoint();
        add_entities(&mut other, "user", &["x", "y", "z"].into_iter().collect(), 8).unwrap();
        assert_ne!(floats(&other.tensors[0]), values);
    }

    #[test]
    fn different_tables_get_different_rows() {
        let new = ["x", "y", "z"].into_iter().collect();
        let mut grown = checkpoint();
        let mut item = grown.tensors[0].clone();
        item.path = TensorPath::from_dotted("embeddings.item");
        grown.tensors.push(item);
        add_entities(&mut grown, "user", &new, 0).unwrap();
        add_entities(&mut grown, "item", &new, 0).unwrap();
        // `user`: a b x y c z; `item`, of one partition: a b c x y z.
        let (user, item) = (floats(&grown.tensors[0]), floats(&grown.tensors[2]));
        assert!(user[4..8].iter().zip(&item[6..10]).all(|(a, b)| a != b), "{user:?} {item:?}");

        add_entities(&mut grown, "item", &["u", "v", "w"].into_iter().collect(), 0).unwrap();
        let twice = floats(&grown.tensors[2]);
        assert_eq!(twice[..12], item);
        assert!(twice[6..12].iter().zip(&twice[12..]).all(|(a, b)| a != b), "{twice:?}");
    }

    #[test]
    fn rejects_invalid_additions() {
        let code = |change: &dyn Fn(&mut Checkpoint), entity: &str, names: &[&str]| {
            let mut checkpoint = checkpoint();
            change(&mut checkpoint);
            add_entities(&mut checkpoint, entity, &names.iter().copied().collect(), 0)
                .unwrap_err()
                .code()
                .as_str()
        };
        assert_eq!(code(&|_| {}, "item", &["x"]), "no-such-type");
        assert_eq!(code(&|_| {}, "user", &["x", "b"]), "name-exists");
        assert_eq!(code(&|_| {}, "user", &["x", "x"]), "name-exists");
        assert_eq!(code(&|c| c.tensors[0].row_names = None, "user", &["x"]), "names-unknown");
        assert_eq!(code(&|c| c.tensors[0].stored = DType::F64, "user", &["x"]), "grow-dtype");
        let as_f32 = |c: &mut Checkpoint| {
            c.tensors[0].stored = DType::F64;
            c.tensors[0].cast = Some(DType::F32.into());
        };
        assert_eq!(code(&as_f32, "user", &["x"]), "grow-dtype");
    }
}
