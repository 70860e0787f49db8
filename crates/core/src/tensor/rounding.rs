//! Rounding modes of casts: to nearest, or as a version of PaddlePaddle on the CPU.

use super::DType;
use std::fmt;

/// Rounding mode for values between two values of the target dtype.
///
/// Only casts to `f16` and `bf16` differ. Paddle casts via `f32`, so an `f64` is rounded twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rounding {
    /// To nearest, ties to even, once. Sign and leading bits of a NaN are kept.
    #[default]
    NearestEven,
    /// Rounding of PaddlePaddle 2.6.2. `f16`: towards zero, but values above 65504 become infinite. `bf16`: the upper half of
    /// the `f32`, so a NaN with its payload in the lower half becomes infinite.
    Paddle262,
    /// Rounding of PaddlePaddle 3.3.1: to nearest, ties to even; every NaN becomes 0x7fff as `bf16`. A bug of Paddle is
    /// reproduced: magnitudes from 2^-89 to 2^-77, far below the smallest `f16`, become 2^64 times as large.
    Paddle331,
}

impl Rounding {
    /// All rounding modes.
    pub const ALL: [Self; 3] = [Self::NearestEven, Self::Paddle262, Self::Paddle331];

    /// Returns the name on the command line and in JSON: `nearest`, `paddle-2.6`, `paddle-3.3`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NearestEven => "nearest",
            Self::Paddle262 => "paddle-2.6",
            Self::Paddle331 => "paddle-3.3",
        }
    }

    /// Returns the rounding mode of that [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.name() == name)
    }
}

/// Cast to a dtype with a rounding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cast {
    /// Target dtype.
    pub to: DType,
    /// Rounding mode.
    pub rounding: Rounding,
}

impl From<DType> for Cast {
    /// Returns the cast to that dtype, rounding to nearest.
    fn from(to: DType) -> Self {
        Self { to, rounding: Rounding::default() }
    }
}

impl fmt::Display for Cast {
    /// Writes the dtype, and the rounding mode unless it is to nearest: `f16 rounded as paddle-2.6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rounding {
            Rounding::NearestEven => write!(f, "{}", self.to),
            other => write!(f, "{} rounded as {}", self.to, other.name()),
        }
    }
}

const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;
/// Smallest normal `f16`, 2^-14, as bits of an `f32`.
const SMALLEST_NORMAL: u32 = 0x3880_0000;

/// Casts the bits of an `f32` to those of an `f16`: as Paddle 3.3.1 if `nearest`, else as 2.6.2.
pub(super) fn f32_to_f16(bits: u32, nearest: bool) -> u16 {
    let sign = upper(bits) & 0x8000;
    let magnitude = bits & MAGNITUDE;
    if magnitude > INFINITY {
        // Keep the leading bits of the payload; `max(1)` keeps it a NaN.
        return sign | 0x7c00 | (lower(magnitude >> 13) & 0x3ff).max(1);
    }
    if nearest {
        return sign
            | match magnitude {
                0..SMALLEST_NORMAL => small_to_nearest(magnitude),
                _ => super::float16::f16::from_f32(f32::from_bits(magnitude)).to_bits(),
            };
    }
    sign | match magnitude {
        // Below the smallest normal value: units of 2^-24, truncated.
        0..SMALLEST_NORMAL => cut(f32::from_bits(magnitude) * 16_777_216.0),
        SMALLEST_NORMAL..=0x477f_e000 => lower((magnitude - 0x3800_0000) >> 13),
        _ => 0x7c00,
    }
}

/// Rounding of 3.3.1 below the smallest normal value: to nearest, in units of 2^-24. Paddle shifts by up to 113 bits, which
/// the CPU reduces modulo 64: the cause of the bug described at [`Rounding`].
fn small_to_nearest(magnitude: u32) -> u16 {
    let fraction = u64::from(magnitude & 0x007f_ffff | 0x0080_0000) << 40;
    let fraction = fraction.wrapping_shr(113 - (magnitude >> 23));
    let odd = fraction >> 53 & 1;
    let rounded = fraction.wrapping_add((1 << 52) - 1 + odd) >> 53;
    // Eleven bits are left.
    u16::try_from(rounded).unwrap_or(0)
}

/// Casts the bits of an `f32` to those of a `bf16`: as Paddle 3.3.1 if `nearest`, else as 2.6.2.
pub(super) fn f32_to_bf16(bits: u32, nearest: bool) -> u16 {
    if !nearest {
        return upper(bits);
    }
    if bits & MAGNITUDE > INFINITY {
        return 0x7fff;
    }
    // No overflow: the largest finite value rounds up to infinity, and infinity stays.
    upper(bits + 0x7fff + (bits >> 16 & 1))
}

/// Casts an `f64` to the bits of an `f32`, to nearest even. A NaN keeps its leading bits and becomes quiet.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn f64_to_f32(x: f64) -> u32 {
    if !x.is_nan() {
        return (x as f32).to_bits();
    }
    let bits = x.to_bits();
    let sign = if x.is_sign_negative() { 0x8000_0000 } else { 0 };
    // 22 bits of payload below the quiet bit.
    sign | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff
}

/// Casts the bits of an `f16` to those of an `f32` of the same value. The payload of a NaN is kept.
pub(super) fn f16_to_f32(bits: u16) -> u32 {
    let fraction = u32::from(bits & 0x3ff) << 13;
    if bits & 0x7c00 == 0x7c00 {
        return u32::from(bits & 0x8000) << 16 | INFINITY | fraction;
    }
    super::float16::f16::from_bits(bits).to_f32().to_bits()
}

#[allow(clippy::cast_possible_truncation)]
fn upper(bits: u32) -> u16 {
    (bits >> 16) as u16
}

#[allow(clippy::cast_possible_truncation)]
fn lower(bits: u32) -> u16 {
    bits as u16
}

/// Truncates a value from 0 to 1024 to an integer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn cut(value: f32) -> u16 {
    value as u16
}
