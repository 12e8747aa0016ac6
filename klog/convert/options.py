"""What a conversion makes of a log: the options that decide about bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.formats.compression import CODEC_NAMES, GZIP, LZ4, ZSTD
from klog.formats.constants import BATCH_HEADER_BYTES, INT32_MAX
from klog.formats.errors import UsageError
from klog.storage.repair.segment_scan import DEFAULT_INDEX_INTERVAL_BYTES

PRODUCER: Final = "producer"
"""Kafka's name for keeping the codec that each batch has."""

DEFAULT_BATCH_BYTES: Final = 128 << 10
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
DEFAULT_SEGMENT_BYTES: Final = 1 << 30
LEAST_SEGMENT_BYTES: Final = 1024

_LEVELS: Final = {GZIP: (1, 9), LZ4: (1, 16), ZSTD: (-131_072, 22)}
_LARGEST_SHARE: Final = (6, 7)  # a codec makes incompressible records larger, snappy at most by a sixth
_FRAMING_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The target of a conversion.

    `codec` is a codec id (None: that of each batch). `level` is on the codec's own scale (None: its default).
    Batches are joined up to `batch_bytes` of uncompressed records (0: not at all). No joined batch is larger
    than `max_message_bytes`. Segments are merged and split to `segment_bytes` (None: they begin where they
    began, as far as joined batches allow). With `converts_active` the last segment is converted too, and
    what lies above the high watermark.
    """

    codec: int | None = None
    level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    segment_bytes: int | None = None
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    converts_active: bool = False

    @property
    def join_bytes(self) -> int:
        """The most bytes that the uncompressed records of a joined batch may take.

        Whatever the codec makes of them, the batch is no larger than `max_message_bytes`.
        """
        part, whole = _LARGEST_SHARE
        room = (self.max_message_bytes - BATCH_HEADER_BYTES - _FRAMING_BYTES) * part // whole
        return max(min(self.batch_bytes, room), 0)

    @property
    def largest_segment_bytes(self) -> int:
        """A segment that would become larger is continued in a new one."""
        return self.segment_bytes or DEFAULT_SEGMENT_BYTES


def codec_of(name: str) -> int | None:
    """The codec id for a name of Kafka's `compression.type`; None for `producer`. Raises `UsageError`."""
    if name == PRODUCER:
        return None
    if name == "uncompressed":
        name = "none"
    if name not in CODEC_NAMES:
        raise UsageError(f"there is no codec {name}", cure=f"{', '.join(CODEC_NAMES)} or {PRODUCER}")
    return CODEC_NAMES.index(name)


def require_valid(options: ConvertOptions) -> None:
    """Raises `UsageError` if the options contradict each other."""
    if options.level is not None:
        limits = _LEVELS.get(-1 if options.codec is None else options.codec)
        if limits is None:
            raise UsageError(
                "a level needs a codec that has levels", cure="--compression gzip, lz4 or zstd, or no --level"
            )
        if not limits[0] <= options.level <= limits[1]:
            raise UsageError(f"level {options.level} is not from {limits[0]} to {limits[1]}")
    largest = options.segment_bytes
    if largest is not None and not LEAST_SEGMENT_BYTES <= largest <= INT32_MAX:
        raise UsageError(f"segments of {largest} bytes: not from {LEAST_SEGMENT_BYTES} to {INT32_MAX}")
