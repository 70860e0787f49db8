//! The protobuf message `VarType.TensorDesc` {1: element type, 2: dimensions}.
//!
//! Paddle writes the type first, then one field for every dimension. Protobuf allows more: fields
//! in any order, packed dimensions, a type that is given twice (the last one counts), fields of
//! other numbers. All of it is read. What is not in Paddle's own form is kept as bytes, so that an
//! untouched tensor is written as it was read.

use super::super::dtype;
use super::wire::{Fault, Field, Fields, Payload, put_varint};
use weighbridge_core::checkpoint::{TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Shape};

/// The attribute of a tensor that keeps the bytes of a desc that is not in Paddle's own form.
pub(crate) const DESC: &str = "desc";

/// What a desc says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorDesc {
    /// Paddle's number of the element type.
    pub number: i32,
    /// The element type.
    pub dtype: DType,
    /// The dimensions; none for a scalar.
    pub shape: Shape,
    /// Fields that are none of a desc's, as they were, tags among them.
    pub unknown: Vec<u8>,
}

impl TensorDesc {
    /// Reads a desc that stands at offset `at` of its file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `desc-unparsable`, `missing-dtype`, `not-an-element-type`,
    /// `negative-dimension`. [`weighbridge_core::Kind::Unsupported`]: `unknown-dtype`.
    /// [`weighbridge_core::Kind::Limit`] for more dimensions than are allowed.
    pub fn parse(bytes: &[u8], at: u64, limits: &Limits) -> Result<Self> {
        let raw = RawDesc::parse(bytes, limits).map_err(|e| match e {
            RawError::Fault(fault) => unparsable(fault, bytes, at),
            RawError::Limit(error) => error.at(at),
        })?;
        let number = raw.number.ok_or_else(|| no_type(raw.unknown_number, at))?;
        let dtype = dtype::from_number(number).ok_or_else(|| {
            Error::corrupt(
                "not-an-element-type",
                "the type of the elements is not one that elements can have",
            )
            .at(at)
            .expected("an element type such as 5 (FP32)")
            .found(format_args!("{number} ({})", dtype::word(number).unwrap_or("?")))
            .hint("Paddle refuses it: \"Not support proto::VarType::Type as tensor type\"")
        })?;
        let mut dims = Vec::with_capacity(raw.dims.len());
        for dim in raw.dims {
            dims.push(u64::try_from(dim).map_err(|_| {
                Error::corrupt("negative-dimension", "a dimension of the tensor is negative")
                    .at(at)
                    .expected("0 or more")
                    .found(dim)
                    .hint("programs leave dimensions open so; stored tensors have none that are open")
            })?);
        }
        Ok(Self { number, dtype, shape: Shape::new(dims), unknown: raw.unknown })
    }

    /// The bytes of this desc in Paddle's own form, without unknown fields.
    pub fn canonical(&self) -> Vec<u8> {
        encode(dtype::number(self.dtype).unwrap_or(self.number), self.shape.dims())
    }
}

/// True where `bytes` are a message with fields of a desc, whatever they say.
pub(super) fn is_message(bytes: &[u8], limits: &Limits) -> bool {
    RawDesc::parse(bytes, limits)
        .is_ok_and(|raw| raw.number.is_some() || raw.unknown_number.is_some() || !raw.dims.is_empty())
}

/// True where `bytes` begin as Paddle begins a desc: an element type, then a dimension or the end.
pub(super) fn is_beginning(bytes: &[u8]) -> bool {
    match bytes {
        [0x08, number, rest @ ..] => {
            dtype::from_number(i32::from(*number)).is_some()
                && matches!(rest.first(), None | Some(0x10 | 0x12))
        }
        _ => false,
    }
}

/// The bytes of the desc of `entry`: as it was read, where that still says what the entry is.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `dtype` for an element type that Paddle does not have, `too-large`
/// for a dimension of 2^63 and more, `desc` where the kept desc is no desc.
pub fn of_entry(entry: &TensorEntry) -> Result<Vec<u8>> {
    let number = dtype::number(entry.dtype()).ok_or_else(|| {
        let known: Vec<_> = dtype::ALL.iter().map(|d| d.name()).collect();
        Error::mismatch("dtype", "Paddle has no such element type")
            .on_tensor(entry.name())
            .expected(known.join(" "))
            .found(entry.dtype())
            .hint(phrase!["cast it with ", Opt::Cast, ", or leave it out"])
    })?;
    let dims = entry.shape.dims();
    if let Some(&dim) = dims.iter().find(|&&dim| i64::try_from(dim).is_err()) {
        return Err(Error::mismatch("too-large", "Paddle holds dimensions of less than 2^63")
            .on_tensor(entry.name())
            .found(dim));
    }
    let canonical = encode(number, dims);
    let kept = match entry.attributes.get(DESC) {
        None => return Ok(canonical),
        Some(Value::Bytes(kept)) => kept,
        Some(_) => return Err(bad_desc(entry)),
    };
    // It came from a file, perhaps by way of another format: its dimensions are held against those
    // of the entry, so no limit is needed beyond their number.
    let mut limits = Limits::default();
    limits.dimensions = limits.dimensions.max(entry.shape.rank() as u64);
    let desc = TensorDesc::parse(kept, 0, &limits).map_err(|_| bad_desc(entry))?;
    if (desc.dtype, &desc.shape) == (entry.dtype(), &entry.shape) {
        return Ok(kept.clone());
    }
    // The tensor was changed: the fields that are not understood stay.
    Ok([canonical, desc.unknown].concat())
}

fn bad_desc(entry: &TensorEntry) -> Error {
    Error::mismatch("desc", "the attribute `desc` is not the bytes of a tensor desc").on_tensor(entry.name())
}

/// The message as Paddle writes it.
fn encode(number: i32, dims: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + 3 * dims.len());
    out.push(0x08);
    // Negative numbers do not occur: those of element types are all positive.
    put_varint(&mut out, u64::try_from(number).unwrap_or(0));
    for &dim in dims {
        out.push(0x10);
        put_varint(&mut out, dim);
    }
    out
}

/// The fields before they are judged.
#[derive(Debug, Default)]
struct RawDesc {
    number: Option<i32>,
    /// A number that is not in the enumeration: proto2 takes it for an unknown field.
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
        // An enumeration is the low 32 bits of its varint, signed.
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
        format!("the desc of the tensor is no protobuf message: {}", fault.what),
    )
    .at(at.saturating_add(fault.at as u64))
    .expected("a TensorDesc such as 08 05 10 02")
    .found(if bytes.is_empty() { "nothing".to_owned() } else { shown.join(" ") })
}

fn no_type(unknown: Option<i32>, at: u64) -> Error {
    match unknown {
        Some(number) => Error::corrupt("unknown-dtype", "the tensor has an unknown element type")
            .at(at)
            .expected("an element type such as 5 (FP32)")
            .found(number)
            .hint("a newer Paddle may know it; those known here say \"Cannot parse tensor desc\""),
        None => Error::corrupt("missing-dtype", "the desc of the tensor does not say the element type")
            .at(at)
            .hint("Paddle says \"Cannot parse tensor desc\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<TensorDesc> {
        TensorDesc::parse(bytes, 100, &Limits::default())
    }

    #[test]
    fn every_legal_form_is_read() {
        let packed = [0x12, 0x03, 0x02, 0xac, 0x02, 0x08, 0x05];
        for (bytes, number, dims, unknown) in [
            (&[0x08u8, 0x05][..], 5, &[][..], &[][..]),
            (&[0x08, 0x16, 0x10, 0x02, 0x10, 0xac, 0x02], 22, &[2, 300], &[]),
            (&[0x10, 0x02, 0x08, 0x05, 0x10, 0x03], 5, &[2, 3], &[]),
            (&packed, 5, &[2, 300], &[]),
            // Packed and unpacked together; the last type counts.
            (&[0x10, 0x01, 0x08, 0x05, 0x12, 0x01, 0x02, 0x08, 0x06], 6, &[1, 2], &[]),
            // An unknown number is as good as not there.
            (&[0x08, 0x05, 0x08, 0x63], 5, &[], &[0x08, 0x63]),
            // A type in the wrong wire form is an unknown field.
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
    fn every_illegal_form_has_its_code() {
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
