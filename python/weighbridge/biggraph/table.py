"""Embedding tables: one row per entity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .._weighbridge import RowNames
from ..dtypes import need
from ..errors import MismatchError, UnknownNameError
from ..tensor import Tensor

if TYPE_CHECKING:
    import pyarrow as _pyarrow
    import torch as _torch
    from numpy import ndarray

Rows = Union[int, slice, str, Sequence[str], Sequence[int], "ndarray"]
"""Selection of rows: a number, a slice, a name, or a list of numbers or names."""


class Table:
    """Embeddings of one entity type, joined from all partitions.

    >>> from weighbridge import biggraph
    >>> table = biggraph.open("graph")["user"]
    >>> table
    <Table user: 4 rows of 2 f32, with names>
    >>> table["bob"].tolist(), table[1:3].shape, "eve" in table
    ([2.0, 3.0], (2, 2), False)
    >>> table[["dan", "alice"]].tolist()
    [[6.0, 7.0], [0.0, 1.0]]
    """

    __slots__ = ("_counts", "_name", "_slots", "_tensor")

    def __init__(
        self,
        name: str,
        tensor: Tensor,
        slots: Optional[Mapping[str, Tensor]] = None,
        counts: Optional[Sequence[Optional[int]]] = None,
    ) -> None:
        self._name = name
        self._tensor = tensor
        self._slots = dict(slots or {})
        self._counts = list(counts) if counts is not None else [tensor.shape[0]]

    @property
    def name(self) -> str:
        """Entity type."""
        return self._name

    @property
    def tensor(self) -> Tensor:
        """Rows as a tensor."""
        return self._tensor

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return self._tensor.shape[1]

    @property
    def dtype(self) -> str:
        """Dtype of the elements: `f32` in files of BigGraph."""
        return self._tensor.dtype

    @property
    def shape(self) -> Tuple[int, ...]:
        """Numbers of rows and columns."""
        return self._tensor.shape

    @property
    def names(self) -> Optional[RowNames]:
        """Row names, as `str`, read at the first use; `None` if unknown."""
        return self._tensor.row_names

    @property
    def partitions(self) -> List[Optional[int]]:
        """Number of rows of each partition, in order; `None` for a missing partition."""
        return list(self._counts)

    @property
    def state(self) -> Dict[str, Tensor]:
        """Optimizer state of the rows, by slot: `sum` of row-wise Adagrad has one number per row."""
        return dict(self._slots)

    def row_of(self, name: str) -> int:
        """Returns the row of an entity.

        Raises `UnknownNameError`, a `KeyError`, if no row has this name, and `MismatchError` if several have it:
        `names.index(name, start)` finds each.
        """
        names = self._known_names()
        try:
            return names.row_of(name)
        except (KeyError, UnicodeEncodeError):
            raise UnknownNameError(
                "no entity has this name", code="no-such-entity", tensor=self._name, found=name
            ) from None
        except MismatchError as error:
            error.tensor = self._name
            raise

    def rows_of(self, names: Sequence[str]) -> List[Optional[int]]:
        """Returns the rows of entities, `None` for unknown names. Raises `MismatchError` for a name of several rows."""
        known = self._known_names()
        try:
            return known.rows_of(list(names))
        except MismatchError as error:
            error.tensor = self._name
            raise

    def _known_names(self) -> RowNames:
        names = self.names
        if names is None:
            raise MismatchError(
                "the row names are unknown",
                code="no-names",
                tensor=self._name,
                hint="pass entities=FOLDER, the folder of entities, to open()",
            )
        return names

    def __len__(self) -> int:
        return self._tensor.shape[0]

    def __contains__(self, name: object) -> bool:
        return name in self._known_names()

    def __getitem__(self, rows: Any) -> Any:
        """Returns rows as read-only arrays. Only these rows are read. Further indices are as in numpy."""
        if isinstance(rows, str):
            return self._tensor[self.row_of(rows)]
        if isinstance(rows, (list, tuple)) and rows and all(isinstance(row, str) for row in rows):
            return self.numpy()[[self.row_of(row) for row in rows]]
        if isinstance(rows, list) or hasattr(rows, "__array__"):
            return self.numpy()[rows]
        return self._tensor[rows]

    def __iter__(self) -> Iterator[ndarray]:
        return iter(self._tensor)

    def __bool__(self) -> bool:
        return True

    def numpy(self) -> ndarray:
        """Returns all rows as a read-only array, without a copy if there is one partition."""
        return self._tensor.numpy()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> ndarray:
        return self._tensor.__array__(dtype, copy)

    def torch(self, copy: bool = True, device: Union[_torch.device, str, int, None] = None) -> _torch.Tensor:
        """Returns all rows as a torch tensor. Needs torch: see `Tensor.torch`."""
        return self._tensor.torch(copy, device)

    def to_dict(self) -> Dict[str, ndarray]:
        """Returns the rows by name, as views of one array."""
        return dict(zip(self._known_names(), self.numpy()))

    def to_arrow(self) -> _pyarrow.Table:
        """Returns an Arrow table with the columns `name`, if names are known, and `embedding`, a fixed-size list.

        Needs the package `pyarrow`.
        """
        pyarrow: Any = need("pyarrow", "an Arrow table")
        values = self.numpy()
        flat = pyarrow.array(values.reshape(-1))
        columns = {}
        if self.names is not None:
            columns["name"] = pyarrow.array(list(self.names), pyarrow.string())
        columns["embedding"] = pyarrow.FixedSizeListArray.from_arrays(flat, self.dimension)
        return pyarrow.table(columns)

    def __repr__(self) -> str:
        from ..errors import visible

        known = ", with names" if self.names is not None else ""
        return f"<Table {visible(self._name)}: {len(self):,} rows of {self.dimension} {self.dtype}{known}>"
