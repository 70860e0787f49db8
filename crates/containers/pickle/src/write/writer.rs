//! Order of the opcodes in a pickle: follows CPython's `_pickle.c`, without its recursion.

mod imports;
mod strings;

use super::super::graph::{Graph, Location, Object, ObjectId, ReduceKind, Reduced};
use super::output::Output;
use super::{Part, opcode as op, unsupported};
use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};

/// Maximum number of items between a mark and the opcode that takes them.
const BATCH: usize = 1000;
/// Marks an object without a memo index.
const NOT_YET: u32 = u32::MAX;

/// A pending task of the writer; the last one is next.
#[derive(Debug, Clone, Copy)]
enum Task {
    Save(ObjectId),
    Emit(u8),
    /// Puts an object that was just written into the memo.
    Put(ObjectId),
    /// Puts a temporary object of the pickler into the memo.
    PutTemporary,
    /// Ends a tuple or frozen set after its items.
    End(ObjectId),
    /// Continues with the result of a call: items, pairs, state.
    Called(ObjectId),
    /// Writes batches from an index on.
    Batch(ObjectId, Batch, usize),
}

/// Kind of batch. CPython batches built-in containers differently from the items and pairs of other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batch {
    List,
    Dict,
    Set,
    Items,
    Pairs,
}

/// Temporary objects of the pickler, which the graph does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Special {
    Global(&'static str, &'static str),
    Name(Box<str>),
    Latin1,
    Char(u8),
}

pub(super) struct Writer<'a> {
    graph: &'a Graph,
    protocol: u8,
    latin1_len: &'a mut dyn FnMut(&Location) -> Result<u64>,
    out: Output,
    tasks: Vec<Task>,
    memo: Vec<u32>,
    special: HashMap<Special, u32>,
    memorised: u32,
    steps_left: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        protocol: u8,
        latin1_len: &'a mut dyn FnMut(&Location) -> Result<u64>,
    ) -> Self {
        let edges = |object: &Object| match object {
            Object::List(items) | Object::Set(items) => items.len(),
            Object::Tuple(items) | Object::FrozenSet(items) => items.len(),
            Object::Dict(pairs) => 2 * pairs.len(),
            Object::Reduced(made) => 4 + made.items.len() + 2 * made.pairs.len() + made.states.len(),
            _ => 1,
        };
        let all: u64 = graph.iter().map(|(_, object)| 1 + edges(object) as u64).sum();
        Self {
            graph,
            protocol,
            latin1_len,
            out: Output::default(),
            tasks: Vec::new(),
            memo: vec![NOT_YET; graph.len()],
            special: HashMap::new(),
            memorised: 0,
            // Each edge is walked once, except for tuples that contain themselves; only crafted graphs have many.
            steps_left: all.saturating_mul(16).saturating_add(16),
        }
    }

    pub(super) fn run(mut self, root: ObjectId) -> Result<Vec<Part>> {
        self.out.bytes(&[op::PROTO, self.protocol]);
        self.out.framing = self.protocol >= 4;
        self.tasks.push(Task::Save(root));
        while let Some(task) = self.tasks.pop() {
            self.steps_left = self.steps_left.checked_sub(1).ok_or_else(|| {
                Error::limit("pickle-write", "the objects contain too many nested cycles to write")
            })?;
            match task {
                Task::Save(id) => self.save(id)?,
                Task::Emit(code) => self.out.bytes(&[code]),
                Task::Put(id) => self.put(id)?,
                Task::PutTemporary => {
                    self.next_place()?;
                }
                Task::End(id) => self.end(id)?,
                Task::Called(id) => self.called(id)?,
                Task::Batch(id, batch, at) => self.batch(id, batch, at),
            }
        }
        self.out.bytes(&[op::STOP]);
        Ok(self.out.finish())
    }

    /// Schedules `tasks` next, in the given order.
    fn then(&mut self, tasks: &[Task]) {
        self.tasks.extend(tasks.iter().rev());
    }

    fn save(&mut self, id: ObjectId) -> Result<()> {
        self.out.boundary();
        let graph = self.graph;
        match graph.object(id) {
            Object::None => self.out.bytes(&[op::NONE]),
            Object::Bool(true) => self.out.bytes(&[op::NEWTRUE]),
            Object::Bool(false) => self.out.bytes(&[op::NEWFALSE]),
            Object::Int(n) => self.int(*n)?,
            Object::BigInt(bytes) => self.long(bytes)?,
            Object::Float(x) => {
                self.out.bytes(&[op::BINFLOAT]);
                self.out.bytes(&x.to_be_bytes());
            }
            object => match self.place(id) {
                Some(place) => self.get(place),
                None => self.compound(id, object)?,
            },
        }
        Ok(())
    }

    /// Saves an object that goes into the memo and was not saved yet.
    fn compound(&mut self, id: ObjectId, object: &'a Object) -> Result<()> {
        use Task::{Called, Emit, End, Save};
        match object {
            Object::Text(text) => {
                self.text(text)?;
                self.put(id)?;
            }
            Object::ByteString(text) => {
                self.byte_string(text)?;
                self.put(id)?;
            }
            Object::Bytes(blob) => {
                self.blob(blob)?;
                self.put(id)?;
            }
            Object::ByteArray(blob) => {
                self.special_global("builtins", "bytearray")?;
                if blob.is_empty() {
                    self.out.bytes(&[op::EMPTY_TUPLE]);
                } else {
                    self.blob(blob)?;
                    self.next_place()?;
                    self.out.bytes(&[op::TUPLE1]);
                    self.next_place()?;
                }
                self.out.bytes(&[op::REDUCE]);
                self.put(id)?;
            }
            Object::List(items) => {
                self.out.bytes(&[op::EMPTY_LIST]);
                self.put(id)?;
                self.batches(id, Batch::List, items.len());
            }
            Object::Dict(pairs) => {
                self.out.bytes(&[op::EMPTY_DICT]);
                self.put(id)?;
                self.batches(id, Batch::Dict, pairs.len());
            }
            Object::Set(items) if self.protocol >= 4 => {
                self.out.bytes(&[op::EMPTY_SET]);
                self.put(id)?;
                self.batches(id, Batch::Set, items.len());
            }
            Object::Set(items) => self.set_by_call(id, "set", items.len())?,
            Object::FrozenSet(items) if self.protocol < 4 => {
                self.set_by_call(id, "frozenset", items.len())?
            }
            Object::FrozenSet(items) => {
                self.out.bytes(&[op::MARK]);
                self.tasks.push(End(id));
                self.tasks.extend(items.iter().rev().map(|&item| Save(item)));
            }
            Object::Tuple(items) if items.is_empty() => self.out.bytes(&[op::EMPTY_TUPLE]),
            Object::Tuple(items) => {
                if items.len() > 3 {
                    self.out.bytes(&[op::MARK]);
                }
                self.tasks.push(End(id));
                self.tasks.extend(items.iter().rev().map(|&item| Save(item)));
            }
            Object::Global { module, name } => self.global(id, *module, *name)?,
            Object::Reduced(made) => {
                let (instruction, kwargs) = match made.how {
                    ReduceKind::Reduce | ReduceKind::Instance => (op::REDUCE, None),
                    ReduceKind::NewObj => (op::NEWOBJ, None),
                    ReduceKind::NewObjEx if self.protocol >= 4 => (op::NEWOBJ_EX, made.kwargs),
                    ReduceKind::NewObjEx => return Err(unsupported("keyword arguments need protocol 4")),
                };
                self.then(&[Emit(instruction), Called(id)]);
                self.tasks.extend(kwargs.map(Save));
                self.then(&[Save(made.callable), Save(made.args)]);
            }
            Object::PersistentId(pid) => self.then(&[Save(*pid), Emit(op::BINPERSID)]),
            Object::Extension(code) => self.extension(*code)?,
            Object::Buffer => return Err(unsupported("out-of-band buffers need protocol 5")),
            // Written in `save`, and never memoized.
            Object::None | Object::Bool(_) | Object::Int(_) | Object::BigInt(_) | Object::Float(_) => {}
        }
        Ok(())
    }

    /// Writes a set as a call with a list, for protocols before 4.
    fn set_by_call(&mut self, id: ObjectId, name: &'static str, len: usize) -> Result<()> {
        self.special_global("builtins", name)?;
        self.out.bytes(&[op::EMPTY_LIST]);
        self.next_place()?;
        self.then(&[Task::Emit(op::TUPLE1), Task::PutTemporary, Task::Emit(op::REDUCE), Task::Put(id)]);
        self.batches(id, Batch::List, len);
        Ok(())
    }

    /// Ends a tuple or frozen set. If it is in the memo already, it contains itself: the items on the
    /// stack are discarded, and the memo entry is fetched.
    fn end(&mut self, id: ObjectId) -> Result<()> {
        let (len, instruction) = match self.graph.object(id) {
            Object::Tuple(items) => (items.len(), op::TUPLE),
            Object::FrozenSet(items) => (items.len().max(4), op::FROZENSET),
            _ => return Ok(()),
        };
        if let Some(place) = self.place(id) {
            match len {
                0..=3 => self.out.bytes(&[op::POP, op::POP, op::POP][..len]),
                _ => self.out.bytes(&[op::POP_MARK]),
            }
            self.get(place);
            return Ok(());
        }
        self.out.bytes(&[match len {
            1 => op::TUPLE1,
            2 => op::TUPLE2,
            3 => op::TUPLE3,
            _ => instruction,
        }]);
        self.put(id)
    }

    fn called(&mut self, id: ObjectId) -> Result<()> {
        let Object::Reduced(made) = self.graph.object(id) else { return Ok(()) };
        if let Some(place) = self.place(id) {
            self.out.bytes(&[op::POP]);
            self.get(place);
            return Ok(());
        }
        self.put(id)?;
        let Reduced { items, pairs, states, .. } = &**made;
        for &state in states.iter().rev() {
            self.then(&[Task::Save(state), Task::Emit(op::BUILD)]);
        }
        self.batches(id, Batch::Pairs, pairs.len());
        self.batches(id, Batch::Items, items.len());
        Ok(())
    }

    fn batches(&mut self, id: ObjectId, batch: Batch, len: usize) {
        if len > 0 {
            self.tasks.push(Task::Batch(id, batch, 0));
        }
    }

    /// Writes the batch that begins at `at`, and schedules the next one.
    fn batch(&mut self, id: ObjectId, batch: Batch, at: usize) {
        use Task::{Emit, Save};
        let graph = self.graph;
        let (items, pairs): (&[ObjectId], &[(ObjectId, ObjectId)]) = match (graph.object(id), batch) {
            (Object::List(items) | Object::Set(items), _) => (items, &[]),
            (Object::FrozenSet(items), _) => (items, &[]),
            (Object::Dict(pairs), _) => (&[], pairs),
            (Object::Reduced(made), Batch::Items) => (&made.items, &[]),
            (Object::Reduced(made), _) => (&[], &made.pairs),
            _ => return,
        };
        let len = items.len().max(pairs.len());
        let end = len.min(at.saturating_add(BATCH));
        let count = end.saturating_sub(at);
        let (one, many) = match batch {
            Batch::List | Batch::Items => (op::APPEND, op::APPENDS),
            Batch::Dict | Batch::Pairs => (op::SETITEM, op::SETITEMS),
            Batch::Set => (op::ADDITEMS, op::ADDITEMS),
        };
        // A list or dict of one item has no mark; for other objects, a last batch of one item has none.
        let single = match batch {
            Batch::List | Batch::Dict => len == 1,
            Batch::Items | Batch::Pairs => count == 1,
            Batch::Set => false,
        };
        // CPython writes an empty batch after a dict or set of exactly 1000 items.
        let more = match batch {
            Batch::List | Batch::Items | Batch::Pairs => end < len,
            Batch::Dict | Batch::Set => count == BATCH,
        };
        if more {
            self.tasks.push(Task::Batch(id, batch, end));
        }
        if !single {
            self.out.bytes(&[op::MARK]);
        }
        self.tasks.push(Emit(if single { one } else { many }));
        let items = items.get(at..end).unwrap_or_default();
        self.tasks.extend(items.iter().rev().map(|&item| Save(item)));
        let pairs = pairs.get(at..end).unwrap_or_default();
        self.tasks.extend(pairs.iter().rev().flat_map(|&(key, value)| [Save(value), Save(key)]));
    }

    fn place(&self, id: ObjectId) -> Option<u32> {
        self.memo.get(id.index()).copied().filter(|&place| place != NOT_YET)
    }

    fn get(&mut self, place: u32) {
        match u8::try_from(place) {
            Ok(place) => self.out.bytes(&[op::BINGET, place]),
            Err(_) => {
                self.out.bytes(&[op::LONG_BINGET]);
                self.out.bytes(&place.to_le_bytes());
            }
        }
    }

    fn put(&mut self, id: ObjectId) -> Result<()> {
        let place = self.next_place()?;
        if let Some(slot) = self.memo.get_mut(id.index()) {
            *slot = place;
        }
        Ok(())
    }

    /// Puts the top of the stack into the memo at the next index.
    fn next_place(&mut self) -> Result<u32> {
        let place = self.memorised;
        self.memorised =
            place.checked_add(1).filter(|&n| n != NOT_YET).ok_or_else(|| unsupported("the memo is full"))?;
        match u8::try_from(place) {
            _ if self.protocol >= 4 => self.out.bytes(&[op::MEMOIZE]),
            Ok(place) => self.out.bytes(&[op::BINPUT, place]),
            Err(_) => {
                self.out.bytes(&[op::LONG_BINPUT]);
                self.out.bytes(&place.to_le_bytes());
            }
        }
        Ok(place)
    }
}
