"""States and programs of PaddlePaddle, without PaddlePaddle.

>>> import numpy
>>> from weighbridge import paddle
>>> weight = numpy.ones((2, 3), "float32")
>>> paddle.save({"fc.weight": weight, "LR_Scheduler": {"last_epoch": 4}}, "net.pdparams")
>>> state = paddle.load("net.pdparams")
>>> state["fc.weight"].shape, state["LR_Scheduler"]
((2, 3), {'last_epoch': 4})

- `load` and `save` do what those of Paddle do, with arrays of numpy in the place of tensors; nothing in a
  file is executed;
- `load_params` gives the parameters of an inference model by name;
- `load_program` gives a `Program`: blocks, operators, variables, without what the source code of its author
  left in it if that is asked for.
"""

from __future__ import annotations

from typing import List

from .program import Block, Leak, Operator, Program, Variable, load_program
from .state import Inert, load, load_params, save

__all__: List[str] = [
    "Block",
    "Inert",
    "Leak",
    "Operator",
    "Program",
    "Variable",
    "load",
    "load_params",
    "load_program",
    "save",
]
