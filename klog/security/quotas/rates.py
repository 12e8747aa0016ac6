"""Rates over time windows, token buckets, and the times for which they throttle.

Rules: Kafka's `SampledStat`, `Rate`, `TokenBucket`, `QuotaUtils` and `ControllerMutationQuotaManager`. A
sample is what was recorded in one window. All samples but one count as whole windows from the start, so a
first burst is spread over them.
"""

from __future__ import annotations

import math
from typing import Final

MOST_THROTTLE_MS: Final = 2**31 - 1


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.total = 0.0
        self.count = 0


class WindowedSamples:
    """What was recorded of late. A sample goes when its last value is `windows * window_ms` old."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Adds a value; a negative one takes back."""
        sample = self._sample(now_ms)
        if now_ms - sample.start_ms >= self.window_ms:
            sample = self._advance(now_ms)
        sample.total += value
        sample.count += 1
        sample.last_ms = now_ms

    def _sample(self, now_ms: int) -> _Sample:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        return self._samples[self._current]

    def _advance(self, now_ms: int) -> _Sample:
        # One more than the windows: the oldest sample overlaps the first window.
        self._current = (self._current + 1) % (self.windows + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _purge(self, now_ms: int) -> None:
        expired_ms = now_ms - self.windows * self.window_ms
        for sample in self._samples:
            if sample.last_ms <= expired_ms:
                sample.reset(now_ms)

    def total(self, now_ms: int) -> float:
        """The sum of the values that are kept."""
        self._purge(now_ms)
        return sum(sample.total for sample in self._samples)

    def count(self, now_ms: int) -> int:
        """How many values are kept."""
        self._purge(now_ms)
        return sum(sample.count for sample in self._samples)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the values are spread over, at least `windows - 1` windows."""
        self._purge(now_ms)
        self._sample(now_ms)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(elapsed_ms, 1)

    def rate(self, now_ms: int) -> float:
        """Values per second."""
        return self.total(now_ms) * 1000 / self.elapsed_ms(now_ms)

    def average(self, now_ms: int) -> float:
        """The mean of the values; not a number if there are none."""
        count = self.count(now_ms)
        return self.total(now_ms) / count if count else math.nan


def rate_throttle_ms(samples: WindowedSamples, limit: float, now_ms: int, most_ms: int | None = None) -> int:
    """After how many ms without new values the rate is down to `limit` again; 0 if it is not above.

    `most_ms` bounds the time. Without it, a limit of 0 does not throttle: Kafka's time overflows.
    """
    rate = samples.rate(now_ms)
    if rate <= limit:
        return 0
    if limit == 0:
        return most_ms or 0
    time_ms = _rounded((rate - limit) / limit * samples.elapsed_ms(now_ms))
    return max(0, min(time_ms, MOST_THROTTLE_MS if most_ms is None else most_ms))


class TokenBucket:
    """Tokens come at a rate of `limit` a second, up to as many as come in all windows; it begins full.

    It may be overdrawn. The limit may differ from call to call.
    """

    def __init__(self, windows: int, window_ms: int) -> None:
        self._burst_s = windows * window_ms / 1000
        self._tokens = math.inf
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """The tokens that are there; negative if it is overdrawn."""
        refilled = self._tokens + limit * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._burst_s * limit, refilled)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> float:
        """Takes tokens, and returns how many are left."""
        self._tokens = min(self._burst_s * limit, self.tokens(limit, now_ms) - count)
        return self._tokens


def bucket_throttle_ms(tokens: float, limit: float) -> int:
    """After how many ms an overdrawn bucket has no debt any more; 0 if it has none, or never pays."""
    if tokens >= 0 or limit <= 0:
        return 0
    return min(_rounded(-tokens / limit * 1000), MOST_THROTTLE_MS)


def _rounded(value: float) -> int:
    """As Java rounds: half up."""
    return math.floor(value + 0.5)
