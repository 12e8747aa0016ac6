"""Functions that are made of the definitions of records read and write as the definitions do."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import _records, consumer_offsets, derive_records
from klog.formats.definition_shapes import shape_of
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.fast_writers import version_writer
from klog.formats.primitives import VarInt
from klog.formats.record_fields import RecordFields, version_of
from klog.formats.structures import Versioned
from tests import corpora
from tests import strategies as own

SOURCES: dict[str, Versioned] = derive_records.SOURCES
FORMS = [(title, version) for title, source in SOURCES.items() for version in source.versions]
forms = st.sampled_from(FORMS)


def definition_of(title: str, version: int) -> Any:
    return SOURCES[title].versions[version]


def flat(value: Any) -> Any:
    """A parsed value with its known tagged fields beside the others."""
    if isinstance(value, list):
        return [flat(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: flat(each) for name, each in value.items() if name not in ("_io", "taggedFields")}
    tagged = value.get("taggedFields", ())
    return found | {each["name"]: flat(each["value"]) for each in tagged if each["name"] is not None}


def known_only(value: Any) -> Any:
    """A value without the tagged fields that are not defined."""
    if isinstance(value, list):
        return [known_only(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: known_only(each) for name, each in value.items()}
    if "taggedFields" in kept:
        kept["taggedFields"] = [each for each in kept["taggedFields"] if each["name"] is not None]
    return c.Container(kept)


def built(title: str, version: int, value: Any) -> bytes:
    return struct.pack(">h", version) + bytes(definition_of(title, version).build(value))


def records_of(title: str, version: int) -> st.SearchStrategy[Any]:
    return own.values_of(definition_of(title, version)).filter(lambda value: not own.has_invalid_text(value))


@given(forms, st.data(), st.binary(max_size=3))
def test_what_a_definition_builds_is_read_as_it_parses_it(
    form: tuple[str, int], data: st.DataObject, more: bytes
) -> None:
    title, version = form
    raw = built(title, version, data.draw(records_of(title, version)))
    parsed = definition_of(title, version).parse(raw[2:])
    assert RecordFields(title).read(raw + more) == flat(parsed)


@given(forms, st.data())
def test_what_is_written_is_what_the_definition_builds(form: tuple[str, int], data: st.DataObject) -> None:
    title, version = form
    value = known_only(data.draw(records_of(title, version)))
    fields = flat(definition_of(title, version).parse(built(title, version, value)[2:]))
    unknown = {"fieldOfAnotherVersion": None}
    assert RecordFields(title).write(version, fields | unknown) == built(title, version, value)


@given(forms, st.data())
def test_a_cut_record_is_refused_at_its_end_or_before(form: tuple[str, int], data: st.DataObject) -> None:
    title, version = form
    raw = built(title, version, data.draw(records_of(title, version)))
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(FormatError) as caught:
        RecordFields(title).read(cut)
    assert caught.value.position_bytes is not None
    assert caught.value.position_bytes <= len(cut)


@given(forms, st.data())
def test_damaged_records_are_read_or_refused(form: tuple[str, int], data: st.DataObject) -> None:
    title, version = form
    definition = definition_of(title, version)
    raw = data.draw(own.damaged(own.values_of(definition).map(definition.build)) | st.binary(max_size=60))
    try:
        found = RecordFields(title).read(struct.pack(">h", version) + raw)
    except FormatError as error:
        # Kafka's rules accept all that the definition accepts, but text that is not UTF-8.
        if "UTF-8" not in error.what:
            with pytest.raises(c.ConstructError):
                c.Struct("fields" / definition, c.Terminated).parse(raw)
    else:
        assert set(found) >= {field.name for field in definition.subcons} - {"taggedFields"}


@pytest.mark.parametrize(
    ("title", "raw", "words", "position"),
    [
        ("OffsetCommitValue", "", "the record ends too early", 0),
        ("OffsetCommitValue", "0003 0000000000000001 00000002", "the record ends too early", 14),
        (
            "OffsetCommitValue",
            "0003 0000000000000001 00000002 0003 6162",
            "a field of 3 bytes does not fit",
            16,
        ),
        ("OffsetCommitValue", "0003 0000000000000001 00000002 ffff", "a field of -1 bytes does not fit", 16),
        ("OffsetCommitValue", "0003 0000000000000001 00000002 0001 ff", "a string is not UTF-8", 16),
        ("TransactionLogKey", "0000 0005 6162", "a field of 5 bytes does not fit", 4),
        ("ConsumerGroupMetadataValue", "0000 00000001 01 00 09", "a field of 9 bytes does not fit", 9),
        ("ConsumerGroupMetadataValue", "0000 00000001 01 00 02 0000", "the record ends too early", 11),
        ("ConsumerGroupTargetAssignmentMemberValue", "0000 05 00", "a field of 4 items does not fit", 3),
        ("ConsumerGroupTargetAssignmentMemberValue", "0000 ffffffffffff", "more than 32 bits", 7),
    ],
)
def test_an_error_names_the_problem_and_its_position(title: str, raw: str, words: str, position: int) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        RecordFields(title).read(bytes.fromhex(raw))
    assert caught.value.position_bytes == position


def test_a_version_that_is_not_defined_is_named() -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        RecordFields("OffsetCommitValue").read(b"\0\x05" + bytes(40))
    assert caught.value.what == "OffsetCommitValue version 5 is not defined (known: 0, 1, 2, 3, 4)"
    assert caught.value.cure == "written by a newer Kafka than this klog knows, or damaged"


@pytest.mark.parametrize("length", ["ffff", "fffe", "8000"])
def test_any_negative_length_of_what_may_be_null_is_null_as_in_kafka(length: str) -> None:
    raw = bytes.fromhex(f"0000 0000 00000001 {length} {length} 00000000")
    found = RecordFields("GroupMetadataValue").read(raw)
    assert (found["protocol"], found["leader"]) == (None, None)


def test_a_number_may_have_needless_bytes_as_in_kafka() -> None:
    raw = bytes.fromhex("0000 00000007 8000")
    assert RecordFields("ConsumerGroupTargetAssignmentMetadataValue").read(raw) == {"assignmentEpoch": 7}


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_of_more_bytes_than_kafka_allows_is_not_written(version: int) -> None:
    fields = {"offset": 1, "leaderEpoch": 2, "metadata": "x" * 0x7FFF, "commitTimestamp": 3}
    RecordFields("OffsetCommitValue").write(version, fields)
    with pytest.raises(FormatError, match="a string of 32768 bytes does not fit"):
        RecordFields("OffsetCommitValue").write(version, fields | {"metadata": "x" * 0x8000})


def test_every_version_of_the_definitions_is_read_and_written() -> None:
    found = {title: set(by_version) for title, by_version in _records.FIELDS.items()}
    assert found == {title: set(source.versions) for title, source in SOURCES.items()}


def test_a_writer_is_made_once() -> None:
    fields = RecordFields("TransactionLogKey")
    write = fields.writers[0]
    assert write(0, transactionalId="t") == fields.write(0, {"transactionalId": "t"})
    assert fields.writers[0] is write


def test_reading_and_writing_records_loads_no_construct() -> None:
    program = (
        "import sys, klog.coordinator.groups.consumer.records, klog.coordinator.transactions.records;"
        "from klog.coordinator.groups.records import read_offset_value as read;"
        "assert read(bytes([0, 4] + 12 * [0] + [1] + 9 * [0])).offset == 0;"
        "print('construct' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_definition_without_a_fast_writer_is_an_error_when_one_is_made() -> None:
    with pytest.raises(TypeError, match="no fast writer of"):
        version_writer(shape_of(c.Struct("number" / VarInt)))


# -- real Kafka ----------------------------------------------------------------------------------------------


def kafka_records(topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """All records that real Kafka wrote to an internal topic."""
    for partition in corpora.partitions():
        if partition.name.startswith(f"{topic}-") and partition.has_expected:
            for record in partition.expected_records():
                if record.get("isControl"):
                    continue
                key, value = record["key"], record["value"]
                yield base64.b64decode(key), None if value is None else base64.b64decode(value)


@pytest.mark.parametrize(
    ("topic", "key_title", "titles", "expected"),
    [
        (
            "__consumer_offsets",
            "GroupKey",
            {kind: value.title for kind, value in consumer_offsets.VALUES.items()},
            {"OffsetCommitValue 1", "OffsetCommitValue 3", "GroupMetadataValue 3"},
        ),
        (
            "__transaction_state",
            "TransactionLogKey",
            {0: "TransactionLogValue"},
            {"TransactionLogValue 0", "TransactionLogValue 1"},
        ),
    ],
)
def test_records_of_real_kafka_are_read_and_written_again_byte_for_byte(
    topic: str, key_title: str, titles: dict[int, str], expected: set[str]
) -> None:
    found: set[str] = set()
    keys = RecordFields(key_title)
    for key, value in kafka_records(topic):
        kind = version_of(key)
        if kind not in SOURCES[key_title].versions:
            continue  # of share groups or streams groups
        assert keys.write(kind, keys.read(key)) == key
        if value is not None and titles[kind] in SOURCES:
            version, fields = version_of(value), RecordFields(titles[kind])
            assert fields.write(version, fields.read(value)) == value
            found.add(f"{titles[kind]} {version}")
    assert found >= expected
