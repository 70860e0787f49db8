//! What is not kept, by kind.

use std::collections::{BTreeMap, HashMap};
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::text::counted;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::Saved;

/// Kinds that are named; of more, the objects are counted together.
const NAMED: usize = 100;
/// Imports that are told apart, as a name can be imported many times.
const IMPORTS: usize = 10_000;

/// Kinds of objects, and how often each was met.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    named: BTreeMap<String, u64>,
    /// By the import, which costs a look rather than a copy of its name each time; true for the class itself.
    classes: HashMap<(ObjectId, bool), u64>,
    others: u64,
}

impl Kinds {
    /// One more of a kind.
    pub(super) fn count(&mut self, kind: &str) {
        self.add(kind, 1);
    }

    /// One more object of a class, or the class `itself`.
    pub(super) fn count_class(&mut self, class: ObjectId, itself: bool) {
        if self.classes.len() < IMPORTS || self.classes.contains_key(&(class, itself)) {
            *self.classes.entry((class, itself)).or_default() += 1;
        } else {
            self.others += 1;
        }
    }

    fn add(&mut self, kind: &str, count: u64) {
        if self.named.len() < NAMED || self.named.contains_key(kind) {
            *self.named.entry(kind.to_owned()).or_default() += count;
        } else {
            self.others += count;
        }
    }

    /// Notes all of them.
    pub(super) fn tell(mut self, saved: &Saved, code: &'static str, what: &str, checkpoint: &mut Checkpoint) {
        let mut classes: Vec<_> = std::mem::take(&mut self.classes).into_iter().collect();
        // In the order of the pickle.
        classes.sort_unstable_by_key(|&((class, itself), _)| (class.index(), itself));
        for ((class, itself), count) in classes {
            match (saved.class(class), itself) {
                (Some((module, name)), true) => self.add(&format!("the class {module}.{name}"), count),
                (Some((module, name)), false) => self.add(&format!("{module}.{name}"), count),
                (None, _) => self.add("a class without a name", count),
            }
        }
        for (name, count) in self.named {
            checkpoint
                .notes
                .push(Note::omission(code, format!("{} {name}: {what}", counted(count, "time", "times"))));
        }
        if self.others > 0 {
            let text = format!("and {} more of other kinds", self.others);
            checkpoint.notes.push(Note::omission(code, text));
        }
    }
}
