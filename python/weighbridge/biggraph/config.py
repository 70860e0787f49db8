"""Configuration of a PyTorch-BigGraph run."""

from __future__ import annotations

import json
from typing import Any, Dict

from ..errors import UsageError


class Config(Dict[str, Any]):
    """A configuration: a dict whose keys are also attributes, at every level.

    >>> from weighbridge.biggraph import Config
    >>> config = Config.parse('{"entities": {"user": {"num_partitions": 2}}, "relations": [{"name": "r"}]}')
    >>> config["entities"]["user"].num_partitions, config.relations[0].name
    (2, 'r')

    Changes have an effect only after the configuration is passed to a function that writes it.
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
        """Parses a configuration from JSON."""
        try:
            config: Config = json.loads(text, object_hook=cls)
        except ValueError as error:
            raise UsageError(
                "the configuration is not valid JSON", code="bad-config", found=str(error)
            ) from error
        return config

    def text(self) -> str:
        """Returns the configuration as JSON, formatted as by BigGraph."""
        return json.dumps(self, indent=4)
