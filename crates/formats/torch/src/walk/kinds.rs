//! Skipped objects by kind.

use std::collections::{BTreeMap, HashMap};
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::text::counted;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::Saved;

/// Maximum number of named kinds; objects of more kinds are counted together.
const MAX_NAMED: usize = 100;
/// Maximum number of distinguished imports; a name can be imported many times.
const MAX_IMPORTS: usize = 10_000;

/// Kinds of objects with their counts.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    named: BTreeMap<String, u64>,
    /// Counts by import, to avoid copying its name each time; true for the class itself.
    classes: HashMap<(ObjectId, bool), u64>,
    others: u64,
}

impl Kinds {
    /// Counts an object of a kind.
    pub(super) fn count(&mut self, kind: &str) {
        self.add(kind, 1);
    }

    /// Counts an object of a class, or the class `itself`.
    pub(super) fn count_class(&mut self, class: ObjectId, itself: bool) {
        if self.classes.len() < MAX_IMPORTS || self.classes.contains_key(&(class, itself)) {
            *self.classes.entry((class, itself)).or_default() += 1;
        } else {
            self.others += 1;
        }
    }

    fn add(&mut self, kind: &str, count: u64) {
        if self.named.len() < MAX_NAMED || self.named.contains_key(kind) {
            *self.named.entry(kind.to_owned()).or_default() += count;
        } else {
            self.others += count;
        }
    }

    /// Adds a note for each kind; `outcome` states the handling of its objects.
    pub(super) fn add_notes(
        mut self,
        saved: &Saved,
        code: &'static str,
        outcome: &str,
        checkpoint: &mut Checkpoint,
    ) {
        let mut classes: Vec<_> = std::mem::take(&mut self.classes).into_iter().collect();
        // In the order of the pickle.
        classes.sort_unstable_by_key(|&((class, itself), _)| (class.index(), itself));
        for ((class, itself), count) in classes {
            match (saved.class(class), itself) {
                (Some((module, name)), true) => self.add(&format!("class `{module}.{name}`"), count),
                (Some((module, name)), false) => self.add(&format!("object of `{module}.{name}`"), count),
                (None, _) => self.add("object of an unnamed class", count),
            }
        }
        for (name, count) in self.named {
            let count = if count == 1 { String::new() } else { format!(" ({count} times)") };
            checkpoint.notes.push(Note::omission(code, format!("{name}{count}{outcome}")));
        }
        if self.others > 0 {
            let text = format!("{} of other kinds{outcome}", counted(self.others, "object", "objects"));
            checkpoint.notes.push(Note::omission(code, text));
        }
    }
}
