"""Every format in both directions: built values parse to the same value, parsed bytes are built again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.formats import (
    catalogue,
    cluster_metadata,
    consumer_offsets,
    control_records,
    message_set,
    metadata_records,
    names,
    offset_index,
    record_batch,
    remote_log_metadata,
    share_group_state,
    time_index,
    transaction_index,
    transaction_state,
)
from klog.formats.errors import CorruptRecordError, FormatError, KlogError
from tests import strategies as own

# Half of the usual number: the definitions of fields have tests of their own, and there are many formats.
FEWER = settings(max_examples=settings.default.max_examples // 2)

# For each format of the catalogue: values of it.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "record-batch": own.record_batches(),
    "message-set": st.sampled_from([0, 1]).flatmap(
        lambda magic: own.messages(magic) | own.wrapped_messages(magic)
    ),
    "control-record": own.values_of(control_records.ControlRecord),
    "offset-index": own.offset_indexes,
    "time-index": own.time_indexes,
    "transaction-index": own.values_of(transaction_index.TransactionIndex),
    "producer-snapshot": own.producer_snapshots,
    "consumer-offsets": own.values_of(consumer_offsets.GroupRecord),
    "transaction-state": own.values_of(transaction_state.TransactionRecord),
    "cluster-metadata": own.framed_records(metadata_records.RECORDS),
    "share-group-state": own.values_of(share_group_state.ShareGroupRecord),
    "remote-log-metadata": own.framed_records(remote_log_metadata.RECORDS),
    "recovery-point-checkpoint": own.offset_checkpoints,
    "log-start-checkpoint": own.offset_checkpoints,
    "replication-checkpoint": own.offset_checkpoints,
    "cleaner-checkpoint": own.offset_checkpoints,
    "leader-epoch-checkpoint": own.epoch_checkpoints,
    "meta-properties": own.meta_property_files,
    "partition-metadata": own.partition_metadatas,
    "clean-shutdown": own.clean_shutdowns,
    "quorum-state": own.quorum_states,
    "zookeeper-snapshot": own.zookeeper_snapshots,
    "zookeeper-log": own.zookeeper_logs,
    "file-names": own.file_names,
    "directory-names": own.directory_names,
}
# A segment's value is made from its bytes (it has the position of each entry), so it has its own tests below.
BYTES_ONLY = {"segment": own.segments()}


def _arguments(entry: catalogue.Format, built: Any) -> tuple[Any, ...]:
    return built if isinstance(built, tuple) and entry.kind == "record" else (built,)


def test_every_format_has_values_here() -> None:
    assert set(VALUES) | set(BYTES_ONLY) == {entry.name for entry in catalogue.FORMATS}


@pytest.mark.parametrize("name", VALUES)
@FEWER
@given(data=st.data())
def test_built_bytes_parse_to_the_same_value(name: str, data: st.DataObject) -> None:
    entry = catalogue.find(name)
    value = data.draw(VALUES[name])
    assert entry.parse(*_arguments(entry, entry.build(value))) == value


@pytest.mark.parametrize("name", [*VALUES, *BYTES_ONLY])
@FEWER
@given(data=st.data())
def test_parsed_bytes_are_built_again(name: str, data: st.DataObject) -> None:
    entry = catalogue.find(name)
    intact = VALUES[name].map(entry.build) if name in VALUES else BYTES_ONLY[name]
    given_back = data.draw(st.one_of(intact, _damaged(entry, intact)))
    try:
        value = entry.parse(*_arguments(entry, given_back))
    except KlogError:
        return
    rebuilt = entry.build(value)
    # Kafka's readers of text accept more than its writers write. Then only the value must come back.
    assert rebuilt == given_back or (name in TEXT and entry.parse(rebuilt) == value)


TEXT = {name for name in VALUES if name.endswith("-checkpoint")} | {
    "partition-metadata",
    "clean-shutdown",
    "quorum-state",
}


def _damaged(entry: catalogue.Format, intact: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    if entry.kind == "name":
        return st.one_of(
            intact, own.damaged(intact.map(lambda name: name.encode())).map(lambda raw: raw.decode("latin-1"))
        )
    if entry.kind == "record" and entry.name not in ("cluster-metadata", "remote-log-metadata"):
        part = st.binary(max_size=60) | own.damaged(intact.map(lambda pair: pair[1] or pair[0]))
        return st.one_of(
            st.tuples(intact.map(lambda pair: pair[0]), part),
            st.tuples(part, intact.map(lambda pair: pair[1])),
        )
    return own.damaged(intact) | st.binary(max_size=200)


@given(own.record_batches(codec="none"))
def test_a_batch_whose_crc_is_wrong_is_refused_at_the_crc(batch: Any) -> None:
    data = bytearray(record_batch.build(batch))
    data[17] ^= 1
    with pytest.raises(FormatError, match="crc is") as caught:
        record_batch.parse(bytes(data), position_bytes=1000)
    assert caught.value.position_bytes == 1017
    assert record_batch.parse(bytes(data), check_crc=False).recordCount == batch.recordCount


@given(own.record_batches())
def test_records_of_a_compressed_batch_build_the_decompressed_block(batch: Any) -> None:
    if batch.recordCount:
        found = record_batch.records(batch)
        assert len(found) == batch.recordCount
        if batch.attributes.codec != "none":
            assert record_batch.build_records(found) == record_batch.open_block(batch)


@given(st.sampled_from([0, 1]).flatmap(lambda magic: own.wrapped_messages(magic, 100)))
def test_offsets_in_a_wrapper_end_at_the_wrappers_own(wrapper: Any) -> None:
    inner = message_set.inner(wrapper)
    assert b"".join(map(message_set.build, inner)) == message_set.open_block(wrapper)
    absolute = message_set.absolute_offsets(wrapper, inner)
    assert absolute == list(range(100, 100 + len(inner)))
    assert absolute[-1] == wrapper.offset
    assert inner[0].offset == (100 if wrapper.body.magic == 0 else 0)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_record_count_is_found_at_the_end_of_the_block(count: int) -> None:
    block = record_batch.build_records([_record(delta) for delta in range(2)])
    with pytest.raises(CorruptRecordError, match=f"says {count} records") as caught:
        list(record_batch.iterate_records(block, count, position_bytes=77))
    assert caught.value.position_bytes == 77


def _record(offset_delta: int) -> dict[str, Any]:
    fields = {"attributes": 0, "timestampDelta": 0, "offsetDelta": offset_delta}
    return {**fields, "key": None, "value": b"v", "headers": []}


@given(own.offset_indexes, own.time_indexes)
def test_index_entries_can_be_iterated(offsets: Any, times: Any) -> None:
    assert list(offset_index.entries(offset_index.build(offsets))) == offsets.entries
    assert list(time_index.entries(time_index.build(times) + b"\x01")) == times.entries


@given(own.log_directories())
def test_every_file_of_a_generated_log_directory_parses_by_its_name(files: dict[str, bytes]) -> None:
    assert files
    for path, data in files.items():
        directory, _, file = path.rpartition("/")
        if directory:
            assert str(names.parse_directory(directory)) == directory
        entry = catalogue.of_file(file)
        assert entry is not None
        assert entry.build(entry.parse(data)) == data


def test_an_unknown_metadata_record_keeps_its_fields_as_bytes() -> None:
    frame = b"\x01\x63\x07rest"
    record = cluster_metadata.parse(frame)
    assert (record.type, record.version, record.fields) == (99, 7, b"rest")
    assert cluster_metadata.build(record) == frame
