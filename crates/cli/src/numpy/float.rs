//! Format of floating-point numbers: one for all values of an array.

use super::digits::{Binary, Bounds, Decimal, digits};
use weighbridge::tensor::{DType, f16};

/// Maximum digits after the point.
const PRECISION: i32 = 8;

/// Properties of a float type that determine its digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Number of fraction bits.
    fraction: i32,
    /// Exponent of the smallest normal number, as a power of two.
    lowest: i32,
    /// Smallest values with an exponent: in arrays, and as scalars.
    large: (f64, f64),
    /// Rounds a number to the type in which numpy compares forms.
    arithmetic: fn(f64) -> f64,
}

#[allow(clippy::cast_possible_truncation)] // meant: rounding to the narrower type
fn as_f32(x: f64) -> f64 {
    f64::from(x as f32)
}

fn as_f16(x: f64) -> f64 {
    f16::from_f64(x).to_f64()
}

impl Kind {
    /// Returns the kind of a float type, or of the parts of a complex one.
    ///
    /// Types that numpy lacks follow the rules of `f32`. `bf16` has the fewest digits that distinguish its values. The 8-bit
    /// types have the digits of `f32`, since their own would be too few (32 would print as 30).
    pub(super) fn of(dtype: DType) -> Self {
        let single = |fraction, lowest| Self { fraction, lowest, large: (1e6, 1e6), arithmetic: as_f32 };
        match dtype {
            DType::F16 => Self { fraction: 10, lowest: -14, large: (1e3, 1e3), arithmetic: as_f16 },
            DType::F64 | DType::C128 => {
                Self { fraction: 52, lowest: -1022, large: (1e8, 1e16), arithmetic: |x| x }
            }
            DType::BF16 => single(7, -126),
            _ => single(23, -126),
        }
    }

    /// Returns mantissa and exponent of the finite number `x`, without its sign.
    fn binary(self, x: f64) -> Binary {
        const HIDDEN: u64 = 1 << 52;
        let bits = x.abs().to_bits();
        let (mantissa, exponent) = match i32::try_from(bits >> 52).unwrap_or(0) {
            0 => (bits, -1074),
            e => ((bits % HIDDEN) | HIDDEN, e - 1075),
        };
        if mantissa == 0 {
            return Binary { mantissa, exponent: 0, narrow_below: false };
        }
        let top = 63 - mantissa.leading_zeros().cast_signed() + exponent;
        let unit = top.max(self.lowest) - self.fraction;
        // Exact: below the unit, a value of the type has no bits.
        let mantissa = mantissa >> (unit - exponent).max(0);
        let narrow_below = mantissa == 1 << self.fraction && top > self.lowest;
        Binary { mantissa, exponent: unit, narrow_below }
    }
}

/// Format of all values of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct FloatFormat {
    kind: Kind,
    /// Writes `+` before numbers that are not negative.
    plus: bool,
    /// Digits after the point and of the exponent, in exponent form.
    scientific: Option<(i32, usize)>,
    /// Columns before the point, including the sign, and after it.
    left: usize,
    right: usize,
}

impl FloatFormat {
    /// Determines the format from all values.
    pub(super) fn new(kind: Kind, plus: bool, values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.clone().filter(|x| x.is_finite());
        let (mut least, mut most) = (f64::INFINITY, 0f64);
        for size in finite.clone().map(f64::abs).filter(|&x| x != 0.0) {
            least = least.min(size);
            most = most.max(size);
        }
        let round = kind.arithmetic;
        let with_exponent =
            most > 0.0 && (most >= kind.large.0 || least < round(1e-4) || round(most / least) > 1000.0);

        let mut format = Self { kind, plus, scientific: None, left: 0, right: 0 };
        if with_exponent {
            let (mut precision, mut exponent) = (0, 0);
            for x in finite {
                let (number, sign) = (format.scientific_of(x, Some(PRECISION), 0), format.sign(x));
                precision = precision.max(number.fraction.len());
                exponent = exponent.max(number.exponent_digits(2).len());
                format.left = format.left.max(sign.len() + 1);
            }
            // For values that are not finite: `.`, digits, `e` and its sign.
            format.right = exponent + 2 + precision;
            format.scientific = Some((i32::try_from(precision).unwrap_or(PRECISION), exponent));
        } else {
            for x in finite {
                let number = format.positional_of(x, Some(PRECISION));
                format.left = format.left.max(format.sign(x).len() + number.whole.len());
                format.right = format.right.max(number.fraction.len());
            }
        }
        let behind = format.right + 1;
        let (mut odd, mut negative) = (false, plus);
        for x in values.filter(|x| !x.is_finite()) {
            odd = true;
            negative |= x == f64::NEG_INFINITY;
        }
        if odd {
            let longest = 3 + usize::from(negative);
            format.left = format.left.max(longest.saturating_sub(behind));
        }
        format
    }

    /// Appends `x`, padded to the common width.
    pub(super) fn write(&self, x: f64, out: &mut String) {
        let sign = self.sign(x);
        let (text, before) = if !x.is_finite() {
            let word = format!("{sign}{}", if x.is_nan() { "nan" } else { "inf" });
            let width = self.left + self.right + 1;
            out.extend(std::iter::repeat_n(' ', width.saturating_sub(word.len())));
            out.push_str(&word);
            return;
        } else if let Some((precision, exponent)) = self.scientific {
            let mut number = self.scientific_of(x, Some(precision), precision + 1);
            let places = usize::try_from(precision).unwrap_or(0);
            number.fraction.extend(std::iter::repeat_n('0', places.saturating_sub(number.fraction.len())));
            let power = number.exponent_digits(exponent);
            let power_sign = if number.exponent < 0 { '-' } else { '+' };
            (format!("{sign}{}.{}e{power_sign}{power}", number.whole, number.fraction), sign.len() + 1)
        } else {
            let number = self.positional_of(x, Some(PRECISION));
            let mut text = format!("{sign}{}.{}", number.whole, number.fraction);
            text.extend(std::iter::repeat_n(' ', self.right.saturating_sub(number.fraction.len())));
            (text, sign.len() + number.whole.len())
        };
        out.extend(std::iter::repeat_n(' ', self.left.saturating_sub(before)));
        out.push_str(&text);
    }

    fn sign(&self, x: f64) -> &'static str {
        match (x.is_nan(), x.is_sign_negative(), self.plus) {
            (false, true, _) => "-",
            (_, _, true) => "+",
            _ => "",
        }
    }

    fn scientific_of(&self, x: f64, precision: Option<i32>, least_total: i32) -> Number {
        scientific(self.kind, x, precision, least_total)
    }

    fn positional_of(&self, x: f64, precision: Option<i32>) -> Number {
        positional(self.kind, x, precision)
    }
}

/// Formats `x` as a numpy scalar, with all significant digits. `plain` omits a zero fraction, as in the parts of complex
/// numbers.
pub(super) fn alone(kind: Kind, x: f64, plus: bool, plain: bool) -> String {
    if x.is_nan() {
        return if plus { "+nan".into() } else { "nan".into() };
    }
    let sign = match (x.is_sign_negative(), plus) {
        (true, _) => "-",
        (false, true) => "+",
        (false, false) => "",
    };
    if x.is_infinite() {
        return format!("{sign}inf");
    }
    let size = x.abs();
    if size == 0.0 || (1e-4..kind.large.1).contains(&size) {
        let number = positional(kind, x, None);
        return match (number.fraction.as_str(), plain) {
            ("", true) => format!("{sign}{}", number.whole),
            ("", false) => format!("{sign}{}.0", number.whole),
            (fraction, _) => format!("{sign}{}.{fraction}", number.whole),
        };
    }
    let number = scientific(kind, x, None, 0);
    let power_sign = if number.exponent < 0 { '-' } else { '+' };
    let point = if number.fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{}e{power_sign}{}", number.whole, number.fraction, number.exponent_digits(2))
}

/// Digits of a number before and after the point, without trailing zeros.
struct Number {
    whole: String,
    fraction: String,
    exponent: i32,
}

impl Number {
    fn new(digits: &[u8], before: usize, exponent: i32) -> Self {
        let text: String = digits.iter().map(|&d| char::from(b'0' + d)).collect();
        let (whole, fraction) = text.split_at(before);
        Self { whole: whole.to_owned(), fraction: fraction.trim_end_matches('0').to_owned(), exponent }
    }

    fn exponent_digits(&self, least: usize) -> String {
        format!("{:0least$}", self.exponent.unsigned_abs())
    }
}

fn scientific(kind: Kind, x: f64, precision: Option<i32>, least_total: i32) -> Number {
    let bounds = Bounds { total: precision.map(|p| p + 1), least_total, ..Bounds::default() };
    let Decimal { digits, exponent } = digits(kind.binary(x), bounds);
    Number::new(&digits, 1, exponent)
}

/// Digits before the point are exact, even if fewer would identify the value.
fn positional(kind: Kind, x: f64, precision: Option<i32>) -> Number {
    let bounds = Bounds { fraction: precision, whole: true, ..Bounds::default() };
    let Decimal { mut digits, exponent } = digits(kind.binary(x), bounds);
    match usize::try_from(exponent) {
        Ok(places) => {
            let before = places + 1;
            digits.resize(digits.len().max(before), 0);
            Number::new(&digits, before, 0)
        }
        Err(_) => {
            let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
            digits.splice(0..0, std::iter::repeat_n(0, zeros));
            Number::new(&digits, 1, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge::tensor::{Element, cast};

    fn value(dtype: DType, bits: u16) -> f64 {
        match dtype.element_at(&bits.to_le_bytes(), 0) {
            Some(Element::Float(x)) => x,
            other => panic!("{other:?}"),
        }
    }

    /// Every number of the narrow types has the fewest digits that distinguish it from its neighbours.
    #[test]
    fn narrow_types_have_digits_of_their_own() {
        for bits in 0..=u16::MAX {
            let x = value(DType::BF16, bits);
            if x.is_finite() {
                let text = alone(Kind::of(DType::BF16), x, false, false);
                let mut back = Vec::new();
                let number: f64 = text.parse().unwrap();
                cast(&number.to_le_bytes(), DType::F64, DType::BF16, &mut back).unwrap();
                assert_eq!(back, bits.to_le_bytes(), "{text}");
                assert!(text.bytes().filter(u8::is_ascii_digit).count() <= 9, "{text}");
            }
        }
        let show = |dtype, bits| alone(Kind::of(dtype), value(dtype, bits), false, false);
        assert_eq!(show(DType::BF16, 0x3dcd), "0.1");
        assert_eq!(show(DType::BF16, 0x7f7f), "3.39e+38");
        assert_eq!(show(DType::BF16, 0x4704), "33792.0");
        assert_eq!(show(DType::F8E4M3, 0x7e), "448.0");
        assert_eq!(show(DType::F8E4M3, 0x01), "0.001953125");
        assert_eq!(show(DType::F8E8M0, 123), "0.0625");
        for dtype in [DType::F8E4M3, DType::F8E5M2, DType::F8E8M0, DType::F8E4M3Fnuz, DType::F8E5M2Fnuz] {
            for x in (0..256).map(|code| value(dtype, code)).filter(|x| x.is_finite()) {
                let text = alone(Kind::of(dtype), x, false, false);
                assert_eq!(f64::from(text.parse::<f32>().unwrap()), x, "{dtype}");
            }
        }
    }

    #[test]
    fn a_value_is_taken_apart_in_its_own_type() {
        let kind = Kind::of(DType::F16);
        assert_eq!(kind.binary(1.0), Binary { mantissa: 1024, exponent: -10, narrow_below: true });
        assert_eq!(kind.binary(2f64.powi(-24)), Binary { mantissa: 1, exponent: -24, narrow_below: false });
        assert!(!kind.binary(2f64.powi(-14)).narrow_below);
        let kind = Kind::of(DType::F64);
        assert_eq!(kind.binary(5e-324), Binary { mantissa: 1, exponent: -1074, narrow_below: false });
    }
}
