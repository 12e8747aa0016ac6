"""Parses and builds the JSON of every znode, field for field as Kafka 3.9 does (its class ZkData).

Older versions of a node that 3.9 still reads are read here too. Unknown fields are ignored. An invalid node
raises InvalidZnodeError with its path.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar
from urllib.parse import quote, unquote

from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition, decode_uuid, is_legal_topic
from klog.metadata import paths
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.json_fields import Fields, Json, encode_json
from klog.metadata.store import Node
from klog.metadata.values import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FinalizedFeatures,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)

BROKER_VERSION: Final = 5
_LOG_DIR_FAILURE: Final = 1
_EPOCH: Final = re.compile("[0-9]{1,10}")
_PORT: Final = re.compile("-?[0-9]{1,5}")
_MAX_NAME_BYTES: Final = 2**15 - 1

_log = logging.getLogger(__name__)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def decode_valid(
    keys: Iterable[_Key], nodes: Iterable[Node | None], decode: Callable[[_Key, Node], _Value]
) -> dict[_Key, _Value]:
    """The values of nodes by key, without missing nodes. An invalid node is logged and left out."""
    found = {}
    for key, node in zip(keys, nodes, strict=True):
        if node is not None:
            try:
                found[key] = decode(key, node)
            except InvalidZnodeError as error:
                _log.error("%s", error)
    return found


# --- brokers and the controller ---


def encode_broker(broker: BrokerRegistration) -> bytes:
    """The top level holds the host and port of the first PLAINTEXT
    endpoint, for clients that know no endpoints.
    """
    plaintext = next((each for each in broker.endpoints if each.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {
        "features": {name: dict(versions) for name, versions in broker.features.items()},
        "listener_security_protocol_map": {
            each.listener: each.security_protocol for each in broker.endpoints
        },
        "endpoints": [f"{each.listener}://{_url_host(each.host)}:{each.port}" for each in broker.endpoints],
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    fields |= {
        "jmx_port": broker.jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": BROKER_VERSION,
        "timestamp": str(broker.timestamp_ms),
    }
    return encode_json(fields)


def decode_broker(broker_id: int, node: Node) -> BrokerRegistration:
    fields = Fields(node.data, paths.broker(broker_id))
    if fields.integer("version") < 1:
        raise fields.invalid("has a version below 1")
    return BrokerRegistration(
        broker_id=broker_id,
        endpoints=_endpoints(fields),
        rack=fields.optional_text("rack"),
        epoch=node.stat.created_zxid,
        features={name: _feature(fields, name, each) for name, each in fields.mapping("features").items()},
        jmx_port=fields.integer("jmx_port", -1),
        timestamp_ms=fields.integer("timestamp", -1, largest=INT64_MAX),
    )


def _feature(fields: Fields, name: str, versions: Json) -> dict[str, int]:
    if not isinstance(versions, dict):
        raise fields.invalid(f"needs the versions of feature {name}, not {versions!r}")
    return {label: fields.as_integer(version, label) for label, version in versions.items()}


def _endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    if fields.integer("version") == 1:
        return (Endpoint("PLAINTEXT", "PLAINTEXT", fields.text("host"), fields.integer("port")),)
    protocols: dict[str, Json] = {name: name for name in SECURITY_PROTOCOLS}
    protocols |= fields.mapping("listener_security_protocol_map")
    endpoints = []
    for text in fields.items("endpoints"):
        listener, scheme, address = str(text).partition("://")
        host, colon, port = address.rpartition(":")
        protocol = protocols.get(listener)
        if not (scheme and colon and _PORT.fullmatch(port) and protocol in SECURITY_PROTOCOLS):
            raise fields.invalid(f"has an invalid endpoint: {str(text)[:200]!r}")
        if len(listener.encode()) > _MAX_NAME_BYTES or len(host.encode()) > _MAX_NAME_BYTES:
            raise fields.invalid(f"has an endpoint with a name of more than {_MAX_NAME_BYTES} bytes")
        endpoints.append(Endpoint(listener, str(protocol), host.strip("[]"), int(port)))
    return tuple(endpoints)


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def encode_controller(controller: ControllerRegistration) -> bytes:
    return encode_json(
        {
            "version": 2,
            "brokerid": controller.broker_id,
            "timestamp": str(controller.timestamp_ms),
            "kraftControllerEpoch": controller.kraft_controller_epoch,
        }
    )


def decode_controller(data: bytes | None) -> ControllerRegistration:
    fields = Fields(data, paths.CONTROLLER)
    return ControllerRegistration(
        fields.integer("brokerid"),
        fields.integer("timestamp", -1, largest=INT64_MAX),
        fields.integer("kraftControllerEpoch", -1),
    )


def encode_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_epoch(data: bytes | None) -> int:
    text = (data or b"").decode("ascii", "replace")
    if not _EPOCH.fullmatch(text) or int(text) >= INT32_MAX:
        raise InvalidZnodeError(f"znode {paths.CONTROLLER_EPOCH} holds {text[:100]!r}, not an epoch")
    return int(text)


# --- topics ---


def encode_topic(assignment: TopicAssignment) -> bytes:
    replicas = {str(number): list(each.replicas) for number, each in assignment.partitions.items()}
    adding = {str(number): list(each.adding) for number, each in assignment.partitions.items() if each.adding}
    removing = {
        str(number): list(each.removing) for number, each in assignment.partitions.items() if each.removing
    }
    fields: dict[str, object] = {"partitions": replicas}
    if assignment.topic_id is not None:
        fields["topic_id"] = assignment.topic_id
    fields |= {"adding_replicas": adding, "removing_replicas": removing, "version": 3}
    return encode_json(fields)


def decode_topic(topic: str, data: bytes | None) -> TopicAssignment:
    fields = Fields(data, paths.topic(topic))
    adding, removing = fields.mapping("adding_replicas"), fields.mapping("removing_replicas")
    if not is_legal_topic(topic):
        raise fields.invalid("has a name that no topic may have")
    partitions = {}
    for number, replicas in fields.mapping("partitions").items():
        index = fields.as_integer(number, "partitions")
        if index < 0:
            raise fields.invalid(f"has a negative partition: {index}")
        partitions[index] = ReplicaAssignment(
            fields.broker_ids(replicas, "partitions"),
            fields.broker_ids(adding.get(number, []), "adding_replicas"),
            fields.broker_ids(removing.get(number, []), "removing_replicas"),
        )
    topic_id = fields.optional_text("topic_id")
    if topic_id is not None:
        try:
            decode_uuid(topic_id)
        except FormatError as error:
            raise fields.invalid(f"has an invalid topic_id: {error.what}") from error
    return TopicAssignment(topic, topic_id, partitions)


def encode_partition_state(state: LeaderIsrAndControllerEpoch) -> bytes:
    current = state.leader_and_isr
    fields: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": current.leader,
        "version": 1,
        "leader_epoch": current.leader_epoch,
        "isr": list(current.isr),
    }
    if current.recovery_state is not LeaderRecoveryState.RECOVERED:
        fields["leader_recovery_state"] = int(current.recovery_state)
    return encode_json(fields)


def decode_partition_state(partition: TopicPartition, node: Node) -> LeaderIsrAndControllerEpoch:
    """The state of a partition. The version of the znode becomes the partition epoch."""
    fields = Fields(node.data, paths.partition_state(partition))
    recovery = fields.integer("leader_recovery_state", 0)
    if recovery not in list(LeaderRecoveryState):
        raise fields.invalid(f"has an invalid leader_recovery_state: {recovery}")
    return LeaderIsrAndControllerEpoch(
        LeaderAndIsr(
            leader=fields.integer("leader"),
            leader_epoch=fields.epoch("leader_epoch"),
            isr=fields.broker_ids(fields.raw("isr"), "isr"),
            recovery_state=LeaderRecoveryState(recovery),
            partition_epoch=node.stat.version,
        ),
        fields.epoch("controller_epoch"),
    )


# --- configs ---


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(entity_path: str, data: bytes | None) -> dict[str, str]:
    """The config of an entity. An empty node holds no config."""
    if not data:
        return {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in Fields(data, paths.config(entity_path)).mapping("config").items()
    }


def encode_config_change(entity_path: str) -> bytes:
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes | None) -> str:
    """The path of the changed entity.

    Version 1 stored type and name in two fields, for topics and clients.
    """
    fields = Fields(data, path)
    version = fields.integer("version")
    if version == 1:
        return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    if version != 2:
        raise fields.invalid(f"has version {version}, not 1 or 2")
    return fields.text("entity_path")


def sanitize(name: str) -> str:
    """An entity's name as part of a path: percent-encoded like
    Kafka's Sanitizer; `<default>` is unchanged.
    """
    return name if name == paths.DEFAULT_ENTITY else quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    return name if name == paths.DEFAULT_ENTITY else unquote(name)


# --- admin, notifications, the rest ---


def decode_partitions(path: str, data: bytes | None) -> list[TopicPartition]:
    fields = Fields(data, path)
    found = []
    for item in fields.items("partitions"):
        if not (isinstance(item, dict) and isinstance(item.get("topic"), str)):
            raise fields.invalid(f"has an invalid partition: {item!r}")
        found.append(
            TopicPartition(str(item["topic"]), fields.as_integer(item.get("partition"), "partition"))
        )
    return found


def encode_reassignments(reassignments: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """The data of the legacy node `/admin/reassign_partitions`."""
    listed = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(replicas)}
        for partition, replicas in reassignments.items()
    ]
    return encode_json({"version": 1, "partitions": listed})


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    fields = Fields(data, paths.REASSIGN_PARTITIONS)
    partitions = decode_partitions(paths.REASSIGN_PARTITIONS, data)
    replicas = [
        item.get("replicas") if isinstance(item, dict) else None for item in fields.items("partitions")
    ]
    return {
        partition: fields.broker_ids(each, "replicas")
        for partition, each in zip(partitions, replicas, strict=True)
    }


def encode_log_dir_event(broker_id: int) -> bytes:
    return encode_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes | None) -> int:
    return Fields(data, path).integer("broker")


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The data of the node.

    Producer ids have 64 bits and are written as text, so that no JSON reader rounds them.
    """
    return encode_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock:
    fields = Fields(data, paths.PRODUCER_ID_BLOCK)
    block = ProducerIdBlock(
        fields.integer("broker"),
        fields.integer("block_start", largest=INT64_MAX),
        fields.integer("block_end", largest=INT64_MAX),
    )
    if not 0 <= block.first <= block.last:
        raise fields.invalid(f"has no block of producer ids: {block.first} to {block.last}")
    return block


_UNFINISHED = "unfinishedTreeOfKlog"


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def encode_unfinished_tree(fingerprint: str) -> bytes:
    """What stands in place of the cluster's id while a tree is written, so that no broker starts on it."""
    return encode_json({"version": "1", _UNFINISHED: fingerprint})


def is_unfinished_tree(data: bytes | None) -> bool:
    """Whether the data of the cluster's id says that the tree was not written to its end."""
    return data is not None and data.startswith(encode_unfinished_tree("")[:-2])


def decode_cluster_id(data: bytes | None) -> str:
    fields = Fields(data, paths.CLUSTER_ID)
    if is_unfinished_tree(data):
        raise fields.invalid("says that the tree was not written to its end: run what wrote it again")
    return fields.text("id")


def encode_features(finalized: FinalizedFeatures) -> bytes:
    features = {name: {"max_version_level": level} for name, level in finalized.features.items()}
    return encode_json({"features": features, "version": finalized.version, "status": finalized.status})


def decode_features(data: bytes | None) -> FinalizedFeatures:
    fields = Fields(data, paths.FEATURE)
    version = fields.integer("version")
    if version not in (1, 2):
        raise fields.invalid(f"has version {version}, not 1 or 2")
    levels = {
        name: _feature(fields, name, each).get("max_version_level", -1)
        for name, each in fields.mapping("features").items()
    }
    return FinalizedFeatures(levels, fields.integer("status"), version)
