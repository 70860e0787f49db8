//! Module versions of PyTorch, stored with a state dict by module name. A module interprets its tensors by the version under its
//! own name. Versions must therefore follow renamed and dropped tensors, or torch would load different values.

use super::{Checkpoint, Loss, Metadata, Name, Value, escape_text};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

impl Metadata {
    /// Metadata key of the versions: a map by module name; the name of the root is empty. The key for a nested state dict has its
    /// name as a prefix: `model._metadata`.
    pub const MODULE_VERSIONS: &'static str = "_metadata";
}

/// Maximum number of modules named in losses; further ones are counted.
const MAX_NAMED: usize = 100;

/// Reason for dropping all versions.
const TOO_LONG: &str = "all versions dropped: the module names would be too long";

/// Tensor names of a checkpoint before a change, to update the versions afterwards.
#[derive(Debug)]
pub struct Modules(Vec<Option<String>>);

impl Modules {
    /// Records the names; `None` for a checkpoint without versions.
    pub fn of(checkpoint: &Checkpoint) -> Option<Self> {
        maps(&checkpoint.metadata).next()?;
        // Optimizer state belongs to no module.
        let name = |tensor: &super::TensorEntry| (!tensor.role.is_state()).then(|| tensor.text());
        Some(Self(checkpoint.tensors.iter().map(name).collect()))
    }

    /// Renames the versions after the tensors. `places` is the previous index of each remaining tensor. Returns losses for
    /// versions that cannot follow: all of them if the new names would be too long.
    pub fn follow(&self, checkpoint: &mut Checkpoint, places: &[usize]) -> Vec<Loss> {
        self.renamed(checkpoint, places).unwrap_or_else(|| {
            let gone = checkpoint.metadata.take_versions();
            let lost = maps(&gone).filter(|(_, _, pairs)| pairs.iter().any(|(_, value)| !is_default(value)));
            let mut losses: Vec<Loss> =
                lost.map(|(key, _, _)| unfollowed(escape_text(key), TOO_LONG)).collect();
            cut(&mut losses);
            losses
        })
    }

    /// Renames the versions, as [`follow`](Self::follow). `None`, without changes, if the new names would be too long.
    fn renamed(&self, checkpoint: &mut Checkpoint, places: &[usize]) -> Option<Vec<Loss>> {
        let mut now: Vec<Option<String>> = vec![None; self.0.len()];
        for (tensor, &place) in checkpoint.tensors.iter().zip(places) {
            if let Some(now) = now.get_mut(place) {
                *now = Some(tensor.text());
            }
        }
        let mut moves: Vec<Move<'_>> = self
            .0
            .iter()
            .zip(&now)
            .filter_map(|(before, now)| Some((before.as_deref()?, now.as_deref())))
            .collect();
        if moves.iter().all(|&(before, now)| now == Some(before)) {
            return Some(Vec::new());
        }
        moves.sort_unstable_by(|a, b| by_parts(a.0, b.0));
        let mut budget = NameBudget::default();
        let mut names = Vec::new();
        for (_, above, pairs) in maps(&checkpoint.metadata) {
            names.push(above.to_owned());
            for (name, _) in pairs {
                let name = name.as_str().unwrap_or_default();
                budget.allow(name.len());
                budget.take(above.len())?;
                names.push(below(above, name));
            }
        }
        names.sort_unstable_by(|a, b| by_parts(a, b));
        names.dedup();
        let renamings = renamings(&names, &moves, budget)?;
        let renaming = |name: &str| {
            names.binary_search_by(|own| by_parts(own, name)).ok().and_then(|at| renamings.get(at))
        };
        let mut moved = Moved::default();
        let mut losses = Vec::new();
        for (_, above, pairs) in maps(&checkpoint.metadata) {
            let home = match above {
                "" => Some(""),
                _ => renaming(above).and_then(|renaming| renaming.now.as_deref()),
            };
            for (name, value) in pairs {
                let name = below(above, name.as_str().unwrap_or_default());
                let Some(renaming) = renaming(&name) else { continue };
                if renaming.lossy && !is_default(value) {
                    let detail = match renaming.now {
                        Some(_) => {
                            "the version of this module is not applied to its renamed tensors, because others keep its name"
                        }
                        None => {
                            "its version is dropped: the new names of its tensors have no module in common"
                        }
                    };
                    losses.push(unfollowed(module(&name), detail));
                }
                if let Some(now) = &renaming.now {
                    moved.add(home, now, value, (&name, renaming.sure), &mut losses);
                }
            }
        }
        moved.put_into(&mut checkpoint.metadata);
        cut(&mut losses);
        Some(losses)
    }

    /// Updates the versions, as [`follow`](Self::follow), after tensors were dropped and none renamed.
    pub fn follow_left_out(&self, checkpoint: &mut Checkpoint) -> Vec<Loss> {
        let mut before = self.0.iter().enumerate();
        let mut place = |tensor: &super::TensorEntry| {
            let name = (!tensor.role.is_state()).then(|| tensor.text());
            before.find(|(_, own)| **own == name).map(|(place, _)| place)
        };
        let places: Option<Vec<usize>> = checkpoint.tensors.iter().map(&mut place).collect();
        // With a new tensor, the indices are unknown.
        places.map_or_else(Vec::new, |places| self.follow(checkpoint, &places))
    }

    /// Updates the versions, as [`follow`](Self::follow), if every tensor has its previous index.
    pub fn follow_renamed(&self, checkpoint: &mut Checkpoint) -> Vec<Loss> {
        let places: Vec<usize> = (0..self.0.len()).collect();
        self.follow(checkpoint, &places)
    }
}

/// Returns the version map of each state dict: metadata key, name of the state dict, and map.
fn maps(metadata: &Metadata) -> impl Iterator<Item = (&str, &str, &[(Name, Value)])> {
    metadata.iter().filter_map(|(key, value)| Some((key, location(key)?, versions(value)?)))
}

/// Prefix of a key before [`Metadata::MODULE_VERSIONS`].
fn location(key: &str) -> Option<&str> {
    match key.strip_suffix(Metadata::MODULE_VERSIONS)? {
        "" => Some(""),
        above => above.strip_suffix('.').filter(|above| !above.is_empty()),
    }
}

/// Returns the metadata key for the versions of the state dict at `above`.
fn key_of(above: &str) -> String {
    below(above, Metadata::MODULE_VERSIONS)
}

/// Returns a map of maps; `None` for any other value, which has another meaning.
fn versions(value: &Value) -> Option<&[(Name, Value)]> {
    let Value::Map(pairs) = value else { return None };
    let fits = |(name, value): &(Name, Value)| name.as_str().is_some() && matches!(value, Value::Map(_));
    pairs.iter().all(fits).then_some(pairs.as_slice())
}

/// Returns true for the default of modules without explicit version: dropping it loses nothing.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Map(pairs) => match pairs.as_slice() {
            [] => true,
            [(name, version)] => name.as_str() == Some("version") && *version == Value::I64(1),
            _ => false,
        },
        _ => false,
    }
}

/// Creates the loss of a version.
fn unfollowed(subject: String, detail: &str) -> Loss {
    Loss::new("module-versions", subject, detail)
}

/// Display name of a module.
fn module(name: &str) -> String {
    if name.is_empty() {
        "the module at the root".to_owned()
    } else {
        format!("module `{}`", escape_text(name))
    }
}

/// Summarizes the losses beyond [`MAX_NAMED`].
fn cut(losses: &mut Vec<Loss>) {
    if losses.len() > MAX_NAMED {
        let more = losses.len() - MAX_NAMED;
        losses.truncate(MAX_NAMED);
        losses.push(unfollowed(format!("{more} more modules"), "their versions are lost as well"));
    }
}

impl Metadata {
    /// Returns the versions of all state dicts as one map, for a target with one flat state dict; `None` without versions.
    pub fn joined_versions(&self, losses: &mut Vec<Loss>) -> Option<Value> {
        let mut all = maps(self).peekable();
        all.peek()?;
        let mut joined = Joined::default();
        for (key, above, pairs) in all {
            let mut budget = NameBudget::default();
            let long = pairs.iter().any(|(name, _)| {
                budget.allow(name.as_bytes().len());
                budget.take(above.len()).is_none()
            });
            if long {
                losses.push(unfollowed(escape_text(key), TOO_LONG));
                continue;
            }
            for (name, value) in pairs {
                let name = below(above, name.as_str().unwrap_or_default());
                if joined.get(&name).is_some_and(|(known, _)| known != value) {
                    losses.push(unfollowed(module(&name), "conflicting versions; the first is kept"));
                } else {
                    joined.set(name, value.clone(), true);
                }
            }
        }
        Some(joined.into_value())
    }

    /// Removes the module versions from the metadata and returns them.
    pub fn take_versions(&mut self) -> Metadata {
        self.take(|key, value| location(key).is_some() && versions(value).is_some())
    }

    /// Returns true if the metadata contain module versions.
    pub fn has_versions(&self) -> bool {
        maps(self).next().is_some()
    }

    /// Replaces the versions by `own`, taken from a file, unless the current ones are equal once joined: these also state their
    /// state dicts, and stay.
    pub fn set_versions(&mut self, own: Metadata) {
        let root =
            own.get(Metadata::MODULE_VERSIONS).and_then(versions).filter(|_| own.iter().nth(1).is_none());
        if root.is_some_and(|root| is_joined(self, root)) {
            return;
        }
        self.take_versions();
        own.into_pairs().for_each(|(key, value)| self.set(&*key, value));
    }
}

/// Returns true if the joined versions in the metadata are equal to `root`. Builds no map: both are untrusted.
fn is_joined(metadata: &Metadata, root: &[(Name, Value)]) -> bool {
    let mut left = root.iter();
    for (_, above, pairs) in maps(metadata) {
        for (name, value) in pairs {
            let Some((own, known)) = left.next() else { return false };
            let rest = own.as_str().and_then(|own| rest_below(above, own));
            if rest != name.as_str() || known != value {
                return false;
            }
        }
    }
    left.next().is_none()
}

impl Metadata {
    /// Joins the versions under one key of two checkpoints; those in `kept` take precedence. Returns the joined map and the modules
    /// with conflicts; `None` if the values are not versions.
    pub fn join_versions(key: &str, kept: &Value, other: &Value) -> Option<(Value, Vec<String>)> {
        location(key)?;
        let (kept, other) = (versions(kept)?, versions(other)?);
        let mut joined = Joined::default();
        let mut differ = Vec::new();
        for (name, value) in kept.iter().chain(other) {
            let name = name.as_str().unwrap_or_default();
            match joined.get(name) {
                Some((known, _)) if known != value => differ.push(module(name)),
                Some(_) => {}
                None => joined.set(name.to_owned(), value.clone(), true),
            }
        }
        Some((joined.into_value(), differ))
    }
}

/// Map under construction. The flag of a pair is true if its name is derived from tensors of the module itself.
#[derive(Debug, Default)]
struct Joined {
    pairs: Vec<(String, Value, bool)>,
    places: HashMap<String, usize>,
}

impl Joined {
    fn get(&self, name: &str) -> Option<(&Value, bool)> {
        self.places.get(name).and_then(|&at| self.pairs.get(at)).map(|(_, value, sure)| (value, *sure))
    }

    fn set(&mut self, name: String, value: Value, sure: bool) {
        match self.places.get(&name).and_then(|&at| self.pairs.get_mut(at)) {
            Some(pair) => (pair.1, pair.2) = (value, sure),
            None => {
                self.places.insert(name.clone(), self.pairs.len());
                self.pairs.push((name, value, sure));
            }
        }
    }

    fn into_value(self) -> Value {
        Value::Map(
            self.pairs.into_iter().map(|(name, value, _)| (Name::from(name.as_str()), value)).collect(),
        )
    }
}

/// Renamed maps, by the name of their state dict.
#[derive(Debug, Default)]
struct Moved {
    maps: Vec<(String, Joined)>,
    places: HashMap<String, usize>,
}

impl Moved {
    /// Adds the version of a module renamed to `now` to the map at `home`, or to that of the root if it is not below `home`.
    fn add(
        &mut self,
        home: Option<&str>,
        now: &str,
        value: &Value,
        (before, sure): (&str, bool),
        losses: &mut Vec<Loss>,
    ) {
        let (home, name) = match home.and_then(|home| Some((home, rest_below(home, now)?))) {
            Some((home, rest)) => (home, rest),
            None => ("", now),
        };
        let at = match self.places.get(home) {
            Some(&at) => at,
            None => {
                self.places.insert(home.to_owned(), self.maps.len());
                self.maps.push((home.to_owned(), Joined::default()));
                self.maps.len() - 1
            }
        };
        let Some((_, map)) = self.maps.get_mut(at) else { return };
        let Some((known, known_sure)) = map.get(name) else {
            return map.set(name.to_owned(), value.clone(), sure);
        };
        if known == value {
            return;
        }
        // A module with tensors of its own takes precedence over an enclosing module.
        let replaces = sure && !known_sure;
        let lost = if replaces { known } else { value };
        if sure == known_sure || !is_default(lost) {
            let detail = format!("{} is renamed to this module too, with another version", module(before));
            losses.push(unfollowed(module(now), &detail));
        }
        if replaces {
            map.set(name.to_owned(), value.clone(), sure);
        }
    }

    /// Replaces the maps in the metadata.
    fn put_into(self, metadata: &mut Metadata) {
        let before: Vec<(String, bool)> =
            maps(metadata).map(|(key, _, pairs)| (key.to_owned(), pairs.is_empty())).collect();
        let mut now: HashMap<String, Value> =
            self.maps.into_iter().map(|(above, map)| (key_of(&above), map.into_value())).collect();
        let mut gone = HashSet::new();
        for (key, was_empty) in before {
            match now.remove(&key) {
                Some(value) => metadata.set(key, value),
                None if was_empty && key == Metadata::MODULE_VERSIONS => {}
                None => _ = gone.insert(key),
            }
        }
        if !gone.is_empty() {
            metadata.take(|key, _| gone.contains(key));
        }
        let mut rest: Vec<_> = now.into_iter().collect();
        rest.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        rest.into_iter().for_each(|(key, value)| metadata.set(key, value));
    }
}

/// Budget for the bytes of new module names: three times the old bytes, 256 for each name, and 4 MiB.
#[derive(Debug)]
struct NameBudget(u64);

impl Default for NameBudget {
    fn default() -> Self {
        Self(4 << 20)
    }
}

impl NameBudget {
    /// Raises the budget for an old name of `len` bytes.
    fn allow(&mut self, len: usize) {
        self.0 = self.0.saturating_add((len as u64).saturating_mul(3)).saturating_add(256);
    }

    /// Takes the bytes of one new name; `None` if the budget is exhausted.
    fn take(&mut self, len: usize) -> Option<()> {
        self.0 = self.0.checked_sub(len as u64)?;
        Some(())
    }
}

/// Old and new name of a tensor; `None` if it was dropped.
type Move<'a> = (&'a str, Option<&'a str>);

/// New name of a module.
#[derive(Debug, Default)]
struct Renaming {
    /// New name; `None` if the module is gone.
    now: Option<String>,
    /// True if derived from tensors of the module itself.
    sure: bool,
    /// True if the version is lost in whole or in part.
    lossy: bool,
}

/// State of a module, collected from the tensors below it.
#[derive(Debug, Default)]
struct Known<'a> {
    /// Index of the innermost enclosing module.
    within: Option<usize>,
    own: Votes<'a>,
    others: Votes<'a>,
    /// True if there were tensors below it.
    had: bool,
    /// True if some of them remain.
    left: bool,
}

/// Names of a module implied by the tensors below it; `None` if its level was removed.
#[derive(Debug, Default)]
struct Votes<'a> {
    first: Option<Option<&'a str>>,
    split: bool,
    kept: bool,
}

impl<'a> Votes<'a> {
    fn add(&mut self, vote: Option<&'a str>, name: &str) {
        self.kept |= vote == Some(name);
        match self.first {
            None => self.first = Some(vote),
            Some(first) => self.split |= first != vote,
        }
    }
}

/// Result for a module, derived from its tensors.
enum Verdict<'a> {
    /// Renamed.
    At(&'a str, bool),
    /// Some tensors keep its name.
    Kept(bool),
    /// All tensors are dropped.
    Left,
    /// Its level was removed.
    Level,
    /// The new names of its tensors have no common module.
    Split,
    /// No tensors: follows the enclosing module.
    Along,
}

impl<'a> Known<'a> {
    fn verdict(&self, name: &str) -> Verdict<'a> {
        let (votes, own) = if self.own.first.is_some() { (&self.own, true) } else { (&self.others, false) };
        match votes.first {
            None if !self.had => Verdict::Along,
            None if !self.left => Verdict::Left,
            // The root always keeps its name.
            _ if votes.split || votes.first.is_none() => match votes.kept || name.is_empty() {
                true => Verdict::Kept(own),
                false => Verdict::Split,
            },
            Some(Some(now)) => Verdict::At(now, own),
            _ => Verdict::Level,
        }
    }
}

/// Computes the renaming of each module in `names`. `names` and `moves` are sorted by parts. Each tensor votes for the innermost
/// module that contains it, and each module for its enclosing one, in one pass. `None` if `budget` is too small for the new names.
fn renamings<'a>(names: &'a [String], moves: &[Move<'a>], mut budget: NameBudget) -> Option<Vec<Renaming>> {
    let mut known: Vec<Known<'a>> = names.iter().map(|_| Known::default()).collect();
    let mut open: Vec<usize> = Vec::new();
    let mut moves = moves.iter().peekable();
    for place in 0..=names.len() {
        let name = names.get(place);
        while let Some(&&(before, now)) = moves
            .peek()
            .filter(|(before, _)| name.is_none_or(|name| by_parts(before, name) == Ordering::Less))
        {
            moves.next();
            close(names, &mut known, &mut open, Some(before));
            // A tensor can have the name of a module, which stays open for the tensors in it. It belongs to the enclosing one.
            let around = open.iter().rev().find(|&&at| names.get(at).is_some_and(|name| name != before));
            let Some((own, known)) = around.and_then(|&at| Some((names.get(at)?, known.get_mut(at)?))) else {
                continue;
            };
            known.had = true;
            if let Some(now) = now {
                known.left = true;
                known.own.add(above(now, parts(before) - parts(own)), own);
            }
        }
        close(names, &mut known, &mut open, name.map(String::as_str));
        if let Some(known) = known.get_mut(place) {
            known.within = open.last().copied();
            open.push(place);
        }
    }
    let mut all: Vec<Renaming> = Vec::with_capacity(names.len());
    for (name, known) in names.iter().zip(&known) {
        let renaming = match known.verdict(name) {
            Verdict::At(now, sure) => Renaming { now: Some(now.to_owned()), sure, lossy: false },
            Verdict::Kept(own) => Renaming { now: Some(name.clone()), sure: own, lossy: own },
            Verdict::Left => Renaming::default(),
            Verdict::Level | Verdict::Split => Renaming { lossy: true, ..Renaming::default() },
            Verdict::Along => match known.within.and_then(|at| Some((names.get(at)?, all.get(at)?))) {
                None => Renaming { now: Some(name.clone()), ..Renaming::default() },
                Some((within, outer)) => {
                    let rest = rest_below(within, name).unwrap_or_default();
                    let now = outer.now.as_ref().map(|now| below(now, rest));
                    Renaming { lossy: outer.lossy && now.is_none(), now, sure: false }
                }
            },
        };
        budget.take(renaming.now.as_ref().map_or(0, String::len))?;
        all.push(renaming);
    }
    Some(all)
}

/// Removes from `open` the modules that do not contain `next`; each passes its result to the enclosing one.
fn close<'a>(names: &'a [String], known: &mut [Known<'a>], open: &mut Vec<usize>, next: Option<&str>) {
    while let Some(&at) = open.last() {
        let Some(name) = names.get(at) else { return };
        if next.is_some_and(|next| rest_below(name, next).is_some()) {
            return;
        }
        open.pop();
        let Some(one) = known.get(at) else { return };
        let (verdict, had, left) = (one.verdict(name), one.had, one.left);
        let Some((own, outer)) = open.last().and_then(|&at| Some((names.get(at)?, known.get_mut(at)?)))
        else {
            continue;
        };
        outer.had |= had;
        outer.left |= left;
        let levels = parts(name) - parts(own);
        match verdict {
            Verdict::At(now, _) => outer.others.add(above(now, levels), own),
            Verdict::Kept(_) => outer.others.add(Some(own), own),
            Verdict::Level => outer.others.add(None, own),
            Verdict::Left | Verdict::Split | Verdict::Along => {}
        }
    }
}

/// Compares names by parts: each name sorts directly before the names below it.
fn by_parts(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (false, false) => a.split('.').cmp(b.split('.')),
        (a, b) => b.cmp(&a),
    }
}

/// Returns the number of parts of a name; 0 for the root.
fn parts(name: &str) -> usize {
    if name.is_empty() { 0 } else { name.split('.').count() }
}

/// Returns the name without its last `levels` parts; `None` if it has fewer.
fn above(name: &str, levels: usize) -> Option<&str> {
    let keep = parts(name).checked_sub(levels)?;
    match (keep, levels) {
        (0, _) => Some(""),
        (_, 0) => Some(name),
        _ => name.rmatch_indices('.').nth(levels - 1).and_then(|(at, _)| name.get(..at)),
    }
}

/// Joins `above` and `name`; either may be the root.
fn below(above: &str, name: &str) -> String {
    match (above, name) {
        ("", name) => name.to_owned(),
        (above, "") => above.to_owned(),
        (above, name) => format!("{above}.{name}"),
    }
}

/// Returns the rest of `name` after `above`, empty if both are equal; `None` if it is not below `above`.
fn rest_below<'a>(above: &str, name: &'a str) -> Option<&'a str> {
    match name.strip_prefix(above)? {
        "" => Some(""),
        rest if above.is_empty() => Some(rest),
        rest => rest.strip_prefix('.'),
    }
}

#[cfg(test)]
mod tests;
