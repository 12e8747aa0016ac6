"""What a cluster costs that does nothing: three brokers with 2,000 partitions of three replicas each.

Every broker leads a third of the partitions and follows the others, so its followers' fetches wait at the
leaders all the time. Measured is the CPU time of each broker, when all replicas have been in sync for some
time.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.broker_failover import KINDS, Cluster, cluster
from benchmarks.measure import judge
from benchmarks.rows import Rows

_TOPIC: Final = "idle"
_REPLICAS: Final = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
_SETTLE_S: Final = 20.0
_AIM_CORES: Final = 0.1


def idle_cores(found: Cluster, partitions: int, seconds: float) -> list[float]:
    """How much of a core each broker takes."""
    found.create(_TOPIC, [_REPLICAS[number % 3] for number in range(partitions)])
    found.until(partial(_is_in_sync, found, partitions))
    time.sleep(_SETTLE_S)
    before_s, began_s = [broker.cpu_s() for broker in found.brokers], time.perf_counter()
    time.sleep(seconds)
    took_s = time.perf_counter() - began_s
    return [(broker.cpu_s() - cpu_s) / took_s for broker, cpu_s in zip(found.brokers, before_s, strict=True)]


def _is_in_sync(found: Cluster, partitions: int) -> bool:
    return all(found.in_sync(broker, _TOPIC) == [{0, 1, 2}] * partitions for broker in found.brokers)


def idle_clusters(
    scratch: Path,
    rounds: int,
    rows: Rows,
    partitions: int = 2000,
    seconds: float = 30.0,
    *,
    checkout: bool = False,
) -> str:
    """Both kinds in turn, on a new cluster each time; `checkout` runs klog's modules, not compiled."""
    most: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            with cluster(kind, scratch / "clusters", checkout=checkout) as found:
                most[kind].append(max(idle_cores(found, partitions, seconds)))
    ours, theirs = (statistics.median(most[kind]) for kind in KINDS)
    rows.add("the busiest broker, cores", ours, theirs)
    return (
        f"{partitions} idle partitions of three replicas, {seconds:.0f} s (medians of {rounds})\n"
        f"  the busiest broker    klog {ours:.3f}  Kafka {theirs:.3f} of a core  {judge(ours, _AIM_CORES)}"
    )
