"""What the metrics say of clients that have a limit."""

from __future__ import annotations

from klog.security.quotas.client_quotas import IDLE_MS, ClientLimits, ClientQuotas
from klog.security.quotas.entities import DEFAULT, Quota, QuotaEntity
from klog.server.metrics.exposition import render
from klog.server.metrics.quotas import quota_metrics

NOW_MS = 1_700_000_000_000


def lines(quotas: ClientQuotas, now_ms: int = NOW_MS) -> list[str]:
    text = "".join(render(quota_metrics(quotas, now_ms)))
    return [line for line in text.splitlines() if not line.startswith("#")]


def limits(quotas: ClientQuotas, user: str, client_id: str) -> ClientLimits:
    found = quotas.of(user, client_id, NOW_MS)
    assert found is not None
    return found


def test_each_quota_that_is_used_is_shown_with_those_who_share_it() -> None:
    quotas = ClientQuotas()
    quotas.set_limits(QuotaEntity("alice"), {Quota.PRODUCE: 1000, Quota.REQUEST: 50, Quota.MUTATION: 2})
    quotas.set_limits(QuotaEntity(client_id=DEFAULT), {Quota.FETCH: 10**6})
    used = limits(quotas, "alice", 'a "b"')
    assert used.produce is not None
    assert used.fetch is not None
    assert used.request is not None
    assert used.mutation is not None
    time_ms = used.produce.charge(15_000, NOW_MS)
    used.produce.throttled(time_ms, NOW_MS)
    used.fetch.charge(500, NOW_MS)
    used.request.charge(25, NOW_MS)
    used.mutation.charge(12, NOW_MS, strict=True)
    assert lines(quotas) == [
        'kafka_server_quota_byte_rate{resource="Produce",user="alice"} 1500',
        'kafka_server_quota_byte_rate{resource="Fetch",clientId="a \\"b\\""} 50',
        'kafka_server_quota_request_time{resource="Request",user="alice"} 2.5',
        'kafka_server_quota_tokens{resource="ControllerMutation",user="alice"} 10',
        'kafka_server_quota_mutation_rate{resource="ControllerMutation",user="alice"} 0.4',
        'kafka_server_quota_throttle_time{resource="Produce",user="alice"} 5000',
        'kafka_server_quota_exempt_request_time{resource="Request"} 0',
    ]


def test_the_time_of_other_brokers_is_shown_while_there_are_quotas() -> None:
    quotas = ClientQuotas()
    quotas.exempt.record(60, NOW_MS)
    assert lines(quotas) == []
    quotas.set_limits(QuotaEntity("alice"), {Quota.REQUEST: 1000})
    # Percent are spread over the windows of Kafka's metrics: 30 s, as long as no second one has begun.
    assert lines(quotas) == ['kafka_server_quota_exempt_request_time{resource="Request"} 2']


def test_clients_without_a_limit_and_idle_ones_are_not_shown() -> None:
    quotas = ClientQuotas()
    assert lines(quotas) == []
    quotas.set_limits(QuotaEntity("alice"), {Quota.PRODUCE: 1000})
    assert quotas.of("bob", "c", NOW_MS) is None
    limits(quotas, "alice", "c")
    assert len(lines(quotas)) == 2
    quotas.forget_idle(NOW_MS + IDLE_MS)
    assert [line for line in lines(quotas, NOW_MS + IDLE_MS) if "alice" in line] == []
