"""The table of exit codes in docs/commands.md: the same bad input gives the same code in every command."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import corpora
from tests.commands.running import Run, runner

ON_PATHS = {
    "dump-segment": ["dump-segment"],
    "dump-summary": ["dump-segment", "--summary"],
    "dump-parquet": ["dump-segment", "-f", "parquet", "-o", "x.parquet"],
    "dump-kafka": ["dump-segment", "-f", "kafka", "--files"],
    "verify": ["verify"],
    "rebuild-index": ["rebuild-index"],
    "rebuild-index-check": ["rebuild-index", "--check"],
    "recover": ["recover", "--yes"],
    "recover-dry-run": ["recover", "--dry-run"],
    "clean": ["clean", "--policy", "compact", "--yes"],
    "convert": ["convert", "--compression", "zstd", "--yes"],
    "convert-dry-run": ["convert", "--compression", "zstd", "--dry-run"],
    "clean-status": ["clean", "--status"],
    "export": ["export", "-o", "tables"],
    "export-dry-run": ["export", "-o", "tables", "--dry-run"],
}
ON_CLUSTERS = {
    "list": ["topics", "list"],
    "describe": ["topics", "describe"],
    "create": ["topics", "create", "t"],
    "add-partitions": ["topics", "add-partitions", "t", "--partitions", "3"],
    "delete": ["topics", "delete", "t", "--yes"],
    "configs-describe": ["configs", "describe", "--topic", "t"],
    "configs-alter": ["configs", "alter", "--topic", "t", "--delete", "retention.ms"],
    "groups-list": ["groups", "list"],
    "groups-describe": ["groups", "describe", "g"],
    "groups-reset-offsets": ["groups", "reset-offsets", "g", "--all-topics", "--to-latest"],
    "groups-delete": ["groups", "delete", "g", "--yes"],
    "groups-delete-offsets": ["groups", "delete-offsets", "g", "--topic", "t", "--yes"],
    "transactions-list": ["transactions", "list"],
    "transactions-describe": ["transactions", "describe", "id"],
    "transactions-producers": ["transactions", "describe-producers", "--topic", "t", "--partition", "0"],
    "transactions-hanging": ["transactions", "find-hanging", "--topic", "t"],
    "transactions-abort": [
        *("transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", "1", "--yes")
    ],
    "cluster": ["cluster"],
    "cluster-health": ["cluster", "health"],
    "brokers": ["brokers"],
    "brokers-configs": ["brokers", "configs", "0"],
    "brokers-api-versions": ["brokers", "api-versions"],
    "offsets": ["offsets", "t"],
    "offsets-as-kafka": ["offsets", "--topic", "t"],
    "log-dirs": ["log-dirs"],
    "delete-records": ["delete-records", "t:0:1", "--yes"],
    "elect-leader": ["elect-leader", "--preferred", "--all"],
    "produce-transaction": ["produce", "t", "value", "--transactional-id", "id"],
    "consume-group": ["consume", "t", "--group", "g"],
    "produce": ["produce", "t", "value"],
    "consume": ["consume", "t"],
}
NOBODY = 65534

on_paths = pytest.mark.parametrize("arguments", ON_PATHS.values(), ids=ON_PATHS)
on_clusters = pytest.mark.parametrize("arguments", ON_CLUSTERS.values(), ids=ON_CLUSTERS)


@pytest.fixture
def klog(capfd, monkeypatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capfd, monkeypatch)


@pytest.fixture
def denied(tmp_path: Path) -> Iterator[Path]:
    """A log directory that this user may not enter."""
    closed = tmp_path / "closed"
    shutil.copytree(corpora.Corpus("k39-codecs").path / "logs", closed / "logs")
    for path in [tmp_path.parent, tmp_path]:
        path.chmod(0o777)
    closed.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield closed / "logs"
    if is_root:
        os.seteuid(0)
    closed.chmod(0o700)


def all_of(text: str, wanted: tuple[str, ...]) -> bool:
    return any(one in text for one in wanted)


@on_paths
def test_a_path_that_does_not_exist_is_code_1_and_says_that(klog: Run, arguments: list[str]) -> None:
    done = klog(*arguments, "nowhere/orders-0")
    assert (done.code, done.out) == (1, "")
    assert all_of(done.err, ("there is no such file or directory", "does not exist"))


@on_paths
def test_a_path_without_permission_is_code_1_and_says_that(
    klog: Run, denied: Path, arguments: list[str]
) -> None:
    done = klog(*arguments, denied / "t-gzip-0")
    assert (done.code, done.out) == (1, "")
    assert "Permission denied" in done.err
    assert "no such file" not in done.err.lower()
    assert "does not exist" not in done.err


@on_paths
def test_a_file_that_is_not_kafkas_is_code_1(klog: Run, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "letter.txt").write_text("Dear broker")
    done = klog(*arguments, "letter.txt")
    assert (done.code, done.out) == (1, "")
    assert "letter.txt" in done.err


@on_paths
def test_a_directory_without_partitions_is_code_1(klog: Run, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    done = klog(*arguments, "empty")
    assert (done.code, done.out) == (1, "")
    assert "empty" in done.err


@on_clusters
def test_a_broker_that_does_not_answer_is_code_1(klog: Run, arguments: list[str]) -> None:
    done = klog(*arguments, "-b", "127.0.0.1:1", "--timeout-ms", "50")
    assert (done.code, done.out) == (1, "")
    assert "cannot connect to 127.0.0.1:1" in done.err


@on_clusters
@pytest.mark.parametrize("config", ["missing.properties", "."])
def test_a_client_config_that_cannot_be_read_is_code_1(klog: Run, arguments: list[str], config: str) -> None:
    done = klog(*arguments, "--command-config", config)
    assert (done.code, done.out) == (1, "")
    assert f"{config}: cannot be read: " in done.err


@pytest.mark.parametrize("command", ["serve", "adopt"])
@pytest.mark.parametrize("config", ["missing.properties", "."])
def test_a_broker_config_that_cannot_be_read_is_code_1(klog: Run, command: str, config: str) -> None:
    done = klog(command, "--config", config)
    assert (done.code, done.out) == (1, "")
    assert f"{config}: cannot be opened: " in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "-o", "log.retention.ms=soon"],
        ["clean", "--policy", "compact", "--config", "retention.ms=soon", "x-0"],
        ["clean", "--policy", "shrink", "x-0"],
        ["dump-segment", "--offsets", "9..1", "x-0"],
        ["consume", "t", "--grep", "("],
        ["export", "x-0", "-o", "y", "--columns", "colour"],
        ["topics", "create", "t", "--replica-assignment", "a:b"],
        ["configs", "alter", "--topic", "t", "--set", "retention.ms"],
        ["groups", "list", "--state", "Sleeping"],
        ["groups", "reset-offsets", "g", "--all-topics"],
        ["groups", "reset-offsets", "g", "--all-topics", "--by-duration", "1h"],
        ["transactions", "abort", "--topic", "t", "--partition", "0"],
        ["produce", "t", "v", "--transaction-records", "3"],
        ["produce", "t", "v", "--transactional-id", ""],
        ["consume", "t", "--group", ""],
        ["consume", "t", "--group", "g", "--last", "1"],
        ["produce", "t", "--key-delimiter", ""],
        ["formats", "no-such-format"],
        ["recover", "--index-max-bytes", "1", "x-0"],
    ],
    ids=" ".join,
)
def test_an_argument_that_can_never_be_right_is_code_2(klog: Run, arguments: list[str]) -> None:
    done = klog(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("klog: ")


def test_a_question_without_a_yes_is_code_1_and_changes_nothing(klog: Run, tmp_path: Path) -> None:
    shutil.copytree(corpora.Corpus("corrupt-k39").path / "logs", tmp_path / "damaged")
    shutil.copytree(corpora.Corpus("k39-compact").path / "logs", tmp_path / "dirty")
    for arguments in (
        ["recover", "damaged"],
        ["clean", "--policy", "delete", "--retention-ms", "1", "dirty"],
        ["topics", "delete", "t"],
        ["groups", "delete", "g"],
        ["transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", "1"],
    ):
        done = klog(*arguments)
        assert done.code == 1, arguments
        assert "klog: nothing was changed (--yes does it without asking)\n" in done.err


@pytest.mark.parametrize("what", ["listener", "metrics"])
def test_a_port_in_use_is_code_1(klog: Run, tmp_path: Path, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listener, metrics = (port, 0) if what == "listener" else (0, port)
        options = [f"listeners=PLAINTEXT://127.0.0.1:{listener}", f"log.dirs={tmp_path / 'data'}"]
        done = klog("serve", "-q", "-o", options[0], "-o", options[1], "--metrics-port", metrics)
    assert done.code == 1
    assert f"{port}" in done.err
    assert "Address already in use" in done.err
    assert "Errno" not in done.err


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    from klog.commands.shared import exit_codes

    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    codes = [int(line.split("|")[1]) for line in page.splitlines() if line[:3] in {"| 0", "| 1", "| 2"}]
    assert codes == [0, exit_codes.FAILED, exit_codes.WRONG_USAGE, exit_codes.INTERRUPTED]
