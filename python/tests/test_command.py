"""The installed command: exit codes, streams and signals are those of the program."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List

import numpy
import pytest

import weighbridge
from conftest import TESTDATA
from weighbridge import command

UNIX = pytest.mark.skipif(os.name != "posix", reason="needs Unix signals")
HOME = str(Path(weighbridge.__file__).parents[1])


def started(*arguments: object, **options: Any) -> subprocess.Popen:
    """Starts the command in a new process."""
    return subprocess.Popen(
        [sys.executable, "-m", "weighbridge", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": HOME},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def run(*arguments: object) -> subprocess.CompletedProcess:
    """Runs the command to its end; returns the exit code and its output."""
    process = started(*arguments, universal_newlines=True)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_version_and_help() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"weighbridge {weighbridge.__version__}\n")
    done = run("convert", "--help")
    assert done.returncode == 0 and "Usage: weighbridge convert" in done.stdout and done.stderr == ""
    assert "_weighbridge" in run("completions", "bash").stdout


def test_exit_codes(net: Path, tmp_path: Path) -> None:
    assert run("ls", net).returncode == 0
    other = tmp_path / "other.npz"
    weighbridge.save(other, {"w": b"abc"})
    assert run("diff", net, other).returncode == 1
    (tmp_path / "x.txt").write_text("no model")
    assert run("verify", tmp_path / "x.txt").returncode == 3
    done = run("ls", tmp_path / "none")
    assert done.returncode == 2 and done.stdout == "" and "error[not-found]" in done.stderr
    done = run("ls", "--no-such-flag")
    assert done.returncode == 2 and "error[bad-arguments]" in done.stderr and "Traceback" not in done.stderr


def test_json_output_equals_to_dict(net: Path) -> None:
    import json

    assert json.loads(run("info", net, "--json").stdout) == weighbridge.info(net).to_dict()


def test_runs_in_this_process(
    net: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        assert command.main(["show", str(net), "fc1.bias"]) == 0
        assert capfd.readouterr().out.startswith("[0.5 1.5]")
        monkeypatch.setattr(sys, "argv", ["anything", "ls", str(net / "none")])
        assert command.main() == 2
    finally:
        signal.signal(signal.SIGINT, before)


@UNIX
def test_accepts_paths_that_are_not_utf8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npz")
    try:
        weighbridge.save(path, {"w": b"abc"})
    except OSError:
        pytest.skip("this file system has no such names")
    assert run("ls", path).returncode == 0 and weighbridge.ls(path).tensors[0].name == "w"


@UNIX
def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    weighbridge.save(path, {f"tensor.{place:05}": b"x" for place in range(20_000)})
    process = started("ls", path)
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(120) == 0
    process.stderr.close()


def holes(path: Path, count: int) -> None:
    """Writes a sparse file with an array of zeros."""
    header = numpy.lib.format.header_data_from_array_1_0(numpy.zeros(0, "f4"))
    with path.open("wb") as file:
        numpy.lib.format.write_array_header_1_0(file, {**header, "shape": (count // 4,)})
        file.truncate(file.tell() + count)


def until(condition: Any) -> None:
    """Waits until the condition holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < 60, "the condition did not occur"
        time.sleep(0.01)


@UNIX
def test_ctrl_c_removes_partial_output(tmp_path: Path) -> None:
    source, folder = tmp_path / "x.npy", tmp_path / "out"
    holes(source, 1 << 30)
    folder.mkdir()
    process = started("convert", source, folder / "x.npz", "--cast", "f64", "--threads", "1", "--no-sync")
    until(lambda: list(folder.iterdir()) or process.poll() is not None)
    assert process.poll() is None, "the process ended too early"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and b"Traceback" not in err, err
    assert list(folder.iterdir()) == []


@UNIX
def test_ctrl_c_ends_reading_verbs(tmp_path: Path) -> None:
    source = tmp_path / "x.npy"
    # Too large to finish during the test.
    holes(source, 1 << 40)
    process = started("verify", source, "--values")
    read = Path(f"/proc/{process.pid}/io")
    try:
        if read.exists():
            # More than a program reads at its start.
            until(lambda: int(read.read_text().split()[1]) > 1 << 28 or process.poll() is not None)
        else:
            time.sleep(2)
        assert process.poll() is None, "the process ended too early"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    # The default action of the signal.
    assert process.returncode == -signal.SIGINT and b"Traceback" not in err, err


@UNIX
def test_ignored_sigint_stays_ignored(net: Path) -> None:
    code = "import signal, sys; from weighbridge import command; code = command.main(['ls', sys.argv[1]]); " \
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, str(net)],
        env={**os.environ, "PYTHONPATH": HOME},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.split()[-1] == b"True"


def installed() -> List[Any]:
    """Returns the scripts of the installed package."""
    try:
        found = importlib.metadata.distribution("weighbridge")
    except importlib.metadata.PackageNotFoundError:
        return []
    return [own for own in found.entry_points if own.group == "console_scripts"]


@pytest.mark.skipif(not installed(), reason="the package is not installed")
def test_installed_script_runs() -> None:
    (script,) = installed()
    assert (script.name, script.value) == ("weighbridge", "weighbridge.command:main")
    path = Path(sys.executable).with_name("weighbridge.exe" if os.name == "nt" else "weighbridge")
    model = TESTDATA / "primitiv/good/trained/trained_mlp_a.model"
    done = subprocess.run([str(path), "ls", str(model)], stdout=subprocess.PIPE, check=True)
    assert b"fc1.w" in done.stdout
    assert subprocess.run([str(path), "ls", "none"], stderr=subprocess.DEVNULL, check=False).returncode == 2


WITHOUT = """
import sys
sys.modules["numpy"] = None

import weighbridge
path = sys.argv[1]
print(weighbridge.verify(path).verdict, weighbridge.show(path, "fc1.bias").values)
tensor = weighbridge.open(path)["fc1.bias"]
print(len(tensor.bytes()), list(tensor.memoryview()))
weighbridge.save(sys.argv[2], {"raw": b"abc", "bias": tensor})
for action in (tensor.numpy, lambda: tensor[0], lambda: weighbridge.load(path)):
    try:
        action()
    except weighbridge.MissingPackageError as error:
        print(isinstance(error, ImportError), error.code, "pip install numpy" in str(error))
"""


def test_works_without_numpy(net: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(net), str(tmp_path / "x.npz")],
        env={**os.environ, "PYTHONPATH": HOME},
        stdout=subprocess.PIPE,
        check=True,
        universal_newlines=True,
    )
    expected = ["sound [0.5, 1.5]", "8 [0.5, 1.5]"] + ["True no-numpy True"] * 3
    assert done.stdout.splitlines() == expected
