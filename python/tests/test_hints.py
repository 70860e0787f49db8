"""Hints name keywords of the called function; text from files and callers is not changed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Optional

import numpy
import pytest
import weighbridge
from weighbridge import _weighbridge

TREE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name, known", _weighbridge.hinted_keywords())
def test_keywords_of_hints_are_those_of_the_functions(name: str, known: list) -> None:
    own = inspect.signature(getattr(weighbridge, name)).parameters
    assert set(known) <= set(own), name
    # A keyword that this function also has is among its own.
    others = {keyword for _, keywords in _weighbridge.hinted_keywords() for keyword in keywords}
    plain = {
        "path",
        "paths",
        "source",
        "sources",
        "target",
        "name",
        "metadata",
        "roles",
        "labels",
        "row_names",
        "progress",
    }
    assert set(own) & others - plain - set(known) <= {"names"}, name


def hint(action: Any, *given: Any, **named: Any) -> Optional[str]:
    with pytest.raises(weighbridge.Error) as caught:
        action(*given, **named)
    assert "--" not in str(caught.value)
    return caught.value.hint


def test_hints_name_keywords_of_the_called_function(net: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.bin"
    odd.write_bytes(b"not a model")
    assert "format=FORMAT" in hint(weighbridge.open, odd) and "from_=FORMAT" in hint(weighbridge.info, odd)
    assert hint(weighbridge.save, net, {"w": b"x"}) == "use force=True to replace it"
    assert hint(weighbridge.convert, net, net) == "use force=True to replace it"
    two = {"a": numpy.zeros(2), "b": numpy.zeros(2)}
    assert 'kind="folder"' in hint(weighbridge.save, tmp_path / "x.npy", two)
    assert "to=FORMAT" in hint(weighbridge.convert, net, tmp_path / "x.zzz")
    assert "format=FORMAT" in hint(weighbridge.save, tmp_path / "x.zzz", two)
    model = weighbridge.primitiv.Model({"w": [1, 2]})
    model.save(tmp_path / "x.model")
    assert hint(model.save, tmp_path / "x.model") == "use force=True to replace it"
    weighbridge.primitiv.Adam().save(tmp_path / "x.optimizer")
    assert hint(weighbridge.primitiv.Adam().save, tmp_path / "x.optimizer") == "use force=True to replace it"
    report = weighbridge.verify([net, net], limit={"tensors": 1})
    hint_text = report.errors[0].hint if report.errors else report.findings[0].hint
    assert 'limit={"tensors": NUMBER}' in hint_text


def test_hints_name_another_function_with_the_keyword(tmp_path: Path) -> None:
    two = {"a": numpy.zeros(2), "b": numpy.zeros(2)}
    # If the function lacks the keyword, the hint names one that has it.
    assert "weighbridge.convert(..., select=...)" in hint(
        weighbridge.save, tmp_path / "x.pdiparams", two, kind="tensor"
    )
    path = tmp_path / "x.npz"
    weighbridge.save(path, two)
    with pytest.raises(weighbridge.LimitError) as caught:
        weighbridge.open(path, limits={"tensors": 1})
    assert f'limits={{"tensors": {caught.value.found}}}' in str(caught.value.hint)
    with pytest.raises(weighbridge.LimitError) as caught:
        weighbridge.ls(path, limit={"tensors": 1})
    assert f'limit={{"tensors": {caught.value.found}}}' in str(caught.value.hint)


def test_losses_and_notes_are_worded(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    weighbridge.save(path, {"t": numpy.ones((2, 2), "f4")}, row_names={"t": ["a", "b"]})
    with pytest.warns(weighbridge.LossWarning) as warned:
        report = weighbridge.convert(path, tmp_path / "t.npy")
    (rows,) = [loss for loss in report.losses if loss.code == "names-left-out"]
    assert rows.detail.endswith('a folder has (kind="folder")') and rows.detail in str(warned[0].message)
    with pytest.raises(weighbridge.MismatchError) as caught:
        weighbridge.convert(path, tmp_path / "u.npy", deny_loss=True)
    assert caught.value.code == "loss-denied" and rows.detail in str(caught.value.found)


def test_rejects_invalid_arguments(net: Path) -> None:
    for action, named, message in [
        (
            weighbridge.convert,
            {"target": "x.npz", "rounding": "up"},
            "invalid value 'up' for rounding: expected nearest",
        ),
        (weighbridge.checkpoint, {"delete_newer": True}, "arguments were not provided: rollback"),
        (weighbridge.edit, {}, "arguments were not provided: target"),
        (lambda _: weighbridge.verify([]), {}, "arguments were not provided: path"),
        (weighbridge.edit, {"in_place": "yes"}, "invalid value 'yes' for in_place"),
        (weighbridge.edit, {"target": "x", "undo": True}, "the argument undo cannot be used with target"),
        (weighbridge.diff, {"right": net, "atol": -1}, "atol must be 0 or more"),
    ]:
        with pytest.raises(weighbridge.UsageError) as caught:
            action(net, **named)
        error = caught.value
        assert message in error.message and error.args == (error.message,), error
        assert "--" not in str(error) and "Usage" not in str(error)
        if error.code == "bad-arguments" and action.__name__ != "<lambda>":
            assert error.hint.endswith(f"see help(weighbridge.{action.__name__})")


def test_common_mistakes_get_hints(net: Path, tmp_path: Path) -> None:
    tensor = weighbridge.open(net)["fc1.weight"]
    with pytest.raises(AttributeError, match=r"use tensor.numpy\(\).astype"):
        tensor.astype("float16")
    with pytest.raises(AttributeError, match="has no attribute 'colour'$"):
        tensor.colour
    assert tensor.cast("float16").dtype == "f16"
    assert tensor.cast("half").dtype == "f16"
    weighbridge.save(tmp_path / "x.npz", {"w": numpy.zeros(1)}, cast="float32")
    assert weighbridge.open(tmp_path / "x.npz")["w"].dtype == "f32"
    for verb, cast in ((weighbridge.convert, "bfloat16"), (weighbridge.edit, {"*.bias": "bfloat16"})):
        verb(net, tmp_path / "y.safetensors", cast=cast, force=True)
        assert weighbridge.open(tmp_path / "y.safetensors")["fc1.bias"].dtype == "bf16"
    with pytest.raises(AttributeError, match="did you mean is_sound"):
        weighbridge.verify(net).sound
    with pytest.raises(AttributeError, match="has no attribute 'colour'$"):
        weighbridge.info(net).colour
    with pytest.raises(TypeError, match="use report.same"):
        bool(weighbridge.diff(net, net))
    assert weighbridge.ls(net)["fc1.bias"].shape == (2,)
    for report in (weighbridge.ls(net), weighbridge.stats(net)):
        assert hint(report.__getitem__, "fc1.wieght").startswith("did you mean fc1.weight")
        with pytest.raises(KeyError):
            report["something else"]
    assert "wrong order" in hint(weighbridge.save, {"w": numpy.zeros(1)}, "x.npz")
    assert "wrong order" in hint(weighbridge.paddle.save, "x.pdparams", {"w": numpy.zeros(1)})
    assert "the file has the format safetensors" in hint(weighbridge.load, net, format="npz")
    assert "the file has the format safetensors" in hint(weighbridge.primitiv.load, net)
    assert "the file has the format safetensors" in hint(weighbridge.paddle.load, net)
    (tmp_path / "odd").write_bytes(b"no format at all")
    assert "the file has the format" not in (hint(weighbridge.open, tmp_path / "odd", format="npz") or "")
    assert not any("--" in setting.what for own in weighbridge.formats().values() for setting in own.settings)
    store = weighbridge.biggraph.CheckpointStore(tmp_path / "run")
    rows = numpy.zeros((1, 2), "f4")
    with pytest.raises(weighbridge.ArgumentTypeError, match="tables must be a mapping"):
        store.save(rows)
    with pytest.raises(weighbridge.ArgumentTypeError, match="names must be a mapping"):
        store.save({"user": rows}, names=["a"])
    with pytest.raises(weighbridge.UsageError, match="not valid JSON"):
        store.save({"user": rows}, config="{")


ODD = ["a --force", "w --drop x", "b '<PAD>'", "show ME, `x`", "'--cast <DTYPE>'"]
"""Tensor names that look like options in hints."""


def test_tensor_names_are_not_reworded(tmp_path: Path) -> None:
    path = tmp_path / "odd --force.npz"
    weighbridge.save(path, {name: numpy.zeros(2) for name in ODD})
    opened = weighbridge.open(path)
    for name in ODD:
        for action, given in (
            (opened.__getitem__, [name[:-1]]),
            (weighbridge.show, [path, name[:-1]]),
            (weighbridge.stats, [path, name[:-1]]),
        ):
            with pytest.raises(KeyError) as caught:
                action(*given)
            assert caught.value.hint == f"did you mean `{name}`?" and caught.value.tensor == name[:-1]
    with pytest.raises(KeyError) as caught:
        opened["nothing like it"]
    assert caught.value.hint == "no name is similar; the first tensors are " + ", ".join(sorted(ODD)[:3])
    with pytest.raises(weighbridge.UsageError, match="^`{2}--drop`{2} is not an index"):
        weighbridge.show(path, "a --force[`--drop`]")
    # The option in the hint is still reworded.
    with pytest.raises(weighbridge.Error) as caught:
        weighbridge.convert(path, path)
    assert caught.value.file == str(path) and "force=True" in caught.value.hint


def test_row_names_are_not_reworded(tmp_path: Path) -> None:
    folder = tmp_path / "run --force"
    store = weighbridge.biggraph.CheckpointStore(folder)
    store.save({"user": numpy.ones((5, 2), "f4")}, names={"user": ODD})
    for name in ODD:
        with pytest.raises(weighbridge.MismatchError) as caught:
            weighbridge.show(folder, f"embeddings.user['{name[:-1]}']")
        assert (caught.value.code, caught.value.hint) == ("no-such-row", f"did you mean {name}?")
    # The hint contains the reason from a note of the file, with the folder.
    (folder / "entity_names_user_0.json").unlink()
    rows = folder / "embeddings_user_0.v1.h5"
    with pytest.raises(weighbridge.UsageError) as caught:
        weighbridge.show(rows, "embeddings.user['x']", entities=folder)
    assert caught.value.code == "no-row-names" and "run --force" in caught.value.hint
    (folder / "entity_count_user_0.txt").unlink()
    assert "entities=FOLDER" in hint(weighbridge.show, folder, "embeddings.user['x']")


@pytest.mark.parametrize("value", ["--force", "f32:'<PAD>'", "a=... --drop x", "x' for '--cast <DTYPE>': y"])
def test_values_are_not_reworded(net: Path, value: str) -> None:
    with pytest.raises(weighbridge.UsageError) as caught:
        weighbridge.convert(net, "x.npz", cast=value)
    assert caught.value.message.startswith(f"invalid value '{value}' for cast: casts go to")
    with pytest.raises(weighbridge.MismatchError) as caught:
        weighbridge.convert(net, "x.npz", select=value.replace("'", ""))
    assert caught.value.found == value.replace("'", "")


def test_hints_of_findings_are_reworded(tmp_path: Path) -> None:
    folder = TREE / "testdata/paddle/good"
    hints = [
        finding.hint
        for path in sorted(folder.rglob("*.pdmodel"))
        for finding in weighbridge.scan(path).findings
        if finding.hint
    ]
    assert any('weighbridge.program(..., strip="source")' in one for one in hints)
    assert not any("--" in one for one in hints)
