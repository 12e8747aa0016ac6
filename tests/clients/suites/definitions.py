"""Which tests of which client are run, how they find the broker, and how their results are read."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree


class Result(NamedTuple):
    """One test and how it ended: `passed`, `failed` or `skipped`."""

    test: str
    outcome: str


class Suite(NamedTuple):
    """The tests of one client.

    `tag` is the version whose tests are known to run. `prepare` are command lines in the checkout before the
    tests, `command` is that of the tests. `environment` gets host and port of the broker. `results` gets what
    the tests printed, and their checkout.
    """

    name: str
    repository: str
    tag: str
    prepare: Sequence[Sequence[str]]
    command: Sequence[str]
    environment: Callable[[str, int], Mapping[str, str]]
    results: Callable[[str, Path], Iterable[Result]]
    broker_config: Mapping[str, str | int] = {}


def go_results(printed: str, _checkout: Path) -> Iterable[Result]:
    """The results of `go test -json`. Subtests count, tests that only group them do not."""
    outcomes: dict[str, str] = {}
    for line in printed.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
        if "Test" in event and event["Action"] in words:
            outcomes[event["Test"]] = words[event["Action"]]
    parents = {name.rpartition("/")[0] for name in outcomes}
    return [Result(name, outcome) for name, outcome in outcomes.items() if name not in parents]


def junit_results(_printed: str, checkout: Path) -> Iterable[Result]:
    """The results of pytest in `results.xml`."""
    results = []
    for case in ElementTree.parse(checkout / "results.xml").iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        results.append(Result(f"{case.get('classname')}.{case.get('name')}", outcome))
    return results


_FRANZ_GO_TESTS = "TestGroup|TestTxn|TestIssue|TestPausePartition|TestAutoCommit|TestDirect"

SUITES = (
    Suite(
        "franz-go",
        "twmb/franz-go",
        "v1.21.5",
        (),
        ("go", "test", "-json", "-count=1", "-timeout=30m", "-run", _FRANZ_GO_TESTS, "./pkg/kgo"),
        lambda host, port: {
            "KGO_SEEDS": f"{host}:{port}",
            "KGO_TEST_RF": "1",
            # The suite's own number takes half an hour.
            "KGO_TEST_RECORDS": "50000",
        },
        go_results,
    ),
    Suite(
        "kafka-python",
        "dpkp/kafka-python",
        "3.0.9",
        (
            (sys.executable, "-m", "venv", "environment"),
            ("environment/bin/python", "-m", "pip", "install", "--quiet", ".[testing]"),
        ),
        (
            *("environment/bin/python", "-m", "pytest", "-q", "--junitxml=results.xml", "--timeout=120"),
            *(f"test/integration/test_{part}_integration.py" for part in ("consumer", "producer", "admin")),
        ),
        lambda host, port: {
            "KAFKA_URI": f"kafka://{host}:{port}",
            "KAFKA_VERSION": "3.9.1",
            "KAFKA_ROOT": ".",  # the suite wants a directory, and uses it only for brokers of its own
        },
        junit_results,
        {"num.partitions": 4},
    ),
)
"""All suites, by the order in which they run."""


def counted(results: Iterable[Result]) -> Counter[str]:
    """How many tests ended in each way."""
    return Counter(result.outcome for result in results)
