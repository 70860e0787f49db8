//! Table of the tensors of a walk: their names and shared storage.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Distinct, Extent, Metadata, Note, TensorEntry, Value,
};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_core::text::counted;
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_pickle::ObjectId;

/// A dense tensor in a storage: number of the storage, first byte, end byte, index of the tensor.
type Range = (usize, u64, u64, usize);

/// Table of the tensors so far. It takes more memory than a tiny tensor takes in the file, so storages and tensors are referred
/// to by number instead of name.
#[derive(Debug, Default)]
pub(super) struct TensorTable {
    names: Distinct,
    /// Index of the first tensor of each object.
    objects: HashMap<ObjectId, usize>,
    storages: Storages,
    /// Index in `ranges` of the first tensor with the same storage, offset, order, shape and dtype, by their hash.
    dense: HashMap<u64, usize>,
    hasher: RandomState,
    /// Dense tensors.
    ranges: Vec<Range>,
    /// Byte ranges of the distinct tensors.
    spans: OverlapBudget,
    /// Plain values, in order.
    kept: Vec<(String, Value)>,
}

/// Numbered storages of the tensors.
#[derive(Debug, Default)]
struct Storages {
    numbers: HashMap<Arc<str>, usize>,
    keys: Vec<Arc<str>>,
}

impl Storages {
    /// Returns the number of a storage.
    fn number(&mut self, key: &str) -> usize {
        if let Some(&number) = self.numbers.get(key) {
            return number;
        }
        let (key, number) = (Arc::<str>::from(key), self.keys.len());
        self.keys.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

impl TensorTable {
    /// Returns true if the object was added before.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id)
    }

    /// Returns the index of the first tensor with the same elements of the storage in the same shape. Without one, registers
    /// this tensor as the first.
    fn same(
        &mut self,
        tensors: &[TensorEntry],
        range: Range,
        entry: &TensorEntry,
        extent: &Extent,
    ) -> Option<usize> {
        let order = |extent: &Extent| extent.encoding.order;
        let key = (range.0, range.1, order(extent) == Order::Row, &entry.shape, entry.stored.name());
        match self.dense.entry(self.hasher.hash_one(key)) {
            Entry::Vacant(free) => {
                free.insert(self.ranges.len());
                None
            }
            Entry::Occupied(found) => {
                // A hash collision is not the same tensor.
                let &(storage, offset, _, place) = self.ranges.get(*found.get())?;
                let other = tensors.get(place)?;
                let same = (storage, offset) == (range.0, range.1)
                    && (&other.shape, other.stored) == (&entry.shape, entry.stored)
                    && other.single_extent().is_some_and(|other| order(other) == order(extent));
                same.then_some(place)
            }
        }
    }

    /// Adds a tensor under a unique name.
    pub(super) fn add(
        &mut self,
        checkpoint: &mut Checkpoint,
        mut entry: TensorEntry,
        id: ObjectId,
        storage: &str,
    ) {
        checkpoint.notes.extend(self.names.add(&mut entry));
        let storage = self.storages.number(storage);
        let mut first = self.objects.get(&id).copied();
        // Decoded data is shared, not decoded again.
        if let Some(same) = first.and_then(|first| checkpoint.tensors.get(first)) {
            entry.extents.clone_from(&same.extents);
        }
        let place = checkpoint.tensors.len();
        // A gathered tensor has a source of its own.
        let gathered = entry.single_extent().is_some_and(|p| {
            p.source.within().is_some_and(|w| w.encoded) && p.offset == 0 && p.source.len() == p.len
        });
        if let Some(extent) = entry.single_extent().filter(|p| p.len > 0 && !gathered) {
            let range = (storage, extent.offset, extent.offset + extent.len, place);
            let same = self.same(&checkpoint.tensors, range, &entry, extent);
            first = first.or(same);
            self.ranges.push(range);
        }
        if first.is_none()
            && let Some(extent) = entry.single_extent().filter(|p| p.len > 0)
        {
            let within = extent.source.within().filter(|_| gathered);
            let (from, len) = within.map_or((extent.offset, extent.len), |w| (w.offset, w.len));
            self.spans.add(storage, (from, from.saturating_add(len)), extent.len);
        }
        // Aliases refer to the first tensor.
        self.objects.entry(id).or_insert(first.unwrap_or(place));
        if let Some(first) = first.and_then(|first| checkpoint.tensors.get(first)) {
            entry.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(first.text()));
        }
        checkpoint.tensors.push(entry);
    }

    /// Adds a tensor that the pickle holds as a number; it shares no storage.
    pub(super) fn add_number(&mut self, checkpoint: &mut Checkpoint, mut entry: TensorEntry) {
        checkpoint.notes.extend(self.names.add(&mut entry));
        checkpoint.tensors.push(entry);
    }

    /// Keeps a plain value.
    pub(super) fn keep(&mut self, key: String, value: Value) {
        self.kept.push((key, value));
    }

    /// Sets the metadata of the checkpoint, and returns the overlaps to mark once the objects are freed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `torch-repeated`, if overlapping tensors exceed the limit.
    pub(super) fn finish(self, checkpoint: &mut Checkpoint, limits: &Limits) -> Result<Overlaps> {
        self.spans.check("torch-repeated", limits)?;
        let (mut metadata, mut ambiguous) = (Metadata::default(), 0u64);
        for (key, value) in self.kept {
            match metadata.get(&key) {
                None => metadata.set(key, value),
                Some(_) => ambiguous += 1,
            }
        }
        if ambiguous > 0 {
            let values = counted(ambiguous, "value", "values");
            let text = format!("{values} omitted: a key with dots equals the path of a nested value");
            checkpoint.notes.push(Note::omission("value-left-out", text));
        }
        checkpoint.metadata = metadata;
        Ok(Overlaps { ranges: self.ranges, keys: self.storages.keys })
    }
}

/// Dense tensors in their storages. Marking overlaps may take as much memory as the objects of the pickle, so it runs after they
/// are freed.
#[derive(Debug)]
pub(in super::super) struct Overlaps {
    ranges: Vec<Range>,
    keys: Vec<Arc<str>>,
}

impl Overlaps {
    /// Marks the tensors that overlap another one, and clears the list.
    pub(in super::super) fn mark(&mut self, checkpoint: &mut Checkpoint) {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_unstable();
        let mut last: Option<&Range> = None;
        for range in &ranges {
            if let Some(before) = last.filter(|b| b.0 == range.0 && range.1 < b.2) {
                // The same bytes under another name are an alias; in another shape or order they are also a view.
                let again = checkpoint
                    .tensors
                    .get(range.3)
                    .is_some_and(|e| e.attributes.contains_key(Attributes::ALIAS_OF));
                if (before.1, before.2) != (range.1, range.2) || !again {
                    for place in [before.3, range.3] {
                        if let Some(entry) = checkpoint.tensors.get_mut(place)
                            && let Some(key) = self.keys.get(range.0)
                        {
                            entry
                                .attributes
                                .insert(Attributes::STORAGE.to_owned(), Value::Text(key.as_ref().to_owned()));
                        }
                    }
                }
                if range.2 <= before.2 {
                    continue;
                }
            }
            last = Some(range);
        }
    }
}
