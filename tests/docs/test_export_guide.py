"""The commands and queries of the guide to exports run as written, in order, in an empty directory."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PEER_SKIP_PREFIX
from tests.corpora import FIXTURES, REPOSITORY
from tests.docs.console import run_console
from tests.peers.maven import PeerUnavailableError
from tests.spark import sessions

GUIDE = (REPOSITORY / "docs" / "export.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"```(console|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
_RATE = re.compile(r" in [\d.]+ s, [\d.]+ [KMG]?i?B/s")
_FILE_SIZE = re.compile(r"( in \d+ files?), [\d.]+ [KMG]?i?B")  # pyarrow writes its version into each file
_HERE = "/srv/guide"

Example = tuple[str, str, str]


def examples() -> list[Example]:
    """Each example: its kind, the text to run, and its output. Commands of a console block are separate."""
    found: list[Example] = []
    for kind, text, shown in _BLOCK.findall(GUIDE):
        if kind == "python":
            found.append((kind, text, shown))
            continue
        for example in text.split("$ ")[1:]:
            command, _, output = example.partition("\n")
            found.append((kind, command, output))
    return found


def comparable(text: str, directory: Path) -> list[str]:
    """The lines of the text without what depends on the machine: the directory and the speed."""
    text = _RATE.sub(" in a moment", text.replace(str(directory), _HERE))
    text = _FILE_SIZE.sub(r"\1", text)
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_and_queries_print_what_the_guide_shows(directory) -> None:
    names: dict[str, object] = {}
    ran = 0
    for kind, text, shown in examples():
        if "pyspark" in text:
            continue
        if kind == "console":
            printed = run_console(text, directory)
        else:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, "export.md", "exec"), names)
            printed = out.getvalue()
        assert comparable(printed, directory) == comparable(shown, directory), text
        ran += 1
    assert ran >= 8


def test_the_query_in_spark_sql_prints_what_the_guide_shows(directory) -> None:
    try:
        sessions.require_spark()
    except PeerUnavailableError as missing:
        pytest.skip(f"{PEER_SKIP_PREFIX}: {missing}")
    export = next(text for kind, text, _ in examples() if "--internal-topics" in text)
    run_console(export, directory)
    (query,) = [(text, shown) for kind, text, shown in examples() if "pyspark" in text]
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
