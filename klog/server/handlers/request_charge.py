"""Charges requests to the quotas of their clients, and writes the throttle time into their answers.

Rules: Kafka's `KafkaApis`, `RequestHandlerHelper`, KIP-13, KIP-124, KIP-219 and KIP-599. A throttled client
is answered at once and told for how long; then its connection is not read for that time. If several quotas
are violated, the longest time holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klog.protocol.apis import ApiKey
from klog.protocol.file_slice import BodyPart
from klog.protocol.throttle_time import with_throttle_time
from klog.security.quotas.client_quotas import ClientLimits, ClientQuotas
from klog.security.quotas.usage import Used
from klog.server.network.connection import Connection
from klog.server.network.request import Request

# What brokers ask each other is charged to nobody, unless it was refused.
_OF_BROKERS: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    )
)
_PERCENT_PER_NS: Final = 100 / 1_000_000_000
_INT32_MAX: Final = 2**31 - 1

# In a frame: the API key, the size of the client id, the client id.
_API_KEY_AT: Final = 4
_CLIENT_SIZE_AT: Final = 12
_CLIENT_AT: Final = 14


@dataclass(slots=True, eq=False)
class RequestCharge:
    """One request of a client that has quotas. Its `apply` is the request's `before_answer`.

    `refused` says that the request was not given to its handler.
    """

    _limits: ClientLimits
    _start_ns: int
    _clock_ns: Callable[[], int]
    _clock_ms: Callable[[], int]
    _handler_ns: int | None = None
    _throttle_ms: int = 0
    _is_fetch_charged: bool = False
    _mutation_until_ms: int = 0
    refused: bool = False

    def handled(self, elapsed_ns: int) -> None:
        """The handler has returned; what is done for the answer later is not charged."""
        self._handler_ns = elapsed_ns

    # -- what handlers charge --------------------------------------------------------------------------------

    @property
    def fetch_max_bytes(self) -> int:
        """As `Charge`."""
        quota = self._limits.fetch
        return _INT32_MAX if quota is None else int(min(quota.most_in_windows, _INT32_MAX))

    def fetch_throttle_ms(self, size_bytes: int) -> int:
        """As `Charge`."""
        now_ms, quota = self._clock_ms(), self._limits.fetch
        self._is_fetch_charged = True
        request_ms = self._charge_time(now_ms)
        bytes_ms = 0 if quota is None else quota.charge(size_bytes, now_ms)
        self._throttle(quota, bytes_ms, request_ms, now_ms)
        if quota is not None and self._throttle_ms:
            # The client gets an empty response instead.
            quota.take_back(size_bytes, now_ms)
        return self._throttle_ms

    def mutate(self, partitions: int, *, strict: bool) -> bool:
        """As `Charge`."""
        quota = self._limits.mutation
        if quota is None:
            return True
        now_ms = self._clock_ms()
        charged = quota.charge(partitions, now_ms, strict=strict)
        if charged.throttle_ms:
            self._mutation_until_ms = now_ms + charged.throttle_ms
        return charged.is_accepted

    # -- the answer ------------------------------------------------------------------------------------------

    def apply(self, request: Request, body: Sequence[BodyPart] | None) -> Sequence[BodyPart] | None:
        """The body of the answer with the throttle time, which the request gets too."""
        if not self._is_exempt(request):
            self._charge_answer(request, body)
        if self._throttle_ms <= 0:
            return body
        request.throttle_ms = self._throttle_ms
        if body is None:
            return None
        return with_throttle_time(request.api_key, request.api_version, body, self._throttle_ms)

    def _is_exempt(self, request: Request) -> bool:
        if request.api_key == ApiKey.FETCH:
            return request.from_follower or self._is_fetch_charged
        return request.api_key in _OF_BROKERS and not self.refused

    def _charge_answer(self, request: Request, body: Sequence[BodyPart] | None) -> None:
        now_ms = self._clock_ms()
        quota: Used | None = None
        quota_ms = 0
        is_produce = request.api_key == ApiKey.PRODUCE
        if is_produce and self._limits.produce is not None:
            quota = self._limits.produce
            quota_ms = self._limits.produce.charge(request.size_bytes, now_ms)
        elif self._mutation_until_ms and request.api_key != ApiKey.METADATA:
            # Topics that are created by themselves are charged only.
            quota, quota_ms = self._limits.mutation, max(0, self._mutation_until_ms - now_ms)
        # A producer that wants no answer does not pay for the time.
        is_free = is_produce and body is None
        self._throttle(quota, quota_ms, 0 if is_free else self._charge_time(now_ms), now_ms)

    def _charge_time(self, now_ms: int) -> int:
        quota = self._limits.request
        if quota is None:
            return 0
        handler_ns = self._handler_ns
        if handler_ns is None:
            handler_ns = self._clock_ns() - self._start_ns
        return quota.charge(handler_ns * _PERCENT_PER_NS, now_ms)

    def _throttle(self, quota: Used | None, quota_ms: int, request_ms: int, now_ms: int) -> None:
        self._throttle_ms = max(quota_ms, request_ms)
        cause = quota if quota_ms > request_ms else self._limits.request
        if cause is not None and self._throttle_ms:
            cause.throttled(self._throttle_ms, now_ms)


@dataclass(slots=True, eq=False)
class Charging:
    """Finds the quotas of requests. `clock_ms` is not set back, `clock_ns` measures the time of handlers."""

    _quotas: ClientQuotas
    _clock_ns: Callable[[], int]
    _clock_ms: Callable[[], int]

    def begin(self, request: Request, start_ns: int) -> RequestCharge | None:
        """Has the request charged when it is answered, if its client has quotas."""
        if not self._quotas.is_enabled:
            return None
        limits = self._quotas.of(request.principal.name, request.client_id or "", self._clock_ms())
        if limits is None:
            return None
        charge = RequestCharge(limits, start_ns, self._clock_ns, self._clock_ms)
        request.charge = charge
        request.before_answer = charge.apply
        return charge

    def measure_exempt(self, request: Request, charge: RequestCharge | None, elapsed_ns: int) -> None:
        """While there are quotas, counts the time of requests of brokers, which are charged to nobody."""
        if not self._quotas.is_enabled or (charge is not None and charge.refused):
            return
        if request.api_key in _OF_BROKERS or request.from_follower:
            self._quotas.exempt.record(elapsed_ns * _PERCENT_PER_NS, self._clock_ms())

    def is_due(self, connection: Connection, buffer: bytearray, start: int, end: int) -> bool:
        """Whether the frame at `start` is of a client whose quotas it must be charged to."""
        if not self._quotas.is_enabled:
            return False
        client_end = start + _CLIENT_AT
        if client_end > end:
            return False
        size = int.from_bytes(buffer[start + _CLIENT_SIZE_AT : client_end], signed=True)
        client_id = buffer[client_end : client_end + max(size, 0)].decode("utf-8", "replace")
        limits = self._quotas.of(connection.principal.name, client_id, self._clock_ms())
        if limits is None:
            return False
        match buffer[start + _API_KEY_AT] << 8 | buffer[start + _API_KEY_AT + 1]:
            case ApiKey.PRODUCE:
                used = limits.produce
            case ApiKey.FETCH:
                used = limits.fetch
            case _:
                used = None
        return used is not None or limits.request is not None
