"""Writing checkpoints of PyTorch-BigGraph from a training loop, so that none is ever half written."""

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
"""A whole checkpoint, or arrays or tables by type of entities."""

State = Mapping[str, Any]
"""What an optimizer keeps: by type or parameter an array (the slot `sum`), or a dict of slots."""


class Version:
    """The version that is being written. The folder is locked until it is committed or given up.

    Leaving its `with` block commits it; an exception there gives it up, and the folder is as before.

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
        """What the commit did, once it is done."""
        self.notes: List[Note] = []
        """What `write` had to make up: a configuration, where there is none."""

    @property
    def number(self) -> int:
        """Its number."""
        return self._staged.version

    @property
    def is_open(self) -> bool:
        """True until it is committed or given up."""
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
        """Writes files of this version, which nobody sees yet; returns what is lost. It may be called for
        some tables each.

        - `tables`: rows by type of entities, or a whole opened checkpoint;
        - `parameters`: what the model has besides, by name (`relations.0.operator.rhs.translation`); left
          out, no such file is written, and the one of the version before must be carried over; `{}` says that
          there are none;
        - `state`: what the optimizer keeps, by type or by name of the parameter: an array is the slot `sum`,
          a dict has several, such as `step` and `sum`, and `{}` none; that of a table for which none is given is
          carried over from the version before; what BigGraph's optimizer does not keep is an error;
        - `names`: the names of the rows by type, written as files of entities beside the versions;
        - `config`: the configuration; else that of the folder stays, and where there is none a minimal one is
          made, with the one relation `relation`, which `notes` tells: BigGraph needs the real one to go on
          training;
        - `iteration`: where in the run this is (`epoch_idx`, ...); else what the last iteration of a run
          says;
        - `optimizer`: the options of the optimizers, as `Checkpoint.optimizer` gives them.
        """
        whole = tables if isinstance(tables, Checkpoint) else None
        if whole is not None and (parameters is not None or state is not None or names is not None):
            raise UsageError(
                "a whole checkpoint has its own parameters, state and names",
                code="whole-checkpoint",
                hint="give its tables",
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
        """Writes one partition of the table of `entity`, so that a table may be larger than memory; returns the losses.

        - `rows`: the rows of this partition, an array of two dimensions;
        - `state`: the optimizer state of these rows: an array is the slot `sum`, with a number for each row; `{}` is none.
          Left out, the state of this partition in the version before is carried over;
        - `iteration`: as for `write`.

        The folder's configuration, or `expected` of the store, says how many partitions the version needs.
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
        """The optimizer state of a partition of the version before, which goes on with its rows."""
        before = self._store.latest()
        if before is None or entity not in before or not before[entity].state:
            return {}
        table = before[entity]
        counts = table.partitions[: part + 1]
        if len(counts) <= part or None in counts or counts[part] != count:
            raise UsageError(
                "the partition has not as many rows as before, and its optimizer state is not given",
                code="state-of-other-rows",
                tensor=entity,
                expected=f"{counts[part] if len(counts) > part else 'no'} rows in partition {part}",
                found=f"{count} rows",
                hint="give state=..., or state={} for none",
            )
        start = sum(number for number in counts[:part] if number is not None)
        return {slot: tensor[start : start + count] for slot, tensor in table.state.items()}

    def _carried(self, rows: Mapping[str, Any], state: State) -> Dict[str, Any]:
        """What the optimizer kept in the version before, for tables that come without any: it goes on with its rows."""
        alone = [name for name, table in rows.items() if name not in state and not isinstance(table, Table)]
        before = self._store.latest() if alone else None
        carried: Dict[str, Any] = {}
        if before is None:
            return carried
        for name in alone:
            slots = dict(before[name].state) if name in before else {}
            if slots and len(before[name]) != len(rows[name]):
                raise UsageError(
                    "the table has not as many rows as before, and what the optimizer keeps for them is not given",
                    code="state-of-other-rows",
                    tensor=name,
                    expected=f"{len(before[name])} rows",
                    found=f"{len(rows[name])} rows",
                    hint=f"give state={{{name!r}: ...}}, or {{{name!r}: {{}}}} for none",
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
        """The rows of each partition, where they are to stay as they were."""
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
        """Appends entries to the training statistics of the folder, at once, not at the commit: as BigGraph
        does.
        """
        self._staged.append_stats([_line(one) for one in entries])

    def commit(
        self, *, carry: str = "no", keep_previous: bool = False, preserve: Optional[int] = None
    ) -> Dict[str, Any]:
        """Makes it the version that counts; returns what was done.

        - `carry`: what becomes of files of the version before that were not written anew: `no`, they are
          missing, and that is an error; `copy`; `link`, for folders to which BigGraph itself does not write;
        - `keep_previous`: keep the version before, which else is deleted;
        - `preserve`: make it the snapshot `epoch_N`, too.
        """
        self.report = self._staged.commit(carry, keep_previous, preserve)
        self._store._committed(self.number)
        return self.report

    def abort(self) -> None:
        """Gives it up: nothing of it stays."""
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
    """A folder of versions of a checkpoint that cannot lose a complete one.

    BigGraph goes on from what is written here, and the other way round. A version counts only when all of it
    is on the disk, and the one before is deleted only then. Whoever writes holds a lock on the folder. Inside
    `with` it is held from the beginning to the end, also between versions; a version that was not committed by
    then is given up, and a process that is forked meanwhile may not write. Should somebody who does not know
    of the lock, such as BigGraph, write a version meanwhile, that is an error.

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

    - `keep`: how many versions stay when one is saved, besides those of snapshots: 1, as in BigGraph;
    - `expected`: the number of partitions of each type, where that is known better than the folder tells;
    - `create`: make the folder where it is missing;
    - `sync`: wait for the disk, so that versions survive a loss of power;
    - `threads`, `memory`: workers (0: one for each processor), and bytes for buffers.
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
                "the current version always stays", code="keep-none", expected="1 or more", found=str(keep)
            )
        self._folder = path_text(folder, "folder")
        if create:
            os.makedirs(self._folder, exist_ok=True)
        self._keep = keep
        self._store = Store(self._folder, None if expected is None else dict(expected), sync, threads, memory)
        self._inside = 0
        self._begun: Optional[Version] = None
        """The version that was begun last."""
        self._last: Optional[int] = None
        """Inside `with`: the version that counts, as far as this run knows."""

    @property
    def folder(self) -> str:
        """The folder."""
        return self._folder

    @property
    def version(self) -> int:
        """The version that counts; 0 where there is none yet."""
        return self._store.current()

    @property
    def versions(self) -> List[int]:
        """The complete versions up to the one that counts, in order."""
        state = self.state()
        current = state["current"] or 0
        return [
            own["version"] for own in state["versions"] if own["complete"] and 0 < own["version"] <= current
        ]

    def state(self) -> Dict[str, Any]:
        """What stands in the folder: versions and their files, snapshots, and what nobody needs."""
        return self._store.state()

    def config_text(self) -> Optional[str]:
        """The configuration of the folder as it stands there; `None` where there is none."""
        content = self._store.content("config.json")
        return None if content is None else bytes(content).decode("utf-8")

    def partitions(self) -> Dict[str, List[Optional[int]]]:
        """The rows of each partition of the tables of the current version, by type; nothing where there is
        none.
        """
        latest = self.latest()
        return {} if latest is None else {name: table.partitions for name, table in latest.items()}

    def open(self, version: Optional[int] = None) -> Checkpoint:
        """A complete version, the current one if none is named."""
        number = self.version if version is None else version
        return Checkpoint(core.Checkpoint(self._store.open(number), self._folder))

    def latest(self) -> Optional[Checkpoint]:
        """The version that counts; `None` where there is none yet, and training begins."""
        number = self.version
        return None if number == 0 else self.open(number)

    def begin(self) -> Version:
        """Begins the version after the current one, to be written piece by piece."""
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
        """Writes the next version, all or nothing; returns what was done. See `Version.write` and
        `Version.commit`.

        Tables and parameters of the version before that are not given are carried over. `stats` are entries
        for the training statistics of the folder. `losses` of what is returned says what is lost (what is left
        out is a `LossWarning`, too), `notes` what was made up: a folder without a configuration gets a minimal one, and BigGraph needs the real
        one to go on training.
        """
        version = self.begin()
        try:
            # With no version before there is nothing to carry over.
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
        """Makes another complete version count: an older one, or a newer one of a run that died just before
        it counted.
        """
        try:
            return self._store.rollback(version, delete_newer)
        finally:
            # Also where only the removal of newer ones failed; where it did not get so far, nothing changes.
            if self._inside and self._counting() == version:
                self._last = version

    def recover(self, *, verify: bool = True, start_over: bool = False) -> Dict[str, Any]:
        """Where the version file does not say which version counts, makes the highest complete one count.

        With `verify` its files are opened first. `start_over` begins from nothing where no version is
        complete.
        """
        report = self._store.recover(verify, start_over)
        if self._inside:
            self._last = report["version"]
        return report

    def sweep(
        self, *, newer: bool = False, older: bool = False, remnants: bool = False, temporary: bool = False
    ) -> Dict[str, Any]:
        """Removes what writers that died left, and files of versions that do not count where that is asked
        for.

        These are not removed inside `with` where another run wrote a version meanwhile (`version-moved`).
        """
        if newer or older or remnants:
            self._expect(self._counting())
        return self._store.sweep(newer, older, remnants, temporary)

    def prune(self, keep: int) -> Dict[str, Any]:
        """Deletes versions except the `keep` newest complete ones, those of snapshots, and version 0.

        Inside `with` it is an error (`version-moved`) where another run wrote a version meanwhile: which ones
        are the newest is not what it was.
        """
        self._expect(self._counting())
        return self._store.prune(keep)

    def preserve(self, epoch: int, *, form: str = "relative") -> Dict[str, Any]:
        """Makes the current version the snapshot `epoch_N`: `relative` or `absolute` links, or `copies`.

        Inside `with` it is an error (`version-moved`) where another run wrote a version meanwhile: it is not
        the one that was saved here.
        """
        self._expect(self._counting())
        return self._store.preserve(epoch, form)

    def _counting(self) -> Optional[int]:
        """The version that counts; `None` where the folder does not say."""
        try:
            return self._store.current()
        except Error:
            return None

    def _expect(self, version: Optional[int]) -> None:
        """Fails inside `with` where another version counts than the one that this run knows of."""
        if self._last is None or version is None or version == self._last:
            return
        raise MismatchError(
            "another run has written to the folder, without the lock",
            code="version-moved",
            file=self._folder,
            expected=f"version {self._last}",
            found=f"version {version}",
            hint="look at state(), and say with rollback(N) which version counts",
        )

    def _committed(self, version: int) -> None:
        """Notes which version counts now; for `Version`."""
        self._last = version if self._inside else None

    def __enter__(self) -> CheckpointStore:
        if self._inside == 0:
            self._store = self._store.hold()
            # What somebody without the lock writes from here on is noticed. Where the folder does not say
            # which version counts, nothing is begun before `recover` does.
            self._last = self._counting()
        self._inside += 1
        return self

    def __exit__(self, *_: Any) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._last = None
            # One that is still open would keep the lock, and nobody would know who has it.
            if self._begun is not None and self._begun.is_open:
                self._begun.abort()
            self._begun = None
            self._store.release()

    def __repr__(self) -> str:
        state = self.state()
        current = state["current"]
        said = "without a version that counts" if current is None else f"version {current}"
        return f"<CheckpointStore {visible(self._folder)}: {said}>"


def _check_slots(losses: Sequence[Mapping[str, Any]]) -> None:
    """Fails where state that was given would be lost."""
    # A count of steps for a table is the optimizer's own, which makes it anew.
    lost = [loss["subject"] for loss in losses if loss["code"] == "state-slot"]
    unfit = [subject for subject in lost if not subject.endswith("/step")]
    if unfit:
        raise MismatchError(
            "the optimizer of BigGraph keeps nothing of this name or shape",
            code="state-slot",
            tensor=unfit[0],
            expected="`sum` with a number for each row or, of a parameter, each value; `step`",
            hint="what was given would be lost with this version",
        )


def _check_names(
    tables: Mapping[str, Any], parameters: Mapping[str, Any], state: State, names: Mapping[str, Sequence[str]]
) -> None:
    for what, known in ((names, tables), (state, {**tables, **parameters})):
        for name in what:
            if name not in known:
                raise UsageError(
                    "there is no such table or parameter among those given",
                    code="no-such-tensor",
                    tensor=str(name),
                )


def _given(
    tables: Dict[str, Any],
    parameters: Mapping[str, Any],
    state: State,
    names: Mapping[str, Sequence[str]],
) -> List[Given]:
    """Tables, parameters, and their state, as the Rust part takes them."""
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
