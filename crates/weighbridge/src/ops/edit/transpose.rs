//! Dimensions in another order: element (i, j) becomes element (j, i). No bytes move.

use super::permuted::{PermutedSource, permuted};
use crate::checkpoint::{Attributes, Checkpoint, Extent, Loss, Selection, TensorEntry};
use crate::error::{Error, Result};
use crate::tensor::{Encoding, Shape};
use crate::text::quoted;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Opt, Phrase};

/// Attributes that say something of a certain dimension.
const OF_A_DIMENSION: [&str; 7] =
    ["batch", "lod", "rows", "height", "reversed", Attributes::QUANTIZED_AXIS, Attributes::SPARSE_LAYOUT];

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
/// State that may be that of several tensors goes along with all of them. Where only some of them are turned, or
/// where it is not known which parameter state is about, it stays, which is a loss. So it is where that is guessed, and
/// a tensor that stays may be meant as well.
///
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
    let mut left = Left::new(tensors);
    for (place, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| !tensor.role.is_state()) {
        left.turned[place] = selected[place] && turn(place, tensor)?;
    }
    let mut guessed = Vec::new();
    for ((place, tensor), of) in
        tensors.iter().enumerate().zip(&owners).filter(|((_, t), _)| t.role.is_state())
    {
        let along = !of.is_empty() && of.iter().all(|&owner| selected[owner]);
        // What matches a parameter matches the state that has its path.
        let by_path = of.iter().any(|&owner| selected[owner] && tensors[owner].path == tensor.path);
        if along {
            // What becomes nothing of its parameter becomes nothing of it.
            if let Some(&owner) = of.iter().find(|&&owner| left.turned[owner])
                && goes_along(tensor, Some(&tensors[owner].shape))?
                && turn(place, tensor)?
            {
                state.push((place, true));
                guessed.extend(tensor.role.state_of().filter(|of| of.guessed).map(|_| owner));
            }
        } else if selected[place] && !by_path {
            // It is named itself.
            if goes_along(tensor, None)? && turn(place, tensor)? {
                state.push((place, false));
            }
        } else {
            left.stays(place, of);
        }
        left.is_known(tensor, of);
    }
    let mut losses = left.losses();
    losses.extend(left.of_another(&guessed));
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
        .hint(phrase!["leave the state out (", Opt::NoState, "), or the parameter untransposed"])),
    }
}

/// What is left of the state of tensors that are turned.
struct Left<'a> {
    tensors: &'a [TensorEntry],
    /// By place: tensors that are turned.
    turned: Vec<bool>,
    /// By place: tensors whose state is known.
    known: Vec<bool>,
    /// By place: state that stays, and may be that of the tensor.
    of: Vec<Option<usize>>,
    /// The places of the first tensors whose state is known, by the name whose bytes they have.
    roots: HashMap<String, usize>,
    /// The first state of which it is not known which parameter it is about, as it is told.
    stray: Option<String>,
}

impl<'a> Left<'a> {
    fn new(tensors: &'a [TensorEntry]) -> Self {
        let none = || vec![false; tensors.len()];
        let (turned, known, of) = (none(), none(), vec![None; tensors.len()]);
        Self { tensors, turned, known, of, roots: HashMap::new(), stray: None }
    }

    /// Notes the tensors that `state` is about.
    fn is_known(&mut self, state: &TensorEntry, owners: &[usize]) {
        for &owner in owners {
            self.known[owner] = true;
            // Nothing of a single number is transposed.
            if state.elements() > 1 {
                self.roots.entry(root(&self.tensors[owner])).or_insert(owner);
            }
        }
    }

    /// Notes that the state at `place` stays as it is, which may be that of any of `owners`.
    fn stays(&mut self, place: usize, owners: &[usize]) {
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

    /// The losses of what was turned: of each tensor whose state stays, of each that shares its bytes with a tensor
    /// that has state and was not turned, and of each whose state may be the stray one.
    fn losses(&self) -> Vec<Loss> {
        let told = |place: usize| quoted(&self.tensors[place].text());
        let detail = |place: usize| -> Option<Phrase> {
            if let Some(state) = self.of[place] {
                return Some(phrase![format_args!(
                    "{} may be state of this tensor, or of another one of its name as a variable, which is not \
                     transposed: it is left as it was, unless a rule names it, too",
                    told(state)
                )]);
            }
            if self.known[place] {
                return None;
            }
            match (self.roots.get(&root(&self.tensors[place])), &self.stray) {
                (Some(&of), _) if self.turned[of] => None,
                (Some(&of), _) => Some(phrase![format_args!(
                    "the optimizer's state is that of {}, which has the same bytes and is left as it was",
                    told(of)
                )]),
                (None, Some(stray)) => Some(phrase![
                    format_args!(
                        "which state of the optimizer is this tensor's is not known, so that none was transposed, such as {stray}; "
                    ),
                    Opt::NoState,
                    " leaves it out"
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

    /// The losses of those parameters whose state was taken along by a guess, and may be that of a tensor that was not
    /// turned: the order of an optimizer need not be that of the model, but its state has the shapes of its parameters.
    fn of_another(&self, guessed: &[usize]) -> Vec<Loss> {
        let mut others: HashMap<&Shape, &TensorEntry> = HashMap::new();
        let stays = |&(place, t): &(usize, &TensorEntry)| {
            !t.role.is_state() && !t.attributes.contains_key(Attributes::ALIAS_OF) && !self.turned[place]
        };
        for (_, tensor) in self.tensors.iter().enumerate().filter(stays).filter(|_| !guessed.is_empty()) {
            others.entry(&tensor.shape).or_insert(tensor);
        }
        let mut told = HashSet::new();
        let parameters =
            guessed.iter().filter(|&&place| told.insert(place)).map(|&place| &self.tensors[place]);
        let loss = |parameter: &TensorEntry| {
            let other = others.get(&parameter.shape)?;
            let detail = phrase![
                format_args!(
                    "no name says whose the optimizer's state is: by the order of the tensors that of this one was transposed, and it may be that of {}, which has the same shape; ",
                    other.name()
                ),
                Opt::NoState,
                " leaves it out"
            ];
            Some(Loss::new("state-guessed", parameter.name(), detail))
        };
        parameters.filter_map(loss).collect()
    }
}

/// The name of the tensor that this one shares its bytes with, or its own.
fn root(tensor: &TensorEntry) -> String {
    tensor.text_attribute(Attributes::ALIAS_OF).map_or_else(|| tensor.text(), str::to_owned)
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
    if tensor.row_names.is_some() {
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
        for extent in &mut turned.extents {
            extent.part.iter_mut().for_each(|part| part.reverse());
            extent.encoding.order = extent.encoding.order.flipped();
        }
        return Ok(turned);
    }
    let source = PermutedSource::new(tensor, axes).ok_or_else(|| {
        let text = format!("elements of type {} share bytes and cannot be reordered", tensor.stored);
        Error::unsupported("packed-transpose", text).on_tensor(tensor.name())
    })?;
    let len = crate::source::Source::len(&source);
    let source = Arc::new(source);
    turned.extents =
        [Extent { source, offset: 0, len, encoding: Encoding::ROW, part: None, check: None }].into();
    Ok(turned)
}
