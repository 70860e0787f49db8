//! Tensors that were met: their names, and what they share.

use crate::checkpoint::{
    ALIAS_OF, Checkpoint, Metadata, Name, Note, STORAGE, TensorEntry, TensorPath, Value,
};
use crate::error::Result;
use crate::formats::again::Spans;
use crate::limits::Limits;
use crate::pickle::ObjectId;
use crate::tensor::Order;
use crate::text::counted;
use std::collections::{HashMap, HashSet};

/// A dense tensor in a storage: key, offset, order, extents, type.
type Dense = (String, u64, Order, Vec<u64>, &'static str);

/// What is known of the tensors so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    texts: HashSet<String>,
    /// Of each name that was met twice, the number from which on a free one is sought.
    free: HashMap<String, usize>,
    objects: HashMap<ObjectId, String>,
    dense: HashMap<Dense, String>,
    /// Storages whose checksum a tensor has: each is held against it once.
    checked: HashSet<String>,
    /// Storage, first byte, byte behind the last one, and place of each dense tensor.
    ranges: Vec<(String, u64, u64, usize)>,
    /// What tensors read that are no other one by another name.
    spans: Spans,
    /// Plain values, in order.
    kept: Vec<(String, Value)>,
}

impl Places {
    /// True where the object was met before.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id)
    }

    /// Adds a tensor under a name of its own.
    pub(super) fn add(
        &mut self,
        checkpoint: &mut Checkpoint,
        mut entry: TensorEntry,
        id: ObjectId,
        storage: &str,
    ) {
        self.distinguish(checkpoint, &mut entry);
        let text = entry.text();
        let mut first = self.objects.get(&id).cloned();
        let place = checkpoint.tensors.len();
        // What is gathered has a source of its own.
        let gathered = entry.single_piece().is_some_and(|p| {
            p.source.within().is_some_and(|w| w.encoded)
                && p.check.is_none()
                && p.offset == 0
                && p.source.len() == p.len
        });
        if let Some(piece) = entry.single_piece().filter(|p| p.len > 0 && !gathered) {
            let dims = entry.shape.dims().to_vec();
            let key = (storage.to_owned(), piece.offset, piece.encoding.order, dims, entry.stored.name());
            match self.dense.get(&key) {
                Some(other) => first = first.or_else(|| Some(other.clone())),
                None => {
                    self.dense.insert(key, text.clone());
                }
            }
            self.ranges.push((storage.to_owned(), piece.offset, piece.offset + piece.len, place));
        }
        if first.is_none()
            && let Some(piece) = entry.single_piece().filter(|p| p.len > 0)
        {
            let within = piece.source.within().filter(|_| gathered);
            let (from, len) = within.map_or((piece.offset, piece.len), |w| (w.offset, w.len));
            self.spans.add(storage, (from, from.saturating_add(len)), piece.len);
        }
        if !self.checked.insert(storage.to_owned()) {
            entry.pieces.iter_mut().for_each(|piece| piece.check = None);
        }
        match first {
            Some(first) => {
                self.objects.entry(id).or_insert_with(|| first.clone());
                entry.attributes.insert(ALIAS_OF.to_owned(), Value::Text(first));
            }
            None => {
                self.objects.insert(id, text);
            }
        }
        checkpoint.tensors.push(entry);
    }

    /// Keeps a plain value.
    pub(super) fn keep(&mut self, key: String, value: Value) {
        self.kept.push((key, value));
    }

    /// Marks the tensors that overlap another one, and brings the plain values in.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `torch-repeated`, where they overlap without measure.
    pub(super) fn finish(&mut self, checkpoint: &mut Checkpoint, limits: &Limits) -> Result<()> {
        std::mem::take(&mut self.spans).check("torch-repeated", limits)?;
        self.ranges.sort();
        let mut last: Option<&(String, u64, u64, usize)> = None;
        for range in &self.ranges {
            if let Some(before) = last.filter(|b| b.0 == range.0 && range.1 < b.2) {
                // The same bytes by another name are said to be that; in another shape or order they are a view as well.
                let again =
                    checkpoint.tensors.get(range.3).is_some_and(|e| e.attributes.contains_key(ALIAS_OF));
                if (before.1, before.2) != (range.1, range.2) || !again {
                    for place in [before.3, range.3] {
                        if let Some(entry) = checkpoint.tensors.get_mut(place) {
                            entry.attributes.insert(STORAGE.to_owned(), Value::Text(range.0.clone()));
                        }
                    }
                }
                if range.2 <= before.2 {
                    continue;
                }
            }
            last = Some(range);
        }
        let (mut metadata, mut alike) = (Metadata::default(), 0u64);
        for (key, value) in std::mem::take(&mut self.kept) {
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
        Ok(())
    }

    /// Makes the name the only one of its kind: keys with dots can look like keys within keys.
    fn distinguish(&mut self, checkpoint: &mut Checkpoint, entry: &mut TensorEntry) {
        if self.texts.insert(entry.text()) {
            return;
        }
        let mut parts = entry.path.parts().to_vec();
        let last = parts.pop().map(|last| last.to_text()).unwrap_or_default();
        // From where the last of this name was found: what was taken then is taken still.
        let taken = self.texts.len();
        let count = self.free.entry(entry.text()).or_default();
        *count = taken.max(*count);
        loop {
            let mut parts = parts.clone();
            parts.push(Name::from(format!("{last}~{count}").as_str()));
            *count += 1;
            entry.path = TensorPath::new(parts);
            if self.texts.insert(entry.text()) {
                break;
            }
        }
        let text = format!("two tensors would be called alike; one is called {} instead", entry.name());
        checkpoint.notes.push(Note::new("name-collision", text));
    }
}
