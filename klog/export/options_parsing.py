"""Parses options given as strings, under the names of Spark's Kafka source, to `ReadOptions`.

Names and values are those of Spark's "Structured Streaming + Kafka Integration Guide", in upper or lower
case; `isolation`, `metadataColumns`, `targetSplitBytes`, `maxDecompressedBytes`, `includeDeleted`, and those
for backup repositories (`at`, `backup`, `encryptionKeyFile`) are klog's own. There are two differences.
`failOnDataLoss` is false by default, because an export of a dead broker's disk should read what is left. And
offsets or times need not be given for every partition: partitions that are not named are read from their
first offset, or to their end.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from klog.export.options import (
    EARLIEST,
    LATEST,
    TARGET_SPLIT_BYTES,
    Edge,
    Isolation,
    ReadOptions,
    Subscription,
)
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import UsageError
from klog.storage.reading.batch_search import MAX_BATCH_BYTES

OPTION_NAMES: Final = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "kafka.isolation.level",
    "isolation",
    "metadataColumns",
    "targetSplitBytes",
    "maxDecompressedBytes",
    "includeDeleted",
    "at",
    "backup",
    "encryptionKeyFile",
)
"""The names of all options that `read_options` knows."""

_ONLY_FOR_BROKERS: Final = frozenset(
    name.lower()
    for name in (
        "groupIdPrefix",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "kafkaConsumer.pollTimeoutMs",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxRecordsPerPartition",
        "useDeprecatedOffsetFetching",
    )
)
"""Options of Spark's Kafka source that say how it reads from brokers; `kafka.*` are those of its client."""
_KAFKA: Final = "kafka."

_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BOOLEANS: Final = {"true": True, "false": False}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def read_options(raw: Mapping[str, str], paths: Sequence[str] = ()) -> ReadOptions:
    """The parsed options of `raw`; `paths` come before its `path`.

    Raises `UsageError` for an unknown option (naming the most similar one), an invalid value, options that
    exclude each other, and if there is no path.
    """
    given = _Given(raw)
    path = given.text("path")
    all_paths = (*paths, *([] if path is None else [path]))
    if not all_paths:
        raise UsageError(
            "no path is given", cure="name log directories, partition directories, segments, or their URIs"
        )
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) or "error"
    return ReadOptions(
        paths=all_paths,
        subscription=_subscription(given),
        starting=_edge(given, "starting", EARLIEST),
        ending=_edge(given, "ending", LATEST),
        timestamp_latest=strategy == "latest",
        isolation=_isolation(given),
        include_headers=given.boolean("includeHeaders"),
        metadata_columns=_metadata_columns(given),
        fail_on_data_loss=given.boolean("failOnDataLoss"),
        min_partitions=given.count("minPartitions"),
        target_split_bytes=given.size_bytes("targetSplitBytes", TARGET_SPLIT_BYTES),
        max_decompressed_bytes=given.size_bytes("maxDecompressedBytes", MAX_BATCH_BYTES),
        include_deleted=given.boolean("includeDeleted"),
        at_ms=_moment(given),
        backup=given.text("backup"),
        encryption_key_file=given.text("encryptionKeyFile"),
    )


def ignored_options(raw: Mapping[str, str]) -> tuple[str, ...]:
    """The options of Spark's Kafka source that have no meaning without a broker: `read_options` ignores
    them."""
    return tuple(name for name in raw if _is_ignored(name.lower()))


def _is_ignored(name: str) -> bool:
    known = [option.lower() for option in OPTION_NAMES if option.startswith(_KAFKA)]
    if name in _ONLY_FOR_BROKERS:
        return True
    return name.startswith(_KAFKA) and not difflib.get_close_matches(name, known, n=1, cutoff=0.9)


class _Given:
    """The given options, by their names in lower case, without those that have no meaning here."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in OPTION_NAMES}
        self._values: dict[str, str] = {}
        for name, value in raw.items():
            if _is_ignored(name.lower()):
                continue
            if name.lower() not in known:
                raise _unknown(name, known)
            if self._values.setdefault(name.lower(), str(value)) != str(value):
                raise UsageError(f"option {known[name.lower()]} is given twice, in different cases")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def boolean(self, name: str) -> bool:
        text = self.text(name)
        if text is None:
            return False
        if text.strip().lower() not in _BOOLEANS:
            raise _bad(name, text, "true or false")
        return _BOOLEANS[text.strip().lower()]

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        text = self.text(name)
        if text is not None and text.strip().lower() not in choices:
            raise _bad(name, text, " or ".join(choices))
        return None if text is None else text.strip().lower()

    def integer(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if _INTEGER.fullmatch(text.strip()) is None:
            raise _bad(name, text, "a whole number")
        return int(text)

    def count(self, name: str) -> int | None:
        number = self.integer(name)
        if number is not None and not 0 < number <= INT32_MAX:
            raise _bad(name, str(number), f"a number from 1 to {INT32_MAX}")
        return number

    def size_bytes(self, name: str, default: int) -> int:
        text = self.text(name)
        return default if text is None else parse_size_bytes(name, text)


def parse_size_bytes(name: str, text: str) -> int:
    """The bytes in the option `name`, such as 67108864, 64m or 1g. Raises `UsageError`."""
    match = _SIZE.fullmatch(text.strip())
    size = 0 if match is None else int(match[1]) << _SHIFTS[match[2].lower()]
    if not 0 < size <= INT64_MAX:
        raise _bad(name, text, "a number of bytes from 1 on, such as 67108864, 64m or 1g")
    return size


def _unknown(name: str, known: Mapping[str, str]) -> UsageError:
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    cure = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(OPTION_NAMES)}"
    return UsageError(f"option {name} is not known", cure=cure)


def _bad(name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"option {name} is {str(value)[:200]!r}, it takes {wanted}")


def _moment(given: _Given) -> int | None:
    text = given.text("at")
    if text is None:
        return None
    if given.text("backup") is not None:
        raise UsageError("options at and backup exclude each other", cure="give one of them")
    if _INTEGER.fullmatch(text.strip()) is not None:
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _bad("at", text, "a time with its zone such as 2026-11-24T10:00:00Z, or ms since the epoch")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _isolation(given: _Given) -> Isolation:
    levels = [level.value for level in Isolation]
    chosen = [given.choice(name, levels) for name in ("isolation", "kafka.isolation.level")]
    values = {level for level in chosen if level is not None}
    if len(values) > 1:
        raise UsageError("options isolation and kafka.isolation.level contradict each other")
    return Isolation(values.pop()) if values else Isolation.READ_UNCOMMITTED


def _metadata_columns(given: _Given) -> tuple[str, ...]:
    text = given.text("metadataColumns")
    if text is None:
        return ()
    from klog.export.schema import METADATA_COLUMNS

    known = {name.lower(): name for name in METADATA_COLUMNS}
    columns: dict[str, None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name.lower() not in known:
            raise _bad("metadataColumns", name, f"names of {', '.join(METADATA_COLUMNS)}")
        columns[known[name.lower()]] = None
    return tuple(columns)


def _subscription(given: _Given) -> Subscription:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(chosen) > 1:
        raise UsageError(f"options {' and '.join(chosen)} exclude each other", cure="give one of them")
    if not chosen:
        return Subscription()
    text = given.text(chosen[0]) or ""
    if chosen == ["assign"]:
        return Subscription(partitions=_assigned(text))
    if chosen == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise _bad("subscribePattern", text, f"a regular expression ({error})") from error
        return Subscription(pattern=text)
    topics = frozenset(filter(None, (topic.strip() for topic in text.split(","))))
    if not topics:
        raise _bad("subscribe", text, "names of topics, with commas between them")
    return Subscription(topics=topics)


def _assigned(text: str) -> dict[str, frozenset[int]]:
    wanted = 'JSON such as {"orders": [0, 1]}'
    parsed = _json_object("assign", text, wanted)
    assigned: dict[str, frozenset[int]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(_is_partition(number) for number in partitions):
            raise _bad("assign", text, wanted)
        assigned[topic] = frozenset(partitions)
    return assigned


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= INT32_MAX


def _edge(given: _Given, edge: str, default: int) -> Edge:
    """Where reading starts or ends. As in Spark, a time for all partitions takes precedence over times for
    single ones, and these over offsets."""
    timestamp = given.integer(f"{edge}Timestamp")
    if timestamp is not None:
        if timestamp < 0:
            raise _bad(f"{edge}Timestamp", timestamp, "ms since the epoch, from 0 on")
        return Edge(default, timestamp_ms=timestamp)
    times = given.text(name := f"{edge}OffsetsByTimestamp")
    if times is not None:
        return Edge(default, timestamps=_numbers(name, times, lowest=0))
    offsets = given.text(name := f"{edge}Offsets")
    if offsets is None:
        return Edge(default)
    word = "earliest" if default == EARLIEST else "latest"
    if offsets.strip().lower() == word:
        return Edge(default)
    if not offsets.lstrip().startswith("{"):
        raise _bad(name, offsets, f'{word} or JSON such as {{"orders": {{"0": 23}}}}')
    numbers = _numbers(name, offsets, lowest=EARLIEST)
    excluded = LATEST if default == EARLIEST else EARLIEST
    if any(excluded in partitions.values() for partitions in numbers.values()):
        raise _bad(name, offsets, f"offsets and {default} (for {word}); {excluded} would read nothing")
    return Edge(default, offsets=numbers)


def _numbers(name: str, text: str, lowest: int) -> dict[str, dict[int, int]]:
    """Numbers by topic and partition, from JSON in which partitions are strings."""
    wanted = f'JSON such as {{"orders": {{"0": 23}}}}, numbers from {lowest} on'
    parsed = _json_object(name, text, wanted)
    numbers: dict[str, dict[int, int]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise _bad(name, text, wanted)
        numbers[topic] = {}
        for partition, number in partitions.items():
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not re.fullmatch(r"[0-9]{1,10}", partition) or not whole or not lowest <= number <= INT64_MAX:
                raise _bad(name, text, wanted)
            numbers[topic][int(partition)] = number
    return numbers


def _json_object(name: str, text: str, wanted: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(name, text, wanted) from error
    if not isinstance(parsed, dict):
        raise _bad(name, text, wanted)
    return parsed
