//! Numbers of element types in `VarType.Type` (specification sections 3 and 15).

use weighbridge_core::tensor::DType;

/// Element types: number, name in Paddle, name in PIR, and type.
const TABLE: &[(i32, &str, &str, DType)] = &[
    (0, "BOOL", "t_bool", DType::Bool),
    (1, "INT16", "t_i16", DType::I16),
    (2, "INT32", "t_i32", DType::I32),
    (3, "INT64", "t_i64", DType::I64),
    (4, "FP16", "t_f16", DType::F16),
    (5, "FP32", "t_f32", DType::F32),
    (6, "FP64", "t_f64", DType::F64),
    (19, "SIZE_T", "t_index", DType::U64),
    (20, "UINT8", "t_ui8", DType::U8),
    (21, "INT8", "t_i8", DType::I8),
    (22, "BF16", "t_bf16", DType::BF16),
    (23, "COMPLEX64", "t_c64", DType::C64),
    (24, "COMPLEX128", "t_c128", DType::C128),
    (32, "FP8_E4M3FN", "t_f8e4m3fn", DType::F8E4M3),
    (33, "FP8_E5M2", "t_f8e5m2", DType::F8E5M2),
    (36, "UINT16", "t_ui16", DType::U16),
    (37, "UINT32", "t_ui32", DType::U32),
    (38, "UINT64", "t_ui64", DType::U64),
];

/// Values of the same enumeration that are not element types.
const OTHERS: &[(i32, &str)] = &[
    (7, "LOD_TENSOR"),
    (8, "SELECTED_ROWS"),
    (9, "FEED_MINIBATCH"),
    (10, "FETCH_LIST"),
    (11, "STEP_SCOPES"),
    (12, "LOD_RANK_TABLE"),
    (13, "LOD_TENSOR_ARRAY"),
    (14, "PLACE_LIST"),
    (15, "READER"),
    (16, "FETCH_VAR_LIST"),
    (17, "RAW"),
    (18, "TUPLE"),
    (25, "STRING"),
    (26, "STRINGS"),
    (27, "VOCAB"),
    (28, "FEED_LIST"),
    (29, "PSTRING"),
    (30, "SPARSE_COO"),
    (31, "SPARSE_CSR"),
];

/// Element types supported in tensor streams.
pub(super) const ALL: &[DType] = &[
    DType::Bool,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::U8,
    DType::I8,
    DType::BF16,
    DType::C64,
    DType::C128,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::U16,
    DType::U32,
    DType::U64,
];

/// Returns the element type with a number.
pub(super) fn from_number(number: i32) -> Option<DType> {
    TABLE.iter().find(|row| row.0 == number).map(|row| row.3)
}

/// Returns the number written for an element type: UINT64 for `u64`, not SIZE_T.
pub(super) fn number(dtype: DType) -> Option<i32> {
    TABLE.iter().rev().find(|row| row.3 == dtype).map(|row| row.0)
}

/// Returns Paddle's name for any number of the enumeration.
pub(super) fn word(number: i32) -> Option<&'static str> {
    let element = TABLE.iter().find(|row| row.0 == number).map(|row| row.1);
    element.or_else(|| OTHERS.iter().find(|row| row.0 == number).map(|row| row.1))
}

/// Returns the element type of a PIR name such as `t_f32`, with or without dialect.
pub(super) fn from_pir(word: &str) -> Option<DType> {
    let word = word.rsplit_once('.').map_or(word, |(_, word)| word);
    TABLE.iter().find(|row| row.2 == word).map(|row| row.3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_element_type_numbers() {
        for &dtype in ALL {
            assert_eq!(from_number(number(dtype).unwrap()), Some(dtype));
        }
        assert_eq!(number(DType::U64), Some(38));
        assert_eq!(from_number(7), None);
        assert_eq!(word(7), Some("LOD_TENSOR"));
        assert_eq!(word(99), None);
        assert_eq!(from_pir("0.t_bf16"), Some(DType::BF16));
        assert_eq!(from_pir("t_f8e5m2"), Some(DType::F8E5M2));
    }
}
