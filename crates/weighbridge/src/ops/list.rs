//! Tensor lists: selection, order, and optional hashes, byte ranges and totals.

use super::hash::sha256_all;
use crate::checkpoint::{Checkpoint, Selection, TensorEntry, TensorPath};
use crate::error::Result;
use crate::ops::edit::suggest;
use crate::phrase::{Face, Worded};
use serde::{Serialize, Serializer};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// By name.
    Name,
    /// By bytes, largest first.
    Size,
    /// By element type.
    Dtype,
}

/// Options of [`list`].
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Patterns of names; empty for all.
    pub select: Vec<String>,
    /// Patterns of names to drop.
    pub drop: Vec<String>,
    /// The order; that of the file if `None`.
    pub sort: Option<Sort>,
    /// Number of leading name parts that form a group.
    pub group: Option<u16>,
    /// Hash the elements of each tensor.
    pub hash: bool,
    /// Include the byte ranges of each tensor in the JSON document.
    pub extents: bool,
}

/// Tensors of a checkpoint as a list.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The listed tensors, in order.
    pub checkpoint: Checkpoint,
    /// SHA-256 of the elements of each tensor; empty unless requested.
    pub hashes: Vec<String>,
    /// Totals by group.
    pub groups: Option<Vec<Group>>,
    /// True where the JSON document includes byte ranges.
    pub extents: bool,
}

/// Totals of the tensors whose names begin with the same parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The common leading parts, as a name.
    pub name: String,
    /// The number of tensors.
    pub tensors: u64,
    /// Number of elements.
    pub elements: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Lists the tensors of `checkpoint`.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::ops::list::{ListOptions, Sort, list};
///
/// let options = ListOptions { sort: Some(Sort::Size), hash: true, ..ListOptions::default() };
/// let listing = list(weighbridge::open(&path)?.into_index(), &options)?;
/// for (tensor, hash) in listing.checkpoint.tensors.iter().zip(&listing.hashes) {
///     println!("{hash} {} {}", tensor.text(), tensor.shape);
/// }
/// assert_eq!(listing.checkpoint.tensors[0].text(), "w1");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Kind::Mismatch`] for patterns that match nothing; errors of reading, for hashes.
pub fn list(mut checkpoint: Checkpoint, options: &ListOptions) -> Result<Listing> {
    let selection = Selection::new(&options.select, &options.drop)?;
    checkpoint.select(&selection).map_err(|error| suggest(error, &[&checkpoint], false))?;
    match options.sort {
        Some(Sort::Name) => checkpoint.tensors.sort_by_cached_key(TensorEntry::text),
        Some(Sort::Size) => checkpoint.tensors.sort_by_key(|tensor| Reverse(tensor.bytes())),
        Some(Sort::Dtype) => checkpoint.tensors.sort_by_key(|tensor| tensor.dtype().name()),
        None => {}
    }
    let hashes = if options.hash { sha256_all(&checkpoint, 0)? } else { Vec::new() };
    let groups = options.group.map(|parts| groups(&checkpoint, parts.into(), options.sort));
    Ok(Listing { checkpoint, hashes, groups, extents: options.extents })
}

/// Returns the groups of tensors by the first `parts` parts of their names. They are in the order of the first tensor of each,
/// or sorted by name or size.
fn groups(checkpoint: &Checkpoint, parts: usize, sort: Option<Sort>) -> Vec<Group> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for tensor in &checkpoint.tensors {
        let path = tensor.path.parts();
        let name = TensorPath::new(path[..parts.min(path.len())].to_vec()).to_text();
        let place = *places.entry(name.clone()).or_insert_with(|| {
            groups.push(Group { name, tensors: 0, elements: 0, bytes: 0 });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.tensors += 1;
        group.elements = group.elements.saturating_add(tensor.elements());
        group.bytes = group.bytes.saturating_add(tensor.bytes());
    }
    match sort {
        Some(Sort::Name) => groups.sort_by(|a, b| a.name.cmp(&b.name)),
        Some(Sort::Size) => groups.sort_by_key(|group| Reverse(group.bytes)),
        Some(Sort::Dtype) | None => {}
    }
    groups
}

#[derive(Serialize)]
struct Document<'a, Tensors: Serialize> {
    #[serde(flatten)]
    tensors: Tensors,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<&'a [Group]>,
}

impl Serialize for Listing {
    /// Serializes the document of the checkpoint, with `sha256` and extents of tensors, and `groups`.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let tensors = self.checkpoint.as_json_with(|place, tensor| {
            let mut json = tensor.to_json();
            if let Some(hash) = self.hashes.get(place) {
                json["sha256"] = json!(hash);
            }
            if self.extents {
                json["pieces"] = tensor.extents_to_json();
            }
            json
        });
        Document { tensors, groups: self.groups.as_deref() }.serialize(to)
    }
}

impl Worded for Listing {
    fn word(&mut self, face: Face<'_>) {
        self.checkpoint.word(face);
    }
}
