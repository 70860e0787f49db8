"""Golden files of DeepSpeed and PyTorch Lightning: testdata/deepspeed/good.

    python judges/make_deepspeed.py ERA [NAME ...]

ERA is the prefix of the folders, such as `d14` for DeepSpeed 0.14. The ranks run as processes of one machine on its CPU,
connected by gloo, and train each model for a few steps. `expected.json` has what DeepSpeed reads: the weights of
`zero_to_fp32`, and the weights and optimizer state of an engine that loaded the checkpoint.
Needs: deepspeed, torch, numpy; lightning for the last cases.
"""
import hashlib
import json
import os
import pathlib
import shutil
import socket
import sys
import tempfile
import types
import warnings

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", DEEPSPEED_LOG_LEVEL="error")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "deepspeed"
NAMES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.bool: "bool",
}
# Stage, ranks, dtype, and the features of the model and of the configuration.
CASES = {
    "z0_f32_1": (0, 1, "fp32", "buffers"),
    "z0_bf16_2": (0, 2, "bf16", "tied groups"),
    "z0_f16_1": (0, 1, "fp16", ""),
    "z1_f32_2": (1, 2, "fp32", "tied buffers"),
    "z1_f16_3": (1, 3, "fp16", "frozen"),
    "z1_bf16_2": (1, 2, "bf16", "groups"),
    "z2_f32_1": (2, 1, "fp32", "buffers"),
    "z2_f16_2": (2, 2, "fp16", "groups frozen"),
    "z2_bf16_3": (2, 3, "bf16", "tied frozen buffers"),
    "z2_f32_3": (2, 3, "fp32", "robin groups"),
    "z2_f16_elastic_2": (2, 2, "fp16", "elastic buffers"),
    "z2_bf16_excluded_2": (2, 2, "bf16", "frozen excluded"),
    "z2_f32_untrained_2": (2, 2, "fp32", "untrained"),
    "z2_f32_sgd_2": (2, 2, "fp32", "sgd tied"),
    "z3_f32_1": (3, 1, "fp32", "tied"),
    "z3_f16_2": (3, 2, "fp16", "tied frozen buffers"),
    "z3_bf16_3": (3, 3, "bf16", "groups buffers"),
    "z3_f32_3": (3, 3, "fp32", "sub frozen"),
    "z3_bf16_sub_2": (3, 2, "bf16", "sub groups"),
    "z2_f32_small_3": (2, 3, "fp32", "small rms"),
    "z3_f32_empty_2": (3, 2, "fp32", "empty"),
    "z2_bf16_muon_2": (2, 2, "bf16", "muon"),
    "z3_bf16_muon_2": (3, 2, "bf16", "muon"),
    "lightning_z2_2": (2, 2, "bf16", "lightning tied buffers"),
    "lightning_z3_2": (3, 2, "fp32", "lightning frozen"),
}
LIGHTNING = ("lightning", "lightning_fsdp_2")


class Block(nn.Module):
    """Weights in a sum of squares, which CPUs compute for every dtype."""

    def __init__(self, *shapes):
        super().__init__()
        for number, shape in enumerate(shapes):
            setattr(self, "weight" if number == 0 else "bias" if number == 1 else f"w{number}", nn.Parameter(torch.randn(shape)))

    def forward(self, total):
        for parameter in self.parameters(recurse=False):
            total = total + (parameter.float() * 1.25).square().sum() + parameter.float().sum()
        return total


class Counted(Block):
    def __init__(self, *shapes):
        super().__init__(*shapes)
        self.register_buffer("mean", torch.randn(3))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, total):
        self.count += 1
        self.mean += 0.5 * (1 + rank())
        return super().forward(total)


class Net(nn.Module):
    def __init__(self, features, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = Block((7, 5))
        self.layers = nn.ModuleList([Block((5, 3), (3,)), Block((2, 2, 2), (1,), (1, 3))])
        if "buffers" in features:
            self.norm = Counted((3,), (3,))
        if "frozen" in features:
            self.base = Block((3, 3), (5,))
            self.base.requires_grad_(False)
        self.head = Block((7, 5), (7,))
        if "tied" in features:
            self.head.weight = self.embed.weight
        if "small" in features:
            self.scale = Block((1,))
        if "empty" in features:
            self.head.register_buffer("none", torch.empty(0))

    def forward(self, total):
        for block in [self.embed, *self.layers, *(getattr(self, name) for name in ("norm", "base", "scale") if hasattr(self, name)), self.head]:
            total = block(total)
        return total


class RmsAdam(torch.optim.Adam):
    """Optimizer with a state of its own in each rank."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["RMS"] = parameter.norm(2) / max(parameter.numel(), 1) ** 0.5


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def raw(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def described(tensor):
    return {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "sha256": hashlib.sha256(raw(tensor)).hexdigest()}


def gathered(groups, partitioned, process_groups):
    for whole, parts, group in zip(groups, partitioned, process_groups):
        own = parts[dist.get_rank(group)].detach().clone()
        found = [torch.empty_like(own) for _ in parts]
        dist.all_gather(found, own, group)
        whole.data.copy_(torch.cat(found))


def prepared():
    """Lets DeepSpeed use dtypes that its list for CPUs lacks."""
    import logging

    import deepspeed
    import deepspeed.comm.torch
    from deepspeed.accelerator import get_accelerator
    accelerator = get_accelerator()
    accelerator.is_fp16_supported = accelerator.is_bf16_supported = lambda: True
    accelerator.device_count = lambda: 1
    accelerator.supported_dtypes = lambda: [torch.float32, torch.float16, torch.bfloat16]
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # gloo rejects the views that DeepSpeed gathers into.
    deepspeed.runtime.utils.all_gather_into_tensor_dp_groups = gathered
    # Its own communication would have to be compiled.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    return deepspeed


def engine_of(case, seed):
    deepspeed = prepared()
    stage, _, dtype, features = CASES[case]
    config = {
        "train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage}, "steps_per_print": 10**9,
    }
    if stage == 3:
        config["zero_optimization"] |= {"stage3_param_persistence_threshold": 0}
    if "sub" in features.split():
        config["zero_optimization"]["sub_group_size"] = 40
    if "robin" in features:
        config["zero_optimization"]["round_robin_gradients"] = True
    if "elastic" in features:
        config["zero_optimization"]["elastic_checkpoint"] = True
    if dtype == "fp16":
        config["fp16"] = {"enabled": True, "loss_scale": 8}
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    model = Net(features, seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": trained[::2], "lr": 0.01}, {"params": trained[1::2], "lr": 0.002}] if "groups" in features else trained
    if "elastic" in features:
        # That form has one step for all parameters, as optimizers of DeepSpeed do.
        groups = [{"params": groups, "step": 2}]
    if "small" in features:
        # A group with fewer elements than ranks: the parts of some ranks are padding alone.
        groups = [{"params": trained[:-1]}, {"params": trained[-1:]}]
    if "muon" in features:
        config["zero_optimization"]["reduce_scatter"] = False
        config["optimizer"] = {"type": "Muon", "params": {"lr": 0.01, "momentum": 0.9}}
        for parameter in trained:
            parameter.use_muon = parameter.ndim == 2
        return deepspeed.initialize(model=model, model_parameters=trained, config=config)[0]
    kind = torch.optim.SGD if "sgd" in features else RmsAdam if "rms" in features else torch.optim.Adam
    optimizer = kind(groups, lr=0.01)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def state_of(engine, slots):
    """Weights and optimizer state of each parameter, whole on each rank."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    found = {}
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            continue
        shape = getattr(parameter, "ds_shape", parameter.shape)
        all = {"fp32": safe_get_full_fp32_param(parameter)} | {slot: safe_get_full_optimizer_state(parameter, slot) for slot in slots}
        found[name] = {slot: described(tensor.reshape(shape)) for slot, tensor in all.items() if tensor is not None}
    return {name: slots for name, slots in found.items() if slots}


def written(case, folder):
    """Trains and saves on every rank; returns what a new engine loads."""
    features = CASES[case][3]
    engine = engine_of(case, seed=1)
    for _ in range(0 if "untrained" in features else 2):
        engine.backward(engine(torch.tensor(float(rank()))))
        engine.step()
    if "lightning" in features:
        from lightning.pytorch.strategies import DeepSpeedStrategy
        strategy = types.SimpleNamespace(broadcast=lambda value: value, zero_stage_3=CASES[case][0] == 3, _multi_device=False,
                                         is_global_zero=rank() == 0, deepspeed_engine=engine, exclude_frozen_parameters=False)
        DeepSpeedStrategy.save_checkpoint(strategy, lightning_checkpoint(), folder)
    else:
        engine.save_checkpoint(folder, client_state={"epoch": 3, "note": "kept"}, exclude_frozen_parameters="excluded" in features)
    dist.barrier()
    again = engine_of(case, seed=2)
    again.load_checkpoint(folder, load_module_strict="excluded" not in features)
    # Otherwise the first step links the state with the parameters.
    if hasattr(again.optimizer, "_lazy_init_hp_params_optimizer_state"):
        again.optimizer._lazy_init_hp_params_optimizer_state()
    # Without ZeRO there is no state in parts. In round-robin order, these releases return parts of other parameters; the weights of
    # zero_to_fp32 are right.
    if CASES[case][0] == 0 and CASES[case][2] != "bf16" or "robin" in features:
        return {}
    return state_of(again, [] if {"sgd", "untrained", "muon"} & set(features.split()) else ["exp_avg", "exp_avg_sq"])


def lightning_checkpoint():
    """What Lightning adds to a checkpoint, without weights and optimizer."""
    import lightning
    return {"epoch": 1, "global_step": 2, "pytorch-lightning_version": lightning.__version__, "state_dict": {}, "optimizer_states": [],
            "loops": {}, "callbacks": {}, "lr_schedulers": [], "hparams_name": "kwargs", "hyper_parameters": {"lr": 0.01, "layers": [5, 3]}}


def in_rank(number, count, cases, root, port):
    """Runs the cases of `count` ranks in one process each."""
    warnings.filterwarnings("ignore")
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(count), LOCAL_SIZE="0", LOCAL_WORLD_SIZE=str(count),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=count)
    deepspeed = prepared()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for case in cases:
        folder = pathlib.Path(root) / case
        state = lightning_fsdp(str(folder)) if case == "lightning_fsdp_2" else written(case, str(folder))
        if number == 0:
            (pathlib.Path(root) / f"{case}.json").write_text(json.dumps(state))
        dist.barrier()
    dist.destroy_process_group()


def run(cases, root):
    """Writes these cases below `root`, each into a folder of its name; returns the state of each loaded engine."""
    ranks = {}
    for case in cases:
        ranks.setdefault(2 if case == "lightning_fsdp_2" else CASES[case][1], []).append(case)
    for count, own in ranks.items():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.spawn(in_rank, (count, own, str(root), port), nprocs=count)
    return {case: json.loads((pathlib.Path(root) / f"{case}.json").read_text()) for case in cases}


def fp32_weights(folder):
    """Weights of `zero_to_fp32`; `None` for a checkpoint that it refuses: one without ZeRO."""
    prepared()
    from deepspeed.utils import zero_to_fp32
    zero_to_fp32.tqdm = lambda items, **_: items
    out, sys.stdout = sys.stdout, open(os.devnull, "w")
    try:
        return dict(zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(folder)))
    except (ValueError, TypeError, FileNotFoundError):
        return None
    finally:
        sys.stdout = out


# Checkpoints of Lightning alone.

def module_of():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self, lr=0.01, layers=(5, 3)):
            super().__init__()
            self.save_hyperparameters()
            self.net = Net("tied buffers")

        def training_step(self, batch, number):
            return self.net(batch.sum())

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)

    return Module()


def lightning_file(path):
    """A `.ckpt` of the trainer."""
    import lightning
    trainer = lightning.Trainer(accelerator="cpu", max_steps=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
                                enable_checkpointing=False)
    trainer.fit(module_of(), torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=2))
    trainer.save_checkpoint(path)


def lightning_fsdp(folder):
    """The folder of the strategy for FSDP, of a model whose parameters are sharded over the ranks."""
    from lightning.pytorch.strategies import FSDPStrategy
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    except ImportError:
        from torch.distributed._tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model = parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(5, 3)).sum().backward()
    optimizer.step()
    own, state = get_state_dict(model, optimizer)
    strategy = types.SimpleNamespace(broadcast=lambda value: value, _state_dict_type="sharded", global_rank=rank())
    FSDPStrategy.save_checkpoint(strategy, lightning_checkpoint() | {"state_dict": own, "optimizer_states": [state]}, folder)
    dist.barrier()
    return {}


def main():
    era, *names = sys.argv[1:]
    import deepspeed
    path = ROOT / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    good = ROOT / "good"
    good.mkdir(parents=True, exist_ok=True)
    wanted = [case for case in [*CASES, "lightning_fsdp_2"] if not names or case in names]
    # This release cannot save the form with the optimizers of newer releases of torch.
    if deepspeed.__version__.startswith("0.14"):
        wanted = [case for case in wanted if "elastic" not in case and "muon" not in case]
    with tempfile.TemporaryDirectory() as work:
        states = run(wanted, work)
        for case, state in states.items():
            name, folder = f"{era}_{case}", pathlib.Path(work) / case
            shutil.rmtree(good / name, ignore_errors=True)
            shutil.copytree(folder, good / name)
            # The same script in each folder; one is enough.
            if case != "z2_f32_1":
                (good / name / "zero_to_fp32.py").unlink(missing_ok=True)
                (good / name / "zero_to_torch.py").unlink(missing_ok=True)
            weights = fp32_weights(folder) if case in CASES else None
            expected[name] = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "state": state,
                              "weights": weights and {key: described(value) for key, value in weights.items()}}
            files = [file for file in (good / name).rglob("*") if file.is_file()]
            print(name, weights and len(weights), len(state), sum(file.stat().st_size for file in files), "bytes", len(files), "files")
    if not names or "lightning" in names:
        lightning_file(good / f"{era}_lightning.ckpt")
    path.write_text(json.dumps(dict(sorted(expected.items())), indent=0) + "\n")


if __name__ == "__main__":
    main()
