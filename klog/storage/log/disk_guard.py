"""The disk under a log fails: once, whatever method meets it, and never half noticed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from klog.formats.errors import StorageError

if TYPE_CHECKING:
    from klog.storage.log.partition_log import PartitionLog


class LogClosedError(StorageError):
    """The log has been closed: it was deleted, or its directory has failed."""


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def on_disk(
    method: Callable[Concatenate[PartitionLog, _Arguments], _Result],
) -> Callable[Concatenate[PartitionLog, _Arguments], _Result]:
    """A method that must find the log open and, where the disk fails, closes it and tells `background`."""

    def guarded(log: PartitionLog, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with log.lock:
            if log.closed:
                raise LogClosedError("the log is closed", file=log.directory)
            try:
                return method(log, *args, **kwargs)
            except (OSError, StorageError) as error:
                log.fail(error)
                raise

    functools.update_wrapper(guarded, method)
    return guarded
