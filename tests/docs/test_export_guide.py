"""The commands and queries of the guide to exports run as written, in order, in an empty directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PEER_SKIP_PREFIX
from tests.corpora import FIXTURES, REPOSITORY
from tests.docs.console import run_console
from tests.docs.guide import comparable, examples, run
from tests.peers.maven import PeerUnavailableError
from tests.spark import sessions

GUIDE = (REPOSITORY / "docs" / "export.md").read_text(encoding="utf-8")


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_and_queries_print_what_the_guide_shows(directory) -> None:
    names: dict[str, object] = {}
    wanted = [example for example in examples(GUIDE) if "pyspark" not in example[1]]
    for example in wanted:
        run(example, directory, names)
    assert len(wanted) >= 8


def test_the_query_in_spark_sql_prints_what_the_guide_shows(directory) -> None:
    try:
        sessions.require_spark()
    except PeerUnavailableError as missing:
        pytest.skip(f"{PEER_SKIP_PREFIX}: {missing}")
    export = next(text for kind, text, _ in examples(GUIDE) if "--internal-topics" in text)
    run_console(export, directory)
    (query,) = [(text, shown) for kind, text, shown in examples(GUIDE) if "pyspark" in text]
    done = subprocess.run(
        [sys.executable, "-c", query[0]],
        cwd=directory,
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
    )
    assert comparable(done.stdout, directory) == comparable(query[1], directory)


def test_every_option_of_the_command_is_in_the_guide() -> None:
    from klog.commands.main import load

    options = {name for param in load("export").params for name in param.opts if name.startswith("--")}
    known = {"--key-schema", "--key-message", "--starting-offsets-by-timestamp-strategy", "--min-partitions"}
    missing = {name for name in options - known if name not in GUIDE}
    assert missing <= {"--help"}
