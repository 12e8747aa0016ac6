"""`--format kafka` prints what Kafka 3.9.1's tool printed for every file of every corpus, byte for byte."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog
from klog.commands.kafka_tools.dump_log import frames, internal, printing
from klog.commands.kafka_tools.dump_log.messages import json_text
from klog.commands.shared.records.plan import Decoder, DumpFile, DumpPlan, KafkaFlags
from klog.formats import cluster_metadata, metadata_records
from klog.formats.errors import KlogError, UsageError
from klog.formats.names import FileKind
from tests import corpora
from tests import strategies as own
from tests.formats.raw_batches import uncompressed_batch
from tests.peers.kafka import KafkaPeer

DEEP = KafkaFlags(print_data_log=True, deep_iteration=True)
SHALLOW = KafkaFlags()
DECODERS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTION_LOG,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
    "__share_group_state": Decoder.SHARE_GROUP_STATE,
}
_TEXT = re.compile(r"(.*)\.((?:log|checkpoint)\.(?:deep|shallow|decoded)|index)\.txt(?:\.gz)?")
_THROWN = b"!! "


@dataclass(frozen=True)
class Text:
    """One dump text of the fixtures: some files of one partition, dumped with one set of flags."""

    path: Path
    logs: Path
    partition: str
    flags: KafkaFlags

    def sections(self) -> Iterator[tuple[str, bytes]]:
        """Each file by its name, and what the tool printed from its `Dumping` line on."""
        start = re.escape(f"Dumping {self.partition}/".encode())
        for section in re.split(rb"(?m)^(?=%s[^/\n]*\n)" % start, corpora.read_stored(self.path)):
            if section:
                yield section[len(b"Dumping ") : section.index(b"\n")].decode(), section

    def __str__(self) -> str:
        return str(self.path.relative_to(corpora.FIXTURES))


def texts() -> list[Text]:
    found = []
    for corpus in corpora.corpora():
        for log_dir in corpus.log_dirs():
            directory = log_dir.dump_path()
            for path in sorted(directory.iterdir()) if directory.is_dir() else ():
                match = _TEXT.fullmatch(path.name)
                if match is not None:
                    flags = flags_of(match[1], match[2])
                    name = path.with_name(path.name.removesuffix(".gz"))
                    found.append(Text(name, log_dir.path, match[1], flags))
    return found


def flags_of(partition: str, kind: str) -> KafkaFlags:
    if kind.endswith(".decoded"):
        return KafkaFlags(decoder=DECODERS[partition.rpartition("-")[0]])
    return DEEP if kind.endswith(".deep") else SHALLOW


@dataclass(frozen=True)
class Outcome:
    stdout: bytes
    stderr: bytes
    died: bool
    status: int


def dump(*paths: str, flags: KafkaFlags = SHALLOW, capsys: pytest.CaptureFixture[str]) -> Outcome:
    out = io.BytesIO()
    files = tuple(DumpFile(path, FileKind.LOG) for path in paths)
    try:
        status = printing.run(DumpPlan(files, kafka=flags), out)
    except KlogError:
        return Outcome(out.getvalue(), b"", True, 1)
    return Outcome(out.getvalue(), capsys.readouterr().err.encode(), False, status)


TEXTS = texts()


@pytest.mark.parametrize("text", TEXTS, ids=str)
def test_the_text_equals_that_of_kafka(
    text: Text, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(text.logs)
    sections = list(text.sections())
    assert sections
    for path, expected in sections:
        outcome = dump(path, flags=text.flags, capsys=capsys)
        thrown = expected.rfind(b"\n" + _THROWN) + 1
        if outcome.died:
            assert thrown, f"{path}: Kafka's tool did not die"
            assert outcome.stdout == expected[:thrown]
        else:
            assert outcome.stdout == expected


def test_the_comparison_saw_every_corpus_and_every_kind_of_text() -> None:
    # The test must cover all files.
    assert len(TEXTS) >= 750
    assert {text.path.parent.parent.name for text in TEXTS} == {corpus.name for corpus in corpora.corpora()}
    assert sum(len(list(text.sections())) for text in TEXTS) >= 2300
    assert sum(text.flags.decoder is not None for text in TEXTS) >= 20
    assert any(b"\n" + _THROWN in corpora.read_stored(text.path) for text in TEXTS)


T_NONE = corpora.Corpus("k39-codecs").log_dir()
LOG = "t-none-0/00000000000000000000.log"


@pytest.fixture
def in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(T_NONE.path)


@pytest.mark.usefixtures("in_logs")
def test_an_unknown_file_is_ignored_in_kafkas_words(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = dump("t-none-0/leader-epoch-checkpoint", capsys=capsys)
    assert outcome.stdout == b"Dumping t-none-0/leader-epoch-checkpoint\n"
    assert outcome.stderr == b"Ignoring unknown file t-none-0/leader-epoch-checkpoint\n"


def test_escaped_characters_have_capitals_and_a_backslash_is_no_escape_of_what_follows() -> None:
    assert json_text({"\x1f": "\\u00ab\x0b"}) == '{"\\u001F":"\\\\u00ab\\u000B"}'


_RECORDS = own.framed_records(metadata_records.RECORDS).map(cluster_metadata.build)


@given(_RECORDS | own.damaged(_RECORDS) | st.binary(max_size=40))
def test_usual_metadata_records_are_printed_as_all_others(value: bytes) -> None:
    fast = frames.cluster_metadata_parser(None, value, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_usual_text", lambda _: None)
        assert fast == frames.cluster_metadata_parser(None, value, 5)


@pytest.mark.usefixtures("in_logs")
def test_gaps_between_offsets_are_reported_at_the_end_latest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (T_NONE.path / LOG).read_bytes()
    sizes = []
    at = 0
    while at < len(data):
        sizes.append(int.from_bytes(data[at + 8 : at + 12], "big") + 12)
        at += sizes[-1]
    first, second, third = sizes[:3]
    parts = [data[:first], data[first + second : first + second + third], data[:first]]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    outcome = dump(str(path), flags=DEEP, capsys=capsys)
    offsets = [int(found) for found in re.findall(rb"(?m)^\| offset: (\d+)", outcome.stdout)]
    gaps = [(a, b) for a, b in pairwise(offsets) if b != a + 1]
    assert len(gaps) == 2
    lines = [f"Non-consecutive offsets in {path}"]
    lines += [f"  {before} is followed by {after}" for before, after in reversed(gaps)]
    assert outcome.stderr.decode().splitlines() == lines
    assert outcome.status == 0  # gaps are no damage: compaction leaves them


@pytest.mark.usefixtures("in_logs")
def test_a_decoder_class_that_is_not_kafkas_is_wrong_usage() -> None:
    flags = KafkaFlags(value_decoder_class="com.example.MyDecoder")
    with pytest.raises(UsageError, match=r"com\.example\.MyDecoder"):
        printing.run(DumpPlan((DumpFile(LOG, FileKind.LOG),), kafka=flags), io.BytesIO())


@pytest.mark.usefixtures("in_logs")
def test_double_slashes_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = dump(".//t-none-0//00000000000000000000.log", capsys=capsys)
    assert outcome.stdout.startswith(b"Dumping ./t-none-0/00000000000000000000.log\nLog starting offset: 0\n")


@pytest.mark.parametrize("logs", ["k4-groups"])
def test_records_of_share_groups_are_those_of_kafka_4(
    logs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = corpora.Corpus(logs).log_dir()
    monkeypatch.chdir(log_dir.path)
    expected = corpora.FIXTURES / logs / "dump_4.1/__share_group_state-0.log.decoded.txt"
    flags = KafkaFlags(decoder=Decoder.SHARE_GROUP_STATE)
    found = dump("__share_group_state-0/00000000000000000000.log", flags=flags, capsys=capsys)
    assert found.stdout == expected.read_bytes()
    assert b'"type":"1"' in found.stdout


def share_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    return internal.PARSERS[Decoder.SHARE_GROUP_STATE](key, value, 7)


def test_a_share_group_record_that_cannot_be_read_is_skipped_in_kafkas_words() -> None:
    assert share_record(b"\0\x09", None) == ("Unknown record type 9 at offset 7, skipping.", None)
    assert share_record(b"\0", None) == (
        "Error at offset 7, skipping. Could not read version from key's buffer.",
        None,
    )
    key = b"\0\0" + b"\0\1g" + bytes(16) + bytes(4)
    shown, deleted = share_record(key, None)
    assert (json.loads(shown or "")["data"]["groupId"], deleted) == ("g", "<DELETE>")
    assert share_record(key, b"\2\0") == (
        "Error at offset 7, skipping. Found an unknown record version 512 for 0 type",
        None,
    )
    with pytest.raises(KlogError, match="no key"):
        share_record(None, b"")


@pytest.mark.kafka
def test_damaged_records_of_share_groups_are_printed_as_by_kafka_4(
    kafka4: KafkaPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "__share_group_state-0/00000000000000000007.log"
    log_dir = corpora.Corpus("k4-groups").log_dir()
    numbers = random.Random(5)
    rows = []
    for record in [*klog.open(log_dir.path / "__share_group_state-0").records()] * 20:
        parts = [record.key, record.value]
        which = numbers.randrange(2)
        parts[which] = damaged(numbers, parts[which])
        rows.append(uncompressed_batch([(*parts, [])]))
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_bytes(b"".join(rows))
    monkeypatch.chdir(tmp_path)
    expected = kafka4.dump_log([name], "--share-group-state-decoder", cwd=tmp_path)
    found = dump(name, flags=KafkaFlags(decoder=Decoder.SHARE_GROUP_STATE), capsys=capsys)
    assert expected.count(b"Error at offset") >= 5
    assert found.stdout == expected


def damaged(numbers: random.Random, data: bytes) -> bytes:
    """The bytes with one of the first changed, cut off, or with more behind them."""
    match numbers.randrange(3):
        case 0:
            at = numbers.randrange(min(len(data), 12))
            return (
                data[:at] + bytes([numbers.choice([0, 1, 2, 255, numbers.randrange(256)])]) + data[at + 1 :]
            )
        case 1:
            return data[: numbers.randrange(len(data))]
        case _:
            return data + numbers.randbytes(3)


GZIP_FLAGS = {
    "log": (
        SHALLOW,
        DEEP,
        KafkaFlags(max_bytes=3000),
        KafkaFlags(print_data_log=True, skip_record_metadata=True),
        KafkaFlags(value_decoder_class="org.apache.kafka.tools.api.IntegerDecoder"),
    ),
    "index": (SHALLOW, KafkaFlags(index_sanity_check=True), KafkaFlags(verify_index_only=True)),
    "timeindex": (SHALLOW, KafkaFlags(verify_index_only=True), KafkaFlags(max_message_size=100)),
    "snapshot": (SHALLOW,),
}


@pytest.mark.parametrize("suffix", GZIP_FLAGS)
def test_gzipped_copies_are_dumped_as_the_plain_files(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = T_NONE.path / "t-none-0"
    for file in source.iterdir():
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    plain = sorted(source.glob(f"*.{suffix}"))
    assert plain
    for flags in GZIP_FLAGS[suffix]:
        for file in plain:
            expected = dump(str(file), flags=flags, capsys=capsys)
            found = dump(str(tmp_path / f"{file.name}.gz"), flags=flags, capsys=capsys)
            in_gzip = found.stdout.replace(str(tmp_path).encode(), str(source).encode())
            assert in_gzip.replace(b".gz", b"") == expected.stdout
            assert (found.status, found.died) == (expected.status, expected.died)
            assert found.stderr.count(b"\n") == expected.stderr.count(b"\n")


def test_a_damaged_gzipped_copy_is_dumped_up_to_the_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = random.Random(1)  # random bytes do not compress, so the damage lies where the cut is
    segment = b"".join(uncompressed_batch([(None, numbers.randbytes(5000), [])]) for _ in range(40))
    path = tmp_path / "00000000000000000000.log.gz"
    path.write_bytes(gzip.compress(segment)[:60_000])
    outcome = dump(str(path), capsys=capsys)
    assert outcome.died
    assert outcome.stdout.count(b"isvalid: true") >= 1
