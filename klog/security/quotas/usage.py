"""What those who share a limit have used of it: bytes, time, partitions.

Rules: Kafka's `ClientQuotaManager` and its kinds, and KIP-599. Time is passed in, in ms of any clock that is
not set back.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from klog.security.quotas.entities import Quota
from klog.security.quotas.precedence import QuotaKey
from klog.security.quotas.rates import TokenBucket, WindowedSamples, bucket_throttle_ms, rate_throttle_ms

# As Kafka's metrics are measured: metrics.num.samples, metrics.sample.window.ms.
_METRIC_WINDOWS: Final = 2
_METRIC_WINDOW_MS: Final = 30_000


class QuotaWindows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`, or those of `controller.quota`."""

    number: int = 11
    size_ms: int = 1000


class Used:
    """What those who share a key have used of a quota, and for how long they were throttled."""

    def __init__(
        self, quota: Quota, key: QuotaKey, limit: float, now_ms: int, samples: WindowedSamples
    ) -> None:
        self.quota = quota
        self.key = key
        self.limit = limit
        self.used_ms = now_ms
        self._samples = samples
        self._lock = threading.Lock()
        self._throttle_times = WindowedSamples(_METRIC_WINDOWS, _METRIC_WINDOW_MS)

    def throttled(self, time_ms: int, now_ms: int) -> None:
        """A connection is muted for so long because of this quota."""
        with self._lock:
            self._throttle_times.record(time_ms, now_ms)

    def rate(self, now_ms: int) -> float:
        """Values per second."""
        with self._lock:
            return self._samples.rate(now_ms)

    def average_throttle_ms(self, now_ms: int) -> float:
        """The mean of the throttle times of late; not a number if there were none."""
        with self._lock:
            return self._throttle_times.average(now_ms)


class ExemptTime:
    """The time of requests that are charged to nobody, in percent of a thread's time. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples = WindowedSamples(_METRIC_WINDOWS, _METRIC_WINDOW_MS)

    def record(self, percent: float, now_ms: int) -> None:
        """Adds the time of a request."""
        with self._lock:
            self._samples.record(percent, now_ms)

    def rate(self, now_ms: int) -> float:
        """Percent of a thread's time of late."""
        with self._lock:
            return self._samples.rate(now_ms)


class RateQuota(Used):
    """A limit for bytes a second, or for the percentage of a thread's time. Safe for threads.

    `most_ms` is the longest throttle time, if there is one.
    """

    def __init__(
        self,
        quota: Quota,
        key: QuotaKey,
        limit: float,
        windows: QuotaWindows,
        now_ms: int,
        most_ms: int | None = None,
    ) -> None:
        super().__init__(quota, key, limit, now_ms, WindowedSamples(*windows))
        self._most_ms = most_ms

    @property
    def most_in_windows(self) -> float:
        """More than this is throttled even if nothing else was recorded."""
        return self.limit * (self._samples.windows - 1) * self._samples.window_ms / 1000

    def charge(self, value: float, now_ms: int) -> int:
        """Records a value; for how long the client is throttled because of it, in ms."""
        with self._lock:
            self.used_ms = now_ms
            self._samples.record(value, now_ms)
            return rate_throttle_ms(self._samples, self.limit, now_ms, self._most_ms)

    def take_back(self, value: float, now_ms: int) -> None:
        """Takes back what was charged."""
        with self._lock:
            self._samples.record(-value, now_ms)


class MutationCharge(NamedTuple):
    """Whether partitions may be created or deleted, and for how long the client is throttled, in ms."""

    is_accepted: bool
    throttle_ms: int


class MutationQuota(Used):
    """A limit for partitions created and deleted a second. Safe for threads."""

    def __init__(self, quota: Quota, key: QuotaKey, limit: float, windows: QuotaWindows, now_ms: int) -> None:
        super().__init__(quota, key, limit, now_ms, WindowedSamples(_METRIC_WINDOWS, _METRIC_WINDOW_MS))
        self._bucket = TokenBucket(*windows)

    def charge(self, partitions: int, now_ms: int, *, strict: bool) -> MutationCharge:
        """Takes a token for each partition. If it is strict, nothing is taken from an overdrawn bucket."""
        with self._lock:
            self.used_ms = now_ms
            tokens = self._bucket.tokens(self.limit, now_ms)
            if strict and tokens < 0:
                return MutationCharge(False, bucket_throttle_ms(tokens, self.limit))
            self._samples.record(partitions, now_ms)
            left = self._bucket.take(partitions, self.limit, now_ms)
            return MutationCharge(True, 0 if strict else bucket_throttle_ms(left, self.limit))

    def tokens(self, now_ms: int) -> float:
        """The tokens that are there."""
        with self._lock:
            return self._bucket.tokens(self.limit, now_ms)
