//! Trained model: tables, operators and comparator of a checkpoint.

use super::super::check::config_of;
use super::super::config::{Config, Side};
use super::super::read::{lists_of, numbers};
use super::table::floats;
use super::{Comparator, Operator, Scorer, Table};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Order, Region};
use weighbridge_core::text::{escape, first_and_more, near};

/// Maximum number of relations that an error names.
const MAX_NAMED_RELATIONS: usize = 8;

/// Entity type with its table.
#[derive(Debug)]
pub(crate) struct EntityTable {
    pub(crate) name: String,
    pub(crate) table: Table,
    /// First row of each partition, and the number of rows.
    pub(crate) starts: Vec<u64>,
    /// True where entities are lists of features, and the rows of the table are features.
    featurised: bool,
}

impl EntityTable {
    /// Fails for a featurised type: its entities have no rows.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `featurised`.
    pub(crate) fn check_scored(&self) -> Result<()> {
        if !self.featurised {
            return Ok(());
        }
        Err(Error::unsupported("featurised", "relations of featurised types cannot be scored")
            .on_tensor(self.table.entry().name())
            .hint("the rows of the table are features, and entities are lists of them"))
    }

    /// Number of partitions.
    pub(crate) fn parts(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Rows of the partition used in buckets of partition `part`: an unpartitioned type is whole in each.
    pub(crate) fn part(&self, part: u64) -> Option<std::ops::Range<u64>> {
        let part = if self.parts() == 1 { 0 } else { usize::try_from(part).ok()? };
        Some(*self.starts.get(part)?..*self.starts.get(part.checked_add(1)?)?)
    }
}

/// Trained model.
#[derive(Debug)]
pub(crate) struct Model<'a> {
    checkpoint: &'a Checkpoint,
    pub(crate) config: Config,
    parameters: HashMap<&'a TensorPath, &'a TensorEntry>,
    /// Tables of the types used by relations.
    pub(crate) types: Vec<EntityTable>,
    /// Types of both sides of each relation.
    pub(crate) relations: Vec<[usize; 2]>,
    pub(crate) scorer: Scorer,
    /// Number of dynamic relations, if known.
    dynamic_count: Option<u64>,
}

impl<'a> Model<'a> {
    /// Reads the configuration and the global embeddings of a checkpoint.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-config`, `wrong-kind` for files other than a checkpoint, `no-such-type` for a
    /// relation without a table, `dimension-differs`, `parameters-missing`; [`weighbridge_core::Kind::Corrupt`],
    /// `partition-missing`; [`weighbridge_core::Kind::Unsupported`], `comparator`, for one that upstream does not have.
    pub(crate) fn of(checkpoint: &'a Checkpoint) -> Result<Self> {
        let fail = |error: Error| error.in_file(&checkpoint.label);
        if checkpoint.format != "biggraph" || !checkpoint.tensors.iter().any(|t| t.role == Role::Embedding) {
            return Err(fail(
                Error::mismatch("wrong-kind", "not a checkpoint of PyTorch-BigGraph")
                    .expected("a folder of embeddings and a model")
                    .found(format_args!("{} {}", checkpoint.format, checkpoint.kind)),
            ));
        }
        let config = config_of(checkpoint).ok_or_else(|| {
            fail(
                Error::mismatch("no-config", "the configuration is missing: the comparator is unknown")
                    .hint(phrase![Opt::Config.any("FILE"), " sets the path of config.json"]),
            )
        })?;
        let scorer = scorer(&config).map_err(fail)?;
        let all = checkpoint.tensors.iter().filter(|tensor| tensor.role.slot().is_none());
        let parameters: HashMap<_, _> = all.map(|tensor| (&tensor.path, tensor)).collect();
        let dynamic_count = dynamic_count(checkpoint, &parameters);
        let (types, relations) = (Vec::new(), Vec::new());
        let mut model = Self { checkpoint, config, parameters, types, relations, scorer, dynamic_count };
        model.add_types().map_err(fail)?;
        Ok(model)
    }

    fn add_types(&mut self) -> Result<()> {
        let partitions = lists_of(self.checkpoint.metadata.get("partitions"));
        let mut places: HashMap<&str, usize> = HashMap::new();
        for relation in &self.config.relations {
            let mut sides = [0; 2];
            for (side, name) in sides.iter_mut().zip([relation.lhs.as_str(), relation.rhs.as_str()]) {
                *side = match places.get(name) {
                    Some(place) => *place,
                    None => {
                        let counts = partitions.get(name).copied().map(numbers).unwrap_or_default();
                        self.types.push(self.entity_table(name, &counts)?);
                        places.insert(name, self.types.len() - 1);
                        self.types.len() - 1
                    }
                };
            }
            let [lhs, rhs] = sides.map(|side| self.types[side].table.columns());
            if lhs != rhs {
                return Err(Error::mismatch(
                    "dimension-differs",
                    "the sides of a relation have different dimensions",
                )
                .expected(format_args!("{lhs} columns as type {}", relation.lhs))
                .found(format_args!(
                    "{rhs} columns of type {} in relation {}",
                    relation.rhs, relation.name
                )));
            }
            self.relations.push(sides);
        }
        Ok(())
    }

    fn entity_table(&self, name: &str, counts: &[Option<u64>]) -> Result<EntityTable> {
        let path = TensorPath::new(vec![Name::from("embeddings"), Name::from(name)]);
        let entry = self.parameters.get(&path).copied().ok_or_else(|| {
            Error::mismatch("no-such-type", "an entity type of a relation has no embeddings")
                .found(escape(name))
        })?;
        let table = Table::new(entry)?;
        let mut starts = vec![0u64];
        for (part, count) in counts.iter().enumerate() {
            let count = count.ok_or_else(|| {
                Error::corrupt("partition-missing", "a partition of the table is missing")
                    .on_tensor(entry.name())
                    .found(format_args!("no partition {part} of {}", counts.len()))
                    .hint("restore the file: without its rows, ranks are wrong")
            })?;
            starts.push(starts[part].saturating_add(count));
        }
        if starts.last() != Some(&table.rows()) || starts.len() < 2 {
            return Err(Error::corrupt(
                "partition-missing",
                "the partitions do not have the rows of the table",
            )
            .on_tensor(entry.name())
            .expected(table.rows())
            .found(starts.last().copied().unwrap_or(0)));
        }
        let bias = usize::from(self.config.bias);
        if table.columns() <= bias {
            return Err(Error::mismatch("not-a-table", "the table has only the bias").on_tensor(entry.name()));
        }
        let global = self.global(name, table.columns())?;
        Ok(EntityTable {
            name: name.to_owned(),
            table: table.adjusted(max_norm(&self.config), global),
            starts,
            featurised: self.config.entity(name).is_some_and(|entity| entity.featurized),
        })
    }

    /// Global embedding of a type, if the model has them.
    fn global(&self, entity: &str, columns: usize) -> Result<Option<Vec<f32>>> {
        if !self.config.global_emb || self.config.dynamic_relations {
            return Ok(None);
        }
        self.parameter(&["entities", entity, "global_embedding"], None, &[columns as u64]).map(Some)
    }

    /// Reads a parameter, or the one of a dynamic relation.
    fn parameter(&self, path: &[&str], relation: Option<u64>, shape: &[u64]) -> Result<Vec<f32>> {
        let path = TensorPath::new(path.iter().map(|part| Name::from(*part)).collect::<Vec<_>>());
        let entry = self.parameters.get(&path).copied().ok_or_else(|| {
            Error::mismatch("parameters-missing", "a parameter of the model is missing")
                .found(format_args!("no {path}"))
                .hint("restore the model file of the version")
        })?;
        let own = match relation {
            None => entry.shape.dims(),
            Some(_) => entry.shape.dims().get(1..).unwrap_or_default(),
        };
        if own != shape {
            let expected: Vec<u64> = relation
                .map(|_| entry.shape.dims().first().copied().unwrap_or(0))
                .into_iter()
                .chain(shape.iter().copied())
                .collect();
            return Err(Error::mismatch("shape-differs", "a parameter does not fit its table")
                .on_tensor(entry.name())
                .expected(weighbridge_core::tensor::Shape::new(expected))
                .found(&entry.shape));
        }
        let mut region = Region::whole(&entry.shape);
        if let Some(relation) = relation {
            (region.start[0], region.shape[0]) = (relation, 1);
        }
        let mut entry = entry.clone();
        if entry.dtype() != DType::F32 {
            entry.cast = Some(DType::F32.into());
        }
        Ok(floats(&entry.read_region(&region, Order::Row)?))
    }

    /// Operator of a relation on a side; `None` for the identity.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `operator`, `parameters-missing`, `shape-differs`; and errors of reading.
    pub(crate) fn operator(&self, relation: u32, side: Side) -> Result<Option<Operator>> {
        // Only dynamic relations have operators of left sides.
        let (index, number) = match self.config.dynamic_relations {
            true => (0, Some(u64::from(relation))),
            false if side == Side::Lhs => return Ok(None),
            false => (relation as usize, None),
        };
        let Some((own, sides)) = self.config.relations.get(index).zip(self.relations.get(index)) else {
            return Ok(None);
        };
        let columns = self.types[sides[side as usize]].table.columns() as u64;
        let number_text = index.to_string();
        let plural = if number.is_some() { "s" } else { "" };
        let read = |name: &str, shape: &[u64]| {
            self.parameter(&["relations", &number_text, "operator", side.as_str(), name], number, shape)
        };
        let operator = match own.operator.as_str() {
            "none" => return Ok(None),
            "diagonal" => Operator::Diagonal(read(&format!("diagonal{plural}"), &[columns])?),
            "translation" => Operator::Translation(read(&format!("translation{plural}"), &[columns])?),
            "linear" => {
                Operator::Linear(read(&format!("linear_transformation{plural}"), &[columns, columns])?)
            }
            "affine" => Operator::Affine(
                read(&format!("linear_transformation{plural}"), &[columns, columns])?,
                read(&format!("translation{plural}"), &[columns])?,
            ),
            "complex_diagonal" if columns.is_multiple_of(2) => Operator::ComplexDiagonal {
                real: read("real", &[columns / 2])?,
                imag: read("imag", &[columns / 2])?,
            },
            other => {
                return Err(Error::mismatch("operator", "the operator of a relation cannot be applied")
                    .in_file(&self.checkpoint.label)
                    .expected("none, diagonal, translation, linear, affine, or complex_diagonal for even dimensions")
                    .found(format_args!("{} of relation {} for {columns} columns", escape(other), escape(&own.name))));
            }
        };
        Ok(Some(operator))
    }

    /// Number of relations, if known.
    pub(crate) fn relation_count(&self) -> Option<u64> {
        if self.config.dynamic_relations { self.dynamic_count } else { Some(self.relations.len() as u64) }
    }

    /// Types of both sides of a relation; `None` for an unknown one.
    pub(crate) fn sides(&self, relation: u64) -> Option<[usize; 2]> {
        if self.relation_count().is_some_and(|count| relation >= count) {
            return None;
        }
        let place = if self.config.dynamic_relations { 0 } else { usize::try_from(relation).ok()? };
        self.relations.get(place).copied()
    }

    /// Number of the relation with that name or number.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-such-relation`; `name-twice` for a name of several relations.
    pub(crate) fn relation(&self, text: &str) -> Result<u32> {
        let names = relation_names(self.checkpoint, &self.config);
        let mut found = names.iter().enumerate().filter(|(_, name)| *name == text);
        match (found.next(), found.next()) {
            (Some((first, _)), Some((next, _))) => {
                Err(Error::mismatch("name-twice", "duplicate name of relations")
                    .in_file(&self.checkpoint.label)
                    .found(format_args!("{}: relations {first} and {next}", escape(text)))
                    .hint("select a relation by its number"))
            }
            (Some((first, _)), None) => Ok(u32::try_from(first).unwrap_or(u32::MAX)),
            (None, _) => {
                let number =
                    text.parse::<u32>().ok().filter(|number| self.sides(u64::from(*number)).is_some());
                number.ok_or_else(|| self.no_such_relation(text, &names))
            }
        }
    }

    fn no_such_relation(&self, text: &str, names: &[String]) -> Error {
        let close: Vec<String> =
            near(|| names.iter().map(String::as_str), text, 3).into_iter().map(escape).collect();
        let error = Error::mismatch("no-such-relation", "no relation has this name or number")
            .in_file(&self.checkpoint.label)
            .found(escape(text));
        let error = match (names, self.relation_count()) {
            ([_, ..], _) => {
                error.expected(first_and_more(names.iter().map(|name| escape(name)), MAX_NAMED_RELATIONS))
            }
            ([], Some(1)) => error.expected("the number 0"),
            ([], Some(count)) => {
                error.expected(format_args!("a number from 0 to {}", count.saturating_sub(1)))
            }
            ([], None) => error,
        };
        if close.is_empty() { error } else { error.hint(format_args!("did you mean {}?", close.join(", "))) }
    }
}

/// Number of dynamic relations: from the entity folder, or the first dimension of operators.
fn dynamic_count(checkpoint: &Checkpoint, parameters: &HashMap<&TensorPath, &TensorEntry>) -> Option<u64> {
    if let Some(Value::U64(count)) = checkpoint.metadata.get("dynamic_relations") {
        return Some(*count);
    }
    let is_operator = |path: &TensorPath| path.parts().first().and_then(Name::as_str) == Some("relations");
    let operators = parameters.iter().filter(|(path, _)| is_operator(path));
    operators.filter_map(|(_, entry)| entry.shape.dims().first().copied()).min()
}

/// Names of relations, as far as known.
pub(crate) fn relation_names(checkpoint: &Checkpoint, config: &Config) -> Vec<String> {
    if !config.dynamic_relations {
        return config.relations.iter().map(|relation| relation.name.clone()).collect();
    }
    let Some(Value::List(names)) = checkpoint.metadata.get("relation_names") else { return Vec::new() };
    let text = |name: &Value| match name {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    names.iter().map(text).collect()
}

/// Table and comparator that a model was trained with, for a table of embeddings of a known configuration.
///
/// # Errors
/// Errors of [`Table::new`] and of reading the global embedding; `comparator`.
pub(crate) fn trained_space(checkpoint: &Checkpoint, entry: &TensorEntry) -> Result<Option<(Table, Scorer)>> {
    let of_table =
        (entry.role == Role::Embedding && checkpoint.format == "biggraph").then(|| config_of(checkpoint));
    let Some(config) = of_table.flatten() else { return Ok(None) };
    let scorer = scorer(&config).map_err(|error| error.in_file(&checkpoint.label))?;
    let table = Table::new(entry)?;
    let kind = entry.path.parts().get(1);
    let is_global = |tensor: &&TensorEntry| {
        let parts = tensor.path.parts();
        let named = |at: usize, name: &str| parts.get(at).and_then(Name::as_str) == Some(name);
        tensor.role.slot().is_none()
            && named(0, "entities")
            && parts.get(1) == kind
            && named(2, "global_embedding")
    };
    let fits = |tensor: &&TensorEntry| *tensor.shape.dims() == [table.columns() as u64];
    let global = checkpoint.tensors.iter().find(is_global).filter(fits);
    let global = global.map(|global| {
        let mut global = global.clone();
        if global.dtype() != DType::F32 {
            global.cast = Some(DType::F32.into());
        }
        global.read_tensor(Order::Row).map(|bytes| floats(&bytes))
    });
    let global = global.transpose()?;
    // A single column would be the bias alone.
    let scorer = Scorer { bias: scorer.bias && table.columns() > 1, ..scorer };
    Ok(Some((table.adjusted(max_norm(&config), global), scorer)))
}

fn scorer(config: &Config) -> Result<Scorer> {
    let comparator = Comparator::from_name(&config.comparator).ok_or_else(|| {
        Error::unsupported("comparator", "unknown comparator in the configuration")
            .expected(Comparator::ALL.map(Comparator::name).join(", "))
            .found(escape(&config.comparator))
    })?;
    Ok(Scorer { comparator, bias: config.bias })
}

#[allow(clippy::cast_possible_truncation)] // as upstream reads it
fn max_norm(config: &Config) -> Option<f32> {
    config.max_norm.map(|most| most as f32)
}
