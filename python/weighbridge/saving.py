"""Writing of tensors in memory or in other files, and loading of whole files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Tuple, Union, overload

from . import dtypes
from ._weighbridge import Entry, entry_of_array, entry_of_bytes, entry_of_dlpack, save_tensors
from .opened import Checkpoint, Name, Path, entry_of, index_of, known_options, open
from .checks import cast_name, mapping, optional_text, path_text, whole
from .errors import ArgumentTypeError, Error, UnsupportedError, UsageError, naming, wrong_type
from .progress import Progress, callback
from .tensor import Part, Tensor
from .verbs.converting import SaveReport
from .verbs.report import warned

if TYPE_CHECKING:
    import numpy
    import torch

Role = Union[str, Tuple[str, Part]]
"""`parameter`, `buffer`, `embedding`, `edges`, `names`, `other`, or `("optimizer", SLOT)`."""


def save(
    path: Path,
    tensors: Mapping[Name, Any],
    format: Optional[str] = None,  # noqa: A002
    metadata: Optional[Mapping[str, Any]] = None,
    force: bool = False,
    roles: Optional[Mapping[Name, Role]] = None,
    *,
    row_names: Optional[Mapping[Name, Sequence[str]]] = None,
    labels: Optional[Mapping[Name, Sequence[str]]] = None,
    kind: Optional[str] = None,
    settings: Optional[Mapping[str, Any]] = None,
    cast: Optional[dtypes.DType] = None,
    rounding: str = "nearest",
    seed: int = 0,
    deny_loss: bool = False,
    threads: int = 0,
    memory: int = 256 << 20,
    sync: bool = True,
    progress: Progress = None,
) -> SaveReport:
    """Writes `tensors` to the file or folder `path`, atomically.

    Returns a report of the files and losses, as `convert` does. Omitted content raises a `LossWarning`.

    A name is text whose dots separate its parts, or a tuple of the parts. A value is a `Tensor` of an opened checkpoint, whose
    bytes are copied from file to file, or an object with the array, buffer or DLPack protocol: numpy, torch, PaddlePaddle,
    `bytes` and so on. A whole `Checkpoint` is written with all its content.

    - `format`: id of the format; chosen by the extension by default;
    - `metadata`: metadata besides the tensors; most formats store text, some typed values;
    - `force`: replace an existing target;
    - `roles`: roles of tensors, by name; the default is `parameter`, or the own role of a `Tensor`;
    - `row_names`: row names of tables, by tensor name (`labels` is the old name of this argument);
    - `kind`, `settings`: kind of file within the format, and its settings (`weighbridge.formats()` lists the settings);
      as `--kind` and `--set` of the command;
    - `cast`, `rounding`: cast all floating-point tensors, as `Tensor.cast` does;
    - `seed`: seed for random values;
    - `deny_loss`: raise an error if the format cannot represent everything;
    - `threads`, `memory`, `sync`: number of workers (0: one per processor), bytes for buffers, wait for the disk (fsync);
    - `progress`: `True` for a bar, or a function of the bytes done and the total bytes.

    >>> import weighbridge
    >>> tensors = weighbridge.open("net.safetensors")
    >>> report = weighbridge.save("net.npz", {"w": tensors["fc1.weight"], "id": b"abc"})
    >>> report.format, report.losses
    ('npz', ())
    >>> weighbridge.load("net.npz")["id"]
    array([97, 98, 99], dtype=uint8)
    """
    _check(format=format, kind=kind, rounding=rounding)
    if row_names is None:
        row_names = labels
    for number, what in ((seed, "seed"), (threads, "threads"), (memory, "memory")):
        whole(number, what)
    if cast is not None:
        cast = cast_name(cast, "cast")
    chosen = {} if settings is None else mapping(settings, "settings")
    options = {
        "format": format,
        "kind": kind,
        "settings": {name: _setting(value) for name, value in chosen.items()},
        "cast": cast,
        "rounding": rounding,
        "seed": seed,
        "deny_loss": deny_loss,
        "force": force,
        "threads": threads,
        "memory": memory,
        "sync": sync,
    }
    own_metadata = None if metadata is None else mapping(metadata, "metadata")
    path = path_text(path, "path")
    with naming(path), callback(progress) as tell:
        if isinstance(tensors, Checkpoint) and not roles and not row_names:
            written = save_tensors(path, index_of(tensors), [], own_metadata, options, tell)
        else:
            if isinstance(tensors, Checkpoint):
                if tensors.program is not None:
                    raise UsageError(
                        "roles and row_names are not supported for a checkpoint with a program",
                        code="program-with-roles",
                        hint="save the checkpoint unchanged, or its tensors as a dict",
                    )
                own_metadata = tensors.metadata if own_metadata is None else own_metadata
            if cast is not None:
                _refuse_cast_of_cast(tensors, cast)
            given = _Given(tensors, roles or {}, row_names or {})
            written = save_tensors(path, None, given.all(), own_metadata, options, tell)
    return warned(SaveReport(written), True)


@overload
def load(
    path: Path,
    *,
    copy: bool = False,
    partial: bool = False,
    framework: Literal["numpy", "np"] = "numpy",
    **options: Any,
) -> Dict[str, numpy.ndarray]: ...


@overload
def load(
    path: Path,
    *,
    copy: bool = False,
    partial: bool = False,
    framework: Literal["torch", "pt"],
    device: Union[torch.device, str, int, None] = None,
    **options: Any,
) -> Dict[str, torch.Tensor]: ...


def load(
    path: Path,
    *,
    copy: bool = False,
    partial: bool = False,
    framework: str = "numpy",
    device: Any = None,
    **options: Any,
) -> Dict[str, Any]:
    """Loads all tensors of a file as numpy arrays, by name. `options` are those of `open`.

    The arrays are read-only, over the mapped file if possible. With `copy=True` they are writable copies, and the bytes are
    verified against the checksums in the file.

    Raises `UnsupportedError` if a part of the file is not a tensor, as `open(path).notes` reports: loading and saving would
    lose that part. `partial=True` loads the rest.

    With `framework="torch"` (or `"pt"`, as in safetensors) the values are torch tensors on `device`, for
    `model.load_state_dict(weighbridge.load(path, framework="torch"))`. These are writable even without `copy=True`, as in
    `Tensor.torch`; the file is not changed.

    >>> import weighbridge
    >>> weighbridge.load("net.safetensors")["fc1.bias"]
    array([0.5, 1.5], dtype=float32)
    """
    # The names that safetensors uses.
    framework = {"np": "numpy", "pt": "torch"}.get(framework, framework)
    if framework not in ("numpy", "torch"):
        raise UsageError(
            "unknown framework",
            code="bad-arguments",
            expected="numpy or torch",
            found=str(framework),
        )
    if device is not None and framework != "torch":
        raise UsageError(
            "numpy arrays have no device", code="bad-arguments", hint='set framework="torch" as well'
        )
    known_options(options, "load", "copy", "partial", "framework", "device")
    with open(path, **options) as checkpoint:
        omitted = [note for note in checkpoint.notes if note.omission]
        if omitted and not partial:
            raise UnsupportedError(
                f"a part of the file is not a tensor: {omitted[0].text}",
                code="left-out",
                file=checkpoint.path,
                found=f"{len(omitted)} parts that are not tensors",
                hint="see open(path).notes; partial=True loads the rest",
            )
        if copy:
            for tensor in checkpoint.values():
                tensor.check()
        if framework == "torch":
            return {name: tensor.torch(copy, device) for name, tensor in checkpoint.items()}
        if copy:
            return {name: tensor.__array__(copy=True) for name, tensor in checkpoint.items()}
        return {name: tensor.numpy() for name, tensor in checkpoint.items()}


def _refuse_cast_of_cast(tensors: Mapping[Name, Any], cast: str) -> None:
    """Raises if a tensor has a pending cast: see `Tensor.cast`."""
    for tensor in tensors.values():
        if isinstance(tensor, Tensor) and tensor.dtype in ("f16", "bf16", "f32", "f64"):
            tensor.cast(cast)


def _check(**texts: object) -> None:
    for what, value in texts.items():
        optional_text(value, what)


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Given:
    """Tensors to write, in the form of the native part."""

    def __init__(
        self, tensors: Mapping[Name, Any], roles: Mapping[Name, Role], row_names: Mapping[Name, Sequence[str]]
    ) -> None:
        if not isinstance(tensors, Mapping):
            wrong_type("tensors", "a mapping of names to arrays", tensors, code="not-a-mapping")
        for kind, named in (("a role", roles), ("row names", row_names)):
            for name in named:
                if name not in tensors:
                    raise UsageError(
                        f"{kind} given for an unknown tensor", code="no-such-name", tensor=shown(name)
                    )
        self.tensors = tensors
        self.roles = roles
        self.row_names = row_names

    def all(self) -> List[Tuple[Any, Optional[str], Optional[Part], Entry, Any]]:
        """Returns path, role, slot, elements and row names of each tensor."""
        return [self._one(name, value) for name, value in self.tensors.items()]

    def _one(self, name: Name, value: Any) -> Tuple[Any, Optional[str], Optional[Part], Entry, Any]:
        role = self.roles.get(name)
        word, slot = (role, None) if role is None or isinstance(role, str) else _pair(role, name)
        if word is None and isinstance(value, Tensor) and value.slot is not None:
            word, slot = value.role, value.slot
        path = _path(name, slot)
        if isinstance(value, Tensor) and name == value.name:
            # A part may contain dots, so the name alone is ambiguous.
            path = value.path
        names = self.row_names.get(name)
        if names is not None and (isinstance(names, (str, bytes)) or not isinstance(names, Iterable)):
            wrong_type("row_names", "a list of names", names, tensor=shown(name), code="bad-labels")
        return path, word, slot, entry(path, value), names


def _pair(role: Any, name: Name) -> Tuple[str, Part]:
    """Splits a role given as a pair into its word and slot."""
    if not isinstance(role, (tuple, list)) or len(role) != 2 or not isinstance(role[1], (str, bytes)):
        wrong_type("a role", 'a str, or ("optimizer", SLOT)', role, tensor=shown(name))
    return role[0], role[1]


def shown(name: Any) -> str:
    """Returns a name in the form for errors."""
    return name if isinstance(name, str) else repr(name)


def _path(name: Name, slot: Optional[Part]) -> Name:
    # State is listed as `fc1.w/Adam.m1`, but has the path of its parameter.
    if isinstance(name, str) and slot is not None:
        tail = "/" + (slot if isinstance(slot, str) else slot.decode("utf-8", "backslashreplace"))
        if name.endswith(tail):
            return name[: -len(tail)]
    return name


def entry(path: Name, value: Any) -> Entry:
    """Makes a native tensor of `value`. Dense arrays are not copied.

    Raises `ArgumentTypeError` for other objects than arrays, and `UsageError` for an unsupported dtype or layout.
    """
    if isinstance(value, Tensor):
        return entry_of(value)
    try:
        return _entry(path, value)
    except (Error, MemoryError):
        raise
    except Exception as error:
        # Raised by the library of the array, without the name of the tensor.
        raise ArgumentTypeError(
            "the value cannot be read as an array",
            code="not-an-array",
            tensor=shown(path),
            found=f"{type(value).__name__}: {type(error).__name__}: {error}",
        ) from error


def _entry(path: Name, value: Any) -> Entry:
    # If these are not imported, the value is not of their types.
    torch, paddle = dtypes.imported("torch"), dtypes.imported("paddle")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_torch(path, value)
    if paddle is not None and isinstance(value, paddle.Tensor):
        return _from_paddle(path, value)
    if isinstance(value, (bytes, bytearray)):
        return entry_of_bytes(path, "u8", [len(value)], bytes(value))
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return _from_numpy(path, value)
    if hasattr(value, "__dlpack__"):
        return entry_of_dlpack(path, _capsule(value))
    try:
        view = memoryview(value)
    except TypeError:
        raise ArgumentTypeError(
            "not an array: the value has no array, buffer or DLPack protocol",
            code="not-an-array",
            tensor=shown(path),
            found=type(value).__name__,
            hint="pass numpy.asarray(value)"
            if isinstance(value, (bool, int, float, complex, list, tuple))
            else None,
        ) from None
    return _from_buffer(path, view)


def _from_numpy(path: Name, value: Any) -> Entry:
    dtypes.need_numpy()
    import numpy

    is_masked: Any = numpy.ma.is_masked
    if isinstance(value, numpy.ma.MaskedArray) and is_masked(value):
        raise UsageError(
            "masked arrays are not supported",
            code="masked",
            tensor=shown(path),
            hint="pass array.filled(value)",
        )
    array = numpy.asarray(value)
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise UsageError(
            "unsupported dtype",
            code="unknown-dtype",
            tensor=shown(path),
            found=str(array.dtype),
        )
    if array.dtype.newbyteorder("<") != array.dtype:
        array = array.astype(array.dtype.newbyteorder("<"))
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = numpy.ascontiguousarray(array)
    return entry_of_array(path, dtype, order, array)


def _from_torch(path: Name, value: Any) -> Entry:
    value = value.detach()
    if str(value.layout) != "torch.strided":
        raise UsageError(
            "only dense torch tensors are supported",
            code="not-dense",
            tensor=shown(path),
            found=str(value.layout),
        )
    # Resolves lazy conjugation and negation, and makes the elements contiguous.
    value = value.cpu().resolve_conj().resolve_neg().contiguous()
    names = {name: own for own, name in dtypes.TORCH.items()}
    dtype = names.get(str(value.dtype).partition(".")[2])
    if dtype is None:
        raise UsageError(
            "unsupported dtype",
            code="unknown-dtype",
            tensor=shown(path),
            found=str(value.dtype),
        )
    if value.numel() == 0:
        return entry_of_bytes(path, dtype, list(value.shape), b"")
    # As bytes: older versions export few dtypes.
    import torch

    array = value.reshape(-1).view(torch.uint8).numpy()
    return entry_of_array(path, dtype, "C", array, list(value.shape))


def _from_paddle(path: Name, value: Any) -> Entry:
    # Separate for bf16: Paddle represents it in numpy as uint16.
    array = value.detach().cpu().numpy()
    if str(value.dtype).rpartition(".")[2].lower() in ("bfloat16", "bf16") and array.dtype.name == "uint16":
        import numpy

        return entry_of_array(path, "bf16", "C", numpy.ascontiguousarray(array))
    return _from_numpy(path, array)


def _capsule(value: Any) -> Any:
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:
        # Objects with the unversioned protocol.
        return value.__dlpack__()


def _from_buffer(path: Name, view: memoryview) -> Entry:
    letter = view.format.lstrip("@=<")
    names = {own: name for name, own in dtypes.BUFFER.items()}
    names.update({"c": "u8", "e": "f16", "l": f"i{8 * view.itemsize}", "L": f"u{8 * view.itemsize}"})
    dtype = names.get(letter)
    if dtype is None:
        raise UsageError(
            "unsupported dtype",
            code="unknown-dtype",
            tensor=shown(path),
            found=view.format,
        )
    return entry_of_bytes(path, dtype, list(view.shape or ()), view.tobytes())
