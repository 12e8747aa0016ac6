"""The objects of a repository by name, in a directory or an object store, plain or encrypted; each call is
repeated if that may help.

The files are those of `klog.export.outputs`: an object appears under its name when it is complete and
durable. In an encrypted repository the file of an object is called as the object is, with `.enc` at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO, Final, TypeVar

from klog.backup import names
from klog.backup.encryption import Keys, OpenedObject, Sealer
from klog.backup.retrying import NO_RETRIES, START_S, RetryingFile, RetryPolicy
from klog.export.open_output import open_output
from klog.export.outputs import DISK_FULL, TEMPORARY, FileStatus, Output, PendingFile, writing
from klog.formats.checksums import Bytes
from klog.formats.errors import StorageError
from klog.formats.optional import require_pyarrow
from klog.replicas.files import entry_of, is_remote, join, list_directory
from klog.storage.files.files import GZIP_SUFFIX
from klog.storage.files.gzipped import GzippedFile

UNFINISHED: Final = TEMPORARY
"""The directory of objects that are being written, or were when their writer was killed."""
ENCRYPTED_SUFFIX: Final = ".enc"
# These are read before there is a key, or hold nothing that is complete.
_PLAIN: Final = (names.INFO, f"{names.KEYS}/", "_")

_Result = TypeVar("_Result")


class StoreError(StorageError):
    """The repository cannot be read or written. A run cannot go on then, as it can without one source."""


class NewObject:
    """An object that is being written: `write`, then `seal` it under its name, then let the store commit it.

    Methods raise `StorageError`.
    """

    def __init__(self, store: Store, pending: PendingFile, keys: Keys | None) -> None:
        self.name = ""
        self._store = store
        self._pending = pending
        pending.sink.skip_checksum()  # names have a SHA-256, and documents a checksum of their own
        self._sealer = None if keys is None else Sealer(keys, pending.sink.write)

    def write(self, data: Bytes) -> None:
        """Add some bytes."""
        with self._store.writing():
            if self._sealer is None:
                self._pending.sink.write(data)
            else:
                self._sealer.add(data)

    def seal(self, name: str) -> None:
        """Complete the object. It does not appear under its name yet."""
        if self._sealer is not None:
            with self._store.writing():
                self._sealer.finish(name)
        self.name = name

    @property
    def stored_bytes(self) -> int:
        """The bytes of its file so far."""
        return self._pending.sink.size_bytes

    def close(self) -> None:
        """Let it wait for `Store.commit_all`, without an open file if possible."""
        with self._store.writing():
            self._pending.close()

    def discard(self) -> None:
        """Remove what was not committed."""
        self._pending.discard()

    @property
    def file(self) -> tuple[PendingFile, str]:
        """The file, and the name of its object."""
        return self._pending, self.name


class Store:
    """The objects below a path or URI. Each failure is a `StoreError`.

    With `keys` the objects are encrypted; a damaged one is another `StorageError`.
    """

    def __init__(self, output: Output, policy: RetryPolicy = NO_RETRIES, keys: Keys | None = None) -> None:
        self.place = output.root
        self._output = output
        self._policy = policy
        self._keys = keys

    def encrypted(self, keys: Keys) -> Store:
        """The same place, where objects are encrypted."""
        return Store(self._output, self._policy, keys)

    def starting(self) -> Store:
        """The same place, for a command that has just begun: it asks for a minute only."""
        policy = self._policy
        return Store(self._output, replace(policy, limit_s=min(policy.limit_s, START_S)), self._keys)

    def path_of(self, name: str) -> str:
        """The path or URI of an object, for messages."""
        return join(self.place, *self._file_name(name).split("/"))

    def content_id(self, sha256: str) -> str:
        """What stands for the SHA-256 (hex) of contents in the names of objects."""
        return sha256 if self._keys is None else self._keys.content_id(sha256)

    def status(self, name: str) -> FileStatus | None:
        """The stored size and the age of an object, None if there is none."""
        return self._call(lambda: self._output.status(self._file_name(name)))

    def open(self, name: str) -> BinaryIO:
        """An object as a seekable stream of its bytes. One whose name ends in `.gz` is decompressed."""
        file_name, keys = self._file_name(name), self._keys
        file: BinaryIO = RetryingFile(lambda: self._output.open(file_name), self._call)  # type: ignore[assignment]
        if keys is None or file_name == name:
            return file
        try:
            opened: BinaryIO = OpenedObject(file, name, self.path_of(name), keys)  # type: ignore[assignment]
        except BaseException:
            file.close()
            raise
        if name.endswith(GZIP_SUFFIX):
            return GzippedFile(opened, self.path_of(name))  # type: ignore[return-value]
        return opened

    def read(self, name: str) -> bytes:
        """All bytes of a small object."""
        with self.open(name) as file:
            return file.read()

    def put(self, name: str, data: bytes) -> None:
        """Write a small object."""
        new = self._new(None if self._file_name(name) == name else self._keys)
        try:
            new.write(data)
            new.seal(name)
            self.commit(new)
        finally:
            new.discard()

    def create(self) -> NewObject:
        """A new object; it gets its name by `NewObject.seal` and appears by `commit`."""
        return self._new(self._keys)

    def _new(self, keys: Keys | None) -> NewObject:
        return NewObject(self, self._call(self._output.create), keys)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of writing into a new object into `StoreError`s."""
        try:
            with writing(self.place):
                yield
        except StorageError as error:
            raise _store_error(error) from error.__cause__

    def commit(self, new: NewObject) -> None:
        """Let a complete object appear under its name."""
        pending, name = new.file
        self._call(lambda: pending.commit(self._file_name(name)))

    def commit_all(self, objects: Sequence[NewObject]) -> None:
        """Let closed objects appear under their names."""
        files = [(pending, self._file_name(name)) for pending, name in (each.file for each in objects)]
        self._call(lambda: self._output.commit_all(files))

    def files(self, below: str = "") -> dict[str, FileStatus]:
        """The objects below a directory, by name, with their stored sizes."""
        found = self._call(lambda: self._output.files(below))
        if self._keys is None:
            return found
        return {
            name.removesuffix(ENCRYPTED_SUFFIX): status
            for name, status in found.items()
            if name.startswith(_PLAIN) or name.endswith(ENCRYPTED_SUFFIX)
        }

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
        self._call(lambda: self._output.remove(self._file_name(name)))

    def _file_name(self, name: str) -> str:
        is_plain = self._keys is None or name.startswith(_PLAIN)
        return name if is_plain else f"{name}{ENCRYPTED_SUFFIX}"

    def _call(self, work: Callable[[], _Result]) -> _Result:
        try:
            return self._policy.call(work)
        except StorageError as error:
            raise _store_error(error) from error.__cause__


def _store_error(error: StorageError) -> StoreError:
    is_full = isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FULL
    cure = "free some space and run it again: what is stored is kept" if is_full else error.cure
    return StoreError(error.what, file=error.file, position_bytes=error.position_bytes, cure=cure)


def open_store(
    place: str,
    policy: RetryPolicy | None = None,
    *,
    opening: Callable[[str], Output] = open_output,
) -> Store:
    """The store at a path or URI. Nothing is created yet. `policy` is for object stores.

    Raises `StorageError` if the URI names no place.
    """
    if not is_remote(place):
        return Store(opening(place))
    require_pyarrow("a repository in an object store")
    return Store(opening(place.rstrip("/")), policy or RetryPolicy())


def missing(error: StorageError) -> bool:
    """Whether the error says that there is no such object."""
    return isinstance(error.__cause__, FileNotFoundError)
