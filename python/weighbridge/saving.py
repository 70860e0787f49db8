"""Writing tensors that are in memory, or in other files."""

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
from .verbs.report import told

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
    """Writes `tensors` to the file or folder `path`, all or nothing; returns what was written, and what was
    lost, as `convert` does. Where something had to be left out, there is a `LossWarning`.

    A name is text, of which each dot begins a new part, or a tuple of the parts. A value is a `Tensor` of an
    opened checkpoint, whose bytes are copied from file to file, or anything with the protocol of arrays,
    buffers or DLPack: numpy, torch, PaddlePaddle, `bytes` and so on. A whole `Checkpoint` is written with
    all that it has.

    - `format`: the id of the format; told from the extension if left out;
    - `metadata`: what to say besides the tensors; most formats hold text, some hold values;
    - `force`: replace what stands there;
    - `roles`: what tensors are for, by name; else they are parameters, and a `Tensor` keeps its own;
    - `labels`: the names of the rows of tables, by name;
    - `kind`, `settings`: which file of the format's family, and what can be chosen when it is written
      (`weighbridge.formats()` lists both); as `--kind` and `--set` of the command;
    - `cast`, `rounding`: give all floating-point tensors this type, as `Tensor.cast` takes it;
    - `seed`: decides values that must be drawn;
    - `deny_loss`: refuse where the format cannot hold everything;
    - `threads`, `memory`, `sync`: workers (0: one for each processor), bytes for buffers, wait for the disk;
    - `progress`: `True` for a bar, or a function of the bytes done and the bytes there are.

    >>> import weighbridge
    >>> tensors = weighbridge.open("net.safetensors")
    >>> report = weighbridge.save("net.npz", {"w": tensors["fc1.weight"], "id": b"abc"})
    >>> report.format, report.losses
    ('npz', ())
    >>> weighbridge.load("net.npz")["id"]
    array([97, 98, 99], dtype=uint8)
    """
    _check(format=format, kind=kind, rounding=rounding)
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
    said = None if metadata is None else mapping(metadata, "metadata")
    path = path_text(path, "path")
    with naming(path), callback(progress) as tell:
        if isinstance(tensors, Checkpoint) and not roles and not labels:
            written = save_tensors(path, index_of(tensors), [], said, options, tell)
        else:
            if isinstance(tensors, Checkpoint):
                if tensors.program is not None:
                    raise UsageError(
                        "roles or labels cannot be given to a checkpoint that has a program",
                        code="program-with-roles",
                        hint="write it as it is, or its tensors as a dict",
                    )
                said = tensors.metadata if said is None else said
            if cast is not None:
                _refuse_cast_of_cast(tensors, cast)
            given = _Given(tensors, roles or {}, labels or {})
            written = save_tensors(path, None, given.all(), said, options, tell)
    return told(SaveReport(written), True)


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
    """All tensors of the file as arrays of numpy, by name. `options` are those of `open`.

    The arrays look into the mapped file where that is possible, and are read-only; with `copy=True` they are
    copies that may be written to, and the bytes are held against the checksums that the file has for them.

    Where a part of the file is no tensor here, which `open(path).notes` tells, `UnsupportedError` is raised: who loads and saves
    would lose it. With `partial=True` the rest is given.

    With `framework="torch"` (or `"pt"`, as safetensors says) they are tensors of torch, on the `device` that is named: `model.load_state_dict(
    weighbridge.load(path, framework="torch"))`. These may be written to without `copy=True`, too, as
    `Tensor.torch` says: the file stays as it is.

    >>> import weighbridge
    >>> weighbridge.load("net.safetensors")["fc1.bias"]
    array([0.5, 1.5], dtype=float32)
    """
    # Those are the words of safetensors.
    framework = {"np": "numpy", "pt": "torch"}.get(framework, framework)
    if framework not in ("numpy", "torch"):
        raise UsageError(
            "there is no such framework",
            code="bad-arguments",
            expected="numpy or torch",
            found=str(framework),
        )
    if device is not None and framework != "torch":
        raise UsageError(
            "arrays of numpy have no device", code="bad-arguments", hint='give framework="torch", too'
        )
    known_options(options, "load", "copy", "partial", "framework", "device")
    with open(path, **options) as checkpoint:
        left_out = [note for note in checkpoint.notes if note.omission]
        if left_out and not partial:
            raise UnsupportedError(
                f"a part of the file is no tensor here: {left_out[0].text}",
                code="left-out",
                file=checkpoint.path,
                found=f"{len(left_out)} such notes",
                hint="look at open(path).notes; partial=True loads the rest",
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
    """A tensor that is to be cast already is not cast again on its way: `Tensor.cast` says why."""
    for tensor in tensors.values():
        if isinstance(tensor, Tensor) and tensor.dtype in ("f16", "bf16", "f32", "f64"):
            tensor.cast(cast)


def _check(**texts: object) -> None:
    for what, value in texts.items():
        optional_text(value, what)


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Given:
    """What is to be written, as the Rust part takes it."""

    def __init__(
        self, tensors: Mapping[Name, Any], roles: Mapping[Name, Role], labels: Mapping[Name, Sequence[str]]
    ) -> None:
        if not isinstance(tensors, Mapping):
            wrong_type("what is saved", "a mapping of names to arrays", tensors, code="not-a-mapping")
        for kind, named in (("role", roles), ("labels", labels)):
            for name in named:
                if name not in tensors:
                    raise UsageError(
                        f"a {kind} is given for a tensor that is not", code="no-such-name", tensor=shown(name)
                    )
        self.tensors = tensors
        self.roles = roles
        self.labels = labels

    def all(self) -> List[Tuple[Any, Optional[str], Optional[Part], Entry, Any]]:
        """Path, role, slot, elements and names of rows of each."""
        return [self._one(name, value) for name, value in self.tensors.items()]

    def _one(self, name: Name, value: Any) -> Tuple[Any, Optional[str], Optional[Part], Entry, Any]:
        role = self.roles.get(name)
        word, slot = (role, None) if role is None or isinstance(role, str) else _pair(role, name)
        if word is None and isinstance(value, Tensor) and value.slot is not None:
            word, slot = value.role, value.slot
        path = _path(name, slot)
        if isinstance(value, Tensor) and name == value.name:
            # Its parts may hold dots, which the name alone does not tell.
            path = value.path
        labels = self.labels.get(name)
        if labels is not None and (isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable)):
            wrong_type("labels", "a list of names", labels, tensor=shown(name), code="bad-labels")
        return path, word, slot, entry(path, value), labels


def _pair(role: Any, name: Name) -> Tuple[str, Part]:
    """The word and the slot of a role that is no word alone."""
    if not isinstance(role, (tuple, list)) or len(role) != 2 or not isinstance(role[1], (str, bytes)):
        wrong_type("a role", 'a str, or ("optimizer", SLOT)', role, tensor=shown(name))
    return role[0], role[1]


def shown(name: Any) -> str:
    """A name, whatever it is, in an error."""
    return name if isinstance(name, str) else repr(name)


def _path(name: Name, slot: Optional[Part]) -> Name:
    # State is listed as `fc1.w/Adam.m1`, and stands at the path of its parameter.
    if isinstance(name, str) and slot is not None:
        tail = "/" + (slot if isinstance(slot, str) else slot.decode("utf-8", "backslashreplace"))
        if name.endswith(tail):
            return name[: -len(tail)]
    return name


def entry(path: Name, value: Any) -> Entry:
    """The tensor that `value` is, for the Rust part. Arrays are not copied where their elements are dense.

    Raises `ArgumentTypeError` for what is no array, and `UsageError` for one whose elements cannot be
    written.
    """
    if isinstance(value, Tensor):
        return entry_of(value)
    try:
        return _entry(path, value)
    except (Error, MemoryError):
        raise
    except Exception as error:
        # Of the library whose array it is, which does not know the name.
        raise ArgumentTypeError(
            "what was given cannot be read as an array",
            code="not-an-array",
            tensor=shown(path),
            found=f"{type(value).__name__}: {type(error).__name__}: {error}",
        ) from error


def _entry(path: Name, value: Any) -> Entry:
    # Where these are not imported, nothing of them can be given.
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
            "this is no array: it has neither the protocol of arrays nor of buffers nor of DLPack",
            code="not-an-array",
            tensor=shown(path),
            found=type(value).__name__,
            hint="give numpy.asarray(value)"
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
            "elements of the array are masked, and no file says so",
            code="masked",
            tensor=shown(path),
            hint="give array.filled(value)",
        )
    array = numpy.asarray(value)
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise UsageError(
            "there is no such type of elements here",
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
            "only dense tensors of torch can be written",
            code="not-dense",
            tensor=shown(path),
            found=str(value.layout),
        )
    # Conjugation and negation that are only noted are carried out, and elements put one after another.
    value = value.cpu().resolve_conj().resolve_neg().contiguous()
    names = {name: own for own, name in dtypes.TORCH.items()}
    dtype = names.get(str(value.dtype).partition(".")[2])
    if dtype is None:
        raise UsageError(
            "there is no such type of elements here",
            code="unknown-dtype",
            tensor=shown(path),
            found=str(value.dtype),
        )
    if value.numel() == 0:
        return entry_of_bytes(path, dtype, list(value.shape), b"")
    # As bytes: older versions give few types of elements away.
    import torch

    array = value.reshape(-1).view(torch.uint8).numpy()
    return entry_of_array(path, dtype, "C", array, list(value.shape))


def _from_paddle(path: Name, value: Any) -> Entry:
    # A place of its own for bf16: as an array of numpy it is uint16.
    array = value.detach().cpu().numpy()
    if str(value.dtype).rpartition(".")[2].lower() in ("bfloat16", "bf16") and array.dtype.name == "uint16":
        import numpy

        return entry_of_array(path, "bf16", "C", numpy.ascontiguousarray(array))
    return _from_numpy(path, array)


def _capsule(value: Any) -> Any:
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:
        # From before there were versions.
        return value.__dlpack__()


def _from_buffer(path: Name, view: memoryview) -> Entry:
    letter = view.format.lstrip("@=<")
    names = {own: name for name, own in dtypes.BUFFER.items()}
    names.update({"c": "u8", "e": "f16", "l": f"i{8 * view.itemsize}", "L": f"u{8 * view.itemsize}"})
    dtype = names.get(letter)
    if dtype is None:
        raise UsageError(
            "there is no such type of elements here",
            code="unknown-dtype",
            tensor=shown(path),
            found=view.format,
        )
    return entry_of_bytes(path, dtype, list(view.shape or ()), view.tobytes())
