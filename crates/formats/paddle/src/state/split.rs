//! Parameters that protocols 2 and 3 cannot hold in one piece.
//!
//! Paddle takes such an array out of its dict, and puts flat parts `KEY@@.0`, `KEY@@.1`, … behind
//! all else; `UnpackBigParamInfor@@` (so spelled) says the shape and the parts of each `KEY`.

use super::arrays::{Array, Found, find};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_io::source::{ConcatSource, SourceRef};
use weighbridge_pickle::{Graph, ObjectId, Options};

pub(super) use weighbridge_pickle::{SLICES, SPLIT as INFO};

/// What stands between the name of a parameter that was split and the number of a part.
pub(super) const INFIX: &str = "@@.";
/// The key of a shape in it.
pub(super) const SHAPE: &str = "OriginShape";
/// The most bytes of an array that Paddle writes in one piece with protocols 2 and 3.
pub(super) const MOST_BYTES: u64 = (1 << 30) - 1;

/// The key of part `number`.
pub(super) fn part_name(key: &str, number: u64) -> String {
    format!("{key}@@.{number}")
}

/// A parameter that was put together again.
#[derive(Debug)]
pub(super) struct Joined {
    /// Its key.
    pub(super) key: String,
    /// The keys of its parts.
    pub(super) parts: Vec<String>,
    /// Its elements.
    pub(super) array: Array,
}

/// Joins what the dict `info` describes; `values` are those of the dict that it stands in.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `split-parameter`, where the parts do not make the shape, or one is a part twice.
pub(super) fn join(
    graph: &Graph,
    info: ObjectId,
    values: &HashMap<&str, ObjectId>,
    (source, options): (&SourceRef, &Options),
) -> Result<Vec<Joined>> {
    let pairs = graph.pairs(info).ok_or_else(|| corrupt("what was split is not described by a dict"))?;
    let mut all = Vec::new();
    // A part belongs to one parameter, once: descriptions that are shared would multiply.
    let (mut taken, mut bytes) = (HashSet::new(), 0u64);
    for &(key, described) in pairs {
        let key = graph.text(key).ok_or_else(|| corrupt("the name of a split parameter is no text"))?;
        let joined = one(graph, key, described, values, &mut taken, (source, options));
        let joined = joined.map_err(|e| e.on_tensor(key))?;
        bytes = bytes.saturating_add(joined.array.source.len());
        if bytes > source.len() {
            return Err(corrupt("the parts of what was split share their bytes").on_tensor(key));
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
    let dims =
        field(SHAPE).and_then(|id| graph.sequence(id)).ok_or_else(|| corrupt("the shape is missing"))?;
    weighbridge_core::limits::Limits::check(
        "dimensions",
        "dimensions",
        dims.len() as u64,
        options.limits.dimensions,
    )?;
    let dim = |&id: &ObjectId| graph.int(id).and_then(|n| u64::try_from(n).ok());
    let dims: Option<Vec<u64>> = dims.iter().map(dim).collect();
    let shape = Shape::new(dims.ok_or_else(|| corrupt("an extent of the shape is no count"))?);
    let slices =
        field(SLICES).and_then(|id| graph.sequence(id)).ok_or_else(|| corrupt("the parts are missing"))?;

    let (mut ranges, mut names) = (Vec::new(), Vec::new());
    let mut kind = None;
    for &slice in slices {
        let name = graph.text(slice).ok_or_else(|| corrupt("the name of a part is no text"))?;
        let id = values.get(name).ok_or_else(|| corrupt("a part is missing").found(name))?;
        if !taken.insert(*id) {
            return Err(corrupt("a part is used twice").found(name));
        }
        let Some(Found::Tensor(_, _, part)) = find(graph, *id, source, options)? else {
            return Err(corrupt("a part is no array").found(name));
        };
        let own = (part.dtype, part.encoding.endian);
        if *kind.get_or_insert(own) != own {
            return Err(corrupt("the parts differ in the type of their elements").found(name));
        }
        if !part.shape.is_order_free() {
            return Err(corrupt("a part is not flat").found(name));
        }
        let len = part.shape.bytes(part.dtype).ok_or_else(|| corrupt("a part has no length").found(name))?;
        ranges.push((part.source, part.offset, len));
        names.push(name.to_owned());
    }
    let (dtype, endian) = kind.ok_or_else(|| corrupt("there is no part"))?;
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
        return Err(corrupt("the parts together are not as long as the shape needs")
            .expected(format_args!("{dtype} {}", array.shape))
            .found(format_args!("{} bytes", array.source.len())));
    }
    Ok(Joined { key: key.to_owned(), parts: names, array })
}

fn corrupt(message: &str) -> Error {
    Error::corrupt("split-parameter", message)
}
