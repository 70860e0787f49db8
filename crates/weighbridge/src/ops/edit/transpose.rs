//! Dimensions in another order: element (i, j) becomes element (j, i). No bytes move.

use super::permuted::{PermutedSource, permuted};
use crate::checkpoint::{Checkpoint, Piece, Selection, TensorEntry};
use crate::error::{Error, Result};
use crate::tensor::{Encoding, Region};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Attributes that say something of a certain dimension.
const OF_A_DIMENSION: [&str; 5] = ["batch", "lod", "rows", "height", "reversed"];

/// What was turned.
pub(super) struct Turned {
    /// How many tensors were changed.
    pub(super) count: u64,
    /// The places of those whose elements are put in order when they are read: all but those that are reversed.
    pub(super) reordered: Vec<usize>,
}

/// Transposes the parameters that `pattern` matches, each with its optimizer state.
///
/// Without `axes` matrices are turned, tensors of fewer dimensions stay, and others are refused. State of
/// the shape of its parameter goes along; what is one number, or nothing, stays; other state is refused.
///
/// # Errors
/// [`crate::Kind::Mismatch`]: `transpose-rank`, `state-shape`, `named-rows`, `dimension-has-a-meaning`;
/// [`crate::Kind::Unsupported`], `packed-transpose`.
pub(super) fn transpose(
    checkpoint: &mut Checkpoint,
    pattern: &Selection,
    axes: Option<&[usize]>,
) -> Result<Turned> {
    // State has the path of its parameter, so that what matches one matches the other.
    let paths: HashSet<_> =
        checkpoint.tensors.iter().filter(|t| pattern.selects(t)).map(|t| t.path.clone()).collect();
    let parameters: HashMap<_, _> = checkpoint
        .tensors
        .iter()
        .filter(|t| t.role.slot().is_none() && paths.contains(&t.path))
        .map(|t| (t.path.clone(), t.shape.clone()))
        .collect();
    let (mut changed, mut reordered) = (Vec::new(), Vec::new());
    for (place, tensor) in checkpoint.tensors.iter().enumerate().filter(|(_, t)| paths.contains(&t.path)) {
        if tensor.role.slot().is_some() {
            match parameters.get(&tensor.path) {
                Some(shape) if *shape == tensor.shape => {}
                Some(_) if tensor.elements() <= 1 => continue,
                Some(shape) => {
                    return Err(Error::mismatch(
                        "state-shape",
                        "this state does not have the shape of its parameter, so nobody knows how to transpose it",
                    )
                    .on_tensor(tensor.name())
                    .expected(shape)
                    .found(&tensor.shape)
                    .hint("leave the state out (--no-state), or the parameter untransposed"));
                }
                None if tensor.elements() <= 1 => continue,
                None => {}
            }
        }
        let order = match (axes, tensor.shape.rank()) {
            (Some(axes), rank) if axes.len() == rank => axes.to_vec(),
            (None, 2) => vec![1, 0],
            (None, 0 | 1) => continue,
            (_, rank) => return Err(wrong_rank(tensor, axes, rank)),
        };
        if order.iter().copied().eq(0..order.len()) {
            continue;
        }
        changed.push((place, permute(tensor, &order)?));
        if !is_reversed(&order) {
            reordered.push(place);
        }
    }
    let count = changed.len() as u64;
    for (place, tensor) in changed {
        if let Some(slot) = checkpoint.tensors.get_mut(place) {
            *slot = tensor;
        }
    }
    Ok(Turned { count, reordered })
}

fn is_reversed(axes: &[usize]) -> bool {
    axes.iter().rev().copied().eq(0..axes.len())
}

fn wrong_rank(tensor: &TensorEntry, axes: Option<&[usize]>, rank: usize) -> Error {
    let error =
        Error::mismatch("transpose-rank", "the tensor has another number of dimensions than the rule")
            .on_tensor(tensor.name())
            .found(format_args!("{rank} dimensions: {}", tensor.shape));
    match axes {
        Some(axes) => error.expected(format_args!("{} dimensions", axes.len())),
        None => error
            .expected("2 dimensions")
            .hint("give their new order, such as PATTERN=2,3,1,0, or a pattern that leaves this one out"),
    }
}

/// The tensor with its dimensions in the order `axes`.
fn permute(tensor: &TensorEntry, axes: &[usize]) -> Result<TensorEntry> {
    if tensor.labels.is_some() {
        return Err(Error::mismatch(
            "named-rows",
            "the rows of this table have names, which columns cannot have",
        )
        .on_tensor(tensor.name()));
    }
    if let Some(key) = OF_A_DIMENSION.iter().find(|key| tensor.attributes.contains_key(**key)) {
        return Err(Error::mismatch(
            "dimension-has-a-meaning",
            format!("a dimension of this tensor has a meaning of its own, by its attribute {key}"),
        )
        .on_tensor(tensor.name()));
    }
    let shape = permuted(&tensor.shape, axes);
    let mut turned = TensorEntry { shape, ..tensor.clone() };
    if is_reversed(axes) {
        // The same bytes in the other order.
        for piece in &mut turned.pieces {
            piece.region.start.reverse();
            piece.region.extent.reverse();
            piece.encoding.order = piece.encoding.order.flipped();
        }
        return Ok(turned);
    }
    let source = PermutedSource::new(tensor, axes).ok_or_else(|| {
        let text = format!("elements of type {} share bytes and cannot be reordered", tensor.stored);
        Error::unsupported("packed-transpose", text).on_tensor(tensor.name())
    })?;
    let len = crate::source::Source::len(&source);
    let region = Region::whole(&turned.shape);
    turned.pieces = vec![Piece {
        source: Arc::new(source),
        offset: 0,
        len,
        encoding: Encoding::ROW,
        region,
        check: None,
    }];
    Ok(turned)
}
