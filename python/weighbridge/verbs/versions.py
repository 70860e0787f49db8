"""`checkpoint`: the versions in a folder of PyTorch-BigGraph checkpoints."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Literal, NamedTuple, Optional, Sequence, Tuple, Union

from ..opened import Path
from .given import NameStyle, Pairs, run
from .report import Report, count, many

Remnants = Literal["newer", "older", "temporary", "all"]
"""What crashed runs leave."""


class Version(NamedTuple):
    """A version of a checkpoint."""

    version: int
    complete: bool
    """True where no file is missing. See `StoreReport.damaged`, too."""
    bytes: int
    files: Tuple[str, ...]
    missing: Tuple[str, ...]
    snapshots: Tuple[int, ...]
    """The snapshots that need it."""


class Snapshot(NamedTuple):
    """A snapshot of a version."""

    epoch: int
    version: Optional[int]
    complete: bool
    files: Tuple[str, ...]
    broken: Tuple[str, ...]
    missing: Tuple[str, ...]


class Orphan(NamedTuple):
    """A file that no version and no snapshot needs."""

    name: str
    bytes: int
    kind: str


class StoreReport(Report):
    """What is in the folder, after what was asked for was done."""

    @property
    def path(self) -> str:
        """The folder."""
        return self._document["path"]

    @property
    def whole(self) -> bool:
        """True where the current version and all snapshots are whole."""
        return self.exit_code == 0

    @property
    def current(self) -> Optional[int]:
        """The version that counts; `None` where nothing says which."""
        return self._document["current"]

    @cached_property
    def versions(self) -> Tuple[Version, ...]:
        """The versions, the oldest first."""
        return many(Version, self._document["versions"])

    @cached_property
    def snapshots(self) -> Tuple[Snapshot, ...]:
        """The snapshots."""
        return many(Snapshot, self._document["snapshots"])

    @cached_property
    def orphans(self) -> Tuple[Orphan, ...]:
        """Files that nothing needs."""
        return many(Orphan, self._document["orphans"])

    @property
    def damaged(self) -> Dict[int, str]:
        """Versions that cannot be read though all files are there, and why."""
        return {int(version): why for version, why in self._document["damaged"].items()}

    @property
    def done(self) -> Tuple[Dict[str, Any], ...]:
        """What was asked for and done: each `what` and `report`."""
        return tuple(self.to_dict()["done"])

    def _summary(self) -> str:
        state = "whole" if self.whole else "not whole"
        return f"{self.path}: current {self.current}, {count(len(self.versions), 'version')}, {state}"


def checkpoint(
    path: Path,
    *,
    recover: bool = False,
    start_over: bool = False,
    rollback: Optional[int] = None,
    delete_newer: bool = False,
    preserve: Optional[int] = None,
    copies: bool = False,
    prune: bool = False,
    keep: Optional[int] = None,
    sweep: Union[None, Remnants, Sequence[Remnants]] = None,
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
) -> StoreReport:
    """The versions in a folder of PyTorch-BigGraph checkpoints: which are there, whole, and current; and
    keeping them in order.

    - `recover`: where the version file is lost or no number, let the highest complete version count;
      `start_over`: begin anew where none is complete;
    - `rollback`: let this version count; `delete_newer`: remove the files of those after it;
    - `preserve`: make the snapshot `epoch_N` of the current version; `copies`: of copies instead of links;
    - `prune`: remove old versions but for the newest `keep` ones and what snapshots need;
    - `sweep`: remove what crashed runs left.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.checkpoint("no-such-folder")
    Traceback (most recent call last):
    weighbridge.errors.FileMissingError: ...
    """
    return StoreReport(*run("checkpoint", locals()))
