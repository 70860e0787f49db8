"""Judge of checkpoints of DeepSpeed and PyTorch Lightning: their own loaders read the same checkpoints, and every element is
compared bit for bit.

usage: deepspeed_judge.py PATH-OF-THE-COMMAND    (needs deepspeed, torch, safetensors, numpy; lightning for its own files)

The golden checkpoints are compared with `zero_to_fp32`, and with what an engine loaded when they were written. Then ranks of
gloo on this machine train, write and load new checkpoints.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_deepspeed as make  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

warnings.filterwarnings("ignore")
COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition, note=""):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what, note)


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)


def opened(name, folder, work):
    """Every tensor, by the name in Weighbridge."""
    target = work / f"{name}.safetensors"
    done = run("convert", folder, target, "--force")
    check(f"{name}: convert", done.returncode in (0, 1) and target.exists(), done.stderr)
    return safetensors.torch.load_file(target)


def same(found, wanted):
    """Equal bits; buffers are compared in the dtype of zero_to_fp32."""
    if found.dtype != wanted.dtype:
        found = found.to(wanted.dtype)
    return found.shape == wanted.shape and make.raw(found) == make.raw(wanted)


def compare(name, folder, state, work):
    """A checkpoint with the weights of zero_to_fp32, and with the state that an engine loaded."""
    found = opened(name, folder, work)
    weights = make.fp32_weights(folder) or {}
    for key, wanted in weights.items():
        check(f"{name}: {key}", key in found and same(found[key], wanted))
    for key, slots in state.items():
        for slot, wanted in slots.items():
            own = found.get(key if slot == "fp32" else f"{key}/{slot}")
            check(f"{name}: {key} {slot}", own is not None and make.described(own) == wanted)
    done = run("verify", folder)
    check(f"{name}: verify", done.returncode == 0, done.stdout + done.stderr)
    return len(weights)


def one_file(name, folder, work):
    """The file of torch.save that Weighbridge writes loads as the weights of zero_to_fp32."""
    target = work / f"{name}.pt"
    # With stage 3 there are no weights in 16 bits.
    without = [] if "z3" in name else ["--drop", "module.*"]
    done = run("convert", folder, target, "--no-state", *without, "--force")
    check(f"{name}: convert to torch", done.returncode in (0, 1), done.stderr)
    found, wanted = torch.load(target, weights_only=True), make.fp32_weights(folder)
    check(f"{name}: names", set(wanted) <= set(found), sorted(set(wanted) - set(found)))
    for key, tensor in wanted.items():
        check(f"{name}: {key} of the file", key in found and same(found[key], tensor))


def lightning(work):
    """Files of the trainer, and the folder of its strategy for FSDP."""
    try:
        import lightning  # noqa: F401
    except ImportError:
        print("not judged: lightning is not installed")
        return
    for path in sorted((make.ROOT / "good").glob("*_lightning.ckpt")):
        found, saved = opened(path.stem, path, work), torch.load(path, weights_only=False)
        for key, wanted in saved["state_dict"].items():
            check(f"{path.stem}: {key}", same(found[f"state_dict.{key}"], wanted))
        for number, slots in saved["optimizer_states"][0]["state"].items():
            for slot, wanted in slots.items():
                check(f"{path.stem}: {number} {slot}", same(found[f"optimizer_states.0.state.{number}.{slot}"], wanted))
        model = make.module_of()
        model.load_state_dict({key[len("state_dict."):]: tensor for key, tensor in found.items() if key.startswith("state_dict.")})
        own = type(model).load_from_checkpoint(path, map_location="cpu")
        check(f"{path.stem}: parameters", all(same(a, b) for a, b in zip(model.parameters(), own.parameters())))
        shown = json.loads(run("info", path, "--json").stdout)
        check(f"{path.stem}: hyper parameters", "hyper_parameters" in json.dumps(shown))
    # Its own conversion of the folders of its strategy for DeepSpeed.
    make.prepared()
    from lightning.pytorch.utilities.deepspeed import convert_zero_checkpoint_to_fp32_state_dict
    for folder in sorted((make.ROOT / "good").glob("*_lightning_z*")):
        out, sys.stdout = sys.stdout, open(os.devnull, "w")
        own = convert_zero_checkpoint_to_fp32_state_dict(folder, work / "own.pt")
        sys.stdout = out
        found, shown = opened(folder.name, folder, work), run("info", folder, "--json").stdout
        for key, wanted in own["state_dict"].items():
            check(f"{folder.name}: {key} of Lightning", key in found and same(found[key], wanted))
        for key in ("epoch", "global_step", "pytorch-lightning_version", "hyper_parameters"):
            check(f"{folder.name}: {key}", key in own and f'"{key}' in shown)
    for folder in sorted((make.ROOT / "good").glob("*_lightning_fsdp_2")):
        meta = torch.load(folder / "meta.pt", weights_only=False)
        shown = run("info", folder, "--json").stdout
        for key in ("epoch", "global_step", "pytorch-lightning_version", "hyper_parameters"):
            check(f"{folder.name}: {key}", key in meta and f'"{key}' in shown)


def main():
    expected = json.loads((make.ROOT / "expected.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        work, weights = pathlib.Path(place), 0
        for name, value in expected.items():
            if name.endswith("fsdp_2"):
                continue
            folder = make.ROOT / "good" / name
            weights += compare(name, folder, value["state"], work)
        for name in ("d14_z2_bf16_3", "d14_z3_f16_2", "d19_z3_f32_3", "d19_lightning_z3_2"):
            one_file(name, make.ROOT / "good" / name, work)
        # Written now, in ranks of this machine.
        fresh = ["z1_bf16_2", "z2_f16_2", "z2_f32_sgd_2", "z3_f16_2", "z3_bf16_sub_2"]
        for name, state in make.run(fresh, work).items():
            weights += compare(f"new {name}", work / name, state, work)
        check("weights were compared", weights > 300, weights)
        lightning(work)
    import deepspeed
    print(f"deepspeed {deepspeed.__version__}, torch {torch.__version__}: {passed + failed} checks, {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
