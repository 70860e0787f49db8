//! Arrays of a parameter file: headers, and the places of their elements.

use crate::DTYPES;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Shape};
use weighbridge_io::source::{Cursor, SourceRef};

/// First 16 bytes of a file: the number 0x112, and 8 reserved bytes.
pub(crate) const HEAD: [u8; 16] = [0x12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// First number of an array of version 1. Versions 2 and 3 follow; in version 0 it is the number of dimensions.
pub(crate) const V1: u32 = 0xf993_fac8;
/// Maximum number of dimensions of an array of version 0: larger numbers are not dimensions.
const MAX_V0_DIMENSIONS: u32 = 64;
/// Device `cpu(0)`, as written: type and number.
pub(crate) const CPU: (i32, i32) = (1, 0);
/// Memory of an entry of the index, besides its name.
const ENTRY: u64 = 500;
/// Minimum bytes of an array: of one without elements, in version 0.
const MIN_ARRAY: u64 = 4;

/// Storage type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// All elements.
    Dense,
    /// Some rows, with their indices.
    RowSparse,
    /// Compressed sparse rows.
    Csr,
}

impl Storage {
    /// Returns the number in files.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Dense => 0,
            Self::RowSparse => 1,
            Self::Csr => 2,
        }
    }

    /// Returns the name in MXNet; `None` for dense arrays.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Dense => None,
            Self::RowSparse => Some("row_sparse"),
            Self::Csr => Some("csr"),
        }
    }

    /// Returns the storage type of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::RowSparse, Self::Csr].into_iter().find(|storage| storage.name() == Some(name))
    }

    /// Returns the names of the parts besides the data, in the order of the file.
    pub(crate) fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Dense => &[],
            Self::RowSparse => &["indices"],
            Self::Csr => &["indptr", "indices"],
        }
    }
}

/// Elements in a file.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Dtype.
    pub(crate) dtype: DType,
    /// Shape.
    pub(crate) shape: Shape,
    /// Offset of the first element.
    pub(crate) at: u64,
}

impl Part {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.shape.bytes(self.dtype).unwrap_or(u64::MAX)
    }
}

/// Array of a file.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    /// Offset of its header.
    pub(crate) at: u64,
    /// Version: 0 to 3.
    pub(crate) version: u8,
    /// Storage type.
    pub(crate) storage: Storage,
    /// Shape, without its storage.
    pub(crate) shape: Shape,
    /// Device type and number. The elements of any device are stored alike.
    pub(crate) device: (i32, i32),
    /// Data, followed by the parts of its storage type. Empty for an array without elements (`None`).
    pub(crate) parts: Vec<Part>,
    /// Offset of the first byte after the array.
    pub(crate) end: u64,
}

/// Content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Arrays, in order.
    pub(crate) arrays: Vec<Array>,
    /// Names: one for each array, or none.
    pub(crate) names: Vec<Vec<u8>>,
    /// Number of arrays as stated.
    pub(crate) count: u64,
    /// Offset of the number of names.
    pub(crate) names_at: u64,
    /// Offset of the first byte after the names.
    pub(crate) end: u64,
    /// First fault, if the file was salvaged.
    pub(crate) fault: Option<Error>,
}

/// Reads all headers and names of a file. `salvage` ends at the first fault, and keeps the arrays in front of it.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
pub(crate) fn read(source: &SourceRef, limits: &Limits, salvage: bool) -> Result<Content> {
    let mut content = Content::default();
    match fill(source, limits, salvage, &mut content) {
        Err(error) if salvage && weighbridge_core::checkpoint::Damage::is(&error) => {
            let has_names = !content.arrays.is_empty() && content.names.len() == content.arrays.len();
            if let Some(last) = content.arrays.last().filter(|_| !has_names)
                && !follows(source, last, content.count)?
            {
                // A damaged header moves the end of its array, and no reader can tell where.
                content.arrays.pop();
            }
            content.fault = Some(error);
        }
        done => done?,
    }
    Ok(content)
}

/// Returns true if another array, the names or the end of the file follow an array.
fn follows(source: &SourceRef, array: &Array, count: u64) -> Result<bool> {
    let mut cursor = Cursor::new(source.clone(), array.end);
    let Some(next) = cursor.peek::<4>()?.map(u32::from_le_bytes) else { return Ok(true) };
    if (V1..=V1 + 2).contains(&next) {
        return Ok(true);
    }
    let names = cursor.peek::<8>()?.map(u64::from_le_bytes);
    let is_old = array.version == 0 && (1..=MAX_V0_DIMENSIONS).contains(&next);
    let is_last = source.len().saturating_sub(array.end) <= 8;
    let names = names.unwrap_or(next.into());
    Ok(is_old || names == count || names == 0 && is_last)
}

fn fill(source: &SourceRef, limits: &Limits, salvage: bool, content: &mut Content) -> Result<()> {
    let budget = limits.budget_of(source);
    let mut cursor = Cursor::new(source.clone(), 0);
    let head: [u8; 8] = cursor.array("the header")?;
    if HEAD.get(..8) != Some(&head) {
        return Err(Error::corrupt(
            "bad-header",
            "the file does not begin with the number of a parameter file",
        )
        .at(0)
        .expected("0x112")
        .found(format_args!("{:#x}", u64::from_le_bytes(head))));
    }
    let reserved: [u8; 8] = cursor.array("the header")?;
    if reserved != [0; 8] {
        return Err(Error::unsupported("unknown-version", "the reserved field of the header is not 0")
            .at(8)
            .expected("0")
            .found(format_args!("{:#x}", u64::from_le_bytes(reserved))));
    }
    content.count = u64::from_le_bytes(cursor.array("the number of arrays")?);
    Limits::check("tensors", "tensors", content.count, limits.tensors).map_err(|e| e.at(16))?;
    if !salvage && content.count > cursor.remaining() / MIN_ARRAY {
        return Err(Error::corrupt("truncated", "the file is too short for its arrays")
            .at(16)
            .expected(format_args!("{} arrays", content.count))
            .found(format_args!("{} bytes", cursor.remaining()))
            .hint("the file is truncated or damaged; compare its length with the original"));
    }
    for number in 0..content.count {
        let at = cursor.position();
        if salvage && ends_here(&mut cursor, number, limits, &budget, content)? {
            return Err(Error::corrupt("names-differ", "the names of the arrays follow too early")
                .at(at)
                .expected(format_args!("{} arrays", content.count))
                .found(number));
        }
        let array = array(&mut cursor, limits, &budget)
            .map_err(|error| error.on_tensor(format_args!("array {number}")).at(at))?;
        // In a damaged file, the bytes of other parts look like arrays of version 0, which has no mark.
        if salvage && array.version == 0 && content.arrays.first().is_some_and(|first| first.version > 0) {
            let error = Error::unsupported("unknown-version", "the array has no version");
            return Err(error.on_tensor(format_args!("array {number}")).at(at));
        }
        content.arrays.push(array);
    }
    content.names_at = cursor.position();
    names(&mut cursor, content.count, limits, &budget, &mut content.names)?;
    content.end = cursor.position();
    Ok(())
}

/// Reads the names at the position, if they are those of `count` arrays and fill the file: the number of arrays is then damaged.
fn ends_here(
    cursor: &mut Cursor,
    count: u64,
    limits: &Limits,
    budget: &Budget,
    content: &mut Content,
) -> Result<bool> {
    if count == 0 || cursor.peek::<8>()? != Some(count.to_le_bytes()) {
        return Ok(false);
    }
    let mut rest = Cursor::new(cursor.source().clone(), cursor.position());
    let mut found = Vec::new();
    let done = names(&mut rest, count, limits, budget, &mut found).is_ok() && rest.remaining() == 0;
    if done {
        content.names = found;
    }
    Ok(done)
}

/// Reads the names of `count` arrays.
fn names(
    cursor: &mut Cursor,
    count: u64,
    limits: &Limits,
    budget: &Budget,
    out: &mut Vec<Vec<u8>>,
) -> Result<()> {
    let at = cursor.position();
    let names = u64::from_le_bytes(cursor.array("the number of names")?);
    if names != 0 && names != count {
        return Err(Error::corrupt("names-differ", "the file does not have one name for each array")
            .at(at)
            .expected(format_args!("{count} or 0"))
            .found(names));
    }
    for _ in 0..names {
        let at = cursor.position();
        let len = u64::from_le_bytes(cursor.array("the length of a name")?);
        Limits::check("bytes in a name", "name_bytes", len, limits.name_bytes).map_err(|e| e.at(at))?;
        budget.take_memory(len)?;
        out.push(cursor.bytes(len, "a name").map_err(|e| e.at(at))?);
    }
    Ok(())
}

fn array(cursor: &mut Cursor, limits: &Limits, budget: &Budget) -> Result<Array> {
    budget.take_memory(ENTRY)?;
    let at = cursor.position();
    let first = u32::from_le_bytes(cursor.array("the header of an array")?);
    let (version, dimensions) = match first.wrapping_sub(V1) {
        0 => (1, None),
        1 => (2, None),
        2 => (3, None),
        _ if first <= MAX_V0_DIMENSIONS => (0, Some(first)),
        _ => {
            return Err(Error::unsupported("unknown-version", "the array has an unknown version")
                .at(at)
                .expected(format_args!("{V1:#x} to {:#x}, or a number of dimensions", V1 + 2))
                .found(format_args!("{first:#x}")));
        }
    };
    let storage = if version >= 2 { storage(cursor)? } else { Storage::Dense };
    let mut stored = None;
    if storage != Storage::Dense {
        let at = cursor.position();
        stored = Some(shape(cursor, None, limits)?.ok_or_else(|| unknown_shape(at))?);
    }
    let shape = shape(cursor, dimensions, limits)?;
    // In version 3 a shape without dimensions is that of a scalar.
    let shape = shape.filter(|shape| version == 3 || shape.rank() > 0);
    let Some(shape) = shape else {
        let (shape, device, parts) = (Shape::default(), CPU, Vec::new());
        let end = cursor.position();
        return Ok(Array { at, version, storage, shape, device, parts, end });
    };
    let device = (int(cursor, "the device")?, int(cursor, "the device")?);
    let dtype = dtype(cursor)?;
    let mut kinds = vec![(dtype, stored.unwrap_or_else(|| shape.clone()))];
    for _ in storage.parts() {
        let dtype = self::dtype(cursor)?;
        let at = cursor.position();
        kinds.push((dtype, self::shape(cursor, None, limits)?.ok_or_else(|| unknown_shape(at))?));
    }
    // MXNet 1.9 writes a header at times before the rows are computed. It then reads the array by its indices.
    if let Some((_, indices)) =
        kinds.get(1..).and_then(<[_]>::last).filter(|_| kinds[0].1.elements() == Some(0))
    {
        kinds[0].1 = match storage {
            Storage::RowSparse => rows(&shape, indices),
            _ => indices.clone(),
        };
    }
    let mut parts = Vec::with_capacity(kinds.len());
    for (dtype, shape) in kinds {
        let at = cursor.position();
        let Some(len) = shape.bytes(dtype) else {
            return Err(Error::corrupt("shape-overflow", "the array exceeds 2^64 bytes")
                .at(at)
                .found(format_args!("{dtype} {shape}")));
        };
        cursor.skip(len, "the elements of an array")?;
        parts.push(Part { dtype, shape, at });
    }
    let end = cursor.position();
    Ok(Array { at, version, storage, shape, device, parts, end })
}

/// Returns the shape of the stored rows of an array.
fn rows(shape: &Shape, indices: &Shape) -> Shape {
    let count = indices.dims().first().copied();
    Shape::new(count.into_iter().chain(shape.dims().iter().skip(1).copied()).collect::<Vec<_>>())
}

fn unknown_shape(at: u64) -> Error {
    Error::corrupt("negative-dimension", "a part of a sparse array has no shape").at(at)
}

fn int(cursor: &mut Cursor, what: &str) -> Result<i32> {
    cursor.array(what).map(i32::from_le_bytes)
}

fn storage(cursor: &mut Cursor) -> Result<Storage> {
    let at = cursor.position();
    let number = int(cursor, "the storage type")?;
    [Storage::Dense, Storage::RowSparse, Storage::Csr].into_iter().find(|s| s.number() == number).ok_or_else(
        || {
            Error::unsupported("unknown-type", "the array has an unknown storage type")
                .at(at)
                .expected("0 (dense), 1 (row_sparse) or 2 (csr)")
                .found(number)
        },
    )
}

/// Reads a shape; `None` if it is unknown. `dimensions` is the number of 32-bit sizes of version 0.
fn shape(cursor: &mut Cursor, dimensions: Option<u32>, limits: &Limits) -> Result<Option<Shape>> {
    let at = cursor.position();
    let rank = match dimensions {
        Some(rank) => i64::from(rank),
        None => i64::from(int(cursor, "a shape")?),
    };
    let Ok(rank) = u64::try_from(rank) else {
        return match rank {
            -1 => Ok(None),
            _ => Err(Error::corrupt("negative-dimension", "the number of dimensions is negative")
                .at(at)
                .found(rank)),
        };
    };
    Limits::check("dimensions", "dimensions", rank, limits.dimensions).map_err(|e| e.at(at))?;
    let mut dims = Vec::new();
    for _ in 0..rank {
        let size = match dimensions {
            Some(_) => i64::from(u32::from_le_bytes(cursor.array("a shape")?)),
            None => i64::from_le_bytes(cursor.array("a shape")?),
        };
        match u64::try_from(size) {
            Ok(size) => dims.push(size),
            Err(_) if size == -1 => return unknown_sizes(cursor, rank, dims.len(), at),
            Err(_) => {
                let error = Error::corrupt("negative-dimension", "a dimension is negative");
                return Err(error.at(at).found(size));
            }
        }
    }
    Ok(Some(Shape::new(dims)))
}

/// Skips the rest of a shape with an unknown size: the array has no elements.
fn unknown_sizes(cursor: &mut Cursor, rank: u64, read: usize, at: u64) -> Result<Option<Shape>> {
    let rest = rank.saturating_sub(read as u64 + 1);
    cursor.skip(rest.saturating_mul(8), "a shape").map_err(|e| e.at(at))?;
    Ok(None)
}

fn dtype(cursor: &mut Cursor) -> Result<DType> {
    let at = cursor.position();
    let number = int(cursor, "the dtype")?;
    let known = usize::try_from(number).ok().and_then(|number| DTYPES.get(number).copied());
    known.ok_or_else(|| {
        Error::unsupported("unknown-dtype", "the array has an unknown dtype")
            .at(at)
            .expected(format_args!("0 to {}", DTYPES.len() - 1))
            .found(number)
    })
}

/// Returns the number of a dtype in files.
pub(crate) fn dtype_number(dtype: DType) -> Option<i32> {
    DTYPES.iter().position(|known| *known == dtype).and_then(|place| i32::try_from(place).ok())
}

/// Returns the error for bytes after the names.
pub(crate) fn trailing(content: &Content, source: &SourceRef) -> Error {
    Error::corrupt("trailing-bytes", "bytes follow the names of the arrays")
        .at(content.end)
        .expected("the end of the file")
        .found(format_args!("{} bytes", source.len().saturating_sub(content.end)))
        .hint(phrase!["use ", Opt::Lenient, " to ignore them"])
}
