"""Runs real Kafka for tests and benchmarks, which compare klog with it. klog itself does not need it.

Maven downloads Kafka's jars once into a cache directory (`KLOG_PEER_CACHE`, default `~/.cache/klog-peers`).
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
