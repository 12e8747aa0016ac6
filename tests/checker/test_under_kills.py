"""klog is killed with SIGKILL and started at random moments while many clients play.

Afterwards the clients' own histories, and what a consumer reads at the end, prove that nothing was lost,
nothing is there twice, records keep their order, and committed offsets never go back.
"""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from tests.checker import checks
from tests.checker.players import INPUT, INPUT_PARTITIONS, IdempotentProducer, Observer, Reader
from tests.checker.under_kills import (
    INPUTS,
    SECONDS,
    SEED,
    WAIT_LIMIT_S,
    broker_behind_cuts,
    ended,
    kill_again_and_again,
    last_committed,
    logs_of,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow

GROUP: Final = "readers"


def test_groups_and_idempotent_producers_keep_all_under_kills(tmp_path: Path) -> None:
    with broker_behind_cuts(tmp_path, {INPUT: INPUT_PARTITIONS}) as (klog, proxy):
        chance = random.Random(SEED)
        producers = [IdempotentProducer(proxy.address, f"producer{number}", SEED) for number in range(2)]
        readers = [Reader(proxy.address, f"reader{number}", SEED, GROUP) for number in range(3)]
        observer = Observer(proxy.address, "observer", SEED, GROUP)
        eventually(lambda: all(each.acknowledged for each in producers))
        outages = kill_again_and_again(klog, chance, SECONDS)
        # Whoever plays still has to get along with the last broker.
        counts = [len(each.commits) for each in readers]
        eventually(lambda: sum(len(each.commits) for each in readers) > sum(counts), 120)
        proxy.spare()
        ended(producers)
        ended([*readers, observer])
        logs = logs_of(proxy.address, INPUTS)
        acknowledged = list(chain.from_iterable(each.acknowledged for each in producers))
        commits = list(chain.from_iterable(each.commits for each in readers))
        committed = last_committed(proxy.address, GROUP)
        together = {
            partition: set().union(*(each.read.get(partition, set()) for each in readers))
            for partition in INPUTS
        }
        assert len(acknowledged) > 100
        assert any(each.ended_s is not None for each in commits)
        assert [error for each in producers for error in each.refused] == []
        assert [each.name for each in producers if each.ended_by_errors] == []
        assert list(checks.lost(acknowledged, logs)) == []
        assert list(checks.duplicated(logs)) == []
        assert list(checks.disordered(logs)) == []
        assert list(checks.commits_lost(commits, observer.observed)) == []
        assert list(checks.went_back(observer.observed)) == []
        assert list(checks.skipped(committed, together, logs)) == []
        waits = list(chain.from_iterable(each.waits for each in producers))
        assert list(checks.stuck(waits, outages, WAIT_LIMIT_S)) == []
        klog.stop()
