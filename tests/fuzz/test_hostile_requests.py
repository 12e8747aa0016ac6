"""Damaged requests of groups and transactions: the broker answers or closes the connection, and goes on.

Seeds are valid requests of every version. What a damaged one asks for may be valid again; nothing of that may
touch a group or a transactional id that it does not name.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.messages import encode_request_header
from tests.comparison import group_requests as groups
from tests.comparison import transaction_requests as transactions
from tests.comparison.group_model import subscription
from tests.comparison.group_requests import Commit, Identity
from tests.comparison.messages import Ask, Ids
from tests.comparison.pair import Side
from tests.comparison.transaction_requests import Addition, Producer
from tests.fuzz.test_targets import mutations
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

COUNT = 800
# A request that waits is not answered; the next one goes to another connection.
WAIT_S = 0.01
KEPT = "kept"


def versions(api: ApiKey) -> range:
    return range(SERVED[api].min_version, SERVED[api].max_version + 1)


def asks() -> Iterator[Ask]:
    """A request of every version of every API of groups and transactions."""
    who, producer = Identity("somebody", 1), Producer(0, 0)
    protocols = [("range", subscription("t")), ("sticky", b"\0\3")]
    commits = [Commit("t", 0, 5, "note", 1), Commit("absent", 3, 1)]
    addition = Addition("pay", producer, {"t": (0,)})
    for version in versions(ApiKey.JOIN_GROUP):
        yield groups.join(version, "g", protocols=protocols, instance_id=None if version < 5 else "i")
    for version in versions(ApiKey.SYNC_GROUP):
        yield groups.sync(version, "g", who, {"somebody": b"t"})
    for version in versions(ApiKey.HEARTBEAT):
        yield groups.heartbeat(version, "g", who)
    for version in versions(ApiKey.LEAVE_GROUP):
        yield groups.leave(version, "g", ("somebody", None), ("", "i"))
    for version in versions(ApiKey.OFFSET_COMMIT):
        yield groups.commit(version, "g", Identity(), commits)
    for version in versions(ApiKey.OFFSET_FETCH):
        yield groups.fetch(version, {"g": {"t": (0, 1)}, "h": {}}, require_stable=True)
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        yield groups.describe(version, "g", "h", operations=True)
    for version in versions(ApiKey.LIST_GROUPS):
        yield groups.list_groups(version, ("Stable",), ("classic",))
    for version in versions(ApiKey.DELETE_GROUPS):
        yield groups.delete_groups(version, "g", "h")
    for version in versions(ApiKey.FIND_COORDINATOR):
        yield groups.find_coordinator(version, 0, "g")
    yield groups.delete_offsets("g", {"t": (0, 1)})
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        yield transactions.init(version, "pay")
    for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN):
        yield transactions.add_partitions(version, addition)
    for version in versions(ApiKey.ADD_OFFSETS_TO_TXN):
        yield transactions.add_offsets(version, "pay", producer, "g")
    for version in versions(ApiKey.TXN_OFFSET_COMMIT):
        yield transactions.commit_offsets(version, "pay", producer, "g", commits)
    for version in versions(ApiKey.END_TXN):
        yield transactions.end(version, "pay", producer, committed=True)
    for version in versions(ApiKey.WRITE_TXN_MARKERS):
        yield transactions.write_markers(version, producer, {"t": (0,)}, committed=True, coordinator_epoch=0)
    for version in versions(ApiKey.LIST_TRANSACTIONS):
        yield transactions.list_transactions(version, ("Ongoing",), (0,))
    yield transactions.describe("pay")
    yield transactions.describe_producers({"t": (0,)})


def frames(chance: random.Random) -> Iterator[bytes]:
    """Damaged requests; the header stays as it is."""
    ids = Ids()
    by_header = [(encode_request_header(ask.api, ask.version, 1, "fuzz"), ids.body(ask)) for ask in asks()]
    bodies = [body for _, body in by_header if body]
    for damaged in mutations(chance, bodies, COUNT):
        header, _ = chance.choice(by_header)
        frame = header + damaged
        yield struct.pack(">i", len(frame)) + frame
    for header, body in by_header:
        for damaged in mutations(chance, [body or b"\0"], 5):
            frame = header + damaged
            yield struct.pack(">i", len(frame)) + frame


class Sender:
    """Sends frames, on a new connection if the last one is closed or waits."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, frame: bytes) -> bool:
        """Whether the frame was answered."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port))
        with suppress(OSError):
            self._socket.sendall(frame)
            self._socket.settimeout(WAIT_S)
            if self._socket.recv(1 << 20):
                return True
        self.close()
        return False

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


@pytest.fixture
def klog(tmp_path: Path) -> Iterator[KlogBroker]:
    config = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "auto.create.topics.enable": "false",
    }
    with KlogBroker(tmp_path, config) as broker:
        broker.start()
        Admin(broker.bootstrap).create({"t": (1, {})})
        yield broker


def test_damaged_requests_do_no_harm(klog: KlogBroker) -> None:
    side = Side("klog", klog.port)

    def ask(asked: Ask):
        return side.ask("kept", asked)[0]

    for kind in (0, 1):
        found = groups.find_coordinator(1, kind, KEPT)
        eventually(lambda found=found: ask(found).error_code == 0)
    eventually(lambda: ask(groups.commit(8, KEPT, Identity(), [Commit("t", 0, 5)])).topics)
    eventually(lambda: ask(transactions.init(4, KEPT)).error_code == 0)
    looks = groups.fetch(7, {KEPT: None}), groups.describe(5, KEPT), transactions.describe(KEPT)
    before = [ask(each) for each in looks]
    sender = Sender(klog.port)
    answered = [sender.send(frame) for frame in frames(random.Random(11))]
    sender.close()
    assert 100 < sum(answered) < len(answered) - 100
    assert [ask(each) for each in looks] == before
    assert "Traceback" not in klog.log_text
    assert " ERROR " not in klog.log_text
    side.close()
    klog.stop()
