//! primitiv: MessagePack files of the primitiv toolkit, File Format v0.1.
//!
//! Five kinds of file share one header of 15 bytes. The objects follow each other without an outer array, a
//! length, a checksum or padding:
//!
//! ```text
//! every file   ce 00000000   ce 00000001   ce 00000T00   body
//!              version 0     .1            T: 0 shape, 1 tensor, 2 parameter, 3 model, 4 optimizer
//!
//! shape        array of uint32 (dims)   uint32 (batch)
//! tensor       shape   bin              4 bytes a value, little-endian, first index fastest, batch slowest
//! parameter    tensor (the value)   uint32 N   N x { str (name)   tensor (a stat) }
//! model        uint32 N   N x { array of str (address)   parameter }          sorted by address
//! optimizer    map str -> uint32   map str -> float32
//!
//! uint32       ce and 4 bytes, never shorter          float32   ca and 4 bytes
//! str          a0-bf | d9 n | da nn | db nnnn         bin       c4 n | c5 nn | c6 nnnn
//! array        90-9f | dc nn | dd nnnn                map       80-8f | de nn | df nnnn
//! ```
//!
//! All numbers except tensor values are big-endian. Trailing dimensions of 1 are not stored, so a vector of
//! length 1 is a scalar. Strings, bins, arrays and maps are written with the shortest header; longer headers are
//! read with a note.
//!
//! [`Primitiv`] is the format as an index of tensors. [`Model`], [`Parameter`], [`Tensor`], [`Shape`] and
//! [`Optimizer`] are objects in memory, for programs that build or change them:
//!
//! ```
//! use weighbridge_primitiv::{Model, Parameter, Tensor};
//! # fn main() -> weighbridge_core::Result<()> {
//! let mut layer = Model::new();
//! layer.add_parameter("w", Parameter::new(Tensor::new(&[2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?)?)?;
//! let mut model = Model::new();
//! model.add_submodel("fc1", layer)?;
//! let bytes = model.to_bytes(true)?;
//! let back = Model::from_bytes(bytes, true)?;
//! let w = back.parameter("fc1.w")?;
//! assert_eq!(w.value().get(&[1, 2]), Some(5.0));
//! # Ok(()) }
//! ```

mod entries;
mod load;
mod model;
mod optimizer;
mod parameter;
mod raw;
mod read;
mod salvage;
mod shape;
mod tensor;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub use load::{LoadFrom, LoadMode, LoadReport};
pub use model::Model;
pub use optimizer::{Optimizer, OptimizerClass};
pub use parameter::Parameter;
pub use shape::Shape;
pub use tensor::Tensor;

use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    WriteFormat,
};
use weighbridge_io::source::SourceRef;

/// The primitiv format.
#[derive(Debug)]
pub struct Primitiv;

static INFO: FormatInfo = FormatInfo {
    id: "primitiv",
    title: "primitiv File Format v0.1 (MessagePack)",
    coverage: Coverage {
        name: "primitiv",
        read: "all five files of File Format v0.1",
        written: "yes",
        not_read: "older forms (YAML, protobuf)",
    },
    extensions: &[
        ("model", "model"),
        ("param", "parameter"),
        ("optimizer", "optimizer"),
        ("tensor", "tensor"),
        ("shape", "shape"),
    ],
    dtypes: &[DType::F32],
    order: Some(Order::Column),
    settings: &[],
};

/// The attribute of an entry whose last dimension is a batch.
const BATCH: &str = "batch";

impl Format for Primitiv {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }

    fn salvager(&self) -> Option<&dyn Salvage> {
        Some(self)
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }
}

impl Detect for Primitiv {
    /// Recognizes the header of version 0.1, and any three uint32 at its offsets, so that the reader can report a wrong
    /// version or type.
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        [0, 5, 10].iter().all(|&place| head.get(place) == Some(&wire::UINT)) || head.starts_with(&wire::MAGIC)
    }

    fn shares_extensions(&self) -> bool {
        true
    }
}

impl ReadFormat for Primitiv {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(source, options)
    }
}

impl WriteFormat for Primitiv {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}

impl Salvage for Primitiv {
    fn salvage(&self, input: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        input.source().map(|source| salvage::open(source, error, options)).transpose()
    }
}

impl DeepCheck for Primitiv {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        read::outline(source, limits)
    }
}

/// Kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Shape,
    Tensor,
    Parameter,
    Model,
    Optimizer,
}

impl FileKind {
    const ALL: [Self; 5] = [Self::Shape, Self::Tensor, Self::Parameter, Self::Model, Self::Optimizer];

    /// Type number in the header.
    fn number(self) -> u32 {
        match self {
            Self::Shape => 0,
            Self::Tensor => 0x100,
            Self::Parameter => 0x200,
            Self::Model => 0x300,
            Self::Optimizer => 0x400,
        }
    }

    /// Kind in the index.
    fn word(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Tensor => "tensor",
            Self::Parameter => "parameter",
            Self::Model => "model",
            Self::Optimizer => "optimizer",
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Registry with this format, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::SourceRef;
    use weighbridge_format::{OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([&crate::Primitiv as _])
    }

    pub(crate) fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_source(source, options)
    }
}
