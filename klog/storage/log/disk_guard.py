"""Closes a log when its disk or this machine's checksum code fails, whichever method meets the error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from klog.formats.errors import ChecksumCodeError, StorageError
from klog.storage.log.log_values import GuardedLog


class NoSegmentError(StorageError):
    """The process has no descriptors or no memory left for a new segment. The log is as it was, and open."""


class LogClosedError(StorageError):
    """The log has been closed: it was deleted, or its directory has failed."""


_Log = TypeVar("_Log", bound=GuardedLog)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def require_open(log: GuardedLog) -> None:
    """Raises `LogClosedError` if the log is closed."""
    if log.closed:
        raise LogClosedError("the log is closed", file=log.directory)


def unusable(log: GuardedLog, wrong: ChecksumCodeError) -> StorageError:
    """Close a log whose checksums this machine cannot check, as if its disk had failed."""
    error = StorageError(str(wrong), file=log.directory)
    log.fail(error)
    return error


def on_disk(
    method: Callable[Concatenate[_Log, _Arguments], _Result],
) -> Callable[Concatenate[_Log, _Arguments], _Result]:
    """A method that requires an open log. If the disk fails, or the code that computes checksums is wrong, it
    closes the log and notifies `background`.
    """

    def guarded(log: _Log, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with log.lock:
            require_open(log)
            try:
                return method(log, *args, **kwargs)
            except ChecksumCodeError as wrong:
                raise unusable(log, wrong) from wrong
            except NoSegmentError:
                raise
            except (OSError, StorageError) as error:
                log.fail(error)
                raise

    functools.update_wrapper(guarded, method)
    return guarded
