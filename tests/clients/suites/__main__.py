"""Fetches clients at a tag, runs their own tests on klog or on Kafka 3.9, and prints a table of results."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.clients.brokers import Broker, kafka_broker, klog_broker
from tests.clients.suites.definitions import SUITES, Result, Suite, counted
from tests.peers import KAFKA_3, KafkaPeer

_BY_NAME = {suite.name: suite for suite in SUITES}
# A suite that hangs must not hold up the others for ever.
_LIMIT_S = 3600


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suites", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(_BY_NAME)}; default: all")
    parser.add_argument("--broker", choices=("klog", "kafka3"), default="klog")
    parser.add_argument("--tag", help="another tag or branch of the client; with one SUITE only")
    parser.add_argument("--from", dest="origin", default="https://github.com", help="where repositories are")
    asked = parser.parse_args(words)
    unknown = set(asked.suites) - set(_BY_NAME)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    if asked.tag and len(asked.suites) != 1:
        parser.error("--tag needs exactly one SUITE")
    return asked


def run(suite: Suite, broker: Broker, origin: str, tag: str, work: Path) -> list[Result]:
    """The results of a suite. Raises CalledProcessError if the client cannot be fetched or prepared."""
    checkout = work / suite.name
    source = f"{origin}/{suite.repository}"
    clone = ("git", "clone", "--quiet", "--depth=1", f"--branch={tag}", source, str(checkout))
    subprocess.run(clone, check=True, stdout=sys.stderr)
    for command in suite.prepare:
        subprocess.run(command, cwd=checkout, check=True, stdout=sys.stderr)
    host, _, port = broker.bootstrap_servers.rpartition(":")
    environment = {**os.environ, **suite.environment(host, int(port))}
    # The tests of a client may use what klog's tests import, but not klog's settings of pytest.
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        suite.command,
        cwd=checkout,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT_S,
    )
    results = list(suite.results(done.stdout, checkout))
    if not results:
        sys.stderr.write(done.stdout[-4000:])
    return results


def _broker(kind: str, suite: Suite, work: Path) -> AbstractContextManager[Broker]:
    if kind == "klog":
        return klog_broker(suite.broker_config)
    return kafka_broker(KafkaPeer(KAFKA_3), work / "kafka", suite.broker_config)


def print_table(found: Iterable[tuple[Suite, str, list[Result]]], broker: str) -> bool:
    """Prints what passed and names what failed; whether every suite ran and nothing failed."""
    good = True
    failures: list[str] = []
    lines = [f"| suite | version | passed on {broker} | failed | skipped |", "| --- " * 5 + "|"]
    for suite, tag, results in found:
        count = counted(results)
        good = good and bool(count["passed"]) and not count["failed"]
        counts = (count[each] for each in ("passed", "failed", "skipped"))
        lines.append(f"| {suite.name} | {tag} | {' | '.join(map(str, counts))} |")
        failures += (f"{suite.name}: {each.test}" for each in results if each.outcome == "failed")
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, *failures]))
    return good


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 0 if all tests of all suites passed."""
    asked = arguments(words)
    found = []
    for suite in [_BY_NAME[name] for name in asked.suites] or SUITES:
        tag = asked.tag or suite.tag
        sys.stderr.write(f"{suite.name} {tag} on {asked.broker}\n")
        with tempfile.TemporaryDirectory(prefix="klog-suites-") as work:
            with _broker(asked.broker, suite, Path(work)) as broker:
                results = run(suite, broker, asked.origin, tag, Path(work))
            found.append((suite, tag, results))
    return 0 if print_table(found, asked.broker) else 1


if __name__ == "__main__":
    sys.exit(main())
