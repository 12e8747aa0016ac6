"""The directory that `--output` names: a log directory that is made of a converted one.

`klog-convert.json` in it says what is being made, and which partitions are complete. A conversion that was
killed goes on with the others. The file is removed in the end; then a broker can start on the directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, Final

from klog.convert.finishing import copy_files
from klog.convert.options import ConvertOptions
from klog.formats.errors import UsageError
from klog.formats.names import FileKind
from klog.storage.files.files import list_directory, read_small, storage_errors, write_atomically

_STATE: Final = "klog-convert.json"
_VERSION: Final = 1
_CHECKPOINTS: Final = (
    FileKind.META_PROPERTIES,
    FileKind.LOG_START_CHECKPOINT,
    FileKind.REPLICATION_CHECKPOINT,
    FileKind.RECOVERY_POINT_CHECKPOINT,
    FileKind.CLEANER_CHECKPOINT,
    FileKind.CLEAN_SHUTDOWN,  # the last one: without it a broker recovers what is there
)


class OutputDirectory:
    """The output of a conversion of (a part of) one log directory. Methods raise `StorageError`."""

    def __init__(self, path: str, source: str, options: ConvertOptions) -> None:
        self.path = path
        self._source = source
        self._options = options
        self._done: list[str] = []

    def begin(self) -> None:
        """Create the directory, or continue in it. Raises `UsageError` if it holds anything else."""
        if f"{os.path.realpath(self.path)}/".startswith(f"{os.path.realpath(self._source)}/"):
            raise UsageError("is inside the log directory", file=self.path, cure="choose a directory outside")
        with storage_errors("cannot be created", self.path):
            os.makedirs(self.path, exist_ok=True)
        names = [entry.name for entry in list_directory(self.path)]
        if _STATE not in names:
            if names:
                raise UsageError(
                    f"holds something else ({names[0]})",
                    file=self.path,
                    cure="choose an empty or a new directory",
                )
            self._write()
            return
        state = json.loads(read_small(os.path.join(self.path, _STATE)))
        if {**state, "done": []} != json.loads(json.dumps(self._json() | {"done": []})):
            raise UsageError(
                "holds an unfinished conversion of another directory, or with other options",
                file=self.path,
                cure="use the same options, or choose an empty directory",
            )
        self._done = state["done"]

    @property
    def done(self) -> Collection[str]:
        """The names of the partition directories that are complete."""
        return frozenset(self._done)

    def target(self, partition_directory: str) -> str:
        """Where a partition goes."""
        return os.path.join(self.path, os.path.basename(os.path.abspath(partition_directory)))

    def commit(self, partition_directory: str) -> None:
        """Note that a partition is complete."""
        self._done.append(os.path.basename(os.path.abspath(partition_directory)))
        self._write()

    def finish(self) -> None:
        """Copy the checkpoints of the log directory, and remove the state."""
        present: Sequence[str] = [
            str(kind) for kind in _CHECKPOINTS if os.path.exists(os.path.join(self._source, kind))
        ]
        copy_files(self._source, self.path, present)
        os.unlink(os.path.join(self.path, _STATE))

    def _write(self) -> None:
        write_atomically(os.path.join(self.path, _STATE), json.dumps(self._json(), indent=1).encode("ascii"))

    def _json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "source": os.path.abspath(self._source),
            "options": asdict(self._options),
            "done": self._done,
        }
