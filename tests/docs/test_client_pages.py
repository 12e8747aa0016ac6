"""The commands of the pages on the broker and on the client commands run as written, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpora import FIXTURES, REPOSITORY
from tests.docs.console import console_examples, run_console
from tests.swap.klog_process import KlogBroker

_VARIABLE = (
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b"), "12:00:00.000"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "127.0.0.1:9092"),
    (re.compile(r"(of cluster|id) [\w-]{22}\b"), r"\1 <id>"),
    (re.compile(r'"(timestamp|producerId)":\d+'), r'"\1":0'),
)


def comparable(text: str) -> list[str]:
    """The lines of the text without times, ids and the port."""
    for pattern, same in _VARIABLE:
        text = pattern.sub(same, text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KlogBroker]:
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    # As the pages say: otherwise the broker soon deletes the records of 2020 that are restored.
    with KlogBroker(tmp_path, {"log.retention.ms": -1, "log.dirs": str(tmp_path / "klog-data")}) as broker:
        broker.start()
        monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", broker.bootstrap)
        yield broker


def examples(name: str) -> list[tuple[str, str]]:
    return console_examples((REPOSITORY / "docs" / name).read_text(encoding="utf-8"))


def test_the_client_commands_print_what_their_page_shows(broker: KlogBroker, tmp_path: Path) -> None:
    ran = 0
    for command, shown in examples("clients.md"):
        assert comparable(run_console(command, tmp_path)) == comparable(shown), command
        ran += 1
    assert ran > 8


def test_the_broker_and_the_first_commands_print_what_its_page_shows(
    broker: KlogBroker, tmp_path: Path
) -> None:
    (serve, log), *others = examples("broker.md")
    assert serve == "klog serve"
    shown = [line.replace("klog-data", str(tmp_path / "klog-data")) for line in comparable(log)]
    logged = comparable(broker.log_text)
    assert [line for line in logged if line in shown] == shown
    before_adoption = [example for example in others if "adopt" not in example[0]]
    for command, output in before_adoption:
        assert comparable(run_console(command, tmp_path)) == comparable(output), command
    assert len(before_adoption) == 3
