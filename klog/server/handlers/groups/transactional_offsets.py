"""Answers TxnOffsetCommit.

Rules: Kafka's `KafkaApis.handleTxnOffsetCommitRequest` and the message schema; KIP-447 (members), KIP-890
(TRANSACTION_ABORTABLE from version 4 on). The decisions are in `coordinator.group`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.transactional_offsets import TransactionalCommit, TransactionalCommits
from klog.coordinator.groups.values import NO_GENERATION, NO_MEMBER, Identity
from klog.coordinator.transactions.values import Producer
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of
from klog.server.handlers.groups.offsets import answer_errors, commits_of
from klog.server.network.request import Request
from klog.server.transactions.verification import offset_commit_refusal

# The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS here.
_LOADING_FROM: Final = 2


@dataclass(frozen=True, slots=True)
class TransactionalOffsetsHandler:
    """Answers TxnOffsetCommit requests.

    `known` says whether the cluster has a partition; `clock_ms` is the wall clock.
    """

    commits: TransactionalCommits
    known: Callable[[PartitionKey], bool]
    clock_ms: Callable[[], int]

    def commit(self, request: Request) -> None:
        """TxnOffsetCommit: answered when the offsets are replicated."""
        asked = entity_of(request)
        wanted = commits_of(asked, self.clock_ms())
        commits = {key: commit for key, commit in wanted.items() if self.known(key)}

        def answer(errors: Mapping[PartitionKey, ErrorCode]) -> None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            version = request.api_version
            all_errors = {key: _known_to(version, errors.get(key, unknown)) for key in wanted}
            answer_errors(request, all_errors)

        if not commits:
            answer({})
            return
        # Before version 3 there is no member.
        identity = Identity(
            getattr(asked, "member_id", NO_MEMBER),
            getattr(asked, "generation_id", NO_GENERATION),
            getattr(asked, "group_instance_id", None),
        )
        producer = Producer(asked.producer_id, asked.producer_epoch)
        commit = TransactionalCommit(asked.group_id, identity, asked.transactional_id, producer, commits)
        self.commits.commit(commit, answer)


def _known_to(version: int, error: ErrorCode) -> ErrorCode:
    """An error as clients of a version know it."""
    known = offset_commit_refusal(error, version)
    if known is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return known
