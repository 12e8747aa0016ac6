"""The follower's side of a fetch session: what is named, what is left out, and when a new session begins."""

from __future__ import annotations

from uuid import UUID

import pytest

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, TopicFetched
from klog.replication.fetching.session import FetchSession, SessionEntry

ID_A, ID_B = UUID(int=1), UUID(int=2)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def entry(partition: int = 0, offset: int = 0, topic_id: UUID | None = ID_A) -> SessionEntry:
    return SessionEntry(FetchPartition(partition, 0, offset, 0, 0, 100), topic_id)


def answer(*partitions: int, session_id: int = 9, error: int = 0, topic_id: UUID = ID_A) -> FetchResponse:
    topics = [TopicFetched(None, topic_id, [PartitionFetched(each, 0, 5) for each in partitions])]
    return FetchResponse(topics if partitions else [], error, session_id)


@pytest.fixture
def session() -> FetchSession:
    """A session with partitions 0 and 1 of topic a, which the leader has accepted."""
    session = FetchSession(may_use_topic_ids=True)
    told = session.full_request({A0: entry(0), A1: entry(1)})
    assert (told.session_id, told.epoch, told.uses_topic_ids) == (0, 0, True)
    assert session.accept(answer(0, 1)) is not None
    return session


def test_the_first_request_names_all_and_the_next_one_only_what_changed(session: FetchSession) -> None:
    assert session.fits({A0: entry(0, 7)}, ())
    told = session.next_request({A0: entry(0, 7)}, ())
    assert (told.session_id, told.epoch) == (9, 1)
    assert [(topic.name, topic.partitions) for topic in told.topics] == [("a", [entry(0, 7).partition])]
    assert session.accept(answer(0)) is not None
    assert session.next_request({}, ())[:4] == (9, 2, [], [])


def test_a_partition_that_is_no_longer_fetched_is_forgotten(session: FetchSession) -> None:
    told = session.next_request({}, [A1])
    assert [(each.name, each.topic_id, each.partitions) for each in told.forgotten] == [("a", ID_A, [1])]
    assert session.accept(answer(1)) is None  # the leader answers what it was told to forget
    assert session.is_full


def test_topics_that_come_and_go_leave_nothing_behind(session: FetchSession) -> None:
    for number in range(10, 20):
        key, topic_id = TopicPartition(f"t{number}", 0), UUID(int=number)
        session.next_request({key: entry(0, topic_id=topic_id)}, ())
        assert session.accept(answer(0, topic_id=topic_id)) is not None
        session.next_request({}, [key])
        assert session.accept(answer(0, topic_id=ID_A)) is not None
    assert session._names == {ID_A: "a"}


def test_the_answer_names_the_partitions_by_their_topic_s_id(session: FetchSession) -> None:
    session.next_request({}, ())
    accepted = session.accept(answer(1))
    assert accepted is not None
    assert [key for key, _ in accepted] == [A1]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(answer(2), id="not in the session"),
        pytest.param(answer(0, topic_id=ID_B), id="an unknown topic"),
        pytest.param(answer(0, 0), id="named twice"),
    ],
)
def test_an_answer_that_does_not_fit_is_not_used_and_a_new_session_begins(
    session: FetchSession, bad: FetchResponse
) -> None:
    session.next_request({}, ())
    assert session.accept(bad) is None
    assert session.is_full
    assert session.full_request({A0: entry()})[:2] == (9, 0)  # the old session is closed with it


def test_a_full_answer_that_misses_a_partition_is_not_used() -> None:
    session = FetchSession(may_use_topic_ids=True)
    session.full_request({A0: entry(0), A1: entry(1)})
    assert session.accept(answer(0)) is None
    assert session.is_full


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 9),
    ],
)
def test_after_an_error_a_full_request_follows(session: FetchSession, error: int, session_id: int) -> None:
    session.next_request({}, ())
    assert session.accept(answer(error=error)) is None
    assert session.full_request({A0: entry()})[:2] == (session_id, 0)


def test_a_leader_without_room_for_a_session_gets_full_requests() -> None:
    session = FetchSession(may_use_topic_ids=True)
    session.full_request({A0: entry()})
    assert session.accept(answer(0, session_id=0)) is not None
    assert session.is_full
    assert session.full_request({A0: entry()})[:2] == (0, 0)


def test_one_topic_without_an_id_makes_the_session_name_all_topics(session: FetchSession) -> None:
    without = {B0: entry(topic_id=None)}
    assert not session.fits(without, ())
    told = session.full_request({A0: entry(), **without})
    assert not told.uses_topic_ids
    assert session.accept(
        FetchResponse([TopicFetched(name, None, [PartitionFetched(0, 0, 5)]) for name in "ab"], 0, 9)
    )
    assert session.fits({A1: entry(1)}, ())
    assert not session.fits({}, [B0])  # from now on all can be named by their ids


def test_a_topic_whose_id_changes_needs_a_new_session(session: FetchSession) -> None:
    assert not session.fits({A0: entry(topic_id=ID_B)}, ())


def test_before_topic_ids_all_topics_are_named() -> None:
    session = FetchSession(may_use_topic_ids=False)
    assert not session.full_request({A0: entry()}).uses_topic_ids
    named = FetchResponse([TopicFetched("a", None, [PartitionFetched(0, 0, 5)])], 0, 9)
    assert session.accept(named)
    assert session.fits({B0: entry()}, ())


def test_after_the_last_epoch_comes_the_first_but_one(session: FetchSession) -> None:
    session._epoch = 2**31 - 1
    assert session.next_request({}, ()).epoch == 2**31 - 1
    session.accept(answer())
    assert session.next_request({}, ()).epoch == 1
