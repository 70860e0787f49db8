"""What the tests share: where the golden files are, and a small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import weighbridge

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"


def small() -> Dict[str, Any]:
    """The tensors of the model that the examples of the documentation open."""
    return {
        "fc1.weight": numpy.arange(12, dtype="float32").reshape(4, 3),
        "fc1.bias": numpy.array([0.5, 1.5], "float32"),
        "steps": numpy.array(7),
    }


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A safetensors file of three tensors."""
    path = tmp_path / "net.safetensors"
    weighbridge.save(path, small(), metadata={"by": "the tests"})
    return path
