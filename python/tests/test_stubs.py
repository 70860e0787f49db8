"""The stubs match the native module: names, and signatures of functions."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, Dict, List, Tuple

import weighbridge
from weighbridge import _weighbridge

STUBS = Path(weighbridge.__file__).with_name("_weighbridge.pyi")
IMPLIED = {"__iter__", "__new__", "__init_subclass__", "__doc__", "__module__", "__reduce__", "__repr__"}
"""Attributes that Python derives from others, or that every class has."""


def parameters(function: ast.FunctionDef) -> List[Tuple[str, str, Any]]:
    """Returns name, kind and default of each parameter in a stub."""
    given = function.args
    plain = given.posonlyargs + given.args
    defaults = [inspect.Parameter.empty] * (len(plain) - len(given.defaults)) + [
        ast.literal_eval(d) for d in given.defaults
    ]
    found = [(own.arg, "POSITIONAL_OR_KEYWORD", default) for own, default in zip(plain, defaults)]
    for own, default in zip(given.kwonlyargs, given.kw_defaults):
        value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
        found.append((own.arg, "KEYWORD_ONLY", value))
    if given.kwarg is not None:
        found.append((given.kwarg.arg, "VAR_KEYWORD", inspect.Parameter.empty))
    return found


def signature(function: Any) -> List[Tuple[str, str, Any]]:
    """Returns the same for the actual function."""
    own = inspect.signature(function).parameters.values()
    return [
        (one.name, "POSITIONAL_OR_KEYWORD" if one.kind is one.POSITIONAL_ONLY else one.kind.name, one.default)
        for one in own
    ]


def public(names: Any) -> set:
    """Returns the names that stubs must contain: public ones, and those of protocols."""
    return {
        name for name in names if not name.startswith("_") or (name.startswith("__") and name.endswith("__"))
    }


def test_stubs_match_the_module() -> None:
    tree = ast.parse(STUBS.read_text("utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    values = {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    there = {name for name in vars(_weighbridge) if not name.startswith("__")} | {"__version__"}
    assert there == set(functions) | set(classes) | values
    for name, function in functions.items():
        assert signature(getattr(_weighbridge, name)) == parameters(function), name


def test_stubs_match_the_classes() -> None:
    tree = ast.parse(STUBS.read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            one_class(node, getattr(_weighbridge, node.name))


def one_class(node: ast.ClassDef, own: type) -> None:
    stubs: Dict[str, ast.FunctionDef] = {
        part.name: part for part in node.body if isinstance(part, ast.FunctionDef)
    }
    assert public(vars(own)) - IMPLIED == set(stubs) - IMPLIED, node.name
    for name, function in stubs.items():
        if name in IMPLIED:
            continue
        is_property = any(
            isinstance(mark, ast.Name) and mark.id == "property" for mark in function.decorator_list
        )
        assert inspect.isgetsetdescriptor(vars(own)[name]) == is_property, f"{node.name}.{name}"
        if not is_property and not name.startswith("__"):
            assert signature(vars(own)[name]) == parameters(function), f"{node.name}.{name}"


def test_exported_names_exist_and_are_documented() -> None:
    for name in weighbridge.__all__:
        assert getattr(weighbridge, name) is not None
        assert name.startswith("__") or (getattr(weighbridge, name).__doc__ or "").strip(), name
