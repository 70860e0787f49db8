"""primitiv shapes and tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple

from .._weighbridge import batched
from ..opened import Path, open_for
from ..errors import MismatchError, UsageError
from ..saving import entry
from ..tensor import Part
from ..tensor import Tensor as Stored
from ..writing import Given, write

if TYPE_CHECKING:
    from numpy import ndarray

MAX_DIMENSIONS = 8
"""Largest number of dimensions in primitiv."""


class Shape:
    """Dimensions, without trailing 1s, and a batch size.

    >>> from weighbridge import primitiv
    >>> shape = primitiv.Shape([3, 4, 1], batch=2)
    >>> shape
    Shape([3, 4], batch=2)
    >>> shape.depth, shape[0], shape[7], shape.volume, shape.size
    (2, 3, 1, 12, 24)
    """

    __slots__ = ("_batch", "_dims")

    def __init__(self, dims: Sequence[int] = (), batch: int = 1) -> None:
        kept = [int(size) for size in dims]
        while kept and kept[-1] == 1:
            kept.pop()
        batch = int(batch)
        if len(kept) > MAX_DIMENSIONS or batch < 1 or any(size < 1 for size in kept):
            raise MismatchError(
                "primitiv does not support this shape",
                code="bad-shape",
                expected=f"at most {MAX_DIMENSIONS} dimensions, each of 1 or more, and a batch of 1 or more",
                found=f"{list(dims)}, batch {batch}",
            )
        self._dims = tuple(kept)
        self._batch = batch

    @property
    def dims(self) -> Tuple[int, ...]:
        """Size of each dimension, without trailing 1s; empty for a scalar."""
        return self._dims

    @property
    def batch(self) -> int:
        """Number of tensors in the batch."""
        return self._batch

    @property
    def depth(self) -> int:
        """Number of dimensions."""
        return len(self._dims)

    @property
    def volume(self) -> int:
        """Number of values of one tensor of the batch."""
        count = 1
        for size in self._dims:
            count *= size
        return count

    @property
    def size(self) -> int:
        """Number of values of the whole batch."""
        return self.volume * self._batch

    @property
    def array_shape(self) -> Tuple[int, ...]:
        """Shape of the array: the dimensions, followed by the batch unless it is 1."""
        return self._dims if self._batch == 1 else (*self._dims, self._batch)

    def __getitem__(self, axis: int) -> int:
        """Returns the size of a dimension; 1 beyond the last one, as in primitiv."""
        if axis < 0:
            raise IndexError("dimension numbers start at 0")
        return self._dims[axis] if axis < len(self._dims) else 1

    # Not iterable: `__getitem__` never ends, so iteration would not either.
    __iter__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and (self._dims, self._batch) == (other._dims, other._batch)

    def __hash__(self) -> int:
        return hash((self._dims, self._batch))

    def __repr__(self) -> str:
        more = "" if self._batch == 1 else f", batch={self._batch}"
        return f"Shape({list(self._dims)}{more})"


class Tensor:
    """Values with a shape: a `float32` array in Fortran order. The last dimension is the batch, unless that is 1.

    >>> from weighbridge import primitiv
    >>> tensor = primitiv.Tensor([[1, 2], [3, 4], [5, 6]], batch=2)
    >>> tensor.shape
    Shape([3], batch=2)
    >>> tensor[:, 1].tolist(), tensor.data.tolist()
    ([2.0, 4.0, 6.0], [1.0, 3.0, 5.0, 2.0, 4.0, 6.0])
    """

    __slots__ = ("_array", "_batch")

    def __init__(self, values: Any, batch: int = 1) -> None:
        self._array = as_array(values, batch)
        self._batch = batch

    @classmethod
    def from_data(cls, data: Any, dims: Sequence[int], batch: int = 1) -> Tensor:
        """Makes a tensor of values in primitiv order: the first index runs fastest, the batch slowest.

        >>> from weighbridge import primitiv
        >>> primitiv.Tensor.from_data([1, 2, 3, 4, 5, 6], [2, 3]).numpy().tolist()
        [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
        """
        import numpy

        shape = Shape(dims, batch)
        flat = numpy.asarray(data)
        if flat.size != shape.size:
            raise MismatchError(
                "the number of values does not match the shape",
                code="length-mismatch",
                expected=str(shape.size),
                found=str(flat.size),
            )
        return cls(flat.reshape(shape.array_shape, order="F"), batch)

    @classmethod
    def of(cls, stored: Stored) -> Tensor:
        """Makes a tensor of one in an opened checkpoint, as a writable copy."""
        return cls(stored.__array__(copy=True), stored.attributes.get("batch", 1))

    @classmethod
    def open(cls, path: Path, *, lenient: bool = False) -> Tensor:
        """Reads a tensor file. primitiv documents these files, but never writes them itself."""
        with open_for(path, format="primitiv", lenient=lenient) as opened:
            expect_kind(opened, "tensor")
            return cls.of(opened["value"])

    @property
    def shape(self) -> Shape:
        """Shape with batch."""
        array_shape = self._array.shape
        return Shape(array_shape[:-1] if self._batch > 1 else array_shape, self._batch)

    @property
    def batch(self) -> int:
        """Number of tensors in the batch."""
        return self._batch

    def numpy(self) -> ndarray:
        """Returns the values: the array itself, which may be changed in place."""
        return self._array

    @property
    def data(self) -> ndarray:
        """Values in primitiv order, as a flat view."""
        return self._array.reshape(-1, order="F")

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> ndarray:
        if dtype is not None and dtype != self._array.dtype:
            if copy is False:
                raise ValueError("a conversion to another dtype needs a copy")
            return self._array.astype(dtype)
        return self._array.copy(order="F") if copy else self._array

    def __getitem__(self, index: Any) -> Any:
        return self._array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value

    def __len__(self) -> int:
        return len(self._array)

    def __eq__(self, other: object) -> bool:
        """Returns true if shape and bits are equal: a NaN equals itself, and -0 differs from 0."""
        if not isinstance(other, Tensor):
            return NotImplemented
        return self.shape == other.shape and self._array.tobytes("F") == other._array.tobytes("F")

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes a tensor file, atomically."""
        write(path, [self.given(("value",), None)], "primitiv", "tensor", force=force)

    def given(self, path: Tuple[Part, ...], slot: Optional[Part]) -> Given:
        """Converts to the form of the native part, under this path and optimizer slot."""
        made = entry(path, self._array)
        if self._batch > 1:
            made = batched(made, self._batch)
        return path, "parameter" if slot is None else "optimizer", slot, made, None

    def __repr__(self) -> str:
        return f"<Tensor: {self.shape!r}>"


def as_array(values: Any, batch: int = 1) -> ndarray:
    """Converts values to the form of primitiv: `float32`, without trailing dimensions of 1, in Fortran order, and writable.

    An array already in this form is not copied.
    """
    import numpy

    if isinstance(values, Stored):
        values = values.numpy()
    array = numpy.asarray(values)
    if not numpy.can_cast(array.dtype, numpy.float32, "same_kind"):
        raise UsageError(
            "primitiv supports float32 only", code="dtype", expected="float32", found=str(array.dtype)
        )
    dims = list(array.shape)
    if batch > 1 and (not dims or dims.pop() != batch):
        raise MismatchError(
            "the last dimension is not the batch",
            code="batch",
            expected=str(batch),
            found=str(list(array.shape)),
        )
    shape = Shape(dims, batch)
    array = numpy.asarray(array, dtype=numpy.float32, order="F")
    if array.shape != shape.array_shape:
        array = array.reshape(shape.array_shape, order="F")
    return array if array.flags.writeable and array.flags.aligned else array.copy(order="F")


def expect_kind(opened: Any, kind: str) -> None:
    """Raises `MismatchError` if an opened file has another kind."""
    if opened.kind != kind:
        raise MismatchError(
            f"not a primitiv {kind} file",
            code="wrong-kind",
            file=opened.path,
            expected=kind,
            found=opened.kind,
        )
