"""`verify` and `scan`: checks of integrity and safety. Verdicts are results, not exceptions."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator, List, Literal, NamedTuple, Optional, Tuple

from .. import _weighbridge
from ..opened import Path
from ..errors import Error, from_json
from ..progress import Progress
from .given import NameStyle, Pairs, Paths, Some, run
from .report import Finding, Report, count, findings, many, picked, table


Soundness = Literal["sound", "unsound", "could-not-tell"]
"""Verdicts of `verify`."""

Cleanness = Literal["clean", "found", "could-not-tell"]
"""Verdicts of `scan`."""


class Checked(Report):
    """Result of a check of one path, or the worst result of several."""

    _ORDER: Tuple[str, ...] = ()
    _GOOD = ""

    @cached_property
    def paths(self) -> Tuple[str, ...]:
        """Checked paths."""
        return tuple(own["path"] for own in self._documents)

    def __bool__(self) -> bool:
        # A verdict has three values, and an object would always be true.
        raise TypeError(
            f"a report has no truth value; use report.verdict, report.{self._GOOD} or report.could_not_tell"
        )

    @property
    def could_not_tell(self) -> bool:
        """True if the verdict is `could-not-tell`: a part could not be checked, and no error was found."""
        return self._worst() == "could-not-tell"

    def _worst(self) -> str:
        found = {own.get("verdict", "could-not-tell") for own in self._documents}
        return next(word for word in self._ORDER if word in found)

    @cached_property
    def findings(self) -> Tuple[Finding, ...]:
        """Findings."""
        return tuple(finding for own in self._documents for finding in self._findings(own))

    @cached_property
    def errors(self) -> Tuple[Error, ...]:
        """Errors of unreadable paths, if several were given. For a single path the error is raised."""
        return tuple(from_json(own["error"]) for own in self._documents if "error" in own)

    @property
    def _documents(self) -> List[Dict[str, Any]]:
        return self._document.get("paths", [self._document])

    def _findings(self, document: Dict[str, Any]) -> Iterator[Finding]:
        yield from findings(document.get("findings"))

    def _summary(self) -> str:
        what = self.paths[0] if len(self.paths) == 1 else count(len(self.paths), "path")
        found = f", {count(len(self.findings), 'finding')}" if self.findings else ""
        return f"{what}: {self._worst().replace('-', ' ')}{found}"

    def _repr_html_(self) -> str:
        heads = ("", "code", "what", "file", "member", "offset", "tensor", "hint")
        found = self.findings
        rows = ((f.severity, f.code, f.text, f.file, f.member, f.offset, f.tensor, f.hint) for f in found)
        return table(self._summary(), heads, rows, len(found))


class Range(NamedTuple):
    """A byte range and its use."""

    offset: int
    bytes: int
    use: str
    """Use: `tensor`, `header`, `padding` or `unknown`."""
    what: str
    tensor: Optional[str]


class Account(NamedTuple):
    """Use of the bytes of a file."""

    path: str
    bytes: int
    tensor_bytes: int
    header_bytes: int
    padding_bytes: int
    unknown_bytes: int
    ranges: Optional[Tuple[Range, ...]]
    """All byte ranges in order, with `account=True`."""


class OtherFile(NamedTuple):
    """A file in the folder that is not part of the model."""

    path: str
    bytes: int
    model: bool
    """True for a model file; it was not checked."""


class VerifyReport(Checked):
    """Report of `verify`. `verdict` is `sound`, `unsound` or `could-not-tell`."""

    _ORDER = ("unsound", "could-not-tell", "sound")
    _GOOD = "is_sound"

    @property
    def verdict(self) -> Soundness:
        """Verdict; the worst one of several paths."""
        return self._worst()  # type: ignore[return-value]

    @property
    def is_sound(self) -> bool:
        """True only for `sound`: false for `could-not-tell`."""
        return self.verdict == "sound"

    @property
    def is_unsound(self) -> bool:
        """True only for `unsound`: false for `could-not-tell`."""
        return self.verdict == "unsound"

    @cached_property
    def reports(self) -> Tuple[VerifyReport, ...]:
        """Reports by path."""
        return tuple(VerifyReport(own, _code(own, self._ORDER)) for own in self._documents)

    @property
    def format(self) -> Optional[str]:
        """Id of the format; `None` if unknown, or for several paths."""
        return self._document.get("format")

    @property
    def kind(self) -> Optional[str]:
        """Kind of file within the format; `None` if unknown, or for several paths."""
        return self._document.get("kind")

    @property
    def checked(self) -> Tuple[str, ...]:
        """Checks made on every path: `opening`, `names`, `bytes`, `checksums` and so on."""
        words = [own.get("checked", []) for own in self._documents]
        return tuple(word for word in words[0] if all(word in other for other in words))

    @cached_property
    def files(self) -> Tuple[Account, ...]:
        """Use of the bytes of each file."""
        return tuple(_account(file) for own in self._documents for file in own.get("files", ()))

    @cached_property
    def other_files(self) -> Tuple[OtherFile, ...]:
        """Other files in a folder. The verdict does not cover them."""
        others = (file for own in self._documents for file in own.get("other_files", ()))
        return many(OtherFile, others)

    @property
    def manifest(self) -> Optional[Dict[str, Any]]:
        """Result of the comparison with a manifest (`manifest=`): numbers of equal files and tensors."""
        return self.to_dict().get("manifest")

    @property
    def damage(self) -> Optional[Dict[str, Any]]:
        """Damage report, if the file is damaged; else `None`."""
        return self.to_dict().get("damage")


def _account(file: Dict[str, Any]) -> Account:
    ranges = many(Range, file["ranges"]) if "ranges" in file else None
    return picked(Account, file)._replace(ranges=ranges)


def _code(document: Dict[str, Any], order: Tuple[str, ...]) -> int:
    codes = dict(zip(order, (1, 3, 0)))
    return 2 if "error" in document else codes[document["verdict"]]


def verify(
    paths: Paths,
    *,
    values: bool = False,
    deny_nonfinite: bool = False,
    account: bool = False,
    manifest: Optional[Path] = None,
    tensors_only: bool = False,
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
) -> VerifyReport:
    """Checks the integrity of files or folders: structure, checksums, trailing data. Several paths are checked one by one.

    - `values`: also read all values and report NaN, infinities, empty rows and other irregularities; `deny_nonfinite`: the
      same, with NaN and infinities as errors;
    - `account`: add the use of each byte range;
    - `manifest`: compare with a manifest written by `seal`; `tensors_only`: compare tensors only, for a converted model;
    - `threads`: number of threads; 0 is one per processor.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> report = weighbridge.verify("net.safetensors", account=True)
    >>> report.verdict, report.is_sound, report.findings
    ('sound', True, ())
    >>> [range.tensor for range in report.files[0].ranges if range.use == "tensor"]
    ['steps', 'fc1.bias', 'fc1.weight']
    """
    return VerifyReport(*run("verify", locals()))


class Import(NamedTuple):
    """An import in a pickle. It was not executed."""

    module: str
    name: str
    member: Optional[str]
    offset: int
    opcode: str
    judgement: str
    """Verdict on the import: `allowed`, `pattern`, `dangerous` or `unknown`."""
    text: str


class Call(NamedTuple):
    """A call in a pickle. It was not executed."""

    how: str
    callable: Optional[str]
    """Module and name; `None` for a computed callable."""
    count: int  # type: ignore[assignment]
    offset: int


class ScannedFile(NamedTuple):
    """Findings in one file."""

    path: str
    format: Optional[str]
    verdict: str
    findings: Tuple[Finding, ...]
    imports: Tuple[Import, ...]
    calls: Tuple[Call, ...]


class ScanReport(Checked):
    """Report of `scan`. `verdict` is `clean`, `found` or `could-not-tell`."""

    _ORDER = ("found", "could-not-tell", "clean")
    _GOOD = "is_clean"

    @property
    def verdict(self) -> Cleanness:
        """Verdict; the worst one of several paths."""
        return self._worst()  # type: ignore[return-value]

    @property
    def is_clean(self) -> bool:
        """True only for `clean`: false for `could-not-tell`."""
        return self.verdict == "clean"

    @cached_property
    def reports(self) -> Tuple[ScanReport, ...]:
        """Reports by path."""
        return tuple(ScanReport(own, _code(own, self._ORDER)) for own in self._documents)

    @cached_property
    def files(self) -> Tuple[ScannedFile, ...]:
        """Scanned files."""
        return tuple(_scanned(file) for own in self._documents for file in own.get("files", ()))

    @property
    def sarif(self) -> Optional[Dict[str, Any]]:
        """Findings as a SARIF 2.1.0 log, with `sarif=True`."""
        return self.to_dict().get("sarif")

    def _findings(self, document: Dict[str, Any]) -> Iterator[Finding]:
        for file in document.get("files", ()):
            yield from findings(file["findings"])


def _scanned(file: Dict[str, Any]) -> ScannedFile:
    return picked(ScannedFile, file)._replace(
        findings=findings(file["findings"]),
        imports=many(Import, file["imports"]),
        calls=many(Call, file["calls"]),
    )


def scan(
    paths: Paths,
    *,
    sarif: bool = False,
    deny: Some = None,
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
) -> ScanReport:
    """Scans files for code that loading them elsewhere would run, and for leaked source code. Executes nothing.

    - `sarif`: add a SARIF log, for tools that collect findings;
    - `deny`: categories whose warnings also count as `found`: `"privacy"`, or several.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import os, pickle, weighbridge
    >>> with open("bad.pkl", "wb") as file:
    ...     pickle.dump(os.system, file)
    >>> report = weighbridge.scan(["net.safetensors", "bad.pkl"])
    >>> report.verdict, [file.verdict for file in report.files]
    ('found', ['clean', 'found'])
    >>> report.files[1].imports[0].name
    'system'
    """
    return ScanReport(*run("scan", locals()))


class Rule(NamedTuple):
    """A rule of `scan`."""

    code: str
    topic: str
    category: str
    severity: str
    text: str
    proof: str
    """Crafted test file that triggers the rule."""


def scan_rules() -> Tuple[Rule, ...]:
    """Returns the rules of `scan`.

    >>> import weighbridge
    >>> "dangerous-import" in {rule.code for rule in weighbridge.scan_rules()}
    True
    """
    return many(Rule, _weighbridge.scan_rules())
