//! Permuted dimensions: element (i, j) becomes element (j, i). No bytes move.

use super::permuted::{PermutedSource, permuted};
use crate::checkpoint::{Attributes, Checkpoint, Extent, Loss, Selection, TensorEntry};
use crate::error::{Error, Result};
use crate::tensor::{Encoding, Shape};
use crate::text::{escape, quoted};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Opt, Phrase};

/// Attributes that refer to a particular dimension.
const DIMENSION_ATTRIBUTES: [&str; 8] = [
    "batch",
    "lod",
    "rows",
    "height",
    "reversed",
    "quantized_shape",
    Attributes::QUANTIZED_AXIS,
    Attributes::SPARSE_LAYOUT,
];

/// Hint for tensors that cannot be transposed.
const OTHER_PATTERN: &str = "use a pattern that does not match this tensor";

/// Result of a transpose.
pub(super) struct Turned {
    /// Number of changed tensors.
    pub(super) count: u64,
    /// Indices of the tensors whose elements are reordered on reading: all but those with reversed dimensions.
    pub(super) reordered: Vec<usize>,
    /// Indices of transposed state: true where it followed its parameter, false where its own name matched.
    pub(super) state: Vec<(usize, bool)>,
    /// `state-not-transposed`: tensors with possible state that stays unchanged. `state-guessed`: tensors whose state was
    /// transposed by a guess, and may belong to another tensor.
    pub(super) losses: Vec<Loss>,
}

/// Transposes the parameters that `pattern` matches, each with its optimizer state. Matching state of an unmatched parameter
/// is transposed alone.
///
/// Without `axes`, matrices are transposed, tensors of lower rank stay, and tensors of higher rank are refused. State with the
/// shape of its parameter follows; state of at most one element stays; other state is refused.
///
/// State with several possible owners follows if all of them are transposed. Otherwise, and where its owner is unknown, it
/// stays, which is a loss. A guessed owner is a loss, too, where an unchanged tensor may be the owner instead.
/// # Errors
/// [`crate::Kind::Mismatch`]: `transpose-rank`, `state-shape`, `named-rows`, `dimension-has-a-meaning`;
/// [`crate::Kind::Unsupported`], `packed-transpose`.
pub(super) fn transpose(
    checkpoint: &mut Checkpoint,
    pattern: &Selection,
    axes: Option<&[usize]>,
) -> Result<Turned> {
    let tensors = &checkpoint.tensors;
    let owners = checkpoint.state_owners();
    let selected: Vec<bool> = tensors.iter().map(|tensor| pattern.selects(tensor)).collect();
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
    let mut owners_of = StateTracker::new(tensors);
    for (place, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| !tensor.role.is_state()) {
        owners_of.turned[place] = selected[place] && turn(place, tensor)?;
    }
    let mut guessed = Vec::new();
    for ((place, tensor), of) in
        tensors.iter().enumerate().zip(&owners).filter(|((_, t), _)| t.role.is_state())
    {
        let along = !of.is_empty() && of.iter().all(|&owner| selected[owner]);
        // A pattern that matches a parameter also matches the state with its path.
        let by_path = of.iter().any(|&owner| selected[owner] && tensors[owner].path == tensor.path);
        if along {
            // State of an unchanged parameter stays unchanged.
            if let Some(&owner) = of.iter().find(|&&owner| owners_of.turned[owner])
                && goes_along(tensor, Some(&tensors[owner].shape))?
                && turn(place, tensor)?
            {
                state.push((place, true));
                guessed.extend(tensor.role.state_of().filter(|of| of.guessed).map(|_| owner));
            }
        } else if selected[place] && !by_path {
            // Its own name matches.
            if goes_along(tensor, None)? && turn(place, tensor)? {
                state.push((place, false));
            }
        } else {
            owners_of.note_unchanged(place, of);
        }
        owners_of.note_owners(tensor, of);
    }
    let mut losses = owners_of.losses();
    losses.extend(owners_of.guessed_losses(&guessed));
    let count = changed.len() as u64;
    for (place, tensor) in changed {
        if let Some(slot) = checkpoint.tensors.get_mut(place) {
            *slot = tensor;
        }
    }
    Ok(Turned { count, reordered, state, losses })
}

/// True for state that is transposed with its parameter, false for state of at most one element. `parameter` is the shape of
/// the parameter, if it is present.
fn goes_along(state: &TensorEntry, parameter: Option<&Shape>) -> Result<bool> {
    match parameter {
        Some(shape) if *shape == state.shape => Ok(true),
        _ if state.elements() <= 1 => Ok(false),
        None => Ok(true),
        Some(shape) => Err(Error::mismatch(
            "state-shape",
            "the state cannot be transposed: its shape differs from that of its parameter",
        )
        .on_tensor(state.name())
        .expected(shape)
        .found(&state.shape)
        .hint(phrase!["drop the state (", Opt::NoState, "), or do not transpose the parameter"])),
    }
}

/// Tracks which state belongs to transposed tensors.
struct StateTracker<'a> {
    tensors: &'a [TensorEntry],
    /// By index: transposed tensors.
    turned: Vec<bool>,
    /// By index: tensors with known state.
    known: Vec<bool>,
    /// By index: unchanged state that may belong to the tensor.
    of: Vec<Option<usize>>,
    /// Indices of the first tensors with known state, by the name of the tensor whose storage they share.
    roots: HashMap<String, usize>,
    /// The quoted name of the first state with an unknown parameter.
    stray: Option<String>,
}

impl<'a> StateTracker<'a> {
    fn new(tensors: &'a [TensorEntry]) -> Self {
        let none = || vec![false; tensors.len()];
        let (turned, known, of) = (none(), none(), vec![None; tensors.len()]);
        Self { tensors, turned, known, of, roots: HashMap::new(), stray: None }
    }

    /// Records the possible owners of `state`.
    fn note_owners(&mut self, state: &TensorEntry, owners: &[usize]) {
        for &owner in owners {
            self.known[owner] = true;
            // A single element is never transposed.
            if state.elements() > 1 {
                self.roots.entry(root(&self.tensors[owner])).or_insert(owner);
            }
        }
    }

    /// Records that the state at `place` stays unchanged; it may belong to any of `owners`.
    fn note_unchanged(&mut self, place: usize, owners: &[usize]) {
        if self.tensors[place].elements() <= 1 {
            return;
        }
        if owners.is_empty() {
            self.stray.get_or_insert_with(|| quoted(&self.tensors[place].text()));
        }
        for &owner in owners {
            self.of[owner].get_or_insert(place);
        }
    }

    /// Returns the losses of transposed tensors: for each tensor with unchanged state, for each that shares storage with an
    /// unchanged tensor with state, and for each that may own state without a known parameter.
    fn losses(&self) -> Vec<Loss> {
        let name = |place: usize| quoted(&self.tensors[place].text());
        let detail = |place: usize| -> Option<Phrase> {
            if let Some(state) = self.of[place] {
                return Some(phrase![format_args!(
                    "optimizer state {} may belong to this tensor, or to an untransposed tensor of the same variable name; it \
                                         is not transposed unless a rule names it",
                    name(state)
                )]);
            }
            if self.known[place] {
                return None;
            }
            match (self.roots.get(&root(&self.tensors[place])), &self.stray) {
                (Some(&of), _) if self.turned[of] => None,
                (Some(&of), _) => Some(phrase![format_args!(
                    "its optimizer state belongs to {}, which shares its storage and is not transposed",
                    name(of)
                )]),
                (None, Some(stray)) => Some(phrase![
                    format_args!(
                        "optimizer state without a known parameter, such as {stray}, is not transposed; "
                    ),
                    Opt::NoState,
                    " drops it"
                ]),
                (None, None) => None,
            }
        };
        let turned = (0..self.tensors.len()).filter(|&place| self.turned[place]);
        let mut losses: Vec<Loss> = turned
            .filter_map(|place| {
                Some(Loss::new("state-not-transposed", self.tensors[place].name(), detail(place)?))
            })
            .collect();
        losses.sort_by(|a, b| a.subject.cmp(&b.subject));
        losses
    }

    /// Returns the losses of parameters whose state was transposed by a guess and may belong to an unchanged tensor. The order
    /// of the optimizer may differ from that of the model, but its state has the shapes of its parameters.
    fn guessed_losses(&self, guessed: &[usize]) -> Vec<Loss> {
        let mut others: HashMap<&Shape, &TensorEntry> = HashMap::new();
        let stays = |&(place, t): &(usize, &TensorEntry)| {
            !t.role.is_state() && !t.attributes.contains_key(Attributes::ALIAS_OF) && !self.turned[place]
        };
        for (_, tensor) in self.tensors.iter().enumerate().filter(stays).filter(|_| !guessed.is_empty()) {
            others.entry(&tensor.shape).or_insert(tensor);
        }
        let mut seen = HashSet::new();
        let parameters =
            guessed.iter().filter(|&&place| seen.insert(place)).map(|&place| &self.tensors[place]);
        let loss = |parameter: &TensorEntry| {
            let other = others.get(&parameter.shape)?;
            let detail = phrase![
                format_args!(
                    "the optimizer state was assigned by tensor order and transposed; it may belong to {}, which has the same shape; ",
                    other.name()
                ),
                Opt::NoState,
                " drops it"
            ];
            Some(Loss::new("state-guessed", parameter.name(), detail))
        };
        parameters.filter_map(loss).collect()
    }
}

/// Returns the name of the tensor that this one shares storage with, or its own.
fn root(tensor: &TensorEntry) -> String {
    tensor.text_attribute(Attributes::ALIAS_OF).map_or_else(|| tensor.text(), str::to_owned)
}

fn is_reversed(axes: &[usize]) -> bool {
    axes.iter().rev().copied().eq(0..axes.len())
}

fn wrong_rank(tensor: &TensorEntry, axes: Option<&[usize]>, rank: usize) -> Error {
    let error = |text: String| Error::mismatch("transpose-rank", text).on_tensor(tensor.name());
    match axes {
        Some(axes) => error("the rank of the tensor differs from that of the rule".to_owned())
            .expected(format_args!("{} dimensions", axes.len()))
            .found(format_args!("{rank} dimensions: {}", tensor.shape))
            .hint("list one axis per dimension, or use a pattern that does not match this tensor"),
        None => {
            let order: Vec<String> = (2..rank).chain([1, 0]).map(|axis| axis.to_string()).collect();
            let text = format!("`transpose` without axes needs a matrix: the tensor has {rank} dimensions");
            error(text).found(format_args!("shape {}", tensor.shape)).hint(format_args!(
                "give the order of dimensions, such as {}={}, or use a pattern that does not match this tensor",
                escape(&tensor.text()),
                order.join(",")
            ))
        }
    }
}

/// Returns the tensor with its dimensions in the order `axes`.
fn permute(tensor: &TensorEntry, axes: &[usize]) -> Result<TensorEntry> {
    if tensor.row_names.is_some() {
        return Err(Error::mismatch("named-rows", "a table with row names cannot be transposed")
            .on_tensor(tensor.name())
            .hint(OTHER_PATTERN));
    }
    if let Some(key) = DIMENSION_ATTRIBUTES.iter().find(|key| tensor.attributes.contains_key(**key)) {
        return Err(Error::mismatch(
            "dimension-has-a-meaning",
            format!("cannot transpose: the attribute {key} refers to a dimension of the tensor"),
        )
        .on_tensor(tensor.name())
        .hint(OTHER_PATTERN));
    }
    let shape = permuted(&tensor.shape, axes);
    let mut turned = TensorEntry { shape, ..tensor.clone() };
    if is_reversed(axes) {
        // The same bytes in the opposite order.
        for extent in &mut turned.extents {
            extent.part.iter_mut().for_each(|part| part.reverse());
            extent.encoding.order = extent.encoding.order.flipped();
        }
        return Ok(turned);
    }
    let source = PermutedSource::new(tensor, axes).ok_or_else(|| {
        let text = format!(
            "elements of type {} are packed into shared bytes and cannot be reordered",
            tensor.stored
        );
        Error::unsupported("packed-transpose", text).on_tensor(tensor.name()).hint(OTHER_PATTERN)
    })?;
    let len = crate::source::Source::len(&source);
    let source = Arc::new(source);
    turned.extents =
        [Extent { source, offset: 0, len, encoding: Encoding::ROW, part: None, check: None }].into();
    Ok(turned)
}
