//! The executor.

use super::action::{Action, parse};
use super::compute::{Computer, Scaling};
use super::scope::{Scope, Value};
use super::step::Step;
use super::storage::undefined;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Element, Rounding};
use weighbridge_core::topology::{Topology, VariableKind};
use weighbridge_io::engine::RunOptions;

/// Executor of programs that save and load tensors: see [the module](super).
#[derive(Debug, Clone)]
pub struct Executor {
    /// Folder below which files are read and written.
    pub folder: PathBuf,
    /// True to allow programs to replace files, if the program requests it.
    pub replace: bool,
    /// Options for writing files.
    pub run: RunOptions,
    /// Limits for reading files.
    pub limits: Limits,
    /// Rounding mode of conversions to `f16` and `bf16`.
    pub rounding: Rounding,
    /// Memory budget in bytes for all computed tensors of a run, and for the vocabularies, LoD and row indices of its
    /// variables. The written files may have twice as many bytes, plus eight times the bytes of read and fed tensors.
    pub memory: u64,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Bytes of the tensors in the file that was read or written, including headers.
    pub bytes: u64,
}

impl Executor {
    /// Creates an executor for files below `folder`. It replaces files if a program requests it, rounds as
    /// Paddle 2.6.2 does, and computes up to 1 GiB.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            replace: true,
            run: RunOptions::default(),
            limits: Limits::default(),
            rounding: Rounding::Paddle262,
            memory: 1 << 30,
        }
    }

    /// Returns the steps of a program, with the files that it would read and write. No file is accessed.
    ///
    /// # Errors
    /// Errors in the program itself: [`weighbridge_core::Kind::Unsupported`], `unknown-operators` with
    /// all of them; [`weighbridge_core::Kind::Corrupt`]: `no-main-block`, `operator-arity`,
    /// `missing-attribute`, `attribute-type`, `attribute-value`, `unsafe-name`.
    pub fn plan(&self, topology: &Topology) -> Result<Vec<Step>> {
        let mut steps = self.actions(topology)?;
        Ok(steps.drain(..).map(|(step, _)| step).collect())
    }

    /// Runs a program. `feeds` are values for its `feed` operators, or for variables that it reads
    /// but does not write; for duplicate names the last value is used. Returns the values of its `fetch`
    /// operators, in the order of `col`.
    ///
    /// # Errors
    /// Same as [`plan`](Self::plan); before anything runs, [`weighbridge_core::Kind::Mismatch`],
    /// `undefined-variable`, and [`weighbridge_core::Kind::Usage`]: `missing-feed`, `unknown-feed`. Errors from reading
    /// and writing files; `exists`, `not-savable`, `not-loadable`, `seek-outside`,
    /// `no-such-cast`, `operator-dtype`; [`weighbridge_core::Kind::Limit`], `memory`, `too-much-written`. On error
    /// the files written so far are kept, and variables keep their values.
    pub fn run(
        &self,
        topology: &Topology,
        scope: &mut Scope,
        feeds: &[(String, TensorEntry)],
    ) -> Result<Vec<(String, TensorEntry)>> {
        self.run_and_tell(topology, scope, feeds, &mut |_, _| ())
    }

    /// Same as [`run`](Self::run); `report` is called after each step.
    ///
    /// # Errors
    /// Same as [`run`](Self::run).
    pub fn run_and_tell(
        &self,
        topology: &Topology,
        scope: &mut Scope,
        feeds: &[(String, TensorEntry)],
        report: &mut dyn FnMut(&Step, Done),
    ) -> Result<Vec<(String, TensorEntry)>> {
        let steps = self.actions(topology)?;
        let feeds: BTreeMap<&str, &TensorEntry> =
            feeds.iter().map(|(name, entry)| (name.as_str(), entry)).collect();
        check_feeds(&steps, &feeds)?;
        let fed: BTreeSet<&str> = steps.iter().filter_map(|(_, action)| fed(action)).collect();
        check_values(&steps, scope, feeds.keys().copied().filter(|name| !fed.contains(name)))?;

        for (name, &entry) in feeds.iter().filter(|(name, _)| !fed.contains(**name)) {
            scope.set(*name, Value::Tensor(entry.clone()));
        }
        let given: u64 = scope.iter().map(|(_, value)| length(value)).fold(0, u64::saturating_add);
        let fed_bytes = feeds.values().map(|entry| entry.bytes()).fold(given, u64::saturating_add);
        let mut budget = WriteBudget { remaining: self.memory.saturating_mul(2), read: BTreeSet::new() };
        budget.grow(fed_bytes);
        let mut job = Job {
            budget,
            executor: self,
            kinds: kinds(topology),
            feeds,
            fetched: BTreeMap::new(),
            computer: Computer { rounding: self.rounding, memory: self.memory, used: 0 },
        };
        for (step, action) in &steps {
            if self.run.progress.stopped() {
                return Err(Error::cancelled());
            }
            let bytes = job.act(action, scope).map_err(|e| e.within(step.name()))?;
            report(step, Done { bytes });
        }
        Ok(job.fetched.into_values().collect())
    }

    fn actions(&self, topology: &Topology) -> Result<Vec<(Step, Action)>> {
        let steps = parse(topology, &self.folder)?;
        let mut cols = BTreeSet::new();
        for (step, action) in &steps {
            if let Action::Fetch { col, .. } = action
                && !cols.insert(*col)
            {
                return Err(Error::corrupt("attribute-value", "duplicate `col` of `fetch` operators")
                    .found(col)
                    .within(step.name()));
            }
        }
        Ok(steps)
    }
}

/// Returns the variable that a `feed` operator writes.
fn fed(action: &Action) -> Option<&str> {
    match action {
        Action::Feed { to } => Some(to),
        _ => None,
    }
}

/// Fails if a `feed` operator has no value, or a value is not used.
fn check_feeds(steps: &[(Step, Action)], feeds: &BTreeMap<&str, &TensorEntry>) -> Result<()> {
    let mut wanted = BTreeSet::new();
    let mut used = BTreeSet::new();
    for (_, action) in steps {
        wanted.extend(fed(action));
        used.extend(action.reads().into_iter().map(String::as_str));
    }
    let missing: Vec<_> = wanted.iter().copied().filter(|name| !feeds.contains_key(name)).collect();
    if !missing.is_empty() {
        return Err(
            Error::usage("missing-feed", "the program needs more fed values").expected(missing.join(", "))
        );
    }
    let unknown: Vec<_> =
        feeds.keys().copied().filter(|&name| !wanted.contains(name) && !used.contains(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let error =
        Error::usage("unknown-feed", "the program does not read the fed value").found(unknown.join(", "));
    let wanted: Vec<_> = wanted.into_iter().collect();
    Err(if wanted.is_empty() {
        error
    } else {
        error.hint(format_args!("feed one of: {}", wanted.join(", ")))
    })
}

/// Fails if a variable is read before it has a value.
fn check_values<'a>(
    steps: &'a [(Step, Action)],
    scope: &'a Scope,
    fed: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let mut defined: BTreeSet<&str> = scope.iter().map(|(name, _)| name).chain(fed).collect();
    for (step, action) in steps {
        if let Some(name) = action.reads().into_iter().find(|name| !defined.contains(name.as_str())) {
            return Err(undefined(name)
                .within(step.name())
                .hint("load, compute or feed the variable first; no operator was run"));
        }
        defined.extend(action.writes().iter().map(String::as_str));
    }
    Ok(())
}

/// Returns the kinds of the variables of the main block.
fn kinds(topology: &Topology) -> HashMap<&str, &VariableKind> {
    let variables = topology.blocks.iter().take(1).flat_map(|block| &block.variables);
    variables.map(|variable| (variable.name.as_str(), &variable.kind)).collect()
}

/// State of a run.
struct Job<'a> {
    executor: &'a Executor,
    kinds: HashMap<&'a str, &'a VariableKind>,
    feeds: BTreeMap<&'a str, &'a TensorEntry>,
    fetched: BTreeMap<i64, (String, TensorEntry)>,
    computer: Computer,
    budget: WriteBudget,
}

/// Budget of bytes to write: a short program could save one tensor thousands of times.
pub(super) struct WriteBudget {
    remaining: u64,
    /// Files that were read. Each is counted once.
    read: BTreeSet<PathBuf>,
}

impl WriteBudget {
    /// Bytes that may be written for each byte that is read or fed.
    const BYTES_PER_INPUT_BYTE: u64 = 8;

    fn grow(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_add(bytes.saturating_mul(Self::BYTES_PER_INPUT_BYTE));
    }

    /// Extends the budget by the bytes read from a file.
    fn read(&mut self, file: &Path, bytes: u64) {
        if self.read.insert(file.to_owned()) {
            self.grow(bytes);
        }
    }

    /// Charges the length of a file to be written.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `too-much-written`.
    pub(super) fn write(&mut self, bytes: u64) -> Result<()> {
        let Some(remaining) = self.remaining.checked_sub(bytes) else {
            return Err(Error::limit("too-much-written", "the program writes far more than it reads")
                .expected(format_args!("at most {} more bytes", self.remaining))
                .found(bytes)
                .hint("if you trust the program, raise the memory budget; the write limit is twice that budget plus 8 times the bytes read"));
        };
        self.remaining = remaining;
        Ok(())
    }
}

/// Returns the approximate length of an existing value in a file.
fn length(value: &Value) -> u64 {
    match value {
        Value::Tensor(entry) => entry.bytes(),
        Value::Words(words) => {
            words.iter().map(|(word, _)| word.as_bytes().len() as u64 + 12).fold(0, u64::saturating_add)
        }
    }
}

impl Job<'_> {
    /// Runs one operator. Returns the number of bytes read from, or written to, a file.
    fn act(&mut self, action: &Action, scope: &mut Scope) -> Result<u64> {
        let Self { executor, kinds, feeds, fetched, computer, budget } = self;
        let (to, value) = match action {
            Action::Feed { to } => {
                let entry = feeds.get(to.as_str()).ok_or_else(|| undefined(to))?;
                (to, Value::Tensor((*entry).clone()))
            }
            Action::Fetch { from, col } => {
                fetched.insert(*col, (from.clone(), tensor(scope, from)?.clone()));
                return Ok(0);
            }
            Action::Save(save) => return executor.save(save, scope, computer, budget),
            Action::Load { to, file, part, as_f16 } => {
                let kind = kinds.get(to.as_str()).copied();
                let (value, bytes) = executor.load(to, file, part.as_ref(), *as_f16, kind, computer)?;
                computer.charge(&value).map_err(|e| e.on_tensor(to))?;
                budget.read(file, bytes);
                scope.set(to, value);
                return Ok(bytes);
            }
            Action::LoadCombine { to, file, as_f16 } => {
                let kind = |name: &str| kinds.get(name).map(|&kind| kind.clone());
                let (values, bytes) = executor.load_combine(to, file, *as_f16, kind, computer)?;
                values.iter().try_for_each(|value| computer.charge(value))?;
                budget.read(file, bytes);
                to.iter().zip(values).for_each(|(name, value)| scope.set(name, value));
                return Ok(bytes);
            }
            Action::Fill { to, shape, dtype, number } => {
                (to, Value::Tensor(computer.fill(shape.clone(), *dtype, *number)?))
            }
            Action::Assign { from, to } => {
                let value = scope.get(from).ok_or_else(|| undefined(from))?;
                computer.charge(value).map_err(|e| e.on_tensor(to))?;
                (to, value.clone())
            }
            Action::Cast { from, to, dtype } => {
                let entry = dense(scope, from)?;
                (to, Value::Tensor(computer.cast(entry, *dtype).map_err(|e| e.on_tensor(from))?))
            }
            Action::Scale { from, to, scale, scale_from, bias, bias_after_scale } => {
                let scale = match scale_from {
                    None => Element::Float(*scale),
                    Some(name) => Computer::single(tensor(scope, name)?).map_err(|e| e.on_tensor(name))?,
                };
                let scaling = Scaling { scale, bias: *bias, bias_after_scale: *bias_after_scale };
                let entry = tensor(scope, from)?;
                (to, Value::Tensor(computer.scale(entry, scaling).map_err(|e| e.on_tensor(from))?))
            }
        };
        scope.set(to, value);
        Ok(0)
    }
}

/// Returns the tensor of a variable, dense or of selected rows.
fn tensor<'a>(scope: &'a Scope, name: &str) -> Result<&'a TensorEntry> {
    match scope.get(name).ok_or_else(|| undefined(name))? {
        Value::Tensor(entry) => Ok(entry),
        Value::Words(_) => {
            Err(Error::mismatch("not-a-tensor", "the variable is a vocabulary, not a tensor").found(name))
        }
    }
}

/// Returns the dense tensor of a variable.
fn dense<'a>(scope: &'a Scope, name: &str) -> Result<&'a TensorEntry> {
    let entry = tensor(scope, name)?;
    if super::scope::is_selected_rows(entry) {
        return Err(
            Error::mismatch("not-a-tensor", "the variable has selected rows, not a dense tensor").found(name)
        );
    }
    Ok(entry)
}
