"""Clients break the rules of the protocol. The broker closes their connections and serves all others."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.messages import encode_request, encode_request_header, request_class
from tests.protocol.entities import entities
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

CONTROLLER_ONLY = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
FROM_CLIENTS = sorted(SERVED.keys() - CONTROLLER_ONLY)
REQUEST_MAX_BYTES = 1_000_000
ABOUT_ACLS = tuple(
    request_class(key, version)
    for key in (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1)
)
CODES = (
    "resource_type",
    "resource_type_filter",
    "resource_pattern_type",
    "pattern_type_filter",
    "operation",
    "permission_type",
)


@pytest.fixture(scope="module")
def klog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlogBroker]:
    config = {"socket.request.max.bytes": REQUEST_MAX_BYTES, "num.partitions": 1}
    with KlogBroker(tmp_path_factory.mktemp("klog"), config) as running:
        running.start()
        yield running
        running.stop()
        assert "Traceback" not in running.log_text


class Bystander:
    """A correct client that connects first. The broker must go on serving it."""

    def __init__(self, klog: KlogBroker) -> None:
        self._klog = klog
        self._acknowledged: Written = {}
        self._writer = Writer(klog.bootstrap, self._acknowledged)
        self.is_served()

    def is_served(self) -> None:
        self._writer.write("bystander", b"%d" % time.monotonic_ns())
        self._writer.finish()
        found = read(self._klog.bootstrap, self._acknowledged)
        for partition, offsets in self._acknowledged.items():
            assert offsets.items() <= found[partition].items()


@pytest.fixture(scope="module")
def bystander(klog: KlogBroker) -> Bystander:
    return Bystander(klog)


def connect(klog: KlogBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", klog.port), timeout=60)


def frame(api_key: int, version: int, body: bytes, client_id: str | None = "bad") -> bytes:
    whole = encode_request_header(api_key, version, 1, client_id) + body
    return struct.pack(">i", len(whole)) + whole


def is_closed(sock: socket.socket, timeout_s: float = 60) -> bool:
    """Whether the broker closes the connection, after any answer."""
    sock.settimeout(timeout_s)
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


HEADERS = {
    "a negative size": struct.pack(">i", -1),
    "a size beyond the limit": struct.pack(">i", REQUEST_MAX_BYTES + 1) + bytes(100),
    "the largest size": struct.pack(">i", 2**31 - 1) + bytes(100),
    "no header": struct.pack(">i", 0),
    "half a header": struct.pack(">ihh", 4, 3, 1),
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "an API of a later Kafka": struct.pack(">ihhih", 30, 71, 0, 1, -1) + bytes(20),
    "an API that is not announced": struct.pack(">ihhih", 50, ApiKey.DESCRIBE_QUORUM, 0, 1, -1) + bytes(40),
    "an unknown version": struct.pack(">ihhih", 18, ApiKey.METADATA, 99, 1, -1) + bytes(8),
    "a version that is negative": struct.pack(">ihhih", 10, 3, -1, 1, -1),
    "a client id beyond the frame": struct.pack(">ihhih", 10, 3, 1, 1, 30_000),
    "a client id that is no text": struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xff\xfe",
    "an array beyond the frame": frame(ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100c8010000c40303") + bytes(200),
}


@pytest.mark.parametrize("bad", HEADERS.values(), ids=HEADERS.keys())
def test_an_invalid_request_closes_its_own_connection_only(
    klog: KlogBroker, bystander: Bystander, bad: bytes
) -> None:
    with connect(klog) as sock:
        sock.sendall(bad)
        assert is_closed(sock)
    bystander.is_served()


def test_the_broker_serves_on_after_random_frames_of_every_api(
    klog: KlogBroker, bystander: Bystander
) -> None:
    chance = random.Random(11)
    for _ in range(600):
        key = chance.choice(FROM_CLIENTS)
        version = chance.randint(SERVED[key].min_version, SERVED[key].max_version)
        with connect(klog) as sock, suppress(ConnectionError):
            sock.sendall(frame(key, version, chance.randbytes(chance.choice((0, 3, 40, 400)))))
            sock.shutdown(socket.SHUT_WR)
            assert is_closed(sock)
    bystander.is_served()


@pytest.mark.parametrize("api_key", [key for key in FROM_CLIENTS if SERVED[key].package], ids=str)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_request_with_any_values_is_answered(klog: KlogBroker, api_key: int, data: st.DataObject) -> None:
    api = SERVED[api_key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    request = data.draw(entities(request_class(api_key, version)))
    with connect(klog) as sock:
        sock.sendall(frame(api_key, version, encode_request(request)))
        sock.settimeout(60)
        assert len(sock.recv(4)) == (0 if has_unknown_code(request) else 4)


def has_unknown_code(request: Entity) -> bool:
    """Whether a request about ACLs has the code 0, which closes the connection, as in Kafka."""
    about = getattr(request, "creations", None) or getattr(request, "filters", None) or (request,)
    return isinstance(request, ABOUT_ACLS) and any(
        getattr(each, name, 1) == 0 for each in about for name in CODES
    )


def test_the_broker_serves_on_after_requests_that_end_anywhere(
    klog: KlogBroker, bystander: Bystander
) -> None:
    whole = frame(ApiKey.METADATA, 1, struct.pack(">i", 1) + struct.pack(">h", 9) + b"bystander")
    with ExitStack() as held:
        for size in range(len(whole)):
            sock = held.enter_context(connect(klog))
            sock.sendall(whole[:size])
            if size % 2:
                # The broker gets a reset instead of the end of the stream.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
        bystander.is_served()
    bystander.is_served()


def test_a_client_that_writes_a_byte_at_a_time_is_answered(klog: KlogBroker, bystander: Bystander) -> None:
    with connect(klog) as sock:
        for byte in frame(ApiKey.METADATA, 1, struct.pack(">i", 0)):
            sock.sendall(bytes([byte]))
            time.sleep(0.01)
        bystander.is_served()
        assert len(sock.recv(4)) == 4


def test_clients_that_never_read_do_not_fill_the_brokers_memory(
    klog: KlogBroker, bystander: Bystander
) -> None:
    writer = Writer(klog.bootstrap, acknowledged := {}, linger_ms=50)
    for _ in range(200):
        writer.write("much", random.Random(1).randbytes(50_000))
    writer.finish()
    before_bytes = klog.rss_bytes()
    topic = struct.pack(">h", 4) + b"much"
    partition = struct.pack(">iqi", 0, 0, 10_000_000)
    # Fetch 4: replica, max wait, min and max bytes, isolation, one topic with one partition.
    body = struct.pack(">iiiib", -1, 100, 1, 10_000_000, 0) + struct.pack(">i", 1) + topic
    fetch = frame(ApiKey.FETCH, 4, body + struct.pack(">i", 1) + partition)
    with ExitStack() as held:
        for _ in range(30):
            sock = held.enter_context(connect(klog))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(0.05)
            with suppress(TimeoutError):
                sock.sendall(fetch * 2000)
        bystander.is_served()
        assert klog.rss_bytes() - before_bytes < 60_000_000
    assert read(klog.bootstrap, acknowledged) == acknowledged


def test_thousands_of_short_connections_leave_no_descriptor_or_memory(
    klog: KlogBroker, bystander: Bystander
) -> None:
    before = klog.open_files()
    before_bytes = klog.rss_bytes()
    for _ in range(5):
        with ExitStack() as held:
            started_s = time.monotonic()
            for _ in range(400):
                held.enter_context(connect(klog))
            # If the system's queue of new connections is full, the client tries again after a second.
            assert time.monotonic() - started_s < 60
            bystander.is_served()
    for _ in range(2000):
        connect(klog).close()
    eventually(lambda: klog.open_files() <= before + 5)
    assert klog.rss_bytes() - before_bytes < 30_000_000
    bystander.is_served()


def test_connections_leave_descriptors_to_the_logs(tmp_path: Path) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))"
    with KlogBroker(tmp_path, {"log.segment.bytes": 20_000}, before=few) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (1, {})})
        writer = Writer(klog.bootstrap, acknowledged := {}, batch_size=5000)
        writer.write("t", b"first")
        writer.finish()
        with ExitStack() as held:
            for _ in range(200):
                held.enter_context(connect(klog))
            klog.wait_for("Cannot accept on PLAINTEXT")
            for _ in range(50):
                writer.write("t", random.Random(2).randbytes(2000))
            writer.finish()
        # The reader may be closed at once; it tries again.
        assert read(klog.bootstrap, acknowledged) == acknowledged
        klog.stop()


def test_all_these_clients_cause_no_traceback_in_the_log(klog: KlogBroker) -> None:
    assert Admin(klog.bootstrap).topics()
    assert "Traceback" not in klog.log_text
    assert Path(klog.log_path).stat().st_size < 5_000_000
