"""verify, recover and rebuild-index agree on any damage: what one names as the repair, the other does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from klog.storage.repair.problem import RECOVER, Problem, Severity
from tests.corpora import Corpus
from tests.fuzz.mutated_directories import checked, recovered, verified
from tests.fuzz.mutations import batches, seal
from tests.storage.partition_copies import contents, copied

SEEDS_A_TEST = 40


@pytest.mark.parametrize("first", range(0, 200, SEEDS_A_TEST))
def test_verify_and_recover_agree_on_any_damage(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        assert checked(seed, tmp_path / str(seed)) is None
        shutil.rmtree(tmp_path / str(seed))


def partition(tmp_path: Path) -> tuple[Path, Path]:
    """An undamaged partition of Kafka 3.9 with two segments, and its first segment."""
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), tmp_path)
    return directory, directory / "00000000000000000000.log"


def of_log(directory: Path, log: Path) -> list[Problem]:
    return [problem for problem in verified(directory) if problem.file == str(log)]


def test_a_duplicated_batch_between_index_entries_is_kept_as_by_kafka(tmp_path: Path) -> None:
    directory, log = partition(tmp_path)
    data = log.read_bytes()
    start, end = batches(data)[0]
    log.write_bytes(data[start:end] + data)
    found = of_log(directory, log)
    assert [problem.position for problem in found if "keeps it" in problem.kafka] == [end]
    assert [problem for problem in found if RECOVER in problem.cure] == []
    before = log.read_bytes()
    recovered(directory, tmp_path)
    assert log.read_bytes() == before


def test_a_bad_record_count_under_a_valid_checksum_is_kept_as_by_kafka(tmp_path: Path) -> None:
    directory, log = partition(tmp_path)
    data = bytearray(log.read_bytes())
    start, end = batches(data)[1]
    data[start + 57 : start + 61] = (99).to_bytes(4, "big")
    seal(data, start, end)
    log.write_bytes(data)
    (problem,) = of_log(directory, log)
    assert problem.position == start
    assert "keeps it" in problem.kafka
    assert RECOVER not in problem.cure
    recovered(directory, tmp_path)
    assert contents(directory)[log.name] == bytes(data)


def test_batches_after_a_cut_are_said_to_be_cut_with_it(tmp_path: Path) -> None:
    directory, log = partition(tmp_path)
    data = bytearray(log.read_bytes())
    (_, first_end), (_, second_end) = batches(data)[:2]
    data[first_end - 1] ^= 1
    data[second_end - 1] ^= 1
    log.write_bytes(data)
    found = of_log(directory, log)
    assert {problem.position for problem in found if "cuts the log here" in problem.kafka} == {0}
    later = {problem.position for problem in found if "cuts the log before it, at byte 0" in problem.kafka}
    assert later == {first_end}
    later = [problem for problem in verified(directory) if problem.file.endswith("25.log")]
    assert [problem.kafka for problem in later] == ["deletes it after an unclean stop"]


def test_the_log_starts_at_its_first_segment_at_least(tmp_path: Path) -> None:
    """What retention deleted cannot come back, and log-start-offset-checkpoint has no entry for it."""
    source = Corpus("k39-epochs").log_dir("logs_1").partition("ep-0")
    directory = copied(source, tmp_path)
    bases = sorted(int(log.stem) for log in directory.glob("*.log"))
    for file in directory.glob(f"{bases[0]:020}.*"):
        file.unlink()
    epochs = directory / "leader-epoch-checkpoint"
    entries = [tuple(map(int, line.split())) for line in epochs.read_text().splitlines()[2:]]
    spanning = max(epoch for epoch, start in entries if start <= bases[1])
    left = [(spanning, bases[1]), *((epoch, start) for epoch, start in entries if start > bases[1])]
    epochs.write_text(f"0\n{len(left)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in left))
    assert [problem for problem in verified(directory) if problem.file == str(epochs)] == []
    assert [problem for problem in verified(directory) if problem.severity is Severity.ERROR] == []
