//! `.pdiparams.info`: what a layer knew of the variables of its program.
//!
//! A pickle of protocol 2: `{variable: {"structured_name": text, "stop_gradient": bool,
//! "trainable": bool}}`. It has more variables than the file of parameters has tensors.

use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Builder, Cost, Graph, Object, ObjectId, Options, Part, read, write};

const STRUCTURED: &str = "structured_name";
const STOP_GRADIENT: &str = "stop_gradient";
const TRAINABLE: &str = "trainable";
/// The most that is said of a variable. Who shares a longer list among many would have it read for each.
const MOST_FACTS: usize = 3;

/// What is known of one variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct InfoRow {
    /// Its name in the program.
    pub(in super::super) variable: String,
    /// Its name in the structure of the source code, where it has one.
    pub(in super::super) structured_name: Option<String>,
    /// True where no gradient flows to it.
    pub(in super::super) stop_gradient: Option<bool>,
    /// True where training changes it; parameters only.
    pub(in super::super) trainable: Option<bool>,
}

/// All variables, in the order of the file.
pub(in super::super) type Info = Vec<InfoRow>;

/// Reads such a file; `None` where it is a pickle of something else.
///
/// # Errors
/// What the pickle room says of a broken pickle; [`weighbridge_core::Kind::Limit`].
pub(in super::super) fn read_info(source: &SourceRef, limits: &Limits) -> Result<Option<Info>> {
    let bounds = Options::with_limits(limits.clone());
    let pickle = read(source, 0, &bounds)?;
    let Object::Dict(pairs) = pickle.graph.object(pickle.root) else { return Ok(None) };
    Limits::check("variables", "tensors", pairs.len() as u64, limits.tensors)?;
    // All variables may share their texts.
    let budget = pickle.budget();
    let mut rows = Vec::new();
    for &(name, facts) in pairs {
        let Some(row) = row(&pickle.graph, name, facts, budget)? else { return Ok(None) };
        rows.push(row);
    }
    Ok(Some(rows))
}

/// What is said of a variable; `None` where it is something else.
fn row(graph: &Graph, name: ObjectId, facts: ObjectId, budget: &Budget) -> Result<Option<InfoRow>> {
    let (Some(variable), Object::Dict(facts)) = (graph.text(name), graph.object(facts)) else {
        return Ok(None);
    };
    if facts.len() > MOST_FACTS {
        return Ok(None);
    }
    budget.take_memory(Cost::ITEM)?;
    budget.take_memory(Cost::name(variable.split('.').count(), variable.len() as u64))?;
    let mut row = InfoRow { variable: variable.to_owned(), ..InfoRow::default() };
    for &(key, value) in facts {
        match (graph.text(key), graph.text(value), graph.truth(value)) {
            (Some(STRUCTURED), Some(name), _) => {
                budget.take_memory(Cost::name(name.split('.').count(), name.len() as u64))?;
                row.structured_name = Some(name.to_owned());
            }
            (Some(STOP_GRADIENT), _, Some(stop)) => row.stop_gradient = Some(stop),
            (Some(TRAINABLE), _, Some(trainable)) => row.trainable = Some(trainable),
            _ => return Ok(None),
        }
    }
    Ok(Some(row))
}

/// The bytes of such a file, as Paddle writes them.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`] for more variables than a pickle can number.
pub(in super::super) fn info_bytes(info: &[InfoRow]) -> Result<Vec<u8>> {
    let mut builder = Builder::new();
    let mut rows = Vec::with_capacity(info.len());
    for row in info {
        let variable = builder.text(&row.variable)?;
        let mut facts = Vec::with_capacity(3);
        if let Some(name) = &row.structured_name {
            facts.push((builder.interned(STRUCTURED)?, builder.text(name)?));
        }
        if let Some(stop) = row.stop_gradient {
            facts.push((builder.interned(STOP_GRADIENT)?, builder.bool(stop)));
        }
        if let Some(trainable) = row.trainable {
            facts.push((builder.interned(TRAINABLE)?, builder.bool(trainable)));
        }
        rows.push((variable, builder.dict(facts)?));
    }
    let root = builder.dict(rows)?;
    let foreign = || Error::usage("pickle-payload", "a pickle of names holds nothing but names");
    let mut bytes = Vec::new();
    for part in write(&builder.finish(), root, 2, &mut |_| Err(foreign()))? {
        match part {
            Part::Literal(literal) => bytes.extend(literal),
            _ => return Err(foreign()),
        }
    }
    Ok(bytes)
}
