"""Process safety: truncated files, Ctrl-C, threads, leaks of memory and handles."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import List

import numpy
import pytest
import weighbridge
from conftest import TESTDATA

UNIX = pytest.mark.skipif(os.name != "posix", reason="needs Unix signals")


def python(code: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """Runs `code` in a new process, with these environment variables."""
    path = os.pathsep.join(
        [str(Path(weighbridge.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )


LOST = """
import os, sys, time
import numpy, weighbridge
path = sys.argv[1]
array = weighbridge.load(path)["value"]
assert array[-1] == 1.0
os.truncate(path, 4096)
try:
    total = float(array.sum())
    for _ in range(1000):
        time.sleep(0)
    print("no error", total)
except weighbridge.FileChangedError as error:
    assert isinstance(error, OSError) and error.code == "file-shrank", error
    assert float(array[-1]) == 0.0
    print("raised", float(array.sum()) < 1024)
tensor = weighbridge.open(path, salvage=True)
print("alive")
"""


@UNIX
def test_truncation_of_a_mapped_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.ones(1 << 20, "f4"))
    done = python(LOST, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["raised True", "alive"]


READ = """
import os, sys
import weighbridge
path = sys.argv[1]
tensor = weighbridge.open(path)["value"]
memory = tensor._entry.view([0], [1 << 20], "C")
assert memory.is_mapped
os.truncate(path, 4096)
for action in (tensor.bytes, lambda: tensor.cast("f16").bytes(), lambda: tensor.bytes("F")):
    try:
        action()
    except weighbridge.Error as error:
        print(type(error).__name__)
for _ in range(1000):
    pass
print("end")
"""


@UNIX
def test_reads_of_a_truncated_file_raise_once(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.ones(1 << 20, "f4"))
    done = python(READ, path)
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert names[-1] == "end" and set(names[:-1]) == {"FileChangedError"} and len(names) == 4


STOPPED = """
import os, signal, sys
import numpy, weighbridge
started = []
def progress(done, total):
    if not started:
        started.append(done)
        os.kill(os.getpid(), signal.SIGINT)
array = numpy.ones(40_000_000, "f4")
try:
    weighbridge.save(sys.argv[1], {"w": array}, cast="f16", threads=1, progress=progress)
    print("nothing stopped it")
except KeyboardInterrupt:
    print("stopped")
print(os.listdir(os.path.dirname(sys.argv[1])))
"""


@UNIX
def test_ctrl_c_stops_long_work_and_leaves_no_files(tmp_path: Path) -> None:
    done = python(STOPPED, tmp_path / "x.npz")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["stopped", "[]"], done.stdout


def test_import_loads_no_other_packages() -> None:
    done = python(
        "import sys, weighbridge\n"
        "print([m for m in ('numpy', 'torch', 'paddle', 'ml_dtypes', 'ctypes') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_import_loads_few_modules() -> None:
    # Modules take most of the time of an import: those of the package itself, and few of the standard library.
    code = "import sys; before = set(sys.modules); import weighbridge; print(len(set(sys.modules) - before))"
    done = python(code)
    assert int(done.stdout) < 80, done.stdout


def test_threads() -> None:
    paths = [
        TESTDATA / "primitiv/good/trained/trained_mlp_a.model",
        TESTDATA / "npz/good/compressed.npz",
        TESTDATA / "safetensors/good/mlp.safetensors",
        TESTDATA / "biggraph/set1/ckpt_std_zip",
    ]
    shared = [weighbridge.open(path) for path in paths]
    truth = [{name: tensor.bytes() for name, tensor in checkpoint.items()} for checkpoint in shared]
    wrong: List[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                place = (number + turn) % len(paths)
                checkpoint = shared[place] if turn % 2 else weighbridge.open(paths[place])
                for name, wanted in truth[place].items():
                    tensor = checkpoint[name]
                    if tensor.bytes() != wanted or tensor.numpy().tobytes() != wanted:
                        wrong.append((number, turn, name))
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_during_reads(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.ones(20_000_000, ">f4"))
    tensor = weighbridge.open(path)["value"]
    ticks: List[float] = []
    ended = threading.Event()

    def tick() -> None:
        while not ended.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    other = threading.Thread(target=tick)
    other.start()
    before = len(ticks)
    array = tensor.numpy()
    during = len(ticks) - before
    ended.set()
    other.join()
    assert array[0] == 1.0 and during > 3


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def maps(name: str) -> int:
    return Path("/proc/self/maps").read_text().count(name)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_leaks_no_handles_maps_or_memory(tmp_path: Path) -> None:
    path = tmp_path / "stay.npz"
    numpy.savez(path, w=numpy.ones(10_000, "f4"), v=numpy.ones((3, 5), order="F"))

    def once() -> None:
        checkpoint = weighbridge.open(path)
        view = checkpoint["w"].numpy()
        assert view[::100].sum() == 100 and checkpoint["v"][1:, ::2].sum() == 6
        numpy.frombuffer(checkpoint["w"].memoryview())
        checkpoint["w"].__dlpack__()
        assert "nope" not in checkpoint

    for _ in range(50):
        once()
    gc.collect()
    before = (handles(), maps("stay.npz"), resident())
    for _ in range(2000):
        once()
    gc.collect()
    assert (handles(), maps("stay.npz")) == before[:2] and before[1] == 0
    assert resident() - before[2] < 8 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@UNIX
def test_signal_handlers_run_during_reads(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.ones(20_000_000, ">f4"))
    tensor = weighbridge.open(path)["value"]

    class Heard(Exception):
        """Raised by the handler."""

    def handler(*_: object) -> None:
        raise Heard

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Heard):
            for _ in range(200):
                tensor.cast("f64").bytes("F")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert tensor[0] == 1.0


GUARDED = """
import ctypes, sys
import weighbridge
libc = ctypes.CDLL(None)

def handler():
    # The first word of the structure is the address of the handler.
    action = (ctypes.c_void_p * 64)()
    assert libc.sigaction(int(sys.argv[2]), None, action) == 0
    return action[0]

before = handler()
tensor = weighbridge.open(sys.argv[1])["value"]
tensor.bytes()
weighbridge.stats(sys.argv[1])
print(handler() == before)
allowed = sys.argv[3] == "True"
if not allowed:
    print(weighbridge.guard_maps(False))
memory = tensor._entry.view([0], [1 << 20], "C")
print(memory.is_mapped == allowed, (handler() == before) == (not allowed))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the Linux layout of sigaction")
@pytest.mark.parametrize(
    ("allowed", "lines"), [(True, ["True", "True True"]), (False, ["True", "False", "True True"])]
)
def test_sigbus_handler_is_installed_with_the_first_mapped_array(
    tmp_path: Path, allowed: bool, lines: List[str]
) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.ones(1 << 20, "f4"))
    done = python(GUARDED, path, int(signal.SIGBUS), allowed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == lines
