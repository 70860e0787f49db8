"""`convert`: conversion between formats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Dict, Iterator, Literal, Optional, Tuple

from ..checks import cast_name
from ..dtypes import DType
from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Rounding, Size, Some, run
from .report import Cast, Loss, Report, WrittenFile, casts, files, lost, many, notes, warned


class Conversion(Report):
    """Report of a conversion."""

    @property
    def path(self) -> str:
        """Path of the target."""
        return self._document["path"]

    @property
    def done(self) -> bool:
        """False if only planned (`plan=True`)."""
        return self._document["done"]

    @property
    def format(self) -> str:
        """Id of the written format."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Kind of file within the format."""
        return self._document["kind"]

    @property
    def bytes(self) -> int:
        """Size of all files together, in bytes."""
        return self._document["bytes"]

    @cached_property
    def files(self) -> Tuple[WrittenFile, ...]:
        """Files, with names relative to the target."""
        return files(self._document)

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """Content that the target cannot represent; `deny_loss=True` raises an error instead. Omitted content also raises a
        `LossWarning`.
        """
        return many(Loss, self._document["losses"])

    @cached_property
    def casts(self) -> Dict[str, Cast]:
        """Effects of casts, by tensor name."""
        return casts(self._document)

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes about the source."""
        return notes(self._document)

    def _summary(self) -> str:
        planned = "" if self.done else "planned, "
        return f"{self.path}: {planned}{self.format} {self.kind}, {self.bytes:,} bytes{lost(self.losses)}"


class SaveReport(Conversion, Mapping):  # type: ignore[type-arg]
    """Report of a save. It is also a read-only mapping of the fields of its document.

    >>> import numpy, weighbridge
    >>> report = weighbridge.save("eye.npz", {"w": numpy.eye(2)})
    >>> report
    <SaveReport eye.npz: npz archive, 297 bytes>
    >>> report["format"], report["losses"], report.losses
    ('npz', [], ())
    """

    def __getitem__(self, field: str) -> Any:
        return self.to_dict()[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)


def convert(
    source: Path,
    target: Path,
    *,
    select: Some = None,
    drop: Some = None,
    no_state: bool = False,
    rules: Optional[Paths] = None,
    lenient_rules: bool = False,
    rename: Pairs = None,
    cast: Optional[DType] = None,
    rounding: Rounding = "nearest",
    grow: Pairs = None,
    seed: int = 0,
    draw: bool = False,
    repeat: bool = False,
    with_global: bool = False,
    reverse_dims: bool = False,
    versions: Literal["current", "all"] = "current",
    set_metadata: Pairs = None,
    plain: bool = False,
    like: Optional[Path] = None,
    copy_others: bool = False,
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
) -> Conversion:
    """Converts a file or folder to another format, atomically.

    - `select`, `drop`: keep or drop tensors whose names match one of these patterns (`*` matches any characters);
    - `no_state`: drop optimizer state;
    - `rules`: files of edit rules, applied before renames and casts. `lenient_rules` accepts rules and renames that match no
      tensor;
    - `rename`: prefixes of names and their replacements, as a dict or as texts `OLD=NEW`;
    - `cast`, `rounding`: cast floating-point tensors, as `Tensor.cast` does;
    - `grow`, `draw`, `seed`, `repeat`, `with_global`: for PyTorch-BigGraph tables: add the entities listed in a file to an
      entity type, initialize all rows randomly, seed for random rows, repeat random rows as BigGraph does, add global
      embeddings;
    - `reverse_dims`: keep column-major bytes and reverse the dimensions;
    - `set_metadata`: metadata to set, as a dict or as texts `KEY=VALUE`;
    - `plain`: write no `weighbridge.*` metadata;
    - `like`: a model whose layout, names and metadata the target has, with the tensors of the source;
    - `copy_others`: copy the other files of a folder, such as `config.json`, into the target folder.

    Writing options: `versions="all"` also converts the other versions and the snapshots, from one PyTorch-BigGraph
    checkpoint folder to another; `to` and `kind` select format and kind if the target's extension does not; `set` has settings of
    the format, as a dict; `plan=True` writes nothing; `allow_loss=True` accepts missing tensors; `deny_loss=True` raises an
    error if the target cannot represent everything; `force=True` replaces the target; `memory` (bytes) and `threads` (0: one
    per processor) bound the resources; `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a
    function of the bytes done and the total bytes.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> names = {"fc1": "head"}
    >>> report = weighbridge.convert("net.safetensors", "half.npz", select="fc1.*", rename=names, cast="f16")
    >>> report
    <Conversion half.npz: npz archive, 550 bytes, 2 losses>
    >>> report.losses[0]
    Loss(code='rounding', subject='head.bias', detail='f32 values are rounded to f16', left_out=False, tensor=False)
    >>> list(weighbridge.open("half.npz"))
    ['head.bias', 'head.weight']
    """
    given = dict(locals())
    if cast is not None:
        given["cast"] = cast_name(cast, "cast")
    return warned(Conversion(*run("convert", given)), True, allowed=allow_loss)
