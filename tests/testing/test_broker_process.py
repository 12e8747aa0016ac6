"""`klog.testing` starts a broker in a separate process and removes its files at the end."""

from __future__ import annotations

import os
import resource
import runpy
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import klog.testing
from klog.client.errors import RefusedError
from klog.protocol.channel import Channel
from klog.testing import plugin
from klog.testing.process import BrokerFailedError
from tests.processes import child
from tests.waiting import eventually


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False


def answers(broker) -> bool:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with Channel(host, int(port)) as channel:
        return bool(channel.versions)


def test_the_broker_serves_inside_the_block_and_ends_with_it() -> None:
    with klog.testing.broker() as broker:
        assert answers(broker)
        pid, work = broker.pid, broker.log_path.parent
        assert is_alive(pid)
    assert not is_alive(pid)
    assert not work.exists()


def fail_beside(broker) -> None:
    raise ZeroDivisionError


def test_a_failure_inside_the_block_leaves_nothing_behind() -> None:
    seen = []
    with pytest.raises(ZeroDivisionError), klog.testing.broker() as broker:  # noqa: PT012 (is the point)
        seen.append((broker.pid, broker.log_path.parent))
        fail_beside(broker)
    [(pid, work)] = seen
    assert not is_alive(pid)
    assert not work.exists()


def test_configs_have_kafkas_names() -> None:
    with klog.testing.broker({"num.partitions": 3, "auto.create.topics.enable": False}) as broker:
        broker.create_topic("as-the-broker-has-it", partitions=-1)
        assert broker.partition_dir("as-the-broker-has-it", 2).is_dir()


def test_partitions_are_spread_over_the_log_directories() -> None:
    with klog.testing.broker(log_dir_count=2) as broker:
        broker.create_topic("spread", partitions=2)
        assert len(broker.log_dirs) == 2
        assert broker.partition_dir("spread", 0).parent != broker.partition_dir("spread", 1).parent
        with pytest.raises(BrokerFailedError, match="no log directory holds spread-2"):
            broker.partition_dir("spread", 2)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restarted_broker_has_the_same_address_and_files(how: str) -> None:
    with klog.testing.broker() as broker:
        broker.create_topic("kept")
        before = broker.bootstrap_servers, broker.pid
        getattr(broker, how)()
        assert broker.pid is None
        broker.start()
        assert broker.bootstrap_servers == before[0]
        assert broker.pid != before[1]
        with pytest.raises(RefusedError, match="TOPIC_ALREADY_EXISTS"):
            broker.create_topic("kept")


def test_several_listeners_keep_their_ports() -> None:
    config = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with klog.testing.broker(config) as broker:
        before = dict(broker.endpoints)
        assert list(before) == ["INSIDE", "OUTSIDE"]
        broker.restart()
        assert broker.endpoints == before


def test_a_broker_that_cannot_start_says_why() -> None:
    refused = klog.testing.broker({"num.partitions": "many"})
    with pytest.raises(BrokerFailedError, match=r"ended with status 1(.|\n)*num\.partitions"):
        refused.__enter__()


def test_a_broker_that_ended_by_itself_is_an_error_at_the_end() -> None:
    with pytest.raises(BrokerFailedError, match="ended with status -9"), klog.testing.broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)


def test_a_broker_ends_with_the_process_that_started_it() -> None:
    program = """if True:
        import sys, time, klog.testing
        with klog.testing.broker() as broker:
            print(broker.pid, broker.log_path.parent, flush=True)
            time.sleep(60)
    """
    with child([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid, work = parent.stdout.readline().split()
        assert is_alive(int(pid))
        parent.kill()
        parent.wait()
        eventually(lambda: not is_alive(int(pid)))
    assert not Path(work).exists()


def test_a_broker_whose_parent_is_already_gone_removes_its_directory(tmp_path: Path) -> None:
    for number in range(2):
        work = tmp_path / str(number)
        work.mkdir()
        command = [sys.executable, "-m", "klog.testing.child", str(work), "1", f"log.dirs={work / 'logs'}"]
        options = ["listeners=PLAINTEXT://127.0.0.1:0"]
        done = subprocess.run([*command, *options], stdin=subprocess.DEVNULL, timeout=120, check=False)
        assert done.returncode == 0
        assert not work.exists()


def test_a_running_broker_is_not_started_again() -> None:
    with klog.testing.broker() as broker:
        pid = broker.pid
        broker.start()
        assert broker.pid == pid


def test_ctrl_c_does_not_reach_the_broker() -> None:
    text = """
import os, signal, klog.testing
signal.signal(signal.SIGINT, signal.SIG_IGN)
with klog.testing.broker() as broker:
    os.killpg(0, signal.SIGINT)
    broker.create_topic("still-served")
    print("served")
"""
    command = [sys.executable, "-c", text]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, start_new_session=True, check=False
    )
    assert (done.stdout, done.stderr) == ("served\n", "")


def test_a_broker_starts_although_many_files_are_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        pytest.skip(f"no more than {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while held.enter_context((tmp_path / "x").open("w")).fileno() < 1024:
            pass
        with klog.testing.broker() as broker:
            assert broker.bootstrap_servers


def test_one_broker_serves_the_whole_run(klog_broker) -> None:
    assert answers(klog_broker)


def test_a_consumer_that_subscribes_reads_and_commits(klog_broker) -> None:
    from confluent_kafka import Consumer, Producer

    klog_broker.create_topic("subscribed")
    servers = {"bootstrap.servers": klog_broker.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("subscribed", b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["subscribed"])
    messages = []
    eventually(lambda: messages.append(consumer.poll(0.1)) or messages[-1])
    assert messages[-1].value() == b"hello"
    (committed,) = consumer.commit(messages[-1], asynchronous=False)
    consumer.close()
    assert (committed.error, committed.offset) == (None, 1)


def test_pytest_before_8_reads_the_plugin_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin is loaded wherever klog is installed, also by projects that do not use it."""

    def hookimpl(*, hookwrapper: bool = False, optionalhook: bool = False, tryfirst: bool = False):
        return lambda function: function

    monkeypatch.setattr(pytest, "hookimpl", hookimpl)
    assert runpy.run_path(plugin.__file__)["klog_broker"]


def test_a_failed_test_shows_the_brokers_log(tmp_path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def klog_broker_config():\n"
        "    return {'broker.id': 7}\n"
    )
    (tmp_path / "test_it.py").write_text("def test_it(klog_broker):\n    assert 1 == 2\n")
    # The plugin is named here and also found by its entry point; both together must work.
    command = [sys.executable, "-m", "pytest", "-p", "klog.testing.plugin", "--rootdir", ".", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert done.returncode == 1, done.stderr
    assert "klog broker's log" in done.stdout
    assert "broker 7 of cluster" in done.stdout
