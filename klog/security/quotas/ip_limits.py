"""Limits how many connections a second an IP address may open.

Rules: Kafka's `ConnectionQuotas` and KIP-612. An address without a limit of its own has the default one, by
itself. A connection beyond the limit does not count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from klog.security.quotas.entities import DEFAULT, Part
from klog.security.quotas.rates import WindowedSamples, rate_throttle_ms
from klog.security.quotas.usage import QuotaWindows

# So many addresses are measured at a time.
_MOST_ADDRESSES: Final = 20_000


class IpLimits:
    """Safe for threads. `resolve` gives the address of a name, or of an address in its usual form."""

    def __init__(self, windows: QuotaWindows, resolve: Callable[[str], str]) -> None:
        self._windows = windows
        self._resolve = resolve
        self._lock = threading.Lock()
        self._by_name: dict[str, tuple[str, float]] = {}
        self._by_address: dict[str, float] = {}
        self._default: float | None = None
        self._measured: dict[str, WindowedSamples] = {}

    def set_limit(self, ip: Part, limit: float | None) -> None:
        """Sets the limit of an address, or the default; None removes it. Raises OSError if `resolve` does."""
        found = None
        if isinstance(ip, str) and limit is not None:
            found = self._resolve(ip), limit
        with self._lock:
            if ip is DEFAULT:
                self._default = limit
            elif isinstance(ip, str):
                self._by_name.pop(ip, None)
                if found is not None:
                    self._by_name[ip] = found
                self._by_address = dict(self._by_name.values())

    def charge(self, address: str, now_ms: int) -> int:
        """Counts a new connection. For how many ms it is held before it is closed; 0 if it is accepted."""
        with self._lock:
            limit = self._by_address.get(address, self._default)
            if limit is None:
                return 0
            samples = self._samples(address, now_ms)
            samples.record(1, now_ms)
            throttle_ms = rate_throttle_ms(samples, limit, now_ms, self._windows.size_ms)
            if throttle_ms:
                samples.record(-1, now_ms)
            return throttle_ms

    def _samples(self, address: str, now_ms: int) -> WindowedSamples:
        samples = self._measured.get(address)
        if samples is None:
            if len(self._measured) >= _MOST_ADDRESSES:
                self._forget(now_ms)
            samples = self._measured[address] = WindowedSamples(*self._windows)
        return samples

    def _forget(self, now_ms: int) -> None:
        """Forgets addresses without connections of late, and if that is not enough, those seen first."""
        kept = [(each, samples) for each, samples in self._measured.items() if samples.total(now_ms)]
        self._measured = dict(kept[-_MOST_ADDRESSES // 2 :])
