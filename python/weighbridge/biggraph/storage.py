"""Checkpoint storage for PyTorch-BigGraph: a training run saves through Weighbridge.

Importing this module registers the scheme `weighbridge` with PyTorch-BigGraph, which must be installed. A run then uses it
by the path of its checkpoints, in the configuration:

    checkpoint_path="weighbridge:model/"

Files have the names and the content that PyTorch-BigGraph gives them, so that a run may go on with or without this
storage. What differs is how they are written: each file is staged, synced and renamed, and a version counts only when
all of its files are on the disk. A version file that was lost or emptied is an error, and not version 0.
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
"""The scheme under which the storage is registered."""


@CHECKPOINT_STORAGES.register_as(SCHEME)
class WeighbridgeCheckpointStorage(FileCheckpointStorage):  # type: ignore[misc]
    """PyTorch-BigGraph's storage of checkpoints in a folder, with files written by Weighbridge.

    Several trainers, and the background process of one, may write partitions of the same version. The version file is
    written by one of them, as in PyTorch-BigGraph.
    """

    def __init__(self, url: str) -> None:
        path = url[len(SCHEME) + 1 :] if url.startswith(SCHEME + ":") else url
        super().__init__(path[2:] if path.startswith("//") else path)

    def _store(self) -> Store:
        self.prepare()
        return Store(str(self.path))

    def load_version(self) -> int:
        """The version that counts; 0 where there is none yet."""
        return self._store().current() if self.path.is_dir() else 0

    def save_version(self, version: int) -> None:
        """Makes a version count whose files are all there."""
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
        """Writes the rows of a partition and the state of their optimizer."""
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
        """Writes the parameters of the relations and the state of their optimizer."""
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
        """Links a partition from a snapshot."""
        self._link(self.get_entity_partition_file(version, entity_name, partition), epoch_idx)

    def copy_model_to_snapshot(self, version: int, epoch_idx: int) -> None:
        """Links the parameters from a snapshot."""
        self._link(self.get_model_file(version), epoch_idx)

    def copy_version_to_snapshot(self, version: int, epoch_idx: int) -> None:
        """Writes the version file of a snapshot."""
        _replace(self.get_version_file(path=self.get_snapshot_path(epoch_idx)), f"{version}\n")

    def _link(self, source: Path, epoch: int) -> None:
        # Relative, so that the folder can be moved. A link that a stopped run left is replaced.
        link = self.get_snapshot_path(epoch) / source.name
        staged = link.with_name(f".{link.name}.{os.getpid()}.part")
        staged.symlink_to(Path("..") / source.name)
        os.replace(staged, link)


def _replace(path: Path, text: str) -> None:
    """Writes a small file, all or nothing."""
    staged = path.with_name(f".{path.name}.{os.getpid()}.part")
    with staged.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staged, path)
