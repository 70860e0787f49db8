"""The configuration of a run of PyTorch-BigGraph."""

from __future__ import annotations

import json
from typing import Any, Dict

from ..errors import UsageError


class Config(Dict[str, Any]):
    """A configuration as a dict whose keys are attributes, too, at every level.

    >>> from weighbridge.biggraph import Config
    >>> config = Config.parse('{"entities": {"user": {"num_partitions": 2}}, "relations": [{"name": "r"}]}')
    >>> config["entities"]["user"].num_partitions, config.relations[0].name
    (2, 'r')

    Changes of it go nowhere until it is given to what writes.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @classmethod
    def parse(cls, text: str) -> Config:
        """The configuration that is the JSON `text`."""
        try:
            config: Config = json.loads(text, object_hook=cls)
        except ValueError as error:
            raise UsageError("the configuration is no JSON", code="bad-config", found=str(error)) from error
        return config

    def text(self) -> str:
        """As JSON, the way BigGraph writes it."""
        return json.dumps(self, indent=4)
