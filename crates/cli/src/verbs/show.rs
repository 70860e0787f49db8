//! `show`: values, formatted byte for byte as numpy 2 does.
//!
//! Large arrays are summarized as in numpy, and only the shown elements are read.

use crate::args::{Common, Show};
use crate::numpy::{EDGE, Grid, THRESHOLD};
use crate::output::{DIM, Output};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::ops::show::document;
use weighbridge::ops::slice::{Picked, Slice, Taken, only, read_at, resolve};
use weighbridge::tensor::{DType, Order, Shape};
use weighbridge::{Error, Result, TensorEntry};

/// Maximum number of printed elements.
const MAX_ELEMENTS: u64 = 10_000_000;
/// Maximum number of dimensions, as in numpy.
const MAX_DIMENSIONS: usize = 64;

pub(crate) fn run(args: &Show, _: &Common, output: &mut Output) -> std::result::Result<Outcome, Failure> {
    let checkpoint = crate::salvage::open(&args.path, &args.input)?;
    if output.json {
        output.document(&document(&checkpoint, args.name.as_deref())?)?;
        return Ok(Outcome::Done);
    }
    let (entry, slice) = match &args.name {
        Some(name) => resolve(&checkpoint, name)?,
        None => (only(&checkpoint)?, Slice::all()),
    };
    let named = |error: Error| error.in_file(&checkpoint.label);
    let shown = show(entry, &slice, args.full).map_err(named)?;
    writeln!(output, "{}", shown.text)?;
    let middle = if shown.summarised { "; use --full to print all values" } else { "" };
    writeln!(output, "{DIM}{} {}{middle}{DIM:#}", shown.dtype, shown.shape)?;
    crate::salvage::say(&checkpoint, output)?;
    Ok(Outcome::Done)
}

/// A slice of a tensor as text.
#[derive(Debug)]
struct Shown {
    /// Text of numpy's `print`, without the final newline.
    text: String,
    dtype: DType,
    shape: Shape,
    /// True if only the ends of the dimensions are shown.
    summarised: bool,
}

/// Formats the values of `slice` of `entry`; all of them with `full`.
///
/// # Errors
/// Errors of [`Slice::select`] and of the source; `Unsupported` for packed dtypes and more than [`MAX_DIMENSIONS`]
/// dimensions; `Limit` for more than [`MAX_ELEMENTS`] elements.
fn show(entry: &TensorEntry, slice: &Slice, full: bool) -> Result<Shown> {
    let named = |e: Error| e.on_tensor(entry.name());
    let dtype = entry.dtype();
    if dtype.size().is_none() {
        return Err(named(packed(dtype)));
    }
    let selection = slice.select(&entry.shape).map_err(named)?;
    let view = View::new(&selection, full).map_err(named)?;
    let bytes = read_view(entry, &view)?;
    let text = view.text(dtype, &bytes).map_err(named)?;
    let summarised = view.summarised && view.shape.dims().iter().any(|&d| d > 2 * EDGE);
    Ok(Shown { text, dtype, shape: selection.shape(), summarised })
}

fn packed(dtype: DType) -> Error {
    Error::unsupported("packed-values", format!("values of packed dtype {dtype} cannot be printed"))
}

/// Shown elements of a selection.
struct View<'a> {
    selection: &'a Taken,
    shape: Shape,
    summarised: bool,
}

impl<'a> View<'a> {
    fn new(selection: &'a Taken, full: bool) -> Result<Self> {
        let shape = selection.shape();
        if shape.rank() > MAX_DIMENSIONS {
            return Err(Error::unsupported(
                "too-many-dimensions",
                "the tensor has too many dimensions to print",
            )
            .expected(format_args!("at most {MAX_DIMENSIONS}"))
            .found(shape.rank()));
        }
        let summarised = !full && shape.elements().is_none_or(|n| n > THRESHOLD);
        let view = Self { selection, shape, summarised };
        let count = view.shown_dims().try_fold(1u64, |n, d| n.checked_mul(d));
        if view.is_empty() || count.is_some_and(|count| count <= MAX_ELEMENTS) {
            return Ok(view);
        }
        Err(Error::limit("too-many-values", "the selection has too many values to print")
            .expected(format_args!("at most {MAX_ELEMENTS}"))
            .found(count.map_or("more than 2^64".into(), |n| n.to_string()))
            .hint("select a slice, such as NAME[0:10]"))
    }

    fn is_empty(&self) -> bool {
        self.shape.dims().contains(&0)
    }

    /// Returns the number of shown indices of a dimension of `len` indices.
    fn shown(&self, len: u64) -> u64 {
        if self.summarised { len.min(2 * EDGE) } else { len }
    }

    /// Returns the number of shown indices of each dimension, 1 for dropped ones.
    fn shown_dims(&self) -> impl Iterator<Item = u64> {
        self.selection.axes.iter().map(|a| self.shown(a.count))
    }

    /// Returns the shown indices of each dimension. The selection is not empty.
    fn axes(&self) -> Vec<Vec<u64>> {
        let indices = |axis: &Picked| {
            let shown = self.shown(axis.count);
            let at = |place| {
                let cut = shown < axis.count && place >= EDGE;
                axis.at(if cut { axis.count - shown + place } else { place })
            };
            (0..shown).map(at).collect()
        };
        self.selection.axes.iter().map(indices).collect()
    }

    fn text(&self, dtype: DType, bytes: &[u8]) -> Result<String> {
        let shown = if self.is_empty() {
            Vec::new()
        } else {
            // At most MAX_ELEMENTS in total.
            self.shape.dims().iter().map(|&d| usize::try_from(self.shown(d)).unwrap_or(usize::MAX)).collect()
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
    read_at(entry, view.axes())
}

#[cfg(test)]
mod tests;
