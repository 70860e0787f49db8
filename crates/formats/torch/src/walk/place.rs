//! Tensors that were met: their names, and what they share.

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

/// A dense tensor in a storage: its number, first byte, byte behind the last one, and the place of the tensor.
type Range = (usize, u64, u64, usize);

/// What is known of the tensors so far. Of a tensor of a few bytes all this is more than what it has in the file: names of
/// storages and of tensors are not copied, but told by their numbers.
#[derive(Debug, Default)]
pub(super) struct Places {
    names: Distinct,
    /// The place of the tensor that an object was met as first.
    objects: HashMap<ObjectId, usize>,
    storages: Storages,
    /// The place in `ranges` of the first tensor of this storage, offset, order, extents and type, by their hash.
    dense: HashMap<u64, usize>,
    hasher: RandomState,
    /// Dense tensors.
    ranges: Vec<Range>,
    /// What tensors read that are no other one by another name.
    spans: OverlapBudget,
    /// Plain values, in order.
    kept: Vec<(String, Value)>,
}

/// The storages that tensors have, numbered.
#[derive(Debug, Default)]
struct Storages {
    numbers: HashMap<Arc<str>, usize>,
    keys: Vec<Arc<str>>,
}

impl Storages {
    /// The number of a storage, and whether it is a new one.
    fn number(&mut self, key: &str) -> (usize, bool) {
        if let Some(&number) = self.numbers.get(key) {
            return (number, false);
        }
        let (key, number) = (Arc::<str>::from(key), self.keys.len());
        self.keys.push(key.clone());
        self.numbers.insert(key, number);
        (number, true)
    }
}

impl Places {
    /// True where the object was met before.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id)
    }

    /// The place of the first tensor that has the same elements of the storage in the same shape, if there is one. Else
    /// this is the first.
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
                // Another one of the same hash is another one.
                let &(storage, offset, _, place) = self.ranges.get(*found.get())?;
                let other = tensors.get(place)?;
                let same = (storage, offset) == (range.0, range.1)
                    && (&other.shape, other.stored) == (&entry.shape, entry.stored)
                    && other.single_extent().is_some_and(|other| order(other) == order(extent));
                same.then_some(place)
            }
        }
    }

    /// Adds a tensor under a name of its own.
    pub(super) fn add(
        &mut self,
        checkpoint: &mut Checkpoint,
        mut entry: TensorEntry,
        id: ObjectId,
        storage: &str,
    ) {
        checkpoint.notes.extend(self.names.add(&mut entry));
        let (storage, is_new) = self.storages.number(storage);
        let mut first = self.objects.get(&id).copied();
        // What is decoded is so once.
        if let Some(same) = first.and_then(|first| checkpoint.tensors.get(first)) {
            entry.extents.clone_from(&same.extents);
        }
        let place = checkpoint.tensors.len();
        // What is gathered has a source of its own.
        let gathered = entry.single_extent().is_some_and(|p| {
            p.source.within().is_some_and(|w| w.encoded)
                && p.check.is_none()
                && p.offset == 0
                && p.source.len() == p.len
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
        if !is_new {
            entry.extents.iter_mut().for_each(|extent| extent.check = None);
        }
        // The first of several is the one that the others are said to be.
        self.objects.entry(id).or_insert(first.unwrap_or(place));
        if let Some(first) = first.and_then(|first| checkpoint.tensors.get(first)) {
            entry.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(first.text()));
        }
        checkpoint.tensors.push(entry);
    }

    /// Adds a tensor that the pickle holds as a number: it shares its element with no other.
    pub(super) fn add_number(&mut self, checkpoint: &mut Checkpoint, mut entry: TensorEntry) {
        checkpoint.notes.extend(self.names.add(&mut entry));
        checkpoint.tensors.push(entry);
    }

    /// Keeps a plain value.
    pub(super) fn keep(&mut self, key: String, value: Value) {
        self.kept.push((key, value));
    }

    /// Brings the plain values in, and gives what is left to do when the objects are gone.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `torch-repeated`, where tensors overlap without measure.
    pub(super) fn finish(self, checkpoint: &mut Checkpoint, limits: &Limits) -> Result<Overlaps> {
        self.spans.check("torch-repeated", limits)?;
        let (mut metadata, mut alike) = (Metadata::default(), 0u64);
        for (key, value) in self.kept {
            match metadata.get(&key) {
                None => metadata.set(key, value),
                Some(_) => alike += 1,
            }
        }
        if alike > 0 {
            let values = counted(alike, "value is", "values are");
            let text = format!(
                "{values} called like another one, as keys with dots look like keys within keys: left out"
            );
            checkpoint.notes.push(Note::omission("value-left-out", text));
        }
        checkpoint.metadata = metadata;
        Ok(Overlaps { ranges: self.ranges, keys: self.storages.keys })
    }
}

/// Dense tensors in their storages. To say of each that it overlaps another one may take as much memory as the objects of
/// the pickle, and so waits for these to be gone.
#[derive(Debug)]
pub(in super::super) struct Overlaps {
    ranges: Vec<Range>,
    keys: Vec<Arc<str>>,
}

impl Overlaps {
    /// Marks the tensors that overlap another one; nothing is left to mark then.
    pub(in super::super) fn mark(&mut self, checkpoint: &mut Checkpoint) {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_unstable();
        let mut last: Option<&Range> = None;
        for range in &ranges {
            if let Some(before) = last.filter(|b| b.0 == range.0 && range.1 < b.2) {
                // The same bytes by another name are said to be that; in another shape or order they are a view as well.
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
