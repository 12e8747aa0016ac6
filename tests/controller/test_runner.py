"""The controller with its threads: queue, session expiry, stop, and requests over broken channels."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.controller.events import ControlledShutdown, ListReassignments, ResponseReceived
from klog.controller.observer import ControllerState
from klog.controller.runner import Controller
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import cluster, paths, topics
from klog.metadata.control_requests import ControlRequest
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.local import SharedTree
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest
from klog.server.peers.broker_channels import BrokerChannels
from klog.server.peers.controller_times import ControllerTimes
from tests.control_requests import update_metadata
from tests.controller.answers import obeyed
from tests.metadata.conftest import call_at_once
from tests.metadata.memory_tree import MemorySession, NoJournal
from tests.threads import join
from tests.waiting import eventually

SOON_S = 30


LOST = ConnectionLostError("lost")


class FakeChannel:
    """Answers everything with NONE, after a number of failures."""

    def __init__(self, failures: int = 0, failure: Exception = LOST) -> None:
        self.failures = failures
        self.failure = failure
        self.seen: list[ControlRequest] = []
        self.closed = threading.Event()

    def send(self, request: ControlRequest) -> object:
        if self.failures > 0:
            self.failures -= 1
            raise self.failure
        self.seen.append(request)
        return obeyed(request)

    def close(self) -> None:
        self.closed.set()


def request(number: int) -> UpdateMetadataRequest:
    return update_metadata({}, {}, (), broker_epoch=number)


BROKER = BrokerRegistration(1, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),))


# --- channels to brokers ---


def test_a_request_is_retried_after_an_unexpected_exception() -> None:
    channel = FakeChannel(failures=2, failure=KeyError("a defect"))
    answers: queue.SimpleQueue[ResponseReceived] = queue.SimpleQueue()
    channels = BrokerChannels(lambda _broker: channel, answers.put, retry_backoff_ms=1)
    channels.add_broker(BROKER)
    channels.send(1, request(7))
    assert answers.get(timeout=SOON_S).request == request(7)
    channels.close()


def test_requests_are_retried_in_order_until_they_are_answered() -> None:
    channel = FakeChannel(failures=3)
    answers: queue.SimpleQueue[ResponseReceived] = queue.SimpleQueue()
    channels = BrokerChannels(lambda _broker: channel, answers.put, retry_backoff_ms=1)
    channels.add_broker(BROKER)
    for number in range(5):
        channels.send(1, request(number))
    got = [answers.get(timeout=SOON_S) for _ in range(5)]
    assert [each.request.broker_epoch for each in got] == [0, 1, 2, 3, 4]
    assert channel.seen == [request(number) for number in range(5)]
    channels.close()
    assert channel.closed.is_set()


def test_the_requests_that_wait_are_counted() -> None:
    channel = FakeChannel(failures=1_000_000)
    channels = BrokerChannels(lambda _broker: channel, lambda _answer: None, retry_backoff_ms=1)
    channels.add_broker(BROKER)
    assert channels.queued() == {1: 0}
    for number in range(3):
        channels.send(1, request(number))
    # The first is on its way.
    eventually(lambda: channels.queued() == {1: 2})
    channels.close()
    assert channels.queued() == {}


def test_no_request_is_sent_to_a_removed_broker() -> None:
    channel = FakeChannel(failures=1_000_000)
    channels = BrokerChannels(lambda _broker: channel, lambda _answer: None, retry_backoff_ms=1)
    before = set(threading.enumerate())
    channels.add_broker(BROKER)
    new = set(threading.enumerate()) - before
    (sender,) = (each for each in new if each.name == f"klog-controller-to-{BROKER.broker_id}")
    channels.send(1, request(0))
    eventually(lambda: channel.failures < 1_000_000)
    channels.remove_broker(1)
    # It may be on its way to the broker once more.
    join([sender])
    channel.failures = 0
    channels.send(1, request(1))
    channels.send(9, request(1))
    time.sleep(0.05)
    assert channel.seen == []
    assert channel.closed.is_set()


def test_the_waits_of_requests_are_told_by_broker() -> None:
    taken: list[tuple[int, int]] = []
    channels = BrokerChannels(
        lambda _broker: FakeChannel(), lambda _answer: None, on_taken=lambda *each: taken.append(each)
    )
    channels.add_broker(BROKER)
    channels.send(1, request(0))
    eventually(lambda: taken)
    ((broker_id, waited_ns),) = taken
    assert broker_id == BROKER.broker_id
    assert waited_ns >= 0
    channels.close()


# --- the thread ---


class Node:
    """A broker's controller on a shared tree, with channels that answer at once."""

    def __init__(self, shared: SharedTree, broker_id: int) -> None:
        self.broker_id = broker_id
        self.session = MemorySession(shared, call_at_once)
        self.channel = FakeChannel()
        self.registrations = 0
        cluster.create_persistent_nodes(self.session)
        self.register()
        self.settings = ControllerSettings(broker_id=broker_id)
        self.now_ms = 0
        self.seen: list[tuple[ControllerState, int, int]] = []
        self.channels = BrokerChannels(lambda _broker: self.channel, self._answered)
        self.controller = Controller(
            lambda: self.settings,
            self.session,
            self.channels,
            self.register,
            lambda: self.now_ms,
            lambda: self.now_ms * 1_000_000,
            self,
        )
        self.controller.start()

    def _answered(self, answer: ResponseReceived) -> None:
        self.controller.put(answer)

    def handled(self, state: ControllerState, waited_ns: int, took_ns: int) -> None:
        self.seen.append((state, waited_ns, took_ns))

    def elected_unclean(self) -> None:
        pass

    def register(self) -> None:
        cluster.register_broker(self.session, BrokerRegistration(self.broker_id, BROKER.endpoints))
        self.registrations += 1

    def stop(self) -> None:
        self.controller.stop()
        self.session.close()


@pytest.fixture
def shared() -> SharedTree:
    return SharedTree(NoJournal(), itertools.count(1).__next__)


@pytest.fixture
def nodes(shared: SharedTree) -> Iterator[list[Node]]:
    nodes = [Node(shared, each) for each in (1, 2)]
    eventually(lambda: all(each.controller.active_controller_id != -1 for each in nodes))
    # The one that is elected is active a moment later.
    eventually(lambda: any(each.controller.is_active for each in nodes))
    yield nodes
    for each in nodes:
        each.stop()


def test_one_of_two_is_active_and_the_other_is_elected_when_it_stops(nodes: list[Node]) -> None:
    active = next(each for each in nodes if each.controller.is_active)
    other = next(each for each in nodes if each is not active)
    assert not other.controller.is_active
    active.controller.stop()
    assert not active.controller.is_active
    eventually(lambda: other.controller.is_active)


def test_an_expired_session_registers_and_elects_again(nodes: list[Node]) -> None:
    active = next(each for each in nodes if each.controller.is_active)
    active.session.expire()
    eventually(lambda: active.registrations == 2)
    eventually(lambda: sum(each.controller.is_active for each in nodes) == 1)


def test_requests_after_the_stop_are_refused_at_once(nodes: list[Node]) -> None:
    nodes[0].controller.stop()
    answers: list[object] = []
    nodes[0].controller.put(ControlledShutdown(1, 1, answers.append))
    assert answers == [ErrorCode.NOT_CONTROLLER]


def test_the_observer_gets_state_waiting_time_and_handling_time_of_each_event(nodes: list[Node]) -> None:
    active = next(each for each in nodes if each.controller.is_active)
    controller = active.controller
    done = threading.Event()
    in_the_midst: list[object] = []

    def first(_answer: object) -> None:
        # Other events may be queued at any time, but none is handled before this one has ended.
        controller.put(ListReassignments(lambda _answer: done.set()))
        in_the_midst.extend((controller.state, controller.queued_events > 0))
        active.now_ms += 30

    controller.put(ControlledShutdown(99, 1, first))
    assert done.wait(SOON_S)
    asked = (ControllerState.CONTROLLED_SHUTDOWN, ControllerState.LIST_PARTITION_REASSIGNMENT)
    eventually(lambda: sum(state in asked for state, _, _ in list(active.seen)) == 2)
    assert in_the_midst == [ControllerState.CONTROLLED_SHUTDOWN, True]
    assert [each for each in active.seen if each[0] in asked] == [
        (ControllerState.CONTROLLED_SHUTDOWN, 0, 30_000_000),
        (ControllerState.LIST_PARTITION_REASSIGNMENT, 30_000_000, 0),
    ]
    eventually(lambda: controller.queued_events == 0 and controller.state is ControllerState.IDLE)


def test_a_controller_that_always_fails_retries_with_backoff(
    nodes: list[Node], caplog: pytest.LogCaptureFixture
) -> None:
    for each in nodes[1:]:
        each.stop()
    store = nodes[0].session
    eventually(lambda: nodes[0].controller.is_active)
    store.delete(paths.DELETE_TOPICS)

    def failures() -> int:
        return sum("the controller failed" in record.getMessage() for record in list(caplog.records))

    eventually(lambda: failures() >= 2)
    time.sleep(0.5)
    assert failures() < 10
    store.create(paths.DELETE_TOPICS)
    eventually(lambda: nodes[0].controller.is_active)


def broken(*_: object) -> None:
    raise KeyError("a defect")


def test_a_defect_deactivates_the_controller_and_does_not_end_its_thread(
    nodes: list[Node], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = next(each for each in nodes if each.controller.is_active)
    for each in nodes:
        if each is not active:
            each.stop()
    failing = active.controller._core.active
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()
    monkeypatch.setattr(failing, "handle", broken)
    active.controller.put(ListReassignments(answers.put))
    # Another event may have met the defect before, and the broker may have been elected again.
    assert answers.get(timeout=SOON_S) in (ErrorCode.NOT_CONTROLLER, {})
    eventually(lambda: active.controller.is_active and active.controller._core.active is not failing)
    # A `reply` that raises does not end the thread either.
    active.controller.put(ListReassignments(broken))
    eventually(lambda: any("could not finish" in record.getMessage() for record in list(caplog.records)))

    def answer() -> object:
        active.controller.put(ListReassignments(answers.put))
        return answers.get(timeout=SOON_S)

    eventually(lambda: answer() == {})


def test_preferred_leaders_are_elected_when_a_rebalance_is_due(nodes: list[Node]) -> None:
    active = next(each for each in nodes if each.controller.is_active)
    other = next(each for each in nodes if each is not active)
    me, you = active.broker_id, other.broker_id
    topics.create_topic(active.session, "t", "A" * 22, {0: [you, me]}, {}, [me, you])
    partition = TopicPartition("t", 0)

    def leader() -> int | None:
        state = topics.read_partition_states(active.session, [partition]).get(partition)
        return None if state is None else state.leader_and_isr.leader

    eventually(lambda: leader() == you)
    # The state as if a failed leader had returned and caught up.
    path = "/brokers/topics/t/partitions/0/state"
    text = f'{{"controller_epoch":1,"leader":{me},"version":1,"leader_epoch":1,"isr":[{me},{you}]}}'
    active.session.set(path, text.encode())
    core = active.controller._core
    assert core.active is not None
    core.active.context.leadership = topics.read_partition_states(active.session, [partition])
    active.now_ms += 6_000
    answers: list[object] = []
    # Any event wakes the thread, which then sees that the rebalance is due.
    active.controller.put(ControlledShutdown(99, 1, answers.append))
    eventually(lambda: leader() == you)


def test_a_single_broker_is_its_own_controller_on_the_embedded_store(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / FILE_NAME)
    cluster.create_persistent_nodes(store)
    cluster.register_broker(store, BROKER)
    channel = FakeChannel()
    channels = BrokerChannels(lambda _broker: channel, lambda _answer: None)
    controller = Controller(
        lambda: ControllerSettings(broker_id=1),
        store,
        channels,
        lambda: None,
        lambda: int(time.time() * 1000),
        time.monotonic_ns,
        ControllerTimes(),
    )
    controller.start()
    eventually(lambda: controller.is_active)
    topics.create_topic(store, "t", "A" * 22, {0: [1]}, {}, [1])
    eventually(lambda: any(each.topic_states for each in channel.seen))
    controller.stop()
    assert store.exists("/controller") is None
    store.close()
