"""No Kafka starts on a metadata tree that was not written to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.cluster_metadata import tree_form
from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.zookeeper import ZooKeeperStore
from tests.peers import KafkaPeer, ZooKeeperBroker
from tests.peers.broker import BrokerFailedError
from tests.peers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_no_kafka_starts_on_a_tree_that_was_not_written_to_its_end(kafka3: KafkaPeer, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as server:
        store = ZooKeeperStore(f"{server.hosts}/half")
        store.create(paths.CLUSTER_ID, znodes.encode_unfinished_tree("x"), make_parents=True)
        try:
            with pytest.raises(BrokerFailedError):
                ZooKeeperBroker(tmp_path / "kafka", {"zookeeper.connect": f"{server.hosts}/half"}, kafka3)
            assert store.children(paths.BROKER_IDS) == []
            with pytest.raises(InvalidZnodeError, match="not written to its end"):
                tree_form.read(store, "")
        finally:
            store.close()
