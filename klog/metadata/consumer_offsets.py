"""Offsets that consumers before Kafka 0.9 keep in the tree, as decimal text.

Rules: `setOrCreateConsumerOffset` and `getConsumerOffset` of Kafka's `KafkaZkClient`, and the paths that
ZooKeeper accepts (`PathUtils.validatePath`).
"""

from __future__ import annotations

import re
from typing import Final

from klog.formats.errors import UsageError
from klog.formats.names import PartitionKey
from klog.metadata import paths
from klog.metadata.errors import MetadataError
from klog.metadata.retried_writes import put
from klog.metadata.store import MetadataStore, find

_INT64_MAX: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_FORBIDDEN: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_NO_NAMES: Final = frozenset(("", ".", ".."))


def read_consumer_offset(store: MetadataStore, group_id: str, partition: PartitionKey) -> int | None:
    """The offset that a group has committed, None if there is none.

    Raises `UsageError` if no node can have the group's name, and `MetadataError`.
    """
    path = _path(group_id, partition)
    node = find(store, path)
    if node is None or node.data is None:
        return None
    text = node.data.decode("utf-8", "replace")
    offset = int(text) if _NUMBER.fullmatch(text) else None
    if offset is None or not -_INT64_MAX - 1 <= offset <= _INT64_MAX:
        raise MetadataError(f"{path} holds no offset: {text[:40]!r}")
    return offset


def write_consumer_offset(store: MetadataStore, group_id: str, partition: PartitionKey, offset: int) -> None:
    """Commit an offset. Creates missing nodes.

    Raises `UsageError` if no node can have the group's name, and `StoreError`.
    """
    put(store, _path(group_id, partition), str(offset).encode())


def _path(group_id: str, partition: PartitionKey) -> str:
    # A name with slashes is several nodes, as in Kafka.
    if _FORBIDDEN.search(group_id) or not _NO_NAMES.isdisjoint(group_id.split("/")):
        raise UsageError(f"no node can have the name of group {group_id!r}")
    return paths.consumer_offset(group_id, partition)
