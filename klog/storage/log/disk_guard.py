"""Closes a log when its disk or this machine's checksum code fails, whichever method meets the error.

`ReadableLog.fail` judges the error. A lack of descriptors or memory closes nothing, so methods leave the log
as it was then; those with several steps use `all_or_nothing`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from klog.formats.errors import ChecksumCodeError, StorageError
from klog.storage.log.append_values import BatchInfo
from klog.storage.log.descriptors import are_exhausted
from klog.storage.log.log_values import GuardedLog
from klog.storage.log.open_file import OpenFile

# As many as any of the methods with several steps has open at a time.
_DESCRIPTORS: Final = 4


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


def kept_for_markers(batches: Iterable[BatchInfo]) -> list[OpenFile]:
    """A descriptor for the entry in the transaction index that a marker among the batches may need.

    The batches are in the log by then. Whoever writes the entry clears the list first.
    """
    for batch in batches:
        if batch.is_control:
            return [OpenFile(os.devnull, os.O_RDONLY)]
    return []


@contextmanager
def all_or_nothing(directory: str) -> Iterator[None]:
    """For what changes a log in several steps: it does not begin unless there are descriptors for it.

    Raises OSError then. If they run out meanwhile, others have taken them, and the log is half changed: that
    counts as a failure of the disk.
    """
    kept = [OpenFile(os.devnull, os.O_RDONLY) for _ in range(_DESCRIPTORS)]
    kept.clear()
    try:
        yield
    except (OSError, StorageError) as error:
        if not are_exhausted(error):
            raise
        raise StorageError(f"a change has stopped half-way: {error}", file=directory) from None


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
            except (OSError, StorageError) as error:
                log.fail(error)
                raise

    functools.update_wrapper(guarded, method)
    return guarded
