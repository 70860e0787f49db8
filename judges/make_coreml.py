"""Golden files of Core ML, saved by coremltools: testdata/coreml.

    python judges/make_coreml.py

Needs: the packages of judges/coreml.txt. `expected.json` has what coremltools reads from the files: dtype, shape and elements of every tensor,
and the types of layers and operations.
"""
import contextlib
import hashlib
import io
import json
import logging
import pathlib
import shutil
import sys
import tempfile
import uuid
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import numpy as np  # noqa: E402

with contextlib.redirect_stderr(io.StringIO()):
    import coremltools as ct
from coremltools import proto  # noqa: E402
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import types  # noqa: E402
from coremltools.libmilstoragepython import _BlobStorageReader as BlobReader  # noqa: E402
from coremltools.libmilstoragepython import _BlobStorageWriter as BlobWriter  # noqa: E402
from coremltools.models import datatypes  # noqa: E402
from coremltools.models.neural_network import NeuralNetworkBuilder, quantization_utils  # noqa: E402
from coremltools.optimize import coreml as cto  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "coreml"
GOOD, BAD = ROOT / "good", ROOT / "bad"
MODEL, WEIGHTS = "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"
NUMBERS = {1: "bool", 10: "f16", 11: "f32", 12: "f64", 13: "bf16", 21: "i8", 22: "i16", 23: "i32", 24: "i64", 31: "u8", 32: "u16", 33: "u32", 34: "u64", 40: "f8_e4m3", 41: "f8_e5m2"}
NUMPY = {"bool": "?", "f16": "<f2", "f32": "<f4", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8"}
PACKED = {25: ("int4", 4), 35: ("uint4", 4), 36: ("uint2", 2), 37: ("uint1", 1), 38: ("uint6", 6), 39: ("uint3", 3)}
READERS = {10: "fp16", 11: "float", 21: "int8", 22: "int16", 23: "int32", 25: "int4", 31: "uint8", 32: "uint16", 33: "uint32", 35: "uint4", 36: "uint2", 37: "uint1", 38: "uint6", 39: "uint3"}
ELEMENTS = {"val", "quantized_data", "indices", "nonzero_data", "source_val", "data"}


def values(shape, seed):
    return np.random.RandomState(seed).standard_normal(shape).astype("f4")


# What coremltools reads.


def packed(numbers, bits):
    """Integers as bytes, the lowest bits first."""
    numbers = np.asarray(numbers).astype(np.int64).reshape(-1) & (2**bits - 1)
    flat = (numbers[:, None] >> np.arange(bits)) & 1
    return np.packbits(flat.reshape(-1).astype(np.uint8), bitorder="little").tobytes()


def constant(value, folder):
    """Dtype, shape, elements and packed dtype of a value of a program; None for one that is not a tensor of numbers."""
    kind = value.type.tensorType
    if value.type.WhichOneof("type") != "tensorType" or kind.dataType == 2:
        return None
    shape = [one.constant.size for one in kind.dimensions]
    number = kind.dataType
    dtype = NUMBERS.get(number)
    if value.WhichOneof("value") == "blobFileValue":
        blob = value.blobFileValue
        reader = BlobReader(str(folder / blob.fileName.removeprefix("@model_path/")))
        array = getattr(reader, f"read_{READERS[number]}_data")(blob.offset)
        data = packed(array, PACKED[number][1]) if number in PACKED else np.asarray(array).tobytes()
    else:
        tensor = value.immediateValue.tensor
        form = tensor.WhichOneof("value")
        stored = getattr(tensor, form).values if form else []
        data = bytes(stored) if form == "bytes" else np.array(list(stored)).astype(NUMPY[dtype]).tobytes()
    if number in PACKED:
        name, bits = PACKED[number]
        return "u8", [-(-int(np.prod(shape)) * bits // 8)], data, {"packed_dtype": name, "packed_shape": shape}
    return dtype, shape, data, {}


def program(spec, found, kinds, folder, prefix, default):
    functions = sorted(spec.functions.items(), key=lambda one: (one[0] != default, one[0]))
    for number, (name, function) in enumerate(functions):
        own = prefix if number == 0 else [*prefix, name]
        blocks = sorted(function.block_specializations.items(), key=lambda one: (one[0] != function.opset, one[0]))
        for place, (opset, block) in enumerate(blocks):
            operations(block, found, kinds, folder, own if place == 0 else [*own, opset])


def operations(block, found, kinds, folder, prefix):
    for one in block.operations:
        kinds.append(one.type)
        output = one.outputs[0].name if one.outputs and one.outputs[0].name else one.type
        all_values = [(key, binding.value) for key, argument in one.inputs.items() for binding in argument.arguments if binding.WhichOneof("binding") == "value"]
        all_values += list(one.attributes.items())
        for key, value in all_values:
            made = constant(value, folder)
            is_elements = key in ELEMENTS and (one.type == "const" or one.type.startswith("constexpr_"))
            if made is not None:
                found[".".join([*prefix, output] if is_elements else [*prefix, output, key])] = made
        for inner in one.blocks:
            operations(inner, found, kinds, folder, prefix)


def weights(params, shape, name, found):
    """Weights of a layer, with their scales or their table."""
    plain = {"floatValue": "f32", "float16Value": "f16", "int8RawValue": "i8"}
    bits = params.quantization.numberOfBits
    for field, dtype in plain.items():
        stored = getattr(params, field)
        if len(stored):
            data = np.array(list(stored), "f4").tobytes() if field == "floatValue" else bytes(stored)
            found[name] = (dtype, shape or [len(data) // np.dtype(NUMPY[dtype]).itemsize], data, {})
    if params.rawValue:
        data = bytes(params.rawValue)
        if bits in (0, 8):
            found[name] = ("u8", shape if bits and shape else [len(data)], data, {})
        else:
            found[name] = ("u8", [len(data)], data, {"packed_dtype": f"uint{bits}", "packed_shape": shape or [len(data) * 8 // bits]})
    for key, stored in [("scale", params.quantization.linearQuantization.scale), ("bias", params.quantization.linearQuantization.bias), ("table", params.quantization.lookupTableQuantization.floatValue)]:
        if len(stored):
            found[f"{name}.{key}"] = ("f32", [len(stored)], np.array(list(stored), "f4").tobytes(), {})


def shape_of(kind, layer, field):
    """Shape of the weights of a layer, as the documentation of the format gives it."""
    if kind == "convolution" and field == "weights":
        size = list(layer.kernelSize) or [3, 3]
        groups = layer.nGroups or 1
        return ([layer.kernelChannels, layer.outputChannels // groups] if layer.isDeconvolution else [layer.outputChannels, layer.kernelChannels]) + size
    if kind == "convolution3d" and field == "weights":
        groups = layer.nGroups or 1
        return ([layer.inputChannels, layer.outputChannels // groups] if layer.isDeconvolution else [layer.outputChannels, layer.inputChannels // groups]) + [layer.kernelDepth, layer.kernelHeight, layer.kernelWidth]
    if kind == "innerProduct" and field == "weights":
        return [layer.outputChannels, layer.inputChannels]
    if kind == "embedding" and field == "weights":
        return [layer.outputChannels, layer.inputDim]
    if kind == "embeddingND" and field == "weights":
        return [layer.embeddingSize, layer.vocabSize]
    if kind == "batchedMatmul" and field == "weights":
        return [layer.weightMatrixSecondDimension, layer.weightMatrixFirstDimension]
    if kind == "scale":
        return list(layer.shapeScale if field == "scale" else layer.shapeBias)
    if kind == "bias" or kind in ("loadConstant", "loadConstantND"):
        return list(layer.shape)
    if kind == "layerNormalization":
        return list(layer.normalizedShape)
    if field.endswith(("RecursionMatrix", "recursionMatrix")):
        return [layer.outputVectorSize] * 2
    if field.endswith(("WeightMatrix", "weightMatrix")):
        return [layer.outputVectorSize, layer.inputVectorSize]
    return None


def network(spec, found, kinds, prefix):
    for number, step in enumerate(spec.preprocessing):
        kinds.append("preprocessing")
        if step.meanImage.meanImage:
            stored = np.array(list(step.meanImage.meanImage), "f4")
            found[".".join([*prefix, "preprocessing", step.featureName or str(number), "meanImage"])] = ("f32", [len(stored)], stored.tobytes(), {})
    for number, layer in enumerate(spec.layers):
        kind = layer.WhichOneof("layer")
        kinds.append(kind)
        fields(getattr(layer, kind), kind, getattr(layer, kind), [*prefix, layer.name or f"layer_{number}"], found, kinds)
    if spec.HasField("updateParams"):
        kinds.append("updateParams")


def fields(message, kind, layer, path, found, kinds):
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for number, one in enumerate(value if field.is_repeated else [value]):
            own = [*path, field.name, *([str(number)] if field.is_repeated else [])]
            if field.message_type.name == "WeightParams":
                weights(one, shape_of(kind, layer, field.name), ".".join(own), found)
            elif field.message_type.name == "NeuralNetwork":
                network(one, found, kinds, own)
            else:
                fields(one, kind, layer, own, found, kinds)


def lists(message, path, found):
    """Lists of floats of other models; lists of equal lengths are the rows of one tensor."""
    for field, value in message.ListFields():
        own = [*path, field.name]
        dtype = {1: "f64", 2: "f32"}.get(field.type)
        if dtype and field.is_repeated:
            found[".".join(own)] = (dtype, [len(value)], np.array(list(value), NUMPY[dtype]).tobytes(), {})
        elif field.message_type is not None and field.is_repeated and not field.message_type.GetOptions().map_entry:
            rows = [one.ListFields() for one in value]
            only = all(len(row) == 1 and row[0][0].type in (1, 2) and row[0][0].is_repeated for row in rows)
            if only and len({len(row[0][1]) for row in rows}) == 1:
                dtype = {1: "f64", 2: "f32"}[rows[0][0][0].type]
                data = np.array([list(row[0][1]) for row in rows], NUMPY[dtype])
                found[".".join(own)] = (dtype, list(data.shape), data.tobytes(), {})
            elif field.message_type.name not in ("TreeNode", "SparseVector"):
                for number, one in enumerate(value):
                    lists(one, [*own, str(number)], found)
        elif field.message_type is not None and not field.is_repeated:
            lists(value, own, found)


def model(spec, found, kinds, folder, prefix=()):
    kind = spec.WhichOneof("Type")
    content = getattr(spec, kind)
    if kind.startswith("neuralNetwork"):
        network(content, found, kinds, list(prefix))
    elif kind == "mlProgram":
        program(content, found, kinds, folder, list(prefix), spec.description.defaultFunctionName or "main")
    elif kind.startswith("pipeline"):
        pipeline = content if kind == "pipeline" else content.pipeline
        for number, one in enumerate(pipeline.models):
            kinds.append(one.WhichOneof("Type"))
            model(one, found, kinds, folder, [*prefix, pipeline.names[number] if number < len(pipeline.names) else f"model_{number}"])
    else:
        kinds.append(kind)
        lists(content, list(prefix), found)


def read(path):
    """Tensors of a model or a package by their names, and the types of its layers and operations."""
    # coremltools wants the folders of the manifest, also without files; git does not keep these.
    manifest = path / "Manifest.json"
    for item in json.loads(manifest.read_text())["itemInfoEntries"].values() if manifest.exists() else []:
        if not (path / "Data" / item["path"]).exists():
            (path / "Data" / item["path"]).mkdir()
    spec = ct.utils.load_spec(str(path))
    found, kinds = {}, []
    model(spec, found, kinds, path / "Data/com.apple.CoreML")
    return spec, found, kinds


# Neural networks.


def builder(inputs, outputs, **more):
    own = NeuralNetworkBuilder([(name, datatypes.Array(*shape)) for name, shape in inputs], [(name, shape and datatypes.Array(*shape)) for name, shape in outputs], disable_rank5_shape_mapping=True, **more)
    own.spec.description.metadata.author = "Weighbridge"
    return own


def conv():
    b = builder([("image", (1, 3, 8, 8))], [("y", None)])
    b.add_convolution("conv1", 3, 4, 3, 3, 1, 1, "same", 1, values((3, 3, 3, 4), 1), values(4, 2), True, input_name="image", output_name="a")
    b.add_convolution("depth", 1, 4, 3, 3, 1, 1, "valid", 4, values((3, 3, 1, 4), 3), None, False, input_name="a", output_name="b")
    b.add_batchnorm("bn", 4, values(4, 4), values(4, 5), values(4, 6), np.abs(values(4, 7)), input_name="b", output_name="c")
    b.add_activation("prelu", "PRELU", "c", "d", params=values(4, 8))
    b.add_convolution("up", 4, 2, 2, 2, 2, 2, "valid", 1, values((2, 2, 4, 2), 9), values(2, 10), True, is_deconv=True, input_name="d", output_name="e")
    b.add_scale("scale", values((2, 1, 1), 11), values((2,), 12), True, "e", "f", shape_scale=[2, 1, 1], shape_bias=[2])
    b.add_bias("bias", values((2, 1, 1), 13), "f", "g", shape_bias=[2, 1, 1])
    b.add_convolution3d("conv3d", 2, 4, 1, 2, 2, values((4, 1, 1, 2, 2), 14), values(4, 15), True, groups=2, input_name="g", output_name="h")
    b.add_pooling("pool", 2, 2, 2, 2, "MAX", "VALID", "h", "y")
    return b.spec


def dense(b, name, source, target, inputs, outputs, seed):
    b.add_inner_product(name, values((outputs, inputs), seed), values(outputs, seed + 1), inputs, outputs, True, source, target)


def plain(inputs=12, hidden=16, outputs=4):
    b = builder([("x", (inputs,))], [("y", None)])
    dense(b, "fc1", "x", "a", inputs, hidden, 1)
    b.add_activation("relu", "RELU", "a", "b")
    dense(b, "fc2", "b", "y", hidden, outputs, 3)
    b.spec.description.metadata.shortDescription = "two layers"
    b.spec.description.metadata.versionString = "1.2"
    b.spec.description.metadata.license = "MIT"
    b.spec.description.metadata.userDefined["key"] = "a value"
    return b.spec


def recurrent():
    states = [(name, (1, 1, size, 1, 1)) for name, size in [("h0", 4), ("g0", 4), ("c0", 2), ("d0", 2), ("e0", 3), ("e1", 3), ("e2", 3), ("e3", 3)]]
    b = builder([("x", (5, 1, 3, 1, 1)), *states], [("y", None)])
    b.add_simple_rnn("rnn", values((4, 4), 1), values((4, 3), 2), values(4, 3), 4, 3, "TANH", ["x", "h0"], ["r", "h1"], True)
    gru = [values((4, 4), seed) for seed in (4, 5, 6)], [values((4, 4), seed) for seed in (7, 8, 9)], [values(4, seed) for seed in (10, 11, 12)]
    b.add_gru("gru", *gru, 4, 4, ["r", "g0"], ["g", "g1"])
    one = [[values((2, 2), seed) for seed in range(start, start + 4)] for start in (20,)][0], [values((2, 4), seed) for seed in range(30, 34)], [values(2, seed) for seed in range(40, 44)], [values(2, seed) for seed in range(50, 53)]
    b.add_unilstm("lstm", *one[:3], 2, 4, ["g", "c0", "d0"], ["l", "c1", "d1"], peep=one[3])
    two = [values((3, 3), seed) for seed in range(60, 64)], [values((3, 2), seed) for seed in range(64, 68)], [values(3, seed) for seed in range(68, 72)], [values((3, 3), seed) for seed in range(72, 76)], [values((3, 2), seed) for seed in range(76, 80)], [values(3, seed) for seed in range(80, 84)]
    b.add_bidirlstm("bilstm", *two, 3, 2, ["l", "e0", "e1", "e2", "e3"], ["y", "f0", "f1", "f2", "f3"])
    return b.spec


def tables():
    b = builder([("x", (2, 1))], [("y", None)])
    b.add_embedding("old", values((3, 7), 1), values(3, 2), 7, 3, True, "x", "a")
    b.add_embedding_nd("new", "x", "b", 7, 5, values((5, 7), 3), values(5, 4))
    b.add_load_constant("constant", "c", values((2, 1, 3), 5), [2, 1, 3])
    b.add_load_constant_nd("nd", "d", values((2, 3, 4), 6), [2, 3, 4])
    b.add_layer_normalization("norm", "d", "e", [4], values(4, 7), values(4, 8))
    b.add_batched_mat_mul("matmul", ["e"], "y", weight_matrix_rows=4, weight_matrix_columns=6, W=values((4, 6), 9), bias=values(6, 10))
    return b.spec


def reduced(bits, mode):
    """A network with its weights as `bits` bits."""
    def make():
        own = ct.models.MLModel(plain(12, 17, 5) if bits % 2 else plain(), skip_model_load=True)
        with contextlib.redirect_stdout(io.StringIO()):
            made = quantization_utils.quantize_weights(own, bits, mode)
        return made if isinstance(made, proto.Model_pb2.Model) else made.get_spec()
    return make


def loops():
    b = builder([("x", (1,))], [("y", None)])
    b.add_load_constant_nd("limit", "limit", np.array([3.0]), [1])
    b.add_copy("copy", "x", "y")
    loop = b.add_loop("loop", max_iterations=5)
    body = NeuralNetworkBuilder(nn_spec=loop.loop.bodyNetwork)
    dense(body, "inner", "y", "z", 1, 1, 5)
    body.add_copy("back", "z", "y")
    b.add_less_than("less", ["y", "limit"], "flag")
    branch = b.add_branch("branch", "flag")
    yes, no = NeuralNetworkBuilder(nn_spec=branch.branch.ifBranch), NeuralNetworkBuilder(nn_spec=branch.branch.elseBranch)
    dense(yes, "inner", "y", "y", 1, 1, 7)
    dense(no, "inner", "y", "y", 1, 1, 9)
    return b.spec


def custom():
    b = builder([("x", (4,))], [("y", None)])
    params = proto.NeuralNetwork_pb2.CustomLayerParams(className="MyLayer", description="of the application")
    params.parameters["alpha"].doubleValue = 0.5
    params.parameters["words"].stringValue = "some words"
    params.weights.add().floatValue.extend(values(6, 1))
    params.weights.add().rawValue = b"\x01\x02\x03"
    params.weights.add().int8RawValue = b"\xff\x02"
    b.add_custom("mine", ["x"], ["y"], params)
    return b.spec


def classifier():
    b = builder([("image", (3, 4, 4))], [("scores", (2,))], mode="classifier")
    b.set_pre_processing_parameters(image_input_names=["image"], red_bias=-1.0, image_scale=1 / 255)
    mean = b.nn_spec.preprocessing.add(featureName="image")
    mean.meanImage.meanImage.extend(values(48, 1))
    b.add_flatten("flatten", 0, "image", "flat")
    dense(b, "fc", "flat", "logits", 48, 2, 2)
    b.add_softmax("softmax", "logits", "scores")
    b.set_class_labels(["cat", "dog"], predicted_feature_name="label", prediction_blob="scores")
    b.make_updatable(["fc"])
    b.set_categorical_cross_entropy_loss("loss", "scores")
    b.set_epochs(3, [1, 3])
    return b.spec


# Other models.


def ports(spec, inputs, outputs):
    for name, size in inputs:
        one = spec.description.input.add(name=name)
        one.type.multiArrayType.dataType = 65600
        one.type.multiArrayType.shape.extend([size])
    for name in outputs:
        spec.description.output.add(name=name).type.doubleType.SetInParent()
    spec.specificationVersion = 1
    return spec


def glm():
    spec = ports(proto.Model_pb2.Model(), [("x", 3)], ["y"])
    spec.glmRegressor.weights.add().value.extend([0.1, -2.5, 1e300])
    spec.glmRegressor.offset.append(0.25)
    return spec


def logistic():
    spec = ports(proto.Model_pb2.Model(), [("x", 4)], [])
    spec.description.output.add(name="class").type.int64Type.SetInParent()
    own = spec.glmClassifier
    for row in np.random.RandomState(1).standard_normal((3, 4)):
        own.weights.add().value.extend(row)
    own.offset.extend([0.5, 0.25, -1.0])
    own.classEncoding = own.OneVsRest
    own.int64ClassLabels.vector.extend([-1, 0, 7])
    return spec


def vectors():
    from sklearn.svm import SVC
    rng = np.random.RandomState(2)
    own = SVC(probability=True, random_state=1).fit(rng.standard_normal((20, 3)), np.arange(20) % 2)
    return ct.converters.sklearn.convert(own).get_spec()


def forest():
    from sklearn.ensemble import RandomForestRegressor
    rng = np.random.RandomState(3)
    own = RandomForestRegressor(3, max_depth=2, random_state=1).fit(rng.standard_normal((20, 3)), rng.standard_normal(20))
    return ct.converters.sklearn.convert(own).get_spec()


def steps():
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler
    rng = np.random.RandomState(4)
    own = Pipeline([("scale", StandardScaler()), ("linear", LinearRegression())]).fit(rng.standard_normal((9, 3)), rng.standard_normal(9))
    spec = ct.converters.sklearn.convert(own).get_spec()
    nested = spec.pipelineRegressor.pipeline if spec.WhichOneof("Type") == "pipelineRegressor" else spec.pipeline
    nested.models.add().CopyFrom(plain(3, 4, 2))
    nested.names.extend([f"step{number}" for number in range(len(nested.names), len(nested.models))])
    return spec


def neighbours():
    spec = ports(proto.Model_pb2.Model(), [("x", 2)], [])
    spec.description.output.add(name="label").type.stringType.SetInParent()
    own = spec.kNearestNeighborsClassifier
    own.nearestNeighborsIndex.numberOfDimensions = 2
    for row in values((5, 2), 1):
        own.nearestNeighborsIndex.floatSamples.add().vector.extend(row)
    own.nearestNeighborsIndex.linearIndex.SetInParent()
    own.numberOfNeighbors.defaultValue = 3
    own.stringClassLabels.vector.extend(["a", "b", "a", "b", "a"])
    own.uniformWeighting.SetInParent()
    return spec


def opaque():
    spec = ports(proto.Model_pb2.Model(), [("x", 2)], ["y"])
    spec.customModel.className = "MyModel"
    spec.customModel.parameters["path"].stringValue = "a value"
    spec.customModel.parameters["data"].bytesValue = b"\0\1\2"
    return spec


def linked():
    spec = ports(proto.Model_pb2.Model(), [("x", 2)], ["y"])
    spec.linkedModel.linkedModelFile.linkedModelFileName.defaultValue = "other.mlmodelc"
    return spec


# Programs.


def converted(made, target=ct.target.iOS16, half=False):
    precision = ct.precision.FLOAT16 if half else ct.precision.FLOAT32
    return ct.convert(made, convert_to="mlprogram", minimum_deployment_target=target, compute_precision=precision, skip_model_load=True)


def mlp(target=ct.target.iOS16, width=32, seed=1):
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, width))], opset_version=target)
    def made(x):
        y = mb.linear(x=x, weight=mb.const(val=values((width, width), seed), name="fc1.weight"), bias=mb.const(val=values(width, seed + 1), name="fc1.bias"))
        y = mb.relu(x=y)
        return mb.linear(x=y, weight=mb.const(val=values((8, width), seed + 2), name="fc2.weight"), bias=mb.const(val=values(8, seed + 3), name="fc2.bias"), name="y")
    return made


def compressed(config, way, target=ct.target.iOS16):
    def make():
        own = converted(mlp(target), target)
        options = cto.OptimizationConfig(global_config=config())
        return getattr(cto, way)(own, options)
    return make


def jointly():
    own = converted(mlp(ct.target.iOS18), ct.target.iOS18)
    prune = cto.OptimizationConfig(global_config=cto.OpMagnitudePrunerConfig(target_sparsity=0.6, weight_threshold=0))
    own = cto.prune_weights(own, prune)
    lut = cto.OptimizationConfig(global_config=cto.OpPalettizerConfig(nbits=4, weight_threshold=0))
    return cto.palettize_weights(own, lut, joint_compression=True)


def image():
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 3, 8, 8))], opset_version=ct.target.iOS15)
    def made(image):
        y = mb.conv(x=image, weight=mb.const(val=values((4, 3, 3, 3), 1), name="conv.weight"), strides=[2, 2], pad_type="same")
        return mb.reduce_mean(x=y, axes=[2, 3], name="y")
    return converted(made, ct.target.iOS15, half=True)


def control():
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 4))], opset_version=ct.target.iOS16)
    def made(x):
        flag = mb.greater(x=mb.reduce_sum(x=x, axes=[0, 1]), y=0.0)
        table = values((16, 4), 1)
        y = mb.cond(pred=flag, _true_fn=lambda: mb.linear(x=x, weight=table), _false_fn=lambda: mb.linear(x=x, weight=-table))
        return mb.while_loop(_cond=lambda y: mb.less(x=mb.reduce_sum(x=y, axes=[0, 1]), y=9.0), _body=lambda y: mb.mul(x=y, y=values((1, 16), 2)), loop_vars=(y,))
    return converted(made)


def dtypes():
    """A constant of each dtype that programs of coremltools have, small and large."""
    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=ct.target.iOS18)
    def made(x):
        outputs = [x]
        for number, dtype in enumerate(["f4", "f2", "i4", "i2", "u2", "i1", "u1", "?"]):
            for size in (3, 40):
                own = np.random.RandomState(number).randint(-100 if dtype[0] in "if" else 0, 100, size).astype(dtype)
                outputs.append(mb.identity(x=mb.const(val=own, name=f"{np.dtype(dtype).name}_{size}")))
        return tuple(outputs)
    return converted(made, ct.target.iOS18)


def states():
    @mb.program(input_specs=[mb.TensorSpec(shape=(2,)), mb.StateTensorSpec((2,), dtype=types.fp16)], opset_version=ct.target.iOS18)
    def made(x, cache):
        total = mb.add(x=mb.read_state(input=cache), y=values(2, 1).astype("f2"))
        mb.coreml_update_state(state=cache, value=total)
        return mb.add(x=x, y=values(2, 2), name="y")
    return converted(made, ct.target.iOS18, half=True)


def functions(folder):
    """A package of two functions that share a weight."""
    for name, seed in [("one", 1), ("two", 1)]:
        converted(mlp(ct.target.iOS18, 24, seed), ct.target.iOS18).save(str(folder / f"{name}.mlpackage"))
    own = ct.utils.MultiFunctionDescriptor()
    own.add_function(str(folder / "one.mlpackage"), "main", "first")
    own.add_function(str(folder / "two.mlpackage"), "main", "second")
    own.default_function_name = "second"
    ct.utils.save_multifunction(own, str(folder / "functions.mlpackage"))
    return folder / "functions.mlpackage"


def value(number, shape, blob=None, data=None):
    own = proto.MIL_pb2.Value()
    own.type.tensorType.dataType = number
    own.type.tensorType.rank = len(shape)
    for size in shape:
        own.type.tensorType.dimensions.add().constant.size = size
    if blob is None:
        own.immediateValue.tensor.bytes.values = data
    else:
        own.blobFileValue.fileName, own.blobFileValue.offset = "@model_path/weights/weight.bin", blob
    return own


def blobs(folder):
    """A package with a blob of every dtype that coremltools can write, and small constants of packed integers."""
    converted(mlp(ct.target.iOS18, 8), ct.target.iOS18).save(str(folder / "blobs.mlpackage"))
    package = folder / "blobs.mlpackage"
    spec = ct.utils.load_spec(str(package))
    path = package / WEIGHTS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    writer = BlobWriter(str(path))
    block = spec.mlProgram.functions["main"].block_specializations["CoreML8"]
    del block.operations[:]
    rng = np.random.RandomState(5)
    for number, name in READERS.items():
        dtype = {"fp16": "u2", "float": "f4", "int4": "i1"}.get(name) or (("i" if name[0] == "i" else "u") + str(max(1, int(name.lstrip("uint")) // 8)))
        top = 2 ** PACKED[number][1] if number in PACKED else 100
        low = -8 if name == "int4" else 0
        own = rng.randint(low, 8 if name == "int4" else top, 35).astype(dtype)
        one = block.operations.add(type="const")
        one.attributes["val"].CopyFrom(value(number, [5, 7], blob=getattr(writer, f"write_{name}_data")(own)))
        one.attributes["name"].CopyFrom(spec_text(name))
        one.outputs.add(name=name).type.CopyFrom(one.attributes["val"].type)
        if number in PACKED:
            one = block.operations.add(type="const")
            one.attributes["val"].CopyFrom(value(number, [9], data=packed(own[:9], PACKED[number][1])))
            one.outputs.add(name=f"{name}_small").type.CopyFrom(one.attributes["val"].type)
    del writer
    one = block.operations.add(type="identity")
    one.inputs["x"].arguments.add(name="x")
    one.outputs.add(name="y").type.CopyFrom(spec.mlProgram.functions["main"].inputs[0].type)
    one = block.operations.add(type="custom_layer")
    one.inputs["x"].arguments.add(name="x")
    for name in [output.name for other in block.operations[:-2] for output in other.outputs]:
        one.inputs["x"].arguments.add(name=name)
    one.attributes["class_name"].CopyFrom(spec_text("MyOperation"))
    one.outputs.add(name="z").type.CopyFrom(spec.mlProgram.functions["main"].inputs[0].type)
    (package / MODEL).write_bytes(spec.SerializeToString(deterministic=True))
    return package


def spec_text(text):
    own = proto.MIL_pb2.Value()
    own.type.tensorType.dataType = 2
    own.immediateValue.tensor.strings.values.append(text)
    return own


MODELS = {
    "conv": conv, "plain": plain, "recurrent": recurrent, "tables": tables, "loops": loops, "custom": custom, "classifier": classifier,
    "half": reduced(16, "linear"), "linear8": reduced(8, "linear"), "linear3": reduced(3, "linear"), "symmetric8": reduced(8, "linear_symmetric"), "linear5": reduced(5, "linear"), "lut4": reduced(4, "linear_lut"), "lut1": reduced(1, "linear_lut"), "lut6": reduced(6, "linear_lut"),
    "glm": glm, "logistic": logistic, "vectors": vectors, "forest": forest, "steps": steps, "neighbours": neighbours, "opaque": opaque, "linked": linked,
}
PACKAGES = {
    "mlp": lambda: converted(mlp()), "mlp_half": lambda: converted(mlp(), half=True), "image": image, "control": control, "dtypes": dtypes, "states": states,
    "affine8": compressed(lambda: cto.OpLinearQuantizerConfig(weight_threshold=0), "linear_quantize_weights"),
    "affine8_tensor": compressed(lambda: cto.OpLinearQuantizerConfig(mode="linear", weight_threshold=0, granularity="per_tensor"), "linear_quantize_weights"),
    "palette4": compressed(lambda: cto.OpPalettizerConfig(nbits=4, mode="uniform", weight_threshold=0), "palettize_weights"),
    "palette6": compressed(lambda: cto.OpPalettizerConfig(nbits=6, mode="uniform", weight_threshold=0), "palettize_weights"),
    "sparse": compressed(lambda: cto.OpThresholdPrunerConfig(threshold=0.5, weight_threshold=0, minimum_sparsity_percentile=0.1), "prune_weights"),
    "block4": compressed(lambda: cto.OpLinearQuantizerConfig(dtype="int4", granularity="per_block", block_size=8, weight_threshold=0), "linear_quantize_weights", ct.target.iOS18),
    "groups3": compressed(lambda: cto.OpPalettizerConfig(nbits=3, mode="uniform", granularity="per_grouped_channel", group_size=4, weight_threshold=0), "palettize_weights", ct.target.iOS18),
    "joint": jointly,
}
FOLDERS = {"functions": functions, "blobs": blobs}
FILES = [f"{name}.mlmodel" for name in MODELS] + [f"{name}.mlpackage" for name in [*PACKAGES, *FOLDERS]]


def tidy(package):
    """Rewrites the parts of a package that differ from one run to the next."""
    path = package / "Manifest.json"
    manifest = json.loads(path.read_text())
    items = {str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])): item for item in manifest["itemInfoEntries"].values()}
    root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    manifest["itemInfoEntries"] = dict(sorted(items.items()))
    manifest["rootModelIdentifier"] = str(uuid.uuid5(uuid.NAMESPACE_URL, root))
    path.write_text(json.dumps(manifest, indent=4))
    spec = ct.utils.load_spec(str(package))
    (package / MODEL).write_bytes(spec.SerializeToString(deterministic=True))
    (package / MODEL).chmod(0o644)


def bad():
    plain_bytes = (GOOD / "plain.mlmodel").read_bytes()
    files = {"truncated.mlmodel": plain_bytes[:len(plain_bytes) * 2 // 3], "no_content.mlmodel": plain_bytes[:plain_bytes.index(b"\xa2\x1f")]}
    spec = plain()
    del spec.neuralNetwork.layers[0].innerProduct.weights.floatValue[-1]
    files["length.mlmodel"] = spec.SerializeToString(deterministic=True)
    spec = ct.utils.load_spec(str(GOOD / "linear8.mlmodel"))
    spec.neuralNetwork.layers[0].innerProduct.weights.quantization.numberOfBits = 9
    files["bits.mlmodel"] = spec.SerializeToString(deterministic=True)
    spec = plain()
    spec.neuralNetwork.layers[0].innerProduct.inputChannels = 2**63
    files["overflow.mlmodel"] = spec.SerializeToString(deterministic=True)
    spec = proto.Model_pb2.Model(specificationVersion=4)
    inner = spec.neuralNetwork
    for _ in range(45):
        layer = inner.layers.add(name="b")
        inner = layer.branch.ifBranch
    files["deep.mlmodel"] = spec.SerializeToString(deterministic=True)
    for name, data in files.items():
        (BAD / name).write_bytes(data)

    def package(name, change):
        target = BAD / f"{name}.mlpackage"
        shutil.copytree(GOOD / "mlp.mlpackage", target)
        change(target)

    def with_spec(edit):
        def change(target):
            spec = ct.utils.load_spec(str(target))
            (block,) = spec.mlProgram.functions["main"].block_specializations.values()
            edit([one for one in block.operations if one.attributes["val"].HasField("blobFileValue")][0].attributes["val"])
            (target / MODEL).write_bytes(spec.SerializeToString(deterministic=True))
        return change

    def weights_with(edit):
        def change(target):
            (target / WEIGHTS).write_bytes(edit((target / WEIGHTS).read_bytes()))
        return change

    def manifest_with(edit):
        def change(target):
            manifest = json.loads((target / "Manifest.json").read_text())
            edit(manifest)
            (target / "Manifest.json").write_text(json.dumps(manifest))
        return change

    package("no_weights", lambda target: shutil.rmtree((target / WEIGHTS).parent))
    package("cut_weights", weights_with(lambda data: data[:-100]))
    package("sentinel", weights_with(lambda data: data[:64] + b"\0" + data[65:]))
    package("version", weights_with(lambda data: data[:4] + b"\3" + data[5:]))
    package("blob_dtype", weights_with(lambda data: data[:68] + b"\1" + data[69:]))
    package("blob_unknown", weights_with(lambda data: data[:68] + b"\x63" + data[69:]))
    package("blob_length", weights_with(lambda data: data[:72] + b"\4" + data[73:]))
    package("blob_offset", with_spec(lambda own: setattr(own.blobFileValue, "offset", 1 << 40)))
    package("outside", with_spec(lambda own: setattr(own.blobFileValue, "fileName", "@model_path/../../../../secret.bin")))
    package("absolute", with_spec(lambda own: setattr(own.blobFileValue, "fileName", "/etc/passwd")))
    package("shape", with_spec(lambda own: setattr(own.type.tensorType.dimensions[0].constant, "size", 2**63)))
    package("manifest_root", manifest_with(lambda own: own.update(rootModelIdentifier="missing")))
    package("manifest_path", manifest_with(lambda own: [item.update(path="../../model.mlmodel") for item in own["itemInfoEntries"].values()]))
    package("no_model", lambda target: (target / MODEL).unlink())


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    GOOD.mkdir(parents=True)
    BAD.mkdir()
    with contextlib.redirect_stderr(io.StringIO()), tempfile.TemporaryDirectory() as name:
        for file, make in MODELS.items():
            (GOOD / f"{file}.mlmodel").write_bytes(make().SerializeToString(deterministic=True))
        for file, make in PACKAGES.items():
            make().save(str(GOOD / f"{file}.mlpackage"))
            tidy(GOOD / f"{file}.mlpackage")
        for file, make in FOLDERS.items():
            shutil.copytree(make(pathlib.Path(name)), GOOD / f"{file}.mlpackage")
            tidy(GOOD / f"{file}.mlpackage")
    expected = {}
    for file in FILES:
        _, found, kinds = read(GOOD / file)
        tensors = {name: {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(data).hexdigest(), **more} for name, (dtype, shape, data, more) in found.items()}
        expected[file] = {"tensors": tensors, "operators": sorted(kinds)}
    (ROOT / "expected.json").write_text(json.dumps(expected, separators=(",", ":"), sort_keys=True) + "\n")
    bad()
    print(f"{len(FILES)} files, {sum(len(one['tensors']) for one in expected.values())} tensors")
    sys.exit(0)


if __name__ == "__main__":
    main()
