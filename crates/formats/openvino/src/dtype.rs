//! Dtypes by their names in the network.

use weighbridge_core::tensor::DType;

/// Dtypes of tensors.
pub(crate) const DTYPES: [DType; 17] = [
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
    DType::F8E8M0,
    DType::F4,
];

/// Returns the dtype of a name.
pub(crate) fn of_name(name: &str) -> Option<DType> {
    Some(match name {
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "f64" => DType::F64,
        "i8" => DType::I8,
        "i16" => DType::I16,
        "i32" => DType::I32,
        "i64" => DType::I64,
        "u8" => DType::U8,
        "u16" => DType::U16,
        "u32" => DType::U32,
        "u64" => DType::U64,
        "boolean" => DType::Bool,
        "f8e4m3" => DType::F8E4M3,
        "f8e5m2" => DType::F8E5M2,
        "f8e8m0" => DType::F8E8M0,
        "f4e2m1" => DType::F4,
        _ => return None,
    })
}

/// Returns the bits of elements that share bytes, of a dtype without a name here.
pub(crate) fn packed_bits(name: &str) -> Option<u64> {
    Some(match name {
        "u1" => 1,
        "u2" => 2,
        "i4" | "u4" | "nf4" => 4,
        _ => return None,
    })
}

/// Returns the dtype of a precision of a port, in lower case.
pub(crate) fn of_precision(name: &str) -> Option<DType> {
    of_name(match name {
        "fp32" => "f32",
        "fp16" => "f16",
        "fp64" => "f64",
        "bool" => "boolean",
        other => other,
    })
}
