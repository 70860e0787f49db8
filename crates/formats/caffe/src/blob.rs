//! Blobs: dtype, shape and place of their elements.

use crate::walk::{Blob, Run};
use crate::wire::Fields;
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::{ConcatSource, SourceRef};

/// Fields with elements, and with gradients: `data`, `double_data`, `raw_data`.
pub(crate) const DATA: [u32; 3] = [5, 8, 12];
/// Fields with gradients: `diff`, `double_diff`, `raw_diff`.
pub(crate) const DIFF: [u32; 3] = [6, 9, 13];

/// Blob as its file describes it.
#[derive(Debug, Default)]
struct Header {
    /// `num`, `channels`, `height` and `width`, if any is present.
    legacy: Option<[i64; 4]>,
    dims: Vec<i64>,
    /// Types of `raw_data` and `raw_diff`.
    raw_types: [i64; 2],
}

impl Header {
    fn parse(fields: &[u8]) -> Result<Self> {
        let mut header = Self::default();
        for field in Fields::of(fields) {
            let field = field?;
            match field.number {
                1..=4 => {
                    let place = usize::try_from(field.number - 1).unwrap_or(0);
                    let sizes = header.legacy.get_or_insert([0; 4]);
                    if let (Some(size), Some(value)) = (sizes.get_mut(place), field.int()) {
                        *size = value;
                    }
                }
                7 => {
                    for dim in Fields::of(field.bytes().unwrap_or_default()) {
                        let dim = dim?;
                        if dim.number == 1 {
                            dim.ints(&mut header.dims);
                        }
                    }
                }
                10 => header.raw_types[0] = field.int().unwrap_or(0),
                11 => header.raw_types[1] = field.int().unwrap_or(0),
                _ => {}
            }
        }
        Ok(header)
    }

    /// Returns the sizes. The old fields have precedence, as in Caffe.
    fn sizes(&self) -> &[i64] {
        self.legacy.as_ref().map_or(&self.dims, |legacy| legacy.as_slice())
    }
}

/// Returns the shape of a blob.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `negative-dimension`; [`weighbridge_core::Kind::Limit`].
fn shape(header: &Header, limits: &Limits) -> Result<Shape> {
    let sizes = header.sizes();
    Limits::check("dimensions", "dimensions", sizes.len() as u64, limits.dimensions)?;
    let dims: Option<Vec<u64>> = sizes.iter().map(|&size| u64::try_from(size).ok()).collect();
    dims.map(Shape::new).ok_or_else(|| {
        Error::corrupt("negative-dimension", "a dimension is negative")
            .expected("0 or more")
            .found(format_args!("{sizes:?}"))
    })
}

/// Returns the dtype of the elements in a field.
fn dtype(field: u32, header: &Header) -> Result<DType> {
    let raw = match field {
        5 | 6 => return Ok(DType::F32),
        8 | 9 => return Ok(DType::F64),
        12 => header.raw_types[0],
        _ => header.raw_types[1],
    };
    Ok(match raw {
        0 => DType::F64,
        1 => DType::F32,
        2 => DType::F16,
        3 => DType::I32,
        4 => DType::U32,
        _ => {
            return Err(Error::unsupported("unknown-dtype", "the raw elements have an unknown type")
                .expected("0 to 4")
                .found(raw));
        }
    })
}

/// Tensor of a blob, or the reason why it is not read.
pub(crate) enum Found {
    /// Tensor.
    Tensor(Box<TensorEntry>),
    /// Reason for a note.
    Skipped(&'static str),
    /// No elements: of gradients, which most files do not have.
    Nothing,
}

/// Returns the tensor of a blob in one group of fields, [`DATA`] or [`DIFF`].
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] if the elements do not match the shape.
pub(crate) fn tensor(
    blob: &Blob,
    group: [u32; 3],
    path: &TensorPath,
    source: &SourceRef,
    limits: &Limits,
) -> Result<Found> {
    let runs: Vec<&Run> = blob.runs.iter().filter(|run| group.contains(&run.field) && run.len > 0).collect();
    let header = Header::parse(&blob.fields)?;
    let shape = shape(&header, limits)?;
    let fail = |error: Error| error.on_tensor(path).at(blob.at);
    let Some(first) = runs.first() else {
        return match shape.elements() {
            _ if group == DIFF => Ok(Found::Nothing),
            Some(0) => dense(path, DType::F32, shape, source, blob.at),
            _ => Ok(Found::Skipped("its elements are not stored")),
        };
    };
    let dtype = dtype(first.field, &header).map_err(fail)?;
    if runs.iter().any(|run| run.tagged) {
        return Ok(Found::Skipped("its elements have a tag each"));
    }
    if let Some(other) = runs.iter().find(|run| run.field != first.field) {
        return Err(fail(
            Error::corrupt("wrong-type", "the elements are stored in two fields")
                .expected("one field")
                .found(format_args!("fields {} and {}", first.field, other.field)),
        ));
    }
    let len = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.len));
    if shape.bytes(dtype) != Some(len) {
        let expected = shape
            .bytes(dtype)
            .map_or_else(|| "less than 2^64 bytes".to_owned(), |len| format!("{len} bytes"));
        return Err(fail(
            Error::corrupt("length-mismatch", "the elements do not match shape and dtype")
                .expected(format_args!("{expected} for {dtype} {shape}"))
                .found(format_args!("{len} bytes")),
        ));
    }
    if let [run] = runs.as_slice() {
        return dense(path, dtype, shape, source, run.at);
    }
    let ranges = runs.iter().map(|run| (source.clone(), run.at, run.len)).collect();
    let joined: SourceRef = Arc::new(ConcatSource::new(source.label(), ranges)?);
    dense(path, dtype, shape, &joined, 0)
}

fn dense(path: &TensorPath, dtype: DType, shape: Shape, source: &SourceRef, at: u64) -> Result<Found> {
    let entry = TensorEntry::dense(path.clone(), dtype, shape, source, at, Encoding::ROW)?;
    Ok(Found::Tensor(Box::new(entry)))
}
