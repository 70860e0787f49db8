//! One tensor of an opened checkpoint, or one in memory that is to be written.

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

/// Bytes that are read at once by the caller's own thread; more are read by another one, so that Ctrl-C is heard.
const SHORT: u64 = 4 << 20;

/// A tensor by itself: what `Tensor` is made of.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where its bytes are.
    pub(crate) tensor: Arc<TensorEntry>,
    /// The files of its checkpoint that are mapped.
    pub(crate) maps: Arc<Maps>,
}

impl Entry {
    /// One that stands alone.
    pub(crate) fn alone(tensor: TensorEntry) -> Self {
        Self { tensor: Arc::new(tensor), maps: Arc::default() }
    }

    /// Does what reads `bytes` bytes, without the interpreter's lock.
    fn read<T: Send + 'static>(
        &self,
        py: Python<'_>,
        bytes: u64,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if bytes <= SHORT {
            return py.detach(|| work(self)).or_raise(py);
        }
        let own = self.clone();
        wait(py, None, Interrupted::IsLeft, move |_| work(&own))
    }
}

/// The order of that letter.
pub(crate) fn order_of(letter: &str) -> Result<Order> {
    match letter {
        "C" => Ok(Order::Row),
        "F" => Ok(Order::Column),
        other => Err(Error::usage("bad-order", "an order is \"C\" or \"F\"").found(other)),
    }
}

/// The type of that name.
pub(crate) fn dtype_of(name: &str) -> Result<DType> {
    DType::from_spelling(name).ok_or_else(|| {
        let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        Error::usage("unknown-dtype", "there is no such element type")
            .found(name)
            .hint(format_args!("the types are {}", names.join(", ")))
    })
}

#[pymethods]
impl Entry {
    /// The name as people see it: the parts of the path joined by dots, and `/slot` for optimizer state.
    #[getter]
    fn name(&self) -> String {
        self.tensor.text()
    }

    /// The parts of the name.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        values::path(py, &self.tensor.path)
    }

    /// The optimizer's name for it, where it is state of an optimizer.
    #[getter]
    fn slot<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.tensor.role.slot().map(|slot| values::part(py, slot))
    }

    /// What it is for, as a word.
    #[getter]
    fn role(&self) -> &'static str {
        self.tensor.role.as_str()
    }

    /// The type of its elements, after a cast that is planned.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    /// The type of the elements in the file.
    #[getter]
    fn stored_dtype(&self) -> &'static str {
        self.tensor.stored.name()
    }

    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape.dims())
    }

    /// `C` or `F`: the order of the bytes.
    #[getter]
    fn order(&self) -> &'static str {
        match self.tensor.order() {
            Order::Row => "C",
            Order::Column => "F",
        }
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.tensor.bytes()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> u64 {
        self.tensor.elements()
    }

    /// True where name, type or layout is a guess.
    #[getter]
    fn guessed(&self) -> bool {
        self.tensor.guessed
    }

    /// What only the format knows of it.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::dict(py, self.tensor.attributes.iter().map(|(key, value)| (key.as_str(), value)))
    }

    /// Where the bytes are: for each piece the file, the offset, the bytes and the box that it fills.
    fn extents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &self.tensor.extents_to_json())
    }

    /// What the command's `ls --json` says of it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &self.tensor.to_json())
    }

    /// The names of the rows, which are read now; `None` where they have none.
    fn labels(&self, py: Python<'_>) -> PyResult<Option<RowNames>> {
        let Some(labels) = self.tensor.row_names.clone() else { return Ok(None) };
        let list = wait(py, None, Interrupted::IsLeft, move |_| labels.read())?;
        Ok(Some(RowNames::new(list)))
    }

    /// The same tensor, to be given the type `to` whenever it is read or written.
    #[pyo3(signature = (to, rounding="nearest"))]
    fn cast(&self, py: Python<'_>, to: &str, rounding: &str) -> PyResult<Self> {
        let to = dtype_of(to).or_raise(py)?;
        let mut tensor = TensorEntry::clone(&self.tensor);
        if to == tensor.dtype() {
            return Ok(self.clone());
        }
        if tensor.cast.is_some() {
            // Rounding twice is another thing than rounding once.
            let text = format!("the tensor is to be cast to {} already", tensor.dtype());
            let error = Error::unsupported("cast-of-cast", text).on_tensor(tensor.name());
            return Err(error.hint("cast the tensor as it stands in the file, or the array that was read"))
                .or_raise(py);
        }
        if to == tensor.stored {
            tensor.cast = None;
            return Ok(Self { tensor: Arc::new(tensor), ..self.clone() });
        }
        let rounding = Rounding::from_name(rounding)
            .ok_or_else(|| Error::usage("unknown-rounding", "there is no such rounding").found(rounding))
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

    /// The box from `start` on, `extent` long along each dimension, dense in `order`, without a copy where it stands
    /// so in the file.
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

    /// All elements, dense in `order`, where they stand so in the file; `None` where they would have to be read.
    fn mapped(&self, py: Python<'_>, order: &str) -> PyResult<Option<Memory>> {
        lost::guard();
        let order = order_of(order).or_raise(py)?;
        let whole = Region::whole(&self.tensor.shape);
        let view = py.detach(|| self.maps.mapped(&self.tensor, &whole, order)).or_raise(py)?;
        Ok(view.map(|view| Memory::new(view, self.tensor.dtype(), self.tensor.shape.clone(), order)))
    }

    /// All bytes, in `order`.
    fn bytes<'py>(&self, py: Python<'py>, order: &str) -> PyResult<Bound<'py, PyBytes>> {
        let order = order_of(order).or_raise(py)?;
        let whole = Region::whole(&self.tensor.shape);
        let view =
            self.read(py, self.tensor.bytes(), move |own| own.maps.view(&own.tensor, &whole, order))?;
        let copied = |out: &mut [u8]| py.detach(|| copy_out(&view, out)).or_raise(py);
        PyBytes::new_with(py, view.bytes().len(), copied)
    }

    /// A capsule of DLPack over memory of its own that may be written to: a copy, or with `copy` false the file's own
    /// pages, each copied when it is written to, and `BufferError` where the elements do not stand there so. With `flat` it holds the bytes; else the elements, in `order`.
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

    /// Holds the bytes against the checksums that the file has for them, and reads them all where they are packed.
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

/// Copies a view, and says where bytes of it were lost meanwhile.
fn copy_out(view: &View, out: &mut [u8]) -> Result<()> {
    out.copy_from_slice(view.bytes());
    view.check()
}
