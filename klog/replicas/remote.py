"""Reads object stores and other file systems by URI, through pyarrow, or through fsspec if pyarrow has no
such.

Each read of a remote file is a request. Random access therefore reads small ranges, and sequential access
growing ones. Credentials and endpoints are those of pyarrow (environment, profiles, and the options of the
URI, such as `s3://bucket/logs?endpoint_override=...`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klog.formats.errors import StorageError
from klog.storage.files.files import storage_error
from klog.storage.files.seekable import SeekableStream

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

FIRST_READ_BYTES: Final = 128 << 10
LARGEST_READ_BYTES: Final = 8 << 20
_S3_ATTEMPTS: Final = 5
_OTHER_NAMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_CURE: Final = "check the path, the credentials and the network"

_Result = TypeVar("_Result")


class RemoteFile(SeekableStream):
    """A seekable file of an object store. The read-ahead of sequential reads doubles, up to 8 MiB."""

    def __init__(self, uri: str) -> None:
        system, place = resolve(uri)
        self._file: pa.NativeFile = guarded(uri, "cannot be opened", lambda: system.open_input_file(place))
        super().__init__(self._file)
        self.name = uri
        self.size_bytes = guarded(uri, "cannot be opened", self._file.size)
        self._held = b""
        self._held_from = 0
        self._ahead_bytes = FIRST_READ_BYTES

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position, without a request."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size_bytes}
        target = starts[whence] + offset
        if target < 0:
            raise StorageError("cannot seek before the start", file=self.name)
        self._position = target
        return target

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill some of `buffer`; 0 at the end. Raises `StorageError`."""
        view = memoryview(buffer).cast("B")
        held = self._position - self._held_from
        if not 0 <= held < len(self._held):
            self._fetch(len(view))
            held = 0
        size = min(len(view), len(self._held) - held)
        if size <= 0:
            return 0
        view[:size] = memoryview(self._held)[held : held + size]
        self._position += size
        return size

    def read(self, size: int | None = -1, /) -> bytes:
        """`size` bytes, fewer only at the end of the file; all of them for -1."""
        left = self.size_bytes - self._position if size is None or size < 0 else size
        parts: list[bytes] = []
        while left > 0 and (part := super().read(min(left, LARGEST_READ_BYTES))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._held = b""
        super().close()

    def _fetch(self, wanted_bytes: int) -> None:
        goes_on = self._position == self._held_from + len(self._held) and self._position > 0
        ahead = min(2 * self._ahead_bytes, LARGEST_READ_BYTES) if goes_on else FIRST_READ_BYTES
        self._ahead_bytes = ahead
        size = max(0, min(max(ahead, wanted_bytes), self.size_bytes - self._position))
        self._held_from = self._position
        self._held = b""
        if size:
            read = guarded(self.name, "cannot be read", lambda: self._file.read_at(size, self._position))
            self._held = bytes(read)


def guarded(uri: str, what: str, call: Callable[[], _Result]) -> _Result:
    """The result of `call`; its failures become a `StorageError` with the text `what`."""
    import pyarrow as pa

    try:
        return call()
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno:
            raise storage_error(what, uri, error) from error
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StorageError(f"{what}: {first_line}", file=uri, cure=_CURE) from error


def resolve(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a URI, and the path in it. Raises `StorageError`."""
    place, _, options = uri.partition("?")
    scheme, _, rest = place.partition(":")
    authority, _, inside = rest.removeprefix("//").partition("/")
    scheme = _OTHER_NAMES.get(scheme.lower(), scheme.lower())
    root = f"{scheme}://{authority}" + (f"/?{options}" if options else "")
    # A connection cannot be used after a fork: each process has its own.
    system, start = guarded(uri, "cannot be reached", lambda: _file_system(root, os.getpid()))
    inside = inside.strip("/")
    return system, f"{start.rstrip('/')}/{inside}".lstrip("" if start.startswith("/") else "/")


@lru_cache(maxsize=64)
def _file_system(root: str, process_id: int) -> tuple[pafs.FileSystem, str]:  # noqa: ARG001 (part of the key)
    import pyarrow as pa
    import pyarrow.fs as pafs

    try:
        system, start = pafs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return _through_fsspec(root, error)
    return _answering_soon(system), start


def _answering_soon(system: pafs.FileSystem) -> pafs.FileSystem:
    """S3 with fewer attempts for each call. By default eleven are made, which takes 100 s if a store accepts
    connections and does not answer. A URI cannot say it, so the file system is built as by pickle.
    """
    import pyarrow.fs as pafs

    if system.type_name != "s3":
        return system
    make, (options,) = system.__reduce__()
    retry = pafs.AwsStandardS3RetryStrategy(max_attempts=_S3_ATTEMPTS)
    found: pafs.FileSystem = make({**options, "retry_strategy": retry})
    return found


def _through_fsspec(root: str, refusal: Exception) -> tuple[pafs.FileSystem, str]:
    import pyarrow as pa
    import pyarrow.fs as pafs

    try:
        from fsspec.core import url_to_fs
    except ImportError:
        scheme = root.partition(":")[0]
        raise StorageError(
            f"pyarrow has no file system for {scheme}: {refusal}",
            file=root,
            cure=f"install fsspec and its driver for {scheme}, or copy the files to a local disk",
        ) from refusal

    class Unbuffered(pafs.FSSpecHandler):  # type: ignore[misc]
        """Opens files without the driver's own read-ahead, which would fetch megabytes more for each
        range."""

        def open_input_file(self, path: str) -> pa.PythonFile:
            return pa.PythonFile(self.fs.open(path, mode="rb", cache_type="none"), mode="r")

    system, start = url_to_fs(root)
    return pafs.PyFileSystem(Unbuffered(system)), str(start)
