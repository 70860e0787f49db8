//! Objects that the pickle describes completely: numpy scalars, and objects of classes that only store their arguments.

use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::{DType, Endian};
use weighbridge_pickle::{Graph, ImportVerdict, NdArray, ObjectId, ReduceKind, allowed, scalar};

/// Key of the class in the map of an object.
pub(super) const CLASS: &str = "@class";
/// Key of a type passed as an argument.
pub(super) const GLOBAL: &str = "@global";
/// Packages whose objects hold data beyond their arguments, or make tensors from plain numbers.
const TENSOR_PACKAGES: [&str; 8] =
    ["torch", "numpy", "ml_dtypes", "paddle", "tensorflow", "jax", "jaxlib", "torch_xla"];

/// Exact value of a numpy scalar; `None` for other objects, and for scalars without a matching [`Value`]: complex numbers,
/// dates, texts.
pub(super) fn number(graph: &Graph, id: ObjectId) -> Option<Value> {
    // A malformed scalar is not a number; the tensors are still read.
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

/// Returns true for a call whose result holds only its arguments: an object made by its class alone, or by an allowed type that
/// stores its arguments. A function may return anything.
pub(super) fn is_plain(how: ReduceKind, (module, name): (&str, &str)) -> bool {
    let package = module.split('.').next().unwrap_or(module);
    if TENSOR_PACKAGES.contains(&package) {
        return false;
    }
    match (how, allowed(module, name)) {
        (_, ImportVerdict::Allowed(_)) => {
            !matches!((module, name), ("copyreg" | "copy_reg", _) | ("_codecs", _))
        }
        (ReduceKind::NewObj | ReduceKind::NewObjEx, ImportVerdict::Unknown) => true,
        // Its classes in checkpoints hold numbers.
        (ReduceKind::NewObj | ReduceKind::NewObjEx, ImportVerdict::Pattern(_)) => package == "deepspeed",
        _ => false,
    }
}

/// Returns true for a built-in type of Python, such as the factory of a `defaultdict`.
pub(super) fn is_type(module: &str, name: &str) -> bool {
    matches!(module, "builtins" | "__builtin__" | "collections")
        && matches!(allowed(module, name), ImportVerdict::Allowed(_))
}
