"""`.kafka_cleanshutdown`: the file that a log directory has between a clean stop and the next start.

Rules: Kafka's `CleanShutdownFileHandler` (KIP-966). The existence of the file counts. Before 3.7 it is empty;
since then it has the broker's epoch as JSON. Its content, even if damaged, never decides whether logs are
recovered.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError
from klog.formats.text_format import INT32, INT64, Line, TextField, TextFormat

CleanShutdownFile: Final = TextFormat(
    "clean shutdown marker",
    (
        Line(
            '{{"version":{version},"brokerEpoch":{brokerEpoch}}}',
            "once, or the file is empty (before 3.7)",
            (
                TextField("version", INT32, "0"),
                TextField("brokerEpoch", INT64, "of the broker's last registration; -1 with ZooKeeper"),
            ),
        ),
    ),
    "JSON without a newline; readers ignore fields that they do not know.",
)
_MAX_BYTES: Final = 4096


class CleanShutdown(NamedTuple):
    """The content of the marker; both values are None in an empty one."""

    version: int | None = None
    broker_epoch: int | None = None


def parse(data: bytes) -> CleanShutdown:
    """The marker's content. Raises `FormatError`; the file is a valid marker anyway."""
    if not data:
        return CleanShutdown()
    try:
        content = json.loads(data[:_MAX_BYTES])
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{CleanShutdownFile.title}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise _unreadable(f"{CleanShutdownFile.title}: not a JSON object")
    version, epoch = content.get("version", 0), content.get("brokerEpoch")
    if not _fits(version, INT32_MAX) or not _fits(epoch, INT64_MAX):
        raise _unreadable(
            f"{CleanShutdownFile.title}: version {version!r}, brokerEpoch {epoch!r} are not whole numbers"
        )
    return CleanShutdown(version, epoch)


def _fits(number: object, limit: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and -limit - 1 <= number <= limit


def _unreadable(what: str) -> FormatError:
    return FormatError(
        what, position_bytes=0, cure="a broker takes the stop for clean and the epoch for unknown"
    )


def build(marker: CleanShutdown) -> bytes:
    """The bytes of the file."""
    if marker.version is None or marker.broker_epoch is None:
        return b""
    return CleanShutdownFile.lines[0].write(version=marker.version, brokerEpoch=marker.broker_epoch).encode()
