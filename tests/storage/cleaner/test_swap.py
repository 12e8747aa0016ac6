"""A cleaning that is killed at any step loses nothing, whichever program starts on the directory
afterwards.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from klog.formats import compression
from klog.formats.constants import CODEC_MASK, CONTROL_BIT
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.cleaner.cleaning import clean
from klog.storage.cleaner.selection import dirty_log
from klog.storage.cleaner.swap import DirectoryChanges, remove, swap_in
from klog.storage.cleaner.task import DELETED, SWAP, CleanedGroup, CleanTask
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import RecoverySettings
from klog.storage.repair.recovery_run import run_recovery
from klog.storage.repair.segment_scan import IndexSettings
from tests.peers import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.storage.cleaner.logs import NOW_MS, SMALL, LogWriter, closed

Record = tuple[int, bytes | None, bytes | None]


class KilledError(BaseException):
    """The process was killed."""


class InterruptedChanges(DirectoryChanges):
    """Fails after a number of changes; the disk's contents at that time are kept as `remains`."""

    def __init__(self, steps: int, directory: Path, remains: Path) -> None:
        self._left = steps
        self._directory = directory
        self._remains = remains

    def _live(self) -> None:
        if not self._left:
            shutil.copytree(self._directory, self._remains)
            raise KilledError
        self._left -= 1

    def rename(self, source: str, target: str) -> None:
        self._live()
        super().rename(source, target)

    def sync(self, directory: str) -> None:
        self._live()
        super().sync(directory)

    def unlink(self, path: str) -> None:
        self._live()
        super().unlink(path)


def records_of(directory: Path) -> list[Record]:
    """Every data record of the live segments."""
    found: list[Record] = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        assert kernel.verify(data, table) == 0
        for row in range(len(table)):
            if table.attributes[row] & CONTROL_BIT:
                continue
            records, payload = RecordTable(), data
            if table.attributes[row] & CODEC_MASK and table.count[row]:
                start, size = kernel.payload_span(data, table, row)
                payload = compression.decompress(
                    table.attributes[row] & CODEC_MASK, data[start : start + size]
                )
                kernel.decode_payload(payload, table, row, records)
            else:
                kernel.decode(data, table, row, row + 1, records)
            for at in range(len(records)):
                key, value = (
                    payload[start : start + size] if size >= 0 else None
                    for start, size in (
                        (records.key_start[at], records.key_size[at]),
                        (records.value_start[at], records.value_size[at]),
                    )
                )
                found.append((records.offset[at], key, value))
    return found


def last_values(records: list[Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, key, value in records}


def make_log(directory: Path) -> None:
    """Two groups to clean (segments are small), one with an aborted transaction."""
    log = LogWriter(directory)
    for segment in range(5):
        for number in range(6):
            log.data(
                [(b"k%d" % key, b"%d-%d" % (segment, number) * 40) for key in range(5)], codec=number % 5
            )
        log.data([(b"aborted", b"x")], producer=9, transactional=True)
        log.marker(9, commit=False)
        log.roll()
    log.data([(b"active", b"v")])
    log.finish()


CONFIG = {"segment.bytes": "9000"}


def clean_until_killed(directory: Path, steps: int, remains: Path) -> bool:
    """False if the cleaning was complete before that step."""
    log = closed(directory, CONFIG)
    task = CleanTask.of(dirty_log(log.view, None, NOW_MS), NOW_MS, log.last_records, SMALL)
    changes = InterruptedChanges(steps, directory, remains)
    try:
        clean(task, lambda group: remove(swap_in(str(directory), group, changes), changes))
    except KilledError:
        return True
    return False


def recover(directory: Path, quarantine: Path) -> int:
    settings = RecoverySettings(NOW_MS, IndexSettings())
    plan = plan_recovery(str(directory), settings)
    run_recovery(plan, settings, str(quarantine))
    return plan.log_end_offset


def interrupted(source: Path, work: Path) -> Iterator[Path]:
    """A copy of the log for every step after which its cleaning was killed."""
    for steps in count():
        copy, remains = work / str(steps) / "before", work / str(steps) / "events-0"
        shutil.copytree(source, copy)
        if not clean_until_killed(copy, steps, remains):
            assert steps > 40
            return
        yield remains


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("swap") / "events-0"
    make_log(directory)
    return directory


def without_aborted(records: list[Record]) -> list[Record]:
    return [record for record in records if record[1] != b"aborted"]


def test_recovery_finds_every_key_whenever_the_cleaning_was_killed(source: Path, tmp_path: Path) -> None:
    before = records_of(source)
    end = closed(source).view.log_end_offset
    for copy in interrupted(source, tmp_path):
        assert recover(copy, tmp_path / "quarantine" / copy.parent.name) == end
        after = records_of(copy)
        assert last_values(without_aborted(after)) == last_values(without_aborted(before)), copy
        assert set(after) <= set(before)


@pytest.mark.kafka
def test_kafka_finds_every_key_whenever_the_cleaning_was_killed(
    source: Path, tmp_path: Path, kafka3: KafkaPeer
) -> None:
    before = records_of(source)
    end = closed(source).view.log_end_offset
    with LoadServer(kafka3, tmp_path / "load.log") as server:
        for copy in interrupted(source, tmp_path):
            loaded = server.load(copy)
            assert (loaded.refusal, loaded.log_end_offset) == ("", end), copy
            after = records_of(copy)
            assert last_values(without_aborted(after)) == last_values(without_aborted(before)), copy
            assert not list(copy.glob("*.cleaned")) + list(copy.glob("*.swap"))


@pytest.mark.kafka
def test_kafka_takes_the_cleaned_log_as_it_is(source: Path, tmp_path: Path, kafka3: KafkaPeer) -> None:
    copy = tmp_path / "events-0"
    shutil.copytree(source, copy)
    assert not clean_until_killed(copy, 1000, tmp_path / "remains")
    kept = {path.name: path.read_bytes() for path in copy.iterdir() if path.suffix != ".timeindex"}
    with LoadServer(kafka3, tmp_path / "load.log") as server:
        loaded = server.load(copy, clean=True)
    assert (loaded.refusal, loaded.log_end_offset) == ("", closed(source).view.log_end_offset)
    for name, data in kept.items():
        assert (copy / name).read_bytes() == data, name


def test_the_owner_locks_its_log_while_names_change_and_not_while_the_disk_is_written(
    source: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(source, tmp_path / source.name)
    log = closed(directory, CONFIG)
    task = CleanTask.of(dirty_log(log.view, None, NOW_MS), NOW_MS, log.last_records, SMALL)
    told: list[str] = []

    @contextmanager
    def hold() -> Iterator[None]:
        told.append("held")
        yield
        told.append("free")

    class Watched(DirectoryChanges):
        def rename(self, source: str, target: str) -> None:
            told.append(os.path.splitext(target)[1])
            super().rename(source, target)

        def sync(self, directory: str) -> None:
            told.append("sync")
            super().sync(directory)

    def swapped(group: CleanedGroup) -> None:
        told.clear()
        swap_in(
            str(directory), group, Watched(), held=hold(),
            let_go=lambda: told.append("let go"), take_up=lambda: told.append("take up"),
        )  # fmt: skip
        assert told[: told.index("held")] == [SWAP] * told.index("sync") + ["sync"]
        inside = told[told.index("held") + 1 : told.index("free")]
        assert (inside[0], inside[-1]) == ("let go", "take up")
        assert set(inside[1:-1]) == {DELETED, ".log", ".index", ".timeindex"} | set(inside) & {".txnindex"}
        assert told[told.index("free") :] == ["free", "sync"]

    clean(task, swapped)
    assert told


def test_a_cleaning_that_fails_leaves_no_file_behind(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "events-0"
    shutil.copytree(source, copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    log = closed(copy, CONFIG)
    task = CleanTask.of(dirty_log(log.view, None, NOW_MS), NOW_MS, log.last_records, SMALL)

    def stop(_: object) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        clean(task, lambda _: None, stop)
    with pytest.raises(KilledError):
        clean(task, stop)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
