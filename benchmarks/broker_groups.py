"""Groups on klog and Kafka: how fast members come together, and what many members and groups cost."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import RunningBroker, both, klog_alone, mib
from benchmarks.group_client import Group, running, single_members
from benchmarks.measure import judge
from benchmarks.request_frames import FIND_COORDINATOR_ANSWER, Admin, find_coordinator_frame
from benchmarks.rows import Rows

IDLE_CORES_AIM = 0.1
# Members that come within this time of each other are one generation. Both brokers wait for it.
_CONFIG = {"group.initial.rebalance.delay.ms": 200}
_CONNECTIONS = 500


@dataclass(frozen=True)
class GroupSizes:
    """`members` join in each round; `many` join one group and idle for `idle_s`; `groups` have one each."""

    members: int = 50
    many: int = 1_000
    groups: int = 10_000
    idle_s: float = 12.0


def groups(
    scratch: Path,
    rounds: int,
    rows: Rows,
    sizes: GroupSizes = GroupSizes(),
    *,
    klog_only: bool = False,
    checkout: bool = False,
) -> str:
    """Seconds from the first JoinGroup to a stable group, and CPU and memory of many members and groups."""
    started = klog_alone(scratch, _CONFIG, checkout=checkout) if klog_only else both(scratch, _CONFIG)
    with started as brokers:
        for broker in brokers:
            with closing(Admin(broker.port)) as admin:
                # It creates the topic in which groups are kept.
                admin.send(find_coordinator_frame("any"), FIND_COORDINATOR_ANSWER)
        taken: list[list[float]] = [[] for _ in brokers]
        for number in range(rounds + 1):
            for broker, runs in zip(brokers, taken, strict=True):
                seconds = asyncio.run(_stable_s(broker, Group(f"members-{number}", sizes.members)))
                if number:
                    runs.append(seconds)
        joined_s = [statistics.median(runs) for runs in taken]
        crowds = [asyncio.run(_crowd(broker, sizes)) for broker in brokers]
        singles = [_singles(broker, sizes.groups) for broker in brokers]
    delay_ms = _CONFIG["group.initial.rebalance.delay.ms"]
    names = [broker.name for broker in brokers]
    if len(brokers) == 2:
        rows.add(f"{sizes.members} members from join to stable, s", *joined_s)
        rows.add(f"one group of {sizes.many}, from join to stable, s", *(each.joined_s for each in crowds))
        rows.add(f"one group of {sizes.many}, cores while idle", *(each.idle_cores for each in crowds))
        rows.add(f"{sizes.groups} groups, CPU s", *(each.cpu_s for each in singles))
        rows.add(f"{sizes.groups} groups, memory, bytes", *(each.rss_bytes for each in singles))
    return "\n".join(
        [
            f"classic groups, {delay_ms} ms initial delay (median of {rounds})",
            f"  {sizes.members} members from join to stable: "
            + _compared(names, joined_s, lambda value: f"{value:.3f} s", aim=1),
            f"  one group of {sizes.many:,} members",
            "    from join to stable: "
            + _compared(names, [crowd.joined_s for crowd in crowds], lambda value: f"{value:.2f} s"),
            "    cores while idle: "
            + _compared(names, [crowd.idle_cores for crowd in crowds], lambda value: f"{value:.3f}")
            + f"; klog {judge(crowds[0].idle_cores, IDLE_CORES_AIM)}",
            "    memory: " + _compared(names, [crowd.rss_bytes for crowd in crowds], mib),
            f"  {sizes.groups:,} groups of one member",
            "    until all are stable: "
            + _compared(names, [single.joined_s for single in singles], lambda value: f"{value:.2f} s"),
            "    CPU: "
            + _compared(names, [single.cpu_s for single in singles], lambda value: f"{value:.2f} s"),
            "    memory: " + _compared(names, [single.rss_bytes for single in singles], mib),
        ]
    )


def _compared(
    names: Sequence[str], values: Sequence[float], form: Callable[[float], str], aim: float | None = None
) -> str:
    text = ", ".join(f"{name} {form(value)}" for name, value in zip(names, values, strict=True))
    if len(values) == 2 and values[1]:
        ratio = values[0] / values[1]
        text += f": {ratio:.2f}" + ("" if aim is None else f" {judge(ratio, aim)}")
    return text


async def _stable_s(broker: RunningBroker, group: Group) -> float:
    start_s = time.perf_counter()
    async with running(broker.port, group):
        return time.perf_counter() - start_s


@dataclass(frozen=True)
class _Crowd:
    joined_s: float
    idle_cores: float
    rss_bytes: int


async def _crowd(broker: RunningBroker, sizes: GroupSizes) -> _Crowd:
    """One large group, and what its heartbeats cost."""
    start_s = time.perf_counter()
    async with running(broker.port, Group("crowd", sizes.many)):
        joined_s = time.perf_counter() - start_s
        cpu_s, start_s = broker.cpu_s(), time.perf_counter()
        await asyncio.sleep(sizes.idle_s)
        idle_cores = (broker.cpu_s() - cpu_s) / (time.perf_counter() - start_s)
        return _Crowd(joined_s, idle_cores, broker.rss_bytes())


@dataclass(frozen=True)
class _Singles:
    joined_s: float
    cpu_s: float
    rss_bytes: int


def _singles(broker: RunningBroker, count: int) -> _Singles:
    cpu_s, start_s = broker.cpu_s(), time.perf_counter()
    asyncio.run(single_members(broker.port, "single", count, _CONNECTIONS))
    return _Singles(time.perf_counter() - start_s, broker.cpu_s() - cpu_s, broker.rss_bytes())
