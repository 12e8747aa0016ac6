"""How many requests there were and how long they took, by API: counted as they pass, read by the metrics.

Nothing here takes a lock. The interpreter hands over between threads at calls and at backward jumps only, and
each addition below is done without one.
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
    """How long something took, each time: the sum, and how often it was within which bound."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.sum_ns = 0
        self.counts = [0] * (len(BOUNDS_NS) + 1)

    def record(self, elapsed_ns: int) -> None:
        """It has taken that long, once more."""
        self.sum_ns += elapsed_ns
        self.counts[bisect_left(BOUNDS_NS, elapsed_ns)] += 1

    def record_several(self, elapsed_ns: int, times: int) -> None:
        """It has taken that long altogether, so many times."""
        self.sum_ns += elapsed_ns
        self.counts[bisect_left(BOUNDS_NS, elapsed_ns // times)] += times


class ApiCounter:
    """What has been done for one API.

    `direct` is of requests that their handlers have answered on the spot: each took as long as its handler.
    Of the others `handlers` says how long their handlers took, `queues` how long they had waited for an I/O
    thread before, and `totals` how long it all took, waiting in a purgatory included.
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
    """One counter an API, without the fetches of followers, which have one of their own. Safe for threads."""

    def __init__(self) -> None:
        self.by_api: Final[Mapping[int, ApiCounter]] = {key: ApiCounter() for key in SERVED}
        self.follower_fetches: Final = ApiCounter()

    def of(self, request: Request) -> ApiCounter:
        """Where a request counts that its handler has seen."""
        return self.follower_fetches if request.from_follower else self.by_api[request.api_key]

    def by_name(self) -> dict[str, tuple[ApiCounter, ...]]:
        """The counters under Kafka's names of requests: fetches count as such, and by who fetches."""
        found = {ApiKey(key).title: (counter,) for key, counter in self.by_api.items()}
        consumers, followers = self.by_api[ApiKey.FETCH], self.follower_fetches
        fetches = {"Fetch": (consumers, followers), "FetchConsumer": (consumers,)}
        return found | fetches | {"FetchFollower": (followers,)}
