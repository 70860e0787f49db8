"""`shard` and `merge`: splitting and joining of model files."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, Optional, Tuple

from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Size, run
from .report import Loss, Report, count, lost, many, notes, warned


class Written(Report):
    """Report of written files."""

    @property
    def path(self) -> str:
        """Path of the target."""
        return self._document["path"]

    @property
    def done(self) -> bool:
        """False if only planned (`plan=True`)."""
        return self._document["done"]

    @property
    def bytes(self) -> int:
        """Size of all files together, in bytes."""
        return self._document["bytes"]

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """Content that the target cannot represent."""
        return many(Loss, self._document["losses"])

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes about the sources."""
        return notes(self._document)


class Shard(NamedTuple):
    """A shard."""

    name: str
    bytes: int
    tensors: int
    tensor_bytes: int
    oversized: bool
    """True if the shard holds a single tensor larger than `max_shard_size`."""


class ShardReport(Written):
    """Report of a split."""

    @cached_property
    def shards(self) -> Tuple[Shard, ...]:
        """Shards, in order."""
        return many(Shard, self._document["shards"])

    def _summary(self) -> str:
        planned = "" if self.done else "planned, "
        return f"{self.path}: {planned}{count(len(self.shards), 'file')}, {self.bytes:,} bytes{lost(self.losses)}"


def shard(
    source: Path,
    target: Path,
    *,
    max_shard_size: Size = "5GB",
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
) -> ShardReport:
    """Splits a model into safetensors shards with an index.

    - `max_shard_size`: largest size of the tensors in a shard, in bytes or as text such as `5GB`.

    Writing options: `to` and `kind` select format and kind if the target's extension does not; `set` has settings of
    the format, as a dict; `plan=True` writes nothing; `allow_loss=True` accepts missing tensors; `deny_loss=True` raises an
    error if the target cannot represent everything; `force=True` replaces the target; `memory` (bytes) and `threads` (0: one
    per processor) bound the resources; `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a
    function of the bytes done and the total bytes.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> [shard.name for shard in weighbridge.shard("net.safetensors", "net", max_shard_size=50).shards]
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    return warned(ShardReport(*run("shard", locals())), True, allowed=allow_loss)


class MergeReport(Written):
    """Report of a merge."""

    @property
    def format(self) -> str:
        """Id of the written format."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Kind of file within the format."""
        return self._document["kind"]

    @property
    def sources(self) -> Tuple[str, ...]:
        """Files that were read."""
        return tuple(self._document["sources"])

    @property
    def tensors(self) -> Tuple[str, ...]:
        """Names of all tensors."""
        return tuple(self._document["tensors"])

    def _summary(self) -> str:
        planned = "" if self.done else "planned, "
        tensors, sources = count(len(self.tensors), "tensor"), count(len(self.sources), "source")
        return f"{self.path}: {planned}{self.format} {self.kind}, {tensors} of {sources}{lost(self.losses)}"


def merge(
    sources: Paths,
    *,
    output: Path,
    prefer: Optional[Literal["first", "last"]] = None,
    prefix_each: bool = False,
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
) -> MergeReport:
    """Joins several files, or the shards of a model, into one.

    - `output`: file or folder to write;
    - `prefer`: for duplicate tensor names, keep the `first` or the `last` one; an error by default;
    - `prefix_each`: prefix the tensor names of each file with the name of the file.

    Writing options: `to` and `kind` select format and kind if the target's extension does not; `set` has settings of
    the format, as a dict; `plan=True` writes nothing; `allow_loss=True` accepts missing tensors; `deny_loss=True` raises an
    error if the target cannot represent everything; `force=True` replaces the target; `memory` (bytes) and `threads` (0: one
    per processor) bound the resources; `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a
    function of the bytes done and the total bytes.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.merge(["net.safetensors", "net.safetensors"], output="both.npz", prefer="last")
    <MergeReport both.npz: npz archive, 3 tensors of 2 sources>
    """
    return warned(MergeReport(*run("merge", locals())), True, allowed=allow_loss)
