"""Internal topics become tables of their own that say what Kafka's own dump tool says of their records."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import construct as c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export import internal_groups
from klog.export.deserialise import BadRecords
from klog.export.internal import READ_COLUMNS, internal_table
from klog.export.options import ReadOptions
from klog.export.reader import read_split
from klog.formats import consumer_offsets, transaction_state
from klog.formats.errors import FormatError
from klog.formats.keyed import KeyValue
from tests import corpora
from tests.export.reading import split_of

_DUMPED = re.compile(r"\| offset: (\d+) .*?(?:key: (.*?) )?payload: ?(.*)")


def partitions_of(topic: str) -> list[corpora.PartitionDirectory]:
    found = [
        partition
        for partition in corpora.partitions()
        if partition.name.rpartition("-")[0] == topic and partition.dump("log.decoded") is not None
    ]
    assert found
    return found


def table_of(partition: corpora.PartitionDirectory) -> list[dict[str, Any]]:
    table = internal_table(partition.name.rpartition("-")[0])
    assert table is not None
    rows: list[dict[str, Any]] = []
    for path in partition.files(".log"):
        for batch in read_split(
            split_of(path), ReadOptions(()), columns=READ_COLUMNS, on_lost=lambda lost: pytest.fail(str(lost))
        ):
            good, rejected = table.apply(batch)
            good.validate(full=True)
            assert rejected is None
            assert good.schema == table.schema(batch.schema)
            rows += good.to_pylist()
    return rows


def dumped(partition: corpora.PartitionDirectory) -> dict[int, tuple[str, str]]:
    """Key and value of each record as the dump tool decodes them, by offset."""
    lines = (partition.dump("log.decoded") or b"").decode("utf-8").splitlines()
    found = (_DUMPED.match(line) for line in lines)
    return {int(match[1]): (match[2] or "", match[3]) for match in found if match}


def millis(time: Any) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


@pytest.mark.parametrize("partition", partitions_of("__consumer_offsets"), ids=str)
def test_commits_say_what_kafkas_dump_says(partition: corpora.PartitionDirectory) -> None:
    expected = dumped(partition)
    compared = 0
    for row in table_of(partition):
        key, value = expected.get(row["recordOffset"], ("", ""))
        if not key.startswith("{"):
            continue  # a type that is younger than the tool
        compared += 1
        named = json.loads(key)
        assert row["group"] == named["data"].get("group", named["data"].get("groupId"))
        assert row["deleted"] == (value == "<DELETE>")
        assert row["type"] == consumer_offsets.TYPE_NAMES[int(named["type"])]
        assert row["_error"] is None
        if row["type"] != "OffsetCommit":
            assert row["topic"] is row["offset"] is None
            continue
        assert (row["topic"], row["partition"]) == (named["data"]["topic"], named["data"]["partition"])
        if not row["deleted"]:
            commit = json.loads(value)["data"]
            times = {"commitTimestamp": millis(row["commitTimestamp"])}
            assert commit["offset"] == row["offset"]
            assert commit.get("leaderEpoch") == row["leaderEpoch"]
            assert commit["metadata"] == row["metadata"]
            assert commit["commitTimestamp"] == times["commitTimestamp"]
            assert commit.get("expireTimestamp") == millis(row["expireTimestamp"])
    assert compared


@pytest.mark.parametrize("partition", partitions_of("__transaction_state"), ids=str)
def test_transactions_say_what_kafkas_dump_says(partition: corpora.PartitionDirectory) -> None:
    expected = dumped(partition)
    rows = table_of(partition)
    assert len(rows) == len(expected)
    for row in rows:
        key, value = expected[row["recordOffset"]]
        assert key == f"transaction_metadata::transactionalId={row['transactionalId']}"
        if row["deleted"]:
            assert value == "<DELETE>"
            continue
        said = re.fullmatch(
            r"producerId:(-?\d+),producerEpoch:(-?\d+),state=(\w+),partitions=\[(.*)\],"
            r"txnLastUpdateTimestamp=(\d+),txnTimeoutMs=(\d+)",
            value,
        )
        assert said is not None
        assert (row["producerId"], row["producerEpoch"], row["state"]) == (
            int(said[1]),
            int(said[2]),
            said[3],
        )
        partitions = [f"{one['topic']}-{one['partition']}" for one in row["partitions"] or ()]
        assert sorted(partitions) == sorted(filter(None, said[4].split(",")))
        assert millis(row["lastUpdateTimestamp"]) == int(said[5])
        assert row["transactionTimeoutMs"] == int(said[6])


def built(topic: Any, key: dict[str, Any], value: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """Key and value of a record of a topic of `klog.formats`."""
    written: tuple[bytes, bytes | None] = topic.build(KeyValue(c.Container(key), c.Container(value)))
    return written


TEXTS = st.text(max_size=20)
INT32S = st.integers(-(2**31), 2**31 - 1)
INT64S = st.integers(-(2**63), 2**63 - 1)


@given(st.data(), st.sampled_from((0, 1)), st.integers(0, 4))
def test_commits_are_read_quickly_as_the_formats_define_them(data: Any, kind: int, version: int) -> None:
    key = {
        "version": kind,
        "group": data.draw(TEXTS),
        "topic": data.draw(TEXTS),
        "partition": data.draw(INT32S),
    }
    value = {
        "version": version,
        "offset": data.draw(INT64S),
        "leaderEpoch": data.draw(INT32S),
        "metadata": data.draw(TEXTS),
        "commitTimestamp": data.draw(INT64S),
        "expireTimestamp": data.draw(INT64S),
        "taggedFields": [],
    }
    written = built(consumer_offsets, key, value)
    defined = internal_groups.row_of(consumer_offsets.parse(*written))
    assert internal_groups.read(*written) == defined
    tombstone = internal_groups.row_of(consumer_offsets.parse(written[0], None))
    assert internal_groups.read(written[0], None) == tombstone


COMMIT = built(
    consumer_offsets,
    {"version": 1, "group": "g", "topic": "t", "partition": 0},
    {"version": 3, "offset": 5, "leaderEpoch": 1, "metadata": "m", "commitTimestamp": 9},
)


def outcome(read: Any, *parts: bytes | None) -> Any:
    """What a call gives, or what it raises, in words."""
    try:
        return read(*parts)
    except FormatError as error:
        return type(error), error.what, error.position_bytes, error.cure


@given(st.sampled_from((0, 1)), st.integers(0, 40), st.binary(max_size=4), st.integers(0, 40))
def test_a_damaged_commit_is_refused_or_read_as_the_formats_read_it(
    which: int, at: int, replacement: bytes, cut: int
) -> None:
    parts = list(COMMIT)
    part = parts[which] or b""
    parts[which] = (part[:at] + replacement + part[at + len(replacement) :])[: cut or None]
    assert outcome(internal_groups.read, *parts) == outcome(
        lambda *both: internal_groups.row_of(consumer_offsets.parse(*both)), *parts
    )


def input_batch(*pairs: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(range(len(pairs)), pa.int64()),
        }
    )


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_what_is_no_record_of_the_topic_is_bad_and_kept(topic: str) -> None:
    batch = input_batch((b"\0\x7f", b"x"), (None, b"y"), (b"", None))
    table, strict = internal_table(topic), internal_table(topic, BadRecords.REJECT)
    assert table is not None
    assert strict is not None
    good, _ = table.apply(batch)
    assert good.column("recordOffset").to_pylist() == [0, 1, 2]
    errors = good.column("_error").to_pylist()
    assert [(one["key"], one["value"]) for one in errors] == [(b"\0\x7f", b"x"), (None, b"y"), (b"", None)]
    kept, rejected = strict.apply(batch)
    assert rejected is not None
    assert (kept.num_rows, rejected.select(["key", "value", "offset"])) == (0, batch)
    assert rejected.schema == strict.rejects_schema(batch.schema)


def test_what_is_no_commit_has_its_fields_as_json() -> None:
    rows = [row for partition in partitions_of("__consumer_offsets") for row in table_of(partition)]
    groups = [row for row in rows if row["type"] == "GroupMetadata" and not row["deleted"]]
    members = [member for row in groups for member in json.loads(row["details"])["members"]]
    assert members
    assert all(base64.b64decode(member["assignment"]) is not None for member in members)
    assert {json.loads(row["details"])["group"] for row in groups} == {row["group"] for row in groups}


def test_fields_of_later_versions_are_read_where_they_are_there() -> None:
    key, value = built(
        transaction_state,
        {"version": 0, "transactionalId": "x"},
        {
            "version": 1,
            "producerId": 7,
            "producerEpoch": 1,
            "transactionTimeoutMs": 1,
            "transactionStatus": 1,
            "transactionPartitions": [{"topic": "t", "partitionIds": [0, 2], "taggedFields": []}],
            "transactionLastUpdateTimestampMs": 3,
            "transactionStartTimestampMs": -1,
            "taggedFields": [{"tag": 0, "name": "previousProducerId", "value": 6}],
        },
    )
    table = internal_table("__transaction_state")
    assert table is not None
    (row,) = table.apply(input_batch((key, value)))[0].to_pylist()
    assert (row["previousProducerId"], row["nextProducerId"], row["startTimestamp"]) == (6, None, None)
    assert row["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 2}]


def test_other_topics_have_no_table() -> None:
    assert internal_table("orders") is None
