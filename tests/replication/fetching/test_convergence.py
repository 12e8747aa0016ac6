"""Whoever leads in turn, in any order of appends, fetches and clean elections: followers end up with their
leader's log, and no record below a leader's high watermark is lost.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.following import start_of
from klog.replication.fetching.values import FetcherAnswer, FetcherRequest, FetchSettings
from tests.replication.fetching.parts import BROKER_EPOCH, KEY, Node, content
from tests.server.handlers.parts import batch

IDS = (1, 2, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("send"), st.sampled_from(IDS)),
        st.tuples(st.just("receive"), st.sampled_from(IDS)),
        st.tuples(st.just("lose"), st.sampled_from(IDS)),
        st.tuples(st.just("elect"), st.sampled_from(IDS)),
        st.tuples(st.just("hear"), st.sampled_from(IDS)),
    ),
    max_size=60,
)


class Replicas:
    """Three replicas of one partition, all in the ISR, so that any of them may be elected.

    A broker hears of an election in a step of its own. Answers may be on their way meanwhile.
    """

    def __init__(self, root: Path, protocol: str) -> None:
        self.protocol = protocol
        self.nodes = {each: Node(root / str(each), each) for each in IDS}
        self.heard = dict.fromkeys(IDS, -1)
        self.leaders = [1]
        self.fetchers: dict[int, Fetcher] = {}
        self.under_way: dict[int, tuple[FetcherRequest, FetcherAnswer | None]] = {}
        self.now_ms = 0
        self.written = 0
        self.committed = b""
        for each in IDS:
            self.hear(each)

    @property
    def leader(self) -> Node:
        return self.nodes[self.leaders[-1]]

    def hear(self, broker_id: int) -> None:
        """LeaderAndIsr of the latest election."""
        epoch = len(self.leaders) - 1
        if self.heard[broker_id] == epoch:
            return
        self.heard[broker_id] = epoch
        node, leader = self.nodes[broker_id], self.leaders[-1]
        node.lead(leader=leader, epoch=epoch, replicas=IDS)
        start = start_of(node.partition())
        known = self.fetchers.get(broker_id)
        if start is None:
            self.fetchers.pop(broker_id, None)
            self.under_way.pop(broker_id, None)
            return
        if known is None or known.leader_id != leader:
            self.under_way.pop(broker_id, None)
            self.fetchers[broker_id] = Fetcher(
                leader,
                FetchSettings.for_protocol(broker_id, self.protocol, backoff_ms=10),
                node.replicas,
                broker_epoch=lambda: BROKER_EPOCH,
                wall_clock_ms=node.clock,
            )
        self.fetchers[broker_id].add({KEY: start})

    def append(self, count: int) -> None:
        for _ in range(count):
            for node in self.nodes.values():
                if node.partition().state.is_leader:
                    self.written += 1
                    records = batch(value=b"%d of %d" % (self.written, node.broker_id))
                    node.partition().append(memoryview(records), 1, node.clock())

    def send(self, broker_id: int) -> None:
        """The request reaches the leader; its answer waits to be received."""
        self.now_ms += 5
        fetcher = self.fetchers.get(broker_id)
        if fetcher is None or broker_id in self.under_way:
            return
        request = fetcher.next_request(self.now_ms)
        if request is not None:
            answer = self.nodes[fetcher.leader_id].answer(request)
            self.under_way[broker_id] = request, answer

    def receive(self, broker_id: int) -> None:
        if broker_id in self.under_way:
            request, answer = self.under_way.pop(broker_id)
            self.fetchers[broker_id].answered(request, answer, self.now_ms)

    def lose(self, broker_id: int) -> None:
        if broker_id in self.under_way:
            request, _ = self.under_way.pop(broker_id)
            self.fetchers[broker_id].failed(request, self.now_ms)

    def elect(self, broker_id: int) -> None:
        self.leaders.append(broker_id)
        self.hear(broker_id)

    def check(self) -> None:
        """What was below the high watermark of a leader stays in the log of each later leader."""
        leader = self.leader.log()
        data = content(leader)
        assert data.startswith(self.committed)
        below = leader.read(0, 1 << 30, leader.high_watermark).size if leader.high_watermark else 0
        self.committed = data[:below]

    def settle(self) -> None:
        for each in IDS:
            self.hear(each)
        for _ in range(30):
            self.now_ms += 10
            for each in IDS:
                self.send(each)
                self.receive(each)


@pytest.mark.parametrize("protocol", ["3.9", "2.6"])
@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_replicas_converge_and_lose_nothing_committed(protocol: str, steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        replicas = Replicas(Path(root), protocol)
        for name, value in steps:
            getattr(replicas, name)(value)
            replicas.check()
        replicas.append(1)
        replicas.settle()
        replicas.check()
        leader = replicas.leader.log()
        assert leader.high_watermark == leader.log_end_offset
        for node in replicas.nodes.values():
            log = node.log()
            assert content(log) == content(leader)
            assert log.high_watermark == leader.high_watermark
            assert log.epochs.entries == leader.epochs.entries
            log.release()
