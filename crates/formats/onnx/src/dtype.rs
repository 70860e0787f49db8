//! Numbers of `TensorProto.DataType`.

use weighbridge_core::tensor::DType;

/// Dtypes with their numbers in ONNX.
const TABLE: [(DType, i64); 21] = [
    (DType::F32, 1),
    (DType::U8, 2),
    (DType::I8, 3),
    (DType::U16, 4),
    (DType::I16, 5),
    (DType::I32, 6),
    (DType::I64, 7),
    (DType::Bool, 9),
    (DType::F16, 10),
    (DType::F64, 11),
    (DType::U32, 12),
    (DType::U64, 13),
    (DType::C64, 14),
    (DType::C128, 15),
    (DType::BF16, 16),
    (DType::F8E4M3, 17),
    (DType::F8E4M3Fnuz, 18),
    (DType::F8E5M2, 19),
    (DType::F8E5M2Fnuz, 20),
    (DType::F4, 23),
    (DType::F8E8M0, 24),
];

/// Names of the numbers, in order.
const NAMES: [&str; 27] = [
    "UNDEFINED",
    "FLOAT",
    "UINT8",
    "INT8",
    "UINT16",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "BOOL",
    "FLOAT16",
    "DOUBLE",
    "UINT32",
    "UINT64",
    "COMPLEX64",
    "COMPLEX128",
    "BFLOAT16",
    "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ",
    "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ",
    "UINT4",
    "INT4",
    "FLOAT4E2M1",
    "FLOAT8E8M0",
    "UINT2",
    "INT2",
];

/// Number of text.
pub(crate) const STRING: i64 = 8;

/// Returns the number of a dtype; `None` if ONNX lacks it.
pub(crate) fn number(dtype: DType) -> Option<i64> {
    TABLE.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

/// Returns the dtype of a number; `None` for text, packed integers and unknown dtypes.
pub(crate) fn from_number(number: i64) -> Option<DType> {
    TABLE.iter().find(|row| row.1 == number).map(|row| row.0)
}

/// Returns the name of a number in ONNX.
pub(crate) fn name(number: i64) -> Option<&'static str> {
    NAMES.get(usize::try_from(number).ok()?).copied()
}

/// Returns the bits of an element of a dtype whose elements share bytes.
pub(crate) fn packed_bits(number: i64) -> Option<u64> {
    match number {
        21..=23 => Some(4),
        25 | 26 => Some(2),
        _ => None,
    }
}

/// Returns the number of the typed field for the elements of a dtype.
pub(crate) fn typed_field(number: i64) -> u32 {
    match number {
        1 | 14 => 4,
        11 | 15 => 10,
        STRING => 6,
        7 => 7,
        12 | 13 => 11,
        _ => 5,
    }
}
