//! Stack, memo and objects of the machine.

use super::memory::capacity_bytes;
use super::{Machine, SMALL_INTS, underflow, wrong_target};
use crate::graph::{Blob, Location, Object, ObjectId, ReduceKind, Reduced, Text};
use crate::opened::GlobalUse;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Severity;
use weighbridge_core::limits::Limits;

/// Maximum distance of a memo index beyond the offset of its opcode. Picklers number the memoized objects, and each object takes
/// at least a byte. This holds also after `pickletools.optimize`, which removes unused entries, and for consecutive pickles
/// of one pickler. Python's unpickler allocates an array of up to twice the highest index.
const MAX_MEMO_GAP: u64 = 1 << 14;

/// Word and bit of the object in a bit set.
fn bit_of(id: ObjectId) -> (usize, u64) {
    (id.index() / 64, 1 << (id.index() % 64))
}

impl Machine<'_> {
    pub(super) fn make(&mut self, object: Object) -> Result<ObjectId> {
        let count = self.graph.objects.len();
        Limits::check("objects", "pickle_objects", count as u64 + 1, self.options.limits.pickle_objects)?;
        let id = u32::try_from(count)
            .map(ObjectId)
            .map_err(|_| Error::limit("pickle-objects", "the pickle has 2^32 objects or more"))?;
        self.take_object(&object)?;
        self.graph.objects.push(object);
        Ok(id)
    }

    pub(super) fn push(&mut self, object: Object) -> Result<()> {
        let id = self.make(object)?;
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn push_int(&mut self, n: i64) -> Result<()> {
        let Some(slot) = usize::try_from(n).ok().filter(|&n| n < SMALL_INTS) else {
            return self.push(Object::Int(n));
        };
        let id = match self.small_ints.get(slot).copied().flatten() {
            Some(id) => id,
            None => self.make(Object::Int(n))?,
        };
        if let Some(known) = self.small_ints.get_mut(slot) {
            *known = Some(id);
        }
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn push_blob(&mut self, blob: Blob, object: fn(Box<Blob>) -> Object) -> Result<()> {
        self.count_text(blob.short.as_ref().map_or(0, |b| b.len()))?;
        self.push(object(Box::new(blob)))
    }

    pub(super) fn text(&mut self, text: Text) -> Result<ObjectId> {
        self.count_text(text.short.as_ref().map_or(0, |t| t.len()))?;
        self.make(Object::Text(Box::new(text)))
    }

    pub(super) fn count_text(&mut self, len: usize) -> Result<()> {
        self.text_bytes += len as u64;
        Limits::check("bytes of text", "header_bytes", self.text_bytes, self.options.limits.header_bytes)
    }

    /// Text object of a module or name; one object for equal names.
    pub(super) fn name(&mut self, name: Box<str>) -> Result<ObjectId> {
        if let Some(&id) = self.names.get(&name) {
            return Ok(id);
        }
        let id = self.text(Text { short: Some(name.clone()), place: Location::Memory })?;
        self.take_name(&name)?;
        self.names.insert(name, id);
        Ok(id)
    }

    pub(super) fn global(
        &mut self,
        module: Box<str>,
        name: Box<str>,
        at: u64,
        opcode: &'static str,
    ) -> Result<ObjectId> {
        let (module, name) = (self.name(module)?, self.name(name)?);
        self.take_global()?;
        let object = self.make(Object::Global { module, name })?;
        self.globals.push(GlobalUse { object, offset: at, opcode });
        Ok(object)
    }

    pub(super) fn stack_global(&mut self, offset: u64) -> Result<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        for part in [module, name] {
            // Python reads the strings of Python 2 as text.
            if !matches!(self.graph.object(part), Object::Text(_) | Object::ByteString(_)) {
                let text = "imports an object whose name could not be resolved";
                self.note(Severity::Unchecked, "unfollowed-import", offset, text);
                return Err(Error::corrupt("pickle-global", "a module or name to import is not text"));
            }
        }
        self.take_global()?;
        let object = self.make(Object::Global { module, name })?;
        self.globals.push(GlobalUse { object, offset, opcode: "STACK_GLOBAL" });
        self.stack.push(object);
        Ok(())
    }

    pub(super) fn instance(&mut self, class: ObjectId, args: Vec<ObjectId>, offset: u64) -> Result<()> {
        let args = self.make_tuple(args)?;
        self.push(Object::Reduced(Box::new(Reduced::new(ReduceKind::Instance, class, args, offset))))
    }

    pub(super) fn make_tuple(&mut self, items: Vec<ObjectId>) -> Result<ObjectId> {
        if items.is_empty() {
            return Ok(ObjectId::EMPTY_TUPLE);
        }
        self.make(Object::Tuple(items.into()))
    }

    pub(super) fn push_tuple(&mut self, items: Vec<ObjectId>) -> Result<()> {
        let id = self.make_tuple(items)?;
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn tuple_of(&mut self, count: usize) -> Result<()> {
        let height =
            self.stack.len().checked_sub(count).filter(|&h| h >= self.fence()).ok_or_else(underflow)?;
        let items = self.stack.split_off(height);
        self.push_tuple(items)
    }

    /// Stack height of the last mark: ordinary opcodes must not reach below it.
    pub(super) fn fence(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn top(&self) -> Result<ObjectId> {
        let top = self.stack.last().copied().filter(|_| self.stack.len() > self.fence());
        top.ok_or_else(underflow)
    }

    pub(super) fn pop(&mut self) -> Result<ObjectId> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    pub(super) fn pop_mark(&mut self) -> Result<Vec<ObjectId>> {
        let height = self.marks.pop().ok_or_else(|| {
            Error::corrupt("pickle-mark", "the opcode needs a mark, but the stack has none")
        })?;
        Ok(self.stack.split_off(height))
    }

    pub(super) fn top_object(&mut self) -> Result<&mut Object> {
        let top = self.top()?;
        self.graph.objects.get_mut(top.index()).ok_or_else(underflow)
    }

    /// Changes the object on top of the stack, and counts its growth.
    pub(super) fn grow(&mut self, change: impl FnOnce(&mut Object) -> Result<()>) -> Result<()> {
        let top = self.top_object()?;
        let before = capacity_bytes(top);
        change(top)?;
        let grown = capacity_bytes(top).saturating_sub(before);
        self.take_growth(grown)?;
        self.changed()
    }

    /// Records a change of the object on top, if another object may refer to it.
    fn changed(&mut self) -> Result<()> {
        let top = self.top()?;
        let (word, bit) = bit_of(top);
        if self.fetched.get(word).is_some_and(|bits| bits & bit != 0)
            && self.graph.changes.insert(top, self.at).is_none()
        {
            self.take_change()?;
        }
        Ok(())
    }

    /// Records that an object may have a second user from here on. Immutable objects are not recorded.
    pub(super) fn fetched(&mut self, id: ObjectId) -> Result<()> {
        if !matches!(
            self.graph.object(id),
            Object::List(_) | Object::Dict(_) | Object::Set(_) | Object::Reduced(_)
        ) {
            return Ok(());
        }
        let (word, bit) = bit_of(id);
        if word >= self.fetched.len() {
            let before = self.fetched.len();
            self.fetched.resize(word + 1, 0);
            self.take_bits((self.fetched.len() - before) * size_of::<u64>())?;
        }
        if let Some(bits) = self.fetched.get_mut(word) {
            *bits |= bit;
        }
        Ok(())
    }

    pub(super) fn append(&mut self, items: &[ObjectId]) -> Result<()> {
        self.grow(|target| {
            match target {
                Object::List(list) => list.extend_from_slice(items),
                Object::Reduced(made) => made.items.extend_from_slice(items),
                _ => return Err(wrong_target("a list")),
            }
            Ok(())
        })
    }

    pub(super) fn set_items(&mut self, pairs: &[(ObjectId, ObjectId)]) -> Result<()> {
        self.grow(|target| {
            match target {
                Object::Dict(dict) => dict.extend_from_slice(pairs),
                Object::Reduced(made) => made.pairs.extend_from_slice(pairs),
                _ => return Err(wrong_target("a dict")),
            }
            Ok(())
        })
    }

    pub(super) fn recall(&self, place: u64) -> Option<ObjectId> {
        let near = usize::try_from(place).ok().and_then(|place| self.memo.get(place));
        near.or_else(|| self.far.get(&place)).copied()
    }

    /// Puts the top of the stack into the memo. Gaps between indices take no memory.
    pub(super) fn memorise(&mut self, place: u64, offset: u64) -> Result<()> {
        let top = self.top()?;
        if place > offset.saturating_add(MAX_MEMO_GAP) && !self.too_far {
            self.too_far = true;
            self.note(
                Severity::Error,
                "memo-far",
                offset,
                "the memo index is far beyond the number of objects: Python allocates a memo of that size",
            );
        }
        if self.recall(place).is_some_and(|before| before != top) {
            self.note(Severity::Note, "memo-again", offset, "a memo index is used for two objects");
        }
        match usize::try_from(place) {
            Ok(near) if near < self.memo.len() => self.memo[near] = top,
            Ok(near) if near == self.memo.len() && !self.far.contains_key(&place) => {
                self.take_place(true)?;
                self.memo.push(top);
            }
            _ => {
                self.take_place(false)?;
                self.far.insert(place, top);
            }
        }
        Ok(())
    }
}
