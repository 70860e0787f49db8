"""Elements as arrays, slices, buffers and DLPack, compared with numpy."""

from __future__ import annotations

import gc
import hashlib
import io
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
import weighbridge
from weighbridge import dtypes

NUMPY = tuple(int(n) for n in numpy.__version__.split(".")[:2])
SHAPES: List[tuple] = [(), (0,), (1,), (7,), (3, 4), (4, 0, 2), (2, 3, 5), (1, 3, 1, 2)]


def arrays() -> Dict[str, numpy.ndarray]:
    """Makes arrays of every numpy dtype and several shapes, in both orders."""
    draw = numpy.random.default_rng(7)
    found = {}
    for (name, own), shape, order in itertools.product(dtypes.NUMPY.items(), SHAPES, "CF"):
        bits = draw.integers(0, 256, int(numpy.prod(shape)) * numpy.dtype(own).itemsize, dtype="uint8")
        array = (bits & 1 if own == "bool" else bits).astype("uint8").view(own).reshape(shape)
        found[f"{name}_{'x'.join(map(str, shape)) or 's'}_{order}"] = numpy.asarray(array, order=order)
    return found


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All arrays in one npz written by numpy, which keeps both orders."""
    path = tmp_path_factory.mktemp("views") / "all.npz"
    numpy.savez(path, **arrays())
    return path


def same(found: Any, wanted: Any) -> None:
    """Checks equal dtype, shape and bits."""
    found, wanted = numpy.asarray(found), numpy.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


def test_arrays_are_views(archive: Path) -> None:
    checkpoint = weighbridge.open(archive)
    own = numpy.load(archive)
    assert set(checkpoint) == set(own.files)
    for name, tensor in checkpoint.items():
        array = tensor.numpy()
        same(array, own[name])
        assert not array.flags.writeable and not array.flags.owndata
        with pytest.raises(ValueError):
            array[...] = 0
        # Arrays with one element have both orders.
        assert array.flags.f_contiguous or tensor.order == "C"
        assert array.flags.c_contiguous or tensor.order == "F"
        same(numpy.asarray(tensor), own[name])
        same(numpy.array(tensor), own[name])
        assert tensor.size == array.size and tensor.ndim == array.ndim and tensor.nbytes == array.nbytes
        assert tensor.bytes() == own[name].tobytes() and tensor.bytes("F") == own[name].tobytes("F")
        assert bytes(tensor) == own[name].tobytes()


def test_views_share_memory(archive: Path) -> None:
    tensor = weighbridge.open(archive)["f32_3x4_C"]
    first, second = tensor.numpy(), tensor[1:]
    assert second.__array_interface__["data"][0] == first.__array_interface__["data"][0] + 16
    column_major = weighbridge.open(archive)["f32_3x4_F"]
    assert column_major[:, 2:].base is not None
    one = column_major.numpy().__array_interface__["data"][0]
    assert column_major[:, 2:].__array_interface__["data"][0] == one + 2 * 12


def test_arrays_outlive_checkpoint_and_tensor(archive: Path) -> None:
    with weighbridge.open(archive) as checkpoint:
        tensor = checkpoint["f64_2x3x5_C"]
        array, part = tensor.numpy(), tensor[1, :, ::2]
        view = tensor.memoryview()
    with pytest.raises(weighbridge.UsageError):
        checkpoint["f64_2x3x5_C"]
    assert repr(checkpoint) == "<Checkpoint: closed>"
    same(tensor[0], array[0])
    del checkpoint, tensor
    gc.collect()
    wanted = numpy.load(archive)["f64_2x3x5_C"]
    same(array, wanted)
    same(part, wanted[1, :, ::2])
    assert view.tobytes() == wanted.tobytes()


def indices(rank: int) -> List[Any]:
    one: List[Any] = [
        0,
        -1,
        slice(None),
        slice(1, None),
        slice(None, -1),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(-2, None, -2),
        slice(5, 2),
        slice(100),
        slice(2, -100, -3),
        numpy.int64(0),
    ]
    found: List[Any] = [Ellipsis, None, (), (None, Ellipsis), (Ellipsis, None)]
    for length in range(1, rank + 1):
        found += itertools.islice(itertools.product(one, repeat=length), 0, None, 1 if length < 3 else 37)
    found += [(Ellipsis, item) for item in one] + [(item, None, Ellipsis) for item in one]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "i16_7_C",
        "f32_3x4_C",
        "f32_3x4_F",
        "c64_2x3x5_C",
        "f16_2x3x5_F",
        "u8_1x3x1x2_F",
        "i64_4x0x2_C",
        "f64_s_C",
    ],
)
def test_slices_equal_numpy(archive: Path, name: str) -> None:
    tensor = weighbridge.open(archive)[name]
    array = numpy.load(archive)[name]
    outcomes = set()
    for index in indices(array.ndim):
        try:
            wanted = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                tensor[index]
            outcomes.add("refused")
            continue
        found = tensor[index]
        same(found, wanted)
        assert type(found) is type(wanted), index
        outcomes.add("found")
    assert "found" in outcomes


def test_random_slices_equal_numpy(archive: Path) -> None:
    draw = numpy.random.default_rng(11)
    checkpoint, own = weighbridge.open(archive), numpy.load(archive)
    for name in ("f32_2x3x5_C", "f32_2x3x5_F", "i32_3x4_F"):
        for _ in range(300):
            index = []
            for _dimension in own[name].shape:
                start, stop = (None if n == 7 else int(n) for n in draw.integers(-7, 8, 2))
                step = int(draw.choice([-3, -2, -1, 1, 2, 3]))
                index.append(slice(start, stop, step))
            same(checkpoint[name][tuple(index)], own[name][tuple(index)])


def test_reads_only_the_requested_rows(tmp_path: Path) -> None:
    # A sparse file of 64 GiB: it can be sliced, not read.
    path = tmp_path / "huge.npy"
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (16384, 1048576), }"
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117) + b"\n"
    with open(path, "wb") as file:
        file.write(header)
        file.seek(128 + 16383 * (4 << 20) + 4)
        file.write(numpy.float32(3).tobytes())
        file.truncate(128 + 16384 * (4 << 20))
    tensor = weighbridge.open(path)["value"]
    assert tensor.nbytes == 64 << 30
    assert tensor[-1, :3].tolist() == [0.0, 3.0, 0.0]
    assert tensor[::-8191, 1].tolist() == [3.0, 0.0, 0.0]
    assert tensor.numpy().shape == (16384, 1 << 20)


def test_rejects_invalid_indices(archive: Path) -> None:
    tensor = weighbridge.open(archive)["f32_3x4_C"]
    for index in (3, -4, (0, 4), (0, 0, 0), (Ellipsis, Ellipsis)):
        with pytest.raises(IndexError):
            tensor[index]
    for index in (True, numpy.bool_(True), 1.5, "fc1", [0, 1], numpy.array([True, False, True])):
        with pytest.raises(TypeError):
            tensor[index]
    with pytest.raises(ValueError):
        tensor[::0]
    with pytest.raises(TypeError):
        len(weighbridge.open(archive)["f32_s_C"])
    assert len(tensor) == 3 and [row.tolist() for row in tensor] == tensor.numpy().tolist()
    assert bool(weighbridge.open(archive)["f32_0_C"])


def test_array_protocol(archive: Path) -> None:
    tensor = weighbridge.open(archive)["f32_3x4_F"]
    wanted = numpy.load(archive)["f32_3x4_F"]
    same(tensor.__array__("f8"), wanted.astype("f8"))
    copy = tensor.__array__(copy=True)
    assert copy.flags.writeable and copy.flags.f_contiguous
    copy[...] = 1
    same(tensor.numpy(), wanted)
    assert not tensor.__array__(copy=False).flags.writeable
    with pytest.raises(ValueError):
        tensor.__array__("f8", copy=False)
    with pytest.raises(ValueError):
        tensor.cast("f16").__array__(copy=False)


def test_memoryviews(archive: Path) -> None:
    own = numpy.load(archive)
    for name, tensor in weighbridge.open(archive).items():
        view = tensor.memoryview()
        assert view.readonly and view.tobytes() == own[name].tobytes()
        if tensor.dtype in dtypes.BUFFER and tensor.nbytes:
            assert view.shape == tensor.shape
            if own[name].dtype.kind != "f":
                assert view.tolist() == own[name].tolist()
        else:
            assert view.format == "B" and view.ndim == 1
        if sys.version_info >= (3, 12):
            assert hashlib.sha256(tensor).digest() == hashlib.sha256(own[name].tobytes()).digest(), name
            assert io.BytesIO().write(tensor) == tensor.nbytes, name
            # Row-major, in any storage order.
            with open(archive.parent / "raw", "wb") as file:
                file.write(tensor)
            assert (archive.parent / "raw").read_bytes() == own[name].tobytes(), name
            if tensor.dtype in dtypes.BUFFER and tensor.nbytes:
                assert memoryview(tensor).tobytes() == own[name].tobytes()
            else:
                with pytest.raises(BufferError):
                    memoryview(tensor)


def tensors_that_need_a_copy(archive: Path, tmp_path: Path) -> List[weighbridge.Tensor]:
    """Returns tensors that need a copy: compressed, cast, big-endian, in several extents."""
    numpy.savez_compressed(tmp_path / "packed.npz", w=numpy.arange(12.0).reshape(3, 4))
    numpy.save(tmp_path / "big.npy", numpy.arange(12, dtype=">i4"))
    graph = {"user": numpy.arange(8, dtype="f4").reshape(4, 2)}
    relation = {"name": "follows", "lhs": "user", "rhs": "user", "operator": "none"}
    config = {"entities": {"user": {"num_partitions": 2}}, "relations": [relation], "dimension": 2}
    paths = {"entity_path": ".", "edge_paths": ["."], "checkpoint_path": "."}
    weighbridge.biggraph.CheckpointStore(tmp_path / "graph").save(graph, config={**config, **paths})
    return [
        weighbridge.open(tmp_path / "packed.npz")["w"],
        weighbridge.open(tmp_path / "big.npy")["value"],
        weighbridge.open(archive)["f32_3x4_C"].cast("f64"),
        weighbridge.biggraph.open(tmp_path / "graph")["user"].tensor,
    ]


def test_copy_false_never_copies(archive: Path, tmp_path: Path) -> None:
    in_place = weighbridge.open(archive)["f32_3x4_C"]
    if NUMPY >= (2, 0):
        assert (
            numpy.asarray(in_place, copy=False).__array_interface__["data"]
            == (in_place.numpy().__array_interface__["data"])
        )
        assert numpy.asarray(weighbridge.open(archive)["f32_3x4_F"], copy=False).flags.f_contiguous
    for tensor in tensors_that_need_a_copy(archive, tmp_path):
        wanted = tensor.numpy()
        with pytest.raises(BufferError, match="without a copy"):
            tensor.__dlpack__(copy=False)
        with pytest.raises(ValueError, match="without a copy"):
            tensor.__array__(copy=False)
        for given in (None, True):
            assert tensor.__dlpack__(copy=given) is not None
        if NUMPY >= (2, 0):
            with pytest.raises(ValueError):
                numpy.asarray(tensor, copy=False)
            same(numpy.asarray(tensor, copy=True), wanted)
        same(numpy.asarray(tensor), wanted)
        same(numpy.array(tensor), wanted)
        assert tensor.memoryview().tobytes() == wanted.tobytes()
        if sys.version_info >= (3, 12):
            with pytest.raises(BufferError, match="memoryview"):
                memoryview(tensor)
            # A request for bytes succeeds.
            assert hashlib.sha256(tensor).digest() == hashlib.sha256(wanted.tobytes()).digest()
    empty = weighbridge.open(archive)["f32_0_C"]
    assert empty.__dlpack__(copy=False) is not None and empty.__array__(copy=False).size == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes have the buffer protocol from 3.12 on")
def test_buffers_are_read_only(archive: Path) -> None:
    tensor = weighbridge.open(archive)["f32_3x4_F"]
    with pytest.raises((BufferError, TypeError)):
        bytearray(8).__class__.__buffer__(tensor, 1)
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(b"x" * 48).readinto(tensor)
    # numpy keeps the strides.
    assert numpy.asarray(tensor).flags.f_contiguous


def test_dlpack_with_numpy(archive: Path) -> None:
    if not hasattr(numpy, "from_dlpack"):
        pytest.skip("this numpy is too old")
    own = numpy.load(archive)
    for name, tensor in weighbridge.open(archive).items():
        same(numpy.from_dlpack(tensor), own[name])
        assert tensor.__dlpack_device__() == (1, 0)


@pytest.mark.skipif(
    NUMPY < (2, 1),
    reason="numpy supports versioned DLPack from 2.1 on",
)
@pytest.mark.parametrize("order", "CF")
def test_dlpack_memory_is_writable_and_private(tmp_path: Path, order: str) -> None:
    path = tmp_path / "value.npy"
    wanted = numpy.arange(3000.0).reshape((10, 20, 15), order=order)
    numpy.save(path, wanted)
    tensor = weighbridge.open(path)["value"]
    before = path.read_bytes()
    for copy in (None, True, False):
        array = numpy.from_dlpack(tensor, copy=copy)
        same(array, wanted)
        assert array.flags.writeable
        array[...] = 5
        same(tensor.numpy(), wanted)
        assert path.read_bytes() == before


def test_dlpack_rejects_devices_streams_and_unaligned_memory(archive: Path) -> None:
    tensor = weighbridge.open(archive)["f32_3x4_C"]
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=1)
    wide = [
        tensor
        for tensor in weighbridge.open(archive).values()
        if tensor.dtype in ("f64", "c128") and tensor.size > 1
    ]
    odd = next(tensor for tensor in wide if tensor.extents[0]["offset"] % 8 != 0)
    with pytest.raises(BufferError, match="without a copy"):
        odd.__dlpack__(copy=False)
    assert odd.__dlpack__() is not None


def test_unconsumed_capsules_are_freed(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    numpy.save(path, numpy.ones(1 << 20, "f4"))
    tensor = weighbridge.open(path)["value"]
    before = resident()
    for version in (None, (1, 0), (1, 1)):
        for copy in (None, False):
            for _ in range(40):
                assert "dltensor" in repr(tensor.__dlpack__(max_version=version, copy=copy))
    # 240 capsules of 4 MB each.
    assert resident() - before < 60 << 20


def resident() -> int:
    """Returns the resident memory of the process in bytes."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        pytest.skip("needs /proc")


def test_types_that_numpy_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bf16.safetensors"
    weighbridge.save(path, {"w": numpy.arange(6, dtype="f4").reshape(2, 3)}, cast="bf16")
    tensor = weighbridge.open(path)["w"]
    assert tensor.dtype == "bf16" and tensor.bytes()[2:4] == b"\x80\x3f"
    assert tensor.cast("f32")[1].tolist() == [3.0, 4.0, 5.0]
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(weighbridge.UnsupportedError) as caught:
        tensor.numpy()
    assert caught.value.code == "no-numpy-dtype" and caught.value.tensor == "w"
    assert "pip install" in caught.value.hint and "cast" in caught.value.hint
    monkeypatch.undo()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = tensor.numpy()
    assert array.dtype == ml_dtypes.bfloat16 and array.astype("f4").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert float(tensor[1, 1]) == 4.0
    assert numpy.asarray(tensor).dtype == ml_dtypes.bfloat16


def test_casts_equal_numpy(archive: Path) -> None:
    tensor = weighbridge.open(archive)["f32_2x3x5_F"]
    array = numpy.load(archive)["f32_2x3x5_F"]
    with numpy.errstate(all="ignore"):
        for to, name in (("f16", "float16"), ("f64", "float64")):
            cast = tensor.cast(to)
            assert (cast.dtype, cast.nbytes) == (to, array.astype(name).nbytes)
            finite = numpy.isfinite(array)
            assert numpy.array_equal(cast.numpy()[finite], array.astype(name)[finite])
            assert numpy.array_equal(cast[1][finite[1]], array.astype(name)[1][finite[1]])
    assert tensor.cast("f32").bytes() == tensor.bytes()
    with pytest.raises(weighbridge.UnsupportedError, match="already"):
        # Two roundings can differ from one.
        tensor.cast("f16").cast("f32")
    with pytest.raises(
        weighbridge.UsageError, match="casts go to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8"
    ):
        tensor.cast("i16")
    with pytest.raises(weighbridge.UsageError):
        tensor.cast("float")


@pytest.fixture
def table(tmp_path: Path) -> weighbridge.Tensor:
    path = tmp_path / "table.npz"
    names = ["ann", "bob", "cy", "bob", "été"]
    weighbridge.save(
        path, {"t": numpy.arange(10.0).reshape(5, 2), "u": numpy.zeros(2)}, row_names={"t": names}
    )
    return weighbridge.open(path)["t"]


def test_row_names_are_a_sequence(table: weighbridge.Tensor) -> None:
    names = ["ann", "bob", "cy", "bob", "été"]
    row_names = table.row_names
    assert table.labels is row_names and type(row_names) is weighbridge.RowNames is weighbridge.Labels
    assert row_names is not None and isinstance(row_names, Sequence) and not isinstance(row_names, list)
    steps = (None, 1, 2, -1, -3)
    bounds = (None, 0, 1, 4, 5, 9, -1, -5, -9)
    for part in (slice(a, b, c) for a in bounds for b in bounds for c in steps):
        assert row_names[part] == names[part], part
    assert [row_names[row] for row in range(-5, 5)] == [names[row] for row in range(-5, 5)]
    assert list(row_names) == names and list(reversed(row_names)) == names[::-1] and len(row_names) == 5
    assert "été" in row_names and "eve" not in row_names and 3 not in row_names
    for name in ("bob", "été", "eve"):
        assert row_names.count(name) == names.count(name)
        for start, stop in ((0, 5), (2, 5), (2, 3), (-2, 9), (-9, -4), (4, 1)):
            try:
                expected: Any = names.index(name, start, stop)
            except ValueError as error:
                expected = type(error)
            try:
                found: Any = row_names.index(name, start, stop)
            except ValueError as error:
                found = type(error)
            assert found == expected, (name, start, stop)
    assert row_names.index("cy") == 2
    for row in (5, -6):
        with pytest.raises(IndexError):
            row_names[row]
    with pytest.raises(TypeError, match=r"row_of\(name\)"):
        row_names["bob"]  # type: ignore[call-overload]
    with pytest.raises(ValueError):
        row_names[::0]


def test_rows_by_name(table: weighbridge.Tensor) -> None:
    assert (
        table["cy"].tolist() == [4.0, 5.0] and table["cy", 1] == 5.0 and table["été", ::-1].tolist() == [9, 8]
    )
    with pytest.raises(weighbridge.UnknownNameError) as caught:
        table["eve"]
    assert (caught.value.code, caught.value.found, caught.value.tensor) == ("no-such-row", "eve", "t")
    other = weighbridge.open(str(Path(table.extents[0]["file"].partition("!")[0])))["u"]
    with pytest.raises(TypeError, match="u has no row names"):
        other["bob"]
