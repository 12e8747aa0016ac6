"""klog is killed with SIGKILL and started at random moments while consume-transform-produce loops run.

Afterwards each transaction is visible as a whole or not at all, each record of the input was transformed
exactly once, and no transaction is open any more.
"""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from tests.checker import checks
from tests.checker.histories import Outcome
from tests.checker.players import (
    INPUT,
    INPUT_PARTITIONS,
    OUTPUT,
    OUTPUT_PARTITIONS,
    TRANSACTION_TIMEOUT_MS,
    IdempotentProducer,
    Observer,
    Transformer,
)
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
from tests.swap.clients import TIMEOUT_S, consumer
from tests.waiting import eventually

pytestmark = pytest.mark.slow

GROUP: Final = "transformers"
OUTPUTS: Final = [(OUTPUT, number) for number in range(OUTPUT_PARTITIONS)]


def open_transactions(bootstrap: str) -> bool:
    """Whether the last stable offset of a partition is below its high watermark."""
    with consumer(bootstrap) as all_records, consumer(bootstrap, "read_committed") as stable_records:
        for partition in OUTPUTS:
            where = TopicPartition(*partition)
            _, high_watermark = all_records.get_watermark_offsets(where, timeout=TIMEOUT_S)
            _, last_stable_offset = stable_records.get_watermark_offsets(where, timeout=TIMEOUT_S)
            if last_stable_offset < high_watermark:
                return True
    return False


def test_loops_stay_exactly_once_under_kills(tmp_path: Path) -> None:
    with broker_behind_cuts(tmp_path, {INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}) as (klog, proxy):
        producers = [IdempotentProducer(proxy.address, "producer", SEED)]
        transformers = [
            Transformer(proxy.address, f"transformer{number}", SEED, GROUP) for number in range(3)
        ]
        observer = Observer(proxy.address, "observer", SEED, GROUP)
        eventually(lambda: any(each.transactions for each in transformers), 120)
        outages = kill_again_and_again(klog, random.Random(SEED), SECONDS)
        counts = [len(each.transactions) for each in transformers]
        eventually(lambda: sum(len(each.transactions) for each in transformers) > sum(counts) + 5, 120)
        proxy.spare()
        ended(producers)
        ended([*transformers, observer])
        # What a killed broker or a client left open is aborted when its time is up.
        eventually(lambda: not open_transactions(proxy.address), TRANSACTION_TIMEOUT_MS / 1000 + 60)
        inputs, visible = logs_of(proxy.address, INPUTS), logs_of(proxy.address, OUTPUTS, "read_committed")
        transactions = list(chain.from_iterable(each.transactions for each in transformers))
        assert sum(each.outcome is Outcome.COMMITTED for each in transactions) > 5
        group = last_committed(proxy.address, GROUP)
        found = checks.transaction_violations(transactions, visible, group, inputs, observer.observed)
        assert found == []
        waits = list(chain.from_iterable(each.waits for each in [*transformers, *producers]))
        assert list(checks.stuck(waits, outages, WAIT_LIMIT_S + TRANSACTION_TIMEOUT_MS / 1000)) == []
        klog.stop()
