"""PaddlePaddle programs: read and changed, never run."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _weighbridge as rust
from ..checks import path_text
from ..errors import naming
from ..opened import Path


class Variable(NamedTuple):
    """A variable of a block: a stored, fed or computed tensor."""

    name: str
    kind: str
    """Kind: `tensor`, `selected-rows`, `feed`, `fetch` and so on."""
    dtype: Optional[str]
    """Dtype of its elements, such as `f32`; `None` if it has none."""
    shape: Optional[Tuple[int, ...]]
    """Size of each dimension; -1 if variable."""
    lod_level: Optional[int]
    """Number of LoD levels (levels of detail)."""
    persistable: bool
    """True if it persists between runs."""
    parameter: bool
    """True if it is marked as a parameter."""
    stop_gradient: Optional[bool]
    """True if it receives no gradient."""


class Operator(NamedTuple):
    """An operator of a block."""

    type: str
    inputs: Dict[str, List[str]]
    """Names of variables by slot."""
    outputs: Dict[str, List[str]]
    """Names of variables by slot."""
    attrs: Dict[str, Any]
    """Attributes by name. Blocks and variables are `{"block": NUMBER}` and `{"variable": NAME}`."""
    blocks: List[int]
    """Numbers of its sub-blocks."""


class Block(NamedTuple):
    """A block: variables, and operators in order of execution."""

    parent: Optional[int]
    vars: List[Variable]
    ops: List[Operator]

    def var(self, name: str) -> Variable:
        """Returns the variable with this name; raises `KeyError` if there is none."""
        for variable in self.vars:
            if variable.name == name:
                return variable
        raise KeyError(name)


class Leak(NamedTuple):
    """An attribute with paths or lines of the author's source code."""

    operator: str
    attribute: str
    nbytes: int
    sample: Optional[str]


class Program:
    """A program of any Paddle version: `__model__` and `.pdmodel` (protobuf), or `.json` (PIR).

    Its blocks are parsed at the first use. A program is immutable: `strip` returns a new one. The program of an opened model
    is `Program(checkpoint.program)`.
    """

    def __init__(self, program: rust.Program, removed: Optional[Dict[str, Any]] = None) -> None:
        self._program = program
        self._blocks: Optional[List[Block]] = None
        self._removed = removed or {}

    @property
    def form(self) -> str:
        """Form: `program-desc` (protobuf) or `pir` (JSON)."""
        return self._program.form

    @property
    def writer(self) -> Optional[str]:
        """Version of Paddle that wrote it, if stated."""
        return self._program.writer

    @property
    def feed_names(self) -> List[str]:
        """Names of its inputs, in order."""
        return list(self._program.feeds)

    @property
    def fetch_names(self) -> List[str]:
        """Names of its outputs, in order."""
        return list(self._program.fetches)

    @property
    def blocks(self) -> List[Block]:
        """Blocks; the first one is the global block."""
        if self._blocks is None:
            self._blocks = [_block(fields) for fields in self._program.to_dict()["blocks"]]
        return self._blocks

    def global_block(self) -> Block:
        """Returns the global block, the entry point of the program."""
        return self.blocks[0]

    @property
    def ops(self) -> List[Operator]:
        """Operators of all blocks."""
        return [operator for block in self.blocks for operator in block.ops]

    def parameters(self) -> List[Variable]:
        """Returns the variables in parameter files, in the order of a combined file: sorted by the bytes of their names."""
        found: Dict[str, Variable] = {}
        for block in self.blocks:
            for variable in block.vars:
                if variable.persistable and variable.kind not in ("feed", "fetch", "raw", "reader"):
                    found.setdefault(variable.name, variable)
        return sorted(found.values(), key=lambda variable: variable.name.encode("utf-8"))

    def leaks(self) -> List[Leak]:
        """Returns attributes with paths or lines of the author's source code."""
        return [Leak(*found) for found in rust.program_leaks(self._program)]

    @property
    def removed(self) -> Dict[str, Any]:
        """Parts removed by `strip`: numbers of `attributes` and `operators`, and names of `variables`."""
        return dict(self._removed)

    def strip(
        self,
        *,
        source: bool = True,
        training: bool = False,
        gradients: bool = False,
        state: bool = False,
        unused: bool = False,
        outputs: Sequence[str] = (),
    ) -> Program:
        """Returns the program without the selected parts.

        - `source`: paths and lines of the author's source code;
        - `training`: operators for training only; the others are switched to inference mode;
        - `gradients`, `state`: variables with gradients, or with optimizer state;
        - `unused`: variables that no operator uses;
        - `outputs`: with `training`, the variables that become the outputs of the program; by default its own.
        """
        program, removed = rust.strip_program(
            self._program, source, training, gradients, state, unused, list(outputs)
        )
        return Program(program, removed)

    def to_dict(self) -> Dict[str, Any]:
        """Returns the complete program, as in `program --json`."""
        return self._program.to_dict()

    def summary(self) -> Dict[str, Any]:
        """Returns a summary: inputs, outputs, counts, and the number of operators by type."""
        return self._program.summary()

    def text(self) -> str:
        """Returns a readable listing of the complete program."""
        return self._program.text()

    def prototxt(self) -> str:
        """Returns the program in protobuf text format; raises `UnsupportedError` for PIR, which is JSON text already."""
        return rust.program_prototxt(self._program)

    def dot(self) -> str:
        """Returns a graph of its operators and variables in the DOT language of Graphviz."""
        return self._program.dot()

    def __bytes__(self) -> bytes:
        return self._program.bytes()

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes the program to a file, atomically. Unchanged parts keep their bytes."""
        path = path_text(path, "path")
        with naming(path):
            rust.write_program(self._program, path, force)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __repr__(self) -> str:
        return f"<Program: {self.form}, {len(self.blocks)} blocks, {len(self.ops)} operators>"


def load_program(path: Path) -> Program:
    """Loads the program from a file (`x.pdmodel`, `__model__`, its text form, or the `x.json` of PIR), or of the model in a
    folder.

    Raises `UsageError` if the folder contains several models; `found` has their names.
    """
    path = path_text(path, "path")
    with naming(path):
        return Program(rust.read_program(path))


def _block(fields: Dict[str, Any]) -> Block:
    return Block(
        fields["parent"],
        [_variable(own) for own in fields["variables"]],
        [_operator(own) for own in fields["operators"]],
    )


def _variable(fields: Dict[str, Any]) -> Variable:
    shape = fields["shape"]
    return Variable(
        fields["name"],
        fields["kind"],
        fields["dtype"],
        None if shape is None else tuple(shape),
        fields["lod_level"],
        fields["persistable"],
        fields["parameter"],
        fields["stop_gradient"],
    )


def _operator(fields: Dict[str, Any]) -> Operator:
    return Operator(
        fields["type"],
        {slot["slot"]: list(slot["arguments"]) for slot in fields["inputs"]},
        {slot["slot"]: list(slot["arguments"]) for slot in fields["outputs"]},
        {attribute["name"]: attribute["value"] for attribute in fields["attributes"]},
        list(fields["blocks"]),
    )
