//! Python arrays as sources of bytes for writing, without a copy.

use crate::dlpack::{CPU, Consumed, dtype_from, take};
use crate::entry::{Entry, dtype_of, order_of};
use crate::errors::OrRaise;
use crate::values;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_void;
use weighbridge::source::{MemorySource, Source, SourceRef, check_range};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Error, Result, TensorEntry};

/// Bytes owned by a Python object, or exported by another library.
#[derive(Debug)]
struct Borrowed {
    label: String,
    address: usize,
    len: usize,
    /// Keeps the bytes alive.
    _owner: Owner,
}

/// Owner of the bytes.
#[derive(Debug)]
enum Owner {
    /// Reference to a Python array.
    Object(#[allow(dead_code)] Py<PyAny>),
    /// Memory exported by another library.
    Taken(#[allow(dead_code)] Taken),
}

/// A consumed DLPack structure, passed to its deleter on drop. The flag is true for the versioned structure.
#[derive(Debug)]
struct Taken(usize, bool);

impl Taken {
    fn new(consumed: &Consumed) -> Self {
        match consumed {
            Consumed::Legacy(pointer) => Self(*pointer as usize, false),
            Consumed::Versioned(pointer) => Self(*pointer as usize, true),
        }
    }

    /// Dtype, shape, strides and address of the structure; `None` for device memory, an unsupported dtype or a later
    /// version.
    fn described(&self) -> Option<ArrayInfo> {
        // SAFETY: the pointer came from a capsule of that name, so it points to such a structure, valid until the call of
        // the deleter in `drop`.
        #[allow(unsafe_code)]
        let array = unsafe {
            if self.1 {
                let given = self.0 as *const crate::dlpack::Versioned;
                if (*given).major != 1 {
                    return None;
                }
                &(*given).array
            } else {
                &(*(self.0 as *const crate::dlpack::Legacy)).array
            }
        };
        let ndim = usize::try_from(array.ndim).ok().filter(|_| array.device.kind == CPU)?;
        let list = |pointer: *const i64| -> Option<Vec<u64>> {
            if pointer.is_null() || ndim == 0 {
                return None;
            }
            // SAFETY: shape and strides have `ndim` elements.
            #[allow(unsafe_code)]
            let numbers = unsafe { std::slice::from_raw_parts(pointer, ndim) };
            numbers.iter().map(|n| u64::try_from(*n).ok()).collect()
        };
        let shape = if ndim == 0 { Vec::new() } else { list(array.shape)? };
        let strides = if array.strides.is_null() || ndim == 0 { None } else { Some(list(array.strides)?) };
        let address =
            (array.data as *const c_void as usize).checked_add(usize::try_from(array.byte_offset).ok()?)?;
        Some(ArrayInfo { dtype: dtype_from(array.dtype)?, shape: Shape::new(shape), strides, address })
    }
}

/// Description of the array in a DLPack structure.
struct ArrayInfo {
    dtype: DType,
    shape: Shape,
    strides: Option<Vec<u64>>,
    address: usize,
}

impl ArrayInfo {
    /// Storage order; `None` if the elements are not dense.
    fn order(&self) -> Option<Order> {
        let Some(strides) = &self.strides else { return Some(Order::Row) };
        // The stride of a dimension of size 0 or 1 is irrelevant.
        let dense = |order: &Order| {
            let own = self.shape.strides(*order);
            let pairs = strides.iter().zip(&own).zip(self.shape.dims());
            self.shape.elements() == Some(0) || pairs.into_iter().all(|((a, b), dim)| *dim <= 1 || a == b)
        };
        [Order::Row, Order::Column].into_iter().find(dense)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the structure is valid until the call of its deleter, which happens only here. Deleters may be called from
        // any thread: those that need the GIL acquire it.
        #[allow(unsafe_code)]
        unsafe {
            if self.1 {
                let given = self.0 as *mut crate::dlpack::Versioned;
                if let Some(deleter) = (*given).deleter {
                    deleter(given);
                }
            } else {
                let given = self.0 as *mut crate::dlpack::Legacy;
                if let Some(deleter) = (*given).deleter {
                    deleter(given);
                }
            }
        }
    }
}

impl Source for Borrowed {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let start = usize::try_from(offset)
            .map_err(|_| Error::usage("outside", "offset beyond the address space"))?;
        let from = (self.address + start) as *const u8;
        // SAFETY: the range is within the bytes of the owner, and the owner is kept alive. No reference to the bytes is made:
        // another Python thread may write into the array meanwhile. The result is then a mixture of old and new bytes, as
        // with any numpy function that releases the GIL.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::copy(from, buffer.as_mut_ptr(), buffer.len());
        }
        Ok(())
    }

    fn label(&self) -> &str {
        &self.label
    }
}

/// Makes the tensor stored at the start of `source`.
fn entry(
    path: &Bound<'_, PyAny>,
    dtype: DType,
    shape: Shape,
    source: SourceRef,
    order: Order,
) -> PyResult<Entry> {
    let encoding = if order == Order::Row { Encoding::ROW } else { Encoding::COLUMN };
    let tensor = TensorEntry::dense(values::to_path(path)?, dtype, shape, &source, 0, encoding);
    Ok(Entry::alone(tensor.or_raise(path.py())?))
}

/// Makes a tensor of a numpy array, without a copy. The elements must be dense in `order` and little-endian. With `shape` the
/// array holds the bytes of a tensor of this shape.
#[pyfunction]
#[pyo3(signature = (path, dtype, order, array, shape=None))]
pub(crate) fn entry_of_array(
    path: &Bound<'_, PyAny>,
    dtype: &str,
    order: &str,
    array: &Bound<'_, PyAny>,
    shape: Option<Vec<u64>>,
) -> PyResult<Entry> {
    let py = path.py();
    let (dtype, order) = (dtype_of(dtype).or_raise(py)?, order_of(order).or_raise(py)?);
    let interface = array.getattr("__array_interface__")?;
    let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
    let shape = match shape {
        Some(shape) => shape,
        None => interface.get_item("shape")?.extract()?,
    };
    let len: usize = array.getattr("nbytes")?.extract()?;
    let owner = Owner::Object(array.clone().unbind());
    let source = Borrowed { label: "array".to_owned(), address, len, _owner: owner };
    entry(path, dtype, Shape::new(shape), std::sync::Arc::new(source), order)
}

/// Makes a tensor of bytes: row-major, little-endian.
#[pyfunction]
pub(crate) fn entry_of_bytes(
    path: &Bound<'_, PyAny>,
    dtype: &str,
    shape: Vec<u64>,
    bytes: &Bound<'_, PyBytes>,
) -> PyResult<Entry> {
    let dtype = dtype_of(dtype).or_raise(path.py())?;
    let source = MemorySource::new("bytes", bytes.as_bytes().to_vec());
    entry(path, dtype, Shape::new(shape), std::sync::Arc::new(source), Order::Row)
}

/// Makes a tensor of a DLPack capsule, without a copy.
#[pyfunction]
pub(crate) fn entry_of_dlpack(path: &Bound<'_, PyAny>, capsule: &Bound<'_, PyAny>) -> PyResult<Entry> {
    let py = path.py();
    let consumed = take(capsule)
        .ok_or_else(|| Error::usage("not-a-capsule", "not a DLPack capsule, or already consumed"))
        .or_raise(py)?;
    let taken = Taken::new(&consumed);
    let info = taken.described().ok_or_else(|| {
        Error::unsupported("dlpack-array", "the array has an unsupported dtype, or is not in CPU memory")
            .hint("move it to the CPU first")
    });
    let info = info.or_raise(py)?;
    let order = info
        .order()
        .ok_or_else(|| {
            Error::unsupported("not-dense", "the elements of the array are not contiguous")
                .hint("make the array contiguous first")
        })
        .or_raise(py)?;
    let len = info.shape.bytes(info.dtype).and_then(|len| usize::try_from(len).ok());
    let len =
        len.ok_or_else(|| Error::usage("too-large", "array size exceeds the address space")).or_raise(py)?;
    let source =
        Borrowed { label: "array".to_owned(), address: info.address, len, _owner: Owner::Taken(taken) };
    entry(path, info.dtype, info.shape, std::sync::Arc::new(source), order)
}
