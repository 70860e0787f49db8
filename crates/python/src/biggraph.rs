//! Native part of `weighbridge.biggraph`: folders of versioned PyTorch-BigGraph checkpoints.

use crate::errors::{OrRaise, raise};
use crate::index::Index;
use crate::save::{Given, assembled, check_unique_row_names};
use crate::values;
use crate::wording::{losses_json, words};
use crate::work::{Interrupted, Watcher, wait};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use weighbridge::checkpoint::{Checkpoint, Name, Role, Value};
use weighbridge::engine::{Progress, RunOptions};
use weighbridge::formats::biggraph::{BigGraph, FileName, version_file};
use weighbridge::formats::{Format, OpenOptions, PlanOptions, WriteFormat};
use weighbridge::phrase::Worded;
use weighbridge::plan::{Content, PlannedFile, WritePlan};
use weighbridge::source::read_vec;
use weighbridge::store::{
    Carry, CheckpointStore, CommitOptions, Expected, LinkForm, Previous, RecoverOptions, RollbackOptions,
    Staging, StoreOptions, SweepOptions,
};
use weighbridge::{Error, Result, ops};

/// File name of the configuration.
const CONFIG: &str = "config.json";
/// File name of the training statistics.
const STATS: &str = "training_stats.json";

/// Forwards the progress of a store to the watcher of its current job: a store has one `Progress` for all jobs.
#[derive(Debug, Default)]
struct Relay(Mutex<Option<Arc<Watcher>>>);

impl Relay {
    fn current(&self) -> Option<Arc<Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `work`, of `bytes` bytes, with its progress forwarded to `watcher`.
    fn forward<T>(&self, watcher: &Arc<Watcher>, bytes: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        watcher.begin(bytes);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher.clone());
        let result = work();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }
}

impl Progress for Relay {
    // `begin` is ignored: it is called for each file, and `forward` has announced the total.
    fn advance(&self, bytes: u64) {
        if let Some(watcher) = self.current() {
            watcher.advance(bytes);
        }
    }
    fn stopped(&self) -> bool {
        self.current().is_some_and(|watcher| watcher.stopped())
    }
}

/// A folder of checkpoint versions: native half of the Python class `CheckpointStore`.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct Store {
    store: CheckpointStore,
    run: RunOptions,
    relay: Arc<Relay>,
}

impl Store {
    /// Runs `work` on the folder, without the GIL.
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&CheckpointStore) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let store = self.store.clone();
        wait(py, None, Interrupted::Stops, move |_| work(&store))
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (folder, expected=None, sync=true, threads=0, memory=256 << 20))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        expected: Option<BTreeMap<String, u64>>,
        sync: bool,
        threads: usize,
        memory: u64,
    ) -> PyResult<Self> {
        let relay = Arc::new(Relay::default());
        let run = RunOptions { threads, memory, sync, progress: relay.clone() };
        let options =
            StoreOptions { run: run.clone(), expected: expected.map(Expected), ..Default::default() };
        let store = py.detach(|| CheckpointStore::open(folder, options)).or_raise(py)?;
        Ok(Self { store, run, relay })
    }

    /// Content of the folder: current version, all versions, snapshots, and leftover files.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.with(py, |store| Ok(store.state()?.to_json()))?;
        values::json(py, &state)
    }

    /// Current version; 0 if there is none yet.
    fn current(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, CheckpointStore::current)
    }

    /// Content of a file of the folder; `None` if it does not exist.
    fn content(&self, py: Python<'_>, name: String) -> PyResult<Option<Vec<u8>>> {
        self.with(py, move |store| {
            let Some(source) = store.source(&name)? else { return Ok(None) };
            weighbridge::Limits::check(
                "bytes of a file",
                "header_bytes",
                source.len(),
                weighbridge::Limits::default().header_bytes,
            )?;
            read_vec(&*source, 0, source.len()).map(Some)
        })
    }

    /// Opens a complete version as one checkpoint.
    fn open(&self, py: Python<'_>, version: u64) -> PyResult<Index> {
        let mut options = OpenOptions::default();
        options.limits.blocks = weighbridge_cli::block_cache();
        self.with(py, move |store| store.checkpoint(version, &options)).map(Index::new)
    }

    /// Writes one file of a version under its final name, atomically, without the lock of the folder: partition `part` of a
    /// table, or the parameters if `part` is `None`. `state` is the optimizer state, as `torch.save` writes it. Several
    /// processes may write files of one version.
    #[pyo3(signature = (version, part, tensors, attributes, state=None))]
    fn write_file<'py>(
        &self,
        py: Python<'py>,
        version: u64,
        part: Option<u64>,
        tensors: Vec<Given<'py>>,
        attributes: &Bound<'py, PyDict>,
        state: Option<Vec<u8>>,
    ) -> PyResult<()> {
        let label = self.store.folder().display().to_string();
        let mut checkpoint = assembled(py, None, &tensors, None, label)?;
        let attributes = values::metadata(attributes)?;
        let pairs = attributes.iter().map(|(key, value)| (Name::from(key), value.clone())).collect();
        checkpoint.metadata.set("attributes", Value::Map(pairs));
        let run = self.run.clone();
        self.with(py, move |store| {
            let (file, _) = version_file(&checkpoint, version, part, state.as_deref())?;
            save_file(store, file, &run)
        })
    }

    /// Locks the folder until `release`; returns the store that holds the lock.
    fn hold(&self, py: Python<'_>) -> PyResult<Self> {
        let store = self.with(py, CheckpointStore::hold)?;
        Ok(Self { store, run: self.run.clone(), relay: self.relay.clone() })
    }

    /// Releases the lock, at once or when the version being written ends.
    fn release(&self) {
        self.store.release();
    }

    /// Begins the next version. The folder stays locked until the version is committed or aborted.
    fn begin(&self, py: Python<'_>) -> PyResult<NextVersion> {
        let staging = self.with(py, CheckpointStore::begin)?;
        Ok(NextVersion {
            version: staging.version(),
            store: self.store.clone(),
            run: self.run.clone(),
            relay: self.relay.clone(),
            staging: Arc::new(Mutex::new(Some(staging))),
        })
    }

    /// Deletes all versions except the `keep` newest complete ones and those of snapshots.
    fn prune<'py>(&self, py: Python<'py>, keep: usize) -> PyResult<Bound<'py, PyAny>> {
        let report = self.with(py, move |store| Ok(store.prune(keep)?.to_json()))?;
        values::json(py, &report)
    }

    /// Makes version `to` current.
    #[pyo3(signature = (to, delete_newer=false))]
    fn rollback<'py>(&self, py: Python<'py>, to: u64, delete_newer: bool) -> PyResult<Bound<'py, PyAny>> {
        let options = RollbackOptions { delete_newer };
        let report = self.with(py, move |store| Ok(store.rollback(to, options)?.to_json()))?;
        values::json(py, &report)
    }

    /// Makes the highest complete version current, if the version file is missing or invalid.
    #[pyo3(signature = (verify=true, start_over=false))]
    fn recover<'py>(&self, py: Python<'py>, verify: bool, start_over: bool) -> PyResult<Bound<'py, PyAny>> {
        let options = RecoverOptions { verify: verify.then(OpenOptions::default), start_over };
        let report = self.with(py, move |store| Ok(store.recover(&options)?.to_json()))?;
        values::json(py, &report)
    }

    /// Removes leftovers of crashed writers and, if requested, files of versions other than the current one.
    #[pyo3(signature = (newer=false, older=false, remnants=false, temporary=false))]
    fn sweep<'py>(
        &self,
        py: Python<'py>,
        newer: bool,
        older: bool,
        remnants: bool,
        temporary: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = SweepOptions { newer, older, remnants, temporary };
        let report = self.with(py, move |store| Ok(store.sweep(options)?.to_json()))?;
        values::json(py, &report)
    }

    /// Saves the current version as the snapshot `epoch_N`, which protects its files from deletion.
    #[pyo3(signature = (epoch, form="relative"))]
    fn preserve<'py>(&self, py: Python<'py>, epoch: u64, form: &str) -> PyResult<Bound<'py, PyAny>> {
        let form = form_of(form).or_raise(py)?;
        let report = self.with(py, move |store| Ok(store.preserve(epoch, form)?.to_json()))?;
        values::json(py, &report)
    }
}

/// A version being written. It holds the lock of the folder.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct NextVersion {
    version: u64,
    store: CheckpointStore,
    run: RunOptions,
    relay: Arc<Relay>,
    /// `None` once committed or aborted.
    staging: Arc<Mutex<Option<Staging>>>,
}

fn locked(staging: &Mutex<Option<Staging>>) -> MutexGuard<'_, Option<Staging>> {
    staging.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended() -> Error {
    Error::usage("version-ended", "version already committed or aborted").hint("begin a new version")
}

#[pymethods]
impl NextVersion {
    /// Number of the version.
    #[getter]
    fn version(&self) -> u64 {
        self.version
    }

    /// True until the version is committed or aborted.
    #[getter]
    fn is_open(&self) -> bool {
        // A writer holds this mutex for long and may wait for the GIL, which is held here.
        match self.staging.try_lock() {
            Ok(staging) => staging.is_some(),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().is_some(),
        }
    }

    /// Stages the files of these tensors, or of all of `base`; returns a report with the losses. `partitions` has the row count
    /// of each partition, for tables that the configuration does not partition. Without `model` the file of the parameters is
    /// not written.
    #[pyo3(signature = (base, tensors, metadata, settings, partitions, model=true, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "one per Python keyword")]
    fn put<'py>(
        &self,
        py: Python<'py>,
        base: Option<PyRef<'py, Index>>,
        tensors: Vec<Given<'py>>,
        metadata: Option<&Bound<'py, PyDict>>,
        settings: Vec<(String, String)>,
        partitions: BTreeMap<String, Vec<u64>>,
        model: bool,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_made = base.is_none();
        let mut checkpoint =
            assembled(py, base, &tensors, metadata, self.store.folder().display().to_string())?;
        if !partitions.is_empty() {
            checkpoint.metadata.set("partitions", counts(partitions));
        }
        let (staging, store) = (self.staging.clone(), self.store.clone());
        let (run, relay) = (self.run.clone(), self.relay.clone());
        let version = self.version;
        let report = wait(py, progress, Interrupted::Stops, move |watcher| {
            let staging = locked(&staging);
            let staging = staging.as_ref().ok_or_else(ended)?;
            if is_made {
                check_unique_row_names(&checkpoint)?;
            }
            if is_made && !checkpoint.tensors.iter().any(|t| t.role == Role::Embedding) {
                return put_parameters(staging, &checkpoint, model);
            }
            let plan = plan_version(&checkpoint, settings, version)?;
            relay.forward(watcher, plan.bytes(), || put(staging, plan, &store, model, &run))
        })?;
        values::json(py, &report)
    }

    /// Stages the file of one partition of a table; returns the losses.
    #[pyo3(signature = (part, tensors, metadata, progress=None))]
    fn put_partition<'py>(
        &self,
        py: Python<'py>,
        part: u64,
        tensors: Vec<Given<'py>>,
        metadata: Option<&Bound<'py, PyDict>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let label = self.store.folder().display().to_string();
        let checkpoint = assembled(py, None, &tensors, metadata, label)?;
        let (staging, relay, version) = (self.staging.clone(), self.relay.clone(), self.version);
        let report = wait(py, progress, Interrupted::Stops, move |watcher| {
            let staging = locked(&staging);
            let staging = staging.as_ref().ok_or_else(ended)?;
            let (file, losses) = version_file(&checkpoint, version, Some(part), None)?;
            relay.forward(watcher, file.len, || staging.put(file))?;
            Ok(losses_json(&losses))
        })?;
        values::json(py, &report)
    }

    /// Appends lines to the training statistics of the folder, immediately.
    fn append_stats<'py>(&self, py: Python<'py>, lines: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        let staging = self.staging.clone();
        let report = wait(py, None, Interrupted::Stops, move |_| {
            let staging = locked(&staging);
            let staging = staging.as_ref().ok_or_else(ended)?;
            Ok(staging.append_stats(lines.iter().map(String::as_str))?.to_json())
        })?;
        values::json(py, &report)
    }

    /// Makes this version current and releases the lock.
    #[pyo3(signature = (carry="no", keep_previous=false, preserve=None, form="relative"))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        carry: &str,
        keep_previous: bool,
        preserve: Option<u64>,
        form: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let carry = match carry {
            "no" => Carry::No,
            "copy" => Carry::Copy,
            "link" => Carry::Link,
            other => {
                let error = Error::usage("bad-carry", "unknown way to carry files over");
                return Err(raise(py, error.expected("no, copy or link").found(other)));
            }
        };
        let previous = if keep_previous { Previous::Keep } else { Previous::Delete };
        let options = CommitOptions { carry, preserve, form: form_of(form).or_raise(py)?, previous };
        let staging = self.staging.clone();
        let report = wait(py, None, Interrupted::Stops, move |_| {
            let staging = locked(&staging).take().ok_or_else(ended)?;
            let mut report = staging.commit(&options)?;
            report.troubles.word(&words(None));
            Ok(report.to_json())
        })?;
        values::json(py, &report)
    }

    /// Discards the staged files and releases the lock.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| drop(locked(&self.staging).take()));
    }
}

fn form_of(word: &str) -> Result<LinkForm> {
    match word {
        "relative" => Ok(LinkForm::Relative),
        "absolute" => Ok(LinkForm::Absolute),
        "copies" => Ok(LinkForm::Copies),
        other => Err(Error::usage("bad-form", "unknown form of snapshot")
            .expected("relative, absolute or copies")
            .found(other)),
    }
}

/// Row counts of partitions, in the form of the format's metadata.
fn counts(partitions: BTreeMap<String, Vec<u64>>) -> Value {
    let list = |rows: Vec<u64>| Value::List(rows.into_iter().map(Value::U64).collect());
    Value::Map(partitions.into_iter().map(|(name, rows)| (Name::from(name.as_str()), list(rows))).collect())
}

/// Plans the files of a checkpoint as version `version`.
fn plan_version(
    checkpoint: &Checkpoint,
    mut settings: Vec<(String, String)>,
    version: u64,
) -> Result<WritePlan> {
    settings.push(("version".to_owned(), version.to_string()));
    let options = PlanOptions { settings, ..PlanOptions::of_kind("checkpoint") };
    options.check(BigGraph.info())?;
    BigGraph.plan(checkpoint, &options)
}

/// Stages the files of a version; writes files of the folder immediately, as BigGraph does.
fn put(
    staging: &Staging,
    plan: WritePlan,
    store: &CheckpointStore,
    model: bool,
    run: &RunOptions,
) -> Result<Json> {
    let mut names = Vec::new();
    for file in plan.files {
        let name = file.name.clone();
        match FileName::parse(&name) {
            // The store writes the version file last.
            Some(FileName::Version) => continue,
            Some(FileName::Model { .. }) if !model => continue,
            Some(parsed) if parsed.version().is_some() => {
                staging.put(file)?;
            }
            // Existing statistics belong to earlier runs in this folder.
            _ if name == STATS && store.source(STATS)?.is_some() => continue,
            _ if name == CONFIG => staging.write_config(&content(&file)?)?,
            _ => save_file(store, file, run)?,
        }
        names.push(name);
    }
    Ok(json!({
        "version": staging.version(),
        "files": names,
        "losses": losses_json(&plan.losses),
    }))
}

/// Stages the parameters of a version whose partitions are written one by one; writes the configuration.
fn put_parameters(staging: &Staging, checkpoint: &Checkpoint, model: bool) -> Result<Json> {
    let mut names = Vec::new();
    let mut losses = Vec::new();
    if let Some(Value::Text(config)) = checkpoint.metadata.get("config") {
        staging.write_config(config.as_bytes())?;
        names.push(CONFIG.to_owned());
    }
    if model {
        let (file, lost) = version_file(checkpoint, staging.version(), None, None)?;
        names.push(file.name.clone());
        losses = lost;
        staging.put(file)?;
    }
    Ok(json!({
        "version": staging.version(),
        "files": names,
        "losses": losses_json(&losses),
    }))
}

/// Writes a file of the folder under its final name, atomically.
fn save_file(store: &CheckpointStore, file: PlannedFile, run: &RunOptions) -> Result<()> {
    let target = store.folder().join(&file.name);
    let own = PlannedFile { name: String::new(), ..file };
    let plan = WritePlan { format: BigGraph.info().id, kind: "file", files: vec![own], losses: Vec::new() };
    ops::save(&plan, target, true, run).map(|_| ())
}

/// Bytes of a small planned file.
fn content(file: &PlannedFile) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for segment in &file.segments {
        match &segment.content {
            Content::Literal(literal) => bytes.extend_from_slice(literal),
            Content::Tensor { entry, order } => bytes.extend(entry.read_tensor(*order)?),
            Content::Copy { source, offset, .. } => bytes.extend(read_vec(&**source, *offset, segment.len)?),
            _ => {
                return Err(Error::unsupported("not-plain", "file content is encoded, not plain bytes")
                    .in_file(&file.name));
            }
        }
    }
    Ok(bytes)
}
