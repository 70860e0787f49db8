//! DLPack: memory that is handed to another library, and back, without a copy.
//!
//! A capsule of Python holds a pointer to a structure that C describes (dmlc/dlpack, `dlpack.h`): the old form under the
//! name `dltensor`, the one with a version under `dltensor_versioned`. Who takes the memory renames the capsule
//! and calls the deleter when done; a capsule that nobody took frees it itself. All memory that is given away here is
//! private to the one who takes it and may be written to, since few takers ask.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use weighbridge::TensorEntry;
use weighbridge::engine::Private;
use weighbridge::tensor::{DType, Order};

/// The memory of the processor, as `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// The name of a capsule of the old form that nobody took.
const LEGACY: &CStr = c"dltensor";
/// The name of one of the form with a version that nobody took.
const VERSIONED: &CStr = c"dltensor_versioned";
/// The flag of memory that was copied for the one who takes it.
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

/// Memory to give away.
#[derive(Debug)]
pub(crate) enum Owned {
    /// Bytes that were read.
    Copied(Vec<u8>),
    /// Pages of a file, each copied when it is written to.
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

/// What a taker is told of the memory.
#[derive(Debug)]
pub(crate) struct Described {
    dtype: ElementType,
    /// Bytes to whose multiple the address must be.
    alignment: usize,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// What the structure points to, freed with it.
struct Kept {
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Dropped with the rest: the structure points into it.
    _memory: Owned,
}

/// The code of each type; `None` for those whose elements share bytes.
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

/// The type that `code` and `bits` mean; the inverse of what is given away.
pub(crate) fn dtype_from(found: ElementType) -> Option<DType> {
    let same = |dtype: &DType| code_of(*dtype) == Some(found.code) && dtype.bits() == u32::from(found.bits);
    DType::ALL.into_iter().find(same).filter(|_| found.lanes == 1)
}

/// Describes all of a tensor, dense in `order`; with `flat` as bytes.
///
/// # Errors
/// `BufferError` where DLPack has no such type or no such extents.
pub(crate) fn describe(tensor: &TensorEntry, order: Order, flat: bool) -> PyResult<Described> {
    let dtype = tensor.dtype();
    let signed = |numbers: &[u64]| -> PyResult<Vec<i64>> {
        let number = |n: &u64| i64::try_from(*n);
        let numbers: Result<_, _> = numbers.iter().map(number).collect();
        numbers.map_err(|_| PyBufferError::new_err("DLPack has no such large extents"))
    };
    if flat {
        let dtype = ElementType { code: 1, bits: 8, lanes: 1 };
        let alignment = tensor.dtype().size().unwrap_or(1);
        return Ok(Described { dtype, alignment, shape: signed(&[tensor.bytes()])?, strides: vec![1] });
    }
    let (Some(code), Ok(bits)) = (code_of(dtype), u8::try_from(dtype.bits())) else {
        let text = format!(
            "{}: elements of type {dtype} share bytes, which no taker of DLPack knows",
            tensor.name()
        );
        return Err(PyBufferError::new_err(text));
    };
    Ok(Described {
        dtype: ElementType { code, bits, lanes: 1 },
        alignment: dtype.size().unwrap_or(1),
        shape: signed(tensor.shape.dims())?,
        strides: signed(&tensor.shape.strides(order))?,
    })
}

/// The error where elements were asked for as they stand in the file, and do not stand there so.
pub(crate) fn needs_a_copy(tensor: &TensorEntry) -> PyErr {
    PyBufferError::new_err(format!(
        "{}: the elements are packed, turned or of another type in the file, so that they cannot be given away without a copy",
        tensor.name()
    ))
}

/// A capsule that gives `memory` away.
///
/// # Errors
/// `BufferError` where elements do not stand at a multiple of their size.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    mut memory: Owned,
    described: Described,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    // The heap does not move when the vector or the map is moved into its box.
    let data = memory.bytes_mut().as_mut_ptr();
    if !memory.bytes_mut().is_empty() && data.align_offset(described.alignment) != 0 {
        return Err(PyBufferError::new_err(
            "the elements stand in the file at an odd place, so that they cannot be given away without a copy",
        ));
    }
    let ndim = i32::try_from(described.shape.len())
        .map_err(|_| PyBufferError::new_err("DLPack has no so many dimensions"))?;
    let flags = if matches!(memory, Owned::Copied(_)) { IS_COPIED } else { 0 };
    let mut kept = Box::new(Kept { shape: described.shape, strides: described.strides, _memory: memory });
    let array = Array {
        data: data.cast(),
        device: Device { kind: CPU, number: 0 },
        ndim,
        dtype: described.dtype,
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(kept).cast();
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

/// A capsule around `pointer`.
fn wrap<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer is not null and valid until its deleter runs; the name lives as long as the process; the
    // interpreter's lock is held. Where no capsule can be made, which is for want of memory only, what the pointer
    // names is not freed, and nobody else has it.
    #[allow(unsafe_code)]
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor)))
    }
}

// SAFETY: called once, by whoever took the memory, or by the capsule that nobody took; the pointer is one that
// `capsule` made, from two boxes. Neither holds anything of Python, so that any thread may call it.
#[allow(unsafe_code)]
unsafe extern "C" fn free_legacy(given: *mut Legacy) {
    if !given.is_null() {
        unsafe {
            let given = Box::from_raw(given);
            drop(Box::from_raw(given.context.cast::<Kept>()));
        }
    }
}

// SAFETY: as `free_legacy`.
#[allow(unsafe_code)]
unsafe extern "C" fn free_versioned(given: *mut Versioned) {
    if !given.is_null() {
        unsafe {
            let given = Box::from_raw(given);
            drop(Box::from_raw(given.context.cast::<Kept>()));
        }
    }
}

// SAFETY: the interpreter calls it with a capsule that `wrap` made, and holds its lock. One that was taken has
// another name, and its pointer is the taker's.
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

/// The pointer of a capsule that is taken over from another library, which is named anew so that it does not free it.
pub(crate) enum Given {
    /// The old form.
    Legacy(*mut Legacy),
    /// The form with a version.
    Versioned(*mut Versioned),
}

/// Takes over what `capsule` holds; `None` where it is no capsule of DLPack that nobody took.
pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> Option<Given> {
    let taken = [(LEGACY, c"used_dltensor"), (VERSIONED, c"used_dltensor_versioned")];
    for (name, used) in taken {
        // SAFETY: the object is alive and the lock is held. A capsule of this name holds a pointer to this structure: that
        // is the protocol. It is named anew, with a name that lives as long as the process, before anybody else sees it.
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
            Given::Legacy(pointer.cast())
        } else {
            Given::Versioned(pointer.cast())
        });
    }
    None
}
