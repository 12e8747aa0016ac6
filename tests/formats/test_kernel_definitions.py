"""The record kernel reads what the definitions define, so their layouts cannot differ."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import message_set, record_batch
from tests import strategies
from tests.formats import reading


@pytest.fixture(params=["_kernel", "_pykernel"], scope="module")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"klog.kernel.{request.param}")


def as_bytes(text: str) -> bytes:
    """Text of a definition as bytes; bytes that are not UTF-8 are lone surrogates in it."""
    return text.encode("utf-8", "surrogateescape")


@given(strategies.record_batches())
def test_a_batch_of_magic_2_is_read_as_its_definition_says(kernel: ModuleType, batch: c.Container) -> None:
    data = record_batch.build(batch)
    parsed = record_batch.parse(data)
    (found,) = reading.read(kernel, data).batches
    row = found.row
    attributes = parsed.attributes
    assert found.problem is None
    assert row["size"] == len(data)
    assert (row["valid"], row["computed_crc"]) == (1, parsed.crc)
    names = {
        "base_offset": "baseOffset",
        "leader_epoch": "partitionLeaderEpoch",
        "crc": "crc",
        "base_timestamp": "baseTimestamp",
        "max_timestamp": "maxTimestamp",
        "producer_id": "producerId",
        "producer_epoch": "producerEpoch",
        "base_sequence": "baseSequence",
        "count": "recordCount",
    }
    assert {name: row[name] for name in names} == {name: parsed[other] for name, other in names.items()}
    assert row["last_offset"] == parsed.baseOffset + parsed.lastOffsetDelta
    expected = [
        {
            "offset": parsed.baseOffset + record.offsetDelta,
            "timestamp": parsed.maxTimestamp
            if attributes.timestampType == "LogAppendTime"
            else parsed.baseTimestamp + record.timestampDelta,
            "key": record.key,
            "value": record.value,
            "headers": [(as_bytes(header.key), header.value) for header in record.headers],
        }
        for record in record_batch.records(parsed)
    ]
    assert [{name: record[name] for name in expected[0]} for record in found.records] == expected


@given(st.sampled_from([0, 1]).flatmap(strategies.messages))
def test_a_message_is_read_as_its_definition_says(kernel: ModuleType, message: c.Container) -> None:
    (found,) = reading.read(kernel, message_set.build(message)).batches
    (record,) = found.records
    assert (found.row["base_offset"], found.row["last_offset"]) == (message.offset, message.offset)
    assert (found.row["count"], found.row["valid"]) == (-1, 1)
    compare(record, message.offset, message)


@given(st.sampled_from([0, 1]).flatmap(strategies.wrapped_messages))
def test_a_compressed_message_set_is_read_as_its_definition_says(
    kernel: ModuleType, message: c.Container
) -> None:
    (found,) = reading.read(kernel, message_set.build(message)).batches
    messages = message_set.inner(message)
    offsets = message_set.absolute_offsets(message, messages)
    assert found.problem is None
    assert found.row["base_offset"] == offsets[0]
    for record, offset, inner in zip(found.records, offsets, messages, strict=True):
        compare(record, offset, inner)


def compare(record: dict[str, Any], offset: int, message: c.Container) -> None:
    body = message.body
    assert record["offset"] == offset
    assert record["timestamp"] == (-1 if body.timestamp is None else body.timestamp)
    assert (record["key"], record["value"]) == (body.key, body.value)
    assert (record["crc"], record["valid"]) == (body.crc, 1)
    assert record["record_size"] == len(message_set.build(message))
