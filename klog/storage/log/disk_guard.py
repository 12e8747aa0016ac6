"""Closes a log when its disk fails, whichever method meets the error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from klog.formats.errors import StorageError
from klog.storage.log.log_values import GuardedLog


class LogClosedError(StorageError):
    """The log has been closed: it was deleted, or its directory has failed."""


_Log = TypeVar("_Log", bound=GuardedLog)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def require_open(log: GuardedLog) -> None:
    """Raises `LogClosedError` if the log is closed."""
    if log.closed:
        raise LogClosedError("the log is closed", file=log.directory)


def on_disk(
    method: Callable[Concatenate[_Log, _Arguments], _Result],
) -> Callable[Concatenate[_Log, _Arguments], _Result]:
    """A method that requires an open log. If the disk fails, it closes the log and notifies `background`."""

    def guarded(log: _Log, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with log.lock:
            require_open(log)
            try:
                return method(log, *args, **kwargs)
            except (OSError, StorageError) as error:
                log.fail(error)
                raise

    functools.update_wrapper(guarded, method)
    return guarded
