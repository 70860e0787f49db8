"""`shard` and `merge`: one model in many files, and many as one."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, Optional, Tuple

from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Size, run
from .report import Loss, Report, count, lost, many, notes, told


class Written(Report):
    """What was written, or would be."""

    @property
    def path(self) -> str:
        """The target."""
        return self._document["path"]

    @property
    def done(self) -> bool:
        """False where it was only planned."""
        return self._document["done"]

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return self._document["bytes"]

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """What the target cannot hold."""
        return many(Loss, self._document["losses"])

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """What is odd about the sources."""
        return notes(self._document)


class Shard(NamedTuple):
    """One file of several."""

    name: str
    bytes: int
    tensors: int
    tensor_bytes: int
    oversized: bool
    """True where one tensor is larger than a file should be, and stands alone."""


class ShardReport(Written):
    """The files that a model was cut into."""

    @cached_property
    def shards(self) -> Tuple[Shard, ...]:
        """The files, in their order."""
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
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> ShardReport:
    """Cuts one model into many files of safetensors, with their list.

    - `max_shard_size`: the most bytes of tensors in a file.

    How it is written: `to` and `kind` say in which form, where the target's extension does not; `set` what
    can be chosen for it, as a dict; `plan=True` writes nothing; `allow_loss=True` is content
    with fewer tensors, `deny_loss=True` refuses where the target cannot hold everything; `force=True` replaces the target; `memory` and `threads` bound the work;
    `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a function of the bytes done
    and the bytes there are.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> [shard.name for shard in weighbridge.shard("net.safetensors", "net", max_shard_size=50).shards]
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    return told(ShardReport(*run("shard", locals())), True, allowed=allow_loss)


class MergeReport(Written):
    """What several files became."""

    @property
    def format(self) -> str:
        """The format that is written."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Which file of the format's family it is."""
        return self._document["kind"]

    @property
    def sources(self) -> Tuple[str, ...]:
        """The files that were read."""
        return tuple(self._document["sources"])

    @property
    def tensors(self) -> Tuple[str, ...]:
        """The names of all tensors."""
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
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> MergeReport:
    """Joins several files, or the shards of a model, in one.

    - `output`: the file or folder to write;
    - `prefer`: `first` or `last`: whose tensor counts where several have one name;
    - `prefix_each`: put the tensors of each file below the name of the file.

    How it is written: `to` and `kind` say in which form, where the target's extension does not; `set` what
    can be chosen for it, as a dict; `plan=True` writes nothing; `allow_loss=True` is content
    with fewer tensors, `deny_loss=True` refuses where the target cannot hold everything; `force=True` replaces the target; `memory` and `threads` bound the work;
    `no_sync=True` does not wait for the disk. `progress` is `True` for a bar, or a function of the bytes done
    and the bytes there are.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.merge(["net.safetensors", "net.safetensors"], output="both.npz", prefer="last")
    <MergeReport both.npz: npz archive, 3 tensors of 2 sources>
    """
    return told(MergeReport(*run("merge", locals())), True, allowed=allow_loss)
