"""Limits how fast replicas are copied: from leaders, to followers, and between log directories.

Rules: Kafka's `ReplicationQuotaManager` and `SimpleRate`; KIP-73, KIP-113. A broker has one limit of each
kind. Nobody waits for a limit: a partition that it holds for is left out until the rate has fallen.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOWS: Final = 11
WINDOW_MS: Final = 1000


class ReplicationQuota:
    """One limit. Safe for threads.

    `limit` gives the bytes per second that are allowed now, None if there is no limit. `is_listed` says
    whether the limit holds for a partition. `windows` and `window_ms` are `*replication.quota.window.num` and
    `.size.seconds`.
    """

    def __init__(
        self,
        limit: Callable[[], float | None],
        is_listed: Callable[[tuple[str, int]], bool] = lambda _: True,
        *,
        windows: int = WINDOWS,
        window_ms: int = WINDOW_MS,
    ) -> None:
        self._limit = limit
        self._is_listed = is_listed
        self._window_ms = window_ms
        self._kept_ms = windows * window_ms
        self._lock = threading.Lock()
        # The start of each window and the bytes in it, oldest first.
        self._samples: deque[list[int]] = deque()

    def is_throttled(self, key: tuple[str, int]) -> bool:
        """Whether the limit holds for a partition."""
        return self._is_listed(key)

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes of partitions for which the limit holds were copied."""
        with self._lock:
            samples = self._samples
            if not samples or now_ms - samples[-1][0] >= self._window_ms:
                samples.append([now_ms, 0])
                self._forget(now_ms)
            samples[-1][1] += size_bytes

    def rate(self, now_ms: int) -> float:
        """Bytes per second over the windows that are kept."""
        with self._lock:
            self._forget(now_ms)
            if not self._samples:
                return 0.0
            elapsed_ms = max(now_ms - self._samples[0][0], self._window_ms)
            return sum(size for _, size in self._samples) * 1000 / elapsed_ms

    def exceeded(self, now_ms: int) -> bool:
        """Whether more was copied than is allowed."""
        limit = self._limit()
        return limit is not None and self.rate(now_ms) > limit

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._kept_ms:
            self._samples.popleft()
