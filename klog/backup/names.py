"""Names of the objects of a repository, and ids of backups. `README.md` draws the layout."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from klog.backup.packing import SUFFIXES
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition

INFO: Final = "klog-backup.json"
KEYS: Final = "keys"
DATA: Final = "data"
MANIFESTS: Final = "manifests"
STATES: Final = "states"
TABLES: Final = "tables"
METADATA: Final = "metadata"
SUMMARIES: Final = "summaries"
OF_BACKUPS: Final = (DATA, STATES, TABLES, METADATA, SUMMARIES)
"""The directories of objects that go with the backups that need them."""
_HASH_DIGITS: Final = 16
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}")
_ID: Final = re.compile(r"\d{8}T\d{9}Z-[0-9a-z]{4,32}")
_SUMMARY: Final = re.compile(
    rf"{SUMMARIES}/({_ID.pattern})_({_ID.pattern})-[0-9a-f]{{16}}(\.objects)?\.json\.gz"
)


def backup_id(time_ms: int, suffix: str) -> str:
    """The id of a backup that ends at a time; `suffix` tells apart those that end in the same ms."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}{time_ms % 1000:03d}Z-{suffix}"


def checked_id(text: str) -> str:
    """An id that a user has given. Raises `UsageError` if it is none."""
    if _ID.fullmatch(text) is None:
        raise UsageError(f"{text!r} is not the id of a backup", cure="klog backup list shows the ids")
    return text


def manifest(identifier: str) -> str:
    """The name of a backup's manifest. There is a directory for each day, so that listings stay short."""
    return f"{MANIFESTS}/{identifier[:4]}-{identifier[4:6]}-{identifier[6:8]}/{identifier}.json"


def id_of_manifest(name: str) -> str | None:
    """The id in the name of a manifest; None for any other name."""
    identifier = name.rpartition("/")[2].removesuffix(".json")
    return identifier if _ID.fullmatch(identifier) and manifest(identifier) == name else None


def key(identifier: str) -> str:
    """The name of a data key of an encrypted repository."""
    return f"{KEYS}/{identifier}.json"


def id_of_key(name: str) -> str | None:
    """The id in the name of a data key; None for any other name."""
    identifier = name.rpartition("/")[2].removesuffix(".json")
    return identifier if _KEY_ID.fullmatch(identifier) and key(identifier) == name else None


def table(identifier: str) -> str:
    """The name of a table of all partitions."""
    return f"{TABLES}/{identifier}.json.gz"


def states(identifier: str, number: int) -> str:
    """The name of an object with states."""
    return f"{STATES}/{identifier}-{number:04d}.json.gz"


def metadata(content_id: str) -> str:
    """The name of the metadata of a cluster."""
    return f"{METADATA}/{content_id[:_HASH_DIGITS]}.json.gz"


def summary(first: str, last: str, content_id: str) -> str:
    """The name of a summary of the backups between two ids (inclusive)."""
    return f"{SUMMARIES}/{first}_{last}-{content_id[:_HASH_DIGITS]}.json.gz"


def needs(first: str, last: str, content_id: str) -> str:
    """The name of the objects that the backups of a summary need."""
    return f"{SUMMARIES}/{first}_{last}-{content_id[:_HASH_DIGITS]}.objects.json.gz"


def ids_of_summary(name: str) -> tuple[str, str] | None:
    """The first and the last id in the name of a summary or of its `needs`; None for any other name."""
    found = _SUMMARY.fullmatch(name)
    return None if found is None else (found[1], found[2])


def is_needs(name: str) -> bool:
    """Whether the name of a summary is one of `needs`."""
    return name.endswith(".objects.json.gz")


def day_of(time_ms: int) -> str:
    """The directory of the manifests of backups that ended on the day of a time."""
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d}"


def data_directory(partition: TopicPartition) -> str:
    """The directory of a partition's objects: Kafka's name; unusual characters are escaped as in URLs."""
    return f"{DATA}/{quote(str(partition), safe='')}"


def piece(
    partition: TopicPartition, segment: int, first: int, end: int, content_id: str, compression: str
) -> str:
    """The name of a piece with these offsets. `Store.content_id` makes what stands for its content."""
    offsets = f"{segment:020d}-{first:020d}-{end:020d}"
    return f"{data_directory(partition)}/{offsets}-{content_id[:_HASH_DIGITS]}.log{SUFFIXES[compression]}"


def snapshot(partition: TopicPartition, offset: int, content_id: str) -> str:
    """The name of a producer snapshot."""
    return f"{data_directory(partition)}/{offset:020d}-{content_id[:_HASH_DIGITS]}.snapshot"


def time_of_id(identifier: str) -> int:
    """The time at which the backup with this id ended, in ms."""
    moment = datetime.strptime(identifier[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000 + int(identifier[15:18])
