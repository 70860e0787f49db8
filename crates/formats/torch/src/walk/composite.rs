//! Composite tensors, listed as several in the index: quantized and sparse ones.

use super::{Walk, name_of};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Name, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::{counted, quoted};
use weighbridge_io::source::{MemorySource, SourceRef};
use weighbridge_pickle::Cost;
use weighbridge_torch_archive::{Quantizer, REQUIRES_GRAD, SPARSE_COALESCED, SPARSE_SIZE, Sparse};

/// Bytes of a scale and of a zero point.
const WIDTH: usize = 8;

/// Composite tensors: count of each kind, and name of the first one.
#[derive(Debug, Default)]
pub(super) struct Composites {
    quantized: Option<(u64, String)>,
    sparse: Option<(u64, String)>,
    /// Scales and zero points that the pickle holds as numbers, concatenated, and the indexes of their tensors.
    numbers: Vec<u8>,
    places: Vec<usize>,
}

impl Composites {
    /// Moves the numbers into one shared source, and adds the notes.
    pub(super) fn finish(&mut self, checkpoint: &mut Checkpoint) {
        let numbers = std::mem::take(&mut self.numbers);
        let source: SourceRef = Arc::new(MemorySource::new(checkpoint.label.as_str(), numbers));
        for (number, &place) in self.places.iter().enumerate() {
            let extents = checkpoint.tensors.get_mut(place).map(|tensor| &mut tensor.extents);
            for extent in extents.into_iter().flatten() {
                extent.source = source.clone();
                extent.offset = (number * WIDTH) as u64;
            }
        }
        let mut note = |code, found: &Option<(u64, String)>, one: &str, how: &str| {
            let Some((count, first)) = found else { return };
            let tensors = counted(*count, &format!("{one} tensor"), &format!("{one} tensors"));
            let more = if *count == 1 { "" } else { ", ..." };
            let text = format!("{tensors} (`{}`{more}) listed as {how}", quoted(first));
            checkpoint.notes.push(Note::new(code, text));
        };
        let how = "integers, with `scale` and `zero_point` nested under the name";
        note("quantized-as-integers", &self.quantized, "quantized", how);
        note("sparse-as-parts", &self.sparse, "sparse", "indices and values nested under the name");
    }
}

impl Walk<'_> {
    /// Adds the parts of a sparse tensor under its name.
    pub(super) fn sparse(&mut self, sparse: &Sparse, depth: usize) -> Result<()> {
        let height = self.path.len();
        if height == 0 {
            self.path.extend(TensorPath::value().parts().iter().cloned());
        }
        self.count_composite(|composites| &mut composites.sparse);
        for &(name, id) in &sparse.indices {
            self.below(name, id, depth)?;
        }
        let place = self.checkpoint.tensors.len();
        self.below("values", sparse.values, depth)?;
        self.path.truncate(height);
        let Some(values) = self.checkpoint.tensors.get_mut(place) else { return Ok(()) };
        let size = sparse.size.iter().map(|&dim| Value::I64(dim)).collect();
        values.attributes.insert(Attributes::SPARSE_LAYOUT.to_owned(), Value::Text(sparse.layout.to_owned()));
        values.attributes.insert(SPARSE_SIZE.to_owned(), Value::List(size));
        if let Some(coalesced) = sparse.coalesced {
            values.attributes.insert(SPARSE_COALESCED.to_owned(), Value::Bool(coalesced));
        }
        if sparse.requires_grad {
            values.attributes.insert(REQUIRES_GRAD.to_owned(), Value::Bool(true));
        }
        let size = (sparse.size.len() as u64).saturating_mul(Cost::ITEM);
        self.budget.take_memory(Cost::attributes(0).saturating_add(size))
    }

    /// Adds scale and zero point of the last added quantized tensor under its name.
    pub(super) fn quantizer(&mut self, quantizer: &Quantizer, depth: usize) -> Result<()> {
        let height = self.path.len();
        if height == 0 {
            self.path.extend(TensorPath::value().parts().iter().cloned());
        }
        self.count_composite(|composites| &mut composites.quantized);
        match *quantizer {
            Quantizer::Channel { scales, zero_points, .. } => {
                self.below("scale", scales, depth)?;
                self.below("zero_point", zero_points, depth)?;
            }
            Quantizer::Tensor { scale, zero_point } => {
                self.number("scale", DType::F64, scale.to_le_bytes())?;
                self.number("zero_point", DType::I64, zero_point.to_le_bytes())?;
            }
        }
        self.path.truncate(height);
        Ok(())
    }

    /// Counts a composite tensor at the current path.
    fn count_composite(&mut self, kind: impl FnOnce(&mut Composites) -> &mut Option<(u64, String)>) {
        let path = &self.path;
        kind(&mut self.composites).get_or_insert_with(|| (0, name_of(path))).0 += 1;
    }

    /// Adds a tensor without dimensions under the current path.
    fn number(&mut self, key: &str, dtype: DType, bytes: [u8; WIDTH]) -> Result<()> {
        self.path.push(Name::from(key));
        let limits = &self.options.limits;
        let count = self.checkpoint.tensors.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, limits.tensors)?;
        Limits::check("parts in a name", "path_parts", self.path.len() as u64, limits.path_parts)?;
        self.budget.take_memory(Cost::entry(false) + Cost::name(self.path.len(), 0) + Cost::ITEM)?;
        self.composites.numbers.extend(bytes);
        self.composites.places.push(self.checkpoint.tensors.len());
        let path = TensorPath::new(self.path.clone());
        self.take_name(path.byte_len() as u64)?;
        let source: SourceRef = Arc::new(MemorySource::new(self.saved.source().label(), bytes.to_vec()));
        let mut entry = TensorEntry::dense(path, dtype, Shape::default(), &source, 0, Encoding::ROW)?;
        entry.role = self.role.clone();
        self.places.add_number(&mut self.checkpoint, entry);
        self.path.pop();
        Ok(())
    }
}
