"""The verbs: every flag of the command is a keyword, with the same default, and every keyword is known to the Rust part."""

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
COMMON = {"json", "color", "quiet", "timeout", "help"}
"""Flags of every verb that say how to print and when to end, which is for a process of its own."""
ELSEWHERE = {
    "ls": {"tree"},  # Checkpoint.tree()
    "show": {"full"},  # a report has all values
    "scan": {"list-rules"},  # scan_rules()
}
"""Flags that are something else in Python."""


class Flag(NamedTuple):
    """A flag as the help tells of it."""

    takes: Optional[str]
    default: Optional[str]
    repeated: bool


@lru_cache(maxsize=None)
def help_of(*verb: str) -> str:
    """What the command prints as its help."""
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
    """The flag that a keyword stands for."""
    return name.rstrip("_").replace("_", "-")


def flags(verb: str) -> Dict[str, Flag]:
    """The long flags of a verb, from its help."""
    text = help_of(verb)
    found = {}
    for part in re.split(r"\n(?= {2,6}(?:-\w, )?--\w)", text)[1:]:
        name, takes = re.match(r" +(?:-\w, )?--([\w-]+)(?:\[?[= ]<?\[?([^>\]\n]*))?", part).groups()
        told = " ".join(part.split())
        default = re.search(r"\[default: ([^\]]*)\]", told)
        found[name] = Flag(takes, default and default.group(1), "may be repeated" in told)
    return {name: flag for name, flag in found.items() if name not in COMMON}


def keywords(verb: str) -> Dict[str, inspect.Parameter]:
    """The keywords of a verb, but for progress."""
    parameters = inspect.signature(getattr(weighbridge, verb)).parameters
    return {
        name: own for name, own in parameters.items() if own.kind is own.KEYWORD_ONLY and name != "progress"
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_is_a_keyword(verb: str) -> None:
    there = flags(verb)
    assert len(there) >= 9, "the help was not understood"
    known = {flag_of(name) for name in keywords(verb)}
    assert known == set(there) - ELSEWHERE.get(verb, set())


@pytest.mark.parametrize("verb", VERBS)
def test_defaults_are_those_of_the_command(verb: str) -> None:
    there = flags(verb)
    for name, parameter in keywords(verb).items():
        default = there[flag_of(name)].default
        own = parameter.default
        absent = own is None or own is False or own is parameter.empty
        assert (None if absent else str(own)) == default, name


def test_every_verb_is_here() -> None:
    # `run`, `demo` and what makes texts for shells stay with the command.
    text = help_of()
    commands = re.findall(r"^  ([a-z]+)  ", text[text.index("Commands:") : text.index("Options:")], re.M)
    assert set(commands) - {"run", "demo", "completions", "man", "help"} == set(VERBS)
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
"""What to give for keywords that are no plain text."""
PAIRS = {"grow", "limit", "rename", "rename_glob", "rename_regex", "set", "set_metadata", "tie"}
COMPANY: Dict[str, Dict[str, Any]] = {
    "rounding": {"cast": "f16"},
    "repeat": {"draw": True},
    "start_over": {"recover": True},
    "delete_newer": {"rollback": 1},
    "copies": {"preserve": 1},
    "prune": {"keep": 1},
    "tensors_only": {"manifest": "m.json"},
    "strip": {"output": "out"},
    "outputs": {"strip": "training", "output": "out"},
}
"""What a keyword makes sense with."""


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
    # Lists where the signature speaks of several.
    several = any(word in str(parameter.annotation) for word in ("Some", "Paths"))
    return ["-x", "y"] if several else Path("-x")


def each_keyword() -> List[Tuple[str, str]]:
    return [(verb, name) for verb in VERBS for name in keywords(verb)]


@pytest.mark.parametrize("verb, name", each_keyword())
def test_a_keyword_is_understood(
    verb: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    function = getattr(weighbridge, verb)
    value = sample(verb, name, keywords(verb)[name])
    given = {**COMPANY.get(name, {}), name: value}
    if verb == "checkpoint" and name == "keep":
        given["prune"] = True
    if verb == "program" and name == "rename":
        given["output"] = "out"
    if verb == "merge":
        given.setdefault("output", "out.npz")
    places = [
        own for own in inspect.signature(function).parameters.values() if own.kind is not own.KEYWORD_ONLY
    ]
    plain = ["-no-such-file", "-out.npz"][: len(places)]
    if verb == "edit" and name in ("in_place", "undo", "forget_undo"):
        plain = plain[:1]
    # It is taken, and only then it is found that there is no such file.
    with pytest.raises(weighbridge.Error) as failed:
        function(*plain, **given)
    if (verb, name) == ("shard", "kind"):
        assert failed.value.message == "shards are files of safetensors"
    else:
        assert failed.value.code != "bad-arguments", failed.value


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_keyword_is_refused(verb: str) -> None:
    """So that what the test above gives is read, not left aside."""
    own = getattr(_weighbridge, verb)
    given = {
        "path": "a",
        "paths": "a",
        "source": "a",
        "sources": "a",
        "target": "b",
        "left": "a",
        "right": "b",
    }
    taken = inspect.signature(getattr(weighbridge, verb)).parameters
    plain = {name: value for name, value in given.items() if name in taken}
    if verb == "merge":
        plain["output"] = "b"
    with pytest.raises(TypeError, match="no_such_keyword"):
        own(no_such_keyword=None, **plain)


@pytest.mark.parametrize("verb", VERBS)
def test_company_is_asked_for(verb: str) -> None:
    for name in set(keywords(verb)) & (set(COMPANY) - {"rounding", "prune"}):
        places = ["a", "b"][: 2 if verb in ("convert", "diff") else 1]
        value = sample(verb, name, keywords(verb)[name])
        with pytest.raises(weighbridge.UsageError, match="were not provided") as failed:
            getattr(weighbridge, verb)(*places, **{name: value})
        assert failed.value.code == "bad-arguments"


def test_a_list_does_not_spill_into_the_next_argument(net: Path, tmp_path: Path) -> None:
    with pytest.raises(weighbridge.Error):
        weighbridge.edit([str(net), str(tmp_path / "x.npz")], drop="steps")  # type: ignore[arg-type]
    assert not (tmp_path / "x.npz").exists()


def test_a_name_with_an_equals_sign_is_not_cut_in_two() -> None:
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


def test_a_report_is_neither_true_nor_false(tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "a.npz"
    weighbridge.save(path, {"a": numpy.ones(3)})
    for report in (weighbridge.verify(path), weighbridge.scan(path), weighbridge.diff(path, path)):
        with pytest.raises(TypeError, match="ask for"):
            bool(report)
