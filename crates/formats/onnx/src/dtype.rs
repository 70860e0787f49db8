//! Numbers of `TensorProto.DataType`.

use weighbridge_core::tensor::DType;

/// Dtypes with their numbers in ONNX.
const TABLE: [(DType, i64); 19] = [
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
];

/// Returns the number of a dtype; `None` if ONNX lacks it.
pub(crate) fn number(dtype: DType) -> Option<i64> {
    TABLE.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

/// Returns the dtype of a number; `None` for text, packed and unknown dtypes.
pub(crate) fn from_number(number: i64) -> Option<DType> {
    TABLE.iter().find(|row| row.1 == number).map(|row| row.0)
}
