"""Full and read-only disks under a repository and under a restore, damaged sources, clocks that are wrong."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from klog.backup.verify import VerifyOptions, verify
from klog.formats.names import TopicPartition
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.corpora import REPOSITORY
from tests.export.logs import batch, replica

ORDERS = TopicPartition("orders", 0)
HOURS_MS = 3 * 3_600_000
# Writes below a directory fail as on a full or a read-only disk, the first `works` ones not.
_BAD = """
import builtins, os, sys
place, works = {place!r}, {works}
def count():
    global works
    works -= 1
    if works < 0:
        raise OSError({error}, os.strerror({error}), place)
real = builtins.open
class Bad:
    def __init__(self, file): self._file = file
    def write(self, data):
        count()
        return self._file.write(data)
    def __getattr__(self, name): return getattr(self._file, name)
    def __enter__(self): return self
    def __exit__(self, *_): self._file.close()
def limited(file, mode="r", *rest, **named):
    opened = real(file, mode, *rest, **named)
    is_below = isinstance(file, (str, os.PathLike)) and os.fspath(file).startswith(place)
    return Bad(opened) if is_below and set(mode) & set("wxa") else opened
builtins.open = limited
sys.argv = ["klog", *{arguments!r}]
from klog.commands.main import main
main()
"""


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def on_bad_disk(
    place: Path, works: int, *arguments: object, error: int = errno.ENOSPC
) -> subprocess.CompletedProcess[str]:
    text = _BAD.format(place=str(place), works=works, error=error, arguments=list(map(str, arguments)))
    return subprocess.run(
        [sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def write(logs: Path, count: int) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5, size=300) for each in range(count)])
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(count)])


def require_whole(backups: Backups, logs: Path) -> None:
    repository = backups.repository
    assert not verify(repository, repository.ids(), VerifyOptions()).findings
    assert backups.segments("orders") == log_files(logs / "orders-0")


def test_a_disk_that_is_full_at_any_write_of_a_run(backups: Backups, logs: Path) -> None:
    write(logs, 4)
    backups.run(logs)
    [first] = backups.repository.ids()
    write(logs, 8)
    failed = 0
    for works in range(100):
        done = on_bad_disk(Path(backups.place), works, "backup", "run", logs, "--to", backups.place, "-q")
        if done.returncode == 0:
            break
        failed += 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "cannot be written: No space left on device" in done.stderr
        assert "(free some space and run it again: what is stored is kept)" in done.stderr
        assert backups.repository.ids() == [first]
        assert not verify(backups.repository, [first], VerifyOptions()).findings
    assert failed >= 4  # pieces, states, a manifest
    assert len(backups.repository.ids()) == 2
    backups.now_ms += 1000
    backups.run(logs)
    require_whole(backups, logs)


def test_a_disk_that_is_full_during_a_restore(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    write(logs, 8)
    backups.run(logs)
    target = tmp_path / "new"

    done = on_bad_disk(target, 2, "restore", backups.place, "--to", target, "-q")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "No space left on device" in done.stderr
    assert (target / "klog-restore-incomplete").is_dir()
    assert klog("restore", backups.place, "--to", target, "-q").code == 0
    assert log_files(target / "orders-0") == log_files(logs / "orders-0")


def test_damage_at_the_source_is_said_by_each_run_until_it_is_mended(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    write(logs, 4)
    path = logs / "orders-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    data = bytearray(whole)
    data[200] ^= 1  # in the first record
    path.write_bytes(data)
    place = tmp_path / "r"
    for _ in range(2):
        done = klog("backup", "run", logs, "--to", place)
        assert done.code == 1
        assert f"{path} at byte" in done.err
        assert "fails its checksum" in done.err
        assert klog("backup", "verify", place).code == 0
    path.write_bytes(whole)

    assert klog("backup", "run", logs, "--to", place).code == 0

    assert Backups(place).segments("orders") == log_files(logs / "orders-0")


@pytest.mark.parametrize("shift_ms", [-HOURS_MS, HOURS_MS])
def test_a_clock_that_is_set_between_runs(backups: Backups, logs: Path, shift_ms: int) -> None:
    """The order of backups is that of their clocks, so a run may build on an older one: it is whole."""
    for count in (4, 8):
        write(logs, count)
        backups.run(logs)
    backups.now_ms += shift_ms
    write(logs, 12)

    made = backups.run(logs).manifest

    assert not verify(backups.repository, backups.repository.ids(), VerifyOptions()).findings
    assert backups.segments("orders", 0, made.id) == log_files(logs / "orders-0")


def test_brokers_whose_clocks_differ_by_hours_share_a_repository(backups: Backups, tmp_path: Path) -> None:
    for number in range(4):
        broker = tmp_path / f"broker{number % 2}"
        replica(broker / f"orders-{number % 2}", [batch(5 * each, 5) for each in range(4 + number)])
        backups.now_ms += HOURS_MS if number % 2 == 0 else -HOURS_MS
        made = backups.run(broker).manifest

    assert set(backups.states(made.id)) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert not verify(backups.repository, backups.repository.ids(), VerifyOptions()).findings


def test_a_read_only_repository_refuses_runs_and_serves_restores(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    write(logs, 4)
    backups.run(logs)
    before = backups.objects("")
    write(logs, 8)

    place, run = Path(backups.place), ("backup", "run", logs, "--to", backups.place, "-q")
    done = on_bad_disk(place, 0, *run, error=errno.EROFS)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "cannot be written: Read-only file system" in done.stderr
    assert backups.objects("") == before
    done = on_bad_disk(place, 0, "restore", place, "--to", tmp_path / "new", "-q", error=errno.EROFS)
    assert done.returncode == 0, done.stderr
