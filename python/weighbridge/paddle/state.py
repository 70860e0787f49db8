"""Objects of `paddle.save` and `paddle.load`: nested dicts and lists with tensors."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from .. import dtypes
from .._weighbridge import named_variable, state_structure
from ..opened import Checkpoint, Path, index_of, known_options, open_for
from ..opened import open as _open
from ..errors import MismatchError, UsageError
from ..progress import Progress
from ..saving import entry
from ..tensor import Part, Tensor
from ..writing import Given, write

if TYPE_CHECKING:
    import numpy

_TABLE = "StructuredToParameterName@@"
_TENSORS = ("@tensor", "@pair", "@array", "@lod")
_BFLOAT16 = ("uint16", "ml_dtypes", "float32")
_MAX_DEPTH = 200


class Inert(str):
    """Name of an object in a pickle that is not a plain value, such as a class or a function. It is never created or called."""

    def __repr__(self) -> str:
        return f"<Inert {str(self)!r}>"


def load(
    path: Path, *, bfloat16: str = "uint16", copy: bool = False, keep_name_table: bool = False, **options: Any
) -> Any:
    """Loads a saved object with numpy arrays instead of tensors, as `paddle.load(path, return_numpy=True)` does.

    For files other than pickles (`.pdiparams`, model folders, single tensors) returns a dict of arrays by name.

    - `bfloat16`: representation of bf16: `uint16`, as in Paddle's own arrays; `ml_dtypes`; or `float32`;
    - `copy`: return writable copies; by default arrays are read-only, over the mapped file if possible;
    - `keep_name_table`: keep the variable names of the tensors, under the key `StructuredToParameterName@@`;
    - `options`: those of `weighbridge.open`.

    >>> import numpy
    >>> from weighbridge import paddle
    >>> paddle.save({"epoch": 3, "layers": [numpy.zeros(2), (numpy.ones(1), "relu")]}, "any.pdt")
    >>> paddle.load("any.pdt")
    {'epoch': 3, 'layers': [array([0., 0.]), (array([1.]), 'relu')]}
    """
    _check_bfloat16(bfloat16)
    known_options(options, "load", "bfloat16", "copy", "keep_name_table")
    with _open(path, **{"format": "paddle", **options}) as opened:
        structure = state_structure(index_of(opened))
        if structure is None:
            _has_parameters(opened)
            return {name: _array(tensor, bfloat16, copy) for name, tensor in opened.items()}
        loaded = _Reader(opened, bfloat16, copy, keep_name_table).value(structure)
        # A table with keys other than text is loaded as an ordinary dict.
        if isinstance(loaded, dict) and not keep_name_table:
            loaded.pop(_TABLE, None)
        return loaded


def load_params(
    model: Path,
    params: Optional[Path] = None,
    *,
    names: str = "variable",
    bfloat16: str = "uint16",
    copy: bool = False,
) -> Dict[str, numpy.ndarray]:
    """Loads the parameters of an inference model, by their variable names in the program.

    - `model`: the program (`x.pdmodel`, `x.json`, `__model__`) or the folder of the model;
    - `params`: the parameter file, if it is not next to the program;
    - `names`: `"structured"` returns the names in the layer, if known;
    - `bfloat16`, `copy`: as for `load`.
    """
    _check_bfloat16(bfloat16)
    if params is None:
        opened = open_for(model, format="paddle", names=names)
    else:
        opened = open_for(params, format="paddle", program=model, names=names)
    with opened:
        _has_parameters(opened)
        return {name: _array(tensor, bfloat16, copy) for name, tensor in opened.items()}


def save(
    obj: Any,
    path: Path,
    protocol: int = 4,
    *,
    bfloat16: bool = False,
    numpy_version: int = 1,
    force: bool = False,
    progress: Progress = None,
) -> None:
    """Writes the same file as `paddle.save(obj, path)`, atomically; for a state of Paddle tensors it is equal byte by byte.

    `obj` is a dict of arrays by name, or any nesting of dicts, lists, tuples, plain values and arrays. Arrays are those of
    numpy, torch or Paddle, or tensors of an opened checkpoint; `paddle.load` loads all of them as tensors. As with
    `paddle.save` itself, numpy arrays stay arrays in two cases: together with Paddle tensors, and in a dict of dicts only. An
    array referenced several times is written several times.

    - `protocol`: pickle protocol: 2, 3 or 4;
    - `bfloat16`: store `uint16` arrays as bf16, which is how Paddle reads them; without it they are an error;
    - `numpy_version`: 2 writes a file that only numpy 2 can read;
    - `force`: replace an existing file;
    - `progress`: `True` for a bar, or a function of the bytes done and the total bytes.

    >>> import numpy
    >>> from weighbridge import paddle
    >>> paddle.save({"w": numpy.arange(3, dtype="float32")}, "w.pdparams", force=True)
    >>> paddle.load("w.pdparams")["w"]
    array([0., 1., 2.], dtype=float32)
    """
    writer = _Writer(bfloat16)
    structure = writer.root(obj)
    settings = {"protocol": protocol, "numpy": numpy_version}
    write(
        path,
        writer.tensors,
        "paddle",
        "state",
        metadata={"paddle.structure": structure},
        settings=settings,
        force=force,
        progress=progress,
    )


def _has_parameters(opened: Checkpoint) -> None:
    """Raises for a program without its parameter file: the result would be empty."""
    missing = [note.text for note in opened.notes if note.code == "parameters-missing"]
    if missing and not len(opened):
        raise MismatchError(missing[0], code="parameters-missing", file=opened.path)


def _check_bfloat16(word: str) -> None:
    if word not in _BFLOAT16:
        raise UsageError(
            "unknown representation of bf16", code="bad-bfloat16", expected=", ".join(_BFLOAT16), found=word
        )


def _array(tensor: Tensor, bfloat16: str, copy: bool) -> numpy.ndarray:
    if tensor.dtype == "bf16":
        if bfloat16 == "float32":
            tensor = tensor.cast("f32")
        elif bfloat16 == "uint16":
            import numpy

            bits = numpy.frombuffer(tensor.bytes(), "uint16").reshape(tensor.shape)
            return bits.copy() if copy else bits
    return tensor.__array__(copy=True) if copy else tensor.numpy()


class _Reader:
    """Rebuilds the saved object from its structure."""

    def __init__(self, opened: Checkpoint, bfloat16: str, copy: bool, keep_name_table: bool) -> None:
        self.opened = opened
        self.metadata = opened.metadata
        self.bfloat16 = bfloat16
        self.copy = copy
        self.keep = keep_name_table

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if not isinstance(value, dict):
            return value
        marker = next(iter(value), "")
        if marker.startswith("@"):
            return self.marked(marker, value[marker], value)
        return self.dict(value.items())

    def dict(self, pairs: Any) -> Dict[Any, Any]:
        found: Dict[Any, Any] = {}
        for key, value in pairs:
            if isinstance(value, dict) and next(iter(value), "") == "@names":
                if self.keep:
                    found[self.key(key)] = self.names(value["@names"])
                continue
            found[self.key(key)] = self.value(value)
        return found

    def key(self, key: Any) -> Any:
        made = self.value(key)
        try:
            hash(made)
        except TypeError:
            return Inert(repr(made))
        return made

    def names(self, table: Optional[List[Any]]) -> Dict[str, str]:
        if table is None:
            return {
                name: tensor.attributes.get("variable_name", name) for name, tensor in self.opened.items()
            }
        return {
            one if isinstance(one, str) else one[0]: one if isinstance(one, str) else one[1] for one in table
        }

    def marked(self, marker: str, inner: Any, value: Dict[str, Any]) -> Any:
        if marker in _TENSORS:
            return _array(self.opened[inner], self.bfloat16, self.copy)
        if marker == "@tuple":
            return tuple(self.value(one) for one in inner)
        if marker in ("@dict", "@ordered"):
            pairs = inner.items() if isinstance(inner, dict) else inner
            return OrderedDict(self.dict(pairs)) if marker == "@ordered" else self.dict(pairs)
        if marker in ("@set", "@frozenset"):
            items = [self.key(one) for one in inner]
            return set(items) if marker == "@set" else frozenset(items)
        if marker == "@metadata":
            return self.value(self.metadata[inner])
        if marker == "@integer":
            return int.from_bytes(inner, "little", signed=True)
        if marker == "@scalar":
            return self.scalar(inner, value["bytes"])
        if marker in ("@global", "@object"):
            return Inert(inner)
        return Inert(f"unknown object: {marker}")

    def scalar(self, dtype: str, content: bytes) -> Any:
        import numpy

        if dtype == "bf16" and self.bfloat16 == "uint16":
            return numpy.frombuffer(content, "uint16")[0]
        return numpy.frombuffer(content, dtypes.to_numpy(dtype, "a scalar"))[0]


class _Writer:
    """Splits an object into its tensors and its structure."""

    def __init__(self, bfloat16: bool) -> None:
        self.bfloat16 = bfloat16
        self.tensors: List[Given] = []
        self.seen: Dict[str, int] = {}
        self.form = "@tensor"
        self.mixed = False
        self.table: Mapping[Any, Any] = {}

    def root(self, obj: Any) -> Any:
        plain = isinstance(obj, Mapping) and all(
            isinstance(key, str) and (_is_tensor(value) or not _holds(value, _is_tensor))
            for key, value in obj.items()
        )
        # Paddle does not save a dict with both as a state dict, and its `load` returns the arrays as arrays.
        self.mixed = _holds(obj, _is_of_paddle) and _holds(obj, _is_of_numpy)
        if _of_dicts_of_arrays(obj):
            # For Paddle also a state dict, but without tensors: its table is empty, and arrays stay arrays.
            self.form = "@array"
            return self.value({**{key: obj[key] for key in obj if key != _TABLE}, _TABLE: {}}, ())
        if not plain or self.mixed:
            return self.value(obj, ())
        # A state dict: arrays, and a table of those that are tensors.
        self.form = "@array"
        table = obj.get(_TABLE)
        self.table = table if isinstance(table, Mapping) else {}
        pairs = {key: self.value(value, (key,)) for key, value in obj.items() if key != _TABLE}
        pairs[_TABLE] = {"@names": None}
        return self.named(pairs)

    def variable(self, value: Any, path: Tuple[str, ...]) -> Optional[str]:
        """Returns the variable name of a tensor, if known."""
        known = self.table.get(path[0]) if len(path) == 1 else None
        if known is None and _is_of_paddle(value):
            known = value.name
        if known is None and isinstance(value, Tensor):
            known = value.attributes.get("variable_name")
        return known if isinstance(known, str) else None

    @staticmethod
    def named(pairs: Dict[str, Any], ordered: bool = False) -> Any:
        if ordered:
            return {"@ordered": pairs}
        return {"@dict": pairs} if next(iter(pairs), "").startswith("@") else pairs

    def value(self, value: Any, path: Tuple[str, ...]) -> Any:
        if len(path) > _MAX_DEPTH:
            raise UsageError("the object is nested too deeply", code="too-deep", found=str(len(path)))
        if _is_tensor(value):
            form = "@array" if self.mixed and _is_of_numpy(value) else self.form
            return {form: self.tensor(value, path)}
        if isinstance(value, Mapping):
            return self.mapping(value, path)
        if isinstance(value, tuple):
            return {"@tuple": [self.value(one, (*path, str(place))) for place, one in enumerate(value)]}
        if isinstance(value, list):
            return [self.value(one, (*path, str(place))) for place, one in enumerate(value)]
        if _is_number(value):
            return {
                "@scalar": _dtype(value.dtype, path),
                "bytes": value.astype(value.dtype.newbyteorder("<")).tobytes(),
            }
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        raise UsageError(
            "unsupported type; use dicts, lists, tuples, plain values and arrays",
            code="not-plain",
            tensor=".".join(path) or None,
            found=type(value).__name__,
        )

    def mapping(self, value: Mapping[Any, Any], path: Tuple[str, ...]) -> Any:
        ordered = isinstance(value, OrderedDict)
        if all(isinstance(key, str) for key in value):
            return self.named({key: self.value(one, (*path, key)) for key, one in value.items()}, ordered)
        pairs = [[self.value(key, path), self.value(one, (*path, str(key)))] for key, one in value.items()]
        return {"@ordered" if ordered else "@dict": pairs}

    def tensor(self, value: Any, path: Tuple[str, ...]) -> str:
        # A key may contain dots, so different paths may have the same text: a number distinguishes them.
        name: Tuple[Part, ...] = tuple(part for key in path or ("value",) for part in key.split("."))
        text = ".".join(str(part) for part in name)
        count = self.seen[text] = self.seen.get(text, 0) + 1
        if count > 1:
            name = (*name[:-1], f"{name[-1]!s} ({count})")
        if (
            not isinstance(value, Tensor)
            and str(getattr(value, "dtype", "")) == "uint16"
            and not self.bfloat16
        ):
            raise MismatchError(
                "ambiguous uint16 array: Paddle reads uint16 as bf16",
                code="uint16",
                tensor=text,
                hint="pass bfloat16=True if the values are bf16, or cast the array",
            )
        made = entry(name, value)
        variable = self.variable(value, path)
        if variable is not None:
            made = named_variable(made, variable)
        self.tensors.append((name, "parameter", None, made, None))
        return made.name


def _is_tensor(value: Any) -> bool:
    if isinstance(value, Tensor) or _is_of(value, "torch") or _is_of_paddle(value):
        return True
    # numpy scalars also have the array protocol, but stay scalars.
    return (hasattr(value, "__array_interface__") or hasattr(value, "__array__")) and not _is_number(value)


def _is_of(value: Any, package: str) -> bool:
    return type(value).__module__.partition(".")[0] == package


def _is_of_paddle(value: Any) -> bool:
    return _is_of(value, "paddle")


def _is_of_numpy(value: Any) -> bool:
    """Returns true for a numpy array, including subclasses such as `numpy.memmap`."""
    numpy = sys.modules.get("numpy")
    # If numpy is not imported, the value is not a numpy array.
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_number(value: Any) -> bool:
    """Returns true for a numpy scalar; false for scalars of `ml_dtypes`, which are saved as 0-dimensional arrays."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and _is_of(value, "numpy")


def _of_dicts_of_arrays(obj: Any) -> bool:
    """Returns true for a dict of dicts only, with numpy arrays in them and no other tensors."""
    if not isinstance(obj, Mapping) or not all(isinstance(value, Mapping) for value in obj.values()):
        return False
    others = _holds(obj, lambda value: _is_tensor(value) and not _is_of_numpy(value))
    return not others and _holds(obj, _is_of_numpy)


def _holds(value: Any, wanted: Callable[[Any], bool], depth: int = 0) -> bool:
    """Returns true if a nested value satisfies `wanted`."""
    if depth > _MAX_DEPTH:
        raise UsageError("the object is nested too deeply", code="too-deep", found=str(depth))
    if isinstance(value, Mapping):
        return any(_holds(one, wanted, depth + 1) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds(one, wanted, depth + 1) for one in value)
    return wanted(value)


def _dtype(dtype: Any, path: Tuple[str, ...]) -> str:
    name = dtypes.from_numpy(dtype)
    if name is None:
        raise UsageError(
            "unsupported dtype of a scalar",
            code="unknown-dtype",
            tensor=".".join(path),
            found=str(dtype),
        )
    return name
