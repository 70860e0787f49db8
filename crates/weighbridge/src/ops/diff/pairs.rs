//! Pairing of tensors on the left with tensors on the right.

use super::{Side, blame};
use crate::checkpoint::{Checkpoint, Name, TensorEntry, TensorPath};
use crate::error::{Error, Kind, Result};
use crate::finding::Finding;
use crate::ops::hash;
use crate::tensor::{DType, Shape};
use std::collections::{HashMap, HashSet, VecDeque};

/// Maximum number of name parts compared where tensors of the same content have several candidates: enough for some thousand
/// identical ones.
const MAX_COMPARED_PARTS: usize = 20_000_000;

/// How two tensors were paired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// By name.
    Name,
    /// By elements: names differ; type, shape and every bit are equal.
    Content,
}

impl Found {
    /// Returns the word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Content => "content",
        }
    }
}

/// Pairing of the tensors of both sides, by index.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Pairs, in the order of the left side.
    pub(super) pairs: Vec<(usize, usize, Found)>,
    /// Tensors only on the left.
    pub(super) left: Vec<usize>,
    /// Tensors only on the right.
    pub(super) right: Vec<usize>,
    /// Reasons why tensors could not be paired by content.
    pub(super) unread: Vec<Finding>,
}

/// Pairs tensors by path and slot; then by displayed name, as some formats have no paths; then, if `content` is true, by the
/// hash of their elements. Only `kept` tensors are paired: pairs by either name, others by their own.
///
/// # Errors
/// As [`hash::sha256`], where the error is not about the file.
pub(super) fn pair(
    left: &Checkpoint,
    right: &Checkpoint,
    kept: &dyn Fn(&[&TensorEntry]) -> bool,
    content: bool,
) -> Result<Pairs> {
    let mut found: Vec<Option<(usize, Found)>> = vec![None; left.tensors.len()];
    let mut taken = vec![false; right.tensors.len()];
    by(left, right, &mut found, &mut taken, |t| (&t.path, t.role.slot()));
    by(left, right, &mut found, &mut taken, |t| t.text());
    // A dropped tensor takes no part in the following steps.
    let mut gone = vec![false; left.tensors.len()];
    for (l, entry) in left.tensors.iter().enumerate() {
        let keep = match found[l] {
            Some((r, _)) => kept(&[entry, &right.tensors[r]]),
            None => kept(&[entry]),
        };
        gone[l] = !keep;
    }
    for (r, entry) in right.tensors.iter().enumerate() {
        taken[r] |= !kept(&[entry]);
    }
    let mut unread = Vec::new();
    if content {
        by_content(left, right, &gone, &mut found, &mut taken, &mut unread)?;
    }
    let pairs = found.iter().enumerate().filter(|(l, _)| !gone[*l]);
    let pairs = pairs.filter_map(|(l, hit)| hit.map(|(r, found)| (l, r, found))).collect();
    let left = (0..found.len()).filter(|&l| found[l].is_none() && !gone[l]).collect();
    let right = (0..taken.len()).filter(|&r| !taken[r]).collect();
    Ok(Pairs { pairs, left, right, unread })
}

fn by<'a, K: std::hash::Hash + Eq>(
    left: &'a Checkpoint,
    right: &'a Checkpoint,
    found: &mut [Option<(usize, Found)>],
    taken: &mut [bool],
    key: impl Fn(&'a TensorEntry) -> K,
) {
    let free = right.tensors.iter().enumerate().filter(|(place, _)| !taken[*place]);
    let mut places: HashMap<K, usize> = free.map(|(place, entry)| (key(entry), place)).collect();
    for (entry, hit) in left.tensors.iter().zip(found).filter(|(_, hit)| hit.is_none()) {
        if let Some(place) = places.remove(&key(entry)) {
            taken[place] = true;
            *hit = Some((place, Found::Name));
        }
    }
}

/// Pairs by content. Reads only tensors whose type and shape are unpaired on both sides.
fn by_content(
    left: &Checkpoint,
    right: &Checkpoint,
    gone: &[bool],
    found: &mut [Option<(usize, Found)>],
    taken: &mut [bool],
    unread: &mut Vec<Finding>,
) -> Result<()> {
    type Form<'a> = (DType, &'a Shape, Option<&'a Name>);
    fn form(entry: &TensorEntry) -> Form<'_> {
        (entry.dtype(), &entry.shape, entry.role.slot())
    }
    let free: Vec<usize> = (0..found.len()).filter(|&l| found[l].is_none() && !gone[l]).collect();
    let wanted: HashSet<Form<'_>> = free.iter().map(|&l| form(&left.tensors[l])).collect();
    let mut by_hash: HashMap<(Form<'_>, String), VecDeque<usize>> = HashMap::new();
    let mut forms: HashSet<Form<'_>> = HashSet::new();
    for (place, entry) in right.tensors.iter().enumerate().filter(|(place, _)| !taken[*place]) {
        let form = form(entry);
        if wanted.contains(&form) {
            forms.insert(form);
            if let Some(hash) = hash((entry, &right.label), unread)? {
                by_hash.entry((form, hash)).or_default().push_back(place);
            }
        }
    }
    let mut left_to_compare = MAX_COMPARED_PARTS;
    for l in free {
        let entry = &left.tensors[l];
        let form = form(entry);
        if !forms.contains(&form) {
            continue;
        }
        let Some(hash) = hash((entry, &left.label), unread)? else { continue };
        let Some(places) = by_hash.get_mut(&(form, hash)) else { continue };
        // Of several identical tensors, the one whose name has the longest common end; the first one where that would take too
        // long. All are correct.
        let parts = entry.path.parts().len().max(1);
        let looked = places.len().min((left_to_compare / parts).max(1));
        left_to_compare = left_to_compare.saturating_sub(looked.saturating_mul(parts));
        let best = (0..looked).max_by_key(|&at| {
            let other = places.get(at).and_then(|&place| right.tensors.get(place));
            (other.map_or(0, |other| in_common(&entry.path, &other.path)), std::cmp::Reverse(at))
        });
        // Parameters that were never trained are equal to many others.
        let named_alike = best
            .and_then(|at| right.tensors.get(*places.get(at)?))
            .is_some_and(|other| in_common(&entry.path, &other.path) > 0);
        if !named_alike && is_constant(entry)? {
            continue;
        }
        if let Some(place) = best.and_then(|at| places.remove(at)) {
            taken[place] = true;
            found[l] = Some((place, Found::Content));
        }
    }
    Ok(())
}

/// Returns the hash of a tensor; `None` for one that is damaged or beyond a limit, which is paired by name only.
fn hash(side: Side<'_>, unread: &mut Vec<Finding>) -> Result<Option<String>> {
    let error = match hash::sha256(side.0).map_err(blame(side)) {
        Ok(hash) => return Ok(Some(hash)),
        Err(error) => error,
    };
    unread.push(Finding::from_error(&error).ok_or(error)?);
    Ok(None)
}

/// True for several elements of one value. Reads them up to the first different one, behind the checksum if there is one.
fn is_constant(entry: &TensorEntry) -> Result<bool> {
    let Some(size) = entry.dtype().size() else { return Ok(false) };
    let (mut first, mut count): (Option<Vec<u8>>, usize) = (None, 0);
    let read = hash::for_each_chunk(entry, &mut |bytes| {
        count += bytes.len() / size;
        let mut elements = bytes.chunks_exact(size);
        let first = match &first {
            Some(first) => first,
            None => first.insert(elements.next().unwrap_or_default().to_vec()),
        };
        if elements.all(|element| element == first.as_slice()) { Ok(()) } else { Err(Error::cancelled()) }
    });
    match read {
        Ok(()) => Ok(count > 1),
        Err(error) if error.kind() == Kind::Cancelled => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the number of equal parts at the ends of both names.
fn in_common(a: &TensorPath, b: &TensorPath) -> usize {
    a.parts().iter().rev().zip(b.parts().iter().rev()).take_while(|(a, b)| a == b).count()
}
