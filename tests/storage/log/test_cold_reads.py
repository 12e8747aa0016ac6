"""Reads that may not wait for the disk: what is not in the page cache is an error, and can be loaded."""

from __future__ import annotations

import errno
import os

import pytest

from klog.storage.log import cold_reads
from klog.storage.log.cold_reads import ColdReadError, ProbedFile, read_at


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    with path.open("rb") as opened:
        yield opened


def read(file, size_bytes=10, position=5, *, may_wait=False, probed=None):
    return read_at(probed or ProbedFile(), file.fileno(), file.name, size_bytes, position, may_wait=may_wait)


def no_wait_gives(monkeypatch: pytest.MonkeyPatch, result: OSError | int) -> None:
    """Let reads that may not wait end so."""

    def preadv(*_):
        if isinstance(result, OSError):
            raise result
        return result

    monkeypatch.setattr(cold_reads, "_NO_WAIT", 8)
    monkeypatch.setattr(os, "preadv", preadv, raising=False)


@pytest.mark.parametrize("may_wait", [False, True])
def test_cached_bytes_are_read(file, may_wait: bool) -> None:
    file.read()
    assert read(file, may_wait=may_wait) == bytes(range(5, 15))


def test_a_reader_that_may_wait_never_asks_whether_bytes_are_cached(file, monkeypatch) -> None:
    no_wait_gives(monkeypatch, OSError(errno.EAGAIN, "cold"))
    assert read(file, may_wait=True) == bytes(range(5, 15))


@pytest.mark.parametrize("result", [OSError(errno.EAGAIN, "cold"), 3])
def test_bytes_that_are_not_all_cached_are_an_error(file, monkeypatch, result) -> None:
    no_wait_gives(monkeypatch, result)
    with pytest.raises(ColdReadError):
        read(file)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_say_may_wait(file, monkeypatch, number: int) -> None:
    no_wait_gives(monkeypatch, OSError(number, "not supported"))
    assert read(file) == bytes(range(5, 15))


def test_a_file_system_that_refuses_is_asked_once_for_each_file(file, monkeypatch) -> None:
    probed = ProbedFile()
    no_wait_gives(monkeypatch, OSError(errno.EOPNOTSUPP, "not supported"))
    assert read(file, probed=probed) == bytes(range(5, 15))
    no_wait_gives(monkeypatch, OSError(errno.EAGAIN, "cold"))
    assert read(file, probed=probed) == bytes(range(5, 15))
    with pytest.raises(ColdReadError):
        read(file)


def test_a_system_that_cannot_say_may_wait(file, monkeypatch) -> None:
    monkeypatch.setattr(cold_reads, "_NO_WAIT", None)
    assert read(file) == bytes(range(5, 15))


def test_other_errors_are_the_disks(file, monkeypatch) -> None:
    no_wait_gives(monkeypatch, OSError(errno.EIO, "I/O"))
    with pytest.raises(OSError, match="I/O"):
        read(file)


def test_loading_reads_the_bytes_of_the_error(file, monkeypatch) -> None:
    asked = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, *place: asked.append(place) or pread(fd, *place))
    ColdReadError(file.name, 10, 5).load()
    assert asked == [(10, 5)]


def test_loading_a_file_that_is_gone_changes_nothing(tmp_path) -> None:
    ColdReadError(str(tmp_path / "gone"), 10, 5).load()
