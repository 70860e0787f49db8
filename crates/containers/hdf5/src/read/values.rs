//! Conversion of elements to values.

use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::{DType, Element, Endian};

/// Returns a text, or bytes where it is not UTF-8.
pub(super) fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

/// Returns a number; `None` for types without a [`Value`], such as complex numbers.
pub(crate) fn number(dtype: DType, endian: Endian, bytes: &[u8]) -> Option<Value> {
    let mut wide = [0; 16];
    let little = wide.get_mut(..bytes.len())?;
    little.copy_from_slice(bytes);
    if endian == Endian::Big {
        Endian::swap_bytes(little, dtype.swap_unit());
    }
    Some(match dtype.element_at(little, 0)? {
        Element::Bool(truth) => Value::Bool(truth),
        Element::Int(n) => match dtype {
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Value::U64(u64::try_from(n).ok()?),
            _ => Value::I64(i64::try_from(n).ok()?),
        },
        // The bits of an f64 are kept, including NaN payloads.
        Element::Float(_) if dtype == DType::F64 => Value::F64(u64::from_le_bytes(little.try_into().ok()?)),
        Element::Float(x) => Value::F64(x.to_bits()),
        Element::Complex(..) => return None,
    })
}
