//! Names of the values of a graph.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Names in use. Changes since a mark can be undone: the body of a loop is built several times.
#[derive(Default)]
pub(super) struct Names<'a> {
    /// Names of the variables of the program.
    declared: HashSet<&'a str>,
    used: HashSet<Rc<str>>,
    counters: HashMap<Rc<str>, usize>,
    changes: Vec<Change>,
}

/// Change that can be undone.
enum Change {
    Added(Rc<str>),
    /// Counter before the change.
    Counted(Rc<str>, usize),
}

impl<'a> Names<'a> {
    /// Creates an empty set. Made names differ from those of declared variables.
    pub(super) fn new(declared: HashSet<&'a str>) -> Self {
        Self { declared, ..Self::default() }
    }

    /// Returns true if the name is in use.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    /// Adds a name. Returns false if it is in use.
    pub(super) fn insert(&mut self, name: impl Into<Rc<str>>) -> bool {
        let name: Rc<str> = name.into();
        let is_new = self.used.insert(name.clone());
        if is_new {
            self.changes.push(Change::Added(name));
        }
        is_new
    }

    /// Adds a name close to `base`. Returns it with the number of names that were tried.
    pub(super) fn unique(&mut self, base: &str) -> (String, usize) {
        if self.insert(base) {
            return (base.to_owned(), 1);
        }
        let before = self.counters.get(base).copied().unwrap_or(0);
        let mut count = before;
        loop {
            count += 1;
            let name = format!("{base}.{count}");
            if !self.declared.contains(name.as_str()) && self.insert(name.as_str()) {
                let base: Rc<str> = Rc::from(base);
                self.changes.push(Change::Counted(base.clone(), before));
                self.counters.insert(base, count);
                return (name, count - before);
            }
        }
    }

    /// Returns a mark for [`undo`](Self::undo).
    pub(super) fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Undoes the changes since the mark.
    pub(super) fn undo(&mut self, mark: usize) {
        for change in self.changes.drain(mark.min(self.changes.len())..).rev() {
            match change {
                Change::Added(name) => drop(self.used.remove(&name)),
                Change::Counted(base, before) => drop(self.counters.insert(base, before)),
            }
        }
    }
}
