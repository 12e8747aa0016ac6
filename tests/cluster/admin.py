"""The admin client with what only a cluster of several brokers needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition

from tests.cluster.tree import Partition
from tests.swap.clients import TIMEOUT_S, Admin


class ClusterAdmin(Admin):
    """Every call waits for its result, but for `reassign`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._bootstrap = bootstrap

    def grow(self, topic: str, partitions: int, assignment: Sequence[Sequence[int]]) -> None:
        """Adds partitions until there are as many; `assignment` has the replicas of the new ones."""
        new = NewPartitions(topic, partitions, replica_assignment=[list(each) for each in assignment])
        self._all(self._client.create_partitions([new], operation_timeout=TIMEOUT_S))

    def elect_preferred(self, partitions: Iterable[Partition]) -> None:
        self._elect(ElectionType.PREFERRED, partitions)

    def elect_unclean(self, partitions: Iterable[Partition]) -> None:
        self._elect(ElectionType.UNCLEAN, partitions)

    def _elect(self, kind: ElectionType, partitions: Iterable[Partition]) -> None:
        wanted = [TopicPartition(*each) for each in partitions]
        for error in self._client.elect_leaders(kind, wanted).result(TIMEOUT_S).values():
            assert error is None, error

    def reassign(self, replicas: Mapping[Partition, Sequence[int] | None]) -> None:
        """Begins to move partitions to other brokers. None cancels a reassignment."""
        client = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            wanted = {KafkaPythonPartition(*each): ids for each, ids in replicas.items()}
            errors = client.alter_partition_reassignments(wanted)
            assert not any(errors.values()), errors
        finally:
            client.close()
