"""Cases of recurrent layers, decoding, and operators on sequences (LoD: one sequence)."""

import numpy as np
import paddle
from paddle import nn

import cases
from cases import IS_PIR, case, floats, ints

try:
    from paddle.static.nn import sequence_lod
except ImportError:
    sequence_lod = None


def lod(*arrays):
    """Returns the feeds of one input with LoD: each array is one sequence."""
    first = arrays[0]
    return ([None, *first.shape[1:]], [(array, [[len(array)]]) for array in arrays])


def parameter(array):
    """Returns a parameter with these elements."""
    initializer = nn.initializer.Assign(array)
    return paddle.create_parameter(list(array.shape), str(array.dtype), default_initializer=initializer)


# Operators of PIR: operands, attributes with defaults, results that `_C_ops` returns.
PIR = {
    "gru": (
        "Input H0 Weight Bias",
        {"activation": "tanh", "gate_activation": "sigmoid", "is_reverse": False, "origin_mode": False, "is_test": False},
        "Hidden",
    ),
    "lstm": (
        "Input H0 C0 Weight Bias",
        {
            "use_peepholes": True,
            "is_reverse": False,
            "is_test": False,
            "gate_activation": "sigmoid",
            "cell_activation": "tanh",
            "candidate_activation": "tanh",
        },
        "Hidden Cell",
    ),
    "gru_unit": (
        "Input HiddenPrev Weight Bias",
        {"activation": 2, "gate_activation": 1, "origin_mode": False},
        "Hidden",
    ),
    "fusion_seqconv_eltadd_relu": ("X Filter Bias", {"contextLength": 3, "contextStart": 0, "contextStride": 1}, "Out"),
    "fusion_gru": (
        "X H0 WeightX WeightH Bias",
        {
            "activation": "tanh",
            "gate_activation": "sigmoid",
            "is_reverse": False,
            "use_seq": True,
            "origin_mode": False,
            "force_fp32_output": False,
        },
        "Hidden",
    ),
    "crf_decoding": ("Emission Transition Label Length", {}, "ViterbiPath"),
    "ctc_align": ("Input InputLength", {"blank": 0, "merge_repeated": True, "padding_value": 0}, "Output OutputLength"),
    "edit_distance": ("Hyps Refs HypsLength RefsLength", {"normalized": False}, "SequenceNum Out"),
    "sequence_conv": (
        "X PaddingData Filter",
        {"contextLength": 3, "paddingTrainable": False, "contextStart": 0, "contextStride": 1},
        "Out",
    ),
    "im2sequence": ("X Y", {"kernels": [], "strides": [], "paddings": [], "out_stride": []}, "Out"),
    "row_conv": ("X Filter", {}, "Out"),
    "sequence_pool": ("X", {"is_test": False, "pooltype": "AVERAGE", "pad_value": 0.0}, "Out"),
    "sequence_softmax": ("X", {}, "Out"),
    "sequence_expand": ("X Y", {"ref_level": -1}, "Out"),
    "lod_reset": ("X Y", {"target_lod": [], "append": False}, "Out"),
}


def raw(kind, inputs, outputs, attributes=None, dtype="float32"):
    """Appends an operator without Python API; returns its results in the order of `outputs`, None for those of PIR alone."""
    if not IS_PIR:
        return cases.raw(kind, inputs, outputs, attributes, dtype)
    operands, defaults, results = PIR[kind]
    given = {**defaults, **{k: v for k, v in (attributes or {}).items() if k in defaults}}
    arguments = [inputs.get(slot) for slot in operands.split()] + list(given.values())
    made = getattr(paddle._C_ops, kind)(*arguments)
    made = dict(zip(results.split(), made if isinstance(made, (list, tuple)) else [made]))
    return [made.get(slot) for slot in outputs]


# ---- rnn


def layer(kind, size, hidden, **options):
    """Returns a layer with random weights, biases among them."""
    paddle.seed(5)
    made = getattr(nn, kind)(
        size,
        hidden,
        weight_ih_attr=paddle.ParamAttr(initializer=nn.initializer.Uniform(-0.8, 0.8)),
        weight_hh_attr=paddle.ParamAttr(initializer=nn.initializer.Uniform(-0.8, 0.8)),
        bias_ih_attr=paddle.ParamAttr(initializer=nn.initializer.Uniform(-0.8, 0.8)),
        bias_hh_attr=paddle.ParamAttr(initializer=nn.initializer.Uniform(-0.8, 0.8)),
        **options,
    )
    made.eval()
    return made


def flat(results):
    """Returns the output and all states of a layer."""
    out, states = results
    return [out, *states] if isinstance(states, (list, tuple)) else [out, states]


def states(kind, layers, direction, x, rest, has_lengths):
    rest = list(rest)
    lengths = rest.pop() if has_lengths else None
    initial = tuple(rest) if len(rest) > 1 else rest[0]
    return flat(layer(kind, 3, 4, num_layers=layers, direction=direction, time_major=True)(x, initial, lengths))


for kind in ("LSTM", "GRU", "SimpleRNN"):
    for direction in ("forward", "bidirect"):
        for layers in (1, 2):
            case(
                f"rnn/{kind} {direction} {layers}",
                lambda x, k=kind, d=direction, n=layers: flat(layer(k, 3, 4, num_layers=n, direction=d)(x)),
                {"x": ([None, None, 3], [floats(2, 5, 3), floats(3, 1, 3, seed=1), floats(1, 8, 3, seed=2)])},
            )
            case(
                f"rnn/{kind} {direction} {layers} lengths",
                lambda x, l, k=kind, d=direction, n=layers: flat(
                    layer(k, 3, 4, num_layers=n, direction=d)(x, sequence_length=l)
                ),
                {
                    "x": ([None, None, 3], [floats(3, 6, 3), floats(2, 5, 3, seed=1), floats(2, 5, 3, seed=2)]),
                    "l": ([None], [np.array([6, 2, 4], "int32"), np.array([1, 3], "int32"), np.array([5, 5], "int32")]),
                },
            )
    for layers in (1, 3):
        for direction in ("forward", "bidirect"):
            for lengths in (False, True):
                inputs = {"x": ([None, None, 3], [floats(6, 2, 3), floats(5, 3, 3, seed=1)])}
                count = layers * (2 if direction == "bidirect" else 1)
                for name in "hc"[: 2 if kind == "LSTM" else 1]:
                    inputs[name] = ([count, None, 4], [floats(count, 2, 4, seed=8), floats(count, 3, 4, seed=ord(name))])
                if lengths:
                    inputs["l"] = ([None], [np.array([6, 2], "int32"), np.array([1, 5, 3], "int32")])
                case(
                    f"rnn/{kind} {direction} {layers} states{' lengths' if lengths else ''}",
                    lambda x, *rest, k=kind, d=direction, n=layers, l=lengths: states(k, n, d, x, rest, l),
                    inputs,
                )
    case(
        f"rnn/{kind} time major",
        lambda x, k=kind: flat(layer(k, 3, 4, time_major=True)(x)),
        {"x": ([None, None, 3], [floats(2, 5, 3), floats(7, 1, 3, seed=1)])},
    )
    case(
        f"rnn/{kind} zero length",
        lambda x, l, k=kind: flat(layer(k, 3, 4, direction="bidirect")(x, sequence_length=l)),
        {"x": floats(3, 4, 3), "l": np.array([4, 0, 2], "int32")},
    )
    case(
        f"rnn/{kind} long lengths",
        lambda x, l, k=kind: flat(layer(k, 3, 4)(x, sequence_length=l)),
        {"x": floats(3, 4, 3), "l": np.array([3, 2, 1], "int64")},
    )
    case(
        f"rnn/{kind} f64",
        lambda x, l, k=kind: flat(layer64(k, x, l)),
        {"x": floats(3, 4, 3, dtype="float64"), "l": np.array([3, 2, 1], "int32")},
        atol=1e-10,
        rtol=1e-10,
    )


def layer64(kind, x, lengths):
    paddle.set_default_dtype("float64")
    try:
        return layer(kind, 3, 4, direction="bidirect", num_layers=2)(x, sequence_length=lengths)
    finally:
        paddle.set_default_dtype("float32")


for kind in ("LSTM", "GRU", "SimpleRNN"):
    case(
        f"rnn/{kind} dropout",
        lambda x, k=kind: flat(layer(k, 3, 4, num_layers=3, direction="bidirect", dropout=0.5)(x)),
        {"x": floats(2, 5, 3)},
    )
case("rnn/relu", lambda x: flat(layer("SimpleRNN", 3, 4, activation="relu")(x)), {"x": floats(2, 5, 3)})
case(
    "rnn/LSTM states",
    lambda x, h, c: flat(layer("LSTM", 3, 4, num_layers=2, direction="bidirect")(x, (h, c))),
    {"x": floats(2, 5, 3), "h": floats(4, 2, 4), "c": floats(4, 2, 4, seed=4)},
)
case(
    "rnn/GRU states",
    lambda x, h, l: flat(layer("GRU", 3, 4, num_layers=2, direction="bidirect")(x, h, l)),
    {"x": floats(2, 5, 3), "h": floats(4, 2, 4), "l": np.array([2, 5], "int32")},
)
case("rnn/out only", lambda x: layer("LSTM", 3, 4, num_layers=2, direction="bidirect")(x)[0], {"x": floats(2, 5, 3)})


# ---- recurrent operators on one sequence


def gru(x, attributes, dtype="float32", bias=True, h0=False, size=4):
    inputs = {"Input": x, "Weight": parameter(floats(size, 3 * size, seed=3, dtype=dtype))}
    if bias:
        inputs["Bias"] = parameter(floats(1, 3 * size, seed=4, dtype=dtype))
    if h0:
        inputs["H0"] = parameter(floats(1, size, seed=6, dtype=dtype))
    attributes = {"activation": "tanh", "gate_activation": "sigmoid", "is_reverse": False, "origin_mode": False, **attributes}
    return raw("gru", inputs, ["BatchGate", "BatchResetHiddenPrev", "BatchHidden", "Hidden"], attributes, dtype)[3]


rows12 = lod(floats(5, 12), floats(1, 12, seed=1), floats(9, 12, seed=2))
for reverse in (False, True):
    for origin in (False, True):
        for act, gate in (("tanh", "sigmoid"), ("relu", "sigmoid"), ("identity", "sigmoid"), ("tanh", "identity"), ("tanh", "relu")):
            case(
                f"gru/reverse {reverse} origin {origin} {act} {gate}",
                lambda x, r=reverse, o=origin, a=act, g=gate: gru(
                    x, {"is_reverse": r, "origin_mode": o, "activation": a, "gate_activation": g}
                ),
                {"x": rows12 if gate == "sigmoid" else lod(floats(3, 12))},
                clip_extra=False,
            )
case("gru/no bias", lambda x: gru(x, {}, bias=False), {"x": rows12}, clip_extra=False)
case("gru/h0", lambda x: gru(x, {"is_reverse": True}, h0=True), {"x": rows12}, clip_extra=False)
case(
    "gru/f64",
    lambda x: gru(x, {}, "float64", h0=True),
    {"x": lod(floats(5, 12, dtype="float64"))},
    atol=1e-10,
    rtol=1e-8,
    clip_extra=False,
)


def lstm(x, attributes, dtype="float32", peepholes=True, states=False, cell=False, size=3):
    inputs = {
        "Input": x,
        "Weight": parameter(floats(size, 4 * size, seed=3, dtype=dtype)),
        "Bias": parameter(floats(1, (7 if peepholes else 4) * size, seed=4, dtype=dtype)),
    }
    if states:
        inputs["H0"] = parameter(floats(1, size, seed=6, dtype=dtype))
        inputs["C0"] = parameter(floats(1, size, seed=7, dtype=dtype))
    attributes = {
        "use_peepholes": peepholes,
        "is_reverse": False,
        "gate_activation": "sigmoid",
        "cell_activation": "tanh",
        "candidate_activation": "tanh",
        **attributes,
    }
    outs = raw("lstm", inputs, ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"], attributes, dtype)
    return outs[:2] if cell else outs[0]


for reverse in (False, True):
    for peepholes in (False, True):
        for cell in (False, True):
            case(
                f"lstm/reverse {reverse} peepholes {peepholes} cell {cell}",
                lambda x, r=reverse, p=peepholes, c=cell: lstm(x, {"is_reverse": r}, peepholes=p, cell=c),
                {"x": rows12},
            )
case(
    "lstm/activations",
    lambda x: lstm(
        x, {"gate_activation": "identity", "cell_activation": "relu", "candidate_activation": "sigmoid"}, peepholes=False
    ),
    {"x": lod(floats(3, 12, low=-0.5, high=0.5))},
)
case("lstm/states", lambda x: lstm(x, {}, states=True), {"x": rows12})
case("lstm/states cell", lambda x: lstm(x, {}, states=True, cell=True), {"x": rows12})
case(
    "lstm/f64",
    lambda x: lstm(x, {}, "float64", states=True),
    {"x": lod(floats(5, 12, dtype="float64"))},
    atol=1e-10,
    rtol=1e-8,
)


def fusion_gru(x, attributes, h0=False):
    inputs = {
        "X": x,
        "WeightX": parameter(floats(5, 12, seed=3)),
        "WeightH": parameter(floats(4, 12, seed=4)),
        "Bias": parameter(floats(1, 12, seed=5)),
    }
    if h0:
        inputs["H0"] = parameter(floats(1, 4, seed=6))
    attributes = {"activation": "tanh", "gate_activation": "sigmoid", "use_seq": True, **attributes}
    return raw("fusion_gru", inputs, ["ReorderedH0", "XX", "BatchedInput", "BatchedOut", "Hidden"], attributes)[4]


def fusion_lstm(x, attributes, peepholes=False, states=False):
    inputs = {
        "X": x,
        "WeightX": parameter(floats(5, 12, seed=3)),
        "WeightH": parameter(floats(3, 12, seed=4)),
        "Bias": parameter(floats(1, 21 if peepholes else 12, seed=5)),
    }
    if states:
        inputs["H0"] = parameter(floats(1, 3, seed=6))
        inputs["C0"] = parameter(floats(1, 3, seed=7))
    attributes = {
        "gate_activation": "sigmoid",
        "cell_activation": "tanh",
        "candidate_activation": "tanh",
        "use_seq": True,
        "use_peepholes": peepholes,
        **attributes,
    }
    slots = "Hidden Cell XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0 CheckedCell".split()
    return raw("fusion_lstm", inputs, slots, attributes)[0]


rows5 = lod(floats(5, 5), floats(1, 5, seed=1))
for reverse in (False, True):
    case(f"fusion_gru/reverse {reverse}", lambda x, r=reverse: fusion_gru(x, {"is_reverse": r}), {"x": rows5})
    for peepholes in (False, True):
        case(
            f"fusion_lstm/reverse {reverse} peepholes {peepholes}",
            lambda x, r=reverse, p=peepholes: fusion_lstm(x, {"is_reverse": r}, p),
            {"x": rows5},
            only="2.6",
        )
case("fusion_gru/h0", lambda x: fusion_gru(x, {}, True), {"x": rows5})
case("fusion_lstm/states", lambda x: fusion_lstm(x, {}, True, True), {"x": rows5}, only="2.6")


def gru_unit(x, h, attributes, bias=True):
    inputs = {"Input": x, "HiddenPrev": h, "Weight": parameter(floats(4, 12, seed=3))}
    if bias:
        inputs["Bias"] = parameter(floats(1, 12, seed=4))
    results = raw("gru_unit", inputs, ["Gate", "ResetHiddenPrev", "Hidden"], attributes)
    return [result for result in results if result is not None]


for act, gate in ((2, 1), (3, 1), (0, 0), (1, 2)):
    for origin in (False, True):
        case(
            f"gru_unit/{act} {gate} {origin}",
            lambda x, h, a=act, g=gate, o=origin: gru_unit(x, h, {"activation": a, "gate_activation": g, "origin_mode": o}),
            {"x": ([None, 12], [floats(3, 12), floats(1, 12)]), "h": ([None, 4], [floats(3, 4), floats(1, 4)])},
        )
case("gru_unit/no bias", lambda x, h: gru_unit(x, h, {}, False), {"x": floats(3, 12), "h": floats(3, 4)})


# ---- decoding


def crf(x, size=4, label=None, length=None):
    inputs = {"Emission": x, "Transition": parameter(floats(size + 2, size, seed=3))}
    if label is not None:
        inputs["Label"] = label
    if length is not None:
        inputs["Length"] = length
    return raw("crf_decoding", inputs, {"ViterbiPath": "int64"})[0]


emissions = lod(floats(6, 4), floats(1, 4, seed=1), floats(40, 4, seed=2), floats(2, 4, seed=7))
case("crf_decoding/sequence", crf, {"x": emissions})
case("crf_decoding/ties", crf, {"x": lod(np.zeros((7, 4), "float32"), np.ones((3, 4), "float32"))})
case("crf_decoding/wide", lambda x: crf(x, 57), {"x": lod(floats(20, 57))})
case(
    "crf_decoding/label",
    lambda x, y: crf(x, label=y),
    {"x": lod(floats(9, 4)), "y": lod(ints(9, 1, low=0, high=4))},
)
case(
    "crf_decoding/length",
    lambda x, l: crf(x, length=l),
    {
        "x": ([None, None, 4], [floats(3, 7, 4), floats(2, 1, 4)]),
        "l": ([None, 1], [np.array([[7], [1], [4]]), np.array([[1], [1]])]),
    },
)
case(
    "crf_decoding/length label",
    lambda x, l, y: crf(x, length=l, label=y),
    {"x": floats(3, 7, 4), "l": np.array([[7], [1], [4]]), "y": ints(3, 7, low=0, high=4)},
)


for tag in (True, False):
    for dtype in ("float32", "float64"):
        case(
            f"viterbi_decode/{tag} {dtype}",
            lambda x, l, t=tag, d=dtype: paddle.text.viterbi_decode(x, parameter(floats(5, 5, seed=3, dtype=d)), l, t),
            {
                "x": ([None, None, 5], [floats(3, 7, 5, dtype=dtype), floats(2, 6, 5, dtype=dtype), floats(1, 1, 5, dtype=dtype)]),
                "l": ([None], [np.array([7, 1, 4]), np.array([3, 5]), np.array([1])]),
            },
        )

for dtype in ("int64", "int32"):
    case(
        f"gather_tree/{dtype}",
        lambda i, p: nn.functional.gather_tree(i, p),
        {
            "i": ([None, None, 3], [ints(5, 2, 3, low=0, high=50, dtype=dtype), ints(1, 4, 3, low=0, high=50, dtype=dtype)]),
            "p": ([None, None, 3], [ints(5, 2, 3, seed=1, low=0, high=3, dtype=dtype), ints(1, 4, 3, low=0, high=3, dtype=dtype)]),
        },
    )


def ctc(x, length=None, dtype="int64", **attributes):
    inputs = {"Input": x}
    if length is not None:
        inputs["InputLength"] = length
        return raw("ctc_align", inputs, ["Output", "OutputLength"], attributes, dtype)
    return raw("ctc_align", inputs, ["Output"], attributes, dtype)[0]


for dtype in ("int64", "int32"):
    labels = lod(*[ints(n, 1, seed=n, low=0, high=3, dtype=dtype) for n in (12, 1, 5)], np.zeros((4, 1), dtype))
    for blank in (0, 2):
        for merge in (True, False):
            case(
                f"ctc_align/sequence {dtype} {blank} {merge}",
                lambda x, b=blank, m=merge, d=dtype: ctc(x, dtype=d, blank=b, merge_repeated=m),
                {"x": labels},
                only="2.6",
            )
            case(
                f"ctc_align/batch {dtype} {blank} {merge}",
                lambda x, l, b=blank, m=merge, d=dtype: ctc(x, l, d, blank=b, merge_repeated=m, padding_value=9),
                {
                    "x": ([None, None], [ints(3, 12, low=0, high=3, dtype=dtype), ints(2, 1, low=0, high=3, dtype=dtype)]),
                    "l": ([None, 1], [np.array([[12], [5], [1]], dtype), np.array([[1], [1]], dtype)]),
                },
            )


def distance(x, y, lengths=None, normalized=False):
    inputs = {"Hyps": x, "Refs": y}
    if lengths is not None:
        inputs["HypsLength"], inputs["RefsLength"] = lengths
    return raw("edit_distance", inputs, {"Out": "float32", "SequenceNum": "int64"}, {"normalized": normalized})


for normalized in (False, True):
    case(
        f"edit_distance/batch {normalized}",
        lambda x, y, a, b, n=normalized: distance(x, y, (a, b), n),
        {
            "x": ([None, None], [ints(3, 8, low=0, high=4), ints(2, 3, low=0, high=4)]),
            "y": ([None, None], [ints(3, 6, seed=1, low=0, high=4), ints(2, 5, seed=2, low=0, high=4)]),
            "a": ([None], [np.array([8, 3, 1]), np.array([3, 2])]),
            "b": ([None], [np.array([6, 2, 5]), np.array([5, 5])]),
        },
    )
    case(
        f"edit_distance/sequence {normalized}",
        lambda x, y, n=normalized: distance(x, y, None, n),
        {"x": lod(ints(8, 1, low=0, high=4), ints(3, 1)), "y": lod(ints(6, 1, seed=1, low=0, high=4), ints(5, 1, seed=4))},
    )

for dtype in ("int64", "int32", "float32", "bool", "float64"):
    case(
        f"sequence_mask/{dtype}",
        lambda x, d=dtype: nn.functional.sequence_mask(x, maxlen=7, dtype=d),
        {"x": ([None], [ints(4, low=0, high=9), ints(1, low=0, high=5)])},
    )
case("sequence_mask/open", lambda x: nn.functional.sequence_mask(x), {"x": ([None], [ints(4, low=0, high=9), ints(3, low=1, high=5)])})
case(
    "sequence_mask/tensor",
    lambda x, m: nn.functional.sequence_mask(x, maxlen=m),
    {"x": ints(2, 3, low=0, high=9, dtype="int32"), "m": ([1], [np.array([4], "int32"), np.array([12], "int32")])},
)
case("sequence_mask/scalar", lambda x: nn.functional.sequence_mask(x, maxlen=5), {"x": np.array(3, "int64")})


# ---- sequences

rows = lod(floats(6, 3), floats(1, 3, seed=1), floats(11, 3, seed=2))


def pool(x, kind):
    """Returns the pooled sequence; the second result must not be read."""
    dtype = "float64" if "64" in str(x.dtype) else "float32"
    slots = {"Out": dtype, "MaxIndex": "int32"}
    return raw("sequence_pool", {"X": x}, slots, {"pooltype": kind.upper(), "pad_value": 0.0}, dtype)[0]


for kind in ("sum", "average", "sqrt", "max", "first", "last"):
    case(f"sequence_pool/{kind}", lambda x, k=kind: pool(x, k), {"x": rows})
    case(
        f"sequence_pool/{kind} f64",
        lambda x, k=kind: pool(x, k),
        {"x": lod(floats(4, 3, dtype="float64"))},
    )
case("sequence_softmax/column", lambda x: raw("sequence_softmax", {"X": x}, ["Out"])[0], {"x": lod(floats(6, 1), floats(1, 1), floats(9, 1))})
case("sequence_softmax/vector", lambda x: raw("sequence_softmax", {"X": x}, ["Out"])[0], {"x": lod(floats(6), floats(1))})
case(
    "sequence_expand/row",
    lambda x, y: raw("sequence_expand", {"X": x, "Y": y}, ["Out"])[0],
    {"x": floats(1, 4), "y": lod(floats(5, 2), floats(2, 2))},
)
case(
    "sequence_expand/sequence",
    lambda x, y: raw("sequence_expand", {"X": x, "Y": y}, ["Out"], {"ref_level": 0})[0],
    {"x": lod(floats(3, 4), floats(1, 4)), "y": lod(floats(5, 2), floats(2, 2))},
)
case(
    "sequence_expand_as/row",
    lambda x, y: sequence_lod.sequence_expand_as(x, y),
    {"x": floats(1, 4), "y": lod(floats(5, 2), floats(1, 2))},
    only="2.6",
)


def sequence_conv(x, start, length, padding=False, dtype="float32"):
    inputs = {"X": x, "Filter": parameter(floats(length * 3, 2, seed=3, dtype=dtype))}
    if padding:
        count = max(0, -start) + max(0, start + length - 1)
        inputs["PaddingData"] = parameter(floats(count, 3, seed=4, dtype=dtype))
    attributes = {"contextStart": start, "contextLength": length, "contextStride": 1, "paddingTrainable": padding}
    return raw("sequence_conv", inputs, ["Out"], attributes, dtype)[0]


for start, length in ((-1, 3), (0, 3), (-2, 2), (0, 1), (1, 2), (-3, 2), (-2, 5)):
    case(f"sequence_conv/{start} {length}", lambda x, s=start, n=length: sequence_conv(x, s, n), {"x": rows})
for start, length in ((-1, 3), (0, 3), (-2, 3)):
    case(
        f"sequence_conv/{start} {length} padding",
        lambda x, s=start, n=length: sequence_conv(x, s, n, True),
        {"x": lod(floats(6, 3), floats(3, 3))},
    )
for dtype in ("float32", "int64", "int32", "float64"):
    values = lod(ints(6, 3, dtype=dtype), ints(1, 3, dtype=dtype))
    case(f"sequence_reverse/{dtype}", lambda x: sequence_lod.sequence_reverse(x), {"x": values}, only="2.6")
    for kind, size, value in (("filled", 9, [7]), ("row", 9, [7, 8, 9]), ("open", None, [7])):
        case(
            f"sequence_pad/{kind} {dtype}",
            lambda x, v, n=size: sequence_lod.sequence_pad(x, v, n),
            {"x": values, "v": np.array(value, dtype)},
            only="2.6",
        )
    case(
        f"sequence_unpad/{dtype}",
        lambda x, l: sequence_lod.sequence_unpad(x, l),
        {
            "x": ([None, None, 3], [ints(1, 6, 3, dtype=dtype), ints(2, 5, 3, dtype=dtype)]),
            "l": ([None], [np.array([4]), np.array([2, 5])]),
        },
        only="2.6",
    )
    case(
        f"sequence_concat/{dtype}",
        lambda x, y, d=dtype: raw("sequence_concat", {"X": [x, y]}, ["Out"], None, d)[0],
        {"x": values, "y": values},
        only="2.6",
    )
    case(
        f"sequence_slice/{dtype}",
        lambda x, a, b: sequence_lod.sequence_slice(x, a, b),
        {"x": lod(ints(6, 3, dtype=dtype)), "a": np.array([[2]]), "b": np.array([[3]])},
        only="2.6",
    )
    case(f"sequence_reshape/{dtype}", lambda x: sequence_lod.sequence_reshape(x, 2), {"x": lod(ints(6, 3, dtype=dtype))}, only="2.6")
for dtype in ("int64", "int32"):
    labels = lod(ints(7, 1, low=0, high=5, dtype=dtype), ints(1, 1, low=0, high=5, dtype=dtype), ints(2, 1, low=0, high=5, dtype=dtype))
    for size in (2, 4):
        case(
            f"sequence_enumerate/{dtype} {size}",
            lambda x, n=size: sequence_lod.sequence_enumerate(x, n, 9),
            {"x": labels},
            only="2.6",
        )
    for tokens in ([2, 3], [0, 1, 2, 3, 4], []):
        case(
            f"sequence_erase/{dtype} {len(tokens)}",
            lambda x, t=tokens, d=dtype: raw("sequence_erase", {"X": x}, ["Out"], {"tokens": t}, d)[0],
            {"x": labels},
            only="2.6",
        )
for size in (1, 3):
    case(
        f"row_conv/sequence {size}",
        lambda x, n=size: raw("row_conv", {"X": x, "Filter": parameter(floats(n, 3, seed=3))}, ["Out"])[0],
        {"x": rows},
        only="2.6",
    )
    case(
        f"row_conv/batch {size}",
        lambda x, n=size: raw("row_conv", {"X": x, "Filter": parameter(floats(n, 3, seed=3))}, ["Out"])[0],
        {"x": floats(2, 5, 3)},
        only="2.6",
    )
case("lod_reset/attribute", lambda x: raw("lod_reset", {"X": x}, ["Out"], {"target_lod": [0, 6]})[0], {"x": lod(floats(6, 3))}, only="2.6")
case("lod_reset/tensor", lambda x, y: raw("lod_reset", {"X": x, "Y": y}, ["Out"])[0], {"x": rows, "y": rows}, only="2.6")
for kernel, stride, pads in (([2, 2], [1, 1], [0, 0, 0, 0]), ([3, 2], [2, 1], [1, 0, 0, 1]), ([1, 1], [1, 1], [0, 0, 0, 0])):
    case(
        f"im2sequence/{kernel} {stride} {pads}",
        lambda x, k=kernel, s=stride, p=pads: raw(
            "im2sequence", {"X": x}, ["Out"], {"kernels": k, "strides": s, "paddings": p, "out_stride": [1, 1]}
        )[0],
        {"x": ([1, 3, None, None], [floats(1, 3, 5, 6), floats(1, 3, 4, 7)])},
    )


# ---- fused operators


def embedding_lstm(x, attributes, peepholes=False, states=False):
    inputs = {
        "Ids": x,
        "Embeddings": parameter(floats(9, 12, seed=3)),
        "WeightH": parameter(floats(3, 12, seed=4)),
        "Bias": parameter(floats(1, 21 if peepholes else 12, seed=5)),
    }
    if states:
        inputs["H0"] = parameter(floats(1, 3, seed=6))
        inputs["C0"] = parameter(floats(1, 3, seed=7))
    attributes = {
        "gate_activation": "sigmoid",
        "cell_activation": "tanh",
        "candidate_activation": "tanh",
        "use_seq": True,
        "use_peepholes": peepholes,
        **attributes,
    }
    slots = "Hidden Cell XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0".split()
    return raw("fused_embedding_fc_lstm", inputs, slots, attributes)[0]


tokens = lod(ints(6, 1, low=0, high=9), ints(1, 1, low=0, high=9))
for reverse in (False, True):
    for peepholes in (False, True):
        for states_given in (False, True):
            case(
                f"fused_embedding_fc_lstm/reverse {reverse} peepholes {peepholes} states {states_given}",
                lambda x, r=reverse, p=peepholes, s=states_given: embedding_lstm(x, {"is_reverse": r}, p, s),
                {"x": tokens},
                only="2.6",
            )
for start, length in ((-1, 3), (0, 3), (-2, 3)):
    case(
        f"fusion_seqconv_eltadd_relu/{start} {length}",
        lambda x, s=start, n=length: raw(
            "fusion_seqconv_eltadd_relu",
            {"X": x, "Filter": parameter(floats(3 * n, 2, seed=3)), "Bias": parameter(floats(1, 2, seed=4))},
            ["Out", "ColMat"],
            {"contextStart": s, "contextLength": n, "contextStride": 1},
        )[0],
        {"x": lod(floats(6, 3), floats(3, 3))},
    )
for kind in ("SUM", "AVERAGE", "SQRT"):
    case(
        f"fusion_seqpool_concat/{kind}",
        lambda x, y, k=kind: raw("fusion_seqpool_concat", {"X": [x, y]}, ["Out"], {"pooltype": k, "axis": 1})[0],
        {"x": rows, "y": rows},
        only="2.6",
    )
for name in ("identity", "relu", "tanh", "sigmoid"):
    case(
        f"fusion_seqexpand_concat_fc/{name}",
        lambda x, y, z, n=name: raw(
            "fusion_seqexpand_concat_fc",
            {"X": [x, y, z], "FCWeight": parameter(floats(9, 5, seed=3)), "FCBias": parameter(floats(1, 5, seed=4))},
            ["Out", "FCOut"],
            {"fc_activation": n},
        )[0],
        {"x": rows, "y": ([None, 2], [(floats(1, 2), [[1]])]), "z": ([None, 4], [(floats(1, 4), [[1]])])},
        only="2.6",
    )
for padding in (-1, 0, 3):
    case(
        f"fused_embedding_seq_pool/{padding}",
        lambda x, p=padding: raw(
            "fused_embedding_seq_pool",
            {"W": parameter(floats(9, 4, seed=3)), "Ids": x},
            ["Out"],
            {"combiner": "sum", "padding_idx": p, "is_sparse": False},
        )[0],
        {"x": tokens},
        only="2.6",
    )
for size in (2, 6):
    case(
        f"add_position_encoding/batch {size}",
        lambda x: raw("add_position_encoding", {"X": x}, ["Out"], {"alpha": 0.5, "beta": 1.5})[0],
        {"x": ([None, None, size], [floats(2, 5, size), floats(1, 40, size)])},
        only="2.6",
    )
    case(
        f"add_position_encoding/sequence {size}",
        lambda x: raw("add_position_encoding", {"X": x}, ["Out"], {"alpha": 1.0, "beta": 1.0})[0],
        {"x": lod(floats(5, size), floats(1, size))},
        only="2.6",
    )
for dtype in ("float32", "float64", "int64", "int32"):
    case(
        f"sequence_scatter/{dtype}",
        lambda x, i, u, d=dtype: raw("sequence_scatter", {"X": x, "Ids": i, "Updates": u}, ["Out"], None, d)[0],
        {
            "x": ints(1, 6, dtype=dtype),
            "i": lod(np.array([[1], [4], [1]]), np.array([[5]])),
            "u": lod(ints(3, 1, dtype=dtype), ints(1, 1, dtype=dtype)),
        },
        only="2.6",
    )


def multi_gru(x, layers, origin, bias=True):
    size, inputs = 5, {"X": x, "WeightX": [], "WeightH": [], "Bias": []}
    for place in range(2 * layers):
        inputs["WeightX"].append(parameter(floats(size, 12, seed=3 * place, low=-0.7, high=0.7)))
        inputs["WeightH"].append(parameter(floats(4, 12, seed=3 * place + 1)))
        inputs["Bias"].append(parameter(floats(1, 12, seed=3 * place + 2)))
        size = 8 if place % 2 else size
    if not bias:
        del inputs["Bias"]
    attributes = {
        "layers": layers,
        "activation": "tanh",
        "gate_activation": "sigmoid",
        "origin_mode": origin,
        "use_mkldnn": True,
        "force_fp32_output": False,
    }
    return raw("multi_gru", inputs, ["Hidden"], attributes)[0]


# Paddle has a kernel of oneDNN alone, which fails for another length.
for layers in (1, 2):
    for origin in (False, True):
        case(f"multi_gru/{layers} {origin}", lambda x, n=layers, o=origin: multi_gru(x, n, o), {"x": lod(floats(5, 5))}, only="2.6", clip_extra=False)
case("multi_gru/no bias", lambda x: multi_gru(x, 1, False, False), {"x": lod(floats(5, 5))}, only="2.6", clip_extra=False)
