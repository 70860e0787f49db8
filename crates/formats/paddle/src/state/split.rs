//! Parameters that protocols 2 and 3 store in several parts.
//!
//! Paddle removes a large array from its dict and appends flat parts `KEY@@.0`, `KEY@@.1`, … after all other
//! items. `UnpackBigParamInfor@@` (spelled so) contains the shape and the parts of each `KEY`.

use super::arrays::{Array, Found, find};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_io::source::{ConcatSource, SourceRef};
use weighbridge_pickle::{Graph, ObjectId, Options};

pub(super) use weighbridge_pickle::{SLICES, SPLIT as INFO};

/// Separator between the name of a split parameter and the number of a part.
pub(super) const INFIX: &str = "@@.";
/// Key of the shape of a split parameter.
pub(super) const SHAPE: &str = "OriginShape";
/// Maximum length in bytes of an array that Paddle writes in one piece with protocols 2 and 3.
pub(super) const MAX_ARRAY_BYTES: u64 = (1 << 30) - 1;

/// Returns the key of part `number`.
pub(super) fn part_name(key: &str, number: u64) -> String {
    format!("{key}@@.{number}")
}

/// Parameter that was joined from its parts.
#[derive(Debug)]
pub(super) struct Joined {
    /// Key of the parameter.
    pub(super) key: String,
    /// Keys of its parts.
    pub(super) parts: Vec<String>,
    /// Elements of the parameter.
    pub(super) array: Array,
}

/// Joins the parameters that the dict `info` describes; `values` are the items of the dict that contains it.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `split-parameter`, if the parts do not match the shape, or a part is used twice.
pub(super) fn join(
    graph: &Graph,
    info: ObjectId,
    values: &HashMap<&str, ObjectId>,
    (source, options): (&SourceRef, &Options),
) -> Result<Vec<Joined>> {
    let pairs =
        graph.pairs(info).ok_or_else(|| corrupt("the description of split parameters is not a dict"))?;
    let mut all = Vec::new();
    // A part belongs to one parameter only: shared descriptions would multiply the work.
    let (mut taken, mut bytes) = (HashSet::new(), 0u64);
    for &(key, described) in pairs {
        let key = graph.text(key).ok_or_else(|| corrupt("the name of a split parameter is not text"))?;
        let joined = one(graph, key, described, values, &mut taken, (source, options));
        let joined = joined.map_err(|e| e.on_tensor(key))?;
        bytes = bytes.saturating_add(joined.array.source.len());
        if bytes > source.len() {
            return Err(corrupt("parts of split parameters overlap").on_tensor(key));
        }
        all.push(joined);
    }
    Ok(all)
}

fn one(
    graph: &Graph,
    key: &str,
    described: ObjectId,
    values: &HashMap<&str, ObjectId>,
    taken: &mut HashSet<ObjectId>,
    (source, options): (&SourceRef, &Options),
) -> Result<Joined> {
    let field = |name: &str| {
        let pairs = graph.pairs(described)?;
        pairs.iter().find(|(key, _)| graph.text(*key) == Some(name)).map(|&(_, value)| value)
    };
    let dims = field(SHAPE)
        .and_then(|id| graph.sequence(id))
        .ok_or_else(|| corrupt("the split parameter has no shape"))?;
    weighbridge_core::limits::Limits::check(
        "dimensions",
        "dimensions",
        dims.len() as u64,
        options.limits.dimensions,
    )?;
    let dim = |&id: &ObjectId| graph.int(id).and_then(|n| u64::try_from(n).ok());
    let dims: Option<Vec<u64>> = dims.iter().map(dim).collect();
    let shape =
        Shape::new(dims.ok_or_else(|| corrupt("a dimension of the shape is not a non-negative integer"))?);
    let slices = field(SLICES)
        .and_then(|id| graph.sequence(id))
        .ok_or_else(|| corrupt("the split parameter has no list of parts"))?;

    let (mut ranges, mut names) = (Vec::new(), Vec::new());
    let mut kind = None;
    for &slice in slices {
        let name = graph.text(slice).ok_or_else(|| corrupt("the name of a part is not text"))?;
        let id = values.get(name).ok_or_else(|| corrupt("a part is missing").found(name))?;
        if !taken.insert(*id) {
            return Err(corrupt("duplicate part").found(name));
        }
        let Some(Found::Tensor(_, _, part)) = find(graph, *id, source, options)? else {
            return Err(corrupt("a part is not an array").found(name));
        };
        let own = (part.dtype, part.encoding.endian);
        if *kind.get_or_insert(own) != own {
            return Err(corrupt("the parts differ in dtype").found(name));
        }
        if !part.shape.is_order_free() {
            return Err(corrupt("a part is not one-dimensional").found(name));
        }
        let len = part
            .shape
            .bytes(part.dtype)
            .ok_or_else(|| corrupt("the length of a part exceeds 2^64 bytes").found(name))?;
        ranges.push((part.source, part.offset, len));
        names.push(name.to_owned());
    }
    let (dtype, endian) = kind.ok_or_else(|| corrupt("the list of parts is empty"))?;
    let whole = ConcatSource::new(source.label(), ranges)?;
    let array = Array {
        dtype,
        offset: 0,
        encoding: Encoding { endian, ..Encoding::ROW },
        source: Arc::new(whole),
        shape,
        made_of: None,
    };
    if array.shape.bytes(dtype) != Some(array.source.len()) {
        return Err(corrupt("the total length of the parts does not match the shape")
            .expected(format_args!("{dtype} {}", array.shape))
            .found(format_args!("{} bytes", array.source.len())));
    }
    Ok(Joined { key: key.to_owned(), parts: names, array })
}

fn corrupt(message: &str) -> Error {
    Error::corrupt("split-parameter", message)
}
