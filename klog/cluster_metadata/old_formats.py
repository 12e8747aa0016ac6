"""Finds segments in message formats 0 and 1, which Kafka 4 does not read (KIP-724)."""

from __future__ import annotations

from collections.abc import Iterable

from klog.formats.constants import MAGIC_POSITION, MAGIC_V2
from klog.formats.names import FileKind, FileState
from klog.storage.files.files import open_for_reading
from klog.storage.files.kafka_files import files_of


def segments_in_old_formats(partitions: Iterable[str]) -> int:
    """How many segments of partition directories begin in an old format.

    Formats only went up when a broker was upgraded, so the first batch has the oldest. Raises StorageError.
    """
    return sum(
        _begins_in_old_format(file.path)
        for partition in partitions
        for file in files_of(partition)
        if file.kind is FileKind.LOG and file.state is FileState.NORMAL
    )


def _begins_in_old_format(path: str) -> bool:
    with open_for_reading(path) as file:
        head = file.read(MAGIC_POSITION + 1)
    return len(head) > MAGIC_POSITION and head[MAGIC_POSITION] < MAGIC_V2
