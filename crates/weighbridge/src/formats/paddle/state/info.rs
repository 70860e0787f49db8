//! `.pdiparams.info`: what a layer knew of the variables of its program.
//!
//! A pickle of protocol 2: `{variable: {"structured_name": text, "stop_gradient": bool,
//! "trainable": bool}}`. It has more variables than the file of parameters has tensors.

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::pickle::{Builder, Graph, Object, ObjectId, Options, Part, read, write};
use crate::source::SourceRef;

const STRUCTURED: &str = "structured_name";
const STOP_GRADIENT: &str = "stop_gradient";
const TRAINABLE: &str = "trainable";

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
/// What the pickle room says of a broken pickle; [`crate::Kind::Limit`].
pub(in super::super) fn read_info(source: &SourceRef, limits: &Limits) -> Result<Option<Info>> {
    let pickle = read(source, 0, &Options::with_limits(limits.clone()))?;
    let Object::Dict(pairs) = pickle.graph.object(pickle.root) else { return Ok(None) };
    Limits::check("variables", "tensors", pairs.len() as u64, limits.tensors)?;
    Ok(pairs.iter().map(|&(name, facts)| row(&pickle.graph, name, facts)).collect())
}

fn row(graph: &Graph, name: ObjectId, facts: ObjectId) -> Option<InfoRow> {
    let mut row = InfoRow { variable: graph.text(name)?.to_owned(), ..InfoRow::default() };
    let Object::Dict(facts) = graph.object(facts) else { return None };
    for &(key, value) in facts {
        match graph.text(key)? {
            STRUCTURED => row.structured_name = Some(graph.text(value)?.to_owned()),
            STOP_GRADIENT => row.stop_gradient = Some(graph.truth(value)?),
            TRAINABLE => row.trainable = Some(graph.truth(value)?),
            _ => return None,
        }
    }
    Some(row)
}

/// The bytes of such a file, as Paddle writes them.
///
/// # Errors
/// [`crate::Kind::Limit`] for more variables than a pickle can number.
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
