"""Opens files for reading (plain or gzipped) and replaces them atomically; every failure is a `StorageError`.

An important file is written as Kafka writes its own: a temporary file beside it, fsync, rename, fsync of the
directory.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final

from klog.formats.errors import StorageError
from klog.storage.files.gzipped import GzippedFile

GZIP_SUFFIX: Final = ".gz"
MAX_SMALL_BYTES: Final = 64 << 20
"""A checkpoint of a million partitions takes about 50 MB; brokers have thousands."""
_GZIP_MAGIC: Final = b"\x1f\x8b"

_READING: Final = ("cannot be read", "cannot be opened", "cannot be listed", "cannot be found")
_DENIED: Final = (errno.EACCES, errno.EPERM)
_CURES: Final = {
    errno.ENOENT: "check the path",
    errno.EISDIR: "name a file, or let the command walk the directory",
    errno.EIO: "the disk itself fails: copy what can be read (ddrescue) and work on the copy",
    errno.ENOSPC: "free some space; the file was not changed",
    errno.EROFS: "the file system is mounted read-only; nothing was changed",
}


def storage_error(what: str, path: str | os.PathLike[str], error: OSError) -> StorageError:
    """The `StorageError` for `error`, with the path and what the user can do."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    cure = _CURES.get(error.errno) if error.errno is not None else None
    if error.errno in _DENIED:
        permission = "read permission" if what in _READING else "permission to write here"
        cure = f"run as the user that owns Kafka's files, or ask for {permission}"
    return StorageError(f"{what}: {reason}", file=os.fspath(path), cure=cure)


@contextlib.contextmanager
def storage_errors(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an `OSError` of the block into the `StorageError` for it."""
    try:
        yield
    except OSError as error:
        raise storage_error(what, path, error) from error


def look_up(path: str | os.PathLike[str]) -> os.stat_result | None:
    """What is at a path, links followed; None if nothing is there.

    Raises `StorageError` if that cannot be found out, for example without permission for a directory above.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error("cannot be found", path, error) from error


def no_such_file(path: str) -> StorageError:
    """The error for a path that does not exist."""
    return StorageError("there is no such file or directory", file=path, cure="check the path")


class _PlainFile(io.FileIO):
    """A file whose read errors are `StorageError`s. It is unbuffered: readers have their own buffer."""

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        try:
            return super().readinto(buffer) or 0
        except OSError as error:
            raise storage_error("cannot be read", str(self.name), error).at(
                position_bytes=self.tell()
            ) from error

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            return super().read(-1 if size is None else size) or b""
        except OSError as error:
            raise storage_error("cannot be read", str(self.name), error) from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting: opening a FIFO without a writer would block for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_for_reading(path: str | os.PathLike[str]) -> BinaryIO:
    """The file at `path` as a seekable stream of plain bytes; a file with a name ending in `.gz` is
    decompressed.

    Raises `StorageError` if it cannot be opened or is not a regular file. The stream's own reads raise
    nothing else either. A `.gz` file that is not gzipped is read as it is.
    """
    name = os.fspath(path)
    with storage_errors("cannot be opened", name):
        file = _PlainFile(name, "r", opener=_open_at_once)
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StorageError(
                "is not a regular file", file=name, cure="save what it delivers to a file and name that"
            )
        gzipped = name.endswith(GZIP_SUFFIX) and file.read(2) == _GZIP_MAGIC
        file.seek(0)
    except BaseException:
        file.close()
        raise
    if not gzipped:
        return file
    return GzippedFile(file, name)  # type: ignore[return-value]


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a (small) file; a gzipped copy is decompressed."""
    with open_for_reading(path) as file:
        parts = []
        buffer = bytearray(1 << 20)
        while got := file.readinto(buffer):  # type: ignore[attr-defined]
            parts.append(bytes(buffer[:got]))
    return b"".join(parts)


def read_small(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file that is small in every broker (checkpoints, properties, snapshots).

    If it is larger than `MAX_SMALL_BYTES`, `StorageError` is raised without reading it.
    """
    with open_for_reading(path) as file:
        # The size of a plain file is known. Of a gzipped copy one byte more than the limit is read.
        too_large = isinstance(file, io.FileIO) and os.fstat(file.fileno()).st_size > MAX_SMALL_BYTES
        data = b"" if too_large else file.read(MAX_SMALL_BYTES + 1)
    if too_large or len(data) > MAX_SMALL_BYTES:
        raise StorageError(
            f"is larger than {MAX_SMALL_BYTES >> 20} MiB, which no valid file of its kind is",
            file=os.fspath(path),
            cure="it is damaged or none of Kafka's: put a copy of the right one in its place",
        )
    return data


def size_bytes(path: str | os.PathLike[str]) -> int:
    """Size of the file (of a gzipped copy: compressed)."""
    with storage_errors("cannot be read", path):
        return os.stat(path).st_size


def list_directory(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """The entries of a directory in the order of their names."""
    with storage_errors("cannot be listed", path), os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory, or a link to one. A broken link is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_regular_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a regular file, or a link to one. A broken link is not."""
    try:
        return entry.is_file()
    except OSError:
        return False


def is_broken_link(path: str) -> bool:
    """Whether a symbolic link has no file or directory at its end."""
    return os.path.islink(path) and not os.path.exists(path)


@contextlib.contextmanager
def atomic_output(path: str | os.PathLike[str], *, sync: bool = True) -> Iterator[BinaryIO]:
    """A new file that replaces `path` if the block succeeds, and is removed if it fails.

    Readers of `path` see the old content or the new, also after a crash. Mode and owner are those of the
    replaced file; a new file gets the owner of its directory if permissions allow it. So a broker can open
    what an administrator repaired as root. Without `sync` nothing is forced to disk: after a power
    failure the file may be as it was, or empty. Raises `StorageError`.
    """
    target = os.fspath(path)
    temporary = f"{target}.{os.getpid()}.tmp"
    with storage_errors("cannot be written", target):
        file = _new_file(temporary, target)
    try:
        with file:
            yield file
            file.flush()
            take_over_owner(file.fileno(), target)
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, target)
        if sync:
            sync_directory(os.path.dirname(target) or ".")
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise storage_error("cannot be written", target, error) from error
        raise


def _new_file(path: str, like: str) -> BinaryIO:
    """A new file with the mode of `like`: one of secrets must not be open to others for a moment either."""
    try:
        return open(path, "xb", opener=_with_mode_of(like))
    except FileExistsError:
        # A process with the same id has died here. In a container the ids are the same at each start.
        os.unlink(path)
        return open(path, "xb", opener=_with_mode_of(like))


def write_atomically(
    path: str | os.PathLike[str], data: bytes | Iterable[bytes], *, sync: bool = True
) -> None:
    """Replace the content of `path` with `data` (whole or in parts), as `atomic_output` does."""
    with atomic_output(path, sync=sync) as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def _with_mode_of(target: str) -> Callable[[str, int], int]:
    """Opens a new file with the mode of `target` if that exists."""

    def opener(path: str, flags: int) -> int:
        try:
            mode = stat.S_IMODE(os.stat(target).st_mode)
        except FileNotFoundError:
            mode = 0o666
        return os.open(path, flags, mode)

    return opener


def take_over_owner(descriptor: int, target: str) -> None:
    """Give an open file the mode and the owner of `target`, or else the owner of its directory, as far as
    permissions allow it. Raises OSError.
    """
    try:
        like = os.stat(target)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    except FileNotFoundError:
        like = os.stat(os.path.dirname(target) or ".")
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        # Only root may change the owner. For others the file keeps theirs.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)


def sync_directory(directory: str) -> None:
    """Force the names in a directory, or what was written to a file, to disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_exactly(file: BinaryIO, wanted_bytes: int) -> bytes:
    """That many bytes from the position of the file; fewer only if the file ends."""
    parts = []
    while wanted_bytes > 0 and (part := file.read(wanted_bytes)):
        parts.append(part)
        wanted_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_at(file: BinaryIO, position_bytes: int, wanted_bytes: int) -> bytes:
    """That many bytes of an open file from a position on; fewer only if the file ends."""
    file.seek(position_bytes)
    return read_exactly(file, wanted_bytes)
