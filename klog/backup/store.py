"""The objects of a repository by name, in a directory or an object store; each call is repeated if that may
help.

The files are those of `klog.export.outputs`: an object appears under its name when it is complete and
durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final, TypeVar

from klog.backup.retrying import NO_RETRIES, RetryingFile, RetryPolicy
from klog.export.open_output import open_output
from klog.export.outputs import TEMPORARY, FileStatus, Output, PendingFile, writing
from klog.formats.errors import StorageError
from klog.formats.optional import require_pyarrow
from klog.replicas.files import entry_of, is_remote, join, list_directory

UNFINISHED: Final = TEMPORARY
"""The directory of objects that are being written, or were when their writer was killed."""


_Result = TypeVar("_Result")


class StoreError(StorageError):
    """The repository cannot be read or written. A run cannot go on then, as it can without one source."""


class Store:
    """The objects below a path or URI. Each failure is a `StoreError`."""

    def __init__(self, output: Output, policy: RetryPolicy = NO_RETRIES) -> None:
        self.place = output.root
        self._output = output
        self._policy = policy

    def path_of(self, name: str) -> str:
        """The path or URI of an object, for messages."""
        return join(self.place, *name.split("/"))

    def status(self, name: str) -> FileStatus | None:
        """The size and the age of an object, None if there is none."""
        return self._call(lambda: self._output.status(name))

    def open(self, name: str) -> BinaryIO:
        """An object as a seekable stream of its stored bytes."""
        return RetryingFile(lambda: self._output.open(name), self._call)  # type: ignore[return-value]

    def read(self, name: str) -> bytes:
        """All bytes of a small object."""
        with self.open(name) as file:
            return file.read()

    def put(self, name: str, data: bytes) -> None:
        """Write a small object."""
        pending = self.create()
        try:
            with self.writing():
                pending.sink.write(data)
            self.commit(pending, name)
        finally:
            pending.discard()

    def create(self) -> PendingFile:
        """A new object; it gets its name by `commit`."""
        return self._call(self._output.create)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of writing into a new object into `StoreError`s."""
        try:
            with writing(self.place):
                yield
        except StorageError as error:
            raise _store_error(error) from error.__cause__

    def commit(self, pending: PendingFile, name: str) -> None:
        """Let a complete object appear under its name."""
        self._call(lambda: pending.commit(name))

    def commit_all(self, files: Sequence[tuple[PendingFile, str]]) -> None:
        """Let closed objects appear under their names."""
        self._call(lambda: self._output.commit_all(files))

    def files(self, below: str = "") -> dict[str, FileStatus]:
        """The objects below a directory, by name."""
        return self._call(lambda: self._output.files(below))

    def names_in(self, directory: str) -> list[str]:
        """The names of directories in a directory, sorted; none if it does not exist."""
        place = join(self.place, directory)

        def listed() -> list[str]:
            if entry_of(place) is None:
                return []
            return sorted(entry.name for entry in list_directory(place) if entry.is_directory)

        return self._call(listed)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        self._call(lambda: self._output.remove(name))

    def _call(self, work: Callable[[], _Result]) -> _Result:
        try:
            return self._policy.call(work)
        except StorageError as error:
            raise _store_error(error) from error.__cause__


def _store_error(error: StorageError) -> StoreError:
    return StoreError(error.what, file=error.file, position_bytes=error.position_bytes, cure=error.cure)


def open_store(
    place: str,
    policy: RetryPolicy | None = None,
    *,
    opening: Callable[[str], Output] = open_output,
) -> Store:
    """The store at a path or URI. Nothing is created yet. `policy` is for object stores."""
    if not is_remote(place):
        return Store(opening(place))
    require_pyarrow("a repository in an object store")
    return Store(opening(place.rstrip("/")), policy or RetryPolicy())


def missing(error: StorageError) -> bool:
    """Whether the error says that there is no such object."""
    return isinstance(error.__cause__, FileNotFoundError)
