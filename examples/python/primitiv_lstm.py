"""Runs a character LSTM that was trained with primitiv, in numpy.

    python examples/python/primitiv_lstm.py MODEL INPUT [INPUT ...]

MODEL is a model file with the parameters `emb`, `lstm.w`, `lstm.b`, `wy` and `by`; the inputs are numbers of
characters. Prints the number of the character that is likeliest to follow each.
"""

from __future__ import annotations

import sys
from typing import List, Sequence

import numpy

from weighbridge import primitiv


def sigmoid(x: numpy.ndarray) -> numpy.ndarray:
    return 1 / (1 + numpy.exp(-x))


def run(model: primitiv.Model, characters: Sequence[int]) -> List[numpy.ndarray]:
    """The scores of the next character after each one."""
    # Element (i, j) here is element (i, j) in primitiv: nothing is transposed.
    embedding = model["emb"].value
    w, b = model["lstm.w"].value, model["lstm.b"].value
    wy, by = model["wy"].value, model["by"].value
    size = len(b) // 4
    h = c = numpy.zeros(size, "float32")
    scores = []
    for character in characters:
        x = embedding[:, character]
        i, f, o, j = numpy.split(w @ numpy.concatenate([x, h]) + b, 4)
        c = sigmoid(i) * numpy.tanh(j) + sigmoid(f) * c
        h = sigmoid(o) * numpy.tanh(c)
        scores.append(wy @ h + by)
    return scores


def main(path: str, *characters: str) -> None:
    model = primitiv.load(path)
    for address, parameter in model.walk():
        print(".".join(address), parameter.shape, "and", ", ".join(parameter.stats) or "no stats")
    for score in run(model, [int(character) for character in characters]):
        print(int(score.argmax()))


if __name__ == "__main__":
    main(*sys.argv[1:])
