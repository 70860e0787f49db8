//! Model in memory: a tree of named parameters.

use super::entries;
use super::raw::Reader;
use super::tensor::{MEMORY, memory};
use super::write::put_address;
use super::{FileKind, Parameter, Primitiv, read, wire};
use std::collections::{BTreeMap, BTreeSet};
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, TensorPath, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_format::WriteFormat;
use weighbridge_format::{OpenOptions, PlanOptions};
use weighbridge_io::source::SourceRef;

/// Parameters by address. An address consists of the names of the submodels from the root down and the name of the
/// parameter. A name may be any bytes.
///
/// Parameters and submodels of a model share one namespace. A submodel exists if a parameter is below it, or if it was
/// added; submodels without parameters are not stored in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// No address is a prefix of another one.
    parameters: BTreeMap<TensorPath, Parameter>,
    /// Explicitly added submodels, with or without parameters.
    submodels: BTreeSet<TensorPath>,
}

impl Model {
    /// Creates a model without parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.parameters.len()
    }

    /// True where there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Adds a parameter to the root.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `name-taken`, where a parameter or submodel has that name.
    pub fn add_parameter(&mut self, name: impl Into<Name>, parameter: Parameter) -> Result<()> {
        self.insert(TensorPath::new([name.into()]), parameter)
    }

    /// Adds a submodel to the root.
    ///
    /// # Errors
    /// As [`add_parameter`](Self::add_parameter).
    pub fn add_submodel(&mut self, name: impl Into<Name>, model: Self) -> Result<()> {
        self.graft(TensorPath::new([name.into()]), model)
    }

    /// Adds a parameter at an address, and creates the submodels on the way.
    ///
    /// # Errors
    /// As [`add_parameter`](Self::add_parameter); `empty-path` for an address without parts.
    pub fn insert(&mut self, path: TensorPath, parameter: Parameter) -> Result<()> {
        self.check_free(&path)?;
        self.parameters.insert(path, parameter);
        Ok(())
    }

    /// Adds a submodel at an address, and creates the submodels on the way.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn graft(&mut self, at: TensorPath, model: Self) -> Result<()> {
        self.check_free(&at)?;
        let moved = |path: &TensorPath| TensorPath::new([at.parts(), path.parts()].concat());
        self.submodels.extend(model.submodels.iter().map(moved));
        self.parameters.extend(model.parameters.into_iter().map(|(path, p)| (moved(&path), p)));
        self.submodels.insert(at);
        Ok(())
    }

    /// Returns the parameter at an address.
    pub fn get(&self, path: &TensorPath) -> Option<&Parameter> {
        self.parameters.get(path)
    }

    /// Returns the parameter at an address, mutable.
    pub fn get_mut(&mut self, path: &TensorPath) -> Option<&mut Parameter> {
        self.parameters.get_mut(path)
    }

    /// Returns the parameter at an address in text form: `fc1.w`, or a JSON array of names if a name contains a dot.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `unknown-address`.
    pub fn parameter(&self, address: &str) -> Result<&Parameter> {
        let path = TensorPath::parse(address);
        self.get(&path).ok_or_else(|| unknown(&path))
    }

    /// True where a submodel is at an address. The root is a submodel.
    pub fn has_submodel(&self, path: &TensorPath) -> bool {
        path.parts().is_empty() || (!self.parameters.contains_key(path) && self.anything_below(path))
    }

    /// Yields addresses and parameters in file order: by the bytes of the names, part by part.
    pub fn walk(&self) -> impl ExactSizeIterator<Item = (&TensorPath, &Parameter)> {
        self.parameters.iter()
    }

    /// Same as [`walk`](Self::walk), with mutable parameters.
    pub fn walk_mut(&mut self) -> impl ExactSizeIterator<Item = (&TensorPath, &mut Parameter)> {
        self.parameters.iter_mut()
    }

    /// Returns a copy of the submodel at an address, as a separate model.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `unknown-address`, where it does not exist.
    pub fn extract(&self, at: &TensorPath) -> Result<Self> {
        if !self.has_submodel(at) {
            return Err(unknown(at));
        }
        let below = |path: &TensorPath| path.starts_with(at);
        let tail = |path: &TensorPath| TensorPath::new(&path.parts()[at.parts().len()..]);
        Ok(Self {
            parameters: self
                .parameters
                .range(at..)
                .take_while(|(path, _)| below(path))
                .map(|(path, parameter)| (tail(path), parameter.clone()))
                .collect(),
            submodels: self
                .submodels
                .range(at..)
                .take_while(|path| below(path))
                .filter(|path| *path != at)
                .map(tail)
                .collect(),
        })
    }

    /// Removes and returns the parameter at an address.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `unknown-address`, where it does not exist.
    pub fn remove_parameter(&mut self, path: &TensorPath) -> Result<Parameter> {
        self.parameters.remove(path).ok_or_else(|| unknown(path))
    }

    /// Removes the submodel at an address and returns it as a separate model.
    ///
    /// # Errors
    /// As [`extract`](Self::extract).
    pub fn remove_submodel(&mut self, at: &TensorPath) -> Result<Self> {
        if !self.has_submodel(at) {
            return Err(unknown(at));
        }
        let tail = |path: &TensorPath| TensorPath::new(&path.parts()[at.parts().len()..]);
        let mut taken = Self::new();
        let paths = |path: &&TensorPath| path.starts_with(at);
        let below: Vec<_> = self.parameters.range(at..).map(|(path, _)| path).take_while(paths).collect();
        for path in below.into_iter().cloned().collect::<Vec<_>>() {
            if let Some(parameter) = self.parameters.remove(&path) {
                taken.parameters.insert(tail(&path), parameter);
            }
        }
        for path in self.submodels.range(at..).take_while(paths).cloned().collect::<Vec<_>>() {
            self.submodels.remove(&path);
            if path != *at {
                taken.submodels.insert(tail(&path));
            }
        }
        Ok(taken)
    }

    /// Moves a parameter or submodel to another address. On an error nothing changes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `unknown-address`, `name-taken`, `empty-path`.
    pub fn rename(&mut self, from: &TensorPath, to: TensorPath) -> Result<()> {
        if from.parts().is_empty() {
            return Err(empty_path());
        }
        if let Some(parameter) = self.parameters.remove(from) {
            let free = self.check_free(&to);
            let place = if free.is_ok() { to } else { from.clone() };
            self.parameters.insert(place, parameter);
            return free;
        }
        let was_added = self.submodels.contains(from);
        let model = self.remove_submodel(from)?;
        let free = self.check_free(&to);
        let place = if free.is_ok() { to } else { from.clone() };
        let stays_implied = free.is_err() && !was_added;
        self.graft(place, model)?;
        if stays_implied {
            self.submodels.remove(from);
        }
        free
    }

    /// Adds all parameters and submodels of another model. Submodels with the same address are merged. On an error
    /// nothing changes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `name-taken`, where a parameter has the address of a
    /// parameter or submodel of this model.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        for path in other.parameters.keys() {
            self.check_free(path)?;
        }
        for path in &other.submodels {
            self.check_no_parameter_on_the_way(path)?;
        }
        self.parameters.extend(other.parameters);
        self.submodels.extend(other.submodels);
        Ok(())
    }

    /// Fails where `path` is not free.
    fn check_free(&self, path: &TensorPath) -> Result<()> {
        if path.parts().is_empty() {
            return Err(empty_path());
        }
        self.check_no_parameter_on_the_way(path)?;
        if self.anything_below(path) {
            return Err(taken(path, path, "a submodel"));
        }
        Ok(())
    }

    /// Fails where `path` or a prefix of it is a parameter. Such a parameter directly precedes `path` in order: only
    /// addresses that continue it could be between them.
    fn check_no_parameter_on_the_way(&self, path: &TensorPath) -> Result<()> {
        match self.parameters.range(..=path).next_back() {
            Some((other, _)) if path.starts_with(other) => Err(taken(path, other, "a parameter")),
            _ => Ok(()),
        }
    }

    /// True where a parameter or submodel has this address or a continuation of it.
    fn anything_below(&self, path: &TensorPath) -> bool {
        let parameter = self.parameters.range(path..).next().map(|(path, _)| path);
        let submodel = self.submodels.range(path..).next();
        parameter.into_iter().chain(submodel).any(|next| next.starts_with(path))
    }

    /// Reads a model file. With `with_stats` false, stats are checked and omitted.
    ///
    /// # Errors
    /// As [`super::Tensor::read`].
    pub fn read(source: SourceRef, options: &OpenOptions, with_stats: bool) -> Result<Self> {
        Self::read_noted(source, options, with_stats).map(|(model, _)| model)
    }

    pub(super) fn read_noted(
        source: SourceRef,
        options: &OpenOptions,
        with_stats: bool,
    ) -> Result<(Self, Vec<Note>)> {
        let label = source.label().to_owned();
        let read = || {
            let mut reader = Reader::new(source.clone(), options)?;
            reader.expect(FileKind::Model)?;
            let entries = reader.model()?;
            let notes = reader.finish()?;
            let mut model = Self::new();
            for entry in entries {
                let named = |e: Error| e.on_tensor(&entry.path);
                let parameter = Parameter::from_raw(&source, entry.parameter, with_stats).map_err(named)?;
                model.insert(entry.path, parameter).map_err(|e| e.at(entry.at))?;
            }
            Ok((model, notes))
        };
        read().map_err(|e: Error| e.in_file(label))
    }

    /// Same as [`read`](Self::read), from bytes with default options.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_bytes(bytes: impl Into<Vec<u8>>, with_stats: bool) -> Result<Self> {
        Self::read(memory(bytes.into()), &OpenOptions::default(), with_stats)
    }

    /// Returns the bytes of a model file, as the original writes them.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] for numbers of parameters or stats, or lengths of names, above 32 bits.
    pub fn to_bytes(&self, with_stats: bool) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        wire::put_header(&mut out, FileKind::Model);
        wire::put_uint(&mut out, wire::count("parameters", self.parameters.len())?);
        for (path, parameter) in &self.parameters {
            put_address(&mut out, path)?;
            parameter.put(&mut out, with_stats)?;
        }
        Ok(out)
    }

    /// Converts the tensors of an index of any format: optimizer state becomes stats, other tensors become
    /// parameters.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] where primitiv cannot store them.
    pub fn from_checkpoint(checkpoint: &Checkpoint, with_stats: bool) -> Result<Self> {
        let mut model = Self::new();
        for held in entries::parameters(checkpoint, with_stats)? {
            model.insert(held.path().clone(), Parameter::from_held(&held)?)?;
        }
        Ok(model)
    }

    /// Returns an index of this model, with a copy of its values.
    ///
    /// # Errors
    /// As [`super::Tensor::to_checkpoint`].
    pub fn to_checkpoint(&self, with_stats: bool) -> Result<Checkpoint> {
        let mut checkpoint = read::start(FileKind::Model, MEMORY);
        for (path, parameter) in &self.parameters {
            parameter.push(path, with_stats, &mut checkpoint.tensors)?;
        }
        Ok(checkpoint)
    }

    /// Plans a model file.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    pub fn plan(&self, with_stats: bool) -> Result<WritePlan> {
        Primitiv.plan(&self.to_checkpoint(with_stats)?, &PlanOptions::default())
    }
}

fn empty_path() -> Error {
    Error::mismatch("empty-path", "the address is empty; it needs at least one name")
}

fn taken(path: &TensorPath, by: &TensorPath, what: &str) -> Error {
    Error::mismatch("name-taken", format!("{what} has the address `{by}` already"))
        .on_tensor(path)
        .hint("choose another name: parameters and submodels share one namespace")
}

/// Error for an address that a model does not have.
pub(super) fn unknown(path: &TensorPath) -> Error {
    Error::mismatch("unknown-address", "the model has no parameter or submodel at this address")
        .on_tensor(escape_text(&path.to_json_text()))
}
