"""The file that says which restore it is about, and which offsets records have now: JSON lines.

The first line is the header. It is written before the first record is produced, and a restore that was killed
goes on by it. The other lines are ranges of offsets, written when all records are there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from klog.backup.producing.offset_map import OffsetMap
from klog.formats.errors import FormatError, UsageError
from klog.formats.names import TopicPartition
from klog.storage.files.files import open_for_reading, write_atomically

_VERSION: Final = 1
_HEADER_LIMIT_BYTES: Final = 4096
_ANOTHER: Final = "name another file with --mapping"


@dataclass(frozen=True, slots=True)
class RestoreHeader:
    """What a restore into a cluster is. `restore` identifies what comes back. `producer_id` and
    `producer_epoch` are those that all its records have.
    """

    version: int
    restore: str
    cluster_id: str
    producer_id: int
    producer_epoch: int
    is_complete: bool = False


class MappingFile:
    """The file at a path. Methods raise `StorageError`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def unfinished(self, restore: str, cluster_id: str) -> RestoreHeader | None:
        """The header that a killed restore of the same has left; None if there is no file.

        Raises `UsageError` if the file is of anything else, or of a restore that is complete.
        """
        header = self.of_cluster(cluster_id)
        if header is None:
            return None
        if header.restore != restore:
            raise self._is_of_another()
        if header.is_complete:
            raise UsageError("says that this restore is complete", file=self.path, cure=_ANOTHER)
        return header

    def of_cluster(self, cluster_id: str) -> RestoreHeader | None:
        """The header of any restore into a cluster; None if there is no file.

        Raises `UsageError` if the file is of another cluster, `FormatError`.
        """
        if not os.path.exists(self.path):
            return None
        with open_for_reading(self.path) as file:
            first = file.readline(_HEADER_LIMIT_BYTES)
        try:
            header = RestoreHeader(**json.loads(first))
        except (ValueError, TypeError) as error:
            raise FormatError("is no file of a restore", file=self.path, cure=_ANOTHER) from error
        if (header.version, header.cluster_id) != (_VERSION, cluster_id):
            raise self._is_of_another()
        return header

    def _is_of_another(self) -> UsageError:
        cure = f"repeat that one, with the moment and the topics that it had; or {_ANOTHER}"
        return UsageError("is of a restore of something else", file=self.path, cure=cure)

    def begin(self, restore: str, cluster_id: str, producer_id: int, producer_epoch: int) -> RestoreHeader:
        """Write the header of a restore that is not complete."""
        header = RestoreHeader(_VERSION, restore, cluster_id, producer_id, producer_epoch)
        self._write(header, ())
        return header

    def write_ranges(
        self, header: RestoreHeader, maps: Mapping[TopicPartition, OffsetMap], names: Mapping[str, str]
    ) -> None:
        """Write the header and the ranges of all partitions; `names` are the old names of topics."""
        lines = (
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "originalTopic": names.get(partition.topic, partition.topic),
                "firstOffset": each.first,
                "endOffset": each.end,
                "newFirstOffset": each.new_first,
            }
            for partition, found in sorted(maps.items())
            for each in found.ranges()
        )
        self._write(header, lines)

    def _write(self, header: RestoreHeader, lines: Iterable[dict[str, Any]]) -> None:
        documents = chain([asdict(header)], lines)
        write_atomically(self.path, (json.dumps(each).encode("ascii") + b"\n" for each in documents))
