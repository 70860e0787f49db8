"""Programs of PaddlePaddle: what a model computes, read and changed but never run."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _weighbridge as rust
from ..checks import path_text
from ..errors import naming
from ..opened import Path


class Variable(NamedTuple):
    """A variable of a block: a tensor that is stored, fed or computed."""

    name: str
    kind: str
    """`tensor`, `selected-rows`, `feed`, `fetch` and so on."""
    dtype: Optional[str]
    """The type of its elements, such as `f32`; `None` where there is none."""
    shape: Optional[Tuple[int, ...]]
    """The extents; -1 for one that is open."""
    lod_level: Optional[int]
    """The depth of its levels of detail."""
    persistable: bool
    """True where it outlives a run."""
    parameter: bool
    """True where it is said to be a parameter."""
    stop_gradient: Optional[bool]
    """True where no gradient flows to it."""


class Operator(NamedTuple):
    """An operator of a block."""

    type: str
    inputs: Dict[str, List[str]]
    """Names of variables by slot."""
    outputs: Dict[str, List[str]]
    """Names of variables by slot."""
    attrs: Dict[str, Any]
    """Attributes by name. One that is a block or variable is `{"block": NUMBER}` or `{"variable": NAME}`."""
    blocks: List[int]
    """The blocks that belong to it."""


class Block(NamedTuple):
    """A block: variables, and operators in the order in which they run."""

    parent: Optional[int]
    vars: List[Variable]
    ops: List[Operator]

    def var(self, name: str) -> Variable:
        """The variable of that name; raises `KeyError`."""
        for variable in self.vars:
            if variable.name == name:
                return variable
        raise KeyError(name)


class Leak(NamedTuple):
    """An attribute that holds paths or lines of the source code of the author."""

    operator: str
    attribute: str
    nbytes: int
    sample: Optional[str]


class Program:
    """A program, of any era: `__model__` and `.pdmodel` (protobuf), or `.json` (PIR).

    Its blocks are read at the first use. A program is never changed: `strip` gives another one. That of an
    opened model is `Program(checkpoint.program)`.
    """

    def __init__(self, program: rust.Program, removed: Optional[Dict[str, Any]] = None) -> None:
        self._program = program
        self._blocks: Optional[List[Block]] = None
        self._removed = removed or {}

    @property
    def form(self) -> str:
        """`program-desc` (protobuf) or `pir` (JSON)."""
        return self._program.form

    @property
    def writer(self) -> Optional[str]:
        """The version of Paddle that wrote it, where it says so."""
        return self._program.writer

    @property
    def feed_names(self) -> List[str]:
        """The names of its inputs, in their order."""
        return list(self._program.feeds)

    @property
    def fetch_names(self) -> List[str]:
        """The names of its outputs, in their order."""
        return list(self._program.fetches)

    @property
    def blocks(self) -> List[Block]:
        """Its blocks; the first one is the global block."""
        if self._blocks is None:
            self._blocks = [_block(said) for said in self._program.to_dict()["blocks"]]
        return self._blocks

    def global_block(self) -> Block:
        """The block that runs."""
        return self.blocks[0]

    @property
    def ops(self) -> List[Operator]:
        """The operators of all blocks."""
        return [operator for block in self.blocks for operator in block.ops]

    def parameters(self) -> List[Variable]:
        """The variables that stand in files of parameters, in the order of a combined file: by the bytes of
        their names.
        """
        found: Dict[str, Variable] = {}
        for block in self.blocks:
            for variable in block.vars:
                if variable.persistable and variable.kind not in ("feed", "fetch", "raw", "reader"):
                    found.setdefault(variable.name, variable)
        return sorted(found.values(), key=lambda variable: variable.name.encode("utf-8"))

    def leaks(self) -> List[Leak]:
        """Attributes that hold paths or lines of the source code of the author."""
        return [Leak(*found) for found in rust.program_leaks(self._program)]

    @property
    def removed(self) -> Dict[str, Any]:
        """What `strip` took out to make this program: numbers of `attributes`, `operators`, and names of
        `variables`.
        """
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
        """The program without what is named.

        - `source`: paths and lines of the source code of the author;
        - `training`: operators that only training needs; the others are switched to inference;
        - `gradients`, `state`: variables that hold gradients, or state of an optimizer;
        - `unused`: variables that no operator uses.

        With `training`, `outputs` are the variables that become the outputs of the program; without them it keeps
        its own.
        """
        program, removed = rust.strip_program(
            self._program, source, training, gradients, state, unused, list(outputs)
        )
        return Program(program, removed)

    def to_dict(self) -> Dict[str, Any]:
        """All of it, as the command's `program --json` has it."""
        return self._program.to_dict()

    def summary(self) -> Dict[str, Any]:
        """It in short: inputs, outputs, counts, and how often each type of operator occurs."""
        return self._program.summary()

    def text(self) -> str:
        """All of it as text for people."""
        return self._program.text()

    def prototxt(self) -> str:
        """It in the text form of protobuf; `UnsupportedError` for PIR, which is text already."""
        return rust.program_prototxt(self._program)

    def dot(self) -> str:
        """Its operators and variables as a graph in the language of Graphviz."""
        return self._program.dot()

    def __bytes__(self) -> bytes:
        return self._program.bytes()

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes it to a file of its own, all or nothing. What was not changed is written as it was read."""
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
    """The program in a file (`x.pdmodel`, `__model__`, its text form, or the `x.json` of PIR), or the one of
    the model in a folder.

    Raises `UsageError` where several models stand in the folder, whose names it has in `found`.
    """
    path = path_text(path, "path")
    with naming(path):
        return Program(rust.read_program(path))


def _block(said: Dict[str, Any]) -> Block:
    return Block(
        said["parent"],
        [_variable(own) for own in said["variables"]],
        [_operator(own) for own in said["operators"]],
    )


def _variable(said: Dict[str, Any]) -> Variable:
    shape = said["shape"]
    return Variable(
        said["name"],
        said["kind"],
        said["dtype"],
        None if shape is None else tuple(shape),
        said["lod_level"],
        said["persistable"],
        said["parameter"],
        said["stop_gradient"],
    )


def _operator(said: Dict[str, Any]) -> Operator:
    return Operator(
        said["type"],
        {slot["slot"]: list(slot["arguments"]) for slot in said["inputs"]},
        {slot["slot"]: list(slot["arguments"]) for slot in said["outputs"]},
        {attribute["name"]: attribute["value"] for attribute in said["attributes"]},
        list(said["blocks"]),
    )
