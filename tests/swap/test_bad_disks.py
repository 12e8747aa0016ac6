"""The disk of a log directory is full, broken or read-only.

The broker takes that directory offline, logs one clear line and serves the others. If no directory is left,
it ends with exit status 1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import Config, KlogBroker
from tests.threads import join, started
from tests.waiting import eventually

SMALL_INDEXES: Config = {"log.index.size.max.bytes": 4096, "log.segment.bytes": 50_000_000}
FILE_LIMIT_BYTES = 2_000_000

# Files cannot grow beyond the limit. As on a full disk, a write fails after it has written a part. That must
# not happen to the bytecode of a module, which later processes would read.
FULL = f"""
import resource, sys
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_LIMIT_BYTES}, {FILE_LIMIT_BYTES}))
"""


def broken(directory: Path) -> str:
    """Python code that makes writes below the directory fail once the file `broken` exists."""
    return f"""
import errno, os
def _breaking(call):
    def guarded(descriptor, *args):
        path = descriptor if isinstance(descriptor, str) else os.readlink(f"/proc/self/fd/{{descriptor}}")
        if path.startswith({str(directory)!r}) and os.path.exists({str(directory.parent / "broken")!r}):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return call(descriptor, *args)
    return guarded
for _name in ("write", "writev", "pwrite", "pwritev", "fsync", "fdatasync"):
    setattr(os, _name, _breaking(getattr(os, _name)))
"""


# Root ignores the modes of directories unless it drops this capability.
OBEY_MODES = """
import ctypes, os, sys
if os.geteuid() == 0 and "KLOG_TEST_OBEYS" not in os.environ:
    os.environ["KLOG_TEST_OBEYS"] = "1"
    assert ctypes.CDLL(None, use_errno=True).prctl(24, 1, 0, 0, 0) == 0
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""


def two_directories(work: Path, before: str = "") -> KlogBroker:
    config: Config = {**SMALL_INDEXES, "log.dirs": f"{work / 'a'},{work / 'b'}"}
    return KlogBroker(work, config, before=before)


def directory_of(klog: KlogBroker, partition: str) -> Path:
    (found,) = [each for each in klog.log_directories() if (each / partition).exists()]
    return found


def one_topic_in_each(klog: KlogBroker) -> tuple[str, str]:
    """Creates a topic in each directory. Returns the topic of the first and that of the second."""
    Admin(klog.bootstrap).create({"one": (1, {}), "two": (1, {})})
    eventually(lambda: {("one", 0), ("two", 0)} <= Admin(klog.bootstrap).led())
    in_a = "one" if directory_of(klog, "one-0") == klog.log_directories()[0] else "two"
    return in_a, "two" if in_a == "one" else "one"


def write_until_refused(klog: KlogBroker, topic: str, acknowledged: Written) -> None:
    writer = Writer(klog.bootstrap, acknowledged, message_timeout_ms=3000, batch_size=100_000)

    def refused() -> bool:
        writer.write(topic, os.urandom(20_000))
        writer.flush(0.01)
        # On a busy machine the client may also give up records that took too long.
        return bool(writer.refused and offline_lines(klog))

    eventually(refused)
    writer.abandon()


def offline_lines(klog: KlogBroker) -> list[str]:
    return [line for line in klog.log_text.splitlines() if "goes offline" in line]


def assert_serves(klog: KlogBroker, topic: str) -> None:
    writer = Writer(klog.bootstrap, acknowledged := {})
    writer.write(topic, b"served")
    writer.finish()
    found = read(klog.bootstrap, acknowledged)
    assert all(offsets.items() <= found[partition].items() for partition, offsets in acknowledged.items())


def test_a_full_disk_takes_its_directory_offline_and_the_other_serves_on(tmp_path: Path) -> None:
    acknowledged: Written = {}
    with two_directories(tmp_path, FULL) as klog:
        klog.start()
        full, other = one_topic_in_each(klog)
        write_until_refused(klog, full, acknowledged)
        assert_serves(klog, other)
        assert len(offline_lines(klog)) == 1, klog.log_text
        assert str(tmp_path / "a") in offline_lines(klog)[0]
        assert "File too large" in offline_lines(klog)[0]
        assert "Traceback" not in klog.log_text
        klog.stop()
        assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
        assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    # With free space again, all acknowledged records are there.
    with two_directories(tmp_path) as klog:
        klog.start()
        eventually(lambda: (full, 0) in Admin(klog.bootstrap).led())
        found = read(klog.bootstrap, acknowledged)
        assert acknowledged[full, 0].items() <= found[full, 0].items()
        klog.stop()


def test_an_io_error_takes_its_directory_offline_and_the_other_serves_on(tmp_path: Path) -> None:
    with two_directories(tmp_path, broken(tmp_path / "a")) as klog:
        klog.start()
        lost, other = one_topic_in_each(klog)
        (tmp_path / "broken").touch()
        write_until_refused(klog, lost, {})
        assert_serves(klog, other)
        assert len(offline_lines(klog)) == 1, klog.log_text
        assert "Input/output error" in offline_lines(klog)[0]
        assert "Traceback" not in klog.log_text
        klog.stop()


def test_with_all_directories_failed_the_broker_ends_with_status_1(tmp_path: Path) -> None:
    with KlogBroker(tmp_path, SMALL_INDEXES, before=broken(tmp_path / "logs")) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (1, {})})
        (tmp_path / "broken").touch()
        writer = Writer(klog.bootstrap, {})
        writer.write("t", b"to nowhere")
        assert klog.ended() == 1
        writer.abandon()
        assert "all log directories have failed" in klog.complaints[-1]
        assert "Traceback" not in klog.log_text


def test_a_read_only_directory_is_offline_from_the_start_and_the_other_serves(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o555)
    with two_directories(tmp_path, OBEY_MODES) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (3, {})})
        assert_serves(klog, "t")
        assert len(offline_lines(klog)) == 1, klog.log_text
        assert str(tmp_path / "a") in offline_lines(klog)[0]
        assert "Permission denied" in offline_lines(klog)[0]
        klog.stop()


def test_with_nothing_but_a_read_only_directory_the_broker_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o555)
    with KlogBroker(tmp_path, before=OBEY_MODES) as klog:
        klog.spawn()
        assert klog.ended() == 1
        assert "no log directory can be used" in klog.log_text
        assert "Traceback" not in klog.log_text


@pytest.fixture
def tiny_disk(tmp_path: Path):
    """A file system of 3 MB. Skips the test if none can be mounted."""
    place = tmp_path / "a"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    yield place
    # Lazily, because a worker process of a killed broker may still use it for a moment.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_file_system_without_space_takes_its_directory_offline(tiny_disk: Path, tmp_path: Path) -> None:
    acknowledged: Written = {}
    with two_directories(tmp_path) as klog:
        klog.start()
        full, other = one_topic_in_each(klog)
        write_until_refused(klog, full, acknowledged)
        assert_serves(klog, other)
        assert len(offline_lines(klog)) == 1, klog.log_text
        assert "No space left on device" in offline_lines(klog)[0]
        assert "Traceback" not in klog.log_text
        klog.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_under_load_is_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    acknowledged: Written = {}
    # The tests may run under nohup, and the broker would inherit that.
    heard = f"import signal; signal.signal({number:d}, signal.SIG_DFL)"
    with two_directories(tmp_path, before=heard) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (4, {"segment.bytes": "50000"})})
        ending = threading.Event()

        def write() -> None:
            writer = Writer(klog.bootstrap, acknowledged, message_timeout_ms=2000)
            while not ending.is_set():
                writer.write("t", os.urandom(200))
            writer.abandon()

        thread = started(write)
        time.sleep(1)
        klog.stop(number)
        ending.set()
        join([thread])
        assert all((each / ".kafka_cleanshutdown").exists() for each in klog.log_directories())
        assert klog.complaints == []
        klog.start()
        assert "recovered" not in klog.log_text
        found = read(klog.bootstrap, acknowledged)
        assert all(offsets.items() <= found[partition].items() for partition, offsets in acknowledged.items())
        klog.stop()


def test_the_end_of_the_terminal_does_not_stop_a_broker_under_nohup(tmp_path: Path) -> None:
    nohup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with KlogBroker(tmp_path, before=nohup) as klog:
        klog.start()
        klog.process.send_signal(signal.SIGHUP)
        assert Admin(klog.bootstrap).topics() == set()
        klog.stop()
        assert "SIGHUP" not in klog.log_text


def test_a_broker_without_descriptors_for_its_start_says_so(tmp_path: Path) -> None:
    with KlogBroker(
        tmp_path, before="import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))"
    ) as klog:
        klog.spawn()
        assert klog.ended() == 1
        assert "the broker cannot start: [Errno 24] Too many open files" in klog.log_text
        assert "Traceback" not in klog.log_text


def test_one_directory_under_two_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with two_directories(tmp_path) as klog:
        klog.spawn()
        assert klog.ended() == 2
        assert "a directory is named twice, maybe by a symbolic link" in klog.log_text


def test_a_directory_without_its_metadata_is_not_used_for_another_cluster(tmp_path: Path) -> None:
    with KlogBroker(tmp_path) as klog:
        klog.start()
        klog.stop()
        (tmp_path / "logs" / "klog-metadata.sqlite").unlink()
        klog.spawn()
        assert klog.ended() == 1
        assert "if its file was removed or replaced, restore it or run 'klog adopt'" in klog.log_text


def test_the_broker_runs_without_its_working_directory(tmp_path: Path) -> None:
    here = str(tmp_path / "x")
    gone = f"import os; os.mkdir({here!r}); os.chdir({here!r}); os.rmdir({here!r})"
    with KlogBroker(tmp_path, before=gone) as klog:
        klog.start()
        assert f"data in {tmp_path / 'logs'};" in klog.log_text
        klog.stop()
        klog.spawn(log_dirs="here")
        assert klog.ended() == 2
        assert "Invalid value here for configuration log.dirs: the current directory is gone" in klog.log_text


def test_a_signal_during_the_start_is_a_clean_stop_or_leaves_the_marker_alone(tmp_path: Path) -> None:
    with two_directories(tmp_path) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (8, {})})
        klog.stop()
        for delay_ms in range(0, 700, 70):
            klog.spawn()
            time.sleep(delay_ms / 1000)
            klog.process.send_signal(signal.SIGTERM)
            # Before the broker has set its signal handlers, the signal ends Python. Nothing has changed then.
            assert klog.ended() in (0, -signal.SIGTERM)
            assert all((each / ".kafka_cleanshutdown").exists() for each in klog.log_directories())
            assert "Traceback" not in klog.log_text
