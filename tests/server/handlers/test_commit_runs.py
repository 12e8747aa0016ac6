"""Runs of OffsetCommit frames leave the same log, offsets and answers as the same frames one by one."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.coordinator.groups.requests import GroupRequests
from klog.formats.names import CONSUMER_OFFSETS
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import decode_response, decode_response_header
from klog.protocol.runs import CommitRun, NoRun
from klog.server.counters.request_times import RequestCounters
from klog.server.handlers.access import Access
from klog.server.handlers.dispatch import Route
from klog.server.handlers.groups.commit_runs import CommitRuns
from klog.storage.log.partition_log import PartitionLog
from tests.commit_strategies import CommitFields, commit_frame, commit_reads
from tests.server.handlers.frame_client import FrameClient, Outbound
from tests.server.handlers.group_parts import PARTITIONS, TOPIC_ID, GroupBroker
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, answer_of, part_of, set_isr
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(CommitRun is NoRun, reason="klog reads no runs without its compiled modules")

OTHER_TOPIC = "others"
SIMPLE, MEMBER, STATIC = "simple", "members", "statics"
TEN_S = timedelta(seconds=10)


class Client(FrameClient):
    """One connection to a broker that has a member in two of its groups; `runs` allows runs of frames.

    `ends_before` are the log end offsets of the internal topic before the last read.
    """

    def __init__(
        self,
        root: Path,
        *,
        runs: bool,
        properties=None,
        replicas=(1,),
        first=(),
        min_insync_replicas=1,
        access: Access | None = None,
    ) -> None:
        root.mkdir(exist_ok=True)
        self.replicas = replicas
        self.broker = GroupBroker(root, properties, lead=False, min_insync_replicas=min_insync_replicas)
        self.broker.lead(OTHER_TOPIC, topic_id=None)
        for number in range(PARTITIONS):
            self.broker.lead(CONSUMER_OFFSETS, number, topic_id=TOPIC_ID, replicas=replicas)
        self.broker.await_loaded()
        counters = RequestCounters()
        counter = counters.by_api[ApiKey.OFFSET_COMMIT]
        coordinator = self.broker.coordinator
        metadata = self.broker.lookup.metadata
        run = CommitRuns(GroupRequests(coordinator), metadata, counter, lambda: 0, access)
        route = Route(
            self.broker.handlers[ApiKey.OFFSET_COMMIT],
            may_block=False,
            run=run.handle if runs else None,
        )
        super().__init__(ApiKey.OFFSET_COMMIT, route, counters, Outbound())
        self.members = [self.join(MEMBER, None), self.join(STATIC, "instance")]
        for frame in first:
            self.receive(frame)
            self.follow(self.ends())
        self.ends_before = self.ends()

    def log(self, number: int) -> PartitionLog:
        return self.broker.logs.logs[CONSUMER_OFFSETS, number]

    def ends(self) -> list[int]:
        return [self.log(number).log_end_offset for number in range(PARTITIONS)]

    def follow(self, ends: list[int]) -> None:
        """The follower, if there is one, has all records before these offsets."""
        if OTHER_BROKER in self.replicas:
            for number, end in enumerate(ends):
                self.broker.follow(end, topic=CONSUMER_OFFSETS, partition=number)

    def join(self, group: str, instance: str | None) -> CommitFields:
        """A member of a stable group of one."""
        broker = self.broker
        protocol = part_of(ApiKey.JOIN_GROUP, 5, "JoinGroupRequestProtocol", name="range", metadata=b"")
        values = {
            "group_id": group,
            "session_timeout": TEN_S,
            "rebalance_timeout": TEN_S,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": (protocol,),
        }
        request = broker.send(ApiKey.JOIN_GROUP, 5, member_id="", **values)
        if instance is None:
            request = broker.send(ApiKey.JOIN_GROUP, 5, member_id=answer_of(request).member_id, **values)
        for _ in range(10):
            if not request.answered:
                broker.pass_time(1_000)
        member = answer_of(request)
        identity = {"generation_id": member.generation_id, "member_id": member.member_id}
        broker.send(
            ApiKey.SYNC_GROUP, 3, group_id=group, group_instance_id=instance, assignments=(), **identity
        )
        self.follow(self.ends())
        return CommitFields(8, group, member.generation_id, member.member_id, instance)

    def results(self) -> dict[str, object]:
        """All that is to be equal."""
        found: dict[str, object] = {
            "answers": self.connection.outbound.read(),
            "closing": self.connection.closing,
            "requests": self.counters.by_api[ApiKey.OFFSET_COMMIT].requests,
        }
        for number in range(PARTITIONS):
            log = self.log(number)
            found[f"log {number}"] = (
                {path.name: path.read_bytes() for path in sorted(Path(log.directory).iterdir())},
                log.high_watermark,
            )
        for owned in self.broker.coordinator.owned():
            for group_id, entry in owned.entries.items():
                deadlines = [member.deadline_ms for member in entry.group.members]
                found[f"group {group_id}"] = entry.offsets.committed(), deadlines, list(entry.timers)
        return found


SENDERS = [
    CommitFields(7, SIMPLE),
    CommitFields(8, SIMPLE),
    CommitFields(5, SIMPLE),
    CommitFields(8, MEMBER, 1, "test-1"),
    CommitFields(9, MEMBER, 1, "test-1"),
    CommitFields(9, STATIC, 1, "instance-2", "instance"),
]


PROPERTIES = st.sampled_from(
    (
        {},
        {},
        {"offset.metadata.max.bytes": "4"},
        {"offsets.commit.required.acks": "1"},
        {"offsets.topic.compression.codec": "1"},
        {"inter.broker.protocol.version": "2.0"},
    )
)


@settings(max_examples=30)
@given(commit_reads([TOPIC, OTHER_TOPIC], SENDERS), PROPERTIES)
def test_frames_are_served_alike(reads, properties) -> None:
    with tempfile.TemporaryDirectory() as root:
        one = Client(Path(root, "runs"), runs=True, properties=properties)
        other = Client(Path(root, "single"), runs=False, properties=properties)
        assert one.members == other.members
        for data in reads:
            for client in (one, other):
                client.receive(data)
        assert one.results() == other.results()


def nothing(_: Client) -> None:
    """Nothing happens."""


def caught_up(client: Client) -> None:
    """The follower has all records."""
    client.follow(client.ends())


def caught_up_before(client: Client) -> None:
    """The follower has what came before the last read. (Between two frames of a read, a run waits longer.)"""
    client.follow(client.ends_before)


def alone(client: Client) -> None:
    """The follower leaves the ISR of all partitions."""
    for number in range(PARTITIONS):
        set_isr(client.broker.replicas.partitions[CONSUMER_OFFSETS, number], BROKER)


def too_late(client: Client) -> None:
    """Commits expire that have waited for so long."""
    client.broker.pass_time(5001)


def deposed(client: Client) -> None:
    """The follower leads from now on."""
    for number in range(PARTITIONS):
        client.broker.lead(
            CONSUMER_OFFSETS,
            number,
            epoch=1,
            leader=OTHER_BROKER,
            topic_id=TOPIC_ID,
            replicas=(BROKER, OTHER_BROKER),
        )
    eventually(lambda: not client.broker.coordinator.owned())


EVENTS = st.sampled_from((nothing, caught_up, caught_up, caught_up_before, alone, too_late, deposed))


@settings(max_examples=30)
@given(
    commit_reads([TOPIC, OTHER_TOPIC], SENDERS),
    PROPERTIES,
    st.sampled_from((1, 2)),
    st.lists(EVENTS, max_size=6),
)
def test_frames_that_wait_for_followers_are_served_alike(reads, properties, min_isr, events) -> None:
    with tempfile.TemporaryDirectory() as root:
        one, other = (
            Client(
                Path(root, name),
                runs=name == "runs",
                properties=properties,
                replicas=(BROKER, OTHER_BROKER),
                min_insync_replicas=min_isr,
            )
            for name in ("runs", "single")
        )
        for data, event in zip(reads, [*events, *[caught_up] * len(reads)], strict=False):
            for client in (one, other):
                client.ends_before = client.ends()
                client.receive(data)
                event(client)
        assert one.results() == other.results()


def frame(offset: int, *, topic: str = TOPIC, version: int = 8, group: str = SIMPLE) -> bytes:
    return commit_frame(CommitFields(version, group), {(topic, 0): (offset, "m")})


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """A client whose group has committed once: the first batch of a segment, and of a group, is no run."""
    client = Client(tmp_path, runs=True, first=[frame(1), frame(1, group=MEMBER)])
    client.connection.outbound.parts.clear()
    client.in_runs = 0
    return client


def errors_of(client: Client, version: int = 8) -> list[int]:
    answers, errors = client.connection.outbound.take(), []
    while answers:
        size = int.from_bytes(answers[:4], "big")
        frame = memoryview(bytes(answers[4 : 4 + size]))
        body = decode_response_header(ApiKey.OFFSET_COMMIT, version, frame)[1]
        told = decode_response(ApiKey.OFFSET_COMMIT, version, frame[body:])
        errors += [each.error_code for topic in told.topics for each in topic.partitions]
        del answers[: 4 + size]
    return errors


def committed(client: Client, group: str = SIMPLE) -> dict:
    owner = client.broker.coordinator.owner_of(group)
    return {key: commit.offset for key, commit in owner.entries[group].offsets.committed().items()}


def test_frames_of_one_read_are_written_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    pwrite = os.pwrite

    def counted(descriptor, data, position):
        written.append(len(data))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    data = b"".join(frame(offset) for offset in (5, 9, 7))
    client.receive(data)
    assert (client.in_runs, len(written)) == (len(data), 1)
    assert errors_of(client) == [0, 0, 0]
    assert committed(client) == {(TOPIC, 0): 7}


def test_a_member_that_commits_is_alive(client: Client) -> None:
    member = client.members[0]
    owner = client.broker.coordinator.owner_of(MEMBER)
    client.broker.pass_time(3_000)
    client.receive(commit_frame(member, {(TOPIC, 0): (4, None)}))
    assert client.in_runs
    deadlines = [each.deadline_ms for each in owner.entries[MEMBER].group.members]
    assert deadlines == [client.broker.clock() + 10_000]
    client.broker.pass_time(8_000)
    client.receive(commit_frame(member, {(TOPIC, 0): (5, None)}))
    assert errors_of(client) == [0, 0]
    client.broker.pass_time(11_000)
    client.receive(commit_frame(member, {(TOPIC, 0): (6, None)}))
    assert errors_of(client) == [25]  # UNKNOWN_MEMBER_ID
    assert committed(client, MEMBER) == {(TOPIC, 0): 5}


def test_a_partition_that_comes_later_is_known_then(client: Client) -> None:
    client.receive(frame(3, topic="later"))
    assert errors_of(client) == [3]  # UNKNOWN_TOPIC_OR_PARTITION
    client.broker.lead("later", topic_id=None)
    client.receive(frame(4, topic="later"))
    assert client.in_runs
    assert errors_of(client) == [0]
    assert committed(client)["later", 0] == 4


def test_what_was_decided_before_is_written_before(client: Client) -> None:
    """A task that waits to be run is not overtaken."""
    owner = client.broker.coordinator.owner_of(SIMPLE)
    order = []
    owner.put(lambda: order.append(errors_of(client)))
    client.receive(frame(5))
    assert (order, errors_of(client)) == ([[]], [0])


@pytest.fixture
def replicated(tmp_path: Path) -> Client:
    """As `client`, with a follower that has all records."""
    client = Client(tmp_path, runs=True, replicas=(BROKER, OTHER_BROKER), first=[frame(1)])
    client.connection.outbound.parts.clear()
    client.in_runs = 0
    return client


def test_a_run_waits_for_the_followers_as_a_whole(replicated: Client) -> None:
    ends = replicated.ends()
    data = frame(5) + frame(6)
    replicated.receive(data)
    assert replicated.in_runs == len(data)
    replicated.follow([end + 1 for end in ends])
    assert replicated.connection.in_flight is not None
    assert not replicated.connection.outbound.read()
    assert committed(replicated) == {(TOPIC, 0): 1}
    replicated.follow(replicated.ends())
    assert replicated.connection.in_flight is None
    assert errors_of(replicated) == [0, 0]
    assert committed(replicated) == {(TOPIC, 0): 6}


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize(
    ("event", "error"),
    [(too_late, ErrorCode.REQUEST_TIMED_OUT), (deposed, ErrorCode.NOT_COORDINATOR)],
)
def test_a_run_that_waits_in_vain_says_so(replicated: Client, event, error, version: int) -> None:
    replicated.receive(frame(5, version=version) + frame(6, version=version))
    assert replicated.in_runs
    event(replicated)
    assert errors_of(replicated, version) == [error, error]


def test_a_run_that_is_too_late_is_not_committed(replicated: Client) -> None:
    replicated.receive(frame(5))
    too_late(replicated)
    replicated.follow(replicated.ends())
    assert committed(replicated) == {(TOPIC, 0): 1}


def test_a_disk_that_fails_is_answered_as_ever(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "pwrite", broken)
    client.receive(frame(5) * 2)
    assert not client.in_runs
    assert errors_of(client) == [16, 16]  # NOT_COORDINATOR
    assert committed(client) == {(TOPIC, 0): 1}


def test_nothing_is_committed_after_the_leadership_is_gone(client: Client) -> None:
    deposed(client)
    client.receive(frame(5))
    assert errors_of(client) == [16]  # NOT_COORDINATOR


def test_committed_offsets_are_read_again_after_a_restart(client: Client) -> None:
    client.receive(b"".join(frame(offset) for offset in (5, 9, 7)))
    before = committed(client)
    deposed(client)
    for number in range(PARTITIONS):
        client.broker.lead(CONSUMER_OFFSETS, number, epoch=2, topic_id=TOPIC_ID)
    client.broker.await_loaded()
    assert committed(client) == before == {(TOPIC, 0): 7}
