//! From bytes to the index.

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

/// Metadata of a shape file: its dimensions, a list of numbers.
pub(super) const DIMS: &str = "dims";
/// Metadata of an optimizer file: its whole numbers, by key.
pub(super) const UINTS: &str = "uint_configs";
/// Metadata of an optimizer file: its floats, by key.
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
    let mut room = NameRoom::of(&source);
    match kind {
        FileKind::Shape => checkpoint.metadata = shape_metadata(&reader.shape()?),
        FileKind::Tensor => {
            let tensor = reader.tensor()?;
            checkpoint.tensors.push(entry(&source, TensorPath::value(), &tensor, None)?);
        }
        FileKind::Parameter => {
            let parameter = reader.parameter()?;
            push_parameter(&mut checkpoint, &source, &TensorPath::value(), parameter, &mut room)?;
        }
        FileKind::Model => {
            for raw in reader.model()? {
                push_parameter(&mut checkpoint, &source, &raw.path, raw.parameter, &mut room)?;
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

/// What stands around the values: MessagePack up to the end of the object.
pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let options = OpenOptions { lenient: true, limits: limits.clone(), ..OpenOptions::default() };
    let mut reader = Reader::new(source.clone(), &options)?;
    match reader.kind() {
        FileKind::Shape => drop(reader.shape()?),
        FileKind::Tensor => drop(reader.tensor()?),
        FileKind::Parameter => drop(reader.parameter()?),
        FileKind::Model => drop(reader.model()?),
        FileKind::Optimizer => drop(reader.optimizer()?),
    }
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.header(0, reader.position(), "msgpack");
    Ok(outline)
}

/// An empty index of that kind, marked with its origin so that bridges carry what they cannot say.
pub(super) fn start(kind: FileKind, label: &str) -> Checkpoint {
    let mut checkpoint = Checkpoint::new(INFO.id, kind.word(), label);
    checkpoint.origin = Some(Origin { format: INFO.id.into(), kind: kind.word().into() });
    checkpoint
}

/// What the index says of a shape file.
pub(super) fn shape_metadata(shape: &Shape) -> Metadata {
    let dims = shape.dims().iter().map(|&dim| Value::U32(dim)).collect();
    [(DIMS.to_owned(), Value::List(dims)), (BATCH.to_owned(), Value::U32(shape.batch()))]
        .into_iter()
        .collect()
}

/// What the index says of an optimizer file.
pub(super) fn optimizer_metadata(uints: &[(Name, u32)], floats: &[(Name, u32)]) -> Metadata {
    let map = |list: &[(Name, u32)], value: fn(u32) -> Value| {
        Value::Map(list.iter().map(|(key, v)| (key.clone(), value(*v))).collect())
    };
    [(UINTS.to_owned(), map(uints, Value::U32)), (FLOATS.to_owned(), map(floats, Value::F32))]
        .into_iter()
        .collect()
}

/// What the names of all tensors may still take: a stat has the path of its parameter, which stands in the file once.
#[derive(Debug)]
pub(super) struct NameRoom {
    left: u64,
    all: u64,
}

impl NameRoom {
    /// What a part of a path takes beside its bytes.
    const PART: u64 = 4;

    /// As much as the file is more than parameters of a few numbers each and their stats ask for, and 2 MiB are free.
    /// Whoever lists the tensors or writes them holds their names several times.
    pub(super) fn of(source: &SourceRef) -> Self {
        let all = source.len().saturating_add(2 << 20);
        Self { left: all, all }
    }

    /// Takes what one more tensor of that path needs.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `names-too-long`.
    pub(super) fn take(&mut self, path: &TensorPath) -> Result<()> {
        let part = |part: &Name| part.as_bytes().len() as u64 + Self::PART;
        let need = path.parts().iter().map(part).fold(0, u64::saturating_add);
        match self.left.checked_sub(need) {
            Some(left) => self.left = left,
            None => {
                let text = "the path of a parameter, which each of its stats has too, would be repeated without measure";
                return Err(Error::limit("names-too-long", text)
                    .expected(format_args!("at most {} bytes for all paths", self.all))
                    .hint("honest parameters have a few stats: where does this file come from?"));
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
    room: &mut NameRoom,
) -> Result<()> {
    room.take(path)?;
    checkpoint.tensors.push(entry(source, path.clone(), &parameter.value, None)?);
    for (slot, tensor) in parameter.stats {
        room.take(path)?;
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

/// The entry of a tensor that lies in `source` as primitiv stores it.
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
