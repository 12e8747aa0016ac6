"""`partition.metadata`: the id of the topic of a partition's directory (KIP-516).

Rules: Kafka's `PartitionMetadataFile`. Two lines, no newline after the second. It is written before the first
append. An id of all zeros is refused, because it means "no id".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.text_format import INT32, UUID, Line, TextField, TextFormat
from klog.formats.values import Value

_NO_ID: Final = "A" * 22
_SEPARATOR: Final = re.compile(r":\s+", re.ASCII)

PartitionMetadataFile: Final = TextFormat(
    "partition metadata",
    (
        Line("version: {version}", "once", (TextField("version", INT32, "0; later ones are read too"),)),
        Line(
            "topic_id: {topicId}", "once", (TextField("topicId", UUID, "id of the topic, URL-safe base64"),)
        ),
    ),
    "No newline after the last line.",
)


class PartitionMetadata(NamedTuple):
    """The topic id (22 characters) of a partition."""

    topic_id: str
    version: int = 0


def parse(data: bytes) -> PartitionMetadata:
    """The file. Raises `FormatError`."""
    what = PartitionMetadataFile.title
    lines = PartitionMetadataFile.split(data)
    # As in Kafka, any version from 0 on is accepted, and additional lines are ignored.
    if len(lines) < len(PartitionMetadataFile.lines):
        raise FormatError(
            f"{what}: {len(lines)} lines instead of 2",
            position_bytes=len(data),
            cure="the file was cut or edited; the id is also in the partition.metadata of other replicas",
        )
    values: dict[str, Value] = {}
    for (at, text), line in zip(lines, PartitionMetadataFile.lines, strict=False):
        values |= line.read(_labelled(text, line, at), what, at)
    if values["version"] < 0:
        raise UnsupportedFormatError(f"{what}: version {values['version']} is not defined", position_bytes=0)
    if values["topicId"] == _NO_ID:
        raise FormatError(f"{what}: the topic id is all zeros", position_bytes=lines[1][0])
    return PartitionMetadata(values["topicId"], values["version"])


def _labelled(text: str, line: Line, at: int) -> str:
    """The line with the expected label. Kafka requires two parts and reads only the second."""
    parts = _SEPARATOR.split(text)
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) != 2 or parts[1] != parts[1].rstrip():
        raise FormatError(
            f"{PartitionMetadataFile.title}: line {text[:80]!r} is not {line.shape!r}",
            position_bytes=at,
            cure="the file was cut, edited or overwritten; a broker takes its log directory offline",
        )
    return f"{line.template.partition(':')[0]}: {parts[1]}"


def build(metadata: PartitionMetadata) -> bytes:
    """The bytes of the file."""
    version, topic = PartitionMetadataFile.lines
    return f"{version.write(version=metadata.version)}\n{topic.write(topicId=metadata.topic_id)}".encode()
