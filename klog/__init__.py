"""klog: Kafka's log, in Python. The public interface of the library is what `__all__` names.

    import klog

    partition = klog.open_partition("/var/lib/kafka/orders-0")
    for record in partition.records(start_offset=1000):
        print(record.offset, record.key, record.value)

`klog.open` returns a `Segment`, a `PartitionDirectory` or a `LogDirectory`, depending on the path;
`open_segment`, `open_partition` and `open_log_directory` return one of them or fail. Reading is lazy and
changes nothing. `to_arrow` and `arrow_batches` of segments and partitions give Arrow tables and need pyarrow.
Every error that a bad file can cause is a `KlogError`.
"""

from __future__ import annotations

import importlib

# Type checkers treat this name as true. Importing `typing` would take most of the time of `import klog`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from klog.formats.errors import (
        CompressionError,
        CorruptRecordError,
        DecompressionLimitError,
        FormatError,
        KlogError,
        StorageError,
        UnsupportedFormatError,
        UsageError,
    )
    from klog.formats.names import TopicPartition
    from klog.storage.reading.opening import open_log_directory, open_partition, open_segment
    from klog.storage.reading.opening import open_path as open  # noqa: A004 (klog.open, as gzip.open)
    from klog.storage.reading.partition import LogDirectory, PartitionDirectory
    from klog.storage.reading.read_bounds import DamagedDataWarning, IsolationLevel
    from klog.storage.reading.segment import Segment
    from klog.storage.reading.values import Batch, Header, Record, TimestampType

    __version__: str

_MODULES = {
    "Batch": "klog.storage.reading.values",
    "CompressionError": "klog.formats.errors",
    "CorruptRecordError": "klog.formats.errors",
    "DamagedDataWarning": "klog.storage.reading.read_bounds",
    "DecompressionLimitError": "klog.formats.errors",
    "FormatError": "klog.formats.errors",
    "Header": "klog.storage.reading.values",
    "IsolationLevel": "klog.storage.reading.read_bounds",
    "KlogError": "klog.formats.errors",
    "LogDirectory": "klog.storage.reading.partition",
    "PartitionDirectory": "klog.storage.reading.partition",
    "Record": "klog.storage.reading.values",
    "Segment": "klog.storage.reading.segment",
    "StorageError": "klog.formats.errors",
    "TimestampType": "klog.storage.reading.values",
    "TopicPartition": "klog.formats.names",
    "UnsupportedFormatError": "klog.formats.errors",
    "UsageError": "klog.formats.errors",
    "open_log_directory": "klog.storage.reading.opening",
    "open_partition": "klog.storage.reading.opening",
    "open_segment": "klog.storage.reading.opening",
}
"""Maps a public name to the module that defines it, which is imported when the name is first used."""

__all__ = [
    "Batch",
    "CompressionError",
    "CorruptRecordError",
    "DamagedDataWarning",
    "DecompressionLimitError",
    "FormatError",
    "Header",
    "IsolationLevel",
    "KlogError",
    "LogDirectory",
    "PartitionDirectory",
    "Record",
    "Segment",
    "StorageError",
    "TimestampType",
    "TopicPartition",
    "UnsupportedFormatError",
    "UsageError",
    "__version__",
    "open",
    "open_log_directory",
    "open_partition",
    "open_segment",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("klog")
    elif name == "open":
        value = importlib.import_module("klog.storage.reading.opening").open_path
    elif name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'klog' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
