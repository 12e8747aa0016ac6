"""A backup repository: its documents by name, read once and checked, and the backups that it has."""

from __future__ import annotations

import gzip
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from secrets import token_bytes
from typing import TypeVar

from klog.backup import documents, names
from klog.backup.documents import StoredState
from klog.backup.encryption import RandomBytes
from klog.backup.keys import UserKey, create_key, open_keys, rekey
from klog.backup.model import Manifest, PartitionRef, PartitionState, RepositoryInfo, StoredObject
from klog.backup.packing import SUFFIXES
from klog.backup.store import Store, missing
from klog.formats.errors import FormatError, MissingInputError, StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side
from klog.replicas.files import is_remote

_Parsed = TypeVar("_Parsed")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_READERS = 16
_OBJECTS_KEPT = 16
_CURE = "take the object from a copy of the repository"


class MissingObjectError(FormatError):
    """An object that a backup needs is not there."""


class Repository:
    """The repository in a store. Each failure is a `KlogError` that names the object."""

    def __init__(self, store: Store, info: RepositoryInfo) -> None:
        self.store = store
        self.info = info
        self.states = lru_cache(_OBJECTS_KEPT)(lambda name: self.document(name, documents.decode_states))
        self._tables = lru_cache(_OBJECTS_KEPT)(lambda name: self.document(name, documents.decode_table))

    @property
    def place(self) -> str:
        """The path or URI."""
        return self.store.place

    def ids(self, directory: str = names.MANIFESTS) -> list[str]:
        """The ids of all backups, the oldest first."""
        found = map(names.id_of_manifest, self.store.files(directory))
        return sorted(each for each in found if each is not None)

    def newest_first(self) -> Iterator[str]:
        """The ids, the newest first. Only the days that are asked for are listed."""
        for day in reversed(self.days()):
            yield from reversed(self.ids_of_day(day))

    def days(self) -> list[str]:
        """The days (2026-11-24, in UTC) that have backups, the oldest first."""
        return self.store.names_in(names.MANIFESTS)

    def ids_around(self, moment_ms: int, complete_ms: int, without: Set[str] = frozenset()) -> list[str]:
        """Some ids, the oldest first: the last two at or before a moment and all from there to the first one
        at or after `complete_ms` are among them. Few days are listed.
        """
        days = self.days()
        first = end = bisect_right(days, names.day_of(moment_ms))
        ids: list[str] = []
        while first > 0 and bisect_right(ids, moment_ms, key=names.time_of_id) < 2:
            first -= 1
            ids = [each for each in self.ids_of_day(days[first]) if each not in without] + ids
        while end < len(days) and bisect_left(ids, complete_ms, key=names.time_of_id) == len(ids):
            ids += [each for each in self.ids_of_day(days[end]) if each not in without]
            end += 1
        return ids

    def ids_after(self, identifier: str) -> Iterator[str]:
        """The ids after one, the oldest first. Only the days that are asked for are listed."""
        first = names.day_of(names.time_of_id(identifier))
        for day in self.days():
            if day >= first:
                yield from (each for each in self.ids_of_day(day) if each > identifier)

    def ids_of_day(self, day: str) -> list[str]:
        """The ids of a day, the oldest first."""
        return self.ids(f"{names.MANIFESTS}/{day}")

    def newest(self) -> Manifest | None:
        """The newest backup, None if there is none. Raises `FormatError` if it cannot be read."""
        for identifier in self.newest_first():
            with suppress(MissingInputError):  # it was just pruned
                return self.manifest(identifier)
        return None

    def manifest(self, identifier: str) -> Manifest:
        """The backup with this id. Raises `MissingInputError` if there is none."""
        name = names.manifest(names.checked_id(identifier))
        try:
            return self.document(name, documents.MANIFEST.decode)
        except MissingObjectError:
            cure = "klog backup list shows the ids"
            raise MissingInputError(f"there is no backup {identifier}", file=self.place, cure=cure) from None

    def partitions(self, manifest: Manifest) -> dict[TopicPartition, PartitionRef]:
        """The partitions of a backup."""
        refs = {} if manifest.table is None else dict(self._tables(manifest.table))
        for partition, ref in manifest.changes.items():
            if ref is None:
                refs.pop(partition, None)
            else:
                refs[partition] = ref
        return refs

    def state(self, partition: TopicPartition, ref: PartitionRef) -> PartitionState:
        """The state that a reference leads to."""
        stored = self.stored_state(partition, ref.states)
        if stored.base is None:
            return stored.state
        whole = self.stored_state(partition, stored.base.states)
        return documents.resolved(stored, None if whole.base is not None else whole.state)

    def whole(self, partition: TopicPartition, ref: PartitionRef) -> tuple[str, PartitionState]:
        """The whole state that the state of a reference is based on, or is, and the object that has it."""
        stored = self.stored_state(partition, ref.states)
        if stored.base is None:
            return ref.states, stored.state
        return stored.base.states, self.stored_state(partition, stored.base.states).state

    def read_stored(self, stored: StoredObject) -> bytes:
        """The plain bytes of a small object, checked."""
        data = self.store.read(stored.name)
        if len(data) != stored.size_bytes or hashlib.sha256(data).hexdigest() != stored.sha256:
            raise self._damaged(stored.name)
        return data

    def put_metadata(self, data: bytes) -> StoredObject:
        """Store the metadata of a cluster."""
        sha256 = hashlib.sha256(data).hexdigest()
        stored = StoredObject(names.metadata(self.store.content_id(sha256)), len(data), sha256)
        if self.store.status(stored.name) is None:
            self.store.put(stored.name, gzip.compress(data, 6, mtime=0))
        return stored

    def stored_state(self, partition: TopicPartition, name: str) -> StoredState:
        """A state as it is written in an object."""
        found = self.states(name).get(partition)
        if found is None:
            raise FormatError(f"has no state of {partition}", file=self._file(name))
        return found

    def side_by_side(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """The results of reading several things; in an object store several at a time."""
        return side_by_side(_READERS if is_remote(self.place) else 1, work, items)

    def document(self, name: str, decode: Callable[[bytes], _Parsed]) -> _Parsed:
        """A document, decoded. Raises `FormatError` if it is missing or damaged, and `StorageError` if it
        cannot be read."""
        try:
            return decode(self.store.read(name))
        except FormatError as error:
            raise error.at(self._file(name)) from None
        except StorageError as error:
            if missing(error):
                raise MissingObjectError("is missing", file=self._file(name), cure=_CURE) from None
            if isinstance(error.__cause__, OSError):
                raise
            raise FormatError(error.what, file=self._file(name), cure=_CURE) from None

    def _file(self, name: str) -> str:
        return self.store.path_of(name)

    def _damaged(self, name: str) -> StorageError:
        return StorageError("does not have the checksum of the backup", file=self._file(name), cure=_CURE)


def open_repository(store: Store, key: UserKey | None = None) -> Repository:
    """The repository in a store. Raises `MissingInputError` if there is none, and `UsageError` for a wrong
    key.
    """
    found = _info(store)
    if found is None:
        _require_no_backups(store)
        cure = "check the path; klog backup run makes a repository"
        raise MissingInputError("is no backup repository", file=store.place, cure=cure)
    return _opened(store, found, key, token_bytes)


def open_or_create(
    store: Store,
    wanted: RepositoryInfo,
    key: UserKey | None = None,
    *,
    random_bytes: RandomBytes = token_bytes,
    on_create: Callable[[], object] = lambda: None,
) -> Repository:
    """The repository in a store. An empty place becomes one, which is encrypted if there is a key. Raises
    `UsageError` for a place with other things, and for a wrong key.

    If two runs create it at once, both go on with what is there in the end.
    """
    found = _info(store)
    if found is None:
        if wanted.compression not in SUFFIXES:
            raise UsageError(f"{wanted.compression!r} is not a compression: {', '.join(SUFFIXES)} are")
        _require_no_backups(store)
        if any(not name.startswith(("_", f"{names.KEYS}/")) for name in store.files()):
            cure = "choose an empty or a new directory"
            raise UsageError("holds files and is no backup repository", file=store.place, cure=cure)
        on_create()
        if key is not None:
            wanted = create_key(store, wanted, key, random_bytes)
        store.put(names.INFO, documents.INFO.encode(wanted))
        found = _info(store) or wanted
    return _opened(store, found, key, random_bytes)


def _opened(store: Store, info: RepositoryInfo, key: UserKey | None, random_bytes: RandomBytes) -> Repository:
    keys = open_keys(store, info, key, random_bytes)
    return Repository(store if keys is None else store.encrypted(keys), info)


def change_key(store: Store, old: UserKey | None, new: UserKey) -> int:
    """Let another key open an encrypted repository instead. How many data keys were wrapped anew.

    Raises `UsageError`, `StorageError`, `FormatError`.
    """
    found = _info(store)
    if found is None:
        raise MissingInputError("is no backup repository", file=store.place, cure="check the path")
    return rekey(store, found, old, new, token_bytes)


def _require_no_backups(store: Store) -> None:
    """Raises `MissingObjectError` if a place that is not described as a repository has backups."""
    if store.names_in(names.MANIFESTS):
        raise MissingObjectError("is missing", file=store.path_of(names.INFO), cure=_CURE)


def _info(store: Store) -> RepositoryInfo | None:
    """What a place says it is. This is the first that a command asks of it."""
    first = store.starting()
    if first.status(names.INFO) is None:
        return None
    data = first.read(names.INFO)
    try:
        return documents.INFO.decode(data)
    except FormatError as error:
        raise error.at(store.path_of(names.INFO)) from None
