"""`checkpoint`: versions in a folder of PyTorch-BigGraph checkpoints."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Literal, NamedTuple, Optional, Sequence, Tuple, Union

from ..opened import Path
from .given import NameStyle, Pairs, run
from .report import Report, count, many

Remnants = Literal["newer", "older", "temporary", "all"]
"""Leftover files of crashed runs."""


class Version(NamedTuple):
    """A version of a checkpoint."""

    version: int
    complete: bool
    """True if no file is missing. See also `StoreReport.damaged`."""
    bytes: int
    files: Tuple[str, ...]
    missing: Tuple[str, ...]
    snapshots: Tuple[int, ...]
    """Epochs of the snapshots that use this version."""


class Snapshot(NamedTuple):
    """A snapshot of a version."""

    epoch: int
    version: Optional[int]
    complete: bool
    files: Tuple[str, ...]
    broken: Tuple[str, ...]
    missing: Tuple[str, ...]


class Orphan(NamedTuple):
    """A file that belongs to no version or snapshot."""

    name: str
    bytes: int
    kind: str


class StoreReport(Report):
    """Report on the folder, after the requested changes."""

    @property
    def path(self) -> str:
        """Path of the folder."""
        return self._document["path"]

    @property
    def whole(self) -> bool:
        """True if the current version and all snapshots are complete and readable."""
        return self.exit_code == 0

    @property
    def current(self) -> Optional[int]:
        """Current version; `None` if the version file is missing or invalid."""
        return self._document["current"]

    @cached_property
    def versions(self) -> Tuple[Version, ...]:
        """Versions, oldest first."""
        return many(Version, self._document["versions"])

    @cached_property
    def snapshots(self) -> Tuple[Snapshot, ...]:
        """Snapshots."""
        return many(Snapshot, self._document["snapshots"])

    @cached_property
    def orphans(self) -> Tuple[Orphan, ...]:
        """Files that belong to no version or snapshot."""
        return many(Orphan, self._document["orphans"])

    @property
    def damaged(self) -> Dict[int, str]:
        """Versions with all files that cannot be read, with the reason."""
        return {int(version): why for version, why in self._document["damaged"].items()}

    @property
    def done(self) -> Tuple[Dict[str, Any], ...]:
        """Changes made: each has `what` and `report`."""
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
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> StoreReport:
    """Lists and manages the versions in a folder of PyTorch-BigGraph checkpoints.

    - `recover`: make the highest complete version current, if the version file is missing or invalid; `start_over`: start
      from nothing if no version is complete;
    - `rollback`: make this version current; `delete_newer`: delete the files of newer versions;
    - `preserve`: save the current version as the snapshot `epoch_N`; `copies`: as copies instead of links;
    - `prune`: delete old versions, except the newest `keep` ones and those of snapshots;
    - `sweep`: delete leftover files of crashed runs.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.checkpoint("no-such-folder")
    Traceback (most recent call last):
    weighbridge.errors.FileMissingError: ...
    """
    return StoreReport(*run("checkpoint", locals()))
