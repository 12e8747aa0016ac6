"""An object store in memory that counts requests: what reading from S3 and its like would cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

ROOT: Final = "counted://logs"
"""Where the files below `/logs` of the store are for klog."""


class CountedFile:
    """A file in memory that counts the ranges that are read of it."""

    def __init__(self, file: MemoryFile, requests: list[tuple[int, int]]) -> None:
        self._file, self._requests = file, requests

    def read(self, size: int = -1) -> bytes:
        self._requests.append((self._file.tell(), size))
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountedFileSystem(MemoryFileSystem):
    """Files in memory, as an object store that counts requests."""

    protocol = "counted"
    store: dict[str, Any] = {}  # noqa: RUF012 (fsspec's own way)
    pseudo_dirs = [""]  # noqa: RUF012
    requests: list[tuple[int, int]] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("counted://", "memory://")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode, **options)
        return CountedFile(file, self.requests) if mode == "rb" else file


@contextmanager
def counted_store() -> Iterator[CountedFileSystem]:
    """The empty store, with its requests not yet counted."""
    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    system = CountedFileSystem()
    system.store.clear()
    system.requests.clear()
    yield system
    system.store.clear()


def put_directory(store: CountedFileSystem, directory: Path, place: str = "/logs") -> None:
    """Copy a local directory into the store."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    store.pipe({f"{place}/{path.relative_to(directory).as_posix()}": path.read_bytes() for path in files})
