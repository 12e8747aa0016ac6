"""An execution looks whether its moves have arrived, at brokers that learn of it after the controller."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace as Answer

from klog.admin.reassign.execution import Execution, Limits
from klog.admin.reassign.moves import Move
from klog.admin.reassign.values import PartitionAssignment
from klog.formats.names import TopicPartition
from tests.client.fake_broker import A, FakeCluster, metadata

T0 = TopicPartition("t", 0)
MOVE = Move(PartitionAssignment(T0, (2, 1)), (0, 1))
NOTHING_RUNS = Answer(error_code=0, error_message=None, topics=[])


def known(*replicas: int) -> Answer:
    """A Metadata answer with the replicas of the partition."""
    answer = metadata(leaders=(1,))
    answer.controller_id = 1
    answer.topics[0].partitions[0].replica_nodes = replicas
    return answer


def missed(looks: Sequence[Answer]) -> tuple[list[TopicPartition], float]:
    """What has not arrived, and how long it took to say so. Each look finds the controller first."""
    fake = FakeCluster(*(answer for look in looks for answer in (look, look)))
    fake.connections[A].answers = [NOTHING_RUNS] * len(looks)
    execution = Execution(fake.client, Limits(), log_dir_timeout_ms=0)
    return execution.not_reached([MOVE]), fake.now_s


def test_a_broker_may_learn_of_the_end_of_a_move_later_than_the_controller() -> None:
    found, waited_s = missed([known(0, 1), known(0, 1), known(2, 1)])
    assert found == []
    assert waited_s > 0


def test_a_move_that_somebody_has_cancelled_is_told_after_some_seconds() -> None:
    found, waited_s = missed([known(0, 1)] * 100)
    assert found == [T0]
    assert 3 < waited_s <= 5
