"""`verify` and `scan`: is a file whole, and is it safe? A verdict is never an exception."""

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
"""The verdicts of `verify`."""

Cleanness = Literal["clean", "found", "could-not-tell"]
"""The verdicts of `scan`."""


class Checked(Report):
    """What came of one path, or of several: then the worst of them."""

    _ORDER: Tuple[str, ...] = ()
    _GOOD = ""

    @cached_property
    def paths(self) -> Tuple[str, ...]:
        """The paths that were looked at."""
        return tuple(own["path"] for own in self._documents)

    def __bool__(self) -> bool:
        # A verdict has three values, and a report that is there would always be true.
        raise TypeError(
            f"ask for verdict, {self._GOOD} or could_not_tell: a report by itself is neither true nor false"
        )

    @property
    def could_not_tell(self) -> bool:
        """True where the verdict is `could-not-tell`: something could not be looked at, and nothing worse was
        found.
        """
        return self._worst() == "could-not-tell"

    def _worst(self) -> str:
        found = {own.get("verdict", "could-not-tell") for own in self._documents}
        return next(word for word in self._ORDER if word in found)

    @cached_property
    def findings(self) -> Tuple[Finding, ...]:
        """What was found."""
        return tuple(finding for own in self._documents for finding in self._findings(own))

    @cached_property
    def errors(self) -> Tuple[Error, ...]:
        """Of several paths, why some could not be read at all. Of a single one, that is raised."""
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
    """A stretch of bytes, and what it is for."""

    offset: int
    bytes: int
    use: str
    """`tensor`, `header`, `padding` or `unknown`."""
    what: str
    tensor: Optional[str]


class Account(NamedTuple):
    """What the bytes of a file are for."""

    path: str
    bytes: int
    tensor_bytes: int
    header_bytes: int
    padding_bytes: int
    unknown_bytes: int
    ranges: Optional[Tuple[Range, ...]]
    """With `account=True`: all of them, in order."""


class OtherFile(NamedTuple):
    """A file of a folder that is not part of the model in it."""

    path: str
    bytes: int
    model: bool
    """True for a model file, at which nobody looked."""


class VerifyReport(Checked):
    """Is it whole and consistent? `verdict` is `sound`, `unsound` or `could-not-tell`."""

    _ORDER = ("unsound", "could-not-tell", "sound")
    _GOOD = "is_sound"

    @property
    def verdict(self) -> Soundness:
        """The verdict; of several paths the worst one."""
        return self._worst()  # type: ignore[return-value]

    @property
    def is_sound(self) -> bool:
        """True for `sound` alone: what could not be looked at is not sound."""
        return self.verdict == "sound"

    @property
    def is_unsound(self) -> bool:
        """True for `unsound` alone: what could not be looked at need not be unsound."""
        return self.verdict == "unsound"

    @cached_property
    def reports(self) -> Tuple[VerifyReport, ...]:
        """One for each path."""
        return tuple(VerifyReport(own, _code(own, self._ORDER)) for own in self._documents)

    @property
    def format(self) -> Optional[str]:
        """The format; `None` where it is not known, and of several paths."""
        return self._document.get("format")

    @property
    def kind(self) -> Optional[str]:
        """Which file of the format's family; `None` where it is not known, and of several paths."""
        return self._document.get("kind")

    @property
    def checked(self) -> Tuple[str, ...]:
        """What was looked at, of each of the paths: `opening`, `names`, `bytes`, `checksums` and so on."""
        words = [own.get("checked", []) for own in self._documents]
        return tuple(word for word in words[0] if all(word in other for other in words))

    @cached_property
    def files(self) -> Tuple[Account, ...]:
        """What the bytes of each file are for."""
        return tuple(_account(file) for own in self._documents for file in own.get("files", ()))

    @cached_property
    def other_files(self) -> Tuple[OtherFile, ...]:
        """Of a folder: what else stands in it. The verdict is not about these."""
        others = (file for own in self._documents for file in own.get("other_files", ()))
        return many(OtherFile, others)

    @property
    def manifest(self) -> Optional[Dict[str, Any]]:
        """With `manifest=`: how many files and tensors are as they were sealed."""
        return self.to_dict().get("manifest")

    @property
    def damage(self) -> Optional[Dict[str, Any]]:
        """What is lost, where the file is damaged."""
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
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    progress: Progress = None,
) -> VerifyReport:
    """Is a file or folder whole and consistent? Of several paths, each is looked at by itself.

    - `values`: read all values, too, and look for NaN, infinities, empty rows and what else is odd;
      `deny_nonfinite` does so, and holds NaN and infinities for errors;
    - `account`: say what each range of bytes is for;
    - `manifest`: hold it against what `seal` wrote; `tensors_only`: only the tensors, as of a converted
      model;
    - `threads`: 0 is one for each processor.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> report = weighbridge.verify("net.safetensors", account=True)
    >>> report.verdict, report.is_sound, report.findings
    ('sound', True, ())
    >>> [range.tensor for range in report.files[0].ranges if range.use == "tensor"]
    ['steps', 'fc1.bias', 'fc1.weight']
    """
    return VerifyReport(*run("verify", locals()))


class Import(NamedTuple):
    """Something that a pickle asks for by name. Nothing was imported."""

    module: str
    name: str
    member: Optional[str]
    offset: int
    opcode: str
    judgement: str
    """`allowed`, `pattern`, `dangerous` or `unknown`."""
    text: str


class Call(NamedTuple):
    """Something that a pickle calls. Nothing was called."""

    how: str
    callable: Optional[str]
    """Module and name; `None` for what was computed."""
    count: int  # type: ignore[assignment]
    offset: int


class ScannedFile(NamedTuple):
    """What was found in one file."""

    path: str
    format: Optional[str]
    verdict: str
    findings: Tuple[Finding, ...]
    imports: Tuple[Import, ...]
    calls: Tuple[Call, ...]


class ScanReport(Checked):
    """Could opening it elsewhere run code? `verdict` is `clean`, `found` or `could-not-tell`."""

    _ORDER = ("found", "could-not-tell", "clean")
    _GOOD = "is_clean"

    @property
    def verdict(self) -> Cleanness:
        """The verdict; of several paths the worst one."""
        return self._worst()  # type: ignore[return-value]

    @property
    def is_clean(self) -> bool:
        """True for `clean` alone: what could not be looked at is not clean."""
        return self.verdict == "clean"

    @cached_property
    def reports(self) -> Tuple[ScanReport, ...]:
        """One for each path."""
        return tuple(ScanReport(own, _code(own, self._ORDER)) for own in self._documents)

    @cached_property
    def files(self) -> Tuple[ScannedFile, ...]:
        """The files that were looked through."""
        return tuple(_scanned(file) for own in self._documents for file in own.get("files", ()))

    @property
    def sarif(self) -> Optional[Dict[str, Any]]:
        """With `sarif=True`: the findings as a log of SARIF 2.1.0."""
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
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> ScanReport:
    """Could opening it elsewhere run code or give away source code? Nothing is executed.

    - `sarif`: make a log of SARIF, too, for tools that gather findings.
    - `deny`: categories whose warnings are `found`, too: `"privacy"`, or several.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

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
    """What `scan` looks for."""

    code: str
    topic: str
    category: str
    severity: str
    text: str
    proof: str
    """The crafted file that proves it."""


def scan_rules() -> Tuple[Rule, ...]:
    """Every code of `scan`, and what it means.

    >>> import weighbridge
    >>> "dangerous-import" in {rule.code for rule in weighbridge.scan_rules()}
    True
    """
    return many(Rule, _weighbridge.scan_rules())
