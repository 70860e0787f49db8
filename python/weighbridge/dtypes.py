"""Dtypes: their names here, in numpy, `ml_dtypes` and torch.

>>> from weighbridge.dtypes import from_numpy
>>> import numpy
>>> from_numpy(numpy.dtype("float32"))
'f32'
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

from .errors import MissingPackageError, UnsupportedError

if TYPE_CHECKING:
    import numpy
    import torch

DType = Union[str, type, "numpy.dtype", "torch.dtype"]
"""A dtype: a name, as here (`f16`), in numpy or torch (`float16`) or in safetensors (`F16`); or a dtype object:
`numpy.float16`, `numpy.dtype("f2")`, `torch.float16`.
"""

CASTS: Tuple[str, ...] = ("f16", "bf16", "f32", "f64", "f8_e4m3", "f8_e5m2", "i8")
"""Dtypes supported as cast targets."""

NUMPY: Dict[str, str] = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
"""Names in numpy."""

ML_DTYPES: Dict[str, str] = {
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
}
"""Names in the package `ml_dtypes`, which extends numpy."""

TORCH: Dict[str, str] = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
}
"""Names in torch; older versions lack some of them."""

BUFFER: Dict[str, str] = {
    "bool": "?",
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "u64": "Q",
    "i64": "q",
    "f32": "f",
    "f64": "d",
}
"""Format characters of dtypes that `memoryview` supports in every version of Python."""

_MARKERS: Dict[str, str] = {"numpy": "ndarray", "torch": "Tensor", "paddle": "Tensor"}
"""An attribute of each library. A folder or script of the same name, earlier on the import path, lacks it."""

NAMES: Dict[str, str] = {
    **{name: own for own, name in NUMPY.items()},
    **{name: own for own, name in ML_DTYPES.items()},
}
"""Names here, by the names in numpy and `ml_dtypes`."""


def need(package: str, what: str, install: Optional[str] = None, otherwise: str = "") -> Any:
    """Imports a package; raises `MissingPackageError` if that fails. `what` is the feature that needs it.

    >>> need("no_such_one", "this example")
    Traceback (most recent call last):
    weighbridge.errors.MissingPackageError: the package no_such_one, required for this example, cannot be imported
      found:    No module named 'no_such_one'
      hint:     pip install no_such_one
    """
    from importlib import import_module

    cause: Optional[ImportError] = None
    try:
        module = import_module(package)
        if package not in _MARKERS or hasattr(module, _MARKERS[package]):
            return module
        found = f"{_place(module)}, another module of that name"
    except ImportError as error:
        cause, found = error, str(error)
    missing = MissingPackageError(
        f"the package {package}, required for {what}, cannot be imported",
        code=f"no-{package}",
        found=found,
        hint=f"pip install {install or package}{otherwise}",
    )
    missing.name = package
    raise missing from cause


def imported(package: str) -> Any:
    """Returns the package if it is already imported and is the real library, not a folder of that name; else `None`.

    >>> imported("no_such_one") is None
    True
    """
    module = sys.modules.get(package)
    return module if hasattr(module, _MARKERS.get(package, "__name__")) else None


def _place(module: Any) -> str:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return next((place for place in places if place), "a module without a file")


def need_numpy() -> None:
    """Raises `MissingPackageError` if numpy cannot be imported."""
    need(
        "numpy",
        "arrays",
        otherwise="; tensor.bytes(), tensor.memoryview() and all verbs work without it",
    )


def to_numpy(dtype: str, tensor: Optional[str] = None) -> numpy.dtype:
    """Returns the numpy dtype for `dtype`.

    Raises `UnsupportedError` if numpy has none: `ml_dtypes` is not installed, or elements are smaller than a byte.

    >>> to_numpy("i64")
    dtype('int64')
    """
    need_numpy()
    import numpy

    name = NUMPY.get(dtype)
    if name is not None:
        return numpy.dtype(name)
    name = ML_DTYPES.get(dtype)
    ways = 'convert the elements with tensor.cast("f32"), or use tensor.bytes()'
    if name is None:
        raise UnsupportedError(
            f"numpy has no dtype for {dtype}: its elements are smaller than a byte",
            code="no-numpy-dtype",
            tensor=tensor,
            hint="use tensor.bytes()",
        )
    found: Any = None
    lacks = "is too old"
    try:
        import ml_dtypes

        found = getattr(ml_dtypes, name, None)
    except ImportError:
        lacks = "is not installed"
    if found is None:
        raise UnsupportedError(
            f"numpy has no dtype for {dtype}; the package ml_dtypes, which adds it, {lacks}",
            code="no-numpy-dtype",
            tensor=tensor,
            hint=f"pip install -U ml_dtypes; or {ways}",
        )
    added: numpy.dtype = numpy.dtype(found)
    return added


def from_numpy(dtype: numpy.dtype) -> Optional[str]:
    """Returns the dtype name for a numpy dtype of either byte order; `None` if there is none.

    >>> import numpy
    >>> from_numpy(numpy.dtype(">i4")), from_numpy(numpy.dtype("datetime64[s]"))
    ('i32', None)
    """
    return NAMES.get(dtype.name)


def spelling(dtype: object) -> Optional[str]:
    """Returns the name of a dtype object in its own library; `None` for other objects. Imports no library.

    >>> import numpy
    >>> spelling(numpy.float16), spelling(numpy.dtype("<f8")), spelling(float)
    ('float16', 'float64', None)
    """
    is_class = isinstance(dtype, type)
    library = (dtype.__module__ if isinstance(dtype, type) else type(dtype).__module__).partition(".")[0]
    if library in ("torch", "paddle") and not is_class:
        text = str(dtype)
        return text if text.startswith(f"{library}.") else None
    if library in ("numpy", "ml_dtypes", "jax"):
        name = getattr(dtype, "__name__" if is_class else "name", None)
        # numpy 1 names its boolean `bool_`.
        return name.rstrip("_") if isinstance(name, str) else None
    return None
