"""Models of the package LAC (lexical analysis of Chinese): Paddle against ONNX Runtime, one sequence at a time.

    python judges/onnx/lac.py EXPORT FOLDER     FOLDER: the unpacked package, which holds lac_model, seg_model, rank_model

Exit code 0: the labels of all sequences are equal.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed.io import load_inference_model_distributed

from run import CPU, Failed, Reference, compare, export, load

TEXTS = ["百度是一家高科技公司", "LAC是个优秀的分词工具", "今天天气很好", "我爱北京天安门", "中", "他从马上下来，2021年5月去上海参加了会议。"]


class Folder(Reference):
    """A model saved as `__model__` with a file for each parameter."""

    def __init__(self, folder):
        self.exe = paddle.static.Executor(CPU)
        self.scope = paddle.static.global_scope().new_scope()
        with paddle.static.scope_guard(self.scope):
            self.program, self.feeds, self.fetches = load_inference_model_distributed(str(folder), self.exe)


def words(folder):
    """Returns the numbers of characters and the number for others."""
    numbers = {}
    for line in (folder / "conf/word.dic").read_text("utf-8").splitlines():
        number, _, word = line.partition("\t")
        numbers.setdefault(word, int(number))
    return numbers


def main():
    command, package = sys.argv[1], Path(sys.argv[2])
    failed = 0
    for name in ("lac_model", "seg_model", "rank_model"):
        folder = package / name
        numbers = words(folder if name != "rank_model" else package / "lac_model")
        other = numbers.get("OOV", len(numbers) - 1)
        sequences = [[numbers.get(character, other) for character in text] for text in TEXTS]
        rng = np.random.default_rng(0)
        sequences += [rng.integers(0, max(numbers.values()), size).tolist() for size in (1, 2, 7, 50, 300)]
        with tempfile.TemporaryDirectory() as work:
            target = Path(work) / "m.onnx"
            try:
                export(command, folder / "model", target)
                reference = Folder(folder / "model")
                sets = []
                for sequence in sequences:
                    array = np.array(sequence, "int64").reshape(-1, 1)
                    feeds = {}
                    for place, feed in enumerate(reference.feeds):
                        value = array if place == 0 else rng.integers(0, 57, array.shape)
                        feeds[feed] = (value, [[len(array)]])
                    sets.append(feeds)
                compare(reference, load(target), sets)
                print(f"{name}: {len(sets)} sequences have equal outputs")
            except Failed as error:
                failed += 1
                print(f"FAILED {name}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
