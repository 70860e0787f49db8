//! Conversions of 16-bit floats to and from `f32` and `f64`, to nearest even. A NaN keeps its leading bits and becomes quiet.

/// IEEE 754 binary16 float.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct f16(u16);

/// Upper half of an `f32`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct bf16(u16);

const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

impl f16 {
    /// Smallest normal value, 2^-14.
    pub const MIN_POSITIVE: Self = Self(0x0400);

    /// Creates a float of these bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Creates a float of these little-endian bytes.
    #[must_use]
    pub const fn from_le_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }

    /// Returns the little-endian bytes.
    #[must_use]
    pub const fn to_le_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    /// Rounds to nearest, ties to even.
    #[must_use]
    #[inline]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = upper(bits) & 0x8000;
        let magnitude = bits & MAGNITUDE;
        let rounded = if magnitude > INFINITY {
            0x7e00 | lower(magnitude >> 13) & 0x03ff
        } else if magnitude >= 0x4780_0000 {
            // 2^16 and more.
            0x7c00
        } else if magnitude >= 0x3880_0000 {
            // Normal: rebias the exponent and round away thirteen bits; a carry goes into the exponent.
            let moved = magnitude - 0x3800_0000;
            lower((moved + 0x0fff + (moved >> 13 & 1)) >> 13)
        } else {
            // In units of 2^-24, the precision of an f32 from 0.5 on: the addition rounds.
            let sum = f32::from_bits(magnitude) + 0.5;
            lower(sum.to_bits() - 0.5f32.to_bits())
        };
        Self(sign | rounded)
    }

    /// Rounds to nearest, ties to even, in one step.
    #[must_use]
    pub fn from_f64(value: f64) -> Self {
        Self::from_f32(to_f32_odd(value))
    }

    /// Converts without loss.
    #[must_use]
    #[inline]
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let magnitude = self.0 & 0x7fff;
        let moved = u32::from(magnitude) << 13;
        let bits = match magnitude {
            // In units of 2^-24. No product of tiny floats: it is 0 if a library enabled flush-to-zero.
            0..0x0400 => (f32::from(magnitude) / 16_777_216.0).to_bits(),
            0x0400..0x7c00 => moved + 0x3800_0000,
            0x7c00 => INFINITY,
            _ => INFINITY | 0x0040_0000 | moved & 0x007f_ffff,
        };
        f32::from_bits(sign | bits)
    }

    /// Converts without loss.
    #[must_use]
    #[inline]
    pub fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }
}

impl bf16 {
    /// Creates a float of these bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Creates a float of these little-endian bytes.
    #[must_use]
    pub const fn from_le_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }

    /// Returns the little-endian bytes.
    #[must_use]
    pub const fn to_le_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    /// Rounds to nearest, ties to even.
    #[must_use]
    #[inline]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if bits & MAGNITUDE > INFINITY {
            return Self(upper(bits) | 0x0040);
        }
        Self(upper(bits + 0x7fff + (bits >> 16 & 1)))
    }

    /// Converts without loss.
    #[must_use]
    #[inline]
    pub fn to_f32(self) -> f32 {
        let quiet = if self.0 & 0x7fff > 0x7f80 { 0x0040_0000 } else { 0 };
        f32::from_bits(u32::from(self.0) << 16 | quiet)
    }

    /// Converts without loss.
    #[must_use]
    #[inline]
    pub fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }
}

impl From<f16> for f32 {
    fn from(value: f16) -> Self {
        value.to_f32()
    }
}

impl From<f16> for f64 {
    fn from(value: f16) -> Self {
        value.to_f64()
    }
}

impl From<bf16> for f64 {
    fn from(value: bf16) -> Self {
        value.to_f64()
    }
}

/// Rounds `x` to odd in `f32`. A further rounding to 16 bits then has the same result as one from `x`.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || x.is_nan() {
        return nearest;
    }
    let towards_zero = if back.abs() > x.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(towards_zero | 1)
}

#[allow(clippy::cast_possible_truncation)]
fn upper(bits: u32) -> u16 {
    (bits >> 16) as u16
}

#[allow(clippy::cast_possible_truncation)]
fn lower(bits: u32) -> u16 {
    bits as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widens_every_16_bit_float_as_half_does() {
        for bits in 0..=u16::MAX {
            let (own, other) = (f16::from_bits(bits), half::f16::from_bits(bits));
            assert_eq!(own.to_f32().to_bits(), other.to_f32().to_bits(), "{bits:#x}");
            assert_eq!(own.to_f64().to_bits(), other.to_f64().to_bits(), "{bits:#x}");
            let (own, other) = (bf16::from_bits(bits), half::bf16::from_bits(bits));
            assert_eq!(own.to_f32().to_bits(), other.to_f32().to_bits(), "{bits:#x}");
            assert_eq!(own.to_f64().to_bits(), other.to_f64().to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn rounds_32_bit_floats_as_half_does() {
        // Every sign, exponent and leading bit; the bits to be rounded are 0, a tie, or next to a tie.
        for upper in 0..=u16::MAX {
            for lower in
                [0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x7fff, 0x8000, 0x8001, 0xd000, 0xffff]
            {
                let value = f32::from_bits(u32::from(upper) << 16 | lower);
                assert_eq!(f16::from_f32(value).to_bits(), half::f16::from_f32(value).to_bits(), "{value:e}");
                assert_eq!(
                    bf16::from_f32(value).to_bits(),
                    half::bf16::from_f32(value).to_bits(),
                    "{value:e}"
                );
            }
        }
    }

    #[test]
    fn rounds_f64_once() {
        // Just above the tie between 1 and the next float.
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16::from_f64(value).to_bits(), 0x3c01);
        assert_eq!(f16::from_f64(1.0 + 2f64.powi(-11)).to_bits(), 0x3c00);
    }
}
