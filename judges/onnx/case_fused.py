"""Cases of operators that join several others."""

import numpy as np
import paddle

from cases import CASES, Case, case, floats, raw
from run import IS_PIR

functional = paddle.nn.functional
ACTIVATIONS = {
    "relu": {},
    "tanh": {},
    "sigmoid": {},
    "gelu_erf": {},
    "gelu_tanh": {},
    "hard_swish": {"fuse_alpha": 1.0 / 6.0, "fuse_beta": 0.5},
    "mish": {},
    "sqrt": {},
    "abs": {},
    "leaky_relu": {"fuse_alpha": 0.1},
    "swish": {"fuse_alpha": 1.5},
    "relu6": {"fuse_alpha": 0.0, "fuse_beta": 1.0},
    "hard_sigmoid": {"fuse_alpha": 0.3, "fuse_beta": 0.4},
    "clip": {"fuse_alpha": -0.5, "fuse_beta": 0.7},
}
ONEDNN = {"use_mkldnn": True}
# Results that must be present.
MORE = {"fused_transpose": ["XShape"], "fused_elemwise_activation": ["IntermediateOut"]}


def parameter(array):
    initializer = paddle.nn.initializer.Assign(array)
    return paddle.static.create_parameter(list(array.shape), str(array.dtype), default_initializer=initializer)


def weights(*shape, seed=0):
    return parameter(floats(*shape, seed=seed, low=-1.0, high=1.0))


def fused(kind, inputs, slot="Out", **attributes):
    """Appends an operator and returns one result."""
    result = raw(kind, inputs, [slot, *MORE.get(kind, ())], attributes)[0]
    if "use_mkldnn" in attributes:
        operator = paddle.static.default_main_program().current_block().ops[-1]
        for name, value in attributes.items():
            if isinstance(value, bool):
                operator.desc._set_bool_attr(name, value)
            elif isinstance(value, float):
                operator.desc._set_float32_attr(name, value)
            else:
                operator._set_attr(name, value)
    return result


def desc(name, make, inputs, **more):
    """Adds a case of `ProgramDesc`."""
    case(name, make, inputs, only="2.6", **more)


def onednn(name, make, inputs):
    """Adds a case of an operator of oneDNN, saved with the attributes that are not declared."""
    case(name, make, inputs, only="2.6", clip_extra=False)


# ---- fc

for activation in ("", "relu"):
    desc(
        f"fc/activation {activation or 'none'}",
        lambda x, activation=activation: fused(
            "fc",
            {"Input": x, "W": weights(3, 4), "Bias": weights(4, seed=1)},
            in_num_col_dims=1,
            activation_type=activation,
        ),
        {"x": ([None, 3], [floats(2, 3), floats(5, 3)])},
    )
desc(
    "fc/three dimensions",
    lambda x: fused("fc", {"Input": x, "W": weights(3, 4), "Bias": weights(1, 4, seed=1)}, in_num_col_dims=2),
    {"x": ([None, None, 3], [floats(2, 4, 3), floats(5, 1, 3)])},
)
desc(
    "fc/joined dimensions",
    lambda x: fused("fc", {"Input": x, "W": weights(12, 4)}, in_num_col_dims=1),
    {"x": floats(2, 4, 3)},
)
desc(
    "fc/padded weights",
    lambda x: fused("fc", {"Input": x, "W": weights(12, 8), "Bias": weights(4)}, in_num_col_dims=1, padding_weights=True),
    {"x": floats(2, 8)},
)
for activation, numbers in (("", {}), ("gelu_erf", {}), ("leaky_relu", {"fuse_alpha": 0.1})):
    onednn(
        f"fc/oneDNN {activation}",
        lambda x, activation=activation, numbers=numbers: fused(
            "fc",
            {"Input": x, "W": weights(3, 4), "Bias": weights(4, seed=1)},
            in_num_col_dims=1,
            fuse_activation=activation,
            fused_output_scale=2.0,
            **numbers,
            **ONEDNN,
        ),
        {"x": floats(2, 3)},
    )

# ---- oneDNN

for activation, numbers in ACTIVATIONS.items():
    low = 0.1 if activation == "sqrt" else -2.0
    for kind in ("add", "mul"):
        onednn(
            f"fused_elementwise_{kind}/{activation}",
            lambda x, y, kind=kind, activation=activation, numbers=numbers: fused(
                f"fused_elementwise_{kind}",
                {"X": x, "Y": y},
                axis=-1,
                fuse_activation=activation,
                fused_output_scale=2.0,
                **numbers,
                **ONEDNN,
            ),
            {"x": floats(2, 3, 4, low=low), "y": floats(2, 3, 4, seed=1, low=low)},
        )
for kind in ("sub", "div"):
    onednn(
        f"fused_elementwise_{kind}/relu",
        lambda x, y, kind=kind: fused(
            f"fused_elementwise_{kind}", {"X": x, "Y": y}, axis=-1, fuse_activation="relu", **ONEDNN
        ),
        {"x": floats(2, 3, 4), "y": floats(2, 3, 4, seed=1, low=0.5)},
    )
onednn(
    "fused_elementwise_add/unsqueeze",
    lambda x, y: fused("fused_elementwise_add", {"X": x, "Y": y}, axis=-1, fused_unsqueeze2_axes=[1, -1], **ONEDNN),
    {"x": floats(2, 3), "y": floats(2, 3, seed=1)},
)

CONV = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1, "data_format": "NCHW"}
for activation, numbers in ACTIVATIONS.items():
    if activation == "sqrt":
        continue
    onednn(
        f"fused_conv2d/{activation}",
        lambda x, activation=activation, numbers=numbers: fused(
            "fused_conv2d",
            {"Input": x, "Filter": weights(4, 3, 3, 3), "Bias": weights(4, seed=1)},
            "Output",
            fuse_activation=activation,
            **numbers,
            **CONV,
            **ONEDNN,
        ),
        {"x": floats(2, 3, 5, 5)},
    )
onednn(
    "fused_conv2d/residual",
    lambda x, r: fused(
        "fused_conv2d",
        {"Input": x, "Filter": weights(4, 3, 3, 3), "Bias": weights(4, seed=1), "ResidualData": r},
        "Output",
        fuse_residual_connection=True,
        fuse_activation="relu",
        **CONV,
        **ONEDNN,
    ),
    {"x": floats(2, 3, 5, 5), "r": floats(2, 4, 5, 5)},
)

onednn(
    "fused_matmul/scaled",
    lambda x, y: fused(
        "fused_matmul", {"X": x, "Y": y}, trans_x=False, trans_y=True, matmul_alpha=0.5, fuse_activation="tanh", **ONEDNN
    ),
    {"x": floats(2, 3, 4), "y": floats(2, 5, 4)},
)
onednn(
    "fused_matmul/residual",
    lambda x, y, r: fused(
        "fused_matmul", {"X": x, "Y": y, "ResidualData": r}, matmul_alpha=2.0, fuse_activation="relu", **ONEDNN
    ),
    {"x": floats(2, 3, 4), "y": floats(2, 4, 5), "r": floats(2, 3, 5)},
)
onednn(
    "fused_matmul/rearranged",
    lambda x, y: fused(
        "fused_matmul",
        {"X": x, "Y": y},
        matmul_alpha=0.5,
        fused_reshape_X=[0, 0, 2, 4],
        fused_transpose_X=[0, 2, 1, 3],
        fused_reshape_Y=[0, 0, 2, 4],
        fused_transpose_Y=[0, 2, 3, 1],
        **ONEDNN,
    ),
    {"x": floats(2, 3, 8), "y": floats(2, 5, 8)},
)
onednn(
    "fused_matmul/rearranged result",
    lambda x, y: fused(
        "fused_matmul",
        {"X": x, "Y": y},
        fused_transpose_Out=[0, 2, 1, 3],
        fused_reshape_Out=[0, 0, 10],
        **ONEDNN,
    ),
    {"x": floats(2, 2, 3, 4), "y": floats(2, 2, 4, 5)},
)
onednn(
    "fused_transpose/unsqueeze",
    lambda x: fused("fused_transpose", {"X": x}, axis=[1, 0, 2], fused_unsqueeze2_axes=[1], **ONEDNN),
    {"x": floats(2, 3, 4)},
)
onednn(
    "fused_transpose/squeeze",
    lambda x: fused("fused_transpose", {"X": x}, axis=[1, 0], fused_squeeze2_axes=[1], **ONEDNN),
    {"x": floats(2, 1, 4)},
)
onednn(
    "fused_transpose/reshape",
    lambda x: fused("fused_transpose", {"X": x}, axis=[1, 0, 2], fused_reshape2_shape=[3, -1], **ONEDNN),
    {"x": floats(2, 3, 4)},
)
onednn(
    "fused_softplus/tanh",
    lambda x: fused("fused_softplus", {"X": x}, beta=2.0, threshold=20.0, fuse_activation="tanh", **ONEDNN),
    {"x": floats(2, 3)},
)

# ---- joined by Paddle itself
# skip_layernorm, fused_fc_elementwise_layernorm, fused_embedding_eltwise_layernorm, multihead_matmul, fused_bias_act,
# fused_bias_dropout_residual_layer_norm, fused_bias_residual_layernorm and fused_gemm_epilogue run on GPUs alone: they have no reference here.

for functors in (
    ["elementwise_add", "relu"],
    ["relu", "elementwise_add"],
    ["elementwise_mul", "scale"],
    ["scale", "elementwise_add"],
    ["tanh", "elementwise_add"],
    ["elementwise_mul", "sigmoid"],
    ["gelu", "elementwise_add"],
):
    for shape, axis in (((2, 3, 4), -1), ((3,), 1)):
        desc(
            f"fused_elemwise_activation/{'+'.join(functors)} {axis}",
            lambda x, y, functors=functors, axis=axis: fused(
                "fused_elemwise_activation", {"X": x, "Y": y}, functor_list=functors, axis=axis, scale=0.3
            ),
            {"x": floats(2, 3, 4), "y": floats(*shape, seed=1)},
        )

desc(
    "self_dp_attention/heads",
    lambda x: fused("self_dp_attention", {"X": x}, alpha=0.5, head_number=2),
    {"x": floats(2, 16, 3, 2, 16)},
)
desc(
    "fused_softmax_mask/broadcast",
    lambda x, m: fused("fused_softmax_mask", {"X": x, "Mask": m}),
    {"x": floats(2, 2, 4, 32), "m": floats(2, 1, 4, 32)},
)
desc(
    "fusion_squared_mat_sub/scaled",
    lambda x, y: raw(
        "fusion_squared_mat_sub", {"X": x, "Y": y}, ["SquaredX", "SquaredY", "SquaredXY", "Out"], {"scalar": 0.5}
    )[3],
    {"x": floats(2, 3), "y": floats(3, 4)},
)


def repeated(x):
    block = paddle.static.default_main_program().current_block()
    relu, out = (block.create_var(name=paddle.utils.unique_name.generate("r"), dtype="float32") for _ in range(2))
    inputs = {"X": [x], "W": [weights(3, 4), weights(4, 5)], "Bias": [weights(4), weights(5)]}
    block.append_op(type="fusion_repeated_fc_relu", inputs=inputs, outputs={"ReluOut": [relu], "Out": [out]})
    return out


desc("fusion_repeated_fc_relu/two", repeated, {"x": floats(2, 3)})

# ---- paddle.incubate

incubate = paddle.incubate.nn.functional
case(
    "fused_dropout_add/python",
    lambda x, y: incubate.fused_dropout_add(x, y, p=0.5, training=False, mode="upscale_in_train"),
    {"x": floats(2, 3), "y": floats(2, 3, seed=1)},
    only="3.3",
)
case(
    "scaled_dot_product_attention/mask",
    lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, m),
    {"q": floats(2, 4, 2, 8), "k": floats(2, 5, 2, 8), "v": floats(2, 5, 2, 8), "m": floats(2, 1, 4, 5)},
    only="3.3",
)
case(
    "scaled_dot_product_attention/plain",
    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
    {"q": floats(2, 4, 2, 8), "k": floats(2, 4, 2, 8), "v": floats(2, 4, 2, 8)},
)
case(
    "scaled_dot_product_attention/causal",
    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    {"q": floats(2, 4, 2, 8), "k": floats(2, 4, 2, 8), "v": floats(2, 4, 2, 8)},
    only="3.3",
)

# ---- programs that the inference engine has optimised


class Optimised(Case):
    """A network as the inference engine optimises it."""

    def save(self, folder):
        from paddle.inference import Config, create_predictor

        paddle.disable_static()
        try:
            paddle.seed(3)
            net = Net()
            net.eval()
            spec = [paddle.static.InputSpec([2, 3, 8, 8], "float32", "x")]
            paddle.jit.save(net, str(folder / "plain"), input_spec=spec)
        finally:
            paddle.enable_static()
        suffix = ".json" if IS_PIR else ".pdmodel"
        config = Config(str(folder / f"plain{suffix}"), str(folder / "plain.pdiparams"))
        config.disable_glog_info()
        config.set_optim_cache_dir(str(folder))
        if self.make:
            config.enable_mkldnn()
        elif hasattr(config, "disable_mkldnn"):
            config.disable_mkldnn()
        config.enable_save_optim_model(True)
        if IS_PIR:
            config.enable_new_executor()
            config.enable_new_ir(True)
        create_predictor(config)
        for end in (suffix, ".pdiparams"):
            (folder / f"_optimized{end}").replace(folder / f"m{end}")


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        nn = paddle.nn
        self.first = nn.Sequential(nn.Conv2D(3, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU())
        self.second = nn.Conv2D(8, 8, 3, padding=1)
        self.third = nn.Sequential(nn.Conv2D(8, 8, 1, bias_attr=False), nn.BatchNorm2D(8))
        self.depth = nn.Sequential(nn.Conv2D(8, 8, 3, padding=1, groups=8, bias_attr=False), nn.BatchNorm2D(8), nn.Hardswish())
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x):
        y = self.first(x)
        z = functional.relu(self.third(y) + y)
        z = self.depth(z)
        z = functional.leaky_relu(self.second(z)) * 2.0 + y
        q = functional.gelu(self.wide(paddle.mean(functional.swish(z), [2, 3])))
        heads = paddle.reshape(q, [-1, 4, 2, 2])
        scores = paddle.matmul(paddle.transpose(heads, [0, 2, 1, 3]), paddle.transpose(heads, [0, 2, 3, 1])) * 0.5
        return self.narrow(q), paddle.tanh(functional.softplus(scores) + 1.0)


IMAGES = {"x": ([2, 3, 8, 8], [floats(2, 3, 8, 8), floats(2, 3, 8, 8, seed=1)])}
CASES.append(Optimised("optimised/plain", False, IMAGES, 1e-4, 1e-3, None))
# With oneDNN, Paddle 3.3.1 fails on this machine.
CASES.append(Optimised("optimised/oneDNN", True, IMAGES, 1e-4, 1e-3, "2.6"))
