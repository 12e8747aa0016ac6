"""Opens the files and directories that options name as outputs, and protects those that are there.

An output is never one of the inputs, through whatever name or link, and never in a directory of Kafka's.
A regular file that is not empty is replaced with `--force` only; it is written beside its place and renamed
when it is complete. `-`, `/dev/stdout`, other descriptors, FIFOs and devices are written as they are.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import BinaryIO, Final

from klog.formats.errors import FormatError, StorageError, UsageError
from klog.formats.names import SEGMENT_KINDS, FileKind, parse_directory, parse_file
from klog.storage.files.files import atomic_output, storage_error

STDOUT: Final = "-"
_ELSEWHERE: Final = "choose another name"
_OUTSIDE: Final = "choose a place outside"
_DESCRIPTOR: Final = re.compile(
    r"/dev/(?:(?P<name>stdout|stderr)|fd/(?P<of_dev>\d+))|/proc/self/fd/(?P<of_proc>\d+)"
)
_PARTITION_FILES: Final = SEGMENT_KINDS | {FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA}

MayReplace = Callable[[str], bool]
"""Whether an existing file may be replaced without `--force`, for example because an earlier run made it."""


def _never(path: str) -> bool:  # noqa: ARG001 (a MayReplace)
    return False


def check_output_file(
    path: str, inputs: Iterable[str], *, force: bool = False, may_replace: MayReplace = _never
) -> None:
    """Raise `UsageError` if the output would overwrite an input, a file that is there, or one of Kafka's.

    `inputs` are files and directories. Raises `StorageError` if the file cannot be made there. Nothing is
    written.
    """
    if (descriptor := _descriptor(path)) is not None:
        check_descriptor(descriptor, inputs)
        return
    target = os.path.realpath(path)
    found = _stat(target)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise UsageError("is a directory", file=path, cure="name a file")
    if found is not None and _is_among(found, inputs):
        raise UsageError("is an input, which the output would overwrite", file=path, cure=_ELSEWHERE)
    _require_own_place(path, target)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise StorageError(
            "cannot be written: there is no such directory", file=path, cure=f"make {directory} first"
        )
    if found is None or not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        return
    if not force and not may_replace(target):
        raise UsageError("exists already", file=path, cure="--force replaces it; or choose another name")


def check_descriptor(descriptor: int, inputs: Iterable[str]) -> None:
    """Raise `UsageError` if an open descriptor (stdout) writes to one of the inputs."""
    with suppress(OSError):
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and _is_among(found, inputs):
            raise UsageError("the output goes to an input of this command", cure=_ELSEWHERE)


def _require_own_place(path: str, target: str) -> None:
    """Raise `UsageError` for a file in a partition directory, or one of Kafka's in a log directory."""
    directory = os.path.dirname(target)
    if _is_partition(directory):
        raise UsageError(f"is in {directory}, a partition directory of Kafka's", file=path, cure=_OUTSIDE)
    if _is_log_directory(directory) and _kind(os.path.basename(target)) is not None:
        raise UsageError(f"is one of Kafka's files in {directory}", file=path, cure=_ELSEWHERE)


def check_output_directory(path: str, inputs: Iterable[str]) -> None:
    """Raise `UsageError` if a directory for outputs is Kafka's, is in one of Kafka's, or is in an input.

    A broker does not start if a log directory contains a directory that is not a partition's.
    """
    target = os.path.realpath(path)
    above = target
    while True:
        if _is_partition(above):
            raise UsageError(f"is in {above}, a partition directory of Kafka's", file=path, cure=_OUTSIDE)
        if _is_log_directory(above):
            raise UsageError(f"is in {above}, a log directory of Kafka's", file=path, cure=_OUTSIDE)
        if above == os.path.dirname(above):
            break
        above = os.path.dirname(above)
    for one in inputs:
        if f"{target}/".startswith(f"{os.path.realpath(one).rstrip('/')}/"):
            raise UsageError(f"is inside the input {one}", file=path, cure="choose a directory outside")


@contextmanager
def output_file(
    path: str, inputs: Iterable[str], *, force: bool = False, may_replace: MayReplace = _never
) -> Iterator[BinaryIO]:
    """The output as a stream of bytes; a regular file appears when the block succeeds.

    Raises what `check_output_file` raises, and `StorageError` if writing fails.
    """
    check_output_file(path, inputs, force=force, may_replace=may_replace)
    with _opened(path) as out:
        yield out


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    descriptor = _descriptor(path)
    if descriptor == 1:
        yield sys.stdout.buffer
        return
    target = os.path.realpath(path)
    found = _stat(target)
    is_regular = descriptor is None and (found is None or stat.S_ISREG(found.st_mode))
    with atomic_output(target) if is_regular else nullcontext() as file:
        if file is not None:
            yield file
            return
    try:
        with open(path if descriptor is None else os.dup(descriptor), "wb") as stream:
            yield stream
    except BrokenPipeError:
        raise  # the reader of a FIFO has ended, as with stdout
    except OSError as error:
        raise storage_error("cannot be written", path, error) from error


def _descriptor(path: str) -> int | None:
    """The descriptor of this process that the path stands for, 1 for `-`; None if it is no descriptor."""
    if path == STDOUT:
        return 1
    found = _DESCRIPTOR.fullmatch(os.path.normpath(path))
    if found is None:
        return None
    if found["name"]:
        return 1 if found["name"] == "stdout" else 2
    return int(found["of_dev"] or found["of_proc"])


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("cannot be written", path, error) from error


def _is_among(found: os.stat_result, inputs: Iterable[str]) -> bool:
    wanted = (found.st_dev, found.st_ino)
    for one in _files(inputs):
        with suppress(OSError):
            like = os.stat(one)
            if (like.st_dev, like.st_ino) == wanted:
                return True
    return False


def _files(inputs: Iterable[str]) -> Iterator[str]:
    for one in inputs:
        yield one
        for directory, _, names in os.walk(one):
            yield from (os.path.join(directory, name) for name in names)


def _is_log_directory(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, FileKind.META_PROPERTIES))


def _is_partition(directory: str) -> bool:
    """Whether a directory has the name of a partition, and files with the names of a partition's files."""
    with suppress(OSError, FormatError):
        parse_directory(os.path.basename(directory))
        return any(_kind(name) in _PARTITION_FILES for name in os.listdir(directory))
    return False


def _kind(name: str) -> FileKind | None:
    try:
        return parse_file(name).kind
    except FormatError:
        return None
