"""Describes one run of `klog dump-segment` as plain values.

`dump_segment` builds a `DumpPlan` from the command line. Each output format (`table`, `jsonl`, `kafka`,
`parquet`, `summary`) is a module with `run(plan, out) -> exit code`, which writes data to `out` and messages
to stderr.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.constants import INT32_MAX
from klog.storage.files.kafka_files import KafkaFile
from klog.storage.reading.select import Bounds


class Rows(StrEnum):
    """Whether a row of the output is a record or a batch."""

    RECORDS = "records"
    BATCHES = "batches"


class BytesMode(StrEnum):
    """How keys and values are printed. `NONE` prints only their lengths."""

    AUTO = "auto"
    UTF8 = "utf8"
    BASE64 = "base64"
    HEX = "hex"
    NONE = "none"


class Decoder(StrEnum):
    """Kafka's decoders for records of internal topics."""

    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction-log"
    CLUSTER_METADATA = "cluster-metadata"
    REMOTE_LOG_METADATA = "remote-log-metadata"
    SHARE_GROUP_STATE = "share-group-state"


DumpFile = KafkaFile
"""One file to dump. Its `path` is printed as it is."""


@dataclass(frozen=True, slots=True)
class Selection(Bounds):
    """Which records to show, or which batches, if they may hold such a record. The default is all.

    In addition to the bounds of offset and time: `key` is the exact key, and `grep` is searched for in the
    text of key and value (UTF-8, other bytes as U+FFFD). `limit` counts rows over all files.
    """

    key: bytes | None = None
    grep: re.Pattern[str] | None = None
    limit: int | None = None

    @property
    def by_content(self) -> bool:
        """Whether the selection depends on keys or values."""
        return self.key is not None or self.grep is not None

    def matches_content(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether the selection includes a record with this key and value."""
        if self.key is not None and key != self.key:
            return False
        if self.grep is None:
            return True
        return any(
            self.grep.search(part.decode("utf-8", "replace")) for part in (key, value) if part is not None
        )


@dataclass(frozen=True, slots=True)
class KafkaFlags:
    """The options of Kafka's own dump tool, which `--format kafka` follows.

    Decoder classes are Java class names as the user gave them, or None. `max_bytes` and `max_message_size`
    have Kafka's defaults.
    """

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    max_bytes: int = INT32_MAX
    max_message_size: int = 5 * 1024 * 1024
    key_decoder_class: str | None = None
    value_decoder_class: str | None = None
    decoder: Decoder | None = None
    index_sanity_check: bool = False
    verify_index_only: bool = False


@dataclass(frozen=True, slots=True)
class DumpPlan:
    """One run of `klog dump-segment`.

    `verify` also checks checksums, offsets and indexes. `strict` stops at the first problem. `output` is the
    path that the user named, for parquet; text formats write to `out`. With `force` outputs replace
    files. `max_decompressed_bytes` limits what one batch may decompress to.
    """

    files: tuple[DumpFile, ...]
    rows: Rows = Rows.RECORDS
    bytes_mode: BytesMode = BytesMode.AUTO
    selection: Selection = field(default_factory=Selection)
    verify: bool = False
    strict: bool = False
    kafka: KafkaFlags = field(default_factory=KafkaFlags)
    output: str | None = None
    force: bool = False
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
