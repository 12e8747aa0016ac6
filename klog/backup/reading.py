"""What a restore and other readers take from a repository: the bytes of segments, checked while they are
read.

`klog.backup.repository` finds backups, their partitions and states.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from klog.backup import names
from klog.backup.keys import UserKey, key_from_environment
from klog.backup.model import Piece
from klog.backup.packing import reading_ahead, unpacked
from klog.backup.repository import Repository, open_repository
from klog.backup.retrying import NO_RETRIES, RetryPolicy
from klog.backup.store import missing, open_store
from klog.formats.errors import StorageError
from klog.replicas.files import entry_of, join

READ_BYTES: Final = 1 << 20
_CURE: Final = "take the object from a copy of the repository, or leave this partition out"


def open_backups(place: str, policy: RetryPolicy | None = None, key: UserKey | None = None) -> Repository:
    """The repository at a path or URI. The key of an encrypted one is by default that of the environment.

    Raises `MissingInputError` if there is no repository, and `UsageError` for a wrong key.
    """
    return open_repository(open_store(place, policy), key or key_from_environment(os.environ))


def is_repository(place: str, *, must_know: bool = True, policy: RetryPolicy = NO_RETRIES) -> bool:
    """Whether a path or URI is a repository; `policy` says how often an object store is asked.

    If it cannot be looked at, raises `StorageError`, or says no unless one `must_know`: whoever reads the
    files there then says what is wrong.
    """
    info = join(place.rstrip("/"), names.INFO)
    try:
        return policy.call(lambda: entry_of(info)) is not None
    except StorageError:
        if must_know:
            raise
        return False


def open_piece(repository: Repository, piece: Piece) -> BinaryIO:
    """The batches of a piece as a stream that can seek, unless they are gzipped. Nothing is checked."""
    return unpacked(piece.name, lambda: repository.store.open(piece.name))


def piece_bytes(repository: Repository, piece: Piece) -> Iterator[memoryview]:
    """The batches of a piece, in parts of at most 1 MiB that are valid until the next one is asked for.

    Raises `StorageError` at the end, if they are not what the backup had written.
    """
    digest = hashlib.sha256()
    size_bytes = 0
    buffer = memoryview(bytearray(READ_BYTES))
    with open_piece(repository, piece) as file, reading_ahead(file):
        while got := file.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(buffer[:got])
            size_bytes += got
            yield buffer[:got]
    if size_bytes != piece.size_bytes or digest.hexdigest() != piece.sha256:
        what = "does not have the checksum of the backup"
        raise StorageError(what, file=repository.store.path_of(piece.name), cure=_CURE)


def segment_bytes(repository: Repository, pieces: Iterable[Piece]) -> Iterator[memoryview]:
    """The bytes of a segment from its pieces, as `piece_bytes` gives them."""
    for piece in pieces:
        yield from piece_bytes(repository, piece)


def is_damage(error: StorageError) -> bool:
    """Whether an object is damaged or missing; otherwise the repository cannot be reached."""
    return not isinstance(error.__cause__, OSError) or missing(error)
