//! Numbers of `DataType`.

use weighbridge_core::tensor::DType;

/// Number of text.
pub(crate) const STRING: u64 = 7;
/// Number of handles of resources.
const RESOURCE: u64 = 20;
/// Number of values of any type.
const VARIANT: u64 = 21;

/// Names and dtypes by number. Quantized integers and integers of 4 and 2 bits have a byte or more for each element.
const TABLE: [(u64, &str, Option<DType>); 31] = [
    (1, "float32", Some(DType::F32)),
    (2, "float64", Some(DType::F64)),
    (3, "int32", Some(DType::I32)),
    (4, "uint8", Some(DType::U8)),
    (5, "int16", Some(DType::I16)),
    (6, "int8", Some(DType::I8)),
    (STRING, "string", None),
    (8, "complex64", Some(DType::C64)),
    (9, "int64", Some(DType::I64)),
    (10, "bool", Some(DType::Bool)),
    (11, "qint8", Some(DType::I8)),
    (12, "quint8", Some(DType::U8)),
    (13, "qint32", Some(DType::I32)),
    (14, "bfloat16", Some(DType::BF16)),
    (15, "qint16", Some(DType::I16)),
    (16, "quint16", Some(DType::U16)),
    (17, "uint16", Some(DType::U16)),
    (18, "complex128", Some(DType::C128)),
    (19, "float16", Some(DType::F16)),
    (RESOURCE, "resource", None),
    (VARIANT, "variant", None),
    (22, "uint32", Some(DType::U32)),
    (23, "uint64", Some(DType::U64)),
    (24, "float8_e5m2", Some(DType::F8E5M2)),
    (25, "float8_e4m3fn", Some(DType::F8E4M3)),
    (26, "float8_e4m3fnuz", Some(DType::F8E4M3Fnuz)),
    (28, "float8_e5m2fnuz", Some(DType::F8E5M2Fnuz)),
    (29, "int4", Some(DType::I8)),
    (30, "uint4", Some(DType::U8)),
    (31, "int2", Some(DType::I8)),
    (32, "uint2", Some(DType::U8)),
];

/// Dtypes that TensorFlow has under their own number.
pub(crate) const DTYPES: [DType; 19] = [
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::U64,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F8E4M3Fnuz,
    DType::F8E5M2Fnuz,
];

/// Returns the dtype of the elements; `None` for text, handles and unknown numbers.
pub(crate) fn of_number(number: u64) -> Option<DType> {
    TABLE.iter().find(|row| row.0 == number).and_then(|row| row.2)
}

/// Returns the dtype of the elements of a name.
pub(crate) fn of_name(name: &str) -> Option<DType> {
    TABLE.iter().find(|row| row.1 == name).and_then(|row| row.2)
}

/// Returns the name in TensorFlow.
pub(crate) fn name(number: u64) -> Option<&'static str> {
    TABLE.iter().find(|row| row.0 == number).map(|row| row.1)
}

/// Returns the name in TensorFlow of a dtype whose elements are listed as other integers: quantized, and of 4 and 2 bits.
pub(crate) fn other_name(number: u64) -> Option<&'static str> {
    of_number(number).filter(|dtype| self::number(*dtype) != Some(number)).and(name(number))
}

/// Returns the number of a dtype; `None` if TensorFlow lacks it.
pub(crate) fn number(dtype: DType) -> Option<u64> {
    let is_own = |row: &&(u64, &str, Option<DType>)| {
        row.2 == Some(dtype)
            && !row.1.starts_with('q')
            && !row.1.ends_with("int4")
            && !row.1.ends_with("int2")
    };
    TABLE.iter().find(is_own).map(|row| row.0)
}

/// Returns the number of a name, if its elements are stored as `dtype`.
pub(crate) fn number_of_name(name: &str, dtype: DType) -> Option<u64> {
    TABLE.iter().find(|row| row.1 == name && row.2 == Some(dtype)).map(|row| row.0)
}

/// Returns the reason for which tensors of a number are not listed.
pub(crate) fn skipped(number: u64) -> Option<String> {
    match number {
        STRING => Some("holds text, which is not read".to_owned()),
        RESOURCE => Some("is a handle of a resource".to_owned()),
        VARIANT => Some("holds a value of a type of its own".to_owned()),
        number if of_number(number).is_some() => None,
        number => Some(format!("has the unknown dtype {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_dtypes_match() {
        for dtype in DTYPES {
            let number = number(dtype).unwrap();
            assert_eq!(of_number(number), Some(dtype));
            assert_eq!(other_name(number), None);
        }
        assert_eq!((other_name(11), number_of_name("qint8", DType::I8)), (Some("qint8"), Some(11)));
        assert_eq!((other_name(29), number_of_name("int4", DType::F32)), (Some("int4"), None));
        assert!(skipped(STRING).is_some() && skipped(99).is_some() && skipped(1).is_none());
    }
}
