//! Would loading this pickle run anything? As far as can be told.

use super::allowed::{ImportVerdict, allowed};
use super::decode::{Arg, Opcodes};
use super::graph::{Graph, Location, Object, ObjectId, ReduceKind, Reduced, Span};
use super::known_calls::{Copied, Evaluated, Storages, in_pattern, is_known_call, is_zone};
use super::machine::Machine;
use super::nested::string_bytes;
use super::numpy::{bytes_of, is_lod_tensor, rebuilt_mapped};
use super::opcode as op;
use super::opened::Options;
use super::{keys, parts};
use std::collections::{HashMap, HashSet};
use weighbridge_core::error::Error;
use weighbridge_core::finding::{Finding, Severity, Verdict};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::{counted, escape};
use weighbridge_core::{Budget, FindingCode};
use weighbridge_io::source::SourceRef;

/// Limit on listed findings of one severity, imports or calls; more are only counted.
const LISTED: usize = 1_000;
/// Bytes of their texts and names.
const LISTED_TEXT: usize = 2 << 20;
/// Stands for a name that is too long to be read.
const NOT_KNOWN: &str = "(not known)";
/// Names up to this many bytes are compared as text. Those of instructions with lines may be longer; equal ones of these
/// are the same object.
const SHORT_NAME: usize = 256;

/// The class by which joblib describes an array whose bytes follow.
pub(super) const ARRAY_OF_JOBLIB: (&str, &str) = ("joblib.numpy_pickle", "NumpyArrayWrapper");
/// The first pickle of what PyTorch saved before its archives.
const SAVED: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// Items and bytes of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListBound {
    items: usize,
    bytes: usize,
}

impl ListBound {
    /// True where nothing more goes into the list.
    pub fn is_full(&self) -> bool {
        self.items >= LISTED || self.bytes >= LISTED_TEXT
    }

    /// Counts something more, with so many bytes of text.
    pub fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Findings, of which there are not too many.
#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: Vec<Finding>,
    /// By their weight: remarks must not crowd out what weighs more.
    bounds: HashMap<Severity, ListBound>,
    worst: Option<Severity>,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

impl Notes {
    /// Adds a finding. Its text is made only where it is kept: instructions of a byte make one each.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        offset: u64,
        text: impl FnOnce() -> String,
    ) {
        self.worst = self.worst.max(Some(severity));
        let bound = self.bounds.entry(severity).or_default();
        if bound.is_full() {
            self.dropped += 1;
            self.worst_dropped = self.worst_dropped.max(Some(severity));
            return;
        }
        let finding = Finding::new(severity, code, text()).at(offset);
        bound.add(finding.text.len());
        self.kept.push(finding);
    }
}

/// One import, and what is thought of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalFinding {
    /// The module as the pickle has it, not escaped.
    pub module: String,
    /// The name in the module, not escaped.
    pub name: String,
    /// Offset of the instruction in the source.
    pub offset: u64,
    /// The instruction.
    pub opcode: &'static str,
    /// What is thought of it.
    pub judgement: ImportVerdict,
    /// The part of a file that the pickle is, where whoever looked names it; the offset counts from its
    /// start.
    pub member: Option<String>,
}

impl GlobalFinding {
    /// True where Python could find a module and something in it by these names.
    pub fn can_be_found(&self) -> bool {
        let part = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric());
        [&self.module, &self.name].into_iter().all(|name| name == NOT_KNOWN || name.split('.').all(part))
    }
}

/// Calls of one kind of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The instruction: `REDUCE`, `NEWOBJ`, `NEWOBJ_EX`, `INST` (also for `OBJ`), or `BUILD`, which hands
    /// a state to an object of that class.
    pub how: &'static str,
    /// What would be called, as `module name`; `None` for what was computed.
    pub callable: Option<String>,
    /// How often.
    pub count: u64,
    /// Offset of the first such instruction in the source; of a `BUILD`, of what made the object.
    pub offset: u64,
}

/// What is known of a pickle, read to its end or not.
#[derive(Debug)]
pub struct Report {
    /// What came of it all. Never sound unless it was read to its end.
    pub verdict: Verdict,
    /// The protocol that it declares, if it does.
    pub protocol: Option<u8>,
    /// Instructions seen.
    pub instructions: u64,
    /// Every import, in order of the file.
    pub globals: Vec<GlobalFinding>,
    /// What is odd.
    pub findings: Vec<Finding>,
    /// What would be called, each once, in order of the file; the first of very many.
    pub calls: Vec<Call>,
    /// Where strings within the pickle begin as a pickle does, and how they are spelled.
    pub blobs: Vec<Span>,
    /// Findings and imports that were left out because there are too many.
    pub dropped: u64,
    /// The weight of the heaviest finding that was left out.
    pub worst_dropped: Option<Severity>,
    /// Offset behind the pickle, where it has an end.
    pub end: Option<u64>,
    /// Why it could not be read to its end.
    pub error: Option<Error>,
    /// True where instructions go on from the place of that error to a `STOP`: what stopped here need not stop Python.
    pub goes_on: bool,
}

impl Report {
    /// True where something is imported, as far as it was read, or may be: names that Python could find, an entry of the
    /// extension registry, names that could not be followed.
    pub fn imports(&self) -> bool {
        self.globals.iter().any(GlobalFinding::can_be_found)
            || self.worst_dropped > Some(Severity::Note)
            || self
                .findings
                .iter()
                .any(|found| matches!(found.code, FindingCode::Extension | FindingCode::UnfollowedImport))
    }
}

/// Judges the pickle at `offset` of `source`. Goes as far as it can in a damaged one.
///
/// It fails closed: what was not read to the end is never called sound.
pub fn inspect(source: &SourceRef, offset: u64, options: &Options) -> Report {
    inspect_next(&mut Opcodes::new(source, offset), options)
}

/// As [`inspect`], for the pickle that begins where `opcodes` stand; those stand behind it then, if it has an end. Of pickles
/// one behind the other nothing is read twice.
///
/// Of a pickle with the description of an array of joblib, both readings are judged: that of Python, which goes on with the
/// bytes of the array as instructions, and that of joblib, which takes them for the array.
pub fn inspect_next(opcodes: &mut Opcodes, options: &Options) -> Report {
    let offset = Opcodes::position(opcodes);
    let plain = inspect_as(opcodes, options);
    let of_joblib = |found: &GlobalFinding| (&*found.module, &*found.name) == ARRAY_OF_JOBLIB;
    let broken = plain.error.as_ref().and_then(Error::offset).unwrap_or(u64::MAX);
    if options.arrays || !plain.globals.iter().any(of_joblib) {
        return plain;
    }
    let mut again = Opcodes::new(&opcodes.source().clone(), offset);
    let arrays = inspect_as(&mut again, &Options { arrays: true, ..options.clone() });
    let (mut report, other, broken) = match &arrays.error {
        None => {
            *opcodes = again;
            (arrays, plain, broken)
        }
        // joblib may have called something before it stops.
        Some(error) => {
            let broken = error.offset().unwrap_or(u64::MAX);
            let mut report = plain;
            if report.error.is_none() {
                let text = format!("{}: as joblib reads it: {}", error.code(), error.message());
                report.findings.push(Finding::new(Severity::Unchecked, "pickle-breaks", text).at(broken));
                report.verdict = report.verdict.max(Verdict::CouldNotTell);
            }
            (report, arrays, broken)
        }
    };
    // What only one of them would come to is hidden from the other.
    let known: HashSet<u64> = report.globals.iter().map(|found| found.offset).collect();
    report.globals.extend(
        other.globals.into_iter().filter(|found| found.offset < broken && !known.contains(&found.offset)),
    );
    let listed = |found: &Finding| {
        report.findings.iter().any(|known| known.code == found.code && known.offset == found.offset)
    };
    let more: Vec<_> = other
        .findings
        .into_iter()
        .filter(|found| {
            found.severity > Severity::Note && found.offset.is_none_or(|at| at < broken) && !listed(found)
        })
        .collect();
    if let Some(worst) = more.iter().map(|found| found.severity).max() {
        report.verdict = report.verdict.max(if worst == Severity::Error {
            Verdict::Unsound
        } else {
            Verdict::CouldNotTell
        });
    }
    report.findings.extend(more);
    report
}

fn inspect_as(opcodes: &mut Opcodes, options: &Options) -> Report {
    let (source, offset) = (&opcodes.source().clone(), Opcodes::position(opcodes));
    opcodes.look_within();
    let mut machine = Machine::new(source, offset, options);
    let error = machine.run(opcodes).err().map(|e| e.in_file(source.label()));
    let blobs = opcodes.begun();
    let mut notes = std::mem::take(&mut machine.notes);
    let mut instructions = machine.counts.iter().sum();
    let mut globals = Globals::default();
    for found in &machine.globals {
        let part = |id| machine.graph.text(id).unwrap_or(NOT_KNOWN);
        if let Object::Global { module, name } = machine.graph.object(found.object) {
            globals.push(&mut notes, part(*module), part(*name), found.offset, found.opcode);
        }
    }
    // What loading takes is measured as what reading takes here.
    let python = || Budget::new(source.len(), &Limits::default());
    let (calls, too_much) = judge_calls(&machine, source, &python(), &mut notes);
    judge_patterns(&machine.graph, machine.root, offset, &mut notes);
    // What is too much to look at was found already.
    if !too_much && keys::are_too_large(&machine.graph, &python) {
        let text = || {
            "keys are tuples that hold each other or are used many times over: hashing them takes any time"
                .to_owned()
        };
        notes.add(Severity::Error, "large-keys", offset, text);
    }
    if parts::multiply(&machine.graph, source.len(), options) {
        let text =
            || "parts that Paddle puts together multiply: loading takes any amount of memory".to_owned();
        notes.add(Severity::Error, "parts-multiply", offset, text);
    }
    let protocol = machine.declared();
    if protocol.is_none() {
        let text = || "no protocol is declared: it is of protocol 0 or 1".to_owned();
        notes.add(Severity::Note, "no-protocol", offset, text);
    }
    let mut end = Some(Opcodes::position(opcodes));
    let mut goes_on = false;
    if error.is_some() {
        end = None;
        let (more, stops) = rest(opcodes, &mut globals, &mut notes);
        instructions += more;
        goes_on = stops;
    } else if opcodes.remaining() > 0 {
        let code = if opcodes.at_protocol() { "another-pickle" } else { "trailing-bytes" };
        let text = || format!("{} bytes follow behind the pickle", opcodes.remaining());
        notes.add(Severity::Note, code, Opcodes::position(opcodes), text);
    }
    let verdict = match notes.worst {
        Some(Severity::Error) => Verdict::Unsound,
        Some(Severity::Unchecked) => Verdict::CouldNotTell,
        _ if error.is_some() => Verdict::CouldNotTell,
        _ => Verdict::Sound,
    };
    Report {
        verdict,
        protocol,
        instructions,
        globals: globals.kept,
        findings: notes.kept,
        calls,
        blobs,
        dropped: notes.dropped + globals.dropped,
        worst_dropped: notes.worst_dropped,
        end,
        error,
        goes_on,
    }
}

#[derive(Default)]
struct Globals {
    kept: Vec<GlobalFinding>,
    bound: ListBound,
    dropped: u64,
}

impl Globals {
    fn push(&mut self, notes: &mut Notes, module: &str, name: &str, offset: u64, opcode: &'static str) {
        let judgement = allowed(module, name);
        let shown = || escape(&format!("{module}.{name}"));
        match judgement {
            ImportVerdict::Dangerous(how) => {
                let text = || format!("imports {}: {how}", shown());
                notes.add(Severity::Error, "dangerous-import", offset, text);
            }
            ImportVerdict::Unknown => {
                let text = || {
                    format!(
                        "`{}` is not on the allow list (expected when a whole module was saved): look at its code before \
                         you load the file",
                        shown()
                    )
                };
                notes.add(Severity::Unchecked, "unknown-import", offset, text);
            }
            // Whether the pattern holds is seen where it is called.
            ImportVerdict::Pattern(_) | ImportVerdict::Allowed(_) | ImportVerdict::Defined(_) => {}
        }
        if !self.bound.is_full() {
            self.bound.add(module.len() + name.len());
            let (module, name) = (module.to_owned(), name.to_owned());
            self.kept.push(GlobalFinding { module, name, offset, opcode, judgement, member: None });
        } else {
            self.dropped += 1;
        }
    }
}

/// Looks at everything that would be called, whether its result is used or not. Gives the calls, and true where they copy too much.
fn judge_calls(
    machine: &Machine<'_>,
    source: &SourceRef,
    python: &Budget,
    notes: &mut Notes,
) -> (Vec<Call>, bool) {
    let (graph, start) = (&machine.graph, machine.start);
    let evaluated = Evaluated::of(graph, machine.root);
    let (mut persistent, mut buffers, mut evals) = (0u64, 0u64, 0u64);
    let mut calls = Calls::default();
    let mut copied = Some(Copied::new(python));
    let mut storages = Storages::default();
    for (id, object) in graph.iter() {
        match object {
            Object::Reduced(made) => {
                calls.add(graph, made);
                if copied.as_mut().is_some_and(|copied| !copied.take(graph, made)) {
                    copied = None;
                    let text = || {
                        "calls copy the same bytes again and again, or make far more of them: loading takes any amount of memory"
                            .to_owned()
                    };
                    notes.add(Severity::Error, "unusual-call", made.offset, text);
                }
                let harmless = match graph.global(graph.class_of(made.callable)) {
                    None if is_zone(graph, id) => true,
                    None => {
                        let text = || "calls something that was computed, not imported".to_owned();
                        notes.add(Severity::Error, "computed-call", made.offset, text);
                        continue;
                    }
                    Some((module, name)) => match allowed(module, name) {
                        ImportVerdict::Pattern(_) if name != "eval" => {
                            in_pattern(graph, made, module, name)
                                || is_saved_storage(graph, made, name, source)
                        }
                        ImportVerdict::Pattern(_) => {
                            let known = is_lod_tensor(graph, id) && evaluated.is_alone(graph, made);
                            evals += u64::from(known);
                            known
                        }
                        // What is too much to look at was found already.
                        ImportVerdict::Allowed(_) => {
                            copied.is_none() || is_known_call(graph, made, module, name)
                        }
                        // Its import was found already.
                        ImportVerdict::Dangerous(_) | ImportVerdict::Defined(_) | ImportVerdict::Unknown => {
                            continue;
                        }
                    },
                };
                if !harmless {
                    let name = graph.global(graph.class_of(made.callable)).map_or("", |(_, name)| name);
                    let text = || format!("calls {} as its own library does not", escape(name));
                    notes.add(Severity::Error, "unusual-call", made.offset, text);
                }
            }
            Object::PersistentId(id) => {
                persistent += 1;
                if !storages.agree(graph, *id) {
                    let text = || "refers to a storage in two ways that do not agree".to_owned();
                    notes.add(Severity::Error, "unusual-call", start, text);
                }
                // PyTorch looks up the source of what is named here.
                if let Some(&[kind, class, ..]) = graph.tuple(*id)
                    && graph.text(kind) == Some("module")
                    && graph.global(class).is_none()
                {
                    let text = || "refers to a module of a class that was computed, not imported".to_owned();
                    notes.add(Severity::Error, "computed-call", start, text);
                }
            }
            Object::Buffer => buffers += 1,
            _ => {}
        }
    }
    if evals > 0 {
        let evals = counted(evals, "time", "times");
        let text = format!("calls eval {evals}, exactly as Paddle writes a tensor with LoD: harmless");
        notes.add(Severity::Note, "lod-eval", start, || text);
    }
    if buffers > 0 {
        let buffers = counted(buffers, "buffer", "buffers");
        let text = format!("takes {buffers} that must be handed over beside the pickle");
        notes.add(Severity::Note, "out-of-band", start, || text);
    }
    if persistent > 0 {
        let persistent = counted(persistent, "time", "times");
        let text = format!("refers {persistent} to something beside the pickle");
        notes.add(Severity::Note, "persistent-id", start, || text);
    }
    (calls.list, copied.is_none())
}

/// True where PyTorch loads a storage from bytes that begin as it saves one: five pickles, which are judged like all that are
/// within a pickle. Other bytes could be an archive, whose pickles are not.
fn is_saved_storage(graph: &Graph, made: &Reduced, name: &str, source: &SourceRef) -> bool {
    let Some(&[bytes]) = graph.tuple(made.args) else { return false };
    let blob = bytes_of(graph, bytes, None).ok().flatten();
    let Some(Location::Source(span)) = blob.map(|blob| blob.place) else { return false };
    name == "_load_from_bytes"
        && made.how == ReduceKind::Reduce
        && made.states.is_empty()
        && !source.is_sequential()
        && string_bytes(source, span, 2 * SAVED.len() as u64).is_ok_and(|(head, _)| head.starts_with(SAVED))
}

/// What would be called: equal names are one, whichever import they come from.
#[derive(PartialEq, Eq, Hash)]
enum Callable<'a> {
    Short(&'a str, &'a str),
    /// The texts of long names, which are not looked through for each call.
    Long(ObjectId, ObjectId),
    Computed,
}

impl<'a> Callable<'a> {
    fn of(graph: &'a Graph, id: ObjectId) -> Self {
        match (graph.object(id), graph.global(id)) {
            (_, Some((module, name))) if module.len().max(name.len()) <= SHORT_NAME => {
                Self::Short(module, name)
            }
            (&Object::Global { module, name }, Some(_)) => Self::Long(module, name),
            _ => Self::Computed,
        }
    }
}

/// What would be called, and how often; the first of them alone.
#[derive(Default)]
struct Calls<'a> {
    list: Vec<Call>,
    bound: ListBound,
    places: HashMap<(&'static str, Callable<'a>), usize>,
}

impl<'a> Calls<'a> {
    fn add(&mut self, graph: &'a Graph, made: &Reduced) {
        let how = match made.how {
            ReduceKind::Reduce => "REDUCE",
            ReduceKind::NewObj => "NEWOBJ",
            ReduceKind::NewObjEx => "NEWOBJ_EX",
            ReduceKind::Instance => "INST",
        };
        self.count(graph, made, how);
        if !made.states.is_empty() {
            self.count(graph, made, "BUILD");
        }
    }

    fn count(&mut self, graph: &'a Graph, made: &Reduced, how: &'static str) {
        let what = (how, Callable::of(graph, graph.class_of(made.callable)));
        if let Some(known) = self.places.get(&what).and_then(|&place| self.list.get_mut(place)) {
            known.count += 1;
        } else if !self.bound.is_full() {
            let callable =
                graph.global(graph.class_of(made.callable)).map(|(module, name)| format!("{module} {name}"));
            self.bound.add(callable.as_ref().map_or(0, String::len));
            self.places.insert(what, self.list.len());
            self.list.push(Call { how, callable, count: 1, offset: made.offset });
        }
    }
}

/// An import that is harmless in one call only must not be handed on to anything else, nor what such a call is given: to
/// who opens the file (`root`, what the pickle comes to) and who looks up what is beside it as little as to another call.
fn judge_patterns(graph: &Graph, root: ObjectId, start: u64, notes: &mut Notes) {
    let rebuilt: HashSet<ObjectId> = graph.iter().filter_map(|(id, _)| rebuilt_mapped(graph, id)).collect();
    let pattern = |id: ObjectId| {
        graph
            .global(id)
            .is_some_and(|(module, name)| matches!(allowed(module, name), ImportVerdict::Pattern(_)))
            || rebuilt.contains(&id)
    };
    let mut handed_on = pattern(root);
    for (id, object) in graph.iter() {
        handed_on |= match object {
            Object::Tuple(_) if rebuilt.contains(&id) => false,
            Object::List(items) | Object::Set(items) => items.iter().any(|&id| pattern(id)),
            Object::Tuple(items) | Object::FrozenSet(items) => items.iter().any(|&id| pattern(id)),
            Object::Dict(pairs) => pairs.iter().any(|&(key, value)| pattern(key) || pattern(value)),
            Object::PersistentId(id) => pattern(*id),
            Object::Reduced(made) => {
                let args = rebuilt_mapped(graph, id).is_none().then_some(&made.args);
                made.items.iter().chain(&made.states).chain(args).any(|&id| pattern(id))
                    || made.pairs.iter().any(|&(key, value)| pattern(key) || pattern(value))
            }
            _ => false,
        };
    }
    if handed_on {
        let text = || "something that is harmless in one call only is used in another way".to_owned();
        notes.add(Severity::Error, "unusual-call", start, text);
    }
}

/// Behind a place where the machine failed: imports that can be seen without it. Returns the
/// number of instructions, and whether the last of them is a `STOP`.
fn rest(opcodes: &mut Opcodes, globals: &mut Globals, notes: &mut Notes) -> (u64, bool) {
    let mut count = 0;
    // The last two texts: what an import takes where nothing stands between.
    let mut texts: [Option<Box<str>>; 2] = [None, None];
    while let Ok(op) = opcodes.next_op() {
        count += 1;
        match (op.code, op.arg) {
            (_, Arg::Text(text) | Arg::ByteString(text)) => {
                texts.swap(0, 1);
                texts[1] = text.short;
            }
            (code, Arg::Global(module, name)) => {
                let opcode = if code == op::INST { "INST" } else { "GLOBAL" };
                globals.push(notes, &module, &name, op.offset, opcode);
            }
            (op::STACK_GLOBAL, _) => {
                let text = || "imports something whose name could not be followed".to_owned();
                notes.add(Severity::Unchecked, "unfollowed-import", op.offset, text);
                // Most likely those two; where they make no sense, others.
                if let [Some(module), Some(name)] = &texts
                    && matches!(allowed(module, name), ImportVerdict::Dangerous(_))
                {
                    globals.push(notes, module, name, op.offset, "STACK_GLOBAL");
                }
            }
            (op::EXT1 | op::EXT2 | op::EXT4, _) => {
                let text =
                    || "an entry of the extension registry: it could be any class or function".to_owned();
                notes.add(Severity::Unchecked, "extension", op.offset, text);
            }
            (op::STOP, _) => return (count, true),
            _ => {}
        }
    }
    (count, false)
}
