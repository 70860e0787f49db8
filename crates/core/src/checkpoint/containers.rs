//! What tensors and values stand in, where their names do not say it: `[a, b]`, `(a, b)`, `{0: a, 1: b}` and
//! `{"0": a, "1": b}` all call them `0` and `1`.

use std::fmt;
use std::sync::Arc;

/// Containers that are told at most, and the bytes of their names and kinds: what has more is told in part.
const MOST: usize = 4096;
const MOST_BYTES: usize = 1 << 20;
/// Bytes that one takes besides its texts.
const EACH: usize = 96;

/// The kind of a container, as Python tells them apart: what it holds for equal, such as a dict and an ordered one, is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Container {
    /// A list.
    List,
    /// A tuple.
    Tuple,
    /// A set.
    Set,
    /// A dict whose keys are numbers.
    Numbers,
    /// A dict whose keys are numbers and texts.
    Mixed,
    /// An object of that class.
    Class(Box<str>),
    /// None: the tensor is all that the file holds.
    Bare,
    /// None: what is no text, but is told as one. A name that would be imported, such as `torch.float32`.
    Import,
    /// None, and told as a text: a device of torch.
    Device,
}

impl Container {
    /// What stands in the place of it where a side tells no container.
    pub fn usual(&self) -> &'static str {
        if matches!(self, Self::Import | Self::Device) { "text" } else { "dict" }
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Tuple => "tuple",
            Self::Set => "set",
            Self::Numbers => "dict with numbers as keys",
            Self::Mixed => "dict with numbers and texts as keys",
            Self::Class(name) => name,
            Self::Bare => "nothing around it",
            Self::Import => "an imported name",
            Self::Device => "torch.device",
        })
    }
}

/// The containers of a checkpoint that was read from a pickle. Dicts whose keys are text are not among them.
#[derive(Debug, Clone, Default)]
pub struct Containers {
    of_tensors: Vec<(String, Container)>,
    dotted: Vec<String>,
    of_values: Vec<(Arc<str>, String, Container)>,
    bytes: usize,
    more: bool,
    elsewhere: bool,
}

impl Containers {
    /// Those that lead to tensors, by the displayed name that leads to them; that of the root is empty.
    pub fn of_tensors(&self) -> impl Iterator<Item = (&str, &Container)> {
        self.of_tensors.iter().map(|(name, kind)| (name.as_str(), kind))
    }

    /// The displayed names of dicts some of whose keys hold dots: a name below one may have fewer containers than parts.
    pub fn dotted(&self) -> impl Iterator<Item = &str> {
        self.dotted.iter().map(String::as_str)
    }

    /// Those within metadata: the key, and the keys that lead on from there, with slashes between them.
    pub fn of_values(&self) -> impl Iterator<Item = (&str, &str, &Container)> {
        self.of_values.iter().map(|(key, within, kind)| (&**key, within.as_str(), kind))
    }

    /// True where there are more than are told.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// True where metadata were said elsewhere than in the pickle, so that their containers are not known.
    pub fn values_are_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Notes that metadata were said elsewhere.
    pub fn set_elsewhere(&mut self) {
        self.elsewhere = true;
    }

    /// Notes that there are more than are told.
    pub fn set_more(&mut self) {
        self.more = true;
    }

    /// Bytes of memory that all of them take, about.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Adds a container that leads to tensors.
    pub fn add(&mut self, name: impl FnOnce() -> String, kind: Container) {
        if self.more {
            return;
        }
        let name = name();
        if self.has_room(name.len(), &kind) {
            self.of_tensors.push((name, kind));
        }
    }

    /// Adds a dict some of whose keys hold dots.
    pub fn add_dotted(&mut self, name: impl FnOnce() -> String) {
        if self.more {
            return;
        }
        let name = name();
        if self.has_room(name.len(), &Container::List) {
            self.dotted.push(name);
        }
    }

    /// Adds a container of the value that is being read; its key is said by [`name_values`](Self::name_values).
    pub fn add_value(&mut self, within: impl FnOnce() -> String, kind: Container) {
        if self.more {
            return;
        }
        let within = within();
        if self.has_room(within.len(), &kind) {
            self.of_values.push((Arc::from(""), within, kind));
        }
    }

    /// Where the containers of the value that is read next will begin.
    pub fn next_value(&self) -> usize {
        self.of_values.len()
    }

    /// Forgets those from `first` on: their value is not kept.
    pub fn forget_values(&mut self, first: usize) {
        self.of_values.truncate(first);
    }

    /// Gives those from `first` on the key of their value.
    pub fn name_values(&mut self, first: usize, key: &str) {
        if self.of_values.len() <= first {
            return;
        }
        if !self.has_room(key.len(), &Container::List) {
            return self.forget_values(first);
        }
        let key: Arc<str> = Arc::from(key);
        for (own, ..) in self.of_values.iter_mut().skip(first) {
            *own = key.clone();
        }
    }

    /// Takes the room of one more.
    fn has_room(&mut self, len: usize, kind: &Container) -> bool {
        let class = if let Container::Class(name) = kind { name.len() } else { 0 };
        let bytes = self.bytes.saturating_add(EACH).saturating_add(len).saturating_add(class);
        let count = self.of_tensors.len() + self.dotted.len() + self.of_values.len();
        self.more = count >= MOST || bytes > MOST_BYTES;
        if !self.more {
            self.bytes = bytes;
        }
        !self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_told_and_no_more() {
        let mut containers = Containers::default();
        for i in 0..MOST {
            containers.add(|| i.to_string(), Container::List);
        }
        assert!(!containers.has_more());
        containers.add(|| "x".to_owned(), Container::List);
        assert!(containers.has_more());
        assert_eq!(containers.of_tensors().count(), MOST);
        // Nor long ones, for which no name is made once there is no room.
        let mut containers = Containers::default();
        containers.add(|| "x".repeat(MOST_BYTES), Container::List);
        containers.add(|| unreachable!(), Container::List);
        assert!(containers.has_more() && containers.of_tensors().count() == 0);
    }

    #[test]
    fn what_is_not_kept_is_forgotten() {
        let mut containers = Containers::default();
        let first = containers.next_value();
        containers.add_value(|| "0".to_owned(), Container::Tuple);
        containers.name_values(first, "key");
        let second = containers.next_value();
        containers.add_value(|| "1".to_owned(), Container::Set);
        containers.forget_values(second);
        containers.name_values(second, "other");
        assert_eq!(containers.of_values().collect::<Vec<_>>(), [("key", "0", &Container::Tuple)]);
    }
}
