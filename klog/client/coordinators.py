"""Finds the coordinators of groups and transactional ids, and asks again while they move or load.

Rules: FindCoordinator (KIP-699: several keys in one request from version 4 on). A broker that no longer
coordinates a key answers NOT_COORDINATOR; then the client looks up the coordinator again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar

from klog.client.cluster import Cluster
from klog.client.connection import Connection, HostPort
from klog.client.errors import ClientError, RefusedError, is_retriable
from klog.client.requests import ask as ask_broker
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError, UnsupportedApiError

_KEY_TYPE_FROM: Final = 1
_SEVERAL_KEYS_FROM: Final = 4
_LAST_VERSION: Final = 5  # version 6 adds share groups only
_FAILED: Final = -1

_Answer = TypeVar("_Answer")


class CoordinatorType(IntEnum):
    """What is coordinated, with its number on the wire."""

    GROUP = 0
    TRANSACTION = 1

    def named(self, key: str) -> str:
        """The group or transactional id, for messages."""
        return f"group {key}" if self is CoordinatorType.GROUP else f"transactional id {key}"


_CURES: Final[Mapping[CoordinatorType, str]] = {
    CoordinatorType.GROUP: "has the cluster as many brokers as offsets.topic.replication.factor says?",
    CoordinatorType.TRANSACTION: "has the cluster as many brokers as "
    "transaction.state.log.replication.factor says?",
}

MOVED: Final = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)


def find_coordinators(
    cluster: Cluster, kind: CoordinatorType, keys: Sequence[str]
) -> dict[str, int | RefusedError]:
    """The broker that coordinates each key, or why there is none now. Raises ChannelError."""
    connection = cluster.any_connection()
    version = connection.version_of(ApiKey.FIND_COORDINATOR, _LAST_VERSION)
    if version < _KEY_TYPE_FROM and kind is not CoordinatorType.GROUP:
        raise UnsupportedApiError(f"{connection} knows no transactions")
    send = partial(ask_broker, connection, ApiKey.FIND_COORDINATOR, at_most=_LAST_VERSION, key_type=kind)
    answers: list[tuple[str, Entity]] = []
    if version >= _SEVERAL_KEYS_FROM:
        answers += [(each.key, each) for each in send(coordinator_keys=keys).coordinators]
    else:
        answers += [(key, send(key=key)) for key in keys]
    return {key: _located(cluster, kind, key, answer) for key, answer in answers}


def _located(cluster: Cluster, kind: CoordinatorType, key: str, answer: Entity) -> int | RefusedError:
    code = error_code(answer.error_code)
    if code is not ErrorCode.NONE:
        message = getattr(answer, "error_message", None)
        cure = _CURES[kind] if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else None
        return RefusedError(f"coordinator of {kind.named(key)}", code, message=message or None, cure=cure)
    cluster.add_broker(answer.node_id, HostPort(answer.host, answer.port))
    return int(answer.node_id)


def ask_coordinators(
    cluster: Cluster,
    kind: CoordinatorType,
    keys: Iterable[str],
    ask: Callable[[Connection, Sequence[str]], Mapping[str, _Answer | RefusedError]],
    brokers: dict[str, int] | None = None,
) -> dict[str, _Answer | KlogError]:
    """Ask the coordinator of each key, keys of one coordinator together; gives the outcome of each key.

    `ask` sends one request and gives the outcome of each key. `brokers`, if given, takes the coordinator of
    each key. Coordinators that move or load, and lost connections, are asked again for as long as the
    cluster's timeout allows. Raises ChannelError if no broker can be reached.
    """
    missing = list(dict.fromkeys(keys))
    found: dict[str, _Answer | KlogError] = {}
    retry = cluster.new_retry()
    while missing:
        located = find_coordinators(cluster, kind, missing)
        found |= {key: place for key, place in located.items() if not isinstance(place, int)}
        places = {key: place for key, place in located.items() if isinstance(place, int)}
        if brokers is not None:
            brokers |= places
        for broker_id in sorted(set(places.values())):
            group = [key for key, place in places.items() if place == broker_id]
            try:
                found |= ask(cluster.connection(broker_id), group)
            except ChannelError as error:
                found |= dict.fromkeys(group, error)
        for key in missing:
            found.setdefault(key, ClientError(f"no broker answered for {kind.named(key)}"))
        missing = [key for key in missing if _may_pass(found[key])]
        first = found[missing[0]] if missing else None
        if isinstance(first, KlogError):
            try:
                retry.failed(first)
            except KlogError:
                break  # the errors are the outcomes
    return found


def _may_pass(answer: object) -> bool:
    """Whether it is an error that ends when the coordinator is found or has loaded."""
    if isinstance(answer, UnsupportedApiError):
        return False
    if isinstance(answer, RefusedError):
        return answer.code in MOVED
    return isinstance(answer, ChannelError)


class Coordinator:
    """The coordinator of one group or transactional id. For one thread."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType, key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._broker_id = _FAILED

    def connection(self) -> Connection:
        """The open connection to the coordinator. Raises RefusedError, ChannelError."""
        if self._broker_id == _FAILED:
            place = find_coordinators(self._cluster, self._kind, [self._key]).get(self._key)
            if place is None:
                raise ClientError(f"nobody told the coordinator of {self._kind.named(self._key)}")
            if not isinstance(place, int):
                raise place
            self._broker_id = place
        return self._cluster.connection(self._broker_id)

    def failed(self, error: KlogError) -> None:
        """Look up the coordinator again for the next request if it has moved or cannot be reached."""
        if not isinstance(error, RefusedError) or error.code in MOVED:
            self._broker_id = _FAILED

    def ask(self, request: Callable[[Connection], _Answer]) -> _Answer:
        """What `request` gives, called again after errors that pass.

        Raises ClientError, ChannelError, the last error if errors last longer than the cluster's timeout.
        """
        retry = self._cluster.new_retry()
        while True:
            try:
                return request(self.connection())
            except (ClientError, ChannelError) as error:
                self.failed(error)
                if not is_retriable(error) or isinstance(error, UnsupportedApiError):
                    raise
                retry.failed(error)
