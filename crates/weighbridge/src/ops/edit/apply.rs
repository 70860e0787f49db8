//! Application of rules to an index. No bytes move.

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
use crate::text::{near, quoted};
use std::collections::{HashMap, HashSet};
use weighbridge_core::phrase::{Opt, Phrase};
use weighbridge_core::{ErrorCode, NoteCode, phrase};

/// Result of applying rules.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// Losses of the rules.
    pub losses: Vec<Loss>,
    /// Notes on rules that matched nothing, where that is allowed.
    pub notes: Vec<Note>,
    /// For each remaining tensor, its index before.
    pub places: Vec<usize>,
    /// Tied tensors: displayed name, and the name of the tensor that it shares storage with.
    pub ties: Vec<(String, String)>,
    /// Number of element reorderings on reading, by the index of the tensor before.
    reordered: HashMap<usize, usize>,
    /// Transposed state, by its index before: true with its parameter, false by its own name.
    turned: HashMap<usize, bool>,
    /// True after a rename: names of lost tensors are those of the file.
    renamed: bool,
    /// Hashes of tied tensors, by their index before, until the next rule of another kind.
    hashes: HashMap<usize, String>,
}

/// Maximum number of element reorderings of one tensor: each one is a reading step.
const MAX_REORDERINGS: usize = 16;

/// Applies `rules` in order, each to the result of the previous one. A rule that matches nothing is an error, or a note
/// where `lenient` is true. Only tied tensors are read: their elements are compared.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::ops::edit::{Rule, apply};
///
/// let mut index = weighbridge::open(&path)?.into_index();
/// let rules = Rule::parse("rename", &["w1=layer1.weight".to_owned()])?;
/// apply(&mut index, &rules, false)?;
///
/// let typo = Rule::parse("rename", &["layr1=layer2".to_owned()])?;
/// let error = apply(&mut index, &typo, false).unwrap_err();
/// assert!(error.hint_text().unwrap().starts_with("did you mean `layer1`?"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Kind::Mismatch`]: `no-match`, `name-collision`, `empty-path`, `ambiguous-rule`, `no-such-tensor`,
/// `tie-differs`, `transposed-twice` and errors of transposes; [`crate::Kind::Unsupported`], `no-such-cast`,
/// `packed-transpose`; [`crate::Kind::Usage`], `reserved-key`; [`crate::Kind::Limit`] for excessively long names. The
/// checkpoint is then partly changed.
pub fn apply(checkpoint: &mut Checkpoint, rules: &[Rule], lenient: bool) -> Result<Applied> {
    apply_with_progress(checkpoint, rules, lenient, &NoProgress)
}

/// As [`apply`], cancellable by `progress`: thousands of rules on thousands of tensors take time.
///
/// # Errors
/// As [`apply`]; [`crate::Kind::Cancelled`].
pub(crate) fn apply_with_progress(
    checkpoint: &mut Checkpoint,
    rules: &[Rule],
    lenient: bool,
    progress: &dyn Progress,
) -> Result<Applied> {
    let mut applied = Applied { places: (0..checkpoint.tensors.len()).collect(), ..Applied::default() };
    let budget = name_budget(checkpoint);
    // Modules follow at the end: a single rule sees only a part of a module that is renamed tensor by tensor.
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
        let done = one(checkpoint, &rule.action, &mut applied, lenient, budget, progress);
        let unused = done.map_err(|e| rule.blame(e).in_file(&checkpoint.label))?;
        // Not after all rules: by then another tensor could have the name of a dropped one.
        if !matches!(rule.action, Action::Rename(_)) {
            applied.notes.extend(checkpoint.settle_aliases());
        }
        let Some(unused) = unused else { continue };
        if !lenient {
            let renamed = paths_before.as_ref().and_then(|(paths, places)| {
                renamed_before(checkpoint, &rule.action, unused.pattern.as_deref(), &applied, paths, places)
            });
            let error = no_match(checkpoint, rule, unused, renamed);
            return Err(rule.blame(error).in_file(&checkpoint.label));
        }
        applied.notes.push(Note::new("rule-unused", format!("{}: {}", rule.text(), unused.reason)));
    }
    if let Some(modules) = modules {
        applied.losses.extend(modules.follow(checkpoint, &applied.places));
    }
    // Without a rule there is no new cast.
    for tensor in checkpoint.tensors.iter().filter(|_| !rules.is_empty()) {
        if let Some(cast) = tensor.cast.filter(|cast| !tensor.stored.cast_is_exact(cast.to)) {
            let detail = tensor.stored.rounding_detail(cast);
            applied.losses.push(Loss::new("rounding", tensor.name(), detail));
        }
    }
    Ok(applied)
}

/// Part of a rule that has no effect.
struct Unused {
    /// The pattern or name that matches nothing, if that is the reason.
    pattern: Option<String>,
    reason: String,
}

impl Unused {
    fn pattern(pattern: &str) -> Self {
        let reason = format!("no tensor matches `{}`", escape_text(pattern));
        Self { pattern: Some(pattern.to_owned()), reason }
    }

    fn because(reason: impl Into<String>) -> Self {
        Self { pattern: None, reason: reason.into() }
    }
}

/// End of a hint, after the option for lenient rules.
const SKIPS: &str = " skips rules without effect";

/// Returns the error for a rule without effect; `renamed` is a hint about earlier rules.
fn no_match(checkpoint: &Checkpoint, rule: &Rule, unused: Unused, renamed: Option<String>) -> Error {
    let Unused { pattern, reason } = unused;
    let lost_names = checkpoint.notes.iter().find(|note| note.code == NoteCode::NamesMissing);
    let why = match (&renamed, lost_names) {
        (_, Some(note)) => note.text.clone(),
        (Some(renamed), _) => Phrase::from(renamed.clone()),
        (None, None) => advice(checkpoint, &rule.action, pattern.as_deref()),
    };
    let hint = phrase![why, "; ", Opt::LenientRules, SKIPS];
    let Some(pattern) = pattern else {
        return Error::mismatch("no-match", format!("the rule changes nothing: {reason}"))
            .found(escape_text(rule.text()))
            .hint(hint);
    };
    let is_path = matches!(&rule.action, Action::Rename(list)
        if list.iter().any(|(renaming, from)| *from == pattern && matches!(renaming, Renaming::Path(_))));
    let error = Error::mismatch("no-match", "no tensor matches the rule").found(escape_text(&pattern));
    match suggestion(&[checkpoint], &pattern, is_path).filter(|_| renamed.is_none() && lost_names.is_none()) {
        Some(meant) => {
            error.hint(phrase![format_args!("did you mean `{meant}`? "), Opt::LenientRules, SKIPS])
        }
        None => error.hint(hint),
    }
}

/// Adds the nearest name to an error about a pattern, or a rename by path, that matches no tensor.
pub(crate) fn suggest(error: Error, checkpoints: &[&Checkpoint], is_path: bool) -> Error {
    if error.code() != ErrorCode::NoMatch {
        return error;
    }
    let found = error.found_text().unwrap_or_default();
    let wanted = if is_path { found.split_once('=').map_or(found, |(from, _)| from) } else { found };
    match suggestion(checkpoints, wanted, is_path) {
        Some(meant) => error.hint_too(phrase![format_args!("did you mean `{meant}`?")]),
        None => error,
    }
}

/// Maximum number of names and leading parts that are compared with a pattern.
const MAX_CANDIDATES: usize = 1 << 20;

/// Returns the name, or the leading name parts, that are nearest to `pattern`: as a name for a rename by path, otherwise as a
/// pattern. `None` for patterns with wildcards other than at their ends.
fn suggestion(checkpoints: &[&Checkpoint], pattern: &str, is_path: bool) -> Option<String> {
    let wanted = pattern.trim_start_matches(['*', '.']).trim_end_matches(['*', '.']);
    if wanted.is_empty()
        || wanted.contains(['=', '*', '?', '[', ']', '{', '}', '(', ')', '|', '\\', '^', '$', '+'])
    {
        return None;
    }
    let mut seen = HashSet::new();
    let tensors = checkpoints.iter().flat_map(|checkpoint| &checkpoint.tensors);
    let candidates: Vec<(String, bool)> = tensors
        .flat_map(|tensor| {
            let parts = tensor.path.parts();
            let leading = move |len: usize| TensorPath::new(parts[..len].to_vec()).to_text();
            (1..=parts.len()).map(move |len| (leading(len), len == parts.len()))
        })
        .filter(|(name, _)| seen.insert(name.clone()))
        .take(MAX_CANDIDATES)
        .collect();
    let nearest = *near(|| candidates.iter().map(|(name, _)| name.as_str()), wanted, 1).first()?;
    let is_name = candidates.iter().any(|(name, is_name)| *is_name && name == nearest);
    let text = escape_text(nearest);
    Some(if is_path || is_name { text.to_string() } else { format!("{text}.*") })
}

/// Returns the hint for an action without effect; `unmatched` is its pattern where no tensor matches it.
fn advice(checkpoint: &Checkpoint, action: &Action, unmatched: Option<&str>) -> Phrase {
    match action {
        Action::Transpose { axes: None, .. } if unmatched.is_some_and(|pattern| pattern.contains('=')) => {
            "a pattern must match the whole name; the new order after = must be numbers, such as 1,0".into()
        }
        Action::Transpose { axes: Some(_), .. } if unmatched.is_none() => {
            "PATTERN=1,0,2 is the new order of dimensions, counted from 0".into()
        }
        Action::Transpose { axes: None, .. } if unmatched.is_none() => {
            "without a new order, transpose applies only to matrices".into()
        }
        Action::Cast { .. } if unmatched.is_none() => {
            phrase![Opt::Cast, " applies to floating-point tensors only"]
        }
        Action::Untie(_) if unmatched.is_none() => "untie applies only to tensors that share storage".into(),
        Action::NoState => phrase![Opt::Drop, " drops tensors by name"],
        Action::RemoveMetadata(key) => {
            let keys = || checkpoint.metadata.iter().map(|(key, _)| key);
            match near(keys, key, 1).first() {
                Some(meant) => phrase![format_args!("did you mean `{}`?", quoted(meant))],
                None => "`info` lists the metadata keys".into(),
            }
        }
        Action::Rename(list)
            if list.iter().any(|(renaming, from)| {
                matches!(renaming, Renaming::Path(_)) && from.contains(['*', '?'])
            }) =>
        {
            phrase![Opt::Rename, " takes * and ? as they are; ", Opt::RenameGlob, " takes patterns"]
        }
        Action::Rename(list) if list.iter().any(|(renaming, _)| matches!(renaming, Renaming::Path(_))) => {
            "a rename must match the whole name or whole leading parts".into()
        }
        _ => "a pattern must match the whole name".into(),
    }
}

/// Returns a hint that names a tensor whose name matched the action before earlier rules renamed it. `paths` are the paths of
/// the tensors at the indices `places` before the rules.
fn renamed_before(
    checkpoint: &Checkpoint,
    action: &Action,
    unmatched: Option<&str>,
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
            let mut unused =
                list.iter().filter(|(_, text)| unmatched.is_none_or(|unmatched| unmatched == text));
            unused.any(|(rename, _)| matches!(rename.apply(&tensor.path), Ok(Some(_))))
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
            format!(
                "an earlier rule renamed {} to {}; rules are applied in order",
                before.name(),
                tensor.name()
            )
        })
    })
}

/// Memory of a path part besides its bytes.
const PART_OVERHEAD: u64 = 32;

/// Returns the memory that the path takes.
fn path_memory(path: &TensorPath) -> u64 {
    path.parts().iter().fold(0, |sum, part| sum.saturating_add(part.as_bytes().len() as u64 + PART_OVERHEAD))
}

/// Returns the memory budget for all names after a rename: rules that double a name would soon exceed all memory. The budget
/// is three times the memory of the names before, and 256 bytes for each.
fn name_budget(checkpoint: &Checkpoint) -> u64 {
    let each = |tensor: &TensorEntry| path_memory(&tensor.path).saturating_mul(3).saturating_add(256);
    checkpoint.tensors.iter().fold(4 << 20, |sum: u64, tensor| sum.saturating_add(each(tensor)))
}

/// Applies one rule. Returns the unused part of the rule, if any.
fn one(
    checkpoint: &mut Checkpoint,
    action: &Action,
    applied: &mut Applied,
    lenient: bool,
    budget: u64,
    progress: &dyn Progress,
) -> Result<Option<Unused>> {
    let unless = |used: bool, why: &str| (!used).then(|| Unused::because(why));
    Ok(match action {
        Action::Keep(selection) => {
            let unused = unmatched(checkpoint, selection);
            if unused.is_some() && !lenient {
                return Ok(unused);
            }
            let before = checkpoint.tensors.len();
            retain(checkpoint, applied, |tensor| selection.selects(tensor));
            // A lost tensor has no other name than its path in the file.
            let by_path =
                !applied.renamed && checkpoint.tensors.iter().all(|one| selection.selects_name(&one.text()));
            keep_lost(checkpoint, before, |name| !by_path || selection.selects_name(name));
            checkpoint.notes.retain(|note| selection.selects_note(note));
            unused
        }
        Action::Drop(selection) => {
            let unused = unmatched(checkpoint, selection);
            if unused.is_some() && !lenient {
                return Ok(unused);
            }
            let before = checkpoint.tensors.len();
            retain(checkpoint, applied, |tensor| !selection.selects(tensor));
            let renamed = applied.renamed;
            keep_lost(checkpoint, before, |name| renamed || !selection.selects_name(name));
            checkpoint.notes.retain(|note| note.skipped.is_none() || !selection.selects_note(note));
            unused
        }
        Action::NoState => {
            let count = |checkpoint: &Checkpoint| checkpoint.tensors.len() + checkpoint.notes.len();
            let before = count(checkpoint);
            let intact = checkpoint.tensors.len();
            retain(checkpoint, applied, |tensor| !tensor.role.is_state());
            keep_lost(checkpoint, intact, |_| true);
            checkpoint.notes.retain(|note| !note.is_of_state());
            unless(count(checkpoint) < before, "no tensor is optimizer state when this rule is applied")
        }
        Action::Rename(list) => {
            applied.renamed = true;
            rename_all(checkpoint, list, budget, progress)?
        }
        Action::Transpose { pattern, axes } => {
            let changes = transpose_all(checkpoint, pattern, axes.as_deref(), applied)?;
            (!changes).then(|| unturned(checkpoint, pattern, axes.as_deref()))
        }
        Action::Cast { pattern, cast } => {
            let unused = unmatched(checkpoint, pattern);
            unused.or(unless(cast_some(checkpoint, pattern, *cast)?, "no matching tensor is floating-point"))
        }
        Action::Tie { name, of } => {
            let tied = tie(checkpoint, name, of, applied)?;
            applied.ties.push(tied);
            None
        }
        Action::Untie(pattern) => {
            let unused = unmatched(checkpoint, pattern);
            unused.or(unless(untie(checkpoint, pattern), "no matching tensor shares storage"))
        }
        Action::SetMetadata { key, value } => {
            if key.starts_with(Metadata::RESERVED_PREFIX) {
                return Err(Error::usage(
                    "reserved-key",
                    "metadata keys with this prefix are reserved for Weighbridge",
                )
                .found(escape_text(key)));
            }
            checkpoint.metadata.set(key.clone(), Value::Text(value.clone()));
            None
        }
        Action::RemoveMetadata(key) => {
            unless(checkpoint.metadata.remove(key).is_some(), "the metadata has no such key")
        }
    })
}

/// Renames each tensor by the first matching renaming. Returns the first renaming without a match. The new names take at most
/// `budget` bytes.
fn rename_all(
    checkpoint: &mut Checkpoint,
    list: &[(Renaming, String)],
    budget: u64,
    progress: &dyn Progress,
) -> Result<Option<Unused>> {
    let mut used = vec![false; list.len()];
    let mut paths = Vec::with_capacity(checkpoint.tensors.len());
    let mut memory = 0u64;
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
                Limits::check("parts in a new name", "none: this limit is fixed", parts, most)?;
                *used = true;
                break;
            }
        }
        memory = memory.saturating_add(path_memory(new.as_ref().unwrap_or(&tensor.path)));
        if memory > budget {
            return Err(Error::limit("names-too-long", "the new names take too much memory")
                .expected(format_args!("at most {budget} bytes, with {PART_OVERHEAD} bytes per name part"))
                .hint("repeated rules may double names; check the rules with a single tensor"));
        }
        paths.push(new);
    }
    checkpoint.set_paths(paths)?;
    let idle = list.iter().zip(used).find(|(_, used)| !used);
    Ok(idle.map(|((_, text), _)| Unused::pattern(text)))
}

/// Transposes the matching tensors, and state with its parameter. False where nothing would change.
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
            let text = "the optimizer state is transposed twice: with its parameter, and by its own name";
            return Err(Error::mismatch("transposed-twice", text)
                .on_tensor(checkpoint.tensors[place].name())
                .hint("name only the parameter: its state follows"));
        }
    }
    for place in turned.reordered {
        let times = applied.reordered.entry(applied.places[place]).or_default();
        *times += 1;
        if *times > MAX_REORDERINGS {
            let why = "the dimensions of the tensor are permuted too often";
            return Err(Error::limit("too-many-transposes", why)
                .on_tensor(checkpoint.tensors[place].name())
                .expected(format_args!("at most {MAX_REORDERINGS} times"))
                .hint("combine the permutations in one rule"));
        }
    }
    Ok(turned.count > 0)
}

/// Returns the reason why a transpose changes nothing.
fn unturned(checkpoint: &Checkpoint, pattern: &Selection, axes: Option<&[usize]>) -> Unused {
    let nothing = || match axes {
        Some(axes) if axes.iter().copied().eq(0..axes.len()) => {
            let axes = axes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            format!("the dimensions already are in the order {axes}")
        }
        Some(_) => "no tensor would change".to_owned(),
        None => "every matching tensor has fewer than two dimensions".to_owned(),
    };
    unmatched(checkpoint, pattern).unwrap_or_else(|| Unused::because(nothing()))
}

/// Returns the first pattern of a selection that matches nothing.
fn unmatched(checkpoint: &Checkpoint, selection: &Selection) -> Option<Unused> {
    let error = selection.check_matched(&[checkpoint]).err()?;
    Some(Unused::pattern(error.found_text().unwrap_or_default()))
}

fn retain(checkpoint: &mut Checkpoint, applied: &mut Applied, keep: impl Fn(&TensorEntry) -> bool) {
    let kept: Vec<bool> = checkpoint.tensors.iter().map(keep).collect();
    let mut here = kept.iter();
    checkpoint.tensors.retain(|_| here.next().copied().unwrap_or(true));
    let mut here = kept.iter();
    applied.places.retain(|_| here.next().copied().unwrap_or(true));
}

/// Keeps the selected ones of the lost tensors; `before` is the number of intact tensors before the selection.
fn keep_lost(checkpoint: &mut Checkpoint, before: usize, selected: impl Fn(&str) -> bool) {
    let after = checkpoint.tensors.len();
    if let Some(damage) = &mut checkpoint.damage {
        damage.keep_lost([before, after], selected);
    }
}

/// Casts the matching floating-point tensors. True where a tensor matches.
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

/// Shares the storage of the earlier of two tensors with the later one, if their elements are equal.
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
    let differs = |what: &str| {
        Error::mismatch("tie-differs", format!("tied tensors must be equal; the {what}"))
            .on_tensor(later.name())
    };
    if form(earlier) != form(later) {
        return Err(differs("dtype or shape differs")
            .expected(format_args!("{}, as {}", form(earlier), earlier.name()))
            .found(form(later)));
    }
    if SameRead(earlier) != SameRead(later) {
        // One tensor may be tied to thousands.
        let mut hash = |place: usize| -> Result<String> {
            let before = applied.places[place];
            if let Some(hash) = applied.hashes.get(&before) {
                return Ok(hash.clone());
            }
            let hash = sha256(&checkpoint.tensors[place])?;
            applied.hashes.insert(before, hash.clone());
            Ok(hash)
        };
        if hash(first)? != hash(second)? {
            return Err(differs("values differ").expected(format_args!("the values of {}", earlier.name())));
        }
    }
    let (stored, cast, extents) = (earlier.stored, earlier.cast, earlier.extents.clone());
    let root = earlier.text_attribute(Attributes::ALIAS_OF).map_or_else(|| earlier.text(), str::to_owned);
    let tied = (later.name(), escape_text(&root));
    let later = &mut checkpoint.tensors[second];
    (later.stored, later.cast, later.extents) = (stored, cast, extents);
    later.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(root));
    Ok(tied)
}

/// Separates the matching tensors from the others that share their storage; those still share it with each other. False where
/// no tensor was separated.
fn untie(checkpoint: &mut Checkpoint, pattern: &Selection) -> bool {
    let named: HashSet<String> =
        checkpoint.tensors.iter().filter(|t| pattern.selects(t)).map(TensorEntry::text).collect();
    let mut any = false;
    // For each tensor separated from others, the first of these: the others are tied to it.
    let mut heirs: HashMap<String, String> = HashMap::new();
    for tensor in &mut checkpoint.tensors {
        let selected = pattern.selects(tensor);
        // A view of a storage is stored separately from then on, too.
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
