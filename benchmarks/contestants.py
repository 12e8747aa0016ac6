"""Describes the programs that are measured: klog's commands, Kafka's tools, and programs of this package.

Kafka's tools have the JVM flags of their own scripts.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from benchmarks.measure import Contestant
from benchmarks.package import require_compiled
from tests.peers import KafkaPeer
from tests.peers.kafka import DUMP_TOOL

KAFKA = KafkaPeer()
_KLOG = Path(sys.executable).with_name("klog")


def klog(*args: str) -> Contestant:
    """A klog command, from the environment that runs the benchmarks."""
    return Contestant(f"klog {args[0]}", (str(_KLOG), *args))


@functools.cache
def require_kernel() -> None:
    """Raises BenchmarkError if the klog of this environment runs on its pure-Python twins."""
    require_compiled((str(_KLOG), "--version"), os.environ, broker=False)


def kafka_dump(file: Path, *flags: str) -> Contestant:
    """`kafka-dump-log` 3.9.1 with the JVM flags of its script."""
    return Contestant("kafka-dump-log", KAFKA.command(DUMP_TOOL, *flags, "--files", str(file)))


def kafka_recover(partition: Path) -> Contestant:
    """`LogSegment.recover` of Kafka 3.9.1 on the segment with base offset 0, as a process."""
    return Contestant("LogSegment.recover", KAFKA.command("RecoverSegment", str(partition), "0"))


def program(label: str, module: str, *args: str) -> Contestant:
    """One of the small programs of this package."""
    return Contestant(label, (sys.executable, "-m", f"benchmarks.{module}", *args))
