"""A real S3 server that refuses, delays and cuts connections, under real runs, checks and restores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from klog.backup.prune import GRACE_MS, Rules, plan_prune
from klog.backup.retrying import RetryPolicy
from klog.backup.store import Store, open_store
from klog.backup.verify import VerifyOptions, verify
from klog.export.outputs import FileStatus, LocalOutput
from klog.formats.errors import StorageError
from tests.backup.faulty_s3 import (
    CUT_DOWNLOAD,
    CUT_UPLOAD,
    DENIED,
    SILENT,
    SLOW,
    SLOW_DOWN,
    Fault,
    FaultyS3,
    faulty_s3,
)
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica

MINUTES_S = 180


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyS3]:
    with faulty_s3() as found:
        yield found


@pytest.fixture
def s3(server: FaultyS3) -> Iterator[FaultyS3]:
    """The server without a fault at the beginning."""
    whole = server.choice
    server.requests.clear()
    yield server
    server.choice = whole


@pytest.fixture
def in_s3(s3: FaultyS3, backups: Backups, tmp_path: Path) -> Backups:
    """Backups of their own in the bucket."""
    backups.place, backups.compression = s3.place(tmp_path.name), "none"
    return backups


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def write(logs: Path, count: int) -> None:
    """Two logs, of some 100 KiB each."""
    replica(logs / "orders-0", [batch(5 * each, 5, size=5000) for each in range(count)])
    replica(logs / "payments-0", [batch(5 * each, 5, size=5000) for each in range(count)])


@dataclass(slots=True)
class Once:
    """A fault of the first requests that `concerns` chooses, each path once."""

    fault: Fault
    concerns: Callable[[str, str], bool]
    met: set[tuple[str, str]] = field(default_factory=set)
    most: int = 1 << 30

    def __call__(self, method: str, path: str) -> Fault | None:
        place = method, path.partition("?")[0]
        if len(self.met) >= self.most or place in self.met or not self.concerns(method, path):
            return None
        self.met.add(place)
        return self.fault


def is_upload(method: str, path: str) -> bool:
    return method == "PUT" and "partNumber" in path


def is_data(method: str, path: str) -> bool:
    return method == "GET" and "/data/" in path


def require_whole(backups: Backups, logs: Path) -> None:
    repository = backups.repository
    assert not verify(repository, repository.ids(), VerifyOptions()).findings
    assert backups.segments("orders") == log_files(logs / "orders-0")


@pytest.mark.slow
def test_connections_that_are_lost_in_the_middle_of_uploads(s3: FaultyS3, in_s3: Backups, logs: Path) -> None:
    write(logs, 8)
    s3.choice = once = Once(CUT_UPLOAD, is_upload, most=2)

    in_s3.run(logs)

    assert len(once.met) == 2
    require_whole(in_s3, logs)


def test_connections_that_are_lost_in_the_middle_of_each_download(
    s3: FaultyS3, in_s3: Backups, logs: Path
) -> None:
    write(logs, 8)
    in_s3.run(logs)
    s3.choice = once = Once(CUT_DOWNLOAD, is_data)

    require_whole(in_s3, logs)

    assert len(once.met) > 2


def test_a_store_that_is_slow(s3: FaultyS3, in_s3: Backups, logs: Path) -> None:
    write(logs, 8)
    in_s3.run(logs)
    s3.choice = lambda _method, _path: SLOW
    require_whole(in_s3, logs)


@pytest.mark.slow
def test_requests_that_are_never_answered_are_repeated(s3: FaultyS3, in_s3: Backups, logs: Path) -> None:
    write(logs, 8)
    s3.choice = once = Once(SILENT, is_upload, most=1)

    in_s3.run(logs)

    assert once.met
    require_whole(in_s3, logs)


@pytest.mark.slow
def test_a_store_that_answers_503_for_minutes_in_the_middle_of_a_run(
    s3: FaultyS3, in_s3: Backups, logs: Path
) -> None:
    """The client of S3 repeats each request for seconds, and then klog does."""
    write(logs, 8)
    pauses: list[float] = []
    said: list[StorageError] = []
    policy = RetryPolicy(
        first_pause_s=MINUTES_S / 2,
        largest_pause_s=MINUTES_S / 2,
        pause=pauses.append,
        now_s=lambda: 0.0,
        chance=lambda: 0.0,
        on_retry=lambda error, _pause_s: said.append(error),
    )
    in_s3.store = open_store(str(in_s3.place), policy)
    s3.choice = lambda method, path: (
        SLOW_DOWN if is_upload(method, path) and "/data/" in path and sum(pauses) < MINUTES_S else None
    )

    assert in_s3.run(logs).is_clean

    assert sum(pauses) >= MINUTES_S
    assert all("SLOW_DOWN" in str(error) for error in said)
    in_s3.store = None
    require_whole(in_s3, logs)


@pytest.mark.parametrize("what", ["everything", "uploads", "manifest"])
def test_a_store_that_refuses_by_permission(
    klog: Run, s3: FaultyS3, in_s3: Backups, logs: Path, tmp_path: Path, what: str
) -> None:
    write(logs, 8)
    in_s3.run(logs)
    before = in_s3.repository.ids()
    write(logs, 12)
    concerns: Mapping[str, Callable[[str, str], bool]] = {
        "everything": lambda _method, _path: True,
        "uploads": lambda method, _path: method in ("PUT", "POST"),
        "manifest": lambda method, path: method in ("PUT", "POST") and "/manifests/" in path,
    }
    s3.choice = lambda method, path: DENIED if concerns[what](method, path) else None

    done = klog("backup", "run", logs, "--to", in_s3.place)

    assert (done.code, done.out) == (1, "")
    assert "ACCESS_DENIED" in done.err
    assert done.err.count("\n") == 1
    if what != "everything":  # who may only read reads
        assert in_s3.repository.ids() == before
        assert klog("backup", "verify", in_s3.place).code == 0
        assert klog("restore", in_s3.place, "--to", tmp_path / "new", "-q").code == 0
    s3.choice = lambda _method, _path: None
    in_s3.run(logs)
    require_whole(in_s3, logs)


def test_a_store_that_gets_worse_while_it_is_verified_is_no_damage(
    klog: Run, s3: FaultyS3, in_s3: Backups, logs: Path
) -> None:
    write(logs, 8)
    in_s3.run(logs)
    s3.choice = lambda method, path: DENIED if is_data(method, path) else None

    done = klog("backup", "verify", in_s3.place)

    assert done.code == 1
    assert "cannot be read: " in done.err
    assert "needs it" not in done.err  # which would be said of a damaged object


# -- Listings that come late --------------------------------------------------------------------------------


class _LateOutput(LocalOutput):
    """A store whose listings lack the newest objects: those that are named in `late`."""

    def __init__(self, root: str, late: set[str]) -> None:
        super().__init__(root)
        self._late = late

    def files(self, below: str = "") -> dict[str, FileStatus]:
        return {name: status for name, status in super().files(below).items() if name not in self._late}


def test_a_run_whose_listing_lacks_the_newest_backup_builds_on_the_one_before(
    backups: Backups, logs: Path
) -> None:
    write(logs, 4)
    backups.run(logs)
    before = backups.objects("")
    write(logs, 8)
    second = backups.run(logs).manifest.id
    late = backups.objects("") - before
    write(logs, 12)
    backups.store = Store(_LateOutput(str(backups.place), late))

    assert backups.run(logs).is_clean

    backups.store = None
    assert second in backups.repository.ids()
    require_whole(backups, logs)


@pytest.mark.parametrize("rules", [Rules(last=1), Rules(daily=1), Rules(before_ms=1 << 60)])
def test_a_prune_whose_listing_lacks_the_newest_backup_removes_nothing_that_it_needs(
    backups: Backups, logs: Path, rules: Rules
) -> None:
    for count in (4, 8):
        write(logs, count)
        backups.run(logs)
    before = backups.objects("")
    write(logs, 12)
    newest = backups.run(logs).manifest.id
    late = backups.objects("") - before
    backups.store = Store(_LateOutput(str(backups.place), late))

    plan = plan_prune(backups.repository, rules, backups.now_ms + 2 * GRACE_MS)
    for name in plan.objects:
        os.unlink(Path(backups.place) / name)

    backups.store = None
    assert not verify(backups.repository, [newest], VerifyOptions()).findings


def test_the_limit_of_retries_is_one_of_time() -> None:
    """A store that does not answer takes a minute for each call, without a pause."""
    now_s = 0.0
    calls = 0

    def silent() -> None:
        nonlocal now_s, calls
        now_s += 100.0
        calls += 1
        raise StorageError("cannot be reached") from TimeoutError("timed out")

    policy = RetryPolicy(limit_s=300.0, pause=lambda _pause_s: None, now_s=lambda: now_s)
    with pytest.raises(StorageError):
        policy.call(silent)
    assert calls == 3
