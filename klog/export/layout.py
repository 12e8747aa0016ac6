"""Names the files of an export: Hive-style directories, and file names made of offsets.

`topic=orders/partition=0/00000000000000000000-00000000000000000999-00007.parquet` holds the records from
offset 0 to 999 (inclusive) of split 7. The same plan gives the same names, so a second run writes the same
files. A column that is a directory is not in the files, as with Spark's own writers.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from klog.formats.errors import UsageError
from klog.replicas.splits import Split

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name of the directory for rows without a value: here records without a timestamp."""

REJECTS: Final = "_rejects"
"""The directory of rejected records. Readers of tables ignore names with an underscore."""

_DATA_FILE: Final = re.compile(r"[0-9]{20}-[0-9]{20}-[0-9]{5,}(-[0-9]+)?\.(parquet|orc|jsonl)(\.[a-z]+)?$")
_UNSAFE_IN_HIVE: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._- "


class PartitionBy(StrEnum):
    """A level of the directories in an output."""

    TOPIC = "topic"
    PARTITION = "partition"
    DAY = "day"


BY_TOPIC_AND_PARTITION: Final = (PartitionBy.TOPIC, PartitionBy.PARTITION)


def parse_partition_by(text: str) -> tuple[PartitionBy, ...]:
    """The levels in a text such as `topic,partition`, `topic,day` or `none`. Raises `UsageError`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names in ([], ["none"]):
        return ()
    known = set(PartitionBy)
    for name in names:
        if name not in known or names.count(name) > 1:
            raise UsageError(
                f"cannot partition by {text!r}", cure="name some of topic, partition, day, each once; or none"
            )
    return tuple(PartitionBy(name) for name in names)


def directory(split: Split, levels: tuple[PartitionBy, ...], day: str | None = None) -> str:
    """The directory of the split's rows (of one day), empty if there are no levels."""
    values = {
        PartitionBy.TOPIC: split.topic,
        PartitionBy.PARTITION: str(split.partition),
        PartitionBy.DAY: NO_VALUE if day is None else day,
    }
    return "/".join(f"{level}={_escaped(values[level])}" for level in levels)


def _escaped(value: str) -> str:
    # Topic names need no escaping (letters, digits, ., _, -), but the name of another directory may.
    return quote(value, safe=_UNSAFE_IN_HIVE)


def file_stem(split: Split, first_offset: int, last_offset: int) -> str:
    """The file name without suffixes: the offsets of its rows, and the number of the split, which makes it
    unique."""
    return f"{first_offset:020d}-{last_offset:020d}-{split.number:05d}"


def is_data(name: str) -> bool:
    """Whether the name of a file below an output is that of an export's data file."""
    return _DATA_FILE.match(name.rpartition("/")[2]) is not None


def reject_directory(split: Split) -> str:
    """The directory of the split's rejected records; it does not depend on the levels."""
    return f"{REJECTS}/{directory(split, BY_TOPIC_AND_PARTITION)}"
