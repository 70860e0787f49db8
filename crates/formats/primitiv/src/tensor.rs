//! Tensor in memory.

use super::entries::{self, Held};
use super::raw::{RawTensor, Reader};
use super::wire::{self, BIN};
use super::{BATCH, FileKind, Primitiv, Shape, read};
use std::fmt;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
use weighbridge_format::{OpenOptions, PlanOptions, WriteFormat};
use weighbridge_io::source::{MemorySource, SourceRef, to_usize};

/// Bytes of values read at once.
const BLOCK: usize = 1 << 20;

/// Values of a primitiv tensor with their shape. The first index varies fastest, the batch slowest.
///
/// Tensors are compared by shape and bits: a NaN equals itself, and -0 differs from 0.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    data: Vec<f32>,
}

impl Tensor {
    /// Creates a tensor without a batch. `data` is column-major: the first index varies fastest.
    ///
    /// # Errors
    /// As [`Shape::new`], and [`weighbridge_core::Kind::Mismatch`]: `length-mismatch` where the number of values
    /// does not match the shape, `too-large` for 2^30 values and more.
    pub fn new(dims: &[u32], data: Vec<f32>) -> Result<Self> {
        Self::with_batch(dims, 1, data)
    }

    /// Creates a tensor of `batch` consecutive tensors of `dims`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_batch(dims: &[u32], batch: u32, data: Vec<f32>) -> Result<Self> {
        Self::from_parts(Shape::new(dims, batch)?, data)
    }

    /// Creates a tensor with this shape.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_parts(shape: Shape, data: Vec<f32>) -> Result<Self> {
        if data.len() as u64 != u64::from(shape.values()) {
            return Err(Error::mismatch("length-mismatch", "the number of values does not match the shape")
                .expected(format_args!("{} values for {shape}", shape.values()))
                .found(data.len()));
        }
        if shape.values().checked_mul(4).is_none() {
            return Err(Error::mismatch(
                "too-large",
                "the tensor has 2^30 elements or more, which primitiv cannot store",
            )
            .found(&shape));
        }
        Ok(Self { shape, data })
    }

    /// Returns dimensions and batch.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
    /// Returns the dimensions without trailing 1s. Empty for a scalar.
    pub fn dims(&self) -> &[u32] {
        self.shape.dims()
    }
    /// Returns the batch size, 1 without a batch.
    pub fn batch(&self) -> u32 {
        self.shape.batch()
    }
    /// Returns the values, column-major, batch slowest.
    pub fn data(&self) -> &[f32] {
        &self.data
    }
    /// Returns the values, mutable.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }
    /// Returns the values.
    pub fn into_data(self) -> Vec<f32> {
        self.data
    }
    /// Returns the value at an index of the first tensor of the batch. Indices beyond the dimensions must be 0; `None`
    /// outside the tensor or for too few indices.
    pub fn get(&self, index: &[u32]) -> Option<f32> {
        self.get_in(0, index)
    }
    /// Same as [`get`](Self::get), for the tensor number `batch` of the batch.
    pub fn get_in(&self, batch: u32, index: &[u32]) -> Option<f32> {
        self.data.get(self.shape.place(batch, index)?).copied()
    }

    /// Reads a tensor file with these options and limits.
    ///
    /// # Errors
    /// As [`ReadFormat::open`](weighbridge_format::ReadFormat::open); [`weighbridge_core::Kind::Mismatch`], code `wrong-kind`,
    /// for another kind of file.
    pub fn read(source: SourceRef, options: &OpenOptions) -> Result<Self> {
        let label = source.label().to_owned();
        let read = || {
            let mut reader = Reader::new(source.clone(), options)?;
            reader.expect(FileKind::Tensor)?;
            let raw = reader.tensor()?;
            reader.finish()?;
            Self::from_raw(&source, &raw)
        };
        read().map_err(|e: Error| e.in_file(label))
    }

    /// Same as [`read`](Self::read), from bytes with default options.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        Self::read(memory(bytes.into()), &OpenOptions::default())
    }

    /// Returns the bytes of a tensor file. The original documents this file but has no function that reads or writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data.len() * 4 + 80);
        wire::put_header(&mut out, FileKind::Tensor);
        self.put(&mut out);
        out
    }

    /// Converts the only tensor of an index of any format. Reads the values from any storage order.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] where there is not exactly one tensor, or primitiv cannot store it.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        Self::from_held(&entries::only(checkpoint)?)
    }

    /// Returns an index of this tensor, with a copy of its values.
    ///
    /// # Errors
    /// Fails where two copies of the values exceed the address space.
    pub fn to_checkpoint(&self) -> Result<Checkpoint> {
        let mut checkpoint = read::start(FileKind::Tensor, MEMORY);
        checkpoint.tensors.push(self.entry(TensorPath::value(), None)?);
        Ok(checkpoint)
    }

    /// Plans a tensor file.
    ///
    /// # Errors
    /// As [`to_checkpoint`](Self::to_checkpoint).
    pub fn plan(&self) -> Result<WritePlan> {
        Primitiv.plan(&self.to_checkpoint()?, &PlanOptions::default())
    }

    /// Appends shape and values.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        wire::put_shape(out, &self.shape);
        wire::put_length(out, BIN, self.shape.values().saturating_mul(4));
        out.extend(self.data.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// Reads the values. The reader checked the range against the file.
    pub(super) fn from_raw(source: &SourceRef, raw: &RawTensor) -> Result<Self> {
        let mut left = to_usize(u64::from(raw.shape.values()) * 4)?;
        weighbridge_io::source::check_range(&**source, raw.offset, left as u64)?;
        let mut data = Vec::with_capacity(left / 4);
        let mut block = vec![0; left.min(BLOCK)];
        let mut at = raw.offset;
        while left > 0 {
            let part = &mut block[..left.min(BLOCK)];
            source.read_at(at, part)?;
            decode(part, &mut data);
            left -= part.len();
            at += part.len() as u64;
        }
        Self::from_parts(raw.shape.clone(), data)
    }

    /// Reads the values of an entry of any format.
    pub(super) fn from_held(held: &Held<'_>) -> Result<Self> {
        let bytes = held.entry.read_tensor(Order::Column)?;
        let mut data = Vec::with_capacity(bytes.len() / 4);
        decode(&bytes, &mut data);
        Self::from_parts(held.shape.clone(), data)
    }

    /// Creates an entry with a copy of the values.
    pub(super) fn entry(&self, path: TensorPath, slot: Option<Name>) -> Result<TensorEntry> {
        let bytes: Vec<u8> = self.data.iter().flat_map(|value| value.to_le_bytes()).collect();
        read::dense(&memory(bytes), path, &self.shape, 0, slot)
    }
}

/// Display name of bytes in memory.
pub(super) const MEMORY: &str = "memory";

pub(super) fn memory(bytes: Vec<u8>) -> SourceRef {
    Arc::new(MemorySource::new(MEMORY, bytes))
}

fn decode(bytes: &[u8], data: &mut Vec<f32>) {
    data.extend(bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)));
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        let bits = |tensor: &Self| tensor.data.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        self.shape == other.shape && bits(self) == bits(other)
    }
}

impl Eq for Tensor {}

impl fmt::Debug for Tensor {
    /// Writes the shape and the first values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.data[..self.data.len().min(8)];
        let more = if shown.len() < self.data.len() { " ..." } else { "" };
        write!(f, "Tensor({} {shown:?}{more}", self.shape)?;
        if self.batch() > 1 { write!(f, ", {BATCH} {})", self.batch()) } else { write!(f, ")") }
    }
}
