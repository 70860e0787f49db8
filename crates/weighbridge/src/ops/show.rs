//! Values: as text, to the byte as numpy 2 prints them, and as JSON.
//!
//! A large array is summarised as numpy does it, and then only the elements that are shown are
//! read: a tensor of many gigabytes is shown at once.

use super::numpy::{EDGE, Grid, THRESHOLD};
use super::slice::{Slice, Taken, only, read_at, resolve};
use crate::checkpoint::{Checkpoint, TensorEntry};
use crate::error::{Error, Result};
use crate::source::to_usize;
use crate::tensor::{DType, Element, Order, Shape};
use serde_json::{Value as Json, json};

impl Shown {
    /// The most elements that are written out as text.
    pub const MAX_TEXT_ELEMENTS: u64 = 10_000_000;

    /// The most elements that are given as JSON.
    pub const MAX_JSON_ELEMENTS: u64 = 1_000_000;
}
/// The most dimensions of what is shown, as in numpy.
const MAX_DIMENSIONS: usize = 64;
/// A slice of a tensor as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// What `print` of numpy would write, without the newline at the end.
    pub text: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape of the slice.
    pub shape: Shape,
    /// True where only the ends of the dimensions are shown.
    pub summarised: bool,
}

/// The values of `slice` of `entry` as text. With `full`, nothing is left out.
///
/// # Errors
/// As [`Slice::select`]; [`crate::Kind::Unsupported`] for packed types and more than 64 dimensions;
/// [`crate::Kind::Limit`] where more than [`Shown::MAX_TEXT_ELEMENTS`] would be written; and what the sources say.
pub fn show(entry: &TensorEntry, slice: &Slice, full: bool) -> Result<Shown> {
    let named = |e: Error| e.on_tensor(entry.name());
    let dtype = entry.dtype();
    element_size(dtype).map_err(named)?;
    let selection = slice.select(&entry.shape).map_err(named)?;
    let view = View::new(&selection, full).map_err(named)?;
    let bytes = read_view(entry, &view)?;
    let text = view.text(dtype, &bytes).map_err(named)?;
    let summarised = view.summarised && view.shape.dims().iter().any(|&d| d > 2 * EDGE);
    Ok(Shown { text, dtype, shape: selection.shape(), summarised })
}

/// The document of the values of a tensor, or of a slice of it: `path`, `name`, `dtype`, `shape`, `values`, and `damage`
/// where there is some. The only tensor of a file needs no name.
///
/// # Errors
/// As [`resolve`] and [`only`]; [`crate::Kind::Limit`] for more than [`Shown::MAX_JSON_ELEMENTS`]; and what the sources say.
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

/// The values of `slice` of `entry` as nested lists, as `numpy.tolist` nests them. Numbers are
/// the shortest decimals that give the same `f32` (`f64` for the wide types); `"NaN"`,
/// `"Infinity"` and `"-Infinity"` are strings; a complex number is a list of two.
///
/// # Errors
/// As [`show`]; the limit is [`Shown::MAX_JSON_ELEMENTS`].
pub(crate) fn values_json(entry: &TensorEntry, slice: &Slice) -> Result<Json> {
    let named = |e: Error| e.on_tensor(entry.name());
    let dtype = entry.dtype();
    element_size(dtype).map_err(named)?;
    let selection = slice.select(&entry.shape).map_err(named)?;
    let shape = selection.shape();
    // Where there are no elements, there may still be many empty lists.
    let lists = shape.dims().iter().take_while(|&&d| d > 0).try_fold(1u64, |n, &d| n.checked_mul(d));
    hold_against(lists, Shown::MAX_JSON_ELEMENTS, "JSON").map_err(named)?;
    let view = View::new(&selection, true).map_err(named)?;
    let bytes = read_view(entry, &view)?;
    let mut index = 0;
    nest(dtype, shape.dims(), &bytes, &mut index).ok_or_else(|| named(packed(dtype)))
}

fn element_size(dtype: DType) -> Result<usize> {
    dtype.size().ok_or_else(|| packed(dtype))
}

fn packed(dtype: DType) -> Error {
    Error::unsupported("packed-values", format!("elements of type {dtype} share bytes and cannot be shown"))
}

fn hold_against(count: Option<u64>, limit: u64, what: &str) -> Result<u64> {
    match count {
        Some(count) if count <= limit => Ok(count),
        _ => Err(Error::limit("too-many-values", format!("these are too many values to give as {what}"))
            .expected(format_args!("at most {limit}"))
            .found(count.map_or("more than 2^64".into(), |n| n.to_string()))
            .hint("take a slice, such as NAME[0:10]")),
    }
}

/// Which elements of a selection are shown.
struct View<'a> {
    selection: &'a Taken,
    shape: Shape,
    summarised: bool,
}

impl<'a> View<'a> {
    fn new(selection: &'a Taken, full: bool) -> Result<Self> {
        let shape = selection.shape();
        if shape.rank() > MAX_DIMENSIONS {
            return Err(Error::unsupported("too-many-dimensions", "there are too many dimensions to show")
                .expected(format_args!("at most {MAX_DIMENSIONS}"))
                .found(shape.rank()));
        }
        let summarised = !full && shape.elements().is_none_or(|n| n > THRESHOLD);
        let view = Self { selection, shape, summarised };
        let count = view.extents().try_fold(1u64, |n, d| n.checked_mul(d));
        hold_against(if view.is_empty() { Some(0) } else { count }, Shown::MAX_TEXT_ELEMENTS, "text")?;
        Ok(view)
    }

    fn is_empty(&self) -> bool {
        self.shape.dims().contains(&0)
    }

    /// How many indices are shown of a dimension of this extent.
    fn shown(&self, extent: u64) -> u64 {
        if self.summarised { extent.min(2 * EDGE) } else { extent }
    }

    /// The extents of what is shown, with dropped dimensions as 1.
    fn extents(&self) -> impl Iterator<Item = u64> {
        self.selection.axes.iter().map(|a| self.shown(a.count))
    }

    /// The indices shown, for each dimension of the tensor. There are elements.
    fn axes(&self) -> Result<Vec<Vec<u64>>> {
        let mut axes = Vec::with_capacity(self.selection.axes.len());
        for axis in &self.selection.axes {
            let shown = self.shown(axis.count);
            let mut indices = Vec::with_capacity(to_usize(shown)?);
            indices.extend((0..shown).map(|place| {
                let cut = shown < axis.count && place >= EDGE;
                axis.at(if cut { axis.count - shown + place } else { place })
            }));
            axes.push(indices);
        }
        Ok(axes)
    }

    fn text(&self, dtype: DType, bytes: &[u8]) -> Result<String> {
        let shown = if self.is_empty() {
            Vec::new()
        } else {
            self.shape.dims().iter().map(|&d| to_usize(self.shown(d))).collect::<Result<Vec<_>>>()?
        };
        let grid =
            Grid { dtype, shape: self.shape.dims(), shown: &shown, summarised: self.summarised, bytes };
        grid.text().ok_or_else(|| packed(dtype))
    }
}

/// Reads the elements shown, dense and row-major.
fn read_view(entry: &TensorEntry, view: &View) -> Result<Vec<u8>> {
    if view.is_empty() {
        return Ok(Vec::new());
    }
    if let (false, Some(region)) = (view.summarised, view.selection.region()) {
        return entry.read_region(&region, Order::Row);
    }
    read_at(entry, view.axes()?)
}

/// The next elements of `bytes` as lists nested by `dims`.
fn nest(dtype: DType, dims: &[u64], bytes: &[u8], index: &mut usize) -> Option<Json> {
    match dims.split_first() {
        Some((&extent, rest)) => (0..extent).map(|_| nest(dtype, rest, bytes, index)).collect(),
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

/// The `f64` whose shortest decimal is that of `x` as an `f32`.
#[allow(clippy::cast_possible_truncation)] // `x` is a value of f32
fn shortest_of_f32(x: f64) -> f64 {
    if x.is_finite() { (x as f32).to_string().parse().unwrap_or(x) } else { x }
}

#[cfg(test)]
mod tests;
