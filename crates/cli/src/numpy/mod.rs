//! Arrays as text, byte for byte as numpy 2 prints them with its default options.
//!
//! Rules found by observation: one format for all shown elements, lines of 75 columns, and for more than 1000 elements
//! only the first and last three of each dimension, which alone determine the format.

mod digits;
mod float;

use float::{FloatFormat, Kind, alone};
use weighbridge::tensor::{DType, Element};

/// Maximum elements of an array that is not summarized.
pub(crate) const THRESHOLD: u64 = 1000;
/// Elements at each end of a dimension of a summarized array.
pub(crate) const EDGE: u64 = 3;
/// Maximum columns of a line.
const LINE: usize = 75;

/// Shown elements of an array, row-major.
pub(crate) struct Grid<'a> {
    pub(crate) dtype: DType,
    /// Dimensions of the array.
    pub(crate) shape: &'a [u64],
    /// Dimensions of the shown elements: at most twice [`EDGE`] if `summarised`.
    pub(crate) shown: &'a [usize],
    /// True if longer dimensions are cut to their ends.
    pub(crate) summarised: bool,
    /// Shown elements, little-endian.
    pub(crate) bytes: &'a [u8],
}

impl Grid<'_> {
    /// Returns the text; `None` if there are fewer bytes than the shape needs, or the dtype is packed.
    pub(crate) fn text(&self) -> Option<String> {
        if self.shape.contains(&0) {
            return Some("[]".into());
        }
        let count = self.shown.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        if self.bytes.len() < count.checked_mul(self.dtype.size()?)? {
            return None;
        }
        if self.shape.is_empty() {
            return Some(scalar(self.dtype, self.element(0)?));
        }
        let format = Format::new(self, count)?;
        let mut out = String::new();
        self.level(&format, 0, 0, &mut out)?;
        Some(out)
    }

    fn element(&self, index: usize) -> Option<Element> {
        self.dtype.element_at(self.bytes, index)
    }

    /// Writes the part of the array below `axis` whose first element is number `first`.
    fn level(&self, format: &Format, axis: usize, first: usize, out: &mut String) -> Option<()> {
        let cut = self.summarised && self.shape[axis] > 2 * EDGE;
        let lead = if cut { 3 } else { 0 };
        let step: usize = self.shown[axis + 1..].iter().product();
        let below = self.shown.len() - axis - 1;
        let indent = axis + 1;
        out.push('[');
        if below == 0 {
            // Each bracket that may close at the end of a line takes a column.
            let width = LINE.saturating_sub(axis + 1);
            let mut line = Line { out, column: indent, indent, width };
            let mut word = String::new();
            for i in 0..self.shown[axis] {
                if cut && i == lead {
                    line.add("...");
                    line.space();
                }
                word.clear();
                format.write(self.element(first + i)?, &mut word);
                line.add(&word);
                if i + 1 < self.shown[axis] {
                    line.space();
                }
            }
        } else {
            let gap = |out: &mut String| {
                out.extend(std::iter::repeat_n('\n', below));
                out.extend(std::iter::repeat_n(' ', indent));
            };
            for i in 0..self.shown[axis] {
                if i > 0 {
                    gap(out);
                }
                if cut && i == lead {
                    out.push_str("...");
                    gap(out);
                }
                self.level(format, axis + 1, first + i * step, out)?;
            }
        }
        out.push(']');
        Some(())
    }
}

/// A row that is broken where the next word would pass the width.
struct Line<'a> {
    out: &'a mut String,
    column: usize,
    indent: usize,
    width: usize,
}

impl Line<'_> {
    fn add(&mut self, word: &str) {
        // A line that holds nothing yet is not broken: it would not help.
        if self.column + word.len() > self.width && self.column > self.indent {
            self.out.truncate(self.out.trim_end_matches(' ').len());
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', self.indent));
            self.column = self.indent;
        }
        self.out.push_str(word);
        self.column += word.len();
    }

    fn space(&mut self) {
        self.out.push(' ');
        self.column += 1;
    }
}

/// How every element of an array is written.
enum Format {
    Bool,
    Int { width: usize },
    Float(FloatFormat),
    Complex(FloatFormat, FloatFormat),
}

impl Format {
    fn new(grid: &Grid, count: usize) -> Option<Self> {
        let elements = (0..count).map_while(|i| grid.element(i));
        let kind = Kind::of(grid.dtype);
        Some(match grid.element(0)? {
            Element::Bool(_) => Self::Bool,
            Element::Int(_) => {
                let ints = elements.filter_map(|e| if let Element::Int(i) = e { Some(i) } else { None });
                let (least, most) = ints.fold((i128::MAX, i128::MIN), |(a, b), i| (a.min(i), b.max(i)));
                Self::Int { width: least.to_string().len().max(most.to_string().len()) }
            }
            Element::Float(_) => Self::Float(FloatFormat::new(kind, false, elements.map(Element::to_f64))),
            Element::Complex(..) => {
                let part = |imaginary: bool| {
                    let number = move |e| match (e, imaginary) {
                        (Element::Complex(re, _), false) => Some(re),
                        (Element::Complex(_, im), true) => Some(im),
                        _ => None,
                    };
                    FloatFormat::new(kind, imaginary, elements.clone().filter_map(number))
                };
                Self::Complex(part(false), part(true))
            }
        })
    }

    fn write(&self, element: Element, out: &mut String) {
        match (self, element) {
            (Self::Bool, Element::Bool(true)) => out.push_str(" True"),
            (Self::Bool, _) => out.push_str("False"),
            (Self::Int { width }, Element::Int(i)) => out.push_str(&format!("{i:>width$}")),
            (Self::Complex(real, imaginary), Element::Complex(re, im)) => {
                real.write(re, out);
                let mut part = String::new();
                imaginary.write(im, &mut part);
                // The unit stands right behind the digits, before what fills the column.
                let digits = part.trim_end_matches(' ').len();
                part.insert(digits, 'j');
                out.push_str(&part);
            }
            (Self::Float(format) | Self::Complex(format, _), other) => format.write(other.to_f64(), out),
            (Self::Int { .. }, other) => out.push_str(&other.to_f64().to_string()),
        }
    }
}

/// The element of an array without dimensions.
fn scalar(dtype: DType, element: Element) -> String {
    let kind = Kind::of(dtype);
    match element {
        Element::Bool(true) => "True".into(),
        Element::Bool(false) => "False".into(),
        Element::Int(i) => i.to_string(),
        Element::Float(x) => alone(kind, x, false, false),
        Element::Complex(re, im) if re == 0.0 && re.is_sign_positive() => {
            format!("{}j", alone(kind, im, false, true))
        }
        Element::Complex(re, im) => {
            format!("({}{}j)", alone(kind, re, false, true), alone(kind, im, true, true))
        }
    }
}
