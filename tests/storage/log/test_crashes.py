"""kill -9 at random moments, and a crash at every single step: what was flushed is there after the start."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.formats import record_batch
from klog.formats.names import TopicPartition
from klog.storage.log.append_values import Origin
from klog.storage.log.log_manager import LogManager
from klog.storage.log.partition_log import PartitionLog
from tests.processes import child
from tests.storage.log import writer
from tests.storage.log.building import append, batch, idempotent, marker, stored, transactional
from tests.storage.log.managing import Managed

KILLS = int(os.environ.get("KLOG_TEST_KILLS", "8"))
REPOSITORY = Path(__file__).resolve().parents[3]


def values(log: PartitionLog) -> dict[int, bytes]:
    return {
        b.baseOffset + record.offsetDelta: record.value
        for b in stored(log)
        for record in record_batch.records(b)
    }


def run_and_kill(directory: Path, seed: int, after_s: float) -> tuple[int, int]:
    """Log start and end that the writer had reported when it was killed; (0, 0) where it came to nothing."""
    command = [sys.executable, "-m", "tests.storage.log.writer", str(directory), str(seed)]
    with child(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        reported = [process.stdout.readline()]
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        reported += process.stdout.read().splitlines(keepends=True)
    assert process.returncode == -signal.SIGKILL
    whole = [line for line in reported if line.endswith(b"\n")]
    start, end = whole[-1].split()
    return int(start), int(end)


@pytest.mark.slow
def test_every_flushed_record_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(20)
    for kill in range(KILLS):
        start, end = run_and_kill(tmp_path / "a", kill, chance.uniform(0, 0.15))
        manager = writer.open_manager(str(tmp_path / "a"))
        log = manager.get(writer.WHERE)
        assert log is not None
        assert log.log_end_offset >= end
        # What the log may have lost at its start was deleted; a start that was not checkpointed comes back.
        found = values(log)
        first = max(start, log.segments.bases[0])
        assert list(range(first, log.log_end_offset)) == [offset for offset in found if offset >= first]
        assert all(value == writer.value_of(offset) for offset, value in found.items())
        assert log.log_start_offset >= log.segments.bases[0]
        manager.scheduler.stop()
        (manager.stop if kill % 3 == 0 else manager.release)()


class CrashError(BaseException):
    """The process ends here, as far as the log can tell."""


class Crashing:
    """Makes the n-th change of the file system the last one: it and all later ones do not happen."""

    CALLS = ("pwrite", "ftruncate", "truncate", "rename", "replace", "unlink", "fsync", "posix_fallocate")

    def __init__(self, patch: pytest.MonkeyPatch, after: int | None) -> None:
        self.left = after
        self.happened = 0
        for name in self.CALLS:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            if self.left is not None and self.happened >= self.left:
                raise CrashError
            self.happened += 1
            return call(*args, **kwargs)

        return counted


def story(managed: Managed, flushed: dict[str, int]) -> None:
    """Rolls, snapshots, transactions, checkpoints, deletions, cuts: every step that a crash may hit."""
    manager = managed.start()
    managed.upkeep.start()
    log = manager.get_or_create(TopicPartition("t", 0), None, is_new=True)
    for n in range(4):
        append(log, idempotent(2 * n, 2), epoch=n)
        append(log, transactional(n, producer=8), epoch=n)
        append(log, marker(commit=bool(n % 2), producer=8), epoch=n, origin=Origin.COORDINATOR)
        log.set_high_watermark(log.log_end_offset)
        log.flush()
        flushed["end"] = log.log_end_offset
        if n == 1:
            log.roll()
            managed.pass_ms(60_000)
    log.advance_log_start(9)
    log.delete_oldest(1)
    managed.pass_ms(60_000)
    append(log, batch(), epoch=5)
    flushed["end"] = 12
    assert manager.truncate_to({log.partition: 12}) == {}
    append(log, batch(3), epoch=6)
    managed.stop()


def test_a_crash_at_any_step_leaves_a_directory_that_loads_with_all_that_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {"t": {"segment.bytes": "1000", "index.interval.bytes": "0", "segment.index.bytes": "480"}}
    with monkeypatch.context() as patch:
        whole = Crashing(patch, None)
        story(Managed(tmp_path / "whole", topics=topics), {})
    assert whole.happened > 100
    for step in range(whole.happened):
        directory = tmp_path / str(step)
        flushed: dict[str, int] = {"end": 0}
        with monkeypatch.context() as patch:
            Crashing(patch, step)
            managed = Managed(directory, topics=topics)
            with pytest.raises(CrashError):
                story(managed, flushed)
        managed.crash()
        again = Managed(directory, topics=topics)
        manager = again.start()
        survivor = manager.get(TopicPartition("t", 0))
        end = survivor.log_end_offset if survivor else 0
        assert end >= flushed["end"], f"step {step}"
        if survivor is not None:
            judge(manager, survivor)
        again.stop()


def judge(manager: LogManager, log: PartitionLog) -> None:
    """A recovered log is whole, and goes on."""
    offsets = list(values(log))
    assert offsets == list(range(offsets[0], log.log_end_offset)) if offsets else True
    assert [entry.start_offset for entry in log.epochs.entries] == sorted(
        {entry.start_offset for entry in log.epochs.entries}
    )
    end = log.log_end_offset
    assert append(log, batch(2), epoch=9).first_offset == end
    assert log.producers.first_unstable_offset is None or log.producers.first_unstable_offset < end
