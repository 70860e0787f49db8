"""primitiv optimizers: their settings, stored in a separate file."""

from __future__ import annotations

import struct
from collections.abc import MutableMapping
from typing import Any, Dict, Iterator, Optional, Tuple, Type, Union

from .._weighbridge import optimizer_defaults, read_optimizer, write_optimizer
from ..checks import path_text
from ..opened import Path
from ..errors import MismatchError, UsageError, naming
from ..tensor import Part
from .model import Model
from .parameter import Parameter, plain

EPOCH = "Optimizer.epoch"


class _Setting:
    """Descriptor of a setting."""

    def __init__(self, key: str, doc: str) -> None:
        self.key = key
        self.__doc__ = doc

    def __get__(self, optimizer: Optional[Optimizer], _: Any = None) -> Any:
        return self if optimizer is None else optimizer[self.key]

    def __set__(self, optimizer: Optimizer, value: float) -> None:
        optimizer[self.key] = value


class Optimizer(MutableMapping):  # type: ignore[type-arg]
    """Settings of an optimizer by key: integers and floats, each in file order.

    Statistics per parameter are stored with the parameters, as `stats`. The file does not state the optimizer class; it
    follows from the keys: `open` returns an `Adam` for the keys of Adam. Custom optimizers may have any keys, and are plain
    `Optimizer`s.

    >>> from weighbridge import primitiv
    >>> adam = primitiv.Adam(alpha=0.01)
    >>> adam.epoch = 12
    >>> adam.alpha, adam["Optimizer.lr_scale"], adam.uints
    (0.009999999776482582, 1.0, {'Optimizer.epoch': 12})
    >>> adam.save("train.optimizer")
    >>> primitiv.Optimizer.open("train.optimizer") == adam
    True

    Floats have 32 bits: assigned values are rounded.
    """

    learning_rate_scaling = _Setting("Optimizer.lr_scale", "Factor of the learning rate.")
    weight_decay = _Setting("Optimizer.l2_strength", "Strength of weight decay (L2).")
    gradient_clipping = _Setting("Optimizer.clip_threshold", "Largest norm of gradients; 0 for no clipping.")

    _NAME = ""
    _OWN: Tuple[str, ...] = ()

    def __init__(self, name: str = "") -> None:
        self._uints: Dict[Part, int] = {}
        self._floats: Dict[Part, float] = {}
        self._class: Optional[Part] = None
        (_, uints, floats), _ = optimizer_defaults(self._NAME or name)
        self._take(self._NAME or name or None, uints, floats)

    def _take(self, name: Any, uints: Any, floats: Any) -> None:
        self._class = name
        self._uints = dict(uints)
        self._floats = dict(floats)

    @classmethod
    def open(cls, path: Path, *, lenient: bool = False) -> Optimizer:
        """Reads an optimizer file."""
        path = path_text(path, "path")
        with naming(path):
            name, uints, floats = read_optimizer(path, lenient)
        own = _CLASSES.get(name, Optimizer)
        if not issubclass(own, cls):
            raise MismatchError(
                "the file is of another optimizer class",
                code="wrong-class",
                file=path,
                expected=cls._NAME,
                found=str(name),
            )
        optimizer = own.__new__(own)
        optimizer._take(name, uints, floats)
        return optimizer

    @property
    def class_name(self) -> Optional[Part]:
        """Class name, from the prefix of its keys, such as `Adam`; `None` if unrecognized."""
        return self._class

    @property
    def stats(self) -> Tuple[str, ...]:
        """Names of its statistics per parameter; empty for classes that primitiv does not have."""
        if not isinstance(self._class, str):
            return ()
        return tuple(optimizer_defaults(self._class)[1])

    @property
    def uints(self) -> Dict[Part, int]:
        """Integer settings, as a new dict."""
        return dict(self._uints)

    @property
    def floats(self) -> Dict[Part, float]:
        """Float settings, as a new dict."""
        return dict(self._floats)

    @property
    def epoch(self) -> int:
        """Number of updates of the parameters, modulo 2^32: steps, not passes over the data."""
        return self._uints[EPOCH]

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_uint(EPOCH, epoch)

    def set_uint(self, key: Part, value: int) -> None:
        """Sets an integer setting. A new key is added at the end."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise UsageError(
                "expected an integer from 0 to 2^32 - 1",
                code="setting-type",
                tensor=str(key),
                found=repr(value),
            )
        self._uints[plain(key)] = value

    def set_float(self, key: Part, value: float) -> None:
        """Sets a float setting. A new key is added at the end."""
        try:
            self._floats[plain(key)] = struct.unpack("<f", struct.pack("<f", value))[0]
        except (struct.error, OverflowError):
            raise UsageError(
                "expected a number that fits a 32-bit float",
                code="setting-type",
                tensor=str(key),
                found=repr(value),
            ) from None

    def __getitem__(self, key: Part) -> Union[int, float]:
        key = plain(key)
        return self._uints[key] if key in self._uints else self._floats[key]

    def __setitem__(self, key: Part, value: Union[int, float]) -> None:
        """Sets a value. An existing key keeps its type; the type of a new key is that of the value."""
        key = plain(key)
        if key in self._floats or (key not in self._uints and isinstance(value, float)):
            self.set_float(key, value)
        else:
            self.set_uint(key, value)  # type: ignore[arg-type]

    def __delitem__(self, key: Part) -> None:
        key = plain(key)
        del (self._uints if key in self._uints else self._floats)[key]

    def __iter__(self) -> Iterator[Part]:
        yield from self._uints
        yield from (key for key in self._floats if key not in self._uints)

    def __len__(self) -> int:
        return len({*self._uints, *self._floats})

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        """Returns true if all settings are equal, bit by bit."""
        return isinstance(other, Optimizer) and self._bits() == other._bits()

    __hash__ = None  # type: ignore[assignment]

    def _bits(self) -> Tuple[Dict[Part, int], Dict[Part, bytes]]:
        return self._uints, {key: struct.pack("<f", value) for key, value in self._floats.items()}

    def add(self, trained: Union[Model, Parameter]) -> None:
        """Adds the statistics of this optimizer to the parameters, filled with 0. Existing statistics stay.

        >>> from weighbridge import primitiv
        >>> model = primitiv.Model({"w": [1, 2]})
        >>> primitiv.Adam().add(model)
        >>> model["w"].stats["Adam.m1"].tolist()
        [0.0, 0.0]
        """
        parameters = [trained] if isinstance(trained, Parameter) else [own for _, own in trained.walk()]
        for parameter in parameters:
            for name in self.stats:
                if name not in parameter.stats:
                    parameter.stats[name] = _zeros(parameter)

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes an optimizer file, atomically."""
        path = path_text(path, "path")
        with naming(path):
            write_optimizer(path, list(self._uints.items()), list(self._floats.items()), force)

    def __repr__(self) -> str:
        name = self._class if isinstance(self._class, str) else "Optimizer"
        own = [f"{key.partition('.')[2]} {_short(self[key])}" for key in self._OWN if key in self]
        epoch = self._uints.get(EPOCH)
        return f"<{name}: {', '.join([f'epoch {epoch}', *own])}>"


def _zeros(parameter: Parameter) -> Any:
    import numpy

    return numpy.zeros(parameter.value.shape, "float32", order="F")


def _short(value: Union[int, float]) -> str:
    # The shortest decimal for the f32 value, not for its f64 extension.
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    return repr(value)


class SGD(Optimizer):
    """Stochastic gradient descent."""

    _NAME = "SGD"
    _OWN = ("SGD.eta",)
    eta = _Setting("SGD.eta", "Learning rate.")

    def __init__(self, eta: Optional[float] = None) -> None:
        super().__init__()
        _set(self, eta=eta)


class MomentumSGD(Optimizer):
    """Gradient descent with momentum."""

    _NAME = "MomentumSGD"
    _OWN = ("MomentumSGD.eta", "MomentumSGD.momentum")
    eta = _Setting("MomentumSGD.eta", "Learning rate.")
    momentum = _Setting("MomentumSGD.momentum", "Momentum factor.")

    def __init__(self, eta: Optional[float] = None, momentum: Optional[float] = None) -> None:
        super().__init__()
        _set(self, eta=eta, momentum=momentum)


class AdaGrad(Optimizer):
    """AdaGrad."""

    _NAME = "AdaGrad"
    _OWN = ("AdaGrad.eta", "AdaGrad.eps")
    eta = _Setting("AdaGrad.eta", "Learning rate.")
    eps = _Setting("AdaGrad.eps", "Term added to the root, for numerical stability.")

    def __init__(self, eta: Optional[float] = None, eps: Optional[float] = None) -> None:
        super().__init__()
        _set(self, eta=eta, eps=eps)


class RMSProp(Optimizer):
    """RMSProp."""

    _NAME = "RMSProp"
    _OWN = ("RMSProp.eta", "RMSProp.alpha", "RMSProp.eps")
    eta = _Setting("RMSProp.eta", "Learning rate.")
    alpha = _Setting("RMSProp.alpha", "Decay rate of the mean of squares.")
    eps = _Setting("RMSProp.eps", "Term added to the root, for numerical stability.")

    def __init__(
        self, eta: Optional[float] = None, alpha: Optional[float] = None, eps: Optional[float] = None
    ) -> None:
        super().__init__()
        _set(self, eta=eta, alpha=alpha, eps=eps)


class AdaDelta(Optimizer):
    """AdaDelta."""

    _NAME = "AdaDelta"
    _OWN = ("AdaDelta.rho", "AdaDelta.eps")
    rho = _Setting("AdaDelta.rho", "Decay rate of the moving averages.")
    eps = _Setting("AdaDelta.eps", "Term added to the averages, for numerical stability.")

    def __init__(self, rho: Optional[float] = None, eps: Optional[float] = None) -> None:
        super().__init__()
        _set(self, rho=rho, eps=eps)


class Adam(Optimizer):
    """Adam."""

    _NAME = "Adam"
    _OWN = ("Adam.alpha", "Adam.beta1", "Adam.beta2", "Adam.eps")
    alpha = _Setting("Adam.alpha", "Learning rate.")
    beta1 = _Setting("Adam.beta1", "Decay rate of the mean.")
    beta2 = _Setting("Adam.beta2", "Decay rate of the mean of squares.")
    eps = _Setting("Adam.eps", "Term added to the root, for numerical stability.")

    def __init__(
        self,
        alpha: Optional[float] = None,
        beta1: Optional[float] = None,
        beta2: Optional[float] = None,
        eps: Optional[float] = None,
    ) -> None:
        super().__init__()
        _set(self, alpha=alpha, beta1=beta1, beta2=beta2, eps=eps)


def _set(optimizer: Optimizer, **settings: Optional[float]) -> None:
    # Other settings keep the defaults of primitiv, from the native part.
    for name, value in settings.items():
        if value is not None:
            setattr(optimizer, name, value)


_CLASSES: Dict[Any, Type[Optimizer]] = {
    own._NAME: own for own in (SGD, MomentumSGD, AdaGrad, RMSProp, AdaDelta, Adam)
}
