"""Atomic writing of PyTorch-BigGraph checkpoints from a training loop."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from .. import opened as core
from .._weighbridge import NextVersion, Store
from ..checks import mapping, path_text
from ..opened import Note, Path, index_of
from ..errors import Error, MismatchError, UsageError, visible
from ..progress import Progress, callback
from ..saving import entry
from ..tensor import Part
from ..verbs.report import Loss, many, warn
from ..writing import Given
from .checkpoint import Checkpoint
from .config import Config
from .table import Table

Tables = Union[Checkpoint, Mapping[str, Any]]
"""A whole checkpoint, or arrays or tables by entity type."""

State = Mapping[str, Any]
"""Optimizer state by entity type or parameter: an array (the slot `sum`), or a dict of slots."""


class Version:
    """A version being written. The folder is locked until the version is committed or aborted.

    Leaving its `with` block commits it; an exception there aborts it and leaves the folder unchanged.

    >>> from weighbridge.biggraph import CheckpointStore
    >>> store = CheckpointStore("another-run")
    >>> with store.begin() as version:
    ...     _ = version.write({"user": [[0.0, 1.0], [2.0, 3.0]]}, parameters={})
    >>> store.version
    1
    """

    def __init__(self, store: CheckpointStore, staged: NextVersion) -> None:
        self._store = store
        self._staged = staged
        self.report: Optional[Dict[str, Any]] = None
        """Report of the commit, once committed."""
        self.notes: List[Note] = []
        """Notes about generated content: a configuration, if the folder has none."""

    @property
    def number(self) -> int:
        """Number of the version."""
        return self._staged.version

    @property
    def is_open(self) -> bool:
        """True until the version is committed or aborted."""
        return self._staged.is_open

    def write(
        self,
        tables: Tables,
        *,
        parameters: Optional[Mapping[str, Any]] = None,
        state: Optional[State] = None,
        names: Optional[Mapping[str, Sequence[str]]] = None,
        config: Union[Mapping[str, Any], str, None] = None,
        iteration: Optional[Mapping[str, Any]] = None,
        optimizer: Optional[Mapping[str, Any]] = None,
        progress: Progress = None,
    ) -> List[Dict[str, Any]]:
        """Stages files of this version, not visible before the commit; returns the losses. May be called several times,
        for some of the tables each time.

        - `tables`: rows by entity type, or a whole opened checkpoint;
        - `parameters`: other parameters of the model, by name (`relations.0.operator.rhs.translation`). `{}` means none. If
          omitted, their file is not written, and that of the previous version must be carried over;
        - `state`: optimizer state, by entity type or parameter name: an array is the slot `sum`, a dict has several slots,
          such as `step` and `sum`, and `{}` none. State of tables that is not given is carried over from the previous
          version. Slots that BigGraph's optimizer does not have are an error;
        - `names`: row names by entity type, written as entity files next to the versions;
        - `config`: the configuration. By default that of the folder stays; without one, a minimal configuration with the
          single relation `relation` is generated and reported in `notes`: BigGraph needs the real one to resume training;
        - `iteration`: position in the run (`epoch_idx`, ...); by default that of the last iteration of a run;
        - `optimizer`: options of the optimizers, as in `Checkpoint.optimizer`.
        """
        whole = tables if isinstance(tables, Checkpoint) else None
        if whole is not None and (parameters is not None or state is not None or names is not None):
            raise UsageError(
                "parameters, state and names are not accepted with a whole checkpoint",
                code="whole-checkpoint",
                hint="pass its tables instead",
            )
        own = {} if whole is not None else mapping(tables, "tables")
        rows: Dict[str, Any] = {name: _array(table) for name, table in own.items()}
        mapping({} if parameters is None else parameters, "parameters")
        mapping({} if state is None else state, "state")
        mapping({} if names is None else names, "names")
        metadata = self._metadata(rows, config, iteration, optimizer)
        settings = [("entities", "yes" if names else "no")]
        _check_names(rows, parameters or {}, state or {}, names or {})
        tensors = _given(
            rows, parameters or {}, {**self._carried(rows, state or {}), **(state or {})}, names or {}
        )
        partitions = self._partitions(rows, config)
        base = None if whole is None else index_of(whole.opened)
        model = whole is not None or parameters is not None
        with callback(progress) as tell:
            report = self._staged.put(base, tensors, metadata, settings, partitions, model, tell)
        if whole is None:
            _check_slots(report["losses"])
        made = [loss for loss in report["losses"] if loss["code"] == "config-made"]
        if made and not self.notes:
            self.notes = [Note("config-made", made[0]["detail"], False)]
        return [loss for loss in report["losses"] if loss["code"] not in ("names-left-out", "config-made")]

    def write_partition(
        self,
        entity: str,
        part: int,
        rows: Any,
        *,
        state: Any = None,
        iteration: Optional[Mapping[str, Any]] = None,
        progress: Progress = None,
    ) -> List[Dict[str, Any]]:
        """Stages one partition of the table of `entity`, for tables larger than memory; returns the losses.

        - `rows`: rows of this partition, a 2-dimensional array;
        - `state`: optimizer state of these rows: an array is the slot `sum`, with one number per row; `{}` means none. If omitted,
          the state of this partition in the previous version is carried over;
        - `iteration`: as for `write`.

        The number of partitions comes from the folder's configuration, or from `expected` of the store.
        `write({}, parameters=..., config=...)` writes the parameters and the configuration.

        >>> import numpy
        >>> from weighbridge.biggraph import CheckpointStore
        >>> store = CheckpointStore("in-parts", expected={"user": 2})
        >>> with store.begin() as version:
        ...     for part in range(2):
        ...         _ = version.write_partition("user", part, numpy.full((3, 4), part, "float32"))
        ...     _ = version.write({}, parameters={})
        >>> store.partitions()
        {'user': [3, 3]}
        """
        values = _array(rows)
        own = self._carried_part(entity, part, len(values)) if state is None else state
        tensors = _given({entity: values}, {}, {entity: own}, {})
        metadata = self._metadata({entity: rows}, None, iteration, None)
        with callback(progress) as tell:
            losses: List[Dict[str, Any]] = self._staged.put_partition(part, tensors, metadata, tell)
        _check_slots(losses)
        return losses

    def _carried_part(self, entity: str, part: int, count: int) -> Dict[str, Any]:
        """Returns the optimizer state of a partition in the previous version, to carry over."""
        before = self._store.latest()
        if before is None or entity not in before or not before[entity].state:
            return {}
        table = before[entity]
        counts = table.partitions[: part + 1]
        if len(counts) <= part or None in counts or counts[part] != count:
            raise UsageError(
                "the number of rows changed, and no optimizer state is given for the partition",
                code="state-of-other-rows",
                tensor=entity,
                expected=f"{counts[part] if len(counts) > part else 'no'} rows in partition {part}",
                found=f"{count} rows",
                hint="pass state=..., or state={} for none",
            )
        start = sum(number for number in counts[:part] if number is not None)
        return {slot: tensor[start : start + count] for slot, tensor in table.state.items()}

    def _carried(self, rows: Mapping[str, Any], state: State) -> Dict[str, Any]:
        """Returns the optimizer state in the previous version of tables given without state, to carry over."""
        alone = [name for name, table in rows.items() if name not in state and not isinstance(table, Table)]
        before = self._store.latest() if alone else None
        carried: Dict[str, Any] = {}
        if before is None:
            return carried
        for name in alone:
            slots = dict(before[name].state) if name in before else {}
            if slots and len(before[name]) != len(rows[name]):
                raise UsageError(
                    "the number of rows changed, and no optimizer state is given for the table",
                    code="state-of-other-rows",
                    tensor=name,
                    expected=f"{len(before[name])} rows",
                    found=f"{len(rows[name])} rows",
                    hint=f"pass state={{{name!r}: ...}}, or {{{name!r}: {{}}}} for none",
                )
            if slots:
                carried[name] = slots
        return carried

    def _metadata(
        self,
        tables: Dict[str, Any],
        config: Union[Mapping[str, Any], str, None],
        iteration: Optional[Mapping[str, Any]],
        optimizer: Optional[Mapping[str, Any]],
    ) -> Dict[str, Any]:
        metadata: Dict[str, Any] = {}
        text = config if config is None or isinstance(config, str) else json.dumps(config, indent=4)
        if text is None and tables:
            text = self._store.config_text()
        if text is not None:
            metadata["config"] = text
        if iteration is not None:
            metadata["attributes"] = {f"iteration/{key}": value for key, value in iteration.items()}
        if optimizer is not None:
            metadata["optimizer"] = dict(optimizer)
        return metadata

    def _partitions(
        self, rows: Dict[str, Any], config: Union[Mapping[str, Any], str, None]
    ) -> Dict[str, List[int]]:
        """Returns the row counts of partitions of tables whose partitioning stays."""
        known = {name: table.partitions for name, table in rows.items() if isinstance(table, Table)}
        if len(known) < len(rows):
            known = {**self._store.partitions(), **known}
        wanted = Config.parse(config) if isinstance(config, str) else config or {}
        kept = {}
        for name, counts in known.items():
            rows_of = [count for count in counts if count is not None]
            whole = len(rows_of) == len(counts) and name in rows and sum(rows_of) == len(rows[name])
            parts = wanted.get("entities", {}).get(name, {}).get("num_partitions", len(counts))
            if whole and parts == len(counts):
                kept[name] = rows_of
        return kept

    def append_stats(self, *entries: Union[Mapping[str, Any], str]) -> None:
        """Appends entries to the training statistics of the folder, immediately, not at the commit, as BigGraph does."""
        self._staged.append_stats([_line(one) for one in entries])

    def commit(
        self, *, carry: str = "no", keep_previous: bool = False, preserve: Optional[int] = None
    ) -> Dict[str, Any]:
        """Makes this version current; returns a report.

        - `carry`: files of the previous version that were not written again: `no` (missing files are an error), `copy`, or
          `link`, for folders to which BigGraph itself does not write;
        - `keep_previous`: keep the previous version instead of deleting it;
        - `preserve`: also save this version as the snapshot `epoch_N`.
        """
        self.report = self._staged.commit(carry, keep_previous, preserve)
        self._store._committed(self.number)
        return self.report

    def abort(self) -> None:
        """Discards the staged files."""
        self._staged.abort()

    def __enter__(self) -> Version:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is not None:
            self.abort()
        elif self.is_open:
            self.commit()

    def __repr__(self) -> str:
        return f"<Version {self.number}: {'being written' if self.is_open else 'ended'}>"


class CheckpointStore:
    """A folder of checkpoint versions with crash-safe writing.

    BigGraph can resume from versions written here, and the other way round. A version becomes current only when all of its
    files are on the disk; the previous one is deleted only then. A writer holds a lock on the folder. A `with` block holds the
    lock to its end, also between versions. At its end an uncommitted version is aborted; a process forked inside may not write.
    If a program without the lock, such as BigGraph, writes a version inside the block, the next write fails.

    >>> import numpy
    >>> from weighbridge.biggraph import CheckpointStore
    >>> rows = numpy.zeros((3, 2), "float32")
    >>> with CheckpointStore("run", keep=2) as store:
    ...     for epoch in range(3):
    ...         rows += 1
    ...         _ = store.save({"user": rows}, state={"user": rows.mean(1)}, names={"user": ["a", "b", "c"]})
    ...     store.versions
    [2, 3]
    >>> latest = CheckpointStore("run").latest()
    >>> latest.version, latest["user"]["b"].tolist(), latest["user"].state["sum"].numpy().tolist()
    (3, [3.0, 3.0], [3.0, 3.0, 3.0])

    - `keep`: number of versions to keep after a save, besides those of snapshots; 1 by default, as in BigGraph;
    - `expected`: number of partitions by entity type, if it differs from the configuration of the folder;
    - `create`: create the folder if it is missing;
    - `sync`: wait for the disk (fsync), so that versions survive a loss of power;
    - `threads`, `memory`: number of workers (0: one per processor), and bytes for buffers.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = 1,
        expected: Optional[Mapping[str, int]] = None,
        create: bool = True,
        sync: bool = True,
        threads: int = 0,
        memory: int = 256 << 20,
    ) -> None:
        if keep < 1:
            raise UsageError(
                "keep must be 1 or more", code="keep-none", expected="1 or more", found=str(keep)
            )
        self._folder = path_text(folder, "folder")
        if create:
            os.makedirs(self._folder, exist_ok=True)
        self._keep = keep
        self._store = Store(self._folder, None if expected is None else dict(expected), sync, threads, memory)
        self._inside = 0
        self._begun: Optional[Version] = None
        """Version begun last."""
        self._last: Optional[int] = None
        """Inside `with`: current version, as known to this run."""

    @property
    def folder(self) -> str:
        """Path of the folder."""
        return self._folder

    @property
    def version(self) -> int:
        """Current version; 0 if there is none yet."""
        return self._store.current()

    @property
    def versions(self) -> List[int]:
        """Complete versions up to the current one, in order."""
        state = self.state()
        current = state["current"] or 0
        return [
            own["version"] for own in state["versions"] if own["complete"] and 0 < own["version"] <= current
        ]

    def state(self) -> Dict[str, Any]:
        """Returns the content of the folder: versions and their files, snapshots, and leftover files."""
        return self._store.state()

    def config_text(self) -> Optional[str]:
        """Returns the text of the folder's configuration; `None` if there is none."""
        content = self._store.content("config.json")
        return None if content is None else bytes(content).decode("utf-8")

    def partitions(self) -> Dict[str, List[Optional[int]]]:
        """Returns the row counts of the partitions in the current version, by entity type; empty without a version."""
        latest = self.latest()
        return {} if latest is None else {name: table.partitions for name, table in latest.items()}

    def open(self, version: Optional[int] = None) -> Checkpoint:
        """Opens a complete version, by default the current one."""
        number = self.version if version is None else version
        return Checkpoint(core.Checkpoint(self._store.open(number), self._folder))

    def latest(self) -> Optional[Checkpoint]:
        """Opens the current version; `None` if there is none yet and training starts from the beginning."""
        number = self.version
        return None if number == 0 else self.open(number)

    def begin(self) -> Version:
        """Begins the next version, to be written in several steps."""
        staged = self._store.begin()
        try:
            self._expect(staged.version - 1)
        except MismatchError:
            staged.abort()
            raise
        self._begun = Version(self, staged)
        return self._begun

    def save(
        self,
        tables: Tables,
        *,
        parameters: Optional[Mapping[str, Any]] = None,
        state: Optional[State] = None,
        names: Optional[Mapping[str, Sequence[str]]] = None,
        config: Union[Mapping[str, Any], str, None] = None,
        iteration: Optional[Mapping[str, Any]] = None,
        optimizer: Optional[Mapping[str, Any]] = None,
        stats: Sequence[Union[Mapping[str, Any], str]] = (),
        carry: str = "copy",
        preserve: Optional[int] = None,
        progress: Progress = None,
    ) -> Dict[str, Any]:
        """Writes the next version, atomically; returns a report. See `Version.write` and `Version.commit` for the arguments.

        Tables and parameters of the previous version that are not given are carried over. `stats` are entries for the training
        statistics of the folder. In the report, `losses` lists the losses (omitted content also raises a `LossWarning`), and
        `notes` lists generated content: a folder without a configuration gets a minimal one, and BigGraph needs the real one
        to resume training.
        """
        version = self.begin()
        try:
            # Without a previous version there is nothing to carry over.
            nothing = parameters is None and version.number == 1 and not isinstance(tables, Checkpoint)
            first = {} if nothing else parameters
            losses = version.write(
                tables,
                parameters=first,
                state=state,
                names=names,
                config=config,
                iteration=iteration,
                optimizer=optimizer,
                progress=progress,
            )
            if stats:
                version.append_stats(*stats)
            report = version.commit(carry=carry, keep_previous=self._keep > 1, preserve=preserve)
            if self._keep > 1:
                report["deleted"] = self._store.prune(self._keep)["deleted"]
        finally:
            version.abort()
        warn(many(Loss, losses), False)
        return {**report, "losses": losses, "notes": [note._asdict() for note in version.notes]}

    def rollback(self, version: int, *, delete_newer: bool = False) -> Dict[str, Any]:
        """Makes another complete version current: an older one, or a newer one of a run that crashed before its commit."""
        try:
            return self._store.rollback(version, delete_newer)
        finally:
            # Also if only the deletion of newer versions failed; after an earlier failure the version is unchanged.
            if self._inside and self._counting() == version:
                self._last = version

    def recover(self, *, verify: bool = True, start_over: bool = False) -> Dict[str, Any]:
        """Makes the highest complete version current, if the version file is missing or invalid.

        With `verify` its files are opened first. `start_over` starts from nothing if no version is complete.
        """
        report = self._store.recover(verify, start_over)
        if self._inside:
            self._last = report["version"]
        return report

    def sweep(
        self, *, newer: bool = False, older: bool = False, remnants: bool = False, temporary: bool = False
    ) -> Dict[str, Any]:
        """Deletes leftovers of crashed writers and, if requested, files of versions other than the current one.

        Inside `with`, files of versions are not deleted if another run wrote a version meanwhile: error `version-moved`.
        """
        if newer or older or remnants:
            self._expect(self._counting())
        return self._store.sweep(newer, older, remnants, temporary)

    def prune(self, keep: int) -> Dict[str, Any]:
        """Deletes all versions except the `keep` newest complete ones, those of snapshots, and version 0.

        Inside `with`, raises `version-moved` if another run wrote a version meanwhile, because the newest versions changed.
        """
        self._expect(self._counting())
        return self._store.prune(keep)

    def preserve(self, epoch: int, *, form: str = "relative") -> Dict[str, Any]:
        """Saves the current version as the snapshot `epoch_N`, of `relative` or `absolute` links, or of `copies`.

        Inside `with`, raises `version-moved` if another run wrote a version meanwhile, because that version was not saved here.
        """
        self._expect(self._counting())
        return self._store.preserve(epoch, form)

    def _counting(self) -> Optional[int]:
        """Returns the current version; `None` if the version file is missing or invalid."""
        try:
            return self._store.current()
        except Error:
            return None

    def _expect(self, version: Optional[int]) -> None:
        """Raises inside `with` if the current version changed without this run."""
        if self._last is None or version is None or version == self._last:
            return
        raise MismatchError(
            "another run wrote to the folder without the lock",
            code="version-moved",
            file=self._folder,
            expected=f"version {self._last}",
            found=f"version {version}",
            hint="check state(), then select the current version with rollback(N)",
        )

    def _committed(self, version: int) -> None:
        """Records the current version; for `Version`."""
        self._last = version if self._inside else None

    def __enter__(self) -> CheckpointStore:
        if self._inside == 0:
            self._store = self._store.hold()
            # Detects later writes without the lock. If the version file is invalid, `begin` fails until `recover` is
            # called.
            self._last = self._counting()
        self._inside += 1
        return self

    def __exit__(self, *_: Any) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._last = None
            # An open version would keep the lock.
            if self._begun is not None and self._begun.is_open:
                self._begun.abort()
            self._begun = None
            self._store.release()

    def __repr__(self) -> str:
        state = self.state()
        current = state["current"]
        version = "no current version" if current is None else f"version {current}"
        return f"<CheckpointStore {visible(self._folder)}: {version}>"


def _check_slots(losses: Sequence[Mapping[str, Any]]) -> None:
    """Raises if given optimizer state would be lost."""
    # The step count of a table is created again by the optimizer.
    lost = [loss["subject"] for loss in losses if loss["code"] == "state-slot"]
    unfit = [subject for subject in lost if not subject.endswith("/step")]
    if unfit:
        raise MismatchError(
            "the optimizer of BigGraph has no slot of this name or shape",
            code="state-slot",
            tensor=unfit[0],
            expected="`sum` with a number for each row or, of a parameter, each value; `step`",
            hint="remove it from state: this version cannot store it",
        )


def _check_names(
    tables: Mapping[str, Any], parameters: Mapping[str, Any], state: State, names: Mapping[str, Sequence[str]]
) -> None:
    for what, known in ((names, tables), (state, {**tables, **parameters})):
        for name in what:
            if name not in known:
                raise UsageError(
                    "unknown table or parameter",
                    code="no-such-tensor",
                    tensor=str(name),
                )


def _given(
    tables: Dict[str, Any],
    parameters: Mapping[str, Any],
    state: State,
    names: Mapping[str, Sequence[str]],
) -> List[Given]:
    """Converts tables, parameters and their state to the form of the native part."""
    given: List[Given] = []
    for name, rows in tables.items():
        path: Tuple[Part, ...] = ("embeddings", name)
        slots: Dict[str, Any] = {}
        if isinstance(rows, Table):
            slots, rows = dict(rows.state), rows.tensor
        given.append((path, "embedding", None, entry(path, rows), names.get(name)))
        given.extend(_slots(path, _named(state.get(name), slots)))
    for name, values in parameters.items():
        path = tuple(name.split("."))
        values = _array(values)
        given.append((path, "parameter", None, entry(path, values), None))
        given.extend(_slots(path, _named(state.get(name), {})))
    return given


def _named(state: Any, otherwise: Dict[str, Any]) -> Mapping[str, Any]:
    if state is None:
        return otherwise
    return state if isinstance(state, Mapping) else {"sum": state}


def _slots(path: Tuple[Part, ...], slots: Mapping[str, Any]) -> List[Given]:
    found: List[Given] = []
    for slot, values in slots.items():
        values = _array(values)
        found.append((path, "optimizer", slot, entry(path, values), None))
    return found


def _array(values: Any) -> Any:
    if isinstance(values, (list, tuple, int, float)):
        import numpy

        return numpy.asarray(values, "float32")
    return values


def _line(entry_of_stats: Union[Mapping[str, Any], str]) -> str:
    return entry_of_stats if isinstance(entry_of_stats, str) else json.dumps(entry_of_stats)
