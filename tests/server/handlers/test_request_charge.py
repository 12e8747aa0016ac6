"""Requests are charged to their clients' quotas, and answered with the time for which those are throttled."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_fields import entity_fields
from klog.protocol.fetch_response import decode_fetch_response
from klog.protocol.messages import response_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.security.principal import KafkaPrincipal
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.entities import DEFAULT, Quota, QuotaEntity
from klog.server.counters.request_times import RequestCounters
from klog.server.handlers.answers import send_answer
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.server.handlers.dispatch import Dispatcher, Route
from klog.server.handlers.guards.cluster import GUARDS
from klog.server.handlers.guards.verdicts import guarded
from klog.server.handlers.request_charge import Charging
from klog.server.network.request import Request
from tests.server.handlers import parts
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, FakeRequest, answer_of, batch
from tests.server.handlers.test_fetch import MAX_BYTES, fetch_request, wants

NOW_MS = 1_700_000_000_000
OF_BROKERS = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    )
)
OF_CLIENTS = [key for key in SERVED if key not in OF_BROKERS and key not in (ApiKey.PRODUCE, ApiKey.FETCH)]


def answer_with_defaults(request: FakeRequest) -> None:
    fields = entity_fields(response_class(request.api_key, request.api_version))
    values = {field.name: field.default for field in fields if field.name != "throttle_time"}
    send_answer(request, **values)


def request_of(api_key: int, version: int) -> FakeRequest:
    return FakeRequest(api_key, version, memoryview(b""))


def produce_request(acks: int = 1) -> FakeRequest:
    request = ProduceRequest(None, acks, 1000, [(TOPIC, [(0, memoryview(batch()))])])
    body = b"".join(encode_produce_request(9, request))
    return FakeRequest(ApiKey.PRODUCE, 9, memoryview(bytearray(body)))


def produce_route(broker: Broker) -> Route:
    handler = broker.produce_handler()
    return Route(handler.handle, may_block=False, failed=handler.failed)


class Charged:
    """A dispatcher that charges requests. Each handler takes `handler_ms`, by its clock."""

    def __init__(self, handle=answer_with_defaults, **routes: Route) -> None:
        self.now_ms = NOW_MS
        self.now_ns = 0
        self.handler_ms = 1
        self.quotas = ClientQuotas()
        self._handle = handle
        every = {key: Route(self._spend) for key in SERVED}
        every |= {ApiKey[name]: route for name, route in routes.items()}
        self.charging = Charging(self.quotas, lambda: self.now_ns, lambda: self.now_ms)
        self.dispatcher = Dispatcher(every, RequestCounters(), lambda: self.now_ns, self.charging)

    def _spend(self, request: FakeRequest) -> None:
        self.now_ns += self.handler_ms * 1_000_000
        self._handle(request)

    def limit(self, quota: Quota, limit: float, entity: QuotaEntity | None = None) -> None:
        self.quotas.set_limits(entity or QuotaEntity(client_id="test"), {quota: limit})

    def handle(self, request: FakeRequest) -> FakeRequest:
        self.dispatcher.handle(request)
        return request


# -- the time of handlers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", OF_CLIENTS)
def test_a_throttled_request_is_answered_with_the_time(api_key: int) -> None:
    charged = Charged()
    charged.limit(Quota.REQUEST, 0)
    request = charged.handle(request_of(api_key, SERVED[api_key].max_version))
    assert request.throttle_ms == 1000
    answer = answer_of(request)
    if hasattr(answer, "throttle_time"):
        assert answer.throttle_time == timedelta(milliseconds=request.throttle_ms)


def test_the_time_of_a_handler_counts_in_percent_of_a_second() -> None:
    charged = Charged()
    charged.limit(Quota.REQUEST, 10)
    charged.handler_ms = 1000
    assert charged.handle(request_of(ApiKey.METADATA, 9)).throttle_ms == 0
    # 100 percent of ten seconds' 10 percent are used, and now a little more.
    charged.handler_ms = 5
    assert charged.handle(request_of(ApiKey.METADATA, 9)).throttle_ms == 50


def test_an_answer_that_comes_later_is_throttled_for_the_time_of_its_handler_only() -> None:
    charged = Charged(lambda request: None)
    charged.limit(Quota.REQUEST, 10)
    charged.handler_ms = 1005
    request = charged.handle(request_of(ApiKey.METADATA, 9))
    assert not request.throttle_ms
    charged.now_ns += 10**10
    answer_with_defaults(request)
    assert answer_of(request).throttle_time == timedelta(milliseconds=50)


@pytest.mark.parametrize("api_key", sorted(OF_BROKERS))
def test_what_brokers_ask_each_other_is_charged_to_nobody(api_key: int) -> None:
    charged = Charged()
    charged.limit(Quota.REQUEST, 0)
    request = charged.handle(request_of(api_key, SERVED[api_key].max_version))
    assert request.throttle_ms == 0


@pytest.mark.parametrize(("api_key", "expected"), [(ApiKey.ALTER_PARTITION, 1), (ApiKey.METADATA, 0)])
def test_the_time_of_what_brokers_ask_is_measured_while_there_are_quotas(api_key: int, expected: int) -> None:
    charged = Charged()
    charged.handler_ms = 300
    charged.handle(request_of(api_key, SERVED[api_key].max_version))
    assert charged.quotas.exempt.rate(NOW_MS) == 0
    charged.limit(Quota.REQUEST, 50, QuotaEntity("alice"))
    charged.handle(request_of(api_key, SERVED[api_key].max_version))
    # 30 % of a second, over 30 s.
    assert charged.quotas.exempt.rate(NOW_MS) == pytest.approx(expected)


def test_the_time_of_a_follower_s_fetch_is_measured_too() -> None:
    def handle(request: FakeRequest) -> None:
        request.from_follower = True
        request.respond([b""])

    charged = Charged(handle)
    charged.handler_ms = 600
    charged.limit(Quota.REQUEST, 50, QuotaEntity("alice"))
    charged.handle(request_of(ApiKey.FETCH, 12))
    assert charged.quotas.exempt.rate(NOW_MS) == pytest.approx(2)


def test_what_is_not_throttled_is_sent_as_it_is() -> None:
    body = [b"as it is"]
    charged = Charged(lambda request: request.respond(body))
    charged.limit(Quota.REQUEST, 100)
    assert charged.handle(request_of(ApiKey.METADATA, 9)).parts is body


def test_a_client_without_quotas_is_not_charged_while_others_are() -> None:
    charged = Charged()
    charged.limit(Quota.REQUEST, 0, QuotaEntity("alice"))
    request = charged.handle(request_of(ApiKey.METADATA, 9))
    assert (request.charge, request.throttle_ms) == (None, 0)
    alices = request_of(ApiKey.METADATA, 9)
    alices.principal = KafkaPrincipal("User", "alice")
    assert charged.handle(alices).throttle_ms == 1000


def test_a_guard_that_refuses_what_brokers_ask_has_it_charged() -> None:
    class Nobody:
        def allows_on_cluster(self, request: FakeRequest, operation: int) -> bool:
            return False

    route = guarded(Route(answer_with_defaults), GUARDS[ApiKey.CONTROLLED_SHUTDOWN], Nobody())
    charged = Charged(CONTROLLED_SHUTDOWN=route)
    charged.limit(Quota.REQUEST, 0)
    charged.charging._clock_ns = lambda: 10**6
    request = parts.request_of(ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=1, broker_epoch=1)
    assert charged.handle(request).throttle_ms == 1000


# -- produced bytes ------------------------------------------------------------------------------------------


def produced(charged: Charged, *, size_bytes: int, acks: int = 1) -> FakeRequest:
    request = produce_request(acks)
    request.size_bytes = size_bytes
    return charged.handle(request)


def test_a_producer_is_charged_the_size_of_its_request(broker: Broker) -> None:
    broker.lead()
    charged = Charged(PRODUCE=produce_route(broker))
    charged.limit(Quota.PRODUCE, 1024)
    request = produced(charged, size_bytes=30112)
    assert decode_produce_response(9, request.answer).throttle_time_ms == 19406
    assert request.throttle_ms == 19406


def test_a_request_without_an_answer_mutes_all_the_same_but_its_time_is_free(broker: Broker) -> None:
    broker.lead()
    charged = Charged(PRODUCE=produce_route(broker))
    charged.limit(Quota.PRODUCE, 1000)
    request = produced(charged, size_bytes=20_000, acks=0)
    assert (request.parts, request.throttle_ms) == (None, 10_000)
    charged.limit(Quota.REQUEST, 0)
    assert produced(charged, size_bytes=20_000, acks=0).throttle_ms == 0


def test_of_two_violated_quotas_the_longer_time_holds(broker: Broker) -> None:
    broker.lead()
    charged = Charged(PRODUCE=produce_route(broker))
    charged.quotas.set_limits(QuotaEntity(client_id="test"), {Quota.PRODUCE: 1000, Quota.REQUEST: 0})
    charged.charging._clock_ns = lambda: 10**6
    assert produced(charged, size_bytes=10_100).throttle_ms == 1000
    assert produced(charged, size_bytes=10_000).throttle_ms == 10_100


def test_the_cause_of_a_throttle_time_is_measured(broker: Broker) -> None:
    broker.lead()
    charged = Charged(PRODUCE=produce_route(broker))
    charged.limit(Quota.PRODUCE, 1000)
    produced(charged, size_bytes=20_000)
    (used,) = charged.quotas.rates()
    assert (used.rate(NOW_MS), used.average_throttle_ms(NOW_MS)) == (2000, 10_000)


# -- fetched bytes -------------------------------------------------------------------------------------------


class Fetching:
    """A consumer that has a quota, and a partition with three batches."""

    def __init__(self, broker: Broker, limit: float, **role) -> None:
        self.sessions = FetchSessions(10, broker.clock, iter(range(1, 1000)).__next__)
        self.stats = broker.topic_stats
        handler = FetchHandler(
            broker.lookup, self.sessions, broker.fetch_purgatory, broker.clock, MAX_BYTES, broker.topic_stats
        )
        broker.lead(**role)
        for _ in range(3):
            broker.append(value=b"v" * 500)
        self.charged = Charged(FETCH=Route(handler.handle, failed=handler.failed))
        self.charged.limit(Quota.FETCH, limit)

    def fetch(self, *wanted, version: int = 12, **fields):
        request = fetch_request(*(wanted or (wants(),)), version=version, max_wait_ms=0, **fields)
        self.charged.handle(request)
        return request, decode_fetch_response(version, request.answer)


def records_of(response) -> int:
    return sum(len(each.records or b"") for topic in response.topics for each in topic.partitions)


def test_a_consumer_is_charged_the_size_of_its_response(broker: Broker) -> None:
    consumer = Fetching(broker, 10_000)
    request, response = consumer.fetch()
    assert records_of(response) > 0
    (used,) = consumer.charged.quotas.rates()
    # Kafka counts the correlation id, too.
    assert used.rate(NOW_MS) * 10 == 4 + len(request.answer)


def test_too_large_a_response_is_replaced_by_an_empty_one_and_not_charged(broker: Broker) -> None:
    consumer = Fetching(broker, 1)
    request, response = consumer.fetch()
    assert (response.topics, response.error_code, response.session_id) == ([], 0, 0)
    assert response.throttle_time_ms == request.throttle_ms > 0
    (used,) = consumer.charged.quotas.rates()
    assert used.rate(NOW_MS) == 0
    assert sum(each.bytes_out for each in consumer.stats.topics.values()) == 0


def test_a_throttled_fetch_leaves_its_session_as_it_was(broker: Broker) -> None:
    consumer = Fetching(broker, 10_000)
    _, first = consumer.fetch(session_epoch=0)
    broker.append()
    consumer.charged.limit(Quota.FETCH, 1)
    _, throttled = consumer.fetch(wants(offset=3), session_id=first.session_id, session_epoch=1)
    assert (throttled.topics, throttled.session_id) == ([], first.session_id)
    assert throttled.throttle_time_ms > 0
    consumer.charged.limit(Quota.FETCH, 10_000)
    _, later = consumer.fetch(session_id=first.session_id, session_epoch=2)
    assert records_of(later) > 0


def test_no_more_is_read_than_fits_into_the_windows(broker: Broker) -> None:
    consumer = Fetching(broker, 10_000)
    assert records_of(consumer.fetch()[1]) > 1500
    consumer.charged.limit(Quota.FETCH, 100)
    consumer.charged.now_ms += 60_000
    # Ten seconds' bytes are read, but the response is larger by its head.
    assert records_of(consumer.fetch()[1]) == 0
    consumer.charged.now_ms += 900
    assert records_of(consumer.fetch()[1]) == 1000


def test_a_consumer_that_is_throttled_for_its_time_gets_an_empty_response(broker: Broker) -> None:
    consumer = Fetching(broker, 10_000)
    consumer.charged.limit(Quota.REQUEST, 0)
    consumer.charged.charging._clock_ns = lambda: 10**6
    _, response = consumer.fetch()
    assert (response.topics, response.throttle_time_ms) == ([], 1000)


def test_followers_are_not_throttled(broker: Broker) -> None:
    consumer = Fetching(broker, 1, replicas=(BROKER, OTHER_BROKER))
    request, response = consumer.fetch(replica_id=OTHER_BROKER)
    assert (request.throttle_ms, response.throttle_time_ms) == (0, 0)
    assert records_of(response) > 0


# -- frames that are answered where they were read -----------------------------------------------------------


def frame(api_key: int, client_id: bytes | None) -> bytearray:
    size = -1 if client_id is None else len(client_id)
    head = api_key.to_bytes(2) + bytes(2) + bytes(4) + size.to_bytes(2, signed=True) + (client_id or b"")
    return bytearray((len(head) + 2).to_bytes(4) + head + bytes(2))


def ways(charged: Charged, api_key: int, client_id: bytes | None, user: str = "ANONYMOUS") -> str:
    """Whether a frame is answered where it was read, or as a request."""
    buffer = frame(api_key, client_id)
    client = SimpleNamespace(
        principal=KafkaPrincipal("User", user), outbound=SimpleNamespace(size_bytes=0), in_flight=None
    )
    return "run" if charged.dispatcher.handle_run(client, buffer, 0, len(buffer)) else "request"


def runs() -> Charged:
    def run(_connection, _buffer, _start, end: int) -> int:
        return end

    route = Route(Request.close_connection, run=run)
    return Charged(PRODUCE=route, FETCH=route, OFFSET_COMMIT=route)


def test_without_quotas_all_frames_are_answered_where_they_were_read() -> None:
    assert ways(runs(), ApiKey.PRODUCE, b"test") == "run"


def test_only_clients_with_a_quota_take_the_general_path() -> None:
    charged = runs()
    charged.limit(Quota.PRODUCE, 1)
    assert ways(charged, ApiKey.PRODUCE, b"test") == "request"
    assert ways(charged, ApiKey.PRODUCE, b"other") == "run"
    assert ways(charged, ApiKey.PRODUCE, None) == "run"
    # The quota is for produced bytes only.
    assert ways(charged, ApiKey.FETCH, b"test") == "run"
    assert ways(charged, ApiKey.OFFSET_COMMIT, b"test") == "run"


def test_a_quota_of_request_time_is_for_all_frames() -> None:
    charged = runs()
    charged.limit(Quota.REQUEST, 1, QuotaEntity(DEFAULT))
    for api_key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT):
        assert ways(charged, api_key, b"any", "alice") == "request"


@pytest.mark.parametrize("kept", range(4, 20))
def test_a_frame_that_has_not_come_whole_stays_where_it_is(kept: int) -> None:
    charged = Charged()
    charged.limit(Quota.PRODUCE, 1)
    buffer = frame(ApiKey.PRODUCE, b"test")[:kept]
    client = SimpleNamespace(principal=KafkaPrincipal("User", "u"))
    assert charged.dispatcher.handle_run(client, buffer, 0, len(buffer)) == 0
