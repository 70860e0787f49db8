//! Exact and fast decimal text of numbers.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;

/// Decimal form of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floats {
    /// The shortest decimal that parses as the same float.
    Shortest,
    /// Nine decimal places, as Python's `%.9f`.
    Fixed9,
}

/// Element types that can be written as text.
pub(crate) static DTYPES: &[DType] = &[
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::U64,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Appends the elements in `bytes` (little-endian), each preceded by `separator`, except the first
/// where `bare` is set.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`] for a type not in [`DTYPES`].
pub(crate) fn push_row(
    bytes: &[u8],
    dtype: DType,
    floats: Floats,
    separator: u8,
    bare: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut first = bare;
    let mut separate = |out: &mut Vec<u8>| {
        if !std::mem::take(&mut first) {
            out.push(separator);
        }
    };
    macro_rules! each {
        ($n:literal, $push:expr) => {{
            let (elements, _) = bytes.as_chunks::<$n>();
            for &element in elements {
                separate(out);
                $push(element, out);
            }
        }};
    }
    macro_rules! integers {
        ($t:ty, $n:literal) => {
            each!($n, |b, out: &mut Vec<u8>| out
                .extend_from_slice(<$t>::from_le_bytes(b).to_string().as_bytes()))
        };
    }
    match (dtype, floats) {
        (DType::F32, Floats::Shortest) => {
            each!(4, |b, out: &mut Vec<u8>| shortest32(f32::from_le_bytes(b), out))
        }
        (DType::F32, Floats::Fixed9) => {
            each!(4, |b, out: &mut Vec<u8>| fixed9_f32(f32::from_le_bytes(b), out))
        }
        (DType::F64, Floats::Shortest) => {
            each!(8, |b, out: &mut Vec<u8>| shortest64(f64::from_le_bytes(b), out))
        }
        (DType::F64, Floats::Fixed9) => {
            each!(8, |b, out: &mut Vec<u8>| fixed9_f64(f64::from_le_bytes(b), out))
        }
        (DType::F16, Floats::Shortest) => {
            each!(2, |b, out: &mut Vec<u8>| shortest32(
                weighbridge_core::tensor::f16::from_le_bytes(b).to_f32(),
                out
            ))
        }
        (DType::F16, Floats::Fixed9) => {
            each!(2, |b, out: &mut Vec<u8>| fixed9_f32(
                weighbridge_core::tensor::f16::from_le_bytes(b).to_f32(),
                out
            ))
        }
        (DType::BF16, Floats::Shortest) => {
            each!(2, |b, out: &mut Vec<u8>| shortest32(
                weighbridge_core::tensor::bf16::from_le_bytes(b).to_f32(),
                out
            ))
        }
        (DType::BF16, Floats::Fixed9) => {
            each!(2, |b, out: &mut Vec<u8>| fixed9_f32(
                weighbridge_core::tensor::bf16::from_le_bytes(b).to_f32(),
                out
            ))
        }
        (DType::U8, _) => integers!(u8, 1),
        (DType::I8, _) => integers!(i8, 1),
        (DType::U16, _) => integers!(u16, 2),
        (DType::I16, _) => integers!(i16, 2),
        (DType::U32, _) => integers!(u32, 4),
        (DType::I32, _) => integers!(i32, 4),
        (DType::U64, _) => integers!(u64, 8),
        (DType::I64, _) => integers!(i64, 8),
        (other, _) => {
            return Err(Error::unsupported("text-dtype", format!("dtype {other} cannot be written as text")));
        }
    }
    Ok(())
}

/// Typical maximum length of the text of an element, with its separator.
pub(crate) fn usual_len(dtype: DType, floats: Floats) -> u64 {
    match (dtype, floats) {
        (DType::F64, Floats::Shortest) | (DType::U64 | DType::I64, _) => 21,
        (DType::U8 | DType::I8, _) => 4,
        _ => 13,
    }
}

fn push_special(nan: bool, negative: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(match (nan, negative) {
        (true, _) => b"nan",
        (false, true) => b"-inf",
        (false, false) => b"inf",
    });
}

fn shortest32(x: f32, out: &mut Vec<u8>) {
    if x.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(x).as_bytes());
    } else {
        push_special(x.is_nan(), x < 0.0, out);
    }
}

fn shortest64(x: f64, out: &mut Vec<u8>) {
    if x.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(x).as_bytes());
    } else {
        push_special(x.is_nan(), x < 0.0, out);
    }
}

const BILLION: u64 = 1_000_000_000;

/// Two digits for each number from 0 to 99.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut high = 0;
    while high < 10 {
        let mut low = 0;
        while low < 10 {
            pairs[high * 10 + low] = [b"0123456789"[high], b"0123456789"[low]];
            low += 1;
        }
        high += 1;
    }
    pairs
};

/// The last two digits of `n`.
#[allow(clippy::cast_possible_truncation)] // Below 100.
fn pair(n: u64) -> [u8; 2] {
    PAIRS[(n % 100) as usize]
}

/// Appends the float widened to double as Python's `'%.9f'` prints it: exact, halves to even.
///
/// A float is m * 2^e with m below 2^24. If e is negative, m * 10^9 is below 2^54, and the bits
/// shifted out decide the rounding; otherwise the float is an integer.
pub(crate) fn fixed9_f32(x: f32, out: &mut Vec<u8>) {
    let bits = x.to_bits();
    let exponent = (bits >> 23) & 0xff;
    if exponent == 0xff {
        return push_special(x.is_nan(), x < 0.0, out);
    }
    let fraction = u64::from(bits & 0x7f_ffff);
    let (m, e) = if exponent == 0 { (fraction, 1) } else { (fraction | 0x80_0000, exponent) };
    if bits >> 31 == 1 {
        out.push(b'-');
    }
    // The value is m * 2^(e - 150).
    if e >= 150 {
        let whole = u128::from(m) << (e - 150);
        out.extend_from_slice(whole.to_string().as_bytes());
        out.extend_from_slice(b".000000000");
        return;
    }
    let shift = 150 - e;
    // Below half of the last digit: m * 10^9 < 2^54.
    let scaled = if shift > 55 { 0 } else { shift_to_even(m * BILLION, shift) };
    push_scaled(scaled, out);
}

/// `n / 2^shift` for a shift of 1 to 63, rounded, halves to even.
fn shift_to_even(n: u64, shift: u32) -> u64 {
    let quotient = n >> shift;
    let rest = n & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    quotient + u64::from(rest > half || (rest == half && quotient & 1 == 1))
}

/// Appends a number of billionths.
fn push_scaled(scaled: u64, out: &mut Vec<u8>) {
    let (whole, rest) = (scaled / BILLION, scaled % BILLION);
    let mut text = [b'0'; 11];
    if whole < 10 {
        text[0] = pair(whole)[1];
    } else {
        out.extend_from_slice((whole / 10).to_string().as_bytes());
        text[0] = pair(whole % 10)[1];
    }
    text[1] = b'.';
    let (high, low) = (rest / 100_000, rest % 100_000);
    text[2..4].copy_from_slice(&pair(high / 100));
    text[4..6].copy_from_slice(&pair(high));
    text[6..8].copy_from_slice(&pair(low / 1000));
    text[8..10].copy_from_slice(&pair(low / 10));
    text[10] = pair(low % 10)[1];
    out.extend_from_slice(&text);
}

/// Like [`fixed9_f32`], for a double.
fn fixed9_f64(x: f64, out: &mut Vec<u8>) {
    if x.is_finite() {
        // The standard library's formatting is also exact and rounds halves to even.
        out.extend_from_slice(format!("{x:.9}").as_bytes());
    } else {
        push_special(x.is_nan(), x < 0.0, out);
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn fixed(x: f32) -> String {
        let mut out = Vec::new();
        fixed9_f32(x, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nine_digits_are_exact() {
        // Output of Python.
        for (x, text) in [
            (0.0f32, "0.000000000"),
            (-0.0, "-0.000000000"),
            (1.5, "1.500000000"),
            (-12.345_679, "-12.345679283"),
            (f32::MAX, "340282346638528859811704183484516925440.000000000"),
            (f32::from_bits(1), "0.000000000"),
            (-f32::from_bits(1), "-0.000000000"),
            (0.000_000_001, "0.000000001"),
            (9.999_999, "9.999999046"),
            (16_777_216.0, "16777216.000000000"),
            // Exact halves of the last digit: 2^-10 = 0.0009765625 and its triple.
            (0.000_976_562_5, "0.000976562"),
            (0.002_929_687_5, "0.002929688"),
            (f32::NAN, "nan"),
            (-f32::NAN, "nan"),
            (f32::INFINITY, "inf"),
            (f32::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(fixed(x), text);
        }
    }

    #[test]
    fn fast_formatting_equals_slow_formatting() {
        let mut state = 0x1234_5678_9abc_def1u64;
        for round in 0..2_000_000u32 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // All bit patterns, then those of typical size, then those near halves of the last digit.
            let bits = (state >> 16) as u32;
            let x = match round % 3 {
                0 => f32::from_bits(bits),
                1 => f32::from_bits(0x3000_0000 + bits % 0x1400_0000),
                _ => (bits % 4096) as f32 / 1024.0 / 32.0,
            };
            if x.is_finite() {
                assert_eq!(fixed(x), format!("{:.9}", f64::from(x)), "{:08x}", x.to_bits());
            }
        }
    }

    #[test]
    fn shortest_text_parses_as_the_same_float() {
        let mut state = 88_172_645_463_325_252u64;
        for _ in 0..300_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (x, y) = (f32::from_bits((state >> 8) as u32), f64::from_bits(state));
            let mut out = Vec::new();
            shortest32(x, &mut out);
            let back: f32 = std::str::from_utf8(&out).unwrap().parse().unwrap();
            assert!(back.to_bits() == x.to_bits() || (x.is_nan() && back.is_nan()));
            out.clear();
            shortest64(y, &mut out);
            let back: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
            assert!(back.to_bits() == y.to_bits() || (y.is_nan() && back.is_nan()));
        }
    }

    #[test]
    fn every_type_has_its_text() {
        let row = |dtype, bytes: &[u8]| {
            let mut out = Vec::new();
            push_row(bytes, dtype, Floats::Shortest, b'\t', true, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(row(DType::I8, &[1, 255]), "1\t-1");
        assert_eq!(row(DType::U64, &[255; 8]), "18446744073709551615");
        assert_eq!(row(DType::F16, &0x3c00u16.to_le_bytes()), "1.0");
        assert_eq!(row(DType::BF16, &0xbf80u16.to_le_bytes()), "-1.0");
        assert!(push_row(&[], DType::C64, Floats::Shortest, b' ', true, &mut Vec::new()).is_err());
        let mut out = Vec::new();
        push_row(&1.5f64.to_le_bytes(), DType::F64, Floats::Fixed9, b' ', false, &mut out).unwrap();
        assert_eq!(out, b" 1.500000000");
    }
}
