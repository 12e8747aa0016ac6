"""Requests of groups: a seeded history of them gets the same answers of klog and of Kafka 3.9.1.

Known differences, which the history leaves out:

* OffsetCommit 0 and 1 and OffsetFetch 0 are not announced by klog: clients since 0.9 do not use them.
* If a consumer's metadata has a topic list that is null or longer than the metadata, an exception ends
  Kafka's rebalance, and no member is answered any more. klog takes the group's topics for
  unknown, as Kafka does if the metadata ends too early.
* If a member waits in SyncGroup and is removed from its group, Kafka never answers it. klog answers
  UNKNOWN_MEMBER_ID.
* If OffsetCommit or OffsetDelete names a partition twice that does not exist, Kafka's answer has it twice.
* If a leader goes and several members are left, Kafka's new leader is the first in a hash table of random
  ids. So is the winner of two protocols with as many votes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.comparison.group_history import GroupHistory
from tests.comparison.group_model import MAX_SIZE, TOPICS
from tests.comparison.group_requests import find_coordinator
from tests.comparison.pair import Pair
from tests.peers.broker import SINGLE_BROKER, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KLOG_TEST_SEED", "11"))
REQUESTS = int(os.environ.get("KLOG_TEST_COMPARED_REQUESTS", "3000"))
CONFIG = {
    **SINGLE_BROKER,
    # One thread of each kind: requests are handled in the order in which they are sent.
    "num.network.threads": 1,
    "num.io.threads": 1,
    "group.max.size": MAX_SIZE,
    "group.min.session.timeout.ms": 100,
    "auto.create.topics.enable": "false",
    "unstable.api.versions.enable": "false",
}


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    work = tmp_path_factory.mktemp("comparison")
    with (
        ZooKeeperBroker(work / "kafka", CONFIG, kafka3) as kafka,
        KlogBroker(work / "klog", CONFIG) as klog,
    ):
        klog.start()
        for broker in (kafka, klog):
            Admin(broker.bootstrap).create({topic: (count, {}) for topic, count in TOPICS.items()})
        yield kafka.port, klog.port
        assert "Traceback" not in klog.log_text
        klog.stop()


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[Pair]:
    """Connections to both brokers, which coordinate groups."""
    opened = Pair(*ports)
    for side in (opened.kafka, opened.klog):
        ask = find_coordinator(0, 0, "a")
        eventually(lambda side=side, ask=ask: side.ask("opening", ask)[0].error_code == 0)
    yield opened
    opened.close()


def test_a_history_of_groups_is_answered_alike(pair: Pair) -> None:
    history = GroupHistory(pair, SEED)
    history.play(REQUESTS)
    assert history.refused > REQUESTS // 20
    assert pair.steps >= REQUESTS
