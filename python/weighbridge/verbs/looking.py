"""`info`, `ls`, `show` and `stats`: the content of a file."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator, List, Literal, NamedTuple, Optional, Tuple, Union

from ..opened import Note, Path
from ..tensor import Part
from .given import NameStyle, Pairs, Some, run
from .report import Report, count, dimensions, named, notes, number, parts_of, picked, table


class Tally(NamedTuple):
    """Totals of a group of tensors."""

    tensors: int
    elements: int
    bytes: int


class Info(Report):
    """Summary of a file."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._document["path"]

    @property
    def format(self) -> str:
        """Id of the format, such as `safetensors`."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Kind of file within the format."""
        return self._document["kind"]

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return self._document["tensors"]

    @property
    def parameters(self) -> int:
        """Number of trained elements: without buffers, and with tied tensors counted once."""
        return self._document["parameters"]

    @cached_property
    def tied(self) -> Dict[str, str]:
        """Tensors that share the bytes of an earlier one, with the name of that tensor."""
        return {own["name"]: own["of"] for own in self._document["tied"]}

    @property
    def bytes(self) -> int:
        """Size of all tensors together, in bytes."""
        return self._document["bytes"]

    @property
    def file_bytes(self) -> int:
        """Size of all files together, in bytes."""
        return self._document["file_bytes"]

    @property
    def others(self) -> List[str]:
        """Names of the files beside the model in its folder, such as `config.json`."""
        return self._document.get("others", [])

    @cached_property
    def roles(self) -> Dict[str, Tally]:
        """Totals by role, such as `parameter`."""
        return {name: picked(Tally, tally) for name, tally in self._document["roles"].items()}

    @cached_property
    def dtypes(self) -> Dict[str, Tally]:
        """Totals by dtype."""
        return {name: picked(Tally, tally) for name, tally in self._document["dtypes"].items()}

    @property
    def metadata(self) -> Dict[str, Any]:
        """Metadata besides the tensors."""
        return self.to_dict()["metadata"]

    @property
    def damage(self) -> Optional[Dict[str, Any]]:
        """Damage report of a salvaged file; else `None`."""
        return self.to_dict().get("damage")

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes about the file."""
        return notes(self._document)

    def _summary(self) -> str:
        form, tensors = f"{self.format} {self.kind}", count(self.tensors, "tensor")
        return f"{self.path}: {form}, {tensors}, {self.parameters:,} parameters, {self.bytes:,} bytes"


def info(
    path: Path,
    *,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> Info:
    """Summarizes a file or folder: format, number and size of tensors, metadata and notes.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.info("net.safetensors")
    <Info net.safetensors: safetensors single, 3 tensors, 14 parameters, 64 bytes>
    """
    return Info(*run("info", locals()))


class Listed(NamedTuple):
    """A tensor in a listing."""

    name: str
    path: Tuple[Part, ...]
    role: str
    slot: Optional[Part]
    dtype: str
    shape: Tuple[int, ...]
    order: str
    bytes: int
    sha256: Optional[str]
    """SHA-256 of the elements, with `hash=True`. Equal tensors have equal hashes in every format."""
    extents: Optional[Tuple[Dict[str, Any], ...]]
    """Byte ranges of the elements, with `extents=True`; the key in JSON is `pieces`."""

    @property
    def pieces(self) -> Optional[Tuple[Dict[str, Any], ...]]:
        """Old name of `extents`."""
        return self.extents


class Listing(Report):
    """Tensors of a file."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._document["path"]

    @property
    def format(self) -> str:
        """Id of the format, such as `safetensors`."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Kind of file within the format."""
        return self._document["kind"]

    @cached_property
    def tensors(self) -> Tuple[Listed, ...]:
        """Tensors, in file order."""
        return tuple(_listed(tensor) for tensor in self._document["tensors"])

    @cached_property
    def groups(self) -> Dict[str, Tally]:
        """Totals by prefix of N parts, with `group=N`."""
        return {own["name"]: picked(Tally, own) for own in self._document.get("groups", [])}

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes about the file."""
        return notes(self._document)

    def __len__(self) -> int:
        return len(self._document["tensors"])

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Listed:
        return named(self.tensors, name)

    def __iter__(self) -> Iterator[Listed]:
        return iter(self.tensors)

    def _summary(self) -> str:
        return f"{self.path}: {self.format} {self.kind}, {count(len(self), 'tensor')}"

    def _repr_html_(self) -> str:
        heads = ("name", "role", "dtype", "shape", "bytes")
        rows = ((t.name, t.role, t.dtype, dimensions(t.shape), t.bytes) for t in self.tensors)
        return table(self._summary(), heads, rows, len(self))


def _listed(tensor: Dict[str, Any]) -> Listed:
    slot = tensor.get("slot")
    own = parts_of((slot,))[0] if slot is not None else None
    listed = picked(Listed, {**tensor, "extents": tensor.get("pieces")})
    return listed._replace(path=parts_of(tensor["path"]), slot=own)


def ls(
    path: Path,
    *,
    select: Some = None,
    drop: Some = None,
    sort: Optional[Literal["name", "size", "dtype"]] = None,
    group: Optional[int] = None,
    hash: bool = False,  # noqa: A002
    extents: bool = False,
    pieces: bool = False,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> Listing:
    """Lists the tensors of a file or folder.

    - `select`, `drop`: keep or drop tensors whose names match one of these patterns (`*` matches any characters);
    - `sort`: sort by name, by size (largest first) or by dtype;
    - `group`: add `groups`: totals by the first N parts of the names;
    - `hash`: add the SHA-256 of the elements of each tensor;
    - `extents`: add the byte ranges of each tensor (`pieces` is the old name of this argument).

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> listing = weighbridge.ls("net.safetensors", select="fc1.*", hash=True)
    >>> [(tensor.name, tensor.shape, tensor.sha256[:8]) for tensor in listing]
    [('fc1.bias', (2,), '872d303e'), ('fc1.weight', (4, 3), '29e18891')]
    """
    given = dict(locals())
    given["extents"] = given.pop("pieces") or extents
    return Listing(*run("ls", given))


class Shown(Report):
    """Values of a tensor, or of a slice of it."""

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self._document["name"]

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self._document["dtype"]

    @property
    def shape(self) -> Tuple[int, ...]:
        """Shape of the slice."""
        return tuple(self._document["shape"])

    @cached_property
    def values(self) -> Any:
        """Values as nested lists of numbers."""
        return _values(self._document["values"], len(self.shape), self.dtype in ("c64", "c128"))

    def _summary(self) -> str:
        return f"{self.name}: {self.dtype} {list(self.shape)}"


def _values(value: Any, depth: int, is_complex: bool) -> Any:
    if depth > 0:
        return [_values(own, depth - 1, is_complex) for own in value]
    if is_complex:
        return complex(number(value[0]) or 0.0, number(value[1]) or 0.0)
    return number(value)


def show(
    path: Path,
    name: Optional[str] = None,
    *,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> Shown:
    """Returns the values of a tensor, or of a slice after its name: at most a million values.

    `name` may be omitted for a file with a single tensor. To get arrays, use `weighbridge.open(path)[name][...]`.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.show("net.safetensors", "fc1.weight[1:3, ::2]").values
    [[3.0, 5.0], [6.0, 8.0]]
    """
    return Shown(*run("show", locals()))


class Histogram(NamedTuple):
    """Counts of values in equal bins from `min` to `max`."""

    min: float
    max: float
    counts: Tuple[int, ...]


class TensorStats(NamedTuple):
    """Statistics of a tensor. Range, mean and standard deviation are over the finite values."""

    name: str
    path: Tuple[Part, ...]
    dtype: str
    count: int  # type: ignore[assignment]
    finite: int
    min: Union[None, int, float]
    max: Union[None, int, float]
    mean: Optional[float]
    std: Optional[float]
    zeros: int
    nan: int
    pos_inf: int
    neg_inf: int
    subnormal: int
    all_equal: bool
    histogram: Optional[Histogram]


class StatsReport(Report):
    """Statistics of tensors: by name, or in order in `tensors`."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._document["path"]

    @cached_property
    def tensors(self) -> Tuple[TensorStats, ...]:
        """Tensors, in file order."""
        return tuple(_stats(tensor) for tensor in self._document["tensors"])

    def __getitem__(self, name: str) -> TensorStats:
        return named(self.tensors, name)

    def __len__(self) -> int:
        return len(self._document["tensors"])

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TensorStats]:
        return iter(self.tensors)

    def _summary(self) -> str:
        return f"{self.path}: {count(len(self), 'tensor')}"

    def _repr_html_(self) -> str:
        heads = ("name", "dtype", "count", "min", "max", "mean", "std", "zeros", "NaN", "Inf")
        rows: Iterator[List[object]] = (
            [t.name, t.dtype, t.count, t.min, t.max, t.mean, t.std, t.zeros, t.nan, t.pos_inf + t.neg_inf]
            for t in self.tensors
        )
        return table(self._summary(), heads, rows, len(self))


def _stats(tensor: Dict[str, Any]) -> TensorStats:
    drawn = tensor.get("histogram")
    found = picked(TensorStats, tensor)
    return found._replace(
        path=parts_of(tensor["path"]),
        min=number(found.min),
        max=number(found.max),
        histogram=None if drawn is None else picked(Histogram, drawn),
    )


def stats(
    path: Path,
    name: Optional[str] = None,
    *,
    bins: int = 20,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> StatsReport:
    """Computes statistics of the tensor `name`, of all tensors that match it as a pattern, or of all tensors.

    The statistics are minimum, maximum, mean, standard deviation, counts of zeros, NaN and infinities, and a histogram.

    - `bins`: number of bins of the histogram.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> report = weighbridge.stats("net.safetensors", "fc1.*", bins=2)
    >>> report["fc1.weight"].mean, report["fc1.weight"].histogram.counts
    (5.5, (6, 6))
    """
    return StatsReport(*run("stats", locals()))
