//! Conversion of element blocks to numbers.

use crate::tensor::{DType, Element, f16};

/// Decodes the elements of little-endian `bytes` as `f64` into `out`, with fast paths for common types. Complex numbers
/// become their modulus; 64-bit integers are rounded above 2^53.
#[allow(clippy::cast_precision_loss)]
pub(super) fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<f64>) {
    out.clear();
    macro_rules! numbers {
        ($t:ty, $size:literal) => {
            out.extend(bytes.as_chunks::<$size>().0.iter().map(|c| f64::from(<$t>::from_le_bytes(*c))))
        };
    }
    match dtype {
        DType::F32 => numbers!(f32, 4),
        DType::F64 => numbers!(f64, 8),
        DType::BF16 => {
            let wide = |c: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*c)) << 16);
            out.extend(bytes.as_chunks::<2>().0.iter().map(|c| f64::from(wide(c))));
        }
        DType::F16 => numbers!(f16, 2),
        DType::U8 => numbers!(u8, 1),
        DType::I8 => numbers!(i8, 1),
        DType::U16 => numbers!(u16, 2),
        DType::I16 => numbers!(i16, 2),
        DType::U32 => numbers!(u32, 4),
        DType::I32 => numbers!(i32, 4),
        DType::U64 => out.extend(bytes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c) as f64)),
        DType::I64 => out.extend(bytes.as_chunks::<8>().0.iter().map(|c| i64::from_le_bytes(*c) as f64)),
        other if other.bits() == 8 => {
            let table: [f64; 256] = std::array::from_fn(|code| {
                let code = u8::try_from(code).unwrap_or(0);
                other.element_at(&[code], 0).map_or(f64::NAN, Element::to_f64)
            });
            out.extend(bytes.iter().map(|&code| table[usize::from(code)]));
        }
        other => {
            let count = bytes.len() / other.size().unwrap_or(1);
            out.extend((0..count).map_while(|i| other.element_at(bytes, i)).map(Element::to_f64));
        }
    }
}

/// Returns the elements as little-endian `f32`, for types whose every value `f32` represents exactly: in place, or decoded
/// into `out`. `None` for other types.
pub(super) fn singles<'a>(dtype: DType, bytes: &'a [u8], out: &'a mut Vec<[u8; 4]>) -> Option<&'a [[u8; 4]]> {
    out.clear();
    macro_rules! numbers {
        ($t:ty, $size:literal) => {{
            let values = bytes.as_chunks::<$size>().0.iter();
            out.extend(values.map(|c| f32::from(<$t>::from_le_bytes(*c)).to_le_bytes()))
        }};
    }
    match dtype {
        DType::F32 => return Some(bytes.as_chunks::<4>().0),
        DType::BF16 => out.extend(bytes.as_chunks::<2>().0.iter().map(|c| [0, 0, c[0], c[1]])),
        DType::F16 => numbers!(f16, 2),
        DType::U8 => numbers!(u8, 1),
        DType::I8 => numbers!(i8, 1),
        DType::U16 => numbers!(u16, 2),
        DType::I16 => numbers!(i16, 2),
        _ => return None,
    }
    Some(out)
}
