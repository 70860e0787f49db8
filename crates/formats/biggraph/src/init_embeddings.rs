//! Initial embeddings: random rows as upstream draws them for missing rows (specification, section 6,
//! random initialisation).

use super::config::Config;
use super::effective_config;
use super::partitions::stored_type;
use super::rows::{NormalSource, REPEAT_OF_UPSTREAM, Repeat};
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Extent, Name, Origin, Pieces, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Region, Shape};
use weighbridge_io::source::{MemorySource, SourceRef};

/// Parameters of initial embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InitEmbeddings {
    /// Random seed: the same seed yields the same values on every machine.
    pub seed: u64,
    /// Draw 1,000,003 numbers per partition and repeat them, as upstream does for speed. If false, rows are
    /// independent.
    pub repeat: bool,
}

/// Turns an entity folder into tables: for each type `init_scale` times a standard normal, with the
/// dimension from the configuration. Names and partitions stay; the kind becomes `init`.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-entities` if it is not an entity folder, `config-missing` without a
/// configuration, `no-such-type` for a type that the configuration does not have, `partition-missing` if
/// a count is missing.
pub fn init_embeddings(checkpoint: &mut Checkpoint, draw: InitEmbeddings) -> Result<()> {
    let Some(text) = effective_config::config_text(checkpoint) else {
        return Err(Error::mismatch(
            "config-missing",
            "the configuration is missing: dimension and scale are unknown",
        )
        .in_file(&checkpoint.label)
        .hint(phrase![Opt::Config.any("FILE"), " sets its path"]));
    };
    let (config, _) = Config::parse(text, true)?;
    let mut tables = Vec::new();
    for entry in checkpoint.tensors.iter().filter(|t| t.role == Role::Names) {
        let Some(entity) = entry.path.parts().last().and_then(Name::as_str) else { continue };
        let columns = config.dimension_of(entity).ok_or_else(|| {
            Error::mismatch("no-such-type", "the configuration does not have this entity type")
                .found(weighbridge_core::text::escape(entity))
        })?;
        let counts = counts(checkpoint, &stored_type(entry))?;
        // Every partition of every type has its own random numbers.
        let stream = (tables.len() as u64) << 32;
        tables.push(table(entry, entity, &counts, columns, config.init_scale, draw, stream)?);
    }
    if tables.is_empty() {
        return Err(Error::mismatch("no-entities", "initial embeddings need an entity folder")
            .in_file(&checkpoint.label));
    }
    checkpoint.tensors = tables;
    // The entity folder has become an init folder; write it as one.
    checkpoint.kind = super::read::INIT;
    checkpoint.origin = Some(Origin { format: "biggraph".to_owned(), kind: super::read::INIT.to_owned() });
    Ok(())
}

fn counts(checkpoint: &Checkpoint, entity: &str) -> Result<Vec<u64>> {
    let list = match checkpoint.metadata.get("partitions") {
        Some(Value::Map(all)) => all.iter().find(|(name, _)| name.as_str() == Some(entity)).map(|(_, v)| v),
        _ => None,
    };
    let number = |value: &Value| match value {
        Value::U64(n) => Some(*n),
        _ => None,
    };
    let counts = match list {
        Some(Value::List(list)) => list.iter().map(number).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    counts.ok_or_else(|| {
        Error::mismatch("partition-missing", "the partition has no count file")
            .found(weighbridge_core::text::escape(entity))
    })
}

/// Table of one type.
fn table(
    names: &TensorEntry,
    entity: &str,
    counts: &[u64],
    columns: u64,
    scale: f64,
    draw: InitEmbeddings,
    stream: u64,
) -> Result<TensorEntry> {
    let repeat = if draw.repeat { Repeat::Block(REPEAT_OF_UPSTREAM) } else { Repeat::Independent };
    let (mut extents, mut rows) = (Pieces::new(), 0u64);
    for (part, &count) in (0u64..).zip(counts) {
        let seed = draw.seed.wrapping_add((stream | part).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let source: SourceRef = Arc::new(NormalSource::new(count, columns, scale, seed, repeat)?);
        let mut region = Region::whole(&Shape::from([count, columns]));
        region.start[0] = rows;
        rows = rows.saturating_add(count);
        let len = source.len();
        if count > 0 {
            let part = Some(Box::new(region));
            extents.push(Extent { source, offset: 0, len, encoding: Encoding::ROW, part, check: None });
        }
    }
    let nothing: SourceRef = Arc::new(MemorySource::new("drawn", Vec::new()));
    let path = TensorPath::new(vec![Name::from("embeddings"), Name::from(entity)]);
    let mut entry =
        TensorEntry::dense(path, DType::F32, Shape::from([0, columns]), &nothing, 0, Encoding::ROW)?;
    if rows > 0 {
        entry.extents = extents;
    }
    entry.shape = Shape::from([rows, columns]);
    entry.role = Role::Embedding;
    entry.row_names.clone_from(&names.row_names);
    // The metadata lists the partitions under the old name.
    let renamed = names.attributes.get(Attributes::RENAMED_FROM).cloned();
    entry.attributes.extend(renamed.map(|old| (Attributes::RENAMED_FROM.to_owned(), old)));
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::tensor::Order;

    fn entities(config: Option<&str>) -> Checkpoint {
        let mut checkpoint = Checkpoint::new("biggraph", "entities", "e");
        let nothing: SourceRef = Arc::new(MemorySource::new("m", Vec::new()));
        for (name, rows) in [("user", 5), ("tag", 0)] {
            let path = TensorPath::new(vec![Name::from("entities"), Name::from(name)]);
            let shape = Shape::from([rows, 0]);
            let mut entry = TensorEntry::dense(path, DType::U8, shape, &nothing, 0, Encoding::ROW).unwrap();
            entry.role = Role::Names;
            checkpoint.tensors.push(entry);
        }
        let list = |counts: &[u64]| Value::List(counts.iter().map(|n| Value::U64(*n)).collect());
        let partitions = vec![(Name::from("user"), list(&[3, 2])), (Name::from("tag"), list(&[0]))];
        checkpoint.metadata.set("partitions", Value::Map(partitions));
        if let Some(text) = config {
            checkpoint.metadata.set("config", Value::Text(text.into()));
        }
        checkpoint
    }

    const CONFIG: &str = r#"{"entities": {"user": {"num_partitions": 2}, "tag": {"num_partitions": 1, "dimension": 2}},
        "relations": [{"name": "r", "lhs": "user", "rhs": "tag"}], "dimension": 4, "init_scale": 0.5,
        "entity_path": "e", "edge_paths": ["d"], "checkpoint_path": "c"}"#;

    #[test]
    fn draws_each_partition_separately_and_reproducibly() {
        let drawn = |seed| {
            let mut checkpoint = entities(Some(CONFIG));
            init_embeddings(&mut checkpoint, InitEmbeddings { seed, repeat: false }).unwrap();
            assert_eq!(checkpoint.tensors[0].shape.dims(), [5, 4]);
            assert_eq!(checkpoint.tensors[1].shape.dims(), [0, 2]);
            assert!(checkpoint.tensors[1].read_tensor(Order::Row).unwrap().is_empty());
            checkpoint.tensors[0].read_tensor(Order::Row).unwrap()
        };
        let values = drawn(3);
        assert_eq!(values, drawn(3));
        assert_ne!(values, drawn(4));
        assert_ne!(values[..32], values[48..80], "partitions differ");
    }

    #[test]
    fn rejects_folders_without_config_or_counts() {
        let code = |mut c: Checkpoint| {
            init_embeddings(&mut c, InitEmbeddings::default()).unwrap_err().code().as_str()
        };
        assert_eq!(code(entities(None)), "config-missing");
        assert_eq!(code(entities(Some(&CONFIG.replace("tag", "label")))), "no-such-type");
        let mut without = entities(Some(CONFIG));
        without.tensors.clear();
        assert_eq!(code(without), "no-entities");
    }
}
