"""Requests of groups: a seeded history of them gets the same answers of klog and of Kafka 3.9.1.

Known differences, which the history leaves out:

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

from collections.abc import Iterator

import pytest

from tests.comparison.brokers import REQUESTS, SEED, both_brokers, opened_pair
from tests.comparison.group_history import GroupHistory
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(kafka3, tmp_path_factory.mktemp("comparison")) as opened:
        yield opened


def test_a_history_of_groups_is_answered_alike(ports: tuple[int, int]) -> None:
    with opened_pair(ports) as pair:
        history = GroupHistory(pair, SEED)
        history.play(REQUESTS)
        assert history.refused > REQUESTS // 20
