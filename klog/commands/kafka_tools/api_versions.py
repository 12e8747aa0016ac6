"""Prints the APIs of brokers as `kafka-broker-api-versions` of Kafka 3.9 does.

"usable" is the highest version that clients of Kafka 3.9 use there, as in that tool's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from klog.admin.requests.cluster_description import ApiRange, BrokerNode

_CLIENT: Final[Mapping[int, tuple[str, int]]] = MappingProxyType(
    {
        0: ("Produce", 11),
        1: ("Fetch", 17),
        2: ("ListOffsets", 9),
        3: ("Metadata", 12),
        4: ("LeaderAndIsr", 7),
        5: ("StopReplica", 4),
        6: ("UpdateMetadata", 8),
        7: ("ControlledShutdown", 3),
        8: ("OffsetCommit", 9),
        9: ("OffsetFetch", 9),
        10: ("FindCoordinator", 6),
        11: ("JoinGroup", 9),
        12: ("Heartbeat", 4),
        13: ("LeaveGroup", 5),
        14: ("SyncGroup", 5),
        15: ("DescribeGroups", 5),
        16: ("ListGroups", 5),
        17: ("SaslHandshake", 1),
        18: ("ApiVersions", 4),
        19: ("CreateTopics", 7),
        20: ("DeleteTopics", 6),
        21: ("DeleteRecords", 2),
        22: ("InitProducerId", 5),
        23: ("OffsetForLeaderEpoch", 4),
        24: ("AddPartitionsToTxn", 5),
        25: ("AddOffsetsToTxn", 4),
        26: ("EndTxn", 4),
        27: ("WriteTxnMarkers", 1),
        28: ("TxnOffsetCommit", 4),
        29: ("DescribeAcls", 3),
        30: ("CreateAcls", 3),
        31: ("DeleteAcls", 3),
        32: ("DescribeConfigs", 4),
        33: ("AlterConfigs", 2),
        34: ("AlterReplicaLogDirs", 2),
        35: ("DescribeLogDirs", 4),
        36: ("SaslAuthenticate", 2),
        37: ("CreatePartitions", 3),
        38: ("CreateDelegationToken", 3),
        39: ("RenewDelegationToken", 2),
        40: ("ExpireDelegationToken", 2),
        41: ("DescribeDelegationToken", 3),
        42: ("DeleteGroups", 2),
        43: ("ElectLeaders", 2),
        44: ("IncrementalAlterConfigs", 1),
        45: ("AlterPartitionReassignments", 0),
        46: ("ListPartitionReassignments", 0),
        47: ("OffsetDelete", 0),
        48: ("DescribeClientQuotas", 1),
        49: ("AlterClientQuotas", 1),
        50: ("DescribeUserScramCredentials", 0),
        51: ("AlterUserScramCredentials", 0),
        55: ("DescribeQuorum", 2),
        56: ("AlterPartition", 3),
        57: ("UpdateFeatures", 1),
        58: ("Envelope", 0),
        60: ("DescribeCluster", 1),
        61: ("DescribeProducers", 0),
        64: ("UnregisterBroker", 0),
        65: ("DescribeTransactions", 0),
        66: ("ListTransactions", 1),
        67: ("AllocateProducerIds", 0),
        68: ("ConsumerGroupHeartbeat", 0),
        69: ("ConsumerGroupDescribe", 0),
        71: ("GetTelemetrySubscriptions", 0),
        72: ("PushTelemetry", 0),
        74: ("ListClientMetricsResources", 0),
        75: ("DescribeTopicPartitions", 0),
        76: ("ShareGroupHeartbeat", 0),
        77: ("ShareGroupDescribe", 0),
        78: ("ShareFetch", 0),
        79: ("ShareAcknowledge", 0),
        80: ("AddRaftVoter", 0),
        81: ("RemoveRaftVoter", 0),
        83: ("InitializeShareGroupState", 0),
        84: ("ReadShareGroupState", 0),
        85: ("WriteShareGroupState", 0),
        86: ("DeleteShareGroupState", 0),
        87: ("ReadShareGroupStateSummary", 0),
    }
)
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
