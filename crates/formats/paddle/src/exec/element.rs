//! Conversion of a number to an element of any type.

use weighbridge_core::tensor::{Cast, DType, Element, Rounding, cast};

/// Appends `number` as an element of type `to`, little-endian. Floats are truncated towards zero to become
/// integers, saturating at the limits of the type; integers wrap. `None` for unsupported casts: from
/// complex numbers, and to types in which Paddle 2.6.2 does not compute.
pub(super) fn put(number: Element, to: DType, rounding: Rounding, out: &mut Vec<u8>) -> Option<()> {
    match to {
        DType::Bool => out.push(u8::from(truth(number)?)),
        DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let bytes = integer(number, to)?.to_le_bytes();
            out.extend_from_slice(bytes.get(..to.size()?)?);
        }
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            let to = Cast { to, rounding };
            match number {
                // A cast by way of f64 could round twice.
                Element::Int(i) if i64::try_from(i).is_ok() => {
                    cast(i.to_le_bytes().get(..8)?, DType::I64, to, out)?;
                }
                Element::Complex(..) => return None,
                other => {
                    cast(&other.to_f64().to_le_bytes(), DType::F64, to, out)?;
                }
            }
        }
        DType::C64 => {
            put(number, DType::F32, rounding, out)?;
            out.extend_from_slice(&[0; 4]);
        }
        DType::C128 => {
            put(number, DType::F64, rounding, out)?;
            out.extend_from_slice(&[0; 8]);
        }
        _ => return None,
    }
    Some(())
}

fn truth(number: Element) -> Option<bool> {
    match number {
        Element::Bool(truth) => Some(truth),
        Element::Int(i) => Some(i != 0),
        // NaN is true.
        Element::Float(x) => Some(x != 0.0),
        Element::Complex(..) => None,
    }
}

/// Returns the number as an integer; the low bytes are used.
#[allow(clippy::cast_possible_truncation)]
fn integer(number: Element, to: DType) -> Option<i128> {
    match number {
        Element::Bool(truth) => Some(i128::from(truth)),
        Element::Int(i) => Some(i),
        Element::Float(x) => {
            let (lowest, highest) = match to {
                DType::U8 => (0, i128::from(u8::MAX)),
                _ => {
                    let highest = (1i128 << (to.bits() - 1)) - 1;
                    (-highest - 1, highest)
                }
            };
            // The cast is defined by Rust: towards zero, saturating, NaN to 0.
            Some((x as i128).clamp(lowest, highest))
        }
        Element::Complex(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(number: Element, to: DType) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        put(number, to, Rounding::Paddle262, &mut out).map(|()| out)
    }

    #[test]
    fn truncates_and_saturates_floats_to_integers() {
        for (x, to, value) in [
            (2.9, DType::I8, 2),
            (-2.9, DType::I8, -2),
            (300.0, DType::I8, 127),
            (-300.0, DType::I8, -128),
            (300.0, DType::U8, 255),
            (-0.9, DType::U8, 0),
            (-1.0, DType::U8, 0),
            (1e30, DType::I64, i64::MAX),
            (f64::NEG_INFINITY, DType::I64, i64::MIN),
            (f64::INFINITY, DType::I32, i64::from(i32::MAX)),
            (f64::NAN, DType::I32, 0),
        ] {
            assert_eq!(
                one(Element::Float(x), to).unwrap(),
                value.to_le_bytes()[..to.size().unwrap()],
                "{x} {to}"
            );
        }
    }

    #[test]
    fn wraps_integers_and_rounds_once() {
        assert_eq!(one(Element::Int(300), DType::U8).unwrap(), [44]);
        assert_eq!(one(Element::Int(-1), DType::I16).unwrap(), [0xff, 0xff]);
        let wide = (1i64 << 54) + (1 << 30) + 1;
        assert_eq!(one(Element::Int(wide.into()), DType::F32).unwrap(), (wide as f32).to_le_bytes());
        assert_eq!(one(Element::Bool(true), DType::C64).unwrap(), [0, 0, 0x80, 0x3f, 0, 0, 0, 0]);
        assert!(one(Element::Complex(1.0, 0.0), DType::F32).is_none());
        assert!(one(Element::Complex(1.0, 0.0), DType::Bool).is_none());
        assert!(one(Element::Int(1), DType::F8E4M3).is_none());
    }

    #[test]
    fn converts_nonzero_numbers_to_true() {
        for (number, truth) in [(0.0, 0), (-0.0, 0), (0.1, 1), (f64::NAN, 1)] {
            assert_eq!(one(Element::Float(number), DType::Bool).unwrap(), [truth]);
        }
        assert_eq!(one(Element::Int(256), DType::Bool).unwrap(), [1]);
    }
}
