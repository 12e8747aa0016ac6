"""`klog formats NAME --decode FILE@POSITION` shows real files of several Kafka versions byte by byte."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from klog.commands.main import app
from klog.formats import catalogue, control_records, producer_snapshot, record_batch, segment
from klog.formats.errors import FormatError, StorageError, UsageError
from tests.processes import child

FIXTURES = Path(__file__).parents[3] / "fixtures"
FIRST = "00000000000000000000"
run = CliRunner()


def path_of(partition: str, file: str) -> Path:
    corpus, _, name = partition.partition("/")
    return FIXTURES / corpus / "logs" / name / file


def rows(name: str, place: str) -> list[dict[str, Any]]:
    result = run.invoke(app, ["formats", name, "--decode", place, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


def shown(name: str, place: str) -> str:
    result = run.invoke(app, ["formats", name, "--decode", place], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def row_of(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in found if row["name"] == name)


# A partition of each version that wrote segments, with the name of what starts its first one.
SEGMENTS = [
    ("k08-codecs/t-none-0", "message-set"),
    ("k08-codecs/t-gzip-0", "message-set"),
    ("k010-codecs/t-snappy-0", "message-set"),
    ("k011-codecs/t-lz4-0", "record-batch"),
    ("k28-codecs/t-none-0", "record-batch"),
    ("k39-codecs/t-none-0", "record-batch"),
    ("k39-codecs/t-zstd-0", "record-batch"),
    ("k4-codecs/t-gzip-0", "record-batch"),
]


@pytest.mark.parametrize(("partition", "name"), SEGMENTS)
def test_each_byte_of_a_batch_is_shown_once_under_the_name_of_its_field(partition: str, name: str) -> None:
    log = path_of(partition, f"{FIRST}.log")
    data = log.read_bytes()
    for entry in segment.entries(data):
        found = rows(name, f"{log}@{entry.position_bytes}")
        of_file = [row for row in found if not row["block"]]
        joined = b"".join(bytes.fromhex(row["bytes"]) for row in of_file)
        assert joined == data[entry.position_bytes : entry.position_bytes + entry.size_bytes]
        assert found == rows("segment", f"{log}@{entry.position_bytes}")
        if entry.position_bytes > 5000:
            break


@pytest.mark.parametrize(("partition", "name"), SEGMENTS)
def test_values_are_those_of_the_definition(partition: str, name: str) -> None:
    log = path_of(partition, f"{FIRST}.log")
    first = next(segment.entries(log.read_bytes())).value
    found = rows(name, f"{log}@0")
    parts = first if name == "record-batch" else {**first, **first.body}
    for field in (
        "baseOffset",
        "offset",
        "batchLength",
        "size",
        "crc",
        "magic",
        "maxTimestamp",
        "recordCount",
    ):
        if field in parts:
            assert row_of(found, field)["value"] == parts[field]
    assert row_of(found, "codec")["value"] == str(parts["attributes"].codec)


@pytest.mark.parametrize("partition", ["k011-codecs/t-lz4-0", "k39-codecs/t-zstd-0", "k08-codecs/t-gzip-0"])
def test_a_compressed_block_is_shown_decompressed_after_its_batch(partition: str) -> None:
    log = path_of(partition, f"{FIRST}.log")
    first = next(segment.entries(log.read_bytes())).value
    block = [row for row in rows("segment", f"{log}@0") if row["block"]]
    keys = [row for row in block if row["name"] == "key" and row["depth"] <= 2]
    if "magic" in first:
        assert len(keys) >= first.recordCount
        assert b"".join(bytes.fromhex(row["bytes"]) for row in block) == record_batch.open_block(first)
    assert "decompressed (" in block[0]["part"]


def test_bits_of_the_attributes_stand_at_their_places() -> None:
    text = shown("record-batch", f"{path_of('k39-txn/t-txn-0', FIRST + '.log')}@659")
    assert re.search(r"\.{4} \.{4} \.{4} \.001 +codec +gzip", text)
    assert re.search(r"\.{4} \.{4} \.{3}1 \.{4} +isTransactional +True", text)
    codec = row_of(rows("record-batch", f"{path_of('k39-txn/t-txn-0', FIRST + '.log')}@659"), "codec")
    assert (codec["lowestBit"], codec["bits"], codec["value"], codec["bytes"]) == (0, 3, "gzip", "")


def test_a_length_stands_apart_from_what_it_is_the_length_of() -> None:
    assert re.search(
        r"04 \| 6b 31 +key +'k1'", shown("segment", f"{path_of('k39-txn/t-txn-0', FIRST + '.log')}@0")
    )


def test_a_timestamp_is_also_shown_as_a_time() -> None:
    text = shown("segment", str(path_of("k39-txn/t-txn-0", f"{FIRST}.log")))
    assert "1600000001000 (2020-09-13 12:26:41.000 UTC)" in text


def test_items_after_the_third_are_one_row() -> None:
    text = shown("segment", str(path_of("k39-codecs/t-none-0", f"{FIRST}.log")))
    assert re.search(r" more +\[3\] to \[\d+\]\n", text)
    assert not re.search(r"^ +\d.* \[4\]", text, re.MULTILINE)


def test_items_of_each_array_are_counted_from_0() -> None:
    found = rows("segment", str(path_of("k39-codecs/t-none-0", f"{FIRST}.log")))
    first_of_headers = [
        found[at + 1]["name"]
        for at, row in enumerate(found)
        if row["name"] == "headers" and row["bytes"] != "00"
    ]
    assert first_of_headers
    assert set(first_of_headers) == {"[0]"}


@pytest.mark.parametrize(
    ("name", "suffix", "entry_bytes"),
    [("offset-index", "index", 8), ("time-index", "timeindex", 12), ("transaction-index", "txnindex", 34)],
)
def test_an_entry_of_an_index_is_shown_at_its_position(name: str, suffix: str, entry_bytes: int) -> None:
    partition = "k39-txn/t-txn-0" if name == "transaction-index" else "k39-codecs/t-none-0"
    for file in FIXTURES.joinpath(partition.replace("/", "/logs/")).glob(f"*.{suffix}"):
        data = file.read_bytes()
        if len(data) >= entry_bytes:
            found = rows(name, f"{file}@0")
            assert b"".join(bytes.fromhex(row["bytes"]) for row in found) == data[:entry_bytes]
            parsed = catalogue.find(name).parse(data)
            first = (parsed if isinstance(parsed, list) else parsed.entries)[0]
            assert [row["value"] for row in found] == [
                value for field, value in first.items() if field != "_io"
            ]
            return
    pytest.fail(f"no {suffix} has an entry")


def test_a_producer_snapshot_is_shown_as_a_whole_or_by_entry() -> None:
    file = max(FIXTURES.glob("k39-txn/logs/*/*.snapshot"), key=lambda path: path.stat().st_size)
    ids = [entry.producerId for entry in producer_snapshot.parse(file.read_bytes()).producers]
    whole = rows("producer-snapshot", str(file))
    assert [row["value"] for row in whole if row["name"] == "producerId"] == ids
    first = rows("producer-snapshot", f"{file}@10")[0]
    assert (first["name"], first["position"], first["value"]) == ("producerId", 10, ids[0])


def test_a_control_record_is_shown_by_its_own_format() -> None:
    log, marker = next(
        (log, entry)
        for log in sorted(FIXTURES.glob("k39-txn/logs/*/*.log"))
        for entry in segment.entries(log.read_bytes())
        if entry.value.attributes.isControl
    )
    (record,) = record_batch.records(marker.value)
    expected = control_records.parse(record.key, record.value)
    found = rows("control-record", f"{log}@{marker.position_bytes}")
    kind = row_of(found, "type")
    assert kind["value"] == str(expected.key.type)
    assert row_of(found, "coordinatorEpoch")["value"] == expected.value.coordinatorEpoch
    assert log.read_bytes()[kind["position"] :][:2].hex() == kind["bytes"]


@pytest.mark.parametrize("corpus", ["k39-groups", "k4-groups", "k28-codecs"])
def test_records_of_internal_topics_are_shown_by_their_formats(corpus: str) -> None:
    for log in sorted(FIXTURES.joinpath(corpus, "logs").glob("__consumer_offsets-*/*.log")):
        if log.stat().st_size:
            names = {row["name"] for row in rows("consumer-offsets", f"{log}@0")}
            assert {"version", "group"} & names
            return
    assert corpus == "k28-codecs", "no records of groups"


ZOOKEEPER = Path(__file__).parents[2] / "cluster_metadata" / "zookeeper-3.8" / "version-2"


@pytest.mark.parametrize(("name", "file"), [("zookeeper-snapshot", "snapshot.a"), ("zookeeper-log", "log.1")])
def test_pieces_of_zookeepers_files_follow_each_other(name: str, file: str) -> None:
    path = ZOOKEEPER / file
    position, pieces = 0, []
    while position < len(path.read_bytes().rstrip(b"\0")):
        found = rows(name, f"{path}@{position}")
        pieces.append({row["name"]: row["value"] for row in found})
        position += sum(len(row["bytes"]) // 2 for row in found)
    parsed = catalogue.find(name).parse(path.read_bytes())
    if name == "zookeeper-log":
        assert [piece["zxid"] for piece in pieces[1:]] == [each.transaction.zxid for each in parsed.entries]
    else:
        assert [piece["path"] for piece in pieces[1:-1]] == [each.path for each in parsed.nodes]
        assert pieces[-1]["digest"] == parsed.treeDigest.digest


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_each_byte_of_a_checkpoint_of_each_version_is_shown_once(name: str) -> None:
    files = [file for file in sorted(FIXTURES.rglob(name)) if file.stat().st_size]
    assert files
    for file in files:
        found = rows(name, str(file))
        assert b"".join(bytes.fromhex(row["bytes"]) for row in found) == file.read_bytes()


@pytest.mark.parametrize("name", ["meta.properties", "partition.metadata", "quorum-state"])
def test_lines_of_other_text_files_are_shown(name: str) -> None:
    file = next(iter(sorted(FIXTURES.rglob(name))))
    found = rows(name, str(file))
    assert b"".join(bytes.fromhex(row["bytes"]) for row in found) == file.read_bytes()


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        (
            "meta-properties",
            "#\nversion=0\nbroker.id : 7\n",
            {"#": "#", "version": "0", "broker.id": "broker.id : 7"},
        ),
        ("partition-metadata", "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg", {"version": "0"}),
        ("clean-shutdown", '{"version":0,"brokerEpoch":25}', {"version": 0, "brokerEpoch": 25}),
        ("clean-shutdown", '{\n "version": 0,\n "brokerEpoch": 25}', {"line": "{"}),
        ("quorum-state", '{"leaderId":1,"leaderEpoch":5,"votedId":-1,"data_version":1}', {"leaderEpoch": 5}),
    ],
)
def test_fields_of_text_are_shown_without_their_names(
    name: str, text: str, values: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "copy").write_text(text)
    found = rows(name, str(tmp_path / "copy"))
    assert {each: row_of(found, each)["value"] for each in values} == values
    assert b"".join(bytes.fromhex(row["bytes"]) for row in found) == text.encode()


# A file of each format, by a pattern below the fixtures. Of remote-log-metadata there is none: Kafka has no
# remote storage of its own.
FILES = {
    "segment": "k39-codecs/logs/t-none-0/*.log",
    "record-batch": "k39-codecs/logs/t-none-0/*.log",
    "message-set": "k08-codecs/logs/t-none-0/*.log",
    "control-record": "k4-kraft/logs/__cluster_metadata-0/*.log",
    "offset-index": "*/logs/*/*.index",
    "time-index": "*/logs/*/*.timeindex",
    "transaction-index": "*/logs/*/*.txnindex",
    "producer-snapshot": "*/logs/*/*.snapshot",
    "consumer-offsets": "k39-groups/logs/__consumer_offsets-*/*.log",
    "transaction-state": "k39-txn/logs/__transaction_state-*/*.log",
    "cluster-metadata": "k4-kraft/logs/__cluster_metadata-0/*.log",
    "share-group-state": "k4-groups/logs/__share_group_state-*/*.log",
    "zookeeper-snapshot": str(ZOOKEEPER / "snapshot.*"),
    "zookeeper-log": str(ZOOKEEPER / "log.*"),
}
SHOWN = [each for each in catalogue.FORMATS if each.kind != "name" and each.name != "remote-log-metadata"]


@pytest.mark.parametrize("name", [each.name for each in SHOWN])
def test_a_file_of_each_format_is_decoded(name: str) -> None:
    pattern = FILES.get(name, f"*/logs/**/{catalogue.find(name).pattern}")
    found = map(Path, glob(pattern, root_dir=FIXTURES, recursive=True, include_hidden=True))
    file = next(path for path in sorted(FIXTURES / each for each in found) if path.stat().st_size)
    decoded = rows(name, f"{file}@{_first_of(name, file)}")
    assert any(row["bytes"] for row in decoded)


def _first_of(name: str, file: Path) -> int:
    """Where a record of this format may begin: records of KRaft follow those of the quorum."""
    if name != "cluster-metadata":
        return 0
    entries = segment.entries(file.read_bytes())
    return next(each.position_bytes for each in entries if not each.value.attributes.isControl)


@pytest.mark.parametrize(
    ("name", "place", "complaint"),
    [
        ("no-such-format", "{log}@0", "no format is called"),
        ("segment", "{log}@here", "'here' is no position"),
        ("segment", "{log}@-1", "'-1' is no position"),
        ("segment", "{log}@99999999", "position 99999999 is not in the file"),
        ("message-set", "{log}@0", "a batch of magic 2 is at byte 0"),
        ("offset-index", "{index}@3", "no entry of the offset-index starts at byte 3"),
        ("leader-epoch-checkpoint", "{epochs}@2", "read as a whole"),
        ("file-names", "{log}@0", "no bytes"),
    ],
)
def test_a_wrong_name_or_position_is_wrong_usage(name: str, place: str, complaint: str) -> None:
    partition = FIXTURES / "k39-codecs/logs/t-none-0"
    files = {
        "log": partition / f"{FIRST}.log",
        "index": partition / f"{FIRST}.index",
        "epochs": partition / "leader-epoch-checkpoint",
    }
    result = run.invoke(app, ["formats", name, "--decode", place.format(**files)])
    assert isinstance(result.exception, UsageError)
    assert complaint in str(result.exception)


def test_a_position_inside_of_a_batch_says_how_to_find_one() -> None:
    log = path_of("k39-codecs/t-none-0", f"{FIRST}.log")
    result = run.invoke(app, ["formats", "segment", "--decode", f"{log}@1"])
    assert isinstance(result.exception, FormatError)
    assert "dump-segment" in (result.exception.cure or "")
    assert result.exception.file == str(log)


@pytest.mark.parametrize("name", ["segment", "consumer-offsets", "offset-index", "transaction-index"])
def test_an_empty_file_has_no_bytes(name: str, tmp_path: Path) -> None:
    (tmp_path / "copy").touch()
    assert shown(name, f"{tmp_path}/copy@0").endswith(f"no bytes of {tmp_path}/copy\n")


@pytest.mark.parametrize(("name", "entry_bytes"), [("offset-index", 8), ("time-index", 12)])
def test_zeros_of_a_pre_allocated_index_are_no_entries(name: str, entry_bytes: int, tmp_path: Path) -> None:
    """Entry 0 may be all zeros."""
    (tmp_path / "copy").write_bytes(bytes(entry_bytes) + b"\1" * entry_bytes + bytes(5 * entry_bytes))
    assert row_of(rows(name, f"{tmp_path}/copy@0"), "relativeOffset")["value"] == 0
    (tail,) = rows(name, f"{tmp_path}/copy@{3 * entry_bytes}")
    assert (tail["name"], tail["part"]) == ("tail", "after the entries")
    assert bytes.fromhex(tail["bytes"]) == bytes(4 * entry_bytes)


def test_a_snapshot_is_shown_with_its_crc(tmp_path: Path) -> None:
    file = sorted((FIXTURES / "k39-txn/logs/t-txn-0").glob("*.snapshot"))[-1]
    assert "; crc matches" in shown("producer-snapshot", str(file))
    (tmp_path / "copy").write_bytes(file.read_bytes()[:-1] + b"\1")
    assert "; producer snapshot: crc is" in shown("producer-snapshot", str(tmp_path / "copy"))


def test_control_records_are_kept_apart_from_others() -> None:
    of_quorum = FIXTURES / f"k4-kraft/logs/__cluster_metadata-0/{FIRST}.log"
    result = run.invoke(app, ["formats", "cluster-metadata", "--decode", str(of_quorum)])
    assert isinstance(result.exception, UsageError)
    assert "byte 0 holds a control record (it is a control-record" in str(result.exception)
    of_clients = FIXTURES / f"k39-txn/logs/t-txn-0/{FIRST}.log"
    result = run.invoke(app, ["formats", "control-record", "--decode", str(of_clients)])
    assert isinstance(result.exception, UsageError)
    assert "byte 0 holds no control record" in str(result.exception)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = run.invoke(app, ["formats", "segment", "--decode", str(tmp_path / "none.log@0")])
    assert isinstance(result.exception, StorageError)
    assert "none.log" in str(result.exception)


def test_decoding_needs_a_format() -> None:
    result = run.invoke(app, ["formats", "--decode", "file@0"])
    assert isinstance(result.exception, UsageError)


def test_a_damaged_batch_is_shown_with_its_crc(tmp_path: Path) -> None:
    data = bytearray(path_of("k39-codecs/t-none-0", f"{FIRST}.log").read_bytes())
    data[30] ^= 1
    (tmp_path / "damaged.log").write_bytes(data)
    assert "its bytes give" in shown("segment", str(tmp_path / "damaged.log"))


def test_a_file_whose_name_has_an_at_sign_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "copy@2.log"
    copy.write_bytes(path_of("k39-codecs/t-none-0", f"{FIRST}.log").read_bytes())
    assert rows("segment", str(copy)) == rows("segment", f"{copy}@0")


def test_a_terminal_gets_colours() -> None:
    ours, theirs = pty.openpty()
    log = path_of("k39-codecs/t-none-0", f"{FIRST}.log")
    command = f"from klog.commands.main import app; app(['formats', 'segment', '--decode', {str(log)!r}])"
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with child(
        [sys.executable, "-c", command],
        stdout=theirs,
        env=environment | {"COLUMNS": "200", "TERM": "xterm-256color"},
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65536)
            except OSError:
                break
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[" in text
    assert b"baseOffset" in text


@pytest.mark.parametrize(
    ("name", "file", "named"),
    [
        ("offset-index", f"{FIRST}.log", "segment"),
        ("record-batch", f"{FIRST}.timeindex", "time-index"),
        ("record-batch", f"{FIRST}.log", None),
        ("segment", f"{FIRST}.log", None),
    ],
)
def test_a_file_that_has_the_name_of_another_format_is_noted(name: str, file: str, named: str | None) -> None:
    path = path_of("k39-codecs/t-none-0", file)
    result = run.invoke(app, ["formats", name, "--decode", str(path)])
    noted = f"klog: {path} is by its name of the format {named}, and is decoded as {name}"
    assert " ".join(result.stderr.split()) == (noted if named else "")
