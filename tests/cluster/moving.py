"""Moves many bytes between brokers and between log directories while clients write and read.

    python -m tests.cluster.moving --gib 10 --rate-mib 100

The size is what a broker copies from others, and then from one log directory to another. The controller is
killed when a part has been moved. All that clients did is checked, replicas are compared on disk, and the
rates are measured by the files that grow.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer, TopicPartition

from tests.checker import checks
from tests.checker.histories import Commit, Observed
from tests.checker.players import INPUT, INPUT_PARTITIONS, IdempotentProducer, Reader
from tests.checker.under_kills import INPUTS, SEED, ended, last_committed, logs_of
from tests.cluster.agreement import check_acknowledged, differences
from tests.cluster.members import Kind
from tests.cluster.reading import settled
from tests.cluster.tools import NOTHING_LISTED, ClusterTools
from tests.cluster.tree import Partition
from tests.cluster.world import Cluster, cluster
from tests.peers.kafka import KafkaPeer
from tests.peers.tool_server import ToolServer
from tests.swap.clients import consumer
from tests.threads import join, started

BULK: Final = "bulk"
BULK_PARTITIONS: Final = 4
# What is moved leaves SOURCE and goes to TARGET. CONTROLLER is killed meanwhile, and has a replica, too.
SOURCE, CONTROLLER, TARGET = 0, 1, 2
_RECORD_BYTES: Final = 20_000
# A follower is sent the beginning of a batch that does not fit, too, and throttles count that. The smaller
# batches are, the less it is.
_BATCH_BYTES: Final = 50_000
_GROUP: Final = "readers"
_WAIT_S: Final = 120
MIB: Final = 1 << 20


class Moved(NamedTuple):
    """A move: its bytes, its seconds, and the limit in bytes a second."""

    what: str
    size_bytes: int
    seconds: float
    limit: int

    @property
    def rate_to_limit(self) -> float:
        """The measured rate as a share of the limit."""
        return self.size_bytes / self.seconds / self.limit

    def __str__(self) -> str:
        rate = self.size_bytes / self.seconds / MIB
        return (
            f"{self.what}: {self.size_bytes / MIB:.0f} MiB in {self.seconds:.1f} s, {rate:.2f} MiB/s,"
            f" {self.rate_to_limit:.3f} of the limit"
        )


class Growth:
    """How many bytes of segments appear in directories, sampled by a thread. `with` it."""

    def __init__(self, directories: Callable[[], Iterator[Path]]) -> None:
        self._directories = directories
        self._ended = threading.Event()
        self.samples: list[tuple[float, int]] = [(time.monotonic(), self._size())]

    def _size(self) -> int:
        total = 0
        for each in self._directories():
            for path in each.glob("*.log"):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:
                    continue  # renamed or deleted meanwhile
        return total

    def __enter__(self) -> Growth:
        self._thread = started(self._sample)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        join([self._thread])

    def _sample(self) -> None:
        while not self._ended.wait(0.05):
            self.samples.append((time.monotonic(), self._size()))

    @property
    def size_bytes(self) -> int:
        """The bytes that have appeared so far."""
        return max(size for _, size in self.samples) - self.samples[0][1]

    def moved(self, what: str, limit: int) -> Moved:
        """What has been moved, from the last sample before the first byte to the first with all bytes."""
        start_bytes = self.samples[0][1]
        end_bytes = max(size for _, size in self.samples)
        begins_s = max(at_s for at_s, size in self.samples if size <= start_bytes)
        ends_s = min(at_s for at_s, size in self.samples if size >= end_bytes)
        return Moved(what, end_bytes - start_bytes, max(ends_s - begins_s, 0.001), limit)


class Moving:
    """A cluster of three brokers with two log directories each, and what is written to it."""

    def __init__(self, world: Cluster, tools: ClusterTools, size_bytes: int, limit: int) -> None:
        self._world = world
        self._tools = tools
        self._size_bytes = size_bytes
        self._limit = limit
        self._bulk = [(BULK, number) for number in range(BULK_PARTITIONS)]
        # A move that takes ten times as long as it may has failed.
        self._timeout_s = _WAIT_S + 10 * size_bytes / limit

    @property
    def bootstrap(self) -> str:
        return self._world.bootstrap

    def fill(self) -> int:
        """Writes the records whose replicas are to be moved. Returns their number."""
        replicas = [[SOURCE, CONTROLLER]] * BULK_PARTITIONS
        self._world.create({BULK: BULK_PARTITIONS}, assignment=replicas, min_insync_replicas=1)
        inputs = [[SOURCE, CONTROLLER], [CONTROLLER, TARGET], [TARGET, SOURCE], [SOURCE, CONTROLLER]]
        self._world.create({INPUT: INPUT_PARTITIONS}, assignment=inputs, min_insync_replicas=1)
        payload = random.Random(SEED).randbytes(_RECORD_BYTES)
        producer = Producer(
            {
                "bootstrap.servers": self._world.bootstrap,
                # Nothing fails meanwhile, and it is counted afterwards.
                "acks": 1,
                "linger.ms": 20,
                "queue.buffering.max.kbytes": 100_000,
                "message.timeout.ms": 300_000,
                "batch.size": _BATCH_BYTES,
                "log_level": 0,
            }
        )
        refused: list[object] = []
        count = max(self._size_bytes // _RECORD_BYTES, BULK_PARTITIONS)
        for number in range(count):
            value = b"%012d" % number + payload[12:]
            while True:
                try:
                    producer.produce(
                        BULK,
                        value,
                        partition=number % BULK_PARTITIONS,
                        on_delivery=lambda error, _: refused.append(error) if error else None,
                    )
                except BufferError:
                    producer.poll(0.1)
                    continue
                producer.poll(0)
                break
        assert producer.flush(_WAIT_S) == 0
        assert refused == []
        self._world.wait_for_full_isr()
        return count

    def between_brokers(self) -> Moved:
        """Moves the replicas of SOURCE to TARGET, and those of the topic that clients use around."""
        self._world.move_controller(CONTROLLER)
        plan = {
            **{key: [CONTROLLER, TARGET] for key in self._bulk},
            **{(INPUT, number): [TARGET, SOURCE] for number in range(INPUT_PARTITIONS)},
        }
        target = self._world.members[TARGET]
        with Growth(lambda: _directories(target.log_directories, BULK)) as growth:
            self._tools.reassign("execute", plan, "--throttle", self._limit)
            self._until(lambda: growth.size_bytes > self._size_bytes // 3, "a third is not moved")
            self._world.members[CONTROLLER].kill()
            self._world.wait_for_controller(SOURCE, TARGET)
            self._world.start(CONTROLLER)
            self._until(lambda: growth.size_bytes >= self._size_bytes, "not all is moved")
        self._tools.wait_until_complete(plan, self._timeout_s)
        assert self._tools.listed() == NOTHING_LISTED
        assert all(self._world.tree.replicas(BULK)[number] == [1, 2] for number in range(BULK_PARTITIONS))
        return growth.moved("between brokers", self._limit)

    def between_directories(self) -> Moved:
        """Moves all replicas of TARGET to the log directory that they are not in."""
        self._world.wait_for_full_isr()
        target = self._world.members[TARGET]
        places = {each.name: each.parent for each in _directories(target.log_directories, BULK)}
        directories = {}
        for topic, number in self._bulk:
            (other,) = [each for each in target.log_directories if each != places[f"{topic}-{number}"]]
            directories[topic, number] = ["any", str(other)]
        plan = {key: [CONTROLLER, TARGET] for key in self._bulk}

        def arriving() -> Iterator[Path]:
            for (topic, number), (_, path) in directories.items():
                yield from Path(path).glob(f"{topic}-{number}*")

        with Growth(arriving) as growth:
            throttle = ("--replica-alter-log-dirs-throttle", self._limit)
            self._tools.reassign("execute", plan, *throttle, directories=directories)
            self._until(lambda: growth.size_bytes >= self._size_bytes, "not all is moved")
        self._tools.wait_until_complete(plan, self._timeout_s, directories)
        return growth.moved("between log directories", self._limit)

    def _until(self, holds: Callable[[], object], problem: str) -> None:
        self._world.until(holds, problem, self._timeout_s)

    def check(self, count: int) -> None:
        """Every record of the bulk is in its place on all replicas. Stops the cluster."""
        self._world.wait_for_full_isr()
        ends = {
            (BULK, number): len(range(number, count, BULK_PARTITIONS)) for number in range(BULK_PARTITIONS)
        }
        assert settled(lambda: self._ends(ends)) == ends
        self._world.stop()
        for partition, end in ends.items():
            holders = [self._world.members[each] for each in (CONTROLLER, TARGET)]
            assert list(differences(holders, {partition: end})) == []

    def _ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        with consumer(self._world.bootstrap) as reader:
            return {
                each: reader.get_watermark_offsets(TopicPartition(*each), timeout=60)[1]
                for each in partitions
            }


class Clients:
    """What writes and reads meanwhile."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers = [IdempotentProducer(bootstrap, f"producer{number}", SEED) for number in range(2)]
        self._readers = [Reader(bootstrap, f"reader{number}", SEED, _GROUP) for number in range(2)]

    def check(self) -> int:
        """Ends them and proves their histories. Returns the number of acknowledged records."""
        ended(self._producers)
        logs = settled(lambda: logs_of(self._bootstrap, INPUTS))
        ended(self._readers)
        acknowledged = list(itertools.chain.from_iterable(each.acknowledged for each in self._producers))
        assert not any(each.refused for each in self._producers if not each.ended_by_errors)
        check_acknowledged(acknowledged, logs)
        assert list(checks.duplicated(logs)) == []
        assert list(checks.disordered(logs)) == []
        commits: list[Commit] = list(itertools.chain.from_iterable(each.commits for each in self._readers))
        now_s = time.monotonic()
        committed = last_committed(self._bootstrap, _GROUP)
        observed = [Observed(*each, now_s, now_s) for each in committed.items()]
        assert list(checks.commits_lost(commits, observed)) == []
        return len(acknowledged)


def _directories(log_directories: Sequence[Path], topic: str) -> Iterator[Path]:
    for each in log_directories:
        yield from each.glob(f"{topic}-[0-9]*")


@contextmanager
def moving(
    work: Path, peer: KafkaPeer, kinds: Sequence[Kind], size_bytes: int, limit: int
) -> Iterator[Moving]:
    """A started cluster of three brokers with two log directories each."""
    with cluster(work, peer, kinds, {"log.segment.bytes": 64 * MIB}) as world, ToolServer(peer) as server:
        for member in world.members.values():
            member.config["log.dirs"] = f"{member.work / 'a'},{member.work / 'b'}"
        world.start()
        yield Moving(world, ClusterTools(server, world.bootstrap, work), size_bytes, limit)


def run(
    work: Path,
    peer: KafkaPeer,
    kinds: Sequence[Kind],
    size_bytes: int,
    limit: int,
    say: Callable[[object], None],
) -> list[Moved]:
    """Moves and checks everything. Returns what was moved between brokers and between log directories."""
    with moving(work, peer, kinds, size_bytes, limit) as moves:
        count = moves.fill()
        say(f"{count} records of {_RECORD_BYTES} bytes are written")
        clients = Clients(moves.bootstrap)
        found = []
        for move in (moves.between_brokers, moves.between_directories):
            found.append(move())
            say(found[-1])
        say(f"{clients.check()} records of clients were acknowledged meanwhile, and none is lost")
        moves.check(count)
        say("the replicas agree")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.moving", description=__doc__)
    parser.add_argument("--gib", type=float, default=10, help="how much is moved each time (10)")
    parser.add_argument("--rate-mib", type=float, default=100, help="the throttle in MiB/s (100)")
    parser.add_argument("--kinds", default="klog,klog,klog", help="the brokers 0 to 2 (klog,klog,klog)")
    parser.add_argument("--work", type=Path, help="a directory with four times the space (a temporary one)")
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="moving-", dir=given.work))
    try:
        run(
            work,
            KafkaPeer(),
            [Kind(name) for name in given.kinds.split(",")],
            int(given.gib * 1024 * MIB),
            int(given.rate_mib * MIB),
            lambda text: print(text, file=sys.stderr if isinstance(text, str) else sys.stdout, flush=True),
        )
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
