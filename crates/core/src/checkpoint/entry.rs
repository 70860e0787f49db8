//! Tensor entries of the index.

use super::{Attributes, Name, RowNamesRef, TensorPath};
use crate::checksum::Check;
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::{Opt, Phrase};
use crate::source::SourceRef;
use crate::tensor::{Cast, DType, Encoding, Order, Region, Shape};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Extents of a tensor. Nearly all tensors have one, which needs no allocation.
pub type Pieces = SmallVec<[Extent; 1]>;

/// Named tensor with the byte ranges of its data.
#[derive(Debug, Clone)]
pub struct TensorEntry {
    /// Path. Optimizer state has the path of its parameter.
    pub path: TensorPath,
    /// Role.
    pub role: Role,
    /// Stored dtype, before any cast.
    pub stored: DType,
    /// Cast applied when elements are read or written.
    pub cast: Option<Cast>,
    /// Logical shape, independent of the storage order.
    pub shape: Shape,
    /// Extents. Together they cover the tensor without overlap.
    pub extents: Pieces,
    /// Attributes specific to the format.
    pub attributes: Attributes,
    /// Names of the rows (first index), if the tensor is a table with names.
    pub row_names: Option<RowNamesRef>,
    /// True if name, dtype or layout was guessed.
    pub guessed: bool,
}

/// Role of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    /// Trained parameter.
    Parameter,
    /// Tensor of the model that is not trained.
    Buffer,
    /// Rows of an embedding table.
    Embedding,
    /// Optimizer state of the parameter of the same path, under the name `slot`.
    OptimizerState {
        /// Name of the state, such as `Adam.m1`.
        slot: Name,
    },
    /// Optimizer state with its own path, as in checkpoints of PyTorch.
    OptimizerPart {
        /// Parameter that the state belongs to, if known.
        of: Option<Box<StateOf>>,
    },
    /// Columns of an edge list.
    Edges,
    /// Names of the rows of another tensor.
    Names,
    /// Other role.
    Other,
}

/// Parameter that a tensor of optimizer state belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateOf {
    /// Name of the parameter, as returned by [`TensorEntry::text`].
    pub name: String,
    /// True if inferred from the order and the shapes of the parameters, not from a name.
    pub guessed: bool,
}

impl Role {
    /// Returns the role as written in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Buffer => "buffer",
            Self::Embedding => "embedding",
            Self::OptimizerState { .. } | Self::OptimizerPart { .. } => "optimizer",
            Self::Edges => "edges",
            Self::Names => "names",
            Self::Other => "other",
        }
    }
    /// Returns the slot of optimizer state.
    pub fn slot(&self) -> Option<&Name> {
        match self {
            Self::OptimizerState { slot } => Some(slot),
            _ => None,
        }
    }
    /// Returns true for optimizer state, with either kind of path.
    pub fn is_state(&self) -> bool {
        matches!(self, Self::OptimizerState { .. } | Self::OptimizerPart { .. })
    }
    /// Returns the parameter of optimizer state with its own path, if known.
    pub fn state_of(&self) -> Option<&StateOf> {
        match self {
            Self::OptimizerPart { of } => of.as_deref(),
            _ => None,
        }
    }
    /// Returns the role of that JSON word; `optimizer` requires a `slot`.
    pub fn from_parts(word: &str, slot: Option<Name>) -> Option<Self> {
        Some(match word {
            "parameter" => Self::Parameter,
            "buffer" => Self::Buffer,
            "embedding" => Self::Embedding,
            "optimizer" => Self::OptimizerState { slot: slot? },
            "edges" => Self::Edges,
            "names" => Self::Names,
            "other" => Self::Other,
            _ => return None,
        })
    }
}

/// Byte range that fills a box of a tensor.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Source with the bytes.
    pub source: SourceRef,
    /// Offset of the first byte in `source`.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Layout of the elements.
    pub encoding: Encoding,
    /// Box of the tensor; `None` for the whole tensor. See [`region`](Self::region). Code that changes the shape of a tensor must
    /// update it, unless the extent still fills the whole tensor.
    pub part: Option<Box<Region>>,
    /// Checksum that the file states for a range around these bytes. Neither opening nor reading verifies it:
    /// [`verify_tensor`](TensorEntry::verify_tensor) does, and every plan that copies the tensor.
    pub check: Option<Arc<Check>>,
}

impl Extent {
    /// Returns the box of this extent in a tensor of `shape`.
    pub fn region(&self, shape: &Shape) -> Cow<'_, Region> {
        match &self.part {
            Some(part) => Cow::Borrowed(part),
            None => Cow::Owned(Region::whole(shape)),
        }
    }
    /// Returns the first index of the box along the first dimension.
    pub fn first_row(&self) -> u64 {
        self.part.as_ref().and_then(|part| part.start.first().copied()).unwrap_or(0)
    }
    /// Moves the box down by `rows`, for a tensor of `shape` that becomes part of a longer one.
    pub fn move_down(&mut self, rows: u64, shape: &Shape) {
        let mut part = self.region(shape).into_owned();
        if let Some(start) = part.start.first_mut() {
            *start += rows;
        }
        self.part = Some(Box::new(part));
    }
    /// Returns the sizes of the box in a tensor of `shape`.
    pub fn shape<'a>(&'a self, shape: &'a Shape) -> &'a [u64] {
        self.part.as_ref().map_or(shape.dims(), |part| &part.shape)
    }
}

impl TensorEntry {
    /// Creates a parameter with dense elements in `source` from `offset`.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`]: `shape-overflow` if the length in bytes overflows or is not whole, `past-the-end` if the bytes
    /// exceed the source.
    pub fn dense(
        path: TensorPath,
        dtype: DType,
        shape: Shape,
        source: &SourceRef,
        offset: u64,
        encoding: Encoding,
    ) -> Result<Self> {
        let fail = |e: Error| e.in_file(source.label()).on_tensor(&path).at(offset);
        let len = shape.bytes(dtype).ok_or_else(|| {
            fail(
                Error::corrupt(
                    "shape-overflow",
                    "the length of the tensor is not a whole number of bytes below 2^64",
                )
                .found(format_args!("{dtype} {shape}")),
            )
        })?;
        crate::source::check_range(&**source, offset, len).map_err(fail)?;
        let extent = Extent { source: source.clone(), offset, len, encoding, part: None, check: None };
        Ok(Self {
            path,
            role: Role::Parameter,
            stored: dtype,
            cast: None,
            shape,
            extents: [extent].into(),
            attributes: Attributes::new(),
            row_names: None,
            guessed: false,
        })
    }

    /// Returns `rows` (indices along the first dimension) as a tensor without row names. Nothing is read: the extents are
    /// split.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], code `rows`, for rows out of range; [`crate::Kind::Unsupported`], `packed-rows`, if a row does
    /// not begin at a byte boundary.
    pub fn rows(&self, rows: Range<u64>) -> Result<Self> {
        let Some((&all, rest)) = self.shape.dims().split_first().filter(|(all, _)| rows.end <= **all) else {
            return Err(Error::usage("rows", "row range out of bounds")
                .on_tensor(self.name())
                .expected(format_args!("rows of {}", self.shape))
                .found(format_args!("{} to {}", rows.start, rows.end)));
        };
        let rows = rows.start.min(rows.end)..rows.end;
        let count = rows.end - rows.start;
        let shape = Shape::new(std::iter::once(count).chain(rest.iter().copied()).collect::<Vec<_>>());
        let mut entry = Self { shape, extents: Pieces::new(), row_names: None, ..self.clone() };
        if count == all {
            entry.extents = self.extents.clone();
            return Ok(entry);
        }
        for extent in &self.extents {
            entry.extents.extend(self.cut(extent, &rows, &entry.shape)?);
        }
        Ok(entry)
    }

    /// Returns the part of `extent` in these rows, as an extent of the tensor of these rows, which has `shape`.
    fn cut(&self, extent: &Extent, rows: &Range<u64>, shape: &Shape) -> Result<Option<Extent>> {
        let whole = extent.region(&self.shape).into_owned();
        let (first, count) = (whole.start[0], whole.shape[0]);
        let (start, end) = (rows.start.max(first), rows.end.min(first + count));
        if start >= end {
            return Ok(None);
        }
        let (is_order_free, row) = (whole.shape().is_order_free(), whole.shape[1..].iter().product::<u64>());
        let mut part = whole;
        part.start[0] = start - rows.start;
        part.shape[0] = end - start;
        let mut cut = Extent { part: part.unless_whole(shape), ..extent.clone() };
        if end - start == count {
            return Ok(Some(cut));
        }
        let packed = || {
            Error::unsupported("packed-rows", "rows of elements that share bytes cannot be split")
                .on_tensor(self.name())
        };
        let size = self.stored.size().ok_or_else(packed)? as u64;
        if extent.encoding.order == Order::Row || is_order_free {
            // The checksum of a larger range stays: verifying it reads the whole range.
            cut.offset += (start - first) * row * size;
            cut.len = (end - start) * row * size;
            return Ok(Some(cut));
        }
        // Rows of a column-major extent are not contiguous: `RowsSource` joins them.
        let view = crate::source::RowsSource::new(extent, &self.shape, size, start - first..end - first)?;
        (cut.offset, cut.len) = (0, crate::source::Source::len(&view));
        // No checksum: it covers the whole extent, which is not read here.
        cut.check = None;
        cut.source = Arc::new(view);
        Ok(Some(cut))
    }

    /// Returns the hint for a target that holds `f32` but not the dtype of the tensor.
    pub fn f32_hint(&self) -> Phrase {
        match self.cast {
            Some(cast) if self.stored == DType::F32 => {
                let cast = Opt::Cast.with(cast.to.to_string());
                phrase!["remove ", cast, ", or write another format"]
            }
            Some(cast) => phrase!["use ", Opt::Cast.with("f32"), format_args!(" instead of {}", cast.to)],
            None if matches!(self.stored, DType::C64 | DType::C128) => {
                phrase!["a complex tensor cannot be cast; exclude it with ", Opt::Drop.with(self.name())]
            }
            None => phrase!["use ", Opt::Cast.with("f32")],
        }
    }

    /// Returns the dtype of the elements as read: after the cast, if any.
    pub fn dtype(&self) -> DType {
        self.cast.map_or(self.stored, |cast| cast.to)
    }

    /// Returns the bytes of the elements in their [`dtype`](Self::dtype).
    pub fn bytes(&self) -> u64 {
        // A cast of a tensor near 2^64 bytes could overflow; no such tensor can be read.
        self.shape.bytes(self.dtype()).unwrap_or(u64::MAX)
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.elements().unwrap_or(u64::MAX)
    }

    /// Returns the storage order; row-major for empty tensors, or if both orders are the same bytes.
    pub fn order(&self) -> Order {
        self.extents.first().map_or(Order::Row, |p| p.encoding.order)
    }

    /// Returns the display name: parts joined by dots, and `/slot` for optimizer state. Not escaped.
    pub fn text(&self) -> String {
        match self.role.slot() {
            Some(slot) => format!("{}/{}", self.path.to_text(), slot.to_text()),
            None => self.path.to_text(),
        }
    }

    /// Returns [`text`](Self::text), escaped for terminals.
    pub fn name(&self) -> String {
        super::escape_text(&self.text())
    }

    /// Returns true if `name`, written by a user, can mean this tensor.
    pub(super) fn answers_to(&self, name: &str) -> bool {
        let json_path = || match name.rfind("]/") {
            Some(end) => (&name[..=end], Some(&name[end + 2..])),
            None => (name, None),
        };
        if name.starts_with('[')
            && let (path, slot) = json_path()
            && let Ok(json) = serde_json::from_str::<serde_json::Value>(path)
            && let Some(path) = TensorPath::from_json(&json)
        {
            return path == self.path && slot == self.role.slot().map(Name::to_text).as_deref();
        }
        self.text() == name || self.name() == name
    }

    /// Returns the single extent that fills the tensor densely, if any.
    pub fn single_extent(&self) -> Option<&Extent> {
        match self.extents.as_slice() {
            [extent] if extent.region(&self.shape).is_whole(&self.shape) => Some(extent),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a hundred megabytes may have millions of tensors: their index must fit into memory several times.
    #[test]
    fn entries_are_small() {
        assert!(size_of::<TensorEntry>() <= 176, "{}", size_of::<TensorEntry>());
        assert!(size_of::<Extent>() <= 56, "{}", size_of::<Extent>());
    }
}
