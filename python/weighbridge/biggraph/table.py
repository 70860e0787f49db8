"""Tables of embeddings: a row for each entity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .._weighbridge import Labels
from ..dtypes import need
from ..errors import MismatchError, UnknownNameError
from ..tensor import Tensor

if TYPE_CHECKING:
    import pyarrow as _pyarrow
    import torch as _torch
    from numpy import ndarray

Rows = Union[int, slice, str, Sequence[str], Sequence[int], "ndarray"]
"""What picks rows: a number, a slice, a name, or a list of numbers or names."""


class Table:
    """The embeddings of one type of entities, whatever the number of their partitions.

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
        """The type of the entities."""
        return self._name

    @property
    def tensor(self) -> Tensor:
        """The rows as a tensor."""
        return self._tensor

    @property
    def dimension(self) -> int:
        """The number of columns."""
        return self._tensor.shape[1]

    @property
    def dtype(self) -> str:
        """The type of the elements: `f32`, unless it was made elsewhere."""
        return self._tensor.dtype

    @property
    def shape(self) -> Tuple[int, ...]:
        """Rows and columns."""
        return self._tensor.shape

    @property
    def names(self) -> Optional[Labels]:
        """The names of the rows, as `str`, read at the first use; `None` where they are not known."""
        return self._tensor.labels

    @property
    def partitions(self) -> List[Optional[int]]:
        """The rows of each partition, in order; `None` for one that is not there."""
        return list(self._counts)

    @property
    def state(self) -> Dict[str, Tensor]:
        """What the optimizer keeps for the rows, by slot: `sum` of row-wise Adagrad, a number for each."""
        return dict(self._slots)

    def row_of(self, name: str) -> int:
        """The row of the entity of that name; raises `UnknownNameError`, a `KeyError`, where there is none, and
        `MismatchError` where several rows have it: `names.index(name, start)` finds each.
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
        """The rows of these entities; `None` for those that there are not. Raises as `row_of` where several rows have
        one name.
        """
        known = self._known_names()
        try:
            return known.rows_of(list(names))
        except MismatchError as error:
            error.tensor = self._name
            raise

    def _known_names(self) -> Labels:
        names = self.names
        if names is None:
            raise MismatchError(
                "the names of the rows are not known",
                code="no-names",
                tensor=self._name,
                hint="open with entities=FOLDER, the folder of entities",
            )
        return names

    def __len__(self) -> int:
        return self._tensor.shape[0]

    def __contains__(self, name: object) -> bool:
        return name in self._known_names()

    def __getitem__(self, rows: Any) -> Any:
        """The rows that are meant, as read-only arrays. Only these are read; other indices are those of
        numpy.
        """
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
        """All rows as a read-only array, without a copy where there is one partition."""
        return self._tensor.numpy()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> ndarray:
        return self._tensor.__array__(dtype, copy)

    def torch(self, copy: bool = True, device: Union[_torch.device, str, int, None] = None) -> _torch.Tensor:
        """All rows as a tensor of torch, which must be installed: see `Tensor.torch`."""
        return self._tensor.torch(copy, device)

    def to_dict(self) -> Dict[str, ndarray]:
        """The rows by name, as views of one array."""
        return dict(zip(self._known_names(), self.numpy()))

    def to_arrow(self) -> _pyarrow.Table:
        """A table of Arrow with the columns `name`, where the names are known, and `embedding`, a list of
        fixed size.

        The package `pyarrow` must be installed.
        """
        pyarrow: Any = need("pyarrow", "a table of Arrow")
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
