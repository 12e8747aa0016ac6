"""The targets of the fuzzer: each accepts any bytes and raises only if klog is wrong.

A target returns what it found, so that a test can show that a seed reaches the code for which it was made.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

from klog.formats import catalogue, compression
from klog.formats.errors import KlogError
from klog.kernel import _pykernel as twin
from klog.kernel import kernel
from klog.kernel.arrow import COLUMNS, ArrowBuilder
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.files.chunks import chunks
from tests import corpora
from tests.formats import reading

LIMIT_BYTES = 1 << 20
SEED_BYTES = 4096


def scan(data: bytes) -> int:
    """Both kernels read the same batches and records, at once and in chunks. Returns the number of
    batches.
    """
    whole = reading.read(kernel, data)  # type: ignore[arg-type]
    assert whole == reading.read(twin, data)
    table = BatchTable()
    positions: list[int] = []
    for _ in chunks(io.BytesIO(data), table, chunk_bytes=100):
        positions += table.position
    assert positions == [batch.row["position"] for batch in whole.batches]
    return len(positions)


def decode(data: bytes) -> int:
    """Both kernels decode the same from a payload with a batch header of any kind. Returns the number of
    records.

    The first 61 bytes are the batch's header, with a corrected size; the others are the payload.
    """
    header, payload = bytearray(data[:61].ljust(61, b"\0")), data[61:]
    header[8:12] = (61 - 12).to_bytes(4, "big")
    table, records = BatchTable(), RecordTable()
    kernel.scan(header, 0, True, table)
    kernel.decode_payload(payload, table, 0, records)
    other_table, other_records = BatchTable(), RecordTable()
    twin.scan(header, 0, True, other_table)
    twin.decode_payload(payload, other_table, 0, other_records)
    assert table.base_offset == other_table.base_offset
    assert (records.problem, records.problem_batch) == (other_records.problem, other_records.problem_batch)
    found = reading.read_records(kernel, payload, records)  # type: ignore[arg-type]
    assert found == reading.read_records(twin, payload, other_records)
    builder = ArrowBuilder(COLUMNS)
    builder.append(payload, table, records)
    batch = builder.finish()
    batch.validate(full=True)
    assert batch.column("value").to_pylist() == [row["value"] for row in found]
    return len(found)


def decompress(data: bytes) -> int:
    """A block decompresses to at most the limit, or raises a KlogError. Returns the number of bytes.

    The first byte is codec (bits 0-2) and magic (bits 3-4), the others are the block.
    """
    kind = data[0] if data else 0
    try:
        plain = compression.decompress(kind & 7, data[1:], magic=kind >> 3 & 3, limit_bytes=LIMIT_BYTES)
    except KlogError:
        return -1
    assert kind & 7 == 0 or len(plain) <= LIMIT_BYTES
    return len(plain)


def definitions(data: bytes) -> int:
    """A definition parses bytes or raises a KlogError. Returns 1 if it parsed them.

    The first byte chooses the format of the catalogue, the second the end of a record's key.
    """
    kind, cut = (*data[:2], 0, 0)[:2]
    chosen = FORMATS[kind % len(FORMATS)]
    rest = data[2:]
    parts = (rest[:cut], rest[cut:])[: _parameters(chosen.parse)] if chosen.kind == "record" else (rest,)
    if len(parts) == 1:
        parts = (rest,)
    try:
        value = chosen.parse(*parts)
    except KlogError:
        return 0
    try:
        chosen.build(value)
    except KlogError:
        return 0
    return 1


def _parameters(function: Callable[..., Any]) -> int:
    parameters = inspect.signature(function).parameters.values()
    return sum(parameter.default is parameter.empty for parameter in parameters)


FORMATS = [found for found in catalogue.FORMATS if found.kind != "name"]
TARGETS: dict[str, Callable[[bytes], int]] = {
    "scan": scan,
    "decode": decode,
    "decompress": decompress,
    "definitions": definitions,
}


def seeds(target: str) -> Iterator[bytes]:
    """Small inputs from the fixtures in which the target finds something, always the same."""
    yield from {"scan": _logs, "decode": _payloads, "decompress": _blocks, "definitions": _files}[target]()


def _logs() -> Iterator[bytes]:
    for path in corpora.files(".log", chosen=corpora.corpora("k08", "k010", "k39", "corrupt-k39")):
        if data := path.read_bytes()[:SEED_BYTES]:
            yield data


def _batches() -> Iterator[tuple[bytes, BatchTable, int, int]]:
    """One batch of every magic and codec that a corpus has: data, table, row, codec."""
    for corpus in corpora.corpora("k08-codecs", "k010-codecs", "k011-codecs", "k39-codecs", "k39-edge"):
        seen = set()
        for path in corpora.files(".log", chosen=[corpus]):
            data = path.read_bytes()
            table = BatchTable()
            kernel.scan(data, 0, True, table)
            for row in range(len(table)):
                codec = table.attributes[row] & 7
                if (table.magic[row], codec) not in seen and table.size[row] <= SEED_BYTES:
                    seen.add((table.magic[row], codec))
                    yield data, table, row, codec


def _payloads() -> Iterator[bytes]:
    for data, table, row, codec in _batches():
        start, size = kernel.payload_span(data, table, row)
        if table.magic[row] < 2 and not codec:
            continue
        block = data[start : start + size]
        payload = compression.decompress(codec, block, magic=table.magic[row])
        at = table.position[row]
        yield data[at : at + 61].ljust(61, b"\0") + payload


def _blocks() -> Iterator[bytes]:
    for data, table, row, codec in _batches():
        start, size = kernel.payload_span(data, table, row)
        if codec:
            yield bytes((codec | table.magic[row] << 3,)) + data[start : start + size]


def _files() -> Iterator[bytes]:
    names = {found.name: number for number, found in enumerate(FORMATS)}
    for corpus in corpora.corpora("k011-txn", "k39-txn"):
        for log_dir in corpus.log_dirs():
            for path in sorted(log_dir.path.rglob("*")):
                found = catalogue.of_file(path.name) if path.is_file() else None
                if found is not None and found.name in names:
                    yield bytes((names[found.name], 0)) + path.read_bytes()[: SEED_BYTES // 16 * 16]
