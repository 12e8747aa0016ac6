"""The verification finds whatever is not the same in a converted log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.convert.converting import convert
from klog.convert.tasks import ConvertTask, TaskResult
from klog.convert.verifying import DifferentRecordsError, verify
from klog.formats.compression import ZSTD
from klog.formats.names import FileKind
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.storage.cleaner.task import CLEANED
from tests.convert.logs import planned, with_codec
from tests.storage.cleaner.logs import LogWriter

HEADERS = ((b"h", b"1"),)


def records(*, offset: int = 0, **changed: Any) -> list[RecordData]:
    found = [RecordData(at, 1000 + at, b"k%d" % at, b"v", HEADERS) for at in range(4)]
    found[2] = found[2]._replace(**changed)
    return [one._replace(offset=one.offset + offset) for one in found]


def fields(**changed: Any) -> BatchFields:
    sent = {"leader_epoch": 3, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0, **changed}
    return BatchFields(codec=ZSTD, **sent)


@pytest.fixture
def done(tmp_path: Path) -> tuple[ConvertTask, TaskResult]:
    """A task that has joined two batches of two records, and its result."""
    log = LogWriter(tmp_path / "events-0")
    for first in (0, 2):
        rows = records()[first : first + 2]
        sent = BatchFields(leader_epoch=3, producer_id=7, producer_epoch=0, base_sequence=first)
        log.append(build_batch(rows, sent), 2)
    log.finish()
    (task,) = planned(tmp_path / "events-0", with_codec(ZSTD)).tasks
    result = convert(task)
    assert result.batches_written == 1
    return task, result


def replaced(done: tuple[ConvertTask, TaskResult], *batches: bytearray) -> TaskResult:
    """The result with other batches in its file."""
    task, result = done
    data = b"".join(batches)
    Path(task.path(FileKind.LOG, 0) + CLEANED).write_bytes(data)
    (segment,) = result.segments
    return TaskResult(0, (segment._replace(size_bytes=len(data)),), 2, 1, True)


def test_the_same_records_pass(done: tuple[ConvertTask, TaskResult]) -> None:
    assert verify(*done) == 4
    assert verify(done[0], replaced(done, build_batch(records(), fields()))) == 4


@pytest.mark.parametrize(
    "changed",
    [
        {"value": b"w"},
        {"value": None},
        {"key": b"k"},
        {"timestamp": 5},
        {"headers": ()},
        {"headers": ((b"h", None),)},
    ],
    ids=lambda changed: f"{changed}",
)
def test_another_record_is_found(done: tuple[ConvertTask, TaskResult], changed: dict[str, Any]) -> None:
    with pytest.raises(DifferentRecordsError, match="record 2 is not the same"):
        verify(done[0], replaced(done, build_batch(records(**changed), fields())))


@pytest.mark.parametrize(
    "changed",
    [
        {"leader_epoch": 4},
        {"producer_id": 8},
        {"producer_epoch": 1},
        {"base_sequence": 1},
        {"is_transactional": True},
        {"log_append_time_ms": 1000},
    ],
    ids=lambda changed: f"{changed}",
)
def test_another_batch_is_found(done: tuple[ConvertTask, TaskResult], changed: dict[str, Any]) -> None:
    with pytest.raises(DifferentRecordsError, match="the batch differs from the original"):
        verify(done[0], replaced(done, build_batch(records(), fields(**changed))))


def test_missing_and_additional_records_are_found(done: tuple[ConvertTask, TaskResult]) -> None:
    with pytest.raises(DifferentRecordsError, match="records are missing at the end"):
        verify(done[0], replaced(done, build_batch(records()[:2], fields())))
    more = [*records(), RecordData(4, 1, b"k", b"v")]
    with pytest.raises(DifferentRecordsError):
        verify(done[0], replaced(done, build_batch(more, fields())))
    with pytest.raises(DifferentRecordsError, match="does not end where an original ends"):
        verify(done[0], replaced(done, build_batch(records()[:3], fields())))
