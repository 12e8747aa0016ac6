"""Real Kafka, as the peer that tests and benchmarks compare klog with. Needed by neither klog nor its users.

Its jars come through Maven, once, into a cache directory (`KLOG_PEER_CACHE`, default `~/.cache/klog-peers`).
"""

from __future__ import annotations

from tests.peers.broker import KRaftBroker, ZooKeeperBroker
from tests.peers.clean_server import CleanOutcome, CleanServer
from tests.peers.dump_server import DumpResult, DumpServer
from tests.peers.kafka import KAFKA_3, KAFKA_4, STOCK_TOOL_FLAGS, KafkaPeer
from tests.peers.maven import PeerUnavailableError

__all__ = [
    "KAFKA_3",
    "KAFKA_4",
    "STOCK_TOOL_FLAGS",
    "CleanOutcome",
    "CleanServer",
    "DumpResult",
    "DumpServer",
    "KRaftBroker",
    "KafkaPeer",
    "PeerUnavailableError",
    "ZooKeeperBroker",
]
