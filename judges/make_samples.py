"""Makes testdata/samples, the models that the README, the book and the demo show.

usage: make_samples.py   (needs torch and safetensors)
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

DATA = Path(__file__).resolve().parent.parent / "testdata"
OUT = DATA / "samples"
DEMO = DATA.parent / "crates/cli/data"


def digits():
    torch.manual_seed(7)
    return nn.Sequential(
        # Names as a hand-written module would have them come from the keys below.
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 2 * 2, 10),
    )


NAMES = {"0": "conv1", "1": "bn1", "4": "conv2", "5": "bn2", "9": "fc"}


def named(state):
    parts = ((key.split(".", 1), value) for key, value in state.items())
    return {f"{NAMES[layer]}.{rest}": value.clone() for (layer, rest), value in parts}


def train(net, steps, rate, only=None):
    images, labels = torch.rand(32, 1, 8, 8), torch.randint(0, 10, (32,))
    weights = [p for name, p in net.named_parameters() if only is None or name.startswith(only)]
    optimizer = torch.optim.Adam(weights, lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    return optimizer


def language_model():
    torch.manual_seed(3)
    state = {"embed.weight": torch.randn(64, 16)}
    for layer in range(2):
        for part, shape in [("attn.qkv", (48, 16)), ("attn.out", (16, 16)), ("mlp.up", (32, 16)), ("mlp.down", (16, 32))]:
            state[f"layers.{layer}.{part}.weight"] = torch.randn(shape) * 0.02
        state[f"layers.{layer}.norm.weight"] = torch.ones(16)
    state["head.weight"] = state["embed.weight"]
    return state


class Evil:
    def __reduce__(self):
        import os
        return os.system, ("echo this file ran a command",)


def evil(path):
    """A state dict with one more entry, which loading would turn into a call."""
    torch.save({"fc.weight": torch.zeros(10, 64), "step": Evil()}, path)


def hugging_face(folder):
    folder.mkdir()
    torch.manual_seed(5)
    state = {
        "bert.embeddings.word_embeddings.weight": torch.randn(32, 8),
        "bert.embeddings.LayerNorm.weight": torch.ones(8),
        "bert.embeddings.LayerNorm.bias": torch.zeros(8),
        "bert.encoder.layer.0.attention.self.query.weight": torch.randn(8, 8) * 0.02,
        "bert.encoder.layer.0.attention.self.key.weight": torch.randn(8, 8) * 0.02,
        "bert.encoder.layer.0.attention.self.value.weight": torch.randn(8, 8) * 0.02,
        "classifier.weight": torch.randn(2, 8) * 0.02,
        "classifier.bias": torch.zeros(2),
    }
    torch.save(state, folder / "pytorch_model.bin")
    config = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 32}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "vocab.txt").write_text("".join(f"word{i}\n" for i in range(32)))


def main():
    for path in OUT.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "README.md":
            path.unlink()
    net = digits()
    net.train()
    optimizer = train(net, 20, 1e-3)
    torch.save(named(net.state_dict()), OUT / "model.pt")
    torch.save({"epoch": 20, "model": named(net.state_dict()), "optimizer": optimizer.state_dict()}, OUT / "checkpoint.pt")
    # Only the last layer is tuned: statistics of batches stay.
    net.eval()
    train(net, 3, 2e-4, only="9")
    torch.save(named(net.state_dict()), OUT / "tuned.pt")
    torch.save(language_model(), OUT / "lm.pt")
    shutil.copy(DATA / "hdf5" / "models" / "dense.keras", OUT)
    evil(OUT / "evil.pt")
    state = {key: value.contiguous() for key, value in language_model().items() if key != "head.weight"}
    save_file(state, str(OUT / "lm.safetensors"), metadata={"format": "pt"})
    whole = (OUT / "lm.safetensors").read_bytes()
    (OUT / "cut.safetensors").write_bytes(whole[: len(whole) * 2 // 3])
    hugging_face(OUT / "bert")
    for kind in ("model", "optimizer"):
        shutil.copy(DATA / "primitiv/good/trained" / f"trained_mlp_a.{kind}", OUT / f"mlp.{kind}")
    (OUT / "paddle").mkdir()
    for name in ("model.pdmodel", "model.pdiparams"):
        shutil.copy(DATA / "paddle/good/p262/cnn_static_infer" / name, OUT / "paddle" / name)
    shutil.copytree(DATA / "biggraph/set1/ckpt_weighted", OUT / "graph/model")
    # Its configuration looks for the names of entities in ../weighted/entities.
    shutil.copytree(DATA / "biggraph/set1/weighted", OUT / "graph/weighted")
    (OUT / "lm.safetensors").chmod(0o644)
    # The command contains those that `demo` shows.
    for path in sorted(DEMO.rglob("*.*")):
        shutil.copy(OUT / path.relative_to(DEMO), path)


if __name__ == "__main__":
    main()
