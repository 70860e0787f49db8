//! Alignment of tables from other formats with an entity folder: upstream reads rows by
//! index, so each row must be at the index of its entity.

use super::BigGraph;
use super::edges::{CONFIG, COUNTS};
use super::read::given_config;
use super::rows::{GatherSource, NormalSource, Repeat, seed_of_table};
use super::write::refuse_edge_list;
use crate::ReadOptions;
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Loss, Name, Role, RowNamesRef, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::{OpenOptions, ReadFormat};
use weighbridge_io::source::SourceRef;

/// Attribute of a table with rows in the order of an entity folder.
pub(super) const ALIGNED: &str = "aligned";
/// Scale of drawn rows without a configuration.
const DEFAULT_SCALE: f64 = 0.001;

/// Entity folder named by the caller.
fn entities_of(options: &OpenOptions) -> Result<Option<Checkpoint>> {
    let Some(folder) = &options.own::<ReadOptions>().entities else { return Ok(None) };
    let entities = BigGraph.open_folder(folder, &OpenOptions { format: None, ..options.clone() })?;
    if entities.kind == "entities" {
        return Ok(Some(entities));
    }
    Err(Error::mismatch("no-entities", "not an entity folder").in_file(folder.label()).found(entities.kind))
}

/// Adds the configuration and the entity counts from `options` to edges that come from another
/// format.
///
/// # Errors
/// Errors of the configuration and of the entity folder; [`weighbridge_core::Kind::Mismatch`], `no-entities`.
pub(crate) fn add_edge_meaning(checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
    if let Some(known) = given_config(options)? {
        checkpoint.metadata.set(CONFIG, Value::Text(known.text));
    }
    let entities = entities_of(options)?;
    if let Some(counts) = entities.as_ref().and_then(|entities| entities.metadata.get("partitions")) {
        checkpoint.metadata.set(COUNTS, counts.clone());
    }
    Ok(())
}

/// Adds the configuration and the entities from `options` to tables that come from another format.
/// Rows are matched by name and moved to the index of their entity; `entity` is the
/// type of a single table whose name does not contain it. Entities without a row get a drawn row, and
/// rows without an entity are dropped; both are losses. If the folder has no names, the table's names
/// stay, and the unverified order is a loss. Drawn values depend on `seed`, the type and
/// the number of rows of the table. A table that came from BigGraph may have optimizer state,
/// which belongs to its current rows: its rows must be in the order of the folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `another-order` for a table with state, and `partitions-differ` for a
/// table from BigGraph if the folder has other partitions;
/// `no-such-type` for a type that the folder does not have,
/// `names-unknown` if unnamed rows are not as many as the entities, `name-twice`; and errors of
/// reading the names.
pub fn align(
    checkpoint: &mut Checkpoint,
    entity: Option<&str>,
    seed: u64,
    options: &OpenOptions,
) -> Result<Vec<Loss>> {
    if let Some(known) = given_config(options)? {
        checkpoint.metadata.set(CONFIG, Value::Text(known.text));
    }
    let Some(entities) = entities_of(options)? else { return Ok(Vec::new()) };
    refuse_edge_list(checkpoint)?;
    let (mut losses, mut partitions) = (Vec::new(), Vec::new());
    let carried = checkpoint.carried_origin().is_some_and(|origin| origin.format == "biggraph");
    for place in 0..checkpoint.tensors.len() {
        let table = &checkpoint.tensors[place];
        // Parameters of the model are skipped where they can be distinguished from tables.
        let role = table.role == Role::Embedding || (table.role == Role::Parameter && !carried);
        let is_table = role && table.shape.rank() == 2;
        if !is_table {
            continue;
        }
        let last = table.path.parts().last().and_then(Name::as_str).unwrap_or_default();
        let name = entity.unwrap_or(last).to_owned();
        let path = TensorPath::new(vec![Name::from("entities"), Name::from(name.as_str())]);
        let Some(known) = entities.tensors.iter().find(|t| t.path == path) else {
            let all: Vec<_> = entities.tensors.iter().filter_map(|t| t.path.parts().last()).collect();
            return Err(Error::mismatch("no-such-type", "the entity folder does not have this entity type")
                .on_tensor(table.name())
                .expected(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
                .found(weighbridge_core::text::escape(&name))
                .hint(phrase![
                    Opt::Set.any_pair("type", "NAME"),
                    " sets the entity type of a single table"
                ]));
        };
        let aligned = in_order(checkpoint, table, known, &name, seed, &mut losses)?;
        let cut = counts(&entities, &name).cloned();
        if has_state(checkpoint, &checkpoint.tensors[place])
            && let Some(own) = counts(checkpoint, &name)
            && cut.as_ref() != Some(own)
        {
            return Err(Error::mismatch("partitions-differ", "the entity folder has different partitions")
                .on_tensor(aligned.name())
                .expected(own.to_json())
                .found(cut.map_or(serde_json::Value::Null, |cut| cut.to_json()))
                .hint(phrase![
                    "convert it with ",
                    Opt::Set.any_pair("partitions", "N"),
                    ", or write entities with ",
                    Opt::Set.pair("entities", "yes")
                ]));
        }
        checkpoint.tensors[place] = aligned;
        partitions.extend(cut.map(|cut| (Name::from(name.as_str()), cut)));
    }
    checkpoint.metadata.set("partitions", Value::Map(partitions));
    for key in ["dynamic_relations", "relation_names"] {
        if let Some(value) = entities.metadata.get(key) {
            checkpoint.metadata.set(key, value.clone());
        }
    }
    Ok(losses)
}

/// The table with rows in the order of the entities `known` of its type, renamed to the type.
fn in_order(
    checkpoint: &Checkpoint,
    table: &TensorEntry,
    known: &TensorEntry,
    name: &str,
    seed: u64,
    losses: &mut Vec<Loss>,
) -> Result<TensorEntry> {
    let rows = known.shape.dims().first().copied().unwrap_or(0);
    let mut aligned = match (&table.row_names, &known.row_names) {
        (Some(own), Some(wanted)) if own.read()? == wanted.read()? => table.clone(),
        (Some(_), Some(_)) if has_state(checkpoint, table) => {
            return Err(Error::mismatch(
                "another-order",
                "the rows and their optimizer state are in a different order than the entities",
            )
            .on_tensor(table.name())
            .hint(phrase![
                Opt::NoState,
                " drops the state; ",
                Opt::Set.pair("entities", "yes"),
                " writes the entities of the table"
            ]));
        }
        (Some(own), Some(wanted)) => {
            let rows = table.shape.dims().first().copied().unwrap_or(0);
            let seed = seed_of_table(seed, name, rows);
            ordered(table, own, wanted, seed, checkpoint, losses)?
        }
        _ if table.shape.dims().first() == Some(&rows) => table.clone(),
        _ => {
            return Err(Error::mismatch(
                "names-unknown",
                "the number of unnamed rows differs from the number of entities",
            )
            .on_tensor(table.name())
            .expected(format_args!("{rows} rows"))
            .found(&table.shape));
        }
    };
    aligned.path = TensorPath::new(vec![Name::from("embeddings"), Name::from(name)]);
    aligned.role = Role::Embedding;
    // The metadata lists the partitions of the folder under this name.
    aligned.attributes.remove(Attributes::RENAMED_FROM);
    match (&aligned.row_names, &known.row_names) {
        // The names may be in any order: they stay with their rows.
        (Some(_), None) => {
            let detail = "row order not verified: the entity folder has no names";
            losses.push(Loss::new("order-not-checked", aligned.name(), detail));
        }
        (_, wanted) => {
            aligned.row_names.clone_from(wanted);
            aligned.attributes.insert(ALIGNED.to_owned(), Value::Bool(true));
        }
    }
    Ok(aligned)
}

/// Row counts of the partitions of a type in the metadata.
fn counts<'a>(checkpoint: &'a Checkpoint, name: &str) -> Option<&'a Value> {
    let Some(Value::Map(all)) = checkpoint.metadata.get("partitions") else { return None };
    all.iter().find(|(own, _)| own.as_str() == Some(name)).map(|(_, counts)| counts)
}

fn has_state(checkpoint: &Checkpoint, table: &TensorEntry) -> bool {
    checkpoint.tensors.iter().any(|t| t.path == table.path && t.role.slot().is_some())
}

/// Rows of `table` in the order of the wanted names.
fn ordered(
    table: &TensorEntry,
    own: &RowNamesRef,
    wanted: &RowNamesRef,
    seed: u64,
    checkpoint: &Checkpoint,
    losses: &mut Vec<Loss>,
) -> Result<TensorEntry> {
    let (own, wanted) = (own.read()?, wanted.read()?);
    let index = own.index();
    if index.len() < own.len() {
        let mut seen = HashSet::new();
        let twice = own.iter().find(|name| !seen.insert(*name)).unwrap_or_default();
        return Err(Error::mismatch("name-twice", "two rows have the same name")
            .on_tensor(table.name())
            .found(weighbridge_core::text::escape(twice)));
    }
    let rows = table.shape.dims().first().copied().unwrap_or(0);
    let columns = table.shape.dims().get(1).copied().unwrap_or(0);
    let (mut order, mut drawn) = (Vec::with_capacity(wanted.len()), 0u64);
    for name in wanted.iter() {
        match index.get(name) {
            Some(&row) => order.push(row as u64),
            None => {
                order.push(rows + drawn);
                drawn += 1;
            }
        }
    }
    let used = wanted.len() as u64 - drawn;
    if rows > used {
        let detail = format!("{} rows dropped: their names are not in the entity folder", rows - used);
        losses.push(Loss::new("rows-left-out", table.name(), detail));
    }
    let plain = TensorEntry { row_names: None, ..table.clone() };
    let mut parts = vec![plain];
    if drawn > 0 {
        let detail = format!("{drawn} of {} entities have no row; random rows are written", wanted.len());
        losses.push(Loss::new("rows-drawn", table.name(), detail));
        if table.dtype() != DType::F32 {
            return Err(Error::unsupported("drawn-dtype", "random rows are available for f32 tables only")
                .on_tensor(table.name())
                .found(table.dtype())
                .hint("convert the table to f32 first"));
        }
        let scale = super::check::config_of(checkpoint).map_or(DEFAULT_SCALE, |config| config.init_scale);
        let noise: SourceRef = Arc::new(NormalSource::new(drawn, columns, scale, seed, Repeat::Independent)?);
        let shape = Shape::from([drawn, columns]);
        parts.push(TensorEntry::dense(table.path.clone(), DType::F32, shape, &noise, 0, Encoding::ROW)?);
    }
    let label = table.extents.first().map_or("table", |extent| extent.source.label());
    let gathered: SourceRef = Arc::new(GatherSource::new(label, &parts, order)?);
    let shape = Shape::from([wanted.len() as u64, columns]);
    let mut entry =
        TensorEntry::dense(table.path.clone(), table.dtype(), shape, &gathered, 0, Encoding::ROW)?;
    entry.attributes.clone_from(&table.attributes);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::MemoryRowNames;
    use weighbridge_core::tensor::Order;
    use weighbridge_io::source::{FolderRef, MemoryFolder, MemorySource};

    fn known(folder: MemoryFolder) -> OpenOptions {
        let entities = Some(Arc::new(folder) as FolderRef);
        OpenOptions::default().with_own(ReadOptions { entities, ..ReadOptions::default() })
    }

    fn entities() -> OpenOptions {
        let folder = MemoryFolder::new("entities")
            .with("entity_count_user_0.txt", b"2\n".to_vec())
            .with("entity_count_user_1.txt", b"2\n".to_vec())
            .with("entity_names_user_0.json", br#"["d", "b"]"#.to_vec())
            .with("entity_names_user_1.json", br#"["a", "x"]"#.to_vec());
        known(folder)
    }

    fn table(names: Option<&[&str]>, rows: u64) -> Checkpoint {
        let bytes: Vec<u8> = (0..rows).flat_map(|row| (row as f32).to_le_bytes()).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let path = TensorPath::from_dotted("user");
        let mut entry =
            TensorEntry::dense(path, DType::F32, Shape::from([rows, 1]), &source, 0, Encoding::ROW).unwrap();
        entry.row_names = names.map(|names| MemoryRowNames::shared("n", names.iter().copied().collect()));
        let mut checkpoint = Checkpoint::new("parquet", "table", "t");
        checkpoint.tensors = vec![entry];
        checkpoint
    }

    #[test]
    fn rows_move_to_the_index_of_their_entity() {
        let mut checkpoint = table(Some(&["a", "b", "c", "d"]), 4);
        let losses = align(&mut checkpoint, None, 1, &entities()).unwrap();
        let codes: Vec<_> = losses.iter().map(|loss| loss.code.as_str()).collect();
        assert_eq!(codes, ["rows-left-out", "rows-drawn"]);
        let entry = &checkpoint.tensors[0];
        let bytes = entry.read_tensor(Order::Row).unwrap();
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(values[..3], [3.0, 1.0, 0.0]);
        assert!(values[3] != 0.0 && values[3].abs() < 0.01);
        assert_eq!(entry.path.to_text(), "embeddings.user");
        let names = entry.row_names.as_ref().unwrap().read().unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["d", "b", "a", "x"]);
        let counts = Value::List(vec![Value::U64(2), Value::U64(2)]);
        assert_eq!(
            checkpoint.metadata.get("partitions"),
            Some(&Value::Map(vec![(Name::from("user"), counts)]))
        );
    }

    #[test]
    fn keeps_names_if_the_folder_has_none() {
        let folder = MemoryFolder::new("entities").with("entity_count_user_0.txt", b"4\n".to_vec());
        let options = known(folder);
        let mut named = table(Some(&["b", "a", "d", "c"]), 4);
        let losses = align(&mut named, None, 1, &options).unwrap();
        assert_eq!(losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["order-not-checked"]);
        let entry = &named.tensors[0];
        let names = entry.row_names.as_ref().unwrap().read().unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["b", "a", "d", "c"]);
        assert!(!entry.attributes.contains_key(ALIGNED));
        // Without any names only the index is left.
        let mut bare = table(None, 4);
        assert!(align(&mut bare, None, 1, &options).unwrap().is_empty());
        assert!(bare.tensors[0].attributes.contains_key(ALIGNED));
    }

    #[test]
    fn drawn_rows_differ_between_types() {
        let drawn = |kind: &str, seed| {
            let folder = MemoryFolder::new("entities")
                .with(format!("entity_count_{kind}_0.txt"), b"2\n".to_vec())
                .with(format!("entity_names_{kind}_0.json"), br#"["x", "y"]"#.to_vec());
            let options = known(folder);
            let mut checkpoint = table(Some(&["a"]), 1);
            align(&mut checkpoint, Some(kind), seed, &options).unwrap();
            checkpoint.tensors[0].read_tensor(Order::Row).unwrap()
        };
        assert_eq!(drawn("user", 1), drawn("user", 1));
        assert_ne!(drawn("user", 1), drawn("user", 2));
        assert_ne!(drawn("user", 1), drawn("item", 1));
    }

    #[test]
    fn state_stays_with_its_rows() {
        let with_state = |names: &[&str], counts: [u64; 2]| {
            let mut c = table(Some(names), 4);
            c.origin = Some(weighbridge_core::checkpoint::Origin {
                format: "biggraph".into(),
                kind: "checkpoint".into(),
            });
            let entry = &mut c.tensors[0];
            (entry.path, entry.role) = (TensorPath::from_dotted("embeddings.user"), Role::Embedding);
            let mut sum = entry.clone();
            (sum.role, sum.row_names) = (Role::OptimizerState { slot: Name::from("sum") }, None);
            c.tensors.push(sum);
            let counts = Value::List(counts.map(Value::U64).to_vec());
            c.metadata.set("partitions", Value::Map(vec![(Name::from("user"), counts)]));
            c
        };
        let run =
            |mut c: Checkpoint| align(&mut c, None, 1, &entities()).map(|_| c).map_err(|e| e.code().as_str());
        let order = ["d", "b", "a", "x"];
        assert!(run(with_state(&order, [2, 2])).unwrap().tensors[0].attributes.contains_key(ALIGNED));
        assert_eq!(run(with_state(&order, [3, 1])).unwrap_err(), "partitions-differ");
        assert_eq!(run(with_state(&["a", "b", "d", "x"], [2, 2])).unwrap_err(), "another-order");
        let mut bare = with_state(&["a", "b", "d", "x"], [3, 1]);
        bare.tensors.pop();
        assert_eq!(run(bare).unwrap().tensors.len(), 1);
    }

    #[test]
    fn rejects_tables_that_cannot_be_aligned() {
        let code =
            |mut c: Checkpoint, entity| align(&mut c, entity, 0, &entities()).unwrap_err().code().as_str();
        assert_eq!(code(table(Some(&["a", "a"]), 2), None), "name-twice");
        assert_eq!(code(table(None, 3), None), "names-unknown");
        assert_eq!(code(table(None, 4), Some("item")), "no-such-type");
        assert!(align(&mut table(None, 4), None, 0, &entities()).unwrap().is_empty());
    }
}
