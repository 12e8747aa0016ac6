"""`klog restore --skip-damaged`: what is damaged or missing in the repository is left out, all the rest comes
back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.reading.producer_state import pack_snapshot
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica

FIRST, MIDDLE, LAST = (0, 20), (20, 40), (40, 60)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture(params=["none", "zstd"])
def three(request: pytest.FixtureRequest, backups: Backups, logs: Path) -> Backups:
    """A backup of a log with three segments, each in one object, and of another one."""
    backups.compression = request.param
    directory = replica(logs / "orders-0", [batch(5 * each, 5, size=300) for each in range(12)])
    (directory / "00000000000000000060.snapshot").write_bytes(pack_snapshot([]))
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])
    backups.run(logs)
    return backups


def object_of(backups: Backups, offsets: tuple[int, int]) -> Path:
    [name] = [
        each
        for each in backups.objects()
        if f"orders-0/{offsets[0]:020d}-{offsets[0]:020d}-{offsets[1]:020d}" in each
    ]
    return Path(backups.place) / name


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def offsets_in(directory: Path) -> list[int]:
    """The last offsets of the batches."""
    found = []
    for data in log_files(directory).values():
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        found += table.last_offset
    return found


@pytest.mark.parametrize("lost", [FIRST, MIDDLE, LAST])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_the_log_has_a_gap_and_the_lost_offsets_are_said(
    klog: Run, three: Backups, logs: Path, tmp_path: Path, lost: tuple[int, int], how: str
) -> None:
    path = object_of(three, lost)
    damage(path) if how == "damaged" else path.unlink()

    done = klog("restore", three.place, "--to", tmp_path / "new", "--skip-damaged", "-q")

    assert done.code == 1
    assert f"orders-0: the offsets {lost[0]} to {lost[1] - 1} are lost" in done.err
    assert path.name in done.err
    assert offsets_in(tmp_path / "new" / "orders-0") == [
        each for each in range(4, 60, 5) if not lost[0] <= each < lost[1]
    ]
    assert log_files(tmp_path / "new" / "payments-0") == log_files(logs / "payments-0")
    assert klog("verify", tmp_path / "new").code == 0


def test_two_damaged_objects_one_after_the_other_are_said_each(
    klog: Run, three: Backups, tmp_path: Path
) -> None:
    damage(object_of(three, FIRST))
    object_of(three, MIDDLE).unlink()
    done = klog("restore", three.place, "--to", tmp_path / "new", "--skip-damaged", "-q")
    assert done.code == 1
    assert "the offsets 0 to 19 are lost" in done.err
    assert "the offsets 20 to 39 are lost" in done.err
    assert offsets_in(tmp_path / "new" / "orders-0") == [44, 49, 54, 59]


def test_by_default_nothing_is_restored_and_what_the_object_has_is_said(
    klog: Run, three: Backups, tmp_path: Path
) -> None:
    path = object_of(three, MIDDLE)
    path.unlink()
    done = klog("restore", three.place, "--to", tmp_path / "new", "-q")
    assert done.code == 1
    assert path.name in done.err
    assert "the partition's offsets 20 to 39 are in it" in done.err
    assert "--skip-damaged" in done.err


def test_a_dry_run_says_what_would_be_lost(klog: Run, three: Backups) -> None:
    damage(object_of(three, MIDDLE))
    done = klog("restore", three.place, "--dry-run", "--skip-damaged", "-o", "jsonl")
    assert done.code == 1
    assert "orders-0: the offsets 20 to 39 are lost" in done.err
    assert {json.loads(line)["endOffset"] for line in done.out.splitlines()} == {60, 20}


def test_a_damaged_snapshot_is_left_out(klog: Run, three: Backups, logs: Path, tmp_path: Path) -> None:
    [path] = (Path(three.place) / "data" / "orders-0").glob("*.snapshot")
    damage(path)
    assert klog("restore", three.place, "--to", tmp_path / "refused", "-q").code == 1

    done = klog("restore", three.place, "--to", tmp_path / "new", "--skip-damaged", "-q")

    assert done.code == 1
    assert "orders-0: the producer snapshot is left out" in done.err
    assert log_files(tmp_path / "new" / "orders-0") == log_files(logs / "orders-0")


@pytest.mark.parametrize("switches", [["--topic", "payments"], ["--offsets", "offsets"]])
def test_damage_in_what_does_not_come_back_is_no_loss(
    klog: Run, three: Backups, tmp_path: Path, switches: list[str]
) -> None:
    damage(object_of(three, LAST))
    (tmp_path / "offsets").write_text("orders:0:40\n")
    switches = [str(tmp_path / each) if each == "offsets" else each for each in switches]
    done = klog("restore", three.place, "--to", tmp_path / "new", "--skip-damaged", "-q", *switches)
    assert (done.code, "are lost" in done.err) == (0, False)


def test_a_whole_repository_comes_back_as_without_the_switch(
    klog: Run, three: Backups, logs: Path, tmp_path: Path
) -> None:
    assert klog("restore", three.place, "--to", tmp_path / "new", "--skip-damaged", "-q").code == 0
    assert log_files(tmp_path / "new" / "orders-0") == log_files(logs / "orders-0")
