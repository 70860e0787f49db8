"""`program`: the program stored with a model."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Literal, Optional, Sequence, Tuple, Union

from ..opened import Path
from ..progress import Progress
from .given import NameStyle, Pairs, Some, run
from .report import Loss, Report, WrittenFile, files, many, warned

Part = Literal["source", "training", "gradients", "state", "unused", "all"]
"""Parts of a program that can be removed."""


class ProgramReport(Report):
    """Report on a program that was read, or rewritten with `output=`. Attributes that do not apply are `None` or empty."""

    @property
    def path(self) -> str:
        """Path of the model; with `output=` path of the target."""
        return self._document["path"]

    @property
    def format(self) -> str:
        """Id of the format, usually `paddle`."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Kind of file within the format."""
        return self._document["kind"]

    @property
    def summary(self) -> Optional[Dict[str, Any]]:
        """Summary: inputs, outputs, counts, and the number of operators by type."""
        return self.to_dict().get("summary")

    @property
    def program(self) -> Optional[Dict[str, Any]]:
        """Complete program: blocks, variables, operators."""
        return self.to_dict().get("program")

    @property
    def text(self) -> Optional[str]:
        """Output of `list`, `dot` or `text`."""
        return self._document.get("text")

    @cached_property
    def files(self) -> Tuple[WrittenFile, ...]:
        """Written files, with names relative to the target."""
        return files(self._document)

    @cached_property
    def losses(self) -> Tuple[Loss, ...]:
        """Content that the target cannot represent."""
        return many(Loss, self._document.get("losses"))

    @property
    def removed(self) -> Optional[Dict[str, Any]]:
        """Parts removed by `strip`: attributes and their bytes, operators, names of variables, tensors."""
        return self.to_dict().get("removed")

    def _summary(self) -> str:
        summary = self._document.get("summary")
        tail = f", {summary['operators']:,} operators, {summary['variables']:,} variables" if summary else ""
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
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> ProgramReport:
    """Shows the program of a model, or rewrites it together with its parameters. The program is never run.

    - `list`, `dot`, `text`: one of these: the complete program as a listing, as a Graphviz graph, or in protobuf text format;
    - `strip`: parts to remove; `outputs`: with `strip="training"` or `"all"`, the variables that become the outputs of the
      program; `rename`: new names of variables, in the program and its parameters, as a dict or as texts `OLD=NEW`;
    - `output`: folder to write, or program file if there are no parameters; `force`: replace it;
    - `set`: settings for writing, such as `{"prefix": "inference"}`.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.program("net.safetensors")
    Traceback (most recent call last):
    weighbridge.errors.MismatchError: the file has no program
    ...
    """
    return warned(ProgramReport(*run("program", locals())), False)
