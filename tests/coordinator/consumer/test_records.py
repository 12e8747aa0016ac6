"""The fast readers and writers of consumer group records equal the definitions, and Kafka's own bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from klog.coordinator.groups.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    RecordKind,
    read_key,
    read_value,
    write_key,
    write_value,
)
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.consumer.values import (
    ClassicMember,
    CurrentAssignment,
    MemberState,
    MemberSubscription,
    ResolvedRegex,
)
from klog.formats import consumer_offsets
from klog.formats.errors import FormatError
from tests.coordinator.consumer.play import cluster
from tests.strategies import uuids, values_of

KAFKA_RECORDS = Path(__file__).with_name("kafka-4.1.1-records.txt")
T, T2 = "ZYC4L5lFR6iU59AxnnNCMw", "WmZvbeZQTZGe4R3NRZ5BQA"

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NULLABLE = st.none() | TEXT
TOPICS = st.lists(TEXT, max_size=4).map(tuple)
PARTITIONS = st.frozensets(st.tuples(uuids, INT32), max_size=6)
CLASSIC = st.builds(
    ClassicMember, INT32, st.lists(st.tuples(TEXT, st.binary(max_size=200)), max_size=3).map(tuple)
)
VALUES: dict[RecordKind, st.SearchStrategy[Any]] = {
    RecordKind.EPOCH: st.builds(GroupEpoch, INT32, INT64),
    RecordKind.MEMBER: st.builds(
        MemberSubscription,
        st.just("m"),
        NULLABLE,
        NULLABLE,
        TEXT,
        TEXT,
        TOPICS,
        NULLABLE,
        INT32,
        NULLABLE,
        st.none() | CLASSIC,
    ),
    RecordKind.ASSIGNMENT_EPOCH: INT32,
    RecordKind.TARGET: PARTITIONS,
    RecordKind.CURRENT: st.builds(
        CurrentAssignment, INT32, INT32, st.sampled_from(MemberState), PARTITIONS, PARTITIONS
    ),
    RecordKind.REGEX: st.builds(ResolvedRegex, TOPICS, INT64, INT64),
}
KINDS = sorted(VALUES)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_records_are_written_as_defined_and_read_again(kind: RecordKind, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    key_bytes, value_bytes = write_key("g", kind, "m"), write_value(value)
    record = consumer_offsets.parse(key_bytes, value_bytes)
    assert consumer_offsets.build(record) == (key_bytes, value_bytes)
    key = read_key(key_bytes)
    assert key is not None
    assert (key.group_id, key.kind) == ("g", kind)
    assert read_value(key, value_bytes) == value


@pytest.mark.parametrize("kind", KINDS)
# Nested records are large, and some are left out below: by luck too many for Hypothesis.
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_defined_is_read(kind: RecordKind, data: st.DataObject) -> None:
    # With tagged fields of later versions, which are passed over.
    definition = consumer_offsets.VALUES[kind]
    record = data.draw(values_of(definition))
    assume("udc" not in ascii(record))  # bytes that are not UTF-8, which are refused
    key = read_key(write_key("g", kind, "m"))
    assert key is not None
    assert read_value(key, definition.build(record)) is not None


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), size=st.integers(0, 30))
def test_a_cut_record_is_refused(kind: RecordKind, data: st.DataObject, size: int) -> None:
    value = write_value(data.draw(VALUES[kind]))
    key = read_key(write_key("g", kind, "m"))
    assert key is not None
    cut = value[: min(size, len(value) - 2)]
    with pytest.raises(FormatError):
        read_value(key, cut)


@given(st.binary(max_size=60), st.sampled_from(KINDS))
def test_random_bytes_are_read_or_refused(raw: bytes, kind: RecordKind) -> None:
    key = read_key(write_key("g", kind, "m"))
    assert key is not None
    try:
        read_value(key, b"\0\0" + raw)
    except FormatError:
        return


def test_keys_of_other_kinds_are_passed_over() -> None:
    assert read_key(bytes.fromhex("000b000167")) is None
    with pytest.raises(FormatError):
        write_key("x" * 40_000, RecordKind.EPOCH)


def kafka_groups() -> tuple[dict[str, GroupRecords], int]:
    groups: dict[str, GroupRecords] = {}
    count = 0
    for line in KAFKA_RECORDS.read_text().splitlines():
        if line.startswith("#"):
            continue
        count += 1
        raw_key, raw_value = line.split(" ")
        key = read_key(bytes.fromhex(raw_key))
        assert key is not None
        value = None if raw_value == "-" else read_value(key, bytes.fromhex(raw_value))
        groups.setdefault(key.group_id, GroupRecords()).apply(ConsumerRecord(key.kind, key.name, value))
        if value is not None:
            # The order of topics is that of a hash table.
            assert sorted(write_value(value)) == sorted(bytes.fromhex(raw_value))
            assert write_key(*key).hex() == raw_key
    return groups, count


def test_the_records_of_kafka_4_are_understood() -> None:
    groups, count = kafka_groups()
    assert count == 31
    group, gone = groups["g"], groups["gone"]
    assert (group.epoch, group.assignment_epoch) == (3, 3)
    by_client = {member.client_id: member for member in group.members.values()}
    assert by_client["a"].topics == by_client["c"].topics == ("t", "t2")
    assert by_client["c"].instance_id == "i1"
    assert by_client["r"].regex == "(^t.*)"
    assert group.regexes["(^t.*)"].topics == ("t", "t2")
    held = {name: group.current[member.member_id] for name, member in by_client.items()}
    assert {each.epoch for each in held.values()} == {3}
    assert held["a"].assigned == {(T, 0), (T, 1)}
    assert held["c"].assigned == {(T2, 0), (T2, 1), (T2, 2)}
    assert held["r"].assigned == {(T, 2), (T, 3)}
    assert group.targets == {member.member_id: held[name].assigned for name, member in by_client.items()}
    assert (gone.epoch, gone.members, gone.metadata_hash) == (2, {}, 0)


def test_the_hash_of_topics_is_kafka_s() -> None:
    group = kafka_groups()[0]["g"]
    topics = cluster({"t": 4, "t2": 3}, {"t": T, "t2": T2})
    assert topics.hash_of(group.subscribed) == group.metadata_hash
    assert topics.hash_of(["t", "t2", "missing"]) == group.metadata_hash
    assert topics.hash_of(["t"]) != group.metadata_hash
    assert cluster({"t": 5, "t2": 3}, {"t": T, "t2": T2}).hash_of(["t", "t2"]) != group.metadata_hash
