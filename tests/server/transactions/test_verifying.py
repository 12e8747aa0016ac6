"""Coordinators are asked whether partitions are in a transaction, and what their answers mean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klog.coordinator.transactions.values import Producer, VerifyErrors
from klog.drivers.marker_queues import UNKNOWN
from klog.drivers.verification import Question, VerificationQueue
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError
from klog.protocol.messages import build, response_class
from klog.server.transactions.verifying import Verifying
from tests.entity_structs import response_struct
from tests.server.transactions.fake_brokers import FakeBroker, connecting
from tests.server.transactions.markers import A0, A1, B0
from tests.waiting import eventually

HERE = 1
PRODUCER = Producer(9, 2)
BOTH = frozenset((A0, A1))


class Coordinator(FakeBroker):
    """Knows the partitions of transactions by id; others get `error`, a request `request_error`."""

    def __init__(self) -> None:
        super().__init__(self._verified)
        self.transactions: dict[str, set] = {"payments": {A0}}
        self.error = ErrorCode.TRANSACTION_ABORTABLE
        self.request_error = ErrorCode.NONE

    def _verified(self, request: Entity) -> Entity:
        def made(name: str, /, **values) -> Entity:
            return build(response_struct(ApiKey.ADD_PARTITIONS_TO_TXN, request.__version__, name), **values)

        def error_of(transaction: Entity, key) -> ErrorCode:
            assert transaction.verify_only
            known = self.transactions.get(transaction.transactional_id, ())
            return ErrorCode.NONE if key in known else self.error

        return build(
            response_class(ApiKey.ADD_PARTITIONS_TO_TXN, request.__version__),
            throttle_time=None,
            error_code=self.request_error,
            results_by_transaction=()
            if self.request_error
            else tuple(
                made(
                    "AddPartitionsToTxnResult",
                    transactional_id=each.transactional_id,
                    topic_results=tuple(
                        made(
                            "AddPartitionsToTxnTopicResult",
                            name=topic.name,
                            results_by_partition=tuple(
                                made(
                                    "AddPartitionsToTxnPartitionResult",
                                    partition_index=number,
                                    partition_error_code=error_of(each, (topic.name, number)),
                                )
                                for number in topic.partitions
                            ),
                        )
                        for topic in each.topics
                    ),
                )
                for each in request.transactions
            ),
        )


class Cluster:
    """This broker and another one that may coordinate."""

    def __init__(self) -> None:
        self.coordinators = {"payments": 2, "here": HERE}
        self.other = Coordinator()
        self.own_answer: ErrorCode | VerifyErrors = ErrorCode.NONE
        self.verifier = Verifying(
            HERE,
            lambda transactional_id: self.coordinators.get(transactional_id, UNKNOWN),
            lambda *_: self.own_answer,
            connecting({2: self.other}),
        )

    def ask(self, *partitions, transactional_id="payments", producer=PRODUCER) -> list[VerifyErrors]:
        answers: list[VerifyErrors] = []
        self.verifier.verify(transactional_id, producer, partitions, answers.append)
        return answers

    def answer(self, *partitions, **values) -> VerifyErrors:
        answers = self.ask(*partitions, **values)
        eventually(lambda: answers)
        (answer,) = answers
        return answer


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.verifier.stop()


@pytest.mark.parametrize("version", [4, 5])
def test_another_broker_that_coordinates_is_asked_over_the_wire(cluster: Cluster, version: int) -> None:
    cluster.other.version = version
    assert cluster.answer(A0, A1) == {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}
    ((asked,),) = [request.transactions for request in cluster.other.requests]
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("payments", 9, 2)


def test_this_broker_is_asked_directly(cluster: Cluster) -> None:
    cluster.own_answer = {A0: ErrorCode.NONE}
    assert cluster.answer(A0, A1, transactional_id="here") == {
        A0: ErrorCode.NONE,
        A1: ErrorCode.TRANSACTION_ABORTABLE,
    }
    cluster.own_answer = ErrorCode.PRODUCER_FENCED
    assert cluster.answer(A0, transactional_id="here") == {A0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert cluster.other.requests == []


@pytest.mark.parametrize(
    ("answer", "is_verified"),
    [
        ({A0: ErrorCode.NONE}, True),
        ({A0: ErrorCode.TRANSACTION_ABORTABLE}, False),
        ({A1: ErrorCode.NONE}, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, False),
    ],
)
def test_only_what_this_broker_coordinates_is_verified_here(
    cluster: Cluster, answer: ErrorCode | VerifyErrors, is_verified: bool
) -> None:
    cluster.own_answer = answer
    assert cluster.verifier.is_verified_here("here", PRODUCER, A0) is is_verified
    for elsewhere in ("payments", "?"):
        assert not cluster.verifier.is_verified_here(elsewhere, PRODUCER, A0)
    assert cluster.other.requests == []


def test_an_id_that_nobody_coordinates_is_answered_so(cluster: Cluster) -> None:
    assert cluster.answer(A0, transactional_id="?") == {A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_errors_of_partitions(cluster: Cluster, said: ErrorCode, means: ErrorCode) -> None:
    cluster.other.error = said
    assert cluster.answer(B0) == {B0: means}


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_the_request_is_one_of_all_partitions(
    cluster: Cluster, said: ErrorCode, means: ErrorCode
) -> None:
    cluster.other.request_error = said
    assert cluster.answer(A0, B0) == {A0: means, B0: means}


def test_a_coordinator_that_does_not_answer_is_a_network_exception(cluster: Cluster) -> None:
    cluster.other.is_up = False
    assert cluster.answer(A0) == {A0: ErrorCode.NETWORK_EXCEPTION}
    cluster.other.is_up = True
    assert cluster.answer(A0) == {A0: ErrorCode.NONE}


def test_a_coordinator_that_cannot_be_asked_counts_as_one_that_agrees(cluster: Cluster, monkeypatch) -> None:
    cluster.other.version = 3
    assert cluster.answer(A1) == {A1: ErrorCode.NONE}

    def unsupported(*_) -> int:
        raise UnsupportedApiError("an old broker")

    monkeypatch.setattr("tests.server.transactions.fake_brokers.FakeConnection.version_of", unsupported)
    assert cluster.answer(A1) == {A1: ErrorCode.NONE}
    assert cluster.other.requests == []


def test_questions_gather_while_a_request_is_on_its_way(cluster: Cluster) -> None:
    ids = [f"payments-{number}" for number in range(3)]
    cluster.coordinators |= dict.fromkeys(ids, 2)
    cluster.other.transactions |= {each: {A0} for each in ids}
    cluster.other.may_answer.clear()
    answers = cluster.ask(A0)
    eventually(lambda: cluster.other.requests)
    later = [cluster.ask(A0, transactional_id=each) for each in ids]
    cluster.other.may_answer.set()
    eventually(lambda: all(later))
    assert [answers, *later] == [[{A0: ErrorCode.NONE}]] * 4
    assert [len(request.transactions) for request in cluster.other.requests] == [1, 3]


def question(epoch: int) -> Question:
    return Question("payments", Producer(9, epoch), BOTH, lambda _: None)


@pytest.mark.parametrize(
    ("epoch", "is_older", "error"),
    [
        (2, True, ErrorCode.NETWORK_EXCEPTION),
        (3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, False, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_of_two_questions_for_an_id_one_waits(epoch: int, is_older: bool, error: ErrorCode) -> None:
    queue = VerificationQueue()
    first, second = question(2), question(epoch)
    assert queue.put(2, first) is None
    displaced, kept = (first, second) if is_older else (second, first)
    assert queue.put(2, second) == (displaced, error)
    assert queue.take(2) == [kept]
    assert queue.take(2) == []
    assert queue.put(3, first) is None, "another coordinator"
