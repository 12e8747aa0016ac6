"""Writes the files of an export: the interface of an output, and the output in a local directory.

A file appears under its name only when it is complete: it is written below `_klog/unfinished` (a name that
Spark, Hive and DuckDB ignore), synced and renamed, and the directory is synced. `klog.export.remote_output`
does this for object stores. `klog.export.layout` names the files, and `klog.export.writers` encode them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar

from klog.formats.errors import UsageError
from klog.storage.files.file_system_sync import MANY, can_sync_file_system, sync_file_system
from klog.storage.files.files import look_up, open_for_reading, storage_error, storage_errors, sync_directory

JOB_STATE_DIRECTORY: Final = "_klog"
"""The directory of the job state in an output: readers of tables ignore names with an underscore."""

TEMPORARY: Final = f"{JOB_STATE_DIRECTORY}/unfinished"
"""The directory of files that are being written, or were when their writer was killed."""
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
LOCK: Final = f"{JOB_STATE_DIRECTORY}/lock"
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file of an output.

    `name` is relative to the output's root. `first_offset` and `last_offset` are the lowest and highest
    offset of its rows; `checksum` is XXH128 in hex.
    """

    name: str
    rows: int
    first_offset: int
    last_offset: int
    size_bytes: int
    checksum: str


class FileStatus(NamedTuple):
    """A file in a listing; the time of its last change is in ms since 1970, 0 if the place does not say."""

    size_bytes: int
    modified_ms: int


class Writable(Protocol):
    """Receives the bytes of a sink."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        """Write some bytes. Raises OSError."""


class Sink(io.RawIOBase):
    """Counts and checksums the bytes that a writer writes to `file`."""

    def __init__(self, file: Writable) -> None:
        import xxhash

        super().__init__()
        self._file: Writable | None = file
        self._hash = xxhash.xxh3_128()
        self._is_checksummed = True
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def discard_writes(self) -> None:
        """Discard all further bytes: an abandoned writer still writes its footer."""
        self._file = None

    def skip_checksum(self) -> None:
        """Compute no checksum, because nobody will ask for it."""
        self._is_checksummed = False

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        if self._file is not None:
            if self._is_checksummed:
                self._hash.update(data)
            self._file.write(data)
        size_bytes = memoryview(data).nbytes
        self.size_bytes += size_bytes
        return size_bytes

    def tell(self) -> int:
        return self.size_bytes

    @property
    def checksum(self) -> str:
        """XXH128 of the bytes written so far, in hex."""
        return str(self._hash.hexdigest())


class PendingFile(Protocol):
    """A file that is being written through `sink`, until `commit` or `discard`."""

    sink: Sink

    def commit(self, name: str) -> None:
        """Make the complete file appear as `name`, durably; it replaces an older one. Raises
        `StorageError`."""

    def close(self) -> None:
        """Let the complete file wait for `Output.commit_all`, without an open file if possible."""

    def discard(self) -> None:
        """Remove the file, and discard all further bytes. After `commit` this does nothing."""


class Output(Protocol):
    """A tree of files, named by `/`-separated paths below its root. Each failure is a `StorageError`."""

    root: str

    def create(self) -> PendingFile:
        """A new file; it gets its name when it is committed. Raises `StorageError`."""

    def commit_all(self, files: Sequence[tuple[PendingFile, str]]) -> None:
        """Commit closed files under their names. For many small files this is faster than one after another.

        If it fails, it may be repeated. Raises `StorageError`.
        """

    def open(self, name: str) -> BinaryIO:
        """The file as a seekable stream."""

    def status(self, name: str) -> FileStatus | None:
        """A file as a listing shows it, None if there is none."""

    def files(self, below: str = "") -> dict[str, FileStatus]:
        """The files below the directory `below`, by their names below the root; none if it does not exist."""

    def names(self, below: str = "") -> dict[str, int]:
        """The size in bytes of each file below the directory `below`, by its name below the root."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def remove_directory(self, name: str) -> None:
        """Remove a directory and everything in it, if it exists."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Lock the output for one job; only local ones have locks. Raises `UsageError` if another job holds
        it."""


def write_whole(output: Output, name: str, data: bytes) -> None:
    """Write a whole file atomically."""
    pending = output.create()
    try:
        with writing(f"{output.root}/{name}"):
            pending.sink.write(data)
        pending.commit(name)
    finally:
        pending.discard()


def read_whole(output: Output, name: str) -> bytes:
    """All bytes of a small file."""
    with output.open(name) as file:
        return file.read()


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn OSErrors of the block into `StorageError`s that name `path`."""
    try:
        yield
    except OSError as error:
        problem = storage_error("cannot be written", path, error)
        if error.errno in DISK_FULL:
            again = "run it again (klog export with --resume): what is done is kept"
            problem.cure = f"free some space and {again}"
        raise problem from error


class LocalOutput:
    """An `Output` in a local directory."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path_of(self, name: str) -> str:
        """The path of a name, or of the root."""
        return os.path.join(self.root, *name.split("/")) if name else self.root

    def create(self) -> PendingFile:
        return _LocalFile(self)

    def commit_all(self, files: Sequence[tuple[PendingFile, str]]) -> None:
        paths = {
            pending.temporary: self.path_of(name)
            for pending, name in files
            if isinstance(pending, _LocalFile) and not pending.is_committed
        }
        with writing(self.root):
            _sync_all(self.root, [*paths])
            for temporary, target in paths.items():
                _put(target, partial(os.makedirs, exist_ok=True), partial(os.replace, temporary))
            directories = {os.path.dirname(target) for target in paths.values()}
            _sync_all(self.root, sorted({*directories, *map(os.path.dirname, directories), self.root}))
        for pending, _ in files:
            if isinstance(pending, _LocalFile):
                pending.is_committed = True

    def open(self, name: str) -> BinaryIO:
        return open_for_reading(self.path_of(name))

    def status(self, name: str) -> FileStatus | None:
        found = look_up(self.path_of(name))
        return None if found is None else FileStatus(found.st_size, found.st_mtime_ns // 1_000_000)

    def files(self, below: str = "") -> dict[str, FileStatus]:
        found: dict[str, FileStatus] = {}
        with storage_errors("cannot be listed", self.path_of(below)):
            for directory, _, files in os.walk(self.path_of(below), onerror=_unless_missing):
                for file in files:
                    path = os.path.join(directory, file)
                    with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                        status = os.lstat(path)
                        found[os.path.relpath(path, self.root).replace(os.sep, "/")] = FileStatus(
                            status.st_size, status.st_mtime_ns // 1_000_000
                        )
        return found

    def names(self, below: str = "") -> dict[str, int]:
        return {name: status.size_bytes for name, status in self.files(below).items()}

    def remove(self, name: str) -> None:
        with writing(self.path_of(name)), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path_of(name))
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(os.path.dirname(self.path_of(name)))

    def remove_directory(self, name: str) -> None:
        with writing(self.path_of(name)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path_of(name))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        path = self.path_of(LOCK)
        _make_directories(os.path.dirname(path))
        with writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with writing(path):
                held = _lock(descriptor, path)
            if not held:
                raise UsageError(
                    "another export is writing here", file=self.root, cure="wait for it, or choose another"
                )
            try:
                yield
            finally:
                self.remove(LOCK)
                with contextlib.suppress(OSError):  # it is not empty
                    os.rmdir(self.root)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, path: str) -> bool:
    """Whether the lock is held, and of the existing file: its last holder may just have removed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _sync_all(root: str, paths: Sequence[str]) -> None:
    """Force files or directories below `root` to disk. Raises OSError."""
    if len(paths) >= MANY and can_sync_file_system():
        sync_file_system(root)
        return
    for path in paths:
        sync_directory(path)  # a file is opened and synced in the same way


class _LocalFile:
    """A `PendingFile` of a local directory."""

    def __init__(self, output: LocalOutput) -> None:
        self._output = output
        self.temporary = output.path_of(f"{TEMPORARY}/{uuid.uuid4().hex}.tmp")
        self.is_committed = False
        try:
            with writing(output.root):
                # Writers of tables write rows in large pieces, but footers in small ones.
                self._file = _put(
                    self.temporary,
                    _make_directories,
                    lambda path: open(path, "xb", buffering=1 << 17),  # noqa: SIM115 (see discard)
                )
            self._synced = BackgroundSyncedFile(self._file)
            self.sink = Sink(self._synced)
        except BaseException:
            # Also if a signal ends the process here: nobody else knows the file yet.
            with contextlib.suppress(OSError):
                os.unlink(self.temporary)
            raise

    def commit(self, name: str) -> None:
        target = self._output.path_of(name)
        with writing(target):
            self._synced.sync()
            self._file.close()
            _put(target, _make_directories, partial(os.replace, self.temporary))
            self.is_committed = True
            sync_directory(os.path.dirname(target))

    def close(self) -> None:
        with writing(self._output.root):
            self._synced.close()

    def discard(self) -> None:
        self.sink.discard_writes()
        if self.is_committed:
            return
        self._synced.wait()
        with contextlib.suppress(OSError):  # the disk is full, and closing flushes once more
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self.temporary)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _put(path: str, make_directory: Callable[[str], object], put: Callable[[str], _Result]) -> _Result:
    """Put a file into its directory, which is made if it is not there. `LocalOutput.remove` of another
    process may remove it between both, as it is empty.
    """
    directory = os.path.dirname(path)
    while True:
        make_directory(directory)
        try:
            return put(path)
        except FileNotFoundError:
            if os.path.isdir(directory):
                raise


def _make_directories(path: str) -> None:
    """Make a directory and its parents, and sync each parent before anything is put into the directory."""
    if os.path.isdir(path):
        return
    parent_directory = os.path.dirname(os.path.abspath(path))
    _make_directories(parent_directory)
    with writing(path), contextlib.suppress(FileExistsError):  # another process was faster
        os.mkdir(path)
    with writing(parent_directory):
        sync_directory(parent_directory)


# -- Syncs a file to the disk while it is still being written, so that the last fsync takes little time ------
# Otherwise the disk is idle while a file is computed, and the process is idle while the disk writes all of
# it: for files of some ten MiB on an ordinary disk this takes twice as long.

_STEP_BYTES: Final = 8 << 20


class BackgroundSyncedFile:
    """Writes into `file`; after every 8 MiB a thread syncs it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unsynced_bytes = 0
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        """Write some bytes. Raises OSError."""
        written = self._file.write(data)
        self._unsynced_bytes += written
        if self._unsynced_bytes >= _STEP_BYTES and not (self._thread and self._thread.is_alive()):
            self._file.flush()
            self._unsynced_bytes = 0
            self._thread = threading.Thread(target=self._sync)
            self._thread.start()
        return written

    def sync(self) -> None:
        """Sync everything that was written.

        Raises OSError, also that of the thread: the kernel reports a failed write only once.
        """
        self.wait()
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file without syncing it. Raises OSError, also that of the thread."""
        self.wait()
        self._file.close()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait for the thread: the file must not be closed while it syncs."""
        if self._thread is not None:
            self._thread.join()

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._error = error
