"""What production reads and writes files with comes from the definitions, and from nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.formats import derive, derive_compiled, derive_records, fixed_fields
from tests.formats import literals

KLOG = Path(__file__).parents[2] / "klog"
RUN = "run `python -m klog.formats.derive`"

# Formats that are not of Kafka's files, and what a derived format is completed with.
NOT_OF_FILES = {
    "backup/encryption.py": "klog's own encrypted objects",
    "backup/packing.py": "the seekable format of zstd",
    "client/consumer_protocol.py": "the wire",
    "commands/kafka_tools/deserialisers.py": "values of records",
    "commands/kafka_tools/dump_log/messages.py": "Java's UUID",
    "commands/kafka_tools/dump_log/parsers.py": "values of records",
    "config/java_key_store.py": "Java's key stores",
    "export/decoders/wire.py": "the header of schema registries",
    "formats/compression.py": "the framing of codecs",
    "formats/_derived.py": "made from the definitions",
    "kernel/_pycompaction.py": "a table in memory",
    "kernel/markers.py": "varints around derived formats",
    "metadata/topics.py": "the version of a UUID",
    "protocol/": "the wire",
    "server/handlers/data/produce_waits.py": "the wire",
    "server/handlers/dispatch.py": "the wire",
    "server/handlers/request_charge.py": "the wire",
    "server/network/": "the wire",
    "storage/files/lock_holder.py": "a lock of the operating system",
    "testing/proxies.py": "a table of the operating system",
}
# Modules that read a number where they came to.
COUNTED = {
    "commands/kafka_tools/dump_log/batch.py": "sizes before the key and the value of an old message",
    "kernel/_pydecode.py": "sizes before the key and the value of an old message",
    "kernel/_pytext.py": "the size before a value",
    "protocol/": "the wire",
    "server/": "the wire",
}
# Functions of compiled modules that read or write frames, and those that put numbers together.
WIRE_FUNCTIONS = {"after_head", "answers", "count_of", "put_count", "string", "take", "take_topics"}
NUMBERS = {"be64", "put64"}
# Those that write text, or compute a hash.
NO_FIELDS = {"put_base64", "put_escaped", "put_hex", "put_int", "sip128", "well_formed"}
# Modules that use what Construct has parsed, or define what is no format of Kafka's.
PARSING = {
    "cluster_metadata/kraft_snapshot.py",
    "commands/kafka_tools/dump_log/frames.py",
    "commands/kafka_tools/dump_log/messages.py",
    "config/java_key_store.py",
}
MADE = {"_derived.pxi", "_derived_records.pxi"}


def test_the_numbers_in_python_are_those_of_the_definitions() -> None:
    assert (KLOG / "formats/_derived.py").read_text() == derive.module_text(), RUN


def test_the_numbers_of_compiled_modules_are_those_of_the_definitions() -> None:
    assert (KLOG / "kernel/_derived.pxi").read_text() == derive.include_text(), RUN


def test_the_structs_of_compiled_modules_are_those_of_the_definitions() -> None:
    assert (KLOG / "kernel/_derived_records.pxi").read_text() == derive_compiled.include_text(), RUN


def test_the_shapes_of_records_are_those_of_the_definitions() -> None:
    assert (KLOG / "formats/_records.py").read_text() == derive_records.module_text(), RUN


def test_writing_all_files_again_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "formats").mkdir()
    (tmp_path / "kernel").mkdir()
    derive.write(tmp_path)
    for name in (
        "formats/_derived.py",
        "formats/_records.py",
        "kernel/_derived.pxi",
        "kernel/_derived_records.pxi",
    ):
        assert (tmp_path / name).read_text() == (KLOG / name).read_text()


def test_no_python_module_has_a_layout_of_its_own() -> None:
    found = [
        f"{path.relative_to(KLOG)}:{line}: {source}"
        for path in sorted(KLOG.rglob("*.py"))
        if not str(path.relative_to(KLOG)).startswith(tuple(NOT_OF_FILES))
        for line, source in literals.in_python(path.read_text())
    ]
    assert not found, "take these from klog.formats.fixed_fields"


def test_no_python_module_reads_fields_in_an_order_of_its_own() -> None:
    found = {
        str(path.relative_to(KLOG)): line
        for path in sorted(KLOG.rglob("*.py"))
        for line, _ in literals.counted_places(path.read_text())
    }
    allowed = {name for name in found if name.startswith(tuple(COUNTED))}
    assert set(found) == allowed, "read these by klog.formats.record_fields"
    assert all(any(name.startswith(each) for name in found) for each in COUNTED)


@pytest.mark.parametrize(
    ("source", "is_counted"),
    [
        ("INT16.unpack_from(data, position)", True),
        ("INT32.unpack_from(data, start + INT16.size)", True),
        ("INT16.unpack_from(data)", False),
        ("INT16.unpack_from(data, 0)", False),
        ("INT32.unpack_from(data, at + BATCH_CRC_POSITION)", False),
        ("INT64.unpack_from(stat, _AT['ephemeralOwner'])", False),
        ("unpack = INT32.unpack_from", True),
    ],
)
def test_the_check_knows_a_place_that_was_counted(source: str, is_counted: bool) -> None:
    assert bool(list(literals.counted_places(source))) == is_counted


def test_no_compiled_module_has_a_layout_of_its_own() -> None:
    found = [
        f"{path.relative_to(KLOG)}:{line}: {source}"
        for kind in ("*.pyx", "*.pxi")
        for path in sorted(KLOG.rglob(kind))
        for line, function, source in literals.in_cython(path.read_text())
        if path.name not in MADE
        and function not in NUMBERS | NO_FIELDS
        and not (path.parent.name == "protocol" and function in WIRE_FUNCTIONS)
    ]
    assert not found, "take these from kernel/_derived.pxi and kernel/_derived_records.pxi"


def test_every_exception_of_compiled_modules_is_still_needed() -> None:
    found = {
        function
        for kind in ("*.pyx", "*.pxi")
        for path in KLOG.rglob(kind)
        for _, function, _ in literals.in_cython(path.read_text())
    }
    assert found >= WIRE_FUNCTIONS | NUMBERS | NO_FIELDS


def test_construct_is_used_where_formats_are_defined() -> None:
    found = {
        str(path.relative_to(KLOG))
        for path in KLOG.rglob("*.py")
        if re.search(r"^ *(?:import|from) construct\b", path.read_text(), re.MULTILINE)
    }
    assert {name for name in found if not name.startswith("formats/")} == PARSING


def test_every_exception_is_still_needed() -> None:
    for prefix in NOT_OF_FILES:
        paths = KLOG.glob(f"{prefix}**/*.py") if prefix.endswith("/") else [KLOG / prefix]
        assert prefix == "formats/_derived.py" or any(
            list(literals.in_python(path.read_text())) for path in paths
        ), prefix


@pytest.mark.parametrize(
    "source",
    [
        "HEAD = struct.Struct('>qi')",
        "HEAD = struct.Struct(f'>{count}i')",
        "struct.unpack_from('>hqi', data)",
        "HEAD = Struct('>qi').pack",
        "unpack_from('>hqi', data)",
        "CRC_POSITION: Final = 17",
        "HEADER_BYTES = 61",
        "INT32.unpack_from(data, 23)",
        "INT32.unpack_from(data, at + 23)",
        "INT32.pack_into(data, 17, crc)",
        "int.from_bytes(data[8:12], 'big')",
        "int.from_bytes(view[at + 8 : at + SIZE], 'big')",
        "int.from_bytes(bytes=data[8:12], byteorder='big')",
        "FORMAT = '>qiibI'",
        "S('>qi')",
        "np.dtype('>i4,>i8')",
        "struct.unpack('>' + 'qi', data)",
        "struct.unpack_from('>h', data, 23)",
        "struct.unpack('>h', data[21:23])",
        "INT16.unpack(data[21:23])",
        "INT32.unpack_from(data, offset=17)",
        "CRC_OFFSET = 17",
        "magic = data[16]",
        "magic = data[at + 16]",
        "data[16] = 2",
        "INT64.pack(offset) + INT32.pack(size)",
        "b''.join((INT64.pack(offset), INT32.pack(size), data))",
        "offset.to_bytes(8, 'big') + size.to_bytes(4, 'big')",
    ],
)
def test_the_check_finds_a_layout_in_python(source: str) -> None:
    assert list(literals.in_python(source))


@pytest.mark.parametrize(
    "source",
    [
        "HEAD = fixed_fields.run('RecordBatch').through('crc')",
        "SHORT = struct.Struct('>h')",
        "INT32.unpack_from(data, BATCH_CRC_POSITION)",
        "INT32.unpack_from(data, 0)",
        "int.from_bytes(data[start:end], 'big')",
        "LIMIT_BYTES = 61",
        "struct.Struct('>' + codes)",
        "HEADER.pack_into(batch, 0, 61, 17)",
        "magic = data[MAGIC_POSITION]",
        "NAMES[17]",
        "INT32.pack(len(data)) + data",
    ],
)
def test_the_check_accepts_what_is_no_layout(source: str) -> None:
    assert not list(literals.in_python(source))


@pytest.mark.parametrize(
    "source",
    [
        "    crc = be32(p + 17)",
        "put64(out + 27, timestamp)",
        "if p[16] != 2:",
        "be32(data + at + 8)",
        "be32(p + BATCH_CRC_POSITION + 4)",
        "partition = <int32_t>be32(p)",
        "put16(p, <uint16_t>group_size)",
        "new.commit_timestamp_ms = <int64_t>be64(stop)",
        "p = varint32(p, stop, &offset_delta)",
        "p = put_varint(p + 1, zigzag64(timestamp))",
        "crc = be32(\n    p + 17)",
        "if p[8] != 2:",
        "magic = data[16]",
        "magic = data[at + 16]",
        "out[16] = 2",
        "magic = (p + 16)[0]",
        "memcpy(&crc, p + 17, 4)",
        "p += 17",
        "    CRC_AT = 17",
        "DEF CRC = 17",
        "cdef enum: CRC = 17",
        "cdef packed struct Batch:",
        "crc = ntohl(found)",
        "p = uvarint32(p, stop, &count)",
        "int.from_bytes(data[17:21])",
        "unpack('>qi', data)",
    ],
)
def test_the_check_finds_a_layout_in_a_compiled_module(source: str) -> None:
    assert list(literals.in_cython(source))


@pytest.mark.parametrize(
    "source",
    [
        "crc = be32(p + BATCH_CRC_POSITION)  # at 17",
        "p = read_record(p, stop, &record)",
        "size += size_of_varint(zigzag64(length))",
        "cdef inline uint16_t be16(const uint8_t *p) noexcept nogil:",
        "cdef char[24] digits",
        "p += BATCH_HEADER_BYTES",
    ],
)
def test_the_check_accepts_derived_places_and_orders_in_a_compiled_module(source: str) -> None:
    assert not list(literals.in_cython(source))


def test_a_run_gives_places_and_formats_of_its_fields() -> None:
    batch = fixed_fields.run("RecordBatch")
    assert (batch.at("baseOffset"), batch.at("crc"), batch.after("crc")) == (0, 17, 21)
    assert batch.through("magic").format == ">qiib"
    assert batch.between("producerId", "baseSequence").format == ">qhi"
    assert batch.only("batchLength", "magic").format == ">8xi4xb"


def test_values_are_named_in_the_order_in_which_they_are_read() -> None:
    with pytest.raises(ValueError, match="another order"):
        fixed_fields.run("RecordBatch").only("magic", "batchLength")


def test_fields_are_written_by_their_names() -> None:
    entry = fixed_fields.run("OffsetIndexEntry")
    data = bytearray(12)
    entry.writer()(data, 2, position=7, relativeOffset=3)
    assert bytes(data) == b"\0\0" + entry.struct.pack(3, 7) + b"\0\0"


def test_a_field_of_variable_size_ends_a_run_with_its_length() -> None:
    before, after = fixed_fields.runs("OffsetCommitValue.1")
    assert (before.names[-1], before.struct.format) == ("metadata", ">hqh")
    assert after.names == ["commitTimestamp", "expireTimestamp"]
    assert fixed_fields.run("OffsetCommitValue.1", "expireTimestamp").at("expireTimestamp") == 8


def test_the_form_of_a_message_follows_from_its_magic() -> None:
    assert "timestamp" not in fixed_fields.run("Message0").names
    assert fixed_fields.run("Message1").at("timestamp") == fixed_fields.run("Message0").at("key")


def test_a_mask_has_the_bits_of_its_field() -> None:
    assert fixed_fields.mask("RecordBatch", "codec") == 0b111
    assert fixed_fields.mask("RecordBatch", "hasDeleteHorizon") == 0b100_0000
