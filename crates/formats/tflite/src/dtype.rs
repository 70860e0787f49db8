//! Dtypes by their numbers in the file.

use weighbridge_core::tensor::DType;

/// Dtypes of tensors.
pub(crate) const DTYPES: [DType; 17] = [
    DType::F32,
    DType::F16,
    DType::I32,
    DType::U8,
    DType::I64,
    DType::Bool,
    DType::I16,
    DType::C64,
    DType::I8,
    DType::F64,
    DType::C128,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E5M2,
];

/// Number of texts.
pub(crate) const STRING: i64 = 5;
/// Numbers of handles, which only operators create.
pub(crate) const RESOURCE: i64 = 13;
pub(crate) const VARIANT: i64 = 14;

/// Returns the dtype of a number.
pub(crate) fn of_number(number: i64) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::I32,
        3 => DType::U8,
        4 => DType::I64,
        6 => DType::Bool,
        7 => DType::I16,
        8 => DType::C64,
        9 => DType::I8,
        10 => DType::F64,
        11 => DType::C128,
        12 => DType::U64,
        15 => DType::U32,
        16 => DType::U16,
        18 => DType::BF16,
        21 => DType::F8E4M3,
        22 => DType::F8E5M2,
        _ => return None,
    })
}

/// Returns the name and the bits of integers that share bytes.
pub(crate) fn packed(number: i64) -> Option<(&'static str, u64)> {
    Some(match number {
        17 => ("int4", 4),
        19 => ("int2", 2),
        20 => ("uint4", 4),
        _ => return None,
    })
}
