"""The commands of the page on administration run as written, in order, on one broker and on three."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import klog.testing
from tests.corpora import REPOSITORY
from tests.docs.console import console_examples, run_console
from tests.swap.klog_process import KlogBroker

ON_ONE_BROKER = (
    "Is my cluster healthy?",
    "Why is my group behind?",
    "Free space now",
    "Which broker has what?",
)
# How records are put into batches depends on the machine.
_SIZE = re.compile(r"\b[\d.]+ [KMG]iB\b")


def comparable(text: str) -> list[str]:
    """The lines of the text without sizes."""
    return [line.rstrip() for line in _SIZE.sub("SIZE", text).splitlines()]


def section(title: str) -> str:
    """The part of the page under a heading."""
    page = (REPOSITORY / "docs" / "admin.md").read_text(encoding="utf-8")
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("title", "count"), [("Move partitions", 8), ("Plan what to move", 6)])
def test_partitions_move_as_the_page_shows(
    title: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    with klog.testing.cluster(3, {"log.retention.ms": -1}) as cluster:
        cluster.await_members()
        monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
        for command, shown in console_examples(section(title)):
            assert comparable(run_console(command, tmp_path)) == comparable(shown), command
            ran += 1
    assert ran == count


def test_the_questions_are_answered_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    with KlogBroker(tmp_path, {"log.dirs": str(tmp_path / "klog-data")}) as broker:
        broker.start()
        monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", broker.bootstrap)
        for title in ON_ONE_BROKER:
            for command, shown in console_examples(section(title)):
                assert comparable(run_console(command, tmp_path)) == comparable(shown), command
                ran += 1
    assert ran == 10


def test_the_steps_before_kafka_4_work_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that look, and those on a log directory, which is one that old Kafka versions wrote."""
    old = REPOSITORY / "fixtures" / "up-08-010-11-28-39" / "logs"
    page = section("Move to Kafka 4")
    commands = re.findall(r"^ +(klog .+)$", page, re.MULTILINE)
    commands += re.findall(r"`(klog (?:brokers api-versions|transactions [^`]+))`", page)
    assert len(commands) == 7
    with KlogBroker(tmp_path, {"log.dirs": str(tmp_path / "klog-data")}) as broker:
        broker.start()
        monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", broker.bootstrap)
        assert "orders: created" in run_console("klog topics create orders", tmp_path)
        setting = "--entity-type brokers --entity-default --add-config log.retention.ms=1000000"
        run_console(f"klog configs alter {setting}", tmp_path)
        for command in commands:
            here = command.replace("/var/lib/kafka/orders-0", f"{old}/up-mix-0")
            here = here.replace("/var/lib/kafka", str(old)).replace("--broker-id 1", "--broker-id 0")
            shown = run_console(f'{here}; echo "exit code $?"', tmp_path)
            assert shown.endswith("exit code 0\n"), (command, shown)
    (topic,) = json.loads((tmp_path / "topics.json").read_text(encoding="utf-8"))
    assert topic["topic"] == "orders"
    assert "log.retention.ms" in (tmp_path / "brokers.json").read_text(encoding="utf-8")
