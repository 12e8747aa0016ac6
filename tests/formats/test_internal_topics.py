"""Records of the internal topics are decoded as Kafka's own dump tool shows them."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from klog.formats import (
    cluster_metadata,
    consumer_offsets,
    control_records,
    record_batch,
    remote_log_metadata,
    schema,
    segment,
    share_group_state,
    transaction_state,
)
from klog.formats.errors import FormatError, UnsupportedFormatError
from tests import corpora

_RECORD = re.compile(r"\| offset: (\d+) .*?(?:key: (.*?) )?payload: ?(.*)")


def _topic(name: str) -> list[corpora.PartitionDirectory]:
    found = [
        partition
        for partition in corpora.partitions()
        if partition.name.startswith(f"{name}-") and not partition.corpus.is_corrupt
    ]
    assert found
    return found


def _records(partition: corpora.PartitionDirectory, *suffixes: str) -> Iterator[tuple[int, bool, Any]]:
    for path in partition.files(*(suffixes or (".log",))):
        for entry in segment.entries(path.read_bytes()):
            if entry.magic != 2:
                continue
            for record in record_batch.records(entry.value):
                offset = entry.value.baseOffset + record.offsetDelta
                yield offset, entry.value.attributes.isControl, record


def _decoded(partition: corpora.PartitionDirectory, version: str = "") -> dict[int, tuple[str, str]]:
    text = partition.dump("log.decoded", version)
    lines = (text or b"").decode("utf-8").splitlines()
    matches = (_RECORD.match(line) for line in lines)
    return {int(found[1]): (found[2] or "", found[3]) for found in matches if found}


@pytest.mark.parametrize("partition", _topic("__transaction_state"), ids=str)
def test_transaction_records_equal_kafkas_dump(partition: corpora.PartitionDirectory) -> None:
    decoded = _decoded(partition)
    compared = 0
    for offset, is_control, record in _records(partition):
        found = transaction_state.parse(record.key, record.value)
        assert transaction_state.build(found) == (record.key, record.value)
        assert not is_control
        # Kafka 3.9 prints the keys that 4.1 wrote, but in its values other tagged fields.
        if offset not in decoded or found.value is None:
            continue
        key, payload = decoded[offset]
        if "transactionalId=" in key:
            assert key == f"transaction_metadata::transactionalId={found.key.transactionalId}"
            value = found.value
            assert f"producerId:{value.producerId},producerEpoch:{value.producerEpoch}," in payload
            assert f"state={transaction_state.state_name(value.transactionStatus)}," in payload
            assert payload.endswith(
                f"txnLastUpdateTimestamp={value.transactionLastUpdateTimestampMs},"
                f"txnTimeoutMs={value.transactionTimeoutMs}"
            )
            listed = set(re.search(r"partitions=\[(.*?)\]", payload)[1].split(",")) - {""}
            assert listed == {
                f"{topic.topic}-{number}"
                for topic in value.transactionPartitions or ()
                for number in topic.partitionIds
            }
            compared += 1
    if decoded and partition.corpus.name.startswith("k39"):
        assert compared


def _as_json(value: Any) -> Any:
    """A parsed message like Kafka's own JSON: tagged fields in their place, bytes in base64."""
    if isinstance(value, dict):
        plain = {
            name: _as_json(field)
            for name, field in value.items()
            if name not in ("version", "taggedFields") and not name.startswith("_")
        }
        optional = {field["name"]: _as_json(field["value"]) for field in value.get("taggedFields", ())}
        # `version` belongs to the container: the one message with such a field has another name for it.
        renamed = {"version": plain.pop("metadataVersion")} if "metadataVersion" in plain else {}
        return plain | optional | renamed
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _compare_consumer_protocol(told: dict[str, Any], ours: dict[str, Any]) -> None:
    """Kafka decodes what members of the consumer protocol send; klog keeps it as bytes."""
    for name, topics in (("subscription", "topics"), ("assignment", "assignedPartitions")):
        opened, raw = told.pop(name), base64.b64decode(ours.pop(name))
        if isinstance(opened, str):
            assert base64.b64decode(opened) == raw
            continue
        for topic in opened[topics]:
            assert (topic if isinstance(topic, str) else topic["topic"]).encode("utf-8") in raw


@pytest.mark.parametrize("partition", _topic("__consumer_offsets"), ids=str)
def test_group_records_equal_kafkas_dump(partition: corpora.PartitionDirectory) -> None:
    decoded = _decoded(partition, "4.1") or _decoded(partition)
    compared = 0
    for offset, is_control, record in _records(partition):
        if is_control:
            found = control_records.parse(record.key, record.value)
            assert str(found.key.type) in ("COMMIT", "ABORT")
            assert control_records.build(found) == (record.key, record.value)
            continue
        found = consumer_offsets.parse(record.key, record.value)
        assert consumer_offsets.build(found) == (record.key, record.value)
        if offset not in decoded:
            continue
        key, payload = decoded[offset]
        assert json.loads(key) == {"type": str(found.key.version), "data": _as_json(found.key)}
        if found.value is None:
            assert payload == "<DELETE>"
        else:
            told, ours = json.loads(payload), _as_json(found.value)
            for member, own in zip(told["data"].get("members", ()), ours.get("members", ()), strict=True):
                _compare_consumer_protocol(member, own)
            assert told == {"version": str(found.value.version), "data": ours}
        compared += 1
    assert compared or not decoded


def test_the_corpora_have_commits_and_groups_of_both_coordinators() -> None:
    seen = {
        (found.key.version, None if found.value is None else found.value.version)
        for partition in _topic("__consumer_offsets")
        for _, is_control, record in _records(partition)
        if not is_control
        for found in [consumer_offsets.parse(record.key, record.value)]
    }
    assert {(1, 1), (1, 3), (1, 4), (1, None), (2, 1), (2, 3)} <= seen
    assert {(kind, 0) for kind in (3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16)} <= seen


@pytest.mark.parametrize("partition", _topic("__cluster_metadata"), ids=str)
def test_metadata_records_equal_kafkas_dump(partition: corpora.PartitionDirectory) -> None:
    decoded = _decoded(partition, "4.1") or _decoded(partition)
    compared = 0
    for offset, is_control, record in _records(partition):
        if is_control:
            continue
        found = cluster_metadata.parse(record.value)
        assert cluster_metadata.build(found) == record.value
        told = json.loads(decoded[offset][1])
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", cluster_metadata.TYPE_NAMES[found.type]).upper()
        assert told["type"] == name
        assert told["version"] == found.version
        assert told["data"] == _as_json(found.fields)
        compared += 1
    assert compared


def test_metadata_snapshots_are_segments_between_their_header_and_footer() -> None:
    snapshots = [path for path in corpora.FIXTURES.glob("*/logs*/**/*.checkpoint") if path.is_file()]
    assert snapshots
    for path in snapshots:
        types = []
        for entry in segment.entries(path.read_bytes()):
            for record in record_batch.records(entry.value):
                if entry.value.attributes.isControl:
                    found = control_records.parse(record.key, record.value)
                    assert control_records.build(found) == (record.key, record.value)
                    types.append(str(found.key.type))
                else:
                    value = cluster_metadata.parse(record.value)
                    assert cluster_metadata.build(value) == record.value
                    assert not isinstance(value.fields, bytes)
        assert (types[0], types[-1]) == ("SNAPSHOT_HEADER", "SNAPSHOT_FOOTER")


def test_share_group_and_remote_segment_records_round_trip() -> None:
    kinds: Counter[tuple[str, int]] = Counter()
    for partition in _topic("__share_group_state"):
        for _, _, record in _records(partition):
            found = share_group_state.parse(record.key, record.value)
            assert share_group_state.build(found) == (record.key, record.value)
            kinds["share", found.key.version] += 1
    for partition in _topic("__remote_log_metadata"):
        for _, _, record in _records(partition):
            value = remote_log_metadata.parse(record.value)
            assert remote_log_metadata.build(value) == record.value
            assert not isinstance(value.fields, bytes)
            kinds["remote", value.type] += 1
    assert set(kinds) == {("share", 0), ("share", 1), ("remote", 0), ("remote", 1), ("remote", 2)}


def test_a_record_type_that_is_not_defined_is_unsupported_rather_than_damaged() -> None:
    with pytest.raises(UnsupportedFormatError, match="version 77"):
        consumer_offsets.parse(b"\x00\x4d\x00\x01g", None)
    with pytest.raises(UnsupportedFormatError, match="version 9"):
        transaction_state.parse(b"\x00\x00\x00\x01t", b"\x00\x09")
    with pytest.raises(FormatError, match="key is null"):
        transaction_state.parse(None, b"")


def test_a_tagged_field_is_found_by_name_and_absent_is_none() -> None:
    value = consumer_offsets.VALUES[3].versions[0].parse(bytes.fromhex("00000007 01 00 08 0000000000000009"))
    assert schema.tagged(value, "metadataHash") == 9
    assert schema.tagged(value, "other") is None
