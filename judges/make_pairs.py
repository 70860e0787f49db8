"""Models with random weights, each with an input and its output, for pairs_judge.py and for the book.

    python judges/make_pairs.py FRAMEWORK FOLDER [--packages=FOLDER]     keras, tensorflow, flax, mxnet or paddle
    python judges/make_pairs.py FRAMEWORK samples                        tensorflow, flax or mxnet

The first makes the models that the judge moves to PyTorch. The second makes small ones in testdata/samples/pairs, which the book
shows. Needs the packages of judges/FRAMEWORK.txt; tensorflow and flax also transformers 4, which can be in a folder of its own.
"""

import os
import pathlib
import shutil
import sys
import tempfile

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TRANSFORMERS_NO_ADVISORY_WARNINGS="1", TF_CPP_MIN_LOG_LEVEL="3",
)

import numpy as np  # noqa: E402

SAMPLES = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "samples" / "pairs"
RNG = np.random.RandomState(5)
BERT = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "max_position_embeddings": 20, "type_vocab_size": 2}
SMALL_BERT = {"vocab_size": 12, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8,
              "max_position_embeddings": 8, "type_vocab_size": 2}
GPT2 = {"vocab_size": 61, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2}
TOKENS = np.array([[5, 9, 10, 3, 7, 2, 4], [1, 11, 11, 8, 0, 6, 2]], "int32")


def weight(name, shape):
    """Random values, such that each weight has an effect, and outputs keep the size of inputs."""
    shape = tuple(shape)
    if len(shape) > 1:
        return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape) / max(shape))).astype("float32")
    values = (RNG.standard_normal(shape) / 10).astype("float32")
    # Variances and scales are near 1.
    return values if name.endswith(("bias", "beta", "mean")) else 1 + np.abs(values)


def image(*shape):
    return RNG.standard_normal(shape).astype("float32")


def folder_of(root, name):
    folder = root / name
    folder.mkdir(parents=True)
    return folder


def make_mxnet(root, small):
    import mxnet as mx
    from mxnet.gluon.model_zoo import vision

    folder = folder_of(root, "mxnet-resnet")
    net = vision.resnet18_v1(classes=10)
    if small:
        net = vision.ResNetV1(vision.BasicBlockV1, [1, 1, 1, 1], [2, 2, 3, 4, 5], classes=2)
    net.initialize()
    x = mx.nd.array(image(2, 3, 64, 64))
    net(x)
    for name, parameter in net.collect_params().items():
        parameter.set_data(mx.nd.array(weight(name, parameter.shape)))
    net.save_parameters(str(folder / "resnet.params"))
    np.savez(folder / "expected.npz", x=x.asnumpy(), y=net(x).asnumpy())


def make_paddle(root, small):
    import paddle

    folder = folder_of(root, "paddle-resnet")
    net = paddle.vision.models.resnet18(num_classes=10)
    net.set_state_dict({name: paddle.to_tensor(weight(name, value.shape)) for name, value in net.state_dict().items()})
    net.eval()
    x = image(2, 3, 64, 64)
    paddle.save(net.state_dict(), str(folder / "resnet.pdparams"))
    np.savez(folder / "expected.npz", x=x, y=net(paddle.to_tensor(x)).numpy())


def keras_models():
    from keras import applications

    like = {"weights": None, "classes": 10, "input_shape": (64, 64, 3), "classifier_activation": None}
    return {"keras-densenet": applications.DenseNet121(**like), "keras-mobilenet": applications.MobileNetV2(alpha=0.35, **like)}


def make_keras(root, small):
    for name, net in keras_models().items():
        folder = folder_of(root, name)
        for variable in net.weights:
            variable.assign(weight(variable.path, variable.shape))
        x = image(2, 64, 64, 3)
        net.save(folder / ("model.keras" if name == "keras-densenet" else "model.h5"))
        np.savez(folder / "expected.npz", x=x.transpose(0, 3, 1, 2), y=np.asarray(net(x, training=False)))


def google_bert(name):
    """The name that google-research/bert gives to a variable of TFBertForPreTraining."""
    name = name.split(":")[0].replace("tf_bert_for_pre_training/", "").replace("layer_._", "layer_")
    if "_embeddings/" in name:
        return name.rsplit("/", 1)[0]
    known = {
        "nsp___cls/seq_relationship/kernel": "cls/seq_relationship/output_weights",
        "nsp___cls/seq_relationship/bias": "cls/seq_relationship/output_bias",
        "mlm___cls/predictions/bias": "cls/predictions/output_bias",
    }
    return known.get(name, name.replace("mlm___cls/", "cls/"))


def make_tensorflow(root, small):
    # transformers 4 has models of Keras 2.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    from transformers import BertConfig, TFBertForPreTraining

    v1 = tf.compat.v1
    folder = folder_of(root, "tensorflow-bert")
    config = BertConfig(**(SMALL_BERT if small else BERT))
    net = TFBertForPreTraining(config)
    net(TOKENS)
    named = {}
    for variable in net.weights:
        variable.assign(weight(variable.name.split(":")[0], variable.shape))
        name = google_bert(variable.name)
        # The original stores this one as (out, in).
        named[name] = variable.numpy().T if name.endswith("output_weights") else variable.numpy()
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in named.items():
            v1.get_variable(name, initializer=value)
            if not small:
                for slot in ("adam_m", "adam_v"):
                    v1.get_variable(f"{name}/{slot}", initializer=np.zeros_like(value))
        v1.get_variable("global_step", initializer=np.int64(7))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False)
    config.save_pretrained(folder)
    found = net(TOKENS)
    np.savez(folder / "expected.npz", x=TOKENS, y=found.prediction_logits.numpy(), z=found.seq_relationship_logits.numpy())


def make_flax(root, small):
    import jax
    from flax.traverse_util import flatten_dict, unflatten_dict
    from transformers import BertConfig, FlaxBertForMaskedLM, FlaxGPT2LMHeadModel, GPT2Config

    models = {
        "flax-bert": FlaxBertForMaskedLM(BertConfig(**(SMALL_BERT if small else BERT))),
        "flax-gpt2": FlaxGPT2LMHeadModel(GPT2Config(**GPT2)),
    }
    for name, net in models.items():
        tree = flatten_dict(jax.device_get(net.params))
        net.params = unflatten_dict({path: weight(path[-1], value.shape) for path, value in tree.items()})
        net.save_pretrained(folder_of(root, name))
        np.savez(root / name / "expected.npz", x=TOKENS, y=np.asarray(net(TOKENS)[0]))


def samples(make):
    """Puts the files of the small models into the samples of the book."""
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        make(root, True)
        for name in ("mxnet-resnet", "flax-bert", "tensorflow-bert"):
            if (root / name).exists():
                (root / name / "expected.npz").unlink()
                shutil.rmtree(SAMPLES / name, ignore_errors=True)
                shutil.copytree(root / name, SAMPLES / name)


def main():
    # The environment's own packages come first.
    sys.path.extend(word.split("=", 1)[1] for word in sys.argv if word.startswith("--packages="))
    make, folder = globals()["make_" + sys.argv[1]], sys.argv[2]
    if folder == "samples":
        samples(make)
    else:
        make(pathlib.Path(folder), False)
    print(f"{sys.argv[1]}: models made")


if __name__ == "__main__":
    main()
