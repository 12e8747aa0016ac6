"""OffsetForLeaderEpoch, DescribeProducers, DescribeLogDirs and InitProducerId."""

from __future__ import annotations

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.cluster.describe_log_dirs import (
    DescribeLogDirsHandler,
    DiskSpace,
    HostedDirectory,
    disk_space,
    hosted_directories,
)
from klog.server.handlers.data.describe_producers import DescribeProducersHandler
from klog.server.handlers.data.offsets_for_leader_epoch import OffsetsForLeaderEpochHandler
from klog.storage.log.log_map import HeldLog
from tests.server.handlers.parts import (
    BROKER,
    OTHER_BROKER,
    TOPIC,
    Broker,
    answer_of,
    batch,
    part_of,
    request_of,
)
from tests.storage.log.managing import Managed, new_log


class TestOffsetForLeaderEpoch:
    API = ApiKey.OFFSET_FOR_LEADER_EPOCH

    def ask(self, broker: Broker, leader_epoch: int, *, version=4, current=-1):
        partition = part_of(
            self.API,
            version,
            "OffsetForLeaderPartition",
            partition=0,
            current_leader_epoch=current,
            leader_epoch=leader_epoch,
        )
        topic = part_of(self.API, version, "OffsetForLeaderTopic", topic=TOPIC, partitions=(partition,))
        request = request_of(self.API, version, replica_id=-1, topics=(topic,))
        OffsetsForLeaderEpochHandler(broker.lookup).handle(request)
        ((found,),) = (answered.partitions for answered in answer_of(request).topics)
        assert found.partition == 0
        return found.error_code, found.leader_epoch, found.end_offset

    @pytest.mark.parametrize("version", [2, 3, 4])
    def test_an_epoch_ends_where_the_next_begins(self, broker, version) -> None:
        for epoch, records in ((1, 3), (4, 2), (6, 1)):
            broker.lead(epoch=epoch)
            broker.append(records)
        ends = {epoch: self.ask(broker, epoch, version=version)[1:] for epoch in (1, 2, 4, 5, 6)}
        assert ends == {1: (1, 3), 2: (1, 3), 4: (4, 5), 5: (4, 5), 6: (6, 6)}

    def test_an_epoch_of_the_future_is_undefined(self, broker) -> None:
        broker.lead(epoch=1)
        assert self.ask(broker, 2) == (ErrorCode.NONE, -1, -1)

    def test_who_cannot_answer_says_why(self, broker) -> None:
        assert self.ask(broker, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        broker.tell(leader=OTHER_BROKER)
        assert self.ask(broker, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = broker.lead(epoch=5)
        assert self.ask(broker, 0, current=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert self.ask(broker, 0, current=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        broker.lead(epoch=6, leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
        assert self.ask(broker, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.replicas.directory_failed([partition.topic_partition])
        assert self.ask(broker, 0)[0] == ErrorCode.KAFKA_STORAGE_ERROR


class TestDescribeProducers:
    API = ApiKey.DESCRIBE_PRODUCERS

    def ask(self, broker: Broker, topic=TOPIC):
        asked = part_of(self.API, 0, "TopicRequest", name=topic, partition_indexes=(0,))
        request = request_of(self.API, 0, topics=(asked,))
        DescribeProducersHandler(broker.lookup).handle(request)
        ((found,),) = (answered.partitions for answered in answer_of(request).topics)
        return found

    def test_producers_with_their_last_sequence_and_open_transaction(self, broker) -> None:
        broker.lead()
        broker.append(producer_id=7, producer_epoch=2, base_sequence=0)
        broker.append(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
        found = self.ask(broker)
        assert found.error_code == ErrorCode.NONE
        producers = {each.producer_id: each for each in found.active_producers}
        assert set(producers) == {7, 9}
        idempotent, transactional = producers[7], producers[9]
        assert (idempotent.producer_epoch, idempotent.last_sequence) == (2, 0)
        assert idempotent.last_timestamp == broker.clock()
        assert (idempotent.coordinator_epoch, idempotent.current_txn_start_offset) == (-1, -1)
        assert transactional.current_txn_start_offset == 1

    def test_a_follower_answers_too(self, broker) -> None:
        broker.lead(leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
        assert self.ask(broker).error_code == ErrorCode.NONE

    def test_who_cannot_answer_says_why(self, broker) -> None:
        unknown = self.ask(broker)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert TOPIC in unknown.error_message
        broker.tell(leader=OTHER_BROKER)
        assert self.ask(broker).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        invalid = self.ask(broker, "no/topic")
        assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "no/topic" in invalid.error_message


class TestDescribeLogDirs:
    API = ApiKey.DESCRIBE_LOG_DIRS
    SPACE = DiskSpace(1000, 400)

    def ask(
        self, broker: Broker, directories, topics=None, *, version=4, space=lambda _: DiskSpace(1000, 400)
    ):
        asked = topics and tuple(
            part_of(self.API, version, "DescribableLogDirTopic", topic=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        )
        request = request_of(self.API, version, topics=asked)
        DescribeLogDirsHandler(broker.replicas, lambda: directories, space).handle(request)
        return answer_of(request)

    def logs(self, broker: Broker) -> list[HeldLog]:
        return [HeldLog(log, False) for log in broker.logs.logs.values()]

    @pytest.mark.parametrize("version", range(5))
    def test_sizes_of_all_logs_and_the_disks_room(self, broker, version) -> None:
        for partition in (0, 1):
            broker.lead(partition=partition)
        broker.append(3, partition=1)
        response = self.ask(broker, [HostedDirectory("/data", True, self.logs(broker))], version=version)
        (found,) = response.results
        assert (found.error_code, found.log_dir) == (ErrorCode.NONE, "/data")
        ((topic),) = found.topics
        sizes = [
            (p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in topic.partitions
        ]
        assert (topic.name, sizes) == (TOPIC, [(0, 0, 0, False), (1, 3 * len(batch()), 0, False)])
        if version >= 4:
            assert (found.total_bytes, found.usable_bytes) == self.SPACE
        if version >= 3:
            assert response.error_code == ErrorCode.NONE

    def test_only_the_partitions_asked_for(self, broker) -> None:
        for partition in (0, 1):
            broker.lead(partition=partition)
        hosted = [HostedDirectory("/data", True, self.logs(broker))]
        (found,) = self.ask(broker, hosted, {TOPIC: [1, 5], "other": [0]}).results
        assert [[p.partition_index for p in topic.partitions] for topic in found.topics] == [[1]]

    def test_a_future_log_is_behind_the_current_one(self, broker) -> None:
        broker.lead()
        broker.lead("copy", topic_id=None)
        broker.append(5)
        broker.append(2, topic="copy")
        future = broker.logs.logs["copy", 0]
        future.partition = broker.logs.logs[TOPIC, 0].partition
        hosted = [HostedDirectory("/new", True, [HeldLog(future, True)])]
        (found,) = self.ask(broker, hosted).results
        (partition,) = found.topics[0].partitions
        assert (partition.offset_lag, partition.is_future_key) == (3, True)

    def test_directories_are_listed_with_their_current_and_future_logs(self, tmp_path) -> None:
        directories = (tmp_path / "a", tmp_path / "b")
        for directory in directories:
            managed = Managed(directory)
            new_log(managed.start())
            managed.stop()
        (tmp_path / "b" / "t-0").rename(tmp_path / "b" / f"t-0.{'ab' * 16}-future")
        managed = Managed(*directories)
        logs = managed.start()
        paths = [str(directory) for directory in (*directories, tmp_path / "c")]
        found = [
            (each.path, each.online, [held.is_future for held in each.logs])
            for each in hosted_directories(logs, paths)
        ]
        assert found == [(paths[0], True, [False]), (paths[1], True, [True]), (paths[2], False, [])]
        managed.stop()

    def test_a_log_without_a_replica_has_no_lag(self, broker) -> None:
        partition = broker.lead()
        broker.replicas.directory_failed([partition.topic_partition])
        (found,) = self.ask(broker, [HostedDirectory("/data", True, self.logs(broker))]).results
        assert found.topics[0].partitions[0].offset_lag == -1

    def test_an_offline_directory_says_only_that(self, broker) -> None:
        def fails(path):
            raise OSError(5, "Input/output error")

        down = self.ask(broker, [HostedDirectory("/down", False)]).results[0]
        broken = self.ask(broker, [HostedDirectory("/broken", True)], space=fails).results[0]
        for found in (down, broken):
            assert (found.error_code, found.topics, found.total_bytes, found.usable_bytes) == (
                ErrorCode.KAFKA_STORAGE_ERROR,
                (),
                -1,
                -1,
            )

    def test_the_space_of_a_real_disk(self, tmp_path) -> None:
        space = disk_space(str(tmp_path))
        assert 0 < space.usable_bytes <= space.total_bytes
