"""Cases of quantization."""

import numpy as np
import paddle

from cases import CASES, Case, case, floats, ints, raw
from run import IS_PIR


def between():
    """Returns values on and around the middle between two steps, and beyond the scale."""
    steps = np.concatenate([np.arange(-130, 131), np.arange(-130, 131) + 0.5]).astype("float32")
    return steps[: 2 * 260].reshape(2, 2, 130)


# With the scale 127, a step is 1, and with 63.5 it is 0.5.
SCALES = (127.0, 63.5, 2.3, 0.0)


def parameter(value, dtype="float32"):
    array = np.asarray(value, dtype)
    initializer = paddle.nn.initializer.Assign(array)
    return paddle.static.create_parameter(list(array.shape), dtype, default_initializer=initializer)


def linear(kind, scale, axis=-1, bits=8, rounding=0, by_operand=False):
    """Appends `quantize_linear` or `dequantize_linear`."""

    def make(x, *given):
        s = given[0] if by_operand else parameter(np.asarray(scale, "float32").reshape(-1))
        zero = parameter(np.zeros(np.size(scale), "float32"))
        attributes = {"quant_axis": axis, "bit_length": bits, "round_type": rounding, "is_test": True}
        if IS_PIR:
            n = 2 ** (bits - 1) - 1
            call, accum, state = getattr(paddle._C_ops, kind), parameter([0.0]), parameter([0.0])
            return call(x, s, zero, accum, state, axis, bits, -n - 1, n, rounding, True, False)[0]
        inputs = {"X": x, "Scale": s, "ZeroPoint": zero}
        return raw(kind, inputs, {"Y": "float32"}, attributes)[0]

    return make


# `dequantize_linear` of Paddle 3.3.1 runs the kernel of `quantize_linear`, so its results are no reference.
for scale in SCALES:
    for rounding in (0, 1):
        make = linear("quantize_linear", scale, rounding=rounding)
        case(f"quantize_linear/scale {scale} rounding {rounding}", make, {"x": between()})
for axis in (0, 1):
    make = linear("quantize_linear", [1.1, 0.7], axis)
    case(f"quantize_linear/axis {axis}", make, {"x": floats(2, 2, 5)})
    make = linear("dequantize_linear", [1.1, 0.7], axis)
    case(f"dequantize_linear/axis {axis}", make, {"x": np.round(floats(2, 2, 5) * 60)}, only="2.6")
for bits in (4, 8, 16):
    case(f"quantize_linear/bits {bits}", linear("quantize_linear", 1.7, bits=bits), {"x": floats(2, 3)})
    make = linear("dequantize_linear", 1.7, bits=bits)
    case(f"dequantize_linear/bits {bits}", make, {"x": np.round(floats(4) * 7)}, only="2.6")
OPEN = ([None, 3], [floats(2, 3), floats(4, 3), floats(0, 3)])
case(
    "quantize_linear/scale computed",
    linear("quantize_linear", 1, by_operand=True),
    {"x": OPEN, "s": np.array([1.3], "float32")},
)
case("dequantize_linear/integers", linear("dequantize_linear", 1.7), {"x": ints(3, 4, low=-128, high=128, dtype="int8")}, only="2.6")


def stored(x, scale, axis):
    """The scales of channels are stored."""
    block = paddle.static.default_main_program().current_block()
    out = block.create_var(name=paddle.utils.unique_name.generate("out"), dtype="float32")
    outputs = {"Out": [out], "OutScale": [parameter(scale)]}
    kind = "fake_channel_wise_quantize_abs_max"
    block.append_op(type=kind, inputs={"X": [x]}, outputs=outputs, attrs={"quant_axis": axis, "is_test": True})
    return out


def fake(kind, scale=None, **attributes):
    """Appends a `fake_*` operator."""

    def make(x):
        inputs = {"X": x}
        if scale is not None:
            inputs["InScale" if "quantize_max" not in kind else "Scale"] = parameter(np.asarray(scale, "float32").reshape(-1))
        slots = {"Out": "float32"} if "quantize_max" in kind else {"Out": "float32", "OutScale": "float32"}
        return raw(kind, inputs, slots, attributes)

    return make


for dequantize in ("", "_dequantize"):
    kind = f"fake_quantize{dequantize}_abs_max"
    case(f"{kind}/values", fake(kind, bit_length=8), {"x": between()}, only="2.6")
    case(f"{kind}/even", fake(kind, bit_length=8, round_type=0), {"x": between()}, only="2.6")
    kind = f"fake_quantize{dequantize}_moving_average_abs_max"
    for scale in SCALES:
        make = fake(kind, scale, bit_length=8, is_test=True)
        case(f"{kind}/scale {scale}", lambda x, make=make: make(x)[0], {"x": between()}, only="2.6")
    kind = f"fake_channel_wise_quantize{dequantize}_abs_max"
    for axis in (0, 1):
        if not dequantize:
            make = lambda x, axis=axis: stored(x, [1.1, 0.7], axis)
            case(f"{kind}/axis {axis}, stored", make, {"x": floats(2, 2, 5)}, only="2.6")
            continue
        for rounding in (0, 1):
            make = fake(kind, bit_length=8, quant_axis=axis, round_type=rounding)
            case(f"{kind}/axis {axis} rounding {rounding}", make, {"x": floats(3, 4, 5)}, only="2.6")
case(
    "fake_dequantize_max_abs/values",
    lambda x: fake("fake_dequantize_max_abs", 1.7, max_range=127.0)(x)[0],
    {"x": np.round(floats(2, 3) * 60)},
    only="2.6",
)


def channels(x, scales, **attributes):
    scales = [parameter(np.asarray(scale, "float32").reshape(-1)) for scale in scales]
    return raw("fake_channel_wise_dequantize_max_abs", {"X": x, "Scales": scales}, ["Out"], attributes)[0]


for axis in (0, 1):
    case(
        f"fake_channel_wise_dequantize_max_abs/axis {axis}",
        lambda x, axis=axis: channels(x, [[1.1, 0.7]], quant_bits=[8], quant_axis=axis),
        {"x": np.round(floats(2, 2, 3) * 60)},
        only="2.6",
    )
case(
    "fake_channel_wise_dequantize_max_abs/two scales",
    lambda x: channels(x, [[1.1, 0.7], 2.0], quant_bits=[8, 8], x_num_col_dims=1),
    {"x": np.round(floats(3, 2, 4) * 60)},
    only="2.6",
)


# ---- models of paddle.quantization


class Saved(Case):
    """A model that dynamic code saves; `make` gets the folder."""

    def save(self, folder):
        paddle.disable_static()
        try:
            self.make(folder)
        finally:
            paddle.enable_static()


def quantized(kind):
    """Returns a saver of a network that `paddle.quantization` changes: quantized while training, or after it."""

    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.conv = paddle.nn.Conv2D(3, 4, 3, padding=1)
            self.relu = paddle.nn.ReLU()
            self.pool = paddle.nn.AdaptiveAvgPool2D(1)
            self.fc = paddle.nn.Linear(4, 5)

        def forward(self, x):
            return self.fc(paddle.flatten(self.pool(self.relu(self.conv(x))), 1))

    def save(folder):
        from paddle.quantization import PTQ, QAT, QuantConfig
        from paddle.quantization.observers import AbsmaxObserver
        from paddle.quantization.quanters import FakeQuanterWithAbsMaxObserver

        paddle.seed(7)
        net = Net()
        if kind == "ptq":
            net.eval()
            observer = AbsmaxObserver(quant_bits=8)
            tool = PTQ(QuantConfig(activation=observer, weight=observer))
        else:
            quanter = FakeQuanterWithAbsMaxObserver(moving_rate=0.9)
            tool = QAT(QuantConfig(activation=quanter, weight=quanter))
        net = tool.quantize(net)
        for seed in range(3):
            net(paddle.to_tensor(floats(2, 3, 8, 8, seed=seed)))
        net.eval()
        if kind != "qat, not converted":
            net = tool.convert(net)
        # Values cannot be open in PIR here.
        shape = [2 if IS_PIR else None, 3, 8, 8]
        paddle.jit.save(net, str(folder / "m"), input_spec=[paddle.static.InputSpec(shape, "float32", "x")])

    return save


for kind, only in (("ptq", "2.6"), ("qat", "2.6"), ("qat, not converted", None)):
    arrays = [floats(2, 3, 8, 8, seed=seed) for seed in (5, 6)]
    inputs = {"x": ([None, 3, 8, 8], arrays)}
    CASES.append(Saved(f"quantized model/{kind}", quantized(kind), inputs, 1e-4, 1e-3, only))
