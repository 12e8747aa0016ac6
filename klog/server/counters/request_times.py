"""Counts requests by API and measures how long they took, for the metrics.

Nothing here takes a lock. The interpreter switches threads at calls and at backward jumps only, and no
addition below contains one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klog.protocol.apis import SERVED, ApiKey

if TYPE_CHECKING:
    from klog.server.network.request import Request

_PER_DECADE: Final = 10
_DECADES_NS: Final = range(4, 11)  # 10 us to 100 s

# Upper bounds of the buckets, each 26 % above the one before; the last bucket has none.
BOUNDS_NS: Final = tuple(
    round(10 ** (decade + step / _PER_DECADE)) for decade in _DECADES_NS for step in range(_PER_DECADE)
)


class Timing:
    """A histogram of durations: their sum, and how many were within each bound."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.sum_ns = 0
        self.counts = [0] * (len(BOUNDS_NS) + 1)

    def record(self, elapsed_ns: int) -> None:
        """Count one request that took that long."""
        self.sum_ns += elapsed_ns
        self.counts[bisect_left(BOUNDS_NS, elapsed_ns)] += 1

    def record_several(self, elapsed_ns: int, times: int) -> None:
        """Count `times` requests that took that long together."""
        self.sum_ns += elapsed_ns
        self.counts[bisect_left(BOUNDS_NS, elapsed_ns // times)] += times


class ApiCounter:
    """The durations of one API's requests.

    `direct` has the requests that were answered before their handler returned; each took as long as its
    handler. For the others `handlers` has the time in the handler, `queues` the wait for an I/O thread before
    it, and `totals` the whole time with the wait in a purgatory.
    """

    __slots__ = ("direct", "failures", "handlers", "queues", "totals")

    def __init__(self) -> None:
        self.failures = 0
        self.direct = Timing()
        self.handlers = Timing()
        self.queues = Timing()
        self.totals = Timing()

    @property
    def requests(self) -> int:
        """Requests that have been through their handlers."""
        return sum(self.direct.counts) + sum(self.handlers.counts)


class RequestCounters:
    """One counter for each API, and one of its own for fetches of followers. Safe for threads."""

    def __init__(self) -> None:
        self.by_api: Final[Mapping[int, ApiCounter]] = {key: ApiCounter() for key in SERVED}
        self.follower_fetches: Final = ApiCounter()

    def of(self, request: Request) -> ApiCounter:
        """The counter for a request that its handler has seen."""
        return self.follower_fetches if request.from_follower else self.by_api[request.api_key]

    def by_name(self) -> dict[str, tuple[ApiCounter, ...]]:
        """The counters by Kafka's names of requests. Fetches count as such, and by consumer or follower."""
        found = {ApiKey(key).title: (counter,) for key, counter in self.by_api.items()}
        consumers, followers = self.by_api[ApiKey.FETCH], self.follower_fetches
        fetches = {"Fetch": (consumers, followers), "FetchConsumer": (consumers,)}
        return found | fetches | {"FetchFollower": (followers,)}
