"""Produce with transactional records: the coordinator is asked before they open a transaction."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from klog.coordinator.transactions.values import Producer
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_response import PartitionProduced, decode_produce_response
from klog.server.handlers.data.produce import ProduceHandler
from tests.server.handlers.parts import OTHER_BROKER, TOPIC, Broker, FakeRequest, batch
from tests.server.handlers.test_produce_screening import request

ID = "payments"
LATEST = 11
OF_NINE = {"producer_id": 9, "producer_epoch": 2, "is_transactional": True}
NOT_ADDED = "Partition was not added to the transaction"


@pytest.fixture
def broker(tmp_path) -> Broker:
    broker = Broker(tmp_path)
    broker.lead()
    broker.lead(partition=1)
    broker.verifier.added = {(TOPIC, 0)}
    return broker


def records(sequence=0, **fields) -> bytearray:
    return batch(base_sequence=sequence, **OF_NINE | fields)


def send(broker: Broker, *partitions, version=LATEST, transactional_id=ID, acks=1) -> FakeRequest:
    """Produce to partitions of the topic, each a number and its records."""
    sent = request((TOPIC, list(partitions)), version=version, transactional_id=transactional_id, acks=acks)
    broker.produce_handler().handle(sent)
    return sent


def results(sent: FakeRequest) -> list[PartitionProduced]:
    ((_, found),) = decode_produce_response(sent.api_version, sent.answer).topics
    return list(found)


def errors(sent: FakeRequest) -> list[int]:
    return [each.error_code for each in results(sent)]


def end_of(broker: Broker, partition=0) -> int:
    return broker.replicas.partitions[TOPIC, partition].log.log_end_offset


def end_transaction(broker: Broker) -> None:
    broker.end_transaction(aborted=True, producer_id=9, epoch=2)


@pytest.mark.parametrize("version", [3, 7, LATEST])
def test_records_of_a_partition_in_the_transaction_are_written(broker: Broker, version: int) -> None:
    assert errors(send(broker, (0, records()), version=version)) == [ErrorCode.NONE]
    assert broker.verifier.asked == [(ID, Producer(9, 2), [TopicPartition(TOPIC, 0)])]
    assert broker.replicas.partitions[TOPIC, 0].log.last_stable_offset == 0


def test_only_what_opens_a_transaction_is_asked_about(broker: Broker) -> None:
    broker.verifier.added = {(TOPIC, 0), (TOPIC, 1)}
    send(broker, (0, records()))
    assert errors(send(broker, (0, records(1)), (1, records()))) == [ErrorCode.NONE] * 2
    assert errors(send(broker, (0, records(2)), (1, records(1)))) == [ErrorCode.NONE] * 2
    assert [asked for _, _, asked in broker.verifier.asked] == [[(TOPIC, 0)], [(TOPIC, 1)]]


def test_a_partition_that_is_not_in_the_transaction_is_refused_and_the_others_are_written(
    broker: Broker,
) -> None:
    sent = send(broker, (0, records()), (1, records()))
    assert errors(sent) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert (end_of(broker, 0), end_of(broker, 1)) == (1, 0)


@pytest.mark.parametrize(
    ("verdict", "old", "new", "what"),
    [
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
            NOT_ADDED,
        ),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, NOT_ADDED),
        (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            None,
        ),
        (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            None,
        ),
        *(
            (
                passing,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the coordinator did not say whether the partition is in the transaction: {passing.name}",
            )
            for passing in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            )
        ),
    ],
)
def test_errors_of_the_verification_by_version(broker: Broker, verdict, old, new, what) -> None:
    broker.verifier.added, broker.verifier.error = None, verdict
    for version, expected in ((3, old), (10, old), (LATEST, new)):
        (found,) = results(send(broker, (0, records()), version=version))
        assert found.error_code == expected
        if version == 10:
            assert found.error_message == what
    assert end_of(broker) == 0


def test_records_of_two_producers_refuse_the_whole_request(broker: Broker) -> None:
    for other in ({"producer_id": 8}, {"producer_epoch": 3}):
        sent = send(broker, (0, records()), (1, records(**other)))
        assert errors(sent) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert (end_of(broker, 0), end_of(broker, 1), broker.verifier.asked) == (0, 0, [])


def test_other_records_of_a_transactional_request_are_not_asked_about(broker: Broker) -> None:
    plain = batch(producer_id=9, producer_epoch=2, base_sequence=0)
    assert errors(send(broker, (0, plain), (1, batch()))) == [ErrorCode.NONE] * 2
    assert broker.verifier.asked == []


def test_without_the_switch_nobody_is_asked(broker: Broker) -> None:
    broker.verifier.is_enabled = False
    assert errors(send(broker, (0, records()), (1, records()))) == [ErrorCode.NONE] * 2
    assert broker.verifier.asked == []


def test_a_partition_that_is_led_elsewhere_is_not_asked_about(broker: Broker) -> None:
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=(1, OTHER_BROKER))
    broker.tell(partition=7, leader=OTHER_BROKER)
    sent = send(broker, (0, records()), (7, records()), (9, records()))
    assert errors(sent) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.verifier.asked == []


def test_records_wait_for_the_coordinators_answer(broker: Broker) -> None:
    broker.verifier.slow = True
    sent = send(broker, (0, records()))
    assert (sent.answered, end_of(broker)) == (False, 0)
    broker.verifier.answer()
    assert errors(sent) == [ErrorCode.NONE]


def test_records_are_refused_if_a_marker_came_before_the_coordinators_answer(broker: Broker) -> None:
    broker.verifier.slow = True
    sent = send(broker, (0, records()))
    end_transaction(broker)
    broker.verifier.answer()
    assert errors(sent) == [ErrorCode.INVALID_TXN_STATE]
    assert (end_of(broker), broker.replicas.partitions[TOPIC, 0].log.last_stable_offset) == (1, 1)


def test_late_records_do_not_open_a_transaction_again(broker: Broker) -> None:
    send(broker, (0, records()))
    end_transaction(broker)
    broker.verifier.added = set()
    assert errors(send(broker, (0, records(1)))) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert broker.replicas.partitions[TOPIC, 0].log.last_stable_offset == 2


def test_a_later_request_of_a_producer_does_not_overtake_the_first(broker: Broker) -> None:
    broker.verifier.slow = True
    first = send(broker, (0, records(0)))
    second = send(broker, (0, records(1)))
    waiting = broker.verifier.waiting
    broker.verifier.waiting = waiting[::-1]
    broker.verifier.answer()
    assert errors(second) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert errors(first) == [ErrorCode.NONE]
    assert errors(send(broker, (0, records(1)))) == [ErrorCode.NONE]


def test_acks_0_learns_of_a_refusal_by_losing_the_connection(broker: Broker) -> None:
    assert send(broker, (0, records()), acks=0).parts is None
    sent = send(broker, (1, records()), acks=0)
    assert (sent.closed, end_of(broker, 0), end_of(broker, 1)) == (True, 1, 0)


def test_a_failure_after_the_verification_is_answered(broker: Broker, caplog) -> None:
    broker.verifier.slow = True
    counts_nothing = SimpleNamespace(topics={})
    handler = ProduceHandler(
        broker.lookup,
        broker.produce_purgatory,
        broker.clock,
        broker.clock,
        counts_nothing,
        broker.verification,
    )
    sent, silent = (
        request((TOPIC, [(0, records())]), version=LATEST, transactional_id=ID, acks=acks) for acks in (1, 0)
    )
    handler.handle(sent)
    handler.handle(silent)
    with caplog.at_level(logging.ERROR):
        broker.verifier.answer()
    assert errors(sent) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert silent.closed
    assert "KeyError" in caplog.text
