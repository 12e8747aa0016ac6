"""The tiers of the tests: which run by default, and which only if `--tier` asks for them.

The quick tier is what the README's test command runs. It needs no JDK. All that runs real Kafka (the marker
`kafka`), whole clusters, real clients, long random histories and Spark belongs to the rest. Paths that are
named on the command line run whatever their tier is.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

QUICK: Final = "quick"
REST: Final = "rest"
FULL: Final = "full"
TIERS: Final = (QUICK, REST, FULL)

LEFT_OUT: Final = (
    # Real clients, real clusters, long random histories, Spark.
    "checker",
    "clients",
    "cluster",
    "comparison",
    "fuzz",
    "simulation",
    "spark",
    "swap",
    # These start brokers, kill processes, compile, or search for long.
    "test_setup.py",
    "test_checksum_code.py",
    "benchmarks",
    "formats/test_optional.py",
    "testing/test_broker_process.py",
    "testing/test_cluster.py",
    "testing/test_documentation.py",
    "server/fetching",
    "server/network",
    "server/read_only",
    "server/test_*.py",
    "server/handlers/test_transactional_runs.py",
    "commands/offline/test_two_at_once.py",
    "commands/test_client_examples.py",
    "commands/test_client_secrets.py",
    "commands/test_completion.py",
    "commands/test_streams.py",
    "commands/test_terminals.py",
    "commands/cluster/test_consume*.py",
    "commands/cluster/test_produce.py",
    "commands/cluster/test_reassign*.py",
    "commands/cluster/test_transactions.py",
    "commands/kafka_tools/test_console_*.py",
    "commands/offline/test_adopt.py",
    "commands/offline/test_export.py",
    "commands/offline/test_outputs.py",
    "commands/offline/test_slowness.py",
    "commands/servers",
    "commands/shared/test_output_options.py",
    "admin/reassign",
    "docs/test_admin_page.py",
    "docs/test_backup_page.py",
    "docs/test_backup_scenarios.py",
    "docs/test_broker_block.py",
    "docs/test_client_pages.py",
    "docs/test_cluster_page.py",
    "docs/test_export_guide.py",
    "docs/test_kafka4_page.py",
    "docs/test_metadata_page.py",
    "docs/test_repair_pages.py",
    "docs/test_security_page.py",
    "docs/test_tables_guide.py",
    "export/test_export_faults.py",
    "export/test_export_kills.py",
    "export/test_export_rows.py",
    "storage/log/test_crashes.py",
    "convert/test_corpora.py",
    "convert/test_properties.py",
    "backup/test_checks_before_restore.py",
    "backup/test_damaged_objects.py",
    "backup/test_export_moments.py",
    "backup/test_faulty_object_store.py",
    "backup/test_histories.py",
    "backup/test_kills.py",
    "backup/test_replica_histories.py",
    "backup/test_restore_into_cluster.py",
    "backup/test_restore_signals.py",
    "backup/test_restored_brokers.py",
    "backup/test_running_broker.py",
    "backup/test_serve_faults.py",
    "backup/test_serve_moments.py",
    "backup/test_silent_places.py",
    "backup/wire",
    "cluster_metadata/test_round_trips.py",
)
"""Directories and files of tests/ that the quick tier leaves out."""

TESTS: Final = Path(__file__).parent


@cache
def is_left_out(path: Path) -> bool:
    """True if a file or directory below tests/ belongs to the rest as a whole."""
    try:
        name = path.relative_to(TESTS).as_posix()
    except ValueError:
        return False
    return any(fnmatchcase(name, each) or name.startswith(f"{each}/") for each in LEFT_OUT)


@cache
def may_mark(path: Path) -> bool:
    """True if tests of a module may carry the marker `kafka`: it or a `conftest.py` that it uses says so."""
    above = [
        directory for directory in path.parents if directory.is_relative_to(TESTS) and directory != TESTS
    ]
    sources = [path, *(directory / "conftest.py" for directory in above)]
    return any("mark.kafka" in source.read_text(encoding="utf-8") for source in sources if source.is_file())


def has_none(tier: str, path: Path) -> bool:
    """True if no test below a path of tests/ runs in `tier`, so that nothing there need be imported."""
    if tier == QUICK:
        return is_left_out(path)
    is_module = path.suffix == ".py" and path.name != "conftest.py"
    return tier == REST and is_module and not is_left_out(path) and not may_mark(path)


def is_selected(tier: str, path: Path, markers: Iterable[str]) -> bool:
    """True if a test in the file `path` runs in `tier`."""
    if tier == FULL:
        return True
    is_quick = "kafka" not in set(markers) and not is_left_out(path)
    return is_quick == (tier == QUICK)


def left_out_note() -> str:
    """The line that ends a run of the quick tier."""
    return (
        "Quick tier. Left out: real Kafka, clusters, clients, long histories, Spark (tests/tiers.py). "
        "To run all tests, add: --tier full"
    )
