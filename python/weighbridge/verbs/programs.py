"""`program`: what a model does with its tensors, as it was written down."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Literal, Optional, Sequence, Tuple, Union

from ..opened import Path
from ..progress import Progress
from .given import NameStyle, Pairs, Some, run
from .report import Loss, Report, WrittenFile, files, many, told

Part = Literal["source", "training", "gradients", "state", "unused", "all"]
"""What can be taken out of a program."""


class ProgramReport(Report):
    """A program that was looked at, or written anew with `output=`; what there is only of the other is `None`
    or empty."""

    @property
    def path(self) -> str:
        """What was read; with `output=` what was written."""
        return self._document["path"]

    @property
    def format(self) -> str:
        """The format, `paddle` as a rule."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Which file of the format's family it is."""
        return self._document["kind"]

    @property
    def summary(self) -> Optional[Dict[str, Any]]:
        """The program in short: inputs, outputs, counts, and how often each type of operator occurs."""
        return self.to_dict().get("summary")

    @property
    def program(self) -> Optional[Dict[str, Any]]:
        """All of it: blocks, variables, operators."""
        return self.to_dict().get("program")

    @property
    def text(self) -> Optional[str]:
        """What `list`, `dot` or `text` asked for."""
        return self._document.get("text")

    @cached_property
    def files(self) -> Tuple[WrittenFile, ...]:
        """The files that were written, relative to the target."""
        return files(self._document)

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """What could not be written."""
        return many(Loss, self._document.get("losses"))

    @property
    def removed(self) -> Optional[Dict[str, Any]]:
        """What `strip` took out: attributes and their bytes, operators, names of variables, tensors."""
        return self.to_dict().get("removed")

    def _summary(self) -> str:
        told = self._document.get("summary")
        tail = f", {told['operators']:,} operators, {told['variables']:,} variables" if told else ""
        return f"{self.path}: {self.format} {self.kind}{tail}"


def program(
    path: Path,
    *,
    list: bool = False,  # noqa: A002
    dot: bool = False,
    text: bool = False,
    strip: Union[None, Part, Sequence[Part]] = None,
    outputs: Some = None,
    rename: Pairs = None,
    output: Optional[Path] = None,
    force: bool = False,
    set: Pairs = None,  # noqa: A002
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
) -> ProgramReport:
    """The program that a model brings along: looked at, or changed and written with its parameters. It is
    never run.

    - `list`, `dot`, `text`: one of these: all of it as text, as a graph for Graphviz, or in the text form of
      protobuf;
    - `strip`: what to take out; `outputs`: with `strip="training"` or `"all"`, the variables that become the
      outputs of the program; `rename`: variables, in the program and its parameters, as a dict or as texts
      `OLD=NEW`;
    - `output`: the folder, or the program file where there are no parameters, to write; `force`: replace it;
    - `set`: how it is written, such as `{"prefix": "inference"}`.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.program("net.safetensors")
    Traceback (most recent call last):
    weighbridge.errors.MismatchError: there is no program in this file, nor one that belongs to it
    ...
    """
    return told(ProgramReport(*run("program", locals())), False)
