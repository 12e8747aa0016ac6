"""The fast reader and writer of markers agree with the general ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.formats.packed import CONTROL_KEY, END_TXN_MARKER
from klog.kernel import markers
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.markers import Marker, build_marker, marker_of_batch
from tests.corpora import corpora, partitions

MARKERS = st.builds(Marker, st.booleans(), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
PRODUCERS = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))


@given(MARKERS, PRODUCERS, st.sampled_from((None, 12)))
def test_a_marker_is_built_and_read_as_any_batch(
    marker: Marker, producer: tuple[int, int], append_ms: int | None
) -> None:
    fields = BatchFields(
        producer_id=producer[0],
        producer_epoch=producer[1],
        is_transactional=True,
        is_control=True,
        log_append_time_ms=append_ms,
    )
    key = CONTROL_KEY.pack(0, 0 if marker.aborted else 1)
    value = END_TXN_MARKER.pack(0, marker.coordinator_epoch)
    general = build_batch([RecordData(0, marker.timestamp, key, value)], fields)
    if append_ms is None:
        assert build_marker(*producer, marker) == general
    expected = marker if append_ms is None else marker._replace(timestamp=append_ms)
    assert marker_of_batch(general) == markers._any_marker(general) == expected
    assert markers._usual_marker(general) == expected


@given(MARKERS, st.integers(16, 77), st.integers(0, 255), st.integers(0, 3))
def test_a_marker_with_a_changed_byte_is_read_by_both_alike_or_left_to_the_general_reader(
    marker: Marker, position: int, byte: int, cut: int
) -> None:
    data = build_marker(9, 0, marker)
    data[position] = byte
    data = data[: len(data) - cut]
    usual = markers._usual_marker(data)
    assert usual is None or usual == markers._any_marker(data)


def test_the_markers_of_kafka_are_read_by_both_alike() -> None:
    seen = 0
    for partition in partitions(corpora("k011-txn", "k39-txn", "k4-txn")):
        for path in partition.files(".log"):
            data, at = path.read_bytes(), 0
            while at + 61 <= len(data):
                size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
                batch = data[at : at + size]
                at += size
                if batch[22] & 0x20 and batch[16] == 2:
                    assert markers._usual_marker(batch) == markers._any_marker(batch) is not None
                    seen += 1
    assert seen > 10
