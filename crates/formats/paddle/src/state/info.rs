//! `.pdiparams.info`: attributes of the variables of a program.
//!
//! A pickle of protocol 2: `{variable: {"structured_name": text, "stop_gradient": bool,
//! "trainable": bool}}`. It may have more variables than the parameter file has tensors.

use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Builder, Cost, Graph, Object, ObjectId, Options, Part, read, write};

const STRUCTURED: &str = "structured_name";
const STOP_GRADIENT: &str = "stop_gradient";
const TRAINABLE: &str = "trainable";
/// Maximum number of attributes of a variable. Variables may share one dict, and it is read for each of them.
const MAX_ATTRIBUTES: usize = 3;

/// Attributes of one variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct InfoRow {
    /// Variable name in the program.
    pub(in super::super) variable: String,
    /// Name in the structure of the source code, if any.
    pub(in super::super) structured_name: Option<String>,
    /// True if no gradient flows to the variable.
    pub(in super::super) stop_gradient: Option<bool>,
    /// True if training changes the variable; parameters only.
    pub(in super::super) trainable: Option<bool>,
}

/// All variables in file order.
pub(in super::super) type Info = Vec<InfoRow>;

/// Reads an info file; `None` if the pickle has other content.
///
/// # Errors
/// Errors of the pickle reader for a malformed pickle; [`weighbridge_core::Kind::Limit`].
pub(in super::super) fn read_info(source: &SourceRef, limits: &Limits) -> Result<Option<Info>> {
    let bounds = Options::with_limits(limits.clone());
    let pickle = read(source, 0, &bounds)?;
    let Object::Dict(pairs) = pickle.graph.object(pickle.root) else { return Ok(None) };
    Limits::check("variables", "tensors", pairs.len() as u64, limits.tensors)?;
    // All variables may share one text.
    let budget = pickle.budget();
    let mut rows = Vec::new();
    for &(name, attributes) in pairs {
        let Some(row) = row(&pickle.graph, name, attributes, budget)? else { return Ok(None) };
        rows.push(row);
    }
    Ok(Some(rows))
}

/// Reads the attributes of a variable; `None` if they have another form.
fn row(graph: &Graph, name: ObjectId, attributes: ObjectId, budget: &Budget) -> Result<Option<InfoRow>> {
    let (Some(variable), Object::Dict(attributes)) = (graph.text(name), graph.object(attributes)) else {
        return Ok(None);
    };
    if attributes.len() > MAX_ATTRIBUTES {
        return Ok(None);
    }
    budget.take_memory(Cost::ITEM)?;
    budget.take_memory(Cost::name(variable.split('.').count(), variable.len() as u64))?;
    let mut row = InfoRow { variable: variable.to_owned(), ..InfoRow::default() };
    for &(key, value) in attributes {
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

/// Encodes an info file as Paddle writes it.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`] for more variables than a pickle supports.
pub(in super::super) fn info_bytes(info: &[InfoRow]) -> Result<Vec<u8>> {
    let mut builder = Builder::new();
    let mut rows = Vec::with_capacity(info.len());
    for row in info {
        let variable = builder.text(&row.variable)?;
        let mut attributes = Vec::with_capacity(3);
        if let Some(name) = &row.structured_name {
            attributes.push((builder.interned(STRUCTURED)?, builder.text(name)?));
        }
        if let Some(stop) = row.stop_gradient {
            attributes.push((builder.interned(STOP_GRADIENT)?, builder.bool(stop)));
        }
        if let Some(trainable) = row.trainable {
            attributes.push((builder.interned(TRAINABLE)?, builder.bool(trainable)));
        }
        rows.push((variable, builder.dict(attributes)?));
    }
    let root = builder.dict(rows)?;
    let foreign = || Error::usage("pickle-payload", "an info file cannot contain arrays");
    let mut bytes = Vec::new();
    for part in write(&builder.finish(), root, 2, &mut |_| Err(foreign()))? {
        match part {
            Part::Literal(literal) => bytes.extend(literal),
            _ => return Err(foreign()),
        }
    }
    Ok(bytes)
}
