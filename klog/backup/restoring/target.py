"""The directory that a restore fills, which says that it is incomplete until it is complete.

While a restore is under way there is a directory `klog-restore-incomplete` in each log directory. No broker
starts with such a name there, neither Kafka nor klog. The file in that of the target says which restore it is
and which partitions are done; a restore that was killed goes on with the others.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any, Final

from klog.formats.errors import UsageError
from klog.storage.files.files import (
    list_directory,
    read_small,
    storage_error,
    sync_directory,
    write_atomically,
)

INCOMPLETE: Final = "klog-restore-incomplete"
_STATE: Final = "restore.json"
_VERSION: Final = 1
_IGNORED: Final = frozenset({"lost+found"})


class RestoreTarget:
    """A directory that is filled. `restore` identifies what comes back, and `moment` is the option that asks
    for the same moment at any time. Methods raise `StorageError`.
    """

    def __init__(self, path: str, restore: str, moment: str = "") -> None:
        self.path = os.path.abspath(path)
        self._restore = restore
        self._moment = moment
        self._done: dict[str, Any] = {}

    def begin(self) -> None:
        """Create the directory, or continue in it. Raises `UsageError` if it holds anything else."""
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise storage_error("cannot be created", self.path, error) from error
        names = [each.name for each in list_directory(self.path) if each.name not in _IGNORED]
        if INCOMPLETE not in names:
            require_empty(self.path)
            self._make(os.path.join(self.path, INCOMPLETE))
            self._write()
            return
        if not os.path.exists(self._state_path):
            self._write()  # killed before the first write
            return
        state = json.loads(read_small(self._state_path))
        if (state.get("version"), state.get("restore")) != (_VERSION, self._restore):
            moment = f" and {state['moment']}" if state.get("moment") else ""
            raise UsageError(
                "holds an unfinished restore of something else",
                file=self.path,
                cure=f"repeat that restore with the same options{moment}, or choose an empty directory",
            )
        self._done = state["done"]

    @property
    def done(self) -> Mapping[str, Any]:
        """What is done, with what was noted of it."""
        return self._done

    def new_directory(self, *names: str) -> str:
        """An empty directory in the target; what a killed restore left there is removed."""
        path = os.path.join(self.path, *names)
        try:
            if os.path.exists(path):
                shutil.rmtree(path)
        except OSError as error:
            raise storage_error("cannot be removed", path, error) from error
        self._make(path)
        return path

    def guard(self, name: str) -> str:
        """Create a log directory in the target (the target itself if `name` is empty) that is incomplete."""
        path = os.path.join(self.path, name)
        self._make(os.path.join(path, INCOMPLETE))
        return path

    def commit(self, done: Mapping[str, Any]) -> None:
        """Note what is done and on the disk, with JSON values to remember of it."""
        self._done.update(done)
        self._write()

    def finish(self, directories: Iterable[str]) -> None:
        """Let the log directories and then the target be complete."""
        for directory in (*directories, self.path):
            path = os.path.join(directory, INCOMPLETE)
            try:
                if os.path.exists(path):
                    shutil.rmtree(path)
                    sync_directory(directory)
            except OSError as error:
                raise storage_error("cannot be removed", path, error) from error

    @property
    def _state_path(self) -> str:
        return os.path.join(self.path, INCOMPLETE, _STATE)

    def _make(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error("cannot be created", path, error) from error

    def _write(self) -> None:
        state: dict[str, Any] = {
            "version": _VERSION,
            "restore": self._restore,
            "moment": self._moment,
            "done": self._done,
        }
        write_atomically(self._state_path, (json.dumps(state, indent=1) + "\n").encode("ascii"))


def is_incomplete(path: str) -> bool:
    """Whether a directory holds a restore that is under way or was ended before it was complete."""
    return os.path.isdir(os.path.join(path, INCOMPLETE))


def require_empty(path: str) -> None:
    """Raises `UsageError` if a directory holds anything, unless it is an unfinished restore."""
    if not os.path.isdir(path):
        return
    names = [each.name for each in list_directory(path) if each.name not in _IGNORED]
    if names and INCOMPLETE not in names:
        raise UsageError(
            f"is not empty ({names[0]}); nothing was changed",
            file=path,
            cure="choose an empty or a new directory: a restore never writes over data",
        )
