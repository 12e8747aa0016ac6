"""Topics that were deleted while a broker was not reached are forgotten once a new controller is there."""

from __future__ import annotations

import logging

import pytest

from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.metadata.errors import ConnectionLossError
from klog.server.handlers.cluster.deleted_topics import DeletedTopics
from tests.control_requests import update_metadata, update_metadata_state

TOPIC_ID = "t0p1cAAAAAAAAAAAAAAAAA"


class Looking:
    """Deleted topics of a broker that knows `gone`, `kept` and `again`, whose work a test does by hand.

    The tree holds `kept`; it cannot be read while `is_away`.
    """

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.is_away = False
        self.partitions_gone: list[TopicPartition] = []
        self.wakes = 0
        self.topics = DeletedTopics(
            self.cache, self._topic_names, self.partitions_gone.extend, new_worker=self._new_worker
        )
        self.update("gone", "kept", "again")

    def _topic_names(self) -> list[str]:
        if self.is_away:
            raise ConnectionLossError("lost")
        return ["kept"]

    def _new_worker(self, _name, work, *, retry_s):
        self.work, self.retry_s = work, retry_s
        return self

    def wake(self) -> None:
        self.wakes += 1

    def update(self, *names: str, controller_epoch: int = 1, broker_epoch: int = 1) -> None:
        """A controller sends topics, with a partition each."""
        states = {TopicPartition(each, 0): update_metadata_state(0, 1, (1,)) for each in names}
        request = update_metadata(
            states,
            dict.fromkeys(names, TOPIC_ID),
            [],
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
        )
        known = self.cache.snapshot.topics
        self.cache.update(request)
        self.topics.on_update(request, known)

    @property
    def known(self) -> set[str]:
        return set(self.cache.snapshot.topics)


@pytest.fixture
def looking() -> Looking:
    return Looking()


@pytest.mark.parametrize("epochs", [{"controller_epoch": 2}, {"broker_epoch": 2}])
def test_the_first_update_of_a_controller_or_a_registration_starts_the_search(looking, epochs) -> None:
    """The controller does not name topics that were deleted before the broker was registered again."""
    looking.update("kept")
    assert looking.wakes == 0
    looking.update(**epochs)
    looking.update("kept", **epochs)
    assert looking.wakes == 1


def test_what_is_not_in_the_tree_is_forgotten_and_named(looking, caplog) -> None:
    looking.update(controller_epoch=2)
    with caplog.at_level(logging.INFO):
        assert looking.work() is None
    assert looking.known == set(looking.cache.snapshot.topic_ids) == {"kept"}
    assert sorted(looking.partitions_gone) == [TopicPartition("again", 0), TopicPartition("gone", 0)]
    assert [each.getMessage() for each in caplog.records] == [
        "Topics that were deleted meanwhile are forgotten: again, gone"
    ]


def test_a_topic_that_is_made_again_stays_and_is_not_named(looking, caplog) -> None:
    """It was created after the tree was read."""
    looking.update(broker_epoch=2)
    looking.update("again", broker_epoch=2)
    with caplog.at_level(logging.INFO):
        looking.work()
    assert (looking.known, looking.partitions_gone) == ({"kept", "again"}, [TopicPartition("gone", 0)])
    assert [each.getMessage() for each in caplog.records] == [
        "Topics that were deleted meanwhile are forgotten: gone"
    ]


def test_while_the_tree_cannot_be_read_it_is_tried_again(looking) -> None:
    looking.is_away = True
    looking.update(controller_epoch=2)
    assert looking.work() == looking.work() == looking.retry_s > 0
    assert (looking.known, looking.partitions_gone) == ({"gone", "kept", "again"}, [])
    looking.is_away = False
    assert looking.work() is None
    assert looking.known == {"kept"}


def test_nothing_is_said_if_nothing_was_deleted(looking, caplog) -> None:
    looking.update("gone", "again", controller_epoch=2)
    before = looking.cache.snapshot
    with caplog.at_level(logging.INFO):
        assert looking.work() is None
    assert looking.cache.snapshot is before
    assert (looking.partitions_gone, caplog.records) == ([], [])
