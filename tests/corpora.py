"""The log directories of `fixtures/`, as tests see them: what real Kafka wrote, and what Kafka says is in it.

A *corpus* is one directory of `fixtures/` with a `manifest.json`. It has one or more log directories (`logs`,
`logs_unclean`, `logs_0`, ...); each has its `expected*` and `dump*` directory with the same suffix. The
layout and the fields are described in `fixtures/README.md`. Every reader here hides whether a file is stored
gzipped.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FIXTURES = REPOSITORY / "fixtures"

JsonObject = dict[str, Any]


def stored(path: Path) -> Path | None:
    """The file at `path`, or its gzipped copy beside it, or None when there is neither."""
    if path.is_file():
        return path
    gzipped = path.with_name(path.name + ".gz")
    return gzipped if gzipped.is_file() else None


def read_stored(path: Path) -> bytes:
    """The bytes of `path`, unpacked when it is stored as `path.gz`. Raises FileNotFoundError."""
    found = stored(path)
    if found is None:
        raise FileNotFoundError(path)
    return gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()


def read_jsonl(path: Path) -> list[JsonObject]:
    """The objects of a JSON Lines file, gzipped or not."""
    return [json.loads(line) for line in read_stored(path).decode("utf-8").splitlines()]


@dataclass(frozen=True)
class Corpus:
    """One directory of `fixtures/`: some log directories that one story of real Kafka brokers left behind."""

    name: str

    @property
    def path(self) -> Path:
        return FIXTURES / self.name

    @cached_property
    def manifest(self) -> JsonObject:
        manifest: JsonObject = json.loads((self.path / "manifest.json").read_text("utf-8"))
        return manifest

    @property
    def kafka_version(self) -> str:
        return str(self.manifest["kafka_version"])

    @property
    def is_corrupt(self) -> bool:
        """True for corpora whose `logs` were damaged on purpose (`manifest["corruptions"]` says how)."""
        return "corruptions" in self.manifest

    def log_dirs(self) -> list[LogDirectory]:
        return [LogDirectory(self, name) for name in self.manifest["log_dirs"]]

    def log_dir(self, name: str = "logs") -> LogDirectory:
        return LogDirectory(self, name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LogDirectory:
    """One `log.dirs` entry of a broker, e.g. `logs`, `logs_unclean`, `logs_0`."""

    corpus: Corpus
    name: str

    @property
    def path(self) -> Path:
        return self.corpus.path / self.name

    @property
    def suffix(self) -> str:
        """What `expected` and `dump` carry too: `_unclean` of `logs_unclean`."""
        return self.name.removeprefix("logs")

    @property
    def expected_path(self) -> Path:
        return self.corpus.path / f"expected{self.suffix}"

    def dump_path(self, version: str = "") -> Path:
        """`dump*` by Kafka 3.9.1; with version `own` or `4.1` the directory `dump_own`, `dump_4.1`."""
        return self.corpus.path / (f"dump_{version}" if version else f"dump{self.suffix}")

    def partitions(self) -> list[PartitionDirectory]:
        """The partition directories, by name.

        A directory without a dash is none (`.lock` and checkpoints are files).
        """
        names = sorted(entry.name for entry in self.path.iterdir() if entry.is_dir() and "-" in entry.name)
        return [PartitionDirectory(self, name) for name in names]

    def partition(self, name: str) -> PartitionDirectory:
        return PartitionDirectory(self, name)

    def __str__(self) -> str:
        return f"{self.corpus.name}/{self.name}"


@dataclass(frozen=True)
class PartitionDirectory:
    """One partition's directory in one log directory, and what Kafka says about it."""

    log_dir: LogDirectory
    name: str

    @property
    def path(self) -> Path:
        return self.log_dir.path / self.name

    @property
    def corpus(self) -> Corpus:
        return self.log_dir.corpus

    def files(self, *suffixes: str) -> list[Path]:
        """The files, by name; only those that end with one of `suffixes` when any is given."""
        return sorted(
            entry
            for entry in self.path.iterdir()
            if entry.is_file() and (not suffixes or entry.name.endswith(suffixes))
        )

    @property
    def has_expected(self) -> bool:
        return stored(self.log_dir.expected_path / f"{self.name}.batches.jsonl") is not None

    def expected_batches(self) -> list[JsonObject]:
        """Every line of `<tp>.batches.jsonl`:

        batches, and at the end of each file its `fileSize` or `scanError`.
        """
        return read_jsonl(self.log_dir.expected_path / f"{self.name}.batches.jsonl")

    def expected_records(self) -> list[JsonObject]:
        """Every line of `<tp>.records.jsonl`: records, and `iterationError` where Kafka throws."""
        return read_jsonl(self.log_dir.expected_path / f"{self.name}.records.jsonl")

    def expected_consumer(self, isolation: str = "read_uncommitted") -> list[JsonObject] | None:
        """What a real consumer returned from the live broker, or None when nobody asked one."""
        path = self.log_dir.expected_path / f"{self.name}.consumer.{isolation}.jsonl"
        return read_jsonl(path) if stored(path) is not None else None

    def dump(self, kind: str, version: str = "") -> bytes | None:
        """Kafka's dump text:

        kind is `log.deep`, `log.shallow`, `log.decoded` or `index`; None when absent.
        """
        path = self.log_dir.dump_path(version) / f"{self.name}.{kind}.txt"
        return read_stored(path) if stored(path) is not None else None

    def __str__(self) -> str:
        return f"{self.log_dir}/{self.name}"


@cache
def corpora(*prefixes: str) -> tuple[Corpus, ...]:
    """Every corpus, by name; only those whose name starts with one of `prefixes` when any is given.

    Raises AssertionError when that finds none: a test over no corpus would pass without having looked at
    anything.
    """
    found = tuple(
        Corpus(manifest.parent.name)
        for manifest in sorted(FIXTURES.glob("*/manifest.json"))
        if not prefixes or manifest.parent.name.startswith(prefixes)
    )
    assert found, f"no corpus in {FIXTURES} starts with {prefixes}"
    return found


def log_dirs(chosen: Sequence[Corpus] | None = None) -> list[LogDirectory]:
    """Every log directory of the chosen corpora (default: all)."""
    return [log_dir for corpus in (corpora() if chosen is None else chosen) for log_dir in corpus.log_dirs()]


def partitions(chosen: Sequence[Corpus] | None = None) -> list[PartitionDirectory]:
    """Every partition directory of the chosen corpora (default:

    all). Use with `ids=str` in a parametrised test.
    """
    return [partition for log_dir in log_dirs(chosen) for partition in log_dir.partitions()]


def files(*suffixes: str, chosen: Sequence[Corpus] | None = None) -> Iterator[Path]:
    """Every file of every partition directory; only those ending with one of `suffixes` when any is given."""
    for partition in partitions(chosen):
        yield from partition.files(*suffixes)


def fixture_id(path: Path) -> str:
    """A short test id: the path below `fixtures/`."""
    return path.relative_to(FIXTURES).as_posix()


@dataclass(frozen=True)
class DumpFlagsCase:
    """One run of Kafka 3.9.1's dump tool with unusual flags or files, from `fixtures/dump-flags/`."""

    name: str
    log_dir: Path
    """The working directory of that run; file arguments are relative to it."""
    args: tuple[str, ...]
    status: int
    thrown: str | None
    """The exception that ended the run, or None."""
    stdout: bytes

    def __str__(self) -> str:
        return self.name


@cache
def dump_flags_cases() -> tuple[DumpFlagsCase, ...]:
    """Every case of `fixtures/dump-flags/`, by name."""
    directory = FIXTURES / "dump-flags"
    cases = tuple(
        DumpFlagsCase(
            name=case["name"],
            log_dir=FIXTURES / case["log_dir"],
            args=tuple(case["args"]),
            status=case["status"],
            thrown=case["thrown"],
            stdout=read_stored(directory / case["stdout"]),
        )
        for case in json.loads((directory / "cases.json").read_text("utf-8"))
    )
    assert cases
    return cases
