//! The versions of modules that PyTorch keeps beside the tensors of a state dict, by the names of the modules. A module
//! reads its tensors as those of the version that stands under its own name: where tensors get other names, or are left
//! out, the versions go along, or torch would load other values.

use super::{Checkpoint, Loss, Metadata, Name, Value, escape_text};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

impl Metadata {
    /// The key of the metadata that hold them: a map by the names of modules, that of the root being empty. Those of a state
    /// dict within another object stand under the name that leads to it, and this: `model._metadata`.
    pub const MODULE_VERSIONS: &'static str = "_metadata";
}

/// Modules that are named one by one; of more, the losses are counted.
const TOLD: usize = 100;

/// Why versions are left out as a whole.
const TOO_LONG: &str = "the names of the modules would take too much";

/// The names of the tensors of a checkpoint before they change, for the versions to follow.
#[derive(Debug)]
pub struct Modules(Vec<Option<String>>);

impl Modules {
    /// `None` for a checkpoint that says no versions.
    pub fn of(checkpoint: &Checkpoint) -> Option<Self> {
        maps(&checkpoint.metadata).next()?;
        // State of an optimizer stands in no module.
        let name = |tensor: &super::TensorEntry| (!tensor.role.is_state()).then(|| tensor.text());
        Some(Self(checkpoint.tensors.iter().map(name).collect()))
    }

    /// Gives the versions the names that the tensors have now. `places` are, of each tensor that is left, that before.
    /// Gives what cannot follow, as losses: where the new names would take too much, all of them.
    pub fn follow(&self, checkpoint: &mut Checkpoint, places: &[usize]) -> Vec<Loss> {
        self.renamed(checkpoint, places).unwrap_or_else(|| {
            let gone = checkpoint.metadata.take_versions();
            let told = maps(&gone).filter(|(_, _, pairs)| pairs.iter().any(|(_, value)| !is_usual(value)));
            let mut losses: Vec<Loss> =
                told.map(|(key, _, _)| unfollowed(escape_text(key), TOO_LONG)).collect();
            cut(&mut losses);
            losses
        })
    }

    /// As [`follow`](Self::follow); `None`, with nothing changed, where the new names would take too much.
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
        let mut room = Room::default();
        let mut names = Vec::new();
        for (_, above, pairs) in maps(&checkpoint.metadata) {
            names.push(above.to_owned());
            for (name, _) in pairs {
                let name = name.as_str().unwrap_or_default();
                room.free(name.len());
                room.take(above.len())?;
                names.push(below(above, name));
            }
        }
        names.sort_unstable_by(|a, b| by_parts(a, b));
        names.dedup();
        let fates = fates(&names, &moves, room)?;
        let fate =
            |name: &str| names.binary_search_by(|own| by_parts(own, name)).ok().and_then(|at| fates.get(at));
        let mut moved = Moved::default();
        let mut losses = Vec::new();
        for (_, above, pairs) in maps(&checkpoint.metadata) {
            let home = match above {
                "" => Some(""),
                _ => fate(above).and_then(|fate| fate.now.as_deref()),
            };
            for (name, value) in pairs {
                let name = below(above, name.as_str().unwrap_or_default());
                let Some(fate) = fate(&name) else { continue };
                if fate.told && !is_usual(value) {
                    let detail = match fate.now {
                        Some(_) => {
                            "only some of its tensors keep its name: the others have no version, or another"
                        }
                        None => "its tensors have no name in common from which to tell its new one",
                    };
                    losses.push(unfollowed(module(&name), detail));
                }
                if let Some(now) = &fate.now {
                    moved.add(home, now, value, (&name, fate.sure), &mut losses);
                }
            }
        }
        moved.put_into(&mut checkpoint.metadata);
        cut(&mut losses);
        Some(losses)
    }

    /// As [`follow`](Self::follow), where tensors were left out and none has another name.
    pub fn follow_left_out(&self, checkpoint: &mut Checkpoint) -> Vec<Loss> {
        let mut before = self.0.iter().enumerate();
        let mut place = |tensor: &super::TensorEntry| {
            let name = (!tensor.role.is_state()).then(|| tensor.text());
            before.find(|(_, own)| **own == name).map(|(place, _)| place)
        };
        let places: Option<Vec<usize>> = checkpoint.tensors.iter().map(&mut place).collect();
        // Where one is new, nothing is known.
        places.map_or_else(Vec::new, |places| self.follow(checkpoint, &places))
    }

    /// As [`follow`](Self::follow), where every tensor is in its place.
    pub fn follow_renamed(&self, checkpoint: &mut Checkpoint) -> Vec<Loss> {
        let places: Vec<usize> = (0..self.0.len()).collect();
        self.follow(checkpoint, &places)
    }
}

/// The versions that are said, one map for each state dict: the key, the name that leads to it, and the map.
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

/// The key for the versions of the state dict at `above`.
fn key_of(above: &str) -> String {
    below(above, Metadata::MODULE_VERSIONS)
}

/// A map of maps; a value of any other kind was meant for something else.
fn versions(value: &Value) -> Option<&[(Name, Value)]> {
    let Value::Map(pairs) = value else { return None };
    let fits = |(name, value): &(Name, Value)| name.as_str().is_some() && matches!(value, Value::Map(_));
    pairs.iter().all(fits).then_some(pairs.as_slice())
}

/// True for what every module has that says no version, so that nothing is lost with it.
fn is_usual(value: &Value) -> bool {
    match value {
        Value::Map(pairs) => match pairs.as_slice() {
            [] => true,
            [(name, version)] => name.as_str() == Some("version") && *version == Value::I64(1),
            _ => false,
        },
        _ => false,
    }
}

/// The loss of a version that has no place.
fn unfollowed(subject: String, detail: &str) -> Loss {
    Loss::new("module-versions", subject, detail)
}

/// A module, for people.
fn module(name: &str) -> String {
    if name.is_empty() { "the module at the root".to_owned() } else { escape_text(name) }
}

/// Counts the losses of modules that are not named.
fn cut(losses: &mut Vec<Loss>) {
    if losses.len() > TOLD {
        let more = losses.len() - TOLD;
        losses.truncate(TOLD);
        losses.push(unfollowed(format!("{more} more modules"), "their versions do not follow either"));
    }
}

impl Metadata {
    /// The versions of all state dicts as one map, as it belongs beside the tensors where these stand in one flat dict; `None`
    /// where there are none.
    pub fn joined_versions(&self, losses: &mut Vec<Loss>) -> Option<Value> {
        let mut all = maps(self).peekable();
        all.peek()?;
        let mut joined = Joined::default();
        for (key, above, pairs) in all {
            let mut room = Room::default();
            let long = pairs.iter().any(|(name, _)| {
                room.free(name.as_bytes().len());
                room.take(above.len()).is_none()
            });
            if long {
                losses.push(unfollowed(escape_text(key), TOO_LONG));
                continue;
            }
            for (name, value) in pairs {
                let name = below(above, name.as_str().unwrap_or_default());
                if joined.get(&name).is_some_and(|(known, _)| known != value) {
                    losses.push(unfollowed(
                        module(&name),
                        "two versions are said of this module; the first is kept",
                    ));
                } else {
                    joined.set(name, value.clone(), true);
                }
            }
        }
        Some(joined.into_value())
    }

    /// Takes the versions of modules out of the metadata.
    pub fn take_versions(&mut self) -> Metadata {
        self.take(|key, value| location(key).is_some() && versions(value).is_some())
    }

    /// True where metadata hold versions of modules.
    pub fn has_versions(&self) -> bool {
        maps(self).next().is_some()
    }

    /// Puts those that were taken in the place of any others, unless these say the same: then they stay, and say besides of which
    /// state dicts they were.
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

/// True where the versions in the metadata, joined, are these. No map is made for it: they come from a file.
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
    /// Joins the versions under one key of two checkpoints: `kept` goes first. Gives the modules of which they say different
    /// things; `None` where these are no versions.
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

/// A map as it grows, with whether what is said is sure.
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

/// The maps as they will be, by where their state dicts are.
#[derive(Debug, Default)]
struct Moved {
    maps: Vec<(String, Joined)>,
    places: HashMap<String, usize>,
}

impl Moved {
    /// Adds what is said of a module, which is called `now`, to the map at `home`, or where it is not below that, to
    /// that of the root.
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
        // What has its own tensors there is meant, not what stood around them.
        let replaces = sure && !known_sure;
        let lost = if replaces { known } else { value };
        if sure == known_sure || !is_usual(lost) {
            let detail = format!("what was {} gets this name too, with another version", module(before));
            losses.push(unfollowed(module(now), &detail));
        }
        if replaces {
            map.set(name.to_owned(), value.clone(), sure);
        }
    }

    /// Puts the maps in the place of those that were.
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

/// Bytes that new names may have, all together: three times what they had, 256 for each, and 4 MiB.
#[derive(Debug)]
struct Room(u64);

impl Default for Room {
    fn default() -> Self {
        Self(4 << 20)
    }
}

impl Room {
    fn free(&mut self, len: usize) {
        self.0 = self.0.saturating_add((len as u64).saturating_mul(3)).saturating_add(256);
    }

    /// Takes those of one name; `None` where there are no more.
    fn take(&mut self, len: usize) -> Option<()> {
        self.0 = self.0.checked_sub(len as u64)?;
        Some(())
    }
}

/// The name of a tensor, and the one that it has now; `None` where it is left out.
type Move<'a> = (&'a str, Option<&'a str>);

/// What becomes of the name of a module.
#[derive(Debug, Default)]
struct Fate {
    /// The new one.
    now: Option<String>,
    /// True where tensors of its own say so.
    sure: bool,
    /// True where something is lost.
    told: bool,
}

/// What is known of a module from the tensors below it.
#[derive(Debug, Default)]
struct Known<'a> {
    /// The deepest module that it is in.
    within: Option<usize>,
    own: Votes<'a>,
    others: Votes<'a>,
    /// There were tensors below it.
    had: bool,
    /// Some of them are left.
    left: bool,
}

/// The names that a module would have by what is below it: `None` where its level was taken away.
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

/// What a module turned out to be, by its tensors.
enum Verdict<'a> {
    /// It has that name.
    At(&'a str, bool),
    /// What is left of it keeps its name.
    Kept(bool),
    /// Its tensors are left out.
    Left,
    /// Its level was taken away.
    Level,
    /// Its tensors have no name in common.
    Split,
    /// It has no tensors: it goes with what it is in.
    Along,
}

impl<'a> Known<'a> {
    fn verdict(&self, name: &str) -> Verdict<'a> {
        let (votes, own) = if self.own.first.is_some() { (&self.own, true) } else { (&self.others, false) };
        match votes.first {
            None if !self.had => Verdict::Along,
            None if !self.left => Verdict::Left,
            // Whatever is there is below the root.
            _ if votes.split || votes.first.is_none() => match votes.kept || name.is_empty() {
                true => Verdict::Kept(own),
                false => Verdict::Split,
            },
            Some(Some(now)) => Verdict::At(now, own),
            _ => Verdict::Level,
        }
    }
}

/// The fate of each of the modules `names`, which are in the order of their parts, as are the tensors: each tensor tells
/// it to the deepest module that it is in, each module to the one that it is in. So every name is looked at once. `None`
/// where `room` is too small for the new names.
fn fates<'a>(names: &'a [String], moves: &[Move<'a>], mut room: Room) -> Option<Vec<Fate>> {
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
            // A tensor can have the name of a module, which stays open for the tensors in it: it is in the one around that.
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
    let mut fates: Vec<Fate> = Vec::with_capacity(names.len());
    for (name, known) in names.iter().zip(&known) {
        let fate = match known.verdict(name) {
            Verdict::At(now, sure) => Fate { now: Some(now.to_owned()), sure, told: false },
            Verdict::Kept(told) => Fate { now: Some(name.clone()), sure: told, told },
            Verdict::Left => Fate::default(),
            Verdict::Level | Verdict::Split => Fate { told: true, ..Fate::default() },
            Verdict::Along => match known.within.and_then(|at| Some((names.get(at)?, fates.get(at)?))) {
                None => Fate { now: Some(name.clone()), ..Fate::default() },
                Some((within, fate)) => {
                    let rest = rest_below(within, name).unwrap_or_default();
                    let now = fate.now.as_ref().map(|now| below(now, rest));
                    Fate { told: fate.told && now.is_none(), now, sure: false }
                }
            },
        };
        room.take(fate.now.as_ref().map_or(0, String::len))?;
        fates.push(fate);
    }
    Some(fates)
}

/// Takes from `open` the modules that `next` is not in; each tells the one that it is in what is known of it.
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

/// Names in the order of their parts: each stands right before what is below it.
fn by_parts(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (false, false) => a.split('.').cmp(b.split('.')),
        (a, b) => b.cmp(&a),
    }
}

/// How many parts a name has; that of the root has none.
fn parts(name: &str) -> usize {
    if name.is_empty() { 0 } else { name.split('.').count() }
}

/// The name without its last `levels` parts; `None` where it has fewer.
fn above(name: &str, levels: usize) -> Option<&str> {
    let keep = parts(name).checked_sub(levels)?;
    match (keep, levels) {
        (0, _) => Some(""),
        (_, 0) => Some(name),
        _ => name.rmatch_indices('.').nth(levels - 1).and_then(|(at, _)| name.get(..at)),
    }
}

/// `name` below `above`, either of which may be the root.
fn below(above: &str, name: &str) -> String {
    match (above, name) {
        ("", name) => name.to_owned(),
        (above, "") => above.to_owned(),
        (above, name) => format!("{above}.{name}"),
    }
}

/// What follows `above` in `name`, nothing where they are one; `None` where it is not below it.
fn rest_below<'a>(above: &str, name: &'a str) -> Option<&'a str> {
    match name.strip_prefix(above)? {
        "" => Some(""),
        rest if above.is_empty() => Some(rest),
        rest => rest.strip_prefix('.'),
    }
}

#[cfg(test)]
mod tests;
