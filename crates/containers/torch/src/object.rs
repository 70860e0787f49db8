//! Objects of which the pickle says all that they are: scalars of numpy, and objects of classes that keep what they are given.

use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::{DType, Endian};
use weighbridge_pickle::{Graph, ImportVerdict, NdArray, ObjectId, ReduceKind, allowed, scalar};

/// The key of the class in the map of an object.
pub(super) const CLASS: &str = "@class";
/// The key of a type that is an argument.
pub(super) const GLOBAL: &str = "@global";
/// Packages whose objects hold numbers of their own, or make tensors of plain ones: such an object is more than its parts.
const OF_NUMBERS: [&str; 8] =
    ["torch", "numpy", "ml_dtypes", "paddle", "tensorflow", "jax", "jaxlib", "torch_xla"];

/// The number that a scalar of numpy is, to the bit; `None` for anything else, and for what no value can be: complex
/// numbers, dates, texts.
pub(super) fn number(graph: &Graph, id: ObjectId) -> Option<Value> {
    // What contradicts itself is no number; the tensors are read all the same.
    let NdArray { dtype, endian, payload, .. } = scalar(graph, id).ok()??;
    let mut bytes = payload?.short?.into_vec();
    if endian == Endian::Big {
        bytes.reverse();
    }
    let first = *bytes.first()?;
    Some(match dtype? {
        DType::Bool => Value::Bool(first != 0),
        DType::U8 => Value::I64(first.into()),
        DType::I8 => Value::I64(i8::from_le_bytes([first]).into()),
        DType::U16 => Value::I64(u16::from_le_bytes(of(&bytes)?).into()),
        DType::I16 => Value::I64(i16::from_le_bytes(of(&bytes)?).into()),
        DType::U32 => Value::I64(u32::from_le_bytes(of(&bytes)?).into()),
        DType::I32 => Value::I64(i32::from_le_bytes(of(&bytes)?).into()),
        DType::I64 => Value::I64(i64::from_le_bytes(of(&bytes)?)),
        DType::U64 => {
            let n = u64::from_le_bytes(of(&bytes)?);
            i64::try_from(n).map_or(Value::U64(n), Value::I64)
        }
        DType::F16 => {
            Value::F32(weighbridge_core::tensor::f16::from_le_bytes(of(&bytes)?).to_f32().to_bits())
        }
        DType::BF16 => {
            Value::F32(weighbridge_core::tensor::bf16::from_le_bytes(of(&bytes)?).to_f32().to_bits())
        }
        DType::F32 => Value::F32(u32::from_le_bytes(of(&bytes)?)),
        DType::F64 => Value::F64(u64::from_le_bytes(of(&bytes)?)),
        _ => return None,
    })
}

fn of<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// True for a call that gives an object which is nothing but what it is given: an object of a class, made by the
/// class alone, or one of the types that are known to keep what they are given. A function may make anything.
pub(super) fn is_plain(how: ReduceKind, (module, name): (&str, &str)) -> bool {
    let package = module.split('.').next().unwrap_or(module);
    if OF_NUMBERS.contains(&package) {
        return false;
    }
    match (how, allowed(module, name)) {
        (_, ImportVerdict::Allowed(_)) => {
            !matches!((module, name), ("copyreg" | "copy_reg", _) | ("_codecs", _))
        }
        (ReduceKind::NewObj | ReduceKind::NewObjEx, ImportVerdict::Unknown) => true,
        _ => false,
    }
}

/// True for a plain type of Python, such as a `defaultdict` is given.
pub(super) fn is_type(module: &str, name: &str) -> bool {
    matches!(module, "builtins" | "__builtin__" | "collections")
        && matches!(allowed(module, name), ImportVerdict::Allowed(_))
}
