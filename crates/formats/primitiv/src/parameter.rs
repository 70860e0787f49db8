//! Parameter in memory: a value and its optimizer state.

use super::entries::{self, HeldParameter};
use super::raw::{RawParameter, Reader};
use super::tensor::{MEMORY, memory};
use super::{FileKind, Primitiv, Tensor, read, wire};
use weighbridge_core::checkpoint::{Checkpoint, Name, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_format::WriteFormat;
use weighbridge_format::{OpenOptions, PlanOptions};
use weighbridge_io::source::SourceRef;

/// A value with its stats (optimizer state). Names of stats are unique; their order is kept.
///
/// The original writes stats in the order of a hash table. Here they keep the order of reading or adding, so that
/// a file that is read and written again does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    value: Tensor,
    stats: Vec<(Name, Tensor)>,
}

impl Parameter {
    /// Creates a parameter without stats.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `batched-parameter`, for a value with a batch.
    pub fn new(value: Tensor) -> Result<Self> {
        check_value(&value)?;
        Ok(Self { value, stats: Vec::new() })
    }

    /// Returns the value.
    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// Returns the elements of the value, mutable. See [`set_value`](Self::set_value) for a different shape.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.value.data_mut()
    }

    /// Replaces the value. The stats stay, even if their shapes no longer match.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn set_value(&mut self, value: Tensor) -> Result<()> {
        check_value(&value)?;
        self.value = value;
        Ok(())
    }

    /// Yields the stats in their order.
    pub fn stats(&self) -> impl ExactSizeIterator<Item = (&Name, &Tensor)> {
        self.stats.iter().map(|(name, tensor)| (name, tensor))
    }

    /// Returns the stat with this name.
    pub fn stat(&self, name: impl Into<Name>) -> Option<&Tensor> {
        let name = name.into();
        self.stats.iter().find(|(n, _)| *n == name).map(|(_, tensor)| tensor)
    }

    /// Returns the stat with this name, mutable.
    pub fn stat_mut(&mut self, name: impl Into<Name>) -> Option<&mut Tensor> {
        let name = name.into();
        self.stats.iter_mut().find(|(n, _)| *n == name).map(|(_, tensor)| tensor)
    }

    /// Adds a stat at the end. It may have any shape and batch.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], code `name-taken`, where a stat has that name.
    pub fn add_stat(&mut self, name: impl Into<Name>, tensor: Tensor) -> Result<()> {
        let name = name.into();
        if self.stat(name.clone()).is_some() {
            return Err(Error::mismatch("name-taken", format!("a stat has the name `{name}` already")));
        }
        self.stats.push((name, tensor));
        Ok(())
    }

    /// Removes and returns the stat with this name.
    pub fn remove_stat(&mut self, name: impl Into<Name>) -> Option<Tensor> {
        let name = name.into();
        let place = self.stats.iter().position(|(n, _)| *n == name)?;
        Some(self.stats.remove(place).1)
    }

    /// Removes all stats.
    pub fn clear_stats(&mut self) {
        self.stats.clear();
    }

    /// Reads a parameter file. With `with_stats` false, stats are checked and omitted.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    pub fn read(source: SourceRef, options: &OpenOptions, with_stats: bool) -> Result<Self> {
        Self::read_noted(source, options, with_stats).map(|(parameter, _)| parameter)
    }

    pub(super) fn read_noted(
        source: SourceRef,
        options: &OpenOptions,
        with_stats: bool,
    ) -> Result<(Self, Vec<weighbridge_core::checkpoint::Note>)> {
        let label = source.label().to_owned();
        let read = || {
            let mut reader = Reader::new(source.clone(), options)?;
            reader.expect(FileKind::Parameter)?;
            let raw = reader.parameter(&TensorPath::value())?;
            let notes = reader.finish()?;
            Ok((Self::from_raw(&source, raw, with_stats)?, notes))
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

    /// Returns the bytes of a parameter file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] for numbers of stats or lengths of names above 32 bits.
    pub fn to_bytes(&self, with_stats: bool) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        wire::put_header(&mut out, FileKind::Parameter);
        self.put(&mut out, with_stats)?;
        Ok(out)
    }

    /// Converts the only parameter of an index of any format, with its optimizer state as stats.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] where there is not exactly one, or primitiv cannot store it.
    pub fn from_checkpoint(checkpoint: &Checkpoint, with_stats: bool) -> Result<Self> {
        Self::from_held(&entries::only_parameter(checkpoint, with_stats)?)
    }

    /// Returns an index of this parameter, with a copy of its values.
    ///
    /// # Errors
    /// As [`Tensor::to_checkpoint`].
    pub fn to_checkpoint(&self, with_stats: bool) -> Result<Checkpoint> {
        let mut checkpoint = read::start(FileKind::Parameter, MEMORY);
        self.push(&TensorPath::value(), with_stats, &mut checkpoint.tensors)?;
        Ok(checkpoint)
    }

    /// Plans a parameter file.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    pub fn plan(&self, with_stats: bool) -> Result<WritePlan> {
        Primitiv.plan(&self.to_checkpoint(with_stats)?, &PlanOptions::default())
    }

    /// Appends the body of the file.
    pub(super) fn put(&self, out: &mut Vec<u8>, with_stats: bool) -> Result<()> {
        self.value.put(out);
        let stats = if with_stats { self.stats.as_slice() } else { &[] };
        wire::put_uint(out, wire::count("stats", stats.len())?);
        for (name, tensor) in stats {
            wire::put_name(out, name)?;
            tensor.put(out);
        }
        Ok(())
    }

    /// Appends the entries.
    pub(super) fn push(&self, path: &TensorPath, with_stats: bool, out: &mut Vec<TensorEntry>) -> Result<()> {
        out.push(self.value.entry(path.clone(), None)?);
        for (name, tensor) in self.stats.iter().filter(|_| with_stats) {
            out.push(tensor.entry(path.clone(), Some(name.clone()))?);
        }
        Ok(())
    }

    /// Reads the values. Names of stats are unique, as the reader checked them.
    pub(super) fn from_raw(source: &SourceRef, raw: RawParameter, with_stats: bool) -> Result<Self> {
        let mut parameter = Self::new(Tensor::from_raw(source, &raw.value)?)?;
        for (name, tensor) in raw.stats.into_iter().filter(|_| with_stats) {
            parameter.stats.push((name, Tensor::from_raw(source, &tensor)?));
        }
        Ok(parameter)
    }

    pub(super) fn from_held(held: &HeldParameter<'_>) -> Result<Self> {
        let mut parameter = Self::new(Tensor::from_held(&held.value)?)?;
        for (name, tensor) in &held.stats {
            parameter.stats.push(((*name).clone(), Tensor::from_held(tensor)?));
        }
        Ok(parameter)
    }
}

fn check_value(value: &Tensor) -> Result<()> {
    if value.batch() == 1 {
        return Ok(());
    }
    Err(Error::mismatch("batched-parameter", "the value of a parameter must not have a batch")
        .expected("batch 1")
        .found(format_args!("batch {}", value.batch())))
}
