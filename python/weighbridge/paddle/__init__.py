"""PaddlePaddle states and programs, without PaddlePaddle.

>>> import numpy
>>> from weighbridge import paddle
>>> weight = numpy.ones((2, 3), "float32")
>>> paddle.save({"fc.weight": weight, "LR_Scheduler": {"last_epoch": 4}}, "net.pdparams")
>>> state = paddle.load("net.pdparams")
>>> state["fc.weight"].shape, state["LR_Scheduler"]
((2, 3), {'last_epoch': 4})

- `load` and `save` work as those of Paddle, with numpy arrays instead of tensors; nothing in a file is executed;
- `load_params` returns the parameters of an inference model by name;
- `load_program` returns a `Program`: blocks, operators, variables; `Program.strip` removes traces of the author's source
  code.
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
