"""Offsets in the metadata tree get the same answers of Kafka 3.9.1, which has ZooKeeper, and of klog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.comparison import group_requests as requests
from tests.comparison.brokers import both_brokers, opened_pair
from tests.comparison.group_requests import Commit, Identity
from tests.comparison.pair import Pair
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka

NOBODY = Identity()
WANTED = {"t1": (0, 1, 2, 7), "t2": (0,), "absent": (0,)}


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(kafka3, tmp_path_factory.mktemp("tree")) as opened:
        yield opened


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[Pair]:
    with opened_pair(ports) as opened:
        yield opened


@pytest.mark.parametrize(
    "group",
    ["plain", "with space", "a/b", "", ".", "..", "x/../y", "/lead", "trail/", "a//b", "a\0b", "\x1f", "\x85",
     "é", "\ue000", "\U0001f600", "<default>"],
)  # fmt: skip
def test_groups_of_any_name(pair: Pair, group: str) -> None:
    commits = [Commit("t1", 0, 5), Commit("t1", 1, -7, None), Commit("t1", 7, 5), Commit("absent", 0, 5)]
    pair.ask(requests.commit(0, group, NOBODY, commits))
    pair.ask(requests.fetch(0, {group: WANTED}))
    pair.ask(requests.commit(0, group, NOBODY, [Commit("t1", 0, 2**63 - 1)]))
    pair.ask(requests.fetch(0, {group: WANTED}))


def test_metadata_have_a_limit_although_they_are_not_kept(pair: Pair) -> None:
    for metadata in ("é" * 4096, "é" * 4097, "\U0001f600" * 2048, "\U0001f600" * 2049):
        pair.ask(requests.commit(0, "limited", NOBODY, [Commit("t1", 0, len(metadata), metadata)]))
        pair.ask(requests.fetch(0, {"limited": WANTED}))


def test_the_group_s_own_offsets_are_others(pair: Pair) -> None:
    pair.ask(requests.commit(0, "both", NOBODY, [Commit("t1", 0, 1)]))
    pair.ask(requests.commit(1, "both", NOBODY, [Commit("t1", 0, 2, "note")]))
    for version in (0, 1, 5):
        pair.ask(requests.fetch(version, {"both": WANTED}))
    pair.ask(requests.commit(0, "both", NOBODY, []))


def test_a_partition_that_is_named_again_is_answered_again(pair: Pair) -> None:
    for topic in ("t1", "absent"):
        pair.ask(requests.commit(0, "again", NOBODY, [Commit(topic, 0, 5), Commit(topic, 0, 3)]))
    pair.ask(requests.fetch(0, {"again": WANTED}))
