"""`klog adopt` gives partition directories whose metadata was lost their topics back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from klog.formats.names import TopicPartition
from klog.metadata.configs import read_config
from klog.metadata.embedded import FILE_NAME
from klog.metadata.topics import request_deletion, topic_names
from klog.server.startup.broker import Broker
from tests.commands.running import Run, runner
from tests.server.test_broker import config, make_topic, write
from tests.waiting import eventually

WHERE = TopicPartition("t", 0)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def started(data: Path, **options: str) -> Broker:
    return Broker(config(data, **options))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The log directory of a stopped broker with topic t: two partitions, a record in the first."""
    broker = started(tmp_path / "a")
    make_topic(broker, "t", 2, **{"retention.ms": "-1"})
    write(broker, WHERE, [b"k"], b"v")
    broker.stop()
    # A later start: the log has leader epoch 1 then.
    (tmp_path / "a" / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n6 0\n")
    return tmp_path / "a"


def lose_file(data: Path) -> None:
    for path in data.glob(f"{FILE_NAME}*"):
        path.unlink()


def lose_all(data: Path) -> None:
    lose_file(data)
    (data / "meta.properties").unlink()


def lose_and_start(data: Path) -> None:
    lose_all(data)
    started(data).stop()


def lose_and_fail_to_start(data: Path) -> None:
    lose_file(data)
    with pytest.raises(Exception, match="klog adopt"):
        started(data)


@pytest.mark.parametrize("lose", [lose_file, lose_all, lose_and_start, lose_and_fail_to_start])
def test_lost_topics_come_back_with_their_records(
    data: Path, klog: Run, lose: Callable[[Path], None]
) -> None:
    lose(data)
    before = files(data)
    dry = klog("adopt", "--dry-run", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert (dry.code, files(data)) == (0, before)
    assert "t: 2 partitions would be adopted (topic id " in dry.out
    done = klog("adopt", "--yes", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert done.code == 0, done.err
    assert "t: 2 partitions adopted (topic id " in done.out
    assert "retention.ms" in done.err

    # Retention of the broker would delete the record, which is from 2023. The adopted topic keeps it.
    broker = started(
        data, log_retention_ms="1", log_initial_task_delay_ms="0", log_retention_check_interval_ms="1"
    )
    try:
        make_topic(broker, "other")
        write(broker, TopicPartition("other", 0), [b"k"], b"v")
        eventually(lambda: broker.replicas.partitions["other", 0].log.log_start_offset == 1)
        partition = broker.replicas.partitions[WHERE]
        assert partition.state.is_leader
        assert partition.state.leader_epoch > 6
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 1)
        write(broker, WHERE, [b"k2"], b"v")
        eventually(lambda: partition.log.high_watermark == 2)
        request_deletion(broker.store, "t")
        eventually(lambda: "t" not in topic_names(broker.store))
    finally:
        broker.stop()
    assert not (data / "t-0").exists()
    assert not list(data.glob("*-stray"))


def test_a_partition_of_gzip_copies_comes_back_empty_only_if_that_is_asked(data: Path, klog: Run) -> None:
    lose_all(data)
    (log,) = (data / "t-0").glob("*.log")
    log.rename(f"{log}.gz")
    refused = klog("adopt", "--yes", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert (refused.code, refused.out) == (1, "")
    why = "of partitions 0 there are only gzip copies of segments (unpack them first; --allow-missing makes"
    assert why in refused.err
    done = klog("adopt", "--yes", "--allow-missing", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert (done.code, "t: 2 partitions adopted" in done.out) == (0, True)


def test_nothing_is_written_if_every_directory_has_an_owner(data: Path, klog: Run) -> None:
    (data / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    done = klog("adopt", "--yes", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert (done.code, done.out) == (0, "")
    assert "every partition directory has an owner" in done.err


def test_a_leader_epoch_that_is_older_than_the_records_is_raised(data: Path, klog: Run) -> None:
    done = klog("adopt", "--yes", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert (done.code, done.out) == (0, "t-0: leader epoch 7\n")
    broker = started(data)
    try:
        eventually(lambda: WHERE in broker.replicas.partitions)
        assert broker.replicas.partitions[WHERE].state.leader_epoch >= 7
        assert broker.replicas.partitions[WHERE].log.epochs.entries[0].epoch == 6
    finally:
        broker.stop()


def test_a_directory_that_stays_without_an_owner_is_named(data: Path, klog: Run) -> None:
    lose_file(data)
    shutil.rmtree(data / "t-0")
    done = klog("adopt", "--yes", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert done.code == 1
    assert "t-1" in done.err
    assert "--allow-missing" in done.err
    done = klog("adopt", "--yes", "--allow-missing", "-o", f"log.dirs={data}", "-o", "broker.id=7")
    assert (done.code, "of them empty: 0" in done.out) == (0, True)


def test_a_running_broker_keeps_its_metadata(data: Path, klog: Run) -> None:
    code = "import sys, time; from pathlib import Path; from tests.server.test_broker import config\n"
    code += "from klog.server.startup.broker import Broker\n"
    code += (
        "broker = Broker(config(Path(sys.argv[1]))); print('up', flush=True); sys.stdin.read(); broker.stop()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        done = klog("adopt", "--yes", "-o", f"log.dirs={data}", "-o", "broker.id=7")
        process.stdin.close()
    assert done.code == 1
    assert re.search(r"process \d+ \(.+\) holds this log directory", done.err)


def test_a_broker_id_is_needed(data: Path, klog: Run, tmp_path: Path) -> None:
    lose_all(data)
    (tmp_path / "server.properties").write_text(f"log.dirs={data}\n")
    done = klog("adopt", "--config", tmp_path / "server.properties")
    assert done.code == 2
    assert "-o broker.id=N" in done.err


def test_directories_are_named_and_topics_get_their_configs_back(
    data: Path, klog: Run, tmp_path: Path
) -> None:
    lose_all(data)
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"t": {"retention.ms": "1000", "cleanup.policy": "delete"}, "gone": {}}))
    words = ("adopt", "--yes", data, "-o", "broker.id=7", "--topic-configs", file)
    words = (*words, "--topic-config", "t:segment.bytes=2048", "--topic-config", "t:retention.ms=-1")
    before = files(data)
    dry = klog(*words, "--dry-run")
    assert (dry.code, files(data)) == (0, before)
    wanted = "    configs: cleanup.policy=delete, retention.ms=-1, segment.bytes=2048\n"
    assert wanted in dry.out
    done = klog(*words)
    assert (done.code, wanted in done.out) == (0, True), done.err
    assert "the given configs of gone are not used: no such topic was lost" in done.err
    assert "keep all records" not in done.err
    broker = started(data)
    try:
        assert read_config(broker.store, "topics/t") == {
            "cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "2048",
        }  # fmt: skip
        eventually(lambda: WHERE in broker.replicas.partitions)
        assert broker.replicas.partitions[WHERE].log.config.segment_bytes == 2048
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--topic-config", "t:no.such=1"), 2, "topic t: "),
        (("--topic-config", "t:retention.ms=soon"), 2, "topic t: "),
        (("--topic-config", "t"), 2, "TOPIC:KEY=VALUE"),
        (("--topic-configs", "missing.json"), 1, "missing.json"),
        (("elsewhere",), 1, "the log directory does not exist"),
    ],
)
def test_bad_configs_and_directories_change_nothing(
    data: Path, klog: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    lose_all(data)
    before = files(data)
    done = klog("adopt", "--yes", data, "-o", "broker.id=7", *words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert files(data) == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a/t-0", "is a partition directory (name the log directory that holds it: "),
        ("a/t-1", "is a partition directory"),
        ("", "holds no partition directories"),
        ("empty", "holds no partition directories"),
    ],
)
def test_only_log_directories_are_adopted(
    data: Path, klog: Run, tmp_path: Path, name: str, said: str
) -> None:
    lose_all(data)
    (tmp_path / "empty").mkdir()
    before = files(tmp_path)
    done = klog("adopt", tmp_path / name, "-o", "broker.id=7", "--yes")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert files(tmp_path) == before


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_on_a_terminal_it_shows_what_it_will_write_and_asks(data: Path, answer: str, code: int) -> None:
    lose_all(data)
    before = files(data)
    near, far = os.openpty()
    command = [sys.executable, "-c", "from klog.commands.main import main; main()"]
    words = ["adopt", str(data), "-o", "broker.id=7"]
    with subprocess.Popen([*command, *words], stdin=far, stdout=far, stderr=far) as process:
        os.close(far)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(near, 1000)
        assert b"t: 2 partitions would be adopted" in shown
        assert b"configs: cleanup.policy=delete, retention.bytes=-1, retention.ms=-1" in shown
        assert files(data) == before
        os.write(near, answer.encode() + b"\n")
        with suppress(OSError):  # the other end is closed
            while part := os.read(near, 1000):
                shown += part
    os.close(near)
    assert process.returncode == code
    assert (b"t: 2 partitions adopted" in shown) == (code == 0)
    assert (files(data) == before) == (code != 0)
