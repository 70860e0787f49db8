"""Makes the golden shards in the folder `shards` beside this script, as Hugging Face's `save_pretrained` does.

    pip install safetensors numpy
    python make_shards.py

The tensors are cut by the rules of `huggingface_hub.split_state_dict_into_shards_factory` (written out below), each shard is
written by safetensors with the metadata {"format": "pt"}, and the list by json.dumps. `shards.json` holds what safetensors
reads back, through the list.
"""

import json
import pathlib

import numpy as np
import safetensors
import safetensors.numpy

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "shards"
MOST = 100


def split(tensors):
    shards, current, size = [], {}, 0
    for name, tensor in tensors.items():
        if tensor.nbytes > MOST:
            shards.append({name: tensor})
            continue
        if size + tensor.nbytes > MOST:
            shards.append(current)
            current, size = {}, 0
        current[name] = tensor
        size += tensor.nbytes
    return shards + [current] if current else shards


def main():
    rng = np.random.default_rng(5)
    tensors = {
        "embed.weight": rng.standard_normal((6, 8)).astype(np.float32),
        "h.0.w": rng.standard_normal((3, 4)).astype(np.float32),
        "h.0.b": rng.standard_normal(4).astype(np.float64),
        "h.1.w": rng.integers(0, 9, (5, 5)).astype(np.int16),
        "step": np.array(7, np.int64),
        "größe": np.arange(3, dtype=np.uint8),
        "none": np.zeros((0, 2), np.float32),
    }
    shards = split(tensors)
    FOLDER.mkdir(exist_ok=True)
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        safetensors.numpy.save_file(shard, FOLDER / name, metadata={"format": "pt"})
        weight_map.update({key: name for key in shard})
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (FOLDER / "model.safetensors.index.json").write_text(text)

    truth = {}
    for key, name in weight_map.items():
        with safetensors.safe_open(FOLDER / name, framework="numpy") as opened:
            tensor = opened.get_tensor(key)
        truth[key] = {"file": name, "shape": list(tensor.shape), "hex": tensor.tobytes().hex()}
    (HERE / "shards.json").write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n")


main()
