"""Common first mistakes: wrong folders, damaged files, folders with the names of packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List

import numpy
import pytest
import weighbridge
from conftest import TESTDATA, graph
from weighbridge import biggraph, paddle, primitiv


def raised(action: Callable[[], Any]) -> weighbridge.Error:
    with pytest.raises(weighbridge.Error) as caught:
        action()
    return caught.value


def test_a_folder_without_parameters_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "tables").mkdir()
    weighbridge.save(tmp_path / "tables" / "t.parquet", {"t": numpy.ones((2, 2), "float32")})
    graph(tmp_path)
    for name in ("empty", "tables", "graph"):
        folder = tmp_path / name
        for load in (paddle.load, paddle.load_params, lambda path: weighbridge.open(path, format="paddle")):
            error = raised(lambda: load(folder))
            assert isinstance(error, weighbridge.UsageError) and error.code == "no-parameters", name
            assert error.file == str(folder) and ".pdiparams" in str(error.expected)


def test_a_program_without_parameters_is_an_error(tmp_path: Path) -> None:
    program = next(iter(sorted((TESTDATA / "paddle/good/p262").glob("*/*.pdmodel"))))
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / program.name).write_bytes(program.read_bytes())
    for load in (paddle.load, paddle.load_params):
        for path in (alone, alone / program.name):
            error = raised(lambda: load(path))
            assert isinstance(error, weighbridge.MismatchError) and error.code == "parameters-missing"
    # This one has no parameters that could be missing.
    assert paddle.load_params(TESTDATA / "paddle/good/p262/vocab") == {}


def test_empty_files_have_their_own_error(tmp_path: Path) -> None:
    path = tmp_path / "nothing.pdiparams"
    path.touch()
    loads: List[Callable[[Path], Any]] = [
        weighbridge.open,
        paddle.load,
        primitiv.load,
        primitiv.Model.open,
        lambda path: weighbridge.open(path, format="safetensors"),
    ]
    for load in loads:
        error = raised(lambda: load(path))
        assert isinstance(error, weighbridge.CorruptFileError) and error.code == "empty-file"
        assert "encrypt" not in str(error)


def test_accepts_framework_names_of_safetensors(net: Path) -> None:
    assert weighbridge.load(net, framework="np")["fc1.bias"].tolist() == [0.5, 1.5]
    error = raised(lambda: weighbridge.load(net, framework="tf"))  # type: ignore[call-overload]
    assert error.expected == "numpy or torch"
    torch = pytest.importorskip("torch")
    assert isinstance(weighbridge.load(net, framework="pt")["fc1.bias"], torch.Tensor)


@pytest.mark.parametrize("package", ["torch", "paddle"])
def test_folder_with_the_name_of_a_package_is_not_used(net: Path, package: str) -> None:
    """Python imports any folder as a namespace package; it lacks the attributes of the library."""
    (net.parent / package).mkdir()
    program = f"""
import numpy, weighbridge
try:
    weighbridge.open("net.safetensors")["fc1.bias"].{package}()
except weighbridge.MissingPackageError as error:
    print(error.code, error.found.endswith("another module of that name"), {package!r} in error.found)
weighbridge.save("y.npz", {{"w": numpy.zeros(2)}})
print(list(weighbridge.load("y.npz")))
"""
    # The folder precedes an installed package only if it is first on the path.
    run = [sys.executable, "-S", "-c", program]
    places = [str(Path(module.__file__ or "").parents[1]) for module in (weighbridge, numpy)]
    if any((Path(place) / package).exists() for place in places):
        pytest.skip(f"{package} is installed in the same folder as the required packages")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(run, cwd=net.parent, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"no-{package} True True", "['w']"], done.stderr


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A truncated file without its last tensor."""
    whole = tmp_path / "whole.safetensors"
    weighbridge.save(whole, {"a": numpy.ones((20, 2), "f4"), "head.w": numpy.ones((20, 2), "f4")})
    path = tmp_path / "cut.safetensors"
    path.write_bytes(whole.read_bytes()[:-40])
    return path


def test_lost_tensors_have_their_own_error(cut: Path) -> None:
    opened = weighbridge.open(cut, salvage=True)
    damage = opened.damage
    assert list(opened) == ["a"] and damage is not None and damage["lost"] == ["head.w"]
    for name in ("head.w", ("head", "w")):
        error = raised(lambda: opened[name])
        assert isinstance(error, weighbridge.UnknownNameError) and error.code == "lost-tensor"
        assert error.tensor == "head.w" and damage["why"][0]["text"] in str(error.found)
        assert error.offset == damage["why"][0]["offset"]
        assert name not in opened and opened.get(name) is None
    assert raised(lambda: opened["head"]).code == "no-such-tensor"
    assert raised(lambda: weighbridge.show(cut, "head.w", salvage=True)).code == "lost-tensor"


def test_hints_offer_salvage_of_damaged_files(cut: Path, tmp_path: Path) -> None:
    for load in (weighbridge.open, weighbridge.load, weighbridge.ls):
        assert str(raised(lambda: load(cut)).hint).endswith("; salvage=True extracts 1 readable tensor")
    # If the function lacks the keyword, the hint names one that has it.
    model = tmp_path / "net.model"
    primitiv.Model({"a": [1.0, 2.0], "b": [3.0, 4.0]}).save(model)
    model.write_bytes(model.read_bytes()[:-9])
    for load in (primitiv.load, primitiv.Model.open):
        assert "weighbridge.open(..., salvage=True) extracts 1 readable tensor" in str(
            raised(lambda: load(model)).hint
        )


def test_duplicate_row_names_are_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    names = ["n1", "a", "n2", "a", "n3"]
    weighbridge.save(path, {"t": numpy.arange(10.0).reshape(5, 2)}, row_names={"t": names})
    tensor = weighbridge.open(path)["t"]
    row_names = tensor.row_names
    assert row_names is not None
    table = biggraph.Table("user", tensor)
    for ask, name in [
        (lambda: row_names.row_of("a"), None),
        (lambda: row_names.rows_of(["n1", "a"]), None),
        (lambda: tensor["a"], "t"),
        (lambda: tensor["a", 0], "t"),
        (lambda: tensor[["n1", "a"]], "t"),
        (lambda: table["a"], "user"),
        (lambda: table.row_of("a"), "user"),
        (lambda: table[["n1", "a"]], "user"),
        (lambda: table.rows_of(["a"]), "user"),
    ]:
        error = raised(ask)
        assert type(error) is weighbridge.MismatchError and error.code == "name-twice"
        assert error.found == "a: rows 1 and 3" and error.tensor == name
    assert "a" in row_names and row_names.count("a") == 2
    assert (row_names.index("a"), row_names.index("a", 2)) == (1, 3)
    assert tensor[["n3", "n1"]].tolist() == table[["n3", "n1"]].tolist() == [[8.0, 9.0], [0.0, 1.0]]
    assert raised(lambda: tensor[["n1", "eve"]]).code == "no-such-row"
    for ask in (lambda: tensor["n1":"n3"], lambda: tensor[:"n3", 0], lambda: table["n1":"n3"]):  # type: ignore[misc]
        with pytest.raises(TypeError, match=r"row_names\.row_of\(name\)"):
            ask()
