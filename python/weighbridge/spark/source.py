"""Data sources of Spark: tasks write files, and the driver renames them into place.

Spark may run a task several times: again after a failure, or twice at once. Each attempt writes files of its own in a hidden
folder, and only the names that successful attempts return are renamed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from ..errors import CorruptFileError, MismatchError, TargetExistsError, UsageError
from ..saving import save

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_EDGES = re.compile(r"edges_\d+_\d+\.h5")
_PARTS = ("lhs_part", "rhs_part")
_IDS = ("lhs", "rhs", "rel")
_WEIGHT = "weight"
_WHOLE = ("byte", "short", "integer", "long")
_FLOATS = ("float", "double")
_MOST_BUCKETS = 1 << 20


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """Files of a successful attempt: their final and their present names."""

    files: Dict[str, str]


class StagedWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Writer of a folder of files: each attempt of a task has its own, and the driver renames those of successful ones."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Tasks do not create it: without a shared file system they fail.
        self.staging = os.path.join(folder, f".weighbridge-{uuid.uuid4().hex}")
        os.makedirs(self.staging)

    def staged(self, name: str) -> str:
        """Returns an unused path for a file."""
        return os.path.join(self.staging, f"{uuid.uuid4().hex}-{name}")

    def complete(self, files: Dict[str, str]) -> None:
        """Adds files that no task has written."""

    def outdated(self) -> List[str]:
        """Returns the names of all files that the new ones replace."""
        return []

    def commit(self, messages: List[Optional[WriterCommitMessage]]) -> None:
        """Renames the files of successful attempts into place; removes all others."""
        files: Dict[str, str] = {}
        for message in messages:
            for name, path in message.files.items() if isinstance(message, Staged) else ():
                if name in files:
                    raise MismatchError(
                        "two tasks have rows of one file",
                        code="bucket-split",
                        file=os.path.join(self.folder, name),
                        expected="all rows of a bucket in one partition",
                        hint='df.repartition("lhs_part", "rhs_part") partitions rows by bucket',
                    )
                files[name] = path
        self.complete(files)
        old = set(self.outdated())
        for name, path in files.items():
            os.replace(path, os.path.join(self.folder, name))
        for name in old - set(files):
            os.remove(os.path.join(self.folder, name))
        sync_folder(self.folder)
        shutil.rmtree(self.staging, ignore_errors=True)

    def abort(self, messages: List[Optional[WriterCommitMessage]]) -> None:
        """Removes the files of all attempts."""
        shutil.rmtree(self.staging, ignore_errors=True)
        if not os.listdir(self.folder):
            os.rmdir(self.folder)


class BigGraphDataSource(DataSource):  # type: ignore[misc, unused-ignore]
    """Data source `biggraph`: writes edges as the edge files of PyTorch-BigGraph, one for each bucket.

        spark.dataSource.register(weighbridge.spark.BigGraphDataSource)
        (
            edges.repartition("lhs_part", "rhs_part")
            .sortWithinPartitions("lhs_part", "rhs_part")
            .write.format("biggraph").option("buckets", "4,4").mode("overwrite").save("/shared/graph/train")
        )

    - Columns: whole numbers `lhs_part`, `rhs_part` (the bucket), `lhs`, `rhs` (rows in their partitions) and `rel`; optionally
      `weight`, stored as 32-bit floats. Rows of a file keep the order that they have in their task.
    - All rows of a bucket must be in one partition. A task may have several buckets.
    - Option `buckets`: numbers of partitions of left and right sides. A bucket without edges has a file, too.
    - Mode `overwrite` replaces all edge files of the folder; `append` requires a folder without edge files.
    - The path is absolute, in a file system that all machines share.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "biggraph"

    def writer(self, schema: StructType, overwrite: bool) -> EdgesWriter:
        """Returns the writer of a folder."""
        _check_schema(schema)
        sides = _sides(self.options.get("buckets"))
        folder = _folder(self.options.get("path"))
        if not overwrite and os.path.isdir(folder) and _edge_files(folder):
            raise TargetExistsError(
                "the folder has edge files",
                code="exists",
                file=folder,
                hint='mode("overwrite") replaces them',
            )
        return EdgesWriter(folder, sides, _WEIGHT in schema.fieldNames())


class EdgesWriter(StagedWriter):
    """Writer of edge files."""

    def __init__(self, folder: str, sides: Tuple[int, int], weighted: bool) -> None:
        super().__init__(folder)
        self.sides = sides
        self.weighted = weighted

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Writes the buckets of a task."""
        files = {}
        with tempfile.TemporaryDirectory(prefix="weighbridge-", dir=_scratch()) as folder:
            spool = _Spool(folder, self.weighted)
            try:
                for batch in iterator:
                    self._split(batch, spool)
            finally:
                spool.close()
            for bucket in spool.buckets:
                name = edge_file(*divmod(bucket, self.sides[1]))
                files[name] = self._save(name, spool.columns(bucket))
        return Staged(files)

    def complete(self, files: Dict[str, str]) -> None:
        """Adds the buckets without edges."""
        import numpy

        for left in range(self.sides[0]):
            for right in range(self.sides[1]):
                name = edge_file(left, right)
                if name not in files:
                    none = {column: numpy.empty(0, numpy.int64) for column in _IDS}
                    if self.weighted:
                        none[_WEIGHT] = numpy.empty(0, numpy.float32)
                    files[name] = self._save(name, none)

    def outdated(self) -> List[str]:
        """Returns the names of all edge files."""
        return _edge_files(self.folder)

    def _save(self, name: str, columns: Mapping[Any, Any]) -> str:
        path = self.staged(name)
        save(path, columns, format="biggraph", kind="edges", threads=1)
        return path

    def _split(self, batch: pyarrow.RecordBatch, spool: _Spool) -> None:
        """Appends the edges of a batch to their buckets."""
        import numpy

        left, right = (_numbers(batch, name, end) for name, end in zip(_PARTS, self.sides))
        columns = [_numbers(batch, name) for name in _IDS]
        if self.weighted:
            weights = batch.column(batch.schema.get_field_index(_WEIGHT))
            _refuse_nulls(weights, _WEIGHT)
            columns.append(weights.to_numpy(zero_copy_only=False).astype(numpy.float32))
        buckets = left * self.sides[1] + right
        order = numpy.argsort(buckets, kind="stable")
        sorted_buckets = buckets[order]
        starts = numpy.flatnonzero(numpy.diff(sorted_buckets, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)]):
            rows = order[start:end]
            spool.append(int(sorted_buckets[start]), [column[rows] for column in columns])


class NamesDataSource(DataSource):  # type: ignore[misc, unused-ignore]
    """Data source `biggraph_names`: writes the lists of names.

    Rows are file names and names as bytes. Those of a file are consecutive rows of one partition.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "biggraph_names"

    def writer(self, schema: StructType, overwrite: bool) -> NamesWriter:
        """Returns the writer of a folder."""
        return NamesWriter(_folder(self.options.get("path")))


class NamesWriter(StagedWriter):
    """Writer of the lists of names."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Writes the lists of a task, name by name."""
        files = {}
        rows = (
            row for batch in iterator for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist())
        )
        for name, own in groupby(rows, key=lambda row: row[0]):
            files[name] = self.staged(name)
            with open(files[name], "x", encoding="ascii", newline="\n") as file:
                before = "[\n    "
                for _, text in own:
                    file.write(before)
                    file.write(json.dumps(text.decode("utf-8", "surrogateescape")))
                    before = ",\n    "
                file.write("\n]")
                file.flush()
                os.fsync(file.fileno())
        return Staged(files)


class _Spool:
    """Columns of buckets in files, for as many edges as a task has."""

    def __init__(self, folder: str, weighted: bool) -> None:
        self._folder = folder
        self._names = (*_IDS, _WEIGHT) if weighted else _IDS
        self._open: List[BinaryIO] = []
        self._current: Optional[int] = None
        self.buckets: Dict[int, None] = {}

    def _path(self, bucket: int, name: str) -> str:
        return os.path.join(self._folder, f"{bucket}-{name}")

    def append(self, bucket: int, columns: Sequence[Any]) -> None:
        """Appends edges to a bucket. Only the files of the last bucket are open."""
        if bucket != self._current:
            self.close()
            self._open = [open(self._path(bucket, name), "ab") for name in self._names]
            self._current = bucket
            self.buckets[bucket] = None
        for file, column in zip(self._open, columns):
            column.tofile(file)

    def close(self) -> None:
        """Completes the files."""
        for file in self._open:
            file.close()
        self._open, self._current = [], None

    def columns(self, bucket: int) -> Dict[Any, Any]:
        """Returns the columns of a bucket, mapped."""
        import numpy

        return {
            name: numpy.memmap(
                self._path(bucket, name), numpy.float32 if name == _WEIGHT else numpy.int64, mode="r"
            )
            for name in self._names
        }


def sync_folder(path: str) -> None:
    """Waits until the names in a folder are on the disk."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _scratch() -> Optional[str]:
    """Returns Spark's folder for temporary data, if it has one."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if os.path.isdir(folder) else None


def edge_file(left: int, right: int) -> str:
    """Returns the name of the file of a bucket."""
    return f"edges_{left}_{right}.h5"


def _edge_files(folder: str) -> List[str]:
    return [name for name in os.listdir(folder) if _EDGES.fullmatch(name)]


def _folder(path: Optional[str]) -> str:
    if not path or not os.path.isabs(path):
        raise UsageError(
            "the path is not absolute",
            code="bad-arguments",
            expected="an absolute path in a file system that all machines share",
            found=str(path),
        )
    return path


def _sides(text: Optional[str]) -> Tuple[int, int]:
    numbers = re.fullmatch(r"\s*(\d{1,7})\s*,\s*(\d{1,7})\s*", text or "")
    sides = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if not 0 < sides[0] * sides[1] <= _MOST_BUCKETS:
        raise UsageError(
            "invalid option buckets",
            code="bad-arguments",
            expected=f"numbers of partitions of left and right sides, such as 4,4; at most {_MOST_BUCKETS} buckets",
            found=str(text),
        )
    return sides


def _check_schema(schema: StructType) -> None:
    """Raises unless the columns are those of edges."""
    types = {field.name: field.dataType.typeName() for field in schema.fields}
    needed = (*_PARTS, *_IDS)
    known = all(types.get(name) in _WHOLE for name in needed)
    if not known or types.pop(_WEIGHT, "float") not in _FLOATS or set(types) != set(needed):
        raise MismatchError(
            "the columns are not those of edges",
            code="edge-columns",
            expected=f"{', '.join(needed)}: whole numbers; optionally weight: float or double",
            found=schema.simpleString(),
        )


def _refuse_nulls(column: pyarrow.Array, name: str) -> None:
    if column.null_count:
        raise CorruptFileError(f"column {name}: null", code="bad-line", expected="a number in each row")


def _numbers(batch: pyarrow.RecordBatch, name: str, end: Optional[int] = None) -> Any:
    """Returns a column as 64-bit integers that are not negative, and below `end`."""
    import numpy

    column = batch.column(batch.schema.get_field_index(name))
    _refuse_nulls(column, name)
    numbers = column.to_numpy(zero_copy_only=False).astype(numpy.int64, copy=False)
    if len(numbers) and (numbers.min() < 0 or (end is not None and numbers.max() >= end)):
        found = numbers.min() if numbers.min() < 0 else numbers.max()
        raise CorruptFileError(
            f"column {name}: number out of range",
            code="id-out-of-range",
            expected="0 or more" if end is None else f"0 to {end - 1}",
            found=str(found),
        )
    return numbers
