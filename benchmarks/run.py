"""Runs benchmarks, prints their results: `python -m benchmarks.run [--rounds N] [--scratch DIR] [NAME...]`.

They need a JDK 17, Maven (which downloads Kafka's jars once) and about 15 GiB of disk below --scratch. Run
them on a machine that does nothing else: other work disturbs the figures, although both sides run in turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.contestants import KAFKA, require_kernel
from benchmarks.measure import MIB, BenchmarkError
from benchmarks.rows import Row, Rows, as_json
from benchmarks.suite import SUITE, Bench
from tests.peers import PeerUnavailableError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    names = ", ".join(SUITE)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {names}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs (default 5)")
    parser.add_argument(
        "--scratch", type=Path, help="keep generated files here (default: a temporary directory)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures of both sides there, too"
    )
    parser.add_argument("--mib", type=int, default=256, help="size of the segment in MiB (default 256)")
    requests = parser.add_argument_group(
        "broker-requests (--klog-only: also broker-cold, -transactions, -groups, -offsets and -flood)"
    )
    requests.add_argument(
        "--loads", nargs="+", default=(), metavar="LOAD", help="only loads whose names begin so"
    )
    requests.add_argument("--seconds", type=float, default=3.0, help="of one run of a load (default 3)")
    requests.add_argument("--klog-only", action="store_true", help="without Kafka")
    requests.add_argument(
        "--checkout",
        action="store_true",
        help="without Kafka, on klog's modules of the checkout, not compiled",
    )
    requests.add_argument("--running", metavar="PORT:PID", help="a broker that runs already on 127.0.0.1")
    chosen = parser.parse_args()
    running = tuple(map(int, chosen.running.split(":"))) if chosen.running else None
    request_options = {
        "loads": chosen.loads,
        "seconds": chosen.seconds,
        "klog_only": chosen.klog_only,
        "checkout": chosen.checkout,
        "running": running,
    }
    needs_kafka = not (chosen.klog_only or chosen.checkout or running)
    unknown = sorted(set(chosen.names) - set(SUITE))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {names}")
    try:
        if needs_kafka:
            assert KAFKA.classpath
    except PeerUnavailableError as missing:
        sys.stderr.write(f"no peer to compare with: {missing}\n")
        return 1
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}"
    print(f"Python {platform.python_version()}, Kafka {KAFKA.version}, {machine}")
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as temporary:
        scratch: Path = chosen.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        sizes = {"segment_bytes": chosen.mib * MIB, "large_segment_bytes": 4 * chosen.mib * MIB}
        bench = Bench(scratch.resolve(), chosen.rounds, **sizes, request_options=request_options)
        failed, rows = run_all(chosen.names or list(SUITE), bench)
    if chosen.json is not None:
        chosen.json.write_text(as_json(machine, {"rounds": chosen.rounds, "segment_mib": chosen.mib}, rows))
    return failed


def run_all(names: list[str], bench: Bench) -> tuple[int, list[Row]]:
    """Runs the named benchmarks one after the other.

    Returns 1 if any of them could not be measured, and the figures of the others.
    """
    failed = 0
    rows: list[Row] = []
    for name in names:
        try:
            require_kernel()
            measured = Rows(name)
            print(f"\n{name}: {SUITE[name](replace(bench, rows=measured))}", flush=True)
            rows += measured.taken
        except BenchmarkError as error:
            failed = 1
            print(f"\n{name}: NOT MEASURED: {error}", flush=True)
    return failed, rows


if __name__ == "__main__":
    sys.exit(main())
