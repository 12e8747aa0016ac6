"""The epoch of finalized features is the version of their node, if they are enabled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.metadata import paths
from klog.metadata.embedded import EmbeddedStore
from klog.metadata.values import FinalizedFeatures
from klog.metadata.znodes import encode_features
from klog.protocol.api_versions import UNKNOWN_FEATURES_EPOCH
from klog.server.startup.features import FeaturesEpoch
from tests.waiting import eventually

ENABLED = encode_features(FinalizedFeatures({}))
DISABLED = encode_features(FinalizedFeatures({}, status=0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    opened = EmbeddedStore(tmp_path / "tree.sqlite")
    yield opened
    opened.close()


def test_the_epoch_follows_the_node_from_before_its_creation_until_after_its_deletion(store) -> None:
    epoch = FeaturesEpoch(store)
    epoch.follow()
    assert epoch.value == UNKNOWN_FEATURES_EPOCH
    store.create(paths.FEATURE, ENABLED)
    eventually(lambda: epoch.value == 0)
    store.set(paths.FEATURE, ENABLED)
    eventually(lambda: epoch.value == 1)
    store.delete(paths.FEATURE)
    eventually(lambda: epoch.value == UNKNOWN_FEATURES_EPOCH)


@pytest.mark.parametrize("data", [DISABLED, b"", b"{", b"[]", b'{"version":9,"status":1,"features":{}}'])
def test_a_node_that_is_not_enabled_or_is_invalid_has_no_epoch(store, data) -> None:
    store.create(paths.FEATURE, ENABLED)
    epoch = FeaturesEpoch(store)
    epoch.follow()
    assert epoch.value == 0
    store.set(paths.FEATURE, data)
    eventually(lambda: epoch.value == UNKNOWN_FEATURES_EPOCH)
    store.set(paths.FEATURE, ENABLED)
    eventually(lambda: epoch.value == 2)
