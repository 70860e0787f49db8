//! Storages: byte ranges that tensors view.

use std::sync::Arc;
use weighbridge_core::checksum::Check;
use weighbridge_core::tensor::DType;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Graph, Object, ObjectId};

/// Byte range of a storage.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    /// Source of the bytes.
    pub(super) source: SourceRef,
    /// Offset of the first byte in `source`.
    pub(super) offset: u64,
    /// Number of bytes.
    pub(super) len: u64,
    /// Checksum of the whole storage, if the file has one.
    pub(super) check: Option<Arc<Check>>,
}

/// Element class of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Elements of a type.
    Of(DType),
    /// Untyped bytes; the tensor has the dtype.
    Untyped,
    /// Elements of an unsupported type.
    Other,
}

impl Class {
    /// Returns the class of an imported storage name; `None` for any other object.
    pub(super) fn of(graph: &Graph, id: ObjectId) -> Option<Self> {
        let (module, name) = graph.global(id)?;
        if !matches!(module, "torch" | "torch.cuda" | "torch.storage") {
            return None;
        }
        Some(match name {
            "FloatStorage" => Self::Of(DType::F32),
            "DoubleStorage" => Self::Of(DType::F64),
            "HalfStorage" => Self::Of(DType::F16),
            "BFloat16Storage" => Self::Of(DType::BF16),
            "LongStorage" => Self::Of(DType::I64),
            "IntStorage" => Self::Of(DType::I32),
            "ShortStorage" => Self::Of(DType::I16),
            "CharStorage" => Self::Of(DType::I8),
            "ByteStorage" => Self::Of(DType::U8),
            "BoolStorage" => Self::Of(DType::Bool),
            "ComplexFloatStorage" => Self::Of(DType::C64),
            "ComplexDoubleStorage" => Self::Of(DType::C128),
            "UntypedStorage" => Self::Untyped,
            other if other.ends_with("Storage") => Self::Other,
            _ => return None,
        })
    }

    /// Bytes per element, as counted by the legacy form.
    pub(super) fn element_size(self, name: &str) -> Option<u64> {
        match (self, name) {
            (Self::Of(dtype), _) => dtype.size().map(|size| size as u64),
            (Self::Untyped, _) => Some(1),
            (Self::Other, "QInt8Storage" | "QUInt8Storage" | "QUInt4x2Storage" | "QUInt2x4Storage") => {
                Some(1)
            }
            (Self::Other, "QInt32Storage") => Some(4),
            (Self::Other, _) => None,
        }
    }

    /// Returns the typed storage class of a dtype; `None` for dtypes of untyped storages.
    pub(super) fn name_for(dtype: DType) -> Option<&'static str> {
        Some(match dtype {
            DType::F32 => "FloatStorage",
            DType::F64 => "DoubleStorage",
            DType::F16 => "HalfStorage",
            DType::BF16 => "BFloat16Storage",
            DType::I64 => "LongStorage",
            DType::I32 => "IntStorage",
            DType::I16 => "ShortStorage",
            DType::I8 => "CharStorage",
            DType::U8 => "ByteStorage",
            DType::Bool => "BoolStorage",
            DType::C64 => "ComplexFloatStorage",
            DType::C128 => "ComplexDoubleStorage",
            _ => return None,
        })
    }
}

/// Returns torch's name of a dtype; `None` for dtypes that torch lacks.
pub fn torch_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::U16 => "uint16",
        DType::I16 => "int16",
        DType::U32 => "uint32",
        DType::I32 => "int32",
        DType::U64 => "uint64",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
        DType::F8E4M3 => "float8_e4m3fn",
        DType::F8E5M2 => "float8_e5m2",
        DType::F8E8M0 => "float8_e8m0fnu",
        DType::F8E4M3Fnuz => "float8_e4m3fnuz",
        DType::F8E5M2Fnuz => "float8_e5m2fnuz",
        _ => return None,
    })
}

/// Returns the dtype that an import from `torch` names.
pub fn dtype_of(graph: &Graph, id: ObjectId) -> Option<DType> {
    let ("torch", name) = graph.global(id)? else { return None };
    DType::ALL.into_iter().find(|&dtype| torch_name(dtype) == Some(name))
}

/// Reference to a storage in a persistent id.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reference<'a> {
    /// Element class.
    pub(super) class: Class,
    /// Name of the storage class.
    pub(super) class_name: &'a str,
    /// Key of the storage.
    pub(super) key: &'a str,
    /// Number of elements; with a view, of the whole storage.
    pub(super) elements: u64,
    /// First element and number of elements of a view.
    pub(super) view: Option<(u64, u64)>,
}

/// Reads a storage reference; `None` for any other object.
pub(super) fn reference<'a>(graph: &'a Graph, object: &Object) -> Option<Reference<'a>> {
    let Object::PersistentId(id) = object else { return None };
    let (&[tag, class, key, _location, elements], rest) = graph.tuple(*id)?.split_first_chunk::<5>()?;
    if graph.text(tag)? != "storage" {
        return None;
    }
    let number = |id| u64::try_from(graph.int(id)?).ok();
    let view = match rest {
        [] | [ObjectId::NONE] => None,
        &[view] => {
            let &[_, first, count] = graph.tuple(view)? else { return None };
            Some((number(first)?, number(count)?))
        }
        _ => return None,
    };
    Some(Reference {
        class: Class::of(graph, class)?,
        class_name: graph.global(class)?.1,
        key: graph.text(key)?,
        elements: number(elements)?,
        view,
    })
}
