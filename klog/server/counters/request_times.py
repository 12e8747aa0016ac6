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
    from klog.server.network.request import Client, Request

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
    """The durations of one API's requests, as in Kafka's RequestMetrics.

    `local` has the time in the handler, and `sends` the time that the socket needed to take the answer.
    `totals` has the time from a request that is ready to be handled to the end of that. The others have only
    requests that had to wait: `queues` for an I/O thread, `remotes` for what the answer depends on (in a
    purgatory), `response_queues` for the network thread after another thread had answered.
    """

    __slots__ = ("failures", "local", "queues", "remotes", "response_queues", "sends", "totals")

    def __init__(self) -> None:
        self.failures = 0
        self.local = Timing()
        self.queues = Timing()
        self.remotes = Timing()
        self.response_queues = Timing()
        self.sends = Timing()
        self.totals = Timing()

    def handled(self, connection: Client, requests: int, start_ns: int, now_ns: int) -> None:
        """Count requests that were answered where they were read. Their answers are about to be sent."""
        elapsed_ns = now_ns - start_ns
        self.local.record_several(elapsed_ns, requests)
        connection.unsent.append((self, requests, elapsed_ns, now_ns))

    def answered_later(
        self, request: Request, requests: int, since_ns: int, handled_ns: int, now_ns: int
    ) -> None:
        """Count what requests have waited since their handler returned, when their answer is queued."""
        answered_ns = request.answered_ns or now_ns
        self.remotes.record_several((answered_ns - handled_ns) * requests, requests)
        self.response_queues.record_several((now_ns - answered_ns) * requests, requests)
        request.connection.unsent.append((self, requests, (now_ns - since_ns) * requests, now_ns))

    def sent(self, requests: int, spent_ns: int, send_ns: int) -> None:
        """Count answers that the socket has taken. All of them together have spent so long until they were
        queued, and then took so long to send.
        """
        self.sends.record_several(send_ns, requests)
        self.totals.record_several(spent_ns + send_ns, requests)

    @property
    def requests(self) -> int:
        """Requests that have been through their handlers."""
        return sum(self.local.counts)


class ConversionCounter:
    """What conversions of records to older message formats took: time, and bytes in memory for them.

    Each partition of a request counts as one.
    """

    def __init__(self) -> None:
        self.conversions = 0
        self.elapsed_ns = 0
        self.memory_bytes = 0

    def record(self, elapsed_ns: int, memory_bytes: int) -> None:
        """Count one."""
        self.conversions += 1
        self.elapsed_ns += elapsed_ns
        self.memory_bytes += memory_bytes


class RequestCounters:
    """One counter for each API, and one of its own for fetches of followers. Safe for threads."""

    def __init__(self) -> None:
        self.conversions: Final = ConversionCounter()
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
