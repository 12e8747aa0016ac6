"""`klog zookeeper` runs a ZooKeeper server that keeps its data, and says what is missing if it cannot."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klog.formats.errors import KlogError
from klog.metadata.zookeeper import ZooKeeperStore
from klog.server.startup import zookeeper_runner
from tests.peers.broker import free_port
from tests.processes import child

KLOG = [sys.executable, "-m", "klog"]


@contextmanager
def running(work: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [*KLOG, "zookeeper", "--data-dir", str(work / "data"), "--port", str(port)]
    with child(command, cwd=work, stderr=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_keeps_its_data_over_restarts(tmp_path: Path, number: int) -> None:
    port = free_port()
    for round_number in range(2):
        with running(tmp_path, port) as process:
            store = ZooKeeperStore(f"127.0.0.1:{port}", connect_timeout_ms=120_000)
            if round_number == 0:
                store.create("/kept", b"data")
            assert store.get("/kept").data == b"data"
            store.close()
            process.send_signal(number)
            process.wait(60)
            said = process.stderr.read()
        assert said.splitlines()[0].endswith(
            f"at 127.0.0.1:{port}, data in {tmp_path / 'data'}; Ctrl-C stops it"
        )
        assert "ERROR" not in said


def refused(*options: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*KLOG, "zookeeper", *options],
        cwd=cwd,
        env={"PATH": "/nonexistent", **environment},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    assert "there is no java on the path (install Java 17 or later" in refused(cwd=tmp_path)
    assert f"there is no java in JAVA_HOME ({tmp_path})" in refused(cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--port", str(port), cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert f"127.0.0.1:{port} cannot be bound: Address already in use (give another --port or --host)" in said


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    launch = zookeeper_runner.ZooKeeperLaunch(str(tmp_path / "file" / "data"), free_port())
    with pytest.raises(KlogError, match="Not a directory"):
        zookeeper_runner.prepare(launch, zookeeper_runner.find_jars(), "/bin/java")


def test_without_pyspark_the_jars_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_runner.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(KlogError, match=r"there are no ZooKeeper jars.*pip install pyspark"):
        zookeeper_runner.find_jars()
