"""What the tests under kills share: killing, ending the players, and reading what is there at the end."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.checker.histories import Logs, Outage, Partition
from tests.checker.players import INPUT, INPUT_PARTITIONS, Observer, Player, record_of
from tests.clients.cutting_proxy import CuttingProxy
from tests.peers.broker import free_port
from tests.swap.clients import Admin, read
from tests.swap.klog_process import Config, KlogBroker
from tests.waiting import eventually

SECONDS: Final = float(os.environ.get("KLOG_TEST_KILL_SECONDS", "10"))
SEED: Final = int(os.environ.get("KLOG_TEST_SEED", "11"))
# A busy machine may need some of it.
WAIT_LIMIT_S: Final = 60
# How many chunks a connection transports on average before it is cut.
CHUNKS: Final = 500
INPUTS: Final = [(INPUT, number) for number in range(INPUT_PARTITIONS)]
CONFIG: Final[Config] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.bytes": 200_000,
    "offsets.topic.segment.bytes": 100_000,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.flush.offset.checkpoint.interval.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 30,
}


@contextmanager
def broker_behind_cuts(work: Path, topics: Mapping[str, int]) -> Iterator[tuple[KlogBroker, CuttingProxy]]:
    """klog with topics, and the proxy through which all clients reach it. It cuts connections at random.

    So answers are lost, and requests are repeated, far more often than by kills alone.
    """
    inside, outside = free_port(), free_port()
    with CuttingProxy(SEED, CHUNKS) as proxy:
        proxy.target_port = outside
        config = {
            **CONFIG,
            "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
            "advertised.listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://{proxy.address}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
        with KlogBroker(work, config) as klog:
            klog.start()
            Admin(f"127.0.0.1:{inside}").create({topic: (count, {}) for topic, count in topics.items()})
            yield klog, proxy


def kill_again_and_again(klog: KlogBroker, chance: random.Random, seconds: float) -> list[Outage]:
    """Kills the broker at random moments, some of them during its start."""
    outages: list[Outage] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(chance.uniform(0.2, 3.0))
        killed_s = time.monotonic()
        klog.kill()
        while chance.random() < 0.2:
            klog.spawn()
            time.sleep(chance.uniform(0, 0.8))
            klog.kill()
        klog.start()
        assert "Traceback" not in klog.log_text
        outages.append(Outage(killed_s, time.monotonic()))
    return outages


def logs_of(bootstrap: str, partitions: Iterable[Partition], isolation: str = "read_uncommitted") -> Logs:
    """All records that a consumer finds."""
    found = read(bootstrap, partitions, isolation)
    return {
        partition: {offset: record_of(record.value) for offset, record in records.items() if record.value}
        for partition, records in found.items()
    }


def ended(players: Iterable[Player]) -> None:
    """Ends players that were to be ended."""
    for player in players:
        player.end()
    for player in players:
        player.joined()


def last_committed(bootstrap: str, group: str) -> dict[Partition, int]:
    """The committed offsets of a group that nobody commits to any more."""
    observer = Observer(bootstrap, "last", 0, group)
    eventually(lambda: len(observer.observed) >= INPUT_PARTITIONS)
    ended([observer])
    return {each.partition: each.offset for each in observer.observed}
