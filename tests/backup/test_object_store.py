"""Repositories in object stores: a real S3 server, one in memory, and stores that fail."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.backup.prune import GRACE_MS, Rules, plan_prune, prune
from klog.backup.repository import open_repository
from klog.backup.retrying import RetryPolicy, may_pass
from klog.backup.store import Store, open_store
from klog.backup.verify import VerifyOptions, verify
from klog.export.outputs import LocalOutput
from klog.formats.errors import MissingInputError, StorageError
from tests.backup.moto_s3 import moto_s3, uri_of
from tests.backup.repositories import Backups, log_files
from tests.export.logs import batch, replica, write_segment
from tests.export.object_store import counted_store


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URI of an empty bucket of moto's server."""
    with moto_s3() as port:
        yield uri_of(port)


def logs_that_grow(logs: Path) -> Iterator[None]:
    """Three states of two logs."""
    replica(logs / "orders-0", [batch(5 * each, 5, size=2000) for each in range(8)])
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])
    yield
    write_segment(logs / "orders-0", [batch(40, 5)])
    yield
    (logs / "orders-0" / "00000000000000000000.log").unlink()
    yield


def test_backups_in_s3_are_kept_checked_and_pruned(s3: str, backups: Backups, logs: Path) -> None:
    backups.place, backups.compression = s3, "zstd"
    contents = {}
    for _ in logs_that_grow(logs):
        contents[backups.run(logs).manifest.id] = log_files(logs / "orders-0")

    assert {each: backups.segments("orders", 0, each) for each in contents} == contents
    repository = backups.repository
    assert not verify(repository, repository.ids(), VerifyOptions(jobs=3)).findings

    plan = plan_prune(repository, Rules(last=1), backups.now_ms + 2 * GRACE_MS)
    prune(repository, plan, lambda _name: None)
    assert plan.objects
    assert backups.repository.ids() == [max(contents)]
    assert backups.segments("orders") == contents[max(contents)]
    assert not verify(repository, [max(contents)], VerifyOptions()).findings


def test_an_object_that_was_changed_in_s3_is_found(s3: str, backups: Backups, logs: Path) -> None:
    backups.place = s3.replace("cluster", "damaged")
    replica(logs / "orders-0", [batch(5 * each, 5) for each in range(4)])
    backups.run(logs)
    repository = backups.repository
    [name] = backups.objects()
    data = bytearray(repository.store.read(name))
    data[-1] ^= 1
    repository.store.put(name, bytes(data))

    [finding] = verify(repository, repository.ids(), VerifyOptions()).findings

    assert name in str(finding.what)


def test_a_bucket_that_does_not_exist_is_said_at_once(s3: str) -> None:
    pauses: list[float] = []
    store = open_store(s3.replace("backups", "nobody"), RetryPolicy(pause=pauses.append))
    with pytest.raises(StorageError):
        store.put("x", b"x")
    assert not pauses


def test_a_store_of_fsspec_is_a_repository(backups: Backups, logs: Path) -> None:
    with counted_store():
        backups.place = "counted://backups/cluster"
        for _ in logs_that_grow(logs):
            backups.run(logs)
            assert backups.segments("orders") == log_files(logs / "orders-0")


class _FailingOutput(LocalOutput):
    """A directory that behaves as an object store whose calls fail as `fails` says, one after the other."""

    def __init__(self, root: str, fails: Iterator[bool]) -> None:
        super().__init__(root)
        self._fails = fails

    def _maybe(self, what: str) -> None:
        if next(self._fails):
            cause = OSError(f"{what}: AWS Error SLOW_DOWN: HTTP status 503")
            raise StorageError(f"cannot be reached: {cause}", file=self.root) from cause

    def status(self, name: str) -> Any:
        self._maybe("HeadObject")
        return super().status(name)

    def files(self, below: str = "") -> Any:
        self._maybe("ListObjects")
        return super().files(below)

    def open(self, name: str) -> Any:
        self._maybe("GetObject")
        return super().open(name)

    def commit_all(self, files: Any) -> None:
        super().commit_all(files[: len(files) // 2])
        self._maybe("PutObject")
        super().commit_all(files)


@pytest.mark.parametrize("period", [2, 3, 5])
def test_a_store_that_fails_again_and_again_gets_the_same_backup(
    period: int, backups: Backups, logs: Path
) -> None:
    pauses: list[float] = []
    policy = RetryPolicy(pause=pauses.append, chance=lambda: 0.5)
    fails = (number % period == 1 for number in itertools.count())
    backups.store = Store(_FailingOutput(str(backups.place), fails), policy)
    for _ in logs_that_grow(logs):
        backups.run(logs)
        assert backups.segments("orders") == log_files(logs / "orders-0")
    assert len(pauses) > 10


def test_a_store_that_fails_for_long_ends_the_run_and_leaves_the_repository_valid(
    backups: Backups, logs: Path
) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5) for each in range(4)])
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])
    first = backups.run(logs).manifest.id
    write_segment(logs / "orders-0", [batch(20, 5)])
    write_segment(logs / "payments-0", [batch(20, 5)])
    pauses: list[float] = []
    policy = RetryPolicy(pause=pauses.append, chance=lambda: 0.0, limit_s=60)
    for works in itertools.count(1):
        backups.store = Store(_FailingOutput(str(backups.place), iter_then_fail(works)), policy)
        pauses.clear()
        failure = _failure(backups, logs)
        backups.store = None
        if failure is None:
            break
        assert "SLOW_DOWN" in str(failure)
        assert 60 <= sum(pauses) <= 80
        repository = backups.repository
        assert repository.ids() == [first]
        assert not verify(repository, [first], VerifyOptions()).findings
    assert works > 5
    assert backups.segments("orders") == log_files(logs / "orders-0")


def _failure(backups: Backups, logs: Path) -> StorageError | None:
    try:
        backups.run(logs)
    except StorageError as error:
        return error
    return None


def iter_then_fail(works: int) -> Iterator[bool]:
    return itertools.chain(itertools.repeat(False, works), itertools.repeat(True))


def test_pauses_double_up_to_a_limit() -> None:
    pauses: list[float] = []
    policy = RetryPolicy(0.5, 4.0, 20.0, pauses.append, chance=lambda: 0.0)

    def fail() -> None:
        raise StorageError("cannot be reached") from OSError("503")

    with pytest.raises(StorageError):
        policy.call(fail)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (OSError("When reading: AWS Error SLOW_DOWN: HTTP status 503"), True),
        (ConnectionResetError("connection was reset"), True),
        (TimeoutError("timed out"), True),
        (OSError("AWS Error ACCESS_DENIED during PutObject"), False),
        (OSError("AWS Error NO_SUCH_BUCKET"), False),
        (FileNotFoundError(2, "no such file"), False),
        (PermissionError(13, "permission denied"), False),
        (ValueError("no such scheme"), False),
        (None, False),
    ],
)
def test_only_what_may_pass_is_repeated(cause: BaseException | None, expected: bool) -> None:
    error = StorageError(f"cannot be written: {cause}")
    error.__cause__ = cause
    assert may_pass(error) is expected


def test_the_place_of_a_repository_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="is no backup repository"):
        open_repository(open_store(str(tmp_path / "nothing")))
    assert not os.path.exists(tmp_path / "nothing")
