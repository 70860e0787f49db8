"""Writes testdata/paddle/made: models as Paddle's tools for quantization and PaddleNLP write them.

usage: make_paddle.py FOLDER

Run with paddlepaddle 2.6.2 for `ptq`, `lite` and `encrypted`, with 3.3.1 for `paddlenlp`, `names` and `bigint.pdparams`.
"""

import contextlib
import io
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
import paddle  # noqa: E402

OUT = Path(sys.argv[1])
OLD = paddle.__version__.startswith("2.")


def without_source(path):
    """Takes the paths of this machine out of a program."""
    from paddle.base.proto import framework_pb2

    program = framework_pb2.ProgramDesc()
    program.ParseFromString(path.read_bytes())
    for block in program.blocks:
        for op in block.ops:
            kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
            del op.attrs[:]
            op.attrs.extend(kept)
    path.write_bytes(program.SerializeToString())


class Samples(paddle.io.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return np.random.default_rng(index).standard_normal((1, 6, 6)).astype("float32")


def quantized():
    from paddle.static.quantization import PostTrainingQuantization, WeightQuantization

    paddle.enable_static()
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start), paddle.utils.unique_name.guard():
        paddle.seed(7)
        x = paddle.static.data("x", [-1, 1, 6, 6], "float32")
        hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(x, 3, 3))
        y = paddle.static.nn.fc(paddle.flatten(hidden, 1), 4)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(start)
    plain = OUT / "plain"
    paddle.static.save_inference_model(str(plain / "inference"), [x], [y], exe, program=main)
    loader = paddle.io.DataLoader(Samples(), feed_list=[x], batch_size=4, return_list=False)
    files = ("inference.pdmodel", "inference.pdiparams")
    ptq = PostTrainingQuantization(
        executor=exe,
        data_loader=loader,
        model_dir=str(plain),
        model_filename=files[0],
        params_filename=files[1],
        batch_size=4,
        batch_nums=2,
        algo="avg",
        quantizable_op_type=["conv2d", "mul"],
        weight_quantize_type="channel_wise_abs_max",
        onnx_format=True,
    )
    ptq.quantize()
    ptq.save_quantized_model(str(OUT / "ptq"), *files)
    lite = WeightQuantization(str(plain), *files)
    lite.quantize_weight_to_int(
        str(OUT / "lite"), *files, quantizable_op_type=["conv2d", "mul"], weight_bits=8,
        weight_quantize_type="channel_wise_abs_max",
    )
    for name in files:
        os.replace(OUT / "lite" / "quantized_model" / name, OUT / "lite" / name)
    (OUT / "lite" / "quantized_model").rmdir()
    for folder in ("plain", "ptq", "lite"):
        without_source(OUT / folder / files[0])
    # AES, as the inference library encrypts files.
    (OUT / "encrypted").mkdir(exist_ok=True)
    cipher = paddle.base.core.CipherFactory.create_cipher("")
    for name in files:
        cipher.encrypt_to_file((plain / name).read_bytes(), b"sixteen bytes it", str(OUT / "encrypted" / name))


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)
        self.norm, self.out = paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.norm(self.second(self.first(x))))


def states():
    paddle.seed(7)
    net = Net()
    rng = np.random.default_rng(7)
    # A trained model has no two tensors with the same values, but for what training leaves alone.
    for name, value in net.state_dict().items():
        if name not in ("norm._mean", "norm.bias"):
            value.set_value(rng.standard_normal(value.shape).astype("float32"))
    state = net.state_dict()
    names = list(state)
    folder = OUT / "paddlenlp"
    folder.mkdir(exist_ok=True)
    index = {"metadata": {"total_size": sum(int(t.size) * 4 for t in state.values())}, "weight_map": {}}
    for number, part in enumerate((names[:4], names[4:]), 1):
        file = f"model_state-0000{number}-of-00002.pdparams"
        paddle.save({name: state[name] for name in part}, str(folder / file))
        index["weight_map"].update({name: file for name in part})
    (folder / "model_state.pdparams.index.json").write_text(json.dumps(index, indent=2) + "\n")
    # The state and the model come from two programs, in which layers have other numbers.
    folder = OUT / "names"
    folder.mkdir(exist_ok=True)
    paddle.save(state, str(folder / "inference.pdparams"))
    paddle.nn.Linear(2, 2), paddle.nn.Linear(2, 2)
    other = Net()
    other.set_state_dict(state)
    other.eval()
    paddle.jit.save(other, str(folder / "inference"), input_spec=[paddle.static.InputSpec([-1, 4], "float32")])
    paddle.save({"w": state[names[0]], "seed": 2**80 + 3, "other": -(2**70)}, str(OUT / "bigint.pdparams"))


OUT.mkdir(parents=True, exist_ok=True)
with contextlib.redirect_stdout(io.StringIO()):
    quantized() if OLD else states()
