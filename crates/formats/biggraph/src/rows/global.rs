//! Tables with the global embedding of their type added to each row, as the exporter writes them
//! (specification, sections 5.4 and 9).

use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Encoding, Order, Region};
use weighbridge_io::engine::Scratch;
use weighbridge_io::source::{Source, SourceRef, check_range, to_usize};

/// Read size in bytes.
const READ_BYTES: u64 = 1 << 20;

/// Adds the global embedding of each type to the rows of its table, in float32 as upstream does. The
/// global embeddings themselves are removed: they would count twice.
/// Returns the number of changed tables; 0 if no type has a global embedding.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], `global-shape`, if a global embedding and its table have different widths; and
/// errors of reading it.
pub(crate) fn add_global_embeddings(checkpoint: &mut Checkpoint) -> Result<usize> {
    let mut added = Vec::new();
    for place in 0..checkpoint.tensors.len() {
        let table = &checkpoint.tensors[place];
        let (Role::Embedding, [_, kind]) = (&table.role, table.path.parts()) else { continue };
        let path =
            TensorPath::new(vec![Name::from("entities"), kind.clone(), Name::from("global_embedding")]);
        let global = checkpoint.tensors.iter().find(|t| t.path == path && t.role.slot().is_none());
        let Some(global) = global else { continue };
        let source: SourceRef = Arc::new(SumSource::new(table, global)?);
        let mut sum = TensorEntry::dense(
            table.path.clone(),
            DType::F32,
            table.shape.clone(),
            &source,
            0,
            Encoding::ROW,
        )?;
        sum.role = Role::Embedding;
        sum.attributes.clone_from(&table.attributes);
        sum.row_names.clone_from(&table.row_names);
        checkpoint.tensors[place] = sum;
        added.push(path);
    }
    checkpoint.tensors.retain(|tensor| !added.contains(&tensor.path));
    Ok(added.len())
}

/// Rows of a table, each plus the same row: dense float32, little-endian.
#[derive(Debug)]
struct SumSource {
    table: TensorEntry,
    addend: Vec<f32>,
    label: String,
    len: u64,
}

impl SumSource {
    fn new(table: &TensorEntry, global: &TensorEntry) -> Result<Self> {
        let mut table = table.clone();
        table.row_names = None;
        if table.shape.rank() != 2 || table.shape.dims()[1..] != *global.shape.dims() {
            return Err(Error::mismatch(
                "global-shape",
                "the global embedding and the table have different dimensions",
            )
            .on_tensor(table.name())
            .expected(format_args!("a row of {}", table.shape))
            .found(&global.shape));
        }
        for entry in [&table, global] {
            if entry.dtype() != DType::F32 {
                return Err(Error::unsupported(
                    "global-dtype",
                    "global embeddings can be added to f32 tables only",
                )
                .on_tensor(entry.name())
                .found(entry.dtype()));
            }
        }
        let bytes = global.read_tensor(Order::Row)?;
        let addend = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let label = table.extents.first().map_or("", |extent| extent.source.label()).to_owned();
        let len = table.bytes();
        Ok(Self { table, addend, label, len })
    }

    /// Reads `count` rows from `row` on, and adds.
    fn rows(&self, row: u64, count: u64, out: &mut Vec<u8>) -> Result<()> {
        let mut region = Region::whole(&self.table.shape);
        (region.start[0], region.shape[0]) = (row, count);
        out.clear();
        self.table.read_into(&region, Order::Row, &mut Scratch::default(), out)?;
        for row in out.chunks_exact_mut(self.addend.len().max(1) * 4) {
            for (bytes, addend) in row.as_chunks_mut::<4>().0.iter_mut().zip(&self.addend) {
                *bytes = (f32::from_le_bytes(*bytes) + addend).to_le_bytes();
            }
        }
        Ok(())
    }
}

impl Source for SumSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let width = self.addend.len() as u64 * 4;
        let (mut at, mut rest, mut block) = (offset, buffer, Vec::new());
        while !rest.is_empty() {
            let (row, within) = (at / width, at % width);
            let wanted = (within + rest.len() as u64).div_ceil(width);
            self.rows(row, wanted.min((READ_BYTES / width).max(1)), &mut block)?;
            let ready = block.get(to_usize(within)?..).unwrap_or_default();
            let take = ready.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&ready[..take]);
            at += take as u64;
            rest = later;
        }
        Ok(())
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn is_sequential(&self) -> bool {
        self.table.extents.iter().any(|extent| extent.source.is_sequential())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::tensor::Shape;
    use weighbridge_io::source::MemorySource;

    fn entry(path: &str, shape: Shape, values: &[f32]) -> TensorEntry {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        TensorEntry::dense(TensorPath::from_dotted(path), DType::F32, shape, &source, 0, Encoding::ROW)
            .unwrap()
    }

    #[test]
    fn adds_the_global_embedding_to_each_row() {
        let mut table = entry("embeddings.user", Shape::from([2, 3]), &[1.0, 2.0, 3.0, -1.0, 0.5, 1e10]);
        table.role = Role::Embedding;
        let mut checkpoint = Checkpoint::new("biggraph", "checkpoint", "c");
        let global = entry("entities.user.global_embedding", Shape::from([3]), &[0.25, 1.0, 1.0]);
        checkpoint.tensors = vec![table.clone(), global];
        assert_eq!(add_global_embeddings(&mut checkpoint).unwrap(), 1);
        assert_eq!(checkpoint.tensors.len(), 1);
        let sum = &checkpoint.tensors[0];
        let bytes = sum.read_tensor(Order::Row).unwrap();
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(values, [1.25, 3.0, 4.0, -0.75, 1.5, 1e10 + 1.0]);
        // From the middle of an element.
        let mut part = [0; 9];
        sum.extents[0].source.read_at(7, &mut part).unwrap();
        assert_eq!(part, bytes[7..16]);

        let mut without = Checkpoint::new("biggraph", "checkpoint", "c");
        without.tensors = vec![table];
        assert_eq!(add_global_embeddings(&mut without).unwrap(), 0);
        assert_eq!(without.tensors.len(), 1);
    }
}
