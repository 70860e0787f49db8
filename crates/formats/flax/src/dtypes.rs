//! Names of dtypes in numpy and `ml_dtypes`.

use weighbridge_core::tensor::DType;

/// Dtypes with the names that numpy has for them.
const NAMES: [(DType, &str); 20] = [
    (DType::Bool, "bool"),
    (DType::U8, "uint8"),
    (DType::I8, "int8"),
    (DType::U16, "uint16"),
    (DType::I16, "int16"),
    (DType::U32, "uint32"),
    (DType::I32, "int32"),
    (DType::U64, "uint64"),
    (DType::I64, "int64"),
    (DType::F16, "float16"),
    (DType::BF16, "bfloat16"),
    (DType::F32, "float32"),
    (DType::F64, "float64"),
    (DType::C64, "complex64"),
    (DType::C128, "complex128"),
    (DType::F8E4M3, "float8_e4m3fn"),
    (DType::F8E5M2, "float8_e5m2"),
    (DType::F8E8M0, "float8_e8m0fnu"),
    (DType::F8E4M3Fnuz, "float8_e4m3fnuz"),
    (DType::F8E5M2Fnuz, "float8_e5m2fnuz"),
];

/// Dtypes of [`NAMES`].
pub(crate) const DTYPES: [DType; 20] = {
    let mut types = [DType::Bool; 20];
    let mut i = 0;
    while i < types.len() {
        types[i] = NAMES[i].0;
        i += 1;
    }
    types
};

/// Returns the dtype of that name.
pub(crate) fn of_name(name: &str) -> Option<DType> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype)
}

/// Returns the name of a dtype; `None` if numpy stores its elements differently.
pub(crate) fn name_of(dtype: DType) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == dtype).map(|(_, name)| *name)
}
