//! Reader: bytes to index.

use super::raw::{RawOptimizer, RawParameter, RawTensor, Reader};
use super::{BATCH, FileKind, INFO, Optimizer, Shape};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{
    Checkpoint, Metadata, Name, Origin, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Metadata key of a shape file: its dimensions, a list of numbers.
pub(super) const DIMS: &str = "dims";
/// Metadata key of an optimizer file: its integers by key.
pub(super) const UINTS: &str = "uint_configs";
/// Metadata key of an optimizer file: its floats by key.
pub(super) const FLOATS: &str = "float_configs";

/// Reads the index of any of the five files.
pub(super) fn open(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let label = source.label().to_owned();
    read(source, options).map_err(|e| e.in_file(label))
}

fn read(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut reader = Reader::new(source.clone(), options)?;
    let kind = reader.kind();
    let mut checkpoint = start(kind, source.label());
    let mut names = NameBudget::of(&source);
    match kind {
        FileKind::Shape => checkpoint.metadata = shape_metadata(&reader.shape()?),
        FileKind::Tensor => {
            let tensor = reader.tensor()?;
            checkpoint.tensors.push(entry(&source, TensorPath::value(), &tensor, None)?);
        }
        FileKind::Parameter => {
            let parameter = reader.parameter(&TensorPath::value())?;
            push_parameter(&mut checkpoint, &source, &TensorPath::value(), parameter, &mut names)?;
        }
        FileKind::Model => {
            for raw in reader.model()? {
                push_parameter(&mut checkpoint, &source, &raw.path, raw.parameter, &mut names)?;
            }
        }
        FileKind::Optimizer => {
            let raw = reader.optimizer()?;
            checkpoint.metadata = optimizer_metadata(&raw.uints, &raw.floats);
            let RawOptimizer { uints, floats } = raw;
            checkpoint.notes = Optimizer::from_raw(uints, floats).notes();
        }
    }
    checkpoint.notes.extend(reader.finish()?);
    Ok(checkpoint)
}

/// Outlines the bytes around the values: MessagePack up to the end of the object.
pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let options = OpenOptions { lenient: true, limits: limits.clone(), ..OpenOptions::default() };
    let mut reader = Reader::new(source.clone(), &options)?;
    match reader.kind() {
        FileKind::Shape => drop(reader.shape()?),
        FileKind::Tensor => drop(reader.tensor()?),
        FileKind::Parameter => drop(reader.parameter(&TensorPath::value())?),
        FileKind::Model => drop(reader.model()?),
        FileKind::Optimizer => drop(reader.optimizer()?),
    }
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.header(0, reader.position(), "msgpack");
    Ok(outline)
}

/// Creates an empty index of this kind, with its origin, so that bridge formats preserve metadata.
pub(super) fn start(kind: FileKind, label: &str) -> Checkpoint {
    let mut checkpoint = Checkpoint::new(INFO.id, kind.word(), label);
    checkpoint.origin = Some(Origin { format: INFO.id.into(), kind: kind.word().into() });
    checkpoint
}

/// Metadata of a shape file.
pub(super) fn shape_metadata(shape: &Shape) -> Metadata {
    let dims = shape.dims().iter().map(|&dim| Value::U32(dim)).collect();
    [(DIMS.to_owned(), Value::List(dims)), (BATCH.to_owned(), Value::U32(shape.batch()))]
        .into_iter()
        .collect()
}

/// Metadata of an optimizer file.
pub(super) fn optimizer_metadata(uints: &[(Name, u32)], floats: &[(Name, u32)]) -> Metadata {
    let map = |list: &[(Name, u32)], value: fn(u32) -> Value| {
        Value::Map(list.iter().map(|(key, v)| (key.clone(), value(*v))).collect())
    };
    [(UINTS.to_owned(), map(uints, Value::U32)), (FLOATS.to_owned(), map(floats, Value::F32))]
        .into_iter()
        .collect()
}

/// Budget for the names of all tensors: each stat repeats the path of its parameter, which is in the file once.
#[derive(Debug)]
pub(super) struct NameBudget {
    left: u64,
    all: u64,
}

impl NameBudget {
    /// Overhead of a path part, in bytes.
    const PART_OVERHEAD: u64 = 4;

    /// The length of the file suffices for parameters of a few numbers each with their stats; 2 MiB are added. Callers that
    /// list or write the tensors hold their names several times.
    pub(super) fn of(source: &SourceRef) -> Self {
        let all = source.len().saturating_add(2 << 20);
        Self { left: all, all }
    }

    /// Charges the name of one more tensor with this path.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `names-too-long`.
    pub(super) fn take(&mut self, path: &TensorPath) -> Result<()> {
        let part = |part: &Name| part.as_bytes().len() as u64 + Self::PART_OVERHEAD;
        let need = path.parts().iter().map(part).fold(0, u64::saturating_add);
        match self.left.checked_sub(need) {
            Some(left) => self.left = left,
            None => {
                let message =
                    "the names of the tensors are too long: each stat repeats the path of its parameter";
                return Err(Error::limit("names-too-long", message)
                    .expected(format_args!("at most {} bytes for all names", self.all))
                    .hint("check the origin of the file: parameters usually have a few stats"));
            }
        }
        Ok(())
    }
}

fn push_parameter(
    checkpoint: &mut Checkpoint,
    source: &SourceRef,
    path: &TensorPath,
    parameter: RawParameter,
    names: &mut NameBudget,
) -> Result<()> {
    names.take(path)?;
    checkpoint.tensors.push(entry(source, path.clone(), &parameter.value, None)?);
    for (slot, tensor) in parameter.stats {
        names.take(path)?;
        checkpoint.tensors.push(entry(source, path.clone(), &tensor, Some(slot))?);
    }
    Ok(())
}

pub(super) fn entry(
    source: &SourceRef,
    path: TensorPath,
    raw: &RawTensor,
    slot: Option<Name>,
) -> Result<TensorEntry> {
    dense(source, path, &raw.shape, raw.offset, slot)
}

/// Creates the entry of a tensor at an offset of `source`, in primitiv's layout.
pub(super) fn dense(
    source: &SourceRef,
    path: TensorPath,
    shape: &Shape,
    offset: u64,
    slot: Option<Name>,
) -> Result<TensorEntry> {
    let mut entry = TensorEntry::dense(path, DType::F32, shape.logical(), source, offset, Encoding::COLUMN)?;
    if shape.batch() > 1 {
        entry.attributes.insert(BATCH.into(), Value::U64(shape.batch().into()));
    }
    if let Some(slot) = slot {
        entry.role = Role::OptimizerState { slot };
    }
    Ok(entry)
}
