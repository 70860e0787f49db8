"""primitiv models, parameters, tensors and optimizers, without primitiv.

>>> from weighbridge import primitiv
>>> model = primitiv.Model({"fc1": {"w": [[1, 2, 3], [4, 5, 6]], "b": [0.5, 1.5]}})
>>> float(model["fc1.w"].value[1, 2])
6.0
>>> _ = model.save("net.model")
>>> list(primitiv.load("net.model"))
[('fc1', 'b'), ('fc1', 'w')]

**Element (i, j) is element (i, j).** primitiv stores tensors in column-major order: the first index runs fastest. A numpy
array from this module has the same indices as the tensor in primitiv, and is in Fortran order; arrays passed in may have any
order. No transposition is needed.

>>> tensor = primitiv.Tensor([[1, 2, 3], [4, 5, 6]])
>>> tensor.numpy()[0].tolist(), tensor.data.tolist()
([1.0, 2.0, 3.0], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0])

primitiv drops trailing dimensions of size 1: an array of shape (3, 1) becomes a tensor of shape (3,). A tensor may be a batch
of tensors; the batch is then the last dimension of the array.
"""

from __future__ import annotations

from typing import List, Union

from ..opened import Path, open_for
from ..errors import MismatchError
from .model import Address, LoadReport, Model
from .optimizer import SGD, AdaDelta, AdaGrad, Adam, MomentumSGD, Optimizer, RMSProp
from .parameter import Parameter
from .tensor import Shape, Tensor

Object = Union[Model, Parameter, Tensor, Shape, Optimizer]
"""Content of a primitiv file."""


def load(path: Path, *, with_stats: bool = True, lenient: bool = False) -> Object:
    """Loads the object in a primitiv file: a `Model`, `Parameter`, `Tensor`, `Shape` or `Optimizer`.

    `with_stats=False` skips the optimizer statistics of parameters. `lenient` accepts all files that primitiv itself accepts,
    such as those with trailing bytes.

    >>> from weighbridge import primitiv
    >>> primitiv.Adam(alpha=0.01).save("net.optimizer")
    >>> primitiv.load("net.optimizer")
    <Adam: epoch 0, alpha 0.01, beta1 0.9, beta2 0.999, eps 1e-08>
    """
    with open_for(path, format="primitiv", lenient=lenient) as opened:
        if opened.kind == "model":
            return Model.of(opened, with_stats=with_stats)
        if opened.kind == "parameter":
            return Parameter.of(opened, with_stats=with_stats)
        if opened.kind == "tensor":
            return Tensor.of(opened["value"])
        if opened.kind == "shape":
            metadata = opened.metadata
            return Shape(metadata["dims"], metadata["batch"])
        if opened.kind == "optimizer":
            return Optimizer.open(path, lenient=lenient)
        raise MismatchError("not a primitiv object", code="wrong-kind", file=opened.path, found=opened.kind)


__all__: List[str] = [
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "Address",
    "LoadReport",
    "Model",
    "MomentumSGD",
    "Object",
    "Optimizer",
    "Parameter",
    "RMSProp",
    "SGD",
    "Shape",
    "Tensor",
    "load",
]
