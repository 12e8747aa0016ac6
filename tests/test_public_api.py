"""What a library user may rely on: the public names, and that importing klog costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import klog

PUBLIC = [
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


def test_the_public_names_are_these_and_no_others() -> None:
    assert klog.__all__ == PUBLIC
    assert dir(klog) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(klog, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        klog.nonsense  # noqa: B018


def test_every_error_is_a_klog_error() -> None:
    errors = [getattr(klog, name) for name in PUBLIC if name.endswith("Error")]
    assert all(issubclass(error, klog.KlogError) for error in errors)


def test_importing_klog_imports_nothing_of_weight() -> None:
    loaded = "import sys; before = set(sys.modules); import klog; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['klog']"
