"""One tensor of a checkpoint."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NoReturn, Optional, Tuple, Union

from . import dtypes, indexing
from ._weighbridge import Entry, Labels, Memory
from .checks import cast_name
from .errors import MismatchError, UnknownNameError, UnsupportedError

if TYPE_CHECKING:
    # Under other names: methods of the class have these.
    import numpy as _numpy
    import paddle as _paddle
    import torch as _torch

# A sequence of `str` for whoever asks: the Rust part cannot say so itself.
Sequence.register(Labels)

Part = Union[str, bytes]
"""A part of a path: `bytes` where the file has something that is no UTF-8."""

_CPU = (1, 0)
"""How DLPack calls the memory of the processor."""

_WRITABLE, _STRIDES = 0x1, 0x18
"""What may be asked of a buffer: `PyBUF_WRITABLE`, `PyBUF_STRIDES`."""


_OF_ARRAYS = frozenset(
    "T all any argmax argmin astype clip copy cumsum dot fill flat flatten flags item itemsize max mean min "
    "nonzero prod ravel reshape round sort squeeze std strides sum swapaxes take tolist trace transpose var "
    "view".split()
)
"""What arrays of numpy have, and people ask tensors for."""


class Tensor:
    """A named tensor: what it is, and where its elements are. Nothing is read before it is asked for.

    >>> import weighbridge
    >>> tensor = weighbridge.open("net.safetensors")["fc1.weight"]
    >>> tensor
    <Tensor fc1.weight: f32 [4, 3]>
    >>> tensor[1:3, ::2].tolist()
    [[3.0, 5.0], [6.0, 8.0]]

    `numpy()` and slices give arrays that look into the mapped file where type and order allow: read-only,
    without a copy, and valid also when the checkpoint is closed. A file that another program cuts short
    meanwhile reads as zeros there, and `FileChangedError` is raised in the main thread.
    """

    __slots__ = ("_entry", "_labels")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._labels: Optional[Labels] = None

    @property
    def name(self) -> str:
        """The name as people see it: the parts of the path joined by dots, and `/slot` for state of an
        optimizer.
        """
        return self._entry.name

    @property
    def path(self) -> Tuple[Part, ...]:
        """The parts of the name. A part may hold a dot; one that is no UTF-8 is `bytes`."""
        return self._entry.path

    @property
    def slot(self) -> Optional[Part]:
        """For state of an optimizer the optimizer's name for it, such as `Adam.m1`; its path is that of the
        parameter. `None` for other tensors, and for state that has a path of its own, as in PyTorch's checkpoints.
        """
        return self._entry.slot

    @property
    def role(self) -> str:
        """`parameter`, `buffer`, `embedding`, `optimizer`, `edges`, `names` or `other`."""
        return self._entry.role

    @property
    def dtype(self) -> str:
        """The type of the elements: `f32`, `bf16`, `i64`, ..., after a `cast`."""
        return self._entry.dtype

    @property
    def numpy_dtype(self) -> _numpy.dtype:
        """The type of the elements in numpy; `UnsupportedError` where it has none.

        >>> import weighbridge
        >>> weighbridge.open("net.safetensors")["fc1.weight"].numpy_dtype
        dtype('float32')
        """
        return dtypes.to_numpy(self.dtype, self.name)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The extents."""
        return self._entry.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._entry.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._entry.size

    @property
    def order(self) -> str:
        """The order of the bytes in the file: `"C"`, row by row, or `"F"`, column by column."""
        return self._entry.order

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._entry.nbytes

    @property
    def guessed(self) -> bool:
        """True where name, type or layout is a guess."""
        return self._entry.guessed

    @property
    def attributes(self) -> Dict[str, Any]:
        """What only the format knows of it, such as `lod`, `batch` or `requires_grad`."""
        return self._entry.attributes

    @property
    def labels(self) -> Optional[Labels]:
        """The names of the rows, where it is a table that has them: a sequence of `str`. They are read at
        the first use.
        """
        if self._labels is None:
            self._labels = self._entry.labels()
        return self._labels

    @property
    def pieces(self) -> List[Dict[str, Any]]:
        """Where the bytes are: for each piece `file`, `offset`, `bytes`, and the box that it fills (`start`,
        `extent`).
        """
        return self._entry.pieces()

    def to_dict(self) -> Dict[str, Any]:
        """What the command's `ls --json` says of it."""
        return self._entry.to_dict()

    def cast(self, dtype: dtypes.DType, rounding: str = "nearest") -> Tensor:
        """The same tensor with elements of another floating-point type. Nothing is read before it is asked
        for.

        The type is named as here (`"f16"`), as in numpy or torch (`"float16"`, `"torch.float16"`) or as in the header
        of safetensors (`"F16"`), or given itself: `numpy.float16`, `numpy.dtype("f2")`, `torch.float16`.

        `rounding` may be `paddle-2.6` or `paddle-3.3`, to get the bits that those versions give. A tensor that is to be cast
        already cannot be cast again: its elements would have to be rounded twice.

        >>> import weighbridge
        >>> weighbridge.open("net.safetensors")["fc1.weight"].cast("f16").numpy().dtype
        dtype('float16')
        """
        return Tensor(self._entry.cast(cast_name(dtype, "dtype", self.dtype), rounding))

    def numpy(self) -> _numpy.ndarray:
        """All elements as a read-only array, without a copy where type and order allow.

        A column-major tensor becomes an array in Fortran's order. Types that numpy lacks, such as `bf16`,
        need the package `ml_dtypes`; without it `UnsupportedError` is raised, and
        `tensor.cast("f32").numpy()` is the way out.

        >>> import weighbridge
        >>> array = weighbridge.open("net.safetensors")["fc1.weight"].numpy()
        >>> array.shape, array.flags.writeable
        ((4, 3), False)
        """
        return self._box([0] * self.ndim, list(self.shape))

    def _box(self, start: List[int], extent: List[int]) -> _numpy.ndarray:
        # First the type: where numpy has none, nothing is read.
        return _typed(self.numpy_dtype, self._memory(start, extent, self.order))

    def _memory(self, start: List[int], extent: List[int], order: str) -> Memory:
        return self._entry.view(start, extent, order)

    def __getitem__(self, index: Any) -> Any:
        """The elements that `index` means, as numpy has it: integers, slices with steps, `...` and `None`.

        Only the box around them is read. The result is a read-only array, or a number of numpy. Where the
        rows have names (`labels`), the first index may be the name of one, or the index a list of names.

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
        if self.labels is None:
            raise TypeError(
                f"the rows of {self.name} have no names: "
                "a tensor is indexed by integers, slices, '...' and None"
            )
        try:
            return self.labels.row_of(name)
        except (KeyError, UnicodeEncodeError):
            raise UnknownNameError(
                "no row of the tensor has this name",
                code="no-such-row",
                tensor=self.name,
                found=name,
                hint="tensor.labels has their names",
            ) from None
        except MismatchError as error:
            error.tensor = self.name
            raise

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            way = f": take tensor.numpy().{name}" if name in _OF_ARRAYS else ""
            raise AttributeError(f"a tensor of a file has no attribute {name!r}{way}")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for row in range(len(self)):
            yield self[row]

    def __bool__(self) -> bool:
        # Of an array it would depend on its elements; a tensor that is there is true, also an empty one.
        return True

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> _numpy.ndarray:
        """What `numpy.asarray(tensor)` asks for. With `copy=True` the array may be written to.

        With `copy=False` it is a `ValueError` when elements must be read, turned or cast.
        """
        import numpy

        own = self.numpy_dtype
        wanted = own if dtype is None else numpy.dtype(dtype)
        if copy is False and self.nbytes and (wanted != own or self._entry.mapped(self.order) is None):
            raise ValueError(f"{self.name}: the elements cannot be had without a copy")
        memory = self._memory([0] * self.ndim, list(self.shape), self.order)
        array = _typed(own, memory)
        if wanted != own:
            return array.astype(wanted)
        return array.copy(order="K") if copy else array

    def bytes(self, order: str = "C") -> builtins.bytes:
        """All elements as little-endian bytes, in row-major (`"C"`) or column-major (`"F"`) order.

        >>> import weighbridge
        >>> len(weighbridge.open("net.safetensors")["fc1.weight"].bytes())
        48
        """
        return self._entry.bytes(order)

    def __bytes__(self) -> builtins.bytes:
        return self.bytes()

    def memoryview(self) -> builtins.memoryview:
        """A read-only view of the elements in row-major order, without numpy, and without a copy where they
        stand so.

        It has the shape and the numbers of the tensor where a `memoryview` can show them; else (types such
        as `f16`, and empty tensors) it shows bytes. From Python 3.12 on, `memoryview(tensor)` does the same
        where nothing need be read, turned or cast, and refuses the rest.

        >>> import weighbridge
        >>> view = weighbridge.open("net.safetensors")["fc1.weight"].memoryview()
        >>> view.format, view.shape, view[1, 2]
        ('f', (4, 3), 5.0)
        """
        import ctypes

        memory = self._memory([0] * self.ndim, list(self.shape), "C")
        raw = (ctypes.c_ubyte * memory.nbytes).from_address(memory.address)
        # The view keeps the array of ctypes, and that keeps the memory.
        raw.owner = memory  # type: ignore[attr-defined]
        view = memoryview(raw).toreadonly().cast("B")
        letter = dtypes.BUFFER.get(self.dtype)
        if letter is None or memory.nbytes == 0:
            return view
        shaped: builtins.memoryview = view.cast(letter, list(self.shape))  # type: ignore[call-overload]
        return shaped

    def __buffer__(self, flags: int) -> builtins.memoryview:
        if flags & _WRITABLE:
            raise BufferError(f"{self.name}: the elements may not be written to")
        if flags & _STRIDES != _STRIDES:
            # Who asks for bytes one after another, as a hash or a file, takes them of any type, and also
            # where they must be read.
            return self.memoryview()
        if self.dtype not in dtypes.BUFFER or self.nbytes == 0:
            raise BufferError(
                f"{self.name}: a buffer cannot show elements of type {self.dtype}: take memoryview()"
            )
        # Who asks for their places, as numpy and `memoryview`, means to look at the elements where they are;
        # numpy copies by another way where it may.
        if self._entry.mapped(self.order) is None:
            raise BufferError(f"{self.name}: the elements must be read, turned or cast: take memoryview()")
        if self.order == "C" or self._entry.mapped("C") is not None:
            return self.memoryview()
        if "numpy" not in sys.modules:
            raise BufferError(f"{self.name}: the elements stand column by column: take memoryview()")
        return self.numpy().data

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """What `from_dlpack(tensor)` of other libraries asks for. The memory may be written to; the file
        stays as it is.

        The elements are copied, or, with `copy=False`, looked at in the file, where each page is copied when
        it is written to; where they do not stand there so (packed, cast, big-endian), that is a
        `BufferError`.
        """
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise BufferError("the elements are in the memory of the processor, and nowhere else")
        if stream is not None:
            raise BufferError("there are no streams on the processor")
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        return self._entry.dlpack(self.order, copy=copy is not False, versioned=versioned)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _CPU

    def torch(self, copy: bool = True, device: Union[_torch.device, str, int, None] = None) -> _torch.Tensor:
        """The elements as a tensor of torch, which must be installed; every type that torch has.

        With `copy=False` they are looked at in the file, where each page is copied when it is written to;
        what stands at an odd place, packed or in the wrong byte order is read. With another `device` than the
        processor they go there from the file, without a copy in between; there it is a copy in any case, and
        with `copy=False` a column-major tensor may stay one.
        """
        torch: Any = dtypes.need("torch", "a tensor of torch")
        dtype = getattr(torch, dtypes.TORCH.get(self.dtype, ""), None)
        if dtype is None:
            raise UnsupportedError(
                f"torch {torch.__version__} has no type for {self.dtype}",
                code="no-torch-dtype",
                tensor=self.name,
                hint='ask for another type with tensor.cast("f32")'
                if self.dtype in dtypes.ML_DTYPES
                else None,
            )
        if device is not None and torch.device(device).type != "cpu":
            there = self._of_torch(torch, dtype, copy=False).to(device)
            return there.contiguous() if copy else there
        return self._of_torch(torch, dtype, copy)

    def _of_torch(self, torch: Any, dtype: Any, copy: bool) -> _torch.Tensor:
        """The elements as a tensor of torch in the memory of the processor."""
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=dtype, device="cpu")
        order = "C" if copy else self.order
        try:
            capsule = self._entry.dlpack(order, copy=copy, versioned=False, flat=True)
        except BufferError:
            order = "C"
            capsule = self._entry.dlpack(order, copy=True, versioned=False, flat=True)
        # As bytes first: older versions take few types of elements.
        flat = torch.utils.dlpack.from_dlpack(capsule).view(dtype)
        if order == "C":
            return flat.reshape(self.shape)
        return flat.reshape(self.shape[::-1]).permute(*reversed(range(self.ndim)))

    def paddle(self) -> _paddle.Tensor:
        """The elements as a tensor of PaddlePaddle, which must be installed."""
        paddle: Any = dtypes.need("paddle", "a tensor of PaddlePaddle", "paddlepaddle")
        if self.dtype == "bf16":
            # Paddle's arrays of numpy hold bf16 as uint16.
            return paddle.to_tensor(
                _array(self._memory([0] * self.ndim, list(self.shape), self.order)).copy()
            )
        return paddle.to_tensor(self.numpy().copy())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tensor of a file cannot be pickled: pickle its array, or open the path again")

    def check(self) -> None:
        """Holds the bytes against the checksums that the file has for them; raises `CorruptFileError`.

        Formats without checksums, such as safetensors, cannot tell that an element was changed.
        """
        self._entry.check()

    def __repr__(self) -> str:
        from ._weighbridge import escape_text

        return f"<Tensor {escape_text(self.name)}: {self.dtype} {list(self.shape)}>"


def _array(memory: Memory) -> _numpy.ndarray:
    """An array that looks into the memory, and keeps it."""
    import numpy

    return numpy.asarray(memory)


def _typed(dtype: _numpy.dtype, memory: Memory) -> _numpy.ndarray:
    """The same with elements of this type, of the same width."""
    array = _array(memory)
    if array.dtype == dtype:
        return array
    typed: _numpy.ndarray = array.view(dtype)
    return typed
