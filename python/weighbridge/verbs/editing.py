"""`edit`: changes of names, dtypes, shapes and metadata by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Dict, Literal, NamedTuple, Optional, Tuple, Union

from ..checks import cast_name
from ..dtypes import DType
from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Size, Some, run
from .report import Cast, Loss, Report, casts, count, lost, many, notes, picked, warned


class TensorSummary(NamedTuple):
    """A tensor before or after an edit."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    alias_of: Optional[str]
    """The tensor whose bytes it shares."""


class TensorChange(NamedTuple):
    """Change of a tensor."""

    before: TensorSummary
    after: Optional[TensorSummary]
    """`None` if the tensor is dropped."""
    transposed: bool


class MetadataChange(NamedTuple):
    """Change of a metadata entry; `None` for an absent value."""

    key: str
    before: Any
    after: Any


class EditReport(Report):
    """Report of an edit."""

    @property
    def source(self) -> str:
        """Path of the source."""
        return self._document["source" if "source" in self._document else "path"]

    @property
    def target(self) -> str:
        """Path of the target."""
        return self._document["target" if "target" in self._document else "path"]

    @property
    def how(self) -> str:
        """Mode of the edit: `new-file`, `header` or `rewrite`; `undo` or `forget-undo`."""
        return self._document.get("how", self._document["done"])

    @property
    def done(self) -> bool:
        """False if only planned (`plan=True`)."""
        return self._document["done"] is not False

    @property
    def format(self) -> Optional[str]:
        """Id of the written format; `None` for an undo."""
        return self._document.get("format")

    @property
    def kind(self) -> Optional[str]:
        """Kind of file within the format; `None` for an undo."""
        return self._document.get("kind")

    @property
    def bytes(self) -> int:
        """Number of bytes written; for an edit in place, of bytes that differ."""
        return self._document["bytes"]

    @cached_property
    def changes(self) -> Tuple[TensorChange, ...]:
        """Changes of tensors."""
        return tuple(_change(change) for change in self._document.get("changes", ()))

    @cached_property
    def metadata(self) -> Tuple[MetadataChange, ...]:
        """Changes of metadata."""
        return many(MetadataChange, self._document.get("metadata"))

    @cached_property
    def casts(self) -> Dict[str, Cast]:
        """Effects of casts, by tensor name."""
        return casts(self._document)

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """Content that the target cannot represent."""
        return many(Loss, self._document.get("losses"))

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes about the source, and rules that match no tensor."""
        return notes(self._document)

    def _summary(self) -> str:
        planned = "" if self.done else "planned, "
        changes = count(len(self._document.get("changes", ())), "tensor") + " changed"
        return f"{self.target}: {planned}{self.how}, {changes}, {self.bytes:,} bytes{lost(self.losses)}"


def _change(change: Dict[str, Any]) -> TensorChange:
    after = change["after"]
    summary = None if after is None else picked(TensorSummary, after)
    return TensorChange(picked(TensorSummary, change["before"]), summary, change["transposed"])


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
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> EditReport:
    """Edits names, dtypes, shapes and metadata by rules, into a new file `target` or in place.

    Rules are applied in this order:

    - `rules`: files of rules;
    - `keep`, `drop`, `no_state`: selection of tensors;
    - `strip_prefix`, `rename`, `rename_glob`, `rename_regex`, `prefix`: names, as dicts or as texts `OLD=NEW`; a prefix may
      end with its dot, `"model."`, or not;
    - `transpose`: patterns of matrices, or a dict of patterns and dimension orders such as `(1, 0)`;
    - `cast`: a dtype, as for `Tensor.cast`, or a dict of patterns and dtypes;
    - `tie`, `untie`: names of tensors that share their bytes;
    - `set_metadata`, `remove_metadata`: metadata.

    `lenient_rules` accepts rules that match no tensor. `in_place=True` rewrites the header of `source` only;
    `in_place="rewrite"` replaces the whole file. `undo=True` reverts the last edit of the header; `forget_undo=True` deletes
    the undo data.

    Writing options: `to` and `kind` select format and kind if the target's extension does not; `set` has settings of
    the format, as a dict; `plan=True` writes nothing; `allow_loss=True` accepts missing tensors; `deny_loss=True` raises an
    error if the target cannot represent everything; `force=True` replaces the target; `memory` (bytes) and `threads` (0: one
    per processor) bound the resources; `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a
    function of the bytes done and the total bytes.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> names = {"fc1": "head"}
    >>> weighbridge.edit("net.safetensors", "new.safetensors", rename=names, drop="steps").changes[0]
    TensorChange(before=TensorSummary(name='steps', dtype='i64', shape=(), alias_of=None), after=None,
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
    return warned(EditReport(*run("edit", given)), True, allowed=allow_loss)


def _casts(given: Any) -> Any:
    """Replaces dtype objects in `cast` by names; patterns are unchanged."""
    if isinstance(given, Mapping):
        return {pattern: cast_name(own, "cast") for pattern, own in given.items()}
    if isinstance(given, str):
        pattern, equals, own = given.rpartition("=")
        return f"{pattern}{equals}{cast_name(own, 'cast')}"
    if isinstance(given, (list, tuple)):
        return [_casts(own) for own in given]
    return cast_name(given, "cast")
