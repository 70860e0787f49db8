"""Doctests of the package and of the documentation."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Iterator, List, Tuple

import pytest
import weighbridge
from conftest import graph, small

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules() -> List[str]:
    """Returns the modules of the package, including the native one."""
    found = pkgutil.walk_packages(weighbridge.__path__, "weighbridge.")
    without = {"weighbridge.__main__"}
    if importlib.util.find_spec("torchbiggraph") is None:
        # Needs PyTorch-BigGraph, to register itself there.
        without.add("weighbridge.biggraph.storage")
    if importlib.util.find_spec("pyspark") is None:
        without.add("weighbridge.spark")
    return sorted({"weighbridge", "weighbridge._weighbridge", *(module.name for module in found)} - without)


def examples(module: ModuleType) -> Iterator[doctest.DocTest]:
    """Yields the examples of a module; doctest does not find those in classes and functions of a native module."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    yield from finder.find(module)
    if getattr(module, "__file__", "").endswith(".py"):
        return
    for name, value in vars(module).items():
        for label, doc in _documented(name, value):
            test = doctest.DocTestParser().get_doctest(
                doc, {}, f"{module.__name__}.{label}", module.__file__, 0
            )
            if test.examples:
                yield test


def _documented(name: str, value: object) -> Iterator[Tuple[str, str]]:
    yield name, getattr(value, "__doc__", None) or ""
    if isinstance(value, type):
        for part, own in vars(value).items():
            yield f"{name}.{part}", getattr(own, "__doc__", None) or ""


@pytest.mark.parametrize("name", modules())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weighbridge.save("net.safetensors", small())
    if name.startswith(("weighbridge.biggraph", "weighbridge.verbs.importing")):
        graph(tmp_path)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for example in examples(importlib.import_module(name)):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


def test_examples_of_the_format_modules_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parents[2] / "docs/src/reference/python-frameworks.md"
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS, encoding="utf-8")
    assert result.failed == 0 and result.attempted > 20
