"""Pairs of frameworks: a model moves from one to the other by the rules of the book's page, and both compute the same.

    python judges/pairs_judge.py there COMMAND FOLDER       torch, torchvision and transformers
    python judges/pairs_judge.py back FRAMEWORK FOLDER      the environment of keras or flax

make_pairs.py makes the models in FOLDER. `there` converts their files with the rules in testdata/samples/pairs, loads them into
PyTorch, and compares the outputs. It also saves models of PyTorch, converts them, and leaves their outputs in FOLDER: `back` loads
and compares these. Every weight must be in the file, and no other.
"""

import os
import pathlib
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TRANSFORMERS_NO_ADVISORY_WARNINGS="1", TF_CPP_MIN_LOG_LEVEL="3")

import numpy as np  # noqa: E402
from make_pairs import BERT, GPT2, SAMPLES, TOKENS, image, keras_models, weight  # noqa: E402

TOLERANCE = 1e-4
CHECKS = FAILURES = 0


def check(good, *words):
    global CHECKS, FAILURES
    CHECKS += 1
    if not good:
        FAILURES += 1
        print("FAILURE:", *words)


def convert(command, source, target, rules):
    words = [command, "convert", str(source), str(target), "--rules", str(SAMPLES / f"{rules}.toml"), "--force"]
    # State of the optimizer, and layers that have names beside numbers.
    words += {"tensorflow-bert": ["--no-state"], "keras-densenet": ["--names", "structured"]}.get(rules, [])
    done = subprocess.run(words, capture_output=True, text=True)
    check(done.returncode == 0, *words, done.stdout, done.stderr)


def compare(found, wanted, name):
    """Compares outputs: the largest difference, relative to the largest value."""
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    check(found.shape == wanted.shape, name, found.shape, wanted.shape)
    if found.shape == wanted.shape:
        error = np.abs(found - wanted).max() / np.abs(wanted).max()
        print(f"{name}: relative difference {error:.1e} of {found.size} outputs")
        check(error < TOLERANCE, name, "the outputs differ")
        # Outputs that are all alike would show nothing.
        check(np.std(wanted) > 0.01 * np.abs(wanted).max(), name, "the outputs are all alike")


# To PyTorch.


def outputs(net, x):
    """The outputs of a network, as arrays."""
    import torch

    net.eval()
    with torch.no_grad():
        found = net(torch.from_numpy(x))
    found = [found] if isinstance(found, torch.Tensor) else found.to_tuple()
    return [value.numpy() for value in found if isinstance(value, torch.Tensor)]


def strict(net):
    """Loads a file into a network of torch."""
    from safetensors.torch import load_file

    def load(path):
        net.load_state_dict(load_file(str(path)), strict=True)
        return net

    return load


def pretrained(model, config=None):
    """Loads a folder with transformers."""

    def load(path):
        if config is not None:
            config.save_pretrained(path.parent)
        net, report = model.from_pretrained(path.parent, output_loading_info=True)
        # These counts of batches are used in training without momentum only: torch adds them.
        report["missing_keys"] = [key for key in report["missing_keys"] if not key.endswith("num_batches_tracked")]
        check(not any(report.values()), path, report)
        return net

    return load


def ways():
    import transformers as hf
    from torchvision import models

    mobile = hf.MobileNetV2Config(num_labels=10, depth_multiplier=0.35, tf_padding=True, layer_norm_eps=1e-3, image_size=64)
    yield "mxnet-resnet", "resnet.params", strict(models.resnet18(num_classes=10))
    yield "paddle-resnet", "resnet.pdparams", strict(models.resnet18(num_classes=10))
    yield "keras-densenet", "model.keras", strict(models.densenet121(num_classes=10))
    yield "keras-mobilenet", "model.h5", pretrained(hf.MobileNetV2ForImageClassification, mobile)
    yield "tensorflow-bert", "bert_model.ckpt.index", pretrained(hf.BertForPreTraining)
    yield "flax-bert", "flax_model.msgpack", pretrained(hf.BertForMaskedLM)
    yield "flax-gpt2", "flax_model.msgpack", pretrained(hf.GPT2LMHeadModel)


def there(command, root):
    for name, file, load in ways():
        folder = root / name
        if not folder.exists():
            print(f"{name}: not judged, it was not made")
            continue
        target = folder / "model.safetensors"
        convert(command, folder / file, target, name)
        if not target.exists():
            continue
        expected = np.load(folder / "expected.npz")
        try:
            net = load(target)
        except (RuntimeError, OSError) as error:
            check(False, name, error)
            continue
        x = expected["x"]
        found = outputs(net, x.astype("int64") if x.dtype.kind == "i" else x)
        for key, value in zip("yz", found):
            if key in expected:
                compare(value, expected[key], f"{name} {key}")
    leave(command, root)


# From PyTorch.


def leave(command, root):
    """Saves models of PyTorch for the way back."""
    import torch
    import transformers as hf
    from safetensors.torch import save_file
    from torchvision import models

    for name, net, file in [
        ("densenet-keras", models.densenet121(num_classes=10), "model.npz"),
        ("bert-flax", hf.BertForMaskedLM(hf.BertConfig(**BERT)), "flax_model.msgpack"),
        ("gpt2-flax", hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)), "flax_model.msgpack"),
    ]:
        folder = root / name
        folder.mkdir(exist_ok=True)
        with torch.no_grad():
            for key, value in net.state_dict().items():
                if value.dtype == torch.float32:
                    value.copy_(torch.from_numpy(weight(key, value.shape)))
        if name == "densenet-keras":
            save_file(net.state_dict(), str(folder / "model.safetensors"))
            x = image(2, 3, 64, 64)
        else:
            net.save_pretrained(folder)
            x = TOKENS.astype("int64")
        convert(command, folder / "model.safetensors", folder / file, name)
        np.savez(folder / "expected.npz", x=x, y=outputs(net, x)[0])


def back_keras(root):
    folder = root / "densenet-keras"
    expected = np.load(folder / "expected.npz")
    net = keras_models()["keras-densenet"]
    arrays = np.load(folder / "model.npz")
    names = {variable.path.replace("/", "."): variable for variable in net.variables}
    check(sorted(names) == sorted(arrays), "names", set(names) ^ set(arrays))
    for name, variable in names.items():
        variable.assign(arrays[name])
    compare(net(expected["x"].transpose(0, 2, 3, 1), training=False), expected["y"], folder.name)


def back_flax(root):
    from transformers import FlaxBertForMaskedLM, FlaxGPT2LMHeadModel

    for name, model in [("bert-flax", FlaxBertForMaskedLM), ("gpt2-flax", FlaxGPT2LMHeadModel)]:
        folder = root / name
        expected = np.load(folder / "expected.npz")
        (folder / "model.safetensors").unlink()
        net = model.from_pretrained(folder)
        compare(net(expected["x"].astype("int32"))[0], expected["y"], name)


def main():
    sys.path.extend(word.split("=", 1)[1] for word in sys.argv if word.startswith("--packages="))
    verb, what, root = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if verb == "there":
        there(what, root)
    else:
        {"keras": back_keras, "flax": back_flax}[what](root)
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0 or CHECKS == 0)


if __name__ == "__main__":
    main()
