//! Truncated pickles: the complete pairs of the outermost dict.
//!
//! A pickle makes an empty dict, sets a mark, pushes keys and values, and then sets all pairs since
//! the mark at once, up to a thousand. In a truncated file the last pairs are still on the stack: a
//! pair is complete if the key of the next one follows it.

use super::super::decode::Opcodes;
use super::super::graph::{Object, ObjectId};
use super::super::opened::{Options, Pickle};
use super::{Machine, read};
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::SourceRef;

/// Maximum length of a key. Frameworks write neither longer keys nor control characters: such a pickle
/// is also damaged before its end.
const MAX_KEY_LEN: usize = 1 << 10;

/// Content of a pickle up to the place where it is truncated.
#[derive(Debug)]
pub struct Cut {
    /// The objects; the root holds the complete pairs.
    pub pickle: Pickle,
    /// The error at the end; `None` for a complete pickle.
    pub error: Option<Error>,
    /// The key of the incomplete value.
    pub key: Option<String>,
}

/// Same as [`read`](super::read) for a pickle that may be truncated.
///
/// # Errors
/// Same as [`read`](super::read) for any fault other than truncation, since the data before such a fault
/// is unreliable. Also if the outermost object is not a dict.
pub fn read_cut(source: &SourceRef, offset: u64, options: &Options) -> Result<Cut> {
    let mut machine = Machine::new(source, offset, options);
    machine.cut = true;
    let mut opcodes = Opcodes::new(source, offset);
    let error = match machine.run(&mut opcodes) {
        // A complete pickle is read again with all checks.
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
    /// Sets the complete pairs in the outermost dict, which becomes the root. Returns the key of the incomplete value, or
    /// `None` without such a dict.
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
        let sane = |text: &str| text.len() <= MAX_KEY_LEN && !text.chars().any(char::is_control);
        self.graph.text(id).is_some_and(sane)
    }
}
