//! A pickle that is cut short: the pairs of its outermost dict that are whole.
//!
//! A dict is made empty, then a mark is set, keys and values are put on the stack, and all pairs since
//! the mark are set at once, up to a thousand. So where the file ends, the last pairs wait on the stack:
//! one is whole when the key of the next one stands behind it.

use super::super::decode::Opcodes;
use super::super::graph::{Object, ObjectId};
use super::super::opened::{Options, Pickle};
use super::{Machine, read};
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::SourceRef;

/// Longer keys, and those with control characters, are none that a framework writes: the pickle was
/// damaged before.
const LONGEST_KEY: usize = 1 << 10;

/// What a pickle says up to where it is cut.
#[derive(Debug)]
pub struct Cut {
    /// The objects; the root has the pairs that are whole.
    pub pickle: Pickle,
    /// Why there is no more; `None` where the pickle is whole.
    pub error: Option<Error>,
    /// The key whose value is not whole.
    pub key: Option<String>,
}

/// As [`read`](super::read), of a pickle that may be cut short.
///
/// # Errors
/// As [`read`](super::read), where something else is wrong than the end: then what was read before it is
/// not certain. Also where the outermost object is no dict.
pub fn read_cut(source: &SourceRef, offset: u64, options: &Options) -> Result<Cut> {
    let mut machine = Machine::new(source, offset, options);
    machine.cut = true;
    let mut opcodes = Opcodes::new(source, offset);
    let error = match machine.run(&mut opcodes) {
        // Once more, with all that is held against a whole one.
        Ok(()) => {
            drop(machine);
            return Ok(Cut { pickle: read(source, offset, options)?, error: None, key: None });
        }
        Err(error) => error.in_file(source.label()),
    };
    if error.code() != ErrorCode::Truncated {
        return Err(error);
    }
    match machine.take_pairs() {
        Some(key) => {
            let pickle = machine.finish(opcodes.position());
            Ok(Cut { pickle, error: Some(error), key })
        }
        None => Err(error),
    }
}

impl Machine<'_> {
    /// Sets the pairs that are whole in the outermost dict, which becomes the root; gives the key whose
    /// value is not whole. `None` where there is no such dict.
    fn take_pairs(&mut self) -> Option<Option<String>> {
        let root = *self.stack.first()?;
        let (mut pairs, mut key) = (Vec::new(), None);
        if self.marks.first() == Some(&1) {
            let end = self.marks.get(1).copied().unwrap_or(self.stack.len());
            let items = self.stack.get(1..end)?.to_vec();
            let mut rest = items.as_slice();
            while let [name, value, next, ..] = *rest {
                let unfinished = matches!(self.graph.object(value), Object::Global { .. });
                if unfinished || !self.is_key(name) || !self.is_key(next) {
                    break;
                }
                pairs.push((name, value));
                rest = rest.get(2..)?;
            }
            key = rest.first().and_then(|&name| self.graph.text(name)).map(str::to_owned);
        }
        match self.graph.objects.get_mut(root.index())? {
            Object::Dict(dict) => dict.extend(pairs),
            Object::Reduced(made) => made.pairs.extend(pairs),
            _ => return None,
        }
        self.root = root;
        Some(key)
    }

    fn is_key(&self, id: ObjectId) -> bool {
        let sane = |text: &str| text.len() <= LONGEST_KEY && !text.chars().any(char::is_control);
        self.graph.text(id).is_some_and(sane)
    }
}
