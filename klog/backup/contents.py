"""Which objects backups need: those that their manifests lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klog.backup.documents import Base, StoredState
from klog.backup.model import Manifest, PartitionState
from klog.backup.repository import Repository
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

OnDamage = Callable[[FormatError], object]


class Contents:
    """Finds the objects of one backup after another, each state only once.

    So the objects of a backup are those that it needs and none of the backups before did.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._seen: set[tuple[TopicPartition, str]] = set()
        self._ranges: dict[tuple[TopicPartition, str], tuple[int, int]] = {}

    def objects_of(self, manifest: Manifest, on_damage: OnDamage | None = None) -> Iterator[str]:
        """The objects of a backup; one may come more than once. Raises `FormatError`, `StorageError`.

        With `on_damage` states that are damaged are given to it, and do not hide the others.
        """
        if manifest.table is not None:
            yield manifest.table
        if manifest.metadata is not None:
            yield manifest.metadata.name
        refs = self._repository.partitions(manifest)
        for partition, ref in sorted(refs.items(), key=lambda item: (item[1].states, item[0])):
            if (partition, ref.states) in self._seen:
                continue
            self._seen.add((partition, ref.states))
            yield ref.states
            try:
                yield from self._of_state(partition, self._repository.stored_state(partition, ref.states))
            except FormatError as error:
                if on_damage is None:
                    raise
                on_damage(error)

    def _of_state(self, partition: TopicPartition, stored: StoredState) -> Iterator[str]:
        yield from _own_objects(stored.state)
        if stored.base is not None:
            yield stored.base.states
            yield from self._of_base(partition, stored.base)

    def _of_base(self, partition: TopicPartition, base: Base) -> Iterator[str]:
        """The pieces that are kept of a whole state. Ranges of one state overlap: logs grow and are cut."""
        first, end = base.pieces
        known_first, known_end = self._ranges.get((partition, base.states), (first, first))
        if known_first <= first and end <= known_end:
            return
        low, high = min(first, known_first), max(end, known_end)
        self._ranges[partition, base.states] = low, high
        for piece in self._repository.stored_state(partition, base.states).state.pieces[low:high]:
            yield piece.name


def objects_of_state(repository: Repository, partition: TopicPartition, stored: StoredState) -> Iterator[str]:
    """The objects that a state needs beside the one that has it. Raises `FormatError`, `StorageError`."""
    yield from _own_objects(stored.state)
    if stored.base is not None:
        yield stored.base.states
        first, end = stored.base.pieces
        for piece in repository.stored_state(partition, stored.base.states).state.pieces[first:end]:
            yield piece.name


def _own_objects(state: PartitionState) -> Iterator[str]:
    for piece in state.pieces:
        yield piece.name
    if state.snapshot is not None:
        yield state.snapshot.stored.name
