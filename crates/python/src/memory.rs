//! Elements in memory for numpy and `ctypes`: address, shape, and ownership.

use crate::errors::OrRaise;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use weighbridge::engine::View;
use weighbridge::tensor::{DType, Order, Shape};

/// Read-only elements of a tensor in memory, mapped or read.
///
/// `numpy.asarray(memory)` makes an array without a copy; the array keeps this object, and so the map, alive. Dtypes
/// that numpy lacks appear as unsigned integers of their width.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct Memory {
    view: View,
    typestr: &'static str,
    size: usize,
    shape: Shape,
    order: Order,
}

impl Memory {
    /// Wraps the elements of `view`, dense in `order`; sub-byte elements as raw bytes.
    pub(crate) fn new(view: View, dtype: DType, shape: Shape, order: Order) -> Self {
        match dtype.size() {
            Some(size) => Self { view, typestr: typestr(dtype), size, shape, order },
            None => {
                let shape = Shape::from([view.bytes().len() as u64]);
                Self { view, typestr: "|u1", size: 1, shape, order: Order::Row }
            }
        }
    }
}

/// Type string of the array protocol; that of unsigned integers of the same width for dtypes that numpy lacks.
pub(crate) fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        DType::U16 | DType::BF16 => "<u2",
        _ => "|u1",
    }
}

#[pymethods]
impl Memory {
    /// Array interface of numpy: type, shape, strides, address. The memory is read-only.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("typestr", self.typestr)?;
        dict.set_item("shape", PyTuple::new(py, self.shape.dims())?)?;
        let dense = self.order == Order::Row || self.shape.is_order_free();
        let strides = if dense { None } else { Some(self.shape.strides(self.order)) };
        let bytes = |strides: Vec<u64>| strides.into_iter().map(|n| n * self.size as u64).collect::<Vec<_>>();
        dict.set_item("strides", strides.map(|strides| PyTuple::new(py, bytes(strides))).transpose()?)?;
        dict.set_item("data", (self.address(), true))?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    /// Address of the first byte.
    #[getter]
    fn address(&self) -> usize {
        self.view.bytes().as_ptr() as usize
    }

    /// Number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.view.bytes().len()
    }

    /// Shape of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.dims())
    }

    /// True if the bytes are those of the mapped file, not a copy.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.view.is_mapped()
    }

    /// Raises `FileChangedError` if the file was truncated and bytes were lost.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.view.check().or_raise(py)
    }

    fn __repr__(&self) -> String {
        let place = if self.view.is_mapped() { "mapped" } else { "read" };
        format!("<Memory: {} bytes, {place}>", self.view.bytes().len())
    }
}
