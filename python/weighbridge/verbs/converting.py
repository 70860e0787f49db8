"""`convert`: a file in another form."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Dict, Iterator, Literal, Optional, Tuple

from ..checks import cast_name
from ..dtypes import DType
from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Rounding, Size, Some, run
from .report import Cast, Loss, Report, WrittenFile, casts, files, lost, many, notes, told


class Conversion(Report):
    """What was written, and what was lost."""

    @property
    def path(self) -> str:
        """The target."""
        return self._document["path"]

    @property
    def done(self) -> bool:
        """False where it was only planned."""
        return self._document["done"]

    @property
    def format(self) -> str:
        """The format that is written."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Which file of the format's family it is."""
        return self._document["kind"]

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return self._document["bytes"]

    @cached_property
    def files(self) -> Tuple[WrittenFile, ...]:
        """The files, relative to the target."""
        return files(self._document)

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """What the target cannot hold; `deny_loss=True` refuses instead. Of what is left out altogether there
        is a `LossWarning`, too.
        """
        return many(Loss, self._document["losses"])

    @cached_property
    def casts(self) -> Dict[str, Cast]:
        """What casts did, by the name of the tensor."""
        return casts(self._document)

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """What is odd about the source."""
        return notes(self._document)

    def _summary(self) -> str:
        planned = "" if self.done else "planned, "
        return f"{self.path}: {planned}{self.format} {self.kind}, {self.bytes:,} bytes{lost(self.losses)}"


class SaveReport(Conversion, Mapping):  # type: ignore[type-arg]
    """What was written, and what was lost. It is also a mapping of the fields of its document, read only.

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
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> Conversion:
    """Writes a file or folder in another form, all or nothing.

    - `select`, `drop`: only tensors whose names match one of these patterns, or none (`*` is any characters);
    - `no_state`: leave out the state of optimizers;
    - `rules`: files of rules; they come before renames and casts. `lenient_rules` goes on where one of them, or
      of `rename`, fits nothing;
    - `rename`: leading parts of names and what takes their place, as a dict or as texts `OLD=NEW`;
    - `cast`, `rounding`: give floating-point tensors this type, as `Tensor.cast` takes it;
    - `grow`, `seed`, `draw`, `repeat`, `with_global`: of tables of PyTorch-BigGraph: add the entities of a
      file to a type, what decides the rows that are drawn, draw all, as BigGraph repeats them, add global
      embeddings;
    - `reverse_dims`: keep column-major bytes as they are and reverse the dimensions;
    - `set_metadata`: metadata to set, as a dict or as texts `KEY=VALUE`;
    - `plain`: write no entries of Weighbridge's own (`weighbridge.*`);
    - `copy_others`: copy the other files of a folder, such as `config.json`, into the target folder.

    How it is written: `versions="all"` takes along the other versions and the snapshots of a PyTorch-BigGraph
    checkpoint that is written as one; `to` and `kind` say in which form, where the target's extension does not; `set` what
    can be chosen for it, as a dict; `plan=True` writes nothing; `allow_loss=True` is content
    with fewer tensors, `deny_loss=True` refuses where the target cannot hold everything; `force=True` replaces the target; `memory` and `threads` bound the work;
    `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a function of the bytes done
    and the bytes there are.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

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
    return told(Conversion(*run("convert", given)), True, allowed=allow_loss)
