//! A tensor of an opened checkpoint, or one in memory to be written.

use crate::errors::OrRaise;
use crate::memory::Memory;
use crate::row_names::RowNames;
use crate::work::{Interrupted, wait};
use crate::{dlpack, lost, values};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::Arc;
use weighbridge::engine::{Maps, Private, View};
use weighbridge::tensor::{Cast, DType, Order, Region, Rounding};
use weighbridge::{Error, Result, TensorEntry};

/// Largest read, in bytes, on the caller's thread; larger ones run on another thread, so that Ctrl-C works.
const MAX_INLINE_READ: u64 = 4 << 20;

/// Native half of the Python class `Tensor`.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Index entry of the tensor.
    pub(crate) tensor: Arc<TensorEntry>,
    /// Mapped files of its checkpoint.
    pub(crate) maps: Arc<Maps>,
}

impl Entry {
    /// Wraps a tensor that is not part of an opened checkpoint.
    pub(crate) fn alone(tensor: TensorEntry) -> Self {
        Self { tensor: Arc::new(tensor), maps: Arc::default() }
    }

    /// Runs `work`, which reads `bytes` bytes, without the GIL.
    fn read<T: Send + 'static>(
        &self,
        py: Python<'_>,
        bytes: u64,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if bytes <= MAX_INLINE_READ {
            return py.detach(|| work(self)).or_raise(py);
        }
        let own = self.clone();
        wait(py, None, Interrupted::IsLeft, move |_| work(&own))
    }
}

/// Parses an order: `C` or `F`.
pub(crate) fn order_of(letter: &str) -> Result<Order> {
    match letter {
        "C" => Ok(Order::Row),
        "F" => Ok(Order::Column),
        other => Err(Error::usage("bad-order", "unknown order").expected("\"C\" or \"F\"").found(other)),
    }
}

/// Parses the name of a dtype.
pub(crate) fn dtype_of(name: &str) -> Result<DType> {
    DType::from_spelling(name).ok_or_else(|| {
        let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        Error::usage("unknown-dtype", "unknown dtype")
            .found(name)
            .hint(format_args!("the dtypes are {}", names.join(", ")))
    })
}

#[pymethods]
impl Entry {
    /// Display name: the parts of the path joined by dots, with `/slot` for optimizer state.
    #[getter]
    fn name(&self) -> String {
        self.tensor.text()
    }

    /// Parts of the name.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        values::path(py, &self.tensor.path)
    }

    /// Slot name of optimizer state; `None` for other tensors.
    #[getter]
    fn slot<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.tensor.role.slot().map(|slot| values::part(py, slot))
    }

    /// Role, as in `ls --json`.
    #[getter]
    fn role(&self) -> &'static str {
        self.tensor.role.as_str()
    }

    /// Dtype after a pending cast.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    /// Dtype in the file.
    #[getter]
    fn stored_dtype(&self) -> &'static str {
        self.tensor.stored.name()
    }

    /// Shape.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape.dims())
    }

    /// Storage order: `C` or `F`.
    #[getter]
    fn order(&self) -> &'static str {
        match self.tensor.order() {
            Order::Row => "C",
            Order::Column => "F",
        }
    }

    /// Size in bytes of all elements.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.tensor.bytes()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> u64 {
        self.tensor.elements()
    }

    /// True if name, dtype or layout is a guess.
    #[getter]
    fn guessed(&self) -> bool {
        self.tensor.guessed
    }

    /// Format-specific attributes.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::dict(py, self.tensor.attributes.iter().map(|(key, value)| (key.as_str(), value)))
    }

    /// Byte ranges: for each extent the file, offset, length in bytes and the box of the tensor that it fills.
    fn extents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &self.tensor.extents_to_json())
    }

    /// Entry of the tensor in `ls --json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &self.tensor.to_json())
    }

    /// Reads the row names; `None` if the tensor has none.
    fn row_names(&self, py: Python<'_>) -> PyResult<Option<RowNames>> {
        let Some(row_names) = self.tensor.row_names.clone() else { return Ok(None) };
        let list = wait(py, None, Interrupted::IsLeft, move |_| row_names.read())?;
        Ok(Some(RowNames::new(list)))
    }

    /// The same tensor, cast to `to` when read or written.
    #[pyo3(signature = (to, rounding="nearest"))]
    fn cast(&self, py: Python<'_>, to: &str, rounding: &str) -> PyResult<Self> {
        let to = dtype_of(to).or_raise(py)?;
        let mut tensor = TensorEntry::clone(&self.tensor);
        if to == tensor.dtype() {
            return Ok(self.clone());
        }
        if tensor.cast.is_some() {
            // Two roundings can differ from one.
            let text = format!("the tensor already has a pending cast to {}", tensor.dtype());
            let error = Error::unsupported("cast-of-cast", text).on_tensor(tensor.name());
            return Err(error.hint("cast the original tensor, or the array after reading")).or_raise(py);
        }
        if to == tensor.stored {
            tensor.cast = None;
            return Ok(Self { tensor: Arc::new(tensor), ..self.clone() });
        }
        let rounding = Rounding::from_name(rounding)
            .ok_or_else(|| Error::usage("unknown-rounding", "unknown rounding").found(rounding))
            .or_raise(py)?;
        if !tensor.stored.cast_is_supported(to) {
            let text = format!("cannot cast {} to {to}", tensor.stored);
            let error = Error::unsupported("no-such-cast", text).on_tensor(tensor.name());
            return Err(error.hint("casts go from numbers to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 and i8"))
                .or_raise(py);
        }
        tensor.cast = Some(Cast { to, rounding });
        Ok(Self { tensor: Arc::new(tensor), ..self.clone() })
    }

    /// The box at `start` of shape `extent`, dense in `order`; not copied if the file stores it in this layout.
    fn view(&self, py: Python<'_>, start: Vec<u64>, extent: Vec<u64>, order: &str) -> PyResult<Memory> {
        lost::guard();
        let order = order_of(order).or_raise(py)?;
        let region = Region { start, shape: extent };
        let shape = region.shape();
        let dtype = self.tensor.dtype();
        let bytes = shape.bytes(dtype).unwrap_or(u64::MAX);
        let view = self.read(py, bytes, move |own| own.maps.view(&own.tensor, &region, order))?;
        Ok(Memory::new(view, dtype, shape, order))
    }

    /// All elements, dense in `order`, as mapped memory; `None` if the file stores them in another layout.
    fn mapped(&self, py: Python<'_>, order: &str) -> PyResult<Option<Memory>> {
        lost::guard();
        let order = order_of(order).or_raise(py)?;
        let whole = Region::whole(&self.tensor.shape);
        let view = py.detach(|| self.maps.mapped(&self.tensor, &whole, order)).or_raise(py)?;
        Ok(view.map(|view| Memory::new(view, self.tensor.dtype(), self.tensor.shape.clone(), order)))
    }

    /// Bytes of all elements, in `order`.
    fn bytes<'py>(&self, py: Python<'py>, order: &str) -> PyResult<Bound<'py, PyBytes>> {
        let order = order_of(order).or_raise(py)?;
        let whole = Region::whole(&self.tensor.shape);
        let view =
            self.read(py, self.tensor.bytes(), move |own| own.maps.view(&own.tensor, &whole, order))?;
        let copied = |out: &mut [u8]| py.detach(|| copy_out(&view, out)).or_raise(py);
        PyBytes::new_with(py, view.bytes().len(), copied)
    }

    /// DLPack capsule over private writable memory. With `copy` it is a copy; else it is copy-on-write pages of the file,
    /// and `BufferError` if the file stores the elements in another layout. With `flat` it holds the bytes, else the
    /// elements in `order`.
    #[pyo3(signature = (order, *, copy, versioned, flat=false))]
    fn dlpack<'py>(
        &self,
        py: Python<'py>,
        order: &str,
        copy: bool,
        versioned: bool,
        flat: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order = order_of(order).or_raise(py)?;
        let described = dlpack::describe(&self.tensor, order, flat)?;
        if !copy {
            lost::guard();
        }
        let memory = self.read(py, self.tensor.bytes(), move |own| {
            if copy || own.tensor.bytes() == 0 {
                return own.tensor.read_tensor(order).map(dlpack::Owned::Copied).map(Some);
            }
            Ok(Private::mapped(&own.tensor, order)?.map(dlpack::Owned::Private))
        })?;
        let memory = memory.ok_or_else(|| dlpack::needs_a_copy(&self.tensor))?;
        dlpack::capsule(py, memory, described, versioned)
    }

    /// Verifies the bytes against the checksums in the file; decodes compressed data completely.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let own = self.tensor.clone();
        wait(py, None, Interrupted::IsLeft, move |_| {
            own.verify_tensor()?;
            for extent in &own.extents {
                if weighbridge::engine::is_encoded(&extent.source) {
                    weighbridge::engine::read_through(&extent.source)
                        .map_err(|error| error.on_tensor(own.name()))?;
                }
            }
            Ok(())
        })
    }

    fn __repr__(&self) -> String {
        format!("<Entry {}: {} {}>", self.tensor.name(), self.tensor.dtype(), self.tensor.shape)
    }
}

/// Copies a view; an error if the file shrank meanwhile.
fn copy_out(view: &View, out: &mut [u8]) -> Result<()> {
    out.copy_from_slice(view.bytes());
    view.check()
}
