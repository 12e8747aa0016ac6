"""The metadata store on a ZooKeeper ensemble, through kazoo.

kazoo drops watches when the connection breaks. Here they fire after the reconnection, so that no change is
missed. A new session follows an expired one automatically.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from klog.config.keys import ConfigError
from klog.metadata._kazoo import (
    SESSION_STATES,
    WATCH_KINDS,
    is_unimplemented,
    multi_outcome,
    node_stat,
    read_node,
    request,
    store_error,
)
from klog.metadata.errors import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    WaitCancelledError,
)
from klog.metadata.store import (
    MetadataStore,
    MultiResult,
    Node,
    NodeStat,
    Operation,
    SessionListener,
    SessionState,
    Watch,
    WatchEvent,
)
from klog.metadata.watches import Dispatcher, WatchRegistry
from klog.metadata.zookeeper_access import PLAIN_ACCESS, ZooKeeperAccess

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.protocol.states import WatchedEvent, ZnodeStat

    from klog.metadata._kazoo_tls import TlsHandler

_log = logging.getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 18_000
# While no server answers: how often to say so, and to look whether the broker is to stop.
_SAY_EVERY_S = 3.0
_LOOK_EVERY_S = 0.1
# The maximal number of requests that are sent without waiting (Kafka's zookeeper.max.in.flight.requests).
MAX_IN_FLIGHT = 10
# How many reads are sent in one request, and retried together after a loss of the connection.
_READ_TOGETHER = 200
# kazoo's own waits grow to an hour. A server that is back would be found long after the session has expired.
_CONNECTION_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.4, "max_delay": 1.0}
# How often connecting is tried within a session timeout.
_ATTEMPTS = 3

_Result = TypeVar("_Result")
_Answer_co = TypeVar("_Answer_co", covariant=True)


class _Pending(Protocol[_Answer_co]):
    """The result of kazoo's asynchronous calls."""

    def get(self) -> _Answer_co: ...


def _client_of(
    servers: str, session_timeout_ms: int, access: ZooKeeperAccess, handler: TlsHandler | None
) -> KazooClient:
    from kazoo.client import KazooClient

    # The store logs itself what kazoo warns of. Commands would show kazoo's warnings, too.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    # Empty names between commas are ignored, as in ZooKeeper's own client.
    names = [each for each in servers.split(",") if each.strip()]
    # kazoo waits for each server for the session timeout divided by the number of names. A server that starts
    # may accept a connection and never answer it, so a single server is named several times.
    named = ",".join(names * max(1, _ATTEMPTS // max(1, len(names))))
    try:
        return KazooClient(
            named,
            timeout=session_timeout_ms / 1000,
            connection_retry=_CONNECTION_RETRY,
            handler=handler,
            sasl_options=None if access.login is None else dict(access.login.options()),
        )
    except ValueError as error:
        cure = "name servers as in host:port,host:port/chroot"
        raise ConfigError("zookeeper.connect", servers, str(error), cure=cure) from error


def _handler_of(access: ZooKeeperAccess) -> TlsHandler | None:
    if access.tls is None:
        return None
    from klog.metadata._kazoo_tls import TlsHandler

    return TlsHandler(access.tls)


class ZooKeeperStore(MetadataStore):
    """A MetadataStore on `hosts` (`host:port,host:port/chroot`, as in `zookeeper.connect`).

    Creates the chroot if it is missing. Reads wait up to a session timeout for a reconnection. Raises
    ConnectionLossError if no server answers within `connect_timeout_ms`, ConfigError if `hosts` is invalid,
    WaitCancelledError if `is_stopping` becomes true before a server has answered.
    """

    def __init__(
        self,
        hosts: str,
        access: ZooKeeperAccess = PLAIN_ACCESS,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        connect_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        servers, slash, root = hosts.partition("/")
        # Paths are prefixed here, because kazoo does not remove its chroot from the results of multis.
        self._root = slash + root.rstrip("/") if root else ""
        self._session_timeout_ms = session_timeout_ms
        self._watches = WatchRegistry()
        self._lock = threading.Lock()
        self._listeners: list[SessionListener] = []
        self._connected = threading.Event()
        self._closed = False
        self._reads_together = True
        self._access = access
        self._handler = _handler_of(access)
        self._client = _client_of(servers, session_timeout_ms, access, self._handler)
        self._client.add_listener(self._on_state)
        self._dispatcher = Dispatcher("klog-zookeeper-watches")
        try:
            self._connect(servers, connect_timeout_ms, is_stopping)
            if self._root:
                self._create_root()
        except StoreError:
            # In a thread, because kazoo may be inside an attempt to connect, which it does not break off.
            threading.Thread(target=self._give_up, name="klog-zookeeper-end", daemon=True).start()
            self._dispatcher.stop()
            raise

    def _give_up(self) -> None:
        self._client.stop()
        self._client.close()

    def _connect(self, servers: str, timeout_ms: int, is_stopping: Callable[[], bool]) -> None:
        """Waits for the first connection, and says every few seconds that it does."""
        begin_s = time.monotonic()
        end_s, say_s = begin_s + timeout_ms / 1000, begin_s + _SAY_EVERY_S
        connected = self._client.start_async()
        while not connected.wait(_LOOK_EVERY_S):
            now_s = time.monotonic()
            if is_stopping():
                raise WaitCancelledError(f"stopped while no ZooKeeper server of {servers} answered")
            if now_s >= end_s:
                raise self._no_answer(servers, timeout_ms)
            if now_s >= say_s:
                say_s += _SAY_EVERY_S
                _log.warning(
                    "waiting for ZooKeeper at %s, which has not answered for %d s (at most %g s)",
                    servers,
                    now_s - begin_s,
                    timeout_ms / 1000,
                )

    def _no_answer(self, servers: str, timeout_ms: int) -> ConnectionLossError:
        what = f"no ZooKeeper server of {servers} answered within {timeout_ms} ms"
        if self._handler is None:
            cure = "check zookeeper.connect, and whether the port has TLS (zookeeper.ssl.client.enable)"
            return ConnectionLossError(what, cure=cure)
        if self._handler.failure is None:
            return ConnectionLossError(what, cure="check zookeeper.connect")
        return ConnectionLossError(
            f"{what}; the TLS handshake failed: {self._handler.failure}", cure="check zookeeper.ssl.*"
        )

    def _create_root(self) -> None:
        prefix, self._root = self._root, ""
        if self.exists(prefix) is None:
            with suppress(NodeExistsError):
                self.create(prefix, make_parents=True)
        self._root = prefix

    @property
    def session_id(self) -> int:
        identity = self._client.client_id
        return identity[0] if identity else 0

    def get(self, path: str, watch: Watch | None = None) -> Node:
        data, stat = self._read(self._client.get_async, self._watches.add_data, path, watch)
        return Node(data, node_stat(stat))

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        stat = self._read(self._client.exists_async, self._watches.add_data, path, watch)
        return None if stat is None else node_stat(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(self._read(self._client.get_children_async, self._watches.add_children, path, watch))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes: list[Node | None] = []
        for start in range(0, len(paths), _READ_TOGETHER):
            nodes += self._retried(partial(self._get_some, paths[start : start + _READ_TOGETHER]))
        return nodes

    def _get_some(self, paths: Sequence[str]) -> list[Node | None]:
        if self._reads_together and len(paths) > 1:
            try:
                return self._get_together(paths)
            except StoreFailedError as error:
                if not is_unimplemented(error):
                    raise
                self._reads_together = False  # a server before 3.6
        nodes: list[Node | None] = []
        sent: deque[tuple[str, _Pending[tuple[bytes | None, ZnodeStat]]]] = deque()
        for path in paths:
            if len(sent) == MAX_IN_FLIGHT:
                nodes.append(self._node(*sent.popleft()))
            sent.append((path, self._client.get_async(self._root + path)))
        return nodes + [self._node(path, result) for path, result in sent]

    def _get_together(self, paths: Sequence[str]) -> list[Node | None]:
        """Nodes by one request. Raises StoreFailedError if the server does not know it."""
        from klog.metadata._kazoo_reads import MultiRead

        pending = self._client.handler.async_result()
        self._client._call(MultiRead([self._root + path for path in paths]), pending)
        answers = self._await(None, pending)
        return [read_node(path, answer) for path, answer in zip(paths, answers, strict=True)]

    def _node(self, path: str, result: _Pending[tuple[bytes | None, ZnodeStat]]) -> Node | None:
        try:
            data, stat = self._await(path, result)
        except NoNodeError:
            return None
        return Node(data, node_stat(stat))

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        outcomes: list[MultiResult | StoreError] = []
        sent: deque[tuple[Sequence[Operation], _Pending[list[object]]]] = deque()
        for operations in multis:
            if len(sent) == MAX_IN_FLIGHT:
                outcomes.append(self._multi_outcome(*sent.popleft()))
            self._check_open()
            sent.append((operations, self._send_multi(operations)))
        return outcomes + [self._multi_outcome(operations, result) for operations, result in sent]

    def _send_multi(self, operations: Sequence[Operation]) -> _Pending[list[object]]:
        transaction = self._client.transaction()
        transaction.operations.extend(
            request(operation, self._root, self._access) for operation in operations
        )
        pending: _Pending[list[object]] = transaction.commit_async()
        return pending

    def _multi_outcome(
        self, operations: Sequence[Operation], result: _Pending[list[object]]
    ) -> MultiResult | StoreError:
        try:
            answers = self._await(None, result)
        except StoreError as error:
            return error
        return multi_outcome(operations, answers, len(self._root))

    def sync(self) -> None:
        self._retried(lambda: self._await(None, self._client.sync_async(self._root or "/")))

    def add_session_listener(self, listener: SessionListener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def wait_connected(self, timeout_ms: int | None = None) -> None:
        self._connected.wait(None if timeout_ms is None else timeout_ms / 1000)
        self._check_open()
        if not self._connected.is_set():
            raise ConnectionLossError(f"no ZooKeeper server could be reached for {timeout_ms} ms")

    def close(self) -> None:
        """Ends the session at the server, so that its ephemeral nodes are deleted at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._watches.clear()
            self._listeners.clear()
        self._connected.set()
        self._client.stop()
        self._client.close()
        self._dispatcher.stop()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the metadata store is closed")

    def _read(
        self,
        send: Callable[..., _Pending[_Result]],
        add: Callable[[str, Watch], None],
        path: str,
        watch: Watch | None,
    ) -> _Result:
        """What `send` reads of a node. A watch is registered by `add`, unless the node cannot be read."""

        def read() -> _Result:
            try:
                if watch is None:
                    return self._await(path, send(self._root + path, None))
                with self._lock:
                    add(path, watch)
                return self._await(path, send(self._root + path, self._on_event))
            except StoreError:
                if watch is not None:
                    with self._lock:
                        self._watches.discard(path, watch)
                raise

        return self._retried(read)

    def _retried(self, read: Callable[[], _Result]) -> _Result:
        """Retries a read after losses of the connection, for one session timeout."""
        deadline_s = time.monotonic() + self._session_timeout_ms / 1000
        while True:
            self._check_open()
            try:
                return read()
            except ConnectionLossError:
                left_ms = int((deadline_s - time.monotonic()) * 1000)
                if left_ms <= 0:
                    raise
                self.wait_connected(left_ms)

    def _await(self, path: str | None, result: _Pending[_Result]) -> _Result:
        """The answer. Raises a StoreError in place of kazoo's error."""
        from kazoo.exceptions import KazooException

        try:
            return result.get()
        except KazooException as error:
            self._check_open()
            raise store_error(error, path) from error

    def _on_event(self, event: WatchedEvent) -> None:
        kind = WATCH_KINDS.get(event.type)
        # A session event does not concern the node; `_on_state` handles it.
        if kind is not None:
            seen = WatchEvent(kind, event.path[len(self._root) :] or "/")
            with self._lock:
                self._dispatcher.deliver(self._watches.fire(seen))

    def _on_state(self, kazoo_state: str) -> None:
        state = SESSION_STATES[kazoo_state]
        with self._lock:
            if self._closed:
                return
            if state is SessionState.CONNECTED:
                # A change may have been missed while the connection was lost, so every watch fires.
                self._dispatcher.deliver(self._watches.fire_all())
                self._connected.set()
            else:
                self._connected.clear()
            if state is SessionState.EXPIRED:
                self._watches.clear()
            self._dispatcher.deliver([partial(listener, state) for listener in self._listeners])
