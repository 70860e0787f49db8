//! Header of an array: parsing, and encoding as numpy writes it.

mod literal;
#[cfg(feature = "scan")]
mod width;

use literal::{Literal, Parser};
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_io::source::Cursor;
#[cfg(feature = "scan")]
pub(crate) use width::len_of_unread;

/// The first bytes of every npy file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Alignment of the elements in bytes; the header is padded to it.
const ALIGNMENT: usize = 64;
/// Maximum length of a header that is read. numpy stops at 10,000 bytes for untrusted files; an
/// archive member could inflate to any length.
const MAX_HEADER_LEN: u64 = 1 << 20;
/// Number of digits for which numpy reserves space in the slowest dimension.
const GROWTH_DIGITS: usize = 21;

/// Header of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: DType,
    /// Order and byte order of the elements.
    pub encoding: Encoding,
    /// Dimensions.
    pub shape: Shape,
    /// True where the header states the native byte order of the reader; little-endian is then
    /// assumed.
    pub native: bool,
    /// Number of bytes from the magic number to the first element.
    pub len: u64,
}

impl Header {
    /// Reads the header at the cursor and moves it to the first element. `available` is the
    /// number of bytes from the cursor to the end of the array's file or member.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for an invalid npy header; [`weighbridge_core::Kind::Unsupported`], code
    /// `npy-version` or `npy-dtype`, for a valid array that is not supported; [`weighbridge_core::Kind::Limit`] for a header
    /// above 1 MiB.
    pub fn read(cursor: &mut Cursor, available: u64, limits: &Limits) -> Result<Self> {
        let start = cursor.position();
        let need = |len: u64| match len <= available {
            true => Ok(()),
            false => Err(Error::corrupt("truncated", "the file ends within the npy header")
                .at(start)
                .expected(format_args!("{len} bytes from here"))
                .found(format_args!("{available} bytes"))),
        };
        need(10)?;
        let [.., major, minor] = cursor.array::<8>("the magic number of the array").and_then(|magic| {
            if magic.starts_with(MAGIC) {
                return Ok(magic);
            }
            Err(Error::corrupt("npy-magic", r"not an npy file: the signature \x93NUMPY is missing").at(start))
        })?;
        let (prefix, len) = match (major, minor) {
            (1, 0) => (10, u64::from(u16::from_le_bytes(cursor.array("the length of the header")?))),
            (2 | 3, 0) => {
                need(12)?;
                (12, u64::from(u32::from_le_bytes(cursor.array("the length of the header")?)))
            }
            _ => {
                return Err(Error::unsupported("npy-version", "the array has an unsupported npy version")
                    .at(start + 6)
                    .expected("1.0, 2.0 or 3.0")
                    .found(format_args!("{major}.{minor}")));
            }
        };
        if len > MAX_HEADER_LEN {
            return Err(Error::limit("npy-header-length", "the npy header is too long")
                .at(start + 8)
                .expected(format_args!("at most {MAX_HEADER_LEN} bytes"))
                .found(len));
        }
        need(prefix + len)?;
        let bytes = cursor.bytes(len, "the header of the array")?;
        let text = match major {
            3 => String::from_utf8(bytes).map_err(|_| {
                Error::corrupt("npy-header", "the npy header is not UTF-8").at(start + prefix)
            })?,
            _ => bytes.into_iter().map(char::from).collect(),
        };
        // Python 2 wrote long integers with an L suffix; only versions below 3.0 may have it.
        let mut header = Self::parse(&text, major < 3, limits).map_err(|e| e.at(start + prefix))?;
        header.len = prefix + len;
        Ok(header)
    }

    /// Parses the text of a header. `longs`: numbers may end in L.
    fn parse(text: &str, longs: bool, limits: &Limits) -> Result<Self> {
        let corrupt = |message: &str| Error::corrupt("npy-header", message);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        for (key, value) in Parser::new(text, longs, limits.dimensions).whole_dict()? {
            let place = match &key {
                Literal::Text(key) if key == "descr" => &mut descr,
                Literal::Text(key) if key == "fortran_order" => &mut fortran,
                Literal::Text(key) if key == "shape" => &mut shape,
                _ => {
                    return Err(corrupt("the npy header has an unknown key")
                        .expected("'descr', 'fortran_order', 'shape'"));
                }
            };
            if place.replace(value).is_some() {
                return Err(corrupt("the npy header has a duplicate key"));
            }
        }
        let (Some((descr, descr_text)), Some((fortran, _)), Some((shape, shape_text))) =
            (descr, fortran, shape)
        else {
            return Err(corrupt("the npy header lacks a key").expected("'descr', 'fortran_order', 'shape'"));
        };
        let Literal::Bool(fortran) = fortran else {
            return Err(corrupt("fortran_order is not True or False"));
        };
        let bad_shape = |message: &str| {
            Error::corrupt("npy-shape", message)
                .found(escape_text(&shape_text.chars().take(80).collect::<String>()))
        };
        let Literal::Tuple(items) = shape else {
            return Err(bad_shape("the shape is not a tuple"));
        };
        Limits::check("dimensions", "dimensions", items.len() as u64, limits.dimensions)?;
        let mut dims = Vec::with_capacity(items.len());
        for item in items {
            dims.push(match item {
                Literal::Int(dim) => dim,
                Literal::Negative => return Err(bad_shape("the shape has a negative dimension")),
                Literal::Huge => return Err(bad_shape("the shape has a dimension above 2^64")),
                _ => return Err(bad_shape("the shape has a dimension that is not an integer")),
            });
        }
        let order = if fortran { Order::Column } else { Order::Row };
        let Literal::Text(code) = &descr else { return Err(unsupported(descr_text)) };
        let (dtype, endian) = parse_descr(code).ok_or_else(|| unsupported(descr_text))?;
        // Single bytes have no byte order.
        let single = dtype.swap_unit() == 1;
        let native = endian.is_none() && !single;
        let endian = endian.filter(|_| !single).unwrap_or(Endian::Little);
        Ok(Self { dtype, encoding: Encoding { order, endian }, shape: Shape::new(dims), native, len: 0 })
    }

    /// Length of the elements in bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `shape-overflow`, where it exceeds 2^64.
    pub fn data_len(&self) -> Result<u64> {
        self.shape.bytes(self.dtype).ok_or_else(|| {
            Error::corrupt("shape-overflow", "the array exceeds 2^64 bytes")
                .found(format_args!("{} {}", self.dtype, self.shape))
        })
    }
}

/// Parses a `descr` such as `<f4` into type and byte order; `None` for the native byte order.
fn parse_descr(code: &str) -> Option<(DType, Option<Endian>)> {
    let (endian, kind) = match code.split_at_checked(1)? {
        ("<", kind) => (Some(Endian::Little), kind),
        (">", kind) => (Some(Endian::Big), kind),
        ("=" | "|", kind) => (None, kind),
        _ => (None, code),
    };
    Some((DType::from_numpy_code(kind)?, endian))
}

/// Returns the `descr` that numpy writes for a type; `None` where numpy has no such type.
pub fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        _ => return None,
    })
}

/// Error of a `descr` that is not a supported numeric type; names its kind.
fn unsupported(descr: &str) -> Error {
    let kind = descr.trim_start_matches(['\'', '"', '<', '>', '=', '|']).chars().next();
    let (what, hint) = match (descr.trim_start().chars().next(), kind) {
        (Some('[' | '('), _) => (
            "records with several fields",
            "save each field as a separate array: numpy.savez(path, **{n: a[n] for n in a.dtype.names})",
        ),
        (_, Some('O')) => (
            "pickled Python objects",
            "loading them in Python may run code from the file; save numeric arrays instead",
        ),
        (_, Some('S' | 'U' | 'a' | 'T')) => ("strings", "save strings in a separate file, such as JSON"),
        (_, Some('M' | 'm')) => ("dates or durations", "save them as integers: a.view('i8')"),
        (_, Some('V')) => (
            "untyped bytes",
            "V2 is often bfloat16 and V1 an 8-bit float, but the file does not state it; save a.astype('f4')",
        ),
        (_, Some('f' | 'c' | 'g' | 'G')) => {
            ("floats of a platform-specific width", "save them as f8 or c16: a.astype('f8')")
        }
        _ => ("of an unknown type", "save the array with a numeric dtype"),
    };
    let mut shown: String = descr.chars().take(80).collect();
    if shown.len() < descr.len() {
        shown.push('…');
    }
    Error::unsupported("npy-dtype", format!("the array elements are {what}"))
        .expected("a numeric type: b1, u1 to u8, i1 to i8, f2, f4, f8, c8 or c16")
        .found(format_args!("descr {}", escape_text(&shown)))
        .hint(hint)
}

/// Encodes a header as numpy writes it, from the magic number to the first element: version 1.0, or 2.0 above
/// 65,535 bytes. `None` where numpy has no such type.
pub fn encode(dtype: DType, order: Order, shape: &Shape) -> Option<Vec<u8>> {
    let fortran = order == Order::Column;
    let dims = shape.dims();
    let shape_text = match dims {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let descr = descr(dtype)?;
    let fortran_text = if fortran { "True" } else { "False" };
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran_text}, 'shape': {shape_text}, }}");
    let slowest = if fortran { dims.last() } else { dims.first() };
    if let Some(dim) = slowest {
        text.push_str(&" ".repeat(GROWTH_DIGITS.saturating_sub(dim.to_string().len())));
    }
    // As numpy: at least one space, and a newline, up to the next multiple.
    let padded = |prefix: usize| (prefix + text.len() + 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT - prefix;
    let (mut bytes, len) = match u16::try_from(padded(10)) {
        Ok(len) => ([MAGIC, &[1, 0], &len.to_le_bytes()].concat(), usize::from(len)),
        Err(_) => {
            let len = u32::try_from(padded(12)).ok()?;
            ([MAGIC, &[2, 0], &len.to_le_bytes()].concat(), padded(12))
        }
    };
    let end = bytes.len() + len;
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(end - 1, b' ');
    bytes.push(b'\n');
    Some(bytes)
}
