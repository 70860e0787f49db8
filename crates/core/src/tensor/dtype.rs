//! Dtypes of elements.

use std::fmt;

/// Dtype of the elements of a tensor. Names are the usual ones, in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// Boolean in one byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// Upper 16 bits of a binary32 (1 sign, 8 exponent, 7 fraction).
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Complex number of two binary32: real, imaginary.
    C64,
    /// Complex number of two binary64: real, imaginary.
    C128,
    /// 8-bit float, 4 exponent and 3 fraction bits, no infinities (OCP "e4m3fn").
    F8E4M3,
    /// 8-bit float, 5 exponent and 2 fraction bits, IEEE-like (OCP "e5m2").
    F8E5M2,
    /// 8-bit scale: a power of two, no sign, no fraction (OCP "e8m0").
    F8E8M0,
    /// 8-bit float like e4m3 with bias 8, no negative zero, one NaN ("e4m3fnuz").
    F8E4M3Fnuz,
    /// 8-bit float like e5m2 with bias 16, no negative zero, one NaN ("e5m2fnuz").
    F8E5M2Fnuz,
    /// 4-bit float e2m1; two share a byte.
    F4,
    /// 6-bit float e2m3, packed.
    F6E2M3,
    /// 6-bit float e3m2, packed.
    F6E3M2,
}

use DType::*;

impl DType {
    /// All dtypes, in order of declaration.
    pub const ALL: [Self; 23] = [
        Bool, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64, C64, C128, F8E4M3, F8E5M2, F8E8M0,
        F8E4M3Fnuz, F8E5M2Fnuz, F4, F6E2M3, F6E3M2,
    ];

    /// Returns the name used on the command line and in JSON, such as `f32` or `f8_e4m3`.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            U64 => "u64",
            I64 => "i64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
            C64 => "c64",
            C128 => "c128",
            F8E4M3 => "f8_e4m3",
            F8E5M2 => "f8_e5m2",
            F8E8M0 => "f8_e8m0",
            F8E4M3Fnuz => "f8_e4m3fnuz",
            F8E5M2Fnuz => "f8_e5m2fnuz",
            F4 => "f4",
            F6E2M3 => "f6_e2m3",
            F6E3M2 => "f6_e3m2",
        }
    }

    /// Returns the dtype of that [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Parses a dtype written by a user. Accepted are:
    ///
    /// - the [`name`](Self::name);
    /// - names of numpy, torch and `ml_dtypes`: `float16`, `bfloat16`, `float8_e4m3fn`;
    /// - names as torch and Paddle print them: `torch.float16`;
    /// - float names from headers of safetensors: `F16`;
    /// - unambiguous short names of floats: `half`, `fp16`, `fp32`, `fp64`.
    ///
    /// Ambiguous names such as `float` or `f8` return `None`.
    pub fn from_spelling(text: &str) -> Option<Self> {
        match text {
            "half" | "fp16" | "F16" => Some(F16),
            "BF16" => Some(BF16),
            "fp32" | "F32" => Some(F32),
            "fp64" | "F64" => Some(F64),
            _ => match text.strip_prefix("torch.").or_else(|| text.strip_prefix("paddle.")) {
                Some("bool") => Some(Bool),
                Some(word) => Self::from_long_name(word),
                None => Self::from_name(text).or_else(|| Self::from_long_name(text)),
            },
        }
    }

    /// Returns the dtype of a name of numpy, torch or `ml_dtypes`.
    fn from_long_name(text: &str) -> Option<Self> {
        Some(match text {
            "uint8" => U8,
            "int8" => I8,
            "uint16" => U16,
            "int16" => I16,
            "uint32" => U32,
            "int32" => I32,
            "uint64" => U64,
            "int64" => I64,
            "float16" => F16,
            "bfloat16" => BF16,
            "float32" => F32,
            "float64" => F64,
            "complex64" => C64,
            "complex128" => C128,
            "float8_e4m3fn" => F8E4M3,
            "float8_e5m2" => F8E5M2,
            "float8_e8m0fnu" => F8E8M0,
            "float8_e4m3fnuz" => F8E4M3Fnuz,
            "float8_e5m2fnuz" => F8E5M2Fnuz,
            _ => return None,
        })
    }

    /// Returns the dtype of a numpy type code without byte order, such as `f4` for four bytes. `None` for codes outside numpy and
    /// for non-numeric types.
    pub fn from_numpy_code(code: &str) -> Option<Self> {
        Some(match code {
            "b1" | "?" => Bool,
            "u1" => U8,
            "i1" => I8,
            "u2" => U16,
            "i2" => I16,
            "u4" => U32,
            "i4" => I32,
            "u8" => U64,
            "i8" => I64,
            "f2" => F16,
            "f4" => F32,
            "f8" => F64,
            "c8" => C64,
            "c16" => C128,
            _ => return None,
        })
    }

    /// Returns the bits of one element.
    pub fn bits(self) -> u32 {
        match self {
            F4 => 4,
            F6E2M3 | F6E3M2 => 6,
            Bool | U8 | I8 | F8E4M3 | F8E5M2 | F8E8M0 | F8E4M3Fnuz | F8E5M2Fnuz => 8,
            U16 | I16 | F16 | BF16 => 16,
            U32 | I32 | F32 => 32,
            U64 | I64 | F64 | C64 => 64,
            C128 => 128,
        }
    }

    /// Returns the bytes of one element; `None` for packed dtypes smaller than a byte.
    pub fn size(self) -> Option<usize> {
        let bits = self.bits();
        bits.is_multiple_of(8).then_some(bits as usize / 8)
    }

    /// Returns the bytes swapped as one unit between byte orders: half the element for complex dtypes.
    pub fn swap_unit(self) -> usize {
        match self {
            C64 => 4,
            C128 => 8,
            other => other.size().unwrap_or(1),
        }
    }

    /// Returns true for the real floating-point dtypes.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            F16 | BF16
                | F32
                | F64
                | F8E4M3
                | F8E5M2
                | F8E8M0
                | F8E4M3Fnuz
                | F8E5M2Fnuz
                | F4
                | F6E2M3
                | F6E3M2
        )
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse_back() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_name("float32"), None);
    }

    #[test]
    fn parses_names_of_numpy() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_spelling(dtype.name()), Some(dtype));
        }
        for (text, dtype) in
            [("float16", F16), ("bfloat16", BF16), ("float32", F32), ("float64", F64), ("int8", I8)]
        {
            assert_eq!(DType::from_spelling(text), Some(dtype));
            for package in ["torch", "paddle"] {
                assert_eq!(DType::from_spelling(&format!("{package}.{text}")), Some(dtype));
            }
        }
        for text in
            ["float", "double", "f8", "Float32", "float8_e4m3", "", "torch.", "torch.f16", "numpy.float16"]
        {
            assert_eq!(DType::from_spelling(text), None, "{text}");
        }
    }

    #[test]
    fn parses_names_of_headers_and_short_names() {
        for (words, dtype) in [
            (&["F16", "half", "fp16"][..], F16),
            (&["BF16"], BF16),
            (&["F32", "fp32"], F32),
            (&["F64", "fp64"], F64),
            (&["torch.bool", "bool"], Bool),
        ] {
            for word in words {
                assert_eq!(DType::from_spelling(word), Some(dtype), "{word}");
            }
        }
        for text in ["torch.half", "torch.F16", "FP16", "bf", "Half"] {
            assert_eq!(DType::from_spelling(text), None, "{text}");
        }
    }
}
