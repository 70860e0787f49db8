"""The examples of the README and of the guide run unchanged."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import weighbridge
from conftest import small
from test_doctest import FLAGS

TREE = Path(__file__).resolve().parents[2]


def example() -> str:
    """Returns the code block of the README's Python section."""
    text = (TREE / "README.md").read_text("utf-8")
    section = text.split("\n## Python\n")[1].split("\n## ")[0]
    return section.split("```python\n")[1].split("```")[0]


def test_readme_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    weighbridge.save("net.safetensors", small())
    exec(compile(example(), "README.md", "exec"), {})
    assert capsys.readouterr().out == "True sound clean\n"
    assert sorted(weighbridge.load("part.npz")) == ["rows", "weight"]


def test_guide_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weighbridge.save("net.safetensors", small())
    found = doctest.testfile(
        str(TREE / "docs/src/tasks/python.md"), module_relative=False, optionflags=FLAGS, encoding="utf-8"
    )
    assert found.attempted > 15 and found.failed == 0
