"""Prints the APIs of brokers as `kafka-broker-api-versions` of Kafka 3.9 does.

"usable" is the highest version that clients of Kafka 3.9 use there, as in that tool's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.admin.requests.cluster_description import ApiRange, BrokerNode


def _apis(table: str) -> dict[int, tuple[str, int]]:
    """Lines `first key: name version, name version`; long ones go on indented."""
    found = {}
    for line in table.strip().replace("\n    ", " ").splitlines():
        first, _, apis = line.partition(": ")
        for key, api in enumerate(apis.split(", "), int(first)):
            name, _, version = api.partition(" ")
            found[key] = name, int(version)
    return found


_CLIENT: Final = _apis("""
0: Produce 11, Fetch 17, ListOffsets 9, Metadata 12, LeaderAndIsr 7, StopReplica 4, UpdateMetadata 8,
    ControlledShutdown 3, OffsetCommit 9, OffsetFetch 9, FindCoordinator 6, JoinGroup 9, Heartbeat 4,
    LeaveGroup 5, SyncGroup 5, DescribeGroups 5, ListGroups 5, SaslHandshake 1, ApiVersions 4, CreateTopics 7,
    DeleteTopics 6, DeleteRecords 2, InitProducerId 5, OffsetForLeaderEpoch 4, AddPartitionsToTxn 5,
    AddOffsetsToTxn 4, EndTxn 4, WriteTxnMarkers 1, TxnOffsetCommit 4, DescribeAcls 3, CreateAcls 3,
    DeleteAcls 3, DescribeConfigs 4, AlterConfigs 2, AlterReplicaLogDirs 2, DescribeLogDirs 4,
    SaslAuthenticate 2, CreatePartitions 3, CreateDelegationToken 3, RenewDelegationToken 2,
    ExpireDelegationToken 2, DescribeDelegationToken 3, DeleteGroups 2, ElectLeaders 2,
    IncrementalAlterConfigs 1, AlterPartitionReassignments 0, ListPartitionReassignments 0, OffsetDelete 0,
    DescribeClientQuotas 1, AlterClientQuotas 1, DescribeUserScramCredentials 0, AlterUserScramCredentials 0
55: DescribeQuorum 2, AlterPartition 3, UpdateFeatures 1, Envelope 0
60: DescribeCluster 1, DescribeProducers 0
64: UnregisterBroker 0, DescribeTransactions 0, ListTransactions 1, AllocateProducerIds 0,
    ConsumerGroupHeartbeat 0, ConsumerGroupDescribe 0
71: GetTelemetrySubscriptions 0, PushTelemetry 0
74: ListClientMetricsResources 0, DescribeTopicPartitions 0, ShareGroupHeartbeat 0, ShareGroupDescribe 0,
    ShareFetch 0, ShareAcknowledge 0, AddRaftVoter 0, RemoveRaftVoter 0
83: InitializeShareGroupState 0, ReadShareGroupState 0, WriteShareGroupState 0, DeleteShareGroupState 0,
    ReadShareGroupStateSummary 0
""")
"""The name of each API in Kafka 3.9, and the highest version that its clients know; the lowest is 0."""


def described(node: BrokerNode, apis: Sequence[ApiRange]) -> str:
    """The text about one broker."""
    by_key = {each.api_key: each for each in apis}
    parts = [_line(key, by_key.get(key)) for key in sorted(_CLIENT.keys() | by_key.keys())]
    lines = ",\n\t".join(parts)
    return f"{node.host}:{node.port} (id: {node.broker_id} rack: {node.rack or 'null'}) -> (\n\t{lines}\n)"


def api_title(key: int) -> str:
    """Kafka 3.9's name of an API."""
    return _CLIENT[key][0] if key in _CLIENT else "UNKNOWN"


def _line(key: int, served: ApiRange | None) -> str:
    start = f"{api_title(key)}({key}): "
    if served is None:
        return f"{start}UNSUPPORTED"
    only = served.min_version == served.max_version
    versions = str(served.min_version) if only else f"{served.min_version} to {served.max_version}"
    if key not in _CLIENT:
        return f"{start}{versions}"
    usable = min(_CLIENT[key][1], served.max_version)
    fits = f"[usable: {usable}]" if usable >= served.min_version else "[unusable: node too new]"
    return f"{start}{versions} {fits}"
