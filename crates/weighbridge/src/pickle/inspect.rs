//! Would loading this pickle run anything? As far as can be told.

use super::allowed::{Judgement, allowed};
use super::decode::{Arg, Opcodes};
use super::graph::{Graph, How, Object, ObjectId};
use super::machine::Machine;
use super::numpy::is_lod_tensor;
use super::opcode as op;
use super::opened::Options;
use crate::error::Error;
use crate::finding::{Finding, Severity, Verdict};
use crate::source::SourceRef;
use crate::text::escape;

/// Findings and imports that are kept; more are only counted.
const MOST: usize = 10_000;

/// Findings, of which there are not too many.
#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: Vec<Finding>,
    worst: Option<Severity>,
    dropped: u64,
}

impl Notes {
    pub(super) fn push(&mut self, finding: Finding) {
        self.worst = self.worst.max(Some(finding.severity));
        if self.kept.len() < MOST {
            self.kept.push(finding);
        } else {
            self.dropped += 1;
        }
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
    pub judgement: Judgement,
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
    /// Findings and imports that were left out because there are too many.
    pub dropped: u64,
    /// Offset behind the pickle, where it has an end.
    pub end: Option<u64>,
    /// Why it could not be read to its end.
    pub error: Option<Error>,
}

/// Judges the pickle at `offset` of `source`. Goes as far as it can in a damaged one.
///
/// It fails closed: what was not read to the end is never called sound.
pub fn inspect(source: &SourceRef, offset: u64, options: &Options) -> Report {
    let mut machine = Machine::new(offset, options);
    let mut opcodes = Opcodes::new(source, offset);
    let error = machine.run(&mut opcodes).err().map(|e| e.in_file(source.label()));
    let mut notes = std::mem::take(&mut machine.notes);
    let mut instructions = machine.counts.iter().sum();
    let mut globals = Globals::default();
    for found in &machine.globals {
        let part = |id| machine.graph.text(id).unwrap_or("(not known)").to_owned();
        if let Object::Global { module, name } = machine.graph.object(found.object) {
            globals.push(&mut notes, part(*module), part(*name), found.offset, found.opcode);
        }
    }
    judge_calls(&machine.graph, &mut notes);
    let protocol = machine.declared();
    if protocol.is_none() {
        add(
            &mut notes,
            Severity::Note,
            "no-protocol",
            offset,
            "no protocol is declared: it is of protocol 0 or 1",
        );
    }
    let mut end = Some(opcodes.position());
    if error.is_some() {
        end = None;
        instructions += rest(&mut opcodes, &mut globals, &mut notes);
    } else if opcodes.remaining() > 0 {
        let text = format!("{} bytes follow behind the pickle", opcodes.remaining());
        let again = Opcodes::new(source, opcodes.position())
            .next()
            .is_some_and(|op| op.is_ok_and(|op| op.code == op::PROTO));
        let code = if again { "another-pickle" } else { "trailing-bytes" };
        add(&mut notes, Severity::Note, code, opcodes.position(), &text);
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
        dropped: notes.dropped + globals.dropped,
        end,
        error,
    }
}

fn add(notes: &mut Notes, severity: Severity, code: &'static str, offset: u64, text: &str) {
    notes.push(Finding::new(severity, code, text).at(offset));
}

#[derive(Default)]
struct Globals {
    kept: Vec<GlobalFinding>,
    dropped: u64,
}

impl Globals {
    fn push(&mut self, notes: &mut Notes, module: String, name: String, offset: u64, opcode: &'static str) {
        let judgement = allowed(&module, &name);
        let shown = escape(&format!("{module} {name}"));
        match judgement {
            Judgement::Dangerous(how) => {
                add(notes, Severity::Error, "dangerous-import", offset, &format!("imports {shown}: {how}"));
            }
            Judgement::Unknown => {
                add(
                    notes,
                    Severity::Error,
                    "unknown-import",
                    offset,
                    &format!("imports {shown}, which is not known"),
                );
            }
            // Whether the pattern holds is seen where it is called.
            Judgement::Pattern(_) | Judgement::Allowed(_) => {}
        }
        if self.kept.len() < MOST {
            self.kept.push(GlobalFinding { module, name, offset, opcode, judgement });
        } else {
            self.dropped += 1;
        }
    }
}

/// Looks at everything that would be called, whether its result is used or not.
fn judge_calls(graph: &Graph, notes: &mut Notes) {
    let mut persistent = 0u64;
    for (id, object) in graph.iter() {
        match object {
            Object::Made(made) => {
                let harmless = match graph.global(made.callable) {
                    None => {
                        let text = "calls something that was computed, not imported";
                        add(notes, Severity::Error, "computed-call", made.offset, text);
                        continue;
                    }
                    Some((module, name)) => match allowed(module, name) {
                        Judgement::Pattern(_) => is_lod_tensor(graph, id),
                        Judgement::Allowed(_) => usual(graph, id, name),
                        // Its import was found already.
                        Judgement::Dangerous(_) | Judgement::Unknown => continue,
                    },
                };
                if !harmless {
                    let name = graph.global(made.callable).map_or("", |(_, name)| name);
                    let text = format!("calls {} in a way that no honest writer does", escape(name));
                    add(notes, Severity::Error, "unusual-call", made.offset, &text);
                }
            }
            Object::PersistentId(_) => persistent += 1,
            _ => {}
        }
    }
    if persistent > 0 {
        let text = format!("refers {persistent} times to something beside the pickle");
        notes.push(Finding::note("persistent-id", text));
    }
    judge_patterns(graph, notes);
}

/// An import that is harmless in one call only must not be handed on to anything else.
fn judge_patterns(graph: &Graph, notes: &mut Notes) {
    let pattern = |id: ObjectId| {
        graph.global(id).is_some_and(|(module, name)| matches!(allowed(module, name), Judgement::Pattern(_)))
    };
    let mut handed_on = false;
    for (_, object) in graph.iter() {
        handed_on |= match object {
            Object::List(items) | Object::Set(items) => items.iter().any(|&id| pattern(id)),
            Object::Tuple(items) | Object::FrozenSet(items) => items.iter().any(|&id| pattern(id)),
            Object::Dict(pairs) => pairs.iter().any(|&(key, value)| pattern(key) || pattern(value)),
            Object::Made(made) => {
                made.items.iter().chain(&made.states).chain([&made.args]).any(|&id| pattern(id))
                    || made.pairs.iter().any(|&(key, value)| pattern(key) || pattern(value))
            }
            _ => false,
        };
    }
    if handed_on {
        let text = "a function that is harmless in one call only is used in another way";
        add(notes, Severity::Error, "unusual-call", 0, text);
    }
}

/// True where an allowed function is called as honest writers do.
fn usual(graph: &Graph, id: ObjectId, name: &str) -> bool {
    let Some(made) = graph.made(id) else { return false };
    match name {
        "encode" => {
            made.how == How::Reduce
                && matches!(graph.tuple(made.args), Some(&[_, codec])
                    if matches!(graph.text(codec), Some("latin1" | "latin-1" | "iso-8859-1")))
        }
        _ => true,
    }
}

/// Behind a place where the machine failed: imports that can be seen without it. Returns the
/// number of instructions.
fn rest(opcodes: &mut Opcodes, globals: &mut Globals, notes: &mut Notes) -> u64 {
    let mut count = 0;
    while let Ok(op) = opcodes.next_op() {
        count += 1;
        match (op.code, op.arg) {
            (code, Arg::Global(module, name)) => {
                let opcode = if code == op::INST { "INST" } else { "GLOBAL" };
                globals.push(notes, module.into(), name.into(), op.offset, opcode);
            }
            (op::STACK_GLOBAL, _) => {
                let text = "imports something whose name could not be followed";
                add(notes, Severity::Unchecked, "unknown-import", op.offset, text);
            }
            (op::STOP, _) => break,
            _ => {}
        }
    }
    count
}
