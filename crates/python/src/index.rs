//! An opened checkpoint.

use crate::entry::Entry;
use crate::errors::{OrRaise, raise};
use crate::program::Program;
use crate::values;
use crate::wording::words;
use crate::work::{Interrupted, wait_for};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge::checkpoint::Checkpoint;
use weighbridge::engine::Maps;
use weighbridge::formats::{Names, OpenOptions, biggraph, gguf, hdf5, open_with, paddle, registry};
use weighbridge::phrase::Worded;
use weighbridge::source::{FileSource, LocalFolder, MemorySource};
use weighbridge::{Error, Result};

/// An opened file or folder: native half of the Python class `Checkpoint`.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct Index {
    /// Index of the checkpoint.
    pub(crate) checkpoint: Arc<Checkpoint>,
    /// Its files, mapped on demand.
    pub(crate) maps: Arc<Maps>,
}

impl Index {
    /// Wraps a checkpoint.
    pub(crate) fn new(checkpoint: Checkpoint) -> Self {
        Self { checkpoint: Arc::new(checkpoint), maps: Arc::default() }
    }

    fn entry_at(&self, place: usize) -> Option<Entry> {
        let tensor = self.checkpoint.tensors.get(place)?;
        Some(Entry { tensor: Arc::new(tensor.clone()), maps: self.maps.clone() })
    }
}

/// Program for parameters stored without one.
#[derive(Debug, FromPyObject)]
pub(crate) enum GivenProgram {
    /// Already read.
    Read(Py<Program>),
    /// To be read from a file.
    File(PathBuf),
}

/// Options of opening, named as those of the command.
#[derive(Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Opening {
    pub(crate) format: Option<String>,
    #[pyo3(default)]
    pub(crate) lenient: bool,
    #[pyo3(default)]
    pub(crate) salvage: bool,
    #[pyo3(default)]
    pub(crate) follow_virtual: bool,
    #[pyo3(default)]
    pub(crate) dequantize: bool,
    #[pyo3(default)]
    pub(crate) program: Option<GivenProgram>,
    #[pyo3(default)]
    pub(crate) names: Option<String>,
    #[pyo3(default)]
    pub(crate) entities: Option<PathBuf>,
    #[pyo3(default)]
    pub(crate) config: Option<PathBuf>,
    #[pyo3(default)]
    pub(crate) at: Option<u64>,
    #[pyo3(default)]
    pub(crate) limits: Option<HashMap<String, u64>>,
}

impl Opening {
    /// Converts to options of the library; opens the files they name.
    ///
    /// # Errors
    /// Errors of opening these files; [`weighbridge::Kind::Usage`] for an unknown name or limit.
    pub(crate) fn options(self) -> Result<OpenOptions> {
        let mut options = OpenOptions {
            format: self.format,
            lenient: self.lenient,
            salvage: self.salvage,
            ..OpenOptions::default()
        };
        options.limits.blocks = weighbridge_cli::block_cache();
        match self.program {
            Some(GivenProgram::Read(program)) => {
                let bytes = program.get().topology().bytes.to_vec();
                let source = MemorySource::new("(given program)", bytes);
                options.set_own(paddle::ReadOptions { program: Some(Arc::new(source)), program_info: None });
            }
            Some(GivenProgram::File(path)) => options.set_own(paddle::ReadOptions::of_program(&path)?),
            None => {}
        }
        options.set_own(hdf5::ReadOptions { follow_virtual: self.follow_virtual });
        options.set_own(gguf::ReadOptions { dequantize: self.dequantize });
        let mut biggraph = biggraph::ReadOptions { version: self.at, ..Default::default() };
        if let Some(path) = &self.entities {
            biggraph.entities = Some(Arc::new(LocalFolder::open(path)?));
        }
        if let Some(path) = &self.config {
            biggraph.config = Some(Arc::new(FileSource::open(path)?));
        }
        options.set_own(biggraph);
        options.names = match self.names.as_deref() {
            None | Some("as-stored") => Names::AsStored,
            Some("structured") => Names::Structured,
            Some("variable") => Names::Variable,
            Some(other) => {
                let error = Error::usage("unknown-names", "unknown kind of names");
                return Err(error.expected("as-stored, structured or variable").found(other));
            }
        };
        for (field, value) in self.limits.iter().flatten() {
            options.limits.set(field, *value)?;
        }
        Ok(options)
    }
}

/// Opens the file or folder at `path`; `options` are those of `weighbridge.open`, by name. With `by_open` hints name keywords
/// of `open`, else of format-specific functions.
#[pyfunction]
#[pyo3(signature = (path, options, by_open=false))]
pub(crate) fn open_index(py: Python<'_>, path: PathBuf, options: Opening, by_open: bool) -> PyResult<Index> {
    let asked = by_open.then_some("open");
    let opened = wait_for(py, asked, None, Interrupted::IsLeft, move |_| {
        let options = options.options()?;
        open_with(&path, &options).map_err(|error| registry().offer_salvage(error, &path, &options))
    })?;
    Ok(Index::new(opened))
}

#[pymethods]
impl Index {
    /// Path, or another display name.
    #[getter]
    fn label(&self) -> &str {
        &self.checkpoint.label
    }

    /// Id of the format.
    #[getter]
    fn format(&self) -> &'static str {
        self.checkpoint.shown_format()
    }

    /// Kind of file within the format.
    #[getter]
    fn kind(&self) -> &'static str {
        self.checkpoint.kind
    }

    /// Format and kind of the original, for a checkpoint converted through a bridge format.
    #[getter]
    fn origin(&self) -> Option<(&str, &str)> {
        self.checkpoint.carried_origin().map(|origin| (origin.format.as_str(), origin.kind.as_str()))
    }

    /// Metadata besides the tensors.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::dict(py, self.checkpoint.metadata.iter())
    }

    /// Notes: for each its code, its text, and whether a part of the file is omitted.
    #[getter]
    fn notes(&self) -> Vec<(&'static str, String, bool)> {
        let face = words(Some("open"));
        let notes = self.checkpoint.notes.iter().map(|note| (note, note.text.clone().worded(&face)));
        notes.map(|(note, text)| (note.code.as_str(), text.to_string(), note.omission)).collect()
    }

    /// Damage report, if the checkpoint was salvaged; else `None`.
    #[getter]
    fn damage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let damage = self.checkpoint.damage.as_ref();
        damage.map(|damage| values::json(py, &damage.to_json(self.checkpoint.tensors.len()))).transpose()
    }

    /// Program stored with the parameters.
    #[getter]
    fn program(&self) -> Option<Program> {
        self.checkpoint.topology.clone().map(Program::new)
    }

    /// Size in bytes of all tensors together.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.checkpoint.tensor_bytes()
    }

    /// Document of `ls --json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut document = self.checkpoint.to_json();
        let face = words(Some("open"));
        document["notes"] =
            self.checkpoint.notes.iter().map(|note| note.clone().worded(&face).to_json()).collect();
        values::json(py, &document)
    }

    fn __len__(&self) -> usize {
        self.checkpoint.tensors.len()
    }

    /// Name of each tensor; the path as JSON for names that repeat.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let names: Vec<String> = self.checkpoint.tensors.iter().map(|tensor| tensor.text()).collect();
        let mut counts = HashMap::<&str, u64>::with_capacity(names.len());
        names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
        let key = |(tensor, name): (&weighbridge::TensorEntry, &String)| {
            if counts.get(name.as_str()).is_none_or(|count| *count == 1) {
                return name.clone();
            }
            match tensor.role.slot() {
                Some(slot) => format!("{}/{}", tensor.path.to_json_text(), slot.to_text()),
                None => tensor.path.to_json_text(),
            }
        };
        PyList::new(py, self.checkpoint.tensors.iter().zip(&names).map(key).collect::<Vec<_>>())
    }

    /// Path and slot of each tensor.
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for tensor in &self.checkpoint.tensors {
            let slot = tensor.role.slot().map(|slot| values::part(py, slot));
            let pair: (Bound<'_, PyTuple>, Option<Bound<'_, PyAny>>) =
                (values::path(py, &tensor.path)?, slot);
            list.append(pair)?;
        }
        Ok(list)
    }

    /// Tensor number `place`.
    fn entry(&self, place: usize) -> PyResult<Entry> {
        self.entry_at(place).ok_or_else(|| PyIndexError::new_err("tensor number out of range"))
    }

    /// Number of the tensor that `name` names; raises if there is none, or several.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        let found = self.checkpoint.tensor(name).or_raise(py)?;
        let same = |other: &weighbridge::TensorEntry| std::ptr::eq(found, other);
        let place = self.checkpoint.tensors.iter().position(same);
        place.ok_or_else(|| raise(py, Error::usage("no-such-tensor", "no tensor has this name")))
    }
}
