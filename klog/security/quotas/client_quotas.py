"""The quotas of users and client ids on one broker: the limits in force, and what was used of them.

Rules: Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager` and `ControllerMutationQuotaManager`.
Clients that share a key share what they use. What nobody has used for an hour is forgotten. Time is passed
in, in ms of any clock that is not set back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from klog.security.quotas.entities import OF_CLIENTS, Quota, QuotaEntity
from klog.security.quotas.precedence import Limits, QuotaKey
from klog.security.quotas.usage import ExemptTime, MutationQuota, QuotaWindows, RateQuota

IDLE_MS: Final = 3_600_000
# More clients at a time than a broker serves. Client ids are the clients' choice, so the number is bounded.
_MOST_KEYS: Final = 20_000
_MOST_CLIENTS: Final = 10_000


class ClientLimits(NamedTuple):
    """The quotas of one client; None where it has no limit."""

    produce: RateQuota | None
    fetch: RateQuota | None
    request: RateQuota | None
    mutation: MutationQuota | None


class _State(NamedTuple):
    """Limits, and the clients that were looked up in them. It is replaced when a limit changes."""

    limits: Mapping[Quota, Limits]
    clients: dict[tuple[str, str], ClientLimits | None]

    @property
    def is_empty(self) -> bool:
        return not any(each.by_entity for each in self.limits.values())


def _without_limits() -> _State:
    return _State(dict.fromkeys(OF_CLIENTS, Limits({})), {})


class ClientQuotas:
    """All quotas of users and client ids. Safe for threads; `of` takes no lock for a client that it knows."""

    def __init__(
        self, windows: QuotaWindows | None = None, mutation_windows: QuotaWindows | None = None
    ) -> None:
        self._windows = windows or QuotaWindows()
        self._mutation_windows = mutation_windows or QuotaWindows()
        self._lock = threading.Lock()
        self._state = _without_limits()
        self._used: dict[tuple[Quota, QuotaKey], RateQuota | MutationQuota] = {}
        self.is_enabled = False
        self.exempt = ExemptTime()

    def set_limits(self, entity: QuotaEntity, limits: Mapping[Quota, float]) -> None:
        """Replaces the limits of an entity. They hold at once, also for what was used already."""
        with self._lock:
            self._replace(
                {
                    quota: known.changed(entity, limits.get(quota))
                    for quota, known in self._state.limits.items()
                }
            )

    def replace(self, limits: Mapping[QuotaEntity, Mapping[Quota, float]]) -> None:
        """Replaces the limits of all entities."""
        with self._lock:
            self._replace(
                {
                    quota: Limits({entity: each[quota] for entity, each in limits.items() if quota in each})
                    for quota in OF_CLIENTS
                }
            )

    def _replace(self, limits: Mapping[Quota, Limits]) -> None:
        self._state = _State(limits, {})
        self.is_enabled = not self._state.is_empty
        for used in self._used.values():
            limit = limits[used.quota].limit(used.key)
            if limit is not None:
                used.limit = limit

    def of(self, user: str, client_id: str, now_ms: int) -> ClientLimits | None:
        """The quotas of a client; None if it has no limit at all."""
        state = self._state
        client = user, client_id
        try:
            return state.clients[client]
        except KeyError:
            pass
        with self._lock:
            state = self._state
            if len(state.clients) >= _MOST_CLIENTS:
                state.clients.clear()
            found = ClientLimits(*(self._share(quota, user, client_id, now_ms) for quota in OF_CLIENTS))
            limited = found if any(each is not None for each in found) else None
            state.clients[client] = limited
            return limited

    def _share(self, quota: Quota, user: str, client_id: str, now_ms: int) -> Any:  # noqa: ANN401 (by the quota)
        """What those have used of a quota who share its limit with a client; None if it has no limit."""
        limits = self._state.limits[quota]
        key = limits.key(user, client_id)
        limit = limits.limit(key)
        if limit is None:
            return None
        used = self._used.get((quota, key))
        if used is None:
            self._bound(now_ms)
            used = self._used[quota, key] = self._new(quota, key, limit, now_ms)
        used.limit = limit
        return used

    def _new(self, quota: Quota, key: QuotaKey, limit: float, now_ms: int) -> RateQuota | MutationQuota:
        if quota is Quota.MUTATION:
            return MutationQuota(quota, key, limit, self._mutation_windows, now_ms)
        most_ms = self._windows.size_ms if quota is Quota.REQUEST else None
        return RateQuota(quota, key, limit, self._windows, now_ms, most_ms)

    def _bound(self, now_ms: int) -> None:
        """Makes room for one more key."""
        idle_ms = IDLE_MS
        while len(self._used) >= _MOST_KEYS:
            self._forget(now_ms, idle_ms)
            idle_ms //= 2

    def forget_idle(self, now_ms: int) -> None:
        """Forgets what nobody has used for an hour. Call it now and then."""
        with self._lock:
            self._forget(now_ms, IDLE_MS)

    def _forget(self, now_ms: int, idle_ms: int) -> None:
        since_ms = now_ms - idle_ms
        kept = {key: used for key, used in self._used.items() if used.used_ms > since_ms}
        if len(kept) < len(self._used):
            self._used = kept
            # Clients that were looked up hold what is forgotten now.
            self._state = _State(self._state.limits, {})

    def rates(self) -> Iterable[RateQuota]:
        """What was used of byte rates and request times."""
        with self._lock:
            return tuple(each for each in self._used.values() if isinstance(each, RateQuota))

    def mutations(self) -> Iterable[MutationQuota]:
        """What was used of controller mutations."""
        with self._lock:
            return tuple(each for each in self._used.values() if isinstance(each, MutationQuota))
