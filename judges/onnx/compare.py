"""`weighbridge.onnx.compare` with ONNX Runtime and Paddle: equal for an export, different for a changed one.

    python judges/onnx/compare.py MODEL
"""

import sys
import tempfile
from pathlib import Path

import onnx
from onnx import numpy_helper

import weighbridge

model = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder) / "m.onnx")
    weighbridge.convert(model, path)
    report = weighbridge.onnx.compare(model, path, runs=2)
    assert report.equal and report.runs == 2, report
    assert weighbridge.onnx.compare(model, runs=1).equal
    graph = onnx.load(path)
    first = next(one for one in graph.graph.initializer if one.data_type == onnx.TensorProto.FLOAT)
    first.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(first) * 3 + 1, first.name))
    onnx.save(graph, path)
    assert not weighbridge.onnx.compare(model, path, runs=1).equal
print("an export compares as equal, and a changed one as different")
