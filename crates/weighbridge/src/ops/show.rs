//! Values of a tensor as JSON.

use super::slice::{Picked, Slice, only, read_at, resolve};
use crate::checkpoint::{Checkpoint, TensorEntry};
use crate::error::{Error, Result};
use crate::tensor::{DType, Element, Order};
use serde_json::{Value as Json, json};

/// Maximum number of values in a document.
const MAX_ELEMENTS: u64 = 1_000_000;

/// Returns the document of the values of a tensor, or of a slice of it: `path`, `name`, `dtype`, `shape`, `values`, and
/// `damage` for a damaged file. `name` may be `None` where the file has a single tensor.
///
/// # Errors
/// As [`resolve`] and [`only`]; [`crate::Kind::Limit`] for more than 1,000,000 values; errors of the sources.
pub fn document(checkpoint: &Checkpoint, name: Option<&str>) -> Result<Json> {
    let (entry, slice) = match name {
        Some(name) => resolve(checkpoint, name)?,
        None => (only(checkpoint)?, Slice::all()),
    };
    let named = |error: Error| error.in_file(&checkpoint.label);
    let selection = slice.select(&entry.shape).map_err(|e| named(e.on_tensor(entry.name())))?;
    let mut document = json!({
        "path": checkpoint.label,
        "name": entry.text(),
        "dtype": entry.dtype().name(),
        "shape": selection.shape().dims(),
        "values": values_json(entry, &slice).map_err(named)?,
    });
    if let Some(damage) = checkpoint.damage_json() {
        document["damage"] = damage;
    }
    Ok(document)
}

/// Returns the values of `slice` of `entry` as nested lists, nested as by `numpy.tolist`. Numbers are the shortest decimals
/// with the same `f32` value (`f64` for the wide types). `"NaN"`, `"Infinity"` and `"-Infinity"` are strings; a complex number
/// is a list of two.
///
/// # Errors
/// [`crate::Kind::Unsupported`] for packed types; [`crate::Kind::Limit`] for more than 1,000,000 values; errors of the sources.
fn values_json(entry: &TensorEntry, slice: &Slice) -> Result<Json> {
    let named = |e: Error| e.on_tensor(entry.name());
    let dtype = entry.dtype();
    if dtype.size().is_none() {
        return Err(named(packed(dtype)));
    }
    let selection = slice.select(&entry.shape).map_err(named)?;
    let shape = selection.shape();
    // Without elements there may still be many empty lists.
    let lists = shape.dims().iter().take_while(|&&d| d > 0).try_fold(1u64, |n, &d| n.checked_mul(d));
    match lists {
        Some(lists) if lists <= MAX_ELEMENTS => {}
        _ => {
            return Err(Error::limit("too-many-values", "too many values for one JSON document")
                .expected(format_args!("at most {MAX_ELEMENTS}"))
                .found(lists.map_or("more than 2^64".into(), |n| n.to_string()))
                .hint("select a slice, such as NAME[0:10]")
                .on_tensor(entry.name()));
        }
    }
    let bytes = match selection.region() {
        _ if shape.dims().contains(&0) => Vec::new(),
        Some(region) => entry.read_region(&region, Order::Row)?,
        None => {
            let indices = |axis: &Picked| (0..axis.count).map(|place| axis.at(place)).collect();
            read_at(entry, selection.axes.iter().map(indices).collect())?
        }
    };
    let mut index = 0;
    nest(dtype, shape.dims(), &bytes, &mut index).ok_or_else(|| named(packed(dtype)))
}

fn packed(dtype: DType) -> Error {
    Error::unsupported(
        "packed-values",
        format!("elements of type {dtype} are packed into shared bytes and cannot be shown"),
    )
}

/// Returns the next elements of `bytes` as lists nested by `dims`.
fn nest(dtype: DType, dims: &[u64], bytes: &[u8], index: &mut usize) -> Option<Json> {
    match dims.split_first() {
        Some((&len, rest)) => (0..len).map(|_| nest(dtype, rest, bytes, index)).collect(),
        None => {
            let element = dtype.element_at(bytes, *index)?;
            *index += 1;
            Some(element_json(dtype, element))
        }
    }
}

fn element_json(dtype: DType, element: Element) -> Json {
    let wide = matches!(dtype, DType::F64 | DType::C128);
    let float = |x: f64| super::number_json(if wide { x } else { shortest_of_f32(x) });
    match element {
        Element::Bool(b) => json!(b),
        Element::Int(i) => i64::try_from(i).map_or_else(|_| json!(u64::try_from(i).ok()), |i| json!(i)),
        Element::Float(x) => float(x),
        Element::Complex(re, im) => json!([float(re), float(im)]),
    }
}

/// Returns the `f64` whose shortest decimal is that of `x` as an `f32`.
#[allow(clippy::cast_possible_truncation)] // `x` is a value of f32
fn shortest_of_f32(x: f64) -> f64 {
    if x.is_finite() { (x as f32).to_string().parse().unwrap_or(x) } else { x }
}

#[cfg(test)]
mod tests;
