"""Which modules of klog a load keeps busy: `python -m benchmarks.line_counts LOAD...`.

A broker runs on the modules of the checkout, not compiled, and counts the lines of Python that it runs. The
shares decide which modules are compiled (`setup.py`). A LOAD is the begin of a name of `broker-requests`, or
`transactions`, or `replicated-` with the begin of a name of `broker-requests-replicated`: then the leader and
a follower are counted.
"""

from __future__ import annotations

import atexit
import collections
import json
import os
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.broker_transactions import CONFIG, PARTITIONS, TOPIC
from benchmarks.broker_transactions import run as run_transactions
from benchmarks.brokers import RunningBroker, start_klog
from benchmarks.package import CHECKOUT
from benchmarks.replicated import replicated
from benchmarks.request_frames import Admin
from benchmarks.request_loads import LOADS, REPLICATED_LOADS, Load, Programs, prepared

_PACKAGE = str(CHECKOUT / "klog") + os.sep
_OUTPUT = "KLOG_LINE_COUNTS"
_PROGRAM = ("-m", "benchmarks.line_counts", "--broker")
_REPLICATED = "replicated-"
_SECONDS = 1.0
_SHOWN_LEAST = 0.005


def main(chosen: list[str]) -> None:
    names = [load.name for load in LOADS] + ["transactions"]
    for name in names:
        if not chosen or name.startswith(tuple(chosen)):
            _print(name, _counted(name))
    for load in REPLICATED_LOADS:
        name = _REPLICATED + load.name
        if not chosen or name.startswith(tuple(chosen)):
            for role, counts in zip(("leader", "follower"), _counted_replicated(load), strict=True):
                _print(f"{name}, {role}", counts)


def _counted(name: str) -> dict[str, int]:
    """How many lines of each module the broker ran, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="klog-lines-") as directory:
        work = Path(directory)
        os.environ[_OUTPUT] = directory
        broker = start_klog(work / "klog", CONFIG, checkout=True, program=_PROGRAM)
        try:
            _load(name, broker, work)
        finally:
            broker.stop()
        return _written(work, broker)


def _counted_replicated(load: Load) -> list[dict[str, int]]:
    """As `_counted`, by the leader of three replicas and by a follower."""
    with tempfile.TemporaryDirectory(prefix="klog-lines-") as directory:
        work = Path(directory)
        os.environ[_OUTPUT] = directory
        with replicated(work, alone=True, checkout=True, program=_PROGRAM) as (cluster,):
            programs = Programs(work)
            with prepared(cluster.port, load, f"bench-{load.name}", work, cluster.replicas) as ready:
                programs.run_client(load, ready, seconds=_SECONDS, cpu_s=cluster.cpu_s)
        follower = next(broker for broker in cluster.brokers if broker is not cluster.leader)
        return [_written(work, broker) for broker in (cluster.leader, follower)]


def _written(work: Path, broker: RunningBroker) -> dict[str, int]:
    counts: dict[str, int] = json.loads((work / f"{broker.pid}.json").read_text())
    return counts


def _load(name: str, broker: RunningBroker, work: Path) -> None:
    if name == "transactions":
        with closing(Admin(broker.port)) as admin:
            admin.create(TOPIC, {}, PARTITIONS)
        run_transactions(broker, 0, producers=1)
        return
    load = next(each for each in LOADS if each.name == name)
    programs = Programs(work)
    with prepared(broker.port, load, f"bench-{name}", work) as ready:
        programs.run_client(load, ready, seconds=_SECONDS, cpu_s=broker.cpu_s)


def _print(name: str, counts: dict[str, int]) -> None:
    total = sum(counts.values())
    print(f"\n{name}: {total:,} lines")
    for module, lines in sorted(counts.items(), key=lambda item: -item[1]):
        if lines >= _SHOWN_LEAST * total:
            print(f"  {lines / total:6.1%}  {module}")


# The functions below run in the broker's process.


def _run_counted() -> None:
    from klog.commands import main as command  # noqa: PLC0415

    counts: collections.Counter[CodeType] = collections.Counter()

    def in_frame(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            counts[frame.f_code] += 1
        return in_frame

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        return in_frame if frame.f_code.co_filename.startswith(_PACKAGE) else None

    def write() -> None:
        sys.settrace(None)
        modules: collections.Counter[str] = collections.Counter()
        for code, lines in list(counts.items()):
            modules[code.co_filename.removeprefix(_PACKAGE)] += lines
        Path(os.environ[_OUTPUT], f"{os.getpid()}.json").write_text(json.dumps(modules))

    atexit.register(write)
    threading.settrace(on_call)
    sys.settrace(on_call)
    command.main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--broker"]:
        del sys.argv[1]
        _run_counted()
    else:
        main(sys.argv[1:])
