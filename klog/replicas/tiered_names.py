"""Parses the names of segments and directories in a tiered store (KIP-405).

The KIP leaves names to the plug-in. Two layouts are common: that of Kafka's own `LocalTieredStorage`
(`topic-0-<topic id>/<offset>-<segment id>.log`), and that of Aiven's plug-in for S3, GCS and Azure
(`topic-<topic id>/0/<offset>-<segment id>.log`). Segments that a plug-in compresses or encrypts cannot be
read. Producer snapshots are ignored: their names have the start offset of the segment, but they are taken at
its end.
"""

from __future__ import annotations

import re
from typing import Final

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.names import FileKind, FileName, TopicPartition

_ID: Final = "[A-Za-z0-9_-]{22}"
_FILE: Final = re.compile(rf"(?P<offset>[0-9]{{20}})-{_ID}\.(?P<kind>log|index|timeindex|txnindex)")
_DIRECTORY: Final = re.compile(rf"(?P<topic>.+)-(?P<partition>[0-9]{{1,10}})-(?P<id>{_ID})")
_TOPIC_DIRECTORY: Final = re.compile(rf"(?P<topic>.+)-(?P<id>{_ID})")
_PARTITION_DIRECTORY: Final = re.compile(r"[0-9]{1,10}")


def tiered_file(name: str) -> FileName | None:
    """The parsed name of a file in a tiered store, None for any other name."""
    match = _FILE.fullmatch(name)
    if match is None or int(match["offset"]) > INT64_MAX:
        return None
    return FileName(FileKind(match["kind"]), int(match["offset"]))


def tiered_partition(parent_name: str, name: str) -> tuple[TopicPartition, str] | None:
    """The partition and the topic id of a directory in a tiered store, by its name and its parent's.

    None for any other directory.
    """
    match = _DIRECTORY.fullmatch(name)
    if match is not None and int(match["partition"]) <= INT32_MAX:
        return TopicPartition(match["topic"], int(match["partition"])), match["id"]
    match = _TOPIC_DIRECTORY.fullmatch(parent_name)
    if match is not None and _PARTITION_DIRECTORY.fullmatch(name) and int(name) <= INT32_MAX:
        return TopicPartition(match["topic"], int(name)), match["id"]
    return None
