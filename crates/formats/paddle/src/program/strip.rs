//! Removal of training parts and source information from a program.

use super::ProgramDesc;
use super::access::{arguments, attribute, bytes, in_attributes, kind, operators, shown};
use super::build::{dense, endpoint, variable};
use super::framework::{self, BlockDesc, OpDesc, VarDesc};
use crate::flow::{Flow, IS_TEST, Phase, RESERVE};
use crate::strip_options::no_such_output;
use crate::{Strip, StripReport};
use std::collections::{BTreeSet, HashMap, HashSet};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Topology, Variable, VariableKind};

/// Attribute with the author's source lines.
pub(super) const CALLSTACK: &[u8] = b"op_callstack";

// Bits of the attribute `op_role`. Forward is 0; 4 and 8 (communication between trainers) are kept.
const BACKWARD: i32 = 1;
const OPTIMIZE: i32 = 2;
const SCHEDULE: i32 = 16;
/// Role of an operator whose role was never set; all other bits are undefined.
const UNSPECIFIED: i32 = 0x1000;

impl ProgramDesc {
    /// Removes the requested parts. The result can be loaded: blocks keep their indices, and everything that a remaining
    /// operator uses is kept.
    ///
    /// - `source`: the attribute `op_callstack`. Other text with paths is kept and listed by
    ///   [`source_leaks`](Self::source_leaks).
    /// - `training`: operators that no output depends on and without effects independent of training (prints,
    ///   assertions, random draws, changes of persistable variables). Inputs that only these operators read are removed
    ///   too. A program without outputs keeps its forward pass, as with `clone(for_test=True)`. Operators with the
    ///   attribute `is_test` are switched to inference.
    /// - `gradients`: variables with `@GRAD` in their names.
    /// - `state`: persistable variables that only operators of the optimizer and of schedules use, and never as the
    ///   parameter: moments, powers, learning rates. They are recognised by roles and slots of operators, not by
    ///   names. As long as the operators are kept (without `training`), the variables are kept.
    /// - `unused`: variables that no operator of any block uses, including persistable ones; the lists of feeds and
    ///   fetches are kept. A program without operators is a list of variables, and keeps them.
    /// - `outputs`: see [`Strip::outputs`]. The operators `feed` and `fetch` are created again.
    ///
    /// The outputs of the changed program are compared with those of the original.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `outputs-without-training`; `reserved-name` for a variable with the
    /// name of the list of inputs or outputs; [`weighbridge_core::Kind::Mismatch`], `no-such-output`;
    /// [`weighbridge_core::Kind::Corrupt`], `outputs-changed`; [`weighbridge_core::Kind::Limit`] if the program would
    /// exceed protobuf's maximum size. On error the program is unchanged.
    pub fn strip(&mut self, what: &Strip) -> Result<StripReport> {
        let mut report = StripReport::default();
        if what.is_nothing() {
            return Ok(report);
        }
        what.check()?;
        let mut message = self.message.clone();
        let state = if what.drops(what.state) { state(&message) } else { HashSet::new() };
        if what.source {
            source(&mut message, &mut report);
        }
        let kept = match what.training {
            true => self.cut(&mut message, what, &mut report)?,
            false => None,
        };
        variables(&mut message, what, &state, &mut report);
        if message == self.message {
            return Ok(report);
        }
        let changed = Self::of(message)?;
        if let Some((live, outputs)) = kept {
            let topology = self.topology();
            self.flow(&topology).check(&live, outputs.as_deref(), &changed.topology())?;
        }
        *self = changed;
        Ok(report)
    }

    fn flow<'t>(&self, topology: &'t Topology) -> Flow<'t> {
        Flow::of(topology, |block, place| phase(&self.message.blocks[block].ops[place]))
    }

    /// Removes training from `message`, a copy of this program, and switches the rest to inference. Returns the live
    /// steps, and the outputs for the comparison if they are not those of the program.
    fn cut(
        &self,
        message: &mut framework::ProgramDesc,
        what: &Strip,
        report: &mut StripReport,
    ) -> Result<Option<Kept>> {
        let topology = self.topology();
        let flow = self.flow(&topology);
        let named = (!what.outputs.is_empty()).then(|| what.outputs.clone());
        let mut kept = None;
        if named.is_some() || flow.has_outputs() {
            declared(&topology, &what.outputs)?;
            kept = Some((flow.live(named.as_deref()), named));
        } else if flow.trains() {
            let live = flow.forward();
            report.ends = flow.ends(&live);
            kept = Some((live, Some(report.ends.clone())));
        }
        if let Some((live, _)) = &kept {
            prune(message, &flow, live, &what.outputs, report)?;
        }
        inference(message);
        Ok(kept)
    }
}

/// For each step, true if it is kept; and names of outputs.
type Kept = (Vec<bool>, Option<Vec<String>>);

/// Fails if an output is not a variable of the main block.
fn declared(topology: &Topology, outputs: &[String]) -> Result<()> {
    let main: HashSet<&str> =
        topology.blocks.first().into_iter().flat_map(|b| &b.variables).map(|v| v.name.as_str()).collect();
    match outputs.iter().find(|name| !main.contains(name.as_str())) {
        Some(name) => Err(no_such_output(name)),
        None => Ok(()),
    }
}

fn source(program: &mut framework::ProgramDesc, report: &mut StripReport) {
    for op in program.blocks.iter_mut().flat_map(|b| &mut b.ops) {
        op.attrs.retain(|attr| {
            let gone = bytes(&attr.name) == CALLSTACK;
            if gone {
                report.attributes += 1;
                let length: usize = attr.s.iter().chain(&attr.strings).map(Vec::len).sum();
                report.attribute_bytes += length as u64;
            }
            !gone
        });
    }
}

fn phase(op: &OpDesc) -> Phase {
    let role = attribute(op, "op_role").and_then(|a| a.i).unwrap_or(0);
    let role = if role & UNSPECIFIED == 0 { role } else { 0 };
    if role & (OPTIMIZE | SCHEDULE) != 0 || (role == 0 && is_optimizer(op)) {
        Phase::Update
    } else if role & BACKWARD != 0 || bytes(&op.r#type).ends_with(b"_grad") {
        Phase::Backward
    } else {
        Phase::Forward
    }
}

/// True for an operator that updates a parameter: its slots are the parameter, its gradient and the new parameter.
/// Programs older than roles have no other indication.
fn is_optimizer(op: &OpDesc) -> bool {
    let has =
        |slots: &[framework::op_desc::Var], name: &[u8]| slots.iter().any(|s| bytes(&s.parameter) == name);
    has(&op.inputs, b"Param") && has(&op.inputs, b"Grad") && has(&op.outputs, b"ParamOut")
}

/// Keeps the steps of `live`, their bodies, and the inputs that they read. Other bodies become
/// empty, because blocks are identified by their indices.
fn prune(
    program: &mut framework::ProgramDesc,
    flow: &Flow<'_>,
    live: &[bool],
    outputs: &[String],
    report: &mut StripReport,
) -> Result<()> {
    // An input that no operator read before is kept: training did not need it.
    let read: HashSet<Vec<u8>> = operators(program).flat_map(|op| arguments(&op.inputs)).cloned().collect();
    for (number, block) in program.blocks.iter_mut().enumerate() {
        let owner = flow.owner(number);
        let mut place = 0;
        block.ops.retain(|op| {
            let live = if number == 0 { live[place] } else { owner.is_some_and(|step| live[step]) };
            place += 1;
            let feeds = number == 0 && bytes(&op.r#type) == b"feed";
            let keep = live
                || (feeds && outputs.is_empty() && !arguments(&op.outputs).any(|name| read.contains(name)));
            report.operators += u64::from(!keep);
            keep
        });
        if number > 0 && block.ops.is_empty() && !owner.is_some_and(|step| live[step]) {
            report.variables.extend(block.vars.iter().map(|var| shown(bytes(&var.name)).into_owned()));
            block.vars.clear();
        }
    }
    let Some(main) = program.blocks.first_mut() else { return Ok(()) };
    if outputs.is_empty() {
        let mut feeds: Vec<&mut OpDesc> =
            main.ops.iter_mut().filter(|op| bytes(&op.r#type) == b"feed").collect();
        feeds.sort_by_key(|op| attribute(op, "col").and_then(|a| a.i));
        for (column, attrs) in (0i32..).zip(feeds.into_iter().map(|op| &mut op.attrs)) {
            attrs.iter_mut().filter(|a| bytes(&a.name) == b"col").for_each(|a| a.i = Some(column));
        }
        return Ok(());
    }
    let inputs = inputs(main, flow, live);
    main.ops.retain(|op| bytes(&op.r#type) != b"feed");
    let feed = |(column, name): (usize, &String)| endpoint("feed", ("X", "feed"), ("Out", name), column);
    let fetch = |(column, name): (usize, &String)| endpoint("fetch", ("X", name), ("Out", "fetch"), column);
    let feeds: Vec<OpDesc> = inputs.iter().enumerate().map(feed).collect::<Result<_>>()?;
    main.ops.splice(0..0, feeds);
    for one in outputs.iter().enumerate().map(fetch) {
        main.ops.push(one?);
    }
    if !inputs.is_empty() {
        holder(main, "feed", VariableKind::Feed)?;
    }
    holder(main, "fetch", VariableKind::Fetch)
}

/// Returns the inputs of live steps: those that the program feeds already in their order, then the
/// others in the order of reading.
fn inputs(main: &BlockDesc, flow: &Flow<'_>, live: &[bool]) -> Vec<String> {
    let mut feeds: Vec<&OpDesc> = main.ops.iter().filter(|op| bytes(&op.r#type) == b"feed").collect();
    feeds.sort_by_key(|op| attribute(op, "col").and_then(|a| a.i));
    let mut inputs: Vec<String> =
        feeds.iter().flat_map(|op| arguments(&op.outputs)).map(|name| shown(name).into_owned()).collect();
    let vars: HashMap<_, &VarDesc> = main.vars.iter().map(|var| (shown(bytes(&var.name)), var)).collect();
    for (name, written) in flow.inputs(live) {
        let Some(var) = vars.get(name) else { continue };
        let tensor = matches!(kind(var), Some(7 | 8 | 25 | 26)) && !var.persistable.unwrap_or(false);
        if tensor && (!written || var.need_check_feed.unwrap_or(false)) {
            inputs.push(name.to_owned());
        }
    }
    inputs
}

/// Declares the list of inputs or outputs of the executor.
fn holder(main: &mut BlockDesc, name: &str, of: VariableKind) -> Result<()> {
    let list = Variable { kind: of, dtype: None, shape: None, ..dense(name, DType::F32, &[]) };
    let desc = variable(&list)?;
    match main.vars.iter().find(|var| bytes(&var.name) == name.as_bytes()) {
        Some(var) if kind(var) == kind(&desc) => {}
        Some(_) => {
            return Err(Error::usage("reserved-name", "the variable name is reserved by Paddle")
                .found(name)
                .hint(phrase!["use ", Opt::Rename.any("OLD=NEW"), " to rename the variable first"]));
        }
        None => main.vars.push(desc),
    }
    Ok(())
}

/// Switches operators to inference, as `clone(for_test=True)` does.
fn inference(program: &mut framework::ProgramDesc) {
    for op in program.blocks.iter_mut().flat_map(|b| &mut b.ops) {
        let test = op.attrs.iter_mut().filter(|a| bytes(&a.name) == IS_TEST.as_bytes());
        test.filter(|a| !a.b.unwrap_or(false)).for_each(|a| a.b = Some(true));
        if bytes(&op.r#type) == b"batch_norm" {
            op.outputs.retain(|slot| bytes(&slot.parameter) != RESERVE.as_bytes());
        }
    }
}

/// Returns the variables of the optimizer: persistable, used by updates only, and never as the parameter.
fn state(program: &framework::ProgramDesc) -> HashSet<Vec<u8>> {
    let vars = program.blocks.iter().flat_map(|b| &b.vars);
    let mut state: HashSet<Vec<u8>> =
        vars.filter(|v| v.persistable.unwrap_or(false)).map(|v| bytes(&v.name).to_vec()).collect();
    let mut updated = HashSet::new();
    for op in operators(program) {
        let update = phase(op) == Phase::Update;
        for slot in op.inputs.iter().chain(&op.outputs) {
            let parameter = matches!(bytes(&slot.parameter), b"Param" | b"ParamOut");
            for name in &slot.arguments {
                if update && !parameter {
                    updated.insert(name.as_slice());
                } else {
                    state.remove(name);
                }
            }
        }
        for name in in_attributes(op).filter(|_| !update) {
            state.remove(name);
        }
    }
    state.retain(|name| updated.contains(name.as_slice()));
    state
}

/// Removes the declarations of requested variables that no operator uses.
fn variables(
    program: &mut framework::ProgramDesc,
    what: &Strip,
    state: &HashSet<Vec<u8>>,
    report: &mut StripReport,
) {
    let mut used: HashSet<Vec<u8>> = HashSet::new();
    let mut any = false;
    for op in operators(program) {
        any = true;
        for name in arguments(&op.inputs).chain(arguments(&op.outputs)).chain(in_attributes(op)) {
            if !used.contains(name) {
                used.insert(name.clone());
            }
        }
    }
    let mut left: BTreeSet<Vec<u8>> = BTreeSet::new();
    let emptied = std::mem::take(&mut report.variables);
    let mut gone: BTreeSet<Vec<u8>> = BTreeSet::new();
    for block in &mut program.blocks {
        block.vars.retain(|var| {
            let name = bytes(&var.name);
            let holder = matches!(kind(var), Some(9 | 10));
            let asked = (what.drops(what.unused) && any)
                || (what.gradients && name.windows(5).any(|part| part == b"@GRAD"))
                || state.contains(name);
            let goes = asked && !holder && !used.contains(name);
            let list = if goes { &mut gone } else { &mut left };
            if !list.contains(name) {
                list.insert(name.to_vec());
            }
            !goes
        });
    }
    let left: BTreeSet<String> = left.iter().map(|name| shown(name).into_owned()).collect();
    let gone = gone.iter().map(|name| shown(name).into_owned()).chain(emptied);
    report.variables = gone.filter(|name| !left.contains(name)).collect();
}
