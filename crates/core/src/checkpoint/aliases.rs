//! Updates of aliases and of parameters named by optimizer state, after tensors were renamed or removed.

use super::{Attributes, Checkpoint, Note, Role, TensorEntry, Value};
use crate::budget::Budget;
use crate::error::Result;
use crate::text::counted;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Memory of an attribute besides its text.
const ATTRIBUTE_MEMORY: u64 = 128;

impl Checkpoint {
    /// Updates [`Attributes::ALIAS_OF`] of all tensors. If the target is gone, or has other bytes or another cast, the alias
    /// becomes the first tensor that still shares its bytes, or is removed.
    ///
    /// Optimizer state loses the reference to a parameter that is gone, with the note `state-without-parameter`.
    pub fn settle_aliases(&mut self) -> Option<Note> {
        let note = self.settle_state();
        self.settle_names();
        note
    }

    fn settle_names(&mut self) {
        if !self.tensors.iter().any(|tensor| tensor.attributes.contains_key(Attributes::ALIAS_OF)) {
            return;
        }
        let mut places: HashMap<String, usize> = HashMap::with_capacity(self.tensors.len());
        for (place, tensor) in self.tensors.iter().enumerate() {
            places.entry(tensor.text()).or_insert(place);
        }
        // Successor of each missing alias target.
        let mut heirs: HashMap<(&str, Bytes<'_>), usize> = HashMap::new();
        let mut changes = Vec::new();
        for (place, tensor) in self.tensors.iter().enumerate() {
            let Some(of) = tensor.text_attribute(Attributes::ALIAS_OF) else { continue };
            let shares = |other: &usize| {
                *other != place && self.tensors.get(*other).is_some_and(|other| tensor.same_bytes(other))
            };
            if places.get(of).is_some_and(shares) {
                continue;
            }
            match heirs.entry((of, Bytes(tensor))) {
                Entry::Occupied(heir) => {
                    changes.push((place, self.tensors.get(*heir.get()).map(TensorEntry::text)));
                }
                Entry::Vacant(heir) => {
                    heir.insert(place);
                    changes.push((place, None));
                }
            }
        }
        for (place, of) in changes {
            let Some(tensor) = self.tensors.get_mut(place) else { continue };
            match of {
                Some(of) => tensor.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(of)),
                None => tensor.attributes.remove(Attributes::ALIAS_OF),
            };
        }
    }

    fn settle_state(&mut self) -> Option<Note> {
        if !self.tensors.iter().any(|tensor| tensor.role.state_of().is_some()) {
            return None;
        }
        let names: HashSet<String> =
            self.tensors.iter().filter(|t| !t.role.is_state()).map(TensorEntry::text).collect();
        let (mut count, mut first) = (0u64, None);
        for (place, tensor) in self.tensors.iter_mut().enumerate() {
            if let Role::OptimizerPart { of } = &mut tensor.role
                && of.as_ref().is_some_and(|of| !names.contains(&of.name))
            {
                *of = None;
                count += 1;
                first.get_or_insert(place);
            }
        }
        let first = self.tensors.get(first?)?.text();
        let text = format!(
            "{} to a removed parameter, for example {first}: it has names of its own, which no pattern matched, so it stays",
            counted(count, "tensor of optimizer state belongs", "tensors of optimizer state belong")
        );
        Some(Note::new("state-without-parameter", text))
    }

    /// Sets [`Attributes::ALIAS_OF`] of all tensors tied to an earlier one, for formats in which several names may share bytes.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] where the names exceed the memory budget.
    pub fn mark_ties(&mut self, budget: &Budget) -> Result<()> {
        for (place, first) in self.tied() {
            let first = self.tensors[first].text();
            budget.take_memory(ATTRIBUTE_MEMORY + first.len() as u64)?;
            self.tensors[place].attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(first));
        }
        Ok(())
    }

    /// Returns the tensors tied to an earlier one, as pairs of indices: `(this, first)`.
    pub fn tied(&self) -> Vec<(usize, usize)> {
        let tensors = &self.tensors;
        let named: HashMap<String, usize> = match tensors
            .iter()
            .any(|t| t.attributes.contains_key(Attributes::ALIAS_OF))
        {
            true => tensors.iter().enumerate().rev().map(|(place, tensor)| (tensor.text(), place)).collect(),
            false => HashMap::new(),
        };
        let mut firsts: HashMap<SameRead<'_>, usize> = HashMap::with_capacity(tensors.len());
        let mut tied = Vec::new();
        for (place, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.bytes() > 0) {
            let of = tensor.text_attribute(Attributes::ALIAS_OF).and_then(|of| named.get(of)).copied();
            let first = match of.filter(|&of| of != place && tensors[of].same_bytes(tensor)) {
                Some(first) => first,
                None => *firsts.entry(SameRead(tensor)).or_insert(place),
            };
            if first != place {
                tied.push((place, first));
            }
        }
        tied
    }
}

impl TensorEntry {
    /// Returns true if both tensors are the same bytes of one file, with the same dtype, shape and layout.
    pub fn same_bytes(&self, other: &TensorEntry) -> bool {
        let alike = (&self.shape, self.stored, self.cast) == (&other.shape, other.stored, other.cast)
            && self.extents.len() == other.extents.len();
        alike
            && self.extents.iter().zip(&other.extents).all(|(p, q)| {
                (p.offset, p.len, p.encoding) == (q.offset, q.len, q.encoding)
                    && (p.source.label(), p.source.len()) == (q.source.label(), q.source.len())
            })
    }
}

/// Tensor as a key: equal if both are the same bytes.
struct Bytes<'a>(&'a TensorEntry);

impl PartialEq for Bytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_bytes(other.0)
    }
}

impl Eq for Bytes<'_> {}

impl Hash for Bytes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.shape, self.0.stored, self.0.extents.len()).hash(state);
        for extent in &self.0.extents {
            (extent.offset, extent.len, extent.source.label()).hash(state);
        }
    }
}

/// Tensor as a key: equal if both read the same ranges of the same source objects, so that results can be shared. Different
/// source objects with the same bytes are not equal.
pub struct SameRead<'a>(pub &'a TensorEntry);

impl PartialEq for SameRead<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.0, other.0);
        a.same_bytes(b)
            && a.extents.iter().zip(&b.extents).all(|(p, q)| {
                Arc::ptr_eq(&p.source, &q.source)
                    && p.region(&a.shape) == q.region(&b.shape)
                    && p.check.is_some() == q.check.is_some()
            })
    }
}

impl Eq for SameRead<'_> {}

impl Hash for SameRead<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Bytes(self.0).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TensorPath;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};

    /// Three names of the same bytes, and one of other bytes.
    fn checkpoint() -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 64]));
        let entry = |path: &str, offset: u64| {
            let path = TensorPath::from_dotted(path);
            TensorEntry::dense(path, DType::F32, Shape::new([2, 3]), &source, offset, Encoding::ROW).unwrap()
        };
        let mut c = Checkpoint::new("torch", "state-dict", "m");
        c.tensors = vec![entry("emb", 0), entry("head", 0), entry("tail", 0), entry("w", 24)];
        for tensor in &mut c.tensors[1..3] {
            tensor.attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("emb".into()));
        }
        c
    }

    fn aliases(c: &Checkpoint) -> Vec<Option<&str>> {
        c.tensors.iter().map(|tensor| tensor.text_attribute(Attributes::ALIAS_OF)).collect()
    }

    #[test]
    fn aliases_follow_the_bytes() {
        let mut c = checkpoint();
        c.settle_aliases();
        assert_eq!(aliases(&c), [None, Some("emb"), Some("emb"), None]);
        c.tensors.remove(0);
        c.settle_aliases();
        assert_eq!(aliases(&c), [None, Some("head"), None]);
        let mut c = checkpoint();
        c.tensors[0].cast = Some(DType::F16.into());
        c.settle_aliases();
        assert_eq!(aliases(&c), [None, None, Some("head"), None]);
        // Another tensor of that name.
        let mut c = checkpoint();
        let mut other = c.tensors[3].clone();
        other.path = c.tensors[0].path.clone();
        c.tensors[0] = other;
        c.tensors.remove(1);
        c.settle_aliases();
        assert_eq!(aliases(&c), [None, None, None]);
    }

    #[test]
    fn state_without_parameter_is_noted_once() {
        let mut c = checkpoint();
        for (tensor, name) in c.tensors[1..].iter_mut().zip(["emb", "emb", "w"]) {
            tensor.attributes.clear();
            let of = crate::checkpoint::StateOf { name: name.into(), guessed: true };
            tensor.role = Role::OptimizerPart { of: Some(Box::new(of)) };
        }
        // The parameter of the last one is missing.
        let note = c.settle_aliases().unwrap();
        assert!(note.text.starts_with("1 tensor of optimizer state belongs"), "{}", note.text);
        assert!(note.text.contains("for example w:") && !note.omission, "{}", note.text);
        assert_eq!(c.settle_aliases(), None);
        c.tensors.remove(0);
        let note = c.settle_aliases().unwrap();
        assert_eq!(note.code.as_str(), "state-without-parameter");
        assert!(
            note.text.starts_with("2 tensors of") && note.text.contains("for example head:"),
            "{}",
            note.text
        );
        assert!(c.tensors.iter().all(|tensor| tensor.role.state_of().is_none()));
    }

    /// Each is an alias of a missing tensor, with bytes of its own: none is compared with all the others.
    #[test]
    fn many_dangling_aliases_take_linear_time() {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 100_000]));
        let mut c = Checkpoint::new("torch", "state-dict", "m");
        for offset in 0..100_000 {
            let path = TensorPath::from_dotted(&format!("t{offset}"));
            let mut entry =
                TensorEntry::dense(path, DType::U8, Shape::new([1]), &source, offset, Encoding::ROW).unwrap();
            entry.attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("gone".into()));
            c.tensors.push(entry);
        }
        let begun = std::time::Instant::now();
        c.settle_aliases();
        assert!(aliases(&c).iter().all(Option::is_none));
        // Pairwise comparison would take minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    }
}
