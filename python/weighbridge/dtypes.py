"""Element types: their names here, in numpy, and in `ml_dtypes`.

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
"""A type of elements: its name here (`f16`), in numpy or torch (`float16`) or in the header of safetensors (`F16`);
or the type itself: `numpy.float16`, `numpy.dtype("f2")`, `torch.float16`.
"""

CASTS: Tuple[str, ...] = ("f16", "bf16", "f32", "f64", "f8_e4m3", "f8_e5m2", "i8")
"""The types that casts go to."""

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
"""The types that numpy has by itself."""

ML_DTYPES: Dict[str, str] = {
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
}
"""Those that the package `ml_dtypes` adds to it."""

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
"""Their names in torch; which of them there are depends on its version."""

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
"""Those that a `memoryview` of every version of Python can show as numbers."""

_HAVE: Dict[str, str] = {"numpy": "ndarray", "torch": "Tensor", "paddle": "Tensor"}
"""What tells a library from a folder or a script of the same name, which may stand where Python looks first."""

NAMES: Dict[str, str] = {
    **{name: own for own, name in NUMPY.items()},
    **{name: own for own, name in ML_DTYPES.items()},
}
"""The names here, by those of numpy and `ml_dtypes`."""


def need(package: str, what: str, install: Optional[str] = None, otherwise: str = "") -> Any:
    """The module of that name; `MissingPackageError` where it cannot be imported.

    >>> need("no_such_one", "this")
    Traceback (most recent call last):
    weighbridge.errors.MissingPackageError: the package no_such_one is needed for this, and cannot be imported
      found:    No module named 'no_such_one'
      hint:     pip install no_such_one
    """
    from importlib import import_module

    cause: Optional[ImportError] = None
    try:
        module = import_module(package)
        if package not in _HAVE or hasattr(module, _HAVE[package]):
            return module
        found = f"{_place(module)}, which is another thing of that name"
    except ImportError as error:
        cause, found = error, str(error)
    missing = MissingPackageError(
        f"the package {package} is needed for {what}, and cannot be imported",
        code=f"no-{package}",
        found=found,
        hint=f"pip install {install or package}{otherwise}",
    )
    missing.name = package
    raise missing from cause


def imported(package: str) -> Any:
    """The module of that name where it was imported, and is the library: a folder of that name can be imported, too.

    >>> imported("no_such_one") is None
    True
    """
    module = sys.modules.get(package)
    return module if hasattr(module, _HAVE.get(package, "__name__")) else None


def _place(module: Any) -> str:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return next((place for place in places if place), "a module without a file")


def need_numpy() -> None:
    """Raises `MissingPackageError` where numpy cannot be imported."""
    need(
        "numpy",
        "arrays",
        otherwise="; without it there are tensor.bytes(), tensor.memoryview() and all verbs",
    )


def to_numpy(dtype: str, tensor: Optional[str] = None) -> numpy.dtype:
    """The type of numpy for `dtype`.

    Raises `UnsupportedError` where numpy has none: `ml_dtypes` is not installed, or elements share bytes.

    >>> to_numpy("i64")
    dtype('int64')
    """
    need_numpy()
    import numpy

    name = NUMPY.get(dtype)
    if name is not None:
        return numpy.dtype(name)
    name = ML_DTYPES.get(dtype)
    ways = 'ask for another type with tensor.cast("f32"), or take tensor.bytes()'
    if name is None:
        raise UnsupportedError(
            f"numpy has no type for {dtype}, whose elements share bytes",
            code="no-numpy-dtype",
            tensor=tensor,
            hint="take tensor.bytes()",
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
            f"numpy has no type for {dtype}, and the package ml_dtypes, which has one, {lacks}",
            code="no-numpy-dtype",
            tensor=tensor,
            hint=f"pip install -U ml_dtypes; or {ways}",
        )
    added: numpy.dtype = numpy.dtype(found)
    return added


def from_numpy(dtype: numpy.dtype) -> Optional[str]:
    """The name here of a type of numpy, whatever its byte order; `None` where there is none.

    >>> import numpy
    >>> from_numpy(numpy.dtype(">i4")), from_numpy(numpy.dtype("datetime64[s]"))
    ('i32', None)
    """
    return NAMES.get(dtype.name)


def spelling(dtype: object) -> Optional[str]:
    """How a type of elements is called by the library whose it is; `None` for what is no such type. No library is
    imported for that.

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
        # Numpy 1 sets its truth values apart from those of Python by a stroke.
        return name.rstrip("_") if isinstance(name, str) else None
    return None
