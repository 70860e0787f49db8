"""Reports of the verbs, compared with numpy and with the files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Tuple

import numpy
import pytest

import weighbridge
from conftest import TESTDATA, small


def test_info(net: Path) -> None:
    report = weighbridge.info(net)
    assert (report.path, report.format, report.kind) == (str(net), "safetensors", "single")
    assert (report.tensors, report.parameters, report.bytes) == (3, 14, 64)
    assert report.dtypes["f32"] == (2, 14, 56) and report.roles["parameter"].tensors == 3
    assert report.metadata == {"by": "the tests"} and report.damage is None


def test_ls(net: Path) -> None:
    listing = weighbridge.ls(net, drop="steps", hash=True, extents=True)
    assert [(t.name, t.path, t.shape, t.slot) for t in listing] == [
        ("fc1.bias", ("fc1", "bias"), (2,), None),
        ("fc1.weight", ("fc1", "weight"), (4, 3), None),
    ]
    assert len(listing) == 2 and listing.tensors[1].extents[0]["bytes"] == 48
    old = weighbridge.ls(net, pieces=True)
    assert old.tensors[2].pieces == old.tensors[2].extents == listing.tensors[1].extents
    assert listing.tensors[0].sha256 == hashlib.sha256(small()["fc1.bias"].tobytes()).hexdigest()
    assert "<td>fc1.bias</td>" in listing._repr_html_()


def test_ls_of_state() -> None:
    listing = weighbridge.ls(TESTDATA / "primitiv/good/trained/trained_mlp_a.model")
    found = weighbridge.open(TESTDATA / "primitiv/good/trained/trained_mlp_a.model")
    assert [(t.name, t.path, t.role, t.slot) for t in listing] == [
        (t.name, t.path, t.role, t.slot) for t in found.values()
    ]
    assert any(t.slot is not None for t in listing)


def test_show(tmp_path: Path) -> None:
    odd = numpy.array([1.5, numpy.nan, numpy.inf, -numpy.inf])
    weighbridge.save(tmp_path / "x.npz", {"odd": odd, "c": numpy.array([[1 + 2j]]), "yes": numpy.array(True)})
    shown = weighbridge.show(tmp_path / "x.npz", "odd[1:]")
    assert shown.dtype == "f64" and shown.shape == (3,)
    numpy.testing.assert_array_equal(shown.values, odd[1:])
    assert weighbridge.show(tmp_path / "x.npz", "c").values == [[1 + 2j]]
    assert weighbridge.show(tmp_path / "x.npz", "yes").values in (True, 1)
    with pytest.raises(KeyError) as failed:
        weighbridge.show(tmp_path / "x.npz", "od")
    assert isinstance(failed.value, weighbridge.UnknownNameError)


def test_stats(tmp_path: Path) -> None:
    values = numpy.array([0.0, -2.0, 5.0, numpy.nan, numpy.inf], "f4")
    weighbridge.save(tmp_path / "x.npz", {"a": values, "b.c": numpy.arange(10)})
    report = weighbridge.stats(tmp_path / "x.npz", bins=4)
    a = report["a"]
    assert (a.count, a.finite, a.min, a.max, a.mean, a.zeros, a.nan, a.pos_inf, a.neg_inf) == (
        5,
        3,
        -2.0,
        5.0,
        1.0,
        1,
        1,
        1,
        0,
    )
    assert a.std == pytest.approx(numpy.std([0.0, -2.0, 5.0]))
    counts, _ = numpy.histogram(numpy.arange(10), 4)
    assert report["b.c"].histogram.counts == tuple(counts) and isinstance(report["b.c"].min, int)
    assert [t.name for t in weighbridge.stats(tmp_path / "x.npz", "b.*")] == ["b.c"]
    assert "<td>b.c</td>" in report._repr_html_()
    with pytest.raises(KeyError):
        report["c"]


def test_convert(net: Path, tmp_path: Path) -> None:
    target = tmp_path / "half.npz"
    planned = weighbridge.convert(net, target, cast="f16", plan=True)
    assert not planned.done and planned.path == str(target) and not target.exists()
    calls: List[Tuple[int, int]] = []
    report = weighbridge.convert(
        net, target, cast="f16", rename=["fc1=head"], progress=lambda done, total: calls.append((done, total))
    )
    assert (
        report.done and report.bytes == target.stat().st_size and report.files == (("", report.bytes, False),)
    )
    assert calls and calls[-1][0] == calls[-1][1]
    assert report.casts["head.weight"].elements == 12 and report.casts["head.weight"].overflowed == 0
    arrays = numpy.load(target)
    numpy.testing.assert_array_equal(arrays["head.weight"], small()["fc1.weight"].astype("f2"))
    with pytest.raises(FileExistsError):
        weighbridge.convert(net, target)
    weighbridge.convert(net, target, force=True)
    assert set(weighbridge.open(target)) == set(small())


def test_losses_are_reported_and_can_be_denied(net: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.model"
    report = weighbridge.convert(net, target, cast="f32", drop="steps")
    assert report.losses and all(loss.code and loss.detail for loss in report.losses)
    assert report.exit_code == 0
    target.unlink()
    with pytest.raises(weighbridge.Error) as failed:
        weighbridge.convert(net, target, cast="f32", drop="steps", deny_loss=True)
    assert failed.value.code == "loss-denied" and not target.exists()


def test_salvage_reports_losses(net: Path, tmp_path: Path) -> None:
    whole = net.read_bytes()
    net.write_bytes(whole[:-8])
    with pytest.raises(weighbridge.CorruptFileError):
        weighbridge.convert(net, tmp_path / "x.npz")
    report = weighbridge.convert(net, tmp_path / "x.npz", salvage=True)
    assert report.exit_code == 1 and [loss.code for loss in report.losses] == ["missing-damaged"]
    assert weighbridge.info(net, salvage=True).damage["lost"] == ["fc1.weight"]


def test_diff(net: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    arrays = small()
    arrays["fc1.weight"] = arrays["fc1.weight"] + numpy.eye(4, 3, dtype="f4") / 8
    arrays["new<b>"] = arrays.pop("steps")
    weighbridge.save(other, arrays, metadata={"by": "the tests"})
    report = weighbridge.diff(net, other, markdown=True, all=True)
    assert not report.same and report.exit_code == 1 and report.values_compared
    assert (report.left.format, report.right.format) == ("safetensors", "npz")
    status = {pair.left: pair.status for pair in report.pairs}
    assert status == {"fc1.weight": "values", "fc1.bias": "same", "steps": "renamed"}
    weight = next(pair for pair in report.pairs if pair.left == "fc1.weight")
    assert weight.values.beyond == 3 and weight.values.max_abs == 0.125 and len(weight.values.at) == 2
    assert "fc1.weight" in report.markdown and "new<b>" not in report._repr_html_()
    near = weighbridge.diff(net, other, atol=0.2, rename={"steps": "new<b>"})
    assert near.same and near.exit_code == 0 and [pair.status for pair in near.pairs] == ["close"]
    assert near.markdown is None
    alone = weighbridge.diff(net, other, names_only=True)
    assert not alone.values_compared
    assert alone.left_alone == (("steps", "i64", ()),) and alone.right_alone[0].name == "new<b>"


def test_diff_of_a_damaged_file(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "whole.npz", a=numpy.arange(100.0), b=numpy.arange(50.0))
    data = bytearray((tmp_path / "whole.npz").read_bytes())
    data[600] ^= 1
    (tmp_path / "damaged.npz").write_bytes(data)
    report = weighbridge.diff(tmp_path / "whole.npz", tmp_path / "damaged.npz", all=True)
    assert report.could_not_tell and not report.same and report.exit_code == 3
    assert repr(report).startswith("<DiffReport could not tell")
    assert [(pair.left, pair.status) for pair in report.pairs] == [("a", "unread"), ("b", "same")]
    unread = report.pairs[0].unread
    assert unread.code == "crc-mismatch" and unread.file.endswith("damaged.npz") and unread.tensor == "a"
    assert report.pairs[1].unread is None and "checksum of the data does not match" in report._repr_html_()


def test_diff_of_non_finite_values(tmp_path: Path) -> None:
    weighbridge.save(tmp_path / "a.npy", {"value": numpy.array([1.0, 1e308])})
    weighbridge.save(tmp_path / "b.npy", {"value": numpy.array([1.0, -1e308])})
    (pair,) = weighbridge.diff(tmp_path / "a.npy", tmp_path / "b.npy").pairs
    assert pair.values.max_abs == numpy.inf and isinstance(pair.values.max_abs, float)
    assert pair.values.nan_at is None and pair.values.infinite_at is None
    weighbridge.save(tmp_path / "c.npy", {"value": numpy.array([numpy.nan, numpy.inf])})
    (pair,) = weighbridge.diff(tmp_path / "a.npy", tmp_path / "c.npy").pairs
    assert (pair.values.at, pair.values.nan_at, pair.values.infinite_at) == (None, (0,), (1,))
    assert weighbridge.verify(tmp_path / "c.npy", values=True).is_sound
    denied = weighbridge.verify(tmp_path / "c.npy", deny_nonfinite=True)
    assert denied.is_unsound and {found.code for found in denied.findings} == {"nan", "infinite"}


def test_rules_without_a_match(net: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\ndrop = "x*"\n')
    for verb, other in ((weighbridge.diff, net), (weighbridge.convert, tmp_path / "b.npz")):
        with pytest.raises(weighbridge.Error) as caught:
            verb(net, other, rules=rules)
        assert caught.value.code == "no-match"
        assert caught.value.hint.endswith("lenient_rules=True skips rules without effect")
        assert "rule-unused" in str(verb(net, other, rules=rules, lenient_rules=True).notes)


def test_verify(net: Path, tmp_path: Path) -> None:
    report = weighbridge.verify(net, account=True, values=True)
    assert report.verdict == "sound" and report.is_sound and report.exit_code == 0
    assert not report.is_unsound and not report.could_not_tell
    with pytest.raises(TypeError, match="is_sound or report.could_not_tell"):
        bool(report)
    assert report.format == "safetensors" and "values" in report.checked
    (file,) = report.files
    assert sum(range.bytes for range in file.ranges) == file.bytes == net.stat().st_size
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(net.read_bytes() + b"more")
    found = weighbridge.verify(bad)
    assert found.verdict == "unsound" and not found.is_sound and found.exit_code == 1
    assert found.is_unsound and not found.could_not_tell
    assert any(finding.severity == "error" and finding.code for finding in found.findings)
    assert found.findings[0].code in found._repr_html_()
    assert found.files[0].ranges is None


def test_verify_of_several(net: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("no model")
    both = weighbridge.verify([net, text])
    assert both.could_not_tell and not both.is_sound and not both.is_unsound
    assert both.verdict == "could-not-tell" and both.exit_code == 3 and both.paths == (str(net), str(text))
    assert [own.verdict for own in both.reports] == ["sound", "could-not-tell"]
    assert [own.exit_code for own in both.reports] == [0, 3] and both.format is None
    missing = weighbridge.verify([net, tmp_path / "none"])
    assert missing.verdict == "could-not-tell" and missing.exit_code == 2
    (error,) = missing.errors
    assert isinstance(error, FileNotFoundError) and missing.reports[1].exit_code == 2
    with pytest.raises(FileNotFoundError):
        weighbridge.verify(tmp_path / "none")
    # Iterators.
    assert weighbridge.verify(net.parent.glob(net.name)).is_sound
    assert weighbridge.scan(path for path in [net]).is_clean


def test_seal(net: Path, tmp_path: Path) -> None:
    sealed = weighbridge.seal(net, output=tmp_path / "m.json", algorithms="sha256")
    assert sealed.algorithms == ("sha256",) and (sealed.files, sealed.tensors) == (1, 3)
    assert json.loads((tmp_path / "m.json").read_text())["subject"][0]["digest"]["sha256"] == sealed.sha256
    good = weighbridge.verify(net, manifest=sealed.manifest)
    assert good.is_sound and good.manifest["files"]["equal"] == 1
    net.write_bytes(net.read_bytes()[:-1] + b"\x01")
    bad = weighbridge.verify(net, manifest=sealed.manifest)
    assert bad.verdict == "unsound" and "file-changed" in {finding.code for finding in bad.findings}
    with pytest.raises(FileExistsError):
        weighbridge.seal(net, output=tmp_path / "m.json")


class Boom:
    """Object whose pickle runs code."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return os.system, ("true",)


def test_scan(net: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(pickle.dumps(Boom()))
    report = weighbridge.scan(bad, sarif=True)
    assert report.verdict == "found" and not report.is_clean and report.exit_code == 1
    (file,) = report.files
    assert file.imports[0].judgement == "dangerous" and file.calls[0].how == "REDUCE"
    assert report.findings == file.findings and report.sarif["version"] == "2.1.0"
    several = weighbridge.scan([net, bad, tmp_path / "none"], sarif=True)
    assert [own.verdict for own in several.reports[:2]] == ["clean", "found"] and several.verdict == "found"
    assert len(several.errors) == 1 and several.exit_code == 1
    assert {result["ruleId"] for result in several.sarif["runs"][0]["results"]} >= {file.findings[0].code}
    assert weighbridge.scan(net).is_clean and weighbridge.scan(net).sarif is None
    codes = {rule.code for rule in weighbridge.scan_rules()}
    assert {finding.code for finding in report.findings} <= codes


def test_edit(net: Path, tmp_path: Path) -> None:
    before = net.read_bytes()
    target = tmp_path / "new.safetensors"
    report = weighbridge.edit(
        net, target, rename_glob={"fc?.*": "head.{2}"}, transpose={"*.weight": (1, 0)}, cast={"*.bias": "f16"},
        set_metadata={"by": "an editor"},
    )  # fmt: skip
    assert report.how == "new-file" and report.done and report.source == str(net)
    after = {change.before.name: change for change in report.changes}
    assert after["fc1.weight"].transposed and after["fc1.weight"].after.shape == (3, 4)
    assert after["fc1.bias"].after.dtype == "f16" and report.casts["head.bias"].elements == 2
    assert [(m.key, m.before, m.after) for m in report.metadata] == [("by", "the tests", "an editor")]
    array = weighbridge.load(target)["head.weight"]
    numpy.testing.assert_array_equal(array, small()["fc1.weight"].T)
    assert weighbridge.edit(net, in_place=True, rename={"fc1": "fc2"}).how == "header"
    assert net.read_bytes() != before and "fc2.bias" in weighbridge.open(net)
    undone = weighbridge.edit(net, undo=True)
    assert undone.how == "undo" and undone.done and undone.target == str(net) and undone.changes == ()
    assert net.read_bytes() == before
    planned = weighbridge.edit(net, in_place="rewrite", drop="steps", plan=True)
    assert planned.how == "rewrite" and not planned.done and net.read_bytes() == before


def test_shard_and_merge(net: Path, tmp_path: Path) -> None:
    cut = weighbridge.shard(net, tmp_path / "net", max_shard_size=50)
    assert [shard.tensors for shard in cut.shards] == [2, 1] and cut.done
    assert sorted(path.name for path in (tmp_path / "net").iterdir())[0] == cut.shards[0].name
    joined = weighbridge.merge(tmp_path / "net", output=tmp_path / "one.safetensors")
    assert set(joined.tensors) == set(small()) and joined.format == "safetensors"
    assert weighbridge.diff(net, tmp_path / "one.safetensors", no_metadata=True).same
    with pytest.raises(weighbridge.Error):
        weighbridge.merge([net, tmp_path / "one.safetensors"], output=tmp_path / "two.npz")
    each = weighbridge.merge(
        [net, tmp_path / "one.safetensors"], output=tmp_path / "two.npz", prefix_each=True
    )
    assert "net.fc1.bias" in each.tensors and "one.fc1.bias" in each.tensors and len(each.sources) == 2


def test_program(tmp_path: Path) -> None:
    model = TESTDATA / "paddle/good/p262/cnn_static_infer"
    assert model.is_dir(), "the golden files moved"
    found = weighbridge.program(model, dot=True)
    assert found.summary["operators"] > 0 and found.program["blocks"] and found.text.startswith("digraph")
    assert weighbridge.program(model).text is None
    written = weighbridge.program(model, strip=["source", "unused"], output=tmp_path / "small")
    assert written.files and written.removed["tensors"] == 0 and written.summary is None
    assert weighbridge.diff(model, tmp_path / "small", no_metadata=True).pairs == ()


def test_checkpoint(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(TESTDATA / "biggraph/set1/ckpt_std_zip", store)
    report = weighbridge.checkpoint(store)
    assert [version.version for version in report.versions] == [4, 6] and report.current == 6
    assert all(version.complete and "model" in version.files[0] for version in report.versions)
    assert report.whole == (report.exit_code == 0) and report.done == () and report.damaged == {}
    done = weighbridge.checkpoint(store, rollback=4, delete_newer=True)
    assert [step["what"] for step in done.done] == ["rollback"] and done.current == 4
    assert (store / "checkpoint_version.txt").read_text().strip() == "4"
    assert not list(store.glob("*.v6.h5")) and [version.version for version in done.versions] == [4]
    with pytest.raises(weighbridge.Error):
        weighbridge.checkpoint(store, rollback=9)


def test_reports_are_immutable_and_comparable(net: Path) -> None:
    report = weighbridge.info(net)
    with pytest.raises(AttributeError):
        report.tensors = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        report.other = 4
    report.to_dict()["tensors"] = 4
    assert report.tensors == 3 and report == weighbridge.info(net) and report != weighbridge.ls(net)
    assert pickle.loads(pickle.dumps(report)) == report


def test_names_from_files_are_escaped(tmp_path: Path) -> None:
    weighbridge.save(tmp_path / "x.npz", {("a\x1b[31m<i>",): numpy.zeros(2)})
    listing = weighbridge.ls(tmp_path / "x.npz")
    assert "\x1b" not in listing._repr_html_() and "<i>" not in listing._repr_html_()
    with pytest.raises(weighbridge.UnknownNameError) as failed:
        weighbridge.show(tmp_path / "x.npz", "a\x1b[31m")
    assert "\x1b" not in str(failed.value)


LEFT = """
import os, signal, sys, threading

import weighbridge
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    weighbridge.verify(sys.argv[1], values=True)
    print("nothing stopped it")
except KeyboardInterrupt:
    print("left")
    sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs Unix signals")
def test_ctrl_c_returns_from_reading_verbs(tmp_path: Path) -> None:
    # A sparse file, too large to finish during the test.
    path = tmp_path / "x.npy"
    count = 1 << 40
    header = numpy.lib.format.header_data_from_array_1_0(numpy.zeros(0, "f4"))
    with path.open("wb") as file:
        numpy.lib.format.write_array_header_1_0(file, {**header, "shape": (count // 4,)})
        file.truncate(file.tell() + count)
    home = str(Path(weighbridge.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", LEFT, str(path)],
        env={**os.environ, "PYTHONPATH": home},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split("\n")[0] == "left", done.stdout + done.stderr


def test_exception_in_progress_stops_the_work(tmp_path: Path) -> None:
    weighbridge.save(tmp_path / "x.npz", {"w": numpy.zeros(1 << 20, "f4")})

    def progress(done: int, total: int) -> None:
        raise ZeroDivisionError

    (tmp_path / "out").mkdir()
    with pytest.raises(ZeroDivisionError):
        weighbridge.convert(tmp_path / "x.npz", tmp_path / "out" / "y.npz", cast="f16", progress=progress)
    with pytest.raises(weighbridge.UsageError):
        weighbridge.convert(tmp_path / "x.npz", tmp_path / "out" / "y.npz", progress="yes")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


def test_rejects_an_opened_checkpoint_as_path(net: Path) -> None:
    with weighbridge.open(net) as checkpoint:
        for verb in (weighbridge.verify, weighbridge.scan, weighbridge.info, weighbridge.ls):
            with pytest.raises(weighbridge.ArgumentTypeError) as caught:
                verb(checkpoint)  # type: ignore[operator]
            assert "checkpoint.path" in str(caught.value)


def test_summaries_count_losses(tmp_path: Path) -> None:
    source = tmp_path / "a.npz"
    weighbridge.save(source, {"w": numpy.array([0.1, 1e-9], "f4")})
    assert "1 loss" in repr(weighbridge.convert(source, tmp_path / "b.npz", cast="f16"))
    assert "1 loss" in repr(weighbridge.edit(source, tmp_path / "c.npz", cast="f16"))
    assert not re.search(r"\d loss", repr(weighbridge.edit(source, tmp_path / "d.npz", prefix="x.")))
