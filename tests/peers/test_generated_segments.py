"""Kafka accepts the segments that the benchmarks generate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import generate
from tests.peers import DumpServer

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_kafka_reads_every_record_of_a_generated_segment(
    kafka3_dump: DumpServer, tmp_path: Path, codec: str
) -> None:
    log = generate.segment(tmp_path, 100_000, codec)
    result = kafka3_dump.dump([log], "--print-data-log", "--deep-iteration")
    assert result.status == 0
    assert not result.thrown
    text = result.stdout.decode()
    counts = [int(count) for count in re.findall(r"^baseOffset: .* count: (\d+) ", text, re.MULTILINE)]
    batches = [line for line in text.splitlines() if line.startswith("baseOffset: ")]
    assert len(counts) == len(batches) == 7
    assert all(f"compresscodec: {codec} " in line and line.endswith("isvalid: true") for line in batches)
    offsets = [
        int(offset) for offset in re.findall(r"^\| offset: (\d+) .* keySize: 10 valueSize: 90 ", text, re.M)
    ]
    assert offsets == list(range(sum(counts)))
