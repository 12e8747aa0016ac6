"""Metrics of client quotas, as the JMX exporter's rules name Kafka's `kafka.server:type=Produce,user=...`.

Only clients that have a limit are measured. What was idle for an hour is gone, as in Kafka.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.entities import Quota
from klog.security.quotas.usage import Used
from klog.server.metrics.exposition import Labels, Metric, Sample

_PREFIX: Final = "kafka_server_quota_"
_RESOURCES: Final = {
    Quota.PRODUCE: "Produce",
    Quota.FETCH: "Fetch",
    Quota.REQUEST: "Request",
    Quota.MUTATION: "ControllerMutation",
}

_Used = TypeVar("_Used", bound=Used)


def quota_metrics(quotas: ClientQuotas, now_ms: int) -> Iterator[Metric]:
    """What clients with a limit use of it, and for how long they are throttled."""
    rates, mutations = tuple(quotas.rates()), tuple(quotas.mutations())
    sizes = [each for each in rates if each.quota is not Quota.REQUEST]
    times = [each for each in rates if each.quota is Quota.REQUEST]
    yield _gauge("byte_rate", "bytes a second", sizes, lambda each: each.rate(now_ms))
    yield _gauge("request_time", "percent of a thread's time", times, lambda each: each.rate(now_ms))
    yield _gauge("tokens", "partitions that may be created or deleted", mutations, lambda e: e.tokens(now_ms))
    yield _gauge(
        "mutation_rate", "partitions created or deleted a second", mutations, lambda e: e.rate(now_ms)
    )
    yield _gauge(
        "throttle_time",
        "mean throttle time of the last minute in ms",
        (*rates, *mutations),
        lambda each: each.average_throttle_ms(now_ms),
    )
    exempt = [Sample({"resource": "Request"}, quotas.exempt.rate(now_ms))] if quotas.is_enabled else []
    help_text = "percent of a thread's time for requests of other brokers"
    yield Metric(f"{_PREFIX}exempt_request_time", "gauge", help_text, exempt)


def _gauge(name: str, help_text: str, used: Iterable[_Used], value_of: Callable[[_Used], float]) -> Metric:
    values = ((each, value_of(each)) for each in used)
    samples = (Sample(_labels(each), value) for each, value in values if math.isfinite(value))
    return Metric(f"{_PREFIX}{name}", "gauge", help_text, samples)


def _labels(used: Used) -> Labels:
    user, client_id = used.key
    labels = {"resource": _RESOURCES[used.quota], "user": user, "clientId": client_id}
    return {name: value for name, value in labels.items() if value}
