"""Follows the epoch of the cluster's finalized features.

Rules: Kafka's FinalizedFeatureChangeListener and ZkMetadataCache; KIP-584. The epoch is the version of the
`/feature` node, if its features are enabled. The features themselves are not sent to clients: in ZooKeeper
mode no broker of Kafka 3.9 supports any, so none can have been finalized.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError, StoreError
from klog.metadata.store import MetadataStore, Node, WatchEvent
from klog.protocol.api_versions import UNKNOWN_FEATURES_EPOCH

_log = logging.getLogger(__name__)

_ENABLED: Final = 1


class FeaturesEpoch:
    """`value` is the epoch that clients get. Any thread may read it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.value = UNKNOWN_FEATURES_EPOCH

    def follow(self) -> None:
        """Reads the node and watches it. Must be called again for a new session. Raises `StoreError`."""
        self._store.exists(paths.FEATURE, self._on_change)
        self.value = _epoch_of(self._store.get_many([paths.FEATURE])[0])

    def _on_change(self, _event: WatchEvent) -> None:
        # The session has expired or is closed. A new session calls `follow` again.
        with suppress(StoreError):
            self.follow()


def _epoch_of(node: Node | None) -> int:
    if node is None:
        return UNKNOWN_FEATURES_EPOCH
    try:
        features = znodes.decode_features(node.data)
    except InvalidZnodeError as error:
        _log.error("%s", error)
        return UNKNOWN_FEATURES_EPOCH
    return node.stat.version if features.status == _ENABLED else UNKNOWN_FEATURES_EPOCH
