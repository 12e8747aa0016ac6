"""A broker that transactional clients write to while runs back it up, and checks of what is restored."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import klog.testing
from klog.backup.directories import LogDirectories
from klog.backup.model import RepositoryInfo
from klog.backup.repository import Repository, open_or_create
from klog.backup.restoring.batches import Rows
from klog.backup.restoring.histories import Detail
from klog.backup.restoring.log_directories import Layout, write_log_directories
from klog.backup.restoring.plan import RestorePlan
from klog.backup.restoring.request import RestoreRequest, identity, plan_of, select
from klog.backup.restoring.selection import RepositoryPieces
from klog.backup.restoring.state_records import committed_offsets, transaction_states
from klog.backup.restoring.target import RestoreTarget
from klog.backup.run import RunOptions, run_backup
from klog.backup.store import open_store
from klog.coordinator.transactions.values import TransactionState
from klog.formats.constants import CONTROL_BIT
from klog.formats.names import CONSUMER_OFFSETS
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import marker_of_batch
from klog.storage.cleaner.decoding import decode_one
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading
from tests.backup.transactional_load import INPUT, PARTITIONS, TOPIC, Client, now_ms
from tests.waiting import eventually

CLIENTS = ("alice", "bob", "carol")
SEED = 11
RUNS = 4


@dataclass(frozen=True)
class Recorded:
    """What clients did, the backups that runs made meanwhile, and the broker's directory after its stop."""

    clients: dict[str, Client]
    repository: Repository
    directory: Path
    begin_ms: int
    end_ms: int


def started_clients(bootstrap: str) -> dict[str, Client]:
    """The load, once it has committed a transaction: so there is one at each moment from now on."""
    clients = {name: Client(bootstrap, name, seed) for seed, name in enumerate(CLIENTS)}
    for client in clients.values():
        client.start()
    eventually(
        lambda: any(each.is_commit for client in clients.values() for each in client.attempts[:-1]),
        problem=lambda: f"no transaction was committed: {[each.failure for each in clients.values()]}",
    )
    return clients


@contextmanager
def recording(place: str) -> Iterator[Recorded]:
    config = {
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 2,
        "log.segment.bytes": 16384,
        # A run takes what the broker has noted as replicated.
        "replica.high.watermark.checkpoint.interval.ms": 100,
    }
    repository = open_or_create(open_store(place), RepositoryInfo("test"))
    with klog.testing.broker(config) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        broker.create_topic(INPUT, partitions=1)
        directory = broker.log_dirs[0]
        clients = started_clients(broker.bootstrap_servers)
        begin_ms = now_ms()
        for number in range(RUNS):
            time.sleep(1.0)
            back_up(repository, directory, number)
        end_ms = now_ms()
        for client in clients.values():
            client.stop()
        broker.stop()
        back_up(repository, directory, RUNS)
        yield Recorded(clients, repository, directory, begin_ms, end_ms)


def back_up(repository: Repository, directory: Path, number: int) -> None:
    run_backup(repository, LogDirectories([str(directory)]), RunOptions(f"{number:04d}", "1.0"))


def restore(repository: Repository, request: RestoreRequest, path: Path) -> RestorePlan:
    plan = plan_of(repository, request, select(repository, request), detail=Detail.CUT)
    layout = Layout({0: ""}, {each.target: (0,) for each in plan.partitions}, "WnrRcUjsTR6xk3yBsWKJjQ")
    target = RestoreTarget(str(path), identity(plan))
    write_log_directories(RepositoryPieces(repository), plan, target, layout)
    return plan


def without_input(topic: str) -> bool:
    """The topic that the groups' offsets are of is empty: with it, no offset could be beyond its end."""
    return topic != INPUT


def rows_of(directory: Path) -> Iterator[Rows]:
    table = BatchTable()
    for log in sorted(directory.glob("*.log")):
        with open_for_reading(log) as file:
            for data in chunks(file, table):
                yield Rows(int(log.stem), data, table, 0, len(table))


def visible(directory: Path) -> list[str]:
    """The values that a read_committed consumer gets; raises AssertionError if a transaction is open."""
    open_ones: dict[int, list[str]] = {}
    found: list[str] = []
    records = RecordTable()
    for rows in rows_of(directory):
        table = rows.table
        for row in range(len(table)):
            producer_id = table.producer_id[row]
            if table.attributes[row] & CONTROL_BIT:
                start = table.position[row] - table.origin
                marker = marker_of_batch(rows.data[start : start + table.size[row]])
                assert marker is not None
                ended = open_ones.pop(producer_id, [])
                found += [] if marker.aborted else ended
                continue
            payload = memoryview(decode_one(rows.data, table, row, records))
            for number in range(len(records)):
                start = records.value_start[number]
                value = bytes(payload[start : start + records.value_size[number]]).decode()
                open_ones.setdefault(producer_id, []).append(value)
    assert not open_ones
    return found


def check(recorded: Recorded, plan: RestorePlan, path: Path, at_ms: int | None) -> int:
    """Compares what was restored with the histories of the clients; returns how many transactions are in."""
    for planned in plan.partitions:
        require_same_bytes(
            recorded.directory / str(planned.target), path / str(planned.target), planned.cut.end_offset
        )
    seen = {number: visible(path / f"{TOPIC}-{number}") for number in range(PARTITIONS)}
    offsets: dict[str, int] = {}
    for directory in path.glob(f"{CONSUMER_OFFSETS}-*"):
        for group_id, found in committed_offsets(directory.name, rows_of(directory)).items():
            offsets[group_id] = found[INPUT, 0].offset if (INPUT, 0) in found else 0
    count = require_history(recorded.clients, seen, offsets, at_ms)
    require_no_open_transactions(path)
    return count


def require_history(
    clients: Mapping[str, Client],
    seen: Mapping[int, Collection[str]],
    offsets: Mapping[str, int],
    at_ms: int | None,
) -> int:
    """Transactions are whole, and each is there if it was committed by then; returns how many are there."""
    count = 0
    for name, client in clients.items():
        last = 0
        for attempt in client.attempts:
            value = f"{name} {attempt.number}"
            where = [number for number in range(PARTITIONS) if value in seen[number]]
            assert where in ([], sorted(attempt.partitions)), value
            assert not where or attempt.is_commit
            if where:
                last = attempt.number
                count += 1
            if at_ms is not None and attempt.is_commit:
                assert where or attempt.ended_ms > at_ms, value
                assert not where or attempt.ends_ms <= at_ms, value
        assert offsets.get(name, 0) == last
    return count


def require_no_open_transactions(path: Path) -> None:
    for directory in path.glob("__transaction_state-*"):
        for record in transaction_states(rows_of(directory)).values():
            assert record.state not in (
                TransactionState.ONGOING,
                TransactionState.PREPARE_COMMIT,
                TransactionState.PREPARE_ABORT,
            )


def require_same_bytes(original: Path, restored: Path, end_offset: int) -> None:
    """The restored segments have the bytes of the original up to the cut."""
    for log in sorted(restored.glob("*.log")):
        data = (original / log.name).read_bytes() if (original / log.name).exists() else b""
        made, table = log.read_bytes(), BatchTable()
        kernel.scan(made, 0, True, table)
        same = sum(
            size for size, last in zip(table.size, table.last_offset, strict=True) if last < end_offset
        )
        assert made[:same] == data[:same], log
