"""Limits the number of connections, and of new connections a second.

Rules: Kafka's ConnectionQuotas; KIP-402 (limits of listeners; the listener between brokers is protected),
KIP-612 (rates). A rate is measured over `quota.window.num` windows of `quota.window.size.seconds`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from enum import Enum, auto

from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.rates import WindowedSamples, rate_throttle_ms
from klog.server.network.settings import ListenerLimits, NetworkSettings

_NO_LIMITS = ListenerLimits()
# Kafka's metrics.num.samples and metrics.sample.window.ms.
_THROTTLE_SAMPLES = 2
_THROTTLE_WINDOW_MS = 30_000


class Admission(Enum):
    """What becomes of a connection: it is counted, its address has too many, or there are too many in all."""

    COUNTED = auto()
    TOO_MANY_OF_ADDRESS = auto()
    TOO_MANY = auto()


class _ThrottleTimes:
    """The average, by listener, of the throttle times that were not 0 of late."""

    def __init__(self) -> None:
        self._by_listener: dict[str, WindowedSamples] = {}

    def record(self, listener: str, delay_ms: int, now_ms: int) -> None:
        if delay_ms:
            if listener not in self._by_listener:
                self._by_listener[listener] = WindowedSamples(_THROTTLE_SAMPLES, _THROTTLE_WINDOW_MS)
            self._by_listener[listener].record(delay_ms, now_ms)

    def averages_ms(self, listeners: Collection[str], now_ms: int) -> dict[str, float]:
        averages = dict.fromkeys(sorted(listeners), 0.0)
        for name in averages.keys() & self._by_listener.keys():
            samples = self._by_listener[name]
            count = samples.count(now_ms)
            averages[name] = samples.total(now_ms) / count if count else 0.0
        return averages


class ConnectionCounts:
    """Counts connections: in all, by listener and by address. Safe for threads.

    `reconfigure` changes the limits. The network threads close the connections beyond a lower one
    (`exceeded`).
    """

    def __init__(
        self, settings: NetworkSettings, clock_ms: Callable[[], int], ip_limits: IpLimits | None = None
    ) -> None:
        self._settings = settings
        self._ip_limits = ip_limits
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._rates: dict[str | None, WindowedSamples] = {}
        self._throttles = _ThrottleTimes()
        self._address_throttles = _ThrottleTimes()
        self._listeners: frozenset[str] = frozenset()
        self.total = 0

    def reconfigure(self, settings: NetworkSettings, listeners: Collection[str]) -> None:
        """Goes on with other limits, and other listeners (by name)."""
        with self._lock:
            self._settings = settings
            self._listeners = frozenset(listeners)
            for gone in [name for name in self._rates if name is not None and name not in self._listeners]:
                del self._rates[gone]

    def of_listener(self, listener: str) -> int:
        """How many connections a listener has."""
        return self._by_listener[listener]

    def _limits(self, listener: str) -> ListenerLimits:
        return self._settings.listener_limits.get(listener, _NO_LIMITS)

    def _protected(self, listener: str) -> bool:
        return listener == self._settings.protected_listener and len(self._listeners) > 1

    def may_accept(self, listener: str) -> bool:
        """Whether a listener may have one more connection."""
        if self._by_listener[listener] >= self._limits(listener).max_connections:
            return False
        return self._protected(listener) or self.total < self._settings.max_connections

    def exceeded(self, listener: str) -> bool:
        """Whether there are too many connections, and one of this listener may be closed for it."""
        return self.total > self._settings.max_connections and not self._protected(listener)

    def charge(self, listener: str) -> int:
        """Counts a new connection in the rates. Returns for how many ms it has to wait before it is
        accepted, at most one window.
        """
        now_ms = self._clock_ms()
        with self._lock:
            delay_ms = self._charge(listener, self._limits(listener).max_connection_creation_rate, now_ms)
            if not self._protected(listener):
                limit = self._settings.max_connection_creation_rate
                delay_ms = max(delay_ms, self._charge(None, limit, now_ms))
            self._throttles.record(listener, delay_ms, now_ms)
            return delay_ms

    def _charge(self, name: str | None, limit: int, now_ms: int) -> int:
        window_ms = self._settings.rate_window_ms
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = WindowedSamples(self._settings.rate_samples, window_ms)
        rate.record(1, now_ms)
        return rate_throttle_ms(rate, limit, now_ms, window_ms)

    def rates(self) -> tuple[float, dict[str, float]]:
        """How many connections a second are accepted: by listeners that are not protected, and by each."""
        now_ms = self._clock_ms()
        with self._lock:
            found = {name: each.rate(now_ms) for name, each in self._rates.items()}
            by_listener = {name: found.get(name, 0.0) for name in sorted(self._listeners)}
            return found.get(None, 0.0), by_listener

    def throttle_times_ms(self) -> tuple[dict[str, float], dict[str, float]]:
        """For how many ms connections that had to wait were throttled on average, by listener: because of
        the rates of listeners and of the broker, and because of those of addresses.
        """
        now_ms = self._clock_ms()
        with self._lock:
            return (
                self._throttles.averages_ms(self._listeners, now_ms),
                self._address_throttles.averages_ms(self._listeners, now_ms),
            )

    def charge_address(self, listener: str, ip: str) -> int:
        """Counts a connection that was accepted in the rate of its address. If that has too many, it counts
        in no rate; returns for how many ms it is held before it is closed.
        """
        if self._ip_limits is None:
            return 0
        now_ms = self._clock_ms()
        held_ms = self._ip_limits.charge(ip, now_ms)
        if held_ms:
            with self._lock:
                for name in (listener,) if self._protected(listener) else (listener, None):
                    if name in self._rates:
                        self._rates[name].record(-1, now_ms)
                self._address_throttles.record(listener, held_ms, now_ms)
        return held_ms

    def add(self, listener: str, ip: str) -> Admission:
        """Counts a connection, if there is room for it: other listeners accept connections at once."""
        limit = self._settings.max_connections_per_ip_overrides.get(ip, self._settings.max_connections_per_ip)
        with self._lock:
            if self._by_ip[ip] >= limit:
                return Admission.TOO_MANY_OF_ADDRESS
            if not self.may_accept(listener):
                return Admission.TOO_MANY
            self._by_ip[ip] += 1
            self._by_listener[listener] += 1
            self.total += 1
            return Admission.COUNTED

    def remove(self, listener: str, ip: str) -> None:
        """Counts a connection that was closed."""
        with self._lock:
            self.total -= 1
            for counts, key in ((self._by_ip, ip), (self._by_listener, listener)):
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
