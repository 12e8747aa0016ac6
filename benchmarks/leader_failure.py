"""How soon records can be written again after the leader of their partition was killed.

Three brokers of one kind share a ZooKeeper. A librdkafka producer with acks=all writes steadily. The leader,
which is not the controller, is killed with SIGKILL. Measured is from the kill to the first acknowledgement of
a record with acks=all, by a client that asks the other brokers for the leader every few milliseconds. Most of
it is the timeout of the ZooKeeper session, which is given, too; what follows is the brokers' part.

librdkafka asks once a second only, and loses another second if the old leader is gone from the metadata. So
the time of its own first record says more about when the session ended within a second than about brokers.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.broker_failover import KINDS, Cluster, cluster, metadata_request
from benchmarks.brokers import RunningBroker
from benchmarks.measure import BenchmarkError, judge
from benchmarks.rows import Rows
from klog.client.producer import produce
from klog.kernel.batch_builder import build_single
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import ProduceRequest

_TOPIC: Final = "led"
_STEADY_RECORDS: Final = 200
_INTERVAL_S: Final = 0.01
_ASK_S: Final = 0.005
_WITHIN_S: Final = 120.0
_AIM: Final = 1.2


class LeaderFailure(NamedTuple):
    """Seconds from the kill to the end of the broker's session, to the first write, and to librdkafka's."""

    session_s: float
    write_s: float
    librdkafka_s: float


class _Writes:
    """A producer that notes when records that were written after the kill are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = 0
        self.killed_s: float | None = None
        self.first_s: float | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": _WITHIN_S * 1000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    def write(self) -> None:
        written_s = time.perf_counter()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                raise BenchmarkError(f"a record was refused: {error.str()}")
            self.acknowledged += 1
            if self.killed_s is not None and written_s > self.killed_s and self.first_s is None:
                self.first_s = time.perf_counter()

        self._producer.produce(_TOPIC, b"x" * 100, partition=0, on_delivery=delivered)
        self._producer.poll(_INTERVAL_S)

    def finish(self) -> None:
        self._producer.flush(_WITHIN_S)


class _Asker:
    """Asks the survivors who leads, and writes there as soon as it is one of them."""

    def __init__(self, survivors: dict[int, RunningBroker]) -> None:
        self._channels = {
            broker_id: Channel("127.0.0.1", broker.port) for broker_id, broker in survivors.items()
        }
        self.first_s: float | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        for channel in self._channels.values():
            channel.connect()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping = True
        self._thread.join()
        for channel in self._channels.values():
            channel.close()

    def _run(self) -> None:
        while not self._stopping and self.first_s is None:
            for channel in self._channels.values():
                (found,) = channel.send(metadata_request(_TOPIC)).topics
                leader = self._channels.get(int(found.partitions[0].leader_id))
                if leader is not None and self._is_written(leader):
                    self.first_s = time.perf_counter()
                    return
            time.sleep(_ASK_S)

    def _is_written(self, leader: Channel) -> bool:
        batch = memoryview(build_single(int(time.time() * 1000), b"", b"x" * 100))
        wanted = ProduceRequest(None, -1, 1000, [(_TOPIC, [(0, batch)])])
        ((_, (answer,)),) = produce(leader, wanted, 10_000)
        return answer.error_code == ErrorCode.NONE


def leader_failure(cluster: Cluster) -> LeaderFailure:
    """Kills the first broker that is not controller. The cluster is one broker short afterwards."""
    controller = cluster.controller()
    leader, *others = (each for each in range(len(cluster.brokers)) if each != controller)
    cluster.create(_TOPIC, [(leader, *others, controller)])
    writes = _Writes(",".join(each.bootstrap for each in cluster.brokers))
    while writes.acknowledged < _STEADY_RECORDS:
        writes.write()
    with _Asker({each: cluster.brokers[each] for each in (*others, controller)}) as asker:
        os.kill(cluster.brokers[leader].pid, signal.SIGKILL)
        writes.killed_s = killed_s = time.perf_counter()
        session_s = 0.0
        while writes.first_s is None or asker.first_s is None:
            writes.write()
            if not session_s and cluster.tree.exists(f"/brokers/ids/{leader}") is None:
                session_s = time.perf_counter() - killed_s
            if time.perf_counter() - killed_s > _WITHIN_S:
                raise BenchmarkError(f"no write was acknowledged within {_WITHIN_S:.0f} s")
        writes.finish()
        return LeaderFailure(session_s, asker.first_s - killed_s, writes.first_s - killed_s)


def leader_failures(scratch: Path, rounds: int, figures: Rows, *, checkout: bool = False) -> str:
    """Both kinds in turn, on a new cluster each time; `checkout` runs klog's modules, not compiled."""
    taken: dict[str, list[LeaderFailure]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            with cluster(kind, scratch / "clusters", checkout=checkout) as found:
                taken[kind].append(leader_failure(found))
    medians = {
        kind: LeaderFailure(*(statistics.median(each) for each in zip(*taken[kind], strict=True)))
        for kind in KINDS
    }
    ours, theirs = medians["klog"], medians["Kafka"]
    after = [statistics.median(each.write_s - each.session_s for each in taken[kind]) for kind in KINDS]
    rows: list[tuple[str, float, float, str]] = [
        ("first write", ours.write_s, theirs.write_s, judge(ours.write_s / theirs.write_s, _AIM)),
        ("session of it", ours.session_s, theirs.session_s, ""),
        ("after the session", after[0], after[1], judge(after[0] / after[1], _AIM)),
        ("of librdkafka", ours.librdkafka_s, theirs.librdkafka_s, ""),
    ]
    for name, klog, kafka, _ in rows:
        figures.add(f"leader killed, {name}, s", klog, kafka)
    lines = [f"leader killed (medians of {rounds})"]
    lines += [
        f"  {name:20}  klog {klog:6.3f} s  Kafka {kafka:6.3f} s  {note}".rstrip()
        for name, klog, kafka, note in rows
    ]
    return "\n".join(lines)
