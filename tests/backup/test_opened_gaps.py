"""Real Kafka opens partitions with a gap that `klog restore --skip-damaged` has left, without recovery."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from klog.backup.model import PartitionState
from klog.backup.repository import Repository
from klog.backup.restoring.request import RestoreRequest
from tests.backup.opening import give_new_ids, opened_by_kafka_3, opened_by_kafka_4, read_committed
from tests.backup.recorded import Recorded, restore
from tests.backup.transactional_load import PARTITIONS, TOPIC
from tests.commands.running import Run, runner
from tests.peers import KafkaPeer

pytestmark = pytest.mark.kafka
WHOLE = f"{TOPIC}-whole"


@pytest.fixture
def klog_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def states(repository: Repository) -> dict[int, PartitionState]:
    """Of the topic's partitions in the newest backup."""
    manifest = repository.newest()
    assert manifest is not None
    refs = repository.partitions(manifest).items()
    return {each.partition: repository.state(each, ref) for each, ref in refs if each.topic == TOPIC}


@pytest.mark.parametrize("opener", [opened_by_kafka_3, opened_by_kafka_4])
def test_consumers_go_on_behind_a_gap_and_all_transactions_around_it_end_as_they_did(
    recorded: Recorded, klog_command: Run, tmp_path: Path, kafka3: KafkaPeer, kafka4: KafkaPeer, opener
) -> None:
    place, whole, damaged = tmp_path / "repository", tmp_path / "whole", tmp_path / "damaged"
    shutil.copytree(recorded.repository.place, place)
    request = RestoreRequest(wants=lambda topic: topic == TOPIC, names={TOPIC: WHOLE})
    restore(recorded.repository, request, whole)
    give_new_ids(whole)
    # Without the end of a partition, all partitions end where it was read last.
    with_middle = {
        number: each for number, each in states(recorded.repository).items() if len(each.pieces) > 2
    }
    assert with_middle
    for state in with_middle.values():
        (place / state.pieces[len(state.pieces) // 2].name).unlink()

    words = ("--to", damaged, "--topic", f"{TOPIC}|__.*", "--skip-damaged", "-q")
    done = klog_command("restore", place, *words)

    assert done.code == 1
    # They are directories of one broker.
    shutil.copy(damaged / "meta.properties", whole)
    lost = {
        int(number): range(int(first), int(last) + 1)
        for number, first, last in re.findall(
            rf"{TOPIC}-(\d+): the offsets (\d+) to (\d+) are lost", done.err
        )
    }
    assert lost.keys() == with_middle.keys()
    topics = [(topic, number) for topic in (WHOLE, TOPIC) for number in range(PARTITIONS)]
    with opener([damaged, whole], tmp_path / "kafka") as address:
        read = read_committed(address, topics)
    for number, offsets in lost.items():
        kept = {offset: each for offset, each in read[WHOLE, number].items() if offset not in offsets}
        assert read[TOPIC, number] == kept
        assert min(kept) < offsets.start < max(kept)
