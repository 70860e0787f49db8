"""`seal`: the hashes of files and tensors."""

from __future__ import annotations

from functools import cached_property
from typing import Optional, Sequence, Tuple, Union

from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, run
from .report import Report, count, notes


class SealReport(Report):
    """What was sealed, and where the manifest is."""

    @property
    def path(self) -> str:
        """What was sealed."""
        return self._document["path"]

    @property
    def manifest(self) -> str:
        """The manifest that was written."""
        return self._document["manifest"]

    @property
    def algorithms(self) -> Tuple[str, ...]:
        """The hashes that were made."""
        return tuple(self._document["algorithms"])

    @property
    def sha256(self) -> str:
        """The hash of the manifest's subject: of all files."""
        return self._document["sha256"]

    @property
    def scope(self) -> Optional[str]:
        """`file`, `files` (a file and those that it needs) or `folder`."""
        return self._document["scope"]

    @property
    def files(self) -> int:
        """How many files were sealed."""
        return self._document["files"]

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self._document["bytes"]

    @property
    def tensors(self) -> int:
        """How many tensors were sealed."""
        return self._document["tensors"]

    @property
    def ignored(self) -> Tuple[str, ...]:
        """What was left out."""
        return tuple(self._document["ignored"])

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """What one should know."""
        return notes(self._document)

    def _summary(self) -> str:
        return f"{self.path}: {count(self.files, 'file')}, {count(self.tensors, 'tensor')} in {self.manifest}"


def seal(
    path: Path,
    *,
    output: Optional[Path] = None,
    algorithms: Union[str, Sequence[str]] = "sha256,blake3",
    files_only: bool = False,
    allow_symlinks: bool = False,
    force: bool = False,
    threads: int = 0,
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
) -> SealReport:
    """Lists the hashes of files and tensors in a manifest, which signing tools can sign, and `verify` holds
    models against.

    - `output`: the manifest; `PATH.manifest.json` if left out;
    - `algorithms`: `sha256`, `blake3` or both, in a list or with a comma between;
    - `files_only`: do not look for tensors; `allow_symlinks`: take the bytes behind links;
    - `force`: replace the manifest;
    - `threads`: 0 is one for each processor.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> sealed = weighbridge.seal("net.safetensors", algorithms=["blake3"])
    >>> sealed
    <SealReport net.safetensors: 1 file, 3 tensors in net.safetensors.manifest.json>
    >>> weighbridge.verify("net.safetensors", manifest=sealed.manifest).manifest["files"]["equal"]
    1
    """
    return SealReport(*run("seal", locals()))
