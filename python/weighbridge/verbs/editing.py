"""`edit`: names, types, shapes and metadata by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Dict, Literal, NamedTuple, Optional, Tuple, Union

from ..checks import cast_name
from ..dtypes import DType
from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Size, Some, run
from .report import Cast, Loss, Report, casts, count, lost, many, notes, picked, told


class Told(NamedTuple):
    """A tensor before or after an edit."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    alias_of: Optional[str]
    """The tensor that it shares its bytes with."""


class TensorChange(NamedTuple):
    """A tensor that changes."""

    before: Told
    after: Optional[Told]
    """`None` where it is left out."""
    transposed: bool


class MetadataChange(NamedTuple):
    """Metadata that change; `None` where there is nothing."""

    key: str
    before: Any
    after: Any


class EditReport(Report):
    """What an edit changed, or would change."""

    @property
    def source(self) -> str:
        """What was edited."""
        return self._document["source" if "source" in self._document else "path"]

    @property
    def target(self) -> str:
        """What was written."""
        return self._document["target" if "target" in self._document else "path"]

    @property
    def how(self) -> str:
        """`new-file`, `header` or `rewrite`; `undo` or `forget-undo`."""
        return self._document.get("how", self._document["done"])

    @property
    def done(self) -> bool:
        """False where it was only planned."""
        return self._document["done"] is not False

    @property
    def format(self) -> Optional[str]:
        """The format that is written; `None` of an undo."""
        return self._document.get("format")

    @property
    def kind(self) -> Optional[str]:
        """Which file of the format's family it is; `None` of an undo."""
        return self._document.get("kind")

    @property
    def bytes(self) -> int:
        """The bytes that are written; in place those that differ."""
        return self._document["bytes"]

    @cached_property
    def changes(self) -> Tuple[TensorChange, ...]:
        """The tensors that change."""
        return tuple(_change(change) for change in self._document.get("changes", ()))

    @cached_property
    def metadata(self) -> Tuple[MetadataChange, ...]:
        """The metadata that change."""
        return many(MetadataChange, self._document.get("metadata"))

    @cached_property
    def casts(self) -> Dict[str, Cast]:
        """What casts do, by the name of the tensor."""
        return casts(self._document)

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """What the target cannot hold."""
        return many(Loss, self._document.get("losses"))

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """What is odd about the source, and rules that fit nothing."""
        return notes(self._document)

    def _summary(self) -> str:
        planned = "" if self.done else "planned, "
        changes = count(len(self._document.get("changes", ())), "change") + " of tensors"
        return f"{self.target}: {planned}{self.how}, {changes}, {self.bytes:,} bytes{lost(self.losses)}"


def _change(change: Dict[str, Any]) -> TensorChange:
    after = change["after"]
    told = None if after is None else picked(Told, after)
    return TensorChange(picked(Told, change["before"]), told, change["transposed"])


def edit(
    source: Path,
    target: Optional[Path] = None,
    *,
    rules: Optional[Paths] = None,
    keep: Some = None,
    drop: Some = None,
    no_state: bool = False,
    strip_prefix: Some = None,
    rename: Pairs = None,
    rename_glob: Pairs = None,
    rename_regex: Pairs = None,
    prefix: Optional[str] = None,
    transpose: Pairs = None,
    cast: Union[Pairs, DType, Sequence[DType], Mapping[str, DType]] = None,
    tie: Pairs = None,
    untie: Some = None,
    set_metadata: Pairs = None,
    remove_metadata: Some = None,
    lenient_rules: bool = False,
    in_place: Union[bool, Literal["header", "rewrite"]] = False,
    undo: bool = False,
    forget_undo: bool = False,
    to: Optional[str] = None,
    kind: Optional[str] = None,
    set: Pairs = None,  # noqa: A002
    plan: bool = False,
    allow_loss: bool = False,
    deny_loss: bool = False,
    force: bool = False,
    memory: Size = "256MiB",
    threads: int = 0,
    no_sync: bool = False,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> EditReport:
    """Changes names, types, shapes and metadata by rules, in a new file `target` or in place. Rules are
    applied in this order:

    - `rules`: files of rules;
    - `keep`, `drop`, `no_state`: which tensors;
    - `strip_prefix`, `rename`, `rename_glob`, `rename_regex`, `prefix`: names, as dicts or as texts
      `OLD=NEW`; a prefix may be written with its dot, `"model."`, or without;
    - `transpose`: patterns of matrices, or a dict of patterns and orders of dimensions such as `(1, 0)`;
    - `cast`: a type, as `Tensor.cast` takes it, or a dict of patterns and types;
    - `tie`, `untie`: names that share their bytes;
    - `set_metadata`, `remove_metadata`.

    `lenient_rules` goes on where a rule fits nothing. `in_place=True` writes only what stands around the
    tensors of `source`, `in_place="rewrite"` puts a new file in its place; `undo=True` takes the last edit of
    the header back, and `forget_undo=True` forgets how.

    How it is written: `to` and `kind` say in which form, where the target's extension does not; `set` what
    can be chosen for it, as a dict; `plan=True` writes nothing; `allow_loss=True` is content
    with fewer tensors, `deny_loss=True` refuses where the target cannot hold everything; `force=True` replaces the target; `memory` and `threads` bound the work;
    `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a function of the bytes done
    and the bytes there are.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> names = {"fc1": "head"}
    >>> weighbridge.edit("net.safetensors", "new.safetensors", rename=names, drop="steps").changes[0]
    TensorChange(before=Told(name='steps', dtype='i64', shape=(), alias_of=None), after=None,
    transposed=False)
    >>> weighbridge.edit("new.safetensors", in_place=True, rename={"head": "tail"}).how
    'header'
    >>> weighbridge.edit("new.safetensors", undo=True).how
    'undo'
    >>> list(weighbridge.open("new.safetensors"))
    ['head.bias', 'head.weight']
    """
    given = dict(locals())
    if cast is not None:
        given["cast"] = _casts(cast)
    return told(EditReport(*run("edit", given)), True, allowed=allow_loss)


def _casts(given: Any) -> Any:
    """What `cast` was given, with the names here in the place of types; patterns stay as they are."""
    if isinstance(given, Mapping):
        return {pattern: cast_name(own, "cast") for pattern, own in given.items()}
    if isinstance(given, str):
        pattern, equals, own = given.rpartition("=")
        return f"{pattern}{equals}{cast_name(own, 'cast')}"
    if isinstance(given, (list, tuple)):
        return [_casts(own) for own in given]
    return cast_name(given, "cast")
