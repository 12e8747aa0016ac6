"""Clusters keep what they acknowledged while brokers and ZooKeeper are killed, suspended and cut off.

Idempotent producers, a group of consumers and loops in transactions play meanwhile. Their own histories, what
consumers read at the end and the files of all replicas are the proof. KLOG_TEST_SEED and
KLOG_TEST_KILL_SECONDS set what happens and how long; KLOG_TEST_CLUSTER=kafka,kafka,kafka shows what Kafka
alone does.
"""

from __future__ import annotations

import os
import random
import time
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from tests.checker import checks
from tests.checker.histories import Logs, Observed, Outcome
from tests.checker.players import (
    INPUT,
    INPUT_PARTITIONS,
    OUTPUT,
    OUTPUT_PARTITIONS,
    TRANSACTION_TIMEOUT_MS,
    IdempotentProducer,
    Reader,
    Transformer,
)
from tests.checker.test_transactions import OUTPUTS, open_transactions
from tests.checker.under_kills import INPUTS, SEED, ended, last_committed, logs_of
from tests.cluster.agreement import check_acknowledged, differences
from tests.cluster.faults import play_faults
from tests.cluster.reading import settled
from tests.cluster.world import Cluster, cluster, kinds
from tests.peers.kafka import KafkaPeer
from tests.waiting import eventually

SECONDS: Final = float(os.environ.get("KLOG_TEST_KILL_SECONDS", "5"))
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600 + 2 * SECONDS)]

READERS: Final = "readers"
TRANSFORMERS: Final = "transformers"
MIXES: Final = ("klog,klog,klog", "klog,klog,kafka", "klog,kafka,kafka")


class Load:
    """The clients of a cluster, and the checks of their histories."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers = [IdempotentProducer(bootstrap, f"producer{number}", SEED) for number in range(2)]
        self._readers = [Reader(bootstrap, f"reader{number}", SEED, READERS) for number in range(2)]
        self._transformers = [
            Transformer(bootstrap, f"transformer{number}", SEED, TRANSFORMERS) for number in range(2)
        ]

    def wait_until_all_play(self) -> None:
        def counts() -> list[int]:
            return [
                *(len(each.acknowledged) for each in self._producers),
                sum(len(each.commits) for each in self._readers),
                sum(len(each.transactions) for each in self._transformers),
            ]

        before = counts()
        eventually(lambda: all(now > then for now, then in zip(counts(), before, strict=True)), 120)

    def end(self) -> None:
        """Ends the producers first, so that the others can read to the end."""
        ended(self._producers)
        ended([*self._readers, *self._transformers])
        # What a killed broker or a client left open is aborted when its time is up.
        eventually(
            lambda: not settled(lambda: open_transactions(self._bootstrap)),
            TRANSACTION_TIMEOUT_MS / 1000 + 60,
        )

    def check(self) -> dict[tuple[str, int], int]:
        """Proves the histories. Returns the offset behind the last record of each partition."""
        inputs = settled(lambda: logs_of(self._bootstrap, INPUTS))
        visible = settled(lambda: logs_of(self._bootstrap, OUTPUTS, "read_committed"))
        acknowledged = list(chain.from_iterable(each.acknowledged for each in self._producers))
        assert not any(each.refused for each in self._producers if not each.ended_by_errors)
        check_acknowledged(acknowledged, inputs)
        assert list(checks.duplicated(inputs)) == []
        assert list(checks.disordered(inputs)) == []
        self._check_groups(inputs)
        self._check_transactions(inputs, visible)
        return {partition: max(log) + 1 for partition, log in (inputs | visible).items() if log}

    def _check_groups(self, inputs: Logs) -> None:
        commits = list(chain.from_iterable(each.commits for each in self._readers))
        committed = last_committed(self._bootstrap, READERS)
        together = {
            partition: set().union(*(each.read.get(partition, set()) for each in self._readers))
            for partition in INPUTS
        }
        # A coordinator that was replaced and does not know it yet may give old offsets, as Kafka's does. So
        # only what is committed in the end counts.
        now_s = time.monotonic()
        observed = [Observed(*each, now_s, now_s) for each in committed.items()]
        assert list(checks.commits_lost(commits, observed)) == []
        assert list(checks.skipped(committed, together, inputs)) == []

    def _check_transactions(self, inputs: Logs, visible: Logs) -> None:
        transactions = list(chain.from_iterable(each.transactions for each in self._transformers))
        assert sum(each.outcome is Outcome.COMMITTED for each in transactions) > 5
        committed = last_committed(self._bootstrap, TRANSFORMERS)
        assert checks.transaction_violations(transactions, visible, committed, inputs, ()) == []


def check_replicas(world: Cluster, ends: dict[tuple[str, int], int]) -> None:
    """Stops the cluster and compares the files of its replicas."""
    world.wait_for_full_isr()
    world.stop()
    assert list(differences(world.members.values(), ends)) == []


@pytest.mark.parametrize("mix", MIXES)
def test_nothing_acknowledged_is_lost(mix: str, tmp_path: Path, kafka3: KafkaPeer) -> None:
    with cluster(tmp_path, kafka3, kinds(mix), with_links=True) as world:
        world.start()
        world.create({INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS})
        load = Load(world.bootstrap)
        load.wait_until_all_play()
        faults = play_faults(world, random.Random(f"{SEED}/{mix}"), SECONDS)
        load.wait_until_all_play()
        load.end()
        ends = load.check()
        check_replicas(world, ends)
        assert faults
