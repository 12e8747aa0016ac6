"""klog chooses the same partitions as Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_pythons

from klog.client.producer import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        # org.apache.kafka.common.utils.UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_digests_equal_those_of_java(key, digest):
    assert murmur2(key) == digest % 2**32


@given(st.binary())
def test_digests_equal_those_of_kafka_python(key):
    assert murmur2(key) == kafka_pythons(key) & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 100))
def test_a_key_goes_to_one_of_the_partitions(key, partitions):
    assert 0 <= partition_of_key(key, partitions) < partitions
