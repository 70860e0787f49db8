"""PyTorch-BigGraph checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from .. import opened as core
from ..opened import Note, Path
from ..errors import MismatchError, UnknownNameError
from ..tensor import Tensor
from . import edges as edge_files
from .config import Config
from .edges import Edges
from .table import Table

if TYPE_CHECKING:
    import numpy


class Checkpoint(Mapping):  # type: ignore[type-arg]
    """An opened checkpoint: a mapping of entity types to tables, with the other parameters of the model.

    >>> from weighbridge import biggraph
    >>> checkpoint = biggraph.open("graph")
    >>> checkpoint
    <Checkpoint graph: version 1, tables user>
    >>> list(checkpoint.parameters)
    ['relations.0.operator.rhs.translation']
    >>> checkpoint.config.entities.user.num_partitions
    1
    """

    def __init__(self, opened: core.Checkpoint) -> None:
        if opened.format != "biggraph" or opened.kind not in ("checkpoint", "init", "embeddings", "model"):
            raise MismatchError(
                "not a PyTorch-BigGraph checkpoint",
                code="wrong-kind",
                file=opened.path,
                found=f"{opened.format} {opened.kind}",
            )
        self._opened = opened
        self._metadata = opened.metadata
        self._tables: Dict[str, Table] = {}
        self._parameters: Dict[str, Tensor] = {}
        self._state: Dict[str, Dict[str, Tensor]] = {}
        slots: Dict[Any, Dict[str, Tensor]] = {}
        for tensor in opened.values():
            if tensor.slot is not None:
                slots.setdefault(tensor.path, {})[str(tensor.slot)] = tensor
        counts = self._metadata.get("partitions", {})
        for tensor in opened.values():
            if tensor.slot is not None:
                continue
            own = slots.get(tensor.path, {})
            if tensor.role == "embedding":
                name = str(tensor.path[-1])
                self._tables[name] = Table(name, tensor, own, counts.get(name))
            else:
                self._parameters[tensor.name] = tensor
                if own:
                    self._state[tensor.name] = own

    @property
    def opened(self) -> core.Checkpoint:
        """The checkpoint as returned by `weighbridge.open`: all tensors by name."""
        return self._opened

    @property
    def path(self) -> str:
        """Path passed to `open`."""
        return self._opened.path

    @property
    def version(self) -> Optional[int]:
        """Version; `None` for a single file without one."""
        return self._metadata.get("version")

    @property
    def notes(self) -> List[Note]:
        """Notes about the checkpoint."""
        return self._opened.notes

    @property
    def tables(self) -> Dict[str, Table]:
        """Tables by entity type, as a new dict."""
        return dict(self._tables)

    @property
    def parameters(self) -> Dict[str, Tensor]:
        """Parameters besides the tables, by name, such as `relations.0.operator.rhs.translation`."""
        return dict(self._parameters)

    @property
    def state(self) -> Dict[str, Dict[str, Tensor]]:
        """Optimizer state of the parameters: by name, then by slot (`step`, `sum`). Tables have their own `state`."""
        return {name: dict(slots) for name, slots in self._state.items()}

    @property
    def optimizer(self) -> Dict[str, Any]:
        """Options of the optimizers, as stored with their state."""
        return dict(self._metadata.get("optimizer", {}))

    @property
    def config(self) -> Optional[Config]:
        """Configuration of the run; `None` if unknown."""
        text = self._metadata.get("config") or self._metadata.get("attributes", {}).get("config/json")
        return None if text is None else Config.parse(text)

    @property
    def iteration(self) -> Dict[str, Any]:
        """Position in the run: `epoch_idx`, `edge_path_idx`, `edge_chunk_idx` and so on."""
        attributes = self._metadata.get("attributes", {})
        return {
            key.partition("/")[2]: value for key, value in attributes.items() if key.startswith("iteration/")
        }

    @property
    def relations(self) -> List[str]:
        """Names of the relations, by number."""
        names = self._metadata.get("relation_names")
        if names is not None:
            return list(names)
        config = self.config
        return [] if config is None else [relation["name"] for relation in config["relations"]]

    def operator(self, relation: str, side: str = "rhs") -> Dict[str, Tensor]:
        """Returns the operator parameters of a relation on one side, by name, such as `translation` or `diagonal`.

        With dynamic relations a single operator serves all relations: its parameters have one row per relation, and are
        returned whole.
        """
        numbers = [number for number, name in enumerate(self.relations) if name == relation]
        if not numbers:
            raise UnknownNameError(
                "unknown relation",
                code="no-such-relation",
                found=relation,
                expected=", ".join(self.relations[:20]),
            )
        config = self.config
        number = 0 if config is not None and config.get("dynamic_relations") else numbers[0]
        start = f"relations.{number}.operator.{side}."
        return {
            name[len(start) :]: tensor for name, tensor in self._parameters.items() if name.startswith(start)
        }

    def global_embedding(self, entity: str) -> Optional[Tensor]:
        """Returns the vector added to each row of an entity type; `None` if there is none."""
        return self._parameters.get(f"entities.{entity}.global_embedding")

    def edges(self, path: Path) -> Edges:
        """Reads the edges of a folder or file, all buckets in order, with entity numbers as rows of the whole tables.

        >>> from weighbridge import biggraph
        >>> checkpoint = biggraph.open("graph")
        >>> edges = checkpoint.edges("edges")
        >>> [checkpoint["user"].names[row] for row in edges.lhs]
        ['alice', 'bob', 'alice']
        """
        import numpy

        found = edge_files.buckets(path)
        config = self.config
        if config is None:
            raise MismatchError("the configuration is unknown", code="no-config", file=self.path)
        starts = self._starts(config)
        # All dynamic relations connect the same entity types.
        one = bool(config.get("dynamic_relations")) or len(starts) == 1
        parts = [_whole(bucket, own, starts, one) for bucket, own in found.items()]
        if not parts:
            raise MismatchError("the folder has no edges", code="no-edges", file=str(path))
        weights = [own.weight for own in parts if own.weight is not None]
        return Edges(
            lhs=numpy.concatenate([own.lhs for own in parts]),
            rhs=numpy.concatenate([own.rhs for own in parts]),
            rel=numpy.concatenate([own.rel for own in parts]),
            weight=numpy.concatenate(weights) if len(weights) == len(parts) else None,
        )

    def _starts(self, config: Config) -> List[Dict[str, Any]]:
        """Returns the first row of each partition, for each relation and side."""
        import numpy

        starts = {}
        for name, table in self._tables.items():
            counts = [count for count in table.partitions if count is not None]
            if len(counts) < len(table.partitions):
                raise MismatchError(
                    "a partition of the table is missing", code="partition-missing", tensor=name
                )
            starts[name] = numpy.cumsum([0, *counts[:-1]], dtype="int64")
        # Entities of featurized types, or of types without a file, keep their numbers.
        nothing = numpy.zeros(1, "int64")
        return [
            {side: starts.get(own[side], nothing) for side in ("lhs", "rhs")} for own in config["relations"]
        ]

    def __getitem__(self, entity: str) -> Table:
        try:
            return self._tables[entity]
        except KeyError:
            raise UnknownNameError(
                "no table has this entity type",
                code="no-such-type",
                expected=", ".join(self._tables),
                found=str(entity),
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def close(self) -> None:
        """Releases the files. Tables and arrays obtained before stay valid."""
        self._opened.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        from ..errors import visible

        tables = visible(", ".join(self._tables)) or "none"
        return f"<Checkpoint {visible(self.path)}: version {self.version}, tables {tables}>"


def _whole(bucket: edge_files.Bucket, own: Edges, starts: List[Dict[str, Any]], one: bool) -> Edges:
    """Converts the entity numbers of a bucket to rows of whole tables."""
    return own._replace(
        lhs=_rows(own.lhs, own.rel, bucket[0], [start["lhs"] for start in starts], one),
        rhs=_rows(own.rhs, own.rel, bucket[1], [start["rhs"] for start in starts], one),
    )


def _rows(
    numbers: numpy.ndarray, relations: numpy.ndarray, partition: int, starts: List[numpy.ndarray], one: bool
) -> numpy.ndarray:
    """Converts numbers within a partition to rows of whole tables. Negative numbers, which mark lists of features, stay."""
    import numpy

    # A type with a single partition occurs in every bucket.
    first = numpy.array([start[partition] if len(start) > 1 else 0 for start in starts], "int64")
    if one:
        added = numpy.full(len(numbers), first[0] if len(first) else 0, "int64")
    else:
        if len(relations) and not 0 <= int(relations.min()) <= int(relations.max()) < len(first):
            raise MismatchError(
                "edges have a relation that is not in the configuration",
                code="no-such-relation",
                found=str(relations.max()),
            )
        added = first[relations]
    return numpy.where(numbers < 0, numbers, numbers + added)


def open(  # noqa: A001
    path: Path,
    *,
    version: Optional[int] = None,
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    lenient: bool = False,
    salvage: bool = False,
    limits: Optional[Mapping[str, int]] = None,
) -> Checkpoint:
    """Opens a folder of checkpoints, or a file of a checkpoint. Reads headers only, no rows.

    - `version`: version of a folder; the current one by default;
    - `entities`, `config`: folder of entities and configuration file, if they are not found automatically;
    - `lenient`, `salvage`, `limits`: as for `weighbridge.open`.

    >>> from weighbridge import biggraph
    >>> biggraph.open("graph", version=1)["user"].numpy().shape
    (4, 2)
    """
    opened = core.open(
        path,
        format="biggraph",
        at=version,
        entities=entities,
        config=config,
        lenient=lenient,
        salvage=salvage,
        limits=limits,
    )
    return Checkpoint(opened)
