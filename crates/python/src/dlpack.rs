//! DLPack: zero-copy exchange of memory with other libraries.
//!
//! A Python capsule holds a pointer to a C structure (dmlc/dlpack, `dlpack.h`): the legacy one under the name `dltensor`,
//! the versioned one under `dltensor_versioned`. The consumer of the memory renames the capsule and calls the deleter when
//! done; an unconsumed capsule frees the memory itself. All memory exported here is private to its consumer and writable,
//! since few consumers check for read-only memory.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use weighbridge::TensorEntry;
use weighbridge::engine::Private;
use weighbridge::tensor::{DType, Order};

/// Device type of host memory: `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// Name of an unconsumed legacy capsule.
const LEGACY: &CStr = c"dltensor";
/// Name of an unconsumed versioned capsule.
const VERSIONED: &CStr = c"dltensor_versioned";
/// Flag of memory that was copied for its consumer: `DLPACK_FLAG_BITMASK_IS_COPIED`.
const IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) number: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElementType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) data: *mut c_void,
    pub(crate) device: Device,
    pub(crate) ndim: i32,
    pub(crate) dtype: ElementType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Legacy {
    pub(crate) array: Array,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Versioned {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(crate) flags: u64,
    pub(crate) array: Array,
}

/// Memory to export.
#[derive(Debug)]
pub(crate) enum Owned {
    /// Bytes read from a file.
    Copied(Vec<u8>),
    /// Copy-on-write pages of a file.
    Private(Private),
}

impl Owned {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Private(private) => private.bytes_mut(),
        }
    }
}

/// Description of exported memory.
#[derive(Debug)]
pub(crate) struct Described {
    dtype: ElementType,
    /// Required alignment of the address, in bytes.
    alignment: usize,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// Data behind the pointers of an exported structure, freed with it.
struct ExportContext {
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Held because the structure points into it.
    _memory: Owned,
}

/// DLPack type code; `None` for dtypes with less than one byte per element.
fn code_of(dtype: DType) -> Option<u8> {
    Some(match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::C64 | DType::C128 => 5,
        DType::Bool => 6,
        DType::F8E4M3 => 10,
        DType::F8E4M3Fnuz => 11,
        DType::F8E5M2 => 12,
        DType::F8E5M2Fnuz => 13,
        DType::F8E8M0 => 14,
        _ => return None,
    })
}

/// Dtype for a DLPack element type; the inverse of `code_of`.
pub(crate) fn dtype_from(found: ElementType) -> Option<DType> {
    let same = |dtype: &DType| code_of(*dtype) == Some(found.code) && dtype.bits() == u32::from(found.bits);
    DType::ALL.into_iter().find(same).filter(|_| found.lanes == 1)
}

/// Describes a whole tensor, dense in `order`; with `flat` as bytes.
///
/// # Errors
/// `BufferError` if DLPack cannot represent the dtype or the shape.
pub(crate) fn describe(tensor: &TensorEntry, order: Order, flat: bool) -> PyResult<Described> {
    let dtype = tensor.dtype();
    let signed = |numbers: &[u64]| -> PyResult<Vec<i64>> {
        let number = |n: &u64| i64::try_from(*n);
        let numbers: Result<_, _> = numbers.iter().map(number).collect();
        numbers.map_err(|_| PyBufferError::new_err("dimension exceeds the 63 bits of DLPack"))
    };
    if flat {
        let dtype = ElementType { code: 1, bits: 8, lanes: 1 };
        let alignment = tensor.dtype().size().unwrap_or(1);
        return Ok(Described { dtype, alignment, shape: signed(&[tensor.bytes()])?, strides: vec![1] });
    }
    let (Some(code), Ok(bits)) = (code_of(dtype), u8::try_from(dtype.bits())) else {
        let text = format!("{}: DLPack has no dtype for sub-byte elements of type {dtype}", tensor.name());
        return Err(PyBufferError::new_err(text));
    };
    Ok(Described {
        dtype: ElementType { code, bits, lanes: 1 },
        alignment: dtype.size().unwrap_or(1),
        shape: signed(tensor.shape.dims())?,
        strides: signed(&tensor.shape.strides(order))?,
    })
}

/// Error for a request without a copy, for a tensor that the file stores in another layout.
pub(crate) fn needs_a_copy(tensor: &TensorEntry) -> PyErr {
    PyBufferError::new_err(format!(
        "{}: cannot be exported without a copy: the elements are compressed, transposed or cast",
        tensor.name()
    ))
}

/// Creates a capsule that exports `memory`.
///
/// # Errors
/// `BufferError` if the elements are not aligned to their size.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    mut memory: Owned,
    described: Described,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    // The buffer does not move when the vector or the map moves into the box.
    let data = memory.bytes_mut().as_mut_ptr();
    if !memory.bytes_mut().is_empty() && data.align_offset(described.alignment) != 0 {
        return Err(PyBufferError::new_err(
            "cannot be exported without a copy: the elements are not aligned in the file",
        ));
    }
    let ndim = i32::try_from(described.shape.len())
        .map_err(|_| PyBufferError::new_err("too many dimensions for DLPack"))?;
    let flags = if matches!(memory, Owned::Copied(_)) { IS_COPIED } else { 0 };
    let mut context =
        Box::new(ExportContext { shape: described.shape, strides: described.strides, _memory: memory });
    let array = Array {
        data: data.cast(),
        device: Device { kind: CPU, number: 0 },
        ndim,
        dtype: described.dtype,
        shape: context.shape.as_mut_ptr(),
        strides: context.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(context).cast();
    if versioned {
        let deleter = Some(free_versioned as unsafe extern "C" fn(*mut Versioned));
        let given = Box::new(Versioned { major: 1, minor: 0, context, deleter, flags, array });
        wrap(py, Box::into_raw(given).cast(), VERSIONED, free_capsule_versioned)
    } else {
        let deleter = Some(free_legacy as unsafe extern "C" fn(*mut Legacy));
        let given = Box::new(Legacy { array, context, deleter });
        wrap(py, Box::into_raw(given).cast(), LEGACY, free_capsule_legacy)
    }
}

/// Wraps `pointer` in a capsule.
fn wrap<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer is not null and valid until its deleter runs; the name is static; the GIL is held. If no capsule
    // can be made (out of memory), the data behind the pointer leaks.
    #[allow(unsafe_code)]
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor)))
    }
}

// SAFETY: called once, by the consumer or by the unconsumed capsule; the pointer comes from `capsule`, made of two
// boxes. Neither holds Python objects, so any thread may call it.
#[allow(unsafe_code)]
unsafe extern "C" fn free_legacy(given: *mut Legacy) {
    if !given.is_null() {
        unsafe {
            let given = Box::from_raw(given);
            drop(Box::from_raw(given.context.cast::<ExportContext>()));
        }
    }
}

// SAFETY: as `free_legacy`.
#[allow(unsafe_code)]
unsafe extern "C" fn free_versioned(given: *mut Versioned) {
    if !given.is_null() {
        unsafe {
            let given = Box::from_raw(given);
            drop(Box::from_raw(given.context.cast::<ExportContext>()));
        }
    }
}

// SAFETY: the interpreter calls it with a capsule made by `wrap`, with the GIL held. A consumed capsule has another
// name, and its pointer belongs to the consumer.
#[allow(unsafe_code)]
unsafe extern "C" fn free_capsule_legacy(capsule: *mut ffi::PyObject) {
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) == 1 {
            free_legacy(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast());
        }
    }
}

// SAFETY: as `free_capsule_legacy`.
#[allow(unsafe_code)]
unsafe extern "C" fn free_capsule_versioned(capsule: *mut ffi::PyObject) {
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            free_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// Pointer from a consumed capsule of another library.
pub(crate) enum Consumed {
    /// The legacy structure.
    Legacy(*mut Legacy),
    /// The versioned structure.
    Versioned(*mut Versioned),
}

/// Consumes `capsule`; `None` if it is not an unconsumed DLPack capsule.
pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> Option<Consumed> {
    let taken = [(LEGACY, c"used_dltensor"), (VERSIONED, c"used_dltensor_versioned")];
    for (name, used) in taken {
        // SAFETY: the object is alive and the GIL is held. By the protocol, a capsule of this name holds a pointer to this
        // structure. The new name is static, and is set before other code can consume the capsule.
        #[allow(unsafe_code)]
        let pointer = unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 1 {
                continue;
            }
            let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
            ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
            pointer
        };
        return Some(if name == LEGACY {
            Consumed::Legacy(pointer.cast())
        } else {
            Consumed::Versioned(pointer.cast())
        });
    }
    None
}
