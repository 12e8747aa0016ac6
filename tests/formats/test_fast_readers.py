"""A fast reader gives what its definition gives, and leaves everything else to it."""

from __future__ import annotations

from typing import Any

import construct as c
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from klog.formats import (
    binary,
    cluster_metadata,
    metadata_records,
    schema,
    zookeeper_files,
    zookeeper_reading,
)
from klog.formats.errors import FormatError, KlogError
from klog.formats.fast_readers import REFUSALS, read_all, reader
from klog.formats.reader_source import Reader
from klog.formats.zookeeper_reading import FileNode
from tests import strategies as own

DEFINITIONS: dict[str, c.Construct] = {
    **{
        f"{record.name} {version}": schema.fields_of(version, 0, *record.fields)
        for record in metadata_records.RECORDS.values()
        for version in record.versions
    },
    **{
        f"ZooKeeper {kind}": definition
        for kind, definition in zookeeper_files.RECORDS.items()
        if kind != zookeeper_files.CLOSE_SESSION
    },
}
READERS: dict[str, Reader] = {name: reader(definition) for name, definition in DEFINITIONS.items()}
names = st.sampled_from(sorted(DEFINITIONS))


def outcome(read: Any) -> Any:
    """What a call gives, or what it raises, in words."""
    try:
        return read()
    except KlogError as error:
        return type(error), error.what, error.position_bytes, error.cure


@given(names, st.data())
def test_a_built_value_is_read_back(name: str, data: st.DataObject) -> None:
    value = data.draw(own.values_of(DEFINITIONS[name]).filter(lambda each: not own.has_invalid_text(each)))
    built = DEFINITIONS[name].build(value)
    assert READERS[name](b"before" + built + b"after", 6) == (value, 6 + len(built))


def test_text_that_is_not_utf_8_is_left_to_the_definition() -> None:
    raw = zookeeper_files.RECORDS[zookeeper_files.DELETE].build({"path": "/caf\udce9"})
    with pytest.raises(REFUSALS):
        READERS["ZooKeeper 2"](raw, 0)
    assert read_all(READERS["ZooKeeper 2"], DEFINITIONS["ZooKeeper 2"], raw, "it") == {"path": "/caf\udce9"}


@given(names, st.data())
def test_any_bytes_are_read_or_refused_as_by_the_definition(name: str, data: st.DataObject) -> None:
    definition = DEFINITIONS[name]
    intact = own.values_of(definition).map(definition.build)
    given_bytes = data.draw(own.damaged(intact) | st.binary(max_size=60))
    fast = outcome(lambda: read_all(READERS[name], definition, given_bytes, "it", 7))
    assert fast == outcome(lambda: binary.parse_all(definition, given_bytes, "it", 7))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("TopicRecord 0", b""),
        ("TopicRecord 0", b"\x00"),
        ("TopicRecord 0", b"\x81\x00" + bytes(17)),
        ("RemoveTopicRecord 0", bytes(15)),
        ("ZooKeeper 1", b"\xff\xff\xff\xff"),
        ("ZooKeeper 2", b"\x00\x00\x00\x05/abc"),
        ("ZooKeeper 14", b"\x7f\xff\xff\xff"),
    ],
)
def test_what_a_definition_refuses_is_refused(name: str, raw: bytes) -> None:
    with pytest.raises(REFUSALS):
        READERS[name](raw, 0)
    with pytest.raises(FormatError):
        read_all(READERS[name], DEFINITIONS[name], raw, "it")


def test_a_definition_without_a_fast_reader_is_an_error_when_one_is_made() -> None:
    with pytest.raises(TypeError, match="no fast reader"):
        reader(c.Struct("rest" / c.GreedyBytes))


@given(own.framed_records(metadata_records.RECORDS), st.binary(max_size=3))
def test_a_metadata_record_is_read_as_by_its_definition(record: c.Container, more: bytes) -> None:
    raw = cluster_metadata.build(record) + more
    assert outcome(lambda: cluster_metadata.read(raw)) == outcome(lambda: cluster_metadata.parse(raw))


def flat(value: Any) -> Any:
    """A parsed value with its known tagged fields among the others, as writers take it."""
    if isinstance(value, list):
        return [flat(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {name: flat(each) for name, each in value.items() if name != "taggedFields"}
    return fields | {each["name"]: flat(each["value"]) for each in value.get("taggedFields", ())}


def is_known(value: Any) -> bool:
    """Whether a value has no unknown tagged fields, and no text that is not UTF-8."""
    if isinstance(value, dict):
        named = all(each["name"] is not None for each in value.get("taggedFields", ()))
        return named and all(map(is_known, value.values()))
    if isinstance(value, list):
        return all(map(is_known, value))
    return not isinstance(value, str) or value.isascii() or value == value.encode(errors="replace").decode()


@given(own.framed_records(metadata_records.RECORDS))
def test_a_metadata_record_is_written_as_by_its_definition(record: c.Container) -> None:
    assume(record.type in metadata_records.RECORDS and is_known(record.fields))
    written = cluster_metadata.write(record.type, record.version, flat(record.fields))
    assert written == cluster_metadata.build(record)


# --- ZooKeeper's files ---


@given(own.zookeeper_transactions(), st.data())
def test_a_transaction_is_read_as_by_its_definition(transaction: c.Container, data: st.DataObject) -> None:
    built = st.just(zookeeper_files.Transaction.build(transaction))
    raw = data.draw(built | own.damaged(built))
    fast = outcome(lambda: zookeeper_reading.read_transaction(raw, 9))
    slow = outcome(lambda: zookeeper_files.parse_transaction(raw, 9))
    if isinstance(fast, zookeeper_reading.Transaction):
        assert fast.record == slow.record
        assert (fast.session, fast.zxid, fast.time_ms) == (slow.session, slow.zxid, slow.timeMs)
        known = slow.digest and slow.digest.version == zookeeper_files.DIGEST_VERSION
        assert fast.digest == (slow.digest.treeDigest if known else None)
    else:
        assert fast == slow


@given(own.zookeeper_snapshots, st.data())
def test_nodes_of_a_snapshot_are_read_as_by_its_definition(
    snapshot: c.Container, data: st.DataObject
) -> None:
    built = st.just(zookeeper_files.build_snapshot(snapshot))
    raw = data.draw(built | own.damaged(built))
    begin = len(zookeeper_files.SnapshotHead.build(snapshot))
    found: list[tuple[str, FileNode]] = []

    def read() -> int:
        return zookeeper_reading.read_nodes(raw, begin, lambda path, node: found.append((path, node)))

    end = outcome(read)
    if isinstance(end, int):
        parsed = zookeeper_files.Snapshot.nodes.parse(raw[begin:])
        assert [(path, node.data, node.stat) for path, node in found] == [
            (each.path, each.data, {name: each[name] for name in found[0][1].stat}) for each in parsed
        ]
        assert raw.startswith(zookeeper_files.END_OF_NODES, end)
    else:
        assert raw != data.draw(built)
