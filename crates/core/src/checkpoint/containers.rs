//! Python containers of tensors and values, which names do not distinguish: in `[a, b]`, `(a, b)`, `{0: a, 1: b}` and
//! `{"0": a, "1": b}`, both elements are named `0` and `1`.

use std::fmt;
use std::sync::Arc;

/// Maximum number of recorded containers, and bytes of their names and kinds. Further ones are not recorded.
const MAX_CONTAINERS: usize = 4096;
const MAX_BYTES: usize = 1 << 20;
/// Overhead of a container in bytes, besides its texts.
const OVERHEAD: usize = 96;

/// Kind of a container. Kinds that Python compares as equal, such as a dict and an ordered dict, are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Container {
    /// List.
    List,
    /// Tuple.
    Tuple,
    /// Set.
    Set,
    /// Dict with numeric keys.
    Numbers,
    /// Dict with numeric and string keys.
    Mixed,
    /// Object of that class.
    Class(Box<str>),
    /// No container: the file contains a single tensor.
    Bare,
    /// No container: an imported name, such as `torch.float32`, that is shown as a string.
    Import,
    /// No container: a device of torch that is shown as a string.
    Device,
}

impl Container {
    /// Returns the counterpart in a comparison, if the other side has no recorded container.
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
            Self::Numbers => "dict with numeric keys",
            Self::Mixed => "dict with numeric and string keys",
            Self::Class(name) => name,
            Self::Bare => "no container",
            Self::Import => "an imported name",
            Self::Device => "torch.device",
        })
    }
}

/// Containers of a checkpoint read from a pickle. Dicts with string keys are not recorded.
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
    /// Returns the containers of tensors with their display names; the name of the root is empty.
    pub fn of_tensors(&self) -> impl Iterator<Item = (&str, &Container)> {
        self.of_tensors.iter().map(|(name, kind)| (name.as_str(), kind))
    }

    /// Returns the display names of dicts with dots in some keys: a name below one may have fewer containers than parts.
    pub fn dotted(&self) -> impl Iterator<Item = &str> {
        self.dotted.iter().map(String::as_str)
    }

    /// Returns the containers within metadata: the key, and the nested keys joined by slashes.
    pub fn of_values(&self) -> impl Iterator<Item = (&str, &str, &Container)> {
        self.of_values.iter().map(|(key, within, kind)| (&**key, within.as_str(), kind))
    }

    /// Returns true if some containers were not recorded.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Returns true if metadata come from outside the pickle, so that their containers are unknown.
    pub fn values_are_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Records that metadata come from outside the pickle.
    pub fn set_elsewhere(&mut self) {
        self.elsewhere = true;
    }

    /// Records that some containers are not recorded.
    pub fn set_more(&mut self) {
        self.more = true;
    }

    /// Returns the approximate memory of all containers, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Adds a container of tensors.
    pub fn add(&mut self, name: impl FnOnce() -> String, kind: Container) {
        if self.more {
            return;
        }
        let name = name();
        if self.fits(name.len(), &kind) {
            self.of_tensors.push((name, kind));
        }
    }

    /// Adds a dict with dots in some keys.
    pub fn add_dotted(&mut self, name: impl FnOnce() -> String) {
        if self.more {
            return;
        }
        let name = name();
        if self.fits(name.len(), &Container::List) {
            self.dotted.push(name);
        }
    }

    /// Adds a container of the value being read; [`name_values`](Self::name_values) sets its key.
    pub fn add_value(&mut self, within: impl FnOnce() -> String, kind: Container) {
        if self.more {
            return;
        }
        let within = within();
        if self.fits(within.len(), &kind) {
            self.of_values.push((Arc::from(""), within, kind));
        }
    }

    /// Returns the index of the first container of the next value.
    pub fn next_value(&self) -> usize {
        self.of_values.len()
    }

    /// Removes the containers from index `first`: their value is not kept.
    pub fn forget_values(&mut self, first: usize) {
        self.of_values.truncate(first);
    }

    /// Sets the key of the containers from index `first`.
    pub fn name_values(&mut self, first: usize, key: &str) {
        if self.of_values.len() <= first {
            return;
        }
        if !self.fits(key.len(), &Container::List) {
            return self.forget_values(first);
        }
        let key: Arc<str> = Arc::from(key);
        for (own, ..) in self.of_values.iter_mut().skip(first) {
            *own = key.clone();
        }
    }

    /// Counts one more container; false if the limits are reached.
    fn fits(&mut self, len: usize, kind: &Container) -> bool {
        let class = if let Container::Class(name) = kind { name.len() } else { 0 };
        let bytes = self.bytes.saturating_add(OVERHEAD).saturating_add(len).saturating_add(class);
        let count = self.of_tensors.len() + self.dotted.len() + self.of_values.len();
        self.more = count >= MAX_CONTAINERS || bytes > MAX_BYTES;
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
    fn the_number_of_containers_is_limited() {
        let mut containers = Containers::default();
        for i in 0..MAX_CONTAINERS {
            containers.add(|| i.to_string(), Container::List);
        }
        assert!(!containers.has_more());
        containers.add(|| "x".to_owned(), Container::List);
        assert!(containers.has_more());
        assert_eq!(containers.of_tensors().count(), MAX_CONTAINERS);
        // Long names are limited too; none is built once the limit is reached.
        let mut containers = Containers::default();
        containers.add(|| "x".repeat(MAX_BYTES), Container::List);
        containers.add(|| unreachable!(), Container::List);
        assert!(containers.has_more() && containers.of_tensors().count() == 0);
    }

    #[test]
    fn removed_values_have_no_containers() {
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
