"""ElectLeaders: elections that an administrator asks for, answered when this broker knows the new leaders.

Rules: Kafka's `KafkaApis.handleElectLeaders`, `ReplicaManager.electLeaders`, DelayedElectLeader; KIP-460.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.controller.events import ElectLeaders
from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode
from klog.replication.purgatory import Purgatory
from klog.server.handlers.answers import Struct, by_topic, entity_of, milliseconds, send_answer
from klog.server.handlers.topics.topic_waits import DelayedElection
from klog.server.network.request import Request

# Before version 1 there was one type of election, and no error for the whole request.
_TYPE_FROM: Final = 1

Results = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class ElectLeadersHandler:
    """Answers ElectLeaders requests. `put` queues an event for the controller."""

    cache: MetadataCache
    purgatory: Purgatory
    put: Callable[[ElectLeaders], None]
    clock_ms: Callable[[], int]

    def handle(self, request: Request) -> None:
        """Ask the controller; answer when the elections are seen here, at the latest at the timeout."""
        wanted = entity_of(request)
        asked = wanted.topic_partitions
        if asked is None:
            topics = self.cache.snapshot.topics
            partitions = [TopicPartition(topic, number) for topic in topics for number in topics[topic]]
        else:
            partitions = [TopicPartition(each.topic, number) for each in asked for number in each.partitions]
        number = wanted.election_type if request.api_version >= _TYPE_FROM else ElectionType.PREFERRED
        if number not in list(ElectionType):
            failed = ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's answer to an unknown type
            named = () if asked is None else partitions
            _answer(request, dict.fromkeys(named, failed), (), error=failed, only_needed=False)
            return
        election_type = ElectionType(number)
        due_ms = self.clock_ms() + milliseconds(wanted.timeout)
        reply = partial(
            self._elected, request, partitions, election_type, due_ms=due_ms, only_needed=asked is None
        )
        self.put(ElectLeaders(partitions, election_type, reply))

    def _elected(
        self,
        request: Request,
        partitions: Collection[TopicPartition],
        election_type: ElectionType,
        results: Results | ErrorCode,
        *,
        due_ms: int,
        only_needed: bool,
    ) -> None:
        """Take the controller's answer, on the controller's thread."""
        if isinstance(results, ErrorCode):
            results = dict.fromkeys(partitions, results)
        elected = [where for where, error in results.items() if error is ErrorCode.NONE]
        answer = partial(_answer, request, results, only_needed=only_needed)
        if not elected:
            answer(())
            return
        operation = DelayedElection(due_ms, elected, partial(self._is_pending, election_type), answer)
        self.purgatory.try_complete_else_watch(operation, elected)

    def _is_pending(self, election_type: ElectionType, partition: TopicPartition) -> bool:
        """Whether this broker does not know the new leader of a partition yet."""
        snapshot = self.cache.snapshot
        state = snapshot.partition(partition)
        if state is None:
            return True
        if election_type is ElectionType.PREFERRED:
            return state.leader != state.replicas[0]
        return state.leader not in snapshot.brokers


def _answer(
    request: Request,
    results: Results,
    pending: Collection[TopicPartition],
    *,
    only_needed: bool,
    error: ErrorCode = ErrorCode.NONE,
) -> None:
    shown = {
        where: ErrorCode.REQUEST_TIMED_OUT if where in pending else outcome
        for where, outcome in results.items()
        if not (only_needed and outcome is ErrorCode.ELECTION_NOT_NEEDED)
    }
    topics = by_topic(shown.items(), _result, topic="topic", partitions="partition_result")
    send_answer(request, error_code=error, replica_election_results=topics)


def _result(number: int, error: ErrorCode) -> Struct:
    return {"partition_id": number, "error_code": error, "error_message": None}
