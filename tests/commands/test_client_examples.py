"""The examples in the help of the client commands run as written."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from klog.commands.cluster import configs, consume, produce, topics
from tests import corpora
from tests.processes import child
from tests.waiting import eventually

COMMANDS = (
    topics.list_topics,
    topics.create_topics,
    topics.describe_topics,
    topics.add_partitions,
    produce.produce,
    consume.consume,
    configs.describe_configs,
    configs.alter_configs,
    topics.delete_topics,
)
EXAMPLES = [
    line.strip()
    for command in COMMANDS
    for line in inspect.getdoc(command).partition("Examples:")[2].splitlines()
    if line.strip()
]

# jq may not be installed. This one only checks that its input is JSON Lines.
JQ = f"""#!{sys.executable}
import json, sys
print([json.loads(line) for line in sys.stdin])
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A directory with the files that the examples name, and a jq."""
    files = tmp_path_factory.mktemp("files")
    (files / "app.log").write_text("started\nready\n")
    (files / "orders.txt").write_text("one\ntwo\n")
    (files / "prices.txt").write_text("bread:2\nmilk:NULL\n")
    shutil.copytree(corpora.FIXTURES / "k39-codecs/logs/t-gzip-0", files / "orders-0")
    jq = files / "bin" / "jq"
    jq.parent.mkdir()
    jq.write_text(JQ)
    jq.chmod(jq.stat().st_mode | stat.S_IXUSR)
    return files


@pytest.fixture
def shell(cluster, files):
    """Runs a line in the shell, with the cluster as klog's default; ends `--follow` when it has connected."""

    def run(line: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(files / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
        env = {**os.environ, "PATH": path, "KLOG_BOOTSTRAP_SERVER": cluster}
        options = {"cwd": files, "env": env, "stdin": subprocess.DEVNULL, "text": True}
        if "--follow" in line:
            return interrupted(["bash", "-c", f"exec {line}"], **options)
        command = ["bash", "-o", "pipefail", "-c", line]
        return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)

    return run


def interrupted(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    """Run a client until it has connected, and end it with Ctrl-C."""
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        eventually(lambda: process.poll() is not None or has_connected(process.pid))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def has_connected(pid: int) -> bool:
    """Whether a process has a TCP connection. Sockets of other kinds can be open while Python starts."""
    try:
        opened = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
        connections = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except FileNotFoundError:  # one was closed meanwhile
        return False
    return any(f"socket:[{each.split()[9]}]" in opened for each in connections)


def prepare(shell, example: str) -> None:
    """Create or delete the topics that the example expects to exist, or not to exist."""
    shell("klog topics delete orders --yes --if-exists")
    # A name is free a moment after its topic was deleted, not at once.
    only_asked = "--validate-only" if example.startswith("klog topics create") else ""
    eventually(lambda: shell(f"klog topics create orders --partitions 2 {only_asked}").returncode == 0)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_written(shell, cluster, example):
    prepare(shell, example)
    line = example
    if "--broker 1" in example or "0:1,1:2,2:0" in example:  # this cluster has only one broker
        broker = "0" if shell("klog configs describe --broker 0").returncode == 0 else "1"
        line = example.replace("--broker 1", f"--broker {broker}").replace(
            "0:1,1:2,2:0", f"{broker},{broker}"
        )
    if example == "klog topics delete orders":
        assert shell(line).returncode == 1  # it asks, and there is no terminal
        return
    done = shell(line)
    if "--client-metrics" in example or "configs describe --group" in example:
        assert done.returncode == 0 or "with KRaft only" in done.stderr, done.stderr
        return
    assert done.returncode == (130 if "--follow" in example else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_has_examples():
    for command in COMMANDS:
        assert "klog " in inspect.getdoc(command).partition("Examples:")[2], command
