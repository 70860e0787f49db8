//! Dimensions in another order: element (i, j) becomes element (j, i). No bytes move.

use super::permuted::{PermutedSource, permuted};
use crate::checkpoint::{ALIAS_OF, Checkpoint, Loss, Piece, Selection, TensorEntry, TensorPath, escape_text};
use crate::error::{Error, Result};
use crate::tensor::{Encoding, Region, Shape};
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
    /// The places of state that was turned: true where it went along with its parameter, false where it was named itself.
    pub(super) state: Vec<(usize, bool)>,
    /// `state-not-transposed`: tensors of which some state may be that is left as it was. `state-guessed`: tensors whose state
    /// went along, though it may be another one's.
    pub(super) losses: Vec<Loss>,
}

/// Transposes the parameters that `pattern` matches, each with its optimizer state. State that it matches, and whose
/// parameter it does not, is transposed alone.
///
/// Without `axes` matrices are turned, tensors of fewer dimensions stay, and others are refused. State of
/// the shape of its parameter goes along; what is one number, or nothing, stays; other state is refused.
/// State with a path of its own goes along where it is known which parameter it is about; where that is not
/// known, it stays, which is a loss. So it is where that is guessed, and a tensor that stays may be meant as well.
///
/// # Errors
/// [`crate::Kind::Mismatch`]: `transpose-rank`, `state-shape`, `named-rows`, `dimension-has-a-meaning`;
/// [`crate::Kind::Unsupported`], `packed-transpose`.
pub(super) fn transpose(
    checkpoint: &mut Checkpoint,
    pattern: &Selection,
    axes: Option<&[usize]>,
) -> Result<Turned> {
    let parameters: HashMap<_, _> = checkpoint
        .tensors
        .iter()
        .filter(|t| t.role.slot().is_none() && pattern.selects(t))
        .map(|t| (t.path.clone(), t.shape.clone()))
        .collect();
    let goes = |t: &TensorEntry| pattern.selects(t) || parameters.contains_key(&t.path);
    let (mut changed, mut reordered, mut state) = (Vec::new(), Vec::new(), Vec::new());
    let mut turn = |place: usize, tensor: &TensorEntry| -> Result<bool> {
        let order = match (axes, tensor.shape.rank()) {
            (Some(axes), rank) if axes.len() == rank => axes.to_vec(),
            (None, 2) => vec![1, 0],
            (None, 0 | 1) => return Ok(false),
            (_, rank) => return Err(wrong_rank(tensor, axes, rank)),
        };
        if order.iter().copied().eq(0..order.len()) {
            return Ok(false);
        }
        changed.push((place, permute(tensor, &order)?));
        if !is_reversed(&order) {
            reordered.push(place);
        }
        Ok(true)
    };
    // Parameters by name: whether each was turned, as state may speak of it.
    let mut turned: HashMap<String, &TensorEntry> = HashMap::new();
    for (place, tensor) in checkpoint.tensors.iter().enumerate().filter(|(_, t)| goes(t)) {
        let parameter = parameters.get(&tensor.path).filter(|_| tensor.role.slot().is_some());
        if tensor.role.slot().is_some() && !goes_along(tensor, parameter)? {
            continue;
        }
        if turn(place, tensor)? {
            match tensor.role.is_state() {
                true => state.push((place, parameter.is_some())),
                false => _ = turned.insert(tensor.text(), tensor),
            }
        }
    }
    let (mut owners, mut guessed) = (HashSet::new(), Vec::new());
    let mut stray = None;
    for (place, tensor) in checkpoint.tensors.iter().enumerate() {
        match tensor.role.state_of() {
            // What the pattern matches by its own name was turned above.
            Some(of) => {
                owners.insert(of.name.as_str());
                if !goes(tensor)
                    && let Some(parameter) = turned.get(&of.name)
                    && goes_along(tensor, Some(&parameter.shape))?
                    && turn(place, tensor)?
                {
                    state.push((place, true));
                    guessed.extend(of.guessed.then_some(*parameter));
                }
            }
            None if tensor.role.is_state() && tensor.role.slot().is_none() => {
                let left = tensor.elements() > 1 && !goes(tensor);
                stray = stray.or_else(|| left.then(|| tensor.name()));
            }
            None => {}
        }
    }
    let mut losses = not_transposed(&turned, &owners, stray.as_deref());
    losses.extend(of_another(checkpoint, &turned, &guessed));
    let count = changed.len() as u64;
    for (place, tensor) in changed {
        if let Some(slot) = checkpoint.tensors.get_mut(place) {
            *slot = tensor;
        }
    }
    Ok(Turned { count, reordered, state, losses })
}

/// True for state that is transposed with its parameter, false for what is one number. `parameter` is the shape of
/// that one, where it is there.
fn goes_along(state: &TensorEntry, parameter: Option<&Shape>) -> Result<bool> {
    match parameter {
        Some(shape) if *shape == state.shape => Ok(true),
        _ if state.elements() <= 1 => Ok(false),
        None => Ok(true),
        Some(shape) => Err(Error::mismatch(
            "state-shape",
            "this state does not have the shape of its parameter, so nobody knows how to transpose it",
        )
        .on_tensor(state.name())
        .expected(shape)
        .found(&state.shape)
        .hint("leave the state out (--no-state), or the parameter untransposed")),
    }
}

/// The losses of what was `turned`: of each tensor whose state may be the `stray` one, and of each that shares its
/// bytes with a tensor that has state (is one of `owners`) and was not turned.
fn not_transposed(
    turned: &HashMap<String, &TensorEntry>,
    owners: &HashSet<&str>,
    stray: Option<&str>,
) -> Vec<Loss> {
    let code = "state-not-transposed";
    let mut losses: Vec<Loss> = turned
        .iter()
        .filter(|(name, _)| !owners.contains(name.as_str()))
        .filter_map(|(_, tensor)| {
            let shared = tensor
                .text_attribute(ALIAS_OF)
                .filter(|of| owners.contains(of))
                .map(|of| (of, turned.contains_key(of)));
            let detail = match (shared, stray) {
                (Some((_, true)), _) | (None, None) => return None,
                (Some((of, false)), _) => {
                    let of = escape_text(of);
                    format!("the optimizer's state is that of {of}, which has the same bytes and is left as it was")
                }
                (None, Some(stray)) => format!(
                    "which state of the optimizer is this tensor's is not known, so that none was transposed, such as \
                     {stray}; --no-state leaves it out"
                ),
            };
            Some(Loss::new(code, tensor.name(), detail))
        })
        .collect();
    losses.sort_by(|a, b| a.subject.cmp(&b.subject));
    losses
}

/// The losses of those parameters whose state was taken along by a guess, and may be that of a tensor that was not
/// `turned`: the order of an optimizer need not be that of the model, but its state has the shapes of its parameters.
fn of_another(
    checkpoint: &Checkpoint,
    turned: &HashMap<String, &TensorEntry>,
    guessed: &[&TensorEntry],
) -> Vec<Loss> {
    if guessed.is_empty() {
        return Vec::new();
    }
    let mut others: HashMap<&Shape, &TensorEntry> = HashMap::new();
    let stays = |t: &&TensorEntry| {
        !t.role.is_state() && !t.attributes.contains_key(ALIAS_OF) && !turned.contains_key(&t.text())
    };
    for tensor in checkpoint.tensors.iter().filter(stays) {
        others.entry(&tensor.shape).or_insert(tensor);
    }
    let mut losses = Vec::new();
    let mut told: HashSet<&TensorPath> = HashSet::new();
    for parameter in guessed {
        let Some(other) = others.get(&parameter.shape).filter(|_| told.insert(&parameter.path)) else {
            continue;
        };
        let detail = format!(
            "no name says whose the optimizer's state is: by the order of the tensors that of this one was transposed, and it \
             may be that of {}, which has the same shape; --no-state leaves it out",
            other.name()
        );
        losses.push(Loss::new("state-guessed", parameter.name(), detail));
    }
    losses
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
