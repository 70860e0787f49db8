//! Data flow of a program: the operators that its outputs need, and a comparison of the values that two
//! programs compute.
//!
//! Steps are the operators of the main block; a body belongs to the step that runs it. Values that may share memory
//! form one class: a tensor array and the result of `array_write_`, a loop variable inside and outside its loop.

use super::Paddle;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::escape;
use weighbridge_core::topology::{AttributeValue, Block, Operator, Topology};

/// Argument of the older programs that denotes no variable.
const EMPTY: &str = "@EMPTY@";

/// Attribute that switches an operator from training to inference.
pub(super) const IS_TEST: &str = "is_test";

/// Output of `batch_norm` that only its gradient reads.
pub(super) const RESERVE: &str = "ReserveSpace";

/// Attributes with source code information. They do not affect outputs.
pub(super) const SOURCE: &[&str] = &["op_callstack", "op_namescope", "struct_name"];

/// Operators with effects besides their results.
const EFFECTS: &[&str] = &[
    "assert",
    "barrier",
    "p_send",
    "partial_send",
    "print",
    "py_func",
    "run_program",
    "save",
    "save_combine",
    "send",
    "send_v2",
    "set_parameter",
];

/// Operators that draw random numbers: each draw affects the next one. Operators with
/// `is_test` do not draw in inference and are not listed.
const RANDOM: &[&str] = &[
    "bernoulli",
    "binomial",
    "class_center_sample",
    "dirichlet",
    "exponential",
    "gaussian",
    "gaussian_inplace",
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "graph_khop_sampler",
    "graph_sample_neighbors",
    "multinomial",
    "nce",
    "poisson",
    "randint",
    "random",
    "random_crop",
    "randperm",
    "sampling_id",
    "seed",
    "shuffle_batch",
    "standard_gamma",
    "top_p_sampling",
    "truncated_gaussian_random",
    "uniform",
    "uniform_inplace",
    "uniform_random",
    "uniform_random_batch_size_like",
    "uniform_random_inplace",
    "weighted_sample_neighbors",
];

/// Training phase of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Forward,
    /// Gradients and the loss.
    Backward,
    /// Optimizer steps and learning-rate schedules.
    Update,
}

/// Returns the name of an operator without its dialect.
pub(super) fn short(kind: &str) -> &str {
    kind.split_once('.').map_or(kind, |(_, short)| short)
}

fn arguments(op: &Operator) -> impl Iterator<Item = &str> {
    let named = op.inputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str);
    let in_attributes = op.attributes.iter().flat_map(|a| match &a.value {
        AttributeValue::List(list) => list.as_slice(),
        value => std::slice::from_ref(value),
    });
    let in_attributes = in_attributes.filter_map(|value| match value {
        AttributeValue::Variable(name) => Some(name.as_str()),
        _ => None,
    });
    named.chain(in_attributes).filter(|name| *name != EMPTY)
}

fn results(op: &Operator) -> impl Iterator<Item = &str> {
    op.outputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str).filter(|name| *name != EMPTY)
}

/// Returns the operands that a PIR operator writes to. The name of an in-place operator ends in `_`.
fn written_operands(op: &Operator) -> Vec<&str> {
    let name = short(&op.kind);
    let operands = arguments(op);
    match name {
        "array_write_" => operands.take(1).collect(),
        "assign_out_" => operands.skip(1).take(1).collect(),
        // Running mean and variance: inference does not change them.
        "batch_norm_" | "sync_batch_norm_" => Vec::new(),
        "array_pop" | "tuple_push" | "tuple_pop" => operands.collect(),
        _ if name.ends_with('_') => operands.collect(),
        _ => Vec::new(),
    }
}

/// True for an operator that returns an output of the program.
fn is_fetch(op: &Operator) -> bool {
    matches!(op.kind.as_str(), "fetch" | "pd_op.fetch" | "builtin.shadow_output")
}

/// Operator of the main block with its bodies.
#[derive(Debug)]
struct Step {
    phase: Phase,
    /// Classes that the step reads.
    reads: Vec<usize>,
    /// Classes that the step writes.
    writes: Vec<usize>,
    /// True if the step has an effect besides its results.
    acts: bool,
    /// True if the step runs a body that another step runs as well.
    shares: bool,
    /// True for training, and for computations that depend on it.
    trains: bool,
}

/// Data flow of a program.
#[derive(Debug)]
pub(super) struct Flow<'t> {
    topology: &'t Topology,
    classes: Classes<'t>,
    /// Classes of tensors stored in files.
    stored: HashSet<usize>,
    steps: Vec<Step>,
    bodies: Bodies,
}

impl<'t> Flow<'t> {
    /// Builds the flow of `topology`; `phase` returns the phase of an operator by block and position.
    pub(super) fn of(topology: &'t Topology, phase: impl Fn(usize, usize) -> Phase) -> Self {
        let pir = topology.form == Paddle::FORM_PIR;
        let bodies = Bodies::of(topology);
        let main = main(topology);
        // A PIR operator has the phase of its bodies; a protobuf operator declares its own.
        let of_step = |step: usize| {
            let inner = bodies.of_step[step].iter().filter(|_| pir).flat_map(|&block| {
                (0..topology.blocks[block].operators.len()).map(move |position| (block, position))
            });
            let inner = inner.map(|(block, position)| phase(block, position)).max();
            phase(0, step).max(inner.unwrap_or(Phase::Forward))
        };
        let phases: Vec<Phase> = (0..main.len()).map(of_step).collect();
        let written = |op: &'t Operator, phase: Phase| match pir && phase == Phase::Forward {
            true => written_operands(op),
            false => Vec::new(),
        };
        let inside = |step: usize| bodies.of_step[step].iter().flat_map(|&b| &topology.blocks[b].operators);
        let mut classes = Classes::of(topology);
        for (step, op) in main.iter().enumerate().filter(|_| pir) {
            for op in std::iter::once(op).chain(inside(step)) {
                classes.alias(topology, op, &written(op, phases[step]));
            }
        }
        classes.settle();
        let stored: HashSet<usize> =
            topology.parameters().iter().map(|v| classes.get(v.name.as_str())).collect();
        let mut after: HashSet<usize> = HashSet::new();
        let mut steps = Vec::with_capacity(main.len());
        for (place, op) in main.iter().enumerate() {
            let phase = phases[place];
            let mut step = Step {
                phase,
                reads: Vec::new(),
                writes: Vec::new(),
                acts: false,
                shares: false,
                trains: false,
            };
            for op in std::iter::once(op).chain(inside(place)) {
                let written: Vec<usize> =
                    written(op, phase).into_iter().map(|name| classes.get(name)).collect();
                let made: Vec<usize> = results(op).map(|name| classes.get(name)).collect();
                let has_test = op.attribute(IS_TEST).is_some();
                let keeps = |class: &usize| stored.contains(class);
                step.acts |=
                    effect(op) || written.iter().any(keeps) || (!pir && !has_test && made.iter().any(keeps));
                step.reads.extend(arguments(op).map(|name| classes.get(name)));
                step.writes.extend(written.into_iter().chain(made));
            }
            if phase == Phase::Update {
                // A parameter that an update changes is the same variable before and after.
                let reads: HashSet<usize> = step.reads.iter().copied().collect();
                step.writes.retain(|class| !reads.contains(class));
            }
            step.shares = bodies.shared[place] && phase == Phase::Forward;
            step.trains = phase != Phase::Forward || step.reads.iter().any(|class| after.contains(class));
            if step.trains {
                after.extend(&step.writes);
            }
            steps.push(step);
        }
        Self { topology, classes, stored, steps, bodies }
    }

    /// True if the program has outputs.
    pub(super) fn has_outputs(&self) -> bool {
        (0..self.steps.len()).any(|step| self.is_output(step))
    }

    /// True if an operator trains.
    pub(super) fn trains(&self) -> bool {
        self.steps.iter().any(|step| step.phase != Phase::Forward)
    }

    /// Returns the step that runs a block; `None` for the main block and for blocks that no step runs.
    pub(super) fn owner(&self, block: usize) -> Option<usize> {
        self.bodies.owners[block]
    }

    /// True for an output of the program. Programs traced from dynamic code may also output gradients; these do not count.
    fn is_output(&self, step: usize) -> bool {
        let op = &main(self.topology)[step];
        is_fetch(op) && (op.kind != "builtin.shadow_output" || !self.steps[step].trains)
    }

    /// Returns for each step whether the outputs need it. `outputs` are names of values; without them, the outputs of
    /// the program are used, and effects that do not depend on training.
    pub(super) fn live(&self, outputs: Option<&[String]>) -> Vec<bool> {
        let mut needed: HashSet<usize> =
            outputs.unwrap_or_default().iter().map(|name| self.classes.get(name)).collect();
        let mut live = vec![false; self.steps.len()];
        for (place, step) in self.steps.iter().enumerate().rev() {
            let op = &main(self.topology)[place];
            live[place] = match outputs {
                Some(_) if is_fetch(op) || op.kind == "read" => false,
                None if self.is_output(place) || (step.acts && !step.trains) => true,
                _ if step.shares => true,
                _ => step.writes.iter().any(|class| needed.contains(class)),
            };
            if live[place] {
                needed.extend(&step.reads);
            }
        }
        live
    }

    /// Returns for each step whether the forward pass contains it, as in `clone(for_test=True)`. Constants,
    /// values computed from constants only, and operand lists are removed with the training steps that read them.
    pub(super) fn forward(&self) -> Vec<bool> {
        let mut constants: HashSet<usize> = HashSet::new();
        let mut constant = vec![false; self.steps.len()];
        for (place, step) in self.steps.iter().enumerate() {
            let op = &main(self.topology)[place];
            let like = matches!(short(&op.kind), "full_like" | "ones_like" | "zeros_like" | "fill_any_like");
            let declares = matches!(op.kind.as_str(), "builtin.parameter" | "pd_op.data" | "feed");
            let fixed = like || step.reads.iter().all(|class| constants.contains(class));
            constant[place] = fixed && !declares && !step.acts && !step.trains;
            // Learning rates and moments are not inputs of the network.
            if constant[place] || (op.kind == "pd_op.data" && self.keeps(op)) {
                constants.extend(&step.writes);
            } else {
                for class in &step.writes {
                    constants.remove(class);
                }
            }
        }
        let mut live = vec![false; self.steps.len()];
        let (mut read, mut needed) = (HashSet::<usize>::new(), HashSet::<usize>::new());
        for (place, step) in self.steps.iter().enumerate().rev() {
            // Operand lists are made for their reader.
            let list = main(self.topology)[place].kind == "builtin.combine";
            let serves = step.writes.iter().any(|class| read.contains(class))
                && !step.writes.iter().any(|class| needed.contains(class));
            live[place] = !step.trains && !((constant[place] || list) && serves);
            read.extend(&step.reads);
            if live[place] {
                needed.extend(&step.reads);
            }
        }
        live
    }

    /// True if a result of the operator is stored in a file.
    fn keeps(&self, op: &Operator) -> bool {
        results(op).any(|name| self.stored.contains(&self.classes.get(name)))
    }

    /// Returns names that the main block declares and that live steps read before a live step writes them,
    /// in the order of reading. Each comes with a flag: true if a live step writes it later.
    pub(super) fn inputs(&self, live: &[bool]) -> Vec<(&'t str, bool)> {
        let declared: HashSet<&str> = match self.topology.blocks.first() {
            Some(main) => main.variables.iter().map(|v| v.name.as_str()).collect(),
            None => HashSet::new(),
        };
        let mut written: HashSet<&str> = HashSet::new();
        let mut inputs = Vec::new();
        let mut seen: HashSet<&str> = HashSet::new();
        for (place, op) in main(self.topology).iter().enumerate().filter(|&(place, _)| live[place]) {
            let inside = self.bodies.of_step[place].iter().flat_map(|&b| &self.topology.blocks[b].operators);
            let all: Vec<&Operator> = std::iter::once(op).chain(inside).collect();
            for name in all.iter().flat_map(|op| arguments(op)) {
                if declared.contains(name) && !written.contains(name) && seen.insert(name) {
                    inputs.push(name);
                }
            }
            written.extend(all.iter().flat_map(|op| results(op)));
        }
        inputs.into_iter().map(|name| (name, written.contains(name))).collect()
    }

    /// Returns first results of live steps that no live step reads: the ends of the network.
    pub(super) fn ends(&self, live: &[bool]) -> Vec<String> {
        let steps = || self.steps.iter().enumerate().filter(|&(place, _)| live[place]);
        let read: HashSet<usize> = steps().flat_map(|(_, step)| &step.reads).copied().collect();
        let end = |(place, _): (usize, &Step)| {
            let op = &main(self.topology)[place];
            let unread = results(op).all(|name| !read.contains(&self.classes.get(name)));
            let first = arguments(op).next().and_then(|_| results(op).next());
            first.filter(|_| unread && op.kind != "feed" && !is_fetch(op)).map(str::to_owned)
        };
        steps().filter_map(end).collect()
    }

    /// Fails unless `after`, which contains the steps of `live` of this program, computes the same
    /// outputs: those of the program, or the named ones.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `outputs-changed`.
    pub(super) fn check(&self, live: &[bool], outputs: Option<&[String]>, after: &Topology) -> Result<()> {
        let changed = |text: String| {
            Error::corrupt("outputs-changed", text)
                .hint("nothing was written; strip without `training` to keep all operators")
        };
        // A value that is read but no longer produced.
        let made = |topology: &'_ Topology| -> HashSet<String> {
            let arguments = topology.blocks.iter().flat_map(|b| &b.arguments).cloned();
            let stored = topology.parameters().into_iter().map(|v| v.name.clone());
            let results = topology.operators().flat_map(results).map(str::to_owned);
            arguments.chain(stored).chain(results).collect()
        };
        let (had, has) = (made(self.topology), made(after));
        let lost =
            after.operators().flat_map(arguments).find(|&name| had.contains(name) && !has.contains(name));
        if let Some(name) = lost {
            return Err(changed(format!(
                "an operator reads {}, which no operator writes any more",
                escape(name)
            )));
        }
        let skipped = |step: usize| !live[step] && self.steps[step].trains;
        let before = self.values(self.topology, &self.bodies, skipped, outputs);
        // Named outputs are the only ones of the changed program, if it has any.
        let fetches = main(after).iter().any(is_fetch);
        let now = self.values(after, &Bodies::of(after), |_| false, outputs.filter(|_| !fetches));
        if before.len() != now.len() {
            return Err(changed(format!(
                "the number of outputs changes from {} to {}",
                before.len(),
                now.len()
            )));
        }
        match before.iter().zip(&now).find(|((_, a), (_, b))| a != b) {
            Some(((name, _), _)) => {
                Err(changed(format!("the computation of output {} changes", escape(name))))
            }
            None => Ok(()),
        }
    }

    /// Returns a hash of the computation of each output, in the order of the outputs.
    fn values<'a>(
        &self,
        topology: &'a Topology,
        bodies: &Bodies,
        skipped: impl Fn(usize) -> bool,
        outputs: Option<&'a [String]>,
    ) -> Vec<(&'a str, u64)> {
        let pir = topology.form == Paddle::FORM_PIR;
        // Values by class; new names are those of fetches, which no operator reads.
        let mut values: HashMap<usize, u64> = HashMap::new();
        let value = |values: &HashMap<usize, u64>, name: &str| match self.classes.find(name) {
            Some(class) => values.get(&class).copied().unwrap_or_else(|| hash(&name)),
            None => hash(&name),
        };
        let mut fetched: Vec<(i64, &str, u64)> = Vec::new();
        for (place, op) in main(topology).iter().enumerate() {
            if op.kind == "feed" || skipped(place) {
                continue;
            }
            if is_fetch(op) {
                let column = match op.attribute("col") {
                    Some(AttributeValue::Int(column)) => *column,
                    _ => i64::MAX,
                };
                fetched.extend(arguments(op).map(|name| (column, name, value(&values, name))));
                continue;
            }
            let inside: Vec<&Operator> =
                bodies.of_step[place].iter().flat_map(|&b| &topology.blocks[b].operators).collect();
            let mut hasher = Hashed::default();
            for op in std::iter::once(op).chain(inside.iter().copied()) {
                hasher.operator(op);
                arguments(op).for_each(|name| value(&values, name).hash(&mut hasher.0));
            }
            for op in &inside {
                hasher.debug(&op.inputs);
                op.outputs.iter().filter(|slot| slot.name != RESERVE).for_each(|slot| hasher.debug(slot));
            }
            let step = hasher.0.finish();
            for op in std::iter::once(op).chain(inside) {
                let written = if pir { written_operands(op) } else { Vec::new() };
                for name in written.into_iter().chain(results(op)) {
                    let new = hash(&(value(&values, name), step, name));
                    self.classes.find(name).map(|class| values.insert(class, new));
                }
            }
        }
        if let Some(outputs) = outputs {
            return outputs.iter().map(|name| (name.as_str(), value(&values, name))).collect();
        }
        fetched.sort_by_key(|(column, ..)| *column);
        fetched.into_iter().map(|(_, name, value)| (name, value)).collect()
    }
}

/// Returns the operators of the main block.
fn main(topology: &Topology) -> &[Operator] {
    topology.blocks.first().map_or(&[], |block: &Block| &block.operators)
}

fn effect(op: &Operator) -> bool {
    let name = short(&op.kind);
    let declares = matches!(op.kind.as_str(), "builtin.parameter" | "pd_op.data");
    // A yield forwards values, and a push onto a stack belongs to a pop.
    let silent = results(op).next().is_none() && !op.kind.starts_with("cf.");
    let draws = RANDOM.contains(&name.strip_suffix('_').unwrap_or(name)) && op.attribute(IS_TEST).is_none();
    !is_fetch(op)
        && !declares
        && (silent || draws || EFFECTS.contains(&name.strip_suffix('_').unwrap_or(name)))
}

/// Blocks that each step runs, including nested bodies.
#[derive(Debug)]
struct Bodies {
    of_step: Vec<Vec<usize>>,
    owners: Vec<Option<usize>>,
    /// For each step, true if another one runs the same block.
    shared: Vec<bool>,
}

impl Bodies {
    fn of(topology: &Topology) -> Self {
        let main = main(topology);
        let mut owners: Vec<Option<usize>> = vec![None; topology.blocks.len()];
        let mut of_step = vec![Vec::new(); main.len()];
        let mut shared = vec![false; main.len()];
        for (step, op) in main.iter().enumerate() {
            let mut open: Vec<usize> = op.blocks.clone();
            while let Some(block) = open.pop() {
                // Each block is visited once, even if the file contains cycles.
                match owners.get_mut(block).filter(|_| block > 0) {
                    Some(Some(other)) if *other != step => {
                        shared[*other] = true;
                        shared[step] = true;
                    }
                    Some(owner @ None) => {
                        *owner = Some(step);
                        of_step[step].push(block);
                        open.extend(topology.blocks[block].operators.iter().flat_map(|op| &op.blocks));
                    }
                    _ => {}
                }
            }
            of_step[step].sort_unstable();
        }
        Self { of_step, owners, shared }
    }
}

/// Classes of values that may share memory.
#[derive(Debug, Default)]
struct Classes<'t> {
    places: HashMap<&'t str, usize>,
    /// Class of each name or, before `settle`, a member of the class that is closer to its root.
    parents: Vec<usize>,
    written: HashSet<usize>,
}

impl<'t> Classes<'t> {
    fn of(topology: &'t Topology) -> Self {
        let mut classes = Self::default();
        let variables = topology.blocks.iter().flat_map(|block| {
            block.variables.iter().map(|v| v.name.as_str()).chain(block.arguments.iter().map(String::as_str))
        });
        let in_operators = topology.operators().flat_map(|op| arguments(op).chain(results(op)));
        for name in variables.chain(in_operators) {
            let next = classes.parents.len();
            if *classes.places.entry(name).or_insert(next) == next {
                classes.parents.push(next);
            }
        }
        classes
    }

    fn root(&mut self, mut place: usize) -> usize {
        while self.parents[place] != place {
            self.parents[place] = self.parents[self.parents[place]];
            place = self.parents[place];
        }
        place
    }

    fn unite(&mut self, a: &str, b: &str) {
        let (Some(&a), Some(&b)) = (self.places.get(a), self.places.get(b)) else { return };
        let (a, b) = (self.root(a), self.root(b));
        // The smaller number is kept, so that the result does not depend on the order.
        self.parents[a.max(b)] = a.min(b);
    }

    /// Records values that share memory through `op`, which writes to the operands `written`.
    fn alias(&mut self, topology: &Topology, op: &Operator, written: &[&str]) {
        for name in written {
            self.written.extend(self.places.get(name).copied());
            results(op).for_each(|result| self.unite(name, result));
            self.unite(name, written[0]);
        }
        let made: Vec<&str> = results(op).collect();
        if op.kind == "cf.stack_create" {
            made.windows(2).for_each(|pair| self.unite(pair[0], pair[1]));
        }
        let given: Vec<&str> = arguments(op).collect();
        for block in op.blocks.iter().filter_map(|&block| topology.blocks.get(block)) {
            let yielded: Vec<&str> = match block.operators.last() {
                Some(last) if last.kind == "cf.yield" => arguments(last).collect(),
                _ => Vec::new(),
            };
            // A loop has its condition before its variables.
            let pairs = block.arguments.iter().rev().zip(given.iter().rev()).map(|(a, b)| (a.as_str(), *b));
            let yields = yielded.iter().rev().zip(made.iter().rev()).map(|(a, b)| (*a, *b));
            let loops = block.arguments.iter().rev().zip(yielded.iter().rev()).map(|(a, b)| (a.as_str(), *b));
            for (a, b) in pairs.chain(yields).chain(loops).collect::<Vec<_>>() {
                self.unite(a, b);
            }
        }
    }

    /// Assigns each name its class. Classes without in-place writes are split again.
    fn settle(&mut self) {
        let roots: Vec<usize> = (0..self.parents.len()).map(|place| self.root(place)).collect();
        let written: HashSet<usize> = self.written.iter().map(|&place| roots[place]).collect();
        for (place, (parent, root)) in self.parents.iter_mut().zip(roots).enumerate() {
            *parent = if written.contains(&root) { root } else { place };
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).map(|&place| self.parents[place])
    }

    /// Returns the class of a name; unknown names get a class of their own.
    fn get(&self, name: &str) -> usize {
        self.find(name).unwrap_or(usize::MAX)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Hasher for operators.
#[derive(Default)]
struct Hashed(DefaultHasher);

impl Hashed {
    fn debug(&mut self, value: &impl fmt::Debug) {
        // Writing to a hash cannot fail.
        let _ = write!(self, "{value:?}");
    }

    /// Hashes the kind and the attributes, except for those that a strip changes.
    fn operator(&mut self, op: &Operator) {
        op.kind.hash(&mut self.0);
        for slot in &op.inputs {
            (&slot.name, slot.arguments.len()).hash(&mut self.0);
        }
        let settings = op.attributes.iter();
        for setting in settings.filter(|a| a.name != IS_TEST && !SOURCE.contains(&a.name.as_str())) {
            setting.name.hash(&mut self.0);
            self.debug(&setting.value);
        }
    }
}

impl fmt::Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
