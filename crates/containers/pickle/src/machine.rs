//! Stack machine: executes the opcodes without any import or call.

mod arrays;
mod cut;
mod memory;
mod stack;

use super::decode::{Arg, Op, Opcodes, unknown_opcode};
use super::graph::{Graph, Object, ObjectId, ReduceKind, Reduced};
use super::inspect::Notes;
use super::opcode as op;
use super::opened::{GlobalUse, JoblibArray, Options, Pickle};
use super::write::ModuleNames;
use std::collections::HashMap;
use weighbridge_core::HeldMemory;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Severity;
use weighbridge_io::source::SourceRef;

pub use cut::{Cut, read_cut};

/// Highest pickle protocol.
pub(super) const HIGHEST_PROTOCOL: u64 = 5;
/// Integers below this value are shared objects.
const SMALL_INTS: usize = 256;

/// Reads the pickle at `offset` of `source` up to its `STOP`.
///
/// Nothing is imported or called; bytes and long text are skipped. Other data may follow after
/// [`Pickle::end`].
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] if Python's machine would fail too, [`weighbridge_core::Kind::Unsupported`] for
/// an unknown protocol, [`weighbridge_core::Kind::Limit`] beyond the limits of `options`.
pub fn read(source: &SourceRef, offset: u64, options: &Options) -> Result<Pickle> {
    let mut machine = Machine::new(source, offset, options);
    let mut opcodes = Opcodes::new(source, offset);
    machine.run(&mut opcodes).map_err(|e| e.in_file(source.label()))?;
    Ok(machine.finish(opcodes.position()))
}

/// State of the machine; still valid after a failure.
pub(super) struct Machine<'a> {
    options: &'a Options,
    pub(super) graph: Graph,
    stack: Vec<ObjectId>,
    /// Stack heights at the marks.
    marks: Vec<usize>,
    /// Memo entries with consecutive indices; other entries are in `far`.
    memo: Vec<ObjectId>,
    far: HashMap<u64, ObjectId>,
    /// One bit per object: set once it was fetched from the memo or duplicated. Other objects have no second user.
    fetched: Vec<u64>,
    /// Offset of the current opcode.
    at: u64,
    /// True once a memo index was too large.
    too_far: bool,
    small_ints: [Option<ObjectId>; SMALL_INTS],
    names: HashMap<Box<str>, ObjectId>,
    text_bytes: u64,
    /// Memory of the objects.
    held: HeldMemory,
    /// Highest memory of stack and marks so far.
    stacked: u64,
    pub(super) start: u64,
    frame_end: Option<u64>,
    /// True if the pickle may be truncated.
    cut: bool,
    protocol: Option<u8>,
    /// The outer pickle, while the pickle of an object array is read.
    outer: Option<Box<arrays::OuterPickle>>,
    /// Arrays of joblib so far.
    arrays: Vec<JoblibArray>,
    uses_frames: bool,
    pub(super) root: ObjectId,
    pub(super) globals: Vec<GlobalUse>,
    pub(super) counts: Box<[u64; 256]>,
    pub(super) notes: Notes,
}

impl<'a> Machine<'a> {
    pub(super) fn new(source: &SourceRef, start: u64, options: &'a Options) -> Self {
        Self {
            options,
            graph: Graph::new(ModuleNames::Python2),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            far: HashMap::new(),
            fetched: Vec::new(),
            at: start,
            too_far: false,
            small_ints: [None; SMALL_INTS],
            names: HashMap::new(),
            text_bytes: 0,
            held: HeldMemory::of(&options.limits.budget_of(source)),
            stacked: 0,
            start,
            frame_end: None,
            cut: false,
            protocol: None,
            outer: None,
            arrays: Vec::new(),
            uses_frames: false,
            root: ObjectId::NONE,
            globals: Vec::new(),
            counts: Box::new([0; 256]),
            notes: Notes::default(),
        }
    }

    /// Executes the opcodes up to `STOP`.
    pub(super) fn run(&mut self, opcodes: &mut Opcodes) -> Result<()> {
        opcodes.charge(self.held.budget());
        loop {
            let op = opcodes.next_op()?;
            let (code, offset) = (op.code, op.offset);
            self.at = offset;
            self.frame(&op, opcodes)?;
            if let Some(count) = self.counts.get_mut(usize::from(code)) {
                *count += 1;
            }
            self.step(op).and_then(|()| self.take_height()).map_err(|e| e.at(offset))?;
            match code {
                op::BUILD if self.options.arrays => self.array(opcodes).map_err(|e| e.at(offset))?,
                op::STOP if !self.resume_outer() => return Ok(()),
                _ => {}
            }
        }
    }

    pub(super) fn finish(self, end: u64) -> Pickle {
        Pickle {
            graph: self.graph,
            root: self.root,
            protocol: self.protocol.unwrap_or(0),
            end,
            globals: self.globals,
            uses_frames: self.uses_frames,
            arrays: self.arrays,
            counts: self.counts,
            held: self.held,
        }
    }

    /// The declared protocol, if any.
    pub(super) fn declared(&self) -> Option<u8> {
        self.protocol
    }

    fn note(&mut self, severity: Severity, code: &'static str, offset: u64, text: &str) {
        self.notes.add(severity, code, offset, || text.to_owned());
    }

    /// Checks that frames end between opcodes: otherwise Python's two implementations disagree.
    fn frame(&mut self, op: &Op, opcodes: &Opcodes) -> Result<()> {
        if let Some(end) = self.frame_end.filter(|&end| op.offset >= end) {
            if op.offset > end {
                let text = "a frame ends inside an opcode";
                self.note(Severity::Unchecked, "frame-cuts-instruction", op.offset, text);
            }
            self.frame_end = None;
        }
        let (op::FRAME, Arg::Number(len)) = (op.code, &op.arg) else { return Ok(()) };
        if self.frame_end.is_some() {
            self.note(
                Severity::Unchecked,
                "frame-in-frame",
                op.offset,
                "a frame begins inside another frame",
            );
        }
        if *len > opcodes.remaining() && !self.cut {
            return Err(Error::corrupt("truncated", "the file ends inside a frame of the pickle")
                .at(op.offset)
                .expected(format_args!("{len} bytes"))
                .found(format_args!("{} bytes", opcodes.remaining()))
                .hint("the download may be incomplete; download it again, or compare its size with the original"));
        }
        self.uses_frames = true;
        self.frame_end = opcodes.position().checked_add(*len);
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<()> {
        let Op { offset, code, arg } = op;
        match (code, arg) {
            (op::PROTO, Arg::Number(n)) => self.proto(n, offset)?,
            // Handled in `frame`.
            (op::FRAME, _) => {}
            (op::STOP, _) => {
                self.root = self.pop()?;
                if !self.stack.is_empty() || !self.marks.is_empty() {
                    self.note(Severity::Note, "stack-left", offset, "the stack is not empty at the end");
                }
                if self.frame_end.is_some_and(|end| end != offset + 1) {
                    self.note(
                        Severity::Unchecked,
                        "frame-length",
                        offset,
                        "the last frame and the pickle end at different offsets",
                    );
                }
            }
            (_, Arg::Bool(b)) => self.stack.push(if b { ObjectId::TRUE } else { ObjectId::FALSE }),
            (_, Arg::Int(n)) => self.push_int(n)?,
            (_, Arg::BigInt(bytes)) => {
                self.count_text(bytes.len())?;
                self.push(Object::BigInt(bytes))?;
            }
            (_, Arg::Float(x)) => self.push(Object::Float(x))?,
            (op::PERSID, Arg::Text(text)) => {
                let id = self.text(text)?;
                self.push(Object::PersistentId(id))?;
            }
            (_, Arg::Text(text)) => {
                let id = self.text(text)?;
                self.stack.push(id);
            }
            (_, Arg::ByteString(text)) => {
                self.count_text(text.short.as_ref().map_or(0, |t| t.len()))?;
                self.push(Object::ByteString(Box::new(text)))?;
            }
            (op::BYTEARRAY8, Arg::Bytes(blob)) => self.push_blob(blob, Object::ByteArray)?,
            (_, Arg::Bytes(blob)) => self.push_blob(blob, Object::Bytes)?,
            (op::GLOBAL, Arg::Global(module, name)) => {
                let id = self.global(module, name, offset, "GLOBAL")?;
                self.stack.push(id);
            }
            (op::INST, Arg::Global(module, name)) => {
                let class = self.global(module, name, offset, "INST")?;
                let args = self.pop_mark()?;
                self.instance(class, args, offset)?;
            }
            (op::BINGET | op::LONG_BINGET | op::GET, Arg::Number(place)) => {
                let id = self.recall(place).ok_or_else(|| {
                    Error::corrupt("pickle-memo", "the memo has no entry with this index").found(place)
                })?;
                self.fetched(id)?;
                self.stack.push(id);
            }
            (op::BINPUT | op::LONG_BINPUT | op::PUT, Arg::Number(place)) => self.memorise(place, offset)?,
            (op::EXT1 | op::EXT2 | op::EXT4, Arg::Number(number)) => {
                self.note(
                    Severity::Unchecked,
                    "extension",
                    offset,
                    "an entry of the extension registry can be any class or function",
                );
                self.push(Object::Extension(i64::try_from(number).unwrap_or(-1)))?;
            }
            (code, _) => self.bare(code, offset)?,
        }
        Ok(())
    }

    /// Executes an opcode without an argument of its own.
    fn bare(&mut self, code: u8, offset: u64) -> Result<()> {
        match code {
            op::NONE => self.stack.push(ObjectId::NONE),
            op::NEWTRUE => self.stack.push(ObjectId::TRUE),
            op::NEWFALSE => self.stack.push(ObjectId::FALSE),
            op::EMPTY_TUPLE => self.stack.push(ObjectId::EMPTY_TUPLE),
            op::EMPTY_LIST => self.push(Object::List(Vec::new()))?,
            op::EMPTY_DICT => self.push(Object::Dict(Vec::new()))?,
            op::EMPTY_SET => self.push(Object::Set(Vec::new()))?,
            op::MARK => self.marks.push(self.stack.len()),
            op::POP => {
                self.note(Severity::Note, "pop", offset, "an object is made and discarded");
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            op::POP_MARK => {
                self.note(Severity::Note, "pop", offset, "an object is made and discarded");
                self.pop_mark()?;
            }
            op::DUP => {
                self.note(Severity::Note, "dup", offset, "opcode DUP, which picklers never write");
                let top = self.top()?;
                self.fetched(top)?;
                self.stack.push(top);
            }
            op::MEMOIZE => {
                let place = self.memo.len() as u64 + self.far.len() as u64;
                self.memorise(place, offset)?;
            }
            op::TUPLE1 => self.tuple_of(1)?,
            op::TUPLE2 => self.tuple_of(2)?,
            op::TUPLE3 => self.tuple_of(3)?,
            op::TUPLE => {
                let items = self.pop_mark()?;
                self.push_tuple(items)?;
            }
            op::LIST => {
                let items = self.pop_mark()?;
                self.push(Object::List(items))?;
            }
            op::FROZENSET => {
                let items = self.pop_mark()?;
                self.push(Object::FrozenSet(items.into()))?;
            }
            op::DICT => {
                let pairs = pairs(&self.pop_mark()?)?;
                self.push(Object::Dict(pairs))?;
            }
            op::APPEND => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            op::APPENDS => {
                let items = self.pop_mark()?;
                self.append(&items)?;
            }
            op::ADDITEMS => {
                let items = self.pop_mark()?;
                self.grow(|target| {
                    match target {
                        Object::Set(set) => set.extend(items),
                        _ => return Err(wrong_target("a set")),
                    }
                    Ok(())
                })?;
            }
            op::SETITEM => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[(key, value)])?;
            }
            op::SETITEMS => {
                let pairs = pairs(&self.pop_mark()?)?;
                self.set_items(&pairs)?;
            }
            op::BUILD => {
                let state = self.pop()?;
                self.grow(|target| {
                    match target {
                        Object::Reduced(made) => {
                            made.states.push(state);
                            made.built = offset;
                        }
                        _ => return Err(wrong_target("the result of a call")),
                    }
                    Ok(())
                })?;
            }
            op::REDUCE => {
                let (args, callable) = (self.pop()?, self.pop()?);
                self.push(Object::Reduced(Box::new(Reduced::new(
                    ReduceKind::Reduce,
                    callable,
                    args,
                    offset,
                ))))?;
            }
            op::NEWOBJ => {
                let (args, class) = (self.pop()?, self.pop()?);
                self.push(Object::Reduced(Box::new(Reduced::new(ReduceKind::NewObj, class, args, offset))))?;
            }
            op::NEWOBJ_EX => {
                let (kwargs, args, class) = (self.pop()?, self.pop()?, self.pop()?);
                let mut made = Reduced::new(ReduceKind::NewObjEx, class, args, offset);
                made.kwargs = Some(kwargs);
                self.push(Object::Reduced(Box::new(made)))?;
            }
            op::OBJ => {
                let mut args = self.pop_mark()?;
                if args.is_empty() {
                    return Err(underflow());
                }
                let class = args.remove(0);
                self.instance(class, args, offset)?;
            }
            op::STACK_GLOBAL => self.stack_global(offset)?,
            op::BINPERSID => {
                let id = self.pop()?;
                self.push(Object::PersistentId(id))?;
            }
            op::NEXT_BUFFER => self.push(Object::Buffer)?,
            op::READONLY_BUFFER => {
                self.top()?;
            }
            _ => return Err(unknown_opcode(code)),
        }
        Ok(())
    }

    fn proto(&mut self, n: u64, offset: u64) -> Result<()> {
        let protocol = u8::try_from(n).ok().filter(|_| n <= HIGHEST_PROTOCOL).ok_or_else(|| {
            Error::unsupported("pickle-protocol", "unknown pickle protocol")
                .expected(format_args!("0 to {HIGHEST_PROTOCOL}"))
                .found(n)
        })?;
        if offset != self.start {
            self.note(
                Severity::Note,
                "protocol-inside",
                offset,
                "the protocol is declared in the middle of the pickle",
            );
        }
        self.protocol = Some(protocol);
        self.graph.names = if protocol < 3 { ModuleNames::Python2 } else { ModuleNames::Python3 };
        Ok(())
    }
}

fn pairs(items: &[ObjectId]) -> Result<Vec<(ObjectId, ObjectId)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Error::corrupt("pickle-pairs", "a dict key has no value"));
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}

fn underflow() -> Error {
    Error::corrupt("pickle-stack", "stack underflow: the opcode needs more operands")
}

fn wrong_target(what: &str) -> Error {
    Error::corrupt("pickle-target", "the opcode does not apply to the object on the stack").expected(what)
}
