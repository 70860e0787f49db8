//! One tensor of the index.

use super::{Attributes, Name, RowNamesRef, TensorPath};
use crate::error::{Error, Result};
use crate::source::SourceRef;
use crate::tensor::{Cast, DType, Encoding, Order, Region, Shape};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// The pieces of a tensor. Nearly all tensors have one, which needs no allocation.
pub type Pieces = SmallVec<[Extent; 1]>;

/// A named tensor and where its bytes are.
#[derive(Debug, Clone)]
pub struct TensorEntry {
    /// Where it stands. An optimizer's tensor has the path of its parameter.
    pub path: TensorPath,
    /// What it is for.
    pub role: Role,
    /// The type of its elements, as read: a cast that is planned stands in `cast`.
    pub stored: DType,
    /// The type that its elements are to be given when they are read or written, and how.
    pub cast: Option<Cast>,
    /// The logical extents: element (i, j) of the tensor, whatever the order of the bytes.
    pub shape: Shape,
    /// The parts that together fill the tensor. Together they cover it, without overlap.
    pub extents: Pieces,
    /// What only this format knows of it.
    pub attributes: Attributes,
    /// The names of its rows (the first index), where it is a table that has them.
    pub row_names: Option<RowNamesRef>,
    /// True where name, dtype or layout was guessed.
    pub guessed: bool,
}

/// What a tensor is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    /// A trained parameter.
    Parameter,
    /// A tensor that the model keeps but does not train.
    Buffer,
    /// Rows of an embedding table.
    Embedding,
    /// What an optimizer remembers about the parameter of the same path, under the name `slot`.
    OptimizerState {
        /// The optimizer's name for it, such as `Adam.m1`.
        slot: Name,
    },
    /// What an optimizer remembers, under a path of its own, as in checkpoints of PyTorch.
    OptimizerPart {
        /// Which parameter it is about, where that is known.
        of: Option<Box<StateOf>>,
    },
    /// Columns of an edge list.
    Edges,
    /// Names of the rows of another tensor.
    Names,
    /// None of these.
    Other,
}

/// Which parameter a tensor of an optimizer is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateOf {
    /// The parameter's name, as [`TensorEntry::text`] gives it.
    pub name: String,
    /// True where it follows from the order and the shapes of the parameters, and no name says it.
    pub guessed: bool,
}

impl Role {
    /// The word in JSON.
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
    /// The optimizer's slot, if it is one.
    pub fn slot(&self) -> Option<&Name> {
        match self {
            Self::OptimizerState { slot } => Some(slot),
            _ => None,
        }
    }
    /// True for what an optimizer remembers, whatever its path.
    pub fn is_state(&self) -> bool {
        matches!(self, Self::OptimizerState { .. } | Self::OptimizerPart { .. })
    }
    /// The parameter that state with a path of its own is about, where that is known.
    pub fn state_of(&self) -> Option<&StateOf> {
        match self {
            Self::OptimizerPart { of } => of.as_deref(),
            _ => None,
        }
    }
    /// The role of that word; `slot` is needed for `optimizer`.
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

/// A byte range that fills a box of a tensor.
#[derive(Debug, Clone)]
pub struct Extent {
    /// What holds the bytes.
    pub source: SourceRef,
    /// Offset of the first byte in `source`.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// How the elements of the box lie in the bytes.
    pub encoding: Encoding,
    /// The box of the tensor that is filled; `None` for the whole tensor. [`region`](Self::region) gives it for a shape. Who
    /// changes the shape of a tensor must set it, unless the piece still fills all of it.
    pub part: Option<Box<Region>>,
    /// A checksum that the file gives for bytes around these. Opening does not read them; whoever
    /// reads the whole tensor holds them against it.
    pub check: Option<Box<Check>>,
}

impl Extent {
    /// The box that is filled of a tensor of `shape`.
    pub fn region(&self, shape: &Shape) -> Cow<'_, Region> {
        match &self.part {
            Some(part) => Cow::Borrowed(part),
            None => Cow::Owned(Region::whole(shape)),
        }
    }
    /// The first index along the first dimension that is filled.
    pub fn first_row(&self) -> u64 {
        self.part.as_ref().and_then(|part| part.start.first().copied()).unwrap_or(0)
    }
    /// Makes a piece of a tensor of `shape` one of a longer tensor, in which it begins `rows` further down.
    pub fn move_down(&mut self, rows: u64, shape: &Shape) {
        let mut part = self.region(shape).into_owned();
        if let Some(start) = part.start.first_mut() {
            *start += rows;
        }
        self.part = Some(Box::new(part));
    }
    /// The extents of the box that is filled of a tensor of `shape`.
    pub fn shape<'a>(&'a self, shape: &'a Shape) -> &'a [u64] {
        self.part.as_ref().map_or(shape.dims(), |part| &part.shape)
    }
}

/// The CRC-32 (as in zip) that a file gives for a range of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What their CRC-32 must be.
    pub crc32: u32,
}

impl TensorEntry {
    /// A parameter whose elements lie densely in `source` from `offset` on.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`]: `shape-overflow` where the shape has no length in bytes,
    /// `past-the-end` where the bytes leave the source.
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
                Error::corrupt("shape-overflow", "the shape has no length in whole bytes below 2^64")
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

    /// The rows `rows` (indices along the first dimension) as a tensor of their own, without its
    /// names. Nothing is read: the pieces are cut.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], code `rows`, where there are no such rows; [`crate::Kind::Unsupported`],
    /// `packed-rows`, where a cut would fall inside of a byte.
    pub fn rows(&self, rows: Range<u64>) -> Result<Self> {
        let Some((&all, rest)) = self.shape.dims().split_first().filter(|(all, _)| rows.end <= **all) else {
            return Err(Error::usage("rows", "the tensor has no such rows")
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

    /// The part of `extent` that lies in these rows, as a part of their tensor, which has `shape`.
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
            Error::unsupported("packed-rows", "rows of elements that share bytes cannot be told apart")
                .on_tensor(self.name())
        };
        let size = self.stored.size().ok_or_else(packed)? as u64;
        if extent.encoding.order == Order::Row || is_order_free {
            // A checksum of bytes around stays: whoever reads these reads and checks it all.
            cut.offset += (start - first) * row * size;
            cut.len = (end - start) * row * size;
            return Ok(Some(cut));
        }
        // Rows of a column-major piece lie apart: they are read as one source.
        let view = crate::source::RowsSource::new(extent, &self.shape, size, start - first..end - first)?;
        (cut.offset, cut.len) = (0, crate::source::Source::len(&view));
        // The checksum is one of the whole, which is not read here.
        cut.check = None;
        cut.source = std::sync::Arc::new(view);
        Ok(Some(cut))
    }

    /// The type of the elements as a reader or writer will see them: after a cast, if one is asked.
    pub fn dtype(&self) -> DType {
        self.cast.map_or(self.stored, |cast| cast.to)
    }

    /// The bytes of the elements in their [`dtype`](Self::dtype).
    pub fn bytes(&self) -> u64 {
        // A cast of a shape near 2^64 bytes could overflow; no such tensor can be read anyway.
        self.shape.bytes(self.dtype()).unwrap_or(u64::MAX)
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.elements().unwrap_or(u64::MAX)
    }

    /// The order of the bytes; row-major where there are none, or where both are the same.
    pub fn order(&self) -> Order {
        self.extents.first().map_or(Order::Row, |p| p.encoding.order)
    }

    /// The name as people see it: parts joined by dots, and `/slot` for optimizer state. Not
    /// escaped.
    pub fn text(&self) -> String {
        match self.role.slot() {
            Some(slot) => format!("{}/{}", self.path.to_text(), slot.to_text()),
            None => self.path.to_text(),
        }
    }

    /// [`text`](Self::text), safe for terminals.
    pub fn name(&self) -> String {
        super::escape_text(&self.text())
    }

    /// True where a person who wrote `name` can mean this tensor.
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

    /// The single piece that holds the tensor densely and as it is, if there is one.
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

    /// Files of a hundred megabytes hold millions of tensors: an index of them must fit into memory several times.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<TensorEntry>() <= 176, "{}", size_of::<TensorEntry>());
        assert!(size_of::<Extent>() <= 56, "{}", size_of::<Extent>());
    }
}
