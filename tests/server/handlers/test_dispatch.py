"""The dispatcher: every announced API has a handler, and a handler that breaks costs one answer at most."""

from __future__ import annotations

import logging
from itertools import count

import pytest

from klog.formats.errors import StorageError, UsageError
from klog.metadata.errors import StoreFailedError
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError, UnsupportedApiError
from klog.server.counters.request_times import RequestCounters
from klog.server.handlers.cluster.api_versions import ApiVersionsHandler
from klog.server.handlers.dispatch import Dispatcher, Route
from klog.server.network.handler import Handler
from tests.server.handlers.parts import FakeRequest, answer_of


def nothing(request) -> None:
    request.respond([b""])


def dispatcher(**routes: Route) -> tuple[Dispatcher, RequestCounters]:
    counters = RequestCounters()
    ticks = count(0, 1000)
    given = {ApiKey[name]: route for name, route in routes.items()}
    every = {key: Route(nothing) for key in SERVED} | given
    return Dispatcher(every, counters, lambda: next(ticks)), counters


def breaks(error: Exception):
    def handle(request) -> None:
        raise error

    return handle


def serve(handler: Dispatcher, asked: FakeRequest) -> None:
    """As a thread of the server does; raises where that would close the connection."""
    try:
        handler.handle(asked)
    except Exception as fault:
        handler.failed(asked, fault)


def request(api_key: ApiKey, version: int = 0) -> FakeRequest:
    return FakeRequest(api_key, version, memoryview(b""))


def test_it_is_what_the_network_layer_wants() -> None:
    handler: Handler = dispatcher()[0]
    assert handler.may_block(ApiKey.METADATA, 0)


def test_old_versions_of_an_api_may_belong_on_an_io_thread() -> None:
    handler, _ = dispatcher(FETCH=Route(nothing, may_block=False, short_from=4))
    assert [handler.may_block(ApiKey.FETCH, version) for version in range(6)] == [True] * 4 + [False] * 2


def test_an_announced_api_without_a_handler_is_refused_at_once() -> None:
    routes = {key: Route(nothing) for key in SERVED if key != ApiKey.FETCH}
    with pytest.raises(UsageError, match="Fetch"):
        Dispatcher(routes, RequestCounters(), lambda: 0)


def test_each_request_goes_to_the_handler_of_its_api() -> None:
    handler, _ = dispatcher(API_VERSIONS=Route(ApiVersionsHandler(lambda: 0).handle, may_block=False))
    asked = request(ApiKey.API_VERSIONS)
    handler.handle(asked)
    assert asked.answer[:2] == b"\x00\x00"
    assert not handler.may_block(ApiKey.API_VERSIONS, 0)


def test_an_api_that_is_not_served_closes_the_connection() -> None:
    handler, _ = dispatcher()
    with pytest.raises(UnsupportedApiError):
        handler.handle(request(ApiKey.DESCRIBE_QUORUM))
    assert not handler.may_block(ApiKey.DESCRIBE_QUORUM, 0)


def test_requests_and_time_in_the_handler_are_counted_by_api() -> None:
    handler, counters = dispatcher()
    for _ in range(3):
        asked = request(ApiKey.METADATA)
        handler.handle(asked)
        asked.send(70)
    counter = counters.by_api[ApiKey.METADATA]
    assert (counter.requests, counter.failures, counter.local.sum_ns) == (3, 0, 3000)
    assert (counter.sends.sum_ns, counter.totals.sum_ns, sum(counter.totals.counts)) == (210, 3210, 3)
    assert counters.by_api[ApiKey.FETCH].requests == 0


def test_a_request_that_is_answered_later_counts_until_its_answer_is_there() -> None:
    handler, counters = dispatcher(FETCH=Route(lambda request: None, may_block=False))
    asked = request(ApiKey.FETCH)
    handler.handle(asked)
    counter = counters.by_api[ApiKey.FETCH]
    assert (counter.requests, counter.local.sum_ns, sum(counter.totals.counts)) == (1, 1000, 0)
    asked.answered_ns = 1400
    asked.on_answered()
    assert (counter.remotes.sum_ns, counter.response_queues.sum_ns) == (400, 600)
    asked.send(70)
    assert (counter.requests, counter.totals.sum_ns, sum(counter.totals.counts)) == (1, 2070, 1)


def test_a_request_that_waited_for_an_io_thread_counts_since_then() -> None:
    handler, counters = dispatcher()
    asked = request(ApiKey.METADATA)
    asked.queued_ns = -5000
    handler.handle(asked)
    asked.on_answered()
    asked.send(70)
    counter = counters.by_api[ApiKey.METADATA]
    assert (counter.queues.sum_ns, counter.local.sum_ns, counter.totals.sum_ns) == (5000, 1000, 7070)


def test_bytes_that_are_no_request_close_the_connection() -> None:
    handler, _ = dispatcher(INIT_PRODUCER_ID=Route(breaks(MalformedMessageError("cut"))))
    asked = request(ApiKey.INIT_PRODUCER_ID)
    with pytest.raises(MalformedMessageError):
        serve(handler, asked)
    assert not asked.answered


@pytest.mark.parametrize("fault", [KeyError("bug"), StorageError("gone"), OSError(5, "I/O"), Exception("?")])
def test_a_broken_handler_is_answered_for_where_the_api_has_a_place_for_it(fault, caplog) -> None:
    handler, counters = dispatcher(INIT_PRODUCER_ID=Route(breaks(fault)))
    asked = request(ApiKey.INIT_PRODUCER_ID, 4)
    with caplog.at_level(logging.ERROR):
        serve(handler, asked)
    assert answer_of(asked).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert counters.by_api[ApiKey.INIT_PRODUCER_ID].failures == 1
    assert len(caplog.records) == 1


def test_a_full_metadata_store_is_an_error_after_which_clients_try_again() -> None:
    handler, _ = dispatcher(INIT_PRODUCER_ID=Route(breaks(StoreFailedError("disk is full"))))
    asked = request(ApiKey.INIT_PRODUCER_ID, 4)
    serve(handler, asked)
    assert answer_of(asked).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_broken_handler_of_an_api_without_such_a_place_closes_the_connection() -> None:
    handler, counters = dispatcher(LIST_OFFSETS=Route(breaks(KeyError("bug"))))
    asked = request(ApiKey.LIST_OFFSETS, 5)
    with pytest.raises(KeyError):
        serve(handler, asked)
    assert not asked.answered
    assert counters.by_api[ApiKey.LIST_OFFSETS].failures == 1


def test_a_handler_that_breaks_after_its_answer_closes_the_connection() -> None:
    def handle(request) -> None:
        request.respond([b""])
        raise KeyError("bug")

    handler, _ = dispatcher(INIT_PRODUCER_ID=Route(handle))
    with pytest.raises(KeyError):
        serve(handler, request(ApiKey.INIT_PRODUCER_ID, 4))


def test_a_handler_may_make_its_own_answer_of_a_failure() -> None:
    route = Route(breaks(KeyError("bug")), failed=lambda request, error: [bytes([error & 0xFF])])
    handler, _ = dispatcher(PRODUCE=route)
    asked = request(ApiKey.PRODUCE, 9)
    serve(handler, asked)
    assert bytes(asked.answer) == b"\xff"
