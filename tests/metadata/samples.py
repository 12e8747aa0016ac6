"""Every znode of a live Kafka 3.9.1 cluster of three brokers, as `znodes.txt` lists them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from klog.formats.names import TopicPartition
from klog.metadata.json_fields import encode_json
from klog.metadata.store import Node, NodeStat

_LINE = re.compile(r"(?P<path>\S+)  eph=(?P<owner>\S+) v=(?P<version>\d+) data=(?P<data>.*)")


def live_nodes() -> dict[str, Node]:
    nodes = {}
    for line in (Path(__file__).parent / "znodes.txt").read_text().splitlines():
        found = _LINE.fullmatch(line)
        assert found, line
        owner = 0 if found["owner"] == "-" else int(found["owner"], 16)
        stat = NodeStat(int(found["version"]), 1, 1, 1, owner)
        nodes[found["path"]] = Node(ast.literal_eval(found["data"]), stat)
    return nodes


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The data of `/admin/preferred_replica_election` and of ISR change notifications, which others write."""
    named = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return encode_json({"version": 1, "partitions": named})
