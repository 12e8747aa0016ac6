"""FindCoordinator, while nobody coordinates."""

from __future__ import annotations

import pytest

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.find_coordinator import FindCoordinatorHandler
from tests.server.handlers.parts import answer_of, request_of

API = ApiKey.FIND_COORDINATOR


def ask(version: int, **values):
    request = request_of(API, version, **values)
    FindCoordinatorHandler().handle(request)
    return answer_of(request)


def test_version_0_is_announced_because_librdkafka_compresses_with_lz4_only_then() -> None:
    assert SERVED[API].min_version == 0


@pytest.mark.parametrize("version", range(4))
def test_no_broker_coordinates_a_group(version: int) -> None:
    answer = ask(version, key="group", **({"key_type": 0} if version else {}))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


@pytest.mark.parametrize("version", range(4, 7))
def test_every_key_has_an_answer(version: int) -> None:
    answer = ask(version, key_type=1, coordinator_keys=("a", "b"))
    assert [each.key for each in answer.coordinators] == ["a", "b"]
    assert {each.error_code for each in answer.coordinators} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_an_unknown_kind_of_key_is_no_request() -> None:
    assert ask(1, key="k", key_type=9).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 3])
def test_a_broken_handler_is_answered_for_where_there_is_one_key(version: int) -> None:
    values = {"key": "k"} | ({"key_type": 0} if version else {})
    request = request_of(API, version, **values)
    request.respond(FindCoordinatorHandler().failed(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    assert answer_of(request).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_broken_handler_closes_the_connection_where_keys_are_not_known() -> None:
    request = request_of(API, 4, key_type=0, coordinator_keys=("k",))
    assert FindCoordinatorHandler().failed(request, ErrorCode.UNKNOWN_SERVER_ERROR) is None
