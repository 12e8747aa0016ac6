"""`--format kafka` prints what Kafka 3.9.1's tool printed for every file of every corpus, byte for byte."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from klog.commands.dump import kafka
from klog.commands.dump.plan import Decoder, DumpFile, DumpPlan, KafkaFlags
from klog.formats.errors import KlogError, UsageError
from klog.formats.names import FileKind
from tests import corpora

DEEP = KafkaFlags(print_data_log=True, deep_iteration=True)
SHALLOW = KafkaFlags()
DECODERS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTION_LOG,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
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
        status = kafka.run(DumpPlan(files, kafka=flags), out)
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
        kafka.run(DumpPlan((DumpFile(LOG, FileKind.LOG),), kafka=flags), io.BytesIO())


@pytest.mark.usefixtures("in_logs")
def test_double_slashes_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = dump(".//t-none-0//00000000000000000000.log", capsys=capsys)
    assert outcome.stdout.startswith(b"Dumping ./t-none-0/00000000000000000000.log\nLog starting offset: 0\n")
