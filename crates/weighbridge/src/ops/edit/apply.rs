//! Rules upon an index. No bytes move.

use super::renaming::Renaming;
use super::rule::{Action, Rule};
use super::transpose::transpose;
use crate::checkpoint::{
    Attributes, Checkpoint, Loss, Metadata, Modules, Note, SameRead, Selection, TensorEntry, TensorPath,
    Value, escape_text,
};
use crate::engine::{NoProgress, Progress};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::ops::hash::sha256;
use crate::tensor::{Cast, DType};
use std::collections::{HashMap, HashSet};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// What applying rules came to.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// What the rules lose.
    pub losses: Vec<Loss>,
    /// Rules that did nothing, where that is allowed.
    pub notes: Vec<Note>,
    /// For each tensor that is left, its place before.
    pub places: Vec<usize>,
    /// Names that were tied: each with the one that it shares its bytes with, as they are displayed.
    pub ties: Vec<(String, String)>,
    /// How often the elements of a tensor, by its place before, are put in another order when they are read.
    reordered: HashMap<usize, usize>,
    /// State that was transposed, by its place before: with its parameter, or by its own name.
    turned: HashMap<usize, bool>,
    /// Hashes of tensors that were tied, by their places before, until a rule is about something else.
    hashes: HashMap<usize, String>,
}

/// So often the elements of one tensor may be put in another order: each time is a step of reading.
const MOST_REORDERED: usize = 16;

/// Applies `rules` in their order, each upon what the one before left. A rule that fits nothing is an error,
/// or where `lenient` is true, a note. Nothing is read, except of tensors that are tied: these are compared.
///
/// # Errors
/// [`crate::Kind::Mismatch`]: `no-match`, `name-collision`, `empty-path`, `ambiguous-rule`, `no-such-tensor`,
/// `tie-differs`, `transposed-twice` and what is said of transposes; [`crate::Kind::Unsupported`], `no-such-cast`,
/// `packed-transpose`; [`crate::Kind::Usage`], `reserved-key`; [`crate::Kind::Limit`] for names without measure. The checkpoint is then changed in part.
pub fn apply(checkpoint: &mut Checkpoint, rules: &[Rule], lenient: bool) -> Result<Applied> {
    apply_watched(checkpoint, rules, lenient, &NoProgress)
}

/// As [`apply`], asked by `progress` whether to go on: thousands of rules upon thousands of tensors take their time.
///
/// # Errors
/// As [`apply`]; [`crate::Kind::Cancelled`].
pub(crate) fn apply_watched(
    checkpoint: &mut Checkpoint,
    rules: &[Rule],
    lenient: bool,
    progress: &dyn Progress,
) -> Result<Applied> {
    let mut applied = Applied { places: (0..checkpoint.tensors.len()).collect(), ..Applied::default() };
    let room = room(checkpoint);
    // They follow at the end: of one module that is renamed tensor by tensor, a rule alone knows but a part.
    let modules = Modules::of(checkpoint);
    let mut paths_before = None;
    for rule in rules {
        if progress.stopped() {
            return Err(Error::cancelled());
        }
        if !matches!(rule.action, Action::Tie { .. }) {
            applied.hashes.clear();
        }
        if matches!(rule.action, Action::Rename(_)) && paths_before.is_none() && rules.len() > 1 {
            let paths: Vec<TensorPath> =
                checkpoint.tensors.iter().map(|tensor| tensor.path.clone()).collect();
            paths_before = Some((paths, applied.places.clone()));
        }
        let done = one(checkpoint, &rule.action, &mut applied, room, progress);
        let unused = done.map_err(|e| rule.blame(e).in_file(&checkpoint.label))?;
        // Not after the whole: another tensor could have the name of one that is gone by then.
        if !matches!(rule.action, Action::Rename(_)) {
            applied.notes.extend(checkpoint.settle_aliases());
        }
        let Some(unused) = unused else { continue };
        if !lenient {
            let renamed = paths_before.as_ref().and_then(|(paths, places)| {
                renamed_before(checkpoint, &rule.action, &applied, paths, places)
            });
            let why = renamed.unwrap_or_else(|| what_fits(&rule.action).to_owned());
            let error = Error::mismatch("no-match", format!("this rule fits nothing: {unused}"))
                .found(escape_text(rule.text()))
                .hint(phrase![format_args!("{why}; "), Opt::LenientRules, " goes on"]);
            return Err(rule.blame(error).in_file(&checkpoint.label));
        }
        applied.notes.push(Note::new("rule-unused", format!("{}: {unused}", rule.text())));
    }
    if let Some(modules) = modules {
        applied.losses.extend(modules.follow(checkpoint, &applied.places));
    }
    // Without a rule nothing is cast here.
    for tensor in checkpoint.tensors.iter().filter(|_| !rules.is_empty()) {
        if let Some(cast) = tensor.cast.filter(|cast| !tensor.stored.cast_is_exact(cast.to)) {
            let detail = tensor.stored.rounding_detail(cast);
            applied.losses.push(Loss::new("rounding", tensor.name(), detail));
        }
    }
    Ok(applied)
}

/// What an action fits, for a hint.
fn what_fits(action: &Action) -> &'static str {
    match action {
        Action::Transpose { .. } => {
            "patterns cover the whole name; PATTERN=1,0,2 gives the new order of dimensions, counted from 0"
        }
        _ => "patterns cover the whole name, a rename the whole name or whole leading parts",
    }
}

/// A tensor that the action would have fitted under the name it had before the rules, as a hint. `paths` are those of
/// the tensors at the `places` before.
fn renamed_before(
    checkpoint: &Checkpoint,
    action: &Action,
    applied: &Applied,
    paths: &[TensorPath],
    places: &[usize],
) -> Option<String> {
    let fits = |tensor: &TensorEntry| match action {
        Action::Keep(pattern)
        | Action::Drop(pattern)
        | Action::Untie(pattern)
        | Action::Transpose { pattern, .. }
        | Action::Cast { pattern, .. } => pattern.selects(tensor),
        Action::Rename(list) => {
            list.iter().any(|(rename, _)| matches!(rename.apply(&tensor.path), Ok(Some(_))))
        }
        _ => false,
    };
    checkpoint.tensors.iter().zip(&applied.places).find_map(|(tensor, place)| {
        let path = paths.get(places.binary_search(place).ok()?)?;
        if *path == tensor.path {
            return None;
        }
        let before = TensorEntry { path: path.clone(), ..tensor.clone() };
        (fits(&before) && !fits(tensor)).then(|| {
            format!("{} is called {} by then, as rules are applied in turn", before.name(), tensor.name())
        })
    })
}

/// What a part of a path takes beside its bytes.
const PART: u64 = 32;

/// What the path takes in memory.
fn weight_of(path: &TensorPath) -> u64 {
    path.parts().iter().fold(0, |sum, part| sum.saturating_add(part.as_bytes().len() as u64 + PART))
}

/// What the names of all tensors may take after a rename: rules that double a name are soon beyond all memory. Three
/// times what they took before is free, and 256 bytes for each.
fn room(checkpoint: &Checkpoint) -> u64 {
    let each = |tensor: &TensorEntry| weight_of(&tensor.path).saturating_mul(3).saturating_add(256);
    checkpoint.tensors.iter().fold(4 << 20, |sum: u64, tensor| sum.saturating_add(each(tensor)))
}

/// Applies one rule. Gives what of it was of no use, if something was.
fn one(
    checkpoint: &mut Checkpoint,
    action: &Action,
    applied: &mut Applied,
    room: u64,
    progress: &dyn Progress,
) -> Result<Option<String>> {
    let unless = |used: bool, why: &str| (!used).then(|| why.to_owned());
    Ok(match action {
        Action::Keep(selection) => {
            let unused = unmatched(checkpoint, selection);
            retain(checkpoint, applied, |tensor| selection.selects(tensor));
            checkpoint.notes.retain(|note| selection.selects_note(note));
            unused
        }
        Action::Drop(selection) => {
            let unused = unmatched(checkpoint, selection);
            retain(checkpoint, applied, |tensor| !selection.selects(tensor));
            checkpoint.notes.retain(|note| note.skipped.is_none() || !selection.selects_note(note));
            unused
        }
        Action::NoState => {
            let count = |checkpoint: &Checkpoint| checkpoint.tensors.len() + checkpoint.notes.len();
            let before = count(checkpoint);
            retain(checkpoint, applied, |tensor| !tensor.role.is_state());
            checkpoint.notes.retain(|note| !note.is_of_state());
            unless(count(checkpoint) < before, "no tensor is known to be optimizer state")
        }
        Action::Rename(list) => rename_all(checkpoint, list, room, progress)?,
        Action::Transpose { pattern, axes } => {
            let changes = transpose_all(checkpoint, pattern, axes.as_deref(), applied)?;
            (!changes).then(|| unturned(checkpoint, pattern, axes.as_deref()))
        }
        Action::Cast { pattern, cast } => {
            unless(cast_some(checkpoint, pattern, *cast)?, "no tensor of floating-point numbers matches")
        }
        Action::Tie { name, of } => {
            let tied = tie(checkpoint, name, of, applied)?;
            applied.ties.push(tied);
            None
        }
        Action::Untie(pattern) => unless(untie(checkpoint, pattern), "no such name shares its bytes"),
        Action::SetMetadata { key, value } => {
            if key.starts_with(Metadata::RESERVED_PREFIX) {
                return Err(Error::usage("reserved-key", "keys of this beginning belong to Weighbridge")
                    .found(escape_text(key)));
            }
            checkpoint.metadata.set(key.clone(), Value::Text(value.clone()));
            None
        }
        Action::RemoveMetadata(key) => {
            unless(checkpoint.metadata.remove(key).is_some(), "there is no such key")
        }
    })
}

/// Gives each tensor the name that the first of the renamings that fits it makes of its own. Gives the first that fits
/// none. The new names take `room` bytes at most.
fn rename_all(
    checkpoint: &mut Checkpoint,
    list: &[(Renaming, String)],
    room: u64,
    progress: &dyn Progress,
) -> Result<Option<String>> {
    let mut used = vec![false; list.len()];
    let mut paths = Vec::with_capacity(checkpoint.tensors.len());
    let mut weight = 0u64;
    let most = Limits::default().path_parts;
    for tensor in &checkpoint.tensors {
        if progress.stopped() {
            return Err(Error::cancelled());
        }
        let mut new = None;
        for ((renaming, _), used) in list.iter().zip(&mut used) {
            new = renaming.apply(&tensor.path)?;
            if let Some(new) = &new {
                let parts = new.parts().len() as u64;
                Limits::check("parts in a new name", "none: this one is fixed", parts, most)?;
                *used = true;
                break;
            }
        }
        weight = weight.saturating_add(weight_of(new.as_ref().unwrap_or(&tensor.path)));
        if weight > room {
            return Err(Error::limit("names-too-long", "the new names take too much together")
                .expected(format_args!("at most {room} bytes, {PART} of them for each part"))
                .hint("rules may double names again and again; see what becomes of one of them"));
        }
        paths.push(new);
    }
    checkpoint.set_paths(paths)?;
    let idle = list.iter().zip(used).find(|(_, used)| !used);
    Ok(idle.map(|((_, text), _)| format!("{} fits no name", escape_text(text))))
}

/// Transposes the tensors that match, and state along with its parameter. False where none would change.
fn transpose_all(
    checkpoint: &mut Checkpoint,
    pattern: &Selection,
    axes: Option<&[usize]>,
    applied: &mut Applied,
) -> Result<bool> {
    let turned = transpose(checkpoint, pattern, axes)?;
    applied.losses.extend(turned.losses);
    for (place, along) in turned.state {
        if *applied.turned.entry(applied.places[place]).or_insert(along) != along {
            let text = "this state is transposed twice: with its parameter, and by its own name";
            return Err(Error::mismatch("transposed-twice", text)
                .on_tensor(checkpoint.tensors[place].name())
                .hint("name the parameter alone: its state goes along"));
        }
    }
    for place in turned.reordered {
        let times = applied.reordered.entry(applied.places[place]).or_default();
        *times += 1;
        if *times > MOST_REORDERED {
            let why = "the dimensions of a tensor are put in another order again and again";
            return Err(Error::limit("too-many-transposes", why)
                .on_tensor(checkpoint.tensors[place].name())
                .expected(format_args!("at most {MOST_REORDERED} times"))
                .hint("one rule can say what comes of all of them"));
        }
    }
    Ok(turned.count > 0)
}

/// Why a transpose changes nothing, as a sentence.
fn unturned(checkpoint: &Checkpoint, pattern: &Selection, axes: Option<&[usize]>) -> String {
    let nothing = || match axes {
        Some(axes) if axes.iter().copied().eq(0..axes.len()) => {
            let axes = axes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            format!("the axes {axes} are the order in which the dimensions are")
        }
        Some(_) => "no tensor would change".to_owned(),
        None => "what matches has fewer than two dimensions".to_owned(),
    };
    unmatched(checkpoint, pattern).unwrap_or_else(nothing)
}

/// What of a selection matches nothing, as a sentence.
fn unmatched(checkpoint: &Checkpoint, selection: &Selection) -> Option<String> {
    let error = selection.check_matched(&[checkpoint]).err()?;
    Some(format!("{} matches no tensor", escape_text(error.found_text().unwrap_or_default())))
}

fn retain(checkpoint: &mut Checkpoint, applied: &mut Applied, keep: impl Fn(&TensorEntry) -> bool) {
    let kept: Vec<bool> = checkpoint.tensors.iter().map(keep).collect();
    let mut here = kept.iter();
    checkpoint.tensors.retain(|_| here.next().copied().unwrap_or(true));
    let mut here = kept.iter();
    applied.places.retain(|_| here.next().copied().unwrap_or(true));
}

/// True where a tensor matches.
fn cast_some(checkpoint: &mut Checkpoint, pattern: &Selection, cast: Cast) -> Result<bool> {
    let mut any = false;
    for tensor in checkpoint.tensors.iter_mut().filter(|t| t.stored.is_float() && pattern.selects(t)) {
        any = true;
        if tensor.stored == cast.to {
            tensor.cast = None;
            continue;
        }
        if !tensor.stored.cast_is_supported(cast.to) {
            let text = format!("cannot cast {} to {}", tensor.stored, cast.to);
            return Err(Error::unsupported("no-such-cast", text)
                .on_tensor(tensor.name())
                .hint(format_args!("casts go from any float of 8 bits or more to {}", DType::CAST_NAMES)));
        }
        tensor.cast = Some(cast);
    }
    Ok(any)
}

/// Gives the later of two tensors the bytes of the earlier one, if they are the same.
fn tie(checkpoint: &mut Checkpoint, name: &str, of: &str, applied: &mut Applied) -> Result<(String, String)> {
    let place = |name: &str| -> Result<usize> {
        let wanted = checkpoint.tensor(name)?;
        Ok(checkpoint.tensors.iter().position(|t| std::ptr::eq(t, wanted)).unwrap_or(0))
    };
    let (a, b) = (place(name)?, place(of)?);
    let (first, second) = (a.min(b), a.max(b));
    let (earlier, later) = (&checkpoint.tensors[first], &checkpoint.tensors[second]);
    if first == second {
        return Err(
            Error::mismatch("tie-differs", "a tensor cannot be tied to itself").on_tensor(earlier.name())
        );
    }
    let form = |t: &TensorEntry| format!("{} {}", t.dtype(), t.shape);
    let differs = |what: &str, x: String, y: String| -> Result<()> {
        if x == y {
            return Ok(());
        }
        Err(Error::mismatch(
            "tie-differs",
            format!("only tensors of the same elements are tied; {what} differ"),
        )
        .on_tensor(later.name())
        .expected(format_args!("{x}, as {}", earlier.name()))
        .found(y))
    };
    differs("type or shape", form(earlier), form(later))?;
    if SameRead(earlier) != SameRead(later) {
        // One may be tied to thousands.
        let mut hash = |place: usize| -> Result<String> {
            let before = applied.places[place];
            if let Some(hash) = applied.hashes.get(&before) {
                return Ok(hash.clone());
            }
            let hash = sha256(&checkpoint.tensors[place])?;
            applied.hashes.insert(before, hash.clone());
            Ok(hash)
        };
        differs("the hashes of the elements", hash(first)?, hash(second)?)?;
    }
    let (stored, cast, extents) = (earlier.stored, earlier.cast, earlier.extents.clone());
    let root = earlier.text_attribute(Attributes::ALIAS_OF).map_or_else(|| earlier.text(), str::to_owned);
    let tied = (later.name(), escape_text(&root));
    let later = &mut checkpoint.tensors[second];
    (later.stored, later.cast, later.extents) = (stored, cast, extents);
    later.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(root));
    Ok(tied)
}

/// Takes the tensors that match apart from those that share their bytes, which still share them with each other. False
/// where nothing did.
fn untie(checkpoint: &mut Checkpoint, pattern: &Selection) -> bool {
    let named: HashSet<String> =
        checkpoint.tensors.iter().filter(|t| pattern.selects(t)).map(TensorEntry::text).collect();
    let mut any = false;
    // Of each tensor that is taken from others, the first of these: the rest is tied to it from then on.
    let mut heirs: HashMap<String, String> = HashMap::new();
    for tensor in &mut checkpoint.tensors {
        let selected = pattern.selects(tensor);
        // A view of a storage, too, has bytes of its own from then on.
        any |= selected && tensor.attributes.remove(Attributes::STORAGE).is_some();
        let Some(of) = tensor.text_attribute(Attributes::ALIAS_OF).map(str::to_owned) else { continue };
        if !selected && !named.contains(&of) {
            continue;
        }
        any = true;
        let heir = (!selected).then(|| heirs.get(&of)).flatten();
        match heir {
            Some(heir) => {
                tensor.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(heir.clone()))
            }
            None => tensor.attributes.remove(Attributes::ALIAS_OF),
        };
        if !selected && heir.is_none() {
            heirs.insert(of, tensor.text());
        }
    }
    any
}
