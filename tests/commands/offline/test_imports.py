"""What a small dump and a rebuild of indexes import. Each module costs time before the first byte is written.

If this test fails, import the new module where it is used, or list it here if the command needs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SEGMENT = Path(__file__).parents[3] / "fixtures/k39-txn/logs/t-txn-0/00000000000000000000.log"

PLAIN_SEGMENT = Path(__file__).parents[3] / "fixtures/k39-codecs/logs/t-none-0/00000000000000000000.log"

SHOW = """
import atexit, sys
atexit.register(lambda: print(*(name for name, module in sys.modules.items() if module), file=sys.stderr))
from klog.commands import main
main.main()
"""

KLOG = {
    "": ["klog"],
    "klog": ["commands", "formats", "kernel", "replicas", "storage"],
    "klog.commands": ["kafka_tools", "main", "offline", "shared"],
    "klog.commands.kafka_tools": ["dump_log"],
    "klog.commands.kafka_tools.dump_log": [
        "batch",
        "gzipped_copies",
        "index",
        "index_errors",
        "java",
        "log",
        "message_parser",
        "options",
        "parsers",
        "printing",
        "segment",
    ],
    "klog.commands.offline": ["dump", "dump_segment", "moments", "outputs"],
    "klog.commands.offline.dump": ["options"],
    "klog.commands.shared": [
        "arguments",
        "connection",
        "decoding",
        "exit_codes",
        "key_options",
        "messages",
        "option_sets",
        "records",
        "terminal",
        "version",
        "visible_output",
    ],
    "klog.commands.shared.decoding": ["field_encoding", "options"],
    "klog.commands.shared.records": ["output_buffer", "plan", "problems", "selection_options"],
    "klog.formats": [
        "_derived",
        "checksums",
        "compression",
        "constants",
        "errors",
        "fixed_fields",
        "function_source",
        "java_hash",
        "names",
        "packed",
        "visible",
        "wrapping",
    ],
    "klog.kernel": ["columns", "kernel", "text", "twins"],
    "klog.replicas": ["files"],
    "klog.storage": ["files", "indexes", "reading"],
    "klog.storage.files": ["chunks", "files", "gzipped", "kafka_files", "seekable", "sparse_files"],
    "klog.storage.indexes": ["index_file"],
    "klog.storage.reading": ["select"],
}
"""Modules of klog, by package."""

OTHERS = {"annotated_doc", "isal", "shellingham", "typer"}

SLOW = {
    *("asyncio", "concurrent.futures", "csv", "email", "http", "importlib.metadata", "importlib.resources"),
    *("json", "logging", "multiprocessing", "random", "socket", "sqlite3", "ssl", "tempfile", "unittest"),
    *("urllib.request", "xml"),
}
"""Modules of the standard library that cost most, or that import many others."""


UNUSED_BY_A_REBUILD = {
    "klog.formats.checkpoints",
    "klog.formats.compression",
    "klog.storage.indexes.index_check",
    "klog.storage.reading.position_search",
    "klog.storage.reading.producer_state",
    "klog.storage.reading.reader",
    "concurrent.futures",
    "logging",
    "multiprocessing",
}
"""What is for checks, records and transactions, and pools."""


def imported_by(*arguments: str) -> tuple[set[str], str]:
    """The modules that a command has imported, and its output."""
    command = [sys.executable, "-S", "-c", SHOW, *arguments]
    path = [entry for entry in sys.path if entry]
    env = {"PYTHONPATH": ":".join(path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return set(done.stderr.split()), done.stdout


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules of a dump of a small file in Kafka's format."""
    options = ("dump-segment", "--format", "kafka", "--print-data-log", "--deep-iteration", str(SEGMENT))
    modules, output = imported_by(*options)
    assert "baseOffset: " in output
    return modules


def test_a_small_dump_imports_these_modules_of_klog(imported: set[str]) -> None:
    ours = {name for name in imported if name.split(".")[0] == "klog"}
    # Compiled modules and their twins. Which ones run is not a matter of what is asked for.
    compiled = {name for name in ours if name.startswith(("klog._", "klog.kernel._"))}
    listed = {f"{package}.{name}".removeprefix(".") for package, names in KLOG.items() for name in names}
    assert ours - compiled == listed
    assert not {name for name in compiled if "json" in name}


def test_a_small_dump_imports_these_packages_of_others(imported: set[str]) -> None:
    packages = {name.split(".")[0] for name in imported} - sys.stdlib_module_names
    # Cython makes modules in memory, and gives `klog._cython` a second name.
    packages = {name for name in packages if not name.startswith(("_cython", "cython_runtime"))}
    assert packages - {"__main__", "klog"} == OTHERS


def test_a_small_dump_imports_no_slow_module(imported: set[str]) -> None:
    assert not imported & SLOW


def test_a_rebuild_of_indexes_without_transactions_imports_only_what_it_needs(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    shutil.copy(PLAIN_SEGMENT, partition)
    modules, _ = imported_by("rebuild-index", "--force", "--quiet", str(partition))
    assert (partition / SEGMENT.name).with_suffix(".index").exists()
    assert not modules & UNUSED_BY_A_REBUILD
