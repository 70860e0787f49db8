//! Arrays of Python as sources of bytes, for as long as they are written out: nothing is copied first.

use crate::dlpack::{CPU, Given, dtype_from, take};
use crate::entry::{Entry, dtype_of, order_of};
use crate::errors::OrRaise;
use crate::values;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_void;
use weighbridge::source::{MemorySource, Source, SourceRef, check_range};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Error, Result, TensorEntry};

/// Bytes that belong to an object of Python, or to another library that gave them away.
#[derive(Debug)]
struct Borrowed {
    label: String,
    address: usize,
    len: usize,
    /// Kept alive as long as this is.
    _owner: Owner,
}

/// Who frees the bytes.
#[derive(Debug)]
enum Owner {
    /// An array that stays alive while it is referred to.
    Object(#[allow(dead_code)] Py<PyAny>),
    /// What another library gave away.
    Taken(#[allow(dead_code)] Taken),
}

/// A structure of DLPack that was taken over, and is given back to its deleter once.
#[derive(Debug)]
struct Taken(usize, bool);

impl Taken {
    fn new(given: &Given) -> Self {
        match given {
            Given::Legacy(pointer) => Self(*pointer as usize, false),
            Given::Versioned(pointer) => Self(*pointer as usize, true),
        }
    }

    /// Type, extents, strides, address: everything that the structure says; `None` where it is not in this machine's
    /// memory, or of a later version.
    fn described(&self) -> Option<Told> {
        // SAFETY: the pointer came from a capsule of that name, which means that it points to such a structure,
        // valid until the deleter is called; that happens when this is dropped.
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
            // SAFETY: such a list has as many numbers as the array has dimensions.
            #[allow(unsafe_code)]
            let numbers = unsafe { std::slice::from_raw_parts(pointer, ndim) };
            numbers.iter().map(|n| u64::try_from(*n).ok()).collect()
        };
        let shape = if ndim == 0 { Vec::new() } else { list(array.shape)? };
        let strides = if array.strides.is_null() || ndim == 0 { None } else { Some(list(array.strides)?) };
        let address =
            (array.data as *const c_void as usize).checked_add(usize::try_from(array.byte_offset).ok()?)?;
        Some(Told { dtype: dtype_from(array.dtype)?, shape: Shape::new(shape), strides, address })
    }
}

/// What a structure of DLPack says.
struct Told {
    dtype: DType,
    shape: Shape,
    strides: Option<Vec<u64>>,
    address: usize,
}

impl Told {
    /// The order in which the elements stand densely, if they do.
    fn order(&self) -> Option<Order> {
        let Some(strides) = &self.strides else { return Some(Order::Row) };
        // The stride of a dimension with one place or none does not count.
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
        // SAFETY: the structure is valid until its deleter is called, which happens here and nowhere else. Deleters may be
        // called from any thread: those that need Python's lock take it.
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
        let start = usize::try_from(offset).map_err(|_| Error::usage("outside", "no such place"))?;
        let from = (self.address + start) as *const u8;
        // SAFETY: the range lies within the bytes that the owner gave, and the owner is kept alive. No reference is made to
        // them: another thread of Python may write into its array meanwhile, and then gets what it asked for, a
        // mixture, as from any function of numpy that gives the lock away.
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

/// The tensor that `source` holds from its first byte on.
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

/// The tensor of a numpy array, whose elements must be dense in `order` and little-endian. It is not copied. With `shape` the
/// array holds the bytes of elements of these extents.
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

/// The tensor of these bytes, row by row and little-endian.
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

/// The tensor that a capsule of DLPack holds. It is not copied.
#[pyfunction]
pub(crate) fn entry_of_dlpack(path: &Bound<'_, PyAny>, capsule: &Bound<'_, PyAny>) -> PyResult<Entry> {
    let py = path.py();
    let given = take(capsule)
        .ok_or_else(|| Error::usage("not-a-capsule", "this is no capsule of DLPack, or it was taken already"))
        .or_raise(py)?;
    let taken = Taken::new(&given);
    let told = taken.described().ok_or_else(|| {
        Error::unsupported(
            "dlpack-array",
            "the array is of a type that is unknown, or not in the memory of the processor",
        )
        .hint("bring it to the CPU first")
    });
    let told = told.or_raise(py)?;
    let order = told
        .order()
        .ok_or_else(|| {
            Error::unsupported("not-dense", "the elements of the array do not stand one after another")
                .hint("make it contiguous first")
        })
        .or_raise(py)?;
    let len = told.shape.bytes(told.dtype).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or_else(|| Error::usage("too-large", "no array is so large")).or_raise(py)?;
    let source =
        Borrowed { label: "array".to_owned(), address: told.address, len, _owner: Owner::Taken(taken) };
    entry(path, told.dtype, told.shape, std::sync::Arc::new(source), order)
}
