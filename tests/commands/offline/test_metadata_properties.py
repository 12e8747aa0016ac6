"""`klog metadata properties` translates a server.properties, names what changes and keeps the old file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.commands.running import Run, runner

TEXT = (
    "# mine\nbroker.id=1\nzookeeper.connect=zk:2181\nssl.keystore.password=hush\nlisteners=PLAINTEXT://h:1\n"
)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


def test_without_a_new_file_the_changes_are_shown_and_nothing_is_written(klog: Run, file: Path) -> None:
    done = klog("metadata", "properties", file)
    assert done.code == 1, "the voters are to be decided"
    assert "to be decided" in done.out
    assert "hush" not in done.out + done.err
    assert [each.name for each in file.parent.iterdir()] == ["server.properties"]


def test_the_new_file_has_the_mode_of_the_old_one_and_goes_back(klog: Run, file: Path) -> None:
    new, back = file.with_name("kraft.properties"), file.with_name("back.properties")
    done = klog(
        "metadata", "properties", file, "--roles", "broker,controller", "--voters", "1@h:2", "--write", new
    )
    assert (done.code, done.out.splitlines()[-1]) == (0, f"written to {new}")
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert "ssl.keystore.password=hush\n" in new.read_text()
    assert file.read_text() == TEXT
    done = klog("metadata", "properties", new, "--to", "klog", "--write", back, "--json")
    assert done.code == 0
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert {"config": "node.id", "change": "renamed", "reason": "it is broker.id"} in rows
    assert "broker.id=1\n" in back.read_text()
    assert "zookeeper.connect" not in back.read_text()


def test_a_file_that_exists_is_not_replaced(klog: Run, file: Path) -> None:
    refused = klog("metadata", "properties", file, "--voters", "1@h:2", "--write", file)
    assert (refused.code, "exists already" in refused.err) == (1, True)
    assert file.read_text() == TEXT


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--roles", "brokers"), "--roles brokers is not known"),
        (("--to", "zookeeper", "--voters", "1@h:2"), "--voters has no meaning"),
        (("--zookeeper-connect", "zk:1"), "--zookeeper-connect has no meaning"),
        (("--to", "zookeeper"), "not the configs of a KRaft node"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    klog: Run, file: Path, options: tuple[str, ...], why: str
) -> None:
    refused = klog("metadata", "properties", file, *options)
    assert (refused.code, why in refused.err) == (2, True)
