"""FindCoordinator, while nobody coordinates: clients learn it at once where they can take it."""

from __future__ import annotations

import logging

import pytest

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.find_coordinator import FindCoordinatorHandler
from tests.server.handlers.parts import BROKER, Broker, answer_of, request_of

API = ApiKey.FIND_COORDINATOR
GROUP, TRANSACTION = 0, 1
NOBODY = (-1, "", -1)


@pytest.fixture
def handler(broker: Broker) -> FindCoordinatorHandler:
    broker.tell()
    return FindCoordinatorHandler(BROKER, broker.metadata)


def ask(handler, version: int, **values):
    request = request_of(API, version, **values)
    handler.handle(request)
    return answer_of(request)


def node(answer):
    return answer.node_id, answer.host, answer.port


def test_version_0_is_announced_because_librdkafka_compresses_with_lz4_only_then() -> None:
    assert SERVED[API].min_version == 0


@pytest.mark.parametrize("version", range(3))
def test_librdkafka_is_told_that_no_broker_coordinates_a_group(handler, version: int) -> None:
    answer = ask(handler, version, key="group", **({"key_type": GROUP} if version else {}))
    assert (answer.error_code, node(answer)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)


def test_other_clients_are_sent_to_this_broker_which_announces_nothing_of_groups(handler) -> None:
    answer = ask(handler, 3, key="group", key_type=GROUP)
    assert (answer.error_code, node(answer)) == (ErrorCode.NONE, (BROKER, f"host{BROKER}", 9092))
    assert not {ApiKey.JOIN_GROUP, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT} & set(SERVED)


@pytest.mark.parametrize("version", range(4, 7))
def test_every_key_has_an_answer(handler, version: int) -> None:
    answer = ask(handler, version, key_type=GROUP, coordinator_keys=("a", "b"))
    assert [each.key for each in answer.coordinators] == ["a", "b"]
    assert {(each.error_code, each.node_id) for each in answer.coordinators} == {(ErrorCode.NONE, BROKER)}


def test_a_broker_that_does_not_know_itself_yet_sends_nobody_anywhere(broker) -> None:
    answer = ask(FindCoordinatorHandler(BROKER, broker.metadata), 3, key="group", key_type=GROUP)
    assert (answer.error_code, node(answer)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)


@pytest.mark.parametrize("version", range(1, 4))
def test_a_transactional_id_is_refused_for_good(handler, version: int) -> None:
    answer = ask(handler, version, key="t", key_type=TRANSACTION)
    assert (answer.error_code, node(answer)) == (ErrorCode.UNSUPPORTED_VERSION, NOBODY)
    assert answer.error_message == "no transactions are served yet"


def test_an_unknown_kind_of_key_is_no_request(handler) -> None:
    assert ask(handler, 1, key="k", key_type=9).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 3])
def test_a_broken_handler_is_answered_for_where_there_is_one_key(handler, version: int) -> None:
    values = {"key": "k"} | ({"key_type": GROUP} if version else {})
    request = request_of(API, version, **values)
    request.respond(handler.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    assert answer_of(request).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_broken_handler_closes_the_connection_where_keys_are_not_known(handler) -> None:
    request = request_of(API, 4, key_type=GROUP, coordinator_keys=("k",))
    assert handler.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR) is None


@pytest.mark.parametrize("version", [0, 3, 4])
def test_the_log_says_once_for_each_group_that_groups_are_not_served(handler, caplog, version: int) -> None:
    caplog.set_level(logging.INFO)
    for name in ("orders", "orders", "prices"):
        keys = {"coordinator_keys": (name,)} if version >= 4 else {"key": name}
        ask(handler, version, **keys, **({"key_type": GROUP} if version else {}))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("consumer groups are not served yet" in line for line in lines)
    assert "group orders" in lines[0]
    assert "group prices" in lines[1]


def test_the_log_says_that_transactions_are_not_served(handler, caplog) -> None:
    caplog.set_level(logging.INFO)
    ask(handler, 3, key="payments", key_type=TRANSACTION)
    (line,) = (record.getMessage() for record in caplog.records)
    assert "transactional id payments" in line


def test_the_log_names_a_limited_number_of_groups(handler, caplog) -> None:
    caplog.set_level(logging.INFO)
    for number in range(1_100):
        ask(handler, 3, key=f"group-{number}", key_type=GROUP)
    assert len(caplog.records) == 1_000
