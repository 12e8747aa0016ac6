"""A cluster for the tests of a module, whose replicas have to be equal at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.agreement import differences
from tests.cluster.tools import ClusterTools
from tests.cluster.world import Cluster, cluster, kinds
from tests.peers.kafka import KafkaPeer
from tests.peers.tool_server import ToolServer
from tests.swap.klog_process import Config


@contextmanager
def agreeing(
    work: Path, peer: KafkaPeer, members: str, config: Config, *, internal_topics: bool = False
) -> Iterator[Cluster]:
    """The started cluster. In the end klog must have logged no traceback, and replicas be equal."""
    with cluster(work, peer, kinds(members), config) as found:
        found.start()
        yield found
        found.wait_for_full_isr()
        found.stop()
        assert "Traceback" not in "".join(each.klog_log for each in found.members.values())
        for topic, number in found.tree.partitions():
            if internal_topics or not topic.startswith("__"):
                holders = [found.members[each] for each in found.tree.replicas(topic)[number]]
                assert list(differences(holders, {(topic, number): 0})) == []


@contextmanager
def tools_of(world: Cluster, peer: KafkaPeer, work: Path) -> Iterator[ClusterTools]:
    """Kafka's tools for the cluster."""
    with ToolServer(peer) as server:
        yield ClusterTools(server, world.bootstrap, work)
