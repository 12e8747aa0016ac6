"""The process of a broker may use little memory: it says so, loses nothing and serves what it can."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import KlogBroker

_M_ARENA_MAX = -8


def room(mebibytes: int) -> str:
    """Python code that leaves the process so much address space beyond what its modules take.

    glibc reserves 64 MiB for each thread that allocates while others do, which is chance: here all share one
    arena.
    """
    return f"""
import ctypes
import resource
import klog.server.run
ctypes.CDLL(None).mallopt({_M_ARENA_MAX}, 1)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + ({mebibytes} << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def test_a_broker_without_memory_for_its_start_says_so(tmp_path: Path) -> None:
    with KlogBroker(tmp_path, before=room(4)) as klog:
        klog.spawn()
        assert klog.ended() == 1
        assert "the broker cannot start: " in klog.log_text
        assert "ulimit -a" in klog.log_text
        assert "Traceback" not in klog.log_text


def test_partitions_beyond_the_memory_are_refused_and_the_broker_serves_on(tmp_path: Path) -> None:
    acknowledged: Written = {}
    # Each partition maps 20 MiB of indexes.
    with KlogBroker(tmp_path, before=room(1000)) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"first": (1, {})})
        admin = AdminClient({"bootstrap.servers": klog.bootstrap})
        wait(admin.create_topics([NewTopic("many", 50, 1)]).values(), 60)
        writer = Writer(klog.bootstrap, acknowledged)
        for number in range(100):
            writer.write("first", b"%d" % number)
        writer.finish()
        assert "no memory is left in which the indexes of" in klog.log_text
        assert "goes offline" not in klog.log_text
        assert "Traceback" not in klog.log_text
        klog.stop()
    with KlogBroker(tmp_path) as klog:
        klog.start()
        found = read(klog.bootstrap, acknowledged)
        assert found == acknowledged
        klog.stop()
