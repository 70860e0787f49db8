//! Single elements as numbers.

use super::DType;
use super::float16::{bf16, f16};

/// Decoded element of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element {
    /// Boolean; any byte but 0 is true.
    Bool(bool),
    /// Integer of any width and sign.
    Int(i128),
    /// Real number. `f64` represents every value of all float dtypes exactly.
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Element {
    /// Returns the value as a real number. A complex value yields its modulus, or NaN if a part is NaN. Integers above 2^53 are
    /// rounded.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Bool(b) => f64::from(u8::from(b)),
            Self::Int(i) => i as f64,
            Self::Float(x) => x,
            // `hypot` returns infinity for an infinite part, even if the other is NaN.
            Self::Complex(re, im) if re.is_nan() || im.is_nan() => f64::NAN,
            Self::Complex(re, im) => re.hypot(im),
        }
    }
}

impl DType {
    /// Decodes the element at `index` of little-endian `bytes`. `None` for an index out of range, or for dtypes smaller than a
    /// byte: no supported format defines the order of elements within a byte.
    pub fn element_at(self, bytes: &[u8], index: usize) -> Option<Element> {
        let size = self.size()?;
        let start = index.checked_mul(size)?;
        let b = bytes.get(start..start.checked_add(size)?)?;
        let float32 = |b: &[u8]| Some(f64::from(f32::from_le_bytes(b.try_into().ok()?)));
        let float64 = |b: &[u8]| Some(f64::from_le_bytes(b.try_into().ok()?));
        macro_rules! int {
            ($t:ty) => {
                Element::Int(i128::from(<$t>::from_le_bytes(b.try_into().ok()?)))
            };
        }
        Some(match self {
            DType::Bool => Element::Bool(b[0] != 0),
            DType::U8 => int!(u8),
            DType::I8 => int!(i8),
            DType::U16 => int!(u16),
            DType::I16 => int!(i16),
            DType::U32 => int!(u32),
            DType::I32 => int!(i32),
            DType::U64 => int!(u64),
            DType::I64 => int!(i64),
            DType::F16 => Element::Float(f16::from_le_bytes(b.try_into().ok()?).to_f64()),
            DType::BF16 => Element::Float(bf16::from_le_bytes(b.try_into().ok()?).to_f64()),
            DType::F32 => Element::Float(float32(b)?),
            DType::F64 => Element::Float(float64(b)?),
            DType::C64 => Element::Complex(float32(&b[..4])?, float32(&b[4..])?),
            DType::C128 => Element::Complex(float64(&b[..8])?, float64(&b[8..])?),
            DType::F8E4M3 => Element::Float(small_float(b[0], 3, 7, |code| code & 0x7f == 0x7f, false)),
            DType::F8E5M2 => Element::Float(small_float(b[0], 2, 15, |code| code & 0x7f > 0x7c, true)),
            DType::F8E4M3Fnuz => Element::Float(small_float(b[0], 3, 8, |code| code == 0x80, false)),
            DType::F8E5M2Fnuz => Element::Float(small_float(b[0], 2, 16, |code| code == 0x80, false)),
            DType::F8E8M0 => Element::Float(match b[0] {
                0xff => f64::NAN,
                exponent => 2f64.powi(i32::from(exponent) - 127),
            }),
            DType::F4 | DType::F6E2M3 | DType::F6E3M2 => return None,
        })
    }
}

/// Decodes an 8-bit float of 1 sign bit, `7 - fraction` exponent bits and `fraction` fraction bits.
fn small_float(code: u8, fraction: u32, bias: i32, is_nan: fn(u8) -> bool, infinite: bool) -> f64 {
    if is_nan(code) {
        return f64::NAN;
    }
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((code & 0x7f) >> fraction);
    let part = f64::from(code & ((1 << fraction) - 1)) / f64::from(1u32 << fraction);
    let top = (1 << (7 - fraction)) - 1;
    sign * match exponent {
        0 => part * 2f64.powi(1 - bias),
        e if infinite && e == top => f64::INFINITY,
        e => (1.0 + part) * 2f64.powi(e - bias),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(dtype: DType, code: u8) -> f64 {
        match dtype.element_at(&[code], 0) {
            Some(Element::Float(x)) => x,
            other => panic!("{other:?}"),
        }
    }

    /// Corner values listed in the OCP and the fnuz papers.
    #[test]
    fn decodes_8_bit_floats() {
        assert_eq!(float(DType::F8E4M3, 0x7e), 448.0);
        assert!(float(DType::F8E4M3, 0xff).is_nan());
        assert_eq!(float(DType::F8E4M3, 0x01), 2f64.powi(-9));
        assert_eq!(float(DType::F8E5M2, 0x7b), 57344.0);
        assert_eq!(float(DType::F8E5M2, 0xfc), f64::NEG_INFINITY);
        assert!(float(DType::F8E5M2, 0x7d).is_nan());
        assert_eq!(float(DType::F8E4M3Fnuz, 0x7f), 240.0);
        assert_eq!(float(DType::F8E5M2Fnuz, 0x7f), 57344.0);
        assert!(float(DType::F8E5M2Fnuz, 0x80).is_nan());
        assert_eq!(float(DType::F8E8M0, 127), 1.0);
        assert_eq!(float(DType::F8E8M0, 0), 2f64.powi(-127));
    }

    #[test]
    fn decodes_wide_types_and_rejects_indices_out_of_range() {
        assert_eq!(DType::element_at(DType::U64, &[0xff; 8], 0), Some(Element::Int(i128::from(u64::MAX))));
        assert_eq!(DType::element_at(DType::I16, &[0xff; 3], 1), None);
        let complex: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(DType::element_at(DType::C64, &complex, 0), Some(Element::Complex(1.5, -2.0)));
        assert_eq!(DType::element_at(DType::F4, &[0], 0), None);
    }
}
