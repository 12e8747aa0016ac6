"""Requests of transactions, by every version of their messages, before a coordinator that obeys the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from klog.coordinator.transactions.values import (
    NO_PRODUCER,
    DescribedTransaction,
    InitResult,
    ListedTransaction,
    Listing,
    Producer,
)
from klog.formats.names import TopicPartition
from klog.protocol.apis import SPOKEN, ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.parts import answer_of, part_of, request_of
from tests.server.handlers.transaction_parts import TransactionHandlers

INIT, ADD, OFFSETS, END = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
)
TIMEOUT = timedelta(seconds=60)
PRODUCER = Producer(7, 3)
CLIENTS, BROKERS = range(4), range(4, 6)


def versions(api: ApiKey) -> range:
    return range(SPOKEN[api].min_version, SPOKEN[api].max_version + 1)


@pytest.fixture
def broker() -> TransactionHandlers:
    return TransactionHandlers()


def topics(version: int, *partitions: tuple[str, int]) -> tuple[object, ...]:
    """One struct a topic, in the order of the partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return tuple(
        part_of(ADD, version, "AddPartitionsToTxnTopic", name=name, partitions=tuple(numbers))
        for name, numbers in by_topic.items()
    )


def transaction(name: str, *partitions: tuple[str, int], version: int = 4, verify_only: bool = True):
    return part_of(
        ADD,
        version,
        "AddPartitionsToTxnTransaction",
        transactional_id=name,
        producer_id=7,
        producer_epoch=3,
        verify_only=verify_only,
        topics=topics(version, *partitions),
    )


def errors_of(results) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in results
        for each in topic.results_by_partition
    }


def add(broker: TransactionHandlers, version: int, *partitions: tuple[str, int]):
    """The errors of partitions that a client adds."""
    answer = broker.ask(
        ADD,
        version,
        v3_and_below_transactional_id="pay",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=topics(version, *partitions),
    )
    return errors_of(answer.results_by_topic_v3_and_below)


class TestInitProducerId:
    @pytest.mark.parametrize("version", versions(INIT))
    def test_the_coordinator_decides(self, broker, version: int) -> None:
        answer = broker.ask(INIT, version, transactional_id="pay", transaction_timeout=TIMEOUT)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 7, 3)
        assert broker.transactions.asked == [("pay", 60_000, NO_PRODUCER)]

    @pytest.mark.parametrize("version", range(3, 6))
    def test_a_producer_may_say_the_id_that_it_has(self, broker, version: int) -> None:
        broker.ask(
            INIT, version, transactional_id="p", transaction_timeout=TIMEOUT, producer_id=5, producer_epoch=0
        )
        assert broker.transactions.asked == [("p", 60_000, Producer(5, 0))]

    @pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
    def test_an_id_without_its_epoch_is_invalid(self, broker, producer_id: int, epoch: int) -> None:
        answer = broker.ask(
            INIT,
            4,
            transactional_id=None,
            transaction_timeout=TIMEOUT,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert broker.transactions.asked == []

    @pytest.mark.parametrize("version", versions(INIT))
    def test_older_clients_know_a_fenced_producer_by_its_epoch(self, broker, version: int) -> None:
        broker.transactions.init = InitResult(ErrorCode.PRODUCER_FENCED)
        answer = broker.ask(INIT, version, transactional_id="pay", transaction_timeout=TIMEOUT)
        fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (fenced, -1, -1)

    @pytest.mark.parametrize("version", versions(INIT))
    def test_what_fails_is_answered(self, broker, version: int) -> None:
        request = request_of(INIT, version, transactional_id=None, transaction_timeout=TIMEOUT)
        request.respond(broker.producers.init_failed(request, ErrorCode.UNKNOWN_SERVER_ERROR))
        answer = answer_of(request)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)


class TestAddPartitionsOfClients:
    @pytest.mark.parametrize("version", CLIENTS)
    def test_every_partition_has_the_coordinators_answer(self, broker, version: int) -> None:
        wanted = ("t", 0), ("u", 1), ("t", 1)
        assert add(broker, version, *wanted) == dict.fromkeys(wanted, ErrorCode.NONE)
        assert broker.transactions.asked == [("pay", PRODUCER, set(wanted))]
        broker.transactions.error = ErrorCode.CONCURRENT_TRANSACTIONS
        assert set(add(broker, version, *wanted).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}

    @pytest.mark.parametrize("version", CLIENTS)
    def test_a_partition_that_does_not_exist_keeps_all_others_out(self, broker, version: int) -> None:
        assert add(broker, version, ("t", 0), ("t", 9), ("gone", 0)) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert broker.transactions.asked == []

    @pytest.mark.parametrize("version", CLIENTS)
    def test_clients_do_not_write_to_internal_topics(self, broker, version: int) -> None:
        assert add(broker, version, ("t", 0), ("__consumer_offsets", 0)) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("__consumer_offsets", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }

    @pytest.mark.parametrize("version", CLIENTS)
    def test_older_clients_know_a_fenced_producer_by_its_epoch(self, broker, version: int) -> None:
        broker.transactions.error = ErrorCode.PRODUCER_FENCED
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert add(broker, version, ("t", 0)) == {("t", 0): fenced}

    def test_a_partition_that_is_named_twice_is_added_once(self, broker) -> None:
        assert add(broker, 3, ("t", 0), ("t", 0)) == {("t", 0): ErrorCode.NONE}


class TestAddPartitionsOfBrokers:
    @pytest.mark.parametrize("version", BROKERS)
    def test_each_transaction_has_its_own_answer(self, broker, version: int) -> None:
        broker.transactions.verified = {
            TopicPartition("t", 0): ErrorCode.NONE,
            TopicPartition("t", 1): ErrorCode.TRANSACTION_ABORTABLE,
        }
        broker.transactions.error = ErrorCode.CONCURRENT_TRANSACTIONS
        wanted = (
            transaction("verified", ("t", 0), ("t", 1), version=version),
            transaction("added", ("u", 0), version=version, verify_only=False),
            transaction("unknown", ("gone", 0), ("u", 0), version=version),
        )
        answer = broker.ask(ADD, version, transactions=wanted)
        assert answer.error_code == ErrorCode.NONE
        found = {
            each.transactional_id: errors_of(each.topic_results) for each in answer.results_by_transaction
        }
        assert found == {
            "verified": {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE},
            "added": {("u", 0): ErrorCode.CONCURRENT_TRANSACTIONS},
            "unknown": {
                ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("u", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            },
        }

    def test_the_error_of_an_id_is_that_of_each_partition(self, broker) -> None:
        broker.transactions.verified = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        answer = broker.ask(ADD, 5, transactions=(transaction("pay", ("t", 0), ("u", 1), version=5),))
        (only,) = answer.results_by_transaction
        assert set(errors_of(only.topic_results).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    def test_a_partition_of_the_offsets_may_be_verified(self, broker) -> None:
        offsets = TopicPartition("__consumer_offsets", 0)
        broker.transactions.verified = {offsets: ErrorCode.NONE}
        answer = broker.ask(ADD, 4, transactions=(transaction("pay", offsets),))
        (only,) = answer.results_by_transaction
        assert errors_of(only.topic_results) == {offsets: ErrorCode.NONE}

    def test_a_request_is_answered_when_its_last_transaction_is(self, broker) -> None:
        waiting = broker.transactions.waiting = []
        several = tuple(transaction(name, ("t", 0), verify_only=False) for name in "ab")
        request = broker.send(ADD, 4, transactions=several)
        assert not request.answered
        waiting.pop()()
        assert not request.answered
        waiting.pop()()
        assert [each.transactional_id for each in answer_of(request).results_by_transaction] == ["a", "b"]

    def test_no_transaction_is_answered_at_once(self, broker) -> None:
        assert broker.ask(ADD, 4, transactions=()).results_by_transaction == ()


class TestTheOthers:
    @pytest.mark.parametrize("version", versions(OFFSETS))
    def test_the_groups_partition_of_the_offsets_is_added(self, broker, version: int) -> None:
        values: dict[str, Any] = {
            "transactional_id": "pay",
            "producer_id": 7,
            "producer_epoch": 3,
            "group_id": "four",
        }
        assert broker.ask(OFFSETS, version, **values).error_code == ErrorCode.NONE
        # The test's broker keeps a group in the partition that is the length of its name.
        assert broker.transactions.asked == [("pay", PRODUCER, {("__consumer_offsets", 4)})]
        broker.transactions.error = ErrorCode.PRODUCER_FENCED
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.ask(OFFSETS, version, **values).error_code == fenced

    @pytest.mark.parametrize("version", versions(END))
    @pytest.mark.parametrize("committed", [True, False])
    def test_a_transaction_ends(self, broker, version: int, committed: bool) -> None:
        values: dict[str, Any] = {
            "transactional_id": "pay",
            "producer_id": 7,
            "producer_epoch": 3,
            "committed": committed,
        }
        assert broker.ask(END, version, **values).error_code == ErrorCode.NONE
        assert broker.transactions.asked == [("pay", PRODUCER, committed)]
        broker.transactions.error = ErrorCode.PRODUCER_FENCED
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.ask(END, version, **values).error_code == fenced

    def test_versions_that_need_more_of_the_coordinator_are_not_served(self) -> None:
        # Clients of newer ones do not add partitions before they write (KIP-890 part 2).
        newest = {api: SPOKEN[api].max_version for api in (END, ApiKey.TXN_OFFSET_COMMIT, INIT)}
        assert newest == {END: 4, ApiKey.TXN_OFFSET_COMMIT: 4, INIT: 5}


class TestAdministration:
    def test_transactions_are_described(self, broker) -> None:
        start_ms = 1_700_000_000_123
        partitions = TopicPartition("u", 1), TopicPartition("t", 1), TopicPartition("t", 0)
        broker.transactions.described["pay"] = DescribedTransaction(
            ErrorCode.NONE, "pay", "Ongoing", 60_000, start_ms, PRODUCER, frozenset(partitions)
        )
        broker.transactions.described["idle"] = DescribedTransaction(
            ErrorCode.NONE, "idle", "Empty", 60_000, -1, Producer(8, 0)
        )
        ids = "pay", "idle", "gone"
        answer = broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
        pay, idle, gone = answer.transaction_states
        assert [each.transactional_id for each in answer.transaction_states] == [*ids]
        assert (pay.transaction_state, pay.transaction_timeout) == ("Ongoing", TIMEOUT)
        assert pay.transaction_start_time == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
        assert (pay.producer_id, pay.producer_epoch) == PRODUCER
        assert [(each.topic, each.partitions) for each in pay.topics] == [("t", (0, 1)), ("u", (1,))]
        assert (idle.transaction_state, idle.transaction_start_time, idle.topics) == ("Empty", None, ())
        assert gone.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (gone.transaction_state, gone.producer_id, gone.producer_epoch) == ("", 0, 0)
        assert gone.transaction_start_time == datetime(1970, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
    def test_transactions_are_listed(self, broker, version: int) -> None:
        listed = (ListedTransaction("pay", 7, "Ongoing"), ListedTransaction("idle", 8, "Empty"))
        broker.transactions.listing = Listing(ErrorCode.NONE, ("Odd",), listed)
        answer = broker.ask(
            ApiKey.LIST_TRANSACTIONS,
            version,
            state_filters=("Ongoing", "Odd"),
            producer_id_filters=(7, 8),
            duration_filter=5_000,
        )
        found = [
            (each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
        assert found == [*listed]
        assert answer.unknown_state_filters == ("Odd",)
        duration_ms = 5_000 if version else -1
        assert broker.transactions.asked == [(("Ongoing", "Odd"), (7, 8), duration_ms)]

    def test_a_listing_may_be_incomplete(self, broker) -> None:
        broker.transactions.listing = Listing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = broker.ask(ApiKey.LIST_TRANSACTIONS, 1, state_filters=(), producer_id_filters=())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
