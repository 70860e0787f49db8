"""Tensors of checkpoints."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NoReturn, Optional, Tuple, Union

from . import dtypes, indexing
from ._weighbridge import Entry, Memory, RowNames
from .checks import cast_name
from .errors import MismatchError, UnknownNameError, UnsupportedError

if TYPE_CHECKING:
    # Under other names: methods of the class have these.
    import numpy as _numpy
    import paddle as _paddle
    import torch as _torch

# So that `isinstance(names, Sequence)` holds: a native class cannot register itself.
Sequence.register(RowNames)

Part = Union[str, bytes]
"""Part of a path: `bytes` if it is not UTF-8 in the file."""

_CPU = (1, 0)
"""DLPack device of host memory."""

_WRITABLE, _STRIDES = 0x1, 0x18
"""Buffer request flags: `PyBUF_WRITABLE`, `PyBUF_STRIDES`."""


_ARRAY_ATTRIBUTES = frozenset(
    "T all any argmax argmin astype clip copy cumsum dot fill flat flatten flags item itemsize max mean min "
    "nonzero prod ravel reshape round sort squeeze std strides sum swapaxes take tolist trace transpose var "
    "view".split()
)
"""Attributes of numpy arrays that users look for on tensors."""


class Tensor:
    """A named tensor of an opened file. Elements are read on demand.

    >>> import weighbridge
    >>> tensor = weighbridge.open("net.safetensors")["fc1.weight"]
    >>> tensor
    <Tensor fc1.weight: f32 [4, 3]>
    >>> tensor[1:3, ::2].tolist()
    [[3.0, 5.0], [6.0, 8.0]]

    `numpy()` and slices return read-only arrays over the mapped file if dtype and order allow. These are not copies, and stay
    valid after the checkpoint is closed. If another program truncates the file, the lost bytes read as zeros and
    `FileChangedError` is raised in the main thread.
    """

    __slots__ = ("_entry", "_row_names")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._row_names: Optional[RowNames] = None

    @property
    def name(self) -> str:
        """Display name: the parts of the path joined by dots, with `/slot` for optimizer state."""
        return self._entry.name

    @property
    def path(self) -> Tuple[Part, ...]:
        """Parts of the name. A part may contain a dot; a part that is not UTF-8 is `bytes`."""
        return self._entry.path

    @property
    def slot(self) -> Optional[Part]:
        """Slot name of optimizer state, such as `Adam.m1`; its path is that of the parameter.

        `None` for other tensors, and for state with its own path, as in PyTorch checkpoints.
        """
        return self._entry.slot

    @property
    def role(self) -> str:
        """Role: `parameter`, `buffer`, `embedding`, `optimizer`, `edges`, `names` or `other`."""
        return self._entry.role

    @property
    def dtype(self) -> str:
        """Dtype of the elements after any `cast`: `f32`, `bf16`, `i64`, ..."""
        return self._entry.dtype

    @property
    def numpy_dtype(self) -> _numpy.dtype:
        """Dtype in numpy; raises `UnsupportedError` if numpy has none.

        >>> import weighbridge
        >>> weighbridge.open("net.safetensors")["fc1.weight"].numpy_dtype
        dtype('float32')
        """
        return dtypes.to_numpy(self.dtype, self.name)

    @property
    def shape(self) -> Tuple[int, ...]:
        """Size of each dimension."""
        return self._entry.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._entry.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._entry.size

    @property
    def order(self) -> str:
        """Storage order in the file: `"C"` (row-major) or `"F"` (column-major)."""
        return self._entry.order

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes."""
        return self._entry.nbytes

    @property
    def guessed(self) -> bool:
        """True if name, dtype or layout is a guess."""
        return self._entry.guessed

    @property
    def attributes(self) -> Dict[str, Any]:
        """Format-specific attributes, such as `lod`, `batch` or `requires_grad`."""
        return self._entry.attributes

    @property
    def row_names(self) -> Optional[RowNames]:
        """Row names of a table, as a sequence of `str`; `None` for a tensor without row names. Read at the first use."""
        if self._row_names is None:
            self._row_names = self._entry.row_names()
        return self._row_names

    @property
    def labels(self) -> Optional[RowNames]:
        """Old name of `row_names`."""
        return self.row_names

    @property
    def extents(self) -> List[Dict[str, Any]]:
        """Byte ranges of the elements.

        Each has `file`, `offset`, `bytes`, and the box of the tensor that it fills (`start`, `extent`).
        """
        return self._entry.extents()

    @property
    def pieces(self) -> List[Dict[str, Any]]:
        """Old name of `extents`."""
        return self.extents

    def to_dict(self) -> Dict[str, Any]:
        """Entry of the tensor in `ls --json`, as a dict."""
        return self._entry.to_dict()

    def cast(self, dtype: dtypes.DType, rounding: str = "nearest") -> Tensor:
        """Returns the tensor cast to another dtype. Elements are converted when they are read.

        `dtype` is a name, as here (`"f16"`), in numpy or torch (`"float16"`, `"torch.float16"`) or in safetensors
        (`"F16"`); or a dtype object: `numpy.float16`, `numpy.dtype("f2")`, `torch.float16`.

        `rounding` may be `paddle-2.6` or `paddle-3.3`, for the same bits as these versions. A tensor with a pending cast
        cannot be cast again, because its elements would be rounded twice.

        >>> import weighbridge
        >>> weighbridge.open("net.safetensors")["fc1.weight"].cast("f16").numpy().dtype
        dtype('float16')
        """
        return Tensor(self._entry.cast(cast_name(dtype, "dtype", self.dtype), rounding))

    def numpy(self) -> _numpy.ndarray:
        """Returns all elements as a read-only array, without a copy if dtype and order allow.

        A column-major tensor becomes an array in Fortran order. Dtypes that numpy lacks, such as `bf16`, need the package
        `ml_dtypes`. Without it `UnsupportedError` is raised; use `tensor.cast("f32").numpy()` instead.

        >>> import weighbridge
        >>> array = weighbridge.open("net.safetensors")["fc1.weight"].numpy()
        >>> array.shape, array.flags.writeable
        ((4, 3), False)
        """
        return self._box([0] * self.ndim, list(self.shape))

    def _box(self, start: List[int], extent: List[int]) -> _numpy.ndarray:
        # The dtype first: if numpy has none, nothing is read.
        return _typed(self.numpy_dtype, self._memory(start, extent, self.order))

    def _memory(self, start: List[int], extent: List[int], order: str) -> Memory:
        return self._entry.view(start, extent, order)

    def __getitem__(self, index: Any) -> Any:
        """Returns the elements at `index`, as numpy does: integers, slices with steps, `...` and `None`.

        Only the bounding box of the elements is read. The result is a read-only array, or a numpy scalar. If the tensor has
        `row_names`, the first index may be a row name, or the index a list of row names.

        >>> import weighbridge
        >>> tensor = weighbridge.open("net.safetensors")["fc1.weight"]
        >>> tensor[-1].tolist(), float(tensor[0, 1])
        ([9.0, 10.0, 11.0], 1.0)
        """
        if isinstance(index, str):
            index = self._row_of(index)
        elif isinstance(index, tuple) and index and isinstance(index[0], str):
            index = (self._row_of(index[0]), *index[1:])
        elif isinstance(index, list) and index and all(isinstance(name, str) for name in index):
            return self.numpy()[[self._row_of(name) for name in index]]
        (start, extent), rest = indexing.plan(index, self.shape)
        return self._box(start, extent)[rest]

    def _row_of(self, name: str) -> int:
        if self.row_names is None:
            raise TypeError(f"{self.name} has no row names: index it by integers, slices, '...' and None")
        try:
            return self.row_names.row_of(name)
        except (KeyError, UnicodeEncodeError):
            raise UnknownNameError(
                "no row of the tensor has this name",
                code="no-such-row",
                tensor=self.name,
                found=name,
                hint="tensor.row_names lists the names",
            ) from None
        except MismatchError as error:
            error.tensor = self.name
            raise

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            way = f"; use tensor.numpy().{name}" if name in _ARRAY_ATTRIBUTES else ""
            raise AttributeError(f"Tensor has no attribute {name!r}{way}")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor with 0 dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for row in range(len(self)):
            yield self[row]

    def __bool__(self) -> bool:
        # A tensor is always true, even if it is empty: unlike an array, it does not read its elements for this.
        return True

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> _numpy.ndarray:
        """Implements `numpy.asarray(tensor)`. With `copy=True` the array is writable.

        With `copy=False` raises `ValueError` if the elements are compressed, byte-swapped, transposed or cast.
        """
        import numpy

        own = self.numpy_dtype
        wanted = own if dtype is None else numpy.dtype(dtype)
        if copy is False and self.nbytes and (wanted != own or self._entry.mapped(self.order) is None):
            raise ValueError(f"{self.name}: an array without a copy is not possible")
        memory = self._memory([0] * self.ndim, list(self.shape), self.order)
        array = _typed(own, memory)
        if wanted != own:
            return array.astype(wanted)
        return array.copy(order="K") if copy else array

    def bytes(self, order: str = "C") -> builtins.bytes:
        """Returns all elements as little-endian bytes, in row-major (`"C"`) or column-major (`"F"`) order.

        >>> import weighbridge
        >>> len(weighbridge.open("net.safetensors")["fc1.weight"].bytes())
        48
        """
        return self._entry.bytes(order)

    def __bytes__(self) -> builtins.bytes:
        return self.bytes()

    def memoryview(self) -> builtins.memoryview:
        """Returns a read-only view of the elements in row-major order, without numpy.

        The view is not a copy if the file stores the elements in this layout. It has the shape and dtype of the tensor if
        `memoryview` supports the dtype; else (dtypes such as `f16`, and empty tensors) it is a view of bytes. From Python
        3.12 on, `memoryview(tensor)` does the same for tensors that need no read, transposition or cast, and raises
        `BufferError` for others.

        >>> import weighbridge
        >>> view = weighbridge.open("net.safetensors")["fc1.weight"].memoryview()
        >>> view.format, view.shape, view[1, 2]
        ('f', (4, 3), 5.0)
        """
        import ctypes

        memory = self._memory([0] * self.ndim, list(self.shape), "C")
        raw = (ctypes.c_ubyte * memory.nbytes).from_address(memory.address)
        # The view keeps the ctypes array alive, and the array keeps the memory alive.
        raw.owner = memory  # type: ignore[attr-defined]
        view = memoryview(raw).toreadonly().cast("B")
        letter = dtypes.BUFFER.get(self.dtype)
        if letter is None or memory.nbytes == 0:
            return view
        shaped: builtins.memoryview = view.cast(letter, list(self.shape))  # type: ignore[call-overload]
        return shaped

    def __buffer__(self, flags: int) -> builtins.memoryview:
        if flags & _WRITABLE:
            raise BufferError(f"{self.name}: the elements are read-only")
        if flags & _STRIDES != _STRIDES:
            # A request for contiguous bytes, as by a hash or a file: any dtype will do, and a read is acceptable.
            return self.memoryview()
        if self.dtype not in dtypes.BUFFER or self.nbytes == 0:
            raise BufferError(
                f"{self.name}: the buffer protocol has no dtype {self.dtype}; use tensor.memoryview()"
            )
        # A request with strides, as by numpy and `memoryview`, means access without a copy; numpy has another way to
        # get a copy.
        if self._entry.mapped(self.order) is None:
            raise BufferError(
                f"{self.name}: a buffer without a copy is not possible; use tensor.memoryview()"
            )
        if self.order == "C" or self._entry.mapped("C") is not None:
            return self.memoryview()
        if "numpy" not in sys.modules:
            raise BufferError(f"{self.name}: the elements are column-major; use tensor.memoryview()")
        return self.numpy().data

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """Implements `from_dlpack(tensor)` of other libraries. The memory is writable; the file is not changed.

        The elements are copied. With `copy=False` they are copy-on-write pages of the mapped file; raises `BufferError` if
        this is not possible (compressed, cast or big-endian elements).
        """
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise BufferError("the elements are in CPU memory only")
        if stream is not None:
            raise BufferError("CPU memory has no streams")
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        return self._entry.dlpack(self.order, copy=copy is not False, versioned=versioned)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _CPU

    def torch(self, copy: bool = True, device: Union[_torch.device, str, int, None] = None) -> _torch.Tensor:
        """Returns the elements as a torch tensor. Needs torch; supports every dtype of torch.

        With `copy=False` the tensor uses copy-on-write pages of the mapped file; unaligned, compressed or byte-swapped
        elements are read instead. With a `device` other than the CPU, the elements are moved there directly from the file,
        always as a copy; with `copy=False` a column-major tensor may stay column-major.
        """
        torch: Any = dtypes.need("torch", "a torch tensor")
        dtype = getattr(torch, dtypes.TORCH.get(self.dtype, ""), None)
        if dtype is None:
            raise UnsupportedError(
                f"torch {torch.__version__} has no dtype for {self.dtype}",
                code="no-torch-dtype",
                tensor=self.name,
                hint='convert the elements with tensor.cast("f32")'
                if self.dtype in dtypes.ML_DTYPES
                else None,
            )
        if device is not None and torch.device(device).type != "cpu":
            there = self._of_torch(torch, dtype, copy=False).to(device)
            return there.contiguous() if copy else there
        return self._of_torch(torch, dtype, copy)

    def _of_torch(self, torch: Any, dtype: Any, copy: bool) -> _torch.Tensor:
        """Returns the elements as a torch tensor in CPU memory."""
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=dtype, device="cpu")
        order = "C" if copy else self.order
        try:
            capsule = self._entry.dlpack(order, copy=copy, versioned=False, flat=True)
        except BufferError:
            order = "C"
            capsule = self._entry.dlpack(order, copy=True, versioned=False, flat=True)
        # As bytes first: older versions import few dtypes.
        flat = torch.utils.dlpack.from_dlpack(capsule).view(dtype)
        if order == "C":
            return flat.reshape(self.shape)
        return flat.reshape(self.shape[::-1]).permute(*reversed(range(self.ndim)))

    def paddle(self) -> _paddle.Tensor:
        """Returns the elements as a PaddlePaddle tensor. Needs PaddlePaddle."""
        paddle: Any = dtypes.need("paddle", "a PaddlePaddle tensor", "paddlepaddle")
        if self.dtype == "bf16":
            # Paddle represents bf16 in numpy as uint16.
            return paddle.to_tensor(
                _array(self._memory([0] * self.ndim, list(self.shape), self.order)).copy()
            )
        return paddle.to_tensor(self.numpy().copy())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tensor cannot be pickled: pickle its array, or open the file again")

    def check(self) -> None:
        """Verifies the bytes against the checksums in the file; raises `CorruptFileError` on a mismatch.

        Formats without checksums, such as safetensors, do not detect changed elements.
        """
        self._entry.check()

    def __repr__(self) -> str:
        from ._weighbridge import escape_text

        return f"<Tensor {escape_text(self.name)}: {self.dtype} {list(self.shape)}>"


def _array(memory: Memory) -> _numpy.ndarray:
    """Returns an array over the memory; the array keeps the memory alive."""
    import numpy

    return numpy.asarray(memory)


def _typed(dtype: _numpy.dtype, memory: Memory) -> _numpy.ndarray:
    """Returns an array over the memory with another dtype of the same width."""
    array = _array(memory)
    if array.dtype == dtype:
        return array
    typed: _numpy.ndarray = array.view(dtype)
    return typed
