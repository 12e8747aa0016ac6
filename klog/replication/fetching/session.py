"""The follower's side of a fetch session: what the leader knows, and what the next request must say.

Rules: KIP-227 and Kafka's `FetchSessionHandler`; KIP-516 (a session names topics by id or by name, not both).
The first request names all partitions; the next ones name those that have changed. After any failure, the
session is closed and a new one begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from klog.protocol.fetch_response import FetchResponse, PartitionFetched

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_MAX_INT32: Final = 2**31 - 1


class SessionEntry(NamedTuple):
    """The values of a partition that the last request to the leader had."""

    partition: FetchPartition
    topic_id: UUID | None


class SessionRequest(NamedTuple):
    """The part of a Fetch request that concerns the session."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    uses_topic_ids: bool


class FetchSession:
    """One fetch session with one leader. `known` is what the leader knows after the last request."""

    def __init__(self, *, may_use_topic_ids: bool) -> None:
        self.known: dict[TopicPartition, SessionEntry] = {}
        self._may_use_topic_ids = may_use_topic_ids
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._uses_topic_ids = False
        self._without_id: set[TopicPartition] = set()
        self._names: dict[UUID, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request must name all partitions."""
        return self._epoch == FIRST_EPOCH

    def restart(self, *, leader_has_it: bool = True) -> None:
        """Close the session with the next request, which begins a new one."""
        if not leader_has_it:
            self._id = NO_SESSION
        self._epoch = FIRST_EPOCH

    # -- requests --------------------------------------------------------------------------------------------

    def fits(self, changed: Mapping[TopicPartition, SessionEntry], gone: Iterable[TopicPartition]) -> bool:
        """Whether the next request can be an incremental one with these changes.

        It cannot if a topic's id has changed, or if topics are to be named otherwise from now on.
        """
        if self.is_full:
            return False
        lacks_id = bool(self._without_id) and bool(self._without_id.difference(gone, changed))
        for key, entry in changed.items():
            before, topic_id = self.known.get(key), entry.topic_id
            # Ids are mostly the same object: to compare them runs Python.
            if before is not None and before.topic_id is not topic_id and before.topic_id != topic_id:
                return False
            if topic_id is None:
                lacks_id = True
        return self._uses_topic_ids == (self._may_use_topic_ids and not lacks_id)

    def full_request(self, entries: Mapping[TopicPartition, SessionEntry]) -> SessionRequest:
        """A request that names all partitions and asks for a new session."""
        self._epoch = FIRST_EPOCH
        self.known = dict(entries)
        self._without_id = {key for key, entry in entries.items() if entry.topic_id is None}
        self._uses_topic_ids = self._may_use_topic_ids and not self._without_id
        self._names = _names(entries)
        return SessionRequest(self._id, FIRST_EPOCH, _topics(entries), [], self._uses_topic_ids)

    def next_request(
        self, changed: Mapping[TopicPartition, SessionEntry], gone: Collection[TopicPartition]
    ) -> SessionRequest:
        """A request that names what has changed; `fits` has said that it can."""
        forgotten = self._forget(gone) if gone else []
        for key, entry in changed.items():
            if key not in self.known:
                self._meet(key, entry.topic_id)
            # As on the leader, which moves what a request names to the end only if it is new.
            self.known[key] = entry
        return SessionRequest(self._id, self._epoch, _topics(changed), forgotten, self._uses_topic_ids)

    def _forget(self, gone: Iterable[TopicPartition]) -> list[ForgottenTopic]:
        forgotten = {key: self.known.pop(key) for key in gone}
        self._without_id.difference_update(forgotten)
        # A session may last as long as the broker: topics that are gone must not gather in it.
        self._names = _names(self.known)
        return _forgotten(forgotten)

    def _meet(self, key: TopicPartition, topic_id: UUID | None) -> None:
        """A partition that the session did not have. Those that it has keep their topic's id."""
        if topic_id is None:
            self._without_id.add(key)
        else:
            self._names[topic_id] = key.topic

    # -- answers ---------------------------------------------------------------------------------------------

    def accept(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionFetched]] | None:
        """The partitions of an answer to the last request; None if the answer is not usable.

        Then the next request begins a new session.
        """
        if response.error_code != ErrorCode.NONE:
            self.restart(leader_has_it=response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return None
        answers = self._by_partition(response)
        if answers is None or (self.is_full and len(answers) != len(self.known)):
            self.restart(leader_has_it=not self.is_full)
            return None
        if response.session_id == NO_SESSION:
            self.restart(leader_has_it=False)
        else:
            self._id = response.session_id
            self._epoch = 1 if self._epoch == _MAX_INT32 else self._epoch + 1
        return answers

    def _by_partition(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionFetched]] | None:
        """None if the answer names a partition that is not in the session, or one twice."""
        answers: dict[TopicPartition, PartitionFetched] = {}
        known, count = self.known, 0
        for topic in response.topics:
            name = topic.name if topic.topic_id is None else self._names.get(topic.topic_id)
            for partition in topic.partitions:
                key = TopicPartition(name or "", partition.partition)
                if key not in known:
                    return None
                answers[key] = partition
                count += 1
        return list(answers.items()) if count == len(answers) else None


def _names(entries: Mapping[TopicPartition, SessionEntry]) -> dict[UUID, str]:
    return {entry.topic_id: key.topic for key, entry in entries.items() if entry.topic_id is not None}


def _topics(entries: Mapping[TopicPartition, SessionEntry]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for key, entry in entries.items():
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = FetchTopic(key.topic, entry.topic_id, [])
        topic.partitions.append(entry.partition)
    return list(topics.values())


def _forgotten(entries: Mapping[TopicPartition, SessionEntry]) -> list[ForgottenTopic]:
    return [
        ForgottenTopic(each.name, each.topic_id, [partition.partition for partition in each.partitions])
        for each in _topics(entries)
    ]
