"""The objects of a repository by name, in a directory or an object store; each call is repeated if that may
help.

The files are those of `klog.export.outputs`: an object appears under its name when it is complete and
durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

from klog.backup.retrying import NO_RETRIES, RetryingFile, RetryPolicy
from klog.export.open_output import open_output
from klog.export.outputs import TEMPORARY, FileStatus, Output, PendingFile, writing
from klog.formats.errors import StorageError
from klog.formats.optional import require_pyarrow
from klog.replicas.files import entry_of, is_remote, join, list_directory

UNFINISHED: Final = TEMPORARY
"""The directory of objects that are being written, or were when their writer was killed."""


class Store:
    """The objects below a path or URI. Each failure is a `StorageError`."""

    def __init__(self, output: Output, policy: RetryPolicy = NO_RETRIES) -> None:
        self.place = output.root
        self._output = output
        self._policy = policy

    def status(self, name: str) -> FileStatus | None:
        """The size and the age of an object, None if there is none."""
        return self._policy.call(lambda: self._output.status(name))

    def open(self, name: str) -> BinaryIO:
        """An object as a seekable stream of its stored bytes."""
        return RetryingFile(lambda: self._output.open(name), self._policy)  # type: ignore[return-value]

    def read(self, name: str) -> bytes:
        """All bytes of a small object."""
        with self.open(name) as file:
            return file.read()

    def put(self, name: str, data: bytes) -> None:
        """Write a small object."""
        pending = self.create()
        try:
            with writing(f"{self.place}/{name}"):
                pending.sink.write(data)
            self.commit(pending, name)
        finally:
            pending.discard()

    def create(self) -> PendingFile:
        """A new object; it gets its name by `commit`."""
        return self._output.create()

    def commit(self, pending: PendingFile, name: str) -> None:
        """Let a complete object appear under its name."""
        self._policy.call(lambda: pending.commit(name))

    def files(self, below: str = "") -> dict[str, FileStatus]:
        """The objects below a directory, by name."""
        return self._policy.call(lambda: self._output.files(below))

    def names_in(self, directory: str) -> list[str]:
        """The names of directories in a directory, sorted; none if it does not exist."""
        place = join(self.place, directory)

        def listed() -> list[str]:
            if entry_of(place) is None:
                return []
            return sorted(entry.name for entry in list_directory(place) if entry.is_directory)

        return self._policy.call(listed)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        self._policy.call(lambda: self._output.remove(name))


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
