"""`seal`: manifests with the hashes of files and tensors."""

from __future__ import annotations

from functools import cached_property
from typing import Optional, Sequence, Tuple, Union

from ..opened import Note, Path
from ..progress import Progress
from .given import NameStyle, Pairs, run
from .report import Report, count, notes


class SealReport(Report):
    """Report of a seal."""

    @property
    def path(self) -> str:
        """Path of the model."""
        return self._document["path"]

    @property
    def manifest(self) -> str:
        """Path of the manifest."""
        return self._document["manifest"]

    @property
    def algorithms(self) -> Tuple[str, ...]:
        """Hash algorithms."""
        return tuple(self._document["algorithms"])

    @property
    def sha256(self) -> str:
        """SHA-256 of the subject of the manifest: of all files."""
        return self._document["sha256"]

    @property
    def scope(self) -> Optional[str]:
        """Scope: `file`, `files` (a file and the files it needs) or `folder`."""
        return self._document["scope"]

    @property
    def files(self) -> int:
        """Number of files."""
        return self._document["files"]

    @property
    def bytes(self) -> int:
        """Size of the files, in bytes."""
        return self._document["bytes"]

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return self._document["tensors"]

    @property
    def ignored(self) -> Tuple[str, ...]:
        """Files that were omitted."""
        return tuple(self._document["ignored"])

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes about the model."""
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
    dequantize: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> SealReport:
    """Writes a manifest with the hashes of files and tensors, for signing tools and `verify`.

    - `output`: path of the manifest; `PATH.manifest.json` by default;
    - `algorithms`: `sha256`, `blake3` or both, as a list or separated by a comma;
    - `files_only`: hash files, not tensors; `allow_symlinks`: hash the targets of symbolic links;
    - `force`: replace the manifest;
    - `threads`: number of threads; 0 is one per processor.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> sealed = weighbridge.seal("net.safetensors", algorithms=["blake3"])
    >>> sealed
    <SealReport net.safetensors: 1 file, 3 tensors in net.safetensors.manifest.json>
    >>> weighbridge.verify("net.safetensors", manifest=sealed.manifest).manifest["files"]["equal"]
    1
    """
    return SealReport(*run("seal", locals()))
