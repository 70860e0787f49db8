//! Dtypes by their numbers in ML programs and in files of weights.

use weighbridge_core::tensor::DType;

/// Dtypes of tensors.
pub(crate) const DTYPES: [DType; 15] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
    DType::F8E4M3,
    DType::F8E5M2,
];

/// Number of texts.
pub(crate) const STRING: u64 = 2;

/// Dtype of a tensor as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Elements of whole bytes.
    Plain(DType),
    /// Elements that share bytes: name and bits.
    Packed(&'static str, u64),
}

/// Returns the dtype of a number in a program.
pub(crate) fn of_number(number: u64) -> Option<Stored> {
    use Stored::{Packed, Plain};
    Some(match number {
        1 => Plain(DType::Bool),
        10 => Plain(DType::F16),
        11 => Plain(DType::F32),
        12 => Plain(DType::F64),
        13 => Plain(DType::BF16),
        21 => Plain(DType::I8),
        22 => Plain(DType::I16),
        23 => Plain(DType::I32),
        24 => Plain(DType::I64),
        25 => Packed("int4", 4),
        31 => Plain(DType::U8),
        32 => Plain(DType::U16),
        33 => Plain(DType::U32),
        34 => Plain(DType::U64),
        35 => Packed("uint4", 4),
        36 => Packed("uint2", 2),
        37 => Packed("uint1", 1),
        38 => Packed("uint6", 6),
        39 => Packed("uint3", 3),
        40 => Plain(DType::F8E4M3),
        41 => Plain(DType::F8E5M2),
        _ => return None,
    })
}

/// Returns the dtype of a number in a file of weights.
pub(crate) fn of_blob(number: u64) -> Option<Stored> {
    let in_program = match number {
        1 => 10,
        2 => 11,
        3 => 31,
        4 => 21,
        5 => 13,
        6 => 22,
        7 => 32,
        8 => 25,
        9 => 37,
        10 => 36,
        11 => 35,
        12 => 39,
        13 => 38,
        14 => 23,
        15 => 33,
        16 => 40,
        17 => 41,
        _ => return None,
    };
    of_number(in_program)
}

/// Returns the dtype of integers of a number of bits in a neural network.
pub(crate) fn of_bits(bits: u64) -> Option<Stored> {
    const NAMES: [&str; 7] = ["uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7"];
    if bits == 8 {
        return Some(Stored::Plain(DType::U8));
    }
    let place = usize::try_from(bits.checked_sub(1)?).ok()?;
    NAMES.get(place).map(|name| Stored::Packed(name, bits))
}

impl std::fmt::Display for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(dtype) => f.write_str(dtype.name()),
            Self::Packed(name, _) => f.write_str(name),
        }
    }
}
