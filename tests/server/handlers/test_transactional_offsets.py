"""TxnOffsetCommit, by every version of its message, on a broker with a real log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.coordinator.transactions.values import Producer
from klog.formats.names import CONSUMER_OFFSETS
from klog.formats.record_batch import parse
from klog.protocol.apis import SPOKEN, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.verification import UNCHECKED
from tests.server.handlers.group_parts import GroupBroker
from tests.server.handlers.parts import TOPIC, answer_of, part_of
from tests.server.handlers.test_groups import (
    GROUP,
    errors_of,
    fetch,
    joined,
    log_of,
    offset_of,
    restarted,
)
from tests.server.handlers.test_groups import (
    commit as commit_plainly,
)

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = range(SPOKEN[API].min_version, SPOKEN[API].max_version + 1)
HERE = (TOPIC, 0)
NONE = ErrorCode.NONE
UNSTABLE = (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


def commit(broker: GroupBroker, version: int = 4, offset: int = 5, **values: Any):
    entities = tuple(
        part_of(
            API,
            version,
            "TxnOffsetCommitRequestTopic",
            name=topic,
            partitions=(
                part_of(
                    API,
                    version,
                    "TxnOffsetCommitRequestPartition",
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=2,
                    committed_metadata=values.pop("metadata", "note"),
                ),
            ),
        )
        for topic, number in values.pop("keys", (HERE,))
    )
    fields = {
        "transactional_id": "pay",
        "group_id": GROUP,
        "producer_id": 9,
        "producer_epoch": 0,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": entities,
    }
    return broker.send(API, version, **fields | values)


def end(broker: GroupBroker, *, committed: bool, producer_id: int = 9) -> None:
    """The marker of the transaction is written."""
    number = broker.coordinator.partition_for(GROUP)
    broker.end_transaction(
        aborted=not committed, producer_id=producer_id, topic=CONSUMER_OFFSETS, partition=number
    )
    broker.coordinator.transaction_ended(number, producer_id, committed=committed)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_count_when_the_transaction_is_committed(broker, version: int) -> None:
    assert errors_of(commit(broker, version)) == {HERE: NONE}
    assert broker.verified == [(broker.coordinator.partition_for(GROUP), "pay", Producer(9, 0))]
    assert offset_of(fetch(broker)) == (-1, "", NONE)
    assert offset_of(fetch(broker, stable=True)) == UNSTABLE
    end(broker, committed=True)
    assert offset_of(fetch(broker, stable=True)) == (5, "note", NONE)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_of_an_aborted_transaction_are_dropped(broker, version: int) -> None:
    commit_plainly(broker, topics=((TOPIC, 0, 1),))
    commit(broker, version)
    end(broker, committed=False)
    assert offset_of(fetch(broker, stable=True)) == (1, "note", NONE)


@pytest.mark.parametrize("committed", [True, False])
def test_the_log_says_the_same_after_a_change_of_leadership(broker, committed: bool) -> None:
    commit(broker)
    restarted(broker)
    assert offset_of(fetch(broker, stable=True)) == UNSTABLE
    end(broker, committed=committed)
    found = offset_of(fetch(broker, stable=True))
    assert found == ((5, "note", NONE) if committed else (-1, "", NONE))
    restarted(broker, epoch=4)
    assert offset_of(fetch(broker, stable=True)) == found


def test_the_batch_is_the_producers(broker) -> None:
    commit(broker)
    batch = parse(Path(log_of(broker).segments.active.file.path).read_bytes())
    assert batch.attributes.isTransactional
    assert (batch.producerId, batch.producerEpoch, batch.baseSequence) == (9, 0, 0)


def test_two_transactions_of_one_group_are_apart(broker) -> None:
    commit(broker, offset=5)
    commit(broker, offset=6, producer_id=10, transactional_id="other")
    end(broker, committed=True)
    assert offset_of(fetch(broker)) == (5, "note", NONE)
    assert offset_of(fetch(broker, stable=True)) == UNSTABLE
    end(broker, committed=False, producer_id=10)
    assert offset_of(fetch(broker, stable=True)) == (5, "note", NONE)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_marker_ends_the_transaction_in_every_group_of_its_partition(broker, loaded: bool) -> None:
    place = broker.coordinator.partition_for
    others = [name for name in map("{}-more".format, range(20)) if place(name) == place(GROUP)]
    for name in (GROUP, *others):
        commit(broker, group_id=name)
    if loaded:
        restarted(broker)
    end(broker, committed=True)
    for name in (GROUP, *others):
        assert offset_of(fetch(broker, group_id=name, stable=True)) == (5, "note", NONE)


def test_the_last_offset_of_a_transaction_counts(broker) -> None:
    for offset in (5, 6, 7):
        commit(broker, offset=offset)
    end(broker, committed=True)
    assert offset_of(fetch(broker)) == (7, "note", NONE)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_in_the_transaction_is_not_written(broker, version: int) -> None:
    broker.verify_error = ErrorCode.TRANSACTION_ABORTABLE
    wanted = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert errors_of(commit(broker, version)) == {HERE: wanted}
    assert log_of(broker).log_end_offset == 0
    assert offset_of(fetch(broker, stable=True)) == (-1, "", NONE)


@pytest.mark.parametrize(
    ("verified", "told"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_the_transaction_coordinators_errors_are_translated(broker, verified, told) -> None:
    broker.verify_error = verified
    assert errors_of(commit(broker)) == {HERE: told}


def test_nothing_is_written_before_the_verification(broker) -> None:
    broker.verifying = []
    request = commit(broker)
    assert not request.answered
    assert log_of(broker).log_end_offset == 0
    broker.verifying.pop()(NONE, UNCHECKED)
    assert errors_of(request) == {HERE: NONE}


def test_a_partition_may_be_lost_during_the_verification(broker) -> None:
    broker.verifying = []
    request = commit(broker)
    restarted(broker)
    broker.verifying.pop()(NONE, UNCHECKED)
    assert errors_of(request) == {HERE: ErrorCode.NOT_COORDINATOR}
    assert offset_of(fetch(broker, stable=True)) == (-1, "", NONE)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_does_not_exist_is_refused_alone(broker, version: int) -> None:
    gone = ("gone", 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors_of(commit(broker, version, keys=(HERE, gone))) == {HERE: NONE, gone: unknown}
    assert errors_of(commit(broker, version, keys=(gone,))) == {gone: unknown}


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_that_know_no_member_may_commit_in_a_group_with_members(broker, version: int) -> None:
    joined(broker)
    assert errors_of(commit(broker, version)) == {HERE: NONE}


@pytest.mark.parametrize("version", range(3, 5))
def test_a_member_of_another_generation_is_fenced(broker, version: int) -> None:
    member = joined(broker)

    def told(generation: int, member_id: str) -> int:
        answer = commit(broker, version, generation_id=generation, member_id=member_id)
        return errors_of(answer)[HERE]

    assert told(member.generation_id, member.member_id) == NONE
    assert told(member.generation_id + 1, member.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert told(member.generation_id, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_was_replaced_is_fenced(broker) -> None:
    member = joined(broker, group_instance_id="shop")
    answer = commit(broker, generation_id=member.generation_id, member_id="another", group_instance_id="shop")
    assert errors_of(answer) == {HERE: ErrorCode.FENCED_INSTANCE_ID}


def test_a_group_needs_a_name(broker) -> None:
    assert errors_of(commit(broker, group_id="")) == {HERE: ErrorCode.INVALID_GROUP_ID}


def test_long_metadata_is_refused(broker) -> None:
    assert errors_of(commit(broker, metadata="x" * 4097)) == {HERE: ErrorCode.OFFSET_METADATA_TOO_LARGE}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_is_loaded_is_waited_for(tmp_path, version: int) -> None:
    broker = GroupBroker(tmp_path, lead=False)
    broker.coordinator._loading[broker.coordinator.partition_for(GROUP)] = 0
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert errors_of(commit(broker, version)) == {HERE: loading}


def test_no_partition_is_answered_at_once(broker) -> None:
    assert answer_of(commit(broker, keys=())).topics == ()


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, 5), (-7, 0)])
def test_a_transaction_needs_a_producer_also_if_nothing_is_verified(broker, producer_id, epoch) -> None:
    answer = commit(broker, producer_id=producer_id, producer_epoch=epoch)
    assert errors_of(answer) == {HERE: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert log_of(broker).log_end_offset == 0
    assert offset_of(fetch(broker, stable=True)) == (-1, "", NONE)
