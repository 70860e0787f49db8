"""transformers as the judge: what the command makes of PyTorch checkpoints loads with `from_pretrained`.

Small models with random weights are built here, saved as their users save them, and converted. `from_pretrained` of the
transformers in this environment must load what was written, and each weight must have the same bits. Nothing is
downloaded.

    python hf_judge.py path/to/weighbridge
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch  # noqa: E402
import torch.distributed.checkpoint as distributed  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402
from transformers import AutoModel, AutoModelForCausalLM  # noqa: E402

checks = 0


def holds(condition, *told):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"hf_judge: {' '.join(map(str, told))}")


def convert(command, source, target, *flags, code=(0,)):
    ran = subprocess.run(
        [command, "convert", str(source), str(target), "--json", *flags], capture_output=True, text=True
    )
    holds(ran.returncode in code, source, flags, ran.returncode, ran.stdout, ran.stderr)
    return json.loads(ran.stdout)


def reported(command, verb, path, code=(0,)):
    ran = subprocess.run([command, verb, str(path), "--json"], capture_output=True, text=True)
    holds(ran.returncode in code, verb, path, ran.returncode, ran.stdout, ran.stderr)
    return json.loads(ran.stdout)


def models():
    small = {"vocab_size": 61, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    bert = transformers.BertConfig(hidden_size=16, max_position_embeddings=20, **small)
    llama = transformers.LlamaConfig(hidden_size=16, num_key_value_heads=1, max_position_embeddings=20, **small)
    gpt2 = transformers.GPT2Config(vocab_size=61, n_positions=20, n_embd=16, n_layer=2, n_head=2)
    tied = transformers.GPT2Config(vocab_size=53, n_positions=20, n_embd=16, n_layer=1, n_head=2)
    yield "bert", transformers.BertModel(bert), AutoModel
    yield "llama", transformers.LlamaModel(llama), AutoModel
    yield "gpt2", transformers.GPT2Model(gpt2), AutoModel
    yield "gpt2-tied", transformers.GPT2LMHeadModel(tied), AutoModelForCausalLM
    yield "bert-half", transformers.BertModel(bert).to(torch.bfloat16), AutoModel


def same(name, model, folder, loader, **options):
    """The model in `folder` has the bits of `model`, and nothing is missing or left over."""
    loaded, info = loader.from_pretrained(str(folder), output_loading_info=True, local_files_only=True, **options)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        holds(not info[what], name, folder, what, info[what])
    want, found = model.state_dict(), loaded.state_dict()
    holds(want.keys() == found.keys(), name, folder, set(want) ^ set(found))
    for key, tensor in want.items():
        own = found[key]
        holds(tensor.dtype == own.dtype and tensor.shape == own.shape, name, folder, key, tensor.dtype, own.dtype)
        holds(torch.equal(tensor.view(torch.uint8), own.view(torch.uint8)), name, folder, key)


def metadata(path):
    with safe_open(str(path), "pt") as opened:
        return opened.metadata()


def judge(command, work):
    for name, model, loader in models():
        own = {"torch_dtype": torch.bfloat16} if name.endswith("half") else {}
        folder = work / name
        # A state dict that torch.save wrote, in a folder with its configuration.
        saved = folder / "saved"
        saved.mkdir(parents=True)
        model.config.save_pretrained(saved)
        (saved / "tokenizer_config.json").write_text("{}")
        (saved / "special").mkdir()
        (saved / "special" / "merges.txt").write_text("a b\n")
        torch.save(model.state_dict(), saved / "pytorch_model.bin")
        if loads_pytorch():
            same(name, model, saved, loader, **own)

        # One file, beside a configuration that stays where it is.
        file = folder / "file"
        file.mkdir()
        convert(command, saved / "pytorch_model.bin", file / "model.safetensors")
        model.config.save_pretrained(file)
        holds(metadata(file / "model.safetensors")["format"] == "pt", name)
        same(name, model, file, loader, **own)

        # A folder, with its other files.
        report = convert(command, saved, folder / "copied", "--copy-others")
        files = {own["name"] for own in report["files"]}
        others = {"config.json", "tokenizer_config.json", "special/merges.txt"}
        holds(files == {"model.safetensors"} | others, name, files)
        holds(set(reported(command, "info", saved)["others"]) == others, name, "info")
        for other in others:
            holds((folder / "copied" / other).read_bytes() == (saved / other).read_bytes(), name, other)
        same(name, model, folder / "copied", loader, **own)

        # A distributed checkpoint becomes a model of one file.
        if "checkpoint_id" in inspect.signature(distributed.save).parameters:
            distributed.save(model.state_dict(), checkpoint_id=folder / "distributed", no_dist=True)
            whole = folder / "whole"
            whole.mkdir()
            convert(command, folder / "distributed", whole / "model.safetensors")
            model.config.save_pretrained(whole)
            same(name, model, whole, loader, **own)

        # A configuration with code of its own, as transformers writes it.
        model.config.auto_map = {"AutoModel": "modeling.Model"}
        model.config.save_pretrained(folder / "remote")
        del model.config.auto_map
        found = reported(command, "scan", folder / "remote", code=(1,))
        codes = {finding["code"] for file in found["files"] for finding in file["findings"]}
        holds("remote-code" in codes, name, found)

        # Plain, with metadata of the user's.
        convert(command, saved, folder / "plain", "--copy-others", "--plain", "--set-metadata", "license=mit")
        found = metadata(folder / "plain" / "model.safetensors")
        holds(found == {"format": "pt", "license": "mit"}, name, found)
        same(name, model, folder / "plain", loader, **own)

        # Shards of safetensors with their index.
        convert(command, saved, folder / "shards", "--copy-others", "--set", "shard=4KB")
        holds((folder / "shards" / "model.safetensors.index.json").exists(), name)
        same(name, model, folder / "shards", loader, **own)

        # Shards of PyTorch with their index, as save_pretrained writes them where it still does.
        cut = folder / "cut"
        cut.mkdir()
        model.config.save_pretrained(cut)
        state = model.state_dict()
        if not pytorch_shards(model, cut):
            write_shards(state, cut)
        holds((cut / "pytorch_model.bin.index.json").exists(), name)
        holds(len(list(cut.glob("pytorch_model-*.bin"))) > 1, name)
        for target, flags in (("joined", ()), ("recut", ("--set", "shard=4KB"))):
            convert(command, cut, folder / target, "--copy-others", *flags)
            holds((folder / target / "config.json").exists(), name)
            same(name, model, folder / target, loader, **own)

        # Names of modules say that arrays are for PyTorch.
        if not name.endswith("half"):
            convert(command, saved, folder / "arrays.npz", "--plain", code=(0, 1))
            named = folder / "named"
            named.mkdir()
            convert(command, folder / "arrays.npz", named / "model.safetensors")
            model.config.save_pretrained(named)
            holds(metadata(named / "model.safetensors")["format"] == "pt", name)
            same(name, model, named, loader, **own)

        # And back to PyTorch.
        convert(command, folder / "shards", folder / "back", "--to", "torch", "--copy-others")
        back = torch.load(folder / "back" / "pytorch_model.bin", weights_only=True)
        for key, tensor in back.items():
            holds(torch.equal(tensor, state[key]), name, key)
        if loads_pytorch():
            same(name, model, folder / "back", loader, **own)


def loads_pytorch():
    """False where transformers refuses files of PyTorch because torch is too old for it."""
    check = getattr(transformers.utils.import_utils, "check_torch_load_is_safe", lambda: None)
    try:
        check()
    except ValueError:
        return False
    return True


def pytorch_shards(model, folder):
    """Shards that transformers itself writes; false for versions that write safetensors alone."""
    try:
        model.save_pretrained(folder, safe_serialization=False, max_shard_size="4KB")
    except (TypeError, ValueError):
        return False
    return (folder / "pytorch_model.bin.index.json").exists()


def write_shards(state, folder):
    """The same by hand."""
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    names = list(state)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    files = {}
    for number, part in enumerate(parts, 1):
        file = f"pytorch_model-{number:05}-of-{len(parts):05}.bin"
        torch.save({name: state[name] for name in part}, folder / file)
        files.update(dict.fromkeys(part, file))
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2))


def main():
    transformers.utils.logging.disable_progress_bar()
    command = os.path.abspath(sys.argv[1])
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as work:
        judge(command, Path(work))
    print(f"hf_judge: transformers {transformers.__version__}, torch {torch.__version__}: {checks} checks hold")


if __name__ == "__main__":
    main()
