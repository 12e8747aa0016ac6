"""Records of `__cluster_metadata`, KRaft's metadata log, and of its snapshots (KIP-500, KIP-631).

Data records of the topic have no key; the value is a frame (see `frames`) around one of the records of
`metadata_records`. The quorum's own records in that log are control records.
"""

from __future__ import annotations

from typing import Final

from klog.formats import binary, frames
from klog.formats.fast_readers import REFUSALS
from klog.formats.metadata_records import RECORDS
from klog.formats.values import Value

TITLE: Final = "metadata record"

TYPE_NAMES: Final[dict[int, str]] = {kind: record.name for kind, record in RECORDS.items()}
"""Kafka's names of the record types by number; a number that is not here was given up or is newer."""

MetadataRecord: Final = frames.frame(RECORDS)
parse, build = binary.whole(MetadataRecord, TITLE)
_READ: Final = frames.reader(RECORDS)


def read(value: bytes) -> Value:
    """The same, fast: as plain dicts and lists. Raises `FormatError`."""
    try:
        return _READ(value)
    except REFUSALS:
        return parse(value)


write: Final = frames.writer(RECORDS)
"""The same of a type, a version and a mapping of the fields, fast (see `frames.writer`)."""
