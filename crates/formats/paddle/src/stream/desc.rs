//! Protobuf message `VarType.TensorDesc` {1: element type, 2: dimensions}.
//!
//! Paddle writes the type first, then one field for every dimension. Protobuf allows more: fields in any order,
//! packed dimensions, duplicate types (the last one is used), fields of other numbers. All of these are read. A desc
//! that differs from Paddle's own encoding is kept as bytes, so that an unchanged tensor is written as it was read.

use super::super::dtype;
use super::wire::{Fault, Field, Fields, Payload, put_varint};
use weighbridge_core::checkpoint::{TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Shape};

/// Tensor attribute with the bytes of a desc that differs from Paddle's own encoding.
pub(crate) const DESC: &str = "desc";

/// Decoded desc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorDesc {
    /// Paddle's number of the element type.
    pub number: i32,
    /// Element type.
    pub dtype: DType,
    /// Shape; rank 0 for a scalar.
    pub shape: Shape,
    /// Raw bytes of unknown fields, including their tags.
    pub unknown: Vec<u8>,
}

impl TensorDesc {
    /// Parses a desc at offset `at` of its file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `desc-unparsable`, `missing-dtype`, `not-an-element-type`,
    /// `negative-dimension`. [`weighbridge_core::Kind::Unsupported`]: `unknown-dtype`.
    /// [`weighbridge_core::Kind::Limit`] for more dimensions than the limits allow.
    pub fn parse(bytes: &[u8], at: u64, limits: &Limits) -> Result<Self> {
        let raw = RawDesc::parse(bytes, limits).map_err(|e| match e {
            RawError::Fault(fault) => unparsable(fault, bytes, at),
            RawError::Limit(error) => error.at(at),
        })?;
        let number = raw.number.ok_or_else(|| no_type(raw.unknown_number, at))?;
        let dtype = dtype::from_number(number).ok_or_else(|| {
            Error::corrupt(
                "not-an-element-type",
                "the type number is not an element type",
            )
            .at(at)
            .expected("an element type such as 5 (FP32)")
            .found(format_args!("{number} ({})", dtype::word(number).unwrap_or("?")))
            .hint("the desc may be damaged; Paddle rejects it with \"Not support proto::VarType::Type as tensor type\"")
        })?;
        let mut dims = Vec::with_capacity(raw.dims.len());
        for dim in raw.dims {
            dims.push(u64::try_from(dim).map_err(|_| {
                Error::corrupt("negative-dimension", "a dimension of the tensor is negative")
                    .at(at)
                    .expected("0 or more")
                    .found(dim)
                    .hint("only programs have open (negative) dimensions; the desc may be damaged")
            })?);
        }
        Ok(Self { number, dtype, shape: Shape::new(dims), unknown: raw.unknown })
    }

    /// Encodes the desc in Paddle's own form, without unknown fields.
    pub fn canonical(&self) -> Vec<u8> {
        encode(dtype::number(self.dtype).unwrap_or(self.number), self.shape.dims())
    }
}

/// True if `bytes` are a message with fields of a desc, regardless of their values.
pub(super) fn is_message(bytes: &[u8], limits: &Limits) -> bool {
    RawDesc::parse(bytes, limits)
        .is_ok_and(|raw| raw.number.is_some() || raw.unknown_number.is_some() || !raw.dims.is_empty())
}

/// True if `bytes` begin like a desc of Paddle: an element type, then a dimension or the end.
pub(super) fn is_beginning(bytes: &[u8]) -> bool {
    match bytes {
        [0x08, number, rest @ ..] => {
            dtype::from_number(i32::from(*number)).is_some()
                && matches!(rest.first(), None | Some(0x10 | 0x12))
        }
        _ => false,
    }
}

/// Returns the desc of `entry`: the original bytes if they still match the entry, else a new desc.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `dtype` for an element type that Paddle lacks, `too-large`
/// for a dimension of 2^63 and more, `desc` if the kept bytes are not a desc.
pub fn of_entry(entry: &TensorEntry) -> Result<Vec<u8>> {
    let number = dtype::number(entry.dtype()).ok_or_else(|| {
        let known: Vec<_> = dtype::ALL.iter().map(|d| d.name()).collect();
        Error::mismatch("dtype", "Paddle does not support the element type")
            .on_tensor(entry.name())
            .expected(known.join(" "))
            .found(entry.dtype())
            .hint(phrase!["use ", Opt::Cast, " to change the dtype, or drop the tensor"])
    })?;
    let dims = entry.shape.dims();
    if let Some(&dim) = dims.iter().find(|&&dim| i64::try_from(dim).is_err()) {
        return Err(Error::mismatch("too-large", "a dimension exceeds 2^63 - 1")
            .on_tensor(entry.name())
            .found(dim));
    }
    let canonical = encode(number, dims);
    let kept = match entry.attributes.get(DESC) {
        None => return Ok(canonical),
        Some(Value::Bytes(kept)) => kept,
        Some(_) => return Err(bad_desc(entry)),
    };
    // The bytes come from a file, possibly by way of another format. Their dimensions are compared with those
    // of the entry, so no limit is needed beyond their number.
    let mut limits = Limits::default();
    limits.dimensions = limits.dimensions.max(entry.shape.rank() as u64);
    let desc = TensorDesc::parse(kept, 0, &limits).map_err(|_| bad_desc(entry))?;
    if (desc.dtype, &desc.shape) == (entry.dtype(), &entry.shape) {
        return Ok(kept.clone());
    }
    // The tensor was changed: the unknown fields are kept.
    Ok([canonical, desc.unknown].concat())
}

fn bad_desc(entry: &TensorEntry) -> Error {
    Error::mismatch("desc", "the attribute `desc` is not an encoded tensor desc").on_tensor(entry.name())
}

/// Encodes the message as Paddle writes it.
fn encode(number: i32, dims: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + 3 * dims.len());
    out.push(0x08);
    // Negative numbers do not occur: element types have positive numbers.
    put_varint(&mut out, u64::try_from(number).unwrap_or(0));
    for &dim in dims {
        out.push(0x10);
        put_varint(&mut out, dim);
    }
    out
}

/// Fields before validation.
#[derive(Debug, Default)]
struct RawDesc {
    number: Option<i32>,
    /// Number outside the enumeration: proto2 treats it as an unknown field.
    unknown_number: Option<i32>,
    dims: Vec<i64>,
    unknown: Vec<u8>,
}

enum RawError {
    Fault(Fault),
    Limit(Error),
}

impl From<Fault> for RawError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl RawDesc {
    fn parse(bytes: &[u8], limits: &Limits) -> Result<Self, RawError> {
        let mut desc = Self::default();
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                Field { number: 1, payload: Payload::Varint(value), raw } => desc.set_type(value, raw),
                Field { number: 2, payload: Payload::Varint(value), .. } => desc.push_dim(value, limits)?,
                Field { number: 2, payload: Payload::Bytes(packed), .. } => {
                    let start = fields.position() - packed.len();
                    let mut numbers = Fields::new(packed);
                    while let Some(value) =
                        numbers.next_varint().map_err(|f| Fault { at: start + f.at, ..f })?
                    {
                        desc.push_dim(value, limits)?;
                    }
                }
                Field { raw, .. } => desc.unknown.extend_from_slice(raw),
            }
        }
        Ok(desc)
    }

    fn set_type(&mut self, value: u64, raw: &[u8]) {
        // An enumeration value is the low 32 bits of its varint, signed.
        let [a, b, c, d, ..] = value.to_le_bytes();
        let number = i32::from_le_bytes([a, b, c, d]);
        if dtype::word(number).is_some() {
            self.number = Some(number);
        } else {
            self.unknown_number = Some(number);
            self.unknown.extend_from_slice(raw);
        }
    }

    fn push_dim(&mut self, value: u64, limits: &Limits) -> Result<(), RawError> {
        let count = self.dims.len() as u64 + 1;
        Limits::check("dimensions", "dimensions", count, limits.dimensions).map_err(RawError::Limit)?;
        self.dims.push(value.cast_signed());
        Ok(())
    }
}

fn unparsable(fault: Fault, bytes: &[u8], at: u64) -> Error {
    let shown: Vec<_> = bytes.iter().take(16).map(|b| format!("{b:02x}")).collect();
    Error::corrupt(
        "desc-unparsable",
        format!("the tensor desc is not a valid protobuf message: {}", fault.what),
    )
    .at(at.saturating_add(fault.at as u64))
    .expected("a TensorDesc such as 08 05 10 02")
    .found(if bytes.is_empty() { "nothing".to_owned() } else { shown.join(" ") })
}

fn no_type(unknown: Option<i32>, at: u64) -> Error {
    match unknown {
        Some(number) => Error::corrupt("unknown-dtype", "unknown element type")
            .at(at)
            .expected("an element type such as 5 (FP32)")
            .found(number)
            .hint("the type may be from a newer Paddle; supported versions reject it with \"Cannot parse tensor desc\""),
        None => Error::corrupt("missing-dtype", "the tensor desc has no element type")
            .at(at)
            .hint("the desc may be damaged; Paddle rejects it with \"Cannot parse tensor desc\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<TensorDesc> {
        TensorDesc::parse(bytes, 100, &Limits::default())
    }

    #[test]
    fn accepts_every_valid_encoding() {
        let packed = [0x12, 0x03, 0x02, 0xac, 0x02, 0x08, 0x05];
        for (bytes, number, dims, unknown) in [
            (&[0x08u8, 0x05][..], 5, &[][..], &[][..]),
            (&[0x08, 0x16, 0x10, 0x02, 0x10, 0xac, 0x02], 22, &[2, 300], &[]),
            (&[0x10, 0x02, 0x08, 0x05, 0x10, 0x03], 5, &[2, 3], &[]),
            (&packed, 5, &[2, 300], &[]),
            // Packed and unpacked together; the last type is used.
            (&[0x10, 0x01, 0x08, 0x05, 0x12, 0x01, 0x02, 0x08, 0x06], 6, &[1, 2], &[]),
            // An unknown number is ignored.
            (&[0x08, 0x05, 0x08, 0x63], 5, &[], &[0x08, 0x63]),
            // A type with the wrong wire type is an unknown field.
            (
                &[0x08, 0x05, 0x0a, 0x01, 0x06, 0x7a, 0x02, b'h', b'i'],
                5,
                &[],
                &[0x0a, 1, 6, 0x7a, 2, b'h', b'i'],
            ),
            (&[0x08, 0x85, 0x80, 0x00, 0x10, 0x82, 0x00], 5, &[2], &[]),
        ] {
            let desc = parse(bytes).unwrap();
            assert_eq!(
                (desc.number, desc.shape.dims(), &desc.unknown[..]),
                (number, dims, unknown),
                "{bytes:?}"
            );
        }
        assert_eq!(parse(&packed).unwrap().canonical(), [0x08, 0x05, 0x10, 0x02, 0x10, 0xac, 0x02]);
        // SIZE_T reads as u64, which is written as UINT64.
        let size = parse(&[0x08, 19]).unwrap();
        assert_eq!((size.dtype, size.canonical()), (DType::U64, vec![0x08, 38]));
    }

    #[test]
    fn rejects_every_invalid_encoding_with_its_code() {
        let minus_one = [0x08, 0x05, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let many: Vec<u8> = [0x08, 0x05].into_iter().chain([0x10, 0x01].repeat(65)).collect();
        for (bytes, code, at) in [
            (&[][..], "missing-dtype", 100),
            (&[0x10, 0x02], "missing-dtype", 100),
            (&[0x08, 0x63, 0x10, 0x02], "unknown-dtype", 100),
            (&[0x08, 0x22], "unknown-dtype", 100),
            (&[0x08, 0x07], "not-an-element-type", 100),
            (&minus_one, "negative-dimension", 100),
            (&[0x08, 0x05, 0x10], "desc-unparsable", 103),
            (&[0x08, 0x05, 0x00], "desc-unparsable", 102),
            (&[0x08, 0x05, 0x12, 0x02, 0x01, 0x80], "desc-unparsable", 105),
            (&[0x08, 0x05, 0x7a, 0x09, 0x00], "desc-unparsable", 104),
            (&many, "limit", 100),
        ] {
            let error = parse(bytes).unwrap_err();
            assert_eq!((error.code().as_str(), error.offset()), (code, Some(at)), "{bytes:?}");
        }
    }
}
