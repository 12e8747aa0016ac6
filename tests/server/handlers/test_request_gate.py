"""A gate before the handlers: whom it refuses, and what each is answered."""

from __future__ import annotations

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_fields import entity_fields
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import response_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.server.counters.request_times import RequestCounters
from klog.server.handlers.answers import send_answer
from klog.server.handlers.dispatch import Dispatcher, Route
from tests.server.handlers.parts import TOPIC, Broker, FakeRequest, answer_of, batch


class Gate:
    """Refuses with `refusal`."""

    def __init__(self, refusal: ErrorCode | None = None) -> None:
        self.refusal = refusal
        self.seen: list[FakeRequest] = []

    def admit(self, request: FakeRequest) -> ErrorCode | None:
        self.seen.append(request)
        return self.refusal


def answer_with_defaults(request: FakeRequest) -> None:
    fields = entity_fields(response_class(request.api_key, request.api_version))
    values = {field.name: field.default for field in fields if field.name != "throttle_time"}
    send_answer(request, **values)


def request_of(api_key: int, version: int) -> FakeRequest:
    return FakeRequest(api_key, version, memoryview(b""))


def dispatcher(
    gate: Gate, handle=answer_with_defaults, **routes: Route
) -> tuple[Dispatcher, RequestCounters]:
    counters = RequestCounters()
    every = {key: Route(handle) for key in SERVED}
    every |= {ApiKey[name]: route for name, route in routes.items()}
    return Dispatcher(every, counters, lambda: 0, gate), counters


def produce_request(acks: int = 1) -> FakeRequest:
    request = ProduceRequest(None, acks, 1000, [(TOPIC, [(0, memoryview(batch()))])])
    body = b"".join(encode_produce_request(9, request))
    return FakeRequest(ApiKey.PRODUCE, 9, memoryview(bytearray(body)))


def produce_route(broker: Broker) -> Route:
    handler = broker.produce_handler()
    return Route(handler.handle, may_block=False, failed=handler.failed)


def test_a_handler_never_sees_a_refused_request() -> None:
    handled = []
    handler, counters = dispatcher(Gate(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), handled.append)
    request = request_of(ApiKey.INIT_PRODUCER_ID, 4)
    handler.handle(request)
    assert not handled
    assert answer_of(request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert counters.by_api[ApiKey.INIT_PRODUCER_ID].requests == 1


def test_each_partition_of_a_refused_produce_request_is_told(broker: Broker) -> None:
    log = broker.lead().log
    gate = Gate(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    handler, _ = dispatcher(gate, PRODUCE=produce_route(broker))
    request = produce_request()
    handler.handle(request)
    ((topic, (result,)),) = decode_produce_response(9, request.answer).topics
    assert (topic, result.error_code) == (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert log.log_end_offset == 0


def test_a_refusal_that_has_no_place_closes_the_connection(broker: Broker) -> None:
    handler, _ = dispatcher(Gate(ErrorCode.TOPIC_AUTHORIZATION_FAILED), PRODUCE=produce_route(broker))
    for request in (request_of(ApiKey.LIST_OFFSETS, 5), produce_request(acks=0)):
        handler.handle(request)
        assert request.closed


def test_no_frame_is_served_without_the_gate() -> None:
    def run(*_) -> int:
        raise AssertionError("served")

    handler, _ = dispatcher(Gate(), PRODUCE=Route(send_answer, run=run))
    buffer = bytearray(b"\0\0\0\x10\0\0\0\x09" + bytes(12))
    assert handler.handle_run(None, buffer, 0, len(buffer)) == 0
