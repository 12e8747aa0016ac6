"""Writes an export's output to an object store or a distributed file system, through pyarrow's file systems.

A file is written to the local disk until it is complete, and then uploaded. An upload to an object store is
atomic: the file appears when it is complete. HDFS and file systems of fsspec show a file while it grows, so
there it is uploaded below `_klog/unfinished` and moved.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from klog.export.outputs import TEMPORARY, FileStatus, PendingFile, Sink, writing
from klog.replicas.concurrency import map_concurrently
from klog.replicas.files import join, open_input
from klog.replicas.remote import guarded, resolve

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_PIECE_BYTES: Final = 8 << 20
_IN_MEMORY_BYTES: Final = 64 << 10
"""A smaller file needs no file on the local disk."""
_ATOMIC_UPLOAD: Final = {"s3", "gcs", "abfs"}
"""pyarrow's names of the file systems in which a file appears when its writer is closed."""


class RemoteOutput:
    """An `Output` at a URI."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.system, self._place = resolve(self.root)

    def place_of(self, name: str) -> str:
        """The path of a name in the file system."""
        return f"{self._place.rstrip('/')}/{name}" if name else self._place

    def uri_of(self, name: str) -> str:
        """The URI of a name; options of the root's stay at its end."""
        return join(self.root, *name.split("/"))

    def create(self) -> PendingFile:
        return _SpooledFile(self)

    def commit_all(self, files: Sequence[tuple[PendingFile, str]]) -> None:
        def commit(one: tuple[PendingFile, str]) -> None:
            one[0].commit(one[1])

        map_concurrently(commit, files, remote=True)

    def open(self, name: str) -> BinaryIO:
        return open_input(self.uri_of(name))

    def status(self, name: str) -> FileStatus | None:
        import pyarrow.fs as pafs

        uri, place = self.uri_of(name), self.place_of(name)
        info = guarded(uri, "cannot be read", lambda: self.system.get_file_info(place))
        return _status(info) if info.type == pafs.FileType.File else None

    def files(self, below: str = "") -> dict[str, FileStatus]:
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(self.place_of(below), recursive=True, allow_not_found=True)
        infos = guarded(self.root, "cannot be listed", lambda: self.system.get_file_info(selector))
        start = self._place.strip("/") + "/"
        return {
            info.path.strip("/").removeprefix(start): _status(info)
            for info in infos
            if info.type == pafs.FileType.File
        }

    def names(self, below: str = "") -> dict[str, int]:
        return {name: status.size_bytes for name, status in self.files(below).items()}

    def remove(self, name: str) -> None:
        self._removed(name, lambda: self.system.delete_file(self.place_of(name)))

    def remove_directory(self, name: str) -> None:
        self._removed(name, lambda: self.system.delete_dir(self.place_of(name)))

    def _removed(self, name: str, remove: Callable[[], None]) -> None:
        import pyarrow.fs as pafs

        def remove_if_there() -> None:
            # File systems raise different errors if there is nothing to remove.
            if self.system.get_file_info(self.place_of(name)).type != pafs.FileType.NotFound:
                remove()

        guarded(self.uri_of(name), "cannot be removed", remove_if_there)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        # There are no locks. Two jobs with the same plan write the same bytes under the same names.
        yield


def _status(info: pafs.FileInfo) -> FileStatus:
    return FileStatus(info.size or 0, (info.mtime_ns or 0) // 1_000_000)


class _SpooledFile:
    """A `PendingFile` that is on the local disk until it is complete."""

    def __init__(self, output: RemoteOutput) -> None:
        self._output = output
        self._is_committed = False
        with writing(tempfile.gettempdir()):
            self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, prefix="klog-export-")  # noqa: SIM115
        self.sink = Sink(self._spool)

    def commit(self, name: str) -> None:
        output = self._output
        if self._is_committed:
            return  # `commit_all` is repeated
        uri = output.uri_of(name)
        with writing(uri):
            self._spool.seek(0)
        guarded(uri, "cannot be written", lambda: self._upload(output.system, name))
        self._is_committed = True
        self.discard()

    def _upload(self, system: pafs.FileSystem, name: str) -> None:
        target = self._output.place_of(name)
        if system.type_name in _ATOMIC_UPLOAD:
            self._copy(system, target)
            return
        temporary = self._output.place_of(f"{TEMPORARY}/{uuid.uuid4().hex}")
        for place in (temporary, target):
            system.create_dir(place.rpartition("/")[0], recursive=True)
        self._copy(system, temporary)
        system.move(temporary, target)

    def _copy(self, system: pafs.FileSystem, place: str) -> None:
        # By default pyarrow compresses what is written under a name that ends in .gz or .zst.
        with system.open_output_stream(place, compression=None) as stream:
            while piece := self._spool.read(_PIECE_BYTES):
                stream.write(piece)

    def close(self) -> None:
        pass  # it is sent from here

    def discard(self) -> None:
        self.sink.discard_writes()
        with contextlib.suppress(OSError):
            self._spool.close()
