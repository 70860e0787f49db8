"""Exchange with torch and PaddlePaddle, if installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import weighbridge
from weighbridge import dtypes

BITS = numpy.random.default_rng(3).integers(0, 256, 24 * 16, dtype="uint8")


def typed(dtype: str, torch: Any) -> Any:
    """Makes a torch tensor of this dtype with arbitrary bits."""
    bits = BITS & 1 if dtype == "bool" else BITS
    return torch.from_numpy(bits.copy()).view(getattr(torch, dtypes.TORCH[dtype])).reshape(2, 3, -1)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_every_type_of_torch(torch: Any, tmp_path: Path) -> None:
    names = [name for name, own in dtypes.TORCH.items() if hasattr(torch, own)]
    assert {"bf16", "f8_e4m3", "c64", "bool"} <= set(names)
    given = {name: typed(name, torch) for name in names}
    # Dtypes that a format does not support.
    lacks = {"x.safetensors": {"c128"}, "x.pt": {"u16", "u32", "u64", "f8_e8m0"}}
    for target, absent in lacks.items():
        path = tmp_path / target
        written = {name: tensor for name, tensor in given.items() if name not in absent}
        weighbridge.save(path, written)
        back = weighbridge.open(path)
        for name, tensor in written.items():
            assert back[name].dtype == name
            for copy in (True, False):
                own = back[name].torch(copy=copy)
                assert own.dtype == tensor.dtype and own.shape == tensor.shape
                assert torch.equal(own.contiguous().view(torch.uint8), tensor.view(torch.uint8)), name
    # Older versions load few dtypes with `weights_only`; this file is trusted.
    loaded = torch.load(tmp_path / "x.pt", weights_only=False)
    assert torch.equal(loaded["bf16"].view(torch.int16), given["bf16"].view(torch.int16))


def test_torch_tensors_do_not_change_the_file(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    numpy.savez(
        path, c=numpy.arange(6.0).reshape(2, 3), f=numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
    )
    before = path.read_bytes()
    checkpoint = weighbridge.open(path)
    for name in ("c", "f"):
        for copy in (True, False):
            own = checkpoint[name].torch(copy=copy)
            assert own.tolist() == [[0, 1, 2], [3, 4, 5]]
            own += 1
            assert checkpoint[name].numpy().sum() == 15
            assert not copy or own.is_contiguous()
        assert torch.from_dlpack(checkpoint[name]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert path.read_bytes() == before
    # Compressed elements are read.
    numpy.savez_compressed(tmp_path / "packed.npz", w=numpy.arange(6.0))
    packed = weighbridge.open(tmp_path / "packed.npz")["w"]
    assert packed.torch(copy=False).tolist() == packed.cast("f32").torch(copy=False).tolist() == [*range(6)]
    with pytest.raises(BufferError):
        packed.__dlpack__(copy=False)


def test_torch_on_another_device(torch: Any, tmp_path: Path) -> None:
    """Uses `meta`, which exists on every machine."""
    path = tmp_path / "x.npz"
    given = {
        "c": numpy.ones((2, 3)),
        "f": numpy.asfortranarray(numpy.ones((2, 3))),
        "none": numpy.zeros((0, 3)),
    }
    numpy.savez(path, **given)
    for name, tensor in weighbridge.open(path).items():
        for copy in (True, False):
            there = tensor.torch(copy, "meta")
            assert there.device.type == "meta" and there.shape == given[name].shape
            assert there.dtype == torch.float64 and (not copy or there.is_contiguous())
            for here in ("cpu", torch.device("cpu"), None):
                own = tensor.torch(copy=copy, device=here)
                assert own.device.type == "cpu" and own.tolist() == given[name].tolist()
    with pytest.raises(RuntimeError):
        tensor.torch(device="no such device")
    loaded = weighbridge.load(path, framework="torch", device="meta")
    assert {name: (own.device.type, own.shape) for name, own in loaded.items()} == {
        name: ("meta", own.shape) for name, own in given.items()
    }


def test_load_returns_torch_state_dicts(torch: Any, tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    weighbridge.save(tmp_path / "x.safetensors", model.state_dict())
    before = (tmp_path / "x.safetensors").read_bytes()
    for copy in (False, True):
        loaded = weighbridge.load(tmp_path / "x.safetensors", framework="torch", copy=copy)
        other = torch.nn.Linear(3, 2)
        other.load_state_dict(loaded)
        assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias)
        loaded["weight"] += 1
    assert (tmp_path / "x.safetensors").read_bytes() == before


def test_tables_for_torch(torch: Any, tmp_path: Path) -> None:
    from weighbridge import biggraph

    rows = numpy.arange(6, dtype="float32").reshape(3, 2)
    with biggraph.CheckpointStore(tmp_path) as store:
        store.save({"user": rows})
    table = biggraph.open(tmp_path)["user"]
    assert table.torch().tolist() == table.torch(copy=False).tolist() == rows.tolist()
    assert table.torch(device="meta").device.type == "meta"


def test_saves_unusual_torch_tensors(torch: Any, tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    given = {
        "turned": base.T,
        "steps": base[:, ::2],
        "learns": torch.nn.Parameter(base.clone()),
        "conjugate": torch.complex(base, base).conj(),
        "number": torch.tensor(3, dtype=torch.int16),
        "none": torch.zeros(0, 3),
    }
    weighbridge.save(tmp_path / "x.safetensors", given)
    back = weighbridge.open(tmp_path / "x.safetensors")
    for name, tensor in given.items():
        assert torch.equal(back[name].torch(), tensor.detach().resolve_conj()), name
        assert back[name].torch().shape == tensor.shape
    with pytest.raises(weighbridge.UsageError, match="dense"):
        weighbridge.save(tmp_path / "y.npz", {"s": base.to_sparse()})


def test_types_that_torch_lacks(torch: Any, tmp_path: Path) -> None:
    weighbridge.save(tmp_path / "x.npz", {"w": numpy.arange(3, dtype="u8")})
    tensor = weighbridge.open(tmp_path / "x.npz")["w"]
    if hasattr(torch, "uint64"):
        assert tensor.torch().dtype == torch.uint64
    else:
        with pytest.raises(weighbridge.UnsupportedError) as caught:
            tensor.torch()
        assert caught.value.code == "no-torch-dtype"


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    weighbridge.save(tmp_path / "x.npz", {"w": numpy.arange(3.0)})
    with pytest.raises(weighbridge.MissingPackageError, match="pip install torch") as caught:
        weighbridge.open(tmp_path / "x.npz")["w"].torch()
    assert isinstance(caught.value, ImportError) and caught.value.name == "torch"
    monkeypatch.setitem(__import__("sys").modules, "paddle", None)
    with pytest.raises(weighbridge.MissingPackageError, match="pip install paddlepaddle"):
        weighbridge.open(tmp_path / "x.npz")["w"].paddle()


def kinds(loaded: Any) -> Any:
    """Returns the types of nested values."""
    if isinstance(loaded, dict):
        return {key: kinds(own) for key, own in loaded.items()}
    return [kinds(own) for own in loaded] if isinstance(loaded, list) else type(loaded).__name__


def test_errors_name_the_unusual_value(torch: Any, tmp_path: Path) -> None:
    odd = {
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "meta": torch.zeros(2, device="meta"),
    }
    for name, value in odd.items():
        with pytest.raises(weighbridge.ArgumentTypeError) as caught:
            weighbridge.save(tmp_path / "x.npz", {"a." + name: value})
        assert caught.value.tensor == "a." + name and caught.value.code == "not-an-array"
    for dtype in (torch.float16, torch.device("cpu")):
        weighbridge.save(tmp_path / "w.npz", {"w": numpy.zeros(1, "f4")}, force=True)
        with pytest.raises(TypeError, match="must be the name of a dtype"):
            weighbridge.open(tmp_path / "w.npz")["w"].cast(dtype)
        with pytest.raises(TypeError, match="cast"):
            weighbridge.save(tmp_path / "x.npz", {"w": numpy.zeros(1)}, cast=dtype)


def test_paddle(tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle")
    given = {
        "f32": paddle.to_tensor(numpy.arange(6, dtype="f4").reshape(2, 3)),
        "bf16": paddle.to_tensor(numpy.arange(6, dtype="f4").reshape(2, 3)).astype("bfloat16"),
        "i64": paddle.to_tensor([1, 2]),
        "bool": paddle.to_tensor([True, False]),
    }
    weighbridge.save(tmp_path / "x.safetensors", given)
    back = weighbridge.open(tmp_path / "x.safetensors")
    for name, tensor in given.items():
        assert back[name].dtype == name
        own = back[name].paddle()
        assert own.dtype == tensor.dtype, name
        assert numpy.array_equal(own.astype("float32").numpy(), tensor.astype("float32").numpy())
    mixed = {"w": given["f32"], "a": numpy.ones(2, "f4"), "deep": [given["i64"], {"b": numpy.zeros(3)}]}
    alone = {"a": numpy.ones(2, "f4"), "deep": [numpy.zeros(3)]}
    for obj, alike in ((mixed, True), ({"w": given["f32"]}, True), (alone, False)):
        # Arrays together with Paddle tensors, and arrays alone.
        paddle.save(obj, str(tmp_path / "theirs.pdparams"))
        theirs = tmp_path / "theirs.pdparams"
        newer = b"numpy._core" in theirs.read_bytes()
        weighbridge.paddle.save(obj, tmp_path / "ours.pdparams", force=True, numpy_version=2 if newer else 1)
        ours = tmp_path / "ours.pdparams"
        assert kinds(paddle.load(str(ours))) == kinds(paddle.load(str(theirs)))
        assert not alike or ours.read_bytes() == theirs.read_bytes()
    weighbridge.save(tmp_path / "x.pdparams", given)
    loaded = paddle.load(str(tmp_path / "x.pdparams"))
    assert numpy.array_equal(numpy.asarray(loaded["f32"]), given["f32"].numpy())


def test_flush_denormal_of_torch_does_not_change_results(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.full((4, 4), 1e-40, "f4") * numpy.arange(1, 17, dtype="f4").reshape(4, 4))
    plain = weighbridge.stats(path).to_dict()
    assert plain["tensors"][0]["subnormal"] == 16
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        assert weighbridge.stats(path).to_dict() == plain
        codes = [finding.code for finding in weighbridge.verify(path, values=True).findings]
        assert codes == ["subnormal-values"]
    finally:
        torch.set_flush_denormal(False)
