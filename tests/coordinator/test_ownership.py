"""Which partitions a coordinator owns: what happens when leadership comes, goes and comes again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from klog.coordinator.runtime.ownership import OwnedTopic, Ownership
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.roles import Role, RoleChange
from tests.waiting import eventually

TOPIC = "__internal"


class Held:
    """A partition that records what happens to it."""

    def __init__(self, number: int, leader_epoch: int) -> None:
        self.number = number
        self.leader_epoch = leader_epoch
        self.closed = False

    def __len__(self) -> int:
        return 1

    def close(self) -> None:
        self.closed = True


class Owner:
    """Partitions whose reading can be held up."""

    def __init__(self, *, reloads: bool = False) -> None:
        self.may_read = threading.Event()
        self.may_read.set()
        self.reading = threading.Event()
        self.fails = False
        self.started: list[Held] = []
        self.is_replicated = True
        self.replicated: list[Callable[[], object]] = []
        topic = OwnedTopic(TOPIC, "things", self.read, self.when_replicated, reloads=reloads)
        self.partitions = Ownership(topic, "test-loader")

    def read(self, number: int, epoch: int, still_leads: Callable[[], bool]) -> Callable[[], Held] | None:
        self.reading.set()
        assert self.may_read.wait(60)
        if self.fails:
            raise RuntimeError("a defect")
        return (lambda: self.start(number, epoch)) if still_leads() else None

    def when_replicated(self, number: int, then: Callable[[], object]) -> bool:
        if not self.is_replicated:
            self.replicated.append(then)
        return self.is_replicated

    def start(self, number: int, epoch: int) -> Held:
        self.started.append(Held(number, epoch))
        return self.started[-1]

    def change(self, epoch: int, role: Role = Role.LEADER, topic: str = TOPIC) -> None:
        change = RoleChange(TopicPartition(topic, 0), Role.ABSENT, role, epoch)
        self.partitions.roles_changed([change])

    def epoch(self) -> int | ErrorCode:
        owner = self.partitions.owner_at(0)
        return owner if isinstance(owner, ErrorCode) else owner.leader_epoch


@pytest.fixture(params=[False, True], ids=["keeps", "reloads"])
def owner(request: pytest.FixtureRequest) -> Iterator[Owner]:
    made = Owner(reloads=request.param)
    yield made
    made.may_read.set()
    made.partitions.stop()


def test_a_partition_is_owned_when_it_is_loaded(owner: Owner) -> None:
    assert owner.epoch() is ErrorCode.NOT_COORDINATOR
    owner.may_read.clear()
    owner.change(3)
    assert owner.epoch() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert owner.partitions.is_loading
    owner.may_read.set()
    eventually(lambda: owner.epoch() == 3)
    assert owner.partitions.owned() == owner.started
    assert not owner.partitions.is_loading


def test_a_partition_is_owned_only_after_its_records_are_replicated(owner: Owner) -> None:
    owner.is_replicated = False
    owner.change(3)
    eventually(lambda: len(owner.replicated) == 1)
    assert owner.epoch() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert owner.partitions.is_loading
    assert not owner.started
    owner.replicated[0]()
    eventually(lambda: owner.epoch() == 3)
    assert not owner.partitions.is_loading


def test_what_a_marker_says_meanwhile_is_done_after_the_load(owner: Owner) -> None:
    owner.is_replicated = False
    owner.change(3)
    eventually(lambda: len(owner.replicated) == 1)
    seen: list[Held] = []
    owner.partitions.when_loaded(0, seen.append)
    assert not seen
    owner.replicated[0]()
    eventually(lambda: seen == owner.started and len(seen) == 1)


def test_a_partition_that_goes_before_its_records_are_replicated_is_not_owned(owner: Owner) -> None:
    owner.is_replicated = False
    owner.change(3)
    eventually(lambda: len(owner.replicated) == 1)
    owner.change(4, Role.FOLLOWER)
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    owner.replicated[0]()
    owner.is_replicated = True
    owner.change(5)
    eventually(lambda: owner.epoch() == 5)
    assert [held.leader_epoch for held in owner.started] == [5]


def test_a_partition_that_is_led_in_a_newer_epoch_meanwhile_is_read_again(owner: Owner) -> None:
    owner.is_replicated = False
    owner.change(3)
    eventually(lambda: len(owner.replicated) == 1)
    owner.change(4)
    eventually(lambda: len(owner.replicated) == 2)
    owner.replicated[0]()
    owner.replicated[1]()
    eventually(lambda: owner.epoch() == 4)
    assert [held.leader_epoch for held in owner.started] == [4]


def test_a_partition_that_is_led_elsewhere_is_closed(owner: Owner) -> None:
    owner.change(3)
    eventually(lambda: owner.epoch() == 3)
    owner.change(4, Role.FOLLOWER)
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    eventually(lambda: owner.started[0].closed)


def test_other_topics_are_of_no_interest(owner: Owner) -> None:
    owner.change(3, topic="other")
    assert owner.epoch() is ErrorCode.NOT_COORDINATOR


def test_a_partition_that_goes_while_it_is_read_is_not_owned(owner: Owner) -> None:
    owner.may_read.clear()
    owner.change(3)
    assert owner.reading.wait(60)
    owner.change(4, Role.FOLLOWER)
    owner.may_read.set()
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    assert not owner.started


def test_a_newer_epoch_while_a_partition_is_read_loads_it_again(owner: Owner) -> None:
    owner.may_read.clear()
    owner.change(3)
    assert owner.reading.wait(60)
    owner.change(4)
    assert owner.epoch() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    owner.may_read.set()
    eventually(lambda: owner.epoch() == 4)
    assert not owner.partitions.is_loading


def test_a_newer_epoch_without_a_break_keeps_the_partition() -> None:
    owner = Owner()
    owner.change(3)
    eventually(lambda: owner.epoch() == 3)
    owner.change(4)
    assert owner.epoch() == 4
    owner.partitions.stop()
    assert len(owner.started) == 1


def test_a_newer_epoch_loads_the_partition_again_if_the_coordinator_says_so() -> None:
    owner = Owner(reloads=True)
    owner.change(3)
    eventually(lambda: owner.epoch() == 3)
    owner.may_read.clear()
    owner.change(4)
    assert owner.epoch() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    owner.may_read.set()
    eventually(lambda: owner.epoch() == 4)
    owner.partitions.stop()
    assert [held.leader_epoch for held in owner.started] == [3, 4]
    assert owner.started[0].closed


def test_an_older_epoch_changes_nothing(owner: Owner) -> None:
    owner.change(5)
    eventually(lambda: owner.epoch() == 5)
    owner.change(4)
    owner.change(4, Role.FOLLOWER)
    owner.change(6, Role.FOLLOWER)
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    owner.change(5)
    owner.change(7)
    eventually(lambda: owner.epoch() == 7)
    assert [held.leader_epoch for held in owner.started] == [5, 7]


def test_a_partition_that_is_only_stopped_stays_owned() -> None:
    owner = Owner()
    owner.change(5)
    eventually(lambda: owner.epoch() == 5)
    owner.change(5, Role.STOPPED)
    other = RoleChange(TopicPartition(TOPIC, 1), Role.ABSENT, Role.LEADER, 0)
    owner.partitions.roles_changed([other])
    eventually(lambda: not isinstance(owner.partitions.owner_at(1), ErrorCode))
    assert owner.epoch() == 5
    owner.partitions.stop()


def test_a_topic_that_is_deleted_and_created_again_starts_with_its_first_epoch(owner: Owner) -> None:
    owner.change(5)
    eventually(lambda: owner.epoch() == 5)
    owner.change(5, Role.DELETED)
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    owner.change(0)
    eventually(lambda: owner.epoch() == 0)
    owner.change(1, Role.FOLLOWER)
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    owner.change(2)
    eventually(lambda: owner.epoch() == 2)


def test_a_failure_to_load_does_not_end_the_loading_of_others(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    owner.fails = True
    owner.change(3)
    eventually(lambda: owner.epoch() is ErrorCode.NOT_COORDINATOR)
    assert "__internal-0 is not loaded" in caplog.text
    owner.fails = False
    owner.change(4)
    eventually(lambda: owner.epoch() == 4)


class LoadedMeanwhile(dict[int, Held]):
    """Partitions of which one is loaded just after it was looked for in vain."""

    def __init__(self, finish: Callable[[], None]) -> None:
        super().__init__()
        self._finish = finish

    def get(self, number: int, default: Held | None = None) -> Held | None:  # type: ignore[override]
        found = super().get(number, default)
        if found is None:
            self._finish()
        return found


def test_a_partition_that_is_loaded_while_it_is_looked_for_is_found(owner: Owner) -> None:
    held = Held(0, 3)
    partitions = owner.partitions
    partitions._loading[0] = 3

    def finish() -> None:
        partitions._owned[0] = held
        del partitions._loading[0]

    partitions._owned = LoadedMeanwhile(finish)
    assert partitions.owner_at(0) is held


class ThenDo:
    """A lock that does something after it was left for the first time."""

    def __init__(self, after: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._after: Callable[[], None] | None = after

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        after, self._after = self._after, None
        if after is not None:
            after()


def test_roles_may_change_while_the_coordinator_stops(owner: Owner) -> None:
    owner.partitions._lock = ThenDo(owner.partitions.stop)  # type: ignore[assignment]
    owner.change(3)
    assert owner.epoch() is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_nothing_is_owned_after_the_stop(owner: Owner) -> None:
    owner.change(3)
    eventually(lambda: owner.epoch() == 3)
    owner.partitions.stop()
    assert owner.epoch() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert owner.started[0].closed
    owner.change(4)
    assert owner.epoch() is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_concerns_a_partition_that_is_being_loaded_is_done_after_the_load(owner: Owner) -> None:
    seen: list[int] = []
    owner.partitions.when_loaded(0, lambda held: seen.append(-1))
    owner.may_read.clear()
    owner.change(3)
    assert owner.reading.wait(60)
    owner.partitions.when_loaded(0, lambda held: seen.append(held.leader_epoch))
    assert seen == []
    owner.may_read.set()
    eventually(lambda: seen == [3])
    owner.partitions.when_loaded(0, lambda held: seen.append(0))
    assert seen == [3, 0]
    owner.partitions.stop()
    owner.partitions.when_loaded(0, lambda held: seen.append(-2))
    assert seen == [3, 0]
