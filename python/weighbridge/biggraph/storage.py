"""Checkpoint storage for PyTorch-BigGraph: training runs save through Weighbridge.

Importing this module registers the scheme `weighbridge` with PyTorch-BigGraph, which must be installed. A run selects it by
the checkpoint path in its configuration:

    checkpoint_path="weighbridge:model/"

Files have the same names and content as those of PyTorch-BigGraph, so a run may resume with or without this storage. Only
the writing differs: each file is staged, synced and renamed, and a version becomes current only when all of its files are
on the disk. A missing or empty version file is an error, not version 0.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from torchbiggraph.checkpoint_storage import CHECKPOINT_STORAGES, FileCheckpointStorage

from .._weighbridge import Store
from ..saving import entry
from ..tensor import Part
from ..writing import Given

SCHEME = "weighbridge"
"""URL scheme of the storage."""


@CHECKPOINT_STORAGES.register_as(SCHEME)
class WeighbridgeCheckpointStorage(FileCheckpointStorage):  # type: ignore[misc]
    """Checkpoint storage of PyTorch-BigGraph in a folder, with files written by Weighbridge.

    Several trainers, and the background process of a trainer, may write partitions of the same version. One of them writes
    the version file, as in PyTorch-BigGraph.
    """

    def __init__(self, url: str) -> None:
        path = url[len(SCHEME) + 1 :] if url.startswith(SCHEME + ":") else url
        super().__init__(path[2:] if path.startswith("//") else path)

    def _store(self) -> Store:
        self.prepare()
        return Store(str(self.path))

    def load_version(self) -> int:
        """Returns the current version; 0 if there is none yet."""
        return self._store().current() if self.path.is_dir() else 0

    def save_version(self, version: int) -> None:
        """Makes a complete version current."""
        self._store().rollback(version)

    def save_entity_partition(
        self,
        version: int,
        entity_name: str,
        partition: int,
        embs: Any,
        optim_state: Optional[bytes],
        metadata: Dict[str, Any],
    ) -> None:
        """Writes the rows of a partition and their optimizer state."""
        path: Tuple[Part, ...] = ("embeddings", entity_name)
        rows: Given = (path, "embedding", None, entry(path, embs.detach().numpy()), None)
        self._store().write_file(version, int(partition), [rows], metadata, optim_state)

    def save_model(
        self,
        version: int,
        state_dict: Mapping[str, Any],
        optim_state: Optional[bytes],
        metadata: Dict[str, Any],
    ) -> None:
        """Writes the parameters of the relations and their optimizer state."""
        tensors: List[Given] = []
        for name, parameter in state_dict.items():
            path: Tuple[Part, ...] = tuple(name.split("/"))
            values = parameter.tensor.detach().numpy()
            tensors.append((path, "parameter", None, entry(path, values), None))
        self._store().write_file(version, None, tensors, metadata, optim_state)

    def save_config(self, config_json: str) -> None:
        """Writes the configuration."""
        _replace(self.get_config_file(), config_json)

    def copy_entity_partition_to_snapshot(
        self, version: int, entity_name: str, partition: int, epoch_idx: int
    ) -> None:
        """Links a partition into a snapshot."""
        self._link(self.get_entity_partition_file(version, entity_name, partition), epoch_idx)

    def copy_model_to_snapshot(self, version: int, epoch_idx: int) -> None:
        """Links the parameters into a snapshot."""
        self._link(self.get_model_file(version), epoch_idx)

    def copy_version_to_snapshot(self, version: int, epoch_idx: int) -> None:
        """Writes the version file of a snapshot."""
        _replace(self.get_version_file(path=self.get_snapshot_path(epoch_idx)), f"{version}\n")

    def _link(self, source: Path, epoch: int) -> None:
        # Relative, so that the folder can be moved. Replaces a leftover link of a stopped run.
        link = self.get_snapshot_path(epoch) / source.name
        staged = link.with_name(f".{link.name}.{os.getpid()}.part")
        staged.symlink_to(Path("..") / source.name)
        os.replace(staged, link)


def _replace(path: Path, text: str) -> None:
    """Writes a small file atomically."""
    staged = path.with_name(f".{path.name}.{os.getpid()}.part")
    with staged.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staged, path)
