//! Inspection of a pickle: would loading it run code?

use super::allowed::{ImportVerdict, allowed};
use super::decode::{Arg, Opcodes};
use super::graph::{Graph, Location, Object, ObjectId, ReduceKind, Reduced, Span};
use super::known_calls::{CopyBudget, EvalArguments, Storages, in_pattern, is_known_call, is_zone};
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

/// Maximum number of listed findings of one severity, imports or calls; more are only counted.
const MAX_LISTED: usize = 1_000;
/// Maximum number of bytes in the texts and names of a list.
const MAX_LISTED_TEXT: usize = 2 << 20;
/// Placeholder for a name that is too long to read.
const UNKNOWN_NAME: &str = "(unknown)";
/// Names up to this many bytes are compared as text. Line opcodes allow longer names; equal long names are the same object.
const SHORT_NAME: usize = 256;

/// Class of joblib's array descriptions; the bytes of the array follow the description.
pub(super) const ARRAY_OF_JOBLIB: (&str, &str) = ("joblib.numpy_pickle", "NumpyArrayWrapper");
/// First pickle of a file in PyTorch's legacy form.
const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// Bound on the items and bytes of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListBound {
    items: usize,
    bytes: usize,
}

impl ListBound {
    /// Returns true if the list is full.
    pub fn is_full(&self) -> bool {
        self.items >= MAX_LISTED || self.bytes >= MAX_LISTED_TEXT
    }

    /// Counts one more item with `bytes` bytes of text.
    pub fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Findings, limited in number per severity.
#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: Vec<Finding>,
    /// A bound per severity: notes must not displace errors.
    bounds: HashMap<Severity, ListBound>,
    worst: Option<Severity>,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

impl Notes {
    /// Adds a finding. The text is built only if the finding is kept: a pickle of one-byte opcodes causes one per byte.
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

/// One import with its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalFinding {
    /// The module as written in the pickle, not escaped.
    pub module: String,
    /// The name in the module, not escaped.
    pub name: String,
    /// Offset of the opcode in the source.
    pub offset: u64,
    /// The opcode.
    pub opcode: &'static str,
    /// Verdict on the import.
    pub judgement: ImportVerdict,
    /// Name of the pickle within its file, if the caller sets one; the offset then counts from the start of that member.
    pub member: Option<String>,
}

impl GlobalFinding {
    /// Returns true if the names are valid in Python, so that an import could succeed.
    pub fn can_be_found(&self) -> bool {
        let part = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric());
        [&self.module, &self.name].into_iter().all(|name| name == UNKNOWN_NAME || name.split('.').all(part))
    }
}

/// Calls of one callable by one opcode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The opcode: `REDUCE`, `NEWOBJ`, `NEWOBJ_EX`, `INST` (also for `OBJ`), or `BUILD`, which sets the state of an object of
    /// that class.
    pub how: &'static str,
    /// The callable as `module name`; `None` for a computed callable.
    pub callable: Option<String>,
    /// Number of calls.
    pub count: u64,
    /// Offset of the first such opcode in the source; for `BUILD`, of the opcode that made the object.
    pub offset: u64,
}

/// Result of inspecting a pickle, read to its end or not.
#[derive(Debug)]
pub struct Report {
    /// Overall verdict. Never sound unless the pickle was read to its end.
    pub verdict: Verdict,
    /// The declared protocol, if any.
    pub protocol: Option<u8>,
    /// Number of opcodes read.
    pub instructions: u64,
    /// Imports in file order.
    pub globals: Vec<GlobalFinding>,
    /// Findings.
    pub findings: Vec<Finding>,
    /// Distinct calls in file order, up to a limit.
    pub calls: Vec<Call>,
    /// Strings inside the pickle that begin like a pickle.
    pub blobs: Vec<Span>,
    /// Number of findings and imports beyond the limit.
    pub dropped: u64,
    /// Highest severity among the findings beyond the limit.
    pub worst_dropped: Option<Severity>,
    /// Offset after the pickle, if its end was reached.
    pub end: Option<u64>,
    /// Error that stopped reading before the end.
    pub error: Option<Error>,
    /// True if opcodes continue after that error up to a `STOP`: Python may not stop at the same place.
    pub goes_on: bool,
}

impl Report {
    /// Returns true if the pickle imports something or may do so: valid names, an entry of the extension registry, or names
    /// that could not be resolved.
    pub fn imports(&self) -> bool {
        self.globals.iter().any(GlobalFinding::can_be_found)
            || self.worst_dropped > Some(Severity::Note)
            || self
                .findings
                .iter()
                .any(|found| matches!(found.code, FindingCode::Extension | FindingCode::UnfollowedImport))
    }
}

/// Inspects the pickle at `offset` of `source`, a damaged one as far as possible.
///
/// Fails closed: a pickle that was not read to its end is never reported as sound.
pub fn inspect(source: &SourceRef, offset: u64, options: &Options) -> Report {
    inspect_next(&mut Opcodes::new(source, offset), options)
}

/// Same as [`inspect`] for the pickle at the position of `opcodes`, which then are after it, if it has an end. Consecutive
/// pickles are read once.
///
/// With a joblib array description, both readings are inspected: Python executes the bytes of the array as opcodes, joblib
/// reads them as the array.
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
                let text = format!("reading it as joblib does fails: {}: {}", error.code(), error.message());
                report.findings.push(Finding::new(Severity::Unchecked, "pickle-breaks", text).at(broken));
                report.verdict = report.verdict.max(Verdict::CouldNotTell);
            }
            (report, arrays, broken)
        }
    };
    // Each reading can reach opcodes that are hidden from the other.
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
    opcodes.collect_nested();
    let mut machine = Machine::new(source, offset, options);
    let error = machine.run(opcodes).err().map(|e| e.in_file(source.label()));
    let blobs = opcodes.take_nested();
    let mut notes = std::mem::take(&mut machine.notes);
    let mut instructions = machine.counts.iter().sum();
    let mut globals = Globals::default();
    for found in &machine.globals {
        let part = |id| machine.graph.text(id).unwrap_or(UNKNOWN_NAME);
        if let Object::Global { module, name } = machine.graph.object(found.object) {
            globals.push(&mut notes, part(*module), part(*name), found.offset, found.opcode);
        }
    }
    // The cost of loading in Python is measured by the same budget as reading here.
    let python = || Budget::new(source.len(), &Limits::default());
    let (calls, too_much) = judge_calls(&machine, source, &python(), &mut notes);
    judge_patterns(&machine.graph, machine.root, offset, &mut notes);
    // An excessive graph is reported already.
    if !too_much && keys::are_too_large(&machine.graph, &python) {
        let text = || "dict keys are nested or repeated tuples: hashing them takes unbounded time".to_owned();
        notes.add(Severity::Error, "large-keys", offset, text);
    }
    if parts::multiply(&machine.graph, source.len(), options) {
        let text =
            || "the parts of split parameters overlap: loading in Paddle takes unbounded memory".to_owned();
        notes.add(Severity::Error, "parts-multiply", offset, text);
    }
    let protocol = machine.declared();
    if protocol.is_none() {
        let text = || "no declared protocol: the pickle is protocol 0 or 1".to_owned();
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
        let text = || format!("{} bytes follow the pickle", opcodes.remaining());
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
                        "`{}` is not on the allow list (expected when a whole module was saved): review its code before \
                        you load the file",
                        shown()
                    )
                };
                notes.add(Severity::Unchecked, "unknown-import", offset, text);
            }
            // The pattern is checked at the call.
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

/// Checks every call, also those whose result is unused. Returns the calls, and true if they copy too much.
fn judge_calls(
    machine: &Machine<'_>,
    source: &SourceRef,
    python: &Budget,
    notes: &mut Notes,
) -> (Vec<Call>, bool) {
    let (graph, start) = (&machine.graph, machine.start);
    let eval_arguments = EvalArguments::of(graph, machine.root);
    let (mut persistent, mut buffers, mut evals) = (0u64, 0u64, 0u64);
    let mut calls = Calls::default();
    let mut copied = Some(CopyBudget::new(python));
    let mut storages = Storages::default();
    for (id, object) in graph.iter() {
        match object {
            Object::Reduced(made) => {
                calls.add(graph, made);
                if copied.as_mut().is_some_and(|copied| !copied.take(graph, made)) {
                    copied = None;
                    let text =
                        || "calls copy or multiply the same bytes: loading takes unbounded memory".to_owned();
                    notes.add(Severity::Error, "unusual-call", made.offset, text);
                }
                let harmless = match graph.global(graph.class_of(made.callable)) {
                    None if is_zone(graph, id) => true,
                    None => {
                        let text = || "calls a computed object instead of an import".to_owned();
                        notes.add(Severity::Error, "computed-call", made.offset, text);
                        continue;
                    }
                    Some((module, name)) => match allowed(module, name) {
                        ImportVerdict::Pattern(_) if name != "eval" => {
                            in_pattern(graph, made, module, name)
                                || is_saved_storage(graph, made, name, source)
                        }
                        ImportVerdict::Pattern(_) => {
                            let known = is_lod_tensor(graph, id) && eval_arguments.is_alone(graph, made);
                            evals += u64::from(known);
                            known
                        }
                        // An excessive pickle is reported already.
                        ImportVerdict::Allowed(_) => {
                            copied.is_none() || is_known_call(graph, made, module, name)
                        }
                        // The import is reported already.
                        ImportVerdict::Dangerous(_) | ImportVerdict::Defined(_) | ImportVerdict::Unknown => {
                            continue;
                        }
                    },
                };
                if !harmless {
                    let text = || match graph.global(graph.class_of(made.callable)) {
                        Some((module @ ("builtins" | "__builtin__"), "eval")) => {
                            format!("calls `{module}.eval`, which runs Python code")
                        }
                        Some((module, name)) => {
                            let (module, name) = (escape(module), escape(name));
                            format!("calls `{module}.{name}` in a form that its library never writes")
                        }
                        None => "makes a call in a form that no library writes".to_owned(),
                    };
                    notes.add(Severity::Error, "unusual-call", made.offset, text);
                }
            }
            Object::PersistentId(id) => {
                persistent += 1;
                if !storages.agree(graph, *id) {
                    let text = || "two references to one storage disagree on its type or length".to_owned();
                    notes.add(Severity::Error, "unusual-call", start, text);
                }
                // PyTorch looks up the source code of this class.
                if let Some(&[kind, class, ..]) = graph.tuple(*id)
                    && graph.text(kind) == Some("module")
                    && graph.global(class).is_none()
                {
                    let text = || "refers to a module whose class is computed instead of imported".to_owned();
                    notes.add(Severity::Error, "computed-call", start, text);
                }
            }
            Object::Buffer => buffers += 1,
            _ => {}
        }
    }
    if evals > 0 {
        let evals = counted(evals, "time", "times");
        let text =
            format!("calls eval {evals} in the harmless form that Paddle writes for a tensor with LoD");
        notes.add(Severity::Note, "lod-eval", start, || text);
    }
    if buffers > 0 {
        let buffers = counted(buffers, "buffer", "buffers");
        let text = format!("needs {buffers} passed separately from the pickle");
        notes.add(Severity::Note, "out-of-band", start, || text);
    }
    if persistent > 0 {
        let persistent = counted(persistent, "reference", "references");
        let text = format!("{persistent} to data outside of the pickle (usual for torch.save)");
        notes.add(Severity::Note, "persistent-id", start, || text);
    }
    (calls.list, copied.is_none())
}

/// Returns true if PyTorch loads a storage from bytes that begin like its legacy form: five pickles, inspected like all nested
/// pickles. Other bytes could be an archive, whose pickles are not inspected.
fn is_saved_storage(graph: &Graph, made: &Reduced, name: &str, source: &SourceRef) -> bool {
    let Some(&[bytes]) = graph.tuple(made.args) else { return false };
    let blob = bytes_of(graph, bytes, None).ok().flatten();
    let Some(Location::Source(span)) = blob.map(|blob| blob.place) else { return false };
    name == "_load_from_bytes"
        && made.how == ReduceKind::Reduce
        && made.states.is_empty()
        && !source.is_sequential()
        && string_bytes(source, span, 2 * LEGACY_MAGIC.len() as u64)
            .is_ok_and(|(head, _)| head.starts_with(LEGACY_MAGIC))
}

/// A callable; equal names from different imports are equal.
#[derive(PartialEq, Eq, Hash)]
enum Callable<'a> {
    Short(&'a str, &'a str),
    /// Text objects of long names, which are not compared byte by byte for each call.
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

/// Distinct calls with their counts, up to a limit.
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

/// Reports imports that are harmless in one call only but used elsewhere: returned to the loader (`root`), in a persistent id,
/// or passed to another call. The same holds for the arguments of such a call.
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
        let text = || "an import that is harmless in one call only is used elsewhere".to_owned();
        notes.add(Severity::Error, "unusual-call", start, text);
    }
}

/// Collects the imports after the place where the machine failed. Returns the number of opcodes, and true if the last one is
/// `STOP`.
fn rest(opcodes: &mut Opcodes, globals: &mut Globals, notes: &mut Notes) -> (u64, bool) {
    let mut count = 0;
    // The last two texts: the operands of an import that follows them directly.
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
                let text = || "imports an object whose name could not be resolved".to_owned();
                notes.add(Severity::Unchecked, "unfollowed-import", op.offset, text);
                // Most likely the last two texts; reported only if these are dangerous.
                if let [Some(module), Some(name)] = &texts
                    && matches!(allowed(module, name), ImportVerdict::Dangerous(_))
                {
                    globals.push(notes, module, name, op.offset, "STACK_GLOBAL");
                }
            }
            (op::EXT1 | op::EXT2 | op::EXT4, _) => {
                let text = || "an entry of the extension registry can be any class or function".to_owned();
                notes.add(Severity::Unchecked, "extension", op.offset, text);
            }
            (op::STOP, _) => return (count, true),
            _ => {}
        }
    }
    (count, false)
}
