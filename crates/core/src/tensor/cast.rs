//! Casts of elements between dtypes, with a report of the changed values.
//!
//! Rounding is to nearest, ties to even, and happens once: wide values are first rounded to odd in `f32` or `f64`, which makes
//! the second rounding exact. [`Rounding`] selects the rounding of a version of Paddle instead. Casts to integers truncate
//! towards zero, as in numpy and PyTorch.

use super::float16::{bf16, f16, to_f32_odd};
use super::rounding::{Cast, Rounding, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_f32};
use super::{DType, Element};

/// Counts and errors of a cast.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CastReport {
    /// Elements cast.
    pub elements: u64,
    /// Elements with a changed value, infinite results included.
    pub changed: u64,
    /// Finite elements that became infinite, or NaN in `f8_e4m3`, which has no infinity.
    pub overflowed: u64,
    /// Elements that an integer dtype cannot represent: NaN, infinite, or out of range. Their result is undefined; conversions
    /// fail on them.
    pub undefined: u64,
    /// Nonzero elements that became zero.
    pub underflowed: u64,
    /// Largest absolute error among finite results.
    pub worst_error: f64,
    /// Largest relative error among finite results; 1 for a value that became zero.
    pub worst_relative: f64,
}

impl CastReport {
    /// Merges the report of another part of the tensor.
    pub fn add(&mut self, other: &Self) {
        self.elements += other.elements;
        self.changed += other.changed;
        self.overflowed += other.overflowed;
        self.undefined += other.undefined;
        self.underflowed += other.underflowed;
        self.worst_error = self.worst_error.max(other.worst_error);
        self.worst_relative = self.worst_relative.max(other.worst_relative);
    }

    /// Returns JSON with `elements`, `changed`, `overflowed`, `underflowed`, `worst_error` and `worst_relative`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "elements": self.elements,
            "changed": self.changed,
            "overflowed": self.overflowed,
            "underflowed": self.underflowed,
            "worst_error": crate::text::json_number(self.worst_error),
            "worst_relative": crate::text::json_number(self.worst_relative),
        })
    }

    fn note(&mut self, before: f64, after: f64) {
        if before == after || before.is_nan() && after.is_nan() {
            return;
        }
        self.changed += 1;
        if before.is_nan() {
            return;
        }
        if !after.is_finite() {
            self.overflowed += 1;
        } else {
            self.underflowed += u64::from(after == 0.0);
            let error = (before - after).abs();
            self.worst_error = self.worst_error.max(error);
            if before != 0.0 {
                self.worst_relative = self.worst_relative.max(error / before.abs());
            }
        }
    }
}

/// Casts little-endian elements of dtype `from` to little-endian `to`, and appends them to `out`. `to` is a [`Cast`], or a dtype,
/// which rounds to nearest.
///
/// `None` for unsupported casts: to a dtype outside [`DType::CAST_TARGETS`], or from complex and packed dtypes.
pub fn cast(bytes: &[u8], from: DType, to: impl Into<Cast>, out: &mut Vec<u8>) -> Option<CastReport> {
    let Cast { to, rounding } = to.into();
    if !from.cast_is_supported(to) {
        return None;
    }
    if rounding != Rounding::NearestEven && matches!(to, DType::F16 | DType::BF16 | DType::F32) {
        return through_f32(bytes, from, to, rounding == Rounding::Paddle331, out);
    }
    let report = match from {
        DType::F16 => floats(bytes, to, out, |b| f16::from_le_bytes(b).to_f64()),
        DType::BF16 => floats(bytes, to, out, |b| bf16::from_le_bytes(b).to_f64()),
        DType::F32 => floats(bytes, to, out, |b| f64::from(f32::from_le_bytes(b))),
        DType::F64 => floats(bytes, to, out, f64::from_le_bytes),
        _ => others(bytes, from, to, out)?,
    };
    Some(report)
}

/// Casts floats with the exact value that `decode` returns.
fn floats<const N: usize>(
    bytes: &[u8],
    to: DType,
    out: &mut Vec<u8>,
    decode: impl Fn([u8; N]) -> f64 + Copy,
) -> CastReport {
    let elements = bytes.as_chunks::<N>().0;
    match to {
        DType::F64 => each(elements, out, decode, |x| (x.to_le_bytes(), x, x)),
        DType::F32 => each(elements, out, decode, |x| {
            let value = to_f32(x);
            (value.to_le_bytes(), x, f64::from(value))
        }),
        DType::F16 => each(elements, out, decode, |x| {
            let value = f16::from_f32(to_f32_odd(x));
            (value.to_le_bytes(), x, value.to_f64())
        }),
        DType::F8E4M3 => each(elements, out, decode, |x| to_float8(x, &E4M3)),
        DType::F8E5M2 => each(elements, out, decode, |x| to_float8(x, &E5M2)),
        DType::I8 => {
            let report = each(elements, out, decode, |x| {
                let value = to_i8(x);
                (value.to_le_bytes(), x, f64::from(value))
            });
            let undefined = elements.iter().filter(|element| !fits_i8(decode(**element))).count();
            CastReport { undefined: undefined as u64, ..report }
        }
        _ => each(elements, out, decode, |x| {
            let value = bf16::from_f32(to_f32_odd(x));
            (value.to_le_bytes(), x, value.to_f64())
        }),
    }
}

/// Format of an 8-bit float. Without the sign, codes are ordered as their values.
struct Float8 {
    dtype: DType,
    /// Bits of the mantissa.
    mantissa: i32,
    bias: i32,
    /// Code of the largest finite value.
    largest: f64,
    /// Code for larger values: infinity, or NaN if the format has no infinity.
    beyond: u8,
}

const E4M3: Float8 = Float8 { dtype: DType::F8E4M3, mantissa: 3, bias: 7, largest: 126.0, beyond: 0x7f };
const E5M2: Float8 = Float8 { dtype: DType::F8E5M2, mantissa: 2, bias: 15, largest: 123.0, beyond: 0x7c };

/// Rounds to an 8-bit float, to nearest, ties to even; NaN becomes 0x7f with the sign. The bits are equal to those of PyTorch.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn to_float8(x: f64, form: &Float8) -> ([u8; 1], f64, f64) {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let code = if x.is_nan() {
        0x7f
    } else if x.is_infinite() {
        form.beyond
    } else {
        // Subnormal values have the exponent of the smallest normal one.
        let exponent = (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(1 - form.bias);
        let quantum = 2f64.powi(exponent - form.mantissa);
        let steps = (x.abs() / quantum).round_ties_even();
        // When rounding up to the next power of two, the sum carries into the exponent.
        let code = f64::from((exponent + form.bias - 1) << form.mantissa) + steps;
        if code > form.largest { form.beyond } else { code as u8 }
    };
    let code = [sign | code];
    let value = form.dtype.element_at(&code, 0).map_or(f64::NAN, |element| element.to_f64());
    (code, x, value)
}

/// Truncates towards zero.
#[allow(clippy::cast_possible_truncation)]
fn to_i8(x: f64) -> i8 {
    x as i8
}

fn fits_i8(x: f64) -> bool {
    x > -129.0 && x < 128.0
}

/// Casts as Paddle does, via `f32`: to nearest as 3.3.1, else truncated as 2.6.2.
fn through_f32(bytes: &[u8], from: DType, to: DType, nearest: bool, out: &mut Vec<u8>) -> Option<CastReport> {
    let report = match from {
        DType::F16 => bits(bytes, to, nearest, out, |b| {
            let bits = u16::from_le_bytes(b);
            (f16::from_bits(bits).to_f64(), f16_to_f32(bits))
        }),
        DType::BF16 => bits(bytes, to, nearest, out, |b| {
            let bits = u32::from(u16::from_le_bytes(b)) << 16;
            (f64::from(f32::from_bits(bits)), bits)
        }),
        DType::F32 => bits(bytes, to, nearest, out, |b| {
            let bits = u32::from_le_bytes(b);
            (f64::from(f32::from_bits(bits)), bits)
        }),
        DType::F64 => bits(bytes, to, nearest, out, |b| {
            let x = f64::from_le_bytes(b);
            (x, f64_to_f32(x))
        }),
        _ => {
            let mut wide = Vec::new();
            let mut report = cast(bytes, from, DType::F32, &mut wide)?;
            if to == DType::F32 {
                out.append(&mut wide);
                return Some(report);
            }
            let narrow = through_f32(&wide, DType::F32, to, nearest, out)?;
            report.add(&CastReport { elements: 0, ..narrow });
            // An element changed by both casts counts once.
            report.changed = report.changed.min(report.elements);
            report
        }
    };
    Some(report)
}

/// Casts floats with the value and the `f32` bits that `decode` returns.
fn bits<const N: usize>(
    bytes: &[u8],
    to: DType,
    nearest: bool,
    out: &mut Vec<u8>,
    decode: impl Fn([u8; N]) -> (f64, u32),
) -> CastReport {
    let elements = bytes.as_chunks::<N>().0;
    match to {
        DType::F16 => each(elements, out, decode, |(x, bits)| {
            let value = f16::from_bits(f32_to_f16(bits, nearest));
            (value.to_le_bytes(), x, value.to_f64())
        }),
        DType::BF16 => each(elements, out, decode, |(x, bits)| {
            let value = bf16::from_bits(f32_to_bf16(bits, nearest));
            (value.to_le_bytes(), x, value.to_f64())
        }),
        _ => {
            each(elements, out, decode, |(x, bits)| (bits.to_le_bytes(), x, f64::from(f32::from_bits(bits))))
        }
    }
}

/// Casts each element. `encode` returns the bytes, and the values before and after.
fn each<const N: usize, const M: usize, V>(
    elements: &[[u8; N]],
    out: &mut Vec<u8>,
    decode: impl Fn([u8; N]) -> V,
    encode: impl Fn(V) -> ([u8; M], f64, f64),
) -> CastReport {
    let mut report = CastReport { elements: elements.len() as u64, ..CastReport::default() };
    let base = out.len();
    out.reserve_exact(elements.len() * M);
    out.resize(base + elements.len() * M, 0);
    for (element, target) in elements.iter().zip(out[base..].as_chunks_mut::<M>().0) {
        let (encoded, before, after) = encode(decode(*element));
        *target = encoded;
        report.note(before, after);
    }
    report
}

/// Casts integers, booleans and 8-bit floats.
fn others(bytes: &[u8], from: DType, to: DType, out: &mut Vec<u8>) -> Option<CastReport> {
    let count = bytes.len() / from.size()?;
    let mut report = CastReport { elements: count as u64, ..CastReport::default() };
    out.reserve_exact(count * to.size()?);
    for index in 0..count {
        let element = from.element_at(bytes, index)?;
        // A wide integer rounded to odd can be rounded again without error, unless the target is
        // `f64` itself.
        let (odd, rounded) = match element {
            Element::Int(i) => int_to_f64_odd(i),
            other => (other.to_f64(), false),
        };
        let exact = if to == DType::F64 { element.to_f64() } else { odd };
        let one = floats(&exact.to_le_bytes(), to, out, f64::from_le_bytes);
        report.add(&CastReport { elements: 0, changed: u64::from(rounded || one.changed > 0), ..one });
    }
    Some(report)
}

impl DType {
    /// Supported target dtypes of casts.
    pub const CAST_TARGETS: [DType; 7] =
        [DType::F16, DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2, DType::I8];

    /// Names of [`DType::CAST_TARGETS`], for sentences.
    pub const CAST_NAMES: &'static str = "f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8";

    /// Returns true if [`cast`] supports the cast from `self` to `to`.
    pub fn cast_is_supported(self, to: DType) -> bool {
        let source = self.size().is_some() && !matches!(self, DType::C64 | DType::C128);
        source && DType::CAST_TARGETS.contains(&to)
    }

    /// Returns true if `to` can represent every value of `self`.
    pub fn cast_is_exact(self, to: DType) -> bool {
        use DType::*;
        if self == to {
            return true;
        }
        match to {
            F64 => !matches!(self, U64 | I64 | C64 | C128),
            F32 => !matches!(self, U64 | I64 | U32 | I32 | F64 | C64 | C128),
            F16 => matches!(self, Bool | U8 | I8 | F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz),
            BF16 => matches!(self, Bool | U8 | I8 | F8E4M3 | F8E5M2 | F8E8M0 | F8E4M3Fnuz | F8E5M2Fnuz),
            I8 => self == Bool,
            _ => false,
        }
    }
}

/// Casts an integer to `f64`, rounded to odd; true if it was rounded.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn int_to_f64_odd(i: i128) -> (f64, bool) {
    let nearest = i as f64;
    let back = nearest as i128;
    if back == i {
        return (nearest, false);
    }
    let above = back.unsigned_abs() > i.unsigned_abs();
    let towards_zero = if above { nearest.to_bits() - 1 } else { nearest.to_bits() };
    (f64::from_bits(towards_zero | 1), true)
}

#[allow(clippy::cast_possible_truncation)]
fn to_f32(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(x: f64, to: DType) -> (Vec<u8>, CastReport) {
        let mut out = Vec::new();
        let report = cast(&x.to_le_bytes(), DType::F64, to, &mut out).unwrap();
        (out, report)
    }

    #[test]
    fn rounds_once_to_nearest_even() {
        // Just above the tie between two bf16 neighbours; f32 would round it onto the tie.
        let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(one(x, DType::BF16).0, bf16::from_bits(0x3f81).to_le_bytes());
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!(one(tie, DType::BF16).0, bf16::from_bits(0x3f80).to_le_bytes());
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(one(x, DType::F16).0, f16::from_bits(0x3c01).to_le_bytes());
    }

    /// Each code is the nearest to its own value, and to values less than half a step away.
    #[test]
    fn casts_to_floats_of_8_bits_round_to_nearest_even() {
        for (to, beyond) in [(DType::F8E4M3, 0x7f), (DType::F8E5M2, 0x7c)] {
            let value = |code: u8| to.element_at(&[code], 0).unwrap().to_f64();
            for code in 0..beyond - 1 {
                let (low, high) = (value(code), value(code + 1));
                assert_eq!(one(low, to).0, [code]);
                assert_eq!(one(-low, to).0, [code | 0x80]);
                let tie = f64::midpoint(low, high);
                assert_eq!(one(tie, to).0, [code + code % 2], "{to} {tie}");
                assert_eq!(one(tie.next_down(), to).0, [code]);
                assert_eq!(one(tie.next_up(), to).0, [code + 1]);
            }
            assert_eq!(one(f64::NAN, to).0, [0x7f]);
            let (bytes, report) = one(1e6, to);
            assert_eq!((bytes, report.overflowed), (vec![beyond], 1));
            assert_eq!(one(f64::NEG_INFINITY, to).0, [beyond | 0x80]);
        }
        assert_eq!(one(464.0, DType::F8E4M3).0, [0x7e]);
        assert_eq!(one(464f64.next_up(), DType::F8E4M3).0, [0x7f]);
    }

    #[test]
    fn casts_to_integers_truncate_and_count_undefined_values() {
        for (x, wanted) in [(1.9, 1), (-1.9, -1), (127.9, 127), (-128.9, -128), (-0.5, 0)] {
            let (bytes, report) = one(x, DType::I8);
            assert_eq!((i8::from_le_bytes([bytes[0]]), report.undefined), (wanted, 0), "{x}");
        }
        for x in [f64::NAN, f64::INFINITY, 128.0, -129.0] {
            assert_eq!(one(x, DType::I8).1.undefined, 1, "{x}");
        }
    }

    #[test]
    fn counts_changed_values() {
        let (bytes, report) = one(1e300, DType::F32);
        assert_eq!(bytes, f32::INFINITY.to_le_bytes());
        assert_eq!((report.changed, report.overflowed), (1, 1));
        let (_, report) = one(1e-300, DType::F32);
        assert_eq!((report.changed, report.underflowed, report.worst_relative), (1, 1, 1.0));
        let (_, report) = one(0.5, DType::F16);
        assert_eq!(report, CastReport { elements: 1, ..CastReport::default() });
        assert_eq!(one(f64::NAN, DType::F32).1.changed, 0);
    }

    #[test]
    fn wide_integers_are_rounded_once() {
        let mut out = Vec::new();
        let report = cast(&(i64::MAX).to_le_bytes(), DType::I64, DType::F32, &mut out).unwrap();
        assert_eq!(out, 2f32.powi(63).to_le_bytes());
        assert_eq!(report.changed, 1);
        assert!(cast(&[0; 8], DType::C64, DType::F32, &mut out).is_none());
        assert!(cast(&[0; 8], DType::F32, DType::I32, &mut out).is_none());
    }

    #[test]
    fn exact_casts_change_nothing() {
        for from in [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::U8, DType::I16] {
            let size = from.size().unwrap();
            let bytes: Vec<u8> = (0..=u16::MAX).flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect();
            for to in [DType::F16, DType::BF16, DType::F32, DType::F64] {
                let report = cast(&bytes, from, to, &mut Vec::new()).unwrap();
                if from.cast_is_exact(to) {
                    assert_eq!(report.changed, 0, "{from} {to}");
                }
            }
        }
    }
    #[test]
    fn rounding_of_paddle_is_counted() {
        let old = Cast { to: DType::F16, rounding: Rounding::Paddle262 };
        let values = [65504.0f32, 65505.0, 1.0 + 1.0 / 2048.0 + 1.0 / 4096.0, f32::NAN];
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut out = Vec::new();
        let report = cast(&bytes, DType::F32, old, &mut out).unwrap();
        assert_eq!((report.elements, report.changed, report.overflowed), (4, 2, 1));
        assert_eq!(report.worst_error, 1.0 / 2048.0 + 1.0 / 4096.0);
        assert_eq!(out, [0x7bffu16, 0x7c00, 0x3c00, 0x7e00].map(u16::to_le_bytes).concat());

        // A NaN that becomes infinite counts as a change, not as an overflow.
        let old = Cast { to: DType::BF16, rounding: Rounding::Paddle262 };
        let report = cast(&0x7f80_0001u32.to_le_bytes(), DType::F32, old, &mut Vec::new()).unwrap();
        assert_eq!((report.changed, report.overflowed), (1, 0));
    }

    #[test]
    fn rounding_of_paddle_casts_other_dtypes_via_f32() {
        for rounding in [Rounding::Paddle262, Rounding::Paddle331] {
            let mut out = Vec::new();
            let to = Cast { to: DType::BF16, rounding };
            let report = cast(&[0x01, 0x7e], DType::F8E4M3, to, &mut out).unwrap();
            assert_eq!(
                out,
                [bf16::from_f32(2f32.powi(-9)), bf16::from_f32(448.0)].map(bf16::to_le_bytes).concat()
            );
            assert_eq!((report.elements, report.changed), (2, 0));
            let mut out = Vec::new();
            cast(&7u8.to_le_bytes(), DType::U8, Cast { to: DType::F64, rounding }, &mut out).unwrap();
            assert_eq!(out, 7f64.to_le_bytes());
        }
    }
}
