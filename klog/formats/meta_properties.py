"""`meta.properties`: the broker and the cluster that own a log directory (version 1: KIP-631, KIP-858).

Rules: Kafka's `MetaProperties`. In version 0, of ZooKeeper clusters, every key is optional. Version 1, of
KRaft, requires `cluster.id` and `node.id`. A missing version is version 0. Both may have a `directory.id`.
Unknown keys are kept.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from klog.formats import java_properties
from klog.formats.constants import INT32_MAX
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.java_properties import PropertyLine
from klog.formats.names import decode_uuid
from klog.formats.text_format import INT32, UUID, WORD, Line, TextField, TextFormat

MetaPropertiesFile: Final = TextFormat(
    "meta.properties",
    (
        Line(
            "#{comment}",
            "any number",
            (TextField("comment", WORD, "Kafka writes an empty one and the date"),),
        ),
        Line(
            "version={version}",
            "at most once",
            (TextField("version", INT32, "0 ZooKeeper, 1 KRaft; absent is 0"),),
        ),
        Line(
            "broker.id={brokerId}",
            "version 0, at most once",
            (TextField("brokerId", INT32, "id of the broker"),),
        ),
        Line(
            "node.id={nodeId}",
            "version 1, once",
            (TextField("nodeId", INT32, "id of the broker or controller"),),
        ),
        Line(
            "cluster.id={clusterId}",
            "version 0 at most once, version 1 once",
            (TextField("clusterId", WORD, "id of the cluster"),),
        ),
        Line(
            "directory.id={directoryId}",
            "at most once, since 3.7",
            (TextField("directoryId", UUID, "id of this log directory (KIP-858)"),),
        ),
    ),
    "Java properties: lines in any order, `:` or white space for `=`, escapes, lines continued with \\.",
)
_TITLE: Final = MetaPropertiesFile.title


class MetaProperties(NamedTuple):
    """The lines of the file, and their values."""

    lines: tuple[PropertyLine, ...]
    version: int = 0
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None


def parse(data: bytes) -> MetaProperties:
    """The file. Raises `FormatError` if a broker would refuse to start with it."""
    return _interpret(java_properties.parse(data))


def build(properties: MetaProperties) -> bytes:
    """The bytes of the file's lines."""
    return java_properties.build(properties.lines)


def create(
    version: int,
    *,
    node_id: int | None = None,
    cluster_id: str | None = None,
    directory_id: str | None = None,
    comments: tuple[str, ...] = (),
) -> MetaProperties:
    """A file with these properties under Kafka's keys. Raises `FormatError` as `parse` does."""
    named = {
        "broker.id" if version == 0 else "node.id": node_id,
        "directory.id": directory_id,
        "version": version,
        "cluster.id": cluster_id,
    }
    lines = [PropertyLine(f"#{comment}\n") for comment in comments]
    lines += [
        java_properties.property_line(key, str(value)) for key, value in named.items() if value is not None
    ]
    return _interpret(tuple(lines))


def _interpret(lines: tuple[PropertyLine, ...]) -> MetaProperties:
    found = java_properties.entries(lines)
    version = _number(found, "version") or 0
    if version not in (0, 1):
        raise UnsupportedFormatError(f"{_TITLE}: version {version} is not defined (known: 0, 1)")
    node_id = _number(found, "broker.id" if version == 0 else "node.id")
    cluster_id, directory_id = found.get("cluster.id"), found.get("directory.id")
    if version == 1 and (node_id is None or cluster_id is None):
        missing = "node.id" if node_id is None else "cluster.id"
        raise FormatError(f"{_TITLE}: version 1 without {missing}", cure="a broker refuses to start with it")
    if directory_id is not None:
        decode_uuid(directory_id)
    return MetaProperties(lines, version, node_id, cluster_id, directory_id)


def _number(found: dict[str, str], key: str) -> int | None:
    text = found.get(key)
    if text is None:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None or not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        raise FormatError(
            f"{_TITLE}: {key} is {text[:40]!r}, not a number", cure="a broker refuses to start with it"
        )
    return int(text)
