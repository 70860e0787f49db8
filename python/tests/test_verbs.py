"""The verbs: every flag of the command is a keyword with the same default, and the native part accepts every keyword."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest

import weighbridge
from weighbridge import _weighbridge

VERBS = "info ls show stats convert diff verify scan seal edit shard merge program checkpoint".split()
VERBS += "evaluate neighbors rank".split()
COMMON = {"json", "color", "quiet", "timeout", "help"}
"""Flags of every verb about output and timeouts, which apply to processes only."""
ELSEWHERE = {
    "ls": {"tree"},  # Checkpoint.tree()
    "show": {"full"},  # a report has all values
    "scan": {"list-rules"},  # scan_rules()
    "convert": {"check"},  # onnx.compare() runs the graph
    "program": {"ops"},  # a table to read
}
"""Flags with another form in Python."""
HIDDEN = {
    "scan": {"names", "salvage", "at", "entities", "config", "dequantize", "program"},
    "checkpoint": {"from", "lenient", "salvage", "at", "names", "follow-virtual", "dequantize", "program"},
    "shard": {"to", "kind"},
    "evaluate": {"from", "salvage", "names", "follow-virtual", "dequantize", "program"},
    "rank": {"from", "salvage", "names", "follow-virtual", "dequantize", "program"},
}
"""Flags that the help hides because they have no effect; the keywords exist for uniformity."""
OLD_NAMES = {"ls": {"pieces"}}
"""Old names of keywords, which are hidden aliases of flags."""


class Flag(NamedTuple):
    """A flag as described in the help."""

    takes: Optional[str]
    default: Optional[str]
    repeated: bool


@lru_cache(maxsize=None)
def help_of(*verb: str) -> str:
    """Returns the help of the command."""
    home = str(Path(weighbridge.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "weighbridge", *verb, "--help"],
        env={**os.environ, "PYTHONPATH": home},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout


def flag_of(name: str) -> str:
    """Returns the flag of a keyword."""
    return name.rstrip("_").replace("_", "-")


def flags(verb: str) -> Dict[str, Flag]:
    """Returns the long flags of a verb, parsed from its help."""
    text = help_of(verb)
    found = {}
    for part in re.split(r"\n(?= {2,6}(?:-\w, )?--\w)", text)[1:]:
        name, takes = re.match(r" +(?:-\w, )?--([\w-]+)(?:\[?[= ]<?\[?([^>\]\n]*))?", part).groups()
        line = " ".join(part.split())
        default = re.search(r"\[default: ([^\]]*)\]", line)
        found[name] = Flag(takes, default and default.group(1), "may be repeated" in line)
    return {name: flag for name, flag in found.items() if name not in COMMON}


def keywords(verb: str) -> Dict[str, inspect.Parameter]:
    """Returns the keywords of a verb, except progress and old names."""
    parameters = inspect.signature(getattr(weighbridge, verb)).parameters
    return {
        name: own
        for name, own in parameters.items()
        if own.kind is own.KEYWORD_ONLY and name not in {"progress", *OLD_NAMES.get(verb, ())}
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_is_a_keyword(verb: str) -> None:
    there = flags(verb)
    assert len(there) >= 5, "the help could not be parsed"
    known = {flag_of(name) for name in keywords(verb)}
    hidden = HIDDEN.get(verb, set())
    assert not hidden & set(there), "the help shows a hidden flag"
    assert known - hidden == set(there) - ELSEWHERE.get(verb, set())


@pytest.mark.parametrize("verb", VERBS)
def test_defaults_are_those_of_the_command(verb: str) -> None:
    there = flags(verb)
    for name, parameter in keywords(verb).items():
        if flag_of(name) in HIDDEN.get(verb, set()):
            continue
        default = there[flag_of(name)].default
        own = parameter.default
        absent = own is None or own is False or own is parameter.empty
        assert (None if absent else str(own)) == default, name


def test_every_verb_is_a_function() -> None:
    # `run`, `demo` and shell support exist in the command only; `import` is a word of Python: `import_edges`.
    text = help_of()
    commands = re.findall(r"^  ([a-z]+)  ", text[text.index("Commands:") : text.index("Options:")], re.M)
    assert set(commands) - {"run", "demo", "completions", "man", "help", "import"} == set(VERBS)
    for verb in VERBS:
        assert verb in weighbridge.__all__ and getattr(weighbridge, verb).__name__ == verb


TEXTS = {
    "rounding": "paddle-3.3",
    "names": "structured",
    "cast": "f16",
    "at": 3,
    "right_at": 3,
    "atol": 0.5,
    "rtol": 1e-9,
    "memory": "64MiB",
    "threads": 2,
    "seed": 7,
    "bins": 5,
    "count": 5,
    "by": "l2",
    "negatives": 100,
    "candidates": {"item": ["a", "b"]},
    "sort": "size",
    "group": 2,
    "prefer": "last",
    "max_shard_size": "1GB",
    "algorithms": ["blake3", "sha256"],
    "sweep": ["newer", "temporary"],
    "strip": ["source", "unused"],
    "in_place": "rewrite",
    "rollback": 1,
    "versions": "all",
    "deny": ["privacy", "files"],
    "preserve": 2,
    "transpose": {"a.*": (1, 0), "b": None},
}
"""Values of keywords other than plain text."""
PAIRS = {"grow", "limit", "rename", "rename_glob", "rename_regex", "set", "set_metadata", "tie"}
REQUIRES: Dict[str, Dict[str, Any]] = {
    "rounding": {"cast": "f16"},
    "repeat": {"draw": True},
    "start_over": {"recover": True},
    "delete_newer": {"rollback": 1},
    "copies": {"preserve": 1},
    "prune": {"keep": 1},
    "tensors_only": {"manifest": "m.json"},
    "strip": {"output": "out"},
    "outputs": {"strip": "training", "output": "out"},
    "reverse": {"relation": "follows"},
}
"""Other keywords that a keyword requires."""
NEEDED: Dict[str, Dict[str, Any]] = {"evaluate": {"edges": "e"}, "rank": {"relation": "r"}}
"""Keywords that a verb requires."""


def sample(verb: str, name: str, parameter: inspect.Parameter) -> Any:
    if (verb, name) == ("checkpoint", "keep"):
        return 2
    if (verb, name) == ("shard", "to"):
        return "safetensors"
    if parameter.default is False and name != "in_place":
        return True
    if name in PAIRS:
        return {"one": "two", "three": "4"}
    if name in TEXTS:
        return TEXTS[name]
    # Lists if the signature accepts several.
    several = any(word in str(parameter.annotation) for word in ("Some", "Paths"))
    return ["-x", "y"] if several else Path("-x")


def each_keyword() -> List[Tuple[str, str]]:
    return [(verb, name) for verb in VERBS for name in keywords(verb)]


@pytest.mark.parametrize("verb, name", each_keyword())
def test_native_part_accepts_every_keyword(
    verb: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    function = getattr(weighbridge, verb)
    value = sample(verb, name, keywords(verb)[name])
    given = {**REQUIRES.get(name, {}), name: value}
    if verb == "checkpoint" and name == "keep":
        given["prune"] = True
    if verb == "program" and name == "rename":
        given["output"] = "out"
    if verb == "merge":
        given.setdefault("output", "out.npz")
    given = {**NEEDED.get(verb, {}), **given}
    places = [
        own for own in inspect.signature(function).parameters.values() if own.kind is not own.KEYWORD_ONLY
    ]
    plain = ["-no-such-file", "-out.npz", "-other"][: len(places)]
    if verb == "neighbors":
        plain = plain[:2]
    if verb == "edit" and name in ("in_place", "undo", "forget_undo"):
        plain = plain[:1]
    # The keyword is accepted, and then the file is missing.
    with pytest.raises(weighbridge.Error) as failed:
        function(*plain, **given)
    if (verb, name) == ("shard", "kind"):
        assert failed.value.message == "shards are always safetensors files"
    else:
        assert failed.value.code != "bad-arguments", failed.value


@pytest.mark.parametrize("verb", VERBS)
def test_native_part_rejects_unknown_keywords(verb: str) -> None:
    """Proves that the test above would detect an ignored keyword."""
    own = getattr(_weighbridge, verb)
    given = {
        "path": "a",
        "paths": "a",
        "source": "a",
        "sources": "a",
        "target": "b",
        "left": "a",
        "right": "b",
        "edges": "b",
        "lhs": "a",
        "rhs": "b",
        "relation": "r",
    }
    taken = inspect.signature(getattr(weighbridge, verb)).parameters
    plain = {name: value for name, value in given.items() if name in taken}
    if verb == "merge":
        plain["output"] = "b"
    with pytest.raises(TypeError, match="no_such_keyword"):
        own(no_such_keyword=None, **plain)


@pytest.mark.parametrize("verb", VERBS)
def test_required_keywords_are_reported(verb: str) -> None:
    for name in set(keywords(verb)) & (set(REQUIRES) - {"rounding", "prune"}):
        places = ["a", "b"][: 2 if verb in ("convert", "diff") else 1]
        value = sample(verb, name, keywords(verb)[name])
        with pytest.raises(weighbridge.UsageError, match="were not provided") as failed:
            getattr(weighbridge, verb)(*places, **{name: value})
        assert failed.value.code == "bad-arguments"


def test_list_as_source_is_not_split_into_arguments(net: Path, tmp_path: Path) -> None:
    with pytest.raises(weighbridge.Error):
        weighbridge.edit([str(net), str(tmp_path / "x.npz")], drop="steps")  # type: ignore[arg-type]
    assert not (tmp_path / "x.npz").exists()


def test_rejects_names_with_an_equals_sign() -> None:
    with pytest.raises(weighbridge.UsageError) as failed:
        weighbridge.convert("a", "b.npz", rename={"w=1": "x"})
    assert failed.value.code == "bad-arguments" and failed.value.found == "w=1"


def test_bad_values_are_refused_as_the_command_does(net: Path, tmp_path: Path) -> None:
    for given in ({"cast": "f99"}, {"memory": "much"}, {"force": "yes"}, {"names": "other"}, {"threads": -1}):
        with pytest.raises(weighbridge.UsageError) as failed:
            weighbridge.convert(net, tmp_path / "x.npz", **given)
        assert failed.value.code == "bad-arguments", given
    with pytest.raises(TypeError):
        weighbridge.convert(net, tmp_path / "x.npz", no_such_flag=True)
    assert not (tmp_path / "x.npz").exists()


def test_reports_have_no_truth_value(tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "a.npz"
    weighbridge.save(path, {"a": numpy.ones(3)})
    for report in (weighbridge.verify(path), weighbridge.scan(path), weighbridge.diff(path, path)):
        with pytest.raises(TypeError, match="no truth value"):
            bool(report)
